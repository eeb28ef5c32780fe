/* xor_loop.h: the loops of one XOR kernel. Each xor_<instruction set>.c includes this once.
 *
 * The file that includes it defines XOR_TARGET (the function attribute of its instruction set,
 * maybe empty), the vector type xor_vec, and vec_load, vec_xor, vec_store (any address) and
 * vec_stream (aligned, past the caches).
 *
 *   head up to an aligned dst | four vectors at a time | single vectors | words and bytes
 *
 * The number of sources is a constant in each loop, so that their addresses stay in registers. */
#ifndef KOFN_CODEC_XOR_LOOP_H
#define KOFN_CODEC_XOR_LOOP_H

#include "codec/xor_kernel.h"

#define XOR_INLINE XOR_TARGET static inline __attribute__((always_inline))
#define XOR_STEP_VECTORS 4
#define XOR_STEP_BYTES (XOR_STEP_VECTORS * sizeof(xor_vec))
/* A partial sum stays in the first-level cache between the passes. */
#define XOR_BLOCK_BYTES ((size_t)4 << 10)

/* The bytes [from, to): heads and tails. */
XOR_INLINE void xor_rest(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t from,
                         size_t to) {
  size_t at = from;
  for (; at + sizeof(uint64_t) <= to; at += sizeof(uint64_t)) {
    uint64_t sum, next;
    memcpy(&sum, src[0] + at, sizeof sum);
    for (unsigned i = 1; i < n; i++) {
      memcpy(&next, src[i] + at, sizeof next);
      sum ^= next;
    }
    memcpy(dst + at, &sum, sizeof sum);
  }
  for (; at < to; at++) {
    uint8_t sum = src[0][at];
    for (unsigned i = 1; i < n; i++) sum ^= src[i][at];
    dst[at] = sum;
  }
}

XOR_INLINE void xor_put(uint8_t *dst, xor_vec v, bool stream) {
  if (stream) {
    vec_stream(dst, v);
  } else {
    vec_store(dst, v);
  }
}

/* One pass with a constant n. */
XOR_INLINE void xor_pass_of(uint8_t *dst, const uint8_t *const *src, const unsigned n, size_t len,
                            const bool stream) {
  const uint8_t *s[XOR_PASS_SOURCES_MAX];
#pragma GCC unroll 8
  for (unsigned i = 0; i < n; i++) s[i] = src[i];
  size_t at = (size_t)(-(uintptr_t)dst & (sizeof(xor_vec) - 1));
  if (at > 0 || len < sizeof(xor_vec)) {
    at = MIN(at, len);
    xor_rest(dst, src, n, 0, at);
  }
  for (; at + XOR_STEP_BYTES <= len; at += XOR_STEP_BYTES) {
    xor_vec v[XOR_STEP_VECTORS];
#pragma GCC unroll 4
    for (unsigned j = 0; j < XOR_STEP_VECTORS; j++)
      v[j] = vec_load(s[0] + at + j * sizeof(xor_vec));
#pragma GCC unroll 8
    for (unsigned i = 1; i < n; i++) {
#pragma GCC unroll 4
      for (unsigned j = 0; j < XOR_STEP_VECTORS; j++)
        v[j] = vec_xor(v[j], vec_load(s[i] + at + j * sizeof(xor_vec)));
    }
#pragma GCC unroll 4
    for (unsigned j = 0; j < XOR_STEP_VECTORS; j++)
      xor_put(dst + at + j * sizeof(xor_vec), v[j], stream);
  }
  for (; at + sizeof(xor_vec) <= len; at += sizeof(xor_vec)) {
    xor_vec v = vec_load(s[0] + at);
#pragma GCC unroll 8
    for (unsigned i = 1; i < n; i++) v = vec_xor(v, vec_load(s[i] + at));
    xor_put(dst + at, v, stream);
  }
  xor_rest(dst, src, n, at, len);
}

XOR_INLINE void xor_pass(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len,
                         const bool stream) {
  switch (n) {
    case 2:
      xor_pass_of(dst, src, 2, len, stream);
      break;
    case 3:
      xor_pass_of(dst, src, 3, len, stream);
      break;
    case 4:
      xor_pass_of(dst, src, 4, len, stream);
      break;
    case 5:
      xor_pass_of(dst, src, 5, len, stream);
      break;
    case 6:
      xor_pass_of(dst, src, 6, len, stream);
      break;
    case 7:
      xor_pass_of(dst, src, 7, len, stream);
      break;
    default:
      xor_pass_of(dst, src, 8, len, stream);
      break;
  }
}

XOR_TARGET static void xor_pass_cached(uint8_t *dst, const uint8_t *const *src, unsigned n,
                                       size_t len) {
  xor_pass(dst, src, n, len, false);
}

/* More sources than a pass takes: block by block, each pass but the last into a sum that stays in
 * the cache. */
XOR_INLINE void xor_many(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len,
                         void (*last)(uint8_t *, const uint8_t *const *, unsigned, size_t)) {
  _Alignas(64) uint8_t sum[XOR_BLOCK_BYTES];
  for (size_t at = 0; at < len; at += XOR_BLOCK_BYTES) {
    size_t part = MIN(XOR_BLOCK_BYTES, len - at);
    const uint8_t *from[XOR_PASS_SOURCES_MAX];
    unsigned have = 0, next = 0;
    while (n - next + have > XOR_PASS_SOURCES_MAX) {
      while (have < XOR_PASS_SOURCES_MAX) from[have++] = src[next++] + at;
      xor_pass_cached(sum, from, have, part);
      from[0] = sum; /* its own first source: each vector is read before it is written */
      have = 1;
    }
    while (next < n) from[have++] = src[next++] + at;
    last(dst + at, from, have, part);
  }
}

/* Past the caches; where the CPU does not order such stores the caller's fence comes before anybody
 * is told. */
XOR_TARGET __attribute__((unused)) static void xor_pass_stream(uint8_t *dst,
                                                               const uint8_t *const *src,
                                                               unsigned n, size_t len) {
  xor_pass(dst, src, n, len, true);
}

/* The whole of a kernel: any number of sources, by `pass`. */
XOR_INLINE void xor_run(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len,
                        void (*pass)(uint8_t *, const uint8_t *const *, unsigned, size_t)) {
  if (n > XOR_PASS_SOURCES_MAX) {
    xor_many(dst, src, n, len, pass);
  } else {
    pass(dst, src, n, len);
  }
}

#endif
