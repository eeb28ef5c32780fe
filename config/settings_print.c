/* settings_print.c: settings as the YAML that would make them, by the schema; secrets are hidden.
 */
#include <inttypes.h>
#include <stdio.h>

#include "config/settings_schema.h"

static void print_quoted(FILE *f, const char *text) {
  fputc('"', f);
  for (; *text; text++) {
    if (*text == '"' || *text == '\\') fputc('\\', f);
    fputc(*text, f); /* control characters were refused on the way in */
  }
  fputc('"', f);
}

static void print_size(FILE *f, uint64_t bytes) {
  char text[32];
  value_print_size(bytes, text);
  fputs(text, f);
}

/* False where there is nothing to print. */
static bool print_value(FILE *f, const struct field *fd, const void *base) {
  static const char *const levels[] = {"debug", "info", "warn", "error"};
  const void *at = (const char *)base + fd->offset;
  char text[32];
  switch (fd->type) {
    case FIELD_UINT:
      fprintf(f, "%u", *(const unsigned *)at);
      return true;
    case FIELD_BOOL:
      fputs(*(const bool *)at ? "true" : "false", f);
      return true;
    case FIELD_SIZE32:
      print_size(f, *(const uint32_t *)at);
      return true;
    case FIELD_SIZE_AUTO:
    case FIELD_SIZE:
      if (fd->type == FIELD_SIZE_AUTO && *(const uint64_t *)at == UINT64_MAX) {
        fputs("auto", f);
      } else {
        print_size(f, *(const uint64_t *)at);
      }
      return true;
    case FIELD_TIME:
      value_print_time(*(const uint64_t *)at, text);
      fputs(text, f);
      return true;
    case FIELD_LEVEL:
      fputs(levels[*(const enum log_level *)at], f);
      return true;
    default:
      print_quoted(f, *(char *const *)at ? *(char *const *)at : "");
      return true;
  }
}

static bool is_secret_set(const struct settings *s, const struct field *fd, const void *base) {
  if (fd->section == SECTION_CLUSTER) return s->cluster.secret_len > 0;
  return *(char *const *)(const void *)((const char *)base + fd->offset) != NULL;
}

/* The fields of one mapping, `first` before the first and `indent` before the others. */
static void print_fields(FILE *f, const struct settings *s, enum section section, const void *base,
                         const char *first, const char *indent) {
  const struct field *fd;
  for (unsigned i = 0; (fd = schema_field_at(section, i)) != NULL; i++) {
    if (fd->type == FIELD_LIST || fd->type == FIELD_SECRET_FILE) continue;
    if (fd->type == FIELD_SECRET && !is_secret_set(s, fd, base)) continue;
    fprintf(f, "%s%s: ", first, fd->name);
    if (fd->type == FIELD_SECRET) {
      fputs("(set)", f);
    } else {
      print_value(f, fd, base);
    }
    fputc('\n', f);
    first = indent;
  }
}

static void print_hosts(FILE *f, const struct settings *s) {
  fputs("hosts:\n", f);
  for (unsigned i = 0; i < s->host_count; i++) {
    const struct settings_host *h = &s->hosts[i];
    print_fields(f, s, SECTION_HOSTS, h, "  - ", "    ");
    fputs("    drives:\n", f);
    for (unsigned j = 0; j < h->drive_count; j++) {
      const struct settings_drive *d = &h->drives[j];
      fputs("      - ", f);
      if (strcmp(d->name, d->path) == 0) {
        print_quoted(f, d->path);
      } else {
        fputs("{name: ", f);
        print_quoted(f, d->name);
        fputs(", path: ", f);
        print_quoted(f, d->path);
        fputc('}', f);
      }
      fputc('\n', f);
    }
  }
}

static void print_pools(FILE *f, const struct settings *s) {
  fputs("pools:\n", f);
  for (unsigned i = 0; i < s->pool_count; i++) {
    const struct settings_pool *p = &s->pools[i];
    print_fields(f, s, SECTION_POOLS, p, "  - ", "    ");
    if (p->drive_count > 0) fputs("    drives:\n", f);
    for (unsigned j = 0; j < p->drive_count; j++) {
      fputs("      - ", f);
      print_quoted(f, p->drives[j]);
      fputc('\n', f);
    }
  }
}

void settings_print(const struct settings *s, void *stdio_file) {
  FILE *f = stdio_file;
  fputs("cluster:\n", f);
  print_fields(f, s, SECTION_CLUSTER, s, "  ", "  ");
  print_hosts(f, s);
  print_pools(f, s);
  print_fields(f, s, SECTION_TOP, s, "", "");
  fputs(s->user_count ? "users:\n" : "users: []\n", f);
  for (unsigned i = 0; i < s->user_count; i++) {
    print_fields(f, s, SECTION_USERS, &s->users[i], "  - ", "    ");
  }
  fputs("server:\n", f);
  print_fields(f, s, SECTION_SERVER, s, "  ", "  ");
  fputs("drive:\n", f);
  print_fields(f, s, SECTION_DRIVE, s, "  ", "  ");
  fputs("codec:\n", f);
  print_fields(f, s, SECTION_CODEC, s, "  ", "  ");
}
