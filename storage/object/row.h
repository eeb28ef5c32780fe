/* row.h: a version's metadata, and its bytes on disk and wire (PROTOCOL.md 3).
 *
 * A row is immutable and the same on all N drives. Its encoding ends with the CRC32C of bucket
 * uuid, key and the bytes before, so that a row under another key fails too. */
#ifndef KOFN_STORAGE_OBJECT_ROW_H
#define KOFN_STORAGE_OBJECT_ROW_H

#include "codec/bytes.h"
#include "codec/stripe.h"
#include "storage/object/version.h"

#define ROW_BYTES_MAX 16384
#define KEY_BYTES_MAX 1024
#define ATTR_NAME_BYTES_MAX 256
#define ATTR_COUNT_MAX 128
#define ETAG_BYTES_MAX 64
#define OBJECT_BYTES_MAX (5ull << 30) /* one PUT, as S3 */

enum row_kind { ROW_PUT = 1, ROW_TOMB = 2 };

/* A stored header ("content-type", "x-amz-meta-a") or a bucket's field ("uuid"). Names are lower
 * case. */
struct attr {
  struct slice name, value;
};

/* All slices are borrowed: from the encoded row (row_decode) or from the caller (building). */
struct row {
  struct version ver;
  uint8_t kind;
  struct id128 op_id;   /* the client operation; survives a re-proposal */
  struct id128 data_id; /* the immutable chunk set; zero for an empty object or a tombstone */
  struct profile profile;
  uint64_t size;
  uint64_t mtime_ms;                   /* wall clock: Last-Modified */
  struct slice etag;                   /* without quotes */
  struct id128 digests[MAP_SLOTS_MAX]; /* digest of each of the N chunks */
  unsigned attr_count;
  struct slice attrs_raw; /* encoded attributes; row_attr walks it */
};

/* Encodes `row` with `attrs` (attr_count of them; row->attr_count and attrs_raw are ignored) into a
 * malloc'ed buffer. With attrs == NULL the row's own attrs_raw is copied (re-proposal at another
 * ver). ERR_TOO_LARGE beyond ROW_BYTES_MAX. The caller frees *ret_bytes. */
_must_check_ int row_encode(const struct row *row, const struct attr *attrs, unsigned attr_count,
                            const struct id128 *bucket, struct slice key, uint8_t **ret_bytes,
                            size_t *ret_len);

/* Checks CRC and every field; ERR_CORRUPT otherwise. *ret_row borrows from `bytes`. */
_must_check_ int row_decode(struct slice bytes, const struct id128 *bucket, struct slice key,
                            struct row *ret_row);

/* Walks the attributes: start with *at = 0; false at the end. */
bool row_attr(const struct row *row, size_t *at, struct attr *ret_attr);
/* The named attribute's value, or an empty slice with data == NULL. */
struct slice row_attr_find(const struct row *row, const char *name);

static inline bool row_has_data(const struct row *row) {
  return row->kind == ROW_PUT && row->size > 0;
}
struct stripe_geometry row_geometry(const struct row *row);

#endif
