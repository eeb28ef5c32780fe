/* env_uv.h: struct env over one libuv loop, shared CPU lanes, and the loop's buffer pool. */
#ifndef KOFN_STORAGE_NET_ENV_UV_H
#define KOFN_STORAGE_NET_ENV_UV_H

#include <uv.h>

#include "storage/net/wall_clock.h"
#include "storage/object/env.h"

/* Work up to this many bytes runs on the loop itself (deferred, never inside the call): a thread's
 * wake-up costs more. */
#define ENV_INLINE_WORK_BYTES (32u << 10)

/* CPU threads, shared by all loops of the process. */
struct cpu_lanes;
_must_check_ int cpu_lanes_start(unsigned threads, struct cpu_lanes **ret_lanes);
void cpu_lanes_stop(struct cpu_lanes *lanes);

/* A mailbox brings items from any thread to one loop, in order: one uv_async for all. */
struct mailbox;
_must_check_ int mailbox_open(uv_loop_t *loop, struct mailbox **ret_box);
/* Any thread. `deliver` runs on the loop. The item is embedded and must not be in the box already.
 */
struct mail {
  void (*deliver)(struct mail *m);
  struct list link;
};
void mailbox_post(struct mailbox *box, struct mail *m);
/* On the loop: closes the async handle (freed by the loop's next turn). Nothing may be posted
 * afterwards. */
void mailbox_close(struct mailbox *box);

struct env_uv;
/* `buffer_bytes`: the most stripe-buffer memory this loop ever holds. Buffers are mmap'ed, touched
 * when first used, kept warm in size classes, and given back to the kernel (MADV_DONTNEED or
 * munmap) when idle for 10 s. */
_must_check_ int env_uv_open(uv_loop_t *loop, struct cpu_lanes *lanes, uint64_t buffer_bytes,
                             struct env_uv **ret_env);
struct env *env_uv_env(struct env_uv *e);
struct mailbox *env_uv_mailbox(struct env_uv *e);
uv_loop_t *env_uv_loop(struct env_uv *e);
/* `run` is called once, on the loop, at the end of this turn, before the loop waits for events. To
 * be embedded; zero-initialised with `run` set; asking again before it ran changes nothing. */
struct env_uv_turn {
  void (*run)(struct env_uv_turn *t);
  struct list link;
};
void env_uv_turn_end(struct env_uv *e, struct env_uv_turn *t);
/* No work, timer or buffer may be outstanding. Closes its handles; run the loop once more after it.
 */
void env_uv_close(struct env_uv *e);

/* Readable from any thread. buffer_bytes: mapped now (out and cached); buffer_bytes_max: the most
 * there ever were. */
struct env_uv_stats {
  uint64_t buffer_bytes, buffer_bytes_max, buffer_waits, buffer_timeouts, works_lane, works_loop;
};
void env_uv_stats_get(const struct env_uv *e, struct env_uv_stats *ret);

#endif
