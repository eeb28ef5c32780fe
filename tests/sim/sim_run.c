/* sim_run.c: one seed from start to end. When the faults have stopped everything must finish:
 * operations, undecided rows, stages, orphans; what was acknowledged must be read back, by all
 * drives and by fewer; and each key's history must be linearizable. See sim.h.
 *
 * A failed run is left where it stands: its memory is not given back. */
#include "tests/sim/sim.h"

#define CALM_TICK_US (1000 * SIM_MS)
#define CALM_TICKS_MAX 240
#define UNIT_BYTES 4096

static struct sim_layout layouts[] = {
    {.name = "2+2", .hosts = 4, .drives_per_host = 1, .k = 2, .m = 2, .technique = "reed_sol_van"},
    {.name = "2+1", .hosts = 3, .drives_per_host = 1, .k = 2, .m = 1, .technique = "xor"},
    {.name = "1+2", .hosts = 3, .drives_per_host = 1, .k = 1, .m = 2, .technique = "reed_sol_van"},
    {.name = "4+2", .hosts = 6, .drives_per_host = 1, .k = 4, .m = 2, .technique = "reed_sol_van"},
    {.name = "4+2 on 3 hosts",
     .hosts = 3,
     .drives_per_host = 2,
     .k = 4,
     .m = 2,
     .technique = "cauchy"},
    {.name = "2+2 of 6",
     .hosts = 6,
     .drives_per_host = 1,
     .k = 2,
     .m = 2,
     .technique = "reed_sol_van"},
    {.name = "2+4", .hosts = 6, .drives_per_host = 1, .k = 2, .m = 4, .technique = "cauchy"},
    {.name = "1+1", .hosts = 2, .drives_per_host = 1, .k = 1, .m = 1, .technique = "xor"},
    {.name = "3+3", .hosts = 6, .drives_per_host = 1, .k = 3, .m = 3, .technique = "xor3p"},
};

/* ---- layouts: built once ---- */

static char *text(const char *format, unsigned a) {
  char *s = NULL;
  SIM_CHECK(asprintf(&s, format, a) > 0);
  return s;
}

static void layout_build(struct sim_layout *l) {
  struct settings_error error = {{0}};
  struct settings *s = calloc(1, sizeof *s);
  SIM_CHECK(s);
  l->settings = s; /* the map borrows from it */
  s->cluster.name = text("sim", 0);
  s->cluster.allow_unsafe_layout = true;
  s->host_count = l->hosts;
  s->hosts = calloc(l->hosts, sizeof *s->hosts);
  for (unsigned h = 0; h < l->hosts; h++) {
    struct settings_host *host = &s->hosts[h];
    host->id = text("n%02u", h);
    host->address = text("n%02u:9001", h);
    host->zone = text("n%02u", h);
    host->drive_count = l->drives_per_host;
    host->drives = calloc(l->drives_per_host, sizeof *host->drives);
    for (unsigned d = 0; d < l->drives_per_host; d++) {
      host->drives[d].name = text("d%02u", d);
      host->drives[d].path = text("/data/d%02u", d);
    }
  }
  s->pool_count = 1;
  s->pools = calloc(1, sizeof *s->pools);
  s->pools[0] = (struct settings_pool){.name = text("default", 0),
                                       .technique = strdup(l->technique),
                                       .k = l->k,
                                       .m = l->m,
                                       .stripe_unit_bytes = UNIT_BYTES};
  s->default_pool = text("default", 0);
  s->server.host = text("n%02u", 0);
  if (cluster_map_build(s, &l->map, &error) < 0) fprintf(stderr, "%s\n", error.text);
  SIM_CHECK(l->map && placement_build(l->map, &l->placement) == 0);
  for (unsigned i = 0; i < l->map->pool_count; i++)
    SIM_CHECK(codec_new(&l->map->pools[i].profile, &l->codecs[i]) == 0);
}

struct sim_layout *sim_layout_at(unsigned i) {
  if (i >= ARRAY_LEN(layouts)) return NULL;
  if (!layouts[i].map) layout_build(&layouts[i]);
  return &layouts[i];
}

static struct sim_layout *layout_pick(struct sim *s) {
  static const unsigned often[] = {0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8};
  return sim_layout_at(often[sim_below(s, ARRAY_LEN(often))]);
}

/* ---- the start ---- */

static void sim_open(struct sim *s) {
  s->layout = layout_pick(s);
  s->host_count = s->layout->hosts;
  s->drive_count = s->host_count * s->layout->drives_per_host;
  list_init(&s->gateways);
  list_init(&s->sessions);
  snprintf(s->bucket.name, sizeof s->bucket.name, "bucket");
  for (unsigned i = 0; i < 16; i++) s->bucket.uuid.bytes[i] = (uint8_t)sim_random(s);
  s->bucket.pool = s->layout->map->pool_default;
  s->bucket.state = BUCKET_ACTIVE;
  for (unsigned i = 0; i < s->host_count; i++) {
    s->hosts[i].sim = s;
    s->hosts[i].index = i;
  }
  for (unsigned i = 0; i < s->drive_count; i++) {
    struct sim_drive *d = &s->drives[i];
    d->sim = s;
    d->index = i;
    d->host = &s->hosts[s->layout->map->drives[i].host];
    d->disk = disk_new(s);
    d->lazy_due_us = UINT64_MAX;
    list_init(&d->stages);
    list_init(&d->writes);
    list_init(&d->lazy);
    drive_format_in(d);
  }
  plan_seed(s);
  SIM_TRACE(s, "seed %llu: layout %s, loss %.3f, delay %llu us, keys %u, operations %u, faults %u",
            (unsigned long long)s->seed, s->layout->name, s->loss, (unsigned long long)s->delay_us,
            s->key_count, s->op_count, s->nemesis_count);
  for (unsigned i = 0; i < s->host_count; i++) host_start(&s->hosts[i]);
}

/* ---- the end of the faults ---- */

static void calm_drive(struct sim_drive *d) {
  d->disk->full = false;
  d->disk->crash_in = 0;
  memset(d->disk->eio_in, 0, sizeof d->disk->eio_in);
}

static void calm_down(struct sim *s) {
  SIM_TRACE(s, "all faults stop");
  s->calm = true;
  s->loss = s->dup = s->slow = 0;
  s->delay_us = 500;
  s->wall_offset_ms += 2 * 3600 * 1000; /* behind every clock that ran ahead */
  memset(s->cut, 0, sizeof s->cut);
  for (unsigned i = 0; i < s->nemesis_count; i++) sim_stop(s, &s->nemeses[i].event);
  sim_stop(s, &s->bucket_event);
  for (unsigned i = 0; i < s->drive_count; i++) calm_drive(&s->drives[i]);
  for (unsigned i = 0; i < s->host_count; i++) {
    struct sim_host *h = &s->hosts[i];
    h->skew_ms = 0;
    sim_stop(s, &h->restart);
    if (!h->up) host_start(h);
    sim_stop(s, &s->gateway_start[i]);
    if (h->up && !h->gateway) h->gateway = gateway_new(h);
  }
}

static bool ops_ended(const struct sim *s) {
  for (unsigned i = 0; i < s->op_count; i++)
    if (!s->ops[i]->ended) return false;
  return true;
}

static uint64_t undecided(const struct sim *s) {
  uint64_t count = 0;
  for (unsigned i = 0; i < s->drive_count; i++)
    if (s->drives[i].drive && !s->drives[i].out && !s->drives[i].rotten)
      count += s->drives[i].disk->tables[STORE_UNDECIDED].count;
  return count;
}

static void settle_down(struct sim *s) {
  unsigned ticks = 0;
  for (unsigned i = 0; i < s->host_count; i++) sim_run_until(s, s->hosts[i].paused_us);
  for (unsigned i = 0; i < s->drive_count; i++) sim_run_until(s, s->drives[i].stall_us);
  while (!s->failed && (!ops_ended(s) || (undecided(s) > 0 && !s->bucket_touched) || ticks < 8)) {
    if (++ticks > CALM_TICKS_MAX) {
      for (unsigned i = 0; i < s->op_count; i++)
        if (!s->ops[i]->ended) sim_fail(s, "op%u %s never ends", i, op_name(s->ops[i]->kind));
      sim_fail(s, "%llu rows stay undecided although all faults have stopped",
               (unsigned long long)undecided(s));
      return;
    }
    sim_run_until(s, s->now_us + CALM_TICK_US);
  }
}

/* One operation, to its end; it must have been answered with an object or its absence. */
static void final_op(struct sim *s, enum op_kind kind, unsigned key, struct sim_host *at,
                     bool must_succeed, const char *when) {
  struct sim_op *op = client_op(s, kind, key);
  if (!op || s->failed) return;
  op->final = true;
  client_start(op, at);
  for (unsigned ticks = 0; !op->ended && !s->failed; ticks++) {
    if (ticks > CALM_TICKS_MAX) sim_fail(s, "op%u %s never ends", op->id, op_name(kind));
    sim_run_until(s, s->now_us + 50 * SIM_MS);
  }
  if (must_succeed && !s->bucket_touched && op->err != 0 && op->err != ERR_NO_SUCH_KEY)
    sim_fail(s, "%s of %s at n%u: %s %s", op_name(kind), s->keys[key], at->index, err_name(op->err),
             when);
}

static void check_histories(struct sim *s) {
  s->unjudged = 0;
  for (unsigned k = 0; k < s->key_count && !s->failed; k++) {
    enum verdict_of_history v = history_linearizable(&s->hist[k]);
    if (v == HISTORY_BAD) sim_fail(s, "the history of %s is not linearizable", s->keys[k]);
    s->unjudged += v == HISTORY_TOO_LONG;
  }
}

static void read_back(struct sim *s) {
  const char *when = "although all faults have stopped";
  unsigned first = (unsigned)sim_below(s, s->host_count);
  for (unsigned k = 0; k < s->key_count; k++)
    for (unsigned i = 0; i < MIN(2, s->host_count); i++)
      final_op(s, OP_GET, k, &s->hosts[(first + i) % s->host_count], true, when);
  final_op(s, OP_LIST, 0, &s->hosts[first], true, when);
  check_histories(s);
}

/* With as many drives away as may be, behind what is broken already: each acknowledged object has
 * at least W chunks, of which any d are enough. */
static void read_with_fewer(struct sim *s) {
  const struct map_pool *pool = &s->layout->map->pools[s->bucket.pool];
  unsigned spare = pool->w - pool->d, broken = 0;
  for (unsigned i = 0; i < s->drive_count; i++) broken += s->drives[i].may_break;
  spare = MIN(spare, pool->n - pool->r);
  if (broken >= spare) return;
  unsigned away = (spare - broken) / s->layout->drives_per_host;
  unsigned first = (unsigned)sim_below(s, s->host_count);
  if (away == 0 || away >= s->host_count) return;
  for (unsigned i = 0; i < away; i++)
    host_crash(&s->hosts[(first + i) % s->host_count], false, UINT64_MAX);
  sim_run_until(s, s->now_us + 8000 * SIM_MS);
  struct sim_host *at = &s->hosts[(first + away) % s->host_count];
  for (unsigned k = 0; k < s->key_count; k++)
    final_op(s, OP_GET, k, at, true, "although enough drives are there");
  check_histories(s);
}

/* ---- what is left behind ---- */

static void check_drive_left(struct sim_drive *d) {
  struct drive_stats stats;
  if (!d->drive || d->out || d->disk->erred) return;
  drive_stats_get(d->drive, &stats);
  if (stats.stages_open > 0)
    sim_fail(d->sim, "drive %u is left with %llu stages", d->index,
             (unsigned long long)stats.stages_open);
  size_t named = d->disk->tables[STORE_BLOB].count;
  if (disk_file_count(d->disk) != named)
    sim_fail(d->sim, "drive %u has %u chunk files, %zu are named", d->index,
             disk_file_count(d->disk), named);
}

static void check_left(struct sim *s) {
  list_foreach(it, &s->gateways) gateway_die(container_of(it, struct sim_gateway, link));
  sim_run_until(s, s->now_us + 15000 * SIM_MS);
  for (unsigned i = 0; i < s->drive_count && !s->failed; i++) check_drive_left(&s->drives[i]);
}

static void sim_close(struct sim *s) {
  for (unsigned i = 0; i < s->drive_count; i++) drive_shut(&s->drives[i]);
  for (unsigned i = 0; i < s->host_count; i++) {
    s->hosts[i].up = false;
    sim_stop(s, &s->hosts[i].restart);
    s->hosts[i].gateway = NULL;
  }
  while (sim_next(s)) continue;
  list_foreach_safe(it, &s->gateways) gateway_free(container_of(it, struct sim_gateway, link));
  if (s->failed) return;
  list_foreach_safe(it, &s->sessions) net_session_free(container_of(it, struct sim_session, link));
  for (unsigned i = 0; i < s->drive_count; i++) {
    disk_free(s->drives[i].disk);
    disk_free(s->drives[i].snapshot);
  }
  for (unsigned i = 0; i < s->op_count; i++) client_free(s->ops[i]);
  SIM_CHECK(s->heap_count == 0);
  free(s->heap);
}

void sim_seed(uint64_t seed, const struct sim_options *opt, struct sim_result *ret) {
  struct sim *s = calloc(1, sizeof *s);
  SIM_CHECK(s);
  s->seed = seed;
  s->random_state = seed;
  s->random_state = sim_random(s) ^ 0x6b6f666e; /* else the next seed has the same numbers */
  s->trace = opt->trace;
  s->out = opt->out;
  s->now_us = 1000 * SIM_MS;
  sim_current = s;
  sim_open(s);
  sim_run_until(s, s->end_us);
  if (!s->failed) calm_down(s);
  if (!s->failed) settle_down(s);
  if (!s->failed) read_back(s);
  if (!s->failed) read_with_fewer(s);
  if (!s->failed) check_left(s);
  if (s->failed && opt->print_history)
    for (unsigned k = 0; k < s->key_count; k++) history_print(s, k, opt->out);
  *ret = (struct sim_result){.failed = s->failed,
                             .hash = s->hash,
                             .ops = s->op_count,
                             .acked = s->acked,
                             .reads = s->read_ok,
                             .unavailable = s->unavailable,
                             .events = s->events,
                             .crashes = s->crashes,
                             .cuts = s->cuts,
                             .broken = s->broken,
                             .unjudged = s->unjudged};
  memcpy(ret->why, s->why, sizeof ret->why);
  if (s->failed) return;
  sim_close(s);
  ret->failed = s->failed;
  memcpy(ret->why, s->why, sizeof ret->why);
  if (!s->failed) free(s);
}
