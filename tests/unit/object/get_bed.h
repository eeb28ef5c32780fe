/* get_bed.h: helpers of the read-side tests: one GET, its sink, and an object on all drives. */
#ifndef KOFN_TESTS_OBJECT_GET_BED_H
#define KOFN_TESTS_OBJECT_GET_BED_H

#include "storage/object/object.h"
#include "tests/unit/object/fake_body.h"
#include "tests/unit/object/fake_peer.h"

#define UNIT 4096u
#define KEY SLICE_LIT("dir/an object")
#define STRIPE (4 * UNIT)

/* One GET and what came of it. */
struct reading {
  struct object_get *get;
  struct fake_sink sink;
  bool found_called, done_called, ended; /* ended: the last callback ran */
  int found_err, done_err;
  bool sent_any, close, later;
  uint64_t offset, len; /* len 0: all of it */
  uint64_t size;
  struct version ver;
};

struct get_bed {
  struct fake_bed bed;
  struct fake_cluster *c;
  uint8_t *data, *other;
  size_t len;
  struct fake_object object;
  uint32_t all;
  struct reading r;
};
/* Profiles that the tests go through. */
#define GET_BED_CODES 4
struct get_bed_code {
  unsigned k, m;
  const char *technique;
};
extern const struct get_bed_code get_bed_codes[GET_BED_CODES];

/* k+m hosts with one drive each and `len` random bytes in `data`; `other` has none of them. */
void get_bed_open(struct get_bed *b, unsigned k, unsigned m, const char *technique, size_t len);
void get_bed_close(struct get_bed *b);
/* `data` as a chosen object on all slots. */
void get_bed_store(struct get_bed *b);
struct fake_peer *get_bed_slot(struct get_bed *b, unsigned i);
/* These slots are down, all others are well. */
void get_bed_down(struct get_bed *b, uint32_t down);
/* These slots go down when their FETCH number `after` arrives. `cut` stays with the bed. */
struct get_cut {
  uint32_t slots;
  unsigned after;
};
void get_bed_cut(struct get_bed *b, struct get_cut *cut, uint32_t slots, unsigned after);

/* Starts a GET (or HEAD); offset, len, close, later and the sink's fields are taken from b->r. */
void get_bed_start(struct get_bed *b, bool want_data);
/* The read or close that `later` put off. */
void get_bed_go(struct reading *r, uint64_t size);
/* Runs until idle: it has ended and left nothing behind. */
void get_bed_finish(struct get_bed *b);
/* What the sink got is the range of `data`. */
void get_bed_check(struct get_bed *b, const uint8_t *data);
/* A whole GET that must succeed; one that must not find anything to read. */
void get_bed_ok(struct get_bed *b);
void get_bed_refused(struct get_bed *b, int err);

#endif
