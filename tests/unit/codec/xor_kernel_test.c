/* xor_kernel_test.c: every XOR kernel gives what the portable one gives, at any address and length,
 * with 1 to 32 sources, and touches nothing beyond its blocks. */
#include "codec/xor_kernel.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "codec/codec.h"
#include "config/err.h"

#define SOURCES_MAX 32
#define LEN_SHORT_MAX 300

static uint32_t random_state = 2463534242u;
static uint32_t random_next(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 17;
  random_state ^= random_state << 5;
  return random_state;
}

/* A block whose last byte is the last one before a page that nobody may touch, or whose first is
 * the first one behind such a page. */
struct guarded {
  uint8_t *map, *begin, *end;
  size_t bytes;
};

static struct guarded guarded_new(size_t len) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), room = DIV_UP(len + 1, page) * page;
  struct guarded g = {.bytes = room + 2 * page};
  g.map = mmap(NULL, g.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  cr_assert_neq(g.map, MAP_FAILED);
  cr_assert_eq(mprotect(g.map, page, PROT_NONE), 0);
  cr_assert_eq(mprotect(g.map + page + room, page, PROT_NONE), 0);
  g.begin = g.map + page;
  g.end = g.begin + room;
  return g;
}

static void fill(uint8_t *at, size_t len) {
  for (size_t i = 0; i < len; i++) at[i] = (uint8_t)random_next();
}

static void check_all(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len) {
  uint8_t *expected = malloc(len + 1);
  cr_assert(expected);
  memset(expected, 0, len + 1);
  for (unsigned s = 0; s < n; s++) {
    for (size_t b = 0; b < len; b++) expected[b] ^= src[s][b];
  }
  for (unsigned i = 0; xor_kernel_at(i); i++) {
    memset(dst, 0x5a, len);
    xor_kernel_run_at(i, dst, src, n, len);
    cr_assert(len == 0 || memcmp(dst, expected, len) == 0, "%s, %u sources, %zu bytes",
              xor_kernel_at(i), n, len);
  }
  free(expected);
}

Test(xor_kernel, all_of_them_are_there) {
  unsigned count = 0;
  bool isal = false, portable = false;
  for (; xor_kernel_at(count); count++) {
    isal |= strcmp(xor_kernel_at(count), "isal") == 0;
    portable |= strcmp(xor_kernel_at(count), "portable64") == 0;
    for (unsigned i = 0; i < count; i++) cr_assert_str_neq(xor_kernel_at(i), xor_kernel_at(count));
  }
  cr_assert(isal && portable);
  cr_assert_geq(count, 4u, "an x86-64 has SSE2 and its streaming twin, an arm64 has NEON");
  cr_assert_leq(count, XOR_KERNELS_MAX);
}

Test(xor_kernel, page_edges_with_1_to_32_sources_and_0_to_300_bytes) {
  struct guarded out = guarded_new(LEN_SHORT_MAX + 64), in[SOURCES_MAX];
  const uint8_t *src[SOURCES_MAX];
  for (unsigned i = 0; i < SOURCES_MAX; i++) {
    in[i] = guarded_new(LEN_SHORT_MAX + 64);
    fill(in[i].begin, (size_t)(in[i].end - in[i].begin));
  }
  for (unsigned n = 1; n <= SOURCES_MAX; n++) {
    for (size_t len = 0; len <= LEN_SHORT_MAX; len++) {
      for (unsigned i = 0; i < n; i++) src[i] = in[i].end - len;
      check_all(out.end - len, src, n, len);
      if (len % 3 != n % 3) continue;
      for (unsigned i = 0; i < n; i++) src[i] = in[i].begin;
      check_all(out.begin, src, n, len);
    }
  }
  for (unsigned i = 0; i < SOURCES_MAX; i++) munmap(in[i].map, in[i].bytes);
  munmap(out.map, out.bytes);
}

Test(xor_kernel, any_address_and_nothing_beyond) {
  enum { LEN_MAX = 9000, ROOM = LEN_MAX + 256 };
  uint8_t *memory = malloc((size_t)ROOM * (SOURCES_MAX + 1));
  cr_assert(memory);
  fill(memory, (size_t)ROOM * (SOURCES_MAX + 1));
  for (unsigned round = 0; round < 600; round++) {
    unsigned n = 1 + random_next() % SOURCES_MAX;
    size_t len = random_next() % (round % 4 ? 600 : LEN_MAX);
    const uint8_t *src[SOURCES_MAX];
    bool aligned = random_next() % 4 == 0;
    for (unsigned i = 0; i < n; i++) {
      uint8_t *room = memory + (size_t)ROOM * i;
      src[i] = room + (aligned ? -(uintptr_t)room % 64 : random_next() % 64);
    }
    uint8_t *room = memory + (size_t)ROOM * SOURCES_MAX;
    uint8_t *dst = room + 64 + (aligned ? -(uintptr_t)room % 64 : random_next() % 64);
    memset(room, 0xa5, ROOM);
    check_all(dst, src, n, len);
    for (uint8_t *b = room; b < dst; b++) cr_assert_eq(*b, 0xa5);
    for (uint8_t *b = dst + len; b < room + ROOM; b++) cr_assert_eq(*b, 0xa5);
  }
  free(memory);
}

Test(xor_kernel, large_blocks_go_to_the_large_kernel) {
  const unsigned n = 3;
  size_t len = xor_large_bytes() / (n + 1) + 4099;
  uint8_t *memory = malloc(len * (n + 1));
  cr_assert(memory);
  const uint8_t *src[] = {memory, memory + len, memory + 2 * len};
  uint8_t *dst = memory + 3 * len;
  for (size_t i = 0; i < 3 * len; i++) memory[i] = (uint8_t)(i * i >> 3);
  xor_kernel_calibrate(65536, 2, NULL);
  xor_blocks(dst, src, n, len);
  for (size_t i = 0; i < len; i++) cr_assert_eq(dst[i], src[0][i] ^ src[1][i] ^ src[2][i]);
  free(memory);
}

Test(xor_kernel, calibration_measures_all_and_a_name_pins_both) {
  struct xor_rates rates = {.count = 99};
  static const size_t units[] = {1, 4096, 5000, 65536, 1 << 20};
  for (unsigned i = 0; i < ARRAY_LEN(units); i++) {
    for (unsigned threads = 0; threads <= 3; threads++) {
      xor_kernel_calibrate(units[i], threads, &rates);
      unsigned count = 0;
      for (; xor_kernel_at(count); count++) {
        cr_assert_str_eq(rates.name[count], xor_kernel_at(count));
        cr_assert(rates.warm[count] > 0 && rates.cold[count] > 0);
      }
      cr_assert_eq(rates.count, count);
      cr_assert_lt(rates.took_us, 60000000u, "a duration, not a clock's reading");
    }
  }
  cr_assert_eq(xor_kernel_select("portable64"), 0);
  cr_assert_str_eq(xor_kernel_name(), "portable64");
  cr_assert_str_eq(xor_kernel_large_name(), "portable64");
  cr_assert_eq(xor_kernel_select("auto"), ERR_NOT_FOUND);
  cr_assert_eq(xor_kernel_select(""), ERR_NOT_FOUND);
  cr_assert_str_eq(xor_kernel_name(), "portable64", "a refused name changes nothing");
}
