/* settle.h: makes a version chosen that might be: ACCEPT at the drives that lack it, with rebuilt
 * chunks (PROTOCOL.md 6).
 *
 * Two uses: roll forward (same ver, promises respected by the nodes) and re-proposal under a
 * promise at a higher ver with the same op_id and data_id. W acks in all -> COMMIT with the missing
 * slots. */
#ifndef KOFN_STORAGE_OBJECT_SETTLE_H
#define KOFN_STORAGE_OBJECT_SETTLE_H

#include "storage/object/classify.h"

/* err 0: chosen. ERR_PROMISED: a promise stands in the way (RESOLVE may go on at a higher version);
 * ERR_UNAVAILABLE: W is out of reach or it cannot be decoded. */
typedef void (*settle_cb)(void *arg, int err);

/* `row` is the version to settle (decoded; copied), `ver` the version to write it at (row->ver, or
 * the promised one). acked: slots known to hold exactly this ver (0 when ver is new); healthy:
 * slots with a whole chunk of its data. */
_must_check_ int settle_start(struct objects *o, const struct key_place *place, struct slice key,
                              const struct row *row, const struct version *ver, uint32_t acked,
                              uint32_t healthy, settle_cb cb, void *arg);

/* Sends COMMIT(ver, missing) to the slots in `to`; fire and forget (memory is its own). */
void commit_send(struct objects *o, const struct key_place *place, struct slice key,
                 const struct version *ver, uint32_t missing, uint32_t to);

/* READ at the slots in `ask`, collecting into replies until `enough` says so or all answered. See
 * gather.c. */

#endif
