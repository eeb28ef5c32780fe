/* bench_system.c: the whole system under one load, once for each XOR kernel and for each pool.
 *
 * The question of the dm-raid thread: does a faster loop make the whole faster, or is the
 * difference noise? So a step is a fixed amount of work, all variants take turns in every round,
 * and a difference is called one only where the sign test over the rounds says so. */
#include "server/bench_system.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "codec/codec.h"
#include "codec/digest.h"
#include "config/err.h"
#include "server/cmd.h"

#define KERNELS_MAX 16
#define VARIANTS_MAX (KERNELS_MAX + BENCH_POOLS_MAX)
#define ANSWER_BYTES (4u << 20)
#define SETTLE_MS 300u
#define FILL_SECONDS 600.0
#define CPU_SECONDS_TO_JUDGE 0.1 /* the kernel counts hundredths */

struct variant {
  const char *kind; /* "kernel" or "pool" */
  const char *name;
  const char *kernel;
  unsigned pool;
  unsigned base; /* the variant it is compared with; itself: it is the base */
  double real[BENCH_ROUNDS_MAX], user[BENCH_ROUNDS_MAX], system[BENCH_ROUNDS_MAX],
      cpu[BENCH_ROUNDS_MAX], mb_s[BENCH_ROUNDS_MAX];
  double p50_ms, p99_ms; /* of the last round */
};

struct bench {
  const struct bench_system_options *o;
  struct bench_cluster own;
  struct bench_address s3[BENCH_HOSTS_MAX], admin[BENCH_HOSTS_MAX];
  unsigned s3_count, admin_count;
  pid_t pids[BENCH_LIST_MAX];
  unsigned pid_count;
  char auth[1200]; /* a whole header line */
  struct bench_pool pools[BENCH_POOLS_MAX];
  unsigned pool_count, buckets; /* how many of their buckets were made */
  char kernels[KERNELS_MAX][40];
  unsigned kernel_count;
  char kernel_first[40], kernel_now[40];
  char suffix[9]; /* of our buckets */
  struct variant variants[VARIANTS_MAX];
  unsigned variant_count;
  bool cut; /* a step was ended by --seconds */
  char answer[ANSWER_BYTES];
};

static int fail(const char *what, const char *why) {
  bench_progress_end();
  fprintf(stderr, "kofn bench system: %s: %s\n", what, why);
  return CMD_FAILED;
}

/* ---- what the cluster is ---- */

/* Lines such as: kofn_xor_kernel{kernel="avx2"} 1 */
static int read_kernels(struct bench *b) {
  static const char head[] = "kofn_xor_kernel{kernel=\"";
  int status = bench_http(&b->admin[0], "GET", "/metrics", "", NULL, 0, b->answer, ANSWER_BYTES);
  if (status != 200)
    return fail(b->admin[0].text, status < 0 ? err_words(status) : "does not give its metrics");
  for (char *at = b->answer; (at = strstr(at, head)) != NULL;) {
    at += sizeof head - 1;
    char *end = strstr(at, "\"} ");
    if (!end || (size_t)(end - at) >= sizeof b->kernels[0]) continue;
    char name[40];
    snprintf(name, sizeof name, "%.*s", (int)(end - at), at);
    if (end[3] == '1') snprintf(b->kernel_first, sizeof b->kernel_first, "%s", name);
    bool wanted = b->o->kernels.count == 0 || bench_texts_has(&b->o->kernels, name);
    if (wanted && b->kernel_count < KERNELS_MAX)
      memcpy(b->kernels[b->kernel_count++], name, sizeof name);
    at = end;
  }
  snprintf(b->kernel_now, sizeof b->kernel_now, "%s", b->kernel_first);
  if (!b->kernel_first[0]) return fail(b->admin[0].text, "names no XOR kernel");
  for (unsigned i = 0; i < b->o->kernels.count; i++) {
    bool found = strcmp(b->o->kernels.at[i], "none") == 0;
    for (unsigned k = 0; k < b->kernel_count; k++)
      found = found || strcmp(b->kernels[k], b->o->kernels.at[i]) == 0;
    if (!found) {
      fail(b->o->kernels.at[i], "this machine has no such XOR kernel");
      return CMD_REFUSED;
    }
  }
  return CMD_OK;
}

static int read_pools(struct bench *b) {
  int status =
      bench_http(&b->admin[0], "GET", "/admin/v1/status", "", NULL, 0, b->answer, ANSWER_BYTES);
  json_t *doc = status == 200 ? json_loads(b->answer, 0, NULL) : NULL, *pool;
  size_t i;
  if (!doc) return fail(b->admin[0].text, status < 0 ? err_words(status) : "gives no status");
  json_array_foreach(json_object_get(doc, "pools"), i, pool) {
    struct bench_pool p = {.k = (unsigned)json_integer_value(json_object_get(pool, "k")),
                           .m = (unsigned)json_integer_value(json_object_get(pool, "m"))};
    const char *name = json_string_value(json_object_get(pool, "name"));
    const char *technique = json_string_value(json_object_get(pool, "technique"));
    bool skip = !name || !technique || json_is_true(json_object_get(pool, "system")) ||
                b->pool_count == BENCH_POOLS_MAX;
    if (skip || (b->o->pools.count && !bench_texts_has(&b->o->pools, name))) continue;
    snprintf(p.name, sizeof p.name, "%s", name);
    snprintf(p.technique, sizeof p.technique, "%s", technique);
    p.is_xor = p.k > 1 && (p.m == 1 || strcmp(technique, "xor3p") == 0);
    b->pools[b->pool_count++] = p;
  }
  json_decref(doc);
  if (b->pool_count == 0) return fail("--pool", "the cluster has none of these pools");
  return CMD_OK;
}

/* The pools of a cluster of our own: what was asked for, or each technique where it fits. */
static int own_pools(struct bench *b, struct bench_pool *pools, unsigned *ret_count) {
  static const char *const wide[] = {"reed_sol_van:4+2", "cauchy:4+2", "xor:2+1", "xor3p:3+3"};
  static const char *const three[] = {"reed_sol_van:2+1", "cauchy:2+1", "xor:2+1"};
  static const char *const two[] = {"reed_sol_van:1+1", "cauchy:1+1"};
  const struct bench_system_options *o = b->o;
  uint64_t n = o->hosts * o->drives;
  const char *const *names = n >= 6 ? wide : n >= 3 ? three : two;
  unsigned count = n >= 6 ? ARRAY_LEN(wide) : n >= 3 ? ARRAY_LEN(three) : ARRAY_LEN(two), kept = 0;
  char why[BENCH_WHY_BYTES];
  if (o->pools.count > 0) {
    names = o->pools.at;
    count = o->pools.count;
  }
  for (unsigned i = 0; i < count; i++) {
    if (bench_pool_parse(names[i], &pools[kept], why) < 0) continue;
    /* A host may hold m chunks of an object. */
    unsigned wide_n = pools[kept].k + pools[kept].m;
    if (!o->pools.count && o->hosts > 1 && DIV_UP(wide_n, o->hosts) > pools[kept].m) continue;
    kept++;
  }
  *ret_count = kept;
  if (kept == 0) {
    fail("--hosts, --drives", "no technique fits so few; name one with --pool");
    return CMD_REFUSED;
  }
  return CMD_OK;
}

static int open_own(struct bench *b) {
  struct bench_pool pools[BENCH_POOLS_MAX];
  unsigned count;
  int result = own_pools(b, pools, &count);
  if (result != CMD_OK) return result;
  bench_progress("starting %u hosts", (unsigned)b->o->hosts);
  if (bench_cluster_start(&b->own, b->o->dir, (unsigned)b->o->hosts, (unsigned)b->o->drives, pools,
                          count) < 0)
    return CMD_FAILED;
  for (unsigned h = 0; h < b->own.hosts; h++) {
    b->s3[b->s3_count++] = b->own.s3[h];
    b->admin[b->admin_count++] = b->own.admin[h];
    b->pids[b->pid_count++] = b->own.pids[h];
  }
  return CMD_OK;
}

static int open_running(struct bench *b) {
  for (unsigned i = 0; i < b->o->urls.count; i++)
    if (bench_address_parse(b->o->urls.at[i], &b->s3[b->s3_count++]) < 0)
      return fail(b->o->urls.at[i], "not an address");
  for (unsigned i = 0; i < b->o->admins.count; i++)
    if (bench_address_parse(b->o->admins.at[i], &b->admin[b->admin_count++]) < 0)
      return fail(b->o->admins.at[i], "not an address");
  for (unsigned i = 0; i < b->o->pids.count; i++) {
    double user, system;
    b->pids[b->pid_count++] = (pid_t)b->o->pids.at[i];
    if (!bench_process_times(b->pids[i], &user, &system))
      return fail("--pid", "there is no such process on this machine");
  }
  return CMD_OK;
}

/* ---- buckets ---- */

static void bucket_path(const struct bench *b, unsigned pool, const char *key,
                        char out[BENCH_PATH_BYTES]) {
  snprintf(out, BENCH_PATH_BYTES, "/kofn-bench-%s-%u%s", b->suffix, pool, key);
}

static int make_buckets(struct bench *b) {
  char path[BENCH_PATH_BYTES], head[1400], what[BENCH_PATH_BYTES + 100];
  for (unsigned p = 0; p < b->pool_count; p++) {
    bucket_path(b, p, "", path);
    snprintf(head, sizeof head, "%sx-kofn-pool: %s\r\n", b->auth, b->pools[p].name);
    int status = bench_http(&b->s3[0], "PUT", path, head, NULL, 0, b->answer, ANSWER_BYTES);
    if (status == 200) {
      b->buckets = p + 1;
      continue;
    }
    snprintf(what, sizeof what, "PUT http://%.300s%.100s", b->s3[0].text, path);
    bench_progress_end();
    if (status >= 0) fprintf(stderr, "status %d: %.300s\n", status, b->answer);
    return fail(what, status < 0 ? err_words(status) : "refused");
  }
  return CMD_OK;
}

static int load(struct bench *b, const char *method, unsigned pool, uint64_t passes, double seconds,
                struct bench_load_result *ret) {
  char path[BENCH_PATH_BYTES];
  bucket_path(b, pool, "/o", path);
  struct bench_load l = {.addresses = b->s3,
                         .address_count = b->s3_count,
                         .method = method,
                         .path = path,
                         .head = b->auth,
                         .size = b->o->size,
                         .objects = b->o->objects,
                         .passes = passes,
                         .connections = (unsigned)b->o->connections,
                         .seconds = seconds};
  int err = bench_load_run(&l, ret);
  if (err < 0) return fail(method, err_words(err));
  if (bench_stop) return CMD_FAILED;
  if (ret->errors) return fail(method, ret->error);
  if (ret->requests == 0) return fail(method, "no request was answered within --seconds");
  return CMD_OK;
}

static int fill(struct bench *b) {
  struct bench_load_result r;
  for (unsigned p = 0; p < b->pool_count; p++) {
    bench_progress("filling pool %s", b->pools[p].name);
    int result = load(b, "PUT", p, 1, FILL_SECONDS, &r);
    if (result != CMD_OK) return result;
  }
  return CMD_OK;
}

/* Also after Ctrl-C; a second one ends this too. */
static void remove_buckets(struct bench *b) {
  struct bench_load_result r;
  char path[BENCH_PATH_BYTES];
  int stopped = bench_stop;
  bench_stop = 0;
  for (unsigned p = 0; p < b->buckets; p++) {
    int result = load(b, "DELETE", p, 1, FILL_SECONDS, &r);
    bucket_path(b, p, "", path);
    int status = bench_http(&b->s3[0], "DELETE", path, b->auth, NULL, 0, b->answer, ANSWER_BYTES);
    if (result != CMD_OK || status != 204)
      fprintf(stderr, "kofn bench system: the bucket %s stays behind\n", path + 1);
  }
  bench_stop = stopped ? stopped : bench_stop;
}

/* ---- variants ---- */

static int use_kernel(struct bench *b, const char *name) {
  if (strcmp(b->kernel_now, name) == 0) return CMD_OK;
  for (unsigned i = 0; i < b->admin_count; i++) {
    if (b->own.hosts && b->own.pids[i] == 0) continue; /* stopped for the degraded GETs */
    int status = bench_http(&b->admin[i], "PUT", "/admin/v1/xor-kernel", "", name, strlen(name),
                            b->answer, ANSWER_BYTES);
    if (status != 200) return fail(b->admin[i].text, "does not change its XOR kernel");
  }
  snprintf(b->kernel_now, sizeof b->kernel_now, "%s", name);
  return CMD_OK;
}

static void add_variant(struct bench *b, const char *kind, const char *name, const char *kernel,
                        unsigned pool, unsigned base) {
  struct variant *v = &b->variants[b->variant_count++];
  v->kind = kind;
  v->name = name;
  v->kernel = kernel;
  v->pool = pool;
  v->base = base;
}

/* Kernels on the first pool whose parity is XOR; the base is the one that calibration chose. */
static void make_variants(struct bench *b) {
  unsigned pool = 0;
  while (pool < b->pool_count && !b->pools[pool].is_xor) pool++;
  if (pool < b->pool_count && b->kernel_count > 0) {
    unsigned base = b->variant_count;
    for (unsigned k = 0; k < b->kernel_count; k++) {
      if (strcmp(b->kernels[k], b->kernel_first) == 0) base = b->variant_count + k;
    }
    for (unsigned k = 0; k < b->kernel_count; k++)
      add_variant(b, "kernel", b->kernels[k], b->kernels[k], pool, base);
  } else if (b->kernel_count > 0) {
    fprintf(stderr, "kofn bench system: no pool has XOR parity (m = 1): no kernels to compare\n");
  }
  unsigned first = b->variant_count;
  for (unsigned p = 0; p < b->pool_count; p++)
    add_variant(b, "pool", b->pools[p].name, b->kernel_first, p, first);
}

static void server_times(const struct bench *b, double *ret_user, double *ret_system) {
  *ret_user = *ret_system = 0;
  for (unsigned i = 0; i < b->pid_count; i++) {
    double user, system;
    if (!b->pids[i] || !bench_process_times(b->pids[i], &user, &system)) continue;
    *ret_user += user;
    *ret_system += system;
  }
}

static int step(struct bench *b, struct variant *v, const char *method, unsigned round) {
  struct bench_load_result r;
  double user, system, user_end, system_end;
  int result = use_kernel(b, v->kernel);
  if (result != CMD_OK) return result;
  server_times(b, &user, &system);
  result = load(b, method, v->pool, b->o->passes, (double)b->o->seconds, &r);
  server_times(b, &user_end, &system_end);
  if (result != CMD_OK) return result;
  /* A step that was cut is counted as if the rest had gone on alike. */
  uint64_t wanted = b->o->objects * b->o->passes;
  double whole = (double)wanted / (double)r.requests;
  b->cut = b->cut || r.requests < wanted;
  v->real[round] = r.seconds * whole;
  v->user[round] = (user_end - user) * whole;
  v->system[round] = (system_end - system) * whole;
  v->cpu[round] = v->user[round] + v->system[round];
  v->mb_s[round] = (double)r.bytes / 1e6 / r.seconds;
  v->p50_ms = r.p50_ms;
  v->p99_ms = r.p99_ms;
  return CMD_OK;
}

static void print_spread(const double *values, unsigned n, int digits) {
  struct bench_spread s = bench_spread_of(values, n);
  printf("\t%.*f %.*f %.*f", digits, s.min, digits, s.median, digits, s.max);
}

static json_t *variant_json(const struct bench *b, const struct variant *v, const char *workload,
                            unsigned n) {
  const struct bench_pool *p = &b->pools[v->pool];
  json_t *row = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:o, s:o, s:f, s:f}",
                          "workload", workload, "kind", v->kind, "name", v->name, "kernel",
                          v->kernel, "pool", p->name, "technique", p->technique, "k", (int)p->k,
                          "m", (int)p->m, "real", bench_spread_json(bench_spread_of(v->real, n)),
                          "mb_s", bench_spread_json(bench_spread_of(v->mb_s, n)), "p50_ms",
                          v->p50_ms, "p99_ms", v->p99_ms);
  if (b->pid_count) {
    json_object_set_new(row, "user", bench_spread_json(bench_spread_of(v->user, n)));
    json_object_set_new(row, "system", bench_spread_json(bench_spread_of(v->system, n)));
  }
  return row;
}

static void judge(const struct variant *v, const struct variant *base, bool cpu, unsigned n,
                  json_t *verdicts) {
  const double *of_v = cpu ? v->cpu : v->real, *of_base = cpu ? base->cpu : base->real;
  const char *what = cpu ? "CPU time" : "real time";
  char words[512];
  struct bench_verdict verdict = bench_compare(of_v, of_base, n);
  verdict.different = verdict.different && n >= BENCH_ROUNDS_TO_JUDGE;
  bench_verdict_words(&verdict, n, base->name, what, words, sizeof words);
  if (cpu && bench_spread_of(of_base, n).median < CPU_SECONDS_TO_JUDGE) {
    verdict.different = false;
    snprintf(words, sizeof words,
             "less than %.1f s of CPU time in a step: too short to judge, give more --objects or "
             "--passes",
             CPU_SECONDS_TO_JUDGE);
  }
  printf("%s %s: %s\n", v->kind, v->name, words);
  json_array_append_new(
      verdicts, json_pack("{s:s, s:s, s:f, s:f, s:b, s:s}", "of", what, "base", base->name, "ratio",
                          verdict.ratio, "chance", verdict.chance, "different",
                          (int)verdict.different, "words", words));
}

/* The table of one workload, then what may be said of the differences. */
static void report(const struct bench *b, const char *workload, unsigned n, json_t *rows) {
  bench_progress_end();
  printf(
      "\n%s: %llu times %llu objects of %llu bytes over %llu connections, %u rounds (min median "
      "max)\n",
      workload, (unsigned long long)b->o->passes, (unsigned long long)b->o->objects,
      (unsigned long long)b->o->size, (unsigned long long)b->o->connections, n);
  printf("Kind\tName\tReal s\t%sMB/s\n", b->pid_count ? "User s\tSystem s\t" : "");
  for (unsigned i = 0; i < b->variant_count; i++) {
    const struct variant *v = &b->variants[i];
    printf("%s\t%s", v->kind, v->name);
    print_spread(v->real, n, 3);
    if (b->pid_count) {
      print_spread(v->user, n, 2);
      print_spread(v->system, n, 2);
    }
    print_spread(v->mb_s, n, 0);
    putchar('\n');
  }
  for (unsigned i = 0; i < b->variant_count; i++) {
    const struct variant *v = &b->variants[i], *base = &b->variants[v->base];
    json_t *row = variant_json(b, v, workload, n), *verdicts = json_array();
    for (int cpu = 0; v != base && cpu <= (b->pid_count > 0); cpu++)
      judge(v, base, cpu, n, verdicts);
    json_object_set_new(row, "verdicts", verdicts);
    json_array_append_new(rows, row);
  }
  fflush(stdout);
}

static int workload_run(struct bench *b, const char *workload, json_t *rows) {
  unsigned rounds = (unsigned)b->o->rounds;
  const char *method = strcmp(workload, "put") == 0 ? "PUT" : "GET";
  for (unsigned round = 0; round < rounds; round++) {
    for (unsigned turn = 0; turn < b->variant_count; turn++) {
      struct variant *v = &b->variants[(turn + round) % b->variant_count];
      bench_progress("%s, round %u of %u: %s %s", workload, round + 1, rounds, v->kind, v->name);
      int result = bench_stop ? CMD_FAILED : step(b, v, method, round);
      if (result != CMD_OK) return result;
    }
  }
  report(b, workload, rounds, rows);
  return CMD_OK;
}

/* The last host is stopped; the others serve. */
static int degrade(struct bench *b) {
  unsigned last = b->own.hosts - 1;
  char answer[16];
  if (b->own.hosts < 2) return fail("degraded", "wants more than one host");
  bench_progress("stopping host n%u", last + 1);
  bench_cluster_stop_host(&b->own, last);
  b->pids[last] = 0;
  b->s3_count = b->own.hosts - 1;
  for (unsigned h = 0; h < last; h++) {
    int status = 0;
    for (unsigned i = 0; i < 100 && status != 200 && !bench_stop; i++) {
      bench_pause_ms(SETTLE_MS);
      status = bench_http(&b->admin[h], "GET", "/health/ready?for=read", "", NULL, 0, answer,
                          sizeof answer);
    }
    if (status != 200) return fail("degraded", "the others cannot read without the last host");
  }
  return CMD_OK;
}

static int measure(struct bench *b, json_t *doc) {
  static const char *const order[] = {"put", "get", "degraded"};
  json_t *rows = json_array();
  json_object_set_new(doc, "rows", rows);
  int result = make_buckets(b);
  if (result == CMD_OK) result = fill(b);
  for (size_t i = 0; i < ARRAY_LEN(order) && result == CMD_OK; i++) {
    if (!bench_texts_has(&b->o->workloads, order[i])) continue;
    if (strcmp(order[i], "degraded") == 0) result = degrade(b);
    if (result == CMD_OK) result = workload_run(b, order[i], rows);
  }
  if (b->cut)
    printf("\nSome steps were ended by --seconds %llu: their times are scaled to the whole work.\n",
           (unsigned long long)b->o->seconds);
  if (b->pid_count == 0)
    printf("\nUser and system time are not known: name the hosts' processes with --pid.\n");
  return result;
}

static int open_all(struct bench *b) {
  uint8_t raw[4];
  char user[700];
  if (getrandom(raw, sizeof raw, 0) != sizeof raw) return fail("getrandom", err_words(-errno));
  hex_encode(raw, sizeof raw, b->suffix);
  int result = b->o->urls.count ? open_running(b) : open_own(b);
  if (result != CMD_OK) return result;
  const char *pair = b->o->urls.count ? b->o->user : b->own.user;
  base64_encode(pair, strlen(pair), user);
  snprintf(b->auth, sizeof b->auth, "Authorization: Basic %s\r\n", user);
  if (result == CMD_OK) result = read_kernels(b);
  if (result == CMD_OK) result = b->o->urls.count ? read_pools(b) : CMD_OK;
  if (result == CMD_OK && !b->o->urls.count) {
    result = own_pools(b, b->pools, &b->pool_count);
  }
  if (result == CMD_OK) make_variants(b);
  return result;
}

int bench_system_run(const struct bench_system_options *o) {
  char why[BENCH_WHY_BYTES];
  json_t *against = NULL;
  if (o->against && bench_load_json(o->against, "system", &against, why) < 0) {
    fprintf(stderr, "kofn bench system: %s\n", why);
    return CMD_REFUSED;
  }
  struct bench *b = calloc(1, sizeof *b);
  if (!b) return CMD_FAILED;
  b->o = o;
  bench_catch_signals();
  json_t *doc =
      json_pack("{s:s, s:s, s:o, s:i, s:I, s:I, s:I, s:I}", "kofn_bench", "system", "version",
                KOFN_VERSION, "machine", bench_machine(), "rounds", (int)o->rounds, "size",
                (json_int_t)o->size, "objects", (json_int_t)o->objects, "passes",
                (json_int_t)o->passes, "connections", (json_int_t)o->connections);
  int result = open_all(b);
  if (result == CMD_OK) {
    json_object_set_new(doc, "kernel_at_start", json_string(b->kernel_first));
    result = measure(b, doc);
    if (o->urls.count && use_kernel(b, b->kernel_first) != CMD_OK) result = CMD_FAILED;
    if (o->urls.count) remove_buckets(b);
  }
  bench_progress_end();
  bench_cluster_stop(&b->own);
  if (bench_stop) fprintf(stderr, "kofn bench system: interrupted\n");
  if (bench_stop) result = CMD_FAILED;
  if (result == CMD_OK && o->json && bench_save_json(o->json, doc) < 0) result = CMD_FAILED;
  if (result == CMD_OK && o->html && bench_save_page(o->html, doc, against) < 0)
    result = CMD_FAILED;
  json_decref(doc);
  json_decref(against);
  free(b);
  return result;
}
