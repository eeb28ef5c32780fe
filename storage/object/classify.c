/* classify.c: PROTOCOL.md 5, from the newest version in sight to the oldest.
 *
 * Votes are rows, whatever has become of their chunks since: one rotten chunk must not make an
 * acknowledged version "provably not chosen". */
#include "storage/object/classify.h"

#include "config/sim_mutant.h"

static const struct peer_row *find_row(const struct peer_rows *rows, const struct version *ver) {
  for (unsigned i = 0; i < rows->count; i++)
    if (version_cmp(&rows->rows[i].row.ver, ver) == 0) return &rows->rows[i];
  return NULL;
}

/* The highest version below `below` (NULL: of all) that any replier shows. */
static bool next_version(const struct key_place *place, const struct key_replies *replies,
                         const struct version *below, struct version *ret_ver) {
  bool found = false;
  for (unsigned s = 0; s < place->n; s++) {
    const struct peer_rows *rows = &replies->rows[s];
    if (!replies->replied[s]) continue;
    for (unsigned i = 0; i < rows->count; i++) {
      const struct version *ver = &rows->rows[i].row.ver;
      if (below && version_cmp(ver, below) >= 0) continue;
      if (!found || version_cmp(ver, ret_ver) > 0) *ret_ver = *ver;
      found = true;
      break; /* newest first: the rest is older */
    }
  }
  return found;
}

/* A cut reply says nothing of what is older than its last row: not of `ver`, and not of versions
 * between its end and `ver` that only it may hold. ver NULL: older than everything. */
static bool beyond_a_cut(const struct key_place *place, const struct key_replies *replies,
                         const struct version *ver) {
  for (unsigned s = 0; s < place->n; s++) {
    const struct peer_rows *rows = &replies->rows[s];
    if (!replies->replied[s] || !rows->more) continue;
    if (!ver || rows->count == 0) return true;
    if (version_cmp(ver, &rows->rows[rows->count - 1].row.ver) < 0) return true;
  }
  return false;
}

/* The same chunk serves every version that carries its data_id (a value that was proposed again).
 */
static bool holds_chunk(const struct peer_rows *rows, const struct row *row) {
  for (unsigned i = 0; i < rows->count; i++) {
    const struct peer_row *have = &rows->rows[i];
    if (have->chunk_state == CHUNK_WHOLE && row_has_data(&have->row) &&
        id128_eq(&have->row.data_id, &row->data_id))
      return true;
  }
  return false;
}

static void count_votes(const struct key_place *place, const struct key_replies *replies,
                        const struct version *ver, struct classification *c) {
  c->acked = c->flagged = c->healthy = 0;
  for (unsigned s = 0; s < place->n; s++) {
    if (!replies->replied[s]) continue;
    const struct peer_row *have = find_row(&replies->rows[s], ver);
    if (!have) continue;
    if (c->acked == 0) {
      c->row = have->row;
      c->bytes = have->bytes;
    }
    c->acked |= 1u << s;
    if (have->chosen) c->flagged |= 1u << s;
  }
  for (unsigned s = 0; s < place->n; s++) {
    if (!replies->replied[s]) continue;
    bool healthy =
        row_has_data(&c->row) ? holds_chunk(&replies->rows[s], &c->row) : c->acked >> s & 1;
    if (healthy) c->healthy |= 1u << s;
  }
}

static void note_seen(const struct key_place *place, const struct key_replies *replies,
                      struct classification *c) {
  for (unsigned s = 0; s < place->n; s++) {
    const struct peer_rows *rows = &replies->rows[s];
    if (!replies->replied[s]) continue;
    c->replies++;
    version_raise(&c->seen, &rows->promised);
    version_raise(&c->seen, &rows->floor);
    if (rows->count > 0) version_raise(&c->seen, &rows->rows[0].row.ver);
  }
}

void classify(const struct key_place *place, const struct key_replies *replies,
              struct classification *c) {
  *c = (struct classification){.verdict = VERDICT_TOO_FEW};
  note_seen(place, replies, c);
  if (c->replies < place->r && !MUTANT(ABSENT_BELOW_R)) return;

  struct version ver = {0}, last;
  bool first = true;
  while (last = ver, next_version(place, replies, first ? NULL : &last, &ver)) {
    first = false;
    if (beyond_a_cut(place, replies, &ver)) return;
    count_votes(place, replies, &ver, c);
    unsigned votes = (unsigned)__builtin_popcount(MUTANT(CHUNKS_VOTE) ? c->healthy : c->acked);
    if (MUTANT(NAIVE_READ) && (unsigned)__builtin_popcount(c->healthy) < place->d) continue;
    if (c->flagged || votes >= place->w || MUTANT(NAIVE_READ)) {
      c->verdict = VERDICT_CHOSEN;
      return;
    }
    if (votes + (place->n - c->replies) >= place->w && !MUTANT(ROLL_BACK)) {
      c->verdict = VERDICT_UNDETERMINED;
      return;
    }
    /* Dead ones beyond the array are found again by the next look at the key. */
    if (c->dead_count < PEER_ROWS_MAX) c->dead[c->dead_count++] = ver;
  }
  c->acked = c->flagged = c->healthy = 0;
  if (!beyond_a_cut(place, replies, NULL)) c->verdict = VERDICT_ABSENT;
}
