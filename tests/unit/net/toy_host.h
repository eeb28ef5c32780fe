/* toy_host.h: a host in a thread of its own: a loop, a chunk server, and drives that are toys.
 *
 * A toy keeps staged units in memory and checks their CRCs. Its reply to every verb but FETCH
 * carries the request as the drive saw it, encoded, so that a test can compare every field. Keys
 * that mean something: "err" (ERR_PROMISED with a version), "failed" (ERR_DRIVE_FAILED), "big" (a
 * body of TOY_BIG_BYTES). */
#ifndef KOFN_TESTS_NET_TOY_HOST_H
#define KOFN_TESTS_NET_TOY_HOST_H

#include <pthread.h>

#include "tests/unit/net/net_bed.h"

#define TOY_BIG_BYTES (3u << 20)

/* Read and written by several threads, with the toy_* functions only. */
struct toy_counts {
  unsigned in_flight, in_flight_max, cancelled, drops, accepts, stages, crc_errors, served;
};

struct toy {
  struct peer peer;
  struct env *env;
  struct list calls;  /* waiting for their turn */
  struct list chunks; /* staged */
  bool hold;          /* atomic: nothing is answered */
  struct toy_counts counts;
  struct env_timer timer;
};

struct toy_host {
  /* set before toy_host_start */
  const char *secret, *cluster_name, *canonical, *host_id; /* NULL: as the bed's */
  bool unusable[4];
  bool bootstrap; /* no local peers at all */
  /* the node's */
  char address[32];
  unsigned self;
  struct cluster_map map;
  struct bed_policy policy;
  struct toy toys[4];
  struct peer *local[MAP_DRIVES_MAX];
  uv_loop_t loop;
  struct cpu_lanes *lanes;
  struct env_uv *env;
  struct chunk_server *server;
  uv_async_t stop;
  bool stopped; /* atomic */
  pthread_t thread;
  pthread_barrier_t ready;
};

/* Host `self` (0 or 1), listening at `address`, or at a free port where NULL. */
void toy_host_start(struct toy_host *n, unsigned self, const char *address);
void toy_host_stop_begin(struct toy_host *n);
void toy_host_stop(struct toy_host *n);

void toy_hold(struct toy *t, bool hold);
unsigned toy_get(const unsigned *counter);
/* Waits (at most ten seconds) until the counter is `value`. */
bool toy_wait(const unsigned *counter, unsigned value);

#endif
