/* s3.h: the S3 API over one loop's objects: routes, authenticates, answers.
 *
 *   http_request -> s3_auth (one authenticator, before routing) -> s3_route (a table) -> bucket or
 * object handler
 *
 * Source: Amazon S3 API reference, path style. */
#ifndef KOFN_SERVER_S3_H
#define KOFN_SERVER_S3_H

#include "server/http.h"
#include "storage/object/object.h"

struct s3_stats {
  uint64_t requests, errors_4xx, errors_5xx, unauthorized;
};

struct s3 {
  struct objects *objects;
  const struct settings *settings;
  struct s3_stats stats;
  unsigned running; /* requests being answered */
};

/* The handler for http_server_start; `s3` outlives the server. */
struct http_handler s3_handler(struct s3 *s3);

#endif
