/* put_stage.c: a window's units to the drives, and who is left out; see put.h.
 *
 * A slot leaves this PUT when its STAGE fails, or when W others have acked the window and it is
 * suspect or silent for OBJECT_SUSPECT_MS. What it holds is dropped when its call has ended. The
 * last window does not wait so long: a slot that is late with it trails behind, its ACCEPT follows
 * its STAGE. */
#include "config/err.h"
#include "storage/object/oneway.h"
#include "storage/object/put.h"

static void put_stage_done(struct peer_call *call) {
  struct put_slot *s = container_of(call, struct put_slot, call);
  struct object_put *put = s->put;
  uint32_t bit = 1u << (s - put->slots);
  int err = call->reply.err;
  put->stage_pending &= ~bit;
  if (err == 0) {
    put->stage_acked |= bit;
  } else if (put->live & bit) {
    put->live &= ~bit;
    if (err == ERR_NO_SPACE) put->no_space |= bit;
  }
  peer_call_release(call);
  if (!(put->live & bit) && put->state != PUT_FAIL)
    (void)put_stage_drop(put, bit);
  else if (err == 0 && put->state >= PUT_ACCEPT)
    put_accept_late(put, (unsigned)(s - put->slots));
  put_unref_advance(put);
}

static void put_stage_send(struct object_put *put, struct put_window *w, unsigned slot) {
  uint32_t bit = 1u << slot;
  struct peer *peer = put->place.peers[slot];
  if (!peer->up) {
    put->live &= ~bit;
    return;
  }
  struct peer_call *call = &put->slots[slot].call;
  *call = (struct peer_call){.done = put_stage_done};
  objects_request(put->o, &put->place, slot, put->key, PEER_STAGE, call);
  call->req.data_id = put->data_id;
  call->req.profile = put->profile;
  call->req.unit_first = w->stripe_first;
  call->req.unit_count = w->stripe_count;
  memcpy(call->req.units, w->units[slot], w->stripe_count * sizeof w->units[slot][0]);
  put->staged |= bit;
  put->stage_pending |= bit;
  put_ref(put);
  peer_send(peer, call);
}

void put_stage_start(struct object_put *put, struct put_window *w) {
  put->stage_acked = 0;
  put_wait_begin(put);
  slots_foreach(i, put->live) put_stage_send(put, w, i);
}

static void put_stage_cut(struct object_put *put, unsigned slot) {
  put->live &= ~(1u << slot);
  peer_cancel(&put->slots[slot].call);
}

/* Whether the window is as good as staged although `late` slots have not acked it. */
static bool put_stage_without(struct object_put *put, uint32_t late) {
  bool last = put->body_ended && put->stage_seq + 1 == put->read_seq;
  put_wait_w(put);
  slots_foreach(i, late) {
    if (put->place.peers[i]->suspect) put_stage_cut(put, i);
  }
  late &= put->live;
  if (!late || put_wait_goes_on(put, last ? put_wait_patience(put) : OBJECT_SUSPECT_MS))
    return false;
  if (last) return true;
  slots_foreach(i, late) put_stage_cut(put, i);
  return false;
}

bool put_stage_step(struct object_put *put) {
  if (slots_count(put->live) < put->place.w) {
    put_fail(put, put_stage_shortage(put));
    return false;
  }
  uint32_t late = put->stage_pending & put->live;
  bool enough = slots_count(put->stage_acked & put->live) >= put->place.w;
  if (put->stage_pending && !(late && enough && put_stage_without(put, late))) return false;
  env_timer_stop(put->env, &put->timer);
  return true;
}

void put_stage_stop(struct object_put *put) {
  slots_foreach(i, put->stage_pending) peer_cancel(&put->slots[i].call);
}

int put_stage_shortage(const struct object_put *put) {
  /* 507 only where the full drives alone make W unreachable: else a drive that comes back helps. */
  unsigned with_space = put->place.n - slots_count(put->no_space);
  return with_space < put->place.w ? ERR_NO_SPACE : ERR_UNAVAILABLE;
}

static void put_stage_dropped(void *arg) {
  struct object_put *put = arg;
  put->dropping--;
  put_unref_advance(put);
}

unsigned put_stage_drop(struct object_put *put, uint32_t slots) {
  /* Where an ACCEPT is under way, or ended without an answer, the stage may be turning into the
   * row's chunk: it is not ours to take away. */
  slots &= put->staged & ~put->stage_pending & ~(put->accept.pending | put->accept.failed);
  put->staged &= ~slots;
  struct oneway drop = {.verb = PEER_DROP, .data_id = put->data_id, .profile = put->profile};
  unsigned sent = oneway_send(put->o, &put->place, put->key, &drop, slots, put_stage_dropped, put);
  if (sent) {
    put->dropping++;
    put_ref(put);
  }
  return sent;
}
