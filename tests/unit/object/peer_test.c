/* peer_test.c: bodies survive the way to and fro; a body cut or changed anywhere never reads beyond
 * its end and never decodes to something the encoder would not write. */
#include "storage/object/peer.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "config/err.h"

static const struct id128 bucket = {{1}};
static const struct slice key = {(const uint8_t *)"key", 3};

static struct slice tomb_bytes(uint64_t hlc) {
  struct row row = {.ver = {hlc, 1}, .kind = ROW_TOMB, .op_id = {{1}}};
  uint8_t *bytes = NULL;
  size_t len = 0;
  cr_assert_eq(row_encode(&row, NULL, 0, &bucket, key, &bytes, &len), 0);
  return slice_of(bytes, len);
}

static struct slice sample_rows(struct peer_rows *rows) {
  static uint8_t chunk[100];
  *rows = (struct peer_rows){
      .promised = {9, 9}, .floor = {1, 2}, .count = 2, .more = true, .inline_unit_count = 2};
  rows->rows[0] = (struct peer_row){.bytes = tomb_bytes(8), .chunk_state = CHUNK_MISSING};
  rows->rows[1] = (struct peer_row){.bytes = tomb_bytes(5), .chosen = true, .chunk_state = 1};
  rows->inline_chunk = slice_of(chunk, sizeof chunk);
  rows->inline_crcs[0] = 11;
  rows->inline_crcs[1] = 22;
  uint8_t *body = NULL;
  size_t len = 0;
  cr_assert_eq(peer_rows_encode(rows, &body, &len), 0);
  for (unsigned i = 0; i < 2; i++) free((void *)(uintptr_t)rows->rows[i].bytes.data);
  return slice_of(body, len);
}

Test(peer, rows_survive) {
  struct peer_rows rows, got;
  struct slice body = sample_rows(&rows);
  memset(&got, 0xff, sizeof got);
  cr_assert_eq(peer_rows_decode(body, &bucket, key, &got), 0);
  cr_assert(got.promised.hlc == 9 && got.promised.nonce == 9 && got.floor.nonce == 2);
  cr_assert(got.count == 2 && got.more);
  cr_assert(!got.rows[0].chosen && got.rows[0].chunk_state == CHUNK_MISSING);
  cr_assert(got.rows[1].chosen && got.rows[1].row.ver.hlc == 5);
  cr_assert(slice_eq(got.inline_chunk, rows.inline_chunk));
  cr_assert(got.inline_unit_count == 2 && got.inline_crcs[1] == 22);
  free((void *)(uintptr_t)body.data);
}

Test(peer, a_reply_without_rows_is_a_reply) {
  struct peer_rows rows = {.floor = {3, 0}}, got;
  uint8_t *body = NULL;
  size_t len = 0;
  cr_assert_eq(peer_rows_encode(&rows, &body, &len), 0);
  cr_assert_eq(peer_rows_decode(slice_of(body, len), &bucket, key, &got), 0);
  cr_assert(got.count == 0 && !got.more && !got.inline_chunk.data && got.floor.hlc == 3);
  free(body);
}

Test(peer, cut_or_extended_rows_are_refused) {
  struct peer_rows rows, got;
  struct slice body = sample_rows(&rows);
  for (size_t len = 0; len < body.len; len++) {
    uint8_t *copy = malloc(len ? len : 1); /* so that a sanitizer sees a read beyond */
    memcpy(copy, body.data, len);
    cr_assert_lt(peer_rows_decode(slice_of(copy, len), &bucket, key, &got), 0, "%zu", len);
    free(copy);
  }
  uint8_t *longer = malloc(body.len + 1);
  memcpy(longer, body.data, body.len);
  longer[body.len] = 0;
  cr_assert_eq(peer_rows_decode(slice_of(longer, body.len + 1), &bucket, key, &got), ERR_PROTOCOL);
  free(longer);
  free((void *)(uintptr_t)body.data);
}

Test(peer, a_rotten_row_is_corrupt_not_absent) {
  struct peer_rows rows, got;
  struct slice body = sample_rows(&rows);
  uint8_t *data = (uint8_t *)(uintptr_t)body.data;
  data[34 + 6 + 10] ^= 1; /* inside the first row */
  cr_assert_eq(peer_rows_decode(body, &bucket, key, &got), ERR_CORRUPT);
  free(data);
}

Test(peer, rows_out_of_order_are_refused) {
  struct peer_rows rows = {.count = 2}, got;
  rows.rows[0].bytes = tomb_bytes(5);
  rows.rows[1].bytes = tomb_bytes(5);
  uint8_t *body = NULL;
  size_t len = 0;
  cr_assert_eq(peer_rows_encode(&rows, &body, &len), 0);
  cr_assert_eq(peer_rows_decode(slice_of(body, len), &bucket, key, &got), ERR_PROTOCOL);
  free(body);
  for (unsigned i = 0; i < 2; i++) free((void *)(uintptr_t)rows.rows[i].bytes.data);
}

static struct slice sample_list(void) {
  struct byte_writer w = {.max = PEER_BODY_BYTES_MAX};
  peer_list_put_header(&w, false, 0);
  struct peer_list_entry e = {.key = SLICE_LIT("a"), .row_count = 2, .skipped = true};
  e.rows[0] = (struct peer_list_row){.ver = {9, 1}, .kind = ROW_TOMB};
  e.rows[1] = (struct peer_list_row){.ver = {8, 1},
                                     .kind = ROW_PUT,
                                     .chosen = true,
                                     .size = 5,
                                     .mtime_ms = 6,
                                     .etag = SLICE_LIT("e"),
                                     .op_id = {{4}}};
  peer_list_put_entry(&w, &e);
  e = (struct peer_list_entry){.key = SLICE_LIT("b"), .corrupt = true, .more = true};
  peer_list_put_entry(&w, &e);
  peer_list_patch_header(&w, true, 2);
  cr_assert(!w.failed);
  return slice_of(w.data, w.len);
}

Test(peer, list_survives) {
  struct slice body = sample_list();
  struct peer_list list;
  struct peer_list_entry e;
  cr_assert_eq(peer_list_open(body, &list), 0);
  cr_assert(list.end && list.count == 2);
  cr_assert_eq(peer_list_next(&list, &e), 1);
  cr_assert(slice_eq(e.key, SLICE_LIT("a")) && e.skipped && !e.more && !e.corrupt);
  cr_assert(e.row_count == 2 && e.rows[0].kind == ROW_TOMB && !e.rows[0].chosen);
  cr_assert(e.rows[1].chosen && e.rows[1].size == 5 && e.rows[1].mtime_ms == 6);
  cr_assert(slice_eq(e.rows[1].etag, SLICE_LIT("e")) && e.rows[1].op_id.bytes[0] == 4);
  cr_assert_eq(peer_list_next(&list, &e), 1);
  cr_assert(e.corrupt && e.more && e.row_count == 0);
  cr_assert_eq(peer_list_next(&list, &e), 0);
  free((void *)(uintptr_t)body.data);
}

Test(peer, a_list_cut_anywhere_is_refused_before_its_end) {
  struct slice body = sample_list();
  for (size_t len = 0; len < body.len; len++) {
    uint8_t *copy = malloc(len ? len : 1);
    memcpy(copy, body.data, len);
    struct peer_list list;
    struct peer_list_entry e;
    int err = peer_list_open(slice_of(copy, len), &list);
    while (err == 0 && (err = peer_list_next(&list, &e)) == 1) err = 0;
    cr_assert_eq(err, ERR_PROTOCOL, "%zu", len);
    free(copy);
  }
  free((void *)(uintptr_t)body.data);
}

Test(peer, key_entries_survive_and_cuts_are_refused) {
  struct byte_writer w = {.max = 1000};
  struct peer_key_entry e = {.bucket = bucket,
                             .key = key,
                             .ver = {1, 2},
                             .missing = 5,
                             .pool = 1,
                             .partition = 1023},
                        got;
  peer_keys_put(&w, &e);
  peer_keys_put_end(&w, SLICE_LIT("cursor"));
  struct byte_reader r = byte_reader_of(slice_of(w.data, w.len));
  cr_assert_eq(peer_keys_next(&r, &got), 1);
  cr_assert(slice_eq(got.key, key) && got.ver.nonce == 2 && got.missing == 5);
  cr_assert(got.pool == 1 && got.partition == 1023 && id128_eq(&got.bucket, &bucket));
  cr_assert_eq(peer_keys_next(&r, &got), 0);
  cr_assert(slice_eq(peer_keys_cursor(&r), SLICE_LIT("cursor")));
  for (size_t len = 0; len < w.len - 9; len++) {
    r = byte_reader_of(slice_of(w.data, len));
    cr_assert_eq(peer_keys_next(&r, &got), ERR_PROTOCOL);
  }
  byte_writer_free(&w);
}

static struct peer_call *sent, *cancelled;
static void note_send(struct peer *peer, struct peer_call *call) {
  sent = call;
}
static void note_cancel(struct peer *peer, struct peer_call *call) {
  cancelled = call;
}
static void never(struct peer_call *call) {
  cr_assert(false);
}

Test(peer, send_starts_with_a_clean_reply_and_release_is_safe_twice) {
  static const struct peer_ops ops = {note_send, note_cancel};
  struct peer peer = {.ops = &ops};
  struct peer_call call = {.done = never, .req.verb = PEER_READ};
  peer_cancel(&call); /* not sent yet: nothing to do */
  cr_assert_null(cancelled);
  call.reply.err = -5;
  peer_send(&peer, &call);
  cr_assert(sent == &call && call.peer == &peer && call.reply.err == 0);
  peer_cancel(&call);
  cr_assert_eq(cancelled, &call);
  call.reply.body = malloc(3);
  call.reply.body_len = 3;
  peer_call_release(&call);
  peer_call_release(&call);
  cr_assert(!call.reply.body && call.reply.body_len == 0);
}

Test(peer, latency_is_smoothed_and_forgotten_by_halves) {
  struct peer peer = {0};
  cr_assert_eq(peer_latency_us(&peer, 5000), 0, "unknown");
  peer_latency_note(&peer, 800, 5000);
  cr_assert_eq(peer_latency_us(&peer, 5000), 800);
  peer_latency_note(&peer, 1600, 5001);
  cr_assert_eq(peer_latency_us(&peer, 5001), 900);
  peer_latency_waits(&peer, 500, 5002);
  cr_assert_eq(peer_latency_us(&peer, 5002), 900, "a wait never makes it quicker");
  peer_latency_waits(&peer, 64000, 5003);
  cr_assert_eq(peer_latency_us(&peer, 5003), 64000);
  cr_assert_eq(peer_latency_us(&peer, 5003 + PEER_LATENCY_HALF_MS), 32000);
  cr_assert_eq(peer_latency_us(&peer, 5003 + 3 * PEER_LATENCY_HALF_MS), 8000);
  cr_assert_eq(peer_latency_us(&peer, UINT64_MAX), 0);
  cr_assert_eq(peer_latency_us(&peer, 0), 64000, "a clock that is behind");
  peer_latency_note(&peer, UINT64_MAX, 5003 + 40 * PEER_LATENCY_HALF_MS);
  cr_assert_eq(peer.latency_us, UINT32_MAX);
}
