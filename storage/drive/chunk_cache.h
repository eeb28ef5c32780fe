/* chunk_cache.h: open chunk files with their CRC tables, least recently used go first. Thread-safe.
 *
 * An entry that is in use outlives its eviction, and the unlinking of its file: a running GET
 * finishes on the file that it began with. */
#ifndef KOFN_STORAGE_DRIVE_CHUNK_CACHE_H
#define KOFN_STORAGE_DRIVE_CHUNK_CACHE_H

#include <pthread.h>

#include "config/list.h"
#include "storage/drive/chunk_file.h"

#define CHUNK_CACHE_FILES_MAX 256
#define CHUNK_CACHE_CRC_BYTES_MAX (16u << 20)
#define CHUNK_CACHE_BUCKETS 512

struct cached_chunk {
  struct list bucket_link, lru_link; /* not linked: evicted */
  struct store_file *file;
  struct chunk_info info;
  unsigned refs;
  uint64_t used_ms; /* wall clock of the last chunk_cache_get */
};

struct chunk_cache {
  pthread_mutex_t mutex;
  struct list buckets[CHUNK_CACHE_BUCKETS];
  struct list lru; /* the next to go first */
  unsigned count;
  uint64_t crc_bytes;
};

void chunk_cache_init(struct chunk_cache *c);
void chunk_cache_close(struct chunk_cache *c); /* nothing is in use */
/* NULL: not open. */
struct cached_chunk *chunk_cache_get(struct chunk_cache *c, const struct id128 *data_id,
                                     unsigned index, uint64_t now_ms);
/* Somebody reads it, or did after `since_ms`. */
bool chunk_cache_used(struct chunk_cache *c, const struct id128 *data_id, unsigned index,
                      uint64_t since_ms);
/* Takes file and info.crcs, also on failure. Where another thread was faster, its entry is
 * returned. NULL: no memory. */
struct cached_chunk *chunk_cache_add(struct chunk_cache *c, struct store_file *file,
                                     const struct chunk_info *info, uint64_t now_ms);
void chunk_cache_put(struct chunk_cache *c, struct cached_chunk *chunk);
/* The file is about to go. */
void chunk_cache_forget(struct chunk_cache *c, const struct id128 *data_id, unsigned index);

#endif
