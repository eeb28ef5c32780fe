/* settings_schema.c: the one table of fields. */
#include "config/settings_schema.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/cluster_map.h"
#include "config/err.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * 1024)
#define GIB (MIB * 1024)
#define TIB (GIB * 1024)
#define SECOND UINT64_C(1000)
#define HOUR (3600 * SECOND)
#define DAY (24 * HOUR)

#define SECRET_BYTES_MIN 16
#define SECRET_KEY_BYTES_MIN 8
#define ACCESS_KEY_BYTES_MIN 3
#define ACCESS_KEY_BYTES_MAX 128
#define ADDRESS_BYTES_MAX 262 /* 255, brackets, colon, port */
#define THREADS_MAX 256

const struct section_row schema_sections[SECTION_COUNT] = {
    [SECTION_TOP] = {"", false, false, 0, SECTION_TOP, NULL},
    [SECTION_CLUSTER] = {"cluster", false, false, 0, SECTION_TOP, NULL},
    [SECTION_HOSTS] = {"hosts", true, true, SETTINGS_HOSTS_MAX, SECTION_TOP, NULL},
    [SECTION_HOST_DRIVES] = {"drives", true, true, SETTINGS_DRIVES_MAX, SECTION_HOSTS, "path"},
    [SECTION_POOLS] = {"pools", true, true, SETTINGS_POOLS_MAX, SECTION_TOP, NULL},
    [SECTION_POOL_DRIVES] = {"drives", true, false, SETTINGS_DRIVES_MAX, SECTION_POOLS, "drive"},
    [SECTION_USERS] = {"users", true, false, SETTINGS_USERS_MAX, SECTION_TOP, NULL},
    [SECTION_SERVER] = {"server", false, false, 0, SECTION_TOP, NULL},
    [SECTION_DRIVE] = {"drive", false, false, 0, SECTION_TOP, NULL},
    [SECTION_CODEC] = {"codec", false, false, 0, SECTION_TOP, NULL},
};

#define IN_SETTINGS(member) offsetof(struct settings, member)
#define IN_HOST(member) offsetof(struct settings_host, member)
#define IN_DRIVE(member) offsetof(struct settings_drive, member)
#define IN_POOL(member) offsetof(struct settings_pool, member)
#define IN_USER(member) offsetof(struct settings_user, member)
#define NAME_MAX_ SETTINGS_NAME_BYTES_MAX
#define PATH_MAX_ SETTINGS_PATH_BYTES_MAX
#define SECRET_MAX_ SETTINGS_SECRET_BYTES_MAX

const struct field schema_fields[] = {
    {SECTION_TOP, "default_pool", FIELD_NAME, IN_SETTINGS(default_pool), false, 1, NAME_MAX_, NULL,
     0, "pool of buckets that name none; the one named default, or the only one"},

    {SECTION_CLUSTER, "name", FIELD_NAME, IN_SETTINGS(cluster.name), false, 1, NAME_MAX_, "kofn", 0,
     "part of the cluster's identity"},
    {SECTION_CLUSTER, "secret", FIELD_SECRET, 0, false, SECRET_BYTES_MIN, SECRET_MAX_, NULL, 0,
     "shared by all hosts; needed where there are several"},
    {SECTION_CLUSTER, "secret_file", FIELD_SECRET_FILE, 0, false, 1, PATH_MAX_, NULL, 0,
     "file that holds the secret"},
    {SECTION_CLUSTER, "allow_unsafe_layout", FIELD_BOOL, IN_SETTINGS(cluster.allow_unsafe_layout),
     false, 0, 1, "false", 0, "accept that the loss of one host may lose data"},

    {SECTION_HOSTS, "id", FIELD_NAME, IN_HOST(id), true, 1, NAME_MAX_, NULL, 0,
     "name of the host, for ever"},
    {SECTION_HOSTS, "address", FIELD_ADDRESS, IN_HOST(address), true, 1, 65535, NULL, 0,
     "where peers connect to"},
    {SECTION_HOSTS, "zone", FIELD_NAME, IN_HOST(zone), false, 1, NAME_MAX_, NULL, 0,
     "rack or room that fails together; the id unless given"},
    {SECTION_HOSTS, "drives", FIELD_LIST, 0, true, 1, SETTINGS_DRIVES_MAX, NULL,
     SECTION_HOST_DRIVES, "paths, or {name, path}"},

    {SECTION_HOST_DRIVES, "name", FIELD_NAME, IN_DRIVE(name), false, 1, NAME_MAX_, NULL, 0,
     "name of the drive, for ever; the path unless given"},
    {SECTION_HOST_DRIVES, "path", FIELD_PATH, IN_DRIVE(path), true, 1, PATH_MAX_, NULL, 0,
     "its directory"},

    {SECTION_POOLS, "name", FIELD_NAME, IN_POOL(name), true, 1, NAME_MAX_, NULL, 0,
     "name of the pool, for ever"},
    {SECTION_POOLS, "k", FIELD_UINT, IN_POOL(k), true, 1, MAP_SLOTS_MAX, NULL, 0, "data chunks"},
    {SECTION_POOLS, "m", FIELD_UINT, IN_POOL(m), true, 0, MAP_SLOTS_MAX - 1, NULL, 0,
     "parity chunks"},
    {SECTION_POOLS, "technique", FIELD_TECHNIQUE, IN_POOL(technique), false, 0, 0, NULL, 0,
     "m = 0: none, m = 1: xor, otherwise reed_sol_van unless given"},
    {SECTION_POOLS, "stripe_unit", FIELD_SIZE32, IN_POOL(stripe_unit_bytes), false, 4 * KIB, MIB,
     "64KiB", 0, "bytes of a chunk in one stripe"},
    {SECTION_POOLS, "write_quorum", FIELD_UINT, IN_POOL(write_quorum), false, 0, MAP_SLOTS_MAX, "0",
     0, "drives that must have a write before it is acknowledged; 0: by rule"},
    {SECTION_POOLS, "drives", FIELD_LIST, 0, false, 1, SETTINGS_DRIVES_MAX, NULL,
     SECTION_POOL_DRIVES, "\"host id/drive name\" of each; all unless given"},
    {SECTION_POOL_DRIVES, "drive", FIELD_DRIVE_REF, 0, true, 3, PATH_MAX_, NULL, 0,
     "host id/drive name"},

    {SECTION_USERS, "name", FIELD_NAME, IN_USER(name), false, 1, NAME_MAX_, NULL, 0,
     "the access key unless given"},
    {SECTION_USERS, "access_key", FIELD_ACCESS_KEY, IN_USER(access_key), true, ACCESS_KEY_BYTES_MIN,
     ACCESS_KEY_BYTES_MAX, NULL, 0, "what requests name"},
    {SECTION_USERS, "secret_key", FIELD_SECRET, IN_USER(secret_key), true, SECRET_KEY_BYTES_MIN,
     SECRET_MAX_, NULL, 0, "what requests are signed with"},
    {SECTION_USERS, "secret_key_file", FIELD_SECRET_FILE, 0, false, 1, PATH_MAX_, NULL, 0,
     "file that holds the secret key"},

    {SECTION_SERVER, "host", FIELD_NAME, IN_SETTINGS(server.host), false, 1, NAME_MAX_, NULL, 0,
     "which of the hosts this is; the only one unless given"},
    {SECTION_SERVER, "s3_listen", FIELD_LISTEN, IN_SETTINGS(server.s3_listen), false, 1, 65535,
     "0.0.0.0:9000", 0, "S3 and plain HTTP"},
    {SECTION_SERVER, "admin_listen", FIELD_LISTEN, IN_SETTINGS(server.admin_listen), false, 1,
     65535, "127.0.0.1:9002", 0, "health, metrics, admin"},
    {SECTION_SERVER, "peer_listen", FIELD_LISTEN, IN_SETTINGS(server.peer_listen), false, 1, 65535,
     NULL, 0, "other hosts; the port of this host's address unless given"},
    {SECTION_SERVER, "state_dir", FIELD_PATH, IN_SETTINGS(server.state_dir), false, 1, PATH_MAX_,
     "/var/lib/kofn", 0, "what this host remembers of its drives, apart from them"},
    {SECTION_SERVER, "region", FIELD_NAME, IN_SETTINGS(server.region), false, 1, NAME_MAX_,
     "us-east-1", 0, "S3 region"},
    {SECTION_SERVER, "log_level", FIELD_LEVEL, IN_SETTINGS(server.log_level), false, 0, 0, "info",
     0, "least important lines that are logged"},
    {SECTION_SERVER, "workers", FIELD_UINT, IN_SETTINGS(server.workers), false, 0, THREADS_MAX, "0",
     0, "event loops; 0: one per core"},
    {SECTION_SERVER, "cpu_threads", FIELD_UINT, IN_SETTINGS(server.cpu_threads), false, 0,
     THREADS_MAX, "0", 0, "threads that hash and encode; 0: one per core"},
    {SECTION_SERVER, "buffer_bytes", FIELD_SIZE, IN_SETTINGS(server.buffer_bytes), false, MIB, TIB,
     "96MiB", 0, "stripe buffers of all workers together"},
    {SECTION_SERVER, "shutdown_grace", FIELD_TIME, IN_SETTINGS(server.shutdown_grace_ms), false, 0,
     HOUR, "30s", 0, "time for running requests after SIGTERM"},
    {SECTION_SERVER, "peer_timeout", FIELD_TIME, IN_SETTINGS(server.peer_timeout_ms), false, 10,
     HOUR, "5s", 0, "longest wait for one answer of a drive"},
    {SECTION_SERVER, "buffer_wait", FIELD_TIME, IN_SETTINGS(server.buffer_wait_ms), false, 0, HOUR,
     "10s", 0, "longest wait for a stripe buffer before 503 SlowDown"},
    {SECTION_SERVER, "header_timeout", FIELD_TIME, IN_SETTINGS(server.header_timeout_ms), false, 10,
     HOUR, "30s", 0, "longest time for a request's head"},
    {SECTION_SERVER, "idle_timeout", FIELD_TIME, IN_SETTINGS(server.idle_timeout_ms), false, 10,
     DAY, "60s", 0, "longest idle time of a connection between requests"},
    {SECTION_SERVER, "body_timeout", FIELD_TIME, IN_SETTINGS(server.body_timeout_ms), false, 10,
     DAY, "60s", 0, "longest time without a byte of a body in either direction"},
    {SECTION_SERVER, "connections_max", FIELD_UINT, IN_SETTINGS(server.connections_max), false, 1,
     1000000, "4096", 0, "client connections of this host"},
    {SECTION_SERVER, "anonymous", FIELD_BOOL, IN_SETTINGS(server.anonymous), false, 0, 1, "false",
     0, "no authentication at all"},
    {SECTION_SERVER, "allow_plain_basic", FIELD_BOOL, IN_SETTINGS(server.allow_plain_basic), false,
     0, 1, "false", 0, "HTTP Basic from beyond loopback without TLS"},

    {SECTION_DRIVE, "inline_max", FIELD_SIZE, IN_SETTINGS(drive.inline_max_bytes), false, 0, MIB,
     "16KiB", 0, "largest chunk that stands in the index"},
    {SECTION_DRIVE, "reserve_bytes", FIELD_SIZE_AUTO, IN_SETTINGS(drive.reserve_bytes), false, 0,
     1024 * TIB, "auto", 0, "free space below which new data is refused; auto: max(1 %, 1 GiB)"},
    {SECTION_DRIVE, "index_map_bytes", FIELD_SIZE, IN_SETTINGS(drive.index_map_bytes), false,
     16 * MIB, 16 * TIB, "64GiB", 0, "largest size of a drive's index"},
    {SECTION_DRIVE, "trash_delay", FIELD_TIME, IN_SETTINGS(drive.trash_delay_ms), false, 0,
     30 * DAY, "60s", 0, "time for which replaced chunks are kept"},
    {SECTION_DRIVE, "reader_threads", FIELD_UINT, IN_SETTINGS(drive.reader_threads), false, 1, 64,
     "2", 0, "threads that read, for each drive"},

    {SECTION_CODEC, "xor_kernel", FIELD_NAME, IN_SETTINGS(codec.xor_kernel), false, 1, NAME_MAX_,
     "auto", 0, "the XOR loop; auto: the fastest as measured at start"},
};

const unsigned schema_field_count = ARRAY_LEN(schema_fields);

const struct field *schema_field_at(enum section section, unsigned i) {
  for (unsigned at = 0; at < ARRAY_LEN(schema_fields); at++) {
    if (schema_fields[at].section == section && i-- == 0) return &schema_fields[at];
  }
  return NULL;
}

int schema_field_find(enum section section, const char *name, size_t len) {
  const struct field *f;
  for (unsigned i = 0; (f = schema_field_at(section, i)) != NULL; i++) {
    if (slice_eq(slice_str(f->name), slice_of(name, len))) return (int)i;
  }
  return ERR_NOT_FOUND;
}

void schema_range(const struct field *f, char out[SCHEMA_RANGE_BYTES_MAX]) {
  char min[32], max[32];
  const size_t cap = SCHEMA_RANGE_BYTES_MAX;
  switch (f->type) {
    case FIELD_NAME:
      snprintf(out, cap, "%" PRIu64 " to %" PRIu64 " of A-Z a-z 0-9 . _ -", f->min, f->max);
      return;
    case FIELD_ACCESS_KEY:
      snprintf(out, cap,
               "%" PRIu64 " to %" PRIu64 " printable characters without space : / , =", f->min,
               f->max);
      return;
    case FIELD_SECRET:
      snprintf(out, cap, "%" PRIu64 " to %" PRIu64 " printable characters", f->min, f->max);
      return;
    case FIELD_SECRET_FILE:
    case FIELD_PATH:
      snprintf(out, cap, "a path from / of at most %" PRIu64 " bytes", f->max);
      return;
    case FIELD_DRIVE_REF:
      snprintf(out, cap, "host id/drive name of at most %" PRIu64 " bytes", f->max);
      return;
    case FIELD_ADDRESS:
    case FIELD_LISTEN:
      snprintf(out, cap, "host:port, the port %" PRIu64 " to %" PRIu64, f->min, f->max);
      return;
    case FIELD_BOOL:
      snprintf(out, cap, "true or false");
      return;
    case FIELD_UINT:
      snprintf(out, cap, "%" PRIu64 " to %" PRIu64, f->min, f->max);
      return;
    case FIELD_SIZE:
    case FIELD_SIZE32:
    case FIELD_SIZE_AUTO:
      value_print_size(f->min, min);
      value_print_size(f->max, max);
      snprintf(out, cap, "%s%s to %s%s", f->type == FIELD_SIZE_AUTO ? "auto, or " : "", min, max,
               f->type == FIELD_SIZE32 ? ", a multiple of 64" : "");
      return;
    case FIELD_TIME:
      value_print_time(f->min, min);
      value_print_time(f->max, max);
      snprintf(out, cap, "%s to %s", min, max);
      return;
    case FIELD_LEVEL:
      snprintf(out, cap, "debug, info, warn or error");
      return;
    case FIELD_TECHNIQUE:
      snprintf(out, cap, "none, reed_sol_van, cauchy or xor");
      return;
    case FIELD_LIST:
      snprintf(out, cap, "a list of %" PRIu64 " to %" PRIu64, f->min, f->max);
      return;
  }
  out[0] = 0;
}

static void raw_value_free(struct raw_value *v) {
  if (v->text) explicit_bzero(v->text, strlen(v->text)); /* it may be a secret */
  free(v->text);
  free(v->env);
  *v = (struct raw_value){0};
}

static void raw_values_free(struct raw_item *item) {
  for (unsigned i = 0; i < SCHEMA_SECTION_FIELDS_MAX; i++) raw_value_free(&item->values[i]);
}

void raw_free(struct raw *raw) {
  for (unsigned s = 0; s < SECTION_COUNT; s++) {
    raw_values_free(&raw->singles[s]);
    for (unsigned i = 0; i < raw->lists[s].count; i++) {
      struct raw_item *item = &raw->lists[s].items[i];
      for (unsigned j = 0; j < item->sub.count; j++) raw_values_free(&item->sub.items[j]);
      free(item->sub.items);
      raw_values_free(item);
    }
    free(raw->lists[s].items);
  }
}

struct raw_item *raw_list_add(struct raw_list *list, int line) {
  struct raw_item *items = reallocarray(list->items, list->count + 1, sizeof *items);
  if (!items) return NULL;
  list->items = items;
  struct raw_item *item = &items[list->count++];
  *item = (struct raw_item){.line = line};
  return item;
}

int raw_set(struct raw_value *v, const char *text, size_t len, int line, const char *env) {
  struct raw_value next = {.line = line};
  if (text && !(next.text = strndup(text, len))) return -ENOMEM;
  if (text && env && !(next.env = strdup(env))) {
    raw_value_free(&next);
    return -ENOMEM;
  }
  raw_value_free(v);
  *v = next;
  return 0;
}

void place_path(const struct place *p, char out[SCHEMA_PATH_BYTES_MAX]) {
  const struct section_row *row = &schema_sections[p->section];
  const size_t cap = SCHEMA_PATH_BYTES_MAX;
  const char *dot = p->field && row->name[0] ? "." : "", *field = p->field ? p->field : "";
  if (p->index < 0) {
    snprintf(out, cap, "%s%s%s", row->name, dot, field);
  } else if (row->parent == SECTION_TOP) {
    snprintf(out, cap, "%s[%d]%s%s", row->name, p->index, dot, field);
  } else if (p->sub_index < 0) {
    snprintf(out, cap, "%s[%d].%s", schema_sections[row->parent].name, p->index, row->name);
  } else {
    snprintf(out, cap, "%s[%d].%s[%d]%s%s", schema_sections[row->parent].name, p->index, row->name,
             p->sub_index, dot, field);
  }
}

int schema_refuse(struct raw *raw, const struct place *p, const char *fmt, ...) {
  char path[SCHEMA_PATH_BYTES_MAX];
  char *out = raw->error->text;
  const size_t cap = sizeof raw->error->text; /* a longer text is cut */
  place_path(p, path);
  const char *colon = path[0] ? ": " : "";
  int at;
  if (p->env) {
    at = snprintf(out, cap, "environment: %s: ", p->env);
  } else if (raw->file && p->line > 0) {
    at = snprintf(out, cap, "%s:%d: %s%s", raw->file, p->line, path, colon);
  } else if (raw->file) {
    at = snprintf(out, cap, "%s: %s%s", raw->file, path, colon);
  } else {
    at = snprintf(out, cap, "%s%s", path, colon);
  }
  va_list args;
  va_start(args, fmt);
  if (at >= 0 && (size_t)at < cap) vsnprintf(out + at, cap - (size_t)at, fmt, args);
  va_end(args);
  for (char *c = out; *c; c++) /* a value may hold what would make two lines of one */
    if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
  return ERR_CONFIG;
}

int schema_no_memory(struct raw *raw) {
  snprintf(raw->error->text, sizeof raw->error->text, "out of memory");
  return -ENOMEM;
}
