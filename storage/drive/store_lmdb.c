/* store_lmdb.c: the real store: LMDB for the index, files for the chunks.
 *
 * LMDB is used with its durable defaults: no NOSYNC, NOMETASYNC, WRITEMAP or MAPASYNC, so that a
 * commit is two syncs and nothing else is needed. MDB_NOTLS, for read transactions move between
 * threads: finished ones are kept and renewed, which costs no lock and no malloc. The map never
 * grows. LMDB does not notice a second opener in the same process, and only advises against others:
 * the drive's lock file (format.c) sees to that. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <lmdb.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/list.h"
#include "config/settings.h"
#include "storage/drive/sigbus.h"
#include "storage/drive/store_files.h"

#define INDEX_READERS_MAX 512
#define INDEX_READERS_KEPT 64
/* Blocks allocated ahead of the index's end, so that a full disk does not stop deletes. */
#define INDEX_AHEAD_BYTES (64ull << 20)
#define INDEX_AHEAD_RETRY 64  /* commits after which a full disk is asked again for them */
#define INDEX_PAGE_BYTES 4096 /* for the account of what was written since the last look */
#define INDEX_ENTRY_BYTES 16  /* ... and what an entry needs beside key and value */

static const char *const table_names[STORE_TABLE_COUNT] = {
    [STORE_SYS] = "sys",       [STORE_CTX] = "ctx",       [STORE_ROWS] = "row",
    [STORE_UNDECIDED] = "und", [STORE_PROMISED] = "prom", [STORE_PARTITION] = "part",
    [STORE_BUCKET] = "bkt",    [STORE_BLOB] = "blob",     [STORE_INLINE] = "inline",
    [STORE_HEAL] = "heal",     [STORE_DROP] = "drop",     [STORE_TRASH] = "trash",
};

struct lmdb_txn {
  struct store_txn txn;
  MDB_txn *mdb;
  bool write;
  struct list live;      /* among all of the store */
  struct lmdb_txn *next; /* among the kept ones */
};

struct lmdb_cursor {
  struct store_cursor cursor;
  MDB_cursor *mdb;
};

struct store_lmdb {
  struct store_files files; /* first: holds the vtable */
  MDB_env *env;
  MDB_dbi tables[STORE_TABLE_COUNT];
  int sigbus_slot;
  atomic_bool faulted; /* the map cannot be read: the env is never touched again, not even closed */
  pthread_mutex_t txn_mutex;
  struct list live; /* after a fault, what nobody can end is still known here */
  struct lmdb_txn *kept;
  unsigned kept_count;
  uint64_t ahead_bytes, allocated_bytes; /* writer only */
  unsigned ahead_wait;                   /* commits until it is tried again */
  _Atomic uint64_t index_free, index_total;
  _Atomic uint64_t index_written; /* since these were counted */
  struct store_lmdb *next_buried;
};

static struct store_lmdb *lmdb_of(struct store *s) {
  return container_of(s, struct store_lmdb, files.store);
}
static struct lmdb_txn *txn_of(struct store_txn *t) {
  return container_of(t, struct lmdb_txn, txn);
}
static struct slice slice_of_val(MDB_val v) {
  return slice_of(v.mv_data, v.mv_size);
}
static MDB_val val_of(struct slice s) {
  return (MDB_val){s.len, (void *)(uintptr_t)s.data};
}

static int lmdb_err(int rc) {
  switch (rc) {
    case 0:
      return 0;
    case MDB_NOTFOUND:
      return ERR_NOT_FOUND;
    case MDB_MAP_FULL:
    case MDB_TXN_FULL:
      return ERR_NO_SPACE;
    case ENOMEM:
      return -ENOMEM;
    default: /* LMDB's own numbers are negative: nothing that a disk in order would bring */
      return rc > 0 ? -rc : -EIO;
  }
}

/* ---- transactions ---- */

static struct lmdb_txn *kept_take(struct store_lmdb *s) {
  pthread_mutex_lock(&s->txn_mutex);
  struct lmdb_txn *t = s->kept;
  if (t) {
    s->kept = t->next;
    s->kept_count--;
  }
  pthread_mutex_unlock(&s->txn_mutex);
  return t;
}

static struct lmdb_txn *txn_new(struct store_lmdb *s, bool write) {
  struct lmdb_txn *t = calloc(1, sizeof *t);
  if (!t) return NULL;
  t->txn.store = &s->files.store;
  t->write = write;
  pthread_mutex_lock(&s->txn_mutex);
  list_push_back(&s->live, &t->live);
  pthread_mutex_unlock(&s->txn_mutex);
  return t;
}

static void txn_free(struct store_lmdb *s, struct lmdb_txn *t) {
  pthread_mutex_lock(&s->txn_mutex);
  list_remove(&t->live);
  pthread_mutex_unlock(&s->txn_mutex);
  free(t);
}

static int lmdb_begin(struct store *store, bool write, struct store_txn **ret_txn) {
  struct store_lmdb *s = lmdb_of(store);
  struct lmdb_txn *t = write ? NULL : kept_take(s);
  int rc;
  if (t) {
    rc = mdb_txn_renew(t->mdb);
    if (rc != 0) mdb_txn_abort(t->mdb);
  } else {
    t = txn_new(s, write);
    if (!t) return -ENOMEM;
    rc = mdb_txn_begin(s->env, NULL, write ? 0 : MDB_RDONLY, &t->mdb);
  }
  if (rc != 0) {
    txn_free(s, t);
    return rc == MDB_READERS_FULL ? -ENOMEM : lmdb_err(rc);
  }
  *ret_txn = &t->txn;
  return 0;
}

static void lmdb_abort(struct store_txn *txn) {
  struct lmdb_txn *t = txn_of(txn);
  struct store_lmdb *s = lmdb_of(txn->store);
  if (!t->write) {
    mdb_txn_reset(t->mdb);
    pthread_mutex_lock(&s->txn_mutex);
    bool keep = s->kept_count < INDEX_READERS_KEPT;
    if (keep) {
      t->next = s->kept;
      s->kept = t;
      s->kept_count++;
    }
    pthread_mutex_unlock(&s->txn_mutex);
    if (keep) return;
  }
  mdb_txn_abort(t->mdb);
  txn_free(s, t);
}

/* Keeps blocks allocated ahead of what the index uses. A file system that cannot, or is full, is no
 * error here: the reserve is what stops new data in time. */
static void lmdb_allocate_ahead(struct store_lmdb *s) {
  MDB_envinfo info;
  MDB_stat stat;
  int fd;
  if (mdb_env_info(s->env, &info) != 0 || mdb_env_stat(s->env, &stat) != 0) return;
  uint64_t used = ((uint64_t)info.me_last_pgno + 1) * stat.ms_psize;
  if (s->allocated_bytes >= used + s->ahead_bytes / 2) return;
  if (s->ahead_wait > 0 && s->ahead_wait-- > 1) return;
  if (mdb_env_get_fd(s->env, &fd) != 0) return;
  uint64_t want = MIN(used + s->ahead_bytes, (uint64_t)info.me_mapsize);
  if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)want) != 0 &&
      (errno == ENOSPC || errno == EDQUOT))
    s->ahead_wait = INDEX_AHEAD_RETRY; /* half of them are left, and space may return */
  else
    s->allocated_bytes = want; /* also where the file system cannot */
}

static int lmdb_commit(struct store_txn *txn) {
  struct lmdb_txn *t = txn_of(txn);
  struct store_lmdb *s = lmdb_of(txn->store);
  if (!t->write) {
    lmdb_abort(txn);
    return 0;
  }
  int rc = mdb_txn_commit(t->mdb);
  txn_free(s, t);
  /* What it frees has to be written down as well: a full map shows here too, before any page of
   * the transaction is written. ENOSPC does not: nothing is known of what is on disk. */
  if (rc == MDB_MAP_FULL || rc == MDB_TXN_FULL) return ERR_NO_SPACE;
  if (rc != 0) return rc > 0 ? -rc : -EIO;
  lmdb_allocate_ahead(s);
  return 0;
}

/* ---- entries ---- */

static int lmdb_get(struct store_txn *txn, enum store_table table, struct slice key,
                    struct slice *ret_value) {
  MDB_val k = val_of(key), v;
  int rc = mdb_get(txn_of(txn)->mdb, lmdb_of(txn->store)->tables[table], &k, &v);
  if (rc != 0) return lmdb_err(rc);
  *ret_value = slice_of_val(v);
  return 0;
}

/* Between two looks at the free pages, what came in is counted, in whole pages where it has pages
 * of its own. */
static void lmdb_note_written(struct store_lmdb *s, size_t key_len, size_t value_len) {
  uint64_t bytes = key_len + value_len + INDEX_ENTRY_BYTES;
  if (value_len > INDEX_PAGE_BYTES / 2)
    bytes = (bytes + INDEX_PAGE_BYTES - 1) / INDEX_PAGE_BYTES * INDEX_PAGE_BYTES;
  atomic_fetch_add_explicit(&s->index_written, bytes, memory_order_relaxed);
}

static int lmdb_put(struct store_txn *txn, enum store_table table, struct slice key,
                    struct slice value) {
  MDB_val k = val_of(key), v = val_of(value);
  lmdb_note_written(lmdb_of(txn->store), key.len, value.len);
  return lmdb_err(mdb_put(txn_of(txn)->mdb, lmdb_of(txn->store)->tables[table], &k, &v, 0));
}

static int lmdb_reserve(struct store_txn *txn, enum store_table table, struct slice key, size_t len,
                        uint8_t **ret_value) {
  MDB_val k = val_of(key), v = {len, NULL};
  lmdb_note_written(lmdb_of(txn->store), key.len, len);
  int rc = mdb_put(txn_of(txn)->mdb, lmdb_of(txn->store)->tables[table], &k, &v, MDB_RESERVE);
  if (rc != 0) return lmdb_err(rc);
  *ret_value = v.mv_data;
  return 0;
}

static int lmdb_del(struct store_txn *txn, enum store_table table, struct slice key) {
  MDB_val k = val_of(key);
  return lmdb_err(mdb_del(txn_of(txn)->mdb, lmdb_of(txn->store)->tables[table], &k, NULL));
}

static uint64_t lmdb_count(struct store_txn *txn, enum store_table table) {
  MDB_stat stat;
  int rc = mdb_stat(txn_of(txn)->mdb, lmdb_of(txn->store)->tables[table], &stat);
  return rc == 0 ? stat.ms_entries : 0;
}

static int lmdb_cursor_open(struct store_txn *txn, enum store_table table,
                            struct store_cursor **ret_cursor) {
  struct lmdb_cursor *c = malloc(sizeof *c);
  if (!c) return -ENOMEM;
  int rc = mdb_cursor_open(txn_of(txn)->mdb, lmdb_of(txn->store)->tables[table], &c->mdb);
  if (rc != 0) {
    free(c);
    return lmdb_err(rc);
  }
  c->cursor.store = txn->store;
  *ret_cursor = &c->cursor;
  return 0;
}

static void lmdb_cursor_close(struct store_cursor *cursor) {
  struct lmdb_cursor *c = container_of(cursor, struct lmdb_cursor, cursor);
  mdb_cursor_close(c->mdb);
  free(c);
}

static int lmdb_cursor_seek(struct store_cursor *cursor, struct slice key, struct slice *ret_key,
                            struct slice *ret_value) {
  MDB_val k = val_of(key), v;
  MDB_cursor_op op = key.len == 0 ? MDB_FIRST : MDB_SET_RANGE;
  int rc = mdb_cursor_get(container_of(cursor, struct lmdb_cursor, cursor)->mdb, &k, &v, op);
  if (rc != 0) return lmdb_err(rc);
  *ret_key = slice_of_val(k);
  *ret_value = slice_of_val(v);
  return 0;
}

static int lmdb_cursor_next(struct store_cursor *cursor, struct slice *ret_key,
                            struct slice *ret_value) {
  MDB_val k, v;
  int rc = mdb_cursor_get(container_of(cursor, struct lmdb_cursor, cursor)->mdb, &k, &v, MDB_NEXT);
  if (rc != 0) return lmdb_err(rc);
  *ret_key = slice_of_val(k);
  *ret_value = slice_of_val(v);
  return 0;
}

/* ---- space ---- */

/* Pages in the free list: each record of table 0 starts with how many it names. */
static uint64_t lmdb_free_pages(MDB_txn *txn) {
  MDB_cursor *cursor;
  MDB_val k, v;
  uint64_t pages = 0;
  if (mdb_cursor_open(txn, 0, &cursor) != 0) return 0;
  while (mdb_cursor_get(cursor, &k, &v, MDB_NEXT) == 0) {
    size_t n = 0;
    if (v.mv_size >= sizeof n) memcpy(&n, v.mv_data, sizeof n);
    pages += n;
  }
  mdb_cursor_close(cursor);
  return pages;
}

static void lmdb_index_space(void *arg) {
  struct store_lmdb *s = arg;
  struct store_txn *txn;
  MDB_envinfo info;
  MDB_stat stat;
  if (mdb_env_info(s->env, &info) != 0 || mdb_env_stat(s->env, &stat) != 0) return;
  uint64_t total = info.me_mapsize, used = ((uint64_t)info.me_last_pgno + 1) * stat.ms_psize;
  uint64_t left = total - MIN(used, total);
  /* The list of free pages is long in an index that shrank: it is read where it matters. */
  if (left < total / 4 && lmdb_begin(&s->files.store, false, &txn) == 0) {
    left += lmdb_free_pages(txn_of(txn)->mdb) * stat.ms_psize;
    lmdb_abort(txn);
  }
  atomic_store(&s->index_written, 0);
  atomic_store(&s->index_free, left);
  atomic_store(&s->index_total, total);
}

static int lmdb_guarded(struct store *store, void (*fn)(void *arg), void *arg) {
  int err = sigbus_guarded(fn, arg);
  if (err < 0) atomic_store(&lmdb_of(store)->faulted, true);
  return err;
}

static int lmdb_space(struct store *store, struct store_space *ret_space) {
  struct store_lmdb *s = lmdb_of(store);
  struct store_space space = {0};
  int err = store_files_space(&s->files, &space);
  if (err > 0 && !atomic_load(&s->faulted)) err = lmdb_guarded(store, lmdb_index_space, s);
  if (err < 0) return err;
  uint64_t left = atomic_load(&s->index_free), written = atomic_load(&s->index_written);
  space.index_free_bytes = left - MIN(written, left);
  space.index_total_bytes = atomic_load(&s->index_total);
  *ret_space = space;
  return 0;
}

/* ---- opening and closing ---- */

/* Environments that a fault left behind: kept, so that their maps stay where readers may be. */
static pthread_mutex_t buried_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct store_lmdb *buried;

static void lmdb_close(struct store *store) {
  struct store_lmdb *s = lmdb_of(store);
  store_files_close(&s->files);
  if (atomic_load(&s->faulted)) { /* transactions are open that nobody can end */
    pthread_mutex_lock(&buried_mutex);
    s->next_buried = buried;
    buried = s;
    pthread_mutex_unlock(&buried_mutex);
    return;
  }
  sigbus_map_remove(s->sigbus_slot);
  for (struct lmdb_txn *t; (t = s->kept);) {
    s->kept = t->next;
    mdb_txn_abort(t->mdb);
    txn_free(s, t);
  }
  if (s->env) mdb_env_close(s->env);
  pthread_mutex_destroy(&s->txn_mutex);
  free(s);
}

static const struct store_ops lmdb_ops = {
    .begin = lmdb_begin,
    .commit = lmdb_commit,
    .abort = lmdb_abort,
    .get = lmdb_get,
    .put = lmdb_put,
    .reserve = lmdb_reserve,
    .del = lmdb_del,
    .count = lmdb_count,
    .cursor_open = lmdb_cursor_open,
    .cursor_close = lmdb_cursor_close,
    .cursor_seek = lmdb_cursor_seek,
    .cursor_next = lmdb_cursor_next,
    .file_create = store_files_create,
    .file_open = store_files_open_file,
    .file_write = store_files_write,
    .file_read = store_files_read,
    .file_flush = store_files_flush,
    .file_sync = store_files_sync,
    .file_close = store_files_close_file,
    .file_unlink = store_files_unlink,
    .dir_sync = store_files_dir_sync,
    .file_list = store_files_list,
    .space = lmdb_space,
    .random = store_files_random,
    .guarded = lmdb_guarded,
    .close = lmdb_close,
};

static int lmdb_open_tables(struct store_lmdb *s, bool create) {
  MDB_txn *txn;
  int rc = mdb_txn_begin(s->env, NULL, 0, &txn);
  if (rc != 0) return lmdb_err(rc);
  for (unsigned i = 0; i < STORE_TABLE_COUNT && rc == 0; i++)
    rc = mdb_dbi_open(txn, table_names[i], create ? MDB_CREATE : 0, &s->tables[i]);
  if (rc != 0) {
    mdb_txn_abort(txn);
    return rc == MDB_NOTFOUND ? ERR_CORRUPT : lmdb_err(rc);
  }
  rc = mdb_txn_commit(txn);
  return lmdb_err(rc);
}

static int lmdb_open_env(struct store_lmdb *s, const char *path, uint64_t map_bytes, bool create) {
  char index[SETTINGS_PATH_BYTES_MAX + 16];
  snprintf(index, sizeof index, "%s/index", path);
  if (create && mkdir(index, 0750) != 0 && errno != EEXIST) return -errno;
  int rc = mdb_env_create(&s->env);
  if (rc == 0) rc = mdb_env_set_mapsize(s->env, map_bytes);
  if (rc == 0) rc = mdb_env_set_maxdbs(s->env, STORE_TABLE_COUNT);
  if (rc == 0) rc = mdb_env_set_maxreaders(s->env, INDEX_READERS_MAX);
  if (rc == 0) rc = mdb_env_open(s->env, index, MDB_NOTLS | MDB_NORDAHEAD, 0640);
  if (rc != 0) return lmdb_err(rc);
  assert(mdb_env_get_maxkeysize(s->env) >= STORE_KEY_BYTES_MAX);
  int dead;
  (void)mdb_reader_check(s->env, &dead); /* slots of a process that was killed */
  return 0;
}

/* LMDB does not tell where its map is: the kernel does, for the path of its file. */
static int lmdb_watch_map(struct store_lmdb *s) {
  char link[64], path[PATH_MAX], line[PATH_MAX + 256];
  int fd;
  int rc = mdb_env_get_fd(s->env, &fd);
  if (rc != 0) return lmdb_err(rc);
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t len = readlink(link, path, sizeof path - 1);
  if (len < 0) return -errno;
  path[len] = 0;

  FILE *maps = fopen("/proc/self/maps", "re");
  if (!maps) return -errno;
  int err = -ENOENT;
  while (err == -ENOENT && fgets(line, sizeof line, maps)) {
    uintptr_t from, to;
    const char *name = strchr(line, '/');
    line[strcspn(line, "\n")] = 0;
    if (!name || strcmp(name, path) != 0) continue;
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &from, &to) != 2) continue;
    s->sigbus_slot = sigbus_map_add((const void *)from, to - from);
    err = MIN(s->sigbus_slot, 0);
  }
  (void)fclose(maps);
  return err;
}

struct open_call {
  struct store_lmdb *s;
  bool create;
  int err;
};

/* The first reads of the map. */
static void lmdb_open_run(void *arg) {
  struct open_call *c = arg;
  c->err = lmdb_open_tables(c->s, c->create);
  if (c->err == 0) lmdb_allocate_ahead(c->s);
}

int store_lmdb_open(const char *path, uint64_t index_map_bytes, bool create,
                    struct store **ret_store) {
  struct store_lmdb *s = calloc(1, sizeof *s);
  if (!s) return -ENOMEM;
  s->files.store.ops = &lmdb_ops;
  s->sigbus_slot = -1;
  int err = store_files_open(&s->files, path);
  if (err < 0) {
    free(s);
    return err;
  }
  pthread_mutex_init(&s->txn_mutex, NULL);
  list_init(&s->live);
  s->ahead_bytes = MIN(INDEX_AHEAD_BYTES, index_map_bytes / 4);
  struct open_call call = {s, create, 0};
  err = lmdb_open_env(s, path, index_map_bytes, create);
  if (err == 0) err = lmdb_watch_map(s);
  if (err == 0 && lmdb_guarded(&s->files.store, lmdb_open_run, &call) < 0) err = ERR_DRIVE_FAILED;
  if (err == 0) err = call.err;
  if (err < 0) {
    lmdb_close(&s->files.store);
    return err;
  }
  *ret_store = &s->files.store;
  return 0;
}
