/* sim_client.c: client operations: bodies that come in pieces, late or not at all; answers that are
 * compared with what was written; and the entries they leave in the histories. See sim.h. */
#include "tests/sim/sim.h"

static const char *const names[] = {"PUT", "DELETE", "GET", "HEAD", "LIST", "RMBUCKET"};

const char *op_name(enum op_kind kind) {
  return kind < OP_KINDS ? names[kind] : "?";
}

/* ---- values: every byte follows from the value's number ---- */

static uint64_t value_word(unsigned value, uint64_t word) {
  uint64_t z = (value * 0x9e3779b97f4a7c15ull) ^ (word * 0xd6e8feb86659fd93ull);
  z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93ull;
  return z ^ (z >> 32);
}

static void value_fill(unsigned value, uint64_t offset, uint8_t *dst, size_t len) {
  while (len > 0) {
    uint64_t w = value_word(value, offset / 8);
    size_t from = offset % 8, n = MIN(len, 8 - from);
    memcpy(dst, (uint8_t *)&w + from, n);
    dst += n;
    offset += n;
    len -= n;
  }
}

static bool value_is(unsigned value, uint64_t offset, const uint8_t *data, size_t len) {
  while (len > 0) {
    uint64_t w = value_word(value, offset / 8);
    size_t from = offset % 8, n = MIN(len, 8 - from);
    if (memcmp(data, (uint8_t *)&w + from, n) != 0) return false;
    data += n;
    offset += n;
    len -= n;
  }
  return true;
}

static unsigned value_of_etag(const struct sim *s, struct slice etag) {
  char text[16] = "";
  unsigned value;
  if (etag.len == 0 || etag.len >= sizeof text) return 0;
  memcpy(text, etag.data, etag.len);
  if (sscanf(text, "v%u", &value) != 1 || value == 0 || value > s->value_count) return 0;
  return value;
}

/* ---- the history ---- */

static struct hist_op *hist_add(struct sim_op *op, unsigned key) {
  struct history *h = &op->sim->hist[key];
  if (h->count == SIM_HISTORY_MAX) return NULL;
  struct hist_op *e = &h->ops[h->count++];
  *e = (struct hist_op){.inv = op->inv, .kind = op->kind, .op = op->id};
  return e;
}

static void saw(struct sim_op *op, unsigned key, unsigned value) {
  struct sim *s = op->sim;
  if (op->dead) return;
  struct hist_op *e = hist_add(op, key);
  if (!e) return;
  e->kind = OP_GET;
  e->value = value;
  e->out = OUT_OK;
  e->ret = ++s->stamp;
  s->read_ok++;
  sim_note(s, (uint64_t)value << 32 | op->id);
}

static void op_end(struct sim_op *op, int err) {
  struct sim *s = op->sim;
  SIM_CHECK(op->running && !op->ended);
  sim_stop(s, &op->cancel);
  op->ended = true;
  op->running = false;
  op->err = err;
  op->put = NULL;
  op->get = NULL;
  op->list = NULL;
  SIM_TRACE(s, "op%u %s %s ends%s: %s", op->id, op_name(op->kind), s->keys[op->key],
            op->dead ? " unseen" : "", err ? err_name(err) : "ok");
  if (err == ERR_UNAVAILABLE || err == ERR_UNKNOWN_OUTCOME) s->unavailable++;
}

/* ---- the body of a PUT ---- */

static void body_end(struct sim_op *op, int err) {
  sim_stop(op->sim, &op->body_event);
  op->reading = false;
  op->read_cancelled = false;
  op->read_cb(op->read_arg, err, op->read_got);
}

static void body_fire(struct sim_event *e) {
  struct sim_op *op = container_of(e, struct sim_op, body_event);
  struct sim *s = op->sim;
  uint64_t size = s->values[op->value].size;
  if (op->dead || op->read_cancelled) {
    body_end(op, op->read_cancelled ? ERR_CANCELLED : ERR_CLIENT_GONE);
    return;
  }
  uint64_t end = MIN(size, op->body_fail_at);
  size_t n = (size_t)MIN(op->read_len - op->read_got, end - op->body_at);
  if (sim_chance(s, 0.3) && n > 1) n = 1 + (size_t)sim_below(s, n);
  value_fill(op->value, op->body_at, op->read_dst + op->read_got, n);
  op->body_at += n;
  op->read_got += n;
  if (op->read_got == op->read_len)
    body_end(op, 0);
  else if (op->body_at == end)
    body_end(op, op->body_fail_at != UINT64_MAX ? op->body_err : 0);
  else
    sim_after(s, e, NULL, op->body_delay_us, body_fire);
}

static void sim_body_read(struct body *b, uint8_t *dst, size_t len, body_cb cb, void *arg) {
  struct sim_op *op = container_of(b, struct sim_op, body);
  SIM_CHECK(!op->reading && len > 0);
  op->reading = true;
  op->read_dst = dst;
  op->read_len = len;
  op->read_got = 0;
  op->read_cb = cb;
  op->read_arg = arg;
  sim_after(op->sim, &op->body_event, NULL, op->dead ? 0 : op->body_delay_us, body_fire);
}

static void sim_body_cancel(struct body *b) {
  struct sim_op *op = container_of(b, struct sim_op, body);
  if (!op->reading || op->read_cancelled) return;
  op->read_cancelled = true;
  sim_stop(op->sim, &op->body_event);
  sim_after(op->sim, &op->body_event, NULL, 0, body_fire);
}

static const struct body_ops sim_body_ops = {.read = sim_body_read, .cancel = sim_body_cancel};

/* ---- PUT and DELETE ---- */

static enum op_outcome outcome_of(int err) {
  switch (err) {
    case 0:
      return OUT_OK;
    case ERR_PRECONDITION:
      return OUT_FALSE;
    case ERR_NO_SUCH_KEY:
      return OUT_MISSING;
    case ERR_UNKNOWN_OUTCOME:
      return OUT_MAYBE;
    default:
      return OUT_NOTHING; /* the client was told that nothing happened: it must be true */
  }
}

static void put_done(void *arg, const struct object_put_result *r) {
  struct sim_op *op = arg;
  struct sim *s = op->sim;
  SIM_CHECK(!op->reading);
  if (!op->dead && op->hist) {
    op->hist->out = outcome_of(r->err);
    if (op->hist->out != OUT_MAYBE) op->hist->ret = ++s->stamp;
    if (r->err == 0) s->acked++;
    if (r->err == 0 && op->kind == OP_PUT && r->size != s->values[op->value].size)
      sim_fail(s, "op%u: PUT acknowledged with size %llu", op->id, (unsigned long long)r->size);
    if (r->err == 0 && op->kind == OP_PUT && s->bucket_gone && op->inv > s->bucket_gone)
      sim_fail(s, "op%u: a PUT is acknowledged in a bucket that was deleted before", op->id);
    if (r->err == ERR_PRECONDITION && op->hist->cond == COND_NONE)
      sim_fail(s, "op%u: a PUT without conditions got 412", op->id);
  }
  sim_note(s, (uint64_t)(int64_t)r->err ^ (uint64_t)op->id << 40);
  op_end(op, r->err);
}

static void write_start(struct sim_op *op) {
  struct sim *s = op->sim;
  struct object_put_args args = {.bucket = &s->bucket,
                                 .key = slice_str(s->keys[op->key]),
                                 .kind = op->kind == OP_PUT ? ROW_PUT : ROW_TOMB};
  op->hist = hist_add(op, op->key);
  if (!op->hist) {
    op->running = false;
    op->ended = true;
    return;
  }
  op->hist->value = op->value;
  op->hist->out = OUT_MAYBE; /* until it is answered */
  if (op->cond_etag[0] == '!') {
    args.conditions.if_none_match_any = true;
    op->hist->cond = COND_ABSENT;
  } else if (op->cond_etag[0] == '*') {
    args.conditions.if_match = SLICE_LIT("*");
    op->hist->cond = COND_ANY;
  } else if (op->cond_etag[0]) {
    args.conditions.if_match = slice_str(op->cond_etag);
    op->hist->cond = COND_MATCH;
    op->hist->cond_value = value_of_etag(s, slice_str(op->cond_etag));
  }
  if (op->kind == OP_PUT) {
    uint64_t size = s->values[op->value].size;
    op->body = (struct body){&sim_body_ops, sim_chance(s, 0.5) ? size : BODY_LENGTH_UNKNOWN};
    args.body = &op->body;
    args.etag = slice_str(op->etag);
  }
  SIM_CHECK(object_put_start(&op->gw->o, &args, put_done, op, &op->put) == 0);
}

/* ---- GET and HEAD ---- */

static void sink_fire(struct sim_event *e) {
  struct sim_op *op = container_of(e, struct sim_op, sink_event);
  for (unsigned i = 0; i < op->slice_count && !op->dead; i++) {
    const struct slice *s = &op->slices[i];
    if (s->len > op->get_end - op->get_at ||
        !value_is(op->get_value, op->get_at, s->data, s->len)) {
      sim_fail(op->sim, "op%u: GET of %s gives wrong bytes at %llu of v%u", op->id,
               op->sim->keys[op->key], (unsigned long long)op->get_at, op->get_value);
      break;
    }
    op->get_at += s->len;
  }
  op->written_cb(op->written_arg, op->dead ? ERR_CLIENT_GONE : 0);
}

static void sim_sink_write(struct sink *sink, const struct slice *slices, unsigned count,
                           sink_cb cb, void *arg) {
  struct sim_op *op = container_of(sink, struct sim_op, sink);
  SIM_CHECK(count > 0 && count <= SINK_SLICES_MAX);
  op->slices = slices;
  op->slice_count = count;
  op->written_cb = cb;
  op->written_arg = arg;
  sim_after(op->sim, &op->sink_event, NULL, op->dead ? 0 : op->body_delay_us, sink_fire);
}

static const struct sink_ops sim_sink_ops = {.write = sim_sink_write};

static void get_found(void *arg, struct object_get *get, int err, const struct row *row) {
  struct sim_op *op = arg;
  struct sim *s = op->sim;
  if (err < 0) {
    if (err == ERR_NO_SUCH_KEY) saw(op, op->key, 0);
    op_end(op, err);
    return;
  }
  unsigned value = value_of_etag(s, row->etag);
  if (value == 0 || s->values[value].key != op->key || s->values[value].size != row->size) {
    if (!op->dead) sim_fail(s, "op%u: GET finds a row that nobody wrote", op->id);
    object_get_close(get);
    op_end(op, ERR_CORRUPT);
    return;
  }
  saw(op, op->key, value);
  op->get_value = value;
  op->get_at = 0;
  op->get_end = row->size;
  if (op->range && row->size > 1) {
    op->get_at = sim_below(s, row->size);
    op->get_end = op->get_at + 1 + sim_below(s, row->size - op->get_at);
  }
  if (op->kind == OP_HEAD || row->size == 0) {
    object_get_close(get);
    op_end(op, 0);
    return;
  }
  op->sink.ops = &sim_sink_ops;
  object_get_read(get, op->get_at, op->get_end - op->get_at, &op->sink);
}

static void get_done(void *arg, int err, bool sent_any) {
  struct sim_op *op = arg;
  (void)sent_any;
  if (err == 0 && !op->dead && op->get_at != op->get_end)
    sim_fail(op->sim, "op%u: GET ends %llu bytes early", op->id,
             (unsigned long long)(op->get_end - op->get_at));
  op_end(op, err);
}

/* ---- LIST ---- */

static void list_done(void *arg, const struct object_list_result *r) {
  struct sim_op *op = arg;
  struct sim *s = op->sim;
  unsigned at = 0;
  if (r->err == 0 && r->count > op->list_limit)
    sim_fail(s, "op%u: LIST gives more than its limit", op->id);
  for (unsigned k = 0; k < s->key_count && r->err == 0; k++) {
    struct slice key = slice_str(s->keys[k]);
    if (at < r->count && slice_cmp(r->items[at].key, key) < 0) {
      sim_fail(s, "op%u: LIST gives a key that nobody wrote, or out of order", op->id);
      break;
    }
    if (at == r->count && r->truncated) break; /* what is behind the page was not looked at */
    unsigned value = 0;
    if (at < r->count && slice_eq(r->items[at].key, key)) {
      value = value_of_etag(s, r->items[at].etag);
      if (value == 0 || s->values[value].key != k || s->values[value].size != r->items[at].size)
        sim_fail(s, "op%u: LIST gives a row of %s that nobody wrote", op->id, s->keys[k]);
      at++;
    }
    saw(op, k, value);
  }
  op_end(op, r->err);
}

/* ---- DELETE of the bucket: all of its keys were seen to be absent ---- */

static void bucket_removed(void *arg, int err, const struct bucket_info *info) {
  struct sim_op *op = arg;
  struct sim *s = op->sim;
  (void)info;
  for (unsigned k = 0; k < s->key_count && err == 0; k++) saw(op, k, 0);
  if (err == 0 && !op->dead && !s->bucket_gone) s->bucket_gone = ++s->stamp;
  op_end(op, err);
}

/* ---- starting, ending ---- */

static void read_start(struct sim_op *op) {
  static const struct object_get_ops ops = {.found = get_found, .done = get_done};
  struct sim *s = op->sim;
  if (op->kind == OP_RMBUCKET) {
    s->bucket_touched = true;
    bucket_delete(&op->gw->o, slice_str(s->bucket.name), bucket_removed, op);
    return;
  }
  if (op->kind == OP_LIST) {
    struct object_list_args args = {.bucket = &s->bucket, .limit = op->list_limit};
    SIM_CHECK(object_list_start(&op->gw->o, &args, list_done, op, &op->list) == 0);
    return;
  }
  SIM_CHECK(object_get_start(&op->gw->o, &s->bucket, slice_str(s->keys[op->key]),
                             op->kind == OP_GET, &ops, op, &op->get) == 0);
}

static void cancel_fire(struct sim_event *e) {
  struct sim_op *op = container_of(e, struct sim_op, cancel);
  if (!op->running) return;
  SIM_TRACE(op->sim, "op%u is cancelled", op->id);
  if (op->put) object_put_cancel(op->put);
  if (op->get) object_get_cancel(op->get);
  if (op->list) object_list_cancel(op->list);
}

struct sim_op *client_op(struct sim *s, enum op_kind kind, unsigned key) {
  if (s->op_count == SIM_OPS_MAX) return NULL;
  struct sim_op *op = calloc(1, sizeof *op);
  SIM_CHECK(op);
  op->sim = s;
  op->kind = kind;
  op->key = key;
  op->id = s->op_count;
  op->body_fail_at = UINT64_MAX;
  op->body_delay_us = 10 + sim_below(s, 400);
  op->list_limit = 1000;
  s->ops[s->op_count++] = op;
  return op;
}

void client_start(struct sim_op *op, struct sim_host *at) {
  struct sim *s = op->sim;
  if (!at->up || !at->gateway || op->ended || op->running) {
    op->ended = true;
    op->err = ERR_PEER_DOWN;
    return;
  }
  op->gw = at->gateway;
  op->inv = ++s->stamp;
  op->running = true;
  SIM_TRACE(s, "op%u %s %s%s%s at gw%u (v%u, %llu bytes)", op->id, op_name(op->kind),
            s->keys[op->key], op->cond_etag[0] ? " if " : "", op->cond_etag, op->gw->id, op->value,
            (unsigned long long)s->values[op->value].size);
  if (op->kind == OP_PUT || op->kind == OP_DELETE)
    write_start(op);
  else
    read_start(op);
  if (op->running && !op->final && sim_chance(s, 0.03))
    sim_after(s, &op->cancel, NULL, sim_below(s, 60 * SIM_MS), cancel_fire);
}

void client_gateway_died(struct sim_gateway *gw) {
  struct sim *s = gw->sim;
  for (unsigned i = 0; i < s->op_count; i++) {
    struct sim_op *op = s->ops[i];
    if (op->gw != gw || !op->running) continue;
    op->dead = true;
    sim_stop(s, &op->cancel);
    if (op->put) object_put_cancel(op->put);
    if (op->get) object_get_cancel(op->get);
    if (op->list) object_list_cancel(op->list);
  }
}

void client_free(struct sim_op *op) {
  sim_stop(op->sim, &op->start);
  sim_stop(op->sim, &op->cancel);
  free(op);
}
