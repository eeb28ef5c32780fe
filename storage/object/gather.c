/* gather.c: one round of READ or PROMISE.
 *
 * Memory: the replies (about 6 KiB a slot) are touched only where a drive answered. A gather is
 * freed when it is closed, no call is pending and no step is running: `holds` counts those. */
#include "storage/object/gather.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "config/err.h"

struct gather_call {
  struct peer_call call;
  struct gather *gather;
};

static void gather_free(struct gather *g) {
  for (unsigned i = 0; i < g->place.n; i++) peer_call_release(&g->calls[i].call);
  g->o->running--;
  free((void *)(uintptr_t)g->key.data);
  free(g->replies);
  free(g->calls);
  free(g);
}

static void gather_drop(struct gather *g) {
  assert(g->holds > 0);
  if (--g->holds == 0) gather_free(g);
}

/* The caller has a hold: the step may close the gather. */
static void gather_run_step(struct gather *g) {
  if (!g->stopped) g->args.step(g->args.arg, g);
}

static void gather_note_rows(struct gather *g, unsigned slot) {
  const struct peer_reply *reply = &g->calls[slot].call.reply;
  struct peer_rows *rows = &g->replies->rows[slot];
  int err = reply->err;
  if (err == 0)
    err = peer_rows_decode(slice_of(reply->body, reply->body_len), &g->place.bucket, g->key, rows);
  g->err[slot] = err;
  if (err == 0) {
    g->replied |= 1u << slot;
    g->replies->replied[slot] = true;
    objects_saw(g->o, &rows->promised);
    objects_saw(g->o, &rows->floor);
    if (rows->count > 0) objects_saw(g->o, &rows->rows[0].row.ver);
    return;
  }
  if (err == ERR_PROMISED || err == ERR_FLOOR || err == ERR_CLOCK) {
    g->nacked |= 1u << slot;
    version_raise(&g->nack_ver, &reply->ver);
    objects_saw(g->o, &reply->ver);
    return;
  }
  g->failed |= 1u << slot;
}

static void gather_reply(struct peer_call *call) {
  struct gather_call *gc = container_of(call, struct gather_call, call);
  struct gather *g = gc->gather;
  unsigned slot = call->req.slot;
  g->pending &= ~(1u << slot);
  if (!g->stopped) {
    gather_note_rows(g, slot);
    if (g->failed >> slot & 1) gather_ask_more(g, gather_pick(&g->place, 1, g->spare));
    gather_run_step(g);
  }
  gather_drop(g);
}

static void gather_hedge(struct env_timer *timer) {
  struct gather *g = container_of(timer, struct gather, hedge);
  if (g->spare == 0) return;
  STAT_ADD(g->o->stats.hedges, 1);
  g->holds++;
  gather_ask_more(g, g->spare);
  gather_run_step(g);
  gather_drop(g);
}

static void gather_ask(struct gather *g, unsigned slot) {
  struct gather_call *gc = &g->calls[slot];
  gc->gather = g;
  gc->call.done = gather_reply;
  objects_request(g->o, &g->place, slot, g->key, g->args.verb, &gc->call);
  gc->call.req.ver = g->args.ver;
  if (g->args.want_inline >> slot & 1) gc->call.req.flags |= PEER_WANT_INLINE;
  g->pending |= 1u << slot;
  g->holds++;
  peer_send(g->place.peers[slot], &gc->call);
}

void gather_ask_more(struct gather *g, uint32_t slots) {
  slots &= gather_all(&g->place) & ~g->asked;
  g->asked |= slots;
  g->spare &= ~slots;
  for (unsigned i = 0; i < g->place.n; i++)
    if (slots >> i & 1) gather_ask(g, i);
}

int gather_start(struct objects *o, const struct gather_args *args, struct gather **ret_gather) {
  assert((args->verb == PEER_READ || args->verb == PEER_PROMISE) && args->step);
  assert((args->ask & gather_all(args->place)) != 0 && args->key.len > 0);
  struct gather *g = calloc(1, sizeof *g);
  if (!g) return -ENOMEM;
  uint8_t *key = malloc(args->key.len);
  g->calls = calloc(args->place->n, sizeof *g->calls);
  g->replies = malloc(sizeof *g->replies); /* untouched pages cost nothing */
  if (!key || !g->calls || !g->replies) {
    free(key);
    free(g->calls);
    free(g->replies);
    free(g);
    return -ENOMEM;
  }
  memcpy(key, args->key.data, args->key.len);
  memset(g->replies->replied, 0, sizeof g->replies->replied);
  g->o = o;
  g->place = *args->place;
  g->key = slice_of(key, args->key.len);
  g->args = *args;
  g->args.place = &g->place;
  g->args.key = g->key;
  g->hedge.fire = gather_hedge;
  g->holds = 1; /* until gather_close */
  o->running++;
  g->spare = args->spare & ~args->ask & gather_all(&g->place);
  gather_ask_more(g, args->ask);
  if (args->hedge_ms && g->spare) env_timer_start(o->env, &g->hedge, args->hedge_ms);
  *ret_gather = g;
  return 0;
}

void gather_stop(struct gather *g) {
  if (g->stopped) return;
  g->stopped = true;
  env_timer_stop(g->o->env, &g->hedge);
  for (unsigned i = 0; i < g->place.n; i++)
    if (g->pending >> i & 1) peer_cancel(&g->calls[i].call);
}

void gather_close(struct gather *g) {
  if (!g || g->closed) return;
  gather_stop(g);
  g->closed = true;
  gather_drop(g);
}

uint32_t gather_pick(const struct key_place *place, unsigned count, uint32_t among) {
  uint32_t picked = 0;
  for (unsigned rank = 0; rank < 4; rank++)
    for (unsigned i = 0; i < place->n && count > 0; i++) {
      const struct peer *peer = place->peers[i];
      unsigned is = !peer->up ? 3 : peer->suspect ? 2 : place->slow >> i & 1;
      if (is != rank || !(among >> i & 1)) continue;
      picked |= 1u << i;
      count--;
    }
  return picked;
}
