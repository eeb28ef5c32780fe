/* http_bed.c: see http_bed.h. Stands in for the little of storage/net that the server asks for. */
#include "tests/fuzz/http_bed.h"

#include "storage/net/chunk_server.h"

#define BED_LIMIT_MS 10000
#define BED_IDLE_TURNS_MAX 8

struct env *env_uv_env(struct env_uv *e) {
  return fake_uv_env();
}

uv_loop_t *env_uv_loop(struct env_uv *e) {
  return fake_uv_loop();
}

int listen_open(const char *address) {
  return 0; /* uv_tcp_open does not look at it */
}

static bool bed_turn(const struct bed_run *run) {
  bool any = fake_uv_turn();
  if (run->turn && run->turn(run->arg)) any = true;
  return any;
}

/* The client's last step. Called again until the connection is gone; every call must bring that
 * nearer. */
static void bed_finish(const struct bed_run *run, struct http_server *s, uv_stream_t *stream,
                       unsigned step) {
  bool told = false;
  if (step == 0 && run->end == BED_EOF) told = fake_uv_feed_end(stream, UV_EOF);
  if (step == 0 && run->end == BED_RESET) told = fake_uv_feed_end(stream, UV_ECONNRESET);
  if (told) return;
  FUZZ_CHECK(step < 12);
  /* Idle, header, body and linger deadlines; the longest way is body -> skip -> linger. */
  if (step < 8)
    fake_uv_advance(BED_LIMIT_MS + 1);
  else
    http_server_abort(s); /* only a handler that waits for itself is left */
  FUZZ_CHECK(step < 8);
}

static void bed_feed(const struct bed_run *run, struct http_server *s, uv_stream_t *stream,
                     struct byte_writer *sent) {
  size_t at = 0, seen = 0;
  unsigned idle = 0, step = 0;
  while (!fake_uv_is_closed(stream)) {
    size_t left = run->in.len - at;
    size_t n = MIN(left, (size_t)HTTP_READ_BYTES); /* what one read takes at most */
    if (run->cuts) n = fuzz_piece(run->cuts, n);
    size_t took = 0;
    if (left) {
      uint8_t *piece = fuzz_copy(slice_of(run->in.data + at, n)); /* only now are they there */
      took = fake_uv_feed(stream, slice_of(piece, n));
      free(piece);
    }
    at += took;
    bool any = bed_turn(run) || took > 0;
    struct slice all = fake_uv_sent(stream);
    if (all.len > seen) put_bytes(sent, slice_of(all.data + seen, all.len - seen));
    seen = all.len;
    idle = any ? 0 : idle + 1;
    if (idle < BED_IDLE_TURNS_MAX) continue;
    idle = 0;
    bed_finish(run, s, stream, step++);
  }
}

void bed_serve(const struct bed_run *run, struct byte_writer *ret_sent) {
  static const struct http_limits limits = {BED_LIMIT_MS, BED_LIMIT_MS, BED_LIMIT_MS, 4};
  struct http_server *s;
  fake_uv_begin(run->seed);
  int err = http_server_start((struct env_uv *)(void *)&limits, "", &run->handler, &limits, &s);
  FUZZ_CHECK(err == 0);
  fake_uv_connect((uv_stream_t *)&s->listener);
  FUZZ_CHECK(s->conns_open == 1);
  struct http_conn *conn = container_of(s->conns.next, struct http_conn, link);
  bed_feed(run, s, (uv_stream_t *)&conn->tcp, ret_sent);
  while (bed_turn(run)) {
  }
  FUZZ_CHECK(s->conns_open == 0);
  http_server_free(s);
  while (bed_turn(run)) {
  }
  fake_uv_end();
}

#define CHUNKED_MARK \
  "\x01"             \
  "chunked\n"
#define PLAIN_MARK \
  "\x01"           \
  "request\n"

void bed_log_request(struct byte_writer *log, const struct http_request *req) {
  put_bytes(log, req->chunked ? SLICE_LIT(CHUNKED_MARK) : SLICE_LIT(PLAIN_MARK));
}

void bed_logs_agree(const struct byte_writer *whole, const struct byte_writer *cut) {
  struct slice a = slice_of(whole->data, whole->len), b = slice_of(cut->data, cut->len);
  struct slice shorter = a.len < b.len ? a : b, longer = a.len < b.len ? b : a;
  if (slice_eq(a, b)) return;
  const uint8_t *mark = shorter.len ? memrchr(shorter.data, 1, shorter.len) : NULL;
  struct slice last = mark ? slice_of(mark, (size_t)(shorter.data + shorter.len - mark)) : shorter;
  if (slice_starts_with(longer, shorter) && slice_starts_with(last, SLICE_LIT(CHUNKED_MARK)))
    return;
  fprintf(stderr, "---- whole:\n%.*s\n---- in pieces:\n%.*s\n", (int)a.len,
          a.data ? (const char *)a.data : "", (int)b.len, b.data ? (const char *)b.data : "");
  FUZZ_CHECK(!"pieces mean the same");
}
