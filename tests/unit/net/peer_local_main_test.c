/* peer_local_main_test.c: a local peer over lanes that the test plays itself, on a thread of its
 * own; runs under TSan. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/err.h"
#include "storage/net/peer_local.h"

#define CHECK(cond)                                                      \
  do {                                                                   \
    if (!(cond)) {                                                       \
      fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #cond); \
      exit(1);                                                           \
    }                                                                    \
  } while (0)

/* The lanes of the test: jobs wait until the lane is opened. */
struct drive_lanes {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t wake;
  struct list queue;
  bool open, stop;
  int failed; /* what drive_failed says */
  unsigned jobs;
  bool warm; /* READs are answered without a lane; `here` counts them */
  unsigned here;
};

void lanes_submit_all(struct drive_lanes *lanes, struct list *jobs) {
  pthread_mutex_lock(&lanes->lock);
  list_splice_back(&lanes->queue, jobs);
  pthread_cond_signal(&lanes->wake);
  pthread_mutex_unlock(&lanes->lock);
}
bool lanes_read_here(struct drive_lanes *lanes, struct peer_request *req,
                     struct peer_reply *reply) {
  if (!lanes->warm) return false;
  CHECK(req->verb == PEER_READ);
  reply->ver.hlc = req->limit;
  lanes->here++;
  return true;
}
struct drive *lanes_drive(struct drive_lanes *lanes) {
  return (struct drive *)(void *)lanes;
}
bool drive_failed(const struct drive *d) {
  return __atomic_load_n(&((const struct drive_lanes *)(const void *)d)->failed, __ATOMIC_ACQUIRE);
}

static void *lane_main(void *arg) {
  struct drive_lanes *lanes = arg;
  pthread_mutex_lock(&lanes->lock);
  while (!lanes->stop) {
    struct list *l = lanes->open ? list_pop_front(&lanes->queue) : NULL;
    if (!l) {
      pthread_cond_wait(&lanes->wake, &lanes->lock);
      continue;
    }
    pthread_mutex_unlock(&lanes->lock);
    struct drive_job *job = container_of(l, struct drive_job, link);
    /* The reply tells which request it belongs to. */
    job->reply->err = drive_failed(lanes_drive(lanes)) ? ERR_DRIVE_FAILED : 0;
    job->reply->ver.hlc = job->req->limit;
    job->reply->body = malloc(8);
    job->reply->body_len = 8;
    lanes->jobs++;
    job->done(job);
    pthread_mutex_lock(&lanes->lock);
  }
  pthread_mutex_unlock(&lanes->lock);
  return NULL;
}

static void lanes_open(struct drive_lanes *lanes, bool open) {
  pthread_mutex_lock(&lanes->lock);
  lanes->open = open;
  pthread_cond_signal(&lanes->wake);
  pthread_mutex_unlock(&lanes->lock);
}

struct bed {
  uv_loop_t loop;
  struct env_uv *env;
  struct drive_lanes lanes;
  struct peer *peer;
  unsigned done, again;
};
static struct bed *bed;

static void bed_open(struct bed *b, bool in_service) {
  memset(b, 0, sizeof *b);
  bed = b;
  CHECK(uv_loop_init(&b->loop) == 0);
  CHECK(env_uv_open(&b->loop, NULL, 1 << 20, &b->env) == 0);
  pthread_mutex_init(&b->lanes.lock, NULL);
  pthread_cond_init(&b->lanes.wake, NULL);
  list_init(&b->lanes.queue);
  CHECK(pthread_create(&b->lanes.thread, NULL, lane_main, &b->lanes) == 0);
  CHECK(peer_local_new(b->env, 3, in_service ? &b->lanes : NULL, &b->peer) == 0);
  CHECK(b->peer->local && b->peer->drive == 3);
}

static void bed_close(struct bed *b) {
  pthread_mutex_lock(&b->lanes.lock);
  b->lanes.stop = true;
  pthread_cond_signal(&b->lanes.wake);
  pthread_mutex_unlock(&b->lanes.lock);
  CHECK(pthread_join(b->lanes.thread, NULL) == 0);
  peer_local_free(b->peer);
  env_uv_close(b->env);
  uv_run(&b->loop, UV_RUN_DEFAULT);
  CHECK(uv_loop_close(&b->loop) == 0);
}

struct ask {
  struct peer_call call;
  bool done;
};

static void ask_done(struct peer_call *call) {
  struct ask *a = container_of(call, struct ask, call);
  CHECK(!a->done);
  if (call->reply.err == 0) CHECK(call->reply.ver.hlc == call->req.limit);
  peer_call_release(call);
  if (bed->again > 0) { /* the embedded call is free again inside `done` */
    bed->again--;
    call->req.limit++;
    peer_send(bed->peer, call);
    return;
  }
  a->done = true;
  bed->done++;
}

static void ask_send(struct bed *b, struct ask *a, uint8_t verb, uint32_t mark) {
  *a = (struct ask){
      .call = {.req = {.verb = verb, .limit = mark, .timeout_ms = 1000}, .done = ask_done}};
  peer_send(b->peer, &a->call);
  CHECK(!a->done); /* never inside the call */
}

static void run_until_done(struct bed *b, unsigned count) {
  while (b->done < count) uv_run(&b->loop, UV_RUN_ONCE);
}

static void test_many_calls(void) {
  enum { CALLS = 200, AGAIN = 3000 };
  static struct bed b;
  bed_open(&b, true);
  CHECK(b.peer->up);
  lanes_open(&b.lanes, true);
  b.again = AGAIN;
  static struct ask asks[CALLS];
  for (unsigned i = 0; i < CALLS; i++)
    ask_send(&b, &asks[i], i % 2 ? PEER_READ : PEER_COMMIT, i * 10000);
  run_until_done(&b, CALLS);
  CHECK(b.lanes.jobs == CALLS + AGAIN);
  CHECK(b.peer->latency_us > 0);
  CHECK(b.peer->up && !b.peer->suspect);
  bed_close(&b);
  printf("ok peer_local: %d calls, each answered once with its own reply\n", CALLS + AGAIN);
}

static void test_not_in_service(void) {
  static struct bed b;
  bed_open(&b, false);
  CHECK(!b.peer->up);
  struct ask a, c;
  ask_send(&b, &a, PEER_READ, 1);
  ask_send(&b, &c, PEER_ACCEPT, 2);
  run_until_done(&b, 2);
  CHECK(a.call.reply.err == ERR_DRIVE_FAILED && c.call.reply.err == ERR_DRIVE_FAILED);
  bed_close(&b);
  printf("ok peer_local: a drive that is not in service answers ERR_DRIVE_FAILED\n");
}

static void test_fails_later(void) {
  static struct bed b;
  bed_open(&b, true);
  struct ask a, c;
  ask_send(&b, &a, PEER_READ, 1);
  CHECK(b.peer->up);
  __atomic_store_n(&b.lanes.failed, 1, __ATOMIC_RELEASE);
  lanes_open(&b.lanes, true);
  run_until_done(&b, 1);
  CHECK(a.call.reply.err == ERR_DRIVE_FAILED);
  CHECK(!b.peer->up);
  ask_send(&b, &c, PEER_READ, 2);
  run_until_done(&b, 2);
  CHECK(c.call.reply.err == ERR_DRIVE_FAILED);
  CHECK(b.lanes.jobs == 1); /* the second one did not bother the lanes */
  bed_close(&b);
  printf("ok peer_local: a drive that fails later is no longer up\n");
}

/* A stuck lane: suspect after a second; cancel does not end the call while the lane has its
 * buffers; an answer clears the suspicion. */
static void test_stuck(void) {
  static struct bed b;
  bed_open(&b, true);
  struct ask a;
  uint64_t start = env_now_ms(env_uv_env(b.env));
  ask_send(&b, &a, PEER_READ, 1);
  while (!b.peer->suspect) uv_run(&b.loop, UV_RUN_ONCE);
  CHECK(env_now_ms(env_uv_env(b.env)) >= start + 1000);
  peer_cancel(&a.call);
  peer_cancel(&a.call);
  uv_run(&b.loop, UV_RUN_NOWAIT);
  CHECK(!a.done);
  lanes_open(&b.lanes, true);
  run_until_done(&b, 1);
  CHECK(a.call.reply.err == 0);
  CHECK(!b.peer->suspect);
  bed_close(&b);
  printf("ok peer_local: a stuck drive becomes suspect and comes back\n");
}

/* READs of a warm drive need no lane, up to so many at once; nothing else goes that way, and
 * nothing at all once the drive has been silent for a while. */
static void test_warm(void) {
  enum { READS = 200, HERE = 128 };
  static struct bed b;
  bed_open(&b, true);
  b.lanes.warm = true;
  static struct ask asks[READS + 3];
  for (unsigned i = 0; i < READS; i++) ask_send(&b, &asks[i], PEER_READ, i);
  run_until_done(&b, HERE);
  CHECK(b.lanes.here == HERE && b.lanes.jobs == 0 && !asks[HERE].done);
  lanes_open(&b.lanes, true);
  run_until_done(&b, READS);
  CHECK(b.lanes.jobs == READS - HERE);
  CHECK(b.peer->latency_us > 0);

  lanes_open(&b.lanes, false);
  uint64_t start = env_now_ms(env_uv_env(b.env));
  while (env_now_ms(env_uv_env(b.env)) < start + 2) uv_run(&b.loop, UV_RUN_NOWAIT);
  ask_send(&b, &asks[READS], PEER_ACCEPT, 1);
  ask_send(&b, &asks[READS + 1], PEER_READ, 2);
  run_until_done(&b, READS + 1);
  CHECK(!asks[READS].done && asks[READS + 1].done && b.lanes.here == HERE + 1);
  start = env_now_ms(env_uv_env(b.env));
  while (env_now_ms(env_uv_env(b.env)) < start + 150) uv_run(&b.loop, UV_RUN_NOWAIT);
  ask_send(&b, &asks[READS + 2], PEER_READ, 3);
  for (unsigned i = 0; i < 5; i++) uv_run(&b.loop, UV_RUN_NOWAIT);
  CHECK(!asks[READS + 2].done && b.lanes.here == HERE + 1);
  lanes_open(&b.lanes, true);
  run_until_done(&b, READS + 3);
  bed_close(&b);
  printf("ok peer_local: READs of a warm drive without a lane, not of one that is silent\n");
}

int main(void) {
  test_warm();
  test_many_calls();
  test_not_in_service();
  test_fails_later();
  test_stuck();
  return 0;
}
