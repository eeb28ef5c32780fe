/* rebuild.h: makes the chunks that some slots lack and stages them there (internal).
 *
 * Reads stripes through stripe_reader, a window at a time; the chunk is checked against the row's
 * digest before anybody may ACCEPT it. Small chunks are not staged but kept here, for an ACCEPT to
 * carry. */
#ifndef KOFN_STORAGE_OBJECT_REBUILD_H
#define KOFN_STORAGE_OBJECT_REBUILD_H

#include "storage/object/stripe_reader.h"

/* True where chunks of this geometry travel inside the ACCEPT. */
bool object_is_inline(const struct objects *o, const struct stripe_geometry *g);

struct rebuild;
/* err 0: the slots in `ready` have the chunk staged, or rebuild_units has it. Else nothing is
 * ready. Runs once, later; then rebuild_close. */
typedef void (*rebuild_cb)(void *arg, int err, uint32_t ready);
/* place, key and row stay the caller's and outlive the rebuild (rebuild_close). `row` has data. */
_must_check_ int rebuild_start(struct objects *o, const struct key_place *place, struct slice key,
                               const struct row *row, uint32_t healthy, uint32_t want,
                               rebuild_cb cb, void *arg, struct rebuild **ret_rebuild);
/* Its callback still runs, soon, with ERR_CANCELLED. */
void rebuild_cancel(struct rebuild *rb);
/* The inline chunk of a ready slot; NULL (and count 0) where it was staged. Valid until close. */
const struct peer_unit *rebuild_units(const struct rebuild *rb, unsigned slot, unsigned *ret_count);
/* Only after the callback. NULL is allowed. */
void rebuild_close(struct rebuild *rb);

#endif
