/* peer_local.h: struct peer over the lanes of a drive of this process. */
#ifndef KOFN_STORAGE_NET_PEER_LOCAL_H
#define KOFN_STORAGE_NET_PEER_LOCAL_H

#include "storage/drive/lanes.h"
#include "storage/net/env_uv.h"

/* lanes == NULL: a drive that is not in service; every call ends with ERR_DRIVE_FAILED. Deadlines
 * (timeout_ms) are kept: a call that times out while a lane still uses its buffers is *not*
 * finished until the lane lets go of them (a copy of the request is not made), so a stuck disk ends
 * calls late; `suspect` is set after 1 s meanwhile. */
_must_check_ int peer_local_new(struct env_uv *env, uint16_t drive, struct drive_lanes *lanes,
                                struct peer **ret_peer);
void peer_local_free(struct peer *peer); /* no call outstanding */

#endif
