/* promise.c: see promise.h. */
#include "storage/object/promise.h"

#include "config/err.h"
#include "config/sim_mutant.h"
#include "storage/object/slots.h"

static void promise_end(struct promise *p, int err) {
  env_timer_stop(p->o->env, &p->timer);
  p->state = PROMISE_DONE;
  p->done(p, err);
}

static void promise_backoff(struct promise *p, unsigned doublings) {
  uint64_t span = (uint64_t)PROMISE_BACKOFF_MS << MIN(doublings, 6u), jitter = 0;
  env_random(p->o->env, &jitter, sizeof jitter);
  p->state = PROMISE_BACKOFF;
  env_timer_start(p->o->env, &p->timer, 1 + jitter % span);
}

/* W cannot be reached by this round any more. */
static void promise_lost(struct promise *p, const struct gather *g) {
  bool in_the_way = false, deleting = false;
  for (unsigned i = 0; i < p->place->n; i++) {
    in_the_way |= g->err[i] == ERR_PROMISED || g->err[i] == ERR_FLOOR;
    deleting |= g->err[i] == ERR_BUCKET_DELETING;
  }
  version_raise(&p->seen, &g->nack_ver);
  if (deleting) {
    promise_end(p, ERR_BUCKET_DELETING);
  } else if (!in_the_way) {
    promise_end(p, ERR_UNAVAILABLE);
  } else if (p->tries >= OBJECT_RESOLVE_TRIES) {
    promise_end(p, ERR_CONFLICT);
  } else {
    STAT_ADD(p->o->stats.resolve_retries, 1);
#ifdef KOFN_SIM_MUTANTS
    if (sim_mutant == MUTANT_STALE_ROUND && !p->stale) p->stale = TAKE(p->gather);
#endif
    gather_close(TAKE(p->gather));
    promise_backoff(p, p->tries);
  }
}

/* How long the drives beyond W are waited for: not at all where the verdict is final; a little
 * where one more reply may decide it; longer where without it the base cannot even be decoded. */
static uint64_t promise_patience_ms(const struct promise *p) {
  const struct classification *c = &p->base;
  if (c->verdict == VERDICT_TOO_FEW) return OBJECT_SUSPECT_MS;
  if (p->thorough) {
    slots_foreach(i, p->gather->pending) {
      if (!p->place->peers[i]->suspect) return OBJECT_SUSPECT_MS;
    }
  }
  if (c->verdict != VERDICT_UNDETERMINED) return 0;
  if (row_has_data(&c->row) && !codec_decodable(p->o->codecs[p->place->pool], c->healthy))
    return OBJECT_SUSPECT_MS;
  return OBJECT_UNDETERMINED_MS;
}

#ifdef KOFN_SIM_MUTANTS
/* STALE_ROUND: what drives said in the first try counts as if they had said it in this one. */
static const struct key_replies *promise_mixed(const struct promise *p, const struct gather *g,
                                               unsigned *granted) {
  static struct key_replies mixed;
  if (!p->stale) return g->replies;
  mixed = *g->replies;
  slots_foreach(i, p->stale->replied & ~g->replied) {
    mixed.replied[i] = true;
    mixed.rows[i] = p->stale->replies->rows[i];
    ++*granted;
  }
  return &mixed;
}
#endif

static void promise_step(void *arg, struct gather *g) {
  struct promise *p = arg;
  if (p->state != PROMISE_ASKING && p->state != PROMISE_WAITING) return;
  unsigned granted = slots_count(g->replied);
#ifdef KOFN_SIM_MUTANTS
  const struct key_replies *replies = promise_mixed(p, g, &granted);
#else
  const struct key_replies *replies = g->replies;
#endif
  if (granted + slots_count(g->pending) < p->place->w) {
    promise_lost(p, g);
    return;
  }
  if (granted < p->place->w) return;
  uint64_t now = env_now_ms(p->o->env);
  if (p->state == PROMISE_ASKING) {
    p->state = PROMISE_WAITING;
    p->granted_ms = now;
  }
  classify(p->place, replies, &p->base);
  uint64_t patience = promise_patience_ms(p);
  uint64_t waited = now - p->granted_ms;
  if (g->pending && waited < patience) {
    env_timer_start(p->o->env, &p->timer, patience - waited);
    return;
  }
  promise_end(p, p->base.verdict == VERDICT_TOO_FEW ? ERR_UNAVAILABLE : 0);
}

static void promise_ask(struct promise *p) {
  p->tries++;
  p->base = (struct classification){0};
  p->ver = objects_mint(p->o, &p->seen);
  p->state = PROMISE_ASKING;
  struct gather_args args = {.place = p->place,
                             .key = p->key,
                             .verb = PEER_PROMISE,
                             .ver = p->ver,
                             .ask = gather_all(p->place),
                             .step = promise_step,
                             .arg = p};
  int err = gather_start(p->o, &args, &p->gather);
  if (err < 0) promise_end(p, err);
}

static void promise_timer(struct env_timer *t) {
  struct promise *p = container_of(t, struct promise, timer);
  if (p->state == PROMISE_BACKOFF)
    promise_ask(p);
  else if (p->state == PROMISE_WAITING)
    promise_step(p, p->gather);
}

void promise_start(struct promise *p, unsigned rounds) {
  p->timer.fire = promise_timer;
  if (rounds > 0) {
    promise_backoff(p, rounds);
    return;
  }
  p->state = PROMISE_BACKOFF;
  env_timer_start(p->o->env, &p->timer, 0);
}

void promise_close(struct promise *p) {
  if (!p->o) return;
  env_timer_stop(p->o->env, &p->timer);
  gather_close(TAKE(p->gather));
#ifdef KOFN_SIM_MUTANTS
  gather_close(TAKE(p->stale));
#endif
  p->state = PROMISE_IDLE;
}
