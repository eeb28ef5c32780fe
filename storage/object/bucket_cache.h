/* bucket_cache.h: what this loop last read of buckets: a bounded table of positive answers, with
 * their age. Pure; the clock is the caller's. */
#ifndef KOFN_STORAGE_OBJECT_BUCKET_CACHE_H
#define KOFN_STORAGE_OBJECT_BUCKET_CACHE_H

#include "storage/object/object.h"

#define BUCKET_CACHE_SETS 256
#define BUCKET_CACHE_WAYS 4
#define BUCKET_CACHE_FRESH_MS 1000 /* PROTOCOL.md 12: believed without asking */
#define BUCKET_REVIVES_MAX 4
#define BUCKET_CACHE_STALE_MS 60000 /* and for reads, while no quorum answers */

struct bucket_cache;

_must_check_ int bucket_cache_new(struct bucket_cache **ret_cache);
void bucket_cache_free(struct bucket_cache *cache);

/* True and a copy where `name` was stored at most `age_max_ms` ago. */
bool bucket_cache_find(const struct bucket_cache *cache, struct slice name, uint64_t now_ms,
                       uint64_t age_max_ms, struct bucket_info *ret_info);
/* The oldest entry of the name's set makes room. `read_ms`: when the read that found it began. */
void bucket_cache_store(struct bucket_cache *cache, const struct bucket_info *info,
                        uint64_t read_ms);
void bucket_cache_drop(struct bucket_cache *cache, struct slice name);

/* At most BUCKET_REVIVES_MAX at a time; begin says whether there is room. */
bool bucket_cache_revive_begin(struct bucket_cache *cache);
void bucket_cache_revive_end(struct bucket_cache *cache);

#endif
