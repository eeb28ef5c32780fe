/* env_uv.c: struct env over one libuv loop.
 *
 *   timers    one uv_timer over a heap; those due at once by the check handle
 *   work      small: `soon`, run by the check handle after this turn's I/O (an idle handle keeps
 *             the poll from blocking while something waits); large: CPU lane -> `ran` -> mailbox
 *   turn end  by the check handle, behind all that
 *   buffers   buf_pool; its callbacks are delivered from the check handle too */
#include "storage/net/env_uv.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>

#include "config/err.h"
#include "config/log.h"
#include "storage/net/buf_pool.h"
#include "storage/net/cpu_lanes.h"
#include "storage/net/timer_heap.h"

#define ENV_RANDOM_BATCH_BYTES 1024
/* Deferred work that defers more work is served in the same turn, but only this often. */
#define ENV_SOON_ROUNDS_MAX 8

struct env_uv {
  struct env env;
  uv_loop_t *loop;
  struct cpu_lanes *lanes;
  struct mailbox *box;
  struct timer_heap timers;
  uint64_t timer_due_ms; /* of the armed uv_timer; UINT64_MAX: not armed */
  uv_timer_t timer;
  uv_check_t check;
  uv_idle_t idle;
  struct list soon;  /* env_work */
  struct list turns; /* env_uv_turn */
  bool timers_due;   /* the first timer is due: the check handle fires it */
  bool deferred;     /* the idle handle runs */
  unsigned handles;  /* of ours, open */
  struct buf_pool pool;
  uint64_t works_lane, works_loop;
  pthread_mutex_t ran_lock;
  struct list ran; /* env_work that a lane has run */
  struct mail ran_mail;
  bool ran_posted;
  size_t random_left;
  uint8_t random[ENV_RANDOM_BATCH_BYTES];
};

static struct env_uv *env_of(struct env *env) {
  return container_of(env, struct env_uv, env);
}

static void count(uint64_t *counter) {
  __atomic_store_n(counter, *counter + 1, __ATOMIC_RELAXED);
}

static uint64_t env_uv_now_ms(struct env *env) {
  (void)env;
  return uv_hrtime() / 1000000;
}

static uint64_t env_uv_wall_ms(struct env *env) {
  (void)env;
  return wall_clock_ms();
}

static void random_fill(void *dst, size_t len) {
  uint8_t *at = dst;
  while (len > 0) {
    ssize_t n = getrandom(at, len, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) abort(); /* without randomness no id is unique: nothing can go on */
    at += n;
    len -= (size_t)n;
  }
}

static void env_uv_random(struct env *env, void *dst, size_t len) {
  struct env_uv *e = env_of(env);
  if (len > sizeof e->random) {
    random_fill(dst, len);
    return;
  }
  if (len > e->random_left) {
    random_fill(e->random, sizeof e->random);
    e->random_left = sizeof e->random;
  }
  e->random_left -= len;
  memcpy(dst, e->random + e->random_left, len);
  memset(e->random + e->random_left, 0, len); /* a byte is handed out once */
}

static void idle_turn(uv_idle_t *idle) {
  (void)idle;
}

/* Something waits for the check handle. */
static void defer(struct env_uv *e) {
  if (e->deferred) return;
  e->deferred = true;
  uv_idle_start(&e->idle, idle_turn);
}

static void timers_arm(struct env_uv *e);

/* Fires what was armed before and is due. A timer that re-arms itself at 0 comes in the next turn.
 */
static void timers_fire(struct env_uv *e) {
  uint64_t now = env_uv_now_ms(&e->env), sequence_end = e->timers.sequence;
  e->timer_due_ms = 0; /* callbacks need not arm: it is done below */
  for (struct env_timer *t; (t = timer_heap_first(&e->timers));) {
    if (t->due_ms > now || timer_heap_sequence(t) >= sequence_end) break;
    timer_heap_remove(&e->timers, t);
    t->armed = false;
    t->fire(t);
  }
  e->timer_due_ms = UINT64_MAX;
  timers_arm(e);
}

static void timer_expired(uv_timer_t *handle) {
  timers_fire(container_of(handle, struct env_uv, timer));
}

/* What is due at once goes by the check handle: libuv runs a timer that is re-armed at 0 again in
 * the same turn, for ever. */
static void timers_arm(struct env_uv *e) {
  struct env_timer *first = timer_heap_first(&e->timers);
  if (!first || first->due_ms >= e->timer_due_ms) return; /* a turn too many is cheap */
  uint64_t now = env_uv_now_ms(&e->env);
  e->timer_due_ms = first->due_ms;
  if (first->due_ms <= now) {
    e->timers_due = true;
    defer(e);
    return;
  }
  uv_update_time(e->loop); /* the loop's cached time would end the delay early */
  uv_timer_start(&e->timer, timer_expired, first->due_ms - now, 0);
}

static void env_uv_timer_stop(struct env *env, struct env_timer *t) {
  if (!t->armed) return;
  timer_heap_remove(&env_of(env)->timers, t);
  t->armed = false;
}

static void env_uv_timer_start(struct env *env, struct env_timer *t, uint64_t delay_ms) {
  struct env_uv *e = env_of(env);
  env_uv_timer_stop(env, t);
  uint64_t due;
  if (__builtin_add_overflow(env_uv_now_ms(env), delay_ms, &due)) due = UINT64_MAX - 1;
  t->due_ms = due;
  t->armed = true;
  timer_heap_add(&e->timers, t);
  timers_arm(e);
}

static void pool_kick(struct buf_pool *p) {
  defer(container_of(p, struct env_uv, pool));
}

static void run_deferred(uv_check_t *check) {
  struct env_uv *e = container_of(check, struct env_uv, check);
  if (e->timers_due) {
    e->timers_due = false;
    timers_fire(e);
  }
  for (int i = 0; i < ENV_SOON_ROUNDS_MAX; i++) {
    if (list_empty(&e->soon) && list_empty(&e->pool.ready)) break;
    buf_pool_deliver(&e->pool);
    struct list batch;
    list_init(&batch);
    list_splice_back(&batch, &e->soon);
    for (struct list *l; (l = list_pop_front(&batch));) {
      struct env_work *w = container_of(l, struct env_work, link);
      w->run(w);
      w->done(w);
    }
  }
  for (struct list *l; (l = list_pop_front(&e->turns));) {
    struct env_uv_turn *t = container_of(l, struct env_uv_turn, link);
    t->run(t);
  }
  if (e->deferred && !e->timers_due && list_empty(&e->soon) && list_empty(&e->pool.ready)) {
    e->deferred = false;
    uv_idle_stop(&e->idle);
  }
}

void env_uv_turn_end(struct env_uv *e, struct env_uv_turn *t) {
  if (list_linked(&t->link)) return;
  list_push_back(&e->turns, &t->link);
  defer(e);
}

static void env_uv_work(struct env *env, struct env_work *w) {
  struct env_uv *e = env_of(env);
  w->env = env;
  if (w->cost_bytes <= ENV_INLINE_WORK_BYTES || !e->lanes) {
    count(&e->works_loop);
    list_push_back(&e->soon, &w->link);
    defer(e);
  } else {
    count(&e->works_lane);
    cpu_lanes_submit(e->lanes, w);
  }
}

/* The post is inside the lock: the loop that finishes this work may close the env right after. */
void env_uv_work_ran(struct env_work *w) {
  struct env_uv *e = env_of(w->env);
  pthread_mutex_lock(&e->ran_lock);
  list_push_back(&e->ran, &w->link);
  if (!e->ran_posted) {
    e->ran_posted = true;
    mailbox_post(e->box, &e->ran_mail);
  }
  pthread_mutex_unlock(&e->ran_lock);
}

static void works_deliver(struct mail *m) {
  struct env_uv *e = container_of(m, struct env_uv, ran_mail);
  struct list batch;
  list_init(&batch);
  pthread_mutex_lock(&e->ran_lock);
  e->ran_posted = false;
  list_splice_back(&batch, &e->ran);
  pthread_mutex_unlock(&e->ran_lock);
  for (struct list *l; (l = list_pop_front(&batch));) {
    struct env_work *w = container_of(l, struct env_work, link);
    w->done(w);
  }
}

static bool env_uv_buf_get(struct env *env, struct env_buf_wait *w) {
  return buf_pool_get(&env_of(env)->pool, w);
}
static bool env_uv_buf_try(struct env *env, size_t size, struct env_buf *ret_buf) {
  return buf_pool_try(&env_of(env)->pool, size, ret_buf);
}
static void env_uv_buf_cancel(struct env *env, struct env_buf_wait *w) {
  buf_pool_cancel(&env_of(env)->pool, w);
}
static void env_uv_buf_put(struct env *env, struct env_buf *buf) {
  buf_pool_put(&env_of(env)->pool, buf);
}

static const struct env_ops env_uv_ops = {
    .now_ms = env_uv_now_ms,
    .wall_ms = env_uv_wall_ms,
    .random = env_uv_random,
    .timer_start = env_uv_timer_start,
    .timer_stop = env_uv_timer_stop,
    .work = env_uv_work,
    .buf_get = env_uv_buf_get,
    .buf_try = env_uv_buf_try,
    .buf_cancel = env_uv_buf_cancel,
    .buf_put = env_uv_buf_put,
};

int env_uv_open(uv_loop_t *loop, struct cpu_lanes *lanes, uint64_t buffer_bytes,
                struct env_uv **ret_env) {
  struct env_uv *e = calloc(1, sizeof *e);
  if (!e) return -ENOMEM;
  int err = mailbox_open(loop, &e->box);
  if (err < 0) {
    free(e);
    return err;
  }
  e->env.ops = &env_uv_ops;
  e->loop = loop;
  e->lanes = lanes;
  e->timer_due_ms = UINT64_MAX;
  uv_timer_init(loop, &e->timer);
  uv_check_init(loop, &e->check);
  uv_idle_init(loop, &e->idle);
  e->handles = 3;
  uv_check_start(&e->check, run_deferred);
  uv_unref((uv_handle_t *)&e->check); /* the mailbox keeps the loop alive */
  list_init(&e->soon);
  list_init(&e->turns);
  list_init(&e->ran);
  pthread_mutex_init(&e->ran_lock, NULL);
  e->ran_mail.deliver = works_deliver;
  buf_pool_init(&e->pool, &e->env, buffer_bytes, pool_kick);
  *ret_env = e;
  return 0;
}

struct env *env_uv_env(struct env_uv *e) {
  return &e->env;
}
struct mailbox *env_uv_mailbox(struct env_uv *e) {
  return e->box;
}
uv_loop_t *env_uv_loop(struct env_uv *e) {
  return e->loop;
}

static void handle_closed(uv_handle_t *handle) {
  struct env_uv *e = handle->data;
  if (--e->handles > 0) return;
  pthread_mutex_destroy(&e->ran_lock);
  free(e);
}

void env_uv_close(struct env_uv *e) {
  if (!e) return;
  buf_pool_clear(&e->pool);
  assert(list_empty(&e->soon));
  assert(list_empty(&e->turns));
  assert(!timer_heap_first(&e->timers));
  pthread_mutex_lock(&e->ran_lock);
  assert(list_empty(&e->ran));
  mailbox_close(e->box);
  pthread_mutex_unlock(&e->ran_lock);
  e->timer.data = e->check.data = e->idle.data = e;
  uv_close((uv_handle_t *)&e->timer, handle_closed);
  uv_close((uv_handle_t *)&e->check, handle_closed);
  uv_close((uv_handle_t *)&e->idle, handle_closed);
}

void env_uv_stats_get(const struct env_uv *e, struct env_uv_stats *ret) {
  *ret = (struct env_uv_stats){
      .buffer_bytes = __atomic_load_n(&e->pool.held, __ATOMIC_RELAXED),
      .buffer_bytes_max = __atomic_load_n(&e->pool.held_max, __ATOMIC_RELAXED),
      .buffer_waits = __atomic_load_n(&e->pool.waits, __ATOMIC_RELAXED),
      .buffer_timeouts = __atomic_load_n(&e->pool.timeouts, __ATOMIC_RELAXED),
      .works_lane = __atomic_load_n(&e->works_lane, __ATOMIC_RELAXED),
      .works_loop = __atomic_load_n(&e->works_loop, __ATOMIC_RELAXED),
  };
}
