/* xor_kernel.h: the XOR loops to choose from. Internal to codec/; see codec.h for what callers use.
 *
 * A kernel makes dst the XOR of n >= 2 sources of any length and alignment, reads and writes
 * nothing beyond them, and does not overlap dst with a source. */
#ifndef KOFN_CODEC_XOR_KERNEL_H
#define KOFN_CODEC_XOR_KERNEL_H

#include "config/base.h"

/* Sources that a loop takes at once; more take several passes over one cache block. */
#define XOR_PASS_SOURCES_MAX 8

struct xor_kernel {
  const char *name;
  void (*run)(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len);
  bool (*supported)(void); /* NULL: everywhere */
};

/* The i-th kernel that this CPU can run, NULL at the end. */
const struct xor_kernel *xor_kernel_get(unsigned i);
/* What calibration found. */
void xor_kernel_set(const struct xor_kernel *small, const struct xor_kernel *large);

/* One for each instruction set (xor_portable.c, xor_sse2.c, ...), through xor_loop.h. */
void xor_portable64(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len);
#if defined(__x86_64__)
void xor_sse2(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len);
void xor_sse2_nt(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len);
void xor_avx2(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len);
void xor_avx2_nt(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len);
void xor_avx512(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len);
void xor_avx512_nt(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len);
#elif defined(__aarch64__)
void xor_neon(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len);
void xor_neon_nt(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len);
#endif

#endif
