/* drive_attach.c: a drive over a formatted store: who it is, what was swept, what it counts.
 *
 * Opening counts the boot durably before anything else may be asked of the drive, and removes the
 * chunk files that no blob record names: nothing was ever acknowledged for them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "config/err.h"
#include "storage/drive/drive_internal.h"

#define SYS_IDENTITY_FORMAT 1

static uint64_t wall_ms_system(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static struct slice identity_encode(const struct drive_identity *id, struct byte_writer *w) {
  put_u8(w, SYS_IDENTITY_FORMAT);
  put_id(w, &id->drive_id);
  put_id(w, &id->cluster_id);
  put_str16(w, slice_str(id->cluster_name));
  put_str16(w, slice_str(id->host_id));
  put_str16(w, slice_str(id->drive_name));
  put_u32(w, id->epoch);
  put_bytes(w, slice_of(id->map_digest, SHA256_LEN));
  put_bytes(w, slice_of(id->table_digest, SHA256_LEN));
  return slice_of(w->data, w->len);
}

static bool identity_text(struct byte_reader *r, char *out, size_t cap) {
  struct slice s = get_str16(r);
  if (r->failed || s.len >= cap) return false;
  if (s.len) memcpy(out, s.data, s.len);
  out[s.len] = 0;
  return true;
}

static int identity_decode(struct slice value, struct drive_identity *id) {
  struct byte_reader r = byte_reader_of(value);
  if (get_u8(&r) != SYS_IDENTITY_FORMAT) return ERR_CORRUPT;
  id->drive_id = get_id(&r);
  id->cluster_id = get_id(&r);
  if (!identity_text(&r, id->cluster_name, sizeof id->cluster_name) ||
      !identity_text(&r, id->host_id, sizeof id->host_id) ||
      !identity_text(&r, id->drive_name, sizeof id->drive_name))
    return ERR_CORRUPT;
  id->epoch = get_u32(&r);
  struct slice map = get_bytes(&r, SHA256_LEN), table = get_bytes(&r, SHA256_LEN);
  if (r.failed || byte_reader_left(&r) != 0) return ERR_CORRUPT;
  memcpy(id->map_digest, map.data, SHA256_LEN);
  memcpy(id->table_digest, table.data, SHA256_LEN);
  return 0;
}

static int sys_put_u64(struct store_txn *txn, const char *name, uint64_t v) {
  uint8_t value[8];
  store_be64(value, v);
  return store_put(txn, STORE_SYS, slice_str(name), slice_of(value, sizeof value));
}

int drive_format_sys(struct store *store, const struct drive_identity *identity,
                     const char *canonical, struct slice table) {
  struct store_txn *txn;
  struct byte_writer w = {.max = 8192};
  struct slice id = identity_encode(identity, &w);
  int err = w.failed ? -ENOMEM : store_begin(store, true, &txn);
  if (err < 0) {
    byte_writer_free(&w);
    return err;
  }
  err = store_put(txn, STORE_SYS, slice_str(SYS_IDENTITY), id);
  if (err == 0) err = store_put(txn, STORE_SYS, slice_str(SYS_CANONICAL), slice_str(canonical));
  if (err == 0) err = store_put(txn, STORE_SYS, slice_str(SYS_TABLE), table);
  if (err == 0) err = sys_put_u64(txn, SYS_BOOT, 0);
  if (err == 0) err = sys_put_u64(txn, SYS_CLEAN, 1);
  byte_writer_free(&w);
  if (err == 0) return store_commit(txn);
  store_abort(txn);
  return err;
}

/* A copy with a NUL behind it. */
static int sys_copy(struct store_txn *txn, const char *name, uint8_t **ret_data, size_t *ret_len) {
  struct slice v;
  int err = store_get(txn, STORE_SYS, slice_str(name), &v);
  if (err < 0) return err == ERR_NOT_FOUND ? ERR_CORRUPT : err;
  uint8_t *copy = malloc(v.len + 1);
  if (!copy) return -ENOMEM;
  if (v.len) memcpy(copy, v.data, v.len);
  copy[v.len] = 0;
  *ret_data = copy;
  *ret_len = v.len;
  return 0;
}

static int sys_load(struct drive *d, struct store_txn *txn) {
  struct slice v;
  uint8_t *canonical;
  size_t canonical_len;
  int err = store_get(txn, STORE_SYS, slice_str(SYS_IDENTITY), &v);
  if (err == 0) err = identity_decode(v, &d->identity);
  if (err == 0) err = sys_copy(txn, SYS_CANONICAL, &canonical, &canonical_len);
  if (err < 0) return err == ERR_NOT_FOUND ? ERR_CORRUPT : err;
  d->canonical = (char *)canonical;
  err = sys_copy(txn, SYS_TABLE, &d->table, &d->table_len);
  if (err == 0) err = store_get(txn, STORE_SYS, slice_str(SYS_BOOT), &v);
  if (err < 0) return err == ERR_NOT_FOUND ? ERR_CORRUPT : err;
  if (v.len != 8) return ERR_CORRUPT;
  d->identity.boot_counter = load_be64(v.data) + 1;
  d->identity.boot_nonce = d->store->ops->random(d->store) >> 1 | 1; /* fits JSON's integers */
  err = store_get(txn, STORE_SYS, slice_str(SYS_COUNTERS), &v);
  if (err < 0) return err == ERR_NOT_FOUND ? 0 : err;
  if (v.len != 24) return ERR_CORRUPT;
  d->counters.highest = (struct version){load_be64(v.data), load_be64(v.data + 8)};
  d->counters.rows = load_be64(v.data + 16);
  return 0;
}

struct sweep {
  struct drive *d;
  struct store_txn *txn;
  int err;
};

/* A file that no blob record names was never acknowledged, or is trash whose record went first. */
static void sweep_file(void *arg, const struct chunk_name *name) {
  struct sweep *s = arg;
  struct blob blob;
  if (s->err < 0) return;
  int err = blob_get(s->txn, &name->data_id, name->index, &blob);
  if (err == 0 && blob.gen == name->gen) return;
  if (err < 0 && err != ERR_NOT_FOUND) {
    s->err = err;
    return;
  }
  s->err = s->d->store->ops->file_unlink(s->d->store, name);
  atomic_fetch_add_explicit(&s->d->stats.orphans_swept, 1, memory_order_relaxed);
}

struct attach_call {
  struct drive *d;
  int err;
};

/* Only looks: what stands here may not be the drive that it should be. */
static void attach_load(void *arg) {
  struct attach_call *c = arg;
  struct store_txn *txn;
  c->err = store_begin(c->d->store, false, &txn);
  if (c->err < 0) return;
  c->err = sys_load(c->d, txn);
  store_abort(txn);
}

/* Sweeps, and counts the boot in one durable transaction. */
static void attach_run(void *arg) {
  struct attach_call *c = arg;
  struct drive *d = c->d;
  struct store_txn *txn;
  c->err = store_begin(d->store, true, &txn);
  if (c->err < 0) return;
  struct sweep sweep = {d, txn, 0};
  c->err = d->store->ops->file_list(d->store, sweep_file, &sweep);
  if (c->err == 0) c->err = sweep.err;
  if (c->err == 0) c->err = sys_put_u64(txn, SYS_BOOT, d->identity.boot_counter);
  if (c->err == 0) c->err = sys_put_u64(txn, SYS_CLEAN, 0);
  if (c->err < 0) {
    store_abort(txn);
    return;
  }
  d->batch.txn = txn;
  d->batch.counters = d->counters;
  batch_note_counts(d);
  c->err = store_commit(TAKE(d->batch.txn));
  if (c->err < 0 && c->err != ERR_NO_SPACE && c->err != -ENOMEM)
    c->err = drive_fail(d, "committing to the index", c->err);
}

static void drive_free(struct drive *d) {
  stage_table_close(&d->stages, d->store);
  chunk_cache_close(&d->cache);
  d->store->ops->close(d->store);
  pthread_mutex_destroy(&d->failure_mutex);
  free(d->canonical);
  free(d->table);
  free(d);
}

int drive_attach(const struct drive_options *opt, struct store *store, struct drive **ret_drive,
                 struct drive_error *ret_error) {
  struct drive *d = calloc(1, sizeof *d);
  if (!d) {
    store->ops->close(store);
    return -ENOMEM;
  }
  d->store = store;
  d->lock_fd = -1;
  d->reserve_bytes = opt->reserve_bytes;
  d->inline_max_bytes = opt->inline_max_bytes;
  d->trash_delay_ms = opt->trash_delay_ms;
  d->wall_ms = opt->wall_ms ? opt->wall_ms : wall_ms_system;
  pthread_mutex_init(&d->failure_mutex, NULL);
  stage_table_init(&d->stages);
  chunk_cache_init(&d->cache);
  list_init(&d->batch.taken);
  list_init(&d->batch.spent);
  struct attach_call call = {.d = d};
  int err = drive_guarded(d, attach_load, &call);
  if (err == 0) err = call.err;
  if (err == 0 && opt->check) {
    err = opt->check(opt->check_arg, d);
    if (err < 0) {
      drive_free(d);
      return err;
    }
  }
  if (err == 0) err = drive_guarded(d, attach_run, &call);
  if (err == 0) err = call.err;
  if (err < 0) {
    const char *path = opt->path ? opt->path : "drive";
    if (drive_failed(d)) {
      err = ERR_DRIVE_FAILED;
      snprintf(ret_error->text, sizeof ret_error->text, "%s: its disk failed at the start: %s",
               path, drive_failure(d));
    } else {
      snprintf(ret_error->text, sizeof ret_error->text, "%s: the drive's index cannot be read: %s",
               path, err_words(err));
    }
    drive_free(d);
    return err;
  }
  *ret_drive = d;
  return 0;
}

static void clean_run(void *arg) {
  struct drive *d = arg;
  struct store_txn *txn;
  if (store_begin(d->store, true, &txn) < 0) return;
  if (sys_put_u64(txn, SYS_CLEAN, 1) < 0) {
    store_abort(txn); /* only a mark: its absence says "not clean" */
    return;
  }
  int err = store_commit(txn);
  if (err < 0 && err != ERR_NO_SPACE && err != -ENOMEM)
    (void)drive_fail(d, "committing to the index", err);
}

void drive_finish(struct drive *d) {
  if (d->finished || drive_failed(d)) return;
  d->finished = true;
  (void)drive_guarded(d, clean_run, d);
}

void drive_detach(struct drive *d) {
  drive_finish(d);
  drive_free(d);
}

const struct drive_identity *drive_identity_of(const struct drive *d) {
  return &d->identity;
}
const char *drive_canonical(const struct drive *d) {
  return d->canonical;
}
struct slice drive_table(const struct drive *d) {
  return slice_of(d->table, d->table_len);
}

void drive_stats_get(struct drive *d, struct drive_stats *ret) {
  struct store_space space = {0};
  bool known = d->store->ops->space(d->store, &space) == 0;
  *ret = (struct drive_stats){
      .rows = atomic_load_explicit(&d->stats.rows, memory_order_relaxed),
      .undecided = atomic_load_explicit(&d->stats.undecided, memory_order_relaxed),
      .heal_entries = atomic_load_explicit(&d->stats.heal_entries, memory_order_relaxed),
      .batches = atomic_load_explicit(&d->stats.batches, memory_order_relaxed),
      .batch_ops = atomic_load_explicit(&d->stats.batch_ops, memory_order_relaxed),
      .chunk_files_written =
          atomic_load_explicit(&d->stats.chunk_files_written, memory_order_relaxed),
      .bytes_written = atomic_load_explicit(&d->stats.bytes_written, memory_order_relaxed),
      .bytes_read = atomic_load_explicit(&d->stats.bytes_read, memory_order_relaxed),
      .orphans_swept = atomic_load_explicit(&d->stats.orphans_swept, memory_order_relaxed),
      .trash_waiting = atomic_load_explicit(&d->stats.trash_waiting, memory_order_relaxed),
      .stages_open = stage_count(&d->stages),
      .free_bytes = space.free_bytes,
      .total_bytes = space.total_bytes,
      .full = !known || space.free_bytes < drive_reserve(d, space.total_bytes),
  };
}
