/* stripe_reader.c: which chunks a window is read from, and what happens when they fail.
 *
 *   read -> buffer -> FETCH to enough slots -> all of them in -> verify, decode -> cb
 *                        ^      | failed, overdue                    | bad CRC
 *                        +------+------------------------------------+
 *
 * A slot is asked at most once in a window, so every read ends. The buffer is decoded into only
 * when no call refers to it: a hedge's loser is cancelled and waited for; where it does not come
 * back (a stuck disk) the load is orphaned and the window is read again without that slot. */
#include "storage/object/stripe_reader.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "config/err.h"
#include "storage/object/slots.h"
#include "storage/object/stripe_load.h"

#define HEDGE_MS_MIN 50
#define HEDGE_MS_MAX 1000
#define HEDGE_LATENCY_TIMES 4
#define CANCEL_WAIT_MS 50 /* for a cancelled call to come back */
#define GIVE_UP_MS 1000   /* beyond the peers' own deadline, which a stuck lane does not keep */
#define WINDOW_NOT_BEGUN UINT64_MAX
#define SLOW_WINDOWS 32 /* after so many windows a slow slot is tried again */

enum reader_state {
  READER_IDLE,
  READER_BUFFER,     /* waits for a buffer */
  READER_CANCELLING, /* no longer wants it, but is still in the queue */
  READER_LOAD,
  READER_ENDING, /* end_err is about to be delivered */
};

struct stripe_reader {
  struct objects *o;
  struct key_place place;
  struct stripe_geometry geometry;
  struct id128 data_id;
  struct codec *codec;
  uint32_t healthy, want;
  uint32_t bad;  /* had a bad unit: used last */
  uint32_t gone; /* has no chunk: never used */
  uint32_t lost; /* could not be reached the last time */
  uint32_t slow; /* lost against a hedge */
  /* Of the window that is read: slots whose cancelled call did not come back. They are the very
   * last to be asked again, or a silent one would be hedged to and waited for without end. */
  uint32_t stuck;
  uint64_t window_ms; /* its first load began; WINDOW_NOT_BEGUN */
  unsigned windows;
  const uint8_t *inline_bytes[MAP_SLOTS_MAX]; /* the caller's */
  const uint32_t *inline_crcs[MAP_SLOTS_MAX];
  stripe_reader_cb cb;
  void *arg;
  enum reader_state state;
  uint64_t read_first, read_count;
  struct env_buf_wait wait;
  unsigned wait_stripes;
  struct env_timer ending; /* delivers end_err from a clean stack */
  int end_err;
  struct stripe_load *load;
  unsigned loads; /* this one and orphans */
  bool waiting, closed, started;
};

static void reader_advance(struct stripe_reader *r);

static void reader_free(struct stripe_reader *r) {
  r->o->running--;
  free(r);
}

static void reader_drop(struct stripe_reader *r) {
  if (r->closed && r->loads == 0 && !r->waiting) reader_free(r);
}

/* An orphan ends when nothing refers to its buffer any more. */
static void load_drop(struct stripe_load *l) {
  struct stripe_reader *r = l->reader;
  if (l->pending || l->working) return;
  if (l->window.buf.data) env_buf_put(r->o->env, &l->window.buf);
  free(l);
  r->loads--;
  reader_drop(r);
}

static void load_cancel_calls(struct stripe_load *l) {
  for (unsigned i = 0; i < l->window.n; i++)
    if (l->pending >> i & 1) peer_cancel(&l->fetch[i].call);
}

static void load_orphan(struct stripe_load *l) {
  l->orphan = true;
  l->reader->load = NULL;
  env_timer_stop(l->reader->o->env, &l->hedge);
  env_timer_stop(l->reader->o->env, &l->stuck);
  load_cancel_calls(l);
  load_drop(l);
}

static void reader_ending(struct env_timer *t) {
  struct stripe_reader *r = container_of(t, struct stripe_reader, ending);
  r->state = READER_IDLE;
  r->cb(r->arg, r->end_err, NULL);
}

static void reader_end(struct stripe_reader *r, int err) {
  if (r->load) load_orphan(r->load);
  r->state = READER_ENDING;
  r->end_err = err;
  env_timer_start(r->o->env, &r->ending, 0);
}

static void reader_deliver(struct stripe_reader *r) {
  struct stripe_load *l = TAKE(r->load);
  struct stripe_window window = l->window;
  env_timer_stop(r->o->env, &l->hedge);
  env_timer_stop(r->o->env, &l->stuck);
  l->window.buf = (struct env_buf){0};
  r->state = READER_IDLE;
  r->started = true;
  if (++r->windows % SLOW_WINDOWS == 0) r->slow = 0;
  r->loads++; /* the callee may close the reader */
  load_drop(l);
  r->cb(r->arg, 0, &window);
  r->loads--;
  reader_drop(r);
}

/* The smaller, the better a source; -1 where it is none. */
static int slot_rank(const struct stripe_reader *r, const struct stripe_load *l, unsigned slot) {
  const struct peer *peer = r->place.peers[slot];
  uint32_t bit = 1u << slot;
  if ((l->asked | r->gone) & bit) return -1;
  if (stripe_load_unit_count(l, slot) == 0) return -1; /* no bytes in this window */
  if (r->inline_bytes[slot]) return 0;
  int rank = r->healthy & bit ? 1 : 2;
  if (peer->suspect || (r->slow | r->place.slow) & bit) rank += 2;
  if (r->lost & bit) rank += 4;
  if (r->bad & bit) rank += 8;
  if (!peer->up) rank += 16;
  if (r->stuck & bit) rank += 32;
  return rank;
}
#define SLOT_RANK_GOOD 2 /* up, not suspect, not slow, not known to be bad */

#define SLOT_RANK_MAX 64 /* all of the above together */

/* A price for codec_minimum: rank before all, then wanted ones, then fast ones. Times that differ
 * by less than a factor of two are alike: there an XOR is worth more. */
static uint32_t slot_price(const struct stripe_reader *r, const struct stripe_load *l,
                           unsigned slot, unsigned rank) {
  if (l->want >> slot & 1) return (rank + 1) << 8;
  uint32_t us = r->place.peers[slot]->latency_us;
  return (rank + 1) << 8 | (1 + (us ? 32 - (unsigned)__builtin_clz(us) : 0));
}

/* The next sources: as few as give the window, out of slots no worse than they need be. 0: there
 * are none. `got` is at hand already. */
static uint32_t slots_next(const struct stripe_reader *r, const struct stripe_load *l,
                           uint32_t got) {
  uint32_t cost[MAP_SLOTS_MAX] = {0}, by_rank[SLOT_RANK_MAX + 1] = {0}, have = 0;
  for (unsigned i = 0; i < l->window.n; i++) {
    int rank = slot_rank(r, l, i);
    if (rank < 0) continue;
    by_rank[rank] |= 1u << i;
    cost[i] = slot_price(r, l, i, (unsigned)rank);
  }
  for (unsigned rank = 0; rank <= SLOT_RANK_MAX; rank++) {
    if (!by_rank[rank]) continue;
    have |= by_rank[rank];
    uint32_t sources = stripe_load_sources(l, got, have, cost);
    if (sources) return sources;
  }
  return 0;
}

static uint64_t hedge_after_ms(const struct peer *peer) {
  uint64_t ms = (uint64_t)peer->latency_us * HEDGE_LATENCY_TIMES / 1000;
  return MIN(MAX(HEDGE_MS_MIN, ms), HEDGE_MS_MAX);
}

/* When the window is given up, whatever is still pending. */
static uint64_t give_up_ms(const struct stripe_load *l) {
  return l->started_ms + l->reader->o->peer_timeout_ms + GIVE_UP_MS;
}

/* Arms the hedge timer for the pending call that becomes overdue first. */
static void hedge_arm(struct stripe_load *l) {
  struct env *env = l->reader->o->env;
  uint64_t due = give_up_ms(l), now = env_now_ms(env);
  for (unsigned i = 0; i < l->window.n; i++) {
    if (!(l->pending & ~l->overdue & 1u << i)) continue;
    const struct peer *peer = l->reader->place.peers[i];
    due = MIN(due, l->fetch[i].sent_ms + hedge_after_ms(peer));
  }
  env_timer_start(env, &l->hedge, due > now ? due - now : 0);
}

static void hedge_fire(struct env_timer *t) {
  struct stripe_load *l = container_of(t, struct stripe_load, hedge);
  struct stripe_reader *r = l->reader;
  uint64_t now = env_now_ms(r->o->env);
  for (unsigned i = 0; i < l->window.n; i++) {
    if (!(l->pending & ~l->overdue & 1u << i)) continue;
    if (now < l->fetch[i].sent_ms + hedge_after_ms(r->place.peers[i])) continue;
    l->overdue |= 1u << i;
    r->slow |= 1u << i;
    STAT_ADD(r->o->stats.hedges, 1);
  }
  if (now >= give_up_ms(l))
    reader_end(r, ERR_UNAVAILABLE);
  else
    reader_advance(r);
}

static void fetch_note(struct stripe_load *l, unsigned slot, int err) {
  struct stripe_reader *r = l->reader;
  uint32_t bit = 1u << slot;
  if (err == 0) {
    l->got |= bit;
    r->lost &= ~bit;
  } else if (err == ERR_NO_CHUNK || err == ERR_NOT_FOUND) {
    r->gone |= bit;
  } else if (err == ERR_CORRUPT) {
    r->bad |= bit;
  } else if (err != ERR_CANCELLED) {
    r->lost |= bit;
  }
}

static void fetch_done(struct peer_call *call) {
  struct stripe_fetch *f = container_of(call, struct stripe_fetch, call);
  struct stripe_load *l = f->load;
  unsigned slot = call->req.slot;
  int err = call->reply.err;
  peer_call_release(call);
  l->pending &= ~(1u << slot);
  if (l->orphan) {
    load_drop(l);
    return;
  }
  fetch_note(l, slot, err);
  reader_advance(l->reader);
}

static void fetch_inline(struct stripe_load *l, unsigned slot) {
  struct stripe_reader *r = l->reader;
  struct peer_request *req = &l->fetch[slot].call.req;
  const uint8_t *from = r->inline_bytes[slot];
  size_t at = 0;
  for (uint64_t s = 0; s < l->window.first; s++) at += stripe_unit_len(&l->geometry, s, slot);
  for (unsigned s = 0; s < l->window.count; s++) {
    uint32_t len = stripe_unit_len(&l->geometry, l->window.first + s, slot);
    uint32_t crc = r->inline_crcs[slot][l->window.first + s];
    req->units[s] = (struct peer_unit){stripe_load_unit(l, s, slot), len, crc};
    if (len) memcpy(req->units[s].data, from + at, len);
    at += len;
  }
  l->got |= 1u << slot;
}

static void fetch_start(struct stripe_load *l, unsigned slot) {
  struct stripe_reader *r = l->reader;
  struct stripe_fetch *f = &l->fetch[slot];
  l->asked |= 1u << slot;
  if (r->inline_bytes[slot]) {
    fetch_inline(l, slot);
    return;
  }
  struct peer_request *req = &f->call.req;
  f->load = l;
  f->call.done = fetch_done;
  objects_request(r->o, &r->place, slot, (struct slice){0}, PEER_FETCH, &f->call);
  req->data_id = l->data_id;
  req->profile = l->geometry.profile;
  req->unit_first = l->window.first;
  req->unit_count = stripe_load_unit_count(l, slot);
  for (unsigned s = 0; s < req->unit_count; s++) {
    uint32_t len = stripe_unit_len(&l->geometry, l->window.first + s, slot);
    req->units[s] = (struct peer_unit){stripe_load_unit(l, s, slot), len, 0};
  }
  l->pending |= 1u << slot;
  f->sent_ms = env_now_ms(r->o->env);
  peer_send(r->place.peers[slot], &f->call);
}

/* All wanted chunks themselves, where they are good sources: nothing to decode, and nothing but
 * them to read. */
static bool ask_wanted(struct stripe_load *l) {
  uint32_t lack = l->want & ~l->got & ~(l->pending & ~l->overdue);
  uint32_t ask = 0;
  for (unsigned i = 0; i < l->window.n; i++) {
    if (!(lack >> i & 1)) continue;
    if (stripe_load_unit_count(l, i) == 0) continue;
    int rank = slot_rank(l->reader, l, i);
    if (rank < 0 || rank > SLOT_RANK_GOOD) return false;
    ask |= 1u << i;
  }
  for (unsigned i = 0; i < l->window.n; i++)
    if (ask >> i & 1) fetch_start(l, i);
  return true;
}

/* Starts as many sources as the window still needs. False: there are not enough. */
static bool ask_enough(struct stripe_reader *r, struct stripe_load *l) {
  while (!stripe_load_ready(l, l->got | (l->pending & ~l->overdue))) {
    if (ask_wanted(l)) {
      if (stripe_load_ready(l, l->got | (l->pending & ~l->overdue))) return true;
    }
    uint32_t sources = slots_next(r, l, l->got | (l->pending & ~l->overdue));
    if (!sources) return l->pending != 0; /* an overdue one may still answer */
    slots_foreach(i, sources) fetch_start(l, i);
  }
  return true;
}

static void load_worked(struct env_work *w) {
  struct stripe_load *l = container_of(w, struct stripe_load, work);
  struct stripe_reader *r = l->reader;
  l->working = false;
  STAT_ADD(r->o->stats.decoded_stripes, l->decoded);
  STAT_ADD(r->o->stats.crc_failures, l->crc_failures);
  r->bad |= l->failed;
  if (l->orphan)
    load_drop(l);
  else if (l->work_err < 0)
    reader_end(r, l->work_err == -ENOMEM ? ERR_SLOW_DOWN : ERR_UNAVAILABLE);
  else
    reader_advance(r);
}

static void load_work(struct stripe_load *l) {
  l->working = true;
  l->settled = false;
  l->work.run = stripe_load_run;
  l->work.done = load_worked;
  l->work.cost_bytes = stripe_load_cost(l);
  env_timer_stop(l->reader->o->env, &l->stuck);
  env_work(l->reader->o->env, &l->work);
}

static void buffer_start(struct stripe_reader *r);

/* A cancelled call holds the buffer: read the window again in another one. */
static void stuck_fire(struct env_timer *t) {
  struct stripe_load *l = container_of(t, struct stripe_load, stuck);
  struct stripe_reader *r = l->reader;
  r->slow |= l->pending;
  r->lost |= l->pending;
  r->stuck |= l->pending;
  load_orphan(l);
  buffer_start(r);
}

/* Enough is in the buffer. The rest is cancelled, once, and waited for. */
static void load_settle(struct stripe_load *l) {
  struct env *env = l->reader->o->env;
  env_timer_stop(env, &l->hedge);
  if (l->pending == 0) {
    load_work(l);
  } else if (!l->settled) {
    l->settled = true;
    env_timer_start(env, &l->stuck, CANCEL_WAIT_MS);
    load_cancel_calls(l);
  }
}

static void reader_advance(struct stripe_reader *r) {
  struct stripe_load *l = r->load;
  if (r->state != READER_LOAD || !l || l->working) return;
  if (l->complete) {
    reader_deliver(r);
    return;
  }
  if (!stripe_load_ready(l, l->got) && !ask_enough(r, l)) {
    reader_end(r, ERR_UNAVAILABLE);
    return;
  }
  if (stripe_load_ready(l, l->got))
    load_settle(l);
  else
    hedge_arm(l);
}

/* A buffer for `stripes` stripes is there. */
static void load_start(struct stripe_reader *r, struct env_buf *buf, unsigned stripes) {
  unsigned n = r->place.n;
  struct stripe_load *l = calloc(1, sizeof *l + n * sizeof l->fetch[0]);
  if (!l) {
    env_buf_put(r->o->env, buf);
    reader_end(r, ERR_SLOW_DOWN);
    return;
  }
  l->reader = r;
  if (r->window_ms == WINDOW_NOT_BEGUN) r->window_ms = env_now_ms(r->o->env);
  l->started_ms = r->window_ms;
  l->geometry = r->geometry;
  l->data_id = r->data_id;
  l->codec = r->codec;
  l->want = r->want;
  l->window = (struct stripe_window){.buf = *buf,
                                     .first = r->read_first,
                                     .count = stripes,
                                     .n = n,
                                     .stride = stripe_unit_coded_len(&r->geometry, r->read_first)};
  l->hedge.fire = hedge_fire;
  l->stuck.fire = stuck_fire;
  r->load = l;
  r->loads++;
  r->state = READER_LOAD;
  reader_advance(r);
}

static void buffer_ready(struct env_buf_wait *w, int err) {
  struct stripe_reader *r = container_of(w, struct stripe_reader, wait);
  struct env_buf buf = w->buf;
  r->waiting = false;
  w->buf = (struct env_buf){0};
  if (err == 0 && r->state == READER_BUFFER) {
    load_start(r, &buf, r->wait_stripes);
    return;
  }
  if (err == 0) env_buf_put(r->o->env, &buf);
  if (r->closed)
    reader_drop(r);
  else
    reader_end(r, r->state == READER_CANCELLING ? ERR_CANCELLED : err);
}

static bool buffer_try(struct stripe_reader *r) {
  unsigned stripes = (unsigned)MIN(r->read_count, stripe_load_stripes_max(&r->geometry.profile));
  struct env_buf buf;
  size_t bytes = stripe_load_bytes(&r->geometry, r->read_first, stripes);
  if (!env_buf_try(r->o->env, bytes, &buf)) return false;
  load_start(r, &buf, stripes);
  return true;
}

/* A whole window if it is free now, else one stripe and a place in the queue. */
static void buffer_start(struct stripe_reader *r) {
  r->state = READER_BUFFER;
  if (buffer_try(r)) return;
  /* Before the first window the caller can still say 503; later a wait beats a broken answer. */
  r->wait.wait_ms = r->started ? 0 : r->o->buffer_wait_ms;
  r->wait.size = stripe_load_bytes(&r->geometry, r->read_first, 1);
  r->wait.ready = buffer_ready;
  r->wait_stripes = 1;
  r->waiting = true;
  if (env_buf_get(r->o->env, &r->wait)) buffer_ready(&r->wait, 0);
}

static bool same_code(const struct profile *a, const struct profile *b) {
  return a->technique == b->technique && a->k == b->k && a->m == b->m;
}

int stripe_reader_open(struct objects *o, const struct key_place *place, const struct row *row,
                       uint32_t healthy, uint32_t want, const struct stripe_reader_inline *chunks,
                       stripe_reader_cb cb, void *arg, struct stripe_reader **ret_reader) {
  struct codec *codec = o->codecs[place->pool];
  if (!row_has_data(row) || profile_n(&row->profile) != place->n) return ERR_INVALID;
  if (!same_code(&row->profile, codec_profile(codec))) return ERR_INVALID;
  assert(want != 0 && cb);
  struct stripe_reader *r = calloc(1, sizeof *r);
  if (!r) return -ENOMEM;
  r->o = o;
  o->running++;
  r->place = *place;
  r->geometry = row_geometry(row);
  r->data_id = row->data_id;
  r->codec = codec;
  r->healthy = healthy;
  r->want = want;
  r->cb = cb;
  r->arg = arg;
  r->ending.fire = reader_ending;
  for (unsigned i = 0; chunks && i < place->n; i++) {
    if (!chunks->bytes[i].data || !chunks->crcs[i]) continue;
    if (chunks->bytes[i].len != stripe_chunk_len(&r->geometry, i)) continue; /* fetched instead */
    r->inline_bytes[i] = chunks->bytes[i].data;
    r->inline_crcs[i] = chunks->crcs[i];
  }
  *ret_reader = r;
  return 0;
}

static void read_range(struct stripe_reader *r, uint64_t first, uint64_t count) {
  assert(r->state == READER_IDLE && !r->closed);
  assert(count > 0 && first + count <= r->geometry.stripe_count);
  r->read_first = first;
  r->read_count = count;
  r->stuck = 0;
  r->window_ms = WINDOW_NOT_BEGUN;
}

void stripe_reader_read(struct stripe_reader *r, uint64_t first, uint64_t count) {
  read_range(r, first, count);
  buffer_start(r);
}

bool stripe_reader_read_ahead(struct stripe_reader *r, uint64_t first, uint64_t count) {
  read_range(r, first, count);
  return buffer_try(r);
}

void stripe_reader_cancel(struct stripe_reader *r) {
  if (r->state == READER_IDLE || r->state == READER_ENDING) return;
  if (!r->waiting) {
    reader_end(r, ERR_CANCELLED);
    return;
  }
  r->state = READER_CANCELLING;
  env_buf_cancel(r->o->env, &r->wait);
}

uint32_t stripe_reader_bad(const struct stripe_reader *r) {
  return r->bad | r->gone;
}

void stripe_reader_close(struct stripe_reader *r) {
  if (!r || r->closed) return;
  r->closed = true;
  env_timer_stop(r->o->env, &r->ending);
  if (r->waiting) env_buf_cancel(r->o->env, &r->wait);
  r->state = READER_IDLE;
  r->loads++;
  if (r->load) load_orphan(r->load);
  r->loads--;
  reader_drop(r);
}
