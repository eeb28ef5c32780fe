/* chunk_server.c: see chunk_server.h. The listener, the memory that connections wait for, the end.
 */
#include "storage/net/chunk_server.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "config/err.h"
#include "storage/net/chunk_conn.h"
#include "storage/net/log_limit.h"

/* ---- waking connections ---- */

/* The first in the queue that gets no memory stops those behind it: nobody starves. */
static void serve_waiting(struct chunk_server *s) {
  while (!list_empty(&s->waiting)) {
    struct chunk_conn *c = container_of(s->waiting.next, struct chunk_conn, wait);
    if (!chunk_conn_take_memory(c)) break;
  }
}

static void wake_turn(uv_idle_t *idle) {
  struct chunk_server *s = idle->data;
  uv_idle_stop(idle);
  serve_waiting(s);
  struct list batch;
  list_init(&batch);
  list_splice_back(&batch, &s->resumable);
  for (struct list *l; (l = list_pop_front(&batch));) {
    struct chunk_conn *c = container_of(l, struct chunk_conn, wait);
    c->waits = CHUNK_READS;
    stream_resume(c->stream);
  }
}

void chunk_server_wake(struct chunk_server *s) {
  if (!s->handles_closing) uv_idle_start(&s->wake, wake_turn);
}

void chunk_server_block_put(struct chunk_server *s, struct chunk_call *call) {
  if (!call->block) return;
  s->drive_bytes[call->drive] -= call->block->size;
  block_pool_put(&s->pool, TAKE(call->block));
  if (!list_empty(&s->waiting)) chunk_server_wake(s);
}

/* ---- ticks ---- */

static void tick_fired(uv_timer_t *timer) {
  struct chunk_server *s = timer->data;
  uint64_t now = uv_now(s->loop);
  list_foreach_safe(l, &s->conns) chunk_conn_tick(container_of(l, struct chunk_conn, link), now);
  if (!list_empty(&s->waiting)) chunk_server_wake(s);
  s->unused_ticks = s->pool.used ? 0 : s->unused_ticks + 1;
  if (s->unused_ticks == CHUNK_SERVER_TRIM_TICKS) block_pool_trim(&s->pool);
}

/* ---- start and stop ---- */

static void on_connection(uv_stream_t *listener, int status) {
  struct chunk_server *s = listener->data;
  if (s->stopping) return;
  if (status < 0) {
    log_limited(LOG_WARN, LOG_LIMIT_REFUSAL_MS, NULL, "peer", "a connection was not accepted: %s",
                err_words(status));
    return;
  }
  chunk_conn_accept(s);
}

static void handle_closed(uv_handle_t *handle) {
  struct chunk_server *s = handle->data;
  if (--s->handles > 0) return;
  void (*stopped)(void *) = s->stopped;
  void *arg = s->stopped_arg;
  block_pool_close(&s->pool);
  free(s);
  if (stopped) stopped(arg);
}

static void close_handles(struct chunk_server *s) {
  s->handles_closing = true;
  if (!uv_is_closing((uv_handle_t *)&s->listener))
    uv_close((uv_handle_t *)&s->listener, handle_closed);
  uv_close((uv_handle_t *)&s->tick, handle_closed);
  uv_close((uv_handle_t *)&s->wake, handle_closed);
}

int chunk_server_start(struct env_uv *env, const struct cluster_map *map, struct peer *const *local,
                       struct hello_policy *policy, const char *listen,
                       struct chunk_server **ret_server) {
  int fd = listen_open(listen);
  if (fd < 0) return fd;
  struct chunk_server *s = calloc(1, sizeof *s);
  if (!s) {
    close(fd);
    return -ENOMEM;
  }
  s->env = env;
  s->loop = env_uv_loop(env);
  s->map = map;
  s->local = local;
  s->policy = policy;
  list_init(&s->conns);
  list_init(&s->waiting);
  list_init(&s->resumable);
  block_pool_open(&s->pool, CHUNK_SERVER_BUFFER_BYTES);
  uv_timer_init(s->loop, &s->tick);
  uv_idle_init(s->loop, &s->wake);
  uv_tcp_init(s->loop, &s->listener);
  s->handles = 3;
  s->listener.data = s->tick.data = s->wake.data = s;
  int err = uv_tcp_open(&s->listener, fd);
  if (err < 0)
    close(fd);
  else
    err = uv_listen((uv_stream_t *)&s->listener, STREAM_LISTEN_BACKLOG, on_connection);
  if (err < 0) {
    close_handles(s); /* frees itself in the loop's next turn */
    return err;
  }
  uv_timer_start(&s->tick, tick_fired, CHUNK_SERVER_TICK_MS, CHUNK_SERVER_TICK_MS);
  *ret_server = s;
  return 0;
}

void chunk_server_stop_advance(struct chunk_server *s) {
  if (s->stopping && !s->handles_closing && list_empty(&s->conns)) close_handles(s);
}

void chunk_server_stop(struct chunk_server *s, void (*stopped)(void *arg), void *arg) {
  assert(!s->stopping);
  s->stopping = true;
  s->stopped = stopped;
  s->stopped_arg = arg;
  uv_close((uv_handle_t *)&s->listener, handle_closed);
  list_foreach_safe(l, &s->conns) chunk_conn_stop(container_of(l, struct chunk_conn, link));
  chunk_server_stop_advance(s);
}
