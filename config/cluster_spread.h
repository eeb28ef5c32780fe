/* cluster_spread.h: how many chunks of one partition a host may hold, and what a cluster survives.
 *
 * Follows the rule of placement (ARCHITECTURE.md): no zone, then no host, holds more than its fair
 * share, and that cap is raised only as far as N needs. Internal to config/. */
#ifndef KOFN_CONFIG_CLUSTER_SPREAD_H
#define KOFN_CONFIG_CLUSTER_SPREAD_H

#include "config/cluster_map.h"

/* The most chunks of one partition that any host holds. The pool has at least N drives. */
unsigned spread_host_max(const struct cluster_map *map, const struct map_pool *p);

/* Chunks of one partition that are lost, at worst, when `hosts` hosts are lost. */
unsigned spread_lost_max(const struct cluster_map *map, const struct map_pool *p, unsigned hosts);

struct survival {
  unsigned hosts_read, hosts_write, drives_read, drives_write;
};

/* What can be lost at worst while every key of the pool, and the bucket registers in the system
 * pool, can still be read or written. */
struct survival spread_survival(const struct cluster_map *map, unsigned pool);

#endif
