/* peer_tcp_rx.c: what a remote host answers.
 *
 * An answer is checked against its request: a unit longer than its room, a unit that was not asked
 * for, or bulk behind anything but a FETCH is nonsense and costs the connection. An answer whose
 * call is gone (cancelled, timed out) is read and dropped. */
#include <errno.h>
#include <stdlib.h>

#include "config/err.h"
#include "storage/net/peer_tcp_impl.h"
#include "storage/net/wall_clock.h"

static struct peer_host *host_of(struct stream *s) {
  return s->owner;
}

static void note_answer(struct flight *f) {
  struct drive_peer *d = drive_peer_of(f->call->peer);
  d->answered_ms = uv_now(f->host->loop);
  d->peer.suspect = false;
  d->suspect_by_ping = false;
}

/* Body and plain fields into the call. */
static int take_reply(struct flight *f, const struct frame_reply *r) {
  struct peer_reply *reply = &f->call->reply;
  if (r->body.len) {
    reply->body = malloc(r->body.len);
    if (!reply->body) return -ENOMEM;
    memcpy(reply->body, r->body.data, r->body.len);
  }
  reply->body_len = r->body.len;
  reply->flags = r->flags;
  reply->ver = r->ver;
  return 0;
}

/* The units that follow fit the room that the call gave. */
static bool units_fit(const struct peer_request *req, const struct frame_reply *r) {
  if (r->unit_count == 0) return r->err < 0 || req->verb != PEER_FETCH;
  if (req->verb != PEER_FETCH || r->unit_count != req->unit_count) return false;
  for (unsigned i = 0; i < r->unit_count; i++)
    if (r->units[i].len > req->units[i].len) return false;
  return true;
}

/* All bytes are here: the call's own units say so. */
static void fetch_complete(struct peer_host *h, struct flight *f) {
  struct peer_request *req = &f->call->req;
  for (unsigned i = 0; i < h->rx_unit_count; i++) {
    req->units[i].len = h->rx_units[i].len;
    req->units[i].crc = h->rx_units[i].crc;
  }
  flight_end(f, 0);
}

static int take_fetch(struct stream *s, struct flight *f, const struct frame_reply *r) {
  struct peer_host *h = f->host;
  h->rx_unit_count = r->unit_count;
  for (unsigned i = 0; i < r->unit_count; i++) {
    h->rx_units[i] = r->units[i];
    h->rx_units[i].data = f->call->req.units[i].data;
  }
  if (s->head.bulk_len == 0) {
    fetch_complete(h, f);
    return 0;
  }
  h->rx = f;
  stream_bulk_into(s, h->rx_units, h->rx_unit_count);
  return 0;
}

static int rx_reply(struct stream *s, const struct frame_header *head, struct slice meta) {
  struct peer_host *h = host_of(s);
  struct frame_reply r;
  if (frame_get_reply(meta, &r) < 0) return stream_complain(s, "a malformed reply");
  if (frame_units_bytes(r.units, r.unit_count) != head->bulk_len)
    return stream_complain(s, "a reply whose units and bulk differ in length");
  struct flight *f = flight_find(h, head->stream);
  if (!f) return 0; /* nobody waits for it any more; its bulk is dropped */
  if (!f->call) return stream_complain(s, "a reply to a control");
  if (!units_fit(&f->call->req, &r)) return stream_complain(s, "a reply with units not asked for");
  note_answer(f);
  if (r.err == ERR_DRIVE_FAILED) {
    drive_peer_of(f->call->peer)->usable = false; /* until a PONG says otherwise */
    host_update_up(h);
  }
  int err = take_reply(f, &r);
  if (err == 0 && r.err == 0 && r.unit_count > 0) return take_fetch(s, f, &r);
  flight_end(f, err < 0 ? err : r.err);
  return 0;
}

static int rx_control_reply(struct stream *s, const struct frame_header *head, struct slice meta) {
  struct flight *f = flight_find(host_of(s), head->stream);
  if (!f) return 0;
  if (f->call) return stream_complain(s, "a control's reply to a call");
  struct byte_reader r = byte_reader_of(meta);
  int err = (int)get_u32(&r);
  struct slice body = get_bytes(&r, byte_reader_left(&r));
  if (r.failed || err > 0) return stream_complain(s, "a malformed reply to a control");
  if (body.len) {
    f->control_reply = malloc(body.len);
    if (f->control_reply) memcpy(f->control_reply, body.data, body.len);
    if (!f->control_reply) err = -ENOMEM;
    f->control_reply_len = f->control_reply ? body.len : 0;
  }
  flight_end(f, err);
  return 0;
}

static int rx_pong(struct stream *s, struct slice meta) {
  struct peer_host *h = host_of(s);
  struct hello *now = calloc(1, sizeof *now);
  if (!now) return 0; /* the next one will do */
  struct byte_reader r = byte_reader_of(meta);
  int err = hello_get_pong(&r, now);
  h->ping_out = false;
  for (unsigned i = 0; i < h->drive_count; i++) { /* only the host's silence spoke against these */
    struct drive_peer *d = &h->drives[i];
    if (d->suspect_by_ping) d->peer.suspect = d->suspect_by_ping = false;
  }
  if (err == 0) {
    wall_clock_heard(h->host, now->wall_ms);
    link_take_drives(h, now);
  }
  free(now);
  return err < 0 ? stream_complain(s, "a malformed PONG") : 0;
}

int peer_rx_frame(struct stream *s, const struct frame_header *head, struct slice meta) {
  switch (head->type) {
    case FRAME_REPLY:
      return rx_reply(s, head, meta);
    case FRAME_CONTROL_REPLY:
      return rx_control_reply(s, head, meta);
    case FRAME_PONG:
      return rx_pong(s, meta);
    default:
      return stream_complain(s, "a frame without use");
  }
}

int peer_rx_bulk_done(struct stream *s) {
  struct peer_host *h = host_of(s);
  struct flight *f = h->rx;
  if (!f) return 0; /* it was dropped */
  h->rx = NULL;
  note_answer(f);
  fetch_complete(h, f);
  return 0;
}
