/* drive_internal.h: what the files of the drive's rules share. Nothing outside this folder (and its
 * tests) includes it.
 *
 * Who calls what: drive.c dispatches and keeps the batch; drive_accept.c, drive_rules.c the
 * mutations; drive_rows.c, drive_list.c the reads; drive_trash.c what goes when; stage.c and
 * chunk_cache.c the chunk files. */
#ifndef KOFN_STORAGE_DRIVE_DRIVE_INTERNAL_H
#define KOFN_STORAGE_DRIVE_DRIVE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "storage/drive/chunk_cache.h"
#include "storage/drive/chunk_file.h"
#include "storage/drive/drive.h"
#include "storage/drive/keys.h"
#include "storage/drive/stage.h"
#include "storage/drive/store.h"

#define DRIVE_PAGE_BODY_BYTES                                                            \
  (256u << 10)                    /* a LIST, HEAL_LIST or UNDECIDED page ends about here \
                                   */
#define DRIVE_PAGE_SCAN_MAX 16384 /* index entries that one page may look at */
#define DRIVE_DROPS_PER_BATCH 64  /* keys whose superseded rows go along with a batch */
#define DRIVE_EARLY_COMMITS 256   /* COMMITs remembered that overtook their ACCEPT */
#define DRIVE_FAILURE_BYTES_MAX 256

/* Names in STORE_SYS. */
#define SYS_IDENTITY "identity"
#define SYS_CANONICAL "canonical"
#define SYS_TABLE "table"
#define SYS_BOOT "boot"
#define SYS_CLEAN "clean"
#define SYS_COUNTERS "counters"

/* Rewritten with every batch that changes them. */
struct drive_counters {
  struct version highest; /* of all rows and promises ever stored: the guard against clocks */
  uint64_t rows;
};

/* The value of STORE_UNDECIDED (number: when accepted), STORE_HEAL (missing slots), STORE_DROP and
 * STORE_TRASH: an index key does not give back bucket and S3 key. */
#define KEY_RECORD_BYTES_MAX (8 + 1 + 2 + 16 + KEY_BYTES_MAX)
struct key_record {
  uint64_t number;
  uint8_t pool;
  uint16_t partition;
  struct id128 bucket;
  struct slice key;
};
struct slice key_record_encode(const struct key_record *rec, uint8_t buf[KEY_RECORD_BYTES_MAX]);
_must_check_ int key_record_decode(struct slice value, struct key_record *ret_rec);

/* A COMMIT whose row was not there yet: the ACCEPT may still be syncing its chunk. What is chosen
 * stays chosen, so the flag may be set as soon as the row comes. In memory: an accelerator. */
struct early_commit {
  struct version ver; /* zero: free */
  struct id128 bucket;
  uint32_t key_crc;
  uint32_t missing;
};

/* The writer's transaction. */
struct drive_batch {
  struct store_txn *txn; /* NULL: none is open */
  int err;               /* the transaction is broken: nothing of it may be committed */
  uint32_t dirs;         /* chunk directories that gained a name */
  unsigned ops;
  struct list taken; /* stages whose files the transaction names */
  struct list spent; /* stages whose files are not needed: unlinked after the commit */
  struct drive_counters counters;
  bool counters_changed;
};

struct drive {
  struct store *store;
  struct drive_identity identity;
  char *canonical;
  uint8_t *table;
  size_t table_len;
  int lock_fd; /* format.c; -1: none */
  uint64_t reserve_bytes, inline_max_bytes, trash_delay_ms;
  uint64_t (*wall_ms)(void);

  bool finished;               /* drive_finish was here */
  atomic_bool failed, faulted; /* `failure` is complete when `failed` is set */
  pthread_mutex_t failure_mutex;
  char failure[DRIVE_FAILURE_BYTES_MAX];

  struct stage_table stages;
  struct chunk_cache cache;

  /* the writer's */
  struct drive_batch batch;
  struct drive_counters counters;
  struct early_commit early[DRIVE_EARLY_COMMITS];
  bool drops_waiting;    /* STORE_DROP holds entries of finished transactions */
  uint64_t trash_due_ms; /* a lower bound of the first deadline; UINT64_MAX: no trash */

  struct {
    _Atomic uint64_t rows, undecided, heal_entries, batches, batch_ops, chunk_files_written;
    _Atomic uint64_t bytes_written, bytes_read, orphans_swept, trash_waiting;
  } stats;
};

/* The rules over any store, already formatted. Takes the store (closes it also on failure). */
_must_check_ int drive_attach(const struct drive_options *opt, struct store *store,
                              struct drive **ret_drive, struct drive_error *ret_error);
void drive_detach(struct drive *d);
/* Writes the sys records of a new drive. */
_must_check_ int drive_format_sys(struct store *store, const struct drive_identity *identity,
                                  const char *canonical, struct slice table);

/* Out of service for good; the first call's words stay. Returns ERR_DRIVE_FAILED. */
int drive_fail(struct drive *d, const char *what, int err);
/* Everything that reads borrowed slices runs inside: 0, or the drive failed by a read error. */
int drive_guarded(struct drive *d, void (*fn)(void *arg), void *arg);
/* Passes on what a caller may be told; what only a broken disk brings fails the drive. */
int drive_store_err(struct drive *d, const char *what, int err);
bool drive_below_reserve(struct drive *d);
/* No room in the index for rows that bring new data. */
bool drive_index_full(struct drive *d);
uint64_t drive_reserve(const struct drive *d, uint64_t total_bytes);

/* Changes of the open batch: an error breaks the batch and is returned. */
_must_check_ int batch_put(struct drive *d, enum store_table table, struct slice key,
                           struct slice value);
_must_check_ int batch_del(struct drive *d, enum store_table table, struct slice key);
int batch_break(struct drive *d, int err);
/* Counters from the transaction that is about to be committed. */
void batch_note_counts(struct drive *d);

/* ---- reading (any transaction) ---- */
#define BLOB_KEY_BYTES 17
struct blob_key {
  uint8_t bytes[BLOB_KEY_BYTES];
};
struct blob_key blob_key_of(const struct id128 *data_id, unsigned index);
static inline struct slice blob_key_slice(const struct blob_key *k) {
  return (struct slice){k->bytes, sizeof k->bytes};
}
struct blob {
  uint64_t gen, len;
};
_must_check_ int blob_get(struct store_txn *txn, const struct id128 *data_id, unsigned index,
                          struct blob *ret_blob);

/* An inline chunk: borrowed views of its index value. */
struct inline_chunk {
  unsigned unit_count;
  const uint8_t *table; /* length and CRC of each unit, u32 each */
  struct slice bytes;
};
static inline uint32_t inline_unit_len(const struct inline_chunk *c, unsigned i) {
  return load_be32(c->table + (size_t)i * 8);
}
static inline uint32_t inline_unit_crc(const struct inline_chunk *c, unsigned i) {
  return load_be32(c->table + (size_t)i * 8 + 4);
}
_must_check_ int inline_get(struct store_txn *txn, const struct id128 *data_id, unsigned index,
                            struct inline_chunk *ret_chunk);
/* ERR_NOT_FOUND: neither a file nor inline. */
_must_check_ int chunk_present(struct store_txn *txn, const struct id128 *data_id, unsigned index);

_must_check_ int promised_get(struct store_txn *txn, const struct index_key *prefix,
                              struct version *ret_ver);
_must_check_ int floor_get(struct store_txn *txn, unsigned pool, unsigned partition,
                           struct version *ret_ver);
/* ERR_BUCKET_DELETING, or 0. */
_must_check_ int bucket_check(struct store_txn *txn, const struct id128 *bucket);
/* The reply of READ and of a granted PROMISE. */
_must_check_ int rows_reply(struct store_txn *txn, const struct peer_request *req,
                            struct peer_reply *reply);

void drive_list(struct drive *d, struct store_txn *txn, const struct peer_request *req,
                struct peer_reply *reply);
void drive_keys_page(struct drive *d, struct store_txn *txn, const struct peer_request *req,
                     struct peer_reply *reply);
/* FETCH begins its own transactions. */
void drive_fetch(struct drive *d, struct peer_request *req, struct peer_reply *reply);

/* ---- mutations (the open batch) ---- */
void drive_accept(struct drive *d, const struct peer_request *req, struct peer_reply *reply);
void drive_promise(struct drive *d, const struct peer_request *req, struct peer_reply *reply);
void drive_commit_row(struct drive *d, const struct peer_request *req, struct peer_reply *reply);
void drive_discard(struct drive *d, const struct peer_request *req, struct peer_reply *reply);
void drive_bucket(struct drive *d, const struct peer_request *req, struct peer_reply *reply);
/* ERR_CLOCK when `ver` is too far above every clock this drive knows. */
_must_check_ int drive_clock_check(struct drive *d, const struct version *ver);
/* Sets C on a stored row, with all that follows from it. */
_must_check_ int drive_choose(struct drive *d, const struct index_key *prefix,
                              const struct key_record *rec, const struct version *ver,
                              uint32_t missing);
/* A COMMIT of this row that came before it: its `missing`; false where none did. */
bool drive_early_take(struct drive *d, const struct peer_request *req, const struct version *ver,
                      uint32_t *ret_missing);

/* Drops one row of a key with its flag and queue entries; its chunk goes to the trash unless
 * another row of the key names it. */
_must_check_ int drive_drop_row(struct drive *d, const struct index_key *prefix,
                                const struct key_record *rec, const struct version *ver);
/* Drops what durable C flags superseded, at most `budget` keys; the number done, or an error. */
_must_check_ int drive_drop_superseded(struct drive *d, unsigned budget);

#endif
