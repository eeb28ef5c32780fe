/* cluster_map.h: hosts, drives and pools as numbers.
 *
 * The map is a pure function of the settings and the same on every host: drives are numbered in the
 * order (host, drive) of the file sorted by host id and drive name, so that the order of the file
 * does not matter. Pool 0 is the system pool (PROTOCOL.md 12: k = 1, N = min(2 * largest m + 1,
 * drives)); the configured pools follow, sorted by name. */
#ifndef KOFN_CONFIG_CLUSTER_MAP_H
#define KOFN_CONFIG_CLUSTER_MAP_H

#include "config/settings.h"

#define MAP_DRIVES_MAX SETTINGS_DRIVES_MAX
#define MAP_HOSTS_MAX SETTINGS_HOSTS_MAX
#define MAP_POOLS_MAX (SETTINGS_POOLS_MAX + 1)
#define MAP_SLOTS_MAX 32 /* k + m */
#define MAP_POOL_SYSTEM 0

enum technique {
  TECHNIQUE_NONE,
  TECHNIQUE_REED_SOL_VAN,
  TECHNIQUE_CAUCHY,
  TECHNIQUE_XOR,
  TECHNIQUE_XOR3P, /* stored: new ones at the end */
  TECHNIQUE_COUNT
};

/* Shape of an encoding: fixed for a blob, stored with every row and chunk file. */
struct profile {
  uint8_t technique; /* enum technique */
  uint8_t k, m;
  uint32_t unit_bytes;
};

static inline unsigned profile_n(const struct profile *p) {
  return (unsigned)p->k + p->m;
}

/* The smallest count such that any so many chunks decode: k of an MDS technique. codec_d says the
 * same of the code itself, and codec_test.c proves that they agree. */
static inline unsigned profile_d(const struct profile *p) {
  return p->technique == TECHNIQUE_XOR3P && p->m >= 2 ? profile_n(p) - 2 : p->k;
}

struct map_host {
  const char *id, *address, *zone;
  uint16_t zone_index;
  uint16_t drive_first, drive_count; /* its drives are consecutive */
};

struct map_drive {
  const char *name; /* stable name "host id/drive name" */
  const char *path; /* on its host */
  uint16_t host;
};

struct map_pool {
  const char *name;
  struct profile profile;
  unsigned n, d, w, r; /* PROTOCOL.md 1 */
  uint16_t drives[MAP_DRIVES_MAX];
  unsigned drive_count;
};

struct cluster_map {
  const char *name;
  struct map_host hosts[MAP_HOSTS_MAX];
  unsigned host_count;
  struct map_drive drives[MAP_DRIVES_MAX];
  unsigned drive_count;
  struct map_pool pools[MAP_POOLS_MAX];
  unsigned pool_count;
  unsigned pool_default;
  unsigned zone_count;
  unsigned self; /* index of this host */
};

/* The map borrows strings from `s`, which must outlive it. ERR_CONFIG with words where the layout
 * is refused: fewer drives than k+m, unknown drive, W out of range, one host with more than m
 * chunks (unless allow_unsafe_layout; never for a single-host map). */
_must_check_ int cluster_map_build(const struct settings *s, struct cluster_map **ret_map,
                                   struct settings_error *ret_error);
void cluster_map_free(struct cluster_map *map);

/* W and R of a profile; `write_quorum` 0 means the rule, else ERR_INVALID when out of
 * max(d, floor(N/2)+1)..N. */
_must_check_ int quorum_of(const struct profile *p, unsigned write_quorum, unsigned *ret_d,
                           unsigned *ret_w, unsigned *ret_r);

/* The membership as canonical text (no addresses): one line for the cluster, each host, drive,
 * pool. Its SHA-256 is the map digest; the text is stored on every drive so that a difference can
 * be named. malloc'ed; the caller frees. */
char *cluster_map_canonical(const struct cluster_map *map);

/* Words such as "reads survive the loss of any 2 hosts, writes of any 1 host" for pool `pool`,
 * assuming a placement that spreads as ARCHITECTURE.md says. Writes at most `cap` bytes, always
 * ends with NUL. */
void cluster_map_survival(const struct cluster_map *map, unsigned pool, char *out, size_t cap);

int cluster_map_find_host(const struct cluster_map *map,
                          const char *id); /* index or ERR_NOT_FOUND */
int cluster_map_find_pool(const struct cluster_map *map,
                          struct slice name); /* index or ERR_NOT_FOUND */
const char *technique_name(unsigned technique);
int technique_find(const char *name); /* enum technique or ERR_NOT_FOUND */

#endif
