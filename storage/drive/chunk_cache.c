/* chunk_cache.c: see chunk_cache.h. */
#include "storage/drive/chunk_cache.h"

#include <stdlib.h>

void chunk_cache_init(struct chunk_cache *c) {
  pthread_mutex_init(&c->mutex, NULL);
  for (unsigned i = 0; i < CHUNK_CACHE_BUCKETS; i++) list_init(&c->buckets[i]);
  list_init(&c->lru);
  c->count = 0;
  c->crc_bytes = 0;
}

static void cached_free(struct cached_chunk *chunk) {
  if (!chunk) return;
  store_file_close(chunk->file);
  free(chunk->info.crcs);
  free(chunk);
}

static struct list *cache_bucket(struct chunk_cache *c, const struct id128 *data_id) {
  return &c->buckets[load_be16(data_id->bytes + 6) % CHUNK_CACHE_BUCKETS];
}

static struct cached_chunk *cache_find(struct chunk_cache *c, const struct id128 *data_id,
                                       unsigned index) {
  list_foreach(it, cache_bucket(c, data_id)) {
    struct cached_chunk *chunk = container_of(it, struct cached_chunk, bucket_link);
    if (chunk->info.index == index && id128_eq(&chunk->info.data_id, data_id)) return chunk;
  }
  return NULL;
}

static void cache_use(struct chunk_cache *c, struct cached_chunk *chunk, uint64_t now_ms) {
  chunk->refs++;
  chunk->used_ms = now_ms;
  list_remove(&chunk->lru_link);
  list_push_back(&c->lru, &chunk->lru_link);
}

/* Unlinks; the one to be freed, or NULL while it is in use. */
static struct cached_chunk *cache_evict(struct chunk_cache *c, struct cached_chunk *chunk) {
  list_remove(&chunk->bucket_link);
  list_remove(&chunk->lru_link);
  c->count--;
  c->crc_bytes -= chunk->info.unit_count * sizeof chunk->info.crcs[0];
  return chunk->refs == 0 ? chunk : NULL;
}

void chunk_cache_close(struct chunk_cache *c) {
  while (!list_empty(&c->lru))
    cached_free(cache_evict(c, container_of(c->lru.next, struct cached_chunk, lru_link)));
  pthread_mutex_destroy(&c->mutex);
}

struct cached_chunk *chunk_cache_get(struct chunk_cache *c, const struct id128 *data_id,
                                     unsigned index, uint64_t now_ms) {
  pthread_mutex_lock(&c->mutex);
  struct cached_chunk *chunk = cache_find(c, data_id, index);
  if (chunk) cache_use(c, chunk, now_ms);
  pthread_mutex_unlock(&c->mutex);
  return chunk;
}

bool chunk_cache_used(struct chunk_cache *c, const struct id128 *data_id, unsigned index,
                      uint64_t since_ms) {
  pthread_mutex_lock(&c->mutex);
  struct cached_chunk *chunk = cache_find(c, data_id, index);
  bool used = chunk && (chunk->refs > 0 || chunk->used_ms > since_ms);
  pthread_mutex_unlock(&c->mutex);
  return used;
}

struct cached_chunk *chunk_cache_add(struct chunk_cache *c, struct store_file *file,
                                     const struct chunk_info *info, uint64_t now_ms) {
  struct list gone;
  list_init(&gone);
  struct cached_chunk *chunk = calloc(1, sizeof *chunk);
  if (!chunk) {
    store_file_close(file);
    free(info->crcs);
    return NULL;
  }
  chunk->file = file;
  chunk->info = *info;

  pthread_mutex_lock(&c->mutex);
  struct cached_chunk *other = cache_find(c, &info->data_id, info->index);
  if (!other) {
    list_push_back(cache_bucket(c, &info->data_id), &chunk->bucket_link);
    c->count++;
    c->crc_bytes += info->unit_count * sizeof info->crcs[0];
  }
  cache_use(c, other ? other : chunk, now_ms);
  while (c->count > CHUNK_CACHE_FILES_MAX || c->crc_bytes > CHUNK_CACHE_CRC_BYTES_MAX) {
    struct cached_chunk *oldest = container_of(c->lru.next, struct cached_chunk, lru_link);
    if (cache_evict(c, oldest)) list_push_back(&gone, &oldest->lru_link);
  }
  pthread_mutex_unlock(&c->mutex);

  if (other) cached_free(chunk);
  for (struct list *it; (it = list_pop_front(&gone));)
    cached_free(container_of(it, struct cached_chunk, lru_link));
  return other ? other : chunk;
}

void chunk_cache_put(struct chunk_cache *c, struct cached_chunk *chunk) {
  pthread_mutex_lock(&c->mutex);
  bool last = --chunk->refs == 0 && !list_linked(&chunk->lru_link);
  pthread_mutex_unlock(&c->mutex);
  if (last) cached_free(chunk);
}

void chunk_cache_forget(struct chunk_cache *c, const struct id128 *data_id, unsigned index) {
  pthread_mutex_lock(&c->mutex);
  struct cached_chunk *chunk = cache_find(c, data_id, index);
  if (chunk) chunk = cache_evict(c, chunk);
  pthread_mutex_unlock(&c->mutex);
  cached_free(chunk);
}
