/* put_condition.c: what a PUT must learn of the key before it may ACCEPT; see put.h.
 *
 * Unconditional: READ from R drives, only for the highest version in sight (objects_mint goes above
 * it). Conditional: READ, which may answer false at once;
 * then, with the body staged, one writer at a time per gateway, the promise round, whose base
 * decides.
 *
 * Recovery: some drives accepted, others refused because of a higher promise. The same promise
 * round tells what became of it: chosen (or made so: settle) is a success; a base below our version
 * proves that it never can be chosen; a foreign base above it proves nothing. */
#include "config/err.h"
#include "config/sim_mutant.h"
#include "storage/object/oneway.h"
#include "storage/object/put.h"
#include "storage/object/settle.h"

/* 0: true. `c` is CHOSEN, ABSENT or UNDETERMINED: the base is its row, or nothing. */
static int put_condition(const struct object_put *put, const struct classification *c) {
  const struct write_conditions *want = &put->conditions;
  bool exists = c->verdict != VERDICT_ABSENT && c->row.kind == ROW_PUT;
  if (want->if_match.data) {
    if (!exists) return ERR_NO_SUCH_KEY;
    if (!slice_eq(want->if_match, SLICE_LIT("*")) && !slice_eq(want->if_match, c->row.etag))
      return ERR_PRECONDITION;
  }
  return want->if_none_match_any && exists ? ERR_PRECONDITION : 0;
}

/* 1: enough is known, 0: wait, or an error. */
static int put_query_look(struct object_put *put, struct gather *g) {
  if (slots_count(g->replied | g->pending | g->spare) < put->place.r) return ERR_UNAVAILABLE;
  if (slots_count(g->replied) < put->place.r) return 0;
  struct classification c;
  classify(&put->place, g->replies, &c);
  version_raise(&put->seen, &c.seen);
  if (!put->conditional) return 1;
  /* Only what is certain is answered here; the promise round decides the rest. */
  if (c.verdict == VERDICT_CHOSEN || c.verdict == VERDICT_ABSENT) {
    int err = put_condition(put, &c);
    return err < 0 ? err : 1;
  }
  return 1;
}

static void put_query_step(void *arg, struct gather *g) {
  struct object_put *put = arg;
  int look = put_query_look(put, g);
  if (look == 0) return;
  put->query_err = MIN(look, 0);
  put->query_done = true;
  gather_close(TAKE(put->query));
  put_advance(put);
}

void put_query_start(struct object_put *put) {
  const struct key_place *place = &put->place;
  struct gather_args args = {.place = place,
                             .key = put->key,
                             .verb = PEER_READ,
                             .ask = gather_pick(place, place->r, gather_all(place)),
                             .spare = gather_all(place),
                             .hedge_ms = GATHER_HEDGE_MS,
                             .step = put_query_step,
                             .arg = put};
  put->query_done = false;
  int err = gather_start(put->o, &args, &put->query);
  if (err == 0) return;
  put->query_err = err;
  put->query_done = true;
}

bool put_check_step(struct object_put *put) {
  if (!put->query_done) return false;
  if (put->query_err < 0) put_fail(put, put->query_err);
  return true;
}

/* ---- the queue of conditional writers of one key at this gateway ---- */

static bool put_same_key(const struct object_put *a, const struct object_put *b) {
  return id128_eq(&a->bucket.uuid, &b->bucket.uuid) && slice_eq(a->key, b->key);
}

static struct object_put *put_turn_first(struct object_put *put) {
  list_foreach(it, &put->o->put_turns) {
    struct object_put *other = container_of(it, struct object_put, turn);
    if (put_same_key(other, put)) return other;
  }
  return NULL;
}

bool put_turn_step(struct object_put *put) {
  struct list *turns = &put->o->put_turns;
  if (!turns->next) list_init(turns);
  if (!list_linked(&put->turn)) {
    put->turn_given = !put_turn_first(put);
    put->turn_waited = !put->turn_given;
    list_push_back(turns, &put->turn);
  }
  if (!put->turn_given) return false;
  if (put->turn_waited) { /* most of those who waited have lost: a READ is enough to tell them */
    put->state = PUT_RECHECK;
    put_query_start(put);
  } else {
    put_promise_begin(put, PUT_PROMISE);
  }
  return true;
}

void put_turn_leave(struct object_put *put) {
  if (!list_linked(&put->turn)) return;
  list_remove(&put->turn);
  struct object_put *next = put->turn_given ? put_turn_first(put) : NULL;
  if (!next) return;
  next->turn_given = true;
  env_timer_start(next->env, &next->kick, 0);
}

/* ---- the promise round ---- */

static void put_promised(struct promise *p, int err) {
  struct object_put *put = container_of(p, struct object_put, promise);
  put->promise_done = true;
  put->promise_err = err;
  put_advance(put);
}

void put_promise_begin(struct object_put *put, enum put_state state) {
  promise_close(&put->promise);
  put->state = state;
  put->promise_done = false;
  put->promise =
      (struct promise){.o = put->o, .place = &put->place, .key = put->key, .done = put_promised};
  promise_start(&put->promise, put->promise_rounds++);
}

static void put_settled(void *arg, int err) {
  struct object_put *put = arg;
  put->settling = false;
  put->settle_err = err;
  put_unref_advance(put);
}

/* At the promised version; the promise is not needed any more. */
static void put_settle_begin(struct object_put *put, const struct row *row) {
  const struct promise *p = &put->promise;
  put->settling = true;
  put_ref(put);
  int err = settle_start(put->o, &put->place, put->key, row, &p->ver, 0, p->base.healthy,
                         put_settled, put);
  if (err < 0) {
    put->settling = false;
    put->settle_err = err;
    put->refs--;
  }
  promise_close(&put->promise);
}

bool put_promise_step(struct object_put *put) {
  if (!put->promise_done) return false;
  if (put->promise_err < 0) {
    put_fail(put, put->promise_err);
    return true;
  }
  const struct classification *base = &put->promise.base;
  int err = put_condition(put, base);
  if (err == 0) {
    struct version ver = put->promise.ver;
    put->result.over_marker = base->verdict != VERDICT_ABSENT && base->row.kind == ROW_TOMB;
    promise_close(&put->promise);
    put_accept_start(put, &ver);
  } else if (base->verdict == VERDICT_UNDETERMINED && !MUTANT(UNSETTLED_412)) {
    /* "False" would be a lie if the base were rolled back later: it is made chosen first. */
    put->settle_result = err;
    put->state = PUT_SETTLE;
    put_settle_begin(put, &base->row);
  } else {
    put_fail(put, err);
  }
  return true;
}

bool put_settle_step(struct object_put *put) {
  if (put->settling) return false;
  if (put->settle_err == 0)
    put_fail(put, put->settle_result);
  else if (put->settle_err != ERR_PROMISED)
    put_fail(put, ERR_UNAVAILABLE);
  else if (put->promise_rounds >= PUT_PROMISE_ROUNDS)
    put_fail(put, ERR_CONFLICT);
  else
    put_promise_begin(put, PUT_PROMISE);
  return true;
}

/* ---- recovery ---- */

static void put_recover_chosen(struct object_put *put) {
  const struct classification *c = &put->promise.base;
  uint32_t missing = put->promise.gather->replied & ~(c->acked & c->healthy);
  put->result.ver = c->row.ver;
  put->result.missing = missing;
  commit_send(put->o, &put->place, put->key, &c->row.ver, missing, c->acked & ~c->flagged);
  put_answer(put, 0);
}

/* The floor of some drive is at or above our version: it may have been chosen, deleted and purged.
 */
static bool put_recover_purged(const struct object_put *put) {
  const struct gather *g = put->promise.gather;
  slots_foreach(i, g->replied) {
    if (version_cmp(&g->replies->rows[i].floor, &put->accept.row.ver) >= 0) return true;
  }
  return false;
}

/* W drives promised above our version, and what may be chosen is older: ours is not chosen. That
 * alone is no failure: another resolver, which sees other drives, may hold it for possible and
 * propose it again, at a version above this promise. Only a row that W drives accept at the
 * promised version ends that: our own, which is the success; or, where the drives have no room for
 * ours, the base again (a marker where there is none). */
static void put_recover_dead(struct object_put *put) {
  const struct promise *p = &put->promise;
  if (put_recover_purged(put) || (put->conditional && put_condition(put, &p->base) < 0)) {
    put_answer(put, ERR_UNKNOWN_OUTCOME);
  } else if (put->recover_err == 0) {
    struct version ver = p->ver;
    promise_close(&put->promise);
    put_accept_start(put, &ver);
  } else {
    struct row marker = {.kind = ROW_TOMB, .profile = put->profile, .mtime_ms = put->mtime_ms};
    env_random(put->env, marker.op_id.bytes, sizeof marker.op_id.bytes);
    put->recover_settled = true;
    put_settle_begin(put, p->base.verdict == VERDICT_ABSENT ? &marker : &p->base.row);
  }
}

static void put_recover_settled(struct object_put *put) {
  put->recover_settled = false;
  if (put->settle_err == 0 && put->recover_err < 0)
    put_fail(put, put->recover_err); /* the base stands; ours never was */
  else if (put->settle_err == 0)
    put_answer(put, 0);
  else if (put->settle_err == ERR_PROMISED && put->recover_rounds < PUT_RECOVER_ROUNDS)
    put_recover_begin(put, put->recover_err);
  else
    put_answer(put, ERR_UNKNOWN_OUTCOME);
}

void put_recover_begin(struct object_put *put, int err) {
  put->recover_rounds++;
  put->recover_err = err;
  put_promise_begin(put, PUT_RECOVER);
}

bool put_recover_step(struct object_put *put) {
  const struct classification *c = &put->promise.base;
  if (!put->promise_done || put->settling) return false;
  if (put->recover_settled) {
    put_recover_settled(put);
    return true;
  }
  if (put->promise_err < 0) {
    put_answer(put, ERR_UNKNOWN_OUTCOME);
    return true;
  }
  if (put->accept.pending && !put->recover_waited) { /* the accept round is used again */
    if (!put->timer.armed) env_timer_start(put->env, &put->timer, OBJECT_SUSPECT_MS);
    return false;
  }
  bool absent = c->verdict == VERDICT_ABSENT;
  if (!absent && id128_eq(&c->row.op_id, &put->op_id)) {
    put->recover_err = 0;
    if (c->verdict == VERDICT_CHOSEN) {
      put_recover_chosen(put);
    } else {
      put->recover_settled = true;
      put->result.ver = put->promise.ver;
      put_settle_begin(put, &c->row);
    }
  } else if (!put->accept.pending &&
             (absent || version_cmp(&c->row.ver, &put->accept.row.ver) < 0)) {
    put_recover_dead(put);
  } else {
    put_answer(put, ERR_UNKNOWN_OUTCOME);
  }
  return true;
}
