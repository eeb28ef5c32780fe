/* http_server.c: the listener, its connections, their deadlines, and the way down.
 *
 * One timer sweeps the deadlines of all connections; it runs only while there are any. Connections
 * and exchanges (a request with its answer) come from small free lists. `waker` is active while a
 * connection is queued, so that the loop does not sleep over work. */
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <unistd.h>

#include "config/log.h"
#include "server/http_conn.h"
#include "storage/net/chunk_server.h"

#define SWEEP_MS_MIN 10u
#define SWEEP_MS_MAX 1000u

uint64_t http_server_now(struct http_server *s) {
  return env_now_ms(s->env);
}

const char *http_server_date(struct http_server *s) {
  uint64_t wall_ms = env_wall_ms(s->env);
  if (wall_ms / 1000 != s->date_second || s->date[0] == 0) {
    s->date_second = wall_ms / 1000;
    http_date_format(wall_ms, s->date);
  }
  return s->date;
}

/* splitmix64: ids need not be secret, only different from each other and from another loop's. */
static void next_id(struct http_server *s, char out[17]) {
  static const char digit[] = "0123456789ABCDEF";
  uint64_t z = s->id_state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  for (int i = 0; i < 16; i++) out[i] = digit[z >> (60 - 4 * i) & 15];
  out[16] = 0;
}

/* ---- exchanges ---- */

static void exchange_destroy(struct http_exchange *ex) {
  free(ex->head);
  byte_writer_free(&ex->head_out);
  byte_writer_free(&ex->req.out);
  free(ex);
}

struct http_exchange *http_exchange_new(struct http_conn *conn) {
  struct http_server *s = conn->server;
  struct list *spare = list_pop_front(&s->spare_exchanges);
  struct http_exchange *ex;
  if (spare) {
    ex = container_of(spare, struct http_exchange, spare_link);
    s->spare_exchange_count--;
  } else {
    ex = calloc(1, sizeof *ex);
    if (!ex) return NULL;
  }
  struct byte_writer out = ex->req.out, head_out = ex->head_out;
  uint8_t *head = ex->head;
  size_t head_cap = ex->head_cap;
  /* All but the table of headers, which header_count guards. */
  size_t table = offsetof(struct http_exchange, req.headers);
  size_t behind = table + sizeof ex->req.headers;
  memset(ex, 0, table);
  memset((char *)ex + behind, 0, sizeof *ex - behind);
  ex->req.out = (struct byte_writer){.data = out.data, .cap = out.cap};
  ex->req.out.max = HTTP_OUT_HEADERS_BYTES_MAX;
  ex->head_out = (struct byte_writer){.data = head_out.data, .cap = head_out.cap};
  ex->head = head;
  ex->head_cap = head_cap;
  ex->req.conn = conn;
  ex->req.body.ops = &http_body_ops;
  ex->req.peer_is_loopback = conn->peer_is_loopback;
  ex->req.started_ms = http_server_now(s);
  next_id(s, ex->req.id);
  return ex;
}

void http_exchange_free(struct http_server *s, struct http_exchange *ex) {
  if (!ex) return;
  if (s->spare_exchange_count == HTTP_SPARE_EXCHANGES_MAX ||
      ex->head_cap + ex->head_out.cap + ex->req.out.cap > HTTP_SPARE_BYTES_MAX) {
    exchange_destroy(ex);
    return;
  }
  list_push_front(&s->spare_exchanges, &ex->spare_link);
  s->spare_exchange_count++;
}

/* ---- connections ---- */

static struct http_conn *conn_new(struct http_server *s) {
  struct list *spare = list_pop_front(&s->spare_conns);
  struct http_conn *conn;
  if (spare) {
    conn = container_of(spare, struct http_conn, link);
    s->spare_conn_count--;
    memset(conn, 0, sizeof *conn);
  } else {
    conn = calloc(1, sizeof *conn);
    if (!conn) return NULL;
  }
  conn->server = s;
  list_push_back(&s->conns, &conn->link);
  s->conns_open++;
  HTTP_COUNT(s->stats.connections, 1);
  HTTP_COUNT(s->stats.connections_open, 1);
  return conn;
}

void http_conn_release(struct http_conn *conn) {
  struct http_server *s = conn->server;
  list_remove(&conn->wake_link);
  list_remove(&conn->link);
  free(TAKE(conn->buf));
  s->conns_open--;
  HTTP_COUNT(s->stats.connections_open, -1);
  if (s->spare_conn_count < HTTP_SPARE_CONNS_MAX) {
    list_push_front(&s->spare_conns, &conn->link);
    s->spare_conn_count++;
  } else {
    free(conn);
  }
  if (s->draining && s->conns_open == 0) http_server_wake(s, NULL);
}

static bool is_loopback(const uv_tcp_t *tcp) {
  struct sockaddr_storage peer;
  int len = sizeof peer;
  if (uv_tcp_getpeername(tcp, (struct sockaddr *)&peer, &len) < 0) return false;
  if (peer.ss_family == AF_INET)
    return ntohl(((struct sockaddr_in *)&peer)->sin_addr.s_addr) >> 24 == 127;
  if (peer.ss_family != AF_INET6) return false;
  const struct in6_addr *a = &((struct sockaddr_in6 *)&peer)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(a) || (IN6_IS_ADDR_V4MAPPED(a) && a->s6_addr[12] == 127);
}

static void on_connection(uv_stream_t *listener, int status) {
  struct http_server *s = container_of(listener, struct http_server, listener);
  if (status < 0) {
    log_warn("http", "accept failed: %s", err_name(status));
    return;
  }
  struct http_conn *conn = conn_new(s);
  if (!conn) { /* libuv keeps the connection; the sweep tries again */
    s->accept_owed = true;
    return;
  }
  if (uv_tcp_init(env_uv_loop(s->env_uv), &conn->tcp) < 0) {
    s->accept_owed = true;
    http_conn_release(conn);
    return;
  }
  if (uv_accept(listener, (uv_stream_t *)&conn->tcp) < 0 || s->draining ||
      s->conns_open > s->limits.connections_max + HTTP_OVERFLOW_MAX) {
    http_conn_kill(conn, ERR_CLIENT_GONE, true);
    return;
  }
  uv_tcp_nodelay(&conn->tcp, 1);
  conn->peer_is_loopback = is_loopback(&conn->tcp);
  conn->overflow = s->conns_open > s->limits.connections_max;
  if (!s->sweep.armed) env_timer_start(s->env, &s->sweep, s->sweep_ms);
  http_conn_start(conn);
}

static void on_sweep(struct env_timer *timer) {
  struct http_server *s = container_of(timer, struct http_server, sweep);
  uint64_t now = http_server_now(s);
  /* A connection is freed only in its own turn, so the list stands still here. */
  list_foreach(it, &s->conns) http_conn_check(container_of(it, struct http_conn, link), now);
  if (s->accept_owed && !s->draining) {
    s->accept_owed = false;
    on_connection((uv_stream_t *)&s->listener, 0);
  }
  if (s->conns_open || s->accept_owed) env_timer_start(s->env, &s->sweep, s->sweep_ms);
}

/* ---- the loop's next turn ---- */

static void on_wake(uv_idle_t *idle) {
  struct http_server *s = container_of(idle, struct http_server, waker);
  struct list now;
  list_init(&now);
  list_splice_back(&now, &s->awake); /* who is queued from here on waits for the next turn */
  struct list *link;
  while ((link = list_pop_front(&now)))
    http_conn_turn(container_of(link, struct http_conn, wake_link));
  if (!list_empty(&s->awake)) return;
  uv_idle_stop(&s->waker);
  if (s->draining && s->conns_open == 0 && !s->drained_told) {
    s->drained_told = true;
    env_timer_stop(s->env, &s->sweep);
    if (s->drained) s->drained(s->drained_arg);
  }
}

void http_server_wake(struct http_server *s, struct http_conn *conn) {
  if (conn && !list_linked(&conn->wake_link)) list_push_back(&s->awake, &conn->wake_link);
  if (!uv_is_closing((uv_handle_t *)&s->waker)) uv_idle_start(&s->waker, on_wake);
}

/* ---- start and end ---- */

static void server_destroy(struct http_server *s) {
  struct list *link;
  while ((link = list_pop_front(&s->spare_conns))) free(container_of(link, struct http_conn, link));
  while ((link = list_pop_front(&s->spare_exchanges)))
    exchange_destroy(container_of(link, struct http_exchange, spare_link));
  free(s);
}

static void on_listener_closed(uv_handle_t *handle) {
  struct http_server *s = container_of(handle, struct http_server, listener);
  if (--s->handles_open == 0) server_destroy(s);
}

static void on_waker_closed(uv_handle_t *handle) {
  struct http_server *s = container_of(handle, struct http_server, waker);
  if (--s->handles_open == 0) server_destroy(s);
}

static void stop_listening(struct http_server *s) {
  if (!uv_is_closing((uv_handle_t *)&s->listener))
    uv_close((uv_handle_t *)&s->listener, on_listener_closed);
}

static uint64_t sweep_interval(const struct http_limits *limits) {
  uint64_t least = MIN(limits->header_timeout_ms, limits->idle_timeout_ms);
  least = MIN(least, limits->body_timeout_ms);
  return MAX((uint64_t)SWEEP_MS_MIN, MIN((uint64_t)SWEEP_MS_MAX, least / 4));
}

static int server_listen(struct http_server *s, const char *address) {
  int fd = listen_open(address);
  if (fd < 0) return fd;
  int err = uv_tcp_open(&s->listener, fd);
  if (err < 0) {
    close(fd);
    return err;
  }
  return uv_listen((uv_stream_t *)&s->listener, HTTP_BACKLOG, on_connection);
}

int http_server_start(struct env_uv *env, const char *address, const struct http_handler *handler,
                      const struct http_limits *limits, struct http_server **ret_server) {
  struct http_server *s = calloc(1, sizeof *s);
  if (!s) return -ENOMEM;
  s->env_uv = env;
  s->env = env_uv_env(env);
  s->handler = *handler;
  s->limits = *limits;
  s->sweep.fire = on_sweep;
  s->sweep_ms = sweep_interval(limits);
  list_init(&s->conns);
  list_init(&s->awake);
  list_init(&s->spare_conns);
  list_init(&s->spare_exchanges);
  env_random(s->env, &s->id_state, sizeof s->id_state);
  int err = uv_tcp_init(env_uv_loop(env), &s->listener);
  if (err < 0) {
    free(s);
    return err;
  }
  uv_idle_init(env_uv_loop(env), &s->waker); /* cannot fail */
  s->handles_open = 2;
  err = server_listen(s, address);
  if (err < 0) {
    http_server_free(s);
    return err;
  }
  *ret_server = s;
  return 0;
}

void http_server_drain(struct http_server *s, void (*drained)(void *arg), void *arg) {
  s->drained = drained;
  s->drained_arg = arg;
  s->draining = true;
  stop_listening(s);
  list_foreach(it, &s->conns) {
    struct http_conn *conn = container_of(it, struct http_conn, link);
    if (conn->phase == HTTP_PHASE_IDLE) http_conn_kill(conn, ERR_SHUTDOWN, false);
  }
  http_server_wake(s, NULL);
}

void http_server_abort(struct http_server *s) {
  list_foreach(it, &s->conns)
      http_conn_kill(container_of(it, struct http_conn, link), ERR_CLIENT_GONE, true);
}

void http_server_free(struct http_server *s) {
  if (!s) return;
  assert(s->conns_open == 0);
  env_timer_stop(s->env, &s->sweep);
  stop_listening(s);
  uv_close((uv_handle_t *)&s->waker, on_waker_closed);
}

int http_server_port(const struct http_server *s) {
  struct sockaddr_storage own;
  int len = sizeof own;
  int err = uv_tcp_getsockname(&s->listener, (struct sockaddr *)&own, &len);
  if (err < 0) return err;
  if (own.ss_family == AF_INET6) return ntohs(((struct sockaddr_in6 *)&own)->sin6_port);
  return ntohs(((struct sockaddr_in *)&own)->sin_port);
}

void http_stats_get(const struct http_server *s, struct http_stats *ret) {
  const uint64_t *from = (const uint64_t *)&s->stats;
  uint64_t *to = (uint64_t *)ret;
  _Static_assert(sizeof *ret % sizeof *to == 0, "counters only");
  for (size_t i = 0; i < sizeof *ret / sizeof *to; i++)
    to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
}
