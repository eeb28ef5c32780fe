/* put_bed.c: see put_bed.h. */
#include "tests/unit/object/put_bed.h"

#include <stdlib.h>

static void put_run_done(void *arg, const struct object_put_result *result) {
  struct put_run *r = arg;
  FAKE_CHECK(!r->done); /* once */
  FAKE_CHECK(!r->body.reading);
  r->done = true;
  r->result = *result;
}

static void put_run_wanted(void *arg) {
  struct put_run *r = arg;
  r->wanted++;
  r->wanted_reads += r->body.reads;
}

static void put_run_common(struct put_run *r, struct fake_cluster *c, const char *key) {
  r->c = c;
  r->o = &c->objects;
  r->args = (struct object_put_args){.bucket = &c->bucket,
                                     .key = slice_str(key),
                                     .kind = ROW_PUT,
                                     .body = &r->body.body,
                                     .want_body = put_run_wanted};
}

void put_run_open(struct put_run *r, struct fake_cluster *c, const char *key, const void *data,
                  size_t len) {
  memset(r, 0, sizeof *r);
  put_run_common(r, c, key);
  fake_body_open(&r->body, c->bed, data, len);
}

void put_run_open_delete(struct put_run *r, struct fake_cluster *c, const char *key) {
  memset(r, 0, sizeof *r);
  put_run_common(r, c, key);
  r->args.kind = ROW_TOMB;
  r->args.body = NULL;
}

void put_run_start(struct put_run *r) {
  FAKE_CHECK(object_put_start(r->o, &r->args, put_run_done, r, &r->put) == 0);
  FAKE_CHECK(!r->done && !r->wanted); /* never inside the start */
}

int put_run_wait(struct put_run *r) {
  FAKE_CHECK(fake_run_while_not(r->c->bed, &r->done));
  return r->result.err;
}

int put_run_all(struct put_run *r) {
  put_run_start(r);
  return put_run_wait(r);
}

uint8_t *bed_bytes(size_t len, unsigned seed) {
  uint8_t *bytes = malloc(len + 1);
  FAKE_CHECK(bytes);
  uint32_t x = seed * 2654435761u + 1;
  for (size_t i = 0; i < len; i++) {
    x = x * 1664525u + 1013904223u;
    bytes[i] = (uint8_t)(x >> 24);
  }
  return bytes;
}

struct fake_peer *bed_slot(struct fake_cluster *c, const char *key, unsigned slot) {
  return fake_slot(c, slice_str(key), slot);
}

struct bed_look *bed_look(struct fake_cluster *c, const char *key, uint32_t slots) {
  struct bed_look *l = calloc(1, sizeof *l);
  FAKE_CHECK(l);
  l->place = fake_place(c, slice_str(key));
  for (unsigned i = 0; i < l->place.n; i++) {
    if (!(slots >> i & 1)) continue;
    struct peer_call call = {0};
    objects_request(&c->objects, &l->place, i, slice_str(key), PEER_READ, &call);
    fake_drive_serve(&bed_slot(c, key, i)->drive, &call.req, &call.reply);
    FAKE_CHECK(call.reply.err == 0);
    l->bodies[i] = call.reply.body;
    FAKE_CHECK(peer_rows_decode(slice_of(call.reply.body, call.reply.body_len), &c->bucket.uuid,
                                slice_str(key), &l->replies.rows[i]) == 0);
    l->replies.replied[i] = true;
  }
  classify(&l->place, &l->replies, &l->c);
  return l;
}

void bed_look_free(struct bed_look *l) {
  for (unsigned i = 0; i < MAP_SLOTS_MAX; i++) free(l->bodies[i]);
  free(l);
}

struct bed_get_run {
  struct fake_sink sink;
  bool done;
  int err;
};

static void bed_get_found(void *arg, struct object_get *get, int err, const struct row *row) {
  struct bed_get_run *r = arg;
  r->err = err;
  if (err < 0) {
    r->done = true;
  } else if (row->size == 0) {
    object_get_close(get);
    r->done = true;
  } else {
    object_get_read(get, 0, row->size, &r->sink.sink);
  }
}

static void bed_get_done(void *arg, int err, bool sent_any) {
  struct bed_get_run *r = arg;
  r->err = err;
  r->done = true;
}

int bed_get(struct fake_cluster *c, const char *key, uint8_t **ret_data, size_t *ret_len) {
  static const struct object_get_ops ops = {.found = bed_get_found, .done = bed_get_done};
  struct bed_get_run r = {0};
  struct object_get *get;
  fake_sink_open(&r.sink, c->bed);
  FAKE_CHECK(object_get_start(&c->objects, &c->bucket, slice_str(key), true, &ops, &r, &get) == 0);
  FAKE_CHECK(fake_run_while_not(c->bed, &r.done));
  if (r.err == 0) {
    *ret_len = r.sink.len;
    *ret_data = r.sink.data;
    r.sink.data = NULL;
  }
  fake_sink_close(&r.sink);
  return r.err;
}

bool bed_reads_as(struct fake_cluster *c, const char *key, const void *data, size_t len) {
  uint8_t *got = NULL;
  size_t got_len = 0;
  if (bed_get(c, key, &got, &got_len) < 0) return false;
  bool same = slice_eq(slice_of(got, got_len), slice_of(data, len));
  free(got);
  return same;
}

bool bed_is_empty(struct fake_cluster *c) {
  for (unsigned i = 0; i < c->drive_count; i++) {
    struct fake_drive *d = &c->drives[i].drive;
    if (fake_drive_row_count(d) || fake_drive_stage_count(d) || fake_drive_chunk_count(d))
      return false;
  }
  return true;
}
