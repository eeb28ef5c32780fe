/* fuzz_http_chunked.c: a chunked body.
 *
 * In any pieces and into any room it gives the same bytes, the same end and the same refusal; a
 * second reading of the grammar, over the whole text and made from RFC 9112 7.1 alone, agrees about
 * where the body ends; what came out, sent as one chunk, comes out again. */
#include "config/err.h"
#include "server/http_chunked.h"
#include "server/http_token.h"
#include "tests/fuzz/fuzz.h"

struct decoded {
  int err;
  bool done;
  size_t consumed;
  uint8_t *bytes;
  size_t len;
};

static struct decoded decode_whole(struct slice text) {
  struct http_chunked c = {0};
  struct slice in = text;
  struct decoded d = {.bytes = malloc(text.len + 1)};
  FUZZ_CHECK(d.bytes);
  d.err = http_chunked_decode(&c, &in, d.bytes, text.len + 1, &d.len);
  d.done = d.err == 0 && c.state == HTTP_CHUNK_DONE;
  d.consumed = text.len - in.len;
  FUZZ_CHECK(d.len <= d.consumed && d.err <= 0);
  FUZZ_CHECK(d.err < 0 || (c.extension_bytes <= HTTP_CHUNK_EXTENSION_BYTES_MAX &&
                           c.trailer_bytes <= HTTP_TRAILER_BYTES_MAX));
  FUZZ_CHECK(d.done || d.err < 0 || in.len == 0);
  return d;
}

/* The same in pieces; with `drop` the bytes are only counted. */
static void decode_pieces(struct slice text, const struct decoded *whole, bool drop,
                          struct fuzz_rand *cuts) {
  struct http_chunked c = {0};
  size_t at = 0, len = 0;
  int err = 0;
  while (err == 0 && at < text.len && c.state != HTTP_CHUNK_DONE) {
    size_t n = fuzz_piece(cuts, text.len - at), room = 1 + fuzz_below(cuts, 300), got;
    uint8_t *bytes = fuzz_copy(slice_of(text.data + at, n)), *dst = drop ? NULL : malloc(room);
    struct slice in = slice_of(bytes, n);
    err = http_chunked_decode(&c, &in, dst, drop ? SIZE_MAX : room, &got);
    FUZZ_CHECK(drop || got <= room);
    if (!drop && got) {
      FUZZ_CHECK(len + got <= whole->len);
      FUZZ_CHECK(memcmp(dst, whole->bytes + len, got) == 0);
    }
    FUZZ_CHECK(err < 0 || in.len < n);
    len += got;
    at += n - in.len;
    free(bytes);
    free(dst);
  }
  FUZZ_CHECK(err == whole->err && at == whole->consumed && len == whole->len);
  FUZZ_CHECK(whole->done == (err == 0 && c.state == HTTP_CHUNK_DONE));
}

/* The line at *in without its CRLF; false where it has none, or holds what no line may. */
static bool ref_line(struct slice *in, struct slice *ret_line) {
  for (size_t i = 0; i + 1 < in->len; i++) {
    if (in->data[i] == '\r' && in->data[i + 1] == '\n') {
      *ret_line = fuzz_take(in, i);
      (void)fuzz_take(in, 2);
      return true;
    }
    if (!http_is_value(in->data[i])) return false;
  }
  return false;
}

static size_t ref_token(struct slice s) {
  size_t n = 0;
  while (n < s.len && http_is_token(s.data[n])) n++;
  return n;
}

/* "a:..." where a is none of the names that speak of framing. */
static bool ref_trailer_ok(struct slice line) {
  static const char *const refused[] = {"content-length", "transfer-encoding", "host"};
  size_t name = ref_token(line);
  for (size_t i = 0; i < ARRAY_LEN(refused); i++)
    if (http_slice_is(slice_of(line.data, name), refused[i])) return false;
  return name > 0 && name < line.len && line.data[name] == ':';
}

/* *( ";" token [ "=" ( token / quoted-string ) ] ), without blanks. */
static bool ref_extensions_ok(struct slice s) {
  while (s.len > 0) {
    if (fuzz_u8(&s) != ';') return false;
    size_t name = ref_token(s);
    if (name == 0) return false;
    (void)fuzz_take(&s, name);
    if (s.len == 0 || s.data[0] != '=') continue;
    (void)fuzz_u8(&s);
    if (s.len > 0 && s.data[0] == '"') {
      size_t i = 1;
      while (i < s.len && s.data[i] != '"') i += s.data[i] == '\\' ? 2 : 1;
      if (i >= s.len) return false;
      (void)fuzz_take(&s, i + 1);
    } else {
      size_t value = ref_token(s);
      if (value == 0) return false;
      (void)fuzz_take(&s, value);
    }
  }
  return true;
}

/* Length of the whole body in `text`, or 0: refused, or not whole. */
static size_t ref_end(struct slice text) {
  struct slice in = text, line;
  size_t extensions = 0, trailers = 2;
  for (;;) {
    uint64_t size = 0;
    size_t digits = 0;
    if (!ref_line(&in, &line)) return 0;
    for (; digits < line.len && digits < 17; digits++) {
      static const char hex[] = "0123456789abcdef";
      const char *at = line.data[digits] ? strchr(hex, http_lower(line.data[digits])) : NULL;
      if (!at) break;
      size = size << 4 | (uint64_t)(at - hex);
    }
    if (digits == 0 || digits > 16 || size > HTTP_CHUNK_BYTES_MAX) return 0;
    if (!ref_extensions_ok(slice_of(line.data + digits, line.len - digits))) return 0;
    extensions += line.len > digits ? line.len - digits - 1 : 0;
    if (extensions > HTTP_CHUNK_EXTENSION_BYTES_MAX) return 0;
    if (size == 0) break;
    if (in.len < 2 || size > in.len - 2) return 0;
    (void)fuzz_take(&in, (size_t)size);
    struct slice end = fuzz_take(&in, 2);
    if (!slice_eq(end, SLICE_LIT("\r\n"))) return 0;
  }
  for (;;) {
    if (!ref_line(&in, &line)) return 0;
    if (line.len == 0) break;
    if (!ref_trailer_ok(line)) return 0;
    trailers += line.len + 1;
  }
  return trailers - 1 > HTTP_TRAILER_BYTES_MAX ? 0 : text.len - in.len;
}

static void check_again(const struct decoded *d) {
  char size[24];
  int digits = snprintf(size, sizeof size, "%zx\r\n", d->len);
  struct byte_writer w = {.max = d->len + 64};
  if (d->len > 0) {
    put_bytes(&w, slice_of(size, (size_t)digits));
    put_bytes(&w, slice_of(d->bytes, d->len));
    put_bytes(&w, SLICE_LIT("\r\n"));
  }
  put_bytes(&w, SLICE_LIT("0\r\n\r\n"));
  struct decoded again = decode_whole(slice_of(w.data, w.len));
  FUZZ_CHECK(again.done && again.consumed == w.len);
  FUZZ_CHECK(slice_eq(slice_of(again.bytes, again.len), slice_of(d->bytes, d->len)));
  free(again.bytes);
  byte_writer_free(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  struct slice text = slice_of(data, len);
  struct fuzz_rand cuts = fuzz_rand_of(text, 0);
  struct decoded whole = decode_whole(text);
  decode_pieces(text, &whole, false, &cuts);
  decode_pieces(text, &whole, true, &cuts);
  size_t end = ref_end(text);
  FUZZ_CHECK(whole.done == (end > 0));
  FUZZ_CHECK(!whole.done || end == whole.consumed);
  if (whole.done) check_again(&whole);
  free(whole.bytes);
  return 0;
}
