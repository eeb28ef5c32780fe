/* settings_bed.c: a directory of its own for each test, and settings loaded from text. */
#include "settings_bed.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "config/err.h"

char settings_dir[64];

void settings_bed_setup(void) {
  snprintf(settings_dir, sizeof settings_dir, "/tmp/kofn-settings-XXXXXX");
  cr_assert_not_null(mkdtemp(settings_dir));
}

void settings_bed_teardown(void) {
  static const char *const names[] = {"kofn.yaml", "secret", "big"};
  char path[128];
  for (unsigned i = 0; i < ARRAY_LEN(names); i++) {
    snprintf(path, sizeof path, "%s/%s", settings_dir, names[i]);
    unlink(path);
  }
  rmdir(settings_dir);
}

const char *write_file(const char *name, const char *text) {
  static char path[128];
  snprintf(path, sizeof path, "%s/%s", settings_dir, name);
  FILE *f = fopen(path, "w");
  cr_assert_not_null(f);
  fputs(text, f);
  fclose(f);
  return path;
}

/* The refusal of a text without the directory in front: "kofn.yaml:3: ..." */
const char *refusal(const char *text) {
  static struct settings_error e;
  struct settings *s = NULL;
  e.text[0] = 0;
  int err = settings_load(write_file("kofn.yaml", text), &s, &e);
  cr_assert_eq(err, ERR_CONFIG, "accepted:\n%s", text);
  cr_assert_null(s, "nothing is left behind");
  size_t skip = strlen(settings_dir) + 1;
  return strncmp(e.text, settings_dir, skip - 1) == 0 ? e.text + skip : e.text;
}

struct settings *accept_settings(const char *text) {
  struct settings_error e = {""};
  struct settings *s = NULL;
  int err = settings_load(write_file("kofn.yaml", text), &s, &e);
  cr_assert_eq(err, 0, "%s", e.text);
  return s;
}
