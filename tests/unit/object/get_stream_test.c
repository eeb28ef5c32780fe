/* get_stream_test.c: the bytes of a GET: losses in mid-stream, ranges, slow clients, cancels, and
 * random troubles. Never short or wrong bytes. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "tests/unit/object/get_bed.h"

Test(get_stream, every_loss_that_leaves_enough_is_invisible_in_mid_stream) {
  for (size_t c = 0; c < ARRAY_LEN(get_bed_codes); c++) {
    struct get_bed b;
    struct get_cut cut;
    get_bed_open(&b, get_bed_codes[c].k, get_bed_codes[c].m, get_bed_codes[c].technique,
                 60 * STRIPE + 5);
    get_bed_store(&b);
    for (unsigned after = 0; after < 4; after++)
      for (uint32_t lost = 0; lost <= b.all; lost++) {
        if (!codec_decodable(b.c->objects.codecs[b.c->pool], b.all & ~lost)) continue;
        get_bed_cut(&b, &cut, lost, after);
        get_bed_ok(&b);
      }
    get_bed_close(&b);
  }
}

Test(get_stream, one_more_than_m_ends_in_an_error_that_tells_whether_bytes_were_sent) {
  for (size_t c = 0; c < ARRAY_LEN(get_bed_codes); c++) {
    struct get_bed b;
    struct get_cut cut;
    get_bed_open(&b, get_bed_codes[c].k, get_bed_codes[c].m, get_bed_codes[c].technique,
                 60 * STRIPE + 5);
    get_bed_store(&b);
    for (unsigned round = 0; round < 6; round++) {
      unsigned after = round / 2;
      b.r.sink.delay_ms = round % 2 ? 50 : 0; /* the loss is met while bytes are being sent */
      get_bed_cut(&b, &cut, (1u << (get_bed_codes[c].m + 1)) - 1, after);
      get_bed_start(&b, true);
      get_bed_finish(&b);
      cr_assert(b.r.done_called);
      cr_assert_eq(b.r.done_err, ERR_UNAVAILABLE);
      cr_assert_eq(b.r.sent_any, b.r.sink.writes > 0);
      if (after == 0) cr_assert_not(b.r.sent_any);
      if (after == 2) cr_assert(b.r.sent_any);
      cr_assert_lt(b.r.sink.len, b.len);
      cr_assert(b.r.sink.len == 0 || memcmp(b.r.sink.data, b.data, b.r.sink.len) == 0);
      fake_sink_close(&b.r.sink);
    }
    get_bed_close(&b);
  }
}

Test(get_stream, ranges_at_every_border) {
  struct get_bed b;
  size_t window = PEER_UNITS_MAX * STRIPE;
  get_bed_open(&b, 4, 2, "reed_sol_van", 40 * STRIPE + 4321);
  get_bed_store(&b);
  const size_t borders[] = {0,          1,          UNIT - 1, UNIT,       STRIPE - 1,  STRIPE,
                            STRIPE + 1, window - 1, window,   2 * window, 40 * STRIPE, b.len - 1090,
                            b.len - 1};
  for (int lost = 0; lost < 2; lost++) {
    get_bed_down(&b, lost ? 1u << 1 | 1u << 4 : 0);
    for (size_t i = 0; i < ARRAY_LEN(borders); i++)
      for (size_t j = i; j < ARRAY_LEN(borders); j++) {
        b.r.offset = borders[i];
        b.r.len = borders[j] - borders[i] + 1;
        get_bed_ok(&b);
      }
  }
  get_bed_close(&b);
}

Test(get_stream, a_range_in_one_unit_reads_one_chunk) {
  struct get_bed b;
  get_bed_open(&b, 4, 2, "reed_sol_van", 40 * STRIPE);
  get_bed_store(&b);
  b.r.offset = 5 * STRIPE + 2 * UNIT + 7;
  b.r.len = 100;
  get_bed_ok(&b);
  cr_assert_eq(fake_calls(b.c, PEER_FETCH), 1);
  cr_assert_eq(get_bed_slot(&b, 2)->calls_of[PEER_FETCH], 1);
  get_bed_close(&b);
}

Test(get_stream, the_sinks_error_ends_it) {
  struct get_bed b;
  get_bed_open(&b, 4, 2, "reed_sol_van", 60 * STRIPE);
  get_bed_store(&b);
  b.r.sink.fail_at = 100000;
  b.r.sink.err = ERR_CLIENT_GONE;
  get_bed_start(&b, true);
  get_bed_finish(&b);
  cr_assert_eq(b.r.done_err, ERR_CLIENT_GONE);
  cr_assert(b.r.sent_any);
  fake_sink_close(&b.r.sink);
  get_bed_close(&b);
}

Test(get_stream, a_slow_client_holds_two_windows_and_no_more) {
  struct get_bed b;
  get_bed_open(&b, 4, 2, "reed_sol_van", 100 * STRIPE);
  get_bed_store(&b);
  b.r.sink.delay_ms = 500;
  get_bed_ok(&b);
  cr_assert_eq(b.bed.buffer_count_peak, 2);
  get_bed_close(&b);
}

Test(get_stream, short_of_buffers_it_goes_on_with_one) {
  struct get_bed b;
  get_bed_open(&b, 4, 2, "reed_sol_van", 30 * STRIPE + 9);
  get_bed_store(&b);
  b.bed.buffer_limit = 6 * UNIT;
  b.r.sink.delay_ms = 5;
  get_bed_ok(&b);
  cr_assert_eq(b.bed.buffer_count_peak, 1);
  get_bed_close(&b);
}

Test(get_stream, no_buffer_at_all_is_slow_down) {
  struct get_bed b;
  struct env_buf all;
  get_bed_open(&b, 4, 2, "reed_sol_van", 30 * STRIPE);
  get_bed_store(&b);
  cr_assert(env_buf_try(&b.bed.env, b.bed.buffer_limit, &all));
  get_bed_start(&b, true);
  fake_run(&b.bed);
  cr_assert(b.r.done_called);
  cr_assert_eq(b.r.done_err, ERR_SLOW_DOWN);
  cr_assert_not(b.r.sent_any);
  env_buf_put(&b.bed.env, &all);
  fake_sink_close(&b.r.sink);
  get_bed_close(&b);
}

/* Cancels after `steps` events; false when it had ended by itself. */
static bool cancel_after(struct get_bed *b, unsigned steps) {
  get_bed_start(b, true);
  for (unsigned i = 0; i < steps && !b->r.ended; i++) cr_assert(fake_step(&b->bed));
  bool early = !b->r.ended;
  if (early) {
    object_get_cancel(b->r.get);
    object_get_cancel(b->r.get);
    cr_assert_not(b->r.ended, "no callback inside the cancel");
    uint64_t began = b->bed.now_ms;
    cr_assert(fake_run_while_not(&b->bed, &b->r.ended));
    cr_assert_leq(b->bed.now_ms - began, b->r.sink.delay_ms + 1);
    int err = b->r.done_called ? b->r.done_err : b->r.found_err;
    cr_assert(err == ERR_CANCELLED || err == 0);
  }
  get_bed_finish(b);
  fake_sink_close(&b->r.sink);
  return early;
}

Test(get_stream, cancel_at_every_step) {
  for (int trouble = 0; trouble < 5; trouble++) {
    struct get_bed b;
    get_bed_open(&b, 4, 2, "reed_sol_van", (trouble == 1 ? 1 : 30) * STRIPE);
    if (trouble == 4) { /* undetermined: settle runs in between */
      b.object = fake_object_store(b.c, KEY, b.data, b.len, 0x0f, 0);
      fake_peer_down(get_bed_slot(&b, 5));
    } else {
      get_bed_store(&b);
    }
    if (trouble == 2) get_bed_slot(&b, 1)->silent = true;
    if (trouble == 3) b.bed.buffer_limit = 6 * UNIT;
    b.r.sink.delay_ms = 2;
    unsigned steps = 0;
    while (cancel_after(&b, steps)) steps++;
    cr_assert_gt(steps, 5);
    get_bed_close(&b);
  }
}

/* A lane that never comes back keeps no deadline: the operation keeps its own. */
static struct peer_call *stuck_calls[8];
static unsigned stuck_count;
static void stuck_send(struct peer *peer, struct peer_call *call) {
  stuck_calls[stuck_count++] = call;
}
static void stuck_cancel(struct peer *peer, struct peer_call *call) {}
static const struct peer_ops stuck_ops = {.send = stuck_send, .cancel = stuck_cancel};

static void stuck_release(void) {
  for (unsigned i = 0; i < stuck_count; i++) {
    stuck_calls[i]->reply.err = ERR_CANCELLED;
    stuck_calls[i]->done(stuck_calls[i]);
  }
  stuck_count = 0;
}

Test(get_stream, three_stuck_drives_are_unavailable_in_time) {
  struct get_bed b;
  get_bed_open(&b, 4, 2, "reed_sol_van", 20 * STRIPE);
  get_bed_store(&b);
  for (int late = 0; late < 2; late++) {
    get_bed_down(&b, 0);
    b.r.later = late;
    if (!late)
      for (unsigned i = 0; i < 3; i++) get_bed_slot(&b, i)->peer.ops = &stuck_ops;
    get_bed_start(&b, true);
    if (late) { /* stuck only when the bytes are asked for */
      fake_run_for(&b.bed, 100);
      cr_assert(b.r.found_called);
      for (unsigned i = 0; i < 3; i++) get_bed_slot(&b, i)->peer.ops = &stuck_ops;
      get_bed_go(&b.r, b.len);
    }
    uint64_t began = b.bed.now_ms;
    cr_assert(fake_run_while_not(&b.bed, &b.r.ended));
    cr_assert_leq(b.bed.now_ms - began, b.c->objects.peer_timeout_ms + 1100);
    cr_assert_eq(late ? b.r.done_err : b.r.found_err, ERR_UNAVAILABLE);
    cr_assert_gt(stuck_count, 0);
    stuck_release();
    get_bed_finish(&b);
    fake_sink_close(&b.r.sink);
    for (unsigned i = 0; i < 3; i++) get_bed_slot(&b, i)->peer.ops = get_bed_slot(&b, 5)->peer.ops;
  }
  get_bed_close(&b);
}

/* Random troubles, thousands of them: right bytes or a plain error, nothing left behind. */
Test(get_stream, random_troubles) {
  struct get_bed b;
  get_bed_open(&b, 4, 2, "reed_sol_van", 50 * STRIPE + 99);
  get_bed_store(&b);
  unsigned ok = 0, refused = 0;
  for (unsigned round = 0; round < 600; round++) {
    for (unsigned i = 0; i < 6; i++) {
      struct fake_peer *p = get_bed_slot(&b, i);
      fake_peer_heal(p);
      p->delay_ms = fake_random_below(&b.bed, 4) ? 1 : fake_random_below(&b.bed, 400);
      p->jitter_ms = fake_random_below(&b.bed, 20);
      if (fake_random_below(&b.bed, 8) == 0) p->silent = true;
      if (fake_random_below(&b.bed, 8) == 0) p->fetch_corrupt = 3;
      if (fake_random_below(&b.bed, 8) == 0)
        fake_peer_fail(p, PEER_FETCH, 1 + (unsigned)fake_random_below(&b.bed, 4), ERR_PEER_DOWN);
      if (fake_random_below(&b.bed, 16) == 0) fake_peer_down(p);
    }
    b.r.offset = fake_random_below(&b.bed, b.len);
    b.r.len = 1 + fake_random_below(&b.bed, b.len - b.r.offset);
    get_bed_start(&b, true);
    get_bed_finish(&b);
    int err = b.r.done_called ? b.r.done_err : b.r.found_err;
    if (err == 0) {
      get_bed_check(&b, b.data);
      ok++;
    } else {
      cr_assert_eq(err, ERR_UNAVAILABLE);
      refused++;
      cr_assert(b.r.sink.len == 0 || memcmp(b.r.sink.data, b.data + b.r.offset, b.r.sink.len) == 0);
    }
    fake_sink_close(&b.r.sink);
  }
  cr_assert_gt(ok, 400);
  cr_assert_gt(refused, 0);
  get_bed_close(&b);
}
