/* s3_list.c: ListObjects, versions 1 and 2.
 *
 * A continuation token is hex(HMAC-SHA256(cluster secret, bucket uuid, key) cut to 16 bytes, key):
 * any host can check it, and nobody can make one up. Source: S3 API reference, ListObjectsV2 and
 * ListObjects. */
#include <stdlib.h>

#include "server/s3_op.h"

#define TOKEN_MAC_LEN 16
#define TOKEN_BYTES_MAX (TOKEN_MAC_LEN + KEY_BYTES_MAX)

struct list_query {
  bool v2, url, fetch_owner;
  struct slice prefix, delimiter, start, token;
  unsigned max_keys;
  bool max_is_zero;
};

/* The list's own things, from the request to the answer. */
struct list_answer {
  struct s3_op *op;
  struct list_query q;
  uint8_t from[TOKEN_BYTES_MAX];
  size_t from_len;
};

static void token_mac(const struct s3_op *op, struct slice key, uint8_t mac[SHA256_LEN]) {
  const struct settings *s = op->s3->settings;
  uint8_t text[sizeof op->bucket.uuid.bytes + KEY_BYTES_MAX];
  memcpy(text, op->bucket.uuid.bytes, sizeof op->bucket.uuid.bytes);
  memcpy(text + sizeof op->bucket.uuid.bytes, key.data, key.len);
  hmac_sha256(slice_of(s->cluster.secret, s->cluster.secret_len),
              slice_of(text, sizeof op->bucket.uuid.bytes + key.len), mac);
}

static void token_write(struct byte_writer *w, const struct s3_op *op, struct slice key) {
  uint8_t mac[SHA256_LEN], plain[TOKEN_BYTES_MAX];
  char hex[2 * TOKEN_BYTES_MAX + 1];
  token_mac(op, key, mac);
  memcpy(plain, mac, TOKEN_MAC_LEN);
  memcpy(plain + TOKEN_MAC_LEN, key.data, key.len);
  hex_encode(plain, TOKEN_MAC_LEN + key.len, hex);
  xml_text(w, "NextContinuationToken", slice_str(hex));
}

/* The key inside, or ERR_INVALID. */
static int token_read(const struct s3_op *op, struct slice token, uint8_t *key, size_t *ret_len) {
  uint8_t plain[TOKEN_BYTES_MAX], mac[SHA256_LEN];
  if (token.len % 2 || token.len <= 2 * TOKEN_MAC_LEN || token.len > 2 * TOKEN_BYTES_MAX)
    return ERR_INVALID;
  size_t len = token.len / 2;
  if (hex_decode(token, plain, len) < 0) return ERR_INVALID;
  struct slice inside = slice_of(plain + TOKEN_MAC_LEN, len - TOKEN_MAC_LEN);
  token_mac(op, inside, mac);
  if (!digest_equal(mac, plain, TOKEN_MAC_LEN)) return ERR_INVALID;
  memcpy(key, inside.data, inside.len);
  *ret_len = inside.len;
  return 0;
}

static int list_max_keys(struct slice text, struct list_query *q) {
  uint64_t v = 0;
  q->max_keys = S3_LIST_KEYS_MAX;
  if (!text.data || text.len == 0) return 0;
  if (text.len > 10) return ERR_INVALID;
  for (size_t i = 0; i < text.len; i++) {
    if (text.data[i] < '0' || text.data[i] > '9') return ERR_INVALID;
    v = v * 10 + (uint64_t)(text.data[i] - '0');
  }
  if (v > INT32_MAX) return ERR_INVALID;
  q->max_is_zero = v == 0;
  q->max_keys = (unsigned)MIN(v, (uint64_t)S3_LIST_KEYS_MAX);
  return 0;
}

/* 0, or an S3 error + 1 with words. */
static int list_query_parse(struct list_answer *a, const char **words) {
  struct s3_op *op = a->op;
  struct list_query *q = &a->q;
  struct slice type = s3_param(op, "list-type"), encoding = s3_param(op, "encoding-type");
  if (type.data && !slice_eq(type, SLICE_LIT("2"))) {
    *words = "list-type is 2, or absent for version 1.";
    return S3E_INVALID_ARGUMENT + 1;
  }
  if (encoding.data && encoding.len > 0 && !slice_eq(encoding, SLICE_LIT("url"))) {
    *words = "encoding-type is url, or absent.";
    return S3E_INVALID_ARGUMENT + 1;
  }
  q->v2 = type.data != NULL;
  q->url = encoding.len > 0;
  q->fetch_owner = slice_eq(s3_param(op, "fetch-owner"), SLICE_LIT("true"));
  q->prefix = s3_param(op, "prefix");
  q->delimiter = s3_param(op, "delimiter");
  q->start = s3_param(op, q->v2 ? "start-after" : "marker");
  q->token = q->v2 ? s3_param(op, "continuation-token") : (struct slice){NULL, 0};
  if (list_max_keys(s3_param(op, "max-keys"), q) < 0) {
    *words = "max-keys is a number from 0 to 2147483647.";
    return S3E_INVALID_ARGUMENT + 1;
  }
  if (q->prefix.len > KEY_BYTES_MAX || q->delimiter.len > KEY_BYTES_MAX ||
      q->start.len > KEY_BYTES_MAX) {
    *words = "prefix, delimiter, marker and start-after have at most 1024 bytes.";
    return S3E_INVALID_ARGUMENT + 1;
  }
  if (q->token.data) {
    if (token_read(op, q->token, a->from, &a->from_len) < 0) {
      *words = "The continuation token is not one that this bucket gave.";
      return S3E_INVALID_ARGUMENT + 1;
    }
  } else if (q->start.len > 0) {
    memcpy(a->from, q->start.data, q->start.len);
    a->from_len = q->start.len;
  }
  return 0;
}

static void list_text(struct byte_writer *w, const struct list_query *q, const char *name,
                      struct slice text) {
  if (q->url)
    xml_text_url(w, name, text);
  else
    xml_text(w, name, text);
}

static void list_owner(struct byte_writer *w, const struct s3_op *op) {
  xml_open(w, "Owner", NULL);
  xml_text(w, "ID", slice_str(op->bucket.owner));
  xml_text(w, "DisplayName", slice_str(op->bucket.owner));
  xml_close(w, "Owner");
}

static void list_items(struct byte_writer *w, const struct list_answer *a,
                       const struct object_list_result *r) {
  for (unsigned i = 0; i < r->count; i++) {
    const struct object_list_item *item = &r->items[i];
    if (item->is_prefix) continue;
    xml_open(w, "Contents", NULL);
    list_text(w, &a->q, "Key", item->key);
    xml_time(w, "LastModified", item->mtime_ms);
    xml_etag(w, "ETag", item->etag);
    xml_u64(w, "Size", item->size);
    xml_text(w, "StorageClass", SLICE_LIT("STANDARD"));
    if (!a->q.v2 || a->q.fetch_owner) list_owner(w, a->op);
    xml_close(w, "Contents");
  }
  for (unsigned i = 0; i < r->count; i++) {
    if (!r->items[i].is_prefix) continue;
    xml_open(w, "CommonPrefixes", NULL);
    list_text(w, &a->q, "Prefix", r->items[i].key);
    xml_close(w, "CommonPrefixes");
  }
}

static void list_head_v1(struct byte_writer *w, const struct list_answer *a,
                         const struct object_list_result *r) {
  list_text(w, &a->q, "Marker", a->q.start);
  if (r->truncated && r->count > 0 && a->q.delimiter.len > 0)
    list_text(w, &a->q, "NextMarker", r->items[r->count - 1].key);
}

static void list_head_v2(struct byte_writer *w, const struct list_answer *a,
                         const struct object_list_result *r) {
  xml_u64(w, "KeyCount", r->count);
  if (a->q.start.data) list_text(w, &a->q, "StartAfter", a->q.start);
  if (a->q.token.data) xml_text(w, "ContinuationToken", a->q.token);
  if (r->truncated && r->count > 0) token_write(w, a->op, r->items[r->count - 1].key);
}

static void list_write(struct byte_writer *w, const struct list_answer *a,
                       const struct object_list_result *r) {
  xml_prolog(w);
  xml_open(w, "ListBucketResult", XML_S3_NAMESPACE);
  xml_text(w, "Name", slice_str(a->op->bucket_name));
  list_text(w, &a->q, "Prefix", a->q.prefix);
  if (a->q.delimiter.len > 0) list_text(w, &a->q, "Delimiter", a->q.delimiter);
  xml_u64(w, "MaxKeys", a->q.max_keys);
  if (a->q.url) xml_text(w, "EncodingType", SLICE_LIT("url"));
  xml_bool(w, "IsTruncated", r->truncated);
  if (a->q.v2)
    list_head_v2(w, a, r);
  else
    list_head_v1(w, a, r);
  list_items(w, a, r);
  xml_close(w, "ListBucketResult");
}

static void list_done(void *arg, const struct object_list_result *r) {
  struct list_answer *a = arg;
  struct s3_op *op = a->op;
  op->list = NULL;
  if (r->err < 0) {
    free(a);
    s3_answer_error(op, s3_error_of(r->err, true));
    return;
  }
  struct byte_writer w = {.max = S3_ANSWER_BYTES_MAX};
  list_write(&w, a, r);
  free(a);
  s3_answer_xml(op, &w);
}

void s3_bucket_list(struct s3_op *op) {
  struct list_answer *a = calloc(1, sizeof *a);
  const char *words = "";
  if (!a) {
    s3_answer_error(op, S3E_SLOW_DOWN);
    return;
  }
  a->op = op;
  int refused = list_query_parse(a, &words);
  if (refused > 0) {
    free(a);
    s3_answer_error_words(op, (enum s3_error)(refused - 1), words);
    return;
  }
  if (a->q.max_is_zero) {
    list_done(a, &(struct object_list_result){.err = 0});
    return;
  }
  struct object_list_args args = {.bucket = &op->bucket,
                                  .prefix = a->q.prefix,
                                  .delimiter = a->q.delimiter,
                                  .from = slice_of(a->from, a->from_len),
                                  .limit = a->q.max_keys};
  if (object_list_start(op->s3->objects, &args, list_done, a, &op->list) < 0) {
    free(a);
    s3_answer_error(op, S3E_SLOW_DOWN);
  }
}
