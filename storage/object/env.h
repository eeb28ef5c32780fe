/* env.h: time, timers, randomness, CPU work and stripe buffers, as the object layer sees them.
 *
 * One env per event loop (or per simulated host). All calls come from that loop's thread; all
 * callbacks run on it, later, never inside the call that started them. Callers embed the structs.
 */
#ifndef KOFN_STORAGE_OBJECT_ENV_H
#define KOFN_STORAGE_OBJECT_ENV_H

#include "config/list.h"

struct env;

/* One-shot. Zero-initialise; `priv` belongs to the env. */
struct env_timer {
  void (*fire)(struct env_timer *t);
  uint64_t due_ms;
  struct list link;
  void *priv[2];
  bool armed;
};

/* CPU work: `run` executes on a CPU lane (or later on the loop where cost_bytes is small) and must
 * touch only memory that the work owns; `done` runs on the loop afterwards. Cannot be cancelled.
 * Works of one object that depend on each other are chained by the caller. */
struct env_work {
  void (*run)(struct env_work *w);
  void (*done)(struct env_work *w);
  size_t cost_bytes; /* about how many bytes are hashed or coded: decides lane or loop */
  struct list link;
  struct env *env;
};

/* A stripe buffer: `size` bytes at `data`, 4096-aligned, contents undefined. */
struct env_buf {
  uint8_t *data;
  size_t size;
};

/* A wait for a buffer. `ready` runs exactly once: err = 0 with *buf filled, ERR_SLOW_DOWN when the
 * wait ended (wait_ms), ERR_CANCELLED after env_buf_cancel. Waiters are served in order. */
struct env_buf_wait {
  void (*ready)(struct env_buf_wait *w, int err);
  struct env_buf buf;
  size_t size;
  uint64_t wait_ms; /* 0: wait for ever */
  struct list link;
  void *priv[2];
  struct env_timer timer;
};

struct env_ops {
  uint64_t (*now_ms)(struct env *env);  /* monotonic */
  uint64_t (*wall_ms)(struct env *env); /* since 1970 */
  void (*random)(struct env *env, void *dst, size_t len);
  void (*timer_start)(struct env *env, struct env_timer *t,
                      uint64_t delay_ms);                   /* re-arms an armed one */
  void (*timer_stop)(struct env *env, struct env_timer *t); /* safe when not armed */
  void (*work)(struct env *env, struct env_work *w);
  /* True and w->buf filled at once where one is free and nobody waits (`ready` then never runs);
   * else false: the wait is queued. */
  bool (*buf_get)(struct env *env, struct env_buf_wait *w);
  /* A buffer only if there is plenty and nobody waits, for a whole window where one stripe would
   * do, and for read-ahead; false otherwise. */
  bool (*buf_try)(struct env *env, size_t size, struct env_buf *ret_buf);
  void (*buf_cancel)(struct env *env,
                     struct env_buf_wait *w); /* `ready` runs with ERR_CANCELLED; safe when idle */
  void (*buf_put)(struct env *env, struct env_buf *buf); /* zeroes *buf */
};

struct env {
  const struct env_ops *ops;
};

static inline uint64_t env_now_ms(struct env *e) {
  return e->ops->now_ms(e);
}
static inline uint64_t env_wall_ms(struct env *e) {
  return e->ops->wall_ms(e);
}
static inline void env_random(struct env *e, void *dst, size_t len) {
  e->ops->random(e, dst, len);
}
static inline void env_timer_start(struct env *e, struct env_timer *t, uint64_t delay_ms) {
  e->ops->timer_start(e, t, delay_ms);
}
static inline void env_timer_stop(struct env *e, struct env_timer *t) {
  e->ops->timer_stop(e, t);
}
static inline void env_work(struct env *e, struct env_work *w) {
  e->ops->work(e, w);
}
static inline bool env_buf_get(struct env *e, struct env_buf_wait *w) {
  return e->ops->buf_get(e, w);
}
static inline bool env_buf_try(struct env *e, size_t size, struct env_buf *ret_buf) {
  return e->ops->buf_try(e, size, ret_buf);
}
static inline void env_buf_cancel(struct env *e, struct env_buf_wait *w) {
  e->ops->buf_cancel(e, w);
}
static inline void env_buf_put(struct env *e, struct env_buf *buf) {
  e->ops->buf_put(e, buf);
}

#endif
