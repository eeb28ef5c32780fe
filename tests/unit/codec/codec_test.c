/* codec_test.c: every technique, every loss pattern, and proof of the limits in the registry. */
#include "codec/codec.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "codec/matrix.h"
#include "config/err.h"

#define UNIT_ALLOWED 64

static uint32_t random_state = 12345;
static uint32_t random_next(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 17;
  random_state ^= random_state << 5;
  return random_state;
}

static struct profile profile_of(unsigned technique, unsigned k, unsigned m) {
  return (struct profile){(uint8_t)technique, (uint8_t)k, (uint8_t)m, UNIT_ALLOWED};
}

struct stripe {
  uint8_t *memory, *units[MAP_SLOTS_MAX], *original[MAP_SLOTS_MAX];
};

/* n units that begin at odd addresses, and a copy of them. */
static struct stripe stripe_new(unsigned n, size_t len) {
  struct stripe s = {0};
  size_t step = len + 3;
  s.memory = malloc(2 * n * step + 64);
  cr_assert(s.memory);
  for (unsigned i = 0; i < n; i++) {
    s.units[i] = s.memory + 1 + i * step;
    s.original[i] = s.memory + 1 + (n + i) * step;
  }
  return s;
}

static void check_loss(struct codec *c, struct stripe *s, uint32_t lost, uint32_t want,
                       size_t len) {
  const struct profile *p = codec_profile(c);
  unsigned n = profile_n(p);
  uint32_t all = (uint32_t)((UINT64_C(1) << n) - 1);
  for (unsigned i = 0; i < n; i++) {
    if (lost >> i & 1) memset(s->units[i], 0xee, len);
  }
  struct codec_plan *plan;
  cr_assert_eq(codec_plan_get(c, all & ~lost, want, &plan), 0);
  uint32_t sources = codec_plan_sources(plan);
  cr_assert_eq(__builtin_popcount(sources), p->k);
  cr_assert_eq(sources & lost, 0u);
  codec_plan_run(plan, s->units, len);
  codec_plan_put(c, plan);
  for (unsigned i = 0; i < n; i++) {
    if (want >> i & 1) {
      cr_assert(len == 0 || memcmp(s->units[i], s->original[i], len) == 0,
                "%s %u+%u lost %x chunk %u len %zu", technique_name(p->technique), p->k, p->m, lost,
                i, len);
    }
    if (lost >> i & 1) memcpy(s->units[i], s->original[i], len);
  }
}

/* Every set of up to m lost chunks, all of it wanted, or one chunk of it. */
static void check_all_losses(unsigned technique, unsigned k, unsigned m, size_t len) {
  struct profile p = profile_of(technique, k, m);
  struct codec *c;
  cr_assert_eq(codec_new(&p, &c), 0);
  unsigned n = k + m;
  struct stripe s = stripe_new(n, len);
  for (unsigned i = 0; i < k; i++) {
    for (size_t b = 0; b < len; b++) s.units[i][b] = (uint8_t)random_next();
  }
  codec_encode(c, (const uint8_t *const *)s.units, s.units + k, len);
  for (unsigned i = 0; i < n; i++) memcpy(s.original[i], s.units[i], len);
  unsigned patterns = 0;
  for (uint32_t lost = 1; lost < UINT32_C(1) << n; lost++) {
    if (__builtin_popcount(lost) > (int)m) {
      cr_assert(__builtin_popcount(~lost & ((UINT32_C(1) << n) - 1)) >= (int)k ||
                !codec_decodable(c, ~lost & ((UINT32_C(1) << n) - 1)));
      continue;
    }
    check_loss(c, &s, lost, lost, len);
    check_loss(c, &s, lost, lost & -lost, len);
    patterns++;
  }
  cr_assert(m == 0 || patterns > 0);
  free(s.memory);
  codec_free(c);
}

static const struct {
  unsigned technique, k, m;
} shapes[] = {
    {TECHNIQUE_REED_SOL_VAN, 4, 2}, {TECHNIQUE_REED_SOL_VAN, 2, 1}, {TECHNIQUE_REED_SOL_VAN, 1, 1},
    {TECHNIQUE_REED_SOL_VAN, 2, 2}, {TECHNIQUE_REED_SOL_VAN, 6, 3}, {TECHNIQUE_REED_SOL_VAN, 8, 4},
    {TECHNIQUE_REED_SOL_VAN, 3, 2}, {TECHNIQUE_REED_SOL_VAN, 1, 4}, {TECHNIQUE_CAUCHY, 4, 2},
    {TECHNIQUE_CAUCHY, 2, 1},       {TECHNIQUE_CAUCHY, 1, 1},       {TECHNIQUE_CAUCHY, 2, 2},
    {TECHNIQUE_CAUCHY, 6, 3},       {TECHNIQUE_CAUCHY, 8, 4},       {TECHNIQUE_CAUCHY, 3, 2},
    {TECHNIQUE_CAUCHY, 5, 5},       {TECHNIQUE_XOR, 1, 1},          {TECHNIQUE_XOR, 2, 1},
    {TECHNIQUE_XOR, 4, 1},          {TECHNIQUE_XOR, 11, 1},         {TECHNIQUE_NONE, 1, 0},
    {TECHNIQUE_NONE, 4, 0},
};

Test(codec, every_technique_survives_every_loss_at_every_length) {
  const size_t lengths[] = {0, 1, 63, 64, 65, 4096};
  for (unsigned i = 0; i < ARRAY_LEN(shapes); i++) {
    for (unsigned l = 0; l < ARRAY_LEN(lengths); l++) {
      /* 8+4 has 794 patterns of up to 4; the long lengths are for the small shapes. */
      if (lengths[l] > 100 && shapes[i].k + shapes[i].m > 9) continue;
      check_all_losses(shapes[i].technique, shapes[i].k, shapes[i].m, lengths[l]);
    }
  }
}

Test(codec, long_units_decode) {
  check_all_losses(TECHNIQUE_REED_SOL_VAN, 4, 2, 65536 + 7);
  check_all_losses(TECHNIQUE_CAUCHY, 4, 2, 65536 + 7);
  check_all_losses(TECHNIQUE_CAUCHY, 2, 2, 65536 + 7);
  check_all_losses(TECHNIQUE_REED_SOL_VAN, 2, 1, 65536 + 7);
  check_all_losses(TECHNIQUE_XOR, 4, 1, 65536 + 7);
}

Test(codec, every_kernel_gives_the_same_xor) {
  const char *before = xor_kernel_name();
  for (unsigned i = 0; xor_kernel_at(i); i++) {
    cr_assert_eq(xor_kernel_select(xor_kernel_at(i)), 0);
    cr_assert_str_eq(xor_kernel_name(), xor_kernel_at(i));
    check_all_losses(TECHNIQUE_XOR, 4, 1, 1000);
    check_all_losses(TECHNIQUE_REED_SOL_VAN, 2, 2, 257);
    cr_assert_eq(codec_self_test(), 0);
  }
  cr_assert_eq(xor_kernel_select(before), 0);
}

/* True where any k of the k+m rows are independent: tried for every pattern of up to `budget`, else
 * for that many random ones. */
static bool is_mds(unsigned technique, unsigned k, unsigned m, unsigned budget,
                   unsigned *ret_tried) {
  struct profile p = profile_of(technique, k, m);
  uint8_t rows[MATRIX_BYTES_MAX], out[MATRIX_BYTES_MAX];
  matrix_fill(&p, rows);
  unsigned n = k + m, tried = 0;
  uint64_t patterns = 1; /* n choose m */
  for (unsigned i = 1; i <= m; i++) patterns = patterns * (n - m + i) / i;
  uint32_t all = (uint32_t)((UINT64_C(1) << n) - 1);
  bool mds = true;
  if (patterns <= budget) {
    /* Gosper's hack: the next larger number with as many bits. */
    for (uint64_t lost = (UINT64_C(1) << m) - 1; mds && lost <= all;) {
      mds = matrix_rebuild(rows, k, all & ~(uint32_t)lost, (uint32_t)(lost & -lost), out) == 0;
      tried++;
      uint64_t low = lost & -lost, high = lost + low;
      lost = (((high ^ lost) >> 2) / low) | high;
    }
    if (mds) cr_assert_eq(tried, patterns);
  } else {
    for (; mds && tried < budget; tried++) {
      uint32_t lost = 0;
      while (__builtin_popcount(lost) < (int)m) lost |= UINT32_C(1) << (random_next() % n);
      mds = matrix_rebuild(rows, k, all & ~lost, lost & -lost, out) == 0;
    }
  }
  *ret_tried += tried;
  return mds;
}

Test(codec_limits, every_allowed_shape_is_mds) {
  unsigned tried = 0, allowed = 0;
  for (unsigned t = 0; t < TECHNIQUE_COUNT; t++) {
    for (unsigned k = 1; k <= MAP_SLOTS_MAX; k++) {
      for (unsigned m = 1; k + m <= MAP_SLOTS_MAX; m++) {
        struct profile p = profile_of(t, k, m);
        char why[128];
        if (codec_check(&p, why, sizeof why) < 0 || t == TECHNIQUE_XOR3P) continue;
        /* reed_sol_van in full: up to 12,650 patterns (21+4). Cauchy is MDS by its construction:
         * a sample looks for mistakes of ours. */
        unsigned budget = t == TECHNIQUE_CAUCHY ? 100 : 20000;
        cr_assert(is_mds(t, k, m, budget, &tried), "%s %u+%u", technique_name(t), k, m);
        allowed++;
      }
    }
  }
  cr_assert_gt(allowed, 600u);
  cr_assert_gt(tried, 80000u);
}

Test(codec_limits, reed_sol_van_beyond_its_limits_is_refused_and_not_mds) {
  char why[128] = "";
  unsigned tried = 0, broken = 0;
  for (unsigned k = 22; k <= 28; k += 3) {
    struct profile p = profile_of(TECHNIQUE_REED_SOL_VAN, k, 4);
    cr_assert_eq(codec_check(&p, why, sizeof why), ERR_INVALID);
    cr_assert_str_eq(why, "reed_sol_van with m=4 is proven only up to k=21");
    struct codec *c = NULL;
    cr_assert_eq(codec_new(&p, &c), ERR_INVALID);
    cr_assert_null(c);
    if (broken == 0) broken += !is_mds(TECHNIQUE_REED_SOL_VAN, k, 4, 50000, &tried);
  }
  cr_assert_gt(broken, 0u, "the limit is there for a reason");
  struct profile p = profile_of(TECHNIQUE_REED_SOL_VAN, 2, 5);
  cr_assert_eq(codec_check(&p, why, sizeof why), ERR_INVALID);
  cr_assert_str_eq(why, "reed_sol_van is proven only up to m=4, not for m=5");
}

Test(codec_limits, refusals_say_why) {
  const struct {
    struct profile p;
    const char *why;
  } refused[] = {
      {{TECHNIQUE_XOR, 4, 2, 64}, "xor needs m=1, not 2"},
      {{TECHNIQUE_XOR, 1, 2, 64}, "xor needs m=1, not 2"},
      {{TECHNIQUE_XOR, 4, 0, 64}, "xor needs m of at least 1"},
      {{TECHNIQUE_NONE, 4, 1, 64}, "none needs m=0, not 1"},
      {{TECHNIQUE_CAUCHY, 4, 0, 64}, "cauchy needs m of at least 1"},
      {{TECHNIQUE_CAUCHY, 30, 3, 64},
       "k=30 with m=3 is out of range (k at least 1, k+m at most 32)"},
      {{TECHNIQUE_CAUCHY, 0, 3, 64}, "k=0 with m=3 is out of range (k at least 1, k+m at most 32)"},
      {{TECHNIQUE_CAUCHY, 255, 255, 64},
       "k=255 with m=255 is out of range (k at least 1, k+m at most 32)"},
      {{TECHNIQUE_CAUCHY, 4, 2, 100}, "a stripe unit of 100 bytes is not a multiple of 64"},
      {{TECHNIQUE_CAUCHY, 4, 2, 0}, "a stripe unit of 0 bytes is not a multiple of 64"},
      {{9, 4, 2, 64}, "technique number 9 is unknown"},
  };
  for (unsigned i = 0; i < ARRAY_LEN(refused); i++) {
    char why[128] = "";
    cr_assert_eq(codec_check(&refused[i].p, why, sizeof why), ERR_INVALID);
    cr_assert_str_eq(why, refused[i].why);
  }
  struct profile widest = {TECHNIQUE_XOR, 31, 1, 64},
                 replicas = {TECHNIQUE_REED_SOL_VAN, 1, 31, 64};
  char why[128];
  cr_assert_eq(codec_check(&widest, why, sizeof why), 0);
  cr_assert_eq(codec_check(&replicas, why, sizeof why), 0);
}

static bool plan_xor(struct codec *c, uint32_t have, uint32_t want) {
  struct codec_plan *plan;
  cr_assert_eq(codec_plan_get(c, have, want, &plan), 0);
  bool is_xor = codec_plan_is_xor(plan);
  codec_plan_put(c, plan);
  return is_xor;
}

Test(codec_plan, a_single_loss_takes_the_xor_path) {
  struct profile p = profile_of(TECHNIQUE_REED_SOL_VAN, 4, 2);
  struct codec *c;
  cr_assert_eq(codec_new(&p, &c), 0);
  for (unsigned lost = 0; lost <= 4; lost++) { /* the data and the first parity */
    cr_assert(plan_xor(c, 0x3f & ~(1u << lost), 1u << lost));
  }
  cr_assert_not(plan_xor(c, 0x1f, 1u << 5), "the second parity is no XOR");
  cr_assert_not(plan_xor(c, 0x3f & ~0x11u, 1u), "nor a data chunk without the first parity");
  cr_assert_not(plan_xor(c, 0x3c, 3u));
  codec_free(c);
  for (unsigned t = TECHNIQUE_REED_SOL_VAN; t <= TECHNIQUE_XOR; t++) {
    p = profile_of(t, 5, 1);
    cr_assert_eq(codec_new(&p, &c), 0);
    for (unsigned lost = 0; lost < 6; lost++)
      cr_assert(plan_xor(c, 0x3f & ~(1u << lost), 1u << lost));
    codec_free(c);
  }
}

Test(codec_plan, what_cannot_be_rebuilt_is_refused) {
  struct profile p = profile_of(TECHNIQUE_CAUCHY, 4, 2);
  struct codec *c;
  struct codec_plan *plan = NULL;
  cr_assert_eq(codec_new(&p, &c), 0);
  cr_assert_eq(codec_plan_get(c, 0x07, 0x08, &plan), ERR_UNAVAILABLE);
  cr_assert_eq(codec_plan_get(c, 0xffffffc7, 0x08, &plan), ERR_UNAVAILABLE,
               "bits beyond k+m are no chunks");
  cr_assert_eq(codec_plan_get(c, 0x0f, 0x08, &plan), ERR_INVALID, "it is there");
  cr_assert_eq(codec_plan_get(c, 0x0f, 0x40, &plan), ERR_INVALID, "no such chunk");
  cr_assert_eq(codec_plan_get(c, 0x0f, 0, &plan), ERR_INVALID);
  cr_assert_null(plan);
  cr_assert(codec_decodable(c, 0x3c));
  cr_assert_not(codec_decodable(c, 0x38));
  cr_assert_not(codec_decodable(c, 0xffffffc0));
  codec_free(c);
}

Test(codec_plan, plans_outlive_their_place_in_the_cache) {
  struct profile p = profile_of(TECHNIQUE_CAUCHY, 8, 4);
  struct codec *c;
  cr_assert_eq(codec_new(&p, &c), 0);
  struct codec_plan *first, *again, *other;
  cr_assert_eq(codec_plan_get(c, 0xffe, 1, &first), 0);
  cr_assert_eq(codec_plan_get(c, 0xffe, 1, &again), 0);
  cr_assert_eq(first, again, "the second one comes from the cache");
  codec_plan_put(c, again);
  for (uint32_t lost = 1; lost < 0x1000; lost++) { /* far more than the cache holds */
    if (__builtin_popcount(lost) != 3) continue;
    cr_assert_eq(codec_plan_get(c, 0xfff & ~lost, lost, &other), 0);
    codec_plan_put(c, other);
  }
  cr_assert_eq(codec_plan_sources(first), 0x1feu);
  codec_free(c);
  uint8_t memory[12][16] = {{0}}, *units[12];
  for (unsigned i = 0; i < 12; i++) units[i] = memory[i];
  codec_plan_run(first, units, 16); /* still whole: the sanitizer watches */
  codec_plan_put(NULL, first);
}

Test(codec, the_self_test_passes_under_the_calibrated_kernel) {
  xor_kernel_calibrate(65536, 2, NULL);
  cr_assert_not_null(xor_kernel_name());
  cr_assert_eq(codec_self_test(), 0);
  cr_assert_eq(xor_kernel_select("sse9"), ERR_NOT_FOUND);
}

Test(codec, xor_of_blocks_at_any_address) {
  enum { LEN_MAX = 700, SOURCES = 5 };
  uint8_t src_memory[SOURCES][LEN_MAX + 64], dst_memory[LEN_MAX + 192], expected[LEN_MAX];
  for (unsigned i = 0; xor_kernel_at(i); i++) {
    cr_assert_eq(xor_kernel_select(xor_kernel_at(i)), 0);
    for (unsigned round = 0; round < 400; round++) {
      unsigned n = 1 + random_next() % SOURCES, aligned = random_next() % 4 == 0;
      size_t len = random_next() % (LEN_MAX + 1);
      const uint8_t *src[SOURCES];
      memset(expected, 0, sizeof expected);
      for (unsigned s = 0; s < n; s++) {
        uint8_t *at =
            src_memory[s] + (aligned ? -(uintptr_t)src_memory[s] % 64 : random_next() % 64);
        for (size_t b = 0; b < len; b++) {
          at[b] = (uint8_t)random_next();
          expected[b] ^= at[b];
        }
        src[s] = at;
      }
      memset(dst_memory, 0x5a, sizeof dst_memory);
      uint8_t *dst = dst_memory + 64 + (aligned ? -(uintptr_t)dst_memory % 64 : random_next() % 64);
      xor_blocks(dst, src, n, len);
      cr_assert(memcmp(dst, expected, len) == 0, "%s n=%u len=%zu", xor_kernel_at(i), n, len);
      for (uint8_t *b = dst_memory; b < dst; b++) cr_assert_eq(*b, 0x5a);
      for (uint8_t *b = dst + len; b < dst_memory + sizeof dst_memory; b++) cr_assert_eq(*b, 0x5a);
    }
  }
}
