/* drive_list.c: one page of LIST.
 *
 * Keys in byte order with their newest rows and flags, markers included: what is chosen is the
 * gateway's to find out, by comparing drives. With a delimiter, one key per common prefix is enough
 * once this drive knows that key to be there (its newest row is chosen and no tombstone): the drive
 * then goes on behind the prefix. A page of keys under one prefix costs one seek. */
#include <errno.h>

#include "config/err.h"
#include "storage/drive/drive_internal.h"

/* The common prefix of `key`: up to and with the first delimiter behind `prefix`; or empty. */
static struct slice list_common(struct slice key, struct slice prefix, struct slice delimiter) {
  if (delimiter.len == 0 || key.len < prefix.len) return (struct slice){0};
  const uint8_t *from = key.data + prefix.len;
  const uint8_t *at = memmem(from, key.len - prefix.len, delimiter.data, delimiter.len);
  if (!at) return (struct slice){0};
  return slice_of(key.data, (size_t)(at - key.data) + delimiter.len);
}

/* The smallest string above all that start with `prefix`, in `buf`; false where there is none. */
static bool list_behind(struct slice prefix, uint8_t buf[KEY_BYTES_MAX], struct slice *ret_behind) {
  size_t len = prefix.len;
  while (len > 0 && prefix.data[len - 1] == 0xff) len--;
  if (len == 0) return false;
  memcpy(buf, prefix.data, len);
  buf[len - 1]++;
  *ret_behind = slice_of(buf, len);
  return true;
}

/* Adds a row; a row that fails its CRC makes the drive no replier for the key. */
static void list_add_row(struct peer_list_entry *e, const struct id128 *bucket,
                         const struct key_row *at) {
  struct row row;
  if (e->corrupt) return;
  if (row_decode(at->value, bucket, e->key, &row) < 0) {
    e->corrupt = true;
    e->row_count = 0;
    return;
  }
  e->rows[e->row_count++] = (struct peer_list_row){.ver = row.ver,
                                                   .kind = row.kind,
                                                   .chosen = at->chosen,
                                                   .op_id = row.op_id,
                                                   .size = row.size,
                                                   .mtime_ms = row.mtime_ms,
                                                   .etag = row.etag};
}

/* Collects one key's rows. *at holds its newest on entry and the next key's on return. 1 = there is
 * a next key, 0 = the end. */
static int list_entry(struct key_walk *w, const struct id128 *bucket, struct key_row *at,
                      uint8_t key[KEY_BYTES_MAX], struct peer_list_entry *e) {
  memcpy(key, w->key.data, w->key.len);
  *e = (struct peer_list_entry){.key = slice_of(key, w->key.len)};
  int more = 1;
  while (more > 0 && slice_eq(w->key, e->key)) {
    if (e->row_count == PEER_ROWS_MAX) e->more = true;
    if (!e->more) list_add_row(e, bucket, at);
    bool done = e->more || e->corrupt || at->chosen;
    more = key_walk_next(w, at);
    if (!done) continue;
    if (more > 0 && slice_eq(w->key, e->key)) { /* superseded rows that are still to be dropped */
      int err = key_walk_seek(w, e->key, true);
      if (err < 0) return err;
      more = key_walk_next(w, at);
    }
    break;
  }
  return more;
}

struct list_page {
  const struct peer_request *req;
  struct key_walk walk;
  struct byte_writer body;
  unsigned count;
  bool end;
};

static int list_start(struct list_page *p, struct key_row *at) {
  const struct peer_request *req = p->req;
  bool from_prefix = slice_cmp(req->prefix, req->from) > 0;
  struct slice from = from_prefix ? req->prefix : req->from;
  int err = key_walk_seek(&p->walk, from, !from_prefix && (req->flags & PEER_FROM_AFTER));
  return err < 0 ? err : key_walk_next(&p->walk, at);
}

static int list_fill(struct list_page *p) {
  const struct peer_request *req = p->req;
  unsigned limit = req->limit ? MIN(req->limit, PEER_LIST_ENTRIES_MAX) : PEER_LIST_ENTRIES_MAX;
  uint8_t key[KEY_BYTES_MAX], behind[KEY_BYTES_MAX];
  struct key_row at;
  int more = list_start(p, &at);
  while (more > 0 && slice_starts_with(p->walk.key, req->prefix)) {
    if (p->count == limit || p->body.len >= DRIVE_PAGE_BODY_BYTES) return 0;
    struct peer_list_entry e;
    more = list_entry(&p->walk, &req->bucket, &at, key, &e);
    if (more < 0) return more;
    struct slice common = list_common(e.key, req->prefix, req->delimiter), next;
    e.skipped = common.len > 0 && e.row_count > 0 && e.rows[0].chosen && e.rows[0].kind == ROW_PUT;
    peer_list_put_entry(&p->body, &e);
    p->count++;
    if (!e.skipped || more == 0) continue;
    if (!list_behind(common, behind, &next)) break;
    if (!slice_starts_with(p->walk.key, common)) continue; /* already there */
    more = key_walk_seek(&p->walk, next, false);
    if (more == 0) more = key_walk_next(&p->walk, &at);
  }
  p->end = more >= 0;
  return MIN(more, 0);
}

void drive_list(struct drive *d, struct store_txn *txn, const struct peer_request *req,
                struct peer_reply *reply) {
  struct list_page page = {.req = req, .body = {.max = PEER_BODY_BYTES_MAX}};
  peer_list_put_header(&page.body, false, 0);
  int err = key_walk_open(txn, &req->bucket, &page.walk);
  if (err == 0)
    err = list_fill(&page);
  else if (err == ERR_NOT_FOUND)
    page.end = true, err = 0; /* no key of this bucket ever stood here */
  key_walk_close(&page.walk);
  peer_list_patch_header(&page.body, page.end, page.count);
  if (err == 0 && page.body.failed) err = -ENOMEM;
  reply->err = err;
  if (err < 0) {
    byte_writer_free(&page.body);
    return;
  }
  reply->body = page.body.data;
  reply->body_len = page.body.len;
}
