/* buf_pool.c: see buf_pool.h.
 *
 * A wait is idle (priv[0] NULL), waiting (priv[0] the pool, priv[1] WAIT_PENDING) or ready (priv[1]
 * the error to report). A cached buffer's bookkeeping stands in its own first bytes. */
#include "storage/net/buf_pool.h"

#include <assert.h>
#include <sys/mman.h>

#include "config/err.h"
#include "config/log.h"

#define WAIT_PENDING ((void *)(intptr_t)1)

struct cached {
  struct list class_link, lru_link;
  uint64_t since_ms;
  uint64_t bytes;
};

static void stat_add(uint64_t *counter, uint64_t by) {
  __atomic_store_n(counter, *counter + by, __ATOMIC_RELAXED);
}

/* Class 0 is one page, 1 two, then 3, 4, 6, 8, 12, 16, ... pages. */
static uint64_t class_bytes(unsigned class) {
  if (class == 0) return BUF_PAGE_BYTES;
  uint64_t base = (uint64_t)(2 * BUF_PAGE_BYTES) << ((class - 1) / 2);
  return class % 2 ? base : base + base / 2;
}

static unsigned class_of(uint64_t bytes) {
  unsigned class = 0;
  while (class < BUF_CLASS_COUNT && class_bytes(class) < bytes) class ++;
  return class;
}

/* What a buffer of `size` costs: its class; or, where the class alone is beyond the budget, its own
 * pages (then it is not cached). */
static uint64_t charge_of(const struct buf_pool *p, size_t size, unsigned *ret_class) {
  unsigned class = class_of(size);
  *ret_class = class;
  if (class < BUF_CLASS_COUNT && class_bytes(class) <= p->budget) return class_bytes(class);
  *ret_class = BUF_CLASS_COUNT;
  return ((uint64_t)size + BUF_PAGE_BYTES - 1) & ~(uint64_t)(BUF_PAGE_BYTES - 1);
}

static void held_add(struct buf_pool *p, int64_t by) {
  uint64_t held = p->held + (uint64_t)by;
  __atomic_store_n(&p->held, held, __ATOMIC_RELAXED);
  if (held > p->held_max) __atomic_store_n(&p->held_max, held, __ATOMIC_RELAXED);
}

static void cached_unlink(struct cached *c) {
  list_remove(&c->class_link);
  list_remove(&c->lru_link);
}

static void evict_oldest(struct buf_pool *p) {
  struct cached *c = container_of(p->lru.next, struct cached, lru_link);
  cached_unlink(c);
  held_add(p, -(int64_t)c->bytes);
  munmap(c, c->bytes);
}

static void idle_arm(struct buf_pool *p) {
  if (list_empty(&p->lru) || p->idle_timer.armed) return;
  struct cached *oldest = container_of(p->lru.next, struct cached, lru_link);
  uint64_t now = env_now_ms(p->env), due = oldest->since_ms + BUF_IDLE_MS;
  env_timer_start(p->env, &p->idle_timer, due > now ? due - now : 0);
}

static void idle_fire(struct env_timer *t) {
  struct buf_pool *p = container_of(t, struct buf_pool, idle_timer);
  uint64_t now = env_now_ms(p->env);
  while (!list_empty(&p->lru) &&
         container_of(p->lru.next, struct cached, lru_link)->since_ms + BUF_IDLE_MS <= now) {
    evict_oldest(p);
  }
  idle_arm(p);
}

void buf_pool_init(struct buf_pool *p, struct env *env, uint64_t budget,
                   void (*kick)(struct buf_pool *p)) {
  memset(p, 0, sizeof *p);
  p->env = env;
  p->budget = budget;
  p->kick = kick;
  for (unsigned i = 0; i < BUF_CLASS_COUNT; i++) list_init(&p->free[i]);
  list_init(&p->lru);
  list_init(&p->waiting);
  list_init(&p->ready);
  p->idle_timer.fire = idle_fire;
}

void buf_pool_clear(struct buf_pool *p) {
  assert(list_empty(&p->waiting));
  assert(list_empty(&p->ready));
  assert(p->out == 0);
  while (!list_empty(&p->lru)) evict_oldest(p);
  env_timer_stop(p->env, &p->idle_timer);
}

/* 0, ERR_SLOW_DOWN where it is never to be had, ERR_UNAVAILABLE where it is not free now. */
static int pool_take(struct buf_pool *p, size_t size, struct env_buf *ret_buf) {
  if (size == 0 || size > p->budget) return ERR_SLOW_DOWN;
  unsigned class;
  uint64_t charge = charge_of(p, size, &class);
  if (charge > p->budget) return ERR_SLOW_DOWN; /* the budget ends within its last page */
  void *data;
  if (class < BUF_CLASS_COUNT && !list_empty(&p->free[class])) {
    struct cached *c = container_of(p->free[class].next, struct cached, class_link);
    cached_unlink(c);
    data = c;
  } else {
    if (p->out + charge > p->budget) return ERR_UNAVAILABLE;
    while (p->held + charge > p->budget) evict_oldest(p);
    data = mmap(NULL, charge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return p->out > 0 ? ERR_UNAVAILABLE : ERR_SLOW_DOWN;
    held_add(p, (int64_t)charge);
  }
  p->out += charge;
  *ret_buf = (struct env_buf){.data = data, .size = size};
  return 0;
}

static void wait_finish(struct buf_pool *p, struct env_buf_wait *w, int err) {
  env_timer_stop(p->env, &w->timer);
  w->priv[1] = (void *)(intptr_t)err;
  list_remove(&w->link);
  list_push_back(&p->ready, &w->link);
  p->kick(p);
}

static void serve_waiters(struct buf_pool *p) {
  while (!list_empty(&p->waiting)) {
    struct env_buf_wait *w = container_of(p->waiting.next, struct env_buf_wait, link);
    int err = pool_take(p, w->size, &w->buf);
    if (err == ERR_UNAVAILABLE) return;
    wait_finish(p, w, err);
  }
}

static void wait_expired(struct env_timer *t) {
  struct env_buf_wait *w = container_of(t, struct env_buf_wait, timer);
  struct buf_pool *p = w->priv[0];
  stat_add(&p->timeouts, 1);
  wait_finish(p, w, ERR_SLOW_DOWN);
  serve_waiters(p); /* the next one may want less */
}

bool buf_pool_get(struct buf_pool *p, struct env_buf_wait *w) {
  assert(!w->priv[0]);
  w->buf = (struct env_buf){0};
  int err = list_empty(&p->waiting) || w->size > p->budget ? pool_take(p, w->size, &w->buf)
                                                           : ERR_UNAVAILABLE;
  if (err == 0) return true;
  w->priv[0] = p;
  w->priv[1] = WAIT_PENDING;
  list_init(&w->link);
  if (err == ERR_UNAVAILABLE) {
    stat_add(&p->waits, 1);
    list_push_back(&p->waiting, &w->link);
    w->timer.fire = wait_expired;
    if (w->wait_ms > 0) env_timer_start(p->env, &w->timer, w->wait_ms);
    return false;
  }
  log_error("buffers",
            "a buffer of %zu bytes can never be had: server.buffer_bytes gives this loop %llu",
            w->size, (unsigned long long)p->budget);
  wait_finish(p, w, err);
  return false;
}

/* Whole windows and reading ahead leave a quarter of the budget: were they to take it all, whoever
 * comes then would wait for slow clients to be done with theirs, longer than a wait may take. */
bool buf_pool_try(struct buf_pool *p, size_t size, struct env_buf *ret_buf) {
  uint64_t limit = p->budget - p->budget / 4;
  if (!list_empty(&p->waiting) || size > limit - MIN(p->out, limit)) return false;
  return pool_take(p, size, ret_buf) == 0;
}

void buf_pool_cancel(struct buf_pool *p, struct env_buf_wait *w) {
  if (!w->priv[0]) return;
  if (w->priv[1] == WAIT_PENDING) {
    wait_finish(p, w, ERR_CANCELLED);
    serve_waiters(p);
    return;
  }
  w->priv[1] = (void *)(intptr_t)ERR_CANCELLED; /* its result is on the way */
  if (w->buf.data) buf_pool_put(p, &w->buf);
}

void buf_pool_put(struct buf_pool *p, struct env_buf *buf) {
  if (!buf->data) return;
  unsigned class;
  uint64_t charge = charge_of(p, buf->size, &class);
  assert(p->out >= charge);
  p->out -= charge;
  if (class == BUF_CLASS_COUNT) {
    munmap(buf->data, charge);
    held_add(p, -(int64_t)charge);
  } else {
    struct cached *c = (struct cached *)(void *)buf->data;
    c->since_ms = env_now_ms(p->env);
    c->bytes = charge;
    list_push_front(&p->free[class], &c->class_link);
    list_push_back(&p->lru, &c->lru_link);
    idle_arm(p);
  }
  *buf = (struct env_buf){0};
  serve_waiters(p);
}

void buf_pool_deliver(struct buf_pool *p) {
  struct list batch;
  list_init(&batch);
  list_splice_back(&batch, &p->ready);
  for (struct list *l; (l = list_pop_front(&batch));) {
    struct env_buf_wait *w = container_of(l, struct env_buf_wait, link);
    int err = (int)(intptr_t)w->priv[1];
    w->priv[0] = w->priv[1] = NULL;
    w->ready(w, err);
  }
}
