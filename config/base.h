/* base.h: the few types and macros that every layer shares.
 *
 * Nothing here does I/O, allocates, or knows what kofn is. */
#ifndef KOFN_CONFIG_BASE_H
#define KOFN_CONFIG_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/param.h> /* MIN, MAX: libuv brings them too */

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#define DIV_UP(a, b) (((a) + (b)-1) / (b))

#define _must_check_ __attribute__((warn_unused_result))
#define _cleanup_(fn) __attribute__((cleanup(fn)))
#define _printf_(fmt, args) __attribute__((format(printf, fmt, args)))
#define _unused_ __attribute__((unused))
/* Moves a pointer out of a variable: the variable is NULL afterwards. */
#define TAKE(p)                \
  ({                           \
    __typeof__(p) take_ = (p); \
    (p) = NULL;                \
    take_;                     \
  })

/* Borrowed bytes; the owner is said where the slice stands. */
struct slice {
  const uint8_t *data;
  size_t len;
};

#define SLICE_LIT(s) ((struct slice){(const uint8_t *)("" s), sizeof(s) - 1})

static inline struct slice slice_of(const void *data, size_t len) {
  return (struct slice){(const uint8_t *)data, len};
}

static inline struct slice slice_str(const char *s) {
  return (struct slice){(const uint8_t *)s, s ? strlen(s) : 0};
}

static inline bool slice_eq(struct slice a, struct slice b) {
  return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

/* Byte order, shorter first: the order of S3 listings. */
static inline int slice_cmp(struct slice a, struct slice b) {
  size_t n = MIN(a.len, b.len);
  int c = n ? memcmp(a.data, b.data, n) : 0;
  if (c != 0) return c;
  return a.len < b.len ? -1 : a.len > b.len;
}

static inline bool slice_starts_with(struct slice s, struct slice prefix) {
  return s.len >= prefix.len && (prefix.len == 0 || memcmp(s.data, prefix.data, prefix.len) == 0);
}

/* 128 random (or hashed) bits: blob ids, op ids, bucket, drive and cluster uuids. */
struct id128 {
  uint8_t bytes[16];
};

#define ID128_HEX_LEN 32

static inline bool id128_eq(const struct id128 *a, const struct id128 *b) {
  return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

static inline bool id128_is_zero(const struct id128 *a) {
  static const uint8_t zero[16];
  return memcmp(a->bytes, zero, sizeof zero) == 0;
}

/* out gets 32 lower-case hex digits and a NUL. */
static inline void id128_hex(const struct id128 *id, char out[ID128_HEX_LEN + 1]) {
  static const char digit[] = "0123456789abcdef";
  for (int i = 0; i < 16; i++) {
    out[2 * i] = digit[id->bytes[i] >> 4];
    out[2 * i + 1] = digit[id->bytes[i] & 15];
  }
  out[ID128_HEX_LEN] = 0;
}

static inline uint16_t load_be16(const void *p) {
  const uint8_t *b = (const uint8_t *)p;
  return (uint16_t)((unsigned)b[0] << 8 | b[1]);
}
static inline uint32_t load_be32(const void *p) {
  const uint8_t *b = (const uint8_t *)p;
  return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}
static inline uint64_t load_be64(const void *p) {
  return (uint64_t)load_be32(p) << 32 | load_be32((const uint8_t *)p + 4);
}
static inline void store_be16(void *p, uint16_t v) {
  uint8_t *b = (uint8_t *)p;
  b[0] = (uint8_t)(v >> 8);
  b[1] = (uint8_t)v;
}
static inline void store_be32(void *p, uint32_t v) {
  uint8_t *b = (uint8_t *)p;
  b[0] = (uint8_t)(v >> 24);
  b[1] = (uint8_t)(v >> 16);
  b[2] = (uint8_t)(v >> 8);
  b[3] = (uint8_t)v;
}
static inline void store_be64(void *p, uint64_t v) {
  store_be32(p, (uint32_t)(v >> 32));
  store_be32((uint8_t *)p + 4, (uint32_t)v);
}

#endif
