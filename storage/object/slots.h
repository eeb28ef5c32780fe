/* slots.h: sets of slots as bit masks (bit i = slot i). Internal to this folder. */
#ifndef KOFN_STORAGE_OBJECT_SLOTS_H
#define KOFN_STORAGE_OBJECT_SLOTS_H

#include "config/base.h"

static inline uint32_t slots_all(unsigned n) {
  return n >= 32 ? UINT32_MAX : (1u << n) - 1;
}
static inline unsigned slots_count(uint32_t slots) {
  return (unsigned)__builtin_popcount(slots);
}
/* The lowest slot in a set that is not empty; with an empty one, 32. */
static inline unsigned slots_first(uint32_t slots) {
  return slots ? (unsigned)__builtin_ctz(slots) : 32;
}

/* Walks a copy of `mask`, lowest slot first; the mask may change meanwhile. */
#define slots_foreach(i, mask)                                               \
  for (uint32_t i##_left = (mask), i = slots_first(i##_left); i##_left != 0; \
       i##_left &= i##_left - 1, i = slots_first(i##_left))

#endif
