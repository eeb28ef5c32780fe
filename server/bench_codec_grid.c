/* bench_codec_grid.c: the whole table of Ceph's xor_gen change, and more sizes, threads, caches.
 *
 * The time that is left is shared by the samples that are left, so that --seconds is kept: a
 * machine that is slow, or other work on it, makes samples shorter rather than the run longer. */
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "config/err.h"
#include "server/bench_codec.h"
#include "server/cmd.h"

#define GRID_PATTERNS 16
#define GRID_SAMPLE_NS_MIN 100000u
#define GRID_SAMPLE_NS_MAX 200000000u
#define GRID_SAMPLE_NS_QUICK 10000000u

static const struct {
  unsigned k, m;
} grid_shapes[] = {{2, 1},
                   {3, 2},
                   {4, 2},
                   {4, 3},
                   {6, 2},
                   {6, 3},
                   {6, 4},
                   {10, 3},
                   {10, 4},
                   /* not Ceph's: what xor takes beside 2+1, and what xor3p takes */
                   {4, 1},
                   {10, 1},
                   {3, 3},
                   {6, 6}};
#define GRID_SHAPES_CEPH 9
#define GRID_SHAPES_QUICK 3 /* 2+1, 3+2, 4+2 */

struct grid {
  const struct bench_codec_options *o;
  struct bench_bed bed;
  uint64_t end_ns;
  unsigned cells, done;
  bool counting;
  json_t *out;
  struct bench_figures *figures;
  uint32_t patterns[BENCH_PATTERNS_MAX];
};

/* The other libraries are measured where a user would meet them first: one thread, warm. */
static unsigned grid_plugins(const struct grid *g, const struct bench_cell *cell,
                             const struct bench_plugin **plugins) {
  unsigned count = 0;
  for (unsigned i = 0; i < g->o->plugins.count; i++) {
    const struct bench_plugin *p = bench_plugin_find(g->o->plugins.at[i]);
    bool own = p == &bench_plugin_isa || p == &bench_plugin_isal_direct;
    if (own || (!cell->cold && cell->threads == 1)) plugins[count++] = p;
  }
  return count;
}

static bool grid_takes(const char *technique, unsigned shape) {
  struct profile p = {
      .k = (uint8_t)grid_shapes[shape].k, .m = (uint8_t)grid_shapes[shape].m, .unit_bytes = 65536};
  char why[BENCH_WHY_BYTES];
  int found = technique_find(technique);
  if (found < 0) return false;
  p.technique = (uint8_t)found;
  bool ceph = shape < GRID_SHAPES_CEPH;
  if (strcmp(technique, "xor") == 0) return p.m == 1 && p.k > 1;
  if (strcmp(technique, "xor3p") == 0) return p.m == p.k && codec_check(&p, why, sizeof why) == 0;
  return (ceph || (p.m == 1 && p.k > 1)) && codec_check(&p, why, sizeof why) == 0;
}

static int grid_cell(struct grid *g, struct bench_cell *cell) {
  const struct bench_plugin *plugins[BENCH_PLUGINS_MAX];
  unsigned count = grid_plugins(g, cell, plugins), used = 0;
  char why[BENCH_WHY_BYTES] = "", size[32];
  if (g->counting) {
    g->cells++;
    return CMD_OK;
  }
  uint64_t now = bench_now_ns();
  if (now >= g->end_ns || bench_stop) return CMD_OK;
  unsigned rounds = (unsigned)g->o->rounds, left = g->cells - g->done;
  /* Finding the number of iterations costs about as much as a round. */
  uint64_t sample = (g->end_ns - now) / left / ((rounds + 1) * MAX(count, 1u)) / cell->threads;
  sample = MIN(sample, g->o->quick ? GRID_SAMPLE_NS_QUICK : GRID_SAMPLE_NS_MAX);
  sample = MAX(sample, GRID_SAMPLE_NS_MIN);
  bench_progress("%u of %u cells, %" PRIu64 " s left: %s %s %u+%u %s", g->done, g->cells,
                 (g->end_ns - now) / 1000000000u, cell->shape.technique,
                 cell->decode ? "decode" : "encode", cell->shape.k, cell->shape.m,
                 bench_size_words(cell->shape.size, size));
  g->done++;
  if (cell->decode && bench_patterns(&cell->shape, cell->erasures, false, GRID_PATTERNS,
                                     g->patterns, &cell->pattern_count) < 0)
    return CMD_OK; /* this technique rebuilds no such loss */
  cell->patterns = g->patterns;
  for (unsigned i = 0; g->o->verify && i < count; i++) {
    int err = bench_cell_verify(&g->bed, cell, plugins[i], why);
    if (err == ERR_CORRUPT) {
      fprintf(stderr, "kofn bench codec: %s\n", why);
      return CMD_FAILED;
    }
  }
  int err =
      bench_cell_run(&g->bed, cell, plugins, count, rounds, 0, sample, g->figures, &used, why);
  if (err < 0) used = 0;
  if (err == ERR_CORRUPT) return CMD_FAILED;
  bench_progress_end();
  const struct bench_figures *isa = NULL;
  for (unsigned i = 0; i < used; i++)
    if (g->figures[i].plugin == &bench_plugin_isa) isa = &g->figures[i];
  for (unsigned i = 0; i < used && !bench_stop; i++) {
    bench_row(cell, &g->figures[i], isa, true);
    json_array_append_new(g->out, bench_row_json(cell, &g->figures[i], isa));
  }
  return CMD_OK;
}

/* All shapes of one technique, workload, size, number of threads and state of the caches: a table
 * as Ceph's change has them. */
static int grid_section(struct grid *g, struct bench_cell *model) {
  char size[32];
  unsigned shapes = g->o->quick ? GRID_SHAPES_QUICK : GRID_SHAPES_CEPH;
  bool headed = g->counting;
  for (unsigned s = 0; s < ARRAY_LEN(grid_shapes); s++) {
    if ((s >= shapes && s < GRID_SHAPES_CEPH) || !grid_takes(model->shape.technique, s)) continue;
    if (g->o->quick && s > GRID_SHAPES_CEPH && grid_shapes[s].k != 3) continue;
    unsigned k = grid_shapes[s].k, m = grid_shapes[s].m;
    if (g->o->k && (g->o->k != k || g->o->m != m)) continue;
    for (unsigned e = 1; e <= (model->decode ? m : 1); e++) {
      struct bench_cell cell = *model;
      cell.shape.k = k;
      cell.shape.m = m;
      cell.erasures = cell.decode ? e : 0;
      if (!headed && bench_now_ns() < g->end_ns && !bench_stop) {
        printf("\n%s %s, %s objects, %u thread%s, %s\n", cell.decode ? "Decode" : "Encode",
               cell.shape.technique, bench_size_words(cell.shape.size, size), cell.threads,
               cell.threads > 1 ? "s" : "", cell.cold ? "cold" : "warm");
        bench_row_head(cell.decode, true);
        headed = true;
      }
      int result = grid_cell(g, &cell);
      if (result != CMD_OK) return result;
    }
  }
  if (!g->counting) fflush(stdout);
  return CMD_OK;
}

/* Objects larger than the caches are cold in any case: once is enough. */
static int grid_all(struct grid *g) {
  const struct bench_codec_options *o = g->o;
  int result = CMD_OK;
  for (unsigned s = 0; s < o->sizes.count; s++) {
    for (unsigned h = 0; h < o->threads.count; h++) {
      for (int cold = 0; cold <= 1; cold++) {
        if (!cold && o->sizes.at[s] >= bench_cold_bytes()) continue;
        for (unsigned t = 0; t < o->techniques.count; t++) {
          for (int decode = 0; decode <= 1 && result == CMD_OK; decode++) {
            struct bench_cell model = {
                .shape = {.technique = o->techniques.at[t], .size = o->sizes.at[s]},
                .decode = decode,
                .cold = cold,
                .threads = (unsigned)o->threads.at[h]};
            result = grid_section(g, &model);
          }
        }
      }
    }
  }
  return result;
}

static void grid_say_missing(struct grid *g) {
  struct bench_shape shape = {"reed_sol_van", 4, 2, 4096, 0};
  for (unsigned i = 0; i < g->o->plugins.count; i++) {
    char why[BENCH_WHY_BYTES] = "";
    void *self;
    const struct bench_plugin *p = bench_plugin_find(g->o->plugins.at[i]);
    if (p->open(&shape, &self, why) < 0)
      fprintf(stderr, "kofn bench codec: without %s: %s\n", p->name, why);
    else
      p->close(self);
  }
}

int bench_codec_grid(const struct bench_codec_options *o, json_t *doc) {
  struct grid *g = calloc(1, sizeof *g);
  size_t bytes = bench_cold_bytes();
  unsigned threads = 1;
  int result = CMD_FAILED;
  if (g) g->figures = calloc(BENCH_PLUGINS_MAX, sizeof *g->figures);
  if (!g || !g->figures) goto out;
  g->o = o;
  g->end_ns = bench_now_ns() + o->seconds * 1000000000u;
  for (unsigned i = 0; i < o->threads.count; i++)
    threads = MAX(threads, (unsigned)o->threads.at[i]);
  for (unsigned i = 0; i < o->sizes.count; i++)
    /* The worst of all shapes: 3+3 and 6+6 have three times the object, and packets' padding. */
    bytes = MAX(bytes, (size_t)(3 * o->sizes.at[i] + 18 * (64 + 8 * 3100)));
  g->out = json_array();
  json_object_set_new(doc, "cells", g->out);
  grid_say_missing(g);
  g->counting = true;
  if (grid_all(g) != CMD_OK) goto out;
  g->counting = false;
  if (bench_bed_open(&g->bed, threads, bytes) < 0) {
    fprintf(stderr, "kofn bench codec: no memory for %u times %zu bytes\n", threads, bytes);
    goto out;
  }
  result = grid_all(g);
  bench_bed_close(&g->bed);
  if (result == CMD_OK && g->done < g->cells && !bench_stop) {
    printf("\nThe time (--seconds %" PRIu64 ") was over after %u of %u cells.\n", o->seconds,
           g->done, g->cells);
    json_object_set_new(doc, "cells_left_out", json_integer(g->cells - g->done));
  }
out:
  if (g) free(g->figures);
  free(g);
  return result;
}
