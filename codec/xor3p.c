/* xor3p.c: see xor3p.h.
 *
 * A group is small enough to try every subset of it: a chunk is a number of three bits (which data
 * chunks it sums), a set of chunks is six bits, what a set spans is eight. */
#include "codec/xor3p.h"

#include "config/err.h"

#define GROUP_N (2 * XOR3P_GROUP)

/* D0 D1 D2 P0 P1 P2 */
static const uint8_t vectors[GROUP_N] = {1, 2, 4, 1 | 2, 2 | 4, 1 | 4};

/* The six bits of group j out of a set of chunks, and back. */
static unsigned group_of(unsigned k, uint32_t set, unsigned j) {
  return (set >> XOR3P_GROUP * j & 7) | (set >> (k + XOR3P_GROUP * j) & 7) << XOR3P_GROUP;
}
static uint32_t group_back(unsigned k, unsigned local, unsigned j) {
  return (uint32_t)(local & 7) << XOR3P_GROUP * j | (uint32_t)(local >> XOR3P_GROUP)
                                                        << (k + XOR3P_GROUP * j);
}
static unsigned group_chunk(unsigned k, unsigned at, unsigned j) {
  return (at < XOR3P_GROUP ? at : k + at - XOR3P_GROUP) + XOR3P_GROUP * j;
}

/* What u ^ v is for every u of a span: bit u moves to bit u ^ v. */
static unsigned span_shift(unsigned span, unsigned v) {
  if (v & 1) span = (span & 0x55) << 1 | (span & 0xaa) >> 1;
  if (v & 2) span = (span & 0x33) << 2 | (span & 0xcc) >> 2;
  if (v & 4) span = (span & 0x0f) << 4 | (span & 0xf0) >> 4;
  return span;
}

/* All sums that the chunks of a set make, as bits 0..7. */
static unsigned span_of(unsigned set) {
  unsigned span = 1; /* the sum of nothing */
  for (unsigned i = 0; i < GROUP_N; i++) {
    if (set >> i & 1) span |= span_shift(span, vectors[i]);
  }
  return span;
}

static unsigned vectors_of(unsigned set) {
  unsigned bits = 0;
  for (unsigned i = 0; i < GROUP_N; i++) {
    if (set >> i & 1) bits |= 1u << vectors[i];
  }
  return bits;
}

void xor3p_fill(unsigned k, uint8_t *rows) {
  memset(rows, 0, (size_t)k * k);
  for (unsigned row = 0; row < k; row++) {
    unsigned first = row / XOR3P_GROUP * XOR3P_GROUP;
    unsigned v = vectors[XOR3P_GROUP + row % XOR3P_GROUP];
    for (unsigned i = 0; i < XOR3P_GROUP; i++) rows[row * k + first + i] = v >> i & 1;
  }
}

bool xor3p_gives(unsigned k, uint32_t have, uint32_t want) {
  for (unsigned j = 0; j < k / XOR3P_GROUP; j++) {
    unsigned wanted = group_of(k, want, j), there = group_of(k, have, j);
    if ((wanted & ~there) != 0 && (vectors_of(wanted) & ~span_of(there)) != 0) return false;
  }
  return true;
}

/* The smaller, the better: few chunks that are not at hand, then cheap, then few in all, then as
 * they are rather than as a sum; what is equal goes to the lowest. */
static uint64_t group_price(unsigned k, unsigned set, unsigned want, unsigned j,
                            const uint32_t *cost) {
  uint64_t priced = 0, sum = 0;
  for (unsigned i = 0; i < GROUP_N; i++) {
    uint32_t price = cost ? cost[group_chunk(k, i, j)] : 1;
    if (!(set >> i & 1) || price == 0) continue;
    priced++;
    sum += price;
  }
  unsigned count = (unsigned)__builtin_popcount(set);
  unsigned indirect = (unsigned)__builtin_popcount(want & ~set);
  return priced << 60 | sum << 16 | count << 12 | indirect << 8 | set;
}

static int group_minimum(unsigned k, unsigned have, unsigned want, unsigned j, const uint32_t *cost,
                         unsigned *ret_set) {
  unsigned needed = vectors_of(want), set = have;
  uint64_t best = UINT64_MAX;
  for (;; set = (set - 1) & have) { /* every subset of `have` */
    if ((needed & ~span_of(set)) == 0) best = MIN(best, group_price(k, set, want, j, cost));
    if (set == 0) break;
  }
  if (best == UINT64_MAX) return ERR_UNAVAILABLE;
  *ret_set = best & ((1u << GROUP_N) - 1);
  return 0;
}

int xor3p_minimum(unsigned k, uint32_t have, uint32_t want, const uint32_t *cost,
                  uint32_t *ret_sources) {
  uint32_t sources = 0;
  for (unsigned j = 0; j < k / XOR3P_GROUP; j++) {
    unsigned wanted = group_of(k, want, j), there = group_of(k, have, j), set = 0;
    if (wanted == 0) continue;
    int err = group_minimum(k, there, wanted, j, cost, &set);
    if (err < 0) return err;
    sources |= group_back(k, set, j);
  }
  *ret_sources = sources;
  return 0;
}

/* The smallest subset of `sources` whose sum is the chunk with this vector. */
static unsigned group_sum(unsigned sources, unsigned vector) {
  unsigned best = 0;
  for (unsigned set = sources; set > 0; set = (set - 1) & sources) {
    unsigned sum = 0;
    for (unsigned i = 0; i < GROUP_N; i++) {
      if (set >> i & 1) sum ^= vectors[i];
    }
    if (sum != vector) continue;
    if (best == 0 || __builtin_popcount(set) <= __builtin_popcount(best)) best = set;
  }
  return best;
}

void xor3p_rebuild(unsigned k, uint32_t sources, uint32_t want, uint8_t out[]) {
  for (unsigned w = 0; w < 2 * k; w++) {
    if (!(want >> w & 1)) continue;
    unsigned in_kind = w < k ? w : w - k, j = in_kind / XOR3P_GROUP;
    unsigned at = in_kind % XOR3P_GROUP + (w < k ? 0 : XOR3P_GROUP);
    unsigned set = group_sum(group_of(k, sources, j), vectors[at]);
    uint32_t from = group_back(k, set, j);
    for (unsigned i = 0; i < 2 * k; i++) {
      if (sources >> i & 1) *out++ = from >> i & 1;
    }
  }
}
