/* sim_node.c: a host: its drives with the lanes that serve them, its gateway, its starts and its
 * ends. See sim.h; the lanes behave as storage/drive/lanes.c does:
 *
 *   reads      any order
 *   stages     STAGE, DROP and the seal of an ACCEPT, one after the other
 *   writes     a batch at a time; COMMITs wait for company and go behind the ACCEPTs */
#include "storage/object/bucket_cache.h"
#include "tests/sim/sim.h"

#define LAZY_US (100 * SIM_MS)
#define HOUSEKEEP_US (150 * SIM_MS)

struct sim_host *sim_at;

static uint64_t node_wall_ms(void) {
  return sim_wall_ms(sim_current, sim_at);
}

static struct sim_flight *flight_of_lane(struct list *l) {
  return container_of(l, struct sim_flight, lane);
}

/* How long a drive takes, and how long it stands still. */
static uint64_t lane_delay(struct sim_drive *d, uint64_t most_us) {
  struct sim *s = d->sim;
  uint64_t stalled = d->stall_us > s->now_us ? d->stall_us - s->now_us : 0;
  return stalled + 1 + sim_below(s, most_us);
}

/* After each call into the drive. True: it does not serve any more (and the host may be gone). */
static bool drive_ended(struct sim_drive *d) {
  if (d->disk->dead) {
    SIM_TRACE(d->sim, "n%u stops in the middle of a call of d%u", d->host->index, d->index);
    host_crash(d->host, sim_chance(d->sim, 0.7), sim_between(d->sim, 100, 15000) * SIM_MS);
    return true;
  }
  if (drive_failed(d->drive)) drive_note_failed(d);
  return false;
}

void drive_note_failed(struct sim_drive *d) {
  if (d->out) return;
  SIM_TRACE(d->sim, "d%u is out of service: %s", d->index, drive_failure(d->drive));
  if (!d->may_break)
    sim_fail(d->sim, "drive %u failed on a sound disk: %s", d->index, drive_failure(d->drive));
  d->out = true;
  d->sim->broken++;
}

/* What was under way when the drive ended: a host that goes on says so. */
static void serve_no_more(struct sim_flight *f) {
  struct sim_host *h = f->drive->host;
  if (!h->up || h->incarnation != f->incarnation) {
    net_drop(f);
    return;
  }
  f->reply = (struct peer_reply){.err = ERR_DRIVE_FAILED};
  net_answer(f);
}

/* ---- lanes ---- */

static void write_arm(struct sim_drive *d);

static void read_fire(struct sim_event *e) {
  struct sim_flight *f = container_of(e, struct sim_flight, arrive);
  struct sim_drive *d = f->drive;
  if (!d->drive || d->host->incarnation != f->incarnation) {
    serve_no_more(f);
    return;
  }
  sim_at = d->host;
  drive_read(d->drive, &f->req, &f->reply);
  if (d->disk->dead) {
    free(TAKE(f->reply.body));
    net_drop(f);
    (void)drive_ended(d);
    return;
  }
  (void)drive_ended(d);
  net_answer(f);
}

static bool needs_seal(const struct peer_request *req) {
  struct row row;
  if (req->verb != PEER_ACCEPT || req->unit_count > 0) return false;
  return row_decode(req->row, &req->bucket, req->key, &row) == 0 && row_has_data(&row);
}

static void stage_fire(struct sim_event *e) {
  struct sim_drive *d = container_of(e, struct sim_drive, stage_event);
  struct list *l = list_pop_front(&d->stages);
  SIM_CHECK(l && d->drive);
  struct sim_flight *f = flight_of_lane(l);
  if (!list_empty(&d->stages)) sim_after(d->sim, e, d->host, lane_delay(d, 300), stage_fire);
  sim_at = d->host;
  int err = 0;
  if (f->req.verb == PEER_ACCEPT)
    err = drive_seal(d->drive, &f->req);
  else
    drive_stage(d->drive, &f->req, &f->reply);
  if (d->disk->dead) {
    net_drop(f);
    (void)drive_ended(d);
    return;
  }
  (void)drive_ended(d);
  if (f->req.verb == PEER_ACCEPT && err == 0) {
    list_push_back(&d->writes, &f->lane);
    write_arm(d);
    return;
  }
  if (err < 0) f->reply = (struct peer_reply){.err = err};
  net_answer(f);
}

static void stage_push(struct sim_drive *d, struct sim_flight *f) {
  list_push_back(&d->stages, &f->lane);
  if (d->stage_event.heap_at == 0)
    sim_after(d->sim, &d->stage_event, d->host, lane_delay(d, 300), stage_fire);
}

static void jobs_take(struct sim_drive *d, struct list *jobs) {
  struct list *l;
  unsigned most = sim_chance(d->sim, 0.3) ? 1 : DRIVE_BATCH_OPS_MAX;
  for (; most > 0 && (l = list_pop_front(&d->writes)); most--) list_push_back(jobs, l);
  if (!list_empty(&d->writes)) return;
  for (; most > 0 && (l = list_pop_front(&d->lazy)); most--) list_push_back(jobs, l);
}

static void housekeep_fire(struct sim_event *e) {
  struct sim_drive *d = container_of(e, struct sim_drive, housekeep_event);
  sim_at = d->host;
  uint64_t delay = drive_housekeep(d->drive, DRIVE_BATCH_OPS_MAX);
  if (drive_ended(d) || delay == UINT64_MAX || !d->drive) return;
  sim_after(d->sim, e, d->host, MIN(delay + 1, 600000) * SIM_MS, housekeep_fire);
}

static void housekeep_soon(struct sim_drive *d) {
  sim_stop(d->sim, &d->housekeep_event);
  sim_after(d->sim, &d->housekeep_event, d->host, sim_below(d->sim, HOUSEKEEP_US), housekeep_fire);
}

static void batch_run(struct sim_drive *d, struct list *jobs) {
  sim_at = d->host;
  int err = drive_batch_begin(d->drive);
  if (err == 0) {
    list_foreach(it, jobs) {
      struct sim_flight *f = flight_of_lane(it);
      drive_batch_apply(d->drive, &f->req, &f->reply);
    }
    err = drive_batch_commit(d->drive);
  }
  bool dead = d->disk->dead;
  for (struct list *l; (l = list_pop_front(jobs));) {
    struct sim_flight *f = flight_of_lane(l);
    if (err < 0) {
      free(f->reply.body);
      f->reply = (struct peer_reply){.err = err};
    }
    if (dead)
      net_drop(f);
    else
      net_answer(f);
  }
  if (!drive_ended(d)) housekeep_soon(d);
}

static void write_fire(struct sim_event *e) {
  struct sim_drive *d = container_of(e, struct sim_drive, write_event);
  struct list jobs;
  list_init(&jobs);
  SIM_CHECK(d->drive);
  if (!list_empty(&d->writes) || d->lazy_due_us <= d->sim->now_us) jobs_take(d, &jobs);
  if (list_empty(&d->lazy)) d->lazy_due_us = UINT64_MAX;
  uint64_t incarnation = d->host->incarnation;
  if (!list_empty(&jobs)) batch_run(d, &jobs);
  if (d->host->incarnation == incarnation && d->drive) write_arm(d);
}

static void write_arm(struct sim_drive *d) {
  struct sim *s = d->sim;
  uint64_t delay;
  if (!list_empty(&d->writes))
    delay = lane_delay(d, 2000);
  else if (!list_empty(&d->lazy))
    delay = lane_delay(d, 1) + (d->lazy_due_us > s->now_us ? d->lazy_due_us - s->now_us : 0);
  else
    return;
  if (d->write_event.heap_at) {
    if (d->write_event.due_us <= s->now_us + delay) return;
    sim_stop(s, &d->write_event);
  }
  sim_after(s, &d->write_event, d->host, delay, write_fire);
}

static void write_push(struct sim_drive *d, struct sim_flight *f) {
  if (f->req.verb == PEER_COMMIT) {
    if (list_empty(&d->lazy)) d->lazy_due_us = d->sim->now_us + sim_below(d->sim, LAZY_US);
    list_push_back(&d->lazy, &f->lane);
  } else {
    list_push_back(&d->writes, &f->lane);
  }
  write_arm(d);
}

void node_serve(struct sim_flight *f) {
  struct sim_drive *d = f->drive;
  if (!d->drive || drive_failed(d->drive)) {
    f->reply.err = ERR_DRIVE_FAILED;
    net_answer(f);
    return;
  }
  switch (f->req.verb) {
    case PEER_STAGE:
    case PEER_DROP:
      stage_push(d, f);
      return;
    case PEER_ACCEPT:
      if (needs_seal(&f->req))
        stage_push(d, f);
      else
        write_push(d, f);
      return;
    case PEER_PROMISE:
    case PEER_COMMIT:
    case PEER_DISCARD:
    case PEER_BUCKET:
      write_push(d, f);
      return;
    default:
      sim_after(d->sim, &f->arrive, d->host, lane_delay(d, 400), read_fire);
  }
}

void node_drop_stage(struct sim_drive *d, const struct id128 *data_id, unsigned slot) {
  struct peer_request req = {.verb = PEER_DROP, .slot = (uint8_t)slot, .data_id = *data_id};
  struct peer_reply reply;
  if (!d->drive) return;
  /* Behind what is queued: the last STAGE of the connection may be among it. */
  list_foreach_safe(it, &d->stages) {
    struct sim_flight *f = flight_of_lane(it);
    if (f->req.verb != PEER_STAGE || f->req.slot != slot || !id128_eq(&f->req.data_id, data_id))
      continue;
    list_remove(it);
    net_drop(f);
  }
  if (list_empty(&d->stages)) sim_stop(d->sim, &d->stage_event);
  sim_at = d->host;
  drive_stage(d->drive, &req, &reply);
  (void)drive_ended(d);
}

/* ---- drives and hosts ---- */

static void lane_drop(struct list *lane) {
  for (struct list *l; (l = list_pop_front(lane));) serve_no_more(flight_of_lane(l));
}

void drive_shut(struct sim_drive *d) {
  struct sim *s = d->sim;
  lane_drop(&d->stages);
  lane_drop(&d->writes);
  lane_drop(&d->lazy);
  sim_stop(s, &d->stage_event);
  sim_stop(s, &d->write_event);
  sim_stop(s, &d->housekeep_event);
  d->lazy_due_us = UINT64_MAX;
  struct drive *drive = TAKE(d->drive);
  if (!drive) return;
  drive_detach(drive);
}

void drive_format_in(struct sim_drive *d) {
  struct drive_identity id = {.epoch = PLACEMENT_EPOCH_FIRST};
  id.drive_id.bytes[0] = (uint8_t)(d->index + 1);
  id.cluster_id.bytes[0] = 1;
  struct store *store = disk_open(d->disk);
  SIM_CHECK(drive_format_sys(store, &id, "simulated", SLICE_LIT("table")) == 0);
  store->ops->close(store);
}

static void disk_replace(struct sim_drive *d, struct disk *by) {
  disk_free(d->disk);
  d->disk = by;
}

/* Every host has met a boot that is not in it. What nobody has met nobody can miss. */
static bool snapshot_is_old(const struct sim_drive *d) {
  if (!d->snapshot || !d->may_break || d->out) return false;
  for (unsigned i = 0; i < d->sim->host_count; i++)
    if (d->sim->hosts[i].boot_seen[d->index] <= d->snapshot_boot) return false;
  return true;
}

/* What happens to a disk while its host is down. */
static void drive_after_crash(struct sim_drive *d) {
  struct sim *s = d->sim;
  if (MUTANT(DISK_LIES) && sim_chance(s, 0.5)) disk_lose_rows(d->disk);
  if (MUTANT(AMNESIA) && sim_chance(s, 0.3)) {
    disk_replace(d, disk_new(s));
    drive_format_in(d);
  }
  /* An older state comes back; with it, half of the time, what the host itself remembered. */
  if (snapshot_is_old(d)) {
    SIM_TRACE(s, "d%u: a snapshot of boot %llu is restored", d->index,
              (unsigned long long)d->snapshot_boot);
    disk_replace(d, TAKE(d->snapshot));
    if (sim_chance(s, 0.5)) d->host->boot_seen[d->index] = d->host->nonce_seen[d->index] = 0;
    s->broken++;
  }
}

static void drive_start(struct sim_drive *d) {
  struct drive_options opt = {.inline_max_bytes = d->sim->inline_max,
                              .reserve_bytes = 1u << 20,
                              .trash_delay_ms = d->sim->trash_delay_ms,
                              .wall_ms = node_wall_ms};
  struct drive_error error = {{0}};
  if (d->out) return;
  sim_at = d->host;
  int err = drive_attach(&opt, disk_open(d->disk), &d->drive, &error);
  if (err < 0) {
    d->drive = NULL;
    if (d->disk->dead) return; /* stopped again in the middle of its start */
    SIM_TRACE(d->sim, "d%u does not come up: %s", d->index, err_name(err));
    if (!d->may_break) sim_fail(d->sim, "drive %u does not come up: %s", d->index, error.text);
    d->out = true;
    return;
  }
  d->boot = drive_identity_of(d->drive)->boot_counter;
  SIM_TRACE(d->sim, "d%u is up, boot %llu", d->index, (unsigned long long)d->boot);
  /* As cluster_check.c: the host itself remembers its drives. */
  if (d->boot <= d->host->boot_seen[d->index] && !MUTANT(OLD_SNAPSHOT) && !MUTANT(AMNESIA)) {
    SIM_TRACE(d->sim, "d%u is refused: its boot counter went back", d->index);
    drive_shut(d);
    d->out = true;
    return;
  }
  d->host->boot_seen[d->index] = d->boot;
  d->host->nonce_seen[d->index] = drive_identity_of(d->drive)->boot_nonce;
  housekeep_soon(d);
}

struct sim_gateway *gateway_new(struct sim_host *h) {
  struct sim *s = h->sim;
  struct sim_gateway *gw = calloc(1, sizeof *gw);
  SIM_CHECK(gw);
  gw->sim = s;
  gw->host = h;
  gw->id = s->gateway_count++;
  list_push_back(&s->gateways, &gw->link);
  sim_env_open(&gw->env, gw);
  gw->o = (struct objects){.env = &gw->env.env,
                           .map = s->layout->map,
                           .placement = s->layout->placement,
                           .inline_max_bytes = s->inline_max,
                           .peer_timeout_ms = 3000,
                           .buffer_wait_ms = 1000};
  memcpy(gw->o.codecs, s->layout->codecs, sizeof gw->o.codecs);
  SIM_CHECK(bucket_cache_new(&gw->o.buckets) == 0);
  net_gateway_open(gw);
  SIM_CHECK(object_sweep_start(&gw->o, &gw->sweep) == 0);
  SIM_TRACE(s, "gw%u starts at n%u", gw->id, h->index);
  return gw;
}

static void sweep_stopped(void *arg) {
  ((struct sim_gateway *)arg)->sweep_stopped = true;
}

void gateway_die(struct sim_gateway *gw) {
  if (gw->dead) return;
  SIM_TRACE(gw->sim, "gw%u dies", gw->id);
  gw->dead = true;
  net_gateway_dies(gw);
  client_gateway_died(gw);
  object_sweep_stop(TAKE(gw->sweep), sweep_stopped, gw);
}

void gateway_free(struct sim_gateway *gw) {
  struct sim *s = gw->sim;
  net_gateway_close(gw);
  if (gw->o.running || !list_empty(&gw->flights))
    sim_fail(s, "gateway %u leaves %u operations", gw->id, gw->o.running);
  sim_env_close(&gw->env);
  bucket_cache_free(TAKE(gw->o.buckets));
  list_remove(&gw->link);
  free(gw);
}

void host_start(struct sim_host *h) {
  struct sim *s = h->sim;
  SIM_CHECK(!h->up && !h->gateway);
  h->up = true;
  h->incarnation++;
  SIM_TRACE(s, "n%u starts", h->index);
  for (unsigned i = 0; i < s->drive_count && h->up; i++) {
    struct sim_drive *d = &s->drives[i];
    if (d->host != h) continue;
    drive_start(d);
    if (d->disk->dead) host_crash(h, sim_chance(s, 0.7), sim_between(s, 100, 5000) * SIM_MS);
  }
  if (h->up) h->gateway = gateway_new(h);
}

static void restart_fire(struct sim_event *e) {
  host_start(container_of(e, struct sim_host, restart));
}

void host_crash(struct sim_host *h, bool power, uint64_t down_us) {
  struct sim *s = h->sim;
  if (!h->up) return;
  SIM_TRACE(s, "n%u %s for %llu ms", h->index, power ? "loses power" : "is killed",
            (unsigned long long)(down_us / SIM_MS));
  s->crashes++;
  h->up = false;
  h->incarnation++;
  h->paused_us = 0;
  struct sim_gateway *gw = TAKE(h->gateway);
  if (gw) gateway_die(gw);
  for (unsigned i = 0; i < s->drive_count; i++) {
    struct sim_drive *d = &s->drives[i];
    if (d->host != h) continue;
    d->disk->dead = true; /* nothing of the end of the process reaches the disk */
    drive_shut(d);
    disk_crash(d->disk, power);
    drive_after_crash(d);
  }
  net_host_gone(h);
  sim_stop(s, &h->restart);
  if (down_us != UINT64_MAX) sim_after(s, &h->restart, NULL, down_us, restart_fire);
}
