/* rebuild.c: see rebuild.h.
 *
 *   read a window -> CRC and digest (CPU work) -> stage at every slot still in -> next window
 *
 * Sequential on purpose: rebuilds are rare, and one window is all the memory they may take. */
#include "storage/object/rebuild.h"

#include <errno.h>
#include <stdlib.h>

#include "codec/crc32c.h"
#include "codec/digest.h"
#include "config/err.h"
#include "storage/object/oneway.h"
#include "storage/object/slots.h"

struct rebuild_slot {
  struct peer_call call;
  struct rebuild *rebuild;
  struct chunk_digest digest;
  uint32_t crcs[PEER_UNITS_MAX]; /* of the window */
  uint8_t *bytes;                /* inline: the chunk */
  size_t len;
  struct peer_unit units[PEER_UNITS_MAX]; /* inline: in bytes */
};

enum rebuild_state { REBUILD_READING, REBUILD_WORKING, REBUILD_STAGING, REBUILD_DONE };

struct rebuild {
  struct objects *o;
  const struct key_place *place;
  struct slice key;
  const struct row *row;
  struct stripe_geometry g;
  bool is_inline;
  uint32_t want, alive, staged, pending;
  rebuild_cb cb;
  void *arg;
  struct stripe_reader *reader;
  struct stripe_window window;
  uint64_t next; /* stripes before this one are done */
  enum rebuild_state state;
  struct env_work work;
  struct env_timer start;
  int err;
  struct rebuild_slot slots[]; /* place->n */
};

bool object_is_inline(const struct objects *o, const struct stripe_geometry *g) {
  uint64_t max = MIN(o->inline_max_bytes, (uint64_t)PEER_INLINE_BYTES_MAX);
  return g->stripe_count <= PEER_UNITS_MAX && stripe_chunk_len_max(g) <= max;
}

static void rebuild_window_put(struct rebuild *rb) {
  if (rb->window.buf.data) env_buf_put(rb->o->env, &rb->window.buf);
}

static void rebuild_drop(struct rebuild *rb, uint32_t slots) {
  struct oneway drop = {
      .verb = PEER_DROP, .data_id = rb->row->data_id, .profile = rb->row->profile};
  (void)oneway_send(rb->o, rb->place, rb->key, &drop, slots & rb->staged, NULL, NULL);
  rb->staged &= ~slots;
}

/* All windows are through: only chunks whose digest is the row's are ready. */
static uint32_t rebuild_verify(struct rebuild *rb) {
  uint32_t ready = 0;
  slots_foreach(i, rb->alive) {
    struct id128 digest;
    chunk_digest_end(&rb->slots[i].digest, &digest);
    if (id128_eq(&digest, &rb->row->digests[i])) ready |= 1u << i;
  }
  rebuild_drop(rb, rb->want & ~ready);
  return ready;
}

static void rebuild_end(struct rebuild *rb) {
  rebuild_window_put(rb);
  rb->state = REBUILD_DONE;
  uint32_t ready = 0;
  if (rb->err == 0) {
    ready = rebuild_verify(rb);
    if (!ready) rb->err = ERR_UNAVAILABLE;
  } else {
    rebuild_drop(rb, rb->want);
  }
  stripe_reader_close(TAKE(rb->reader));
  rb->cb(rb->arg, rb->err, ready);
}

static void rebuild_read_next(struct rebuild *rb) {
  rebuild_window_put(rb);
  if (rb->err == 0 && !rb->alive) rb->err = ERR_UNAVAILABLE;
  if (rb->err < 0 || rb->next == rb->g.stripe_count) {
    rebuild_end(rb);
    return;
  }
  rb->state = REBUILD_READING;
  stripe_reader_read(rb->reader, rb->next, rb->g.stripe_count - rb->next);
}

static uint8_t *rebuild_unit(const struct rebuild *rb, unsigned at, unsigned slot) {
  return rb->window.buf.data + ((size_t)at * rb->window.n + slot) * rb->window.stride;
}

/* Runs on a CPU lane: touches the window, the digests and the inline chunks. */
static void rebuild_work_run(struct env_work *w) {
  struct rebuild *rb = container_of(w, struct rebuild, work);
  for (unsigned at = 0; at < rb->window.count; at++) {
    uint64_t stripe = rb->window.first + at;
    slots_foreach(i, rb->alive) {
      struct rebuild_slot *s = &rb->slots[i];
      uint32_t len = stripe_unit_len(&rb->g, stripe, i);
      const uint8_t *unit = rebuild_unit(rb, at, i);
      uint32_t crc = unit_crc(&rb->row->data_id, i, stripe, unit, len);
      s->crcs[at] = crc;
      chunk_digest_unit(&s->digest, crc, len);
      if (!rb->is_inline) continue;
      s->units[stripe] = (struct peer_unit){.data = s->bytes + s->len, .len = len, .crc = crc};
      if (len) memcpy(s->bytes + s->len, unit, len);
      s->len += len;
    }
  }
}

static void rebuild_stage_done(struct peer_call *call) {
  struct rebuild_slot *s = container_of(call, struct rebuild_slot, call);
  struct rebuild *rb = s->rebuild;
  uint32_t bit = 1u << (s - rb->slots);
  rb->pending &= ~bit;
  if (call->reply.err < 0) rb->alive &= ~bit;
  peer_call_release(call);
  if (!rb->pending) rebuild_read_next(rb);
}

static void rebuild_stage(struct rebuild *rb, unsigned slot) {
  struct rebuild_slot *s = &rb->slots[slot];
  s->call = (struct peer_call){.done = rebuild_stage_done};
  objects_request(rb->o, rb->place, slot, rb->key, PEER_STAGE, &s->call);
  struct peer_request *req = &s->call.req;
  req->data_id = rb->row->data_id;
  req->profile = rb->row->profile;
  req->unit_first = rb->window.first;
  req->unit_count = rb->window.count;
  for (unsigned at = 0; at < rb->window.count; at++)
    req->units[at] = (struct peer_unit){.data = rebuild_unit(rb, at, slot),
                                        .len = stripe_unit_len(&rb->g, rb->window.first + at, slot),
                                        .crc = s->crcs[at]};
  rb->pending |= 1u << slot;
  rb->staged |= 1u << slot;
  peer_send(rb->place->peers[slot], &s->call);
}

static void rebuild_work_done(struct env_work *w) {
  struct rebuild *rb = container_of(w, struct rebuild, work);
  rb->next = rb->window.first + rb->window.count;
  if (rb->err < 0 || rb->is_inline) {
    rebuild_read_next(rb);
    return;
  }
  rb->state = REBUILD_STAGING;
  slots_foreach(i, rb->alive) rebuild_stage(rb, i);
  if (!rb->pending) rebuild_read_next(rb);
}

static void rebuild_window(void *arg, int err, struct stripe_window *window) {
  struct rebuild *rb = arg;
  if (err == 0) rb->window = *window;
  if (rb->err == 0) rb->err = err;
  if (rb->err < 0) {
    rebuild_end(rb);
    return;
  }
  rb->state = REBUILD_WORKING;
  rb->work.run = rebuild_work_run;
  rb->work.done = rebuild_work_done;
  rb->work.cost_bytes =
      (size_t)rb->window.count * rb->row->profile.unit_bytes * slots_count(rb->alive);
  env_work(rb->o->env, &rb->work);
}

static void rebuild_started(struct env_timer *t) {
  rebuild_read_next(container_of(t, struct rebuild, start));
}

static void rebuild_free(struct rebuild *rb) {
  for (unsigned i = 0; i < rb->place->n; i++) {
    chunk_digest_abort(&rb->slots[i].digest);
    free(rb->slots[i].bytes);
  }
  rb->o->running--;
  free(rb);
}

static int rebuild_slot_open(struct rebuild *rb, unsigned slot) {
  struct rebuild_slot *s = &rb->slots[slot];
  if (rb->is_inline) {
    s->bytes = malloc((size_t)stripe_chunk_len(&rb->g, slot) + 1);
    if (!s->bytes) return -ENOMEM;
  }
  return chunk_digest_begin(&s->digest, &rb->row->data_id, slot);
}

int rebuild_start(struct objects *o, const struct key_place *place, struct slice key,
                  const struct row *row, uint32_t healthy, uint32_t want, rebuild_cb cb, void *arg,
                  struct rebuild **ret_rebuild) {
  struct rebuild *rb = calloc(1, sizeof *rb + place->n * sizeof *rb->slots);
  if (!rb) return -ENOMEM;
  rb->o = o;
  rb->place = place;
  rb->key = key;
  rb->row = row;
  rb->g = row_geometry(row);
  rb->is_inline = object_is_inline(o, &rb->g);
  rb->want = rb->alive = want;
  rb->cb = cb;
  rb->arg = arg;
  rb->start.fire = rebuild_started;
  for (unsigned i = 0; i < place->n; i++) rb->slots[i].rebuild = rb;
  o->running++;
  int err = 0;
  slots_foreach(i, want) if (err == 0) err = rebuild_slot_open(rb, i);
  if (err == 0)
    err = stripe_reader_open(o, place, row, healthy & ~want, want, NULL, rebuild_window, rb,
                             &rb->reader);
  if (err < 0) {
    rebuild_free(rb);
    return err;
  }
  env_timer_start(o->env, &rb->start, 0);
  *ret_rebuild = rb;
  return 0;
}

void rebuild_cancel(struct rebuild *rb) {
  if (rb->state == REBUILD_DONE || rb->err < 0) return;
  rb->err = ERR_CANCELLED;
  slots_foreach(i, rb->pending) peer_cancel(&rb->slots[i].call);
  if (rb->state == REBUILD_READING && !rb->start.armed) stripe_reader_cancel(rb->reader);
}

const struct peer_unit *rebuild_units(const struct rebuild *rb, unsigned slot,
                                      unsigned *ret_count) {
  *ret_count = rb->is_inline ? (unsigned)rb->g.stripe_count : 0;
  return rb->is_inline ? rb->slots[slot].units : NULL;
}

void rebuild_close(struct rebuild *rb) {
  if (rb) rebuild_free(rb);
}
