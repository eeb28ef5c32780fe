/* kofn-load.c: a bounded load over HTTP/1.1, and what it saw, as JSON on stdout.
 *
 *   main -> threads, each: its connections on one epoll -> send a request, read the answer, note
 * the time -> the next request ... until the bytes or the seconds are used up -> sum -> JSON
 *
 * One request at a time on each connection, which stays open. PUT sends a pattern, GET and DELETE
 * read and drop what comes. An answer that is not 2xx, a broken connection and a body of another
 * length than --size are errors: they are counted, and never part of a figure. With --rate each
 * connection moves at most so many bytes a second: a slow client. Several --url: hosts of a cluster
 * that take the connections in turn. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS_MAX 4096
#define ADDRESSES_MAX 16
#define THREADS_MAX 64
#define EVENTS_MAX 256
#define HEAD_BYTES_MAX 4096
#define IO_BYTES (256u << 10) /* of one read or write; the buffers are shared and stay cached */
#define SIZE_BYTES_MAX (UINT64_C(1) << 32)
#define LOAD_BYTES_MAX (UINT64_C(8) << 30)
#define LOAD_SECONDS_MAX 120.0
#define ERRORS_MAX 64 /* then the run ends */
#define DRAIN_SECONDS \
  30u              /* for answers that are under way when the time is over; then unfinished */
#define TICK_MS 10 /* of --rate */
#define RATE_SOCKET_BYTES (64 << 10)

/* Latencies in microseconds: 32 steps for each power of two, an error of 3 %. */
#define HIST_SUB_BITS 5
#define HIST_SUB (1u << HIST_SUB_BITS)
#define HIST_BUCKETS (40 * HIST_SUB)

struct histogram {
  uint64_t counts[HIST_BUCKETS];
  uint64_t total, max_us;
  double sum_us;
};

struct options {
  struct sockaddr_in addresses[ADDRESSES_MAX]; /* connections take them in turn */
  unsigned address_count;
  char path[512]; /* "/bucket/prefix" */
  char auth[512]; /* a whole header line, or empty */
  const char *method;
  bool is_put;
  uint64_t size, bytes_max, keys, rate;
  double seconds;
  unsigned connections, threads;
  bool each_key_once;
};

enum conn_state { CONN_SENDING, CONN_HEAD, CONN_BODY };

struct conn {
  struct load_thread *thread;
  const struct sockaddr_in *address;
  int fd;
  enum conn_state state;
  uint32_t events;
  bool busy;
  char head[HEAD_BYTES_MAX]; /* the request's; then the answer's */
  size_t head_len, head_sent, answer_len;
  uint64_t body_left;
  uint64_t started_us, first_us;
  uint64_t allowance; /* bytes it may move now; UINT64_MAX without --rate */
  int status;
  bool close_after;
};

struct load_thread {
  pthread_t thread;
  const struct options *opt;
  struct conn *conns;
  unsigned conn_count, busy;
  int epoll;
  uint8_t *buffer;
  const uint8_t *pattern;
  struct histogram hist;
  uint64_t requests, bytes, errors, reconnects, unfinished;
  char error[160];
};

static uint64_t begin_us, end_us;
static _Atomic uint64_t next_key, bytes_taken, errors_seen, last_done_us;

static uint64_t now_us(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static void die(const char *what, const char *why) {
  fprintf(stderr, "kofn-load: %s: %s\n", what, why);
  exit(2);
}

/* ---- latencies ---- */

static unsigned hist_index(uint64_t us) {
  if (us < HIST_SUB) return (unsigned)us;
  unsigned top = 63u - (unsigned)__builtin_clzll(us);
  unsigned at =
      (top - HIST_SUB_BITS + 1) * HIST_SUB + (unsigned)(us >> (top - HIST_SUB_BITS)) % HIST_SUB;
  return at < HIST_BUCKETS ? at : HIST_BUCKETS - 1;
}

/* The middle of a bucket. */
static double hist_value(unsigned at) {
  if (at < HIST_SUB) return at;
  unsigned shift = at / HIST_SUB - 1;
  return ((double)(HIST_SUB + at % HIST_SUB) + 0.5) * (double)(UINT64_C(1) << shift);
}

static void hist_add(struct histogram *h, uint64_t us) {
  h->counts[hist_index(us)]++;
  h->total++;
  h->sum_us += (double)us;
  if (us > h->max_us) h->max_us = us;
}

static void hist_merge(struct histogram *to, const struct histogram *from) {
  for (unsigned i = 0; i < HIST_BUCKETS; i++) to->counts[i] += from->counts[i];
  to->total += from->total;
  to->sum_us += from->sum_us;
  if (from->max_us > to->max_us) to->max_us = from->max_us;
}

static double hist_quantile(const struct histogram *h, double q) {
  uint64_t want = (uint64_t)(q * (double)h->total), seen = 0;
  for (unsigned i = 0; i < HIST_BUCKETS; i++) {
    seen += h->counts[i];
    if (seen > want) return hist_value(i);
  }
  return (double)h->max_us;
}

/* ---- one connection ---- */

static void conn_watch(struct conn *c, uint32_t events) {
  if (c->events == events) return;
  struct epoll_event ev = {.events = events, .data.ptr = c};
  if (epoll_ctl(c->thread->epoll, c->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, c->fd, &ev) != 0)
    die("epoll_ctl", strerror(errno));
  c->events = events;
}

static void conn_open(struct conn *c) {
  const struct options *opt = c->thread->opt;
  int one = 1, small = RATE_SOCKET_BYTES;
  c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (c->fd < 0) die("socket", strerror(errno));
  if (opt->rate) {
    setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    setsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  }
  if (connect(c->fd, (const struct sockaddr *)c->address, sizeof *c->address) != 0)
    die("connect", strerror(errno));
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  c->events = 0;
}

static void conn_close(struct conn *c) {
  if (c->fd >= 0) close(c->fd);
  c->fd = -1;
  c->events = 0;
}

/* False: the load is over. */
static bool take_key(const struct options *opt, uint64_t *ret_key) {
  if (errors_seen >= ERRORS_MAX || now_us() >= end_us) return false;
  if (!opt->each_key_once && bytes_taken >= opt->bytes_max) return false;
  uint64_t n = next_key++;
  if (opt->each_key_once && n >= opt->keys) return false;
  bytes_taken += opt->size;
  *ret_key = n % opt->keys;
  return true;
}

static void conn_next(struct conn *c) {
  const struct options *opt = c->thread->opt;
  uint64_t key;
  if (c->busy) c->thread->busy--;
  c->busy = false;
  if (!take_key(opt, &key)) {
    conn_close(c);
    return;
  }
  if (c->fd < 0) conn_open(c);
  char length[64] = "";
  if (opt->is_put) snprintf(length, sizeof length, "Content-Length: %" PRIu64 "\r\n", opt->size);
  int n = snprintf(c->head, sizeof c->head, "%s %s%" PRIu64 " HTTP/1.1\r\nHost: bench\r\n%s%s\r\n",
                   opt->method, opt->path, key, opt->auth, length);
  if (n < 0 || (size_t)n >= sizeof c->head) die("request", "too long");
  c->head_len = (size_t)n;
  c->head_sent = c->answer_len = 0;
  c->body_left = opt->is_put ? opt->size : 0;
  c->state = CONN_SENDING;
  c->started_us = now_us();
  c->busy = true;
  c->thread->busy++;
  conn_watch(c, EPOLLOUT);
}

static void conn_failed(struct conn *c, const char *why) {
  struct load_thread *t = c->thread;
  if (t->errors++ == 0) snprintf(t->error, sizeof t->error, "%s", why);
  errors_seen++;
  conn_close(c);
  conn_next(c);
}

static void conn_finished(struct conn *c) {
  struct load_thread *t = c->thread;
  uint64_t now = now_us();
  hist_add(&t->hist, now - c->started_us);
  t->requests++;
  t->bytes += strcmp(t->opt->method, "DELETE") == 0 ? 0 : t->opt->size;
  uint64_t last = last_done_us;
  while (last < now && !__atomic_compare_exchange_n(&last_done_us, &last, now, true,
                                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  if (c->close_after) {
    t->reconnects++;
    conn_close(c);
  }
  conn_next(c);
}

/* Head and first bytes of the body together: as every client that matters does. */
static void conn_send(struct conn *c) {
  struct load_thread *t = c->thread;
  while (c->head_sent < c->head_len || c->body_left > 0) {
    uint64_t offset = t->opt->size - c->body_left;
    size_t room = IO_BYTES - (size_t)(offset % IO_BYTES);
    size_t body = c->body_left < room ? (size_t)c->body_left : room;
    if (body > c->allowance) body = (size_t)c->allowance;
    size_t head = c->head_len - c->head_sent;
    if (head + body == 0) { /* --rate: until the next tick */
      conn_watch(c, EPOLLRDHUP);
      return;
    }
    struct iovec iov[2] = {{c->head + c->head_sent, head},
                           {(void *)(uintptr_t)(t->pattern + offset % IO_BYTES), body}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = body ? 2 : 1};
    ssize_t n = sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < 0) {
      conn_failed(c, strerror(errno));
      return;
    }
    size_t of_head = (size_t)n < head ? (size_t)n : head;
    c->head_sent += of_head;
    c->body_left -= (uint64_t)n - of_head;
    if (c->allowance != UINT64_MAX) c->allowance -= (uint64_t)n - of_head;
  }
  c->state = CONN_HEAD;
  conn_watch(c, EPOLLIN);
}

/* The length of the answer's head, 0 while it is incomplete, -1 for what is no answer. */
static int conn_parse(struct conn *c) {
  c->head[c->answer_len] = '\0';
  char *end = strstr(c->head, "\r\n\r\n");
  if (!end) return c->answer_len + 1 < sizeof c->head ? 0 : -1;
  if (strncmp(c->head, "HTTP/1.1 ", 9) != 0) return -1;
  c->status = (int)strtol(c->head + 9, NULL, 10);
  c->body_left = 0;
  c->close_after = false;
  end[2] = '\0';
  for (char *line = strstr(c->head, "\r\n"); line && line[2]; line = strstr(line + 2, "\r\n")) {
    if (strncasecmp(line + 2, "content-length:", 15) == 0)
      c->body_left = strtoull(line + 17, NULL, 10);
    if (strncasecmp(line + 2, "connection: close", 17) == 0) c->close_after = true;
    if (strncasecmp(line + 2, "transfer-encoding:", 18) == 0 && c->status != 204) return -1;
  }
  return (int)(end - c->head) + 4;
}

/* True: the answer is over, and it was as it should be; or the connection has failed. */
static bool conn_head(struct conn *c, size_t *ret_got) {
  const struct options *opt = c->thread->opt;
  int len = conn_parse(c);
  *ret_got = 0;
  if (len == 0) return false;
  if (len < 0) {
    conn_failed(c, "no HTTP answer that can be read");
    return true;
  }
  if (c->status < 200 || c->status > 299) {
    char why[64];
    snprintf(why, sizeof why, "status %d", c->status);
    conn_failed(c, why);
    return true;
  }
  if (strcmp(opt->method, "GET") == 0 && c->body_left != opt->size) {
    conn_failed(c, "a body of another length");
    return true;
  }
  c->state = CONN_BODY;
  *ret_got = c->answer_len - (size_t)len;
  return false;
}

static void conn_receive(struct conn *c) {
  struct load_thread *t = c->thread;
  for (;;) {
    bool in_head = c->state == CONN_HEAD;
    uint8_t *at = in_head ? (uint8_t *)c->head + c->answer_len : t->buffer;
    size_t room = in_head ? sizeof c->head - 1 - c->answer_len : IO_BYTES;
    if (!in_head && room > c->body_left) room = (size_t)c->body_left;
    if (!in_head && room > c->allowance) room = (size_t)c->allowance;
    if (room == 0) { /* --rate */
      conn_watch(c, EPOLLRDHUP);
      return;
    }
    ssize_t n = recv(c->fd, at, room, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
      conn_failed(c, n < 0 ? strerror(errno) : "the connection was closed");
      return;
    }
    size_t got = (size_t)n;
    if (in_head) {
      c->answer_len += got;
      if (conn_head(c, &got)) return;
      if (c->state == CONN_HEAD) continue;
    }
    if (got > c->body_left) {
      conn_failed(c, "bytes behind the answer");
      return;
    }
    c->body_left -= got;
    if (c->allowance != UINT64_MAX) c->allowance -= got < c->allowance ? got : c->allowance;
    if (c->body_left == 0) {
      conn_finished(c);
      return;
    }
  }
}

static void conn_event(struct conn *c, uint32_t events) {
  if (c->fd < 0) return;
  if (c->state == CONN_SENDING && (events & EPOLLOUT))
    conn_send(c);
  else if (c->state != CONN_SENDING && (events & (EPOLLIN | EPOLLRDHUP)) && c->allowance > 0)
    conn_receive(c);
  else if (events & (EPOLLERR | EPOLLHUP))
    conn_failed(c, "the connection broke");
}

/* ---- threads ---- */

static void thread_tick(struct load_thread *t) {
  uint64_t more = t->opt->rate * TICK_MS / 1000;
  for (unsigned i = 0; i < t->conn_count; i++) {
    struct conn *c = &t->conns[i];
    c->allowance = more;
    if (c->fd < 0 || !c->busy) continue;
    conn_watch(c, c->state == CONN_SENDING ? EPOLLOUT : EPOLLIN);
  }
}

static void *thread_main(void *arg) {
  struct load_thread *t = arg;
  struct epoll_event events[EVENTS_MAX];
  uint64_t give_up = end_us + (uint64_t)DRAIN_SECONDS * 1000000, tick = now_us();
  for (unsigned i = 0; i < t->conn_count; i++) conn_next(&t->conns[i]);
  while (t->busy > 0 && now_us() < give_up) {
    int n = epoll_wait(t->epoll, events, EVENTS_MAX, t->opt->rate ? TICK_MS : 1000);
    if (n < 0 && errno != EINTR) die("epoll_wait", strerror(errno));
    for (int i = 0; i < n; i++) conn_event(events[i].data.ptr, events[i].events);
    if (t->opt->rate && now_us() - tick >= TICK_MS * 1000u) {
      tick += TICK_MS * 1000u;
      thread_tick(t);
      if (now_us() >= end_us) break; /* slow clients hang up in the middle */
    }
  }
  for (unsigned i = 0; i < t->conn_count; i++) {
    if (t->conns[i].busy) t->unfinished++;
    conn_close(&t->conns[i]);
  }
  return NULL;
}

static uint8_t *pattern_new(void) {
  uint8_t *p = malloc(IO_BYTES);
  if (!p) die("memory", strerror(ENOMEM));
  uint64_t x = UINT64_C(0x9e3779b97f4a7c15);
  for (size_t i = 0; i < IO_BYTES; i += 8) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    memcpy(p + i, &x, 8);
  }
  return p;
}

static void thread_start(struct load_thread *t, const struct options *opt, unsigned conns,
                         unsigned first, const uint8_t *pattern) {
  t->opt = opt;
  t->conn_count = conns;
  t->conns = calloc(conns ? conns : 1, sizeof *t->conns);
  t->buffer = malloc(IO_BYTES);
  t->pattern = pattern;
  t->epoll = epoll_create1(EPOLL_CLOEXEC);
  if (!t->conns || !t->buffer || t->epoll < 0) die("start", strerror(errno));
  memset(t->buffer, 0, IO_BYTES);
  for (unsigned i = 0; i < conns; i++) {
    t->conns[i].thread = t;
    t->conns[i].address = &opt->addresses[(first + i) % opt->address_count];
    t->conns[i].allowance = opt->rate ? opt->rate * TICK_MS / 1000 : UINT64_MAX;
    conn_open(&t->conns[i]);
  }
}

/* ---- options and the answer ---- */

static uint64_t parse_number(const char *name, const char *text, uint64_t min, uint64_t max) {
  char *end;
  errno = 0;
  unsigned long long v = strtoull(text, &end, 10);
  if (errno || end == text || *end || v < min || v > max) {
    fprintf(stderr, "kofn-load: --%s: `%s` is not a number from %" PRIu64 " to %" PRIu64 "\n", name,
            text, min, max);
    exit(2);
  }
  return v;
}

static void parse_url(struct options *opt, const char *url) {
  char host[64];
  unsigned port;
  int at = 0;
  if (sscanf(url, "http://%63[0-9.]:%u%n", host, &port, &at) != 2 || port > UINT16_MAX ||
      strlen(url + at) >= sizeof opt->path || url[at] != '/')
    die(url, "is not http://IPV4:PORT/PATH");
  if (opt->address_count == ADDRESSES_MAX) die(url, "is one address too many");
  snprintf(opt->path, sizeof opt->path, "%s", url + at);
  struct sockaddr_in *a = &opt->addresses[opt->address_count++];
  a->sin_family = AF_INET;
  a->sin_port = htons((uint16_t)port);
  if (inet_pton(AF_INET, host, &a->sin_addr) != 1) die(url, "no IPv4 address");
}

static void parse_basic(struct options *opt, const char *pair) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  size_t len = strlen(pair), out = 0;
  if (len > 256) die("--user", "too long");
  out += (size_t)snprintf(opt->auth, sizeof opt->auth, "Authorization: Basic ");
  for (size_t i = 0; i < len; i += 3) {
    uint32_t v = 0;
    for (size_t j = 0; j < 3; j++) v = v << 8 | (i + j < len ? (uint8_t)pair[i + j] : 0);
    for (size_t j = 0; j < 4; j++)
      opt->auth[out++] = i + j > len ? '=' : digits[v >> (18 - 6 * j) & 63];
  }
  snprintf(opt->auth + out, sizeof opt->auth - out, "\r\n");
}

static void parse(struct options *opt, int argc, char **argv) {
  static const struct option longs[] = {
      {"url", 1, NULL, 'u'},     {"method", 1, NULL, 'm'},      {"size", 1, NULL, 's'},
      {"bytes", 1, NULL, 'b'},   {"connections", 1, NULL, 'c'}, {"threads", 1, NULL, 't'},
      {"seconds", 1, NULL, 'S'}, {"keys", 1, NULL, 'k'},        {"user", 1, NULL, 'U'},
      {"rate", 1, NULL, 'r'},    {"once", 0, NULL, 'o'},        {NULL, 0, NULL, 0}};
  *opt = (struct options){.method = "GET",
                          .size = 4096,
                          .bytes_max = LOAD_BYTES_MAX,
                          .keys = 1,
                          .seconds = 5,
                          .connections = 1,
                          .threads = 1};
  for (int o; (o = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
    if (o == 'u') parse_url(opt, optarg);
    if (o == 'm') opt->method = optarg;
    if (o == 's') opt->size = parse_number("size", optarg, 1, SIZE_BYTES_MAX);
    if (o == 'b') opt->bytes_max = parse_number("bytes", optarg, 1, LOAD_BYTES_MAX);
    if (o == 'c')
      opt->connections = (unsigned)parse_number("connections", optarg, 1, CONNECTIONS_MAX);
    if (o == 't') opt->threads = (unsigned)parse_number("threads", optarg, 1, THREADS_MAX);
    if (o == 'S')
      opt->seconds = (double)parse_number("seconds", optarg, 1, (uint64_t)LOAD_SECONDS_MAX);
    if (o == 'k') opt->keys = parse_number("keys", optarg, 1, UINT32_MAX);
    if (o == 'r') opt->rate = parse_number("rate", optarg, 1000, UINT32_MAX);
    if (o == 'U') parse_basic(opt, optarg);
    if (o == 'o') opt->each_key_once = true;
    if (o == '?') exit(2);
  }
  opt->is_put = strcmp(opt->method, "PUT") == 0;
  if (!opt->path[0]) die("--url", "is needed");
  if (optind != argc) die(argv[optind], "what is this?");
  if (!opt->is_put && strcmp(opt->method, "GET") != 0 && strcmp(opt->method, "DELETE") != 0)
    die(opt->method, "is none of GET, PUT, DELETE");
  if (opt->threads > opt->connections) opt->threads = opt->connections;
}

static double cpu_seconds(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
         (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

int main(int argc, char **argv) {
  static struct load_thread threads[THREADS_MAX];
  static struct histogram all;
  struct options opt;
  parse(&opt, argc, argv);
  signal(SIGPIPE, SIG_IGN);
  const uint8_t *pattern = pattern_new();
  for (unsigned i = 0, first = 0; i < opt.threads; i++) {
    unsigned conns = opt.connections / opt.threads + (i < opt.connections % opt.threads);
    thread_start(&threads[i], &opt, conns, first, pattern);
    first += conns;
  }
  begin_us = now_us();
  end_us = begin_us + (uint64_t)(opt.seconds * 1e6);
  for (unsigned i = 0; i < opt.threads; i++)
    if (pthread_create(&threads[i].thread, NULL, thread_main, &threads[i]) != 0)
      die("pthread_create", strerror(errno));
  uint64_t requests = 0, bytes = 0, errors = 0, reconnects = 0, unfinished = 0;
  const char *error = "";
  for (unsigned i = 0; i < opt.threads; i++) {
    pthread_join(threads[i].thread, NULL);
    hist_merge(&all, &threads[i].hist);
    requests += threads[i].requests;
    bytes += threads[i].bytes;
    errors += threads[i].errors;
    reconnects += threads[i].reconnects;
    unfinished += threads[i].unfinished;
    if (threads[i].error[0]) error = threads[i].error;
  }
  uint64_t last = last_done_us > begin_us ? last_done_us : now_us();
  double seconds = (double)(last - begin_us) / 1e6;
  printf("{\"requests\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"seconds\": %.6f, ", requests, bytes,
         seconds);
  printf("\"errors\": %" PRIu64 ", \"reconnects\": %" PRIu64 ", \"unfinished\": %" PRIu64
         ", \"error\": \"%s\", ",
         errors, reconnects, unfinished, error);
  printf(
      "\"p50_ms\": %.4f, \"p90_ms\": %.4f, \"p99_ms\": %.4f, \"max_ms\": %.4f, \"mean_ms\": %.4f, "
      "\"client_cpu_s\": %.3f}\n",
      hist_quantile(&all, 0.50) / 1e3, hist_quantile(&all, 0.90) / 1e3,
      hist_quantile(&all, 0.99) / 1e3, (double)all.max_us / 1e3,
      all.total ? all.sum_us / (double)all.total / 1e3 : 0.0, cpu_seconds());
  return errors > 0 ? 1 : 0;
}
