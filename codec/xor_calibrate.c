/* xor_calibrate.c: picks the XOR kernels at start.
 *
 * The only place in codec/ that reads a clock or starts a thread: a rate cannot be measured
 * without, and kernels that are equal alone differ when every core wants the memory. Two things are
 * timed:
 *
 *   warm  what a PUT does with a unit that has just arrived: XOR it into the parity, then take the
 *         parity's CRC32C. A streaming kernel wins only although its result is fetched again.
 *   cold  sources and result in memory; the write-back of the result counts, as it does when blocks
 *         larger than the caches go by. Where a program cannot flush a cache line, cold is warm.
 *
 * Each thread has its own stripe; a round begins for all at once. The best round counts: the others
 * were disturbed. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "codec/codec.h"
#include "codec/crc32c.h"
#include "codec/xor_kernel.h"

#define CALIBRATE_SOURCES 4
#define CALIBRATE_UNIT_BYTES_MIN ((size_t)4 << 10)
#define CALIBRATE_UNIT_BYTES_MAX ((size_t)256 << 10) /* larger ones only take longer */
#define CALIBRATE_THREADS_MAX 16
#define CALIBRATE_ROUNDS 6
#define CALIBRATE_WARM_BYTES ((size_t)1 << 20) /* of source bytes a round, at least one stripe */
#define CALIBRATE_NS_MAX 15000000              /* on a busy machine one round may have to do */
#define CALIBRATE_MARGIN 1.03
#define CALIBRATE_ALIGN 4096
#define CACHE_LINE_BYTES 64

struct calibration {
  size_t unit_bytes;
  unsigned kernels;
  pthread_barrier_t start;
  pthread_mutex_t lock;
  bool go; /* there is a barrier, and one more round */
  uint64_t begin_ns;
  double sum; /* of the round that runs, source bytes per ns */
  double warm[XOR_KERNELS_MAX], cold[XOR_KERNELS_MAX];
};

struct calibration_thread {
  struct calibration *c;
  unsigned index;
  uint8_t *memory;
  uint32_t crc; /* the sums must be taken, so they must go somewhere */
};

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Writes the lines back and drops them from every cache. */
static void flush_lines(const uint8_t *at, size_t len) {
#if defined(__x86_64__)
  for (size_t i = 0; i < len; i += CACHE_LINE_BYTES) __builtin_ia32_clflush(at + i);
  __builtin_ia32_mfence();
#elif defined(__aarch64__)
  for (size_t i = 0; i < len; i += CACHE_LINE_BYTES)
    __asm__ volatile("dc civac, %0" : : "r"(at + i) : "memory");
  __asm__ volatile("dsb ish" : : : "memory");
#endif
}

static double time_round(struct calibration_thread *t, const struct xor_kernel *kernel, bool cold) {
  size_t unit = t->c->unit_bytes, stripe = unit * CALIBRATE_SOURCES;
  const uint8_t *src[CALIBRATE_SOURCES];
  uint8_t *dst = t->memory + stripe;
  for (unsigned i = 0; i < CALIBRATE_SOURCES; i++) src[i] = t->memory + i * unit;
  unsigned times = cold ? 1 : (unsigned)MAX(1, CALIBRATE_WARM_BYTES / stripe);
  if (cold) flush_lines(t->memory, stripe + unit);

  pthread_barrier_wait(&t->c->start);
  uint64_t begin = now_ns();
  for (unsigned i = 0; i < times; i++) {
    kernel->run(dst, src, CALIBRATE_SOURCES, unit);
    if (cold) {
      flush_lines(dst, unit);
    } else {
      t->crc = crc32c(t->crc, dst, unit);
    }
  }
  uint64_t ns = MAX(now_ns() - begin, 1u);
  return (double)(stripe * times) / (double)ns;
}

/* Everybody's rates are added up; thread 0 keeps the best sum. */
static void note_round(struct calibration_thread *t, double rate, double *best) {
  struct calibration *c = t->c;
  pthread_mutex_lock(&c->lock);
  c->sum += rate;
  pthread_mutex_unlock(&c->lock);
  pthread_barrier_wait(&c->start);
  if (t->index == 0) {
    if (c->sum > *best) *best = c->sum;
    c->sum = 0;
  }
}

static void *calibrate_run(void *arg) {
  struct calibration_thread *t = arg;
  struct calibration *c = t->c;
  pthread_mutex_lock(&c->lock);
  bool go = c->go;
  pthread_mutex_unlock(&c->lock);
  for (unsigned round = 0; go && round < CALIBRATE_ROUNDS; round++) {
    for (unsigned i = 0; i < c->kernels; i++) {
      const struct xor_kernel *kernel = xor_kernel_get(i);
      note_round(t, time_round(t, kernel, false), &c->warm[i]);
      note_round(t, time_round(t, kernel, true), &c->cold[i]);
    }
    if (t->index == 0) c->go = now_ns() - c->begin_ns < CALIBRATE_NS_MAX;
    pthread_barrier_wait(&c->start);
    go = c->go;
  }
  return NULL;
}

/* Memory and threads; fewer than asked for where there are none to be had. False: not even one. */
static bool calibrate_threads(struct calibration *c, unsigned wanted) {
  struct calibration_thread thread[CALIBRATE_THREADS_MAX];
  pthread_t id[CALIBRATE_THREADS_MAX];
  size_t stripe = c->unit_bytes * (CALIBRATE_SOURCES + 1);
  uint8_t *memory = aligned_alloc(CALIBRATE_ALIGN, stripe * wanted);
  if (!memory) return false;
  for (size_t i = 0; i < stripe * wanted; i++) memory[i] = (uint8_t)(i * 131);
  for (unsigned i = 0; i < wanted; i++)
    thread[i] = (struct calibration_thread){.c = c, .index = i, .memory = memory + i * stripe};

  /* How many take part is known when all have been started: until then they wait at the lock. */
  unsigned started = 1;
  pthread_mutex_init(&c->lock, NULL);
  pthread_mutex_lock(&c->lock);
  while (started < wanted &&
         pthread_create(&id[started], NULL, calibrate_run, &thread[started]) == 0)
    started++;
  bool measured = c->go = pthread_barrier_init(&c->start, NULL, started) == 0;
  pthread_mutex_unlock(&c->lock);
  calibrate_run(&thread[0]);
  for (unsigned i = 1; i < started; i++) pthread_join(id[i], NULL);
  if (measured) pthread_barrier_destroy(&c->start);
  pthread_mutex_destroy(&c->lock);
  free(memory);
  return measured;
}

/* The library's own loop, the first, unless another is clearly faster: they differ in what was not
 * timed, and at equal rates it has won for short blocks. */
static unsigned best_of(const double *rates, unsigned count) {
  unsigned best = 0;
  double beat = rates[0] * CALIBRATE_MARGIN;
  for (unsigned i = 1; i < count; i++) {
    if (rates[i] <= beat) continue;
    best = i;
    beat = rates[i];
  }
  return best;
}

void xor_kernel_calibrate(size_t unit_bytes, unsigned threads, struct xor_rates *ret_rates) {
  struct calibration c = {
      .begin_ns = now_ns(),
      .unit_bytes = MIN(MAX(unit_bytes, CALIBRATE_UNIT_BYTES_MIN), CALIBRATE_UNIT_BYTES_MAX)};
  while (xor_kernel_get(c.kernels)) c.kernels++;
  /* aligned_alloc wants whole pages, and every unit shall begin on one */
  c.unit_bytes = DIV_UP(c.unit_bytes, CALIBRATE_ALIGN) * CALIBRATE_ALIGN;
  bool measured = calibrate_threads(&c, MIN(MAX(threads, 1u), CALIBRATE_THREADS_MAX));
  if (measured) /* else what was selected stays: every kernel is correct everywhere */
    xor_kernel_set(xor_kernel_get(best_of(c.warm, c.kernels)),
                   xor_kernel_get(best_of(c.cold, c.kernels)));
  if (!ret_rates) return;
  *ret_rates = (struct xor_rates){.count = measured ? c.kernels : 0};
  for (unsigned i = 0; i < ret_rates->count; i++) {
    ret_rates->name[i] = xor_kernel_at(i);
    ret_rates->warm[i] = c.warm[i];
    ret_rates->cold[i] = c.cold[i];
  }
  ret_rates->took_us = (unsigned)((now_ns() - c.begin_ns) / 1000);
}
