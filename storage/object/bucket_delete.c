/* bucket_delete.c: ACTIVE -> DELETING -> gone, or back (PROTOCOL.md 12).
 *
 *   read -> [ACTIVE: look if empty -> CAS to DELETING] -> push DELETING to R of every partition
 *        -> look again -> empty: CAS to a tombstone
 *                      -> else:  CAS to ACTIVE, marked revived -> push ACTIVE
 *
 * The first look spares a bucket with objects in it, and settles keys in doubt while that is still
 * possible: once R drives refuse ACCEPT and PROMISE nothing of the bucket can be settled. The
 * second look counts: after the push no W drives can accept a new object. It asks those drives
 * alone that refuse by now: another that has no row of a key may accept one right after it was
 * asked, and complete a write that the refusing ones had accepted before. The register is changed
 * before the drives are told, and always by compare-and-swap, so of two gateways that finish one
 * delete in different ways only one prevails; the other reads again. */
#include "storage/object/bucket_delete.h"

#include <errno.h>
#include <stdlib.h>

#include "config/err.h"
#include "storage/object/bucket_cache.h"
#include "storage/object/bucket_push.h"
#include "storage/object/key_read.h"

#define BUCKET_DELETE_TRIES 6
#define BUCKET_BACKOFF_MS 40

struct bucket_delete {
  struct objects *o;
  char name[BUCKET_NAME_BYTES_MAX + 1];
  bucket_cb cb;
  void *arg;
  bool resume_only;
  bool marked;   /* `row` is DELETING */
  bool was_ours; /* we saw row.info.uuid in DELETING: its absence is our success */
  unsigned tries;
  int verdict; /* what is reported after the way back */
  int err;
  struct bucket_row row;
  struct bucket_write write;
  struct key_read *read;
  struct object_list *list;
  struct env_timer soon;
};

static void delete_report(struct bucket_delete *d, int err) {
  bucket_cache_drop(d->o->buckets, slice_str(d->name));
  d->o->running--;
  d->cb(d->arg, err, NULL);
  free(d);
}

static void delete_look(struct bucket_delete *d);

/* Another gateway was quicker, or nobody knows whether our write took effect: the register tells.
 */
static void delete_lost(struct bucket_delete *d, int err) {
  if (err == ERR_PRECONDITION || err == ERR_NO_SUCH_KEY || err == ERR_CONFLICT ||
      err == ERR_UNKNOWN_OUTCOME)
    delete_look(d);
  else
    delete_report(d, err == ERR_BUCKET_DELETING ? ERR_CONFLICT : ERR_UNAVAILABLE);
}

static void delete_revive_pushed(void *arg, int err, const bool *have) {
  struct bucket_delete *d = arg;
  (void)err;
  (void)have;
  delete_report(d, d->verdict);
}

static void delete_revived(void *arg, const struct object_put_result *result) {
  struct bucket_delete *d = arg;
  if (result->err < 0) {
    delete_lost(d, result->err);
    return;
  }
  d->row = d->write.row;
  d->row.ver = result->ver;
  unsigned need = d->o->map->pools[d->row.info.pool].w;
  if (bucket_push_start(d->o, &d->row, need, delete_revive_pushed, d) < 0)
    delete_report(d, d->verdict);
}

static void delete_revive(struct bucket_delete *d, int verdict) {
  d->verdict = verdict;
  d->write.row = d->row;
  d->write.row.info.state = BUCKET_ACTIVE;
  d->write.row.revived = true;
  if (bucket_write_start(d->o, &d->write, ROW_PUT, d->row.etag, delete_revived, d) < 0)
    delete_report(d, ERR_UNAVAILABLE);
}

static void delete_removed(void *arg, const struct object_put_result *result) {
  struct bucket_delete *d = arg;
  if (result->err < 0)
    delete_lost(d, result->err);
  else
    delete_report(d, 0);
}

static void delete_remove(struct bucket_delete *d) {
  d->write.row = d->row;
  if (bucket_write_start(d->o, &d->write, ROW_TOMB, d->row.etag, delete_removed, d) < 0)
    delete_report(d, ERR_UNAVAILABLE);
}

static void delete_look_inside(struct bucket_delete *d, const bool *refuse);

static void delete_pushed(void *arg, int err, const bool *have) {
  struct bucket_delete *d = arg;
  if (err == 0)
    delete_look_inside(d, have);
  else if (err == ERR_CONFLICT)
    delete_look(d);
  else
    delete_revive(d, ERR_UNAVAILABLE);
}

static void delete_push(struct bucket_delete *d) {
  d->marked = d->was_ours = true;
  unsigned need = d->o->map->pools[d->row.info.pool].r;
  if (bucket_push_start(d->o, &d->row, need, delete_pushed, d) < 0)
    delete_report(d, ERR_UNAVAILABLE);
}

static void delete_marked(void *arg, const struct object_put_result *result) {
  struct bucket_delete *d = arg;
  if (result->err < 0) {
    delete_lost(d, result->err);
    return;
  }
  d->row = d->write.row;
  d->row.ver = result->ver;
  delete_push(d);
}

static void delete_mark(struct bucket_delete *d) {
  d->write.row = d->row;
  d->write.row.info.state = BUCKET_DELETING;
  d->write.row.revived = false;
  if (bucket_write_start(d->o, &d->write, ROW_PUT, d->row.etag, delete_marked, d) < 0)
    delete_report(d, ERR_UNAVAILABLE);
}

static void delete_listed(void *arg, const struct object_list_result *result) {
  struct bucket_delete *d = arg;
  int err = result->err < 0 ? ERR_UNAVAILABLE : result->count > 0 ? ERR_BUCKET_NOT_EMPTY : 0;
  d->list = NULL;
  if (err == 0 && d->marked)
    delete_remove(d);
  else if (err == 0)
    delete_mark(d);
  else if (d->marked)
    delete_revive(d, err);
  else
    delete_report(d, err);
}

static void delete_look_inside(struct bucket_delete *d, const bool *refuse) {
  struct object_list_args args = {.bucket = &d->row.info, .limit = 1, .frozen = refuse};
  if (object_list_start(d->o, &args, delete_listed, d, &d->list) < 0)
    delete_report(d, ERR_UNAVAILABLE);
}

static void delete_read(void *arg, int err, const struct row *row) {
  struct bucket_delete *d = arg;
  struct bucket_row found;
  if (err == 0) err = bucket_row_parse(d->o, slice_str(d->name), row, &found);
  if (err == ERR_NO_SUCH_KEY) {
    delete_report(d, d->was_ours ? 0 : ERR_NO_SUCH_BUCKET);
    return;
  }
  if (err < 0) {
    delete_report(d, ERR_UNAVAILABLE);
    return;
  }
  if (d->was_ours && !id128_eq(&found.info.uuid, &d->row.info.uuid)) {
    delete_report(d, 0); /* gone, and the name is taken again */
    return;
  }
  bool active = found.info.state == BUCKET_ACTIVE;
  if (active && (d->resume_only || d->was_ours)) {
    delete_report(d, ERR_CONFLICT);
    return;
  }
  d->row = found;
  d->marked = false;
  if (active)
    delete_look_inside(d, NULL);
  else
    delete_push(d);
}

static void delete_soon(struct env_timer *timer) {
  struct bucket_delete *d = container_of(timer, struct bucket_delete, soon);
  int err = d->err;
  if (err == 0)
    err = key_read_start(d->o, MAP_POOL_SYSTEM, &bucket_system_uuid, slice_str(d->name),
                         delete_read, d, &d->read);
  if (err < 0) delete_report(d, err);
}

/* Later, for this may run inside the start; and a little apart from whoever we raced with. */
static void delete_look(struct bucket_delete *d) {
  uint64_t delay_ms = 0;
  if (d->tries > 0) env_random(d->o->env, &delay_ms, sizeof delay_ms);
  if (d->err == 0 && d->tries++ == BUCKET_DELETE_TRIES) d->err = ERR_CONFLICT;
  env_timer_start(d->o->env, &d->soon, delay_ms % BUCKET_BACKOFF_MS);
}

static void delete_start(struct objects *o, struct slice name, bool resume_only, bucket_cb cb,
                         void *arg) {
  struct bucket_delete *d = calloc(1, sizeof *d);
  if (!d) {
    cb(arg, -ENOMEM, NULL); /* the one answer that cannot wait */
    return;
  }
  d->o = o;
  d->cb = cb;
  d->arg = arg;
  d->resume_only = resume_only;
  d->soon.fire = delete_soon;
  d->err = bucket_name_fits(name) ? 0 : ERR_NO_SUCH_BUCKET;
  if (d->err == 0) bucket_name_copy(d->name, name);
  o->running++;
  delete_look(d);
}

void bucket_delete(struct objects *o, struct slice name, bucket_cb cb, void *arg) {
  delete_start(o, name, false, cb, arg);
}

void bucket_delete_resume(struct objects *o, struct slice name, bucket_cb cb, void *arg) {
  delete_start(o, name, true, cb, arg);
}
