/* timer_heap.h: armed env_timers in order of due_ms, then of arming: an intrusive pairing heap.
 *
 * Intrusive, so that arming a timer cannot fail; O(1) to arm, O(log n) amortised to fire or stop.
 * Uses the timer's link (siblings), priv[0] (first child) and priv[1] (sequence number).
 * Source: Fredman, Sedgewick, Sleator, Tarjan 1986. */
#ifndef KOFN_STORAGE_NET_TIMER_HEAP_H
#define KOFN_STORAGE_NET_TIMER_HEAP_H

#include "storage/object/env.h"

struct timer_heap {
  struct env_timer *root; /* NULL: empty */
  uint64_t sequence;      /* of the next timer */
};

/* t->due_ms is set; t is in no heap. */
void timer_heap_add(struct timer_heap *h, struct env_timer *t);
/* t is in the heap. */
void timer_heap_remove(struct timer_heap *h, struct env_timer *t);
static inline struct env_timer *timer_heap_first(const struct timer_heap *h) {
  return h->root;
}
static inline uint64_t timer_heap_sequence(const struct env_timer *t) {
  return (uint64_t)(uintptr_t)t->priv[1];
}

#endif
