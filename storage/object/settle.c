/* settle.c: see settle.h.
 *
 *   ACCEPT to every slot that lacks the row -> "no chunk" there: rebuild it, stage it, ACCEPT again
 *   W acks -> COMMIT, callback; the slots beyond W go on behind it
 *
 * A settle is freed when its callback has run and nothing is pending. */
#include "storage/object/settle.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "config/err.h"
#include "config/sim_mutant.h"
#include "storage/object/accept.h"
#include "storage/object/oneway.h"
#include "storage/object/rebuild.h"
#include "storage/object/slots.h"

struct settle {
  struct objects *o;
  struct key_place place;
  uint8_t *key;
  size_t key_len;
  struct accept accept;
  bool roll_forward; /* at the row's own version, not under a promise */
  uint32_t preacked, healthy;
  uint32_t lacking;        /* said that they have no chunk; not rebuilt yet */
  uint32_t tried;          /* were rebuilt, or it was tried: once each */
  struct rebuild *rebuild; /* of `rebuilding`, until its units are not needed any more */
  bool rebuild_running;
  uint32_t rebuilding;
  uint32_t restaged;      /* hold a stage of ours: dropped where the ACCEPT was refused */
  struct env_timer timer; /* first the start, then the batching of rebuilds */
  bool started, batched;
  settle_cb cb; /* NULL once it ran */
  void *arg;
  bool advancing;
};

static struct slice settle_key(const struct settle *s) {
  return slice_of(s->key, s->key_len);
}

static void settle_free(struct settle *s) {
  const struct row *row = &s->accept.row;
  struct oneway drop = {.verb = PEER_DROP, .data_id = row->data_id, .profile = row->profile};
  (void)oneway_send(s->o, &s->place, settle_key(s), &drop, s->restaged & s->accept.refused, NULL,
                    NULL);
  env_timer_stop(s->o->env, &s->timer);
  accept_close(&s->accept);
  rebuild_close(s->rebuild);
  s->o->running--;
  free(s->key);
  free(s);
}

/* Slots that do not hold a whole chunk of it, as far as is known. */
static uint32_t settle_missing(const struct settle *s) {
  const struct accept *a = &s->accept;
  uint32_t missing = slots_all(s->place.n) & ~a->acked & ~a->pending & ~s->rebuilding;
  if (row_has_data(&a->row)) missing |= s->preacked & ~s->healthy;
  return missing;
}

static void settle_answer(struct settle *s, int err) {
  settle_cb cb = TAKE(s->cb);
  if (!cb) return;
  if (err == 0 && s->roll_forward) STAT_ADD(s->o->stats.roll_forwards, 1);
  if (err < 0 && s->rebuild_running) rebuild_cancel(s->rebuild);
  cb(s->arg, err);
}

static void settle_rebuilt(void *arg, int err, uint32_t ready);

/* One rebuild at a time, of all slots that said so within OBJECT_UNDETERMINED_MS of each other. */
static void settle_rebuild(struct settle *s) {
  struct accept *a = &s->accept;
  if (!row_has_data(&a->row)) return; /* a drive that cannot read its rows: nothing to rebuild */
  slots_foreach(i, a->refused & ~s->tried & ~s->lacking) {
    int err = a->slots[i].err;
    if (err == ERR_NO_CHUNK || err == ERR_CORRUPT) s->lacking |= 1u << i;
  }
  if (!s->lacking || s->rebuild_running || !s->cb) return;
  if (s->rebuild && (s->rebuilding & a->pending)) return; /* they still send its units */
  if ((a->pending & ~s->rebuilding) && !s->batched) {
    if (!s->timer.armed) env_timer_start(s->o->env, &s->timer, OBJECT_UNDETERMINED_MS);
    return;
  }
  rebuild_close(TAKE(s->rebuild));
  uint32_t want = s->lacking;
  s->lacking = 0;
  s->tried |= want;
  s->healthy &= ~want;
  if (!codec_decodable(s->o->codecs[s->place.pool], s->healthy)) return;
  int err = rebuild_start(s->o, &s->place, settle_key(s), &a->row, s->healthy, want, settle_rebuilt,
                          s, &s->rebuild);
  if (err < 0) return;
  s->rebuild_running = true;
  s->rebuilding = want;
}

static void settle_advance(struct settle *s) {
  if (s->advancing) return;
  s->advancing = true;
  struct accept *a = &s->accept;
  settle_rebuild(s);
  if (accept_chosen(a)) {
    accept_commit(a, settle_missing(s));
    settle_answer(s, 0);
  } else if (s->cb) {
    uint32_t hope = a->acked | a->pending | s->lacking | (s->rebuild_running ? s->rebuilding : 0);
    if (slots_count(hope) < s->place.w)
      settle_answer(s, a->promised ? ERR_PROMISED : ERR_UNAVAILABLE);
  }
  s->advancing = false;
  if (!s->cb && !a->pending && !s->rebuild_running) settle_free(s);
}

static void settle_changed(void *arg) {
  struct settle *s = arg;
  uint32_t idle = s->rebuilding & ~s->accept.pending;
  if (!s->rebuild_running) s->rebuilding &= ~idle;
  settle_advance(s);
}

static void settle_rebuilt(void *arg, int err, uint32_t ready) {
  struct settle *s = arg;
  s->rebuild_running = false;
  s->rebuilding = err == 0 ? ready : 0;
  /* Also after the callback: a row that was made chosen gets all its chunks. */
  slots_foreach(i, s->rebuilding) {
    unsigned count;
    const struct peer_unit *units = rebuild_units(s->rebuild, i, &count);
    if (!units) s->restaged |= 1u << i;
    accept_send(&s->accept, i, units, count);
  }
  settle_changed(s);
}

static void settle_timer(struct env_timer *t) {
  struct settle *s = container_of(t, struct settle, timer);
  if (s->started) {
    s->batched = true;
  } else {
    s->started = true;
    slots_foreach(i, slots_all(s->place.n) & ~s->preacked) accept_send(&s->accept, i, NULL, 0);
  }
  settle_advance(s);
}

int settle_start(struct objects *o, const struct key_place *place, struct slice key,
                 const struct row *row, const struct version *ver, uint32_t acked, uint32_t healthy,
                 settle_cb cb, void *arg) {
  struct settle *s = calloc(1, sizeof *s);
  uint8_t *copy = malloc(key.len + 1);
  struct row at = *row;
  uint8_t *bytes = NULL;
  size_t len = 0;
  at.ver = *ver;
  int err = s && copy ? row_encode(&at, NULL, 0, &place->bucket, key, &bytes, &len) : -ENOMEM;
  if (err == 0) {
    memcpy(copy, key.data, key.len);
    *s = (struct settle){.o = o, .place = *place, .key = copy, .key_len = key.len};
    err = accept_open(&s->accept, o, &s->place, settle_key(s), bytes, len, settle_changed, s);
  }
  if (err < 0) {
    free(bytes);
    free(copy);
    free(s);
    return err;
  }
  s->roll_forward = version_cmp(&row->ver, ver) == 0;
  if (MUTANT(ROLL_FORWARD_BLIND) && s->roll_forward) s->accept.flags = MUTANT_FLAG_BLIND;
  s->preacked = s->accept.acked = acked;
  s->healthy = healthy;
  s->cb = cb;
  s->arg = arg;
  s->timer.fire = settle_timer;
  o->running++;
  env_timer_start(o->env, &s->timer, 0);
  return 0;
}
