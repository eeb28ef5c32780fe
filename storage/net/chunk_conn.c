/* chunk_conn.c: one connection of the chunk server: frames in, calls on local peers, replies out.
 *
 *   REQUEST -> checks -> memory (maybe waits) -> bulk -> peer_send -> reply -> uv_write -> over
 *
 * A request that is not allowed is answered with an error and its bulk is dropped: only bytes that
 * cannot be understood cost the connection. A connection is freed when its stream is closed, its
 * calls are over and the stages it leaves behind are dropped. */
#include "storage/net/chunk_conn.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "config/err.h"
#include "storage/net/log_limit.h"

static const char *conn_host(const struct chunk_conn *c) {
  const struct handshake *hs = &c->stream->hs;
  return hs->remote && hs->remote->host_id[0] ? hs->remote->host_id : "(unknown)";
}

/* ---- the end of calls and of the connection ---- */

static void conn_advance(struct chunk_conn *c);

static void call_end(struct chunk_call *call) {
  struct chunk_conn *c = call->conn;
  list_remove(&call->link);
  c->call_count--;
  if (c->receiving == call) c->receiving = NULL;
  chunk_server_block_put(c->server, call);
  peer_call_release(&call->call);
  free(call->reply_bytes);
  free(call);
  if (c->waits == CHUNK_WAITS_CALLS && c->call_count < CHUNK_CONN_CALLS_MAX && !c->gone) {
    c->waits = CHUNK_RESUMABLE;
    list_push_back(&c->server->resumable, &c->wait);
    chunk_server_wake(c->server);
  }
  conn_advance(c);
}

struct drop {
  struct peer_call call;
  struct chunk_conn *conn;
};

static void drop_done(struct peer_call *call) {
  struct drop *drop = container_of(call, struct drop, call);
  struct chunk_conn *c = drop->conn;
  peer_call_release(call);
  free(drop);
  c->drops--;
  conn_advance(c);
}

/* Tells the drive to forget a stage. Without memory the drive keeps it until it is opened again. */
static void stage_drop(struct chunk_conn *c, struct chunk_stage *stage) {
  struct peer *peer = c->server->local[stage->drive];
  struct drop *drop = peer ? calloc(1, sizeof *drop) : NULL;
  if (drop) {
    drop->conn = c;
    drop->call.req.verb = PEER_DROP;
    drop->call.req.timeout_ms = CHUNK_SERVER_DROP_MS;
    drop->call.req.data_id = stage->data_id;
    drop->call.req.slot = stage->slot;
    drop->call.done = drop_done;
    c->drops++;
    peer_send(peer, &drop->call);
  }
  list_remove(&stage->link);
  c->stage_count--;
  free(stage);
}

static void stages_sweep(struct chunk_conn *c) {
  for (unsigned i = 0; i < CHUNK_CONN_STAGE_HASH; i++)
    while (!list_empty(&c->stages[i]))
      stage_drop(c, container_of(c->stages[i].next, struct chunk_stage, link));
}

static void conn_advance(struct chunk_conn *c) {
  struct chunk_server *s = c->server;
  if (c->draining && !c->gone && c->call_count == 0) {
    c->gone = true;
    stream_bye(c->stream, ERR_SHUTDOWN, err_words(ERR_SHUTDOWN));
  }
  if (!c->gone || c->call_count > 0) return;
  if (!c->swept) { /* not before: a STAGE under way would come after its DROP */
    c->swept = true;
    stages_sweep(c);
  }
  if (c->stream || c->drops > 0) return;
  list_remove(&c->link);
  s->conn_count--;
  free(c);
  chunk_server_stop_advance(s);
}

static bool reads_only(uint8_t verb) {
  return verb == PEER_READ || verb == PEER_FETCH || verb == PEER_LIST;
}

/* Nothing more comes in or goes out. Running calls go on: a write may have its effect. */
static void conn_gone(struct chunk_conn *c) {
  if (c->gone) return;
  c->gone = true;
  if (!c->open) c->server->handshakes--;
  if (c->waits == CHUNK_WAITS_MEMORY || c->waits == CHUNK_RESUMABLE) list_remove(&c->wait);
  c->waits = CHUNK_READS;
  list_foreach(l, &c->calls) {
    struct chunk_call *call = container_of(l, struct chunk_call, link);
    if (call->running && reads_only(call->call.req.verb)) peer_cancel(&call->call);
  }
  if (c->receiving)
    call_end(c->receiving);
  else
    conn_advance(c);
}

/* ---- stages ---- */

static struct list *stage_bucket(struct chunk_conn *c, const struct id128 *data_id) {
  return &c->stages[data_id->bytes[0] % CHUNK_CONN_STAGE_HASH];
}

static struct chunk_stage *stage_find(struct chunk_conn *c, uint16_t drive, uint8_t slot,
                                      const struct id128 *data_id) {
  list_foreach(l, stage_bucket(c, data_id)) {
    struct chunk_stage *st = container_of(l, struct chunk_stage, link);
    if (st->drive == drive && st->slot == slot && id128_eq(&st->data_id, data_id)) return st;
  }
  return NULL;
}

static int stage_note(struct chunk_conn *c, const struct chunk_call *call) {
  const struct peer_request *req = &call->call.req;
  if (stage_find(c, call->drive, req->slot, &req->data_id)) return 0;
  if (c->stage_count >= CHUNK_CONN_STAGES_MAX) return ERR_SLOW_DOWN;
  struct chunk_stage *st = malloc(sizeof *st);
  if (!st) return -ENOMEM;
  *st = (struct chunk_stage){.data_id = req->data_id, .drive = call->drive, .slot = req->slot};
  list_push_back(stage_bucket(c, &req->data_id), &st->link);
  c->stage_count++;
  return 0;
}

static void stage_forget(struct chunk_conn *c, struct chunk_stage *st) {
  if (!st) return;
  list_remove(&st->link);
  c->stage_count--;
  free(st);
}

/* An ACCEPT took the stage of its row's data, or (superseded) will never want it. After a refusal
 * the sender drops it, or offers it in another ACCEPT; but one that has given the ACCEPT up never
 * hears of it, and takes the stage for the row's chunk. */
static void stage_answered(struct chunk_conn *c, const struct chunk_call *call) {
  const struct peer_request *req = &call->call.req;
  bool refused = call->call.reply.err < 0;
  struct row row;
  if (row_decode(req->row, &req->bucket, req->key, &row) < 0) return;
  struct chunk_stage *st = stage_find(c, call->drive, req->slot, &row.data_id);
  if (!st) return;
  st->refused = refused;
  st->refused_on = call->stream;
  if ((call->call.reply.flags & PEER_SUPERSEDED) || (refused && call->given_up))
    stage_drop(c, st);
  else if (!refused)
    stage_forget(c, st);
}

/* The refusal on this stream came too late for its sender. */
static void stages_given_up(struct chunk_conn *c, uint32_t stream) {
  for (unsigned i = 0; i < CHUNK_CONN_STAGE_HASH && c->stage_count > 0; i++) {
    list_foreach_safe(l, &c->stages[i]) {
      struct chunk_stage *st = container_of(l, struct chunk_stage, link);
      if (st->refused && st->refused_on == stream) stage_drop(c, st);
    }
  }
}

/* ---- replies ---- */

static void reply_written(struct stream_tx *tx, int err) {
  (void)err; /* a lost connection is found by reading */
  call_end(container_of(tx, struct chunk_call, tx));
}

/* The frame's header and meta into call->reply_bytes; the number of bytes, 0 without memory. */
static size_t reply_encode(struct chunk_call *call, const struct frame_reply *r) {
  struct byte_writer w = {0};
  uint32_t bulk = (uint32_t)frame_units_bytes(r->units, r->unit_count);
  frame_begin(&w, FRAME_REPLY);
  frame_put_reply(&w, r);
  if (frame_end(&w, FRAME_REPLY, call->stream, bulk) < 0) {
    byte_writer_free(&w);
    return 0;
  }
  call->reply_bytes = w.data;
  return w.len;
}

static void reply(struct chunk_call *call) {
  struct chunk_conn *c = call->conn;
  const struct peer_reply *from = &call->call.reply;
  struct frame_reply r = {.err = call->refused ? call->refused : from->err,
                          .flags = from->flags,
                          .ver = from->ver,
                          .body = slice_of(from->body, from->body_len)};
  if (r.err == 0 && call->call.req.verb == PEER_FETCH) {
    r.unit_count = call->call.req.unit_count;
    memcpy(r.units, call->call.req.units, r.unit_count * sizeof r.units[0]);
  }
  size_t len = reply_encode(call, &r);
  if (len == 0) {
    r = (struct frame_reply){.err = ERR_TOO_LARGE};
    len = reply_encode(call, &r);
  }
  if (len == 0) { /* not even that: without an answer the connection is of no use */
    stream_reset(c->stream);
    conn_gone(c);
    call_end(call);
    return;
  }
  uv_buf_t bufs[STREAM_IOVECS_MAX];
  unsigned count = 1;
  bufs[0] = uv_buf_init((char *)call->reply_bytes, (unsigned)len);
  for (unsigned i = 0; i < r.unit_count; i++)
    if (r.units[i].len)
      bufs[count++] = uv_buf_init((char *)r.units[i].data, (unsigned)r.units[i].len);
  if (stream_unsent_bytes(c->stream) == 0) c->write_ms = uv_now(c->server->loop);
  call->tx.done = reply_written;
  stream_write(c->stream, &call->tx, bufs, count);
}

/* ---- requests ---- */

static void call_done(struct peer_call *pc) {
  struct chunk_call *call = container_of(pc, struct chunk_call, call);
  struct chunk_conn *c = call->conn;
  call->running = false;
  if (pc->req.verb == PEER_ACCEPT) stage_answered(c, call);
  if (c->gone)
    call_end(call);
  else
    reply(call);
}

static void submit(struct chunk_call *call) {
  struct chunk_conn *c = call->conn;
  const struct peer_request *req = &call->call.req;
  if (req->verb == PEER_DROP) stage_forget(c, stage_find(c, call->drive, req->slot, &req->data_id));
  call->running = true;
  call->call.done = call_done;
  peer_send(c->server->local[call->drive], &call->call);
}

/* Everything that can be said without the drive. 0 or the error to answer. */
static int check_request(struct chunk_conn *c, struct chunk_call *call) {
  const struct chunk_server *s = c->server;
  const struct peer_request *req = &call->call.req;
  const char *why = NULL;
  int err = frame_request_check(req, &why);
  if (err == 0 &&
      (call->drive >= s->map->drive_count || s->map->drives[call->drive].host != s->map->self)) {
    why = "a drive of another host";
    err = ERR_PROTOCOL;
  }
  if (err < 0) {
    log_limited(LOG_WARN, LOG_LIMIT_REFUSAL_MS, NULL, "peer", "host %s sent %s with %s",
                conn_host(c), frame_verb_name(req->verb), why);
    return err;
  }
  if (!s->local[call->drive]) return ERR_DRIVE_FAILED;
  if (req->verb == PEER_STAGE) return stage_note(c, call);
  return 0;
}

/* Units one behind the other in the block. */
static void place_units(struct chunk_call *call) {
  uint8_t *at = call->block ? call->block->data : call->meta;
  for (unsigned i = 0; i < call->call.req.unit_count; i++) {
    call->call.req.units[i].data = at;
    if (call->block) at += call->call.req.units[i].len;
  }
}

/* A drive that answers nothing holds its share already, or the request's time is over. */
static bool waits_in_vain(const struct chunk_call *call) {
  const struct chunk_server *s = call->conn->server;
  if (s->local[call->drive]->suspect && s->drive_bytes[call->drive] >= CHUNK_SERVER_STUCK_BYTES)
    return true;
  return uv_now(s->loop) - call->call.started_ms >= call->call.req.timeout_ms;
}

/* The request has its memory or is refused: what is next for it. */
static void memory_settled(struct chunk_call *call) {
  struct chunk_conn *c = call->conn;
  bool bulk = frame_request_bulk(&call->call.req) > 0;
  if (!call->refused) place_units(call);
  if (bulk) { /* read, or dropped, before anything else */
    c->receiving = call;
    if (!call->refused)
      stream_bulk_into(c->stream, call->call.req.units, call->call.req.unit_count);
    return;
  }
  c->receiving = NULL;
  if (call->refused)
    reply(call);
  else
    submit(call);
}

/* False: it has to wait. */
static bool take_memory(struct chunk_call *call) {
  struct chunk_server *s = call->conn->server;
  if (call->block_bytes == 0 || call->refused) return true;
  if (waits_in_vain(call)) {
    call->refused = ERR_TIMEOUT;
    return true;
  }
  int err = block_pool_get(&s->pool, call->block_bytes, &call->block);
  if (err == ERR_SLOW_DOWN) return false;
  if (err < 0)
    call->refused = err;
  else
    s->drive_bytes[call->drive] += call->block->size;
  return true;
}

bool chunk_conn_take_memory(struct chunk_conn *c) {
  struct chunk_call *call = c->receiving;
  if (!take_memory(call)) return false;
  /* First the queue, then the call: answering it may end the connection, which leaves the queue. */
  list_remove(&c->wait);
  c->waits = CHUNK_RESUMABLE;
  list_push_back(&c->server->resumable, &c->wait);
  chunk_server_wake(c->server);
  memory_settled(call);
  return true;
}

/* Enough is under way: the rest waits in the socket. */
static void limit_calls(struct chunk_conn *c) {
  if (c->call_count < CHUNK_CONN_CALLS_MAX || c->waits != CHUNK_READS) return;
  c->waits = CHUNK_WAITS_CALLS;
  stream_pause(c->stream);
}

static int rx_request(struct chunk_conn *c, const struct frame_header *head, struct slice meta) {
  struct chunk_server *s = c->server;
  struct chunk_call *call = calloc(1, sizeof *call + meta.len);
  if (!call) return -ENOMEM;
  memcpy(call->meta, meta.data, meta.len);
  struct peer_request *req = &call->call.req;
  if (frame_get_request(slice_of(call->meta, meta.len), &call->drive, req) < 0 ||
      frame_request_bulk(req) != head->bulk_len) {
    free(call);
    return stream_complain(c->stream, "a malformed request");
  }
  call->conn = c;
  call->stream = head->stream;
  call->call.started_ms = uv_now(s->loop);
  list_push_back(&c->calls, &call->link);
  c->call_count++;
  call->refused = check_request(c, call);
  call->block_bytes = (size_t)frame_units_bytes(req->units, req->unit_count);
  bool first = list_empty(&s->waiting) || call->block_bytes == 0 || call->refused;
  if (!first || !take_memory(call)) {
    c->receiving = call;
    c->waits = CHUNK_WAITS_MEMORY;
    list_push_back(&s->waiting, &c->wait);
    return STREAM_WAIT;
  }
  memory_settled(call);
  if (head->bulk_len == 0) limit_calls(c);
  return 0;
}

static int conn_bulk_done(struct stream *stream) {
  struct chunk_conn *c = stream->owner;
  struct chunk_call *call = TAKE(c->receiving);
  if (call->refused)
    reply(call);
  else
    submit(call);
  limit_calls(c);
  return 0;
}

static void rx_cancel(struct chunk_conn *c, uint32_t stream) {
  list_foreach(l, &c->calls) {
    struct chunk_call *call = container_of(l, struct chunk_call, link);
    if (call->stream != stream) continue;
    call->given_up = true;
    if (!call->running) break;
    peer_cancel(&call->call);
    return;
  }
  stages_given_up(c, stream);
}

static int rx_control(struct chunk_conn *c, uint32_t stream, struct slice request) {
  struct chunk_server *s = c->server;
  struct byte_writer w = {0};
  frame_begin(&w, FRAME_CONTROL_REPLY);
  put_u32(&w, 0);
  int err = s->policy->control ? s->policy->control(s->policy, c->stream->hs.host, request, &w)
                               : ERR_INVALID;
  if (w.failed) { /* the answer does not fit: only that is said */
    byte_writer_free(&w);
    w = (struct byte_writer){0};
    frame_begin(&w, FRAME_CONTROL_REPLY);
    put_u32(&w, 0);
    err = ERR_TOO_LARGE;
  }
  if (w.failed) return -ENOMEM;
  store_be32(w.data + FRAME_HEADER_BYTES, (uint32_t)MIN(err, 0));
  err = frame_end(&w, FRAME_CONTROL_REPLY, stream, 0);
  if (err < 0)
    byte_writer_free(&w);
  else
    stream_post(c->stream, &w);
  return err;
}

static int rx_ping(struct chunk_conn *c) {
  struct hello *hello = calloc(1, sizeof *hello);
  if (!hello) return -ENOMEM;
  c->server->policy->fill(c->server->policy, hello);
  struct byte_writer w = {0};
  frame_begin(&w, FRAME_PONG);
  hello_put_pong(&w, hello);
  free(hello);
  int err = frame_end(&w, FRAME_PONG, 0, 0);
  if (err < 0)
    byte_writer_free(&w);
  else
    stream_post(c->stream, &w);
  return err;
}

static int conn_frame(struct stream *stream, const struct frame_header *head, struct slice meta) {
  struct chunk_conn *c = stream->owner;
  switch (head->type) {
    case FRAME_REQUEST:
      return rx_request(c, head, meta);
    case FRAME_CANCEL:
      rx_cancel(c, head->stream);
      return 0;
    case FRAME_CONTROL:
      return rx_control(c, head->stream, meta);
    case FRAME_PING:
      return rx_ping(c);
    default:
      return stream_complain(stream, "a frame without use");
  }
}

/* ---- the connection ---- */

static void conn_ready(struct stream *stream) {
  struct chunk_conn *c = stream->owner;
  c->open = true;
  c->server->handshakes--;
  log_debug("peer", "host %s has connected from %s", conn_host(c), stream->from);
}

static void conn_ended(struct stream *stream) {
  struct chunk_conn *c = stream->owner;
  const char *host = conn_host(c), *from = stream->from, *why = stream->why;
  if (stream->end == STREAM_WE_REFUSED)
    log_limited(LOG_WARN, LOG_LIMIT_REFUSAL_MS, NULL, "peer", "refused host %s from %s: %s", host,
                from, why);
  else if (stream->end == STREAM_REFUSED_US)
    log_limited(stream->err == ERR_SHUTDOWN ? LOG_DEBUG : LOG_WARN, LOG_LIMIT_REFUSAL_MS, NULL,
                "peer", "host %s at %s refused us: %s", host, from, why);
  else if (stream->end == STREAM_NONSENSE)
    log_limited(LOG_WARN, LOG_LIMIT_REFUSAL_MS, NULL, "peer",
                "closed the connection from %s (host %s): it sent %s", from, host, why);
  else
    log_debug("peer", "the connection from %s (host %s) has ended: %s", from, host, why);
  conn_gone(c);
}

static void conn_closed(struct stream *stream) {
  struct chunk_conn *c = stream->owner;
  c->stream = NULL;
  conn_advance(c);
}

static const struct stream_ops conn_ops = {
    .ready = conn_ready,
    .frame = conn_frame,
    .bulk_done = conn_bulk_done,
    .ended = conn_ended,
    .closed = conn_closed,
};

static void refused_closed(uv_handle_t *handle) {
  free(handle);
}

/* One too many: taken and closed, for a connection that is not taken blocks the listener. */
static void refuse_connection(struct chunk_server *s, const char *why) {
  log_limited(LOG_WARN, LOG_LIMIT_REFUSAL_MS, NULL, "peer", "a connection was closed at once: %s",
              why);
  uv_tcp_t *tcp = malloc(sizeof *tcp);
  if (!tcp) return;
  if (uv_tcp_init(s->loop, tcp) < 0) {
    free(tcp);
    return;
  }
  if (uv_accept((uv_stream_t *)&s->listener, (uv_stream_t *)tcp) == 0 &&
      uv_tcp_close_reset(tcp, refused_closed) == 0)
    return;
  uv_close((uv_handle_t *)tcp, refused_closed);
}

void chunk_conn_accept(struct chunk_server *s) {
  if (s->conn_count >= CHUNK_SERVER_CONNECTIONS_MAX) {
    refuse_connection(s, "too many connections");
    return;
  }
  if (s->handshakes >= CHUNK_SERVER_HANDSHAKES_MAX) {
    refuse_connection(s, "too many unfinished handshakes");
    return;
  }
  struct chunk_conn *c = calloc(1, sizeof *c);
  int err = c ? stream_new(s->loop, &conn_ops, c, s->policy, s->map, HELLO_LISTENER, -1, &c->stream)
              : -ENOMEM;
  if (err < 0) {
    free(c);
    refuse_connection(s, err_words(err));
    return;
  }
  c->server = s;
  c->write_ms = uv_now(s->loop);
  list_init(&c->calls);
  for (unsigned i = 0; i < CHUNK_CONN_STAGE_HASH; i++) list_init(&c->stages[i]);
  list_push_back(&s->conns, &c->link);
  s->conn_count++;
  s->handshakes++;
  if (stream_accept(c->stream, (uv_stream_t *)&s->listener) < 0) {
    stream_reset(c->stream);
    conn_gone(c);
  }
}

static void conn_give_up(struct chunk_conn *c, const char *why) {
  log_limited(LOG_WARN, LOG_LIMIT_EVENT_MS, NULL, "peer",
              "gave up the connection of host %s (%s): %s", conn_host(c), c->stream->from, why);
  stream_reset(c->stream);
  conn_gone(c);
}

void chunk_conn_tick(struct chunk_conn *c, uint64_t now) {
  if (c->gone || !c->open) return;
  uint64_t unsent = stream_unsent_bytes(c->stream);
  uint64_t handed = c->stream->tx_bytes - MIN(unsent, c->stream->tx_bytes);
  if (unsent == 0 || handed > c->handed) c->write_ms = now;
  c->handed = handed;
  if (now - c->write_ms >= CHUNK_CONN_WRITE_MS) {
    conn_give_up(c, "it does not read our replies");
    return;
  }
  if (c->waits == CHUNK_WAITS_MEMORY && waits_in_vain(c->receiving)) {
    chunk_conn_take_memory(c); /* refuses it, wherever in the queue it stands */
    return;
  }
  if (c->waits != CHUNK_READS || c->draining) return;
  uint64_t silent = now - MIN(now, c->stream->last_rx_ms);
  if (c->receiving && silent >= CHUNK_CONN_BULK_MS)
    conn_give_up(c, "it stopped in the middle of a request");
  else if (silent >= CHUNK_CONN_SILENCE_MS)
    conn_give_up(c, "it is silent");
}

void chunk_conn_stop(struct chunk_conn *c) {
  if (c->gone) return;
  if (!c->open) {
    stream_reset(c->stream);
    conn_gone(c);
    return;
  }
  if (c->waits == CHUNK_WAITS_MEMORY || c->waits == CHUNK_RESUMABLE) list_remove(&c->wait);
  c->waits = CHUNK_READS;
  stream_pause(c->stream);
  stream_bulk_drop(c->stream);
  c->draining = true;
  if (c->receiving)
    call_end(c->receiving);
  else
    conn_advance(c);
}
