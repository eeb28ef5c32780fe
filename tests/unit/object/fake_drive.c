/* fake_drive.c: the node rules on lists in memory. See fake_drive.h. */
#include "tests/unit/object/fake_drive.h"

#include <stdlib.h>

#include "codec/crc32c.h"
#include "codec/digest.h"
#include "config/err.h"
#include "tests/unit/object/fake_drive_pages.h"

static void *copy_of(const void *data, size_t len) {
  void *p = malloc(len ? len : 1);
  FAKE_CHECK(p);
  if (len) memcpy(p, data, len);
  return p;
}

static int key_order(const struct fake_key *k, const struct id128 *bucket, struct slice key) {
  int c = memcmp(k->bucket.bytes, bucket->bytes, sizeof bucket->bytes);
  return c != 0 ? c : slice_cmp(slice_of(k->key, k->len), key);
}

struct fake_key *fake_drive_key(struct fake_drive *d, const struct id128 *bucket,
                                struct slice key) {
  list_foreach(it, &d->keys) {
    struct fake_key *k = container_of(it, struct fake_key, link);
    if (key_order(k, bucket, key) == 0) return k;
  }
  return NULL;
}

static struct fake_key *key_make(struct fake_drive *d, const struct peer_request *req) {
  struct fake_key *k = fake_drive_key(d, &req->bucket, req->key);
  if (k) return k;
  k = calloc(1, sizeof *k);
  FAKE_CHECK(k);
  k->bucket = req->bucket;
  k->key = copy_of(req->key.data, req->key.len);
  k->len = req->key.len;
  k->pool = req->pool;
  k->partition = req->partition;
  list_init(&k->rows);
  struct list *at = d->keys.next;
  while (at != &d->keys &&
         key_order(container_of(at, struct fake_key, link), &req->bucket, req->key) < 0)
    at = at->next;
  list_push_back(at, &k->link);
  return k;
}

struct fake_row *fake_drive_newest(struct fake_drive *d, const struct id128 *bucket,
                                   struct slice key) {
  struct fake_key *k = fake_drive_key(d, bucket, key);
  return k && !list_empty(&k->rows) ? container_of(k->rows.next, struct fake_row, link) : NULL;
}

struct fake_row *fake_drive_row(struct fake_drive *d, const struct id128 *bucket, struct slice key,
                                const struct version *ver) {
  struct fake_key *k = fake_drive_key(d, bucket, key);
  if (!k) return NULL;
  list_foreach(it, &k->rows) {
    struct fake_row *row = container_of(it, struct fake_row, link);
    if (version_cmp(&row->ver, ver) == 0) return row;
  }
  return NULL;
}

static struct fake_blob *blob_find(struct fake_drive *d, const struct id128 *data_id, bool whole) {
  list_foreach(it, &d->blobs) {
    struct fake_blob *b = container_of(it, struct fake_blob, link);
    if (id128_eq(&b->data_id, data_id) && b->whole == whole) return b;
  }
  return NULL;
}

struct fake_blob *fake_drive_chunk(struct fake_drive *d, const struct id128 *data_id) {
  return blob_find(d, data_id, true);
}

static void blob_free(struct fake_blob *b) {
  if (!b) return;
  list_remove(&b->link);
  for (unsigned i = 0; i < b->unit_count; i++) free(b->units[i].data);
  free(b->units);
  free(b);
}

static struct fake_blob *blob_make(struct fake_drive *d, const struct peer_request *req,
                                   const struct id128 *data_id, const struct profile *profile) {
  struct fake_blob *b = calloc(1, sizeof *b);
  FAKE_CHECK(b);
  b->data_id = *data_id;
  b->slot = req->slot;
  b->profile = *profile;
  list_push_back(&d->blobs, &b->link);
  return b;
}

static int blob_append(struct fake_blob *b, const struct peer_request *req) {
  if (req->unit_count > PEER_UNITS_MAX || req->unit_first != b->unit_count) return ERR_PROTOCOL;
  for (unsigned i = 0; i < req->unit_count; i++) {
    const struct peer_unit *u = &req->units[i];
    if (u->len > b->profile.unit_bytes) return ERR_PROTOCOL;
    if (unit_crc(&b->data_id, b->slot, b->unit_count, u->data, u->len) != u->crc)
      return ERR_CORRUPT;
    b->units = realloc(b->units, (b->unit_count + 1) * sizeof *b->units);
    FAKE_CHECK(b->units);
    b->units[b->unit_count++] = (struct fake_unit){copy_of(u->data, u->len), u->len, u->crc};
  }
  return 0;
}

static void row_free(struct fake_row *row) {
  list_remove(&row->link);
  free(row->bytes);
  free(row);
}

static bool data_is_named(struct fake_drive *d, const struct id128 *data_id) {
  list_foreach(it, &d->keys) {
    struct fake_key *k = container_of(it, struct fake_key, link);
    list_foreach(at, &k->rows) {
      struct fake_row *row = container_of(at, struct fake_row, link);
      if (row->has_data && id128_eq(&row->data_id, data_id)) return true;
    }
  }
  return false;
}

/* Drops a row; its chunk goes to the trash unless another row names it. */
static void row_drop(struct fake_drive *d, struct fake_row *row) {
  struct id128 data_id = row->data_id;
  bool has_data = row->has_data;
  row_free(row);
  struct fake_blob *b = has_data ? blob_find(d, &data_id, true) : NULL;
  if (b && !data_is_named(d, &data_id)) b->trash_ms = d->bed->now_ms + FAKE_TRASH_MS;
}

static void trash_sweep(struct fake_drive *d) {
  list_foreach_safe(it, &d->blobs) {
    struct fake_blob *b = container_of(it, struct fake_blob, link);
    if (b->trash_ms && b->trash_ms <= d->bed->now_ms) blob_free(b);
  }
}

static struct version floor_of(const struct fake_drive *d, const struct peer_request *req) {
  FAKE_CHECK(req->pool < MAP_POOLS_MAX && req->partition < PARTITION_COUNT);
  const struct version *floors = d->floors[req->pool];
  return floors ? floors[req->partition] : (struct version){0};
}

static bool bucket_refuses(struct fake_drive *d, const struct id128 *bucket) {
  list_foreach(it, &d->buckets) {
    struct fake_bucket *b = container_of(it, struct fake_bucket, link);
    if (id128_eq(&b->bucket, bucket)) return b->state != BUCKET_ACTIVE;
  }
  return false;
}

static bool too_far_ahead(struct fake_drive *d, const struct version *ver) {
  uint64_t wall = env_wall_ms(&d->bed->env);
  list_foreach(it, &d->keys) {
    struct fake_key *k = container_of(it, struct fake_key, link);
    if (list_empty(&k->rows)) continue;
    struct fake_row *row = container_of(k->rows.next, struct fake_row, link);
    wall = MAX(wall, row->ver.hlc >> VERSION_HLC_SHIFT);
  }
  return (ver->hlc >> VERSION_HLC_SHIFT) > wall + VERSION_FUTURE_MS_MAX;
}

static void serve_stage(struct fake_drive *d, const struct peer_request *req,
                        struct peer_reply *reply) {
  struct fake_blob *b = blob_find(d, &req->data_id, false);
  if (d->full) {
    reply->err = ERR_NO_SPACE;
    return;
  }
  if (!b) b = blob_make(d, req, &req->data_id, &req->profile);
  if (b->slot != req->slot)
    reply->err = ERR_PROTOCOL;
  else
    reply->err = blob_append(b, req);
}

/* The chunk's digest must stand in the row's digest vector, its units must be the geometry's. */
static int chunk_check(const struct fake_blob *b, const struct row *row) {
  struct stripe_geometry g = row_geometry(row);
  struct chunk_digest digest;
  struct id128 got;
  if (b->unit_count != g.stripe_count) return ERR_CORRUPT;
  if (chunk_digest_begin(&digest, &b->data_id, b->slot) < 0) return ERR_CORRUPT;
  bool lengths_fit = true;
  for (unsigned i = 0; i < b->unit_count; i++) {
    lengths_fit = lengths_fit && b->units[i].len == stripe_unit_len(&g, i, b->slot);
    chunk_digest_unit(&digest, b->units[i].crc, b->units[i].len);
  }
  chunk_digest_end(&digest, &got);
  return lengths_fit && id128_eq(&got, &row->digests[b->slot]) ? 0 : ERR_CORRUPT;
}

/* Makes the row's chunk whole from what the ACCEPT carries or what was staged. */
static int accept_chunk(struct fake_drive *d, const struct peer_request *req,
                        const struct row *row) {
  struct fake_blob *stage = blob_find(d, &row->data_id, false);
  struct fake_blob *whole = blob_find(d, &row->data_id, true);
  if (whole) {
    whole->trash_ms = 0;
    blob_free(stage);
    return whole->slot == req->slot ? 0 : ERR_PROTOCOL;
  }
  if (req->unit_count > 0) {
    blob_free(stage);
    stage = blob_make(d, req, &row->data_id, &row->profile);
    stage->is_inline = true;
    int err = blob_append(stage, req);
    if (err < 0) {
      blob_free(stage);
      return err;
    }
  }
  if (!stage) return ERR_NO_CHUNK;
  int err = stage->slot == req->slot ? chunk_check(stage, row) : ERR_PROTOCOL;
  if (err < 0) {
    blob_free(stage);
    return err;
  }
  stage->whole = true;
  return 0;
}

static void refuse(struct peer_reply *reply, int err, const struct version *highest) {
  reply->err = err;
  reply->ver = *highest;
}

static void row_store(struct fake_drive *d, struct fake_key *k, const struct peer_request *req,
                      const struct row *row) {
  struct fake_row *r = calloc(1, sizeof *r);
  FAKE_CHECK(r);
  r->ver = row->ver;
  r->op_id = row->op_id;
  r->data_id = row->data_id;
  r->has_data = row_has_data(row);
  r->bytes = copy_of(req->row.data, req->row.len);
  r->len = req->row.len;
  r->accepted_ms = d->bed->now_ms;
  struct list *at = k->rows.next;
  while (at != &k->rows &&
         version_cmp(&container_of(at, struct fake_row, link)->ver, &row->ver) > 0)
    at = at->next;
  list_push_back(at, &r->link);
}

/* The refusals of ACCEPT; 0: go on, 1: acked already. */
static int accept_check(struct fake_drive *d, const struct peer_request *req, const struct row *row,
                        struct peer_reply *reply) {
  struct version floor = floor_of(d, req);
  struct fake_row *same = fake_drive_row(d, &req->bucket, req->key, &row->ver);
  struct fake_row *newest = fake_drive_newest(d, &req->bucket, req->key);
  struct fake_key *k = fake_drive_key(d, &req->bucket, req->key);
  if (bucket_refuses(d, &req->bucket)) return ERR_BUCKET_DELETING;
  if (same && (!id128_eq(&same->op_id, &row->op_id) || !id128_eq(&same->data_id, &row->data_id)))
    return ERR_VER_REUSED;
  if (same) return 0; /* idempotent: it was acked before, whatever was promised since */
  if (version_cmp(&row->ver, &floor) <= 0) {
    refuse(reply, ERR_FLOOR, &floor);
    return ERR_FLOOR;
  }
  if (k && version_cmp(&row->ver, &k->promised) < 0) {
    struct version high = k->promised;
    if (newest) version_raise(&high, &newest->ver);
    refuse(reply, ERR_PROMISED, &high);
    return ERR_PROMISED;
  }
  if (too_far_ahead(d, &row->ver)) return ERR_CLOCK;
  if (k) {
    list_foreach(it, &k->rows) {
      struct fake_row *r = container_of(it, struct fake_row, link);
      if (!r->chosen || version_cmp(&r->ver, &row->ver) <= 0) continue;
      reply->flags |= PEER_SUPERSEDED;
      return 1;
    }
  }
  if (d->full && row_has_data(row)) return ERR_NO_SPACE;
  return 0;
}

static void serve_accept(struct fake_drive *d, const struct peer_request *req,
                         struct peer_reply *reply) {
  struct row row;
  int err = row_decode(req->row, &req->bucket, req->key, &row);
  FAKE_CHECK(err == 0); /* the gateway encodes rows that decode */
  FAKE_CHECK(req->row.len <= ROW_BYTES_MAX);
  err = accept_check(d, req, &row, reply);
  if (err == 1) {
    blob_free(blob_find(d, &row.data_id, false));
    return;
  }
  if (err == 0 && row_has_data(&row)) err = accept_chunk(d, req, &row);
  reply->err = err;
  if (err < 0) return;
  struct fake_key *k = key_make(d, req);
  if (!fake_drive_row(d, &req->bucket, req->key, &row.ver)) row_store(d, k, req, &row);
}

static void serve_promise(struct fake_drive *d, const struct peer_request *req,
                          struct peer_reply *reply) {
  struct version floor = floor_of(d, req);
  if (bucket_refuses(d, &req->bucket)) {
    reply->err = ERR_BUCKET_DELETING;
    return;
  }
  if (version_cmp(&req->ver, &floor) <= 0) {
    refuse(reply, ERR_FLOOR, &floor);
    return;
  }
  if (too_far_ahead(d, &req->ver)) {
    reply->err = ERR_CLOCK;
    return;
  }
  struct fake_row *newest = fake_drive_newest(d, &req->bucket, req->key);
  struct fake_key *k = fake_drive_key(d, &req->bucket, req->key);
  struct version high = k ? k->promised : (struct version){0};
  if (newest) version_raise(&high, &newest->ver);
  if (version_cmp(&req->ver, &high) <= 0) {
    refuse(reply, ERR_PROMISED, &high);
    return;
  }
  key_make(d, req)->promised = req->ver;
  fake_drive_read_page(d, req, reply);
}

static void heal_add(struct fake_drive *d, const struct peer_request *req) {
  list_foreach(it, &d->heals) {
    struct fake_heal *h = container_of(it, struct fake_heal, link);
    if (!id128_eq(&h->bucket, &req->bucket) || version_cmp(&h->ver, &req->ver) != 0 ||
        !slice_eq(slice_of(h->key, h->len), req->key))
      continue;
    h->missing |= req->missing;
    return;
  }
  struct fake_heal *h = calloc(1, sizeof *h);
  FAKE_CHECK(h);
  h->bucket = req->bucket;
  h->key = copy_of(req->key.data, req->key.len);
  h->len = req->key.len;
  h->ver = req->ver;
  h->missing = req->missing;
  h->pool = req->pool;
  h->partition = req->partition;
  list_push_back(&d->heals, &h->link);
}

static void serve_commit(struct fake_drive *d, const struct peer_request *req) {
  struct fake_row *row = fake_drive_row(d, &req->bucket, req->key, &req->ver);
  if (!row) return;
  struct fake_key *k = fake_drive_key(d, &req->bucket, req->key);
  row->chosen = true;
  if (req->missing) heal_add(d, req);
  list_foreach_safe(it, &k->rows) {
    struct fake_row *r = container_of(it, struct fake_row, link);
    if (version_cmp(&r->ver, &req->ver) < 0) row_drop(d, r);
  }
}

static void serve_discard(struct fake_drive *d, const struct peer_request *req) {
  struct fake_key *k = fake_drive_key(d, &req->bucket, req->key);
  struct fake_row *row = fake_drive_row(d, &req->bucket, req->key, &req->ver);
  if (row && !row->chosen && version_cmp(&k->promised, &row->ver) > 0) row_drop(d, row);
}

static void serve_bucket(struct fake_drive *d, const struct peer_request *req,
                         struct peer_reply *reply) {
  struct fake_bucket *found = NULL;
  list_foreach(it, &d->buckets) {
    struct fake_bucket *b = container_of(it, struct fake_bucket, link);
    if (id128_eq(&b->bucket, &req->bucket)) found = b;
  }
  if (found && version_cmp(&found->ver, &req->ver) > 0) {
    refuse(reply, ERR_PROMISED, &found->ver);
    return;
  }
  if (!found) {
    found = calloc(1, sizeof *found);
    FAKE_CHECK(found);
    found->bucket = req->bucket;
    list_push_back(&d->buckets, &found->link);
  }
  found->state = req->bucket_state;
  found->ver = req->ver;
}

static void serve_fetch(struct fake_drive *d, struct peer_request *req, struct peer_reply *reply) {
  struct fake_blob *b = fake_drive_chunk(d, &req->data_id);
  if (!b || b->slot != req->slot) {
    reply->err = ERR_NO_CHUNK;
    return;
  }
  if (req->unit_count == 0 || req->unit_count > PEER_UNITS_MAX ||
      req->unit_first + req->unit_count > b->unit_count) {
    reply->err = ERR_PROTOCOL;
    return;
  }
  for (unsigned i = 0; i < req->unit_count; i++) {
    const struct fake_unit *u = &b->units[req->unit_first + i];
    if (req->units[i].len < u->len) {
      reply->err = ERR_PROTOCOL;
      return;
    }
    if (u->len) memcpy(req->units[i].data, u->data, u->len);
    req->units[i].len = u->len;
    req->units[i].crc = u->crc;
  }
}

void fake_drive_serve(struct fake_drive *d, struct peer_request *req, struct peer_reply *reply) {
  trash_sweep(d);
  if (req->epoch < d->epoch && req->verb != PEER_STAGE && req->verb != PEER_DROP &&
      req->verb != PEER_FETCH && req->verb != PEER_HEAL_LIST && req->verb != PEER_UNDECIDED) {
    reply->err = ERR_STALE_EPOCH;
    return;
  }
  switch (req->verb) {
    case PEER_READ:
      fake_drive_read_page(d, req, reply);
      return;
    case PEER_STAGE:
      serve_stage(d, req, reply);
      return;
    case PEER_DROP:
      blob_free(blob_find(d, &req->data_id, false));
      return;
    case PEER_ACCEPT:
      serve_accept(d, req, reply);
      return;
    case PEER_PROMISE:
      serve_promise(d, req, reply);
      return;
    case PEER_COMMIT:
      serve_commit(d, req);
      return;
    case PEER_DISCARD:
      serve_discard(d, req);
      return;
    case PEER_FETCH:
      serve_fetch(d, req, reply);
      return;
    case PEER_LIST:
      fake_drive_list_page(d, req, reply);
      return;
    case PEER_BUCKET:
      serve_bucket(d, req, reply);
      return;
    case PEER_HEAL_LIST:
      fake_drive_heal_page(d, req, reply);
      return;
    case PEER_UNDECIDED:
      fake_drive_undecided_page(d, req, reply);
      return;
    default:
      FAKE_CHECK(!"a verb of enum peer_verb");
  }
}

void fake_drive_open(struct fake_drive *d, struct fake_bed *bed, unsigned index) {
  memset(d, 0, sizeof *d);
  d->bed = bed;
  d->index = index;
  d->epoch = PLACEMENT_EPOCH_FIRST;
  list_init(&d->keys);
  list_init(&d->blobs);
  list_init(&d->buckets);
  list_init(&d->heals);
}

void fake_drive_close(struct fake_drive *d) {
  list_foreach_safe(it, &d->keys) {
    struct fake_key *k = container_of(it, struct fake_key, link);
    list_foreach_safe(at, &k->rows) row_free(container_of(at, struct fake_row, link));
    free(k->key);
    free(k);
  }
  list_foreach_safe(it, &d->blobs) blob_free(container_of(it, struct fake_blob, link));
  list_foreach_safe(it, &d->buckets) free(container_of(it, struct fake_bucket, link));
  list_foreach_safe(it, &d->heals) {
    struct fake_heal *h = container_of(it, struct fake_heal, link);
    free(h->key);
    free(h);
  }
  for (unsigned i = 0; i < MAP_POOLS_MAX; i++) free(d->floors[i]);
}

void fake_drive_crash(struct fake_drive *d) {
  list_foreach_safe(it, &d->blobs) {
    struct fake_blob *b = container_of(it, struct fake_blob, link);
    if (!b->whole) blob_free(b);
  }
}

void fake_drive_floor(struct fake_drive *d, unsigned pool, unsigned partition,
                      const struct version *floor) {
  if (!d->floors[pool]) d->floors[pool] = calloc(PARTITION_COUNT, sizeof *d->floors[pool]);
  FAKE_CHECK(d->floors[pool]);
  version_raise(&d->floors[pool][partition], floor);
}

void fake_drive_corrupt_rows(struct fake_drive *d, const struct id128 *bucket, struct slice key) {
  struct fake_key *k = fake_drive_key(d, bucket, key);
  FAKE_CHECK(k);
  list_foreach(it, &k->rows) container_of(it, struct fake_row, link)->corrupt = true;
}

bool fake_drive_corrupt_unit(struct fake_drive *d, const struct id128 *data_id, uint64_t unit) {
  struct fake_blob *b = fake_drive_chunk(d, data_id);
  if (!b || unit >= b->unit_count || b->units[unit].len == 0) return false;
  b->units[unit].data[b->units[unit].len / 2] ^= 0x40;
  return true;
}

bool fake_drive_drop_chunk(struct fake_drive *d, const struct id128 *data_id) {
  struct fake_blob *b = fake_drive_chunk(d, data_id);
  blob_free(b);
  return b != NULL;
}

bool fake_drive_forget_row(struct fake_drive *d, const struct id128 *bucket, struct slice key,
                           const struct version *ver) {
  struct fake_row *row = fake_drive_row(d, bucket, key, ver);
  if (row) row_drop(d, row);
  return row != NULL;
}

bool fake_drive_unflag(struct fake_drive *d, const struct id128 *bucket, struct slice key,
                       const struct version *ver) {
  struct fake_row *row = fake_drive_row(d, bucket, key, ver);
  if (row) row->chosen = false;
  return row != NULL;
}

unsigned fake_drive_row_count(struct fake_drive *d) {
  unsigned count = 0;
  list_foreach(it, &d->keys) {
    struct fake_key *k = container_of(it, struct fake_key, link);
    list_foreach(at, &k->rows) count++;
  }
  return count;
}

static unsigned blob_count(struct fake_drive *d, bool whole) {
  unsigned count = 0;
  list_foreach(it, &d->blobs) {
    struct fake_blob *b = container_of(it, struct fake_blob, link);
    count += b->whole == whole && b->trash_ms == 0;
  }
  return count;
}

unsigned fake_drive_stage_count(struct fake_drive *d) {
  return blob_count(d, false);
}

unsigned fake_drive_chunk_count(struct fake_drive *d) {
  return blob_count(d, true);
}

bool fake_drive_has_chunk(struct fake_drive *d, const struct id128 *data_id) {
  return fake_drive_chunk(d, data_id) != NULL;
}

uint32_t fake_drive_heal(struct fake_drive *d, const struct id128 *bucket, struct slice key,
                         const struct version *ver) {
  list_foreach(it, &d->heals) {
    struct fake_heal *h = container_of(it, struct fake_heal, link);
    if (id128_eq(&h->bucket, bucket) && version_cmp(&h->ver, ver) == 0 &&
        slice_eq(slice_of(h->key, h->len), key))
      return h->missing;
  }
  return 0;
}
