/* plan.h: the inside of a codec and its cache of decode plans. Internal to codec/. */
#ifndef KOFN_CODEC_PLAN_H
#define KOFN_CODEC_PLAN_H

#include <pthread.h>

#include "codec/codec.h"
#include "codec/coder.h"
#include "config/list.h"

#define PLAN_CACHE_COUNT_MAX                                           \
  64 /* plans; an outage shows a handful of erasure patterns at a time \
      */

struct plan_cache {
  pthread_mutex_t lock;
  struct list lru; /* most recently used first */
  unsigned count;
};

struct codec {
  struct profile profile;
  uint8_t rows[MATRIX_BYTES_MAX];
  struct coder encoder;
  struct plan_cache plans;
};

/* The set of all k+m chunks. */
static inline uint32_t codec_all(const struct codec *c) {
  return (uint32_t)((UINT64_C(1) << profile_n(&c->profile)) - 1);
}

void plan_cache_open(struct plan_cache *cache);
void plan_cache_close(struct plan_cache *cache);

#endif
