/* buf_pool.h: one loop's stripe buffers under a fixed budget (ARCHITECTURE.md, rule 3).
 *
 * The budget counts buffers that are handed out and buffers that are cached. Sizes are rounded up
 * to classes (4 KiB, then powers of two and one and a half times them); a buffer that comes back is
 * kept warm in its class, and given back to the kernel after BUF_IDLE_MS, or earlier where another
 * class needs the room. Waiters are served strictly in order. All calls on the loop's thread. */
#ifndef KOFN_STORAGE_NET_BUF_POOL_H
#define KOFN_STORAGE_NET_BUF_POOL_H

#include "storage/net/env_uv.h"

#define BUF_IDLE_MS 10000
#define BUF_PAGE_BYTES 4096u
#define BUF_CLASS_COUNT 64

struct buf_pool {
  struct env *env;                  /* timers and the clock; not its buffers */
  void (*kick)(struct buf_pool *p); /* asks for buf_pool_deliver, later, outside this call */
  uint64_t budget, held, out;       /* bytes: allowed; mapped; of these handed out */
  uint64_t held_max, waits, timeouts;
  struct list free[BUF_CLASS_COUNT]; /* of a class, warmest first */
  struct list lru;                   /* all cached buffers, longest idle first */
  struct list waiting;               /* env_buf_wait, in order */
  struct list ready;                 /* env_buf_wait with a result to deliver */
  struct env_timer idle_timer;
};

void buf_pool_init(struct buf_pool *p, struct env *env, uint64_t budget,
                   void (*kick)(struct buf_pool *p));
/* Nobody waits and nothing is out. */
void buf_pool_clear(struct buf_pool *p);
bool buf_pool_get(struct buf_pool *p, struct env_buf_wait *w);
/* Never beyond three quarters of the budget. */
bool buf_pool_try(struct buf_pool *p, size_t size, struct env_buf *ret_buf);
void buf_pool_cancel(struct buf_pool *p, struct env_buf_wait *w);
void buf_pool_put(struct buf_pool *p, struct env_buf *buf);
/* Runs the `ready` callbacks that are due. */
void buf_pool_deliver(struct buf_pool *p);

#endif
