/* drive_trash.c: what goes, and when.
 *
 *   C flag durable -> STORE_DROP -> older rows dropped -> STORE_TRASH -> deadline -> record, file
 *
 * A row is dropped only in a transaction after the one that made the higher row's flag durable. A
 * chunk whose last row went waits in the trash, for GETs that read the row just before, and again
 * as long as one of them still reads the file; at its deadline the rows of its key are asked again,
 * since a new ACCEPT may have named it meanwhile. The
 * record goes before the file: a crash in between leaves an orphan, which the next open sweeps. */
#include <errno.h>

#include "config/err.h"
#include "config/sim_mutant.h"
#include "storage/drive/drive_internal.h"

#define DROP_ROWS_MAX 64 /* rows of one key dropped in one go; what is left comes next time */
#define TRASH_KEY_BYTES (8 + BLOB_KEY_BYTES + 8)
#define TRASH_BUDGET_MAX 256
#define HOUSEKEEP_RETRY_MS 1000 /* after an error that may pass: no memory, a full index */

/* ---- rows ---- */

/* Whether a row of the key other than `except` names the data. A row that cannot be read might. */
static int data_named(struct store_txn *txn, const struct index_key *prefix,
                      const struct key_record *rec, const struct version *except,
                      const struct id128 *data_id, bool *ret_named) {
  struct key_rows it;
  struct key_row at;
  bool named = false;
  int err = key_rows_open(txn, prefix, &it);
  while (err == 0 && !named && (err = key_rows_next(&it, &at)) > 0) {
    struct row row;
    err = 0;
    if (except && version_cmp(&at.ver, except) == 0) continue;
    named = row_decode(at.value, &rec->bucket, rec->key, &row) < 0 ||
            (row_has_data(&row) && id128_eq(&row.data_id, data_id));
  }
  key_rows_close(&it);
  *ret_named = named;
  return MIN(err, 0);
}

static int trash_put(struct drive *d, const struct key_record *rec, struct slice blob_key,
                     uint64_t gen) {
  uint8_t key[TRASH_KEY_BYTES], buf[KEY_RECORD_BYTES_MAX];
  uint64_t deadline = d->wall_ms() + d->trash_delay_ms;
  store_be64(key, deadline);
  memcpy(key + 8, blob_key.data, BLOB_KEY_BYTES);
  store_be64(key + 8 + BLOB_KEY_BYTES, gen);
  d->trash_due_ms = MIN(d->trash_due_ms, deadline);
  return batch_put(d, STORE_TRASH, slice_of(key, sizeof key), key_record_encode(rec, buf));
}

/* This drive's chunks of the data, from one of the two tables, into the trash. */
static int trash_chunks(struct drive *d, enum store_table table, const struct key_record *rec,
                        const struct id128 *data_id) {
  struct store_cursor *c = NULL;
  struct slice k, v, id = slice_of(data_id->bytes, 16);
  struct blob_key found[MAP_SLOTS_MAX];
  uint64_t gens[MAP_SLOTS_MAX];
  unsigned count = 0;
  int err = store_cursor_open(d->batch.txn, table, &c);
  if (err == 0) err = store_cursor_seek(c, id, &k, &v);
  while (err == 0 && count < MAP_SLOTS_MAX && slice_starts_with(k, id) && k.len == BLOB_KEY_BYTES) {
    memcpy(found[count].bytes, k.data, BLOB_KEY_BYTES);
    gens[count++] = table == STORE_BLOB && v.len == 16 ? load_be64(v.data) : 0;
    err = store_cursor_next(c, &k, &v);
  }
  store_cursor_close(c);
  if (err < 0 && err != ERR_NOT_FOUND) return batch_break(d, err);
  err = 0;
  for (unsigned i = 0; i < count && err == 0; i++)
    err = trash_put(d, rec, blob_key_slice(&found[i]), gens[i]);
  return err;
}

int drive_drop_row(struct drive *d, const struct index_key *prefix, const struct key_record *rec,
                   const struct version *ver) {
  struct store_txn *txn = d->batch.txn;
  struct index_key row_key, flag;
  struct slice v;
  struct row row;
  bool named = false;
  keys_row(prefix, ver, &row_key);
  keys_flag(&row_key, &flag);
  int err = store_get(txn, STORE_ROWS, index_key_slice(&row_key), &v);
  if (err < 0) return batch_break(d, err);
  err = row_decode(v, &rec->bucket, rec->key, &row);
  if (err < 0) return err; /* it stays: which chunk is its own cannot be told */
  struct id128 data_id = row.data_id;
  bool has_data = row_has_data(&row);
  if (has_data && !MUTANT(TRASH_NAMED)) err = data_named(txn, prefix, rec, ver, &data_id, &named);
  if (err < 0) return batch_break(d, err);

  err = batch_del(d, STORE_ROWS, index_key_slice(&row_key));
  if (err == 0) err = batch_del(d, STORE_ROWS, index_key_slice(&flag));
  if (err == 0) err = batch_del(d, STORE_UNDECIDED, index_key_slice(&row_key));
  if (err == 0) err = batch_del(d, STORE_HEAL, index_key_slice(&row_key));
  if (err == 0 && has_data && !named) err = trash_chunks(d, STORE_BLOB, rec, &data_id);
  if (err == 0 && has_data && !named) err = trash_chunks(d, STORE_INLINE, rec, &data_id);
  if (d->batch.counters.rows > 0) d->batch.counters.rows--;
  d->batch.counters_changed = true;
  return err;
}

/* Rows below the newest chosen one, oldest table order; *ret_more: there were more than fit. */
static int superseded_rows(struct store_txn *txn, const struct index_key *prefix,
                           struct version vers[DROP_ROWS_MAX], unsigned *ret_count,
                           bool *ret_more) {
  struct key_rows it;
  struct key_row at;
  bool below = false;
  unsigned count = 0;
  *ret_more = false;
  int err = key_rows_open(txn, prefix, &it);
  while (err == 0 && (err = key_rows_next(&it, &at)) > 0) {
    err = 0;
    if (below && count == DROP_ROWS_MAX) {
      *ret_more = true;
      break;
    }
    if (below) vers[count++] = at.ver;
    below = below || at.chosen || MUTANT(DROP_ACCEPTED);
  }
  key_rows_close(&it);
  *ret_count = count;
  return MIN(err, 0);
}

/* One entry of STORE_DROP. */
static int drop_key(struct drive *d, const struct index_key *prefix, const struct key_record *rec) {
  struct version vers[DROP_ROWS_MAX];
  unsigned count;
  bool more;
  if (rec->key.len == 0) return batch_del(d, STORE_DROP, index_key_slice(prefix));
  int err = superseded_rows(d->batch.txn, prefix, vers, &count, &more);
  if (err < 0) return err;
  for (unsigned i = 0; i < count && err == 0; i++) {
    err = drive_drop_row(d, prefix, rec, &vers[i]);
    if (err == ERR_CORRUPT && d->batch.err == 0) err = 0; /* left for the scrub to find */
  }
  if (err == 0 && !more) err = batch_del(d, STORE_DROP, index_key_slice(prefix));
  return err;
}

/* The first entry of a queue at or behind *at, copied, for working on it changes the table. A
 * record that cannot be read comes with an empty key: it is to be deleted, or the queue would stand
 * still. */
static int queue_next(struct drive *d, enum store_table table, struct index_key *at,
                      struct key_record *ret_rec, uint8_t key[KEY_BYTES_MAX]) {
  struct store_cursor *c = NULL;
  struct slice k, v;
  int err = store_cursor_open(d->batch.txn, table, &c);
  if (err == 0) err = store_cursor_seek(c, index_key_slice(at), &k, &v);
  if (err == 0 && k.len > sizeof at->bytes) err = ERR_CORRUPT;
  if (err == 0) {
    memcpy(at->bytes, k.data, k.len);
    at->len = (uint16_t)k.len;
    if (key_record_decode(v, ret_rec) < 0) ret_rec->key = (struct slice){0};
    if (ret_rec->key.len) memcpy(key, ret_rec->key.data, ret_rec->key.len);
    ret_rec->key.data = key;
  }
  store_cursor_close(c);
  return err;
}

int drive_drop_superseded(struct drive *d, unsigned budget) {
  struct index_key at = {0};
  struct key_record rec;
  uint8_t key[KEY_BYTES_MAX];
  unsigned done = 0;
  for (; done < budget; done++) {
    int err = queue_next(d, STORE_DROP, &at, &rec, key);
    if (err == ERR_NOT_FOUND) break;
    if (err == 0) err = drop_key(d, &at, &rec);
    if (err < 0) return err;
    at.bytes[at.len++] = 0; /* behind it: it is gone, or has more rows than fit into one go */
  }
  return (int)done;
}

/* ---- trash ---- */

struct trash_run {
  struct drive *d;
  unsigned budget, count;
  bool full; /* below the reserve nothing waits */
  unsigned unlink_count;
  struct chunk_name unlink[TRASH_BUDGET_MAX]; /* after the commit */
  uint64_t next_due_ms;
};

/* A GET that began before the chunk was superseded still reads it: the client may be slow. */
static bool trash_is_read(struct drive *d, const struct chunk_name *name) {
  uint64_t now = d->wall_ms();
  return chunk_cache_used(&d->cache, &name->data_id, name->index,
                          now - MIN(now, d->trash_delay_ms));
}

/* Takes one due entry out of the trash, and with it the chunk unless it is named again. */
static int trash_entry(struct trash_run *t, struct slice k, const struct key_record *rec) {
  struct drive *d = t->d;
  if (k.len != TRASH_KEY_BYTES || rec->key.len == 0) return batch_del(d, STORE_TRASH, k);
  struct chunk_name name = {.index = k.data[8 + 16], .gen = load_be64(k.data + 8 + BLOB_KEY_BYTES)};
  struct slice blob_key = slice_of(k.data + 8, BLOB_KEY_BYTES);
  struct index_key prefix;
  bool named = false;
  memcpy(name.data_id.bytes, k.data + 8, 16);
  int err = keys_find(d->batch.txn, &rec->bucket, rec->key, &prefix);
  if (err == 0 && !MUTANT(TRASH_NAMED))
    err = data_named(d->batch.txn, &prefix, rec, NULL, &name.data_id, &named);
  if (err < 0 && err != ERR_NOT_FOUND) return batch_break(d, err);
  err = batch_del(d, STORE_TRASH, k);
  if (err < 0 || named) return err;
  if (name.gen == 0) return batch_del(d, STORE_INLINE, blob_key);
  struct blob blob;
  err = blob_get(d->batch.txn, &name.data_id, name.index, &blob);
  if (err == 0 && blob.gen == name.gen) {
    if (!t->full && trash_is_read(d, &name)) return trash_put(d, rec, blob_key, name.gen);
    t->unlink[t->unlink_count++] = name;
    return batch_del(d, STORE_BLOB, blob_key);
  }
  return err == ERR_NOT_FOUND ? 0 : MIN(err, 0);
}

static void trash_run(void *arg) {
  struct trash_run *t = arg;
  struct drive *d = t->d;
  uint8_t key[KEY_BYTES_MAX];
  struct key_record rec;
  t->full = drive_below_reserve(d);
  t->next_due_ms = UINT64_MAX;
  while (d->batch.err == 0) {
    struct index_key at = {0};
    int err = queue_next(d, STORE_TRASH, &at, &rec, key);
    if (err == ERR_NOT_FOUND) break;
    if (err < 0) {
      batch_break(d, err);
      break;
    }
    uint64_t deadline = at.len == TRASH_KEY_BYTES ? load_be64(at.bytes) : 0;
    if ((deadline > d->wall_ms() && !t->full) || t->count == t->budget) {
      t->next_due_ms = deadline;
      break;
    }
    err = trash_entry(t, index_key_slice(&at), &rec);
    if (err < 0) batch_break(d, err);
    t->count++;
  }
}

static void trash_unlink(struct trash_run *t) {
  struct drive *d = t->d;
  for (unsigned i = 0; i < t->unlink_count; i++) {
    int err = d->store->ops->file_unlink(d->store, &t->unlink[i]);
    chunk_cache_forget(&d->cache, &t->unlink[i].data_id, t->unlink[i].index);
    if (err < 0 && err != -ENOENT) (void)drive_store_err(d, "removing a chunk file", err);
  }
}

static uint64_t housekeep_delay(struct drive *d) {
  if (d->drops_waiting) return 0;
  if (d->trash_due_ms == UINT64_MAX) return UINT64_MAX;
  if (drive_below_reserve(d)) return 0;
  uint64_t now = d->wall_ms();
  return d->trash_due_ms > now ? d->trash_due_ms - now : 0;
}

uint64_t drive_housekeep(struct drive *d, unsigned budget) {
  if (drive_failed(d)) return UINT64_MAX;
  uint64_t delay = housekeep_delay(d);
  if (delay > 0) return delay;
  struct trash_run t = {.d = d, .budget = MIN(MAX(budget, 1u), TRASH_BUDGET_MAX)};
  int err = drive_batch_begin(d); /* drops what is superseded, on its way */
  if (err == 0) {
    (void)drive_guarded(d, trash_run, &t);
    err = drive_batch_commit(d);
  }
  if (err < 0) return drive_failed(d) ? UINT64_MAX : HOUSEKEEP_RETRY_MS;
  d->trash_due_ms = t.next_due_ms;
  trash_unlink(&t);
  return housekeep_delay(d);
}
