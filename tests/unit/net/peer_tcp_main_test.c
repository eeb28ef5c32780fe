/* peer_tcp_main_test.c: peers over TCP against a real chunk server in another thread, and against
 * raw sockets that misbehave. Runs under TSan. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "codec/crc32c.h"
#include "config/err.h"
#include "tests/unit/net/toy_host.h"

#define TEST(name) printf("%s\n", name), fflush(stdout)
#define WAIT_NS (20ull * 1000000000)

/* Host n1, on the main thread. */
struct client {
  struct cluster_map map;
  struct bed_policy policy;
  uv_loop_t loop;
  struct cpu_lanes *lanes;
  struct env_uv *env;
  struct peer_host *host;
  bool closed;
};

struct asked {
  struct peer_call call;
  bool done;
  unsigned done_count;
};

static void asked_done(struct peer_call *call) {
  struct asked *a = container_of(call, struct asked, call);
  a->done = true;
  a->done_count++;
}

static void client_open(struct client *c, const char *address, const char *secret) {
  bed_map(&c->map, 0, NULL, address);
  bed_policy_open(&c->policy, &c->map, secret);
  c->closed = false;
  CHECK(uv_loop_init(&c->loop) == 0);
  CHECK(cpu_lanes_start(1, &c->lanes) == 0);
  CHECK(env_uv_open(&c->loop, c->lanes, 16 << 20, &c->env) == 0);
  CHECK(peer_host_new(c->env, &c->map, 1, &c->policy.policy, &c->host) == 0);
}

static void host_closed(void *arg) {
  struct client *c = arg;
  c->closed = true;
}

static void turn(struct client *c) {
  uv_run(&c->loop, UV_RUN_ONCE);
}

static void run_until(struct client *c, const bool *flag) {
  for (uint64_t end = uv_hrtime() + WAIT_NS; !*flag;) {
    CHECK(uv_hrtime() < end);
    turn(c);
  }
}

static void run_for(struct client *c, unsigned ms) {
  for (uint64_t end = uv_hrtime() + ms * 1000000ull; uv_hrtime() < end;) {
    uv_run(&c->loop, UV_RUN_NOWAIT);
    usleep(1000);
  }
}

static void run_connected(struct client *c, bool connected) {
  for (uint64_t end = uv_hrtime() + WAIT_NS; peer_host_connected(c->host) != connected;) {
    CHECK(uv_hrtime() < end);
    turn(c);
  }
}

static void client_close(struct client *c) {
  peer_host_close(c->host, host_closed, c);
  run_until(c, &c->closed);
  env_uv_close(c->env);
  uv_run(&c->loop, UV_RUN_DEFAULT);
  CHECK(uv_loop_close(&c->loop) == 0);
  cpu_lanes_stop(c->lanes);
}

static void ask(struct client *c, struct asked *a, uint16_t drive, const struct peer_request *req) {
  *a = (struct asked){.call = {.req = *req, .done = asked_done}};
  peer_send(peer_host_drive(c->host, drive), &a->call);
  CHECK(!a->done); /* never inside */
}

static int ask_wait(struct client *c, struct asked *a, uint16_t drive,
                    const struct peer_request *req) {
  ask(c, a, drive, req);
  run_until(c, &a->done);
  CHECK(a->done_count == 1);
  return a->call.reply.err;
}

static struct peer_request read_of(const char *key, uint32_t timeout_ms) {
  return (struct peer_request){.verb = PEER_READ, .timeout_ms = timeout_ms, .key = slice_str(key)};
}

static const struct profile profile = {TECHNIQUE_CAUCHY, 4, 2, PEER_UNIT_BYTES_MAX};

static uint8_t pattern(uint8_t id, uint64_t unit, size_t i) {
  return (uint8_t)(id * 3 + unit * 5 + i * 7 + i / 1000);
}

static struct peer_request stage_of(uint8_t id, uint64_t first, unsigned units) {
  return (struct peer_request){.verb = PEER_STAGE,
                               .timeout_ms = 20000,
                               .slot = 1,
                               .data_id = {{id, 1, 2}},
                               .profile = profile,
                               .unit_first = first,
                               .unit_count = units};
}

/* Gives the units their bytes, from memory of their own (not contiguous). */
static void fill(struct peer_request *req, const uint32_t *lens) {
  for (unsigned i = 0; i < req->unit_count; i++) {
    struct peer_unit *u = &req->units[i];
    u->len = lens[i];
    u->data = malloc(u->len + 1);
    CHECK(u->data);
    for (uint32_t at = 0; at < u->len; at++)
      u->data[at] = pattern(req->data_id.bytes[0], req->unit_first + i, at);
    u->crc = unit_crc(&req->data_id, req->slot, req->unit_first + i, u->data, u->len);
  }
}

static void drop_units(struct peer_request *req) {
  for (unsigned i = 0; i < req->unit_count; i++) free(req->units[i].data);
}

static void check_unit(const struct peer_request *req, unsigned i, uint32_t len) {
  const struct peer_unit *u = &req->units[i];
  CHECK(u->len == len);
  CHECK(u->crc == unit_crc(&req->data_id, req->slot, req->unit_first + i, u->data, u->len));
  for (uint32_t at = 0; at < len; at++)
    CHECK(u->data[at] == pattern(req->data_id.bytes[0], req->unit_first + i, at));
}

/* ---- against a real server ---- */

static void test_every_verb(struct client *c) {
  TEST("every verb arrives whole");
  for (uint8_t verb = PEER_READ; verb < PEER_VERB_END; verb++) {
    if (verb == PEER_FETCH) continue;
    struct peer_request req = stage_of(1, 3, 0), seen;
    req.verb = verb;
    req.key = SLICE_LIT("k/\xc3\xa9");
    req.ver = (struct version){11, 12};
    req.row = SLICE_LIT("row");
    req.bucket_state = BUCKET_DELETING;
    req.missing = 5;
    req.from = SLICE_LIT("f");
    req.prefix = SLICE_LIT("p");
    req.delimiter = SLICE_LIT("/");
    req.limit = 10;
    req.age_ms = 99;
    req.partition = 77;
    req.epoch = 3;
    const uint32_t lens[] = {100, 0, 33};
    if (verb == PEER_STAGE || verb == PEER_ACCEPT) req.unit_count = 3;
    fill(&req, lens);
    struct asked a;
    uint16_t drive = 0;
    CHECK(ask_wait(c, &a, 2, &req) == 0);
    struct slice body = slice_of(a.call.reply.body, a.call.reply.body_len);
    CHECK(frame_get_request(body, &drive, &seen) == 0);
    CHECK(drive == 2 && seen.verb == verb && seen.missing == 5 && seen.age_ms == 99);
    CHECK(seen.ver.hlc == 11 && seen.ver.nonce == 12 && seen.limit == 10 && seen.epoch == 3);
    CHECK(seen.partition == 77 && seen.unit_first == 3 && seen.bucket_state == BUCKET_DELETING);
    CHECK(slice_eq(seen.key, req.key) && slice_eq(seen.row, req.row));
    CHECK(slice_eq(seen.from, req.from) && slice_eq(seen.prefix, req.prefix));
    CHECK(slice_eq(seen.delimiter, req.delimiter) && seen.unit_count == req.unit_count);
    for (unsigned i = 0; i < req.unit_count; i++)
      CHECK(seen.units[i].len == lens[i] && seen.units[i].crc == req.units[i].crc);
    peer_call_release(&a.call);
    drop_units(&req);
  }
}

static void test_errors_and_bodies(struct client *c) {
  TEST("errors with their version, and long bodies");
  struct asked a;
  struct peer_request req = read_of("err", 5000);
  CHECK(ask_wait(c, &a, 2, &req) == ERR_PROMISED);
  CHECK(a.call.reply.ver.hlc == 7 && a.call.reply.ver.nonce == 8);
  req = read_of("big", 20000);
  CHECK(ask_wait(c, &a, 2, &req) == 0);
  CHECK(a.call.reply.body_len == TOY_BIG_BYTES);
  for (size_t i = 0; i < TOY_BIG_BYTES; i++)
    CHECK(a.call.reply.body[i] == (uint8_t)(i * 7 + i / 256));
  peer_call_release(&a.call);
  CHECK(peer_host_drive(c->host, 2)->latency_us > 0);
}

static void test_payloads(struct client *c, struct toy_host *n) {
  TEST("large units there and back, many at a time, byte by byte");
  enum { CHUNKS = 6, UNITS = 5 };
  const uint32_t lens[UNITS] = {PEER_UNIT_BYTES_MAX, 65536, 1, 0, 300001};
  static struct asked a[CHUNKS];
  for (unsigned k = 0; k < CHUNKS; k++) {
    struct peer_request req = stage_of((uint8_t)(50 + k), 0, UNITS);
    fill(&req, lens);
    ask(c, &a[k], 2 + k % 1, &req);
  }
  for (unsigned k = 0; k < CHUNKS; k++) {
    run_until(c, &a[k].done);
    CHECK(a[k].call.reply.err == 0);
    peer_call_release(&a[k].call);
    drop_units(&a[k].call.req);
  }
  CHECK(toy_get(&n->toys[2].counts.crc_errors) == 0);
  for (unsigned round = 0; round < 2; round++) {
    for (unsigned k = 0; k < CHUNKS; k++) {
      struct peer_request req = stage_of((uint8_t)(50 + k), 0, UNITS);
      req.verb = PEER_FETCH;
      uint8_t *room = round ? malloc(UNITS * (size_t)PEER_UNIT_BYTES_MAX) : NULL;
      for (unsigned i = 0; i < UNITS; i++) {
        req.units[i].len = PEER_UNIT_BYTES_MAX; /* more room than is needed */
        req.units[i].data =
            round ? room + i * (size_t)PEER_UNIT_BYTES_MAX : malloc(PEER_UNIT_BYTES_MAX);
        CHECK(req.units[i].data);
      }
      ask(c, &a[k], 2, &req);
    }
    for (unsigned k = 0; k < CHUNKS; k++) {
      run_until(c, &a[k].done);
      CHECK(a[k].call.reply.err == 0);
      for (unsigned i = 0; i < UNITS; i++) check_unit(&a[k].call.req, i, lens[i]);
      if (round)
        free(a[k].call.req.units[0].data);
      else
        drop_units(&a[k].call.req);
    }
  }
}

static void test_drive_state(struct client *c, struct toy_host *n) {
  TEST("a drive out of service fails at once; one that fails comes back with a PONG");
  struct asked a;
  struct peer_request req = read_of("k", 5000);
  CHECK(!peer_host_drive(c->host, 3)->up && peer_host_drive(c->host, 2)->up);
  CHECK(ask_wait(c, &a, 3, &req) == ERR_DRIVE_FAILED);
  CHECK(toy_get(&n->toys[3].counts.served) == 0);
  CHECK(peer_host_drive(c->host, 0) == NULL && peer_host_drive(c->host, 4) == NULL);
  req = read_of("failed", 5000);
  CHECK(ask_wait(c, &a, 2, &req) == ERR_DRIVE_FAILED);
  CHECK(!peer_host_drive(c->host, 2)->up);
  for (uint64_t end = uv_hrtime() + WAIT_NS; !peer_host_drive(c->host, 2)->up;) {
    CHECK(uv_hrtime() < end);
    turn(c);
  }
  req = read_of("k", 5000);
  CHECK(ask_wait(c, &a, 2, &req) == 0);
  peer_call_release(&a.call);
  req.slot = 200; /* what no host would take is not even sent */
  CHECK(ask_wait(c, &a, 2, &req) == ERR_INVALID);
}

static void test_deadline_and_cancel(struct client *c, struct toy_host *n) {
  TEST("deadlines and cancels end calls once, and the other end is told");
  struct toy *toy = &n->toys[2];
  unsigned cancelled = toy_get(&toy->counts.cancelled);
  struct asked a, b, d;
  struct peer_request req = read_of("k", 300);
  toy_hold(toy, true);
  CHECK(ask_wait(c, &a, 2, &req) == ERR_TIMEOUT);
  CHECK(toy_wait(&toy->counts.cancelled, cancelled + 1));
  CHECK(peer_host_connected(c->host)); /* the host answers PINGs: only the drive is silent */

  req.timeout_ms = 20000;
  ask(c, &a, 2, &req);
  peer_cancel(&a.call); /* before the loop has turned */
  peer_cancel(&a.call);
  CHECK(!a.done);
  run_until(c, &a.done);
  CHECK(a.call.reply.err == ERR_CANCELLED && a.done_count == 1);

  ask(c, &b, 2, &req); /* while the drive has it */
  for (uint64_t end = uv_hrtime() + WAIT_NS; toy_get(&toy->counts.in_flight) == 0;) {
    CHECK(uv_hrtime() < end);
    uv_run(&c->loop, UV_RUN_NOWAIT);
  }
  peer_cancel(&b.call);
  run_until(c, &b.done);
  CHECK(b.call.reply.err == ERR_CANCELLED);
  run_for(c, 50);
  CHECK(a.done_count == 1 && b.done_count == 1); /* their late answers find nobody */
  toy_hold(toy, false);
  CHECK(toy_wait(&toy->counts.in_flight, 0));

  ask(c, &d, 2, &req); /* answered while nobody looks: then cancel comes late or wins, once */
  usleep(100000);
  peer_cancel(&d.call);
  run_until(c, &d.done);
  CHECK(d.done_count == 1);
  peer_call_release(&d.call);
}

static void test_suspect(struct client *c, struct toy_host *n) {
  TEST("a drive that is silent is suspect until it answers");
  struct toy *toy = &n->toys[2];
  struct peer *peer = peer_host_drive(c->host, 2);
  struct asked a;
  struct peer_request req = read_of("k", 20000);
  CHECK(!peer->suspect);
  toy_hold(toy, true);
  ask(c, &a, 2, &req);
  for (uint64_t end = uv_hrtime() + WAIT_NS; !peer->suspect;) {
    CHECK(uv_hrtime() < end && !a.done);
    turn(c);
  }
  CHECK(peer_host_connected(c->host));
  toy_hold(toy, false);
  run_until(c, &a.done);
  CHECK(a.call.reply.err == 0 && !peer->suspect);
  peer_call_release(&a.call);
}

struct control {
  bool done;
  int err;
  uint8_t reply[32];
  size_t len;
};

static void control_done(void *arg, int err, struct slice reply) {
  struct control *k = arg;
  CHECK(!k->done && reply.len <= sizeof k->reply);
  k->done = true;
  k->err = err;
  k->len = reply.len;
  if (reply.len) memcpy(k->reply, reply.data, reply.len);
}

static void test_controls(struct client *c) {
  TEST("controls, their answers and their errors");
  struct control k = {0};
  peer_host_control(c->host, SLICE_LIT("hello"), 5000, control_done, &k);
  CHECK(!k.done);
  run_until(c, &k.done);
  CHECK(k.err == 0 && k.len == 6 && memcmp(k.reply, "\0hello", 6) == 0);
  k = (struct control){0};
  peer_host_control(c->host, SLICE_LIT("fail"), 5000, control_done, &k);
  run_until(c, &k.done);
  CHECK(k.err == ERR_CONFIG && k.len == 7 && memcmp(k.reply, "because", 7) == 0);
  const struct hello *hello = peer_host_hello(c->host);
  CHECK(hello && strcmp(hello->host_id, "n2") == 0 && hello->drive_count == 2);
  CHECK(strcmp(hello->canonical, "two hosts") == 0);
}

static void test_real_server(void) {
  static struct toy_host n;
  static struct client c;
  n = (struct toy_host){.unusable[3] = true};
  toy_host_start(&n, 1, NULL);
  client_open(&c, n.address, "s3cret");
  struct asked a;
  struct peer_request req = read_of("k", 5000);
  CHECK(!peer_host_connected(c.host) && peer_host_trouble(c.host)[0]);
  CHECK(ask_wait(&c, &a, 2, &req) == ERR_PEER_DOWN); /* at once: not connected yet */
  run_connected(&c, true);
  CHECK(peer_host_trouble(c.host)[0] == 0);
  test_every_verb(&c);
  test_errors_and_bodies(&c);
  test_payloads(&c, &n);
  test_drive_state(&c, &n);
  test_deadline_and_cancel(&c, &n);
  test_suspect(&c, &n);
  test_controls(&c);

  TEST("closing ends what is under way");
  static struct asked many[20];
  toy_hold(&n.toys[2], true);
  for (unsigned i = 0; i < ARRAY_LEN(many); i++) ask(&c, &many[i], 2, &req);
  struct control k = {0};
  peer_host_control(c.host, SLICE_LIT("x"), 5000, control_done, &k);
  client_close(&c);
  for (unsigned i = 0; i < ARRAY_LEN(many); i++)
    CHECK(many[i].done_count == 1 && many[i].call.reply.err == ERR_PEER_DOWN);
  CHECK(k.done && k.err == ERR_PEER_DOWN);
  toy_hold(&n.toys[2], false);
  toy_host_stop(&n);
}

static void test_comes_back(void) {
  TEST("a host that goes and comes back: calls end, one line each way, calls go again");
  static struct toy_host n;
  static struct client c;
  char address[32];
  bed_log_begin();
  n = (struct toy_host){0};
  toy_host_start(&n, 1, NULL);
  memcpy(address, n.address, sizeof address);
  client_open(&c, address, "s3cret");
  run_connected(&c, true);
  CHECK(peer_host_drive(c.host, 2)->up);
  toy_host_stop(&n);
  run_connected(&c, false);
  CHECK(!peer_host_drive(c.host, 2)->up && peer_host_trouble(c.host)[0]);
  struct asked a;
  struct peer_request req = read_of("k", 5000);
  CHECK(ask_wait(&c, &a, 2, &req) == ERR_PEER_DOWN);
  run_for(&c, 1200); /* several attempts */
  n = (struct toy_host){0};
  toy_host_start(&n, 1, address);
  run_connected(&c, true);
  CHECK(ask_wait(&c, &a, 2, &req) == 0);
  peer_call_release(&a.call);
  client_close(&c);
  toy_host_stop(&n);
  CHECK(bed_log_count(" is away: ") == 1);
  CHECK(bed_log_count(" is connected") == 2);
  bed_log_end();
}

static void refused(struct toy_host *n, const char *secret, const char *canonical, const char *host,
                    const char *here, const char *there) {
  static struct client c;
  bed_log_begin();
  toy_host_start(n, 1, NULL);
  bed_map(&c.map, 0, NULL, n->address);
  CHECK(uv_loop_init(&c.loop) == 0 && cpu_lanes_start(1, &c.lanes) == 0);
  CHECK(env_uv_open(&c.loop, c.lanes, 16 << 20, &c.env) == 0);
  bed_policy_open(&c.policy, &c.map, secret);
  if (canonical) c.policy.canonical = canonical;
  if (host) c.policy.host_id = host;
  CHECK(peer_host_new(c.env, &c.map, 1, &c.policy.policy, &c.host) == 0);
  for (uint64_t end = uv_hrtime() + WAIT_NS; !bed_log_has(here) || !bed_log_has(there);) {
    CHECK(uv_hrtime() < end && !peer_host_connected(c.host));
    turn(&c);
  }
  run_for(&c, 400); /* further attempts say nothing new */
  CHECK(strstr(peer_host_trouble(c.host), "refused"));
  CHECK(bed_log_count(here) == 1 && bed_log_count(there) == 1);
  CHECK(!peer_host_connected(c.host) && !peer_host_hello(c.host));
  c.closed = false;
  client_close(&c);
  toy_host_stop(n);
  bed_log_end();
}

static void test_refusals(void) {
  TEST("refusals are logged in words at both ends");
  static struct toy_host n;
  n = (struct toy_host){0};
  refused(&n, "wrong", NULL, NULL, ") refused us: cluster secret differs",
          "refused host n1 from 127.0.0.1: cluster secret differs");
  n = (struct toy_host){0};
  refused(&n, "s3cret", "three hosts", NULL,
          ") refused us: membership differs: they have \"three hosts\"",
          "refused host n1 from 127.0.0.1: membership differs: they have \"three hosts\"");
  n = (struct toy_host){0};
  refused(&n, "s3cret", NULL, "n9", ") refused us: no host n9 is known here",
          "refused host n9 from 127.0.0.1: no host n9 is known here");
  n = (struct toy_host){.host_id = "n5"}; /* here it is the connector who refuses */
  refused(&n, "s3cret", NULL, NULL, "): at the address of host n2 answers host n5",
          "refused us: at the address of host n2 answers host n5");
}

/* ---- against raw sockets ---- */

/* A raw host n2 in a thread: accepts one connection, shakes hands, then runs `act`. */
struct raw_node {
  int listen_fd;
  char address[32];
  struct cluster_map map;
  struct bed_policy policy;
  void (*act)(struct raw *r, struct raw_node *n);
  bool go; /* atomic; the test lets it go on */
  pthread_t thread;
};

static void *raw_node_main(void *arg) {
  struct raw_node *n = arg;
  char why[HELLO_WORDS_BYTES_MAX];
  struct raw r = raw_accept(n->listen_fd);
  CHECK(raw_shake(&r, &n->policy.policy, &n->map, HELLO_LISTENER, why) == 0);
  n->act(&r, n);
  raw_close(&r);
  return NULL;
}

static void raw_node_start(struct raw_node *n, void (*act)(struct raw *, struct raw_node *)) {
  *n = (struct raw_node){.act = act};
  n->listen_fd = raw_listen(n->address);
  bed_map(&n->map, 1, NULL, n->address);
  bed_policy_open(&n->policy, &n->map, "s3cret");
  CHECK(pthread_create(&n->thread, NULL, raw_node_main, n) == 0);
}

static void raw_node_stop(struct raw_node *n) {
  pthread_join(n->thread, NULL);
  close(n->listen_fd);
}

static void raw_wait_go(struct raw_node *n) {
  for (int i = 0; i < 20000 && !__atomic_load_n(&n->go, __ATOMIC_SEQ_CST); i++) usleep(1000);
}

/* The stream id of the next REQUEST. */
static uint32_t raw_request(struct raw *r) {
  struct frame_header head;
  uint8_t *meta;
  do {
    CHECK(raw_next(r, &head, &meta));
    free(meta);
  } while (head.type != FRAME_REQUEST);
  return head.stream;
}

static void raw_reply(struct raw *r, uint32_t stream, const struct frame_reply *reply,
                      struct slice bulk, size_t cut) {
  struct byte_writer w = {0};
  frame_begin(&w, FRAME_REPLY);
  frame_put_reply(&w, reply);
  CHECK(frame_end(&w, FRAME_REPLY, stream,
                  (uint32_t)frame_units_bytes(reply->units, reply->unit_count)) == 0);
  size_t head = MIN(cut, w.len);
  raw_send(r, w.data, head);
  raw_send(r, bulk.data, MIN(cut - head, bulk.len));
  byte_writer_free(&w);
}

enum { UNIT = 50000 };
static uint8_t bulk_bytes[2 * UNIT];
static size_t cut_at; /* set before the thread starts */

static struct frame_reply fetch_reply(void) {
  return (struct frame_reply){.unit_count = 2, .units = {{NULL, UNIT, 1}, {NULL, UNIT, 2}}};
}

static void act_die_in_reply(struct raw *r, struct raw_node *n) {
  (void)n;
  struct frame_reply reply = fetch_reply();
  raw_reply(r, raw_request(r), &reply, slice_of(bulk_bytes, sizeof bulk_bytes), cut_at);
}

static struct peer_request fetch_into(uint8_t *room) {
  struct peer_request req = stage_of(1, 0, 2);
  req.verb = PEER_FETCH;
  for (unsigned i = 0; i < 2; i++) req.units[i] = (struct peer_unit){room + i * UNIT, UNIT, 0};
  return req;
}

static void test_death_in_mid_reply(void) {
  TEST("a connection that dies in the middle of a reply ends its calls exactly once");
  static struct raw_node n;
  static struct client c;
  const size_t cuts[] = {0, 1, 27, 28, 40, 1000, UNIT, 90000};
  for (size_t i = 0; i < ARRAY_LEN(cuts); i++) {
    cut_at = cuts[i];
    raw_node_start(&n, act_die_in_reply);
    client_open(&c, n.address, "s3cret");
    run_connected(&c, true);
    uint8_t *room = malloc(2 * UNIT);
    struct peer_request req = fetch_into(room), other = read_of("k", 20000);
    struct asked a, b;
    ask(&c, &a, 2, &req);
    ask(&c, &b, 3, &other);
    run_until(&c, &a.done);
    run_until(&c, &b.done);
    CHECK(a.call.reply.err == ERR_PEER_DOWN && b.call.reply.err == ERR_PEER_DOWN);
    free(room); /* nothing may be written into it any more */
    run_for(&c, 20);
    CHECK(a.done_count == 1 && b.done_count == 1);
    client_close(&c);
    raw_node_stop(&n);
  }
}

static void act_pause_in_bulk(struct raw *r, struct raw_node *n) {
  struct frame_reply reply = fetch_reply();
  uint32_t stream = raw_request(r);
  struct slice whole = slice_of(bulk_bytes, sizeof bulk_bytes);
  raw_reply(r, stream, &reply, whole, 70000);
  raw_wait_go(n);
  /* The rest of the first reply (its head is shorter than 200 bytes), then one for the next call.
   */
  struct byte_writer w = {.max = 4096};
  frame_put_reply(&w, &reply);
  size_t sent = 70000 - FRAME_HEADER_BYTES - w.len;
  byte_writer_free(&w);
  raw_send(r, whole.data + sent, whole.len - sent);
  reply = (struct frame_reply){.err = ERR_NOT_FOUND};
  raw_reply(r, raw_request(r), &reply, (struct slice){0}, SIZE_MAX);
  raw_wait_go(n);
}

static void test_cancel_in_bulk(bool timeout) {
  TEST(timeout ? "a deadline in the middle of a bulk" : "a cancel in the middle of a bulk");
  static struct raw_node n;
  static struct client c;
  raw_node_start(&n, act_pause_in_bulk);
  client_open(&c, n.address, "s3cret");
  run_connected(&c, true);
  uint8_t *room = calloc(1, 2 * UNIT);
  memset(bulk_bytes, 0xaa, sizeof bulk_bytes);
  struct peer_request req = fetch_into(room);
  if (timeout) req.timeout_ms = 400;
  struct asked a, b;
  ask(&c, &a, 2, &req);
  for (uint64_t end = uv_hrtime() + WAIT_NS; room[UNIT] != 0xaa && !a.done;) { /* second unit */
    CHECK(uv_hrtime() < end);
    turn(&c);
  }
  if (!timeout) peer_cancel(&a.call);
  run_until(&c, &a.done);
  CHECK(a.call.reply.err == (timeout ? ERR_TIMEOUT : ERR_CANCELLED));
  free(room); /* the rest of the bulk goes elsewhere */
  struct peer_request next = read_of("k", 20000);
  ask(&c, &b, 2, &next);
  __atomic_store_n(&n.go, true, __ATOMIC_SEQ_CST);
  run_until(&c, &b.done);
  CHECK(b.call.reply.err == ERR_NOT_FOUND); /* the stream of frames is still in step */
  CHECK(a.done_count == 1);
  client_close(&c);
  raw_node_stop(&n);
}

static void act_no_reads(struct raw *r, struct raw_node *n) {
  (void)r;
  raw_wait_go(n);
}

static void test_stopped_peer(void) {
  TEST("a peer that reads nothing is reset within the deadline; cancels wait for the buffers");
  enum { CALLS = 24 };
  static struct raw_node n;
  static struct client c;
  static struct asked a[CALLS];
  raw_node_start(&n, act_no_reads);
  client_open(&c, n.address, "s3cret");
  run_connected(&c, true);
  uint64_t start = uv_hrtime();
  for (unsigned i = 0; i < CALLS; i++) {
    const uint32_t lens[] = {PEER_UNIT_BYTES_MAX, PEER_UNIT_BYTES_MAX};
    struct peer_request req = stage_of((uint8_t)i, 0, 2);
    req.timeout_ms = i < CALLS / 2 ? 2500 : 2000;
    fill(&req, lens);
    ask(&c, &a[i], 2, &req);
  }
  run_for(&c, 100);
  peer_cancel(&a[CALLS - 1].call);
  run_for(&c, 100);
  CHECK(!a[CALLS - 1].done); /* libuv still writes from its units */
  CHECK(peer_host_connected(c.host));
  for (unsigned i = 0; i < CALLS; i++) run_until(&c, &a[i].done);
  uint64_t ms = (uv_hrtime() - start) / 1000000;
  CHECK(!peer_host_connected(c.host));
  for (unsigned i = 0; i < CALLS; i++) {
    int err = a[i].call.reply.err;
    CHECK(a[i].done_count == 1);
    CHECK(err == (i == CALLS - 1  ? ERR_CANCELLED
                  : i < CALLS / 2 ? ERR_PEER_DOWN
                                  : ERR_TIMEOUT) ||
          (i != CALLS - 1 && (err == ERR_PEER_DOWN || err == ERR_TIMEOUT)));
    drop_units(&a[i].call.req);
  }
  printf("  all ended after %llu ms\n", (unsigned long long)ms);
  CHECK(peer_host_drive(c.host, 2)->suspect);
  __atomic_store_n(&n.go, true, __ATOMIC_SEQ_CST);
  client_close(&c);
  raw_node_stop(&n);
}

/* What the raw host sends in answer to the first request. */
static enum bad_answer {
  BAD_GARBAGE,
  BAD_TYPE,
  BAD_CRC,
  BAD_LONG_UNIT,
  BAD_UNASKED_UNITS,
  BAD_BULK_LENGTH,
  BAD_META,
  BAD_COUNT
} bad_answer;

static void act_bad_answer(struct raw *r, struct raw_node *n) {
  static const uint8_t zeros[64];
  uint32_t stream = raw_request(r);
  struct frame_reply reply = fetch_reply();
  struct byte_writer w = {0};
  struct slice bulk = slice_of(bulk_bytes, sizeof bulk_bytes);
  uint8_t byte, flipped[FRAME_HEADER_BYTES];
  switch (bad_answer) {
    case BAD_GARBAGE:
      raw_send(r, zeros, sizeof zeros);
      break;
    case BAD_TYPE:
      raw_frame(r, FRAME_REQUEST, stream, (struct slice){0}, (struct slice){0});
      break;
    case BAD_CRC:
      frame_header_encode(&(struct frame_header){FRAME_PONG, 0, 0, 0, 0}, flipped);
      flipped[9] ^= 1;
      raw_send(r, flipped, sizeof flipped);
      break;
    case BAD_LONG_UNIT:
      reply.units[1].len = UNIT + 1;
      raw_reply(r, stream, &reply, bulk, SIZE_MAX);
      break;
    case BAD_UNASKED_UNITS:
      reply.unit_count = 1;
      raw_reply(r, stream, &reply, slice_of(bulk.data, UNIT), SIZE_MAX);
      break;
    case BAD_BULK_LENGTH:
      w.max = 4096;
      frame_put_reply(&w, &reply);
      raw_frame(r, FRAME_REPLY, stream, slice_of(w.data, w.len), slice_of(bulk.data, 10));
      break;
    default:
      raw_frame(r, FRAME_REPLY, stream, SLICE_LIT("x"), (struct slice){0});
      break;
  }
  byte_writer_free(&w);
  while (raw_recv(r, &byte, 1)) { /* until the other end has closed */
  }
  (void)n;
}

static void test_bad_answers(void) {
  TEST("answers that the protocol does not allow cost the connection, and calls end once");
  static struct raw_node n;
  static struct client c;
  for (unsigned bad = 0; bad < BAD_COUNT; bad++) {
    bad_answer = bad;
    bed_log_begin();
    raw_node_start(&n, act_bad_answer);
    client_open(&c, n.address, "s3cret");
    run_connected(&c, true);
    uint8_t *room = malloc(2 * UNIT);
    struct peer_request req = fetch_into(room);
    struct asked a;
    CHECK(ask_wait(&c, &a, 2, &req) == ERR_PEER_DOWN);
    CHECK(!peer_host_connected(c.host));
    CHECK(bed_log_has("; the connection is closed"));
    free(room);
    client_close(&c);
    raw_node_stop(&n);
    bed_log_end();
  }
}

static void test_close_while_connecting(void) {
  TEST("closing in every stage of the connection");
  static struct client c;
  char address[32];
  int fd = raw_listen(address); /* accepts, never shakes hands */
  for (unsigned turns = 0; turns < 6; turns++) {
    client_open(&c, address, "s3cret");
    for (unsigned i = 0; i < turns; i++) uv_run(&c.loop, UV_RUN_NOWAIT);
    client_close(&c);
  }
  close(fd);
  for (unsigned turns = 0; turns < 4; turns++) { /* nobody listens */
    client_open(&c, address, "s3cret");
    for (unsigned i = 0; i < turns; i++) uv_run(&c.loop, UV_RUN_NOWAIT);
    client_close(&c);
  }
  client_open(&c, "localhost:1", "s3cret"); /* a name: the resolver is under way */
  client_close(&c);
  client_open(&c, "localhost:1", "s3cret");
  run_for(&c, 300);
  client_close(&c);
}

int main(void) {
  test_real_server();
  test_comes_back();
  test_refusals();
  test_death_in_mid_reply();
  test_cancel_in_bulk(false);
  test_cancel_in_bulk(true);
  test_stopped_peer();
  test_bad_answers();
  test_close_while_connecting();
  printf("all passed\n");
  return 0;
}
