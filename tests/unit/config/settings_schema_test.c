/* settings_schema_test.c: the errors of every field, made from the schema table.
 *
 * A document is written out with one field a line, so that a test knows the line of whatever it
 * broke. */
#include "config/settings_schema.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>

#include "config/err.h"
#include "settings_bed.h"

TestSuite(settings_schema, .init = settings_bed_setup, .fini = settings_bed_teardown);

/* A good value for every field that has to be there. */
static const char *good_value(const struct field *f) {
  if (f->section == SECTION_HOSTS && strcmp(f->name, "id") == 0) return "n1";
  if (f->type == FIELD_ADDRESS) return "\"127.0.0.1:9001\"";
  if (f->section == SECTION_HOST_DRIVES && f->type == FIELD_PATH) return "/data/d1";
  if (f->type == FIELD_DRIVE_REF) return "n1/data/d1";
  if (f->section == SECTION_POOLS && f->type == FIELD_NAME) return "main";
  if (f->section == SECTION_POOLS && f->type == FIELD_UINT) return f->name[0] == 'k' ? "1" : "0";
  if (f->type == FIELD_ACCESS_KEY) return "access";
  if (f->type == FIELD_SECRET) return "secretsecret";
  cr_assert_fail("no good value for %s", f->name);
  return NULL;
}

struct document {
  char text[8192];
  size_t len;
  int line, broken_line, owner_line[SECTION_COUNT];
  const struct field *broken; /* the field that gets `value`; NULL value: left out */
  const char *value;
};

static void add_line(struct document *d, const char *line) {
  d->line++;
  d->len += (size_t)snprintf(d->text + d->len, sizeof d->text - d->len, "%s\n", line);
  cr_assert_lt(d->len, sizeof d->text);
}

/* The fields of one mapping: what is required, and the broken one. */
static void add_fields(struct document *d, enum section section, const char *first,
                       const char *indent) {
  const struct field *f;
  char line[4096];
  d->owner_line[section] = d->line + 1;
  for (unsigned i = 0; (f = schema_field_at(section, i)) != NULL; i++) {
    const char *value = NULL;
    if (f->type == FIELD_LIST) continue; /* add_list */
    if (f->required) value = good_value(f);
    if (f == d->broken) value = d->value;
    /* A secret's file replaces the secret. */
    if (d->broken && d->broken->type == FIELD_SECRET_FILE && f + 1 == d->broken) value = NULL;
    if (!value) continue;
    snprintf(line, sizeof line, "%s%s: %s", first, f->name, value);
    add_line(d, line);
    if (f == d->broken) d->broken_line = d->line;
    first = indent;
  }
}

static void add_list(struct document *d, enum section section, const char *head, const char *first,
                     const char *indent) {
  const struct field *f = NULL;
  enum section owner = schema_sections[section].parent;
  for (unsigned i = 0; owner != SECTION_TOP && (f = schema_field_at(owner, i)) != NULL; i++) {
    if (f->type == FIELD_LIST) break;
  }
  if (d->broken && f == d->broken) { /* the list itself is broken */
    char line[256];
    if (!d->value) return;
    snprintf(line, sizeof line, "%s %s", head, d->value);
    add_line(d, line);
    d->broken_line = d->line;
    return;
  }
  add_line(d, head);
  add_fields(d, section, first, indent);
}

static bool is_broken_in(const struct document *d, enum section section) {
  return d->broken && d->broken->section == section;
}

/* One host, one drive, one pool; the other sections where the broken field is in them. */
static void build(struct document *d) {
  d->len = 0;
  d->line = 0;
  d->broken_line = 0;
  add_fields(d, SECTION_TOP, "", "");
  add_line(d, "hosts:");
  add_fields(d, SECTION_HOSTS, "  - ", "    ");
  add_list(d, SECTION_HOST_DRIVES, "    drives:", "      - ", "        ");
  add_line(d, "pools:");
  add_fields(d, SECTION_POOLS, "  - ", "    ");
  if (is_broken_in(d, SECTION_POOL_DRIVES) ||
      (is_broken_in(d, SECTION_POOLS) && d->broken->type == FIELD_LIST)) {
    add_list(d, SECTION_POOL_DRIVES, "    drives:", "      - ", "        ");
  }
  add_line(d, "users:");
  add_fields(d, SECTION_USERS, "  - ", "    ");
  static const enum section singles[] = {SECTION_CLUSTER, SECTION_SERVER, SECTION_DRIVE,
                                         SECTION_CODEC};
  for (unsigned i = 0; i < ARRAY_LEN(singles); i++) {
    char head[64];
    if (!is_broken_in(d, singles[i]) || !d->value) continue;
    snprintf(head, sizeof head, "%s:", schema_sections[singles[i]].name);
    add_line(d, head);
    add_fields(d, singles[i], "  ", "  ");
  }
}

/* What the error must say: the line, the field's path, and the range. */
static void expect_refusal(struct document *d, int line, const char *value) {
  char want[64], range[SCHEMA_RANGE_BYTES_MAX], path[SCHEMA_PATH_BYTES_MAX];
  enum section section = d->broken->section;
  const struct section_row *row = &schema_sections[section];
  struct place p = {section, row->is_list ? 0 : -1, -1, d->broken->name, 0, NULL};
  if (row->is_list && row->parent != SECTION_TOP) p.sub_index = 0;
  d->value = value;
  build(d);
  const char *got = refusal(d->text);
  if (line == 0) line = d->broken_line;
  snprintf(want, sizeof want, "kofn.yaml:%d: ", line);
  place_path(&p, path);
  schema_range(d->broken, range);
  cr_assert(strncmp(got, want, strlen(want)) == 0, "want %s got %s\n%s", want, got, d->text);
  cr_assert_not_null(strstr(got, path), "no %s in: %s", path, got);
  if (d->broken->type == FIELD_LIST) {
    cr_assert_not_null(strstr(got, "list"), "%s", got);
  } else {
    cr_assert_not_null(strstr(got, range), "no range %s in: %s", range, got);
  }
}

Test(settings_schema, the_smallest_document_is_accepted) {
  struct document d = {0};
  build(&d);
  struct settings *s = accept_settings(d.text);
  cr_assert_eq(s->host_count, 1u);
  settings_free(s);
}

Test(settings_schema, every_required_field_is_missed_by_name) {
  unsigned tested = 0;
  for (unsigned i = 0; i < schema_field_count; i++) {
    struct document d = {.broken = &schema_fields[i]};
    if (!d.broken->required) continue;
    build(&d);
    int line = d.owner_line[d.broken->section];
    if (d.broken->section == SECTION_POOL_DRIVES) continue; /* its only field is the item */
    if (d.broken->section == SECTION_HOST_DRIVES) {
      expect_refusal(&d, 0, "\"\""); /* an item without its only field is no mapping */
    } else {
      expect_refusal(&d, line, NULL);
    }
    tested++;
  }
  cr_assert_gt(tested, 7u);
}

Test(settings_schema, every_field_refuses_the_wrong_type) {
  for (unsigned i = 0; i < schema_field_count; i++) {
    struct document d = {.broken = &schema_fields[i]};
    expect_refusal(&d, 0, "{a: b}");
    if (d.broken->type == FIELD_LIST) {
      expect_refusal(&d, 0, "word");
      continue;
    }
    expect_refusal(&d, 0, "[a, b]");
    expect_refusal(&d, 0, ""); /* YAML's null */
    expect_refusal(&d, 0, "\"tab\\there \\x01\"");
  }
}

static bool is_number(const struct field *f) {
  return f->type == FIELD_UINT || f->type == FIELD_SIZE || f->type == FIELD_SIZE32 ||
         f->type == FIELD_SIZE_AUTO || f->type == FIELD_TIME;
}

static const char *number_text(const struct field *f, uint64_t value, const char *suffix) {
  static char text[64];
  snprintf(text, sizeof text, "%" PRIu64 "%s%s", value, f->type == FIELD_TIME ? "ms" : "", suffix);
  return text;
}

Test(settings_schema, every_number_keeps_its_range) {
  unsigned below = 0;
  for (unsigned i = 0; i < schema_field_count; i++) {
    struct document d = {.broken = &schema_fields[i]};
    const struct field *f = d.broken;
    if (!is_number(f)) continue;
    expect_refusal(&d, 0, number_text(f, f->max + 1, ""));
    if (f->min > 0) {
      expect_refusal(&d, 0, number_text(f, f->min - 1, ""));
      below++;
    }
    static const char *const wrong[] = {"-5",
                                        "+5",
                                        "1.5",
                                        "0x10",
                                        "64KiBx",
                                        "5 s",
                                        "s",
                                        "5kib",
                                        "1e3",
                                        "\" 5\"",
                                        "18446744073709551616",
                                        "99999999999999999999TiB",
                                        "18446744073709551615KiB"};
    for (unsigned w = 0; w < ARRAY_LEN(wrong); w++) expect_refusal(&d, 0, wrong[w]);
    if (f->type == FIELD_TIME) expect_refusal(&d, 0, "30"); /* thirty what? */
    if (f->type == FIELD_UINT) expect_refusal(&d, 0, "1KiB");
    if (f->type == FIELD_SIZE32) expect_refusal(&d, 0, "65537");
  }
  cr_assert_gt(below, 5u);
}

Test(settings_schema, every_number_takes_its_ends_and_its_default) {
  for (unsigned i = 0; i < schema_field_count; i++) {
    struct document d = {.broken = &schema_fields[i]};
    const struct field *f = d.broken;
    /* k, m and W hang together and have tests of their own. */
    if (!is_number(f) || (f->section == SECTION_POOLS && f->type == FIELD_UINT)) continue;
    const uint64_t ends[] = {f->min, f->max};
    for (unsigned e = 0; e < 2; e++) {
      d.value = number_text(f, ends[e], "");
      build(&d);
      struct settings *s = accept_settings(d.text);
      const void *base = f->section == SECTION_POOLS ? (void *)&s->pools[0] : (void *)s;
      const void *at = (const char *)base + f->offset;
      uint64_t got = f->type == FIELD_UINT     ? *(const unsigned *)at
                     : f->type == FIELD_SIZE32 ? *(const uint32_t *)at
                                               : *(const uint64_t *)at;
      cr_assert_eq(got, ends[e], "%s", f->name);
      settings_free(s);
    }
    cr_assert_not_null(f->def, "%s needs a default", f->name);
    d.value = f->def;
    build(&d);
    settings_free(accept_settings(d.text));
  }
}

Test(settings_schema, every_text_keeps_its_length) {
  char quoted[2100];
  for (unsigned i = 0; i < schema_field_count; i++) {
    struct document d = {.broken = &schema_fields[i]};
    const struct field *f = d.broken;
    if (f->type != FIELD_NAME && f->type != FIELD_ACCESS_KEY && f->type != FIELD_SECRET &&
        f->type != FIELD_PATH) {
      continue;
    }
    size_t lens[] = {f->max + 1, f->min - 1};
    for (unsigned l = 0; l < 2; l++) {
      memset(quoted, 'a', sizeof quoted);
      quoted[0] = '"';
      quoted[1] = f->type == FIELD_PATH ? '/' : 'a';
      quoted[1 + lens[l]] = '"';
      quoted[2 + lens[l]] = 0;
      expect_refusal(&d, 0, quoted);
    }
  }
}

Test(settings_schema, every_field_is_refused_twice_and_unknown_ones_are) {
  for (unsigned i = 0; i < schema_field_count; i++) {
    const struct field *f = &schema_fields[i];
    if (f->section != SECTION_SERVER && f->section != SECTION_DRIVE) continue;
    char text[256], want[256];
    const char *section = schema_sections[f->section].name;
    snprintf(text, sizeof text, "%s:\n  %s: 1\n  %s: 2\n", section, f->name, f->name);
    snprintf(want, sizeof want, "kofn.yaml:3: %s.%s: given twice (first in line 2)", section,
             f->name);
    cr_assert_str_eq(refusal(text), want);
    snprintf(text, sizeof text, "%s:\n  %sx: 1\n", section, f->name);
    snprintf(want, sizeof want, "kofn.yaml:2: %s.%sx: unknown field (known: ", section, f->name);
    cr_assert_eq(strncmp(refusal(text), want, strlen(want)), 0);
  }
  cr_assert_str_eq(refusal("server: {}\nhosts: []\nserver: {}\n"),
                   "kofn.yaml:3: server: given twice (first in line 1)");
}
