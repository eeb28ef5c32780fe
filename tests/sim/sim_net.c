/* sim_net.c: struct peer: requests on their way to drives and back. See sim.h, and peer.h for what
 * is promised to the caller: `done` exactly once, later, never inside peer_send, within the
 * deadline (remote drives), the caller's buffers untouched after it.
 *
 * A request has bytes of its own, like one on a wire: it may arrive when its caller has long gone.
 * STAGE, DROP and ACCEPT of one connection keep their order, as TCP keeps it, and when one of them
 * is lost so is the connection; everything else may overtake anything. */
#include "tests/sim/sim.h"

#define CONN_TICK_US (900 * SIM_MS)
#define SUSPECT_US (1000 * SIM_MS)
#define CUT_DETECT_US (4000 * SIM_MS)

struct session_stage {
  struct list link;
  struct sim_drive *drive;
  struct id128 data_id;
  uint8_t slot;
};

static struct sim_peer *peer_of(struct peer *p) {
  return container_of(p, struct sim_peer, peer);
}
static struct sim_host *gw_host(struct sim_gateway *gw) {
  return gw->dead ? NULL : gw->host;
}

static const char *verb_name(uint8_t verb) {
  static const char *const names[] = {"?",       "READ",      "STAGE",    "DROP",  "ACCEPT",
                                      "PROMISE", "COMMIT",    "DISCARD",  "FETCH", "LIST",
                                      "BUCKET",  "HEAL_LIST", "UNDECIDED"};
  return verb < ARRAY_LEN(names) ? names[verb] : "?";
}

static bool is_ordered(uint8_t verb) {
  return verb == PEER_STAGE || verb == PEER_DROP || verb == PEER_ACCEPT;
}

/* ---- the end of a flight ---- */

static void flight_release(struct sim_flight *f) {
  struct sim *s = f->gw->sim;
  if (f->call || !f->served || f->told) return;
  sim_stop(s, &f->arrive);
  sim_stop(s, &f->answer);
  sim_stop(s, &f->end);
  free(f->reply.body);
  free(f->bytes);
  free(f);
}

/* For the caller; from an event, never inside send. */
static void flight_done(struct sim_flight *f, int err) {
  struct peer_call *call = TAKE(f->call);
  struct sim_peer *p = f->peer;
  SIM_CHECK(call);
  list_remove(&f->link);
  p->outstanding--;
  call->reply.err = err;
  sim_stop(f->gw->sim, &f->end);
  sim_note(f->gw->sim, (uint64_t)(int64_t)err);
  flight_release(f);
  call->done(call);
}

/* A connection that dies in the middle of an answer has written part of it. */
static void scribble(struct sim_flight *f) {
  struct peer_request *req = &f->call->req;
  if (req->verb != PEER_FETCH) return;
  for (unsigned i = 0; i < req->unit_count; i++) {
    if (req->units[i].len) memset(req->units[i].data, 0x5a, req->units[i].len / 2);
  }
}

static void end_fire(struct sim_event *e) {
  struct sim_flight *f = container_of(e, struct sim_flight, end);
  SIM_TRACE(f->gw->sim, "gw%u <- d%u %s: %s", f->gw->id, f->drive->index, verb_name(f->req.verb),
            err_name(f->end_err));
  if (f->end_err != ERR_TIMEOUT) scribble(f);
  flight_done(f, f->end_err);
}

static void flight_end_later(struct sim_flight *f, int err, uint64_t delay_us) {
  struct sim *s = f->gw->sim;
  if (!f->call) return;
  sim_stop(s, &f->end);
  f->end_err = err;
  sim_after(s, &f->end, gw_host(f->gw), delay_us, end_fire);
}

/* ---- the answer ---- */

static void take_reply(struct sim_flight *f) {
  struct peer_call *call = f->call;
  call->reply = f->reply;
  f->reply.body = NULL;
  if (f->req.verb != PEER_FETCH || call->reply.err < 0) return;
  for (unsigned i = 0; i < f->req.unit_count; i++) {
    struct peer_unit *to = &call->req.units[i];
    const struct peer_unit *from = &f->req.units[i];
    SIM_CHECK(from->len <= to->len);
    if (from->len) memcpy(to->data, from->data, from->len);
    to->len = from->len;
    to->crc = from->crc;
  }
}

static void answer_fire(struct sim_event *e) {
  struct sim_flight *f = container_of(e, struct sim_flight, answer);
  struct sim *s = f->gw->sim;
  struct sim_peer *p = f->peer;
  if (!f->local && s->cut[f->drive->host->index][f->gw->host->index] && f->call) {
    sim_after(s, e, gw_host(f->gw), sim_between(s, 50, 1500) * SIM_MS, answer_fire);
    return;
  }
  f->told = false;
  if (!f->call) {
    flight_release(f);
    return;
  }
  p->answered_us = s->now_us;
  p->peer.suspect = false;
  take_reply(f);
  if (f->call->reply.err == ERR_DRIVE_FAILED) {
    p->usable = false;
    p->peer.up = false;
  }
  if (f->call->reply.err == 0 && (f->req.verb == PEER_READ || f->req.verb == PEER_FETCH))
    p->peer.latency_us =
        (uint32_t)MAX(1, (p->peer.latency_us * 7ull + s->now_us - f->started_us) / 8);
  SIM_TRACE(s, "gw%u <- d%u %s: %s", f->gw->id, f->drive->index, verb_name(f->req.verb),
            f->call->reply.err ? err_name(f->call->reply.err) : "ok");
  flight_done(f, f->call->reply.err);
}

static uint64_t net_delay(struct sim *s) {
  uint64_t d = 50 + sim_below(s, 2 * s->delay_us);
  if (sim_chance(s, s->slow)) d += sim_below(s, 20 * s->delay_us + 100 * SIM_MS);
  return d;
}

void net_drop(struct sim_flight *f) {
  f->served = true;
  flight_release(f);
}

static void session_note(struct sim_flight *f) {
  struct sim_session *se = f->session;
  list_foreach_safe(it, &se->stages) {
    struct session_stage *st = container_of(it, struct session_stage, link);
    if (st->drive != f->drive || st->slot != f->req.slot ||
        !id128_eq(&st->data_id, &f->req.data_id))
      continue;
    if (f->req.verb == PEER_STAGE) return;
    if (f->req.verb == PEER_ACCEPT && (f->reply.flags & PEER_SUPERSEDED))
      node_drop_stage(st->drive, &st->data_id, st->slot);
    list_remove(&st->link);
    free(st);
    return;
  }
  if (f->req.verb != PEER_STAGE) return;
  struct session_stage *st = calloc(1, sizeof *st);
  SIM_CHECK(st);
  *st = (struct session_stage){.drive = f->drive, .data_id = f->req.data_id, .slot = f->req.slot};
  list_push_back(&se->stages, &st->link);
}

void net_answer(struct sim_flight *f) {
  struct sim *s = f->gw->sim;
  f->served = true;
  if (f->session && f->req.verb == PEER_ACCEPT && f->reply.err == 0) session_note(f);
  SIM_TRACE(s, "     d%u %s of gw%u: %s", f->drive->index, verb_name(f->req.verb), f->gw->id,
            f->reply.err     ? err_name(f->reply.err)
            : f->reply.flags ? "superseded"
                             : "ok");
  if (!f->call || (!f->local && sim_chance(s, s->loss))) {
    flight_release(f);
    return;
  }
  f->told = true;
  sim_after(s, &f->answer, gw_host(f->gw), f->local ? 20 : net_delay(s), answer_fire);
}

/* ---- the way there ---- */

static void doom_fire(struct sim_event *e) {
  net_break(container_of(e, struct sim_conn, doom));
}

static struct sim_conn *conn_of(struct sim_flight *f) {
  return &f->gw->conns[f->drive->host->index];
}

/* A lost frame is a connection that stands still, and then dies. */
static void conn_doom(struct sim_conn *c) {
  if (c->up && c->doom.heap_at == 0)
    sim_after(c->gw->sim, &c->doom, NULL, sim_between(c->gw->sim, 1, 4000) * SIM_MS, doom_fire);
}

static void arrive_fire(struct sim_event *e) {
  struct sim_flight *f = container_of(e, struct sim_flight, arrive);
  struct sim *s = f->gw->sim;
  struct sim_host *to = f->drive->host;
  if (!to->up || to->incarnation != f->incarnation) {
    if (to->up && f->session && conn_of(f)->session == f->session) conn_doom(conn_of(f));
    net_drop(f);
    return;
  }
  if (!f->local && s->cut[f->gw->host->index][to->index]) {
    if (is_ordered(f->req.verb) || sim_chance(s, 0.3)) {
      conn_doom(conn_of(f));
      net_drop(f);
    } else { /* it may come through when the cut has healed, much later */
      sim_after(s, e, to, sim_between(s, 50, 2500) * SIM_MS, arrive_fire);
    }
    return;
  }
  if (f->session && (f->req.verb == PEER_STAGE || f->req.verb == PEER_DROP)) session_note(f);
  node_serve(f);
}

static uint8_t *copy_slice(struct slice *s, uint8_t *at) {
  if (s->len) memcpy(at, s->data, s->len);
  if (s->data) s->data = at;
  return at + s->len;
}

static void flight_copy(struct sim_flight *f, const struct peer_request *req) {
  bool fetch = req->verb == PEER_FETCH;
  size_t len = req->key.len + req->row.len + req->from.len + req->prefix.len + req->delimiter.len;
  for (unsigned i = 0; i < req->unit_count; i++) len += req->units[i].len;
  f->req = *req;
  f->bytes = malloc(len + 1);
  SIM_CHECK(f->bytes);
  uint8_t *at = copy_slice(&f->req.key, f->bytes);
  at = copy_slice(&f->req.row, at);
  at = copy_slice(&f->req.from, at);
  at = copy_slice(&f->req.prefix, at);
  at = copy_slice(&f->req.delimiter, at);
  for (unsigned i = 0; i < req->unit_count; i++) {
    struct peer_unit *u = &f->req.units[i];
    if (u->len && fetch) memset(at, 0x3c, u->len);
    if (u->len && !fetch) memcpy(at, u->data, u->len);
    u->data = at;
    at += u->len;
  }
}

static struct sim_flight *flight_new(struct sim_peer *p, const struct peer_request *req) {
  struct sim_flight *f = calloc(1, sizeof *f);
  SIM_CHECK(f);
  f->gw = p->gw;
  f->peer = p;
  f->drive = p->drive;
  f->local = p->peer.local;
  f->started_us = p->gw->sim->now_us;
  f->session = p->gw->conns[p->drive->host->index].session;
  /* A connection to a process that is gone does not lead to the next one. */
  f->incarnation = f->session ? f->session->incarnation : p->drive->host->incarnation;
  flight_copy(f, req);
  return f;
}

static void suspect_fire(struct sim_event *e) {
  struct sim_peer *p = container_of(e, struct sim_peer, suspect_event);
  struct sim *s = p->gw->sim;
  uint64_t oldest = UINT64_MAX;
  list_foreach(it, &p->gw->flights) {
    struct sim_flight *f = container_of(it, struct sim_flight, link);
    if (f->peer == p) oldest = MIN(oldest, MAX(f->started_us, p->answered_us));
  }
  if (oldest == UINT64_MAX) return;
  if (oldest + SUSPECT_US <= s->now_us)
    p->peer.suspect = true;
  else
    sim_after(s, e, gw_host(p->gw), oldest + SUSPECT_US - s->now_us, suspect_fire);
}

/* The same frame once more: only what a drive may be told twice. A second ACCEPT comes behind the
 * first, so that what was refused for lack of its chunk is not stored after all. */
static void send_twice(struct sim_flight *f) {
  struct sim *s = f->gw->sim;
  uint8_t verb = f->req.verb;
  if (verb == PEER_STAGE || verb == PEER_DROP || verb == PEER_ACCEPT || verb == PEER_FETCH) return;
  if (!sim_chance(s, s->dup)) return;
  struct sim_flight *again = flight_new(f->peer, &f->req);
  again->session = NULL;
  sim_after(s, &again->arrive, f->drive->host, net_delay(s) * sim_between(s, 1, 20), arrive_fire);
}

static void flight_leave(struct sim_flight *f) {
  struct sim *s = f->gw->sim;
  struct sim_conn *c = conn_of(f);
  uint64_t delay = f->local ? 20 : net_delay(s);
  if (!f->local && sim_chance(s, s->loss)) {
    if (is_ordered(f->req.verb)) conn_doom(c);
    net_drop(f);
    return;
  }
  if (is_ordered(f->req.verb)) {
    c->ordered_us = MAX(c->ordered_us + 1, s->now_us + delay);
    delay = c->ordered_us - s->now_us;
  }
  send_twice(f);
  sim_after(s, &f->arrive, f->drive->host, delay, arrive_fire);
}

static void sim_peer_send(struct peer *peer, struct peer_call *call) {
  struct sim_peer *p = peer_of(peer);
  struct sim_gateway *gw = p->gw;
  struct sim *s = gw->sim;
  struct sim_flight *f = flight_new(p, &call->req);
  f->call = call;
  call->priv[0] = f;
  call->started_ms = s->now_us / SIM_MS;
  list_push_back(&gw->flights, &f->link);
  p->outstanding++;
  bool connected = gw->conns[p->drive->host->index].up && !gw->dead;
  int err = !connected ? ERR_PEER_DOWN : !p->usable ? ERR_DRIVE_FAILED : 0;
  SIM_TRACE(s, "gw%u -> d%u %s%s%s", gw->id, p->drive->index, verb_name(call->req.verb),
            err ? ": " : "", err ? err_name(err) : "");
  if (err < 0) {
    f->served = true;
    flight_end_later(f, err, 0);
    return;
  }
  if (p->suspect_event.heap_at == 0 && !p->peer.suspect)
    sim_after(s, &p->suspect_event, gw_host(gw), SUSPECT_US, suspect_fire);
  uint32_t timeout_ms = call->req.timeout_ms ? call->req.timeout_ms : 5000;
  if (!f->local) flight_end_later(f, ERR_TIMEOUT, timeout_ms * SIM_MS);
  flight_leave(f);
}

static void sim_peer_cancel(struct peer *peer, struct peer_call *call) {
  (void)peer;
  struct sim_flight *f = call->priv[0];
  /* A lane cannot be interrupted: a local call ends with its result. */
  if (!f->local || f->gw->dead) flight_end_later(f, ERR_CANCELLED, 0);
}

static const struct peer_ops sim_peer_ops = {.send = sim_peer_send, .cancel = sim_peer_cancel};

/* ---- connections ---- */

static void session_sweep(struct sim_event *e) {
  struct sim_session *se = container_of(e, struct sim_session, sweep);
  bool same = se->host->up && se->host->incarnation == se->incarnation;
  for (struct list *l; (l = list_pop_front(&se->stages));) {
    struct session_stage *st = container_of(l, struct session_stage, link);
    if (same) node_drop_stage(st->drive, &st->data_id, st->slot);
    free(st);
  }
}

/* Frees it, at the end of the run: until then flights may point at it. */
void net_session_free(struct sim_session *se) {
  sim_stop(se->sim, &se->sweep);
  for (struct list *l; (l = list_pop_front(&se->stages));)
    free(container_of(l, struct session_stage, link));
  list_remove(&se->link);
  free(se);
}

/* Which of the frames that are under way still come out at the other end; then its half ends. */
static void session_end(struct sim_conn *c) {
  struct sim *s = c->gw->sim;
  struct sim_session *se = TAKE(c->session);
  if (!se) return;
  uint64_t grace = sim_chance(s, 0.5) ? 0 : sim_below(s, 30 * SIM_MS);
  for (size_t i = 0; i < s->heap_count; i++) {
    if (s->heap[i]->fire != arrive_fire) continue;
    struct sim_flight *f = container_of(s->heap[i], struct sim_flight, arrive);
    if (f->session == se && s->heap[i]->due_us > s->now_us + grace) f->incarnation = UINT64_MAX;
  }
  /* The frames that are lost say so when they would have come: the session lives as long. */
  sim_after(s, &se->sweep, c->host, grace + 1, session_sweep);
}

static void conn_set_up(struct sim_conn *c, bool up) {
  c->up = up;
  for (unsigned i = 0; i < c->gw->sim->drive_count; i++) {
    struct sim_peer *p = &c->gw->peers[i];
    if (p->drive->host == c->host) p->peer.up = up && p->usable;
  }
}

void net_break(struct sim_conn *c) {
  struct sim *s = c->gw->sim;
  sim_stop(s, &c->doom);
  if (!c->up) return;
  SIM_TRACE(s, "gw%u: the connection to n%u dies", c->gw->id, c->host->index);
  conn_set_up(c, false);
  list_foreach(it, &c->gw->flights) {
    struct sim_flight *f = container_of(it, struct sim_flight, link);
    if (f->drive->host != c->host) continue;
    if (f->told) { /* its answer was in the connection too */
      f->told = false;
      sim_stop(s, &f->answer);
    }
    flight_end_later(f, ERR_PEER_DOWN, 0);
  }
  session_end(c);
}

/* What cluster_policy.c checks in a hello: a boot counter that goes back, or counts the same boot
 * twice. What happens then is an operator's doing: the drive is taken out. (Were the host only
 * started again and again, its counter would catch up: see MUTANTS.md, gaps.) */
static bool hello_ok(struct sim_host *at, struct sim_host *of) {
  struct sim *s = at->sim;
  for (unsigned i = 0; i < s->drive_count; i++) {
    struct sim_drive *d = &s->drives[i];
    if (d->host != of || !d->drive || MUTANT(OLD_SNAPSHOT) || MUTANT(AMNESIA)) continue;
    const struct drive_identity *id = drive_identity_of(d->drive);
    bool again = id->boot_counter == at->boot_seen[i] && at->nonce_seen[i] &&
                 id->boot_nonce != at->nonce_seen[i];
    if (id->boot_counter >= at->boot_seen[i] && !again) continue;
    SIM_TRACE(s, "n%u refuses d%u, which is taken out", at->index, i);
    d->out = true;
    drive_shut(d);
    return false;
  }
  return true;
}

static void hello_remember(struct sim_host *at, struct sim_host *of) {
  for (unsigned i = 0; i < at->sim->drive_count; i++) {
    struct sim_drive *d = &at->sim->drives[i];
    if (d->host != of || !d->drive) continue;
    at->boot_seen[i] = drive_identity_of(d->drive)->boot_counter;
    at->nonce_seen[i] = drive_identity_of(d->drive)->boot_nonce;
  }
}

static void conn_learn(struct sim_conn *c) {
  for (unsigned i = 0; i < c->gw->sim->drive_count; i++) {
    struct sim_peer *p = &c->gw->peers[i];
    if (p->drive->host == c->host) p->usable = p->drive->drive && !drive_failed(p->drive->drive);
  }
}

static void conn_tick(struct sim_event *e) {
  struct sim_conn *c = container_of(e, struct sim_conn, tick);
  struct sim *s = c->gw->sim;
  struct sim_host *a = c->gw->host, *b = c->host;
  if (c->gw->dead) return;
  sim_after(s, e, a, CONN_TICK_US / 2 + sim_below(s, CONN_TICK_US), conn_tick);
  bool cut = a != b && (s->cut[a->index][b->index] || s->cut[b->index][a->index]);
  bool silent = cut || !b->up || b->paused_us > s->now_us;
  if (c->up && b->up && c->incarnation != b->incarnation) {
    net_break(c);
    return;
  }
  if (c->up && silent) {
    if (c->silent_us == 0) c->silent_us = s->now_us;
    if (s->now_us - c->silent_us >= CUT_DETECT_US) net_break(c);
    return;
  }
  c->silent_us = 0;
  if (silent) return;
  if (!c->up) {
    if (!hello_ok(a, b) || !hello_ok(b, a)) {
      SIM_TRACE(s, "gw%u and n%u refuse each other", c->gw->id, b->index);
      return;
    }
    hello_remember(a, b);
    hello_remember(b, a);
    c->incarnation = b->incarnation;
    c->ordered_us = 0;
    c->session = calloc(1, sizeof *c->session);
    SIM_CHECK(c->session);
    c->session->sim = s;
    c->session->host = b;
    c->session->incarnation = b->incarnation;
    list_init(&c->session->stages);
    list_push_back(&s->sessions, &c->session->link);
  }
  conn_learn(c);
  conn_set_up(c, true);
}

void net_gateway_open(struct sim_gateway *gw) {
  struct sim *s = gw->sim;
  list_init(&gw->flights);
  for (unsigned i = 0; i < s->drive_count; i++) {
    struct sim_peer *p = &gw->peers[i];
    p->peer = (struct peer){
        .ops = &sim_peer_ops, .drive = (uint16_t)i, .local = s->drives[i].host == gw->host};
    p->gw = gw;
    p->drive = &s->drives[i];
    gw->o.peers[i] = &p->peer;
  }
  for (unsigned i = 0; i < s->host_count; i++) {
    struct sim_conn *c = &gw->conns[i];
    c->gw = gw;
    c->host = &s->hosts[i];
    sim_after(s, &c->tick, gw->host, c->host == gw->host ? 0 : sim_below(s, 100 * SIM_MS),
              conn_tick);
  }
}

void net_gateway_dies(struct sim_gateway *gw) {
  for (unsigned i = 0; i < gw->sim->host_count; i++) {
    struct sim_conn *c = &gw->conns[i];
    sim_stop(gw->sim, &c->tick);
    net_break(c);
  }
  for (unsigned i = 0; i < gw->sim->drive_count; i++)
    sim_stop(gw->sim, &gw->peers[i].suspect_event);
  list_foreach(it, &gw->flights)
      flight_end_later(container_of(it, struct sim_flight, link), ERR_PEER_DOWN, 0);
}

/* A host has gone: those who were connected find out, sooner or later. */
void net_host_gone(struct sim_host *h) {
  struct sim *s = h->sim;
  list_foreach(it, &s->gateways) {
    struct sim_gateway *gw = container_of(it, struct sim_gateway, link);
    if (!gw->dead && gw->host != h) conn_doom(&gw->conns[h->index]);
  }
}

void net_gateway_close(struct sim_gateway *gw) {
  for (unsigned i = 0; i < gw->sim->host_count; i++) {
    sim_stop(gw->sim, &gw->conns[i].tick);
    sim_stop(gw->sim, &gw->conns[i].doom);
  }
  for (unsigned i = 0; i < gw->sim->drive_count; i++)
    sim_stop(gw->sim, &gw->peers[i].suspect_event);
}
