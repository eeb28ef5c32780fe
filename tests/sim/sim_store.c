/* sim_store.c: struct store over a simulated disk. See sim.h and storage/drive/store.h. */
#include "tests/sim/sim.h"

#define STORE_TOTAL_BYTES (1ull << 40)

struct sim_store {
  struct store store;
  struct disk *disk;
};
struct sim_txn {
  struct store_txn txn;
  bool write;
};
struct sim_cursor {
  struct store_cursor cursor;
  struct disk_table *table;
  size_t at; /* of the entry it stands on */
  uint64_t changes;
  uint16_t key_len;
  uint8_t key[STORE_KEY_BYTES_MAX];
};
struct sim_file {
  struct store_file file;
  struct disk_file *f;
};

static struct disk *disk_of(struct store *s) {
  return container_of(s, struct sim_store, store)->disk;
}

/* ---- transactions ---- */

static int store_sim_begin(struct store *s, bool write, struct store_txn **ret_txn) {
  struct disk *d = disk_of(s);
  int err = write ? disk_step(d, DISK_WRITE) : d->dead ? -EIO : 0;
  if (err < 0) return err;
  struct sim_txn *t = calloc(1, sizeof *t);
  SIM_CHECK(t && !(write && d->writing));
  t->txn.store = s;
  t->write = write;
  if (write) d->writing = true;
  *ret_txn = &t->txn;
  return 0;
}

static void table_insert(struct disk_table *t, size_t at, struct disk_entry e) {
  if (t->count == t->cap) {
    t->cap = MAX(16, t->cap * 2);
    t->entries = realloc(t->entries, t->cap * sizeof *t->entries);
    SIM_CHECK(t->entries);
  }
  memmove(t->entries + at + 1, t->entries + at, (t->count - at) * sizeof *t->entries);
  t->entries[at] = e;
  t->count++;
  t->changes++;
}

static void table_take(struct disk_table *t, size_t at) {
  t->count--;
  t->changes++;
  memmove(t->entries + at, t->entries + at + 1, (t->count - at) * sizeof *t->entries);
}

static void undo_all(struct disk *d) {
  while (d->undo_count > 0) {
    struct disk_undo *u = &d->undo[--d->undo_count];
    struct disk_table *t = &d->tables[u->table];
    size_t at;
    bool found = table_find(t, slice_of(u->entry.key, u->entry.key_len), &at);
    if (found) {
      free(t->entries[at].key);
      free(t->entries[at].value);
      table_take(t, at);
    }
    if (u->entry.value)
      table_insert(t, at, u->entry);
    else
      free(u->entry.key);
  }
}

static void undo_forget(struct disk *d) {
  for (size_t i = 0; i < d->undo_count; i++) {
    free(d->undo[i].entry.key);
    free(d->undo[i].entry.value);
  }
  d->undo_count = 0;
}

static void store_sim_abort(struct store_txn *txn) {
  struct sim_txn *t = container_of(txn, struct sim_txn, txn);
  struct disk *d = disk_of(txn->store);
  if (t->write) {
    undo_all(d);
    d->writing = false;
  }
  free(t);
}

/* A machine that stops in here has either all of the transaction or nothing. */
static int store_sim_commit(struct store_txn *txn) {
  struct sim_txn *t = container_of(txn, struct sim_txn, txn);
  struct disk *d = disk_of(txn->store);
  if (!t->write) {
    store_sim_abort(txn);
    return 0;
  }
  bool was_dead = d->dead;
  int err = disk_step(d, DISK_SYNC);
  bool kept = err == 0 || (!was_dead && sim_chance(d->sim, 0.5));
  if (!kept) undo_all(d);
  undo_forget(d);
  d->writing = false;
  free(t);
  return err;
}

/* ---- entries ---- */

static int store_sim_get(struct store_txn *txn, enum store_table table, struct slice key,
                         struct slice *ret_value) {
  struct disk *d = disk_of(txn->store);
  struct disk_table *t = &d->tables[table];
  size_t at;
  if (d->dead) return -EIO;
  if (!table_find(t, key, &at)) return ERR_NOT_FOUND;
  *ret_value = slice_of(t->entries[at].value, t->entries[at].value_len);
  return 0;
}

static uint8_t *bytes_copy(const uint8_t *data, size_t len) {
  uint8_t *copy = malloc(len + 1);
  SIM_CHECK(copy);
  if (len) memcpy(copy, data, len);
  return copy;
}

static void undo_note(struct disk *d, enum store_table table, struct disk_entry old) {
  if (d->undo_count == d->undo_cap) {
    d->undo_cap = MAX(32, d->undo_cap * 2);
    d->undo = realloc(d->undo, d->undo_cap * sizeof *d->undo);
    SIM_CHECK(d->undo);
  }
  d->undo[d->undo_count++] = (struct disk_undo){table, old};
}

static int store_sim_reserve(struct store_txn *txn, enum store_table table, struct slice key,
                             size_t len, uint8_t **ret_value) {
  struct disk *d = disk_of(txn->store);
  struct disk_table *t = &d->tables[table];
  size_t at;
  SIM_CHECK(d->writing && container_of(txn, struct sim_txn, txn)->write);
  SIM_CHECK(key.len > 0 && key.len <= STORE_KEY_BYTES_MAX);
  int err = disk_step(d, DISK_WRITE);
  if (err < 0) return err;
  struct disk_entry e = {.key = bytes_copy(key.data, key.len),
                         .value = malloc(len + 1),
                         .key_len = (uint16_t)key.len,
                         .value_len = (uint32_t)len};
  SIM_CHECK(e.value);
  if (table_find(t, key, &at)) {
    undo_note(d, table, t->entries[at]);
    t->entries[at] = e;
    t->changes++;
  } else {
    struct disk_entry none = {.key = bytes_copy(key.data, key.len), .key_len = e.key_len};
    undo_note(d, table, none);
    table_insert(t, at, e);
  }
  *ret_value = e.value;
  return 0;
}

static int store_sim_put(struct store_txn *txn, enum store_table table, struct slice key,
                         struct slice value) {
  uint8_t *at, *copy = bytes_copy(value.data, value.len); /* it may stand in this table */
  int err = store_sim_reserve(txn, table, key, value.len, &at);
  if (err == 0 && value.len) memcpy(at, copy, value.len);
  free(copy);
  return err;
}

static int store_sim_del(struct store_txn *txn, enum store_table table, struct slice key) {
  struct disk *d = disk_of(txn->store);
  struct disk_table *t = &d->tables[table];
  size_t at;
  SIM_CHECK(d->writing && container_of(txn, struct sim_txn, txn)->write);
  int err = disk_step(d, DISK_WRITE);
  if (err < 0) return err;
  if (!table_find(t, key, &at)) return ERR_NOT_FOUND;
  undo_note(d, table, t->entries[at]);
  table_take(t, at);
  return 0;
}

static uint64_t store_sim_count(struct store_txn *txn, enum store_table table) {
  return disk_of(txn->store)->tables[table].count;
}

static int store_sim_cursor_open(struct store_txn *txn, enum store_table table,
                                 struct store_cursor **ret_cursor) {
  struct sim_cursor *c = malloc(sizeof *c);
  SIM_CHECK(c);
  c->cursor.store = txn->store;
  c->table = &disk_of(txn->store)->tables[table];
  c->at = SIZE_MAX;
  *ret_cursor = &c->cursor;
  return 0;
}

static void store_sim_cursor_close(struct store_cursor *c) {
  free(container_of(c, struct sim_cursor, cursor));
}

static int cursor_stand(struct sim_cursor *c, size_t at, struct slice *ret_key,
                        struct slice *ret_value) {
  if (at >= c->table->count) return ERR_NOT_FOUND;
  const struct disk_entry *e = &c->table->entries[at];
  c->at = at;
  c->changes = c->table->changes;
  c->key_len = e->key_len;
  memcpy(c->key, e->key, e->key_len);
  *ret_key = slice_of(e->key, e->key_len);
  *ret_value = slice_of(e->value, e->value_len);
  return 0;
}

static int store_sim_cursor_seek(struct store_cursor *cursor, struct slice key,
                                 struct slice *ret_key, struct slice *ret_value) {
  struct sim_cursor *c = container_of(cursor, struct sim_cursor, cursor);
  size_t at;
  if (disk_of(cursor->store)->dead) return -EIO;
  (void)table_find(c->table, key, &at);
  return cursor_stand(c, at, ret_key, ret_value);
}

static int store_sim_cursor_next(struct store_cursor *cursor, struct slice *ret_key,
                                 struct slice *ret_value) {
  struct sim_cursor *c = container_of(cursor, struct sim_cursor, cursor);
  size_t at = c->at + 1;
  if (disk_of(cursor->store)->dead) return -EIO;
  SIM_CHECK(c->at != SIZE_MAX);
  if (c->changes != c->table->changes && !table_find(c->table, slice_of(c->key, c->key_len), &at))
    return cursor_stand(c, at, ret_key, ret_value);
  if (c->changes != c->table->changes) at++;
  return cursor_stand(c, at, ret_key, ret_value);
}

/* ---- files ---- */

static bool names_eq(const struct chunk_name *a, const struct chunk_name *b) {
  return a->gen == b->gen && a->index == b->index && id128_eq(&a->data_id, &b->data_id);
}

static struct disk_file *file_find(struct disk *d, const struct chunk_name *name) {
  list_foreach(it, &d->files) {
    struct disk_file *f = container_of(it, struct disk_file, link);
    if (!f->unlinked && names_eq(&f->name, name)) return f;
  }
  return NULL;
}

static struct store_file *handle_new(struct store *s, struct disk_file *f) {
  struct sim_file *h = malloc(sizeof *h);
  SIM_CHECK(h);
  h->file.store = s;
  h->f = f;
  f->handles++;
  return &h->file;
}

static int store_sim_file_create(struct store *s, const struct chunk_name *name,
                                 struct store_file **ret_file) {
  struct disk *d = disk_of(s);
  int err = disk_step(d, DISK_WRITE);
  if (err < 0) return err;
  if (d->full) return -ENOSPC;
  if (file_find(d, name)) return -EEXIST;
  struct disk_file *f = calloc(1, sizeof *f);
  SIM_CHECK(f);
  f->name = *name;
  list_push_back(&d->files, &f->link);
  *ret_file = handle_new(s, f);
  return 0;
}

static int store_sim_file_open(struct store *s, const struct chunk_name *name,
                               struct store_file **ret_file, uint64_t *ret_size) {
  struct disk *d = disk_of(s);
  int err = disk_step(d, DISK_READ);
  if (err < 0) return err;
  struct disk_file *f = file_find(d, name);
  if (!f) return -ENOENT;
  *ret_file = handle_new(s, f);
  *ret_size = f->len;
  return 0;
}

static int store_sim_file_write(struct store_file *file, struct iovec *iov, unsigned count,
                                uint64_t offset) {
  struct disk_file *f = container_of(file, struct sim_file, file)->f;
  struct disk *d = disk_of(file->store);
  int err = disk_step(d, DISK_WRITE);
  if (err < 0) return err;
  if (d->full) return -ENOSPC;
  size_t len = 0;
  for (unsigned i = 0; i < count; i++) len += iov[i].iov_len;
  SIM_CHECK(offset == f->len && offset >= f->synced); /* files only grow */
  if (f->len + len > f->cap) {
    f->cap = MAX(f->len + len, f->cap * 2);
    f->data = realloc(f->data, f->cap);
    SIM_CHECK(f->data);
  }
  for (unsigned i = 0; i < count; i++) {
    if (iov[i].iov_len) memcpy(f->data + f->len, iov[i].iov_base, iov[i].iov_len);
    f->len += iov[i].iov_len;
  }
  return 0;
}

static int store_sim_file_read(struct store_file *file, struct iovec *iov, unsigned count,
                               uint64_t offset) {
  struct disk_file *f = container_of(file, struct sim_file, file)->f;
  int err = disk_step(disk_of(file->store), DISK_READ);
  if (err < 0) return err;
  size_t len = 0;
  for (unsigned i = 0; i < count; i++) len += iov[i].iov_len;
  if (offset > f->len || len > f->len - offset) return ERR_CORRUPT;
  for (unsigned i = 0; i < count; i++) {
    if (iov[i].iov_len) memcpy(iov[i].iov_base, f->data + offset, iov[i].iov_len);
    offset += iov[i].iov_len;
  }
  return 0;
}

static void store_sim_file_flush(struct store_file *file, uint64_t offset, uint64_t len) {
  (void)file;
  (void)offset;
  (void)len;
}

static int store_sim_file_sync(struct store_file *file) {
  struct disk_file *f = container_of(file, struct sim_file, file)->f;
  if (MUTANT(NO_FILE_SYNC)) return 0;
  int err = disk_step(disk_of(file->store), DISK_SYNC);
  if (err == 0) f->synced = f->len;
  return err;
}

static void store_sim_file_close(struct store_file *file) {
  struct sim_file *h = container_of(file, struct sim_file, file);
  SIM_CHECK(h->f->handles > 0);
  h->f->handles--;
  free(h);
}

static int store_sim_file_unlink(struct store *s, const struct chunk_name *name) {
  struct disk *d = disk_of(s);
  int err = disk_step(d, DISK_WRITE);
  if (err < 0) return err;
  struct disk_file *f = file_find(d, name);
  if (!f) return -ENOENT;
  f->unlinked = true; /* its bytes go with the disk, or with a sync of its directory */
  return 0;
}

static int store_sim_dir_sync(struct store *s, unsigned dir) {
  struct disk *d = disk_of(s);
  if (MUTANT(NO_DIR_SYNC)) return 0;
  int err = disk_step(d, DISK_SYNC);
  if (err < 0) return err;
  list_foreach_safe(it, &d->files) {
    struct disk_file *f = container_of(it, struct disk_file, link);
    if (chunk_name_dir(&f->name) != dir) continue;
    f->name_durable = !f->unlinked;
    if (!f->unlinked || f->handles > 0) continue;
    list_remove(&f->link);
    free(f->data);
    free(f);
  }
  return 0;
}

static int store_sim_file_list(struct store *s,
                               void (*each)(void *arg, const struct chunk_name *name), void *arg) {
  list_foreach_safe(it, &disk_of(s)->files) {
    struct disk_file *f = container_of(it, struct disk_file, link);
    if (!f->unlinked) each(arg, &f->name);
  }
  return 0;
}

static int store_sim_space(struct store *s, struct store_space *ret_space) {
  struct disk *d = disk_of(s);
  *ret_space = (struct store_space){.free_bytes = d->full ? 0 : STORE_TOTAL_BYTES / 2,
                                    .total_bytes = STORE_TOTAL_BYTES,
                                    .index_free_bytes = STORE_TOTAL_BYTES / 2,
                                    .index_total_bytes = STORE_TOTAL_BYTES};
  return 0;
}

static uint64_t store_sim_random(struct store *s) {
  return sim_random(disk_of(s)->sim) | 1;
}

static int store_sim_guarded(struct store *s, void (*fn)(void *arg), void *arg) {
  (void)s;
  fn(arg);
  return 0;
}

static void store_sim_close(struct store *s) {
  free(container_of(s, struct sim_store, store));
}

static const struct store_ops sim_store_ops = {
    .begin = store_sim_begin,
    .commit = store_sim_commit,
    .abort = store_sim_abort,
    .get = store_sim_get,
    .put = store_sim_put,
    .reserve = store_sim_reserve,
    .del = store_sim_del,
    .count = store_sim_count,
    .cursor_open = store_sim_cursor_open,
    .cursor_close = store_sim_cursor_close,
    .cursor_seek = store_sim_cursor_seek,
    .cursor_next = store_sim_cursor_next,
    .file_create = store_sim_file_create,
    .file_open = store_sim_file_open,
    .file_write = store_sim_file_write,
    .file_read = store_sim_file_read,
    .file_flush = store_sim_file_flush,
    .file_sync = store_sim_file_sync,
    .file_close = store_sim_file_close,
    .file_unlink = store_sim_file_unlink,
    .dir_sync = store_sim_dir_sync,
    .file_list = store_sim_file_list,
    .space = store_sim_space,
    .random = store_sim_random,
    .guarded = store_sim_guarded,
    .close = store_sim_close,
};

struct store *disk_open(struct disk *d) {
  struct sim_store *s = calloc(1, sizeof *s);
  SIM_CHECK(s);
  s->store.ops = &sim_store_ops;
  s->disk = d;
  return &s->store;
}
