/* row_test.c: every field survives, every flipped bit and every cut is noticed. */
#include "storage/object/row.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "config/err.h"

static const struct id128 bucket = {{1, 2, 3}};
static const struct id128 other_bucket = {{1, 2, 4}};

static struct row sample_row(void) {
  struct row row = {
      .ver = {7ull << 16, 42},
      .kind = ROW_PUT,
      .op_id = {{9}},
      .data_id = {{8}},
      .profile = {.technique = TECHNIQUE_REED_SOL_VAN, .k = 4, .m = 2, .unit_bytes = 65536},
      .size = 1234567,
      .mtime_ms = 1764500000000,
      .etag = SLICE_LIT("d41d8cd98f00b204e9800998ecf8427e"),
  };
  for (int i = 0; i < 6; i++) row.digests[i].bytes[0] = (uint8_t)(100 + i);
  return row;
}

static struct slice encode(const struct row *row, const struct attr *attrs, unsigned count,
                           struct slice key) {
  uint8_t *bytes = NULL;
  size_t len = 0;
  cr_assert_eq(row_encode(row, attrs, count, &bucket, key, &bytes, &len), 0);
  return slice_of(bytes, len);
}

static void free_slice(struct slice s) {
  free((void *)(uintptr_t)s.data);
}

Test(row, every_field_survives) {
  struct row row = sample_row(), got = {0};
  struct attr attrs[] = {{SLICE_LIT("content-type"), SLICE_LIT("text/plain")},
                         {SLICE_LIT("x-amz-meta-a"), SLICE_LIT("")}};
  struct slice key = SLICE_LIT("a//b"), bytes = encode(&row, attrs, 2, key);
  cr_assert_eq(row_decode(bytes, &bucket, key, &got), 0);
  cr_assert_eq(version_cmp(&got.ver, &row.ver), 0);
  cr_assert_eq(got.kind, ROW_PUT);
  cr_assert(id128_eq(&got.op_id, &row.op_id) && id128_eq(&got.data_id, &row.data_id));
  cr_assert_eq(got.profile.technique, TECHNIQUE_REED_SOL_VAN);
  cr_assert(got.profile.k == 4 && got.profile.m == 2 && got.profile.unit_bytes == 65536);
  cr_assert(got.size == row.size && got.mtime_ms == row.mtime_ms);
  cr_assert(slice_eq(got.etag, row.etag));
  cr_assert_eq(memcmp(got.digests, row.digests, sizeof row.digests), 0);
  cr_assert_eq(got.attr_count, 2);
  cr_assert(slice_eq(row_attr_find(&got, "content-type"), SLICE_LIT("text/plain")));
  cr_assert_not_null(row_attr_find(&got, "x-amz-meta-a").data, "empty is not absent");
  cr_assert_null(row_attr_find(&got, "x-amz-meta-b").data);
  free_slice(bytes);
}

Test(row, re_encoding_at_another_version_keeps_the_attributes) {
  struct row row = sample_row(), got = {0}, again = {0};
  struct attr attrs[] = {{SLICE_LIT("a"), SLICE_LIT("1")}, {SLICE_LIT("b"), SLICE_LIT("2")}};
  struct slice key = SLICE_LIT("k"), bytes = encode(&row, attrs, 2, key);
  cr_assert_eq(row_decode(bytes, &bucket, key, &got), 0);
  got.ver.hlc++;
  struct slice second = encode(&got, NULL, 0, key);
  cr_assert_eq(row_decode(second, &bucket, key, &again), 0);
  cr_assert_eq(again.ver.hlc, row.ver.hlc + 1);
  cr_assert(again.attr_count == 2 && slice_eq(row_attr_find(&again, "b"), SLICE_LIT("2")));
  free_slice(bytes);
  free_slice(second);
}

Test(row, every_flipped_bit_is_noticed) {
  struct row row = sample_row(), got;
  struct attr attrs[] = {{SLICE_LIT("a"), SLICE_LIT("1")}};
  struct slice key = SLICE_LIT("k"), bytes = encode(&row, attrs, 1, key);
  uint8_t *data = (uint8_t *)(uintptr_t)bytes.data;
  for (size_t bit = 0; bit < bytes.len * 8; bit++) {
    data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    cr_assert_eq(row_decode(bytes, &bucket, key, &got), ERR_CORRUPT, "bit %zu", bit);
    data[bit / 8] ^= (uint8_t)(1u << bit % 8);
  }
  for (size_t len = 0; len < bytes.len; len++)
    cr_assert_eq(row_decode(slice_of(data, len), &bucket, key, &got), ERR_CORRUPT);
  cr_assert_eq(row_decode(bytes, &bucket, key, &got), 0);
  free_slice(bytes);
}

Test(row, a_row_under_another_key_or_bucket_is_corrupt) {
  struct row row = sample_row(), got = {.size = 77};
  struct slice bytes = encode(&row, NULL, 0, SLICE_LIT("k1"));
  cr_assert_eq(row_decode(bytes, &bucket, SLICE_LIT("k2"), &got), ERR_CORRUPT);
  cr_assert_eq(row_decode(bytes, &other_bucket, SLICE_LIT("k1"), &got), ERR_CORRUPT);
  cr_assert_eq(got.size, 77, "untouched on failure");
  free_slice(bytes);
}

Test(row, tombstones_and_empty_objects_carry_no_digests) {
  struct row put = sample_row(), tomb = {.ver = {1, 1}, .kind = ROW_TOMB, .op_id = {{1}}}, got;
  put.size = 0;
  put.data_id = (struct id128){0};
  struct slice key = SLICE_LIT("k"), a = encode(&put, NULL, 0, key),
               b = encode(&tomb, NULL, 0, key);
  cr_assert_lt(a.len, 6 * 16 + 80);
  cr_assert_eq(row_decode(a, &bucket, key, &got), 0);
  cr_assert(!row_has_data(&got));
  cr_assert_eq(row_geometry(&got).stripe_count, 0);
  cr_assert_eq(row_decode(b, &bucket, key, &got), 0);
  cr_assert_eq(got.kind, ROW_TOMB);
  free_slice(a);
  free_slice(b);
}

Test(row, nonsense_is_refused_before_it_is_written) {
  uint8_t *bytes = NULL;
  size_t len = 0;
  struct slice key = SLICE_LIT("k");
  struct row row = sample_row();
  row.kind = 3;
  cr_assert_eq(row_encode(&row, NULL, 0, &bucket, key, &bytes, &len), ERR_INVALID);
  row = sample_row();
  row.kind = ROW_TOMB;
  cr_assert_eq(row_encode(&row, NULL, 0, &bucket, key, &bytes, &len), ERR_INVALID);
  row = sample_row();
  row.data_id = (struct id128){0};
  cr_assert_eq(row_encode(&row, NULL, 0, &bucket, key, &bytes, &len), ERR_INVALID);
  row = sample_row();
  row.profile.k = 0;
  cr_assert_eq(row_encode(&row, NULL, 0, &bucket, key, &bytes, &len), ERR_INVALID);
  row = sample_row();
  row.profile.k = 31;
  cr_assert_eq(row_encode(&row, NULL, 0, &bucket, key, &bytes, &len), ERR_INVALID);
  row = sample_row();
  row.ver = (struct version){0};
  cr_assert_eq(row_encode(&row, NULL, 0, &bucket, key, &bytes, &len), ERR_INVALID);
  cr_assert_null(bytes);
}

Test(row, the_size_limit_is_exact_and_a_full_row_can_be_re_proposed) {
  static uint8_t value[ROW_BYTES_MAX + 1];
  struct row row = sample_row(), got;
  struct slice key = SLICE_LIT("k");
  struct slice empty = encode(&row, NULL, 0, key);
  size_t room = ROW_BYTES_MAX - empty.len - 4 - 1;
  struct attr attr = {SLICE_LIT("a"), slice_of(value, room)};
  struct slice full = encode(&row, &attr, 1, key);
  cr_assert_eq(full.len, ROW_BYTES_MAX);
  cr_assert_eq(row_decode(full, &bucket, key, &got), 0);
  struct slice again = encode(&got, NULL, 0, key);
  cr_assert_eq(again.len, ROW_BYTES_MAX);

  uint8_t *bytes = NULL;
  size_t len;
  attr.value.len++;
  cr_assert_eq(row_encode(&row, &attr, 1, &bucket, key, &bytes, &len), ERR_TOO_LARGE);
  attr.value.len = sizeof value;
  cr_assert_eq(row_encode(&row, &attr, 1, &bucket, key, &bytes, &len), ERR_TOO_LARGE);
  struct attr many[ATTR_COUNT_MAX + 1];
  for (size_t i = 0; i < ARRAY_LEN(many); i++)
    many[i] = (struct attr){SLICE_LIT("a"), SLICE_LIT("")};
  cr_assert_eq(row_encode(&row, many, ARRAY_LEN(many), &bucket, key, &bytes, &len), ERR_TOO_LARGE);
  cr_assert_null(bytes);
  free_slice(empty);
  free_slice(full);
  free_slice(again);
}
