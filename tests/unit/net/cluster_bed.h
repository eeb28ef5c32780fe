/* cluster_bed.h: hosts of a small cluster in a temporary directory: their configuration, drives and
 * state directories. */
#ifndef KOFN_TESTS_CLUSTER_BED_H
#define KOFN_TESTS_CLUSTER_BED_H

#include "storage/net/cluster.h"
#include "storage/net/cluster_impl.h"

#define CLUSTER_BED_HOSTS_MAX 3

/* Change a field to see it refused. Drive j of host n<i> stands in root/n<i>/d<j>. */
struct cluster_bed {
  char root[64];
  char address[CLUSTER_BED_HOSTS_MAX][32];
  unsigned hosts, drives; /* drives of each host */
  const char *name;       /* of the cluster */
  const char *first_host; /* the id of host 0 */
  const char *state;      /* state directories are root/<state>-<host index> */
  unsigned k, m;
};

struct node {
  struct settings *settings;
  struct cluster_map *map;
  struct cluster *cluster;
};

void cluster_bed_open(struct cluster_bed *b, unsigned hosts, unsigned drives, unsigned k,
                      unsigned m);
void cluster_bed_close(struct cluster_bed *b);
/* Runs a shell command in the root; it must succeed. */
void cluster_bed_sh(const struct cluster_bed *b, const char *fmt, ...) _printf_(2, 3);

/* Settings and map of a host, without its cluster. */
void node_load(const struct cluster_bed *b, unsigned host, struct node *ret_node);
/* With cluster_open: its error; the node must be closed in any case. */
int node_open(const struct cluster_bed *b, unsigned host, struct node *ret_node,
              struct drive_error *e);
/* node_open and, where it is needed, cluster_first_start. */
int node_start(const struct cluster_bed *b, unsigned host, struct node *ret_node,
               struct drive_error *e);
void node_close(struct node *n);

/* Changes the state of a host that does not run. */
void node_state_edit(const struct cluster_bed *b, unsigned host,
                     void (*edit)(struct state *s, const void *arg), const void *arg);

#endif
