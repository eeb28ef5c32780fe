/* plan_main_test.c: one codec under many threads, with more patterns than its cache holds, while
 * the XOR kernel is changed under them. No Criterion: this one runs under TSan. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "codec/codec.h"
#include "codec/plan.h"

#define THREADS 4
#define ROUNDS 3000
#define LEN 100
#define K 6
#define M 4

static struct codec *codec;
static uint8_t original[K + M][LEN];
static atomic_uint decoded, wrong, refused;
static atomic_bool done;

static void *decode_many(void *arg) {
  uint32_t random = *(const unsigned *)arg * 2654435761u + 1;
  uint8_t memory[K + M][LEN], *units[K + M];
  for (unsigned round = 0; round < ROUNDS; round++) {
    uint32_t lost = 0;
    while (__builtin_popcount(lost) < M) {
      random = random * 1664525u + 1013904223u;
      lost |= 1u << (random >> 16) % (K + M);
    }
    for (unsigned i = 0; i < K + M; i++) {
      units[i] = memory[i];
      if (lost >> i & 1) {
        memset(memory[i], 0, LEN);
      } else {
        memcpy(memory[i], original[i], LEN);
      }
    }
    struct codec_plan *plan;
    if (codec_plan_get(codec, ((1u << (K + M)) - 1) & ~lost, lost, &plan) < 0) {
      atomic_fetch_add(&refused, 1);
      continue;
    }
    codec_plan_run(plan, units, LEN);
    codec_plan_put(codec, plan);
    if (memcmp(memory, original, sizeof memory) != 0) atomic_fetch_add(&wrong, 1);
    atomic_fetch_add(&decoded, 1);
  }
  return NULL;
}

static void *change_kernels(void *arg) {
  while (!atomic_load(&done)) {
    xor_kernel_calibrate(4096, 2, NULL); /* as a server's start would, with threads of its own */
    for (unsigned i = 0; xor_kernel_at(i); i++) {
      if (xor_kernel_select(xor_kernel_at(i)) < 0 || codec_self_test() < 0)
        atomic_fetch_add(&wrong, 1);
    }
  }
  return NULL;
}

int main(void) {
  struct profile p = {TECHNIQUE_CAUCHY, K, M, 64};
  if (codec_new(&p, &codec) < 0) return 1;
  uint8_t *units[K + M];
  for (unsigned i = 0; i < K + M; i++) {
    units[i] = original[i];
    for (unsigned b = 0; b < LEN; b++) original[i][b] = (uint8_t)(i * 37 + b * 11);
  }
  codec_encode(codec, (const uint8_t *const *)units, units + K, LEN);

  pthread_t threads[THREADS], changer;
  unsigned seeds[THREADS];
  if (pthread_create(&changer, NULL, change_kernels, NULL) != 0) return 1;
  for (unsigned i = 0; i < THREADS; i++) {
    seeds[i] = i;
    if (pthread_create(&threads[i], NULL, decode_many, &seeds[i]) != 0) return 1;
  }
  for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  atomic_store(&done, true);
  pthread_join(changer, NULL);
  unsigned cached = codec->plans.count;
  codec_free(codec);
  struct codec_stats stats;
  codec_stats(&stats);
  bool counted = stats.plan_hits + stats.plan_misses >= THREADS * ROUNDS &&
                 stats.decode_general >= THREADS * ROUNDS;
  printf("decoded %u of %u, wrong %u, refused %u, plans kept %u (at most %d)\n", decoded,
         THREADS * ROUNDS, wrong, refused, cached, PLAN_CACHE_COUNT_MAX);
  bool ok = decoded == THREADS * ROUNDS && wrong == 0 && refused == 0 && counted &&
            cached == PLAN_CACHE_COUNT_MAX;
  puts(ok ? "ok" : "FAILED");
  return ok ? 0 : 1;
}
