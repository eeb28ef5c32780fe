/* put_condition_test.c: If-None-Match and If-Match on every kind of base, the queue at a gateway,
 * and races between gateways. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "storage/object/slots.h"
#include "tests/unit/object/put_bed.h"

#define UNIT 4096u
#define KEY "a/key"
#define STORED_ETAG "0123456789abcdef0123456789abcdef" /* of fake_object_store */

static struct fake_bed bed;

static struct fake_cluster *open_cluster_of(unsigned k, unsigned m, uint64_t seed) {
  fake_bed_open(&bed, seed);
  return fake_cluster_open(&bed, k + m, 1, k, m, m == 1 ? "xor" : "reed_sol_van", UNIT);
}

static struct fake_cluster *open_cluster(void) {
  return open_cluster_of(4, 2, 9);
}

static void close_cluster(struct fake_cluster *c) {
  fake_cluster_close(c);
  fake_bed_close(&bed);
}

enum condition { IF_NONE_MATCH_ANY, IF_MATCH_RIGHT, IF_MATCH_WRONG, IF_MATCH_ANY, CONDITION_COUNT };

static void set_condition(struct put_run *r, enum condition cond) {
  struct write_conditions *c = &r->args.conditions;
  if (cond == IF_NONE_MATCH_ANY) c->if_none_match_any = true;
  if (cond == IF_MATCH_RIGHT) c->if_match = SLICE_LIT(STORED_ETAG);
  if (cond == IF_MATCH_WRONG) c->if_match = SLICE_LIT("ffffffffffffffffffffffffffffffff");
  if (cond == IF_MATCH_ANY) c->if_match = SLICE_LIT("*");
}

/* What the answer must be on an object that exists, or on nothing. */
static int want(enum condition cond, bool exists) {
  if (cond == IF_NONE_MATCH_ANY) return exists ? ERR_PRECONDITION : 0;
  if (!exists) return ERR_NO_SUCH_KEY;
  return cond == IF_MATCH_WRONG ? ERR_PRECONDITION : 0;
}

/* rows, flags: where the base stands; healthy: not all of it reachable. */
static void on_base(uint32_t rows, uint32_t flags, bool tomb, uint32_t down, bool exists,
                    size_t len, bool del) {
  for (enum condition cond = 0; cond < CONDITION_COUNT; cond++) {
    if (del && cond == IF_NONE_MATCH_ANY) continue;
    struct fake_cluster *c = open_cluster();
    uint8_t *base = bed_bytes(len, 1), *data = bed_bytes(90000, 2);
    struct fake_object old = {0};
    if (rows && tomb) old = fake_tomb_store(c, slice_str(KEY), rows, flags);
    if (rows && !tomb) old = fake_object_store(c, slice_str(KEY), base, len, rows, flags);
    slots_foreach(i, down) fake_peer_down(bed_slot(c, KEY, i));
    struct put_run r;
    if (del)
      put_run_open_delete(&r, c, KEY);
    else
      put_run_open(&r, c, KEY, data, 90000);
    set_condition(&r, cond);
    int err = put_run_all(&r);
    cr_assert_eq(err, want(cond, exists), "condition %d rows %x down %x exists %d: %s", cond, rows,
                 down, exists, err_name(err));
    fake_run(&bed);
    cr_assert_eq(fake_stages_open(c), 0);
    if (err == 0 && !del) cr_assert(bed_reads_as(c, KEY, data, 90000));
    if (err == 0) cr_assert_gt(version_cmp(&r.result.ver, &old.ver), 0);
    if (err < 0 && exists) cr_assert(bed_reads_as(c, KEY, base, len));
    uint8_t *got;
    size_t got_len;
    if ((err < 0 && !exists) || (err == 0 && del))
      cr_assert_eq(bed_get(c, KEY, &got, &got_len), ERR_NO_SUCH_KEY);
    free(base);
    free(data);
    close_cluster(c);
  }
}

Test(put_condition, chosen_base) {
  for (unsigned del = 0; del <= 1; del++) {
    on_base(0, 0, false, 0, false, 0, del);                           /* nothing at all */
    on_base(slots_all(6), slots_all(6), false, 0, true, 5000, del);   /* an object */
    on_base(slots_all(6), slots_all(6), true, 0, false, 0, del);      /* a marker */
    on_base(slots_all(6), slots_all(6), false, 1, true, 200000, del); /* one drive down */
    on_base(0x1f, 0, false, 0, true, 5000, del);                      /* W rows, no flag */
    on_base(0x0f, 0x01, false, 0, true, 5000, del);                   /* a flag alone decides */
  }
}

/* Fewer than W rows with all drives in sight: dead, the base is what was before. */
Test(put_condition, dead_base) {
  for (unsigned rows = 1; rows <= 0xf; rows = rows * 2 + 1) {
    on_base(rows, 0, false, 0, false, 5000, false);
    on_base(rows, 0, true, 0, false, 0, false);
  }
}

/* Four rows and a drive down: it might be chosen. True: it is the base. False: it is settled before
 * anybody is told so, and stays. */
Test(put_condition, undetermined_base) {
  on_base(0x0f, 0, false, 1u << 5, true, 5000, false);
  on_base(0x0f, 0, false, 1u << 5, true, 200000, false);
  on_base(0x0f, 0, false, 1u << 4, true, 200000, true);
}

/* The false answer on an undetermined base leaves it chosen at W drives. */
Test(put_condition, settled_before_412) {
  for (unsigned large = 0; large <= 1; large++) {
    struct fake_cluster *c = open_cluster();
    size_t len = large ? 200000 : 5000;
    uint8_t *base = bed_bytes(len, 1);
    struct fake_object old = fake_object_store(c, slice_str(KEY), base, len, 0x0f, 0);
    fake_peer_down(bed_slot(c, KEY, 5));
    struct put_run r;
    put_run_open(&r, c, KEY, "new", 3);
    r.args.conditions.if_none_match_any = true;
    put_run_start(&r);
    cr_assert_eq(put_run_wait(&r), ERR_PRECONDITION);
    struct fake_row *row =
        fake_drive_newest(&bed_slot(c, KEY, 0)->drive, &c->bucket.uuid, slice_str(KEY));
    cr_assert(id128_eq(&row->op_id, &old.op_id));
    cr_assert_gt(version_cmp(&row->ver, &old.ver), 0);
    cr_assert_geq(slots_count(fake_slots_with_row(c, slice_str(KEY), &row->ver)), 5,
                  "when it answers, not later");
    struct version at = row->ver;
    fake_run(&bed);
    cr_assert_eq(fake_slots_chosen(c, slice_str(KEY), &at), 0x1f);
    cr_assert_eq(fake_slots_with_chunk(c, slice_str(KEY), &old.data_id), 0x1f);
    cr_assert_eq(fake_drive_heal(&bed_slot(c, KEY, 0)->drive, &c->bucket.uuid, slice_str(KEY), &at),
                 1u << 5);
    free(base);
    close_cluster(c);
  }
}

/* It cannot be decoded and might be chosen: 503, not 412; and "true" needs no decoding. */
Test(put_condition, undecodable_base) {
  for (enum condition cond = 0; cond < CONDITION_COUNT; cond++) {
    struct fake_cluster *c = open_cluster();
    uint8_t *base = bed_bytes(5000, 1);
    struct fake_object old = fake_object_store(c, slice_str(KEY), base, 5000, 0x0f, 0);
    fake_peer_down(bed_slot(c, KEY, 5));
    fake_drive_drop_chunk(&bed_slot(c, KEY, 1)->drive, &old.data_id);
    struct put_run r;
    put_run_open(&r, c, KEY, "new", 3);
    set_condition(&r, cond);
    int must = want(cond, true);
    cr_assert_eq(put_run_all(&r), must == 0 ? 0 : ERR_UNAVAILABLE);
    free(base);
    close_cluster(c);
  }
}

/* False on a chosen base: not one byte of the body is asked for, and no promise is made. */
Test(put_condition, false_before_the_body) {
  struct fake_cluster *c = open_cluster();
  fake_object_store(c, slice_str(KEY), (const uint8_t *)"old", 3, slots_all(6), slots_all(6));
  uint8_t *data = bed_bytes(500000, 2);
  for (unsigned k = 0; k < 2; k++) {
    struct put_run r;
    put_run_open(&r, c, k ? "missing" : KEY, data, 500000);
    set_condition(&r, k ? IF_MATCH_ANY : IF_NONE_MATCH_ANY);
    cr_assert_eq(put_run_all(&r), k ? ERR_NO_SUCH_KEY : ERR_PRECONDITION);
    cr_assert_eq(r.wanted, 0);
    cr_assert_eq(r.body.reads, 0);
  }
  cr_assert_eq(fake_calls(c, PEER_PROMISE), 0);
  free(data);
  close_cluster(c);
}

/* A promise in the way costs a retry above it, not the request. */
Test(put_condition, nack_then_higher) {
  struct fake_cluster *c = open_cluster();
  struct key_place place = fake_place(c, slice_str(KEY));
  for (unsigned i = 0; i < 6; i++) {
    struct peer_call call = {0};
    objects_request(&c->objects, &place, i, slice_str(KEY), PEER_PROMISE, &call);
    call.req.ver.hlc = (FAKE_WALL_START_MS + 30000) << VERSION_HLC_SHIFT;
    fake_drive_serve(&bed_slot(c, KEY, i)->drive, &call.req, &call.reply);
    cr_assert_eq(call.reply.err, 0);
    peer_call_release(&call);
  }
  /* The READ would show it: a gateway that did not see these. */
  for (unsigned i = 0; i < 6; i++)
    fake_peer_fail(bed_slot(c, KEY, i), PEER_PROMISE, 1, ERR_PROMISED);
  struct put_run r;
  put_run_open(&r, c, KEY, "x", 1);
  r.args.conditions.if_none_match_any = true;
  cr_assert_eq(put_run_all(&r), 0);
  cr_assert_geq(c->objects.stats.resolve_retries, 1);
  close_cluster(c);
}

Test(put_condition, always_refused_is_a_conflict) {
  struct fake_cluster *c = open_cluster();
  for (unsigned i = 0; i < 6; i++)
    fake_peer_fail(bed_slot(c, KEY, i), PEER_PROMISE, 0, ERR_PROMISED);
  struct put_run r;
  put_run_open(&r, c, KEY, "x", 1);
  r.args.conditions.if_none_match_any = true;
  cr_assert_eq(put_run_all(&r), ERR_CONFLICT);
  cr_assert_eq(fake_calls(c, PEER_PROMISE), 6 * OBJECT_RESOLVE_TRIES);
  fake_run(&bed);
  cr_assert(bed_is_empty(c));
  close_cluster(c);
}

Test(put_condition, too_few_promises_is_unavailable) {
  struct fake_cluster *c = open_cluster();
  for (unsigned i = 0; i < 2; i++)
    fake_peer_fail(bed_slot(c, KEY, i), PEER_PROMISE, 0, ERR_TIMEOUT);
  struct put_run r;
  put_run_open(&r, c, KEY, "x", 1);
  r.args.conditions.if_none_match_any = true;
  cr_assert_eq(put_run_all(&r), ERR_UNAVAILABLE);
  fake_run(&bed);
  cr_assert(bed_is_empty(c));
  close_cluster(c);
}

Test(put_condition, a_bucket_that_is_being_deleted) {
  struct fake_cluster *c = open_cluster();
  for (unsigned i = 0; i < c->drive_count; i++) {
    struct peer_call call = {0};
    call.req = (struct peer_request){.verb = PEER_BUCKET,
                                     .bucket = c->bucket.uuid,
                                     .bucket_state = BUCKET_DELETING,
                                     .epoch = 1,
                                     .ver = {1, 1}};
    fake_drive_serve(&c->drives[i].drive, &call.req, &call.reply);
  }
  for (unsigned conditional = 0; conditional <= 1; conditional++) {
    struct put_run r;
    put_run_open(&r, c, KEY, "x", 1);
    r.args.conditions.if_none_match_any = conditional;
    cr_assert_eq(put_run_all(&r), ERR_BUCKET_DELETING);
  }
  fake_run(&bed);
  cr_assert(bed_is_empty(c));
  close_cluster(c);
}

/* Cancelled while it waits for its turn, and while it holds it: the next one goes on. */
Test(put_condition, the_queue_survives_cancels) {
  struct fake_cluster *c = open_cluster();
  struct put_run r[4];
  for (unsigned i = 0; i < 4; i++) {
    put_run_open(&r[i], c, KEY, "abcd", 4);
    r[i].args.conditions.if_none_match_any = true;
  }
  for (unsigned i = 0; i < 6; i++)
    fake_peer_fail(bed_slot(c, KEY, i), PEER_PROMISE, 1, ERR_PROMISED);
  for (unsigned i = 0; i < 4; i++) put_run_start(&r[i]);
  fake_run_for(&bed, 4); /* all at their turn; the first is in its promise round */
  cr_assert_eq(fake_calls(c, PEER_PROMISE), 6);
  object_put_cancel(r[0].put);
  object_put_cancel(r[2].put);
  cr_assert_eq(put_run_wait(&r[0]), ERR_CANCELLED);
  cr_assert_eq(put_run_wait(&r[2]), ERR_CANCELLED);
  cr_assert_eq(put_run_wait(&r[1]), 0);
  cr_assert_eq(put_run_wait(&r[3]), ERR_PRECONDITION);
  close_cluster(c);
}

/* Many writers of one key at several gateways, with delays, losses and a drive that goes away:
 * exactly one of them is told that it won, and the key holds what that one wrote. */
#define RACERS 24

static unsigned race(uint64_t seed, unsigned k, unsigned m, bool faults) {
  struct fake_cluster *c = open_cluster_of(k, m, seed);
  static struct put_run runs[RACERS];
  static char bodies[RACERS][16];
  struct objects *gateways[4] = {&c->objects};
  for (unsigned g = 1; g < 4; g++) gateways[g] = fake_cluster_gateway(c);
  for (unsigned i = 0; i < c->drive_count; i++) {
    c->drives[i].delay_ms = 1 + fake_random_below(&bed, 4);
    c->drives[i].jitter_ms = fake_random_below(&bed, 20);
    if (faults && fake_random_below(&bed, 4) == 0)
      fake_peer_lose_answer(&c->drives[i], FAKE_ANY_VERB, 1 + (unsigned)fake_random_below(&bed, 30),
                            ERR_TIMEOUT);
  }
  for (unsigned i = 0; i < RACERS; i++) {
    snprintf(bodies[i], sizeof bodies[i], "racer %u", i);
    put_run_open(&runs[i], c, KEY, bodies[i], strlen(bodies[i]));
    runs[i].args.conditions.if_none_match_any = true;
    runs[i].o = gateways[i % 4];
    runs[i].body.delay_ms = fake_random_below(&bed, 10);
    put_run_start(&runs[i]);
  }
  unsigned won = 0, unknown = 0, winner = RACERS;
  for (unsigned i = 0; i < RACERS; i++) {
    int err = put_run_wait(&runs[i]);
    if (err == 0) winner = i;
    won += err == 0;
    unknown += err == ERR_UNKNOWN_OUTCOME;
    cr_assert(err == 0 || err == ERR_PRECONDITION || err == ERR_CONFLICT ||
                  err == ERR_UNKNOWN_OUTCOME || (faults && err == ERR_UNAVAILABLE),
              "seed %lu racer %u: %s", (unsigned long)seed, i, err_name(err));
  }
  fake_run(&bed);
  cr_assert_leq(won, 1, "seed %lu: %u winners", (unsigned long)seed, won);
  if (won == 1)
    cr_assert(bed_reads_as(c, KEY, bodies[winner], strlen(bodies[winner])), "seed %lu",
              (unsigned long)seed);
  if (!faults)
    cr_assert_eq(won, 1, "seed %lu: nobody won, %u unknown", (unsigned long)seed, unknown);
  cr_assert_eq(fake_stages_open(c), 0);
  close_cluster(c);
  return won;
}

Test(put_condition, one_winner, .timeout = 120) {
  for (uint64_t seed = 1; seed <= 60; seed++) race(seed, 4, 2, false);
  for (uint64_t seed = 1; seed <= 40; seed++) race(seed, 2, 1, false);
  for (uint64_t seed = 1; seed <= 40; seed++) race(seed, 2, 2, false);
}

Test(put_condition, at_most_one_winner_with_losses, .timeout = 120) {
  unsigned won = 0;
  for (uint64_t seed = 1000; seed <= 1100; seed++) won += race(seed, 4, 2, true);
  cr_assert_gt(won, 50, "only %u of 101 races had a winner", won);
}
