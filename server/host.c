/* host.c: starts the workers, waits for a signal, drains.
 *
 *   SIGTERM -> each worker: drain HTTP -> stop sweep -> wait for operations -> stop chunk server ->
 * close peers -> free
 *
 * The main thread only waits; each worker's own thread does all that touches its loop. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "config/err.h"
#include "server/worker_run.h"

static void sum_objects(struct objects_stats *to, const struct objects_stats *from) {
  _Static_assert(sizeof(struct objects_stats) % sizeof(uint64_t) == 0, "counters only");
  uint64_t *t = (uint64_t *)to;
  const uint64_t *f = (const uint64_t *)from;
  for (size_t i = 0; i < sizeof *to / sizeof *t; i++)
    t[i] += __atomic_load_n(&f[i], __ATOMIC_RELAXED);
}

static void sum_http(struct http_stats *to, const struct http_stats *from) {
  _Static_assert(sizeof(struct http_stats) % sizeof(uint64_t) == 0, "counters only");
  uint64_t *t = (uint64_t *)to;
  const uint64_t *f = (const uint64_t *)from;
  for (size_t i = 0; i < sizeof *to / sizeof *t; i++) t[i] += f[i];
}

bool host_look_begin(struct host *h) {
  pthread_mutex_lock(&h->look);
  if (h->serving) return true;
  pthread_mutex_unlock(&h->look);
  return false;
}

void host_look_end(struct host *h) {
  pthread_mutex_unlock(&h->look);
}

static void host_set_serving(struct host *h, bool serving) {
  pthread_mutex_lock(&h->look);
  h->serving = serving;
  pthread_mutex_unlock(&h->look);
}

void host_stats_sum(struct host *h, struct objects_stats *objects, struct http_stats *http,
                    struct s3_stats *s3, struct env_uv_stats *env) {
  memset(objects, 0, sizeof *objects);
  memset(http, 0, sizeof *http);
  memset(s3, 0, sizeof *s3);
  memset(env, 0, sizeof *env);
  if (!host_look_begin(h)) return;
  for (unsigned i = 0; i < h->worker_count; i++) {
    const struct worker *w = &h->workers[i];
    struct http_stats http_one;
    struct env_uv_stats env_one;
    sum_objects(objects, &w->objects.stats);
    http_stats_get(w->s3_server, &http_one);
    sum_http(http, &http_one);
    s3->requests += __atomic_load_n(&w->s3.stats.requests, __ATOMIC_RELAXED);
    s3->errors_4xx += __atomic_load_n(&w->s3.stats.errors_4xx, __ATOMIC_RELAXED);
    s3->errors_5xx += __atomic_load_n(&w->s3.stats.errors_5xx, __ATOMIC_RELAXED);
    s3->unauthorized += __atomic_load_n(&w->s3.stats.unauthorized, __ATOMIC_RELAXED);
    env_uv_stats_get(w->env, &env_one);
    env->buffer_bytes += env_one.buffer_bytes;
    env->buffer_bytes_max += env_one.buffer_bytes_max;
    env->buffer_waits += env_one.buffer_waits;
    env->buffer_timeouts += env_one.buffer_timeouts;
    env->works_lane += env_one.works_lane;
    env->works_loop += env_one.works_loop;
  }
  host_look_end(h);
}

/* Workers tell how their start went; the main thread waits for all. */
static int host_wait_started(struct host *h, struct worker_run *runs) {
  int err = 0;
  for (unsigned i = 0; i < h->worker_count; i++) {
    int one = worker_run_started(&runs[i]);
    if (one < 0 && err == 0) err = one;
  }
  return err;
}

static void host_wait_signal(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  int got = 0;
  while (sigwait(&set, &got) != 0) continue;
  log_info("server", "%s: stopping", got == SIGINT ? "SIGINT" : "SIGTERM");
}

int host_run(const struct settings *s, const struct cluster_map *map, struct cluster *cluster,
             struct cpu_lanes *cpu) {
  struct host host = {.settings = s, .map = map, .cluster = cluster, .cpu = cpu};
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  pthread_mutex_init(&host.look, NULL);
  host.worker_count = s->server.workers ? s->server.workers : (unsigned)MAX(cores, 1);
  host.workers = calloc(host.worker_count, sizeof *host.workers);
  struct worker_run *runs = calloc(host.worker_count, sizeof *runs);
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  host.started_wall_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
  if (!host.workers || !runs) {
    free(host.workers);
    free(runs);
    return -ENOMEM;
  }
  int err = 0;
  unsigned started = 0;
  for (; started < host.worker_count; started++) {
    host.workers[started].host = &host;
    host.workers[started].index = started;
    err = worker_run_start(&runs[started], &host.workers[started]);
    if (err < 0) break;
  }
  if (err == 0) err = host_wait_started(&host, runs);
  if (err == 0) {
    host_set_serving(&host, true);
    log_info("server", "serving S3 on %s, admin on %s, %u workers", s->server.s3_listen,
             s->server.admin_listen, host.worker_count);
    host_wait_signal();
  }
  /* The workers go at their own pace: from here on none may look at another. */
  host_set_serving(&host, false);
  for (unsigned i = 0; i < started; i++)
    worker_run_stop(&runs[i], err < 0 ? 0 : s->server.shutdown_grace_ms);
  for (unsigned i = 0; i < started; i++) worker_run_join(&runs[i]);
  free(host.workers);
  free(runs);
  pthread_mutex_destroy(&host.look);
  if (err == 0) log_info("server", "stopped");
  return err;
}
