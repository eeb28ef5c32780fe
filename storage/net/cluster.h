/* cluster.h: this process as a member: its state directory, its drives, the first start, and what
 * it tells in a hello.
 *
 * cluster_open looks at everything before it changes anything; a refusal names what differs and
 * leaves all as it was. Rules: ARCHITECTURE.md (first start), PROTOCOL.md 10 (membership, boot
 * counters). */
#ifndef KOFN_STORAGE_NET_CLUSTER_H
#define KOFN_STORAGE_NET_CLUSTER_H

#include "storage/drive/lanes.h"
#include "storage/net/hello.h"
#include "storage/object/placement.h"

struct cluster;

/* Locks the state directory (made if absent), probes and opens the drives of this host.
 * ERR_CONFIG/ERR_BUSY with words. After success cluster_ready tells whether drives are open
 * (FORMATTED) or the first start is still to be done. */
_must_check_ int cluster_open(const struct settings *s, const struct cluster_map *map,
                              struct cluster **ret_cluster, struct drive_error *ret_error);
bool cluster_ready(const struct cluster *c);

/* The first start. Blocks in a loop of its own: listens on the peer port, finds all hosts, and
 * formats, when every drive of the map is empty (the host with the lowest index coordinates: it
 * records the new cluster id durably before the first INIT, so that an interrupted start is
 * resumed). Logs once a while whom it waits for. *stop (atomic, set by a signal handler) ends it
 * with ERR_SHUTDOWN. Single-host maps do not listen. Returns 0 when this host's drives are open. */
_must_check_ int cluster_first_start(struct cluster *c, const int *stop,
                                     struct drive_error *ret_error);

const struct placement *cluster_placement(const struct cluster *c);
struct hello_policy *cluster_policy(struct cluster *c);
/* Lanes of a map drive; NULL where it is another host's or not in service. */
struct drive_lanes *cluster_lanes(struct cluster *c, uint16_t drive);
/* Why a drive of this host is not in service; "" otherwise. */
const char *cluster_drive_trouble(struct cluster *c, uint16_t drive);
const struct id128 *cluster_id(const struct cluster *c);
/* True where drives of this host share a file system: said at start and in status. */
bool cluster_drives_share_disk(const struct cluster *c);
/* Stops the lanes, marks a clean shutdown, unlocks. */
void cluster_close(struct cluster *c);

#endif
