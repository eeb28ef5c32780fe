/* stripe.h: where the bytes of an object stand in its chunks. Pure arithmetic.
 *
 * An object of `size` bytes is cut into full stripes of k*unit_bytes and at most one last, shorter
 * stripe of r bytes. In the last stripe every unit is u = roundup(ceil(r/k), 64) bytes for the
 * coder; data unit i holds object bytes [i*u, min((i+1)*u, r)) and its zero padding is neither sent
 * nor stored; parity units are u bytes long. So chunk i is: unit_bytes for each full stripe, then
 * its last unit (maybe 0 bytes). */
#ifndef KOFN_CODEC_STRIPE_H
#define KOFN_CODEC_STRIPE_H

#include "config/cluster_map.h"

struct stripe_geometry {
  struct profile profile;
  uint64_t size;
  uint64_t stripe_count; /* 0 for an empty object */
};

#define STRIPE_ALIGN 64

struct stripe_geometry stripe_geometry_of(const struct profile *p, uint64_t size);
static inline uint64_t stripe_data_bytes(const struct profile *p) {
  return (uint64_t)p->k * p->unit_bytes;
}
/* Object bytes of stripe s. */
uint64_t stripe_len(const struct stripe_geometry *g, uint64_t s);
/* Length that the coder works on in stripe s (padded). */
uint32_t stripe_unit_coded_len(const struct stripe_geometry *g, uint64_t s);
/* Bytes of chunk `index`'s unit in stripe s that are sent and stored (may be 0). */
uint32_t stripe_unit_len(const struct stripe_geometry *g, uint64_t s, unsigned index);
/* Bytes of chunk `index` of the whole blob. */
uint64_t stripe_chunk_len(const struct stripe_geometry *g, unsigned index);
/* The longest chunk: what `inline_max` is compared with. */
uint64_t stripe_chunk_len_max(const struct stripe_geometry *g);
/* Coded length of a last stripe of r bytes (0 < r <= k*unit). */
uint32_t stripe_tail_unit_len(const struct profile *p, uint64_t r);

#endif
