/* cluster_map.c: settings in, numbers out.
 *
 *   hosts and drives sorted by name -> pools over them -> the system pool's shape
 *
 * Every host computes the same map from the same membership: nothing here depends on the order of
 * the file, on addresses, or on which host is asking (`self` apart). */
#include "config/cluster_map.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/cluster_spread.h"
#include "config/err.h"

#define SYSTEM_POOL_NAME "system"
#define SYSTEM_POOL_UNIT_BYTES (64u << 10)

/* The map as it is allocated: the public part and the strings that the settings do not hold. */
struct map_owned {
  struct cluster_map map;
  char *drive_names[MAP_DRIVES_MAX];
};

static const char *const technique_names[TECHNIQUE_COUNT] = {
    [TECHNIQUE_NONE] = "none",     [TECHNIQUE_REED_SOL_VAN] = "reed_sol_van",
    [TECHNIQUE_CAUCHY] = "cauchy", [TECHNIQUE_XOR] = "xor",
    [TECHNIQUE_XOR3P] = "xor3p",
};

const char *technique_name(unsigned technique) {
  return technique < TECHNIQUE_COUNT ? technique_names[technique] : "unknown";
}

int technique_find(const char *name) {
  for (unsigned i = 0; i < TECHNIQUE_COUNT; i++) {
    if (strcmp(name, technique_names[i]) == 0) return (int)i;
  }
  return ERR_NOT_FOUND;
}

int quorum_of(const struct profile *p, unsigned write_quorum, unsigned *ret_d, unsigned *ret_w,
              unsigned *ret_r) {
  unsigned n = profile_n(p);
  if (p->k == 0 || n > MAP_SLOTS_MAX) return ERR_INVALID;
  unsigned d = profile_d(p);
  unsigned lowest = MAX(d, n / 2 + 1);
  unsigned spare = n - d > 1 ? 1 : 0;
  unsigned w = p->m == 0 ? n : MAX(d + spare, n / 2 + 1);
  if (write_quorum != 0) {
    if (write_quorum < lowest || write_quorum > n) return ERR_INVALID;
    w = write_quorum;
  }
  *ret_d = d;
  *ret_w = w;
  *ret_r = n - w + 1;
  return 0;
}

/* Fills ret_error with "FILE:LINE: words" and returns ERR_CONFIG. */
static int refuse(struct settings_error *e, const struct settings *s, int line, const char *fmt,
                  ...) _printf_(4, 5);

static int refuse(struct settings_error *e, const struct settings *s, int line, const char *fmt,
                  ...) {
  int at = 0;
  if (s->file && line > 0) {
    at = snprintf(e->text, sizeof e->text, "%s:%d: ", s->file, line);
  } else if (s->file) {
    at = snprintf(e->text, sizeof e->text, "%s: ", s->file);
  }
  va_list args;
  va_start(args, fmt);
  if (at >= 0 && (size_t)at < sizeof e->text) {
    vsnprintf(e->text + at, sizeof e->text - (size_t)at, fmt, args);
  }
  va_end(args);
  return ERR_CONFIG;
}

static const char *host_zone(const struct settings_host *h) {
  return h->zone ? h->zone : h->id;
}

static int host_order(const void *a, const void *b) {
  const struct settings_host *const *x = a, *const *y = b;
  return strcmp((*x)->id, (*y)->id);
}

static int drive_order(const void *a, const void *b) {
  const struct settings_drive *const *x = a, *const *y = b;
  return strcmp((*x)->name, (*y)->name);
}

static int pool_order(const void *a, const void *b) {
  const struct settings_pool *const *x = a, *const *y = b;
  return strcmp((*x)->name, (*y)->name);
}

static int text_order(const void *a, const void *b) {
  const char *const *x = a, *const *y = b;
  return strcmp(*x, *y);
}

/* Appends the drives of one host, sorted by name. */
static int add_drives(struct map_owned *o, const struct settings_host *h, uint16_t host) {
  struct cluster_map *map = &o->map;
  const struct settings_drive *sorted[MAP_DRIVES_MAX];
  for (unsigned i = 0; i < h->drive_count; i++) sorted[i] = &h->drives[i];
  qsort(sorted, h->drive_count, sizeof *sorted, drive_order);
  for (unsigned i = 0; i < h->drive_count; i++) {
    unsigned at = map->drive_count;
    /* A drive without a name of its own is named by its path, which brings its own slash. Given
     * names have none (settings.c), so the two never meet. */
    const char *name = sorted[i]->name, *slash = name[0] == '/' ? "" : "/";
    if (asprintf(&o->drive_names[at], "%s%s%s", h->id, slash, name) < 0) {
      o->drive_names[at] = NULL;
      return -ENOMEM;
    }
    map->drives[at] = (struct map_drive){o->drive_names[at], sorted[i]->path, host};
    map->drive_count++;
  }
  return 0;
}

static int add_hosts(struct map_owned *o, const struct settings *s, struct settings_error *e) {
  struct cluster_map *map = &o->map;
  const struct settings_host *sorted[MAP_HOSTS_MAX];
  const char *zones[MAP_HOSTS_MAX];
  if (s->host_count == 0) return refuse(e, s, 0, "hosts: no host is given");
  if (s->host_count > MAP_HOSTS_MAX) {
    return refuse(e, s, 0, "hosts: %u hosts are more than %d", s->host_count, MAP_HOSTS_MAX);
  }
  for (unsigned i = 0; i < s->host_count; i++) sorted[i] = &s->hosts[i];
  qsort(sorted, s->host_count, sizeof *sorted, host_order);

  for (unsigned i = 0; i < s->host_count; i++) {
    const struct settings_host *h = sorted[i];
    if (map->drive_count + h->drive_count > MAP_DRIVES_MAX) {
      return refuse(e, s, h->line, "hosts[%s].drives: more than %d drives altogether", h->id,
                    MAP_DRIVES_MAX);
    }
    map->hosts[i] = (struct map_host){
        h->id, h->address, host_zone(h), 0, (uint16_t)map->drive_count, (uint16_t)h->drive_count};
    zones[i] = host_zone(h);
    map->host_count++;
    int err = add_drives(o, h, (uint16_t)i);
    if (err < 0) return err;
  }

  qsort(zones, map->host_count, sizeof *zones, text_order);
  for (unsigned i = 0; i < map->host_count; i++) {
    if (i > 0 && strcmp(zones[i], zones[i - 1]) == 0) continue;
    for (unsigned h = 0; h < map->host_count; h++) {
      if (strcmp(map->hosts[h].zone, zones[i]) == 0) {
        map->hosts[h].zone_index = (uint16_t)map->zone_count;
      }
    }
    map->zone_count++;
  }
  return 0;
}

/* A drive as a pool's list names it: "host/name", where a name that is a path keeps its slash or
 * brings one too many ("n1//data/d1"). */
static int find_drive(const struct cluster_map *map, const char *name) {
  const char *slash = strstr(name, "//");
  for (unsigned i = 0; i < map->drive_count; i++) {
    const char *known = map->drives[i].name;
    if (strcmp(known, name) == 0) return (int)i;
    if (slash) {
      size_t head = (size_t)(slash - name);
      if (strncmp(known, name, head) == 0 && strcmp(known + head, slash + 1) == 0) return (int)i;
    }
  }
  return ERR_NOT_FOUND;
}

static int pool_drives(const struct cluster_map *map, const struct settings *s,
                       const struct settings_pool *sp, struct map_pool *p,
                       struct settings_error *e) {
  if (!sp->drives) {
    for (unsigned i = 0; i < map->drive_count; i++) p->drives[i] = (uint16_t)i;
    p->drive_count = map->drive_count;
    return 0;
  }
  bool used[MAP_DRIVES_MAX] = {false};
  for (unsigned i = 0; i < sp->drive_count; i++) {
    int at = find_drive(map, sp->drives[i]);
    if (at < 0) {
      return refuse(e, s, sp->line,
                    "pools[%s].drives: %s is no drive of the hosts (\"host id/drive name\")",
                    sp->name, sp->drives[i]);
    }
    if (used[at]) {
      return refuse(e, s, sp->line, "pools[%s].drives: %s is listed twice", sp->name,
                    sp->drives[i]);
    }
    used[at] = true;
  }
  for (unsigned i = 0; i < map->drive_count; i++) {
    if (used[i]) p->drives[p->drive_count++] = (uint16_t)i;
  }
  return 0;
}

/* ARCHITECTURE.md: a layout in which the loss of one host loses data is refused. */
static int pool_check_layout(const struct cluster_map *map, const struct settings *s,
                             const struct settings_pool *sp, const struct map_pool *p,
                             struct settings_error *e) {
  if (p->drive_count < p->n) {
    return refuse(e, s, sp->line, "pools[%s]: k + m = %u needs as many drives, and there are %u",
                  p->name, p->n, p->drive_count);
  }
  unsigned per_host = spread_host_max(map, p), survived = p->n - p->d;
  if (map->host_count == 1 || s->cluster.allow_unsafe_layout || per_host <= survived) return 0;
  return refuse(e, s, sp->line,
                "pools[%s]: one host would hold %u of the %u chunks, more than %s%u, and losing it "
                "would lose data (add hosts, or set cluster.allow_unsafe_layout: true)",
                p->name, per_host, p->n,
                survived == p->profile.m ? "m = " : "the losses it survives, ", survived);
}

static int add_pool(struct cluster_map *map, const struct settings *s,
                    const struct settings_pool *sp, struct settings_error *e) {
  if (strcmp(sp->name, SYSTEM_POOL_NAME) == 0) {
    return refuse(e, s, sp->line,
                  "pools: the name \"" SYSTEM_POOL_NAME "\" is taken by kofn's own pool");
  }
  if (sp->k < 1 || sp->k > MAP_SLOTS_MAX || sp->m > MAP_SLOTS_MAX - sp->k) {
    return refuse(e, s, sp->line, "pools[%s]: k + m = %u is out of range (1 to %d)", sp->name,
                  sp->k + sp->m, MAP_SLOTS_MAX);
  }
  const char *name = sp->technique ? sp->technique
                                   : technique_names[sp->m == 0   ? TECHNIQUE_NONE
                                                     : sp->m == 1 ? TECHNIQUE_XOR
                                                                  : TECHNIQUE_REED_SOL_VAN];
  int technique = technique_find(name);
  if (technique < 0) {
    return refuse(e, s, sp->line, "pools[%s].technique: \"%s\" is unknown", sp->name, name);
  }
  struct map_pool *p = &map->pools[map->pool_count];
  p->name = sp->name;
  p->profile =
      (struct profile){(uint8_t)technique, (uint8_t)sp->k, (uint8_t)sp->m, sp->stripe_unit_bytes};
  p->n = sp->k + sp->m;
  if (quorum_of(&p->profile, sp->write_quorum, &p->d, &p->w, &p->r) < 0) {
    unsigned lowest = MAX(profile_d(&p->profile), p->n / 2 + 1);
    return refuse(e, s, sp->line, "pools[%s].write_quorum: %u is out of range (%u to %u)", sp->name,
                  sp->write_quorum, lowest, p->n);
  }
  int err = pool_drives(map, s, sp, p, e);
  if (err < 0) return err;
  err = pool_check_layout(map, s, sp, p, e);
  if (err < 0) return err;
  map->pool_count++;
  return 0;
}

/* PROTOCOL.md 12: buckets and slots of the map itself are replicated wider than any object. */
static void set_system_pool(struct cluster_map *map, unsigned m_max) {
  struct map_pool *p = &map->pools[MAP_POOL_SYSTEM];
  unsigned n = MIN(MIN(2 * m_max + 1, map->drive_count), (unsigned)MAP_SLOTS_MAX);
  p->name = SYSTEM_POOL_NAME;
  p->profile = (struct profile){n == 1 ? TECHNIQUE_NONE : TECHNIQUE_REED_SOL_VAN, 1,
                                (uint8_t)(n - 1), SYSTEM_POOL_UNIT_BYTES};
  p->n = n;
  int err = quorum_of(&p->profile, 0, &p->d, &p->w, &p->r);
  (void)err; /* k = 1 and n <= MAP_SLOTS_MAX: cannot fail */
  for (unsigned i = 0; i < map->drive_count; i++) p->drives[i] = (uint16_t)i;
  p->drive_count = map->drive_count;
}

static int add_pools(struct cluster_map *map, const struct settings *s, struct settings_error *e) {
  const struct settings_pool *sorted[SETTINGS_POOLS_MAX];
  if (s->pool_count == 0) return refuse(e, s, 0, "pools: no pool is given");
  if (s->pool_count > SETTINGS_POOLS_MAX) {
    return refuse(e, s, 0, "pools: %u pools are more than %d", s->pool_count, SETTINGS_POOLS_MAX);
  }
  for (unsigned i = 0; i < s->pool_count; i++) sorted[i] = &s->pools[i];
  qsort(sorted, s->pool_count, sizeof *sorted, pool_order);

  unsigned m_max = 0;
  map->pool_count = MAP_POOL_SYSTEM + 1;
  for (unsigned i = 0; i < s->pool_count; i++) {
    int err = add_pool(map, s, sorted[i], e);
    if (err < 0) return err;
    m_max = MAX(m_max, sorted[i]->m);
  }
  set_system_pool(map, m_max);

  const char *wanted = s->default_pool      ? s->default_pool
                       : s->pool_count == 1 ? s->pools[0].name
                                            : "default";
  int found = cluster_map_find_pool(map, slice_str(wanted));
  if (found <= MAP_POOL_SYSTEM) {
    return refuse(e, s, 0, "default_pool: %s",
                  s->default_pool ? "names no pool of this file"
                                  : "give it, or name one of the pools \"default\"");
  }
  map->pool_default = (unsigned)found;
  return 0;
}

int cluster_map_build(const struct settings *s, struct cluster_map **ret_map,
                      struct settings_error *ret_error) {
  struct map_owned *o = calloc(1, sizeof *o);
  if (!o) {
    refuse(ret_error, s, 0, "out of memory");
    return -ENOMEM;
  }
  struct cluster_map *map = &o->map;
  map->name = s->cluster.name;
  int err = add_hosts(o, s, ret_error);
  if (err >= 0) err = add_pools(map, s, ret_error);
  if (err >= 0 && !(s->server.host == NULL && map->host_count == 1)) {
    int self = s->server.host ? cluster_map_find_host(map, s->server.host) : ERR_NOT_FOUND;
    if (self < 0) {
      err = refuse(ret_error, s, 0, "server.host: \"%s\" is none of the hosts",
                   s->server.host ? s->server.host : "");
    } else {
      map->self = (unsigned)self;
    }
  }
  if (err < 0) {
    if (err == -ENOMEM) refuse(ret_error, s, 0, "out of memory");
    cluster_map_free(map);
    return err;
  }
  *ret_map = map;
  return 0;
}

void cluster_map_free(struct cluster_map *map) {
  if (!map) return;
  struct map_owned *o = container_of(map, struct map_owned, map);
  for (unsigned i = 0; i < MAP_DRIVES_MAX; i++) free(o->drive_names[i]);
  free(o);
}

static void canonical_pool(FILE *f, const struct cluster_map *map, const struct map_pool *p) {
  fprintf(f, "pool %s technique %s k %u m %u unit %u write_quorum %u drives", p->name,
          technique_name(p->profile.technique), p->profile.k, p->profile.m, p->profile.unit_bytes,
          p->w);
  if (p->drive_count == map->drive_count) {
    fprintf(f, " all\n");
    return;
  }
  fprintf(f, " %u\n", p->drive_count);
  for (unsigned i = 0; i < p->drive_count; i++) {
    fprintf(f, "pool-drive %s %s\n", p->name, map->drives[p->drives[i]].name);
  }
}

char *cluster_map_canonical(const struct cluster_map *map) {
  char *text = NULL;
  size_t len = 0;
  FILE *f = open_memstream(&text, &len);
  if (!f) return NULL;
  fprintf(f, "cluster %s\n", map->name ? map->name : "");
  for (unsigned i = 0; i < map->host_count; i++) {
    fprintf(f, "host %s zone %s\n", map->hosts[i].id, map->hosts[i].zone);
  }
  for (unsigned i = 0; i < map->drive_count; i++) fprintf(f, "drive %s\n", map->drives[i].name);
  for (unsigned i = 0; i < map->pool_count; i++) canonical_pool(f, map, &map->pools[i]);
  bool failed = ferror(f) != 0;
  if (fclose(f) != 0 || failed) {
    free(text);
    return NULL;
  }
  return text;
}

int cluster_map_find_host(const struct cluster_map *map, const char *id) {
  for (unsigned i = 0; i < map->host_count; i++) {
    if (strcmp(map->hosts[i].id, id) == 0) return (int)i;
  }
  return ERR_NOT_FOUND;
}

int cluster_map_find_pool(const struct cluster_map *map, struct slice name) {
  for (unsigned i = 0; i < map->pool_count; i++) {
    if (slice_eq(slice_str(map->pools[i].name), name)) return (int)i;
  }
  return ERR_NOT_FOUND;
}
