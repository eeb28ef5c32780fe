/* fuzz_frame.c: the texts of the chunk protocol: frame headers, requests, replies, HELLO, drives,
 * BYE.
 *
 * The first byte says which. What is taken is written again: the same bytes, or (where a newer host
 * may say more than we know) bytes that mean the same. Results stay untouched by a refusal. */
#include "codec/crc32c.h"
#include "config/err.h"
#include "storage/net/frame.h"
#include "storage/net/hello.h"
#include "storage/object/placement.h"
#include "tests/fuzz/fuzz.h"

/* A header whose magic and CRC are made right if the first byte says so, or no input passes. */
static void header(struct slice in) {
  bool repair = fuzz_u8(&in) & 1;
  uint8_t bytes[FRAME_HEADER_BYTES] = {0}, again[FRAME_HEADER_BYTES];
  struct frame_header h = {.type = 99};
  const char *why = NULL;
  memcpy(bytes, in.data, MIN(in.len, sizeof bytes));
  if (repair) {
    store_be32(bytes, FRAME_MAGIC);
    store_be32(bytes + 24, crc32c(0, bytes, 24));
  }
  if (frame_header_decode(bytes, &h, &why) < 0) {
    FUZZ_CHECK(h.type == 99 && why && why[0]);
    return;
  }
  const struct frame_type_info *info = frame_type_info(h.type);
  FUZZ_CHECK(info && h.meta_len <= info->meta_max && h.bulk_len <= info->bulk_max && !why);
  frame_header_encode(&h, again);
  FUZZ_CHECK(memcmp(bytes, again, sizeof bytes) == 0);
}

/* frame_request_check's promises, said once more in other words. */
static void check_request(const struct peer_request *r) {
  FUZZ_CHECK(r->verb > 0 && r->verb < PEER_VERB_END &&
             strcmp(frame_verb_name(r->verb), "unknown verb"));
  FUZZ_CHECK(r->pool < MAP_POOLS_MAX && r->slot < MAP_SLOTS_MAX && r->partition < PARTITION_COUNT);
  FUZZ_CHECK(r->key.len <= KEY_BYTES_MAX && r->row.len <= ROW_BYTES_MAX);
  FUZZ_CHECK(r->prefix.len <= KEY_BYTES_MAX && r->delimiter.len <= KEY_BYTES_MAX);
  FUZZ_CHECK(r->from.len <= FRAME_CURSOR_BYTES_MAX && r->limit <= PEER_LIST_ENTRIES_MAX);
  FUZZ_CHECK(r->timeout_ms > 0 && r->timeout_ms <= FRAME_TIMEOUT_MS_MAX);
  FUZZ_CHECK(r->unit_count <= PEER_UNITS_MAX);
  for (unsigned i = 0; i < r->unit_count; i++)
    FUZZ_CHECK(r->units[i].len <= PEER_UNIT_BYTES_MAX && !r->units[i].data);
  FUZZ_CHECK(frame_request_bulk(r) <= FRAME_BULK_BYTES_MAX);
  if (r->verb == PEER_STAGE || r->verb == PEER_FETCH)
    FUZZ_CHECK(r->unit_count > 0 && r->profile.k > 0 && r->slot < profile_n(&r->profile) &&
               r->profile.unit_bytes > 0 && r->profile.unit_bytes <= PEER_UNIT_BYTES_MAX);
  if (r->verb == PEER_ACCEPT) FUZZ_CHECK(frame_request_bulk(r) <= PEER_INLINE_BYTES_MAX);
}

static void request(struct slice in) {
  uint8_t *meta = fuzz_copy(in);
  struct peer_request req = {.verb = 77};
  uint16_t drive = 4711;
  const char *why = NULL;
  if (frame_get_request(slice_of(meta, in.len), &drive, &req) == 0) {
    struct byte_writer w = {0};
    frame_begin(&w, FRAME_REQUEST);
    frame_put_request(&w, drive, &req);
    FUZZ_CHECK(w.failed == (in.len > FRAME_REQUEST_META_BYTES_MAX));
    if (!w.failed)
      FUZZ_CHECK(slice_eq(slice_of(w.data + FRAME_HEADER_BYTES, w.len - FRAME_HEADER_BYTES), in));
    byte_writer_free(&w);
    if (frame_request_check(&req, &why) == 0)
      check_request(&req);
    else
      FUZZ_CHECK(why && why[0]);
  } else {
    FUZZ_CHECK(req.verb == 77 && drive == 4711);
  }
  free(meta);
}

static void reply(struct slice in) {
  uint8_t *meta = fuzz_copy(in);
  struct frame_reply r = {.flags = 77};
  if (frame_get_reply(slice_of(meta, in.len), &r) == 0) {
    FUZZ_CHECK(r.err <= 0 && r.unit_count <= PEER_UNITS_MAX && r.body.len <= in.len);
    FUZZ_CHECK(frame_units_bytes(r.units, r.unit_count) <= FRAME_BULK_BYTES_MAX);
    struct byte_writer w = {.max = FRAME_REPLY_META_BYTES_MAX};
    frame_put_reply(&w, &r);
    FUZZ_CHECK(!w.failed && w.len == in.len);
    /* An error that we do not know has become ERR_PROTOCOL. */
    FUZZ_CHECK(memcmp(w.data + 4, meta + 4, in.len - 4) == 0);
    FUZZ_CHECK(load_be32(meta) == (uint32_t)r.err || r.err == ERR_PROTOCOL);
    byte_writer_free(&w);
  } else {
    FUZZ_CHECK(r.flags == 77);
  }
  free(meta);
}

static void hello(struct slice in) {
  uint8_t *bytes = fuzz_copy(in), challenge[HELLO_CHALLENGE_BYTES], second[HELLO_CHALLENGE_BYTES];
  struct hello *h = calloc(1, sizeof *h), *again = calloc(1, sizeof *again);
  uint16_t min, max, version;
  FUZZ_CHECK(h && again);
  h->boot = 77;
  int err = hello_get(slice_of(bytes, in.len), h, challenge);
  if (err == 0) {
    FUZZ_CHECK(h->drive_count <= MAP_DRIVES_MAX && h->boot <= BOOT_FORMATTED);
    FUZZ_CHECK(h->cluster_name[0] && strlen(h->cluster_name) <= SETTINGS_NAME_BYTES_MAX);
    FUZZ_CHECK(h->host_id[0] && strlen(h->host_id) <= SETTINGS_NAME_BYTES_MAX);
    FUZZ_CHECK(strlen(h->canonical) < in.len);
    for (unsigned i = 0; i < h->drive_count; i++) FUZZ_CHECK(h->drives[i].drive < MAP_DRIVES_MAX);
    struct byte_writer w = {.max = in.len};
    hello_put(&w, h, challenge); /* a newer host's fields behind ours are not ours to repeat */
    FUZZ_CHECK(!w.failed && w.len <= in.len && memcmp(w.data, bytes, w.len) == 0);
    FUZZ_CHECK(hello_get(slice_of(w.data, w.len), again, second) == 0);
    FUZZ_CHECK(hello_get_versions(slice_of(bytes, in.len), &min, &max) == 0);
    if (hello_version_agree(min, max, &version) == 0)
      FUZZ_CHECK(version >= min && version <= max && version >= HELLO_PROTOCOL_MIN &&
                 version <= HELLO_PROTOCOL_MAX);
    byte_writer_free(&w);
  } else {
    FUZZ_CHECK(err == ERR_PROTOCOL && h->boot == 77);
  }
  free(bytes);
  free(h);
  free(again);
}

/* The drives, then the clock, which an older host leaves out. */
static void pong(struct slice bytes, struct hello *h, size_t drives_len) {
  struct byte_reader r = byte_reader_of(bytes);
  struct byte_writer w = {.max = bytes.len + 8};
  FUZZ_CHECK(hello_get_pong(&r, h) == 0);
  hello_put_pong(&w, h);
  FUZZ_CHECK(!w.failed && w.len == drives_len + 8);
  FUZZ_CHECK(memcmp(w.data, bytes.data, bytes.len < w.len ? drives_len : w.len) == 0);
  byte_writer_free(&w);
}

static void drives(struct slice in) {
  uint8_t *bytes = fuzz_copy(in);
  struct hello *h = calloc(1, sizeof *h);
  FUZZ_CHECK(h);
  struct byte_reader r = byte_reader_of(slice_of(bytes, in.len));
  if (hello_get_drives(&r, h) == 0) {
    struct byte_writer w = {.max = in.len};
    hello_put_drives(&w, h);
    FUZZ_CHECK(!w.failed && w.len == in.len - byte_reader_left(&r));
    FUZZ_CHECK(memcmp(w.data, bytes, w.len) == 0);
    pong(slice_of(bytes, in.len), h, w.len);
    byte_writer_free(&w);
  } else {
    FUZZ_CHECK(h->drive_count == 0);
  }
  free(bytes);
  free(h);
}

static void bye(struct slice in) {
  uint8_t *bytes = fuzz_copy(in);
  char words[HELLO_WORDS_BYTES_MAX] = "", again[HELLO_WORDS_BYTES_MAX];
  int err = 1, err_again = 2;
  if (hello_get_bye(slice_of(bytes, in.len), &err, words) == 0) {
    FUZZ_CHECK(err < 0 && strlen(words) == in.len - 6);
    struct byte_writer w = {.max = in.len};
    hello_put_bye(&w, err, words);
    FUZZ_CHECK(!w.failed && w.len == in.len);
    FUZZ_CHECK(hello_get_bye(slice_of(w.data, w.len), &err_again, again) == 0);
    FUZZ_CHECK(err_again == err && strcmp(words, again) == 0);
    byte_writer_free(&w);
  } else {
    FUZZ_CHECK(err == 1);
  }
  free(bytes);
}

/* Every kind of frame through frame_begin and frame_end, with a meta out of the input. */
static void frame(struct slice in) {
  uint8_t type = (uint8_t)(1 + fuzz_u8(&in) % (FRAME_TYPE_END - 1)), bulk = fuzz_u8(&in);
  struct byte_writer w = {0};
  struct frame_header h;
  const char *why;
  const struct frame_type_info *info = frame_type_info(type);
  frame_begin(&w, type);
  put_bytes(&w, in);
  int err = frame_end(&w, type, 42, bulk);
  FUZZ_CHECK((err == 0) == (in.len <= info->meta_max && bulk <= info->bulk_max));
  if (err == 0) {
    FUZZ_CHECK(frame_header_decode(w.data, &h, &why) == 0);
    FUZZ_CHECK(h.type == type && h.stream == 42 && h.meta_len == in.len && h.bulk_len == bulk);
    FUZZ_CHECK(h.meta_crc == crc32c(0, w.data + FRAME_HEADER_BYTES, in.len));
  }
  byte_writer_free(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  static void (*const parts[])(struct slice) = {header, request, reply, hello, drives, bye, frame};
  struct slice in = slice_of(data, len);
  if (len == 0) return 0;
  parts[fuzz_u8(&in) % ARRAY_LEN(parts)](in);
  return 0;
}
