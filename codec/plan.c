/* plan.c: decode plans: which k chunks are read, and the coefficients that make the wanted ones.
 *
 * A plan is built outside the lock (inverting costs microseconds, PLAN_CACHE_COUNT_MAX of them are
 * kept) and is immutable from then on. The cache holds one reference of each plan in it. */
#include "codec/plan.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "config/err.h"

struct codec_plan {
  struct list link; /* in plan_cache.lru; unlinked where only callers hold it */
  _Atomic unsigned refs;
  uint32_t sources, want;
  struct coder coder;
};

static uint32_t slots_mask(const struct profile *p) {
  unsigned n = profile_n(p);
  return n >= 32 ? UINT32_MAX : ((uint32_t)1 << n) - 1;
}

bool codec_decodable(const struct codec *c, uint32_t have) {
  /* Every technique within its proven limits is MDS: any k chunks decode. */
  return __builtin_popcount(have & slots_mask(&c->profile)) >= c->profile.k;
}

/* The lowest k chunks: data before parity, and the XOR parity before the others, so that a single
 * lost data chunk is an XOR whenever it can be. */
static uint32_t pick_sources(uint32_t have, unsigned k) {
  uint32_t sources = 0;
  for (unsigned i = 0; i < MAP_SLOTS_MAX && k > 0; i++) {
    if (!(have >> i & 1)) continue;
    sources |= (uint32_t)1 << i;
    k--;
  }
  return sources;
}

static void plan_unref(struct codec_plan *plan) {
  if (atomic_fetch_sub_explicit(&plan->refs, 1, memory_order_acq_rel) != 1) return;
  coder_close(&plan->coder);
  free(plan);
}

static int plan_build(const struct codec *c, uint32_t sources, uint32_t want,
                      struct codec_plan **ret_plan) {
  uint8_t coefficients[MATRIX_BYTES_MAX];
  unsigned k = c->profile.k;
  int err = matrix_rebuild(c->rows, k, sources, want, coefficients);
  if (err < 0) return err;
  struct codec_plan *plan = calloc(1, sizeof *plan);
  if (!plan) return -ENOMEM;
  err = coder_open(&plan->coder, coefficients, k, (unsigned)__builtin_popcount(want));
  if (err < 0) {
    free(plan);
    return err;
  }
  list_init(&plan->link);
  atomic_init(&plan->refs, 1);
  plan->sources = sources;
  plan->want = want;
  *ret_plan = plan;
  return 0;
}

/* Takes a reference for the caller and moves the plan to the front. The lock is held. */
static struct codec_plan *cache_find(struct plan_cache *cache, uint32_t sources, uint32_t want) {
  list_foreach(it, &cache->lru) {
    struct codec_plan *plan = container_of(it, struct codec_plan, link);
    if (plan->sources != sources || plan->want != want) continue;
    list_remove(&plan->link);
    list_push_front(&cache->lru, &plan->link);
    atomic_fetch_add_explicit(&plan->refs, 1, memory_order_relaxed);
    return plan;
  }
  return NULL;
}

/* Adds a plan, unless another thread did meanwhile; returns the one to use. The plan that fell out
 * is left in *ret_spare for the caller to release without the lock. */
static struct codec_plan *cache_add(struct plan_cache *cache, struct codec_plan *plan,
                                    struct codec_plan **ret_spare) {
  struct codec_plan *found = cache_find(cache, plan->sources, plan->want);
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
  uint32_t mask = slots_mask(&c->profile);
  if (want == 0 || (want & ~mask) != 0 || (want & have) != 0) return ERR_INVALID;
  if (!codec_decodable(c, have)) return ERR_UNAVAILABLE;
  uint32_t sources = pick_sources(have & mask, c->profile.k);

  struct plan_cache *cache = &c->plans;
  pthread_mutex_lock(&cache->lock);
  struct codec_plan *plan = cache_find(cache, sources, want);
  pthread_mutex_unlock(&cache->lock);
  if (!plan) {
    struct codec_plan *built, *spare = NULL;
    int err = plan_build(c, sources, want, &built);
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
  const uint8_t *in[MAP_SLOTS_MAX];
  uint8_t *out[MAP_SLOTS_MAX];
  unsigned in_count = 0, out_count = 0;
  for (unsigned i = 0; i < MAP_SLOTS_MAX; i++) {
    if (plan->sources >> i & 1) in[in_count++] = units[i];
    if (plan->want >> i & 1) out[out_count++] = units[i];
  }
  coder_run(&plan->coder, in, out, len);
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
