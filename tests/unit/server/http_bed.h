/* http_bed.h: a toy server on its own thread, and a blocking client that trusts nothing.
 *
 *   GET  /hello              200 "hello"
 *   GET  /head               200, what the handler saw of the head, one fact a line
 *   PUT  /echo?r=N           reads the body in pieces of N bytes, then sends it back
 *   PUT  /sum?r=N            reads the body and answers its length and FNV-1a hash
 *   PUT  /refuse             403 at once, the body is not touched
 *   GET  /big?n=N            N bytes of bed_byte(), with a length
 *   GET  /stream?n=N         the same, length unknown
 *   GET  /hang               answers when BED_RELEASE is called, or is told that the client is gone
 *   PUT  /cancel             reads; BED_RELEASE cancels the read: 400 ERR_CANCELLED
 *   PUT  /impatient          reads, and answers without waiting for it
 *   GET  /reset              announces 100 bytes, sends 10, then http_reset
 *   GET  /short              announces 100 bytes, sends 10, then http_end
 *   GET  /status?n=N         an answer with that status and the body "body" */
#ifndef KOFN_TESTS_HTTP_BED_H
#define KOFN_TESTS_HTTP_BED_H

#include <pthread.h>
#include <stdatomic.h>

#include "server/http.h"

struct bed {
  pthread_t thread;
  struct http_limits limits;
  int port;
  struct http_server *server;
  uv_loop_t loop;
  uv_async_t poke;
  struct cpu_lanes *lanes;
  struct env_uv *env;
  struct list hanging; /* struct toy */
  atomic_bool started, released;
  atomic_int want;     /* enum bed_want, taken by the loop */
  atomic_bool drained; /* the server's callback ran */
  atomic_int gone, hung, body_err, sink_err, handled;
};

enum bed_want { BED_NOTHING, BED_RELEASE, BED_DRAIN, BED_ABORT };

/* Limits with which no test waits for a timeout that it does not ask for. */
struct http_limits bed_limits(void);
void bed_start(struct bed *bed, struct http_limits limits);
/* Drains if that was not asked for, waits for the end, checks that nothing is left. */
void bed_stop(struct bed *bed);
void bed_want(struct bed *bed, enum bed_want want);
struct http_stats bed_stats(struct bed *bed);
/* Waits until *value is at least n; ends the process after 20 s. */
void bed_wait(atomic_int *value, int n, const char *what);
uint8_t bed_byte(uint64_t offset);

struct client {
  int fd;
  uint8_t *in;
  size_t len, cap;
};
struct reply {
  int status;
  char head[8192];
  uint8_t *body;
  size_t len;
};

void client_open(struct client *c, struct bed *bed);
void client_close(struct client *c);
void client_send(struct client *c, const void *data, size_t len);
void client_say(struct client *c, const char *text);
/* Reads one answer; `head_only` for HEAD. False: the connection ended first. */
bool client_reply(struct client *c, bool head_only, struct reply *r);
void reply_free(struct reply *r);
bool reply_has(const struct reply *r, const char *line);
/* The server ends the connection: 0 clean end, 1 reset, 2 more bytes came instead. */
int client_end(struct client *c);

/* Prints and ends the process with 1 where `ok` is false. */
void bed_check(bool ok, const char *file, int line, const char *what);
#define CHECK(cond) bed_check((cond), __FILE__, __LINE__, #cond)

#endif
