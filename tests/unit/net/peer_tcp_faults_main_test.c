/* peer_tcp_faults_main_test.c: peers over TCP against raw sockets that die, stop or talk nonsense.
 * Runs under TSan. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "config/err.h"
#include "tests/unit/net/tcp_client.h"

#define TEST(name) printf("%s\n", name), fflush(stdout)

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
    client_turn(&c);
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
  static struct peer_request reqs[CALLS];
  for (unsigned i = 0; i < CALLS; i++) { /* slow under a sanitizer: before any deadline runs */
    const uint32_t lens[] = {PEER_UNIT_BYTES_MAX, PEER_UNIT_BYTES_MAX};
    reqs[i] = stage_of((uint8_t)i, 0, 2);
    reqs[i].timeout_ms = i < CALLS / 2 ? 2500 : 2000;
    units_fill(&reqs[i], lens);
  }
  run_for(&c, 1);
  uint64_t start = uv_hrtime();
  for (unsigned i = 0; i < CALLS; i++) ask(&c, &a[i], 2, &reqs[i]);
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
    units_free(&a[i].call.req);
  }
  printf("  all ended after %llu ms\n", (unsigned long long)ms);
  CHECK(peer_host_drive(c.host, 2)->suspect);
  __atomic_store_n(&n.go, true, __ATOMIC_SEQ_CST);
  client_close(&c);
  raw_node_stop(&n);
}

static void test_silent_and_unasked(void) {
  TEST("a host that answers no PING is suspect before anybody asks it anything");
  static struct raw_node n;
  static struct client c;
  raw_node_start(&n, act_no_reads);
  client_open(&c, n.address, "s3cret");
  run_connected(&c, true);
  struct peer *peer = peer_host_drive(c.host, 2);
  CHECK(!peer->suspect);
  for (uint64_t end = uv_hrtime() + WAIT_NS; !peer->suspect; client_turn(&c))
    CHECK(uv_hrtime() < end);
  CHECK(peer->up && peer_host_connected(c.host));
  __atomic_store_n(&n.go, true, __ATOMIC_SEQ_CST);
  client_close(&c);
  raw_node_stop(&n);
}

static void test_stuck_cancel(void) {
  TEST("a cancel gets its buffers back from a connection that takes no bytes");
  enum { CALLS = 24 };
  static struct raw_node n;
  static struct client c;
  static struct asked a[CALLS];
  static struct peer_request reqs[CALLS];
  for (unsigned i = 0; i < CALLS; i++) {
    const uint32_t lens[] = {PEER_UNIT_BYTES_MAX, PEER_UNIT_BYTES_MAX};
    reqs[i] = stage_of((uint8_t)i, 0, 2);
    reqs[i].timeout_ms = 600000; /* never */
    units_fill(&reqs[i], lens);
  }
  raw_node_start(&n, act_no_reads);
  client_open(&c, n.address, "s3cret");
  run_connected(&c, true);
  for (unsigned i = 0; i < CALLS; i++) ask(&c, &a[i], 2, &reqs[i]);
  struct peer *peer = peer_host_drive(c.host, 2);
  for (uint64_t end = uv_hrtime() + WAIT_NS; !peer->suspect; client_turn(&c))
    CHECK(uv_hrtime() < end);
  CHECK(peer_host_connected(c.host) && !a[CALLS - 1].done);
  peer_cancel(&a[CALLS - 1].call);
  CHECK(!a[CALLS - 1].done); /* never inside the cancel */
  for (unsigned i = 0; i < CALLS; i++) run_until(&c, &a[i].done);
  for (unsigned i = 0; i < CALLS; i++) {
    CHECK(a[i].done_count == 1);
    CHECK(a[i].call.reply.err == (i == CALLS - 1 ? ERR_CANCELLED : ERR_PEER_DOWN));
    units_free(&a[i].call.req);
  }
  CHECK(!peer->up);
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
  test_death_in_mid_reply();
  test_cancel_in_bulk(false);
  test_cancel_in_bulk(true);
  test_stopped_peer();
  test_stuck_cancel();
  test_silent_and_unasked();
  test_bad_answers();
  test_close_while_connecting();
  printf("all passed\n");
  return 0;
}
