/* xor_portable.c: XOR by 64-bit words, for any CPU. No streaming twin: C has no such store. */
#define XOR_TARGET

#include <stdint.h>
#include <string.h>

#define xor_vec uint64_t

static inline uint64_t vec_load(const uint8_t *at) {
  uint64_t v;
  memcpy(&v, at, sizeof v);
  return v;
}
static inline uint64_t vec_xor(uint64_t a, uint64_t b) {
  return a ^ b;
}
static inline void vec_store(uint8_t *at, uint64_t v) {
  memcpy(at, &v, sizeof v);
}
#define vec_stream vec_store

#include "codec/xor_loop.h"

void xor_portable64(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len) {
  xor_run(dst, src, n, len, xor_pass_cached);
}
