/* key_read.h: the newest chosen row of a key, decided one way or the other, without its data.
 *
 * Asks R drives and hedges to the rest; a version that might be chosen is waited for a little, then
 * resolved (object_resolve_start), then read again. Used by lists and buckets. */
#ifndef KOFN_STORAGE_OBJECT_KEY_READ_H
#define KOFN_STORAGE_OBJECT_KEY_READ_H

#include "storage/object/object.h"

#define KEY_READ_ROUNDS 4 /* reads of a key that others keep writing */

struct key_read;
/* err 0: `row` is chosen and no tombstone; valid until the callback returns. ERR_NO_SUCH_KEY;
 * ERR_UNAVAILABLE. `read` is gone when this returns. */
typedef void (*key_read_cb)(void *arg, int err, const struct row *row);

/* `key` is copied. cb runs later, exactly once, unless key_read_close comes first. */
_must_check_ int key_read_start(struct objects *o, unsigned pool, const struct id128 *bucket,
                                struct slice key, key_read_cb cb, void *arg,
                                struct key_read **ret_read);
/* No callback any more. NULL is allowed. */
void key_read_close(struct key_read *read);

#endif
