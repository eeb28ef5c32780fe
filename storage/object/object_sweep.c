/* object_sweep.c: finds rows that nobody decided, and has them resolved (PROTOCOL.md 6).
 *
 *   every SWEEP_PERIOD_MS (and jitter), for each local drive, a page at a time:
 *     UNDECIDED -> keys -> object_resolve, SWEEP_RESOLVES_MAX at a time -> next page, next drive
 *
 * A key stands on N drives and all of their hosts find it: the host of the first slot whose drive
 * is up acts at once, the others when it stays undecided for SWEEP_ANYBODY_MS. A key that cannot be
 * decided now is passed by and found again a round later. */
#include <errno.h>
#include <stdlib.h>

#include "config/err.h"
#include "storage/object/object.h"

#define SWEEP_FIRST_MS 1000 /* the peers' connections come up first */
#define SWEEP_PERIOD_MS 2000
#define SWEEP_AGE_MS 5000 /* PROTOCOL.md 6 */
#define SWEEP_ANYBODY_MS 15000
#define SWEEP_KEYS_MAX 64
#define SWEEP_RESOLVES_MAX 4

struct sweep_key {
  struct id128 bucket;
  unsigned pool;
  uint8_t *key;
  size_t len;
};

struct object_sweep {
  struct objects *o;
  struct peer_call call;
  bool asking;
  bool sweeping;   /* a round goes on; else the timer waits for the next */
  unsigned drive;  /* index of the drive whose page this is */
  uint8_t *cursor; /* of the next page; NULL: the first */
  size_t cursor_len;
  bool page_end; /* no page follows */
  bool first_round;
  uint64_t started_wall_ms;
  struct sweep_key keys[SWEEP_KEYS_MAX];
  unsigned key_count, key_next;
  unsigned resolving;
  struct env_timer timer;
  bool stopping;
  void (*stop_cb)(void *arg);
  void *stop_arg;
};

static void sweep_forget_keys(struct object_sweep *w) {
  for (unsigned i = 0; i < w->key_count; i++) free(w->keys[i].key);
  w->key_count = w->key_next = 0;
}

static void sweep_forget_cursor(struct object_sweep *w) {
  free(TAKE(w->cursor));
  w->cursor_len = 0;
}

/* Whether this host should resolve it now. The stamp of a version is its coordinator's clock at the
 * time, near enough to tell 5 s from 15 s; safety does not hang on it. */
static bool sweep_is_ours(const struct object_sweep *w, const struct peer_key_entry *e) {
  uint64_t minted_ms = e->ver.hlc >> VERSION_HLC_SHIFT;
  /* The first round takes what an earlier run of this host left, not PUTs that go on now. */
  if (w->first_round) return minted_ms < w->started_wall_ms;
  if (minted_ms + SWEEP_ANYBODY_MS < env_wall_ms(w->o->env)) return true;
  struct key_place place = objects_place(w->o, e->pool, &e->bucket, e->key);
  for (unsigned i = 0; i < place.n; i++)
    if (place.peers[i]->up && !place.peers[i]->suspect) return place.peers[i]->local;
  return true;
}

static void sweep_note(struct object_sweep *w, const struct peer_key_entry *e) {
  if (e->pool >= w->o->map->pool_count || w->key_count == SWEEP_KEYS_MAX) return;
  if (!sweep_is_ours(w, e)) return;
  uint8_t *copy = malloc(e->key.len);
  if (!copy) return; /* a later round finds it again */
  memcpy(copy, e->key.data, e->key.len);
  w->keys[w->key_count++] =
      (struct sweep_key){.bucket = e->bucket, .pool = e->pool, .key = copy, .len = e->key.len};
}

static void sweep_read_page(struct object_sweep *w, struct slice body) {
  struct byte_reader r = byte_reader_of(body);
  struct peer_key_entry e;
  int err;
  while ((err = peer_keys_next(&r, &e)) == 1) sweep_note(w, &e);
  struct slice cursor = err == 0 ? peer_keys_cursor(&r) : (struct slice){0};
  if (err < 0 || r.failed || cursor.len == 0) return;
  w->cursor = malloc(cursor.len);
  if (!w->cursor) return;
  memcpy(w->cursor, cursor.data, cursor.len);
  w->cursor_len = cursor.len;
  w->page_end = false;
}

static void sweep_advance(struct object_sweep *w);

static void sweep_resolved(void *arg, int err) {
  struct object_sweep *w = arg;
  w->resolving--; /* whatever came of it: the next round looks again */
  sweep_advance(w);
}

static void sweep_answer(struct peer_call *call) {
  struct object_sweep *w = container_of(call, struct object_sweep, call);
  w->asking = false;
  w->page_end = true;
  sweep_forget_cursor(w);
  if (call->reply.err == 0 && !w->stopping)
    sweep_read_page(w, slice_of(call->reply.body, call->reply.body_len));
  peer_call_release(call);
  sweep_advance(w);
}

static void sweep_ask(struct object_sweep *w) {
  w->call = (struct peer_call){.done = sweep_answer};
  w->call.req = (struct peer_request){.verb = PEER_UNDECIDED,
                                      .epoch = w->o->placement->epoch,
                                      .timeout_ms = w->o->peer_timeout_ms,
                                      .from = slice_of(w->cursor, w->cursor_len),
                                      .limit = SWEEP_KEYS_MAX,
                                      .age_ms = w->first_round ? 0 : SWEEP_AGE_MS};
  w->asking = true;
  peer_send(w->o->peers[w->drive], &w->call);
}

static void sweep_resolve_some(struct object_sweep *w) {
  while (w->resolving < SWEEP_RESOLVES_MAX && w->key_next < w->key_count) {
    const struct sweep_key *k = &w->keys[w->key_next++];
    int err = object_resolve_start(w->o, k->pool, &k->bucket, slice_of(k->key, k->len),
                                   sweep_resolved, w);
    if (err == 0) w->resolving++;
  }
}

static void sweep_wait(struct object_sweep *w) {
  uint64_t jitter = 0;
  env_random(w->o->env, &jitter, sizeof jitter);
  w->sweeping = false;
  w->first_round = false;
  env_timer_start(w->o->env, &w->timer, SWEEP_PERIOD_MS + jitter % (SWEEP_PERIOD_MS / 2));
}

static void sweep_end(struct object_sweep *w) {
  void (*cb)(void *arg) = w->stop_cb;
  void *arg = w->stop_arg;
  env_timer_stop(w->o->env, &w->timer);
  sweep_forget_keys(w);
  sweep_forget_cursor(w);
  w->o->running--;
  free(w);
  if (cb) cb(arg);
}

static void sweep_advance(struct object_sweep *w) {
  if (w->asking) return;
  if (w->stopping) {
    if (!w->resolving) sweep_end(w);
    return;
  }
  sweep_resolve_some(w);
  if (w->resolving || !w->sweeping) return;
  sweep_forget_keys(w);
  const struct cluster_map *map = w->o->map;
  if (w->page_end) w->drive++;
  while (w->drive < map->drive_count && !w->o->peers[w->drive]->local) w->drive++;
  w->page_end = false;
  if (w->drive < map->drive_count)
    sweep_ask(w);
  else
    sweep_wait(w);
}

static void sweep_timer(struct env_timer *t) {
  struct object_sweep *w = container_of(t, struct object_sweep, timer);
  if (!w->stopping && !w->sweeping) {
    w->sweeping = true;
    w->drive = 0;
    w->page_end = false;
  }
  sweep_advance(w);
}

int object_sweep_start(struct objects *o, struct object_sweep **ret_sweep) {
  struct object_sweep *w = calloc(1, sizeof *w);
  if (!w) return -ENOMEM;
  w->o = o;
  w->first_round = true;
  w->started_wall_ms = env_wall_ms(o->env);
  w->timer.fire = sweep_timer;
  o->running++;
  env_timer_start(o->env, &w->timer, SWEEP_FIRST_MS);
  *ret_sweep = w;
  return 0;
}

void object_sweep_stop(struct object_sweep *sweep, void (*cb)(void *arg), void *arg) {
  sweep->stopping = true;
  sweep->stop_cb = cb;
  sweep->stop_arg = arg;
  if (sweep->asking) peer_cancel(&sweep->call);
  env_timer_start(sweep->o->env, &sweep->timer, 0); /* cb never runs inside this call */
}
