/* sim_main.c: campaigns of seeds, one seed with its trace, and the mutants.
 *
 *   kofn-sim --seeds N [--from S] [--jobs J]   the first failing seed is printed; exit 1
 *   kofn-sim --seed S [--trace] [--twice]      one seed; twice: two runs must agree
 *   kofn-sim --mutants [--mutant NAME] [--seeds N]
 */
#include <getopt.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/sim/sim.h"

#ifdef KOFN_SIM_MUTANTS
enum sim_mutant sim_mutant;
#endif

#define CAMPAIGN_SEEDS 10000
#define MUTANT_SEEDS 20000 /* at most */

struct totals {
  uint64_t seeds, ops, acked, reads, unavailable, events, crashes, cuts, broken, unjudged;
  uint64_t failed_seed;
  bool failed;
  char why[512];
};

static struct {
  uint64_t seeds, from, seed;
  unsigned jobs;
  bool one, trace, twice, mutants, keep_going;
  const char *mutant, *bias;
} opts = {.from = 1};

static const struct {
  const char *name, *bias, *what;
} mutants[MUTANT_COUNT] = {
    [MUTANT_NONE] = {"none", "", "the code as it is"},
#define M(id, name, bias, what) [MUTANT_##id] = {name, bias, what}
    M(NAIVE_READ, "naive_read", "", "a read takes the newest version with k visible chunks"),
    M(WALL_CLOCK, "wall_clock", "", "versions come from the local clock alone"),
    M(CHECK_THEN_PUT, "check_then_put", "", "conditional writes without a promise round"),
    M(UNSETTLED_412, "unsettled_412", "race", "412 on a base that is not yet chosen"),
    M(W_IS_K, "w_is_k", "", "W = k"),
    M(RETRY_AFTER_NACK, "retry_after_nack", "race", "a partly accepted PUT goes again, blindly"),
    M(ROLL_FORWARD_BLIND, "roll_forward_blind", "race", "roll-forward ignores promises"),
    M(CHUNKS_VOTE, "chunks_vote", "rot race", "healthy chunks counted as votes"),
    M(SAME_VERSION, "same_version", "race clock", "equal versions are made and accepted"),
    M(EARLY_COMMIT, "early_commit", "crash", "COMMIT before W acknowledgements"),
    M(FLAG_WITHOUT_COUNT, "flag_without_count", "", "a drive flags a row when it accepts it"),
    M(STALE_ROUND, "stale_round", "race", "grants of an earlier promise round are counted"),
    M(ROLL_BACK, "roll_back", "", "what might be chosen is passed over"),
    M(ABSENT_BELOW_R, "absent_below_r", "", "404 from fewer than R drives"),
    M(ACCEPT_BELOW_PROMISE, "accept_below_promise", "race", "ACCEPT ignores promises"),
    M(PROMISE_BELOW_PROMISE, "promise_below_promise", "race", "PROMISE ignores promises"),
    M(UNKNOWN_IS_NOTHING, "unknown_is_nothing", "", "503 \"nothing happened\" after an accept"),
    M(NO_FILE_SYNC, "no_file_sync", "power", "chunk files are not synced"),
    M(NO_DIR_SYNC, "no_dir_sync", "power", "chunk directories are not synced"),
    M(DROP_ACCEPTED, "drop_accepted", "", "an accepted row drops the older ones"),
    M(SUPERSEDED_BY_ACCEPTED, "superseded_by_accepted", "race",
      "\"superseded\" by a row that is only accepted"),
    M(CORRUPT_IS_ABSENT, "corrupt_is_absent", "rot", "a row that fails its CRC is no row"),
    M(UNIT_UNCHECKED, "unit_unchecked", "rot", "GET does not check the units' CRCs"),
    M(TRASH_NAMED, "trash_named", "crash", "a chunk goes with the first row that named it"),
    M(LIST_FLAGS_ONLY, "list_flags_only", "", "LIST believes flags alone"),
    M(PROMISE_FORGOTTEN, "promise_forgotten", "race", "promises are not stored"),
    M(BUCKET_UNCHECKED, "bucket_unchecked", "bucket", "drives accept rows of a DELETING bucket"),
    M(AMNESIA, "amnesia", "crash", "a drive that lost everything votes at once"),
    M(DISK_LIES, "disk_lies", "crash", "a crash takes acknowledged rows away"),
    M(OLD_SNAPSHOT, "old_snapshot", "snapshot", "a restored snapshot votes"),
#undef M
};

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void on_abort(int sig) {
  char line[64];
  int n = snprintf(line, sizeof line, "seed %llu ends with signal %d\n",
                   sim_current ? (unsigned long long)sim_current->seed : 0ull, sig);
  if (write(STDERR_FILENO, line, (size_t)n) < 0) _exit(3);
  signal(sig, SIG_DFL);
  raise(sig);
}

static void total_add(struct totals *t, const struct sim_result *r) {
  t->seeds++;
  t->ops += r->ops;
  t->acked += r->acked;
  t->reads += r->reads;
  t->unavailable += r->unavailable;
  t->events += r->events;
  t->crashes += r->crashes;
  t->cuts += r->cuts;
  t->broken += r->broken;
  t->unjudged += r->unjudged;
}

static void run_one(uint64_t seed, bool trace, struct sim_result *r) {
  struct sim_options opt = {.trace = trace, .out = stdout, .print_history = trace};
  sim_seed(seed, &opt, r);
}

static int run_seed(void) {
  struct sim_result r, again;
  run_one(opts.seed, opts.trace, &r);
  printf("seed %llu: %s%s (%u operations, %u acknowledged, %u reads, %u events, hash %016llx)\n",
         (unsigned long long)opts.seed, r.failed ? "FAILED: " : "passed", r.why, r.ops, r.acked,
         r.reads, r.events, (unsigned long long)r.hash);
  if (opts.twice) {
    run_one(opts.seed, false, &again);
    if (again.hash != r.hash || again.failed != r.failed) {
      printf("the second run differs: hash %016llx\n", (unsigned long long)again.hash);
      return 1;
    }
  }
  return r.failed;
}

/* Seeds from, from + step, ... of this process. */
static void run_stripe(uint64_t from, uint64_t step, uint64_t count, struct totals *t) {
  for (uint64_t i = 0; i < count; i++) {
    struct sim_result r;
    run_one(from + i * step, false, &r);
    total_add(t, &r);
    if (!r.failed) continue;
    if (!t->failed) {
      t->failed = true;
      t->failed_seed = from + i * step;
      memcpy(t->why, r.why, sizeof t->why);
    }
    if (!opts.keep_going) return;
    printf("seed %llu FAILED: %s\n", (unsigned long long)(from + i * step), r.why);
    fflush(stdout);
  }
}

/* In a process of its own, so that a failed assertion is a result too. */
static pid_t child_start(uint64_t from, uint64_t step, uint64_t count, int *ret_fd) {
  int fds[2];
  fflush(stdout);
  if (pipe(fds) < 0) abort();
  pid_t pid = fork();
  if (pid < 0) abort();
  if (pid == 0) {
    struct totals t = {0};
    close(fds[0]);
    run_stripe(from, step, count, &t);
    if (write(fds[1], &t, sizeof t) != (ssize_t)sizeof t) _exit(3);
    fflush(stdout);
    exit(0);
  }
  close(fds[1]);
  *ret_fd = fds[0];
  return pid;
}

static void child_end(pid_t pid, int fd, struct totals *t) {
  int status;
  memset(t, 0, sizeof *t);
  size_t got = 0;
  for (ssize_t n; got < sizeof *t && (n = read(fd, (char *)t + got, sizeof *t - got)) > 0;)
    got += (size_t)n;
  close(fd);
  waitpid(pid, &status, 0);
  if (got == sizeof *t && WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  memset(t, 0, sizeof *t);
  t->failed = true;
  snprintf(t->why, sizeof t->why, "the process ended with status %#x (see above)", status);
}

static int run_campaign(void) {
  pid_t pids[64];
  int fds[64];
  struct totals all = {0};
  double began = seconds();
  unsigned jobs = MIN(MAX(opts.jobs, 1u), 64u);
  for (unsigned j = 0; j < jobs; j++) {
    uint64_t count = opts.seeds / jobs + (j < opts.seeds % jobs);
    pids[j] = child_start(opts.from + j, jobs, count, &fds[j]);
  }
  for (unsigned j = 0; j < jobs; j++) {
    struct totals t;
    child_end(pids[j], fds[j], &t);
    if (t.failed) printf("FAILED: seed %llu: %s\n", (unsigned long long)t.failed_seed, t.why);
    all.failed |= t.failed;
    uint64_t *to = &all.seeds, *from = &t.seeds;
    for (unsigned i = 0; i < 10; i++) to[i] += from[i];
  }
  double took = seconds() - began;
  printf(
      "%llu seeds in %.1f s (%.0f a second and process): %llu operations, %llu writes "
      "acknowledged, %llu reads checked, %llu times 503, %llu crashes, %llu cuts, %llu broken "
      "chunks or drives, %llu events, %llu histories too long to judge\n",
      (unsigned long long)all.seeds, took, (double)all.seeds / took / jobs,
      (unsigned long long)all.ops, (unsigned long long)all.acked, (unsigned long long)all.reads,
      (unsigned long long)all.unavailable, (unsigned long long)all.crashes,
      (unsigned long long)all.cuts, (unsigned long long)all.broken, (unsigned long long)all.events,
      (unsigned long long)all.unjudged);
  printf(all.failed ? "FAILED\n" : "passed\n");
  return all.failed;
}

#ifdef KOFN_SIM_MUTANTS
static int run_mutants(void) {
  int missed = 0;
  printf(
      "| mutant | what is wrong | bias of the seeds | seeds until caught | seen as |\n"
      "|---|---|---|---|---|\n");
  for (unsigned m = 1; m < MUTANT_COUNT; m++) {
    struct totals t;
    int fd;
    if (opts.mutant && strcmp(opts.mutant, mutants[m].name) != 0) continue;
    sim_mutant = (enum sim_mutant)m;
    sim_bias = opts.bias ? opts.bias : mutants[m].bias;
    pid_t pid = child_start(opts.from, 1, opts.seeds, &fd);
    child_end(pid, fd, &t);
    printf("| %s | %s | %s | ", mutants[m].name, mutants[m].what, sim_bias);
    if (t.failed && t.seeds)
      printf("%llu | %s |\n", (unsigned long long)t.seeds, t.why);
    else if (t.failed)
      printf("(assertion) | %s |\n", t.why);
    else
      printf("**not in %llu** | |\n", (unsigned long long)t.seeds);
    fflush(stdout);
    missed += !t.failed;
  }
  return missed > 0;
}
#endif

static uint64_t number(const char *text) {
  char *end;
  uint64_t n = strtoull(text, &end, 10);
  if (*text && !*end) return n;
  fprintf(stderr, "kofn-sim: %s is no number\n", text);
  exit(2);
}

static void parse(int argc, char **argv) {
  static const struct option options[] = {
      {"seeds", 1, NULL, 'n'},   {"from", 1, NULL, 'f'},   {"jobs", 1, NULL, 'j'},
      {"seed", 1, NULL, 's'},    {"trace", 0, NULL, 't'},  {"twice", 0, NULL, '2'},
      {"mutants", 0, NULL, 'm'}, {"mutant", 1, NULL, 'M'}, {"keep-going", 0, NULL, 'k'},
      {"bias", 1, NULL, 'b'},    {NULL, 0, NULL, 0}};
  for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
    if (c == 'n')
      opts.seeds = number(optarg);
    else if (c == 'f')
      opts.from = number(optarg);
    else if (c == 'j')
      opts.jobs = (unsigned)number(optarg);
    else if (c == 's')
      opts.seed = number(optarg), opts.one = true;
    else if (c == 't')
      opts.trace = true;
    else if (c == '2')
      opts.twice = true;
    else if (c == 'm')
      opts.mutants = true;
    else if (c == 'M')
      opts.mutant = optarg;
    else if (c == 'k')
      opts.keep_going = true;
    else if (c == 'b')
      opts.bias = optarg;
    else
      exit(2);
  }
}

int main(int argc, char **argv) {
  parse(argc, argv);
  signal(SIGABRT, on_abort);
  signal(SIGSEGV, on_abort);
  if (opts.bias) sim_bias = opts.bias;
  if (opts.seeds == 0) opts.seeds = opts.mutants ? MUTANT_SEEDS : CAMPAIGN_SEEDS;
  if (opts.jobs == 0) opts.jobs = (unsigned)MAX(sysconf(_SC_NPROCESSORS_ONLN), 1L);
#ifdef KOFN_SIM_MUTANTS
  if (opts.mutants) return run_mutants();
  for (unsigned m = 1; m < MUTANT_COUNT && opts.mutant; m++)
    if (strcmp(opts.mutant, mutants[m].name) == 0) {
      sim_mutant = (enum sim_mutant)m;
      if (!opts.bias) sim_bias = mutants[m].bias;
    }
#endif
  return opts.one ? run_seed() : run_campaign();
}
