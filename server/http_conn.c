/* http_conn.c: one connection.
 *
 *   IDLE -> HEAD -> REQUEST -> (SKIP) -> IDLE ... -> LINGER -> closed
 *
 * Reading is on from the start and is stopped only where bytes arrive that nobody wants yet: the
 * allocation callback then offers nothing, libuv reports UV_ENOBUFS without reading, and TCP
 * pushes back. A body that is pulled as fast as it comes therefore costs no uv_read_stop at all.
 * While a handler works on a request whose body is over, up to HTTP_AHEAD_BYTES_MAX are read
 * ahead, so that a client that goes away is noticed. An end of file behind a whole request is a
 * half close: the answer is still sent. */
#include "server/http_conn.h"

#include <assert.h>
#include <stdlib.h>

/* ---- input ---- */

void http_conn_consume(struct http_conn *conn, size_t n) {
  assert(n <= conn->in_len);
  if (n == 0) return; /* `in` may be NULL */
  conn->in += n;
  conn->in_len -= n;
}

static void input_drop(struct http_conn *conn) {
  conn->in = NULL;
  conn->in_len = 0;
}

static bool input_is_own(const struct http_conn *conn) {
  return conn->buf && conn->in >= conn->buf && conn->in <= conn->buf + conn->buf_cap;
}

/* Before libuv's callback returns: what is left in the scratch buffer moves to one of our own, and
 * a buffer that holds nothing is given back. */
static void input_save(struct http_conn *conn) {
  if (conn->in_len == 0) {
    free(TAKE(conn->buf));
    conn->buf_cap = 0;
    conn->in = NULL;
    return;
  }
  if (input_is_own(conn)) return;
  size_t cap =
      conn->in_len <= HTTP_INPUT_SMALL_BYTES / 2 ? HTTP_INPUT_SMALL_BYTES : HTTP_READ_BYTES;
  assert(conn->in_len <= cap);
  free(conn->buf);
  conn->buf = malloc(cap);
  if (!conn->buf) {
    input_drop(conn);
    http_conn_kill(conn, ERR_CLIENT_GONE, true);
    return;
  }
  conn->buf_cap = cap;
  memcpy(conn->buf, conn->in, conn->in_len);
  conn->in = conn->buf;
}

/* Room behind the input in its own buffer; 0 without memory. */
static size_t input_reserve(struct http_conn *conn) {
  assert(input_is_own(conn));
  if (conn->in != conn->buf) memmove(conn->buf, conn->in, conn->in_len);
  conn->in = conn->buf;
  if (conn->buf_cap - conn->in_len < HTTP_INPUT_SMALL_BYTES / 4 &&
      conn->buf_cap < HTTP_READ_BYTES) {
    uint8_t *bigger = realloc(conn->buf, HTTP_READ_BYTES);
    if (!bigger) return 0;
    conn->buf = bigger;
    conn->buf_cap = HTTP_READ_BYTES;
    conn->in = bigger;
  }
  return conn->buf_cap - conn->in_len;
}

/* How many bytes the connection takes into its input now. */
static size_t input_room(const struct http_conn *conn) {
  const struct http_exchange *ex = conn->ex;
  switch (conn->phase) {
    case HTTP_PHASE_REQUEST:
      if (ex->read.active && !ex->read.done) break;
      if (!http_body_over(ex) || conn->in_len >= HTTP_AHEAD_BYTES_MAX) return 0;
      return HTTP_AHEAD_BYTES_MAX - conn->in_len;
    default:
      break;
  }
  return conn->in_len < HTTP_READ_BYTES ? HTTP_READ_BYTES - conn->in_len : 0;
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf) {
  struct http_conn *conn = container_of(handle, struct http_conn, tcp);
  uint8_t *at = NULL;
  size_t room = 0;
  conn->into = HTTP_INTO_BODY;
  if (conn->phase == HTTP_PHASE_REQUEST && conn->in_len == 0)
    room = http_body_direct(conn->ex, &at);
  if (room == 0) {
    room = input_room(conn);
    if (conn->in_len > 0) {
      conn->into = HTTP_INTO_INPUT;
      if (room > 0) room = MIN(room, input_reserve(conn));
      at = conn->buf + conn->in_len;
    } else {
      conn->into = HTTP_INTO_SCRATCH;
      at = conn->server->scratch;
    }
  }
  *buf = uv_buf_init((char *)at, (unsigned)MIN(room, (size_t)INT32_MAX));
}

static void read_stop(struct http_conn *conn) {
  uv_read_stop((uv_stream_t *)&conn->tcp);
  conn->reading = false;
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
  struct http_conn *conn = container_of(stream, struct http_conn, tcp);
  if (n == 0 || conn->dead) return;
  if (n == UV_ENOBUFS) {
    read_stop(conn);
    return;
  }
  if (n < 0) {
    read_stop(conn);
    if (n == UV_EOF)
      conn->eof = true;
    else
      http_conn_kill(conn, ERR_CLIENT_GONE, false);
    http_conn_turn(conn);
    return;
  }
  HTTP_COUNT(conn->server->stats.bytes_in, n);
  conn->moved_ms = http_server_now(conn->server);
  switch (conn->into) {
    case HTTP_INTO_BODY:
      http_body_direct_done(conn->ex, (size_t)n);
      break;
    case HTTP_INTO_SCRATCH:
      conn->in = conn->server->scratch;
      conn->in_len = (size_t)n;
      break;
    case HTTP_INTO_INPUT:
      conn->in_len += (size_t)n;
      break;
  }
  http_conn_turn(conn);
}

void http_conn_read_update(struct http_conn *conn) {
  uint8_t *at;
  if (conn->dead || conn->eof || conn->reading) return;
  bool wanted = input_room(conn) > 0;
  if (!wanted && conn->phase == HTTP_PHASE_REQUEST) wanted = http_body_direct(conn->ex, &at) > 0;
  if (!wanted) return;
  conn->reading = true;
  if (uv_read_start((uv_stream_t *)&conn->tcp, on_alloc, on_read) < 0)
    http_conn_kill(conn, ERR_CLIENT_GONE, false);
}

/* ---- closing ---- */

static void on_closed(uv_handle_t *handle) {
  struct http_conn *conn = container_of(handle, struct http_conn, tcp);
  conn->handle_closed = true;
  http_conn_turn(conn);
}

void http_conn_kill(struct http_conn *conn, int err, bool reset) {
  if (conn->dead) return;
  conn->dead = err;
  conn->reading = false;
  if (conn->ex) {
    http_body_fail(conn->ex, err);
    http_out_fail(conn->ex, err);
  }
  /* A reset is not possible behind a shutdown: then a plain close has to do. */
  if (!reset || uv_tcp_close_reset(&conn->tcp, on_closed) < 0)
    uv_close((uv_handle_t *)&conn->tcp, on_closed);
  http_conn_wake(conn);
}

static void on_shutdown(uv_shutdown_t *req, int status) {
  struct http_conn *conn = container_of(req, struct http_conn, shutdown);
  if (status < 0 && !conn->dead) http_conn_kill(conn, ERR_CLIENT_GONE, false);
}

/* The last answer is out. Closing with bytes unread would reset the connection, and the client
 * might lose the answer: so our side is shut down, and the client's bytes are dropped for a
 * while. */
static void linger(struct http_conn *conn) {
  if (conn->ex) http_exchange_free(conn->server, TAKE(conn->ex));
  input_drop(conn);
  conn->phase = HTTP_PHASE_LINGER;
  conn->since_ms = http_server_now(conn->server);
  if (conn->eof || uv_shutdown(&conn->shutdown, (uv_stream_t *)&conn->tcp, on_shutdown) < 0)
    http_conn_kill(conn, ERR_CLIENT_GONE, false);
}

/* ---- steps: each does one thing and says whether there was something to do ---- */

static bool step_deliver(struct http_exchange *ex) {
  if (ex->read.active && ex->read.done) {
    struct http_read r = ex->read;
    ex->read = (struct http_read){0};
    r.cb(r.arg, r.err, r.err < 0 ? 0 : r.got);
    return true;
  }
  if (ex->sink_active && ex->sink_done) {
    ex->sink_active = ex->sink_done = false;
    ex->sink_cb(ex->sink_arg, ex->sink_err);
    return true;
  }
  return false;
}

static bool exchange_over(const struct http_exchange *ex) {
  return ex->answered && !ex->writing && !ex->continuing && !ex->read.active && !ex->sink_active;
}

static bool step_dead(struct http_conn *conn) {
  struct http_exchange *ex = conn->ex;
  if (!ex) return false;
  if (step_deliver(ex)) return true;
  if (ex->handled && !ex->answered && ex->req.gone && !ex->gone_told) {
    ex->gone_told = true;
    ex->req.gone(&ex->req);
    return true;
  }
  if (!exchange_over(ex)) return false;
  http_exchange_free(conn->server, TAKE(conn->ex));
  return false;
}

/* Answers what is no request; the connection ends with it. */
static void refuse(struct http_conn *conn, const struct http_refusal *why) {
  struct http_server *s = conn->server;
  if (!conn->ex) conn->ex = http_exchange_new(conn);
  if (!conn->ex) {
    http_conn_kill(conn, ERR_CLIENT_GONE, true);
    return;
  }
  struct http_exchange *ex = conn->ex;
  struct byte_writer body = {.max = HTTP_OUT_HEADERS_BYTES_MAX};
  HTTP_COUNT(s->stats.bad_requests, 1);
  ex->framing = HTTP_FRAMING_NONE;
  ex->close_after = true;
  ex->req.expect_continue = false;
  /* Not even a HEAD that is no request gets a body: the client would take it for the next answer.
   */
  if (slice_starts_with(slice_of(conn->in, conn->in_len), SLICE_LIT("HEAD ")))
    ex->req.method = HTTP_M_HEAD;
  conn->phase = HTTP_PHASE_REQUEST;
  if (s->handler.describe)
    s->handler.describe(s->handler.arg, why->status, why->code, why->message, ex->req.id, &body);
  http_header_add(&ex->req, "Content-Type", "application/xml");
  if (why->status == 503) http_header_add(&ex->req, "Retry-After", "1");
  http_respond(&ex->req, why->status, slice_of(body.data, body.failed ? 0 : body.len));
  byte_writer_free(&body);
}

/* Empty lines in front of a request line are skipped (RFC 9112, 2.2). 1: go on, 0: wait, -1. */
static int skip_blank_lines(struct http_conn *conn, struct http_refusal *ret_why) {
  while (conn->scan.at == 0 && conn->in_len > 0 && conn->in[0] == '\r') {
    if (conn->in_len < 2) return 0;
    if (conn->in[1] != '\n' || ++conn->blank_lines > HTTP_BLANK_LINES_MAX) {
      *ret_why = (struct http_refusal){400, "InvalidRequest", "The request line is malformed."};
      return -1;
    }
    http_conn_consume(conn, 2);
  }
  return conn->in_len > 0;
}

static bool step_head(struct http_conn *conn) {
  struct http_server *s = conn->server;
  struct http_refusal why = {0};
  bool idle = conn->in_len == 0;
  if (!idle && conn->phase == HTTP_PHASE_IDLE) {
    conn->phase = HTTP_PHASE_HEAD;
    conn->since_ms = http_server_now(s);
  }
  int len = skip_blank_lines(conn, &why);
  if (len > 0) len = http_head_find(&conn->scan, slice_of(conn->in, conn->in_len), &why);
  if (len == 0) {
    if (conn->eof || (idle && s->draining)) http_conn_kill(conn, ERR_CLIENT_GONE, false);
    return false;
  }
  if (len > 0) conn->ex = http_exchange_new(conn);
  if (len > 0 && !conn->ex) {
    http_conn_kill(conn, ERR_CLIENT_GONE, true);
    return false;
  }
  if (len < 0 || http_head_parse(conn->ex, slice_of(conn->in, (size_t)len), &why) < 0) {
    refuse(conn, &why);
    return true;
  }
  http_conn_consume(conn, (size_t)len);
  conn->phase = HTTP_PHASE_REQUEST;
  conn->ex->handled = true;
  HTTP_COUNT(s->stats.requests, 1);
  s->handler.handle(s->handler.arg, &conn->ex->req);
  return true;
}

static bool next_request(struct http_conn *conn) {
  http_exchange_free(conn->server, TAKE(conn->ex));
  conn->phase = HTTP_PHASE_IDLE;
  conn->since_ms = http_server_now(conn->server);
  conn->scan = (struct http_scan){0};
  conn->blank_lines = 0;
  return true;
}

static bool step_request(struct http_conn *conn) {
  struct http_exchange *ex = conn->ex;
  if (step_deliver(ex) || http_body_fill(conn)) return true;
  if (conn->eof && conn->in_len == 0 && !ex->answered && !http_body_over(ex)) {
    http_conn_kill(conn, ERR_CLIENT_GONE, false);
    return true;
  }
  if (!exchange_over(ex)) return false;
  if (ex->close_after || conn->server->draining) {
    linger(conn);
    return true;
  }
  if (http_body_over(ex)) return next_request(conn);
  conn->phase = HTTP_PHASE_SKIP;
  conn->since_ms = http_server_now(conn->server);
  return true;
}

static bool step_skip(struct http_conn *conn) {
  int err = http_body_skip(conn);
  if (err < 0) {
    linger(conn);
    return true;
  }
  if (http_body_over(conn->ex)) return next_request(conn);
  if (conn->eof) http_conn_kill(conn, ERR_CLIENT_GONE, false);
  return conn->eof;
}

static bool step_linger(struct http_conn *conn) {
  conn->lingered += conn->in_len;
  input_drop(conn);
  if (conn->eof || conn->lingered > HTTP_LINGER_BYTES_MAX)
    http_conn_kill(conn, ERR_CLIENT_GONE, false);
  return false;
}

static bool step(struct http_conn *conn) {
  if (conn->dead) return step_dead(conn);
  switch (conn->phase) {
    case HTTP_PHASE_IDLE:
    case HTTP_PHASE_HEAD:
      return step_head(conn);
    case HTTP_PHASE_REQUEST:
      return step_request(conn);
    case HTTP_PHASE_SKIP:
      return step_skip(conn);
    case HTTP_PHASE_LINGER:
      return step_linger(conn);
  }
  return false;
}

void http_conn_turn(struct http_conn *conn) {
  assert(!conn->in_turn);
  list_remove(&conn->wake_link);
  conn->in_turn = true;
  unsigned steps = 0;
  while (steps < HTTP_STEPS_PER_TURN && step(conn)) steps++;
  conn->in_turn = false;
  if (conn->dead && !conn->ex) input_drop(conn);
  input_save(conn);
  if (steps == HTTP_STEPS_PER_TURN) http_conn_wake(conn);
  http_conn_read_update(conn);
  if (conn->handle_closed && !conn->ex) http_conn_release(conn);
}

void http_conn_wake(struct http_conn *conn) {
  if (!conn->in_turn) http_server_wake(conn->server, conn);
}

void http_conn_start(struct http_conn *conn) {
  static const struct http_refusal slow_down = {503, "SlowDown",
                                                "Please reduce your request rate."};
  conn->phase = HTTP_PHASE_IDLE;
  conn->since_ms = http_server_now(conn->server);
  if (conn->overflow) refuse(conn, &slow_down);
  http_conn_wake(conn);
}

/* ---- deadlines ---- */

static void check_request(struct http_conn *conn, uint64_t now) {
  struct http_exchange *ex = conn->ex;
  uint64_t limit = conn->server->limits.body_timeout_ms;
  if (ex->writing) {
    size_t unsent = http_out_unsent(conn);
    if (unsent < ex->seen_unsent) conn->moved_ms = now;
    ex->seen_unsent = unsent;
    if (now - conn->moved_ms < limit) return;
    HTTP_COUNT(conn->server->stats.timeouts, 1);
    http_conn_kill(conn, ERR_TIMEOUT, true);
  } else if (ex->read.active && !ex->read.done && now - conn->moved_ms >= limit) {
    /* The handler answers (408), and the connection ends with that. */
    HTTP_COUNT(conn->server->stats.timeouts, 1);
    ex->close_after = true;
    http_body_fail(ex, ERR_TIMEOUT);
    http_conn_wake(conn);
  }
}

void http_conn_check(struct http_conn *conn, uint64_t now) {
  static const struct http_refusal late = {408, "RequestTimeout",
                                           "The request's head did not arrive in time."};
  const struct http_limits *limits = &conn->server->limits;
  uint64_t age = now - conn->since_ms;
  if (conn->dead) return;
  switch (conn->phase) {
    case HTTP_PHASE_IDLE:
      if (age >= limits->idle_timeout_ms) http_conn_kill(conn, ERR_TIMEOUT, false);
      return;
    case HTTP_PHASE_HEAD:
      if (age < limits->header_timeout_ms) return;
      HTTP_COUNT(conn->server->stats.timeouts, 1);
      refuse(conn, &late);
      return;
    case HTTP_PHASE_REQUEST:
      check_request(conn, now);
      return;
    case HTTP_PHASE_SKIP:
      if (age >= limits->body_timeout_ms) {
        linger(conn);
        http_conn_wake(conn);
      }
      return;
    case HTTP_PHASE_LINGER:
      if (age >= HTTP_LINGER_MS) http_conn_kill(conn, ERR_CLIENT_GONE, false);
      return;
  }
}
