/* timer_heap.c: see timer_heap.h.
 *
 * A node's link.next is its next sibling; link.prev its previous sibling, or its parent where it is
 * the first child; both NULL at the root. */
#include "storage/net/timer_heap.h"

static struct env_timer *timer_of(struct list *l) {
  return l ? container_of(l, struct env_timer, link) : NULL;
}

static struct env_timer *child_of(const struct env_timer *t) {
  return (struct env_timer *)t->priv[0];
}

static bool before(const struct env_timer *a, const struct env_timer *b) {
  if (a->due_ms != b->due_ms) return a->due_ms < b->due_ms;
  return timer_heap_sequence(a) < timer_heap_sequence(b);
}

/* Both are roots, either may be NULL; the result is a root without siblings. */
static struct env_timer *meld(struct env_timer *a, struct env_timer *b) {
  if (!a) return b;
  if (!b) return a;
  if (before(b, a)) {
    struct env_timer *swap = a;
    a = b;
    b = swap;
  }
  struct env_timer *child = child_of(a);
  b->link.prev = &a->link;
  b->link.next = child ? &child->link : NULL;
  if (child) child->link.prev = &b->link;
  a->priv[0] = b;
  a->link.prev = a->link.next = NULL;
  return a;
}

/* Melds a list of siblings: in pairs from the left, then all pairs from the right. */
static struct env_timer *meld_siblings(struct env_timer *first) {
  struct env_timer *pairs = NULL; /* a stack through link.next */
  while (first) {
    struct env_timer *a = first, *b = timer_of(a->link.next);
    first = b ? timer_of(b->link.next) : NULL;
    a->link.prev = a->link.next = NULL;
    if (b) b->link.prev = b->link.next = NULL;
    struct env_timer *pair = meld(a, b);
    pair->link.next = pairs ? &pairs->link : NULL;
    pairs = pair;
  }
  struct env_timer *root = NULL;
  while (pairs) {
    struct env_timer *pair = pairs;
    pairs = timer_of(pair->link.next);
    pair->link.next = NULL;
    root = meld(root, pair);
  }
  return root;
}

void timer_heap_add(struct timer_heap *h, struct env_timer *t) {
  t->link.prev = t->link.next = NULL;
  t->priv[0] = NULL;
  t->priv[1] = (void *)(uintptr_t)h->sequence++;
  h->root = meld(h->root, t);
}

void timer_heap_remove(struct timer_heap *h, struct env_timer *t) {
  struct env_timer *rest = meld_siblings(child_of(t));
  if (t == h->root) {
    h->root = rest;
  } else {
    struct env_timer *prev = timer_of(t->link.prev), *next = timer_of(t->link.next);
    if (child_of(prev) == t) {
      prev->priv[0] = next;
    } else {
      prev->link.next = t->link.next;
    }
    if (next) next->link.prev = &prev->link;
    h->root = meld(h->root, rest);
  }
  t->priv[0] = NULL;
  t->link.prev = t->link.next = NULL;
}
