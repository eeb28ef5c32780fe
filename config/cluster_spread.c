/* cluster_spread.c: see cluster_spread.h. */
#include "config/cluster_spread.h"

#include <stdio.h>

/* Drives of the pool by host and by zone, and the caps that placement works under. */
struct spread {
  unsigned host_drives[MAP_HOSTS_MAX];
  unsigned zone_cap, host_cap;
};

/* Slots that a partition can fill when no zone gives more than zone_cap and no host more than
 * host_cap. */
static unsigned spread_room(const struct cluster_map *map, const struct spread *sp,
                            unsigned zone_cap, unsigned host_cap) {
  unsigned in_zone[MAP_HOSTS_MAX] = {0}, room = 0;
  for (unsigned h = 0; h < map->host_count; h++) {
    in_zone[map->hosts[h].zone_index] += MIN(sp->host_drives[h], host_cap);
  }
  for (unsigned z = 0; z < map->zone_count; z++) room += MIN(in_zone[z], zone_cap);
  return room;
}

static struct spread spread_of(const struct cluster_map *map, const struct map_pool *p) {
  struct spread sp = {.zone_cap = 1, .host_cap = 1};
  for (unsigned i = 0; i < p->drive_count; i++) sp.host_drives[map->drives[p->drives[i]].host]++;
  /* A cap of n binds nothing, so both loops end there at the latest. */
  while (sp.zone_cap < p->n && spread_room(map, &sp, sp.zone_cap, p->n) < p->n) sp.zone_cap++;
  while (sp.host_cap < p->n && spread_room(map, &sp, sp.zone_cap, sp.host_cap) < p->n) {
    sp.host_cap++;
  }
  return sp;
}

static unsigned host_share(const struct spread *sp, unsigned host) {
  return MIN(MIN(sp->host_drives[host], sp->host_cap), sp->zone_cap);
}

unsigned spread_host_max(const struct cluster_map *map, const struct map_pool *p) {
  struct spread sp = spread_of(map, p);
  unsigned most = 0;
  for (unsigned h = 0; h < map->host_count; h++) most = MAX(most, host_share(&sp, h));
  return most;
}

unsigned spread_lost_max(const struct cluster_map *map, const struct map_pool *p, unsigned hosts) {
  struct spread sp = spread_of(map, p);
  unsigned zone_lost[MAP_HOSTS_MAX] = {0}, lost = 0;
  bool down[MAP_HOSTS_MAX] = {false};
  /* The worst set is found one host at a time: what a further host adds never grows within a zone,
   * so taking the largest gain each time is exact. */
  for (unsigned i = 0; i < hosts && i < map->host_count; i++) {
    unsigned worst = MAP_HOSTS_MAX, worst_gain = 0;
    for (unsigned h = 0; h < map->host_count; h++) {
      if (down[h]) continue;
      unsigned left = sp.zone_cap - zone_lost[map->hosts[h].zone_index];
      unsigned gain = MIN(host_share(&sp, h), left);
      if (worst == MAP_HOSTS_MAX || gain > worst_gain) {
        worst = h;
        worst_gain = gain;
      }
    }
    down[worst] = true;
    zone_lost[map->hosts[worst].zone_index] += worst_gain;
    lost += worst_gain;
  }
  return MIN(lost, p->n);
}

/* Hosts that can be lost while `needed` slots of every partition stay. */
static unsigned hosts_spare(const struct cluster_map *map, const struct map_pool *p,
                            unsigned needed) {
  unsigned hosts = 0;
  while (hosts < map->host_count && p->n - spread_lost_max(map, p, hosts + 1) >= needed) hosts++;
  return hosts;
}

struct survival spread_survival(const struct cluster_map *map, unsigned pool) {
  struct survival least = {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};
  const unsigned both[] = {MAP_POOL_SYSTEM, pool};
  for (unsigned i = 0; i < ARRAY_LEN(both); i++) {
    const struct map_pool *p = &map->pools[both[i]];
    unsigned to_read = MAX(p->d, p->r), to_write = MAX(p->w, to_read);
    /* Writing an object only reads its bucket's register. */
    if (both[i] == MAP_POOL_SYSTEM && pool != MAP_POOL_SYSTEM) to_write = to_read;
    least.hosts_read = MIN(least.hosts_read, hosts_spare(map, p, to_read));
    least.hosts_write = MIN(least.hosts_write, hosts_spare(map, p, to_write));
    least.drives_read = MIN(least.drives_read, p->n - to_read);
    least.drives_write = MIN(least.drives_write, p->n - to_write);
  }
  return least;
}

static void count_words(char *out, size_t cap, unsigned count, const char *noun) {
  if (count == 0) {
    snprintf(out, cap, "no %s", noun);
  } else {
    snprintf(out, cap, "any %u %s%s", count, noun, count == 1 ? "" : "s");
  }
}

void cluster_map_survival(const struct cluster_map *map, unsigned pool, char *out, size_t cap) {
  if (cap == 0) return;
  struct survival s = spread_survival(map, pool);
  const struct map_pool *p = &map->pools[pool];
  char hr[32], hw[32], dr[32], dw[32];
  count_words(hr, sizeof hr, s.hosts_read, "host");
  count_words(hw, sizeof hw, s.hosts_write, "host");
  count_words(dr, sizeof dr, s.drives_read, "drive");
  count_words(dw, sizeof dw, s.drives_write, "drive");
  int len = map->host_count > 1
                ? snprintf(out, cap,
                           "reads survive the loss of %s, writes of %s; of single drives, reads "
                           "survive the loss of %s, writes of %s",
                           hr, hw, dr, dw)
                : snprintf(out, cap, "reads survive the loss of %s, writes of %s", dr, dw);
  if (len > 0 && (size_t)len < cap && p->profile.m > 0 && p->w == p->d) {
    snprintf(out + len, cap - (size_t)len,
             "; an object written while a drive is away has no spare chunk until it is healed");
  }
}
