/* peer_tcp.c: see peer_tcp.h. Calls, and the life of a peer_host.
 *
 *   peer_send -> flight (slot, frame, uv_write) -> answer | deadline | cancel | connection lost
 *             -> flight_end (the result is known) -> flight_finish (the buffers are free) -> done
 *
 * `done` runs from the check handle, right after the poll that brought the answer. */
#include "storage/net/peer_tcp.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/err.h"
#include "storage/net/peer_tcp_impl.h"

#define SLOT_NONE UINT32_MAX
#define SLOT_INDEX(stream) ((stream)&0xffffu)

struct drive_peer *drive_peer_of(struct peer *peer) {
  return container_of(peer, struct drive_peer, peer);
}

/* ---- what is over, and telling so ---- */

static void deliver(struct peer_host *h) {
  struct list calls, controls;
  list_init(&calls);
  list_init(&controls);
  /* What ends while this runs waits for the next turn: a caller that sends again at once to a host
   * that is down may not keep the loop for itself. */
  list_splice_back(&calls, &h->finished);
  list_splice_back(&controls, &h->controls_over);
  for (struct list *l; (l = list_pop_front(&calls));) {
    struct peer_call *call = container_of(l, struct peer_call, link);
    call->state = CALL_IDLE;
    call->done(call);
  }
  for (struct list *l; (l = list_pop_front(&controls));) {
    struct flight *f = container_of(l, struct flight, link);
    f->control_cb(f->control_arg, f->err, slice_of(f->control_reply, f->control_reply_len));
    free(f->control_reply);
    free(f);
  }
  if (list_empty(&h->finished) && list_empty(&h->controls_over)) uv_idle_stop(&h->idle);
  host_close_advance(h);
}

static void check_turn(uv_check_t *check) {
  struct peer_host *h = check->data;
  if (h->closing || !list_empty(&h->finished) || !list_empty(&h->controls_over)) deliver(h);
}

static void idle_turn(uv_idle_t *idle) {
  (void)idle; /* its being active is its work */
}

static void wake(struct peer_host *h) {
  uv_idle_start(&h->idle, idle_turn);
}

static void call_finish(struct peer_host *h, struct peer_call *call, int err) {
  call->reply.err = err;
  call->state = CALL_FINISHED;
  call->priv[0] = NULL;
  list_push_back(&h->finished, &call->link);
  wake(h);
}

static void flight_finish(struct flight *f) {
  struct peer_host *h = f->host;
  list_remove(&f->link);
  free(TAKE(f->bytes));
  if (f->call) {
    call_finish(h, f->call, f->err);
    free(f);
    return;
  }
  list_push_back(&h->controls_over, &f->link);
  wake(h);
}

/* ---- slots ---- */

static bool slots_grow(struct peer_host *h) {
  if (h->slot_count == PEER_SLOTS_MAX) return false;
  uint32_t count = h->slot_count ? h->slot_count * 2 : PEER_SLOTS_FIRST;
  struct flight_slot *slots = realloc(h->slots, count * sizeof *slots);
  if (!slots) return false;
  for (uint32_t i = h->slot_count; i < count; i++)
    slots[i] = (struct flight_slot){.free_next = i + 1 < count ? i + 1 : SLOT_NONE};
  h->slot_free = h->slot_count;
  h->slots = slots;
  h->slot_count = count;
  return true;
}

static bool slot_take(struct peer_host *h, struct flight *f) {
  if (h->slot_free == SLOT_NONE && !slots_grow(h)) return false;
  uint32_t i = h->slot_free;
  struct flight_slot *slot = &h->slots[i];
  h->slot_free = slot->free_next;
  slot->flight = f;
  f->stream = (uint32_t)slot->generation << 16 | i;
  return true;
}

static void slot_give(struct peer_host *h, struct flight *f) {
  uint32_t i = SLOT_INDEX(f->stream);
  struct flight_slot *slot = &h->slots[i];
  assert(slot->flight == f);
  slot->flight = NULL;
  slot->generation++;
  slot->free_next = h->slot_free;
  h->slot_free = i;
}

struct flight *flight_find(struct peer_host *h, uint32_t stream) {
  uint32_t i = SLOT_INDEX(stream);
  if (i >= h->slot_count || h->slots[i].generation != stream >> 16) return NULL;
  return h->slots[i].flight;
}

/* ---- flights ---- */

static void note_latency(struct flight *f) {
  uint8_t verb = f->call->req.verb;
  if (verb != PEER_READ && verb != PEER_FETCH) return;
  uint64_t now = uv_hrtime();
  peer_latency_note(f->call->peer, (now - f->started_ns) / 1000, now / 1000000);
}

void flight_end(struct flight *f, int err) {
  struct peer_host *h = f->host;
  assert(!f->ended);
  f->ended = true;
  f->err = err;
  slot_give(h, f);
  if (h->rx == f) {
    h->rx = NULL;
    if (h->stream) stream_bulk_drop(h->stream);
  }
  if (f->call && err == 0) note_latency(f);
  if (!f->writing) flight_finish(f);
}

static void flight_written(struct stream_tx *tx, int err) {
  struct flight *f = container_of(tx, struct flight, tx);
  f->writing = false;
  free(TAKE(f->bytes));
  if (f->ended)
    flight_finish(f);
  else if (err < 0)
    flight_end(f, ERR_PEER_DOWN);
}

void flights_end_all(struct peer_host *h, int err) {
  list_foreach_safe(l, &h->flights) {
    struct flight *f = container_of(l, struct flight, link);
    if (!f->ended) flight_end(f, err);
  }
}

/* The caller gives the result up; the other end is told so that it works no further on it. */
static void flight_abandon(struct flight *f, int err) {
  struct peer_host *h = f->host;
  uint32_t stream = f->stream;
  flight_end(f, err);
  if (h->stream && h->stream->state == STREAM_OPEN)
    stream_post_empty(h->stream, FRAME_CANCEL, stream);
}

void flight_timeout(struct flight *f) {
  flight_abandon(f, ERR_TIMEOUT);
}

/* Appends the units to bufs; those that follow each other in memory are one. The number of bufs. */
static unsigned add_units(uv_buf_t *bufs, unsigned count, const struct peer_request *req) {
  for (unsigned i = 0; i < req->unit_count; i++) {
    const struct peer_unit *u = &req->units[i];
    if (u->len == 0) continue;
    uv_buf_t *last = &bufs[count - 1];
    if (count > 1 && (uint8_t *)last->base + last->len == u->data)
      last->len += u->len;
    else
      bufs[count++] = uv_buf_init((char *)u->data, u->len);
  }
  return count;
}

/* Takes w. A flight in its slot and on its way, or NULL without memory or a free slot. */
static struct flight *flight_start(struct peer_host *h, struct byte_writer *w, uint8_t type,
                                   struct peer_call *call, uint32_t timeout_ms) {
  uint32_t bulk = call ? frame_request_bulk(&call->req) : 0;
  struct flight *f = calloc(1, sizeof *f);
  if (!f || !slot_take(h, f)) goto fail;
  f->host = h;
  if (frame_end(w, type, f->stream, bulk) < 0) {
    slot_give(h, f);
    goto fail;
  }
  f->on = h->stream;
  f->call = call;
  f->started_ms = uv_now(h->loop);
  f->started_ns = uv_hrtime();
  f->timeout_ms = timeout_ms;
  f->bytes = w->data;
  f->tx.done = flight_written;
  f->writing = true;
  list_push_back(&h->flights, &f->link);
  uv_buf_t bufs[STREAM_IOVECS_MAX];
  bufs[0] = uv_buf_init((char *)w->data, (unsigned)w->len);
  unsigned count = call && bulk ? add_units(bufs, 1, &call->req) : 1;
  *w = (struct byte_writer){0};
  stream_write(h->stream, &f->tx, bufs, count);
  tick_hurry(h);
  return f;
fail:
  byte_writer_free(w);
  free(f);
  return NULL;
}

/* ---- struct peer ---- */

static void tcp_send(struct peer *peer, struct peer_call *call) {
  struct drive_peer *d = drive_peer_of(peer);
  struct peer_host *h = d->host;
  const char *why;
  call->started_ms = uv_now(h->loop);
  if (call->req.timeout_ms == 0) call->req.timeout_ms = PEER_TIMEOUT_MS_DEFAULT;
  call->req.timeout_ms = MIN(call->req.timeout_ms, (uint32_t)FRAME_TIMEOUT_MS_MAX);
  if (!peer_host_connected(h)) {
    call_finish(h, call, ERR_PEER_DOWN);
    return;
  }
  if (!d->usable) {
    call_finish(h, call, ERR_DRIVE_FAILED);
    return;
  }
  if (frame_request_check(&call->req, &why) < 0) { /* the other end would refuse it too */
    log_warn("peer", "%s to host %s was not sent: %s", frame_verb_name(call->req.verb),
             h->map->hosts[h->host].id, why);
    call_finish(h, call, ERR_INVALID);
    return;
  }
  struct byte_writer w = {0};
  frame_begin(&w, FRAME_REQUEST);
  frame_put_request(&w, peer->drive, &call->req);
  call->state = CALL_FLYING;
  struct flight *f = flight_start(h, &w, FRAME_REQUEST, call, call->req.timeout_ms);
  call->priv[0] = f;
  if (!f) call_finish(h, call, -ENOMEM);
}

static void tcp_cancel(struct peer *peer, struct peer_call *call) {
  if (call->state != CALL_FLYING) return;
  struct flight *f = call->priv[0];
  if (f->ended) return;
  struct peer_host *h = f->host;
  bool stuck = f->writing && f->on == h->stream && peer->suspect &&
               uv_now(h->loop) - h->stream->last_rx_ms >= PEER_STUCK_MS;
  flight_abandon(f, ERR_CANCELLED);
  /* The kernel takes nothing more of it: the call's buffers would be in use until the deadline. */
  if (stuck && peer_host_connected(h)) link_drop(h, "it takes no bytes");
}

static const struct peer_ops tcp_ops = {tcp_send, tcp_cancel};

void host_update_up(struct peer_host *h) {
  bool connected = peer_host_connected(h);
  for (unsigned i = 0; i < h->drive_count; i++)
    peer_set_up(&h->drives[i].peer, connected && h->drives[i].usable);
}

/* ---- struct peer_host ---- */

int peer_host_new(struct env_uv *env, const struct cluster_map *map, unsigned host,
                  struct hello_policy *policy, struct peer_host **ret_host) {
  const struct map_host *mh = &map->hosts[host];
  struct peer_host *h = calloc(1, sizeof *h);
  struct drive_peer *drives = calloc(MAX(mh->drive_count, 1), sizeof *drives);
  if (!h || !drives) {
    free(h);
    free(drives);
    return -ENOMEM;
  }
  *h = (struct peer_host){.env = env, .map = map, .host = host, .policy = policy};
  h->loop = env_uv_loop(env);
  h->drives = drives;
  h->drive_first = mh->drive_first;
  h->drive_count = mh->drive_count;
  for (unsigned i = 0; i < h->drive_count; i++) {
    drives[i].peer = (struct peer){.ops = &tcp_ops, .drive = (uint16_t)(mh->drive_first + i)};
    drives[i].host = h;
  }
  h->slot_free = SLOT_NONE;
  h->backoff_ms = PEER_BACKOFF_MS_MIN;
  list_init(&h->flights);
  list_init(&h->finished);
  list_init(&h->controls_over);
  uv_timer_init(h->loop, &h->retry);
  uv_timer_init(h->loop, &h->tick);
  uv_check_init(h->loop, &h->check);
  uv_idle_init(h->loop, &h->idle);
  h->handles = 4;
  h->retry.data = h->tick.data = h->check.data = h->idle.data = h;
  uv_check_start(&h->check, check_turn);
  h->tick_ms = uv_now(h->loop);
  uv_timer_start(&h->tick, tick_fired, PEER_TICK_IDLE_MS, 0);
  snprintf(h->trouble, sizeof h->trouble, "not connected yet");
  link_connect(h);
  *ret_host = h;
  return 0;
}

struct peer *peer_host_drive(struct peer_host *h, uint16_t drive) {
  if (drive < h->drive_first || drive >= h->drive_first + h->drive_count) return NULL;
  return &h->drives[drive - h->drive_first].peer;
}

bool peer_host_connected(const struct peer_host *h) {
  return !h->closing && h->stream && h->stream->state == STREAM_OPEN;
}

const char *peer_host_trouble(const struct peer_host *h) {
  return peer_host_connected(h) ? "" : h->trouble;
}

const struct hello *peer_host_hello(const struct peer_host *h) {
  return h->hello;
}

/* A control that could not be sent: its end comes later like any other's. */
static void control_fail(struct peer_host *h, struct flight *f, int err) {
  f->host = h;
  f->err = err;
  f->ended = true;
  list_push_back(&h->controls_over, &f->link);
  wake(h);
}

void peer_host_control(struct peer_host *h, struct slice request, uint32_t timeout_ms,
                       peer_control_cb cb, void *arg) {
  struct flight *f = NULL;
  int err = ERR_PEER_DOWN;
  if (peer_host_connected(h)) {
    struct byte_writer w = {0};
    frame_begin(&w, FRAME_CONTROL);
    put_bytes(&w, request);
    err = w.failed ? ERR_TOO_LARGE : -ENOMEM;
    f = flight_start(h, &w, FRAME_CONTROL, NULL, timeout_ms);
  }
  bool sent = f != NULL;
  if (!f) f = calloc(1, sizeof *f);
  if (!f) abort(); /* no memory for the one thing that must be said: the caller waits for ever */
  f->control_cb = cb;
  f->control_arg = arg;
  if (!sent) control_fail(h, f, err);
}

static void handle_closed(uv_handle_t *handle) {
  struct peer_host *h = handle->data;
  if (--h->handles > 0) return;
  void (*closed)(void *) = h->closed;
  void *arg = h->closed_arg;
  free(h->hello);
  free(h->hello_bytes);
  free(h->slots);
  free(h->drives);
  free(h);
  if (closed) closed(arg);
}

void host_close_advance(struct peer_host *h) {
  if (!h->closing || h->handles_closing) return;
  if (h->streams_open || !list_empty(&h->flights)) return;
  if (!list_empty(&h->finished) || !list_empty(&h->controls_over)) return;
  h->handles_closing = true;
  uv_close((uv_handle_t *)&h->retry, handle_closed);
  uv_close((uv_handle_t *)&h->tick, handle_closed);
  uv_close((uv_handle_t *)&h->check, handle_closed);
  uv_close((uv_handle_t *)&h->idle, handle_closed);
}

void peer_host_close(struct peer_host *h, void (*closed)(void *arg), void *arg) {
  assert(!h->closing);
  h->closing = true;
  h->closed = closed;
  h->closed_arg = arg;
  uv_timer_stop(&h->retry);
  struct stream *s = TAKE(h->stream);
  if (s) stream_reset(s);
  flights_end_all(h, ERR_PEER_DOWN);
  host_update_up(h);
  wake(h); /* the check handle goes on with the close */
}
