/* oneway.c: see oneway.h; and commit_send of settle.h. */
#include "storage/object/oneway.h"

#include <stdlib.h>

#include "storage/object/settle.h"
#include "storage/object/slots.h"

struct oneway_op;
struct oneway_slot {
  struct peer_call call;
  struct oneway_op *op;
};
struct oneway_op {
  struct objects *o;
  uint8_t *key;
  unsigned pending;
  void (*done)(void *arg);
  void *arg;
  struct oneway_slot slots[];
};

static void oneway_done(struct peer_call *call) {
  struct oneway_op *op = container_of(call, struct oneway_slot, call)->op;
  peer_call_release(call);
  if (--op->pending) return;
  op->o->running--;
  if (op->done) op->done(op->arg);
  free(op->key);
  free(op);
}

unsigned oneway_send(struct objects *o, const struct key_place *place, struct slice key,
                     const struct oneway *what, uint32_t to, void (*done)(void *arg), void *arg) {
  uint32_t up = 0;
  slots_foreach(i, to & slots_all(place->n)) if (place->peers[i]->up) up |= 1u << i;
  unsigned count = slots_count(up);
  if (!count) return 0;
  struct oneway_op *op = calloc(1, sizeof *op + count * sizeof *op->slots);
  uint8_t *copy = malloc(key.len + 1);
  if (!op || !copy) { /* all three are accelerators or tidying: safe to lose */
    free(op);
    free(copy);
    return 0;
  }
  memcpy(copy, key.data, key.len);
  *op = (struct oneway_op){.o = o, .key = copy, .pending = count, .done = done, .arg = arg};
  o->running++;
  struct oneway_slot *s = op->slots;
  slots_foreach(i, up) {
    s->op = op;
    objects_request(o, place, i, slice_of(copy, key.len), what->verb, &s->call);
    s->call.req.ver = what->ver;
    s->call.req.missing = what->missing;
    s->call.req.data_id = what->data_id;
    s->call.req.profile = what->profile;
    s->call.done = oneway_done;
    peer_send(place->peers[i], &s->call);
    s++;
  }
  return count;
}

void commit_send(struct objects *o, const struct key_place *place, struct slice key,
                 const struct version *ver, uint32_t missing, uint32_t to) {
  struct oneway commit = {.verb = PEER_COMMIT, .ver = *ver, .missing = missing};
  (void)oneway_send(o, place, key, &commit, to, NULL, NULL);
}
