/* stream.h: one TCP connection that speaks frames, as both ends use it.
 *
 *   connect or accept -> handshake (deadline) -> open: frames to the owner -> end
 *
 * The stream reads headers and meta through a small staging buffer, checks them, and reads bulk
 * straight into the units that the owner names. Memory is bounded: staging, one meta, and whatever
 * the owner gives to write.
 *
 * An end comes once. Where the stream finds it (the other is gone, refuses, is refused, or sends
 * nonsense), `ended` says how; where the owner calls stream_reset or stream_bye, `ended` does not
 * run. After either the owner gets only the `done` of its writes, and at last `closed`, after which
 * the stream is freed. */
#ifndef KOFN_STORAGE_NET_STREAM_H
#define KOFN_STORAGE_NET_STREAM_H

#include <uv.h>

#include "storage/net/frame.h"
#include "storage/net/handshake.h"

#define STREAM_HANDSHAKE_MS 5000
#define STREAM_LINGER_MS 1000 /* how long the other may take to read a BYE */
#define STREAM_STAGING_BYTES 8192
#define STREAM_IOVECS_MAX (1 + PEER_UNITS_MAX)
#define STREAM_LISTEN_BACKLOG 512

struct stream;

enum stream_end {
  STREAM_GONE,       /* closed, reset, cannot be reached, or silent in the handshake */
  STREAM_REFUSED_US, /* the other end said BYE */
  STREAM_WE_REFUSED, /* it is not whom we want */
  STREAM_NONSENSE,   /* it sent what the protocol does not allow */
};

/* Returned by `frame`: the bulk has no place yet. Nothing is read until stream_resume. */
#define STREAM_WAIT 1

struct stream_ops {
  /* The handshake is done: stream_hello and the host are to be believed. */
  void (*ready)(struct stream *s);
  /* Header and meta of a frame, both checked. `meta` lives during the call only. If bulk follows,
   * the owner calls stream_bulk_into now or (STREAM_WAIT) before stream_resume, or else the bulk is
   * dropped. A negative result is nonsense from the other end; say what with stream_complain. */
  int (*frame)(struct stream *s, const struct frame_header *h, struct slice meta);
  /* All bytes of the bulk have been read or dropped. */
  int (*bulk_done)(struct stream *s);
  /* s->end and s->why say how; s->err as a number. */
  void (*ended)(struct stream *s);
  void (*closed)(struct stream *s);
};

/* One write. `done` runs exactly once, later, never inside stream_write; until then the buffers
 * belong to the stream. */
struct stream_tx {
  void (*done)(struct stream_tx *tx, int err);
  /* the stream's own */
  uv_write_t req;
  struct list link;
  uv_buf_t bufs[STREAM_IOVECS_MAX];
  unsigned buf_count;
  size_t bytes;
};

enum stream_state { STREAM_CONNECTING, STREAM_SHAKING, STREAM_OPEN, STREAM_ENDED };
enum stream_rx { STREAM_RX_HEADER, STREAM_RX_META, STREAM_RX_BULK };

struct stream {
  /* the owner's to read */
  void *owner;
  enum stream_state state;
  enum stream_end end;
  int err;
  char why[HELLO_WORDS_BYTES_MAX];
  char from[64];       /* the other's address */
  struct handshake hs; /* hs.remote, hs.host, hs.version once ready */
  uint64_t last_rx_ms; /* uv_now of the last byte */
  uint64_t rx_bytes, tx_bytes;
  /* the stream's own */
  const struct stream_ops *ops;
  uv_loop_t *loop;
  uv_tcp_t tcp;
  uv_timer_t timer; /* handshake, then linger */
  uv_connect_t connect;
  uv_shutdown_t shutdown;
  unsigned handles;
  bool closing, paused, processing, reading;
  struct list outbox; /* stream_tx of this turn of the loop: written together before it polls */
  size_t outbox_bytes;
  uv_prepare_t flush; /* active while the outbox holds something */
  struct list unsent; /* stream_tx that libuv refused: done when closed */
  enum stream_rx rx;
  struct frame_header head;
  uint8_t *meta; /* only where it is longer than staging */
  size_t meta_have;
  const struct peer_unit *bulk; /* NULL: dropped */
  unsigned bulk_count, bulk_unit;
  uint32_t bulk_off;
  uint32_t bulk_left;
  size_t staged_at, staged_end;
  uint8_t staging[STREAM_STAGING_BYTES];
};

/* A stream with no connection yet. policy and map are borrowed. */
_must_check_ int stream_new(uv_loop_t *loop, const struct stream_ops *ops, void *owner,
                            struct hello_policy *policy, const struct cluster_map *map,
                            enum hello_role role, int expect_host, struct stream **ret_stream);
/* Connects and shakes hands; failures come through `ended`, later. */
void stream_connect(struct stream *s, const struct sockaddr *address);
/* Takes the connection that waits at `listener`. On failure the caller ends the stream with
 * stream_reset. */
_must_check_ int stream_accept(struct stream *s, uv_stream_t *listener);

/* Where the bulk that follows goes: units[i].len bytes to units[i].data. The array and the bytes
 * live until bulk_done, the end, or stream_bulk_drop. */
void stream_bulk_into(struct stream *s, const struct peer_unit *units, unsigned count);
/* The rest of the bulk is read and forgotten; its buffers are free at once. */
void stream_bulk_drop(struct stream *s);
/* Nothing is read any more / reading goes on. Never resume inside a callback of the stream. */
void stream_pause(struct stream *s);
void stream_resume(struct stream *s);

/* Writes all bufs in order, before the loop waits for events the next time. */
void stream_write(struct stream *s, struct stream_tx *tx, const uv_buf_t *bufs, unsigned count);
/* Writes one small frame; w (frame_begin .. frame_end) is taken and freed. Without memory the
 * stream ends by itself. */
void stream_post(struct stream *s, struct byte_writer *w);
void stream_post_empty(struct stream *s, uint8_t type, uint32_t stream);

/* What `frame` found wrong; returns ERR_PROTOCOL. */
int stream_complain(struct stream *s, const char *fmt, ...) _printf_(2, 3);
/* Ends at once; the other end sees a reset. */
void stream_reset(struct stream *s);
/* Says why, then closes when the other has read it (or after STREAM_LINGER_MS). */
void stream_bye(struct stream *s, int err, const char *words);
size_t stream_unsent_bytes(const struct stream *s);

#endif
