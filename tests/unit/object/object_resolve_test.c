/* object_resolve_test.c: RESOLVE decides every key for good: forward what might be chosen, back
 * what cannot be; and it never undoes what was acknowledged. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "storage/object/slots.h"
#include "tests/unit/object/put_bed.h"

#define UNIT 4096u
#define KEY "a/key"

static struct fake_bed bed;

static struct fake_cluster *open_cluster(void) {
  fake_bed_open(&bed, 6);
  return fake_cluster_open(&bed, 6, 1, 4, 2, "reed_sol_van", UNIT);
}

static void close_cluster(struct fake_cluster *c) {
  fake_cluster_close(c);
  fake_bed_close(&bed);
}

struct run {
  bool done;
  int err;
};

static void resolved(void *arg, int err) {
  struct run *r = arg;
  FAKE_CHECK(!r->done);
  r->done = true;
  r->err = err;
}

static int resolve(struct fake_cluster *c) {
  struct run r = {0};
  cr_assert_eq(
      object_resolve_start(&c->objects, c->pool, &c->bucket.uuid, slice_str(KEY), resolved, &r), 0);
  cr_assert(!r.done);
  cr_assert(fake_run_while_not(&bed, &r.done));
  return r.err;
}

static struct version newest(struct fake_cluster *c, unsigned slot) {
  struct fake_row *row =
      fake_drive_newest(&bed_slot(c, KEY, slot)->drive, &c->bucket.uuid, slice_str(KEY));
  return row ? row->ver : (struct version){0};
}

Test(object_resolve, nothing_there) {
  struct fake_cluster *c = open_cluster();
  cr_assert_eq(resolve(c), 0);
  cr_assert(bed_is_empty(c));
  cr_assert_eq(c->objects.stats.resolves, 1);
  close_cluster(c);
}

/* Rows on s drives above a chosen older version, everybody in sight: below W it goes, from W on it
 * stays and gets its flags; PROTOCOL.md 8, C1 to C3, "after heal". */
Test(object_resolve, decided_by_counting) {
  for (unsigned s = 1; s <= 6; s++) {
    for (unsigned tomb = 0; tomb <= 1; tomb++) {
      struct fake_cluster *c = open_cluster();
      uint8_t *data = bed_bytes(100000, 3);
      struct slice key = slice_str(KEY);
      struct fake_object old = fake_object_store(c, key, data, 100000, slots_all(6), slots_all(6));
      fake_run_for(&bed, 5);
      struct fake_object newer = tomb ? fake_tomb_store(c, key, slots_all(s), 0)
                                      : fake_object_store(c, key, data, 5000, slots_all(s), 0);
      cr_assert_eq(resolve(c), 0);
      fake_run(&bed);
      uint32_t rows = fake_slots_with_row(c, key, &newer.ver);
      if (s < 5) {
        cr_assert_eq(rows, 0, "s %u", s);
        cr_assert_eq(fake_slots_chosen(c, key, &old.ver), slots_all(6));
        cr_assert(bed_reads_as(c, KEY, data, 100000));
        cr_assert_eq(c->objects.stats.discards, 1);
      } else {
        cr_assert_eq(rows, slots_all(s), "s %u", s);
        cr_assert_eq(fake_slots_chosen(c, key, &newer.ver), slots_all(s));
        /* No flag was in sight: the drive without a row is to be healed. */
        cr_assert_eq(fake_drive_heal(&bed_slot(c, KEY, 0)->drive, &c->bucket.uuid, key, &newer.ver),
                     slots_all(6) & ~slots_all(s), "s %u tomb %u", s, tomb);
        if (!tomb) cr_assert(bed_reads_as(c, KEY, data, 5000));
      }
      free(data);
      close_cluster(c);
    }
  }
}

/* A drive missed the chosen version and has an older row that nobody ever flagged there: it goes,
 * or every sweep would find it again. An older row with its flag waits for heal. */
Test(object_resolve, older_row_where_the_chosen_one_is_missing) {
  for (unsigned flagged = 0; flagged <= 1; flagged++) {
    struct fake_cluster *c = open_cluster();
    uint8_t *data = bed_bytes(100000, 3);
    struct slice key = slice_str(KEY);
    uint32_t flags = flagged ? 0x3f : 0x1f;
    struct fake_object old = fake_object_store(c, key, data, 100000, 0x3f, flags);
    fake_run_for(&bed, 5);
    struct fake_object newer = fake_object_store(c, key, data, 5000, 0x1f, 0x1f);
    cr_assert_eq(resolve(c), 0);
    fake_run(&bed);
    cr_assert_eq(fake_slots_with_row(c, key, &old.ver) & 0x20, flagged ? 0x20 : 0);
    cr_assert_eq(fake_slots_chosen(c, key, &newer.ver), 0x1f);
    cr_assert(bed_reads_as(c, KEY, data, 5000));
    free(data);
    close_cluster(c);
  }
}

/* One drive away and s = 4: it might be chosen, so it is settled above the promise, once for all.
 */
Test(object_resolve, undetermined_goes_forward) {
  for (unsigned tomb = 0; tomb <= 1; tomb++) {
    struct fake_cluster *c = open_cluster();
    uint8_t *data = bed_bytes(100000, 3);
    struct slice key = slice_str(KEY);
    fake_object_store(c, key, data, 5000, slots_all(6), slots_all(6));
    fake_run_for(&bed, 5);
    struct fake_object newer =
        tomb ? fake_tomb_store(c, key, 0x0f, 0) : fake_object_store(c, key, data, 100000, 0x0f, 0);
    fake_peer_down(bed_slot(c, KEY, 5));
    cr_assert_eq(resolve(c), 0);
    fake_run(&bed);
    struct version ver = newest(c, 0);
    cr_assert_gt(version_cmp(&ver, &newer.ver), 0);
    cr_assert_eq(fake_slots_chosen(c, key, &ver), 0x1f);
    fake_peer_up(bed_slot(c, KEY, 5));
    for (unsigned again = 0; again < 2; again++) { /* it never flips back */
      cr_assert_eq(resolve(c), 0);
      fake_run(&bed);
      struct version now = newest(c, 0);
      cr_assert_eq(version_cmp(&now, &ver), 0);
    }
    uint8_t *got;
    size_t len;
    if (tomb)
      cr_assert_eq(bed_get(c, KEY, &got, &len), ERR_NO_SUCH_KEY);
    else
      cr_assert(bed_reads_as(c, KEY, data, 100000));
    free(data);
    close_cluster(c);
  }
}

/* Several dead versions on top of each other. */
Test(object_resolve, many_dead_rows) {
  struct fake_cluster *c = open_cluster();
  struct slice key = slice_str(KEY);
  struct fake_object old =
      fake_object_store(c, key, (const uint8_t *)"old", 3, slots_all(6), slots_all(6));
  for (unsigned i = 0; i < 4; i++) {
    fake_run_for(&bed, 5);
    fake_object_store(c, key, (const uint8_t *)"dead", 4, 1u << i, 0);
  }
  cr_assert_eq(resolve(c), 0);
  fake_run(&bed);
  for (unsigned i = 0; i < 6; i++) {
    struct version ver = newest(c, i);
    cr_assert_eq(version_cmp(&ver, &old.ver), 0);
    cr_assert_eq(fake_drive_row_count(&bed_slot(c, KEY, i)->drive), 1);
  }
  close_cluster(c);
}

/* More dead rows on one drive than a reply holds (PUTs that only their own host's drive took): the
 * key is not lost for ever. Found by the simulator. */
Test(object_resolve, more_dead_rows_than_a_reply_holds) {
  struct fake_cluster *c = open_cluster();
  struct slice key = slice_str(KEY);
  struct fake_object old =
      fake_object_store(c, key, (const uint8_t *)"old", 3, slots_all(6), slots_all(6));
  for (unsigned i = 0; i < 3 * PEER_ROWS_MAX; i++) {
    fake_run_for(&bed, 5);
    fake_object_store(c, key, (const uint8_t *)"dead", 4, i % 3 ? 0x01 : 0x04, 0);
  }
  cr_assert_eq(resolve(c), 0);
  fake_run(&bed);
  for (unsigned i = 0; i < 6; i++) {
    struct version ver = newest(c, i);
    cr_assert_eq(version_cmp(&ver, &old.ver), 0);
    cr_assert_eq(fake_drive_row_count(&bed_slot(c, KEY, i)->drive), 1);
  }
  cr_assert(bed_reads_as(c, KEY, (const uint8_t *)"old", 3));
  close_cluster(c);
}

/* A flag in sight: its coordinator named the drives it missed; one that is away is not added. */
Test(object_resolve, a_flag_means_its_coordinator_lived) {
  struct fake_cluster *c = open_cluster();
  struct slice key = slice_str(KEY);
  struct fake_object o = fake_object_store(c, key, (const uint8_t *)"x", 1, slots_all(6), 0x02);
  fake_peer_down(bed_slot(c, KEY, 5));
  cr_assert_eq(resolve(c), 0);
  fake_run(&bed);
  cr_assert_eq(fake_slots_chosen(c, key, &o.ver), 0x1f);
  for (unsigned i = 0; i < 5; i++)
    cr_assert_eq(fake_drive_heal(&bed_slot(c, KEY, i)->drive, &c->bucket.uuid, key, &o.ver), 0);
  close_cluster(c);
}

Test(object_resolve, too_few_drives) {
  struct fake_cluster *c = open_cluster();
  fake_object_store(c, slice_str(KEY), (const uint8_t *)"x", 1, 0x0f, 0);
  fake_peer_down(bed_slot(c, KEY, 4));
  fake_peer_down(bed_slot(c, KEY, 5));
  cr_assert_eq(resolve(c), ERR_UNAVAILABLE);
  struct bed_look *l = bed_look(c, KEY, 0x0f);
  cr_assert_eq(l->c.verdict, VERDICT_UNDETERMINED);
  bed_look_free(l);
  close_cluster(c);
}

/* Every call of every drive fails once: an error leaves it undecided, success leaves it decided;
 * never does an acknowledged version go. */
Test(object_resolve, every_call_fails_once) {
  for (unsigned verb = 1; verb < PEER_VERB_END; verb++) {
    for (unsigned slot = 0; slot < 6; slot++) {
      for (unsigned lose = 0; lose <= 1; lose++) {
        struct fake_cluster *c = open_cluster();
        uint8_t *data = bed_bytes(100000, 3);
        struct slice key = slice_str(KEY);
        fake_object_store(c, key, data, 100000, 0x1f, 0); /* W rows: chosen, nobody knows */
        fake_run_for(&bed, 5);
        fake_object_store(c, key, data, 99999, 0x20, 0); /* and one that is dead */
        if (lose)
          fake_peer_lose_answer(bed_slot(c, KEY, slot), verb, 1, ERR_TIMEOUT);
        else
          fake_peer_fail(bed_slot(c, KEY, slot), verb, 1, ERR_TIMEOUT);
        int err = resolve(c);
        fake_run(&bed);
        cr_assert_eq(err, 0, "verb %u slot %u: %s", verb, slot, err_name(err));
        cr_assert(bed_reads_as(c, KEY, data, 100000));
        free(data);
        close_cluster(c);
      }
    }
  }
}

/* Resolvers and writers of one key at several gateways at once: all of them end. */
Test(object_resolve, against_others) {
  struct fake_cluster *c = open_cluster();
  uint8_t *data = bed_bytes(100000, 3);
  fake_object_store(c, slice_str(KEY), data, 100000, 0x0f, 0);
  fake_peer_down(bed_slot(c, KEY, 5));
  struct objects *gateways[3] = {&c->objects, fake_cluster_gateway(c), fake_cluster_gateway(c)};
  struct run runs[9] = {{0}};
  for (unsigned i = 0; i < 6; i++) bed_slot(c, KEY, i)->jitter_ms = 7;
  for (unsigned i = 0; i < 9; i++) {
    cr_assert_eq(object_resolve_start(gateways[i % 3], c->pool, &c->bucket.uuid, slice_str(KEY),
                                      resolved, &runs[i]),
                 0);
  }
  unsigned decided = 0;
  for (unsigned i = 0; i < 9; i++) {
    cr_assert(fake_run_while_not(&bed, &runs[i].done));
    decided += runs[i].err == 0;
    cr_assert(runs[i].err == 0 || runs[i].err == ERR_CONFLICT || runs[i].err == ERR_UNAVAILABLE);
  }
  cr_assert_geq(decided, 1);
  fake_run(&bed);
  cr_assert(bed_reads_as(c, KEY, data, 100000));
  free(data);
  close_cluster(c);
}
