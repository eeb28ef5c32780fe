/* list.h: a circular doubly linked list whose links stand in the items.
 *
 * A link that is in no list points at itself or is zero; list_linked() tells. */
#ifndef KOFN_CONFIG_LIST_H
#define KOFN_CONFIG_LIST_H

#include "config/base.h"

struct list {
  struct list *prev, *next;
};

static inline void list_init(struct list *l) {
  l->prev = l->next = l;
}
static inline bool list_empty(const struct list *head) {
  return head->next == head;
}
static inline bool list_linked(const struct list *l) {
  return l->next && l->next != l;
}

static inline void list_push_back(struct list *head, struct list *item) {
  item->prev = head->prev;
  item->next = head;
  head->prev->next = item;
  head->prev = item;
}

static inline void list_push_front(struct list *head, struct list *item) {
  list_push_back(head->next, item);
}

/* Safe on an item that is in no list. */
static inline void list_remove(struct list *item) {
  if (item->next) {
    item->prev->next = item->next;
    item->next->prev = item->prev;
  }
  list_init(item);
}

/* NULL where the list is empty. */
static inline struct list *list_pop_front(struct list *head) {
  if (list_empty(head)) return NULL;
  struct list *item = head->next;
  list_remove(item);
  return item;
}

/* Moves all of `from` to the end of `to`. */
static inline void list_splice_back(struct list *to, struct list *from) {
  if (list_empty(from)) return;
  from->next->prev = to->prev;
  to->prev->next = from->next;
  from->prev->next = to;
  to->prev = from->prev;
  list_init(from);
}

#define list_foreach(it, head) for (struct list *it = (head)->next; it != (head); it = it->next)
#define list_foreach_safe(it, head)                                      \
  for (struct list *it = (head)->next, *it##_n = it->next; it != (head); \
       it = it##_n, it##_n = it->next)

#endif
