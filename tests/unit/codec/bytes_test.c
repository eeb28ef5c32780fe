/* bytes_test.c: every length is checked, and the first failure stays. */
#include "codec/bytes.h"

#include <criterion/criterion.h>

static void write_all(struct byte_writer *w) {
  struct id128 id = {{1, 2, 3}};
  put_u8(w, 0x12);
  put_u16(w, 0x3456);
  put_u32(w, 0x789abcde);
  put_u64(w, UINT64_C(0x0123456789abcdef));
  put_id(w, &id);
  put_str16(w, SLICE_LIT("key"));
  put_str32(w, SLICE_LIT(""));
  put_bytes(w, SLICE_LIT("xyz"));
}

Test(bytes, what_is_written_is_read) {
  struct byte_writer w = {.max = 1 << 20};
  write_all(&w);
  cr_assert_not(w.failed);
  cr_assert_eq(w.len, 1u + 2 + 4 + 8 + 16 + 5 + 4 + 3);
  cr_assert_eq(memcmp(w.data, "\x12\x34\x56\x78\x9a\xbc\xde\x01\x23", 9), 0, "big-endian");
  struct byte_reader r = byte_reader_of(slice_of(w.data, w.len));
  cr_assert_eq(get_u8(&r), 0x12);
  cr_assert_eq(get_u16(&r), 0x3456);
  cr_assert_eq(get_u32(&r), 0x789abcdeu);
  cr_assert_eq(get_u64(&r), UINT64_C(0x0123456789abcdef));
  cr_assert_eq(get_id(&r).bytes[2], 3);
  cr_assert(slice_eq(get_str16(&r), SLICE_LIT("key")));
  cr_assert_eq(get_str32(&r).len, 0u);
  cr_assert(slice_eq(get_bytes(&r, 3), SLICE_LIT("xyz")));
  cr_assert_eq(byte_reader_left(&r), 0u);
  cr_assert_not(r.failed);
  byte_writer_free(&w);
  byte_writer_free(&w);
  byte_writer_free(NULL);
}

Test(bytes, every_shorter_input_fails_and_stays_failed) {
  struct byte_writer w = {.max = 1 << 20};
  write_all(&w);
  for (size_t len = 0; len < w.len; len++) {
    struct byte_reader r = byte_reader_of(slice_of(w.data, len));
    get_u8(&r);
    get_u16(&r);
    get_u32(&r);
    get_u64(&r);
    get_id(&r);
    get_str16(&r);
    get_str32(&r);
    get_bytes(&r, 3);
    cr_assert(r.failed, "%zu of %zu bytes", len, w.len);
    const uint8_t *at = r.at;
    cr_assert_eq(get_u8(&r), 0);
    cr_assert_eq(get_bytes(&r, 0).data, NULL, "nothing more comes after a failure");
    cr_assert_eq(r.at, at);
  }
  byte_writer_free(&w);
  struct byte_reader r =
      byte_reader_of(SLICE_LIT("\xff\xff\xff\xff"
                               "abc"));
  cr_assert_eq(get_str32(&r).len, 0u);
  cr_assert(r.failed);
  r = byte_reader_of(SLICE_LIT("abc"));
  get_bytes(&r, SIZE_MAX);
  cr_assert(r.failed);
  r = byte_reader_of((struct slice){NULL, 0});
  cr_assert_eq(get_bytes(&r, 0).len, 0u);
  cr_assert_not(r.failed, "nothing out of nothing is fine");
}

Test(bytes, a_writer_stops_at_its_limit) {
  for (size_t max = 0; max < 43; max++) {
    struct byte_writer w = {.max = max};
    write_all(&w);
    cr_assert(w.failed, "max %zu", max);
    cr_assert_leq(w.len, max);
    cr_assert_leq(w.cap, MAX(max, (size_t)1));
    size_t len = w.len;
    put_bytes(&w, SLICE_LIT(""));
    put_u8(&w, 1);
    cr_assert_eq(w.len, len, "nothing is written after a failure");
    byte_writer_free(&w);
  }
  struct byte_writer w = {.max = 43};
  write_all(&w);
  cr_assert_not(w.failed);
  cr_assert_null(put_space(&w, SIZE_MAX));
  cr_assert(w.failed);
  byte_writer_free(&w);
  w = (struct byte_writer){.max = SIZE_MAX};
  put_u8(&w, 1);
  cr_assert_null(put_space(&w, SIZE_MAX), "the sum would wrap");
  byte_writer_free(&w);
}

Test(bytes, lengths_that_do_not_fit_their_field) {
  static uint8_t big[70000];
  struct byte_writer w = {.max = 1 << 20};
  put_str16(&w, slice_of(big, 65535));
  cr_assert_not(w.failed);
  put_str16(&w, slice_of(big, 65536));
  cr_assert(w.failed);
  byte_writer_free(&w);
  w = (struct byte_writer){.max = 1 << 20};
  cr_assert_not_null(put_space(&w, 0), "room for nothing is no failure");
  cr_assert_not(w.failed);
  byte_writer_free(&w);
}
