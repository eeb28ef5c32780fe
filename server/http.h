/* http.h: HTTP/1.1 over one libuv loop: connections, requests, answers. Knows nothing of S3.
 *
 * A connection handles one request at a time; what a client pipelines behind it waits in a bounded
 * buffer, then in the socket. `handle` is called when a request's head is complete and valid. The
 * handler then owes exactly one answer: http_respond, or http_begin (+ sink writes) + http_end, or
 * http_reset. Until it has answered and returned control, the request and all its slices live. If
 * the client goes away first, `req->gone` is called once (when set); the handler still owes
 * http_respond/http_end/http_reset (which then only frees). Every length and time has a limit,
 * named below or in settings. Source: RFC 9110, RFC 9112; llhttp.h. What later llhttp versions
 * refuse, http_msg.c refuses on 8.1 as well. */
#ifndef KOFN_SERVER_HTTP_H
#define KOFN_SERVER_HTTP_H

#include "codec/bytes.h"
#include "storage/net/env_uv.h"
#include "storage/object/body.h"

#define HTTP_HEAD_BYTES_MAX 32768 /* request line and headers together */
#define HTTP_TARGET_BYTES_MAX 8192
#define HTTP_HEADERS_MAX 100
#define HTTP_DRAIN_BYTES_MAX (256u << 10) /* unread body that is skipped to keep a connection */
#define HTTP_READ_BYTES (64u << 10)

enum http_method {
  HTTP_M_GET,
  HTTP_M_HEAD,
  HTTP_M_PUT,
  HTTP_M_POST,
  HTTP_M_DELETE,
  HTTP_M_OPTIONS,
  HTTP_M_OTHER
};

struct http_header {
  struct slice name;  /* lower case */
  struct slice value; /* trimmed, else as sent; a repeated header stands more than once */
};

struct http_conn;

struct http_request {
  struct http_conn *conn;
  enum http_method method;
  struct slice method_name;
  struct slice target; /* raw, as received */
  struct slice path;   /* raw, up to '?'; begins with '/' */
  struct slice query;  /* raw, behind '?'; data == NULL: no '?' */
  struct http_header headers[HTTP_HEADERS_MAX];
  unsigned header_count;
  struct body body; /* pull with body.ops; length 0 when there is none */
  bool has_body;    /* Content-Length > 0 or chunked */
  bool has_length;  /* a Content-Length header was there */
  bool chunked;
  bool expect_continue; /* still owed; sent at the first body read or by http_continue */
  bool peer_is_loopback;
  char id[17]; /* request id, upper-case hex: x-amz-request-id */
  uint64_t started_ms;
  struct sink sink;                       /* after http_begin */
  void (*gone)(struct http_request *req); /* the client closed or timed out; may be NULL */
  void *user;                             /* the handler's */
  /* Answer headers collected so far: http_header_add. */
  struct byte_writer out;
};

struct http_handler {
  void (*handle)(void *arg, struct http_request *req);
  /* Writes the body of an answer to a request that never reached `handle`; content type
   * application/xml. */
  void (*describe)(void *arg, int status, const char *code, const char *message,
                   const char *request_id, struct byte_writer *body);
  void *arg;
};

struct http_limits {
  uint64_t header_timeout_ms; /* from the first byte of a request to the end of its head */
  uint64_t idle_timeout_ms;   /* between requests */
  uint64_t body_timeout_ms;   /* without a byte of the body, or without progress of an answer */
  unsigned connections_max;   /* beyond: 503 SlowDown and close */
};

struct http_server;

/* Listens with SO_REUSEPORT on `address` ("host:port"). */
_must_check_ int http_server_start(struct env_uv *env, const char *address,
                                   const struct http_handler *handler,
                                   const struct http_limits *limits,
                                   struct http_server **ret_server);
/* Stops accepting, closes idle connections at once and others after their answer ("Connection:
 * close" from now on). `drained` runs when none is left. */
void http_server_drain(struct http_server *s, void (*drained)(void *arg), void *arg);
/* Closes every connection now (shutdown_grace is over); `drained` then follows. */
void http_server_abort(struct http_server *s);
/* The port it listens on (an address may say port 0), or a negative error. */
int http_server_port(const struct http_server *s);
/* After drained: frees when the loop has closed the handles. NULL is allowed. */
void http_server_free(struct http_server *s);

/* First header of that (lower-case) name; data == NULL when absent. */
struct slice http_header_find(const struct http_request *req, const char *name);
/* How often it was sent. */
unsigned http_header_count(const struct http_request *req, const char *name);

/* Answer headers. CR, LF and NUL in a value are replaced by spaces. Date, Server, x-amz-request-id,
 * Content-Length and Connection are added by the layer itself. */
void http_header_add(struct http_request *req, const char *name, const char *value);
void http_header_add_slice(struct http_request *req, struct slice name, struct slice value);
void http_header_addf(struct http_request *req, const char *name, const char *fmt, ...)
    _printf_(3, 4);

/* A whole answer; `body` is copied. For HEAD, 204 and 304 no body is sent (content length of a HEAD
 * answer = body.len unless http_begin is used). The request is gone when this returns. Not allowed
 * after http_begin. Safe inside `handle`. */
void http_respond(struct http_request *req, int status, struct slice body);
/* Starts an answer of `length` bytes (for HEAD: only says so); req->sink takes the bytes. The head
 * goes out with the first write (or at http_end). length BODY_LENGTH_UNKNOWN: chunked. */
void http_begin(struct http_request *req, int status, uint64_t length);
/* Takes http_begin back while nothing was written yet, with the headers added so far dropped:
 * another answer follows. */
void http_begin_undo(struct http_request *req);
/* All bytes were written. The request is gone when this returns. */
void http_end(struct http_request *req);
/* The answer cannot be completed: reset the connection. The request is gone. A body read or sink
 * write still pending at http_respond, http_end or http_reset gets its callback later, with an
 * error. */
void http_reset(struct http_request *req);
/* Sends 100 Continue now if it is owed. */
void http_continue(struct http_request *req);
/* Ends the connection after this answer. */
void http_close_after(struct http_request *req);

const char *http_status_words(int status);
/* Percent-decodes `in` (plus stays plus) into `out` (cap bytes). Length, or ERR_INVALID for a bad
 * escape, ERR_TOO_LARGE. A NUL is returned like any byte: the caller decides. */
_must_check_ int http_percent_decode(struct slice in, uint8_t *out, size_t cap);
/* IMF-fixdate of a wall clock; out needs 30 bytes. Parses all three RFC 9110 forms. */
void http_date_format(uint64_t wall_ms, char out[30]);
_must_check_ int http_date_parse(struct slice text, uint64_t *ret_wall_ms);

struct http_stats {
  uint64_t connections, connections_open, requests, bad_requests, bytes_in, bytes_out, timeouts,
      resets;
  uint64_t by_status[6]; /* 1xx..5xx at [1]..[5] */
};
void http_stats_get(const struct http_server *s, struct http_stats *ret);

#endif
