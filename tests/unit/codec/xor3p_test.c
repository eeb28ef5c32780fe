/* xor3p_test.c: what xor3p survives, exhaustively, and how little it reads. */
#include "codec/xor3p.h"

#include <criterion/criterion.h>

#include "codec/matrix.h"
#include "config/err.h"
#include "tests/unit/codec/codec_bed.h"

/* By rank over GF(2), which shares nothing with xor3p.c: does this set determine the data? */
static bool full_rank(unsigned k, uint32_t have) {
  uint32_t basis[MAP_SLOTS_MAX] = {0};
  unsigned rank = 0;
  for (unsigned i = 0; i < 2 * k; i++) {
    static const unsigned pairs[3][2] = {{0, 1}, {1, 2}, {0, 2}};
    if (!(have >> i & 1)) continue;
    unsigned group = (i < k ? i : i - k) / 3 * 3, at = (i < k ? i : i - k) % 3;
    uint32_t row = i < k ? UINT32_C(1) << i
                         : UINT32_C(1) << (group + pairs[at][0]) | UINT32_C(1)
                                                                       << (group + pairs[at][1]);
    for (unsigned b = 0; b < k; b++) {
      if (!(row >> b & 1)) continue;
      if (!basis[b]) {
        basis[b] = row;
        rank++;
        break;
      }
      row ^= basis[b];
    }
  }
  return rank == k;
}

Test(xor3p, survives_any_two_and_sixteen_of_twenty_threes) {
  struct bed_stripe s;
  cr_assert(bed_stripe_open(&s, TECHNIQUE_XOR3P, 3, 3, 100));
  unsigned survived[7] = {0}, patterns[7] = {0};
  for (uint32_t lost = 0; lost < 64; lost++) {
    unsigned count = (unsigned)__builtin_popcount(lost);
    bool decodable = codec_decodable(s.codec, 63 & ~lost);
    cr_assert_eq(decodable, full_rank(3, 63 & ~lost), "%x", lost);
    patterns[count]++;
    survived[count] += decodable;
    if (lost)
      cr_assert_eq(bed_stripe_rebuild(&s, 63 & ~lost, lost), decodable ? 0 : ERR_UNAVAILABLE);
  }
  cr_assert(survived[1] == 6 && survived[2] == 15 && patterns[3] == 20 && survived[3] == 16);
  cr_assert_eq(survived[4] + survived[5] + survived[6], 0u);
  /* The four that are fatal leave a line: two data and their parity, or the three parities. */
  cr_assert_not(codec_decodable(s.codec, 1u << 0 | 1u << 1 | 1u << 3));
  cr_assert_not(codec_decodable(s.codec, 1u << 1 | 1u << 2 | 1u << 4));
  cr_assert_not(codec_decodable(s.codec, 1u << 0 | 1u << 2 | 1u << 5));
  cr_assert_not(codec_decodable(s.codec, 1u << 3 | 1u << 4 | 1u << 5));
  bed_stripe_close(&s);
}

Test(xor3p, groups_survive_apart) {
  for (unsigned k = 3; k <= 9; k += 3) {
    struct bed_stripe s;
    cr_assert(bed_stripe_open(&s, TECHNIQUE_XOR3P, k, k, 7));
    cr_assert_eq(codec_d(s.codec), 2 * k - 2);
    for (uint32_t lost = 0; lost <= s.all; lost++) {
      unsigned count = (unsigned)__builtin_popcount(lost);
      if (k == 9 && count > 5) continue;
      bool decodable = codec_decodable(s.codec, s.all & ~lost);
      cr_assert_eq(decodable, full_rank(k, s.all & ~lost), "%u+%u lost %x", k, k, lost);
      if (count <= 2) cr_assert(decodable);
      if (lost && count <= 4)
        cr_assert_eq(bed_stripe_rebuild(&s, s.all & ~lost, lost), decodable ? 0 : ERR_UNAVAILABLE);
    }
    bed_stripe_close(&s);
  }
}

/* The matrix of the general path agrees: its inverse exists where, and only where, xor3p says so.
 */
Test(xor3p, the_matrix_says_the_same) {
  struct profile p = {TECHNIQUE_XOR3P, 6, 6, 64};
  uint8_t rows[MATRIX_BYTES_MAX], out[MATRIX_BYTES_MAX];
  struct codec *c;
  matrix_fill(&p, rows);
  cr_assert_eq(codec_new(&p, &c), 0);
  for (uint64_t have = 63; have < 1u << 12; have = bed_next_subset(have)) {
    uint32_t want = ((1u << 12) - 1) & ~(uint32_t)have;
    cr_assert_eq(matrix_rebuild(rows, 6, (uint32_t)have, want, out) == 0,
                 codec_decodable(c, (uint32_t)have));
  }
  codec_free(c);
}

/* Fewest by exhaustion: no smaller subset of `have` gives `want`. */
Test(xor3p, the_minimum_is_the_minimum) {
  struct bed_stripe s;
  cr_assert(bed_stripe_open(&s, TECHNIQUE_XOR3P, 3, 3, 32));
  uint32_t cost[MAP_SLOTS_MAX];
  for (unsigned i = 0; i < MAP_SLOTS_MAX; i++) cost[i] = 1;
  for (uint32_t have = 0; have < 64; have++) {
    for (uint32_t want = 0; want < 64; want++) {
      uint32_t sources, priced;
      int err = codec_minimum(s.codec, have, want, &sources);
      cr_assert_eq(err == 0, codec_gives(s.codec, have, want));
      cr_assert_eq(codec_minimum_with_cost(s.codec, have, want, cost, &priced), err);
      if (err < 0) {
        cr_assert_eq(err, ERR_UNAVAILABLE);
        continue;
      }
      cr_assert_eq(sources & ~have, 0u);
      if ((want & ~have) == 0) {
        cr_assert_eq(sources, want);
        continue;
      }
      cr_assert_eq(priced, sources, "equal prices change nothing");
      cr_assert(codec_gives(s.codec, sources, want));
      for (uint32_t other = have;; other = (other - 1) & have) {
        if (codec_gives(s.codec, other, want))
          cr_assert_geq(__builtin_popcount(other), __builtin_popcount(sources));
        if (other == 0) break;
      }
      if ((want & have) == 0) {
        cr_assert_eq(bed_stripe_rebuild(&s, have, want), 0);
        struct codec_plan *plan;
        cr_assert_eq(codec_plan_get(s.codec, have, want, &plan), 0);
        cr_assert(codec_plan_is_xor(plan));
        cr_assert_eq(codec_plan_sources(plan), sources);
        codec_plan_put(s.codec, plan);
      }
    }
  }
  bed_stripe_close(&s);
}

Test(xor3p, one_lost_chunk_costs_two_reads_and_prices_are_heeded) {
  struct profile p = {TECHNIQUE_XOR3P, 6, 6, 64};
  struct codec *c;
  uint32_t sources, cost[MAP_SLOTS_MAX];
  cr_assert_eq(codec_new(&p, &c), 0);
  for (unsigned lost = 0; lost < 12; lost++) {
    cr_assert_eq(codec_minimum(c, 0xfff & ~(1u << lost), 1u << lost, &sources), 0);
    cr_assert_eq(__builtin_popcount(sources), 2);
  }
  for (unsigned i = 0; i < MAP_SLOTS_MAX; i++) cost[i] = 10;
  cost[1] = 50; /* D0 = D1 ^ P0, or D2 ^ P2 */
  cr_assert_eq(codec_minimum_with_cost(c, 0xffe, 1, cost, &sources), 0);
  cr_assert_eq(sources, 1u << 2 | 1u << 8);
  cost[1] = cost[7] = 0; /* at hand: D1 and P1 = D1 ^ D2, so P2 or D2 is enough; D2 ^ P2 are two */
  cost[6] = 40;
  cr_assert_eq(codec_minimum_with_cost(c, 0xffe, 1, cost, &sources), 0);
  cr_assert_eq(sources & ~(1u << 1 | 1u << 7), 1u << 8, "P2 = D0 ^ D2 = D0 ^ D1 ^ P1");
  codec_free(c);
}
