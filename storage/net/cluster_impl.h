/* cluster_impl.h: what cluster.c, cluster_check.c, cluster_policy.c and bootstrap.c share; not for
 * others.
 *
 *   cluster_open:  cluster_check (looks only) -> first start? -> cluster_serve
 *   first start:   bootstrap (one host: cluster_format_own; several: INIT by the coordinator)
 *   cluster_serve: opens, compares, remembers durably, starts the lanes */
#ifndef KOFN_STORAGE_NET_CLUSTER_IMPL_H
#define KOFN_STORAGE_NET_CLUSTER_IMPL_H

#include "storage/net/cluster.h"
#include "storage/net/state_dir.h"

/* The host that coordinates a first start and formats its own drives last. */
#define COORDINATOR_HOST 0
/* Stands in every refusal of an empty host by one that was initialised before. */
#define INITIALISED_WORDS "was initialised before"

/* CONTROL frames: u8 op, then for INIT the cluster id and the map digest. The answer: u8 accepted,
 * str16 words where it is not. */
#define CONTROL_INIT 1

struct own_drive {
  struct cluster *cluster;
  uint16_t drive; /* index in the map */
  enum drive_state state;
  struct drive_identity identity; /* FORMATTED */
  struct drive *open;             /* until its lanes own it */
  struct drive_lanes *lanes;
  struct drive_error trouble; /* set before it serves; "" where it serves */
};

struct cluster {
  const struct settings *settings;
  const struct cluster_map *map;
  char *canonical;
  uint8_t map_digest[SHA256_LEN];
  struct state_dir *dir;
  struct own_drive *own;
  unsigned own_count;
  bool share_disk;
  struct hello_policy policy;
  /* Changed under the state's lock only, while hellos may look. */
  enum boot_state boot;
  struct id128 id;
  uint32_t epoch;
  uint8_t table_digest[SHA256_LEN];
  struct placement *placement;
};

static inline const char *own_path(const struct own_drive *o) {
  return o->cluster->map->drives[o->drive].path;
}
static inline const char *own_name(const struct own_drive *o) {
  return o->cluster->map->drives[o->drive].name;
}

/* cluster_check.c */

/* Probes this host's drives and compares them with each other, the settings and the state. Changes
 * nothing. *ret_first_start: all are empty, or some are and their first start was interrupted. */
_must_check_ int cluster_check(struct cluster *c, bool *ret_first_start, struct drive_error *e);
/* The same for a drive that is being opened: membership, table, epoch, boot counter. */
_must_check_ int cluster_check_open(struct own_drive *o, const struct drive *d,
                                    struct drive_error *e);
/* The lines that only one of two membership texts has, at most `lines_max`. */
void canonical_difference(const char *theirs, const char *ours, const char *their_words,
                          unsigned lines_max, char *out, size_t cap);

/* cluster.c */

/* Formats every own drive that is still empty for the state's init_id, and remembers the cluster.
 * May be called again after an interruption. */
_must_check_ int cluster_format_own(struct cluster *c, struct drive_error *e);
/* Records durably that `id` is being initialised: before the first drive is formatted for it. */
_must_check_ int cluster_record_init(struct cluster *c, const struct id128 *id,
                                     struct drive_error *e);
/* Opens the drives, remembers their boot counters durably, starts their lanes. */
_must_check_ int cluster_serve(struct cluster *c, struct drive_error *e);

/* cluster_policy.c */
void cluster_policy_init(struct cluster *c);

/* bootstrap.c: several hosts. Returns when this host's drives are formatted. */
_must_check_ int bootstrap_run(struct cluster *c, const int *stop, struct drive_error *e);

#endif
