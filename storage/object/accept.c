/* accept.c: see accept.h. */
#include "storage/object/accept.h"

#include <errno.h>
#include <stdlib.h>

#include "config/err.h"
#include "config/sim_mutant.h"
#include "storage/object/settle.h"
#include "storage/object/slots.h"

int accept_open(struct accept *a, struct objects *o, const struct key_place *place,
                struct slice key, uint8_t *bytes, size_t len, void (*changed)(void *arg),
                void *arg) {
  *a = (struct accept){.o = o, .place = place, .key = key, .changed = changed, .arg = arg};
  int err = row_decode(slice_of(bytes, len), &place->bucket, key, &a->row);
  if (err < 0) return err;
  a->slots = calloc(place->n, sizeof *a->slots);
  if (!a->slots) return -ENOMEM;
  for (unsigned i = 0; i < place->n; i++) a->slots[i].accept = a;
  a->bytes = bytes;
  a->bytes_len = len;
  return 0;
}

void accept_close(struct accept *a) {
  if (a->slots)
    for (unsigned i = 0; i < a->place->n; i++) peer_call_release(&a->slots[i].call);
  free(a->slots);
  free(a->bytes);
  *a = (struct accept){0};
}

/* After these the drive has said that it did not store the row, and no copy of the message is left
 * that could still be stored. After anything else (a timeout, a lost connection, a failed drive)
 * the row may be there. */
static bool accept_is_refusal(int err) {
  switch (err) {
    case ERR_PROMISED:
    case ERR_FLOOR:
    case ERR_CLOCK:
    case ERR_STALE_EPOCH:
    case ERR_VER_REUSED:
    case ERR_BUCKET_DELETING:
    case ERR_NO_SPACE:
    case ERR_NO_CHUNK:
    case ERR_CORRUPT:
    case ERR_TOO_LARGE:
    case ERR_INVALID:
      return true;
    default:
      return false;
  }
}

static void accept_done(struct peer_call *call) {
  struct accept_slot *s = container_of(call, struct accept_slot, call);
  struct accept *a = s->accept;
  uint32_t bit = 1u << (s - a->slots);
  a->pending &= ~bit;
  s->err = call->reply.err;
  if (s->err == 0) {
    a->acked |= bit;
    if (call->reply.flags & PEER_SUPERSEDED) a->superseded |= bit;
  } else if (accept_is_refusal(s->err)) {
    a->refused |= bit;
    if (s->err == ERR_PROMISED || s->err == ERR_FLOOR) a->promised = true;
    version_raise(&a->nack, &call->reply.ver);
    objects_saw(a->o, &a->nack);
  } else {
    a->failed |= bit;
  }
  peer_call_release(call);
  a->changed(a->arg);
}

void accept_send(struct accept *a, unsigned slot, const struct peer_unit *units,
                 unsigned unit_count) {
  struct accept_slot *s = &a->slots[slot];
  uint32_t bit = 1u << slot;
  struct peer *peer = a->place->peers[slot];
  a->refused &= ~bit;
  if (!peer->up) {
    s->err = ERR_PEER_DOWN;
    a->refused |= bit;
    return;
  }
  s->call = (struct peer_call){.done = accept_done};
  objects_request(a->o, a->place, slot, a->key, PEER_ACCEPT, &s->call);
  struct peer_request *req = &s->call.req;
  req->flags = a->flags;
  req->row = slice_of(a->bytes, a->bytes_len);
  req->ver = a->row.ver;
  req->data_id = a->row.data_id;
  req->profile = a->row.profile;
  req->unit_count = unit_count;
  for (unsigned i = 0; i < unit_count; i++) req->units[i] = units[i];
  a->pending |= bit;
  peer_send(peer, &s->call);
}

bool accept_chosen(const struct accept *a) {
  return slots_count(a->acked) >= a->place->w;
}

void accept_commit(struct accept *a, uint32_t missing) {
  if (!accept_chosen(a) && !MUTANT(EARLY_COMMIT)) return;
  /* A drive that acked "superseded" has no row to flag, and one was chosen above this: nothing of
   * this version is worth healing. */
  if (a->superseded) missing = 0;
  uint32_t to = a->acked & ~a->superseded & ~a->committed;
  if (!a->pending) slots_foreach(i, a->committed) if (a->slots[i].told != missing) to |= 1u << i;
  if (!to) return;
  slots_foreach(i, to) a->slots[i].told = missing;
  a->committed |= to;
  commit_send(a->o, a->place, a->key, &a->row.ver, missing, to);
}
