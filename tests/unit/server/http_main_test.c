/* http_main_test.c: requests and answers over real sockets. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "http_bed.h"

#define PUT_CHUNKED "PUT /echo?r=2 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"

static struct bed bed;

static void expect_text(struct client *c, int status, const char *body) {
  struct reply r;
  CHECK(client_reply(c, false, &r));
  CHECK(r.status == status);
  CHECK(r.len == strlen(body) && memcmp(r.body, body, r.len) == 0);
  reply_free(&r);
}

static void keep_alive(void) {
  struct client c;
  struct reply r;
  client_open(&c, &bed);
  for (int i = 0; i < 3; i++) {
    client_say(&c, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    CHECK(client_reply(&c, false, &r));
    CHECK(r.status == 200 && r.len == 5);
    CHECK(reply_has(&r, "Server: kofn") && reply_has(&r, "Content-Length: 5"));
    CHECK(strstr(r.head, "\r\nDate: ") && strstr(r.head, "\r\nx-amz-request-id: "));
    CHECK(!strstr(r.head, "\r\nConnection:"));
    reply_free(&r);
  }
  client_say(&c, "\r\n\r\nGET /hello HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  CHECK(client_reply(&c, false, &r));
  CHECK(r.status == 200 && reply_has(&r, "Connection: close"));
  reply_free(&r);
  CHECK(client_end(&c) == 0);
  client_close(&c);
}

static void http_1_0(void) {
  struct client c;
  struct reply r;
  client_open(&c, &bed);
  client_say(&c, "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  CHECK(client_reply(&c, false, &r));
  CHECK(r.status == 200 && reply_has(&r, "Connection: keep-alive"));
  reply_free(&r);
  client_say(&c, "GET /stream?n=100000 HTTP/1.0\r\n\r\n");
  CHECK(client_reply(&c, false, &r));
  CHECK(!strstr(r.head, "chunked") && r.len == 100000 && r.body[99999] == bed_byte(99999));
  reply_free(&r);
  client_close(&c);
}

static void what_the_handler_sees(void) {
  struct client c;
  struct reply r;
  client_open(&c, &bed);
  client_say(&c, "GET http://x/head?q HTTP/1.1\r\nHost: h\r\nA:  b \r\n\r\n");
  CHECK(client_reply(&c, false, &r));
  r.body = realloc(r.body, r.len + 1);
  CHECK(r.body);
  r.body[r.len] = 0;
  CHECK(strstr((char *)r.body, "GET\npath=/head\nquery=q\n"));
  CHECK(strstr((char *)r.body, "body=0 length=0 chunked=0 loopback=1 headers=2\n"));
  CHECK(strstr((char *)r.body, "a=[b]\n"));
  CHECK(reply_has(&r, "X-Evil: a  Injected: 1"));
  reply_free(&r);
  client_say(&c, "GET /head HTTP/1.1\r\nHost: h\r\n\r\n");
  CHECK(client_reply(&c, false, &r));
  CHECK(memmem(r.body, r.len, "headers=1\nhost=[h]\n", 19));
  reply_free(&r);
  client_close(&c);
}

static void head_and_bodyless_answers(void) {
  struct client c;
  struct reply r;
  client_open(&c, &bed);
  client_say(
      &c,
      "HEAD /hello HTTP/1.1\r\nHost: h\r\n\r\nHEAD /big?n=7777777 HTTP/1.1\r\nHost: h\r\n\r\n"
      "HEAD /stream?n=10 HTTP/1.1\r\nHost: h\r\n\r\nGET /status?n=204 HTTP/1.1\r\nHost: "
      "h\r\n\r\nGET /status?n=304 HTTP/1.1\r\nHost: h\r\n\r\nGET /hello HTTP/1.1\r\nHost: "
      "h\r\n\r\n");
  CHECK(client_reply(&c, true, &r) && reply_has(&r, "Content-Length: 5"));
  CHECK(client_reply(&c, true, &r) && reply_has(&r, "Content-Length: 7777777"));
  CHECK(client_reply(&c, true, &r) && r.status == 200 && !strstr(r.head, "Content-Length"));
  CHECK(client_reply(&c, false, &r) && r.status == 204 && !strstr(r.head, "Content-Length"));
  CHECK(client_reply(&c, false, &r) && r.status == 304 && !strstr(r.head, "Content-Length"));
  expect_text(&c, 200, "hello"); /* none of them sent a byte of a body */
  client_close(&c);
}

static void pipelining(void) {
  struct client c;
  client_open(&c, &bed);
  char text[8192];
  size_t n = 0;
  for (int i = 0; i < 50; i++) {
    static const char *const requests[] = {
        "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n",
        "PUT /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
        (PUT_CHUNKED "2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"),
        "PUT /refuse HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nskip",
    };
    n += (size_t)snprintf(text + n, sizeof text - n, "%s", requests[i % 4]);
  }
  client_send(&c, text, n);
  for (int i = 0; i < 50; i++) {
    static const char *const bodies[] = {"hello", "abc", "abc", "no"};
    expect_text(&c, i % 4 == 3 ? 403 : 200, bodies[i % 4]);
  }
  client_close(&c);
}

/* More pipelined requests than any buffer here holds: nothing may be lost. */
static void pipelining_beyond_every_buffer(void) {
  struct client c;
  client_open(&c, &bed);
  static const char one[] =
      "GET /hello HTTP/1.1\r\nHost: h\r\nX-Padding: aaaaaaaaaaaaaaaaaaaaa\r\n\r\n";
  for (int i = 0; i < 2000; i++) client_send(&c, one, sizeof one - 1);
  for (int i = 0; i < 2000; i++) expect_text(&c, 200, "hello");
  client_close(&c);
}

static void every_cut(void) {
  static const char text[] =
      "PUT /echo?r=7 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nT: x\r\n\r\n"
      "PUT /echo?r=4 HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nabcd";
  struct client c;
  client_open(&c, &bed);
  for (size_t cut = 1; cut < sizeof text - 1; cut++) {
    client_send(&c, text, cut);
    usleep(300); /* only makes it likely that the cut is seen; correct either way */
    client_send(&c, text + cut, sizeof text - 1 - cut);
    expect_text(&c, 200, "hello world");
    expect_text(&c, 200, "abcd");
  }
  for (size_t i = 0; i < sizeof text - 1; i++) {
    client_send(&c, text + i, 1);
    usleep(100);
  }
  expect_text(&c, 200, "hello world");
  expect_text(&c, 200, "abcd");
  client_close(&c);
}

static uint64_t fnv(const uint8_t *data, size_t len) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < len; i++) hash = (hash ^ data[i]) * 0x100000001b3u;
  return hash;
}

static void large_bodies(void) {
  enum { SIZE = 3000017 };
  uint8_t *data = malloc(SIZE);
  CHECK(data);
  for (size_t i = 0; i < SIZE; i++) data[i] = bed_byte(i);
  char want[64], head[256];
  snprintf(want, sizeof want, "%d %016llx", SIZE, (unsigned long long)fnv(data, SIZE));
  static const unsigned pulls[] = {1000, 65536, 262144, SIZE, SIZE + 1};
  static const unsigned cuts[] = {100, 20000, 131072, SIZE};
  struct client c;
  client_open(&c, &bed);
  for (size_t p = 0; p < ARRAY_LEN(pulls); p++) {
    int n =
        snprintf(head, sizeof head,
                 "PUT /sum?r=%u HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", pulls[p], SIZE);
    client_send(&c, head, (size_t)n);
    client_send(&c, data, SIZE);
    expect_text(&c, 200, want);
    for (size_t k = 0; k < ARRAY_LEN(cuts); k++) {
      n = snprintf(head, sizeof head,
                   "PUT /sum?r=%u HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
                   pulls[p]);
      client_send(&c, head, (size_t)n);
      for (size_t at = 0; at < SIZE; at += cuts[k]) {
        size_t len = MIN((size_t)cuts[k], SIZE - at);
        n = snprintf(head, sizeof head, "%zx\r\n", len);
        client_send(&c, head, (size_t)n);
        client_send(&c, data + at, len);
        client_send(&c, "\r\n", 2);
      }
      client_say(&c, "0\r\n\r\n");
      expect_text(&c, 200, want);
    }
  }
  client_close(&c);
  free(data);
}

static void expect_status(struct client *c, int status) {
  struct reply r;
  CHECK(client_reply(c, false, &r));
  CHECK(r.status == status);
  reply_free(&r);
}

static void continue_flows(void) {
  struct client c;
  client_open(&c, &bed);
  /* Asked for, given at the first read, body follows. */
  client_say(&c,
             "PUT /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\nContent-Length: 5\r\n\r\n");
  expect_status(&c, 100);
  client_say(&c, "hello");
  expect_text(&c, 200, "hello");
  /* Refused: the final answer comes instead, and says that the connection ends. */
  client_say(
      &c, "PUT /refuse HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
  struct reply r;
  CHECK(client_reply(&c, false, &r));
  CHECK(r.status == 403 && reply_has(&r, "Connection: close"));
  reply_free(&r);
  CHECK(client_end(&c) == 0);
  client_close(&c);
  /* The client did not wait. */
  client_open(&c, &bed);
  client_say(
      &c,
      "PUT /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello");
  expect_status(&c, 100);
  expect_text(&c, 200, "hello");
  /* An empty body has nothing to be continued: the answer comes at once. */
  client_say(&c,
             "PUT /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n");
  CHECK(client_reply(&c, false, &r));
  CHECK(r.status == 200 && r.len == 0 && !strstr(r.head, "Connection"));
  reply_free(&r);
  /* HTTP/1.0 knows no 100. */
  client_say(&c, "PUT /echo HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi");
  expect_text(&c, 200, "hi");
  client_close(&c);
}

static const struct {
  const char *text;
  int status;
} refused[] = {
    {"GET /\x80 HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", 400},
    {"GET / HTTP/1.1\nHost: h\n\n", 400},
    {"GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: h\r\nA : b\r\n\r\n", 400},
    {"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400},
    {"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: "
     "chunked\r\n\r\n0\r\n\r\n",
     400},
    {"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501},
    {"PUT / HTTP/1.1\r\nHost: h\r\nExpect: cake\r\nContent-Length: 3\r\n\r\n", 417},
    {"FROB / HTTP/1.1\r\nHost: h\r\n\r\n", 501},
    {"CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n", 405},
    {"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
    {"\x16\x03\x01\x02\x00\x01", 400},
    {"\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
};

static void refusals(void) {
  int handled = atomic_load(&bed.handled);
  uint64_t before = bed_stats(&bed).bad_requests;
  struct client c;
  struct reply r;
  for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
    client_open(&c, &bed);
    client_say(&c, refused[i].text);
    bed_check(client_reply(&c, false, &r), refused[i].text, (int)i, "an answer");
    bed_check(r.status == refused[i].status, refused[i].text, r.status, "the status");
    CHECK(reply_has(&r, "Connection: close") && reply_has(&r, "Content-Type: application/xml"));
    CHECK(memmem(r.body, r.len, "<Error><Code>", 13));
    CHECK(client_end(&c) == 0);
    reply_free(&r);
    client_close(&c);
  }
  static char big[HTTP_HEAD_BYTES_MAX * 2];
  memset(big, 'a', sizeof big);
  static const char *const starts[] = {"GET /", "GET / HTTP/1.1\r\nHost: h\r\nA: "};
  for (int i = 0; i < 2; i++) {
    client_open(&c, &bed);
    client_say(&c, starts[i]);
    client_send(&c, big, sizeof big);
    CHECK(client_reply(&c, false, &r));
    CHECK(r.status == (i ? 431 : 414) && reply_has(&r, "Connection: close"));
    CHECK(client_end(&c) == 0);
    reply_free(&r);
    client_close(&c);
  }
  /* No body behind the refusal of a HEAD: a proxy would take it for the next answer. */
  static const char *const heads[] = {"HEAD / HTTP/1.1\r\nHost: h\r\nA : b\r\n\r\n",
                                      "\r\nHEAD / HTTP/1.1\r\nHost: a b\r\n\r\n",
                                      "HEAD / HTTP/1.1\n"};
  for (size_t i = 0; i < ARRAY_LEN(heads); i++) {
    client_open(&c, &bed);
    client_say(&c, heads[i]);
    CHECK(client_reply(&c, true, &r));
    CHECK(r.status == 400 && reply_has(&r, "Connection: close"));
    CHECK(client_end(&c) == 0);
    reply_free(&r);
    client_close(&c);
  }
  CHECK(atomic_load(&bed.handled) == handled);
  CHECK(bed_stats(&bed).bad_requests == before + ARRAY_LEN(refused) + ARRAY_LEN(heads) + 2);
}

static void broken_chunks(void) {
  static const char *const bodies[] = {"x\r\n", "1\r\nab\r\n", "ffffffffffffffff\r\n", "1\na",
                                       "0\r\n bad\r\n\r\n"};
  for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
    struct client c;
    struct reply r;
    client_open(&c, &bed);
    client_say(&c, "PUT /sum HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    client_say(&c, bodies[i]);
    CHECK(client_reply(&c, false, &r));
    CHECK(r.status == 400 && memcmp(r.body, "ERR_BODY_INVALID", r.len) == 0);
    CHECK(reply_has(&r, "Connection: close") && client_end(&c) == 0);
    reply_free(&r);
    client_close(&c);
  }
}

static void unread_bodies(void) {
  static char data[HTTP_DRAIN_BYTES_MAX * 8];
  struct client c;
  struct reply r;
  client_open(&c, &bed);
  char head[128];
  /* Small enough to be skipped: the connection lives, whatever the framing. */
  snprintf(head, sizeof head, "PUT /refuse HTTP/1.1\r\nHost: h\r\nContent-Length: %u\r\n\r\n",
           HTTP_DRAIN_BYTES_MAX);
  client_say(&c, head);
  client_send(&c, data, HTTP_DRAIN_BYTES_MAX);
  expect_text(&c, 403, "no");
  client_say(
      &c,
      "PUT /refuse HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n87654321\r\n"
      "0\r\n\r\nGET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
  expect_text(&c, 403, "no");
  expect_text(&c, 200, "hello");
  /* Too large: the answer says so, arrives whole, and the connection ends without a reset. */
  snprintf(head, sizeof head, "PUT /refuse HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n",
           sizeof data);
  client_say(&c, head);
  client_send(&c, data, sizeof data);
  CHECK(client_reply(&c, false, &r));
  CHECK(r.status == 403 && reply_has(&r, "Connection: close"));
  reply_free(&r);
  CHECK(client_end(&c) == 0);
  client_close(&c);
  /* Chunks that are not there yet may be endless, or none: the answer says that it is the last. */
  static const char *const cut[] = {"8000\r\n", "8\r\n87654321\r\n0\r\n", "0\r\n\rX", ""};
  for (size_t i = 0; i < ARRAY_LEN(cut); i++) {
    client_open(&c, &bed);
    snprintf(head, sizeof head,
             "PUT /refuse HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n%s", cut[i]);
    client_say(&c, head);
    CHECK(client_reply(&c, false, &r));
    CHECK(r.status == 403 && reply_has(&r, "Connection: close"));
    reply_free(&r);
    client_send(&c, data, sizeof data);
    CHECK(client_end(&c) == 0);
    client_close(&c);
  }
}

static void large_answers(void) {
  static const char *const heads[] = {"GET /big?n=20000000 HTTP/1.1\r\nHost: h\r\n\r\n",
                                      "GET /stream?n=20000000 HTTP/1.1\r\nHost: h\r\n\r\n"};
  for (int i = 0; i < 2; i++) {
    struct client c;
    struct reply r;
    client_open(&c, &bed);
    client_say(&c, heads[i]);
    usleep(200000); /* the client is slow: the kernel's buffers fill */
    CHECK(client_reply(&c, false, &r));
    CHECK(r.len == 20000000);
    for (size_t k = 0; k < r.len; k++) CHECK(r.body[k] == bed_byte(k));
    reply_free(&r);
    client_say(&c, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    expect_text(&c, 200, "hello");
    client_close(&c);
  }
}

/* An answer that cannot be completed never looks complete. */
static void cut_answers(void) {
  static const char *const heads[] = {"GET /reset HTTP/1.1\r\nHost: h\r\n\r\n",
                                      "GET /short HTTP/1.1\r\nHost: h\r\n\r\n"};
  for (int i = 0; i < 2; i++) {
    struct client c;
    struct reply r;
    client_open(&c, &bed);
    client_say(&c, heads[i]);
    CHECK(!client_reply(&c, false, &r));
    CHECK(client_end(&c) != 0 || c.len < 200);
    reply_free(&r);
    client_close(&c);
  }
}

static const struct {
  const char *name;
  void (*run)(void);
} tests[] = {
    {"keep-alive", keep_alive},
    {"HTTP/1.0", http_1_0},
    {"what the handler sees", what_the_handler_sees},
    {"HEAD, 204, 304", head_and_bodyless_answers},
    {"50 pipelined requests in one write", pipelining},
    {"2000 pipelined requests", pipelining_beyond_every_buffer},
    {"every cut of two requests", every_cut},
    {"large bodies, all framings", large_bodies},
    {"Expect: 100-continue", continue_flows},
    {"refusals", refusals},
    {"broken chunks", broken_chunks},
    {"unread bodies", unread_bodies},
    {"large answers", large_answers},
    {"cut answers", cut_answers},
};

int main(void) {
  bed_start(&bed, bed_limits());
  for (size_t i = 0; i < ARRAY_LEN(tests); i++) {
    printf("http: %s\n", tests[i].name);
    fflush(stdout);
    tests[i].run();
  }
  struct http_stats s = bed_stats(&bed);
  CHECK(s.requests > 2000 && s.by_status[2] > 2000 && s.by_status[4] > 0 && s.resets == 2);
  CHECK(s.timeouts == 0 && s.bytes_in > 40000000 && s.bytes_out > 40000000);
  bed_stop(&bed);
  printf("http: %zu checks passed\n", ARRAY_LEN(tests));
  return 0;
}
