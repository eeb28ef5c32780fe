/* object_resolve.c: RESOLVE(key) of PROTOCOL.md 6, for the sweep and for lists.
 *
 *   promise round -> CLASSIFY -> undetermined: settle at the promised version
 *                             -> chosen: flag the rows that lack the C flag; discard the dead ones,
 *                                and the older ones where the chosen one is missing
 *                             -> absent: discard the dead ones
 *
 * Possibly chosen goes forward; provably not chosen goes back, under a promise. */
#include <errno.h>
#include <stdlib.h>

#include "config/err.h"
#include "storage/object/object.h"
#include "storage/object/oneway.h"
#include "storage/object/promise.h"
#include "storage/object/settle.h"
#include "storage/object/slots.h"

struct object_resolve {
  struct objects *o;
  struct key_place place;
  uint8_t *key;
  size_t key_len;
  struct promise promise;
  unsigned rounds;
  unsigned discarding;
  bool again; /* once the dead rows are gone */
  object_resolve_cb cb;
  void *arg;
};

static struct slice resolve_key(const struct object_resolve *r) {
  return slice_of(r->key, r->key_len);
}

static void resolve_end(struct object_resolve *r, int err) {
  object_resolve_cb cb = r->cb;
  void *arg = r->arg;
  promise_close(&r->promise);
  if (err == ERR_UNAVAILABLE) STAT_ADD(r->o->stats.unavailable, 1);
  r->o->running--;
  free(r->key);
  free(r);
  cb(arg, err);
}

static void resolve_settled(void *arg, int err) {
  struct object_resolve *r = arg;
  if (err == ERR_PROMISED && ++r->rounds < OBJECT_RESOLVE_TRIES) {
    promise_start(&r->promise, r->rounds);
    return;
  }
  resolve_end(r, err == ERR_PROMISED ? ERR_CONFLICT : err);
}

static void resolve_discarded(void *arg) {
  struct object_resolve *r = arg;
  if (--r->discarding > 0) return;
  if (!r->again) {
    resolve_end(r, 0);
    return;
  }
  r->again = false;
  promise_close(&r->promise);
  promise_start(&r->promise, r->rounds);
}

/* W drives promised, but some of them hold more rows of the key than a reply does, and those that
 * are in sight are all dead: they go, and the next look sees further. */
static bool resolve_is_cut(const struct object_resolve *r, int err) {
  const struct classification *c = &r->promise.base;
  return err == ERR_UNAVAILABLE && c->verdict == VERDICT_TOO_FEW && c->dead_count > 0;
}

/* Slots that lack the chosen row or its chunk. Where no C flag was in sight, its coordinator died
 * before it could say which drives it missed, and a drive that does not answer counts as missing
 * until heal has looked; where a flag was in sight, the coordinator has named them itself. */
static uint32_t resolve_missing(const struct object_resolve *r) {
  const struct classification *c = &r->promise.base;
  uint32_t looked = c->flagged ? r->promise.gather->replied : slots_all(r->place.n);
  return looked & ~(c->acked & c->healthy);
}

/* Rows that nobody flagged below the chosen version, on drives that missed it: until heal brings it
 * there, nothing else would decide them, and every sweep would promise for them again. Every reader
 * meets the chosen one, so what became of them has no meaning any more. */
static void resolve_discard_older(struct object_resolve *r) {
  const struct classification *c = &r->promise.base;
  slots_foreach(i, r->promise.gather->replied & ~c->acked) {
    const struct peer_rows *rows = &r->promise.gather->replies->rows[i];
    for (unsigned j = 0; j < rows->count; j++) {
      const struct version *ver = &rows->rows[j].row.ver;
      if (rows->rows[j].chosen || version_cmp(ver, &c->row.ver) >= 0) continue;
      struct oneway discard = {.verb = PEER_DISCARD, .ver = *ver};
      STAT_ADD(r->o->stats.discards, 1);
      if (oneway_send(r->o, &r->place, resolve_key(r), &discard, 1u << i, resolve_discarded, r))
        r->discarding++;
    }
  }
}

static void resolve_decided(struct object_resolve *r) {
  struct classification *c = &r->promise.base;
  uint32_t silent = gather_all(&r->place) & ~r->promise.gather->replied;
  if (c->verdict == VERDICT_CHOSEN) /* ignored where the row is not */
    commit_send(r->o, &r->place, resolve_key(r), &c->row.ver, resolve_missing(r),
                (c->acked & ~c->flagged) | silent);
  r->discarding = 1; /* held until all are sent */
  for (unsigned i = 0; i < c->dead_count; i++) {
    struct oneway discard = {.verb = PEER_DISCARD, .ver = c->dead[i]};
    STAT_ADD(r->o->stats.discards, 1);
    /* Dead everywhere; a drive that has not promised ignores it. Only the repliers are waited for.
     */
    (void)oneway_send(r->o, &r->place, resolve_key(r), &discard, silent, NULL, NULL);
    if (oneway_send(r->o, &r->place, resolve_key(r), &discard, r->promise.gather->replied,
                    resolve_discarded, r))
      r->discarding++;
  }
  if (c->verdict == VERDICT_CHOSEN) resolve_discard_older(r);
  resolve_discarded(r);
}

static void resolve_promised(struct promise *p, int err) {
  struct object_resolve *r = container_of(p, struct object_resolve, promise);
  if (resolve_is_cut(r, err) && ++r->rounds < OBJECT_RESOLVE_TRIES) {
    r->again = true;
    resolve_decided(r);
    return;
  }
  if (err < 0) {
    resolve_end(r, err);
    return;
  }
  const struct classification *c = &p->base;
  if (c->verdict != VERDICT_UNDETERMINED) {
    resolve_decided(r);
    return;
  }
  err = settle_start(r->o, &r->place, resolve_key(r), &c->row, &p->ver, 0, c->healthy,
                     resolve_settled, r);
  promise_close(p);
  if (err < 0) resolve_end(r, err);
}

int object_resolve_start(struct objects *o, unsigned pool, const struct id128 *bucket,
                         struct slice key, object_resolve_cb cb, void *arg) {
  struct object_resolve *r = calloc(1, sizeof *r);
  uint8_t *copy = malloc(key.len + 1);
  if (!r || !copy) {
    free(r);
    free(copy);
    return -ENOMEM;
  }
  memcpy(copy, key.data, key.len);
  r->o = o;
  r->key = copy;
  r->key_len = key.len;
  r->place = objects_place(o, pool, bucket, resolve_key(r));
  r->promise = (struct promise){.o = o,
                                .place = &r->place,
                                .key = resolve_key(r),
                                .done = resolve_promised,
                                .thorough = true};
  r->cb = cb;
  r->arg = arg;
  o->running++;
  STAT_ADD(o->stats.resolves, 1);
  promise_start(&r->promise, 0);
  return 0;
}
