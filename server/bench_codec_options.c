/* bench_codec_options.c: what `kofn bench codec` may be told: Ceph's names, and kofn's own. */
#include <stdlib.h>
#include <unistd.h>

#include "config/err.h"
#include "server/bench_codec.h"

#define ITERATIONS_MAX UINT64_C(1000000000)
#define SECONDS_GRID 600
#define SECONDS_QUICK 20
#define ROUNDS_GRID 5

#define AT(field) offsetof(struct bench_codec_options, field)
static const struct bench_option codec_options[] = {
    {"plugin", 'p', BENCH_TEXTS, AT(plugins), 0, 0},
    {"technique", 0, BENCH_TEXTS, AT(techniques), 0, 0},
    {"k", 'k', BENCH_NUMBER, AT(k), 1, MAP_SLOTS_MAX - 1},
    {"m", 'm', BENCH_NUMBER, AT(m), 1, MAP_SLOTS_MAX - 1},
    {"size", 's', BENCH_SIZES, AT(sizes), 64, BENCH_SIZE_MAX},
    {"iterations", 'i', BENCH_NUMBER, AT(iterations), 1, ITERATIONS_MAX},
    {"workload", 'w', BENCH_TEXT, AT(workload), 0, 0},
    {"erasures", 'e', BENCH_NUMBER, AT(erasures), 0, MAP_SLOTS_MAX - 1},
    {"erased", 0, BENCH_NUMBERS, AT(erased), 0, MAP_SLOTS_MAX - 1},
    {"erasures-generation", 'E', BENCH_TEXT, AT(generation), 0, 0},
    {"parameter", 'P', BENCH_TEXTS, AT(parameters), 0, 0},
    {"verify", 0, BENCH_FLAG, AT(verify), 0, 0},
    {"verbose", 'v', BENCH_FLAG, AT(verbose), 0, 0},
    {"threads", 't', BENCH_NUMBERS, AT(threads), 1, BENCH_THREADS_MAX},
    {"cold", 0, BENCH_FLAG, AT(cold), 0, 0},
    {"rounds", 'r', BENCH_NUMBER, AT(rounds), 1, BENCH_ROUNDS_MAX},
    {"grid", 0, BENCH_FLAG, AT(grid), 0, 0},
    {"only", 0, BENCH_TEXTS, AT(only), 0, 0},
    {"quick", 0, BENCH_FLAG, AT(quick), 0, 0},
    {"seconds", 0, BENCH_NUMBER, AT(seconds), 1, 86400},
    {"json", 0, BENCH_TEXT, AT(json), 0, 0},
    {"html", 0, BENCH_TEXT, AT(html), 0, 0},
    {"against", 0, BENCH_TEXT, AT(against), 0, 0},
    {NULL, 0, BENCH_FLAG, 0, 0, 0},
};

/* Ceph's -P k=4: the parameters of its plugins that mean something here; others are ignored, as
 * its plugins do. */
static int options_parameters(struct bench_codec_options *o, char *why) {
  for (unsigned i = 0; i < o->parameters.count; i++) {
    const char *text = o->parameters.at[i], *value = strchr(text, '=');
    char *end;
    if (!value) return bench_refuse(why, "--parameter: `%.60s` is not NAME=VALUE", text);
    size_t len = (size_t)(value++ - text);
    if (len == 9 && memcmp(text, "technique", 9) == 0) {
      o->techniques = (struct bench_texts){{value}, 1};
      continue;
    }
    uint64_t *into = len == 1 && text[0] == 'k'                         ? &o->k
                     : len == 1 && text[0] == 'm'                       ? &o->m
                     : len == 10 && memcmp(text, "packetsize", 10) == 0 ? &o->packet_size
                                                                        : NULL;
    if (!into) continue;
    uint64_t most = into == &o->packet_size ? 3100 : MAP_SLOTS_MAX - 1;
    *into = strtoull(value, &end, 10);
    if (end == value || *end || *into < 1 || *into > most)
      return bench_refuse(why, "--parameter %.60s: not a number from 1 to %u", text,
                          (unsigned)most);
  }
  return 0;
}

static void texts_default(struct bench_texts *list, const char *const *names) {
  if (list->count > 0) return;
  for (; *names; names++) list->at[list->count++] = *names;
}

static void options_defaults(struct bench_codec_options *o) {
  static const char *const every_plugin[] = {"isa", "isal-direct", "liberasurecode", "jerasure",
                                             NULL};
  static const char *const every_technique[] = {"reed_sol_van", "cauchy", "xor", "xor3p", NULL};
  static const char *const one_plugin[] = {"isa", NULL}, *const one[] = {"reed_sol_van", NULL};
  long cores = MIN(MAX(sysconf(_SC_NPROCESSORS_ONLN), 1), BENCH_THREADS_MAX);
  texts_default(&o->plugins, o->grid ? every_plugin : one_plugin);
  texts_default(&o->techniques, o->grid ? every_technique : one);
  if (!o->workload) o->workload = "encode";
  if (!o->generation) o->generation = "random";
  if (!o->rounds) o->rounds = o->grid ? ROUNDS_GRID : 1;
  if (!o->seconds) o->seconds = o->quick ? SECONDS_QUICK : SECONDS_GRID;
  if (!o->grid) {
    bool xor = strcmp(o->techniques.at[0], "xor") == 0;
    bool xor3p = strcmp(o->techniques.at[0], "xor3p") == 0;
    if (!o->k) o->k = xor3p ? 3 : 4;
    if (!o->m) o->m = xor? 1 : xor3p ? 3 : 2;
    if (!o->sizes.count) o->sizes = (struct bench_numbers){{1 << 20}, 1};
    if (!o->threads.count) o->threads = (struct bench_numbers){{1}, 1};
    if (!o->iterations) o->iterations = 1;
    return;
  }
  if (o->sizes.count == 0 && o->quick) o->sizes = (struct bench_numbers){{4 << 10, 1 << 20}, 2};
  for (uint64_t size = 4 << 10; o->sizes.count < BENCH_LIST_MAX && size <= 64 << 20; size *= 4) {
    if (o->quick || (o->sizes.count && o->sizes.at[o->sizes.count - 1] >= size)) break;
    o->sizes.at[o->sizes.count++] = size;
  }
  if (o->threads.count == 0) {
    o->threads = (struct bench_numbers){{1}, 1};
    if (cores > 1 && !o->quick) o->threads.at[o->threads.count++] = (uint64_t)cores;
  }
}

static int options_check_decode(const struct bench_codec_options *o, char *why) {
  for (unsigned i = 0; i < o->erased.count; i++) {
    if (o->erased.at[i] >= o->k + o->m)
      return bench_refuse(why, "--erased %u: chunks are numbered from 0 to %u",
                          (unsigned)o->erased.at[i], (unsigned)(o->k + o->m - 1));
    for (unsigned j = 0; j < i; j++)
      if (o->erased.at[j] == o->erased.at[i])
        return bench_refuse(why, "--erased names chunk %u twice", (unsigned)o->erased.at[i]);
  }
  uint64_t lost = o->erased.count ? o->erased.count : o->erasures;
  if (lost < 1 || lost > o->m)
    return bench_refuse(why, "%u+%u: erasures are a number from 1 to %u, not %u", (unsigned)o->k,
                        (unsigned)o->m, (unsigned)o->m, (unsigned)lost);
  return 0;
}

static int options_check_shape(const struct bench_codec_options *o, char *why) {
  for (unsigned i = 0; i < o->techniques.count; i++) {
    char words[BENCH_WHY_BYTES];
    int technique = technique_find(o->techniques.at[i]);
    struct profile p = {.k = (uint8_t)o->k, .m = (uint8_t)o->m, .unit_bytes = 65536};
    if (technique < 0 || technique == TECHNIQUE_NONE)
      return bench_refuse(why, "there is no technique `%.60s`", o->techniques.at[i]);
    p.technique = (uint8_t)technique;
    if (codec_check(&p, words, sizeof words) < 0) return bench_refuse(why, "%.200s", words);
  }
  return strcmp(o->workload, "decode") == 0 ? options_check_decode(o, why) : 0;
}

static int options_check(const struct bench_codec_options *o, char *why) {
  static const char *const parts[] = {"table", "crc", "passes", "xor", NULL};
  static const char *const techniques[] = {"reed_sol_van", "cauchy", "xor", "xor3p", NULL};
  for (unsigned i = 0; i < o->plugins.count; i++) {
    if (!bench_plugin_find(o->plugins.at[i]))
      return bench_refuse(why,
                          "there is no plugin `%.40s`: isa, isal-direct, liberasurecode, jerasure",
                          o->plugins.at[i]);
    for (unsigned j = 0; j < i; j++)
      if (strcmp(o->plugins.at[i], o->plugins.at[j]) == 0)
        return bench_refuse(why, "--plugin names %.40s twice", o->plugins.at[i]);
  }
  const char *stranger = bench_texts_stranger(&o->only, parts);
  if (stranger)
    return bench_refuse(why, "--only: `%.40s` is none of table, crc, passes, xor", stranger);
  if (strcmp(o->workload, "encode") != 0 && strcmp(o->workload, "decode") != 0)
    return bench_refuse(why, "--workload is encode or decode, not `%.40s`", o->workload);
  if (strcmp(o->generation, "random") != 0 && strcmp(o->generation, "exhaustive") != 0)
    return bench_refuse(why, "--erasures-generation is random or exhaustive, not `%.40s`",
                        o->generation);
  if (o->against && !o->html) return bench_refuse(why, "--against wants --html");
  if (!o->grid) {
    if (o->only.count) return bench_refuse(why, "--only wants --grid");
    return options_check_shape(o, why);
  }
  stranger = bench_texts_stranger(&o->techniques, techniques);
  if (stranger) return bench_refuse(why, "there is no technique `%.60s`", stranger);
  if ((o->k != 0) != (o->m != 0)) return bench_refuse(why, "-k and -m go together with --grid");
  return 0;
}

int bench_codec_options(int argc, char **argv, struct bench_codec_options *ret_o,
                        char why[BENCH_WHY_BYTES]) {
  struct bench_codec_options o = {.erasures = 1};
  int err = bench_options_parse(codec_options, argc, argv, &o, why);
  if (err == 0) err = options_parameters(&o, why);
  if (err < 0) return err;
  options_defaults(&o);
  err = options_check(&o, why);
  if (err == 0) *ret_o = o;
  return err;
}
