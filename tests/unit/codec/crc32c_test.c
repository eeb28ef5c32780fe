/* crc32c_test.c: every implementation gives the sum of the definition, at any length and address.
 */
#include "codec/crc32c.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define LEN_MAX 3500

/* RFC 3720: bit by bit. */
static uint32_t by_definition(uint32_t crc, const uint8_t *data, size_t len) {
  crc = ~crc;
  for (size_t i = 0; i < len; i++) {
    crc ^= data[i];
    for (unsigned bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
  }
  return ~crc;
}

static uint8_t bytes[LEN_MAX + 64];

static void bytes_fill(void) {
  uint32_t state = 7;
  for (size_t i = 0; i < sizeof bytes; i++) {
    state = state * 1664525u + 1013904223u;
    bytes[i] = (uint8_t)(state >> 24);
  }
}

Test(crc32c, known_sums) {
  static const uint8_t zeros[32];
  uint8_t ones[32];
  memset(ones, 0xff, sizeof ones);
  cr_assert_eq(crc32c(0, "123456789", 9), 0xe3069283u);
  for (unsigned i = 0; crc32c_at(i); i++) { /* RFC 3720, B.4 */
    cr_assert_eq(crc32c_run_at(i, 0, "123456789", 9), 0xe3069283u, "%s", crc32c_at(i));
    cr_assert_eq(crc32c_run_at(i, 0, zeros, sizeof zeros), 0x8a9136aau, "%s", crc32c_at(i));
    cr_assert_eq(crc32c_run_at(i, 0, ones, sizeof ones), 0x62a8ab43u, "%s", crc32c_at(i));
    cr_assert_eq(crc32c_run_at(i, 0x1234, zeros, 0), 0x1234u, "%s", crc32c_at(i));
  }
}

Test(crc32c, every_length_and_address) {
  bytes_fill();
  for (size_t len = 0; len <= LEN_MAX; len += len < 900 ? 1 : 37) {
    const uint8_t *at = bytes + len % 61;
    uint32_t seed = (uint32_t)len * 2654435761u, expected = by_definition(seed, at, len);
    cr_assert_eq(crc32c(seed, at, len), expected, "%zu", len);
    for (unsigned i = 0; crc32c_at(i); i++)
      cr_assert_eq(crc32c_run_at(i, seed, at, len), expected, "%s, %zu bytes", crc32c_at(i), len);
  }
}

Test(crc32c, nothing_beyond_a_page_is_read) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  uint8_t *map = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  cr_assert_neq(map, MAP_FAILED);
  for (size_t i = 0; i < page; i++) map[page + i] = (uint8_t)(i * 7);
  cr_assert_eq(mprotect(map, page, PROT_NONE), 0);
  cr_assert_eq(mprotect(map + 2 * page, page, PROT_NONE), 0);
  for (size_t len = 0; len <= 1700; len++) {
    for (unsigned i = 0; crc32c_at(i); i++) {
      const uint8_t *at = len % 2 ? map + page : map + 2 * page - len;
      cr_assert_eq(crc32c_run_at(i, 0, at, len), crc32c(0, at, len), "%s", crc32c_at(i));
    }
  }
  munmap(map, 3 * page);
}

Test(crc32c, chained_in_any_pieces) {
  bytes_fill();
  uint32_t whole = by_definition(0, bytes, LEN_MAX);
  for (size_t cut = 0; cut <= LEN_MAX; cut += 13) {
    for (unsigned i = 0; crc32c_at(i); i++) {
      uint32_t crc = crc32c_run_at(i, 0, bytes, cut);
      cr_assert_eq(crc32c(crc, bytes + cut, LEN_MAX - cut), whole);
    }
  }
}

Test(crc32c, a_flipped_bit_or_a_foreign_place_is_another_sum) {
  bytes_fill();
  struct id128 id = {{1, 2, 3}}, other = {{1, 2, 4}};
  const size_t len = 777;
  uint32_t good = unit_crc(&id, 3, 5, bytes, len);
  cr_assert_eq(good, crc32c(unit_crc_seed(&id, 3, 5), bytes, len));
  for (size_t bit = 0; bit < 8 * len; bit++) {
    bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    cr_assert_neq(unit_crc(&id, 3, 5, bytes, len), good);
    bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
  }
  cr_assert_neq(unit_crc(&other, 3, 5, bytes, len), good);
  cr_assert_neq(unit_crc(&id, 2, 5, bytes, len), good);
  cr_assert_neq(unit_crc(&id, 3, 6, bytes, len), good);
  cr_assert_neq(unit_crc(&id, 3, 5, bytes, len - 1), good);
}

Test(crc32c, the_name_is_the_one_that_runs) {
  for (size_t len = 0; len < 2000; len += 50) {
    bool found = false;
    for (unsigned i = 0; crc32c_at(i); i++) found |= strcmp(crc32c_at(i), crc32c_name(len)) == 0;
    cr_assert(found);
  }
  cr_assert_str_eq(crc32c_name(65536), "isal");
}
