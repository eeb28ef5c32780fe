/* bench_stats.c: medians, ranges and the sign test; the clock, progress, and what the machine is.
 */
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "server/bench.h"

volatile int bench_stop;

static int compare_double(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

struct bench_spread bench_spread_of(const double *values, unsigned n) {
  double sorted[BENCH_ROUNDS_MAX];
  n = MIN(n, (unsigned)BENCH_ROUNDS_MAX);
  memcpy(sorted, values, n * sizeof *values);
  qsort(sorted, n, sizeof *sorted, compare_double);
  double median = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
  return (struct bench_spread){median, sorted[0], sorted[n - 1]};
}

json_t *bench_spread_json(struct bench_spread s) {
  return json_pack("{s:f, s:f, s:f}", "median", s.median, "min", s.min, "max", s.max);
}

double bench_sign_test(unsigned wins, unsigned n) {
  unsigned few = MIN(wins, n - MIN(wins, n));
  double term = 1, sum = 0;
  for (unsigned i = 0; i < n; i++) term /= 2;
  for (unsigned i = 0; i <= few; i++) {
    sum += term;
    term = term * (n - i) / (i + 1);
  }
  return MIN(1.0, 2 * sum);
}

struct bench_verdict bench_compare(const double *a, const double *base, unsigned n) {
  struct bench_verdict v = {.ratio = 1, .chance = 1, .overlap = true};
  double ratios[BENCH_ROUNDS_MAX];
  n = MIN(n, (unsigned)BENCH_ROUNDS_MAX);
  if (n == 0) return v;
  for (unsigned i = 0; i < n; i++) {
    ratios[i] = base[i] > 0 ? a[i] / base[i] : 1;
    v.higher += a[i] > base[i];
    v.lower += a[i] < base[i];
  }
  struct bench_spread of_a = bench_spread_of(a, n), of_base = bench_spread_of(base, n);
  v.ratio = bench_spread_of(ratios, n).median;
  v.chance = bench_sign_test(MAX(v.higher, v.lower), v.higher + v.lower);
  v.overlap = of_a.min <= of_base.max && of_base.min <= of_a.max;
  bool outside = of_a.median > of_base.max || of_a.median < of_base.min ||
                 of_base.median > of_a.max || of_base.median < of_a.min;
  v.different = v.chance < BENCH_CHANCE_MAX && outside;
  return v;
}

void bench_verdict_words(const struct bench_verdict *v, unsigned n, const char *base,
                         const char *what, char *out, size_t cap) {
  const char *verdict = v->different ? "a difference" : "inside the noise";
  if (n < BENCH_ROUNDS_TO_JUDGE) verdict = "too few rounds to judge";
  bool more = v->higher >= v->lower;
  snprintf(out, cap, "%.3f of %s in %s; %s in %u of %u rounds (chance %.2f), the ranges %s: %s",
           v->ratio, base, what, more ? "higher" : "lower", more ? v->higher : v->lower, n,
           v->chance, v->overlap ? "overlap" : "are apart", verdict);
}

/* ---- time and progress ---- */

static uint64_t clock_ns(clockid_t id) {
  struct timespec t;
  clock_gettime(id, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t bench_now_ns(void) {
  return clock_ns(CLOCK_MONOTONIC);
}

uint64_t bench_thread_ns(void) {
  return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

void bench_pause_ms(unsigned ms) {
  struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
  nanosleep(&t, NULL);
}

static bool progress_shown;

void bench_progress(const char *fmt, ...) {
  if (!isatty(STDERR_FILENO)) return;
  va_list ap;
  va_start(ap, fmt);
  fputs("\r\033[K", stderr);
  vfprintf(stderr, fmt, ap);
  va_end(ap);
  fflush(stderr);
  progress_shown = true;
}

void bench_progress_end(void) {
  if (progress_shown) fputs("\r\033[K", stderr);
  progress_shown = false;
}

static void on_signal(int sig) {
  bench_stop = sig;
}

void bench_catch_signals(void) {
  struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART: waits end early */
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGHUP, &action, NULL);
  signal(SIGPIPE, SIG_IGN);
}

/* ---- the machine ---- */

/* The text behind the colon of the first line of /proc/cpuinfo that begins with `name`. */
static void cpuinfo(const char *name, char *out, size_t cap) {
  char line[512];
  FILE *f = fopen("/proc/cpuinfo", "re");
  snprintf(out, cap, "unknown");
  while (f && fgets(line, sizeof line, f)) {
    char *colon = strchr(line, ':');
    if (strncmp(line, name, strlen(name)) != 0 || !colon) continue;
    colon[1 + strcspn(colon + 1, "\n")] = 0;
    snprintf(out, cap, "%s", colon + 1 + (colon[1] == ' '));
    break;
  }
  if (f) fclose(f);
}

json_t *bench_machine(void) {
  char cpu[256];
  struct utsname name;
  double load[1] = {0};
  cpuinfo("model name", cpu, sizeof cpu);
  if (uname(&name) < 0) memset(&name, 0, sizeof name);
  if (getloadavg(load, 1) < 1) load[0] = 0;
  return json_pack("{s:s, s:s, s:i, s:I, s:I, s:s, s:f}", "cpu", cpu, "architecture", name.machine,
                   "cores", (int)sysconf(_SC_NPROCESSORS_ONLN), "cache_l2",
                   (json_int_t)MAX(sysconf(_SC_LEVEL2_CACHE_SIZE), 0), "cache_l3",
                   (json_int_t)MAX(sysconf(_SC_LEVEL3_CACHE_SIZE), 0), "kernel", name.release,
                   "load", load[0]);
}

const char *bench_size_words(uint64_t bytes, char out[32]) {
  if (bytes >= 1 << 20 && bytes % (1 << 20) == 0)
    snprintf(out, 32, "%llu MiB", (unsigned long long)bytes >> 20);
  else if (bytes >= 1 << 10 && bytes % (1 << 10) == 0)
    snprintf(out, 32, "%llu KiB", (unsigned long long)bytes >> 10);
  else
    snprintf(out, 32, "%llu B", (unsigned long long)bytes);
  return out;
}
