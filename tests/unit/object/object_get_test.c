/* object_get_test.c: which version a GET or HEAD finds, against losses, rot and crashed writers:
 * never older data, never "no such key" for what may exist. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "tests/unit/object/get_bed.h"

static const size_t sizes[] = {
    0, 1, 100, UNIT, STRIPE, STRIPE + 1, 3 * STRIPE + 5, 40 * STRIPE + 4321};

Test(object_get, every_size_and_every_loss_at_open) {
  for (size_t c = 0; c < ARRAY_LEN(get_bed_codes); c++)
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
      struct get_bed b;
      get_bed_open(&b, get_bed_codes[c].k, get_bed_codes[c].m, get_bed_codes[c].technique,
                   sizes[s]);
      get_bed_store(&b);
      for (uint32_t lost = 0; lost <= b.all; lost++) {
        get_bed_down(&b, lost);
        unsigned left = (unsigned)__builtin_popcount(b.all & ~lost);
        if (codec_decodable(b.c->objects.codecs[b.c->pool], b.all & ~lost))
          get_bed_ok(&b);
        else if (sizes[s] > 0 || left < fake_place(b.c, KEY).r)
          get_bed_refused(&b, ERR_UNAVAILABLE);
        else
          get_bed_ok(&b); /* an empty object needs R rows and no chunk */
      }
      get_bed_close(&b);
    }
}

Test(object_get, a_loss_the_gateway_does_not_know_of_yet) {
  struct get_bed b;
  get_bed_open(&b, 4, 2, "reed_sol_van", 3 * STRIPE + 5);
  get_bed_store(&b);
  for (uint32_t lost = 0; lost <= b.all; lost++) {
    if (__builtin_popcount(lost) > 2) continue;
    for (int silent = 0; silent < 2; silent++) {
      for (unsigned i = 0; i < 6; i++) {
        fake_peer_heal(get_bed_slot(&b, i));
        if (!(lost >> i & 1)) continue;
        if (silent)
          get_bed_slot(&b, i)->silent = true;
        else
          get_bed_slot(&b, i)->down = true; /* `up` still says yes */
      }
      get_bed_start(&b, true);
      uint64_t began = b.bed.now_ms;
      cr_assert(fake_run_while_not(&b.bed, &b.r.ended));
      cr_assert_leq(b.bed.now_ms - began, 600, "hedged, not waited for");
      get_bed_check(&b, b.data);
      get_bed_finish(&b);
      fake_sink_close(&b.r.sink);
    }
  }
  get_bed_close(&b);
}

Test(object_get, a_small_object_takes_one_round_trip) {
  struct get_bed b;
  get_bed_open(&b, 4, 2, "reed_sol_van", 2 * STRIPE + 77);
  get_bed_store(&b);
  get_bed_ok(&b);
  cr_assert_eq(fake_calls(b.c, PEER_READ), 4);
  cr_assert_eq(fake_calls(b.c, PEER_FETCH), 0);
  /* An inline chunk that is rotten is decoded around. */
  cr_assert(fake_drive_corrupt_unit(&get_bed_slot(&b, 0)->drive, &b.object.data_id, 1));
  get_bed_ok(&b);
  cr_assert_eq(b.c->objects.stats.crc_failures, 1);
  cr_assert_eq(fake_drive_heal(&get_bed_slot(&b, 3)->drive, &b.c->bucket.uuid, KEY, &b.object.ver),
               1);
  get_bed_close(&b);
}

Test(object_get, rot_is_decoded_around_counted_and_queued_once) {
  struct get_bed b;
  get_bed_open(&b, 4, 2, "reed_sol_van", 40 * STRIPE);
  get_bed_store(&b);
  cr_assert(fake_drive_corrupt_unit(&get_bed_slot(&b, 2)->drive, &b.object.data_id, 30));
  cr_assert(fake_drive_drop_chunk(&get_bed_slot(&b, 5)->drive, &b.object.data_id));
  get_bed_ok(&b);
  cr_assert_eq(b.c->objects.stats.crc_failures, 1);
  cr_assert_geq(b.c->objects.stats.decoded_stripes, 1);
  uint32_t missing = 0;
  for (unsigned i = 0; i < 6; i++)
    missing |= fake_drive_heal(&get_bed_slot(&b, i)->drive, &b.c->bucket.uuid, KEY, &b.object.ver);
  cr_assert_eq(missing & ~(1u << 5), 1u << 2);
  get_bed_ok(&b); /* may meet slot 5 for the first time */
  unsigned commits = fake_calls(b.c, PEER_COMMIT);
  get_bed_ok(&b);
  get_bed_ok(&b);
  cr_assert_eq(fake_calls(b.c, PEER_COMMIT), commits, "not a write for every GET");
  get_bed_close(&b);
}

Test(object_get, a_slow_drive_is_hedged) {
  struct get_bed b;
  get_bed_open(&b, 4, 2, "reed_sol_van", 40 * STRIPE);
  get_bed_store(&b);
  get_bed_slot(&b, 1)->delay_ms = 3000;
  get_bed_start(&b, true);
  uint64_t began = b.bed.now_ms;
  cr_assert(fake_run_while_not(&b.bed, &b.r.ended));
  cr_assert_leq(b.bed.now_ms - began, 200);
  cr_assert_gt(b.c->objects.stats.hedges, 0);
  get_bed_check(&b, b.data);
  get_bed_finish(&b);
  fake_sink_close(&b.r.sink);
  get_bed_close(&b);
}

Test(object_get, a_drive_that_looks_down_is_not_asked_first) {
  struct get_bed b;
  get_bed_open(&b, 4, 2, "reed_sol_van", 40 * STRIPE);
  get_bed_store(&b);
  get_bed_slot(&b, 0)->peer.suspect = true;
  get_bed_slot(&b, 2)->peer.up = false;
  get_bed_ok(&b);
  cr_assert_eq(get_bed_slot(&b, 0)->sent_of[PEER_READ] + get_bed_slot(&b, 2)->sent_of[PEER_READ],
               0);
  cr_assert_eq(get_bed_slot(&b, 0)->sent_of[PEER_FETCH] + get_bed_slot(&b, 2)->sent_of[PEER_FETCH],
               0);
  get_bed_close(&b);
}

Test(object_get, absent_and_deleted_are_no_such_key_only_with_r_answers) {
  struct get_bed b;
  get_bed_open(&b, 4, 2, "reed_sol_van", STRIPE);
  get_bed_refused(&b, ERR_NO_SUCH_KEY);
  get_bed_down(&b, 0x0f);
  get_bed_refused(&b, ERR_NO_SUCH_KEY);
  get_bed_down(&b, 0x1f);
  get_bed_refused(&b, ERR_UNAVAILABLE);
  get_bed_down(&b, 0);
  get_bed_store(&b);
  fake_tomb_store(b.c, KEY, b.all, b.all);
  get_bed_refused(&b, ERR_NO_SUCH_KEY);
  get_bed_down(&b, 0x2f);
  get_bed_refused(&b, ERR_UNAVAILABLE);
  get_bed_close(&b);
}

Test(object_get, rotten_rows_are_no_answer) {
  struct get_bed b;
  get_bed_open(&b, 4, 2, "reed_sol_van", STRIPE);
  get_bed_store(&b);
  fake_drive_corrupt_rows(&get_bed_slot(&b, 0)->drive, &b.c->bucket.uuid, KEY);
  fake_drive_corrupt_rows(&get_bed_slot(&b, 3)->drive, &b.c->bucket.uuid, KEY);
  get_bed_ok(&b);
  for (unsigned i = 1; i < 5; i++)
    fake_drive_corrupt_rows(&get_bed_slot(&b, i)->drive, &b.c->bucket.uuid, KEY);
  get_bed_refused(&b, ERR_UNAVAILABLE);
  get_bed_close(&b);
}

Test(object_get, chosen_without_enough_chunks_is_never_older_data) {
  struct get_bed b;
  get_bed_open(&b, 4, 2, "reed_sol_van", 3 * STRIPE);
  uint32_t older = fake_slots_with_row(b.c, KEY, &(struct version){0});
  cr_assert_eq(older, 0);
  struct fake_object old = fake_object_store(b.c, KEY, b.other, b.len, b.all, 0);
  get_bed_store(&b);
  /* Slots 3, 4 and 5 lose the newer chunk; the older version stands whole on none of them now. */
  for (unsigned i = 3; i < 6; i++)
    cr_assert(fake_drive_drop_chunk(&get_bed_slot(&b, i)->drive, &b.object.data_id));
  get_bed_refused(&b, ERR_UNAVAILABLE);
  cr_assert_eq(fake_calls(b.c, PEER_READ), 6, "the remaining slots were asked too");
  get_bed_start(&b, false); /* HEAD needs the row only */
  get_bed_finish(&b);
  cr_assert_eq(b.r.found_err, 0);
  cr_assert_eq(version_cmp(&b.r.ver, &b.object.ver), 0);
  cr_assert_neq(version_cmp(&b.r.ver, &old.ver), 0);
  fake_sink_close(&b.r.sink);
  get_bed_close(&b);
}

Test(object_get, head_asks_r_drives_and_no_chunks) {
  struct get_bed b;
  get_bed_open(&b, 4, 2, "reed_sol_van", 40 * STRIPE);
  get_bed_store(&b);
  get_bed_start(&b, false);
  get_bed_finish(&b);
  cr_assert_eq(b.r.found_err, 0);
  cr_assert_eq(b.r.size, b.len);
  cr_assert_eq(fake_calls(b.c, PEER_READ), 2);
  cr_assert_eq(fake_calls(b.c, PEER_FETCH), 0);
  cr_assert_eq(b.c->objects.stats.heads, 1);
  fake_sink_close(&b.r.sink);
  get_bed_close(&b);
}

/* PROTOCOL.md 8, C1 to C5: what a reader makes of a coordinator's death after s ACCEPTs. */
struct crash {
  uint32_t rows, chosen, down;
  int err;
  bool newer; /* what is read, where err is 0 */
  bool settled;
};
static const struct crash crashes[] = {
    {0x00, 0x00, 0x00, 0, false, false}, /* C0 */
    {0x01, 0x00, 0x00, 0, false, false}, /* C1 */
    {0x07, 0x00, 0x00, 0, false, false},
    {0x07, 0x00, 0x20, 0, false, false}, /* s = 3, one down: 3 + 1 < 5 */
    {0x0f, 0x00, 0x00, 0, false, false}, /* C2, all up: 4 < 5 and nobody is silent */
    {0x0f, 0x00, 0x20, 0, true, true},   /* C2, one down: might be chosen, rolled forward */
    {0x1e, 0x00, 0x20, 0, true, true},
    {0x1f, 0x00, 0x00, 0, true, false}, /* C3 */
    {0x1f, 0x00, 0x01, 0, true, true},  /* C3 with a voter down: settled at the last slot */
    {0x1f, 0x00, 0x20, 0, true, false},
    {0x3f, 0x00, 0x03, ERR_UNAVAILABLE, false, false}, /* C4: four left, none flagged */
    {0x1f, 0x00, 0x03, ERR_UNAVAILABLE, false, false},
    {0x3f, 0x20, 0x03, 0, true, false}, /* C5: one flag in sight */
    {0x1f, 0x10, 0x00, 0, true, false},
};

Test(object_get, after_a_coordinators_crash) {
  for (size_t i = 0; i < ARRAY_LEN(crashes); i++) {
    const struct crash *crash = &crashes[i];
    for (int is_inline = 0; is_inline < 2; is_inline++) {
      struct get_bed b;
      get_bed_open(&b, 4, 2, "reed_sol_van", (is_inline ? 2 : 20) * STRIPE + 5);
      struct fake_object old = fake_object_store(b.c, KEY, b.other, b.len, b.all, b.all);
      struct fake_object new_ = {0};
      if (crash->rows)
        new_ = fake_object_store(b.c, KEY, b.data, b.len, crash->rows, crash->chosen);
      get_bed_down(&b, crash->down);
      for (int again = 0; again < 2; again++) { /* it never flips back */
        get_bed_start(&b, true);
        get_bed_finish(&b);
        cr_assert_eq(b.r.found_err, crash->err, "crash %zu: %s", i, err_name(b.r.found_err));
        if (crash->err == 0) {
          get_bed_check(&b, crash->newer ? b.data : b.other);
          cr_assert_eq(version_cmp(&b.r.ver, crash->newer ? &new_.ver : &old.ver), 0, "crash %zu",
                       i);
        }
        cr_assert_eq(b.c->objects.stats.roll_forwards, crash->settled);
        fake_sink_close(&b.r.sink);
      }
      if (crash->err == 0 && crash->newer)
        cr_assert_neq(fake_slots_chosen(b.c, KEY, &new_.ver), 0, "flags were repaired");
      get_bed_close(&b);
    }
  }
}

Test(object_get, flags_are_repaired_where_they_are_missing) {
  struct get_bed b;
  get_bed_open(&b, 4, 2, "reed_sol_van", 40 * STRIPE);
  b.object = fake_object_store(b.c, KEY, b.data, b.len, b.all, 1u << 2);
  get_bed_ok(&b);
  cr_assert_eq(fake_slots_chosen(b.c, KEY, &b.object.ver) & 0x0f, 0x0f);
  get_bed_close(&b);
}

Test(object_get, undetermined_while_a_put_is_on_its_way_is_waited_for) {
  struct get_bed b;
  get_bed_open(&b, 4, 2, "reed_sol_van", 20 * STRIPE);
  b.object = fake_object_store(b.c, KEY, b.data, b.len, 0x0f, 0);
  fake_peer_down(get_bed_slot(&b, 5));
  get_bed_start(&b, true);
  fake_run_for(&b.bed, 15);
  cr_assert_not(b.r.found_called);
  fake_peer_up(get_bed_slot(&b, 5));
  struct fake_row *row = fake_drive_newest(&get_bed_slot(&b, 0)->drive, &b.c->bucket.uuid, KEY);
  row->chosen = true; /* the PUT's COMMIT arrives */
  get_bed_finish(&b);
  get_bed_check(&b, b.data);
  cr_assert_eq(b.c->objects.stats.roll_forwards, 0);
  fake_sink_close(&b.r.sink);
  get_bed_close(&b);
}

Test(object_get, a_promise_in_the_way_leads_to_resolve) {
  struct get_bed b;
  get_bed_open(&b, 4, 2, "reed_sol_van", 3 * STRIPE);
  b.object = fake_object_store(b.c, KEY, b.data, b.len, 0x0f, 0);
  fake_peer_down(get_bed_slot(&b, 5));
  /* Another proposer's promise stands at slot 4, which lacks the row. */
  struct key_place place = fake_place(b.c, KEY);
  struct peer_call *call = calloc(1, sizeof *call);
  objects_request(&b.c->objects, &place, 4, KEY, PEER_PROMISE, call);
  call->req.ver = objects_mint(&b.c->objects, &b.object.ver);
  fake_drive_serve(&get_bed_slot(&b, 4)->drive, &call->req, &call->reply);
  cr_assert_eq(call->reply.err, 0);
  peer_call_release(call);
  free(call);
  get_bed_start(&b, true);
  get_bed_finish(&b);
  get_bed_check(&b, b.data);
  cr_assert_gt(b.c->objects.stats.resolves, 0);
  cr_assert_gt(version_cmp(&b.r.ver, &b.object.ver), 0, "proposed again at a higher version");
  fake_sink_close(&b.r.sink);
  get_bed_close(&b);
}

Test(object_get, cancel_between_found_and_read_or_close) {
  struct get_bed b;
  get_bed_open(&b, 4, 2, "reed_sol_van", 3 * STRIPE);
  get_bed_store(&b);
  for (int close = 0; close < 2; close++) {
    b.r.later = true;
    get_bed_start(&b, true);
    fake_run(&b.bed);
    cr_assert(b.r.found_called);
    object_get_cancel(b.r.get);
    b.r.close = close;
    get_bed_go(&b.r, b.len);
    get_bed_finish(&b);
    cr_assert_eq(b.r.done_called, !close);
    if (!close) cr_assert_eq(b.r.done_err, ERR_CANCELLED);
    cr_assert_eq(b.r.sink.writes, 0);
    fake_sink_close(&b.r.sink);
    b.r.close = false;
  }
  get_bed_close(&b);
}

Test(object_get, read_later_than_found) {
  struct get_bed b;
  get_bed_open(&b, 4, 2, "reed_sol_van", 2 * STRIPE);
  get_bed_store(&b);
  get_bed_slot(&b, 5)->delay_ms = 900;
  b.r.later = true;
  get_bed_start(&b, true);
  fake_run_for(&b.bed, 500);
  cr_assert(b.r.found_called);
  get_bed_go(&b.r, b.len);
  get_bed_finish(&b);
  get_bed_check(&b, b.data);
  fake_sink_close(&b.r.sink);
  get_bed_close(&b);
}
