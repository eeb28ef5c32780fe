/* block_pool.h: the chunk server's own memory: blocks for the units that travel through it.
 *
 * A block holds all units of one request, so that a request waits for one thing only and two that
 * hold half of what they need can never wait for each other. Blocks come in powers of two, are
 * mapped when first needed, kept for the next request, and given back by block_pool_trim. */
#ifndef KOFN_STORAGE_NET_BLOCK_POOL_H
#define KOFN_STORAGE_NET_BLOCK_POOL_H

#include "config/list.h"

#define BLOCK_BYTES_MIN 4096
#define BLOCK_CLASSES 13 /* 4 KiB .. 16 MiB */
#define BLOCK_BYTES_MAX (BLOCK_BYTES_MIN << (BLOCK_CLASSES - 1))

struct block {
  uint8_t *data; /* page-aligned */
  size_t size;
  struct list link;
  uint8_t class_index;
};

struct block_pool {
  size_t max, used, kept; /* bytes; used + kept <= max */
  struct list free[BLOCK_CLASSES];
};

/* max is at least BLOCK_BYTES_MAX. */
void block_pool_open(struct block_pool *p, size_t max);
/* No block may be in use. */
void block_pool_close(struct block_pool *p);
/* 0; ERR_SLOW_DOWN: wait until one is put back; -ENOMEM. bytes <= BLOCK_BYTES_MAX. */
_must_check_ int block_pool_get(struct block_pool *p, size_t bytes, struct block **ret_block);
void block_pool_put(struct block_pool *p, struct block *b); /* NULL is allowed */
/* Gives every kept block back to the kernel. */
void block_pool_trim(struct block_pool *p);

#endif
