/* accept.h: the ACCEPT round of PUT and of settle, and the COMMITs that follow it (internal).
 *
 * It counts what every drive said about one row at one version: an ack, a definite refusal (the
 * drive did not and will not take this message), or anything else, after which the drive may or may
 * not hold the row. COMMIT goes to the ackers as soon as W acked; again, with the final list of
 * missing slots, once every drive has answered (PROTOCOL.md 5, 6). */
#ifndef KOFN_STORAGE_OBJECT_ACCEPT_H
#define KOFN_STORAGE_OBJECT_ACCEPT_H

#include "storage/object/objects.h"

struct accept;
struct accept_slot {
  struct peer_call call;
  struct accept *accept;
  uint32_t told; /* the missing mask of the last COMMIT to this slot */
  int err;       /* of the last ACCEPT */
};

struct accept {
  struct objects *o;
  const struct key_place *place; /* the owner's, like key; they outlive the pending calls */
  struct slice key;
  struct row row; /* decoded from bytes; ver included */
  uint8_t *bytes; /* the encoded row; owned */
  size_t bytes_len;
  uint32_t pending;
  uint32_t acked;
  uint32_t superseded; /* of the acked: not stored, because a chosen higher row is known */
  uint32_t refused;
  uint32_t failed;
  uint32_t committed;
  uint8_t flags;       /* of the requests */
  bool promised;       /* some refusal was by a promise or a floor */
  struct version nack; /* the highest version that refusals named */
  void (*changed)(void *arg);
  void *arg;
  struct accept_slot *slots; /* place->n; allocated */
};

/* Takes over `bytes` (malloc'ed) on success. */
_must_check_ int accept_open(struct accept *a, struct objects *o, const struct key_place *place,
                             struct slice key, uint8_t *bytes, size_t len,
                             void (*changed)(void *arg), void *arg);
/* Only when nothing is pending. Safe on a zeroed struct. */
void accept_close(struct accept *a);
/* units == NULL: no inline chunk. A drive known to be down refuses at once (nothing was sent). */
void accept_send(struct accept *a, unsigned slot, const struct peer_unit *units,
                 unsigned unit_count);
bool accept_chosen(const struct accept *a);
/* Tells the ackers, where it is chosen. `missing`: slots that are known to lack a chunk or the row.
 */
void accept_commit(struct accept *a, uint32_t missing);

#endif
