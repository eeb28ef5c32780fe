/* object_noio_test.c: PUT, GET, conditional PUT, DELETE and LIST run to completion with fake peers
 * and a fake env, and the process opens no socket, no file and no thread for it. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "storage/object/object.h"
#include "tests/unit/object/fake_body.h"
#include "tests/unit/object/fake_peer.h"

#define ENTRIES_MAX 256
#define KEY SLICE_LIT("some/key")
#define OBJECT_BYTES (3u << 20)

/* What a directory of /proc/self shows: names, and for fds where they lead. */
struct entries {
  unsigned count;
  char text[ENTRIES_MAX][256];
};

static void entries_read(struct entries *e, const char *path) {
  memset(e, 0, sizeof *e);
  DIR *dir = opendir(path);
  cr_assert(dir);
  for (struct dirent *d; (d = readdir(dir));) {
    char link[512], target[128] = {0};
    if (d->d_name[0] == '.' || (unsigned)strtoul(d->d_name, NULL, 10) == (unsigned)dirfd(dir))
      continue;
    snprintf(link, sizeof link, "%s/%s", path, d->d_name);
    ssize_t n = readlink(link, target, sizeof target - 1);
    if (n < 0) target[0] = 0;
    cr_assert_lt(e->count, ENTRIES_MAX);
    snprintf(e->text[e->count++], sizeof e->text[0], "%.60s %s", d->d_name, target);
  }
  closedir(dir);
}

static bool entries_equal(const struct entries *a, const struct entries *b) {
  return a->count == b->count && memcmp(a->text, b->text, sizeof a->text) == 0;
}

static struct entries fds_before, tasks_before, fds_now, tasks_now;
static unsigned looks;

static void look(struct fake_cluster *c, struct fake_peer *p, const struct peer_request *req) {
  entries_read(&fds_now, "/proc/self/fd");
  entries_read(&tasks_now, "/proc/self/task");
  cr_assert(entries_equal(&fds_now, &fds_before), "a file or socket was opened");
  cr_assert(entries_equal(&tasks_now, &tasks_before), "a thread was started");
  looks++;
}

struct outcome {
  bool done;
  int err;
  struct fake_sink *sink;
  unsigned count;
};

static void put_done(void *arg, const struct object_put_result *result) {
  struct outcome *out = arg;
  out->done = true;
  out->err = result->err;
}

static void get_found(void *arg, struct object_get *get, int err, const struct row *row) {
  struct outcome *out = arg;
  out->err = err;
  out->done = err < 0;
  if (err == 0) object_get_read(get, 0, row->size, &out->sink->sink);
}

static void get_done(void *arg, int err, bool sent_any) {
  struct outcome *out = arg;
  out->err = err;
  out->done = true;
}

static void list_done(void *arg, const struct object_list_result *result) {
  struct outcome *out = arg;
  out->done = true;
  out->err = result->err;
  out->count = result->count;
}

static const struct object_get_ops get_ops = {.found = get_found, .done = get_done};

static int put(struct fake_cluster *c, const uint8_t *data, size_t len, uint8_t kind,
               bool only_new) {
  struct outcome out = {0};
  struct fake_body body;
  struct object_put *handle;
  fake_body_open(&body, c->bed, data, len);
  struct object_put_args args = {.bucket = &c->bucket,
                                 .key = KEY,
                                 .kind = kind,
                                 .body = kind == ROW_PUT ? &body.body : NULL,
                                 .conditions = {.if_none_match_any = only_new}};
  cr_assert_eq(object_put_start(&c->objects, &args, put_done, &out, &handle), 0);
  fake_run(c->bed);
  cr_assert(out.done);
  return out.err;
}

static int get(struct fake_cluster *c, const uint8_t *data, size_t len) {
  struct fake_sink sink;
  struct outcome out = {.sink = &sink};
  struct object_get *handle;
  fake_sink_open(&sink, c->bed);
  cr_assert_eq(object_get_start(&c->objects, &c->bucket, KEY, true, &get_ops, &out, &handle), 0);
  fake_run(c->bed);
  cr_assert(out.done);
  if (out.err == 0) {
    cr_assert_eq(sink.len, len);
    cr_assert(memcmp(sink.data, data, len) == 0);
  }
  fake_sink_close(&sink);
  return out.err;
}

static unsigned list(struct fake_cluster *c) {
  struct outcome out = {0};
  struct object_list *handle;
  struct object_list_args args = {.bucket = &c->bucket, .limit = 10};
  cr_assert_eq(object_list_start(&c->objects, &args, list_done, &out, &handle), 0);
  fake_run(c->bed);
  cr_assert(out.done);
  cr_assert_eq(out.err, 0);
  return out.count;
}

Test(object_noio, nothing_is_opened) {
  struct fake_bed bed;
  uint8_t *data = malloc(OBJECT_BYTES);
  cr_assert(data);
  fake_bed_open(&bed, 3);
  for (size_t i = 0; i < OBJECT_BYTES; i++) data[i] = (uint8_t)fake_random(&bed);
  struct fake_cluster *c = fake_cluster_open(&bed, 6, 1, 4, 2, "reed_sol_van", 65536);
  entries_read(&fds_before, "/proc/self/fd");
  entries_read(&tasks_before, "/proc/self/task");
  cr_assert_gt(fds_before.count, 0);
  cr_assert_gt(tasks_before.count, 0);
  c->on_request = look;
  cr_assert_eq(put(c, data, OBJECT_BYTES, ROW_PUT, false), 0);
  cr_assert_eq(get(c, data, OBJECT_BYTES), 0);
  cr_assert_eq(put(c, data, 1000, ROW_PUT, true), ERR_PRECONDITION);
  cr_assert_eq(put(c, data, 1000, ROW_PUT, false), 0);
  cr_assert_eq(get(c, data, 1000), 0);
  fake_peer_down(&c->drives[0]);
  cr_assert_eq(put(c, data, OBJECT_BYTES, ROW_PUT, false), 0);
  cr_assert_eq(get(c, data, OBJECT_BYTES), 0);
  cr_assert_eq(list(c), 1);
  cr_assert_eq(put(c, NULL, 0, ROW_TOMB, false), 0);
  cr_assert_eq(get(c, NULL, 0), ERR_NO_SUCH_KEY);
  cr_assert_eq(put(c, data, 1, ROW_PUT, true), 0);
  cr_assert_gt(looks, 50);
  fake_cluster_close(c);
  fake_bed_close(&bed);
  free(data);
}

/* The check itself: it sees a file. */
Test(object_noio, the_look_sees_a_file) {
  static struct entries before, after;
  entries_read(&before, "/proc/self/fd");
  int pipes[2];
  cr_assert_eq(pipe(pipes), 0);
  entries_read(&after, "/proc/self/fd");
  cr_assert_not(entries_equal(&before, &after));
  close(pipes[0]);
  close(pipes[1]);
}
