/* stripe_reader_test.c: every loss, at every moment, gives the same bytes or a plain error. */
#include "storage/object/stripe_reader.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "tests/unit/object/fake_peer.h"

#define UNIT 4096u
#define KEY SLICE_LIT("a/key")

/* A cluster, one object on all slots, and a reader over it. */
struct bed {
  struct fake_bed bed;
  struct fake_cluster *c;
  struct fake_object object;
  struct row row;
  struct key_place place;
  uint8_t *data, *got;
  size_t len, got_len;
  struct stripe_reader *reader;
  uint64_t next, end;
  int err;
  bool done, hold; /* hold: the window is kept until bed_release */
  struct stripe_window held;
  unsigned windows;
  uint32_t want;
};

static void bed_next(struct bed *b) {
  stripe_reader_read(b->reader, b->next, b->end - b->next);
}

static void window_take(struct bed *b, const struct stripe_window *w) {
  struct stripe_geometry g = row_geometry(&b->row);
  for (unsigned s = 0; s < w->count; s++)
    for (unsigned i = 0; i < b->row.profile.k; i++) {
      uint32_t len = stripe_unit_len(&g, w->first + s, i);
      const uint8_t *unit = w->buf.data + ((size_t)s * w->n + i) * w->stride;
      for (uint32_t at = len; at < stripe_unit_coded_len(&g, w->first + s); at++)
        cr_assert_eq(unit[at], 0, "the wanted units are zero-padded");
      if (b->want >> i & 1) memcpy(b->got + b->got_len, unit, len);
      b->got_len += len;
    }
}

static void on_window(void *arg, int err, struct stripe_window *w) {
  struct bed *b = arg;
  b->err = err;
  if (err < 0) {
    cr_assert_null(w);
    b->done = true;
    return;
  }
  cr_assert_eq(w->first, b->next);
  cr_assert(w->count >= 1 && w->first + w->count <= b->end);
  window_take(b, w);
  b->windows++;
  b->next += w->count;
  if (b->hold)
    b->held = *w;
  else
    env_buf_put(&b->bed.env, &w->buf);
  if (b->next == b->end)
    b->done = true;
  else if (!b->hold)
    bed_next(b);
}

static void bed_open(struct bed *b, unsigned k, unsigned m, const char *technique, size_t len) {
  memset(b, 0, sizeof *b);
  fake_bed_open(&b->bed, 1);
  b->c = fake_cluster_open(&b->bed, k + m, 1, k, m, technique, UNIT);
  b->c->objects.inline_max_bytes = 0; /* chunks are files: every unit is fetched */
  b->len = len;
  b->data = malloc(len);
  b->got = malloc(len);
  cr_assert(b->data && b->got);
  for (size_t i = 0; i < len; i++) b->data[i] = (uint8_t)fake_random(&b->bed);
  uint32_t all = (1u << (k + m)) - 1;
  b->object = fake_object_store(b->c, KEY, b->data, len, all, all);
  b->place = fake_place(b->c, KEY);
  struct fake_row *r = fake_drive_newest(&fake_slot(b->c, KEY, 0)->drive, &b->c->bucket.uuid, KEY);
  cr_assert_eq(row_decode(slice_of(r->bytes, r->len), &b->c->bucket.uuid, KEY, &b->row), 0);
  b->want = (1u << k) - 1;
}

static void bed_start(struct bed *b, uint32_t healthy) {
  b->next = 0;
  b->end = row_geometry(&b->row).stripe_count;
  b->got_len = 0;
  b->done = false;
  b->windows = 0;
  memset(b->got, 0, b->len);
  cr_assert_eq(stripe_reader_open(&b->c->objects, &b->place, &b->row, healthy, b->want, NULL,
                                  on_window, b, &b->reader),
               0);
  bed_next(b);
}

static void bed_check(struct bed *b) {
  cr_assert(b->done);
  cr_assert_eq(b->err, 0, "%s", err_name(b->err));
  cr_assert_eq(b->got_len, b->len);
  cr_assert(memcmp(b->got, b->data, b->len) == 0);
}

static void bed_stop(struct bed *b) {
  stripe_reader_close(b->reader);
  fake_run(&b->bed);
}

static void bed_read(struct bed *b, uint32_t healthy) {
  bed_start(b, healthy);
  fake_run(&b->bed);
  bed_check(b);
  bed_stop(b);
}

static void bed_close(struct bed *b) {
  fake_cluster_close(b->c);
  fake_bed_close(&b->bed);
  free(b->data);
  free(b->got);
}

static const struct code {
  unsigned k, m;
  const char *technique;
} codes[] = {{4, 2, "reed_sol_van"},
             {2, 1, "xor"},
             {2, 2, "reed_sol_van"},
             {3, 2, "cauchy"},
             {3, 3, "xor3p"}};

static const size_t sizes[] = {1, 63, UNIT, UNIT + 1, 4 * UNIT, 4 * UNIT + 1, 20 * 4 * UNIT + 777};

Test(stripe_reader, every_size_without_a_loss_needs_no_decoding) {
  for (size_t c = 0; c < ARRAY_LEN(codes); c++)
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
      struct bed b;
      bed_open(&b, codes[c].k, codes[c].m, codes[c].technique, sizes[i]);
      bed_read(&b, UINT32_MAX);
      cr_assert_eq(b.c->objects.stats.decoded_stripes, 0);
      for (unsigned s = codes[c].k; s < b.place.n; s++)
        cr_assert_eq(fake_slot(b.c, KEY, s)->sent_of[PEER_FETCH], 0, "parity is not read");
      bed_close(&b);
    }
}

Test(stripe_reader, every_loss_up_to_m_and_no_more) {
  for (size_t c = 0; c < ARRAY_LEN(codes); c++)
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
      struct bed b;
      bed_open(&b, codes[c].k, codes[c].m, codes[c].technique, sizes[i]);
      struct stripe_geometry g = row_geometry(&b.row);
      bool whole = stripe_unit_len(&g, 0, codes[c].k - 1) > 0;
      for (uint32_t lost = 0; lost < 1u << b.place.n; lost++) {
        uint32_t have = ((1u << b.place.n) - 1) & ~lost;
        bool enough = codec_decodable(b.c->objects.codecs[b.c->pool], have);
        cr_assert(enough || (unsigned)__builtin_popcount(lost) > b.place.n - b.place.d);
        for (unsigned s = 0; s < b.place.n; s++)
          if (lost >> s & 1)
            fake_peer_down(fake_slot(b.c, KEY, s));
          else
            fake_peer_up(fake_slot(b.c, KEY, s));
        bed_start(&b, UINT32_MAX);
        fake_run(&b.bed);
        if (enough) {
          bed_check(&b);
        } else if (whole) { /* of smaller ones some chunks are empty: nothing is lost */
          cr_assert_eq(b.err, ERR_UNAVAILABLE);
          cr_assert_eq(b.windows, 0);
        }
        bed_stop(&b);
      }
      bed_close(&b);
    }
}

/* A drive that looks up, answers some windows, then goes. */
struct cut {
  uint32_t slots;
  unsigned after;
};
static void cut_off(struct fake_cluster *c, struct fake_peer *p, const struct peer_request *req) {
  struct cut *cut = c->on_request_arg;
  if (req->verb == PEER_FETCH && cut->slots >> req->slot & 1 &&
      p->calls_of[PEER_FETCH] >= cut->after)
    fake_peer_down(p);
}

Test(stripe_reader, every_loss_in_mid_stream) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 70 * 4 * UNIT + 5);
  struct cut cut = {0};
  b.c->on_request = cut_off;
  b.c->on_request_arg = &cut;
  for (unsigned after = 0; after < 5; after++)
    for (uint32_t lost = 0; lost < 1u << 6; lost++) {
      if (__builtin_popcount(lost) > 2) continue;
      for (unsigned s = 0; s < 6; s++) {
        fake_peer_heal(fake_slot(b.c, KEY, s));
        memset(fake_slot(b.c, KEY, s)->calls_of, 0, sizeof b.c->drives[0].calls_of);
      }
      cut = (struct cut){lost, after};
      bed_read(&b, UINT32_MAX);
    }
  bed_close(&b);
}

Test(stripe_reader, three_lost_in_mid_stream_is_an_error) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 70 * 4 * UNIT);
  struct cut cut = {7, 2};
  b.c->on_request = cut_off;
  b.c->on_request_arg = &cut;
  bed_start(&b, UINT32_MAX);
  fake_run(&b.bed);
  cr_assert_eq(b.err, ERR_UNAVAILABLE);
  cr_assert(b.windows >= 1);
  cr_assert(memcmp(b.got, b.data, b.got_len) == 0, "what was delivered was right");
  bed_stop(&b);
  bed_close(&b);
}

Test(stripe_reader, rotten_units_are_decoded_around_and_counted) {
  for (unsigned first = 0; first < 6; first++)
    for (unsigned second = 0; second < 6; second++) {
      struct bed b;
      bed_open(&b, 4, 2, "reed_sol_van", 20 * 4 * UNIT + 5);
      cr_assert(fake_drive_corrupt_unit(&fake_slot(b.c, KEY, first)->drive, &b.object.data_id, 3));
      if (second != first)
        cr_assert(
            fake_drive_corrupt_unit(&fake_slot(b.c, KEY, second)->drive, &b.object.data_id, 17));
      bed_start(&b, UINT32_MAX);
      fake_run(&b.bed);
      bed_check(&b);
      uint32_t rotten = 1u << first | 1u << second;
      cr_assert_eq(stripe_reader_bad(b.reader) & ~rotten, 0);
      if (rotten & 15) cr_assert_neq(stripe_reader_bad(b.reader), 0);
      if (rotten & 15) cr_assert(b.c->objects.stats.crc_failures > 0);
      bed_stop(&b);
      bed_close(&b);
    }
}

/* Five of six chunks each have one bad unit, all in different stripes: each stripe has five good
 * ones. */
Test(stripe_reader, more_rotten_chunks_than_parities_where_the_stripes_differ) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 12 * 4 * UNIT);
  for (unsigned s = 0; s < 5; s++)
    cr_assert(fake_drive_corrupt_unit(&fake_slot(b.c, KEY, s)->drive, &b.object.data_id, 2 * s));
  bed_read(&b, UINT32_MAX);
  bed_close(&b);
}

Test(stripe_reader, three_rotten_units_in_a_stripe_are_an_error) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 5 * 4 * UNIT);
  for (unsigned s = 1; s < 4; s++)
    cr_assert(fake_drive_corrupt_unit(&fake_slot(b.c, KEY, s)->drive, &b.object.data_id, 4));
  bed_start(&b, UINT32_MAX);
  fake_run(&b.bed);
  cr_assert_eq(b.err, ERR_UNAVAILABLE);
  bed_stop(&b);
  bed_close(&b);
}

Test(stripe_reader, missing_chunks_and_short_units) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 20 * 4 * UNIT);
  cr_assert(fake_drive_drop_chunk(&fake_slot(b.c, KEY, 1)->drive, &b.object.data_id));
  fake_slot(b.c, KEY, 3)->fetch_short = 1;
  bed_start(&b, UINT32_MAX);
  fake_run(&b.bed);
  bed_check(&b);
  cr_assert_eq(stripe_reader_bad(b.reader), 1u << 1 | 1u << 3);
  cr_assert_eq(fake_slot(b.c, KEY, 1)->sent_of[PEER_FETCH], 1, "asked once, then never again");
  bed_stop(&b);
  bed_close(&b);
}

Test(stripe_reader, slots_known_to_have_no_chunk_are_not_asked) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 20 * 4 * UNIT);
  bed_read(&b, UINT32_MAX & ~1u);
  /* Slot 0 is not known to be healthy, but it is the wanted one and up: it is worth a try. */
  fake_slot(b.c, KEY, 0)->peer.suspect = true;
  unsigned before = fake_slot(b.c, KEY, 0)->sent_of[PEER_FETCH];
  bed_read(&b, UINT32_MAX & ~1u);
  cr_assert_eq(fake_slot(b.c, KEY, 0)->sent_of[PEER_FETCH], before);
  bed_close(&b);
}

Test(stripe_reader, a_silent_drive_is_hedged) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 40 * 4 * UNIT);
  fake_slot(b.c, KEY, 2)->silent = true;
  uint64_t began = b.bed.now_ms;
  bed_start(&b, UINT32_MAX);
  cr_assert(fake_run_while_not(&b.bed, &b.done));
  bed_check(&b);
  cr_assert_leq(b.bed.now_ms - began, 100, "one hedge of 50 ms, not a deadline");
  cr_assert_eq(b.c->objects.stats.hedges, 1, "later windows leave the slow drive alone");
  cr_assert_eq(stripe_reader_bad(b.reader), 0, "slow is not bad");
  bed_stop(&b);
  bed_close(&b);
}

Test(stripe_reader, the_slow_one_may_still_win) {
  struct bed b;
  bed_open(&b, 2, 1, "xor", 3 * 2 * UNIT);
  fake_slot(b.c, KEY, 0)->delay_ms = 80;
  fake_slot(b.c, KEY, 2)->delay_ms = 500;
  uint64_t began = b.bed.now_ms;
  bed_start(&b, UINT32_MAX);
  cr_assert(fake_run_while_not(&b.bed, &b.done));
  bed_check(&b);
  cr_assert_leq(b.bed.now_ms - began, 100);
  cr_assert_eq(b.c->objects.stats.decoded_stripes, 0);
  bed_stop(&b);
  bed_close(&b);
}

/* A cancelled call that does not come back holds the buffer: the reader takes another. */
static struct peer_ops stuck_ops;
static struct peer_call *stuck_call;
static void stuck_send(struct peer *peer, struct peer_call *call) {
  stuck_call = call;
}
static void stuck_cancel(struct peer *peer, struct peer_call *call) {}
static struct peer_call *many_stuck[64];
static unsigned many_stuck_count;
static void many_stuck_send(struct peer *peer, struct peer_call *call) {
  cr_assert_lt(many_stuck_count, ARRAY_LEN(many_stuck));
  many_stuck[many_stuck_count++] = call;
}

Test(stripe_reader, a_call_that_cannot_be_cancelled_does_not_hold_the_read) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 5 * 4 * UNIT);
  stuck_ops = (struct peer_ops){.send = stuck_send, .cancel = stuck_cancel};
  fake_slot(b.c, KEY, 1)->peer.ops = &stuck_ops;
  bed_start(&b, UINT32_MAX);
  cr_assert(fake_run_while_not(&b.bed, &b.done));
  bed_check(&b);
  stripe_reader_close(b.reader);
  fake_run(&b.bed);
  cr_assert_eq(b.bed.buffer_count, 1, "the stuck call's buffer is still there");
  cr_assert_eq(b.c->objects.running, 1);
  for (unsigned s = 0; s < stuck_call->req.unit_count; s++)
    memset(stuck_call->req.units[s].data, 0, stuck_call->req.units[s].len);
  stuck_call->reply.err = ERR_CANCELLED;
  stuck_call->done(stuck_call);
  cr_assert_eq(b.bed.buffer_count, 0);
  bed_close(&b);
}

/* A slow drive that is hedged, first to a stuck one, then to one that answers: the stuck one's call
 * does not come back, and the window that is read again must not run into it again, for ever. */
Test(stripe_reader, a_stuck_hedge_is_not_asked_again_and_again) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 5 * 4 * UNIT);
  struct peer *unlikely = &fake_slot(b.c, KEY, 1)->peer, *stuck = &fake_slot(b.c, KEY, 4)->peer;
  const struct peer_ops *ops = stuck->ops;
  stuck_ops = (struct peer_ops){.send = many_stuck_send, .cancel = stuck_cancel};
  unlikely->up = false; /* thought to be down, so the last to be asked, but it answers */
  stuck->suspect = true;
  stuck->ops = &stuck_ops;
  fake_slot(b.c, KEY, 5)->delay_ms = 300;
  bed_start(&b, UINT32_MAX);
  fake_run_for(&b.bed, 3000);
  bed_check(&b);
  cr_assert_eq(many_stuck_count, 1u);
  bed_stop(&b);
  many_stuck[0]->reply.err = ERR_CANCELLED;
  many_stuck[0]->done(many_stuck[0]);
  stuck->ops = ops;
  bed_close(&b);
}

Test(stripe_reader, wanted_parity_is_rebuilt) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 5 * 4 * UNIT + 9);
  b.want = 15;
  bed_read(&b, UINT32_MAX);
  fake_peer_down(fake_slot(b.c, KEY, 5));
  b.want = 1u << 5 | 1;
  b.hold = true;
  bed_start(&b, UINT32_MAX);
  fake_run(&b.bed);
  cr_assert(b.done && b.err == 0);
  struct fake_drive *d = &fake_slot(b.c, KEY, 5)->drive;
  struct fake_blob *chunk = NULL;
  list_foreach(it, &d->blobs) chunk = container_of(it, struct fake_blob, link);
  cr_assert_eq(b.held.count, 6);
  for (unsigned s = 0; s < b.held.count; s++)
    cr_assert(memcmp(b.held.buf.data + ((size_t)s * 6 + 5) * b.held.stride, chunk->units[s].data,
                     chunk->units[s].len) == 0);
  env_buf_put(&b.bed.env, &b.held.buf);
  bed_stop(&b);
  bed_close(&b);
}

Test(stripe_reader, one_wanted_chunk_is_read_alone) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 5 * 4 * UNIT);
  b.want = 1u << 2;
  bed_start(&b, UINT32_MAX);
  fake_run(&b.bed);
  cr_assert(b.done && b.err == 0);
  cr_assert_eq(fake_calls(b.c, PEER_FETCH), 1);
  bed_stop(&b);
  bed_close(&b);
}

Test(stripe_reader, one_lost_chunk_is_read_from_as_few_as_its_code_needs) {
  const struct {
    unsigned k, m;
    const char *technique;
    unsigned fetches;
  } rows[] = {{4, 2, "reed_sol_van", 4}, {4, 1, "xor", 4}, {3, 3, "xor3p", 2}, {6, 6, "xor3p", 2}};
  for (size_t i = 0; i < ARRAY_LEN(rows); i++)
    for (unsigned lost = 0; lost < rows[i].k; lost++) {
      struct bed b;
      bed_open(&b, rows[i].k, rows[i].m, rows[i].technique, 5 * (size_t)rows[i].k * UNIT);
      fake_peer_down(fake_slot(b.c, KEY, lost));
      b.want = 1u << lost;
      bed_start(&b, UINT32_MAX);
      fake_run(&b.bed);
      cr_assert(b.done && b.err == 0);
      for (size_t at = 0; at < b.len; at++)
        if (at / UNIT % rows[i].k == lost) cr_assert_eq(b.got[at], b.data[at]);
      cr_assert_eq(fake_calls(b.c, PEER_FETCH), rows[i].fetches, "%s", rows[i].technique);
      bed_stop(&b);
      bed_close(&b);
    }
}

/* Of xor3p's six chunks each may be rotten, silent or down: what still decodes is read, from
 * whatever mixture. */
Test(stripe_reader, xor3p_reads_around_every_mixture_of_faults) {
  struct bed b;
  bed_open(&b, 3, 3, "xor3p", 9 * 3 * UNIT + 700);
  struct cut cut = {0};
  b.c->on_request = cut_off;
  b.c->on_request_arg = &cut;
  for (uint32_t lost = 0; lost < 1u << 6; lost++)
    for (unsigned after = 0; after < 3; after++) {
      bool enough = codec_decodable(b.c->objects.codecs[b.c->pool], 63 & ~lost);
      for (unsigned s = 0; s < 6; s++) {
        fake_peer_heal(fake_slot(b.c, KEY, s));
        memset(fake_slot(b.c, KEY, s)->calls_of, 0, sizeof b.c->drives[0].calls_of);
      }
      cut = (struct cut){lost, after};
      if (enough) {
        bed_read(&b, UINT32_MAX);
        continue;
      }
      bed_start(&b, UINT32_MAX);
      fake_run(&b.bed);
      if (b.err == 0) bed_check(&b); /* not all of them were asked so often */
      bed_stop(&b);
    }
  bed_close(&b);
}

Test(stripe_reader, short_of_buffers_it_reads_stripe_by_stripe) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 9 * 4 * UNIT + 1);
  b.bed.buffer_limit = 2 * 6 * UNIT - 1;
  bed_read(&b, UINT32_MAX);
  cr_assert_eq(b.windows, 10);
  bed_close(&b);
}

Test(stripe_reader, no_buffer_is_slow_down_at_first_and_patience_later) {
  struct bed b;
  struct env_buf all;
  bed_open(&b, 4, 2, "reed_sol_van", 40 * 4 * UNIT);
  b.bed.buffer_limit = 6 * 6 * UNIT;
  cr_assert(env_buf_try(&b.bed.env, b.bed.buffer_limit, &all));
  bed_start(&b, UINT32_MAX);
  fake_run(&b.bed);
  cr_assert_eq(b.err, ERR_SLOW_DOWN);
  cr_assert_not(stripe_reader_read_ahead(b.reader, 0, 1));
  env_buf_put(&b.bed.env, &all);
  b.done = false;
  bed_next(&b);
  while (b.windows == 0) cr_assert(fake_step(&b.bed));
  fake_run_for(&b.bed, 0);
  while (!env_buf_try(&b.bed.env, 3 * 6 * UNIT, &all)) cr_assert(fake_step(&b.bed));
  fake_run_for(&b.bed, 60000);
  env_buf_put(&b.bed.env, &all);
  fake_run(&b.bed);
  bed_check(&b);
  bed_stop(&b);
  bed_close(&b);
}

/* Stops after `steps` events by cancel or close; false when the read was done before. */
static bool stop_after(struct bed *b, unsigned steps, bool close) {
  bed_start(b, UINT32_MAX);
  for (unsigned i = 0; i < steps && !b->done; i++) cr_assert(fake_step(&b->bed));
  bool early = !b->done;
  if (close) {
    stripe_reader_close(b->reader);
    unsigned windows = b->windows;
    fake_run(&b->bed);
    cr_assert_eq(b->windows, windows, "no callback after close");
    return early;
  }
  if (early) {
    stripe_reader_cancel(b->reader);
    stripe_reader_cancel(b->reader);
    cr_assert(fake_run_while_not(&b->bed, &b->done));
    cr_assert_eq(b->err, ERR_CANCELLED);
    b->done = false; /* and it can be used again */
    bed_next(b);
    cr_assert(fake_run_while_not(&b->bed, &b->done));
    bed_check(b);
  }
  bed_stop(b);
  return early;
}

Test(stripe_reader, cancel_and_close_at_every_step) {
  for (int close = 0; close < 2; close++)
    for (int trouble = 0; trouble < 4; trouble++) {
      struct bed b;
      bed_open(&b, 4, 2, "reed_sol_van", 20 * 4 * UNIT);
      if (trouble == 1) fake_slot(b.c, KEY, 1)->silent = true;
      if (trouble == 2)
        cr_assert(fake_drive_corrupt_unit(&fake_slot(b.c, KEY, 1)->drive, &b.object.data_id, 1));
      if (trouble == 3) b.bed.buffer_limit = 6 * UNIT;
      unsigned steps = 0;
      while (stop_after(&b, steps, close)) steps++;
      cr_assert_gt(steps, 10);
      cr_assert_eq(b.bed.buffer_count, 0);
      cr_assert_eq(b.c->objects.running, 0);
      bed_close(&b);
    }
}

Test(stripe_reader, cancel_while_it_waits_for_a_buffer) {
  struct bed b;
  struct env_buf all;
  bed_open(&b, 4, 2, "reed_sol_van", 2 * 4 * UNIT);
  b.bed.buffer_limit = 2 * 6 * UNIT;
  for (int close = 0; close < 2; close++) {
    cr_assert(env_buf_try(&b.bed.env, b.bed.buffer_limit, &all));
    bed_start(&b, UINT32_MAX);
    fake_run_for(&b.bed, 10);
    if (close)
      stripe_reader_close(b.reader);
    else
      stripe_reader_cancel(b.reader);
    fake_run_for(&b.bed, 1);
    cr_assert_eq(b.done, !close);
    if (!close) cr_assert_eq(b.err, ERR_CANCELLED);
    env_buf_put(&b.bed.env, &all);
    if (!close) bed_stop(&b);
    fake_run(&b.bed);
    cr_assert_eq(b.c->objects.running, 0);
  }
  bed_close(&b);
}

Test(stripe_reader, inline_chunks_need_no_call) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 3 * 4 * UNIT + 100);
  struct stripe_geometry g = row_geometry(&b.row);
  for (uint32_t have = 0; have < 1u << 6; have++) {
    struct stripe_reader_inline chunks = {0};
    uint8_t *bytes[6] = {0};
    uint32_t crcs[6][4] = {{0}};
    for (unsigned i = 0; i < 6; i++) {
      struct fake_drive *d = &fake_slot(b.c, KEY, i)->drive;
      struct fake_blob *chunk = container_of(d->blobs.next, struct fake_blob, link);
      if (!(have >> i & 1)) continue;
      size_t at = 0;
      bytes[i] = malloc(stripe_chunk_len(&g, i));
      for (unsigned s = 0; s < 4; s++) {
        memcpy(bytes[i] + at, chunk->units[s].data, chunk->units[s].len);
        at += chunk->units[s].len;
        crcs[i][s] = chunk->units[s].crc;
      }
      chunks.bytes[i] = slice_of(bytes[i], at);
      chunks.crcs[i] = crcs[i];
    }
    unsigned before = fake_calls(b.c, PEER_FETCH);
    b.next = 0;
    b.end = g.stripe_count;
    b.got_len = 0;
    b.done = false;
    cr_assert_eq(stripe_reader_open(&b.c->objects, &b.place, &b.row, UINT32_MAX, b.want, &chunks,
                                    on_window, &b, &b.reader),
                 0);
    bed_next(&b);
    fake_run(&b.bed);
    bed_check(&b);
    bed_stop(&b);
    for (unsigned i = 0; i < 6; i++) free(bytes[i]);
    if (__builtin_popcount(have) >= 4 && (have & 15) == 15)
      cr_assert_eq(fake_calls(b.c, PEER_FETCH), before);
  }
  bed_close(&b);
}
