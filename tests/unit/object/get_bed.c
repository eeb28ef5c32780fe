/* get_bed.c: see get_bed.h. */
#include "tests/unit/object/get_bed.h"

#include <stdlib.h>

const struct get_bed_code get_bed_codes[GET_BED_CODES] = {
    {4, 2, "reed_sol_van"}, {2, 1, "xor"}, {2, 2, "cauchy"}, {3, 3, "xor3p"}};

void get_bed_go(struct reading *r, uint64_t size) {
  uint64_t len = r->len ? r->len : size;
  if (r->close || len == 0) {
    object_get_close(r->get);
    r->get = NULL;
    r->ended = true;
  } else {
    object_get_read(r->get, r->offset, len, &r->sink.sink);
  }
}

static void on_found(void *arg, struct object_get *get, int err, const struct row *row) {
  struct reading *r = arg;
  FAKE_CHECK(!(r->found_called));
  r->found_called = true;
  r->found_err = err;
  if (err < 0) {
    FAKE_CHECK(!row);
    r->get = NULL;
    r->ended = true;
    return;
  }
  FAKE_CHECK(get == r->get);
  r->size = row->size;
  r->ver = row->ver;
  if (!r->later) get_bed_go(r, row->size);
}

static void on_done(void *arg, int err, bool sent_any) {
  struct reading *r = arg;
  FAKE_CHECK(r->found_called && r->found_err == 0);
  FAKE_CHECK(!(r->done_called));
  r->done_called = true;
  r->done_err = err;
  r->sent_any = sent_any;
  r->get = NULL;
  r->ended = true;
}

static const struct object_get_ops get_ops = {.found = on_found, .done = on_done};

void get_bed_start(struct get_bed *b, bool want_data) {
  struct reading keep = b->r;
  memset(&b->r, 0, sizeof b->r);
  b->r.offset = keep.offset;
  b->r.len = keep.len;
  b->r.close = keep.close || !want_data;
  b->r.later = keep.later;
  fake_sink_open(&b->r.sink, &b->bed);
  b->r.sink.delay_ms = keep.sink.delay_ms;
  b->r.sink.fail_at = keep.sink.fail_at ? keep.sink.fail_at : SIZE_MAX;
  b->r.sink.err = keep.sink.err;
  int err =
      object_get_start(&b->c->objects, &b->c->bucket, KEY, want_data, &get_ops, &b->r, &b->r.get);
  FAKE_CHECK(err == 0);
  FAKE_CHECK(!(b->r.found_called));
}

void get_bed_finish(struct get_bed *b) {
  fake_run(&b->bed);
  FAKE_CHECK(b->r.ended);
  FAKE_CHECK(b->c->objects.running == 0);
  FAKE_CHECK(b->bed.buffer_count == 0);
  FAKE_CHECK(fake_calls_in_flight(b->c) == 0);
}

void get_bed_check(struct get_bed *b, const uint8_t *data) {
  uint64_t len = b->r.len ? b->r.len : b->r.size;
  FAKE_CHECK(b->r.found_err == 0);
  if (len > 0) FAKE_CHECK(b->r.done_called);
  FAKE_CHECK(b->r.done_err == 0);
  FAKE_CHECK(b->r.sink.len == len);
  FAKE_CHECK(len == 0 || memcmp(b->r.sink.data, data + b->r.offset, len) == 0);
}

/* A whole GET that must succeed. */
void get_bed_ok(struct get_bed *b) {
  get_bed_start(b, true);
  get_bed_finish(b);
  get_bed_check(b, b->data);
  fake_sink_close(&b->r.sink);
}

/* A whole GET that must not find anything to read. */
void get_bed_refused(struct get_bed *b, int err) {
  get_bed_start(b, true);
  get_bed_finish(b);
  FAKE_CHECK(b->r.found_err == err);
  FAKE_CHECK(b->r.sink.writes == 0);
  fake_sink_close(&b->r.sink);
}

void get_bed_open(struct get_bed *b, unsigned k, unsigned m, const char *technique, size_t len) {
  memset(b, 0, sizeof *b);
  fake_bed_open(&b->bed, 7);
  b->c = fake_cluster_open(&b->bed, k + m, 1, k, m, technique, UNIT);
  b->len = len;
  b->data = malloc(len + 1);
  b->other = malloc(len + 1);
  FAKE_CHECK(b->data && b->other);
  for (size_t i = 0; i < len; i++) {
    b->data[i] = (uint8_t)fake_random(&b->bed);
    b->other[i] = (uint8_t)~b->data[i];
  }
  b->all = (1u << (k + m)) - 1;
}

void get_bed_store(struct get_bed *b) {
  b->object = fake_object_store(b->c, KEY, b->data, b->len, b->all, b->all);
}

void get_bed_close(struct get_bed *b) {
  fake_cluster_close(b->c);
  fake_bed_close(&b->bed);
  free(b->data);
  free(b->other);
}

struct fake_peer *get_bed_slot(struct get_bed *b, unsigned i) {
  return fake_slot(b->c, KEY, i);
}

void get_bed_down(struct get_bed *b, uint32_t down) {
  for (unsigned i = 0; b->all >> i & 1; i++) {
    fake_peer_heal(get_bed_slot(b, i));
    if (down >> i & 1) fake_peer_down(get_bed_slot(b, i));
  }
}
static void cut_off(struct fake_cluster *c, struct fake_peer *p, const struct peer_request *req) {
  struct get_cut *cut = c->on_request_arg;
  if (req->verb == PEER_FETCH && cut->slots >> req->slot & 1 &&
      p->calls_of[PEER_FETCH] >= cut->after)
    fake_peer_down(p);
}

void get_bed_cut(struct get_bed *b, struct get_cut *cut, uint32_t slots, unsigned after) {
  *cut = (struct get_cut){slots, after};
  b->c->on_request = cut_off;
  b->c->on_request_arg = cut;
  get_bed_down(b, 0);
  for (unsigned i = 0; b->all >> i & 1; i++)
    memset(get_bed_slot(b, i)->calls_of, 0, sizeof get_bed_slot(b, i)->calls_of);
}
