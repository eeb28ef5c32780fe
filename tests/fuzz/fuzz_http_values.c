/* fuzz_http_values.c: the small texts of HTTP and S3: percent-encoding, dates, ranges, entity tags,
 * conditions, hex, base64, UTF-8, and the sizes, times, addresses and paths of a configuration.
 *
 * The first byte says which; each is checked by a property of its own: what was decoded encodes
 * again to the same, what is a range lies within the object, what is printed parses again. */
#include "config/settings_schema.h"
#include "server/s3_op.h"
#include "tests/fuzz/fuzz.h"

/* ---- percent-encoding ---- */

static void percent(struct slice in) {
  size_t cap = fuzz_u8(&in) * 4u;
  uint8_t *text = fuzz_copy(in), *out = malloc(in.len), *small = malloc(cap);
  int n = http_percent_decode(slice_of(text, in.len), out, in.len);
  int m = http_percent_decode(slice_of(text, in.len), small, cap);
  FUZZ_CHECK(n == ERR_INVALID || (n >= 0 && (size_t)n <= in.len));
  if (n >= 0 && (size_t)n <= cap)
    FUZZ_CHECK(m == n && (n == 0 || memcmp(out, small, (size_t)n) == 0));
  else
    FUZZ_CHECK(m < 0);
  if (n >= 0) {
    struct byte_writer w = {.max = 3 * in.len + 64};
    xml_text_url(&w, "K", slice_of(out, (size_t)n));
    FUZZ_CHECK(!w.failed && w.len >= 7);
    uint8_t *again = malloc(in.len + 1);
    int k = http_percent_decode(slice_of(w.data + 3, w.len - 7), again, in.len + 1);
    FUZZ_CHECK(k == n && (n == 0 || memcmp(out, again, (size_t)n) == 0));
    free(again);
    byte_writer_free(&w);
  }
  free(text);
  free(out);
  free(small);
}

/* ---- dates ---- */

static void date(struct slice in) {
  uint8_t *text = fuzz_copy(in);
  uint64_t ms = 4711, again = 0;
  if (http_date_parse(slice_of(text, in.len), &ms) == 0) {
    char out[30];
    FUZZ_CHECK(ms % 1000 == 0 && ms / 1000 < 253402300800u);
    http_date_format(ms, out);
    FUZZ_CHECK(strlen(out) == 29);
    FUZZ_CHECK(http_date_parse(slice_str(out), &again) == 0 && again == ms);
  } else {
    FUZZ_CHECK(ms == 4711);
  }
  free(text);
  if (in.len >= 8) { /* any clock can be printed, and up to 9999 it is read again */
    char out[30];
    uint64_t any = load_be64(in.data);
    http_date_format(any, out);
    FUZZ_CHECK(strlen(out) == 29 && http_date_parse(slice_str(out), &again) == 0);
    if (any / 1000 < 253402300800u) FUZZ_CHECK(again / 1000 == any / 1000);
  }
}

/* ---- ranges ---- */

static void range(struct slice in) {
  uint64_t size = 0;
  for (int i = 0; i < 5; i++) size = size << 8 | fuzz_u8(&in);
  uint8_t *text = fuzz_copy(in);
  struct s3_range r, again;
  int err = s3_range_parse(slice_of(text, in.len), size, &r);
  FUZZ_CHECK(err == 0 || err == -1);
  if (err == 0) {
    FUZZ_CHECK(r.offset <= size && r.len <= size - r.offset);
    FUZZ_CHECK(r.partial ? r.len > 0 : r.offset == 0 && r.len == size);
    if (r.partial) {
      char out[64];
      snprintf(out, sizeof out, "bytes=%llu-%llu", (unsigned long long)r.offset,
               (unsigned long long)(r.offset + r.len - 1));
      FUZZ_CHECK(s3_range_parse(slice_str(out), size, &again) == 0);
      FUZZ_CHECK(again.partial && again.offset == r.offset && again.len == r.len);
    }
  }
  free(text);
}

/* ---- entity tags and conditions ---- */

static void etag(struct slice in) {
  struct slice tag = fuzz_until(&in, '\n');
  uint8_t *text = fuzz_copy(in), *own = fuzz_copy(tag);
  struct slice header = slice_of(text, in.len), etag = slice_of(own, tag.len);
  struct slice bare = s3_etag_bare(header);
  FUZZ_CHECK(bare.len <= header.len);
  if (bare.len) FUZZ_CHECK(bare.data >= text && bare.data + bare.len <= text + in.len);
  bool alone = in.len > 0 && !memchr(in.data, ',', in.len);
  if (alone)
    FUZZ_CHECK(s3_etag_matches(header, etag) ==
               (slice_eq(bare, etag) || slice_eq(bare, SLICE_LIT("*"))));
  /* A list that has it among others matches. */
  bool plain = tag.len > 0;
  for (size_t i = 0; i < tag.len; i++)
    plain = plain && tag.data[i] > ' ' && !strchr("\",&", tag.data[i]);
  if (plain) {
    struct byte_writer w = {.max = in.len + tag.len + 64};
    put_bytes(&w, header);
    put_bytes(&w, SLICE_LIT(", \""));
    put_bytes(&w, etag);
    put_bytes(&w, SLICE_LIT("\""));
    FUZZ_CHECK(s3_etag_matches(slice_of(w.data, w.len), etag));
    byte_writer_free(&w);
  }
  free(text);
  free(own);
}

/* Up to six headers out of the lines of the input. */
static void conditions(struct slice in) {
  static const char *const names[] = {"if-match", "if-none-match", "if-modified-since",
                                      "if-unmodified-since"};
  struct http_request *req = calloc(1, sizeof *req);
  FUZZ_CHECK(req);
  uint64_t mtime = load_be32((uint8_t[4]){fuzz_u8(&in), fuzz_u8(&in), fuzz_u8(&in), fuzz_u8(&in)});
  struct slice etag = fuzz_until(&in, '\n');
  while (in.len > 0 && req->header_count < 6) {
    const char *name = names[fuzz_u8(&in) % ARRAY_LEN(names)];
    req->headers[req->header_count++] =
        (struct http_header){slice_str(name), fuzz_until(&in, '\n')};
  }
  int status = s3_conditions(req, etag, mtime * 1000);
  FUZZ_CHECK(status == 0 || status == 304 || status == 412);
  bool match = http_header_find(req, "if-match").data;
  bool none = http_header_find(req, "if-none-match").data;
  if (status == 412) FUZZ_CHECK(match || http_header_find(req, "if-unmodified-since").data);
  if (status == 304) FUZZ_CHECK(none || http_header_find(req, "if-modified-since").data);
  if (req->header_count == 0) FUZZ_CHECK(status == 0);
  FUZZ_CHECK(http_header_count(req, "if-match") <= req->header_count);
  free(req);
}

/* ---- hex, base64, UTF-8 and XML's text ---- */

static void encodings(struct slice in) {
  size_t cap = fuzz_u8(&in);
  uint8_t *text = fuzz_copy(in), *out = malloc(in.len + 1), *small = malloc(cap);
  char *again = malloc(2 * in.len + 5);
  struct slice s = slice_of(text, in.len);
  if (hex_decode(s, out, in.len / 2) == 0) {
    hex_encode(out, in.len / 2, again);
    for (size_t i = 0; i < in.len; i++)
      FUZZ_CHECK(again[i] == (char)(text[i] >= 'A' && text[i] <= 'F' ? text[i] + 32 : text[i]));
  }
  int n = base64_decode(s, out, in.len + 1), m = base64_decode(s, small, cap);
  FUZZ_CHECK((n < 0 || (size_t)n > cap) ? m < 0 : m == n);
  if (n >= 0) { /* strict: a text has one encoding */
    base64_encode(out, (size_t)n, again);
    FUZZ_CHECK(slice_eq(slice_str(again), s));
  }
  base64_encode(text, in.len, again);
  n = base64_decode(slice_str(again), out, in.len);
  FUZZ_CHECK(n == (int)in.len && (n == 0 || memcmp(out, text, in.len) == 0));
  struct byte_writer w = {.max = 8 * in.len + 64};
  xml_text(&w, "T", s);
  FUZZ_CHECK(!w.failed && utf8_valid(slice_of(w.data, w.len)));
  for (size_t i = 3; i + 4 < w.len; i++) FUZZ_CHECK(w.data[i] != '<' && w.data[i] >= 0x20);
  byte_writer_free(&w);
  free(text);
  free(out);
  free(small);
  free(again);
}

/* ---- values of a configuration ---- */

static void config_values(struct slice in) {
  char *text = fuzz_text(in), host[256], out[SETTINGS_PATH_BYTES_MAX + 1], number[32];
  char path[SETTINGS_PATH_BYTES_MAX + 1];
  uint64_t v = 1, again = 2;
  uint16_t port;
  if (settings_parse_size(text, &v) == 0) {
    value_print_size(v, number);
    FUZZ_CHECK(settings_parse_size(number, &again) == 0 && again == v);
  }
  if (settings_parse_time(text, &v) == 0) {
    value_print_time(v, number);
    FUZZ_CHECK(settings_parse_time(number, &again) == 0 && again == v);
  }
  if (settings_parse_address(text, host, &port) == 0) {
    FUZZ_CHECK(strlen(host) < sizeof host && strlen(host) < strlen(text));
    FUZZ_CHECK(strpbrk(host, "/[] \t\"'\\") == NULL);
  }
  if (value_clean_path(text, path) == 0) {
    FUZZ_CHECK(path[0] == '/' && !strstr(path, "//") && strlen(path) <= strlen(text));
    FUZZ_CHECK(!strstr(path, "/../") && (path[1] == 0 || path[strlen(path) - 1] != '/'));
    FUZZ_CHECK(value_clean_path(path, out) == 0 && strcmp(path, out) == 0);
  }
  if (value_is_name(text, 63)) FUZZ_CHECK(strlen(text) <= 63 && !strpbrk(text, "/: \t"));
  free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  static void (*const parts[])(struct slice) = {percent,    date,      range,        etag,
                                                conditions, encodings, config_values};
  struct slice in = slice_of(data, len);
  if (len == 0) return 0;
  parts[fuzz_u8(&in) % ARRAY_LEN(parts)](in);
  return 0;
}
