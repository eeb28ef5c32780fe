/* put_accept.c: the row, its ACCEPT at every slot whose chunk is whole, and the answer; see put.h.
 *
 * W acks: chosen; COMMIT at once, then the answer when every other slot has acked, failed or been
 * waited for (put_lag.c). Less: success can still be found out (recovery), or it is unknown.
 * Only where every drive that was asked has refused is it certain that nothing happened. */
#include <errno.h>
#include <stdlib.h>

#include "config/err.h"
#include "config/sim_mutant.h"
#include "storage/object/put.h"

int put_row_encode(struct object_put *put, const struct version *ver, uint8_t **ret_bytes,
                   size_t *ret_len) {
  struct row row = {.ver = *ver,
                    .kind = put->kind,
                    .op_id = put->op_id,
                    .data_id = put->data_id,
                    .profile = put->profile,
                    .size = put->size,
                    .mtime_ms = put->mtime_ms,
                    .etag = slice_str(put->etag)};
  char longest[2 * MD5_LEN];
  memset(longest, '0', sizeof longest);
  if (put->state ==
      PUT_START) { /* a trial, to know before the body comes whether it is too large */
    row.ver.hlc = MAX(row.ver.hlc, 1u);
    row.size = put->length; /* an unknown length has data as far as this goes */
    if (put->length == 0) row.data_id = (struct id128){{0}};
    if (!put->has_etag) row.etag = slice_of(longest, sizeof longest);
  }
  if (put->kind == ROW_TOMB) row.etag = (struct slice){0};
  if (put->digested) memcpy(row.digests, put->digests, sizeof row.digests);
  static const struct attr none;
  return row_encode(&row, put->attrs ? put->attrs : &none, put->attrs ? put->attr_count : 0,
                    &put->place.bucket, put->key, ret_bytes, ret_len);
}

static void put_accept_changed(void *arg) {
  put_unref_advance(arg);
}

static void put_accept_send(struct object_put *put) {
  struct accept *a = &put->accept;
  const struct put_window *w = &put->windows[0];
  unsigned sent = 0;
  slots_foreach(i, put->live) {
#ifdef KOFN_TEST_SWITCHES
    if (put->o->test_stop_after_accepts && sent == put->o->test_stop_after_accepts) break;
#endif
    if (put->stage_pending >> i & 1) continue;
    if (put->is_inline && put->size > 0)
      accept_send(a, i, w->units[i], w->stripe_count);
    else
      accept_send(a, i, NULL, 0);
    if (!(a->pending >> i & 1)) continue;
    put_ref(put);
    sent++;
  }
}

void put_accept_late(struct object_put *put, unsigned slot) {
  struct accept *a = &put->accept;
  if (put->state == PUT_RECOVER || put->state == PUT_FAIL || put->silent || !a->slots) return;
  if (put->state == PUT_DONE && !accept_chosen(a)) {
    (void)put_stage_drop(put, 1u << slot);
    return;
  }
  accept_send(a, slot, NULL, 0);
  if (a->pending >> slot & 1) put_ref(put);
}

/* Before the first ACCEPT of this round. */
static void put_accept_cannot(struct object_put *put, int err) {
  if (put->maybe)
    put_answer(put, ERR_UNKNOWN_OUTCOME);
  else
    put_fail(put, err);
}

void put_accept_start(struct object_put *put, const struct version *ver) {
  slots_foreach(i, put->live) if (!put->place.peers[i]->up) put->live &= ~(1u << i);
  if (slots_count(put->live) < put->place.w) {
    put_accept_cannot(put, put_stage_shortage(put));
    return;
  }
  if (!put->mtime_ms) put->mtime_ms = env_wall_ms(put->env);
  uint8_t *bytes = NULL;
  size_t len = 0;
  int err = put_row_encode(put, ver, &bytes, &len);
  if (err == 0) {
    accept_close(&put->accept);
    err = accept_open(&put->accept, put->o, &put->place, put->key, bytes, len, put_accept_changed,
                      put);
  }
  if (err < 0) {
    free(bytes);
    put_accept_cannot(put, err);
    return;
  }
  put->state = PUT_ACCEPT;
  put->accept_waited = false;
  env_timer_stop(put->env, &put->timer);
  put->result.ver = *ver;
  put->accept_rounds++;
  put_wait_begin(put);
  put_accept_send(put);
}

static uint32_t put_accept_missing(const struct object_put *put) {
  return slots_all(put->place.n) & ~put->accept.acked & ~put->accept.pending & ~put_trailing(put);
}

/* Every drive that was asked refused, or a promise round has proven that nothing was chosen. */
static int put_accept_refusal(struct object_put *put) {
  const struct accept *a = &put->accept;
  slots_foreach(i, a->refused) {
    if (a->slots[i].err == ERR_BUCKET_DELETING) return ERR_BUCKET_DELETING;
    if (a->slots[i].err == ERR_NO_SPACE) put->no_space |= 1u << i;
  }
  if (a->promised) return put->conditional ? ERR_CONFLICT : ERR_UNAVAILABLE;
  return put_stage_shortage(put);
}

static void put_accept_refused(struct object_put *put) {
  const struct accept *a = &put->accept;
  if (a->promised && put->conditional && put->promise_rounds < PUT_PROMISE_ROUNDS) {
    put_promise_begin(put, PUT_PROMISE);
  } else if (a->promised && !put->conditional && put->accept_rounds < PUT_ACCEPT_ROUNDS) {
    struct version ver = objects_mint(put->o, &a->nack);
    put_accept_start(put, &ver);
  } else {
    put_fail(put, put_accept_refusal(put));
  }
}

/* W acks cannot come together any more. */
static bool put_accept_lost(struct object_put *put) {
  const struct accept *a = &put->accept;
  if (MUTANT(RETRY_AFTER_NACK) && a->promised && put->accept_rounds < PUT_ACCEPT_ROUNDS) {
    if (!a->pending) put_accept_refused(put);
    return !a->pending;
  }
  if (!put->maybe && !a->acked && !a->failed) {
    if (a->pending) return false; /* whether they all refuse decides */
    put_accept_refused(put);
    return true;
  }
  put->maybe = true;
  bool may_recover = put->recover_rounds < PUT_RECOVER_ROUNDS;
  if (a->promised && may_recover) {
    put_recover_begin(put, 0);
    return true;
  }
  if (!a->failed && a->pending && !put->accept_waited) {
    if (!put->timer.armed) env_timer_start(put->env, &put->timer, OBJECT_SUSPECT_MS);
    return false;
  }
  int err = put_accept_refusal(put);
  if (!a->failed && !a->pending && err == ERR_NO_SPACE && may_recover)
    put_recover_begin(put, err);
  else
    put_answer(put, ERR_UNKNOWN_OUTCOME);
  return true;
}

/* Whether the answer waits for drives beyond W. */
static bool put_accept_waits(struct object_put *put) {
  uint32_t waited_for = put->accept.pending | put_trailing(put);
  put_wait_w(put);
  slots_foreach(i, waited_for) {
    if (put->place.peers[i]->suspect) waited_for &= ~(1u << i);
  }
  return waited_for && put_wait_goes_on(put, put_wait_patience(put));
}

#ifdef KOFN_TEST_SWITCHES
/* As if the process had died here: no COMMIT, no answer. Cancelling it frees the memory. */
static bool put_accept_stops(struct object_put *put) {
  if (!put->o->test_stop_after_accepts) return false;
  if (put->accept.pending) return true;
  put->silent = true;
  put->state = PUT_DONE;
  put_turn_leave(put);
  return true;
}
#endif

bool put_accept_step(struct object_put *put) {
  struct accept *a = &put->accept;
#ifdef KOFN_TEST_SWITCHES
  if (put_accept_stops(put)) return false;
#endif
  if (MUTANT(EARLY_COMMIT)) accept_commit(a, 0);
  if (accept_chosen(a)) {
    put_turn_leave(put);
    accept_commit(a, put_accept_missing(put));
    if (put_accept_waits(put)) return false;
    put->result.missing = slots_all(put->place.n) & ~a->acked;
    put_answer(put, 0);
    return true;
  }
  if (slots_count(a->acked | a->pending | put_trailing(put)) >= put->place.w) return false;
  return put_accept_lost(put);
}

void put_accept_trail(struct object_put *put) {
  struct accept *a = &put->accept;
  if (put->silent) return;
  if (put->answered && put->fail_err < 0 && !put->stage_pending && !put->drops_sent) {
    put->drops_sent = true; /* the answer did not wait for these */
    (void)put_stage_drop(put, put->staged);
  }
  if (!a->slots) return;
  accept_commit(a, put_accept_missing(put));
  if (a->pending || put_trailing(put)) return;
  (void)put_stage_drop(put, ~a->acked); /* refused, or not asked any more */
  for (unsigned i = 0; i < PUT_WINDOWS; i++)
    if (!put->stage_pending) put_window_release(put, &put->windows[i]);
}
