/* xor_avx512.c: XOR with 512-bit registers. See xor_loop.h. */
#include "codec/xor_kernel.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define XOR_TARGET __attribute__((target("avx512f")))
#define xor_vec __m512i
#define VEC_INLINE XOR_TARGET static inline __attribute__((always_inline))

VEC_INLINE __m512i vec_load(const uint8_t *at) {
  return _mm512_loadu_si512((const __m512i *)(const void *)at);
}
VEC_INLINE __m512i vec_xor(__m512i a, __m512i b) {
  return _mm512_xor_si512(a, b);
}
VEC_INLINE void vec_store(uint8_t *at, __m512i v) {
  _mm512_storeu_si512((__m512i *)(void *)at, v);
}
VEC_INLINE void vec_stream(uint8_t *at, __m512i v) {
  _mm512_stream_si512((__m512i *)(void *)at, v);
}

#include "codec/xor_loop.h"

XOR_TARGET void xor_avx512(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len) {
  xor_run(dst, src, n, len, xor_pass_cached);
}

XOR_TARGET void xor_avx512_nt(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len) {
  xor_run(dst, src, n, len, xor_pass_stream);
  _mm_sfence(); /* streaming stores are ordered with nothing else */
}

#else

/* ISO C wants something in every file. */
extern int xor_avx512_is_for_x86;

#endif
