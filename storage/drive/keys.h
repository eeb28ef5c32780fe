/* keys.h: S3 keys of up to 1024 bytes as index keys of at most 511, in exact byte order
 * (PROTOCOL.md 3).
 *
 *   ctx(8) tail(<= 480) 00 ~ver(16)      a row
 *   ctx(8) tail(<= 480) 00 ~ver(16) c1   its C flag, right behind it: on the same page
 *   ctx(8) first 480 bytes 01            -> the child ctx in which a longer key goes on
 *
 * Every bucket uuid has a root ctx (STORE_CTX). S3 keys hold no U+0000, so the 00 that ends a tail
 * sorts before whatever else may follow it there, and no key's entries stand between another's.
 * A ctx is never given back: what a long key leaves behind is one entry of 505 bytes. */
#ifndef KOFN_STORAGE_DRIVE_KEYS_H
#define KOFN_STORAGE_DRIVE_KEYS_H

#include "storage/drive/store.h"
#include "storage/object/row.h"

#define KEYS_CTX_BYTES 8
#define KEYS_TAIL_BYTES_MAX 480
#define KEYS_VERSION_BYTES 16
#define KEYS_END 0x00
#define KEYS_CHILD 0x01
#define KEYS_CHOSEN 0xc1
#define KEYS_BYTES_MAX (KEYS_CTX_BYTES + KEYS_TAIL_BYTES_MAX + 1 + KEYS_VERSION_BYTES + 1)
#define KEYS_DEPTH_MAX (KEY_BYTES_MAX / KEYS_TAIL_BYTES_MAX)
_Static_assert(KEYS_BYTES_MAX <= STORE_KEY_BYTES_MAX, "LMDB ends at 511");

struct index_key {
  uint16_t len;
  uint8_t bytes[KEYS_BYTES_MAX];
};

static inline struct slice index_key_slice(const struct index_key *k) {
  return (struct slice){k->bytes, k->len};
}

/* 1 to 1024 bytes without U+0000. */
bool keys_valid(struct slice key);

/* ctx, tail and the ending 00 of a key. keys_find: ERR_NOT_FOUND where the bucket or the long key
 * never stood here; keys_make creates what is missing (write transactions). */
_must_check_ int keys_find(struct store_txn *txn, const struct id128 *bucket, struct slice key,
                           struct index_key *ret_prefix);
_must_check_ int keys_make(struct store_txn *txn, const struct id128 *bucket, struct slice key,
                           struct index_key *ret_prefix);
void keys_row(const struct index_key *prefix, const struct version *ver, struct index_key *ret_key);
void keys_flag(const struct index_key *row_key, struct index_key *ret_key);
void keys_put_version(uint8_t out[KEYS_VERSION_BYTES], const struct version *ver);
struct version keys_get_version(const uint8_t in[KEYS_VERSION_BYTES]);

/* A row as the index holds it; `value` is borrowed. */
struct key_row {
  struct version ver;
  bool chosen;
  struct slice value;
};

/* Rows of one key, newest first. next: 1 = a row, 0 = the end, or an error. Close in any case. */
struct key_rows {
  struct store_cursor *cursor;
  struct index_key prefix;
  struct slice k, v;
  bool have;
};
_must_check_ int key_rows_open(struct store_txn *txn, const struct index_key *prefix,
                               struct key_rows *ret_rows);
_must_check_ int key_rows_next(struct key_rows *rows, struct key_row *ret_row);
void key_rows_close(struct key_rows *rows);

/* All rows of a bucket in the order of their S3 keys, each key's newest first. After key_walk_open
 * seek, then next: 1 = a row whose S3 key is walk.key, 0 = the end. */
struct key_walk {
  struct store_cursor *cursor;
  uint64_t ctx[KEYS_DEPTH_MAX + 1];
  unsigned depth;
  uint8_t path[KEY_BYTES_MAX + KEYS_TAIL_BYTES_MAX]; /* pieces of 480 bytes above this depth */
  struct slice key;                                  /* of the row that next gave: in `path` */
  struct slice k, v;
  bool have;
};
/* ERR_NOT_FOUND: the bucket has no key here. */
_must_check_ int key_walk_open(struct store_txn *txn, const struct id128 *bucket,
                               struct key_walk *ret_walk);
/* To the first key >= `key`, or > `key` with `after`. `key` may be longer than any key. */
_must_check_ int key_walk_seek(struct key_walk *w, struct slice key, bool after);
_must_check_ int key_walk_next(struct key_walk *w, struct key_row *ret_row);
void key_walk_close(struct key_walk *w);

#endif
