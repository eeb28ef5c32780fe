/* stream_rx.c: the reading half of a stream: staging, frames, the steps of the handshake.
 *
 *   header (staging) -> meta (staging, or a buffer of its own) -> bulk (the owner's units) ->
 * header
 *
 * Where bulk begins in staging, its first bytes are copied (at most STREAM_STAGING_BYTES); the rest
 * is read by the kernel into its place. */
#include "storage/net/stream_rx.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "codec/crc32c.h"
#include "config/err.h"

static size_t staged(const struct stream *s) {
  return s->staged_end - s->staged_at;
}

static bool bulk_finished(const struct stream *s) {
  return s->bulk_left == 0;
}

/* The next contiguous room for bulk: units that follow each other in memory are one. */
static uv_buf_t bulk_room(struct stream *s) {
  while (s->bulk_off == s->bulk[s->bulk_unit].len) {
    s->bulk_unit++;
    s->bulk_off = 0;
  }
  const struct peer_unit *u = &s->bulk[s->bulk_unit];
  uint8_t *at = u->data + s->bulk_off, *end = u->data + u->len;
  for (unsigned i = s->bulk_unit + 1; i < s->bulk_count && s->bulk[i].data == end; i++)
    end += s->bulk[i].len;
  assert((size_t)(end - at) <= s->bulk_left);
  return uv_buf_init((char *)at, (unsigned)(end - at));
}

static void bulk_advance(struct stream *s, size_t n) {
  assert(n <= s->bulk_left);
  s->bulk_left -= (uint32_t)n;
  while (s->bulk && n > 0) {
    size_t part = MIN(n, (size_t)(s->bulk[s->bulk_unit].len - s->bulk_off));
    s->bulk_off += (uint32_t)part;
    n -= part;
    if (n > 0) {
      s->bulk_unit++;
      s->bulk_off = 0;
    }
  }
}

void stream_bulk_into(struct stream *s, const struct peer_unit *units, unsigned count) {
  assert(frame_units_bytes(units, count) == s->bulk_left && s->bulk_left > 0);
  s->bulk = units;
  s->bulk_count = count;
  s->bulk_unit = 0;
  s->bulk_off = 0;
}

void stream_bulk_drop(struct stream *s) {
  s->bulk = NULL;
}

/* Takes staged bytes into the bulk's place. */
static void take_bulk(struct stream *s) {
  while (staged(s) > 0 && s->bulk_left > 0) {
    size_t n = MIN(staged(s), (size_t)s->bulk_left);
    if (s->bulk) {
      uv_buf_t room = bulk_room(s);
      n = MIN(n, room.len);
      memcpy(room.base, s->staging + s->staged_at, n);
    }
    s->staged_at += n;
    bulk_advance(s, n);
  }
}

/* ---- the handshake ---- */

static void send_proof(struct stream *s) {
  uint8_t proof[SHA256_LEN];
  struct byte_writer w = {0};
  int err = handshake_prove(&s->hs, proof);
  frame_begin(&w, FRAME_PROOF);
  put_bytes(&w, slice_of(proof, sizeof proof));
  if (err == 0) err = frame_end(&w, FRAME_PROOF, 0, 0);
  if (err < 0) {
    byte_writer_free(&w);
    stream_fail(s, STREAM_GONE, err, err_words(err));
    return;
  }
  stream_post(s, &w);
}

/* A step was refused by handshake.c: tell the other end, then our owner. */
static void shake_failed(struct stream *s, int err) {
  snprintf(s->why, sizeof s->why, "%s", s->hs.why);
  stream_refuse(s, err == ERR_PROTOCOL ? STREAM_NONSENSE : STREAM_WE_REFUSED, err);
}

static void shake(struct stream *s, struct slice meta) {
  bool hello = s->head.type == FRAME_HELLO;
  int err = hello ? handshake_hello(&s->hs, meta) : handshake_proof(&s->hs, meta);
  if (err < 0) {
    shake_failed(s, err);
    return;
  }
  /* The connector proves itself first: see handshake.h. */
  if (hello == (s->hs.role == HELLO_CONNECTOR)) send_proof(s);
  if (hello || s->state != STREAM_SHAKING) return;
  uv_timer_stop(&s->timer);
  s->state = STREAM_OPEN;
  s->ops->ready(s);
}

static void take_bye(struct stream *s, struct slice meta) {
  int err;
  if (hello_get_bye(meta, &err, s->why) < 0)
    stream_fail(s, STREAM_NONSENSE, ERR_PROTOCOL, "a malformed BYE");
  else
    stream_fail(s, STREAM_REFUSED_US, err, s->why);
}

/* ---- frames ---- */

static void nonsense(struct stream *s, const char *why) {
  stream_fail(s, STREAM_NONSENSE, ERR_PROTOCOL, why);
}

static void take_header(struct stream *s) {
  const char *why;
  if (frame_header_decode(s->staging + s->staged_at, &s->head, &why) < 0) {
    nonsense(s, why);
    return;
  }
  const struct frame_type_info *info = frame_type_info(s->head.type);
  uint8_t phase = s->state == STREAM_OPEN ? FRAME_WHEN_OPEN : FRAME_IN_HANDSHAKE;
  uint8_t sender = s->hs.role == HELLO_CONNECTOR ? FRAME_BY_LISTENER : FRAME_BY_CONNECTOR;
  if (!(info->phases & phase) || !(info->senders & sender)) {
    nonsense(s, "a frame that may not come now");
    return;
  }
  s->staged_at += FRAME_HEADER_BYTES;
  s->rx = STREAM_RX_META;
  if (s->head.meta_len <= STREAM_STAGING_BYTES) return;
  s->meta = malloc(s->head.meta_len);
  if (!s->meta) {
    stream_fail(s, STREAM_GONE, -ENOMEM, "no memory for a frame");
    return;
  }
  s->meta_have = MIN(staged(s), (size_t)s->head.meta_len);
  memcpy(s->meta, s->staging + s->staged_at, s->meta_have);
  s->staged_at += s->meta_have;
}

static bool meta_complete(const struct stream *s) {
  return (s->meta ? s->meta_have : staged(s)) >= s->head.meta_len;
}

static void dispatch(struct stream *s, struct slice meta) {
  if (s->head.type == FRAME_BYE) {
    take_bye(s, meta);
    return;
  }
  if (s->state == STREAM_SHAKING) {
    shake(s, meta);
    return;
  }
  s->why[0] = 0;
  int result = s->ops->frame(s, &s->head, meta);
  if (result < 0)
    nonsense(s, s->why[0] ? s->why : err_words(result));
  else if (result == STREAM_WAIT)
    stream_pause(s);
}

static void take_meta(struct stream *s) {
  struct slice meta = slice_of(s->meta ? s->meta : s->staging + s->staged_at, s->head.meta_len);
  if (crc32c(0, meta.data, meta.len) != s->head.meta_crc) {
    nonsense(s, "a frame whose CRC fails");
    return;
  }
  if (!s->meta) s->staged_at += meta.len;
  s->rx = s->head.bulk_len ? STREAM_RX_BULK : STREAM_RX_HEADER;
  s->bulk_left = s->head.bulk_len;
  s->bulk = NULL;
  /* dispatch may end the stream, but it is freed by the loop's next turn at the earliest. */
  dispatch(s, meta);
  free(TAKE(s->meta));
  s->meta_have = 0;
}

/* One step with what is here; false where more bytes are needed. */
static bool step(struct stream *s) {
  switch (s->rx) {
    case STREAM_RX_HEADER:
      if (staged(s) < FRAME_HEADER_BYTES) return false;
      take_header(s);
      return true;
    case STREAM_RX_META:
      if (!meta_complete(s)) return false;
      take_meta(s);
      return true;
    case STREAM_RX_BULK:
      take_bulk(s);
      if (!bulk_finished(s)) return false;
      s->rx = STREAM_RX_HEADER;
      s->bulk = NULL;
      s->why[0] = 0;
      int err = s->ops->bulk_done(s);
      if (err < 0) nonsense(s, s->why[0] ? s->why : err_words(err));
      return true;
  }
  return false;
}

static void process(struct stream *s) {
  assert(!s->processing);
  s->processing = true;
  while (s->state != STREAM_ENDED && !s->paused && step(s)) {
  }
  s->processing = false;
}

/* ---- libuv ---- */

static void rx_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf) {
  (void)suggested;
  struct stream *s = handle->data;
  if (s->state == STREAM_ENDED) { /* draining behind a BYE */
    *buf = uv_buf_init((char *)s->staging, sizeof s->staging);
    return;
  }
  if (s->rx == STREAM_RX_BULK && s->bulk) {
    *buf = bulk_room(s);
    return;
  }
  if (s->rx == STREAM_RX_META && s->meta) {
    *buf = uv_buf_init((char *)s->meta + s->meta_have, (unsigned)(s->head.meta_len - s->meta_have));
    return;
  }
  memmove(s->staging, s->staging + s->staged_at, staged(s));
  s->staged_end = staged(s);
  s->staged_at = 0;
  *buf = uv_buf_init((char *)s->staging + s->staged_end,
                     (unsigned)(sizeof s->staging - s->staged_end));
}

static void rx_read(uv_stream_t *tcp, ssize_t n, const uv_buf_t *buf) {
  struct stream *s = tcp->data;
  if (n == 0) return; /* EAGAIN */
  if (n < 0) {
    stream_fail(s, STREAM_GONE, ERR_PEER_DOWN,
                n == UV_EOF ? "the connection was closed" : err_words((int)n));
    return;
  }
  if (s->state == STREAM_ENDED) return;
  s->last_rx_ms = uv_now(s->loop);
  s->rx_bytes += (uint64_t)n;
  if (s->rx == STREAM_RX_BULK && s->bulk)
    bulk_advance(s, (size_t)n);
  else if (s->rx == STREAM_RX_META && s->meta)
    s->meta_have += (size_t)n;
  else
    s->staged_end += (size_t)n;
  process(s);
}

int stream_rx_start(struct stream *s) {
  s->reading = true;
  return uv_read_start((uv_stream_t *)&s->tcp, rx_alloc, rx_read);
}

void stream_rx_drain(struct stream *s) {
  if (stream_rx_start(s) < 0) s->reading = false; /* the linger timer closes */
}

void stream_pause(struct stream *s) {
  if (s->paused || s->state == STREAM_ENDED) return;
  s->paused = true;
  s->reading = false;
  uv_read_stop((uv_stream_t *)&s->tcp);
}

void stream_resume(struct stream *s) {
  if (!s->paused || s->state == STREAM_ENDED) return;
  s->paused = false;
  s->last_rx_ms = uv_now(s->loop); /* the silence was ours */
  process(s);
  if (s->paused || s->state == STREAM_ENDED) return;
  int err = stream_rx_start(s);
  if (err < 0) stream_fail(s, STREAM_GONE, err, err_words(err));
}
