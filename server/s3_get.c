/* s3_get.c: GetObject and HeadObject: conditions and ranges on the version that was found, then the
 * stream. */
#include <stdlib.h>
#include <strings.h>

#include "server/s3_op.h"

/* Attributes are stored in lower case; some scripts match the usual spelling. x-amz-* stay lower,
 * as S3 sends them. */
static struct slice get_spelling(struct slice name) {
  static const char *const usual[] = {"Content-Type",     "Content-Encoding", "Content-Disposition",
                                      "Content-Language", "Cache-Control",    "Expires"};
  for (size_t i = 0; i < ARRAY_LEN(usual); i++)
    if (name.len == strlen(usual[i]) &&
        strncasecmp((const char *)name.data, usual[i], name.len) == 0)
      return slice_str(usual[i]);
  return name;
}

/* The stored headers, and those that every answer about an object carries. */
static void get_headers(struct s3_op *op, const struct row *row) {
  struct attr attr;
  size_t at = 0;
  char date[30];
  while (row_attr(row, &at, &attr)) {
    /* STANDARD is what no header says. */
    if (slice_eq(attr.name, SLICE_LIT("x-amz-storage-class")) &&
        slice_eq(attr.value, SLICE_LIT("STANDARD")))
      continue;
    http_header_add_slice(op->req, get_spelling(attr.name), attr.value);
  }
  http_date_format(row->mtime_ms, date);
  http_header_add(op->req, "Last-Modified", date);
  http_header_addf(op->req, "ETag", "\"%.*s\"", (int)row->etag.len, (const char *)row->etag.data);
  http_header_add(op->req, "Accept-Ranges", "bytes");
}

static bool get_if_range_holds(const struct s3_op *op, const struct row *row) {
  struct slice if_range = http_header_find(op->req, "if-range");
  uint64_t date_ms;
  if (!if_range.data) return true;
  if (http_date_parse(if_range, &date_ms) == 0) return row->mtime_ms / 1000 == date_ms / 1000;
  return s3_etag_matches(if_range, row->etag);
}

static void get_not_modified(struct s3_op *op, const struct row *row) {
  char date[30];
  http_date_format(row->mtime_ms, date);
  http_header_add(op->req, "Last-Modified", date);
  http_header_addf(op->req, "ETag", "\"%.*s\"", (int)row->etag.len, (const char *)row->etag.data);
  s3_answer(op, 304, (struct slice){NULL, 0});
}

/* Closes the operation, then answers: the row is gone after the close. */
static void get_refuse(struct s3_op *op, struct object_get *get, enum s3_error e) {
  op->get = NULL;
  object_get_close(get);
  s3_answer_error(op, e);
}

static void get_answer(struct s3_op *op, struct object_get *get, const struct row *row) {
  struct s3_range range = {.partial = false, .offset = 0, .len = row->size};
  struct slice asked = http_header_find(op->req, "range");
  int condition = s3_conditions(op->req, row->etag, row->mtime_ms);
  if (condition == 304) {
    get_not_modified(op, row);
    object_get_close(get);
    return;
  }
  if (condition == 412) {
    get_refuse(op, get, S3E_PRECONDITION);
    return;
  }
  if (asked.data && get_if_range_holds(op, row) && s3_range_parse(asked, row->size, &range) < 0) {
    http_header_addf(op->req, "Content-Range", "bytes */%llu", (unsigned long long)row->size);
    get_refuse(op, get, S3E_INVALID_RANGE);
    return;
  }
  get_headers(op, row);
  if (range.partial)
    http_header_addf(
        op->req, "Content-Range", "bytes %llu-%llu/%llu", (unsigned long long)range.offset,
        (unsigned long long)(range.offset + range.len - 1), (unsigned long long)row->size);
  http_begin(op->req, range.partial ? 206 : 200, range.len);
  if (op->req->method == HTTP_M_HEAD || range.len == 0) {
    op->get = NULL;
    object_get_close(get);
    s3_answer_done(op, 0);
    return;
  }
  op->read_len = range.len;
  object_get_read(get, range.offset, range.len, &op->req->sink);
}

static void get_found(void *arg, struct object_get *get, int err, const struct row *row) {
  struct s3_op *op = arg;
  if (err < 0) {
    op->get = NULL;
    s3_answer_error(op, s3_error_of(err, false));
    return;
  }
  if (op->gone) {
    op->get = NULL;
    object_get_close(get);
    s3_answer_error(op, S3E_INTERNAL); /* nobody reads it */
    return;
  }
  op->get = get;
  get_answer(op, get, row);
}

static void get_done(void *arg, int err, bool sent_any) {
  struct s3_op *op = arg;
  op->get = NULL;
  if (err < 0 && !sent_any && !op->gone) {
    http_begin_undo(op->req);
    s3_answer_error(op, s3_error_of(err, false));
    return;
  }
  s3_answer_done(op, err);
}

static const struct object_get_ops get_ops = {get_found, get_done};

void s3_object_get(struct s3_op *op) {
  bool want_data = op->req->method == HTTP_M_GET;
  if (object_get_start(op->s3->objects, &op->bucket, op->key, want_data, &get_ops, op, &op->get) <
      0)
    s3_answer_error(op, S3E_SLOW_DOWN);
}
