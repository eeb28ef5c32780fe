/* xor_sse2.c: XOR with 128-bit registers, which every x86-64 CPU has. See xor_loop.h. */
#include "codec/xor_kernel.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define XOR_TARGET
#define xor_vec __m128i
#define VEC_INLINE XOR_TARGET static inline __attribute__((always_inline))

VEC_INLINE __m128i vec_load(const uint8_t *at) {
  return _mm_loadu_si128((const __m128i *)(const void *)at);
}
VEC_INLINE __m128i vec_xor(__m128i a, __m128i b) {
  return _mm_xor_si128(a, b);
}
VEC_INLINE void vec_store(uint8_t *at, __m128i v) {
  _mm_storeu_si128((__m128i *)(void *)at, v);
}
VEC_INLINE void vec_stream(uint8_t *at, __m128i v) {
  _mm_stream_si128((__m128i *)(void *)at, v);
}

#include "codec/xor_loop.h"

XOR_TARGET void xor_sse2(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len) {
  xor_run(dst, src, n, len, xor_pass_cached);
}

XOR_TARGET void xor_sse2_nt(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len) {
  xor_run(dst, src, n, len, xor_pass_stream);
  _mm_sfence(); /* streaming stores are ordered with nothing else */
}

#else

/* ISO C wants something in every file. */
extern int xor_sse2_is_for_x86;

#endif
