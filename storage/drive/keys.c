/* keys.c: see keys.h. */
#include "storage/drive/keys.h"

#include <assert.h>

#include "config/err.h"

static const char next_ctx_name[] = "next";

bool keys_valid(struct slice key) {
  return key.len > 0 && key.len <= KEY_BYTES_MAX && !memchr(key.data, 0, key.len);
}

void keys_put_version(uint8_t out[KEYS_VERSION_BYTES], const struct version *ver) {
  store_be64(out, ~ver->hlc);
  store_be64(out + 8, ~ver->nonce);
}

struct version keys_get_version(const uint8_t in[KEYS_VERSION_BYTES]) {
  return (struct version){~load_be64(in), ~load_be64(in + 8)};
}

/* ctx, then at most 480 bytes of `key`, then `end`. */
static void keys_build(uint64_t ctx, struct slice key, uint8_t end, struct index_key *out) {
  size_t len = MIN(key.len, (size_t)KEYS_TAIL_BYTES_MAX);
  store_be64(out->bytes, ctx);
  if (len) memcpy(out->bytes + KEYS_CTX_BYTES, key.data, len);
  out->bytes[KEYS_CTX_BYTES + len] = end;
  out->len = (uint16_t)(KEYS_CTX_BYTES + len + 1);
}

static struct slice keys_rest(struct slice key) {
  return slice_of(key.data + KEYS_TAIL_BYTES_MAX, key.len - KEYS_TAIL_BYTES_MAX);
}

static int ctx_get(struct store_txn *txn, enum store_table table, struct slice key,
                   uint64_t *ret_ctx) {
  struct slice value;
  int err = store_get(txn, table, key, &value);
  if (err < 0) return err;
  if (value.len != KEYS_CTX_BYTES) return ERR_CORRUPT;
  *ret_ctx = load_be64(value.data);
  return 0;
}

static int ctx_put(struct store_txn *txn, enum store_table table, struct slice key, uint64_t ctx) {
  uint8_t value[KEYS_CTX_BYTES];
  store_be64(value, ctx);
  return store_put(txn, table, key, slice_of(value, sizeof value));
}

/* The ctx that stands under `key`, or a new one. */
static int ctx_make(struct store_txn *txn, enum store_table table, struct slice key,
                    uint64_t *ret_ctx) {
  int err = ctx_get(txn, table, key, ret_ctx);
  if (err != ERR_NOT_FOUND) return err;
  uint64_t ctx = 1;
  struct slice name = slice_str(next_ctx_name);
  err = ctx_get(txn, STORE_CTX, name, &ctx);
  if (err < 0 && err != ERR_NOT_FOUND) return err;
  err = ctx_put(txn, STORE_CTX, name, ctx + 1);
  if (err < 0) return err;
  err = ctx_put(txn, table, key, ctx);
  if (err < 0) return err;
  *ret_ctx = ctx;
  return 0;
}

static int keys_resolve(struct store_txn *txn, const struct id128 *bucket, struct slice key,
                        int (*step)(struct store_txn *, enum store_table, struct slice, uint64_t *),
                        struct index_key *ret_prefix) {
  if (!keys_valid(key)) return ERR_INVALID;
  uint64_t ctx = 0;
  int err = step(txn, STORE_CTX, slice_of(bucket->bytes, sizeof bucket->bytes), &ctx);
  if (err < 0) return err;
  while (key.len > KEYS_TAIL_BYTES_MAX) {
    struct index_key child;
    keys_build(ctx, key, KEYS_CHILD, &child);
    err = step(txn, STORE_ROWS, index_key_slice(&child), &ctx);
    if (err < 0) return err;
    key = keys_rest(key);
  }
  keys_build(ctx, key, KEYS_END, ret_prefix);
  return 0;
}

int keys_find(struct store_txn *txn, const struct id128 *bucket, struct slice key,
              struct index_key *ret_prefix) {
  return keys_resolve(txn, bucket, key, ctx_get, ret_prefix);
}

int keys_make(struct store_txn *txn, const struct id128 *bucket, struct slice key,
              struct index_key *ret_prefix) {
  return keys_resolve(txn, bucket, key, ctx_make, ret_prefix);
}

void keys_row(const struct index_key *prefix, const struct version *ver,
              struct index_key *ret_key) {
  memcpy(ret_key->bytes, prefix->bytes, prefix->len);
  keys_put_version(ret_key->bytes + prefix->len, ver);
  ret_key->len = (uint16_t)(prefix->len + KEYS_VERSION_BYTES);
}

void keys_flag(const struct index_key *row_key, struct index_key *ret_key) {
  memcpy(ret_key->bytes, row_key->bytes, row_key->len);
  ret_key->bytes[row_key->len] = KEYS_CHOSEN;
  ret_key->len = (uint16_t)(row_key->len + 1);
}

/* Moves a cursor's look-ahead; `have` tells whether there is an entry. */
static int look(int err, bool *have) {
  *have = err == 0;
  return err == ERR_NOT_FOUND ? 0 : err;
}

/* What stands behind the row at `row_key`: its flag, which is passed over, or something else. */
static int pass_row(struct store_cursor *c, struct slice row_key, struct slice *k, struct slice *v,
                    bool *have, bool *ret_chosen) {
  int err = look(store_cursor_next(c, k, v), have);
  if (err < 0) return err;
  *ret_chosen = *have && k->len == row_key.len + 1 && k->data[row_key.len] == KEYS_CHOSEN &&
                memcmp(k->data, row_key.data, row_key.len) == 0;
  return *ret_chosen ? look(store_cursor_next(c, k, v), have) : 0;
}

/* ---- rows of one key ---- */

int key_rows_open(struct store_txn *txn, const struct index_key *prefix,
                  struct key_rows *ret_rows) {
  ret_rows->prefix = *prefix;
  ret_rows->cursor = NULL;
  int err = store_cursor_open(txn, STORE_ROWS, &ret_rows->cursor);
  if (err < 0) return err;
  err = store_cursor_seek(ret_rows->cursor, index_key_slice(prefix), &ret_rows->k, &ret_rows->v);
  return look(err, &ret_rows->have);
}

int key_rows_next(struct key_rows *rows, struct key_row *ret_row) {
  struct slice prefix = index_key_slice(&rows->prefix);
  if (!rows->have || !slice_starts_with(rows->k, prefix)) return 0;
  if (rows->k.len != prefix.len + KEYS_VERSION_BYTES) return ERR_CORRUPT; /* a flag with no row */
  struct slice row_key = rows->k;
  ret_row->ver = keys_get_version(row_key.data + prefix.len);
  ret_row->value = rows->v;
  int err = pass_row(rows->cursor, row_key, &rows->k, &rows->v, &rows->have, &ret_row->chosen);
  return err < 0 ? err : 1;
}

void key_rows_close(struct key_rows *rows) {
  store_cursor_close(TAKE(rows->cursor));
}

/* ---- all rows of a bucket ---- */

int key_walk_open(struct store_txn *txn, const struct id128 *bucket, struct key_walk *ret_walk) {
  *ret_walk = (struct key_walk){0};
  int err =
      ctx_get(txn, STORE_CTX, slice_of(bucket->bytes, sizeof bucket->bytes), &ret_walk->ctx[0]);
  if (err < 0) return err;
  return store_cursor_open(txn, STORE_ROWS, &ret_walk->cursor);
}

static int walk_to(struct key_walk *w, const struct index_key *at) {
  return look(store_cursor_seek(w->cursor, index_key_slice(at), &w->k, &w->v), &w->have);
}

static bool walk_at_child(const struct key_walk *w) {
  return w->k.len == KEYS_CTX_BYTES + KEYS_TAIL_BYTES_MAX + 1 &&
         w->k.data[w->k.len - 1] == KEYS_CHILD &&
         !memchr(w->k.data + KEYS_CTX_BYTES, 0, KEYS_TAIL_BYTES_MAX);
}

/* Remembers the child entry that the cursor looks at and makes its ctx the current one. */
static int walk_enter(struct key_walk *w) {
  if (w->depth == KEYS_DEPTH_MAX || w->v.len != KEYS_CTX_BYTES) return ERR_CORRUPT;
  memcpy(w->path + (size_t)w->depth * KEYS_TAIL_BYTES_MAX, w->k.data + KEYS_CTX_BYTES,
         KEYS_TAIL_BYTES_MAX);
  w->ctx[++w->depth] = load_be64(w->v.data);
  return 0;
}

/* Goes on in the parent, behind the child entry. */
static int walk_leave(struct key_walk *w) {
  w->depth--;
  struct slice piece =
      slice_of(w->path + (size_t)w->depth * KEYS_TAIL_BYTES_MAX, KEYS_TAIL_BYTES_MAX);
  struct index_key behind;
  keys_build(w->ctx[w->depth], piece, KEYS_CHILD + 1, &behind);
  return walk_to(w, &behind);
}

int key_walk_seek(struct key_walk *w, struct slice key, bool after) {
  w->depth = 0;
  if (key.len > KEY_BYTES_MAX) { /* no key equals it; those below it end with its first bytes */
    key.len = KEY_BYTES_MAX;
    after = true;
  }
  /* No key holds U+0000 either, and 00 means another thing in the index: what is above such a key
   * is what is above its bytes in front of it. */
  const uint8_t *nul = key.len ? memchr(key.data, 0, key.len) : NULL;
  if (nul) {
    key.len = (size_t)(nul - key.data);
    after = true;
  }
  struct index_key at;
  while (key.len > KEYS_TAIL_BYTES_MAX) {
    keys_build(w->ctx[w->depth], key, KEYS_CHILD, &at);
    int err = walk_to(w, &at);
    if (err < 0) return err;
    if (!w->have || !slice_eq(w->k, index_key_slice(&at))) return 0; /* already behind `key` */
    err = walk_enter(w);
    if (err < 0) return err;
    key = keys_rest(key);
  }
  /* 00 ends the rows of exactly `key`; whatever goes on behind it has 01 or more there. */
  keys_build(w->ctx[w->depth], key, after ? KEYS_END + 1 : KEYS_END, &at);
  return walk_to(w, &at);
}

/* Into and out of child contexts until the cursor looks at a row: 1, or 0 at the end. */
static int walk_to_row(struct key_walk *w) {
  for (;;) {
    bool inside = w->have && w->k.len > KEYS_CTX_BYTES && load_be64(w->k.data) == w->ctx[w->depth];
    int err;
    if (inside && !walk_at_child(w)) return 1;
    if (inside) {
      struct index_key at = {.len = KEYS_CTX_BYTES};
      err = walk_enter(w);
      if (err < 0) return err;
      store_be64(at.bytes, w->ctx[w->depth]);
      err = walk_to(w, &at);
    } else {
      if (w->depth == 0) return 0;
      err = walk_leave(w);
    }
    if (err < 0) return err;
  }
}

int key_walk_next(struct key_walk *w, struct key_row *ret_row) {
  int at_row = walk_to_row(w);
  if (at_row <= 0) return at_row;
  struct slice row_key = w->k;
  const uint8_t *tail = row_key.data + KEYS_CTX_BYTES;
  const uint8_t *end = memchr(tail, KEYS_END, row_key.len - KEYS_CTX_BYTES);
  if (!end || (size_t)(row_key.data + row_key.len - end) != 1 + KEYS_VERSION_BYTES)
    return ERR_CORRUPT;
  size_t above = (size_t)w->depth * KEYS_TAIL_BYTES_MAX, tail_len = (size_t)(end - tail);
  if (tail_len > KEYS_TAIL_BYTES_MAX) return ERR_CORRUPT;
  memcpy(w->path + above, tail, tail_len);
  w->key = slice_of(w->path, above + tail_len);
  ret_row->ver = keys_get_version(end + 1);
  ret_row->value = w->v;
  int err = pass_row(w->cursor, row_key, &w->k, &w->v, &w->have, &ret_row->chosen);
  return err < 0 ? err : 1;
}

void key_walk_close(struct key_walk *w) {
  store_cursor_close(TAKE(w->cursor));
}
