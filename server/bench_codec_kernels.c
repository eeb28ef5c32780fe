/* bench_codec_kernels.c: below the codec: CRC32C by length, checksums in the encoder's pass or
 * behind it, and every XOR kernel beside ISA-L's and memcpy.
 *
 * Nanoseconds are of the CPU clock, medians of rounds in rotating order. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "codec/crc32c.h"
#include "config/err.h"
#include "server/bench_codec.h"
#include "server/cmd.h"

#define VARIANTS_MAX 24
#define SAMPLE_NS 1000000u
#define SAMPLE_NS_QUICK 100000u
#define XOR_SOURCES_MAX 10

/* Runs variant `v` once; `i` counts on, so that cold buffers come in turn. */
struct race {
  void (*run)(void *arg, unsigned v, uint64_t i);
  void *arg;
  unsigned variants, rounds;
  uint64_t sample_ns;
  double ns[VARIANTS_MAX][BENCH_ROUNDS_MAX]; /* of one call */
};

static uint64_t race_sample(struct race *r, unsigned v, uint64_t n, uint64_t *first) {
  uint64_t begin = bench_thread_ns();
  for (uint64_t i = 0; i < n; i++) r->run(r->arg, v, *first + i);
  *first += n;
  return MAX(bench_thread_ns() - begin, 1u);
}

static void race_run(struct race *r) {
  uint64_t n[VARIANTS_MAX], first = 0;
  for (unsigned v = 0; v < r->variants; v++) {
    uint64_t ns;
    for (n[v] = 1; (ns = race_sample(r, v, n[v], &first)) * 4 < r->sample_ns; n[v] *= 4) continue;
    n[v] = MAX(n[v] * r->sample_ns / ns, 1u);
  }
  for (unsigned round = 0; round < r->rounds && !bench_stop; round++)
    for (unsigned turn = 0; turn < r->variants; turn++) {
      unsigned v = (turn + round) % r->variants;
      r->ns[v][round] = (double)race_sample(r, v, n[v], &first) / (double)n[v];
    }
}

static double race_median(const struct race *r, unsigned v) {
  return bench_spread_of(r->ns[v], r->rounds).median;
}

/* How often `v` fits into the time of `base`: its relative speed, round by round. */
static struct bench_spread race_speed(const struct race *r, unsigned v, unsigned base) {
  double ratios[BENCH_ROUNDS_MAX];
  for (unsigned i = 0; i < r->rounds; i++) ratios[i] = r->ns[base][i] / r->ns[v][i];
  return bench_spread_of(ratios, r->rounds);
}

static struct race *race_new(const struct bench_codec_options *o,
                             void (*run)(void *, unsigned, uint64_t), void *arg,
                             unsigned variants) {
  struct race *r = calloc(1, sizeof *r);
  if (!r) return NULL;
  r->run = run;
  r->arg = arg;
  r->variants = MIN(variants, (unsigned)VARIANTS_MAX);
  r->rounds = (unsigned)o->rounds;
  r->sample_ns = o->quick ? SAMPLE_NS_QUICK : SAMPLE_NS;
  return r;
}

/* ---- CRC32C ---- */

static const unsigned crc_lengths[] = {64, 128, 256, 512, 1024, 1536, 2048, 3072, 4096};

struct crc_bench {
  unsigned implementations;
  size_t len;
  uint8_t bytes[4096];
  uint32_t sum;
};

static void crc_once(void *arg, unsigned v, uint64_t i) {
  struct crc_bench *b = arg;
  /* The sum goes into the next call: the time of one call, not of several side by side. */
  b->sum = v < b->implementations ? crc32c_run_at(v, b->sum, b->bytes, b->len)
                                  : crc32c(b->sum, b->bytes, b->len);
}

int bench_codec_crc(const struct bench_codec_options *o, json_t *doc) {
  struct crc_bench *b = calloc(1, sizeof *b);
  struct race *r = NULL;
  json_t *rows = json_array();
  json_object_set_new(doc, "crc32c", rows);
  if (b) {
    for (size_t i = 0; i < sizeof b->bytes; i++) b->bytes[i] = (uint8_t)(i * 167 + 13);
    while (crc32c_at(b->implementations)) b->implementations++;
    r = race_new(o, crc_once, b, b->implementations + 1);
  }
  if (!r) {
    free(b);
    return CMD_FAILED;
  }
  printf("CRC32C, ns a call (warm)\nBytes");
  for (unsigned v = 0; v < r->variants - 1; v++) printf("\t%s", crc32c_at(v));
  printf("\tcrc32c()\n");
  for (size_t l = 0; l < ARRAY_LEN(crc_lengths) && !bench_stop; l++) {
    b->len = crc_lengths[l];
    race_run(r);
    json_t *ns = json_object();
    printf("%zu", b->len);
    for (unsigned v = 0; v < r->variants; v++) {
      const char *name = v < b->implementations ? crc32c_at(v) : "crc32c()";
      printf("\t%.1f", race_median(r, v));
      json_object_set_new(ns, name, bench_spread_json(bench_spread_of(r->ns[v], r->rounds)));
    }
    printf("%s%s\n", "\t= ", crc32c_name(b->len));
    json_array_append_new(rows, json_pack("{s:I, s:o, s:s}", "bytes", (json_int_t)b->len, "ns", ns,
                                          "chosen", crc32c_name(b->len)));
  }
  free(r);
  free(b);
  return CMD_OK;
}

/* ---- checksums beside encoding ---- */

static const struct {
  unsigned k, m;
  size_t unit;
} pass_shapes[] = {{4, 2, 4096},   {4, 2, 65536}, {4, 2, 262144},
                   {10, 4, 65536}, {2, 1, 65536}, {6, 3, 65536}};
enum { PASS_ENCODE, PASS_BEHIND, PASS_BLOCKS, PASS_CHOSEN, PASS_COUNT };
static const char *const pass_names[] = {"encode", "passes", "blocks", "codec_encode_crc"};

struct pass_bench {
  struct codec *codec;
  struct bench_shape shape;
  struct bench_arena arena;
  size_t unit;
  unsigned slots, step;
  uint32_t sum;
};

static void pass_once(void *arg, unsigned v, uint64_t i) {
  struct pass_bench *b = arg;
  unsigned at = (unsigned)((i * b->step) % b->slots);
  struct bench_slot slot;
  bench_slot_set(&b->arena, &b->shape, b->unit, at, &slot);
  const uint8_t *const *data = (const uint8_t *const *)slot.units;
  uint8_t *const *parity = slot.units + b->shape.k;
  uint32_t crcs[MAP_SLOTS_MAX] = {0};
  switch (v) {
    case PASS_ENCODE:
      codec_encode(b->codec, data, parity, b->unit);
      return;
    case PASS_BEHIND:
      codec_encode_crc_passes(b->codec, data, parity, b->unit, NULL, crcs);
      break;
    case PASS_BLOCKS:
      codec_encode_crc_blocks(b->codec, data, parity, b->unit, NULL, crcs);
      break;
    default:
      codec_encode_crc(b->codec, data, parity, b->unit, NULL, crcs);
  }
  b->sum ^= crcs[0];
}

static int pass_row(struct pass_bench *b, struct race *r, size_t s, bool cold, json_t *rows) {
  struct profile p = {.technique = TECHNIQUE_REED_SOL_VAN,
                      .k = (uint8_t)pass_shapes[s].k,
                      .m = (uint8_t)pass_shapes[s].m,
                      .unit_bytes = (uint32_t)pass_shapes[s].unit};
  char size[32];
  int err = codec_new(&p, &b->codec);
  if (err < 0) return err;
  b->unit = pass_shapes[s].unit;
  b->shape = (struct bench_shape){"reed_sol_van", p.k, p.m, b->unit * p.k, 0};
  b->slots = cold ? (unsigned)(b->arena.bytes / bench_slot_bytes(&b->shape, b->unit)) : 1;
  b->step = bench_ring_step(b->slots);
  race_run(r);
  json_t *ns = json_object();
  printf("%u+%u\t%s\t%s", p.k, p.m, bench_size_words(b->unit, size), cold ? "cold" : "warm");
  for (unsigned v = 0; v < PASS_COUNT; v++) {
    printf("\t%.0f", race_median(r, v));
    json_object_set_new(ns, pass_names[v], bench_spread_json(bench_spread_of(r->ns[v], r->rounds)));
  }
  double ratios[BENCH_ROUNDS_MAX];
  for (unsigned i = 0; i < r->rounds; i++)
    ratios[i] = r->ns[PASS_CHOSEN][i] / r->ns[PASS_ENCODE][i] - 1;
  struct bench_spread cost = bench_spread_of(ratios, r->rounds);
  printf("\t%+.1f %% (%+.1f..%+.1f)\n", 100 * cost.median, 100 * cost.min, 100 * cost.max);
  json_array_append_new(rows,
                        json_pack("{s:i, s:i, s:I, s:s, s:o, s:o}", "k", p.k, "m", p.m, "unit",
                                  (json_int_t)b->unit, "cache", cold ? "cold" : "warm", "ns", ns,
                                  "crc_costs_of_encode", bench_spread_json(cost)));
  codec_free(b->codec);
  return 0;
}

int bench_codec_passes(const struct bench_codec_options *o, json_t *doc) {
  struct pass_bench b = {.sum = 0};
  struct race *r = race_new(o, pass_once, &b, PASS_COUNT);
  json_t *rows = json_array();
  json_object_set_new(doc, "encode_crc", rows);
  int err = r ? bench_arena_open(&b.arena, bench_cold_bytes()) : -ENOMEM;
  if (err == 0)
    printf(
        "\nEncode and CRC32C of all units, reed_sol_van, ns a stripe: encode alone; then all "
        "checksums behind it;\nblock after block; what the server does, and what it costs over "
        "encode alone\nk+m\tunit\tcache\tencode\tpasses\tblocks\tchosen\tcost\n");
  for (size_t s = 0; s < ARRAY_LEN(pass_shapes) && err == 0; s++)
    for (int cold = 0; cold <= 1 && err == 0 && !bench_stop; cold++) {
      bench_progress("encode and CRC: %zu of %zu", s + 1, ARRAY_LEN(pass_shapes));
      err = pass_row(&b, r, s, cold, rows);
    }
  bench_progress_end();
  bench_arena_close(&b.arena);
  free(r);
  if (err < 0) fprintf(stderr, "kofn bench codec: %s\n", err_words(err));
  return err < 0 ? CMD_FAILED : CMD_OK;
}

/* ---- XOR ---- */

static const unsigned xor_sources[] = {2, 3, 4, 6, 8, 10};
static const size_t xor_lengths[] = {512, 4096, 65536, 1048576, 16777216};

/* Variants: the kernels, then xor_blocks (the chosen one), then memcpy of as many source bytes. */
struct xor_bench {
  struct bench_arena arena;
  size_t len, stride;
  unsigned kernels, n, slots, step;
};

static void xor_once(void *arg, unsigned v, uint64_t i) {
  struct xor_bench *b = arg;
  uint8_t *at = b->arena.at + (i * b->step) % b->slots * b->stride, *dst = at + b->n * b->len;
  const uint8_t *src[XOR_SOURCES_MAX];
  for (unsigned s = 0; s < b->n; s++) src[s] = at + s * b->len;
  if (v < b->kernels)
    xor_kernel_run_at(v, dst, src, b->n, b->len);
  else if (v == b->kernels)
    xor_blocks(dst, src, b->n, b->len);
  else
    memcpy(dst, at, b->len);
}

static const char *xor_name(const struct xor_bench *b, unsigned v) {
  if (v < b->kernels) return xor_kernel_at(v);
  return v == b->kernels ? "chosen" : "memcpy";
}

static void xor_row(struct xor_bench *b, struct race *r, bool cold, json_t *rows) {
  unsigned isal = 0;
  char size[32];
  for (unsigned v = 0; v < b->kernels; v++)
    if (strcmp(xor_kernel_at(v), "isal") == 0) isal = v;
  b->stride = (b->n + 1) * b->len;
  b->slots = cold ? (unsigned)(b->arena.bytes / b->stride) : 1;
  b->step = bench_ring_step(b->slots);
  race_run(r);
  json_t *rates = json_object();
  const char *kernel =
      (b->n + 1) * b->len > xor_large_bytes() ? xor_kernel_large_name() : xor_kernel_name();
  printf("%u\t%s\t%s", b->n, bench_size_words(b->len, size), cold ? "cold" : "warm");
  for (unsigned v = 0; v < r->variants; v++) {
    /* GB/s of source bytes; memcpy copies one of them. */
    double gb[BENCH_ROUNDS_MAX], bytes = (double)b->len * (v <= b->kernels ? b->n : 1);
    for (unsigned i = 0; i < r->rounds; i++) gb[i] = bytes / r->ns[v][i];
    struct bench_spread s = bench_spread_of(gb, r->rounds);
    printf("\t%.2f", s.median);
    json_object_set_new(rates, xor_name(b, v), bench_spread_json(s));
  }
  struct bench_spread speed = race_speed(r, b->kernels, isal);
  printf("\t%.3f (%.3f..%.3f) %s\n", speed.median, speed.min, speed.max, kernel);
  json_array_append_new(
      rows, json_pack("{s:i, s:I, s:s, s:o, s:s, s:o}", "sources", (int)b->n, "bytes",
                      (json_int_t)b->len, "cache", cold ? "cold" : "warm", "gb_s", rates, "chosen",
                      kernel, "chosen_over_isal", bench_spread_json(speed)));
}

int bench_codec_xor(const struct bench_codec_options *o, json_t *doc) {
  struct xor_bench b = {.kernels = 0};
  while (xor_kernel_at(b.kernels)) b.kernels++;
  struct race *r = race_new(o, xor_once, &b, b.kernels + 2);
  json_t *rows = json_array();
  json_object_set_new(doc, "xor", rows);
  size_t longest = (XOR_SOURCES_MAX + 1) * xor_lengths[ARRAY_LEN(xor_lengths) - 1];
  int err = r ? bench_arena_open(&b.arena, MAX(bench_cold_bytes(), longest)) : -ENOMEM;
  if (err < 0) {
    fprintf(stderr, "kofn bench codec: %s\n", err_words(err));
    free(r);
    return CMD_FAILED;
  }
  printf("\nXOR kernels, GB/s of source bytes (memcpy: of copied bytes)\nsources\tblock\tcache");
  for (unsigned v = 0; v < r->variants; v++) printf("\t%s", xor_name(&b, v));
  printf("\tchosen over isal\n");
  for (size_t l = 0; l < ARRAY_LEN(xor_lengths); l++) {
    for (size_t s = 0; s < ARRAY_LEN(xor_sources); s++) {
      if (o->quick && (xor_sources[s] != 4 || l == ARRAY_LEN(xor_lengths) - 1)) continue;
      b.len = xor_lengths[l];
      b.n = xor_sources[s];
      for (int cold = 0; cold <= 1 && !bench_stop; cold++) {
        if (!cold && (b.n + 1) * b.len >= bench_cold_bytes()) continue;
        bench_progress("XOR: block %zu of %zu, %u sources", l + 1, ARRAY_LEN(xor_lengths), b.n);
        xor_row(&b, r, cold, rows);
      }
    }
  }
  bench_progress_end();
  bench_arena_close(&b.arena);
  free(r);
  return CMD_OK;
}
