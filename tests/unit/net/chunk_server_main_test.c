/* chunk_server_main_test.c: a chunk server against raw sockets that behave and misbehave. Runs
 * under TSan. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "codec/crc32c.h"
#include "config/err.h"
#include "tests/unit/net/toy_host.h"

#define TEST(name) printf("%s\n", name), fflush(stdout)

static struct cluster_map client_map;
static struct bed_policy client_policy;

static struct raw shaken(const struct toy_host *n) {
  char why[HELLO_WORDS_BYTES_MAX];
  struct raw r = raw_connect(n->address);
  CHECK(raw_shake(&r, &client_policy.policy, &client_map, HELLO_CONNECTOR, why) == 0);
  return r;
}

static struct peer_request read_of(struct slice key) {
  return (struct peer_request){.verb = PEER_READ, .timeout_ms = 20000, .key = key};
}

/* One or more units of `len` bytes in one malloc'ed buffer. */
static uint8_t *stage_of(struct peer_request *req, uint8_t id, unsigned units, uint32_t len) {
  *req = (struct peer_request){.verb = PEER_STAGE,
                               .timeout_ms = 20000,
                               .slot = 1,
                               .data_id = {{id, 9}},
                               .profile = {TECHNIQUE_CAUCHY, 4, 2, PEER_UNIT_BYTES_MAX},
                               .unit_count = units};
  uint8_t *data = malloc((size_t)units * len + 1);
  CHECK(data);
  for (size_t i = 0; i < (size_t)units * len; i++) data[i] = (uint8_t)(i * 31 + id + i / 4096);
  for (unsigned i = 0; i < units; i++) {
    uint8_t *at = data + (size_t)i * len;
    req->units[i] = (struct peer_unit){at, len, unit_crc(&req->data_id, 1, i, at, len)};
  }
  return data;
}

static void send_request(struct raw *r, uint32_t stream, uint16_t drive,
                         const struct peer_request *req) {
  struct byte_writer w = {.max = 1 << 20};
  frame_put_request(&w, drive, req);
  uint32_t bulk = frame_request_bulk(req);
  raw_frame(r, FRAME_REQUEST, stream, slice_of(w.data, w.len),
            slice_of(bulk ? req->units[0].data : NULL, bulk));
  byte_writer_free(&w);
}

/* The next reply's error; 1 where the connection has ended. */
static int reply_err(struct raw *r, uint32_t *ret_stream) {
  struct frame_header head;
  struct frame_reply reply;
  uint8_t *meta;
  if (!raw_next(r, &head, &meta)) return 1;
  CHECK(head.type == FRAME_REPLY);
  CHECK(frame_get_reply(slice_of(meta, head.meta_len), &reply) == 0);
  CHECK(frame_units_bytes(reply.units, reply.unit_count) == head.bulk_len);
  *ret_stream = head.stream;
  free(meta);
  return reply.err;
}

static int ask(struct raw *r, uint32_t stream, uint16_t drive, const struct peer_request *req) {
  uint32_t got = 0;
  send_request(r, stream, drive, req);
  int err = reply_err(r, &got);
  CHECK(err == 1 || got == stream);
  return err;
}

static void test_garbage_closes_only_its_connection(struct toy_host *n) {
  TEST("garbage bytes close their own connection and no other");
  uint8_t noise[256], bytes[FRAME_HEADER_BYTES], byte;
  struct peer_request read = read_of(SLICE_LIT("k"));
  struct raw good = shaken(n);
  CHECK(ask(&good, 1, 2, &read) == 0);
  for (size_t i = 0; i < sizeof noise; i++) noise[i] = (uint8_t)(i * 97 + 13);

  struct raw stranger = raw_connect(n->address); /* before any handshake; the server says HELLO */
  raw_send(&stranger, noise, sizeof noise);
  char why[HELLO_WORDS_BYTES_MAX];
  CHECK(!raw_bye(&stranger, why));
  raw_close(&stranger);

  struct raw bad = shaken(n);
  raw_send(&bad, noise, sizeof noise);
  CHECK(!raw_recv(&bad, &byte, 1));
  raw_close(&bad);

  struct frame_header oversized = {FRAME_PING, 0, 1, 0, 0};
  struct raw big = shaken(n);
  frame_header_encode(&oversized, bytes);
  raw_send(&big, bytes, sizeof bytes);
  CHECK(!raw_recv(&big, &byte, 1));
  raw_close(&big);

  struct frame_header wrong_crc = {FRAME_CONTROL, 0, 3, 0, 12345};
  struct raw crc = shaken(n);
  frame_header_encode(&wrong_crc, bytes);
  raw_send(&crc, bytes, sizeof bytes);
  raw_send(&crc, "abc", 3);
  CHECK(!raw_recv(&crc, &byte, 1));
  raw_close(&crc);

  CHECK(ask(&good, 2, 2, &read) == 0);
  raw_close(&good);
}

static void test_frames_out_of_place(struct toy_host *n) {
  TEST("frames that may not come are refused");
  struct peer_request read = read_of(SLICE_LIT("k"));
  struct frame_header head;
  uint8_t *meta, byte;
  struct raw early = raw_connect(n->address);
  send_request(&early, 1, 2, &read);
  CHECK(raw_next(&early, &head, &meta) && head.type == FRAME_HELLO); /* and nothing after it */
  free(meta);
  CHECK(!raw_recv(&early, &byte, 1));
  raw_close(&early);
  const uint8_t types[] = {FRAME_REPLY, FRAME_PONG, FRAME_HELLO, FRAME_PROOF};
  for (size_t i = 0; i < ARRAY_LEN(types); i++) {
    struct raw r = shaken(n);
    raw_frame(&r, types[i], 0, (struct slice){0}, (struct slice){0});
    CHECK(!raw_recv(&r, &byte, 1));
    raw_close(&r);
  }
  struct raw cut = shaken(n); /* a good frame around a malformed request */
  raw_frame(&cut, FRAME_REQUEST, 1, SLICE_LIT("short"), (struct slice){0});
  CHECK(!raw_recv(&cut, &byte, 1));
  raw_close(&cut);
}

static void test_requests_are_checked(struct toy_host *n) {
  TEST("a request that is not allowed is answered, and the connection lives");
  struct raw r = shaken(n);
  struct peer_request req = read_of(SLICE_LIT("k"));
  unsigned served = toy_get(&n->toys[2].counts.served);
  req.slot = MAP_SLOTS_MAX;
  CHECK(ask(&r, 1, 2, &req) == ERR_PROTOCOL);
  req = read_of(SLICE_LIT("k"));
  CHECK(ask(&r, 2, 0, &req) == ERR_PROTOCOL); /* a drive of n1 */
  CHECK(ask(&r, 3, 999, &req) == ERR_PROTOCOL);
  CHECK(ask(&r, 4, 3, &req) == ERR_DRIVE_FAILED); /* not in service */
  req.verb = 200;
  CHECK(ask(&r, 5, 2, &req) == ERR_PROTOCOL);
  uint8_t *data = stage_of(&req, 1, 2, 5000);
  req.slot = 6; /* beyond its profile: the bulk must be dropped, not taken for the next frame */
  CHECK(ask(&r, 6, 2, &req) == ERR_PROTOCOL);
  free(data);
  CHECK(toy_get(&n->toys[2].counts.served) == served);
  req = read_of(SLICE_LIT("err"));
  CHECK(ask(&r, 7, 2, &req) == ERR_PROMISED);
  CHECK(toy_get(&n->toys[2].counts.served) == served + 1);
  raw_close(&r);
}

/* An ACCEPT whose row carries the data id. */
static void accept_of(struct peer_request *req, uint8_t id, const char *key, uint8_t **ret_row) {
  struct row row = {.ver = {5, id},
                    .kind = ROW_PUT,
                    .op_id = {{id, 3}},
                    .data_id = {{id, 9}},
                    .profile = {TECHNIQUE_CAUCHY, 4, 2, 4096},
                    .size = 16384,
                    .etag = SLICE_LIT("e")};
  size_t len;
  *req = (struct peer_request){
      .verb = PEER_ACCEPT, .timeout_ms = 20000, .slot = 1, .key = slice_of(key, strlen(key))};
  for (unsigned i = 0; i < 6; i++) row.digests[i].bytes[0] = (uint8_t)(i + 1);
  CHECK(row_encode(&row, NULL, 0, &req->bucket, req->key, ret_row, &len) == 0);
  req->row = slice_of(*ret_row, len);
}

static void test_stages_die_with_their_connection(struct toy_host *n) {
  TEST("stages that no ACCEPT took are dropped when their connection closes");
  struct toy *toy = &n->toys[2];
  unsigned drops = toy_get(&toy->counts.drops);
  struct raw r = shaken(n);
  struct peer_request req;
  uint8_t *row;
  for (uint8_t id = 10; id < 15; id++) {
    uint8_t *data = stage_of(&req, id, 2, 6000);
    CHECK(ask(&r, id, 2, &req) == 0);
    free(data);
  }
  accept_of(&req, 10, "k", &row);
  CHECK(ask(&r, 20, 2, &req) == 0);
  free(row);
  req = (struct peer_request){
      .verb = PEER_DROP, .timeout_ms = 20000, .slot = 1, .data_id = {{11, 9}}};
  CHECK(ask(&r, 21, 2, &req) == 0);
  CHECK(toy_get(&toy->counts.drops) == drops + 1); /* the one that was asked for */
  raw_close(&r);
  CHECK(toy_wait(&toy->counts.drops, drops + 4)); /* 12, 13, 14 */
  CHECK(toy_get(&toy->counts.crc_errors) == 0);
}

/* Its sender has given the ACCEPT up, before the refusal or while it was on its way. Found by
 * stopping hosts under load: each left a file that lay there as long as the connection lived. */
static void test_stages_of_refused_accepts(struct toy_host *n) {
  TEST("a stage goes when its ACCEPT was refused and given up, and stays when only one is true");
  struct toy *toy = &n->toys[2];
  unsigned drops = toy_get(&toy->counts.drops);
  struct raw r = shaken(n);
  struct peer_request req;
  uint8_t *row;
  uint32_t stream;
  for (uint8_t id = 60; id < 64; id++) {
    uint8_t *data = stage_of(&req, id, 2, 6000);
    CHECK(ask(&r, id, 2, &req) == 0);
    free(data);
    accept_of(&req, id, id == 63 ? "k" : "err", &row);
    if (id == 60) toy_hold(toy, true);
    send_request(&r, 100u + id, 2, &req);
    if (id == 60) {
      raw_frame(&r, FRAME_CANCEL, 160, (struct slice){0}, (struct slice){0});
      CHECK(reply_err(&r, &stream) == ERR_CANCELLED && stream == 160);
      toy_hold(toy, false);
    } else {
      CHECK(reply_err(&r, &stream) == (id == 63 ? 0 : ERR_PROMISED) && stream == 100u + id);
    }
    free(row);
  }
  CHECK(toy_wait(&toy->counts.drops, drops + 1)); /* 60: before */
  raw_frame(&r, FRAME_CANCEL, 161, (struct slice){0}, (struct slice){0});
  raw_frame(&r, FRAME_CANCEL, 163, (struct slice){0}, (struct slice){0});
  CHECK(toy_wait(&toy->counts.drops, drops + 2)); /* 61: on its way */
  req = read_of(SLICE_LIT("k"));
  CHECK(ask(&r, 9, 2, &req) == 0);
  CHECK(toy_get(&toy->counts.drops) == drops + 2); /* 62 may be offered again, 63 is the row's */
  raw_close(&r);
  CHECK(toy_wait(&toy->counts.drops, drops + 3));
}

static void test_death_in_mid_frame(struct toy_host *n) {
  TEST("a connection that dies in the middle of a STAGE leaves nothing behind");
  struct toy *toy = &n->toys[2];
  unsigned stages = toy_get(&toy->counts.stages), drops = toy_get(&toy->counts.drops);
  struct peer_request req;
  uint8_t *data = stage_of(&req, 30, 4, 100000);
  struct byte_writer w = {.max = 1 << 20};
  frame_put_request(&w, 2, &req);
  struct frame_header h = {FRAME_REQUEST, 1, (uint32_t)w.len, 400000, crc32c(0, w.data, w.len)};
  uint8_t bytes[FRAME_HEADER_BYTES];
  frame_header_encode(&h, bytes);
  const size_t cuts[] = {0, 1, 99999, 100000, 250000, 399999};
  for (size_t i = 0; i < ARRAY_LEN(cuts); i++) {
    struct raw r = shaken(n);
    raw_send(&r, bytes, sizeof bytes);
    raw_send(&r, w.data, w.len);
    raw_send(&r, data, cuts[i]);
    raw_close(&r);
    CHECK(toy_wait(&toy->counts.drops, drops + (unsigned)i + 1));
  }
  CHECK(toy_get(&toy->counts.stages) == stages); /* no STAGE reached the drive */
  for (size_t cut = 0; cut < w.len; cut += 13) { /* in the header and the meta */
    struct raw r = shaken(n);
    raw_send(&r, bytes, MIN(cut, sizeof bytes));
    if (cut > sizeof bytes) raw_send(&r, w.data, cut - sizeof bytes);
    raw_close(&r);
  }
  struct raw r = shaken(n);
  CHECK(ask(&r, 1, 2, &req) == 0);
  raw_close(&r);
  CHECK(toy_wait(&toy->counts.drops, drops + 7));
  byte_writer_free(&w);
  free(data);
}

struct sender {
  struct raw *r;
  unsigned count;
};

static void *send_stages(void *arg) {
  struct sender *s = arg;
  for (unsigned i = 0; i < s->count; i++) {
    struct peer_request req;
    uint8_t *data = stage_of(&req, (uint8_t)(100 + i), 1, PEER_UNIT_BYTES_MAX);
    send_request(s->r, i, 2, &req);
    free(data);
  }
  return NULL;
}

static void test_memory_is_bounded(struct toy_host *n) {
  TEST("while no buffer is free the connection is not read");
  struct toy *toy = &n->toys[2];
  const unsigned fit = CHUNK_SERVER_BUFFER_BYTES / PEER_UNIT_BYTES_MAX;
  struct raw r = shaken(n);
  struct sender s = {&r, 3 * fit};
  pthread_t thread;
  toy_hold(toy, true);
  CHECK(pthread_create(&thread, NULL, send_stages, &s) == 0);
  CHECK(toy_wait(&toy->counts.in_flight, fit));
  usleep(200000);
  CHECK(toy_get(&toy->counts.in_flight) == fit); /* not one more */
  struct raw other = shaken(n);                  /* what needs no buffer goes on */
  raw_frame(&other, FRAME_PING, 0, (struct slice){0}, (struct slice){0});
  struct frame_header head;
  uint8_t *meta;
  CHECK(raw_next(&other, &head, &meta) && head.type == FRAME_PONG);
  free(meta);
  toy_hold(toy, false);
  for (unsigned i = 0; i < s.count; i++) {
    uint32_t stream;
    CHECK(reply_err(&r, &stream) == 0);
  }
  pthread_join(thread, NULL);
  CHECK(toy_get(&toy->counts.in_flight_max) == fit);
  CHECK(toy_get(&toy->counts.crc_errors) == 0);
  raw_close(&r);
  raw_close(&other);
}

static void test_calls_are_bounded(struct toy_host *n) {
  TEST("a connection has a bounded number of calls in flight");
  struct toy *toy = &n->toys[2];
  struct raw r = shaken(n);
  struct peer_request req = read_of(SLICE_LIT("k"));
  toy_hold(toy, true);
  for (uint32_t i = 0; i < 600; i++) send_request(&r, i, 2, &req);
  CHECK(toy_wait(&toy->counts.in_flight, 256));
  usleep(100000);
  CHECK(toy_get(&toy->counts.in_flight) == 256);
  toy_hold(toy, false);
  bool seen[600] = {false};
  for (unsigned i = 0; i < 600; i++) {
    uint32_t stream;
    CHECK(reply_err(&r, &stream) == 0);
    CHECK(stream < 600 && !seen[stream]);
    seen[stream] = true;
  }
  raw_close(&r);
}

static void test_cancel(struct toy_host *n) {
  TEST("CANCEL ends a call that is held");
  struct toy *toy = &n->toys[2];
  struct raw r = shaken(n);
  struct peer_request req = read_of(SLICE_LIT("k"));
  unsigned cancelled = toy_get(&toy->counts.cancelled);
  uint32_t stream;
  toy_hold(toy, true);
  send_request(&r, 7, 2, &req);
  send_request(&r, 8, 2, &req);
  raw_frame(&r, FRAME_CANCEL, 8, (struct slice){0}, (struct slice){0});
  raw_frame(&r, FRAME_CANCEL, 99, (struct slice){0}, (struct slice){0}); /* nobody: no harm */
  CHECK(reply_err(&r, &stream) == ERR_CANCELLED && stream == 8);
  CHECK(toy_get(&toy->counts.cancelled) == cancelled + 1);
  toy_hold(toy, false);
  CHECK(reply_err(&r, &stream) == 0 && stream == 7);
  raw_close(&r);
}

static void test_strangers_are_bounded(struct toy_host *n) {
  TEST("strangers: so many handshakes at a time, and each with a deadline");
  enum { LIMIT = 64 };
  struct raw r[LIMIT + 1];
  uint8_t byte;
  struct frame_header head;
  uint8_t *meta;
  for (unsigned i = 0; i < LIMIT; i++) {
    r[i] = raw_connect(n->address);
    CHECK(raw_next(&r[i], &head, &meta) && head.type == FRAME_HELLO);
    free(meta);
  }
  r[LIMIT] = raw_connect(n->address);
  CHECK(!raw_recv(&r[LIMIT], &byte, 1));
  CHECK(!raw_recv(&r[0], &byte, 1)); /* within the handshake's deadline */
  for (unsigned i = 0; i <= LIMIT; i++) raw_close(&r[i]);
  struct raw good;
  char why[HELLO_WORDS_BYTES_MAX];
  for (unsigned tries = 0;; tries++) { /* until the server has seen them go */
    good = raw_connect(n->address);
    int err = raw_shake(&good, &client_policy.policy, &client_map, HELLO_CONNECTOR, why);
    if (err == 0) break;
    CHECK(tries < 1000);
    raw_close(&good);
    usleep(5000);
  }
  raw_close(&good);
}

static void test_a_peer_that_does_not_read(struct toy_host *n) {
  TEST("a peer that reads no replies is given up, and others are served meanwhile");
  struct toy *toy = &n->toys[2];
  struct raw r = shaken(n), other = shaken(n);
  int small = 4096;
  CHECK(setsockopt(r.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
  struct peer_request req = read_of(SLICE_LIT("big"));
  unsigned served = toy_get(&toy->counts.served);
  for (uint32_t i = 0; i < 8; i++) send_request(&r, i, 2, &req);
  CHECK(toy_wait(&toy->counts.served, served + 8));
  struct peer_request small_read = read_of(SLICE_LIT("k"));
  bool dead = false;
  for (unsigned i = 0; i < 400 && !dead; i++) { /* the write's deadline is ten seconds */
    CHECK(ask(&other, i, 2, &small_read) == 0);
    usleep(50000);
    int so_error = 0;
    socklen_t len = sizeof so_error;
    CHECK(getsockopt(r.fd, SOL_SOCKET, SO_ERROR, &so_error, &len) == 0);
    dead = so_error == ECONNRESET;
  }
  CHECK(dead);
  raw_close(&r);
  raw_close(&other);
}

static void test_stop_finishes_calls(void) {
  TEST("a server that stops finishes the calls it has, then says goodbye");
  static struct toy_host n;
  n = (struct toy_host){0};
  toy_host_start(&n, 1, NULL);
  struct toy *toy = &n.toys[2];
  struct raw r = shaken(&n);
  struct peer_request req = read_of(SLICE_LIT("k"));
  uint32_t stream;
  char why[HELLO_WORDS_BYTES_MAX];
  toy_hold(toy, true);
  send_request(&r, 5, 2, &req);
  CHECK(toy_wait(&toy->counts.in_flight, 1));
  toy_host_stop_begin(&n);
  usleep(50000);
  CHECK(!__atomic_load_n(&n.stopped, __ATOMIC_SEQ_CST));
  toy_hold(toy, false);
  CHECK(reply_err(&r, &stream) == 0 && stream == 5);
  CHECK(raw_bye(&r, why) && strcmp(why, err_words(ERR_SHUTDOWN)) == 0);
  raw_close(&r);
  pthread_join(n.thread, NULL);
  CHECK(listen_probe(n.address) == 0); /* the port is free again */
}

static void test_bootstrap_serves_controls_only(void) {
  TEST("in bootstrap CONTROL is served and no drive is");
  static struct toy_host n;
  n = (struct toy_host){.bootstrap = true};
  toy_host_start(&n, 1, NULL);
  struct raw r = shaken(&n);
  struct frame_header head;
  uint8_t *meta;
  raw_frame(&r, FRAME_CONTROL, 3, SLICE_LIT("hi"), (struct slice){0});
  CHECK(raw_next(&r, &head, &meta) && head.type == FRAME_CONTROL_REPLY && head.stream == 3);
  CHECK(head.meta_len == 7 && load_be32(meta) == 0 && meta[4] == 0 &&
        memcmp(meta + 5, "hi", 2) == 0);
  free(meta);
  struct peer_request req = read_of(SLICE_LIT("k"));
  CHECK(ask(&r, 4, 2, &req) == ERR_DRIVE_FAILED);
  raw_close(&r);
  toy_host_stop(&n);
}

static void test_listen(void) {
  TEST("a taken port is found though SO_REUSEPORT would hide it");
  char address[32];
  bed_free_address(address);
  CHECK(listen_probe(address) == 0);
  int a = listen_open(address), b = listen_open(address);
  CHECK(a >= 0 && b >= 0); /* two loops of one process */
  CHECK(listen_probe(address) == -EADDRINUSE);
  close(a);
  CHECK(listen_probe(address) == -EADDRINUSE);
  close(b);
  CHECK(listen_probe(address) == 0);
  CHECK(listen_probe("no port here") < 0);
  CHECK(listen_probe("127.0.0.1:99999") < 0);
  CHECK(listen_open("192.0.2.1:0") == -EADDRNOTAVAIL);
}

static void test_refusals(void) {
  TEST("whom the server refuses learns why, and it is logged");
  static struct toy_host n;
  n = (struct toy_host){0};
  char why[HELLO_WORDS_BYTES_MAX];
  bed_log_begin();
  toy_host_start(&n, 1, NULL);
  const struct {
    const char *secret, *canonical, *host, *words;
  } cases[] = {
      {"wrong", "two hosts", "n1", "cluster secret differs"},
      {"s3cret", "one host", "n1", "membership differs: they have \"one host\""},
      {"s3cret", "two hosts", "n7", "no host n7 is known here"},
  };
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    for (unsigned again = 0; again < 3; again++) { /* the same refusal is one line a minute */
      struct bed_policy p;
      bed_policy_open(&p, &client_map, cases[i].secret);
      p.canonical = cases[i].canonical;
      p.host_id = cases[i].host;
      struct raw r = raw_connect(n.address);
      CHECK(raw_shake(&r, &p.policy, &client_map, HELLO_CONNECTOR, why) == ERR_REFUSED);
      CHECK(strstr(why, cases[i].words));
      raw_close(&r);
    }
  }
  toy_host_stop(&n);
  CHECK(bed_log_count("refused host n1 from 127.0.0.1: cluster secret differs") == 1);
  CHECK(bed_log_count("refused host n1 from 127.0.0.1: membership differs") == 1);
  CHECK(bed_log_count("refused host n7 from 127.0.0.1: no host n7 is known here") == 1);
  bed_log_end();
}

int main(void) {
  static struct toy_host n;
  bed_map(&client_map, 0, NULL, NULL);
  bed_policy_open(&client_policy, &client_map, "s3cret");
  n.unusable[3] = true;
  toy_host_start(&n, 1, NULL);
  test_garbage_closes_only_its_connection(&n);
  test_frames_out_of_place(&n);
  test_requests_are_checked(&n);
  test_stages_die_with_their_connection(&n);
  test_stages_of_refused_accepts(&n);
  test_death_in_mid_frame(&n);
  test_memory_is_bounded(&n);
  test_calls_are_bounded(&n);
  test_cancel(&n);
  test_strangers_are_bounded(&n);
  test_a_peer_that_does_not_read(&n);
  toy_host_stop(&n);
  test_stop_finishes_calls();
  test_bootstrap_serves_controls_only();
  test_listen();
  test_refusals();
  printf("all passed\n");
  return 0;
}
