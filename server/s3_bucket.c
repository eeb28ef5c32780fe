/* s3_bucket.c: ListBuckets, CreateBucket, HeadBucket, DeleteBucket, GetBucketLocation. */
#include <errno.h>
#include <expat.h>
#include <stdlib.h>

#include "server/s3_op.h"

/* ---- GET / ---- */

static void service_list_done(void *arg, int err, const struct bucket_info *buckets, unsigned count,
                              bool truncated) {
  struct s3_op *op = arg;
  if (err < 0) {
    s3_answer_error(op, s3_error_of(err, true));
    return;
  }
  struct byte_writer w = {.max = S3_ANSWER_BYTES_MAX};
  xml_prolog(&w);
  xml_open(&w, "ListAllMyBucketsResult", XML_S3_NAMESPACE);
  xml_open(&w, "Owner", NULL);
  xml_text(&w, "ID", slice_str(op->user));
  xml_text(&w, "DisplayName", slice_str(op->user));
  xml_close(&w, "Owner");
  xml_open(&w, "Buckets", NULL);
  for (unsigned i = 0; i < count; i++) {
    xml_open(&w, "Bucket", NULL);
    xml_text(&w, "Name", slice_str(buckets[i].name));
    xml_time(&w, "CreationDate", buckets[i].created_ms);
    xml_close(&w, "Bucket");
  }
  xml_close(&w, "Buckets");
  if (truncated && count > 0) xml_text(&w, "ContinuationToken", slice_str(buckets[count - 1].name));
  xml_close(&w, "ListAllMyBucketsResult");
  s3_answer_xml(op, &w);
}

static int parse_limit(struct slice text, unsigned *ret) {
  uint64_t v = 0;
  if (text.len == 0 || text.len > 10) return ERR_INVALID;
  for (size_t i = 0; i < text.len; i++) {
    if (text.data[i] < '0' || text.data[i] > '9') return ERR_INVALID;
    v = v * 10 + (uint64_t)(text.data[i] - '0');
  }
  if (v == 0) return ERR_INVALID;
  *ret = (unsigned)MIN(v, (uint64_t)S3_LIST_KEYS_MAX);
  return 0;
}

void s3_service_list(struct s3_op *op) {
  unsigned limit = S3_LIST_KEYS_MAX;
  struct slice max = s3_param(op, "max-buckets");
  if (max.data && parse_limit(max, &limit) < 0) {
    s3_answer_error_words(op, S3E_INVALID_ARGUMENT, "max-buckets is a number from 1 to 1000.");
    return;
  }
  bucket_list(op->s3->objects, s3_param(op, "continuation-token"), s3_param(op, "prefix"), limit,
              service_list_done, op);
}

/* ---- PUT /bucket ---- */

/* What of <CreateBucketConfiguration> matters: the text of LocationConstraint. */
struct location_parse {
  char text[SETTINGS_NAME_BYTES_MAX + 1];
  size_t len;
  unsigned depth;
  bool inside, wrong, too_long;
};

static const char *local_name(const char *name) {
  const char *colon = strrchr(name, ':');
  return colon ? colon + 1 : name;
}

static void location_start(void *arg, const char *name, const char **atts) {
  struct location_parse *p = arg;
  const char *local = local_name(name);
  if (p->depth == 0 && strcmp(local, "CreateBucketConfiguration") != 0) p->wrong = true;
  if (p->depth == 1 && strcmp(local, "LocationConstraint") == 0) p->inside = true;
  p->depth++;
}

static void location_end(void *arg, const char *name) {
  struct location_parse *p = arg;
  p->depth--;
  if (p->depth == 1) p->inside = false;
}

static void location_text(void *arg, const char *text, int len) {
  struct location_parse *p = arg;
  if (!p->inside) return;
  if (p->len + (size_t)len >= sizeof p->text) {
    p->too_long = true;
    return;
  }
  memcpy(p->text + p->len, text, (size_t)len);
  p->len += (size_t)len;
}

/* Entity declarations could make a small body large: none is taken. */
static void location_entity(void *arg, const char *name, int is_parameter, const char *value,
                            int value_len, const char *base, const char *system_id,
                            const char *public_id, const char *notation) {
  struct location_parse *p = arg;
  p->wrong = true;
}

static int location_read(struct slice xml, struct location_parse *p) {
  XML_Parser parser = XML_ParserCreate(NULL);
  if (!parser) return -ENOMEM;
  XML_SetUserData(parser, p);
  XML_SetElementHandler(parser, location_start, location_end);
  XML_SetCharacterDataHandler(parser, location_text);
  XML_SetEntityDeclHandler(parser, location_entity);
  enum XML_Status status = XML_Parse(parser, (const char *)xml.data, (int)xml.len, 1);
  XML_ParserFree(parser);
  p->text[p->len] = 0;
  return status == XML_STATUS_OK && !p->wrong ? 0 : ERR_INVALID;
}

static void bucket_put_done(void *arg, int err, const struct bucket_info *info) {
  struct s3_op *op = arg;
  if (err == ERR_BUCKET_EXISTS && info && strcmp(info->owner, op->user) == 0)
    err = 0; /* as us-east-1 does */
  if (err < 0) {
    s3_answer_error(op, s3_error_of(err, true));
    return;
  }
  char location[S3_BUCKET_NAME_MAX + 2] = "/";
  memcpy(location + 1, op->bucket_name, strlen(op->bucket_name) + 1);
  http_header_add(op->req, "Location", location);
  s3_answer(op, 200, (struct slice){NULL, 0});
}

/* x-kofn-pool, else a LocationConstraint that is exactly a pool's name, else the default. */
static void bucket_put_go(struct s3_op *op) {
  const struct cluster_map *map = op->s3->objects->map;
  struct location_parse p = {.len = 0};
  int pool = (int)map->pool_default;
  if (op->body.len > 0 && location_read(slice_of(op->body.data, op->body.len), &p) < 0) {
    s3_answer_error(op, S3E_MALFORMED_XML);
    return;
  }
  struct slice location = slice_of(p.text, p.len);
  struct slice asked = http_header_find(op->req, "x-kofn-pool");
  if (p.len > 0 || p.too_long) {
    int named = cluster_map_find_pool(map, location);
    if (named > MAP_POOL_SYSTEM) pool = named;
    bool region = slice_eq(location, slice_str(op->s3->settings->server.region)) ||
                  slice_eq(location, SLICE_LIT("us-east-1"));
    if (p.too_long || (named <= MAP_POOL_SYSTEM && !region)) {
      s3_answer_error(op, S3E_INVALID_LOCATION);
      return;
    }
  }
  if (asked.data) {
    pool = cluster_map_find_pool(map, asked);
    if (pool <= MAP_POOL_SYSTEM) {
      s3_answer_error_words(op, S3E_INVALID_ARGUMENT,
                            "x-kofn-pool does not name a pool of this cluster.");
      return;
    }
  }
  bucket_create(op->s3->objects, slice_str(op->bucket_name), (unsigned)pool, slice_str(op->user),
                bucket_put_done, op);
}

static void bucket_put_read(void *arg, int err, size_t n) {
  struct s3_op *op = arg;
  if (err == 0 && n > S3_XML_BODY_BYTES_MAX) err = ERR_BODY_LONG;
  if (err < 0) {
    http_close_after(op->req);
    s3_answer_error(op, err == ERR_BODY_LONG ? S3E_MALFORMED_XML : s3_error_of(err, true));
    return;
  }
  put_bytes(&op->body, slice_of(op->read_buf, n));
  bucket_put_go(op);
}

void s3_bucket_put(struct s3_op *op) {
  if (!op->bucket_name[0]) {
    s3_answer_error(op, S3E_METHOD_NOT_ALLOWED);
    return;
  }
  if (!op->req->has_body) {
    bucket_put_go(op);
    return;
  }
  op->read_buf = malloc(S3_XML_BODY_BYTES_MAX + 1);
  if (!op->read_buf) {
    s3_answer_error(op, S3E_SLOW_DOWN);
    return;
  }
  op->req->body.ops->read(&op->req->body, op->read_buf, S3_XML_BODY_BYTES_MAX + 1, bucket_put_read,
                          op);
}

/* ---- HEAD, DELETE, ?location ---- */

void s3_bucket_head(struct s3_op *op) {
  http_header_add(op->req, "x-amz-bucket-region", op->s3->settings->server.region);
  http_header_add(op->req, "x-kofn-pool", op->s3->objects->map->pools[op->bucket.pool].name);
  s3_answer(op, 200, (struct slice){NULL, 0});
}

static void bucket_delete_done(void *arg, int err, const struct bucket_info *info) {
  struct s3_op *op = arg;
  if (err < 0)
    s3_answer_error(op, s3_error_of(err, true));
  else
    s3_answer(op, 204, (struct slice){NULL, 0});
}

void s3_bucket_delete(struct s3_op *op) {
  bucket_delete(op->s3->objects, slice_str(op->bucket_name), bucket_delete_done, op);
}

void s3_bucket_location(struct s3_op *op) {
  struct byte_writer w = {.max = S3_ANSWER_BYTES_MAX};
  const char *region = op->s3->settings->server.region;
  xml_prolog(&w);
  xml_open(&w, "LocationConstraint", XML_S3_NAMESPACE);
  if (strcmp(region, "us-east-1") != 0) put_bytes(&w, slice_str(region));
  xml_close(&w, "LocationConstraint");
  s3_answer_xml(op, &w);
}
