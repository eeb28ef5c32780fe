/* tcp_client.c: see tcp_client.h. */
#include "tests/unit/net/tcp_client.h"

#include <stdlib.h>
#include <unistd.h>

#include "codec/crc32c.h"

static void asked_done(struct peer_call *call) {
  struct asked *a = container_of(call, struct asked, call);
  a->done = true;
  a->done_count++;
}

void client_open_as(struct client *c) {
  c->closed = false;
  CHECK(uv_loop_init(&c->loop) == 0);
  CHECK(cpu_lanes_start(1, &c->lanes) == 0);
  CHECK(env_uv_open(&c->loop, c->lanes, 16 << 20, &c->env) == 0);
  CHECK(peer_host_new(c->env, &c->map, 1, &c->policy.policy, &c->host) == 0);
}

void client_open(struct client *c, const char *address, const char *secret) {
  bed_map(&c->map, 0, NULL, address);
  bed_policy_open(&c->policy, &c->map, secret);
  client_open_as(c);
}

static void host_closed(void *arg) {
  struct client *c = arg;
  c->closed = true;
}

void client_turn(struct client *c) {
  uv_run(&c->loop, UV_RUN_ONCE);
}

void run_until(struct client *c, const bool *flag) {
  for (uint64_t end = uv_hrtime() + WAIT_NS; !*flag;) {
    CHECK(uv_hrtime() < end);
    client_turn(c);
  }
}

void run_for(struct client *c, unsigned ms) {
  for (uint64_t end = uv_hrtime() + ms * 1000000ull; uv_hrtime() < end;) {
    uv_run(&c->loop, UV_RUN_NOWAIT);
    usleep(1000);
  }
}

void run_connected(struct client *c, bool connected) {
  for (uint64_t end = uv_hrtime() + WAIT_NS; peer_host_connected(c->host) != connected;) {
    CHECK(uv_hrtime() < end);
    client_turn(c);
  }
}

void client_close(struct client *c) {
  peer_host_close(c->host, host_closed, c);
  run_until(c, &c->closed);
  env_uv_close(c->env);
  uv_run(&c->loop, UV_RUN_DEFAULT);
  CHECK(uv_loop_close(&c->loop) == 0);
  cpu_lanes_stop(c->lanes);
}

void ask(struct client *c, struct asked *a, uint16_t drive, const struct peer_request *req) {
  *a = (struct asked){.call = {.req = *req, .done = asked_done}};
  peer_send(peer_host_drive(c->host, drive), &a->call);
  CHECK(!a->done); /* never inside */
}

int ask_wait(struct client *c, struct asked *a, uint16_t drive, const struct peer_request *req) {
  ask(c, a, drive, req);
  run_until(c, &a->done);
  CHECK(a->done_count == 1);
  return a->call.reply.err;
}

struct peer_request read_of(const char *key, uint32_t timeout_ms) {
  return (struct peer_request){.verb = PEER_READ, .timeout_ms = timeout_ms, .key = slice_str(key)};
}

static const struct profile profile = {TECHNIQUE_CAUCHY, 4, 2, PEER_UNIT_BYTES_MAX};

static uint8_t pattern(uint8_t id, uint64_t unit, size_t i) {
  return (uint8_t)(id * 3 + unit * 5 + i * 7 + i / 1000);
}

struct peer_request stage_of(uint8_t id, uint64_t first, unsigned units) {
  return (struct peer_request){.verb = PEER_STAGE,
                               .timeout_ms = 20000,
                               .slot = 1,
                               .data_id = {{id, 1, 2}},
                               .profile = profile,
                               .unit_first = first,
                               .unit_count = units};
}

void units_fill(struct peer_request *req, const uint32_t *lens) {
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

void units_free(struct peer_request *req) {
  for (unsigned i = 0; i < req->unit_count; i++) free(req->units[i].data);
}

void unit_check(const struct peer_request *req, unsigned i, uint32_t len) {
  const struct peer_unit *u = &req->units[i];
  CHECK(u->len == len);
  CHECK(u->crc == unit_crc(&req->data_id, req->slot, req->unit_first + i, u->data, u->len));
  for (uint32_t at = 0; at < len; at++)
    CHECK(u->data[at] == pattern(req->data_id.bytes[0], req->unit_first + i, at));
}
