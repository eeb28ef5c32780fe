/* xor_calibrate.c: picks the XOR kernel at start.
 *
 * The only place in codec/ that reads a clock: a rate cannot be measured without one. What is timed
 * is what a PUT does with a unit: XOR it into the parity, then take the parity's CRC32C. So a
 * non-temporal kernel is chosen only where it wins although the result has to be fetched again. */
#include <stdlib.h>
#include <time.h>

#include "codec/codec.h"
#include "codec/crc32c.h"
#include "codec/xor_kernel.h"

#define CALIBRATE_UNIT_BYTES ((size_t)64 << 10)
#define CALIBRATE_SOURCES 4
#define CALIBRATE_STRIPES 8 /* 2.5 MiB in all: beyond the first-level cache, as a real stream is \
                             */
#define CALIBRATE_ROUNDS 5  /* the fastest counts: the others were disturbed */
#define CALIBRATE_ALIGN 64

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t time_round(const struct xor_kernel *kernel, uint8_t *memory, uint32_t *crc) {
  uint64_t begin = now_ns();
  for (unsigned s = 0; s < CALIBRATE_STRIPES; s++) {
    uint8_t *stripe = memory + s * CALIBRATE_UNIT_BYTES * (CALIBRATE_SOURCES + 1);
    const uint8_t *src[CALIBRATE_SOURCES];
    for (unsigned i = 0; i < CALIBRATE_SOURCES; i++) src[i] = stripe + i * CALIBRATE_UNIT_BYTES;
    uint8_t *dst = stripe + CALIBRATE_SOURCES * CALIBRATE_UNIT_BYTES;
    kernel->run(dst, src, CALIBRATE_SOURCES, CALIBRATE_UNIT_BYTES);
    *crc ^= crc32c(0, dst, CALIBRATE_UNIT_BYTES);
  }
  return now_ns() - begin;
}

void xor_kernel_calibrate(void) {
  size_t bytes = CALIBRATE_UNIT_BYTES * (CALIBRATE_SOURCES + 1) * CALIBRATE_STRIPES;
  uint8_t *memory = aligned_alloc(CALIBRATE_ALIGN, bytes);
  if (!memory) return; /* the default kernel is correct everywhere */
  for (size_t i = 0; i < bytes; i++) memory[i] = (uint8_t)(i * 131);

  const struct xor_kernel *kernel, *best = NULL;
  uint64_t best_ns = UINT64_MAX;
  uint32_t crc = 0;
  for (unsigned i = 0; (kernel = xor_kernel_get(i)) != NULL; i++) {
    for (unsigned round = 0; round < CALIBRATE_ROUNDS; round++) {
      uint64_t ns = time_round(kernel, memory, &crc);
      if (ns >= best_ns) continue;
      best_ns = ns;
      best = kernel;
    }
  }
  free(memory);
  if (best) {
    int err = xor_kernel_select(best->name);
    (void)err; /* xor_kernel_get gave the name */
  }
}
