/* foreign_main_test.c: the same bytes as other people's encoders make, and each restores what the
 * other has encoded.
 *
 *   liberasurecode  isa_l_rs_vand and isa_l_rs_cauchy: the payload of every fragment is ours, bit
 * for bit; theirs decodes out of any k of ours and ours out of any k of theirs jerasure        its
 * reed_sol_van has another matrix; its RAID-6 code (P and Q) is our reed_sol_van with m = 2; with
 * our matrices its coder makes our parities, and its decoder restores our chunks
 *
 * Built with what CMake finds; where a library is missing its part says so and the test as a whole
 * is reported as skipped. Prints what was compared; exit status 0, 1 or 77. */
#include <stdio.h>
#include <stdlib.h>

#include "codec/matrix.h"
#include "tests/unit/codec/codec_bed.h"

#ifdef KOFN_HAVE_LIBERASURECODE
#include <liberasurecode/erasurecode.h>
#endif
#ifdef KOFN_HAVE_JERASURE
/* Its headers are older than prototypes with void. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <jerasure.h>
#include <jerasure/reed_sol.h>
#pragma GCC diagnostic pop
#endif

#define SKIPPED 77

#define CHECK(condition)                                       \
  do {                                                         \
    if (!(condition)) {                                        \
      printf("FAILED at line %d: %s\n", __LINE__, #condition); \
      exit(1);                                                 \
    }                                                          \
  } while (0)

struct shape {
  unsigned technique, k, m;
};

#ifdef KOFN_HAVE_LIBERASURECODE

/* Every loss of 1 to m fragments, rebuilt by each of the two out of what the other made. */
static unsigned erasurecode_losses(int desc, struct bed_stripe *s, char **fragments,
                                   uint64_t fragment_len, const uint8_t *body, size_t size) {
  unsigned patterns = 0;
  for (uint32_t lost = 1; lost <= s->all; lost++) {
    if ((unsigned)__builtin_popcount(lost) > s->m) continue;
    /* Ours: units are their payloads here. */
    CHECK(bed_stripe_rebuild(s, s->all & ~lost, lost) == 0);
    /* Theirs, out of fragments with our payloads. */
    char *there[MAP_SLOTS_MAX], *out = NULL;
    int count = 0;
    uint64_t out_len = 0;
    for (unsigned i = 0; i < s->n; i++) {
      if (!(lost >> i & 1)) there[count++] = fragments[i];
    }
    CHECK(liberasurecode_decode(desc, there, count, fragment_len, 0, &out, &out_len) == 0);
    CHECK(out_len == size && memcmp(out, body, size) == 0);
    CHECK(liberasurecode_decode_cleanup(desc, out) == 0);
    unsigned first = (unsigned)__builtin_ctz(lost);
    char *rebuilt = calloc(1, fragment_len);
    CHECK(rebuilt);
    CHECK(liberasurecode_reconstruct_fragment(desc, there, count, fragment_len, (int)first,
                                              rebuilt) == 0);
    CHECK(memcmp(rebuilt + sizeof(fragment_header_t), s->original[first], s->len) == 0);
    free(rebuilt);
    patterns++;
  }
  return patterns;
}

static bool erasurecode_shape(const struct shape *shape, size_t size) {
  struct ec_args args = {
      .k = (int)shape->k, .m = (int)shape->m, .hd = (int)shape->m, .ct = CHKSUM_NONE};
  bool cauchy = shape->technique == TECHNIQUE_CAUCHY;
  ec_backend_id_t id = cauchy ? EC_BACKEND_ISA_L_RS_CAUCHY : EC_BACKEND_ISA_L_RS_VAND;
  int desc = liberasurecode_instance_create(id, &args);
  if (desc <= 0) return false;
  uint8_t *body = malloc(size);
  CHECK(body);
  bed_fill(body, size, (uint32_t)size);
  char **data = NULL, **parity = NULL, *fragments[MAP_SLOTS_MAX];
  uint64_t fragment_len = 0;
  CHECK(liberasurecode_encode(desc, (const char *)body, size, &data, &parity, &fragment_len) == 0);

  struct bed_stripe s;
  CHECK(bed_stripe_open(&s, shape->technique, shape->k, shape->m,
                        fragment_len - sizeof(fragment_header_t)));
  for (unsigned i = 0; i < s.n; i++) {
    fragments[i] = i < s.k ? data[i] : parity[i - s.k];
    memcpy(s.original[i], fragments[i] + sizeof(fragment_header_t), s.len);
    memcpy(s.units[i], s.original[i], s.len);
  }
  /* Our parities of their data are their parities. */
  for (unsigned i = s.k; i < s.n; i++) memset(s.units[i], 0, s.len);
  codec_encode(s.codec, (const uint8_t *const *)s.units, s.units + s.k, s.len);
  for (unsigned i = s.k; i < s.n; i++) {
    CHECK(memcmp(s.units[i], s.original[i], s.len) == 0);
    memcpy(fragments[i] + sizeof(fragment_header_t), s.units[i], s.len);
  }
  unsigned patterns = erasurecode_losses(desc, &s, fragments, fragment_len, body, size);
  printf("liberasurecode %s %u+%u, %zu bytes: parities equal, %u losses restored both ways\n",
         cauchy ? "isa_l_rs_cauchy" : "isa_l_rs_vand", s.k, s.m, size, patterns);
  bed_stripe_close(&s);
  liberasurecode_encode_cleanup(desc, data, parity);
  liberasurecode_instance_destroy(desc);
  free(body);
  return true;
}

static bool erasurecode(void) {
  static const struct shape shapes[] = {
      {TECHNIQUE_REED_SOL_VAN, 2, 1}, {TECHNIQUE_REED_SOL_VAN, 2, 2},
      {TECHNIQUE_REED_SOL_VAN, 4, 2}, {TECHNIQUE_REED_SOL_VAN, 6, 3},
      {TECHNIQUE_REED_SOL_VAN, 8, 4}, {TECHNIQUE_CAUCHY, 2, 2},
      {TECHNIQUE_CAUCHY, 4, 2},       {TECHNIQUE_CAUCHY, 6, 4},
  };
  static const size_t sizes[] = {1, 4096, 100001};
  for (unsigned i = 0; i < ARRAY_LEN(shapes); i++) {
    for (unsigned z = 0; z < ARRAY_LEN(sizes); z++) {
      if (!erasurecode_shape(&shapes[i], sizes[z])) return false;
    }
  }
  return true;
}

#else
static bool erasurecode(void) {
  return false;
}
#endif

#ifdef KOFN_HAVE_JERASURE

#define JERASURE_W 8 /* bits of a symbol: GF(2^8), polynomial 0x11d as ours */

static void jerasure_raid6(unsigned k, size_t len) {
  struct bed_stripe s;
  char *parity[2] = {malloc(len), malloc(len)};
  CHECK(parity[0] && parity[1] && bed_stripe_open(&s, TECHNIQUE_REED_SOL_VAN, k, 2, len));
  char *data[MAP_SLOTS_MAX];
  for (unsigned i = 0; i < k; i++) {
    data[i] = malloc(len); /* its regions must be aligned */
    CHECK(data[i]);
    memcpy(data[i], s.units[i], len);
  }
  CHECK(reed_sol_r6_encode((int)k, JERASURE_W, data, parity, (int)len) == 1);
  CHECK(memcmp(parity[0], s.units[k], len) == 0);
  CHECK(memcmp(parity[1], s.units[k + 1], len) == 0);
  printf("jerasure RAID-6 %u+2, %zu bytes: P and Q equal\n", k, len);
  for (unsigned i = 0; i < k; i++) free(data[i]);
  free(parity[0]);
  free(parity[1]);
  bed_stripe_close(&s);
}

static void jerasure_matrix(const struct shape *shape, size_t len) {
  struct profile p = {(uint8_t)shape->technique, (uint8_t)shape->k, (uint8_t)shape->m, 64};
  uint8_t rows[MATRIX_BYTES_MAX];
  int matrix[MATRIX_BYTES_MAX];
  struct bed_stripe s;
  char *blocks[MAP_SLOTS_MAX];
  unsigned patterns = 0;
  matrix_fill(&p, rows);
  for (unsigned i = 0; i < p.k * p.m; i++) matrix[i] = rows[p.k * p.k + i];
  CHECK(bed_stripe_open(&s, p.technique, p.k, p.m, len));
  for (unsigned i = 0; i < s.n; i++) {
    blocks[i] = calloc(1, len);
    CHECK(blocks[i]);
    if (i < s.k) memcpy(blocks[i], s.units[i], len);
  }
  jerasure_matrix_encode(p.k, p.m, JERASURE_W, matrix, blocks, blocks + p.k, (int)len);
  for (unsigned i = s.k; i < s.n; i++) CHECK(memcmp(blocks[i], s.units[i], len) == 0);
  for (uint32_t lost = 1; lost <= s.all; lost++) {
    int erasures[MAP_SLOTS_MAX + 1], count = 0;
    if ((unsigned)__builtin_popcount(lost) > s.m) continue;
    for (unsigned i = 0; i < s.n; i++) {
      if (!(lost >> i & 1)) continue;
      erasures[count++] = (int)i;
      memset(blocks[i], 0, len);
    }
    erasures[count] = -1;
    CHECK(jerasure_matrix_decode(p.k, p.m, JERASURE_W, matrix, 0, erasures, blocks, blocks + p.k,
                                 (int)len) == 0);
    for (unsigned i = 0; i < s.n; i++) CHECK(memcmp(blocks[i], s.original[i], len) == 0);
    patterns++;
  }
  printf("jerasure with our %s %u+%u, %zu bytes: parities equal, %u losses restored\n",
         technique_name(p.technique), s.k, s.m, len, patterns);
  for (unsigned i = 0; i < s.n; i++) free(blocks[i]);
  bed_stripe_close(&s);
}

static bool jerasure(void) {
  static const struct shape shapes[] = {
      {TECHNIQUE_REED_SOL_VAN, 4, 2}, {TECHNIQUE_REED_SOL_VAN, 6, 3},
      {TECHNIQUE_REED_SOL_VAN, 8, 4}, {TECHNIQUE_CAUCHY, 4, 2},
      {TECHNIQUE_CAUCHY, 5, 5},       {TECHNIQUE_XOR, 5, 1}};
  for (unsigned k = 2; k <= 12; k += 2) jerasure_raid6(k, 4096);
  for (unsigned i = 0; i < ARRAY_LEN(shapes); i++) jerasure_matrix(&shapes[i], 1024);
  return true;
}

#else
static bool jerasure(void) {
  return false;
}
#endif

int main(void) {
  bool with_erasurecode = erasurecode(), with_jerasure = jerasure();
  if (!with_erasurecode) puts("SKIPPED: liberasurecode (liberasurecode-dev) or its ISA-L back end");
  if (!with_jerasure) puts("SKIPPED: jerasure (libjerasure-dev)");
  if (!with_erasurecode || !with_jerasure) return SKIPPED;
  puts("ok");
  return 0;
}
