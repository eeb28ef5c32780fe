/* row.c: the bytes of a row.
 *
 *   format u8 | kind u8 | ver 16 | op_id 16 | data_id 16 | technique, k, m u8 | unit u32
 *   size u64 | mtime u64 | etag str16 | N digests of 16 (only of a row with data)
 *   attribute count u16 | attributes str16 (name str16, value str16 each) | crc32c u32
 *
 * The CRC covers bucket uuid and key too: a row that was misplaced by a disk or an index fails.
 * Encoder and decoder refuse the same things, so that whatever was written can be read. */
#include "storage/object/row.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "codec/crc32c.h"
#include "config/err.h"

#define ROW_FORMAT 1
#define ROW_CRC_BYTES 4
#define ROW_FIXED_BYTES 83 /* all but ETag, digests and attributes; with the CRC */

static uint32_t row_crc(const struct id128 *bucket, struct slice key, const uint8_t *bytes,
                        size_t len) {
  uint32_t crc = crc32c(0, bucket->bytes, sizeof bucket->bytes);
  if (key.len) crc = crc32c(crc, key.data, key.len);
  return crc32c(crc, bytes, len);
}

/* A tombstone encodes nothing, so it may come without a profile. */
static bool row_profile_ok(const struct row *row) {
  const struct profile *p = &row->profile;
  if (p->technique >= TECHNIQUE_COUNT || profile_n(p) > MAP_SLOTS_MAX) return false;
  if (p->k == 0) return row->kind == ROW_TOMB && p->m == 0;
  return p->unit_bytes > 0;
}

static bool row_fields_ok(const struct row *row) {
  if (row->kind != ROW_PUT && row->kind != ROW_TOMB) return false;
  if (version_is_zero(&row->ver) || !row_profile_ok(row)) return false;
  if (row->kind == ROW_TOMB && row->size != 0) return false;
  if (row_has_data(row) == id128_is_zero(&row->data_id)) return false;
  return row->etag.len <= ETAG_BYTES_MAX;
}

static bool row_attr_ok(const struct attr *attr) {
  return attr->name.len > 0 && attr->name.len <= ATTR_NAME_BYTES_MAX;
}

static void row_put_fields(struct byte_writer *w, const struct row *row) {
  put_u8(w, ROW_FORMAT);
  put_u8(w, row->kind);
  put_u64(w, row->ver.hlc);
  put_u64(w, row->ver.nonce);
  put_id(w, &row->op_id);
  put_id(w, &row->data_id);
  put_u8(w, row->profile.technique);
  put_u8(w, row->profile.k);
  put_u8(w, row->profile.m);
  put_u32(w, row->profile.unit_bytes);
  put_u64(w, row->size);
  put_u64(w, row->mtime_ms);
  put_str16(w, row->etag);
  unsigned digest_count = row_has_data(row) ? profile_n(&row->profile) : 0;
  for (unsigned i = 0; i < digest_count; i++) put_id(w, &row->digests[i]);
}

static void row_put_attrs(struct byte_writer *w, const struct row *row, const struct attr *attrs,
                          unsigned attr_count) {
  if (!attrs) {
    put_u16(w, (uint16_t)row->attr_count);
    put_str16(w, row->attrs_raw);
    return;
  }
  put_u16(w, (uint16_t)attr_count);
  size_t length_at = w->len;
  put_u16(w, 0);
  for (unsigned i = 0; i < attr_count; i++) {
    put_str16(w, attrs[i].name);
    put_str16(w, attrs[i].value);
  }
  if (w->failed) return;
  store_be16(w->data + length_at, (uint16_t)(w->len - length_at - 2)); /* <= ROW_BYTES_MAX */
}

/* Whether it must fail for its size, so that a failed writer afterwards means no memory. */
static bool row_too_large(const struct row *row, const struct attr *attrs, unsigned attr_count) {
  size_t total = ROW_FIXED_BYTES + row->etag.len;
  total += row_has_data(row) ? sizeof(struct id128) * profile_n(&row->profile) : 0;
  if (!attrs) return row->attrs_raw.len > ROW_BYTES_MAX - total;
  if (attr_count > ATTR_COUNT_MAX) return true;
  for (unsigned i = 0; i < attr_count; i++) {
    if (attrs[i].value.len > ROW_BYTES_MAX) return true;
    total += attrs[i].name.len + attrs[i].value.len + 4;
  }
  return total > ROW_BYTES_MAX;
}

int row_encode(const struct row *row, const struct attr *attrs, unsigned attr_count,
               const struct id128 *bucket, struct slice key, uint8_t **ret_bytes, size_t *ret_len) {
  if (!row_fields_ok(row) || key.len > KEY_BYTES_MAX) return ERR_INVALID;
  for (unsigned i = 0; attrs && i < attr_count; i++)
    if (!row_attr_ok(&attrs[i])) return ERR_INVALID;
  if (row_too_large(row, attrs, attr_count)) return ERR_TOO_LARGE;

  struct byte_writer w = {.max = ROW_BYTES_MAX};
  row_put_fields(&w, row);
  row_put_attrs(&w, row, attrs, attr_count);
  if (!w.failed) put_u32(&w, row_crc(bucket, key, w.data, w.len));
  if (w.failed) {
    byte_writer_free(&w);
    return -ENOMEM;
  }
  *ret_bytes = w.data;
  *ret_len = w.len;
  return 0;
}

static bool row_attrs_ok(const struct row *row) {
  struct byte_reader r = byte_reader_of(row->attrs_raw);
  for (unsigned i = 0; i < row->attr_count; i++) {
    struct attr attr = {.name = get_str16(&r)};
    attr.value = get_str16(&r);
    if (r.failed || !row_attr_ok(&attr)) return false;
  }
  return byte_reader_left(&r) == 0;
}

static void row_get_fields(struct byte_reader *r, struct row *row) {
  row->kind = get_u8(r);
  row->ver.hlc = get_u64(r);
  row->ver.nonce = get_u64(r);
  row->op_id = get_id(r);
  row->data_id = get_id(r);
  row->profile.technique = get_u8(r);
  row->profile.k = get_u8(r);
  row->profile.m = get_u8(r);
  row->profile.unit_bytes = get_u32(r);
  row->size = get_u64(r);
  row->mtime_ms = get_u64(r);
  row->etag = get_str16(r);
}

int row_decode(struct slice bytes, const struct id128 *bucket, struct slice key,
               struct row *ret_row) {
  if (bytes.len <= ROW_CRC_BYTES || bytes.len > ROW_BYTES_MAX || key.len > KEY_BYTES_MAX)
    return ERR_CORRUPT;
  size_t body_len = bytes.len - ROW_CRC_BYTES;
  if (load_be32(bytes.data + body_len) != row_crc(bucket, key, bytes.data, body_len))
    return ERR_CORRUPT;

  struct byte_reader r = byte_reader_of(slice_of(bytes.data, body_len));
  if (get_u8(&r) != ROW_FORMAT) return ERR_CORRUPT;
  struct row row = {0};
  row_get_fields(&r, &row);
  if (r.failed || !row_fields_ok(&row)) return ERR_CORRUPT;
  unsigned digest_count = row_has_data(&row) ? profile_n(&row.profile) : 0;
  for (unsigned i = 0; i < digest_count; i++) row.digests[i] = get_id(&r);
  row.attr_count = get_u16(&r);
  row.attrs_raw = get_str16(&r);
  if (r.failed || byte_reader_left(&r) != 0) return ERR_CORRUPT;
  if (row.attr_count > ATTR_COUNT_MAX || !row_attrs_ok(&row)) return ERR_CORRUPT;
  *ret_row = row;
  return 0;
}

bool row_attr(const struct row *row, size_t *at, struct attr *ret_attr) {
  if (*at >= row->attrs_raw.len) return false;
  struct byte_reader r =
      byte_reader_of(slice_of(row->attrs_raw.data + *at, row->attrs_raw.len - *at));
  struct attr attr = {.name = get_str16(&r)};
  attr.value = get_str16(&r);
  if (r.failed) return false;
  *at = row->attrs_raw.len - byte_reader_left(&r);
  *ret_attr = attr;
  return true;
}

struct slice row_attr_find(const struct row *row, const char *name) {
  struct attr attr;
  size_t at = 0;
  while (row_attr(row, &at, &attr))
    if (slice_eq(attr.name, slice_str(name))) return attr.value;
  return (struct slice){0};
}

struct stripe_geometry row_geometry(const struct row *row) {
  assert(row->kind == ROW_PUT);
  return stripe_geometry_of(&row->profile, row->size);
}
