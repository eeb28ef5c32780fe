/* put_body.c: the body into windows of stripes; see put.h.
 *
 * A window's buffer: the data units of its stripes one after the other, so that the body is read
 * straight into place, then the parity units. Window `seq` stands in windows[seq % 2]; a window is
 * read, coded and staged in the order of seq, so each of the three has one counter.
 *
 * Buffers: the first is waited for; the second is only taken where it is free right now, because a
 * PUT that waits for it while it holds the first could be one of many that wait for each other. A
 * window that was staged gives its buffer back while the other is still being read, so that a slow
 * client holds one. */
#include "config/err.h"
#include "storage/object/put.h"
#include "storage/object/rebuild.h"

void put_window_release(struct object_put *put, struct put_window *w) {
  if (w->buf.data) env_buf_put(put->env, &w->buf);
}

static bool put_length_known(const struct object_put *put) {
  return put->length != BODY_LENGTH_UNKNOWN;
}

/* Stripes of a window: about 1 MiB of data, and never less than what may travel inside an ACCEPT,
 * so that a body of unknown length which turns out to be small is whole in its first window. */
static unsigned put_window_stripes(const struct object_put *put) {
  uint64_t stripe = stripe_data_bytes(&put->profile);
  uint64_t stripes = MIN(MAX(PUT_WINDOW_DATA_BYTES / stripe, 1), PEER_UNITS_MAX);
  uint64_t inline_max = MIN(put->o->inline_max_bytes, (uint64_t)PEER_INLINE_BYTES_MAX);
  stripes = MAX(stripes, MIN(DIV_UP(inline_max, put->profile.unit_bytes), PEER_UNITS_MAX));
  return (unsigned)stripes;
}

void put_body_shape(struct object_put *put) {
  put->stripes = put_window_stripes(put);
  put->stride = put->profile.unit_bytes;
  if (!put->body) put->body_ended = true;
  if (!put_length_known(put)) return;
  struct stripe_geometry g = stripe_geometry_of(&put->profile, put->length);
  put->is_inline = object_is_inline(put->o, &g);
  put->shape_decided = true;
  put->stripes = (unsigned)MIN(put->stripes, MAX(g.stripe_count, 1));
  if (g.stripe_count == 1) put->stride = stripe_unit_coded_len(&g, 0);
}

static size_t put_window_capacity(const struct object_put *put) {
  return (size_t)put->stripes * put->profile.k * put->stride;
}

static size_t put_buffer_size(const struct object_put *put) {
  return (size_t)put->stripes * profile_n(&put->profile) * put->stride;
}

static void put_buf_ready(struct env_buf_wait *wait, int err) {
  struct object_put *put = container_of(wait, struct object_put, buf_wait);
  put->buf_waiting = false;
  if (err == 0)
    put_window_of(put, put->read_seq)->buf = wait->buf;
  else if (put->body_err == 0)
    put->body_err = err;
  put_unref_advance(put);
}

/* The first buffer: a whole window where there is plenty, else one stripe. */
static bool put_buf_first(struct object_put *put, struct put_window *w) {
  if (env_buf_try(put->env, put_buffer_size(put), &w->buf)) return true;
  if (!put->is_inline) put->stripes = 1;
  put->buf_wait = (struct env_buf_wait){
      .ready = put_buf_ready, .size = put_buffer_size(put), .wait_ms = put->o->buffer_wait_ms};
  if (env_buf_get(put->env, &put->buf_wait)) {
    w->buf = put->buf_wait.buf;
    return true;
  }
  put->buf_waiting = true;
  put_ref(put);
  return false;
}

static bool put_window_buffer(struct object_put *put, struct put_window *w) {
  if (w->buf.data) return true;
  struct put_window *other = put_window_of(put, put->read_seq + 1);
  if (other->buf.data && other->state == WINDOW_FREE) {
    w->buf = other->buf;
    other->buf = (struct env_buf){0};
    return true;
  }
  if (other->buf.data) return env_buf_try(put->env, put_buffer_size(put), &w->buf);
  /* `stripes` is the shape of all windows: only the first may choose it. */
  if (put->read_seq == 0) return put_buf_first(put, w);
  put->buf_wait = (struct env_buf_wait){
      .ready = put_buf_ready, .size = put_buffer_size(put), .wait_ms = put->o->buffer_wait_ms};
  if (env_buf_get(put->env, &put->buf_wait)) {
    w->buf = put->buf_wait.buf;
    return true;
  }
  put->buf_waiting = true;
  put_ref(put);
  return false;
}

/* One byte beyond the declared length: the body's framing must end here, with whatever trailer and
 * checksum it has. */
static void put_body_probed(struct object_put *put, int err, size_t n) {
  if (err == 0 && n > 0) err = ERR_BODY_INVALID;
  if (err < 0)
    put->body_err = err;
  else
    put->body_ended = true;
}

static void put_body_took(struct object_put *put, size_t n) {
  struct put_window *w = put_window_of(put, put->read_seq);
  bool ended = n < put->read_len;
  put->size += n;
  if (ended && put_length_known(put)) {
    put->body_err = ERR_BODY_SHORT;
    return;
  }
  if (put->size > OBJECT_BYTES_MAX) {
    put->body_err = ERR_BODY_LONG;
    return;
  }
  put->body_ended = ended;
  if (!put->shape_decided) {
    struct stripe_geometry g = stripe_geometry_of(&put->profile, put->size);
    put->is_inline = ended && object_is_inline(put->o, &g);
    put->shape_decided = true;
  }
  if (n == 0) {
    w->state = WINDOW_FREE;
    put_window_release(put, w);
    return;
  }
  w->state = WINDOW_READ;
  w->len = n;
  w->stripe_first = put->read_seq * put->stripes;
  w->stripe_count = (unsigned)DIV_UP(n, stripe_data_bytes(&put->profile));
  put->read_seq++;
}

static void put_body_read_done(void *arg, int err, size_t n) {
  struct object_put *put = arg;
  put->reading = false;
  if (put->body_err == 0) {
    if (put->probing)
      put_body_probed(put, err, n);
    else if (err < 0)
      put->body_err = err;
    else
      put_body_took(put, n);
  }
  put_unref_advance(put);
}

static void put_body_read(struct object_put *put) {
  if (put->body_ended || put->reading || put->buf_waiting || put->body_err < 0) return;
  uint8_t *dst = &put->probe;
  put->probing = put_length_known(put) && put->size == put->length;
  put->read_len = 1;
  if (!put->probing) {
    struct put_window *w = put_window_of(put, put->read_seq);
    if (w->state != WINDOW_FREE || !put_window_buffer(put, w)) return;
    w->state = WINDOW_READING;
    dst = w->buf.data;
    put->read_len = put_window_capacity(put);
    if (put_length_known(put)) put->read_len = MIN(put->read_len, put->length - put->size);
  }
  put->reading = true;
  put_ref(put);
  put->body->ops->read(put->body, dst, put->read_len, put_body_read_done, put);
}

static void put_body_code(struct object_put *put) {
  struct put_window *w = put_window_of(put, put->code_seq);
  if (put->working || put->code_seq == put->read_seq || w->state != WINDOW_READ) return;
  put->code_seq++;
  put_code_start(put, w);
}

static void put_body_stage(struct object_put *put) {
  struct put_window *w = put_window_of(put, put->stage_seq);
  if (put->is_inline) return;
  if (w->state == WINDOW_CODED) {
    w->state = WINDOW_STAGING;
    put_stage_start(put, w);
  }
  if (w->state != WINDOW_STAGING || !put_stage_step(put)) return;
  w->state = WINDOW_FREE;
  put->stage_seq++;
  if (put->stage_pending) return; /* a slot that trails still sends from it */
  if (put->body_ended || put->reading) put_window_release(put, w);
}

bool put_body_step(struct object_put *put) {
  uint64_t staged;
  do { /* what ends here may let another begin */
    staged = put->stage_seq;
    if (put->body_err < 0) {
      put_fail(put, put->body_err);
      return false;
    }
    put_body_stage(put);
    if (put->state != PUT_BODY) return false;
    put_body_code(put);
    put_body_read(put);
  } while (staged != put->stage_seq);
  if (!put->body_ended || put->working || put->code_seq < put->read_seq) return false;
  return put->is_inline || put->stage_seq == put->read_seq;
}

void put_body_stop(struct object_put *put) {
  if (put->reading) put->body->ops->cancel(put->body);
  if (put->buf_waiting) env_buf_cancel(put->env, &put->buf_wait);
  if (put->body_err == 0) put->body_err = ERR_CANCELLED;
}
