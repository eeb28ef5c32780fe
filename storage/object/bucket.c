/* bucket.c: looking a bucket up, and making one.
 *
 * A bucket is a row of the system pool under its name; whatever decides about it is a conditional
 * write of that row. A lookup believes its own loop's last answer for a second, never an absence.
 * So a bucket whose name was another's just now is acknowledged a second later: until then a
 * gateway may mean the other, and would not find an object that was written to this one. */
#include <errno.h>
#include <stdlib.h>

#include "config/err.h"
#include "storage/object/bucket_cache.h"
#include "storage/object/bucket_delete.h"
#include "storage/object/bucket_push.h"
#include "storage/object/key_read.h"

#define BUCKET_CREATE_TRIES 4
#define BUCKET_BACKOFF_MS 40

/* ---- lookup ---- */

struct bucket_lookup {
  struct objects *o;
  char name[BUCKET_NAME_BYTES_MAX + 1];
  bool for_write;
  bucket_cb cb;
  void *arg;
  struct env_timer soon;
  struct key_read *read;
  uint64_t began_ms;
  int err; /* what `soon` reports */
  struct bucket_info info;
};

static void lookup_report(struct bucket_lookup *l, int err, const struct bucket_info *info) {
  l->o->running--;
  l->cb(l->arg, err, info);
  free(l);
}

static void lookup_soon(struct env_timer *timer) {
  struct bucket_lookup *l = container_of(timer, struct bucket_lookup, soon);
  lookup_report(l, l->err, l->err == 0 ? &l->info : NULL);
}

static void lookup_read(void *arg, int err, const struct row *row) {
  struct bucket_lookup *l = arg;
  struct bucket_row bucket;
  struct slice name = slice_str(l->name);
  if (err == 0) err = bucket_row_parse(l->o, name, row, &bucket);
  if (err == 0 && bucket.info.state == BUCKET_ACTIVE) {
    bucket_cache_store(l->o->buckets, &bucket.info, l->began_ms);
    if (bucket.revived) bucket_revive(l->o, &bucket);
    lookup_report(l, 0, &bucket.info);
    return;
  }
  if (err == 0 || err == ERR_NO_SUCH_KEY) {
    bucket_cache_drop(l->o->buckets, name);
    lookup_report(l, err == 0 ? ERR_BUCKET_DELETING : ERR_NO_SUCH_BUCKET, NULL);
    return;
  }
  bool known = !l->for_write && bucket_cache_find(l->o->buckets, name, env_now_ms(l->o->env),
                                                  BUCKET_CACHE_STALE_MS, &l->info);
  lookup_report(l, known ? 0 : err, known ? &l->info : NULL);
}

void bucket_lookup(struct objects *o, struct slice name, bool for_write, bucket_cb cb, void *arg) {
  struct bucket_lookup *l = calloc(1, sizeof *l);
  if (!l) {
    cb(arg, -ENOMEM, NULL); /* the one answer that cannot wait */
    return;
  }
  l->o = o;
  l->for_write = for_write;
  l->cb = cb;
  l->arg = arg;
  l->soon.fire = lookup_soon;
  l->began_ms = env_now_ms(o->env);
  o->running++;
  bool now = !bucket_name_fits(name);
  if (now) l->err = ERR_NO_SUCH_BUCKET;
  if (!now) {
    bucket_name_copy(l->name, name);
    now = bucket_cache_find(o->buckets, name, l->began_ms, BUCKET_CACHE_FRESH_MS, &l->info);
  }
  if (!now) {
    l->err =
        key_read_start(o, MAP_POOL_SYSTEM, &bucket_system_uuid, name, lookup_read, l, &l->read);
    now = l->err < 0;
  }
  if (now) env_timer_start(o->env, &l->soon, 0);
}

/* ---- create ---- */

struct bucket_create {
  struct objects *o;
  bucket_cb cb;
  void *arg;
  unsigned tries;
  bool unknown;   /* a write of ours may still take effect */
  bool successor; /* of a deleted bucket of that name */
  struct env_timer soon;
  int err;
  struct key_read *read;
  struct bucket_write write;
  struct bucket_info other; /* who has the name; at the end: what was made */
};

static void create_report(struct bucket_create *c, int err, const struct bucket_info *info) {
  if (err == 0) bucket_cache_store(c->o->buckets, info, env_now_ms(c->o->env));
  if (err == ERR_UNAVAILABLE && c->unknown) err = ERR_UNKNOWN_OUTCOME;
  c->o->running--;
  c->cb(c->arg, err, info);
  free(c);
}

static void create_rested(struct env_timer *timer) {
  struct bucket_create *c = container_of(timer, struct bucket_create, soon);
  create_report(c, 0, &c->other);
}

static void create_made(struct bucket_create *c, const struct bucket_info *info) {
  if (!c->successor) {
    create_report(c, 0, info);
    return;
  }
  c->other = *info;
  c->soon.fire = create_rested;
  env_timer_start(c->o->env, &c->soon, BUCKET_CACHE_FRESH_MS);
}

static void create_look(struct bucket_create *c);

static void create_written(void *arg, const struct object_put_result *result) {
  struct bucket_create *c = arg;
  int err = result->err;
  c->unknown = c->unknown || err == ERR_UNKNOWN_OUTCOME;
  c->successor = c->successor || result->over_marker;
  if (err == ERR_PRECONDITION || err == ERR_CONFLICT || err == ERR_UNKNOWN_OUTCOME) {
    create_look(c); /* the register tells who has the name */
    return;
  }
  if (err == 0)
    create_made(c, &c->write.row.info);
  else
    create_report(c, err, NULL);
}

/* The rest of a delete that a gateway left behind. */
static void create_cleared(void *arg, int err, const struct bucket_info *info) {
  struct bucket_create *c = arg;
  if (err == ERR_BUCKET_NOT_EMPTY)
    create_report(c, ERR_BUCKET_EXISTS, &c->other);
  else if (err == 0 || err == ERR_NO_SUCH_BUCKET || err == ERR_CONFLICT)
    create_look(c);
  else
    create_report(c, err, NULL);
}

static void create_read(void *arg, int err, const struct row *row) {
  struct bucket_create *c = arg;
  struct slice name = slice_str(c->write.row.info.name);
  struct bucket_row bucket;
  if (err == ERR_NO_SUCH_KEY) {
    err = bucket_write_start(c->o, &c->write, ROW_PUT, NULL, create_written, c);
    if (err < 0) create_report(c, err, NULL);
    return;
  }
  if (err == 0) err = bucket_row_parse(c->o, name, row, &bucket);
  if (err < 0) {
    create_report(c, err, NULL);
    return;
  }
  if (id128_eq(&bucket.info.uuid, &c->write.row.info.uuid)) {
    create_made(c, &bucket.info); /* our own write, whose answer was lost */
    return;
  }
  c->other = bucket.info;
  if (bucket.info.state == BUCKET_DELETING) {
    bucket_delete_resume(c->o, name, create_cleared, c);
    return;
  }
  create_report(c, ERR_BUCKET_EXISTS, &c->other);
}

static void create_soon(struct env_timer *timer) {
  struct bucket_create *c = container_of(timer, struct bucket_create, soon);
  int err = c->err;
  if (err == 0)
    err = key_read_start(c->o, MAP_POOL_SYSTEM, &bucket_system_uuid,
                         slice_str(c->write.row.info.name), create_read, c, &c->read);
  if (err < 0) create_report(c, err, NULL);
}

/* Later, for this may run inside the start; and a little apart from whoever we raced with. */
static void create_look(struct bucket_create *c) {
  uint64_t delay_ms = 0;
  if (c->tries > 0) env_random(c->o->env, &delay_ms, sizeof delay_ms);
  if (c->err == 0 && c->tries++ == BUCKET_CREATE_TRIES) c->err = ERR_CONFLICT;
  env_timer_start(c->o->env, &c->soon, delay_ms % BUCKET_BACKOFF_MS);
}

void bucket_create(struct objects *o, struct slice name, unsigned pool, struct slice owner,
                   bucket_cb cb, void *arg) {
  struct bucket_create *c = calloc(1, sizeof *c);
  if (!c) {
    cb(arg, -ENOMEM, NULL);
    return;
  }
  c->o = o;
  c->cb = cb;
  c->arg = arg;
  c->soon.fire = create_soon;
  o->running++;
  struct bucket_info *info = &c->write.row.info;
  bool fits = bucket_name_fits(name) && owner.len < sizeof info->owner &&
              pool < o->map->pool_count && pool != MAP_POOL_SYSTEM;
  c->err = fits ? 0 : ERR_INVALID;
  if (fits) {
    bucket_name_copy(info->name, name);
    if (owner.len) memcpy(info->owner, owner.data, owner.len);
    info->pool = pool;
    info->state = BUCKET_ACTIVE;
    info->created_ms = env_wall_ms(o->env);
    env_random(o->env, info->uuid.bytes, sizeof info->uuid.bytes);
  }
  create_look(c);
}
