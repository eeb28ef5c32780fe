/* objects.c: what all operations share: codecs, versions, and where a key lives. */
#include "storage/object/objects.h"

#include <assert.h>

#include "config/sim_mutant.h"
#include "storage/object/bucket_cache.h"

int objects_open(struct objects *o) {
  assert(o->env && o->map && o->placement && o->placement->pool_count == o->map->pool_count);
  for (unsigned i = 0; i < o->map->pool_count; i++) {
    int err = codec_new(&o->map->pools[i].profile, &o->codecs[i]);
    if (err < 0) {
      objects_close(o);
      return err;
    }
    /* The quorums were made with what the configuration says of the code. */
    assert(codec_d(o->codecs[i]) == o->map->pools[i].d);
  }
  int err = bucket_cache_new(&o->buckets);
  if (err < 0) objects_close(o);
  return err;
}

void objects_close(struct objects *o) {
  assert(o->running == 0);
  for (unsigned i = 0; i < MAP_POOLS_MAX; i++) codec_free(TAKE(o->codecs[i]));
  bucket_cache_free(TAKE(o->buckets));
}

/* Saturates: a poisoned stamp must not wrap round to the oldest. Drives refuse it (ERR_CLOCK). */
/* A drive is slow where its reads take so many times those of the fastest, and not less than this.
 */
#define SLOW_LATENCY_TIMES 4
#define SLOW_LATENCY_US_MIN 10000

static uint64_t hlc_after(uint64_t hlc) {
  return hlc == UINT64_MAX ? hlc : hlc + 1;
}

/* Drives with a clock like ours refuse such a stamp (ERR_CLOCK). It concerns the key that it was
 * seen on, whose writers go above it: taken for every key, one host whose clock runs ahead would
 * stop all writes at every gateway that has met a row of its. */
static bool is_far_ahead(struct objects *o, uint64_t hlc) {
  return hlc >> VERSION_HLC_SHIFT > env_wall_ms(o->env) + VERSION_FUTURE_MS_MAX;
}

struct version objects_mint(struct objects *o, const struct version *seen) {
  struct version v = {.hlc = env_wall_ms(o->env) << VERSION_HLC_SHIFT};
  if (!is_far_ahead(o, o->hlc_last.hlc)) v.hlc = MAX(v.hlc, hlc_after(o->hlc_last.hlc));
  if (seen) v.hlc = MAX(v.hlc, hlc_after(seen->hlc));
  if (MUTANT(WALL_CLOCK)) v.hlc = env_wall_ms(o->env) << VERSION_HLC_SHIFT;
  env_random(o->env, &v.nonce, sizeof v.nonce);
  if (MUTANT(SAME_VERSION)) v.nonce = 0;
  objects_saw(o, &v);
  return v;
}

void objects_saw(struct objects *o, const struct version *seen) {
  if (is_far_ahead(o, o->hlc_last.hlc)) o->hlc_last = (struct version){0}; /* our clock went back */
  if (!is_far_ahead(o, seen->hlc)) version_raise(&o->hlc_last, seen);
}

/* A stopped or ailing host must not cost every read a hedge. */
static uint32_t place_slow(const struct key_place *place, uint64_t now_ms) {
  uint32_t us[MAP_SLOTS_MAX], fastest = UINT32_MAX, slow = 0;
  for (unsigned i = 0; i < place->n; i++) {
    us[i] = place->peers[i]->up ? peer_latency_us(place->peers[i], now_ms) : 0;
    if (us[i]) fastest = MIN(fastest, us[i]);
  }
  uint64_t limit = MAX((uint64_t)fastest * SLOW_LATENCY_TIMES, (uint64_t)SLOW_LATENCY_US_MIN);
  for (unsigned i = 0; i < place->n; i++)
    if (us[i] > limit) slow |= 1u << i;
  return slow;
}

struct key_place objects_place(struct objects *o, unsigned pool, const struct id128 *bucket,
                               struct slice key) {
  assert(pool < o->map->pool_count);
  const struct map_pool *p = &o->map->pools[pool];
  struct key_place place = {.pool = pool, .n = p->n, .d = p->d, .w = p->w, .r = p->r};
  place.bucket = *bucket;
  place.partition = placement_partition(bucket, key);
  const uint16_t *slots = placement_slots(o->placement, pool, place.partition);
  if (MUTANT(W_IS_K)) place.w = place.d;
  for (unsigned i = 0; i < place.n; i++) place.peers[i] = o->peers[slots[i]];
  place.slow = place_slow(&place, env_now_ms(o->env));
  return place;
}

void objects_request(struct objects *o, const struct key_place *place, unsigned slot,
                     struct slice key, enum peer_verb verb, struct peer_call *call) {
  assert(slot < place->n);
  struct peer_request *req = &call->req;
  req->verb = (uint8_t)verb;
  req->pool = (uint8_t)place->pool;
  req->slot = (uint8_t)slot;
  req->partition = (uint16_t)place->partition;
  req->epoch = o->placement->epoch;
  req->timeout_ms = o->peer_timeout_ms;
  req->bucket = place->bucket;
  req->key = key;
}
