/* http_body.c: a request's body, pulled by the handler or skipped after the answer.
 *
 * While a read is pending and nothing is buffered, the socket is read straight into the handler's
 * memory, never beyond the body (or the chunk): those bytes are not copied. What arrived together
 * with the head, and short chunks, are copied once from the connection's input. */
#include <assert.h>

#include "server/http_conn.h"

bool http_body_over(const struct http_exchange *ex) {
  switch (ex->framing) {
    case HTTP_FRAMING_LENGTH:
      return ex->left == 0;
    case HTTP_FRAMING_CHUNKED:
      return ex->chunked.state == HTTP_CHUNK_DONE;
    default:
      return true;
  }
}

bool http_body_skippable(const struct http_exchange *ex) {
  const struct http_conn *conn = ex->req.conn;
  if (ex->framing == HTTP_FRAMING_LENGTH)
    return ex->left <= conn->in_len || ex->left - conn->in_len <= HTTP_DRAIN_BYTES_MAX;
  if (ex->framing != HTTP_FRAMING_CHUNKED) return true;
  struct http_chunked ahead = ex->chunked;
  struct slice in = {conn->in, conn->in_len};
  size_t n;
  return http_chunked_decode(&ahead, &in, NULL, SIZE_MAX, &n) == 0 &&
         ahead.state == HTTP_CHUNK_DONE;
}

void http_body_fail(struct http_exchange *ex, int err) {
  if (ex->body_err == 0) ex->body_err = err;
  if (!ex->read.active || ex->read.done) return;
  ex->read.err = err;
  ex->read.done = true;
}

size_t http_body_direct(struct http_exchange *ex, uint8_t **ret_at) {
  struct http_read *r = &ex->read;
  if (!r->active || r->done) return 0;
  uint64_t room = 0;
  if (ex->framing == HTTP_FRAMING_LENGTH) room = ex->left;
  if (ex->framing == HTTP_FRAMING_CHUNKED && ex->chunked.state == HTTP_CHUNK_DATA)
    room = ex->chunked.left;
  room = MIN(room, (uint64_t)(r->len - r->got));
  if (ex->framing == HTTP_FRAMING_CHUNKED && room < HTTP_DIRECT_BYTES_MIN) return 0;
  *ret_at = r->dst + r->got;
  return (size_t)room;
}

/* `n` bytes stand behind what the read had got. */
void http_body_direct_done(struct http_exchange *ex, size_t n) {
  struct http_read *r = &ex->read;
  assert(r->active && !r->done && n <= r->len - r->got);
  r->got += n;
  if (ex->framing == HTTP_FRAMING_LENGTH) {
    ex->left -= n;
  } else {
    ex->chunked.left -= n;
    if (ex->chunked.left == 0) ex->chunked.state = HTTP_CHUNK_DATA_CR;
  }
  r->done = r->got == r->len || http_body_over(ex);
}

/* Takes body bytes from the input; dst == NULL drops them. */
static int body_take(struct http_conn *conn, uint8_t *dst, size_t cap, size_t *ret_len) {
  struct http_exchange *ex = conn->ex;
  *ret_len = 0;
  if (ex->framing == HTTP_FRAMING_CHUNKED) {
    struct slice in = {conn->in, conn->in_len};
    int err = http_chunked_decode(&ex->chunked, &in, dst, cap, ret_len);
    http_conn_consume(conn, conn->in_len - in.len);
    return err;
  }
  size_t n = (size_t)MIN((uint64_t)MIN(conn->in_len, cap), ex->left);
  if (dst && n) memcpy(dst, conn->in, n);
  ex->left -= n;
  http_conn_consume(conn, n);
  *ret_len = n;
  return 0;
}

bool http_body_fill(struct http_conn *conn) {
  struct http_exchange *ex = conn->ex;
  struct http_read *r = &ex->read;
  if (!r->active || r->done) return false;
  if (ex->body_err == 0 && !http_body_over(ex)) {
    size_t n;
    int err = body_take(conn, r->dst + r->got, r->len - r->got, &n);
    r->got += n;
    if (err < 0) http_body_fail(ex, err);
  }
  if (ex->body_err < 0) r->err = ex->body_err;
  r->done = r->err < 0 || r->got == r->len || http_body_over(ex);
  return r->done;
}

int http_body_skip(struct http_conn *conn) {
  struct http_exchange *ex = conn->ex;
  if (ex->body_err < 0) return ex->body_err;
  size_t before = conn->in_len, n;
  int err = body_take(conn, NULL, SIZE_MAX, &n);
  ex->skipped += before - conn->in_len; /* framing counts: a body of tiny chunks is work, too */
  if (err < 0) return err;
  return ex->skipped > HTTP_DRAIN_BYTES_MAX ? ERR_TOO_LARGE : 0;
}

static void body_read(struct body *b, uint8_t *dst, size_t len, body_cb cb, void *arg) {
  struct http_exchange *ex = http_exchange_of(container_of(b, struct http_request, body));
  struct http_conn *conn = ex->req.conn;
  assert(!ex->read.active);
  ex->read = (struct http_read){.dst = dst, .len = len, .cb = cb, .arg = arg, .active = true};
  if (conn->dead) {
    http_body_fail(ex, conn->dead);
  } else {
    http_continue(&ex->req);
    conn->moved_ms = http_server_now(conn->server);
    http_body_fill(conn);
  }
  if (ex->read.done || conn->eof) http_conn_wake(conn);
  if (!ex->read.done) http_conn_read_update(conn);
}

static void body_cancel(struct body *b) {
  struct http_exchange *ex = http_exchange_of(container_of(b, struct http_request, body));
  if (!ex->read.active) return;
  ex->read.err = ERR_CANCELLED;
  ex->read.done = true;
  http_conn_wake(ex->req.conn);
}

const struct body_ops http_body_ops = {.read = body_read, .cancel = body_cancel};
