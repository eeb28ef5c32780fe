/* env_uv_test.c: timers, deferral and the buffer pool of env_uv on one loop. */
#include "storage/net/env_uv.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "config/err.h"
#include "storage/net/buf_pool.h"
#include "storage/net/timer_heap.h"

#define KIB 1024u

struct bed {
  uv_loop_t loop;
  struct env_uv *uv;
  struct env *env;
};

static void bed_open(struct bed *b, uint64_t buffer_bytes) {
  cr_assert_eq(uv_loop_init(&b->loop), 0);
  cr_assert_eq(env_uv_open(&b->loop, NULL, buffer_bytes, &b->uv), 0);
  b->env = env_uv_env(b->uv);
}

static void bed_close(struct bed *b) {
  env_uv_close(b->uv);
  uv_run(&b->loop, UV_RUN_DEFAULT);
  cr_assert_eq(uv_loop_close(&b->loop), 0, "a handle was left open");
}

static void run_until(struct bed *b, const bool *flag) {
  while (!*flag) uv_run(&b->loop, UV_RUN_ONCE);
}

/* The heap against a sorted array: random adds, removals and pops. */
Test(timer_heap, pops_in_order_of_due_then_arming) {
  enum { COUNT = 2000 };
  struct timer_heap heap = {0};
  struct env_timer *timers = calloc(COUNT, sizeof *timers);
  uint64_t last_due = 0, last_sequence = 0;
  unsigned in = 0, popped = 0;
  srand(7);
  for (unsigned i = 0; i < COUNT; i++) {
    timers[i].due_ms = (uint64_t)(rand() % 50);
    timers[i].armed = true;
    timer_heap_add(&heap, &timers[i]);
    in++;
    if (i % 3 == 0) {
      struct env_timer *victim = &timers[(unsigned)rand() % (i + 1)];
      if (victim->armed) {
        timer_heap_remove(&heap, victim);
        victim->armed = false;
        in--;
      }
    }
  }
  for (struct env_timer *t; (t = timer_heap_first(&heap)); popped++) {
    cr_assert(t->armed);
    cr_assert(t->due_ms > last_due || popped == 0 ||
              (t->due_ms == last_due && timer_heap_sequence(t) > last_sequence));
    last_due = t->due_ms;
    last_sequence = timer_heap_sequence(t);
    timer_heap_remove(&heap, t);
    t->armed = false;
  }
  cr_assert_eq(popped, in);
  free(timers);
}

struct probe {
  struct env_timer timer;
  struct env_work work;
  struct bed *bed;
  bool fired, ran, done;
  unsigned rounds;
  uint64_t at_ms;
};

static void probe_fire(struct env_timer *t) {
  struct probe *p = container_of(t, struct probe, timer);
  p->fired = true;
  p->at_ms = env_now_ms(p->bed->env);
}

Test(env_timer, is_deferred_and_not_early) {
  struct bed b;
  bed_open(&b, 1 << 20);
  struct probe now = {.timer.fire = probe_fire, .bed = &b}, later = now, stopped = now;
  uint64_t start = env_now_ms(b.env);
  env_timer_start(b.env, &later.timer, 20);
  env_timer_start(b.env, &stopped.timer, 5);
  env_timer_start(b.env, &now.timer, 0);
  cr_assert(!now.fired, "a timer fired inside env_timer_start");
  env_timer_stop(b.env, &stopped.timer);
  env_timer_stop(b.env, &stopped.timer);
  run_until(&b, &now.fired);
  run_until(&b, &later.fired);
  cr_assert_geq(later.at_ms, start + 20);
  cr_assert(!stopped.fired, "a stopped timer fired");
  bed_close(&b);
}

Test(env_timer, starting_an_armed_one_moves_it) {
  struct bed b;
  bed_open(&b, 1 << 20);
  struct probe moved = {.timer.fire = probe_fire, .bed = &b}, mark = moved;
  uint64_t start = env_now_ms(b.env);
  env_timer_start(b.env, &moved.timer, 1);
  env_timer_start(b.env, &moved.timer, 30);
  env_timer_start(b.env, &mark.timer, 10);
  run_until(&b, &mark.fired);
  run_until(&b, &moved.fired);
  cr_assert_geq(moved.at_ms, start + 30);
  bed_close(&b);
}

static void rearm_fire(struct env_timer *t) {
  struct probe *p = container_of(t, struct probe, timer);
  if (++p->rounds < 100) env_timer_start(p->bed->env, t, 0);
  if (p->rounds == 100) p->fired = true;
}

static void idle_count(uv_idle_t *h) {
  ++*(unsigned *)h->data;
}

Test(env_timer, re_arming_at_zero_lets_the_loop_turn) {
  struct bed b;
  bed_open(&b, 1 << 20);
  unsigned turns = 0;
  uv_idle_t idle;
  uv_idle_init(&b.loop, &idle);
  idle.data = &turns;
  uv_idle_start(&idle, idle_count);
  struct probe p = {.timer.fire = rearm_fire, .bed = &b};
  env_timer_start(b.env, &p.timer, 0);
  run_until(&b, &p.fired);
  cr_assert_geq(turns, 99, "only %u turns for 100 timers", turns);
  uv_close((uv_handle_t *)&idle, NULL);
  bed_close(&b);
}

static void stop_other_fire(struct env_timer *t) {
  struct probe *p = container_of(t, struct probe, timer);
  p->fired = true;
  env_timer_stop(p->bed->env, &p[1].timer); /* due in the very same turn */
}

Test(env_timer, one_due_timer_may_stop_another) {
  struct bed b;
  bed_open(&b, 1 << 20);
  struct probe p[3] = {{.timer.fire = stop_other_fire, .bed = &b},
                       {.timer.fire = probe_fire, .bed = &b},
                       {.timer.fire = probe_fire, .bed = &b}};
  for (int i = 0; i < 3; i++) env_timer_start(b.env, &p[i].timer, 0);
  run_until(&b, &p[2].fired);
  cr_assert(p[0].fired);
  cr_assert(!p[1].fired);
  bed_close(&b);
}

static void work_run(struct env_work *w) {
  container_of(w, struct probe, work)->ran = true;
}
static void work_done(struct env_work *w) {
  struct probe *p = container_of(w, struct probe, work);
  cr_assert(p->ran);
  p->done = true;
}

Test(env_work, small_work_is_deferred) {
  struct bed b;
  bed_open(&b, 1 << 20);
  struct probe p = {.work = {.run = work_run, .done = work_done, .cost_bytes = 100}, .bed = &b};
  env_work(b.env, &p.work);
  cr_assert(!p.ran, "work ran inside env_work");
  run_until(&b, &p.done);
  struct env_uv_stats stats;
  env_uv_stats_get(b.uv, &stats);
  cr_assert_eq(stats.works_loop, 1);
  cr_assert_eq(stats.works_lane, 0);
  bed_close(&b);
}

struct turn {
  struct env_uv_turn turn;
  struct env_uv *uv;
  unsigned runs, again;
  bool timer_first;
};

static bool turn_timer_fired;
static void turn_timer(struct env_timer *t) {
  (void)t;
  turn_timer_fired = true;
}

static void turn_run(struct env_uv_turn *t) {
  struct turn *turn = container_of(t, struct turn, turn);
  turn->runs++;
  turn->timer_first = turn_timer_fired;
  if (turn->again && turn->again--) env_uv_turn_end(turn->uv, t);
}

/* The loop does not wait for events while somebody waits for the end of its turn. */
Test(env_turn, ends_once_behind_what_was_due) {
  struct bed b;
  bed_open(&b, 64 * KIB);
  struct turn turn = {.turn.run = turn_run, .uv = b.uv};
  struct env_timer timer = {.fire = turn_timer};
  turn_timer_fired = false;
  env_timer_start(b.env, &timer, 0);
  env_uv_turn_end(b.uv, &turn.turn);
  env_uv_turn_end(b.uv, &turn.turn);
  cr_assert_eq(turn.runs, 0, "never inside the call");
  uv_run(&b.loop, UV_RUN_ONCE);
  cr_assert(turn.runs == 1 && turn.timer_first);
  turn.again = 2;
  env_uv_turn_end(b.uv, &turn.turn);
  while (turn.runs < 4) uv_run(&b.loop, UV_RUN_ONCE);
  uv_run(&b.loop, UV_RUN_NOWAIT);
  cr_assert_eq(turn.runs, 4);
  bed_close(&b);
}

Test(env_random, never_repeats_a_batch) {
  struct bed b;
  bed_open(&b, 1 << 20);
  uint8_t big[4096] = {0}, zero[16] = {0};
  struct id128 ids[500];
  env_random(b.env, big, sizeof big);
  cr_assert_neq(memcmp(big + sizeof big - 16, zero, 16), 0);
  for (unsigned i = 0; i < ARRAY_LEN(ids); i++) {
    env_random(b.env, &ids[i], sizeof ids[i]);
    cr_assert(!id128_is_zero(&ids[i]));
    for (unsigned j = 0; j < i; j++) cr_assert(!id128_eq(&ids[i], &ids[j]));
  }
  bed_close(&b);
}

struct waiter {
  struct env_buf_wait wait;
  struct bed *bed;
  int err, order;
  bool ready;
};
static int waiter_order;

static void waiter_ready(struct env_buf_wait *w, int err) {
  struct waiter *x = container_of(w, struct waiter, wait);
  cr_assert(!x->ready, "ready ran twice");
  x->ready = true;
  x->err = err;
  x->order = ++waiter_order;
  cr_assert_eq(err == 0, w->buf.data != NULL);
}

static struct waiter waiter_of(struct bed *b, size_t size, uint64_t wait_ms) {
  return (struct waiter){.wait = {.ready = waiter_ready, .size = size, .wait_ms = wait_ms},
                         .bed = b};
}

static struct env_buf take(struct bed *b, size_t size) {
  struct env_buf_wait wait = {.size = size};
  cr_assert(env_buf_get(b->env, &wait), "no buffer of %zu bytes", size);
  struct env_buf buf = wait.buf;
  cr_assert_eq((uintptr_t)buf.data % 4096, 0);
  cr_assert_eq(buf.size, size);
  memset(buf.data, 0xa5, size);
  return buf;
}

Test(env_buf, the_budget_is_never_exceeded_and_waiters_are_served_in_order) {
  struct bed b;
  bed_open(&b, 256 * KIB);
  struct env_buf a = take(&b, 128 * KIB), c = take(&b, 128 * KIB), none = {0};
  cr_assert(!env_buf_try(b.env, 1, &none), "the budget was exceeded");
  struct waiter large = waiter_of(&b, 256 * KIB, 0), small = waiter_of(&b, 4 * KIB, 0);
  cr_assert(!env_buf_get(b.env, &large.wait));
  cr_assert(!env_buf_get(b.env, &small.wait));
  env_buf_put(b.env, &a);
  cr_assert_null(a.data);
  uv_run(&b.loop, UV_RUN_NOWAIT);
  cr_assert(!small.ready, "a later, smaller wait overtook the first");
  cr_assert(!env_buf_try(b.env, 4 * KIB, &none), "a try overtook the waiters");
  env_buf_put(b.env, &c);
  cr_assert(!large.ready, "ready ran inside env_buf_put");
  run_until(&b, &large.ready);
  cr_assert_eq(large.err, 0);
  cr_assert(!small.ready);
  struct env_uv_stats stats;
  env_uv_stats_get(b.uv, &stats);
  cr_assert_leq(stats.buffer_bytes_max, 256 * KIB);
  cr_assert_eq(stats.buffer_waits, 2);
  env_buf_put(b.env, &large.wait.buf);
  run_until(&b, &small.ready);
  cr_assert_eq(small.err, 0);
  env_uv_stats_get(b.uv, &stats);
  cr_assert_leq(stats.buffer_bytes_max, 256 * KIB);
  env_buf_put(b.env, &small.wait.buf);
  bed_close(&b);
}

/* Many who take all they can get must not leave nothing for those who need a little. */
Test(env_buf, a_try_leaves_a_quarter_of_the_budget) {
  struct bed b;
  bed_open(&b, 256 * KIB);
  struct env_buf a, c = {0}, none = {0};
  cr_assert(!env_buf_try(b.env, 193 * KIB, &none));
  cr_assert(env_buf_try(b.env, 128 * KIB, &c));
  cr_assert(!env_buf_try(b.env, 65 * KIB, &none));
  a = take(&b, 64 * KIB);
  cr_assert(!env_buf_try(b.env, 1, &none));
  struct env_buf d = take(&b, 64 * KIB);
  env_buf_put(b.env, &d);
  cr_assert(!env_buf_try(b.env, 1, &none));
  env_buf_put(b.env, &a);
  env_buf_put(b.env, &c);
  cr_assert(env_buf_try(b.env, 192 * KIB, &a));
  env_buf_put(b.env, &a);
  bed_close(&b);
}

Test(env_buf, a_wait_ends_with_slow_down) {
  struct bed b;
  bed_open(&b, 64 * KIB);
  struct env_buf all = take(&b, 64 * KIB);
  struct waiter w = waiter_of(&b, 8 * KIB, 20), forever = waiter_of(&b, 8 * KIB, 0);
  uint64_t start = env_now_ms(b.env);
  cr_assert(!env_buf_get(b.env, &w.wait));
  cr_assert(!env_buf_get(b.env, &forever.wait));
  run_until(&b, &w.ready);
  cr_assert_eq(w.err, ERR_SLOW_DOWN);
  cr_assert_geq(env_now_ms(b.env), start + 20);
  cr_assert(!forever.ready);
  struct env_uv_stats stats;
  env_uv_stats_get(b.uv, &stats);
  cr_assert_eq(stats.buffer_timeouts, 1);
  env_buf_put(b.env, &all);
  run_until(&b, &forever.ready);
  cr_assert_eq(forever.err, 0);
  /* The struct can be used again. */
  w.ready = false;
  cr_assert(env_buf_get(b.env, &w.wait));
  env_buf_put(b.env, &w.wait.buf);
  env_buf_put(b.env, &forever.wait.buf);
  bed_close(&b);
}

Test(env_buf, more_than_the_budget_fails_at_once_but_deferred) {
  struct bed b;
  bed_open(&b, 64 * KIB);
  struct waiter w = waiter_of(&b, 64 * KIB + 1, 0);
  cr_assert(!env_buf_get(b.env, &w.wait));
  cr_assert(!w.ready);
  run_until(&b, &w.ready);
  cr_assert_eq(w.err, ERR_SLOW_DOWN);
  bed_close(&b);
}

Test(env_buf, cancel_before_and_after_the_buffer_was_given) {
  struct bed b;
  bed_open(&b, 64 * KIB);
  struct env_buf all = take(&b, 64 * KIB);
  struct waiter w = waiter_of(&b, 64 * KIB, 1000), given = waiter_of(&b, 64 * KIB, 1000);
  env_buf_cancel(b.env, &w.wait); /* idle: nothing happens */
  cr_assert(!env_buf_get(b.env, &w.wait));
  cr_assert(!env_buf_get(b.env, &given.wait));
  env_buf_cancel(b.env, &w.wait);
  env_buf_cancel(b.env, &w.wait);
  cr_assert(!w.ready);
  env_buf_put(b.env, &all); /* goes to `given`, whose callback has not run yet */
  env_buf_cancel(b.env, &given.wait);
  run_until(&b, &given.ready);
  cr_assert_eq(w.err, ERR_CANCELLED);
  cr_assert_eq(given.err, ERR_CANCELLED);
  all = take(&b, 64 * KIB); /* it came back */
  env_buf_put(b.env, &all);
  bed_close(&b);
}

Test(env_buf, a_cached_buffer_of_another_class_makes_room) {
  struct bed b;
  bed_open(&b, 256 * KIB);
  struct env_buf a = take(&b, 256 * KIB);
  env_buf_put(b.env, &a);
  struct env_buf small[64];
  for (int i = 0; i < 64; i++) small[i] = take(&b, 4 * KIB);
  struct env_uv_stats stats;
  env_uv_stats_get(b.uv, &stats);
  cr_assert_leq(stats.buffer_bytes_max, 256 * KIB);
  for (int i = 0; i < 64; i++) env_buf_put(b.env, &small[i]);
  a = take(&b, 192 * KIB);
  env_buf_put(b.env, &a);
  env_uv_stats_get(b.uv, &stats);
  cr_assert_leq(stats.buffer_bytes_max, 256 * KIB);
  bed_close(&b);
}

Test(env_buf, a_budget_that_is_no_class_can_be_used_up) {
  struct bed b;
  bed_open(&b, 36 * KIB);
  struct env_buf a = take(&b, 35 * KIB), none = {0};
  cr_assert(!env_buf_try(b.env, 1, &none));
  env_buf_put(b.env, &a);
  a = take(&b, 32 * KIB);
  env_buf_put(b.env, &a);
  bed_close(&b);
}

/* The pool under a clock of the test: idle buffers go back to the kernel after BUF_IDLE_MS. */
struct clock_env {
  struct env env;
  uint64_t now;
  struct env_timer *armed;
};
static uint64_t clock_now(struct env *e) {
  return container_of(e, struct clock_env, env)->now;
}
static void clock_start(struct env *e, struct env_timer *t, uint64_t delay) {
  struct clock_env *c = container_of(e, struct clock_env, env);
  t->due_ms = c->now + delay;
  t->armed = true;
  c->armed = t;
}
static void clock_stop(struct env *e, struct env_timer *t) {
  t->armed = false;
  container_of(e, struct clock_env, env)->armed = NULL;
}
static void clock_go(struct clock_env *c, uint64_t ms) {
  c->now += ms;
  struct env_timer *t = c->armed;
  if (!t || t->due_ms > c->now) return;
  t->armed = false;
  c->armed = NULL;
  t->fire(t);
}

Test(buf_pool, idle_buffers_are_given_back) {
  static const struct env_ops ops = {
      .now_ms = clock_now, .timer_start = clock_start, .timer_stop = clock_stop};
  struct clock_env c = {.env = {&ops}, .now = 1000};
  struct buf_pool pool;
  buf_pool_init(&pool, &c.env, 1 << 20, NULL);
  struct env_buf a = {0}, b = {0};
  cr_assert(buf_pool_try(&pool, 8192, &a));
  cr_assert(buf_pool_try(&pool, 65536, &b));
  uint8_t *warm = a.data;
  buf_pool_put(&pool, &a);
  clock_go(&c, 6000);
  buf_pool_put(&pool, &b);
  clock_go(&c, 3999);
  cr_assert_eq(pool.held, 8192 + 65536, "given back too early");
  cr_assert(buf_pool_try(&pool, 8192, &a));
  cr_assert_eq(a.data, warm, "a warm buffer was not used again");
  buf_pool_put(&pool, &a);
  clock_go(&c, 6001); /* b is 10 s old, a is not */
  cr_assert_eq(pool.held, 8192);
  clock_go(&c, 4000);
  cr_assert_eq(pool.held, 0);
  cr_assert_null(c.armed, "an empty cache keeps a timer");
  buf_pool_clear(&pool);
}
