/* placement_test.c: spread, caps, balance, and a table that does not depend on numbering. */
#include "storage/object/placement.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/err.h"

struct bed {
  struct cluster_map map;
  char host_names[MAP_HOSTS_MAX][16];
  char drive_names[MAP_DRIVES_MAX][32];
};

/* drives_of[h] drives on host h, which stands in zone zone_of[h]; one pool k+m over all. With
 * `reversed`, drives are numbered the other way round under the same names. */
static struct bed *bed_new(unsigned hosts, const unsigned *drives_of, const unsigned *zones,
                           unsigned k, unsigned m, bool reversed) {
  struct bed *b = calloc(1, sizeof *b);
  cr_assert_not_null(b);
  struct cluster_map *map = &b->map;
  for (unsigned i = 0; i < hosts; i++) {
    unsigned h = reversed ? hosts - 1 - i : i;
    snprintf(b->host_names[i], sizeof b->host_names[i], "n%02u", h);
    map->hosts[i].id = b->host_names[i];
    map->hosts[i].zone_index = (uint16_t)(zones ? zones[h] : h);
    for (unsigned d = 0; d < drives_of[h]; d++) {
      char *name = b->drive_names[map->drive_count];
      snprintf(name, sizeof b->drive_names[0], "n%02u/d%u", h, d);
      map->drives[map->drive_count++] = (struct map_drive){.name = name, .host = (uint16_t)i};
    }
  }
  map->host_count = hosts;
  map->pool_count = 2;
  for (unsigned p = 0; p < 2; p++) {
    map->pools[p].name = p ? "default" : "system";
    map->pools[p].n = p ? k + m : MIN(2 * m + 1, map->drive_count);
    map->pools[p].drive_count = map->drive_count;
    for (unsigned d = 0; d < map->drive_count; d++) map->pools[p].drives[d] = (uint16_t)d;
  }
  return b;
}

static struct placement *build(const struct bed *b) {
  struct placement *p = NULL;
  cr_assert_eq(placement_build(&b->map, &p), 0);
  cr_assert_eq(p->epoch, PLACEMENT_EPOCH_FIRST);
  return p;
}

/* The most drives that any partition takes of one host and of one zone. */
static void worst(const struct bed *b, const struct placement *p, unsigned *host, unsigned *zone) {
  *host = *zone = 0;
  for (unsigned part = 0; part < PARTITION_COUNT; part++) {
    unsigned hosts[MAP_HOSTS_MAX] = {0}, zones[MAP_HOSTS_MAX] = {0};
    bool used[MAP_DRIVES_MAX] = {0};
    const uint16_t *slots = placement_slots(p, 1, part);
    for (unsigned s = 0; s < p->n[1]; s++) {
      cr_assert(slots[s] < b->map.drive_count && !used[slots[s]], "a drive twice");
      used[slots[s]] = true;
      unsigned h = b->map.drives[slots[s]].host;
      hosts[h]++;
      *host = MAX(*host, hosts[h]);
      unsigned z = b->map.hosts[h].zone_index;
      zones[z]++;
      *zone = MAX(*zone, zones[z]);
    }
  }
}

static void expect_worst(unsigned hosts, const unsigned *drives_of, const unsigned *zones,
                         unsigned k, unsigned m, unsigned host, unsigned zone) {
  struct bed *b = bed_new(hosts, drives_of, zones, k, m, false);
  struct placement *p = build(b);
  unsigned got_host, got_zone;
  worst(b, p, &got_host, &got_zone);
  cr_assert_eq(got_host, host, "%u hosts: %u", hosts, got_host);
  cr_assert_eq(got_zone, zone, "zone: %u", got_zone);
  placement_free(p);
  free(b);
}

Test(placement, caps_are_fair_and_raised_only_as_far_as_needed) {
  expect_worst(6, (unsigned[]){1, 1, 1, 1, 1, 1}, NULL, 4, 2, 1, 1);
  expect_worst(3, (unsigned[]){4, 4, 4}, NULL, 4, 2, 2, 2);
  expect_worst(8, (unsigned[]){2, 2, 2, 2, 2, 2, 2, 2}, NULL, 4, 2, 1, 1);
  /* one small host: 6 = 1 + 3 + 2, so 3 and never more */
  expect_worst(3, (unsigned[]){1, 9, 2}, NULL, 4, 2, 3, 3);
  /* two zones of three hosts: three a zone, one a host */
  expect_worst(6, (unsigned[]){3, 3, 3, 3, 3, 3}, (unsigned[]){0, 0, 0, 1, 1, 1}, 4, 2, 1, 3);
  /* zones come first: one host of zone 0 must give three of its drives */
  expect_worst(4, (unsigned[]){4, 2, 2, 2}, (unsigned[]){0, 1, 1, 1}, 4, 2, 3, 3);
  expect_worst(1, (unsigned[]){6}, NULL, 4, 2, 6, 6);
}

/* Ceph's create_rule: four hosts of five drives, 2+2, the host as the domain that fails together.
 * Every partition maps to as many drives as there are chunks, one of each host; and the same for an
 * xor3p pool, which survives two losses and so bears two chunks a host. */
Test(placement, create_rule) {
  const unsigned drives[] = {5, 5, 5, 5};
  const struct { unsigned k, m, host_max; } rules[] = {{2, 2, 1}, {3, 3, 2}};
  for (unsigned i = 0; i < ARRAY_LEN(rules); i++) {
    struct bed *b = bed_new(4, drives, NULL, rules[i].k, rules[i].m, false);
    struct placement *p = build(b);
    unsigned host, zone;
    worst(b, p, &host, &zone); /* all slots taken, no drive twice */
    cr_assert_eq(host, rules[i].host_max);
    cr_assert_eq(p->n[1], rules[i].k + rules[i].m);
    placement_free(p);
    free(b);
  }
}

Test(placement, every_drive_gets_a_fair_share_of_every_slot) {
  struct bed *b = bed_new(12, (unsigned[]){1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, NULL, 4, 2, false);
  struct placement *p = build(b);
  unsigned total[12] = {0}, first[12] = {0};
  for (unsigned part = 0; part < PARTITION_COUNT; part++) {
    for (unsigned s = 0; s < 6; s++) total[placement_slots(p, 1, part)[s]]++;
    first[placement_slots(p, 1, part)[0]]++;
  }
  for (unsigned d = 0; d < 12; d++) {
    cr_assert(total[d] > 512 - 90 && total[d] < 512 + 90, "drive %u: %u of 512", d, total[d]);
    cr_assert(first[d] > 85 - 40 && first[d] < 85 + 40, "drive %u: %u of 85", d, first[d]);
  }
  placement_free(p);
  free(b);
}

Test(placement, one_more_drive_moves_at_most_one_slot_of_a_partition) {
  unsigned drives[8] = {1, 1, 1, 1, 1, 1, 1, 1}, moved = 0;
  struct bed *a = bed_new(7, drives, NULL, 2, 2, false), *b = bed_new(8, drives, NULL, 2, 2, false);
  struct placement *pa = build(a), *pb = build(b);
  for (unsigned part = 0; part < PARTITION_COUNT; part++) {
    uint32_t was = 0, is = 0;
    for (unsigned s = 0; s < 4; s++) {
      was |= 1u << placement_slots(pa, 1, part)[s];
      is |= 1u << placement_slots(pb, 1, part)[s];
    }
    cr_assert_leq(__builtin_popcount(is & ~was), 1);
    cr_assert((is & ~was) == 0 || (is & ~was) == 1u << 7, "only the new drive takes over");
    moved += is != was;
  }
  cr_assert(moved > 400 && moved < 624, "%u of 512", moved);
  placement_free(pa);
  placement_free(pb);
  free(a);
  free(b);
}

Test(placement, the_table_depends_on_names_and_not_on_numbers) {
  unsigned drives[4] = {2, 3, 1, 4};
  struct bed *a = bed_new(4, drives, NULL, 3, 2, false), *b = bed_new(4, drives, NULL, 3, 2, true);
  struct placement *pa = build(a), *pb = build(b);
  for (unsigned pool = 0; pool < 2; pool++)
    for (unsigned part = 0; part < PARTITION_COUNT; part++)
      for (unsigned s = 0; s < pa->n[pool]; s++)
        cr_assert_str_eq(a->map.drives[placement_slots(pa, pool, part)[s]].name,
                         b->map.drives[placement_slots(pb, pool, part)[s]].name);

  /* and the stored form is read back under another numbering */
  uint8_t *bytes = NULL;
  size_t len = 0;
  struct placement *got = NULL;
  cr_assert_eq(placement_encode(pa, &a->map, &bytes, &len), 0);
  cr_assert_leq(len, PLACEMENT_BYTES_MAX);
  cr_assert_eq(placement_decode(slice_of(bytes, len), &b->map, &got), 0);
  for (unsigned pool = 0; pool < 2; pool++)
    cr_assert_eq(
        memcmp(got->slots[pool], pb->slots[pool], sizeof(uint16_t) * PARTITION_COUNT * pb->n[pool]),
        0);
  placement_free(got);
  free(bytes);
  placement_free(pa);
  placement_free(pb);
  free(a);
  free(b);
}

Test(placement, a_table_that_is_cut_or_of_other_drives_is_refused) {
  unsigned drives[6] = {1, 1, 1, 1, 1, 1}, fewer[6] = {2, 2, 2, 0, 0, 0};
  struct bed *a = bed_new(6, drives, NULL, 4, 2, false), *b = bed_new(3, fewer, NULL, 4, 2, false);
  struct bed *c = bed_new(6, drives, NULL, 3, 2, false);
  struct placement *p = build(a), *got = NULL;
  uint8_t *bytes = NULL, one[SHA256_LEN], two[SHA256_LEN];
  size_t len = 0;
  cr_assert_eq(placement_encode(p, &a->map, &bytes, &len), 0);
  for (size_t cut = 0; cut < len; cut += cut < 200 ? 1 : 97)
    cr_assert_lt(placement_decode(slice_of(bytes, cut), &a->map, &got), 0);
  cr_assert_eq(placement_decode(slice_of(bytes, len), &b->map, &got), ERR_REFUSED);
  cr_assert_eq(placement_decode(slice_of(bytes, len), &c->map, &got), ERR_REFUSED);
  placement_digest(slice_of(bytes, len), one);
  bytes[len - 1] = bytes[len - 3]; /* the last partition names a drive twice */
  bytes[len - 2] = bytes[len - 4];
  cr_assert_eq(placement_decode(slice_of(bytes, len), &a->map, &got), ERR_CORRUPT);
  placement_digest(slice_of(bytes, len), two);
  cr_assert(memcmp(one, two, SHA256_LEN) != 0);
  cr_assert_null(got);
  free(bytes);
  placement_free(p);
  free(a);
  free(b);
  free(c);
}

Test(placement, a_pool_with_too_few_drives_is_refused) {
  unsigned drives[3] = {1, 1, 1};
  struct bed *b = bed_new(3, drives, NULL, 2, 2, false);
  struct placement *p = NULL;
  cr_assert_eq(placement_build(&b->map, &p), ERR_INVALID);
  cr_assert_null(p);
  free(b);
}

/* Stored tables depend on these: they may never change. */
Test(placement, the_partition_of_a_key_is_fixed) {
  struct id128 bucket = {{0}};
  /* sha256 of 16 zero bytes: 374708fff7719dd5... ; with "a" appended it differs */
  cr_assert_eq(placement_partition(&bucket, slice_of("", 0)), 0x374708fff7719dd5ull % 1024);
  unsigned hit[PARTITION_COUNT] = {0};
  for (unsigned i = 0; i < 20000; i++) {
    char key[16];
    int len = snprintf(key, sizeof key, "k%u", i);
    hit[placement_partition(&bucket, slice_of(key, (size_t)len))]++;
  }
  for (unsigned i = 0; i < PARTITION_COUNT; i++) cr_assert(hit[i] > 0 && hit[i] < 60);
}
