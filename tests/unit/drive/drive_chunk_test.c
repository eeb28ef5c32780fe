/* drive_chunk_test.c: chunk files from STAGE to the trash. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "codec/crc32c.h"
#include "config/err.h"
#include "tests/unit/drive/drive_bed.h"

#define BIG_BYTES (1u << 20) /* 64 stripes of 16 KiB: a chunk of 256 KiB */

static struct bed bed;
static struct bed_object big;

static void setup(void) {
  atomic_store(&bed_now_ms, BED_NOW_MS);
  bed_start(&bed);
  bed_object(&big, "big", ROW_PUT, 10, BIG_BYTES + 5000, 1, 1);
}
static void teardown(void) {
  bed_object_free(&big);
  bed_end(&bed);
}
TestSuite(chunk, .init = setup, .fini = teardown);

static int stage(const struct bed_object *o, uint64_t first, unsigned count) {
  struct peer_request req = bed_request(PEER_STAGE, "");
  struct peer_reply reply;
  bed_units(&req, o, first, count);
  drive_stage(bed.drive, &req, &reply);
  return reply.err;
}

static int drop(const struct bed_object *o) {
  struct peer_request req = bed_request(PEER_DROP, "");
  struct peer_reply reply;
  req.data_id = o->data_id;
  drive_stage(bed.drive, &req, &reply);
  return reply.err;
}

static struct peer_request accept_bare(const struct bed_object *o) {
  struct peer_request req = bed_accept_request(o);
  req.unit_count = 0;
  return req;
}

static unsigned stages_open(void) {
  struct drive_stats stats;
  drive_stats_get(bed.drive, &stats);
  return stats.stages_open;
}

static void chunk_path(char out[512]) {
  for (unsigned i = 0; i < STORE_CHUNK_DIRS; i++) {
    char path[128];
    snprintf(path, sizeof path, "%s/data/%02x", bed.path, i);
    DIR *dir = opendir(path);
    for (struct dirent *e; (e = readdir(dir));)
      if (e->d_name[0] != '.') snprintf(out, 512, "%s/%s", path, e->d_name);
    closedir(dir);
  }
}

Test(chunk, staged_sealed_accepted_fetched_and_still_there_after_a_restart) {
  cr_assert_eq(bed_accept_staged(&bed, &big).err, 0);
  cr_assert_eq(stages_open(), 0);
  cr_assert_eq(bed_files(&bed), 1);
  cr_assert_eq(bed_fetch(&bed, &big), 0);
  bed_reopen(&bed);
  cr_assert_eq(bed_files(&bed), 1);
  cr_assert_eq(bed_fetch(&bed, &big), 0);
  struct peer_rows rows;
  uint8_t *body;
  cr_assert_eq(bed_read(&bed, "big", PEER_WANT_INLINE, &rows, &body), 0);
  cr_assert_eq(rows.rows[0].chunk_state, CHUNK_WHOLE);
  cr_assert_null(rows.inline_chunk.data, "it is a file");
  free(body);
}

Test(chunk, the_file_explains_itself) {
  char path[512];
  uint8_t header[CHUNK_HEADER_BYTES], unit[BED_UNIT_BYTES];
  struct chunk_info info;
  cr_assert_eq(bed_accept_staged(&bed, &big).err, 0);
  chunk_path(path);
  int fd = open(path, O_RDONLY);
  cr_assert_eq(pread(fd, header, sizeof header, 0), CHUNK_HEADER_BYTES);
  cr_assert_eq(chunk_header_decode(header, &info), 0);
  cr_assert(id128_eq(&info.data_id, &big.data_id));
  cr_assert_eq(info.index, BED_SLOT);
  cr_assert_eq(info.profile.k, 4);
  cr_assert_eq(info.profile.unit_bytes, BED_UNIT_BYTES);
  cr_assert_eq(pread(fd, unit, sizeof unit, 4096 + 7 * BED_UNIT_BYTES), BED_UNIT_BYTES);
  cr_assert_eq(memcmp(unit, big.chunk + 7 * BED_UNIT_BYTES, BED_UNIT_BYTES), 0);
  header[20] ^= 1;
  cr_assert_eq(chunk_header_decode(header, &info), ERR_CORRUPT);
  close(fd);
}

Test(chunk, every_flipped_bit_of_the_trailer_is_an_erasure) {
  char path[512];
  cr_assert_eq(bed_accept_staged(&bed, &big).err, 0);
  chunk_path(path);
  int fd = open(path, O_RDWR);
  off_t size = lseek(fd, 0, SEEK_END);
  struct stripe_geometry g = row_geometry(&big.row);
  off_t trailer = CHUNK_HEADER_BYTES + (off_t)stripe_chunk_len(&g, BED_SLOT);
  cr_assert_gt(size, trailer);
  for (off_t at = trailer; at < size; at++) {
    uint8_t byte, bad;
    bed_reopen(&bed); /* no open file in the cache */
    cr_assert_eq(pread(fd, &byte, 1, at), 1);
    bad = byte ^ 0x10;
    cr_assert_eq(pwrite(fd, &bad, 1, at), 1);
    cr_assert_eq(bed_fetch(&bed, &big), ERR_NO_CHUNK, "byte %ld", (long)(at - trailer));
    cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
    at += (size - trailer) / 48; /* each byte costs a restart */
  }
  bed_reopen(&bed);
  cr_assert_eq(bed_fetch(&bed, &big), 0);
  cr_assert_eq(ftruncate(fd, size - 1), 0);
  bed_reopen(&bed);
  cr_assert_eq(bed_fetch(&bed, &big), ERR_NO_CHUNK);
  cr_assert_eq(unlink(path), 0);
  bed_reopen(&bed);
  cr_assert_eq(bed_fetch(&bed, &big), ERR_NO_CHUNK);
  cr_assert(!drive_failed(bed.drive));
  close(fd);
}

Test(chunk, units_come_in_order_whole_and_right) {
  cr_assert_eq(stage(&big, 4, 4), ERR_INVALID, "not from the first");
  cr_assert_eq(stages_open(), 0);
  cr_assert_eq(stage(&big, 0, 4), 0);
  cr_assert_eq(stage(&big, 0, 4), ERR_INVALID, "again");
  cr_assert_eq(stage(&big, 5, 4), ERR_INVALID, "a gap");
  struct peer_request req = bed_request(PEER_STAGE, "");
  struct peer_reply reply;
  bed_units(&req, &big, 4, 2);
  req.units[1].crc ^= 1;
  drive_stage(bed.drive, &req, &reply);
  cr_assert_eq(reply.err, ERR_CORRUPT);
  bed_units(&req, &big, 4, 2);
  req.units[0].len = 100;
  drive_stage(bed.drive, &req, &reply);
  cr_assert_eq(reply.err, ERR_INVALID, "a short unit in the middle");
  bed_units(&req, &big, 4, 0);
  drive_stage(bed.drive, &req, &reply);
  cr_assert_eq(reply.err, ERR_INVALID);
  cr_assert_eq(stage(&big, 4, 4), 0, "the stage is none the worse");
  cr_assert_eq(drop(&big), 0);
  cr_assert_eq(stages_open(), 0);
  cr_assert_eq(bed_files(&bed), 0);
  cr_assert_eq(drop(&big), 0, "absent is success");
}

Test(chunk, an_unfinished_or_unsealed_stage_is_no_chunk) {
  struct peer_request req = accept_bare(&big);
  cr_assert_eq(stage(&big, 0, 16), 0);
  cr_assert_eq(drive_seal(bed.drive, &req), ERR_NO_CHUNK);
  cr_assert_eq(bed_apply(&bed, &req).err, ERR_NO_CHUNK);
  for (uint64_t at = 16; at < big.unit_count; at += 16)
    cr_assert_eq(stage(&big, at, (unsigned)MIN(16u, big.unit_count - at)), 0);
  cr_assert_eq(bed_apply(&bed, &req).err, ERR_NO_CHUNK, "not synced yet");
  cr_assert_eq(drive_seal(bed.drive, &req), 0);
  cr_assert_eq(drive_seal(bed.drive, &req), 0, "twice is once");
  struct peer_request more = bed_request(PEER_STAGE, "");
  struct peer_reply reply;
  bed_units(&more, &big, 0, 1);
  more.unit_first = big.unit_count;
  drive_stage(bed.drive, &more, &reply);
  cr_assert_eq(reply.err, ERR_INVALID, "closed");
  cr_assert_eq(bed_apply(&bed, &req).err, 0);
  cr_assert_eq(bed_fetch(&bed, &big), 0);
}

Test(chunk, a_stage_that_is_not_the_rows_chunk_is_dropped) {
  struct bed_object other;
  bed_object(&other, "big", ROW_PUT, 10, BIG_BYTES + 5000, 1, 1);
  other.row.digests[BED_SLOT].bytes[3] ^= 1;
  free(other.bytes);
  cr_assert_eq(
      row_encode(&other.row, NULL, 0, &other.bucket, slice_str("big"), &other.bytes, &other.len),
      0);
  cr_assert_eq(bed_accept_staged(&bed, &other).err, ERR_CORRUPT);
  cr_assert_eq(stages_open(), 0);
  cr_assert_eq(bed_files(&bed), 0);
  bed_object_free(&other);
}

Test(chunk, a_last_unit_of_no_bytes_need_not_be_sent) {
  struct bed_object o; /* one stripe and a byte: chunk 1 has nothing in the second */
  bed_object(&o, "k", ROW_PUT, 10, 4 * BED_UNIT_BYTES + 1, 2, 2);
  cr_assert_eq(o.unit_count, 2);
  cr_assert_eq(stage(&o, 0, 1), 0);
  struct peer_request req = accept_bare(&o);
  cr_assert_eq(drive_seal(bed.drive, &req), 0);
  cr_assert_eq(bed_apply(&bed, &req).err, 0);
  cr_assert_eq(bed_fetch(&bed, &o), 0);
  bed_object_free(&o);
}

Test(chunk, orphans_are_swept_by_the_next_open) {
  struct bed_object other;
  bed_object(&other, "other", ROW_PUT, 10, BIG_BYTES, 2, 2);
  cr_assert_eq(bed_accept_staged(&bed, &big).err, 0);
  cr_assert_eq(bed_stage(&bed, &other), 0);
  struct peer_request req = accept_bare(&other);
  cr_assert_eq(drive_seal(bed.drive, &req), 0);
  cr_assert_eq(bed_files(&bed), 2);
  /* What a crash leaves: a sealed file that no row names. The copy is opened in its place. */
  char crash[96];
  snprintf(crash, sizeof crash, "%s-crash", bed.path);
  bed_copy(bed.path, crash);
  struct bed after = {.opt = bed.opt};
  snprintf(after.path, sizeof after.path, "%.50s-crash", bed.path);
  after.opt.path = after.path;
  struct drive_error error;
  cr_assert_eq(drive_open(&after.opt, &after.drive, &error), 0, "%s", error.text);
  struct drive_stats stats;
  drive_stats_get(after.drive, &stats);
  cr_assert_eq(stats.orphans_swept, 1);
  cr_assert_eq(bed_files(&after), 1);
  cr_assert_eq(bed_fetch(&after, &big), 0);
  bed_end(&after);
  bed_object_free(&other);
}

Test(chunk, trash_keeps_a_file_until_its_deadline_and_over_a_restart) {
  struct bed_object next;
  struct drive_stats stats;
  bed_object(&next, "big", ROW_PUT, 20, BIG_BYTES, 2, 2);
  cr_assert_eq(bed_accept_staged(&bed, &big).err, 0);
  cr_assert_eq(bed_accept_staged(&bed, &next).err, 0);
  bed_commit(&bed, "big", 20, 0);
  bed_housekeep(&bed);
  cr_assert_eq(bed_files(&bed), 2);
  cr_assert_eq(bed_fetch(&bed, &big), 0, "a GET that read the old row goes on");
  cr_assert_eq(drive_housekeep(bed.drive, 10), BED_TRASH_MS);
  bed_reopen(&bed);
  drive_stats_get(bed.drive, &stats);
  cr_assert_eq(stats.orphans_swept, 0);
  cr_assert_eq(stats.trash_waiting, 1);
  cr_assert_eq(bed_files(&bed), 2);
  atomic_fetch_add(&bed_now_ms, BED_TRASH_MS);
  bed_housekeep(&bed);
  cr_assert_eq(bed_files(&bed), 1);
  cr_assert_eq(bed_fetch(&bed, &big), ERR_NO_CHUNK);
  cr_assert_eq(bed_fetch(&bed, &next), 0);
  cr_assert_eq(drive_housekeep(bed.drive, 10), UINT64_MAX);
  bed_object_free(&next);
}

Test(chunk, trash_waits_for_a_get_that_still_reads_it) {
  struct bed_object next;
  bed_object(&next, "big", ROW_PUT, 20, BIG_BYTES, 2, 2);
  cr_assert_eq(bed_accept_staged(&bed, &big).err, 0);
  cr_assert_eq(bed_accept_staged(&bed, &next).err, 0);
  bed_commit(&bed, "big", 20, 0);
  bed_housekeep(&bed);
  for (int i = 0; i < 3; i++) { /* a slow client: three times the delay */
    atomic_fetch_add(&bed_now_ms, BED_TRASH_MS - 1);
    cr_assert_eq(bed_fetch(&bed, &big), 0, "turn %d", i);
    atomic_fetch_add(&bed_now_ms, 1);
    bed_housekeep(&bed);
    cr_assert_eq(bed_files(&bed), 2, "turn %d", i);
  }
  atomic_fetch_add(&bed_now_ms, BED_TRASH_MS);
  bed_housekeep(&bed);
  cr_assert_eq(bed_files(&bed), 1);
  cr_assert_eq(bed_fetch(&bed, &big), ERR_NO_CHUNK);
  bed_object_free(&next);
}

Test(chunk, below_the_reserve_trash_goes_at_once) {
  struct bed_object next;
  bed_object(&next, "big", ROW_PUT, 20, BIG_BYTES, 2, 2);
  cr_assert_eq(bed_accept_staged(&bed, &big).err, 0);
  cr_assert_eq(bed_accept_staged(&bed, &next).err, 0);
  bed_commit(&bed, "big", 20, 0);
  bed.opt.reserve_bytes = UINT64_MAX - 1;
  bed_reopen(&bed);
  bed_housekeep(&bed);
  cr_assert_eq(bed_files(&bed), 1);
  cr_assert_eq(bed_fetch(&bed, &next), 0);
  bed_object_free(&next);
}

Test(chunk, a_superseded_accept_leaves_no_file) {
  struct bed_object tomb;
  bed_object(&tomb, "big", ROW_TOMB, 20, 0, 2, 0);
  cr_assert_eq(bed_accept(&bed, &tomb).err, 0);
  bed_commit(&bed, "big", 20, 0);
  struct peer_reply reply = bed_accept_staged(&bed, &big);
  cr_assert_eq(reply.err, 0);
  cr_assert_eq(reply.flags, PEER_SUPERSEDED);
  cr_assert_eq(stages_open(), 0);
  cr_assert_eq(bed_files(&bed), 0);
  bed_object_free(&tomb);
}

Test(chunk, a_second_stage_of_a_chunk_that_stands_here_is_dropped) {
  cr_assert_eq(bed_accept_staged(&bed, &big).err, 0);
  cr_assert_eq(bed_accept_staged(&bed, &big).err, 0);
  cr_assert_eq(stages_open(), 0);
  cr_assert_eq(bed_files(&bed), 1);
  cr_assert_eq(bed_fetch(&bed, &big), 0);
}

Test(chunk, a_refused_accept_keeps_the_stage_for_another_version) {
  struct peer_reply reply = bed_promise(&bed, "big", 15);
  free(reply.body);
  cr_assert_eq(bed_accept_staged(&bed, &big).err, ERR_PROMISED);
  cr_assert_eq(stages_open(), 1);
  struct bed_object again;
  bed_object(&again, "big", ROW_PUT, 15, BIG_BYTES + 5000, 1, 1);
  struct peer_request req = accept_bare(&again);
  cr_assert_eq(drive_seal(bed.drive, &req), 0);
  cr_assert_eq(bed_apply(&bed, &req).err, 0);
  cr_assert_eq(bed_fetch(&bed, &again), 0);
  bed_object_free(&again);
}

Test(chunk, fetch_refuses_what_is_not_there) {
  static uint8_t room[BED_UNIT_BYTES];
  struct peer_request req = bed_request(PEER_FETCH, "");
  struct peer_reply reply;
  req.data_id = big.data_id;
  req.unit_count = 1;
  req.units[0] = (struct peer_unit){.data = room, .len = sizeof room};
  drive_read(bed.drive, &req, &reply);
  cr_assert_eq(reply.err, ERR_NO_CHUNK);
  cr_assert_eq(bed_stage(&bed, &big), 0);
  drive_read(bed.drive, &req, &reply);
  cr_assert_eq(reply.err, ERR_NO_CHUNK, "staged only");
  struct peer_request accept = accept_bare(&big);
  cr_assert_eq(drive_seal(bed.drive, &accept), 0);
  cr_assert_eq(bed_apply(&bed, &accept).err, 0);
  drive_read(bed.drive, &req, &reply);
  cr_assert_eq(reply.err, 0);
  req.units[0].len = 10;
  drive_read(bed.drive, &req, &reply);
  cr_assert_eq(reply.err, ERR_INVALID, "no room");
  req.units[0].len = sizeof room;
  req.unit_first = big.unit_count;
  drive_read(bed.drive, &req, &reply);
  cr_assert_eq(reply.err, ERR_INVALID);
  req.unit_first = UINT64_MAX;
  drive_read(bed.drive, &req, &reply);
  cr_assert_eq(reply.err, ERR_INVALID);
  req.unit_first = 0;
  req.slot = BED_SLOT + 1;
  drive_read(bed.drive, &req, &reply);
  cr_assert_eq(reply.err, ERR_NO_CHUNK);
}

Test(chunk, the_cache_of_open_files_is_bounded_and_changes_nothing) {
  enum { COUNT = CHUNK_CACHE_FILES_MAX + 20 };
  static struct bed_object objects[COUNT];
  char key[16];
  for (unsigned i = 0; i < COUNT; i++) {
    snprintf(key, sizeof key, "k%u", i);
    bed_object(&objects[i], key, ROW_PUT, 10, 5000, i + 10, i + 10);
    cr_assert_eq(bed_stage(&bed, &objects[i]), 0);
    struct peer_request req = accept_bare(&objects[i]);
    cr_assert_eq(drive_seal(bed.drive, &req), 0);
    cr_assert_eq(bed_apply(&bed, &req).err, 0);
  }
  for (unsigned round = 0; round < 2; round++)
    for (unsigned i = 0; i < COUNT; i++) cr_assert_eq(bed_fetch(&bed, &objects[i]), 0);
  cr_assert_eq(bed.drive->cache.count, CHUNK_CACHE_FILES_MAX);
  for (unsigned i = 0; i < COUNT; i++) bed_object_free(&objects[i]);
}

Test(chunk, stages_are_bounded) {
  struct bed_object o;
  int err = 0;
  unsigned i = 0;
  for (; i <= STAGES_MAX && err == 0; i++) {
    bed_object(&o, "k", ROW_PUT, 10, 5000, 1, i + 10);
    err = bed_stage(&bed, &o);
    bed_object_free(&o);
  }
  /* The table's bound, or the process's of open files: both come before the system's. */
  cr_assert(err == ERR_SLOW_DOWN || err == -EMFILE, "%s", err_name(err));
  cr_assert_leq(stages_open(), STAGES_MAX);
  cr_assert(!drive_failed(bed.drive));
}
