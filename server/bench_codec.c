/* bench_codec.c: one cell of the codec benchmark: every plugin sampled in paired, rotating rounds.
 *
 * A sample's speed is of the CPU clock of its threads: on a machine that does other things too the
 * wall clock measures these. Both are kept; the Time column is the wall clock, as Ceph's. */
#include "server/bench_codec.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "config/err.h"

#define ITERATIONS_MAX (UINT64_C(1) << 40)
#define PATTERN_SEED UINT64_C(0x2545f4914f6cdd1d)
#define PATTERN_TRIES 1000

/* One thread's part of a sample. */
struct sample {
  const struct bench_cell *cell;
  const struct bench_plugin *plugin;
  void *self;
  const struct bench_arena *arena;
  size_t unit;
  uint64_t iterations;
  uint64_t first; /* iteration number: patterns and slots go on from round to round */
  pthread_barrier_t *barrier;
  uint64_t cpu_ns, begin_ns, end_ns;
  int err;
};

int bench_bed_open(struct bench_bed *bed, unsigned threads, size_t bytes) {
  *bed = (struct bench_bed){.threads = 0};
  for (unsigned i = 0; i < threads; i++) {
    int err = bench_arena_open(&bed->arenas[i], bytes);
    if (err < 0) {
      bench_bed_close(bed);
      return err;
    }
    bed->threads = i + 1;
  }
  return 0;
}

void bench_bed_close(struct bench_bed *bed) {
  for (unsigned i = 0; i < bed->threads; i++) bench_arena_close(&bed->arenas[i]);
  bed->threads = 0;
}

static int sample_loop(struct sample *s) {
  const struct bench_cell *cell = s->cell;
  unsigned slots =
      (unsigned)MIN(s->arena->bytes / bench_slot_bytes(&cell->shape, s->unit), 1u << 20);
  if (slots == 0) return -ENOMEM;
  unsigned step = cell->cold ? bench_ring_step(slots) : 0,
           at = cell->cold ? (unsigned)(s->first % slots) : 0;
  unsigned p = cell->pattern_count ? (unsigned)(s->first % cell->pattern_count) : 0;
  struct bench_slot slot = {.len = 0};
  bench_slot_set(s->arena, &cell->shape, s->unit, at, &slot);
  int err = 0;
  for (uint64_t i = 0; i < s->iterations && err == 0; i++) {
    if (cell->cold) bench_slot_set(s->arena, &cell->shape, s->unit, at, &slot);
    if (!cell->decode) {
      err = s->plugin->encode(s->self, &slot);
    } else if (!cell->exhaustive) {
      err = s->plugin->decode(s->self, p, &slot);
      p = p + 1 == cell->pattern_count ? 0 : p + 1;
    } else {
      for (unsigned e = 0; e < cell->pattern_count && err == 0; e++)
        err = s->plugin->decode(s->self, e, &slot);
    }
    at += step;
    if (at >= slots) at -= slots;
  }
  return err;
}

static void *sample_main(void *arg) {
  struct sample *s = arg;
  if (s->barrier) pthread_barrier_wait(s->barrier);
  uint64_t cpu = bench_thread_ns();
  s->begin_ns = bench_now_ns();
  s->err = sample_loop(s);
  s->end_ns = bench_now_ns();
  s->cpu_ns = bench_thread_ns() - cpu;
  return NULL;
}

/* Runs the sample in cell->threads threads; seconds of the wall clock and of the CPU clock. */
static int sample_run(struct bench_bed *bed, const struct sample *model, double *ret_seconds,
                      double *ret_cpu) {
  struct sample samples[BENCH_THREADS_MAX];
  pthread_t threads[BENCH_THREADS_MAX];
  pthread_barrier_t barrier;
  unsigned count = model->cell->threads;
  pthread_barrier_init(&barrier, NULL, count);
  for (unsigned i = 0; i < count; i++) {
    samples[i] = *model;
    samples[i].arena = &bed->arenas[i];
    samples[i].barrier = count > 1 ? &barrier : NULL;
  }
  for (unsigned i = 1; i < count; i++) {
    if (pthread_create(&threads[i], NULL, sample_main, &samples[i]) == 0) continue;
    fprintf(stderr, "kofn bench: no thread can be made\n");
    exit(1); /* the others wait at the barrier for ever */
  }
  sample_main(&samples[0]);
  uint64_t begin = samples[0].begin_ns, end = samples[0].end_ns, cpu = samples[0].cpu_ns;
  int err = samples[0].err;
  for (unsigned i = 1; i < count; i++) {
    pthread_join(threads[i], NULL);
    begin = MIN(begin, samples[i].begin_ns);
    end = MAX(end, samples[i].end_ns);
    cpu += samples[i].cpu_ns;
    if (err == 0) err = samples[i].err;
  }
  pthread_barrier_destroy(&barrier);
  *ret_seconds = (double)MAX(end - begin, 1u) / 1e9;
  *ret_cpu = (double)MAX(cpu, 1u) / count / 1e9;
  return err;
}

/* ---- patterns ---- */

static bool patterns_add(struct codec *codec, uint32_t all, uint32_t erased, uint32_t *patterns,
                         unsigned *count) {
  if (!codec_decodable(codec, all & ~erased)) return false;
  patterns[(*count)++] = erased;
  return true;
}

int bench_patterns(const struct bench_shape *shape, unsigned erasures, bool exhaustive,
                   unsigned count, uint32_t *ret_patterns, unsigned *ret_count) {
  struct profile profile = {.k = (uint8_t)shape->k, .m = (uint8_t)shape->m, .unit_bytes = 65536};
  struct codec *codec;
  unsigned n = shape->k + shape->m, found = 0;
  int technique = technique_find(shape->technique);
  if (technique < 0 || erasures < 1 || erasures > n) return ERR_INVALID;
  profile.technique = (uint8_t)technique;
  int err = codec_new(&profile, &codec);
  if (err < 0) return err;
  uint32_t all = (uint32_t)((UINT64_C(1) << n) - 1);
  uint64_t x = PATTERN_SEED;
  if (exhaustive) {
    uint64_t mask = (UINT64_C(1) << erasures) - 1, lowest, up;
    for (; mask <= all; mask = (((up ^ mask) >> 2) / lowest) | up) { /* the next of as many bits */
      lowest = mask & -mask;
      up = mask + lowest;
      if (found == BENCH_PATTERNS_MAX) err = ERR_TOO_LARGE;
      if (err < 0) break;
      patterns_add(codec, all, (uint32_t)mask, ret_patterns, &found);
    }
  } else {
    for (unsigned tries = 0; found < count && tries < count * PATTERN_TRIES; tries++) {
      uint32_t mask = 0;
      while ((unsigned)__builtin_popcount(mask) < erasures) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        mask |= UINT32_C(1) << (x >> 32) % n;
      }
      patterns_add(codec, all, mask, ret_patterns, &found);
    }
  }
  codec_free(codec);
  if (err == 0 && found == 0) err = ERR_INVALID;
  if (err == 0) *ret_count = found;
  return err;
}

/* What Ceph's bench.sh passes: the object's share of a chunk in words of 16 bytes, at most 3100. */
uint64_t bench_packet_size(const struct bench_shape *shape) {
  if (shape->packet_size) return shape->packet_size;
  return MIN(shape->size / shape->k / 8 / 16 * 16, 3100u);
}

/* ---- a cell ---- */

static int plugin_open(const struct bench_plugin *plugin, const struct bench_cell *cell,
                       void **ret_self, char *why) {
  void *self;
  int err = plugin->open(&cell->shape, &self, why);
  if (err < 0) return err;
  if (cell->decode) err = plugin->patterns(self, cell->patterns, cell->pattern_count);
  if (err < 0) {
    snprintf(why, BENCH_WHY_BYTES, "%s cannot rebuild what was erased", plugin->name);
    plugin->close(self);
    return err;
  }
  *ret_self = self;
  return 0;
}

/* Doubles until the sample is long enough to tell how long one iteration takes. */
static int cell_iterations(struct bench_bed *bed, struct sample *model, uint64_t sample_ns,
                           uint64_t *ret_iterations) {
  double seconds = 0, cpu = 0;
  uint64_t n = 1;
  for (;; n *= 4) {
    model->iterations = n;
    int err = sample_run(bed, model, &seconds, &cpu);
    if (err < 0) return err;
    if (cpu * 1e9 * 4 >= (double)sample_ns || n >= ITERATIONS_MAX) break;
  }
  double wanted = (double)n * (double)sample_ns / 1e9 / cpu;
  *ret_iterations = wanted < 1 ? 1 : (uint64_t)wanted;
  return 0;
}

static void figures_add(struct bench_figures *f, const struct bench_cell *cell, double seconds,
                        double cpu) {
  double bytes = (double)cell->shape.size * (double)f->iterations * cell->threads;
  if (cell->exhaustive) bytes *= cell->pattern_count;
  f->seconds[f->rounds] = seconds;
  f->cpu[f->rounds] = cpu;
  f->gb_s[f->rounds] = bytes / cpu / 1e9;
  f->rounds++;
}

int bench_cell_run(struct bench_bed *bed, const struct bench_cell *cell,
                   const struct bench_plugin *const *plugins, unsigned count, unsigned rounds,
                   uint64_t iterations, uint64_t sample_ns, struct bench_figures *ret_figures,
                   unsigned *ret_count, char why[BENCH_WHY_BYTES]) {
  struct sample samples[BENCH_PLUGINS_MAX];
  unsigned used = 0;
  int err = ERR_INVALID;
  for (unsigned i = 0; i < count && used < BENCH_PLUGINS_MAX; i++) {
    struct sample *s = &samples[used];
    *s = (struct sample){.cell = cell, .plugin = plugins[i]};
    err = plugin_open(plugins[i], cell, &s->self, why);
    if (err < 0) continue;
    s->unit = plugins[i]->unit(&cell->shape);
    ret_figures[used] = (struct bench_figures){.plugin = plugins[i], .iterations = iterations};
    if (iterations == 0) err = cell_iterations(bed, s, sample_ns, &ret_figures[used].iterations);
    s->iterations = ret_figures[used].iterations;
    used++;
    if (err < 0) break;
  }
  if (used > 0 && err < 0 && samples[used - 1].iterations == 0) goto out;
  err = used > 0 ? 0 : err;
  for (unsigned round = 0; round < rounds && err == 0 && !bench_stop; round++) {
    for (unsigned turn = 0; turn < used && err == 0; turn++) {
      unsigned i = (turn + round) % used;
      double seconds, cpu;
      err = sample_run(bed, &samples[i], &seconds, &cpu);
      if (err == 0) figures_add(&ret_figures[i], cell, seconds, cpu);
      samples[i].first += samples[i].iterations;
    }
  }
out:
  for (unsigned i = 0; i < used; i++) samples[i].plugin->close(samples[i].self);
  if (err == 0) *ret_count = used;
  return err;
}

int bench_cell_verify(struct bench_bed *bed, const struct bench_cell *cell,
                      const struct bench_plugin *plugin, char why[BENCH_WHY_BYTES]) {
  void *self;
  int err = plugin_open(plugin, cell, &self, why);
  if (err < 0) return err;
  struct bench_slot slot = {.len = 0};
  bench_slot_set(&bed->arenas[0], &cell->shape, plugin->unit(&cell->shape), 0, &slot);
  err = plugin->encode(self, &slot);
  for (unsigned p = 0; cell->decode && p < cell->pattern_count && err == 0; p++) {
    if (plugin->verify) {
      err = plugin->verify(self, p, &slot);
      continue;
    }
    for (unsigned i = 0; i < cell->shape.m; i++) memset(slot.out[i], 0x5a, slot.len);
    err = plugin->decode(self, p, &slot);
    unsigned out = 0;
    for (uint32_t left = cell->patterns[p]; left && err == 0; left &= left - 1, out++)
      if (memcmp(slot.out[out], slot.units[__builtin_ctz(left)], slot.len) != 0) err = ERR_CORRUPT;
  }
  if (err < 0)
    snprintf(why, BENCH_WHY_BYTES, "%s rebuilds other bytes than were encoded: %s", plugin->name,
             err_words(err));
  plugin->close(self);
  return err;
}
