/* isa_test.c: what Ceph's unit test of its ISA plugin checks, by the same names, of this codec.
 *
 * Ceph's plugin pads an object, cuts it into k chunks and encodes all of them at once; here that is
 * an object of one stripe whose unit is as long as need be. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "codec/stripe.h"
#include "config/err.h"
#include "tests/unit/codec/codec_bed.h"

#define ALIGNMENT STRIPE_ALIGN

/* An object of 'X' as one stripe: k padded data units and m parities. */
static void encode_object(struct bed_stripe *s, unsigned k, unsigned m, size_t size) {
  struct profile p = {TECHNIQUE_REED_SOL_VAN, (uint8_t)k, (uint8_t)m, ALIGNMENT};
  size_t len = stripe_tail_unit_len(&p, size);
  cr_assert(bed_stripe_open(s, p.technique, k, m, len));
  for (unsigned i = 0; i < k; i++) {
    size_t begin = MIN((size_t)i * len, size), end = MIN((size_t)(i + 1) * len, size);
    memset(s->units[i], 0, len);
    memset(s->units[i], 'X', end - begin);
  }
  codec_encode(s->codec, (const uint8_t *const *)s->units, s->units + k, len);
  for (unsigned i = 0; i < k + m; i++) memcpy(s->original[i], s->units[i], len);
}

static void encode_decode(size_t size) {
  struct bed_stripe s;
  encode_object(&s, 2, 2, size);
  uint32_t sources;
  /* All chunks are there: reading the data takes the data. */
  cr_assert_eq(codec_minimum(s.codec, 0xf, 0x3, &sources), 0);
  cr_assert_eq(sources, 0x3u);
  /* One data chunk; the parity that is no XOR; the one that is; one of each; both data chunks. */
  static const uint32_t lost[] = {1 << 1, 1 << 3, 1 << 2, 1 << 1 | 1 << 3, 1 << 0 | 1 << 1};
  for (unsigned i = 0; i < ARRAY_LEN(lost); i++)
    cr_assert_eq(bed_stripe_rebuild(&s, 0xf & ~lost[i], lost[i]), 0, "%zu, lost %x", size, lost[i]);
  bed_stripe_close(&s);
}

Test(isa, encode_decode) {
  static const size_t sizes[] = {1, ALIGNMENT, ALIGNMENT + 1, 2048, 4096, 4096 + 1};
  for (unsigned i = 0; i < ARRAY_LEN(sizes); i++) encode_decode(sizes[i]);
}

Test(isa, minimum_to_decode) {
  struct profile p = {TECHNIQUE_REED_SOL_VAN, 2, 2, ALIGNMENT};
  struct codec *c;
  uint32_t minimum = 99;
  cr_assert_eq(codec_new(&p, &c), 0);
  /* Nothing wanted: nothing to read. */
  cr_assert_eq(codec_minimum(c, 0, 0, &minimum), 0);
  cr_assert_eq(minimum, 0u);
  /* None there: none to be had. */
  cr_assert_eq(codec_minimum(c, 0, 1, &minimum), ERR_UNAVAILABLE);
  /* What is there can be read. */
  cr_assert_eq(codec_minimum(c, 1, 1, &minimum), 0);
  cr_assert_eq(minimum, 1u);
  /* A missing one cannot out of fewer than k. */
  minimum = 99;
  cr_assert_eq(codec_minimum(c, 1, 3, &minimum), ERR_UNAVAILABLE);
  cr_assert_eq(minimum, 99u, "untouched on failure");
  /* Else any k will do: 1 and 3 out of 0, 2, 3. */
  cr_assert_eq(codec_minimum(c, 1 << 0 | 1 << 2 | 1 << 3, 1 << 1 | 1 << 3, &minimum), 0);
  cr_assert_eq(__builtin_popcount(minimum), 2);
  cr_assert_eq(minimum & 1 << 3, 0u);
  cr_assert_eq(codec_minimum(c, 0xf, 1 << 4, &minimum), ERR_INVALID, "no such chunk");
  codec_free(c);
}

Test(isa, chunk_size) {
  for (unsigned k = 2; k <= 3; k++) {
    struct profile p = {TECHNIQUE_REED_SOL_VAN, (uint8_t)k, 1, 1 << 20};
    cr_assert_eq(stripe_tail_unit_len(&p, 1), ALIGNMENT);
    cr_assert_eq(stripe_tail_unit_len(&p, ALIGNMENT * k - 1), ALIGNMENT);
    cr_assert_eq(stripe_tail_unit_len(&p, ALIGNMENT * k + 1), 2 * ALIGNMENT);
    size_t size = (size_t)ALIGNMENT * k * 1024 + 1;
    uint32_t chunk = stripe_tail_unit_len(&p, size);
    cr_assert_eq(chunk % ALIGNMENT, 0u);
    cr_assert_gt(chunk, chunk * k - size, "less than a chunk of padding");
  }
}

Test(isa, encode) {
  struct bed_stripe s;
  size_t size = ALIGNMENT * 2 + 1;
  encode_object(&s, 2, 2, size);
  /* The input's tail is padded with zeros. */
  cr_assert_eq(s.units[1][0], 'X');
  cr_assert_eq(s.units[1][s.len - 1], 0);
  /* One chunk alone can be asked for. */
  cr_assert_eq(bed_stripe_rebuild(&s, 0xe, 1), 0);
  bed_stripe_close(&s);
}

/* Ceph's plugin refuses k = 1. Here it is replication, on purpose; k = 0 and too many are refused.
 */
Test(isa, sanity_check_k) {
  char why[128];
  struct profile p = {TECHNIQUE_REED_SOL_VAN, 0, 1, ALIGNMENT};
  cr_assert_eq(codec_check(&p, why, sizeof why), ERR_INVALID);
  cr_assert(strstr(why, "k at least 1"), "%s", why);
  p.k = 32;
  cr_assert_eq(codec_check(&p, why, sizeof why), ERR_INVALID);
  struct bed_stripe s;
  cr_assert(bed_stripe_open(&s, TECHNIQUE_REED_SOL_VAN, 1, 2, 70));
  for (unsigned i = 1; i < 3; i++) cr_assert_eq(memcmp(s.units[0], s.units[i], s.len), 0);
  bed_stripe_close(&s);
}

/* Every loss of 1 to 4 of 16, and the plan cache stays within its limit. Returns the patterns. */
static unsigned every_loss(unsigned technique, unsigned k, unsigned m) {
  struct bed_stripe s;
  unsigned patterns = 0;
  cr_assert(bed_stripe_open(&s, technique, k, m, 129));
  for (unsigned count = 1; count <= m; count++) {
    for (uint64_t lost = (UINT64_C(1) << count) - 1; lost <= s.all; lost = bed_next_subset(lost)) {
      cr_assert_eq(bed_stripe_rebuild(&s, s.all & ~(uint32_t)lost, (uint32_t)lost), 0, "lost %x",
                   (unsigned)lost);
      patterns++;
    }
  }
  bed_stripe_close(&s);
  return patterns;
}

Test(isa, vandermonde_exhaustive) {
  cr_assert_eq(every_loss(TECHNIQUE_REED_SOL_VAN, 12, 4), 2516u);
}

Test(isa, cauchy_exhaustive) {
  cr_assert_eq(every_loss(TECHNIQUE_CAUCHY, 12, 4), 2516u);
}

/* Far more patterns than plans are kept: the oldest go, a recent one is found again. */
Test(isa, cauchy_cache_trash) {
  struct codec_stats before, after;
  codec_stats(&before);
  cr_assert_eq(every_loss(TECHNIQUE_CAUCHY, 16, 4), 6195u);
  codec_stats(&after);
  cr_assert_eq(after.plan_misses - before.plan_misses, 6195u);
  cr_assert_eq(after.plan_hits, before.plan_hits);
  struct bed_stripe s;
  cr_assert(bed_stripe_open(&s, TECHNIQUE_CAUCHY, 16, 4, 64));
  for (unsigned round = 0; round < 3; round++) {
    for (unsigned i = 0; i < 20; i++)
      cr_assert_eq(bed_stripe_rebuild(&s, s.all & ~(1u << i), 1u << i), 0);
  }
  codec_stats(&before);
  cr_assert_eq(before.plan_misses - after.plan_misses, 20u);
  cr_assert_eq(before.plan_hits - after.plan_hits, 40u);
  bed_stripe_close(&s);
}

Test(isa, xor_codec) {
  struct codec_stats before, after;
  codec_stats(&before);
  cr_assert_eq(every_loss(TECHNIQUE_REED_SOL_VAN, 4, 1), 5u);
  codec_stats(&after);
  cr_assert_eq(after.encode_xor - before.encode_xor, 1u);
  cr_assert_eq(after.decode_xor - before.decode_xor, 5u);
  cr_assert_eq(after.encode_general, before.encode_general);
  cr_assert_eq(after.decode_general, before.decode_general);
}

/* The fast path of Ceph's xor_gen change: a data chunk or the first parity, and nothing else. */
Test(isa, xor_decode_of_a_single_loss) {
  struct codec_stats before, after;
  struct bed_stripe s;
  cr_assert(bed_stripe_open(&s, TECHNIQUE_REED_SOL_VAN, 6, 3, 100));
  for (unsigned lost = 0; lost < 9; lost++) {
    codec_stats(&before);
    cr_assert_eq(bed_stripe_rebuild(&s, s.all & ~(1u << lost), 1u << lost), 0);
    codec_stats(&after);
    cr_assert_eq(after.decode_xor - before.decode_xor, lost <= 6);
    cr_assert_eq(after.decode_general - before.decode_general, lost > 6);
  }
  bed_stripe_close(&s);
}
