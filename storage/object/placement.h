/* placement.h: which drives hold a key (ARCHITECTURE.md, PROTOCOL.md 10).
 *
 * The first slot table is a pure function of the map: for every partition, drives are ranked by
 * weighted rendezvous hash (all weights are 1 today) of "host id/drive name" and N are taken so
 * that no zone, then no host, holds more than its fair share. The table is then stored, and only
 * the stored one counts. */
#ifndef KOFN_STORAGE_OBJECT_PLACEMENT_H
#define KOFN_STORAGE_OBJECT_PLACEMENT_H

#include "codec/digest.h"
#include "config/cluster_map.h"

#define PARTITION_COUNT 1024
#define PLACEMENT_EPOCH_FIRST 1
#define PLACEMENT_BYTES_MAX (4u << 20)

struct placement {
  uint32_t epoch;
  unsigned pool_count;
  unsigned n[MAP_POOLS_MAX];
  uint16_t *slots[MAP_POOLS_MAX]; /* [partition * n + slot] = drive index */
};

_must_check_ int placement_build(const struct cluster_map *map, struct placement **ret_placement);
void placement_free(struct placement *p);

/* Stored form: drives by stable name, so that it is independent of numbering. */
_must_check_ int placement_encode(const struct placement *p, const struct cluster_map *map,
                                  uint8_t **ret_bytes, size_t *ret_len);
_must_check_ int placement_decode(struct slice bytes, const struct cluster_map *map,
                                  struct placement **ret_placement);
/* SHA-256 of the encoded table. */
void placement_digest(struct slice encoded, uint8_t out[SHA256_LEN]);
/* SHA-256 of cluster_map_canonical(). */
void map_digest(const char *canonical, uint8_t out[SHA256_LEN]);

/* First 8 bytes of SHA-256(bucket uuid, key) mod PARTITION_COUNT. */
unsigned placement_partition(const struct id128 *bucket, struct slice key);

/* Every partition of the pool has at least `count` drives with have[drive]. */
bool placement_covered(const struct placement *p, unsigned pool, const bool have[MAP_DRIVES_MAX],
                       unsigned count);

/* The N drive indexes of a partition, slot order. */
static inline const uint16_t *placement_slots(const struct placement *p, unsigned pool,
                                              unsigned partition) {
  return p->slots[pool] + (size_t)partition * p->n[pool];
}

#endif
