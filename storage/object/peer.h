/* peer.h: how to reach one drive, wherever it is: local lanes, TCP, or a simulator (PROTOCOL.md 4).
 *
 * One async contract. The caller embeds a struct peer_call, fills `req` and `done`, and calls
 * peer_send. `done` runs exactly once, later, on the caller's loop, never inside peer_send, with
 * `reply` filled. Until then req's slices and unit buffers stay alive and untouched. After `done`
 * the caller calls peer_call_release once it no longer needs reply.body. Every call has a deadline
 * (req.timeout_ms) that the peer enforces: ERR_TIMEOUT. peer_cancel may be called any time before
 * `done`, any number of times: `done` still runs, soon, with the result or ERR_CANCELLED; only then
 * are the buffers free. */
#ifndef KOFN_STORAGE_OBJECT_PEER_H
#define KOFN_STORAGE_OBJECT_PEER_H

#include "config/cluster_map.h"
#include "config/list.h"
#include "storage/object/row.h"

#define PEER_UNITS_MAX 16
#define PEER_UNIT_BYTES_MAX (1u << 20)
#define PEER_INLINE_BYTES_MAX (64u << 10) /* largest chunk that an ACCEPT may carry */
#define PEER_BODY_BYTES_MAX (4u << 20)    /* encoded reply body */
#define PEER_ROWS_MAX 8                   /* rows of one key in a reply */
#define PEER_LIST_ENTRIES_MAX 1000
#define PEER_LATENCY_HALF_MS 2000

enum peer_verb {
  PEER_READ = 1, /* bucket, key -> body: struct peer_rows. PEER_WANT_INLINE: with the newest row's
                    inline chunk */
  PEER_STAGE,    /* data_id, slot, profile, unit_first, units: append units (in order, consecutive);
                    not durable */
  PEER_DROP,     /* data_id, slot: forget a stage; absent is success */
  PEER_ACCEPT,  /* bucket, key, slot, row, [units: the whole inline chunk]: durable before the reply
                 */
  PEER_PROMISE, /* bucket, key, ver -> body: struct peer_rows (granted) or ERR_PROMISED/ERR_FLOOR
                   with reply.ver */
  PEER_COMMIT,  /* bucket, key, ver, missing: sets C; lazily durable (<= 100 ms); ignored where the
                   row is absent */
  PEER_DISCARD, /* bucket, key, ver: a row proven dead under a promise above it; dropped if still A
                   and promised > ver */
  PEER_FETCH,   /* data_id, slot, profile, unit_first, unit_count, units[].data/len = room ->
                   units[].len/crc */
  PEER_LIST,    /* bucket, from, prefix, delimiter, limit -> body: struct peer_list */
  PEER_BUCKET,  /* bucket, bucket_state, ver: durable; DELETING refuses ACCEPT and PROMISE in this
                   bucket */
  PEER_HEAL_LIST, /* from (opaque cursor), limit -> body: heal-queue entries */
  PEER_UNDECIDED, /* limit, age_ms -> body: keys with rows accepted for longer and not chosen */
  PEER_VERB_END
};

/* req.flags */
#define PEER_WANT_INLINE 1u
#define PEER_FROM_AFTER 2u /* LIST: start strictly after `from` */
#define PEER_HEADS_ONLY 4u /* READ: without attributes' values is allowed (seat, unused) */
/* reply.flags */
#define PEER_SUPERSEDED \
  1u /* ACCEPT acked without storing: a chosen higher row is known (counts as an ack) */

enum bucket_state { BUCKET_ACTIVE = 1, BUCKET_DELETING = 2, BUCKET_DELETED = 3 };

struct peer_unit {
  uint8_t *data; /* STAGE/ACCEPT: read only. FETCH: room of `len` bytes */
  uint32_t len;
  uint32_t crc; /* unit_crc() */
};

struct peer_request {
  uint8_t verb;
  uint8_t flags;
  uint8_t pool;
  uint8_t slot; /* = chunk index */
  uint8_t bucket_state;
  uint16_t partition;
  uint32_t epoch;
  uint32_t timeout_ms;
  struct id128 bucket;
  struct slice key;
  struct version ver;
  struct slice row; /* encoded */
  struct id128 data_id;
  struct profile profile;
  uint64_t unit_first;
  unsigned unit_count;
  struct peer_unit units[PEER_UNITS_MAX];
  uint32_t missing; /* COMMIT: bit i = slot i has no chunk */
  struct slice from, prefix, delimiter;
  uint32_t limit;
  uint64_t age_ms;
};

struct peer_reply {
  int err;
  uint8_t flags;
  struct version ver; /* highest promised/row/floor, with ERR_PROMISED, ERR_FLOOR, ERR_CLOCK */
  uint8_t *body;      /* malloc'ed, owned by the call */
  size_t body_len;
};

struct peer;

struct peer_call {
  struct peer_request req;
  struct peer_reply reply;
  void (*done)(struct peer_call *call);
  /* the peer's own */
  struct peer *peer;
  struct list link;
  uint64_t started_ms;
  void *priv[4];
  uint32_t stream;
  uint8_t state;
};

struct peer_ops {
  void (*send)(struct peer *peer, struct peer_call *call);
  void (*cancel)(struct peer *peer, struct peer_call *call);
};

struct peer {
  const struct peer_ops *ops;
  uint16_t drive; /* index in the cluster map */
  bool local;
  bool up;      /* a hint: false where a send would fail at once (not connected, failed drive) */
  bool suspect; /* silent for 1 s with a call outstanding; cleared when it answers anything */
  uint32_t latency_us; /* smoothed time of a READ or FETCH; 0 unknown; see peer_latency_us */
  uint64_t latency_ms; /* env_now_ms of its last sample */
  /* PUTs and DELETEs that W other drives have taken and this one still works on; their buffers. */
  unsigned lag_ops;
  size_t lag_bytes;
};

/* The loop's own; the admin page of another loop looks at `up`. */
static inline void peer_set_up(struct peer *peer, bool up) {
  __atomic_store_n(&peer->up, up, __ATOMIC_RELAXED);
}

/* Never fails synchronously: errors come through `done`. */
void peer_send(struct peer *peer, struct peer_call *call);
void peer_cancel(struct peer_call *call);
/* Frees reply.body. Safe twice. */
void peer_call_release(struct peer_call *call);

/* For peers: a READ or FETCH was answered after `us`; one is still waited for after `us`. */
void peer_latency_note(struct peer *peer, uint64_t us, uint64_t now_ms);
void peer_latency_waits(struct peer *peer, uint64_t us, uint64_t now_ms);
/* What is known of it now: it halves every PEER_LATENCY_HALF_MS, so that a peer that was avoided
 * because it was slow is tried again. 0: unknown. */
uint32_t peer_latency_us(const struct peer *peer, uint64_t now_ms);

/* Bodies. Encoders are used by drives, decoders by the object layer; decoded views borrow from the
 * body. */
enum chunk_state { CHUNK_NONE = 0, CHUNK_WHOLE = 1, CHUNK_MISSING = 2 };

struct peer_row {
  struct slice bytes; /* encoded row, checked by peer_rows_decode */
  struct row row;
  bool chosen;         /* the C flag */
  uint8_t chunk_state; /* of this drive's chunk of row.data_id; CHUNK_WHOLE for rows without data */
};

/* Rows newest first, down to and including the newest C row; `more` where PEER_ROWS_MAX cut them.
 */
struct peer_rows {
  struct version promised, floor;
  unsigned count;
  bool more;
  struct peer_row rows[PEER_ROWS_MAX];
  struct slice inline_chunk; /* of rows[0] when asked for and inline; data == NULL otherwise */
  unsigned inline_unit_count;
  uint32_t inline_crcs[PEER_UNITS_MAX];
};

/* ERR_PROTOCOL for a malformed body; ERR_CORRUPT where a row's CRC fails (not a replier then). */
_must_check_ int peer_rows_decode(struct slice body, const struct id128 *bucket, struct slice key,
                                  struct peer_rows *ret_rows);
_must_check_ int peer_rows_encode(const struct peer_rows *rows, uint8_t **ret_body,
                                  size_t *ret_len);

/* One key of a LIST page: its newest rows without attributes. */
struct peer_list_row {
  struct version ver;
  uint8_t kind;
  bool chosen;
  struct id128 op_id;
  uint64_t size, mtime_ms;
  struct slice etag;
};
struct peer_list_entry {
  struct slice key;
  unsigned row_count; /* newest first, down to the newest C row */
  bool more;
  bool skipped; /* after this key the drive went on behind the key's common prefix */
  bool corrupt; /* a row of this key fails its CRC: this drive is no replier for the key */
  struct peer_list_row rows[PEER_ROWS_MAX];
};
/* `end`: nothing follows. Walk with peer_list_next until it returns 0; 1 = an entry; ERR_PROTOCOL.
 */
struct peer_list {
  bool end;
  unsigned count;
  struct byte_reader at;
};
_must_check_ int peer_list_open(struct slice body, struct peer_list *ret_list);
_must_check_ int peer_list_next(struct peer_list *list, struct peer_list_entry *ret_entry);
/* Appends to a writer; the drive writes the header with peer_list_header first and patches it at
 * the end. */
void peer_list_put_header(struct byte_writer *w, bool end, unsigned count);
void peer_list_patch_header(struct byte_writer *w, bool end, unsigned count);
void peer_list_put_entry(struct byte_writer *w, const struct peer_list_entry *e);

/* HEAL_LIST and UNDECIDED bodies: a sequence of these, then the cursor to go on from (empty at the
 * end). */
struct peer_key_entry {
  struct id128 bucket;
  struct slice key;
  struct version ver;
  uint32_t missing; /* HEAL_LIST: slots to be healed */
  uint8_t pool;
  uint16_t partition;
};
_must_check_ int peer_keys_next(struct byte_reader *r,
                                struct peer_key_entry *ret_entry); /* 1, 0 at the end, or error */
void peer_keys_put(struct byte_writer *w, const struct peer_key_entry *e);
void peer_keys_put_end(struct byte_writer *w, struct slice cursor);
/* After peer_keys_next returned 0. */
struct slice peer_keys_cursor(struct byte_reader *r);

#endif
