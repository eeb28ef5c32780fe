/* settle_test.c: a version that might be chosen becomes chosen, with rebuilt chunks; or it is said
 * why not. */
#include "storage/object/settle.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "storage/object/slots.h"
#include "tests/unit/object/put_bed.h"

#define UNIT 4096u
#define KEY "a/key"

static struct fake_bed bed;

static struct fake_cluster *open_cluster(unsigned k, unsigned m) {
  fake_bed_open(&bed, 5);
  return fake_cluster_open(&bed, k + m, 1, k, m, m == 1 ? "xor" : "reed_sol_van", UNIT);
}

static void close_cluster(struct fake_cluster *c) {
  fake_cluster_close(c);
  fake_bed_close(&bed);
}

struct run {
  bool done;
  int err;
};

static void settled(void *arg, int err) {
  struct run *r = arg;
  FAKE_CHECK(!r->done);
  r->done = true;
  r->err = err;
}

/* Settles what classify finds at `slots`; at its own version or a new one. Returns the version. */
static int settle(struct fake_cluster *c, uint32_t slots, bool at_own, struct version *ret_ver) {
  struct bed_look *l = bed_look(c, KEY, slots);
  struct run r = {0};
  FAKE_CHECK(l->c.verdict == VERDICT_UNDETERMINED || l->c.verdict == VERDICT_CHOSEN);
  *ret_ver = at_own ? l->c.row.ver : objects_mint(&c->objects, &l->c.seen);
  cr_assert_eq(settle_start(&c->objects, &l->place, slice_str(KEY), &l->c.row, ret_ver,
                            at_own ? l->c.acked : 0, l->c.healthy, settled, &r),
               0);
  bed_look_free(l); /* it copied what it needs */
  cr_assert(!r.done);
  cr_assert(fake_run_while_not(&bed, &r.done));
  return r.err;
}

static const size_t lens[] = {0, 1, 5000, 65536, 65537, 900001};

/* Every size, every drive in turn away, rolled forward and re-proposed. */
Test(settle, every_size_and_drive) {
  for (size_t l = 0; l < ARRAY_LEN(lens); l++) {
    for (unsigned at_own = 0; at_own <= 1; at_own++) {
      for (unsigned down = 0; down < 6; down++) {
        struct fake_cluster *c = open_cluster(4, 2);
        uint8_t *data = bed_bytes(lens[l], 3);
        uint32_t holders = slots_all(6) & ~(1u << down) & ~(1u << (down + 1) % 6);
        struct fake_object old = fake_object_store(c, slice_str(KEY), data, lens[l], holders, 0);
        fake_peer_down(bed_slot(c, KEY, down));
        struct version ver;
        cr_assert_eq(settle(c, slots_all(6) & ~(1u << down), at_own, &ver), 0);
        uint32_t five = slots_all(6) & ~(1u << down);
        cr_assert_eq(fake_slots_with_row(c, slice_str(KEY), &ver), five);
        fake_run(&bed);
        cr_assert_eq(fake_slots_chosen(c, slice_str(KEY), &ver), five);
        if (lens[l]) cr_assert_eq(fake_slots_with_chunk(c, slice_str(KEY), &old.data_id), five);
        cr_assert_eq(fake_drive_heal(&bed_slot(c, KEY, (down + 2) % 6)->drive, &c->bucket.uuid,
                                     slice_str(KEY), &ver),
                     1u << down);
        cr_assert(bed_reads_as(c, KEY, data, lens[l]));
        cr_assert_eq(fake_stages_open(c), 0);
        cr_assert_eq(c->objects.stats.roll_forwards, at_own);
        free(data);
        close_cluster(c);
      }
    }
  }
}

Test(settle, a_tombstone) {
  struct fake_cluster *c = open_cluster(2, 2);
  fake_tomb_store(c, slice_str(KEY), 0x3, 0);
  fake_peer_down(bed_slot(c, KEY, 3));
  struct version ver;
  cr_assert_eq(settle(c, 0x7, true, &ver), 0);
  fake_run(&bed);
  cr_assert_eq(fake_slots_chosen(c, slice_str(KEY), &ver), 0x7);
  close_cluster(c);
}

/* A drive that cannot read its rows of the key has no chunk to be rebuilt: a marker has none. Found
 * by the simulator. */
Test(settle, a_tombstone_where_a_drive_cannot_read_its_rows) {
  for (unsigned at_own = 0; at_own <= 1; at_own++) {
    struct fake_cluster *c = open_cluster(2, 2);
    fake_object_store(c, slice_str(KEY), (const uint8_t *)"old", 3, 0xf, 0xf);
    fake_run_for(&bed, 5);
    fake_tomb_store(c, slice_str(KEY), 0x3, 0);
    fake_peer_fail(bed_slot(c, KEY, 2), PEER_ACCEPT, 1, ERR_CORRUPT);
    struct version ver;
    cr_assert_eq(settle(c, 0x7, at_own, &ver), 0);
    fake_run(&bed);
    cr_assert_eq(fake_slots_chosen(c, slice_str(KEY), &ver), 0xb);
    close_cluster(c);
  }
}

/* A higher promise stands in the way. */
Test(settle, promised) {
  struct fake_cluster *c = open_cluster(4, 2);
  fake_object_store(c, slice_str(KEY), (const uint8_t *)"data", 4, 0x0f, 0);
  struct key_place place = fake_place(c, slice_str(KEY));
  for (unsigned i = 3; i < 6; i++) {
    struct peer_call call = {0};
    objects_request(&c->objects, &place, i, slice_str(KEY), PEER_PROMISE, &call);
    call.req.ver.hlc = (FAKE_WALL_START_MS + 30000) << VERSION_HLC_SHIFT;
    fake_drive_serve(&bed_slot(c, KEY, i)->drive, &call.req, &call.reply);
    peer_call_release(&call);
  }
  struct version ver;
  cr_assert_eq(settle(c, slots_all(6) & ~(1u << 5), true, &ver), ERR_PROMISED);
  fake_run(&bed);
  cr_assert_eq(fake_slots_chosen(c, slice_str(KEY), &ver), 0);
  cr_assert_eq(fake_stages_open(c), 0);
  close_cluster(c);
}

/* Too few chunks to rebuild, too few drives to ask. */
Test(settle, out_of_reach) {
  for (unsigned how = 0; how < 3; how++) {
    struct fake_cluster *c = open_cluster(4, 2);
    uint8_t *data = bed_bytes(200000, 3);
    struct fake_object old = fake_object_store(c, slice_str(KEY), data, 200000, 0x0f, 0);
    if (how == 0) fake_drive_drop_chunk(&bed_slot(c, KEY, 2)->drive, &old.data_id);
    if (how == 1) fake_peer_fail(bed_slot(c, KEY, 4), PEER_STAGE, 0, ERR_NO_SPACE);
    if (how == 2) fake_peer_down(bed_slot(c, KEY, 4));
    fake_peer_down(bed_slot(c, KEY, 5));
    struct version ver;
    cr_assert_eq(settle(c, 0x1f & ~(how == 2 ? 1u << 4 : 0), false, &ver), ERR_UNAVAILABLE);
    fake_run(&bed);
    cr_assert_eq(fake_slots_chosen(c, slice_str(KEY), &ver), 0);
    cr_assert_eq(fake_stages_open(c), 0);
    free(data);
    close_cluster(c);
  }
}

/* A rotten source is noticed: another chunk is read, and the rebuilt one is the row's. */
Test(settle, a_rotten_source) {
  for (unsigned rotten = 0; rotten < 3; rotten++) {
    struct fake_cluster *c = open_cluster(2, 4); /* W = 4: one chunk has to be rebuilt at least */
    uint8_t *data = bed_bytes(300000, 3);
    struct fake_object old = fake_object_store(c, slice_str(KEY), data, 300000, 0x07, 0);
    cr_assert(fake_drive_corrupt_unit(&bed_slot(c, KEY, rotten)->drive, &old.data_id, 2));
    fake_peer_down(bed_slot(c, KEY, 5));
    struct version ver;
    cr_assert_eq(settle(c, 0x1f, false, &ver), 0);
    fake_run(&bed);
    cr_assert_eq(fake_slots_with_chunk(c, slice_str(KEY), &old.data_id), 0x1f);
    for (unsigned i = 0; i < 3; i++) fake_peer_down(bed_slot(c, KEY, i));
    fake_peer_up(bed_slot(c, KEY, 5)); /* the two that were rebuilt are all that is left */
    cr_assert(bed_reads_as(c, KEY, data, 300000), "rotten %u", rotten);
    free(data);
    close_cluster(c);
  }
}

/* A drive that never answers does not hold the callback back once W have acked. */
Test(settle, a_silent_drive) {
  struct fake_cluster *c = open_cluster(4, 2);
  uint8_t *data = bed_bytes(200000, 3);
  fake_object_store(c, slice_str(KEY), data, 200000, 0x0f, 0);
  bed_slot(c, KEY, 5)->silent = true;
  struct version ver;
  uint64_t since = bed.now_ms;
  cr_assert_eq(settle(c, 0x1f, true, &ver), 0);
  cr_assert_lt(bed.now_ms - since, 500);
  fake_run(&bed);
  cr_assert_eq(fake_drive_heal(&bed_slot(c, KEY, 0)->drive, &c->bucket.uuid, slice_str(KEY), &ver),
               1u << 5);
  free(data);
  close_cluster(c);
}

/* Each call of each drive fails once: never a wrong verdict, nothing left behind. */
Test(settle, every_call_fails_once) {
  static const enum peer_verb verbs[] = {PEER_FETCH, PEER_STAGE, PEER_ACCEPT};
  for (size_t v = 0; v < ARRAY_LEN(verbs); v++) {
    for (unsigned slot = 0; slot < 5; slot++) {
      for (unsigned nth = 1; nth <= 3; nth++) {
        struct fake_cluster *c = open_cluster(4, 2);
        uint8_t *data = bed_bytes(500000, 3);
        fake_object_store(c, slice_str(KEY), data, 500000, 0x0f, 0);
        fake_peer_fail(bed_slot(c, KEY, slot), verbs[v], nth, ERR_TIMEOUT);
        struct version ver;
        int err = settle(c, 0x1f, true, &ver); /* all six are up: 4 hold it, 2 can be rebuilt */
        cr_assert(err == 0 || err == ERR_UNAVAILABLE, "%s", err_name(err));
        cr_assert(verbs[v] != PEER_ACCEPT || err == 0);
        fake_run(&bed);
        unsigned rows = slots_count(fake_slots_with_row(c, slice_str(KEY), &ver));
        cr_assert_eq(err == 0, rows >= 5);
        cr_assert(bed_reads_as(c, KEY, data, 500000) || err < 0);
        free(data);
        close_cluster(c);
      }
    }
  }
}

Test(settle, commit_goes_to_those_it_names) {
  struct fake_cluster *c = open_cluster(2, 2);
  struct fake_object old = fake_object_store(c, slice_str(KEY), (const uint8_t *)"x", 1, 0xf, 0);
  struct key_place place = fake_place(c, slice_str(KEY));
  commit_send(&c->objects, &place, slice_str(KEY), &old.ver, 0x8, 0x5);
  fake_run(&bed);
  cr_assert_eq(fake_slots_chosen(c, slice_str(KEY), &old.ver), 0x5);
  cr_assert_eq(
      fake_drive_heal(&bed_slot(c, KEY, 2)->drive, &c->bucket.uuid, slice_str(KEY), &old.ver), 0x8);
  cr_assert_eq(fake_calls(c, PEER_COMMIT), 2);
  commit_send(&c->objects, &place, slice_str(KEY), &old.ver, 0, 0); /* nobody: nothing */
  close_cluster(c);
}
