/* drive_fetch.c: FETCH, units of a chunk with the CRCs that were stored with them. The gateway
 * verifies: the drive reads straight into the caller's buffers and looks at nothing. */
#include <errno.h>

#include "config/err.h"
#include "storage/drive/drive_internal.h"

static int fetch_check(const struct peer_request *req, uint64_t unit_count) {
  if (req->unit_count == 0 || req->unit_count > PEER_UNITS_MAX) return ERR_INVALID;
  if (req->unit_first >= unit_count || req->unit_count > unit_count - req->unit_first)
    return ERR_INVALID;
  return 0;
}

/* The units stand side by side in the file: one read for all of them. */
static int fetch_file(struct drive *d, struct cached_chunk *chunk, struct peer_request *req) {
  const struct chunk_info *info = &chunk->info;
  struct iovec iov[PEER_UNITS_MAX];
  uint64_t bytes = 0;
  int err = fetch_check(req, info->unit_count);
  if (err < 0) return err;
  for (unsigned i = 0; i < req->unit_count; i++) {
    uint32_t len = chunk_unit_len(info, req->unit_first + i);
    if (req->units[i].len < len) return ERR_INVALID;
    iov[i] = (struct iovec){req->units[i].data, len};
    bytes += len;
  }
  err = d->store->ops->file_read(chunk->file, iov, req->unit_count,
                                 chunk_unit_offset(req->unit_first, info->profile.unit_bytes));
  if (err < 0) return ERR_CORRUPT; /* a bad sector is a lost unit, not a lost drive */
  for (unsigned i = 0; i < req->unit_count; i++) {
    req->units[i].len = chunk_unit_len(info, req->unit_first + i);
    req->units[i].crc = info->crcs[req->unit_first + i];
  }
  atomic_fetch_add_explicit(&d->stats.bytes_read, bytes, memory_order_relaxed);
  return 0;
}

static int fetch_inline(struct drive *d, const struct inline_chunk *chunk,
                        struct peer_request *req) {
  int err = fetch_check(req, chunk->unit_count);
  if (err < 0) return err;
  size_t at = 0;
  for (unsigned i = 0; i < req->unit_first; i++) at += inline_unit_len(chunk, i);
  size_t from = at;
  for (unsigned i = 0; i < req->unit_count; i++) {
    struct peer_unit *u = &req->units[i];
    uint32_t len = inline_unit_len(chunk, (unsigned)req->unit_first + i);
    if (u->len < len) return ERR_INVALID;
    if (len) memcpy(u->data, chunk->bytes.data + at, len);
    u->len = len;
    u->crc = inline_unit_crc(chunk, (unsigned)req->unit_first + i);
    at += len;
  }
  atomic_fetch_add_explicit(&d->stats.bytes_read, at - from, memory_order_relaxed);
  return 0;
}

/* Looks the chunk up: 1 = served from the index, 0 = *ret_name is its file. */
static int fetch_lookup(struct drive *d, struct peer_request *req, struct chunk_name *ret_name) {
  struct store_txn *txn;
  struct inline_chunk chunk;
  struct blob blob;
  int err = store_begin(d->store, false, &txn);
  if (err < 0) return drive_store_err(d, "reading the index", err);
  err = blob_get(txn, &req->data_id, req->slot, &blob);
  if (err == 0) {
    *ret_name = (struct chunk_name){req->data_id, blob.gen, req->slot};
  } else if (err == ERR_NOT_FOUND) {
    err = inline_get(txn, &req->data_id, req->slot, &chunk);
    if (err == 0) err = fetch_inline(d, &chunk, req);
    if (err == 0) err = 1;
  }
  store_abort(txn);
  if (err == ERR_NOT_FOUND) return ERR_NO_CHUNK;
  return err == ERR_INVALID ? err : drive_store_err(d, "reading the index", err);
}

static int fetch_open(struct drive *d, const struct chunk_name *name,
                      struct cached_chunk **ret_chunk) {
  struct store_file *file;
  struct chunk_info info;
  int err = chunk_file_open(d->store, name, &file, &info);
  if (err == -EMFILE || err == -ENFILE || err == -ENOMEM) return err;
  if (err < 0) return ERR_NO_CHUNK; /* gone, or unreadable: an erasure */
  struct cached_chunk *chunk = chunk_cache_add(&d->cache, file, &info, d->wall_ms());
  if (!chunk) return -ENOMEM;
  *ret_chunk = chunk;
  return 0;
}

void drive_fetch(struct drive *d, struct peer_request *req, struct peer_reply *reply) {
  struct cached_chunk *chunk = chunk_cache_get(&d->cache, &req->data_id, req->slot, d->wall_ms());
  if (!chunk) {
    struct chunk_name name;
    int err = fetch_lookup(d, req, &name);
    if (err == 0) err = fetch_open(d, &name, &chunk);
    if (err != 0) {
      reply->err = MIN(err, 0);
      return;
    }
  }
  reply->err = fetch_file(d, chunk, req);
  chunk_cache_put(&d->cache, chunk);
}
