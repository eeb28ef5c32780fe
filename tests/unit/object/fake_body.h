/* fake_body.h: a request's body and an answer's sink, in memory. */
#ifndef KOFN_TESTS_OBJECT_FAKE_BODY_H
#define KOFN_TESTS_OBJECT_FAKE_BODY_H

#include "storage/object/body.h"
#include "tests/unit/object/fake_env.h"

struct fake_body {
  struct body body;
  struct fake_bed *bed;
  const uint8_t *data; /* borrowed */
  size_t len, at;
  size_t chunk;      /* bytes that arrive at once; 0: all */
  uint64_t delay_ms; /* between arrivals */
  bool stall;        /* nothing arrives any more: a read waits for its cancel */
  size_t fail_at;    /* after this many bytes: `err`; SIZE_MAX: never */
  int err;
  /* of the read that waits */
  uint8_t *dst;
  size_t want, got;
  body_cb cb;
  void *arg;
  bool reading, cancelled;
  struct fake_event event;
  unsigned reads; /* ever */
};

/* All of `data`; length known. Fields may be changed before the first read. */
void fake_body_open(struct fake_body *b, struct fake_bed *bed, const void *data, size_t len);

struct fake_sink {
  struct sink sink;
  struct fake_bed *bed;
  uint8_t *data;
  size_t len, cap;
  uint64_t delay_ms; /* a write takes this long */
  size_t fail_at;    /* the write that passes this many bytes ends with `err`; SIZE_MAX: never */
  int err;
  bool stall; /* writes do not end until fake_sink_resume */
  /* Called when a write ends, before its callback; may be NULL. */
  void (*on_write)(struct fake_sink *s);
  void *user;
  /* of the write that goes on */
  const struct slice *slices;
  unsigned count;
  uint32_t check;
  sink_cb cb;
  void *arg;
  bool writing;
  struct fake_event event;
  unsigned writes; /* ever */
};

void fake_sink_open(struct fake_sink *s, struct fake_bed *bed);
void fake_sink_resume(struct fake_sink *s);
/* Checks that no write goes on; frees what was collected. */
void fake_sink_close(struct fake_sink *s);

#endif
