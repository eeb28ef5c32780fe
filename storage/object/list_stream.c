/* list_stream.c: paging through one drive. The order of keys is checked here: a drive that breaks
 * it would make the merge lose keys, so it is no replier any more. */
#include "storage/object/list_stream.h"

#include <assert.h>

#include "config/err.h"

bool key_after_prefix(struct slice prefix, uint8_t *out, size_t *ret_len) {
  size_t len = prefix.len;
  while (len > 0 && prefix.data[len - 1] == 0xff) len--;
  if (len == 0) return false;
  memcpy(out, prefix.data, len);
  out[len - 1]++;
  *ret_len = len;
  return true;
}

struct slice key_common_prefix(struct slice key, struct slice prefix, struct slice delimiter) {
  if (delimiter.len == 0 || !slice_starts_with(key, prefix)) return (struct slice){0};
  const uint8_t *at =
      memmem(key.data + prefix.len, key.len - prefix.len, delimiter.data, delimiter.len);
  if (!at) return (struct slice){0};
  return slice_of(key.data, (size_t)(at - key.data) + delimiter.len);
}

static struct slice stream_from(const struct list_stream *s) {
  return slice_of(s->from, s->from_len);
}

static void stream_position(struct list_stream *s, struct slice from, bool after) {
  assert(from.len <= sizeof s->from);
  if (from.len) memmove(s->from, from.data, from.len);
  s->from_len = from.len;
  s->from_after = after;
}

static bool stream_in_order(const struct list_stream *s) {
  int order = slice_cmp(s->entry.key, stream_from(s));
  return (s->from_after ? order > 0 : order >= 0) &&
         slice_starts_with(s->entry.key, s->query->prefix) &&
         !(s->page_is_rewound && s->entry.skipped);
}

/* The next entry of the page at hand becomes current. */
static void stream_read(struct list_stream *s) {
  int got = peer_list_next(&s->page, &s->entry);
  if (got == 1) {
    s->state = LIST_STREAM_ENTRY;
    if (!stream_in_order(s)) list_stream_fail(s, ERR_PROTOCOL);
    return;
  }
  if (got < 0) {
    list_stream_fail(s, got);
    return;
  }
  s->state = s->page.end ? LIST_STREAM_END : LIST_STREAM_EMPTY;
}

static void stream_page(struct peer_call *call) {
  struct list_stream *s = container_of(call, struct list_stream, call);
  s->pending = false;
  if (s->state == LIST_STREAM_ASKING) {
    int err = call->reply.err;
    if (err == 0) err = peer_list_open(slice_of(call->reply.body, call->reply.body_len), &s->page);
    /* A page that is empty and not the last would be asked for ever. */
    if (err == 0 && s->page.count == 0 && !s->page.end) err = ERR_PROTOCOL;
    if (err < 0)
      list_stream_fail(s, err);
    else
      stream_read(s);
  }
  s->changed(s);
}

void list_stream_init(struct list_stream *s, struct objects *o, struct peer *peer,
                      const struct list_query *query, struct slice from, bool after,
                      void (*changed)(struct list_stream *s)) {
  s->o = o;
  s->peer = peer;
  s->query = query;
  s->changed = changed;
  s->state = LIST_STREAM_EMPTY;
  stream_position(s, from, after);
}

void list_stream_ask(struct list_stream *s) {
  assert(s->state == LIST_STREAM_EMPTY && !s->pending);
  peer_call_release(&s->call);
  s->page_is_rewound = s->rewinding;
  s->rewinding = false;
  s->call.done = stream_page;
  struct peer_request *req = &s->call.req;
  *req = (struct peer_request){.verb = PEER_LIST,
                               .flags = s->from_after ? PEER_FROM_AFTER : 0,
                               .pool = (uint8_t)s->query->pool,
                               .epoch = s->o->placement->epoch,
                               .timeout_ms = s->o->peer_timeout_ms,
                               .bucket = s->query->bucket,
                               .from = stream_from(s),
                               .prefix = s->query->prefix,
                               .delimiter = s->query->delimiter,
                               .limit = s->query->page_entries};
  if (s->page_is_rewound) {
    req->delimiter = (struct slice){0};
    req->limit = MIN(req->limit, LIST_REWIND_ENTRIES);
  }
  s->state = LIST_STREAM_ASKING;
  s->pending = true;
  peer_send(s->peer, &s->call);
}

void list_stream_next(struct list_stream *s) {
  assert(s->state == LIST_STREAM_ENTRY);
  stream_position(s, s->entry.key, true);
  stream_read(s);
}

void list_stream_skip(struct list_stream *s, struct slice prefix) {
  while (s->state == LIST_STREAM_ENTRY && slice_starts_with(s->entry.key, prefix))
    list_stream_next(s);
  uint8_t after[KEY_BYTES_MAX];
  size_t len = 0;
  if (s->state != LIST_STREAM_EMPTY) return;
  if (key_after_prefix(prefix, after, &len))
    stream_position(s, slice_of(after, len), false);
  else
    s->state = LIST_STREAM_END;
}

void list_stream_rewind(struct list_stream *s) {
  assert(s->state == LIST_STREAM_ENTRY && s->entry.skipped);
  stream_position(s, s->entry.key, true);
  s->rewinding = true;
  s->state = LIST_STREAM_EMPTY;
}

void list_stream_fail(struct list_stream *s, int err) {
  s->state = LIST_STREAM_FAILED;
  s->err = err;
  if (s->pending) peer_cancel(&s->call);
}

void list_stream_release(struct list_stream *s) {
  assert(!s->pending);
  peer_call_release(&s->call);
}
