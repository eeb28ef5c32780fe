/* drive_fault_test.c: the disk fails, at every point in turn; and the order of the syncs. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/err.h"
#include "storage/drive/store_files.h"
#include "tests/unit/drive/drive_bed.h"

/* The drive's store, with operations counted, noted, and failed on demand. */
static struct bed bed;
static struct store_ops ops;
static const struct store_ops *real;
static char trace[256];
static unsigned fail_at; /* the n-th call that touches the disk fails; 0: none */
static int fail_with;
static unsigned calls;

static bool step(char letter) {
  size_t len = strlen(trace);
  if (len + 1 < sizeof trace) trace[len] = letter;
  return ++calls == fail_at;
}

static int faulty_sync(struct store_file *f) {
  return step('f') ? fail_with : real->file_sync(f);
}
static int faulty_write(struct store_file *f, struct iovec *iov, unsigned count, uint64_t offset) {
  return step('w') ? fail_with : real->file_write(f, iov, count, offset);
}
static int faulty_dir_sync(struct store *s, unsigned dir) {
  return step('d') ? fail_with : real->dir_sync(s, dir);
}
static int faulty_commit(struct store_txn *txn) {
  if (!step('c')) return real->commit(txn);
  real->abort(txn);
  return fail_with;
}
static int faulty_put(struct store_txn *txn, enum store_table table, struct slice key,
                      struct slice value) {
  return step('p') ? fail_with : real->put(txn, table, key, value);
}

static void faulty_in_front(struct store *store) {
  real = store->ops;
  ops = *real;
  ops.file_sync = faulty_sync;
  ops.file_write = faulty_write;
  ops.dir_sync = faulty_dir_sync;
  ops.commit = faulty_commit;
  ops.put = faulty_put;
  store->ops = &ops;
  fail_at = calls = 0;
  memset(trace, 0, sizeof trace);
}

static void faulty_install(void) {
  faulty_in_front(bed.drive->store);
}

static void faulty_remove(void) {
  bed.drive->store->ops = real;
}

static void setup(void) {
  atomic_store(&bed_now_ms, BED_NOW_MS);
  bed_start(&bed);
  faulty_install();
}
static void teardown(void) {
  if (bed.drive) faulty_remove();
  bed_end(&bed);
}
TestSuite(fault, .init = setup, .fini = teardown);

static void squeeze(char *text, char drop) {
  char *to = text;
  for (char *c = text; *c; c++)
    if (*c != drop) *to++ = *c;
  *to = 0;
}

Test(fault, chunk_then_directory_then_index) {
  struct bed_object o;
  bed_object(&o, "k", ROW_PUT, 10, 200000, 1, 1);
  cr_assert_eq(bed_accept_staged(&bed, &o).err, 0);
  squeeze(trace, 'p');
  cr_assert_str_eq(trace, "wwfdc");
  /* One directory sync for all files of a batch that stand in it. */
  memset(trace, 0, sizeof trace);
  struct bed_object many[3];
  struct peer_reply reply;
  unsigned dirs = 0, dir_count = 0;
  for (unsigned i = 0; i < 3; i++) {
    bed_object(&many[i], "k", ROW_PUT, 20 + i, 50000, i + 2, 50 + i);
    cr_assert_eq(bed_stage(&bed, &many[i]), 0);
    struct peer_request req = bed_accept_request(&many[i]);
    req.unit_count = 0;
    cr_assert_eq(drive_seal(bed.drive, &req), 0);
    unsigned bit = 1u << (many[i].data_id.bytes[0] % STORE_CHUNK_DIRS);
    if (!(dirs & bit)) dir_count++;
    dirs |= bit;
  }
  memset(trace, 0, sizeof trace);
  cr_assert_eq(drive_batch_begin(bed.drive), 0);
  for (unsigned i = 0; i < 3; i++) {
    struct peer_request req = bed_accept_request(&many[i]);
    req.unit_count = 0;
    drive_batch_apply(bed.drive, &req, &reply);
    cr_assert_eq(reply.err, 0);
  }
  cr_assert_eq(drive_batch_commit(bed.drive), 0);
  squeeze(trace, 'p');
  cr_assert_eq(strlen(trace), dir_count + 1, "%s", trace);
  cr_assert_eq(trace[dir_count], 'c');
  for (unsigned i = 0; i < 3; i++) bed_object_free(&many[i]);
  bed_object_free(&o);
}

/* The n-th write or sync fails, for every n: the drive is out of service, nothing was acked, and
 * what an undisturbed process finds in the directory afterwards is what was acked before. */
Test(fault, any_failed_write_or_sync_is_the_end) {
  struct bed_object before, o;
  bed_object(&before, "before", ROW_PUT, 5, 200000, 1, 1);
  bed_object(&o, "k", ROW_PUT, 10, 200000, 2, 2);
  unsigned n = 1;
  for (bool failed = true; failed; n++) {
    cr_assert_eq(bed_accept_staged(&bed, &before).err, 0);
    calls = 0;
    fail_at = n;
    fail_with = -EIO;
    struct peer_reply reply = bed_accept_staged(&bed, &o);
    fail_at = 0;
    failed = reply.err != 0;
    cr_assert_eq(failed, drive_failed(bed.drive), "call %u", n);
    if (failed) {
      cr_assert_eq(reply.err, ERR_DRIVE_FAILED, "call %u: %s", n, err_name(reply.err));
      cr_assert_gt(strlen(drive_failure(bed.drive)), 10);
      unsigned calls_then = calls;
      cr_assert_eq(bed_accept_staged(&bed, &o).err, ERR_DRIVE_FAILED);
      cr_assert_eq(bed_fetch(&bed, &before), ERR_DRIVE_FAILED, "no vote, no data");
      cr_assert_eq(calls, calls_then, "nothing is tried again");
      cr_assert_eq(drive_housekeep(bed.drive, 1), UINT64_MAX);
    }
    faulty_remove();
    bed_reopen(&bed);
    cr_assert_eq(bed_fetch(&bed, &before), 0, "call %u", n);
    struct peer_rows rows;
    uint8_t *body;
    cr_assert_eq(bed_read(&bed, "k", 0, &rows, &body), 0);
    cr_assert_eq(rows.count, failed ? 0 : 1);
    free(body);
    faulty_install();
  }
  cr_assert_geq(n, 9, "writes, syncs, puts and the commit all had their turn");
  bed_object_free(&before);
  bed_object_free(&o);
}

/* The commit that counts the boot fails: not "cannot be read", but never to be trusted again. */
Test(fault, a_failed_commit_at_the_start_is_the_end) {
  struct drive_error error = {""};
  struct store *store;
  faulty_remove();
  drive_close(TAKE(bed.drive));
  cr_assert_eq(store_lmdb_open(bed.path, bed.opt.index_map_bytes, false, &store), 0);
  faulty_in_front(store);
  fail_with = -EIO;
  unsigned puts = 2; /* the counter, the mark */
  fail_at = puts + 1;
  cr_assert_eq(drive_attach(&bed.opt, store, &bed.drive, &error), ERR_DRIVE_FAILED);
  cr_assert_eq(trace[puts], 'c', "%s", trace);
  cr_assert(strstr(error.text, bed.path) && strstr(error.text, "EIO"), "%s", error.text);
  bed.drive = NULL;
}

Test(fault, a_failed_commit_at_the_stop_is_remembered) {
  calls = 0;
  fail_at = 2; /* behind the put of the mark */
  fail_with = -EIO;
  drive_finish(bed.drive);
  cr_assert_str_eq(trace, "pc");
  cr_assert(drive_failed(bed.drive));
}

/* Also where the first page that cannot be read is one that opening needs. */
Test(fault, a_read_error_under_the_map_at_the_start_fails_the_drive_only) {
  char path[128];
  struct drive_error error = {""};
  faulty_remove();
  drive_close(TAKE(bed.drive));
  snprintf(path, sizeof path, "%s/index/data.mdb", bed.path);
  cr_assert_eq(truncate(path, 8192), 0); /* the two meta pages are left */
  cr_assert_eq(drive_open(&bed.opt, &bed.drive, &error), ERR_DRIVE_FAILED);
  cr_assert(strstr(error.text, bed.path), "%s", error.text);
}

Test(fault, a_full_disk_fails_the_request_only) {
  struct bed_object o;
  bed_object(&o, "k", ROW_PUT, 10, 200000, 1, 1);
  fail_with = ERR_NO_SPACE;
  for (fail_at = 1; fail_at <= 4; fail_at++) { /* two writes, the sync, the first put */
    calls = 0;
    struct peer_reply reply = bed_accept_staged(&bed, &o);
    if (fail_at == 4 && reply.err == 0) break;
    cr_assert_eq(reply.err, ERR_NO_SPACE, "call %u: %s", fail_at, err_name(reply.err));
    cr_assert(!drive_failed(bed.drive));
    struct peer_request drop = bed_request(PEER_DROP, "");
    drop.data_id = o.data_id;
    drive_stage(bed.drive, &drop, &reply);
    cr_assert_eq(bed_files(&bed), 0);
  }
  fail_at = 0;
  cr_assert_eq(bed_accept_staged(&bed, &o).err, 0);
  cr_assert_eq(bed_fetch(&bed, &o), 0);
  bed_object_free(&o);
}

/* A put that finds the map full breaks the whole batch: nobody in it is acked. */
Test(fault, a_full_index_acks_nobody_of_the_batch) {
  struct bed_object a, b;
  struct peer_reply reply[2];
  bed_object(&a, "a", ROW_PUT, 10, 100, 1, 1);
  bed_object(&b, "b", ROW_PUT, 10, 100, 2, 2);
  struct peer_request req_a = bed_accept_request(&a), req_b = bed_accept_request(&b);
  cr_assert_eq(drive_batch_begin(bed.drive), 0);
  drive_batch_apply(bed.drive, &req_a, &reply[0]);
  cr_assert_eq(reply[0].err, 0);
  fail_at = calls + 1;
  fail_with = ERR_NO_SPACE;
  drive_batch_apply(bed.drive, &req_b, &reply[1]);
  cr_assert_eq(reply[1].err, ERR_NO_SPACE);
  cr_assert_eq(drive_batch_commit(bed.drive), ERR_NO_SPACE);
  fail_at = 0;
  struct drive_stats stats;
  drive_stats_get(bed.drive, &stats);
  cr_assert_eq(stats.rows, 0);
  cr_assert_eq(bed_accept(&bed, &a).err, 0);
  cr_assert_eq(bed_accept(&bed, &b).err, 0);
  bed_object_free(&a);
  bed_object_free(&b);
}

Test(fault, a_small_index_refuses_data_before_it_is_full) {
  struct bed small;
  struct drive_error error;
  struct drive_identity id = bed_identity();
  bed_dir(&small);
  small.opt.index_map_bytes = 2 << 20;
  cr_assert_eq(drive_format(small.path, &id, "", SLICE_LIT(""), 2 << 20, &error), 0);
  cr_assert_eq(drive_open(&small.opt, &small.drive, &error), 0, "%s", error.text);
  int err = 0;
  unsigned i = 0;
  char key[16];
  for (; i < 2000 && err == 0; i++) {
    struct bed_object o;
    snprintf(key, sizeof key, "k%u", i);
    bed_object(&o, key, ROW_PUT, 10, 60000, i + 1, i + 1);
    err = bed_accept(&small, &o).err;
    bed_object_free(&o);
    if (i % 16 == 15) small.drive->store->ops->space(small.drive->store, &(struct store_space){0});
    /* The figures are a second old at most: the test does not wait, it asks anew. */
    container_of(small.drive->store, struct store_files, store)->space_at_ms = 0;
  }
  cr_assert_eq(err, ERR_NO_SPACE);
  cr_assert_gt(i, 20);
  struct bed_object tomb;
  for (unsigned t = 0; t < i; t++) {
    snprintf(key, sizeof key, "k%u", t);
    bed_object(&tomb, key, ROW_TOMB, 20, 0, 5000 + t, 0);
    cr_assert_eq(bed_accept(&small, &tomb).err, 0, "DELETE goes on");
    bed_commit(&small, key, 20, 0);
    bed_object_free(&tomb);
  }
  atomic_fetch_add(&bed_now_ms, BED_TRASH_MS + 1);
  bed_housekeep(&small);
  container_of(small.drive->store, struct store_files, store)->space_at_ms = 0;
  struct bed_object o;
  bed_object(&o, "again", ROW_PUT, 10, 60000, 1, 1);
  cr_assert_eq(bed_accept(&small, &o).err, 0, "and makes room");
  bed_object_free(&o);
  bed_end(&small);
}

/* What comes in within the second for which the figures hold is counted too: the part of the index
 * that is kept for deletes is there when they come. */
Test(fault, a_burst_leaves_what_deletes_need) {
  struct bed small;
  struct drive_error error;
  struct drive_identity id = bed_identity();
  struct bed_object o;
  char key[16];
  unsigned count = 0;
  bed_dir(&small);
  small.opt.index_map_bytes = 4 << 20;
  cr_assert_eq(drive_format(small.path, &id, "", SLICE_LIT(""), 4 << 20, &error), 0);
  cr_assert_eq(drive_open(&small.opt, &small.drive, &error), 0, "%s", error.text);
  for (int err = 0; err == 0; count++) {
    cr_assert_lt(count, 2000);
    cr_assert_eq(drive_batch_begin(small.drive), 0);
    struct peer_reply reply;
    snprintf(key, sizeof key, "k%u", count);
    bed_object(&o, key, ROW_PUT, 10, 60000, count + 1, count + 1);
    struct peer_request req = bed_accept_request(&o);
    drive_batch_apply(small.drive, &req, &reply);
    err = reply.err;
    cr_assert_eq(drive_batch_commit(small.drive), 0, "the map is full to the last page");
    cr_assert(err == 0 || err == ERR_NO_SPACE, "%s", err_name(err));
    bed_object_free(&o);
  }
  cr_assert_gt(count, 50);
  for (unsigned t = 0; t + 1 < count; t++) {
    snprintf(key, sizeof key, "k%u", t);
    bed_object(&o, key, ROW_TOMB, 20, 0, 5000 + t, 0);
    cr_assert_eq(bed_accept(&small, &o).err, 0, "DELETE %u of %u", t, count);
    bed_object_free(&o);
  }
  cr_assert(!drive_failed(small.drive));
  bed_end(&small);
}

/* LMDB finds out at the commit that it has no page for its list of free pages: nothing is written
 * then, and nothing is wrong with the disk. */
Test(fault, a_map_that_is_full_at_the_commit_fails_the_batch_only) {
  struct bed_object o;
  bed_object(&o, "k", ROW_PUT, 10, 200000, 1, 1);
  cr_assert_eq(bed_stage(&bed, &o), 0);
  struct peer_request req = bed_accept_request(&o);
  req.unit_count = 0;
  cr_assert_eq(drive_seal(bed.drive, &req), 0);
  struct peer_reply reply;
  cr_assert_eq(drive_batch_begin(bed.drive), 0);
  drive_batch_apply(bed.drive, &req, &reply);
  cr_assert_eq(reply.err, 0);
  fail_with = ERR_NO_SPACE;
  fail_at = calls + 3; /* the counters, the chunk's directory, the commit */
  cr_assert_eq(drive_batch_commit(bed.drive), ERR_NO_SPACE, "%s", trace);
  cr_assert_eq(trace[strlen(trace) - 1], 'c', "%s", trace);
  cr_assert(!drive_failed(bed.drive));
  fail_at = 0;
  reply = bed_apply(&bed, &req);
  cr_assert_eq(reply.err, 0, "the stage waited for another attempt");
  cr_assert_eq(bed_fetch(&bed, &o), 0);
  bed_object_free(&o);
}

/* A page of the map that cannot be read: SIGBUS, which ends the drive and not the process. */
Test(fault, a_read_error_under_the_map_fails_the_drive_only) {
  char path[128];
  struct bed_object o;
  struct bed other;
  struct peer_rows rows;
  uint8_t *body;
  bed_start(&other);
  bed_object(&o, "k", ROW_PUT, 10, 100, 1, 1);
  cr_assert_eq(bed_accept(&bed, &o).err, 0);
  cr_assert_eq(bed_accept(&other, &o).err, 0);
  snprintf(path, sizeof path, "%s/index/data.mdb", bed.path);
  cr_assert_eq(truncate(path, 0), 0);
  cr_assert_eq(bed_read(&bed, "k", 0, &rows, &body), ERR_DRIVE_FAILED);
  cr_assert(drive_failed(bed.drive));
  cr_assert_eq(bed_accept(&bed, &o).err, ERR_DRIVE_FAILED);
  cr_assert_eq(bed_read(&other, "k", 0, &rows, &body), 0, "the host's other drives go on");
  cr_assert_eq(rows.count, 1);
  free(body);
  bed_end(&other);
  bed_object_free(&o);
}

Test(fault, a_read_error_in_a_batch_fails_the_drive_only) {
  char path[128];
  struct bed_object o;
  bed_object(&o, "k", ROW_PUT, 10, 100, 1, 1);
  cr_assert_eq(drive_batch_begin(bed.drive), 0);
  snprintf(path, sizeof path, "%s/index/data.mdb", bed.path);
  cr_assert_eq(truncate(path, 0), 0);
  struct peer_request req = bed_accept_request(&o);
  struct peer_reply reply;
  drive_batch_apply(bed.drive, &req, &reply);
  cr_assert_eq(reply.err, ERR_DRIVE_FAILED);
  cr_assert_eq(drive_batch_commit(bed.drive), ERR_DRIVE_FAILED);
  bed_object_free(&o);
}

/* A process that dies at any moment leaves a copy of the directory at that moment: what was acked
 * is in it. Copied between the steps of one ACCEPT. */
Test(fault, a_crash_between_steps_keeps_what_was_acked) {
  struct bed_object before, o;
  bed_object(&before, "before", ROW_PUT, 5, 200000, 1, 1);
  bed_object(&o, "k", ROW_PUT, 10, 200000, 2, 2);
  cr_assert_eq(bed_accept_staged(&bed, &before).err, 0);
  struct peer_request req = bed_accept_request(&o);
  req.unit_count = 0;
  for (unsigned at = 0; at < 4; at++) {
    struct peer_reply reply;
    if (at == 1) cr_assert_eq(bed_stage(&bed, &o), 0);
    if (at == 2) cr_assert_eq(drive_seal(bed.drive, &req), 0);
    if (at == 3) {
      reply = bed_apply(&bed, &req);
      cr_assert_eq(reply.err, 0);
    }
    struct bed after = {.opt = bed.opt};
    struct drive_error error;
    snprintf(after.path, sizeof after.path, "%.48s-crash%u", bed.path, at);
    bed_copy(bed.path, after.path);
    after.opt.path = after.path;
    cr_assert_eq(drive_open(&after.opt, &after.drive, &error), 0, "%s", error.text);
    cr_assert_eq(bed_fetch(&after, &before), 0);
    cr_assert_eq(bed_fetch(&after, &o), at == 3 ? 0 : ERR_NO_CHUNK);
    cr_assert_eq(bed_files(&after), at == 3 ? 2 : 1);
    bed_end(&after);
  }
  bed_object_free(&before);
  bed_object_free(&o);
}
