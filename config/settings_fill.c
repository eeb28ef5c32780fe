/* settings_fill.c: raw values into typed fields, each checked against its row of the schema. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/cluster_map.h"
#include "config/err.h"
#include "config/settings_schema.h"

struct fill {
  struct raw *raw;
  struct settings *settings;
};

/* Words of a refusal: the value in quotes, cut, and never a secret. */
static int refuse_value(struct fill *fl, const struct field *f, const struct place *p,
                        const char *text, const char *what) {
  char range[SCHEMA_RANGE_BYTES_MAX];
  schema_range(f, range);
  if (f->type == FIELD_SECRET) return schema_refuse(fl->raw, p, "%s (%s)", what, range);
  return schema_refuse(fl->raw, p, "\"%.64s\" %s (%s)", text, what, range);
}

static int refuse_number(struct fill *fl, const struct field *f, const struct place *p,
                         const char *text) {
  char range[SCHEMA_RANGE_BYTES_MAX];
  schema_range(f, range);
  return schema_refuse(fl->raw, p, "%.64s is out of range (%s)", text, range);
}

static bool is_access_key(const struct field *f, const char *text) {
  size_t len = strlen(text);
  if (len < f->min || len > f->max) return false;
  for (const char *c = text; *c; c++) {
    if (*c <= 0x20 || *c >= 0x7f || strchr(":/,=", *c)) return false;
  }
  return true;
}

static bool is_secret(const struct field *f, const char *text) {
  size_t len = strlen(text);
  if (len < f->min || len > f->max) return false;
  for (const char *c = text; *c; c++) {
    if ((unsigned char)*c < 0x20 || *c == 0x7f) return false;
  }
  return true;
}

static int fill_number(struct fill *fl, const struct field *f, const struct place *p,
                       const char *text, void *at) {
  uint64_t value = 0;
  int err;
  const char *what;
  if (f->type == FIELD_UINT) {
    err = value_parse_uint(text, &value);
    what = "is not a whole number";
  } else if (f->type == FIELD_TIME) {
    err = settings_parse_time(text, &value);
    what = "is not a time such as 500ms, 30s, 2m, 1h or 7d";
  } else {
    err = settings_parse_size(text, &value);
    what = "is not a size such as 512, 64KiB, 1GiB or 2MB";
  }
  if (f->type == FIELD_SIZE_AUTO && strcmp(text, "auto") == 0) {
    *(uint64_t *)at = UINT64_MAX;
    return 0;
  }
  if (err < 0) return refuse_value(fl, f, p, text, what);
  if (value < f->min || value > f->max) return refuse_number(fl, f, p, text);
  if (f->type == FIELD_SIZE32 && value % 64 != 0) {
    return refuse_value(fl, f, p, text, "is not a multiple of 64");
  }
  if (f->type == FIELD_UINT) {
    *(unsigned *)at = (unsigned)value;
  } else if (f->type == FIELD_SIZE32) {
    *(uint32_t *)at = (uint32_t)value;
  } else {
    *(uint64_t *)at = value;
  }
  return 0;
}

/* NULL where the text is allowed, else what is wrong with it. */
static const char *text_fault(const struct field *f, const char *text) {
  char host[256];
  uint16_t port;
  switch (f->type) {
    case FIELD_NAME:
      return value_is_name(text, f->max) ? NULL : "is not a name";
    case FIELD_ACCESS_KEY:
      return is_access_key(f, text) ? NULL : "is not an access key";
    case FIELD_SECRET:
      return is_secret(f, text) ? NULL : "the secret's length or characters are not allowed";
    case FIELD_DRIVE_REF:
      return strlen(text) >= f->min && strlen(text) <= f->max && strchr(text, '/')
                 ? NULL
                 : "is not a drive";
    case FIELD_ADDRESS:
    case FIELD_LISTEN:
      if (settings_parse_address(text, host, &port) < 0) return "is not an address";
      if (port < f->min) return "has a port that is out of range";
      return f->type == FIELD_ADDRESS && !host[0] ? "names no host" : NULL;
    case FIELD_TECHNIQUE:
      return technique_find(text) >= 0 ? NULL : "is not a technique";
    default:
      return NULL;
  }
}

static int fill_text(struct fill *fl, const struct field *f, const struct place *p,
                     const char *text, void *at) {
  char path[SETTINGS_PATH_BYTES_MAX + 1];
  if (f->type == FIELD_PATH) {
    if (value_clean_path(text, path) < 0) return refuse_value(fl, f, p, text, "is not such a path");
    text = path;
  }
  const char *fault = text_fault(f, text);
  if (fault) return refuse_value(fl, f, p, text, fault);
  char *copy = strdup(text);
  if (!copy) return schema_no_memory(fl->raw);
  *(char **)at = copy;
  return 0;
}

static int fill_field(struct fill *fl, const struct field *f, const struct place *p,
                      const char *text, void *at) {
  switch (f->type) {
    case FIELD_LIST:
    case FIELD_SECRET_FILE:
      return 0; /* its caller knows them */
    case FIELD_BOOL:
      if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0) {
        return refuse_value(fl, f, p, text, "is neither");
      }
      *(bool *)at = text[0] == 't';
      return 0;
    case FIELD_LEVEL:
      if (log_level_parse(text, (enum log_level *)at) < 0) {
        return refuse_value(fl, f, p, text, "is not a level");
      }
      return 0;
    case FIELD_UINT:
    case FIELD_SIZE:
    case FIELD_SIZE32:
    case FIELD_SIZE_AUTO:
    case FIELD_TIME:
      return fill_number(fl, f, p, text, at);
    default:
      return fill_text(fl, f, p, text, at);
  }
}

/* Secrets: from the field itself or from the file that the field after it names, never both. `out`
 * gets the bytes and a NUL; the length is returned, 0 where none is given. */
static int fill_secret(struct fill *fl, const struct field *f, struct place p,
                       const struct raw_value *given, const struct raw_value *in_file,
                       uint8_t out[SETTINGS_SECRET_BYTES_MAX + 1]) {
  char path[SETTINGS_PATH_BYTES_MAX + 1];
  p.field = f->name;
  p.line = given->text ? given->line : in_file->line;
  p.env = given->text ? given->env : in_file->env;
  if (given->text && in_file->text) {
    return schema_refuse(fl->raw, &p, "give it or %s_file, not both", f->name);
  }
  if (given->text) {
    if (!is_secret(f, given->text)) {
      return refuse_value(fl, f, &p, "", "the secret's length or characters are not allowed");
    }
    memcpy(out, given->text, strlen(given->text) + 1);
    return (int)strlen(given->text);
  }
  if (!in_file->text) return 0;

  const struct field *file_field = f + 1; /* the table puts them next to each other */
  p.field = file_field->name;
  if (value_clean_path(in_file->text, path) < 0) {
    return refuse_value(fl, file_field, &p, in_file->text, "is not such a path");
  }
  int len = value_read_secret(path, out);
  if (len < 0 && len != ERR_TOO_LARGE) {
    return schema_refuse(fl->raw, &p, "%s: %s", path, err_words(len));
  }
  if (len < 0 || strlen((char *)out) != (size_t)len || !is_secret(f, (char *)out)) {
    char range[SCHEMA_RANGE_BYTES_MAX];
    schema_range(f, range);
    explicit_bzero(out, SETTINGS_SECRET_BYTES_MAX + 1);
    return schema_refuse(fl->raw, &p, "%s: the secret's length or characters are not allowed (%s)",
                         path, range);
  }
  return len;
}

static int fill_section_secret(struct fill *fl, const struct field *f, struct place p,
                               const struct raw_item *item, unsigned at, void *base) {
  uint8_t secret[SETTINGS_SECRET_BYTES_MAX + 1];
  int len = fill_secret(fl, f, p, &item->values[at], &item->values[at + 1], secret);
  if (len < 0) return len;
  int err = 0;
  if (f->section == SECTION_CLUSTER) {
    memcpy(fl->settings->cluster.secret, secret, (size_t)len);
    fl->settings->cluster.secret_len = (size_t)len;
  } else if (len > 0) {
    char *copy = strdup((char *)secret);
    if (copy) *(char **)(void *)((char *)base + f->offset) = copy;
    err = copy ? 0 : schema_no_memory(fl->raw);
  } else if (f->required) {
    char range[SCHEMA_RANGE_BYTES_MAX];
    schema_range(f, range);
    p.field = f->name;
    err = schema_refuse(fl->raw, &p, "is missing (%s; or give %s_file)", range, f->name);
  }
  explicit_bzero(secret, sizeof secret);
  return err;
}

/* All fields of one mapping into the struct at `base`. */
static int fill_item(struct fill *fl, struct place p, const struct raw_item *item, void *base) {
  char range[SCHEMA_RANGE_BYTES_MAX];
  const struct field *f;
  for (unsigned i = 0; (f = schema_field_at(p.section, i)) != NULL; i++) {
    const struct raw_value *v = &item->values[i];
    const char *text = v->text ? v->text : f->def;
    int err = 0;
    p.field = f->name;
    p.env = v->env;
    p.line = v->text ? v->line : item->line;
    if (f->type == FIELD_SECRET) {
      p.line = item->line;
      p.env = NULL;
      err = fill_section_secret(fl, f, p, item, i, base);
    } else if (text) {
      err = fill_field(fl, f, &p, text, (char *)base + f->offset);
    } else if (f->required && f->type != FIELD_LIST) {
      schema_range(f, range);
      err = schema_refuse(fl->raw, &p, "is missing (%s)", range);
    }
    if (err < 0) return err;
  }
  return 0;
}

static int list_missing(struct fill *fl, struct place p, const struct raw_list *list) {
  const struct section_row *row = &schema_sections[p.section];
  if (list->line > 0) p.line = list->line;
  return schema_refuse(fl->raw, &p, "%s (a list of 1 to %u)",
                       list->line > 0 ? "is empty" : "is missing", row->items_max);
}

static int fill_host(struct fill *fl, unsigned index, const struct raw_item *item) {
  struct settings_host *h = &fl->settings->hosts[index];
  struct place p = {SECTION_HOSTS, (int)index, -1, NULL, item->line, NULL};
  h->line = item->line;
  int err = fill_item(fl, p, item, h);
  if (err < 0) return err;
  p.section = SECTION_HOST_DRIVES;
  if (item->sub.count == 0) return list_missing(fl, p, &item->sub);
  h->drives = calloc(item->sub.count, sizeof *h->drives);
  if (!h->drives) return schema_no_memory(fl->raw);
  h->drive_count = item->sub.count;
  for (unsigned i = 0; i < h->drive_count; i++) {
    p.sub_index = (int)i;
    p.line = item->sub.items[i].line;
    err = fill_item(fl, p, &item->sub.items[i], &h->drives[i]);
    if (err < 0) return err;
    struct settings_drive *d = &h->drives[i];
    if (!d->name && !(d->name = strdup(d->path))) return schema_no_memory(fl->raw);
  }
  if (!h->zone && !(h->zone = strdup(h->id))) return schema_no_memory(fl->raw);
  return 0;
}

static int fill_pool(struct fill *fl, unsigned index, const struct raw_item *item) {
  struct settings_pool *pool = &fl->settings->pools[index];
  struct place p = {SECTION_POOLS, (int)index, -1, NULL, item->line, NULL};
  pool->line = item->line;
  int err = fill_item(fl, p, item, pool);
  if (err < 0) return err;
  if (!pool->technique) {
    unsigned technique = pool->m == 0   ? TECHNIQUE_NONE
                         : pool->m == 1 ? TECHNIQUE_XOR
                                        : TECHNIQUE_REED_SOL_VAN;
    pool->technique = strdup(technique_name(technique));
    if (!pool->technique) return schema_no_memory(fl->raw);
  }
  p.section = SECTION_POOL_DRIVES;
  if (item->sub.line > 0 && item->sub.count == 0) return list_missing(fl, p, &item->sub);
  if (item->sub.count == 0) return 0;
  pool->drives = calloc(item->sub.count, sizeof *pool->drives);
  if (!pool->drives) return schema_no_memory(fl->raw);
  pool->drive_count = item->sub.count;
  for (unsigned i = 0; i < pool->drive_count; i++) {
    p.sub_index = (int)i;
    p.line = item->sub.items[i].line;
    err = fill_item(fl, p, &item->sub.items[i], &pool->drives[i]);
    if (err < 0) return err;
  }
  return 0;
}

static int fill_user(struct fill *fl, unsigned index, const struct raw_item *item) {
  struct settings_user *u = &fl->settings->users[index];
  struct place p = {SECTION_USERS, (int)index, -1, NULL, item->line, NULL};
  int err = fill_item(fl, p, item, u);
  if (err < 0) return err;
  if (u->name) return 0;
  /* A user's name stands in the rows of its buckets and is printed as one: not every key will do.
   */
  if (!value_is_name(u->access_key, SETTINGS_NAME_BYTES_MAX)) {
    char range[SCHEMA_RANGE_BYTES_MAX];
    p.field = "name";
    schema_range(
        schema_field_at(SECTION_USERS, (unsigned)schema_field_find(SECTION_USERS, p.field, 4)),
        range);
    return schema_refuse(fl->raw, &p, "is missing, and the access key is no name (%s)", range);
  }
  u->name = strdup(u->access_key);
  return u->name ? 0 : schema_no_memory(fl->raw);
}

static int fill_lists(struct fill *fl) {
  struct settings *s = fl->settings;
  struct raw *raw = fl->raw;
  const int root_line = raw->singles[SECTION_TOP].line;
  for (unsigned section = SECTION_TOP + 1; section < SECTION_COUNT; section++) {
    struct place p = {(enum section)section, -1, -1, NULL, root_line, NULL};
    const struct section_row *row = &schema_sections[section];
    if (row->is_list && row->parent == SECTION_TOP && row->required &&
        raw->lists[section].count == 0) {
      return list_missing(fl, p, &raw->lists[section]);
    }
  }
  const struct raw_list *hosts = &raw->lists[SECTION_HOSTS], *pools = &raw->lists[SECTION_POOLS];
  const struct raw_list *users = &raw->lists[SECTION_USERS];
  s->hosts = calloc(hosts->count, sizeof *s->hosts);
  s->pools = calloc(pools->count, sizeof *s->pools);
  s->users = calloc(users->count + 1, sizeof *s->users); /* never of size 0 */
  if (!s->hosts || !s->pools || !s->users) return schema_no_memory(raw);
  s->host_count = hosts->count;
  s->pool_count = pools->count;
  s->user_count = users->count;
  int err = 0;
  for (unsigned i = 0; err == 0 && i < hosts->count; i++) err = fill_host(fl, i, &hosts->items[i]);
  for (unsigned i = 0; err == 0 && i < pools->count; i++) err = fill_pool(fl, i, &pools->items[i]);
  for (unsigned i = 0; err == 0 && i < users->count; i++) err = fill_user(fl, i, &users->items[i]);
  return err;
}

int raw_fill(struct raw *raw, struct settings *s) {
  struct fill fl = {raw, s};
  const int root_line = raw->singles[SECTION_TOP].line;
  for (unsigned section = 0; section < SECTION_COUNT; section++) {
    if (schema_sections[section].is_list) continue;
    struct raw_item *item = &raw->singles[section];
    if (item->line == 0) item->line = root_line;
    struct place p = {(enum section)section, -1, -1, NULL, item->line, NULL};
    int err = fill_item(&fl, p, item, s);
    if (err < 0) return err;
  }
  const int at = schema_field_find(SECTION_CODEC, "xor_kernel", strlen("xor_kernel"));
  const struct raw_value *kernel = &raw->singles[SECTION_CODEC].values[at];
  s->codec.xor_kernel_line = kernel->text && !kernel->env ? kernel->line : 0;
  return fill_lists(&fl);
}
