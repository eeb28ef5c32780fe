/* settings.c: where settings come from and where they end; see settings.h.
 *
 * settings_schema.h has the path of a value; the steps in between each have a file. */
#include "config/settings.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/err.h"
#include "config/settings_schema.h"

#define LOCAL_HOST_ID "local"
#define LOCAL_ADDRESS "127.0.0.1:9001"
#define LOCAL_S3_LISTEN "127.0.0.1:9000"
#define LOCAL_POOL "default"

/* raw, complete but for the environment, into checked settings. */
static int settings_from_raw(struct raw *raw, struct settings **ret_settings) {
  struct settings *s = calloc(1, sizeof *s);
  if (!s) return schema_no_memory(raw);
  if (raw->file && !(s->file = strdup(raw->file))) {
    settings_free(s);
    return schema_no_memory(raw);
  }
  int err = raw_read_env(raw, environ);
  if (err == 0) err = raw_fill(raw, s);
  if (err == 0) err = raw_check(raw, s);
  if (err < 0) {
    settings_free(s);
    return err;
  }
  *ret_settings = s;
  return 0;
}

static int refuse_file(struct settings_error *e, const char *path, const char *words) {
  snprintf(e->text, sizeof e->text, "%s: %s", path, words);
  return ERR_CONFIG;
}

int settings_load(const char *path, struct settings **ret_settings,
                  struct settings_error *ret_error) {
  char *text;
  size_t len;
  int err = value_read_file(path, SETTINGS_FILE_BYTES_MAX, &text, &len);
  if (err == ERR_TOO_LARGE) return refuse_file(ret_error, path, "larger than 1 MiB");
  if (err < 0) return refuse_file(ret_error, path, err_words(err));
  struct raw *raw = calloc(1, sizeof *raw);
  if (raw) {
    raw->file = path;
    raw->error = ret_error;
    err = raw_read_yaml(raw, text, len);
    if (err == 0) err = settings_from_raw(raw, ret_settings);
    raw_free(raw);
    free(raw);
  }
  explicit_bzero(text, len);
  free(text);
  if (!raw) return refuse_file(ret_error, path, err_words(-ENOMEM));
  /* The caller prints the text and leaves, whatever it was. */
  return err < 0 ? ERR_CONFIG : 0;
}

static int raw_put(struct raw_item *item, enum section section, const char *field,
                   const char *text) {
  int at = schema_field_find(section, field, strlen(field));
  return at < 0 ? at : raw_set(&item->values[at], text, strlen(text), 0, NULL);
}

/* Absolute, and resolved where it exists, so that one directory under two names is seen as one. */
static int absolute_path(const char *dir, char out[PATH_MAX]) {
  char cwd[PATH_MAX];
  if (realpath(dir, out)) return 0;
  if (errno != ENOENT && errno != EACCES) return -errno;
  if (dir[0] == '/') {
    int len = snprintf(out, PATH_MAX, "%s", dir);
    return len >= PATH_MAX ? -ENAMETOOLONG : 0;
  }
  if (!getcwd(cwd, sizeof cwd)) return -errno;
  int len = snprintf(out, PATH_MAX, "%s/%s", cwd, dir);
  return len < 0 || len >= PATH_MAX ? -ENAMETOOLONG : 0;
}

static int local_host(struct raw *raw, char *const *dirs, unsigned dir_count) {
  char path[PATH_MAX];
  struct raw_item *host = raw_list_add(&raw->lists[SECTION_HOSTS], 0);
  if (!host) return -ENOMEM;
  int err = raw_put(host, SECTION_HOSTS, "id", LOCAL_HOST_ID);
  if (err == 0) err = raw_put(host, SECTION_HOSTS, "address", LOCAL_ADDRESS);
  for (unsigned i = 0; err == 0 && i < dir_count; i++) {
    err = absolute_path(dirs[i], path);
    if (err < 0) return refuse_file(raw->error, dirs[i], err_words(err));
    struct raw_item *drive = raw_list_add(&host->sub, 0);
    err = drive ? raw_put(drive, SECTION_HOST_DRIVES, "path", path) : -ENOMEM;
  }
  return err;
}

static int local_pool(struct raw *raw, unsigned dir_count) {
  static const struct {
    const char *k, *m;
  } shapes[] = {{"1", "0"}, {"1", "1"}, {"2", "1"}, {"2", "2"}, {"3", "2"}, {"4", "2"}};
  unsigned shape = MIN(dir_count, (unsigned)ARRAY_LEN(shapes)) - 1;
  struct raw_item *pool = raw_list_add(&raw->lists[SECTION_POOLS], 0);
  int err = pool ? raw_put(pool, SECTION_POOLS, "name", LOCAL_POOL) : -ENOMEM;
  if (err == 0) err = raw_put(pool, SECTION_POOLS, "k", shapes[shape].k);
  if (err == 0) err = raw_put(pool, SECTION_POOLS, "m", shapes[shape].m);
  return err;
}

int settings_for_dirs(char *const *dirs, unsigned dir_count, struct settings **ret_settings,
                      struct settings_error *ret_error) {
  if (dir_count < 1 || dir_count > SETTINGS_DRIVES_MAX) {
    snprintf(ret_error->text, sizeof ret_error->text, "%u directories are out of range (1 to %d)",
             dir_count, SETTINGS_DRIVES_MAX);
    return ERR_CONFIG;
  }
  struct raw *raw = calloc(1, sizeof *raw);
  if (!raw) {
    snprintf(ret_error->text, sizeof ret_error->text, "out of memory");
    return -ENOMEM;
  }
  raw->error = ret_error;
  int err = local_host(raw, dirs, dir_count);
  if (err == 0) err = local_pool(raw, dir_count);
  if (err == 0) {
    struct raw_item *server = &raw->singles[SECTION_SERVER];
    err = raw_put(server, SECTION_SERVER, "s3_listen", LOCAL_S3_LISTEN);
  }
  if (err == -ENOMEM) schema_no_memory(raw);
  if (err == 0) err = settings_from_raw(raw, ret_settings);
  raw_free(raw);
  free(raw);
  return err < 0 ? ERR_CONFIG : 0;
}

int settings_add_user(struct settings *s, const char *name, const char *access_key,
                      const char *secret_key) {
  if (s->user_count >= SETTINGS_USERS_MAX) return ERR_TOO_LARGE;
  struct settings_user u = {strdup(name), strdup(access_key), strdup(secret_key)};
  struct settings_user *users = reallocarray(s->users, s->user_count + 1, sizeof *users);
  if (users) s->users = users;
  if (!users || !u.name || !u.access_key || !u.secret_key) {
    free(u.name);
    free(u.access_key);
    free(u.secret_key);
    return -ENOMEM;
  }
  users[s->user_count++] = u;
  return 0;
}

const struct settings_host *settings_self(const struct settings *s) {
  for (unsigned i = 0; i < s->host_count; i++) {
    if (s->server.host && strcmp(s->hosts[i].id, s->server.host) == 0) return &s->hosts[i];
  }
  return s->host_count == 1 ? &s->hosts[0] : NULL;
}

static void secret_free(char *secret) {
  if (secret) explicit_bzero(secret, strlen(secret));
  free(secret);
}

/* The strings of one section's struct, by the table. */
static void fields_free(enum section section, void *base) {
  const struct field *f;
  for (unsigned i = 0; (f = schema_field_at(section, i)) != NULL; i++) {
    switch (f->type) {
      case FIELD_SECRET:
        if (section == SECTION_USERS) secret_free(*(char **)(void *)((char *)base + f->offset));
        break;
      case FIELD_NAME:
      case FIELD_ACCESS_KEY:
      case FIELD_PATH:
      case FIELD_DRIVE_REF:
      case FIELD_ADDRESS:
      case FIELD_LISTEN:
      case FIELD_TECHNIQUE:
        free(*(char **)(void *)((char *)base + f->offset));
        break;
      default:
        break;
    }
  }
}

void settings_free(struct settings *s) {
  if (!s) return;
  for (unsigned i = 0; i < s->host_count; i++) {
    struct settings_host *h = &s->hosts[i];
    for (unsigned j = 0; j < h->drive_count; j++) fields_free(SECTION_HOST_DRIVES, &h->drives[j]);
    free(h->drives);
    fields_free(SECTION_HOSTS, h);
  }
  for (unsigned i = 0; i < s->pool_count; i++) {
    for (unsigned j = 0; j < s->pools[i].drive_count; j++) free(s->pools[i].drives[j]);
    free(s->pools[i].drives);
    fields_free(SECTION_POOLS, &s->pools[i]);
  }
  for (unsigned i = 0; i < s->user_count; i++) fields_free(SECTION_USERS, &s->users[i]);
  free(s->hosts);
  free(s->pools);
  free(s->users);
  fields_free(SECTION_TOP, s);
  fields_free(SECTION_CLUSTER, s);
  fields_free(SECTION_SERVER, s);
  fields_free(SECTION_DRIVE, s);
  fields_free(SECTION_CODEC, s);
  free(s->file);
  explicit_bzero(s, sizeof *s); /* the cluster secret stands in the struct */
  free(s);
}
