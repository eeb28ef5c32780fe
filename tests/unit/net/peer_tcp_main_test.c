/* peer_tcp_main_test.c: peers over TCP against a real chunk server in another thread. Runs under
 * TSan. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "config/err.h"
#include "tests/unit/net/tcp_client.h"
#include "tests/unit/net/toy_host.h"

#define TEST(name) printf("%s\n", name), fflush(stdout)

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
    units_fill(&req, lens);
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
    units_free(&req);
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
    units_fill(&req, lens);
    ask(c, &a[k], 2 + k % 1, &req);
  }
  for (unsigned k = 0; k < CHUNKS; k++) {
    run_until(c, &a[k].done);
    CHECK(a[k].call.reply.err == 0);
    peer_call_release(&a[k].call);
    units_free(&a[k].call.req);
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
      for (unsigned i = 0; i < UNITS; i++) unit_check(&a[k].call.req, i, lens[i]);
      if (round)
        free(a[k].call.req.units[0].data);
      else
        units_free(&a[k].call.req);
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
    client_turn(c);
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
    client_turn(c);
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
  bed_policy_open(&c.policy, &c.map, secret);
  if (canonical) c.policy.canonical = canonical;
  if (host) c.policy.host_id = host;
  client_open_as(&c);
  for (uint64_t end = uv_hrtime() + WAIT_NS; !bed_log_has(here) || !bed_log_has(there);) {
    CHECK(uv_hrtime() < end && !peer_host_connected(c.host));
    client_turn(&c);
  }
  run_for(&c, 400); /* further attempts say nothing new */
  CHECK(strstr(peer_host_trouble(c.host), "refused"));
  CHECK(bed_log_count(here) == 1 && bed_log_count(there) == 1);
  CHECK(!peer_host_connected(c.host) && !peer_host_hello(c.host));
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

int main(void) {
  test_real_server();
  test_comes_back();
  test_refusals();
  printf("all passed\n");
  return 0;
}
