/* http_life_main_test.c: what ends a connection: clients that die, wait or dawdle, limits, drain
 * and abort. Nothing here asserts that something happens fast, only that it happens. */
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "config/err.h"
#include "http_bed.h"

#define GET_HANG "GET /hang HTTP/1.1\r\nHost: h\r\n\r\n"

static void client_kill(struct client *c) {
  struct linger hard = {1, 0};
  setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
  client_close(c);
}

static void expect_text(struct client *c, int status, const char *body) {
  struct reply r;
  CHECK(client_reply(c, false, &r));
  CHECK(r.status == status && r.len == strlen(body) && memcmp(r.body, body, r.len) == 0);
  reply_free(&r);
}

/* A half close behind a whole request is no reason not to answer it; nor are requests behind it. */
static void half_close(void) {
  struct bed bed;
  struct client c;
  bed_start(&bed, bed_limits());
  client_open(&c, &bed);
  client_say(&c, GET_HANG "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
  CHECK(shutdown(c.fd, SHUT_WR) == 0);
  bed_wait(&bed.hung, 1, "the request");
  bed_want(&bed, BED_RELEASE);
  expect_text(&c, 200, "released");
  expect_text(&c, 200, "hello");
  CHECK(client_end(&c) == 0);
  CHECK(atomic_load(&bed.gone) == 0);
  client_close(&c);
  bed_stop(&bed);
}

static void death_while_the_handler_works(void) {
  struct bed bed;
  struct client c;
  bed_start(&bed, bed_limits());
  client_open(&c, &bed);
  client_say(&c, GET_HANG);
  bed_wait(&bed.hung, 1, "the request");
  client_kill(&c);
  bed_wait(&bed.gone, 1, "gone");
  bed_stop(&bed);
}

static void death_in_the_body(void) {
  static const char *const heads[] = {
      "PUT /sum HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nabc",
      "PUT /sum HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000\r\n\r\nabc",
      "PUT /sum HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
      "PUT /sum HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
      "PUT /sum HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
  };
  for (size_t i = 0; i < ARRAY_LEN(heads) * 2; i++) {
    struct bed bed;
    struct client c;
    bed_start(&bed, bed_limits());
    client_open(&c, &bed);
    client_say(&c, heads[i / 2]);
    bed_wait(&bed.handled, 1, "the request");
    if (i % 2)
      client_kill(&c);
    else
      client_close(&c);
    for (int k = 0; k < 2000 && atomic_load(&bed.body_err) == 0; k++) usleep(10000);
    CHECK(atomic_load(&bed.body_err) == ERR_CLIENT_GONE);
    bed_stop(&bed);
  }
}

static void death_in_the_answer(void) {
  static const char *const heads[] = {"GET /big?n=500000000 HTTP/1.1\r\nHost: h\r\n\r\n",
                                      "GET /stream?n=500000000 HTTP/1.1\r\nHost: h\r\n\r\n"};
  for (int i = 0; i < 2; i++) {
    struct bed bed;
    struct client c;
    char some[1000];
    bed_start(&bed, bed_limits());
    client_open(&c, &bed);
    client_say(&c, heads[i]);
    CHECK(recv(c.fd, some, sizeof some, 0) > 0);
    client_kill(&c);
    for (int k = 0; k < 2000 && atomic_load(&bed.sink_err) == 0; k++) usleep(10000);
    CHECK(atomic_load(&bed.sink_err) == ERR_CLIENT_GONE);
    bed_stop(&bed);
  }
}

static void header_and_idle_timeouts(void) {
  struct http_limits limits = bed_limits();
  limits.header_timeout_ms = 200;
  struct bed bed;
  struct client c;
  struct reply r;
  bed_start(&bed, limits);
  client_open(&c, &bed);
  client_say(&c, "GET /hello HTTP/1.1\r\nHost:");
  CHECK(client_reply(&c, false, &r));
  CHECK(r.status == 408 && reply_has(&r, "Connection: close"));
  reply_free(&r);
  CHECK(client_end(&c) == 0);
  client_close(&c);
  CHECK(bed_stats(&bed).timeouts == 1);
  bed_stop(&bed);

  limits = bed_limits();
  limits.idle_timeout_ms = 1500;
  bed_start(&bed, limits);
  client_open(&c, &bed);
  CHECK(client_end(&c) == 0); /* silently */
  client_close(&c);
  client_open(&c, &bed);
  client_say(&c, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
  expect_text(&c, 200, "hello");
  CHECK(client_end(&c) == 0);
  client_close(&c);
  bed_stop(&bed);
}

static void body_timeout(void) {
  struct http_limits limits = bed_limits();
  limits.body_timeout_ms = 300;
  struct bed bed;
  struct client c;
  struct reply r;
  bed_start(&bed, limits);
  /* A body that stands still. */
  client_open(&c, &bed);
  client_say(&c, "PUT /sum HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nabc");
  CHECK(client_reply(&c, false, &r));
  CHECK(r.status == 408 && reply_has(&r, "Connection: close"));
  CHECK(atomic_load(&bed.body_err) == ERR_TIMEOUT);
  reply_free(&r);
  CHECK(client_end(&c) == 0);
  client_close(&c);
  /* One that the server does not ask for cannot be late. */
  client_open(&c, &bed);
  client_say(&c, "PUT /hang HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n");
  bed_wait(&bed.hung, 1, "the request");
  usleep(900000);
  bed_want(&bed, BED_RELEASE);
  client_say(&c, "abc");
  expect_text(&c, 200, "released");
  client_close(&c);
  bed_stop(&bed);
}

static uint64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

#define DAWDLE_LIMIT_MS 2000

/* Reads slowly for three times the limit. False: this thread was not run for so long that the
 * server may have been right to give up. */
static bool dawdle(struct client *c) {
  static uint8_t piece[100000];
  uint64_t start = now_ms(), last = start;
  while (last - start < 3 * DAWDLE_LIMIT_MS) {
    ssize_t n = recv(c->fd, piece, sizeof piece, 0);
    uint64_t now = now_ms();
    if (now - last > DAWDLE_LIMIT_MS / 2) return false;
    CHECK(n > 0);
    last = now;
    usleep(50000);
  }
  return true;
}

/* A client that reads nothing is cut off; one that reads slowly is not. */
static void slow_readers(void) {
  struct http_limits limits = bed_limits();
  limits.body_timeout_ms = DAWDLE_LIMIT_MS;
  struct bed bed;
  struct client c;
  bed_start(&bed, limits);
  client_open(&c, &bed);
  client_say(&c, "GET /big?n=100000000 HTTP/1.1\r\nHost: h\r\n\r\n");
  for (int k = 0; k < 2000 && atomic_load(&bed.sink_err) == 0; k++) usleep(10000);
  CHECK(atomic_load(&bed.sink_err) == ERR_TIMEOUT);
  client_close(&c);

  bool whole = false;
  for (int attempt = 0; attempt < 5 && !whole; attempt++) {
    atomic_store(&bed.sink_err, 0);
    client_open(&c, &bed);
    int small = 65536;
    setsockopt(c.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    client_say(&c, "GET /big?n=100000000 HTTP/1.1\r\nHost: h\r\n\r\n");
    whole = dawdle(&c);
    if (whole) CHECK(atomic_load(&bed.sink_err) == 0);
    client_kill(&c);
  }
  CHECK(whole);
  bed_stop(&bed);
}

/* A cancelled read still reports, and its memory is not touched afterwards (ASan looks). */
static void cancelled_reads(void) {
  struct bed bed;
  struct client c;
  bed_start(&bed, bed_limits());
  client_open(&c, &bed);
  client_say(&c, "PUT /cancel HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nabc");
  bed_wait(&bed.hung, 1, "the request");
  bed_want(&bed, BED_RELEASE);
  client_say(&c, "def"); /* the rest is skipped, and the connection lives */
  expect_text(&c, 400, "ERR_CANCELLED");
  CHECK(atomic_load(&bed.body_err) == ERR_CANCELLED);
  atomic_store(&bed.body_err, 0);
  client_say(&c, "PUT /impatient HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nabc");
  expect_text(&c, 200, "enough");
  for (int k = 0; k < 2000 && atomic_load(&bed.body_err) == 0; k++) usleep(10000);
  CHECK(atomic_load(&bed.body_err) == ERR_CANCELLED);
  client_say(&c, "defGET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
  expect_text(&c, 200, "hello");
  client_close(&c);
  bed_stop(&bed);
}

static void too_many_connections(void) {
  struct http_limits limits = bed_limits();
  limits.connections_max = 3;
  struct bed bed;
  struct client c[4];
  struct reply r;
  bed_start(&bed, limits);
  for (int i = 0; i < 3; i++) {
    client_open(&c[i], &bed);
    client_say(&c[i], "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    expect_text(&c[i], 200, "hello");
  }
  client_open(&c[3], &bed);
  client_say(&c[3], "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
  CHECK(client_reply(&c[3], false, &r));
  CHECK(r.status == 503 && reply_has(&r, "Retry-After: 1") && reply_has(&r, "Connection: close"));
  CHECK(memmem(r.body, r.len, "<Code>SlowDown</Code>", 21));
  reply_free(&r);
  CHECK(client_end(&c[3]) == 0);
  client_close(&c[3]);
  client_say(&c[0], "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n"); /* the others go on */
  expect_text(&c[0], 200, "hello");
  for (int i = 0; i < 3; i++) client_close(&c[i]);
  bed_stop(&bed);
}

static void drain(void) {
  struct bed bed;
  struct client idle, busy;
  struct reply r;
  bed_start(&bed, bed_limits());
  client_open(&idle, &bed);
  client_say(&idle, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
  expect_text(&idle, 200, "hello");
  client_open(&busy, &bed);
  client_say(&busy, GET_HANG GET_HANG);
  bed_wait(&bed.hung, 1, "the request");
  bed_want(&bed, BED_DRAIN);
  CHECK(client_end(&idle) == 0); /* at once */
  CHECK(!atomic_load(&bed.drained));
  bed_want(&bed, BED_RELEASE);
  CHECK(client_reply(&busy, false, &r));
  CHECK(r.status == 200 && reply_has(&r, "Connection: close"));
  reply_free(&r);
  CHECK(client_end(&busy) == 0); /* the second request is not taken any more */
  CHECK(atomic_load(&bed.hung) == 1);
  client_close(&idle);
  client_close(&busy);
  for (int k = 0; k < 2000 && !atomic_load(&bed.drained); k++) usleep(10000);
  CHECK(atomic_load(&bed.drained));
  bed_stop(&bed);
}

static void abort_all(void) {
  struct bed bed;
  struct client c[3];
  bed_start(&bed, bed_limits());
  for (int i = 0; i < 3; i++) client_open(&c[i], &bed);
  client_say(&c[0], GET_HANG);
  client_say(&c[1], "PUT /sum HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nabc");
  client_say(&c[2], "GET /big?n=100000000 HTTP/1.1\r\nHost: h\r\n\r\n");
  bed_wait(&bed.handled, 3, "the requests");
  bed_want(&bed, BED_DRAIN);
  bed_want(&bed, BED_ABORT);
  for (int k = 0; k < 2000 && !atomic_load(&bed.drained); k++) usleep(10000);
  CHECK(atomic_load(&bed.drained));
  CHECK(atomic_load(&bed.gone) == 1);
  CHECK(atomic_load(&bed.body_err) == ERR_CLIENT_GONE);
  CHECK(atomic_load(&bed.sink_err) == ERR_CLIENT_GONE);
  for (int i = 0; i < 3; i++) client_close(&c[i]);
  bed_stop(&bed);
}

/* Idle connections hold no buffers, and a server that has seen thousands frees them all. */
static void many_idle(void) {
  enum { COUNT = 400 };
  static struct client c[COUNT];
  struct bed bed;
  bed_start(&bed, bed_limits());
  for (int i = 0; i < COUNT; i++) {
    client_open(&c[i], &bed);
    client_say(&c[i], "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    expect_text(&c[i], 200, "hello");
  }
  CHECK(bed_stats(&bed).connections_open == COUNT);
  for (int i = 0; i < COUNT; i++) client_close(&c[i]);
  bed_stop(&bed);
}

static const struct {
  const char *name;
  void (*run)(void);
} tests[] = {
    {"half close", half_close},
    {"death while the handler works", death_while_the_handler_works},
    {"death in the body", death_in_the_body},
    {"death in the answer", death_in_the_answer},
    {"header and idle timeouts", header_and_idle_timeouts},
    {"body timeout", body_timeout},
    {"slow readers", slow_readers},
    {"cancelled reads", cancelled_reads},
    {"too many connections", too_many_connections},
    {"drain", drain},
    {"abort", abort_all},
    {"many idle connections", many_idle},
};

int main(void) {
  for (size_t i = 0; i < ARRAY_LEN(tests); i++) {
    printf("http life: %s\n", tests[i].name);
    fflush(stdout);
    tests[i].run();
  }
  printf("http life: %zu checks passed\n", ARRAY_LEN(tests));
  return 0;
}
