/* fuzz_config.c: a configuration file, the environment over it, a secret's file, and the cluster
 * map that follows.
 *
 * The input is YAML, then (behind a byte FF) lines of the environment, then (behind another) what
 * every secret_file holds. No file is opened: --wrap=open gives these texts instead. What is taken
 * is printed by settings_print, and that text, loaded again, prints itself; numbers lie within the
 * schema's ranges; the map keeps to its limits and does not depend on the order of the hosts. */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "config/cluster_map.h"
#include "config/err.h"
#include "config/settings_schema.h"
#include "tests/fuzz/fuzz.h"

#define ENVIRONMENT_MAX 16
#define CONFIG_NAME "kofn.yaml"
#define SECRET_TEXT "0123456789abcdef"

static struct slice yaml, secret;

int __wrap_open(const char *path, int flags, ...);

int __wrap_open(const char *path, int flags, ...) {
  struct slice text = strcmp(path, CONFIG_NAME) == 0 ? yaml : secret;
  if (!text.data) {
    errno = ENOENT;
    return -1;
  }
  int fd = memfd_create("fuzz", MFD_CLOEXEC);
  FUZZ_CHECK(fd >= 0 && pwrite(fd, text.data, text.len, 0) == (ssize_t)text.len);
  return fd;
}

/* The text with every "(set)" made a secret again. */
static char *printed(const struct settings *s, size_t *ret_len) {
  char *text = NULL, *out = NULL;
  size_t len, out_len = 0;
  FILE *f = open_memstream(&text, &len), *g = open_memstream(&out, &out_len);
  FUZZ_CHECK(f && g);
  settings_print(s, f);
  fclose(f);
  for (const char *at = text; *at;) {
    const char *mark = strstr(at, ": (set)\n");
    if (!mark) {
      fputs(at, g);
      break;
    }
    fwrite(at, 1, (size_t)(mark - at), g);
    fputs(": " SECRET_TEXT "\n", g);
    at = mark + strlen(": (set)\n");
  }
  fclose(g);
  free(text);
  *ret_len = out_len;
  return out;
}

static void check_numbers(enum section section, const void *base) {
  const struct field *f;
  for (unsigned i = 0; (f = schema_field_at(section, i)) != NULL; i++) {
    const void *at = (const char *)base + f->offset;
    uint64_t v;
    if (f->type == FIELD_UINT)
      v = *(const unsigned *)at;
    else if (f->type == FIELD_SIZE32)
      v = *(const uint32_t *)at;
    else if (f->type == FIELD_SIZE || f->type == FIELD_TIME)
      v = *(const uint64_t *)at;
    else
      continue;
    FUZZ_CHECK(v >= f->min && v <= f->max);
  }
}

static void check_settings(const struct settings *s) {
  FUZZ_CHECK(s->host_count >= 1 && s->host_count <= SETTINGS_HOSTS_MAX);
  FUZZ_CHECK(s->pool_count >= 1 && s->pool_count <= SETTINGS_POOLS_MAX);
  FUZZ_CHECK(s->user_count <= SETTINGS_USERS_MAX && settings_self(s) && s->default_pool);
  FUZZ_CHECK(s->cluster.secret_len <= SETTINGS_SECRET_BYTES_MAX);
  for (unsigned i = 0; i < s->pool_count; i++) check_numbers(SECTION_POOLS, &s->pools[i]);
  check_numbers(SECTION_SERVER, s);
  check_numbers(SECTION_DRIVE, s);
  for (unsigned i = 0; i < s->host_count; i++)
    for (unsigned k = 0; k < i; k++) FUZZ_CHECK(strcmp(s->hosts[i].id, s->hosts[k].id) != 0);
}

static void check_map(const struct cluster_map *map) {
  char words[256];
  FUZZ_CHECK(map->host_count <= MAP_HOSTS_MAX && map->drive_count <= MAP_DRIVES_MAX);
  FUZZ_CHECK(map->pool_count <= MAP_POOLS_MAX && map->pool_default < map->pool_count);
  FUZZ_CHECK(map->self < map->host_count && map->zone_count <= map->host_count);
  for (unsigned i = 0; i < map->pool_count; i++) {
    const struct map_pool *p = &map->pools[i];
    FUZZ_CHECK(p->n == profile_n(&p->profile) && p->n <= MAP_SLOTS_MAX && p->n <= p->drive_count);
    FUZZ_CHECK(p->d >= p->profile.k && p->w >= p->d && p->w <= p->n && 2 * p->w > p->n);
    FUZZ_CHECK(p->r == p->n - p->w + 1);
    for (unsigned d = 0; d < p->drive_count; d++) {
      FUZZ_CHECK(p->drives[d] < map->drive_count);
      FUZZ_CHECK(d == 0 || p->drives[d] > p->drives[d - 1]);
    }
    cluster_map_survival(map, i, words, sizeof words);
    FUZZ_CHECK(strlen(words) < sizeof words);
  }
  for (unsigned i = 1; i < map->host_count; i++)
    FUZZ_CHECK(strcmp(map->hosts[i - 1].id, map->hosts[i].id) < 0);
}

/* The same from hosts and pools in reverse order. */
static void check_order(struct settings *s, const struct cluster_map *map) {
  struct settings_error error;
  struct cluster_map *other;
  for (unsigned i = 0; i < s->host_count / 2; i++) {
    struct settings_host h = s->hosts[i];
    s->hosts[i] = s->hosts[s->host_count - 1 - i];
    s->hosts[s->host_count - 1 - i] = h;
  }
  for (unsigned i = 0; i < s->pool_count / 2; i++) {
    struct settings_pool p = s->pools[i];
    s->pools[i] = s->pools[s->pool_count - 1 - i];
    s->pools[s->pool_count - 1 - i] = p;
  }
  FUZZ_CHECK(cluster_map_build(s, &other, &error) == 0);
  char *a = cluster_map_canonical(map), *b = cluster_map_canonical(other);
  FUZZ_CHECK(a && b && strcmp(a, b) == 0 && map->self == other->self);
  free(a);
  free(b);
  cluster_map_free(other);
}

static void check_error(int err, const struct settings_error *e) {
  FUZZ_CHECK(err == ERR_CONFIG && e->text[0] && memchr(e->text, 0, sizeof e->text));
}

static void check_taken(struct settings *s) {
  struct settings_error error = {""};
  struct settings *again;
  struct cluster_map *map;
  size_t len, again_len;
  check_settings(s);
  char *text = printed(s, &len);
  yaml = slice_of(text, len);
  int err = settings_load(CONFIG_NAME, &again, &error);
  if (err < 0) fprintf(stderr, "%s\n%s", error.text, text);
  FUZZ_CHECK(err == 0);
  char *second = printed(again, &again_len);
  if (strcmp(text, second) != 0) fprintf(stderr, "%s\n----\n%s", text, second);
  FUZZ_CHECK(strcmp(text, second) == 0);
  settings_free(again);
  free(text);
  free(second);
  err = cluster_map_build(s, &map, &error);
  if (err == 0) {
    check_map(map);
    check_order(s, map);
    cluster_map_free(map);
  } else {
    check_error(err, &error);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  static char *nothing[] = {NULL};
  char *variables[ENVIRONMENT_MAX + 1] = {NULL}, **before = environ;
  struct settings_error error = {""};
  struct settings *s = NULL;
  struct slice in = slice_of(data, len);
  unsigned count = 0;
  yaml = fuzz_until(&in, 0xff);
  struct slice lines = fuzz_until(&in, 0xff);
  secret = in.len ? in : (struct slice){NULL, 0};
  if (!yaml.data) yaml = SLICE_LIT("");
  while (lines.len > 0 && count < ENVIRONMENT_MAX)
    variables[count++] = fuzz_text(fuzz_until(&lines, '\n'));
  environ = variables;
  int err = settings_load(CONFIG_NAME, &s, &error);
  environ = nothing; /* what is printed holds it already */
  if (err == 0)
    check_taken(s);
  else
    check_error(err, &error);
  environ = before;
  settings_free(s);
  for (unsigned i = 0; i < count; i++) free(variables[i]);
  return 0;
}
