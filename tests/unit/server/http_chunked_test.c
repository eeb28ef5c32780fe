/* http_chunked_test.c: the chunked decoder in every cut, and everything it must refuse. */
#include "server/http_chunked.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "config/err.h"

/* Decodes `text` in pieces of `piece` bytes into pieces of `cap` bytes. */
static int decode(struct slice text, size_t piece, size_t cap, uint8_t *out, size_t *ret_len,
                  size_t *ret_rest) {
  struct http_chunked c = {0};
  size_t len = 0;
  while (text.len && c.state != HTTP_CHUNK_DONE) {
    struct slice in = {text.data, MIN(piece, text.len)};
    size_t given = in.len, n;
    int err = http_chunked_decode(&c, &in, out + len, cap, &n);
    cr_assert_leq(n, cap);
    len += n;
    if (err < 0) return err;
    cr_assert(in.len < given || n == cap || cap == 0, "no progress");
    text.data += given - in.len;
    text.len -= given - in.len;
  }
  *ret_len = len;
  *ret_rest = text.len;
  return c.state == HTTP_CHUNK_DONE ? 0 : ERR_BODY_SHORT;
}

Test(http_chunked, every_piece_and_every_destination_give_the_same_bytes) {
  struct slice text = SLICE_LIT(
      "5\r\nhello\r\n0001;name=\"v a l\\\"\\\\;\t\xe4\";x;y=z;e=\"\"\r\n "
      "\r\nA\r\n0123456789\r\n00;end\r\nTrailer: "
      "x\r\nOther:\r\n\r\n"
      "GET / HTTP/1.1\r\n");
  for (size_t piece = 1; piece <= text.len; piece++)
    for (size_t cap = 1; cap <= 20; cap++) {
      uint8_t out[64];
      size_t len, rest;
      cr_assert_eq(decode(text, piece, cap, out, &len, &rest), 0);
      cr_assert_eq(len, 16);
      cr_assert_arr_eq(out, "hello 0123456789", 16);
      cr_assert_eq(rest, 16, "the next request is not touched");
    }
}

Test(http_chunked, a_body_cut_short_is_never_done) {
  struct slice text = SLICE_LIT("5\r\nhello\r\n0\r\nA: b\r\n\r\n");
  for (size_t n = 0; n < text.len; n++) {
    uint8_t out[64];
    size_t len, rest;
    cr_assert_eq(decode(slice_of(text.data, n), 64, 64, out, &len, &rest), ERR_BODY_SHORT);
  }
}

static const char *const bad_bodies[] = {
    "\r\n",
    ";x\r\n",
    "g\r\n",
    "-1\r\n",
    "+1\r\n",
    "0x1\r\n",
    " 1\r\na\r\n",
    "1 \r\na\r\n",
    "1\na\r\n",
    "1\r\na\n",
    "1\r\nab\r\n",
    "1\r\na\r\r\n",
    "1\rX",
    "1;a\nb\r\n",
    "1;a\rb\r\n",
    "1;\x01\r\n",
    "1;\r\n",
    "1;=b\r\n",
    "1;a=\r\n",
    "1; a\r\n",
    "1;a \r\n",
    "1;a =b\r\n",
    "1;a= b\r\n",
    "1;a=b c\r\n",
    "1;;a\r\n",
    "1;a;\r\n",
    "1;a(b)\r\n",
    "1;\xe4\r\n",
    "1;a=b\"c\"\r\n",
    "1;a=\"b\r\n",
    "1;a=\"b\"c\r\n",
    "1;a=\"b\"=c\r\n",
    "1;a=\"b\\\r\n",
    "1;a=\"b\n\"\r\n",
    "1;a=\"\x7f\"\r\n",
    "0;\r\n\r\n",
    "00000000000000001\r\n",
    "ffffffffffffffff\r\n",
    "10000000000000000\r\n",
    "4000000000000001\r\n",
    "0\r\n\n",
    "0\r\n folded\r\n\r\n",
    "0\r\n: x\r\n\r\n",
    "0\r\nA : x\r\n\r\n",
    "0\r\nA: x\n\r\n",
    "0\r\nA: \x01\r\n\r\n",
    "0\r\nA\r\n\r\n",
    "0\r\n\rX",
    "0\r\nContent-Length: 0\r\n\r\n",
    "0\r\nA: b\r\nCONTENT-LENGTH:\r\n\r\n",
    "1\r\na\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "0\r\ntransfer-encoding: x\r\nA: b\r\n\r\n",
    "0\r\nHost: h\r\n\r\n",
};

Test(http_chunked, malformed_framing_is_refused) {
  for (size_t i = 0; i < ARRAY_LEN(bad_bodies); i++)
    for (size_t piece = 1; piece <= 64; piece += 63) {
      uint8_t out[64];
      size_t len, rest;
      cr_assert_eq(decode(slice_str(bad_bodies[i]), piece, 64, out, &len, &rest), ERR_BODY_INVALID,
                   "%zu: %s", i, bad_bodies[i]);
    }
}

/* `unit` repeated until far beyond the limit must fail; `below` repetitions must not. */
static void check_limit(const char *head, const char *unit, size_t below) {
  struct slice one = slice_str(unit);
  struct http_chunked c = {0};
  struct slice in = slice_str(head);
  uint8_t out[8];
  size_t n, count = 0;
  cr_assert_eq(http_chunked_decode(&c, &in, out, sizeof out, &n), 0);
  int err = 0;
  while (err == 0 && count < 100000) {
    in = one;
    while (in.len && err == 0) err = http_chunked_decode(&c, &in, out, sizeof out, &n);
    count++;
  }
  cr_assert_eq(err, ERR_BODY_INVALID);
  cr_assert_gt(count, below);
  cr_assert_lt(count, below * 2 + 2);
}

Test(http_chunked, extensions_and_trailers_are_bounded) {
  check_limit("1;", "x", HTTP_CHUNK_EXTENSION_BYTES_MAX);
  check_limit("", "1;ext\r\na\r\n", HTTP_CHUNK_EXTENSION_BYTES_MAX / 3);
  check_limit("0\r\nA:", "x", HTTP_TRAILER_BYTES_MAX - 2);
  check_limit("0\r\n", "A:b\r\n", HTTP_TRAILER_BYTES_MAX / 5);
}

Test(http_chunked, trailers_of_other_names_are_dropped) {
  struct slice text = SLICE_LIT(
      "0\r\nContent-Lengt: 0\r\nContent-Lengths: 0\r\nTransfer-Encodings: x\r\n"
      "Transfer-Encoding-And-More: x\r\nHos: x\r\nHosts: x\r\nh: x\r\nA:\r\n\r\n");
  uint8_t out[8];
  size_t len, rest;
  cr_assert_eq(decode(text, 1, sizeof out, out, &len, &rest), 0);
  cr_assert_eq(rest, 0);
}

Test(http_chunked, a_body_can_be_dropped) {
  struct http_chunked c = {0};
  struct slice in = SLICE_LIT("5\r\nhello\r\n0\r\n\r\nnext");
  size_t n;
  cr_assert_eq(http_chunked_decode(&c, &in, NULL, SIZE_MAX, &n), 0);
  cr_assert_eq(n, 5);
  cr_assert_eq(c.state, HTTP_CHUNK_DONE);
  cr_assert_eq(in.len, 4);
}
