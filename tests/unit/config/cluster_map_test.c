/* cluster_map_test.c: quorums, layouts that are refused, and what a layout really survives. */
#include "config/cluster_map.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/cluster_spread.h"
#include "config/err.h"

#define DRIVES_PER_HOST_MAX 16

/* Settings on the stack: hosts h0.. with `drives` each, one pool "p". */
struct bed {
  struct settings s;
  struct settings_host hosts[MAP_HOSTS_MAX];
  struct settings_drive drives[MAP_HOSTS_MAX][DRIVES_PER_HOST_MAX];
  struct settings_pool pools[3];
  char ids[MAP_HOSTS_MAX][16], zones[MAP_HOSTS_MAX][16];
  char names[DRIVES_PER_HOST_MAX][16];
};

static struct bed *bed_new(unsigned hosts, unsigned drives, unsigned k, unsigned m) {
  struct bed *b = calloc(1, sizeof *b);
  cr_assert_not_null(b);
  for (unsigned d = 0; d < DRIVES_PER_HOST_MAX; d++) snprintf(b->names[d], 16, "/d%u", d);
  for (unsigned h = 0; h < hosts; h++) {
    snprintf(b->ids[h], 16, "h%u", h);
    snprintf(b->zones[h], 16, "h%u", h);
    b->hosts[h] =
        (struct settings_host){b->ids[h], b->ids[h], b->zones[h], b->drives[h], drives, (int)h + 1};
    for (unsigned d = 0; d < drives; d++)
      b->drives[h][d] = (struct settings_drive){b->names[d], b->names[d]};
  }
  b->pools[0] = (struct settings_pool){
      .name = (char *)"p", .k = k, .m = m, .stripe_unit_bytes = 65536, .line = 9};
  b->s.file = (char *)"f";
  b->s.hosts = b->hosts;
  b->s.host_count = hosts;
  b->s.pools = b->pools;
  b->s.pool_count = 1;
  b->s.server.host = b->ids[0];
  return b;
}

static struct cluster_map *build(struct bed *b) {
  struct settings_error e = {""};
  struct cluster_map *map = NULL;
  cr_assert_eq(cluster_map_build(&b->s, &map, &e), 0, "%s", e.text);
  return map;
}

static const char *refusal(struct bed *b) {
  static struct settings_error e;
  struct cluster_map *map = NULL;
  e.text[0] = 0;
  cr_assert_eq(cluster_map_build(&b->s, &map, &e), ERR_CONFIG);
  cr_assert_null(map);
  return e.text;
}

Test(quorum, the_table_of_the_protocol) {
  static const unsigned rows[][4] = {{1, 1, 2, 1},   {2, 1, 2, 2}, {2, 2, 3, 2},    {4, 2, 5, 2},
                                     {2, 4, 4, 3},   {6, 3, 7, 3}, {8, 3, 9, 3},    {8, 4, 9, 4},
                                     {17, 3, 18, 3}, {1, 0, 1, 1}, {4, 0, 4, 1},    {1, 4, 3, 3},
                                     {1, 2, 2, 2},   {3, 2, 4, 2}, {16, 16, 17, 16}};
  for (unsigned i = 0; i < ARRAY_LEN(rows); i++) {
    struct profile p = {.k = (uint8_t)rows[i][0], .m = (uint8_t)rows[i][1]};
    unsigned d, w, r;
    cr_assert_eq(quorum_of(&p, 0, &d, &w, &r), 0);
    cr_assert_eq(d, rows[i][0]);
    cr_assert_eq(w, rows[i][2], "%u+%u: W = %u", p.k, p.m, w);
    cr_assert_eq(r, rows[i][3], "%u+%u: R = %u", p.k, p.m, r);
  }
}

Test(quorum, every_allowed_quorum_meets_every_other) {
  for (unsigned k = 1; k <= MAP_SLOTS_MAX; k++) {
    for (unsigned m = 0; k + m <= MAP_SLOTS_MAX; m++) {
      struct profile p = {.k = (uint8_t)k, .m = (uint8_t)m};
      for (unsigned given = 0; given <= MAP_SLOTS_MAX + 1; given++) {
        unsigned d = 0, w = 77, r = 0, n = k + m;
        int err = quorum_of(&p, given, &d, &w, &r);
        bool allowed = given == 0 || (given >= MAX(k, n / 2 + 1) && given <= n);
        cr_assert_eq(err, allowed ? 0 : ERR_INVALID);
        if (!allowed) {
          cr_assert_eq(w, 77u, "untouched");
          continue;
        }
        cr_assert(w <= n && 2 * w > n && w >= d && w + r == n + 1);
      }
    }
  }
  struct profile wide = {.k = 30, .m = 3}, none = {.k = 0, .m = 3};
  unsigned d, w, r;
  cr_assert_eq(quorum_of(&wide, 0, &d, &w, &r), ERR_INVALID);
  cr_assert_eq(quorum_of(&none, 0, &d, &w, &r), ERR_INVALID);
}

Test(cluster_map, does_not_depend_on_the_order_of_the_file) {
  struct bed *a = bed_new(4, 2, 2, 2), *b = bed_new(4, 2, 2, 2);
  struct settings_host swap = b->hosts[0];
  b->hosts[0] = b->hosts[3];
  b->hosts[3] = swap;
  b->drives[1][0].name = b->drives[1][0].path = a->names[1];
  b->drives[1][1].name = b->drives[1][1].path = a->names[0];
  b->hosts[1].address = (char *)"elsewhere:1";
  struct cluster_map *ma = build(a), *mb = build(b);
  char *ta = cluster_map_canonical(ma), *tb = cluster_map_canonical(mb);
  cr_assert_str_eq(ta, tb);
  cr_assert_str_eq(
      ta,
      "cluster \nhost h0 zone h0\nhost h1 zone h1\nhost h2 zone h2\nhost h3 zone h3\n"
      "drive h0/d0\ndrive h0/d1\ndrive h1/d0\ndrive h1/d1\ndrive h2/d0\ndrive h2/d1\n"
      "drive h3/d0\ndrive h3/d1\n"
      "pool system technique reed_sol_van k 1 m 4 unit 65536 write_quorum 3 drives all\n"
      "pool p technique reed_sol_van k 2 m 2 unit 65536 write_quorum 3 drives all\n");
  for (unsigned i = 0; i < ma->drive_count; i++)
    cr_assert_str_eq(ma->drives[i].name, mb->drives[i].name);
  cr_assert_eq(ma->hosts[2].drive_first, 4);
  cr_assert_eq(ma->drives[5].host, 2);
  free(ta);
  free(tb);
  cluster_map_free(ma);
  cluster_map_free(mb);
  free(a);
  free(b);
}

Test(cluster_map, a_change_of_membership_changes_the_text) {
  struct bed *b = bed_new(4, 2, 2, 2);
  struct cluster_map *map = build(b);
  char *before = cluster_map_canonical(map);
  cluster_map_free(map);
  for (unsigned change = 0; change < 5; change++) {
    struct bed *c = bed_new(4, 2, 2, 2);
    if (change == 0) c->drives[3][1].name = (char *)"other";
    if (change == 1) c->hosts[3].zone = (char *)"z";
    if (change == 2) c->pools[0].stripe_unit_bytes = 4096;
    if (change == 3) c->pools[0].write_quorum = 4;
    if (change == 4) c->s.cluster.name = (char *)"other";
    map = build(c);
    char *after = cluster_map_canonical(map);
    cr_assert_str_neq(before, after, "change %u", change);
    free(after);
    cluster_map_free(map);
    free(c);
  }
  free(before);
  free(b);
}

Test(cluster_map, the_system_pool_is_wider_than_any_other) {
  static const struct {
    unsigned hosts, drives, k, m, n, w;
  } cases[] = {{1, 1, 1, 0, 1, 1}, {1, 2, 1, 1, 2, 2},  {1, 3, 2, 1, 3, 2},     {6, 1, 4, 2, 5, 3},
               {4, 1, 2, 2, 4, 3}, {12, 1, 8, 4, 9, 5}, {1, 32, 16, 16, 32, 17}};
  for (unsigned i = 0; i < ARRAY_LEN(cases); i++) {
    struct bed *b = bed_new(cases[i].hosts, MIN(cases[i].drives, 16u), cases[i].k, cases[i].m);
    struct settings_drive many[32];
    char names[32][16];
    if (cases[i].drives == 32) {
      for (unsigned d = 0; d < 32; d++) {
        snprintf(names[d], 16, "/m%u", d);
        many[d] = (struct settings_drive){names[d], names[d]};
      }
      b->hosts[0].drives = many;
      b->hosts[0].drive_count = 32;
    }
    struct cluster_map *map = build(b);
    const struct map_pool *p = &map->pools[MAP_POOL_SYSTEM];
    cr_assert_eq(p->n, cases[i].n);
    cr_assert_eq(p->w, cases[i].w);
    cr_assert_eq(p->profile.k, 1);
    cr_assert_eq(p->profile.technique, p->n == 1 ? TECHNIQUE_NONE : TECHNIQUE_REED_SOL_VAN);
    cr_assert_eq(cluster_map_find_pool(map, slice_str("system")), MAP_POOL_SYSTEM);
    cr_assert_eq(map->pool_default, 1u);
    cluster_map_free(map);
    free(b);
  }
}

Test(cluster_map, layouts_that_are_refused) {
  struct bed *b = bed_new(5, 1, 4, 2);
  cr_assert_str_eq(refusal(b), "f:9: pools[p]: k + m = 6 needs as many drives, and there are 5");
  free(b);
  b = bed_new(2, 4, 4, 2);
  cr_assert_str_eq(refusal(b),
                   "f:9: pools[p]: one host would hold 3 of the 6 chunks, more than m = 2, and "
                   "losing it would lose "
                   "data (add hosts, or set cluster.allow_unsafe_layout: true)");
  b->s.cluster.allow_unsafe_layout = true;
  cluster_map_free(build(b));
  free(b);
  b = bed_new(1, 6, 4, 2); /* a single host is never refused */
  cluster_map_free(build(b));
  b->pools[0].write_quorum = 3;
  cr_assert_str_eq(refusal(b), "f:9: pools[p].write_quorum: 3 is out of range (4 to 6)");
  b->pools[0].write_quorum = 7;
  cr_assert_str_eq(refusal(b), "f:9: pools[p].write_quorum: 7 is out of range (4 to 6)");
  b->pools[0].write_quorum = 0;
  b->pools[0].name = (char *)"system";
  cr_assert_not_null(strstr(refusal(b), "is taken by kofn's own pool"));
  b->pools[0].name = (char *)"p";
  b->pools[0].technique = (char *)"magic";
  cr_assert_str_eq(refusal(b), "f:9: pools[p].technique: \"magic\" is unknown");
  b->pools[0].technique = NULL;
  b->pools[0].m = 40;
  cr_assert_str_eq(refusal(b), "f:9: pools[p]: k + m = 44 is out of range (1 to 32)");
  b->pools[0].m = 2;
  char *list[] = {(char *)"h0/d0", (char *)"h0/d9"}, *twice[] = {(char *)"h0/d0", (char *)"h0//d0"};
  b->pools[0].drives = list;
  b->pools[0].drive_count = 2;
  cr_assert_not_null(strstr(refusal(b), "pools[p].drives: h0/d9 is no drive"));
  b->pools[0].drives = twice;
  cr_assert_not_null(strstr(refusal(b), "pools[p].drives: h0//d0 is listed twice"));
  b->pools[0].drives = NULL;
  b->s.default_pool = (char *)"q";
  cr_assert_str_eq(refusal(b), "f: default_pool: names no pool of this file");
  b->s.default_pool = NULL;
  b->s.server.host = (char *)"h7";
  cr_assert_str_eq(refusal(b), "f: server.host: \"h7\" is none of the hosts");
  free(b);
}

static void expect_survival(struct bed *b, struct survival want) {
  struct cluster_map *map = build(b);
  struct survival got = spread_survival(map, 1);
  cr_assert_eq(got.hosts_read, want.hosts_read, "hosts read %u", got.hosts_read);
  cr_assert_eq(got.hosts_write, want.hosts_write, "hosts write %u", got.hosts_write);
  cr_assert_eq(got.drives_read, want.drives_read, "drives read %u", got.drives_read);
  cr_assert_eq(got.drives_write, want.drives_write, "drives write %u", got.drives_write);
  cluster_map_free(map);
  free(b);
}

Test(cluster_map, survival_is_what_the_spread_gives) {
  expect_survival(bed_new(6, 1, 4, 2), (struct survival){2, 1, 2, 1});
  expect_survival(bed_new(3, 2, 4, 2), (struct survival){1, 0, 2, 1}); /* ARCHITECTURE.md */
  expect_survival(bed_new(3, 1, 2, 1), (struct survival){1, 1, 1, 1});
  expect_survival(bed_new(12, 1, 8, 4), (struct survival){4, 3, 4, 3});
  expect_survival(bed_new(7, 1, 2, 4), (struct survival){3, 2, 3, 2}); /* bound by R, not by k */
  struct bed *b = bed_new(3, 2, 4, 2);
  b->pools[0].write_quorum = 4;
  expect_survival(b, (struct survival){1, 1, 2, 2});
  b = bed_new(6, 1, 4, 2); /* five hosts in one rack: the other's share rises, and so does theirs */
  for (unsigned h = 1; h < 6; h++) b->hosts[h].zone = (char *)"rack";
  expect_survival(b, (struct survival){2, 1, 2, 1});
  b = bed_new(2, 8, 4, 2);
  b->s.cluster.allow_unsafe_layout = true;
  expect_survival(b, (struct survival){0, 0, 2, 1});
  b = bed_new(6, 1, 4, 2);
  b->hosts[0].drive_count = 8; /* a big host gets no more than its share */
  for (unsigned d = 0; d < 8; d++)
    b->drives[0][d] = (struct settings_drive){b->names[d], b->names[d]};
  expect_survival(b, (struct survival){2, 1, 2, 1});
}

Test(cluster_map, zones_come_before_hosts) {
  /* Two zones must give three chunks each: the lone host of its zone holds three, more than m. */
  struct bed *b = bed_new(6, 3, 4, 2);
  for (unsigned h = 1; h < 6; h++) b->hosts[h].zone = (char *)"rack";
  cr_assert_not_null(strstr(refusal(b), "one host would hold 3 of the 6 chunks"));
  free(b);
}

Test(cluster_map, survival_in_words) {
  char words[512];
  struct bed *b = bed_new(3, 2, 4, 2);
  struct cluster_map *map = build(b);
  cluster_map_survival(map, 1, words, sizeof words);
  cr_assert_str_eq(
      words,
      "reads survive the loss of any 1 host, writes of no host; of single drives, reads survive "
      "the loss of any 2 drives, writes of any 1 drive");
  char small[10];
  cluster_map_survival(map, 1, small, sizeof small);
  cr_assert_str_eq(small, "reads sur");
  cluster_map_free(map);
  free(b);
  b = bed_new(1, 3, 2, 1);
  map = build(b);
  cluster_map_survival(map, 1, words, sizeof words);
  cr_assert_str_eq(
      words,
      "reads survive the loss of any 1 drive, writes of any 1 drive; an object written while a "
      "drive is away has no spare chunk until it is healed");
  cluster_map_free(map);
  free(b);
}

Test(cluster_map, names_of_techniques) {
  for (unsigned t = 0; t < TECHNIQUE_COUNT; t++)
    cr_assert_eq(technique_find(technique_name(t)), (int)t);
  cr_assert_eq(technique_find("RS"), ERR_NOT_FOUND);
  cr_assert_str_eq(technique_name(200), "unknown");
}
