/* store.h: what stands under a drive's rules: a transactional index and chunk files.
 *
 * The rules (drive*.c, keys.c) know only this interface. store_lmdb.c is the real one (LMDB and
 * files); a simulator brings another. All functions return 0 or an error. An error that is none of
 * ERR_NOT_FOUND, ERR_NO_SPACE, ERR_CORRUPT, -EEXIST, -ENOENT, -EMFILE, -ENFILE and -ENOMEM means
 * that the disk failed.
 *
 * Index: one write transaction at a time, any number of read transactions on any threads; a
 * transaction is used by one thread at a time. Slices that get and cursors hand out are borrowed:
 * valid until the next put or del of the same transaction, or its end. */
#ifndef KOFN_STORAGE_DRIVE_STORE_H
#define KOFN_STORAGE_DRIVE_STORE_H

#include <sys/uio.h>

#include "config/err.h"

enum store_table {
  STORE_SYS,       /* name -> record: identity, counters, membership */
  STORE_CTX,       /* bucket uuid -> ctx of its keys; "next" -> the next free ctx */
  STORE_ROWS,      /* keys.h: rows, their C flags, child contexts of long keys */
  STORE_UNDECIDED, /* row key -> when a row was accepted that is not known to be chosen */
  STORE_PROMISED,  /* key prefix -> highest promised version */
  STORE_PARTITION, /* pool, partition -> floor */
  STORE_BUCKET,    /* bucket uuid -> state, version */
  STORE_BLOB,      /* data_id, index -> generation and length of a chunk file */
  STORE_INLINE,    /* data_id, index -> a small chunk */
  STORE_HEAL,      /* row key -> slots without a chunk */
  STORE_DROP,      /* key prefix -> key whose superseded rows may go */
  STORE_TRASH,     /* deadline, data_id, index, generation -> key that named it */
  STORE_TABLE_COUNT
};

#define STORE_KEY_BYTES_MAX 511
#define STORE_CHUNK_DIRS 32

struct chunk_name {
  struct id128 data_id;
  uint64_t gen; /* random; never 0 */
  uint8_t index;
};

static inline unsigned chunk_name_dir(const struct chunk_name *name) {
  return name->data_id.bytes[0] % STORE_CHUNK_DIRS;
}

struct store_space {
  uint64_t free_bytes, total_bytes; /* of the file system */
  uint64_t index_free_bytes, index_total_bytes;
};

struct store;
struct store_txn;
struct store_cursor;
struct store_file;

struct store_ops {
  int (*begin)(struct store *s, bool write, struct store_txn **ret_txn);
  /* Ends the transaction either way. A write is durable when this returns 0. ERR_NO_SPACE and
   * -ENOMEM: nothing was written (the index is full); any other error of a write means that the
   * disk failed. */
  int (*commit)(struct store_txn *txn);
  void (*abort)(struct store_txn *txn);
  int (*get)(struct store_txn *txn, enum store_table table, struct slice key,
             struct slice *ret_value);
  int (*put)(struct store_txn *txn, enum store_table table, struct slice key, struct slice value);
  /* As put; the caller fills the value at once, before any other call. */
  int (*reserve)(struct store_txn *txn, enum store_table table, struct slice key, size_t len,
                 uint8_t **ret_value);
  int (*del)(struct store_txn *txn, enum store_table table, struct slice key);
  uint64_t (*count)(struct store_txn *txn, enum store_table table);
  int (*cursor_open)(struct store_txn *txn, enum store_table table,
                     struct store_cursor **ret_cursor);
  void (*cursor_close)(struct store_cursor *c); /* before the end of the transaction */
  /* First entry at or behind `key`; ERR_NOT_FOUND at the end. */
  int (*cursor_seek)(struct store_cursor *c, struct slice key, struct slice *ret_key,
                     struct slice *ret_value);
  int (*cursor_next)(struct store_cursor *c, struct slice *ret_key, struct slice *ret_value);

  /* Chunk files. create: -EEXIST where the name is taken. Reads and writes are whole or an error
   * (a read past the end: ERR_CORRUPT). */
  int (*file_create)(struct store *s, const struct chunk_name *name, struct store_file **ret_file);
  int (*file_open)(struct store *s, const struct chunk_name *name, struct store_file **ret_file,
                   uint64_t *ret_size);
  int (*file_write)(struct store_file *f, struct iovec *iov, unsigned count, uint64_t offset);
  int (*file_read)(struct store_file *f, struct iovec *iov, unsigned count, uint64_t offset);
  void (*file_flush)(struct store_file *f, uint64_t offset, uint64_t len); /* a hint: write early */
  int (*file_sync)(struct store_file *f); /* data and length are durable */
  void (*file_close)(struct store_file *f);
  int (*file_unlink)(struct store *s, const struct chunk_name *name);
  int (*dir_sync)(struct store *s, unsigned dir); /* names of chunk_name_dir() == dir are durable */
  /* Calls `each` for every chunk file; what is no chunk's name is passed over. */
  int (*file_list)(struct store *s, void (*each)(void *arg, const struct chunk_name *name),
                   void *arg);

  int (*space)(struct store *s, struct store_space *ret_space); /* at most a second old */
  uint64_t (*random)(struct store *s);
  /* Runs fn(arg); -EIO when a read error of the mapped index cut it short. Every use of a borrowed
   * slice stands inside one; no lock may be held while such a slice is read. */
  int (*guarded)(struct store *s, void (*fn)(void *arg), void *arg);
  void (*close)(struct store *s);
};

struct store {
  const struct store_ops *ops;
};

struct store_txn {
  struct store *store;
};
struct store_cursor {
  struct store *store;
};
struct store_file {
  struct store *store;
};

static inline int store_begin(struct store *s, bool write, struct store_txn **ret_txn) {
  return s->ops->begin(s, write, ret_txn);
}
static inline int store_commit(struct store_txn *t) {
  return t->store->ops->commit(t);
}
static inline void store_abort(struct store_txn *t) {
  if (t) t->store->ops->abort(t);
}
static inline int store_get(struct store_txn *t, enum store_table table, struct slice key,
                            struct slice *ret_value) {
  return t->store->ops->get(t, table, key, ret_value);
}
static inline int store_put(struct store_txn *t, enum store_table table, struct slice key,
                            struct slice value) {
  return t->store->ops->put(t, table, key, value);
}
static inline int store_reserve(struct store_txn *t, enum store_table table, struct slice key,
                                size_t len, uint8_t **ret_value) {
  return t->store->ops->reserve(t, table, key, len, ret_value);
}
static inline int store_del(struct store_txn *t, enum store_table table, struct slice key) {
  return t->store->ops->del(t, table, key);
}
/* As store_del, but what is absent is fine. */
static inline int store_forget(struct store_txn *t, enum store_table table, struct slice key) {
  int err = t->store->ops->del(t, table, key);
  return err == ERR_NOT_FOUND ? 0 : err;
}
static inline uint64_t store_count(struct store_txn *t, enum store_table table) {
  return t->store->ops->count(t, table);
}
static inline int store_cursor_open(struct store_txn *t, enum store_table table,
                                    struct store_cursor **ret_cursor) {
  return t->store->ops->cursor_open(t, table, ret_cursor);
}
static inline void store_cursor_close(struct store_cursor *c) {
  if (c) c->store->ops->cursor_close(c);
}
static inline int store_cursor_seek(struct store_cursor *c, struct slice key, struct slice *ret_key,
                                    struct slice *ret_value) {
  return c->store->ops->cursor_seek(c, key, ret_key, ret_value);
}
static inline int store_cursor_next(struct store_cursor *c, struct slice *ret_key,
                                    struct slice *ret_value) {
  return c->store->ops->cursor_next(c, ret_key, ret_value);
}
static inline void store_file_close(struct store_file *f) {
  if (f) f->store->ops->file_close(f);
}

/* store_lmdb.c: index in `path`/index, chunk files in `path`/data. With `create` the index may be
 * new (drive_format); chunk directories exist already. The caller holds the drive's lock. */
_must_check_ int store_lmdb_open(const char *path, uint64_t index_map_bytes, bool create,
                                 struct store **ret_store);

#endif
