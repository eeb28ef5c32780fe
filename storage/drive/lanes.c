/* lanes.c: see lanes.h.
 *
 *   submit -> shared queue ----------------------> any reader -> done
 *          -> queue of one reader (by data_id) -> that reader -> done, or (ACCEPT, sealed) ->
 *          -> writer queue, lazy queue ---------> writer: begin, apply all, commit -> done
 *   read_here: a READ on the caller's thread, while the index is in memory
 *
 * One mutex guards all queues: it is held for a few list operations only. Stages of a chunk, its
 * DROP and its seal go to the same reader, so that they keep their order. A COMMIT waits for
 * company, and goes behind the ACCEPTs of its batch: it may concern one of them. */
#include "storage/drive/lanes.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "config/err.h"
#include "config/log.h"

#define LANES_READERS_MAX 64
#define LANES_HOUSEKEEP_ITEMS 256
#define LANES_HOUSEKEEP_BUSY_MS 1000 /* under load it waits this long for a pause */
/* Between two runs: each is a transaction with its own syncs, so what falls due meanwhile shares
 * one. */
#define LANES_HOUSEKEEP_PAUSE_MS 100
#define LANES_NEVER UINT64_MAX

struct lane_reader {
  struct drive_lanes *lanes;
  pthread_t thread;
  pthread_cond_t wake;
  struct list queue;
  bool idle, turn; /* turn: the shared queue is asked first next time */
};

struct drive_lanes {
  struct drive *drive;
  void (*failed)(void *arg, struct drive *d);
  void *failed_arg;
  atomic_bool failed_told;
  atomic_uint_fast64_t cold_until_ms; /* no READ outside the lanes before this */

  pthread_mutex_t mutex;
  struct list shared;
  struct list writes;
  struct list lazy;
  uint64_t lazy_due_ms; /* of the oldest; LANES_NEVER: none waits */
  pthread_cond_t writer_wake;
  bool stopping;     /* no more submits: readers end when their queues are empty */
  bool readers_gone; /* the writer ends when its queues are empty */

  pthread_t writer;
  uint64_t housekeep_ms; /* when it wants to be called; the writer's own */
  unsigned reader_count;
  struct lane_reader readers[];
};

static uint64_t lanes_now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static uint64_t lanes_later(uint64_t now_ms, uint64_t delay_ms) {
  return delay_ms > LANES_NEVER - now_ms ? LANES_NEVER : now_ms + delay_ms;
}

static struct drive_job *job_of(struct list *link) {
  return container_of(link, struct drive_job, link);
}

static void lanes_check_failed(struct drive_lanes *l) {
  if (!drive_failed(l->drive) || atomic_exchange(&l->failed_told, true)) return;
  log_error("drive", "%s: out of service: %s", drive_identity_of(l->drive)->drive_name,
            drive_failure(l->drive));
  if (l->failed) l->failed(l->failed_arg, l->drive);
}

static void lanes_end_job(struct drive_job *job, int err) {
  if (err < 0) {
    free(job->reply->body);
    *job->reply = (struct peer_reply){.err = err};
  }
  job->done(job);
}

/* ---- readers ---- */

static void reader_run(struct drive_lanes *l, struct drive_job *job) {
  switch (job->req->verb) {
    case PEER_STAGE:
    case PEER_DROP:
      drive_stage(l->drive, job->req, job->reply);
      break;
    case PEER_ACCEPT: {
      int err = drive_seal(l->drive, job->req);
      if (err < 0) {
        *job->reply = (struct peer_reply){.err = err};
        break;
      }
      pthread_mutex_lock(&l->mutex);
      list_push_back(&l->writes, &job->link);
      pthread_cond_signal(&l->writer_wake);
      pthread_mutex_unlock(&l->mutex);
      return;
    }
    default:
      drive_read(l->drive, job->req, job->reply);
  }
  lanes_check_failed(l);
  lanes_end_job(job, 0);
}

/* Own and shared queue in turn, so that neither reads nor stages starve. */
static struct list *reader_take(struct drive_lanes *l, struct lane_reader *r) {
  r->turn = !r->turn;
  struct list *item = list_pop_front(r->turn ? &l->shared : &r->queue);
  return item ? item : list_pop_front(r->turn ? &r->queue : &l->shared);
}

static void *reader_main(void *arg) {
  struct lane_reader *r = arg;
  struct drive_lanes *l = r->lanes;
  pthread_mutex_lock(&l->mutex);
  for (;;) {
    struct list *item = reader_take(l, r);
    if (!item && l->stopping) break;
    if (!item) {
      r->idle = true;
      pthread_cond_wait(&r->wake, &l->mutex);
      r->idle = false;
      continue;
    }
    pthread_mutex_unlock(&l->mutex);
    reader_run(l, job_of(item));
    pthread_mutex_lock(&l->mutex);
  }
  pthread_mutex_unlock(&l->mutex);
  return NULL;
}

/* ---- the writer ---- */

static void writer_run(struct drive_lanes *l, struct list *jobs) {
  int err = drive_batch_begin(l->drive);
  if (err == 0) {
    list_foreach(it, jobs) drive_batch_apply(l->drive, job_of(it)->req, job_of(it)->reply);
    err = drive_batch_commit(l->drive);
  } else {
    list_foreach(it, jobs) * job_of(it)->reply = (struct peer_reply){0};
  }
  lanes_check_failed(l);
  for (struct list *it; (it = list_pop_front(jobs));) lanes_end_job(job_of(it), err);
}

static void writer_housekeep(struct drive_lanes *l) {
  uint64_t delay = drive_housekeep(l->drive, LANES_HOUSEKEEP_ITEMS);
  if (delay > 0) delay = MAX(delay, (uint64_t)LANES_HOUSEKEEP_PAUSE_MS); /* 0: there is more */
  l->housekeep_ms = lanes_later(lanes_now_ms(), delay);
  lanes_check_failed(l);
}

/* What waits, up to a batch; COMMITs last. */
static void writer_take(struct drive_lanes *l, struct list *jobs) {
  struct list *item;
  unsigned count = 0;
  while (count < DRIVE_BATCH_OPS_MAX && (item = list_pop_front(&l->writes))) {
    list_push_back(jobs, item);
    count++;
  }
  if (!list_empty(&l->writes)) return; /* one of them may be what a COMMIT is about */
  while (count < DRIVE_BATCH_OPS_MAX && (item = list_pop_front(&l->lazy))) {
    list_push_back(jobs, item);
    count++;
  }
  if (list_empty(&l->lazy)) l->lazy_due_ms = LANES_NEVER;
}

static void writer_wait(struct drive_lanes *l, uint64_t until_ms) {
  if (until_ms == LANES_NEVER) {
    pthread_cond_wait(&l->writer_wake, &l->mutex);
    return;
  }
  struct timespec until = {.tv_sec = (time_t)(until_ms / 1000),
                           .tv_nsec = (long)(until_ms % 1000) * 1000000};
  pthread_cond_timedwait(&l->writer_wake, &l->mutex, &until);
}

static void *writer_main(void *arg) {
  struct drive_lanes *l = arg;
  struct list jobs;
  list_init(&jobs);
  pthread_mutex_lock(&l->mutex);
  for (;;) {
    uint64_t now = lanes_now_ms();
    bool busy = !list_empty(&l->writes);
    if (busy || now >= l->lazy_due_ms || (l->readers_gone && !list_empty(&l->lazy)))
      writer_take(l, &jobs);
    else if (l->readers_gone)
      break;
    bool housekeep =
        now >= l->housekeep_ms && (!busy || now - l->housekeep_ms >= LANES_HOUSEKEEP_BUSY_MS);
    if (list_empty(&jobs) && !housekeep) {
      writer_wait(l, MIN(l->lazy_due_ms, l->housekeep_ms));
      continue;
    }
    pthread_mutex_unlock(&l->mutex);
    if (!list_empty(&jobs)) {
      writer_run(l, &jobs);
      /* A batch may have left something to drop or throw away: it is asked again, soon. */
      l->housekeep_ms = MIN(l->housekeep_ms, lanes_later(now, LANES_COMMIT_DELAY_MS));
    }
    if (housekeep) writer_housekeep(l);
    pthread_mutex_lock(&l->mutex);
  }
  pthread_mutex_unlock(&l->mutex);
  return NULL;
}

/* ---- submitting ---- */

/* Whether a staged file must be finished before the row can be committed. */
static bool accept_needs_seal(const struct peer_request *req, struct id128 *ret_data_id) {
  struct row row;
  if (req->unit_count > 0) return false;
  if (row_decode(req->row, &req->bucket, req->key, &row) < 0) return false; /* refused by apply */
  *ret_data_id = row.data_id;
  return row_has_data(&row);
}

/* drive_job.lane: the index of a reader, or one of these. */
enum { LANE_SHARED = LANES_READERS_MAX, LANE_WRITES, LANE_LAZY };

static uint8_t job_lane(const struct drive_lanes *l, const struct drive_job *job) {
  struct id128 data_id = job->req->data_id;
  switch (job->req->verb) {
    case PEER_PROMISE:
    case PEER_DISCARD:
    case PEER_BUCKET:
      return LANE_WRITES;
    case PEER_COMMIT:
      return LANE_LAZY;
    case PEER_ACCEPT:
      if (!accept_needs_seal(job->req, &data_id)) return LANE_WRITES;
      break;
    case PEER_STAGE:
    case PEER_DROP:
      break;
    default:
      return LANE_SHARED;
  }
  return (uint8_t)(load_be32(data_id.bytes + 8) % l->reader_count);
}

static void reader_wake(struct lane_reader *reader) {
  reader->idle = false; /* the next job wakes another one */
  pthread_cond_signal(&reader->wake);
}

static void submit_shared(struct drive_lanes *l, struct drive_job *job) {
  list_push_back(&l->shared, &job->link);
  for (unsigned i = 0; i < l->reader_count; i++) {
    if (!l->readers[i].idle) continue;
    reader_wake(&l->readers[i]);
    return;
  }
}

/* Under the mutex. */
static void submit(struct drive_lanes *l, struct drive_job *job) {
  switch (job->lane) {
    case LANE_WRITES:
      if (list_empty(&l->writes)) pthread_cond_signal(&l->writer_wake);
      list_push_back(&l->writes, &job->link);
      return;
    case LANE_LAZY:
      if (list_empty(&l->lazy)) {
        l->lazy_due_ms = lanes_now_ms() + LANES_COMMIT_DELAY_MS;
        pthread_cond_signal(&l->writer_wake);
      }
      list_push_back(&l->lazy, &job->link);
      return;
    case LANE_SHARED:
      submit_shared(l, job);
      return;
    default:
      list_push_back(&l->readers[job->lane].queue, &job->link);
      if (l->readers[job->lane].idle) reader_wake(&l->readers[job->lane]);
  }
}

void lanes_submit_all(struct drive_lanes *l, struct list *jobs) {
  list_foreach(it, jobs) job_of(it)->lane = job_lane(l, job_of(it));
  pthread_mutex_lock(&l->mutex);
  assert(!l->stopping);
  for (struct list *it; (it = list_pop_front(jobs));) submit(l, job_of(it));
  pthread_mutex_unlock(&l->mutex);
}

void lanes_submit(struct drive_lanes *l, struct drive_job *job) {
  struct list one;
  list_init(&one);
  list_push_back(&one, &job->link);
  lanes_submit_all(l, &one);
}

/* ---- without a lane ---- */

/* How often this thread has waited for a page of some file. */
static long faults_of_thread(void) {
  struct rusage usage;
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_majflt : 0;
}

bool lanes_read_here(struct drive_lanes *l, struct peer_request *req, struct peer_reply *reply) {
  assert(req->verb == PEER_READ);
  static _Thread_local long faults_seen = -1; /* what it waited for before is not the index's */
  uint64_t now = lanes_now_ms();
  if (now < atomic_load_explicit(&l->cold_until_ms, memory_order_relaxed)) return false;
  drive_read(l->drive, req, reply);
  lanes_check_failed(l);
  long faults = faults_of_thread();
  if (faults_seen >= 0 && faults != faults_seen)
    atomic_store_explicit(&l->cold_until_ms, now + LANES_COLD_MS, memory_order_relaxed);
  faults_seen = faults;
  return true;
}

/* ---- starting and stopping ---- */

static void lanes_join_readers(struct drive_lanes *l, unsigned count) {
  pthread_mutex_lock(&l->mutex);
  l->stopping = true;
  for (unsigned i = 0; i < count; i++) pthread_cond_signal(&l->readers[i].wake);
  pthread_mutex_unlock(&l->mutex);
  for (unsigned i = 0; i < count; i++) pthread_join(l->readers[i].thread, NULL);
}

static void lanes_free(struct drive_lanes *l) {
  for (unsigned i = 0; i < l->reader_count; i++) pthread_cond_destroy(&l->readers[i].wake);
  pthread_cond_destroy(&l->writer_wake);
  pthread_mutex_destroy(&l->mutex);
  free(l);
}

/* A signal that asks the process to stop is the main thread's: a lane that took it would lose it.
 * What a thread brings on itself stays with it, SIGBUS of the index's map above all. */
static void lanes_block_signals(sigset_t *ret_old) {
  static const int own[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGABRT};
  sigset_t set;
  sigfillset(&set);
  for (size_t i = 0; i < ARRAY_LEN(own); i++) sigdelset(&set, own[i]);
  pthread_sigmask(SIG_BLOCK, &set, ret_old);
}

static int lanes_create_threads(struct drive_lanes *l) {
  for (unsigned i = 0; i < l->reader_count; i++) {
    int rc = pthread_create(&l->readers[i].thread, NULL, reader_main, &l->readers[i]);
    if (rc == 0) continue;
    lanes_join_readers(l, i);
    return -rc;
  }
  int rc = pthread_create(&l->writer, NULL, writer_main, l);
  if (rc != 0) lanes_join_readers(l, l->reader_count);
  return -rc;
}

static int lanes_start_threads(struct drive_lanes *l) {
  sigset_t old;
  lanes_block_signals(&old);
  int err = lanes_create_threads(l);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return err;
}

int lanes_start(struct drive *d, unsigned readers, void (*failed)(void *arg, struct drive *d),
                void *arg, struct drive_lanes **ret_lanes) {
  readers = MAX(MIN(readers, LANES_READERS_MAX), 1u);
  struct drive_lanes *l = calloc(1, sizeof *l + readers * sizeof l->readers[0]);
  if (!l) return -ENOMEM;
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&l->writer_wake, &monotonic);
  pthread_condattr_destroy(&monotonic);
  pthread_mutex_init(&l->mutex, NULL);
  list_init(&l->shared);
  list_init(&l->writes);
  list_init(&l->lazy);
  l->lazy_due_ms = LANES_NEVER;
  l->drive = d;
  l->failed = failed;
  l->failed_arg = arg;
  l->reader_count = readers;
  for (unsigned i = 0; i < readers; i++) {
    l->readers[i].lanes = l;
    list_init(&l->readers[i].queue);
    pthread_cond_init(&l->readers[i].wake, NULL);
  }
  int err = lanes_start_threads(l);
  if (err < 0) {
    lanes_free(l);
    return err;
  }
  struct drive_stats stats;
  drive_stats_get(d, &stats);
  if (stats.orphans_swept > 0)
    log_info("drive", "%s: removed %llu chunk files that no row names",
             drive_identity_of(d)->drive_name, (unsigned long long)stats.orphans_swept);
  *ret_lanes = l;
  return 0;
}

void lanes_stop(struct drive_lanes *l) {
  if (!l) return;
  lanes_join_readers(l, l->reader_count);
  pthread_mutex_lock(&l->mutex);
  l->readers_gone = true;
  pthread_cond_signal(&l->writer_wake);
  pthread_mutex_unlock(&l->mutex);
  pthread_join(l->writer, NULL);
  drive_finish(l->drive);
  lanes_check_failed(l);
  drive_close(l->drive);
  lanes_free(l);
}

struct drive *lanes_drive(struct drive_lanes *l) {
  return l->drive;
}
