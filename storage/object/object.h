/* object.h: the operations on keys: all that the server knows of objects.
 *
 * The caller embeds an operation and starts it; its callback runs exactly once, later; then the
 * caller calls the operation's _release, after which the memory may be reused. _cancel may be
 * called any time before the callback. Callbacks record; one *_advance() decides; an operation has
 * nothing pending when its callback runs, except where said. Semantics: PROTOCOL.md 5, 6 and 8.
 * Errors by name from config/err.h. */
#ifndef KOFN_STORAGE_OBJECT_OBJECT_H
#define KOFN_STORAGE_OBJECT_OBJECT_H

#include "storage/object/body.h"
#include "storage/object/objects.h"

/* A bucket as the object layer needs it. */
struct bucket_info {
  char name[64];
  struct id128 uuid;
  unsigned pool;
  enum bucket_state state;
  uint64_t created_ms;
  char owner[SETTINGS_NAME_BYTES_MAX + 1];
};

/* Conditions of a write. All slices borrowed until the callback. */
struct write_conditions {
  bool if_none_match_any; /* If-None-Match: * */
  struct slice if_match;  /* ETag without quotes, or "*"; data == NULL: none */
};

/* ---- PUT and DELETE ---- */
struct object_put_args {
  const struct bucket_info *bucket; /* copied */
  struct slice key;
  uint8_t kind;      /* ROW_PUT or ROW_TOMB (DELETE: body NULL) */
  struct body *body; /* NULL: empty */
  const struct attr *attrs;
  unsigned attr_count;
  struct write_conditions conditions;
  const uint8_t *content_md5; /* MD5_LEN bytes or NULL: ERR_BAD_DIGEST when the body differs */
  struct slice etag;          /* data == NULL: hex MD5 of the body */
  /* Called once when everything that can be refused before the body was checked (condition on a
   * chosen base) and the body is wanted: the server sends 100 Continue. May be NULL. Never called
   * inside the start. */
  void (*want_body)(void *arg);
};

struct object_put_result {
  int err; /* 0; ERR_UNAVAILABLE (nothing happened: 503), ERR_UNKNOWN_OUTCOME (503),
            * ERR_PRECONDITION (412), ERR_NO_SUCH_KEY (If-Match on a missing key), ERR_CONFLICT
            * (409), ERR_NO_SPACE (507), ERR_SLOW_DOWN, ERR_BAD_DIGEST, ERR_BODY_*, ERR_BODY_LONG,
            * ERR_TOO_LARGE (row), ERR_BUCKET_DELETING, ERR_CLIENT_GONE, ERR_CANCELLED */
  char etag[ETAG_BYTES_MAX + 1];
  struct version ver;
  uint64_t size, mtime_ms;
  uint32_t missing; /* slots without a chunk */
  bool over_marker; /* conditional: the base was a delete marker */
};

struct object_put;
typedef void (*object_put_cb)(void *arg, const struct object_put_result *result);
/* Stragglers (peer calls beyond W) may go on after cb; the operation is reference counted inside,
 * so the caller only keeps a pointer: it is valid until cb has returned. -ENOMEM: nothing started.
 */
_must_check_ int object_put_start(struct objects *o, const struct object_put_args *args,
                                  object_put_cb cb, void *arg, struct object_put **ret_put);
void object_put_cancel(struct object_put *put);

/* ---- GET and HEAD ---- */
struct object_get;
struct object_get_ops {
  /* The newest chosen version was found (err 0, `row` valid until `done`), or not: ERR_NO_SUCH_KEY,
   * ERR_UNAVAILABLE, ERR_CANCELLED. After an error `done` does not run and `get` is gone when this
   * returns. On success the callee must, inside or later, call exactly one of object_get_read or
   * object_get_close. */
  void (*found)(void *arg, struct object_get *get, int err, const struct row *row);
  /* After object_get_read: all bytes were written (0), or ERR_UNAVAILABLE before the first byte
   * (503) or after it (the connection must be reset: *sent_any tells), ERR_SLOW_DOWN, or the sink's
   * error. `get` is gone when this returns. */
  void (*done)(void *arg, int err, bool sent_any);
};
/* key is copied. `want_data` false for HEAD: chunks need not be in reach. */
_must_check_ int object_get_start(struct objects *o, const struct bucket_info *bucket,
                                  struct slice key, bool want_data,
                                  const struct object_get_ops *ops, void *arg,
                                  struct object_get **ret_get);
/* Streams [offset, offset+len) of the object into the sink; 0 < len, within the size. The first
 * write happens only after the first stripe was verified. */
void object_get_read(struct object_get *get, uint64_t offset, uint64_t len, struct sink *sink);
/* Without reading. `get` is gone. */
void object_get_close(struct object_get *get);
/* Any time: `found` or `done` runs soon with ERR_CANCELLED. */
void object_get_cancel(struct object_get *get);

/* ---- RESOLVE: background, and for the list's undetermined keys ---- */
struct object_resolve;
/* err 0: the key is decided (chosen, absent, dead rows discarded). */
typedef void (*object_resolve_cb)(void *arg, int err);
_must_check_ int object_resolve_start(struct objects *o, unsigned pool, const struct id128 *bucket,
                                      struct slice key, object_resolve_cb cb, void *arg);

/* ---- LIST ---- */
struct object_list_args {
  const struct bucket_info *bucket; /* copied */
  struct slice prefix, delimiter;   /* copied; empty: none */
  struct slice from; /* copied; start strictly after this key (and behind this common prefix when it
                        ends so) */
  unsigned limit;    /* keys + common prefixes; 1..1000 */
  /* By drive, copied; NULL: all are asked. Else the drives that refuse ACCEPT in this bucket: they
   * alone are asked, and a key that they cannot decide is ERR_UNAVAILABLE. Then "no such key" holds
   * for good, whatever is still on its way to the others. */
  const bool *frozen;
};
struct object_list_item {
  struct slice key; /* or the common prefix */
  bool is_prefix;
  uint64_t size, mtime_ms;
  struct slice etag;
};
struct object_list_result {
  int err; /* ERR_UNAVAILABLE: too few drives */
  bool truncated;
  unsigned count;
  const struct object_list_item *items; /* in byte order; valid until the callback returns */
};
struct object_list;
typedef void (*object_list_cb)(void *arg, const struct object_list_result *result);
_must_check_ int object_list_start(struct objects *o, const struct object_list_args *args,
                                   object_list_cb cb, void *arg, struct object_list **ret_list);
void object_list_cancel(struct object_list *list);

/* ---- Buckets (PROTOCOL.md 12) ---- */
typedef void (*bucket_cb)(void *arg, int err, const struct bucket_info *info);
/* info->state ACTIVE, or ERR_NO_SUCH_BUCKET, ERR_BUCKET_DELETING, ERR_UNAVAILABLE. Cached for a
 * second; for_write forbids the 60 s fallback. The name need not be valid. */
void bucket_lookup(struct objects *o, struct slice name, bool for_write, bucket_cb cb, void *arg);
/* 0, ERR_BUCKET_EXISTS (info says whose), ERR_UNAVAILABLE, ERR_CONFLICT, ERR_UNKNOWN_OUTCOME. */
void bucket_create(struct objects *o, struct slice name, unsigned pool, struct slice owner,
                   bucket_cb cb, void *arg);
/* 0, ERR_NO_SUCH_BUCKET, ERR_BUCKET_NOT_EMPTY, ERR_UNAVAILABLE, ERR_CONFLICT. */
void bucket_delete(struct objects *o, struct slice name, bucket_cb cb, void *arg);
typedef void (*bucket_list_cb)(void *arg, int err, const struct bucket_info *buckets,
                               unsigned count, bool truncated);
/* Name order, strictly after `from`, with `prefix`, at most `limit` (1..1000). */
void bucket_list(struct objects *o, struct slice from, struct slice prefix, unsigned limit,
                 bucket_list_cb cb, void *arg);
/* The uuid of the system "bucket" whose keys are bucket names. */
extern const struct id128 bucket_system_uuid;

/* ---- background ---- */
/* Asks every local drive for undecided rows older than 5 s (all, on the first round) and resolves
 * them, a few at a time, for ever. One loop of a host runs it. object_sweep_stop: cb when nothing
 * is pending. */
struct object_sweep;
_must_check_ int object_sweep_start(struct objects *o, struct object_sweep **ret_sweep);
void object_sweep_stop(struct object_sweep *sweep, void (*cb)(void *arg), void *arg);

#endif
