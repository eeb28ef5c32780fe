/* fuzz_http_head.c: a request's head, as it stands on the wire.
 *
 * Cut in any places it means the same; what is taken keeps to the named limits and to the grammar;
 * written again from what was understood it is understood the same. */
#include "server/http_conn.h"
#include "server/http_token.h"
#include "tests/fuzz/fuzz.h"

struct head {
  struct http_exchange *ex;
  struct http_refusal why;
  int len; /* -1: refused; 0: more is wanted */
};

static struct head head_of(struct slice text, struct fuzz_rand *cuts) {
  struct head h = {.ex = calloc(1, sizeof *h.ex)};
  struct http_scan scan = {0};
  size_t have = 0;
  FUZZ_CHECK(h.ex);
  while (have < text.len && h.len == 0) {
    have += cuts ? fuzz_piece(cuts, text.len - have) : text.len;
    uint8_t *bytes = fuzz_copy(slice_of(text.data, have));
    h.len = http_head_find(&scan, slice_of(bytes, have), &h.why);
    FUZZ_CHECK(h.len <= (int)have);
    if (h.len > 0 && http_head_parse(h.ex, slice_of(bytes, (size_t)h.len), &h.why) < 0) h.len = -1;
    free(bytes); /* the exchange has a copy */
  }
  if (h.len < 0) FUZZ_CHECK(h.why.status >= 400 && h.why.code && h.why.message);
  return h;
}

static void head_free(struct head *h) {
  free(h->ex->head);
  free(h->ex);
}

static void check_same(const struct head *a, const struct head *b) {
  const struct http_request *x = &a->ex->req, *y = &b->ex->req;
  FUZZ_CHECK(x->method == y->method && slice_eq(x->method_name, y->method_name));
  FUZZ_CHECK(slice_eq(x->target, y->target) && slice_eq(x->path, y->path));
  FUZZ_CHECK(slice_eq(x->query, y->query) && !x->query.data == !y->query.data);
  FUZZ_CHECK(x->header_count == y->header_count);
  for (unsigned i = 0; i < x->header_count; i++)
    FUZZ_CHECK(slice_eq(x->headers[i].name, y->headers[i].name) &&
               slice_eq(x->headers[i].value, y->headers[i].value));
  FUZZ_CHECK(x->body.length == y->body.length && x->has_body == y->has_body);
  FUZZ_CHECK(x->has_length == y->has_length && x->chunked == y->chunked);
  FUZZ_CHECK(x->expect_continue == y->expect_continue);
  FUZZ_CHECK(a->ex->http_1_0 == b->ex->http_1_0 && a->ex->keep_alive == b->ex->keep_alive);
  FUZZ_CHECK(a->ex->framing == b->ex->framing && a->ex->left == b->ex->left);
}

static bool inside(const struct http_exchange *ex, size_t len, struct slice s) {
  return s.data >= ex->head && s.data + s.len <= ex->head + len;
}

static void check_headers(const struct head *h) {
  const struct http_request *req = &h->ex->req;
  FUZZ_CHECK(req->header_count <= HTTP_HEADERS_MAX);
  for (unsigned i = 0; i < req->header_count; i++) {
    struct slice name = req->headers[i].name, value = req->headers[i].value;
    FUZZ_CHECK(name.len > 0 && inside(h->ex, (size_t)h->len, name));
    FUZZ_CHECK(value.len == 0 || inside(h->ex, (size_t)h->len, value));
    for (size_t k = 0; k < name.len; k++)
      FUZZ_CHECK(http_is_token(name.data[k]) && http_lower(name.data[k]) == name.data[k]);
    for (size_t k = 0; k < value.len; k++) FUZZ_CHECK(http_is_value(value.data[k]));
    struct slice trimmed = http_trim(value);
    FUZZ_CHECK(trimmed.len == value.len);
  }
}

/* What a request in front of another must never leave open: where its body ends. */
static void check_taken(const struct head *h) {
  const struct http_request *req = &h->ex->req;
  FUZZ_CHECK(h->len <= HTTP_HEAD_BYTES_MAX && req->target.len <= HTTP_TARGET_BYTES_MAX);
  FUZZ_CHECK(req->method_name.len > 0 && req->method_name.len <= HTTP_METHOD_BYTES_MAX);
  FUZZ_CHECK(req->path.len > 0 && req->path.data[0] == '/');
  for (size_t i = 0; i < req->target.len; i++)
    FUZZ_CHECK(req->target.data[i] > 0x20 && req->target.data[i] < 0x7f);
  unsigned lengths = http_header_count(req, "content-length");
  unsigned encodings = http_header_count(req, "transfer-encoding");
  unsigned hosts = http_header_count(req, "host");
  FUZZ_CHECK(lengths + encodings <= 1 && hosts <= 1 && (hosts == 1 || h->ex->http_1_0));
  FUZZ_CHECK(req->chunked == (encodings == 1) && req->has_length == (lengths == 1));
  FUZZ_CHECK(!(req->chunked && h->ex->http_1_0));
  FUZZ_CHECK(req->chunked == (req->body.length == BODY_LENGTH_UNKNOWN));
  FUZZ_CHECK(req->chunked || req->body.length <= INT64_MAX);
  FUZZ_CHECK(req->has_body == (req->chunked || req->body.length > 0));
  FUZZ_CHECK(!req->expect_continue || (req->has_body && !h->ex->http_1_0));
  check_headers(h);
}

static void write_again(const struct head *h, struct byte_writer *w) {
  const struct http_request *req = &h->ex->req;
  put_bytes(w, req->method_name);
  put_u8(w, ' ');
  put_bytes(w, req->target);
  put_bytes(w, h->ex->http_1_0 ? SLICE_LIT(" HTTP/1.0\r\n") : SLICE_LIT(" HTTP/1.1\r\n"));
  for (unsigned i = 0; i < req->header_count; i++) {
    put_bytes(w, req->headers[i].name);
    put_u8(w, ':');
    put_bytes(w, req->headers[i].value);
    put_bytes(w, SLICE_LIT("\r\n"));
  }
  put_bytes(w, SLICE_LIT("\r\n"));
  FUZZ_CHECK(!w->failed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  struct slice text = slice_of(data, len);
  struct fuzz_rand cuts = fuzz_rand_of(text, 0);
  struct head whole = head_of(text, NULL), cut = head_of(text, &cuts);
  FUZZ_CHECK(whole.len == cut.len);
  /* Beyond that length the first limit that is noticed may be another one. */
  if (whole.len < 0 && len <= HTTP_TARGET_BYTES_MAX) FUZZ_CHECK(whole.why.status == cut.why.status);
  if (whole.len > 0) {
    check_taken(&whole);
    check_same(&whole, &cut);
    struct byte_writer w = {.max = 2 * HTTP_HEAD_BYTES_MAX};
    write_again(&whole, &w);
    struct head again = head_of(slice_of(w.data, w.len), NULL);
    FUZZ_CHECK(again.len == (int)w.len);
    check_same(&whole, &again);
    head_free(&again);
    byte_writer_free(&w);
  }
  head_free(&whole);
  head_free(&cut);
  return 0;
}
