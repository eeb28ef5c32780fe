/* minimum.c: which chunks to read (codec_minimum of codec.h).
 *
 * Under an MDS code any k chunks give everything and fewer give nothing but themselves. The lowest
 * ones are data before parity, and the all-ones parity of reed_sol_van before its others: so a
 * single lost data chunk is an XOR whenever it can be. */
#include "codec/plan.h"
#include "codec/xor3p.h"
#include "config/err.h"

bool codec_gives(const struct codec *c, uint32_t have, uint32_t want) {
  have &= codec_all(c);
  if ((want & ~have) == 0) return true;
  if ((want & ~codec_all(c)) != 0) return false;
  if (c->profile.technique == TECHNIQUE_XOR3P) return xor3p_gives(c->profile.k, have, want);
  return __builtin_popcount(have) >= c->profile.k;
}

bool codec_decodable(const struct codec *c, uint32_t have) {
  return codec_gives(c, have, (UINT32_C(1) << (c->profile.k - 1) << 1) - 1);
}

static unsigned count_of(uint32_t set) {
  return (unsigned)__builtin_popcount(set);
}

static uint32_t lowest(uint32_t set, unsigned count) {
  uint32_t picked = 0;
  for (; count > 0; count--) {
    picked |= set & -set;
    set &= set - 1;
  }
  return picked;
}

/* The `count` cheapest of a set, the lowest where the price is equal. */
static uint32_t cheapest(uint32_t set, unsigned count, const uint32_t *cost) {
  uint32_t picked = 0;
  for (; count > 0; count--) {
    unsigned best = (unsigned)__builtin_ctz(set & ~picked);
    for (uint32_t left = set & ~picked; left; left &= left - 1) {
      unsigned at = (unsigned)__builtin_ctz(left);
      if (cost[at] < cost[best]) best = at;
    }
    picked |= UINT32_C(1) << best;
  }
  return picked;
}

int codec_minimum(const struct codec *c, uint32_t have, uint32_t want, uint32_t *ret_sources) {
  unsigned k = c->profile.k;
  have &= codec_all(c);
  if ((want & ~have) == 0) {
    *ret_sources = want;
    return 0;
  }
  if ((want & ~codec_all(c)) != 0) return ERR_INVALID;
  if (c->profile.technique == TECHNIQUE_XOR3P)
    return xor3p_minimum(k, have, want, NULL, ret_sources);
  if (count_of(have) < k) return ERR_UNAVAILABLE;
  *ret_sources = lowest(have, k);
  return 0;
}

int codec_minimum_with_cost(const struct codec *c, uint32_t have, uint32_t want,
                            const uint32_t cost[MAP_SLOTS_MAX], uint32_t *ret_sources) {
  unsigned k = c->profile.k;
  have &= codec_all(c);
  if ((want & ~codec_all(c)) != 0) return ERR_INVALID;
  if (c->profile.technique == TECHNIQUE_XOR3P)
    return xor3p_minimum(k, have, want, cost, ret_sources);
  uint32_t free = 0;
  for (unsigned i = 0; i < MAP_SLOTS_MAX; i++) {
    if ((have >> i & 1) && cost[i] == 0) free |= UINT32_C(1) << i;
  }
  unsigned to_read = k > count_of(free) ? k - count_of(free) : 0;
  if ((want & ~have) == 0 && count_of(want & ~free) <= to_read) {
    *ret_sources = want;
    return 0;
  }
  if (count_of(have) < k) {
    if ((want & ~have) != 0) return ERR_UNAVAILABLE;
    *ret_sources = want;
    return 0;
  }
  *ret_sources = cheapest(have, k, cost);
  return 0;
}
