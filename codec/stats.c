/* stats.c: see stats.h.
 *
 * Encoding a small object takes a hundred nanoseconds, so a counter that two cores share would cost
 * a good part of it. Each thread has a cache line of its own, for good, and adds with no locked
 * instruction; threads that come when all lines are taken share the last one, with atomic adds. */
#include "codec/stats.h"

#include <stdatomic.h>

#include "codec/codec.h"

#define STAT_LINES 256
#define STAT_LINE_BYTES 64

struct stat_line {
  _Alignas(STAT_LINE_BYTES) _Atomic uint64_t count[STAT_COUNT];
};

static struct stat_line lines[STAT_LINES];
static _Atomic unsigned lines_taken;
static _Thread_local struct stat_line *own_line;

static struct stat_line *take_line(void) {
  unsigned at = atomic_load_explicit(&lines_taken, memory_order_relaxed);
  while (at < STAT_LINES - 1) {
    if (atomic_compare_exchange_weak_explicit(&lines_taken, &at, at + 1, memory_order_relaxed,
                                              memory_order_relaxed))
      return &lines[at];
  }
  return &lines[STAT_LINES - 1];
}

void codec_count(enum codec_stat stat) {
  if (!own_line) own_line = take_line();
  _Atomic uint64_t *count = &own_line->count[stat];
  if (own_line == &lines[STAT_LINES - 1]) {
    atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
    return;
  }
  uint64_t was = atomic_load_explicit(count, memory_order_relaxed);
  atomic_store_explicit(count, was + 1, memory_order_relaxed);
}

void codec_stats(struct codec_stats *ret_stats) {
  uint64_t sum[STAT_COUNT] = {0};
  for (unsigned i = 0; i < STAT_LINES; i++) {
    for (unsigned s = 0; s < STAT_COUNT; s++)
      sum[s] += atomic_load_explicit(&lines[i].count[s], memory_order_relaxed);
  }
  *ret_stats = (struct codec_stats){.encode_xor = sum[STAT_ENCODE_XOR],
                                    .encode_general = sum[STAT_ENCODE_GENERAL],
                                    .decode_xor = sum[STAT_DECODE_XOR],
                                    .decode_general = sum[STAT_DECODE_GENERAL],
                                    .plan_hits = sum[STAT_PLAN_HIT],
                                    .plan_misses = sum[STAT_PLAN_MISS]};
}
