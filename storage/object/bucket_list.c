/* bucket_list.c: the buckets in name order: a listing of the system pool's keys, then each row.
 *
 * A page of names is read BUCKET_LIST_READS_MAX rows at a time. Buckets that are being deleted or
 * vanished meanwhile are left out, and the next page fills their place. A row that cannot be read
 * makes the answer an error, never shorter. */
#include <errno.h>
#include <stdlib.h>

#include "config/err.h"
#include "storage/object/bucket_row.h"
#include "storage/object/key_read.h"

#define BUCKET_LIST_READS_MAX 16
#define BUCKET_LIST_LIMIT_MAX 1000

struct bucket_list;

struct listed {
  struct bucket_list *owner;
  struct bucket_info info; /* at first only the name */
  struct key_read *read;
  bool active;
};

struct bucket_list {
  struct objects *o;
  bucket_list_cb cb;
  void *arg;
  uint8_t from[KEY_BYTES_MAX], prefix[KEY_BYTES_MAX];
  size_t from_len, prefix_len;
  unsigned limit;
  struct bucket_info *found;
  unsigned found_count;
  struct listed *page;
  unsigned page_count, next, reading;
  bool listing, truncated;
  int err;
  struct object_list *list;
  struct env_timer soon;
};

static void blist_advance(struct bucket_list *l);

static void blist_report(struct bucket_list *l) {
  l->o->running--;
  bool ok = l->err == 0;
  l->cb(l->arg, l->err, ok ? l->found : NULL, ok ? l->found_count : 0, ok && l->truncated);
  free(l->found);
  free(l->page);
  free(l);
}

static void blist_read(void *arg, int err, const struct row *row) {
  struct listed *item = arg;
  struct bucket_list *l = item->owner;
  struct bucket_row bucket;
  item->read = NULL;
  l->reading--;
  if (err == 0) err = bucket_row_parse(l->o, slice_str(item->info.name), row, &bucket);
  item->active = err == 0 && bucket.info.state == BUCKET_ACTIVE;
  if (item->active) item->info = bucket.info;
  if (err < 0 && err != ERR_NO_SUCH_KEY && l->err == 0) l->err = err;
  blist_advance(l);
}

static void blist_listed(void *arg, const struct object_list_result *result) {
  struct bucket_list *l = arg;
  l->listing = false;
  l->list = NULL;
  l->err = result->err;
  l->truncated = result->truncated;
  l->page_count = l->next = 0;
  for (unsigned i = 0; i < result->count; i++) {
    struct slice name = result->items[i].key;
    memcpy(l->from, name.data, name.len);
    l->from_len = name.len;
    if (!bucket_name_fits(name)) continue;
    struct listed *item = &l->page[l->page_count++];
    *item = (struct listed){.owner = l};
    bucket_name_copy(item->info.name, name);
  }
  blist_advance(l);
}

static void blist_next_page(struct bucket_list *l) {
  struct bucket_info system = bucket_system();
  struct object_list_args args = {.bucket = &system,
                                  .prefix = slice_of(l->prefix, l->prefix_len),
                                  .from = slice_of(l->from, l->from_len),
                                  .limit = l->limit - l->found_count};
  l->err = object_list_start(l->o, &args, blist_listed, l, &l->list);
  l->listing = l->err == 0;
}

static void blist_read_rows(struct bucket_list *l) {
  while (l->err == 0 && l->next < l->page_count && l->reading < BUCKET_LIST_READS_MAX) {
    struct listed *item = &l->page[l->next++];
    l->err = key_read_start(l->o, MAP_POOL_SYSTEM, &bucket_system_uuid, slice_str(item->info.name),
                            blist_read, item, &item->read);
    l->reading += l->err == 0;
  }
}

static void blist_take_page(struct bucket_list *l) {
  for (unsigned i = 0; i < l->page_count; i++)
    if (l->page[i].active) l->found[l->found_count++] = l->page[i].info;
  l->page_count = l->next = 0;
}

static void blist_advance(struct bucket_list *l) {
  blist_read_rows(l);
  if (l->listing || l->reading > 0) return;
  blist_take_page(l);
  if (l->err == 0 && l->truncated && l->found_count < l->limit) {
    blist_next_page(l);
    if (l->err == 0) return;
  }
  blist_report(l);
}

static void blist_soon(struct env_timer *timer) {
  struct bucket_list *l = container_of(timer, struct bucket_list, soon);
  if (l->err == 0) blist_next_page(l);
  if (l->err < 0) blist_report(l);
}

void bucket_list(struct objects *o, struct slice from, struct slice prefix, unsigned limit,
                 bucket_list_cb cb, void *arg) {
  struct bucket_list *l = calloc(1, sizeof *l);
  if (!l) {
    cb(arg, -ENOMEM, NULL, 0, false); /* the one answer that cannot wait */
    return;
  }
  l->o = o;
  l->cb = cb;
  l->arg = arg;
  l->limit = limit;
  l->soon.fire = blist_soon;
  o->running++;
  if (limit == 0 || limit > BUCKET_LIST_LIMIT_MAX || from.len > sizeof l->from ||
      prefix.len > sizeof l->prefix) {
    l->err = ERR_INVALID;
  } else {
    if (from.len) memcpy(l->from, from.data, from.len);
    if (prefix.len) memcpy(l->prefix, prefix.data, prefix.len);
    l->from_len = from.len;
    l->prefix_len = prefix.len;
    l->found = calloc(limit, sizeof *l->found);
    l->page = calloc(limit, sizeof *l->page);
    if (!l->found || !l->page) l->err = -ENOMEM;
  }
  env_timer_start(o->env, &l->soon, 0);
}
