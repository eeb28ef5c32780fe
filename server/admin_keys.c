/* admin_keys.c: pages about keys: the heal queue of the whole cluster, and where one key lies.
 *
 * Heal: the queues of all drives in sight are read one after another, page by page, and merged: the
 * same version of a key is in the queue of every drive that heard of the loss. Drives that do not
 * answer are named in the answer, so that an empty list is not taken for a healthy cluster. */
#include <stdio.h>
#include <stdlib.h>

#include "server/admin_op.h"

#define HEAL_PAGE 500
#define HEAL_CURSOR_BYTES_MAX 4096

struct heal_op {
  struct worker *worker;
  struct http_request *req;
  json_t *entries; /* "bucket uuid hex/key hex" -> entry */
  json_t *silent;  /* names of drives that did not answer */
  json_t *buckets; /* uuid hex -> name */
  char after[64];  /* bucket_list cursor */
  unsigned drive;
  uint8_t cursor[HEAL_CURSOR_BYTES_MAX];
  size_t cursor_len;
  bool truncated;
  struct peer_call call;
};

static void heal_advance(struct heal_op *op);

static void heal_finish(struct heal_op *op) {
  json_t *list = json_array();
  const char *id;
  json_t *entry;
  json_object_foreach(op->entries, id, entry) {
    const char *uuid = json_string_value(json_object_get(entry, "bucket_uuid"));
    const char *name = json_string_value(json_object_get(op->buckets, uuid));
    json_object_set_new(entry, "bucket", json_string(name ? name : ""));
    json_array_append(list, entry);
  }
  json_t *doc = json_pack("{s:o, s:O, s:b}", "entries", list, "drives_not_heard", op->silent,
                          "truncated", (int)op->truncated);
  json_decref(op->entries);
  json_decref(op->silent);
  json_decref(op->buckets);
  admin_answer_json(op->req, 200, doc);
  free(op);
}

static void heal_buckets(void *arg, int err, const struct bucket_info *buckets, unsigned count,
                         bool truncated) {
  struct heal_op *op = arg;
  char uuid[ID128_HEX_LEN + 1];
  for (unsigned i = 0; err == 0 && i < count; i++) {
    id128_hex(&buckets[i].uuid, uuid);
    json_object_set_new(op->buckets, uuid, json_string(buckets[i].name));
    memcpy(op->after, buckets[i].name, sizeof op->after);
  }
  if (err == 0 && truncated && count > 0)
    bucket_list(&op->worker->objects, slice_str(op->after), (struct slice){NULL, 0}, 1000,
                heal_buckets, op);
  else
    heal_finish(op); /* names are a help: without them the uuids stand */
}

static json_t *heal_entry_new(const struct heal_op *op, const struct peer_key_entry *e,
                              const char *uuid, const char *hex, const char *ver) {
  const struct objects *o = &op->worker->objects;
  bool system = id128_eq(&e->bucket, &bucket_system_uuid);
  json_t *key = json_stringn((const char *)e->key.data, e->key.len);
  if (!key) key = json_string("");
  return json_pack("{s:s, s:o, s:s, s:s, s:s, s:i, s:s, s:o}", "bucket_uuid", uuid, "key", key,
                   "key_hex", hex, "version", ver, "pool", o->map->pools[e->pool].name, "partition",
                   e->partition, "kind", system ? "bucket" : "object", "slots", json_array());
}

static void heal_entry_slots(const struct heal_op *op, const struct peer_key_entry *e,
                             json_t *slots) {
  const struct objects *o = &op->worker->objects;
  const uint16_t *drives = placement_slots(o->placement, e->pool, e->partition);
  for (unsigned i = 0; i < o->map->pools[e->pool].n; i++) {
    bool known = false;
    if (!(e->missing & 1u << i)) continue;
    for (size_t j = 0; j < json_array_size(slots); j++)
      known |=
          json_integer_value(json_object_get(json_array_get(slots, j), "slot")) == (json_int_t)i;
    if (!known)
      json_array_append_new(
          slots, json_pack("{s:i, s:s}", "slot", (int)i, "drive", o->map->drives[drives[i]].name));
  }
}

/* A key is there once, with its newest version in any queue: a drive that was away when the key was
 * written again still has the older one in its own. */
static void heal_entry(struct heal_op *op, const struct peer_key_entry *e) {
  char uuid[ID128_HEX_LEN + 1], id[ID128_HEX_LEN + 2 * KEY_BYTES_MAX + 2],
      hex[2 * KEY_BYTES_MAX + 1], ver[40];
  const struct objects *o = &op->worker->objects;
  if (e->key.len > KEY_BYTES_MAX || e->pool >= o->map->pool_count ||
      e->partition >= PARTITION_COUNT)
    return;
  id128_hex(&e->bucket, uuid);
  hex_encode(e->key.data, e->key.len, hex);
  snprintf(id, sizeof id, "%s/%s", uuid, hex);
  snprintf(ver, sizeof ver, "%016llx-%016llx", (unsigned long long)e->ver.hlc,
           (unsigned long long)e->ver.nonce);
  json_t *entry = json_object_get(op->entries, id);
  int newer = entry ? strcmp(ver, json_string_value(json_object_get(entry, "version"))) : 1;
  if (newer < 0) return;
  if (newer > 0) {
    if (!entry && json_object_size(op->entries) >= ADMIN_HEAL_ENTRIES_MAX) {
      op->truncated = true;
      return;
    }
    entry = heal_entry_new(op, e, uuid, hex, ver);
    json_object_set_new(op->entries, id, entry);
  }
  heal_entry_slots(op, e, json_object_get(entry, "slots"));
}

static void heal_page(struct peer_call *call) {
  struct heal_op *op = container_of(call, struct heal_op, call);
  struct byte_reader r = byte_reader_of(slice_of(call->reply.body, call->reply.body_len));
  struct peer_key_entry e;
  int err = call->reply.err, more = 0;
  struct slice cursor = {NULL, 0};
  while (err == 0 && (more = peer_keys_next(&r, &e)) == 1) heal_entry(op, &e);
  if (err == 0 && more < 0) err = more;
  if (err == 0) cursor = peer_keys_cursor(&r);
  if (err < 0 || cursor.len > sizeof op->cursor)
    json_array_append_new(op->silent, json_string(op->worker->objects.map->drives[op->drive].name));
  op->cursor_len = 0;
  if (err == 0 && cursor.len > 0 && cursor.len <= sizeof op->cursor) {
    memcpy(op->cursor, cursor.data, cursor.len);
    op->cursor_len = cursor.len;
  }
  if (op->cursor_len == 0) op->drive++;
  peer_call_release(call);
  heal_advance(op);
}

static void heal_advance(struct heal_op *op) {
  struct objects *o = &op->worker->objects;
  if (op->drive == o->map->drive_count) {
    bucket_list(o, (struct slice){NULL, 0}, (struct slice){NULL, 0}, 1000, heal_buckets, op);
    return;
  }
  op->call = (struct peer_call){.done = heal_page};
  op->call.req = (struct peer_request){.verb = PEER_HEAL_LIST,
                                       .epoch = o->placement->epoch,
                                       .timeout_ms = o->peer_timeout_ms,
                                       .from = slice_of(op->cursor, op->cursor_len),
                                       .limit = HEAL_PAGE};
  peer_send(o->peers[op->drive], &op->call);
}

void admin_heal(struct worker *w, struct http_request *req) {
  struct heal_op *op = calloc(1, sizeof *op);
  if (!op) {
    http_respond(req, 503, (struct slice){NULL, 0});
    return;
  }
  op->worker = w;
  op->req = req;
  op->entries = json_object();
  op->silent = json_array();
  op->buckets = json_object();
  heal_advance(op);
}

/* ---- where ---- */

struct where_op {
  struct worker *worker;
  struct http_request *req;
  uint8_t key_bytes[KEY_BYTES_MAX + 1];
  struct slice key;
  struct key_place place;
  unsigned pending;
  struct peer_call calls[MAP_SLOTS_MAX];
};

static json_t *where_slot(const struct where_op *op, unsigned i) {
  static const char *const chunk_words[] = {
      [CHUNK_NONE] = "none", [CHUNK_WHOLE] = "whole", [CHUNK_MISSING] = "missing"};
  static const char *const kind_words[] = {[ROW_PUT] = "object", [ROW_TOMB] = "delete marker"};
  const struct objects *o = &op->worker->objects;
  const struct peer_call *call = &op->calls[i];
  const char *name = o->map->drives[call->peer->drive].name;
  struct peer_rows rows;
  int err = call->reply.err;
  if (err == 0)
    err = peer_rows_decode(slice_of(call->reply.body, call->reply.body_len), &op->place.bucket,
                           op->key, &rows);
  if (err < 0)
    return json_pack("{s:i, s:s, s:s}", "slot", (int)i, "drive", name, "error", err_words(err));
  json_t *list = json_array();
  for (unsigned j = 0; j < rows.count; j++) {
    const struct peer_row *r = &rows.rows[j];
    char ver[40], data_id[ID128_HEX_LEN + 1];
    snprintf(ver, sizeof ver, "%016llx-%016llx", (unsigned long long)r->row.ver.hlc,
             (unsigned long long)r->row.ver.nonce);
    id128_hex(&r->row.data_id, data_id);
    json_int_t chunk_bytes = 0;
    if (row_has_data(&r->row)) {
      struct stripe_geometry geometry = row_geometry(&r->row);
      chunk_bytes = (json_int_t)stripe_chunk_len(&geometry, i);
    }
    json_array_append_new(
        list,
        json_pack("{s:s, s:s, s:b, s:s, s:I, s:s, s:I}", "version", ver, "kind",
                  r->row.kind <= ROW_TOMB ? kind_words[r->row.kind] : "", "chosen", (int)r->chosen,
                  "chunk", r->chunk_state <= CHUNK_MISSING ? chunk_words[r->chunk_state] : "",
                  "size", (json_int_t)r->row.size, "data_id", data_id, "chunk_bytes", chunk_bytes));
  }
  return json_pack("{s:i, s:s, s:o}", "slot", (int)i, "drive", name, "rows", list);
}

static void where_done(struct peer_call *call) {
  struct where_op *op = container_of(call - call->req.slot, struct where_op, calls[0]);
  if (--op->pending > 0) return;
  json_t *slots = json_array();
  for (unsigned i = 0; i < op->place.n; i++) json_array_append_new(slots, where_slot(op, i));
  for (unsigned i = 0; i < op->place.n; i++) peer_call_release(&op->calls[i]);
  json_t *doc =
      json_pack("{s:s, s:i, s:o}", "pool", op->worker->objects.map->pools[op->place.pool].name,
                "partition", (int)op->place.partition, "slots", slots);
  admin_answer_json(op->req, 200, doc);
  free(op);
}

static void where_bucket(void *arg, int err, const struct bucket_info *info) {
  struct where_op *op = arg;
  struct objects *o = &op->worker->objects;
  if (err < 0) {
    admin_answer_words(op->req, err == ERR_NO_SUCH_BUCKET ? 404 : 503, err_words(err));
    free(op);
    return;
  }
  op->place = objects_place(o, info->pool, &info->uuid, op->key);
  op->pending = op->place.n;
  for (unsigned i = 0; i < op->place.n; i++) {
    objects_request(o, &op->place, i, op->key, PEER_READ, &op->calls[i]);
    op->calls[i].done = where_done;
    op->calls[i].peer = op->place.peers[i];
    peer_send(op->place.peers[i], &op->calls[i]);
  }
}

void admin_where(struct worker *w, struct http_request *req) {
  uint8_t bucket[SETTINGS_NAME_BYTES_MAX + 1];
  size_t bucket_len, key_len;
  struct where_op *op = calloc(1, sizeof *op);
  if (!op || admin_param(req, "bucket", bucket, sizeof bucket, &bucket_len) < 0 ||
      admin_param(req, "key", op->key_bytes, sizeof op->key_bytes, &key_len) < 0 || key_len == 0) {
    free(op);
    admin_answer_words(req, 400, "wants ?bucket=NAME&key=KEY, percent-encoded");
    return;
  }
  op->worker = w;
  op->req = req;
  op->key = slice_of(op->key_bytes, key_len);
  bucket_lookup(&w->objects, slice_of(bucket, bucket_len), false, where_bucket, op);
}
