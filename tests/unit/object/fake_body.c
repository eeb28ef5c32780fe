/* fake_body.c: see fake_body.h. */
#include "tests/unit/object/fake_body.h"

#include <stdlib.h>

#include "codec/crc32c.h"
#include "config/err.h"

static void body_arrive(struct fake_event *e);

static void body_end(struct fake_body *b, int err) {
  fake_event_stop(&b->event);
  b->reading = false;
  b->cancelled = false;
  b->cb(b->arg, err, b->got);
}

static void body_next(struct fake_body *b, uint64_t delay_ms) {
  if (!b->stall) fake_event_start(b->bed, &b->event, delay_ms, body_arrive);
}

static void body_arrive(struct fake_event *e) {
  struct fake_body *b = container_of(e, struct fake_body, event);
  if (b->cancelled) {
    body_end(b, ERR_CANCELLED);
    return;
  }
  size_t n = MIN(b->want - b->got, b->len - b->at);
  if (b->chunk) n = MIN(n, b->chunk);
  if (b->fail_at != SIZE_MAX) n = MIN(n, b->fail_at > b->at ? b->fail_at - b->at : 0);
  if (n) memcpy(b->dst + b->got, b->data + b->at, n);
  b->at += n;
  b->got += n;
  if (b->got == b->want || b->at == b->len)
    body_end(b, b->at >= b->fail_at && b->got < b->want ? b->err : 0);
  else if (b->at >= b->fail_at)
    body_end(b, b->err);
  else
    body_next(b, b->delay_ms);
}

static void fake_body_read(struct body *body, uint8_t *dst, size_t len, body_cb cb, void *arg) {
  struct fake_body *b = container_of(body, struct fake_body, body);
  FAKE_CHECK(!b->reading && len > 0 && cb);
  b->reading = true;
  b->reads++;
  b->dst = dst;
  b->want = len;
  b->got = 0;
  b->cb = cb;
  b->arg = arg;
  body_next(b, b->delay_ms);
}

static void fake_body_cancel(struct body *body) {
  struct fake_body *b = container_of(body, struct fake_body, body);
  if (!b->reading || b->cancelled) return;
  b->cancelled = true;
  fake_event_stop(&b->event);
  fake_event_start(b->bed, &b->event, 0, body_arrive);
}

static const struct body_ops fake_body_ops = {.read = fake_body_read, .cancel = fake_body_cancel};

void fake_body_open(struct fake_body *b, struct fake_bed *bed, const void *data, size_t len) {
  memset(b, 0, sizeof *b);
  b->body.ops = &fake_body_ops;
  b->body.length = len;
  b->bed = bed;
  b->data = data;
  b->len = len;
  b->fail_at = SIZE_MAX;
}

/* Over where the slices stand and what is in them: neither may change while the write goes on. */
static uint32_t sink_sum(const struct fake_sink *s) {
  uint32_t crc = crc32c(0, s->slices, s->count * sizeof *s->slices);
  for (unsigned i = 0; i < s->count; i++)
    if (s->slices[i].len) crc = crc32c(crc, s->slices[i].data, s->slices[i].len);
  return crc;
}

static void sink_take(struct fake_sink *s) {
  for (unsigned i = 0; i < s->count; i++) {
    size_t len = s->slices[i].len;
    if (s->len + len > s->cap) {
      s->cap = MAX(2 * s->cap, s->len + len);
      s->data = realloc(s->data, s->cap);
      FAKE_CHECK(s->data);
    }
    if (len) memcpy(s->data + s->len, s->slices[i].data, len);
    s->len += len;
  }
}

static void sink_written(struct fake_event *e) {
  struct fake_sink *s = container_of(e, struct fake_sink, event);
  FAKE_CHECK(sink_sum(s) == s->check); /* the slices changed while they were being sent */
  size_t before = s->len;
  sink_take(s);
  int err = 0;
  if (s->len > s->fail_at) {
    s->len = MAX(before, s->fail_at);
    err = s->err;
  }
  s->writing = false;
  if (s->on_write) s->on_write(s);
  s->cb(s->arg, err);
}

static void fake_sink_write(struct sink *sink, const struct slice *slices, unsigned count,
                            sink_cb cb, void *arg) {
  struct fake_sink *s = container_of(sink, struct fake_sink, sink);
  FAKE_CHECK(!s->writing); /* one write at a time */
  FAKE_CHECK(cb && count > 0 && count <= SINK_SLICES_MAX);
  s->writing = true;
  s->writes++;
  s->slices = slices;
  s->count = count;
  s->check = sink_sum(s);
  s->cb = cb;
  s->arg = arg;
  if (!s->stall) fake_event_start(s->bed, &s->event, s->delay_ms, sink_written);
}

static const struct sink_ops fake_sink_ops = {.write = fake_sink_write};

void fake_sink_open(struct fake_sink *s, struct fake_bed *bed) {
  memset(s, 0, sizeof *s);
  s->sink.ops = &fake_sink_ops;
  s->bed = bed;
  s->fail_at = SIZE_MAX;
}

void fake_sink_resume(struct fake_sink *s) {
  s->stall = false;
  if (s->writing && !s->event.armed) fake_event_start(s->bed, &s->event, 0, sink_written);
}

void fake_sink_close(struct fake_sink *s) {
  FAKE_CHECK(!s->writing);
  free(s->data);
  s->data = NULL;
}
