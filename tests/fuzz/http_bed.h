/* http_bed.h: one connection of the real HTTP server over fake_uv, fed by a fuzzer. */
#ifndef KOFN_TESTS_FUZZ_HTTP_BED_H
#define KOFN_TESTS_FUZZ_HTTP_BED_H

#include "server/http_conn.h"
#include "tests/fuzz/fake_uv.h"

/* How the client ends: half close, reset, or silence until every deadline has passed. */
enum bed_end { BED_EOF, BED_RESET, BED_SILENCE, BED_END_COUNT };

struct bed_run {
  struct slice in;
  struct http_handler handler;
  struct fuzz_rand *cuts; /* NULL: as much at a time as the connection takes */
  enum bed_end end;
  uint64_t seed; /* of the writes */
  /* Work that the handler has put off; true where there was some. May be NULL. */
  bool (*turn)(void *arg);
  void *arg;
};

/* Runs until the connection and the server are gone. What was sent is appended to `ret_sent`. */
void bed_serve(const struct bed_run *run, struct byte_writer *ret_sent);

/* For logs of what handlers saw: marks a request's beginning. */
void bed_log_request(struct byte_writer *log, const struct http_request *req);
/* Fails unless both logs are the same. Behind an answer to chunks that had not all arrived the
 * connection ends, so one may also end with such a request where the other goes on. */
void bed_logs_agree(const struct byte_writer *whole, const struct byte_writer *cut);

#endif
