/* http_bed.c: see http_bed.h. The toy handler is written as the real ones are: callbacks record,
 * and the answer is given once. */
#include "http_bed.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "config/err.h"

#define PIECE_BYTES 65536

void bed_check(bool ok, const char *file, int line, const char *what) {
  if (ok) return;
  fprintf(stderr, "%s:%d: failed: %s\n", file, line, what);
  exit(1);
}

uint8_t bed_byte(uint64_t offset) {
  return (uint8_t)(offset * 131 + (offset >> 8) * 7 + (offset >> 16));
}

/* ---- the toy handler ---- */

struct toy {
  struct bed *bed;
  struct http_request *req;
  struct list link;
  uint8_t *data;
  size_t len, cap, piece;
  bool keep, cancel;
  uint64_t total, left, hash;
  uint8_t out[PIECE_BYTES];
  struct slice slice;
};

static unsigned toy_number(const struct http_request *req, char name, unsigned otherwise) {
  if (req->query.len < 3 || req->query.data[0] != (uint8_t)name) return otherwise;
  unsigned n = 0;
  for (size_t i = 2; i < req->query.len; i++) n = n * 10 + (unsigned)(req->query.data[i] - '0');
  return n;
}

static bool toy_path(const struct http_request *req, const char *path) {
  return slice_eq(req->path, slice_str(path));
}

static void toy_free(struct toy *t) {
  list_remove(&t->link);
  free(t->data);
  free(t);
}

static void toy_sent(void *arg, int err);

static void toy_send(struct toy *t) {
  size_t n = (size_t)MIN(t->left, (uint64_t)PIECE_BYTES);
  for (size_t i = 0; i < n; i++) t->out[i] = bed_byte(t->total - t->left + i);
  t->slice = slice_of(t->out, n);
  t->left -= n;
  t->req->sink.ops->write(&t->req->sink, &t->slice, 1, toy_sent, t);
}

static void toy_sent(void *arg, int err) {
  struct toy *t = arg;
  if (err < 0) {
    atomic_store(&t->bed->sink_err, err);
    http_reset(t->req);
    toy_free(t);
  } else if (t->left) {
    toy_send(t);
  } else {
    http_end(t->req);
    toy_free(t);
  }
}

static void toy_echoed(void *arg, int err) {
  struct toy *t = arg;
  if (err < 0) atomic_store(&t->bed->sink_err, err);
  http_end(t->req);
  toy_free(t);
}

static void toy_cut_sent(void *arg, int err) {
  struct toy *t = arg;
  if (toy_path(t->req, "/reset"))
    http_reset(t->req);
  else
    http_end(t->req);
  toy_free(t);
}

static void toy_body_over(struct toy *t) {
  struct http_request *req = t->req;
  if (t->keep) {
    t->slice = slice_of(t->data, t->len);
    http_begin(req, 200, t->len);
    req->sink.ops->write(&req->sink, &t->slice, 1, toy_echoed, t);
    return;
  }
  char text[64];
  int n = snprintf(text, sizeof text, "%llu %016llx", (unsigned long long)t->total,
                   (unsigned long long)t->hash);
  http_respond(req, 200, slice_of(text, (size_t)n));
  toy_free(t);
}

static void toy_read(void *arg, int err, size_t n);

static void toy_pull(struct toy *t) {
  if (t->cap - t->len < t->piece) {
    t->cap = t->len + t->piece * 2 + 4096;
    t->data = realloc(t->data, t->cap);
    if (!t->data) abort();
  }
  t->req->body.ops->read(&t->req->body, t->data + t->len, t->piece, toy_read, t);
}

static void toy_read(void *arg, int err, size_t n) {
  struct toy *t = arg;
  if (err < 0) {
    int status = err == ERR_TIMEOUT ? 408 : 400;
    atomic_store(&t->bed->body_err, err); /* before the client can know */
    http_respond(t->req, status, slice_str(err_name(err)));
    toy_free(t);
    return;
  }
  for (size_t i = 0; i < n; i++) t->hash = (t->hash ^ t->data[t->len + i]) * 0x100000001b3u;
  t->total += n;
  if (t->keep) t->len += n;
  if (n < t->piece)
    toy_body_over(t);
  else
    toy_pull(t);
}

/* The request is answered and gone already: only the callback is still owed. */
static void toy_impatient_read(void *arg, int err, size_t n) {
  struct toy *t = arg;
  atomic_store(&t->bed->body_err, err);
  toy_free(t);
}

static void toy_gone(struct http_request *req) {
  struct toy *t = req->user;
  atomic_fetch_add(&t->bed->gone, 1);
  http_respond(req, 200, SLICE_LIT("nobody hears this"));
  toy_free(t);
}

static void toy_head(struct http_request *req) {
  struct byte_writer w = {.max = 1 << 20};
  char text[256];
  put_bytes(&w, req->method_name);
  put_bytes(&w, SLICE_LIT("\npath="));
  put_bytes(&w, req->path);
  put_bytes(&w, SLICE_LIT("\nquery="));
  put_bytes(&w, req->query.data ? req->query : SLICE_LIT("(none)"));
  int n = snprintf(text, sizeof text, "\nbody=%d length=%d chunked=%d loopback=%d headers=%u\n",
                   req->has_body, req->has_length, req->chunked, req->peer_is_loopback,
                   req->header_count);
  put_bytes(&w, slice_of(text, (size_t)n));
  for (unsigned i = 0; i < req->header_count; i++) {
    put_bytes(&w, req->headers[i].name);
    put_bytes(&w, SLICE_LIT("=["));
    put_bytes(&w, req->headers[i].value);
    put_bytes(&w, SLICE_LIT("]\n"));
  }
  http_header_add(req, "X-Evil", "a\r\nInjected: 1");
  http_respond(req, 200, slice_of(w.data, w.len));
  byte_writer_free(&w);
}

static void toy_start_answer(struct toy *t) {
  struct http_request *req = t->req;
  unsigned n = toy_number(req, 'n', 0);
  if (toy_path(req, "/big") || toy_path(req, "/stream")) {
    t->total = t->left = n;
    http_begin(req, 200, toy_path(req, "/big") ? n : BODY_LENGTH_UNKNOWN);
    toy_send(t);
  } else {
    t->slice = SLICE_LIT("0123456789");
    http_begin(req, 200, 100);
    req->sink.ops->write(&req->sink, &t->slice, 1, toy_cut_sent, t);
  }
}

static void toy_handle(void *arg, struct http_request *req) {
  struct bed *bed = arg;
  atomic_fetch_add(&bed->handled, 1);
  if (toy_path(req, "/hello")) {
    http_respond(req, 200, SLICE_LIT("hello"));
  } else if (toy_path(req, "/head")) {
    toy_head(req);
  } else if (toy_path(req, "/refuse")) {
    http_respond(req, 403, SLICE_LIT("no"));
  } else if (toy_path(req, "/status")) {
    http_respond(req, (int)toy_number(req, 'n', 200), SLICE_LIT("body"));
  } else {
    struct toy *t = calloc(1, sizeof *t);
    if (!t) abort();
    t->bed = bed;
    t->req = req;
    t->hash = 0xcbf29ce484222325u;
    t->piece = toy_number(req, 'r', 65536);
    t->keep = toy_path(req, "/echo");
    list_push_back(&bed->hanging, &t->link);
    req->user = t;
    if (toy_path(req, "/echo") || toy_path(req, "/sum")) {
      toy_pull(t);
    } else if (toy_path(req, "/cancel")) {
      toy_pull(t);
      t->cancel = true;
      atomic_fetch_add(&bed->hung, 1);
    } else if (toy_path(req, "/impatient")) {
      t->data = malloc(64);
      req->body.ops->read(&req->body, t->data, 64, toy_impatient_read, t);
      http_respond(req, 200, SLICE_LIT("enough"));
    } else if (toy_path(req, "/hang")) {
      req->gone = toy_gone;
      atomic_fetch_add(&bed->hung, 1);
    } else {
      toy_start_answer(t);
    }
  }
}

static void toy_describe(void *arg, int status, const char *code, const char *message,
                         const char *request_id, struct byte_writer *body) {
  char text[512];
  int n = snprintf(text, sizeof text, "<Error><Code>%s</Code><RequestId>%s</RequestId></Error>",
                   code, request_id);
  put_bytes(body, slice_of(text, (size_t)n));
}

/* ---- the server's thread ---- */

static void bed_drained(void *arg) {
  struct bed *bed = arg;
  atomic_store(&bed->drained, true);
  http_server_free(TAKE(bed->server));
  uv_close((uv_handle_t *)&bed->poke, NULL);
  env_uv_close(bed->env);
}

static void bed_poked(uv_async_t *poke) {
  struct bed *bed = poke->data;
  switch (atomic_exchange(&bed->want, BED_NOTHING)) {
    case BED_RELEASE:
      list_foreach_safe(it, &bed->hanging) {
        struct toy *t = container_of(it, struct toy, link);
        if (t->cancel) t->req->body.ops->cancel(&t->req->body);
        if (t->cancel || t->req->gone != toy_gone) continue;
        http_respond(t->req, 200, SLICE_LIT("released"));
        toy_free(t);
      }
      break;
    case BED_DRAIN:
      http_server_drain(bed->server, bed_drained, bed);
      break;
    case BED_ABORT:
      http_server_abort(bed->server);
      break;
    default:
      break;
  }
}

static void *bed_run(void *arg) {
  struct bed *bed = arg;
  const struct http_handler handler = {toy_handle, toy_describe, bed};
  CHECK(uv_loop_init(&bed->loop) == 0);
  CHECK(env_uv_open(&bed->loop, bed->lanes, 1 << 20, &bed->env) == 0);
  CHECK(uv_async_init(&bed->loop, &bed->poke, bed_poked) == 0);
  bed->poke.data = bed;
  CHECK(http_server_start(bed->env, "127.0.0.1:0", &handler, &bed->limits, &bed->server) == 0);
  bed->port = http_server_port(bed->server);
  atomic_store(&bed->started, true);
  uv_run(&bed->loop, UV_RUN_DEFAULT);
  CHECK(uv_loop_close(&bed->loop) == 0);
  return NULL;
}

static void sleep_ms(unsigned ms) {
  struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
  nanosleep(&t, NULL);
}

struct http_limits bed_limits(void) {
  return (struct http_limits){.header_timeout_ms = 60000,
                              .idle_timeout_ms = 60000,
                              .body_timeout_ms = 60000,
                              .connections_max = 1000};
}

void bed_start(struct bed *bed, struct http_limits limits) {
  memset(bed, 0, sizeof *bed);
  bed->limits = limits;
  list_init(&bed->hanging);
  CHECK(cpu_lanes_start(1, &bed->lanes) == 0);
  CHECK(pthread_create(&bed->thread, NULL, bed_run, bed) == 0);
  for (int i = 0; i < 2000 && !atomic_load(&bed->started); i++) sleep_ms(10);
  CHECK(atomic_load(&bed->started));
}

void bed_want(struct bed *bed, enum bed_want want) {
  while (atomic_load(&bed->want) != BED_NOTHING) sleep_ms(1);
  atomic_store(&bed->want, want);
  uv_async_send(&bed->poke);
  while (atomic_load(&bed->want) != BED_NOTHING) sleep_ms(1);
}

void bed_stop(struct bed *bed) {
  if (!atomic_load(&bed->drained)) bed_want(bed, BED_DRAIN);
  CHECK(pthread_join(bed->thread, NULL) == 0);
  CHECK(atomic_load(&bed->drained));
  CHECK(list_empty(&bed->hanging));
  cpu_lanes_stop(bed->lanes);
}

void bed_wait(atomic_int *value, int n, const char *what) {
  for (int i = 0; i < 2000 && atomic_load(value) < n; i++) sleep_ms(10);
  bed_check(atomic_load(value) >= n, "bed_wait", n, what);
}

struct http_stats bed_stats(struct bed *bed) {
  struct http_stats s;
  http_stats_get(bed->server, &s);
  return s;
}

/* ---- the client ---- */

void client_open(struct client *c, struct bed *bed) {
  memset(c, 0, sizeof *c);
  c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in to = {.sin_family = AF_INET,
                           .sin_port = htons((uint16_t)bed->port),
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  struct timeval patience = {.tv_sec = 20};
  int on = 1;
  CHECK(c->fd >= 0);
  setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  CHECK(connect(c->fd, (struct sockaddr *)&to, sizeof to) == 0);
}

void client_close(struct client *c) {
  close(c->fd);
  free(c->in);
  memset(c, 0, sizeof *c);
  c->fd = -1;
}

/* What the server no longer wants to hear is dropped: its answer is what counts. */
void client_send(struct client *c, const void *data, size_t len) {
  const uint8_t *at = data;
  while (len) {
    ssize_t n = send(c->fd, at, len, MSG_NOSIGNAL);
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) return;
    CHECK(n > 0);
    at += n;
    len -= (size_t)n;
  }
}

void client_say(struct client *c, const char *text) {
  client_send(c, text, strlen(text));
}

/* Bytes read, 0 at the end, -1 for a reset. */
static ssize_t client_more(struct client *c) {
  if (c->cap - c->len < 65536) {
    c->cap = c->cap * 2 + 131072;
    c->in = realloc(c->in, c->cap);
    CHECK(c->in);
  }
  ssize_t n = recv(c->fd, c->in + c->len, c->cap - c->len, 0);
  if (n < 0) {
    bed_check(errno == ECONNRESET || errno == EPIPE, "client", errno, "the server is silent");
    return -1;
  }
  c->len += (size_t)n;
  return n;
}

static bool client_need(struct client *c, size_t n) {
  while (c->len < n)
    if (client_more(c) <= 0) return false;
  return true;
}

static void client_take(struct client *c, size_t n) {
  c->len -= n;
  memmove(c->in, c->in + n, c->len);
}

static bool client_chunks(struct client *c, struct reply *r) {
  for (;;) {
    uint8_t *end;
    while (!(end = c->len ? memmem(c->in, c->len, "\r\n", 2) : NULL))
      if (client_more(c) <= 0) return false;
    size_t size = strtoul((char *)c->in, NULL, 16), line = (size_t)(end - c->in) + 2;
    if (!client_need(c, line + size + 2)) return false;
    CHECK(memcmp(c->in + line + size, "\r\n", 2) == 0);
    r->body = realloc(r->body, r->len + size + 1);
    memcpy(r->body + r->len, c->in + line, size);
    r->len += size;
    client_take(c, line + size + 2);
    if (size == 0) return true;
  }
}

bool client_reply(struct client *c, bool head_only, struct reply *r) {
  memset(r, 0, sizeof *r);
  uint8_t *end;
  while (!(end = c->len ? memmem(c->in, c->len, "\r\n\r\n", 4) : NULL))
    if (client_more(c) <= 0) return false;
  size_t head = (size_t)(end - c->in) + 4;
  CHECK(head < sizeof r->head);
  memcpy(r->head, c->in, head);
  client_take(c, head);
  CHECK(memcmp(r->head, "HTTP/1.1 ", 9) == 0);
  r->status = (int)strtol(r->head + 9, NULL, 10);
  const char *length = strstr(r->head, "\r\nContent-Length: ");
  if (head_only || r->status == 204 || r->status == 304 || r->status < 200) return true;
  if (strstr(r->head, "\r\nTransfer-Encoding: chunked\r\n")) return client_chunks(c, r);
  size_t want = length ? strtoul(length + 18, NULL, 10) : 0;
  if (length && !client_need(c, want)) return false;
  while (!length && client_more(c) > 0) continue;
  if (!length) want = c->len;
  r->body = malloc(want + 1);
  memcpy(r->body, c->in, want);
  r->body[want] = 0;
  r->len = want;
  client_take(c, want);
  return true;
}

void reply_free(struct reply *r) {
  free(r->body);
  r->body = NULL;
}

bool reply_has(const struct reply *r, const char *line) {
  char text[256];
  snprintf(text, sizeof text, "\r\n%s\r\n", line);
  return strstr(r->head, text) != NULL;
}

int client_end(struct client *c) {
  if (c->len) return 2;
  ssize_t n = client_more(c);
  return n == 0 ? 0 : n < 0 ? 1 : 2;
}
