/* drive_rules_test.c: each rule of a node, and what it refuses (PROTOCOL.md 4, 11, 12). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "codec/crc32c.h"
#include "config/err.h"
#include "tests/unit/drive/drive_bed.h"

static struct bed bed;

static void setup(void) {
  atomic_store(&bed_now_ms, BED_NOW_MS);
  bed_start(&bed);
}
static void teardown(void) {
  bed_end(&bed);
}
TestSuite(rules, .init = setup, .fini = teardown);

static struct peer_reply accept_put(const char *key, uint64_t ver, uint64_t size, unsigned op,
                                    unsigned data) {
  struct bed_object o;
  bed_object(&o, key, ROW_PUT, ver, size, op, data);
  struct peer_reply reply = bed_accept(&bed, &o);
  bed_object_free(&o);
  return reply;
}

static struct peer_reply accept_tomb(const char *key, uint64_t ver, unsigned op) {
  struct bed_object o;
  bed_object(&o, key, ROW_TOMB, ver, 0, op, 0);
  struct peer_reply reply = bed_accept(&bed, &o);
  bed_object_free(&o);
  return reply;
}

static void expect_rows(const char *key, unsigned count, const uint64_t *vers, int chosen) {
  struct peer_rows rows;
  uint8_t *body;
  cr_assert_eq(bed_read(&bed, key, 0, &rows, &body), 0);
  cr_assert_eq(rows.count, count, "%u rows, want %u", rows.count, count);
  for (unsigned i = 0; i < count; i++) {
    struct version want = bed_ver(vers[i]);
    cr_assert_eq(version_cmp(&rows.rows[i].row.ver, &want), 0, "row %u", i);
    cr_assert_eq(rows.rows[i].chosen, (int)i == chosen, "flag of row %u", i);
  }
  free(body);
}
#define VERS(...) ARRAY_LEN(((uint64_t[]){__VA_ARGS__})), ((uint64_t[]){__VA_ARGS__})

static void expect_ver(const struct version *got, uint64_t want_ms) {
  struct version want = bed_ver(want_ms);
  cr_assert_eq(version_cmp(got, &want), 0);
}

Test(rules, accept_stores_and_survives_a_restart) {
  cr_assert_eq(accept_put("k", 10, 100, 1, 1).err, 0);
  expect_rows("k", VERS(10), -1);
  bed_reopen(&bed);
  expect_rows("k", VERS(10), -1);
  bed_commit(&bed, "k", 10, 0);
  expect_rows("k", VERS(10), 0);
  bed_reopen(&bed);
  expect_rows("k", VERS(10), 0);
  struct drive_stats stats;
  drive_stats_get(bed.drive, &stats);
  cr_assert_eq(stats.rows, 1);
  cr_assert_eq(stats.undecided, 0);
  expect_rows("other", 0, NULL, -1);
}

Test(rules, accept_again_is_an_ack) {
  cr_assert_eq(accept_put("k", 10, 100, 1, 1).err, 0);
  cr_assert_eq(accept_put("k", 10, 100, 1, 1).err, 0);
  struct peer_reply reply = bed_promise(&bed, "k", 20);
  cr_assert_eq(reply.err, 0);
  free(reply.body);
  cr_assert_eq(accept_put("k", 10, 100, 1, 1).err, 0, "acked before the promise");
  expect_rows("k", VERS(10), -1);
}

Test(rules, accept_of_a_used_version_is_an_error) {
  cr_assert_eq(accept_put("k", 10, 100, 1, 1).err, 0);
  cr_assert_eq(accept_put("k", 10, 100, 2, 1).err, ERR_VER_REUSED);
  cr_assert_eq(accept_put("k", 10, 100, 1, 2).err, ERR_VER_REUSED);
  expect_rows("k", VERS(10), -1);
}

Test(rules, accept_below_a_promise_is_refused_at_it_allowed) {
  struct peer_reply reply = bed_promise(&bed, "k", 50);
  cr_assert_eq(reply.err, 0);
  free(reply.body);
  reply = accept_put("k", 49, 100, 1, 1);
  cr_assert_eq(reply.err, ERR_PROMISED);
  expect_ver(&reply.ver, 50);
  bed_reopen(&bed);
  cr_assert_eq(accept_put("k", 49, 100, 1, 1).err, ERR_PROMISED, "the promise is durable");
  cr_assert_eq(accept_put("k", 50, 100, 1, 1).err, 0);
  cr_assert_eq(accept_put("k", 49, 100, 2, 2).err, ERR_PROMISED, "a row at it does not lift it");
  expect_rows("k", VERS(50), -1);
}

Test(rules, accept_at_or_below_the_floor_is_refused) {
  uint8_t key[3] = {1, 0, 77}, value[16];
  struct version floor = bed_ver(30);
  struct store_txn *txn;
  store_be64(value, floor.hlc);
  store_be64(value + 8, floor.nonce);
  cr_assert_eq(store_begin(bed.drive->store, true, &txn), 0);
  cr_assert_eq(store_put(txn, STORE_PARTITION, slice_of(key, 3), slice_of(value, 16)), 0);
  cr_assert_eq(store_commit(txn), 0);
  struct peer_reply reply = accept_put("k", 30, 100, 1, 1);
  cr_assert_eq(reply.err, ERR_FLOOR);
  expect_ver(&reply.ver, 30);
  cr_assert_eq(bed_promise(&bed, "k", 30).err, ERR_FLOOR);
  reply = bed_promise(&bed, "k", 31);
  cr_assert_eq(reply.err, 0);
  free(reply.body);
  cr_assert_eq(accept_put("k", 31, 100, 1, 1).err, 0);
}

Test(rules, another_epoch_is_refused) {
  struct bed_object o;
  struct peer_reply reply;
  bed_object(&o, "k", ROW_PUT, 10, 100, 1, 1);
  struct peer_request req = bed_accept_request(&o);
  req.epoch = 0;
  cr_assert_eq(bed_apply(&bed, &req).err, ERR_STALE_EPOCH);
  req.epoch = 2;
  cr_assert_eq(bed_apply(&bed, &req).err, ERR_STALE_EPOCH);
  struct peer_request read = bed_request(PEER_READ, "k");
  read.epoch = 0;
  drive_read(bed.drive, &read, &reply);
  cr_assert_eq(reply.err, ERR_STALE_EPOCH);
  expect_rows("k", 0, NULL, -1);
  bed_object_free(&o);
}

Test(rules, a_clock_far_ahead_is_refused) {
  struct peer_reply reply = accept_put("k", VERSION_FUTURE_MS_MAX + 1, 100, 1, 1);
  cr_assert_eq(reply.err, ERR_CLOCK);
  cr_assert_eq(bed_promise(&bed, "k", VERSION_FUTURE_MS_MAX + 1).err, ERR_CLOCK);
  cr_assert_eq(accept_put("k", VERSION_FUTURE_MS_MAX, 100, 1, 1).err, 0);
  /* Own clock behind: what is stored counts as a clock, also after a restart. */
  atomic_store(&bed_now_ms, BED_NOW_MS - 3600000);
  cr_assert_eq(accept_put("l", 2 * VERSION_FUTURE_MS_MAX, 100, 2, 2).err, 0);
  bed_reopen(&bed);
  cr_assert_eq(accept_put("l", 3 * VERSION_FUTURE_MS_MAX, 100, 3, 3).err, 0);
  cr_assert_eq(accept_put("l", 4 * VERSION_FUTURE_MS_MAX + 1, 100, 4, 4).err, ERR_CLOCK);
}

Test(rules, a_chosen_higher_row_supersedes) {
  cr_assert_eq(accept_put("k", 20, 100, 1, 1).err, 0);
  struct peer_reply reply = accept_put("k", 10, 100, 2, 2);
  cr_assert_eq(reply.err, 0);
  cr_assert_eq(reply.flags, 0, "a lower version than an undecided one is stored");
  expect_rows("k", VERS(20, 10), -1);
  bed_commit(&bed, "k", 20, 0);
  reply = accept_put("k", 15, 100, 3, 3);
  cr_assert_eq(reply.err, 0);
  cr_assert_eq(reply.flags, PEER_SUPERSEDED);
  expect_rows("k", VERS(20), 0);
  struct store_txn *txn;
  struct id128 dropped = bed_id(3);
  cr_assert_eq(store_begin(bed.drive->store, false, &txn), 0);
  cr_assert_eq(chunk_present(txn, &dropped, BED_SLOT), ERR_NOT_FOUND);
  store_abort(txn);
}

Test(rules, a_deleting_bucket_takes_tombstones_only) {
  struct peer_request req = bed_request(PEER_BUCKET, "");
  req.bucket_state = BUCKET_DELETING;
  req.ver = bed_ver(5);
  cr_assert_eq(bed_apply(&bed, &req).err, 0);
  cr_assert_eq(accept_put("k", 10, 100, 1, 1).err, ERR_BUCKET_DELETING);
  cr_assert_eq(bed_promise(&bed, "k", 10).err, ERR_BUCKET_DELETING);
  cr_assert_eq(accept_tomb("k", 10, 1).err, 0);
  bed_reopen(&bed);
  cr_assert_eq(accept_put("k", 11, 100, 1, 1).err, ERR_BUCKET_DELETING, "durable");
  req.bucket_state = BUCKET_ACTIVE;
  req.ver = bed_ver(4);
  struct peer_reply reply = bed_apply(&bed, &req);
  cr_assert_eq(reply.err, ERR_PROMISED, "an older push changes nothing");
  expect_ver(&reply.ver, 5);
  req.ver = bed_ver(5);
  cr_assert_eq(bed_apply(&bed, &req).err, ERR_VER_REUSED);
  cr_assert_eq(accept_put("k", 12, 100, 1, 1).err, ERR_BUCKET_DELETING);
  req.ver = bed_ver(6);
  cr_assert_eq(bed_apply(&bed, &req).err, 0);
  cr_assert_eq(accept_put("k", 12, 100, 1, 1).err, 0);
  req.bucket_state = 9;
  cr_assert_eq(bed_apply(&bed, &req).err, ERR_INVALID);
}

Test(rules, data_needs_its_chunk) {
  struct bed_object o;
  bed_object(&o, "k", ROW_PUT, 10, 30000, 1, 1);
  struct peer_request req = bed_accept_request(&o), bad;
  bad = req;
  bad.unit_count = 0;
  cr_assert_eq(bed_apply(&bed, &bad).err, ERR_NO_CHUNK);
  bad = req;
  bad.units[0].crc ^= 1;
  cr_assert_eq(bed_apply(&bed, &bad).err, ERR_CORRUPT);
  bad = req;
  bad.units[1].len--;
  cr_assert_eq(bed_apply(&bed, &bad).err, ERR_INVALID);
  bad = req;
  bad.unit_count--;
  cr_assert_eq(bed_apply(&bed, &bad).err, ERR_INVALID);
  bad = req;
  bad.slot = 6;
  cr_assert_eq(bed_apply(&bed, &bad).err, ERR_INVALID);
  bad = req;
  bad.slot = 2; /* these bytes are another chunk's */
  cr_assert_lt(bed_apply(&bed, &bad).err, 0);
  struct row row = o.row;
  uint8_t *bytes;
  size_t len;
  row.digests[BED_SLOT].bytes[0] ^= 1;
  cr_assert_eq(row_encode(&row, NULL, 0, &o.bucket, slice_str("k"), &bytes, &len), 0);
  bad = req;
  bad.row = slice_of(bytes, len);
  cr_assert_eq(bed_apply(&bed, &bad).err, ERR_CORRUPT);
  free(bytes);
  expect_rows("k", 0, NULL, -1);
  cr_assert_eq(bed_apply(&bed, &req).err, 0);
  cr_assert_eq(bed_fetch(&bed, &o), 0);
  bed_object_free(&o);
}

Test(rules, empty_objects_chunks_and_tombstones_need_none) {
  cr_assert_eq(accept_put("empty", 10, 0, 1, 0).err, 0);
  cr_assert_eq(accept_tomb("tomb", 10, 2).err, 0);
  struct bed_object o; /* one byte: chunk 1 of 4 is empty */
  bed_object(&o, "byte", ROW_PUT, 10, 1, 3, 3);
  struct peer_request req = bed_accept_request(&o);
  req.unit_count = 0;
  cr_assert_eq(bed_apply(&bed, &req).err, 0);
  bed_object_free(&o);
  bed_object(&o, "byte", ROW_PUT, 11, 1, 4, 4); /* or comes as a unit of no bytes */
  cr_assert_eq(bed_accept(&bed, &o).err, 0);
  cr_assert_eq(bed_fetch(&bed, &o), 0);
  bed_object_free(&o);
  static const char *const names[] = {"empty", "tomb", "byte"};
  for (unsigned i = 0; i < ARRAY_LEN(names); i++) {
    struct peer_rows rows;
    uint8_t *body;
    cr_assert_eq(bed_read(&bed, names[i], 0, &rows, &body), 0);
    cr_assert_eq(rows.rows[0].chunk_state, CHUNK_WHOLE);
    free(body);
  }
}

Test(rules, a_row_of_another_key_is_corrupt) {
  struct bed_object o;
  bed_object(&o, "k", ROW_PUT, 10, 100, 1, 1);
  struct peer_request req = bed_accept_request(&o);
  req.key = SLICE_LIT("j");
  cr_assert_eq(bed_apply(&bed, &req).err, ERR_CORRUPT);
  req.key = slice_of("a\0b", 3);
  cr_assert_eq(bed_apply(&bed, &req).err, ERR_INVALID);
  req.key = SLICE_LIT("");
  cr_assert_eq(bed_apply(&bed, &req).err, ERR_INVALID);
  bed_object_free(&o);
}

Test(rules, promise_is_granted_above_everything_only) {
  struct peer_rows rows;
  cr_assert_eq(accept_put("k", 10, 100, 1, 1).err, 0);
  struct peer_reply reply = bed_promise(&bed, "k", 10);
  cr_assert_eq(reply.err, ERR_PROMISED);
  expect_ver(&reply.ver, 10);
  reply = bed_promise(&bed, "k", 20);
  cr_assert_eq(reply.err, 0);
  struct id128 bucket = bed_id(1);
  cr_assert_eq(
      peer_rows_decode(slice_of(reply.body, reply.body_len), &bucket, slice_str("k"), &rows), 0);
  cr_assert_eq(rows.count, 1);
  expect_ver(&rows.rows[0].row.ver, 10);
  free(reply.body);
  reply = bed_promise(&bed, "k", 20);
  cr_assert_eq(reply.err, ERR_PROMISED);
  expect_ver(&reply.ver, 20);
  cr_assert_null(reply.body);
  bed_reopen(&bed);
  cr_assert_eq(bed_promise(&bed, "k", 19).err, ERR_PROMISED);
  reply = bed_promise(&bed, "new", 1); /* a key that nothing is known of */
  cr_assert_eq(reply.err, 0);
  free(reply.body);
  cr_assert_eq(bed_promise(&bed, "new", 1).err, ERR_PROMISED);
}

Test(rules, commit_of_an_absent_row_is_ignored) {
  bed_commit(&bed, "k", 10, 0x3);
  expect_rows("k", 0, NULL, -1);
  struct drive_stats stats;
  drive_stats_get(bed.drive, &stats);
  cr_assert_eq(stats.heal_entries, 0);
}

Test(rules, a_commit_that_overtakes_its_accept_is_remembered) {
  bed_commit(&bed, "k", 10, 0x20);
  bed_commit(&bed, "k", 11, 0);
  cr_assert_eq(accept_put("k", 10, 100, 1, 1).err, 0);
  expect_rows("k", VERS(10), 0);
  struct drive_stats stats;
  drive_stats_get(bed.drive, &stats);
  cr_assert_eq(stats.undecided, 0);
  cr_assert_eq(stats.heal_entries, 1);
  bed_commit(&bed, "other", 12, 0);
  cr_assert_eq(accept_put("k", 12, 100, 2, 2).err, 0);
  expect_rows("k", VERS(12, 10), 1);
}

static unsigned keys_page(enum peer_verb verb, uint64_t age_ms, struct peer_key_entry *out,
                          unsigned cap, unsigned limit) {
  uint8_t from[STORE_KEY_BYTES_MAX];
  struct slice cursor = {0};
  unsigned count = 0;
  do {
    struct peer_request req = bed_request(verb, "");
    struct peer_reply reply;
    req.age_ms = age_ms;
    req.limit = limit;
    req.from = cursor;
    drive_read(bed.drive, &req, &reply);
    cr_assert_eq(reply.err, 0);
    struct byte_reader r = byte_reader_of(slice_of(reply.body, reply.body_len));
    int more;
    unsigned here = 0;
    while ((more = peer_keys_next(&r, &out[count])) > 0) {
      out[count].key = SLICE_LIT("");
      here++;
      cr_assert_lt(++count, cap);
    }
    cr_assert_eq(more, 0);
    cr_assert_leq(here, limit);
    cursor = peer_keys_cursor(&r);
    cr_assert_leq(cursor.len, sizeof from);
    if (cursor.len) memcpy(from, cursor.data, cursor.len);
    cursor.data = from;
    free(reply.body);
  } while (cursor.len > 0);
  return count;
}

Test(rules, heal_queue_merges_survives_and_goes_with_the_row) {
  struct peer_key_entry e[8];
  cr_assert_eq(accept_put("k", 10, 100, 1, 1).err, 0);
  cr_assert_eq(accept_put("l", 10, 100, 2, 2).err, 0);
  bed_commit(&bed, "k", 10, 0x4);
  bed_commit(&bed, "k", 10, 0x21);
  bed_commit(&bed, "l", 10, 0);
  bed_reopen(&bed);
  cr_assert_eq(keys_page(PEER_HEAL_LIST, 0, e, 8, 1), 1);
  cr_assert_eq(e[0].missing, 0x25u);
  expect_ver(&e[0].ver, 10);
  cr_assert_eq(e[0].pool, 1);
  cr_assert_eq(e[0].partition, 77);
  cr_assert_eq(accept_put("k", 20, 100, 3, 3).err, 0);
  bed_commit(&bed, "k", 20, 0);
  bed_housekeep(&bed);
  cr_assert_eq(keys_page(PEER_HEAL_LIST, 0, e, 8, 1), 0);
}

Test(rules, undecided_lists_what_waits_long_enough) {
  struct peer_key_entry e[64];
  char key[16];
  for (unsigned i = 0; i < 20; i++) {
    snprintf(key, sizeof key, "k%02u", i);
    cr_assert_eq(accept_put(key, 10, 100, i + 1, i + 1).err, 0);
    cr_assert_eq(accept_put(key, 11, 100, i + 100, i + 100).err, 0);
  }
  bed_commit(&bed, "k05", 11, 0);
  cr_assert_eq(keys_page(PEER_UNDECIDED, 5000, e, 64, 3), 0);
  atomic_store(&bed_now_ms, BED_NOW_MS + 5000);
  bed_reopen(&bed);
  /* Of a key's two rows the newer speaks; of k05 the older is left until it is dropped. */
  cr_assert_eq(keys_page(PEER_UNDECIDED, 5000, e, 64, 20), 20);
  bed_housekeep(&bed);
  cr_assert_eq(keys_page(PEER_UNDECIDED, 5000, e, 64, 20), 19);
  expect_ver(&e[0].ver, 11);
  cr_assert_eq(keys_page(PEER_UNDECIDED, 0, e, 64, 7), 19);
  cr_assert_eq(keys_page(PEER_UNDECIDED, 5001, e, 64, 7), 0);
}

Test(rules, superseded_rows_go_after_the_flag_is_durable) {
  cr_assert_eq(accept_put("k", 10, 100, 1, 1).err, 0);
  cr_assert_eq(accept_put("k", 20, 100, 2, 2).err, 0);
  struct peer_request req = bed_request(PEER_COMMIT, "k");
  struct peer_reply reply;
  req.ver = bed_ver(20);
  struct drive_stats stats;
  /* In the transaction that sets the flag nothing is dropped yet: the older row is there after it.
   */
  cr_assert_eq(drive_batch_begin(bed.drive), 0);
  drive_batch_apply(bed.drive, &req, &reply);
  cr_assert_eq(drive_batch_commit(bed.drive), 0);
  drive_stats_get(bed.drive, &stats);
  cr_assert_eq(stats.rows, 2);
  bed_reopen(&bed); /* the work is not forgotten */
  bed_housekeep(&bed);
  drive_stats_get(bed.drive, &stats);
  cr_assert_eq(stats.rows, 1);
  cr_assert_eq(stats.undecided, 0);
  cr_assert_eq(stats.trash_waiting, 1);
  expect_rows("k", VERS(20), 0);
}

Test(rules, a_batch_takes_superseded_rows_along) {
  struct drive_stats stats;
  cr_assert_eq(accept_put("k", 10, 100, 1, 1).err, 0);
  cr_assert_eq(accept_put("k", 20, 100, 2, 2).err, 0);
  bed_commit(&bed, "k", 20, 0);
  cr_assert_eq(accept_put("other", 20, 100, 3, 3).err, 0);
  drive_stats_get(bed.drive, &stats);
  cr_assert_eq(stats.rows, 2);
}

Test(rules, discard_drops_only_what_is_dead) {
  struct peer_request req = bed_request(PEER_DISCARD, "k");
  req.ver = bed_ver(10);
  cr_assert_eq(bed_apply(&bed, &req).err, 0, "nothing there");
  cr_assert_eq(accept_put("k", 10, 100, 1, 1).err, 0);
  cr_assert_eq(bed_apply(&bed, &req).err, 0);
  expect_rows("k", VERS(10), -1); /* no promise stands above it */
  struct peer_reply reply = bed_promise(&bed, "k", 20);
  cr_assert_eq(reply.err, 0);
  free(reply.body);
  cr_assert_eq(bed_apply(&bed, &req).err, 0);
  expect_rows("k", 0, NULL, -1);
  struct drive_stats stats;
  drive_stats_get(bed.drive, &stats);
  cr_assert_eq(stats.undecided, 0);
  cr_assert_eq(accept_put("k", 10, 100, 1, 1).err, ERR_PROMISED, "and it cannot come back");

  cr_assert_eq(accept_put("k", 20, 100, 2, 2).err, 0);
  bed_commit(&bed, "k", 20, 0);
  reply = bed_promise(&bed, "k", 30);
  free(reply.body);
  req.ver = bed_ver(20);
  cr_assert_eq(bed_apply(&bed, &req).err, 0);
  expect_rows("k", VERS(20), 0); /* chosen */
}

Test(rules, a_blob_that_another_row_names_stays) {
  struct bed_object a, b;
  bed_object(&a, "k", ROW_PUT, 10, 100, 1, 1);
  bed_object(&b, "k", ROW_PUT, 20, 100, 1, 1); /* proposed again: same operation, same data */
  cr_assert_eq(bed_accept(&bed, &a).err, 0);
  struct peer_request req = bed_accept_request(&b);
  req.unit_count = 0;
  cr_assert_eq(bed_apply(&bed, &req).err, 0, "the chunk stands here already");
  bed_commit(&bed, "k", 20, 0);
  bed_housekeep(&bed);
  atomic_fetch_add(&bed_now_ms, BED_TRASH_MS + 1);
  bed_housekeep(&bed);
  expect_rows("k", VERS(20), 0);
  cr_assert_eq(bed_fetch(&bed, &b), 0);
  struct drive_stats stats;
  drive_stats_get(bed.drive, &stats);
  cr_assert_eq(stats.trash_waiting, 0);
  bed_object_free(&a);
  bed_object_free(&b);
}

Test(rules, an_accept_takes_its_blob_out_of_the_trash) {
  struct bed_object a, b;
  bed_object(&a, "k", ROW_PUT, 10, 100, 1, 1);
  bed_object(&b, "k", ROW_PUT, 30, 100, 1, 1);
  cr_assert_eq(bed_accept(&bed, &a).err, 0);
  struct peer_reply reply = bed_promise(&bed, "k", 30);
  free(reply.body);
  struct peer_request req = bed_request(PEER_DISCARD, "k");
  req.ver = bed_ver(10);
  cr_assert_eq(bed_apply(&bed, &req).err, 0);
  struct drive_stats stats;
  drive_stats_get(bed.drive, &stats);
  cr_assert_eq(stats.trash_waiting, 1);
  req = bed_accept_request(&b);
  req.unit_count = 0;
  cr_assert_eq(bed_apply(&bed, &req).err, 0);
  atomic_fetch_add(&bed_now_ms, BED_TRASH_MS + 1);
  bed_housekeep(&bed);
  drive_stats_get(bed.drive, &stats);
  cr_assert_eq(stats.trash_waiting, 0);
  cr_assert_eq(bed_fetch(&bed, &b), 0);
  bed_object_free(&a);
  bed_object_free(&b);
}

Test(rules, read_stops_at_the_newest_chosen_row_and_says_more) {
  struct peer_rows rows;
  uint8_t *body;
  for (unsigned i = 1; i <= PEER_ROWS_MAX + 2; i++)
    cr_assert_eq(accept_put("k", i * 10, 100, i, i).err, 0);
  cr_assert_eq(bed_read(&bed, "k", 0, &rows, &body), 0);
  cr_assert_eq(rows.count, PEER_ROWS_MAX);
  cr_assert(rows.more);
  free(body);
  bed_commit(&bed, "k", 50, 0);
  cr_assert_eq(bed_read(&bed, "k", PEER_WANT_INLINE, &rows, &body), 0);
  cr_assert(!rows.more);
  cr_assert_eq(rows.count, 6);
  cr_assert(rows.rows[5].chosen);
  expect_ver(&rows.rows[5].row.ver, 50);
  /* The newest row's chunk came along, with its CRCs. */
  cr_assert_not_null(rows.inline_chunk.data);
  cr_assert_eq(rows.inline_unit_count, 1);
  struct id128 data = bed_id(PEER_ROWS_MAX + 2);
  cr_assert_eq(rows.inline_crcs[0],
               unit_crc(&data, BED_SLOT, 0, rows.inline_chunk.data, rows.inline_chunk.len));
  free(body);
}

static void spoil_row(const char *key, uint64_t ver) {
  struct store_txn *txn;
  struct index_key prefix, row_key;
  struct id128 bucket = bed_id(1);
  struct version v = bed_ver(ver);
  struct slice value;
  uint8_t copy[ROW_BYTES_MAX];
  cr_assert_eq(store_begin(bed.drive->store, true, &txn), 0);
  cr_assert_eq(keys_find(txn, &bucket, slice_str(key), &prefix), 0);
  keys_row(&prefix, &v, &row_key);
  cr_assert_eq(store_get(txn, STORE_ROWS, index_key_slice(&row_key), &value), 0);
  memcpy(copy, value.data, value.len);
  copy[20] ^= 1;
  cr_assert_eq(store_put(txn, STORE_ROWS, index_key_slice(&row_key), slice_of(copy, value.len)), 0);
  cr_assert_eq(store_commit(txn), 0);
}

Test(rules, a_row_that_fails_its_crc_is_never_no_row) {
  struct peer_rows rows;
  uint8_t *body;
  cr_assert_eq(accept_put("k", 10, 100, 1, 1).err, 0);
  spoil_row("k", 10);
  cr_assert_eq(bed_read(&bed, "k", 0, &rows, &body), ERR_CORRUPT);
  cr_assert_null(body);
  cr_assert_eq(bed_promise(&bed, "k", 20).err, ERR_CORRUPT);
  cr_assert_eq(accept_put("k", 10, 100, 1, 1).err, ERR_CORRUPT, "no ack for what cannot be read");
  cr_assert(!drive_failed(bed.drive));
  cr_assert_eq(accept_put("k", 15, 100, 1, 1).err, 0, "no promise was made");
}

Test(rules, a_superseded_row_that_cannot_be_read_keeps_its_chunk) {
  struct drive_stats stats;
  cr_assert_eq(accept_put("k", 10, 100, 1, 1).err, 0);
  cr_assert_eq(accept_put("k", 20, 100, 2, 2).err, 0);
  spoil_row("k", 10);
  bed_commit(&bed, "k", 20, 0);
  bed_housekeep(&bed);
  drive_stats_get(bed.drive, &stats);
  cr_assert_eq(stats.rows, 2);
  cr_assert_eq(stats.trash_waiting, 0);
  cr_assert_eq(drive_housekeep(bed.drive, 1), UINT64_MAX, "and is not tried for ever");
  expect_rows("k", VERS(20), 0);
}

Test(rules, new_data_needs_room_other_rows_do_not) {
  bed.opt.reserve_bytes = UINT64_MAX - 1;
  bed_reopen(&bed);
  cr_assert_eq(accept_put("k", 10, 100, 1, 1).err, ERR_NO_SPACE);
  cr_assert_eq(accept_tomb("k", 11, 2).err, 0);
  bed_commit(&bed, "k", 11, 0);
  struct bed_object o;
  bed_object(&o, "k", ROW_PUT, 20, 1 << 20, 3, 3);
  cr_assert_eq(bed_stage(&bed, &o), ERR_NO_SPACE);
  bed_object_free(&o);
  struct drive_stats stats;
  drive_stats_get(bed.drive, &stats);
  cr_assert(stats.full);
  cr_assert_eq(stats.stages_open, 0);
  cr_assert(!drive_failed(bed.drive));
}

Test(rules, several_operations_of_one_key_in_one_batch) {
  struct bed_object a, b;
  struct peer_reply reply[4];
  bed_object(&a, "k", ROW_PUT, 10, 100, 1, 1);
  bed_object(&b, "k", ROW_PUT, 20, 100, 2, 2);
  struct peer_request accept_a = bed_accept_request(&a), accept_b = bed_accept_request(&b);
  struct peer_request promise = bed_request(PEER_PROMISE, "k"),
                      commit = bed_request(PEER_COMMIT, "k");
  promise.ver = bed_ver(15);
  commit.ver = bed_ver(20);
  cr_assert_eq(drive_batch_begin(bed.drive), 0);
  drive_batch_apply(bed.drive, &accept_b, &reply[0]);
  drive_batch_apply(bed.drive, &promise, &reply[1]);
  drive_batch_apply(bed.drive, &commit, &reply[2]);
  drive_batch_apply(bed.drive, &accept_a, &reply[3]);
  cr_assert_eq(drive_batch_commit(bed.drive), 0);
  cr_assert_eq(reply[0].err, 0);
  cr_assert_eq(reply[1].err, ERR_PROMISED);
  cr_assert_eq(reply[2].err, 0);
  cr_assert_eq(reply[3].err, 0);
  cr_assert_eq(reply[3].flags, PEER_SUPERSEDED);
  expect_rows("k", VERS(20), 0);
  bed_object_free(&a);
  bed_object_free(&b);
}

Test(rules, long_keys_live_like_short_ones) {
  static char key[KEY_BYTES_MAX + 1];
  memset(key, 'k', KEY_BYTES_MAX);
  cr_assert_eq(accept_put(key, 10, 100, 1, 1).err, 0);
  key[KEY_BYTES_MAX - 1] = 'j';
  expect_rows(key, 0, NULL, -1);
  cr_assert_eq(accept_put(key, 20, 100, 2, 2).err, 0);
  bed_commit(&bed, key, 20, 1);
  expect_rows(key, VERS(20), 0);
  key[KEY_BYTES_MAX - 1] = 'k';
  expect_rows(key, VERS(10), -1);
}
