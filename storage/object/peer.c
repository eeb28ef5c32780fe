/* peer.c: sending, and the bytes of reply bodies.
 *
 * A decoder refuses whatever its encoder would not have written: lengths, counts, orders and unused
 * bits are all checked, for a body comes from another host. */
#include "storage/object/peer.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "config/err.h"

#define ROWS_MORE 1u
#define ROWS_INLINE 2u
#define ROW_CHOSEN 1u
#define ROWS_HEAD_BYTES 256 /* all but rows and chunk */
#define LATENCY_SMOOTHING 8 /* a new sample weighs 1/8 */
#define LIST_HEADER_BYTES 5
#define ENTRY_MORE 1u
#define ENTRY_SKIPPED 2u
#define ENTRY_CORRUPT 4u

void peer_send(struct peer *peer, struct peer_call *call) {
  assert(call->done && call->req.verb > 0 && call->req.verb < PEER_VERB_END);
  call->reply = (struct peer_reply){0};
  call->peer = peer;
  peer->ops->send(peer, call);
}

void peer_cancel(struct peer_call *call) {
  if (call->peer) call->peer->ops->cancel(call->peer, call);
}

void peer_call_release(struct peer_call *call) {
  free(TAKE(call->reply.body));
  call->reply.body_len = 0;
}

void peer_latency_note(struct peer *peer, uint64_t us, uint64_t now_ms) {
  us = MIN(MAX(us, (uint64_t)1), (uint64_t)UINT32_MAX);
  uint64_t last = peer_latency_us(peer, now_ms);
  if (last) us = (last * (LATENCY_SMOOTHING - 1) + us) / LATENCY_SMOOTHING;
  peer->latency_us = (uint32_t)MAX(us, (uint64_t)1);
  peer->latency_ms = now_ms;
}

void peer_latency_waits(struct peer *peer, uint64_t us, uint64_t now_ms) {
  us = MIN(us, (uint64_t)UINT32_MAX);
  if (us <= peer_latency_us(peer, now_ms)) return;
  peer->latency_us = (uint32_t)us;
  peer->latency_ms = now_ms;
}

uint32_t peer_latency_us(const struct peer *peer, uint64_t now_ms) {
  uint64_t halvings = (now_ms - MIN(peer->latency_ms, now_ms)) / PEER_LATENCY_HALF_MS;
  return halvings < 32 ? peer->latency_us >> halvings : 0;
}

static void put_version(struct byte_writer *w, const struct version *v) {
  put_u64(w, v->hlc);
  put_u64(w, v->nonce);
}

static struct version get_version(struct byte_reader *r) {
  struct version v = {.hlc = get_u64(r)};
  v.nonce = get_u64(r);
  return v;
}

/* ---- READ and PROMISE ---- */

static void rows_put_inline(struct byte_writer *w, const struct peer_rows *rows) {
  put_str32(w, rows->inline_chunk);
  put_u8(w, (uint8_t)rows->inline_unit_count);
  for (unsigned i = 0; i < rows->inline_unit_count; i++) put_u32(w, rows->inline_crcs[i]);
}

int peer_rows_encode(const struct peer_rows *rows, uint8_t **ret_body, size_t *ret_len) {
  bool has_inline = rows->inline_chunk.data != NULL;
  assert(rows->count <= PEER_ROWS_MAX && rows->inline_unit_count <= PEER_UNITS_MAX);
  assert(!has_inline || (rows->count > 0 && rows->inline_chunk.len <= PEER_INLINE_BYTES_MAX));

  struct byte_writer w = {.max = PEER_BODY_BYTES_MAX};
  size_t bytes = ROWS_HEAD_BYTES + (has_inline ? rows->inline_chunk.len : 0);
  for (unsigned i = 0; i < rows->count; i++) bytes += rows->rows[i].bytes.len;
  byte_writer_reserve(&w, bytes); /* a chunk is not copied as the writer grows */
  put_u8(&w, (uint8_t)((rows->more ? ROWS_MORE : 0) | (has_inline ? ROWS_INLINE : 0)));
  put_version(&w, &rows->promised);
  put_version(&w, &rows->floor);
  put_u8(&w, (uint8_t)rows->count);
  for (unsigned i = 0; i < rows->count; i++) {
    put_u8(&w, rows->rows[i].chosen ? ROW_CHOSEN : 0);
    put_u8(&w, rows->rows[i].chunk_state);
    put_str32(&w, rows->rows[i].bytes);
  }
  if (has_inline) rows_put_inline(&w, rows);
  if (w.failed) {
    byte_writer_free(&w);
    return -ENOMEM;
  }
  *ret_body = w.data;
  *ret_len = w.len;
  return 0;
}

static int rows_get_inline(struct byte_reader *r, struct peer_rows *rows) {
  rows->inline_chunk = get_str32(r);
  rows->inline_unit_count = get_u8(r);
  if (r->failed || rows->count == 0) return ERR_PROTOCOL;
  if (rows->inline_chunk.len > PEER_INLINE_BYTES_MAX || rows->inline_unit_count > PEER_UNITS_MAX)
    return ERR_PROTOCOL;
  for (unsigned i = 0; i < rows->inline_unit_count; i++) rows->inline_crcs[i] = get_u32(r);
  return 0;
}

static int rows_get_row(struct byte_reader *r, const struct id128 *bucket, struct slice key,
                        struct peer_row *row) {
  uint8_t flags = get_u8(r);
  row->chunk_state = get_u8(r);
  row->bytes = get_str32(r);
  if (r->failed || (flags & ~ROW_CHOSEN) || row->chunk_state > CHUNK_MISSING) return ERR_PROTOCOL;
  row->chosen = flags & ROW_CHOSEN;
  return row_decode(row->bytes, bucket, key, &row->row);
}

int peer_rows_decode(struct slice body, const struct id128 *bucket, struct slice key,
                     struct peer_rows *rows) {
  struct byte_reader r = byte_reader_of(body);
  uint8_t flags = get_u8(&r);
  rows->more = flags & ROWS_MORE;
  rows->promised = get_version(&r);
  rows->floor = get_version(&r);
  rows->count = get_u8(&r);
  rows->inline_chunk = (struct slice){0};
  rows->inline_unit_count = 0;
  if (r.failed || rows->count > PEER_ROWS_MAX || (flags & ~(ROWS_MORE | ROWS_INLINE)))
    return ERR_PROTOCOL;
  for (unsigned i = 0; i < rows->count; i++) {
    int err = rows_get_row(&r, bucket, key, &rows->rows[i]);
    if (err < 0) return err;
    if (i > 0 && version_cmp(&rows->rows[i - 1].row.ver, &rows->rows[i].row.ver) <= 0)
      return ERR_PROTOCOL;
  }
  if (flags & ROWS_INLINE) {
    int err = rows_get_inline(&r, rows);
    if (err < 0) return err;
  }
  return r.failed || byte_reader_left(&r) != 0 ? ERR_PROTOCOL : 0;
}

/* ---- LIST ---- */

void peer_list_put_header(struct byte_writer *w, bool end, unsigned count) {
  assert(w->len == 0 || w->failed);
  put_u8(w, end);
  put_u32(w, count);
}

void peer_list_patch_header(struct byte_writer *w, bool end, unsigned count) {
  if (w->failed) return;
  assert(w->len >= LIST_HEADER_BYTES);
  w->data[0] = end;
  store_be32(w->data + 1, count);
}

void peer_list_put_entry(struct byte_writer *w, const struct peer_list_entry *e) {
  assert(e->row_count <= PEER_ROWS_MAX);
  put_str16(w, e->key);
  put_u8(w, (uint8_t)((e->more ? ENTRY_MORE : 0) | (e->skipped ? ENTRY_SKIPPED : 0) |
                      (e->corrupt ? ENTRY_CORRUPT : 0)));
  put_u8(w, (uint8_t)e->row_count);
  for (unsigned i = 0; i < e->row_count; i++) {
    const struct peer_list_row *row = &e->rows[i];
    put_version(w, &row->ver);
    put_u8(w, row->kind);
    put_u8(w, row->chosen);
    put_id(w, &row->op_id);
    put_u64(w, row->size);
    put_u64(w, row->mtime_ms);
    put_str16(w, row->etag);
  }
}

int peer_list_open(struct slice body, struct peer_list *ret_list) {
  struct peer_list list = {.at = byte_reader_of(body)};
  uint8_t end = get_u8(&list.at);
  list.count = get_u32(&list.at);
  if (list.at.failed || end > 1 || list.count > PEER_LIST_ENTRIES_MAX) return ERR_PROTOCOL;
  list.end = end;
  *ret_list = list;
  return 0;
}

static bool list_get_row(struct byte_reader *r, struct peer_list_row *row) {
  row->ver = get_version(r);
  row->kind = get_u8(r);
  uint8_t chosen = get_u8(r);
  row->op_id = get_id(r);
  row->size = get_u64(r);
  row->mtime_ms = get_u64(r);
  row->etag = get_str16(r);
  row->chosen = chosen;
  return !r->failed && chosen <= 1 && row->etag.len <= ETAG_BYTES_MAX &&
         (row->kind == ROW_PUT || row->kind == ROW_TOMB);
}

int peer_list_next(struct peer_list *list, struct peer_list_entry *e) {
  struct byte_reader *r = &list->at;
  if (list->count == 0) return byte_reader_left(r) == 0 ? 0 : ERR_PROTOCOL;
  e->key = get_str16(r);
  uint8_t flags = get_u8(r);
  e->row_count = get_u8(r);
  if (r->failed || e->key.len == 0 || e->key.len > KEY_BYTES_MAX) return ERR_PROTOCOL;
  if (flags & ~(ENTRY_MORE | ENTRY_SKIPPED | ENTRY_CORRUPT)) return ERR_PROTOCOL;
  if (e->row_count > PEER_ROWS_MAX) return ERR_PROTOCOL;
  e->more = flags & ENTRY_MORE;
  e->skipped = flags & ENTRY_SKIPPED;
  e->corrupt = flags & ENTRY_CORRUPT;
  for (unsigned i = 0; i < e->row_count; i++) {
    if (!list_get_row(r, &e->rows[i])) return ERR_PROTOCOL;
    if (i > 0 && version_cmp(&e->rows[i - 1].ver, &e->rows[i].ver) <= 0) return ERR_PROTOCOL;
  }
  list->count--;
  return 1;
}

/* ---- HEAL_LIST and UNDECIDED ---- */

void peer_keys_put(struct byte_writer *w, const struct peer_key_entry *e) {
  put_u8(w, 1);
  put_id(w, &e->bucket);
  put_str16(w, e->key);
  put_version(w, &e->ver);
  put_u32(w, e->missing);
  put_u8(w, e->pool);
  put_u16(w, e->partition);
}

void peer_keys_put_end(struct byte_writer *w, struct slice cursor) {
  put_u8(w, 0);
  put_str16(w, cursor);
}

int peer_keys_next(struct byte_reader *r, struct peer_key_entry *ret_entry) {
  uint8_t tag = get_u8(r);
  if (r->failed || tag > 1) return ERR_PROTOCOL;
  if (tag == 0) return 0;
  struct peer_key_entry e = {.bucket = get_id(r)};
  e.key = get_str16(r);
  e.ver = get_version(r);
  e.missing = get_u32(r);
  e.pool = get_u8(r);
  e.partition = get_u16(r);
  if (r->failed || e.key.len == 0 || e.key.len > KEY_BYTES_MAX) return ERR_PROTOCOL;
  *ret_entry = e;
  return 1;
}

struct slice peer_keys_cursor(struct byte_reader *r) {
  return get_str16(r);
}
