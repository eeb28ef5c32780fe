/* bench_codec_rows.c: rows in Ceph's columns, the JSON of a cell, and the plain `kofn bench codec`.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "config/err.h"
#include "server/bench_codec.h"
#include "server/cmd.h"

#define RANDOM_PATTERNS 16 /* they fit the cache of plans */

void bench_row_head(bool decode, bool grid) {
  printf("Plugin\tTechnique\tTime\tTotalSize\tk\tm\tIteration\tPacketSize%s%s\n",
         decode ? "\tErasures" : "", grid ? "\tGB/s\tisa/it" : "");
}

/* isa's speed over this plugin's, round by round. */
static struct bench_spread row_ratio(const struct bench_figures *f,
                                     const struct bench_figures *isa) {
  double ratios[BENCH_ROUNDS_MAX];
  unsigned n = MIN(f->rounds, isa->rounds);
  for (unsigned i = 0; i < n; i++) ratios[i] = isa->gb_s[i] / f->gb_s[i];
  return bench_spread_of(ratios, n);
}

/* TotalSize is in KiB, as in Ceph: the size of what was coded, once for each iteration. */
void bench_row(const struct bench_cell *cell, const struct bench_figures *f,
               const struct bench_figures *isa, bool grid) {
  uint64_t iterations = f->iterations * cell->threads;
  printf("%s\t%s\t%.6f\t%" PRIu64 "\t%u\t%u\t%" PRIu64 "\t%" PRIu64, f->plugin->name,
         cell->shape.technique, bench_spread_of(f->seconds, f->rounds).median,
         iterations * (cell->shape.size / 1024), cell->shape.k, cell->shape.m, iterations,
         bench_packet_size(&cell->shape));
  if (cell->decode) printf("\t%u", cell->erasures);
  if (grid) printf("\t%.3f", bench_spread_of(f->gb_s, f->rounds).median);
  if (grid && isa && isa != f) {
    struct bench_spread r = row_ratio(f, isa);
    printf("\t%.3f (%.3f..%.3f)", r.median, r.min, r.max);
  }
  putchar('\n');
}

json_t *bench_row_json(const struct bench_cell *cell, const struct bench_figures *f,
                       const struct bench_figures *isa) {
  json_t *row = json_pack(
      "{s:s, s:s, s:s, s:i, s:i, s:i, s:I, s:i, s:s, s:I, s:I, s:i, s:o, s:o, s:o}", "plugin",
      f->plugin->name, "technique", cell->shape.technique, "workload",
      cell->decode ? "decode" : "encode", "k", (int)cell->shape.k, "m", (int)cell->shape.m,
      "erasures", (int)cell->erasures, "size", (json_int_t)cell->shape.size, "threads",
      (int)cell->threads, "cache", cell->cold ? "cold" : "warm", "iterations",
      (json_int_t)f->iterations, "packet_size", (json_int_t)bench_packet_size(&cell->shape),
      "rounds", (int)f->rounds, "seconds",
      bench_spread_json(bench_spread_of(f->seconds, f->rounds)), "cpu_seconds",
      bench_spread_json(bench_spread_of(f->cpu, f->rounds)), "gb_s",
      bench_spread_json(bench_spread_of(f->gb_s, f->rounds)));
  if (isa && isa != f)
    json_object_set_new(row, "isa_over_this", bench_spread_json(row_ratio(f, isa)));
  return row;
}

static const struct bench_figures *figures_isa(const struct bench_figures *f, unsigned count) {
  for (unsigned i = 0; i < count; i++)
    if (f[i].plugin == &bench_plugin_isa) return &f[i];
  return NULL;
}

/* ---- `kofn bench codec` without --grid ---- */

static int plain_patterns(const struct bench_codec_options *o, struct bench_cell *cell,
                          uint32_t *patterns) {
  cell->patterns = patterns;
  if (o->erased.count > 0) {
    cell->erasures = (unsigned)o->erased.count;
    cell->pattern_count = 1;
    patterns[0] = 0;
    for (unsigned i = 0; i < o->erased.count; i++) patterns[0] |= UINT32_C(1) << o->erased.at[i];
    return 0;
  }
  cell->erasures = (unsigned)o->erasures;
  cell->exhaustive = strcmp(o->generation, "exhaustive") == 0;
  return bench_patterns(&cell->shape, cell->erasures, cell->exhaustive, RANDOM_PATTERNS, patterns,
                        &cell->pattern_count);
}

static int plain_verify(struct bench_bed *bed, const struct bench_cell *cell,
                        const struct bench_plugin *plugin, bool quiet) {
  char why[BENCH_WHY_BYTES] = "";
  int err = bench_cell_verify(bed, cell, plugin, why);
  if (err < 0) {
    fprintf(stderr, "kofn bench codec: %s\n", why);
    return CMD_FAILED;
  }
  if (!quiet)
    fprintf(stderr, "%s %s %u+%u: %u patterns verified\n", plugin->name, cell->shape.technique,
            cell->shape.k, cell->shape.m, cell->pattern_count);
  return CMD_OK;
}

/* One technique, size and number of threads: a row for each plugin. */
static int plain_cell(const struct bench_codec_options *o, const struct bench_cell *cell,
                      struct bench_bed *bed, json_t *cells) {
  struct bench_figures *figures = calloc(BENCH_PLUGINS_MAX, sizeof *figures);
  const struct bench_plugin *plugins[BENCH_PLUGINS_MAX];
  unsigned count = 0;
  int result = figures ? CMD_OK : CMD_FAILED;
  for (unsigned i = 0; i < o->plugins.count && i < BENCH_PLUGINS_MAX; i++)
    plugins[i] = bench_plugin_find(o->plugins.at[i]);
  for (unsigned i = 0; i < o->plugins.count && result == CMD_OK; i++) {
    char why[BENCH_WHY_BYTES] = "no memory";
    void *self;
    int err = plugins[i]->open(&cell->shape, &self, why);
    if (err == 0) {
      plugins[i]->close(self);
      if (o->verify) result = plain_verify(bed, cell, plugins[i], !o->verbose);
      continue;
    }
    fprintf(stderr, "kofn bench codec: %s\n", why);
    result = err == ERR_INVALID ? CMD_REFUSED : CMD_FAILED;
  }
  if (result == CMD_OK) {
    char why[BENCH_WHY_BYTES] = "interrupted";
    int err = bench_cell_run(bed, cell, plugins, o->plugins.count, (unsigned)o->rounds,
                             o->iterations, 0, figures, &count, why);
    if (err < 0 || bench_stop) {
      fprintf(stderr, "kofn bench codec: %s\n", bench_stop ? "interrupted" : err_words(err));
      result = CMD_FAILED;
    }
  }
  const struct bench_figures *isa = figures_isa(figures, count);
  for (unsigned i = 0; i < count && result == CMD_OK; i++) {
    bench_row(cell, &figures[i], isa, false);
    json_array_append_new(cells, bench_row_json(cell, &figures[i], isa));
  }
  free(figures);
  return result;
}

static int plain_run(const struct bench_codec_options *o, json_t *doc) {
  static uint32_t patterns[BENCH_PATTERNS_MAX];
  json_t *cells = json_array();
  json_object_set_new(doc, "cells", cells);
  bool decode = strcmp(o->workload, "decode") == 0;
  int result = CMD_OK;
  bench_row_head(decode, false);
  for (unsigned t = 0; t < o->techniques.count && result == CMD_OK; t++) {
    for (unsigned s = 0; s < o->sizes.count && result == CMD_OK; s++) {
      for (unsigned h = 0; h < o->threads.count && result == CMD_OK; h++) {
        struct bench_cell cell = {
            .shape = {o->techniques.at[t], (unsigned)o->k, (unsigned)o->m, o->sizes.at[s],
                      o->packet_size},
            .decode = decode,
            .cold = o->cold,
            .threads = (unsigned)o->threads.at[h],
        };
        if (decode && plain_patterns(o, &cell, patterns) < 0) {
          fprintf(
              stderr,
              "kofn bench codec: %s %u+%u rebuilds no loss of %u chunks, or there are more than "
              "%d of them\n",
              cell.shape.technique, cell.shape.k, cell.shape.m, cell.erasures, BENCH_PATTERNS_MAX);
          return CMD_REFUSED;
        }
        struct bench_bed bed;
        size_t unit = bench_unit_plain(&cell.shape) + 8 * 3100; /* jerasure rounds up to packets */
        size_t bytes = bench_slot_bytes(&cell.shape, unit);
        if (bench_bed_open(&bed, cell.threads, MAX(bytes, o->cold ? bench_cold_bytes() : 0)) < 0) {
          fprintf(stderr, "kofn bench codec: no memory for %zu bytes a thread\n", bytes);
          return CMD_FAILED;
        }
        result = plain_cell(o, &cell, &bed, cells);
        bench_bed_close(&bed);
      }
    }
  }
  return result;
}

static bool wants(const struct bench_codec_options *o, const char *part) {
  return o->only.count == 0 || bench_texts_has(&o->only, part);
}

static int grid_run(const struct bench_codec_options *o, json_t *doc) {
  int result = CMD_OK;
  if (result == CMD_OK && wants(o, "crc")) result = bench_codec_crc(o, doc);
  if (result == CMD_OK && wants(o, "passes")) result = bench_codec_passes(o, doc);
  if (result == CMD_OK && wants(o, "xor")) result = bench_codec_xor(o, doc);
  if (result == CMD_OK && wants(o, "table")) result = bench_codec_grid(o, doc);
  return result;
}

int bench_codec_run(const struct bench_codec_options *o) {
  char why[BENCH_WHY_BYTES];
  json_t *against = NULL;
  if (o->against && bench_load_json(o->against, "codec", &against, why) < 0) {
    fprintf(stderr, "kofn bench codec: %s\n", why);
    return CMD_REFUSED;
  }
  bench_catch_signals();
  struct xor_rates rates = {.count = 0};
  xor_kernel_calibrate(65536, (unsigned)MAX(sysconf(_SC_NPROCESSORS_ONLN), 1), &rates);
  json_t *doc =
      json_pack("{s:s, s:s, s:o, s:i, s:s, s:s}", "kofn_bench", "codec", "version", KOFN_VERSION,
                "machine", bench_machine(), "rounds", (int)o->rounds, "xor_kernel",
                xor_kernel_name(), "xor_kernel_large", xor_kernel_large_name());
  int result = o->grid ? grid_run(o, doc) : plain_run(o, doc);
  bench_progress_end();
  if (bench_stop) result = CMD_FAILED;
  fflush(stdout);
  if (result == CMD_OK && o->json && bench_save_json(o->json, doc) < 0) result = CMD_FAILED;
  if (result == CMD_OK && o->html && bench_save_page(o->html, doc, against) < 0)
    result = CMD_FAILED;
  json_decref(doc);
  json_decref(against);
  return result;
}
