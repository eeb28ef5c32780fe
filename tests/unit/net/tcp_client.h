/* tcp_client.h: host n1 of the bed, on the test's own thread: a loop and its peers over TCP to n2.
 *
 * Whoever waits turns the loop; a wait of twenty seconds fails the test. */
#ifndef KOFN_TESTS_NET_TCP_CLIENT_H
#define KOFN_TESTS_NET_TCP_CLIENT_H

#include "tests/unit/net/net_bed.h"

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

void client_open(struct client *c, const char *address, const char *secret);
/* The same with a policy that the test has changed: c->map and c->policy are set. */
void client_open_as(struct client *c);
void client_close(struct client *c);
void client_turn(struct client *c);
void run_until(struct client *c, const bool *flag);
void run_for(struct client *c, unsigned ms);
void run_connected(struct client *c, bool connected);

/* Sends; checks that `done` does not run inside. */
void ask(struct client *c, struct asked *a, uint16_t drive, const struct peer_request *req);
/* Sends and waits: the reply's error. */
int ask_wait(struct client *c, struct asked *a, uint16_t drive, const struct peer_request *req);
struct peer_request read_of(const char *key, uint32_t timeout_ms);
/* A STAGE whose units have no bytes yet. */
struct peer_request stage_of(uint8_t id, uint64_t first, unsigned units);
/* Gives the units bytes that tell where they belong, from memory of their own (not contiguous). */
void units_fill(struct peer_request *req, const uint32_t *lens);
void units_free(struct peer_request *req);
/* The unit has this length, its CRC, and the bytes of units_fill. */
void unit_check(const struct peer_request *req, unsigned i, uint32_t len);

#endif
