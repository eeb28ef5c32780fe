/* classify_test.c: the rule of PROTOCOL.md 5 against histories whose truth is known.
 *
 * A history is drawn, a part of the drives is asked, and what CLASSIFY says of their replies must
 * never contradict what was really acknowledged. A second test restates the rule by sets. */
#include "storage/object/classify.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#define VERSIONS_MAX 6

static uint64_t random_state = 88172645463325252ull;
static unsigned random_below(unsigned bound) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (unsigned)(random_state >> 20) % bound;
}

/* N, W of the table in PROTOCOL.md 1. */
static const struct {
  unsigned n, d, w;
} shapes[] = {{2, 1, 2}, {3, 2, 2}, {4, 2, 3}, {6, 4, 5}, {6, 2, 4},
              {9, 6, 7}, {1, 1, 1}, {3, 1, 2}, {5, 1, 3}};

static struct key_place place_of(unsigned shape) {
  return (struct key_place){.n = shapes[shape].n,
                            .d = shapes[shape].d,
                            .w = shapes[shape].w,
                            .r = shapes[shape].n - shapes[shape].w + 1};
}

static void add_row(struct peer_rows *rows, unsigned ver, bool chosen, uint8_t chunk) {
  struct peer_row *row = &rows->rows[rows->count++];
  *row = (struct peer_row){.chosen = chosen, .chunk_state = chunk};
  row->row.ver = (struct version){ver, 1};
  row->row.kind = ver % 3 ? ROW_PUT : ROW_TOMB;
  row->row.size = ver % 3;
  row->row.data_id.bytes[0] = ver % 3 ? (uint8_t)ver : 0;
}

struct history {
  struct key_place place;
  uint32_t acked[VERSIONS_MAX + 1]; /* who ever acked version v */
  bool chosen[VERSIONS_MAX + 1];
  struct peer_rows rows[MAP_SLOTS_MAX]; /* what the drives hold now */
};

/* Any set of drives acks any version; flags only where W acked; a flag drops what is older. Some
 * replies are cut short above their first flag. */
static void history_draw(struct history *h, bool cuts) {
  unsigned flag_from[MAP_SLOTS_MAX] = {0};
  memset(h, 0, sizeof *h);
  h->place = place_of(random_below(ARRAY_LEN(shapes)));
  unsigned n = h->place.n, bias = 1 + random_below(4);
  for (unsigned v = 1; v <= VERSIONS_MAX; v++) {
    for (unsigned s = 0; s < n; s++)
      if (random_below(4) < bias) h->acked[v] |= 1u << s;
    h->chosen[v] = (unsigned)__builtin_popcount(h->acked[v]) >= h->place.w;
    for (unsigned s = 0; s < n; s++)
      if (h->chosen[v] && (h->acked[v] >> s & 1) && random_below(3) == 0) flag_from[s] = v;
  }
  for (unsigned s = 0; s < n; s++) {
    struct peer_rows *rows = &h->rows[s];
    for (unsigned v = VERSIONS_MAX; v >= 1 && v >= flag_from[s]; v--)
      if (h->acked[v] >> s & 1) add_row(rows, v, v == flag_from[s], (uint8_t)random_below(3));
    if (!cuts || rows->count < 2 || random_below(3)) continue;
    rows->count = 1 + random_below(rows->count - 1); /* the newest flagged row is always the last */
    rows->more = true;
  }
}

static struct key_replies *ask(const struct history *h, uint32_t asked) {
  struct key_replies *replies = calloc(1, sizeof *replies);
  cr_assert_not_null(replies);
  for (unsigned s = 0; s < h->place.n; s++) {
    if (!(asked >> s & 1)) continue;
    replies->replied[s] = true;
    replies->rows[s] = h->rows[s];
  }
  return replies;
}

static unsigned newest_chosen(const struct history *h) {
  for (unsigned v = VERSIONS_MAX; v >= 1; v--)
    if (h->chosen[v]) return v;
  return 0;
}

Test(classify, never_contradicts_what_was_acknowledged) {
  static struct history h;
  unsigned seen[VERDICT_UNDETERMINED + 1] = {0};
  for (unsigned round = 0; round < 60000; round++) {
    history_draw(&h, round % 2);
    uint32_t asked = random_below(1u << h.place.n);
    struct key_replies *replies = ask(&h, asked);
    struct classification c;
    classify(&h.place, replies, &c);
    seen[c.verdict]++;
    unsigned truth = newest_chosen(&h), said = (unsigned)c.row.ver.hlc;
    switch (c.verdict) {
      case VERDICT_CHOSEN:
        cr_assert_eq(said, truth);
        break;
      case VERDICT_ABSENT:
        cr_assert_eq(truth, 0);
        break;
      case VERDICT_UNDETERMINED:
        cr_assert_geq(said, truth);
        break;
      case VERDICT_TOO_FEW:
        break;
    }
    for (unsigned i = 0; i < c.dead_count; i++) cr_assert(!h.chosen[c.dead[i].hlc]);
    cr_assert_eq(c.replies, (unsigned)__builtin_popcount(asked));
    free(replies);
  }
  for (unsigned v = 0; v < ARRAY_LEN(seen); v++) cr_assert_gt(seen[v], 1000, "verdict %u", v);
}

/* The words of PROTOCOL.md 5, one version at a time, over plain sets. */
static enum verdict restate(const struct history *h, uint32_t asked, unsigned *ret_ver,
                            uint32_t *ret_acked) {
  unsigned r = (unsigned)__builtin_popcount(asked);
  if (r < h->place.r) return VERDICT_TOO_FEW;
  for (unsigned v = VERSIONS_MAX + 1; v-- > 0;) {
    uint32_t acked = 0, flagged = 0;
    for (unsigned s = 0; s < h->place.n; s++) {
      if (!(asked >> s & 1)) continue;
      const struct peer_rows *rows = &h->rows[s];
      for (unsigned i = 0; i < rows->count; i++) {
        acked |= (uint32_t)(rows->rows[i].row.ver.hlc == v) << s;
        flagged |= (uint32_t)(rows->rows[i].row.ver.hlc == v && rows->rows[i].chosen) << s;
      }
    }
    if (!acked && v > 0) continue;
    for (unsigned s = 0; s < h->place.n; s++)
      if ((asked >> s & 1) && h->rows[s].more &&
          h->rows[s].rows[h->rows[s].count - 1].row.ver.hlc > v)
        return VERDICT_TOO_FEW;
    *ret_ver = v;
    *ret_acked = acked;
    unsigned votes = (unsigned)__builtin_popcount(acked);
    if (v == 0) return VERDICT_ABSENT;
    if (flagged || votes >= h->place.w) return VERDICT_CHOSEN;
    if (votes + h->place.n - r >= h->place.w) return VERDICT_UNDETERMINED;
  }
  cr_assert(false);
  return VERDICT_ABSENT;
}

Test(classify, is_the_rule_as_written) {
  static struct history h;
  for (unsigned round = 0; round < 60000; round++) {
    history_draw(&h, round % 2);
    uint32_t asked = random_below(1u << h.place.n), acked = 0;
    unsigned ver = 0;
    struct key_replies *replies = ask(&h, asked);
    struct classification c;
    classify(&h.place, replies, &c);
    cr_assert_eq(c.verdict, restate(&h, asked, &ver, &acked));
    if (c.verdict == VERDICT_CHOSEN || c.verdict == VERDICT_UNDETERMINED) {
      cr_assert_eq(c.row.ver.hlc, ver);
      cr_assert_eq(c.acked, acked);
      cr_assert_eq(c.flagged & ~c.acked, 0);
    }
    free(replies);
  }
}

/* 4+2, five replies: one rotten chunk must not take a vote away. */
Test(classify, a_lost_chunk_is_still_a_vote) {
  struct history h = {.place = place_of(3)};
  for (unsigned s = 0; s < 5; s++) add_row(&h.rows[s], 4, false, s ? CHUNK_WHOLE : CHUNK_MISSING);
  struct key_replies *replies = ask(&h, 31);
  struct classification c;
  classify(&h.place, replies, &c);
  cr_assert_eq(c.verdict, VERDICT_CHOSEN);
  cr_assert(c.acked == 31 && c.healthy == 30);
  free(replies);
}

/* A value proposed again at a higher ver: the old row's chunk serves it, but is no vote for it. */
Test(classify, the_chunk_of_an_older_proposal_of_the_same_data_is_healthy) {
  struct history h = {.place = place_of(3)};
  for (unsigned s = 0; s < 4; s++) {
    if (s < 2) add_row(&h.rows[s], 5, true, CHUNK_WHOLE);
    add_row(&h.rows[s], 4, false, CHUNK_WHOLE);
    h.rows[s].rows[0].row.data_id.bytes[0] = 9;
    h.rows[s].rows[h.rows[s].count - 1].row.data_id.bytes[0] = 9;
  }
  struct key_replies *replies = ask(&h, 15);
  struct classification c;
  classify(&h.place, replies, &c);
  cr_assert(c.verdict == VERDICT_CHOSEN && c.row.ver.hlc == 5);
  cr_assert(c.acked == 3 && c.flagged == 3 && c.healthy == 15);
  free(replies);
}

Test(classify, a_chosen_tombstone_is_chosen_and_seen_covers_promises_and_floors) {
  struct history h = {.place = place_of(2)};
  for (unsigned s = 0; s < 4; s++) add_row(&h.rows[s], 3, true, CHUNK_WHOLE);
  h.rows[2].promised = (struct version){8, 8};
  h.rows[1].floor = (struct version){7, 9};
  struct key_replies *replies = ask(&h, 15);
  struct classification c;
  classify(&h.place, replies, &c);
  cr_assert(c.verdict == VERDICT_CHOSEN && c.row.kind == ROW_TOMB && c.healthy == 15);
  cr_assert(c.seen.hlc == 8 && c.seen.nonce == 8);
  free(replies);
}

Test(classify, a_reply_cut_to_nothing_proves_nothing) {
  struct history h = {.place = place_of(2)};
  h.rows[0].more = true;
  struct key_replies *replies = ask(&h, 15);
  struct classification c;
  classify(&h.place, replies, &c);
  cr_assert_eq(c.verdict, VERDICT_TOO_FEW);
  free(replies);
}
