/* fuzz_keys.c: S3 keys as index keys, over an index in memory.
 *
 * The input is a small program: put a row, flag one, put an entry that no version of kofn wrote (a
 * damaged or foreign index). Without such entries every look must equal a plain model: rows of a
 * key newest first, all keys of the bucket in byte order, seeks that land where a sorted list says.
 * With them nothing may happen but ERR_CORRUPT and an end. */
#include "storage/drive/keys.h"
#include "tests/fuzz/fuzz.h"

#define ENTRIES_MAX 400
#define MODEL_MAX 64
#define WALK_ROWS_MAX (ENTRIES_MAX * ENTRIES_MAX)

/* ---- an index in memory: the part of struct store that keys.c uses ---- */

struct entry {
  enum store_table table;
  struct slice key, value; /* owned */
};

struct mem_store {
  struct store store;
  struct store_txn txn;
  struct entry entries[ENTRIES_MAX];
  unsigned count;
};

struct mem_cursor {
  struct store_cursor cursor;
  enum store_table table;
  unsigned at;
};

static struct mem_store *mem_of(struct store *s) {
  return container_of(s, struct mem_store, store);
}

/* The first entry at or behind the key, in any table. */
static unsigned mem_find(const struct mem_store *m, enum store_table table, struct slice key) {
  unsigned i = 0;
  while (i < m->count && (m->entries[i].table < table ||
                          (m->entries[i].table == table && slice_cmp(m->entries[i].key, key) < 0)))
    i++;
  return i;
}

static bool mem_is(const struct mem_store *m, unsigned i, enum store_table table,
                   struct slice key) {
  return i < m->count && m->entries[i].table == table && slice_eq(m->entries[i].key, key);
}

static int mem_get(struct store_txn *txn, enum store_table table, struct slice key,
                   struct slice *ret_value) {
  struct mem_store *m = mem_of(txn->store);
  unsigned i = mem_find(m, table, key);
  if (!mem_is(m, i, table, key)) return ERR_NOT_FOUND;
  *ret_value = m->entries[i].value;
  return 0;
}

static int mem_put(struct store_txn *txn, enum store_table table, struct slice key,
                   struct slice value) {
  struct mem_store *m = mem_of(txn->store);
  FUZZ_CHECK(key.len > 0 && key.len <= STORE_KEY_BYTES_MAX);
  unsigned i = mem_find(m, table, key);
  struct slice copy = slice_of(fuzz_copy(value), value.len);
  if (mem_is(m, i, table, key)) {
    free((void *)(uintptr_t)m->entries[i].value.data);
    m->entries[i].value = copy;
    return 0;
  }
  FUZZ_CHECK(m->count < ENTRIES_MAX);
  memmove(&m->entries[i + 1], &m->entries[i], (m->count - i) * sizeof m->entries[0]);
  m->entries[i] = (struct entry){table, slice_of(fuzz_copy(key), key.len), copy};
  m->count++;
  return 0;
}

static int mem_cursor_open(struct store_txn *txn, enum store_table table,
                           struct store_cursor **ret_cursor) {
  struct mem_cursor *c = calloc(1, sizeof *c);
  FUZZ_CHECK(c);
  c->cursor.store = txn->store;
  c->table = table;
  *ret_cursor = &c->cursor;
  return 0;
}

static void mem_cursor_close(struct store_cursor *cursor) {
  free(container_of(cursor, struct mem_cursor, cursor));
}

static int mem_cursor_look(struct mem_cursor *c, struct slice *ret_key, struct slice *ret_value) {
  struct mem_store *m = mem_of(c->cursor.store);
  if (c->at >= m->count || m->entries[c->at].table != c->table) return ERR_NOT_FOUND;
  *ret_key = m->entries[c->at].key;
  *ret_value = m->entries[c->at].value;
  return 0;
}

static int mem_cursor_seek(struct store_cursor *cursor, struct slice key, struct slice *ret_key,
                           struct slice *ret_value) {
  struct mem_cursor *c = container_of(cursor, struct mem_cursor, cursor);
  c->at = mem_find(mem_of(cursor->store), c->table, key);
  return mem_cursor_look(c, ret_key, ret_value);
}

static int mem_cursor_next(struct store_cursor *cursor, struct slice *ret_key,
                           struct slice *ret_value) {
  struct mem_cursor *c = container_of(cursor, struct mem_cursor, cursor);
  c->at++;
  return mem_cursor_look(c, ret_key, ret_value);
}

static const struct store_ops mem_ops = {.get = mem_get,
                                         .put = mem_put,
                                         .cursor_open = mem_cursor_open,
                                         .cursor_close = mem_cursor_close,
                                         .cursor_seek = mem_cursor_seek,
                                         .cursor_next = mem_cursor_next};

static void mem_free(struct mem_store *m) {
  for (unsigned i = 0; i < m->count; i++) {
    free((void *)(uintptr_t)m->entries[i].key.data);
    free((void *)(uintptr_t)m->entries[i].value.data);
  }
  free(m);
}

/* ---- the model ---- */

struct model_row {
  struct slice key; /* owned */
  struct version ver;
  bool chosen;
};

struct world {
  struct mem_store *mem;
  struct store_txn *txn;
  struct model_row rows[MODEL_MAX]; /* sorted as the index is */
  unsigned count;
  bool damaged;
};

static const struct id128 bucket = {{'b'}};

static int row_cmp(struct slice key, const struct version *ver, const struct model_row *row) {
  int c = slice_cmp(key, row->key);
  return c ? c : -version_cmp(ver, &row->ver);
}

static void model_put(struct world *w, struct slice key, const struct version *ver, bool chosen) {
  unsigned i = 0;
  while (i < w->count && row_cmp(key, ver, &w->rows[i]) > 0) i++;
  if (i < w->count && row_cmp(key, ver, &w->rows[i]) == 0) {
    w->rows[i].chosen |= chosen;
    return;
  }
  memmove(&w->rows[i + 1], &w->rows[i], (w->count - i) * sizeof w->rows[0]);
  w->rows[i] = (struct model_row){slice_of(fuzz_copy(key), key.len), *ver, chosen};
  w->count++;
}

/* A key of up to 1,100 bytes: one byte repeated, then literal ones. */
static struct slice key_of(struct slice *in, uint8_t room[2048]) {
  size_t fill = (size_t)fuzz_u8(in) * 4 + (fuzz_u8(in) & 3);
  uint8_t byte = fuzz_u8(in);
  struct slice tail = fuzz_take(in, fuzz_u8(in) & 63);
  memset(room, byte, fill);
  if (tail.len) memcpy(room + fill, tail.data, tail.len);
  return slice_of(room, fill + tail.len);
}

static bool key_valid(struct slice key) {
  for (size_t i = 0; i < key.len; i++)
    if (key.data[i] == 0) return false;
  return key.len >= 1 && key.len <= KEY_BYTES_MAX;
}

static void put_row(struct world *w, struct slice *in, bool chosen) {
  uint8_t room[2048];
  struct slice key = key_of(in, room);
  struct version ver = {fuzz_u8(in), fuzz_u8(in)};
  struct index_key prefix, at, flag;
  if (w->count == MODEL_MAX - 1) return;
  int err = keys_make(w->txn, &bucket, key, &prefix);
  FUZZ_CHECK(keys_valid(key) == key_valid(key));
  if (!key_valid(key)) {
    FUZZ_CHECK(err == ERR_INVALID);
    return;
  }
  if (err < 0) {
    FUZZ_CHECK(w->damaged && err == ERR_CORRUPT);
    return;
  }
  keys_row(&prefix, &ver, &at);
  struct version back = keys_get_version(at.bytes + at.len - KEYS_VERSION_BYTES);
  FUZZ_CHECK(version_cmp(&back, &ver) == 0 && at.len <= KEYS_BYTES_MAX);
  FUZZ_CHECK(store_put(w->txn, STORE_ROWS, index_key_slice(&at), SLICE_LIT("row")) == 0);
  if (chosen) {
    keys_flag(&at, &flag);
    FUZZ_CHECK(store_put(w->txn, STORE_ROWS, index_key_slice(&flag), (struct slice){0}) == 0);
  }
  model_put(w, key, &ver, chosen);
}

/* An entry made of anything; half of them at least stand in a ctx that exists. */
static void put_damage(struct world *w, struct slice *in) {
  uint8_t key[STORE_KEY_BYTES_MAX], fill = fuzz_u8(in);
  size_t repeat = (size_t)fuzz_u8(in) * 2;
  uint8_t first = fuzz_u8(in);
  if (w->mem->count > ENTRIES_MAX - 80) return;
  memset(key, fill, sizeof key);
  memset(key, 0, KEYS_CTX_BYTES);
  key[KEYS_CTX_BYTES - 1] = first & 7;
  struct slice tail = fuzz_take(in, fuzz_u8(in) & 31), value = fuzz_take(in, fuzz_u8(in) & 15);
  size_t len = MIN(KEYS_CTX_BYTES + repeat, sizeof key - tail.len);
  if (tail.len) memcpy(key + len, tail.data, tail.len);
  enum store_table table = first & 0x80 ? STORE_CTX : STORE_ROWS;
  struct slice at = slice_of(key, len + tail.len);
  if (first & 0x40) at = slice_of(bucket.bytes, 16);
  w->damaged = true;
  FUZZ_CHECK(store_put(w->txn, table, at, value) == 0);
}

/* ---- looks ---- */

static void look_rows(struct world *w, struct slice key) {
  struct index_key prefix;
  struct key_rows rows;
  struct key_row row;
  unsigned at = 0, seen = 0;
  int err = keys_find(w->txn, &bucket, key, &prefix), got;
  while (at < w->count && slice_cmp(w->rows[at].key, key) < 0) at++;
  if (err < 0) {
    FUZZ_CHECK(err == ERR_NOT_FOUND || err == ERR_INVALID || (w->damaged && err == ERR_CORRUPT));
    if (!w->damaged) FUZZ_CHECK(at == w->count || !slice_eq(w->rows[at].key, key));
    return;
  }
  FUZZ_CHECK(key_rows_open(w->txn, &prefix, &rows) == 0);
  while ((got = key_rows_next(&rows, &row)) == 1) {
    FUZZ_CHECK(++seen <= ENTRIES_MAX);
    if (w->damaged) continue;
    FUZZ_CHECK(at < w->count && slice_eq(w->rows[at].key, key));
    FUZZ_CHECK(version_cmp(&w->rows[at].ver, &row.ver) == 0 && w->rows[at].chosen == row.chosen);
    at++;
  }
  key_rows_close(&rows);
  FUZZ_CHECK(got == 0 || (w->damaged && got == ERR_CORRUPT));
  if (!w->damaged) FUZZ_CHECK(at == w->count || !slice_eq(w->rows[at].key, key));
}

static void look_walk(struct world *w, struct slice from, bool after) {
  struct key_walk walk;
  struct key_row row;
  unsigned at = 0, seen = 0;
  int got = key_walk_open(w->txn, &bucket, &walk);
  if (got < 0) {
    FUZZ_CHECK(got == ERR_NOT_FOUND || (w->damaged && got == ERR_CORRUPT));
    FUZZ_CHECK(w->count == 0 || w->damaged);
    return;
  }
  got = key_walk_seek(&walk, from, after);
  while (at < w->count && slice_cmp(w->rows[at].key, from) < (after ? 1 : 0)) at++;
  while (got == 0 && (got = key_walk_next(&walk, &row)) == 1) {
    FUZZ_CHECK(++seen <= WALK_ROWS_MAX && walk.key.len <= sizeof walk.path);
    if (!w->damaged) {
      FUZZ_CHECK(at < w->count && slice_eq(w->rows[at].key, walk.key));
      FUZZ_CHECK(version_cmp(&w->rows[at].ver, &row.ver) == 0 && w->rows[at].chosen == row.chosen);
      at++;
    }
    got = 0;
  }
  key_walk_close(&walk);
  FUZZ_CHECK(got == 0 || (w->damaged && got == ERR_CORRUPT));
  if (!w->damaged) FUZZ_CHECK(at == w->count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  struct slice in = slice_of(data, len);
  struct world w = {.mem = calloc(1, sizeof *w.mem)};
  uint8_t room[2048];
  FUZZ_CHECK(w.mem);
  w.mem->store.ops = &mem_ops;
  w.mem->txn.store = &w.mem->store;
  w.txn = &w.mem->txn;
  for (unsigned steps = 0; in.len > 0 && steps < 128; steps++) {
    uint8_t op = fuzz_u8(&in);
    switch (op % 6) {
      case 0:
      case 1:
        if (w.mem->count < ENTRIES_MAX - 80) put_row(&w, &in, op % 6);
        break;
      case 2:
        put_damage(&w, &in);
        break;
      case 3:
        look_rows(&w, key_of(&in, room));
        break;
      default:
        look_walk(&w, key_of(&in, room), op % 6 == 5);
        break;
    }
  }
  for (unsigned i = 0; i < w.count; i++) look_rows(&w, w.rows[i].key);
  look_walk(&w, (struct slice){0}, false);
  for (unsigned i = 0; i < w.count; i++) free((void *)(uintptr_t)w.rows[i].key.data);
  mem_free(w.mem);
  return 0;
}
