/* http_conn.h: what the files of the HTTP layer share; nobody else includes it.
 *
 *   http_server.c  listener, accepted connections, the sweep of deadlines, drain, counters
 *   http_conn.c    one connection: reads, decides what happens next, closes
 *   http_msg.c     a request's head: finds its end, checks it, fills struct http_request
 *   http_body.c    a request's body: pulled by the handler, or skipped
 *   http_out.c     the answer: head, body, sink
 *
 *   socket -> http_conn_turn: deliver a callback | parse a head -> handler | finish an answer
 *
 * Calls of the handler and callbacks of libuv only record; http_conn_turn is the one place where a
 * handler's functions are called and where a connection moves on. It is never entered twice for one
 * connection: a call that comes from elsewhere queues the connection (http_conn_wake) for the
 * loop's next turn. A connection is freed at the end of its own turn, when its handle is closed and
 * its handler has answered. */
#ifndef KOFN_SERVER_HTTP_CONN_H
#define KOFN_SERVER_HTTP_CONN_H

#include "config/err.h"
#include "config/list.h"
#include "server/http.h"
#include "server/http_chunked.h"

#define HTTP_AHEAD_BYTES_MAX 16384u  /* read ahead of a request that is being answered */
#define HTTP_INPUT_SMALL_BYTES 4096u /* first size of a connection's own input buffer */
#define HTTP_DIRECT_BYTES_MIN 16384u /* of a chunk: fewer are read together with what follows */
#define HTTP_LINGER_MS 3000u         /* for the client to read a last answer */
#define HTTP_LINGER_BYTES_MAX (64u << 20)
#define HTTP_STEPS_PER_TURN 64u /* then other connections have their turn */
#define HTTP_BLANK_LINES_MAX 4u /* in front of a request line */
#define HTTP_METHOD_BYTES_MAX 32u
#define HTTP_OUT_HEADERS_BYTES_MAX 65536u
#define HTTP_SPARE_CONNS_MAX 64u
#define HTTP_SPARE_EXCHANGES_MAX 32u
#define HTTP_SPARE_BYTES_MAX 16384u /* a buffer that a spare exchange may keep */
#define HTTP_OVERFLOW_MAX 64u       /* connections beyond connections_max that are told so */
#define HTTP_BACKLOG 1024

enum http_framing { HTTP_FRAMING_NONE, HTTP_FRAMING_LENGTH, HTTP_FRAMING_CHUNKED };

/* A body read of the handler. */
struct http_read {
  uint8_t *dst;
  size_t len, got;
  body_cb cb;
  void *arg;
  int err;
  bool active; /* the callback is owed */
  bool done;   /* and may run now */
};

/* One request and its answer. Freed when the handler has answered, no callback is owed to it and
 * the kernel has taken (or refused) every byte. */
struct http_exchange {
  struct http_request req; /* first: what the handler holds */
  struct list spare_link;
  /* The head as received, names lower-cased; the request's slices point into it. */
  uint8_t *head;
  size_t head_cap;
  bool http_1_0, keep_alive;
  bool handled;  /* `handle` was called: callbacks may be owed */
  bool answered; /* http_respond, http_end or http_reset was called */
  bool gone_told;

  /* body */
  enum http_framing framing;
  struct http_chunked chunked;
  uint64_t left; /* HTTP_FRAMING_LENGTH */
  int body_err;  /* sticky: framing broken or timed out */
  struct http_read read;
  uint64_t skipped;

  /* answer */
  struct byte_writer head_out; /* status line and headers, and the copied body of http_respond */
  bool begun, head_sent, no_body, chunked_out;
  bool close_after;
  uint64_t length_out, sent_out;
  char chunk_line[24];
  uv_write_t write, continue_write;
  bool writing, continuing; /* uv_write under way */
  size_t write_left;
  size_t seen_unsent; /* bytes not yet at the client at the last look: progress of an answer */
  sink_cb sink_cb;
  void *sink_arg;
  int sink_err;
  bool sink_active, sink_done; /* as in http_read */
};

enum http_phase {
  HTTP_PHASE_IDLE,    /* between requests: nothing has arrived */
  HTTP_PHASE_HEAD,    /* a part of a head */
  HTTP_PHASE_REQUEST, /* until the answer is finished */
  HTTP_PHASE_SKIP,    /* the answer is finished, the body is read and dropped */
  HTTP_PHASE_LINGER   /* our side is shut down: read until the client has closed */
};

/* How far a head was searched; offsets into the input, so the input may move. */
struct http_scan {
  size_t at, line;
  unsigned lines;
};

enum http_read_into { HTTP_INTO_SCRATCH, HTTP_INTO_INPUT, HTTP_INTO_BODY };

struct http_conn {
  uv_tcp_t tcp;
  uv_shutdown_t shutdown;
  struct http_server *server;
  struct list link;      /* server->conns, or server->spare_conns */
  struct list wake_link; /* server->awake */
  struct http_exchange *ex;
  /* Bytes not consumed yet. They stand in the server's scratch buffer while libuv's read callback
   * runs, else in `buf`; a connection without any holds no buffer. */
  const uint8_t *in;
  size_t in_len;
  uint8_t *buf;
  size_t buf_cap;
  struct http_scan scan;
  unsigned blank_lines;
  enum http_read_into into;
  enum http_phase phase;
  uint64_t since_ms; /* the phase began */
  uint64_t moved_ms; /* last progress of the body or the answer */
  uint64_t lingered;
  int dead; /* 0, or why the connection is closed: every callback gets it */
  bool handle_closed, eof, reading, in_turn, overflow, peer_is_loopback;
};

struct http_server {
  struct env_uv *env_uv;
  struct env *env;
  struct http_handler handler;
  struct http_limits limits;
  uv_tcp_t listener;
  uv_idle_t waker; /* active while `awake` has entries */
  unsigned handles_open;
  struct list conns, awake, spare_conns, spare_exchanges;
  unsigned conns_open, spare_conn_count, spare_exchange_count;
  struct env_timer sweep;
  uint64_t sweep_ms;
  bool draining, drained_told, accept_owed;
  void (*drained)(void *arg);
  void *drained_arg;
  uint64_t id_state;
  uint64_t date_second;
  char date[30];
  struct http_stats stats;
  uint8_t scratch[HTTP_READ_BYTES];
};

/* An answer to what never became a request. */
struct http_refusal {
  int status;
  const char *code, *message;
};

/* Counters have one writer, the server's loop; other threads read them. */
#define HTTP_COUNT(counter, n) \
  __atomic_store_n(&(counter), (counter) + (uint64_t)(n), __ATOMIC_RELAXED)

static inline struct http_exchange *http_exchange_of(const struct http_request *req) {
  return container_of(req, struct http_exchange, req);
}

/* ---- http_server.c ---- */
struct http_exchange *http_exchange_new(struct http_conn *conn); /* NULL without memory */
void http_exchange_free(struct http_server *s, struct http_exchange *ex);
void http_conn_release(struct http_conn *conn); /* the connection is gone when this returns */
uint64_t http_server_now(struct http_server *s);
const char *http_server_date(struct http_server *s);
/* Queues the connection for the loop's next turn. */
void http_server_wake(struct http_server *s, struct http_conn *conn);

/* ---- http_conn.c ---- */
/* The connection was accepted (conn->tcp is open). */
void http_conn_start(struct http_conn *conn);
void http_conn_turn(struct http_conn *conn);
/* Something was recorded: a turn follows, unless one is running. */
void http_conn_wake(struct http_conn *conn);
/* Closes now; `err` is what owed callbacks get. Safe on a dead connection. */
void http_conn_kill(struct http_conn *conn, int err, bool reset);
/* Starts reading again where there is room. Reading is stopped only when bytes are there and no
 * room is (see http_conn.c), which saves two system calls for each read of a fast body. */
void http_conn_read_update(struct http_conn *conn);
void http_conn_consume(struct http_conn *conn, size_t n);
/* The sweep's look at the deadlines. */
void http_conn_check(struct http_conn *conn, uint64_t now);

/* ---- http_msg.c ---- */
/* Length of a whole head at the start of `in`; 0: more bytes are needed; -1: *ret_why. */
_must_check_ int http_head_find(struct http_scan *scan, struct slice in,
                                struct http_refusal *ret_why);
/* Fills ex from `head` (copied). 0, or -1: *ret_why. */
_must_check_ int http_head_parse(struct http_exchange *ex, struct slice head,
                                 struct http_refusal *ret_why);

/* ---- http_body.c ---- */
extern const struct body_ops http_body_ops;
/* The whole body was consumed from the connection. */
bool http_body_over(const struct http_exchange *ex);
/* What is left of the body is so short that it will be skipped for sure. Nobody knows that of
 * chunks that have not arrived: a client that was not told of the end would use the connection, and
 * a proxy would fail another client's request on it. */
bool http_body_skippable(const struct http_exchange *ex);
/* Where the socket may be read straight into the pending read; 0 when nowhere. */
size_t http_body_direct(struct http_exchange *ex, uint8_t **ret_at);
void http_body_direct_done(struct http_exchange *ex, size_t n);
/* Moves input to the pending read. True when the read is done. */
bool http_body_fill(struct http_conn *conn);
/* Drops body bytes; ERR_TOO_LARGE beyond HTTP_DRAIN_BYTES_MAX. */
_must_check_ int http_body_skip(struct http_conn *conn);
void http_body_fail(struct http_exchange *ex, int err);

/* ---- http_out.c ---- */
extern const struct sink_ops http_sink_ops;
/* Bytes of the answer that the client's kernel has not taken yet. */
size_t http_out_unsent(struct http_conn *conn);
void http_out_fail(struct http_exchange *ex, int err);

#endif
