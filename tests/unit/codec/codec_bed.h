/* codec_bed.h: one stripe, or one object, in memory: what the codec's tests have in common. */
#ifndef KOFN_TESTS_UNIT_CODEC_CODEC_BED_H
#define KOFN_TESTS_UNIT_CODEC_CODEC_BED_H

#include "codec/codec.h"

/* A stripe and a copy of it; units begin at odd addresses. */
struct bed_stripe {
  struct codec *codec;
  unsigned k, m, n;
  uint32_t all;
  size_t len;
  uint8_t *memory, *units[MAP_SLOTS_MAX], *original[MAP_SLOTS_MAX];
};

/* Bytes that look like noise, the same for the same seed. */
void bed_fill(uint8_t *out, size_t len, uint32_t seed);

/* A codec and an encoded stripe of random data: false where there is no memory or no such codec. */
bool bed_stripe_open(struct bed_stripe *s, unsigned technique, unsigned k, unsigned m, size_t len);
void bed_stripe_close(struct bed_stripe *s);

/* Wipes the `lost` units, rebuilds those of `want` out of `have`, compares all that is wanted, puts
 * everything back. 0, the plan's error, or 1 where the bytes are wrong or a unit was touched that
 * is not wanted. */
int bed_stripe_rebuild(struct bed_stripe *s, uint32_t have, uint32_t want);

/* The next larger number with as many bits (Gosper). Starts at (1 << count) - 1. */
static inline uint64_t bed_next_subset(uint64_t set) {
  uint64_t low = set & -set, high = set + low;
  return (((high ^ set) >> 2) / low) | high;
}

#endif
