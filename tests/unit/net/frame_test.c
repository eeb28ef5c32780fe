/* frame_test.c: headers, requests and replies go there and back; cut, flipped and absurd ones are
 * refused and leave the results untouched. */
#include "storage/net/frame.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "config/err.h"
#include "storage/net/hello.h"

static struct slice meta_of(const struct byte_writer *w) {
  return slice_of(w->data + FRAME_HEADER_BYTES, w->len - FRAME_HEADER_BYTES);
}

/* A copy of exactly these bytes, so that a sanitizer sees any read beyond them. */
static struct slice exact(struct slice s) {
  uint8_t *copy = malloc(s.len ? s.len : 1);
  if (s.len) memcpy(copy, s.data, s.len);
  return slice_of(copy, s.len);
}

/* Every field has a value of its own. */
static struct peer_request full_request(uint8_t verb) {
  struct peer_request req = {
      .verb = verb,
      .flags = PEER_WANT_INLINE,
      .pool = 3,
      .slot = 2,
      .bucket_state = BUCKET_DELETING,
      .partition = 1023,
      .epoch = 0x01020304,
      .timeout_ms = 5000,
      .key = SLICE_LIT("a//b\xc3\xa9"),
      .ver = {0x1122334455667788ull, 0x99aabbccddeeff00ull},
      .row = SLICE_LIT("row bytes \0 with a NUL"),
      .profile = {TECHNIQUE_CAUCHY, 4, 2, 65536},
      .unit_first = 0x0102030405ull,
      .missing = 0x80000001u,
      .from = SLICE_LIT("from"),
      .prefix = SLICE_LIT("prefix/"),
      .delimiter = SLICE_LIT("/"),
      .limit = 1000,
      .age_ms = 0x0a0b0c0d0e0full,
  };
  for (unsigned i = 0; i < 16; i++) {
    req.bucket.bytes[i] = (uint8_t)(i + 1);
    req.data_id.bytes[i] = (uint8_t)(0xf0 + i);
  }
  if (verb == PEER_STAGE || verb == PEER_ACCEPT || verb == PEER_FETCH) {
    req.unit_count = 3;
    for (unsigned i = 0; i < 3; i++)
      req.units[i] = (struct peer_unit){NULL, 1000 + i, 0xdead0000u + i};
  }
  return req;
}

static void assert_same(const struct peer_request *a, const struct peer_request *b) {
  cr_assert_eq(a->verb, b->verb);
  cr_assert_eq(a->flags, b->flags);
  cr_assert_eq(a->pool, b->pool);
  cr_assert_eq(a->slot, b->slot);
  cr_assert_eq(a->bucket_state, b->bucket_state);
  cr_assert_eq(a->partition, b->partition);
  cr_assert_eq(a->epoch, b->epoch);
  cr_assert_eq(a->timeout_ms, b->timeout_ms);
  cr_assert(id128_eq(&a->bucket, &b->bucket));
  cr_assert(id128_eq(&a->data_id, &b->data_id));
  cr_assert(slice_eq(a->key, b->key));
  cr_assert(slice_eq(a->row, b->row));
  cr_assert(slice_eq(a->from, b->from));
  cr_assert(slice_eq(a->prefix, b->prefix));
  cr_assert(slice_eq(a->delimiter, b->delimiter));
  cr_assert_eq(version_cmp(&a->ver, &b->ver), 0);
  cr_assert_eq(a->profile.technique, b->profile.technique);
  cr_assert_eq(a->profile.k, b->profile.k);
  cr_assert_eq(a->profile.m, b->profile.m);
  cr_assert_eq(a->profile.unit_bytes, b->profile.unit_bytes);
  cr_assert_eq(a->unit_first, b->unit_first);
  cr_assert_eq(a->missing, b->missing);
  cr_assert_eq(a->limit, b->limit);
  cr_assert_eq(a->age_ms, b->age_ms);
  cr_assert_eq(a->unit_count, b->unit_count);
  for (unsigned i = 0; i < a->unit_count; i++) {
    cr_assert_eq(a->units[i].len, b->units[i].len);
    cr_assert_eq(a->units[i].crc, b->units[i].crc);
  }
}

Test(frame, every_request_goes_there_and_back) {
  for (uint8_t verb = PEER_READ; verb < PEER_VERB_END; verb++) {
    struct peer_request req = full_request(verb), back;
    uint16_t drive;
    const char *why = "";
    cr_assert_eq(frame_request_check(&req, &why), 0, "%s: %s", frame_verb_name(verb), why);
    struct byte_writer w = {0};
    frame_begin(&w, FRAME_REQUEST);
    frame_put_request(&w, 0x0102, &req);
    uint32_t bulk = frame_request_bulk(&req);
    cr_assert_eq(bulk, verb == PEER_STAGE || verb == PEER_ACCEPT ? 3003u : 0u);
    cr_assert_eq(frame_end(&w, FRAME_REQUEST, 77, bulk), 0);
    struct frame_header h;
    cr_assert_eq(frame_header_decode(w.data, &h, &why), 0);
    cr_assert(h.type == FRAME_REQUEST && h.stream == 77 && h.bulk_len == bulk);
    cr_assert_eq(h.meta_len, w.len - FRAME_HEADER_BYTES);
    cr_assert_eq(frame_get_request(meta_of(&w), &drive, &back), 0);
    cr_assert_eq(drive, 0x0102);
    assert_same(&req, &back);
    byte_writer_free(&w);
  }
}

Test(frame, a_request_cut_anywhere_is_refused) {
  struct peer_request req = full_request(PEER_STAGE), back = {.verb = 99};
  struct byte_writer w = {0};
  uint16_t drive = 4711;
  frame_begin(&w, FRAME_REQUEST);
  frame_put_request(&w, 1, &req);
  struct slice whole = meta_of(&w);
  for (size_t len = 0; len < whole.len; len++) {
    struct slice cut = exact(slice_of(whole.data, len));
    cr_assert_eq(frame_get_request(cut, &drive, &back), ERR_PROTOCOL, "at %zu", len);
    free((void *)cut.data);
  }
  put_u8(&w, 0); /* one byte too many */
  cr_assert_eq(frame_get_request(meta_of(&w), &drive, &back), ERR_PROTOCOL);
  cr_assert(drive == 4711 && back.verb == 99, "results were touched");
  byte_writer_free(&w);
}

Test(frame, flipped_bytes_never_read_beyond_the_end) {
  struct peer_request req = full_request(PEER_STAGE), back;
  struct byte_writer w = {0};
  uint16_t drive;
  frame_begin(&w, FRAME_REQUEST);
  frame_put_request(&w, 1, &req);
  struct slice copy = exact(meta_of(&w));
  uint8_t *bytes = (uint8_t *)copy.data;
  for (size_t i = 0; i < copy.len; i++) {
    for (unsigned v = 0; v < 256; v += 5) {
      uint8_t was = bytes[i];
      bytes[i] = (uint8_t)v;
      if (frame_get_request(copy, &drive, &back) == 0) {
        const char *why;
        cr_assert_leq(back.unit_count, PEER_UNITS_MAX);
        if (frame_request_check(&back, &why) == 0)
          cr_assert_leq(frame_units_bytes(back.units, back.unit_count), FRAME_BULK_BYTES_MAX);
      }
      bytes[i] = was;
    }
  }
  free(bytes);
  byte_writer_free(&w);
}

Test(frame, header_refuses_any_flipped_bit) {
  struct frame_header h = {FRAME_REPLY, 5, 100, 200, 0xabcd}, back;
  uint8_t bytes[FRAME_HEADER_BYTES];
  const char *why = NULL;
  frame_header_encode(&h, bytes);
  cr_assert_eq(frame_header_decode(bytes, &back, &why), 0);
  cr_assert_eq(back.meta_crc, 0xabcdu);
  for (unsigned bit = 0; bit < 8 * FRAME_HEADER_BYTES; bit++) {
    bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    why = NULL;
    cr_assert_eq(frame_header_decode(bytes, &back, &why), ERR_PROTOCOL, "bit %u", bit);
    cr_assert_not_null(why);
    bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
  }
}

Test(frame, header_refuses_unknown_types_and_oversized_frames) {
  uint8_t bytes[FRAME_HEADER_BYTES];
  struct frame_header back = {.stream = 9};
  const char *why = NULL;
  for (unsigned type = 0; type < 256; type++) {
    const struct frame_type_info *info = frame_type_info((uint8_t)type);
    struct frame_header h = {.type = (uint8_t)type};
    if (!info) {
      frame_header_encode(&h, bytes);
      cr_assert_eq(frame_header_decode(bytes, &back, &why), ERR_PROTOCOL);
      cr_assert_str_eq(why, "an unknown frame type");
      continue;
    }
    h.meta_len = info->meta_max;
    h.bulk_len = info->bulk_max;
    struct frame_header ok;
    frame_header_encode(&h, bytes);
    cr_assert_eq(frame_header_decode(bytes, &ok, &why), 0, "%s", info->name);
    h.meta_len++;
    frame_header_encode(&h, bytes);
    cr_assert_eq(frame_header_decode(bytes, &back, &why), ERR_PROTOCOL);
    h.meta_len--;
    h.bulk_len++;
    frame_header_encode(&h, bytes);
    cr_assert_eq(frame_header_decode(bytes, &back, &why), ERR_PROTOCOL);
    cr_assert_str_eq(why, "an oversized frame");
  }
  cr_assert_eq(back.stream, 9u, "results were touched");
}

static void assert_refused(struct peer_request req, const char *words) {
  const char *why = "nothing";
  cr_assert_eq(frame_request_check(&req, &why), ERR_PROTOCOL, "expected: %s", words);
  cr_assert_str_eq(why, words);
}

Test(frame, requests_beyond_a_limit_are_refused) {
  static uint8_t big[ROW_BYTES_MAX + 1];
  const struct peer_request read = full_request(PEER_READ), stage = full_request(PEER_STAGE),
                            accept = full_request(PEER_ACCEPT), fetch = full_request(PEER_FETCH);
  struct peer_request r;
#define REFUSED(from, change, words) (r = (from), change, assert_refused(r, words))
  REFUSED(read, r.verb = 0, "an unknown verb");
  REFUSED(read, r.verb = PEER_VERB_END, "an unknown verb");
  REFUSED(read, r.verb = 255, "an unknown verb");
  REFUSED(read, r.flags = 0x80, "unknown request flags");
  REFUSED(read, r.pool = MAP_POOLS_MAX, "a pool that cannot exist");
  REFUSED(read, r.slot = MAP_SLOTS_MAX, "a slot that cannot exist");
  REFUSED(read, r.partition = 1024, "a partition that cannot exist");
  REFUSED(read, r.timeout_ms = 0, "a wrong deadline");
  REFUSED(read, r.timeout_ms = FRAME_TIMEOUT_MS_MAX + 1, "a wrong deadline");
  REFUSED(read, r.key.len = 0, "no key");
  REFUSED(read, r.key = slice_of(big, KEY_BYTES_MAX + 1), "a key that is too long");
  REFUSED(read, r.row = slice_of(big, ROW_BYTES_MAX + 1), "a row that is too long");
  REFUSED(read, r.from = slice_of(big, FRAME_CURSOR_BYTES_MAX + 1), "a cursor that is too long");
  REFUSED(read, r.prefix = slice_of(big, KEY_BYTES_MAX + 1), "a prefix that is too long");
  REFUSED(read, r.delimiter = slice_of(big, KEY_BYTES_MAX + 1), "a delimiter that is too long");
  REFUSED(read, r.limit = PEER_LIST_ENTRIES_MAX + 1, "a limit that is too high");
  REFUSED(read, r.unit_count = 1, "units without use");
  REFUSED(accept, r.row.len = 0, "no row");
  REFUSED(accept, r.units[0].len = PEER_INLINE_BYTES_MAX, "an inline chunk that is too long");
  REFUSED(stage, r.unit_count = 0, "no units");
  REFUSED(stage, r.unit_count = PEER_UNITS_MAX + 1, "too many units");
  REFUSED(stage, r.units[1].len = PEER_UNIT_BYTES_MAX + 1, "a unit that is too long");
  REFUSED(stage, r.units[1].len = 65537, "a unit longer than its profile's");
  REFUSED(stage, r.unit_first = FRAME_UNIT_NUMBER_MAX + 1, "a unit number that is too high");
  REFUSED(stage, r.profile.technique = TECHNIQUE_COUNT, "an unknown technique");
  REFUSED(stage, r.profile.k = 0, "a profile that cannot exist");
  REFUSED(stage, r.profile.k = 31, "a profile that cannot exist");
  REFUSED(stage, r.profile.unit_bytes = 0, "a wrong stripe unit");
  REFUSED(stage, r.profile.unit_bytes = PEER_UNIT_BYTES_MAX + 1, "a wrong stripe unit");
  REFUSED(stage, r.slot = 6, "a slot beyond its profile");
  REFUSED(fetch, r.unit_count = 0, "no units");
  REFUSED(fetch, r.slot = 6, "a slot beyond its profile");
  REFUSED(full_request(PEER_BUCKET), r.bucket_state = 0, "an unknown bucket state");
  REFUSED(full_request(PEER_BUCKET), r.bucket_state = 4, "an unknown bucket state");
#undef REFUSED
}

Test(frame, replies_go_there_and_back_and_refuse_every_cut) {
  struct frame_reply r = {.err = ERR_PROMISED,
                          .flags = PEER_SUPERSEDED,
                          .ver = {1, 2},
                          .unit_count = 2,
                          .units = {{NULL, 10, 11}, {NULL, 12, 13}},
                          .body = SLICE_LIT("a body")},
                     back = {.flags = 77};
  struct byte_writer w = {0};
  frame_begin(&w, FRAME_REPLY);
  frame_put_reply(&w, &r);
  struct slice whole = meta_of(&w);
  for (size_t len = 0; len < whole.len; len++) {
    struct slice cut = exact(slice_of(whole.data, len));
    cr_assert_eq(frame_get_reply(cut, &back), ERR_PROTOCOL, "at %zu", len);
    free((void *)cut.data);
  }
  cr_assert_eq(back.flags, 77);
  cr_assert_eq(frame_get_reply(whole, &back), 0);
  cr_assert(back.err == r.err && back.flags == r.flags && back.ver.hlc == 1 && back.ver.nonce == 2);
  cr_assert(back.unit_count == 2 && back.units[1].len == 12 && back.units[1].crc == 13);
  cr_assert(slice_eq(back.body, r.body));
  byte_writer_free(&w);
}

Test(frame, errors_from_the_wire) {
  const struct {
    int sent, got, result;
  } cases[] = {
      {0, 0, 0},
      {-5, -5, 0},
      {ERR_DRIVE_FAILED, ERR_DRIVE_FAILED, 0},
      {-9999, ERR_PROTOCOL, 0}, /* a newer host's: the call fails, no more */
      {1, 0, ERR_PROTOCOL},
  };
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    struct frame_reply r = {.err = cases[i].sent}, back;
    struct byte_writer w = {0};
    frame_begin(&w, FRAME_REPLY);
    frame_put_reply(&w, &r);
    cr_assert_eq(frame_get_reply(meta_of(&w), &back), cases[i].result);
    if (cases[i].result == 0) cr_assert_eq(back.err, cases[i].got);
    byte_writer_free(&w);
  }
}

Test(frame, a_frame_beyond_its_type_is_not_made) {
  static uint8_t big[FRAME_REQUEST_META_BYTES_MAX + 1];
  struct byte_writer w = {0};
  frame_begin(&w, FRAME_REQUEST);
  put_bytes(&w, slice_of(big, sizeof big));
  cr_assert_lt(frame_end(&w, FRAME_REQUEST, 1, 0), 0);
  byte_writer_free(&w);
  w = (struct byte_writer){0};
  frame_begin(&w, FRAME_PING);
  cr_assert_eq(frame_end(&w, FRAME_PING, 1, 1), ERR_TOO_LARGE);
  byte_writer_free(&w);
}
