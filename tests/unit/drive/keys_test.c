/* keys_test.c: the index keeps the byte order of S3 keys, also of those that are longer than an
 * index key. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "config/err.h"
#include "tests/unit/drive/drive_bed.h"

#define KEY_COUNT 600

struct text {
  size_t len;
  uint8_t bytes[KEY_BYTES_MAX + 8];
};

static uint64_t rng_state;

static uint64_t rng(void) {
  rng_state ^= rng_state << 13;
  rng_state ^= rng_state >> 7;
  rng_state ^= rng_state << 17;
  return rng_state;
}

/* Lengths around the borders, few different bytes and long common prefixes: what goes wrong. */
static struct text random_key(size_t max) {
  static const size_t lengths[] = {1,   2,   3,   478, 479, 480,  481,  482,
                                   511, 959, 960, 961, 962, 1000, 1023, 1024};
  static const uint8_t letters[] = {0x01, 0x02, 'a', '/', 0xff};
  struct text t;
  t.len = rng() % 3 ? lengths[rng() % ARRAY_LEN(lengths)] : 1 + rng() % KEY_BYTES_MAX;
  if (rng() % 16 == 0 && max > KEY_BYTES_MAX) t.len = max;
  memset(t.bytes, letters[rng() % 2 ? 2 : 0], t.len);
  for (unsigned i = 0; i < rng() % 4; i++) t.bytes[rng() % t.len] = letters[rng() % 5];
  if (rng() % 2) t.bytes[t.len - 1] = letters[rng() % 5];
  return t;
}

static struct slice slice_text(const struct text *t) {
  return slice_of(t->bytes, t->len);
}

static int text_cmp(const void *a, const void *b) {
  return slice_cmp(slice_text(a), slice_text(b));
}

static struct text keys[KEY_COUNT];
static unsigned key_count;

static void put_row(struct store_txn *txn, const struct id128 *bucket, struct slice key,
                    uint64_t ver, bool chosen) {
  struct index_key prefix, row, flag;
  struct version v = bed_ver(ver);
  cr_assert_eq(keys_make(txn, bucket, key, &prefix), 0);
  keys_row(&prefix, &v, &row);
  keys_flag(&row, &flag);
  cr_assert_eq(store_put(txn, STORE_ROWS, index_key_slice(&row), key), 0);
  if (chosen) cr_assert_eq(store_put(txn, STORE_ROWS, index_key_slice(&flag), slice_str("")), 0);
}

/* Each key gets two rows, the older one chosen; another bucket gets all of them, too. */
static void fill(struct store *store) {
  struct store_txn *txn;
  key_count = 0;
  for (unsigned i = 0; i < KEY_COUNT; i++) keys[i] = random_key(0);
  cr_assert_eq(store_begin(store, true, &txn), 0);
  for (unsigned i = 0; i < KEY_COUNT; i++) {
    struct id128 mine = bed_id(1), other = bed_id(2);
    put_row(txn, &mine, slice_text(&keys[i]), 5, true);
    put_row(txn, &other, slice_text(&keys[i]), 5, true);
    put_row(txn, &mine, slice_text(&keys[i]), 9, false);
  }
  cr_assert_eq(store_commit(txn), 0);
  qsort(keys, KEY_COUNT, sizeof keys[0], text_cmp);
  for (unsigned i = 0; i < KEY_COUNT; i++)
    if (i == 0 || text_cmp(&keys[i], &keys[key_count - 1]) != 0) keys[key_count++] = keys[i];
}

/* The walk from where it was put is keys[at...], two rows each, with the right flags. */
static void expect_from(struct key_walk *w, unsigned at, unsigned limit) {
  struct key_row row;
  for (unsigned n = 0; at < key_count && n < limit; at++, n++) {
    for (unsigned i = 0; i < 2; i++) {
      struct version want = bed_ver(i == 0 ? 9 : 5);
      cr_assert_eq(key_walk_next(w, &row), 1);
      cr_assert(slice_eq(w->key, slice_text(&keys[at])), "key %u of %u", at, key_count);
      cr_assert(slice_eq(row.value, slice_text(&keys[at])));
      cr_assert_eq(version_cmp(&row.ver, &want), 0);
      cr_assert_eq(row.chosen, i == 1);
    }
  }
  if (at == key_count) cr_assert_eq(key_walk_next(w, &row), 0);
}

static unsigned lower_bound(struct slice key, bool after) {
  unsigned i = 0;
  while (i < key_count) {
    int c = slice_cmp(slice_text(&keys[i]), key);
    if (c > 0 || (c == 0 && !after)) break;
    i++;
  }
  return i;
}

static void check_order(uint64_t seed) {
  struct bed b;
  struct store *store;
  struct store_txn *txn;
  struct key_walk w;
  struct id128 bucket = bed_id(1);
  rng_state = seed;
  bed_format(&b);
  cr_assert_eq(store_lmdb_open(b.path, BED_MAP_BYTES, false, &store), 0);
  fill(store);
  cr_assert_gt(key_count, KEY_COUNT / 2);
  cr_assert_eq(store_begin(store, false, &txn), 0);
  cr_assert_eq(key_walk_open(txn, &bucket, &w), 0);
  cr_assert_eq(key_walk_seek(&w, slice_str(""), false), 0);
  expect_from(&w, 0, key_count);
  for (unsigned i = 0; i < 2000; i++) {
    struct text from = rng() % 2 ? keys[rng() % key_count] : random_key(KEY_BYTES_MAX + 8);
    bool after = rng() % 2;
    cr_assert_eq(key_walk_seek(&w, slice_text(&from), after), 0);
    expect_from(&w, lower_bound(slice_text(&from), after), 3);
  }
  key_walk_close(&w);
  store_abort(txn);
  store->ops->close(store);
  bed_end(&b);
}

Test(keys, order_is_that_of_the_bytes) {
  for (uint64_t seed = 1; seed <= 4; seed++) check_order(seed * 0x9e3779b97f4a7c15ull);
}

Test(keys, rows_of_one_key_stand_alone) {
  struct bed b;
  struct store *store;
  struct store_txn *txn;
  struct id128 bucket = bed_id(1);
  bed_format(&b);
  cr_assert_eq(store_lmdb_open(b.path, BED_MAP_BYTES, false, &store), 0);
  cr_assert_eq(store_begin(store, true, &txn), 0);
  static const char *const names[] = {"a", "a\x01", "aa", "b"};
  for (unsigned i = 0; i < ARRAY_LEN(names); i++)
    for (unsigned v = 1; v <= 3; v++) put_row(txn, &bucket, slice_str(names[i]), v, v == 2);
  struct index_key prefix;
  struct key_rows rows;
  struct key_row row;
  cr_assert_eq(keys_find(txn, &bucket, slice_str("a"), &prefix), 0);
  cr_assert_eq(key_rows_open(txn, &prefix, &rows), 0);
  for (unsigned v = 3; v >= 1; v--) {
    struct version want = bed_ver(v);
    cr_assert_eq(key_rows_next(&rows, &row), 1);
    cr_assert_eq(version_cmp(&row.ver, &want), 0);
    cr_assert_eq(row.chosen, v == 2);
  }
  cr_assert_eq(key_rows_next(&rows, &row), 0);
  key_rows_close(&rows);
  store_abort(txn);
  store->ops->close(store);
  bed_end(&b);
}

/* A marker may be any bytes of a client: "a\0b" is above "a", and no key equals it. */
Test(keys, seeks_behind_a_nul_byte) {
  static const struct {
    const char *from;
    size_t len;
    const char *want;
  } cases[] = {{"a\0b", 3, "a\x01"},
               {"a\0", 2, "a\x01"},
               {"\0", 1, "a"},
               {"a\x01\0", 3, "aa"},
               {"b\0c", 3, NULL}};
  struct bed b;
  struct store *store;
  struct store_txn *txn;
  struct key_walk w;
  struct key_row row;
  struct id128 bucket = bed_id(1);
  bed_format(&b);
  cr_assert_eq(store_lmdb_open(b.path, BED_MAP_BYTES, false, &store), 0);
  cr_assert_eq(store_begin(store, true, &txn), 0);
  static const char *const names[] = {"a", "a\x01", "aa", "b"};
  for (unsigned i = 0; i < ARRAY_LEN(names); i++)
    put_row(txn, &bucket, slice_str(names[i]), 1, true);
  cr_assert_eq(key_walk_open(txn, &bucket, &w), 0);
  for (unsigned i = 0; i < ARRAY_LEN(cases); i++)
    for (int after = 0; after < 2; after++) {
      cr_assert_eq(key_walk_seek(&w, slice_of(cases[i].from, cases[i].len), after), 0);
      cr_assert_eq(key_walk_next(&w, &row), cases[i].want != NULL, "case %u", i);
      if (cases[i].want) cr_assert(slice_eq(w.key, slice_str(cases[i].want)), "case %u", i);
    }
  key_walk_close(&w);
  store_abort(txn);
  store->ops->close(store);
  bed_end(&b);
}

Test(keys, refuses_what_is_no_key) {
  static uint8_t big[KEY_BYTES_MAX + 1];
  memset(big, 'k', sizeof big);
  cr_assert(!keys_valid(slice_str("")));
  cr_assert(!keys_valid(slice_of("a\0b", 3)));
  cr_assert(!keys_valid(slice_of(big, KEY_BYTES_MAX + 1)));
  cr_assert(keys_valid(slice_of(big, KEY_BYTES_MAX)));
  cr_assert(keys_valid(slice_of("\x01\xff", 2)));
}

Test(keys, finds_nothing_before_it_is_made) {
  struct bed b;
  struct store *store;
  struct store_txn *txn;
  struct index_key k;
  struct id128 bucket = bed_id(1), other = bed_id(2);
  uint8_t big[KEY_BYTES_MAX];
  memset(big, 'k', sizeof big);
  bed_format(&b);
  cr_assert_eq(store_lmdb_open(b.path, BED_MAP_BYTES, false, &store), 0);
  cr_assert_eq(store_begin(store, true, &txn), 0);
  cr_assert_eq(keys_find(txn, &bucket, slice_str("a"), &k), ERR_NOT_FOUND);
  cr_assert_eq(keys_make(txn, &bucket, slice_str("a"), &k), 0);
  cr_assert_eq(keys_find(txn, &bucket, slice_of(big, sizeof big), &k), ERR_NOT_FOUND);
  cr_assert_eq(keys_make(txn, &bucket, slice_of(big, sizeof big), &k), 0);
  cr_assert_eq(keys_find(txn, &bucket, slice_of(big, sizeof big), &k), 0);
  cr_assert_leq(k.len + KEYS_VERSION_BYTES + 1, STORE_KEY_BYTES_MAX);
  cr_assert_eq(keys_find(txn, &other, slice_str("a"), &k), ERR_NOT_FOUND);
  store_abort(txn);
  store->ops->close(store);
  bed_end(&b);
}
