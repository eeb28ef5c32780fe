/* plan.c: decode plans: which chunks are read, and the coefficients that make the wanted ones.
 *
 * A plan is built outside the lock (inverting costs microseconds, PLAN_CACHE_COUNT_MAX of them are
 * kept) and is immutable from then on. The cache holds one reference of each plan in it. */
#include "codec/plan.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "codec/stats.h"
#include "codec/xor3p.h"
#include "config/err.h"

struct codec_plan {
  struct list link; /* in plan_cache.lru; unlinked where only callers hold it */
  _Atomic unsigned refs;
  uint32_t have, want;                           /* the key: the erasure signature */
  uint32_t sources;                              /* of `have` */
  uint8_t in[MAP_SLOTS_MAX], out[MAP_SLOTS_MAX]; /* which units the coder's are */
  struct coder coder;
};

static void plan_unref(struct codec_plan *plan) {
  if (atomic_fetch_sub_explicit(&plan->refs, 1, memory_order_acq_rel) != 1) return;
  coder_close(&plan->coder);
  free(plan);
}

/* The chunks of a set in ascending order. */
static unsigned list_chunks(uint32_t set, uint8_t list[MAP_SLOTS_MAX]) {
  unsigned count = 0;
  for (; set; set &= set - 1) list[count++] = (uint8_t)__builtin_ctz(set);
  return count;
}

static int plan_build(const struct codec *c, uint32_t have, uint32_t want,
                      struct codec_plan **ret_plan) {
  uint8_t coefficients[MATRIX_BYTES_MAX];
  uint32_t sources;
  int err = codec_minimum(c, have, want, &sources);
  if (err < 0) return err;
  if (c->profile.technique == TECHNIQUE_XOR3P) {
    xor3p_rebuild(c->profile.k, sources, want, coefficients);
  } else {
    err = matrix_rebuild(c->rows, c->profile.k, sources, want, coefficients);
    if (err < 0) return err;
  }
  struct codec_plan *plan = calloc(1, sizeof *plan);
  if (!plan) return -ENOMEM;
  unsigned k = list_chunks(sources, plan->in), rows = list_chunks(want, plan->out);
  err = coder_open(&plan->coder, coefficients, k, rows);
  if (err < 0) {
    free(plan);
    return err;
  }
  list_init(&plan->link);
  atomic_init(&plan->refs, 1);
  plan->have = have;
  plan->want = want;
  plan->sources = sources;
  *ret_plan = plan;
  return 0;
}

/* Takes a reference for the caller and moves the plan to the front. The lock is held. */
static struct codec_plan *cache_find(struct plan_cache *cache, uint32_t have, uint32_t want) {
  list_foreach(it, &cache->lru) {
    struct codec_plan *plan = container_of(it, struct codec_plan, link);
    if (plan->have != have || plan->want != want) continue;
    if (cache->lru.next != &plan->link) {
      list_remove(&plan->link);
      list_push_front(&cache->lru, &plan->link);
    }
    atomic_fetch_add_explicit(&plan->refs, 1, memory_order_relaxed);
    return plan;
  }
  return NULL;
}

/* Adds a plan, unless another thread did meanwhile; returns the one to use. The plan that fell out
 * is left in *ret_spare for the caller to release without the lock. */
static struct codec_plan *cache_add(struct plan_cache *cache, struct codec_plan *plan,
                                    struct codec_plan **ret_spare) {
  struct codec_plan *found = cache_find(cache, plan->have, plan->want);
  if (found) {
    *ret_spare = plan;
    return found;
  }
  atomic_fetch_add_explicit(&plan->refs, 1, memory_order_relaxed);
  list_push_front(&cache->lru, &plan->link);
  if (cache->count < PLAN_CACHE_COUNT_MAX) {
    cache->count++;
  } else {
    struct list *oldest = cache->lru.prev;
    list_remove(oldest);
    *ret_spare = container_of(oldest, struct codec_plan, link);
  }
  return plan;
}

int codec_plan_get(struct codec *c, uint32_t have, uint32_t want, struct codec_plan **ret_plan) {
  uint32_t all = codec_all(c);
  if (want == 0 || (want & ~all) != 0 || (want & have) != 0) return ERR_INVALID;
  have &= all;

  struct plan_cache *cache = &c->plans;
  pthread_mutex_lock(&cache->lock);
  struct codec_plan *plan = cache_find(cache, have, want);
  pthread_mutex_unlock(&cache->lock);
  codec_count(plan ? STAT_PLAN_HIT : STAT_PLAN_MISS);
  if (!plan) {
    struct codec_plan *built, *spare = NULL;
    int err = plan_build(c, have, want, &built);
    if (err < 0) return err;
    pthread_mutex_lock(&cache->lock);
    plan = cache_add(cache, built, &spare);
    pthread_mutex_unlock(&cache->lock);
    if (spare) plan_unref(spare);
  }
  *ret_plan = plan;
  return 0;
}

void codec_plan_put(struct codec *c, struct codec_plan *plan) {
  (void)c; /* the plan stands alone; `c` says whose it is */
  if (plan) plan_unref(plan);
}

uint32_t codec_plan_sources(const struct codec_plan *plan) {
  return plan->sources;
}

bool codec_plan_is_xor(const struct codec_plan *plan) {
  return plan->coder.is_xor;
}

void codec_plan_run(const struct codec_plan *plan, uint8_t *const *units, size_t len) {
  const struct coder *coder = &plan->coder;
  const uint8_t *in[MAP_SLOTS_MAX];
  uint8_t *out[MAP_SLOTS_MAX];
  for (unsigned i = 0; i < coder->k; i++) in[i] = units[plan->in[i]];
  for (unsigned i = 0; i < coder->rows; i++) out[i] = units[plan->out[i]];
  codec_count(coder->is_xor ? STAT_DECODE_XOR : STAT_DECODE_GENERAL);
  coder_run(coder, in, out, len);
}

void plan_cache_open(struct plan_cache *cache) {
  pthread_mutex_init(&cache->lock, NULL);
  list_init(&cache->lru);
  cache->count = 0;
}

void plan_cache_close(struct plan_cache *cache) {
  struct list *it;
  while ((it = list_pop_front(&cache->lru)) != NULL) {
    plan_unref(container_of(it, struct codec_plan, link));
  }
  pthread_mutex_destroy(&cache->lock);
}
