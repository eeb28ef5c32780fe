/* cluster.c: see cluster.h. Opening, formatting and closing this host's drives. */
#include "storage/net/cluster.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "config/err.h"
#include "config/log.h"
#include "storage/net/cluster_impl.h"
#include "storage/net/env_uv.h"

/* ---- the first start of this host's own drives ---- */

static int id_random(struct id128 *ret_id) {
  do {
    if (getrandom(ret_id->bytes, sizeof ret_id->bytes, 0) != (ssize_t)sizeof ret_id->bytes)
      return -EIO;
  } while (id128_is_zero(ret_id)); /* zero means none */
  return 0;
}

int cluster_record_init(struct cluster *c, const struct id128 *id, struct drive_error *e) {
  struct state *s = state_lock(c->dir);
  int err = state_set_canonical(s, c->canonical);
  if (err == 0) {
    s->init_id = *id;
    snprintf(s->cluster_name, sizeof s->cluster_name, "%s", c->map->name);
    snprintf(s->host_id, sizeof s->host_id, "%s", c->map->hosts[c->map->self].id);
  }
  state_unlock(c->dir);
  if (err == 0) err = state_save(c->dir);
  if (err < 0)
    return error_words(e, err, "cannot record the first start in state directory %s: %s",
                       c->settings->server.state_dir, err_words(err));
  return 0;
}

static int format_drive(struct own_drive *o, const struct id128 *cluster_id, struct slice table,
                        struct drive_error *e) {
  struct cluster *c = o->cluster;
  struct drive_identity id = {.cluster_id = *cluster_id, .epoch = PLACEMENT_EPOCH_FIRST};
  int err = id_random(&id.drive_id);
  if (err < 0) return error_words(e, err, "no randomness for a drive id: %s", err_words(err));
  snprintf(id.cluster_name, sizeof id.cluster_name, "%s", c->map->name);
  snprintf(id.host_id, sizeof id.host_id, "%s", c->map->hosts[c->map->self].id);
  snprintf(id.drive_name, sizeof id.drive_name, "%s", own_name(o));
  memcpy(id.map_digest, c->map_digest, SHA256_LEN);
  placement_digest(table, id.table_digest);
  err = drive_format(own_path(o), &id, c->canonical, table, c->settings->drive.index_map_bytes, e);
  if (err < 0) {
    if (!e->text[0])
      error_words(e, err, "cannot format drive directory %s: %s", own_path(o), err_words(err));
    return err;
  }
  o->state = DRIVE_FORMATTED;
  o->identity = id;
  log_info("cluster", "formatted %s as drive %s", own_path(o), own_name(o));
  return 0;
}

static int format_all(struct cluster *c, const struct id128 *id, struct drive_error *e) {
  struct placement *placement = NULL;
  uint8_t *table = NULL;
  size_t table_len = 0;
  int err = placement_build(c->map, &placement);
  if (err == 0) err = placement_encode(placement, c->map, &table, &table_len);
  placement_free(placement);
  if (err < 0) return error_words(e, err, "cannot build the slot table: %s", err_words(err));
  for (unsigned i = 0; err == 0 && i < c->own_count; i++)
    if (c->own[i].state == DRIVE_EMPTY)
      err = format_drive(&c->own[i], id, slice_of(table, table_len), e);
  free(table);
  return err;
}

int cluster_format_own(struct cluster *c, struct drive_error *e) {
  struct state *s = state_lock(c->dir);
  struct id128 id = s->init_id;
  state_unlock(c->dir);
  int err = format_all(c, &id, e);
  if (err < 0) return err;
  s = state_lock(c->dir);
  s->cluster_id = id;
  s->init_id = (struct id128){{0}};
  /* The coordinator formats last: then no host's drives are empty any more. */
  s->initialising = c->map->self != COORDINATOR_HOST;
  state_unlock(c->dir);
  err = state_save(c->dir);
  if (err < 0)
    return error_words(e, err, "cannot record the first start in state directory %s: %s",
                       c->settings->server.state_dir, err_words(err));
  char hex[ID128_HEX_LEN + 1];
  id128_hex(&id, hex);
  log_info("cluster", "cluster %s is initialised on this host, id %s", c->map->name, hex);
  return 0;
}

/* ---- into service ---- */

struct open_check {
  struct own_drive *o;
  struct drive_error *e;
  int err;
};

static int open_check(void *arg, const struct drive *d) {
  struct open_check *check = arg;
  check->err = cluster_check_open(check->o, d, check->e);
  return check->err;
}

static void say_failed(struct own_drive *o, const char *why) {
  error_words(&o->trouble, 0,
              "drive directory %s (%s) was taken out of service: %s. It comes back after `kofn "
              "drive check %s` or `kofn drive replace %s` (from a later version on)",
              own_path(o), own_name(o), why, own_name(o), own_name(o));
}

/* The mark that outlives this process. */
static void record_failed(struct own_drive *o, const char *why) {
  struct cluster *c = o->cluster;
  struct state *s = state_lock(c->dir);
  struct state_drive *known = state_drive(s, own_name(o), true);
  if (known) snprintf(known->failed, sizeof known->failed, "%s", why[0] ? why : "an I/O error");
  state_unlock(c->dir);
  int err = state_save(c->dir); /* has logged; the drive stays out of service either way */
  (void)err;
}

static int open_drive(struct own_drive *o, struct drive_error *e) {
  struct cluster *c = o->cluster;
  struct state *s = state_lock(c->dir);
  const struct state_drive *known = state_drive(s, own_name(o), false);
  if (known && known->failed[0]) say_failed(o, known->failed);
  state_unlock(c->dir);
  if (o->trouble.text[0]) return 0;
  struct open_check check = {o, e, 0};
  struct drive_options opt = {
      .path = own_path(o),
      .index_map_bytes = c->settings->drive.index_map_bytes,
      .reserve_bytes = c->settings->drive.reserve_bytes,
      .inline_max_bytes = c->settings->drive.inline_max_bytes,
      .trash_delay_ms = c->settings->drive.trash_delay_ms,
      .wall_ms = wall_clock_ms,
      .check = open_check,
      .check_arg = &check,
  };
  struct drive_error why = {""};
  int err = drive_open(&opt, &o->open, &why);
  if (check.err < 0) return check.err; /* not the drive that it should be */
  if (err < 0 && !why.text[0])
    error_words(&why, err, "cannot open drive directory %s: %s", own_path(o), err_words(err));
  if (err == ERR_BUSY) { /* two hosts on one drive: an operator's mistake */
    *e = why;
    return err;
  }
  if (err == ERR_DRIVE_FAILED) {
    size_t path_len = strlen(own_path(o)); /* the sentence names it anyway */
    bool prefixed = strncmp(why.text, own_path(o), path_len) == 0 && why.text[path_len] == ':';
    const char *reason = prefixed ? why.text + path_len + 2 : why.text;
    record_failed(o, reason);
    say_failed(o, reason);
  } else if (err < 0) {
    o->trouble = why;
  }
  return 0;
}

/* Durable before the first hello: what peers will remember, we must not forget. */
static int remember_drives(struct cluster *c, struct drive_error *e) {
  int err = 0;
  struct state *s = state_lock(c->dir);
  /* Formatted, but stopped before that was recorded. */
  if (!id128_is_zero(&s->init_id)) s->initialising = c->map->self != COORDINATOR_HOST;
  s->cluster_id = c->id;
  s->init_id = (struct id128){{0}};
  snprintf(s->cluster_name, sizeof s->cluster_name, "%s", c->map->name);
  snprintf(s->host_id, sizeof s->host_id, "%s", c->map->hosts[c->map->self].id);
  if (!s->canonical) err = state_set_canonical(s, c->canonical);
  for (unsigned i = 0; err == 0 && i < c->own_count; i++) {
    struct own_drive *o = &c->own[i];
    if (!o->open) continue;
    struct state_drive *d = state_drive(s, own_name(o), true);
    if (!d) {
      err = -ENOMEM;
      break;
    }
    o->identity = *drive_identity_of(o->open);
    d->id = o->identity.drive_id;
    d->boot_counter = o->identity.boot_counter;
    d->boot_nonce = o->identity.boot_nonce;
  }
  state_unlock(c->dir);
  if (err == 0) err = state_save(c->dir);
  if (err < 0)
    return error_words(e, err, "cannot record the boot counters in state directory %s: %s",
                       c->settings->server.state_dir, err_words(err));
  return 0;
}

/* On a lane thread, once. */
static void drive_went(void *arg, struct drive *d) {
  struct own_drive *o = arg;
  log_error("drive", "%s (%s) is out of service: %s", own_name(o), own_path(o), drive_failure(d));
  record_failed(o, drive_failure(d));
}

static int start_lanes(struct cluster *c, struct drive_error *e) {
  for (unsigned i = 0; i < c->own_count; i++) {
    struct own_drive *o = &c->own[i];
    if (!o->open) continue;
    int err =
        lanes_start(o->open, MAX(c->settings->drive.reader_threads, 1u), drive_went, o, &o->lanes);
    if (err < 0)
      return error_words(e, err, "cannot start the threads of drive %s: %s", own_name(o),
                         err_words(err));
    o->open = NULL;
  }
  return 0;
}

int cluster_serve(struct cluster *c, struct drive_error *e) {
  unsigned usable = 0;
  const struct own_drive *troubled = NULL;
  for (unsigned i = 0; i < c->own_count; i++) {
    struct own_drive *o = &c->own[i];
    if (!o->trouble.text[0]) {
      int err = open_drive(o, e);
      if (err < 0) return err;
    }
    if (o->open) {
      usable++;
    } else {
      troubled = o;
    }
  }
  if (usable == 0) {
    if (troubled) *e = troubled->trouble;
    return ERR_CONFIG;
  }
  for (unsigned i = 0; i < c->own_count; i++) {
    struct own_drive *o = &c->own[i];
    if (o->open) c->id = drive_identity_of(o->open)->cluster_id;
    if (o->trouble.text[0])
      log_error("cluster", "starting without %s: %s", own_name(o), o->trouble.text);
  }
  int err = remember_drives(c, e);
  if (err == 0) err = start_lanes(c, e);
  if (err < 0) return err;
  state_lock(c->dir);
  c->boot = BOOT_FORMATTED;
  state_unlock(c->dir);
  return 0;
}

int cluster_first_start(struct cluster *c, const int *stop, struct drive_error *ret_error) {
  int err = 0;
  struct state *s = state_lock(c->dir);
  struct id128 id = s->init_id;
  state_unlock(c->dir);
  if (c->map->host_count > 1) {
    err = bootstrap_run(c, stop, ret_error);
  } else {
    if (id128_is_zero(&id)) {
      err = id_random(&id);
      if (err < 0) return error_words(ret_error, err, "no randomness: %s", err_words(err));
      err = cluster_record_init(c, &id, ret_error);
    }
    if (err == 0) err = cluster_format_own(c, ret_error);
  }
  return err < 0 ? err : cluster_serve(c, ret_error);
}

/* ---- open and close ---- */

static int cluster_new(const struct settings *s, const struct cluster_map *map,
                       struct cluster **ret_cluster, struct drive_error *e) {
  const struct map_host *self = &map->hosts[map->self];
  struct cluster *c = calloc(1, sizeof *c);
  if (c) {
    c->settings = s;
    c->map = map;
    c->own_count = self->drive_count;
    c->canonical = cluster_map_canonical(map);
    c->own = calloc(MAX(self->drive_count, 1), sizeof *c->own);
  }
  if (!c || !c->canonical || !c->own) {
    cluster_close(c);
    return error_words(e, -ENOMEM, "out of memory");
  }
  for (unsigned i = 0; i < c->own_count; i++) {
    c->own[i].cluster = c;
    c->own[i].drive = (uint16_t)(self->drive_first + i);
  }
  map_digest(c->canonical, c->map_digest);
  cluster_policy_init(c);
  *ret_cluster = c;
  return 0;
}

int cluster_open(const struct settings *s, const struct cluster_map *map,
                 struct cluster **ret_cluster, struct drive_error *ret_error) {
  struct cluster *c = NULL;
  bool first_start = false;
  ret_error->text[0] = 0;
  int err = cluster_new(s, map, &c, ret_error);
  if (err < 0) return err;
  if (!s->server.state_dir) err = error_words(ret_error, ERR_CONFIG, "server.state_dir is not set");
  if (err == 0) err = state_dir_open(s->server.state_dir, &c->dir, ret_error);
  if (err == 0) err = cluster_check(c, &first_start, ret_error);
  if (err == 0 && !first_start) err = cluster_serve(c, ret_error);
  if (err < 0) {
    cluster_close(c);
    return err;
  }
  *ret_cluster = c;
  return 0;
}

void cluster_close(struct cluster *c) {
  if (!c) return;
  for (unsigned i = 0; c->own && i < c->own_count; i++) {
    if (c->own[i].lanes) lanes_stop(c->own[i].lanes);
    struct drive *unserved = c->own[i].open;
    if (!unserved) continue;
    drive_finish(unserved);
    if (drive_failed(unserved)) drive_went(&c->own[i], unserved);
    drive_close(unserved);
  }
  state_dir_close(c->dir);
  placement_free(c->placement);
  free(c->own);
  free(c->canonical);
  free(c);
}

/* ---- what others ask ---- */

bool cluster_ready(const struct cluster *c) {
  return c->boot == BOOT_FORMATTED;
}
const struct placement *cluster_placement(const struct cluster *c) {
  return c->placement;
}
struct hello_policy *cluster_policy(struct cluster *c) {
  return &c->policy;
}
const struct id128 *cluster_id(const struct cluster *c) {
  return &c->id;
}
bool cluster_drives_share_disk(const struct cluster *c) {
  return c->share_disk;
}

static struct own_drive *own_find(struct cluster *c, uint16_t drive) {
  for (unsigned i = 0; i < c->own_count; i++)
    if (c->own[i].drive == drive) return &c->own[i];
  return NULL;
}

struct drive_lanes *cluster_lanes(struct cluster *c, uint16_t drive) {
  struct own_drive *o = own_find(c, drive);
  return o ? o->lanes : NULL;
}

const char *cluster_drive_trouble(struct cluster *c, uint16_t drive) {
  struct own_drive *o = own_find(c, drive);
  if (!o) return "";
  return o->lanes ? drive_failure(lanes_drive(o->lanes)) : o->trouble.text;
}
