/* fuzz_http_conn.c: a whole connection: heads, bodies, answers, pipelining, 100-continue, ends.
 *
 * The real server/http_*.c runs over fake_uv. The same bytes, fed whole and fed in pieces, to a
 * handler that reads in other sizes, answers at once or later, and whose writes the kernel takes
 * whole or in part, must show the handler the same requests with the same bodies, for a difference
 * would be a way to smuggle a request. Every request is answered exactly once, and nothing is left
 * when the connection is gone (AddressSanitizer looks). */
#include "codec/crc32c.h"
#include "tests/fuzz/http_bed.h"

#define PENDING_MAX 4
#define READ_BYTES_MAX 70000

/* One request in the handler's hands. */
struct work {
  struct http_request *req;
  uint8_t *buf;
  size_t buf_len;
  uint32_t crc;
  uint64_t got;
  unsigned mode;
  unsigned writes_left;
  bool reading, writing, gone, ready; /* ready: the next step may be taken */
};

struct world {
  struct work *work; /* one connection has one request at a time */
  struct fuzz_rand rand;
  struct byte_writer *log;
  uint64_t handled, answered;
};

static void work_step(struct world *w);

static void log_line(struct world *w, const char *what, uint64_t value) {
  char line[96];
  int n = snprintf(line, sizeof line, "%s %llu\n", what, (unsigned long long)value);
  put_bytes(w->log, slice_of(line, (size_t)n));
}

/* The answer was given: nothing of the request may be used any more. */
static void work_over(struct world *w) {
  struct work *k = TAKE(w->work);
  w->answered++;
  FUZZ_CHECK(!k->reading && !k->writing);
  free(k->buf);
  free(k);
}

static void answer_done(struct world *w) {
  struct http_request *req = w->work->req;
  work_over(w);
  http_respond(req, 200, SLICE_LIT("done\n"));
}

static void on_body(void *arg, int err, size_t n) {
  struct world *w = arg;
  struct work *k = w->work;
  k->reading = false;
  if (err == 0) {
    FUZZ_CHECK(n <= k->buf_len);
    k->crc = crc32c(k->crc, k->buf, n);
    k->got += n;
    if (n == k->buf_len) {
      k->ready = true;
      return;
    }
    log_line(w, "body", k->got);
    log_line(w, "crc", k->crc);
    if (!k->req->chunked) FUZZ_CHECK(k->got == k->req->body.length);
  } else {
    log_line(w, "body broken", 0);
    http_close_after(k->req);
  }
  k->mode |= 8; /* read to its end */
  k->ready = true;
}

static void on_sink(void *arg, int err) {
  struct world *w = arg;
  w->work->writing = false;
  w->work->ready = true;
  if (err < 0) w->work->writes_left = 0;
}

static void on_gone(struct http_request *req) {
  struct world *w = req->user;
  FUZZ_CHECK(w->work && w->work->req == req && !w->work->gone);
  w->work->gone = true;
}

/* Modes: 0 reads all and answers; 1 answers at once; 2 reads all, then streams an answer; 3 asks
 * for nothing and streams; 4 resets. */
static unsigned mode_of(const struct http_request *req) {
  uint32_t h = crc32c(0, req->target.data, req->target.len);
  return h % 32 == 31 ? 4 : h % 4;
}

static void work_stream(struct world *w) {
  struct work *k = w->work;
  static const uint8_t bytes[1000] = {'x'};
  struct slice part = slice_of(bytes, 1 + fuzz_below(&w->rand, sizeof bytes));
  if (k->writes_left == 0) {
    struct http_request *req = k->req;
    work_over(w);
    http_end(req);
    return;
  }
  k->writes_left--;
  k->writing = true;
  k->req->sink.ops->write(&k->req->sink, &part, 1, on_sink, w);
}

static void work_read(struct world *w) {
  struct work *k = w->work;
  free(k->buf);
  k->buf_len = 1 + fuzz_below(&w->rand, fuzz_below(&w->rand, 2) ? 40 : READ_BYTES_MAX);
  k->buf = malloc(k->buf_len);
  FUZZ_CHECK(k->buf);
  k->reading = true;
  k->req->body.ops->read(&k->req->body, k->buf, k->buf_len, on_body, w);
  if (fuzz_below(&w->rand, 64) == 0) http_continue(k->req);
}

static void work_step(struct world *w) {
  struct work *k = w->work;
  unsigned mode = k->mode & 7;
  k->ready = false;
  if ((mode == 0 || mode == 2) && k->req->has_body && !(k->mode & 8)) {
    work_read(w);
  } else if (mode == 4) {
    struct http_request *req = k->req;
    work_over(w);
    http_reset(req);
  } else if (mode < 2) {
    answer_done(w);
  } else if (!(k->mode & 16)) {
    k->mode |= 16;
    k->writes_left = (unsigned)fuzz_below(&w->rand, 4);
    http_header_addf(k->req, "X-Long", "%0*d", (int)fuzz_below(&w->rand, 400), 7);
    http_begin(k->req, 200, BODY_LENGTH_UNKNOWN);
    if (fuzz_below(&w->rand, 8) == 0) {
      http_begin_undo(k->req);
      http_begin(k->req, 201, BODY_LENGTH_UNKNOWN);
    }
    k->ready = true;
  } else {
    work_stream(w);
  }
}

static void handle(void *arg, struct http_request *req) {
  struct world *w = arg;
  FUZZ_CHECK(!w->work);
  w->handled++;
  w->work = calloc(1, sizeof *w->work);
  FUZZ_CHECK(w->work);
  *w->work = (struct work){.req = req, .mode = mode_of(req), .ready = true};
  req->user = w;
  req->gone = on_gone;
  bed_log_request(w->log, req);
  put_bytes(w->log, req->method_name);
  put_u8(w->log, ' ');
  put_bytes(w->log, req->target);
  put_u8(w->log, '\n');
  for (unsigned i = 0; i < req->header_count; i++) {
    put_bytes(w->log, req->headers[i].name);
    put_u8(w->log, ':');
    put_bytes(w->log, req->headers[i].value);
    put_u8(w->log, '\n');
  }
  log_line(w, "length", req->body.length);
  if (fuzz_below(&w->rand, 2)) work_step(w);
}

static void describe(void *arg, int status, const char *code, const char *message,
                     const char *request_id, struct byte_writer *body) {
  struct world *w = arg;
  log_line(w, "refused", 1);
  put_bytes(body, slice_str(message));
}

static bool turn(void *arg) {
  struct world *w = arg;
  if (!w->work || !w->work->ready || w->work->reading || w->work->writing) return false;
  if (fuzz_below(&w->rand, 3) == 0) return true; /* later */
  work_step(w);
  return true;
}

static void run(struct slice in, struct fuzz_rand *cuts, uint64_t seed, struct byte_writer *log) {
  struct world w = {.rand = {seed}, .log = log};
  struct byte_writer sent = {.max = 64u << 20};
  struct fuzz_rand ends = fuzz_rand_of(in, 5);
  struct bed_run bed = {.in = in,
                        .handler = {handle, describe, &w},
                        .cuts = cuts,
                        .end = (enum bed_end)fuzz_below(&ends, BED_END_COUNT),
                        .seed = seed,
                        .turn = turn,
                        .arg = &w};
  bed_serve(&bed, &sent);
  FUZZ_CHECK(!w.work && w.handled == w.answered);
  FUZZ_CHECK(!sent.failed && !log->failed);
  if (sent.len)
    FUZZ_CHECK(slice_starts_with(slice_of(sent.data, sent.len), SLICE_LIT("HTTP/1.1 ")));
  byte_writer_free(&sent);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  struct slice in = slice_of(data, len);
  struct byte_writer whole = {.max = 64u << 20}, cut = {.max = 64u << 20};
  struct fuzz_rand cuts = fuzz_rand_of(in, 0);
  run(in, NULL, 1, &whole);
  run(in, &cuts, fuzz_next(&cuts), &cut);
  bed_logs_agree(&whole, &cut);
  byte_writer_free(&whole);
  byte_writer_free(&cut);
  return 0;
}
