/* xor_neon.c: XOR with the 128-bit registers of arm64. See xor_loop.h. */
#include "codec/xor_kernel.h"

#if defined(__aarch64__)

#include <arm_neon.h>

#define XOR_TARGET
#define xor_vec uint8x16_t
#define VEC_INLINE static inline __attribute__((always_inline))

VEC_INLINE uint8x16_t vec_load(const uint8_t *at) {
  return vld1q_u8(at);
}
VEC_INLINE uint8x16_t vec_xor(uint8x16_t a, uint8x16_t b) {
  return veorq_u8(a, b);
}
VEC_INLINE void vec_store(uint8_t *at, uint8x16_t v) {
  vst1q_u8(at, v);
}
/* There is no intrinsic for the non-temporal pair store: both halves of one register. */
VEC_INLINE void vec_stream(uint8_t *at, uint8x16_t v) {
  uint64x2_t halves = vreinterpretq_u64_u8(v);
  uint64_t low = vgetq_lane_u64(halves, 0), high = vgetq_lane_u64(halves, 1);
  __asm__ volatile("stnp %0, %1, [%2]" : : "r"(low), "r"(high), "r"(at) : "memory");
}

#include "codec/xor_loop.h"

void xor_neon(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len) {
  xor_run(dst, src, n, len, xor_pass_cached);
}

/* A hint only: the store is ordered like any other, so no fence follows. */
void xor_neon_nt(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len) {
  xor_run(dst, src, n, len, xor_pass_stream);
}

#else

/* ISO C wants something in every file. */
extern int xor_neon_is_for_arm;

#endif
