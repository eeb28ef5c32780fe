/* settings_env.c: KOFN_SECTION_FIELD over what the file said.
 *
 *   KOFN_SERVER_HOST=n2   KOFN_POOLS_0_STRIPE_UNIT=128KiB   KOFN_USERS_0_ACCESS_KEY=...
 *   KOFN_ROOT_ACCESS_KEY and KOFN_ROOT_SECRET_KEY: the user named "root", added where missing
 *
 * A variable that begins with a section's name and names no field is an error: a mistyped override
 * must not be ignored. Others are left alone: test harnesses and container platforms set their own
 * (a Kubernetes service "kofn" brings KOFN_SERVICE_HOST and KOFN_PORT). */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/err.h"
#include "config/settings_schema.h"

#define ENV_PREFIX "KOFN_"
#define ENV_TEST_PREFIX "KOFN_TEST_"
#define ENV_NAME_BYTES_MAX 128
#define ENV_INDEX_DIGITS_MAX 4
#define ROOT_USER "root"

static const char *const env_ignored[] = {"KOFN_BIN", "KOFN_SOURCE_DIR", "KOFN_SWITCHES_BIN"};

/* Lower-cases the name of a variable; false where it is too long to be one of ours. */
static bool env_lower(const char *name, size_t len, char out[ENV_NAME_BYTES_MAX]) {
  if (len >= ENV_NAME_BYTES_MAX) return false;
  for (size_t i = 0; i < len; i++) out[i] = (char)tolower((unsigned char)name[i]);
  out[len] = 0;
  return true;
}

/* The variable's name without KOFN_, lower-cased; false where it is not for us. */
static bool env_name(const char *variable, char out[ENV_NAME_BYTES_MAX]) {
  const char *equals = strchr(variable, '=');
  if (!equals || strncmp(variable, ENV_PREFIX, strlen(ENV_PREFIX)) != 0) return false;
  if (strncmp(variable, ENV_TEST_PREFIX, strlen(ENV_TEST_PREFIX)) == 0) return false;
  size_t len = (size_t)(equals - variable);
  for (unsigned i = 0; i < ARRAY_LEN(env_ignored); i++) {
    if (slice_eq(slice_of(variable, len), slice_str(env_ignored[i]))) return false;
  }
  return env_lower(variable + strlen(ENV_PREFIX), len - strlen(ENV_PREFIX), out);
}

/* "0_access_key" -> 0, and the rest. */
static bool env_index(const char *text, unsigned *ret_index, const char **ret_rest) {
  unsigned index = 0, digits = 0;
  for (; text[digits] >= '0' && text[digits] <= '9'; digits++) {
    if (digits == ENV_INDEX_DIGITS_MAX) return false;
    index = index * 10 + (unsigned)(text[digits] - '0');
  }
  if (digits == 0 || text[digits] != '_') return false;
  *ret_index = index;
  *ret_rest = text + digits + 1;
  return true;
}

/* The section whose name and "_" begin `name`; the rest follows. */
static int env_section(const char *name, const char **ret_rest) {
  for (unsigned s = SECTION_TOP + 1; s < SECTION_COUNT; s++) {
    size_t len = strlen(schema_sections[s].name);
    if (schema_sections[s].parent != SECTION_TOP) continue;
    if (strncmp(name, schema_sections[s].name, len) != 0 || name[len] != '_') continue;
    *ret_rest = name + len + 1;
    return (int)s;
  }
  return ERR_NOT_FOUND;
}

static int env_set(struct raw *raw, enum section section, struct raw_item *item,
                   const struct place *p, const char *field, const char *text) {
  int at = schema_field_find(section, field, strlen(field));
  if (at < 0) return schema_refuse(raw, p, "there is no such field");
  const struct field *f = schema_field_at(section, (unsigned)at);
  if (f->type == FIELD_LIST) return schema_refuse(raw, p, "a list is set in the file only");
  if (raw_set(&item->values[at], text, strlen(text), 0, p->env) < 0) return schema_no_memory(raw);
  /* A secret from here replaces the file's secret_file, and the other way round. */
  unsigned other = (unsigned)at + 1;
  if (f->type == FIELD_SECRET_FILE) other = (unsigned)at - 1;
  if (f->type == FIELD_SECRET || f->type == FIELD_SECRET_FILE) {
    struct raw_value *twin = &item->values[other];
    if (!twin->env && raw_set(twin, NULL, 0, 0, NULL) < 0) return schema_no_memory(raw);
  }
  return 0;
}

static bool user_is_root(const struct raw_item *user) {
  int name = schema_field_find(SECTION_USERS, "name", 4);
  return user->values[name].text && strcmp(user->values[name].text, ROOT_USER) == 0;
}

static int env_root(struct raw *raw, const struct place *p, const char *field, const char *text) {
  struct raw_list *users = &raw->lists[SECTION_USERS];
  struct raw_item *root = NULL;
  for (unsigned i = 0; i < users->count; i++) {
    if (user_is_root(&users->items[i])) root = &users->items[i];
  }
  if (!root) {
    if (users->count == SETTINGS_USERS_MAX) return schema_refuse(raw, p, "too many users");
    root = raw_list_add(users, 0);
    int name = schema_field_find(SECTION_USERS, "name", 4);
    if (!root || raw_set(&root->values[name], ROOT_USER, strlen(ROOT_USER), 0, NULL) < 0) {
      return schema_no_memory(raw);
    }
  }
  return env_set(raw, SECTION_USERS, root, p, field, text);
}

static int env_apply(struct raw *raw, const char *variable, const char *name) {
  char shown[ENV_NAME_BYTES_MAX + 8];
  const char *text = strchr(variable, '=') + 1, *field = NULL;
  snprintf(shown, sizeof shown, "%.*s", (int)(text - 1 - variable), variable);
  struct place p = {SECTION_TOP, -1, -1, NULL, 0, shown};

  if (schema_field_find(SECTION_TOP, name, strlen(name)) >= 0) {
    return env_set(raw, SECTION_TOP, &raw->singles[SECTION_TOP], &p, name, text);
  }
  if (strncmp(name, ROOT_USER "_", strlen(ROOT_USER) + 1) == 0) {
    return env_root(raw, &p, name + strlen(ROOT_USER) + 1, text);
  }
  int section = env_section(name, &field);
  if (section < 0) return 0;
  if (!schema_sections[section].is_list) {
    return env_set(raw, (enum section)section, &raw->singles[section], &p, field, text);
  }
  unsigned index;
  struct raw_list *list = &raw->lists[section];
  if (!env_index(field, &index, &field)) {
    return schema_refuse(raw, &p, "there is no such field (KOFN_%s_NUMBER_FIELD)",
                         section == SECTION_USERS   ? "USERS"
                         : section == SECTION_HOSTS ? "HOSTS"
                                                    : "POOLS");
  }
  if (index >= list->count) {
    return schema_refuse(raw, &p, "%u is out of range (the file has %u, counted from 0)", index,
                         list->count);
  }
  return env_set(raw, (enum section)section, &list->items[index], &p, field, text);
}

/* Users may be given by the environment alone: makes room for those that it names. */
static int env_add_users(struct raw *raw, char *const *environment) {
  struct raw_list *users = &raw->lists[SECTION_USERS];
  unsigned count = users->count;
  char name[ENV_NAME_BYTES_MAX];
  for (char *const *it = environment; *it; it++) {
    const char *field;
    unsigned index;
    if (!env_name(*it, name) || env_section(name, &field) != SECTION_USERS) continue;
    if (env_index(field, &index, &field) && index < SETTINGS_USERS_MAX)
      count = MAX(count, index + 1);
  }
  while (users->count < count) {
    if (!raw_list_add(users, 0)) return schema_no_memory(raw);
  }
  return 0;
}

int raw_read_env(struct raw *raw, char *const *environment) {
  int err = env_add_users(raw, environment);
  char name[ENV_NAME_BYTES_MAX];
  for (char *const *it = environment; err == 0 && *it; it++) {
    if (env_name(*it, name)) err = env_apply(raw, *it, name);
  }
  return err;
}
