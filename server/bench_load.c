/* bench_load.c: a small HTTP client: single requests, and a fixed load over many connections.
 *
 * One thread and one blocking socket for each connection, a request at a time; the socket's own
 * timeout bounds every wait. An answer that is not 2xx or of another length is an error. */
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "config/err.h"
#include "config/settings.h"
#include "server/bench_system.h"

#define HTTP_TIMEOUT_S 30
#define HTTP_HEAD_BYTES 8192
#define IO_BYTES (256u << 10)
#define LOAD_ERRORS_MAX 16 /* of all connections: then the load ends */
#define LATENCIES_MAX (1u << 20)

int bench_address_parse(const char *text, struct bench_address *ret_address) {
  char host[256], service[8];
  uint16_t port;
  if (strncmp(text, "http://", 7) == 0) text += 7;
  size_t len = strlen(text);
  if (len > 0 && text[len - 1] == '/') len--;
  struct bench_address a = {.len = 0};
  if (len >= sizeof a.text) return ERR_INVALID;
  memcpy(a.text, text, len);
  if (settings_parse_address(a.text, host, &port) < 0 || port == 0) return ERR_INVALID;
  snprintf(service, sizeof service, "%u", port);
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
  if (getaddrinfo(host[0] ? host : "127.0.0.1", service, &hints, &list) != 0) return -EHOSTUNREACH;
  memcpy(&a.at, list->ai_addr, list->ai_addrlen);
  a.len = list->ai_addrlen;
  freeaddrinfo(list);
  *ret_address = a;
  return 0;
}

struct conn {
  int fd;
  char head[HTTP_HEAD_BYTES + 1];
  size_t got; /* bytes in `head`, of the head and perhaps of the body */
  size_t head_len;
  int status;
  uint64_t length; /* of the body; UINT64_MAX: until the end */
  bool close_after;
};

static int conn_open(const struct bench_address *to) {
  int fd = socket(to->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
  if (fd < 0) return -errno;
  struct timeval limit = {.tv_sec = HTTP_TIMEOUT_S};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (connect(fd, (const struct sockaddr *)&to->at, to->len) == 0) return fd;
  int err = -errno;
  close(fd);
  return err;
}

/* All of head and body, of which `pattern` repeats every IO_BYTES. */
static int conn_send(int fd, const char *head, size_t head_len, const uint8_t *body, uint64_t len,
                     bool pattern) {
  uint64_t sent = 0, whole = head_len + len;
  while (sent < whole) {
    uint64_t at = sent > head_len ? sent - head_len : 0;
    size_t part = (size_t)(pattern ? MIN(len - at, IO_BYTES - at % IO_BYTES) : len - at);
    struct iovec iov[2] = {
        {(void *)(uintptr_t)(head + MIN(sent, head_len)), head_len - (size_t)MIN(sent, head_len)},
        {(void *)(uintptr_t)(body ? body + (pattern ? at % IO_BYTES : at) : NULL), part}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = part ? 2 : 1};
    ssize_t n = sendmsg(fd, &msg, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR && !bench_stop) continue;
    if (n <= 0) return n < 0 ? -errno : -EPIPE;
    sent += (uint64_t)n;
  }
  return 0;
}

static ssize_t conn_read(struct conn *c, void *into, size_t cap) {
  for (;;) {
    ssize_t n = recv(c->fd, into, cap, 0);
    if (n >= 0) return n;
    if (errno != EINTR || bench_stop) return errno == EAGAIN ? -ETIMEDOUT : -errno;
  }
}

/* The value of a header line, or NULL; the head is NUL-terminated at its end. */
static const char *conn_header(const struct conn *c, const char *name) {
  size_t len = strlen(name);
  for (const char *line = strstr(c->head, "\r\n"); line && line[2]; line = strstr(line, "\r\n")) {
    line += 2;
    if (strncasecmp(line, name, len) != 0 || line[len] != ':') continue;
    line += len + 1;
    return line + strspn(line, " ");
  }
  return NULL;
}

static int conn_head(struct conn *c, bool no_body) {
  char *end;
  c->got = 0;
  for (;;) {
    ssize_t n = conn_read(c, c->head + c->got, HTTP_HEAD_BYTES - c->got);
    if (n <= 0) return n < 0 ? (int)n : -ECONNRESET;
    c->got += (size_t)n;
    c->head[c->got] = 0;
    if ((end = strstr(c->head, "\r\n\r\n")) != NULL) break;
    if (c->got == HTTP_HEAD_BYTES) return ERR_TOO_LARGE;
  }
  c->head_len = (size_t)(end - c->head) + 4;
  end[2] = 0;
  if (sscanf(c->head, "HTTP/1.%*d %d", &c->status) != 1) return ERR_INVALID;
  const char *length = conn_header(c, "content-length");
  const char *close_it = conn_header(c, "connection");
  c->close_after = close_it && strncasecmp(close_it, "close", 5) == 0;
  c->length = length ? strtoull(length, NULL, 10) : UINT64_MAX;
  if (no_body || c->status == 204 || c->status == 304) c->length = 0;
  if (c->length == UINT64_MAX) c->close_after = true;
  return 0;
}

/* The body into `answer` as far as it fits; *ret_len is the whole length. */
static int conn_body(struct conn *c, uint8_t *scratch, size_t scratch_cap, char *answer, size_t cap,
                     uint64_t *ret_len) {
  uint64_t got = c->got - c->head_len;
  size_t kept = (size_t)MIN(got, cap);
  if (kept) memcpy(answer, c->head + c->head_len, kept);
  while (got < c->length) {
    ssize_t n = conn_read(c, scratch, (size_t)MIN(scratch_cap, c->length - got));
    if (n == 0 && c->length == UINT64_MAX) break;
    if (n <= 0) return n < 0 ? (int)n : -ECONNRESET;
    size_t more = MIN((size_t)n, cap - kept);
    if (more) memcpy(answer + kept, scratch, more);
    kept += more;
    got += (uint64_t)n;
  }
  if (cap) answer[kept] = 0;
  *ret_len = got;
  return 0;
}

int bench_http(const struct bench_address *to, const char *method, const char *path,
               const char *head, const void *body, size_t len, char *answer, size_t cap) {
  char request[HTTP_HEAD_BYTES];
  uint8_t scratch[4096];
  struct conn c = {.fd = -1};
  uint64_t got;
  int n =
      snprintf(request, sizeof request,
               "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Length: %zu\r\n%s\r\n",
               method, path, to->text, len, head);
  if (n < 0 || (size_t)n >= sizeof request) return ERR_TOO_LARGE;
  int err = conn_open(to);
  if (err < 0) return err;
  c.fd = err;
  err = conn_send(c.fd, request, (size_t)n, body, len, false);
  if (err == 0) err = conn_head(&c, strcmp(method, "HEAD") == 0);
  if (err == 0) err = conn_body(&c, scratch, sizeof scratch, answer, cap ? cap - 1 : 0, &got);
  if (err == 0 && cap && got == 0) answer[0] = 0;
  close(c.fd);
  return err < 0 ? err : c.status;
}

/* ---- the load ---- */

struct load_shared {
  const struct bench_load *load;
  const uint8_t *pattern;
  uint64_t end_ns;
  uint64_t next, requests, errors; /* atomic */
  uint32_t *latency_us;            /* one for each request */
  pthread_mutex_t lock;
  char error[160];
};

struct load_thread {
  pthread_t thread;
  struct load_shared *shared;
  const struct bench_address *to;
  struct conn conn;
  uint8_t *scratch;
};

static void load_failed(struct load_shared *s, const char *fmt, ...) _printf_(2, 3);
static void load_failed(struct load_shared *s, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  pthread_mutex_lock(&s->lock);
  if (s->errors == 0) vsnprintf(s->error, sizeof s->error, fmt, ap);
  __atomic_fetch_add(&s->errors, 1, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&s->lock);
  va_end(ap);
}

static int load_request(struct load_thread *t, uint64_t n) {
  const struct bench_load *load = t->shared->load;
  char request[HTTP_HEAD_BYTES], answer[80] = "";
  bool put = strcmp(load->method, "PUT") == 0, get = strcmp(load->method, "GET") == 0;
  uint64_t len = put ? load->size : 0, got = 0;
  int head =
      snprintf(request, sizeof request,
               "%s %s%llu HTTP/1.1\r\nHost: %s\r\n%sContent-Length: %llu\r\n\r\n", load->method,
               load->path, (unsigned long long)n, t->to->text, load->head, (unsigned long long)len);
  if (head < 0 || (size_t)head >= sizeof request) return ERR_TOO_LARGE;
  if (t->conn.fd < 0) t->conn.fd = conn_open(t->to);
  int err = t->conn.fd < 0 ? t->conn.fd : 0;
  if (err == 0) err = conn_send(t->conn.fd, request, (size_t)head, t->shared->pattern, len, true);
  if (err == 0) err = conn_head(&t->conn, false);
  bool good = err == 0 && t->conn.status >= 200 && t->conn.status < 300;
  if (err == 0)
    err = conn_body(&t->conn, t->scratch, IO_BYTES, answer, good ? 0 : sizeof answer - 1, &got);
  if (err < 0)
    load_failed(t->shared, "%s %s%llu: %s", load->method, load->path, (unsigned long long)n,
                err_words(err));
  else if (!good)
    load_failed(t->shared, "%s %.60s: status %d", load->method, load->path, t->conn.status);
  else if (get && got != load->size)
    load_failed(t->shared, "GET %.60s: %llu bytes instead of %llu", load->path,
                (unsigned long long)got, (unsigned long long)load->size);
  bool bad = err < 0 || !good || (get && got != load->size);
  if (t->conn.fd >= 0 && (bad || t->conn.close_after)) {
    close(t->conn.fd);
    t->conn.fd = -1;
  }
  return bad ? ERR_INVALID : 0;
}

static void *load_main(void *arg) {
  struct load_thread *t = arg;
  struct load_shared *s = t->shared;
  t->conn.fd = -1;
  while (!bench_stop && bench_now_ns() < s->end_ns &&
         __atomic_load_n(&s->errors, __ATOMIC_RELAXED) < LOAD_ERRORS_MAX) {
    uint64_t n = __atomic_fetch_add(&s->next, 1, __ATOMIC_RELAXED);
    if (n >= s->load->objects * s->load->passes) break;
    uint64_t begin = bench_now_ns();
    if (load_request(t, n % s->load->objects) < 0) continue;
    uint64_t done = __atomic_fetch_add(&s->requests, 1, __ATOMIC_RELAXED);
    if (done < LATENCIES_MAX)
      s->latency_us[done] = (uint32_t)MIN((bench_now_ns() - begin) / 1000, UINT32_MAX);
  }
  if (t->conn.fd >= 0) close(t->conn.fd);
  return NULL;
}

static int compare_latency(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

static uint8_t *load_pattern(void) {
  uint8_t *p = malloc(IO_BYTES);
  uint64_t x = UINT64_C(0x9e3779b97f4a7c15);
  for (size_t i = 0; p && i < IO_BYTES; i += 8) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    memcpy(p + i, &x, 8);
  }
  return p;
}

static void load_finish(struct load_shared *s, uint64_t ns, struct bench_load_result *ret) {
  struct bench_load_result r = {.seconds = (double)MAX(ns, 1u) / 1e9,
                                .requests = s->requests,
                                .bytes = s->requests * s->load->size,
                                .errors = s->errors};
  size_t n = (size_t)MIN(s->requests, LATENCIES_MAX);
  qsort(s->latency_us, n, sizeof *s->latency_us, compare_latency);
  if (n > 0) {
    r.p50_ms = s->latency_us[n / 2] / 1e3;
    r.p99_ms = s->latency_us[n * 99 / 100] / 1e3;
  }
  memcpy(r.error, s->error, sizeof r.error);
  *ret = r;
}

int bench_load_run(const struct bench_load *load, struct bench_load_result *ret_result) {
  unsigned count = (unsigned)MIN(load->connections, load->objects), started = 0;
  struct load_shared s = {.load = load};
  struct load_thread *threads = calloc(count, sizeof *threads);
  uint8_t *pattern = load_pattern();
  int err = 0;
  s.pattern = pattern;
  s.latency_us = calloc(MIN(load->objects * load->passes, LATENCIES_MAX), sizeof *s.latency_us);
  pthread_mutex_init(&s.lock, NULL);
  uint64_t begin = bench_now_ns();
  s.end_ns = begin + (uint64_t)(load->seconds * 1e9);
  if (!threads || !pattern || !s.latency_us) err = -ENOMEM;
  for (unsigned i = 0; i < count && err == 0; i++) {
    threads[i].shared = &s;
    threads[i].to = &load->addresses[i % load->address_count];
    threads[i].scratch = malloc(IO_BYTES);
    err = threads[i].scratch ? -pthread_create(&threads[i].thread, NULL, load_main, &threads[i])
                             : -ENOMEM;
    if (err == 0) started++;
  }
  if (err < 0) __atomic_store_n(&s.next, load->objects * load->passes, __ATOMIC_RELAXED);
  for (unsigned i = 0; i < started; i++) pthread_join(threads[i].thread, NULL);
  uint64_t ns = bench_now_ns() - begin;
  for (unsigned i = 0; threads && i < count; i++) free(threads[i].scratch);
  if (err == 0) load_finish(&s, ns, ret_result);
  pthread_mutex_destroy(&s.lock);
  free(s.latency_us);
  free(pattern);
  free(threads);
  return err;
}
