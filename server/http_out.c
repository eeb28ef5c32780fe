/* http_out.c: answers.
 *
 * Every write is tried at once (head and first bytes together); only what the kernel does not take
 * goes through uv_write. Nothing is copied but the body of http_respond. A write that the client
 * does not read for body_timeout_ms ends the connection: http_conn_check. */
#include <assert.h>
#include <linux/sockios.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "config/log.h"
#include "server/http_conn.h"

/* ---- headers ---- */

static void put_value(struct byte_writer *w, struct slice value) {
  uint8_t *at = put_space(w, value.len);
  for (size_t i = 0; at && i < value.len; i++) {
    uint8_t c = value.data[i];
    at[i] = c == '\r' || c == '\n' || c == 0 ? ' ' : c;
  }
}

void http_header_add_slice(struct http_request *req, struct slice name, struct slice value) {
  struct byte_writer *w = &req->out;
  w->max = HTTP_OUT_HEADERS_BYTES_MAX;
  put_value(w, name);
  put_bytes(w, SLICE_LIT(": "));
  put_value(w, value);
  put_bytes(w, SLICE_LIT("\r\n"));
}

void http_header_add(struct http_request *req, const char *name, const char *value) {
  http_header_add_slice(req, slice_str(name), slice_str(value));
}

void http_header_addf(struct http_request *req, const char *name, const char *fmt, ...) {
  char text[256], *longer = NULL;
  va_list args;
  va_start(args, fmt);
  int n = vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  if (n >= (int)sizeof text && (longer = malloc((size_t)n + 1))) {
    va_start(args, fmt);
    vsnprintf(longer, (size_t)n + 1, fmt, args);
    va_end(args);
  }
  if (n < 0 || (n >= (int)sizeof text && !longer))
    req->out.failed = true; /* a header is never left out: the answer fails */
  else
    http_header_add_slice(req, slice_str(name), slice_of(longer ? longer : text, (size_t)n));
  free(longer);
}

_printf_(2, 3) static void put_fmt(struct byte_writer *w, const char *fmt, ...) {
  char text[256];
  va_list args;
  va_start(args, fmt);
  int n = vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  if (n < 0 || (size_t)n >= sizeof text)
    w->failed = true;
  else
    put_bytes(w, slice_of(text, (size_t)n));
}

/* Decided when the head is written: the client must be told. */
static bool must_close(const struct http_exchange *ex) {
  const struct http_conn *conn = ex->req.conn;
  if (ex->close_after || !ex->keep_alive || conn->server->draining || ex->body_err < 0) return true;
  /* A client that still waits for its 100 may or may not send the body now: nobody can tell what
   * the next byte is. */
  if (ex->req.expect_continue) return true;
  return !http_body_skippable(ex);
}

/* Status line and headers into head_out. False: the answer cannot be built. */
static bool out_head(struct http_exchange *ex, int status, uint64_t length) {
  struct byte_writer *w = &ex->head_out;
  struct http_server *s = ex->req.conn->server;
  assert(status >= 200 && status <= 599);
  HTTP_COUNT(s->stats.by_status[status / 100], 1);
  ex->no_body = ex->req.method == HTTP_M_HEAD || status == 204 || status == 304;
  ex->length_out = length;
  bool unknown = length == BODY_LENGTH_UNKNOWN;
  ex->chunked_out = unknown && !ex->no_body && !ex->http_1_0;
  /* HTTP/1.0 has no chunks: the end of the connection ends the body. */
  if (unknown && !ex->no_body && ex->http_1_0) ex->close_after = true;
  ex->close_after = must_close(ex);
  w->max = 2 * (size_t)HTTP_OUT_HEADERS_BYTES_MAX;
  put_fmt(w, "HTTP/1.1 %d %s\r\n", status, http_status_words(status));
  put_fmt(w, "Date: %s\r\nServer: kofn\r\nx-amz-request-id: %s\r\nx-amz-id-2: %s\r\n",
          http_server_date(s), ex->req.id, ex->req.id);
  put_bytes(w, slice_of(ex->req.out.data, ex->req.out.len));
  if (ex->chunked_out)
    put_bytes(w, SLICE_LIT("Transfer-Encoding: chunked\r\n"));
  else if (!unknown && status != 204 && status != 304)
    put_fmt(w, "Content-Length: %llu\r\n", (unsigned long long)length);
  if (ex->close_after)
    put_bytes(w, SLICE_LIT("Connection: close\r\n"));
  else if (ex->http_1_0)
    put_bytes(w, SLICE_LIT("Connection: keep-alive\r\n"));
  put_bytes(w, SLICE_LIT("\r\n"));
  return !w->failed && !ex->req.out.failed;
}

/* ---- sending ---- */

void http_out_fail(struct http_exchange *ex, int err) {
  if (!ex->sink_active || ex->sink_done || ex->writing) return; /* on_written will say so */
  ex->sink_err = err;
  ex->sink_done = true;
}

static void on_written(uv_write_t *write, int status) {
  struct http_exchange *ex = container_of(write, struct http_exchange, write);
  struct http_conn *conn = ex->req.conn;
  ex->writing = false;
  if (status < 0)
    http_conn_kill(conn, ERR_CLIENT_GONE, false);
  else
    HTTP_COUNT(conn->server->stats.bytes_out, ex->write_left);
  if (ex->sink_active && !ex->sink_done) {
    ex->sink_err = conn->dead;
    ex->sink_done = true;
  }
  http_conn_turn(conn);
}

static void on_continue_written(uv_write_t *write, int status) {
  struct http_exchange *ex = container_of(write, struct http_exchange, continue_write);
  struct http_conn *conn = ex->req.conn;
  ex->continuing = false;
  if (status < 0) http_conn_kill(conn, ERR_CLIENT_GONE, false);
  http_conn_turn(conn);
}

static size_t bufs_bytes(const uv_buf_t *bufs, unsigned count) {
  size_t n = 0;
  for (unsigned i = 0; i < count; i++) n += bufs[i].len;
  return n;
}

/* Sends what the kernel takes now; the rest, if any, follows by `req`. True when all is out.
 * The connection is dead afterwards where that fails. */
static bool out_send(struct http_conn *conn, uv_write_t *req, uv_write_cb cb, uv_buf_t *bufs,
                     unsigned count) {
  uv_stream_t *stream = (uv_stream_t *)&conn->tcp;
  size_t total = bufs_bytes(bufs, count);
  if (total == 0) return true;
  int sent = uv_try_write(stream, bufs, count);
  if (sent == UV_EAGAIN) sent = 0;
  if (sent < 0) {
    http_conn_kill(conn, ERR_CLIENT_GONE, false);
    return true;
  }
  HTTP_COUNT(conn->server->stats.bytes_out, sent);
  conn->moved_ms = http_server_now(conn->server);
  if ((size_t)sent == total) return true;
  size_t skip = (size_t)sent;
  while (skip >= bufs->len) {
    skip -= bufs->len;
    bufs++;
    count--;
  }
  bufs->base += skip;
  bufs->len -= skip;
  if (uv_write(req, stream, bufs, count, cb) == 0) return false;
  http_conn_kill(conn, ERR_CLIENT_GONE, false);
  return true;
}

static void out_write(struct http_exchange *ex, uv_buf_t *bufs, unsigned count) {
  struct http_conn *conn = ex->req.conn;
  assert(!ex->writing);
  if (conn->dead) return;
  size_t total = bufs_bytes(bufs, count);
  size_t before = uv_stream_get_write_queue_size((uv_stream_t *)&conn->tcp);
  if (out_send(conn, &ex->write, on_written, bufs, count)) return;
  ex->writing = true;
  ex->write_left = MIN(total, uv_stream_get_write_queue_size((uv_stream_t *)&conn->tcp) - before);
  ex->seen_unsent = SIZE_MAX;
}

static uv_buf_t buf_of(const void *data, size_t len) {
  uv_buf_t buf = {.base = (char *)(uintptr_t)data, .len = len};
  return buf;
}

/* The head, once. */
static unsigned out_head_buf(struct http_exchange *ex, uv_buf_t *bufs) {
  if (ex->head_sent) return 0;
  ex->head_sent = true;
  bufs[0] = buf_of(ex->head_out.data, ex->head_out.len);
  return 1;
}

size_t http_out_unsent(struct http_conn *conn) {
  size_t n = uv_stream_get_write_queue_size((uv_stream_t *)&conn->tcp);
  uv_os_fd_t fd;
  int queued = 0;
  /* What the kernel took may wait there for a slow client: its acknowledgements are progress. */
  if (uv_fileno((uv_handle_t *)&conn->tcp, &fd) == 0 && ioctl(fd, SIOCOUTQ, &queued) == 0 &&
      queued > 0)
    n += (size_t)queued;
  return n;
}

/* ---- the sink ---- */

static void sink_write(struct sink *sink, const struct slice *slices, unsigned count, sink_cb cb,
                       void *arg) {
  struct http_exchange *ex = http_exchange_of(container_of(sink, struct http_request, sink));
  struct http_conn *conn = ex->req.conn;
  assert(ex->begun && !ex->answered && !ex->sink_active && count <= SINK_SLICES_MAX);
  ex->sink_active = true;
  ex->sink_cb = cb;
  ex->sink_arg = arg;
  ex->sink_err = 0;
  uv_buf_t bufs[SINK_SLICES_MAX + 3];
  unsigned n = 0;
  size_t bytes = 0;
  for (unsigned i = 0; i < count; i++) bytes += slices[i].len;
  ex->sent_out += bytes;
  if (!conn->dead && !ex->no_body && ex->length_out != BODY_LENGTH_UNKNOWN &&
      ex->sent_out > ex->length_out) {
    log_error("http", "request %s: more bytes than the announced length", ex->req.id);
    http_conn_kill(conn, ERR_INVALID, true);
  }
  n += out_head_buf(ex, bufs);
  if (!ex->no_body && bytes > 0) {
    if (ex->chunked_out) {
      int len = snprintf(ex->chunk_line, sizeof ex->chunk_line, "%zx\r\n", bytes);
      bufs[n++] = buf_of(ex->chunk_line, (size_t)len);
    }
    for (unsigned i = 0; i < count; i++)
      if (slices[i].len) bufs[n++] = buf_of(slices[i].data, slices[i].len);
    if (ex->chunked_out) bufs[n++] = buf_of("\r\n", 2);
  }
  out_write(ex, bufs, n);
  if (!ex->writing) http_out_fail(ex, conn->dead); /* 0: all is out */
  http_conn_wake(conn);
}

const struct sink_ops http_sink_ops = {.write = sink_write};

/* ---- the handler's calls ---- */

/* The handler is done with the request: what it has not waited for is cancelled. */
static void out_answered(struct http_exchange *ex) {
  assert(!ex->answered);
  ex->answered = true;
  ex->req.gone = NULL;
  if (ex->read.active) {
    ex->read.err = ERR_CANCELLED;
    ex->read.done = true;
  }
  http_conn_wake(ex->req.conn);
}

void http_respond(struct http_request *req, int status, struct slice body) {
  struct http_exchange *ex = http_exchange_of(req);
  struct http_conn *conn = req->conn;
  assert(!ex->begun);
  ex->begun = true;
  if (conn->dead) {
    out_answered(ex);
    return;
  }
  bool ok = out_head(ex, status, body.len);
  size_t most = ex->head_out.len;
  if (ok && !ex->no_body && !__builtin_add_overflow(most, body.len, &most)) {
    ex->head_out.max = most;
    put_bytes(&ex->head_out, body);
    ok = !ex->head_out.failed;
  }
  uv_buf_t buf;
  if (ok && out_head_buf(ex, &buf)) out_write(ex, &buf, 1);
  if (!ok) {
    log_error("http", "request %s: the answer is too long", req->id);
    http_conn_kill(conn, ERR_TOO_LARGE, true);
  }
  out_answered(ex);
}

void http_begin(struct http_request *req, int status, uint64_t length) {
  struct http_exchange *ex = http_exchange_of(req);
  assert(!ex->begun && !ex->answered);
  ex->begun = true;
  req->sink.ops = &http_sink_ops;
  if (req->conn->dead) return;
  if (out_head(ex, status, length)) return;
  log_error("http", "request %s: the answer's headers are too long", req->id);
  http_conn_kill(req->conn, ERR_TOO_LARGE, true);
}

void http_begin_undo(struct http_request *req) {
  struct http_exchange *ex = http_exchange_of(req);
  assert(ex->begun && !ex->head_sent && !ex->sink_active && !ex->answered);
  ex->begun = false;
  ex->head_out.len = 0;
  ex->head_out.failed = false;
  req->out.len = 0;
  req->out.failed = false;
}

void http_end(struct http_request *req) {
  struct http_exchange *ex = http_exchange_of(req);
  struct http_conn *conn = req->conn;
  assert(ex->begun && (conn->dead || !ex->sink_active));
  if (!conn->dead && !ex->no_body && ex->length_out != BODY_LENGTH_UNKNOWN &&
      ex->sent_out != ex->length_out) {
    /* The client counts on the length it was told: a reset is the only true answer left. */
    log_error("http", "request %s: %llu bytes sent of %llu", req->id,
              (unsigned long long)ex->sent_out, (unsigned long long)ex->length_out);
    HTTP_COUNT(conn->server->stats.resets, 1);
    http_conn_kill(conn, ERR_INVALID, true);
  }
  if (!conn->dead) {
    uv_buf_t bufs[2];
    unsigned n = out_head_buf(ex, bufs);
    if (ex->chunked_out) bufs[n++] = buf_of("0\r\n\r\n", 5);
    out_write(ex, bufs, n);
  }
  out_answered(ex);
}

void http_reset(struct http_request *req) {
  struct http_exchange *ex = http_exchange_of(req);
  if (!req->conn->dead) HTTP_COUNT(req->conn->server->stats.resets, 1);
  http_conn_kill(req->conn, ERR_CANCELLED, true);
  out_answered(ex);
}

void http_continue(struct http_request *req) {
  struct http_exchange *ex = http_exchange_of(req);
  struct http_conn *conn = req->conn;
  if (!req->expect_continue || conn->dead || ex->begun) return;
  req->expect_continue = false;
  HTTP_COUNT(conn->server->stats.by_status[1], 1);
  uv_buf_t buf = buf_of("HTTP/1.1 100 Continue\r\n\r\n", 25);
  ex->continuing = !out_send(conn, &ex->continue_write, on_continue_written, &buf, 1);
}

void http_close_after(struct http_request *req) {
  http_exchange_of(req)->close_after = true;
}
