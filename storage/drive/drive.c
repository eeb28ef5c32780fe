/* drive.c: one drive over a store: dispatch, the batch, and going out of service.
 *
 * An error that only a broken disk brings fails the drive: from then on every operation answers
 * ERR_DRIVE_FAILED, and nothing is retried (after a failed sync nobody knows what is on disk). */
#include <assert.h>
#include <errno.h>
#include <stdio.h>

#include "config/err.h"
#include "storage/drive/drive_internal.h"

#define INDEX_RESERVE_PART 10 /* a tenth of the index is kept for deletes, flags and heal */
#define RESERVE_PART 100      /* the default reserve: 1 % of the file system, */
#define RESERVE_BYTES_MIN (1ull << 30) /* at least 1 GiB */

/* ---- out of service ---- */

int drive_fail(struct drive *d, const char *what, int err) {
  pthread_mutex_lock(&d->failure_mutex);
  if (!atomic_load(&d->failed)) {
    snprintf(d->failure, sizeof d->failure, "%s: %s (%s)", what, err_words(err), err_name(err));
    atomic_store(&d->failed, true);
  }
  pthread_mutex_unlock(&d->failure_mutex);
  return ERR_DRIVE_FAILED;
}

bool drive_failed(const struct drive *d) {
  return atomic_load(&d->failed);
}

const char *drive_failure(const struct drive *d) {
  return atomic_load(&d->failed) ? d->failure : "";
}

int drive_guarded(struct drive *d, void (*fn)(void *arg), void *arg) {
  int err = d->store->ops->guarded(d->store, fn, arg);
  if (err == 0) return 0;
  atomic_store(&d->faulted, true);
  return drive_fail(d, "reading the index's map", err);
}

int drive_store_err(struct drive *d, const char *what, int err) {
  switch (err) {
    case ERR_NOT_FOUND:
    case ERR_NO_SPACE:
    case ERR_CORRUPT:
    case -EMFILE:
    case -ENFILE:
    case -ENOMEM:
      return err;
    case -ENOSPC:
    case -EDQUOT:
      return ERR_NO_SPACE;
    default:
      return err >= 0 ? err : drive_fail(d, what, err);
  }
}

/* ---- space ---- */

uint64_t drive_reserve(const struct drive *d, uint64_t total_bytes) {
  if (d->reserve_bytes != UINT64_MAX) return d->reserve_bytes;
  return MAX(total_bytes / RESERVE_PART, RESERVE_BYTES_MIN);
}

bool drive_below_reserve(struct drive *d) {
  struct store_space space;
  if (d->store->ops->space(d->store, &space) < 0) return true;
  return space.free_bytes < drive_reserve(d, space.total_bytes);
}

bool drive_index_full(struct drive *d) {
  struct store_space space;
  if (d->store->ops->space(d->store, &space) < 0) return true;
  return space.index_free_bytes < space.index_total_bytes / INDEX_RESERVE_PART;
}

/* ---- reads ---- */

struct read_call {
  struct drive *d;
  struct peer_request *req;
  struct peer_reply *reply;
};

static void read_in_txn(struct drive *d, struct peer_request *req, struct peer_reply *reply) {
  struct store_txn *txn;
  int err = store_begin(d->store, false, &txn);
  if (err < 0) {
    reply->err = drive_store_err(d, "reading the index", err);
    return;
  }
  if (req->verb == PEER_LIST)
    drive_list(d, txn, req, reply);
  else if (req->verb == PEER_READ)
    reply->err = keys_valid(req->key) ? rows_reply(txn, req, reply) : ERR_INVALID;
  else
    drive_keys_page(d, txn, req, reply);
  store_abort(txn);
  if (reply->err < 0 && reply->err != ERR_INVALID)
    reply->err = drive_store_err(d, "reading the index", reply->err);
}

static void read_run(void *arg) {
  struct read_call *c = arg;
  bool of_epoch = c->req->verb == PEER_READ || c->req->verb == PEER_LIST;
  if (of_epoch && c->req->epoch != c->d->identity.epoch) {
    c->reply->err = ERR_STALE_EPOCH;
    return;
  }
  switch (c->req->verb) {
    case PEER_FETCH:
      drive_fetch(c->d, c->req, c->reply);
      return;
    case PEER_READ:
    case PEER_LIST:
    case PEER_HEAL_LIST:
    case PEER_UNDECIDED:
      read_in_txn(c->d, c->req, c->reply);
      return;
    default:
      c->reply->err = ERR_INVALID;
  }
}

void drive_read(struct drive *d, struct peer_request *req, struct peer_reply *reply) {
  *reply = (struct peer_reply){0};
  if (drive_failed(d)) {
    reply->err = ERR_DRIVE_FAILED;
    return;
  }
  struct read_call call = {d, req, reply};
  int err = drive_guarded(d, read_run, &call);
  if (err < 0) reply->err = err;
}

/* ---- the batch ---- */

int batch_break(struct drive *d, int err) {
  if (d->batch.err == 0) d->batch.err = err;
  return err;
}

int batch_put(struct drive *d, enum store_table table, struct slice key, struct slice value) {
  int err = store_put(d->batch.txn, table, key, value);
  return err < 0 ? batch_break(d, err) : 0;
}

int batch_del(struct drive *d, enum store_table table, struct slice key) {
  int err = store_forget(d->batch.txn, table, key);
  return err < 0 ? batch_break(d, err) : 0;
}

static void batch_begin_run(void *arg) {
  struct drive *d = arg;
  struct drive_batch *b = &d->batch;
  b->err = store_begin(d->store, true, &b->txn);
  if (b->err < 0) {
    b->txn = NULL;
    return;
  }
  b->counters = d->counters;
  b->counters_changed = false;
  b->dirs = 0;
  b->ops = 0;
  if (!d->drops_waiting) return;
  int done = drive_drop_superseded(d, DRIVE_DROPS_PER_BATCH);
  if (done < 0)
    batch_break(d, done);
  else if (done < DRIVE_DROPS_PER_BATCH)
    d->drops_waiting = false;
}

int drive_batch_begin(struct drive *d) {
  assert(!d->batch.txn);
  if (drive_failed(d)) return ERR_DRIVE_FAILED;
  int err = drive_guarded(d, batch_begin_run, d);
  if (err < 0) return err;
  if (d->batch.txn) return 0; /* what broke it already comes out of the commit */
  return drive_store_err(d, "beginning a transaction", d->batch.err);
}

struct apply_call {
  struct drive *d;
  const struct peer_request *req;
  struct peer_reply *reply;
};

static void apply_run(void *arg) {
  struct apply_call *c = arg;
  switch (c->req->verb) {
    case PEER_ACCEPT:
      drive_accept(c->d, c->req, c->reply);
      return;
    case PEER_PROMISE:
      drive_promise(c->d, c->req, c->reply);
      return;
    case PEER_COMMIT:
      drive_commit_row(c->d, c->req, c->reply);
      return;
    case PEER_DISCARD:
      drive_discard(c->d, c->req, c->reply);
      return;
    case PEER_BUCKET:
      drive_bucket(c->d, c->req, c->reply);
      return;
    default:
      c->reply->err = ERR_INVALID;
  }
}

/* An error that no rule names is the index's: the batch must not be committed half done. */
static int apply_err(struct drive *d, int err) {
  switch (err) {
    case 0:
    case ERR_INVALID:
    case ERR_CORRUPT:
    case ERR_PROMISED:
    case ERR_FLOOR:
    case ERR_CLOCK:
    case ERR_BUCKET_DELETING:
    case ERR_VER_REUSED:
    case ERR_NO_CHUNK:
    case ERR_NO_SPACE:
    case ERR_TOO_LARGE:
      return err;
    default:
      return batch_break(d, err);
  }
}

void drive_batch_apply(struct drive *d, const struct peer_request *req, struct peer_reply *reply) {
  *reply = (struct peer_reply){0};
  if (drive_failed(d)) {
    reply->err = ERR_DRIVE_FAILED;
    return;
  }
  assert(d->batch.txn);
  if (req->epoch != d->identity.epoch && req->verb != PEER_BUCKET) {
    reply->err = ERR_STALE_EPOCH;
    return;
  }
  if (d->batch.err < 0) {
    reply->err = d->batch.err;
    return;
  }
  struct apply_call call = {d, req, reply};
  int err = drive_guarded(d, apply_run, &call);
  reply->err = err < 0 ? err : apply_err(d, reply->err);
  d->batch.ops++;
}

static int batch_put_counters(struct drive *d) {
  struct drive_batch *b = &d->batch;
  uint8_t value[24];
  if (!b->counters_changed) return 0;
  store_be64(value, b->counters.highest.hlc);
  store_be64(value + 8, b->counters.highest.nonce);
  store_be64(value + 16, b->counters.rows);
  return batch_put(d, STORE_SYS, slice_str(SYS_COUNTERS), slice_of(value, sizeof value));
}

void batch_note_counts(struct drive *d) {
  struct store_txn *txn = d->batch.txn;
  atomic_store_explicit(&d->stats.rows, d->batch.counters.rows, memory_order_relaxed);
  atomic_store_explicit(&d->stats.undecided, store_count(txn, STORE_UNDECIDED),
                        memory_order_relaxed);
  atomic_store_explicit(&d->stats.heal_entries, store_count(txn, STORE_HEAL), memory_order_relaxed);
  atomic_store_explicit(&d->stats.trash_waiting, store_count(txn, STORE_TRASH),
                        memory_order_relaxed);
  if (store_count(txn, STORE_DROP) > 0) d->drops_waiting = true;
}

/* Names first, then the transaction that relies on them. */
static void batch_commit_run(void *arg) {
  struct drive *d = arg;
  struct drive_batch *b = &d->batch;
  if (b->err == 0) (void)batch_put_counters(d);
  if (b->err < 0) {
    store_abort(TAKE(b->txn));
    return;
  }
  for (unsigned dir = 0; dir < STORE_CHUNK_DIRS && b->err == 0; dir++) {
    if (!(b->dirs & 1u << dir)) continue;
    int err = d->store->ops->dir_sync(d->store, dir);
    if (err < 0) b->err = drive_fail(d, "syncing a chunk directory", err);
  }
  if (b->err < 0) {
    store_abort(TAKE(b->txn));
    return;
  }
  batch_note_counts(d);
  int err = store_commit(TAKE(b->txn));
  if (err == ERR_NO_SPACE || err == -ENOMEM)
    b->err = err;
  else if (err < 0)
    b->err = drive_fail(d, "committing to the index", err);
}

/* Committed: the files that rows name stay, those that nothing needs go. Not committed: the stages
 * wait for another ACCEPT. Failed: nobody knows; all files stay for the check of the drive. */
enum batch_end { BATCH_COMMITTED, BATCH_ABORTED, BATCH_FAILED };

static void batch_let_go(struct drive *d, enum batch_end end) {
  struct drive_batch *b = &d->batch;
  for (struct list *it; (it = list_pop_front(&b->taken));) {
    struct stage *stage = container_of(it, struct stage, batch_link);
    if (end == BATCH_ABORTED)
      stage_release(&d->stages, d->store, stage);
    else
      stage_end(&d->stages, d->store, stage, false);
    if (end == BATCH_COMMITTED)
      atomic_fetch_add_explicit(&d->stats.chunk_files_written, 1, memory_order_relaxed);
  }
  for (struct list *it; (it = list_pop_front(&b->spent));) {
    struct stage *stage = container_of(it, struct stage, batch_link);
    if (end == BATCH_ABORTED)
      stage_release(&d->stages, d->store, stage);
    else
      stage_end(&d->stages, d->store, stage, end == BATCH_COMMITTED);
  }
}

int drive_batch_commit(struct drive *d) {
  struct drive_batch *b = &d->batch;
  if (!drive_failed(d)) {
    assert(b->txn);
    (void)drive_guarded(d, batch_commit_run, d);
  }
  if (drive_failed(d)) {
    struct store_txn *txn = TAKE(b->txn);
    if (!atomic_load(&d->faulted)) store_abort(txn); /* else in the middle of anything */
    batch_let_go(d, BATCH_FAILED);
    return ERR_DRIVE_FAILED;
  }
  batch_let_go(d, b->err == 0 ? BATCH_COMMITTED : BATCH_ABORTED);
  if (b->err < 0) {
    d->drops_waiting = true; /* what it had dropped is back */
    return drive_store_err(d, "writing to the index", b->err);
  }
  if (b->counters_changed) d->counters = b->counters;
  atomic_fetch_add_explicit(&d->stats.batches, 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&d->stats.batch_ops, b->ops, memory_order_relaxed);
  return 0;
}
