/* drive_list_test.c: pages of LIST against a plain model of what stands on the drive. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

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
TestSuite(list, .init = setup, .fini = teardown);

static void put(const char *key, unsigned kind, uint64_t ver, bool chosen) {
  static unsigned op;
  struct bed_object o;
  op++;
  bed_object(&o, key, kind, ver, 0, op, 0);
  cr_assert_eq(bed_accept(&bed, &o).err, 0);
  if (chosen) bed_commit(&bed, key, ver, 0);
  bed_object_free(&o);
}

struct page {
  char text[4096]; /* "key" for chosen, "key?" undecided, "key-" tombstone; '>' after a skip */
  unsigned count;
  bool end;
};

static struct page list(const char *from, bool after, const char *prefix, const char *delimiter,
                        unsigned limit) {
  struct peer_request req = bed_request(PEER_LIST, "");
  struct peer_reply reply;
  struct peer_list pages;
  struct peer_list_entry e;
  struct page p = {.text = ""};
  req.from = slice_str(from);
  req.prefix = slice_str(prefix);
  req.delimiter = slice_str(delimiter);
  req.limit = limit;
  req.flags = after ? PEER_FROM_AFTER : 0;
  drive_read(bed.drive, &req, &reply);
  cr_assert_eq(reply.err, 0);
  cr_assert_eq(peer_list_open(slice_of(reply.body, reply.body_len), &pages), 0);
  size_t at = 0;
  int more;
  while ((more = peer_list_next(&pages, &e)) > 0) {
    at += (size_t)snprintf(p.text + at, sizeof p.text - at, "%s%.*s%s%s", at ? " " : "",
                           (int)e.key.len, (const char *)e.key.data,
                           e.corrupt                    ? "!"
                           : e.rows[0].kind == ROW_TOMB ? "-"
                           : e.rows[0].chosen           ? ""
                                                        : "?",
                           e.skipped ? ">" : "");
    p.count++;
  }
  cr_assert_eq(more, 0);
  p.end = pages.end;
  free(reply.body);
  return p;
}

static void expect(struct page p, const char *text, bool end) {
  cr_assert_str_eq(p.text, text);
  cr_assert_eq(p.end, end);
}

Test(list, keys_in_order_with_markers) {
  expect(list("", false, "", "", 100), "", true);
  put("b", ROW_PUT, 1, true);
  put("a", ROW_PUT, 1, false);
  put("c", ROW_TOMB, 1, true);
  put("a/", ROW_PUT, 1, true);
  put("a//b", ROW_PUT, 1, true);
  put(".", ROW_PUT, 1, true);
  expect(list("", false, "", "", 100), ". a? a/ a//b b c-", true);
  expect(list("", false, "", "", 3), ". a? a/", false);
  expect(list("a/", true, "", "", 3), "a//b b c-", true);
  expect(list("a/", false, "", "", 2), "a/ a//b", false);
  expect(list("zz", false, "", "", 2), "", true);
  expect(list("", false, "a", "", 100), "a? a/ a//b", true);
  expect(list("a//", false, "a", "", 100), "a//b", true);
  expect(list("b", false, "a", "", 100), "", true);
  expect(list("", true, "b", "", 100), "b", true);
}

Test(list, a_delimiter_skips_behind_what_is_surely_there) {
  put("a", ROW_PUT, 1, true);
  put("p/1", ROW_TOMB, 1, true);
  put("p/2", ROW_PUT, 1, false);
  put("p/3", ROW_PUT, 1, true);
  put("p/4", ROW_PUT, 1, true);
  put("p/5/6", ROW_PUT, 1, true);
  put("p0", ROW_PUT, 1, true);
  put("q/1", ROW_TOMB, 1, true);
  put("q/2", ROW_TOMB, 1, true);
  put("r/1", ROW_PUT, 1, true);
  put("r/2", ROW_PUT, 1, true);
  expect(list("", false, "", "/", 100), "a p/1- p/2? p/3> p0 q/1- q/2- r/1>", true);
  expect(list("", false, "p/", "/", 100), "p/1- p/2? p/3 p/4 p/5/6>", true);
  expect(list("p/4", false, "", "/", 100), "p/4> p0 q/1- q/2- r/1>", true);
  expect(list("p/3", true, "", "/", 2), "p/4> p0", false);
  expect(list("", false, "", "//", 100), "a p/1- p/2? p/3 p/4 p/5/6 p0 q/1- q/2- r/1 r/2", true);
}

Test(list, a_newer_undecided_row_forbids_the_skip) {
  put("p/1", ROW_PUT, 1, true);
  put("p/1", ROW_TOMB, 2, false);
  put("p/2", ROW_PUT, 1, true);
  expect(list("", false, "", "/", 100), "p/1- p/2>", true);
}

Test(list, prefixes_of_bytes_that_cannot_be_counted_up) {
  put("\xff/a", ROW_PUT, 1, true);
  put("\xff/b", ROW_PUT, 1, true);
  put("\xff\xff", ROW_PUT, 1, true);
  expect(list("", false, "", "/", 100), "\xff/a> \xff\xff", true);
  expect(list("", false, "", "\xff", 100), "\xff/a>", true);
}

Test(list, rows_down_to_the_newest_chosen) {
  put("k", ROW_PUT, 1, true);
  put("k", ROW_PUT, 2, true);
  put("k", ROW_PUT, 3, false);
  put("k", ROW_TOMB, 4, false);
  put("l", ROW_PUT, 1, true);
  struct peer_request req = bed_request(PEER_LIST, "");
  struct peer_reply reply;
  struct peer_list pages;
  struct peer_list_entry e;
  drive_read(bed.drive, &req, &reply);
  cr_assert_eq(peer_list_open(slice_of(reply.body, reply.body_len), &pages), 0);
  cr_assert_eq(peer_list_next(&pages, &e), 1);
  cr_assert_eq(e.row_count, 3);
  cr_assert(!e.more);
  cr_assert(e.rows[2].chosen && !e.rows[0].chosen && !e.rows[1].chosen);
  cr_assert_eq(e.rows[0].kind, ROW_TOMB);
  cr_assert(slice_eq(e.rows[1].etag, SLICE_LIT("0123456789abcdef0123456789abcdef")));
  cr_assert_eq(peer_list_next(&pages, &e), 1);
  cr_assert_eq(e.row_count, 1);
  cr_assert_eq(peer_list_next(&pages, &e), 0);
  free(reply.body);
}

Test(list, more_rows_than_fit_are_said_to_be) {
  for (unsigned i = 1; i <= PEER_ROWS_MAX + 3; i++) put("k", ROW_PUT, i, false);
  put("l", ROW_PUT, 1, true);
  struct peer_request req = bed_request(PEER_LIST, "");
  struct peer_reply reply;
  struct peer_list pages;
  struct peer_list_entry e;
  drive_read(bed.drive, &req, &reply);
  cr_assert_eq(peer_list_open(slice_of(reply.body, reply.body_len), &pages), 0);
  cr_assert_eq(peer_list_next(&pages, &e), 1);
  cr_assert_eq(e.row_count, PEER_ROWS_MAX);
  cr_assert(e.more);
  cr_assert_eq(peer_list_next(&pages, &e), 1);
  cr_assert(slice_eq(e.key, SLICE_LIT("l")));
  free(reply.body);
}

Test(list, a_corrupt_row_is_said_to_be) {
  struct store_txn *txn;
  struct index_key prefix, row_key;
  struct id128 bucket = bed_id(1);
  struct version ver = bed_ver(1);
  put("j", ROW_PUT, 1, true);
  put("k", ROW_PUT, 1, true);
  put("l", ROW_PUT, 1, true);
  cr_assert_eq(store_begin(bed.drive->store, true, &txn), 0);
  cr_assert_eq(keys_find(txn, &bucket, slice_str("k"), &prefix), 0);
  keys_row(&prefix, &ver, &row_key);
  cr_assert_eq(store_put(txn, STORE_ROWS, index_key_slice(&row_key), slice_str("rot")), 0);
  cr_assert_eq(store_commit(txn), 0);
  expect(list("", false, "", "", 100), "j k! l", true);
}

/* Pages of odd sizes, put together, are all keys, long ones in their place. */
Test(list, pages_of_long_keys_join_without_gap_or_repeat) {
  enum { COUNT = 60 };
  char key[KEY_BYTES_MAX + 1], last[KEY_BYTES_MAX + 1] = "";
  static const size_t lengths[] = {479, 480, 481, 960, 961, 1024};
  for (unsigned i = 0; i < COUNT; i++) {
    size_t len = lengths[i % ARRAY_LEN(lengths)];
    memset(key, 'k', len);
    key[len] = 0;
    key[i / 6 % 2 ? 10 : len - 1] = (char)('a' + i / 6);
    put(key, ROW_PUT, 1, true);
  }
  for (unsigned limit = 1; limit < 8; limit += 3) {
    unsigned total = 0;
    bool end = false;
    last[0] = 0;
    while (!end) {
      struct peer_request req = bed_request(PEER_LIST, "");
      struct peer_reply reply;
      struct peer_list pages;
      struct peer_list_entry e;
      req.from = slice_str(last);
      req.flags = PEER_FROM_AFTER;
      req.limit = limit;
      drive_read(bed.drive, &req, &reply);
      cr_assert_eq(reply.err, 0);
      cr_assert_eq(peer_list_open(slice_of(reply.body, reply.body_len), &pages), 0);
      end = pages.end;
      while (peer_list_next(&pages, &e) > 0) {
        cr_assert_gt(slice_cmp(e.key, slice_str(last)), 0);
        memcpy(last, e.key.data, e.key.len);
        last[e.key.len] = 0;
        total++;
      }
      free(reply.body);
    }
    cr_assert_eq(total, COUNT, "%u with pages of %u", total, limit);
  }
}

Test(list, a_page_ends_by_its_bytes_too) {
  char key[KEY_BYTES_MAX + 1];
  memset(key, 'k', KEY_BYTES_MAX);
  key[KEY_BYTES_MAX] = 0;
  cr_assert_eq(drive_batch_begin(bed.drive), 0);
  for (unsigned i = 0; i < 400; i++) {
    struct bed_object o;
    struct peer_reply reply;
    snprintf(key + KEY_BYTES_MAX - 4, 5, "%04u", i);
    bed_object(&o, key, ROW_PUT, 1, 0, i + 1, 0);
    struct peer_request req = bed_accept_request(&o);
    drive_batch_apply(bed.drive, &req, &reply);
    cr_assert_eq(reply.err, 0);
    bed_object_free(&o);
  }
  cr_assert_eq(drive_batch_commit(bed.drive), 0);
  struct peer_request req = bed_request(PEER_LIST, "");
  struct peer_reply reply;
  struct peer_list pages;
  drive_read(bed.drive, &req, &reply);
  cr_assert_eq(peer_list_open(slice_of(reply.body, reply.body_len), &pages), 0);
  cr_assert(!pages.end);
  cr_assert_lt(pages.count, 400);
  cr_assert_lt(reply.body_len, DRIVE_PAGE_BODY_BYTES + 4096);
  free(reply.body);
}
