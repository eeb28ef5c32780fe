/* bytes.h: reading and writing byte strings with every length checked.
 *
 * A reader or writer remembers its first failure: the caller checks once, at the end. */
#ifndef KOFN_CODEC_BYTES_H
#define KOFN_CODEC_BYTES_H

#include "config/base.h"

/* Reads from borrowed bytes. After a short read every getter returns zero and `failed` is set. */
struct byte_reader {
  const uint8_t *at, *end;
  bool failed;
};

static inline struct byte_reader byte_reader_of(struct slice s) {
  return (struct byte_reader){s.data, s.data + s.len, false};
}
static inline size_t byte_reader_left(const struct byte_reader *r) {
  return (size_t)(r->end - r->at);
}
uint8_t get_u8(struct byte_reader *r);
uint16_t get_u16(struct byte_reader *r);
uint32_t get_u32(struct byte_reader *r);
uint64_t get_u64(struct byte_reader *r);
struct id128 get_id(struct byte_reader *r);
/* `len` bytes, borrowed from the input. */
struct slice get_bytes(struct byte_reader *r, size_t len);
/* A length (u16 or u32) and that many bytes. */
struct slice get_str16(struct byte_reader *r);
struct slice get_str32(struct byte_reader *r);

/* Grows by doubling up to `max` bytes; beyond it, or without memory, `failed` is set and nothing
 * more is written. Zero-initialise with `max` set. */
struct byte_writer {
  uint8_t *data;
  size_t len, cap, max;
  bool failed;
};

void byte_writer_free(struct byte_writer *w);
void put_u8(struct byte_writer *w, uint8_t v);
void put_u16(struct byte_writer *w, uint16_t v);
void put_u32(struct byte_writer *w, uint32_t v);
void put_u64(struct byte_writer *w, uint64_t v);
void put_id(struct byte_writer *w, const struct id128 *id);
void put_bytes(struct byte_writer *w, struct slice s);
void put_str16(struct byte_writer *w, struct slice s); /* fails beyond 65535 bytes */
void put_str32(struct byte_writer *w, struct slice s);
/* Room for `len` bytes to be filled by the caller; NULL when failed. */
uint8_t *put_space(struct byte_writer *w, size_t len);
/* Room for `len` bytes more in one go, where the length is known; no promise. */
void byte_writer_reserve(struct byte_writer *w, size_t len);

#endif
