/* settings_check.c: what one field alone cannot tell: duplicates, references, secrets, listeners.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/cluster_map.h"
#include "config/err.h"
#include "config/settings_schema.h"

/* Where a field of a list's item was written. */
static struct place item_place(const struct raw *raw, enum section section, unsigned index,
                               const char *field) {
  const struct raw_item *item = &raw->lists[section].items[index];
  const struct raw_value *v = &item->values[schema_field_find(section, field, strlen(field))];
  return (struct place){section, (int)index, -1, field, v->text && v->line ? v->line : item->line,
                        v->env};
}

static struct place single_place(const struct raw *raw, enum section section, const char *field) {
  const struct raw_item *item = &raw->singles[section];
  const struct raw_value *v = &item->values[schema_field_find(section, field, strlen(field))];
  return (struct place){section, -1, -1, field, v->text && v->line ? v->line : item->line, v->env};
}

static int refuse_taken(struct raw *raw, enum section section, unsigned index, unsigned first,
                        const char *field, const char *value) {
  struct place p = item_place(raw, section, index, field);
  struct place before = item_place(raw, section, first, field);
  return schema_refuse(raw, &p, "\"%s\" is taken by %s[%u] (line %d)", value,
                       schema_sections[section].name, first, before.line);
}

static int check_drives(struct raw *raw, const struct settings_host *h, unsigned host) {
  for (unsigned i = 0; i < h->drive_count; i++) {
    const struct raw_item *item = &raw->lists[SECTION_HOSTS].items[host].sub.items[i];
    struct place p = {SECTION_HOST_DRIVES, (int)host, (int)i, "path", item->line, NULL};
    for (unsigned j = 0; j < i; j++) {
      const struct settings_drive *a = &h->drives[i], *b = &h->drives[j];
      bool same_path = strcmp(a->path, b->path) == 0;
      if (!same_path && strcmp(a->name, b->name) != 0) continue;
      if (!same_path) p.field = "name";
      return schema_refuse(raw, &p, "\"%s\" is listed twice (first in line %d)",
                           same_path ? a->path : a->name,
                           raw->lists[SECTION_HOSTS].items[host].sub.items[j].line);
    }
  }
  return 0;
}

static int check_hosts(struct raw *raw, const struct settings *s) {
  unsigned drives = 0;
  for (unsigned i = 0; i < s->host_count; i++) {
    const struct settings_host *h = &s->hosts[i];
    for (unsigned j = 0; j < i; j++) {
      if (strcmp(h->id, s->hosts[j].id) == 0) {
        return refuse_taken(raw, SECTION_HOSTS, i, j, "id", h->id);
      }
      if (strcmp(h->address, s->hosts[j].address) == 0) {
        return refuse_taken(raw, SECTION_HOSTS, i, j, "address", h->address);
      }
    }
    int err = check_drives(raw, h, i);
    if (err < 0) return err;
    drives += h->drive_count;
    if (drives > SETTINGS_DRIVES_MAX) {
      struct place p = item_place(raw, SECTION_HOSTS, i, "drives");
      return schema_refuse(raw, &p, "%u drives so far are out of range (1 to %d in all)", drives,
                           SETTINGS_DRIVES_MAX);
    }
  }
  return 0;
}

/* What needs no codec: its proven limits are checked by codec_check. */
static int check_shape(struct raw *raw, const struct settings_pool *pool, unsigned index) {
  int technique = technique_find(pool->technique);
  if (pool->k + pool->m > MAP_SLOTS_MAX) {
    struct place p = item_place(raw, SECTION_POOLS, index, "k");
    return schema_refuse(raw, &p, "k + m = %u is out of range (1 to %d)", pool->k + pool->m,
                         MAP_SLOTS_MAX);
  }
  struct place p = item_place(raw, SECTION_POOLS, index, "technique");
  if (technique == TECHNIQUE_XOR && pool->m != 1) {
    return schema_refuse(raw, &p, "xor makes one parity chunk, and m is %u (1 to 1)", pool->m);
  }
  if (technique == TECHNIQUE_NONE && pool->m != 0) {
    return schema_refuse(raw, &p, "none makes no parity chunk, and m is %u (0 to 0)", pool->m);
  }
  if (technique != TECHNIQUE_NONE && pool->m == 0) {
    return schema_refuse(raw, &p, "m = 0 has no parity chunk, so the technique is none");
  }
  return 0;
}

static int check_pools(struct raw *raw, const struct settings *s) {
  for (unsigned i = 0; i < s->pool_count; i++) {
    for (unsigned j = 0; j < i; j++) {
      if (strcmp(s->pools[i].name, s->pools[j].name) == 0) {
        return refuse_taken(raw, SECTION_POOLS, i, j, "name", s->pools[i].name);
      }
    }
    int err = check_shape(raw, &s->pools[i], i);
    if (err < 0) return err;
  }
  return 0;
}

static int fill_default_pool(struct raw *raw, struct settings *s) {
  struct place p = single_place(raw, SECTION_TOP, "default_pool");
  const char *wanted = s->default_pool      ? s->default_pool
                       : s->pool_count == 1 ? s->pools[0].name
                                            : "default";
  for (unsigned i = 0; i < s->pool_count; i++) {
    if (strcmp(s->pools[i].name, wanted) != 0) continue;
    if (!s->default_pool && !(s->default_pool = strdup(wanted))) return schema_no_memory(raw);
    return 0;
  }
  if (!s->default_pool) {
    return schema_refuse(raw, &p, "is missing: there are %u pools, none named default",
                         s->pool_count);
  }
  return schema_refuse(raw, &p, "\"%s\" is none of the pools", wanted);
}

static int check_users(struct raw *raw, const struct settings *s) {
  for (unsigned i = 0; i < s->user_count; i++) {
    for (unsigned j = 0; j < i; j++) {
      const struct settings_user *a = &s->users[i], *b = &s->users[j];
      if (strcmp(a->access_key, b->access_key) == 0) {
        return refuse_taken(raw, SECTION_USERS, i, j, "access_key", a->access_key);
      }
      if (strcmp(a->name, b->name) == 0)
        return refuse_taken(raw, SECTION_USERS, i, j, "name", a->name);
    }
  }
  return 0;
}

static int fill_self(struct raw *raw, struct settings *s) {
  struct place p = single_place(raw, SECTION_SERVER, "host");
  if (!s->server.host && s->host_count == 1) {
    s->server.host = strdup(s->hosts[0].id);
    return s->server.host ? 0 : schema_no_memory(raw);
  }
  char known[512] = "";
  size_t len = 0;
  for (unsigned i = 0; i < s->host_count; i++) {
    if (s->server.host && strcmp(s->server.host, s->hosts[i].id) == 0) return 0;
    if (len < sizeof known) {
      len +=
          (size_t)snprintf(known + len, sizeof known - len, "%s%s", i ? ", " : "", s->hosts[i].id);
    }
  }
  if (!s->server.host) {
    return schema_refuse(raw, &p, "is missing (one of %s; or KOFN_SERVER_HOST)", known);
  }
  return schema_refuse(raw, &p, "\"%s\" is none of the hosts (%s)", s->server.host, known);
}

/* The port that peers connect to, on every address unless they are all on this machine. */
static int fill_peer_listen(struct raw *raw, struct settings *s) {
  char host[256];
  uint16_t port;
  if (s->server.peer_listen) return 0;
  int err = settings_parse_address(settings_self(s)->address, host, &port);
  if (err < 0) return err; /* fill_text has parsed it before */
  const char *on =
      value_is_loopback(host) ? (strchr(host, ':') ? "[::1]" : "127.0.0.1") : "0.0.0.0";
  if (asprintf(&s->server.peer_listen, "%s:%u", on, (unsigned)port) < 0) {
    s->server.peer_listen = NULL;
    return schema_no_memory(raw);
  }
  return 0;
}

static int check_authentication(struct raw *raw, const struct settings *s) {
  char host[256];
  uint16_t port;
  if (s->host_count > 1 && s->cluster.secret_len == 0) {
    struct place p = single_place(raw, SECTION_CLUSTER, "secret");
    return schema_refuse(raw, &p,
                         "is missing: %u hosts share one (%d to %d printable characters; or "
                         "secret_file, or KOFN_CLUSTER_SECRET)",
                         s->host_count, 16, SETTINGS_SECRET_BYTES_MAX);
  }
  if (s->server.anonymous || s->user_count > 0 || !raw->file) return 0;
  struct place users = {SECTION_USERS, -1, -1, NULL, raw->singles[SECTION_TOP].line, NULL};
  if (s->host_count > 1) {
    return schema_refuse(
        raw, &users,
        "is missing: several hosts need at least one (1 to %d; or "
        "KOFN_ROOT_ACCESS_KEY and KOFN_ROOT_SECRET_KEY, or server.anonymous: true)",
        SETTINGS_USERS_MAX);
  }
  if (settings_parse_address(s->server.s3_listen, host, &port) == 0 && value_is_loopback(host)) {
    return 0;
  }
  struct place p = single_place(raw, SECTION_SERVER, "s3_listen");
  return schema_refuse(raw, &p,
                       "%s is reachable from outside and there are no users: give users, or listen "
                       "on 127.0.0.1, or set server.anonymous: true",
                       s->server.s3_listen);
}

int raw_check(struct raw *raw, struct settings *s) {
  int err = check_hosts(raw, s);
  if (err == 0) err = check_pools(raw, s);
  if (err == 0) err = fill_default_pool(raw, s);
  if (err == 0) err = check_users(raw, s);
  if (err == 0) err = fill_self(raw, s);
  if (err == 0) err = fill_peer_listen(raw, s);
  if (err == 0) err = check_authentication(raw, s);
  return err;
}
