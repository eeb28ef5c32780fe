/* gather_test.c: one round: who is asked when, what counts as a reply, and closing at any time. */
#include "storage/object/gather.h"

#include <criterion/criterion.h>

#include "tests/unit/object/fake_peer.h"

#define ALL 63u

static struct fake_bed bed;
static struct fake_cluster *cluster;
static struct key_place place;
static struct gather *gather;
static unsigned steps, close_at; /* close inside the nth step; 0: never */
static uint32_t asked_more;      /* ask these in the first step */
static const struct slice key = {(const uint8_t *)"key", 3};

static void setup(void) {
  fake_bed_open(&bed, 3);
  cluster = fake_cluster_open(&bed, 6, 1, 4, 2, "reed_sol_van", 4096);
  place = fake_place(cluster, key);
  steps = close_at = asked_more = 0;
  gather = NULL;
}

static void teardown(void) {
  gather_close(gather);
  fake_run(&bed);
  cr_assert_eq(cluster->objects.running, 0);
  fake_cluster_close(cluster);
  fake_bed_close(&bed);
}

static void step(void *arg, struct gather *g) {
  cr_assert(arg == &place && g == gather);
  steps++;
  cr_assert_eq(g->asked, g->pending | g->replied | g->nacked | g->failed);
  cr_assert_eq(g->pending & (g->replied | g->nacked | g->failed), 0);
  if (steps == 1 && asked_more) gather_ask_more(g, asked_more);
  if (steps == close_at) gather_close(TAKE(gather));
}

static void start(enum peer_verb verb, struct version ver, uint32_t ask, uint32_t spare,
                  uint32_t hedge_ms) {
  struct gather_args args = {.place = &place,
                             .key = key,
                             .verb = verb,
                             .ver = ver,
                             .ask = ask,
                             .spare = spare,
                             .hedge_ms = hedge_ms,
                             .step = step,
                             .arg = &place};
  cr_assert_eq(gather_start(&cluster->objects, &args, &gather), 0);
  cr_assert_eq(steps, 0, "never inside the start");
}

Test(gather, a_step_for_each_reply_and_the_rows_are_there, .init = setup, .fini = teardown) {
  struct fake_object made = fake_object_store(cluster, key, (const uint8_t *)"x", 1, 7, 1);
  start(PEER_READ, (struct version){0}, 15, 0, 0);
  fake_run(&bed);
  cr_assert(steps == 4 && gather->replied == 15 && gather_done(gather));
  struct classification c;
  classify(&place, gather->replies, &c);
  cr_assert_eq(c.verdict, VERDICT_CHOSEN);
  cr_assert(c.acked == 7 && c.flagged == 1 && c.replies == 4);
  cr_assert_eq(version_cmp(&cluster->objects.hlc_last, &made.ver), 0, "what was seen is kept");
}

Test(gather, each_failure_asks_one_spare, .init = setup, .fini = teardown) {
  fake_peer_down(fake_slot(cluster, key, 0));
  fake_peer_fail(fake_slot(cluster, key, 1), PEER_READ, 1, ERR_CORRUPT);
  start(PEER_READ, (struct version){0}, 3, ALL, 0);
  fake_run(&bed);
  cr_assert_eq(gather->failed, 3);
  cr_assert(gather->err[0] == ERR_PEER_DOWN && gather->err[1] == ERR_CORRUPT);
  cr_assert_eq(__builtin_popcount(gather->replied), 2);
  cr_assert_eq(__builtin_popcount(gather->spare), 2);
  cr_assert(!gather_done(gather));
  gather_ask_more(gather, ALL);
  fake_run(&bed);
  cr_assert(gather_done(gather) && gather->replied == (ALL & ~3u));
  fake_peer_up(fake_slot(cluster, key, 0));
}

Test(gather, silence_is_hedged_and_not_waited_for, .init = setup, .fini = teardown) {
  fake_slot(cluster, key, 0)->silent = true;
  start(PEER_READ, (struct version){0}, 3, 12, 20);
  fake_run_for(&bed, 19);
  cr_assert(gather->asked == 3 && gather->replied == 2);
  fake_run_for(&bed, 10);
  cr_assert(gather->asked == 15 && gather->replied == 14 && gather->pending == 1);
  cr_assert_eq(cluster->objects.stats.hedges, 1);
}

Test(gather, a_promise_granted_is_a_reply_and_a_refusal_names_the_higher, .init = setup,
     .fini = teardown) {
  struct version low = {((uint64_t)FAKE_WALL_START_MS) << VERSION_HLC_SHIFT, 5};
  struct version high = {low.hlc + 9, 1};
  start(PEER_PROMISE, high, 1, 0, 0);
  fake_run(&bed);
  cr_assert_eq(gather->replied, 1);
  gather_close(TAKE(gather));
  steps = 0;
  start(PEER_PROMISE, low, 3, 0, 0);
  fake_run(&bed);
  cr_assert(gather->nacked == 1 && gather->replied == 2 && gather->failed == 0);
  cr_assert_eq(version_cmp(&gather->nack_ver, &high), 0);
  cr_assert_geq(cluster->objects.hlc_last.hlc, high.hlc);
}

Test(gather, may_be_closed_in_any_step_or_before, .init = setup, .fini = teardown) {
  for (unsigned at = 0; at <= 6; at++)
    for (unsigned more = 0; more < 2; more++) {
      steps = 0;
      close_at = at;
      asked_more = more ? 56 : 0;
      start(PEER_READ, (struct version){0}, 7, 0, 0);
      if (at == 0) gather_close(TAKE(gather));
      fake_run(&bed);
      unsigned all = more ? 6 : 3;
      cr_assert_eq(steps, MIN(at, all), "closed at %u: %u steps", at, steps);
      gather_close(TAKE(gather));
      fake_run(&bed);
      cr_assert_eq(cluster->objects.running, 0);
    }
}

Test(gather, pick_prefers_who_answers, .init = setup, .fini = teardown) {
  cr_assert_eq(gather_pick(&place, 3, ALL), 7);
  place.peers[0]->suspect = true;
  place.peers[1]->up = false;
  cr_assert_eq(gather_pick(&place, 3, ALL), 28);
  cr_assert_eq(gather_pick(&place, 5, ALL), ALL & ~2u, "the suspect before the one that is down");
  cr_assert_eq(gather_pick(&place, 9, ALL), ALL);
  cr_assert_eq(gather_pick(&place, 2, 3), 3);
  place.peers[0]->suspect = false;
  place.peers[1]->up = true;
}

static void latencies(uint64_t now_ms, const uint32_t us[6]) {
  for (unsigned i = 0; i < 6; i++) {
    place.peers[i]->latency_us = us[i];
    place.peers[i]->latency_ms = now_ms;
  }
}

Test(gather, a_slow_drive_is_asked_behind_the_others, .init = setup, .fini = teardown) {
  uint64_t now = env_now_ms(cluster->objects.env);
  latencies(now, (const uint32_t[]){1000, 90000, 3000, 2000, 1000, 11000});
  place = fake_place(cluster, key);
  cr_assert_eq(place.slow, 2u | 32u);
  cr_assert_eq(gather_pick(&place, 4, ALL), 1 | 4 | 8 | 16);
  place.peers[0]->suspect = true;
  cr_assert_eq(gather_pick(&place, 5, ALL), ALL & ~1u, "before the one that is silent");
  place.peers[0]->suspect = false;
  /* All alike, or all quick enough: nobody is slow. */
  latencies(now, (const uint32_t[]){50000, 90000, 60000, 150000, 50000, 50000});
  cr_assert_eq(fake_place(cluster, key).slow, 0);
  latencies(now, (const uint32_t[]){10, 20, 9999, 0, 10, 10});
  cr_assert_eq(fake_place(cluster, key).slow, 0);
  latencies(now, (const uint32_t[]){0, 90000, 0, 0, 0, 0});
  cr_assert_eq(fake_place(cluster, key).slow, 0, "nothing is known of the others");
  latencies(now, (const uint32_t[6]){0});
}

/* PROTOCOL.md 2: above the clock, above everything seen, and never equal. */
Test(gather, minted_versions_rise_while_the_clock_is_set_back_a_little, .init = setup,
     .fini = teardown) {
  struct objects *o = &cluster->objects;
  struct version last = objects_mint(o, NULL), seen = {last.hlc + 1000, 3};
  for (unsigned i = 0; i < 50; i++) {
    bed.wall_skew_ms = i % 2 ? -VERSION_FUTURE_MS_MAX / 2 : 0;
    struct version v = objects_mint(o, i == 10 ? &seen : NULL);
    cr_assert_gt(v.hlc, last.hlc);
    cr_assert_geq(v.hlc >> VERSION_HLC_SHIFT, (uint64_t)FAKE_WALL_START_MS);
    if (i == 10) cr_assert_gt(v.hlc, seen.hlc);
    last = v;
  }
  seen.hlc = UINT64_MAX;
  cr_assert_eq(objects_mint(o, &seen).hlc, UINT64_MAX, "does not wrap to the oldest");
}

/* A host whose clock is an hour ahead left a row: its key's writers go above it, no other key's do.
 */
Test(gather, a_stamp_from_the_far_future_concerns_its_key_only, .init = setup, .fini = teardown) {
  struct objects *o = &cluster->objects;
  struct version far = objects_mint(o, NULL);
  far.hlc += (uint64_t)3600000 << VERSION_HLC_SHIFT;
  objects_saw(o, &far);
  cr_assert_lt(objects_mint(o, NULL).hlc, far.hlc);
  cr_assert_gt(objects_mint(o, &far).hlc, far.hlc);
  cr_assert_lt(objects_mint(o, NULL).hlc, far.hlc, "what was minted for that key is no measure");
  /* Our own clock was wrong, and is right again. */
  bed.wall_skew_ms = 3600000;
  struct version wrong = objects_mint(o, NULL);
  bed.wall_skew_ms = 0;
  cr_assert_lt(objects_mint(o, NULL).hlc, wrong.hlc);
}
