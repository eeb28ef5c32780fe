/* s3_route.c: from an HTTP request to its handler: one table. */
#include <stdlib.h>

#include "server/s3_op.h"

static const struct s3_route routes[] = {
    {HTTP_M_GET, S3_ON_SERVICE, NULL, false, false, s3_service_list},
    {HTTP_M_PUT, S3_ON_BUCKET, NULL, false, false, s3_bucket_put},
    {HTTP_M_HEAD, S3_ON_BUCKET, NULL, true, false, s3_bucket_head},
    {HTTP_M_DELETE, S3_ON_BUCKET, NULL, false, false, s3_bucket_delete},
    {HTTP_M_GET, S3_ON_BUCKET, "location", true, false, s3_bucket_location},
    {HTTP_M_GET, S3_ON_BUCKET, NULL, true, false, s3_bucket_list},
    {HTTP_M_PUT, S3_ON_OBJECT, NULL, true, true, s3_object_put},
    {HTTP_M_GET, S3_ON_OBJECT, NULL, true, false, s3_object_get},
    {HTTP_M_HEAD, S3_ON_OBJECT, NULL, true, false, s3_object_get},
    {HTTP_M_DELETE, S3_ON_OBJECT, NULL, true, true, s3_object_delete},
};

/* Query parameters that select another resource than the object or bucket itself: never treat
 * `?acl` as the object. */
static const char *const sub_resources[] = {"accelerate",
                                            "acl",
                                            "analytics",
                                            "attributes",
                                            "cors",
                                            "delete",
                                            "encryption",
                                            "intelligent-tiering",
                                            "inventory",
                                            "legal-hold",
                                            "lifecycle",
                                            "location",
                                            "logging",
                                            "metrics",
                                            "notification",
                                            "object-lock",
                                            "ownershipControls",
                                            "partNumber",
                                            "policy",
                                            "policyStatus",
                                            "publicAccessBlock",
                                            "replication",
                                            "requestPayment",
                                            "restore",
                                            "retention",
                                            "select",
                                            "session",
                                            "tagging",
                                            "torrent",
                                            "uploadId",
                                            "uploads",
                                            "versionId",
                                            "versioning",
                                            "versions",
                                            "website"};

static const char *route_sub_resource(const struct s3_op *op) {
  for (size_t i = 0; i < ARRAY_LEN(sub_resources); i++) {
    struct slice value = s3_param(op, sub_resources[i]);
    if (!value.data) continue;
    /* Buckets without versions hold the "null" version of every key. */
    if (strcmp(sub_resources[i], "versionId") == 0 && slice_eq(value, SLICE_LIT("null"))) continue;
    return sub_resources[i];
  }
  return NULL;
}

struct slice s3_param(const struct s3_op *op, const char *name) {
  for (unsigned i = 0; i < op->param_count; i++)
    if (slice_eq(op->params[i].name, slice_str(name))) return op->params[i].value;
  return (struct slice){NULL, 0};
}

/* Decodes one name or value of the query ('+' is a space there) into op->param_bytes. */
static int params_decode(struct s3_op *op, struct slice raw, size_t *used, struct slice *ret) {
  uint8_t *out = op->param_bytes + *used;
  int len = http_percent_decode(raw, out, sizeof op->param_bytes - *used);
  if (len < 0) return len;
  size_t plus = 0; /* a decoded "%2B" must stay: count along the raw text */
  for (size_t i = 0; i < raw.len; i++, plus++) {
    if (raw.data[i] == '%')
      i += 2;
    else if (raw.data[i] == '+')
      out[plus] = ' ';
  }
  *used += (size_t)len;
  *ret = slice_of(out, (size_t)len);
  return 0;
}

int s3_params_parse(struct s3_op *op) {
  struct slice left = op->req->query;
  size_t used = 0;
  while (left.data && left.len > 0) {
    const uint8_t *amp = memchr(left.data, '&', left.len);
    struct slice one = slice_of(left.data, amp ? (size_t)(amp - left.data) : left.len);
    left = amp ? slice_of(amp + 1, left.len - one.len - 1) : (struct slice){NULL, 0};
    if (one.len == 0) continue;
    if (op->param_count == S3_PARAMS_MAX) return ERR_TOO_LARGE;
    const uint8_t *eq = memchr(one.data, '=', one.len);
    size_t name_len = eq ? (size_t)(eq - one.data) : one.len;
    struct s3_param *p = &op->params[op->param_count++];
    int err = params_decode(op, slice_of(one.data, name_len), &used, &p->name);
    if (err < 0) return err;
    struct slice value = eq ? slice_of(eq + 1, one.len - name_len - 1) : slice_of(one.data, 0);
    err = params_decode(op, value, &used, &p->value);
    if (err < 0) return err;
  }
  return 0;
}

/* S3's rules for general purpose buckets. */
bool s3_bucket_name_valid(struct slice name) {
  if (name.len < 3 || name.len > S3_BUCKET_NAME_MAX) return false;
  unsigned dots = 0, letters = 0;
  for (size_t i = 0; i < name.len; i++) {
    uint8_t c = name.data[i], before = i ? name.data[i - 1] : '.';
    bool letter = c >= 'a' && c <= 'z', digit = c >= '0' && c <= '9';
    bool edge = i == 0 || i == name.len - 1;
    if (!letter && !digit && (edge || (c != '.' && c != '-'))) return false;
    if (c == '.' && i > 0 && (before == '.' || before == '-')) return false;
    if (c == '-' && before == '.') return false;
    dots += c == '.';
    letters += letter || c == '-';
  }
  if (dots == 3 && letters == 0) return false; /* looks like an IPv4 address */
  if (slice_starts_with(name, SLICE_LIT("xn--"))) return false;
  struct slice tail = slice_of(name.data + name.len - MIN(name.len, 8), MIN(name.len, 8));
  return !slice_eq(tail, SLICE_LIT("-s3alias"));
}

/* 0 with bucket_name and key set; S3E_* + 1 otherwise. */
static int route_path(struct s3_op *op) {
  struct slice path = op->req->path;
  if (path.len == 0 || path.data[0] != '/') return S3E_INVALID_URI + 1;
  struct slice rest = slice_of(path.data + 1, path.len - 1);
  const uint8_t *slash = rest.len ? memchr(rest.data, '/', rest.len) : NULL;
  struct slice bucket = slice_of(rest.data, slash ? (size_t)(slash - rest.data) : rest.len);
  uint8_t name[S3_BUCKET_NAME_MAX + 1];
  int len = http_percent_decode(bucket, name, S3_BUCKET_NAME_MAX);
  if (len == ERR_TOO_LARGE) return S3E_INVALID_BUCKET_NAME + 1;
  if (len < 0) return S3E_INVALID_URI + 1;
  if (len > 0 && !s3_bucket_name_valid(slice_of(name, (size_t)len)))
    return S3E_INVALID_BUCKET_NAME + 1;
  memcpy(op->bucket_name, name, (size_t)len);
  op->bucket_name[len] = 0;
  if (!slash) return 0;
  struct slice raw = slice_of(slash + 1, rest.len - bucket.len - 1);
  if (raw.len == 0) return 0;
  if (len == 0) return S3E_INVALID_BUCKET_NAME + 1;
  int key_len = http_percent_decode(raw, op->key_bytes, sizeof op->key_bytes);
  if (key_len == ERR_TOO_LARGE) return S3E_KEY_TOO_LONG + 1;
  if (key_len < 0) return S3E_INVALID_URI + 1;
  op->key = slice_of(op->key_bytes, (size_t)key_len);
  if (memchr(op->key_bytes, 0, (size_t)key_len) || !utf8_valid(op->key)) return S3E_INVALID_URI + 1;
  return 0;
}

static void route_bucket_found(void *arg, int err, const struct bucket_info *info) {
  struct s3_op *op = arg;
  if (op->gone) {
    s3_answer_error(op, S3E_INTERNAL); /* nobody reads it: the op and the request end here */
    return;
  }
  if (err < 0) {
    s3_answer_error(op, s3_error_of(err, true));
    return;
  }
  op->bucket = *info;
  op->route->run(op);
}

static const struct s3_route *route_find(const struct s3_op *op, const char *sub) {
  int on = op->key.len > 0 ? S3_ON_OBJECT : op->bucket_name[0] ? S3_ON_BUCKET : S3_ON_SERVICE;
  for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
    const struct s3_route *r = &routes[i];
    bool same_sub = sub ? r->param && strcmp(r->param, sub) == 0 : !r->param;
    if (r->method == op->req->method && (int)r->on == on && same_sub) return r;
  }
  return NULL;
}

static void s3_gone(struct http_request *req) {
  struct s3_op *op = req->user;
  op->gone = true;
  if (op->put) object_put_cancel(op->put);
  if (op->get) object_get_cancel(op->get);
  if (op->list) object_list_cancel(op->list);
}

static void s3_handle(void *arg, struct http_request *req) {
  struct s3 *s3 = arg;
  struct s3_op *op = calloc(1, sizeof *op);
  STAT_ADD(s3->stats.requests, 1);
  if (!op) {
    http_header_add(req, "Retry-After", "1");
    http_respond(req, 503, (struct slice){NULL, 0});
    return;
  }
  s3->running++;
  op->s3 = s3;
  op->req = req;
  op->body.max = S3_XML_BODY_BYTES_MAX;
  req->user = op;
  req->gone = s3_gone;
  int refused = s3_authenticate(op);
  if (refused > 0) {
    enum s3_error e = (enum s3_error)(refused - 1);
    STAT_ADD(s3->stats.unauthorized, 1);
    s3_answer_error_words(op, e, op->refusal ? op->refusal : s3_error_message(e));
    return;
  }
  refused = route_path(op);
  if (refused > 0) {
    s3_answer_error(op, (enum s3_error)(refused - 1));
    return;
  }
  if (s3_params_parse(op) < 0) {
    s3_answer_error(op, S3E_INVALID_URI);
    return;
  }
  const char *sub = route_sub_resource(op);
  op->route = route_find(op, sub);
  if (!op->route)
    s3_answer_error(op, sub ? S3E_NOT_IMPLEMENTED : S3E_METHOD_NOT_ALLOWED);
  else if (op->route->lookup)
    bucket_lookup(s3->objects, slice_str(op->bucket_name), op->route->write, route_bucket_found,
                  op);
  else
    op->route->run(op);
}

static void s3_describe(void *arg, int status, const char *code, const char *message,
                        const char *request_id, struct byte_writer *body) {
  s3_error_body(body, code, message, (struct slice){NULL, 0}, request_id);
}

struct http_handler s3_handler(struct s3 *s3) {
  return (struct http_handler){s3_handle, s3_describe, s3};
}

/* ---- answering ---- */

static void op_free(struct s3_op *op) {
  op->s3->running--;
  byte_writer_free(&op->body);
  free(op->read_buf);
  free(op);
}

static void op_count(struct s3_op *op, int status) {
  if (status >= 500)
    STAT_ADD(op->s3->stats.errors_5xx, 1);
  else if (status >= 400)
    STAT_ADD(op->s3->stats.errors_4xx, 1);
}

void s3_answer(struct s3_op *op, int status, struct slice body) {
  struct http_request *req = op->req;
  op_count(op, status);
  req->gone = NULL;
  req->user = NULL;
  http_respond(req, status, body);
  op_free(op);
}

void s3_answer_xml(struct s3_op *op, struct byte_writer *w) {
  if (w->failed) {
    byte_writer_free(w);
    s3_answer_error(op, S3E_SLOW_DOWN);
    return;
  }
  http_header_add(op->req, "Content-Type", "application/xml");
  s3_answer(op, 200, slice_of(w->data, w->len));
  byte_writer_free(w);
}

void s3_answer_error_words(struct s3_op *op, enum s3_error e, const char *words) {
  struct byte_writer w = {.max = S3_ANSWER_BYTES_MAX};
  int status = s3_error_status(e);
  s3_error_body(&w, s3_error_code(e), words, op->req->path, op->req->id);
  if (status != 304) http_header_add(op->req, "Content-Type", "application/xml");
  if (status == 503) http_header_add(op->req, "Retry-After", "1");
  s3_answer(op, status, w.failed ? (struct slice){NULL, 0} : slice_of(w.data, w.len));
  byte_writer_free(&w);
}

void s3_answer_error(struct s3_op *op, enum s3_error e) {
  s3_answer_error_words(op, e, s3_error_message(e));
}

void s3_answer_done(struct s3_op *op, int err) {
  struct http_request *req = op->req;
  req->gone = NULL;
  req->user = NULL;
  if (err < 0)
    http_reset(req);
  else
    http_end(req);
  op_free(op);
}
