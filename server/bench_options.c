/* bench_options.c: the command line of `kofn bench`: one table of options for each command. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/err.h"
#include "config/settings.h"
#include "server/bench.h"

int bench_refuse(char *why, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(why, BENCH_WHY_BYTES, fmt, ap);
  va_end(ap);
  return ERR_INVALID;
}

/* A whole decimal number, nothing around it. */
static int parse_number(const char *text, uint64_t *ret_value) {
  uint64_t value = 0;
  const char *at = text;
  for (; *at >= '0' && *at <= '9'; at++)
    if (__builtin_mul_overflow(value, 10, &value) ||
        __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
      return ERR_INVALID;
  if (at == text || *at) return ERR_INVALID;
  *ret_value = value;
  return 0;
}

static int option_number(const struct bench_option *o, const char *text, uint64_t *ret_value,
                         char *why) {
  uint64_t value = 0;
  bool size = o->kind == BENCH_SIZES || o->kind == BENCH_SIZE;
  int err = size ? settings_parse_size(text, &value) : parse_number(text, &value);
  if (err == 0 && value >= o->min && value <= o->max) {
    *ret_value = value;
    return 0;
  }
  snprintf(why, BENCH_WHY_BYTES, "%s%s: `%.60s` is not a %s from %llu to %llu",
           strlen(o->name) > 1 ? "--" : "-", o->name, text, size ? "size" : "number",
           (unsigned long long)o->min, (unsigned long long)o->max);
  return ERR_INVALID;
}

/* One element of a list option. */
static int option_add(const struct bench_option *o, const char *text, void *at, char *why) {
  struct bench_texts *texts = at;
  struct bench_numbers *numbers = at;
  unsigned count = o->kind == BENCH_TEXTS ? texts->count : numbers->count;
  if (count == BENCH_LIST_MAX || !text[0]) {
    snprintf(why, BENCH_WHY_BYTES, "--%s: %s", o->name,
             text[0] ? "too many values" : "an empty value");
    return ERR_INVALID;
  }
  if (o->kind == BENCH_TEXTS) {
    texts->at[texts->count++] = text;
    return 0;
  }
  int err = option_number(o, text, &numbers->at[count], why);
  if (err == 0) numbers->count++;
  return err;
}

static int option_set(const struct bench_option *o, char *text, void *into, bool first, char *why) {
  uint8_t *at = (uint8_t *)into + o->offset;
  switch (o->kind) {
    case BENCH_FLAG:
      *(bool *)(void *)at = true;
      return 0;
    case BENCH_NUMBER:
    case BENCH_SIZE:
      return option_number(o, text, (uint64_t *)(void *)at, why);
    case BENCH_TEXT:
      *(const char **)(void *)at = text;
      return 0;
    case BENCH_TEXTS:
      if (first) ((struct bench_texts *)(void *)at)->count = 0;
      break;
    case BENCH_NUMBERS:
    case BENCH_SIZES:
      if (first) ((struct bench_numbers *)(void *)at)->count = 0;
      break;
  }
  for (char *comma; (comma = strchr(text, ',')) != NULL; text = comma + 1) {
    *comma = 0;
    int err = option_add(o, text, at, why);
    if (err < 0) return err;
  }
  return option_add(o, text, at, why);
}

/* "--name", "--name=value" or "-x". */
static const struct bench_option *option_find(const struct bench_option *table, char *arg,
                                              char **ret_value) {
  *ret_value = NULL;
  if (arg[0] != '-' || !arg[1]) return NULL;
  bool letter = arg[1] != '-';
  const char *name = letter ? arg + 1 : arg + 2;
  size_t len = strlen(name);
  char *equals = letter ? NULL : strchr(arg, '=');
  if (equals) {
    len = (size_t)(equals - name);
    *ret_value = equals + 1;
  }
  for (const struct bench_option *o = table; o->name; o++) {
    bool hit = letter ? len == 1 && (o->letter == name[0] || (!o->name[1] && o->name[0] == name[0]))
                      : strlen(o->name) == len && memcmp(o->name, name, len) == 0;
    if (hit) return o;
  }
  return NULL;
}

int bench_options_parse(const struct bench_option *table, int argc, char **argv, void *into,
                        char why[BENCH_WHY_BYTES]) {
  bool seen[BENCH_LIST_MAX] = {false};
  for (int i = 1; i < argc; i++) {
    char *value;
    const struct bench_option *o = option_find(table, argv[i], &value);
    if (!o) {
      snprintf(why, BENCH_WHY_BYTES, "there is no option `%.100s`", argv[i]);
      return ERR_INVALID;
    }
    if (o->kind == BENCH_FLAG ? value != NULL : !value && i + 1 == argc) {
      snprintf(why, BENCH_WHY_BYTES, "--%s wants %s", o->name,
               o->kind == BENCH_FLAG ? "no value" : "a value");
      return ERR_INVALID;
    }
    if (o->kind != BENCH_FLAG && !value) value = argv[++i];
    int err = option_set(o, value, into, !seen[o - table], why);
    if (err < 0) return err;
    seen[o - table] = true;
  }
  return 0;
}

bool bench_texts_has(const struct bench_texts *list, const char *name) {
  for (unsigned i = 0; i < list->count; i++)
    if (strcmp(list->at[i], name) == 0) return true;
  return false;
}

const char *bench_texts_stranger(const struct bench_texts *list, const char *const *allowed) {
  for (unsigned i = 0; i < list->count; i++) {
    bool known = false;
    for (const char *const *a = allowed; *a && !known; a++) known = strcmp(*a, list->at[i]) == 0;
    if (!known) return list->at[i];
  }
  return NULL;
}
