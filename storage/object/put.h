/* put.h: the parts of object_put.c (internal). PROTOCOL.md 2, 6 and 7 are what they do.
 *
 *   object_put.c     start, cancel, put_advance, the end of an operation
 *   put_body.c       the body -> windows: buffers, reading
 *   put_code.c       a window -> units: MD5, encode, CRCs, chunk digests (CPU work)
 *   put_stage.c      units -> STAGE at the slots; which slots are left out; DROP
 *   put_lag.c        how long the drives beyond W are waited for, and which are not asked at all
 *   put_condition.c  READ, the queue of conditional writers, promise, settle; recovery of a lost
 * race put_accept.c     the row, ACCEPT, COMMIT, the answer
 *
 *   CHECK -> BODY -> [TURN -> RECHECK -> PROMISE -> SETTLE] -> ACCEPT -> [RECOVER] -> DONE
 *     (conditional only)                                        FAIL from anywhere before DONE
 *
 * Callbacks record in struct object_put; put_advance alone decides. Two windows at most: one is
 * read while the other is staged. The operation is reference counted (`refs` = callbacks that are
 * still to come); it is freed when it has answered and refs is 0. */
#ifndef KOFN_STORAGE_OBJECT_PUT_H
#define KOFN_STORAGE_OBJECT_PUT_H

#include "codec/digest.h"
#include "storage/object/accept.h"
#include "storage/object/gather.h"
#include "storage/object/object.h"
#include "storage/object/promise.h"
#include "storage/object/slots.h"

#define PUT_WINDOW_DATA_BYTES (1u << 20)
#define PUT_WINDOWS 2
#define PUT_ACCEPT_ROUNDS 3 /* with nothing accepted anywhere */
#define PUT_RECOVER_ROUNDS 3
#define PUT_PROMISE_ROUNDS 4 /* conditional: lost with nothing accepted, or while settling */

enum put_state {
  PUT_START,
  PUT_CHECK,   /* conditional: is the condition false on a chosen base already? */
  PUT_BODY,    /* read, encode, stage; unconditional: READ runs beside it */
  PUT_TURN,    /* waits for earlier conditional writers of the key at this gateway */
  PUT_RECHECK, /* after a wait: as CHECK */
  PUT_PROMISE,
  PUT_SETTLE, /* the condition is false on a base that is not yet chosen */
  PUT_ACCEPT,
  PUT_RECOVER, /* partly accepted, refused elsewhere: did it become chosen all the same? */
  PUT_FAIL,    /* stops everything, drops every stage, then answers */
  PUT_DONE,    /* answered, or `silent`; stragglers go on */
};

enum put_window_state {
  WINDOW_FREE,
  WINDOW_READING,
  WINDOW_READ,
  WINDOW_CODING,
  WINDOW_CODED,
  WINDOW_STAGING
};

struct put_window {
  enum put_window_state state;
  struct env_buf buf;
  size_t len; /* bytes of the body in it */
  uint64_t stripe_first;
  unsigned stripe_count;
  struct peer_unit units[MAP_SLOTS_MAX][PEER_UNITS_MAX]; /* by slot and stripe, once coded */
};

struct put_wait {
  uint64_t began_ms, w_ms; /* sent; W had acked */
  bool w_acked;
};

struct put_slot {
  struct peer_call call; /* STAGE */
  struct object_put *put;
};

struct object_put {
  struct objects *o;
  struct env *env;
  unsigned refs;
  enum put_state state;
  bool cancelled, answered;
  bool silent; /* KOFN_TEST_SWITCHES: stops dead */

  /* what was asked for */
  struct bucket_info bucket;
  struct key_place place;
  struct slice key; /* owned */
  uint8_t kind;
  struct body *body;
  const struct attr *attrs;
  unsigned attr_count;
  struct write_conditions conditions;
  bool conditional;
  uint8_t md5_wanted[MD5_LEN];
  bool has_md5_wanted;
  char etag[ETAG_BYTES_MAX + 1];
  bool has_etag;
  void (*want_body)(void *arg);
  object_put_cb cb;
  void *arg;
  struct object_put_result result;

  /* identity */
  struct id128 op_id, data_id;
  struct profile profile;
  struct codec *codec;
  struct version seen;

  /* body */
  uint64_t length; /* or BODY_LENGTH_UNKNOWN */
  uint64_t size;   /* read so far */
  bool body_ended, reading, probing;
  uint8_t probe;
  size_t read_len; /* asked for by the read that goes on */
  bool is_inline, shape_decided;
  unsigned stripes;                       /* of a window */
  uint32_t stride;                        /* of a unit in a window */
  uint64_t read_seq, code_seq, stage_seq; /* windows started so far; window seq is seq % 2 */
  struct put_window windows[PUT_WINDOWS];
  struct env_buf_wait buf_wait;
  bool buf_waiting;
  int body_err;

  /* coding */
  struct env_work work;
  bool working;
  bool hashing;
  struct digest md5;
  struct chunk_digest chunk_digests[MAP_SLOTS_MAX];
  struct id128 digests[MAP_SLOTS_MAX];
  bool digested;

  /* staging */
  uint32_t live;                       /* slots that are in this PUT */
  uint32_t staged;                     /* may hold a stage of ours */
  uint32_t stage_pending, stage_acked; /* of the window that is being staged */
  uint32_t no_space;                   /* of those not live: because the drive is full */
  struct put_wait wait; /* for the drives beyond W; of a window, then of the ACCEPTs */
  uint32_t lagging;     /* slots counted in their peer's lag_ops */
  size_t lag_bytes;     /* what each of them counts in lag_bytes */

  /* READ and promise */
  struct gather *query;
  bool query_done;
  int query_err;
  struct list turn; /* in objects.put_turns */
  bool turn_waited, turn_given;
  struct promise promise;
  unsigned promise_rounds;
  int promise_err;
  bool promise_done;
  bool settling;
  int settle_err, settle_result; /* what to answer once settled */

  /* accept */
  struct accept accept;
  unsigned accept_rounds;
  bool accept_waited; /* OBJECT_SUSPECT_MS have passed since W acks cannot come together */
  uint64_t mtime_ms;
  bool maybe; /* some drive accepted, or may have: "nothing happened" is no answer any more */
  unsigned recover_rounds;
  int recover_err; /* 0: ours is to be chosen; else what to answer once the base is chosen again */
  bool recover_settled; /* a settle was started */
  bool recover_waited;  /* OBJECT_SUSPECT_MS for late answers to the ACCEPT have passed */

  /* end */
  int fail_err;
  bool drops_sent, fail_waited;
  unsigned dropping;       /* groups of DROPs without an answer yet */
  struct env_timer timer;  /* staging, accept, fail: never two at once */
  struct env_timer kick;   /* runs put_advance from the loop */
  struct put_slot slots[]; /* place.n */
};

/* object_put.c */
void put_advance(struct object_put *put);
void put_ref(struct object_put *put);
void put_unref_advance(struct object_put *put); /* one callback less, then put_advance */
void put_fail(struct object_put *put, int err);
void put_answer(struct object_put *put, int err);

/* put_body.c */
void put_body_shape(struct object_put *put);
/* Starts what can be started; true when the body is read, coded and (unless inline) staged. */
bool put_body_step(struct object_put *put);
void put_body_stop(struct object_put *put);
void put_window_release(struct object_put *put, struct put_window *w);
static inline struct put_window *put_window_of(struct object_put *put, uint64_t seq) {
  return &put->windows[seq % PUT_WINDOWS];
}

/* put_code.c */
_must_check_ int put_code_begin(struct object_put *put);
void put_code_start(struct object_put *put, struct put_window *w);
/* Fills digests, md5 and etag. ERR_BAD_DIGEST. */
_must_check_ int put_code_end(struct object_put *put);
void put_code_abort(struct object_put *put);

/* put_lag.c */
/* Leaves out drives that lag, as far as W and a spare chunk allow. */
void put_lag_leave_out(struct object_put *put);
/* Keeps the peers' counts of what they lag behind with. */
void put_lag_update(struct object_put *put);
void put_wait_begin(struct object_put *put);
/* W have acked; the first call counts. */
void put_wait_w(struct object_put *put);
/* How long the drives beyond W are waited for, since put_wait_w, by what does not need them. */
uint64_t put_wait_patience(const struct object_put *put);
/* Whether `longest_ms` since put_wait_w are not over; arms the timer for their end. */
bool put_wait_goes_on(struct object_put *put, uint64_t longest_ms);
/* Slots whose last window is still being staged while the rest goes on. */
static inline uint32_t put_trailing(const struct object_put *put) {
  return put->state >= PUT_TURN ? put->stage_pending & put->live : 0;
}

/* put_stage.c */
void put_stage_start(struct object_put *put, struct put_window *w);
/* Leaves out who is too slow; true when the window is staged at every live slot. */
bool put_stage_step(struct object_put *put);
void put_stage_stop(struct object_put *put);
/* Fewer than W live slots: which error. */
int put_stage_shortage(const struct object_put *put);
/* DROP to those of `slots` that may hold a stage; returns how many were sent, and put_advance runs
 * when they have answered. */
unsigned put_stage_drop(struct object_put *put, uint32_t slots);

/* put_condition.c */
void put_query_start(struct object_put *put);
bool put_check_step(struct object_put *put);
bool put_turn_step(struct object_put *put);
bool put_promise_step(struct object_put *put);
bool put_settle_step(struct object_put *put);
void put_recover_begin(struct object_put *put, int err);
bool put_recover_step(struct object_put *put);
void put_promise_begin(struct object_put *put, enum put_state state);
void put_turn_leave(struct object_put *put);

/* put_accept.c */
/* The chunk of a trailing slot is whole: its ACCEPT, if it is still wanted. */
void put_accept_late(struct object_put *put, unsigned slot);
/* Encodes the row as it would be, with `ver`; the caller frees. */
_must_check_ int put_row_encode(struct object_put *put, const struct version *ver,
                                uint8_t **ret_bytes, size_t *ret_len);
void put_accept_start(struct object_put *put, const struct version *ver);
bool put_accept_step(struct object_put *put);
/* After the answer: COMMIT to late ackers; buffers and stages of those that are through. */
void put_accept_trail(struct object_put *put);

#endif
