/* peer_tcp.h: struct peer over TCP. One connection per (loop, remote host), shared by that host's
 * drives.
 *
 * Connects at once and for ever, backing off with jitter from 50 ms to 1 s (one log line when it
 * goes and one when it comes back). Calls to a host that is not connected end at once with
 * ERR_PEER_DOWN. A call past its deadline ends with ERR_TIMEOUT; when a peer has been silent for
 * its timeout while bytes are unsent or replies due, the connection is reset and everything on it
 * ends with ERR_PEER_DOWN. Unit payloads are written from and read into the caller's buffers, with
 * no copy. */
#ifndef KOFN_STORAGE_NET_PEER_TCP_H
#define KOFN_STORAGE_NET_PEER_TCP_H

#include "storage/net/env_uv.h"
#include "storage/net/hello.h"
#include "storage/object/peer.h"

struct peer_host;

/* `address` is "host:port", resolved again at every attempt. */
_must_check_ int peer_host_new(struct env_uv *env, const struct cluster_map *map, unsigned host,
                               struct hello_policy *policy, struct peer_host **ret_host);
/* The peer of one of that host's drives (index in the map). Owned by the host. */
struct peer *peer_host_drive(struct peer_host *h, uint16_t drive);
bool peer_host_connected(const struct peer_host *h);
/* Why not, in words ("" when connected): for status. */
const char *peer_host_trouble(const struct peer_host *h);
/* Sends a CONTROL frame; cb exactly once. The reply slice is borrowed. ERR_PEER_DOWN when not
 * connected. */
typedef void (*peer_control_cb)(void *arg, int err, struct slice reply);
void peer_host_control(struct peer_host *h, struct slice request, uint32_t timeout_ms,
                       peer_control_cb cb, void *arg);
/* The last hello of that host (NULL before one). */
const struct hello *peer_host_hello(const struct peer_host *h);
/* Ends all calls (ERR_PEER_DOWN), closes, frees itself when the loop has closed its handles; cb may
 * be NULL. */
void peer_host_close(struct peer_host *h, void (*closed)(void *arg), void *arg);

#endif
