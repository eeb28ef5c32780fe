/* stripe_load.h: one window of stripes on its way into a buffer. Used by stripe_reader.c only.
 *
 * A load owns its buffer, the FETCH calls that write into it, and the work that verifies and
 * decodes it. It outlives its reader's interest: an orphan waits for its calls and its work, then
 * puts the buffer back. Here stands what is pure of peers: geometry, readiness, CRC and decode. */
#ifndef KOFN_STORAGE_OBJECT_STRIPE_LOAD_H
#define KOFN_STORAGE_OBJECT_STRIPE_LOAD_H

#include "storage/object/stripe_reader.h"

struct stripe_fetch {
  struct peer_call call; /* req.units of inline chunks are filled without a call */
  struct stripe_load *load;
  uint64_t sent_ms;
};

struct stripe_load {
  struct stripe_reader *reader;
  struct stripe_geometry geometry;
  struct id128 data_id;
  uint64_t started_ms;
  struct codec *codec;
  struct stripe_window window;
  uint32_t want;
  uint32_t asked;                /* slots asked in this window: at most once each */
  uint32_t pending;              /* asked and not answered */
  uint32_t overdue;              /* pending for too long: an alternative was started */
  uint32_t got;                  /* units are in the buffer */
  uint32_t good[PEER_UNITS_MAX]; /* by stripe: slots whose unit passed its CRC */
  uint32_t bad[PEER_UNITS_MAX];  /* by stripe: slots whose unit failed */
  struct env_work work;
  struct env_timer hedge; /* the first pending call becomes overdue, or all is given up */
  struct env_timer stuck; /* cancelled calls did not come back */
  bool working, orphan;
  bool settled; /* enough was in: what was pending then is cancelled */
  /* results of the work */
  int work_err;
  bool complete;
  unsigned decoded, crc_failures;
  uint32_t failed; /* slots with a bad unit */
  struct stripe_fetch fetch[];
};

static inline uint8_t *stripe_load_unit(const struct stripe_load *l, unsigned s, unsigned slot) {
  return l->window.buf.data + ((size_t)s * l->window.n + slot) * l->window.stride;
}

/* How many stripes fit a window, and the bytes of a buffer for `count` of them from `first`. */
unsigned stripe_load_stripes_max(const struct profile *p);
size_t stripe_load_bytes(const struct stripe_geometry *g, uint64_t first, unsigned count);

/* Units of this chunk in the window that are not empty: only the object's last one can be. */
unsigned stripe_load_unit_count(const struct stripe_load *l, unsigned slot);

/* True where the units of the slots in `have`, those known to be bad left out, give the wanted ones
 * in every stripe. */
bool stripe_load_ready(const struct stripe_load *l, uint32_t have);

/* Which of the slots in `have` to read for the first stripe that is not ready out of those in
 * `got`: the fewest, then the cheapest (codec_minimum_with_cost; what is in `got` is free). 0 where
 * `have` is not enough. */
uint32_t stripe_load_sources(const struct stripe_load *l, uint32_t got, uint32_t have,
                             const uint32_t cost[MAP_SLOTS_MAX]);

/* The work's run: checks the CRCs that are needed, decodes what is wanted, pads. Sets `complete`,
 * or the bad units that stand in the way. Runs on any thread; touches only the load. */
void stripe_load_run(struct env_work *w);
size_t stripe_load_cost(const struct stripe_load *l);

#endif
