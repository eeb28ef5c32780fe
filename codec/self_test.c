/* self_test.c: proof at start that this build, this ISA-L and this CPU encode as every kofn does.
 *
 * The expected sums come from tests/golden/golden.py, which shares no code with this. */
#include <errno.h>
#include <stdlib.h>

#include "codec/codec.h"
#include "codec/crc32c.h"
#include "codec/stripe.h"
#include "config/err.h"

#define SELF_TEST_LEN 1111 /* odd: heads and tails of every loop run */
#define SELF_TEST_UNIT_ALLOWED STRIPE_ALIGN

struct self_test {
  struct profile profile;
  uint32_t parity_crc; /* CRC32C of all parity units one after the other */
};

static const struct self_test self_tests[] = {
    {{TECHNIQUE_NONE, 2, 0, SELF_TEST_UNIT_ALLOWED}, 0x00000000},
    {{TECHNIQUE_REED_SOL_VAN, 1, 2, SELF_TEST_UNIT_ALLOWED}, 0x720c73a4},
    {{TECHNIQUE_REED_SOL_VAN, 4, 1, SELF_TEST_UNIT_ALLOWED}, 0x2b1d6aed},
    {{TECHNIQUE_REED_SOL_VAN, 4, 2, SELF_TEST_UNIT_ALLOWED}, 0x233e4305},
    {{TECHNIQUE_REED_SOL_VAN, 8, 4, SELF_TEST_UNIT_ALLOWED}, 0x1f54292b},
    {{TECHNIQUE_CAUCHY, 4, 2, SELF_TEST_UNIT_ALLOWED}, 0x3bbe2a1a},
    {{TECHNIQUE_CAUCHY, 10, 6, SELF_TEST_UNIT_ALLOWED}, 0xdb43cf0f},
    {{TECHNIQUE_XOR, 5, 1, SELF_TEST_UNIT_ALLOWED}, 0xfdf72fd2},
    {{TECHNIQUE_XOR3P, 3, 3, SELF_TEST_UNIT_ALLOWED}, 0xce903ae5},
    {{TECHNIQUE_XOR3P, 6, 6, SELF_TEST_UNIT_ALLOWED}, 0x5639e700},
};

/* The generator of golden.py: known bytes that look like noise. */
static void self_test_fill(uint8_t *out, size_t len) {
  uint32_t state = 1;
  for (size_t i = 0; i < len; i++) {
    state = state * 1664525u + 1013904223u;
    out[i] = (uint8_t)(state >> 24);
  }
}

/* Loses the first `lost` chunks and compares what comes back with what was there. */
static int self_test_decode(struct codec *c, uint8_t *const *units, unsigned n, unsigned lost,
                            uint8_t *scratch) {
  uint32_t want = ((uint32_t)1 << lost) - 1, have = (uint32_t)((UINT64_C(1) << n) - 1) & ~want;
  uint8_t *decoded[MAP_SLOTS_MAX];
  struct codec_plan *plan;
  int err = codec_plan_get(c, have, want, &plan);
  if (err < 0) return err;
  for (unsigned i = 0; i < n; i++) decoded[i] = i < lost ? scratch + i * SELF_TEST_LEN : units[i];
  codec_plan_run(plan, decoded, SELF_TEST_LEN);
  codec_plan_put(c, plan);
  for (unsigned i = 0; i < lost; i++) {
    if (memcmp(decoded[i], units[i], SELF_TEST_LEN) != 0) return ERR_CORRUPT;
  }
  return 0;
}

static int self_test_run(const struct self_test *t, uint8_t *memory, uint8_t *scratch) {
  unsigned k = t->profile.k, m = t->profile.m;
  uint8_t *units[MAP_SLOTS_MAX];
  struct codec *c;
  int err = codec_new(&t->profile, &c);
  if (err < 0) return err;
  for (unsigned i = 0; i < k + m; i++) units[i] = memory + (size_t)i * SELF_TEST_LEN;
  self_test_fill(memory, (size_t)k * SELF_TEST_LEN);
  codec_encode(c, (const uint8_t *const *)units, units + k, SELF_TEST_LEN);
  uint32_t crc = crc32c(0, memory + (size_t)k * SELF_TEST_LEN, (size_t)m * SELF_TEST_LEN);
  if (crc != t->parity_crc) err = ERR_CORRUPT;
  for (unsigned lost = 1; err == 0 && lost <= k + m - codec_d(c); lost++) {
    err = self_test_decode(c, units, k + m, lost, scratch);
  }
  codec_free(c);
  return err;
}

/* Every way to take the sum, over lengths that make each of its loops run. */
static bool self_test_crc(uint8_t *memory) {
  static const size_t lengths[] = {9, 64, 200, 777, SELF_TEST_LEN, 4000};
  self_test_fill(memory, 4000);
  for (unsigned l = 0; l < ARRAY_LEN(lengths); l++) {
    uint32_t sum = crc32c(0, memory, lengths[l]);
    for (unsigned i = 0; crc32c_at(i); i++) {
      if (crc32c_run_at(i, 0, memory, lengths[l]) != sum) return false;
    }
  }
  return crc32c(0, "123456789", 9) == 0xe3069283;
}

int codec_self_test(void) {
  uint8_t *memory = malloc((size_t)2 * MAP_SLOTS_MAX * SELF_TEST_LEN);
  if (!memory) return -ENOMEM;
  uint8_t *scratch = memory + (size_t)MAP_SLOTS_MAX * SELF_TEST_LEN;
  int err = self_test_crc(memory) ? 0 : ERR_CORRUPT;
  for (unsigned i = 0; err == 0 && i < ARRAY_LEN(self_tests); i++) {
    err = self_test_run(&self_tests[i], memory, scratch);
  }
  free(memory);
  return err == -ENOMEM ? err : err < 0 ? ERR_CORRUPT : 0;
}
