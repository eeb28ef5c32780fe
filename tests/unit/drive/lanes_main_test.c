/* lanes_main_test.c: the lanes under several submitting threads. Has a main of its own, so that it
 * runs under ThreadSanitizer too; says what it checks. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "config/err.h"
#include "config/log.h"
#include "tests/unit/drive/drive_bed.h"

#define THREADS 4
#define KEYS_PER_THREAD 60
#define BIG_BYTES 100000 /* 7 stripes: staged in two requests */

/* A job that a thread waits for. */
struct waiting {
  struct drive_job job;
  struct peer_request req;
  struct peer_reply reply;
  pthread_mutex_t mutex;
  pthread_cond_t cond;
  unsigned done;
};

static void waiting_init(struct waiting *w) {
  memset(w, 0, sizeof *w);
  pthread_mutex_init(&w->mutex, NULL);
  pthread_cond_init(&w->cond, NULL);
}

static void waiting_done(struct drive_job *job) {
  struct waiting *w = container_of(job, struct waiting, job);
  pthread_mutex_lock(&w->mutex);
  w->done++;
  pthread_cond_signal(&w->cond);
  pthread_mutex_unlock(&w->mutex);
}

static void waiting_submit(struct drive_lanes *l, struct waiting *w) {
  w->done = 0;
  w->job = (struct drive_job){.req = &w->req, .reply = &w->reply, .done = waiting_done};
  lanes_submit(l, &w->job);
}

static int waiting_wait(struct waiting *w) {
  pthread_mutex_lock(&w->mutex);
  while (!w->done) pthread_cond_wait(&w->cond, &w->mutex);
  pthread_mutex_unlock(&w->mutex);
  BED_CHECK(w->done == 1);
  return w->reply.err;
}

static int run(struct drive_lanes *l, struct waiting *w) {
  waiting_submit(l, w);
  return waiting_wait(w);
}

static atomic_uint reads_here;

struct worker {
  pthread_t thread;
  struct drive_lanes *lanes;
  unsigned number;
  unsigned acked;
};

/* Stages in two jobs that are both under way at once: they must keep their order. */
static void put_big(struct worker *wk, const struct bed_object *o) {
  struct waiting first, second;
  waiting_init(&first);
  waiting_init(&second);
  unsigned half = (unsigned)o->unit_count / 2;
  first.req = second.req = bed_request(PEER_STAGE, "");
  bed_units(&first.req, o, 0, half);
  bed_units(&second.req, o, half, (unsigned)o->unit_count - half);
  waiting_submit(wk->lanes, &first);
  waiting_submit(wk->lanes, &second);
  BED_CHECK(waiting_wait(&first) == 0);
  BED_CHECK(waiting_wait(&second) == 0);
  first.req = bed_accept_request(o);
  first.req.unit_count = 0;
  BED_CHECK(run(wk->lanes, &first) == 0);
}

/* The same READ without a lane says the same, where it is done at all. */
static void read_here(struct worker *wk, struct waiting *w, const struct bed_object *o) {
  struct peer_request req = bed_request(PEER_READ, o->key);
  struct peer_reply reply = {0};
  if (!lanes_read_here(wk->lanes, &req, &reply)) return;
  BED_CHECK(reply.err == 0 && reply.body_len == w->reply.body_len);
  free(reply.body);
  atomic_fetch_add(&reads_here, 1);
}

static void read_back(struct worker *wk, struct waiting *w, const struct bed_object *o) {
  struct peer_rows *rows = calloc(1, sizeof *rows);
  BED_CHECK(rows);
  w->req = bed_request(PEER_READ, o->key);
  BED_CHECK(run(wk->lanes, w) == 0);
  BED_CHECK(peer_rows_decode(slice_of(w->reply.body, w->reply.body_len), &o->bucket,
                             slice_str(o->key), rows) == 0);
  BED_CHECK(rows->count == 1 && version_cmp(&rows->rows[0].row.ver, &o->row.ver) == 0);
  BED_CHECK(rows->rows[0].chunk_state == CHUNK_WHOLE);
  read_here(wk, w, o);
  free(w->reply.body);
  free(rows);

  static _Thread_local uint8_t room[PEER_UNITS_MAX][BED_UNIT_BYTES];
  w->req = bed_request(PEER_FETCH, "");
  bed_units(&w->req, o, 0, (unsigned)o->unit_count);
  for (unsigned i = 0; i < o->unit_count; i++)
    w->req.units[i] = (struct peer_unit){.data = room[i], .len = BED_UNIT_BYTES};
  BED_CHECK(run(wk->lanes, w) == 0);
  for (unsigned i = 0; i < o->unit_count; i++)
    BED_CHECK(memcmp(room[i], o->chunk + (size_t)i * BED_UNIT_BYTES, w->req.units[i].len) == 0);
}

static void *worker_main(void *arg) {
  struct worker *wk = arg;
  struct waiting *w = malloc(sizeof *w), *commits = calloc(KEYS_PER_THREAD, sizeof *commits);
  static _Thread_local char keys[KEYS_PER_THREAD][32];
  BED_CHECK(w && commits);
  waiting_init(w);
  for (unsigned i = 0; i < KEYS_PER_THREAD; i++) {
    struct bed_object o;
    unsigned id = wk->number * 1000 + i + 1;
    snprintf(keys[i], sizeof keys[i], "t%u-%u", wk->number, i);
    bed_object(&o, keys[i], ROW_PUT, id, i % 3 == 0 ? BIG_BYTES : 5000, id, id);
    if (i % 3 == 0) {
      put_big(wk, &o);
    } else {
      w->req = bed_accept_request(&o);
      BED_CHECK(run(wk->lanes, w) == 0);
    }
    wk->acked++;
    waiting_init(&commits[i]);
    commits[i].req = bed_request(PEER_COMMIT, keys[i]);
    commits[i].req.ver = o.row.ver;
    commits[i].req.missing = i % 10 == 0;
    waiting_submit(wk->lanes, &commits[i]); /* lazily: nobody waits here */
    read_back(wk, w, &o);
    bed_object_free(&o);
  }
  for (unsigned i = 0; i < KEYS_PER_THREAD; i++) BED_CHECK(waiting_wait(&commits[i]) == 0);
  free(commits);
  free(w);
  return NULL;
}

static void check_many_threads(void) {
  printf("lanes: %d threads stage, accept, commit, read and fetch side by side\n", THREADS);
  struct bed b;
  struct drive_lanes *lanes;
  struct worker workers[THREADS];
  struct drive_stats stats;
  bed_start(&b);
  BED_CHECK(lanes_start(TAKE(b.drive), 2, NULL, NULL, &lanes) == 0);
  for (unsigned i = 0; i < THREADS; i++) {
    workers[i] = (struct worker){.lanes = lanes, .number = i};
    BED_CHECK(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]) == 0);
  }
  unsigned acked = 0;
  for (unsigned i = 0; i < THREADS; i++) {
    pthread_join(workers[i].thread, NULL);
    acked += workers[i].acked;
  }
  drive_stats_get(lanes_drive(lanes), &stats);
  printf("lanes: %llu operations in %llu batches\n", (unsigned long long)stats.batch_ops,
         (unsigned long long)stats.batches);
  BED_CHECK(acked == THREADS * KEYS_PER_THREAD && stats.rows == acked);
  BED_CHECK(stats.batch_ops == 2 * (uint64_t)acked && stats.batches <= stats.batch_ops);
  BED_CHECK(stats.undecided == 0 && stats.stages_open == 0);
  BED_CHECK(stats.heal_entries == THREADS * KEYS_PER_THREAD / 10);
  lanes_stop(lanes);
  bed_reopen(&b);
  drive_stats_get(b.drive, &stats);
  BED_CHECK(stats.rows == acked && stats.orphans_swept == 0);
  bed_end(&b);
}

/* ---- group commit, and the order of a COMMIT behind its ACCEPT ---- */

static const struct store_ops *real;
static struct store_ops ops;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned commits_seen;
static _Atomic int commit_result;

static int gated_commit(struct store_txn *txn) {
  pthread_mutex_lock(&gate);
  pthread_mutex_unlock(&gate);
  atomic_fetch_add(&commits_seen, 1);
  int err = atomic_load(&commit_result);
  if (err == 0) return real->commit(txn);
  real->abort(txn);
  return err;
}

static void gate_install(struct drive *d) {
  real = d->store->ops;
  ops = *real;
  ops.commit = gated_commit;
  d->store->ops = &ops;
  atomic_store(&commits_seen, 0);
  atomic_store(&commit_result, 0);
}

#define CROWD 100

static void crowd_accept(struct waiting *w, struct bed_object *o, char key[16], unsigned i) {
  snprintf(key, 16, "k%u", i);
  bed_object(o, key, ROW_PUT, i + 1, 100, i + 1, i + 1);
  waiting_init(w);
  w->req = bed_accept_request(o);
}

static void check_group_commit(void) {
  printf("lanes: what waits while a commit runs is one batch, COMMITs behind their ACCEPTs\n");
  struct bed b;
  struct drive_lanes *lanes;
  struct waiting *accepts = calloc(CROWD, sizeof *accepts), *flags = calloc(CROWD, sizeof *flags);
  struct bed_object *objects = calloc(CROWD, sizeof *objects);
  static char keys[CROWD][16];
  BED_CHECK(accepts && flags && objects);
  bed_start(&b);
  gate_install(b.drive);
  pthread_mutex_lock(&gate);
  BED_CHECK(lanes_start(TAKE(b.drive), 2, NULL, NULL, &lanes) == 0);
  for (unsigned i = 0; i < CROWD; i++) {
    crowd_accept(&accepts[i], &objects[i], keys[i], i);
    waiting_init(&flags[i]);
    flags[i].req = bed_request(PEER_COMMIT, keys[i]);
    flags[i].req.ver = objects[i].row.ver;
    waiting_submit(lanes, &flags[i]); /* before its ACCEPT, even */
    waiting_submit(lanes, &accepts[i]);
  }
  for (unsigned i = 0; i < CROWD; i++)
    BED_CHECK(atomic_load(&commits_seen) == 0); /* the gate holds the first batch */
  pthread_mutex_unlock(&gate);
  for (unsigned i = 0; i < CROWD; i++) {
    BED_CHECK(waiting_wait(&accepts[i]) == 0);
    BED_CHECK(waiting_wait(&flags[i]) == 0);
  }
  struct drive_stats stats;
  drive_stats_get(lanes_drive(lanes), &stats);
  printf("lanes: %u commits for %u operations\n", atomic_load(&commits_seen), 2 * CROWD);
  BED_CHECK(atomic_load(&commits_seen) < CROWD);
  BED_CHECK(stats.rows == CROWD && stats.undecided == 0);
  lanes_stop(lanes);
  for (unsigned i = 0; i < CROWD; i++) bed_object_free(&objects[i]);
  free(accepts);
  free(flags);
  free(objects);
  bed_remove(b.path);
}

static _Atomic unsigned failures_told;

static void note_failure(void *arg, struct drive *d) {
  BED_CHECK(arg == &failures_told && drive_failed(d) && drive_failure(d)[0]);
  atomic_fetch_add(&failures_told, 1);
}

static void check_failure(void) {
  printf("lanes: a failed commit answers everything that waits, and tells once\n");
  struct bed b;
  struct drive_lanes *lanes;
  struct waiting *accepts = calloc(CROWD, sizeof *accepts);
  struct bed_object *objects = calloc(CROWD, sizeof *objects);
  static char keys[CROWD][16];
  BED_CHECK(accepts && objects);
  bed_start(&b);
  gate_install(b.drive);
  pthread_mutex_lock(&gate);
  BED_CHECK(lanes_start(TAKE(b.drive), 2, note_failure, &failures_told, &lanes) == 0);
  for (unsigned i = 0; i < CROWD; i++) {
    crowd_accept(&accepts[i], &objects[i], keys[i], i);
    waiting_submit(lanes, &accepts[i]);
  }
  atomic_store(&commit_result, -EIO);
  pthread_mutex_unlock(&gate);
  for (unsigned i = 0; i < CROWD; i++) BED_CHECK(waiting_wait(&accepts[i]) == ERR_DRIVE_FAILED);
  struct waiting w;
  waiting_init(&w);
  static const uint8_t verbs[] = {PEER_READ, PEER_LIST,    PEER_PROMISE, PEER_COMMIT, PEER_STAGE,
                                  PEER_DROP, PEER_DISCARD, PEER_BUCKET,  PEER_FETCH};
  for (unsigned i = 0; i < ARRAY_LEN(verbs); i++) {
    w.req = bed_request(verbs[i], "k");
    BED_CHECK(run(lanes, &w) == ERR_DRIVE_FAILED && !w.reply.body);
  }
  BED_CHECK(atomic_load(&failures_told) == 1);
  lanes_stop(lanes);
  for (unsigned i = 0; i < CROWD; i++) bed_object_free(&objects[i]);
  free(accepts);
  free(objects);
  bed_remove(b.path);
}

static void check_stop(void) {
  printf("lanes: a stop finishes what was submitted, lazy COMMITs too\n");
  struct bed b;
  struct drive_lanes *lanes;
  struct waiting w, flag;
  struct bed_object o;
  char key[16];
  struct drive_stats stats;
  bed_start(&b);
  BED_CHECK(lanes_start(TAKE(b.drive), 1, NULL, NULL, &lanes) == 0);
  crowd_accept(&w, &o, key, 1);
  BED_CHECK(run(lanes, &w) == 0);
  waiting_init(&flag);
  flag.req = bed_request(PEER_COMMIT, key);
  flag.req.ver = o.row.ver;
  waiting_submit(lanes, &flag);
  lanes_stop(lanes);
  BED_CHECK(flag.done == 1 && flag.reply.err == 0);
  bed_reopen(&b);
  drive_stats_get(b.drive, &stats);
  BED_CHECK(stats.rows == 1 && stats.undecided == 0);
  bed_end(&b);
  bed_object_free(&o);
}

static void check_refused_seal(void) {
  printf("lanes: an ACCEPT whose chunk is not whole is refused before the writer sees it\n");
  struct bed b;
  struct drive_lanes *lanes;
  struct waiting w;
  struct bed_object o;
  bed_start(&b);
  BED_CHECK(lanes_start(TAKE(b.drive), 2, NULL, NULL, &lanes) == 0);
  bed_object(&o, "k", ROW_PUT, 1, BIG_BYTES, 1, 1);
  waiting_init(&w);
  w.req = bed_request(PEER_STAGE, "");
  bed_units(&w.req, &o, 0, 2);
  BED_CHECK(run(lanes, &w) == 0);
  w.req = bed_accept_request(&o);
  w.req.unit_count = 0;
  BED_CHECK(run(lanes, &w) == ERR_NO_CHUNK);
  w.req = bed_request(PEER_DROP, "");
  w.req.data_id = o.data_id;
  BED_CHECK(run(lanes, &w) == 0);
  lanes_stop(lanes);
  BED_CHECK(bed_files(&b) == 0);
  bed_remove(b.path);
  bed_object_free(&o);
}

static long faults_now(void) {
  struct rusage usage;
  BED_CHECK(getrusage(RUSAGE_THREAD, &usage) == 0);
  return usage.ru_majflt;
}

/* Makes this thread wait for a page of a file. False where the file system keeps everything in
 * memory. */
static bool fault_once(const char *dir) {
  char path[512];
  snprintf(path, sizeof path, "%s/cold", dir);
  int fd = open(path, O_RDWR | O_CREAT, 0600);
  BED_CHECK(fd >= 0 && ftruncate(fd, 4096) == 0 && pwrite(fd, "x", 1, 0) == 1 && fsync(fd) == 0);
  BED_CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
  long before = faults_now();
  volatile const char *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
  BED_CHECK(page != MAP_FAILED && page[0] == 'x');
  munmap((void *)(uintptr_t)page, 4096);
  close(fd);
  unlink(path);
  return faults_now() != before;
}

static void check_cold(void) {
  printf("lanes: READs without a lane end when one of them waited for the disk\n");
  struct bed b;
  struct drive_lanes *lanes;
  bed_start(&b);
  BED_CHECK(lanes_start(TAKE(b.drive), 1, NULL, NULL, &lanes) == 0);
  struct peer_request req = bed_request(PEER_READ, "k");
  struct peer_reply reply;
  BED_CHECK(lanes_read_here(lanes, &req, &reply));
  free(reply.body);
  if (fault_once(b.path)) {
    BED_CHECK(lanes_read_here(lanes, &req, &reply)); /* finds out */
    free(reply.body);
    BED_CHECK(!lanes_read_here(lanes, &req, &reply));
  } else {
    printf("lanes: SKIPPED: no page of a file can be made cold here\n");
  }
  lanes_stop(lanes);
  bed_remove(b.path);
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  log_setup(LOG_ERROR, NULL);
  check_many_threads();
  check_group_commit();
  check_failure();
  check_stop();
  check_refused_seal();
  check_cold();
  printf("lanes: %u READs were done without a lane\n", reads_here);
  BED_CHECK(reads_here > 0);
  printf("lanes: all checks passed\n");
  return 0;
}
