/* fake_drive.h: one drive in memory, obeying the node rules of PROTOCOL.md 4 with no disk at all.
 *
 * Synchronous: fake_peer.c brings requests here and takes replies away. Rows, C flags, promises,
 * floors, stages, whole chunks, bucket states and the heal queue survive anything the peer side
 * does; only stages die with fake_drive_crash. */
#ifndef KOFN_TESTS_OBJECT_FAKE_DRIVE_H
#define KOFN_TESTS_OBJECT_FAKE_DRIVE_H

#include "storage/object/objects.h"
#include "tests/unit/object/fake_env.h"

#define FAKE_TRASH_MS 60000 /* how long a superseded chunk can still be fetched */

struct fake_row {
  struct list link; /* of its key, newest first */
  struct version ver;
  struct id128 op_id, data_id;
  uint8_t *bytes;
  size_t len;
  bool chosen, has_data, corrupt;
  uint64_t accepted_ms;
};

struct fake_key {
  struct list link; /* by bucket, then by key */
  struct id128 bucket;
  uint8_t *key;
  size_t len;
  unsigned pool, partition;
  struct version promised;
  struct list rows;
};

struct fake_unit {
  uint8_t *data;
  uint32_t len, crc;
};

/* A stage, and later a whole chunk. */
struct fake_blob {
  struct list link;
  struct id128 data_id;
  unsigned slot;
  struct profile profile;
  struct fake_unit *units;
  unsigned unit_count;
  bool whole, is_inline;
  uint64_t trash_ms; /* 0: not in the trash */
};

struct fake_bucket {
  struct list link;
  struct id128 bucket;
  uint8_t state;
  struct version ver;
};

struct fake_heal {
  struct list link;
  struct id128 bucket;
  uint8_t *key;
  size_t len;
  struct version ver;
  uint32_t missing;
  unsigned pool, partition;
};

struct fake_drive {
  struct fake_bed *bed;
  unsigned index;
  uint32_t epoch;
  uint64_t inline_max_bytes;
  bool full; /* refuses new data: ERR_NO_SPACE */
  struct list keys, blobs, buckets, heals;
  struct version *floors[MAP_POOLS_MAX]; /* by partition; made when first raised */
};

void fake_drive_open(struct fake_drive *d, struct fake_bed *bed, unsigned index);
void fake_drive_close(struct fake_drive *d);
/* Executes one request: everything but the way there and back. FETCH writes into req->units. */
void fake_drive_serve(struct fake_drive *d, struct peer_request *req, struct peer_reply *reply);

/* ---- what a test may do to it ---- */
/* Stages are gone, as after a lost connection. */
void fake_drive_crash(struct fake_drive *d);
void fake_drive_floor(struct fake_drive *d, unsigned pool, unsigned partition,
                      const struct version *floor);
/* All rows of the key give ERR_CORRUPT from now on. */
void fake_drive_corrupt_rows(struct fake_drive *d, const struct id128 *bucket, struct slice key);
/* Flips a byte in unit `unit` of a chunk; false where the drive has no such unit or it is empty. */
bool fake_drive_corrupt_unit(struct fake_drive *d, const struct id128 *data_id, uint64_t unit);
/* The chunk is gone, its rows stay (CHUNK_MISSING). */
bool fake_drive_drop_chunk(struct fake_drive *d, const struct id128 *data_id);
/* Forgets one row, as a drive that never saw its ACCEPT. */
bool fake_drive_forget_row(struct fake_drive *d, const struct id128 *bucket, struct slice key,
                           const struct version *ver);
/* Takes away the C flag. */
bool fake_drive_unflag(struct fake_drive *d, const struct id128 *bucket, struct slice key,
                       const struct version *ver);

/* ---- what a test may see ---- */
struct fake_key *fake_drive_key(struct fake_drive *d, const struct id128 *bucket, struct slice key);
/* The newest row of a key, or NULL. */
struct fake_row *fake_drive_newest(struct fake_drive *d, const struct id128 *bucket,
                                   struct slice key);
struct fake_row *fake_drive_row(struct fake_drive *d, const struct id128 *bucket, struct slice key,
                                const struct version *ver);
unsigned fake_drive_row_count(struct fake_drive *d);
unsigned fake_drive_stage_count(struct fake_drive *d);
/* Whole chunks, those in the trash not counted. */
unsigned fake_drive_chunk_count(struct fake_drive *d);
bool fake_drive_has_chunk(struct fake_drive *d, const struct id128 *data_id);
/* The heal queue's missing slots for this version; 0 where it is not queued. */
uint32_t fake_drive_heal(struct fake_drive *d, const struct id128 *bucket, struct slice key,
                         const struct version *ver);

#endif
