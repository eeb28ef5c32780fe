/* placement.c: the first slot table, its stored form, and the partition of a key.
 *
 *   stored: format u8 | epoch u32 | drive count u16, names str16 | pool count u8
 *           each pool: name str16 | N u8 | PARTITION_COUNT * N indexes u16 into the names
 *
 * Taking drives in rank order under caps per zone and per host is greedy on a laminar matroid
 * (hosts lie within zones), so it reaches N whenever the caps allow N at all: no backtracking. */
#include "storage/object/placement.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "codec/bytes.h"
#include "config/err.h"
#include "storage/object/row.h"

#define PLACEMENT_FORMAT 1
#define ZONES_MAX MAP_HOSTS_MAX

struct ranked {
  uint64_t score;
  uint16_t drive;
};

/* How many drives one zone and one host may give to a partition. */
struct caps {
  unsigned zone, host;
};

/* The finaliser of splitmix64: every input bit reaches every output bit. */
static uint64_t mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

/* Names are hashed once per pool, partitions mixed in after: 1024 partitions of 256 drives stay
 * cheap. */
static uint64_t drive_seed(const char *pool, const char *drive) {
  struct digest d;
  uint8_t out[SHA256_LEN];
  if (digest_begin(&d, DIGEST_SHA256) < 0) return 0;
  digest_update(&d, pool, strlen(pool) + 1);
  digest_update(&d, drive, strlen(drive) + 1);
  digest_end(&d, out);
  return load_be64(out);
}

static int ranked_cmp(const void *a, const void *b) {
  const struct ranked *x = a, *y = b;
  if (x->score != y->score) return x->score > y->score ? -1 : 1;
  return x->drive < y->drive ? -1 : x->drive > y->drive;
}

static unsigned zone_of(const struct cluster_map *map, unsigned drive) {
  return map->hosts[map->drives[drive].host].zone_index;
}

/* The most drives that a partition can take under the caps. */
static unsigned caps_reach(const struct cluster_map *map, const struct map_pool *pool,
                           struct caps caps) {
  unsigned hosts[MAP_HOSTS_MAX] = {0}, zones[ZONES_MAX] = {0}, total = 0;
  for (unsigned i = 0; i < pool->drive_count; i++) {
    unsigned host = map->drives[pool->drives[i]].host, zone = zone_of(map, pool->drives[i]);
    if (hosts[host] == caps.host || zones[zone] == caps.zone) continue;
    hosts[host]++;
    zones[zone]++;
    total++;
  }
  return total;
}

static struct caps caps_of(const struct cluster_map *map, const struct map_pool *pool) {
  bool hosts[MAP_HOSTS_MAX] = {0}, zones[ZONES_MAX] = {0};
  unsigned host_count = 0, zone_count = 0;
  for (unsigned i = 0; i < pool->drive_count; i++) {
    unsigned host = map->drives[pool->drives[i]].host, zone = zone_of(map, pool->drives[i]);
    host_count += !hosts[host];
    zone_count += !zones[zone];
    hosts[host] = zones[zone] = true;
  }
  /* Zones first, with hosts unbounded; then hosts under the zones' cap. */
  struct caps caps = {.zone = DIV_UP(pool->n, zone_count), .host = pool->n};
  while (caps_reach(map, pool, caps) < pool->n) caps.zone++;
  caps.host = DIV_UP(pool->n, host_count);
  while (caps_reach(map, pool, caps) < pool->n) caps.host++;
  return caps;
}

static void place_partition(const struct cluster_map *map, const struct map_pool *pool,
                            struct caps caps, const uint64_t *seeds, unsigned partition,
                            uint16_t *slots) {
  struct ranked ranked[MAP_DRIVES_MAX];
  uint64_t salt = mix64(partition + 0x9e3779b97f4a7c15ull);
  for (unsigned i = 0; i < pool->drive_count; i++)
    ranked[i] = (struct ranked){mix64(seeds[i] ^ salt), pool->drives[i]};
  qsort(ranked, pool->drive_count, sizeof ranked[0], ranked_cmp);

  unsigned hosts[MAP_HOSTS_MAX] = {0}, zones[ZONES_MAX] = {0}, taken = 0;
  for (unsigned i = 0; i < pool->drive_count && taken < pool->n; i++) {
    unsigned drive = ranked[i].drive, host = map->drives[drive].host, zone = zone_of(map, drive);
    if (hosts[host] == caps.host || zones[zone] == caps.zone) continue;
    hosts[host]++;
    zones[zone]++;
    slots[taken++] = (uint16_t)drive;
  }
  assert(taken == pool->n);
}

static int placement_new(const struct cluster_map *map, struct placement **ret_placement) {
  struct placement *p = calloc(1, sizeof *p);
  if (!p) return -ENOMEM;
  p->epoch = PLACEMENT_EPOCH_FIRST;
  p->pool_count = map->pool_count;
  for (unsigned i = 0; i < map->pool_count; i++) {
    p->n[i] = map->pools[i].n;
    p->slots[i] = calloc((size_t)PARTITION_COUNT * p->n[i], sizeof p->slots[i][0]);
    if (!p->slots[i]) {
      placement_free(p);
      return -ENOMEM;
    }
  }
  *ret_placement = p;
  return 0;
}

int placement_build(const struct cluster_map *map, struct placement **ret_placement) {
  for (unsigned i = 0; i < map->pool_count; i++) {
    const struct map_pool *pool = &map->pools[i];
    if (pool->n == 0 || pool->n > MAP_SLOTS_MAX || pool->n > pool->drive_count) return ERR_INVALID;
  }
  struct placement *p = NULL;
  int err = placement_new(map, &p);
  if (err < 0) return err;
  for (unsigned i = 0; i < map->pool_count; i++) {
    const struct map_pool *pool = &map->pools[i];
    uint64_t seeds[MAP_DRIVES_MAX];
    for (unsigned d = 0; d < pool->drive_count; d++)
      seeds[d] = drive_seed(pool->name, map->drives[pool->drives[d]].name);
    struct caps caps = caps_of(map, pool);
    for (unsigned part = 0; part < PARTITION_COUNT; part++)
      place_partition(map, pool, caps, seeds, part, p->slots[i] + (size_t)part * pool->n);
  }
  *ret_placement = p;
  return 0;
}

void placement_free(struct placement *p) {
  if (!p) return;
  for (unsigned i = 0; i < MAP_POOLS_MAX; i++) free(p->slots[i]);
  free(p);
}

int placement_encode(const struct placement *p, const struct cluster_map *map, uint8_t **ret_bytes,
                     size_t *ret_len) {
  struct byte_writer w = {.max = PLACEMENT_BYTES_MAX};
  put_u8(&w, PLACEMENT_FORMAT);
  put_u32(&w, p->epoch);
  put_u16(&w, (uint16_t)map->drive_count);
  for (unsigned i = 0; i < map->drive_count; i++) put_str16(&w, slice_str(map->drives[i].name));
  put_u8(&w, (uint8_t)p->pool_count);
  for (unsigned i = 0; i < p->pool_count; i++) {
    put_str16(&w, slice_str(map->pools[i].name));
    put_u8(&w, (uint8_t)p->n[i]);
    size_t count = (size_t)PARTITION_COUNT * p->n[i];
    for (size_t s = 0; s < count; s++) put_u16(&w, p->slots[i][s]);
  }
  if (w.failed) {
    byte_writer_free(&w);
    return -ENOMEM;
  }
  *ret_bytes = w.data;
  *ret_len = w.len;
  return 0;
}

static int find_drive(const struct cluster_map *map, struct slice name) {
  for (unsigned i = 0; i < map->drive_count; i++)
    if (slice_eq(name, slice_str(map->drives[i].name))) return (int)i;
  return ERR_REFUSED;
}

/* The stored names as indexes of this map. */
static int decode_names(struct byte_reader *r, const struct cluster_map *map,
                        uint16_t index[MAP_DRIVES_MAX], unsigned *ret_count) {
  unsigned count = get_u16(r);
  if (r->failed || count == 0 || count > MAP_DRIVES_MAX) return ERR_CORRUPT;
  for (unsigned i = 0; i < count; i++) {
    struct slice name = get_str16(r);
    if (r->failed) return ERR_CORRUPT;
    int drive = find_drive(map, name);
    if (drive < 0) return drive;
    index[i] = (uint16_t)drive;
  }
  *ret_count = count;
  return 0;
}

/* All N drives of each partition are different ones. */
static int decode_slots(struct byte_reader *r, const uint16_t *index, unsigned drive_count,
                        unsigned n, uint16_t *slots) {
  for (unsigned part = 0; part < PARTITION_COUNT; part++) {
    bool used[MAP_DRIVES_MAX] = {0};
    for (unsigned s = 0; s < n; s++) {
      unsigned at = get_u16(r);
      if (r->failed || at >= drive_count || used[index[at]]) return ERR_CORRUPT;
      used[index[at]] = true;
      slots[(size_t)part * n + s] = index[at];
    }
  }
  return 0;
}

static int decode_pools(struct byte_reader *r, const struct cluster_map *map, const uint16_t *index,
                        unsigned drive_count, struct placement *p) {
  bool seen[MAP_POOLS_MAX] = {0};
  unsigned pool_count = get_u8(r);
  if (r->failed) return ERR_CORRUPT;
  if (pool_count != map->pool_count) return ERR_REFUSED;
  for (unsigned i = 0; i < pool_count; i++) {
    struct slice name = get_str16(r);
    unsigned n = get_u8(r), pool = 0;
    if (r->failed) return ERR_CORRUPT;
    while (pool < pool_count && !slice_eq(name, slice_str(map->pools[pool].name))) pool++;
    if (pool == pool_count || n != p->n[pool]) return ERR_REFUSED;
    if (seen[pool]) return ERR_CORRUPT;
    seen[pool] = true;
    int err = decode_slots(r, index, drive_count, n, p->slots[pool]);
    if (err < 0) return err;
  }
  return byte_reader_left(r) == 0 ? 0 : ERR_CORRUPT;
}

int placement_decode(struct slice bytes, const struct cluster_map *map,
                     struct placement **ret_placement) {
  struct byte_reader r = byte_reader_of(bytes);
  uint16_t index[MAP_DRIVES_MAX];
  unsigned drive_count = 0;
  uint8_t format = get_u8(&r);
  uint32_t epoch = get_u32(&r);
  if (r.failed || format != PLACEMENT_FORMAT || epoch == 0) return ERR_CORRUPT;
  int err = decode_names(&r, map, index, &drive_count);
  if (err < 0) return err;

  struct placement *p = NULL;
  err = placement_new(map, &p);
  if (err < 0) return err;
  p->epoch = epoch;
  err = decode_pools(&r, map, index, drive_count, p);
  if (err < 0) {
    placement_free(p);
    return err;
  }
  *ret_placement = p;
  return 0;
}

void placement_digest(struct slice encoded, uint8_t out[SHA256_LEN]) {
  sha256(encoded.data, encoded.len, out);
}

void map_digest(const char *canonical, uint8_t out[SHA256_LEN]) {
  sha256(canonical, strlen(canonical), out);
}

unsigned placement_partition(const struct id128 *bucket, struct slice key) {
  uint8_t text[sizeof bucket->bytes + KEY_BYTES_MAX], hash[SHA256_LEN];
  assert(key.len <= KEY_BYTES_MAX);
  memcpy(text, bucket->bytes, sizeof bucket->bytes);
  if (key.len) memcpy(text + sizeof bucket->bytes, key.data, key.len);
  sha256(text, sizeof bucket->bytes + key.len, hash);
  return (unsigned)(load_be64(hash) % PARTITION_COUNT);
}

bool placement_covered(const struct placement *p, unsigned pool, const bool have[MAP_DRIVES_MAX],
                       unsigned count) {
  for (unsigned part = 0; part < PARTITION_COUNT; part++) {
    const uint16_t *slots = placement_slots(p, pool, part);
    unsigned found = 0;
    for (unsigned s = 0; s < p->n[pool]; s++) found += have[slots[s]];
    if (found < count) return false;
  }
  return true;
}
