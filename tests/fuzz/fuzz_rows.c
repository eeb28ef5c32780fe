/* fuzz_rows.c: rows and the bodies of replies: READ, LIST, HEAL_LIST, UNDECIDED, bucket rows.
 *
 * The first byte says which, and whether CRCs are to be made right in front of the decoder, for
 * without that hardly any input gets behind them. Decoded and encoded again, everything is the same
 * byte for byte; what is decoded lies within its limits; results borrow from the input alone. */
#include "codec/crc32c.h"
#include "config/err.h"
#include "storage/object/bucket_row.h"
#include "tests/fuzz/fuzz.h"

static const struct id128 bucket = {{1, 2, 3}};

static void fix_row(uint8_t *bytes, size_t len, struct slice key) {
  if (len <= 4) return;
  uint32_t crc = crc32c(0, bucket.bytes, sizeof bucket.bytes);
  if (key.len) crc = crc32c(crc, key.data, key.len);
  store_be32(bytes + len - 4, crc32c(crc, bytes, len - 4));
}

static void check_bucket_row(const struct row *row) {
  static char names[2][16] = {"system", "default"};
  static struct cluster_map map;
  static struct objects o;
  struct bucket_row b;
  map.pool_count = 2;
  map.pools[0].name = names[0];
  map.pools[1].name = names[1];
  o.map = &map;
  if (bucket_row_parse(&o, SLICE_LIT("photos"), row, &b) < 0) return;
  FUZZ_CHECK(strcmp(b.info.name, "photos") == 0 && b.info.pool < 2);
  FUZZ_CHECK(b.info.state >= BUCKET_ACTIVE && b.info.state <= BUCKET_DELETED);
  FUZZ_CHECK(memchr(b.info.owner, 0, sizeof b.info.owner) && memchr(b.etag, 0, sizeof b.etag));
  FUZZ_CHECK(!bucket_name_fits(SLICE_LIT("")) && bucket_name_fits(SLICE_LIT("x")));
}

static void check_row(const struct row *row, struct slice bytes, struct slice key) {
  uint8_t *again;
  size_t len, at = 0;
  unsigned count = 0;
  struct attr attrs[ATTR_COUNT_MAX], attr;
  FUZZ_CHECK(row->kind == ROW_PUT || row->kind == ROW_TOMB);
  FUZZ_CHECK(row->etag.len <= ETAG_BYTES_MAX && row->attr_count <= ATTR_COUNT_MAX);
  FUZZ_CHECK(profile_n(&row->profile) <= MAP_SLOTS_MAX && !version_is_zero(&row->ver));
  while (row_attr(row, &at, &attr)) {
    FUZZ_CHECK(count < row->attr_count && attr.name.len > 0 &&
               attr.name.len <= ATTR_NAME_BYTES_MAX);
    FUZZ_CHECK(attr.value.data >= bytes.data &&
               attr.value.data + attr.value.len <= bytes.data + bytes.len);
    attrs[count++] = attr;
  }
  FUZZ_CHECK(count == row->attr_count && at == row->attrs_raw.len);
  FUZZ_CHECK(row_encode(row, NULL, 0, &bucket, key, &again, &len) == 0);
  FUZZ_CHECK(slice_eq(slice_of(again, len), bytes));
  free(again);
  FUZZ_CHECK(row_encode(row, attrs, count, &bucket, key, &again, &len) == 0);
  FUZZ_CHECK(slice_eq(slice_of(again, len), bytes));
  free(again);
  if (row->kind == ROW_PUT && row->profile.k) (void)row_geometry(row);
  check_bucket_row(row);
}

static void row(struct slice in, bool repair) {
  struct slice key = fuzz_until(&in, '\n');
  uint8_t *bytes = fuzz_copy(in);
  struct row r = {.kind = 77};
  if (repair) fix_row(bytes, in.len, key);
  int err = row_decode(slice_of(bytes, in.len), &bucket, key, &r);
  if (err == 0) {
    check_row(&r, slice_of(bytes, in.len), key);
    struct row other;
    struct id128 elsewhere = {{1, 2, 4}};
    FUZZ_CHECK(row_decode(slice_of(bytes, in.len), &elsewhere, key, &other) == ERR_CORRUPT);
  } else {
    FUZZ_CHECK(err == ERR_CORRUPT && r.kind == 77);
  }
  free(bytes);
}

/* Finds the rows in a READ body as the decoder does, and makes their CRCs right. */
static void fix_rows(uint8_t *bytes, size_t len, struct slice key) {
  struct byte_reader r = byte_reader_of(slice_of(bytes, len));
  (void)get_bytes(&r, 33);
  unsigned count = get_u8(&r);
  for (unsigned i = 0; i < count && !r.failed; i++) {
    (void)get_u16(&r);
    struct slice row = get_str32(&r);
    if (!r.failed && row.len) fix_row(bytes + (row.data - bytes), row.len, key);
  }
}

static void rows(struct slice in, bool repair) {
  static struct peer_rows decoded;
  struct slice key = fuzz_until(&in, '\n');
  uint8_t *bytes = fuzz_copy(in), *again;
  size_t len;
  if (repair) fix_rows(bytes, in.len, key);
  int err = peer_rows_decode(slice_of(bytes, in.len), &bucket, key, &decoded);
  if (err == 0) {
    FUZZ_CHECK(decoded.count <= PEER_ROWS_MAX && decoded.inline_unit_count <= PEER_UNITS_MAX);
    FUZZ_CHECK(decoded.inline_chunk.len <= PEER_INLINE_BYTES_MAX);
    for (unsigned i = 1; i < decoded.count; i++)
      FUZZ_CHECK(version_cmp(&decoded.rows[i - 1].row.ver, &decoded.rows[i].row.ver) > 0);
    FUZZ_CHECK(peer_rows_encode(&decoded, &again, &len) == 0);
    FUZZ_CHECK(slice_eq(slice_of(again, len), slice_of(bytes, in.len)));
    free(again);
  } else {
    FUZZ_CHECK(err == ERR_PROTOCOL || err == ERR_CORRUPT);
  }
  free(bytes);
}

static void list(struct slice in, bool repair) {
  uint8_t *bytes = fuzz_copy(in);
  struct peer_list l;
  struct peer_list_entry e;
  struct byte_writer w = {.max = in.len};
  int got = peer_list_open(slice_of(bytes, in.len), &l);
  unsigned count = 0, announced = got < 0 ? 0 : l.count;
  bool end = got == 0 && l.end;
  if (got == 0) {
    peer_list_put_header(&w, end, 0);
    while ((got = peer_list_next(&l, &e)) == 1) {
      FUZZ_CHECK(e.key.len > 0 && e.key.len <= KEY_BYTES_MAX && e.row_count <= PEER_ROWS_MAX);
      peer_list_put_entry(&w, &e);
      FUZZ_CHECK(++count <= announced);
    }
  }
  FUZZ_CHECK(got == 0 || got == ERR_PROTOCOL);
  if (got == 0) {
    FUZZ_CHECK(count == announced);
    peer_list_patch_header(&w, end, count);
    FUZZ_CHECK(!w.failed && slice_eq(slice_of(w.data, w.len), slice_of(bytes, in.len)));
  }
  byte_writer_free(&w);
  free(bytes);
}

static void keys(struct slice in, bool repair) {
  uint8_t *bytes = fuzz_copy(in);
  struct byte_reader r = byte_reader_of(slice_of(bytes, in.len));
  struct byte_writer w = {.max = in.len};
  struct peer_key_entry e;
  int got;
  while ((got = peer_keys_next(&r, &e)) == 1) {
    FUZZ_CHECK(e.key.len > 0 && e.key.len <= KEY_BYTES_MAX);
    peer_keys_put(&w, &e);
  }
  FUZZ_CHECK(got == 0 || got == ERR_PROTOCOL);
  struct slice cursor = got == 0 ? peer_keys_cursor(&r) : (struct slice){0};
  if (got == 0 && !r.failed) {
    peer_keys_put_end(&w, cursor);
    FUZZ_CHECK(!w.failed && w.len + byte_reader_left(&r) == in.len);
    FUZZ_CHECK(memcmp(w.data, bytes, w.len) == 0);
  }
  byte_writer_free(&w);
  free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  static void (*const parts[])(struct slice, bool) = {row, rows, list, keys};
  struct slice in = slice_of(data, len);
  if (len == 0) return 0;
  uint8_t which = fuzz_u8(&in);
  parts[which % ARRAY_LEN(parts)](in, which & 0x80);
  return 0;
}
