/* chunk_file.c: see chunk_file.h. */
#include "storage/drive/chunk_file.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "codec/crc32c.h"
#include "config/err.h"

static const uint8_t header_magic[8] = "kofnchnk";
static const uint8_t trailer_magic[8] = "kofntrlr";
static const uint8_t end_magic[8] = "kofnends";

#define HEADER_FIELD_BYTES 60         /* what stands before the header's CRC */
#define TRAILER_END_BYTES (4 + 4 + 8) /* length of the whole trailer, CRC, magic */
/* One read of this much gets the whole trailer of all but large chunks. */
#define TRAILER_GUESS_BYTES 4096

uint32_t chunk_unit_len(const struct chunk_info *info, uint64_t unit) {
  assert(unit < info->unit_count);
  uint64_t before = unit * info->profile.unit_bytes;
  return (uint32_t)MIN(info->len - before, (uint64_t)info->profile.unit_bytes);
}

void chunk_header_encode(const struct chunk_info *info, uint8_t out[CHUNK_HEADER_BYTES]) {
  memset(out, 0, CHUNK_HEADER_BYTES);
  memcpy(out, header_magic, 8);
  store_be32(out + 8, CHUNK_FORMAT);
  store_be32(out + 12, CHUNK_HEADER_BYTES);
  memcpy(out + 16, info->data_id.bytes, 16);
  out[32] = info->index;
  out[33] = info->profile.technique;
  out[34] = info->profile.k;
  out[35] = info->profile.m;
  store_be32(out + 36, info->profile.unit_bytes);
  store_be32(out + HEADER_FIELD_BYTES, crc32c(0, out, HEADER_FIELD_BYTES));
}

int chunk_header_decode(const uint8_t in[CHUNK_HEADER_BYTES], struct chunk_info *ret_info) {
  if (memcmp(in, header_magic, 8) != 0 || load_be32(in + 8) != CHUNK_FORMAT ||
      load_be32(in + HEADER_FIELD_BYTES) != crc32c(0, in, HEADER_FIELD_BYTES))
    return ERR_CORRUPT;
  memcpy(ret_info->data_id.bytes, in + 16, 16);
  ret_info->index = in[32];
  ret_info->profile = (struct profile){in[33], in[34], in[35], load_be32(in + 36)};
  return 0;
}

void chunk_trailer_put(struct byte_writer *w, const struct chunk_info *info,
                       const struct id128 *bucket, struct slice key) {
  size_t start = w->len;
  put_bytes(w, slice_of(trailer_magic, sizeof trailer_magic));
  put_u32(w, CHUNK_FORMAT);
  put_id(w, &info->data_id);
  put_u8(w, info->index);
  put_u8(w, info->profile.technique);
  put_u8(w, info->profile.k);
  put_u8(w, info->profile.m);
  put_u32(w, info->profile.unit_bytes);
  put_u64(w, info->unit_count);
  put_u64(w, info->len);
  for (uint64_t i = 0; i < info->unit_count; i++) put_u32(w, info->crcs[i]);
  put_id(w, bucket);
  put_str16(w, key);
  put_id(w, &info->digest);
  put_u32(w, (uint32_t)(w->len - start + 4 + 4 + sizeof end_magic));
  if (w->failed) return;
  put_u32(w, crc32c(0, w->data + start, w->len - start));
  put_bytes(w, slice_of(end_magic, sizeof end_magic));
}

/* `bytes` is the whole trailer. */
static int chunk_trailer_decode(struct slice bytes, struct chunk_info *ret_info) {
  struct chunk_info info = {0};
  struct slice body = slice_of(bytes.data, bytes.len - 4 - sizeof end_magic);
  if (load_be32(body.data + body.len) != crc32c(0, body.data, body.len)) return ERR_CORRUPT;
  struct byte_reader r = byte_reader_of(body);
  struct slice magic = get_bytes(&r, sizeof trailer_magic);
  uint32_t format = get_u32(&r);
  if (r.failed || memcmp(magic.data, trailer_magic, sizeof trailer_magic) != 0 ||
      format != CHUNK_FORMAT)
    return ERR_CORRUPT;
  info.data_id = get_id(&r);
  info.index = get_u8(&r);
  info.profile.technique = get_u8(&r);
  info.profile.k = get_u8(&r);
  info.profile.m = get_u8(&r);
  info.profile.unit_bytes = get_u32(&r);
  info.unit_count = get_u64(&r);
  info.len = get_u64(&r);
  if (r.failed || info.unit_count == 0 || info.unit_count > CHUNK_UNITS_MAX) return ERR_CORRUPT;
  uint64_t unit_bytes = info.profile.unit_bytes;
  if (info.len > info.unit_count * unit_bytes || info.len < (info.unit_count - 1) * unit_bytes)
    return ERR_CORRUPT;
  struct slice table = get_bytes(&r, (size_t)info.unit_count * 4);
  (void)get_id(&r); /* bucket and key are for the offline rescue */
  (void)get_str16(&r);
  info.digest = get_id(&r);
  (void)get_u32(&r);
  if (r.failed || byte_reader_left(&r) != 0) return ERR_CORRUPT;
  info.crcs = malloc((size_t)info.unit_count * sizeof info.crcs[0]);
  if (!info.crcs) return -ENOMEM;
  for (uint64_t i = 0; i < info.unit_count; i++) info.crcs[i] = load_be32(table.data + 4 * i);
  *ret_info = info;
  return 0;
}

static int trailer_read(struct store_file *f, uint64_t size, uint64_t len, uint8_t *into) {
  struct iovec iov = {into, (size_t)len};
  return f->store->ops->file_read(f, &iov, 1, size - len);
}

static int chunk_trailer_read(struct store_file *f, uint64_t size, struct chunk_info *ret_info) {
  if (size < CHUNK_HEADER_BYTES + TRAILER_END_BYTES) return ERR_CORRUPT;
  uint8_t guess[TRAILER_GUESS_BYTES];
  size_t have = (size_t)MIN(size - CHUNK_HEADER_BYTES, (uint64_t)sizeof guess);
  int err = trailer_read(f, size, have, guess);
  if (err < 0) return err;
  if (memcmp(guess + have - sizeof end_magic, end_magic, sizeof end_magic) != 0) return ERR_CORRUPT;
  uint32_t len = load_be32(guess + have - TRAILER_END_BYTES);
  if (len < TRAILER_END_BYTES || len > CHUNK_TRAILER_BYTES_MAX || len > size - CHUNK_HEADER_BYTES)
    return ERR_CORRUPT;
  struct chunk_info info = {0};
  if (len <= have) {
    err = chunk_trailer_decode(slice_of(guess + have - len, len), &info);
  } else {
    uint8_t *all = malloc(len);
    if (!all) return -ENOMEM;
    err = trailer_read(f, size, len, all);
    if (err == 0) err = chunk_trailer_decode(slice_of(all, len), &info);
    free(all);
  }
  if (err < 0) return err;
  if (size != CHUNK_HEADER_BYTES + info.len + len) {
    free(info.crcs);
    return ERR_CORRUPT;
  }
  *ret_info = info;
  return 0;
}

int chunk_file_open(struct store *s, const struct chunk_name *name, struct store_file **ret_file,
                    struct chunk_info *ret_info) {
  struct store_file *file = NULL;
  uint64_t size;
  int err = s->ops->file_open(s, name, &file, &size);
  if (err < 0) return err;
  struct chunk_info info = {0};
  err = chunk_trailer_read(file, size, &info);
  if (err == 0 && (!id128_eq(&info.data_id, &name->data_id) || info.index != name->index)) {
    free(info.crcs);
    err = ERR_CORRUPT;
  }
  if (err < 0) {
    store_file_close(file);
    return err;
  }
  *ret_file = file;
  *ret_info = info;
  return 0;
}
