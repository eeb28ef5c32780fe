/* s3_object.c: PutObject and DeleteObject. */
#include <stdlib.h>

#include "server/s3_op.h"

/* Headers that are stored with an object and come back with it. */
static const char *const stored_headers[] = {
    "content-type",  "content-encoding", "content-disposition", "content-language",
    "cache-control", "expires",          "x-amz-storage-class"};

/* Names that S3 knows. All of them are kept in the bucket's own pool: the name is stored and
 * echoed. */
static const char *const storage_classes[] = {"STANDARD", "REDUCED_REDUNDANCY", "STANDARD_IA",
                                              "ONEZONE_IA", "INTELLIGENT_TIERING"};

/* Headers whose meaning would be lost if they were ignored. */
static const char *const refused_headers[] = {"x-amz-copy-source",
                                              "x-amz-server-side-encryption",
                                              "x-amz-server-side-encryption-customer-algorithm",
                                              "x-amz-tagging",
                                              "x-amz-object-lock-mode",
                                              "x-amz-object-lock-legal-hold",
                                              "x-amz-website-redirect-location"};

static bool attr_add(struct s3_op *op, struct slice name, struct slice value) {
  if (op->attr_count == ATTR_COUNT_MAX) return false;
  op->attrs[op->attr_count++] = (struct attr){name, value};
  return true;
}

/* Repeated x-amz-meta headers are joined by commas (RFC 9110, 5.2). The joined text stands in
 * op->body, which does not move: room for all of it is taken first. */
static bool meta_join(struct s3_op *op, struct attr *to, struct slice more) {
  size_t len = to->value.len + 1 + more.len;
  uint8_t *room = put_space(&op->body, len);
  if (!room) return false;
  memcpy(room, to->value.data, to->value.len);
  room[to->value.len] = ',';
  memcpy(room + to->value.len + 1, more.data, more.len);
  to->value = slice_of(room, len);
  return true;
}

/* 0 or an S3 error + 1. */
static int put_collect_meta(struct s3_op *op) {
  size_t total = 0;
  unsigned first = op->attr_count;
  op->body.max = 4 * HTTP_HEAD_BYTES_MAX;
  for (unsigned i = 0; i < op->req->header_count; i++) {
    const struct http_header *h = &op->req->headers[i];
    if (!slice_starts_with(h->name, SLICE_LIT("x-amz-meta-"))) continue;
    total += h->name.len - strlen("x-amz-meta-") + h->value.len;
    if (total > S3_META_BYTES_MAX || h->name.len > ATTR_NAME_BYTES_MAX)
      return S3E_METADATA_TOO_LARGE + 1;
    struct attr *same = NULL;
    for (unsigned j = first; j < op->attr_count && !same; j++)
      if (slice_eq(op->attrs[j].name, h->name)) same = &op->attrs[j];
    if (!same && !attr_add(op, h->name, h->value)) return S3E_METADATA_TOO_LARGE + 1;
    if (!same) continue;
    if (op->body.cap == 0) { /* at most META_BYTES per join and META_BYTES joins: reserve once */
      (void)put_space(&op->body, 2 * HTTP_HEAD_BYTES_MAX);
      op->body.len = 0;
    }
    if (op->body.len + same->value.len + 1 + h->value.len > op->body.cap ||
        !meta_join(op, same, h->value))
      return S3E_METADATA_TOO_LARGE + 1;
  }
  return 0;
}

static int put_collect(struct s3_op *op) {
  const struct http_request *req = op->req;
  for (size_t i = 0; i < ARRAY_LEN(refused_headers); i++)
    if (http_header_find(req, refused_headers[i]).data) return S3E_NOT_IMPLEMENTED + 1;
  if (slice_starts_with(http_header_find(req, "x-amz-content-sha256"), SLICE_LIT("STREAMING-")))
    return S3E_NOT_IMPLEMENTED + 1; /* the framed bytes must not be stored as they are */
  for (size_t i = 0; i < ARRAY_LEN(stored_headers); i++) {
    struct slice value = http_header_find(req, stored_headers[i]);
    if (!value.data && i == 0) value = SLICE_LIT("binary/octet-stream");
    if (!value.data) continue;
    if (!attr_add(op, slice_str(stored_headers[i]), value)) return S3E_METADATA_TOO_LARGE + 1;
  }
  struct slice storage_class = http_header_find(req, "x-amz-storage-class");
  bool known = !storage_class.data;
  for (size_t i = 0; i < ARRAY_LEN(storage_classes) && !known; i++)
    known = slice_eq(storage_class, slice_str(storage_classes[i]));
  if (!known) return S3E_INVALID_STORAGE_CLASS + 1;
  return put_collect_meta(op);
}

/* Conditions of a write: If-None-Match: * and If-Match. 0 or an S3 error + 1. */
static int write_conditions_of(const struct s3_op *op, struct write_conditions *c) {
  struct slice none_match = http_header_find(op->req, "if-none-match");
  struct slice match = http_header_find(op->req, "if-match");
  *c = (struct write_conditions){.if_none_match_any = false};
  if (none_match.data) {
    if (!slice_eq(s3_etag_bare(none_match), SLICE_LIT("*"))) return S3E_NOT_IMPLEMENTED + 1;
    c->if_none_match_any = true;
  }
  if (match.data) c->if_match = s3_etag_bare(match);
  if (none_match.data && match.data) return S3E_INVALID_REQUEST + 1;
  return 0;
}

static void put_want_body(void *arg) {
  struct s3_op *op = arg;
  http_continue(op->req);
}

static void put_done(void *arg, const struct object_put_result *r) {
  struct s3_op *op = arg;
  op->put = NULL;
  if (r->err < 0) {
    /* After a broken body the connection's framing is not to be trusted. */
    if (r->err == ERR_BODY_SHORT || r->err == ERR_BODY_INVALID || r->err == ERR_TIMEOUT)
      http_close_after(op->req);
    s3_answer_error(op, s3_error_of(r->err, false));
    return;
  }
  http_header_addf(op->req, "ETag", "\"%s\"", r->etag);
  s3_answer(op, 200, (struct slice){NULL, 0});
}

void s3_object_put(struct s3_op *op) {
  const struct http_request *req = op->req;
  struct write_conditions conditions;
  int refused = put_collect(op);
  if (refused == 0) refused = write_conditions_of(op, &conditions);
  if (refused == 0 && !req->has_length && !req->chunked) refused = S3E_MISSING_LENGTH + 1;
  if (refused == 0 && req->has_length && req->body.length > OBJECT_BYTES_MAX)
    refused = S3E_ENTITY_TOO_LARGE + 1;
  struct slice md5 = http_header_find(req, "content-md5");
  if (refused == 0 && md5.data && base64_decode(md5, op->content_md5, MD5_LEN) != MD5_LEN)
    refused = S3E_INVALID_DIGEST + 1;
  if (refused > 0) {
    s3_answer_error(op, (enum s3_error)(refused - 1));
    return;
  }
  struct object_put_args args = {.bucket = &op->bucket,
                                 .key = op->key,
                                 .kind = ROW_PUT,
                                 .body = req->has_body ? &op->req->body : NULL,
                                 .attrs = op->attrs,
                                 .attr_count = op->attr_count,
                                 .conditions = conditions,
                                 .content_md5 = md5.data ? op->content_md5 : NULL,
                                 .want_body = put_want_body};
  if (object_put_start(op->s3->objects, &args, put_done, op, &op->put) < 0)
    s3_answer_error(op, S3E_SLOW_DOWN);
}

static void delete_done(void *arg, const struct object_put_result *r) {
  struct s3_op *op = arg;
  op->put = NULL;
  if (r->err < 0)
    s3_answer_error(op, s3_error_of(r->err, false));
  else
    s3_answer(op, 204, (struct slice){NULL, 0});
}

void s3_object_delete(struct s3_op *op) {
  struct write_conditions conditions;
  int refused = write_conditions_of(op, &conditions);
  if (refused == 0 && conditions.if_none_match_any) refused = S3E_INVALID_REQUEST + 1;
  if (refused > 0) {
    s3_answer_error(op, (enum s3_error)(refused - 1));
    return;
  }
  struct object_put_args args = {
      .bucket = &op->bucket, .key = op->key, .kind = ROW_TOMB, .conditions = conditions};
  if (object_put_start(op->s3->objects, &args, delete_done, op, &op->put) < 0)
    s3_answer_error(op, S3E_SLOW_DOWN);
}
