/* object_put.c: PUT and DELETE of one key: start, cancel, the one function that decides, the end.
 * put.h has the map of its parts. */
#include <errno.h>
#include <stdlib.h>

#include "config/err.h"
#include "config/sim_mutant.h"
#include "storage/object/put.h"

static void put_free(struct object_put *put) {
  struct objects *o = put->o;
  put_turn_leave(put);
  gather_close(put->query);
  promise_close(&put->promise);
  env_timer_stop(put->env, &put->timer);
  env_timer_stop(put->env, &put->kick);
  for (unsigned i = 0; i < PUT_WINDOWS; i++) put_window_release(put, &put->windows[i]);
  put_code_abort(put);
  accept_close(&put->accept);
  for (unsigned i = 0; i < put->place.n; i++) peer_call_release(&put->slots[i].call);
  free((void *)(uintptr_t)put->key.data);
  free(put);
  o->running--;
}

void put_answer(struct object_put *put, int err) {
  struct objects_stats *stats = &put->o->stats;
  if (MUTANT(UNKNOWN_IS_NOTHING) && err == ERR_UNKNOWN_OUTCOME) err = ERR_UNAVAILABLE;
  put->state = PUT_DONE;
  put->answered = true;
  env_timer_stop(put->env, &put->timer);
  put_turn_leave(put);
  struct object_put_result *r = &put->result;
  r->err = err;
  r->size = put->size;
  r->mtime_ms = put->mtime_ms;
  memcpy(r->etag, put->etag, sizeof r->etag);
  STAT_ADD(stats->bytes_in, put->size);
  if (err == ERR_UNAVAILABLE || err == ERR_UNKNOWN_OUTCOME) STAT_ADD(stats->unavailable, 1);
  if (err == 0) {
    if (put->kind == ROW_TOMB)
      STAT_ADD(stats->deletes, 1);
    else
      STAT_ADD(stats->puts, 1);
    if (r->missing) STAT_ADD(stats->degraded_writes, 1);
  }
  put->body = NULL; /* the caller's again, like the attributes */
  put->attrs = NULL;
  put->cb(put->arg, r);
}

static void put_timer(struct env_timer *t) {
  struct object_put *put = container_of(t, struct object_put, timer);
  switch (put->state) {
    case PUT_ACCEPT:
      put->accept_waited = true;
      break;
    case PUT_RECOVER:
      put->recover_waited = true;
      break;
    case PUT_FAIL:
      put->fail_waited = true;
      break;
    default:
      break;
  }
  put_advance(put);
}

static void put_kicked(struct env_timer *t) {
  put_advance(container_of(t, struct object_put, kick));
}

void put_ref(struct object_put *put) {
  put->refs++;
}

void put_unref_advance(struct object_put *put) {
  put->refs--;
  put_advance(put);
}

void put_fail(struct object_put *put, int err) {
  if (put->state >= PUT_FAIL) return;
  put->state = PUT_FAIL;
  put->fail_err = err;
  put_turn_leave(put);
  gather_close(TAKE(put->query));
  promise_close(&put->promise);
  put_body_stop(put);
  put_stage_stop(put);
  /* Waits this long for the drives to say that they have dropped their stages. */
  env_timer_start(put->env, &put->timer, OBJECT_SUSPECT_MS);
}

/* Nothing of this PUT may be left on a drive, and the body must be the caller's again. */
static bool put_fail_step(struct object_put *put) {
  if (put->stage_pending == 0 && !put->drops_sent) {
    put->drops_sent = true;
    (void)put_stage_drop(put, put->staged);
  }
  if (put->reading || put->working || put->buf_waiting) return false;
  if (put->stage_pending == 0)
    for (unsigned i = 0; i < PUT_WINDOWS; i++) put_window_release(put, &put->windows[i]);
  if (!put->fail_waited && (put->stage_pending || put->dropping)) return false;
  put_answer(put, put->fail_err);
  return true;
}

/* What can be known without a byte of the body. */
static int put_check_args(struct object_put *put) {
  unsigned up = 0;
  uint8_t *bytes;
  size_t len;
  if (put->length != BODY_LENGTH_UNKNOWN && put->length > OBJECT_BYTES_MAX) return ERR_BODY_LONG;
  int err = put_row_encode(put, &put->seen, &bytes, &len);
  if (err < 0) return err;
  free(bytes);
  for (unsigned i = 0; i < put->place.n; i++) up += put->place.peers[i]->up;
  return up >= put->place.w ? 0 : ERR_UNAVAILABLE;
}

static void put_body_begin(struct object_put *put) {
  put->state = PUT_BODY;
  int err = put_code_begin(put);
  if (err < 0) {
    put_fail(put, err);
    return;
  }
  put_body_shape(put);
  put_lag_leave_out(put);
  if (put->body && put->want_body) put->want_body(put->arg);
}

static bool put_start_step(struct object_put *put) {
  int err = put_check_args(put);
  if (err < 0) {
    put_fail(put, err);
    return true;
  }
  put_query_start(put);
  if (put->conditional)
    put->state = PUT_CHECK;
  else
    put_body_begin(put);
  return true;
}

static bool put_check_then_body(struct object_put *put) {
  if (!put_check_step(put)) return false;
  if (put->state == PUT_CHECK) put_body_begin(put);
  return true;
}

/* Test builds can break conditional writes to check-then-put, so that the race tests are seen to
 * fail. */
static bool put_takes_promise(const struct object_put *put) {
#ifdef KOFN_TEST_SWITCHES
  if (put->o->test_skip_promise) return false;
#endif
  return put->conditional && !MUTANT(CHECK_THEN_PUT);
}

static bool put_body_then(struct object_put *put) {
  if (!put->conditional && put->query_done && put->query_err < 0) {
    put_fail(put, put->query_err);
    return true;
  }
  bool whole = put_body_step(put);
  if (put->state != PUT_BODY) return true;
  if (!whole || (!put->conditional && !put->query_done)) return false;
  env_timer_stop(put->env, &put->timer);
  int err = put_code_end(put);
  if (err < 0) {
    put_fail(put, err);
  } else if (put_takes_promise(put)) {
    put->state = PUT_TURN;
  } else {
    struct version ver = objects_mint(put->o, &put->seen);
    put_accept_start(put, &ver);
  }
  return true;
}

static void put_give_up(struct object_put *put) {
  if (put->silent) {
    put_answer(put, ERR_CANCELLED);
  } else if (put->state == PUT_ACCEPT || put->state == PUT_RECOVER) {
    /* Rows may stand on drives already: it cannot be taken back. It goes on behind the answer. */
    put_answer(put, accept_chosen(&put->accept) ? 0 : ERR_UNKNOWN_OUTCOME);
  } else if (put->state < PUT_FAIL) {
    put_fail(put, ERR_CANCELLED);
  }
}

/* Does what the state allows; true when the state changed and there may be more to do. */
static bool put_step(struct object_put *put) {
  if (put->cancelled && !put->answered && put->state != PUT_FAIL) {
    put_give_up(put);
    return true;
  }
  switch (put->state) {
    case PUT_START:
      return put_start_step(put);
    case PUT_CHECK:
      return put_check_then_body(put);
    case PUT_BODY:
      return put_body_then(put);
    case PUT_TURN:
      return put_turn_step(put);
    case PUT_RECHECK:
      if (!put_check_step(put)) return false;
      if (put->state == PUT_RECHECK) put_promise_begin(put, PUT_PROMISE);
      return true;
    case PUT_PROMISE:
      return put_promise_step(put);
    case PUT_SETTLE:
      return put_settle_step(put);
    case PUT_ACCEPT:
      return put_accept_step(put);
    case PUT_RECOVER:
      return put_recover_step(put);
    case PUT_FAIL:
      return put_fail_step(put);
    case PUT_DONE:
      put_accept_trail(put);
      return false;
  }
  return false;
}

void put_advance(struct object_put *put) {
  put->refs++;
  while (put_step(put)) continue;
  put_lag_update(put);
  if (--put->refs == 0 && put->answered) put_free(put);
}

static int put_fill(struct object_put *put, const struct object_put_args *args) {
  const struct write_conditions *c = &args->conditions;
  if (args->key.len == 0 || args->key.len > KEY_BYTES_MAX) return ERR_INVALID;
  if (args->etag.len > ETAG_BYTES_MAX) return ERR_INVALID;
  if (args->kind != ROW_PUT && args->kind != ROW_TOMB) return ERR_INVALID;
  uint8_t *key = malloc(args->key.len);
  if (!key) return -ENOMEM;
  memcpy(key, args->key.data, args->key.len);
  put->key = slice_of(key, args->key.len);
  put->bucket = *args->bucket;
  put->place = objects_place(put->o, put->bucket.pool, &put->bucket.uuid, put->key);
  put->kind = args->kind;
  put->body = args->body;
  put->attrs = args->attrs;
  put->attr_count = args->attr_count;
  put->conditions = *c;
  put->conditional = c->if_none_match_any || c->if_match.data;
  put->want_body = args->want_body;
  if (args->content_md5) {
    memcpy(put->md5_wanted, args->content_md5, MD5_LEN);
    put->has_md5_wanted = true;
  }
  if (args->etag.data) {
    memcpy(put->etag, args->etag.data, args->etag.len);
    put->has_etag = true;
  }
  put->length = args->body ? args->body->length : 0;
  return 0;
}

int object_put_start(struct objects *o, const struct object_put_args *args, object_put_cb cb,
                     void *arg, struct object_put **ret_put) {
  unsigned n = o->map->pools[args->bucket->pool].n;
  struct object_put *put = calloc(1, sizeof *put + n * sizeof *put->slots);
  if (!put) return -ENOMEM;
  put->o = o;
  put->env = o->env;
  int err = put_fill(put, args);
  if (err < 0) {
    free(put);
    return err;
  }
  put->cb = cb;
  put->arg = arg;
  put->profile = o->map->pools[put->place.pool].profile;
  put->codec = o->codecs[put->place.pool];
  put->live = slots_all(n);
  for (unsigned i = 0; i < n; i++) put->slots[i].put = put;
  env_random(o->env, put->op_id.bytes, sizeof put->op_id.bytes);
  env_random(o->env, put->data_id.bytes, sizeof put->data_id.bytes);
  put->timer.fire = put_timer;
  put->kick.fire = put_kicked;
  o->running++;
  env_timer_start(o->env, &put->kick, 0);
  *ret_put = put;
  return 0;
}

void object_put_cancel(struct object_put *put) {
  if (put->cancelled || put->answered) return;
  put->cancelled = true;
  env_timer_start(put->env, &put->kick, 0);
}
