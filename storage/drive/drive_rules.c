/* drive_rules.c: COMMIT, DISCARD and BUCKET (PROTOCOL.md 4, 12). */
#include <errno.h>

#include "codec/crc32c.h"
#include "config/err.h"
#include "storage/drive/drive_internal.h"

/* ---- COMMIT ---- */

/* A row with an older one behind it: those may go once this flag is durable. */
static int has_older(struct store_txn *txn, const struct index_key *prefix,
                     const struct version *ver, bool *ret_older) {
  struct key_rows it;
  struct key_row at;
  bool older = false;
  int err = key_rows_open(txn, prefix, &it);
  while (err == 0 && !older && (err = key_rows_next(&it, &at)) > 0) {
    err = 0;
    older = version_cmp(&at.ver, ver) < 0;
  }
  key_rows_close(&it);
  *ret_older = older;
  return MIN(err, 0);
}

/* Adds slots to the row's entry in the heal queue. */
static int heal_add(struct drive *d, const struct index_key *row_key, const struct key_record *rec,
                    uint32_t missing) {
  struct key_record entry = *rec;
  struct slice v;
  uint8_t buf[KEY_RECORD_BYTES_MAX];
  entry.number = missing;
  int err = store_get(d->batch.txn, STORE_HEAL, index_key_slice(row_key), &v);
  if (err == 0) {
    struct key_record old;
    if (key_record_decode(v, &old) == 0) entry.number |= old.number;
    if (entry.number == old.number) return 0;
  } else if (err != ERR_NOT_FOUND) {
    return batch_break(d, err);
  }
  return batch_put(d, STORE_HEAL, index_key_slice(row_key), key_record_encode(&entry, buf));
}

int drive_choose(struct drive *d, const struct index_key *prefix, const struct key_record *rec,
                 const struct version *ver, uint32_t missing) {
  struct store_txn *txn = d->batch.txn;
  struct index_key row_key, flag;
  struct slice v;
  keys_row(prefix, ver, &row_key);
  keys_flag(&row_key, &flag);
  int err = store_get(txn, STORE_ROWS, index_key_slice(&flag), &v);
  if (err < 0 && err != ERR_NOT_FOUND) return batch_break(d, err);
  if (err == ERR_NOT_FOUND) {
    bool older = false;
    err = has_older(txn, prefix, ver, &older);
    if (err < 0) return err;
    err = batch_put(d, STORE_ROWS, index_key_slice(&flag), (struct slice){0});
    if (err == 0) err = batch_del(d, STORE_UNDECIDED, index_key_slice(&row_key));
    uint8_t buf[KEY_RECORD_BYTES_MAX];
    if (err == 0 && older)
      err = batch_put(d, STORE_DROP, index_key_slice(prefix), key_record_encode(rec, buf));
    if (err < 0) return err;
  }
  return missing ? heal_add(d, &row_key, rec, missing) : 0;
}

static struct early_commit *early_at(struct drive *d, const struct version *ver) {
  return &d->early[ver->nonce % DRIVE_EARLY_COMMITS]; /* the nonce is random */
}

static bool early_is(const struct early_commit *e, const struct peer_request *req,
                     const struct version *ver) {
  return version_cmp(&e->ver, ver) == 0 && id128_eq(&e->bucket, &req->bucket) &&
         e->key_crc == crc32c(0, req->key.data, req->key.len);
}

/* The COMMIT may have overtaken its ACCEPT, which is still on its way through the data lane. */
static void early_note(struct drive *d, const struct peer_request *req) {
  struct early_commit *e = early_at(d, &req->ver);
  uint32_t before = early_is(e, req, &req->ver) ? e->missing : 0;
  *e = (struct early_commit){
      .ver = req->ver,
      .bucket = req->bucket,
      .key_crc = crc32c(0, req->key.data, req->key.len),
      .missing = req->missing | before,
  };
}

bool drive_early_take(struct drive *d, const struct peer_request *req, const struct version *ver,
                      uint32_t *ret_missing) {
  const struct early_commit *e = early_at(d, ver);
  if (!early_is(e, req, ver)) return false;
  *ret_missing = e->missing;
  return true;
}

static int commit_row(struct drive *d, const struct peer_request *req) {
  struct store_txn *txn = d->batch.txn;
  struct index_key prefix, row_key;
  struct slice v;
  if (!keys_valid(req->key)) return ERR_INVALID;
  int err = keys_find(txn, &req->bucket, req->key, &prefix);
  if (err == 0) {
    keys_row(&prefix, &req->ver, &row_key);
    err = store_get(txn, STORE_ROWS, index_key_slice(&row_key), &v);
  }
  if (err == ERR_NOT_FOUND) {
    early_note(d, req);
    return 0;
  }
  if (err < 0) return batch_break(d, err);
  struct key_record rec = {0, req->pool, req->partition, req->bucket, req->key};
  return drive_choose(d, &prefix, &rec, &req->ver, req->missing);
}

void drive_commit_row(struct drive *d, const struct peer_request *req, struct peer_reply *reply) {
  reply->err = commit_row(d, req);
}

/* ---- DISCARD ---- */

/* Nothing but a row that is accepted, not chosen, and below a promise may be discarded here: the
 * sender counted, but its message may be old. */
static int discard(struct drive *d, const struct peer_request *req) {
  struct store_txn *txn = d->batch.txn;
  struct index_key prefix, row_key, flag;
  struct version promised;
  struct slice v;
  if (!keys_valid(req->key)) return ERR_INVALID;
  int err = keys_find(txn, &req->bucket, req->key, &prefix);
  if (err < 0) return err == ERR_NOT_FOUND ? 0 : batch_break(d, err);
  err = promised_get(txn, &prefix, &promised);
  if (err < 0) return batch_break(d, err);
  if (version_cmp(&promised, &req->ver) <= 0) return 0;
  keys_row(&prefix, &req->ver, &row_key);
  keys_flag(&row_key, &flag);
  err = store_get(txn, STORE_ROWS, index_key_slice(&flag), &v);
  if (err == 0) return 0;
  if (err == ERR_NOT_FOUND) err = store_get(txn, STORE_ROWS, index_key_slice(&row_key), &v);
  if (err < 0) return err == ERR_NOT_FOUND ? 0 : batch_break(d, err);
  struct key_record rec = {0, req->pool, req->partition, req->bucket, req->key};
  return drive_drop_row(d, &prefix, &rec, &req->ver);
}

void drive_discard(struct drive *d, const struct peer_request *req, struct peer_reply *reply) {
  reply->err = discard(d, req);
}

/* ---- BUCKET ---- */

static int bucket_state(struct drive *d, const struct peer_request *req, struct peer_reply *reply) {
  struct slice key = slice_of(req->bucket.bytes, 16), v;
  if (req->bucket_state < BUCKET_ACTIVE || req->bucket_state > BUCKET_DELETED) return ERR_INVALID;
  int err = store_get(d->batch.txn, STORE_BUCKET, key, &v);
  if (err < 0 && err != ERR_NOT_FOUND) return batch_break(d, err);
  if (err == 0) {
    if (v.len != 17) return ERR_CORRUPT;
    struct version stored = {load_be64(v.data + 1), load_be64(v.data + 9)};
    int c = version_cmp(&req->ver, &stored);
    if (c == 0) return v.data[0] == req->bucket_state ? 0 : ERR_VER_REUSED;
    if (c < 0) { /* an ack would be counted as this state, which is past */
      reply->ver = stored;
      return ERR_PROMISED;
    }
  }
  uint8_t value[17] = {req->bucket_state};
  store_be64(value + 1, req->ver.hlc);
  store_be64(value + 9, req->ver.nonce);
  return batch_put(d, STORE_BUCKET, key, slice_of(value, sizeof value));
}

void drive_bucket(struct drive *d, const struct peer_request *req, struct peer_reply *reply) {
  reply->err = bucket_state(d, req, reply);
}
