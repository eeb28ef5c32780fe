/* object_get_test.c: GET and HEAD against every loss, in the find and in mid-stream; never older
 * data, never "no such key" for what may exist, never short or wrong bytes. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "storage/object/object.h"
#include "tests/unit/object/fake_body.h"
#include "tests/unit/object/fake_peer.h"

#define UNIT 4096u
#define KEY SLICE_LIT("dir/an object")
#define STRIPE (4 * UNIT)

/* One GET and what came of it. */
struct reading {
  struct object_get *get;
  struct fake_sink sink;
  bool found_called, done_called, ended; /* ended: the last callback ran */
  int found_err, done_err;
  bool sent_any, close, later;
  uint64_t offset, len; /* len 0: all of it */
  uint64_t size;
  struct version ver;
};

struct bed {
  struct fake_bed bed;
  struct fake_cluster *c;
  uint8_t *data, *other;
  size_t len;
  struct fake_object object;
  uint32_t all;
  struct reading r;
};

static void reading_go(struct reading *r, uint64_t size) {
  uint64_t len = r->len ? r->len : size;
  if (r->close || len == 0) {
    object_get_close(r->get);
    r->get = NULL;
    r->ended = true;
  } else {
    object_get_read(r->get, r->offset, len, &r->sink.sink);
  }
}

static void on_found(void *arg, struct object_get *get, int err, const struct row *row) {
  struct reading *r = arg;
  cr_assert_not(r->found_called);
  r->found_called = true;
  r->found_err = err;
  if (err < 0) {
    cr_assert_null(row);
    r->get = NULL;
    r->ended = true;
    return;
  }
  cr_assert_eq(get, r->get);
  r->size = row->size;
  r->ver = row->ver;
  if (!r->later) reading_go(r, row->size);
}

static void on_done(void *arg, int err, bool sent_any) {
  struct reading *r = arg;
  cr_assert(r->found_called && r->found_err == 0);
  cr_assert_not(r->done_called);
  r->done_called = true;
  r->done_err = err;
  r->sent_any = sent_any;
  r->get = NULL;
  r->ended = true;
}

static const struct object_get_ops get_ops = {.found = on_found, .done = on_done};

static void get_start(struct bed *b, bool want_data) {
  struct reading keep = b->r;
  memset(&b->r, 0, sizeof b->r);
  b->r.offset = keep.offset;
  b->r.len = keep.len;
  b->r.close = keep.close || !want_data;
  b->r.later = keep.later;
  fake_sink_open(&b->r.sink, &b->bed);
  b->r.sink.delay_ms = keep.sink.delay_ms;
  b->r.sink.fail_at = keep.sink.fail_at ? keep.sink.fail_at : SIZE_MAX;
  b->r.sink.err = keep.sink.err;
  cr_assert_eq(
      object_get_start(&b->c->objects, &b->c->bucket, KEY, want_data, &get_ops, &b->r, &b->r.get),
      0);
  cr_assert_not(b->r.found_called, "nothing runs inside the start");
}

static void get_finish(struct bed *b) {
  fake_run(&b->bed);
  cr_assert(b->r.ended);
  cr_assert_eq(b->c->objects.running, 0);
  cr_assert_eq(b->bed.buffer_count, 0);
  cr_assert_eq(fake_calls_in_flight(b->c), 0);
}

static void check_bytes(struct bed *b, const uint8_t *data) {
  uint64_t len = b->r.len ? b->r.len : b->r.size;
  cr_assert_eq(b->r.found_err, 0, "%s", err_name(b->r.found_err));
  if (len > 0) cr_assert(b->r.done_called);
  cr_assert_eq(b->r.done_err, 0, "%s", err_name(b->r.done_err));
  cr_assert_eq(b->r.sink.len, len);
  cr_assert(len == 0 || memcmp(b->r.sink.data, data + b->r.offset, len) == 0);
}

/* A whole GET that must succeed. */
static void get_ok(struct bed *b) {
  get_start(b, true);
  get_finish(b);
  check_bytes(b, b->data);
  fake_sink_close(&b->r.sink);
}

/* A whole GET that must not find anything to read. */
static void get_not_found(struct bed *b, int err) {
  get_start(b, true);
  get_finish(b);
  cr_assert_eq(b->r.found_err, err, "%s", err_name(b->r.found_err));
  cr_assert_eq(b->r.sink.writes, 0);
  fake_sink_close(&b->r.sink);
}

static void bed_open(struct bed *b, unsigned k, unsigned m, const char *technique, size_t len) {
  memset(b, 0, sizeof *b);
  fake_bed_open(&b->bed, 7);
  b->c = fake_cluster_open(&b->bed, k + m, 1, k, m, technique, UNIT);
  b->len = len;
  b->data = malloc(len + 1);
  b->other = malloc(len + 1);
  cr_assert(b->data && b->other);
  for (size_t i = 0; i < len; i++) {
    b->data[i] = (uint8_t)fake_random(&b->bed);
    b->other[i] = (uint8_t)~b->data[i];
  }
  b->all = (1u << (k + m)) - 1;
}

static void bed_store(struct bed *b) {
  b->object = fake_object_store(b->c, KEY, b->data, b->len, b->all, b->all);
}

static void bed_close(struct bed *b) {
  fake_cluster_close(b->c);
  fake_bed_close(&b->bed);
  free(b->data);
  free(b->other);
}

static struct fake_peer *slot(struct bed *b, unsigned i) {
  return fake_slot(b->c, KEY, i);
}

static void slots_down(struct bed *b, uint32_t down) {
  for (unsigned i = 0; b->all >> i & 1; i++) {
    fake_peer_heal(slot(b, i));
    if (down >> i & 1) fake_peer_down(slot(b, i));
  }
}

static const struct code {
  unsigned k, m;
  const char *technique;
} codes[] = {{4, 2, "reed_sol_van"}, {2, 1, "xor"}, {2, 2, "cauchy"}};

static const size_t sizes[] = {
    0, 1, 100, UNIT, STRIPE, STRIPE + 1, 3 * STRIPE + 5, 40 * STRIPE + 4321};

Test(object_get, every_size_and_every_loss_at_open) {
  for (size_t c = 0; c < ARRAY_LEN(codes); c++)
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
      struct bed b;
      bed_open(&b, codes[c].k, codes[c].m, codes[c].technique, sizes[s]);
      bed_store(&b);
      for (uint32_t lost = 0; lost <= b.all; lost++) {
        slots_down(&b, lost);
        unsigned left = (unsigned)__builtin_popcount(b.all & ~lost);
        if (left >= codes[c].k)
          get_ok(&b);
        else if (sizes[s] > 0 || left < fake_place(b.c, KEY).r)
          get_not_found(&b, ERR_UNAVAILABLE);
        else
          get_ok(&b); /* an empty object needs R rows and no chunk */
      }
      bed_close(&b);
    }
}

Test(object_get, a_loss_the_gateway_does_not_know_of_yet) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 3 * STRIPE + 5);
  bed_store(&b);
  for (uint32_t lost = 0; lost <= b.all; lost++) {
    if (__builtin_popcount(lost) > 2) continue;
    for (int silent = 0; silent < 2; silent++) {
      for (unsigned i = 0; i < 6; i++) {
        fake_peer_heal(slot(&b, i));
        if (!(lost >> i & 1)) continue;
        if (silent)
          slot(&b, i)->silent = true;
        else
          slot(&b, i)->down = true; /* `up` still says yes */
      }
      get_start(&b, true);
      uint64_t began = b.bed.now_ms;
      cr_assert(fake_run_while_not(&b.bed, &b.r.ended));
      cr_assert_leq(b.bed.now_ms - began, 600, "hedged, not waited for");
      check_bytes(&b, b.data);
      get_finish(&b);
      fake_sink_close(&b.r.sink);
    }
  }
  bed_close(&b);
}

/* Drives that go down at their nth FETCH. */
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

static void cut_set(struct bed *b, struct cut *cut, uint32_t slots, unsigned after) {
  *cut = (struct cut){slots, after};
  b->c->on_request = cut_off;
  b->c->on_request_arg = cut;
  slots_down(b, 0);
  for (unsigned i = 0; b->all >> i & 1; i++)
    memset(slot(b, i)->calls_of, 0, sizeof slot(b, i)->calls_of);
}

Test(object_get, every_loss_of_up_to_m_in_mid_stream_is_invisible) {
  for (size_t c = 0; c < ARRAY_LEN(codes); c++) {
    struct bed b;
    struct cut cut;
    bed_open(&b, codes[c].k, codes[c].m, codes[c].technique, 60 * STRIPE + 5);
    bed_store(&b);
    for (unsigned after = 0; after < 4; after++)
      for (uint32_t lost = 0; lost <= b.all; lost++) {
        if ((unsigned)__builtin_popcount(lost) > codes[c].m) continue;
        cut_set(&b, &cut, lost, after);
        get_ok(&b);
      }
    bed_close(&b);
  }
}

Test(object_get, one_more_than_m_ends_in_an_error_that_tells_whether_bytes_were_sent) {
  for (size_t c = 0; c < ARRAY_LEN(codes); c++) {
    struct bed b;
    struct cut cut;
    bed_open(&b, codes[c].k, codes[c].m, codes[c].technique, 60 * STRIPE + 5);
    bed_store(&b);
    for (unsigned after = 0; after < 3; after++) {
      cut_set(&b, &cut, (1u << (codes[c].m + 1)) - 1, after);
      get_start(&b, true);
      get_finish(&b);
      cr_assert(b.r.done_called);
      cr_assert_eq(b.r.done_err, ERR_UNAVAILABLE);
      cr_assert_eq(b.r.sent_any, b.r.sink.writes > 0);
      if (after == 0) cr_assert_not(b.r.sent_any);
      if (after == 2) cr_assert(b.r.sent_any);
      cr_assert_lt(b.r.sink.len, b.len);
      cr_assert(b.r.sink.len == 0 || memcmp(b.r.sink.data, b.data, b.r.sink.len) == 0);
      fake_sink_close(&b.r.sink);
    }
    bed_close(&b);
  }
}

Test(object_get, ranges_at_every_border) {
  struct bed b;
  size_t window = PEER_UNITS_MAX * STRIPE;
  bed_open(&b, 4, 2, "reed_sol_van", 40 * STRIPE + 4321);
  bed_store(&b);
  const size_t borders[] = {0,          1,          UNIT - 1, UNIT,       STRIPE - 1,  STRIPE,
                            STRIPE + 1, window - 1, window,   2 * window, 40 * STRIPE, b.len - 1090,
                            b.len - 1};
  for (int lost = 0; lost < 2; lost++) {
    slots_down(&b, lost ? 1u << 1 | 1u << 4 : 0);
    for (size_t i = 0; i < ARRAY_LEN(borders); i++)
      for (size_t j = i; j < ARRAY_LEN(borders); j++) {
        b.r.offset = borders[i];
        b.r.len = borders[j] - borders[i] + 1;
        get_ok(&b);
      }
  }
  bed_close(&b);
}

Test(object_get, a_range_in_one_unit_reads_one_chunk) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 40 * STRIPE);
  bed_store(&b);
  b.r.offset = 5 * STRIPE + 2 * UNIT + 7;
  b.r.len = 100;
  get_ok(&b);
  cr_assert_eq(fake_calls(b.c, PEER_FETCH), 1);
  cr_assert_eq(slot(&b, 2)->calls_of[PEER_FETCH], 1);
  bed_close(&b);
}

Test(object_get, a_small_object_takes_one_round_trip) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 2 * STRIPE + 77);
  bed_store(&b);
  get_ok(&b);
  cr_assert_eq(fake_calls(b.c, PEER_READ), 4);
  cr_assert_eq(fake_calls(b.c, PEER_FETCH), 0);
  /* An inline chunk that is rotten is decoded around. */
  cr_assert(fake_drive_corrupt_unit(&slot(&b, 0)->drive, &b.object.data_id, 1));
  get_ok(&b);
  cr_assert_eq(b.c->objects.stats.crc_failures, 1);
  cr_assert_eq(fake_drive_heal(&slot(&b, 3)->drive, &b.c->bucket.uuid, KEY, &b.object.ver), 1);
  bed_close(&b);
}

Test(object_get, rot_is_decoded_around_counted_and_queued_once) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 40 * STRIPE);
  bed_store(&b);
  cr_assert(fake_drive_corrupt_unit(&slot(&b, 2)->drive, &b.object.data_id, 30));
  cr_assert(fake_drive_drop_chunk(&slot(&b, 5)->drive, &b.object.data_id));
  get_ok(&b);
  cr_assert_eq(b.c->objects.stats.crc_failures, 1);
  cr_assert_geq(b.c->objects.stats.decoded_stripes, 1);
  uint32_t missing = 0;
  for (unsigned i = 0; i < 6; i++)
    missing |= fake_drive_heal(&slot(&b, i)->drive, &b.c->bucket.uuid, KEY, &b.object.ver);
  cr_assert_eq(missing & ~(1u << 5), 1u << 2);
  get_ok(&b); /* may meet slot 5 for the first time */
  unsigned commits = fake_calls(b.c, PEER_COMMIT);
  get_ok(&b);
  get_ok(&b);
  cr_assert_eq(fake_calls(b.c, PEER_COMMIT), commits, "not a write for every GET");
  bed_close(&b);
}

Test(object_get, a_slow_drive_is_hedged) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 40 * STRIPE);
  bed_store(&b);
  slot(&b, 1)->delay_ms = 3000;
  get_start(&b, true);
  uint64_t began = b.bed.now_ms;
  cr_assert(fake_run_while_not(&b.bed, &b.r.ended));
  cr_assert_leq(b.bed.now_ms - began, 200);
  cr_assert_gt(b.c->objects.stats.hedges, 0);
  check_bytes(&b, b.data);
  get_finish(&b);
  fake_sink_close(&b.r.sink);
  bed_close(&b);
}

Test(object_get, a_drive_that_looks_down_is_not_asked_first) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 40 * STRIPE);
  bed_store(&b);
  slot(&b, 0)->peer.suspect = true;
  slot(&b, 2)->peer.up = false;
  get_ok(&b);
  cr_assert_eq(slot(&b, 0)->sent_of[PEER_READ] + slot(&b, 2)->sent_of[PEER_READ], 0);
  cr_assert_eq(slot(&b, 0)->sent_of[PEER_FETCH] + slot(&b, 2)->sent_of[PEER_FETCH], 0);
  bed_close(&b);
}

Test(object_get, absent_and_deleted_are_no_such_key_only_with_r_answers) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", STRIPE);
  get_not_found(&b, ERR_NO_SUCH_KEY);
  slots_down(&b, 0x0f);
  get_not_found(&b, ERR_NO_SUCH_KEY);
  slots_down(&b, 0x1f);
  get_not_found(&b, ERR_UNAVAILABLE);
  slots_down(&b, 0);
  bed_store(&b);
  fake_tomb_store(b.c, KEY, b.all, b.all);
  get_not_found(&b, ERR_NO_SUCH_KEY);
  slots_down(&b, 0x2f);
  get_not_found(&b, ERR_UNAVAILABLE);
  bed_close(&b);
}

Test(object_get, rotten_rows_are_no_answer) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", STRIPE);
  bed_store(&b);
  fake_drive_corrupt_rows(&slot(&b, 0)->drive, &b.c->bucket.uuid, KEY);
  fake_drive_corrupt_rows(&slot(&b, 3)->drive, &b.c->bucket.uuid, KEY);
  get_ok(&b);
  for (unsigned i = 1; i < 5; i++)
    fake_drive_corrupt_rows(&slot(&b, i)->drive, &b.c->bucket.uuid, KEY);
  get_not_found(&b, ERR_UNAVAILABLE);
  bed_close(&b);
}

Test(object_get, chosen_without_enough_chunks_is_never_older_data) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 3 * STRIPE);
  uint32_t older = fake_slots_with_row(b.c, KEY, &(struct version){0});
  cr_assert_eq(older, 0);
  struct fake_object old = fake_object_store(b.c, KEY, b.other, b.len, b.all, 0);
  bed_store(&b);
  /* Slots 3, 4 and 5 lose the newer chunk; the older version stands whole on none of them now. */
  for (unsigned i = 3; i < 6; i++)
    cr_assert(fake_drive_drop_chunk(&slot(&b, i)->drive, &b.object.data_id));
  get_not_found(&b, ERR_UNAVAILABLE);
  cr_assert_eq(fake_calls(b.c, PEER_READ), 6, "the remaining slots were asked too");
  get_start(&b, false); /* HEAD needs the row only */
  get_finish(&b);
  cr_assert_eq(b.r.found_err, 0);
  cr_assert_eq(version_cmp(&b.r.ver, &b.object.ver), 0);
  cr_assert_neq(version_cmp(&b.r.ver, &old.ver), 0);
  fake_sink_close(&b.r.sink);
  bed_close(&b);
}

Test(object_get, head_asks_r_drives_and_no_chunks) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 40 * STRIPE);
  bed_store(&b);
  get_start(&b, false);
  get_finish(&b);
  cr_assert_eq(b.r.found_err, 0);
  cr_assert_eq(b.r.size, b.len);
  cr_assert_eq(fake_calls(b.c, PEER_READ), 2);
  cr_assert_eq(fake_calls(b.c, PEER_FETCH), 0);
  cr_assert_eq(b.c->objects.stats.heads, 1);
  fake_sink_close(&b.r.sink);
  bed_close(&b);
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
      struct bed b;
      bed_open(&b, 4, 2, "reed_sol_van", (is_inline ? 2 : 20) * STRIPE + 5);
      struct fake_object old = fake_object_store(b.c, KEY, b.other, b.len, b.all, b.all);
      struct fake_object new_ = {0};
      if (crash->rows)
        new_ = fake_object_store(b.c, KEY, b.data, b.len, crash->rows, crash->chosen);
      slots_down(&b, crash->down);
      for (int again = 0; again < 2; again++) { /* it never flips back */
        get_start(&b, true);
        get_finish(&b);
        cr_assert_eq(b.r.found_err, crash->err, "crash %zu: %s", i, err_name(b.r.found_err));
        if (crash->err == 0) {
          check_bytes(&b, crash->newer ? b.data : b.other);
          cr_assert_eq(version_cmp(&b.r.ver, crash->newer ? &new_.ver : &old.ver), 0, "crash %zu",
                       i);
        }
        cr_assert_eq(b.c->objects.stats.roll_forwards > 0, crash->settled || crash->err < 0);
        fake_sink_close(&b.r.sink);
      }
      if (crash->err == 0 && crash->newer)
        cr_assert_neq(fake_slots_chosen(b.c, KEY, &new_.ver), 0, "flags were repaired");
      bed_close(&b);
    }
  }
}

Test(object_get, flags_are_repaired_where_they_are_missing) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 40 * STRIPE);
  b.object = fake_object_store(b.c, KEY, b.data, b.len, b.all, 1u << 2);
  get_ok(&b);
  cr_assert_eq(fake_slots_chosen(b.c, KEY, &b.object.ver) & 0x0f, 0x0f);
  bed_close(&b);
}

Test(object_get, undetermined_while_a_put_is_on_its_way_is_waited_for) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 20 * STRIPE);
  b.object = fake_object_store(b.c, KEY, b.data, b.len, 0x0f, 0);
  fake_peer_down(slot(&b, 5));
  get_start(&b, true);
  fake_run_for(&b.bed, 15);
  cr_assert_not(b.r.found_called);
  fake_peer_up(slot(&b, 5));
  struct fake_row *row = fake_drive_newest(&slot(&b, 0)->drive, &b.c->bucket.uuid, KEY);
  row->chosen = true; /* the PUT's COMMIT arrives */
  get_finish(&b);
  check_bytes(&b, b.data);
  cr_assert_eq(b.c->objects.stats.roll_forwards, 0);
  fake_sink_close(&b.r.sink);
  bed_close(&b);
}

Test(object_get, a_promise_in_the_way_leads_to_resolve) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 3 * STRIPE);
  b.object = fake_object_store(b.c, KEY, b.data, b.len, 0x0f, 0);
  fake_peer_down(slot(&b, 5));
  /* Another proposer's promise stands at slot 4, which lacks the row. */
  struct key_place place = fake_place(b.c, KEY);
  struct peer_call *call = calloc(1, sizeof *call);
  objects_request(&b.c->objects, &place, 4, KEY, PEER_PROMISE, call);
  call->req.ver = objects_mint(&b.c->objects, &b.object.ver);
  fake_drive_serve(&slot(&b, 4)->drive, &call->req, &call->reply);
  cr_assert_eq(call->reply.err, 0);
  peer_call_release(call);
  free(call);
  get_start(&b, true);
  get_finish(&b);
  check_bytes(&b, b.data);
  cr_assert_gt(b.c->objects.stats.resolves, 0);
  cr_assert_gt(version_cmp(&b.r.ver, &b.object.ver), 0, "proposed again at a higher version");
  fake_sink_close(&b.r.sink);
  bed_close(&b);
}

Test(object_get, the_sinks_error_ends_it) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 60 * STRIPE);
  bed_store(&b);
  b.r.sink.fail_at = 100000;
  b.r.sink.err = ERR_CLIENT_GONE;
  get_start(&b, true);
  get_finish(&b);
  cr_assert_eq(b.r.done_err, ERR_CLIENT_GONE);
  cr_assert(b.r.sent_any);
  fake_sink_close(&b.r.sink);
  bed_close(&b);
}

Test(object_get, a_slow_client_holds_two_windows_and_no_more) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 100 * STRIPE);
  bed_store(&b);
  b.r.sink.delay_ms = 500;
  get_ok(&b);
  cr_assert_eq(b.bed.buffer_count_peak, 2);
  bed_close(&b);
}

Test(object_get, short_of_buffers_it_goes_on_with_one) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 30 * STRIPE + 9);
  bed_store(&b);
  b.bed.buffer_limit = 6 * UNIT;
  b.r.sink.delay_ms = 5;
  get_ok(&b);
  cr_assert_eq(b.bed.buffer_count_peak, 1);
  bed_close(&b);
}

Test(object_get, no_buffer_at_all_is_slow_down) {
  struct bed b;
  struct env_buf all;
  bed_open(&b, 4, 2, "reed_sol_van", 30 * STRIPE);
  bed_store(&b);
  cr_assert(env_buf_try(&b.bed.env, b.bed.buffer_limit, &all));
  get_start(&b, true);
  fake_run(&b.bed);
  cr_assert(b.r.done_called);
  cr_assert_eq(b.r.done_err, ERR_SLOW_DOWN);
  cr_assert_not(b.r.sent_any);
  env_buf_put(&b.bed.env, &all);
  fake_sink_close(&b.r.sink);
  bed_close(&b);
}

/* Cancels after `steps` events; false when it had ended by itself. */
static bool cancel_after(struct bed *b, unsigned steps) {
  get_start(b, true);
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
  get_finish(b);
  fake_sink_close(&b->r.sink);
  return early;
}

Test(object_get, cancel_at_every_step) {
  for (int trouble = 0; trouble < 5; trouble++) {
    struct bed b;
    bed_open(&b, 4, 2, "reed_sol_van", (trouble == 1 ? 1 : 30) * STRIPE);
    if (trouble == 4) { /* undetermined: settle runs in between */
      b.object = fake_object_store(b.c, KEY, b.data, b.len, 0x0f, 0);
      fake_peer_down(slot(&b, 5));
    } else {
      bed_store(&b);
    }
    if (trouble == 2) slot(&b, 1)->silent = true;
    if (trouble == 3) b.bed.buffer_limit = 6 * UNIT;
    b.r.sink.delay_ms = 2;
    unsigned steps = 0;
    while (cancel_after(&b, steps)) steps++;
    cr_assert_gt(steps, 5);
    bed_close(&b);
  }
}

Test(object_get, cancel_between_found_and_read_or_close) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 3 * STRIPE);
  bed_store(&b);
  for (int close = 0; close < 2; close++) {
    b.r.later = true;
    get_start(&b, true);
    fake_run(&b.bed);
    cr_assert(b.r.found_called);
    object_get_cancel(b.r.get);
    b.r.close = close;
    reading_go(&b.r, b.len);
    get_finish(&b);
    cr_assert_eq(b.r.done_called, !close);
    if (!close) cr_assert_eq(b.r.done_err, ERR_CANCELLED);
    cr_assert_eq(b.r.sink.writes, 0);
    fake_sink_close(&b.r.sink);
    b.r.close = false;
  }
  bed_close(&b);
}

Test(object_get, read_later_than_found) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 2 * STRIPE);
  bed_store(&b);
  slot(&b, 5)->delay_ms = 900;
  b.r.later = true;
  get_start(&b, true);
  fake_run_for(&b.bed, 500);
  cr_assert(b.r.found_called);
  reading_go(&b.r, b.len);
  get_finish(&b);
  check_bytes(&b, b.data);
  fake_sink_close(&b.r.sink);
  bed_close(&b);
}

/* Random troubles, thousands of them: right bytes or a plain error, nothing left behind. */
Test(object_get, random_troubles) {
  struct bed b;
  bed_open(&b, 4, 2, "reed_sol_van", 50 * STRIPE + 99);
  bed_store(&b);
  unsigned ok = 0, refused = 0;
  for (unsigned round = 0; round < 600; round++) {
    for (unsigned i = 0; i < 6; i++) {
      struct fake_peer *p = slot(&b, i);
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
    get_start(&b, true);
    get_finish(&b);
    int err = b.r.done_called ? b.r.done_err : b.r.found_err;
    if (err == 0) {
      check_bytes(&b, b.data);
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
  bed_close(&b);
}
