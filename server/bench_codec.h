/* bench_codec.h: what the files of `kofn bench codec` share.
 *
 *   options -> cells (technique, k, m, size, ...) -> per round, in rotating order, a sample of each
 *   plugin -> medians and ratios -> a row in Ceph's columns, and in the JSON document
 *
 * A plugin is a way to call an erasure code: kofn's own API, ISA-L directly, another library. All
 * work on the same buffers: one arena a thread, cut into slots of one object each. */
#ifndef KOFN_SERVER_BENCH_CODEC_H
#define KOFN_SERVER_BENCH_CODEC_H

#include "codec/codec.h"
#include "server/bench.h"

#define BENCH_PATTERNS_MAX 4096 /* all of C(16, 5) would be 4368 */
#define BENCH_THREADS_MAX 64
#define BENCH_PLUGINS_MAX 8
#define BENCH_SIZE_MAX (UINT64_C(1) << 30)

struct bench_codec_options {
  struct bench_texts plugins, techniques, parameters, only;
  uint64_t k, m, iterations, erasures, rounds, seconds;
  struct bench_numbers sizes, erased, threads;
  const char *workload, *generation, *json, *html, *against;
  bool verify, verbose, grid, quick, cold;
  uint64_t packet_size; /* 0: as Ceph's bench.sh computes it */
};

/* Defaults, argv, and every check that needs no measuring: ERR_INVALID with words. */
_must_check_ int bench_codec_options(int argc, char **argv, struct bench_codec_options *ret_o,
                                     char why[BENCH_WHY_BYTES]);

/* What is coded. */
struct bench_shape {
  const char *technique;
  unsigned k, m;
  uint64_t size; /* of the object */
  uint64_t packet_size;
};

/* One object's place: n units, and room for rebuilt ones. */
struct bench_slot {
  uint8_t *units[MAP_SLOTS_MAX];
  uint8_t *out[MAP_SLOTS_MAX];
  size_t len; /* of a unit */
  uint64_t size;
  unsigned index; /* of the slot in its ring */
};

struct bench_plugin {
  const char *name;
  /* ERR_NOT_FOUND: the library is not installed; ERR_INVALID: it has no such code. `why` says. */
  int (*open)(const struct bench_shape *shape, void **ret_self, char why[BENCH_WHY_BYTES]);
  void (*close)(void *self);
  /* Length of a chunk of this shape. */
  size_t (*unit)(const struct bench_shape *shape);
  /* Before decode: the patterns (masks of erased chunks) that will be asked for, by index. */
  int (*patterns)(void *self, const uint32_t *erased, unsigned count);
  int (*encode)(void *self, struct bench_slot *slot);
  /* Rebuilds the chunks of pattern `p` into slot->out, lowest first. */
  int (*decode)(void *self, unsigned p, struct bench_slot *slot);
  /* May be NULL: the units of the slot were encoded, and out is compared with them. Else 0 or
   * ERR_CORRUPT; for libraries that keep the fragments themselves. */
  int (*verify)(void *self, unsigned p, struct bench_slot *slot);
};

extern const struct bench_plugin bench_plugin_isa, bench_plugin_isal_direct,
    bench_plugin_liberasurecode, bench_plugin_jerasure;
extern const struct bench_plugin *const bench_plugins[]; /* NULL at the end */
const struct bench_plugin *bench_plugin_find(const char *name);
/* ceil(size / k) rounded up to 64: as kofn cuts a small object. */
size_t bench_unit_plain(const struct bench_shape *shape);
/* Opens a library of a Debian package, or ERR_NOT_FOUND with words that name the package. */
_must_check_ int bench_library(const char *file, const char *package, void **ret_library,
                               char why[BENCH_WHY_BYTES]);

/* ---- buffers (bench_codec_arena.c) ---- */

/* One for each thread; all bytes were written once, with pages as large as the system gives. */
struct bench_arena {
  uint8_t *at;
  size_t bytes;
};
/* Twice the last-level cache: a ring of so many bytes is cold when it comes round. */
size_t bench_cold_bytes(void);
_must_check_ int bench_arena_open(struct bench_arena *a, size_t bytes);
void bench_arena_close(struct bench_arena *a);
size_t bench_slot_bytes(const struct bench_shape *shape, size_t unit);
/* The `i`-th slot; how many fit is arena.bytes / bench_slot_bytes. Entries behind k+m and m are
 * left as they are: this is inside what is measured. */
void bench_slot_set(const struct bench_arena *a, const struct bench_shape *shape, size_t unit,
                    unsigned i, struct bench_slot *slot);
/* A step that visits all of `count` slots and jumps between pages. */
unsigned bench_ring_step(unsigned count);

/* ---- one cell (bench_codec.c) ---- */

struct bench_cell {
  struct bench_shape shape;
  bool decode, cold;
  unsigned erasures, threads;
  const uint32_t *patterns; /* decode */
  unsigned pattern_count;
  bool exhaustive; /* an iteration decodes every pattern, as Ceph's does */
};

/* What a plugin did in a cell. */
struct bench_figures {
  const struct bench_plugin *plugin;
  uint64_t iterations; /* of each thread and round */
  unsigned rounds;
  double seconds[BENCH_ROUNDS_MAX]; /* wall clock */
  double cpu[BENCH_ROUNDS_MAX];     /* CPU seconds, the mean of the threads */
  double gb_s[BENCH_ROUNDS_MAX];    /* of object bytes, all threads, by the CPU clock */
};

struct bench_bed {
  struct bench_arena arenas[BENCH_THREADS_MAX];
  unsigned threads;
};

_must_check_ int bench_bed_open(struct bench_bed *bed, unsigned threads, size_t bytes);
void bench_bed_close(struct bench_bed *bed);

/* Samples every plugin `rounds` times in rotating order. `iterations` 0: so many as take
 * `sample_ns`. A plugin that cannot do the shape is left out (why says, when all are). */
_must_check_ int bench_cell_run(struct bench_bed *bed, const struct bench_cell *cell,
                                const struct bench_plugin *const *plugins, unsigned count,
                                unsigned rounds, uint64_t iterations, uint64_t sample_ns,
                                struct bench_figures *ret_figures, unsigned *ret_count,
                                char why[BENCH_WHY_BYTES]);
/* Encodes, and decodes every pattern, comparing: 0, ERR_CORRUPT, or the plugin's error. */
_must_check_ int bench_cell_verify(struct bench_bed *bed, const struct bench_cell *cell,
                                   const struct bench_plugin *plugin, char why[BENCH_WHY_BYTES]);
/* Masks of `erasures` lost chunks that the technique can rebuild: all of them, or `count` drawn
 * from a fixed seed. ERR_INVALID where there is none, or too many. */
_must_check_ int bench_patterns(const struct bench_shape *shape, unsigned erasures, bool exhaustive,
                                unsigned count, uint32_t *ret_patterns, unsigned *ret_count);
uint64_t bench_packet_size(const struct bench_shape *shape);

/* ---- the command ---- */

/* Prints a heading and Ceph's columns; then rows. */
void bench_row_head(bool decode, bool grid);
void bench_row(const struct bench_cell *cell, const struct bench_figures *f,
               const struct bench_figures *isa, bool grid);
json_t *bench_row_json(const struct bench_cell *cell, const struct bench_figures *f,
                       const struct bench_figures *isa);

/* Each adds to `doc` and prints; 0 or the command's exit status. */
int bench_codec_grid(const struct bench_codec_options *o, json_t *doc);
int bench_codec_crc(const struct bench_codec_options *o, json_t *doc);
int bench_codec_passes(const struct bench_codec_options *o, json_t *doc);
int bench_codec_xor(const struct bench_codec_options *o, json_t *doc);
/* `kofn bench codec`, behind its options: the exit status. */
int bench_codec_run(const struct bench_codec_options *o);

#endif
