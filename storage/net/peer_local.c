/* peer_local.c: a peer_call on the loop -> drive_job on a lane -> mail -> done on the loop.
 *
 * A READ is done here, at the end of the turn, while the drive's index is warm and its lanes
 * answer; so many a millisecond, that the loop has time for the rest.
 *
 * The job and the mail of a call stand in a local_op, which is kept for the next call. Neither the
 * lanes nor a deadline can take a buffer away from a lane that uses it, so a call ends when the
 * lane is done with it, with the true result; the caller learns from `suspect` that it is late. */
#include "storage/net/peer_local.h"

#include <assert.h>
#include <stdlib.h>

#include "config/err.h"

#define SUSPECT_AFTER_MS 1000
#define LOCAL_OPS_KEPT_MAX 64
#define LATENCY_LATE_MS 25
#define READS_HERE_PER_MS_MAX 128
#define READS_HERE_SILENCE_MS 100 /* a drive that was silent for so long may hang */

struct peer_local {
  struct peer peer;
  struct env_uv *env;
  struct drive_lanes *lanes;
  struct list outstanding; /* peer_call, longest waiting first */
  struct list jobs;        /* drive_job: of this turn, not yet with the lanes */
  struct env_uv_turn turn;
  uint64_t reads_here_ms; /* the last of them; how many in that millisecond */
  unsigned reads_here;
  struct list refused; /* peer_call that never reached a lane; reply.err is set */
  struct mail refused_mail;
  bool refused_posted;
  struct list spare; /* local_op, by job.link */
  unsigned spare_count;
  struct env_timer suspect_timer;
  uint64_t answered_ms; /* when the drive last answered anything */
};

struct local_op {
  struct drive_job job;
  struct mail mail;
  struct peer_local *local;
  struct peer_call *call;
  uint64_t started_ns;
};

static uint64_t local_now_ms(const struct peer_local *p) {
  return env_now_ms(env_uv_env(p->env));
}

/* Since when nothing came although something was asked. */
static uint64_t silent_since_ms(const struct peer_local *p) {
  const struct peer_call *oldest = container_of(p->outstanding.next, struct peer_call, link);
  return MAX(oldest->started_ms, p->answered_ms);
}

static void suspect_arm(struct peer_local *p) {
  if (list_empty(&p->outstanding) || p->suspect_timer.armed || p->peer.suspect) return;
  uint64_t now = local_now_ms(p), due = silent_since_ms(p) + SUSPECT_AFTER_MS;
  env_timer_start(env_uv_env(p->env), &p->suspect_timer, due > now ? due - now : 0);
}

static void suspect_fire(struct env_timer *t) {
  struct peer_local *p = container_of(t, struct peer_local, suspect_timer);
  if (list_empty(&p->outstanding)) return;
  if (local_now_ms(p) >= silent_since_ms(p) + SUSPECT_AFTER_MS) p->peer.suspect = true;
  suspect_arm(p);
}

static void refused_deliver(struct mail *m) {
  struct peer_local *p = container_of(m, struct peer_local, refused_mail);
  struct list batch;
  list_init(&batch);
  list_splice_back(&batch, &p->refused);
  p->refused_posted = false;
  for (struct list *l; (l = list_pop_front(&batch));) {
    struct peer_call *call = container_of(l, struct peer_call, link);
    call->done(call);
  }
}

static void refuse(struct peer_local *p, struct peer_call *call, int err) {
  call->reply.err = err;
  list_push_back(&p->refused, &call->link);
  if (p->refused_posted) return;
  p->refused_posted = true;
  mailbox_post(env_uv_mailbox(p->env), &p->refused_mail);
}

static void latency_note(struct peer_local *p, const struct local_op *op) {
  uint8_t verb = op->call->req.verb;
  if (verb != PEER_READ && verb != PEER_FETCH) return;
  uint64_t now = uv_hrtime();
  peer_latency_note(&p->peer, (now - op->started_ns) / 1000, now / 1000000);
}

/* A read that is late tells of its drive before it is answered. */
static void latency_look(struct peer_local *p, uint64_t now) {
  if (list_empty(&p->outstanding)) return;
  const struct peer_call *oldest = container_of(p->outstanding.next, struct peer_call, link);
  if (oldest->req.verb != PEER_READ && oldest->req.verb != PEER_FETCH) return;
  uint64_t silent = now - MIN(silent_since_ms(p), now);
  if (silent >= LATENCY_LATE_MS) peer_latency_waits(&p->peer, silent * 1000, now);
}

static void op_recycle(struct peer_local *p, struct local_op *op) {
  if (p->spare_count == LOCAL_OPS_KEPT_MAX) {
    free(op);
    return;
  }
  list_push_front(&p->spare, &op->job.link);
  p->spare_count++;
}

static void op_deliver(struct mail *m) {
  struct local_op *op = container_of(m, struct local_op, mail);
  struct peer_local *p = op->local;
  struct peer_call *call = op->call;
  list_remove(&call->link);
  p->answered_ms = local_now_ms(p);
  p->peer.suspect = false;
  if (drive_failed(lanes_drive(p->lanes))) {
    peer_set_up(&p->peer, false);
  } else if (call->reply.err == 0) {
    latency_note(p, op);
  }
  op_recycle(p, op);
  call->done(call);
}

/* On a lane thread. */
static void op_done(struct drive_job *job) {
  struct local_op *op = container_of(job, struct local_op, job);
  mailbox_post(env_uv_mailbox(op->local->env), &op->mail);
}

static struct local_op *op_new(struct peer_local *p) {
  struct list *l = list_pop_front(&p->spare);
  if (!l) return malloc(sizeof(struct local_op));
  p->spare_count--;
  return container_of(l, struct local_op, job.link);
}

static bool may_read_here(struct peer_local *p, const struct local_op *op, uint64_t now) {
  if (op->call->req.verb != PEER_READ) return false;
  if (now - MIN(silent_since_ms(p), now) >= READS_HERE_SILENCE_MS) return false;
  if (now != p->reads_here_ms) p->reads_here = 0;
  p->reads_here_ms = now;
  return p->reads_here++ < READS_HERE_PER_MS_MAX;
}

/* The jobs of a turn go to the lanes together: a thread's wake-up costs more than a READ. */
static void submit_turn(struct env_uv_turn *t) {
  struct peer_local *p = container_of(t, struct peer_local, turn);
  uint64_t now = local_now_ms(p);
  struct list asked, lanes;
  list_init(&asked);
  list_init(&lanes);
  list_splice_back(&asked, &p->jobs); /* an answer may lead to the next call */
  for (struct list *l; (l = list_pop_front(&asked));) {
    struct local_op *op = container_of(l, struct local_op, job.link);
    struct peer_call *call = op->call;
    if (may_read_here(p, op, now) && lanes_read_here(p->lanes, &call->req, &call->reply))
      op_deliver(&op->mail);
    else
      list_push_back(&lanes, l);
  }
  if (!list_empty(&lanes)) lanes_submit_all(p->lanes, &lanes);
}

static void peer_local_send(struct peer *peer, struct peer_call *call) {
  struct peer_local *p = container_of(peer, struct peer_local, peer);
  call->peer = peer;
  call->reply = (struct peer_reply){0};
  call->started_ms = local_now_ms(p);
  if (!p->lanes || drive_failed(lanes_drive(p->lanes))) {
    peer_set_up(peer, false);
    refuse(p, call, ERR_DRIVE_FAILED);
    return;
  }
  struct local_op *op = op_new(p);
  if (!op) {
    refuse(p, call, -ENOMEM);
    return;
  }
  *op = (struct local_op){
      .job = {.req = &call->req, .reply = &call->reply, .done = op_done},
      .mail = {.deliver = op_deliver},
      .local = p,
      .call = call,
      .started_ns = uv_hrtime(),
  };
  latency_look(p, call->started_ms);
  list_push_back(&p->outstanding, &call->link);
  suspect_arm(p);
  list_push_back(&p->jobs, &op->job.link);
  env_uv_turn_end(p->env, &p->turn);
}

/* A lane cannot be interrupted: `done` runs with the result, as soon as the lane lets go. */
static void peer_local_cancel(struct peer *peer, struct peer_call *call) {
  (void)peer;
  (void)call;
}

static const struct peer_ops peer_local_ops = {.send = peer_local_send,
                                               .cancel = peer_local_cancel};

int peer_local_new(struct env_uv *env, uint16_t drive, struct drive_lanes *lanes,
                   struct peer **ret_peer) {
  struct peer_local *p = calloc(1, sizeof *p);
  if (!p) return -ENOMEM;
  p->peer = (struct peer){
      .ops = &peer_local_ops,
      .drive = drive,
      .local = true,
      .up = lanes && !drive_failed(lanes_drive(lanes)),
  };
  p->env = env;
  p->lanes = lanes;
  list_init(&p->outstanding);
  list_init(&p->refused);
  list_init(&p->jobs);
  list_init(&p->spare);
  p->refused_mail.deliver = refused_deliver;
  p->turn.run = submit_turn;
  p->suspect_timer.fire = suspect_fire;
  *ret_peer = &p->peer;
  return 0;
}

void peer_local_free(struct peer *peer) {
  if (!peer) return;
  struct peer_local *p = container_of(peer, struct peer_local, peer);
  assert(list_empty(&p->outstanding));
  assert(list_empty(&p->refused));
  env_timer_stop(env_uv_env(p->env), &p->suspect_timer);
  for (struct list *l; (l = list_pop_front(&p->spare));)
    free(container_of(l, struct local_op, job.link));
  free(p);
}
