/* fake_peer.h: the way to a fake drive, and a whole fake cluster.
 *
 * Every call takes `delay_ms` there and back on the virtual clock; a request is executed half way.
 * The peer checks its callers: a call is not sent twice, the bytes of a STAGE or ACCEPT, the key
 * and the row do not change while the call runs, nobody writes into the room of a FETCH, and the
 * call is not released before its `done`. After a cancel the room of a FETCH is overwritten just
 * before `done`, as a late reply would. */
#ifndef KOFN_TESTS_OBJECT_FAKE_PEER_H
#define KOFN_TESTS_OBJECT_FAKE_PEER_H

#include "config/err.h"
#include "storage/object/object.h"
#include "tests/unit/object/fake_drive.h"

#define FAKE_FAULTS_MAX 16
#define FAKE_GATEWAYS_MAX 8
#define FAKE_TRACE_MAX 65536
#define FAKE_ANY_VERB 0

/* The nth call of a verb from now on (1: the next) gets `err`; nth 0: every call. */
struct fake_fault {
  uint8_t verb; /* FAKE_ANY_VERB: every verb */
  unsigned nth, seen;
  int err;
  bool applied; /* the drive executed it, only the answer is lost */
  bool used;
};

struct fake_trace {
  uint64_t ms;
  uint8_t drive, verb, slot, flags;
  uint64_t unit_first;
  unsigned unit_count;
  struct version ver; /* of the request; an ACCEPT's row */
  uint32_t missing;
  int err; /* of the reply; 1: not answered yet */
};

struct fake_peer {
  struct peer peer;
  struct fake_bed *bed;
  struct fake_cluster *cluster;
  struct fake_drive drive;
  struct list calls; /* in flight: struct fake_flight */
  /* controls; may be changed at any time, also from on_request */
  bool down;          /* answers ERR_PEER_DOWN at once; calls in flight too (fake_peer_down) */
  bool silent;        /* requests vanish: nothing until the deadline or a cancel */
  bool mute;          /* requests are executed, answers vanish */
  uint64_t delay_ms;  /* there and back; 1 */
  uint64_t jitter_ms; /* plus 0..jitter by the bed's randomness */
  struct fake_fault faults[FAKE_FAULTS_MAX];
  unsigned fetch_corrupt;           /* so many coming units are damaged on the way */
  unsigned fetch_short;             /* so many coming units lack their last byte */
  unsigned calls_of[PEER_VERB_END]; /* executed or failed, ever */
  unsigned sent_of[PEER_VERB_END];
  unsigned in_flight;
  unsigned units_fetched;
};

struct fake_cluster {
  struct fake_bed *bed;
  struct settings settings;
  struct cluster_map *map;
  struct placement *placement;
  struct fake_peer drives[MAP_DRIVES_MAX];
  unsigned drive_count, host_count;
  unsigned pool;          /* the configured pool's index in the map */
  struct objects objects; /* gateway 0 */
  struct objects more[FAKE_GATEWAYS_MAX];
  unsigned more_count;
  struct bucket_info bucket; /* an ACTIVE bucket in `pool`; its register is not stored */
  /* Called when a request reaches its drive, before it is executed. */
  void (*on_request)(struct fake_cluster *c, struct fake_peer *p, const struct peer_request *req);
  void *on_request_arg;
  struct fake_trace *trace;
  unsigned trace_count;
};

/* hosts x drives_per_host drives, one pool "default". unit: stripe unit in bytes. Ends the process
 * where the layout is refused. The result is freed by fake_cluster_close, which runs the bed until
 * idle and checks that no call is left. */
struct fake_cluster *fake_cluster_open(struct fake_bed *bed, unsigned hosts,
                                       unsigned drives_per_host, unsigned k, unsigned m,
                                       const char *technique, uint32_t unit);
void fake_cluster_close(struct fake_cluster *c);
/* Another gateway on the same drives, with its own HLC and caches. */
struct objects *fake_cluster_gateway(struct fake_cluster *c);

/* The drive at a slot of a key of c->bucket. */
struct fake_peer *fake_slot(struct fake_cluster *c, struct slice key, unsigned slot);
struct key_place fake_place(struct fake_cluster *c, struct slice key);
/* Slots that hold this row / its C flag / a whole chunk of its data. */
uint32_t fake_slots_with_row(struct fake_cluster *c, struct slice key, const struct version *ver);
uint32_t fake_slots_chosen(struct fake_cluster *c, struct slice key, const struct version *ver);
uint32_t fake_slots_with_chunk(struct fake_cluster *c, struct slice key,
                               const struct id128 *data_id);
/* Calls of all drives that have no answer yet. */
unsigned fake_calls_in_flight(const struct fake_cluster *c);
unsigned fake_stages_open(struct fake_cluster *c);
/* Calls of a verb that reached a drive or failed on the way, all drives together. */
unsigned fake_calls(const struct fake_cluster *c, enum peer_verb verb);

/* Down: calls in flight end with ERR_PEER_DOWN, stages are lost. */
void fake_peer_down(struct fake_peer *p);
void fake_peer_up(struct fake_peer *p);
void fake_peer_fail(struct fake_peer *p, enum peer_verb verb, unsigned nth, int err);
/* The drive executes the call, the caller gets err. */
void fake_peer_lose_answer(struct fake_peer *p, enum peer_verb verb, unsigned nth, int err);
/* Forgets all faults, delays and states; the drive's contents stay. */
void fake_peer_heal(struct fake_peer *p);

/* Writes an object row and its chunks straight into the drives, without object_put: an object of
 * `len` bytes at slots in `rows` with the C flag at slots in `chosen` and chunks at `rows`. Chunks
 * of up to inline_max_bytes are inline. Returns its version and data id. */
struct fake_object {
  struct version ver;
  struct id128 op_id, data_id;
};
struct fake_object fake_object_store(struct fake_cluster *c, struct slice key, const uint8_t *data,
                                     size_t len, uint32_t rows, uint32_t chosen);
/* The same for a tombstone. */
struct fake_object fake_tomb_store(struct fake_cluster *c, struct slice key, uint32_t rows,
                                   uint32_t chosen);

#endif
