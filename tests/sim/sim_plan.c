/* sim_plan.c: what happens in a seed: the layout, how bad the network is, which operations are
 * tried when, and which faults come. Not every seed has every kind of fault: some are only seen
 * where others do not get in the way. See sim.h. */
#include "tests/sim/sim.h"

const char *sim_bias = "";

static bool biased(const char *what) {
  return strstr(sim_bias, what) != NULL;
}

static void plan_network(struct sim *s) {
  static const uint64_t trash_delays[] = {60000, 60000, 2000, 0};
  static const double losses[] = {0, 0, 0, 0.005, 0.03, 0.1};
  static const uint64_t delays[] = {200, 1000, 1000, 6000};
  s->loss = losses[sim_below(s, ARRAY_LEN(losses))];
  s->dup = sim_chance(s, 0.4) ? 0.1 : 0;
  s->slow = sim_chance(s, 0.5) ? 0.15 : 0;
  s->delay_us = delays[sim_below(s, ARRAY_LEN(delays))];
  if (biased("contest")) s->delay_us = 6000;
  s->trash_delay_ms = trash_delays[sim_below(s, ARRAY_LEN(trash_delays))];
  s->inline_max = sim_chance(s, 0.5) ? 16384 : 1024;
}

/* Chunks may be lost on so many drives that what W drives acknowledged can still be read. */
static void plan_breakable(struct sim *s) {
  const struct map_pool *pool = &s->layout->map->pools[s->bucket.pool];
  unsigned budget = MIN(pool->w - pool->d, pool->n - pool->w);
  for (unsigned i = 0; i < budget; i++) s->drives[sim_below(s, s->drive_count)].may_break = true;
}

/* ---- operations ---- */

static uint64_t plan_size(struct sim *s) {
  uint64_t stripe = 4096ull * s->layout->k;
  switch (sim_below(s, 20)) {
    case 0:
      return 0;
    case 1:
      return 16 * stripe + sim_below(s, 3 * stripe); /* more than one window */
    case 2:
    case 3:
    case 4:
      return stripe + sim_below(s, 3 * stripe);
    default:
      return 1 + sim_below(s, sim_chance(s, 0.3) ? 2 * stripe : 900);
  }
}

static void plan_condition(struct sim *s, struct sim_op *op) {
  unsigned what = (unsigned)sim_below(s, biased("contest") ? 4 : biased("race") ? 5 : 9);
  if (what == 0 || what == 1) {
    if (op->kind == OP_PUT) snprintf(op->cond_etag, sizeof op->cond_etag, "!");
  } else if (what == 2) {
    snprintf(op->cond_etag, sizeof op->cond_etag, "*");
  } else if (what == 3 && s->value_count > 0) {
    /* One of the newest values: an older one is hardly ever there. */
    unsigned v = s->value_count - (unsigned)sim_below(s, MIN(s->value_count, 4));
    snprintf(op->cond_etag, sizeof op->cond_etag, "v%u", v);
  }
}

static void op_fire(struct sim_event *e) {
  struct sim_op *op = container_of(e, struct sim_op, start);
  struct sim *s = op->sim;
  if (op->kind == OP_RMBUCKET && !s->bucket_real) {
    op->ended = true;
    return;
  }
  /* If-Match on the newest values known by now. */
  client_start(op, &s->hosts[sim_below(s, s->host_count)]);
}

static void plan_op(struct sim *s, uint64_t at_us) {
  static const enum op_kind usual[] = {OP_PUT, OP_PUT,  OP_PUT,  OP_GET,    OP_GET,
                                       OP_GET, OP_HEAD, OP_LIST, OP_DELETE, OP_PUT};
  static const enum op_kind deleting[] = {OP_PUT, OP_DELETE, OP_DELETE, OP_GET, OP_HEAD, OP_PUT};
  enum op_kind kind = biased("delete") || biased("bucket")
                          ? deleting[sim_below(s, ARRAY_LEN(deleting))]
                          : usual[sim_below(s, ARRAY_LEN(usual))];
  struct sim_op *op = client_op(s, kind, (unsigned)sim_below(s, s->key_count));
  if (!op) return;
  if (kind == OP_PUT) {
    op->value = ++s->value_count;
    s->values[op->value] = (struct sim_value){plan_size(s), op->key};
    snprintf(op->etag, sizeof op->etag, "v%u", op->value);
    if (sim_chance(s, 0.03)) {
      op->body_fail_at = sim_below(s, s->values[op->value].size + 1);
      op->body_err = sim_chance(s, 0.5) ? ERR_CLIENT_GONE : ERR_BODY_SHORT;
    }
    if (sim_chance(s, 0.03)) op->body_delay_us = sim_below(s, 400 * SIM_MS);
  }
  if (kind == OP_PUT || kind == OP_DELETE) plan_condition(s, op);
  op->range = sim_chance(s, 0.3);
  if (kind == OP_LIST && sim_chance(s, 0.3)) op->list_limit = 1;
  sim_after(s, &op->start, NULL, at_us - s->now_us, op_fire);
}

static void bucket_made(void *arg, int err, const struct bucket_info *info) {
  struct sim *s = arg;
  if (err < 0 || s->ops[0]->running || s->stamp > 0) return; /* the operations have begun */
  s->bucket = *info;
  s->bucket_real = true;
}

static void bucket_fire(struct sim_event *e) {
  struct sim *s = container_of(e, struct sim, bucket_event);
  struct sim_gateway *gw = s->hosts[0].gateway;
  if (gw)
    bucket_create(&gw->o, slice_str("bucket"), s->bucket.pool, slice_str("me"), bucket_made, s);
}

/* A bucket that comes from its register, and a few who try to delete it. */
static void plan_bucket(struct sim *s, const uint64_t *bursts, unsigned burst_count) {
  sim_after(s, &s->bucket_event, NULL, 600 * SIM_MS, bucket_fire);
  for (unsigned i = (unsigned)sim_between(s, 1, 4); i > 0; i--) {
    struct sim_op *op = client_op(s, OP_RMBUCKET, 0);
    uint64_t at = bursts[sim_below(s, burst_count)] + sim_below(s, 60 * SIM_MS);
    if (op) sim_after(s, &op->start, NULL, at - s->now_us, op_fire);
  }
}

/* ---- faults ---- */

static void gateway_again(struct sim_event *e) {
  struct sim *s = sim_current;
  struct sim_host *h = &s->hosts[e - s->gateway_start];
  if (h->up && !h->gateway) h->gateway = gateway_new(h);
}

static void nemesis_cut(struct sim *s, const struct sim_nemesis *n) {
  unsigned how = (unsigned)sim_below(s, 4);
  s->cuts++;
  for (unsigned i = 0; i < s->host_count; i++) {
    for (unsigned j = 0; j < s->host_count; j++) {
      if (i == j) continue;
      if (how == 0 && (i == n->at || j == n->at)) s->cut[i][j] = true; /* one host alone */
      if (how == 1 && i == n->at) s->cut[i][j] = true;                 /* it is heard no more */
      if (how == 2 && j == n->at && sim_chance(s, 0.7)) s->cut[i][j] = true; /* it hears little */
      if (how == 3 && (i % 2) != (j % 2)) s->cut[i][j] = true;               /* two halves */
    }
  }
}

static void nemesis_lose(struct sim_drive *d) {
  if (!d->may_break || d->out) return;
  SIM_TRACE(d->sim, "d%u is lost", d->index);
  d->out = true;
  d->sim->broken++;
  drive_shut(d);
}

static void nemesis_snapshot(struct sim_drive *d) {
  if (!d->may_break || d->snapshot || !d->drive) return;
  d->snapshot = disk_copy(d->disk);
  d->snapshot_boot = d->boot;
  SIM_TRACE(d->sim, "d%u: a snapshot is taken in boot %llu", d->index, (unsigned long long)d->boot);
}

static void nemesis_drive(struct sim *s, const struct sim_nemesis *n) {
  struct sim_drive *d = &s->drives[n->at % s->drive_count];
  for (unsigned i = 0; i < s->drive_count && n->kind >= NEMESIS_EIO && !d->may_break; i++)
    d = &s->drives[(n->at + i) % s->drive_count];
  switch (n->kind) {
    case NEMESIS_MID_CALL:
      d->disk->crash_in = (unsigned)sim_between(s, 1, 40);
      break;
    case NEMESIS_FULL:
    case NEMESIS_ROOM:
      d->disk->full = n->kind == NEMESIS_FULL;
      SIM_TRACE(s, "d%u %s", d->index, d->disk->full ? "is full" : "has room again");
      break;
    case NEMESIS_STALL:
      d->stall_us = s->now_us + n->length_us;
      break;
    case NEMESIS_EIO:
      if (d->may_break)
        d->disk->eio_in[sim_below(s, DISK_FAULTS)] = (unsigned)sim_between(s, 1, 30);
      break;
    case NEMESIS_FLIP:
      if (d->may_break && disk_flip(d->disk)) {
        SIM_TRACE(s, "d%u: a bit flips", d->index);
        d->rotten = true;
        s->broken++;
      }
      break;
    case NEMESIS_LOSE:
      nemesis_lose(d);
      break;
    default:
      nemesis_snapshot(d);
  }
}

static void nemesis_fire(struct sim_event *e) {
  struct sim_nemesis *n = container_of(e, struct sim_nemesis, event);
  struct sim *s = n->sim;
  struct sim_host *h = &s->hosts[n->at % s->host_count];
  switch (n->kind) {
    case NEMESIS_KILL:
    case NEMESIS_POWER:
      host_crash(h, n->kind == NEMESIS_POWER, n->length_us);
      return;
    case NEMESIS_GATEWAY:
      if (h->gateway) gateway_die(TAKE(h->gateway));
      if (h->up && s->gateway_start[h->index].heap_at == 0)
        sim_after(s, &s->gateway_start[h->index], NULL, sim_below(s, 2000 * SIM_MS), gateway_again);
      return;
    case NEMESIS_PAUSE:
      if (!h->up) return;
      SIM_TRACE(s, "n%u is paused for %llu ms", h->index,
                (unsigned long long)(n->length_us / SIM_MS));
      h->paused_us = MAX(h->paused_us, s->now_us + n->length_us);
      return;
    case NEMESIS_CUT:
      SIM_TRACE(s, "the network is cut, at n%u", h->index);
      nemesis_cut(s, n);
      return;
    case NEMESIS_HEAL:
      SIM_TRACE(s, "the network is whole");
      memset(s->cut, 0, sizeof s->cut);
      return;
    case NEMESIS_BREAK:
      if (h->gateway) net_break(&h->gateway->conns[n->other % s->host_count]);
      return;
    case NEMESIS_CLOCK:
      h->skew_ms = (int64_t)n->length_us;
      SIM_TRACE(s, "n%u: the clock is %lld ms off", h->index, (long long)h->skew_ms);
      return;
    default:
      nemesis_drive(s, n);
  }
}

static struct sim_nemesis *plan_nemesis(struct sim *s, enum nemesis_kind kind, uint64_t at_us,
                                        unsigned at, uint64_t length_us) {
  if (s->nemesis_count == SIM_NEMESES_MAX) return NULL;
  struct sim_nemesis *n = &s->nemeses[s->nemesis_count++];
  n->sim = s;
  n->kind = kind;
  n->at = at;
  n->other = (unsigned)sim_below(s, SIM_HOSTS_MAX);
  n->length_us = length_us;
  sim_after(s, &n->event, NULL, at_us - s->now_us, nemesis_fire);
  return n;
}

static int64_t plan_skew(struct sim *s) {
  static const int64_t most[] = {100, 2000, 50000, 3600000};
  int64_t limit = most[sim_below(s, ARRAY_LEN(most))];
  return (int64_t)sim_below(s, 2 * (uint64_t)limit + 1) - limit;
}

static uint64_t plan_length(struct sim *s, enum nemesis_kind kind) {
  switch (kind) {
    case NEMESIS_PAUSE:
      return sim_between(s, 50, sim_chance(s, 0.3) ? 180000 : 6000) * SIM_MS;
    case NEMESIS_CLOCK:
      return (uint64_t)plan_skew(s);
    case NEMESIS_KILL:
    case NEMESIS_POWER:
      return sim_between(s, 100, sim_chance(s, 0.3) ? 60000 : 4000) * SIM_MS;
    default:
      return sim_between(s, 50, sim_chance(s, 0.3) ? 30000 : 3000) * SIM_MS;
  }
}

static void plan_faults(struct sim *s, const uint64_t *bursts, unsigned burst_count) {
  bool may[NEMESIS_KINDS];
  if (sim_chance(s, 0.05) && !sim_bias[0]) return;
  for (unsigned i = 0; i < NEMESIS_KINDS; i++) may[i] = sim_chance(s, 0.35);
  if (biased("contest")) return;
  if (biased("power")) may[NEMESIS_POWER] = may[NEMESIS_MID_CALL] = true;
  if (biased("crash")) may[NEMESIS_KILL] = may[NEMESIS_GATEWAY] = may[NEMESIS_BREAK] = true;
  if (biased("rot")) may[NEMESIS_FLIP] = true;
  if (biased("snapshot")) may[NEMESIS_SNAPSHOT] = may[NEMESIS_KILL] = true;
  if (biased("clock")) may[NEMESIS_CLOCK] = true;
  unsigned count = (unsigned)sim_between(s, 2, 16);
  for (unsigned i = 0; i < count; i++) {
    enum nemesis_kind kind = (enum nemesis_kind)sim_below(s, NEMESIS_KINDS);
    if (!may[kind]) continue;
    uint64_t at = s->now_us + sim_below(s, s->end_us - s->now_us);
    if (sim_chance(s, 0.7)) /* in the middle of things */
      at = bursts[sim_below(s, burst_count)] + sim_below(s, 60 * SIM_MS);
    uint64_t length = plan_length(s, kind);
    unsigned victim = (unsigned)sim_below(s, s->host_count * s->layout->drives_per_host);
    if (kind == NEMESIS_HEAL || kind == NEMESIS_ROOM) continue;
    plan_nemesis(s, kind, at, victim, length);
    if (kind == NEMESIS_CUT) plan_nemesis(s, NEMESIS_HEAL, at + length, victim, 0);
    if (kind == NEMESIS_FULL) plan_nemesis(s, NEMESIS_ROOM, at + length, victim, 0);
    if (biased("power") && kind == NEMESIS_POWER) /* all at once */
      for (unsigned h = 0; h < s->host_count; h++)
        plan_nemesis(s, kind, at + sim_below(s, 3 * SIM_MS), h, length);
  }
}

/* A snapshot, then starts enough for it to be old. */
static void plan_restore(struct sim *s, const uint64_t *bursts, unsigned burst_count) {
  for (unsigned i = 0; i < s->drive_count; i++) {
    if (!s->drives[i].may_break) continue;
    unsigned host = s->drives[i].host->index;
    plan_nemesis(s, NEMESIS_SNAPSHOT, bursts[0] - 200 * SIM_MS, i, 0);
    for (unsigned b = 0; b < burst_count; b++)
      plan_nemesis(s, NEMESIS_KILL, bursts[b] + 400 * SIM_MS, host,
                   sim_between(s, 100, 900) * SIM_MS);
  }
}

void plan_seed(struct sim *s) {
  uint64_t bursts[16];
  plan_network(s);
  plan_breakable(s);
  s->key_count = biased("race") ? 1 : (unsigned)sim_between(s, 1, SIM_KEYS_MAX);
  for (unsigned i = 0; i < s->key_count; i++)
    snprintf(s->keys[i], sizeof s->keys[i], "k%u/%x", i, (unsigned)sim_below(s, 0x10000));
  s->end_us = s->now_us + sim_between(s, 8, 60) * 1000 * SIM_MS;
  unsigned burst_count = (unsigned)sim_between(s, 2, 7), per_burst = (unsigned)sim_between(s, 3, 7);
  uint64_t at = s->now_us + 1500 * SIM_MS,
           spread = sim_chance(s, 0.7) ? 25 * SIM_MS : 2000 * SIM_MS;
  for (unsigned b = 0; b < burst_count; b++) {
    bursts[b] = at;
    for (unsigned i = 0; i < per_burst; i++) plan_op(s, at + sim_below(s, spread));
    at += sim_below(s, 2 * (s->end_us - s->now_us) / burst_count);
  }
  if (sim_chance(s, 0.4) || biased("clock"))
    for (unsigned i = 0; i < s->host_count; i++) s->hosts[i].skew_ms = plan_skew(s);
  plan_faults(s, bursts, burst_count);
  if (sim_chance(s, 0.15) || biased("bucket")) plan_bucket(s, bursts, burst_count);
  if (biased("snapshot")) plan_restore(s, bursts, burst_count);
}
