/* xor_avx2.c: XOR with 256-bit registers. See xor_loop.h. */
#include "codec/xor_kernel.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define XOR_TARGET __attribute__((target("avx2")))
#define xor_vec __m256i
#define VEC_INLINE XOR_TARGET static inline __attribute__((always_inline))

VEC_INLINE __m256i vec_load(const uint8_t *at) {
  return _mm256_loadu_si256((const __m256i *)(const void *)at);
}
VEC_INLINE __m256i vec_xor(__m256i a, __m256i b) {
  return _mm256_xor_si256(a, b);
}
VEC_INLINE void vec_store(uint8_t *at, __m256i v) {
  _mm256_storeu_si256((__m256i *)(void *)at, v);
}
VEC_INLINE void vec_stream(uint8_t *at, __m256i v) {
  _mm256_stream_si256((__m256i *)(void *)at, v);
}

#include "codec/xor_loop.h"

XOR_TARGET void xor_avx2(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len) {
  xor_run(dst, src, n, len, xor_pass_cached);
}

XOR_TARGET void xor_avx2_nt(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len) {
  xor_run(dst, src, n, len, xor_pass_stream);
  _mm_sfence(); /* streaming stores are ordered with nothing else */
}

#else

/* ISO C wants something in every file. */
extern int xor_avx2_is_for_x86;

#endif
