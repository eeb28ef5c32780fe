/* admin.h: health, metrics and the JSON admin API on their own port.
 *
 *   GET /health/live              200 while the loop turns
 *   GET /health/ready?for=read    200 or 503: every partition of every pool has its read (write)
 * quorum in sight GET /metrics                  Prometheus text: plain counters GET
 * /admin/v1/status          hosts, drives, pools, survivable losses, xor kernel GET /admin/v1/heal
 * keys and slots to be healed, of all reachable drives PUT /admin/v1/xor-kernel      body: a
 * kernel's name GET /admin/v1/where?bucket=B&key=K   partition, slots, drives and chunk states of a
 * key */
#ifndef KOFN_SERVER_ADMIN_H
#define KOFN_SERVER_ADMIN_H

#include "server/http.h"
#include "server/worker.h"

/* `worker` outlives the server. */
struct http_handler admin_handler(struct worker *worker);

#endif
