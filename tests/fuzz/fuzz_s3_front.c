/* fuzz_s3_front.c: S3 requests: from bytes on a connection to what the object layer is asked, and
 * back.
 *
 * The real server/http_*.c and s3_*.c run over fake_uv and s3_objects. Fed whole and in pieces the
 * object layer is asked the same; every answer is an HTTP answer whose framing fits its request,
 * with XML that expat takes; keys, lists and ranges that arrive lie within their limits (checked in
 * s3_objects.c). The bytes @TOKEN@ stand for a right continuation token, for no fuzzer guesses one.
 */
#include <expat.h>

#include "codec/digest.h"
#include "server/s3_op.h"
#include "tests/fuzz/http_bed.h"
#include "tests/fuzz/s3_objects.h"

#define REQUESTS_MAX 4096
#define MARK "@TOKEN@"
#define MARK_KEY "k/1"

static struct settings settings;
static struct cluster_map map;
static struct objects objects;
static char token[2 * (16 + sizeof MARK_KEY) + 1];

static void prepare(void) {
  static char user[] = "anna", secret[] = "anna's secret", region[] = "eu-1";
  static struct settings_user users[] = {{user, user, secret}};
  static char names[2][8] = {"system", "fast"};
  if (map.pool_count) return;
  map.pool_count = 2;
  map.pool_default = 1;
  map.pools[0].name = names[0];
  map.pools[1].name = names[1];
  settings.server.region = region;
  settings.users = users;
  settings.user_count = 1;
  memcpy(settings.cluster.secret, "a secret", 8);
  settings.cluster.secret_len = 8;
  objects.map = &map;
  objects.env = fake_uv_env();
  uint8_t text[16 + sizeof MARK_KEY - 1] = {0}, mac[SHA256_LEN], plain[16 + sizeof MARK_KEY - 1];
  memcpy(text + 16, MARK_KEY, sizeof MARK_KEY - 1);
  hmac_sha256(SLICE_LIT("a secret"), slice_of(text, sizeof text), mac);
  memcpy(plain, mac, 16);
  memcpy(plain + 16, MARK_KEY, sizeof MARK_KEY - 1);
  hex_encode(plain, sizeof plain, token);
}

static void expand(struct slice in, struct byte_writer *out) {
  while (in.len > 0) {
    const uint8_t *at = memmem(in.data, in.len, MARK, strlen(MARK));
    put_bytes(out, fuzz_take(&in, at ? (size_t)(at - in.data) : in.len));
    if (!at) break;
    put_bytes(out, slice_str(token));
    (void)fuzz_take(&in, strlen(MARK));
  }
}

/* ---- what was asked, seen on its way to the S3 handler ---- */

struct world {
  struct s3 s3;
  struct http_handler handler;
  struct byte_writer *log;
  bool is_head[REQUESTS_MAX];
  unsigned count, refused;
};

static void handle(void *arg, struct http_request *req) {
  struct world *w = arg;
  FUZZ_CHECK(w->count < REQUESTS_MAX);
  w->is_head[w->count++] = req->method == HTTP_M_HEAD;
  bed_log_request(w->log, req);
  w->handler.handle(w->handler.arg, req);
}

static void describe(void *arg, int status, const char *code, const char *message,
                     const char *request_id, struct byte_writer *body) {
  struct world *w = arg;
  w->refused++;
  w->handler.describe(w->handler.arg, status, code, message, request_id, body);
}

static bool turn(void *arg) {
  return s3_objects_turn();
}

/* ---- the answers ---- */

static void check_xml(struct slice body) {
  XML_Parser parser = XML_ParserCreate(NULL);
  FUZZ_CHECK(parser);
  enum XML_Status status = XML_Parse(parser, (const char *)body.data, (int)body.len, 1);
  XML_ParserFree(parser);
  if (status != XML_STATUS_OK) fprintf(stderr, "%.*s\n", (int)body.len, (const char *)body.data);
  FUZZ_CHECK(status == XML_STATUS_OK);
}

static struct slice header_of(struct slice head, const char *name) {
  const uint8_t *at = memmem(head.data, head.len, name, strlen(name));
  if (!at) return (struct slice){NULL, 0};
  at += strlen(name);
  const uint8_t *end = memmem(at, (size_t)(head.data + head.len - at), "\r\n", 2);
  return slice_of(at, (size_t)(end - at));
}

/* One answer off the front; false at the end, or where the connection broke within it. */
static bool take_answer(struct slice *in, bool is_head, unsigned *ret_status) {
  const uint8_t *end = in->len ? memmem(in->data, in->len, "\r\n\r\n", 4) : NULL;
  if (!end) return false;
  struct slice head = fuzz_take(in, (size_t)(end - in->data) + 4);
  FUZZ_CHECK(head.len > 13 && memcmp(head.data, "HTTP/1.1 ", 9) == 0);
  unsigned status = (unsigned)(head.data[9] - '0') * 100 + (unsigned)(head.data[10] - '0') * 10 +
                    (unsigned)(head.data[11] - '0');
  FUZZ_CHECK(status >= 100 && status <= 599);
  *ret_status = status;
  if (status == 100) return true;
  struct slice length = header_of(head, "\r\nContent-Length: ");
  struct slice type = header_of(head, "\r\nContent-Type: ");
  uint64_t n = 0;
  for (size_t i = 0; i < length.len; i++) n = n * 10 + (uint64_t)(length.data[i] - '0');
  FUZZ_CHECK(length.data || status == 204 || status == 304);
  if (is_head || status == 204 || status == 304) n = 0;
  if (n > in->len) return false;
  struct slice body = fuzz_take(in, (size_t)n);
  if (body.len > 0 && slice_eq(type, SLICE_LIT("application/xml"))) check_xml(body);
  FUZZ_CHECK(status <= 501 || status == 503 || status == 505);
  return true;
}

static void check_answers(const struct world *w, struct slice sent) {
  unsigned at = 0, status;
  while (take_answer(&sent, at < w->count && w->is_head[at], &status))
    if (status != 100) at++;
  FUZZ_CHECK(at <= w->count + w->refused);
}

static void run(struct slice in, struct fuzz_rand *cuts, uint64_t seed, struct byte_writer *log) {
  struct world *w = calloc(1, sizeof *w);
  struct byte_writer sent = {.max = 64u << 20};
  FUZZ_CHECK(w);
  w->s3.objects = &objects;
  w->s3.settings = &settings;
  w->log = log;
  w->handler = s3_handler(&w->s3);
  struct bed_run bed = {.in = in,
                        .handler = {handle, describe, w},
                        .cuts = cuts,
                        .end = BED_EOF,
                        .seed = seed,
                        .turn = turn,
                        .arg = w};
  s3_objects_begin(seed, log);
  bed_serve(&bed, &sent);
  s3_objects_end();
  FUZZ_CHECK(w->s3.running == 0 && !sent.failed && !log->failed);
  check_answers(w, slice_of(sent.data, sent.len));
  byte_writer_free(&sent);
  free(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  struct slice in = slice_of(data, len);
  struct byte_writer text = {.max = 1u << 20};
  struct byte_writer whole = {.max = 64u << 20}, cut = {.max = 64u << 20};
  struct fuzz_rand cuts = fuzz_rand_of(in, 0);
  prepare();
  settings.server.anonymous = fuzz_u8(&in) & 1;
  expand(in, &text);
  if (text.failed) goto out;
  struct slice all = slice_of(text.data, text.len);
  run(all, NULL, 1, &whole);
  run(all, &cuts, fuzz_next(&cuts), &cut);
  bed_logs_agree(&whole, &cut);
out:
  byte_writer_free(&text);
  byte_writer_free(&whole);
  byte_writer_free(&cut);
  return 0;
}
