/* fake_env.c: see fake_env.h. */
#include "tests/unit/object/fake_env.h"

#include <stdio.h>
#include <stdlib.h>

#include "config/err.h"

_Noreturn void fake_fail(const char *file, int line, const char *what) {
  fprintf(stderr, "%s:%d: the test bed's contract is broken: %s\n", file, line, what);
  abort();
}

static struct fake_bed *bed_of(struct env *env) {
  return container_of(env, struct fake_bed, env);
}

uint64_t fake_random(struct fake_bed *bed) {
  uint64_t z = (bed->random_state += 0x9e3779b97f4a7c15ull); /* splitmix64 */
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

uint64_t fake_random_below(struct fake_bed *bed, uint64_t bound) {
  FAKE_CHECK(bound > 0);
  return fake_random(bed) % bound;
}

void fake_event_start(struct fake_bed *bed, struct fake_event *e, uint64_t delay_ms,
                      void (*fire)(struct fake_event *e)) {
  FAKE_CHECK(!e->armed);
  e->fire = fire;
  e->due_ms = bed->now_ms + delay_ms;
  e->order = bed->event_order++;
  e->armed = true;
  struct list *at = bed->events.prev;
  while (at != &bed->events && container_of(at, struct fake_event, link)->due_ms > e->due_ms)
    at = at->prev;
  list_push_front(at, &e->link);
}

void fake_event_stop(struct fake_event *e) {
  if (!e->armed) return;
  e->armed = false;
  list_remove(&e->link);
}

static uint64_t fake_now_ms(struct env *env) {
  return bed_of(env)->now_ms;
}

static uint64_t fake_wall_ms(struct env *env) {
  struct fake_bed *bed = bed_of(env);
  return FAKE_WALL_START_MS + bed->now_ms + (uint64_t)bed->wall_skew_ms;
}

static void fake_random_fill(struct env *env, void *dst, size_t len) {
  uint8_t *out = dst;
  for (size_t i = 0; i < len; i++) out[i] = (uint8_t)(fake_random(bed_of(env)) >> 32);
}

static void fake_timer_stop(struct env *env, struct env_timer *t) {
  if (!t->armed) return;
  FAKE_CHECK(t->priv[0] == bed_of(env));
  t->armed = false;
  list_remove(&t->link);
  bed_of(env)->timers_armed--;
}

static void fake_timer_start(struct env *env, struct env_timer *t, uint64_t delay_ms) {
  struct fake_bed *bed = bed_of(env);
  FAKE_CHECK(t->fire);
  fake_timer_stop(env, t);
  t->priv[0] = bed;
  t->due_ms = bed->now_ms + delay_ms;
  t->armed = true;
  bed->timers_armed++;
  struct list *at = bed->timers.prev;
  while (at != &bed->timers && container_of(at, struct env_timer, link)->due_ms > t->due_ms)
    at = at->prev;
  list_push_front(at, &t->link);
}

static void work_event_fire(struct fake_event *e);

static void work_event_arm(struct fake_bed *bed, uint64_t delay_ms) {
  if (!bed->work_event.armed) fake_event_start(bed, &bed->work_event, delay_ms, work_event_fire);
}

/* A work's run and its done are two events, so that a cancel can come between them. */
static void work_event_fire(struct fake_event *e) {
  struct fake_bed *bed = container_of(e, struct fake_bed, work_event);
  struct list *item = list_pop_front(&bed->works_done);
  if (item) {
    struct env_work *w = container_of(item, struct env_work, link);
    bed->works_running--;
    if (!list_empty(&bed->works) || !list_empty(&bed->works_done))
      work_event_arm(bed, bed->work_delay_ms);
    w->done(w);
    return;
  }
  item = list_pop_front(&bed->works);
  FAKE_CHECK(item);
  struct env_work *w = container_of(item, struct env_work, link);
  w->run(w);
  list_push_back(&bed->works_done, &w->link);
  work_event_arm(bed, 0);
}

static void fake_work(struct env *env, struct env_work *w) {
  struct fake_bed *bed = bed_of(env);
  FAKE_CHECK(w->run && w->done);
  FAKE_CHECK(!list_linked(&w->link)); /* one work is started once */
  w->env = env;
  bed->works_running++;
  bed->works_ever++;
  list_push_back(&bed->works, &w->link);
  work_event_arm(bed, bed->work_delay_ms);
}

static void buffer_make(struct fake_bed *bed, size_t size, struct env_buf *buf) {
  buf->data = aligned_alloc(4096, DIV_UP(size, 4096) * 4096);
  FAKE_CHECK(buf->data);
  memset(buf->data, 0xa5, size);
  buf->size = size;
  bed->buffer_used += size;
  bed->buffer_peak = MAX(bed->buffer_peak, bed->buffer_used);
  bed->buffer_count++;
  bed->buffer_count_peak = MAX(bed->buffer_count_peak, bed->buffer_count);
  bed->buffers_given++;
}

static bool buffer_fits(const struct fake_bed *bed, size_t size) {
  return bed->buffer_used + size <= bed->buffer_limit;
}

static void buffer_wait_end(struct fake_bed *bed, struct env_buf_wait *w, int err) {
  fake_timer_stop(&bed->env, &w->timer);
  w->priv[0] = NULL;
  w->ready(w, err);
}

static void buffer_event_fire(struct fake_event *e) {
  struct fake_bed *bed = container_of(e, struct fake_bed, buffer_event);
  struct list *item = list_pop_front(&bed->waiters_cancelled);
  if (item) {
    if (!list_empty(&bed->waiters_cancelled) || !list_empty(&bed->waiters))
      fake_event_start(bed, e, 0, buffer_event_fire);
    buffer_wait_end(bed, container_of(item, struct env_buf_wait, link), ERR_CANCELLED);
    return;
  }
  if (list_empty(&bed->waiters)) return;
  struct env_buf_wait *w = container_of(bed->waiters.next, struct env_buf_wait, link);
  if (!buffer_fits(bed, w->size)) return;
  list_remove(&w->link);
  buffer_make(bed, w->size, &w->buf);
  if (!list_empty(&bed->waiters)) fake_event_start(bed, e, 0, buffer_event_fire);
  buffer_wait_end(bed, w, 0);
}

static void buffer_event_arm(struct fake_bed *bed) {
  if (!bed->buffer_event.armed) fake_event_start(bed, &bed->buffer_event, 0, buffer_event_fire);
}

static void buffer_wait_expired(struct env_timer *t) {
  struct env_buf_wait *w = container_of(t, struct env_buf_wait, timer);
  struct fake_bed *bed = t->priv[0];
  list_remove(&w->link);
  buffer_wait_end(bed, w, ERR_SLOW_DOWN);
}

static bool fake_buf_get(struct env *env, struct env_buf_wait *w) {
  struct fake_bed *bed = bed_of(env);
  FAKE_CHECK(w->ready && w->size > 0);
  FAKE_CHECK(w->priv[0] == NULL); /* not waiting already */
  if (list_empty(&bed->waiters) && buffer_fits(bed, w->size)) {
    buffer_make(bed, w->size, &w->buf);
    return true;
  }
  FAKE_CHECK(w->size <= bed->buffer_limit); /* else it would wait for ever */
  w->priv[0] = bed;
  list_push_back(&bed->waiters, &w->link);
  w->timer.fire = buffer_wait_expired;
  if (w->wait_ms) fake_timer_start(env, &w->timer, w->wait_ms);
  return false;
}

static bool fake_buf_try(struct env *env, size_t size, struct env_buf *ret_buf) {
  struct fake_bed *bed = bed_of(env);
  FAKE_CHECK(size > 0);
  if (!list_empty(&bed->waiters) || !buffer_fits(bed, size)) return false;
  buffer_make(bed, size, ret_buf);
  return true;
}

static void fake_buf_cancel(struct env *env, struct env_buf_wait *w) {
  struct fake_bed *bed = bed_of(env);
  if (!w->priv[0]) return;
  fake_timer_stop(env, &w->timer);
  list_remove(&w->link);
  list_push_back(&bed->waiters_cancelled, &w->link);
  buffer_event_arm(bed);
}

static void fake_buf_put(struct env *env, struct env_buf *buf) {
  struct fake_bed *bed = bed_of(env);
  FAKE_CHECK(buf->data && buf->size > 0);
  FAKE_CHECK(bed->buffer_used >= buf->size && bed->buffer_count > 0);
  bed->buffer_used -= buf->size;
  bed->buffer_count--;
  free(buf->data);
  *buf = (struct env_buf){0};
  if (!list_empty(&bed->waiters)) buffer_event_arm(bed);
}

static const struct env_ops fake_env_ops = {
    .now_ms = fake_now_ms,
    .wall_ms = fake_wall_ms,
    .random = fake_random_fill,
    .timer_start = fake_timer_start,
    .timer_stop = fake_timer_stop,
    .work = fake_work,
    .buf_get = fake_buf_get,
    .buf_try = fake_buf_try,
    .buf_cancel = fake_buf_cancel,
    .buf_put = fake_buf_put,
};

void fake_bed_open(struct fake_bed *bed, uint64_t seed) {
  memset(bed, 0, sizeof *bed);
  bed->env.ops = &fake_env_ops;
  bed->now_ms = 1000;
  bed->random_state = seed;
  bed->buffer_limit = FAKE_BUFFER_BYTES;
  list_init(&bed->events);
  list_init(&bed->timers);
  list_init(&bed->works);
  list_init(&bed->works_done);
  list_init(&bed->waiters);
  list_init(&bed->waiters_cancelled);
}

void fake_bed_close(struct fake_bed *bed) {
  FAKE_CHECK(list_empty(&bed->events));
  FAKE_CHECK(list_empty(&bed->timers) && bed->timers_armed == 0);
  FAKE_CHECK(bed->works_running == 0);
  FAKE_CHECK(list_empty(&bed->waiters) && list_empty(&bed->waiters_cancelled));
  FAKE_CHECK(bed->buffer_used == 0 && bed->buffer_count == 0);
}

static uint64_t next_due(const struct fake_bed *bed) {
  uint64_t due = UINT64_MAX;
  if (!list_empty(&bed->events))
    due = container_of(bed->events.next, struct fake_event, link)->due_ms;
  if (!list_empty(&bed->timers))
    due = MIN(due, container_of(bed->timers.next, struct env_timer, link)->due_ms);
  return due;
}

bool fake_step(struct fake_bed *bed) {
  uint64_t due = next_due(bed);
  if (due == UINT64_MAX) return false;
  FAKE_CHECK(!bed->inside); /* the loop is not re-entered */
  bed->inside = true;
  bed->now_ms = MAX(bed->now_ms, due);
  struct fake_event *e = container_of(bed->events.next, struct fake_event, link);
  if (!list_empty(&bed->events) && e->due_ms == due) {
    fake_event_stop(e);
    e->fire(e);
  } else {
    struct env_timer *t = container_of(bed->timers.next, struct env_timer, link);
    fake_timer_stop(&bed->env, t);
    t->fire(t);
  }
  bed->inside = false;
  return true;
}

void fake_run(struct fake_bed *bed) {
  unsigned events = 0;
  while (fake_step(bed)) FAKE_CHECK(++events < FAKE_EVENTS_MAX);
}

void fake_run_until(struct fake_bed *bed, uint64_t ms) {
  unsigned events = 0;
  while (next_due(bed) <= ms && fake_step(bed)) FAKE_CHECK(++events < FAKE_EVENTS_MAX);
  bed->now_ms = MAX(bed->now_ms, ms);
}

void fake_run_for(struct fake_bed *bed, uint64_t ms) {
  fake_run_until(bed, bed->now_ms + ms);
}

bool fake_run_while_not(struct fake_bed *bed, const bool *flag) {
  unsigned events = 0;
  while (!*flag && fake_step(bed)) FAKE_CHECK(++events < FAKE_EVENTS_MAX);
  return *flag;
}
