/* format_test.c: what a directory is, who may have it, and what is refused by name. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "config/err.h"
#include "tests/unit/drive/drive_bed.h"

static struct drive_error error;

static enum drive_state probe(const struct bed *b) {
  enum drive_state state;
  struct drive_identity id;
  cr_assert_eq(drive_probe(b->path, &state, &id, &error), 0, "%s", error.text);
  return state;
}

static void put_file(const struct bed *b, const char *name, const char *text) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", b->path, name);
  FILE *f = fopen(path, "w");
  cr_assert_not_null(f);
  fputs(text, f);
  fclose(f);
}

static bool said(const char *what) {
  return strstr(error.text, what);
}

static int format(const struct bed *b) {
  struct drive_identity id = bed_identity();
  return drive_format(b->path, &id, "text\n", SLICE_LIT("slots"), BED_MAP_BYTES, &error);
}

Test(format, makes_a_drive_that_opens_and_counts_its_boots) {
  struct bed b;
  enum drive_state state;
  struct drive_identity id, want = bed_identity();
  bed_dir(&b);
  cr_assert_eq(probe(&b), DRIVE_EMPTY);
  cr_assert_eq(format(&b), 0, "%s", error.text);
  cr_assert_eq(drive_probe(b.path, &state, &id, &error), 0);
  cr_assert_eq(state, DRIVE_FORMATTED);
  cr_assert(id128_eq(&id.drive_id, &want.drive_id));
  cr_assert(id128_eq(&id.cluster_id, &want.cluster_id));
  cr_assert_str_eq(id.cluster_name, "demo");
  cr_assert_str_eq(id.host_id, "n1");
  cr_assert_str_eq(id.drive_name, "n1//data/d1");
  cr_assert_eq(memcmp(id.table_digest, want.table_digest, SHA256_LEN), 0);
  cr_assert_eq(id.boot_counter, 0);
  for (unsigned boot = 1; boot <= 3; boot++) {
    cr_assert_eq(drive_open(&b.opt, &b.drive, &error), 0, "%s", error.text);
    cr_assert_eq(drive_identity_of(b.drive)->boot_counter, boot);
    cr_assert_str_eq(drive_canonical(b.drive), "text\n");
    cr_assert(slice_eq(drive_table(b.drive), SLICE_LIT("slots")));
    cr_assert_eq(memcmp(drive_identity_of(b.drive)->map_digest, want.map_digest, SHA256_LEN), 0);
    drive_close(TAKE(b.drive));
  }
  cr_assert_eq(format(&b), ERR_REFUSED);
  cr_assert(said(b.path) && said("n1//data/d1"));
  bed_end(&b);
}

Test(format, probing_changes_nothing) {
  struct bed b;
  bed_dir(&b);
  cr_assert_eq(probe(&b), DRIVE_EMPTY);
  cr_assert_eq(rmdir(b.path), 0, "still empty");
  cr_assert_eq(mkdir(b.path, 0755), 0);
  cr_assert_eq(drive_open(&b.opt, &b.drive, &error), ERR_REFUSED);
  cr_assert_eq(rmdir(b.path), 0, "nor does a refused open leave anything");
}

Test(format, foreign_directories_are_refused) {
  struct bed b;
  bed_dir(&b);
  put_file(&b, "photo.jpg", "x");
  cr_assert_eq(probe(&b), DRIVE_FOREIGN);
  cr_assert_eq(format(&b), ERR_REFUSED);
  cr_assert(said(b.path));
  cr_assert_eq(drive_open(&b.opt, &b.drive, &error), ERR_REFUSED);
  bed_remove(b.path);
}

Test(format, lost_and_found_is_not_foreign) {
  struct bed b;
  char path[128];
  bed_dir(&b);
  snprintf(path, sizeof path, "%s/lost+found", b.path);
  cr_assert_eq(mkdir(path, 0700), 0);
  cr_assert_eq(probe(&b), DRIVE_EMPTY);
  cr_assert_eq(format(&b), 0);
  bed_end(&b);
}

/* Every prefix of the format's work, as far as directories and files tell, is formatted anew. */
Test(format, an_interrupted_format_counts_as_empty) {
  struct bed b;
  char from[128], to[128];
  bed_dir(&b);
  put_file(&b, "drive.id.new", "");
  cr_assert_eq(probe(&b), DRIVE_EMPTY);
  cr_assert_eq(format(&b), 0, "%s", error.text);
  snprintf(from, sizeof from, "%s/drive.id", b.path);
  snprintf(to, sizeof to, "%s/drive.id.new", b.path);
  cr_assert_eq(rename(from, to), 0); /* crashed before the last step */
  cr_assert_eq(probe(&b), DRIVE_EMPTY);
  cr_assert_eq(format(&b), 0, "%s", error.text);
  cr_assert_eq(drive_open(&b.opt, &b.drive, &error), 0, "%s", error.text);
  cr_assert_eq(drive_identity_of(b.drive)->boot_counter, 1);
  bed_end(&b);
}

Test(format, a_drive_that_lost_its_id_is_not_empty) {
  struct bed b;
  char path[128];
  bed_start(&b);
  drive_close(TAKE(b.drive));
  snprintf(path, sizeof path, "%s/drive.id", b.path);
  cr_assert_eq(unlink(path), 0);
  cr_assert_eq(probe(&b), DRIVE_FOREIGN);
  cr_assert_eq(format(&b), ERR_REFUSED);
  bed_remove(b.path);
}

Test(format, a_spoilt_id_is_refused_for_every_byte) {
  struct bed b;
  char path[128], text[4096];
  bed_format(&b);
  snprintf(path, sizeof path, "%s/drive.id", b.path);
  int fd = open(path, O_RDWR);
  ssize_t len = read(fd, text, sizeof text);
  cr_assert_gt(len, 100);
  for (ssize_t i = 0; i < len; i++) {
    enum drive_state state;
    struct drive_identity id;
    char bad = text[i] ^ 4;
    cr_assert_eq(pwrite(fd, &bad, 1, i), 1);
    cr_assert_eq(drive_probe(b.path, &state, &id, &error), ERR_CONFIG, "byte %zd", i);
    cr_assert(said("drive.id"));
    cr_assert_eq(pwrite(fd, &text[i], 1, i), 1);
  }
  cr_assert_eq(drive_open(&b.opt, &b.drive, &error), 0, "%s", error.text);
  close(fd);
  bed_end(&b);
}

Test(format, missing_and_wrong_kinds_of_path) {
  enum drive_state state;
  struct drive_identity id;
  struct bed b;
  char path[128];
  bed_dir(&b);
  snprintf(path, sizeof path, "%s/none", b.path);
  cr_assert_eq(drive_probe(path, &state, &id, &error), ERR_CONFIG);
  cr_assert(said(path) && said("no such directory"));
  put_file(&b, "none", "");
  cr_assert_eq(drive_probe(path, &state, &id, &error), ERR_CONFIG);
  cr_assert(said("not a directory"));
  bed_remove(b.path);
}

Test(format, a_directory_of_somebody_else_names_uid_and_chown) {
  struct bed b;
  bed_dir(&b);
  cr_assert_eq(chmod(b.path, 0700), 0);
  if (geteuid() != 0) cr_assert_eq(chmod(b.path, 0500), 0);
  pid_t pid = fork();
  if (pid == 0) {
    enum drive_state state;
    struct drive_identity id;
    if (geteuid() == 0 && seteuid(12345) != 0) _exit(1);
    int err = drive_probe(b.path, &state, &id, &error);
    char uid[32];
    snprintf(uid, sizeof uid, "uid %u", (unsigned)geteuid());
    _exit(err == ERR_CONFIG && said("chown") && said(uid) && said(b.path) ? 0 : 2);
  }
  int status;
  cr_assert_eq(waitpid(pid, &status, 0), pid);
  cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d", status);
  (void)chmod(b.path, 0700);
  bed_remove(b.path);
}

Test(format, a_second_opener_is_told_who_has_it) {
  struct bed b;
  struct drive *second = NULL;
  char pid[32];
  bed_start(&b);
  snprintf(pid, sizeof pid, "pid %d", (int)getpid());
  cr_assert_eq(drive_open(&b.opt, &second, &error), ERR_BUSY);
  cr_assert_null(second);
  cr_assert(said(b.path) && said(pid), "%s", error.text);
  pid_t child = fork(); /* another process too */
  if (child == 0) {
    int fd = open("/dev/null", O_RDONLY);
    (void)fd;
    _exit(drive_open(&b.opt, &second, &error) == ERR_BUSY ? 0 : 1);
  }
  int status;
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  drive_close(TAKE(b.drive));
  cr_assert_eq(drive_open(&b.opt, &b.drive, &error), 0, "free again: %s", error.text);
  bed_end(&b);
}

Test(format, the_index_of_another_drive_is_refused) {
  struct bed a, b;
  char from[128], to[128];
  bed_format(&a);
  bed_dir(&b);
  struct drive_identity id = bed_identity();
  id.drive_id = bed_id(4711);
  cr_assert_eq(drive_format(b.path, &id, "text\n", SLICE_LIT("s"), BED_MAP_BYTES, &error), 0);
  snprintf(from, sizeof from, "%s/drive.id", b.path);
  snprintf(to, sizeof to, "%s/drive.id", a.path);
  cr_assert_eq(rename(from, to), 0);
  cr_assert_eq(drive_open(&a.opt, &a.drive, &error), ERR_REFUSED);
  cr_assert(said("different drives"));
  bed_remove(a.path);
  bed_remove(b.path);
}

Test(format, a_lost_index_is_refused) {
  struct bed b;
  char path[128];
  bed_format(&b);
  snprintf(path, sizeof path, "%s/index", b.path);
  bed_remove(path);
  cr_assert_lt(drive_open(&b.opt, &b.drive, &error), 0);
  cr_assert(said(b.path));
  cr_assert_eq(mkdir(path, 0755), 0);
  cr_assert_lt(drive_open(&b.opt, &b.drive, &error), 0, "an empty one is not taken for it");
  bed_remove(b.path);
}

Test(format, names_with_line_feeds_are_refused) {
  struct bed b;
  struct drive_identity id = bed_identity();
  bed_dir(&b);
  snprintf(id.drive_name, sizeof id.drive_name, "n1/a\nepoch 9");
  cr_assert_eq(drive_format(b.path, &id, "", SLICE_LIT(""), BED_MAP_BYTES, &error), ERR_INVALID);
  bed_remove(b.path);
}
