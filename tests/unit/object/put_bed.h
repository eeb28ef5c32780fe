/* put_bed.h: helpers of the write-side tests: one PUT, one GET, and what the drives hold. */
#ifndef KOFN_TESTS_OBJECT_PUT_BED_H
#define KOFN_TESTS_OBJECT_PUT_BED_H

#include "storage/object/classify.h"
#include "tests/unit/object/fake_body.h"
#include "tests/unit/object/fake_peer.h"

/* One PUT or DELETE, from start to callback. */
struct put_run {
  struct fake_cluster *c;
  struct objects *o; /* the gateway */
  struct fake_body body;
  struct object_put_args args; /* may be changed before put_run_start */
  struct object_put *put;
  struct object_put_result result;
  bool done;
  unsigned wanted;       /* want_body calls */
  unsigned wanted_reads; /* reads of the body before want_body: must stay 0 */
};

/* A body of `len` bytes; body == false: a tombstone's, none at all. */
void put_run_open(struct put_run *r, struct fake_cluster *c, const char *key, const void *data,
                  size_t len);
void put_run_open_delete(struct put_run *r, struct fake_cluster *c, const char *key);
void put_run_start(struct put_run *r);
/* Until the callback has run; returns its error. Calls that go on stay in flight. */
int put_run_wait(struct put_run *r);
/* start + wait. */
int put_run_all(struct put_run *r);

/* Bytes that differ from place to place and from seed to seed; the caller frees. */
uint8_t *bed_bytes(size_t len, unsigned seed);

/* CLASSIFY on what the drives in `slots` hold now, without a message. */
struct bed_look {
  struct key_replies replies;
  uint8_t *bodies[MAP_SLOTS_MAX];
  struct key_place place;
  struct classification c;
};
struct bed_look *bed_look(struct fake_cluster *c, const char *key, uint32_t slots);
void bed_look_free(struct bed_look *l);

/* What object_get says: 0 and the bytes (the caller frees), or its error. */
int bed_get(struct fake_cluster *c, const char *key, uint8_t **ret_data, size_t *ret_len);
/* The key reads as exactly these bytes. */
bool bed_reads_as(struct fake_cluster *c, const char *key, const void *data, size_t len);

/* Nothing of anybody is left on the drives: no rows, stages or chunks. */
bool bed_is_empty(struct fake_cluster *c);
/* Sets delay, faults... of the drive at a slot. */
struct fake_peer *bed_slot(struct fake_cluster *c, const char *key, unsigned slot);

#endif
