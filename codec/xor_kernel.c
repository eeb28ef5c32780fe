/* xor_kernel.c: XOR of n blocks, in the ways that a machine may be fast at.
 *
 * "-nt" twins store past the cache: they win where the result is not looked at again soon. They are
 * never chosen by guess: see xor_calibrate.c and xor_kernel_select. */
#include "codec/xor_kernel.h"

#include <isa-l/raid.h>
#include <stdatomic.h>

#include "codec/codec.h"
#include "config/err.h"

/* ISA-L documents 32; its AVX-512 version may use aligned 64-byte moves. */
#define ISAL_ALIGN 64
/* ISA-L takes an int. */
#define ISAL_CALL_BYTES_MAX ((size_t)1 << 30)

/* The bytes [from, to) one by one: heads and tails. */
static void xor_bytes(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t from, size_t to) {
  for (size_t at = from; at < to; at++) {
    uint8_t sum = src[0][at];
    for (unsigned i = 1; i < n; i++) sum ^= src[i][at];
    dst[at] = sum;
  }
}

static void xor_portable64(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len) {
  size_t at = 0;
  for (; at + 64 <= len; at += 64) {
    uint64_t sum[8], next[8];
    memcpy(sum, src[0] + at, sizeof sum);
    for (unsigned i = 1; i < n; i++) {
      memcpy(next, src[i] + at, sizeof next);
      for (unsigned w = 0; w < 8; w++) sum[w] ^= next[w];
    }
    memcpy(dst + at, sum, sizeof sum);
  }
  xor_bytes(dst, src, n, at, len);
}

#if defined(__x86_64__)

#include <immintrin.h>

#define TARGET_AVX2 __attribute__((target("avx2")))
#define TARGET_AVX512 __attribute__((target("avx512f")))
#define INLINE static inline __attribute__((always_inline))

/* Bytes until dst is aligned: streaming stores need it. */
static size_t head_bytes(const uint8_t *dst, size_t align, size_t len) {
  size_t head = (size_t)(-(uintptr_t)dst & (align - 1));
  return MIN(head, len);
}

TARGET_AVX2 INLINE void avx2_store(uint8_t *dst, __m256i v, bool nt) {
  if (nt) {
    _mm256_stream_si256((__m256i *)(void *)dst, v);
  } else {
    _mm256_storeu_si256((__m256i *)(void *)dst, v);
  }
}

TARGET_AVX2 INLINE __m256i avx2_load(const uint8_t *src) {
  return _mm256_loadu_si256((const __m256i *)(const void *)src);
}

TARGET_AVX2 INLINE void avx2_run(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len,
                                 bool nt) {
  size_t at = nt ? head_bytes(dst, 32, len) : 0;
  xor_bytes(dst, src, n, 0, at);
  for (; at + 128 <= len; at += 128) {
    const uint8_t *s = src[0] + at;
    __m256i a = avx2_load(s), b = avx2_load(s + 32), c = avx2_load(s + 64), d = avx2_load(s + 96);
    for (unsigned i = 1; i < n; i++) {
      s = src[i] + at;
      a = _mm256_xor_si256(a, avx2_load(s));
      b = _mm256_xor_si256(b, avx2_load(s + 32));
      c = _mm256_xor_si256(c, avx2_load(s + 64));
      d = _mm256_xor_si256(d, avx2_load(s + 96));
    }
    avx2_store(dst + at, a, nt);
    avx2_store(dst + at + 32, b, nt);
    avx2_store(dst + at + 64, c, nt);
    avx2_store(dst + at + 96, d, nt);
  }
  if (nt) _mm_sfence(); /* streaming stores are ordered with nothing else */
  xor_bytes(dst, src, n, at, len);
}

TARGET_AVX2 static void xor_avx2(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len) {
  avx2_run(dst, src, n, len, false);
}
TARGET_AVX2 static void xor_avx2_nt(uint8_t *dst, const uint8_t *const *src, unsigned n,
                                    size_t len) {
  avx2_run(dst, src, n, len, true);
}

TARGET_AVX512 INLINE void avx512_store(uint8_t *dst, __m512i v, bool nt) {
  if (nt) {
    _mm512_stream_si512((__m512i *)(void *)dst, v);
  } else {
    _mm512_storeu_si512(dst, v);
  }
}

TARGET_AVX512 INLINE void avx512_run(uint8_t *dst, const uint8_t *const *src, unsigned n,
                                     size_t len, bool nt) {
  size_t at = nt ? head_bytes(dst, 64, len) : 0;
  xor_bytes(dst, src, n, 0, at);
  for (; at + 256 <= len; at += 256) {
    const uint8_t *s = src[0] + at;
    __m512i a = _mm512_loadu_si512(s), b = _mm512_loadu_si512(s + 64);
    __m512i c = _mm512_loadu_si512(s + 128), d = _mm512_loadu_si512(s + 192);
    for (unsigned i = 1; i < n; i++) {
      s = src[i] + at;
      a = _mm512_xor_si512(a, _mm512_loadu_si512(s));
      b = _mm512_xor_si512(b, _mm512_loadu_si512(s + 64));
      c = _mm512_xor_si512(c, _mm512_loadu_si512(s + 128));
      d = _mm512_xor_si512(d, _mm512_loadu_si512(s + 192));
    }
    avx512_store(dst + at, a, nt);
    avx512_store(dst + at + 64, b, nt);
    avx512_store(dst + at + 128, c, nt);
    avx512_store(dst + at + 192, d, nt);
  }
  if (nt) _mm_sfence();
  xor_bytes(dst, src, n, at, len);
}

TARGET_AVX512 static void xor_avx512(uint8_t *dst, const uint8_t *const *src, unsigned n,
                                     size_t len) {
  avx512_run(dst, src, n, len, false);
}
TARGET_AVX512 static void xor_avx512_nt(uint8_t *dst, const uint8_t *const *src, unsigned n,
                                        size_t len) {
  avx512_run(dst, src, n, len, true);
}

static bool has_avx2(void) {
  return __builtin_cpu_supports("avx2");
}
static bool has_avx512(void) {
  return __builtin_cpu_supports("avx512f");
}

static void xor_unaligned(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len) {
  if (has_avx2()) {
    xor_avx2(dst, src, n, len);
  } else {
    xor_portable64(dst, src, n, len);
  }
}

#else

static void xor_unaligned(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len) {
  xor_portable64(dst, src, n, len);
}

#endif

/* ISA-L where all blocks are aligned, an own loop elsewhere. */
static void xor_isal(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len) {
  uintptr_t misaligned = (uintptr_t)dst;
  for (unsigned i = 0; i < n; i++) misaligned |= (uintptr_t)src[i];
  if (n >= MAP_SLOTS_MAX || misaligned % ISAL_ALIGN != 0) {
    xor_unaligned(dst, src, n, len);
    return;
  }
  void *array[MAP_SLOTS_MAX];
  for (size_t at = 0; at < len; at += ISAL_CALL_BYTES_MAX) {
    for (unsigned i = 0; i < n; i++) array[i] = (uint8_t *)src[i] + at;
    array[n] = dst + at;
    size_t part = MIN(ISAL_CALL_BYTES_MAX, len - at);
    if (xor_gen((int)n + 1, (int)part, array) == 0) continue;
    xor_bytes(dst, src, n, at, at + part);
  }
}

static const struct xor_kernel kernels[] = {
    {"isal", xor_isal, NULL},           {"portable64", xor_portable64, NULL},
#if defined(__x86_64__)
    {"avx2", xor_avx2, has_avx2},       {"avx2-nt", xor_avx2_nt, has_avx2},
    {"avx512", xor_avx512, has_avx512}, {"avx512-nt", xor_avx512_nt, has_avx512},
#endif
};

static _Atomic(const struct xor_kernel *) selected = &kernels[0];

const struct xor_kernel *xor_kernel_get(unsigned i) {
  for (unsigned at = 0; at < ARRAY_LEN(kernels); at++) {
    if (kernels[at].supported && !kernels[at].supported()) continue;
    if (i-- == 0) return &kernels[at];
  }
  return NULL;
}

const char *xor_kernel_at(unsigned i) {
  const struct xor_kernel *kernel = xor_kernel_get(i);
  return kernel ? kernel->name : NULL;
}

const char *xor_kernel_name(void) {
  return atomic_load_explicit(&selected, memory_order_relaxed)->name;
}

int xor_kernel_select(const char *name) {
  const struct xor_kernel *kernel;
  for (unsigned i = 0; (kernel = xor_kernel_get(i)) != NULL; i++) {
    if (strcmp(kernel->name, name) != 0) continue;
    atomic_store_explicit(&selected, kernel, memory_order_relaxed);
    return 0;
  }
  return ERR_NOT_FOUND;
}

void xor_blocks(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len) {
  if (len == 0) return;
  if (n == 1) {
    memcpy(dst, src[0], len);
    return;
  }
  atomic_load_explicit(&selected, memory_order_relaxed)->run(dst, src, n, len);
}
