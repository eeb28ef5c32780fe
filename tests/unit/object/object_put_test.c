/* object_put_test.c: PUT and DELETE against drives in memory: sizes, every single failure, lost
 * quorums, refusals, bodies that end badly, cancels. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "codec/digest.h"
#include "storage/object/rebuild.h"
#include "storage/object/slots.h"
#include "tests/unit/object/put_bed.h"

#define UNIT 4096u
#define KEY "a/key"

static struct fake_bed bed;

static struct fake_cluster *open_cluster(unsigned k, unsigned m) {
  fake_bed_open(&bed, 42 + k * 100 + m);
  const char *technique = m == 0 ? "none" : m == 1 ? "xor" : "reed_sol_van";
  return fake_cluster_open(&bed, k + m, 1, k, m, technique, UNIT);
}

static void close_cluster(struct fake_cluster *c) {
  fake_cluster_close(c);
  fake_bed_close(&bed);
}

static void md5_hex(const void *data, size_t len, char out[2 * MD5_LEN + 1]) {
  struct digest d;
  uint8_t md5[MD5_LEN];
  cr_assert_eq(digest_begin(&d, DIGEST_MD5), 0);
  digest_update(&d, data, len);
  digest_end(&d, md5);
  hex_encode(md5, sizeof md5, out);
}

/* Every size at which something changes: stripes, units, inline, windows. */
static const size_t sizes[] = {0,
                               1,
                               63,
                               64,
                               65,
                               255,
                               256,
                               257,
                               UNIT - 1,
                               UNIT,
                               UNIT + 1,
                               4 * UNIT - 1,
                               4 * UNIT,
                               4 * UNIT + 1,
                               65535,
                               65536,
                               65537,
                               16 * 4 * UNIT - 1,
                               16 * 4 * UNIT,
                               16 * 4 * UNIT + 1,
                               1000000,
                               32 * 4 * UNIT,
                               2500001};

static void put_of_size(struct fake_cluster *c, size_t len, bool known, size_t chunk) {
  uint8_t *data = bed_bytes(len, (unsigned)len);
  struct put_run r;
  put_run_open(&r, c, KEY, data, len);
  r.body.chunk = chunk;
  if (!known) r.body.body.length = BODY_LENGTH_UNKNOWN;
  cr_assert_eq(put_run_all(&r), 0, "size %zu: %s", len, err_name(r.result.err));
  char etag[2 * MD5_LEN + 1];
  md5_hex(data, len, etag);
  cr_assert_str_eq(r.result.etag, etag);
  cr_assert_eq(r.result.size, len);
  cr_assert_eq(r.result.missing, 0);
  cr_assert_eq(r.wanted, 1);
  cr_assert_eq(r.wanted_reads, 0);
  fake_run(&bed);
  struct key_place place = fake_place(c, slice_str(KEY));
  uint32_t all = slots_all(place.n);
  cr_assert_eq(fake_slots_chosen(c, slice_str(KEY), &r.result.ver), all, "size %zu", len);
  cr_assert_eq(fake_stages_open(c), 0, "size %zu", len);
  cr_assert(bed_reads_as(c, KEY, data, len), "size %zu reads back", len);
  free(data);
}

Test(object_put, every_size_of_known_and_unknown_length) {
  struct fake_cluster *c = open_cluster(4, 2);
  for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
    put_of_size(c, sizes[i], true, 0);
    put_of_size(c, sizes[i], false, 1000);
  }
  close_cluster(c);
}

Test(object_put, other_shapes) {
  static const unsigned shapes[][2] = {{1, 0}, {1, 1}, {2, 1}, {1, 2}, {2, 2}, {5, 3}};
  for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
    struct fake_cluster *c = open_cluster(shapes[s][0], shapes[s][1]);
    put_of_size(c, 0, true, 0);
    put_of_size(c, 1, true, 0);
    put_of_size(c, 100000, false, 777);
    put_of_size(c, 300001, true, 0);
    close_cluster(c);
  }
}

/* Small chunks travel in the ACCEPT; one byte more than the limit makes them files. */
Test(object_put, inline_or_staged) {
  struct fake_cluster *c = open_cluster(4, 2);
  size_t limit = 4 * c->objects.inline_max_bytes;
  uint8_t *data = bed_bytes(limit + 1, 7);
  for (unsigned known = 0; known < 2; known++) {
    for (unsigned over = 0; over < 2; over++) {
      unsigned stages = fake_calls(c, PEER_STAGE);
      struct put_run r;
      put_run_open(&r, c, KEY, data, limit + over);
      if (!known) r.body.body.length = BODY_LENGTH_UNKNOWN;
      cr_assert_eq(put_run_all(&r), 0);
      fake_run(&bed);
      cr_assert_eq(fake_calls(c, PEER_STAGE) - stages, over ? 6 : 0);
    }
  }
  free(data);
  close_cluster(c);
}

/* Two windows at most, whatever the size; one where no second buffer is free; and it still ends. */
Test(object_put, buffers_are_bounded) {
  struct fake_cluster *c = open_cluster(4, 2);
  size_t len = 40 * 16 * 4 * UNIT + 5, window = 16 * 6 * UNIT;
  uint8_t *data = bed_bytes(len, 3);
  static const unsigned windows[] = {2, 1};
  for (size_t i = 0; i < ARRAY_LEN(windows); i++) {
    bed.buffer_limit = windows[i] * window;
    bed.buffer_peak = 0;
    struct put_run r;
    put_run_open(&r, c, KEY, data, len);
    r.body.chunk = 5000;
    cr_assert_eq(put_run_all(&r), 0);
    fake_run(&bed);
    cr_assert_eq(bed.buffer_peak, windows[i] * window);
  }
  bed.buffer_limit = FAKE_BUFFER_BYTES;
  cr_assert(bed_reads_as(c, KEY, data, len));
  /* Less than a window: a stripe at a time. */
  bed.buffer_limit = 3 * 6 * UNIT;
  struct put_run r;
  put_run_open(&r, c, KEY, data, 50 * 4 * UNIT + 1);
  cr_assert_eq(put_run_all(&r), 0);
  fake_run(&bed);
  bed.buffer_limit = FAKE_BUFFER_BYTES;
  cr_assert(bed_reads_as(c, KEY, data, 50 * 4 * UNIT + 1));
  free(data);
  close_cluster(c);
}

/* Many PUTs that together want more than there is: none waits for another for ever. */
Test(object_put, many_with_few_buffers) {
  struct fake_cluster *c = open_cluster(2, 1);
  size_t len = 6 * 16 * 2 * UNIT + 77;
  uint8_t *data = bed_bytes(len, 3);
  bed.buffer_limit = 2 * 16 * 3 * UNIT;
  c->objects.buffer_wait_ms = 0;
  static struct put_run runs[40];
  char keys[40][8];
  for (unsigned i = 0; i < 40; i++) {
    snprintf(keys[i], sizeof keys[i], "k%u", i);
    put_run_open(&runs[i], c, keys[i], data, len);
    runs[i].body.delay_ms = i % 3;
    runs[i].body.chunk = 30000;
    put_run_start(&runs[i]);
  }
  for (unsigned i = 0; i < 40; i++) cr_assert_eq(put_run_wait(&runs[i]), 0);
  fake_run(&bed);
  bed.buffer_limit = FAKE_BUFFER_BYTES;
  for (unsigned i = 0; i < 40; i++) cr_assert(bed_reads_as(c, keys[i], data, len));
  free(data);
  close_cluster(c);
}

Test(object_put, no_buffer_in_time_is_slow_down) {
  struct fake_cluster *c = open_cluster(2, 1);
  uint8_t *data = bed_bytes(300000, 3);
  struct put_run hog, r;
  bed.buffer_limit = 16 * 3 * UNIT;
  put_run_open(&hog, c, "hog", data, 300000);
  hog.body.stall = true;
  put_run_start(&hog);
  fake_run_for(&bed, 10);
  put_run_open(&r, c, KEY, data, 300000);
  cr_assert_eq(put_run_all(&r), ERR_SLOW_DOWN);
  object_put_cancel(hog.put);
  cr_assert_eq(put_run_wait(&hog), ERR_CANCELLED);
  fake_run(&bed);
  cr_assert(bed_is_empty(c));
  free(data);
  close_cluster(c);
}

Test(object_put, overwrite_and_delete) {
  struct fake_cluster *c = open_cluster(4, 2);
  struct put_run r;
  struct version last = {0};
  for (unsigned i = 0; i < 5; i++) {
    uint8_t *data = bed_bytes(70000 * i + 3, i);
    put_run_open(&r, c, KEY, data, 70000 * i + 3);
    cr_assert_eq(put_run_all(&r), 0);
    cr_assert_gt(version_cmp(&r.result.ver, &last), 0);
    last = r.result.ver;
    cr_assert(bed_reads_as(c, KEY, data, 70000 * i + 3));
    free(data);
  }
  put_run_open_delete(&r, c, KEY);
  cr_assert_eq(put_run_all(&r), 0);
  uint8_t *got;
  size_t len;
  cr_assert_eq(bed_get(c, KEY, &got, &len), ERR_NO_SUCH_KEY);
  cr_assert_eq(c->objects.stats.puts, 5);
  cr_assert_eq(c->objects.stats.deletes, 1);
  close_cluster(c);
}

/* A gateway whose clock is an hour behind goes above what it sees all the same. */
Test(object_put, a_slow_clock_loses_no_write) {
  struct fake_cluster *c = open_cluster(4, 2);
  struct objects *other = fake_cluster_gateway(c);
  struct put_run r;
  put_run_open(&r, c, KEY, "first", 5);
  cr_assert_eq(put_run_all(&r), 0);
  fake_run(&bed);
  bed.wall_skew_ms = -3600000;
  put_run_open(&r, c, KEY, "second", 6);
  r.o = other;
  cr_assert_eq(put_run_all(&r), 0);
  fake_run(&bed);
  cr_assert(bed_reads_as(c, KEY, "second", 6));
  close_cluster(c);
}

Test(object_put, given_etag_and_md5) {
  struct fake_cluster *c = open_cluster(4, 2);
  struct put_run r;
  uint8_t md5[MD5_LEN];
  char hex[2 * MD5_LEN + 1];
  md5_hex("body", 4, hex);
  cr_assert_eq(hex_decode(slice_str(hex), md5, MD5_LEN), 0);
  put_run_open(&r, c, KEY, "body", 4);
  r.args.etag = SLICE_LIT("given-3");
  r.args.content_md5 = md5;
  cr_assert_eq(put_run_all(&r), 0);
  cr_assert_str_eq(r.result.etag, "given-3");
  fake_run(&bed);
  md5[3] ^= 1;
  put_run_open(&r, c, "other", "body", 4);
  r.args.content_md5 = md5;
  cr_assert_eq(put_run_all(&r), ERR_BAD_DIGEST);
  uint8_t *data = bed_bytes(900000, 1);
  put_run_open(&r, c, "big", data, 900000);
  r.args.content_md5 = md5;
  cr_assert_eq(put_run_all(&r), ERR_BAD_DIGEST);
  fake_run(&bed);
  cr_assert_eq(fake_stages_open(c), 0);
  cr_assert_eq(fake_drive_row_count(&c->drives[0].drive), 1);
  free(data);
  close_cluster(c);
}

Test(object_put, refused_before_the_body) {
  struct fake_cluster *c = open_cluster(4, 2);
  static uint8_t value[ROW_BYTES_MAX];
  struct attr attr = {SLICE_LIT("x-amz-meta-a"), slice_of(value, sizeof value)};
  struct put_run r;
  put_run_open(&r, c, KEY, "x", 1);
  r.args.attrs = &attr;
  r.args.attr_count = 1;
  cr_assert_eq(put_run_all(&r), ERR_TOO_LARGE);
  cr_assert_eq(r.wanted, 0);
  put_run_open(&r, c, KEY, "x", 1);
  r.body.body.length = OBJECT_BYTES_MAX + 1;
  cr_assert_eq(put_run_all(&r), ERR_BODY_LONG);
  cr_assert_eq(r.wanted, 0);
  fake_peer_down(&c->drives[0]);
  fake_peer_down(&c->drives[1]);
  put_run_open(&r, c, KEY, "x", 1);
  cr_assert_eq(put_run_all(&r), ERR_UNAVAILABLE);
  cr_assert_eq(r.wanted, 0);
  cr_assert_eq(r.body.reads, 0);
  fake_run(&bed);
  cr_assert(bed_is_empty(c));
  close_cluster(c);
}

/* A gateway whose clock was an hour ahead left a row on its own drive: the others refuse its stamp.
 * Another gateway that has met that row writes other keys as before. */
Test(object_put, a_row_from_the_far_future_stops_no_other_key) {
  struct fake_cluster *c = open_cluster(4, 2);
  bed.wall_skew_ms = 3600000;
  fake_tomb_store(c, slice_str("poisoned"), 0x01, 0);
  bed.wall_skew_ms = 0;
  struct put_run poisoned, other;
  put_run_open(&poisoned, c, "poisoned", "x", 1);
  cr_assert_lt(put_run_all(&poisoned), 0, "slot 0 is in sight: above it is too far for the others");
  put_run_open(&other, c, "other", "y", 1);
  cr_assert_eq(put_run_all(&other), 0);
  cr_assert(bed_reads_as(c, "other", "y", 1));
  fake_run(&bed);
  close_cluster(c);
}

/* All clocks were an hour ahead when the version was chosen: a PUT goes above it all the same, or
 * its acknowledged bytes would never be seen. */
Test(object_put, goes_above_what_was_chosen_in_the_far_future) {
  struct fake_cluster *c = open_cluster(4, 2);
  bed.wall_skew_ms = 3600000;
  struct fake_object old =
      fake_object_store(c, slice_str("key"), (const uint8_t *)"old", 3, slots_all(6), slots_all(6));
  bed.wall_skew_ms = 0;
  struct put_run r;
  put_run_open(&r, c, "key", "new", 3);
  cr_assert_eq(put_run_all(&r), 0);
  cr_assert_gt(version_cmp(&r.result.ver, &old.ver), 0);
  cr_assert(bed_reads_as(c, "key", "new", 3));
  fake_run(&bed);
  close_cluster(c);
}
