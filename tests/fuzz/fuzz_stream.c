/* fuzz_stream.c: a connection between hosts, from its first byte on: staging, frames, handshake,
 * bulk.
 *
 * The real storage/net/stream*.c and handshake.c run over fake_uv. The input is a list of frames in
 * a loose form, out of which bytes with right magics and CRCs (and right proofs) are made unless a
 * flag asks for wrong ones, for no fuzzer guesses those. The same bytes, fed whole and in pieces,
 * must give the owner the same frames and the same bulk, and end the same way. */
#include "codec/crc32c.h"
#include "config/err.h"
#include "storage/net/stream.h"
#include "tests/fuzz/fake_uv.h"

#define WIRE_BYTES_MAX (1u << 20)
#define FRAMES_MAX 24

enum { BAD_HEADER = 1, BAD_META = 2, RAW = 4, RIGHT = 8, LONG_META = 16, LONG_BULK = 32 };

/* ---- who we are, and who they are ---- */

static struct cluster_map map;

static void fill_as(struct hello *h, const char *host) {
  snprintf(h->cluster_name, sizeof h->cluster_name, "c");
  snprintf(h->host_id, sizeof h->host_id, "%s", host);
  h->boot = BOOT_FORMATTED;
  h->cluster_id = (struct id128){{5}};
  h->epoch = 1;
  h->canonical = "cluster c\n";
}

static void policy_fill(struct hello_policy *p, struct hello *h) {
  fill_as(h, "n1");
}

static int policy_check(struct hello_policy *p, int host, const struct hello *remote, char *why,
                        size_t why_cap) {
  if (remote->epoch != 13) return 0;
  if (remote->boot == BOOT_FORMATTED) snprintf(why, why_cap, "epoch differs");
  return ERR_REFUSED;
}

static struct hello_policy policy = {.fill = policy_fill, .check = policy_check};

static void prepare(void) {
  if (map.host_count) return;
  map.host_count = 2;
  map.hosts[0].id = "n1";
  map.hosts[1].id = "n2";
  policy.secret = SLICE_LIT("a secret of the fuzzer");
}

/* ---- the input made into bytes ---- */

struct wire {
  struct byte_writer bytes;
  enum hello_role role;     /* ours */
  struct byte_writer hello; /* their last HELLO: what a right proof is over */
};

static void wire_hello(struct wire *w, struct byte_writer *meta) {
  static const uint8_t challenge[HELLO_CHALLENGE_BYTES] = {1, 2, 3};
  struct hello *h = calloc(1, sizeof *h);
  FUZZ_CHECK(h);
  fill_as(h, "n2");
  h->protocol_min = HELLO_PROTOCOL_MIN;
  h->protocol_max = HELLO_PROTOCOL_MAX;
  hello_put(meta, h, challenge);
  free(h);
}

/* The proof that they would make over our HELLO, whose challenge fake_uv gave, and theirs. */
static void wire_proof(struct wire *w, struct byte_writer *meta) {
  uint8_t challenge[HELLO_CHALLENGE_BYTES], proof[SHA256_LEN];
  struct handshake us, them;
  enum hello_role role = w->role == HELLO_CONNECTOR ? HELLO_LISTENER : HELLO_CONNECTOR;
  memset(challenge, 9, sizeof challenge);
  FUZZ_CHECK(handshake_open(&us, &policy, &map, w->role, -1, challenge) == 0);
  /* Seen from their side our HELLO is the remote one, and theirs stands in `ours`. */
  FUZZ_CHECK(handshake_open(&them, &policy, &map, role, -1, challenge) == 0);
  them.our_challenge[0] = 1;
  struct slice theirs = slice_of(w->hello.data, w->hello.len);
  if (theirs.len >= 4 + HELLO_CHALLENGE_BYTES)
    memcpy(them.our_challenge, theirs.data + 4, HELLO_CHALLENGE_BYTES);
  them.ours.len = 0;
  put_bytes(&them.ours, theirs);
  if (handshake_hello(&them, slice_of(us.ours.data, us.ours.len)) == 0 &&
      handshake_prove(&them, proof) == 0)
    put_bytes(meta, slice_of(proof, sizeof proof));
  handshake_close(&us);
  handshake_close(&them);
}

static void put_repeated(struct byte_writer *w, struct slice part, size_t len) {
  for (size_t n = 0; n < len;) {
    size_t k = part.len ? MIN(part.len, len - n) : 1;
    if (part.len)
      put_bytes(w, slice_of(part.data, k));
    else
      put_u8(w, (uint8_t)n);
    n += k;
  }
}

static void wire_frame(struct wire *w, struct slice *in) {
  uint8_t type = (uint8_t)(fuzz_u8(in) % (FRAME_TYPE_END + 1)), flags = fuzz_u8(in);
  uint8_t stream = fuzz_u8(in);
  size_t meta_len = fuzz_u8(in), bulk_len = fuzz_u8(in);
  struct byte_writer meta = {.max = WIRE_BYTES_MAX};
  uint8_t bytes[FRAME_HEADER_BYTES];
  struct slice part = fuzz_take(in, meta_len);
  if (flags & RAW) {
    put_bytes(&w->bytes, part);
    return;
  }
  if ((flags & RIGHT) && type == FRAME_HELLO)
    wire_hello(w, &meta);
  else if ((flags & RIGHT) && type == FRAME_PROOF)
    wire_proof(w, &meta);
  else
    put_repeated(&meta, part, flags & LONG_META ? meta_len * 128 : part.len);
  if (flags & LONG_BULK) bulk_len *= 300;
  struct frame_header h = {type, stream, (uint32_t)meta.len, (uint32_t)bulk_len,
                           crc32c(0, meta.data, meta.len) ^ !!(flags & BAD_META)};
  frame_header_encode(&h, bytes);
  if (flags & BAD_HEADER) bytes[stream % FRAME_HEADER_BYTES] ^= 1;
  put_bytes(&w->bytes, slice_of(bytes, sizeof bytes));
  put_bytes(&w->bytes, slice_of(meta.data, meta.len));
  put_repeated(&w->bytes, fuzz_take(in, bulk_len & 15), bulk_len);
  if (type == FRAME_HELLO) {
    w->hello.len = 0;
    put_bytes(&w->hello, slice_of(meta.data, meta.len));
  }
  byte_writer_free(&meta);
}

/* ---- the owner ---- */

struct owner {
  struct stream *stream; /* NULL: closed */
  struct byte_writer *log;
  uint8_t *bulk;
  size_t bulk_len;
  struct peer_unit units[PEER_UNITS_MAX];
  unsigned unit_count;
  bool waits, ended;
};

static void note(struct owner *o, const char *what, uint64_t a, uint64_t b) {
  char line[128];
  int n = snprintf(line, sizeof line, "%s %llu %llu\n", what, (unsigned long long)a,
                   (unsigned long long)b);
  put_bytes(o->log, slice_of(line, (size_t)n));
}

static void on_ready(struct stream *s) {
  struct owner *o = s->owner;
  FUZZ_CHECK(s->hs.step == HANDSHAKE_DONE && s->hs.host == 1 && s->state == STREAM_OPEN);
  note(o, "ready", s->hs.version, 0);
}

/* Units of many lengths, some empty, some next to each other in memory. */
static void bulk_into(struct owner *o, uint32_t len, uint32_t seed) {
  struct fuzz_rand r = {seed};
  size_t at = 0;
  o->bulk_len = len + PEER_UNITS_MAX;
  o->bulk = calloc(1, o->bulk_len);
  FUZZ_CHECK(o->bulk);
  o->unit_count = 1 + (unsigned)fuzz_below(&r, PEER_UNITS_MAX);
  uint32_t left = len;
  for (unsigned i = 0; i < o->unit_count; i++) {
    bool last = i == o->unit_count - 1;
    uint32_t part = last ? left : (uint32_t)fuzz_below(&r, MIN(left, 4000u) + 1);
    o->units[i] = (struct peer_unit){.data = o->bulk + at, .len = part};
    left -= part;
    at += part + fuzz_below(&r, 2);
  }
  stream_bulk_into(o->stream, o->units, o->unit_count);
}

static int on_frame(struct stream *s, const struct frame_header *h, struct slice meta) {
  struct owner *o = s->owner;
  FUZZ_CHECK(s->state == STREAM_OPEN && meta.len == h->meta_len && !o->waits && !o->bulk);
  note(o, "frame", h->type, h->stream);
  note(o, "meta", meta.len, crc32c(0, meta.data, meta.len));
  uint32_t choice = h->meta_crc ^ h->stream * 2654435761u;
  if (choice % 61 == 7) return stream_complain(s, "%s", "no");
  if (choice % 61 == 8) return ERR_PROTOCOL;
  if (choice % 5 == 1) {
    o->waits = true;
    return STREAM_WAIT;
  }
  if (h->bulk_len > 0 && choice % 5 != 2) bulk_into(o, h->bulk_len, choice);
  return 0;
}

static int on_bulk_done(struct stream *s) {
  struct owner *o = s->owner;
  uint32_t crc = 0;
  for (unsigned i = 0; o->bulk && i < o->unit_count; i++)
    crc = crc32c(crc, o->units[i].data, o->units[i].len);
  note(o, "bulk", s->head.bulk_len, o->bulk ? crc : 0);
  free(TAKE(o->bulk));
  return s->head.stream == 0x66 ? stream_complain(s, "no such bulk") : 0;
}

static void on_ended(struct stream *s) {
  struct owner *o = s->owner;
  FUZZ_CHECK(!o->ended && s->err < 0 && memchr(s->why, 0, sizeof s->why));
  o->ended = true;
  note(o, "ended", s->end, (uint64_t)-s->err);
  put_bytes(o->log, slice_str(s->why));
  free(TAKE(o->bulk));
}

static void on_closed(struct stream *s) {
  struct owner *o = s->owner;
  o->stream = NULL;
}

static const struct stream_ops ops = {on_ready, on_frame, on_bulk_done, on_ended, on_closed};

static void resume(struct owner *o) {
  o->waits = false;
  if (o->stream->state == STREAM_ENDED) return;
  if (o->stream->bulk_left > 0) bulk_into(o, o->stream->bulk_left, o->stream->head.meta_crc);
  stream_resume(o->stream);
}

static void feed(struct owner *o, struct slice bytes, struct fuzz_rand *cuts) {
  size_t at = 0;
  unsigned idle = 0;
  uv_stream_t *tcp = (uv_stream_t *)&o->stream->tcp;
  while (o->stream) {
    size_t left = bytes.len - at, took = 0;
    size_t n = cuts ? fuzz_piece(cuts, left) : left;
    if (left) {
      uint8_t *piece = fuzz_copy(slice_of(bytes.data + at, n));
      took = fake_uv_feed(tcp, slice_of(piece, n));
      free(piece);
    }
    at += took;
    bool any = fake_uv_turn() || took > 0;
    if (o->stream && o->waits && (!cuts || fuzz_below(cuts, 2))) {
      resume(o);
      any = true;
    }
    idle = any || (o->stream && o->waits) ? 0 : idle + 1;
    if (idle < 8) continue;
    FUZZ_CHECK(idle < 16);
    /* All is read: the other goes away. What still lives then waits for a timer. */
    if (o->stream && !fake_uv_feed_end(tcp, UV_EOF)) fake_uv_advance(STREAM_HANDSHAKE_MS + 1);
  }
}

static void run(const struct wire *w, bool open, struct fuzz_rand *cuts, uint64_t seed,
                struct byte_writer *log) {
  struct owner o = {.log = log};
  fake_uv_begin(seed);
  int err = stream_new(fake_uv_loop(), &ops, &o, &policy, &map, w->role, -1, &o.stream);
  FUZZ_CHECK(err == 0);
  FUZZ_CHECK(stream_accept(o.stream, NULL) == 0);
  if (open) { /* as if the handshake were behind us: its deadline with it */
    uv_timer_stop(&o.stream->timer);
    o.stream->state = STREAM_OPEN;
  }
  feed(&o, slice_of(w->bytes.data, w->bytes.len), cuts);
  FUZZ_CHECK(o.ended && !o.bulk && !log->failed);
  fake_uv_end();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  struct slice in = slice_of(data, len);
  struct wire w = {.bytes.max = 16 * WIRE_BYTES_MAX, .hello.max = WIRE_BYTES_MAX};
  struct byte_writer whole = {.max = 1u << 20}, cut = {.max = 1u << 20};
  struct fuzz_rand cuts = fuzz_rand_of(in, 0);
  prepare();
  uint8_t mode = fuzz_u8(&in);
  w.role = mode & 1 ? HELLO_CONNECTOR : HELLO_LISTENER;
  for (unsigned i = 0; in.len > 0 && i < FRAMES_MAX; i++) wire_frame(&w, &in);
  FUZZ_CHECK(!w.bytes.failed);
  run(&w, mode & 2, NULL, 1, &whole);
  run(&w, mode & 2, &cuts, fuzz_next(&cuts), &cut);
  if (!slice_eq(slice_of(whole.data, whole.len), slice_of(cut.data, cut.len))) {
    fprintf(stderr, "---- whole:\n%.*s\n---- in pieces:\n%.*s\n", (int)whole.len,
            (char *)whole.data, (int)cut.len, (char *)cut.data);
    FUZZ_CHECK(!"pieces mean the same");
  }
  byte_writer_free(&w.bytes);
  byte_writer_free(&w.hello);
  byte_writer_free(&whole);
  byte_writer_free(&cut);
  return 0;
}
