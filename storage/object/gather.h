/* gather.h: READ or PROMISE of one key at its slots, until the caller has enough.
 *
 * One gather is one round: its replies can never mix with those of another (PROTOCOL.md 4). The
 * caller looks at `replies` in `step`, asks more slots, or closes. Late replies are absorbed here.
 *
 *   start -> step (after each reply, failure, hedge) -> gather_ask_more | gather_close
 */
#ifndef KOFN_STORAGE_OBJECT_GATHER_H
#define KOFN_STORAGE_OBJECT_GATHER_H

#include "storage/object/classify.h"

#define GATHER_HEDGE_MS 20 /* a READ silent for this long: ask the spares too */

struct gather;
struct gather_call;
typedef void (*gather_step)(void *arg, struct gather *g);

struct gather_args {
  const struct key_place *place; /* copied */
  struct slice key;              /* copied */
  enum peer_verb verb;           /* PEER_READ or PEER_PROMISE */
  struct version ver;            /* PROMISE */
  uint32_t ask;                  /* slots asked at once; not 0 */
  uint32_t spare;                /* asked by itself: one after each failure, all after hedge_ms */
  uint32_t hedge_ms;             /* 0: no hedge */
  uint32_t want_inline;          /* slots asked with PEER_WANT_INLINE */
  gather_step step;
  void *arg;
};

/* Read only for the caller. Masks are of slots; asked = pending | replied | nacked | failed. */
struct gather {
  struct objects *o;
  struct key_place place;
  struct slice key;
  uint32_t asked, pending, replied;
  uint32_t nacked; /* ERR_PROMISED, ERR_FLOOR, ERR_CLOCK: nack_ver is the highest they name */
  uint32_t failed; /* everything else: err[] */
  uint32_t spare;  /* not asked yet */
  struct version nack_ver;
  int err[MAP_SLOTS_MAX]; /* 0, or why the slot is no replier */
  struct key_replies *replies;
  /* gather.c's own */
  struct gather_args args;
  struct env_timer hedge;
  unsigned holds;
  bool stopped, closed;
  struct gather_call *calls; /* by slot */
};

/* step runs later, at least once, until gather_close. -ENOMEM: nothing started. */
_must_check_ int gather_start(struct objects *o, const struct gather_args *args,
                              struct gather **ret_gather);
/* Asks those slots of `slots` that were not asked yet; the rest is ignored. */
void gather_ask_more(struct gather *g, uint32_t slots);
/* Nothing is pending and no spare is left: no reply will come any more. */
static inline bool gather_done(const struct gather *g) {
  return g->pending == 0 && g->spare == 0;
}
/* No step after this, nothing more is asked; but the replies stay until the close. */
void gather_stop(struct gather *g);
/* No step after this; pending calls are cancelled (a PROMISE may still take effect). `replies`, and
 * all that was borrowed from them, are gone. NULL is allowed; may be called inside step. */
void gather_close(struct gather *g);

/* `count` slots out of `among`, those that answer first: up, then slow, then suspect, then down;
 * in slot order. */
uint32_t gather_pick(const struct key_place *place, unsigned count, uint32_t among);
static inline uint32_t gather_all(const struct key_place *place) {
  return place->n >= 32 ? UINT32_MAX : (1u << place->n) - 1;
}

#endif
