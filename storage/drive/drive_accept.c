/* drive_accept.c: ACCEPT and PROMISE (PROTOCOL.md 4), and what a chunk must be to stand under a
 * row. */
#include <errno.h>

#include "codec/crc32c.h"
#include "config/err.h"
#include "config/sim_mutant.h"
#include "storage/drive/drive_internal.h"

/* What the rules need to know of a key. */
struct key_state {
  struct index_key prefix;
  bool known; /* the prefix exists */
  struct version promised, floor;
  struct version newest;     /* of all rows; zero: none */
  bool superseded;           /* a chosen row above `ver` */
  bool stored;               /* a row at `ver`, which is */
  struct slice stored_bytes; /* (valid until the next put) */
};

static int key_state_rows(struct store_txn *txn, const struct version *ver, struct key_state *ks) {
  struct key_rows it;
  struct key_row at;
  int err = key_rows_open(txn, &ks->prefix, &it);
  while (err == 0 && (err = key_rows_next(&it, &at)) > 0) {
    err = 0;
    version_raise(&ks->newest, &at.ver);
    int c = version_cmp(&at.ver, ver);
    if (c > 0 && (at.chosen || MUTANT(SUPERSEDED_BY_ACCEPTED))) ks->superseded = true;
    if (c == 0) {
      ks->stored = true;
      ks->stored_bytes = at.value;
    }
    if (c <= 0) break;
  }
  key_rows_close(&it);
  return MIN(err, 0);
}

static int key_state_get(struct store_txn *txn, const struct peer_request *req,
                         const struct version *ver, struct key_state *ks) {
  *ks = (struct key_state){0};
  int err = floor_get(txn, req->pool, req->partition, &ks->floor);
  if (err < 0) return err;
  err = keys_find(txn, &req->bucket, req->key, &ks->prefix);
  if (err < 0) return err == ERR_NOT_FOUND ? 0 : err;
  ks->known = true;
  err = promised_get(txn, &ks->prefix, &ks->promised);
  return err < 0 ? err : key_state_rows(txn, ver, ks);
}

static struct version key_state_highest(const struct key_state *ks) {
  struct version v = ks->promised;
  version_raise(&v, &ks->newest);
  version_raise(&v, &ks->floor);
  return v;
}

int drive_clock_check(struct drive *d, const struct version *ver) {
  uint64_t known_ms = MAX(d->wall_ms(), d->batch.counters.highest.hlc >> VERSION_HLC_SHIFT);
  return (ver->hlc >> VERSION_HLC_SHIFT) > known_ms + VERSION_FUTURE_MS_MAX ? ERR_CLOCK : 0;
}

static void note_version(struct drive *d, const struct version *ver) {
  if (version_cmp(&d->batch.counters.highest, ver) >= 0) return;
  d->batch.counters.highest = *ver;
  d->batch.counters_changed = true;
}

/* ---- the chunk ---- */

/* The units of the request are exactly the row's chunk: order, lengths, CRCs, digest. */
static int inline_check(const struct peer_request *req, const struct row *row) {
  struct stripe_geometry g = row_geometry(row);
  struct chunk_digest digest;
  struct id128 got;
  unsigned slot = req->slot;
  if (req->unit_count > PEER_UNITS_MAX || req->unit_count != g.stripe_count) return ERR_INVALID;
  if (stripe_chunk_len(&g, slot) > PEER_INLINE_BYTES_MAX) return ERR_TOO_LARGE;
  for (unsigned i = 0; i < req->unit_count; i++) {
    const struct peer_unit *u = &req->units[i];
    if (u->len != stripe_unit_len(&g, i, slot)) return ERR_INVALID;
    if (unit_crc(&row->data_id, slot, i, u->data, u->len) != u->crc) return ERR_CORRUPT;
  }
  int err = chunk_digest_begin(&digest, &row->data_id, slot);
  if (err < 0) return err;
  for (unsigned i = 0; i < req->unit_count; i++)
    chunk_digest_unit(&digest, req->units[i].crc, req->units[i].len);
  chunk_digest_end(&digest, &got);
  return id128_eq(&got, &row->digests[slot]) ? 0 : ERR_CORRUPT;
}

/* Written where it will stand: the units are copied once, into the index's page. */
static int inline_store(struct drive *d, const struct peer_request *req, const struct row *row) {
  struct blob_key k = blob_key_of(&row->data_id, req->slot);
  size_t len = 1 + (size_t)req->unit_count * 8, data_len = 0;
  for (unsigned i = 0; i < req->unit_count; i++) data_len += req->units[i].len;
  uint8_t *at;
  int err = store_reserve(d->batch.txn, STORE_INLINE, blob_key_slice(&k), len + data_len, &at);
  if (err < 0) return batch_break(d, err);
  *at++ = (uint8_t)req->unit_count;
  for (unsigned i = 0; i < req->unit_count; i++, at += 8) {
    store_be32(at, req->units[i].len);
    store_be32(at + 4, req->units[i].crc);
  }
  for (unsigned i = 0; i < req->unit_count; i++) {
    if (req->units[i].len) memcpy(at, req->units[i].data, req->units[i].len);
    at += req->units[i].len;
  }
  atomic_fetch_add_explicit(&d->stats.bytes_written, data_len, memory_order_relaxed);
  return 0;
}

/* A stage of this chunk that nobody needs: its file goes after the commit. */
static void stage_spend(struct drive *d, const struct id128 *data_id, unsigned slot) {
  struct stage *stage = stage_hold(&d->stages, data_id, slot);
  if (stage) list_push_back(&d->batch.spent, &stage->batch_link);
}

static int stage_take(struct drive *d, const struct peer_request *req, const struct row *row) {
  struct stage *stage = stage_hold(&d->stages, &row->data_id, req->slot);
  if (!stage) return ERR_NO_CHUNK;
  if (stage->state != STAGE_SEALED || !id128_eq(&stage->info.digest, &row->digests[req->slot])) {
    stage_release(&d->stages, d->store, stage);
    return ERR_NO_CHUNK;
  }
  list_push_back(&d->batch.taken, &stage->batch_link);
  struct blob_key k = blob_key_of(&row->data_id, req->slot);
  uint8_t value[16];
  store_be64(value, stage->name.gen);
  store_be64(value + 8, stage->info.len);
  d->batch.dirs |= 1u << chunk_name_dir(&stage->name);
  return batch_put(d, STORE_BLOB, blob_key_slice(&k), slice_of(value, sizeof value));
}

/* Makes sure that this drive's chunk of the row is, or will be with this batch, durable here. */
static int accept_chunk(struct drive *d, const struct peer_request *req, const struct row *row) {
  if (!row_has_data(row)) return 0;
  if (req->slot >= profile_n(&row->profile)) return ERR_INVALID;
  int err = chunk_present(d->batch.txn, &row->data_id, req->slot);
  if (err == 0) {
    stage_spend(d, &row->data_id, req->slot);
    return 0;
  }
  if (err != ERR_NOT_FOUND) return err;
  if (drive_index_full(d)) return ERR_NO_SPACE;
  if (req->unit_count > 0) {
    err = inline_check(req, row);
    if (err < 0) return err;
    return drive_below_reserve(d) ? ERR_NO_SPACE : inline_store(d, req, row);
  }
  struct stripe_geometry g = row_geometry(row);
  err = stage_take(d, req, row);
  if (err == ERR_NO_CHUNK && stripe_chunk_len(&g, req->slot) == 0) return 0;
  return err;
}

/* ---- ACCEPT ---- */

/* The same version is the same operation on the same data, or a fault of its sender. */
static int accept_same(const struct peer_request *req, const struct row *row,
                       const struct key_state *ks) {
  struct row stored;
  int err = row_decode(ks->stored_bytes, &req->bucket, req->key, &stored);
  if (err < 0) return err;
  bool same = id128_eq(&stored.op_id, &row->op_id) && id128_eq(&stored.data_id, &row->data_id);
  return same || MUTANT(SAME_VERSION) ? 0 : ERR_VER_REUSED;
}

static int accept_refusal(struct drive *d, const struct peer_request *req, const struct row *row,
                          const struct key_state *ks) {
  bool blind = MUTANT(ACCEPT_BELOW_PROMISE) ||
               (MUTANT(ROLL_FORWARD_BLIND) && (req->flags & MUTANT_FLAG_BLIND));
  if (version_cmp(&row->ver, &ks->promised) < 0 && !blind) return ERR_PROMISED;
  if (version_cmp(&row->ver, &ks->floor) <= 0) return ERR_FLOOR;
  if (row->kind == ROW_PUT) {
    int err = bucket_check(d->batch.txn, &req->bucket);
    if (err < 0) return err;
  }
  return drive_clock_check(d, &row->ver);
}

static int accept_store(struct drive *d, const struct peer_request *req, const struct row *row,
                        struct key_state *ks) {
  struct store_txn *txn = d->batch.txn;
  struct index_key row_key;
  uint8_t buf[KEY_RECORD_BYTES_MAX];
  struct key_record rec = {d->wall_ms(), req->pool, req->partition, req->bucket, req->key};
  if (!ks->known) {
    int err = keys_make(txn, &req->bucket, req->key, &ks->prefix);
    if (err < 0) return batch_break(d, err);
  }
  keys_row(&ks->prefix, &row->ver, &row_key);
  int err = batch_put(d, STORE_ROWS, index_key_slice(&row_key), req->row);
  if (err < 0) return err;
  d->batch.counters.rows++;
  d->batch.counters_changed = true;
  note_version(d, &row->ver);
  uint32_t missing = 0;
  if (MUTANT(FLAG_WITHOUT_COUNT)) return drive_choose(d, &ks->prefix, &rec, &row->ver, 0);
  if (MUTANT(DROP_ACCEPTED))
    err = batch_put(d, STORE_DROP, index_key_slice(&ks->prefix), key_record_encode(&rec, buf));
  if (drive_early_take(d, req, &row->ver, &missing))
    return drive_choose(d, &ks->prefix, &rec, &row->ver, missing);
  return batch_put(d, STORE_UNDECIDED, index_key_slice(&row_key), key_record_encode(&rec, buf));
}

static int accept(struct drive *d, const struct peer_request *req, struct peer_reply *reply) {
  struct row row;
  struct key_state ks;
  if (!keys_valid(req->key)) return ERR_INVALID;
  int err = row_decode(req->row, &req->bucket, req->key, &row);
  if (err < 0) return err;
  err = key_state_get(d->batch.txn, req, &row.ver, &ks);
  if (err < 0) return err;
  if (ks.stored) {
    /* Acked before, whatever was promised since: saying so again changes nothing. A chunk that has
     * gone meanwhile may come with it. */
    err = accept_same(req, &row, &ks);
    return err < 0 ? err : accept_chunk(d, req, &row);
  }
  err = accept_refusal(d, req, &row, &ks);
  if (err == ERR_PROMISED || err == ERR_FLOOR || err == ERR_CLOCK)
    reply->ver = key_state_highest(&ks);
  if (err < 0) return err;
  if (ks.superseded) {
    reply->flags |= PEER_SUPERSEDED;
    if (row_has_data(&row)) stage_spend(d, &row.data_id, req->slot);
    return 0;
  }
  err = accept_chunk(d, req, &row);
  return err < 0 ? err : accept_store(d, req, &row, &ks);
}

void drive_accept(struct drive *d, const struct peer_request *req, struct peer_reply *reply) {
  reply->err = accept(d, req, reply);
}

/* ---- PROMISE ---- */

static int promise(struct drive *d, const struct peer_request *req, struct peer_reply *reply) {
  struct store_txn *txn = d->batch.txn;
  struct key_state ks;
  uint8_t value[16];
  if (!keys_valid(req->key)) return ERR_INVALID;
  int err = key_state_get(txn, req, &req->ver, &ks);
  if (err == 0) err = bucket_check(txn, &req->bucket);
  if (err < 0) return err;
  struct version highest = key_state_highest(&ks);
  err = drive_clock_check(d, &req->ver);
  if (MUTANT(SAME_VERSION) && version_cmp(&req->ver, &highest) == 0) highest.hlc--;
  if (version_cmp(&req->ver, &highest) <= 0 && !MUTANT(PROMISE_BELOW_PROMISE))
    err = version_cmp(&req->ver, &ks.floor) <= 0 ? ERR_FLOOR : ERR_PROMISED;
  if (err < 0) {
    reply->ver = highest;
    return err;
  }
  /* The reply first: a drive that cannot read its rows of a key promises nothing for it. */
  err = rows_reply(txn, req, reply);
  if (err < 0) return err;
  if (!ks.known) {
    err = keys_make(txn, &req->bucket, req->key, &ks.prefix);
    if (err < 0) return batch_break(d, err);
  }
  note_version(d, &req->ver);
  if (MUTANT(PROMISE_FORGOTTEN)) return 0;
  store_be64(value, req->ver.hlc);
  store_be64(value + 8, req->ver.nonce);
  return batch_put(d, STORE_PROMISED, index_key_slice(&ks.prefix), slice_of(value, sizeof value));
}

void drive_promise(struct drive *d, const struct peer_request *req, struct peer_reply *reply) {
  reply->err = promise(d, req, reply);
}
