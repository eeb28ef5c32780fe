/* coder.c: see coder.h. */
#include "codec/coder.h"

#include <errno.h>
#include <isa-l/erasure_code.h>
#include <stdlib.h>

#include "codec/codec.h"

/* ISA-L makes up to six outputs in one pass over the inputs. More need further passes, which should
 * find the inputs in the cache: k blocks of this size fit a second-level cache of 1 MiB. */
#define CODER_BLOCK_BYTES ((size_t)32 << 10)

int coder_open(struct coder *c, const uint8_t *coefficients, unsigned k, unsigned rows) {
  struct coder coder = {.k = k, .rows = rows};
  coder.is_xor = matrix_all_ones(coefficients, (size_t)k * rows);
  if (!coder.is_xor) {
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

void coder_run(const struct coder *c, const uint8_t *const *in, uint8_t *const *out, size_t len) {
  if (c->is_xor) {
    for (unsigned i = 0; i < c->rows; i++) xor_blocks(out[i], in, c->k, len);
    return;
  }
  unsigned char *from[MAP_SLOTS_MAX], *to[MAP_SLOTS_MAX];
  for (size_t at = 0; at < len; at += CODER_BLOCK_BYTES) {
    for (unsigned i = 0; i < c->k; i++) from[i] = (unsigned char *)in[i] + at;
    for (unsigned i = 0; i < c->rows; i++) to[i] = out[i] + at;
    size_t part = MIN(CODER_BLOCK_BYTES, len - at);
    ec_encode_data((int)part, (int)c->k, (int)c->rows, c->tables, from, to);
  }
}
