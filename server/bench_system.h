/* bench_system.h: what the files of `kofn bench system` share.
 *
 *   cluster (given, or started here) -> a bucket for each pool, filled -> rounds: each variant (an
 *   XOR kernel, or a pool) in rotating order through each workload -> real, user, system time
 *   -> verdicts against the base
 *
 * A step is a fixed amount of work: every object --passes times. */
#ifndef KOFN_SERVER_BENCH_SYSTEM_H
#define KOFN_SERVER_BENCH_SYSTEM_H

#include <netinet/in.h>
#include <sys/types.h>

#include "server/bench.h"

#define BENCH_HOSTS_MAX 16
#define BENCH_CONNECTIONS_MAX 256
#define BENCH_POOLS_MAX 8
#define BENCH_ADDRESS_BYTES 300
#define BENCH_PATH_BYTES 512

struct bench_system_options {
  struct bench_texts urls, admins, pools, kernels, workloads;
  struct bench_numbers pids;
  const char *user, *dir, *json, *html, *against;
  uint64_t hosts, drives, size, objects, passes, connections, rounds, seconds;
  bool quick;
};

_must_check_ int bench_system_options(int argc, char **argv, struct bench_system_options *ret_o,
                                      char why[BENCH_WHY_BYTES]);
int bench_system_run(const struct bench_system_options *o);

/* ---- HTTP (bench_load.c) ---- */

struct bench_address {
  struct sockaddr_storage at;
  socklen_t len;
  char text[BENCH_ADDRESS_BYTES]; /* host:port */
};

/* "http://host:port" or "host:port"; ERR_INVALID for what is none, -EHOSTUNREACH for an unknown
 * name. */
_must_check_ int bench_address_parse(const char *text, struct bench_address *ret_address);

/* One request on a connection of its own. `head` is whole header lines, may be "". The body of the
 * answer (at most `cap` - 1 bytes, the rest is dropped, NUL-terminated) into `answer`. The status
 * or an error. */
_must_check_ int bench_http(const struct bench_address *to, const char *method, const char *path,
                            const char *head, const void *body, size_t len, char *answer,
                            size_t cap);

struct bench_load {
  const struct bench_address *addresses; /* connections take them in turn */
  unsigned address_count;
  const char *method; /* PUT, GET, DELETE */
  const char *path;   /* "/bucket/key-": the object's number follows */
  const char *head;
  uint64_t size, objects, passes;
  unsigned connections;
  double seconds; /* then the rest is left */
};

struct bench_load_result {
  double seconds;
  uint64_t requests, bytes, errors;
  double p50_ms, p99_ms;
  char error[160]; /* the first */
};

/* Every object `passes` times. 0 also where requests failed: ret_result says so. */
_must_check_ int bench_load_run(const struct bench_load *load,
                                struct bench_load_result *ret_result);

/* ---- a cluster of our own (bench_cluster.c) ---- */

struct bench_cluster {
  char dir[256];
  unsigned hosts;
  pid_t pids[BENCH_HOSTS_MAX]; /* 0: ended */
  struct bench_address s3[BENCH_HOSTS_MAX], admin[BENCH_HOSTS_MAX];
  char user[128]; /* KEY:SECRET */
};

struct bench_pool {
  char name[64];
  char technique[32];
  unsigned k, m;
  bool is_xor; /* PUTs go through the XOR kernel */
};

/* "TECHNIQUE:K+M", checked; ERR_INVALID with words. */
_must_check_ int bench_pool_parse(const char *text, struct bench_pool *ret_pool,
                                  char why[BENCH_WHY_BYTES]);

/* Starts `hosts` hosts of `drives` drives and waits until writes work. Prints what went wrong,
 * with the log of the host that ended. bench_cluster_stop in any case. */
_must_check_ int bench_cluster_start(struct bench_cluster *c, const char *parent, unsigned hosts,
                                     unsigned drives, const struct bench_pool *pools,
                                     unsigned pool_count);
void bench_cluster_stop_host(struct bench_cluster *c, unsigned host);
/* Ends all hosts and removes the directory; safe on a zeroed cluster, and twice. */
void bench_cluster_stop(struct bench_cluster *c);

/* User and system seconds of a process, all threads; false where it cannot be read. */
_must_check_ bool bench_process_times(pid_t pid, double *ret_user, double *ret_system);

#endif
