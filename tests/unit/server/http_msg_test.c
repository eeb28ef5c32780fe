/* http_msg_test.c: heads that are taken, with what the handler sees, and heads that are refused,
 * each in one piece and byte by byte. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/http_conn.h"

struct parsed {
  struct http_exchange *ex;
  struct http_refusal why;
  int err; /* -1: refused, 0: more bytes are wanted, else the head's length */
};

static struct parsed parse(struct slice text, bool byte_by_byte) {
  struct parsed p = {.ex = calloc(1, sizeof *p.ex)};
  struct http_scan scan = {0};
  cr_assert(p.ex);
  for (size_t n = byte_by_byte ? 1 : text.len; n <= text.len && p.err == 0; n++)
    p.err = http_head_find(&scan, slice_of(text.data, n), &p.why);
  if (p.err > 0 && http_head_parse(p.ex, slice_of(text.data, (size_t)p.err), &p.why) < 0)
    p.err = -1;
  return p;
}

static void parsed_free(struct parsed *p) {
  free(p->ex->head);
  free(p->ex);
}

static const struct {
  const char *text;
  int status;
} refused[] = {
    {"GET /\x80 HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET /\xc3\xa4?x HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET /?\xff HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET /a\tb HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET /a\x7f HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET /a\x01 HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET  / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET / HTTP/1.1 \r\nHost: h\r\n\r\n", 400},
    {"GET /\r\n\r\n", 400},
    {"GET\r\n\r\n", 400},
    {"GET / HTTP/1.1x\r\nHost: h\r\n\r\n", 400},
    {"GET / http/1.1\r\nHost: h\r\n\r\n", 400},
    {" GET / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"\x16\x03\x01\x02", 400},
    {"GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505},
    {"GET / HTTP/1.2\r\nHost: h\r\n\r\n", 505},
    {"GET / HTTP/0.9\r\nHost: h\r\n\r\n", 505},
    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
    {"FROB / HTTP/1.1\r\nHost: h\r\n\r\n", 501},
    {"get / HTTP/1.1\r\nHost: h\r\n\r\n", 501},
    {"CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n", 405},
    {"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET x HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET ?x HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET ftp://h/ HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: u@h\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: h:x\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: h:1:2\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: h:-1\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: ::1\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: []\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: [::1]h\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: h]\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: h%2\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: h%zz\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: \xc3\xa4\r\n\r\n", 400},
    {"GET http:///a HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET http://:80/a HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET http://u@h/a HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET http://h:x/a HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET http://[::1/a HTTP/1.1\r\nHost: h\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n folded\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n\tfolded\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\n Host: h\r\n\r\n", 400},
    {"GET / HTTP/1.1\nHost: h\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: h\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: h\r\n\n", 400},
    {"GET / HTTP/1.1\r\nHost: h\r\nA: b\rC: d\r\n\r\n", 400},
    {"GET / HTTP/1.1\rHost: h\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\r\nHost: h\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: h\r\nA : b\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: h\r\nA b: c\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: h\r\n: b\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: h\r\nA\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: h\r\n\xc3\xa4: b\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: h\r\nA(b): c\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: h\r\nA: \x01\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: h\r\nA: \x7f\r\n\r\n", 400},
    {"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400},
    {"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
    {"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1, 1\r\n\r\n", 400},
    {"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n", 400},
    {"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\n", 400},
    {"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 0x1\r\n\r\n", 400},
    {"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1 1\r\n\r\n", 400},
    {"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\n", 400},
    {"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 9223372036854775808\r\n\r\n", 400},
    {"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551617\r\n\r\n", 400},
    {"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
    {"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", 400},
    {"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: "
     "chunked\r\n\r\n",
     400},
    {"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501},
    {"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity\r\n\r\n", 0 /* 400 or 501 */},
    {"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, gzip\r\n\r\n", 0},
    {"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n", 0},
    {"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked;q=1\r\n\r\n", 0},
    {"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\r\n\r\n", 0},
    {"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\t\r\n\r\n", 400},
    {"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked \t \r\nA: b\r\n\r\n", 400},
    {"PUT / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
    {"PUT / HTTP/1.1\r\nHost: h\r\nExpect: 200-ok\r\nContent-Length: 1\r\n\r\n", 417},
    {"PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue, x\r\nContent-Length: 1\r\n\r\n", 417},
};

static void check_refused(struct slice text, int status, const char *what) {
  for (int slow = 0; slow < 2; slow++) {
    struct parsed p = parse(text, slow);
    cr_assert_eq(p.err, -1, "taken: %s", what);
    if (status)
      cr_assert_eq(p.why.status, status, "%d, not %d: %s", p.why.status, status, what);
    else
      cr_assert(p.why.status == 400 || p.why.status == 501, "%d: %s", p.why.status, what);
    cr_assert(p.why.code && p.why.message);
    parsed_free(&p);
  }
}

Test(http_msg, malformed_heads_are_refused) {
  for (size_t i = 0; i < ARRAY_LEN(refused); i++)
    check_refused(slice_str(refused[i].text), refused[i].status, refused[i].text);
}

Test(http_msg, every_byte_that_a_target_must_not_hold) {
  for (unsigned c = 0; c < 256; c++) {
    char text[64];
    size_t n = (size_t)snprintf(text, sizeof text, "GET /X HTTP/1.1\r\nHost: h\r\n\r\n");
    text[5] = (char)c;
    bool good = c > 0x20 && c < 0x7f && c != '#';
    if (good) {
      struct parsed p = parse(slice_of(text, n), false);
      cr_assert_gt(p.err, 0, "0x%02x is refused", c);
      parsed_free(&p);
    } else {
      check_refused(slice_of(text, n), 400, text);
    }
  }
}

Test(http_msg, every_byte_of_a_name_and_of_a_value) {
  const char *token = "!#$%&'*+-.^_`|~";
  for (unsigned c = 0; c < 256; c++) {
    char name[64], value[64];
    size_t n = (size_t)snprintf(name, sizeof name, "GET / HTTP/1.1\r\nHost: h\r\nAXA: b\r\n\r\n");
    snprintf(value, sizeof value, "GET / HTTP/1.1\r\nHost: h\r\nA: bXb\r\n\r\n");
    name[26] = (char)c;
    value[29] = (char)c;
    bool alnum = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
    bool good_name = c < 128 && (alnum || (c && strchr(token, (int)c)) || c == ':');
    bool good_value = c == '\t' || (c >= 0x20 && c != 0x7f);
    struct parsed p = parse(slice_of(name, n), false);
    cr_assert_eq(p.err > 0, good_name, "name 0x%02x", c);
    parsed_free(&p);
    p = parse(slice_of(value, n), false);
    cr_assert_eq(p.err > 0, good_value, "value 0x%02x", c);
    parsed_free(&p);
  }
}

static size_t append(char *to, const char *text) {
  memcpy(to, text, strlen(text));
  return strlen(text);
}

/* "GET /aaa... HTTP/1.1" with `target` bytes, then headers until the head has `total` bytes. */
static struct slice build(char *text, size_t target, unsigned headers, size_t total) {
  size_t n = 0;
  memcpy(text, "GET /", 5);
  memset(text + 5, 'a', target - 1);
  n = 4 + target;
  n += append(text + n, " HTTP/1.1\r\nHost: h\r\n");
  for (unsigned i = 1; i < headers; i++) n += append(text + n, "A: b\r\n");
  if (total) {
    memcpy(text + n, "L: ", 3);
    memset(text + n + 3, 'x', total - n - 7);
    memcpy(text + total - 4, "\r\n", 2);
    n = total - 2;
  }
  memcpy(text + n, "\r\n", 2);
  return slice_of(text, n + 2);
}

Test(http_msg, limits_hold_at_their_edges) {
  static char text[HTTP_HEAD_BYTES_MAX * 2];
  struct parsed p = parse(build(text, HTTP_TARGET_BYTES_MAX, 1, 0), false);
  cr_assert_gt(p.err, 0);
  cr_assert_eq(p.ex->req.target.len, HTTP_TARGET_BYTES_MAX);
  parsed_free(&p);
  check_refused(build(text, HTTP_TARGET_BYTES_MAX + 1, 1, 0), 414, "target");
  p = parse(build(text, 1, HTTP_HEADERS_MAX, 0), false);
  cr_assert_gt(p.err, 0);
  cr_assert_eq(p.ex->req.header_count, HTTP_HEADERS_MAX);
  parsed_free(&p);
  check_refused(build(text, 1, HTTP_HEADERS_MAX + 1, 0), 431, "headers");
  p = parse(build(text, 1, 1, HTTP_HEAD_BYTES_MAX), false);
  cr_assert_eq(p.err, HTTP_HEAD_BYTES_MAX);
  parsed_free(&p);
  check_refused(build(text, 1, 1, HTTP_HEAD_BYTES_MAX + 1), 431, "bytes");
  /* Without any line end the limits hold as well. */
  memset(text, 'a', sizeof text);
  check_refused(slice_of(text, 16384), 414, "no line end");
}

Test(http_msg, what_the_handler_sees) {
  struct parsed p = parse(
      SLICE_LIT(
          "PUT /b/k%20y//?a=1&b=?2 HTTP/1.1\r\nHost: h:9000\r\nX-Amz-Meta-\xc3: never\r\n\r\n"),
      false);
  cr_assert_eq(p.err, -1);
  parsed_free(&p);
  p = parse(
      SLICE_LIT("PUT /b/k%20y//?a=1&b=?2 HTTP/1.1\r\nHost: h:9000\r\n"
                "X-Amz-Meta-A: \t caf\xc3\xa9  x \t\r\nX-Amz-Meta-A:\r\nContent-Length: 007\r\n"
                "EXPECT: 100-Continue\r\nConnection: x, Close\r\n\r\n"),
      true);
  cr_assert_gt(p.err, 0);
  const struct http_request *req = &p.ex->req;
  cr_assert_eq(req->method, HTTP_M_PUT);
  cr_assert(slice_eq(req->target, SLICE_LIT("/b/k%20y//?a=1&b=?2")));
  cr_assert(slice_eq(req->path, SLICE_LIT("/b/k%20y//")));
  cr_assert(slice_eq(req->query, SLICE_LIT("a=1&b=?2")));
  cr_assert_eq(req->header_count, 6);
  cr_assert(slice_eq(http_header_find(req, "x-amz-meta-a"), SLICE_LIT("caf\xc3\xa9  x")));
  cr_assert_eq(http_header_count(req, "x-amz-meta-a"), 2);
  cr_assert_eq(req->headers[2].value.len, 0);
  cr_assert(slice_eq(req->headers[2].name, SLICE_LIT("x-amz-meta-a")));
  cr_assert(http_header_find(req, "absent").data == NULL);
  cr_assert(req->has_body && req->has_length && req->expect_continue && !req->chunked);
  cr_assert_eq(req->body.length, 7);
  cr_assert(!p.ex->keep_alive);
  parsed_free(&p);
}

static const struct {
  const char *text, *path, *query;
  bool keep_alive;
} taken[] = {
    {"GET http://h:1/a/b?c HTTP/1.1\r\nHost: h\r\n\r\n", "/a/b", "c", true},
    {"GET HTTPS://h HTTP/1.1\r\nHost: h\r\n\r\n", "/", NULL, true},
    {"GET http://[::1]:9000/a HTTP/1.1\r\nHost: [::1]:9000\r\n\r\n", "/a", NULL, true},
    {"GET /a HTTP/1.1\r\nHost: a_b-c.d%2d~!$&'()*+,;=:\r\n\r\n", "/a", NULL, true},
    {"GET http://h?c HTTP/1.1\r\nHost: h\r\n\r\n", "/", "c", true},
    {"GET //a HTTP/1.1\r\nHost: h\r\n\r\n", "//a", NULL, true},
    {"GET /? HTTP/1.1\r\nHost:\r\n\r\n", "/", "", true},
    {"GET / HTTP/1.0\r\n\r\n", "/", NULL, false},
    {"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "/", NULL, true},
    {"GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, close\r\n\r\n", "/", NULL, false},
    {"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", "/", NULL, true},
    {"PATCH / HTTP/1.1\r\nHost: h\r\n\r\n", "/", NULL, true},
    {"PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n", "/", NULL,
     true},
    {"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n", "/", NULL, true},
};

Test(http_msg, heads_that_are_taken) {
  for (size_t i = 0; i < ARRAY_LEN(taken); i++)
    for (int slow = 0; slow < 2; slow++) {
      struct parsed p = parse(slice_str(taken[i].text), slow);
      const struct http_request *req = &p.ex->req;
      cr_assert_eq(p.err, (int)strlen(taken[i].text), "%s: %s", taken[i].text, p.why.message);
      cr_assert(slice_eq(req->path, slice_str(taken[i].path)), "%s", taken[i].text);
      cr_assert_eq(req->query.data == NULL, taken[i].query == NULL, "%s", taken[i].text);
      cr_assert(slice_eq(req->query, slice_str(taken[i].query)), "%s", taken[i].text);
      cr_assert_eq(p.ex->keep_alive, taken[i].keep_alive, "%s", taken[i].text);
      cr_assert(!req->expect_continue, "nothing to continue with: %s", taken[i].text);
      parsed_free(&p);
    }
}

Test(http_msg, no_prefix_of_a_head_is_a_head) {
  struct slice text = SLICE_LIT("GET /a HTTP/1.1\r\nHost: h\r\nA: b\r\n\r\n");
  for (size_t n = 1; n < text.len; n++) {
    struct parsed p = parse(slice_of(text.data, n), false);
    cr_assert_eq(p.err, 0, "%zu bytes", n);
    parsed_free(&p);
  }
}
