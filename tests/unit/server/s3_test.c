/* s3_test.c: what S3 requests mean, without a socket: ranges, entity tags, conditions, names, XML.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "server/s3_op.h"

#define MTIME_MS 1764521629572ull /* Sun, 30 Nov 2025 16:53:49.572 GMT */
#define MTIME_DATE "Sun, 30 Nov 2025 16:53:49 GMT"

static void range_is(const char *text, uint64_t size, int err, bool partial, uint64_t offset,
                     uint64_t len) {
  struct s3_range r;
  cr_assert_eq(s3_range_parse(slice_str(text), size, &r), err, "%s of %zu", text, (size_t)size);
  if (err < 0) return;
  cr_assert_eq(r.partial, partial, "%s of %zu", text, (size_t)size);
  cr_assert_eq(r.offset, offset, "%s: offset %zu", text, (size_t)r.offset);
  cr_assert_eq(r.len, len, "%s: len %zu", text, (size_t)r.len);
}

Test(s3_range, single_ranges) {
  range_is("bytes=0-0", 10, 0, true, 0, 1);
  range_is("bytes=0-9", 10, 0, true, 0, 10);
  range_is("bytes=3-", 10, 0, true, 3, 7);
  range_is("bytes=-3", 10, 0, true, 7, 3);
  range_is("bytes=-100", 10, 0, true, 0, 10);
  range_is("bytes=9-100", 10, 0, true, 9, 1);
  range_is("bytes=5-18446744073709551615", 10, 0, true, 5, 5);
  range_is("bytes=5-99999999999999999999999999", 10, 0, true, 5, 5);
  range_is(" bytes= 2 - 4 ", 10, 0, true, 2, 3);
}

Test(s3_range, outside_is_416) {
  range_is("bytes=10-", 10, -1, 0, 0, 0);
  range_is("bytes=10-20", 10, -1, 0, 0, 0);
  range_is("bytes=-0", 10, -1, 0, 0, 0);
  range_is("bytes=0-0", 0, -1, 0, 0, 0);
  range_is("bytes=-1", 0, -1, 0, 0, 0);
  range_is("bytes=99999999999999999999999999-", 10, -1, 0, 0, 0);
}

Test(s3_range, malformed_or_several_means_the_whole) {
  static const char *const odd[] = {"bytes=4-3",     "bytes=a-b", "bytes=",    "bytes=-",
                                    "bytes=1-2,4-5", "lines=0-1", "bytes 0-1", "bytes=1--2",
                                    "bytes=0x1-2",   ""};
  for (size_t i = 0; i < ARRAY_LEN(odd); i++) range_is(odd[i], 10, 0, false, 0, 10);
}

static bool matches(const char *header, const char *etag) {
  return s3_etag_matches(slice_str(header), slice_str(etag));
}

Test(s3_etag, quotes_of_all_sorts) {
  cr_assert(matches("\"abc\"", "abc"));
  cr_assert(matches("abc", "abc"));
  cr_assert(matches("W/\"abc\"", "abc"));
  cr_assert(matches("&quot;abc&quot;", "abc"));
  cr_assert(matches("&#34;abc&#34;", "abc"));
  cr_assert(matches("\"x\", \"abc\"", "abc"));
  cr_assert(matches("*", "abc"));
  cr_assert_not(matches("\"abcd\"", "abc"));
  cr_assert_not(matches("\"ab\", \"c\"", "abc"));
  cr_assert_not(matches("", "abc"));
}

static int conditions(const char *name1, const char *value1, const char *name2,
                      const char *value2) {
  static struct http_request req;
  req.header_count = name2 ? 2 : 1;
  req.headers[0] = (struct http_header){slice_str(name1), slice_str(value1)};
  if (name2) req.headers[1] = (struct http_header){slice_str(name2), slice_str(value2)};
  return s3_conditions(&req, SLICE_LIT("tag"), MTIME_MS);
}

Test(s3_conditions, each_alone) {
  cr_assert_eq(conditions("if-match", "\"tag\"", NULL, NULL), 0);
  cr_assert_eq(conditions("if-match", "\"other\"", NULL, NULL), 412);
  cr_assert_eq(conditions("if-none-match", "\"tag\"", NULL, NULL), 304);
  cr_assert_eq(conditions("if-none-match", "*", NULL, NULL), 304);
  cr_assert_eq(conditions("if-none-match", "\"other\"", NULL, NULL), 0);
  cr_assert_eq(conditions("if-modified-since", MTIME_DATE, NULL, NULL), 304);
  cr_assert_eq(conditions("if-modified-since", "Sun, 30 Nov 2025 16:53:48 GMT", NULL, NULL), 0);
  cr_assert_eq(conditions("if-unmodified-since", MTIME_DATE, NULL, NULL), 0);
  cr_assert_eq(conditions("if-unmodified-since", "Sun, 30 Nov 2025 16:53:48 GMT", NULL, NULL), 412);
  cr_assert_eq(conditions("if-modified-since", "yesterday", NULL, NULL), 0);
}

Test(s3_conditions, precedence_of_rfc_9110) {
  /* A true If-Match beats a false If-Unmodified-Since; If-None-Match beats If-Modified-Since. */
  cr_assert_eq(
      conditions("if-match", "tag", "if-unmodified-since", "Sun, 30 Nov 2025 16:53:48 GMT"), 0);
  cr_assert_eq(conditions("if-none-match", "\"other\"", "if-modified-since", MTIME_DATE), 0);
  cr_assert_eq(
      conditions("if-none-match", "\"tag\"", "if-modified-since", "Sun, 30 Nov 2025 16:53:48 GMT"),
      304);
  cr_assert_eq(conditions("if-match", "\"other\"", "if-none-match", "\"tag\""), 412);
}

Test(s3_names, buckets) {
  static const char *const good[] = {"abc",   "a-b.c",    "0ab", "my.bucket-1",
                                     "1.2.3", "1.2.3.4a", "a--b"};
  static const char *const bad[] = {"ab",
                                    "Abc",
                                    "a_b",
                                    "-ab",
                                    "ab-",
                                    ".ab",
                                    "ab.",
                                    "a..b",
                                    "a.-b",
                                    "a-.b",
                                    "192.168.0.1",
                                    "xn--abc",
                                    "abc-s3alias",
                                    "a b",
                                    "a/b",
                                    "",
                                    "\xc3\xa9t\xc3\xa9"};
  for (size_t i = 0; i < ARRAY_LEN(good); i++)
    cr_assert(s3_bucket_name_valid(slice_str(good[i])), "%s", good[i]);
  for (size_t i = 0; i < ARRAY_LEN(bad); i++)
    cr_assert_not(s3_bucket_name_valid(slice_str(bad[i])), "%s", bad[i]);
  char longest[65];
  memset(longest, 'a', 64);
  longest[64] = 0;
  cr_assert_not(s3_bucket_name_valid(slice_str(longest)));
  longest[63] = 0;
  cr_assert(s3_bucket_name_valid(slice_str(longest)));
}

static void xml_is(struct slice text, const char *want) {
  struct byte_writer w = {.max = 4096};
  xml_text(&w, "K", text);
  cr_assert(slice_eq(slice_of(w.data, w.len), slice_str(want)), "%.*s instead of %s", (int)w.len,
            (char *)w.data, want);
  byte_writer_free(&w);
}

Test(s3_xml, escapes_and_replaces) {
  xml_is(SLICE_LIT("a<b>&\"c"), "<K>a&lt;b&gt;&amp;&quot;c</K>");
  xml_is(SLICE_LIT("\t\n\r"), "<K>&#9;&#10;&#13;</K>");
  xml_is(SLICE_LIT("a\x01z"), "<K>a\xef\xbf\xbdz</K>");
  xml_is(SLICE_LIT("\xc3\xa9\xf0\x9f\x98\x80"), "<K>\xc3\xa9\xf0\x9f\x98\x80</K>");
  xml_is(SLICE_LIT("\xff"
                   "a"),
         "<K>\xef\xbf\xbd"
         "a</K>");
  xml_is(SLICE_LIT("\xef\xbf\xbf"), "<K>\xef\xbf\xbd</K>");
  xml_is(SLICE_LIT(""), "<K></K>");
}

Test(s3_xml, url_encoding_and_time) {
  struct byte_writer w = {.max = 4096};
  xml_text_url(&w, "K", SLICE_LIT("a b/+%~\xc3\xa9"));
  xml_time(&w, "T", MTIME_MS);
  xml_etag(&w, "E", SLICE_LIT("tag"));
  cr_assert(
      slice_eq(
          slice_of(w.data, w.len),
          SLICE_LIT(
              "<K>a%20b/%2B%25~%C3%A9</K><T>2025-11-30T16:53:49.572Z</T><E>&quot;tag&quot;</E>")),
      "%.*s", (int)w.len, (char *)w.data);
  byte_writer_free(&w);
}

Test(s3_xml, utf8_as_rfc_3629) {
  cr_assert(utf8_valid(SLICE_LIT("\xf4\x8f\xbf\xbf")));
  cr_assert_not(utf8_valid(SLICE_LIT("\xf4\x90\x80\x80")));
  cr_assert_not(utf8_valid(SLICE_LIT("\xed\xa0\x80"))); /* a surrogate */
  cr_assert_not(utf8_valid(SLICE_LIT("\xc0\x80")));     /* not the shortest form */
  cr_assert_not(utf8_valid(SLICE_LIT("\xe2\x82")));     /* cut */
}

static struct s3_op *op_with_query(const char *query) {
  struct s3_op *op = calloc(1, sizeof *op);
  op->req = calloc(1, sizeof *op->req);
  op->req->query = slice_str(query);
  return op;
}

static void op_done(struct s3_op *op) {
  free(op->req);
  free(op);
}

Test(s3_params, decoded_once_plus_is_a_space) {
  struct s3_op *op = op_with_query("list-type=2&prefix=a%2Bb+c%2520&uploads&&x=");
  cr_assert_eq(s3_params_parse(op), 0);
  cr_assert(slice_eq(s3_param(op, "prefix"), SLICE_LIT("a+b c%20")));
  cr_assert_not_null(s3_param(op, "uploads").data);
  cr_assert_eq(s3_param(op, "uploads").len, 0);
  cr_assert_not_null(s3_param(op, "x").data);
  cr_assert_null(s3_param(op, "y").data);
  op_done(op);
}

Test(s3_params, bad_escapes_and_too_many_are_refused) {
  struct s3_op *op = op_with_query("a=%zz");
  cr_assert_lt(s3_params_parse(op), 0);
  op_done(op);
  char many[4 * S3_PARAMS_MAX + 8];
  size_t len = 0;
  for (int i = 0; i <= S3_PARAMS_MAX; i++, len += 3) memcpy(many + len, "a=&", 4);
  op = op_with_query(many);
  cr_assert_lt(s3_params_parse(op), 0);
  op_done(op);
}

Test(s3_error, every_error_has_a_code_a_status_and_words) {
  for (int e = 0; e < S3E_COUNT; e++) {
    cr_assert_not_null(s3_error_code((enum s3_error)e), "%d", e);
    cr_assert_geq(s3_error_status((enum s3_error)e), 400);
    cr_assert_gt(strlen(s3_error_message((enum s3_error)e)), 5);
  }
  cr_assert_eq(s3_error_of(ERR_UNAVAILABLE, false), S3E_UNAVAILABLE);
  cr_assert_eq(s3_error_of(ERR_NO_SPACE, false), S3E_INSUFFICIENT_STORAGE);
  cr_assert_eq(s3_error_of(ERR_CONFLICT, true), S3E_OPERATION_ABORTED);
  cr_assert_eq(s3_error_of(-5, false), S3E_INTERNAL);
}
