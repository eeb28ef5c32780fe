/* stripe.c: see stripe.h. */
#include "codec/stripe.h"

struct stripe_geometry stripe_geometry_of(const struct profile *p, uint64_t size) {
  uint64_t full = stripe_data_bytes(p);
  /* Not DIV_UP: size may be close to UINT64_MAX. */
  return (struct stripe_geometry){*p, size, size / full + (size % full != 0)};
}

uint64_t stripe_len(const struct stripe_geometry *g, uint64_t s) {
  uint64_t full = stripe_data_bytes(&g->profile);
  if (s >= g->stripe_count) return 0;
  return MIN(full, g->size - s * full);
}

uint32_t stripe_tail_unit_len(const struct profile *p, uint64_t r) {
  uint64_t unit = DIV_UP(r, p->k);
  return (uint32_t)(DIV_UP(unit, STRIPE_ALIGN) * STRIPE_ALIGN);
}

uint32_t stripe_unit_coded_len(const struct stripe_geometry *g, uint64_t s) {
  uint64_t r = stripe_len(g, s);
  if (r == 0) return 0;
  if (r == stripe_data_bytes(&g->profile)) return g->profile.unit_bytes;
  return stripe_tail_unit_len(&g->profile, r);
}

uint32_t stripe_unit_len(const struct stripe_geometry *g, uint64_t s, unsigned index) {
  uint32_t unit = stripe_unit_coded_len(g, s);
  if (index >= g->profile.k) return unit;
  uint64_t r = stripe_len(g, s), first = (uint64_t)index * unit;
  if (first >= r) return 0;
  return (uint32_t)MIN((uint64_t)unit, r - first);
}

uint64_t stripe_chunk_len(const struct stripe_geometry *g, unsigned index) {
  if (g->stripe_count == 0) return 0;
  uint64_t last = g->stripe_count - 1;
  return last * g->profile.unit_bytes + stripe_unit_len(g, last, index);
}

uint64_t stripe_chunk_len_max(const struct stripe_geometry *g) {
  /* Parity units are padded, so a parity chunk is never shorter than chunk 0. */
  return stripe_chunk_len(g, g->profile.m > 0 ? g->profile.k : 0);
}
