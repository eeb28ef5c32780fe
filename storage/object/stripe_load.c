/* stripe_load.c: see stripe_load.h. */
#include "storage/object/stripe_load.h"

#include "codec/crc32c.h"
#include "config/err.h"
#include "config/sim_mutant.h"

#define LOAD_VERIFY_CHEAPER 8

unsigned stripe_load_stripes_max(const struct profile *p) {
  uint64_t fit = STRIPE_WINDOW_DATA_BYTES / stripe_data_bytes(p);
  return (unsigned)MAX(1, MIN(fit, PEER_UNITS_MAX));
}

size_t stripe_load_bytes(const struct stripe_geometry *g, uint64_t first, unsigned count) {
  /* At most PEER_UNITS_MAX * MAP_SLOTS_MAX * PEER_UNIT_BYTES_MAX: 512 MiB. */
  return (size_t)count * profile_n(&g->profile) * stripe_unit_coded_len(g, first);
}

static uint32_t unit_len(const struct stripe_load *l, unsigned s, unsigned slot) {
  return stripe_unit_len(&l->geometry, l->window.first + s, slot);
}

unsigned stripe_load_unit_count(const struct stripe_load *l, unsigned slot) {
  unsigned count = l->window.count;
  return unit_len(l, count - 1, slot) == 0 ? count - 1 : count;
}

/* Slots whose unit of this stripe has no bytes: known without asking anybody. */
static uint32_t empty_units(const struct stripe_load *l, unsigned s) {
  uint32_t empty = 0;
  if (l->window.first + s + 1 < l->geometry.stripe_count) return 0;
  for (unsigned i = 0; i < l->window.n; i++)
    if (unit_len(l, s, i) == 0) empty |= 1u << i;
  return empty;
}

static bool gives_wanted(const struct stripe_load *l, uint32_t have) {
  return codec_gives(l->codec, have, l->want);
}

bool stripe_load_ready(const struct stripe_load *l, uint32_t have) {
  for (unsigned s = 0; s < l->window.count; s++)
    if (!gives_wanted(l, (have | empty_units(l, s)) & ~l->bad[s])) return false;
  return true;
}

uint32_t stripe_load_sources(const struct stripe_load *l, uint32_t got, uint32_t have,
                             const uint32_t cost[MAP_SLOTS_MAX]) {
  unsigned s = 0;
  while (gives_wanted(l, (got | empty_units(l, s)) & ~l->bad[s])) s++; /* one is not ready */
  uint32_t empty = empty_units(l, s), sources, price[MAP_SLOTS_MAX];
  for (unsigned i = 0; i < l->window.n; i++) price[i] = (got | empty) >> i & 1 ? 0 : cost[i];
  int err = codec_minimum_with_cost(l->codec, (got | have | empty) & ~l->bad[s], l->want, price,
                                    &sources);
  return err < 0 ? 0 : sources & ~got & ~empty;
}

static bool unit_verify(struct stripe_load *l, unsigned s, unsigned slot) {
  const struct peer_unit *u = &l->fetch[slot].call.req.units[s];
  bool good = u->len == unit_len(l, s, slot) &&
              (MUTANT(UNIT_UNCHECKED) ||
               unit_crc(&l->data_id, slot, l->window.first + s, u->data, u->len) == u->crc);
  if (good) {
    l->good[s] |= 1u << slot;
    return true;
  }
  l->bad[s] |= 1u << slot;
  l->failed |= 1u << slot;
  l->crc_failures++;
  return false;
}

/* Verifies units of stripe s among `slots` until the wanted ones can be had. */
static bool stripe_verify(struct stripe_load *l, unsigned s, uint32_t slots) {
  for (unsigned i = 0; i < l->window.n; i++) {
    if (gives_wanted(l, l->good[s])) return true;
    if (slots & ~l->good[s] & ~l->bad[s] & 1u << i) (void)unit_verify(l, s, i);
  }
  return gives_wanted(l, l->good[s]);
}

/* The coder works on units of one length: zeros behind the stored bytes. */
static void unit_pad(struct stripe_load *l, unsigned s, unsigned slot, uint32_t coded) {
  uint32_t len = unit_len(l, s, slot);
  if (len < coded) memset(stripe_load_unit(l, s, slot) + len, 0, coded - len);
}

static int stripe_decode(struct stripe_load *l, unsigned s, uint32_t coded) {
  struct codec_plan *plan;
  uint8_t *units[MAP_SLOTS_MAX] = {0};
  uint32_t lost = l->want & ~l->good[s];
  int err = codec_plan_get(l->codec, l->good[s], lost, &plan);
  if (err < 0) return err;
  uint32_t sources = codec_plan_sources(plan);
  for (unsigned i = 0; i < l->window.n; i++) {
    units[i] = stripe_load_unit(l, s, i);
    if (sources >> i & 1) unit_pad(l, s, i, coded);
  }
  codec_plan_run(plan, units, coded);
  codec_plan_put(l->codec, plan);
  l->decoded++;
  return 0;
}

/* 1: the wanted units of stripe s stand in the buffer; 0: more sources are needed. */
static int stripe_finish(struct stripe_load *l, unsigned s) {
  uint32_t coded = stripe_unit_coded_len(&l->geometry, l->window.first + s);
  l->good[s] |= empty_units(l, s);
  bool ready = stripe_verify(l, s, l->got & l->want);
  if (!ready) ready = stripe_verify(l, s, l->got);
  if (!ready) return 0;
  if (l->want & ~l->good[s]) {
    int err = stripe_decode(l, s, coded);
    if (err < 0) return err;
  }
  for (unsigned i = 0; i < l->window.n; i++)
    if (l->want & l->good[s] & 1u << i) unit_pad(l, s, i, coded);
  return 1;
}

void stripe_load_run(struct env_work *w) {
  struct stripe_load *l = container_of(w, struct stripe_load, work);
  l->work_err = 0;
  l->decoded = l->crc_failures = 0;
  l->complete = true;
  for (unsigned s = 0; s < l->window.count; s++) {
    int finished = stripe_finish(l, s);
    if (finished < 0) l->work_err = finished;
    if (finished <= 0) l->complete = false;
  }
}

/* In bytes as the env counts them, which thinks of hashes: CRCs alone run ten times as fast, and
 * those of a small object are done sooner than a lane wakes. */
size_t stripe_load_cost(const struct stripe_load *l) {
  unsigned units = (unsigned)__builtin_popcount(l->got) * l->window.count;
  size_t bytes = (size_t)units * l->window.stride;
  return l->want & ~l->got ? bytes : bytes / LOAD_VERIFY_CHEAPER;
}
