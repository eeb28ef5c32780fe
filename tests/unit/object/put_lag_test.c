/* put_lag_test.c: a drive that is late but not silent: how long a PUT waits for it, what goes on
 * behind the answer, and when it is left out (PROTOCOL.md 1). */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "storage/object/slots.h"
#include "tests/unit/object/put_bed.h"

#define UNIT 4096u
#define KEY "a/key"
#define BIG (5 * 16 * 4 * UNIT / 2 + 9) /* 4+2: three windows, the last one short */
#define STAGES 3
#define SLOW 2u /* the slot that is late */
#define SLOW_MS 3000
#define SOON_MS 200 /* far below OBJECT_SUSPECT_MS, far above a quick PUT */

static struct fake_bed bed;
static uint8_t *big;

static struct fake_cluster *open_pool(unsigned k, unsigned m) {
  fake_bed_open(&bed, 78);
  big = bed_bytes(BIG, 6);
  return fake_cluster_open(&bed, k + m, 1, k, m, m == 1 ? "xor" : "reed_sol_van", UNIT);
}

static void close_pool(struct fake_cluster *c) {
  fake_run(&bed);
  for (unsigned i = 0; i < c->drive_count; i++) {
    cr_assert_eq(c->drives[i].peer.lag_ops, 0, "counts are given back");
    cr_assert_eq(c->drives[i].peer.lag_bytes, 0);
  }
  fake_cluster_close(c);
  fake_bed_close(&bed);
  free(big);
}

/* From its last STAGE on the drive is slow: the answer to the one before is on its way by now. */
static void slow_after_two(struct fake_cluster *c, struct fake_peer *p,
                           const struct peer_request *req) {
  if (req->verb == PEER_STAGE && p == bed_slot(c, KEY, 5) && req->unit_first == 16)
    bed_slot(c, KEY, SLOW)->delay_ms = SLOW_MS;
}

static void check_whole(struct fake_cluster *c, const struct put_run *r, size_t len) {
  fake_run(&bed);
  uint32_t all = slots_all(c->drive_count);
  cr_assert_eq(fake_slots_chosen(c, slice_str(KEY), &r->result.ver), all);
  slots_foreach(i, all) {
    struct fake_drive *d = &bed_slot(c, KEY, i)->drive;
    cr_assert_eq(fake_drive_heal(d, &c->bucket.uuid, slice_str(KEY), &r->result.ver), 0);
  }
  cr_assert_eq(fake_stages_open(c), 0);
  cr_assert(bed_reads_as(c, KEY, big, len));
}

Test(put_lag, a_late_accept_does_not_hold_the_answer) {
  static const size_t lens[] = {0, 5000};
  for (size_t i = 0; i < ARRAY_LEN(lens); i++) {
    struct fake_cluster *c = open_pool(4, 2);
    bed_slot(c, KEY, SLOW)->delay_ms = SLOW_MS;
    struct put_run r;
    put_run_open(&r, c, KEY, big, lens[i]);
    uint64_t since = bed.now_ms;
    cr_assert_eq(put_run_all(&r), 0);
    cr_assert_geq(bed.now_ms - since, OBJECT_PATIENCE_MS_MIN);
    cr_assert_lt(bed.now_ms - since, SOON_MS);
    cr_assert_eq(r.result.missing, 1u << SLOW);
    check_whole(c, &r, lens[i]);
    close_pool(c);
  }
}

/* The slower the others are, the longer: as long again as W took. */
Test(put_lag, patience_follows_the_others) {
  struct fake_cluster *c = open_pool(4, 2);
  for (unsigned i = 0; i < 6; i++) bed_slot(c, KEY, i)->delay_ms = i == SLOW ? SLOW_MS : 100;
  struct put_run r;
  put_run_open(&r, c, KEY, big, 5000);
  uint64_t since = bed.now_ms;
  cr_assert_eq(put_run_all(&r), 0);
  cr_assert_geq(bed.now_ms - since, 300, "READ, ACCEPT, and once more the ACCEPT's time");
  cr_assert_lt(bed.now_ms - since, 500);
  check_whole(c, &r, 5000);
  close_pool(c);
}

/* No chunk to spare after W acks: the whole second. */
Test(put_lag, without_a_spare_chunk_it_waits) {
  struct fake_cluster *c = open_pool(2, 1);
  bed_slot(c, KEY, SLOW)->delay_ms = SLOW_MS;
  struct put_run r;
  put_run_open(&r, c, KEY, big, 5000);
  uint64_t since = bed.now_ms;
  cr_assert_eq(put_run_all(&r), 0);
  cr_assert_geq(bed.now_ms - since, OBJECT_SUSPECT_MS);
  check_whole(c, &r, 5000);
  put_run_open_delete(&r, c, KEY);
  since = bed.now_ms;
  cr_assert_eq(put_run_all(&r), 0);
  cr_assert_lt(bed.now_ms - since, SOON_MS, "a marker has no chunks");
  close_pool(c);
}

/* The last window is on its way still when the others are asked for their ACCEPT; the late drive
 * has its own right behind, and lacks nothing in the end. */
Test(put_lag, a_late_stage_trails) {
  for (unsigned conditional = 0; conditional <= 1; conditional++) {
    struct fake_cluster *c = open_pool(4, 2);
    c->on_request = slow_after_two;
    struct put_run r;
    put_run_open(&r, c, KEY, big, BIG);
    r.args.conditions.if_none_match_any = conditional;
    uint64_t since = bed.now_ms;
    cr_assert_eq(put_run_all(&r), 0);
    cr_assert_lt(bed.now_ms - since, SOON_MS);
    struct fake_peer *p = bed_slot(c, KEY, SLOW);
    cr_assert_eq(p->calls_of[PEER_STAGE], STAGES - 1, "the last is still under way");
    cr_assert_eq(p->peer.lag_ops, 1);
    cr_assert_gt(p->peer.lag_bytes, 0);
    check_whole(c, &r, BIG);
    cr_assert_eq(p->calls_of[PEER_STAGE], STAGES);
    close_pool(c);
  }
}

/* It fails in the end: the others heal it, and nothing of it is left. */
Test(put_lag, a_late_stage_that_fails_is_healed) {
  static const int errs[] = {ERR_NO_SPACE, ERR_TIMEOUT, ERR_DRIVE_FAILED};
  for (size_t e = 0; e < ARRAY_LEN(errs); e++) {
    struct fake_cluster *c = open_pool(4, 2);
    c->on_request = slow_after_two;
    struct fake_peer *p = bed_slot(c, KEY, SLOW);
    fake_peer_fail(p, PEER_STAGE, STAGES, errs[e]);
    struct put_run r;
    put_run_open(&r, c, KEY, big, BIG);
    cr_assert_eq(put_run_all(&r), 0);
    fake_run(&bed);
    cr_assert_eq(p->calls_of[PEER_ACCEPT], 0);
    slots_foreach(i, slots_all(6) & ~(1u << SLOW)) {
      struct fake_drive *d = &bed_slot(c, KEY, i)->drive;
      uint32_t heal = fake_drive_heal(d, &c->bucket.uuid, slice_str(KEY), &r.result.ver);
      cr_assert_eq(heal, 1u << SLOW);
    }
    cr_assert_eq(fake_stages_open(c), 0);
    close_pool(c);
  }
}

/* Its stage ends when the outcome is unknown: no ACCEPT that nobody waits for, and no stage left.
 */
Test(put_lag, a_late_stage_of_a_lost_put_is_dropped) {
  struct fake_cluster *c = open_pool(4, 2);
  c->on_request = slow_after_two;
  for (unsigned i = 4; i < 6; i++) fake_peer_fail(bed_slot(c, KEY, i), PEER_ACCEPT, 1, ERR_TIMEOUT);
  struct put_run r;
  put_run_open(&r, c, KEY, big, BIG);
  cr_assert_eq(put_run_all(&r), ERR_UNKNOWN_OUTCOME);
  fake_run(&bed);
  struct fake_peer *p = bed_slot(c, KEY, SLOW);
  cr_assert_eq(p->calls_of[PEER_STAGE], STAGES);
  cr_assert_eq(p->calls_of[PEER_ACCEPT], 0);
  for (unsigned i = 0; i < 4; i++) fake_drive_crash(&bed_slot(c, KEY, 4 + i % 2)->drive);
  cr_assert_eq(fake_stages_open(c), 0);
  close_pool(c);
}

/* W-1 acks and the late drive's: it decides, so it is waited for. */
Test(put_lag, a_late_stage_can_decide) {
  struct fake_cluster *c = open_pool(4, 2);
  c->on_request = slow_after_two;
  fake_peer_fail(bed_slot(c, KEY, 5), PEER_ACCEPT, 1, ERR_TIMEOUT);
  struct put_run r;
  put_run_open(&r, c, KEY, big, BIG);
  uint64_t since = bed.now_ms;
  cr_assert_eq(put_run_all(&r), 0);
  cr_assert_geq(bed.now_ms - since, SLOW_MS);
  cr_assert_eq(r.result.missing, 1u << 5);
  fake_run(&bed);
  cr_assert(bed_reads_as(c, KEY, big, BIG));
  close_pool(c);
}

/* Buffers behind a slow drive are bounded: it is left out until it has caught up. */
Test(put_lag, a_drive_that_lags_is_left_out) {
  for (unsigned small = 0; small <= 1; small++) {
    struct fake_cluster *c = open_pool(4, 2);
    struct fake_peer *p = bed_slot(c, KEY, SLOW);
    p->delay_ms = SLOW_MS;
    size_t len = small ? 5000 : 200000;
    unsigned rounds = 0;
    uint64_t since = bed.now_ms, last = 0;
    struct put_run r;
    do {
      cr_assert_lt(++rounds, OBJECT_LAG_OPS_MAX + 2);
      last = bed.now_ms;
      p->peer.suspect = false; /* late, not silent */
      put_run_open(&r, c, KEY, big, len);
      cr_assert_eq(put_run_all(&r), 0);
    } while (bed.now_ms - last >= OBJECT_PATIENCE_MS_MIN);
    cr_assert_gt(rounds, 2);
    if (small) cr_assert_eq(rounds, OBJECT_LAG_OPS_MAX + 1, "%u", rounds);
    cr_assert_lt(bed.now_ms - since, SLOW_MS, "the first is still under way");
    cr_assert_leq(p->peer.lag_ops, OBJECT_LAG_OPS_MAX);
    cr_assert_leq(p->peer.lag_bytes, OBJECT_LAG_BYTES_MAX + 2 * 6 * 16 * UNIT);
    fake_run(&bed);
    uint32_t heal = fake_drive_heal(&bed_slot(c, KEY, 0)->drive, &c->bucket.uuid, slice_str(KEY),
                                    &r.result.ver);
    cr_assert_eq(heal, 1u << SLOW, "what it was not asked for is in the heal queue");
    p->delay_ms = 1;
    put_run_open(&r, c, KEY, big, len);
    cr_assert_eq(put_run_all(&r), 0);
    check_whole(c, &r, len);
    close_pool(c);
  }
}

/* One may be left out of 4+2, not two: W = 5 are needed. */
Test(put_lag, no_more_than_can_be_spared_are_left_out) {
  struct fake_cluster *c = open_pool(4, 2);
  for (unsigned i = 0; i < 2; i++) bed_slot(c, KEY, i)->peer.lag_ops = OBJECT_LAG_OPS_MAX;
  struct put_run r;
  put_run_open(&r, c, KEY, big, 5000);
  cr_assert_eq(put_run_all(&r), 0);
  cr_assert_eq(slots_count(r.result.missing), 1);
  fake_peer_down(bed_slot(c, KEY, 5));
  put_run_open(&r, c, KEY, big, 5000);
  cr_assert_eq(put_run_all(&r), 0);
  cr_assert_eq(r.result.missing, 1u << 5);
  fake_run(&bed);
  for (unsigned i = 0; i < 2; i++) bed_slot(c, KEY, i)->peer.lag_ops = 0;
  close_pool(c);
}
