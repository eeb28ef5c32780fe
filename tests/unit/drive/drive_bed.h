/* drive_bed.h: a real drive in a temporary directory, a clock that the test turns, and requests in
 * one call each. */
#ifndef KOFN_TESTS_UNIT_DRIVE_DRIVE_BED_H
#define KOFN_TESTS_UNIT_DRIVE_DRIVE_BED_H

#include "codec/stripe.h"
#include "storage/drive/drive_internal.h"
#include "storage/drive/lanes.h"

#define BED_MAP_BYTES (64ull << 20)
#define BED_UNIT_BYTES 4096
#define BED_SLOT 1
#define BED_EPOCH 1
#define BED_NOW_MS 1700000000000ull
#define BED_TRASH_MS 60000

#define BED_CHECK(cond) bed_check((cond), #cond, __FILE__, __LINE__)
void bed_check(bool ok, const char *what, const char *file, int line); /* aborts */

struct bed {
  char path[64];
  struct drive_options opt;
  struct drive *drive;
};

extern _Atomic uint64_t bed_now_ms;
uint64_t bed_wall(void);

void bed_dir(struct bed *b);    /* an empty directory, and options for it */
void bed_format(struct bed *b); /* bed_dir, and drive_format */
void bed_start(struct bed *b);  /* bed_format, and drive_open */
void bed_reopen(struct bed *b); /* closes and opens */
void bed_end(struct bed *b);    /* closes, removes the directory */
void bed_remove(const char *path);
void bed_copy(const char *from, const char *to); /* a crash's view of a directory: cp -r */
unsigned bed_files(const struct bed *b);         /* chunk files on disk */
struct drive_identity bed_identity(void);

struct id128 bed_id(unsigned n);
struct version bed_ver(uint64_t n); /* n ms after BED_NOW_MS */

/* A version of a key, with this drive's chunk of it: a 4+2 profile, units of 4 KiB, bytes that
 * depend on the data id. */
struct bed_object {
  struct id128 bucket, data_id;
  char key[KEY_BYTES_MAX + 1];
  struct row row;
  uint8_t *bytes; /* encoded row */
  size_t len;
  uint8_t *chunk;
  uint32_t *crcs;
  uint64_t unit_count;
};
/* kind ROW_TOMB: size is ignored. `op` and `data` choose the ids. */
void bed_object(struct bed_object *o, const char *key, unsigned kind, uint64_t ver, uint64_t size,
                unsigned op, unsigned data);
void bed_object_free(struct bed_object *o);

/* The fields every request has. */
struct peer_request bed_request(enum peer_verb verb, const char *key);
/* Units [first, first + count) of the object's chunk into a request. */
void bed_units(struct peer_request *req, const struct bed_object *o, uint64_t first,
               unsigned count);

/* Runs one mutation as a batch of its own; the commit's error counts. */
struct peer_reply bed_apply(struct bed *b, const struct peer_request *req);
/* ACCEPT with the chunk inline. */
struct peer_request bed_accept_request(const struct bed_object *o);
struct peer_reply bed_accept(struct bed *b, const struct bed_object *o);
int bed_stage(struct bed *b, const struct bed_object *o); /* all units, 16 at a time */
/* Staged, sealed, accepted. */
struct peer_reply bed_accept_staged(struct bed *b, const struct bed_object *o);
void bed_commit(struct bed *b, const char *key, uint64_t ver, uint32_t missing);
struct peer_reply bed_promise(struct bed *b, const char *key, uint64_t ver);
void bed_housekeep(struct bed *b);
/* Decoded; views stand in *body, which the caller frees. */
int bed_read(struct bed *b, const char *key, uint8_t flags, struct peer_rows *ret_rows,
             uint8_t **ret_body);
/* FETCH of the whole chunk, checked against the object's: 0 or the error. */
int bed_fetch(struct bed *b, const struct bed_object *o);

#endif
