/* put_lag.c: the drives beyond W: how long a PUT waits for them, and when it leaves them out; see
 * put.h.
 *
 * An object shall have all its chunks when it is acknowledged, but a host at a tenth of its speed
 * must not slow every PUT down to its own (PROTOCOL.md 1). So a PUT whose W acks leave a spare
 * chunk waits for the others as long again as W took, and goes on behind the answer. What goes on
 * holds buffers: a drive that lags behind with too much is left out of new PUTs until it has caught
 * up, like one that is away, and the heal queue has its chunks. */
#include "storage/object/put.h"

/* W chunks and not one to spare: the object is worth the wait. A marker has no chunks. */
static bool put_has_spare(const struct object_put *put) {
  return put->kind == ROW_TOMB || put->place.w > put->place.d;
}

void put_lag_leave_out(struct object_put *put) {
  if (!put_has_spare(put)) return;
  unsigned live = 0;
  for (unsigned i = 0; i < put->place.n; i++) live += put->place.peers[i]->up;
  slots_foreach(i, put->live) {
    const struct peer *peer = put->place.peers[i];
    if (!peer->up || live <= put->place.w) continue;
    if (peer->lag_ops < OBJECT_LAG_OPS_MAX && peer->lag_bytes < OBJECT_LAG_BYTES_MAX) continue;
    put->live &= ~(1u << i);
    live--;
  }
}

static uint32_t put_lags(const struct object_put *put) {
  if (put->state == PUT_DONE) return put_trailing(put) | put->accept.pending;
  return put->state == PUT_FAIL ? 0 : put_trailing(put);
}

void put_lag_update(struct object_put *put) {
  uint32_t lags = put_lags(put);
  uint32_t changed = lags ^ put->lagging;
  if (!put->lagging) {
    put->lag_bytes = 0;
    for (unsigned i = 0; i < PUT_WINDOWS; i++) put->lag_bytes += put->windows[i].buf.size;
  }
  slots_foreach(i, changed) {
    struct peer *peer = put->place.peers[i];
    if (lags >> i & 1) {
      peer->lag_ops++;
      peer->lag_bytes += put->lag_bytes;
    } else {
      peer->lag_ops--;
      peer->lag_bytes -= put->lag_bytes;
    }
  }
  put->lagging = lags;
}

void put_wait_begin(struct object_put *put) {
  put->wait = (struct put_wait){.began_ms = env_now_ms(put->env)};
}

void put_wait_w(struct object_put *put) {
  if (put->wait.w_acked) return;
  put->wait.w_acked = true;
  put->wait.w_ms = env_now_ms(put->env);
}

uint64_t put_wait_patience(const struct object_put *put) {
  if (!put_has_spare(put)) return OBJECT_SUSPECT_MS;
  uint64_t took = put->wait.w_ms - put->wait.began_ms;
  return MIN(MAX(took, (uint64_t)OBJECT_PATIENCE_MS_MIN), (uint64_t)OBJECT_SUSPECT_MS);
}

bool put_wait_goes_on(struct object_put *put, uint64_t longest_ms) {
  uint64_t waited = env_now_ms(put->env) - put->wait.w_ms;
  if (waited >= longest_ms) return false;
  env_timer_start(put->env, &put->timer, longest_ms - waited);
  return true;
}
