/* object_list_test.c: pages against a model of what is live, over drives that missed writes, and
 * never a page from fewer than R repliers. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "storage/object/list_stream.h"
#include "tests/unit/object/fake_peer.h"

#define KEYS_MAX 600
#define ALL 63u

struct page {
  bool done;
  int err;
  unsigned count;
  bool truncated;
  char keys[1000][64];
  bool is_prefix[1000];
  uint64_t sizes[1000];
};

static struct fake_bed bed;
static struct fake_cluster *cluster;
static struct page page;

static void setup(void) {
  fake_bed_open(&bed, 7);
  cluster = fake_cluster_open(&bed, 6, 1, 4, 2, "reed_sol_van", 4096);
}

static void teardown(void) {
  fake_cluster_close(cluster);
  fake_bed_close(&bed);
}

static void page_came(void *arg, const struct object_list_result *result) {
  cr_assert(!page.done, "the callback runs once");
  page.done = true;
  page.err = result->err;
  page.count = result->count;
  page.truncated = result->truncated;
  for (unsigned i = 0; i < result->count; i++) {
    const struct object_list_item *item = &result->items[i];
    cr_assert_lt(item->key.len, sizeof page.keys[i]);
    snprintf(page.keys[i], sizeof page.keys[i], "%.*s", (int)item->key.len, item->key.data);
    page.is_prefix[i] = item->is_prefix;
    page.sizes[i] = item->size;
    if (!item->is_prefix) cr_assert_gt(item->etag.len, 0);
  }
}

static struct object_list *start(const char *prefix, const char *delimiter, const char *from,
                                 unsigned limit) {
  struct object_list_args args = {.bucket = &cluster->bucket,
                                  .prefix = slice_str(prefix),
                                  .delimiter = slice_str(delimiter),
                                  .from = slice_str(from),
                                  .limit = limit};
  struct object_list *list = NULL;
  memset(&page, 0, sizeof page);
  cr_assert_eq(object_list_start(&cluster->objects, &args, page_came, NULL, &list), 0);
  cr_assert(!page.done, "never inside the start");
  return list;
}

static int list(const char *prefix, const char *delimiter, const char *from, unsigned limit) {
  start(prefix, delimiter, from, limit);
  cr_assert(fake_run_while_not(&bed, &page.done));
  return page.err;
}

static void put(const char *key, uint32_t rows, uint32_t chosen) {
  fake_object_store(cluster, slice_str(key), (const uint8_t *)"x", 1, rows, chosen);
}

static void tomb(const char *key, uint32_t rows, uint32_t chosen) {
  fake_tomb_store(cluster, slice_str(key), rows, chosen);
}

Test(object_list, an_empty_bucket_has_an_empty_page, .init = setup, .fini = teardown) {
  cr_assert_eq(list("", "", "", 1000), 0);
  cr_assert(page.count == 0 && !page.truncated);
}

Test(object_list, missed_puts_and_missed_deletes_show_nothing_wrong, .init = setup,
     .fini = teardown) {
  char key[64], from[64] = "";
  for (unsigned i = 0; i < 200; i++) {
    snprintf(key, sizeof key, "k%03u", i);
    uint32_t rows = i % 2 ? ALL : ALL & ~(1u << 5); /* slot 5 missed half the PUTs */
    put(key, rows, i % 5 ? rows : 0);
    if (i % 3 == 0) tomb(key, ALL & ~1u, i % 4 ? ALL & ~1u : 0); /* slot 0 missed the DELETEs */
  }
  unsigned next = 1;
  do {
    cr_assert_eq(list("", "", from, 7), 0);
    cr_assert(page.count == 7 || !page.truncated);
    for (unsigned i = 0; i < page.count; i++, next++) {
      next += next % 3 == 0;
      snprintf(key, sizeof key, "k%03u", next);
      cr_assert_str_eq(page.keys[i], key);
      cr_assert_eq(page.sizes[i], 1);
      memcpy(from, page.keys[i], sizeof from);
    }
  } while (page.truncated);
  cr_assert_eq(next, 200);
}

Test(object_list, truncated_means_that_one_more_is_there, .init = setup, .fini = teardown) {
  put("a", ALL, ALL);
  put("b", ALL, ALL);
  put("c", ALL, ALL);
  tomb("c", ALL, ALL);
  cr_assert_eq(list("", "", "", 1), 0);
  cr_assert(page.count == 1 && page.truncated);
  cr_assert_eq(list("", "", "", 2), 0);
  cr_assert(page.count == 2 && !page.truncated, "c is deleted");
  cr_assert_eq(list("", "", "b", 2), 0);
  cr_assert(page.count == 0 && !page.truncated);
}

/* ---- against a model ---- */

static char model_keys[KEYS_MAX][64];
static bool model_live[KEYS_MAX];
static unsigned model_count;

static int model_cmp(const void *a, const void *b) {
  return strcmp(a, b);
}

static void model_fill(uint32_t missed_puts, uint32_t missed_deletes) {
  static const char *const parts[] = {"a", "b", "/", "//", "c-", "\xff", "d"};
  model_count = 0;
  while (model_count < 300) {
    char *key = model_keys[model_count];
    unsigned len = 1 + (unsigned)fake_random_below(&bed, 7);
    key[0] = 0;
    for (unsigned i = 0; i < len; i++)
      snprintf(key + strlen(key), 64 - strlen(key), "%s", parts[fake_random_below(&bed, 7)]);
    bool fresh = true;
    for (unsigned i = 0; i < model_count; i++) fresh = fresh && strcmp(model_keys[i], key) != 0;
    model_count += fresh;
  }
  qsort(model_keys, model_count, sizeof model_keys[0], model_cmp);
  for (unsigned i = 0; i < model_count; i++) {
    uint32_t rows = fake_random_below(&bed, 2) ? ALL : ALL & ~missed_puts;
    put(model_keys[i], rows, fake_random_below(&bed, 4) ? rows : 0);
    model_live[i] = fake_random_below(&bed, 3) > 0;
    if (model_live[i]) continue;
    rows = fake_random_below(&bed, 2) ? ALL : ALL & ~missed_deletes;
    tomb(model_keys[i], rows, fake_random_below(&bed, 4) ? rows : 0);
  }
}

/* What S3 would answer; returns the number of items and whether there are more. */
static unsigned model_page(const char *prefix, const char *delimiter, const char *from,
                           unsigned limit, char (*out)[64], bool *more) {
  unsigned count = 0;
  char last[64] = "", skip[64] = "";
  const char *hit = *delimiter && strncmp(from, prefix, strlen(prefix)) == 0
                        ? strstr(from + strlen(prefix), delimiter)
                        : NULL;
  if (hit && hit[strlen(delimiter)] == 0) snprintf(skip, sizeof skip, "%s", from);
  *more = false;
  for (unsigned i = 0; i < model_count; i++) {
    const char *key = model_keys[i];
    if (!model_live[i] || strcmp(key, from) <= 0 || strncmp(key, prefix, strlen(prefix))) continue;
    if (*skip && strncmp(key, skip, strlen(skip)) == 0) continue;
    char item[64];
    snprintf(item, sizeof item, "%s", key);
    char *at = *delimiter ? strstr(item + strlen(prefix), delimiter) : NULL;
    if (at) at[strlen(delimiter)] = 0;
    if (at && strcmp(item, last) == 0) continue;
    if (count == limit) {
      *more = true;
      break;
    }
    memcpy(out[count++], item, 64);
    memcpy(last, item, 64);
  }
  return count;
}

static void compare(const char *prefix, const char *delimiter, const char *from, unsigned limit) {
  static char want[1000][64];
  bool more;
  unsigned count = model_page(prefix, delimiter, from, limit, want, &more);
  cr_assert_eq(list(prefix, delimiter, from, limit), 0);
  cr_assert_eq(page.count, count, "'%s' '%s' '%s' %u: %u not %u", prefix, delimiter, from, limit,
               page.count, count);
  cr_assert_eq(page.truncated, more);
  for (unsigned i = 0; i < count; i++) cr_assert_str_eq(page.keys[i], want[i]);
}

static void compare_many(unsigned rounds) {
  static const char *const prefixes[] = {"",   "",   "a",    "a/", "b", "/",
                                         "//", "c-", "\xff", "zz", "ab"};
  static const char *const delimiters[] = {"", "/", "/", "//", "-", "\xff"};
  for (unsigned i = 0; i < rounds; i++) {
    const char *prefix = prefixes[fake_random_below(&bed, ARRAY_LEN(prefixes))];
    const char *delimiter = delimiters[fake_random_below(&bed, ARRAY_LEN(delimiters))];
    unsigned limit = 1 + (unsigned)fake_random_below(&bed, fake_random_below(&bed, 2) ? 5 : 400);
    compare(prefix, delimiter, "", limit);
    if (page.count == 0) continue;
    char from[64];
    memcpy(from, page.keys[fake_random_below(&bed, page.count)], sizeof from);
    compare(prefix, delimiter, from, limit);
    compare(prefix, delimiter, model_keys[fake_random_below(&bed, model_count)], limit);
  }
}

Test(object_list, every_page_is_the_models, .init = setup, .fini = teardown) {
  model_fill(1u << 5, 1u << 0);
  compare_many(150);
}

Test(object_list, every_page_is_the_models_with_a_drive_down, .init = setup, .fini = teardown) {
  model_fill(0, 0);
  fake_peer_down(&cluster->drives[2]);
  compare_many(60);
  fake_peer_up(&cluster->drives[2]);
}

/* ---- too few, slow and broken drives ---- */

Test(object_list, fewer_than_r_repliers_are_never_a_short_page, .init = setup, .fini = teardown) {
  put("a", ALL, ALL);
  for (unsigned down = 0; down < 6; down++) {
    int err = list("", "", "", 10);
    if (6 - down >= 2)
      cr_assert(err == 0 && page.count == 1, "%u down", down);
    else
      cr_assert_eq(err, ERR_UNAVAILABLE);
    fake_peer_down(&cluster->drives[down]);
  }
  cr_assert_eq(list("", "", "", 10), ERR_UNAVAILABLE);
  for (unsigned i = 0; i < 6; i++) fake_peer_up(&cluster->drives[i]);
  cr_assert_eq(list("", "", "", 10), 0);
}

/* The drives fail at their second page, when half the items are there already. */
Test(object_list, losing_the_quorum_in_mid_page_is_unavailable, .init = setup, .fini = teardown) {
  char key[64];
  for (unsigned i = 0; i < 200; i++) {
    snprintf(key, sizeof key, "k%03u", i);
    put(key, ALL, ALL);
    tomb(key, i < 190 ? ALL : 0, ALL);
  }
  cr_assert_eq(list("", "", "", 10), 0);
  cr_assert(page.count == 10);
  for (unsigned failing = 1; failing <= 6; failing++) {
    for (unsigned i = 0; i < failing; i++)
      fake_peer_fail(&cluster->drives[i], PEER_LIST, 2, ERR_DRIVE_FAILED);
    int err = list("", "", "", 10);
    if (failing <= 4)
      cr_assert(err == 0 && page.count == 10, "%u failing: %d", failing, err);
    else
      cr_assert_eq(err, ERR_UNAVAILABLE, "%u failing", failing);
    for (unsigned i = 0; i < 6; i++) fake_peer_heal(&cluster->drives[i]);
  }
}

Test(object_list, a_silent_drive_is_not_waited_for, .init = setup, .fini = teardown) {
  put("a", ALL, ALL);
  cluster->drives[3].silent = true;
  uint64_t began = bed.now_ms;
  cr_assert_eq(list("", "", "", 10), 0);
  cr_assert(page.count == 1 && bed.now_ms - began <= OBJECT_SUSPECT_MS + 10);
  cluster->drives[3].peer.suspect = true;
  began = bed.now_ms;
  cr_assert_eq(list("", "", "", 10), 0);
  cr_assert(page.count == 1 && bed.now_ms - began < 100, "known to be silent: not even asked");
  fake_peer_heal(&cluster->drives[3]);
  cluster->drives[3].peer.suspect = false;
}

/* A drive that cannot read its rows of a key is no replier for it: it never says "no row". */
Test(object_list, corrupt_rows_are_no_absence, .init = setup, .fini = teardown) {
  put("a", ALL, 0);
  put("b", ALL, ALL);
  for (unsigned i = 0; i < 5; i++)
    fake_drive_corrupt_rows(&cluster->drives[i].drive, &cluster->bucket.uuid, SLICE_LIT("b"));
  cr_assert_eq(list("", "", "", 10), ERR_UNAVAILABLE);
  cr_assert_eq(list("", "", "", 1), ERR_UNAVAILABLE, "is there one more? nobody can tell");
  cr_assert_eq(list("a", "", "", 10), 0);
  cr_assert_eq(page.count, 1);
}

/* Row C2 of PROTOCOL.md 8: four of six accepted, one drive down. */
Test(object_list, an_undetermined_key_is_resolved_and_then_stays, .init = setup, .fini = teardown) {
  uint8_t data[3000] = {7};
  struct slice key = SLICE_LIT("maybe");
  struct fake_object made = fake_object_store(cluster, key, data, sizeof data, 15, 0);
  fake_peer_down(fake_slot(cluster, key, 5));
  cr_assert_eq(list("", "", "", 10), 0);
  cr_assert_eq(page.count, 1);
  cr_assert_str_eq(page.keys[0], "maybe");
  fake_run(&bed);
  struct row row;
  struct fake_row *newest =
      fake_drive_newest(&fake_slot(cluster, key, 4)->drive, &cluster->bucket.uuid, key);
  cr_assert_not_null(newest, "settled where it was missing");
  cr_assert_eq(row_decode(slice_of(newest->bytes, newest->len), &cluster->bucket.uuid, key, &row),
               0);
  cr_assert(id128_eq(&row.op_id, &made.op_id), "the same write, whatever its version is now");
  fake_peer_up(fake_slot(cluster, key, 5));
  cr_assert_eq(list("", "", "", 10), 0);
  cr_assert_eq(page.count, 1, "what was shown does not go away");
}

Test(object_list, a_key_that_nobody_can_decide_makes_the_page_unavailable, .init = setup,
     .fini = teardown) {
  uint8_t data[3000] = {7};
  struct slice key = SLICE_LIT("maybe");
  fake_object_store(cluster, key, data, sizeof data, 7, 0); /* three chunks: not decodable */
  fake_peer_down(fake_slot(cluster, key, 4));
  fake_peer_down(fake_slot(cluster, key, 5));
  cr_assert_eq(list("", "", "", 10), ERR_UNAVAILABLE);
  cr_assert_eq(list("n", "", "", 10), 0, "other keys are not concerned");
  fake_peer_up(fake_slot(cluster, key, 4));
  fake_peer_up(fake_slot(cluster, key, 5));
  cr_assert_eq(list("", "", "", 10), 0);
  cr_assert_eq(page.count, 0, "three of six: provably not chosen");
}

static unsigned lists_seen;
static void count_lists(struct fake_cluster *c, struct fake_peer *p,
                        const struct peer_request *req) {
  if (req->verb == PEER_LIST) lists_seen++;
}

static unsigned slot_of_drive(struct slice key, unsigned drive) {
  unsigned slot = 0;
  while (fake_slot(cluster, key, slot) != &cluster->drives[drive]) slot++;
  return slot;
}

/* Drive 0 missed the delete of p/a and skips the rest of p/ behind it; its vote is the fifth of the
 * five that p/b has. Without reading what it skipped, p/b would be "provably not chosen". */
Test(object_list, what_a_drive_skipped_behind_a_dead_key_still_counts, .init = setup,
     .fini = teardown) {
  struct slice a = SLICE_LIT("p/a"), b = SLICE_LIT("p/b");
  uint32_t not_here = ALL & ~(1u << slot_of_drive(a, 0));
  put("p/a", ALL, ALL);
  tomb("p/a", not_here, not_here);
  put("p/b", ALL & ~(1u << slot_of_drive(b, 3)), 0);
  cr_assert_eq(list("", "/", "", 10), 0);
  cr_assert(page.count == 1 && page.is_prefix[0]);
}

/* ---- cost ---- */

Test(object_list, a_prefix_costs_its_page_however_many_keys_it_hides, .init = setup,
     .fini = teardown) {
  char key[64];
  for (unsigned i = 0; i < 1500; i++) {
    snprintf(key, sizeof key, "big/%05u", i);
    put(key, ALL, i % 2 ? ALL : 0); /* some drives skip, none may be asked for all */
  }
  put("tail", ALL, ALL);
  cluster->on_request = count_lists;
  cr_assert_eq(list("", "/", "", 10), 0);
  cr_assert(page.count == 2 && page.is_prefix[0] && !page.is_prefix[1]);
  cr_assert_leq(lists_seen, 18, "%u requests", lists_seen);
}

/* Every key of the prefix is deleted, but one drive missed it and skips behind each. */
Test(object_list, a_dead_prefix_is_read_without_one_request_a_key, .init = setup,
     .fini = teardown) {
  char key[64];
  for (unsigned i = 0; i < 600; i++) {
    snprintf(key, sizeof key, "dead/%05u", i);
    put(key, ALL, ALL);
    tomb(key, ALL & ~1u, ALL & ~1u);
  }
  put("dead/zzz", ALL, ALL);
  cluster->on_request = count_lists;
  cr_assert_eq(list("", "/", "", 10), 0);
  cr_assert(page.count == 1 && page.is_prefix[0]);
  cr_assert_str_eq(page.keys[0], "dead/");
  cr_assert_leq(lists_seen, 240, "%u requests", lists_seen);
}

Test(object_list, cancel_reports_soon_and_once, .init = setup, .fini = teardown) {
  char key[64];
  for (unsigned i = 0; i < 50; i++) {
    snprintf(key, sizeof key, "k%03u", i);
    put(key, ALL, 0);
  }
  for (unsigned steps = 0; steps < 40; steps++) {
    struct object_list *l = start("", "", "", 50);
    for (unsigned i = 0; i < steps && !page.done; i++) fake_step(&bed);
    if (page.done) continue;
    object_list_cancel(l);
    object_list_cancel(l);
    cr_assert(fake_run_while_not(&bed, &page.done));
    cr_assert_eq(page.err, ERR_CANCELLED);
    fake_run(&bed);
  }
}

Test(object_list, arguments_out_of_range_are_refused) {
  setup();
  static uint8_t text[KEY_BYTES_MAX + 1];
  struct object_list_args args = {.bucket = &cluster->bucket, .limit = 0};
  struct object_list *l = NULL;
  cr_assert_eq(object_list_start(&cluster->objects, &args, page_came, NULL, &l), ERR_INVALID);
  args.limit = 1001;
  cr_assert_eq(object_list_start(&cluster->objects, &args, page_came, NULL, &l), ERR_INVALID);
  args.limit = 1;
  args.prefix = slice_of(text, sizeof text);
  cr_assert_eq(object_list_start(&cluster->objects, &args, page_came, NULL, &l), ERR_INVALID);
  cr_assert_null(l);
  teardown();
}

Test(object_list, the_end_of_a_prefix) {
  uint8_t out[4];
  size_t len = 0;
  cr_assert(key_after_prefix(SLICE_LIT("a/"), out, &len) && len == 2 && !memcmp(out, "a0", 2));
  cr_assert(key_after_prefix(SLICE_LIT("a\xff\xff"), out, &len) && len == 1 && out[0] == 'b');
  cr_assert(!key_after_prefix(SLICE_LIT("\xff\xff"), out, &len));
  cr_assert(slice_eq(key_common_prefix(SLICE_LIT("ab//c//d"), SLICE_LIT("ab"), SLICE_LIT("//")),
                     SLICE_LIT("ab//")));
  cr_assert_eq(key_common_prefix(SLICE_LIT("abc"), SLICE_LIT("ab"), SLICE_LIT("/")).len, 0);
}
