/* fake_peer.c: calls in flight between an object layer and fake drives. See fake_peer.h. */
#include "tests/unit/object/fake_peer.h"

#include <stdlib.h>

#include "codec/crc32c.h"

#define ROOM_PATTERN 0x5a
#define LATE_PATTERN 0xee

/* One call on its way. The caller's struct peer_call only has a pointer to it. */
struct fake_flight {
  struct fake_peer *peer;
  struct peer_call *call;
  struct list link;
  struct fake_event arrive, answer, deadline, suspect;
  uint32_t check; /* over what must not change meanwhile */
  bool executed, cancelled;
  unsigned trace;
};

static struct fake_peer *fake_of(struct peer *peer) {
  return container_of(peer, struct fake_peer, peer);
}

static uint32_t sum_slice(uint32_t crc, struct slice s) {
  crc = crc32c(crc, &s.data, sizeof s.data);
  return s.len ? crc32c(crc, s.data, s.len) : crc;
}

/* Everything that the caller promised to leave alone. */
static uint32_t request_sum(const struct peer_request *req) {
  uint32_t crc = sum_slice(0, req->key);
  crc = sum_slice(crc, req->row);
  crc = sum_slice(crc, req->from);
  crc = sum_slice(crc, req->prefix);
  crc = sum_slice(crc, req->delimiter);
  crc = crc32c(crc, &req->verb, 1);
  for (unsigned i = 0; i < req->unit_count; i++)
    crc = sum_slice(crc, slice_of(req->units[i].data, req->units[i].len));
  return crc;
}

static void room_fill(struct peer_request *req, int pattern) {
  if (req->verb != PEER_FETCH) return;
  for (unsigned i = 0; i < req->unit_count; i++)
    if (req->units[i].len) memset(req->units[i].data, pattern, req->units[i].len);
}

static struct fake_fault *fault_due(struct fake_peer *p, uint8_t verb) {
  struct fake_fault *due = NULL;
  for (unsigned i = 0; i < FAKE_FAULTS_MAX; i++) {
    struct fake_fault *f = &p->faults[i];
    if (!f->used || (f->verb != FAKE_ANY_VERB && f->verb != verb)) continue;
    f->seen++;
    if (f->nth != 0 && f->seen != f->nth) continue;
    if (!due) due = f;
    if (f->nth != 0) f->used = false;
  }
  return due;
}

static void fetch_damage(struct fake_peer *p, struct peer_request *req) {
  if (req->verb != PEER_FETCH) return;
  p->units_fetched += req->unit_count;
  for (unsigned i = 0; i < req->unit_count; i++) {
    struct peer_unit *u = &req->units[i];
    if (u->len && p->fetch_corrupt) {
      p->fetch_corrupt--;
      u->data[u->len - 1] ^= 1;
    } else if (u->len && p->fetch_short) {
      p->fetch_short--;
      u->len--;
    }
  }
}

static void flight_execute(struct fake_flight *f) {
  struct fake_peer *p = f->peer;
  struct peer_request *req = &f->call->req;
  if (p->cluster->on_request) p->cluster->on_request(p->cluster, p, req);
  p->calls_of[req->verb]++;
  f->executed = true;
  if (p->down) {
    f->call->reply.err = ERR_PEER_DOWN;
    return;
  }
  struct fake_fault *fault = fault_due(p, req->verb);
  int err = fault ? fault->err : 0; /* the slot of a fault is free again here */
  if (!fault || fault->applied) {
    fake_drive_serve(&p->drive, req, &f->call->reply);
    if (f->call->reply.err == 0) fetch_damage(p, req);
  }
  if (err < 0) {
    peer_call_release(f->call);
    f->call->reply.err = err;
  }
}

static void latency_note(struct fake_peer *p, const struct peer_call *call) {
  if (call->req.verb != PEER_READ && call->req.verb != PEER_FETCH) return;
  uint64_t us = (p->bed->now_ms - call->started_ms) * 1000 + 100;
  p->peer.latency_us = (uint32_t)(p->peer.latency_us ? (p->peer.latency_us * 7ull + us) / 8 : us);
}

/* The one end of every call. */
static void flight_end(struct fake_flight *f, int err) {
  struct fake_peer *p = f->peer;
  struct peer_call *call = f->call;
  fake_event_stop(&f->arrive);
  fake_event_stop(&f->answer);
  fake_event_stop(&f->deadline);
  fake_event_stop(&f->suspect);
  if (err < 0) room_fill(&call->req, LATE_PATTERN);
  if (err != call->reply.err) { /* whatever was answered is lost */
    peer_call_release(call);
    call->reply = (struct peer_reply){.err = err};
  }
  if (err == 0 || (err != ERR_PEER_DOWN && err != ERR_TIMEOUT && err != ERR_CANCELLED)) {
    p->peer.suspect = false;
    latency_note(p, call);
  }
  p->cluster->trace[f->trace].err = call->reply.err;
  p->in_flight--;
  list_remove(&f->link);
  call->peer = NULL;
  call->priv[0] = NULL;
  free(f);
  call->done(call);
}

static void flight_answer(struct fake_event *e) {
  struct fake_flight *f = container_of(e, struct fake_flight, answer);
  if (f->cancelled)
    flight_end(f, ERR_CANCELLED);
  else
    flight_end(f, f->call->reply.err);
}

static void flight_check(struct fake_flight *f) {
  /* Changed bytes: the caller touched a buffer, a key or a row of a call in flight. */
  FAKE_CHECK(request_sum(&f->call->req) == f->check);
}

static uint64_t half_delay(struct fake_peer *p) {
  uint64_t jitter = p->jitter_ms ? fake_random_below(p->bed, p->jitter_ms + 1) : 0;
  return (p->delay_ms + jitter + 1) / 2;
}

static void flight_arrive(struct fake_event *e) {
  struct fake_flight *f = container_of(e, struct fake_flight, arrive);
  struct fake_peer *p = f->peer;
  flight_check(f);
  if (p->silent) return;
  flight_execute(f);
  if (p->mute || f->answer.armed) return; /* armed: on_request took the drive down */
  fake_event_start(p->bed, &f->answer, half_delay(p), flight_answer);
}

static void flight_deadline(struct fake_event *e) {
  struct fake_flight *f = container_of(e, struct fake_flight, deadline);
  f->peer->peer.suspect = true;
  flight_end(f, ERR_TIMEOUT);
}

static void flight_suspect(struct fake_event *e) {
  container_of(e, struct fake_flight, suspect)->peer->peer.suspect = true;
}

static void flight_down(struct fake_event *e) {
  flight_end(container_of(e, struct fake_flight, answer), ERR_PEER_DOWN);
}

static void trace_add(struct fake_flight *f) {
  struct fake_cluster *c = f->peer->cluster;
  const struct peer_request *req = &f->call->req;
  FAKE_CHECK(c->trace_count < FAKE_TRACE_MAX);
  f->trace = c->trace_count++;
  struct version ver = req->ver;
  struct row row;
  if (req->verb == PEER_ACCEPT && row_decode(req->row, &req->bucket, req->key, &row) == 0)
    ver = row.ver;
  c->trace[f->trace] = (struct fake_trace){.ms = f->peer->bed->now_ms,
                                           .drive = (uint8_t)f->peer->drive.index,
                                           .verb = req->verb,
                                           .slot = req->slot,
                                           .flags = req->flags,
                                           .unit_first = req->unit_first,
                                           .unit_count = req->unit_count,
                                           .ver = ver,
                                           .missing = req->missing,
                                           .err = 1};
}

static void fake_send(struct peer *peer, struct peer_call *call) {
  struct fake_peer *p = fake_of(peer);
  FAKE_CHECK(call->done);
  FAKE_CHECK(call->priv[0] == NULL); /* sent while in flight, or not zeroed */
  FAKE_CHECK(call->req.verb > 0 && call->req.verb < PEER_VERB_END);
  FAKE_CHECK(call->req.timeout_ms > 0);
  FAKE_CHECK(call->req.unit_count <= PEER_UNITS_MAX);
  struct fake_flight *f = calloc(1, sizeof *f);
  FAKE_CHECK(f);
  f->peer = p;
  f->call = call;
  call->peer = peer;
  call->priv[0] = f;
  call->reply = (struct peer_reply){0};
  call->started_ms = p->bed->now_ms;
  list_push_back(&p->calls, &f->link);
  p->in_flight++;
  p->sent_of[call->req.verb]++;
  trace_add(f);
  if (p->down) {
    fake_event_start(p->bed, &f->answer, 0, flight_down);
    return;
  }
  room_fill(&call->req, ROOM_PATTERN);
  f->check = request_sum(&call->req);
  fake_event_start(p->bed, &f->arrive, half_delay(p), flight_arrive);
  fake_event_start(p->bed, &f->deadline, call->req.timeout_ms, flight_deadline);
  fake_event_start(p->bed, &f->suspect, OBJECT_SUSPECT_MS, flight_suspect);
}

/* A request that was sent may be executed although its caller gave up: half of them are. */
static void fake_cancel(struct peer *peer, struct peer_call *call) {
  struct fake_peer *p = fake_of(peer);
  struct fake_flight *f = call->priv[0];
  if (!f || f->cancelled) return;
  f->cancelled = true;
  if (f->answer.armed) return;
  if (!f->executed && !p->silent && (fake_random(p->bed) & 1)) {
    flight_check(f);
    flight_execute(f);
  }
  fake_event_stop(&f->arrive);
  fake_event_start(p->bed, &f->answer, fake_random_below(p->bed, 2), flight_answer);
}

const struct peer_ops fake_peer_ops = {.send = fake_send, .cancel = fake_cancel};

void fake_peer_down(struct fake_peer *p) {
  p->down = true;
  p->peer.up = false;
  fake_drive_crash(&p->drive);
  list_foreach(it, &p->calls) {
    struct fake_flight *f = container_of(it, struct fake_flight, link);
    if (f->executed && f->answer.armed && f->call->req.verb == PEER_FETCH) continue;
    fake_event_stop(&f->arrive);
    fake_event_stop(&f->answer);
    fake_event_start(p->bed, &f->answer, 0, flight_down);
  }
}

void fake_peer_up(struct fake_peer *p) {
  p->down = false;
  p->peer.up = true;
  p->peer.suspect = false;
}

static void fault_add(struct fake_peer *p, enum peer_verb verb, unsigned nth, int err,
                      bool applied) {
  FAKE_CHECK(err < 0);
  for (unsigned i = 0; i < FAKE_FAULTS_MAX; i++) {
    if (p->faults[i].used) continue;
    p->faults[i] = (struct fake_fault){
        .verb = (uint8_t)verb, .nth = nth, .err = err, .applied = applied, .used = true};
    return;
  }
  FAKE_CHECK(!"fewer than FAKE_FAULTS_MAX faults");
}

void fake_peer_fail(struct fake_peer *p, enum peer_verb verb, unsigned nth, int err) {
  fault_add(p, verb, nth, err, false);
}

void fake_peer_lose_answer(struct fake_peer *p, enum peer_verb verb, unsigned nth, int err) {
  fault_add(p, verb, nth, err, true);
}

void fake_peer_heal(struct fake_peer *p) {
  memset(p->faults, 0, sizeof p->faults);
  p->silent = p->mute = false;
  p->delay_ms = 1;
  p->jitter_ms = 0;
  p->fetch_corrupt = p->fetch_short = 0;
  fake_peer_up(p);
}
