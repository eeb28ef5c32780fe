/* stage.c: STAGE, DROP and the seal. See stage.h. */
#include "storage/drive/stage.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "codec/crc32c.h"
#include "codec/digest.h"
#include "config/err.h"
#include "storage/drive/drive_internal.h"

#define STAGE_CRCS_FIRST 64

void stage_table_init(struct stage_table *t) {
  pthread_mutex_init(&t->mutex, NULL);
  for (unsigned i = 0; i < STAGE_BUCKETS; i++) list_init(&t->buckets[i]);
  t->count = 0;
}

/* Ids are random: any two bytes will do. */
static struct list *stage_bucket(struct stage_table *t, const struct id128 *data_id) {
  return &t->buckets[load_be16(data_id->bytes + 6) % STAGE_BUCKETS];
}

static struct stage *stage_find(struct stage_table *t, const struct id128 *data_id,
                                unsigned index) {
  list_foreach(it, stage_bucket(t, data_id)) {
    struct stage *stage = container_of(it, struct stage, link);
    if (stage->name.index == index && id128_eq(&stage->name.data_id, data_id)) return stage;
  }
  return NULL;
}

static void stage_free(struct stage *stage) {
  store_file_close(stage->file);
  free(stage->info.crcs);
  free(stage);
}

void stage_table_close(struct stage_table *t, struct store *s) {
  for (unsigned i = 0; i < STAGE_BUCKETS; i++) {
    list_foreach_safe(it, &t->buckets[i]) {
      struct stage *stage = container_of(it, struct stage, link);
      assert(!stage->busy);
      (void)s->ops->file_unlink(s, &stage->name); /* what stays is swept by the next open */
      stage_free(stage);
    }
  }
  pthread_mutex_destroy(&t->mutex);
}

struct stage *stage_hold(struct stage_table *t, const struct id128 *data_id, unsigned index) {
  pthread_mutex_lock(&t->mutex);
  struct stage *stage = stage_find(t, data_id, index);
  if (stage && stage->busy) stage = NULL;
  if (stage) stage->busy = true;
  pthread_mutex_unlock(&t->mutex);
  return stage;
}

void stage_end(struct stage_table *t, struct store *s, struct stage *stage, bool unlink) {
  pthread_mutex_lock(&t->mutex);
  list_remove(&stage->link);
  t->count--;
  pthread_mutex_unlock(&t->mutex);
  if (unlink) (void)s->ops->file_unlink(s, &stage->name);
  stage_free(stage);
}

void stage_release(struct stage_table *t, struct store *s, struct stage *stage) {
  pthread_mutex_lock(&t->mutex);
  bool dropped = stage->dropped;
  if (!dropped) stage->busy = false;
  pthread_mutex_unlock(&t->mutex);
  if (dropped) stage_end(t, s, stage, true);
}

unsigned stage_count(struct stage_table *t) {
  pthread_mutex_lock(&t->mutex);
  unsigned count = t->count;
  pthread_mutex_unlock(&t->mutex);
  return count;
}

/* ---- STAGE ---- */

/* A new, held stage with its file. */
static int stage_new(struct drive *d, const struct peer_request *req, struct stage **ret_stage) {
  struct stage *stage = calloc(1, sizeof *stage);
  if (!stage) return -ENOMEM;
  stage->name = (struct chunk_name){req->data_id, d->store->ops->random(d->store), req->slot};
  stage->info =
      (struct chunk_info){.data_id = req->data_id, .index = req->slot, .profile = req->profile};
  stage->busy = true;

  pthread_mutex_lock(&d->stages.mutex);
  int err = 0;
  if (stage_find(&d->stages, &req->data_id, req->slot))
    err = ERR_INVALID; /* held by another thread, or not at its first unit */
  else if (d->stages.count == STAGES_MAX)
    err = ERR_SLOW_DOWN;
  if (err == 0) {
    list_push_back(stage_bucket(&d->stages, &req->data_id), &stage->link);
    d->stages.count++;
  }
  pthread_mutex_unlock(&d->stages.mutex);
  if (err < 0) {
    free(stage);
    return err;
  }
  err = d->store->ops->file_create(d->store, &stage->name, &stage->file);
  if (err < 0) {
    stage_end(&d->stages, d->store, stage, false);
    return drive_store_err(d, "creating a chunk file", err);
  }
  *ret_stage = stage;
  return 0;
}

static int stage_grow(struct stage *stage, unsigned more) {
  uint64_t need = stage->info.unit_count + more;
  if (need > CHUNK_UNITS_MAX) return ERR_TOO_LARGE;
  if (need <= stage->crc_cap) return 0;
  uint64_t cap = MAX(MAX(need, stage->crc_cap * 2), (uint64_t)STAGE_CRCS_FIRST);
  uint32_t *crcs = realloc(stage->info.crcs, (size_t)cap * sizeof *crcs);
  if (!crcs) return -ENOMEM;
  stage->info.crcs = crcs;
  stage->crc_cap = cap;
  return 0;
}

/* Units come in order, each whole but the chunk's last, and with the CRC they had at the encoder.
 */
static int stage_check_units(const struct stage *stage, const struct peer_request *req,
                             uint64_t *ret_len) {
  const struct chunk_info *info = &stage->info;
  uint32_t unit_bytes = info->profile.unit_bytes;
  if (stage->state != STAGE_OPEN || req->unit_first != info->unit_count) return ERR_INVALID;
  if (info->len != info->unit_count * unit_bytes) return ERR_INVALID; /* a short one was the last */
  uint64_t len = 0;
  for (unsigned i = 0; i < req->unit_count; i++) {
    const struct peer_unit *u = &req->units[i];
    bool last = i + 1 == req->unit_count;
    if (u->len > unit_bytes || (u->len < unit_bytes && !last)) return ERR_INVALID;
    if (unit_crc(&info->data_id, info->index, req->unit_first + i, u->data, u->len) != u->crc)
      return ERR_CORRUPT;
    len += u->len;
  }
  *ret_len = len;
  return 0;
}

static int stage_append(struct drive *d, struct stage *stage, const struct peer_request *req) {
  struct chunk_info *info = &stage->info;
  uint64_t len = 0;
  int err = stage_check_units(stage, req, &len);
  if (err == 0) err = stage_grow(stage, req->unit_count);
  if (err < 0) return err;

  uint8_t header[CHUNK_HEADER_BYTES];
  struct iovec iov[PEER_UNITS_MAX + 1];
  unsigned count = 0;
  uint64_t offset = chunk_unit_offset(info->unit_count, info->profile.unit_bytes);
  if (info->unit_count == 0) {
    chunk_header_encode(info, header);
    iov[count++] = (struct iovec){header, sizeof header};
    offset = 0;
  }
  for (unsigned i = 0; i < req->unit_count; i++)
    iov[count++] = (struct iovec){req->units[i].data, req->units[i].len};
  err = d->store->ops->file_write(stage->file, iov, count, offset);
  if (err < 0) return drive_store_err(d, "writing a chunk file", err);

  for (unsigned i = 0; i < req->unit_count; i++) info->crcs[info->unit_count++] = req->units[i].crc;
  info->len += len;
  uint64_t written = CHUNK_HEADER_BYTES + info->len;
  if (written - stage->flushed >= STAGE_FLUSH_BYTES) {
    d->store->ops->file_flush(stage->file, stage->flushed, written - stage->flushed);
    stage->flushed = written;
  }
  atomic_fetch_add_explicit(&d->stats.bytes_written, len, memory_order_relaxed);
  return 0;
}

static bool stage_request_ok(const struct peer_request *req) {
  const struct profile *p = &req->profile;
  return req->unit_count > 0 && req->unit_count <= PEER_UNITS_MAX && p->k > 0 &&
         profile_n(p) <= MAP_SLOTS_MAX && req->slot < profile_n(p) &&
         p->unit_bytes >= CHUNK_UNIT_BYTES_MIN && p->unit_bytes <= PEER_UNIT_BYTES_MAX &&
         !id128_is_zero(&req->data_id);
}

static int stage_units(struct drive *d, const struct peer_request *req) {
  if (!stage_request_ok(req)) return ERR_INVALID;
  if (drive_below_reserve(d)) return ERR_NO_SPACE;
  struct stage *stage = stage_hold(&d->stages, &req->data_id, req->slot);
  if (!stage) {
    if (req->unit_first != 0) return ERR_INVALID;
    int err = stage_new(d, req, &stage);
    if (err < 0) return err;
  }
  int err = stage_append(d, stage, req);
  /* Nothing more can be added behind a write that failed, and an empty file is of no use. */
  if (err == ERR_NO_SPACE || err == ERR_DRIVE_FAILED || stage->info.unit_count == 0)
    stage_end(&d->stages, d->store, stage, true);
  else
    stage_release(&d->stages, d->store, stage);
  return err;
}

static int stage_drop(struct drive *d, const struct peer_request *req) {
  struct stage_table *t = &d->stages;
  pthread_mutex_lock(&t->mutex);
  struct stage *stage = stage_find(t, &req->data_id, req->slot);
  if (stage && stage->busy) {
    stage->dropped = true;
    stage = NULL;
  }
  if (stage) stage->busy = true;
  pthread_mutex_unlock(&t->mutex);
  if (stage) stage_end(t, d->store, stage, true);
  return 0;
}

void drive_stage(struct drive *d, const struct peer_request *req, struct peer_reply *reply) {
  *reply = (struct peer_reply){0};
  if (drive_failed(d))
    reply->err = ERR_DRIVE_FAILED;
  else if (req->verb == PEER_STAGE)
    reply->err = stage_units(d, req);
  else
    reply->err = req->verb == PEER_DROP ? stage_drop(d, req) : ERR_INVALID;
}

/* ---- the seal ---- */

static bool profile_eq(const struct profile *a, const struct profile *b) {
  return a->technique == b->technique && a->k == b->k && a->m == b->m &&
         a->unit_bytes == b->unit_bytes;
}

/* The staged units are exactly the row's chunk. A last unit of no bytes need not have been sent. */
static int stage_complete(struct stage *stage, const struct row *row) {
  struct chunk_info *info = &stage->info;
  struct stripe_geometry g = row_geometry(row);
  unsigned index = info->index;
  if (!profile_eq(&info->profile, &row->profile)) return ERR_INVALID;
  if (info->unit_count + 1 == g.stripe_count && stripe_unit_len(&g, info->unit_count, index) == 0) {
    int err = stage_grow(stage, 1);
    if (err < 0) return err;
    info->crcs[info->unit_count] = unit_crc(&info->data_id, index, info->unit_count, NULL, 0);
    info->unit_count++;
  }
  if (info->unit_count != g.stripe_count || info->len != stripe_chunk_len(&g, index))
    return ERR_NO_CHUNK;

  struct chunk_digest digest;
  int err = chunk_digest_begin(&digest, &info->data_id, index);
  if (err < 0) return err;
  for (uint64_t i = 0; i < info->unit_count; i++)
    chunk_digest_unit(&digest, info->crcs[i], chunk_unit_len(info, i));
  chunk_digest_end(&digest, &info->digest);
  return id128_eq(&info->digest, &row->digests[index]) ? 0 : ERR_CORRUPT;
}

static int stage_seal(struct drive *d, struct stage *stage, const struct peer_request *req,
                      const struct row *row) {
  int err = stage_complete(stage, row);
  if (err < 0) return err;
  struct byte_writer w = {.max = CHUNK_TRAILER_BYTES_MAX};
  chunk_trailer_put(&w, &stage->info, &req->bucket, req->key);
  if (w.failed) {
    byte_writer_free(&w);
    return -ENOMEM;
  }
  struct iovec iov = {w.data, w.len};
  uint64_t offset = CHUNK_HEADER_BYTES + stage->info.len;
  err = d->store->ops->file_write(stage->file, &iov, 1, offset);
  byte_writer_free(&w);
  if (err == 0) err = d->store->ops->file_sync(stage->file);
  if (err < 0) return drive_store_err(d, "syncing a chunk file", err);
  stage->state = STAGE_SEALED;
  return 0;
}

int drive_seal(struct drive *d, const struct peer_request *req) {
  struct row row;
  if (drive_failed(d)) return ERR_DRIVE_FAILED;
  if (req->unit_count > 0) return 0;
  int err = row_decode(req->row, &req->bucket, req->key, &row);
  if (err < 0) return err;
  if (!row_has_data(&row)) return 0;
  struct stage *stage = stage_hold(&d->stages, &row.data_id, req->slot);
  if (!stage) return 0; /* the batch looks whether the chunk stands here already */
  if (stage->state != STAGE_SEALED) err = stage_seal(d, stage, req, &row);
  if (err < 0 && err != ERR_NO_CHUNK && err != -ENOMEM)
    stage_end(&d->stages, d->store, stage, true);
  else
    stage_release(&d->stages, d->store, stage);
  return err;
}
