/* block_pool.c: see block_pool.h. */
#include "storage/net/block_pool.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "config/err.h"

void block_pool_open(struct block_pool *p, size_t max) {
  assert(max >= BLOCK_BYTES_MAX);
  *p = (struct block_pool){.max = max};
  for (unsigned i = 0; i < BLOCK_CLASSES; i++) list_init(&p->free[i]);
}

static void unmap(struct block_pool *p, struct block *b) {
  p->kept -= b->size;
  munmap(b->data, b->size);
  free(b);
}

void block_pool_trim(struct block_pool *p) {
  for (unsigned i = 0; i < BLOCK_CLASSES; i++)
    for (struct list *l; (l = list_pop_front(&p->free[i]));)
      unmap(p, container_of(l, struct block, link));
}

void block_pool_close(struct block_pool *p) {
  assert(p->used == 0);
  block_pool_trim(p);
}

/* Gives kept blocks of other sizes back until `size` bytes more may be used. */
static void make_room(struct block_pool *p, size_t size) {
  for (unsigned i = BLOCK_CLASSES; i-- > 0;) {
    while (p->used + p->kept + size > p->max) {
      struct list *l = list_pop_front(&p->free[i]);
      if (!l) break;
      unmap(p, container_of(l, struct block, link));
    }
  }
}

int block_pool_get(struct block_pool *p, size_t bytes, struct block **ret_block) {
  assert(bytes > 0 && bytes <= BLOCK_BYTES_MAX);
  unsigned class_index = 0;
  while (((size_t)BLOCK_BYTES_MIN << class_index) < bytes) class_index++;
  size_t size = (size_t)BLOCK_BYTES_MIN << class_index;
  struct list *kept = list_pop_front(&p->free[class_index]);
  if (kept) {
    p->kept -= size;
    p->used += size;
    *ret_block = container_of(kept, struct block, link);
    return 0;
  }
  if (p->used + size > p->max) return ERR_SLOW_DOWN;
  make_room(p, size);
  struct block *b = malloc(sizeof *b);
  if (!b) return -ENOMEM;
  void *data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    free(b);
    return -ENOMEM;
  }
  *b = (struct block){.data = data, .size = size, .class_index = (uint8_t)class_index};
  p->used += size;
  *ret_block = b;
  return 0;
}

void block_pool_put(struct block_pool *p, struct block *b) {
  if (!b) return;
  assert(p->used >= b->size);
  p->used -= b->size;
  p->kept += b->size;
  /* The one used last is the one whose bytes are warm. */
  list_push_front(&p->free[b->class_index], &b->link);
}
