/* object_sweep_test.c: undecided rows are found and decided, by one host, in time, and not before.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "storage/object/slots.h"
#include "tests/unit/object/put_bed.h"

#define UNIT 4096u

static struct fake_bed bed;

static struct fake_cluster *open_cluster(void) {
  fake_bed_open(&bed, 8);
  return fake_cluster_open(&bed, 6, 1, 4, 2, "reed_sol_van", UNIT);
}

static void stopped(void *arg) {
  *(bool *)arg = true;
}

static void stop(struct object_sweep *sweep) {
  bool done = false;
  object_sweep_stop(sweep, stopped, &done);
  cr_assert(!done);
  cr_assert(fake_run_while_not(&bed, &done));
}

static bool is_decided(struct fake_cluster *c, const char *key) {
  struct bed_look *l = bed_look(c, key, slots_all(6));
  bool chosen = l->c.verdict == VERDICT_CHOSEN && l->c.flagged == l->c.acked;
  bool absent = l->c.verdict == VERDICT_ABSENT && l->c.dead_count == 0;
  bed_look_free(l);
  return chosen || absent;
}

/* What an earlier run left is taken at the start, however young; on whichever drives it stands. */
Test(object_sweep, at_the_start) {
  struct fake_cluster *c = open_cluster();
  for (unsigned i = 0; i < 60; i++) {
    char key[16];
    snprintf(key, sizeof key, "key%u", i);
    fake_object_store(c, slice_str(key), (const uint8_t *)"data", 4, slots_all(1 + i % 6), 0);
  }
  fake_run_for(&bed, 1); /* older than the sweep */
  for (unsigned i = 0; i < 6; i++) c->drives[i].peer.local = true;
  struct object_sweep *sweep;
  cr_assert_eq(object_sweep_start(&c->objects, &sweep), 0);
  fake_run_for(&bed, 2500);
  for (unsigned i = 0; i < 60; i++) {
    char key[16];
    snprintf(key, sizeof key, "key%u", i);
    cr_assert(is_decided(c, key), "%s", key);
    uint8_t *got = NULL;
    size_t len;
    int err = bed_get(c, key, &got, &len);
    cr_assert_eq(err, i % 6 >= 4 ? 0 : ERR_NO_SUCH_KEY, "%s: %s", key, err_name(err));
    free(got);
  }
  stop(sweep);
  fake_cluster_close(c);
  fake_bed_close(&bed);
}

/* Later: not before 5 s, soon after; by the host of the first slot. */
Test(object_sweep, after_five_seconds_by_the_first_holder) {
  struct fake_cluster *c = open_cluster();
  struct key_place place = fake_place(c, slice_str("key"));
  struct object_sweep *sweep[2];
  struct objects *hosts[2] = {&c->objects, fake_cluster_gateway(c)};
  /* Two hosts, but one struct peer per drive here: `local` is what each has when it asks. So the
   * first has the first slot, the other is only asked for what is not its turn. */
  place.peers[0]->local = true;
  cr_assert_eq(object_sweep_start(hosts[0], &sweep[0]), 0);
  fake_run_for(&bed, 2000);
  fake_object_store(c, slice_str("key"), (const uint8_t *)"data", 4, 0x1f, 0);
  fake_run_for(&bed, 4900);
  cr_assert(!is_decided(c, "key"));
  fake_run_for(&bed, 3500);
  cr_assert(is_decided(c, "key"));
  stop(sweep[0]);
  place.peers[0]->local = false;
  place.peers[3]->local = true; /* not the first holder: waits longer */
  cr_assert_eq(object_sweep_start(hosts[1], &sweep[1]), 0);
  fake_run_for(&bed, 2000);
  fake_object_store(c, slice_str("key"), (const uint8_t *)"new", 3, 0x1f, 0);
  fake_run_for(&bed, 14000);
  cr_assert(!is_decided(c, "key"));
  fake_run_for(&bed, 5000);
  cr_assert(is_decided(c, "key"));
  stop(sweep[1]);
  fake_cluster_close(c);
  fake_bed_close(&bed);
}

/* The first holder is down: the next one up is first. */
Test(object_sweep, the_next_holder_steps_in) {
  struct fake_cluster *c = open_cluster();
  struct key_place place = fake_place(c, slice_str("key"));
  place.peers[1]->local = true;
  struct object_sweep *sweep;
  cr_assert_eq(object_sweep_start(&c->objects, &sweep), 0);
  fake_run_for(&bed, 2000);
  fake_object_store(c, slice_str("key"), (const uint8_t *)"data", 4, 0x1f, 0);
  fake_peer_down(bed_slot(c, "key", 0));
  fake_run_for(&bed, 8500);
  struct bed_look *l = bed_look(c, "key", 0x3e);
  cr_assert_eq(l->c.verdict, VERDICT_CHOSEN); /* four rows in sight, one away: settled */
  bed_look_free(l);
  stop(sweep);
  fake_cluster_close(c);
  fake_bed_close(&bed);
}

/* Keys that cannot be decided now do not stand in the way of others, and are found again. */
Test(object_sweep, undecidable_keys_are_passed_by) {
  struct fake_cluster *c = open_cluster();
  for (unsigned i = 0; i < 6; i++) c->drives[i].peer.local = true;
  for (unsigned i = 0; i < 6; i++) fake_peer_fail(&c->drives[i], PEER_PROMISE, 0, ERR_TIMEOUT);
  for (unsigned i = 0; i < 150; i++) {
    char key[16];
    snprintf(key, sizeof key, "key%u", i);
    fake_object_store(c, slice_str(key), (const uint8_t *)"data", 4, 0x1f, 0);
  }
  struct object_sweep *sweep;
  cr_assert_eq(object_sweep_start(&c->objects, &sweep), 0);
  fake_run_for(&bed, 30000);
  cr_assert(!is_decided(c, "key149"));
  cr_assert_gt(c->objects.stats.resolves, 2 * 150);
  for (unsigned i = 0; i < 6; i++) fake_peer_heal(&c->drives[i]);
  fake_run_for(&bed, 30000);
  for (unsigned i = 0; i < 150; i++) {
    char key[16];
    snprintf(key, sizeof key, "key%u", i);
    cr_assert(is_decided(c, key), "%s", key);
  }
  stop(sweep);
  fake_cluster_close(c);
  fake_bed_close(&bed);
}

/* Stopped at any step: nothing is pending when cb runs, nothing leaks. */
Test(object_sweep, stop_at_every_step) {
  for (unsigned steps = 0; steps < 400; steps += 7) {
    struct fake_cluster *c = open_cluster();
    for (unsigned i = 0; i < 6; i++) c->drives[i].peer.local = true;
    for (unsigned i = 0; i < 20; i++) {
      char key[16];
      snprintf(key, sizeof key, "key%u", i);
      fake_object_store(c, slice_str(key), (const uint8_t *)"data", 4, 0x0f, 0);
    }
    fake_run_for(&bed, 1);
    struct object_sweep *sweep;
    cr_assert_eq(object_sweep_start(&c->objects, &sweep), 0);
    for (unsigned i = 0; i < steps; i++) fake_step(&bed);
    stop(sweep);
    fake_cluster_close(c);
    fake_bed_close(&bed);
  }
}

/* A local drive that fails or hangs does not end the sweep. */
Test(object_sweep, a_drive_that_does_not_answer) {
  struct fake_cluster *c = open_cluster();
  for (unsigned i = 0; i < 6; i++) c->drives[i].peer.local = true;
  fake_object_store(c, slice_str("key"), (const uint8_t *)"data", 4, 0x1f, 0);
  bed_slot(c, "key", 0)->silent = true;
  fake_peer_fail(bed_slot(c, "key", 1), PEER_UNDECIDED, 0, ERR_DRIVE_FAILED);
  struct object_sweep *sweep;
  cr_assert_eq(object_sweep_start(&c->objects, &sweep), 0);
  fake_run_for(&bed, 40000);
  struct bed_look *l = bed_look(c, "key", 0x3e);
  cr_assert_eq(l->c.verdict, VERDICT_CHOSEN);
  cr_assert_geq(slots_count(l->c.flagged), 4);
  bed_look_free(l);
  fake_peer_heal(bed_slot(c, "key", 0));
  stop(sweep);
  fake_cluster_close(c);
  fake_bed_close(&bed);
}
