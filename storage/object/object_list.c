/* object_list.c: one page of a listing (PROTOCOL.md 12).
 *
 *   streams of all drives -> smallest key -> CLASSIFY at its slots -> live | dead | read it
 *
 * A drive that fails or breaks its order is no replier from then on; with fewer than R repliers in
 * any partition the page is ERR_UNAVAILABLE, never short. A key that CLASSIFY cannot decide is read
 * by itself. Behind a key with a common prefix the drive may have skipped the rest of the prefix:
 * if the key turns out dead, that drive is rewound; if it is live, all drives skip. So a page costs
 * O(page) requests and memory, however many keys a prefix hides. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "config/err.h"
#include "config/sim_mutant.h"
#include "storage/object/classify.h"
#include "storage/object/key_read.h"
#include "storage/object/list_stream.h"

#define LIST_LIMIT_MAX 1000
#define LIST_ITEM_BYTES_MAX (KEY_BYTES_MAX + ETAG_BYTES_MAX)
#define LIST_PAGE_SLACK 16 /* more than a drive's fair share of a page */
#define LIST_PATIENCE_MS OBJECT_SUSPECT_MS

/* Offsets, for the text moves while it grows. */
struct list_item {
  size_t key_at, key_len, etag_at, etag_len;
  uint64_t size, mtime_ms;
  bool is_prefix;
};

struct object_list {
  struct objects *o;
  object_list_cb cb;
  void *arg;
  unsigned pool, limit, r;
  struct list_query query;
  uint8_t prefix[KEY_BYTES_MAX], delimiter[KEY_BYTES_MAX];
  struct list_stream *streams; /* one for each drive of the pool */
  unsigned stream_count, failed_count;
  int stream_of[MAP_DRIVES_MAX]; /* by drive */
  struct key_replies *replies;
  struct list_item *items;
  unsigned item_count;
  struct byte_writer text;
  struct key_read *read;      /* the smallest key is being read by itself */
  uint8_t key[KEY_BYTES_MAX]; /* that key */
  size_t key_len;
  struct env_timer patience, soon;
  unsigned holds; /* running peer calls, and 1 until the end was reported */
  bool truncated, finished;
  bool is_frozen;
  bool frozen[MAP_DRIVES_MAX]; /* by drive: the only ones that are asked */
  int cancel_err;
};

static void list_free(struct object_list *l) {
  for (unsigned i = 0; i < l->stream_count; i++) list_stream_release(&l->streams[i]);
  l->o->running--;
  byte_writer_free(&l->text);
  free(l->streams);
  free(l->replies);
  free(l->items);
  free(l);
}

static void list_drop(struct object_list *l) {
  assert(l->holds > 0);
  if (--l->holds == 0) list_free(l);
}

/* Reports, and calls off what still runs; the last report frees. */
static void list_finish(struct object_list *l, int err) {
  struct object_list_item *items = NULL;
  l->finished = true;
  env_timer_stop(l->o->env, &l->patience);
  env_timer_stop(l->o->env, &l->soon);
  key_read_close(TAKE(l->read));
  for (unsigned i = 0; i < l->stream_count; i++)
    if (l->streams[i].pending) list_stream_fail(&l->streams[i], ERR_CANCELLED);
  if (err == 0 && l->text.failed) err = -ENOMEM;
  if (err == 0) {
    items = calloc(l->item_count + 1, sizeof *items);
    if (!items) err = -ENOMEM;
  }
  for (unsigned i = 0; err == 0 && i < l->item_count; i++) {
    const struct list_item *from = &l->items[i];
    items[i] =
        (struct object_list_item){.key = slice_of(l->text.data + from->key_at, from->key_len),
                                  .is_prefix = from->is_prefix,
                                  .size = from->size,
                                  .mtime_ms = from->mtime_ms};
    items[i].etag = slice_of(l->text.data + from->etag_at, from->etag_len);
  }
  if (err == ERR_UNAVAILABLE) STAT_ADD(l->o->stats.unavailable, 1);
  struct object_list_result result = {.err = err,
                                      .truncated = err == 0 && l->truncated,
                                      .count = err == 0 ? l->item_count : 0,
                                      .items = items};
  l->cb(l->arg, &result);
  free(items);
  list_drop(l);
}

/* Too few repliers in some partition: nothing may be said of its keys. */
static bool list_covered(struct object_list *l) {
  bool have[MAP_DRIVES_MAX] = {0};
  unsigned failed = 0;
  for (unsigned i = 0; i < l->stream_count; i++) {
    bool ok = l->streams[i].state != LIST_STREAM_FAILED;
    have[l->streams[i].peer->drive] = ok;
    failed += !ok;
  }
  if (failed == l->failed_count) return true;
  l->failed_count = failed;
  return placement_covered(l->o->placement, l->pool, have, l->r);
}

/* Asks where a page ran out; true while an answer is awaited. */
static bool list_waits(struct object_list *l) {
  bool waits = false;
  for (unsigned i = 0; i < l->stream_count; i++) {
    struct list_stream *s = &l->streams[i];
    if (s->state == LIST_STREAM_EMPTY) {
      l->holds++;
      list_stream_ask(s);
    }
    waits = waits || s->state == LIST_STREAM_ASKING;
  }
  if (waits && !l->patience.armed) env_timer_start(l->o->env, &l->patience, LIST_PATIENCE_MS);
  if (!waits) env_timer_stop(l->o->env, &l->patience);
  return waits;
}

static bool list_smallest(struct object_list *l) {
  const struct list_stream *least = NULL;
  for (unsigned i = 0; i < l->stream_count; i++) {
    const struct list_stream *s = &l->streams[i];
    if (s->state != LIST_STREAM_ENTRY) continue;
    if (!least || slice_cmp(s->entry.key, least->entry.key) < 0) least = s;
  }
  if (!least) return false;
  memcpy(l->key, least->entry.key.data, least->entry.key.len);
  l->key_len = least->entry.key.len;
  return true;
}

static struct slice list_key(const struct object_list *l) {
  return slice_of(l->key, l->key_len);
}

static bool list_is_at_key(const struct list_stream *s, struct slice key) {
  return s->state == LIST_STREAM_ENTRY && slice_eq(s->entry.key, key);
}

/* What a drive's stream says of a key, as if the key had been read. */
static void list_reply(const struct list_stream *s, struct slice key, bool *ret_replied,
                       struct peer_rows *rows) {
  bool here = list_is_at_key(s, key);
  *ret_replied = s->state != LIST_STREAM_FAILED && !(here && s->entry.corrupt);
  rows->promised = rows->floor = (struct version){0};
  rows->count = here ? s->entry.row_count : 0;
  rows->more = here && s->entry.more;
  for (unsigned i = 0; i < rows->count; i++) {
    const struct peer_list_row *from = &s->entry.rows[i];
    rows->rows[i] = (struct peer_row){.chosen = from->chosen};
    rows->rows[i].row = (struct row){.ver = from->ver,
                                     .kind = from->kind,
                                     .op_id = from->op_id,
                                     .size = from->size,
                                     .mtime_ms = from->mtime_ms,
                                     .etag = from->etag};
  }
}

static void list_classify(struct object_list *l, struct slice key, struct classification *c) {
  struct key_place place = objects_place(l->o, l->pool, &l->query.bucket, key);
  for (unsigned s = 0; s < place.n; s++) {
    const struct list_stream *stream = &l->streams[l->stream_of[place.peers[s]->drive]];
    list_reply(stream, key, &l->replies->replied[s], &l->replies->rows[s]);
  }
  classify(&place, l->replies, c);
}

static void list_add(struct object_list *l, struct slice key, const struct row *row) {
  struct list_item *item = &l->items[l->item_count++];
  *item = (struct list_item){.key_at = l->text.len, .key_len = key.len, .is_prefix = !row};
  put_bytes(&l->text, key);
  item->etag_at = l->text.len;
  if (!row) return;
  item->etag_len = row->etag.len;
  item->size = row->size;
  item->mtime_ms = row->mtime_ms;
  put_bytes(&l->text, row->etag);
}

/* The smallest key is live (`row`), or dead (NULL). Puts all streams behind what it settles. */
static void list_settle_key(struct object_list *l, const struct row *row) {
  struct slice key = list_key(l);
  struct slice common = key_common_prefix(key, l->query.prefix, l->query.delimiter);
  if (row && l->item_count == l->limit) {
    l->truncated = true;
    return;
  }
  if (row) list_add(l, common.len ? common : key, common.len ? NULL : row);
  for (unsigned i = 0; i < l->stream_count; i++) {
    struct list_stream *s = &l->streams[i];
    if (row && common.len)
      list_stream_skip(s, common);
    else if (list_is_at_key(s, key) && s->entry.skipped)
      list_stream_rewind(s);
    else if (list_is_at_key(s, key))
      list_stream_next(s);
  }
}

static void list_advance(struct object_list *l);

static void list_key_read(void *arg, int err, const struct row *row) {
  struct object_list *l = arg;
  l->read = NULL;
  if (err < 0 && err != ERR_NO_SUCH_KEY) {
    list_finish(l, ERR_UNAVAILABLE);
    return;
  }
  list_settle_key(l, err == 0 ? row : NULL);
  list_advance(l);
}

/* Decides the smallest key now (0), later (1), or not at all. */
static int list_decide(struct object_list *l) {
  struct classification c;
  list_classify(l, list_key(l), &c);
  if (MUTANT(LIST_FLAGS_ONLY) && !c.flagged) c.verdict = VERDICT_ABSENT;
  if (c.verdict == VERDICT_CHOSEN || c.verdict == VERDICT_ABSENT) {
    bool live = c.verdict == VERDICT_CHOSEN && c.row.kind == ROW_PUT;
    list_settle_key(l, live ? &c.row : NULL);
    return 0;
  }
  if (l->is_frozen) return ERR_UNAVAILABLE; /* others would have to be asked */
  int err =
      key_read_start(l->o, l->pool, &l->query.bucket, list_key(l), list_key_read, l, &l->read);
  return err < 0 ? err : 1;
}

static void list_advance(struct object_list *l) {
  while (!l->finished && !l->read) {
    int err = l->cancel_err;
    if (err == 0 && !list_covered(l)) err = ERR_UNAVAILABLE;
    if (err < 0 || l->truncated) {
      list_finish(l, err);
      return;
    }
    if (list_waits(l)) return;
    if (!list_smallest(l)) {
      list_finish(l, 0);
      return;
    }
    err = list_decide(l);
    if (err < 0) list_finish(l, err);
  }
}

static void list_soon(struct env_timer *timer) {
  struct object_list *l = container_of(timer, struct object_list, soon);
  if (l->cancel_err) key_read_close(TAKE(l->read));
  list_advance(l);
}

/* Streams that are still silent are given up if the page can do without them. */
static void list_impatient(struct env_timer *timer) {
  struct object_list *l = container_of(timer, struct object_list, patience);
  bool have[MAP_DRIVES_MAX] = {0};
  for (unsigned i = 0; i < l->stream_count; i++) {
    enum list_stream_state state = l->streams[i].state;
    have[l->streams[i].peer->drive] = state != LIST_STREAM_FAILED && state != LIST_STREAM_ASKING;
  }
  if (!placement_covered(l->o->placement, l->pool, have, l->r)) return;
  for (unsigned i = 0; i < l->stream_count; i++)
    if (l->streams[i].state == LIST_STREAM_ASKING) list_stream_fail(&l->streams[i], ERR_TIMEOUT);
  list_advance(l);
}

static void list_stream_changed(struct list_stream *s) {
  struct object_list *l = s->owner;
  if (!l->finished) list_advance(l);
  list_drop(l);
}

/* A drive that is known to be silent would cost everybody LIST_PATIENCE_MS. */
static void list_leave_out(struct object_list *l) {
  bool have[MAP_DRIVES_MAX] = {0};
  for (unsigned i = 0; i < l->stream_count; i++) {
    const struct peer *peer = l->streams[i].peer;
    have[peer->drive] = peer->up && !peer->suspect && (!l->is_frozen || l->frozen[peer->drive]);
  }
  for (unsigned i = 0; l->is_frozen && i < l->stream_count; i++)
    if (!l->frozen[l->streams[i].peer->drive]) list_stream_fail(&l->streams[i], ERR_PEER_DOWN);
  if (!placement_covered(l->o->placement, l->pool, have, l->r)) return;
  for (unsigned i = 0; i < l->stream_count; i++)
    if (!have[l->streams[i].peer->drive]) list_stream_fail(&l->streams[i], ERR_PEER_DOWN);
}

/* Where the page begins. False: nothing can follow. */
static bool list_begin(struct object_list *l, struct slice from) {
  uint8_t at[KEY_BYTES_MAX];
  struct slice start = from;
  bool after = from.len > 0;
  struct slice common = key_common_prefix(from, l->query.prefix, l->query.delimiter);
  if (common.len && common.len == from.len) {
    if (!key_after_prefix(from, at, &start.len)) return false;
    start.data = at;
    after = false;
  }
  if (slice_cmp(start, l->query.prefix) < 0) {
    start = l->query.prefix;
    after = false;
  }
  const struct map_pool *pool = &l->o->map->pools[l->pool];
  for (unsigned i = 0; i < pool->drive_count; i++) {
    struct list_stream *s = &l->streams[i];
    list_stream_init(s, l->o, l->o->peers[pool->drives[i]], &l->query, start, after,
                     list_stream_changed);
    s->owner = l;
    l->stream_of[pool->drives[i]] = (int)i;
  }
  l->stream_count = pool->drive_count;
  list_leave_out(l);
  return true;
}

static struct slice list_copy(uint8_t *to, struct slice from) {
  if (from.len) memcpy(to, from.data, from.len);
  return slice_of(to, from.len);
}

int object_list_start(struct objects *o, const struct object_list_args *args, object_list_cb cb,
                      void *arg, struct object_list **ret_list) {
  if (args->limit == 0 || args->limit > LIST_LIMIT_MAX || args->prefix.len > KEY_BYTES_MAX ||
      args->delimiter.len > KEY_BYTES_MAX || args->from.len > KEY_BYTES_MAX)
    return ERR_INVALID;
  const struct map_pool *pool = &o->map->pools[args->bucket->pool];
  struct object_list *l = calloc(1, sizeof *l);
  if (!l) return -ENOMEM;
  l->o = o;
  l->cb = cb;
  l->arg = arg;
  l->pool = args->bucket->pool;
  l->limit = args->limit;
  l->r = pool->r;
  l->is_frozen = args->frozen;
  if (args->frozen) memcpy(l->frozen, args->frozen, sizeof l->frozen);
  l->holds = 1;
  l->text.max = (size_t)args->limit * LIST_ITEM_BYTES_MAX;
  l->patience.fire = list_impatient;
  l->soon.fire = list_soon;
  l->query = (struct list_query){.pool = l->pool,
                                 .bucket = args->bucket->uuid,
                                 .prefix = list_copy(l->prefix, args->prefix),
                                 .delimiter = list_copy(l->delimiter, args->delimiter)};
  unsigned share = (args->limit + 1) * pool->n / pool->drive_count + LIST_PAGE_SLACK;
  l->query.page_entries = MIN(share, PEER_LIST_ENTRIES_MAX);
  o->running++;
  l->streams = calloc(pool->drive_count, sizeof *l->streams);
  l->replies = malloc(sizeof *l->replies); /* untouched pages cost nothing */
  l->items = calloc(args->limit, sizeof *l->items);
  if (!l->streams || !l->replies || !l->items) {
    list_free(l);
    return -ENOMEM;
  }
  memset(l->replies->replied, 0, sizeof l->replies->replied);
  STAT_ADD(o->stats.lists, 1);
  (void)list_begin(l, args->from); /* false: no streams, an empty page */
  env_timer_start(o->env, &l->soon, 0);
  *ret_list = l;
  return 0;
}

void object_list_cancel(struct object_list *l) {
  l->cancel_err = ERR_CANCELLED;
  env_timer_start(l->o->env, &l->soon, 0);
}
