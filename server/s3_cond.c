/* s3_cond.c: entity tags, conditions and ranges. Pure.
 * Source: RFC 9110, 13 and 14; S3 GetObject. */
#include "server/s3_op.h"

static struct slice trim(struct slice s) {
  while (s.len > 0 && (s.data[0] == ' ' || s.data[0] == '\t')) s = slice_of(s.data + 1, s.len - 1);
  while (s.len > 0 && (s.data[s.len - 1] == ' ' || s.data[s.len - 1] == '\t')) s.len--;
  return s;
}

static bool strip_around(struct slice *s, const char *mark) {
  size_t n = strlen(mark);
  struct slice m = slice_str(mark);
  if (s->len < 2 * n || !slice_starts_with(*s, m)) return false;
  if (!slice_eq(slice_of(s->data + s->len - n, n), m)) return false;
  *s = slice_of(s->data + n, s->len - 2 * n);
  return true;
}

struct slice s3_etag_bare(struct slice header) {
  struct slice s = trim(header);
  if (slice_starts_with(s, SLICE_LIT("W/"))) s = slice_of(s.data + 2, s.len - 2);
  if (!strip_around(&s, "\"") && !strip_around(&s, "&quot;")) (void)strip_around(&s, "&#34;");
  return s;
}

bool s3_etag_matches(struct slice header, struct slice etag) {
  while (header.len > 0) {
    const uint8_t *comma = memchr(header.data, ',', header.len);
    size_t len = comma ? (size_t)(comma - header.data) : header.len;
    struct slice one = s3_etag_bare(slice_of(header.data, len));
    if (slice_eq(one, etag) || slice_eq(one, SLICE_LIT("*"))) return true;
    if (!comma) return false;
    header = slice_of(header.data + len + 1, header.len - len - 1);
  }
  return false;
}

/* HTTP dates have whole seconds. */
static bool modified_since(uint64_t mtime_ms, uint64_t date_ms) {
  return mtime_ms / 1000 > date_ms / 1000;
}

int s3_conditions(const struct http_request *req, struct slice etag, uint64_t mtime_ms) {
  struct slice match = http_header_find(req, "if-match");
  struct slice none_match = http_header_find(req, "if-none-match");
  struct slice date;
  uint64_t date_ms;
  if (match.data) {
    if (!s3_etag_matches(match, etag)) return 412;
  } else if ((date = http_header_find(req, "if-unmodified-since")).data) {
    if (http_date_parse(date, &date_ms) == 0 && modified_since(mtime_ms, date_ms)) return 412;
  }
  if (none_match.data) {
    if (s3_etag_matches(none_match, etag)) return 304;
  } else if ((date = http_header_find(req, "if-modified-since")).data) {
    if (http_date_parse(date, &date_ms) == 0 && !modified_since(mtime_ms, date_ms)) return 304;
  }
  return 0;
}

/* Digits only, at least one, saturating: a position beyond any object is as good as a larger one.
 */
static bool parse_position(struct slice s, uint64_t *ret) {
  uint64_t v = 0;
  if (s.len == 0) return false;
  for (size_t i = 0; i < s.len; i++) {
    if (s.data[i] < '0' || s.data[i] > '9') return false;
    if (__builtin_mul_overflow(v, (uint64_t)10, &v) ||
        __builtin_add_overflow(v, (uint64_t)(s.data[i] - '0'), &v))
      v = UINT64_MAX / 2;
  }
  *ret = v;
  return true;
}

int s3_range_parse(struct slice header, uint64_t size, struct s3_range *ret) {
  *ret = (struct s3_range){.partial = false, .offset = 0, .len = size};
  struct slice s = trim(header);
  if (!slice_starts_with(s, SLICE_LIT("bytes="))) return 0;
  s = trim(slice_of(s.data + 6, s.len - 6));
  const uint8_t *dash = s.len ? memchr(s.data, '-', s.len) : NULL;
  if (!dash || memchr(s.data, ',', s.len)) return 0;
  struct slice from = trim(slice_of(s.data, (size_t)(dash - s.data)));
  struct slice to = trim(slice_of(dash + 1, (size_t)(s.data + s.len - dash - 1)));
  uint64_t first, last;
  if (from.len == 0) { /* the last n bytes */
    if (!parse_position(to, &last)) return 0;
    if (last == 0 || size == 0) return -1;
    last = MIN(last, size);
    *ret = (struct s3_range){true, size - last, last};
    return 0;
  }
  if (!parse_position(from, &first)) return 0;
  if (to.len == 0)
    last = UINT64_MAX - 1;
  else if (!parse_position(to, &last) || last < first)
    return 0;
  if (first >= size) return -1;
  last = MIN(last, size - 1);
  *ret = (struct s3_range){true, first, last - first + 1};
  return 0;
}
