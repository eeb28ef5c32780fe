/* settings_bed.h: a directory of its own for each test, and settings loaded from text. */
#ifndef KOFN_TESTS_SETTINGS_BED_H
#define KOFN_TESTS_SETTINGS_BED_H

#include "config/settings.h"

extern char settings_dir[64];

void settings_bed_setup(void);
void settings_bed_teardown(void);
/* Writes settings_dir/name and returns its path, until the next call. */
const char *write_file(const char *name, const char *text);
/* The refusal of a text without the directory in front: "kofn.yaml:3: ..." Until the next call. */
const char *refusal(const char *text);
/* The settings of a text that must be allowed. */
struct settings *accept_settings(const char *text);

#endif
