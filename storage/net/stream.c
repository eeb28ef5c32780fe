/* stream.c: see stream.h. The reading half is stream_rx.c. */
#include "storage/net/stream.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/err.h"
#include "storage/net/stream_rx.h"

#define FLUSH_IOVECS_MAX 64 /* of one system call */

/* A small frame on its way. */
struct post {
  struct stream_tx tx;
  uint8_t *bytes;
};

static void handle_closed(uv_handle_t *handle) {
  struct stream *s = handle->data;
  if (--s->handles > 0) return;
  /* libuv has called back every write that it took before it says that the handle is closed. */
  list_splice_back(&s->unsent, &s->outbox);
  for (struct list *l; (l = list_pop_front(&s->unsent));) {
    struct stream_tx *tx = container_of(l, struct stream_tx, link);
    tx->done(tx, ERR_PEER_DOWN);
  }
  s->ops->closed(s);
  handshake_close(&s->hs);
  free(s->meta);
  free(s);
}

static void close_handles(struct stream *s, bool reset) {
  if (s->closing) return;
  s->closing = true;
  s->state = STREAM_ENDED;
  stream_bulk_drop(s);
  uv_close((uv_handle_t *)&s->timer, handle_closed);
  uv_close((uv_handle_t *)&s->flush, handle_closed);
  if (!reset || uv_tcp_close_reset(&s->tcp, handle_closed) != 0) {
    if (!uv_is_closing((uv_handle_t *)&s->tcp)) uv_close((uv_handle_t *)&s->tcp, handle_closed);
  }
}

void stream_reset(struct stream *s) {
  close_handles(s, true);
}

void stream_fail(struct stream *s, enum stream_end end, int err, const char *why) {
  if (s->state == STREAM_ENDED) {
    close_handles(s, false);
    return;
  }
  s->end = end;
  s->err = err;
  if (why != s->why) snprintf(s->why, sizeof s->why, "%s", why);
  close_handles(s, end != STREAM_REFUSED_US);
  s->ops->ended(s);
}

int stream_complain(struct stream *s, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  vsnprintf(s->why, sizeof s->why, fmt, args);
  va_end(args);
  return ERR_PROTOCOL;
}

static void timer_fired(uv_timer_t *timer) {
  struct stream *s = timer->data;
  if (s->state == STREAM_CONNECTING)
    stream_fail(s, STREAM_GONE, ERR_TIMEOUT, "no connection within the deadline");
  else if (s->state == STREAM_SHAKING)
    stream_fail(s, STREAM_GONE, ERR_TIMEOUT, "the handshake was not finished in time");
  else
    close_handles(s, true); /* a BYE that nobody reads */
}

int stream_new(uv_loop_t *loop, const struct stream_ops *ops, void *owner,
               struct hello_policy *policy, const struct cluster_map *map, enum hello_role role,
               int expect_host, struct stream **ret_stream) {
  uint8_t challenge[HELLO_CHALLENGE_BYTES];
  int err = uv_random(NULL, NULL, challenge, sizeof challenge, 0, NULL);
  if (err < 0) return err;
  struct stream *s = calloc(1, sizeof *s);
  if (!s) return -ENOMEM;
  err = handshake_open(&s->hs, policy, map, role, expect_host, challenge);
  if (err < 0) goto fail;
  err = uv_tcp_init(loop, &s->tcp);
  if (err < 0) goto fail;
  uv_timer_init(loop, &s->timer);
  uv_prepare_init(loop, &s->flush);
  s->ops = ops;
  s->owner = owner;
  s->loop = loop;
  s->handles = 3;
  s->tcp.data = s->timer.data = s->flush.data = s;
  s->last_rx_ms = uv_now(loop);
  list_init(&s->outbox);
  list_init(&s->unsent);
  uv_timer_start(&s->timer, timer_fired, STREAM_HANDSHAKE_MS, 0);
  *ret_stream = s;
  return 0;
fail:
  handshake_close(&s->hs);
  free(s);
  return err;
}

static void note_address(struct stream *s) {
  struct sockaddr_storage name;
  int len = sizeof name;
  snprintf(s->from, sizeof s->from, "an unknown address");
  if (uv_tcp_getpeername(&s->tcp, (struct sockaddr *)&name, &len) == 0)
    uv_ip_name((struct sockaddr *)&name, s->from, sizeof s->from);
}

/* The connection stands: HELLO goes out, reading begins. */
static int stream_start(struct stream *s) {
  note_address(s);
  int err = uv_tcp_nodelay(&s->tcp, 1);
  if (err < 0) return err;
  s->state = STREAM_SHAKING;
  s->last_rx_ms = uv_now(s->loop);
  struct byte_writer w = {0};
  frame_begin(&w, FRAME_HELLO);
  put_bytes(&w, slice_of(s->hs.ours.data, s->hs.ours.len));
  err = frame_end(&w, FRAME_HELLO, 0, 0);
  if (err < 0) {
    byte_writer_free(&w);
    return err;
  }
  stream_post(s, &w);
  return stream_rx_start(s);
}

static void connected(uv_connect_t *req, int status) {
  struct stream *s = container_of(req, struct stream, connect);
  if (s->state == STREAM_ENDED) return;
  if (status == 0) status = stream_start(s);
  if (status < 0) stream_fail(s, STREAM_GONE, status, err_words(status));
}

static void failed_before(uv_timer_t *timer) {
  struct stream *s = timer->data;
  stream_fail(s, STREAM_GONE, s->err, err_words(s->err));
}

/* Ends the stream, but not inside the owner's call. */
static void fail_soon(struct stream *s, int err) {
  s->err = err;
  uv_timer_start(&s->timer, failed_before, 0, 0);
}

void stream_connect(struct stream *s, const struct sockaddr *address) {
  int err = uv_tcp_connect(&s->connect, &s->tcp, address, connected);
  if (err < 0) fail_soon(s, err);
}

int stream_accept(struct stream *s, uv_stream_t *listener) {
  int err = uv_accept(listener, (uv_stream_t *)&s->tcp);
  if (err < 0) return err;
  return stream_start(s);
}

static void write_done(uv_write_t *req, int status) {
  struct stream_tx *tx = container_of(req, struct stream_tx, req);
  tx->done(tx, status);
}

static struct stream_tx *outbox_first(struct stream *s) {
  return list_empty(&s->outbox) ? NULL : container_of(s->outbox.next, struct stream_tx, link);
}

static void outbox_take(struct stream *s, struct stream_tx *tx) {
  list_remove(&tx->link);
  s->outbox_bytes -= tx->bytes;
}

/* Takes `done` bytes off the front of a write. */
static void tx_trim(struct stream_tx *tx, size_t done) {
  unsigned skip = 0;
  while (skip < tx->buf_count && done >= tx->bufs[skip].len) done -= tx->bufs[skip++].len;
  tx->buf_count -= skip;
  memmove(tx->bufs, tx->bufs + skip, tx->buf_count * sizeof tx->bufs[0]);
  if (done) {
    tx->bufs[0].base += done;
    tx->bufs[0].len -= done;
  }
}

/* What the kernel does not take at once goes through libuv, which waits for it to be writable. */
static void outbox_hand_over(struct stream *s) {
  for (struct stream_tx *tx; (tx = outbox_first(s));) {
    outbox_take(s, tx);
    int err = uv_write(&tx->req, (uv_stream_t *)&s->tcp, tx->bufs, tx->buf_count, write_done);
    if (err == 0) continue;
    /* Its `done` waits for the close, which begins now. */
    list_push_back(&s->unsent, &tx->link);
    if (s->state != STREAM_ENDED) fail_soon(s, err);
  }
}

/* One system call for the writes that stand first; false where the rest is libuv's. */
static bool outbox_write(struct stream *s, struct list *written) {
  uv_buf_t bufs[FLUSH_IOVECS_MAX] = {{0}};
  unsigned count = 0;
  list_foreach(l, &s->outbox) {
    const struct stream_tx *tx = container_of(l, struct stream_tx, link);
    if (count + tx->buf_count > FLUSH_IOVECS_MAX) break;
    memcpy(bufs + count, tx->bufs, tx->buf_count * sizeof bufs[0]);
    count += tx->buf_count;
  }
  int n = uv_try_write((uv_stream_t *)&s->tcp, bufs, count);
  size_t left = n > 0 ? (size_t)n : 0; /* an error comes again, out of uv_write */
  struct stream_tx *tx;
  while (count > 0 && (tx = outbox_first(s)) && left >= tx->bytes) {
    left -= tx->bytes;
    count -= tx->buf_count;
    outbox_take(s, tx);
    list_push_back(written, &tx->link);
  }
  if (count == 0) return true;
  tx_trim(outbox_first(s), left);
  outbox_hand_over(s);
  return false;
}

/* Before the poll: all that this turn has written goes out together. uv_write alone would cost an
 * epoll_ctl for each write, too. */
static void outbox_flush(uv_prepare_t *prepare) {
  struct stream *s = prepare->data;
  struct list written;
  list_init(&written);
  uv_prepare_stop(prepare);
  while (!list_empty(&s->outbox) && !s->closing) {
    bool more = outbox_write(s, &written);
    for (struct list *l; (l = list_pop_front(&written));) {
      struct stream_tx *tx = container_of(l, struct stream_tx, link);
      tx->done(tx, 0);
    }
    if (!more) break;
  }
}

void stream_write(struct stream *s, struct stream_tx *tx, const uv_buf_t *bufs, unsigned count) {
  assert(count > 0 && count <= STREAM_IOVECS_MAX);
  if (s->state == STREAM_ENDED) { /* its `done` waits for the close, which is to come */
    list_push_back(&s->unsent, &tx->link);
    return;
  }
  memcpy(tx->bufs, bufs, count * sizeof bufs[0]);
  tx->buf_count = count;
  tx->bytes = 0;
  for (unsigned i = 0; i < count; i++) tx->bytes += bufs[i].len;
  if (list_empty(&s->outbox)) uv_prepare_start(&s->flush, outbox_flush);
  list_push_back(&s->outbox, &tx->link);
  s->outbox_bytes += tx->bytes;
  s->tx_bytes += tx->bytes;
}

static void post_done(struct stream_tx *tx, int err) {
  (void)err; /* a lost connection is found by reading */
  struct post *post = container_of(tx, struct post, tx);
  free(post->bytes);
  free(post);
}

void stream_post(struct stream *s, struct byte_writer *w) {
  struct post *post = malloc(sizeof *post);
  if (!post) {
    byte_writer_free(w);
    if (s->state != STREAM_ENDED) fail_soon(s, -ENOMEM);
    return;
  }
  *post = (struct post){.tx = {.done = post_done}, .bytes = w->data};
  uv_buf_t buf = uv_buf_init((char *)w->data, (unsigned)w->len);
  *w = (struct byte_writer){0};
  stream_write(s, &post->tx, &buf, 1);
}

void stream_post_empty(struct stream *s, uint8_t type, uint32_t stream) {
  struct byte_writer w = {0};
  frame_begin(&w, type);
  if (frame_end(&w, type, stream, 0) < 0) byte_writer_free(&w); /* the loss of a PING is harmless */
  if (w.data) stream_post(s, &w);
}

static void shut(uv_shutdown_t *req, int status) {
  (void)req;
  (void)status; /* the other's EOF or the linger timer closes */
}

void stream_bye(struct stream *s, int err, const char *words) {
  if (s->closing || s->state == STREAM_ENDED) return;
  struct byte_writer w = {0};
  frame_begin(&w, FRAME_BYE);
  hello_put_bye(&w, err, words);
  if (s->state == STREAM_CONNECTING || frame_end(&w, FRAME_BYE, 0, 0) < 0) {
    byte_writer_free(&w);
    close_handles(s, false);
    return;
  }
  stream_bulk_drop(s);
  stream_post(s, &w);
  outbox_hand_over(s);
  s->state = STREAM_ENDED;
  if (uv_shutdown(&s->shutdown, (uv_stream_t *)&s->tcp, shut) < 0) {
    close_handles(s, false);
    return;
  }
  uv_timer_start(&s->timer, timer_fired, STREAM_LINGER_MS, 0);
  /* What still comes is read and dropped: closing over unread bytes would reset the connection and
   * take the BYE with it. */
  stream_rx_drain(s);
}

void stream_refuse(struct stream *s, enum stream_end end, int err) {
  s->end = end;
  s->err = err;
  stream_bye(s, err, s->why);
  s->ops->ended(s);
}

size_t stream_unsent_bytes(const struct stream *s) {
  if (s->closing) return 0;
  return s->outbox_bytes + uv_stream_get_write_queue_size((const uv_stream_t *)&s->tcp);
}
