/* get_stream.c: see get_stream.h. */
#include "storage/object/get_stream.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "config/err.h"
#include "storage/object/slots.h"

#define WINDOWS_MAX 2

struct get_stream {
  struct objects *o;
  struct stripe_geometry geometry;
  struct stripe_reader *reader;
  struct sink *sink;
  get_stream_cb cb;
  void *arg;
  uint64_t at, end;                          /* object bytes that are still to be written */
  uint64_t next_stripe, stripes_end;         /* stripes that are still to be read */
  struct stripe_window windows[WINDOWS_MAX]; /* oldest first */
  unsigned held;
  struct slice slices[SINK_SLICES_MAX]; /* of the write that goes on */
  uint64_t write_bytes;
  bool reading, writing, sent_any;
  int err;
  struct env_timer kick; /* a cancel ends the stream from a clean stack */
};

static void stream_window_put(struct get_stream *s) {
  assert(s->held > 0);
  env_buf_put(s->o->env, &s->windows[0].buf);
  s->windows[0] = s->windows[1];
  s->held--;
}

static void stream_end(struct get_stream *s) {
  uint32_t bad = stripe_reader_bad(s->reader);
  stripe_reader_close(s->reader);
  while (s->held > 0) stream_window_put(s);
  env_timer_stop(s->o->env, &s->kick);
  get_stream_cb cb = s->cb;
  void *arg = s->arg;
  int err = s->err;
  bool sent_any = s->sent_any;
  free(s);
  cb(arg, err, sent_any, bad);
}

/* The next bytes of the oldest window as slices; units that stand side by side are one. Returns how
 * many slices; *ret_bytes what they hold. */
static unsigned stream_slices(struct get_stream *s, uint64_t *ret_bytes) {
  const struct stripe_window *w = &s->windows[0];
  uint64_t per_stripe = stripe_data_bytes(&s->geometry.profile), at = s->at;
  unsigned count = 0;
  while (at < s->end) {
    uint64_t stripe = at / per_stripe, within = at % per_stripe;
    if (stripe >= w->first + w->count) break;
    uint32_t unit_len = stripe_unit_coded_len(&s->geometry, stripe);
    uint64_t unit = within / unit_len, skip = within % unit_len;
    uint64_t left = MIN(stripe_len(&s->geometry, stripe) - within, s->end - at);
    size_t len = (size_t)MIN(unit_len - skip, left);
    const uint8_t *data =
        w->buf.data + ((size_t)(stripe - w->first) * w->n + unit) * w->stride + skip;
    if (count > 0 && s->slices[count - 1].data + s->slices[count - 1].len == data) {
      s->slices[count - 1].len += len;
    } else {
      if (count == SINK_SLICES_MAX) break;
      s->slices[count++] = slice_of(data, len);
    }
    at += len;
  }
  *ret_bytes = at - s->at;
  return count;
}

static void stream_advance(struct get_stream *s);

static void stream_written(void *arg, int err) {
  struct get_stream *s = arg;
  s->writing = false;
  if (err < 0) {
    if (s->err == 0) s->err = err;
  } else {
    s->at += s->write_bytes;
    STAT_ADD(s->o->stats.bytes_out, s->write_bytes);
    uint64_t per_stripe = stripe_data_bytes(&s->geometry.profile);
    const struct stripe_window *w = &s->windows[0];
    if (s->at == s->end || s->at / per_stripe >= w->first + w->count) stream_window_put(s);
  }
  stream_advance(s);
}

static void stream_window(void *arg, int err, struct stripe_window *window) {
  struct get_stream *s = arg;
  s->reading = false;
  if (err < 0) {
    if (s->err == 0) s->err = err;
  } else {
    assert(s->held < WINDOWS_MAX && window->first == s->next_stripe);
    s->windows[s->held++] = *window;
    s->next_stripe += window->count;
  }
  stream_advance(s);
}

static void stream_read(struct get_stream *s) {
  uint64_t left = s->stripes_end - s->next_stripe;
  if (left == 0 || s->reading || s->held == WINDOWS_MAX) return;
  if (s->held > 0) {
    s->reading = stripe_reader_read_ahead(s->reader, s->next_stripe, left);
    return;
  }
  s->reading = true;
  stripe_reader_read(s->reader, s->next_stripe, left);
}

static void stream_write(struct get_stream *s) {
  if (s->writing || s->held == 0) return;
  unsigned count = stream_slices(s, &s->write_bytes);
  assert(count > 0);
  s->writing = true;
  s->sent_any = true;
  s->sink->ops->write(s->sink, s->slices, count, stream_written, s);
}

static void stream_advance(struct get_stream *s) {
  if (s->err < 0 || s->at == s->end) {
    /* What is being written must stay alive; a read that goes on is absorbed by the reader. */
    if (!s->writing) stream_end(s);
    return;
  }
  stream_write(s);
  stream_read(s);
}

static void stream_kick(struct env_timer *t) {
  stream_advance(container_of(t, struct get_stream, kick));
}

void get_stream_cancel(struct get_stream *s) {
  if (s->err == 0) s->err = ERR_CANCELLED;
  if (!s->writing) env_timer_start(s->o->env, &s->kick, 0);
}

/* The data chunks that a range touches: all of them unless it stays within one stripe. */
static uint32_t chunks_wanted(const struct stripe_geometry *g, uint64_t offset, uint64_t len) {
  uint64_t per_stripe = stripe_data_bytes(&g->profile), stripe = offset / per_stripe;
  uint64_t last = offset + len - 1;
  if (last / per_stripe != stripe) return slots_all(g->profile.k);
  uint32_t unit_len = stripe_unit_coded_len(g, stripe);
  unsigned from = (unsigned)(offset % per_stripe / unit_len);
  unsigned to = (unsigned)(last % per_stripe / unit_len);
  return slots_all(to + 1) & ~slots_all(from);
}

int get_stream_start(struct objects *o, const struct get_stream_args *args,
                     struct get_stream **ret_stream) {
  struct stripe_geometry g = row_geometry(args->row);
  assert(args->len > 0 && args->offset < g.size && args->len <= g.size - args->offset);
  struct get_stream *s = calloc(1, sizeof *s);
  if (!s) return -ENOMEM;
  s->o = o;
  s->geometry = g;
  s->sink = args->sink;
  s->cb = args->cb;
  s->arg = args->arg;
  s->at = args->offset;
  s->end = args->offset + args->len;
  s->next_stripe = s->at / stripe_data_bytes(&g.profile);
  s->stripes_end = (s->end - 1) / stripe_data_bytes(&g.profile) + 1;
  s->kick.fire = stream_kick;
  uint32_t want = chunks_wanted(&g, args->offset, args->len);
  int err = stripe_reader_open(o, args->place, args->row, args->healthy, want, args->inline_chunks,
                               stream_window, s, &s->reader);
  if (err < 0) {
    free(s);
    return err;
  }
  stream_read(s);
  *ret_stream = s;
  return 0;
}
