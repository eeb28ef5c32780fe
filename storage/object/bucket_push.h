/* bucket_push.h: tells the drives of a pool a bucket's state (PROTOCOL.md 12).
 *
 * A push always carries the version of the register's row whose state it tells, and a drive keeps
 * the state of the highest version: pushes may come late, twice, or from anybody who has read the
 * register, and a gateway that dies between the register and the push is made good by the next. */
#ifndef KOFN_STORAGE_OBJECT_BUCKET_PUSH_H
#define KOFN_STORAGE_OBJECT_BUCKET_PUSH_H

#include "storage/object/bucket_row.h"

/* err 0: in every partition at least `need` drives hold the state (or the drive holds it already).
 * ERR_CONFLICT: a drive knows a newer state; ERR_UNAVAILABLE. have[drive], borrowed: those that are
 * known to hold it. */
typedef void (*bucket_push_cb)(void *arg, int err, const bool *have);
/* need: at most the pool's N. cb runs later, once: when all have answered, or OBJECT_SUSPECT_MS
 * after `need` did; drives that are still silent are told all the same. */
_must_check_ int bucket_push_start(struct objects *o, const struct bucket_row *row, unsigned need,
                                   bucket_push_cb cb, void *arg);

/* Fire and forget: tells all drives that a revived bucket is ACTIVE, then takes the mark away. A
 * few at a time; whoever reads the bucket next tries again. */
void bucket_revive(struct objects *o, const struct bucket_row *row);

#endif
