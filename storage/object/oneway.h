/* oneway.h: COMMIT, DISCARD and DROP: messages that nobody needs to wait for (internal).
 *
 * The memory is the message's own, so that the operation that sent it may end first. */
#ifndef KOFN_STORAGE_OBJECT_ONEWAY_H
#define KOFN_STORAGE_OBJECT_ONEWAY_H

#include "storage/object/objects.h"

struct oneway {
  enum peer_verb verb;
  struct version ver;     /* COMMIT, DISCARD */
  uint32_t missing;       /* COMMIT */
  struct id128 data_id;   /* DROP */
  struct profile profile; /* DROP */
};

/* Sends to those of the slots `to` whose drive is up; key is copied. Returns how many were sent.
 * `done` (may be NULL) runs once all have answered, whatever they said; never when 0 is returned.
 */
unsigned oneway_send(struct objects *o, const struct key_place *place, struct slice key,
                     const struct oneway *what, uint32_t to, void (*done)(void *arg), void *arg);

#endif
