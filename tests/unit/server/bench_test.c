/* bench_test.c: `kofn bench`: its options, its statistics, erasure patterns, plugins, and pages. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "config/err.h"
#include "server/bench_codec.h"
#include "server/bench_system.h"

#define ARGS_MAX 24

/* argv of one line; options change it, so it is a copy. */
struct line {
  char text[512];
  char *argv[ARGS_MAX];
  int argc;
};

static void line_make(struct line *l, const char *text) {
  snprintf(l->text, sizeof l->text, "bench %s", text);
  l->argc = 0;
  for (char *at = l->text; at && l->argc < ARGS_MAX;) {
    l->argv[l->argc++] = at;
    at = strchr(at, ' ');
    if (at) *at++ = 0;
  }
}

static int codec_options(const char *text, struct bench_codec_options *o, char *why) {
  static struct line l; /* the options point into it */
  line_make(&l, text);
  return bench_codec_options(l.argc, l.argv, o, why);
}

static int system_options(const char *text, struct bench_system_options *o, char *why) {
  static struct line l;
  line_make(&l, text);
  return bench_system_options(l.argc, l.argv, o, why);
}

/* ---- options ---- */

Test(bench_options, cephs_command_line_is_understood) {
  struct bench_codec_options o;
  char why[BENCH_WHY_BYTES] = "";
  int err = codec_options(
      "--plugin isa --workload decode --iterations 1024 --size 4096 --erasures 2 --parameter k=10 "
      "--parameter m=4 --parameter packetsize=48 --parameter technique=cauchy "
      "--parameter jerasure-per-chunk-alignment=true --erasures-generation exhaustive",
      &o, why);
  cr_assert_eq(err, 0, "%s", why);
  cr_assert_eq(o.k, 10);
  cr_assert_eq(o.m, 4);
  cr_assert_eq(o.iterations, 1024);
  cr_assert_eq(o.sizes.count, 1);
  cr_assert_eq(o.sizes.at[0], 4096);
  cr_assert_eq(o.erasures, 2);
  cr_assert_eq(o.packet_size, 48);
  cr_assert_str_eq(o.techniques.at[0], "cauchy");
  cr_assert_str_eq(o.workload, "decode");
  cr_assert_str_eq(o.generation, "exhaustive");
}

Test(bench_options, letters_equals_signs_commas_and_repetition) {
  struct bench_codec_options o;
  char why[BENCH_WHY_BYTES] = "";
  cr_assert_eq(codec_options("-p isa,isal-direct -s 4KiB,1MiB --size=64KiB -t 1,2 -k 6 -m 3 "
                             "--rounds=7 --technique reed_sol_van --technique cauchy",
                             &o, why),
               0, "%s", why);
  cr_assert_eq(o.plugins.count, 2);
  cr_assert_str_eq(o.plugins.at[1], "isal-direct");
  cr_assert_eq(o.sizes.count, 3);
  cr_assert_eq(o.sizes.at[1], 1 << 20);
  cr_assert_eq(o.sizes.at[2], 64 << 10);
  cr_assert_eq(o.threads.at[1], 2);
  cr_assert_eq(o.techniques.count, 2);
  cr_assert_eq(o.rounds, 7);
}

Test(bench_options, the_grid_has_five_rounds_and_every_plugin) {
  struct bench_codec_options o;
  char why[BENCH_WHY_BYTES] = "";
  cr_assert_eq(codec_options("--grid", &o, why), 0, "%s", why);
  cr_assert_geq(o.rounds, 5);
  cr_assert_eq(o.plugins.count, 4);
  cr_assert_eq(o.techniques.count, 4);
  cr_assert_eq(o.sizes.at[0], 4 << 10);
  cr_assert_eq(o.sizes.at[o.sizes.count - 1], 64 << 20);
}

static const struct {
  const char *line, *words;
} codec_refused[] = {
    {"--nope", "there is no option `--nope`"},
    {"-x 1", "there is no option `-x`"},
    {"extra", "there is no option `extra`"},
    {"--size", "--size wants a value"},
    {"--verify=1", "--verify wants no value"},
    {"--size 4kb", "--size: `4kb` is not a size"},
    {"--size 1TiB", "--size: `1TiB` is not a size from 64 to"},
    {"--size ,", "--size: an empty value"},
    {"-k 0", "-k: `0` is not a number from 1"},
    {"-k 4x", "-k: `4x` is not a number"},
    {"-k -4", "-k: `-4` is not a number"},
    {"-k 99999999999999999999", "is not a number"},
    {"--rounds 100", "--rounds: `100` is not a number from 1 to 99"},
    {"--plugin shec", "there is no plugin `shec`"},
    {"--plugin isa,isa", "names isa twice"},
    {"--technique liberation", "there is no technique `liberation`"},
    {"-k 22 -m 4", "k=21"},
    {"--technique xor -k 4 -m 2", "xor"},
    {"--workload repair", "--workload is encode or decode"},
    {"--erasures-generation all", "--erasures-generation is random or exhaustive"},
    {"--workload decode --erasures 3", "erasures are a number from 1 to 2, not 3"},
    {"--workload decode --erasures 0", "erasures are a number from 1 to 2, not 0"},
    {"--workload decode --erased 6", "chunks are numbered from 0 to 5"},
    {"--workload decode --erased 1,1", "names chunk 1 twice"},
    {"--parameter k", "is not NAME=VALUE"},
    {"--parameter k=four", "--parameter k=four"},
    {"--against a.json", "--against wants --html"},
    {"--only crc", "--only wants --grid"},
    {"--grid --only rust", "`rust` is none of"},
    {"--grid -k 4", "-k and -m go together"},
};

Test(bench_options, what_is_refused_is_said_in_words) {
  for (size_t i = 0; i < ARRAY_LEN(codec_refused); i++) {
    struct bench_codec_options o = {.k = 77};
    char why[BENCH_WHY_BYTES] = "";
    cr_assert_eq(codec_options(codec_refused[i].line, &o, why), ERR_INVALID, "%s",
                 codec_refused[i].line);
    cr_assert_not_null(strstr(why, codec_refused[i].words), "%s: %s", codec_refused[i].line, why);
    cr_assert_eq(o.k, 77, "%s", codec_refused[i].line);
  }
}

static const struct {
  const char *line, *words;
} system_refused[] = {
    {"--url http://127.0.0.1:1", "--url and --admin go together"},
    {"--url http://127.0.0.1:1 --admin 127.0.0.1:2", "--user wants KEY:SECRET"},
    {"--url http://127.0.0.1:1 --admin 127.0.0.1:2 --user key", "--user wants KEY:SECRET"},
    {"--url http://127.0.0.1 --admin 127.0.0.1:2 --user a:b", "is not an address"},
    {"--url http://127.0.0.1:1 --admin 127.0.0.1:2 --user a:b --workload degraded", "stops a host"},
    {"--url http://127.0.0.1:1 --admin 127.0.0.1:2 --user a:b --hosts 3", "no --url"},
    {"--user a:b", "--url is missing"},
    {"--pool reed_sol_van", "is not TECHNIQUE:K+M"},
    {"--pool reed_sol_van:4+2x", "is not TECHNIQUE:K+M"},
    {"--pool nope:4+2", "there is no technique `nope`"},
    {"--pool xor:4+2", "--pool: "},
    {"--workload list", "`list` is none of put, get, degraded"},
    {"--hosts 17", "--hosts: `17` is not a number"},
    {"--size 0", "--size: `0` is not a size"},
    {"--connections 257", "--connections"},
};

Test(bench_options, system_refusals) {
  for (size_t i = 0; i < ARRAY_LEN(system_refused); i++) {
    struct bench_system_options o;
    char why[BENCH_WHY_BYTES] = "";
    cr_assert_eq(system_options(system_refused[i].line, &o, why), ERR_INVALID, "%s",
                 system_refused[i].line);
    cr_assert_not_null(strstr(why, system_refused[i].words), "%s: %s", system_refused[i].line, why);
  }
}

Test(bench_options, system_defaults) {
  struct bench_system_options o;
  char why[BENCH_WHY_BYTES] = "";
  cr_assert_eq(system_options("--size 64KiB", &o, why), 0, "%s", why);
  cr_assert_eq(o.size, 64 << 10);
  cr_assert_geq(o.rounds, BENCH_ROUNDS_TO_JUDGE);
  cr_assert_eq(o.workloads.count, 3);
  cr_assert_eq(system_options("--url 127.0.0.1:1 --admin 127.0.0.1:2 --user a:b", &o, why), 0);
  cr_assert_eq(o.workloads.count, 2); /* nobody's host is stopped */
}

/* ---- statistics ---- */

Test(bench_stats, medians_and_ranges) {
  const double odd[] = {5, 1, 9}, even[] = {4, 1, 2, 100};
  struct bench_spread s = bench_spread_of(odd, 3);
  cr_assert(s.median == 5 && s.min == 1 && s.max == 9);
  s = bench_spread_of(even, 4);
  cr_assert(s.median == 3 && s.min == 1 && s.max == 100);
  cr_assert(even[0] == 4, "the values are left as they are");
}

Test(bench_stats, the_sign_test_is_the_binomials) {
  cr_assert_float_eq(bench_sign_test(6, 6), 2.0 / 64, 1e-12);
  cr_assert_float_eq(bench_sign_test(0, 6), 2.0 / 64, 1e-12);
  cr_assert_float_eq(bench_sign_test(5, 6), 2.0 * 7 / 64, 1e-12);
  cr_assert_float_eq(bench_sign_test(9, 10), 2.0 * 11 / 1024, 1e-12);
  cr_assert_float_eq(bench_sign_test(3, 6), 1, 1e-12);
  cr_assert_float_eq(bench_sign_test(0, 0), 1, 1e-12);
}

Test(bench_stats, a_difference_is_called_one_only_outside_the_noise) {
  const double base[] = {10, 11, 10, 12, 11, 10};
  const double slower[] = {13, 14, 13, 15, 14, 13}, mixed[] = {9, 13, 11, 11, 12, 9};
  const double a_hair[] = {10.1, 11.1, 10.1, 12.1, 11.1, 10.1};
  char words[512];
  struct bench_verdict v = bench_compare(slower, base, 6);
  cr_assert(v.different && !v.overlap && v.higher == 6 && v.ratio > 1.2);
  bench_verdict_words(&v, 6, "isal", "time", words, sizeof words);
  cr_assert_not_null(strstr(words, "a difference"), "%s", words);
  v = bench_compare(mixed, base, 6);
  cr_assert(!v.different && v.overlap);
  bench_verdict_words(&v, 6, "isal", "time", words, sizeof words);
  cr_assert_not_null(strstr(words, "inside the noise"), "%s", words);
  v = bench_compare(a_hair, base, 6);
  cr_assert(!v.different, "always higher, but less than the rounds differ among themselves");
  v = bench_compare(slower, base, 3);
  cr_assert(!v.different);
  bench_verdict_words(&v, 3, "isal", "time", words, sizeof words);
  cr_assert_not_null(strstr(words, "too few rounds"), "%s", words);
}

Test(bench_stats, this_process_has_times) {
  double user = -1, system = -1;
  cr_assert(bench_process_times(getpid(), &user, &system));
  cr_assert(user >= 0 && system >= 0);
  cr_assert(!bench_process_times(0x3fffffff, &user, &system));
}

/* ---- patterns, packets, rings ---- */

Test(bench_codec, packet_sizes_are_those_of_cephs_table) {
  const struct {
    unsigned k;
    uint64_t packet;
  } ceph[] = {{2, 256}, {3, 160}, {4, 128}, {6, 80}, {10, 48}};
  for (size_t i = 0; i < ARRAY_LEN(ceph); i++) {
    struct bench_shape shape = {"reed_sol_van", ceph[i].k, 2, 4096, 0};
    cr_assert_eq(bench_packet_size(&shape), ceph[i].packet, "k=%u", ceph[i].k);
  }
  struct bench_shape large = {"cauchy", 2, 1, 64 << 20, 0};
  cr_assert_eq(bench_packet_size(&large), 3100);
}

Test(bench_codec, exhaustive_patterns_are_all_of_them_once) {
  static uint32_t patterns[BENCH_PATTERNS_MAX];
  struct bench_shape shape = {"cauchy", 6, 3, 4096, 0};
  unsigned count = 0;
  cr_assert_eq(bench_patterns(&shape, 3, true, 0, patterns, &count), 0);
  cr_assert_eq(count, 84);
  for (unsigned i = 0; i < count; i++) {
    cr_assert_eq(__builtin_popcount(patterns[i]), 3);
    cr_assert_lt(patterns[i], 1u << 9);
    for (unsigned j = 0; j < i; j++) cr_assert_neq(patterns[i], patterns[j]);
  }
  cr_assert_eq(bench_patterns(&shape, 4, true, 0, patterns, &count), ERR_INVALID);
  struct bench_shape many = {"cauchy", 20, 10, 4096, 0};
  cr_assert_eq(bench_patterns(&many, 10, true, 0, patterns, &count), ERR_TOO_LARGE);
}

Test(bench_codec, random_patterns_can_be_rebuilt_and_come_again_alike) {
  uint32_t a[16], b[16];
  unsigned n = 0, m = 0;
  struct bench_shape shape = {"xor3p", 3, 3, 4096, 0};
  cr_assert_eq(bench_patterns(&shape, 3, false, 16, a, &n), 0);
  cr_assert_eq(bench_patterns(&shape, 3, false, 16, b, &m), 0);
  cr_assert_eq(n, 16);
  cr_assert(memcmp(a, b, sizeof a) == 0);
  /* xor3p does not survive every loss of three: such ones are not asked for. */
  static uint32_t all[BENCH_PATTERNS_MAX];
  unsigned good = 0;
  cr_assert_eq(bench_patterns(&shape, 3, true, 0, all, &good), 0);
  cr_assert(good > 0 && good < 20, "%u of 20", good);
}

Test(bench_codec, a_cold_ring_visits_every_slot) {
  for (unsigned count = 1; count < 300; count++) {
    bool seen[300] = {false};
    unsigned step = bench_ring_step(count), at = 0, visited = 0;
    for (unsigned i = 0; i < count; i++, at = (at + step) % count) {
      visited += !seen[at];
      seen[at] = true;
    }
    cr_assert_eq(visited, count, "%u slots, step %u", count, step);
  }
}

/* Every plugin that is installed rebuilds what it encoded; a wrong one is told from a right one. */
static int wrong_decode(void *self, unsigned p, struct bench_slot *slot) {
  int err = bench_plugin_isa.decode(self, p, slot);
  slot->out[0][slot->len - 1] ^= 1;
  return err;
}

Test(bench_codec, plugins_are_verified) {
  static uint32_t patterns[BENCH_PATTERNS_MAX];
  static const struct bench_shape shapes[] = {{"reed_sol_van", 4, 2, 65536, 0},
                                              {"reed_sol_van", 3, 3, 4097, 0},
                                              {"cauchy", 6, 3, 4096, 0},
                                              {"xor", 5, 1, 9999, 0},
                                              {"xor3p", 3, 3, 30000, 0}};
  struct bench_plugin wrong = bench_plugin_isa;
  struct bench_bed bed;
  unsigned done = 0;
  wrong.decode = wrong_decode;
  cr_assert_eq(bench_bed_open(&bed, 1, 2 << 20), 0);
  for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
    for (unsigned e = 1; e <= shapes[s].m; e++) {
      struct bench_cell cell = {
          .shape = shapes[s], .decode = true, .erasures = e, .threads = 1, .patterns = patterns};
      char why[BENCH_WHY_BYTES] = "";
      cr_assert_eq(bench_patterns(&shapes[s], e, true, 0, patterns, &cell.pattern_count), 0);
      for (unsigned p = 0; bench_plugins[p]; p++) {
        void *self;
        if (bench_plugins[p]->open(&shapes[s], &self, why) < 0) continue;
        bench_plugins[p]->close(self);
        cr_assert_eq(bench_cell_verify(&bed, &cell, bench_plugins[p], why), 0, "%s", why);
        done++;
      }
      cr_assert_eq(bench_cell_verify(&bed, &cell, &wrong, why), ERR_CORRUPT);
    }
  }
  cr_assert_geq(done, 24, "isa and isal-direct at least, in each of 12 cells: %u", done);
  bench_bed_close(&bed);
}

Test(bench_codec, a_cell_samples_each_plugin_in_each_round) {
  static struct bench_figures figures[BENCH_PLUGINS_MAX];
  const struct bench_plugin *plugins[] = {&bench_plugin_isa, &bench_plugin_isal_direct};
  struct bench_cell cell = {.shape = {"reed_sol_van", 4, 2, 4096, 0}, .threads = 2, .cold = true};
  struct bench_bed bed;
  char why[BENCH_WHY_BYTES] = "";
  unsigned count = 0;
  cr_assert_eq(bench_bed_open(&bed, 2, 1 << 20), 0);
  cr_assert_eq(bench_cell_run(&bed, &cell, plugins, 2, 5, 10, 0, figures, &count, why), 0);
  cr_assert_eq(count, 2);
  for (unsigned i = 0; i < 2; i++) {
    cr_assert_eq(figures[i].rounds, 5);
    cr_assert_eq(figures[i].iterations, 10);
    for (unsigned r = 0; r < 5; r++)
      cr_assert(figures[i].seconds[r] > 0 && figures[i].cpu[r] > 0 && figures[i].gb_s[r] > 0);
  }
  bench_bed_close(&bed);
}

Test(bench_codec, a_library_that_is_missing_is_named_with_its_package) {
  char why[BENCH_WHY_BYTES] = "";
  void *library;
  cr_assert_eq(bench_library("libnosuch.so.9", "libnosuch9", &library, why), ERR_NOT_FOUND);
  cr_assert_not_null(strstr(why, "libnosuch.so.9 is not installed (Debian package libnosuch9)"));
}

/* ---- pages ---- */

static json_t *codec_doc(void) {
  json_t *doc = json_pack("{s:s, s:s, s:o, s:i, s:[]}", "kofn_bench", "codec", "version", "<9>&",
                          "machine", bench_machine(), "rounds", 5, "cells");
  const char *plugins[] = {"isa", "isal-direct"};
  for (int i = 0; i < 8; i++)
    json_array_append_new(
        json_object_get(doc, "cells"),
        json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:s, s:o}", "plugin", plugins[i % 2],
                  "technique", "cauchy", "workload", i < 4 ? "encode" : "decode", "k", 4, "m", 2,
                  "erasures", i < 4 ? 0 : 1, "size", i % 4 < 2 ? 65536 : 4096, "threads", 1,
                  "cache", "warm", "gb_s",
                  bench_spread_json((struct bench_spread){10 + i, 9, 20})));
  return doc;
}

static json_t *system_doc(void) {
  return json_pack("{s:s, s:s, s:o, s:i, s:[{s:s, s:s, s:s, s:o, s:o, s:[{s:s}]}]}", "kofn_bench",
                   "system", "version", "1", "machine", bench_machine(), "rounds", 6, "rows",
                   "workload", "put", "kind", "kernel", "name", "<b>avx2</b>", "real",
                   bench_spread_json((struct bench_spread){2, 1, 3}), "mb_s",
                   bench_spread_json((struct bench_spread){200, 100, 300}), "verdicts", "words",
                   "1.0 of isal: inside the noise");
}

/* Saves the page of a document and reads it back. */
static char *page_of(const json_t *doc, const json_t *against) {
  char path[] = "/tmp/kofn-bench-test-XXXXXX";
  static char text[1 << 20];
  close(mkstemp(path));
  cr_assert_eq(bench_save_page(path, doc, against), 0);
  FILE *f = fopen(path, "r");
  cr_assert_not_null(f);
  size_t n = fread(text, 1, sizeof text - 1, f);
  text[n] = 0;
  fclose(f);
  unlink(path);
  return text;
}

static unsigned count_of(const char *text, const char *what) {
  unsigned count = 0;
  for (; (text = strstr(text, what)) != NULL; text++) count++;
  return count;
}

static void page_is_self_contained(const char *page) {
  static const char *const outside[] = {"http:",   "https:",  "//",    "src=",    "href=", "url(",
                                        "@import", "<script", "<link", "<iframe", "nan",   "inf\""};
  for (size_t i = 0; i < ARRAY_LEN(outside); i++)
    cr_assert_null(strstr(page, outside[i]), "the page holds %s", outside[i]);
  cr_assert(strncmp(page, "<!DOCTYPE html>", 15) == 0);
  cr_assert_not_null(strstr(page, "</body></html>"));
  cr_assert_eq(count_of(page, "<svg "), count_of(page, "</svg>"));
}

Test(bench_page, codec) {
  json_t *doc = codec_doc(), *other = codec_doc();
  char *page = page_of(doc, other);
  page_is_self_contained(page);
  cr_assert_eq(count_of(page, "<svg "), 2, "one for encode, one for decode");
  cr_assert_not_null(strstr(page, "cauchy 4+2 decode, 1 lost"));
  cr_assert_not_null(strstr(page, "(the other run)"));
  cr_assert_not_null(strstr(page, "&lt;9&gt;&amp;"));
  cr_assert(strstr(page, ">4 KiB<") < strstr(page, ">64 KiB<"), "sizes in rising order");
  page = page_of(doc, NULL);
  cr_assert_null(strstr(page, "other run"));
  json_decref(doc);
  json_decref(other);
}

Test(bench_page, system) {
  json_t *doc = system_doc();
  char *page = page_of(doc, NULL);
  page_is_self_contained(page);
  cr_assert_null(strstr(page, "<b>avx2"));
  cr_assert_not_null(strstr(page, "&lt;b&gt;avx2&lt;/b&gt;"));
  cr_assert_not_null(strstr(page, "inside the noise"));
  json_decref(doc);
}

Test(bench_page, a_file_of_another_kind_is_refused) {
  char path[] = "/tmp/kofn-bench-test-XXXXXX", why[BENCH_WHY_BYTES] = "";
  json_t *doc = codec_doc(), *back = NULL;
  close(mkstemp(path));
  cr_assert_eq(bench_load_json(path, "codec", &back, why), ERR_INVALID); /* empty */
  cr_assert_eq(bench_save_json(path, doc), 0);
  cr_assert_eq(bench_load_json(path, "system", &back, why), ERR_INVALID);
  cr_assert_not_null(strstr(why, "was not written by `kofn bench system --json`"), "%s", why);
  cr_assert_eq(bench_load_json(path, "codec", &back, why), 0);
  cr_assert_eq(json_array_size(json_object_get(back, "cells")), 8);
  unlink(path);
  cr_assert_eq(bench_load_json(path, "codec", &back, why), ERR_INVALID);
  cr_assert_lt(bench_save_json("/tmp/no/such/directory/x", doc), 0);
  json_decref(back);
  json_decref(doc);
}
