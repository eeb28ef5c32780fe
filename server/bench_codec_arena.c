/* bench_codec_arena.c: the memory that a benchmark works on, warm or cold. */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/bench_codec.h"

#define COLD_BYTES_MIN ((size_t)32 << 20)
#define COLD_BYTES_MAX ((size_t)256 << 20)

size_t bench_cold_bytes(void) {
  long cache = MAX(sysconf(_SC_LEVEL3_CACHE_SIZE), sysconf(_SC_LEVEL2_CACHE_SIZE));
  size_t twice = cache > 0 ? 2 * (size_t)cache : COLD_BYTES_MIN;
  return MIN(MAX(twice, COLD_BYTES_MIN), COLD_BYTES_MAX);
}

int bench_arena_open(struct bench_arena *a, size_t bytes) {
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return -errno;
  madvise(at, bytes, MADV_HUGEPAGE); /* advice: without it the figures are a little lower */
  uint64_t x = UINT64_C(0x9e3779b97f4a7c15);
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    memcpy((uint8_t *)at + i, &x, 8);
  }
  *a = (struct bench_arena){at, bytes};
  return 0;
}

void bench_arena_close(struct bench_arena *a) {
  if (a->at) munmap(a->at, a->bytes);
  *a = (struct bench_arena){NULL, 0};
}

size_t bench_slot_bytes(const struct bench_shape *shape, size_t unit) {
  return (shape->k + 2 * shape->m) * unit;
}

void bench_slot_set(const struct bench_arena *a, const struct bench_shape *shape, size_t unit,
                    unsigned i, struct bench_slot *slot) {
  uint8_t *at = a->at + i * bench_slot_bytes(shape, unit);
  slot->len = unit;
  slot->size = shape->size;
  slot->index = i;
  for (unsigned u = 0; u < shape->k + shape->m; u++, at += unit) slot->units[u] = at;
  for (unsigned u = 0; u < shape->m; u++, at += unit) slot->out[u] = at;
}

static unsigned common_divisor(unsigned a, unsigned b) {
  while (b) {
    unsigned rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

unsigned bench_ring_step(unsigned count) {
  unsigned step = MAX(1u, (unsigned)(count * 0.618));
  while (common_divisor(step, count) != 1) step++;
  return step;
}
