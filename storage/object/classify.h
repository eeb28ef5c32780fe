/* classify.h: is a version chosen? Counting only (PROTOCOL.md 5). Pure. */
#ifndef KOFN_STORAGE_OBJECT_CLASSIFY_H
#define KOFN_STORAGE_OBJECT_CLASSIFY_H

#include "storage/object/objects.h"

enum verdict {
  VERDICT_TOO_FEW,      /* fewer than R repliers: nothing may be said */
  VERDICT_ABSENT,       /* no version is or may be chosen */
  VERDICT_CHOSEN,       /* `row` is chosen */
  VERDICT_UNDETERMINED, /* `row` might be chosen */
};

/* What drives said of one key; by slot. replied[i] false: no reply (or it could not read its rows).
 */
struct key_replies {
  bool replied[MAP_SLOTS_MAX];
  struct peer_rows rows[MAP_SLOTS_MAX];
};

struct classification {
  enum verdict verdict;
  struct row row;     /* CHOSEN, UNDETERMINED: borrowed from the replies */
  struct slice bytes; /* its encoding */
  uint32_t acked;     /* slots that hold the row: votes */
  uint32_t flagged;   /* slots with its C flag */
  uint32_t healthy;   /* slots whose chunk of it is whole: decodability only */
  unsigned replies;
  struct version seen; /* highest row, promise or floor in sight */
  unsigned dead_count; /* newer versions that are provably not chosen */
  struct version dead[PEER_ROWS_MAX];
};

/* `replies` must outlive the result. A reply with `more` never lets the verdict be ABSENT or skip
 * past its end: TOO_FEW then. */
void classify(const struct key_place *place, const struct key_replies *replies,
              struct classification *ret);

#endif
