/* promise.h: the promise round of RESOLVE (PROTOCOL.md 6), with its retries. Internal.
 *
 *   promise_start -> PROMISE(b) to all -> W grants -> CLASSIFY -> done(0)
 *                      ^ NACK: higher b, jittered backoff, <= OBJECT_RESOLVE_TRIES
 *
 * Embedded in its owner, which sets o, place, key and done, and zeroes the rest. place and key
 * outlive it. Each try is a gather of its own, so late replies of an earlier b are never counted.
 */
#ifndef KOFN_STORAGE_OBJECT_PROMISE_H
#define KOFN_STORAGE_OBJECT_PROMISE_H

#include "storage/object/gather.h"

#define PROMISE_BACKOFF_MS 8 /* doubled with every try; the wait is a random part of it */

enum promise_state { PROMISE_IDLE, PROMISE_BACKOFF, PROMISE_ASKING, PROMISE_WAITING, PROMISE_DONE };

struct promise {
  struct objects *o;
  const struct key_place *place;
  struct slice key;
  /* 0: >= W drives promised `ver`, and `base` says what they hold (never VERDICT_TOO_FEW); it
   * borrows from the promise until promise_close. ERR_CONFLICT: others kept promising higher;
   * ERR_BUCKET_DELETING; ERR_UNAVAILABLE (base.dead_count: more rows than replies hold; those are
   * provably not chosen, under this promise); -ENOMEM. Runs later, once; may call promise_close. */
  void (*done)(struct promise *p, int err);
  bool thorough; /* hears all drives that answer within OBJECT_SUSPECT_MS, not only W */

  struct version ver;
  struct classification base;
  struct gather *gather;
  /* promise.c's own */
  struct version seen;
  struct env_timer timer;
  unsigned tries;
  enum promise_state state;
  uint64_t granted_ms;
#ifdef KOFN_SIM_MUTANTS
  struct gather *stale; /* of the first try */
#endif
};

/* `rounds` of earlier, lost attempts lengthen the first backoff; 0: ask at once. */
void promise_start(struct promise *p, unsigned rounds);
/* No done after this. Safe in any state, also on a zeroed struct. */
void promise_close(struct promise *p);

#endif
