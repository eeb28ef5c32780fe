/* fake_drive_pages.c: READ and PROMISE rows, LIST pages with delimiter skipping, HEAL_LIST and
 * UNDECIDED. */
#include "tests/unit/object/fake_drive_pages.h"

#include <stdlib.h>

#include "config/err.h"

/* The rows of `k` as a reply, newest first, down to and including the newest C row. */
static int rows_fill(struct fake_drive *d, struct fake_key *k, struct peer_rows *rows) {
  list_foreach(it, &k->rows) {
    struct fake_row *r = container_of(it, struct fake_row, link);
    if (r->corrupt) return ERR_CORRUPT;
    if (rows->count == PEER_ROWS_MAX) {
      rows->more = true;
      return 0;
    }
    struct peer_row *out = &rows->rows[rows->count++];
    out->bytes = slice_of(r->bytes, r->len);
    int err = row_decode(out->bytes, &k->bucket, slice_of(k->key, k->len), &out->row);
    if (err < 0) return err;
    out->chosen = r->chosen;
    bool whole = !r->has_data || fake_drive_chunk(d, &r->data_id);
    out->chunk_state = whole ? CHUNK_WHOLE : CHUNK_MISSING;
    if (r->chosen) return 0;
  }
  return 0;
}

/* The newest row's inline chunk, units put end to end. malloc'ed, or NULL. */
static uint8_t *inline_fill(struct fake_drive *d, struct peer_rows *rows) {
  if (rows->count == 0 || !row_has_data(&rows->rows[0].row)) return NULL;
  struct fake_blob *b = fake_drive_chunk(d, &rows->rows[0].row.data_id);
  if (!b || !b->is_inline || b->unit_count > PEER_UNITS_MAX) return NULL;
  size_t len = 0;
  for (unsigned i = 0; i < b->unit_count; i++) len += b->units[i].len;
  uint8_t *bytes = malloc(len ? len : 1);
  FAKE_CHECK(bytes);
  rows->inline_chunk = slice_of(bytes, len);
  rows->inline_unit_count = b->unit_count;
  size_t at = 0;
  for (unsigned i = 0; i < b->unit_count; i++) {
    memcpy(bytes + at, b->units[i].data, b->units[i].len);
    at += b->units[i].len;
    rows->inline_crcs[i] = b->units[i].crc;
  }
  return bytes;
}

void fake_drive_read_page(struct fake_drive *d, const struct peer_request *req,
                          struct peer_reply *reply) {
  struct peer_rows *rows = calloc(1, sizeof *rows);
  FAKE_CHECK(rows);
  struct fake_key *k = fake_drive_key(d, &req->bucket, req->key);
  uint8_t *inline_bytes = NULL;
  if (d->floors[req->pool]) rows->floor = d->floors[req->pool][req->partition];
  if (k) {
    rows->promised = k->promised;
    reply->err = rows_fill(d, k, rows);
  }
  if (reply->err == 0 && (req->flags & PEER_WANT_INLINE)) inline_bytes = inline_fill(d, rows);
  if (reply->err == 0) reply->err = peer_rows_encode(rows, &reply->body, &reply->body_len);
  free(inline_bytes);
  free(rows);
}

static void list_rows(struct fake_key *k, struct peer_list_entry *e) {
  list_foreach(it, &k->rows) {
    struct fake_row *r = container_of(it, struct fake_row, link);
    struct row row;
    if (r->corrupt ||
        row_decode(slice_of(r->bytes, r->len), &k->bucket, slice_of(k->key, k->len), &row) < 0) {
      e->corrupt = true;
      e->row_count = 0;
      return;
    }
    if (e->row_count == PEER_ROWS_MAX) {
      e->more = true;
      return;
    }
    e->rows[e->row_count++] = (struct peer_list_row){.ver = row.ver,
                                                     .kind = row.kind,
                                                     .chosen = r->chosen,
                                                     .op_id = row.op_id,
                                                     .size = row.size,
                                                     .mtime_ms = row.mtime_ms,
                                                     .etag = row.etag};
    if (r->chosen) return;
  }
}

/* The common prefix of `key` (up to and with the delimiter behind `prefix`), or an empty slice. */
static struct slice common_prefix(struct slice key, struct slice prefix, struct slice delimiter) {
  if (delimiter.len == 0 || key.len < prefix.len + delimiter.len) return (struct slice){0};
  for (size_t at = prefix.len; at + delimiter.len <= key.len; at++)
    if (memcmp(key.data + at, delimiter.data, delimiter.len) == 0)
      return slice_of(key.data, at + delimiter.len);
  return (struct slice){0};
}

static bool list_wants(const struct fake_key *k, const struct peer_request *req) {
  struct slice key = slice_of(k->key, k->len);
  int c = slice_cmp(key, req->from);
  bool behind = (req->flags & PEER_FROM_AFTER) ? c > 0 : c >= 0;
  return id128_eq(&k->bucket, &req->bucket) && behind && slice_starts_with(key, req->prefix) &&
         k->pool == req->pool && !list_empty(&k->rows);
}

/* Behind a key that this drive knows to be there, the rest of its common prefix is skipped: the
 * gateway needs one visible key of it. */
void fake_drive_list_page(struct fake_drive *d, const struct peer_request *req,
                          struct peer_reply *reply) {
  struct byte_writer w = {.max = PEER_BODY_BYTES_MAX};
  unsigned count = 0, limit = MIN(req->limit, PEER_LIST_ENTRIES_MAX);
  struct slice skip = {0};
  bool end = true;
  FAKE_CHECK(limit > 0);
  peer_list_put_header(&w, false, 0);
  list_foreach(it, &d->keys) {
    struct fake_key *k = container_of(it, struct fake_key, link);
    struct slice key = slice_of(k->key, k->len);
    if (!list_wants(k, req) || (skip.len && slice_starts_with(key, skip))) continue;
    if (count == limit) {
      end = false;
      break;
    }
    struct peer_list_entry e = {.key = key};
    list_rows(k, &e);
    struct slice common = common_prefix(key, req->prefix, req->delimiter);
    bool there = e.row_count > 0 && e.rows[0].kind == ROW_PUT && e.rows[0].chosen;
    e.skipped = common.len > 0 && there;
    skip = e.skipped ? common : (struct slice){0};
    peer_list_put_entry(&w, &e);
    count++;
  }
  peer_list_patch_header(&w, end, count);
  FAKE_CHECK(!w.failed);
  reply->body = w.data;
  reply->body_len = w.len;
}

/* Cursors of HEAL_LIST and UNDECIDED: the number of entries passed so far, in decimal digits that
 * only this drive reads. */
static unsigned cursor_read(struct slice from) {
  unsigned at = 0;
  for (size_t i = 0; i < from.len; i++) at = at * 10 + (unsigned)(from.data[i] - '0');
  return at;
}

static void page_end(struct byte_writer *w, bool more, unsigned passed, struct peer_reply *reply) {
  char digits[12];
  unsigned at = sizeof digits;
  for (unsigned left = passed; more && (left > 0 || at == sizeof digits); left /= 10)
    digits[--at] = (char)('0' + left % 10);
  peer_keys_put_end(w, slice_of(digits + at, sizeof digits - at));
  FAKE_CHECK(!w->failed);
  reply->body = w->data;
  reply->body_len = w->len;
}

void fake_drive_heal_page(struct fake_drive *d, const struct peer_request *req,
                          struct peer_reply *reply) {
  struct byte_writer w = {.max = PEER_BODY_BYTES_MAX};
  unsigned first = cursor_read(req->from), at = 0, count = 0;
  bool more = false;
  list_foreach(it, &d->heals) {
    struct fake_heal *h = container_of(it, struct fake_heal, link);
    if (at++ < first) continue;
    if (count == req->limit) {
      more = true;
      break;
    }
    peer_keys_put(&w, &(struct peer_key_entry){.bucket = h->bucket,
                                               .key = slice_of(h->key, h->len),
                                               .ver = h->ver,
                                               .missing = h->missing,
                                               .pool = (uint8_t)h->pool,
                                               .partition = (uint16_t)h->partition});
    count++;
  }
  page_end(&w, more, first + count, reply);
}

static bool undecided(const struct fake_drive *d, const struct fake_key *k, uint64_t age_ms) {
  if (list_empty(&k->rows)) return false;
  list_foreach(it, &k->rows) {
    const struct fake_row *r = container_of(it, struct fake_row, link);
    if (r->chosen) return false;
    if (d->bed->now_ms - r->accepted_ms >= age_ms) return true;
  }
  return false;
}

void fake_drive_undecided_page(struct fake_drive *d, const struct peer_request *req,
                               struct peer_reply *reply) {
  struct byte_writer w = {.max = PEER_BODY_BYTES_MAX};
  unsigned first = cursor_read(req->from), at = 0, count = 0;
  bool more = false;
  list_foreach(it, &d->keys) {
    struct fake_key *k = container_of(it, struct fake_key, link);
    if (!undecided(d, k, req->age_ms) || at++ < first) continue;
    if (count == req->limit) {
      more = true;
      break;
    }
    struct fake_row *newest = container_of(k->rows.next, struct fake_row, link);
    peer_keys_put(&w, &(struct peer_key_entry){.bucket = k->bucket,
                                               .key = slice_of(k->key, k->len),
                                               .ver = newest->ver,
                                               .pool = (uint8_t)k->pool,
                                               .partition = (uint16_t)k->partition});
    count++;
  }
  page_end(&w, more, first + count, reply);
}
