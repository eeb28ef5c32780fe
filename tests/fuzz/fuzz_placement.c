/* fuzz_placement.c: the stored slot table, which a drive hands over when it is opened.
 *
 * A table is large (1,024 partitions of every pool), so the input is a list of changes to a valid
 * one: "offset u24, byte" each, or a cut. What is taken names existing drives, each once in a
 * partition; encoded again it is taken again and says the same. */
#include "config/err.h"
#include "storage/object/placement.h"
#include "tests/fuzz/fuzz.h"

static struct cluster_map map;
static uint8_t *table;
static size_t table_len;

static void set_pool(unsigned i, const char *name, uint8_t k, uint8_t m) {
  struct map_pool *p = &map.pools[i];
  p->name = name;
  p->profile = (struct profile){TECHNIQUE_REED_SOL_VAN, k, m, 65536};
  p->n = k + m;
  FUZZ_CHECK(quorum_of(&p->profile, 0, &p->d, &p->w, &p->r) == 0);
  p->drive_count = map.drive_count;
  for (unsigned d = 0; d < map.drive_count; d++) p->drives[d] = (uint16_t)d;
}

static void prepare(void) {
  static char names[4][8], hosts[4][4];
  struct placement *p;
  if (table) return;
  map.host_count = map.zone_count = map.drive_count = 4;
  for (unsigned i = 0; i < 4; i++) {
    snprintf(hosts[i], sizeof hosts[i], "n%u", i);
    snprintf(names[i], sizeof names[i], "n%u/d", i);
    map.hosts[i] = (struct map_host){hosts[i], "a:1", hosts[i], (uint16_t)i, (uint16_t)i, 1};
    map.drives[i] = (struct map_drive){names[i], "/d", (uint16_t)i};
  }
  map.pool_count = 2;
  set_pool(0, "system", 1, 2);
  set_pool(1, "default", 2, 1);
  FUZZ_CHECK(placement_build(&map, &p) == 0);
  FUZZ_CHECK(placement_encode(p, &map, &table, &table_len) == 0);
  placement_free(p);
}

static void check_table(const struct placement *p) {
  FUZZ_CHECK(p->epoch > 0 && p->pool_count == map.pool_count);
  for (unsigned pool = 0; pool < p->pool_count; pool++) {
    FUZZ_CHECK(p->n[pool] == map.pools[pool].n);
    for (unsigned part = 0; part < PARTITION_COUNT; part++) {
      const uint16_t *slots = placement_slots(p, pool, part);
      for (unsigned i = 0; i < p->n[pool]; i++) {
        FUZZ_CHECK(slots[i] < map.drive_count);
        for (unsigned j = 0; j < i; j++) FUZZ_CHECK(slots[i] != slots[j]);
      }
    }
  }
}

static void check_again(const struct placement *p) {
  struct placement *second;
  uint8_t *bytes;
  size_t len;
  FUZZ_CHECK(placement_encode(p, &map, &bytes, &len) == 0);
  FUZZ_CHECK(placement_decode(slice_of(bytes, len), &map, &second) == 0);
  FUZZ_CHECK(second->epoch == p->epoch);
  for (unsigned pool = 0; pool < p->pool_count; pool++)
    FUZZ_CHECK(memcmp(second->slots[pool], p->slots[pool],
                      PARTITION_COUNT * p->n[pool] * sizeof p->slots[pool][0]) == 0);
  placement_free(second);
  free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  struct slice in = slice_of(data, len);
  struct placement *p = NULL;
  prepare();
  uint8_t *bytes = fuzz_copy(slice_of(table, table_len));
  size_t at = 0, used = table_len;
  while (in.len >= 4) {
    at = (size_t)fuzz_u8(&in) << 16;
    at |= (size_t)fuzz_u8(&in) << 8;
    at |= fuzz_u8(&in);
    bytes[at % table_len] = fuzz_u8(&in);
  }
  if (in.len > 0) used = at % (table_len + 1); /* an odd end cuts */
  uint8_t *cut = fuzz_copy(slice_of(bytes, used));
  int err = placement_decode(slice_of(cut, used), &map, &p);
  if (err == 0) {
    check_table(p);
    check_again(p);
    placement_free(p);
  } else {
    FUZZ_CHECK((err == ERR_CORRUPT || err == ERR_REFUSED) && !p);
  }
  free(cut);
  /* And with nothing of a table around it. */
  if (placement_decode(slice_of(data, len), &map, &p) == 0) placement_free(p);
  free(bytes);
  return 0;
}
