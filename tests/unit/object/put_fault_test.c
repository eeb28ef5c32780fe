/* put_fault_test.c: PUT while drives fail, hang, refuse, fill up; bodies that end badly; cancels.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "storage/object/slots.h"
#include "tests/unit/object/put_bed.h"

#define UNIT 4096u
#define KEY "a/key"
#define BIG (5 * 16 * 4 * UNIT / 2 + 9) /* 4+2: three windows, the last one short */

static struct fake_bed bed;
static uint8_t *big;

static struct fake_cluster *open_cluster(void) {
  fake_bed_open(&bed, 77);
  big = bed_bytes(BIG, 5);
  return fake_cluster_open(&bed, 6, 1, 4, 2, "reed_sol_van", UNIT);
}

static void close_cluster(struct fake_cluster *c) {
  fake_cluster_close(c);
  fake_bed_close(&bed);
  free(big);
}

/* A PUT that lost the drives in `lost` succeeded: the others hold it, flagged, and name the lost
 * ones for healing; nothing is left staged. */
static void check_degraded(struct fake_cluster *c, const struct put_run *r, size_t len,
                           uint32_t lost) {
  fake_run(&bed);
  struct slice key = slice_str(KEY);
  uint32_t chosen = fake_slots_chosen(c, key, &r->result.ver);
  cr_assert_eq(chosen & ~lost, slots_all(6) & ~lost, "chosen %x, lost %x", chosen, lost);
  slots_foreach(i, chosen & ~lost) {
    uint32_t heal =
        fake_drive_heal(&bed_slot(c, KEY, i)->drive, &c->bucket.uuid, key, &r->result.ver);
    cr_assert_eq(heal, lost, "slot %u would heal %x, lost are %x", i, heal, lost);
  }
  cr_assert_eq(fake_stages_open(c), 0);
  cr_assert(bed_reads_as(c, KEY, big, len));
}

/* Every drive in turn fails the nth call of a verb, in every way. */
static void one_failure(enum peer_verb verb, unsigned nth, size_t len, int err, bool executed) {
  for (unsigned slot = 0; slot < 6; slot++) {
    struct fake_cluster *c = open_cluster();
    struct fake_peer *p = bed_slot(c, KEY, slot);
    if (executed)
      fake_peer_lose_answer(p, verb, nth, err);
    else
      fake_peer_fail(p, verb, nth, err);
    struct put_run r;
    put_run_open(&r, c, KEY, big, len);
    cr_assert_eq(put_run_all(&r), 0, "%s", err_name(r.result.err));
    uint32_t lost = verb == PEER_READ ? 0 : 1u << slot;
    cr_assert_eq(r.result.missing, lost);
    check_degraded(c, &r, len, lost);
    close_cluster(c);
  }
}

Test(put_fault, each_drive_fails_each_step_once) {
  static const int errs[] = {ERR_PEER_DOWN, ERR_TIMEOUT, ERR_NO_SPACE, ERR_DRIVE_FAILED,
                             ERR_CORRUPT};
  for (size_t e = 0; e < ARRAY_LEN(errs); e++) {
    one_failure(PEER_READ, 1, 100, errs[e], false);
    one_failure(PEER_STAGE, 1, BIG, errs[e], false);
    one_failure(PEER_STAGE, 3, BIG, errs[e], false);
    one_failure(PEER_ACCEPT, 1, 100, errs[e], false);
    one_failure(PEER_ACCEPT, 1, 0, errs[e], false);
  }
}

/* A stage whose drive lost an ACCEPT stays with the drive's connection; dropped where it refused.
 */
Test(put_fault, each_drive_fails_the_accept_of_a_staged_chunk) {
  one_failure(PEER_ACCEPT, 1, BIG, ERR_NO_CHUNK, false);
  one_failure(PEER_ACCEPT, 1, BIG, ERR_STALE_EPOCH, false);
}

/* The drive did it, the answer is lost: counted as missing, and yet it holds the row. */
Test(put_fault, each_drives_ack_is_lost) {
  one_failure(PEER_ACCEPT, 1, 100, ERR_TIMEOUT, true);
  one_failure(PEER_ACCEPT, 1, BIG, ERR_PEER_DOWN, true);
  one_failure(PEER_STAGE, 2, BIG, ERR_TIMEOUT, true);
}

Test(put_fault, each_drive_is_down_from_the_start) {
  for (unsigned slot = 0; slot < 6; slot++) {
    struct fake_cluster *c = open_cluster();
    fake_peer_down(bed_slot(c, KEY, slot));
    struct put_run r;
    put_run_open(&r, c, KEY, big, BIG);
    cr_assert_eq(put_run_all(&r), 0);
    cr_assert_lt(bed.now_ms, 1500, "a drive known to be down is not waited for");
    check_degraded(c, &r, BIG, 1u << slot);
    cr_assert_eq(c->objects.stats.degraded_writes, 1);
    close_cluster(c);
  }
}

/* A drive that goes silent in the middle of the body is left out after OBJECT_SUSPECT_MS, once. */
Test(put_fault, a_silent_drive_is_left_out) {
  for (unsigned slot = 0; slot < 6; slot += 5) {
    struct fake_cluster *c = open_cluster();
    struct fake_peer *p = bed_slot(c, KEY, slot);
    struct put_run r;
    put_run_open(&r, c, KEY, big, BIG);
    put_run_start(&r);
    while (p->calls_of[PEER_STAGE] < 1) cr_assert(fake_step(&bed));
    p->silent = true;
    uint64_t since = bed.now_ms;
    cr_assert_eq(put_run_wait(&r), 0);
    cr_assert_lt(bed.now_ms - since, OBJECT_SUSPECT_MS + 100);
    cr_assert_eq(r.result.missing, 1u << slot);
    fake_peer_heal(p);
    fake_drive_crash(&p->drive); /* its DROP was lost, the connection too */
    check_degraded(c, &r, BIG, 1u << slot);
    close_cluster(c);
  }
}

/* One that is suspect already is not waited for. */
Test(put_fault, a_suspect_straggler_is_not_waited_for) {
  struct fake_cluster *c = open_cluster();
  struct fake_peer *p = bed_slot(c, KEY, 2);
  p->delay_ms = 3000;
  p->peer.suspect = true;
  struct put_run r;
  put_run_open(&r, c, KEY, big, 5000);
  cr_assert_eq(put_run_all(&r), 0);
  cr_assert_lt(bed.now_ms, 1100);
  check_degraded(c, &r, 5000, 0);
  close_cluster(c);
}

/* A straggler that fails after the answer enters the heal queue of the others. */
Test(put_fault, a_straggler_that_fails_is_healed) {
  struct fake_cluster *c = open_cluster();
  struct fake_peer *p = bed_slot(c, KEY, 4);
  p->silent = true;
  struct put_run r;
  put_run_open(&r, c, KEY, big, 5000);
  cr_assert_eq(put_run_all(&r), 0);
  cr_assert_eq(
      fake_drive_heal(&bed_slot(c, KEY, 0)->drive, &c->bucket.uuid, slice_str(KEY), &r.result.ver),
      0);
  check_degraded(c, &r, 5000, 1u << 4);
  close_cluster(c);
}

/* Fewer than W at any step before the ACCEPT: nothing happened, nothing is left. */
Test(put_fault, too_few_drives_while_staging) {
  static const int errs[] = {ERR_PEER_DOWN, ERR_TIMEOUT};
  for (unsigned nth = 1; nth <= 3; nth++) {
    for (size_t e = 0; e < ARRAY_LEN(errs); e++) {
      struct fake_cluster *c = open_cluster();
      fake_peer_fail(bed_slot(c, KEY, 1), PEER_STAGE, nth, errs[e]);
      fake_peer_fail(bed_slot(c, KEY, 5), PEER_STAGE, nth, errs[e]);
      struct put_run r;
      put_run_open(&r, c, KEY, big, BIG);
      cr_assert_eq(put_run_all(&r), ERR_UNAVAILABLE);
      cr_assert(bed_is_empty(c), "already when it answers");
      cr_assert_eq(fake_calls(c, PEER_ACCEPT), 0);
      cr_assert_eq(c->objects.stats.unavailable, 1);
      close_cluster(c);
    }
  }
}

Test(put_fault, no_space_only_when_it_alone_is_the_reason) {
  for (unsigned full = 1; full <= 3; full++) {
    for (unsigned down = 0; down <= 1; down++) {
      for (unsigned small = 0; small <= 1; small++) {
        struct fake_cluster *c = open_cluster();
        for (unsigned i = 0; i < full; i++) bed_slot(c, KEY, i)->drive.full = true;
        if (down) fake_peer_fail(bed_slot(c, KEY, 5), PEER_STAGE, 0, ERR_TIMEOUT);
        struct put_run r;
        put_run_open(&r, c, KEY, big, small ? 100 : BIG);
        int err = put_run_all(&r);
        /* `down` fails the STAGE only: a small object does not notice. */
        int want = full > 1 ? ERR_NO_SPACE : down && !small ? ERR_UNAVAILABLE : 0;
        cr_assert_eq(err, want, "full %u down %u small %u: %s", full, down, small, err_name(err));
        fake_run(&bed);
        /* Small chunks come with the ACCEPT: two that refuse it leave four rows, and a marker
         * under a promise makes sure that they are never taken for the object. */
        if (want != 0 && !small) cr_assert(bed_is_empty(c), "full %u down %u", full, down);
        uint8_t *got;
        size_t len;
        if (want != 0) cr_assert_eq(bed_get(c, KEY, &got, &len), ERR_NO_SUCH_KEY);
        for (unsigned i = 0; i < 6; i++)
          if (want != 0) cr_assert_eq(fake_drive_chunk_count(&c->drives[i].drive), 0);
        close_cluster(c);
      }
    }
  }
}

/* DELETE brings no data and works on full drives. */
Test(put_fault, delete_on_full_drives) {
  struct fake_cluster *c = open_cluster();
  for (unsigned i = 0; i < 6; i++) c->drives[i].drive.full = true;
  struct put_run r;
  put_run_open_delete(&r, c, KEY);
  cr_assert_eq(put_run_all(&r), 0);
  close_cluster(c);
}

/* W-1 acks and no answer from the rest: may or may not have happened. */
Test(put_fault, fewer_than_w_acks_is_unknown) {
  for (unsigned acks = 1; acks < 5; acks++) {
    struct fake_cluster *c = open_cluster();
    for (unsigned i = acks; i < 6; i++)
      fake_peer_fail(bed_slot(c, KEY, i), PEER_ACCEPT, 1, ERR_TIMEOUT);
    struct put_run r;
    put_run_open(&r, c, KEY, big, 5000);
    cr_assert_eq(put_run_all(&r), ERR_UNKNOWN_OUTCOME);
    fake_run(&bed);
    cr_assert_eq(fake_slots_chosen(c, slice_str(KEY), &r.result.ver), 0);
    struct bed_look *l = bed_look(c, KEY, slots_all(6));
    cr_assert_eq(l->c.verdict, VERDICT_ABSENT); /* all six in sight: provably not chosen */
    bed_look_free(l);
    l = bed_look(c, KEY, slots_all(6) & ~(1u << 5));
    cr_assert_eq(l->c.verdict, acks == 4 ? VERDICT_UNDETERMINED : VERDICT_ABSENT);
    bed_look_free(l);
    close_cluster(c);
  }
}

/* Acks that are lost count for nothing here and for everything to the next reader. */
Test(put_fault, lost_acks_are_unknown_and_yet_chosen) {
  struct fake_cluster *c = open_cluster();
  for (unsigned i = 0; i < 2; i++)
    fake_peer_lose_answer(bed_slot(c, KEY, i), PEER_ACCEPT, 1, ERR_TIMEOUT);
  struct put_run r;
  put_run_open(&r, c, KEY, big, 5000);
  cr_assert_eq(put_run_all(&r), ERR_UNKNOWN_OUTCOME);
  fake_run(&bed);
  cr_assert(bed_reads_as(c, KEY, big, 5000));
  close_cluster(c);
}

static void promise_everywhere(struct fake_cluster *c, uint32_t slots, uint64_t ahead_ms,
                               struct version *ret_ver) {
  struct key_place place = fake_place(c, slice_str(KEY));
  *ret_ver = (struct version){(FAKE_WALL_START_MS + bed.now_ms + ahead_ms) << VERSION_HLC_SHIFT, 1};
  slots_foreach(i, slots) {
    struct peer_call call = {0};
    objects_request(&c->objects, &place, i, slice_str(KEY), PEER_PROMISE, &call);
    call.req.ver = *ret_ver;
    fake_drive_serve(&bed_slot(c, KEY, i)->drive, &call.req, &call.reply);
    cr_assert_eq(call.reply.err, 0);
    peer_call_release(&call);
  }
}

static struct version late_promise;
static uint32_t late_slots;

/* Promises appear between the READ and the ACCEPT, as another gateway's would. */
static void promise_before_accept(struct fake_cluster *c, struct fake_peer *p,
                                  const struct peer_request *req) {
  if (req->verb != PEER_ACCEPT || !late_slots) return;
  uint32_t slots = late_slots;
  late_slots = 0;
  promise_everywhere(c, slots, 2000, &late_promise);
}

/* All N refuse: nothing was accepted, so it is tried again above the promise. */
Test(put_fault, refused_everywhere_is_tried_again) {
  struct fake_cluster *c = open_cluster();
  c->on_request = promise_before_accept;
  for (unsigned small = 0; small <= 1; small++) {
    late_slots = slots_all(6);
    struct put_run r;
    size_t len = small ? 100 : BIG;
    put_run_open(&r, c, KEY, big, len);
    cr_assert_eq(put_run_all(&r), 0);
    cr_assert_gt(version_cmp(&r.result.ver, &late_promise), 0);
    check_degraded(c, &r, len, 0);
  }
  close_cluster(c);
}

/* Refused by some, accepted by others: it finds out, and here makes it chosen under a promise. */
Test(put_fault, refused_in_part_is_recovered) {
  for (unsigned refusing = 2; refusing <= 5; refusing++) {
    for (unsigned small = 0; small <= 1; small++) {
      struct fake_cluster *c = open_cluster();
      c->on_request = promise_before_accept;
      late_slots = slots_all(refusing) << (6 - refusing);
      struct put_run r;
      size_t len = small ? 100 : BIG;
      put_run_open(&r, c, KEY, big, len);
      /* Proposed again under a promise above what refused it. */
      cr_assert_eq(put_run_all(&r), 0, "%u %u %s", refusing, small, err_name(r.result.err));
      cr_assert_gt(version_cmp(&r.result.ver, &late_promise), 0);
      check_degraded(c, &r, len, 0);
      close_cluster(c);
    }
  }
}

static unsigned quiet_slot;

static void promise_then_quiet(struct fake_cluster *c, struct fake_peer *p,
                               const struct peer_request *req) {
  promise_before_accept(c, p, req);
  if (req->verb == PEER_PROMISE && p == bed_slot(c, KEY, quiet_slot)) p->mute = true;
}

/* The same with one drive silent in the promise round: 4 rows of 5 seen might be chosen, so it is
 * settled, and the answer is a success. */
Test(put_fault, refused_in_part_and_undetermined_is_settled) {
  for (unsigned small = 0; small <= 1; small++) {
    struct fake_cluster *c = open_cluster();
    c->on_request = promise_then_quiet;
    late_slots = 3u << 4; /* 4 accept, 2 refuse */
    quiet_slot = 5;
    struct put_run r;
    size_t len = small ? 100 : BIG;
    put_run_open(&r, c, KEY, big, len);
    int err = put_run_all(&r);
    cr_assert_eq(err, 0, "%s", err_name(err));
    fake_run(&bed);
    fake_peer_heal(bed_slot(c, KEY, 5));
    cr_assert_eq(slots_count(fake_slots_chosen(c, slice_str(KEY), &r.result.ver)) >= 5, true);
    cr_assert(bed_reads_as(c, KEY, big, len));
    cr_assert_eq(fake_stages_open(c), 0);
    close_cluster(c);
  }
}

/* ---- bodies ---- */

static void body_fails_at(size_t len, size_t at, int err, bool known) {
  struct fake_cluster *c = open_cluster();
  struct put_run r;
  put_run_open(&r, c, KEY, big, len);
  if (!known) r.body.body.length = BODY_LENGTH_UNKNOWN;
  r.body.fail_at = at;
  r.body.err = err;
  cr_assert_eq(put_run_all(&r), err, "at %zu: %s", at, err_name(r.result.err));
  fake_run(&bed);
  cr_assert(bed_is_empty(c), "at %zu", at);
  cr_assert_eq(fake_calls(c, PEER_ACCEPT), 0);
  close_cluster(c);
}

Test(put_fault, a_body_that_fails_leaves_nothing) {
  static const size_t at[] = {
      0, 1, 100, 16 * 4 * UNIT - 1, 16 * 4 * UNIT, 16 * 4 * UNIT + 1, 32 * 4 * UNIT, BIG - 1};
  static const int errs[] = {ERR_CLIENT_GONE, ERR_BODY_SHORT, ERR_BAD_DIGEST};
  for (size_t i = 0; i < ARRAY_LEN(at); i++) {
    body_fails_at(BIG, at[i], errs[i % ARRAY_LEN(errs)], true);
    body_fails_at(BIG, at[i], errs[(i + 1) % ARRAY_LEN(errs)], false);
    if (at[i] < 1000) body_fails_at(1000, at[i], ERR_BODY_INVALID, true);
  }
}

/* The framing's own verdict comes after the last byte (a trailer's checksum). */
Test(put_fault, a_body_whose_end_is_refused) {
  body_fails_at(1000, 1000, ERR_BAD_DIGEST, true);
  body_fails_at(BIG, BIG, ERR_BAD_DIGEST, true);
}

/* More bytes than were declared; fewer. */
Test(put_fault, a_body_of_another_length) {
  for (int difference = -1; difference <= 1; difference += 2) {
    struct fake_cluster *c = open_cluster();
    struct put_run r;
    put_run_open(&r, c, KEY, big, BIG);
    r.body.body.length = BIG - (size_t)difference;
    int err = put_run_all(&r);
    cr_assert_eq(err, difference > 0 ? ERR_BODY_INVALID : ERR_BODY_SHORT);
    fake_run(&bed);
    cr_assert(bed_is_empty(c));
    close_cluster(c);
  }
}

/* Cancelled after every single step of the loop: no leak, and either it never was or it may be. */
static bool cancel_after(unsigned steps, size_t len, bool conditional) {
  struct fake_cluster *c = open_cluster();
  struct put_run r;
  put_run_open(&r, c, KEY, big, len);
  r.args.conditions.if_none_match_any = conditional;
  bed.work_delay_ms = 1;
  put_run_start(&r);
  for (unsigned i = 0; i < steps && !r.done; i++) fake_step(&bed);
  bool early = !r.done;
  if (early) {
    object_put_cancel(r.put);
    object_put_cancel(r.put);
    int err = put_run_wait(&r);
    cr_assert(err == ERR_CANCELLED || err == ERR_UNKNOWN_OUTCOME || err == 0, "%s", err_name(err));
    fake_run(&bed);
    if (err == ERR_CANCELLED)
      cr_assert_eq(fake_slots_with_row(c, slice_str(KEY), &r.result.ver), 0);
    if (err == ERR_CANCELLED) cr_assert_eq(fake_calls(c, PEER_ACCEPT), 0);
    if (err == 0) cr_assert(bed_reads_as(c, KEY, big, len));
    cr_assert_eq(fake_stages_open(c), 0, "after %u steps", steps);
  }
  close_cluster(c);
  return early;
}

Test(put_fault, cancel_at_every_step) {
  static const size_t lens[] = {0, 100, BIG};
  for (size_t l = 0; l < ARRAY_LEN(lens); l++) {
    unsigned steps = 0;
    while (cancel_after(steps, lens[l], false)) steps++;
    cr_assert_gt(steps, 5);
    steps = 0;
    while (cancel_after(steps, lens[l], true)) steps++;
    cr_assert_gt(steps, 10);
  }
}

/* As if the gateway died after so many ACCEPTs: what the next reader makes of it (PROTOCOL.md 8).
 */
Test(put_fault, coordinator_dies_after_so_many_accepts) {
  for (unsigned accepts = 1; accepts <= 6; accepts++) {
    struct fake_cluster *c = open_cluster();
    struct put_run old, r;
    put_run_open(&old, c, KEY, "old", 3);
    cr_assert_eq(put_run_all(&old), 0);
    fake_run(&bed);
    for (unsigned i = 0; i < 6; i++) {
      struct fake_peer *p = bed_slot(c, KEY, i);
      if (i >= accepts) fake_peer_fail(p, PEER_ACCEPT, 1, ERR_TIMEOUT);
      if (i < accepts) fake_peer_lose_answer(p, PEER_ACCEPT, 1, ERR_TIMEOUT);
    }
    put_run_open(&r, c, KEY, big, 5000);
    cr_assert_eq(put_run_all(&r), ERR_UNKNOWN_OUTCOME);
    fake_run(&bed);
    bool is_new = accepts >= 5;
    struct bed_look *l = bed_look(c, KEY, slots_all(6));
    cr_assert_eq(l->c.verdict, VERDICT_CHOSEN);
    cr_assert_eq(version_cmp(&l->c.row.ver, &r.result.ver) == 0, is_new);
    bed_look_free(l);
    l = bed_look(c, KEY, slots_all(6) & ~(1u << 5)); /* one down, one without the row */
    bool maybe = accepts == 4;
    cr_assert_eq(l->c.verdict, maybe ? VERDICT_UNDETERMINED : VERDICT_CHOSEN);
    bed_look_free(l);
    if (maybe) fake_peer_down(bed_slot(c, KEY, 5)); /* C2: rolled forward */
    if (is_new || maybe)
      cr_assert(bed_reads_as(c, KEY, big, 5000), "accepts %u", accepts);
    else
      cr_assert(bed_reads_as(c, KEY, "old", 3), "accepts %u", accepts);
    close_cluster(c);
  }
}
