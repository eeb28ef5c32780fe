/* worker.c: sets one worker up on its loop, and takes it down again in order. */
#include <errno.h>
#include <stdlib.h>

#include "config/err.h"
#include "server/admin.h"
#include "server/worker_run.h"

#define WORKER_POLL_MS 10
#define WORKER_BUFFER_BYTES_MIN (4ull << 20)

enum worker_stage {
  STAGE_SERVING,
  STAGE_DRAIN_HTTP,   /* S3 and admin connections finish */
  STAGE_STOP_SWEEP,   /* background work ends */
  STAGE_WAIT_OBJECTS, /* stragglers of answered operations */
  STAGE_STOP_CHUNKS,  /* peers' calls on our drives end */
  STAGE_CLOSE_PEERS,  /* connections to other hosts */
  STAGE_DONE,
};

static void worker_advance(struct worker_run *run);

static struct http_limits worker_limits(const struct settings *s, unsigned workers) {
  return (struct http_limits){.header_timeout_ms = s->server.header_timeout_ms,
                              .idle_timeout_ms = s->server.idle_timeout_ms,
                              .body_timeout_ms = s->server.body_timeout_ms,
                              .connections_max = DIV_UP(s->server.connections_max, workers)};
}

#ifdef KOFN_TEST_SWITCHES
static void worker_switches(struct objects *o) {
  const char *stop = getenv("KOFN_TEST_STOP_AFTER_ACCEPTS");
  if (stop) o->test_stop_after_accepts = (unsigned)strtoul(stop, NULL, 10);
  o->test_skip_promise = getenv("KOFN_TEST_SKIP_PROMISE") != NULL;
}
#endif

static int worker_open_peers(struct worker *w) {
  const struct cluster_map *map = w->host->map;
  for (unsigned h = 0; h < map->host_count; h++) {
    const struct map_host *host = &map->hosts[h];
    if (h != map->self) {
      int err = peer_host_new(w->env, map, h, cluster_policy(w->host->cluster), &w->peer_hosts[h]);
      if (err < 0) return err;
    }
    for (unsigned d = host->drive_first; d < host->drive_first + host->drive_count; d++) {
      if (h != map->self) {
        w->objects.peers[d] = peer_host_drive(w->peer_hosts[h], (uint16_t)d);
        continue;
      }
      int err = peer_local_new(w->env, (uint16_t)d, cluster_lanes(w->host->cluster, (uint16_t)d),
                               &w->local[d]);
      if (err < 0) return err;
      w->objects.peers[d] = w->local[d];
    }
  }
  return 0;
}

static int worker_open_servers(struct worker *w) {
  const struct settings *s = w->host->settings;
  const struct cluster_map *map = w->host->map;
  struct http_limits limits = worker_limits(s, w->host->worker_count);
  w->s3 = (struct s3){.objects = &w->objects, .settings = s};
  if (map->host_count > 1) {
    int err = chunk_server_start(w->env, map, w->local, cluster_policy(w->host->cluster),
                                 s->server.peer_listen, &w->chunk_server);
    if (err < 0) {
      log_error("server", "cannot listen on %s for peers: %s", s->server.peer_listen,
                err_words(err));
      return err;
    }
  }
  struct http_handler s3 = s3_handler(&w->s3);
  int err = http_server_start(w->env, s->server.s3_listen, &s3, &limits, &w->s3_server);
  if (err < 0) {
    log_error("server", "cannot listen on %s for S3: %s", s->server.s3_listen, err_words(err));
    return err;
  }
  if (w->index != 0) return 0;
  struct http_handler admin = admin_handler(w);
  err = http_server_start(w->env, s->server.admin_listen, &admin, &limits, &w->admin_server);
  if (err < 0) {
    log_error("server", "cannot listen on %s for admin: %s", s->server.admin_listen,
              err_words(err));
    return err;
  }
  return object_sweep_start(&w->objects, &w->sweep);
}

static int worker_open(struct worker *w) {
  const struct settings *s = w->host->settings;
  uint64_t buffers = MAX(s->server.buffer_bytes / w->host->worker_count, WORKER_BUFFER_BYTES_MIN);
  int err = env_uv_open(&w->loop, w->host->cpu, buffers, &w->env);
  if (err < 0) return err;
  struct objects *o = &w->objects;
  o->env = env_uv_env(w->env);
  o->map = w->host->map;
  o->placement = cluster_placement(w->host->cluster);
  o->inline_max_bytes = s->drive.inline_max_bytes;
  o->peer_timeout_ms = (uint32_t)s->server.peer_timeout_ms;
  o->buffer_wait_ms = s->server.buffer_wait_ms;
#ifdef KOFN_TEST_SWITCHES
  worker_switches(o);
#endif
  err = worker_open_peers(w);
  if (err == 0) err = objects_open(o);
  if (err == 0) err = worker_open_servers(w);
  return err;
}

/* ---- taking down: every callback comes back to worker_advance ---- */

static void worker_poll(struct env_timer *t) {
  worker_advance(container_of(t, struct worker_run, poll));
}

static void worker_wait(struct worker_run *run) {
  env_timer_start(run->worker->objects.env, &run->poll, WORKER_POLL_MS);
}

static void worker_one_closed(void *arg) {
  struct worker_run *run = arg;
  run->closing--;
  worker_advance(run);
}

static void worker_grace_over(struct env_timer *t) {
  struct worker_run *run = container_of(t, struct worker_run, grace);
  if (run->stage != STAGE_DRAIN_HTTP) return;
  log_warn("server", "shutdown_grace is over: closing the connections that are left");
  if (run->worker->s3_server) http_server_abort(run->worker->s3_server);
  if (run->worker->admin_server) http_server_abort(run->worker->admin_server);
}

static void worker_drain_http(struct worker_run *run) {
  struct worker *w = run->worker;
  run->grace.fire = worker_grace_over;
  run->poll.fire = worker_poll;
  env_timer_start(w->objects.env, &run->grace, run->grace_ms);
  struct http_server *servers[] = {w->s3_server, w->admin_server};
  for (size_t i = 0; i < ARRAY_LEN(servers); i++) {
    if (!servers[i]) continue;
    run->closing++;
    http_server_drain(servers[i], worker_one_closed, run);
  }
}

static void worker_close_peers(struct worker_run *run) {
  struct worker *w = run->worker;
  for (unsigned h = 0; h < MAP_HOSTS_MAX; h++) {
    if (!w->peer_hosts[h]) continue;
    run->closing++;
    peer_host_close(TAKE(w->peer_hosts[h]), worker_one_closed, run);
  }
}

/* The only place where the next stage starts. */
static void worker_advance(struct worker_run *run) {
  struct worker *w = run->worker;
  while (run->closing == 0 && run->stage < STAGE_DONE) {
    if (run->stage == STAGE_WAIT_OBJECTS && (w->objects.running > 0 || w->s3.running > 0)) {
      worker_wait(run);
      return;
    }
    switch (++run->stage) {
      case STAGE_DRAIN_HTTP:
        worker_drain_http(run);
        break;
      case STAGE_STOP_SWEEP:
        env_timer_stop(w->objects.env, &run->grace);
        if (!w->sweep) break;
        run->closing++;
        object_sweep_stop(TAKE(w->sweep), worker_one_closed, run);
        break;
      case STAGE_STOP_CHUNKS:
        if (!w->chunk_server) break;
        run->closing++;
        chunk_server_stop(TAKE(w->chunk_server), worker_one_closed, run);
        break;
      case STAGE_CLOSE_PEERS:
        worker_close_peers(run);
        break;
      default:
        break;
    }
  }
}

static void worker_stop_mail(struct mail *m) {
  struct worker_run *run = container_of(m, struct worker_run, stop_mail);
  worker_advance(run);
}

static void worker_free(struct worker *w) {
  http_server_free(w->s3_server);
  http_server_free(w->admin_server);
  w->s3_server = w->admin_server = NULL;
  if (w->objects.map) objects_close(&w->objects);
  for (unsigned d = 0; d < MAP_DRIVES_MAX; d++) peer_local_free(TAKE(w->local[d]));
  if (w->env) env_uv_close(w->env);
  uv_run(&w->loop, UV_RUN_DEFAULT);
  uv_loop_close(&w->loop);
}

static void worker_tell(struct worker_run *run, int err) {
  pthread_mutex_lock(&run->lock);
  run->started = err;
  run->told = true;
  pthread_cond_signal(&run->cond);
  pthread_mutex_unlock(&run->lock);
}

static void *worker_thread(void *arg) {
  struct worker_run *run = arg;
  struct worker *w = run->worker;
  int err = uv_loop_init(&w->loop);
  if (err < 0) {
    worker_tell(run, err);
    return NULL;
  }
  err = worker_open(w);
  worker_tell(run, err);
  if (err < 0 && w->env) worker_advance(run); /* takes down what was set up */
  while (w->env && run->stage < STAGE_DONE) uv_run(&w->loop, UV_RUN_ONCE);
  worker_free(w);
  return NULL;
}

int worker_run_start(struct worker_run *run, struct worker *w) {
  run->worker = w;
  run->stop_mail.deliver = worker_stop_mail;
  pthread_mutex_init(&run->lock, NULL);
  pthread_cond_init(&run->cond, NULL);
  return -pthread_create(&run->thread, NULL, worker_thread, run);
}

int worker_run_started(struct worker_run *run) {
  pthread_mutex_lock(&run->lock);
  while (!run->told) pthread_cond_wait(&run->cond, &run->lock);
  int err = run->started;
  pthread_mutex_unlock(&run->lock);
  if (err < 0) log_error("server", "worker %u: %s", run->worker->index, err_words(err));
  return err;
}

void worker_run_stop(struct worker_run *run, uint64_t grace_ms) {
  pthread_mutex_lock(&run->lock);
  while (!run->told) pthread_cond_wait(&run->cond, &run->lock);
  bool send = run->started == 0 && !run->stop_sent;
  run->stop_sent = true;
  pthread_mutex_unlock(&run->lock);
  if (!send) return;
  run->grace_ms = grace_ms;
  mailbox_post(env_uv_mailbox(run->worker->env), &run->stop_mail);
}

void worker_run_join(struct worker_run *run) {
  pthread_join(run->thread, NULL);
  pthread_mutex_destroy(&run->lock);
  pthread_cond_destroy(&run->cond);
}
