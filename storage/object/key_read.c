/* key_read.c: READ -> CLASSIFY -> (wait, READ again, RESOLVE, READ again).
 *
 * One round is one gather. RESOLVE cannot be called off, so a read that was closed meanwhile stays
 * until it reports. */
#include "storage/object/key_read.h"

#include <errno.h>
#include <stdlib.h>

#include "config/err.h"
#include "storage/object/gather.h"

struct key_read {
  struct objects *o;
  struct key_place place;
  uint8_t key[KEY_BYTES_MAX];
  size_t key_len;
  key_read_cb cb;
  void *arg;
  struct gather *gather; /* the running round */
  struct env_timer wait; /* how long an undetermined version may settle by itself */
  unsigned rounds;
  bool waited, resolving, closed;
};

static struct slice key_read_key(const struct key_read *read) {
  return slice_of(read->key, read->key_len);
}

static void key_read_free(struct key_read *read) {
  env_timer_stop(read->o->env, &read->wait);
  gather_close(read->gather);
  read->o->running--;
  free(read);
}

/* `row` is borrowed from the gather, which is closed after the callback. */
static void key_read_finish(struct key_read *read, int err, const struct row *row) {
  if (err == ERR_UNAVAILABLE) STAT_ADD(read->o->stats.unavailable, 1);
  if (!read->closed) read->cb(read->arg, err, row);
  key_read_free(read);
}

static void key_read_advance(struct key_read *read);

static void key_read_step(void *arg, struct gather *g) {
  key_read_advance(arg);
}

static int key_read_round(struct key_read *read) {
  uint32_t all = gather_all(&read->place);
  struct gather_args args = {
      .place = &read->place,
      .key = key_read_key(read),
      .verb = PEER_READ,
      .ask = read->rounds ? all : gather_pick(&read->place, read->place.r, all),
      .spare = all,
      .hedge_ms = GATHER_HEDGE_MS,
      .step = key_read_step,
      .arg = read};
  read->rounds++;
  read->waited = false;
  int err = gather_start(read->o, &args, &read->gather);
  if (err == 0) env_timer_start(read->o->env, &read->wait, OBJECT_UNDETERMINED_MS);
  return err;
}

static void key_read_resolved(void *arg, int err) {
  struct key_read *read = arg;
  read->resolving = false;
  if (read->closed) {
    key_read_free(read);
    return;
  }
  if (err == 0) err = key_read_round(read);
  if (err < 0) key_read_finish(read, ERR_UNAVAILABLE, NULL);
}

static void key_read_again(struct key_read *read) {
  gather_close(TAKE(read->gather));
  if (key_read_round(read) < 0) key_read_finish(read, ERR_UNAVAILABLE, NULL);
}

static void key_read_resolve(struct key_read *read) {
  env_timer_stop(read->o->env, &read->wait);
  gather_close(TAKE(read->gather));
  int err = read->rounds < KEY_READ_ROUNDS ? 0 : ERR_UNAVAILABLE;
  read->resolving = true;
  if (err == 0)
    err = object_resolve_start(read->o, read->place.pool, &read->place.bucket, key_read_key(read),
                               key_read_resolved, read);
  if (err == 0) return;
  read->resolving = false;
  key_read_finish(read, ERR_UNAVAILABLE, NULL);
}

static void key_read_advance(struct key_read *read) {
  struct gather *g = read->gather;
  struct classification c;
  classify(&read->place, g->replies, &c);
  if (c.verdict == VERDICT_CHOSEN && c.row.kind == ROW_PUT) {
    key_read_finish(read, 0, &c.row);
    return;
  }
  if (c.verdict == VERDICT_CHOSEN || c.verdict == VERDICT_ABSENT) {
    key_read_finish(read, ERR_NO_SUCH_KEY, NULL);
    return;
  }
  if (c.replies >= read->place.r) gather_ask_more(g, g->spare);
  if (!gather_done(g) && !(read->waited && c.replies >= read->place.r)) return;
  if (c.replies < read->place.r) {
    key_read_finish(read, ERR_UNAVAILABLE, NULL);
    return;
  }
  /* Usually a PUT in flight: a RESOLVE would break it, so it gets a moment and another look. */
  if (read->rounds > 1)
    key_read_resolve(read);
  else if (read->waited)
    key_read_again(read);
}

static void key_read_waited(struct env_timer *timer) {
  struct key_read *read = container_of(timer, struct key_read, wait);
  read->waited = true;
  key_read_advance(read);
}

int key_read_start(struct objects *o, unsigned pool, const struct id128 *bucket, struct slice key,
                   key_read_cb cb, void *arg, struct key_read **ret_read) {
  if (key.len == 0 || key.len > KEY_BYTES_MAX) return ERR_INVALID;
  struct key_read *read = calloc(1, sizeof *read);
  if (!read) return -ENOMEM;
  read->o = o;
  read->place = objects_place(o, pool, bucket, key);
  memcpy(read->key, key.data, key.len);
  read->key_len = key.len;
  read->cb = cb;
  read->arg = arg;
  read->wait.fire = key_read_waited;
  int err = key_read_round(read);
  if (err < 0) {
    free(read);
    return err;
  }
  o->running++;
  *ret_read = read;
  return 0;
}

void key_read_close(struct key_read *read) {
  if (!read) return;
  read->closed = true;
  if (!read->resolving) key_read_free(read);
}
