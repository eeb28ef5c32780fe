/* drive_bed.c: see drive_bed.h. */
#include "tests/unit/drive/drive_bed.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codec/crc32c.h"
#include "config/err.h"

_Atomic uint64_t bed_now_ms = BED_NOW_MS;

void bed_check(bool ok, const char *what, const char *file, int line) {
  if (ok) return;
  fprintf(stderr, "%s:%d: %s\n", file, line, what);
  abort();
}

uint64_t bed_wall(void) {
  return atomic_load(&bed_now_ms);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) {
  return remove(path);
}

void bed_remove(const char *path) {
  (void)nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static const char *copy_from, *copy_to;

static int copy_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) {
  char to[512];
  snprintf(to, sizeof to, "%s%s", copy_to, path + strlen(copy_from));
  if (type == FTW_D) return mkdir(to, 0750);
  int in = open(path, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0640);
  BED_CHECK(in >= 0 && out >= 0);
  char buf[65536];
  for (ssize_t n; (n = read(in, buf, sizeof buf)) > 0;) BED_CHECK(write(out, buf, (size_t)n) == n);
  close(in);
  close(out);
  return 0;
}

void bed_copy(const char *from, const char *to) {
  copy_from = from;
  copy_to = to;
  BED_CHECK(nftw(from, copy_entry, 16, FTW_PHYS) == 0);
}

struct id128 bed_id(unsigned n) {
  struct id128 id;
  for (unsigned i = 0; i < 16; i++) id.bytes[i] = (uint8_t)(n * 37 + i * 11 + (n >> 8) + 1);
  store_be32(id.bytes + 4, n * 2654435761u);
  return id;
}

struct version bed_ver(uint64_t n) {
  return (struct version){(BED_NOW_MS + n) << VERSION_HLC_SHIFT, n * 7919 + 1};
}

struct drive_identity bed_identity(void) {
  struct drive_identity id = {.drive_id = bed_id(1000), .cluster_id = bed_id(1001), .epoch = 1};
  snprintf(id.cluster_name, sizeof id.cluster_name, "demo");
  snprintf(id.host_id, sizeof id.host_id, "n1");
  snprintf(id.drive_name, sizeof id.drive_name, "n1//data/d1");
  memset(id.map_digest, 0x11, SHA256_LEN);
  memset(id.table_digest, 0x22, SHA256_LEN);
  return id;
}

void bed_dir(struct bed *b) {
  *b = (struct bed){0};
  snprintf(b->path, sizeof b->path, "/tmp/kofn-drive-XXXXXX");
  BED_CHECK(mkdtemp(b->path));
  b->opt = (struct drive_options){.path = b->path,
                                  .index_map_bytes = BED_MAP_BYTES,
                                  .reserve_bytes = 1,
                                  .inline_max_bytes = 16384,
                                  .trash_delay_ms = BED_TRASH_MS,
                                  .wall_ms = bed_wall};
}

void bed_format(struct bed *b) {
  struct drive_error error;
  struct drive_identity id = bed_identity();
  bed_dir(b);
  BED_CHECK(
      drive_format(b->path, &id, "cluster demo\n", SLICE_LIT("slots"), BED_MAP_BYTES, &error) == 0);
}

static void bed_open_drive(struct bed *b) {
  struct drive_error error;
  int err = drive_open(&b->opt, &b->drive, &error);
  if (err < 0) fprintf(stderr, "%s\n", error.text);
  BED_CHECK(err == 0);
}

void bed_start(struct bed *b) {
  bed_format(b);
  bed_open_drive(b);
}

void bed_reopen(struct bed *b) {
  drive_close(TAKE(b->drive));
  bed_open_drive(b);
}

void bed_end(struct bed *b) {
  drive_close(TAKE(b->drive));
  bed_remove(b->path);
}

unsigned bed_files(const struct bed *b) {
  unsigned count = 0;
  for (unsigned i = 0; i < STORE_CHUNK_DIRS; i++) {
    char path[128];
    snprintf(path, sizeof path, "%s/data/%02x", b->path, i);
    DIR *dir = opendir(path);
    BED_CHECK(dir);
    for (struct dirent *e; (e = readdir(dir));)
      if (e->d_name[0] != '.') count++;
    closedir(dir);
  }
  return count;
}

/* ---- objects ---- */

static void object_chunk(struct bed_object *o) {
  struct stripe_geometry g = row_geometry(&o->row);
  uint64_t len = stripe_chunk_len(&g, BED_SLOT);
  struct chunk_digest digest;
  o->unit_count = g.stripe_count;
  o->chunk = malloc(len + 1);
  o->crcs = calloc(o->unit_count, sizeof o->crcs[0]);
  BED_CHECK(o->chunk && o->crcs);
  for (uint64_t i = 0; i < len; i++)
    o->chunk[i] = (uint8_t)(i * 131 + (i >> 8) * 17 + o->data_id.bytes[i & 15]);
  BED_CHECK(chunk_digest_begin(&digest, &o->data_id, BED_SLOT) == 0);
  uint64_t at = 0;
  for (uint64_t s = 0; s < g.stripe_count; s++) {
    uint32_t unit = stripe_unit_len(&g, s, BED_SLOT);
    o->crcs[s] = unit_crc(&o->data_id, BED_SLOT, s, o->chunk + at, unit);
    chunk_digest_unit(&digest, o->crcs[s], unit);
    at += unit;
  }
  chunk_digest_end(&digest, &o->row.digests[BED_SLOT]);
}

void bed_object(struct bed_object *o, const char *key, unsigned kind, uint64_t ver, uint64_t size,
                unsigned op, unsigned data) {
  *o = (struct bed_object){.bucket = bed_id(1)};
  snprintf(o->key, sizeof o->key, "%s", key);
  o->row = (struct row){.ver = bed_ver(ver),
                        .kind = (uint8_t)kind,
                        .op_id = bed_id(op),
                        .profile = {TECHNIQUE_REED_SOL_VAN, 4, 2, BED_UNIT_BYTES},
                        .mtime_ms = BED_NOW_MS,
                        .etag = slice_str("0123456789abcdef0123456789abcdef")};
  if (kind == ROW_PUT && size > 0) {
    o->row.size = size;
    o->data_id = o->row.data_id = bed_id(data);
    object_chunk(o);
  }
  struct attr attrs[] = {{SLICE_LIT("content-type"), SLICE_LIT("text/plain")}};
  BED_CHECK(row_encode(&o->row, attrs, 1, &o->bucket, slice_str(o->key), &o->bytes, &o->len) == 0);
}

void bed_object_free(struct bed_object *o) {
  free(o->bytes);
  free(o->chunk);
  free(o->crcs);
}

/* ---- requests ---- */

struct peer_request bed_request(enum peer_verb verb, const char *key) {
  struct peer_request req = {.verb = (uint8_t)verb, .slot = BED_SLOT, .epoch = BED_EPOCH};
  req.pool = 1;
  req.partition = 77;
  req.bucket = bed_id(1);
  req.key = slice_str(key);
  return req;
}

void bed_units(struct peer_request *req, const struct bed_object *o, uint64_t first,
               unsigned count) {
  struct stripe_geometry g = row_geometry(&o->row);
  req->data_id = o->data_id;
  req->profile = o->row.profile;
  req->unit_first = first;
  req->unit_count = count;
  for (unsigned i = 0; i < count; i++)
    req->units[i] =
        (struct peer_unit){o->chunk + (first + i) * BED_UNIT_BYTES,
                           stripe_unit_len(&g, first + i, BED_SLOT), o->crcs[first + i]};
}

struct peer_reply bed_apply(struct bed *b, const struct peer_request *req) {
  struct peer_reply reply = {.err = drive_batch_begin(b->drive)};
  if (reply.err < 0) return reply;
  drive_batch_apply(b->drive, req, &reply);
  int err = drive_batch_commit(b->drive);
  if (err < 0) reply.err = err;
  return reply;
}

struct peer_request bed_accept_request(const struct bed_object *o) {
  struct peer_request req = bed_request(PEER_ACCEPT, o->key);
  req.bucket = o->bucket;
  req.row = slice_of(o->bytes, o->len);
  if (o->unit_count > 0 && o->unit_count <= PEER_UNITS_MAX)
    bed_units(&req, o, 0, (unsigned)o->unit_count);
  return req;
}

struct peer_reply bed_accept(struct bed *b, const struct bed_object *o) {
  struct peer_request req = bed_accept_request(o);
  return bed_apply(b, &req);
}

int bed_stage(struct bed *b, const struct bed_object *o) {
  struct peer_reply reply = {0};
  for (uint64_t at = 0; at < o->unit_count && reply.err == 0; at += PEER_UNITS_MAX) {
    struct peer_request req = bed_request(PEER_STAGE, o->key);
    bed_units(&req, o, at, (unsigned)MIN(o->unit_count - at, (uint64_t)PEER_UNITS_MAX));
    drive_stage(b->drive, &req, &reply);
  }
  return reply.err;
}

struct peer_reply bed_accept_staged(struct bed *b, const struct bed_object *o) {
  struct peer_reply reply = {.err = bed_stage(b, o)};
  if (reply.err < 0) return reply;
  struct peer_request req = bed_accept_request(o);
  req.unit_count = 0;
  reply.err = drive_seal(b->drive, &req);
  return reply.err < 0 ? reply : bed_apply(b, &req);
}

void bed_commit(struct bed *b, const char *key, uint64_t ver, uint32_t missing) {
  struct peer_request req = bed_request(PEER_COMMIT, key);
  req.ver = bed_ver(ver);
  req.missing = missing;
  BED_CHECK(bed_apply(b, &req).err == 0);
}

struct peer_reply bed_promise(struct bed *b, const char *key, uint64_t ver) {
  struct peer_request req = bed_request(PEER_PROMISE, key);
  req.ver = bed_ver(ver);
  return bed_apply(b, &req);
}

void bed_housekeep(struct bed *b) {
  for (unsigned i = 0; i < 100 && drive_housekeep(b->drive, 256) == 0; i++) continue;
}

int bed_read(struct bed *b, const char *key, uint8_t flags, struct peer_rows *ret_rows,
             uint8_t **ret_body) {
  struct peer_request req = bed_request(PEER_READ, key);
  struct peer_reply reply;
  req.flags = flags;
  drive_read(b->drive, &req, &reply);
  *ret_body = reply.body;
  if (reply.err < 0) return reply.err;
  return peer_rows_decode(slice_of(reply.body, reply.body_len), &req.bucket, req.key, ret_rows);
}

int bed_fetch(struct bed *b, const struct bed_object *o) {
  static uint8_t room[PEER_UNITS_MAX][BED_UNIT_BYTES];
  for (uint64_t at = 0; at < o->unit_count; at += PEER_UNITS_MAX) {
    struct peer_request req = bed_request(PEER_FETCH, "");
    struct peer_reply reply;
    unsigned count = (unsigned)MIN(o->unit_count - at, (uint64_t)PEER_UNITS_MAX);
    bed_units(&req, o, at, count);
    for (unsigned i = 0; i < count; i++) {
      memset(room[i], 0xee, BED_UNIT_BYTES);
      req.units[i] = (struct peer_unit){.data = room[i], .len = BED_UNIT_BYTES};
    }
    drive_read(b->drive, &req, &reply);
    if (reply.err < 0) return reply.err;
    for (unsigned i = 0; i < count; i++) {
      const struct peer_unit *u = &req.units[i];
      BED_CHECK(u->crc == o->crcs[at + i]);
      BED_CHECK(unit_crc(&o->data_id, BED_SLOT, at + i, u->data, u->len) == u->crc);
      BED_CHECK(u->len == 0 || memcmp(u->data, o->chunk + (at + i) * BED_UNIT_BYTES, u->len) == 0);
    }
  }
  return 0;
}
