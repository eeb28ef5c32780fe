/* chunk_server.h: serves this process's drives to peers over TCP. One per loop; listens with
 * SO_REUSEPORT.
 *
 * Each frame becomes a peer_call on the local peer of its drive; replies go back in any order.
 * STAGE payloads are read into buffers of a small pool of the server's own (not the gateways'
 * stripe buffers, so that two hosts cannot wait for each other); while none is free the connection
 * is not read. A connection's stages that no ACCEPT took are dropped when it closes. */
#ifndef KOFN_STORAGE_NET_CHUNK_SERVER_H
#define KOFN_STORAGE_NET_CHUNK_SERVER_H

#include "storage/net/env_uv.h"
#include "storage/net/hello.h"
#include "storage/object/peer.h"

#define CHUNK_SERVER_CONNECTIONS_MAX 1024
#define CHUNK_SERVER_BUFFER_BYTES (16u << 20)

struct chunk_server;

/* local[i] = the loop's peer for map drive i, or NULL where the drive is another host's. `local`
 * and `map` are borrowed. -EADDRINUSE etc. come back as they are. In bootstrap `local` holds no
 * peer at all: only CONTROL frames are served. */
_must_check_ int chunk_server_start(struct env_uv *env, const struct cluster_map *map,
                                    struct peer *const *local, struct hello_policy *policy,
                                    const char *listen, struct chunk_server **ret_server);
/* Stops accepting, closes connections after the calls on them ended, then cb. */
void chunk_server_stop(struct chunk_server *s, void (*stopped)(void *arg), void *arg);

/* Binds without SO_REUSEPORT and closes again: 0, or -EADDRINUSE ("which port" is the caller's to
 * say). */
_must_check_ int listen_probe(const char *address);
/* A listening, non-blocking, SO_REUSEPORT, close-on-exec TCP socket; the descriptor, or -errno. */
_must_check_ int listen_open(const char *address);

#endif
