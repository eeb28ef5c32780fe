/* bytes.c: see bytes.h. Integers are big-endian on disk and on the wire. */
#include "codec/bytes.h"

#include <stdlib.h>

#define WRITER_CAP_FIRST 128

/* The next `len` bytes, or NULL for ever after the first short read. */
static const uint8_t *reader_take(struct byte_reader *r, size_t len) {
  if (r->failed || len > byte_reader_left(r)) {
    r->failed = true;
    return NULL;
  }
  const uint8_t *at = r->at;
  if (len > 0) r->at += len; /* NULL + 0 is undefined */
  return at;
}

uint8_t get_u8(struct byte_reader *r) {
  const uint8_t *at = reader_take(r, 1);
  return at ? *at : 0;
}

uint16_t get_u16(struct byte_reader *r) {
  const uint8_t *at = reader_take(r, 2);
  return at ? load_be16(at) : 0;
}

uint32_t get_u32(struct byte_reader *r) {
  const uint8_t *at = reader_take(r, 4);
  return at ? load_be32(at) : 0;
}

uint64_t get_u64(struct byte_reader *r) {
  const uint8_t *at = reader_take(r, 8);
  return at ? load_be64(at) : 0;
}

struct id128 get_id(struct byte_reader *r) {
  struct id128 id = {{0}};
  const uint8_t *at = reader_take(r, sizeof id.bytes);
  if (at) memcpy(id.bytes, at, sizeof id.bytes);
  return id;
}

struct slice get_bytes(struct byte_reader *r, size_t len) {
  const uint8_t *at = reader_take(r, len);
  return at ? slice_of(at, len) : (struct slice){NULL, 0};
}

struct slice get_str16(struct byte_reader *r) {
  return get_bytes(r, get_u16(r));
}

struct slice get_str32(struct byte_reader *r) {
  return get_bytes(r, get_u32(r));
}

void byte_writer_free(struct byte_writer *w) {
  if (!w) return;
  free(w->data);
  w->data = NULL;
  w->len = w->cap = 0;
}

static bool writer_grow(struct byte_writer *w, size_t need) {
  size_t cap = w->cap ? w->cap : MIN((size_t)WRITER_CAP_FIRST, w->max);
  while (cap < need) cap = cap > w->max / 2 ? w->max : cap * 2;
  uint8_t *data = realloc(w->data, cap);
  if (!data) return false;
  w->data = data;
  w->cap = cap;
  return true;
}

void byte_writer_reserve(struct byte_writer *w, size_t len) {
  size_t need;
  if (w->failed || __builtin_add_overflow(w->len, len, &need) || need > w->max) return;
  if (need <= w->cap) return;
  uint8_t *data = realloc(w->data, need);
  if (!data) return;
  w->data = data;
  w->cap = need;
}

uint8_t *put_space(struct byte_writer *w, size_t len) {
  size_t need;
  if (w->failed || __builtin_add_overflow(w->len, len, &need) || need > w->max) {
    w->failed = true;
    return NULL;
  }
  /* A writer with room for nothing still gives an address, so that NULL means failed and only that.
   */
  if ((need > w->cap || !w->data) && !writer_grow(w, MAX(need, (size_t)1))) {
    w->failed = true;
    return NULL;
  }
  uint8_t *at = w->data + w->len;
  w->len = need;
  return at;
}

void put_u8(struct byte_writer *w, uint8_t v) {
  uint8_t *at = put_space(w, 1);
  if (at) *at = v;
}

void put_u16(struct byte_writer *w, uint16_t v) {
  uint8_t *at = put_space(w, 2);
  if (at) store_be16(at, v);
}

void put_u32(struct byte_writer *w, uint32_t v) {
  uint8_t *at = put_space(w, 4);
  if (at) store_be32(at, v);
}

void put_u64(struct byte_writer *w, uint64_t v) {
  uint8_t *at = put_space(w, 8);
  if (at) store_be64(at, v);
}

void put_id(struct byte_writer *w, const struct id128 *id) {
  put_bytes(w, slice_of(id->bytes, sizeof id->bytes));
}

void put_bytes(struct byte_writer *w, struct slice s) {
  uint8_t *at = put_space(w, s.len);
  if (at && s.len) memcpy(at, s.data, s.len);
}

void put_str16(struct byte_writer *w, struct slice s) {
  if (s.len > UINT16_MAX) {
    w->failed = true;
    return;
  }
  put_u16(w, (uint16_t)s.len);
  put_bytes(w, s);
}

void put_str32(struct byte_writer *w, struct slice s) {
  if (s.len > UINT32_MAX) {
    w->failed = true;
    return;
  }
  put_u32(w, (uint32_t)s.len);
  put_bytes(w, s);
}
