/* matrix.c: see matrix.h. */
#include "codec/matrix.h"

#include <isa-l/erasure_code.h>

#include "codec/xor3p.h"
#include "config/err.h"

void matrix_fill(const struct profile *p, uint8_t rows[MATRIX_BYTES_MAX]) {
  unsigned k = p->k, n = profile_n(p);
  if (k > 1 && p->m > 1 && p->technique == TECHNIQUE_CAUCHY) {
    gf_gen_cauchy1_matrix(rows, (int)n, (int)k);
    return;
  }
  if (k > 1 && p->m > 1 && p->technique != TECHNIQUE_XOR3P) {
    gf_gen_rs_matrix(rows, (int)n, (int)k);
    return;
  }
  /* One parity chunk is the XOR and one data chunk is replicated, whatever the technique. */
  memset(rows, 0, (size_t)k * k);
  for (unsigned i = 0; i < k; i++) rows[i * k + i] = 1;
  if (p->technique == TECHNIQUE_XOR3P) {
    xor3p_fill(k, rows + (size_t)k * k);
  } else {
    memset(rows + (size_t)k * k, 1, (size_t)p->m * k);
  }
}

int matrix_rebuild(const uint8_t *rows, unsigned k, uint32_t sources, uint32_t want,
                   uint8_t out[MATRIX_BYTES_MAX]) {
  uint8_t picked[MATRIX_BYTES_MAX], inverse[MATRIX_BYTES_MAX];
  unsigned at = 0;
  for (unsigned i = 0; i < MAP_SLOTS_MAX; i++) {
    if (sources >> i & 1) memcpy(picked + (size_t)k * at++, rows + (size_t)k * i, k);
  }
  if (at != k || gf_invert_matrix(picked, inverse, (int)k) != 0) return ERR_UNAVAILABLE;

  for (unsigned w = 0; w < MAP_SLOTS_MAX; w++) {
    if (!(want >> w & 1)) continue;
    for (unsigned j = 0; j < k; j++) {
      uint8_t sum = 0;
      for (unsigned i = 0; i < k; i++) sum ^= gf_mul(rows[w * k + i], inverse[i * k + j]);
      *out++ = sum;
    }
  }
  return 0;
}

bool matrix_all_bits(const uint8_t *coefficients, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (coefficients[i] > 1) return false;
  }
  return true;
}
