/* bench_system_options.c: what `kofn bench system` may be told. */
#include <stdlib.h>

#include "codec/codec.h"
#include "config/err.h"
#include "server/bench_system.h"

#define AT(field) offsetof(struct bench_system_options, field)
static const struct bench_option system_options[] = {
    {"url", 'u', BENCH_TEXTS, AT(urls), 0, 0},
    {"admin", 'a', BENCH_TEXTS, AT(admins), 0, 0},
    {"user", 0, BENCH_TEXT, AT(user), 0, 0},
    {"pid", 0, BENCH_NUMBERS, AT(pids), 1, 1u << 22},
    {"hosts", 0, BENCH_NUMBER, AT(hosts), 1, BENCH_HOSTS_MAX},
    {"drives", 0, BENCH_NUMBER, AT(drives), 1, 16},
    {"dir", 0, BENCH_TEXT, AT(dir), 0, 0},
    {"pool", 0, BENCH_TEXTS, AT(pools), 0, 0},
    {"kernels", 0, BENCH_TEXTS, AT(kernels), 0, 0},
    {"workload", 'w', BENCH_TEXTS, AT(workloads), 0, 0},
    {"size", 's', BENCH_SIZE, AT(size), 1, UINT64_C(1) << 30},
    {"objects", 'n', BENCH_NUMBER, AT(objects), 1, 1000000},
    {"passes", 0, BENCH_NUMBER, AT(passes), 1, 1000},
    {"connections", 'c', BENCH_NUMBER, AT(connections), 1, BENCH_CONNECTIONS_MAX},
    {"rounds", 'r', BENCH_NUMBER, AT(rounds), 1, BENCH_ROUNDS_MAX},
    {"seconds", 0, BENCH_NUMBER, AT(seconds), 1, 3600},
    {"quick", 0, BENCH_FLAG, AT(quick), 0, 0},
    {"json", 0, BENCH_TEXT, AT(json), 0, 0},
    {"html", 0, BENCH_TEXT, AT(html), 0, 0},
    {"against", 0, BENCH_TEXT, AT(against), 0, 0},
    {NULL, 0, BENCH_FLAG, 0, 0, 0},
};

int bench_pool_parse(const char *text, struct bench_pool *ret_pool, char why[BENCH_WHY_BYTES]) {
  struct bench_pool p = {.k = 0};
  char words[BENCH_WHY_BYTES];
  int end = 0;
  if (sscanf(text, "%31[a-z0-9_]:%2u+%2u%n", p.technique, &p.k, &p.m, &end) != 3 || text[end])
    return bench_refuse(why, "--pool: `%.60s` is not TECHNIQUE:K+M", text);
  int technique = technique_find(p.technique);
  struct profile profile = {.k = (uint8_t)p.k, .m = (uint8_t)p.m, .unit_bytes = 65536};
  if (technique < 0) return bench_refuse(why, "--pool: there is no technique `%s`", p.technique);
  profile.technique = (uint8_t)technique;
  if (codec_check(&profile, words, sizeof words) < 0)
    return bench_refuse(why, "--pool: %.200s", words);
  snprintf(p.name, sizeof p.name, "%s-%u-%u", p.technique, p.k, p.m);
  for (char *c = p.name; *c; c++)
    if (*c == '_') *c = '-'; /* a bucket has its name from it */
  p.is_xor = p.m == 1 || strcmp(p.technique, "xor3p") == 0;
  *ret_pool = p;
  return 0;
}

static int options_check(struct bench_system_options *o, char *why) {
  static const char *const workloads[] = {"put", "get", "degraded", NULL};
  const char *stranger = bench_texts_stranger(&o->workloads, workloads);
  struct bench_address address;
  struct bench_pool pool;
  if (stranger)
    return bench_refuse(why, "--workload: `%.40s` is none of put, get, degraded", stranger);
  if (o->against && !o->html) return bench_refuse(why, "--against wants --html");
  if (o->pools.count > BENCH_POOLS_MAX)
    return bench_refuse(why, "--pool: at most %d", BENCH_POOLS_MAX);
  if ((o->urls.count > 0) != (o->admins.count > 0))
    return bench_refuse(why, "--url and --admin go together");
  if (o->urls.count > BENCH_HOSTS_MAX || o->admins.count > BENCH_HOSTS_MAX)
    return bench_refuse(why, "--url, --admin: at most %d", BENCH_HOSTS_MAX);
  if (o->urls.count == 0) {
    if (o->user || o->pids.count)
      return bench_refuse(why, "--user and --pid are of a running cluster: --url is missing");
    for (unsigned i = 0; i < o->pools.count; i++) {
      int err = bench_pool_parse(o->pools.at[i], &pool, why);
      if (err < 0) return err;
    }
    return 0;
  }
  if (!o->user || !strchr(o->user, ':')) return bench_refuse(why, "--user wants KEY:SECRET");
  if (strlen(o->user) >= 512) return bench_refuse(why, "--user is too long");
  if (o->hosts || o->drives || o->dir)
    return bench_refuse(why,
                        "--hosts, --drives and --dir are of a cluster that is started: no --url");
  if (bench_texts_has(&o->workloads, "degraded"))
    return bench_refuse(why,
                        "--workload degraded stops a host, which is done to a cluster of its own "
                        "alone: stop one, then measure get");
  for (unsigned i = 0; i < o->urls.count + o->admins.count; i++) {
    const char *text = i < o->urls.count ? o->urls.at[i] : o->admins.at[i - o->urls.count];
    if (bench_address_parse(text, &address) < 0)
      return bench_refuse(why, "`%.100s` is not an address such as http://127.0.0.1:9000", text);
  }
  return 0;
}

int bench_system_options(int argc, char **argv, struct bench_system_options *ret_o,
                         char why[BENCH_WHY_BYTES]) {
  struct bench_system_options o = {.rounds = BENCH_ROUNDS_TO_JUDGE};
  int err = bench_options_parse(system_options, argc, argv, &o, why);
  if (err == 0) err = options_check(&o, why);
  if (err < 0) return err;
  if (!o.size) o.size = 1 << 20;
  if (!o.objects) o.objects = o.quick ? 16 : 128;
  if (!o.passes) o.passes = o.quick ? 1 : 4;
  if (!o.connections) o.connections = 8;
  if (!o.seconds) o.seconds = o.quick ? 5 : 30;
  if (o.workloads.count == 0) {
    o.workloads = (struct bench_texts){{"put", "get", "degraded"}, o.urls.count ? 2 : 3};
  }
  if (o.urls.count == 0) {
    if (!o.hosts) o.hosts = 3;
    if (!o.drives) o.drives = 2;
  }
  *ret_o = o;
  return 0;
}
