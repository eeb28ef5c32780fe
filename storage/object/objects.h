/* objects.h: what every operation on keys needs, one per event loop. */
#ifndef KOFN_STORAGE_OBJECT_OBJECTS_H
#define KOFN_STORAGE_OBJECT_OBJECTS_H

#include "codec/codec.h"
#include "storage/object/env.h"
#include "storage/object/peer.h"
#include "storage/object/placement.h"

/* PROTOCOL.md 1: how long an answer waits for the drives beyond W. */
#define OBJECT_SUSPECT_MS 1000
#define OBJECT_PATIENCE_MS_MIN \
  20 /* where W acks leave a spare chunk: as long as W took, at least */
/* What one loop lets stand at a drive that others no longer wait for. */
#define OBJECT_LAG_OPS_MAX 64
#define OBJECT_LAG_BYTES_MAX (8u << 20)
#define OBJECT_UNDETERMINED_MS 50 /* PROTOCOL.md 6: how long a read waits for a PUT in flight */
#define OBJECT_RESOLVE_TRIES 6
#define OBJECTS_HEALED_MAX 64

/* Counters of one loop, which alone writes them; the metrics page of another reads them. */
#define STAT_ADD(counter, by) \
  __atomic_store_n(&(counter), (counter) + (uint64_t)(by), __ATOMIC_RELAXED)
struct objects_stats {
  uint64_t puts, gets, heads, deletes, lists;
  uint64_t degraded_writes; /* acked with fewer than N chunks */
  uint64_t decoded_stripes; /* rebuilt by the codec in a GET */
  uint64_t crc_failures;    /* units that failed at the gateway */
  uint64_t roll_forwards, resolves, resolve_retries, discards;
  uint64_t unavailable; /* 503 for lack of drives */
  uint64_t hedges;
  uint64_t bytes_in, bytes_out;
};

struct bucket_cache; /* bucket.c */

struct objects {
  struct env *env;
  const struct cluster_map *map;
  const struct placement *placement;
  struct peer *peers[MAP_DRIVES_MAX];  /* by drive index */
  struct codec *codecs[MAP_POOLS_MAX]; /* by pool */
  uint64_t inline_max_bytes;
  uint32_t peer_timeout_ms;
  uint64_t buffer_wait_ms;
  struct version hlc_last; /* highest version seen or minted by this loop */
  struct bucket_cache *buckets;
  struct list put_turns; /* conditional PUTs that queue by key; zero until used */
  struct objects_stats stats;
  unsigned running; /* operations not yet freed */
  /* Versions whose heal reads have asked for lately, a ring: asked once, not at every GET. */
  struct {
    struct version ver;
    uint32_t missing;
  } healed[OBJECTS_HEALED_MAX];
  unsigned healed_next;
  /* Test builds only (KOFN_TEST_SWITCHES): a PUT stops dead after exactly this many ACCEPT acks (0:
   * off); the promise round is skipped. Never set, and not compiled, in a release. */
#ifdef KOFN_TEST_SWITCHES
  unsigned test_stop_after_accepts;
  bool test_skip_promise;
#endif
};

/* Fills codecs and the bucket cache; env, map, placement, peers and limits are set by the caller
 * before. objects_close frees what objects_open made; no operation may be running. */
_must_check_ int objects_open(struct objects *o);
void objects_close(struct objects *o);

/* A new version above `seen`, which the caller has read of the key, and above what this loop has
 * seen of any key, unless that is so far in the future that drives would refuse it. */
struct version objects_mint(struct objects *o, const struct version *seen);
void objects_saw(struct objects *o, const struct version *seen);

/* Where a key lives. */
struct key_place {
  unsigned pool, partition;
  unsigned n, d, w, r;
  uint32_t slow; /* slots that answer reads much later than the others: asked last */
  struct id128 bucket;
  struct peer *peers[MAP_SLOTS_MAX]; /* by slot */
};
struct key_place objects_place(struct objects *o, unsigned pool, const struct id128 *bucket,
                               struct slice key);

/* Fills the fields of `req` that every request for this key carries (pool, partition, epoch, slot,
 * bucket, key, timeout). `key` stays the caller's and must outlive the call. */
void objects_request(struct objects *o, const struct key_place *place, unsigned slot,
                     struct slice key, enum peer_verb verb, struct peer_call *call);

#endif
