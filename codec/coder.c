/* coder.c: see coder.h. */
#include "codec/coder.h"

#include <errno.h>
#include <isa-l/erasure_code.h>
#include <stdlib.h>

#include "codec/codec.h"

/* ISA-L makes up to six outputs in one pass over the inputs: the call is passed on as it is. More
 * need further passes, which should find the inputs in the cache: k blocks of this size fit a
 * second-level cache of 1 MiB. */
#define CODER_PASS_ROWS 6
#define CODER_BLOCK_BYTES ((size_t)32 << 10)
/* ISA-L takes an int. */
#define CODER_CALL_BYTES_MAX ((size_t)1 << 30)
/* Rows of XOR share inputs: blocks that a first-level cache holds. */
#define CODER_XOR_BLOCK_BYTES ((size_t)8 << 10)

int coder_open(struct coder *c, const uint8_t *coefficients, unsigned k, unsigned rows) {
  struct coder coder = {.k = k, .rows = rows};
  coder.is_xor = matrix_all_bits(coefficients, (size_t)k * rows);
  if (coder.is_xor) {
    for (unsigned i = 0; i < k * rows; i++)
      coder.inputs[i / k] |= (uint32_t)coefficients[i] << i % k;
  } else {
    coder.tables = malloc((size_t)GF_TABLE_BYTES * k * rows);
    if (!coder.tables) return -ENOMEM;
    ec_init_tables((int)k, (int)rows, (unsigned char *)coefficients, coder.tables);
  }
  *c = coder;
  return 0;
}

void coder_close(struct coder *c) {
  free(c->tables);
  c->tables = NULL;
}

static void run_xor(const struct coder *c, const uint8_t *const *in, uint8_t *const *out,
                    size_t len) {
  const uint8_t *from[MAP_SLOTS_MAX];
  if (c->rows == 1 && c->inputs[0] == (UINT32_C(1) << (c->k - 1) << 1) - 1) {
    xor_blocks(out[0], in, c->k, len);
    return;
  }
  size_t block = c->rows > 1 ? CODER_XOR_BLOCK_BYTES : len;
  for (size_t at = 0; at < len; at += block) {
    for (unsigned row = 0; row < c->rows; row++) {
      unsigned n = 0;
      for (uint32_t left = c->inputs[row]; left; left &= left - 1)
        from[n++] = in[__builtin_ctz(left)] + at;
      xor_blocks(out[row] + at, from, n, MIN(block, len - at));
    }
  }
}

void coder_run(const struct coder *c, const uint8_t *const *in, uint8_t *const *out, size_t len) {
  if (c->is_xor) {
    run_xor(c, in, out, len);
    return;
  }
  size_t block = c->rows > CODER_PASS_ROWS ? CODER_BLOCK_BYTES : CODER_CALL_BYTES_MAX;
  if (len <= block) { /* ISA-L writes to no input; its prototype is older than const */
    ec_encode_data((int)len, (int)c->k, (int)c->rows, c->tables, (unsigned char **)in,
                   (unsigned char **)out);
    return;
  }
  unsigned char *from[MAP_SLOTS_MAX], *to[MAP_SLOTS_MAX];
  for (size_t at = 0; at < len; at += block) {
    for (unsigned i = 0; i < c->k; i++) from[i] = (unsigned char *)in[i] + at;
    for (unsigned i = 0; i < c->rows; i++) to[i] = out[i] + at;
    size_t part = MIN(block, len - at);
    ec_encode_data((int)part, (int)c->k, (int)c->rows, c->tables, from, to);
  }
}
