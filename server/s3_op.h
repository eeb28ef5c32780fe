/* s3_op.h: one S3 request being answered; shared by the s3_*.c files and by nobody else.
 *
 * An op is made in s3_handle, goes through authenticate -> route -> bucket lookup -> its handler,
 * and is freed by exactly one of s3_answer, s3_answer_error, s3_answer_done. When the client goes
 * away the running object operation is cancelled and the op ends through that operation's callback.
 */
#ifndef KOFN_SERVER_S3_OP_H
#define KOFN_SERVER_S3_OP_H

#include "codec/digest.h"
#include "config/err.h"
#include "server/s3.h"
#include "server/s3_error.h"
#include "server/s3_xml.h"

#define S3_PARAMS_MAX 32
#define S3_PARAM_BYTES_MAX 4096 /* all decoded query parameters of a request */
#define S3_BUCKET_NAME_MAX 63
#define S3_META_BYTES_MAX 2048 /* x-amz-meta-*, names and values */
#define S3_XML_BODY_BYTES_MAX (64u << 10)
#define S3_ANSWER_BYTES_MAX (16u << 20)
#define S3_LIST_KEYS_MAX 1000

struct s3_param {
  struct slice name, value; /* decoded; in op->param_bytes */
};

/* One range of a GET, resolved against the size. */
struct s3_range {
  bool partial;
  uint64_t offset, len;
};

struct s3_op {
  struct s3 *s3;
  struct http_request *req;
  const struct s3_route *route;
  const char *user; /* who asks; "anonymous" where no authentication is configured */
  char bucket_name[S3_BUCKET_NAME_MAX + 1];
  uint8_t key_bytes[KEY_BYTES_MAX];
  struct slice key; /* decoded; len 0: none */
  uint8_t param_bytes[S3_PARAM_BYTES_MAX];
  struct s3_param params[S3_PARAMS_MAX];
  unsigned param_count;
  struct bucket_info bucket;
  struct byte_writer body; /* an XML request body, or the joined attribute values of a PUT */
  uint8_t *read_buf;       /* room for the XML request body */
  /* object operations, while they run */
  struct object_put *put;
  struct object_get *get;
  struct object_list *list;
  struct attr attrs[ATTR_COUNT_MAX];
  unsigned attr_count;
  uint8_t content_md5[MD5_LEN];
  uint64_t read_len;
  const char *refusal; /* words for a refused authentication; NULL: the table's */
  bool gone;
};

struct s3_route {
  enum http_method method;
  enum { S3_ON_SERVICE, S3_ON_BUCKET, S3_ON_OBJECT } on;
  const char
      *param;  /* the query parameter that selects this route; NULL: none of the sub-resources */
  bool lookup; /* the bucket must exist: looked up before `run` */
  bool write;  /* a 60 s old cache entry is not good enough */
  void (*run)(struct s3_op *op);
};

/* ---- answering: each frees the op ---- */
void s3_answer(struct s3_op *op, int status, struct slice body);
/* XML body in `w`, which is freed. */
void s3_answer_xml(struct s3_op *op, struct byte_writer *w);
void s3_answer_error(struct s3_op *op, enum s3_error e);
void s3_answer_error_words(struct s3_op *op, enum s3_error e, const char *words);
/* After http_begin: ends the answer, or resets the connection where err < 0. */
void s3_answer_done(struct s3_op *op, int err);

/* ---- query ---- */
/* Value of a parameter; data == NULL when it is not there. */
struct slice s3_param(const struct s3_op *op, const char *name);
/* Parses the raw query into op->params. */
_must_check_ int s3_params_parse(struct s3_op *op);

/* ---- authentication: who is asking; one place, before routing ---- */
/* 0 with op->user set, or the S3 error to answer as a positive number + 1. */
int s3_authenticate(struct s3_op *op);

bool s3_bucket_name_valid(struct slice name);

/* ---- conditions and ranges (s3_cond.c, pure) ---- */
/* True where the list of entity tags in `header` ("*", quoted, bare, weak, &quot;) holds `etag`. */
bool s3_etag_matches(struct slice header, struct slice etag);
/* Removes quotes (also &quot; and &#34;) around one entity tag. */
struct slice s3_etag_bare(struct slice header);
/* 0: go on; 304 or 412. RFC 9110, 13.2.2. */
int s3_conditions(const struct http_request *req, struct slice etag, uint64_t mtime_ms);
/* 0; or -1: unsatisfiable (416). A malformed or multiple range means the whole object. */
int s3_range_parse(struct slice header, uint64_t size, struct s3_range *ret);

/* ---- handlers ---- */
void s3_service_list(struct s3_op *op);
void s3_bucket_put(struct s3_op *op);
void s3_bucket_head(struct s3_op *op);
void s3_bucket_delete(struct s3_op *op);
void s3_bucket_location(struct s3_op *op);
void s3_bucket_list(struct s3_op *op);
void s3_object_put(struct s3_op *op);
void s3_object_get(struct s3_op *op); /* and HEAD */
void s3_object_delete(struct s3_op *op);

#endif
