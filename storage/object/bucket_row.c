/* bucket_row.c: see bucket_row.h. */
#include "storage/object/bucket_row.h"

#include <assert.h>
#include <stdio.h>

#include "config/err.h"

const struct id128 bucket_system_uuid = {
    {'k', 'o', 'f', 'n', ' ', 'b', 'u', 'c', 'k', 'e', 't', ' ', 'n', 'a', 'm', 'e'}};

static const char *const state_names[] = {
    [BUCKET_ACTIVE] = "active", [BUCKET_DELETING] = "deleting", [BUCKET_DELETED] = "deleted"};

struct bucket_info bucket_system(void) {
  return (struct bucket_info){
      .name = "", .uuid = bucket_system_uuid, .pool = MAP_POOL_SYSTEM, .state = BUCKET_ACTIVE};
}

bool bucket_name_fits(struct slice name) {
  return name.len > 0 && name.len <= BUCKET_NAME_BYTES_MAX && !memchr(name.data, 0, name.len);
}

void bucket_name_copy(char to[BUCKET_NAME_BYTES_MAX + 1], struct slice name) {
  assert(bucket_name_fits(name));
  memcpy(to, name.data, name.len);
  to[name.len] = 0;
}

static bool parse_state(struct slice text, enum bucket_state *ret_state) {
  for (unsigned i = BUCKET_ACTIVE; i < ARRAY_LEN(state_names); i++) {
    if (!slice_eq(text, slice_str(state_names[i]))) continue;
    *ret_state = (enum bucket_state)i;
    return true;
  }
  return false;
}

static bool parse_decimal(struct slice text, uint64_t *ret_value) {
  uint64_t value = 0;
  if (text.len == 0) return false;
  for (size_t i = 0; i < text.len; i++) {
    if (text.data[i] < '0' || text.data[i] > '9') return false;
    if (__builtin_mul_overflow(value, 10, &value)) return false;
    if (__builtin_add_overflow(value, (uint64_t)(text.data[i] - '0'), &value)) return false;
  }
  *ret_value = value;
  return true;
}

int bucket_row_parse(const struct objects *o, struct slice name, const struct row *row,
                     struct bucket_row *ret_bucket) {
  struct bucket_row b = {.ver = row->ver};
  if (row->kind != ROW_PUT || !bucket_name_fits(name)) return ERR_CORRUPT;
  bucket_name_copy(b.info.name, name);
  int err = hex_decode(row_attr_find(row, "uuid"), b.info.uuid.bytes, sizeof b.info.uuid.bytes);
  if (err < 0) return ERR_CORRUPT;
  int pool = cluster_map_find_pool(o->map, row_attr_find(row, "pool"));
  if (pool < 0 || !parse_state(row_attr_find(row, "state"), &b.info.state)) return ERR_CORRUPT;
  b.info.pool = (unsigned)pool;
  if (!parse_decimal(row_attr_find(row, "created"), &b.info.created_ms)) return ERR_CORRUPT;
  struct slice owner = row_attr_find(row, "owner");
  if (owner.len >= sizeof b.info.owner || row->etag.len > ETAG_BYTES_MAX) return ERR_CORRUPT;
  if (owner.len) memcpy(b.info.owner, owner.data, owner.len);
  if (row->etag.len) memcpy(b.etag, row->etag.data, row->etag.len);
  b.revived = row_attr_find(row, "revived").data != NULL;
  *ret_bucket = b;
  return 0;
}

int bucket_write_start(struct objects *o, struct bucket_write *w, uint8_t kind,
                       const char *if_match, object_put_cb cb, void *arg) {
  struct bucket_info system = bucket_system();
  const struct bucket_info *info = &w->row.info;
  struct id128 unique;
  env_random(o->env, unique.bytes, sizeof unique.bytes);
  id128_hex(&unique, w->row.etag);
  id128_hex(&info->uuid, w->uuid);
  snprintf(w->created, sizeof w->created, "%llu", (unsigned long long)info->created_ms);
  unsigned count = 0;
  w->attrs[count++] = (struct attr){SLICE_LIT("uuid"), slice_str(w->uuid)};
  w->attrs[count++] = (struct attr){SLICE_LIT("pool"), slice_str(o->map->pools[info->pool].name)};
  w->attrs[count++] = (struct attr){SLICE_LIT("state"), slice_str(state_names[info->state])};
  w->attrs[count++] = (struct attr){SLICE_LIT("created"), slice_str(w->created)};
  w->attrs[count++] = (struct attr){SLICE_LIT("owner"), slice_str(info->owner)};
  if (w->row.revived) w->attrs[count++] = (struct attr){SLICE_LIT("revived"), SLICE_LIT("1")};
  struct object_put_args args = {.bucket = &system,
                                 .key = slice_str(info->name),
                                 .kind = kind,
                                 .etag = slice_str(w->row.etag)};
  if (kind == ROW_PUT) {
    args.attrs = w->attrs;
    args.attr_count = count;
  } else {
    args.etag = (struct slice){0};
  }
  if (if_match) {
    snprintf(w->if_match, sizeof w->if_match, "%s", if_match);
    args.conditions.if_match = slice_str(w->if_match);
  } else {
    args.conditions.if_none_match_any = true;
  }
  struct object_put *put;
  return object_put_start(o, &args, cb, arg, &put);
}
