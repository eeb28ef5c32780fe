/* fuzz_drive_files.c: files of a drive as a damaged disk may give them back: drive.id, the names of
 * chunk files, a chunk file's header and trailer. Nothing is read from a disk.
 *
 * format.c and store_files.c are compiled in, for what parses is private there. The first byte says
 * which part, and whether CRCs are made right first. */
#include "storage/drive/chunk_file.h"
#include "storage/drive/format.c"
#include "storage/drive/store_files.c"
#include "tests/fuzz/fuzz.h"

/* ---- drive.id ---- */

static void drive_id(struct slice in, bool repair) {
  char text[ID_FILE_BYTES_MAX], again[ID_FILE_BYTES_MAX];
  struct drive_identity id = {.epoch = 77}, second;
  size_t len = MIN(in.len, sizeof text - ID_CRC_LINE_BYTES), again_len;
  if (len) memcpy(text, in.data, len);
  if (repair)
    len += (size_t)snprintf(text + len, sizeof text - len, "crc %08" PRIx32 "\n",
                            crc32c(0, text, len));
  uint8_t *exact = fuzz_copy(slice_of(text, len));
  int err = id_parse(slice_of(exact, len), &id);
  if (err == 0) {
    FUZZ_CHECK(id.epoch <= 999999999);
    FUZZ_CHECK(memchr(id.cluster_name, 0, sizeof id.cluster_name));
    FUZZ_CHECK(memchr(id.host_id, 0, sizeof id.host_id));
    FUZZ_CHECK(memchr(id.drive_name, 0, sizeof id.drive_name));
    FUZZ_CHECK(id_print(&id, again, &again_len) == 0);
    FUZZ_CHECK(id_parse(slice_of(again, again_len), &second) == 0);
    FUZZ_CHECK(id128_eq(&id.drive_id, &second.drive_id) && id.epoch == second.epoch);
    FUZZ_CHECK(strcmp(id.drive_name, second.drive_name) == 0);
    FUZZ_CHECK(strcmp(id.cluster_name, second.cluster_name) == 0);
  } else {
    FUZZ_CHECK(err == ERR_CORRUPT && id.epoch == 77);
  }
  free(exact);
}

/* ---- names of chunk files ---- */

static void file_name(struct slice in, bool repair) {
  char *text = fuzz_text(in), again[CHUNK_NAME_BYTES_MAX];
  struct chunk_name name;
  if (chunk_name_parse(text, &name)) {
    /* Whatever is taken for a chunk is unlinked by the name that we would have given it. */
    chunk_name_print(&name, again);
    FUZZ_CHECK(strcmp(again, text) == 0 && chunk_name_dir(&name) < STORE_CHUNK_DIRS);
  }
  free(text);
}

/* ---- a chunk file ---- */

struct mem_file {
  struct store_file file;
  struct store store;
  struct slice bytes;
  unsigned open;
};

static int mem_open(struct store *s, const struct chunk_name *name, struct store_file **ret_file,
                    uint64_t *ret_size) {
  struct mem_file *f = container_of(s, struct mem_file, store);
  f->open++;
  *ret_file = &f->file;
  *ret_size = f->bytes.len;
  return 0;
}

static int mem_read(struct store_file *file, struct iovec *iov, unsigned count, uint64_t offset) {
  struct mem_file *f = container_of(file, struct mem_file, file);
  for (unsigned i = 0; i < count; i++) {
    if (offset > f->bytes.len || iov[i].iov_len > f->bytes.len - offset) return ERR_CORRUPT;
    if (iov[i].iov_len) memcpy(iov[i].iov_base, f->bytes.data + offset, iov[i].iov_len);
    offset += iov[i].iov_len;
  }
  return 0;
}

static void mem_close(struct store_file *file) {
  container_of(file, struct mem_file, file)->open--;
}

/* The last bytes of a trailer: its length, CRC and magic. */
static void fix_trailer(uint8_t *bytes, size_t len) {
  static const uint8_t magic[8] = "kofnends";
  if (len < CHUNK_HEADER_BYTES + 16) return;
  uint32_t trailer = load_be32(bytes + len - 16);
  size_t room = len - CHUNK_HEADER_BYTES;
  if (trailer < 16 || trailer > room) trailer = (uint32_t)room;
  store_be32(bytes + len - 16, trailer);
  memcpy(bytes + len - 8, magic, sizeof magic);
  store_be32(bytes + len - 12, crc32c(0, bytes + len - trailer, trailer - 12));
}

static void check_chunk(const struct chunk_info *info, size_t size) {
  FUZZ_CHECK(info->unit_count > 0 && info->unit_count <= CHUNK_UNITS_MAX && info->crcs);
  FUZZ_CHECK(info->len + CHUNK_HEADER_BYTES < size);
  uint64_t sum = 0;
  for (uint64_t u = 0; u < info->unit_count; u++) {
    FUZZ_CHECK(chunk_unit_len(info, u) <= info->profile.unit_bytes);
    sum += chunk_unit_len(info, u);
  }
  FUZZ_CHECK(sum == info->len);
  /* Written again it is as long, and read again the same. */
  struct byte_writer w = {.max = size + 4096};
  struct id128 bucket = {{1}};
  uint8_t *room = put_space(&w, CHUNK_HEADER_BYTES + (size_t)info->len);
  FUZZ_CHECK(room);
  memset(room, 0, CHUNK_HEADER_BYTES + (size_t)info->len);
  chunk_trailer_put(&w, info, &bucket, SLICE_LIT("key"));
  FUZZ_CHECK(!w.failed);
  static const struct store_ops ops = {
      .file_open = mem_open, .file_read = mem_read, .file_close = mem_close};
  struct mem_file f = {.store.ops = &ops, .bytes = slice_of(w.data, w.len)};
  f.file.store = &f.store;
  struct chunk_name name = {.data_id = info->data_id, .index = info->index, .gen = 1};
  struct store_file *file;
  struct chunk_info again;
  FUZZ_CHECK(chunk_file_open(&f.store, &name, &file, &again) == 0);
  FUZZ_CHECK(again.unit_count == info->unit_count && again.len == info->len);
  FUZZ_CHECK(memcmp(again.crcs, info->crcs, (size_t)info->unit_count * sizeof again.crcs[0]) == 0);
  free(again.crcs);
  store_file_close(file);
  byte_writer_free(&w);
}

static void chunk(struct slice in, bool repair) {
  static const struct store_ops ops = {
      .file_open = mem_open, .file_read = mem_read, .file_close = mem_close};
  size_t pad = (size_t)fuzz_u8(&in) * 64;
  bool full = fuzz_u8(&in) & 1; /* a whole header in front, so that the input is all trailer */
  struct chunk_name name = {.gen = 1};
  size_t before = full ? CHUNK_HEADER_BYTES + pad : 0, len = before + in.len;
  uint8_t *bytes = calloc(1, len + 1), *exact;
  FUZZ_CHECK(bytes);
  if (in.len) memcpy(bytes + before, in.data, in.len);
  if (repair) fix_trailer(bytes, len);
  exact = fuzz_copy(slice_of(bytes, len));
  struct mem_file f = {.store.ops = &ops, .bytes = slice_of(exact, len)};
  f.file.store = &f.store;
  if (in.len >= 29) { /* whom the trailer names */
    memcpy(name.data_id.bytes, in.data + 12, 16);
    name.index = in.data[28];
  }
  struct store_file *file = NULL;
  struct chunk_info info = {0};
  int err = chunk_file_open(&f.store, &name, &file, &info);
  if (err == 0) {
    check_chunk(&info, len);
    store_file_close(file);
    free(info.crcs);
  } else {
    FUZZ_CHECK(err == ERR_CORRUPT && !file && !info.crcs);
  }
  FUZZ_CHECK(f.open == 0);
  free(bytes);
  free(exact);
}

static void header(struct slice in, bool repair) {
  uint8_t bytes[CHUNK_HEADER_BYTES] = {0}, again[CHUNK_HEADER_BYTES];
  struct chunk_info info = {0};
  if (in.len) memcpy(bytes, in.data, MIN(in.len, sizeof bytes));
  if (repair) {
    memcpy(bytes, "kofnchnk", 8);
    store_be32(bytes + 8, CHUNK_FORMAT);
    store_be32(bytes + 12, CHUNK_HEADER_BYTES);
    store_be32(bytes + 60, crc32c(0, bytes, 60));
  }
  if (chunk_header_decode(bytes, &info) < 0) return;
  chunk_header_encode(&info, again);
  FUZZ_CHECK(memcmp(bytes, again, 40) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  static void (*const parts[])(struct slice, bool) = {drive_id, file_name, chunk, header};
  struct slice in = slice_of(data, len);
  if (len == 0) return 0;
  uint8_t which = fuzz_u8(&in);
  parts[which % ARRAY_LEN(parts)](in, which & 0x80);
  return 0;
}
