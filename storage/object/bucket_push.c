/* bucket_push.c: see bucket_push.h. */
#include "storage/object/bucket_push.h"

#include <errno.h>
#include <stdlib.h>

#include "config/err.h"
#include "storage/object/bucket_cache.h"

struct push_call {
  struct peer_call call;
  struct bucket_push *push;
  uint16_t drive;
};

struct bucket_push {
  struct objects *o;
  struct bucket_row row;
  unsigned need;
  bucket_push_cb cb;
  void *arg;
  struct push_call *calls;
  unsigned pending;
  bool have[MAP_DRIVES_MAX];
  bool newer, reported;
  struct env_timer patience;
};

static void push_report(struct bucket_push *p, int err) {
  if (p->reported) return;
  p->reported = true;
  env_timer_stop(p->o->env, &p->patience);
  p->cb(p->arg, err, p->have);
}

static void push_impatient(struct env_timer *t) {
  push_report(container_of(t, struct bucket_push, patience), 0);
}

static void push_done(struct peer_call *call) {
  struct push_call *pc = container_of(call, struct push_call, call);
  struct bucket_push *p = pc->push;
  int err = call->reply.err;
  peer_call_release(call);
  p->pending--;
  p->have[pc->drive] = err == 0;
  if (err == ERR_PROMISED) p->newer = true;
  bool covered = placement_covered(p->o->placement, p->row.info.pool, p->have, p->need);
  if (p->newer)
    push_report(p, ERR_CONFLICT);
  else if (p->pending == 0)
    push_report(p, covered ? 0 : ERR_UNAVAILABLE);
  else if (covered && !p->reported && !p->patience.armed)
    env_timer_start(p->o->env, &p->patience, OBJECT_SUSPECT_MS);
  if (p->pending > 0) return;
  p->o->running--;
  free(p->calls);
  free(p);
}

int bucket_push_start(struct objects *o, const struct bucket_row *row, unsigned need,
                      bucket_push_cb cb, void *arg) {
  const struct map_pool *pool = &o->map->pools[row->info.pool];
  struct bucket_push *p = calloc(1, sizeof *p);
  if (!p) return -ENOMEM;
  p->calls = calloc(pool->drive_count, sizeof *p->calls);
  if (!p->calls) {
    free(p);
    return -ENOMEM;
  }
  p->o = o;
  p->row = *row;
  p->need = need;
  p->cb = cb;
  p->arg = arg;
  p->patience.fire = push_impatient;
  p->pending = pool->drive_count;
  o->running++;
  for (unsigned i = 0; i < pool->drive_count; i++) {
    struct push_call *c = &p->calls[i];
    c->push = p;
    c->drive = pool->drives[i];
    c->call.done = push_done;
    c->call.req = (struct peer_request){.verb = PEER_BUCKET,
                                        .pool = (uint8_t)row->info.pool,
                                        .epoch = o->placement->epoch,
                                        .timeout_ms = o->peer_timeout_ms,
                                        .bucket = row->info.uuid,
                                        .bucket_state = (uint8_t)row->info.state,
                                        .ver = row->ver};
    peer_send(o->peers[pool->drives[i]], &c->call);
  }
  return 0;
}

struct revive {
  struct objects *o;
  struct bucket_write write;
  struct bucket_row row;
};

static void revive_free(struct revive *r) {
  bucket_cache_revive_end(r->o->buckets);
  r->o->running--;
  free(r);
}

static void revive_written(void *arg, const struct object_put_result *result) {
  revive_free(arg); /* whatever it was: who reads the mark again tries again */
}

static void revive_pushed(void *arg, int err, const bool *have) {
  struct revive *r = arg;
  (void)have;
  r->write.row = r->row;
  r->write.row.revived = false;
  if (err == 0) err = bucket_write_start(r->o, &r->write, ROW_PUT, r->row.etag, revive_written, r);
  if (err < 0) revive_free(r);
}

void bucket_revive(struct objects *o, const struct bucket_row *row) {
  if (!bucket_cache_revive_begin(o->buckets)) return;
  struct revive *r = calloc(1, sizeof *r);
  if (!r) {
    bucket_cache_revive_end(o->buckets);
    return;
  }
  r->o = o;
  r->row = *row;
  o->running++;
  if (bucket_push_start(o, row, o->map->pools[row->info.pool].n, revive_pushed, r) < 0)
    revive_free(r);
}
