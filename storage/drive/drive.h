/* drive.h: one drive: its format on disk, and the node rules of PROTOCOL.md 4 to 7.
 *
 * Synchronous and free of libuv. Reads may run on any number of threads at once; stages of
 * different chunks too; mutations run in batches from one thread (the writer lane):
 * drive_batch_begin, drive_batch_apply..., drive_batch_commit. The rules stand above `struct store`
 * (store.h: a key-value transaction and chunk files), of which this folder has the real one (LMDB
 * and files) and the simulator another. */
#ifndef KOFN_STORAGE_DRIVE_DRIVE_H
#define KOFN_STORAGE_DRIVE_DRIVE_H

#include "codec/digest.h"
#include "storage/object/peer.h"

#define DRIVE_BATCH_OPS_MAX 256

enum drive_state {
  DRIVE_EMPTY,     /* an empty (or absent-but-creatable: no) directory */
  DRIVE_FORMATTED, /* carries drive.id */
  DRIVE_FOREIGN,   /* not empty and not ours */
};

/* What drive.id and the sys table say. Strings are inside. */
struct drive_identity {
  struct id128 drive_id, cluster_id;
  char cluster_name[SETTINGS_NAME_BYTES_MAX + 1];
  char host_id[SETTINGS_NAME_BYTES_MAX + 1];
  char drive_name[SETTINGS_PATH_BYTES_MAX + 1]; /* stable name "host/drive" */
  uint32_t epoch;
  uint8_t map_digest[SHA256_LEN];
  uint8_t table_digest[SHA256_LEN];
  uint64_t boot_counter;
  uint64_t boot_nonce; /* random for each boot, not stored: a restored snapshot counts the same
                        * boots again */
};

struct drive_error {
  char text[1536]; /* a sentence that names the directory, what is wrong and what to do */
};

/* Looks, changes nothing (an interrupted format, without drive.id, counts as EMPTY). ERR_CONFIG
 * with text: missing, not a directory, EACCES (names the uid and the chown to run). *identity is
 * filled when FORMATTED (boot_counter 0). */
_must_check_ int drive_probe(const char *path, enum drive_state *ret_state,
                             struct drive_identity *ret_identity, struct drive_error *ret_error);

/* Formats an EMPTY directory: chunk directories, index with sys records, then drive.id, every one
 * synced, drive.id last. identity: all but boot_counter. canonical and table are stored whole. */
_must_check_ int drive_format(const char *path, const struct drive_identity *identity,
                              const char *canonical, struct slice table, uint64_t index_map_bytes,
                              struct drive_error *ret_error);

struct drive;

struct drive_options {
  const char *path;
  uint64_t index_map_bytes, reserve_bytes, inline_max_bytes, trash_delay_ms;
  uint64_t (*wall_ms)(void); /* NULL: the system's clock */
  /* Compares what the drive says of itself (identity with the boot counter of this open, membership
   * text, slot table) with what the caller expects. An error ends the open, and nothing on the
   * drive has been changed. NULL: whatever stands there is right. */
  int (*check)(void *arg, const struct drive *d);
  void *check_arg;
};

/* Locks the directory (ERR_BUSY with text naming the other process where known), opens index and
 * files, has it checked, sweeps files that no row names, increments the boot counter durably.
 * ERR_DRIVE_FAILED: a sync or the index's map failed: the drive is not to be trusted again. */
_must_check_ int drive_open(const struct drive_options *opt, struct drive **ret_drive,
                            struct drive_error *ret_error);
/* The last write: marks the drive as cleanly closed. Whoever has to remember a failure asks
 * drive_failed() behind it; drive_close does it otherwise. */
void drive_finish(struct drive *d);
void drive_close(struct drive *d);
const struct drive_identity *drive_identity_of(const struct drive *d);
/* The stored membership text and slot table. Borrowed. */
const char *drive_canonical(const struct drive *d);
struct slice drive_table(const struct drive *d);

/* READ, FETCH, LIST, HEAL_LIST, UNDECIDED: any thread. Fills reply (err included). */
void drive_read(struct drive *d, struct peer_request *req, struct peer_reply *reply);
/* STAGE and DROP: any thread, one at a time per (data_id, slot), in order of unit_first. */
void drive_stage(struct drive *d, const struct peer_request *req, struct peer_reply *reply);
/* First half of ACCEPT, on a data lane: finishes the staged chunk file (trailer, digest against the
 * row's, fdatasync). 0 or the error to reply. Nothing to do for inline and empty ones. */
int drive_seal(struct drive *d, const struct peer_request *req);

/* Writer lane. Replies may be sent only after drive_batch_commit returned 0. Order inside:
 * directories that gained a name are synced, then the transaction is committed with a full sync. An
 * error of commit or any sync fails the drive for good. */
_must_check_ int drive_batch_begin(struct drive *d);
void drive_batch_apply(struct drive *d, const struct peer_request *req, struct peer_reply *reply);
_must_check_ int drive_batch_commit(struct drive *d);
/* Between batches: drops what durable commits superseded, unlinks trash that is due, at most
 * `budget` items. Returns milliseconds until it wants to be called again (UINT64_MAX: nothing to
 * do). */
uint64_t drive_housekeep(struct drive *d, unsigned budget);

bool drive_failed(const struct drive *d);
/* Words for the log and status; "" while healthy. Static to the drive. */
const char *drive_failure(const struct drive *d);

/* Plain counters, readable from any thread (relaxed atomics inside). */
struct drive_stats {
  uint64_t rows, undecided, heal_entries;
  uint64_t batches, batch_ops, chunk_files_written, bytes_written, bytes_read;
  uint64_t orphans_swept, trash_waiting, stages_open;
  uint64_t free_bytes, total_bytes;
  bool full;
};
void drive_stats_get(struct drive *d, struct drive_stats *ret);

#endif
