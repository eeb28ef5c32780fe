/* drive_rows.c: what stands in the index under a key, for READ, PROMISE and the rules; and the
 * pages of the heal queue and of undecided keys. */
#include <assert.h>
#include <errno.h>

#include "config/err.h"
#include "config/sim_mutant.h"
#include "storage/drive/drive_internal.h"

#define INLINE_ENTRY_BYTES 8 /* length and CRC of a unit */

struct slice key_record_encode(const struct key_record *rec, uint8_t buf[KEY_RECORD_BYTES_MAX]) {
  assert(rec->key.len <= KEY_BYTES_MAX);
  store_be64(buf, rec->number);
  buf[8] = rec->pool;
  store_be16(buf + 9, rec->partition);
  memcpy(buf + 11, rec->bucket.bytes, 16);
  if (rec->key.len) memcpy(buf + 27, rec->key.data, rec->key.len);
  return slice_of(buf, 27 + rec->key.len);
}

int key_record_decode(struct slice value, struct key_record *ret_rec) {
  struct byte_reader r = byte_reader_of(value);
  struct key_record rec = {.number = get_u64(&r)};
  rec.pool = get_u8(&r);
  rec.partition = get_u16(&r);
  rec.bucket = get_id(&r);
  rec.key = slice_of(r.at, byte_reader_left(&r));
  if (r.failed || !keys_valid(rec.key)) return ERR_CORRUPT;
  *ret_rec = rec;
  return 0;
}

struct blob_key blob_key_of(const struct id128 *data_id, unsigned index) {
  struct blob_key k;
  memcpy(k.bytes, data_id->bytes, 16);
  k.bytes[16] = (uint8_t)index;
  return k;
}

int blob_get(struct store_txn *txn, const struct id128 *data_id, unsigned index,
             struct blob *ret_blob) {
  struct blob_key k = blob_key_of(data_id, index);
  struct slice v;
  int err = store_get(txn, STORE_BLOB, blob_key_slice(&k), &v);
  if (err < 0) return err;
  if (v.len != 16) return ERR_CORRUPT;
  *ret_blob = (struct blob){load_be64(v.data), load_be64(v.data + 8)};
  return 0;
}

int inline_get(struct store_txn *txn, const struct id128 *data_id, unsigned index,
               struct inline_chunk *ret_chunk) {
  struct blob_key k = blob_key_of(data_id, index);
  struct slice v;
  int err = store_get(txn, STORE_INLINE, blob_key_slice(&k), &v);
  if (err < 0) return err;
  if (v.len == 0 || v.data[0] > PEER_UNITS_MAX) return ERR_CORRUPT;
  struct inline_chunk chunk = {.unit_count = v.data[0], .table = v.data + 1};
  size_t head = 1 + (size_t)chunk.unit_count * INLINE_ENTRY_BYTES;
  if (v.len < head) return ERR_CORRUPT;
  chunk.bytes = slice_of(v.data + head, v.len - head);
  uint64_t len = 0;
  for (unsigned i = 0; i < chunk.unit_count; i++) len += inline_unit_len(&chunk, i);
  if (len != chunk.bytes.len) return ERR_CORRUPT;
  *ret_chunk = chunk;
  return 0;
}

int chunk_present(struct store_txn *txn, const struct id128 *data_id, unsigned index) {
  struct blob_key k = blob_key_of(data_id, index);
  struct slice v;
  int err = store_get(txn, STORE_INLINE, blob_key_slice(&k), &v);
  if (err == ERR_NOT_FOUND) err = store_get(txn, STORE_BLOB, blob_key_slice(&k), &v);
  return err;
}

static int version_get(struct slice v, struct version *ret_ver) {
  if (v.len != 16) return ERR_CORRUPT;
  *ret_ver = (struct version){load_be64(v.data), load_be64(v.data + 8)};
  return 0;
}

int promised_get(struct store_txn *txn, const struct index_key *prefix, struct version *ret_ver) {
  struct slice v;
  int err = store_get(txn, STORE_PROMISED, index_key_slice(prefix), &v);
  if (err == ERR_NOT_FOUND) {
    *ret_ver = (struct version){0};
    return 0;
  }
  return err < 0 ? err : version_get(v, ret_ver);
}

int floor_get(struct store_txn *txn, unsigned pool, unsigned partition, struct version *ret_ver) {
  uint8_t key[3] = {(uint8_t)pool};
  struct slice v;
  store_be16(key + 1, (uint16_t)partition);
  int err = store_get(txn, STORE_PARTITION, slice_of(key, sizeof key), &v);
  if (err == ERR_NOT_FOUND) {
    *ret_ver = (struct version){0};
    return 0;
  }
  return err < 0 ? err : version_get(v, ret_ver);
}

int bucket_check(struct store_txn *txn, const struct id128 *bucket) {
  struct slice v;
  int err = store_get(txn, STORE_BUCKET, slice_of(bucket->bytes, 16), &v);
  if (err == ERR_NOT_FOUND) return 0;
  if (err < 0) return err;
  if (v.len != 17) return ERR_CORRUPT;
  return v.data[0] == BUCKET_ACTIVE || MUTANT(BUCKET_UNCHECKED) ? 0 : ERR_BUCKET_DELETING;
}

/* ---- READ ---- */

static int row_chunk_state(struct store_txn *txn, const struct row *row, unsigned slot,
                           uint8_t *ret_state) {
  *ret_state = CHUNK_WHOLE;
  if (!row_has_data(row)) return 0;
  if (slot >= profile_n(&row->profile)) {
    *ret_state = CHUNK_NONE;
    return 0;
  }
  struct stripe_geometry g = row_geometry(row);
  if (stripe_chunk_len(&g, slot) == 0) return 0;
  int err = chunk_present(txn, &row->data_id, slot);
  if (err == ERR_NOT_FOUND) {
    *ret_state = CHUNK_MISSING;
    return 0;
  }
  return err;
}

static int rows_collect(struct store_txn *txn, const struct peer_request *req,
                        struct peer_rows *rows) {
  struct index_key prefix;
  int err = floor_get(txn, req->pool, req->partition, &rows->floor);
  if (err < 0) return err;
  err = keys_find(txn, &req->bucket, req->key, &prefix);
  if (err < 0) return err == ERR_NOT_FOUND ? 0 : err;
  err = promised_get(txn, &prefix, &rows->promised);
  if (err < 0) return err;

  struct key_rows it;
  struct key_row at;
  err = key_rows_open(txn, &prefix, &it);
  while (err == 0 && (err = key_rows_next(&it, &at)) > 0) {
    if (rows->count == PEER_ROWS_MAX) {
      rows->more = true;
      break;
    }
    struct peer_row *out = &rows->rows[rows->count++];
    out->bytes = at.value;
    out->chosen = at.chosen;
    err = row_decode(at.value, &req->bucket, req->key, &out->row);
    if (MUTANT(CORRUPT_IS_ABSENT) && err == ERR_CORRUPT) {
      rows->count--;
      err = 0;
      continue;
    }
    if (err == 0) err = row_chunk_state(txn, &out->row, req->slot, &out->chunk_state);
    if (at.chosen) break;
  }
  key_rows_close(&it);
  return MIN(err, 0);
}

static int rows_inline(struct store_txn *txn, const struct peer_request *req,
                       struct peer_rows *rows) {
  if (rows->count == 0 || !row_has_data(&rows->rows[0].row)) return 0;
  struct inline_chunk chunk;
  int err = inline_get(txn, &rows->rows[0].row.data_id, req->slot, &chunk);
  if (err < 0) return err == ERR_NOT_FOUND ? 0 : err;
  rows->inline_chunk = chunk.bytes;
  rows->inline_unit_count = chunk.unit_count;
  for (unsigned i = 0; i < chunk.unit_count; i++) rows->inline_crcs[i] = inline_unit_crc(&chunk, i);
  return 0;
}

int rows_reply(struct store_txn *txn, const struct peer_request *req, struct peer_reply *reply) {
  struct peer_rows rows;
  rows.count = rows.inline_unit_count = 0;
  rows.more = false;
  rows.promised = rows.floor = (struct version){0};
  rows.inline_chunk = (struct slice){0};
  int err = rows_collect(txn, req, &rows);
  if (err == 0 && (req->flags & PEER_WANT_INLINE)) err = rows_inline(txn, req, &rows);
  if (err == 0) err = peer_rows_encode(&rows, &reply->body, &reply->body_len);
  return err;
}

/* ---- HEAL_LIST and UNDECIDED ---- */

/* A row that was accepted `since` is older than `age`; so is one from the future of a clock that
 * was set back. */
static bool is_older(uint64_t now, uint64_t since, uint64_t age) {
  if (since > now) return since - now > VERSION_FUTURE_MS_MAX;
  return now - since >= age;
}

/* One entry of the page; false: passed over, as is what cannot be read: the queue must go on. */
static bool page_entry(struct byte_writer *w, const struct peer_request *req, uint64_t now,
                       struct slice k, struct slice v) {
  struct key_record rec;
  if (key_record_decode(v, &rec) < 0 || k.len <= KEYS_VERSION_BYTES) return false;
  bool heal = req->verb == PEER_HEAL_LIST;
  if (!heal && !is_older(now, rec.number, req->age_ms)) return false;
  struct peer_key_entry e = {.bucket = rec.bucket,
                             .key = rec.key,
                             .ver = keys_get_version(k.data + k.len - KEYS_VERSION_BYTES),
                             .missing = heal ? (uint32_t)rec.number : 0,
                             .pool = rec.pool,
                             .partition = rec.partition};
  peer_keys_put(w, &e);
  return true;
}

/* The cursor is the index key of the next entry to look at. The newest row of an undecided key
 * speaks for the key: its older rows are passed over. */
static int page_fill(struct drive *d, struct store_cursor *c, const struct peer_request *req,
                     struct byte_writer *w) {
  unsigned limit = req->limit ? MIN(req->limit, PEER_LIST_ENTRIES_MAX) : PEER_LIST_ENTRIES_MAX;
  unsigned count = 0, seen = 0;
  uint64_t now = d->wall_ms();
  struct slice k, v, last = {0};
  int err = store_cursor_seek(c, req->from, &k, &v);
  for (; err == 0; err = store_cursor_next(c, &k, &v)) {
    struct slice prefix = slice_of(k.data, k.len - MIN(k.len, (size_t)KEYS_VERSION_BYTES));
    if (req->verb == PEER_UNDECIDED && last.data && slice_eq(prefix, last)) continue;
    if (count == limit || w->len >= DRIVE_PAGE_BODY_BYTES || seen++ == DRIVE_PAGE_SCAN_MAX) {
      peer_keys_put_end(w, k);
      return 0;
    }
    if (!page_entry(w, req, now, k, v)) continue;
    last = prefix;
    count++;
  }
  if (err != ERR_NOT_FOUND) return err;
  peer_keys_put_end(w, (struct slice){0});
  return 0;
}

void drive_keys_page(struct drive *d, struct store_txn *txn, const struct peer_request *req,
                     struct peer_reply *reply) {
  struct byte_writer w = {.max = PEER_BODY_BYTES_MAX};
  struct store_cursor *c = NULL;
  enum store_table table = req->verb == PEER_HEAL_LIST ? STORE_HEAL : STORE_UNDECIDED;
  int err = req->from.len > STORE_KEY_BYTES_MAX ? ERR_INVALID : store_cursor_open(txn, table, &c);
  if (err == 0) err = page_fill(d, c, req, &w);
  store_cursor_close(c);
  if (err == 0 && w.failed) err = -ENOMEM;
  reply->err = err;
  if (err < 0) {
    byte_writer_free(&w);
    return;
  }
  reply->body = w.data;
  reply->body_len = w.len;
}
