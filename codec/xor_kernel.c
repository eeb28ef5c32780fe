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
/* Calls that touch more come from memory and go back there. What a machine says of its last cache
 * is no help: virtual ones add up what many cores share (320 MiB here, of which one core had 32).
 */
#define XOR_LARGE_BYTES ((size_t)32 << 20)

#if defined(__x86_64__)

static bool has_avx2(void) {
  return __builtin_cpu_supports("avx2");
}
static bool has_avx512(void) {
  return __builtin_cpu_supports("avx512f");
}
static void xor_any_address(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len) {
  if (has_avx2()) {
    xor_avx2(dst, src, n, len);
  } else {
    xor_sse2(dst, src, n, len);
  }
}

#elif defined(__aarch64__)
#define xor_any_address xor_neon
#else
#define xor_any_address xor_portable64
#endif

/* ISA-L where all blocks are aligned, an own loop elsewhere. */
static void xor_isal(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len) {
  uintptr_t misaligned = (uintptr_t)dst;
  for (unsigned i = 0; i < n; i++) misaligned |= (uintptr_t)src[i];
  if (n > MAP_SLOTS_MAX || misaligned % ISAL_ALIGN != 0) {
    xor_any_address(dst, src, n, len);
    return;
  }
  void *array[MAP_SLOTS_MAX + 1];
  for (size_t at = 0; at < len; at += ISAL_CALL_BYTES_MAX) {
    for (unsigned i = 0; i < n; i++) array[i] = (uint8_t *)src[i] + at;
    array[n] = dst + at;
    size_t part = MIN(ISAL_CALL_BYTES_MAX, len - at);
    if (xor_gen((int)n + 1, (int)part, array) != 0) {
      /* It refuses what it cannot do, and has then written nothing. */
      xor_any_address(dst + at, (const uint8_t *const *)array, n, part);
    }
  }
}

static const struct xor_kernel kernels[] = {
    {"isal", xor_isal, NULL},           {"portable64", xor_portable64, NULL},
#if defined(__x86_64__)
    {"sse2", xor_sse2, NULL},           {"sse2-nt", xor_sse2_nt, NULL},
    {"avx2", xor_avx2, has_avx2},       {"avx2-nt", xor_avx2_nt, has_avx2},
    {"avx512", xor_avx512, has_avx512}, {"avx512-nt", xor_avx512_nt, has_avx512},
#elif defined(__aarch64__)
    {"neon", xor_neon, NULL},
    {"neon-nt", xor_neon_nt, NULL},
#endif
};
_Static_assert(ARRAY_LEN(kernels) <= XOR_KERNELS_MAX, "xor_rates has room for all");

static _Atomic(const struct xor_kernel *) selected = &kernels[0];
static _Atomic(const struct xor_kernel *) selected_large = &kernels[0];

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

const char *xor_kernel_large_name(void) {
  return atomic_load_explicit(&selected_large, memory_order_relaxed)->name;
}

size_t xor_large_bytes(void) {
  return XOR_LARGE_BYTES;
}

void xor_kernel_set(const struct xor_kernel *small, const struct xor_kernel *large) {
  atomic_store_explicit(&selected, small, memory_order_relaxed);
  atomic_store_explicit(&selected_large, large, memory_order_relaxed);
}

int xor_kernel_select(const char *name) {
  const struct xor_kernel *kernel;
  for (unsigned i = 0; (kernel = xor_kernel_get(i)) != NULL; i++) {
    if (strcmp(kernel->name, name) != 0) continue;
    xor_kernel_set(kernel, kernel);
    return 0;
  }
  return ERR_NOT_FOUND;
}

void xor_kernel_run_at(unsigned i, uint8_t *dst, const uint8_t *const *src, unsigned n,
                       size_t len) {
  if (len == 0) return;
  if (n == 1) {
    memcpy(dst, src[0], len);
    return;
  }
  xor_kernel_get(i)->run(dst, src, n, len);
}

void xor_blocks(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len) {
  if (len == 0) return;
  if (n == 1) {
    memcpy(dst, src[0], len);
    return;
  }
  bool large = len * (n + 1) > XOR_LARGE_BYTES; /* blocks in memory: the product fits */
  const struct xor_kernel *kernel =
      atomic_load_explicit(large ? &selected_large : &selected, memory_order_relaxed);
  kernel->run(dst, src, n, len);
}
