/* bucket_cache.c: a set-associative table: fixed memory, no list to keep. */
#include "storage/object/bucket_cache.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

struct bucket_cache_entry {
  struct bucket_info info;
  uint64_t read_ms;
  bool used;
};

struct bucket_cache {
  struct bucket_cache_entry sets[BUCKET_CACHE_SETS][BUCKET_CACHE_WAYS];
  unsigned reviving;
};

int bucket_cache_new(struct bucket_cache **ret_cache) {
  struct bucket_cache *cache = calloc(1, sizeof *cache);
  if (!cache) return -ENOMEM;
  *ret_cache = cache;
  return 0;
}

void bucket_cache_free(struct bucket_cache *cache) {
  free(cache);
}

/* FNV-1a: names are short, and an attacker gains nothing but misses. */
static unsigned set_of(struct slice name) {
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < name.len; i++) hash = (hash ^ name.data[i]) * 16777619u;
  return (hash ^ hash >> 16) % BUCKET_CACHE_SETS;
}

static bool entry_is(const struct bucket_cache_entry *e, struct slice name) {
  return e->used && slice_eq(slice_str(e->info.name), name);
}

bool bucket_cache_find(const struct bucket_cache *cache, struct slice name, uint64_t now_ms,
                       uint64_t age_max_ms, struct bucket_info *ret_info) {
  const struct bucket_cache_entry *set = cache->sets[set_of(name)];
  for (unsigned i = 0; i < BUCKET_CACHE_WAYS; i++) {
    if (!entry_is(&set[i], name)) continue;
    if (now_ms - set[i].read_ms > age_max_ms) return false;
    *ret_info = set[i].info;
    return true;
  }
  return false;
}

void bucket_cache_store(struct bucket_cache *cache, const struct bucket_info *info,
                        uint64_t read_ms) {
  struct bucket_cache_entry *set = cache->sets[set_of(slice_str(info->name))], *to = &set[0];
  for (unsigned i = 0; i < BUCKET_CACHE_WAYS; i++) {
    if (entry_is(&set[i], slice_str(info->name))) {
      to = &set[i];
      break;
    }
    if (to->used && (!set[i].used || set[i].read_ms < to->read_ms)) to = &set[i];
  }
  /* A slow read must not replace what a later one found. */
  if (entry_is(to, slice_str(info->name)) && to->read_ms > read_ms) return;
  *to = (struct bucket_cache_entry){.info = *info, .read_ms = read_ms, .used = true};
}

void bucket_cache_drop(struct bucket_cache *cache, struct slice name) {
  struct bucket_cache_entry *set = cache->sets[set_of(name)];
  for (unsigned i = 0; i < BUCKET_CACHE_WAYS; i++)
    if (entry_is(&set[i], name)) set[i].used = false;
}

bool bucket_cache_revive_begin(struct bucket_cache *cache) {
  if (cache->reviving == BUCKET_REVIVES_MAX) return false;
  cache->reviving++;
  return true;
}

void bucket_cache_revive_end(struct bucket_cache *cache) {
  assert(cache->reviving > 0);
  cache->reviving--;
}
