/* worker.h: one event loop of a host: its env, peers, objects, S3 and chunk servers; worker 0 also
 * has the admin port and the background sweep. Workers share nothing but the drives. */
#ifndef KOFN_SERVER_WORKER_H
#define KOFN_SERVER_WORKER_H

#include <pthread.h>

#include "server/s3.h"
#include "storage/net/chunk_server.h"
#include "storage/net/cluster.h"
#include "storage/net/peer_local.h"
#include "storage/net/peer_tcp.h"

struct host; /* host.c: all workers of the process */

struct worker {
  struct host *host;
  unsigned index;
  uv_loop_t loop;
  struct env_uv *env;
  struct peer_host *peer_hosts[MAP_HOSTS_MAX]; /* NULL for this host */
  struct peer *local[MAP_DRIVES_MAX];          /* this host's drives; owned */
  struct objects objects;
  struct s3 s3;
  struct http_server *s3_server, *admin_server;
  struct chunk_server *chunk_server;
  struct object_sweep *sweep;
};

struct host {
  const struct settings *settings;
  const struct cluster_map *map;
  struct cluster *cluster;
  struct cpu_lanes *cpu;
  struct worker *workers;
  unsigned worker_count;
  uint64_t started_wall_ms;
  pthread_mutex_t look; /* held while one worker looks at all, so that none is freed meanwhile */
  bool serving;         /* under `look`: every worker is set up and none is being taken down */
};

/* Between these the workers may be looked at. False: not (nothing is to be ended then). */
_must_check_ bool host_look_begin(struct host *h);
void host_look_end(struct host *h);

/* Counters of all workers, summed by address (relaxed reads): for metrics and status. */
void host_stats_sum(struct host *h, struct objects_stats *objects, struct http_stats *http,
                    struct s3_stats *s3, struct env_uv_stats *env);

/* Runs the host until SIGINT or SIGTERM, which the caller has blocked in all threads, then drains
 * within shutdown_grace. 0 or an error that was logged. */
_must_check_ int host_run(const struct settings *s, const struct cluster_map *map,
                          struct cluster *cluster, struct cpu_lanes *cpu);

#endif
