/* object_get.c: the newest chosen version of a key, and its bytes (object.h, PROTOCOL.md 6).
 *
 *   READ -> classify -> chosen: found -> read | close
 *     ^        | undetermined: wait a little, read again, roll forward, resolve
 *     +--------+
 *
 * An older version is never served in place of one that may have been acknowledged, and too few
 * answers are never "no such key". `holds` counts what may still call back after the end: a settle
 * or a resolve that goes on. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "config/err.h"
#include "storage/object/gather.h"
#include "storage/object/get_stream.h"
#include "storage/object/object.h"
#include "storage/object/settle.h"
#include "storage/object/slots.h"

#define GET_ROUNDS 3        /* settles and resolves of one key that others keep writing */
#define GET_REREAD_MS 10    /* between two looks at a version that may be on its way */
#define GET_GIVE_UP_MS 1000 /* beyond the peers' own deadline, which a stuck lane does not keep */
#define GET_HEDGE_MS_MAX 200
#define GET_HEDGE_LATENCY_TIMES 3

enum get_state {
  GET_READING,
  GET_PAUSING, /* before reading again */
  GET_SETTLING,
  GET_RESOLVING,
  GET_FOUND, /* `found` was called; read or close comes */
  GET_STREAMING,
  GET_ENDING, /* end_err is delivered by the timer */
  GET_ENDED,
};

struct object_get {
  struct objects *o;
  struct key_place place;
  uint8_t *key;
  size_t key_len;
  bool want_data, cancelled, was_found;
  const struct object_get_ops *ops;
  void *arg;
  enum get_state state;
  unsigned rounds, holds;
  uint64_t read_ms;      /* when the last round of READ began */
  uint64_t patience_ms;  /* an undetermined version is waited for until then; 0: none seen */
  struct gather *gather; /* kept until the end where it holds inline chunks */
  struct env_timer timer;
  struct env_timer give_up; /* of a round of READ */
  int end_err;
  uint8_t *row_bytes;
  struct row row;
  uint32_t acked, healthy;
  struct get_stream *stream;
};

static struct slice get_key(const struct object_get *get) {
  return slice_of(get->key, get->key_len);
}

static void get_drop(struct object_get *get) {
  assert(get->holds > 0);
  if (--get->holds > 0) return;
  get->o->running--;
  free(get->row_bytes);
  free(get->key);
  free(get);
}

static void get_timers_stop(struct object_get *get) {
  env_timer_stop(get->o->env, &get->timer);
  env_timer_stop(get->o->env, &get->give_up);
}

/* The last callback; the caller must not touch `get` behind it. */
static void get_end(struct object_get *get, int err, bool sent_any) {
  get->state = GET_ENDED;
  gather_close(TAKE(get->gather));
  get_timers_stop(get);
  if (err == ERR_UNAVAILABLE) STAT_ADD(get->o->stats.unavailable, 1);
  if (get->was_found)
    get->ops->done(get->arg, err, sent_any);
  else
    get->ops->found(get->arg, get, err, NULL);
  get_drop(get);
}

static void get_end_later(struct object_get *get, int err) {
  gather_close(TAKE(get->gather));
  get->state = GET_ENDING;
  get->end_err = err;
  env_timer_start(get->o->env, &get->timer, 0);
}

/* True where this heal was not asked for a moment ago: a hot object that misses a chunk must not
 * cost a write for every GET. */
static bool heal_is_new(struct objects *o, const struct version *ver, uint32_t missing) {
  for (unsigned i = 0; i < OBJECTS_HEALED_MAX; i++) {
    if (version_cmp(&o->healed[i].ver, ver) != 0) continue;
    bool is_new = missing & ~o->healed[i].missing;
    o->healed[i].missing |= missing;
    return is_new;
  }
  unsigned at = o->healed_next++ % OBJECTS_HEALED_MAX;
  o->healed[at].ver = *ver;
  o->healed[at].missing = missing;
  return true;
}

static void get_heal(struct object_get *get, uint32_t missing) {
  if (missing == 0 || !heal_is_new(get->o, &get->row.ver, missing)) return;
  commit_send(get->o, &get->place, get_key(get), &get->row.ver, missing, get->acked);
}

/* ---- finding ---- */

static void get_step(void *arg, struct gather *g);

static uint32_t get_hedge_ms(const struct object_get *get, uint32_t ask) {
  uint32_t us = 0;
  uint32_t quick = ask & ~get->place.slow; /* a slow one is not waited for longer */
  slots_foreach(i, quick ? quick : ask) us = MAX(us, get->place.peers[i]->latency_us);
  uint64_t ms = (uint64_t)us * GET_HEDGE_LATENCY_TIMES / 1000;
  return (uint32_t)MAX(GATHER_HEDGE_MS, MIN(ms, GET_HEDGE_MS_MAX));
}

/* One round of READ at `ask`, hedged to the rest. */
static int get_read(struct object_get *get, uint32_t ask) {
  struct gather_args args = {.place = &get->place,
                             .key = get_key(get),
                             .verb = PEER_READ,
                             .ask = ask,
                             .spare = slots_all(get->place.n) & ~ask,
                             .hedge_ms = get_hedge_ms(get, ask),
                             .want_inline = get->want_data ? slots_all(get->place.n) : 0,
                             .step = get_step,
                             .arg = get};
  gather_close(TAKE(get->gather));
  env_timer_start(get->o->env, &get->give_up, get->o->peer_timeout_ms + GET_GIVE_UP_MS);
  get->state = GET_READING;
  get->read_ms = env_now_ms(get->o->env);
  return gather_start(get->o, &args, &get->gather);
}

static void get_read_again(struct object_get *get) {
  if (get_read(get, slots_all(get->place.n)) < 0) get_end(get, ERR_UNAVAILABLE, false);
}

static void get_resolved(void *arg, int err) {
  struct object_get *get = arg;
  if (get->state == GET_RESOLVING) {
    if (err < 0)
      get_end(get, ERR_UNAVAILABLE, false);
    else
      get_read_again(get);
  }
  get_drop(get);
}

static void get_resolve(struct object_get *get) {
  get->patience_ms = 0;
  gather_close(TAKE(get->gather));
  if (get->rounds++ >= GET_ROUNDS ||
      object_resolve_start(get->o, get->place.pool, &get->place.bucket, get_key(get), get_resolved,
                           get) < 0) {
    get_end(get, ERR_UNAVAILABLE, false);
    return;
  }
  get->state = GET_RESOLVING;
  get->holds++;
}

static void get_settled(void *arg, int err) {
  struct object_get *get = arg;
  if (get->state == GET_SETTLING) {
    if (err < 0)
      get_resolve(get);
    else
      get_read_again(get);
  }
  get_drop(get);
}

/* Rolls the version forward: it may have been acknowledged. */
static void get_settle(struct object_get *get, const struct classification *c) {
  get->patience_ms = 0;
  int err = ERR_UNAVAILABLE;
  if (get->rounds++ < GET_ROUNDS)
    err = settle_start(get->o, &get->place, get_key(get), &c->row, &c->row.ver, c->acked,
                       c->healthy, get_settled, get);
  if (err < 0) {
    get_end(get, ERR_UNAVAILABLE, false);
    return;
  }
  gather_close(TAKE(get->gather));
  get->state = GET_SETTLING;
  get->holds++;
}

static void get_undetermined(struct object_get *get, const struct classification *c) {
  struct env *env = get->o->env;
  uint64_t now = env_now_ms(env);
  gather_ask_more(get->gather, slots_all(get->place.n));
  if (get->patience_ms == 0) get->patience_ms = now + OBJECT_UNDETERMINED_MS;
  if (gather_done(get->gather) && now + GET_REREAD_MS < get->patience_ms) {
    get->state = GET_PAUSING;
    env_timer_start(env, &get->timer, GET_REREAD_MS);
    return;
  }
  /* A look that was begun late gets its time too: a settle must know who holds what. */
  uint64_t until = MAX(get->patience_ms, get->read_ms + GATHER_HEDGE_MS);
  if (gather_done(get->gather) || now >= until)
    get_settle(get, c);
  else
    env_timer_start(env, &get->timer, until - now);
}

/* Copies the row: the replies go before it does. */
static int get_keep_row(struct object_get *get, const struct classification *c) {
  uint8_t *bytes = malloc(c->bytes.len);
  if (!bytes) return -ENOMEM;
  memcpy(bytes, c->bytes.data, c->bytes.len);
  int err = row_decode(slice_of(bytes, c->bytes.len), &get->place.bucket, get_key(get), &get->row);
  if (err < 0) {
    free(bytes);
    return err;
  }
  get->row_bytes = bytes;
  get->acked = c->acked;
  get->healthy = c->healthy;
  return 0;
}

static void get_chosen(struct object_get *get, const struct classification *c) {
  bool has_data = row_has_data(&c->row);
  if (get->want_data && has_data && !codec_decodable(get->o->codecs[get->place.pool], c->healthy)) {
    if (gather_done(get->gather))
      get_end(get, ERR_UNAVAILABLE, false); /* never older data */
    else if (get->gather->pending == 0)
      gather_ask_more(get->gather, slots_all(get->place.n));
    return;
  }
  if (c->acked & ~c->flagged)
    commit_send(get->o, &get->place, get_key(get), &c->row.ver, 0, c->acked & ~c->flagged);
  if (c->row.kind != ROW_PUT) {
    get_end(get, ERR_NO_SUCH_KEY, false);
    return;
  }
  if (get_keep_row(get, c) < 0) {
    get_end(get, ERR_UNAVAILABLE, false);
    return;
  }
  if (has_data) get_heal(get, c->acked & ~c->healthy);
  get_timers_stop(get);
  get->state = GET_FOUND;
  get->was_found = true;
  get->ops->found(get->arg, get, 0, &get->row);
}

static void get_decide(struct object_get *get) {
  struct gather *g = get->gather;
  struct classification c;
  classify(&get->place, g->replies, &c);
  switch (c.verdict) {
    case VERDICT_ABSENT:
      get_end(get, ERR_NO_SUCH_KEY, false);
      return;
    case VERDICT_CHOSEN:
      get_chosen(get, &c);
      return;
    case VERDICT_UNDETERMINED:
      get_undetermined(get, &c);
      return;
    case VERDICT_TOO_FEW:
      break;
  }
  bool cut = c.replies >= get->place.r; /* a reply ended before the answer did */
  if (!gather_done(g)) {
    if (cut) gather_ask_more(g, slots_all(get->place.n));
  } else if (cut) {
    get_resolve(get);
  } else {
    get_end(get, ERR_UNAVAILABLE, false);
  }
}

static void get_step(void *arg, struct gather *g) {
  struct object_get *get = arg;
  if (get->state == GET_READING) get_decide(get);
}

static void get_timer(struct env_timer *t) {
  struct object_get *get = container_of(t, struct object_get, timer);
  if (get->state == GET_ENDING)
    get_end(get, get->end_err, false);
  else if (get->state == GET_PAUSING)
    get_read_again(get);
  else if (get->state == GET_READING)
    get_decide(get); /* patience is over */
}

static void get_give_up(struct env_timer *t) {
  struct object_get *get = container_of(t, struct object_get, give_up);
  if (get->state == GET_READING) get_end(get, ERR_UNAVAILABLE, false);
}

int object_get_start(struct objects *o, const struct bucket_info *bucket, struct slice key,
                     bool want_data, const struct object_get_ops *ops, void *arg,
                     struct object_get **ret_get) {
  assert(key.len > 0 && key.len <= KEY_BYTES_MAX);
  struct object_get *get = calloc(1, sizeof *get);
  if (!get) return -ENOMEM;
  get->key = malloc(key.len);
  if (!get->key) {
    free(get);
    return -ENOMEM;
  }
  memcpy(get->key, key.data, key.len);
  get->key_len = key.len;
  get->o = o;
  get->place = objects_place(o, bucket->pool, &bucket->uuid, get_key(get));
  get->want_data = want_data;
  get->ops = ops;
  get->arg = arg;
  get->holds = 1;
  get->timer.fire = get_timer;
  get->give_up.fire = get_give_up;
  unsigned first = want_data ? MAX(get->place.d, get->place.r) : get->place.r;
  int err = get_read(get, gather_pick(&get->place, first, slots_all(get->place.n)));
  if (err < 0) {
    get_timers_stop(get);
    free(get->key);
    free(get);
    return err;
  }
  o->running++;
  if (want_data)
    STAT_ADD(o->stats.gets, 1);
  else
    STAT_ADD(o->stats.heads, 1);
  *ret_get = get;
  return 0;
}

/* ---- reading ---- */

static void get_streamed(void *arg, int err, bool sent_any, uint32_t bad) {
  struct object_get *get = arg;
  get->stream = NULL;
  get_heal(get, bad);
  get_end(get, err, sent_any);
}

/* The chunks that came with the replies: a small object needs no second round trip. */
static bool get_inline_chunks(const struct object_get *get, struct stripe_reader_inline *chunks) {
  bool any = false;
  uint64_t stripes = row_geometry(&get->row).stripe_count;
  slots_foreach(i, get->gather->replied) {
    const struct peer_rows *rows = &get->gather->replies->rows[i];
    if (rows->count == 0 || !rows->inline_chunk.data || rows->inline_unit_count != stripes ||
        !id128_eq(&rows->rows[0].row.data_id, &get->row.data_id))
      continue;
    chunks->bytes[i] = rows->inline_chunk;
    chunks->crcs[i] = rows->inline_crcs;
    any = true;
  }
  return any;
}

void object_get_read(struct object_get *get, uint64_t offset, uint64_t len, struct sink *sink) {
  assert(get->state == GET_FOUND && get->want_data);
  assert(len > 0 && offset < get->row.size && len <= get->row.size - offset);
  if (get->cancelled) {
    get_end_later(get, ERR_CANCELLED);
    return;
  }
  struct stripe_reader_inline chunks = {0};
  bool any_inline = get_inline_chunks(get, &chunks);
  struct get_stream_args args = {.place = &get->place,
                                 .row = &get->row,
                                 .healthy = get->healthy,
                                 .inline_chunks = &chunks,
                                 .offset = offset,
                                 .len = len,
                                 .sink = sink,
                                 .cb = get_streamed,
                                 .arg = get};
  int err = get_stream_start(get->o, &args, &get->stream);
  if (err < 0) {
    get_end_later(get, err == -ENOMEM ? ERR_SLOW_DOWN : ERR_UNAVAILABLE);
    return;
  }
  if (any_inline)
    gather_stop(get->gather); /* the stream reads from its replies */
  else
    gather_close(TAKE(get->gather));
  get->state = GET_STREAMING;
}

void object_get_close(struct object_get *get) {
  assert(get->state == GET_FOUND);
  get->state = GET_ENDED;
  gather_close(TAKE(get->gather));
  get_drop(get);
}

void object_get_cancel(struct object_get *get) {
  if (get->cancelled || get->state == GET_ENDING || get->state == GET_ENDED) return;
  get->cancelled = true;
  if (get->state == GET_STREAMING)
    get_stream_cancel(get->stream);
  else if (get->state != GET_FOUND) /* there read or close is still to come */
    get_end_later(get, ERR_CANCELLED);
}
