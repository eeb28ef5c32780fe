/* sim_env.c: struct env of a simulated gateway. See sim.h. */
#include "tests/sim/sim.h"

#define BUFFERS_KEPT 64

struct timer_event {
  struct sim_event event;
  struct env_timer *timer;
  struct sim_env *env;
};
struct work_event {
  struct sim_event event;
  struct env_work *work;
  bool ran;
};

static struct sim_env *env_of(struct env *env) {
  return container_of(env, struct sim_env, env);
}
static struct sim *sim_of(struct env *env) {
  return env_of(env)->gw->sim;
}
/* What is left of a dead process needs no clock of its host. */
static struct sim_host *host_of(struct env *env) {
  struct sim_gateway *gw = env_of(env)->gw;
  return gw->dead ? NULL : gw->host;
}

static uint64_t sim_env_now_ms(struct env *env) {
  return sim_of(env)->now_us / SIM_MS;
}

uint64_t sim_wall_ms(const struct sim *s, const struct sim_host *h) {
  return SIM_WALL_START_MS + s->wall_offset_ms + s->now_us / SIM_MS + (uint64_t)h->skew_ms;
}

static uint64_t sim_env_wall_ms(struct env *env) {
  return sim_wall_ms(sim_of(env), env_of(env)->gw->host);
}

static void sim_env_random(struct env *env, void *dst, size_t len) {
  uint8_t *out = dst;
  while (len > 0) {
    uint64_t r = sim_random(sim_of(env));
    size_t n = MIN(len, sizeof r);
    memcpy(out, &r, n);
    out += n;
    len -= n;
  }
}

static void sim_env_timer_stop(struct env *env, struct env_timer *t) {
  if (!t->armed) return;
  struct timer_event *te = t->priv[0];
  SIM_CHECK(te->env == env_of(env));
  t->armed = false;
  sim_stop(sim_of(env), &te->event);
  env_of(env)->timers--;
  free(te);
}

static void timer_fired(struct sim_event *e) {
  struct timer_event *te = container_of(e, struct timer_event, event);
  struct env_timer *t = te->timer;
  te->env->timers--;
  t->armed = false;
  free(te);
  t->fire(t);
}

static void sim_env_timer_start(struct env *env, struct env_timer *t, uint64_t delay_ms) {
  SIM_CHECK(t->fire);
  sim_env_timer_stop(env, t);
  struct timer_event *te = calloc(1, sizeof *te);
  SIM_CHECK(te);
  te->timer = t;
  te->env = env_of(env);
  t->priv[0] = te;
  t->armed = true;
  te->env->timers++;
  sim_after(sim_of(env), &te->event, host_of(env), delay_ms * SIM_MS, timer_fired);
}

/* run and done are two events: a cancel may come between them. */
static void work_fired(struct sim_event *e) {
  struct work_event *we = container_of(e, struct work_event, event);
  struct env_work *w = we->work;
  struct sim_env *env = env_of(w->env);
  if (!we->ran) {
    we->ran = true;
    w->run(w);
    sim_after(env->gw->sim, e, host_of(&env->env), sim_below(env->gw->sim, 200), work_fired);
    return;
  }
  free(we);
  env->works--;
  w->done(w);
}

static void sim_env_work(struct env *env, struct env_work *w) {
  struct work_event *we = calloc(1, sizeof *we);
  SIM_CHECK(we && w->run && w->done);
  we->work = w;
  w->env = env;
  env_of(env)->works++;
  sim_after(sim_of(env), &we->event, host_of(env), sim_below(sim_of(env), 300), work_fired);
}

/* ---- buffers: the memory is kept from seed to seed, the accounts are not ---- */

static struct {
  uint8_t *data;
  size_t size;
} kept[BUFFERS_KEPT];

static void buffer_take(struct sim_env *e, size_t size, struct env_buf *buf) {
  buf->data = NULL;
  for (unsigned i = 0; i < BUFFERS_KEPT && !buf->data; i++)
    if (kept[i].data && kept[i].size == size) buf->data = TAKE(kept[i].data);
  if (!buf->data) buf->data = aligned_alloc(4096, DIV_UP(size, 4096) * 4096);
  SIM_CHECK(buf->data);
  memset(buf->data, 0xa5, MIN(size, 256)); /* undefined, but the same in every run */
  buf->size = size;
  e->buffer_used += size;
}

static bool buffer_fits(const struct sim_env *e, size_t size) {
  return e->buffer_used + size <= e->buffer_limit;
}

static void buffer_event_fire(struct sim_event *ev);

static void buffer_event_arm(struct sim_env *e) {
  if (e->buffer_event.heap_at == 0)
    sim_after(e->gw->sim, &e->buffer_event, host_of(&e->env), 0, buffer_event_fire);
}

static void wait_end(struct sim_env *e, struct env_buf_wait *w, int err) {
  sim_env_timer_stop(&e->env, &w->timer);
  w->priv[0] = NULL;
  w->ready(w, err);
}

static void buffer_event_fire(struct sim_event *ev) {
  struct sim_env *e = container_of(ev, struct sim_env, buffer_event);
  struct list *item = list_pop_front(&e->cancelled);
  if (item) {
    if (!list_empty(&e->cancelled) || !list_empty(&e->waiters)) buffer_event_arm(e);
    wait_end(e, container_of(item, struct env_buf_wait, link), ERR_CANCELLED);
    return;
  }
  if (list_empty(&e->waiters)) return;
  struct env_buf_wait *w = container_of(e->waiters.next, struct env_buf_wait, link);
  if (!buffer_fits(e, w->size)) return;
  list_remove(&w->link);
  buffer_take(e, w->size, &w->buf);
  if (!list_empty(&e->waiters)) buffer_event_arm(e);
  wait_end(e, w, 0);
}

static void wait_expired(struct env_timer *t) {
  struct env_buf_wait *w = container_of(t, struct env_buf_wait, timer);
  struct sim_env *e = w->priv[0];
  list_remove(&w->link);
  wait_end(e, w, ERR_SLOW_DOWN);
}

static bool sim_env_buf_get(struct env *env, struct env_buf_wait *w) {
  struct sim_env *e = env_of(env);
  SIM_CHECK(w->ready && w->size > 0 && !w->priv[0] && w->size <= e->buffer_limit);
  if (list_empty(&e->waiters) && buffer_fits(e, w->size)) {
    buffer_take(e, w->size, &w->buf);
    return true;
  }
  w->priv[0] = e;
  list_push_back(&e->waiters, &w->link);
  w->timer.fire = wait_expired;
  if (w->wait_ms) sim_env_timer_start(env, &w->timer, w->wait_ms);
  return false;
}

static bool sim_env_buf_try(struct env *env, size_t size, struct env_buf *ret_buf) {
  struct sim_env *e = env_of(env);
  if (!list_empty(&e->waiters) || !buffer_fits(e, size)) return false;
  buffer_take(e, size, ret_buf);
  return true;
}

static void sim_env_buf_cancel(struct env *env, struct env_buf_wait *w) {
  struct sim_env *e = env_of(env);
  if (!w->priv[0]) return;
  sim_env_timer_stop(env, &w->timer);
  list_remove(&w->link);
  list_push_back(&e->cancelled, &w->link);
  buffer_event_arm(e);
}

static void sim_env_buf_put(struct env *env, struct env_buf *buf) {
  struct sim_env *e = env_of(env);
  SIM_CHECK(buf->data && e->buffer_used >= buf->size);
  e->buffer_used -= buf->size;
  for (unsigned i = 0; i < BUFFERS_KEPT && buf->data; i++)
    if (!kept[i].data) {
      kept[i].data = TAKE(buf->data);
      kept[i].size = buf->size;
    }
  free(buf->data);
  *buf = (struct env_buf){0};
  if (!list_empty(&e->waiters)) buffer_event_arm(e);
}

static const struct env_ops sim_env_ops = {
    .now_ms = sim_env_now_ms,
    .wall_ms = sim_env_wall_ms,
    .random = sim_env_random,
    .timer_start = sim_env_timer_start,
    .timer_stop = sim_env_timer_stop,
    .work = sim_env_work,
    .buf_get = sim_env_buf_get,
    .buf_try = sim_env_buf_try,
    .buf_cancel = sim_env_buf_cancel,
    .buf_put = sim_env_buf_put,
};

void sim_env_open(struct sim_env *e, struct sim_gateway *gw) {
  *e = (struct sim_env){.env.ops = &sim_env_ops, .gw = gw};
  list_init(&e->waiters);
  list_init(&e->cancelled);
  /* Sometimes so few that operations have to wait for each other. */
  e->buffer_limit = sim_chance(gw->sim, 0.1) ? 2u << 20 : 64u << 20;
}

void sim_env_close(struct sim_env *e) {
  struct sim *s = e->gw->sim;
  if (e->timers || e->works || e->buffer_used || !list_empty(&e->waiters))
    sim_fail(s, "gateway %u leaves %u timers, %u works, %zu bytes of buffers", e->gw->id, e->timers,
             e->works, e->buffer_used);
  sim_stop(s, &e->buffer_event);
}
