/* toy_host.c: see toy_host.h. */
#include "tests/unit/net/toy_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "codec/crc32c.h"
#include "config/err.h"

#define TOY_POLL_MS 5

struct toy_unit {
  struct list link;
  struct id128 data_id;
  uint8_t slot;
  uint64_t number;
  uint32_t len, crc;
  uint8_t data[];
};

static void count(unsigned *counter, int by) {
  __atomic_add_fetch(counter, (unsigned)by, __ATOMIC_SEQ_CST);
}

unsigned toy_get(const unsigned *counter) {
  return __atomic_load_n(counter, __ATOMIC_SEQ_CST);
}

bool toy_wait(const unsigned *counter, unsigned value) {
  for (int i = 0; i < 10000; i++) {
    if (toy_get(counter) == value) return true;
    usleep(1000);
  }
  printf("counter is %u, not %u\n", toy_get(counter), value);
  return false;
}

void toy_hold(struct toy *t, bool hold) {
  __atomic_store_n(&t->hold, hold, __ATOMIC_SEQ_CST);
}

static struct toy_unit *unit_find(struct toy *t, const struct peer_request *req, uint64_t number) {
  list_foreach(l, &t->chunks) {
    struct toy_unit *u = container_of(l, struct toy_unit, link);
    if (u->number == number && u->slot == req->slot && id128_eq(&u->data_id, &req->data_id))
      return u;
  }
  return NULL;
}

static int toy_stage(struct toy *t, const struct peer_request *req) {
  for (unsigned i = 0; i < req->unit_count; i++) {
    const struct peer_unit *from = &req->units[i];
    if (unit_crc(&req->data_id, req->slot, req->unit_first + i, from->data, from->len) !=
        from->crc) {
      count(&t->counts.crc_errors, 1);
      return ERR_CORRUPT;
    }
    struct toy_unit *u = malloc(sizeof *u + from->len);
    CHECK(u);
    *u = (struct toy_unit){.data_id = req->data_id,
                           .slot = req->slot,
                           .number = req->unit_first + i,
                           .len = from->len,
                           .crc = from->crc};
    if (from->len) memcpy(u->data, from->data, from->len);
    list_push_back(&t->chunks, &u->link);
  }
  count(&t->counts.stages, 1);
  return 0;
}

static int toy_fetch(struct toy *t, struct peer_request *req) {
  for (unsigned i = 0; i < req->unit_count; i++) {
    struct toy_unit *u = unit_find(t, req, req->unit_first + i);
    if (!u || u->len > req->units[i].len) return ERR_NO_CHUNK;
    if (u->len) memcpy(req->units[i].data, u->data, u->len);
    req->units[i].len = u->len;
    req->units[i].crc = u->crc;
  }
  return 0;
}

static void toy_body(struct peer_call *call) {
  if (slice_eq(call->req.key, SLICE_LIT("big"))) {
    call->reply.body = malloc(TOY_BIG_BYTES);
    CHECK(call->reply.body);
    for (size_t i = 0; i < TOY_BIG_BYTES; i++) call->reply.body[i] = (uint8_t)(i * 7 + i / 256);
    call->reply.body_len = TOY_BIG_BYTES;
    return;
  }
  struct byte_writer w = {.max = PEER_BODY_BYTES_MAX};
  frame_put_request(&w, call->peer->drive, &call->req);
  CHECK(!w.failed);
  call->reply.body = w.data;
  call->reply.body_len = w.len;
}

static void toy_serve(struct toy *t, struct peer_call *call) {
  struct peer_request *req = &call->req;
  call->reply.err = 0;
  if (req->verb == PEER_STAGE) call->reply.err = toy_stage(t, req);
  if (req->verb == PEER_FETCH) call->reply.err = toy_fetch(t, req);
  if (req->verb == PEER_DROP) count(&t->counts.drops, 1);
  if (req->verb == PEER_ACCEPT) count(&t->counts.accepts, 1);
  if (slice_eq(req->key, SLICE_LIT("err"))) {
    call->reply.err = ERR_PROMISED;
    call->reply.ver = (struct version){7, 8};
  }
  if (slice_eq(req->key, SLICE_LIT("failed"))) call->reply.err = ERR_DRIVE_FAILED;
  if (call->reply.err == 0 && req->verb != PEER_FETCH) toy_body(call);
  count(&t->counts.served, 1);
}

static void toy_end(struct toy *t, struct peer_call *call) {
  list_remove(&call->link);
  count(&t->counts.in_flight, -1);
  call->done(call);
}

static void toy_turn(struct env_timer *timer) {
  struct toy *t = container_of(timer, struct toy, timer);
  bool hold = __atomic_load_n(&t->hold, __ATOMIC_SEQ_CST);
  list_foreach_safe(l, &t->calls) {
    struct peer_call *call = container_of(l, struct peer_call, link);
    if (call->state) { /* cancelled */
      call->reply.err = ERR_CANCELLED;
      count(&t->counts.cancelled, 1);
    } else if (hold) {
      continue;
    } else {
      toy_serve(t, call);
    }
    toy_end(t, call);
  }
  if (!list_empty(&t->calls)) env_timer_start(t->env, &t->timer, TOY_POLL_MS);
}

static void toy_send(struct peer *peer, struct peer_call *call) {
  struct toy *t = container_of(peer, struct toy, peer);
  call->state = 0;
  list_push_back(&t->calls, &call->link);
  count(&t->counts.in_flight, 1);
  unsigned now = toy_get(&t->counts.in_flight);
  if (now > toy_get(&t->counts.in_flight_max))
    __atomic_store_n(&t->counts.in_flight_max, now, __ATOMIC_SEQ_CST);
  if (!t->timer.armed) env_timer_start(t->env, &t->timer, 0);
}

static void toy_cancel(struct peer *peer, struct peer_call *call) {
  struct toy *t = container_of(peer, struct toy, peer);
  call->state = 1;
  env_timer_start(t->env, &t->timer, 0);
}

static const struct peer_ops toy_ops = {toy_send, toy_cancel};

/* ---- the node ---- */

static void server_stopped(void *arg) {
  struct toy_host *n = arg;
  __atomic_store_n(&n->stopped, true, __ATOMIC_SEQ_CST);
  uv_close((uv_handle_t *)&n->stop, NULL);
}

static void stop_asked(uv_async_t *async) {
  struct toy_host *n = async->data;
  chunk_server_stop(n->server, server_stopped, n);
}

static void *toy_host_main(void *arg) {
  struct toy_host *n = arg;
  CHECK(uv_loop_init(&n->loop) == 0);
  CHECK(cpu_lanes_start(1, &n->lanes) == 0);
  CHECK(env_uv_open(&n->loop, n->lanes, 16 << 20, &n->env) == 0);
  CHECK(uv_async_init(&n->loop, &n->stop, stop_asked) == 0);
  n->stop.data = n;
  for (unsigned i = 0; i < 4; i++) {
    struct toy *t = &n->toys[i];
    t->env = env_uv_env(n->env);
    t->peer = (struct peer){.ops = &toy_ops, .drive = (uint16_t)i, .local = true, .up = true};
    t->timer.fire = toy_turn;
    list_init(&t->calls);
    list_init(&t->chunks);
    bool ours = n->map.drives[i].host == n->self;
    n->local[i] = ours && !n->unusable[i] && !n->bootstrap ? &t->peer : NULL;
  }
  CHECK(chunk_server_start(n->env, &n->map, n->local, &n->policy.policy, n->address, &n->server) ==
        0);
  pthread_barrier_wait(&n->ready);
  while (!__atomic_load_n(&n->stopped, __ATOMIC_SEQ_CST)) uv_run(&n->loop, UV_RUN_ONCE);
  env_uv_close(n->env);
  uv_run(&n->loop, UV_RUN_DEFAULT);
  CHECK(uv_loop_close(&n->loop) == 0); /* no handle is left behind */
  cpu_lanes_stop(n->lanes);
  return NULL;
}

void toy_host_start(struct toy_host *n, unsigned self, const char *address) {
  n->self = self;
  if (address)
    snprintf(n->address, sizeof n->address, "%s", address);
  else
    bed_free_address(n->address);
  bed_map(&n->map, self, self == 0 ? n->address : NULL, self == 1 ? n->address : NULL);
  bed_policy_open(&n->policy, &n->map, n->secret ? n->secret : "s3cret");
  if (n->cluster_name) n->policy.cluster_name = n->cluster_name;
  if (n->canonical) n->policy.canonical = n->canonical;
  if (n->host_id) n->policy.host_id = n->host_id;
  memcpy(n->policy.unusable, n->unusable, sizeof n->unusable);
  n->stopped = false;
  CHECK(pthread_barrier_init(&n->ready, NULL, 2) == 0);
  CHECK(pthread_create(&n->thread, NULL, toy_host_main, n) == 0);
  pthread_barrier_wait(&n->ready);
}

void toy_host_stop_begin(struct toy_host *n) {
  uv_async_send(&n->stop);
}

void toy_host_stop(struct toy_host *n) {
  if (!__atomic_load_n(&n->stopped, __ATOMIC_SEQ_CST)) toy_host_stop_begin(n);
  pthread_join(n->thread, NULL);
  pthread_barrier_destroy(&n->ready);
  for (unsigned i = 0; i < 4; i++) {
    struct toy *t = &n->toys[i];
    CHECK(list_empty(&t->calls));
    for (struct list *l; (l = list_pop_front(&t->chunks));)
      free(container_of(l, struct toy_unit, link));
  }
}
