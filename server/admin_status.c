/* admin_status.c: what this host knows of the cluster, as JSON and as Prometheus text. Every figure
 * is counted, none is assumed: a drive is `up` when its host's connection stands and it answers. */
#include <stdio.h>
#include <time.h>

#include "server/admin_op.h"

static json_t *status_drive(struct worker *w, unsigned d) {
  const struct cluster_map *map = w->objects.map;
  const struct peer *peer = w->objects.peers[d];
  struct drive_lanes *lanes = cluster_lanes(w->host->cluster, (uint16_t)d);
  json_t *out = json_pack("{s:s, s:b, s:b, s:b}", "name", map->drives[d].name, "up",
                          (int)admin_drive_up(w, d), "suspect", (int)peer->suspect, "local",
                          (int)peer->local);
  if (!out || map->drives[d].host != map->self) return out;
  json_object_set_new(out, "path", json_string(map->drives[d].path));
  const char *trouble = lanes ? drive_failure(lanes_drive(lanes))
                              : cluster_drive_trouble(w->host->cluster, (uint16_t)d);
  json_object_set_new(out, "trouble", json_string(trouble));
  if (!lanes) return out;
  struct drive_stats s;
  drive_stats_get(lanes_drive(lanes), &s);
  json_object_set_new(out, "rows", json_integer((json_int_t)s.rows));
  json_object_set_new(out, "undecided", json_integer((json_int_t)s.undecided));
  json_object_set_new(out, "heal_entries", json_integer((json_int_t)s.heal_entries));
  json_object_set_new(out, "free_bytes", json_integer((json_int_t)s.free_bytes));
  json_object_set_new(out, "total_bytes", json_integer((json_int_t)s.total_bytes));
  json_object_set_new(out, "full", json_boolean(s.full));
  return out;
}

static json_t *status_host(struct worker *w, unsigned h) {
  const struct cluster_map *map = w->objects.map;
  const struct map_host *host = &map->hosts[h];
  bool self = h == map->self;
  json_t *drives = json_array();
  for (unsigned d = host->drive_first; d < host->drive_first + host->drive_count; d++)
    json_array_append_new(drives, status_drive(w, d));
  return json_pack("{s:s, s:s, s:s, s:b, s:s, s:o}", "id", host->id, "zone", host->zone, "address",
                   host->address, "connected", (int)(self || peer_host_connected(w->peer_hosts[h])),
                   "trouble", self ? "" : peer_host_trouble(w->peer_hosts[h]), "drives", drives);
}

static json_t *status_pool(struct worker *w, unsigned i) {
  const struct map_pool *p = &w->objects.map->pools[i];
  char words[512];
  int up = (int)admin_pool_up(w, i), reads = (int)MAX(p->d, p->r);
  cluster_map_survival(w->objects.map, i, words, sizeof words);
  return json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:b}", "name", p->name,
                   "technique", technique_name(p->profile.technique), "k", p->profile.k, "m",
                   p->profile.m, "stripe_unit", (int)p->profile.unit_bytes, "write_quorum",
                   (int)p->w, "read_quorum", (int)p->r, "drives_in_sight_worst", up,
                   "more_losses_reads", up - reads, "more_losses_writes", up - (int)p->w,
                   "whole_layout", words, "system", (int)(i == MAP_POOL_SYSTEM));
}

void admin_status(struct worker *w, struct http_request *req) {
  const struct cluster_map *map = w->objects.map;
  char id[ID128_HEX_LEN + 1];
  id128_hex(cluster_id(w->host->cluster), id);
  json_t *hosts = json_array(), *pools = json_array();
  for (unsigned h = 0; h < map->host_count; h++) json_array_append_new(hosts, status_host(w, h));
  for (unsigned i = 0; i < map->pool_count; i++) json_array_append_new(pools, status_pool(w, i));
  json_t *doc = json_pack(
      "{s:s, s:s, s:s, s:s, s:i, s:s, s:b, s:o, s:o}", "version", KOFN_VERSION, "cluster",
      map->name, "cluster_id", id, "host", map->hosts[map->self].id, "epoch",
      (int)w->objects.placement->epoch, "xor_kernel", xor_kernel_name(), "drives_share_disk",
      (int)cluster_drives_share_disk(w->host->cluster), "hosts", hosts, "pools", pools);
  admin_answer_json(req, 200, doc);
}

/* ---- Prometheus text format, version 0.0.4 ---- */

static void metric_head(struct byte_writer *out, const char *name, const char *type,
                        const char *help) {
  char line[512];
  int len = snprintf(line, sizeof line, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
  put_bytes(out, slice_of(line, (size_t)len));
}

static void metric_value(struct byte_writer *out, const char *name, const char *labels,
                         uint64_t value) {
  char line[2048];
  int len = snprintf(line, sizeof line, "%s%s %llu\n", name, labels, (unsigned long long)value);
  put_bytes(out, slice_of(line, MIN((size_t)len, sizeof line - 1)));
}

static void metric(struct byte_writer *out, const char *name, const char *type, const char *help,
                   uint64_t value) {
  metric_head(out, name, type, help);
  metric_value(out, name, "", value);
}

static void metrics_process(struct worker *w, struct byte_writer *out) {
  struct objects_stats o;
  struct http_stats h;
  struct s3_stats s;
  struct env_uv_stats e;
  host_stats_sum(w->host, &o, &h, &s, &e);
  const struct {
    const char *name, *type, *help;
    uint64_t value;
  } rows[] = {
      {"kofn_puts_total", "counter", "Objects written", o.puts},
      {"kofn_gets_total", "counter", "Objects read", o.gets},
      {"kofn_heads_total", "counter", "Objects looked up without their data", o.heads},
      {"kofn_deletes_total", "counter", "Objects deleted", o.deletes},
      {"kofn_lists_total", "counter", "List pages", o.lists},
      {"kofn_degraded_writes_total", "counter", "Writes acknowledged with fewer than k+m chunks",
       o.degraded_writes},
      {"kofn_decoded_stripes_total", "counter", "Stripes rebuilt by the codec while reading",
       o.decoded_stripes},
      {"kofn_unit_crc_failures_total", "counter", "Units that failed their checksum at the gateway",
       o.crc_failures},
      {"kofn_roll_forwards_total", "counter", "Versions made chosen by a reader", o.roll_forwards},
      {"kofn_resolves_total", "counter", "Promise rounds that decided a key", o.resolves},
      {"kofn_unavailable_total", "counter", "Requests refused for lack of drives", o.unavailable},
      {"kofn_hedges_total", "counter", "Reads sent to another drive because one was slow",
       o.hedges},
      {"kofn_object_bytes_in_total", "counter", "Object bytes received", o.bytes_in},
      {"kofn_object_bytes_out_total", "counter", "Object bytes sent", o.bytes_out},
      {"kofn_http_connections_open", "gauge", "Open S3 connections", h.connections_open},
      {"kofn_http_requests_total", "counter", "S3 requests with a valid head", h.requests},
      {"kofn_http_bad_requests_total", "counter", "Requests refused by the HTTP layer",
       h.bad_requests},
      {"kofn_s3_errors_4xx_total", "counter", "S3 answers 400 to 499", s.errors_4xx},
      {"kofn_s3_errors_5xx_total", "counter", "S3 answers 500 to 599", s.errors_5xx},
      {"kofn_s3_unauthorized_total", "counter", "Requests refused by the authenticator",
       s.unauthorized},
      {"kofn_buffer_bytes", "gauge", "Stripe buffers in memory", e.buffer_bytes},
      {"kofn_buffer_bytes_max", "gauge", "Limit of the stripe buffers", e.buffer_bytes_max},
      {"kofn_buffer_waits_total", "counter", "Waits for a stripe buffer", e.buffer_waits},
      {"kofn_buffer_timeouts_total", "counter", "Waits for a stripe buffer that ended in SlowDown",
       e.buffer_timeouts},
  };
  for (size_t i = 0; i < ARRAY_LEN(rows); i++)
    metric(out, rows[i].name, rows[i].type, rows[i].help, rows[i].value);
}

static void metrics_drives(struct worker *w, struct byte_writer *out) {
  const struct cluster_map *map = w->objects.map;
  char labels[SETTINGS_PATH_BYTES_MAX + 64];
  metric_head(out, "kofn_drive_up", "gauge", "1 while the drive answers this host");
  for (unsigned d = 0; d < map->drive_count; d++) {
    snprintf(labels, sizeof labels, "{drive=\"%s\"}", map->drives[d].name);
    metric_value(out, "kofn_drive_up", labels, admin_drive_up(w, d));
  }
  const char *const names[] = {"kofn_drive_rows",          "kofn_drive_undecided_rows",
                               "kofn_drive_heal_entries",  "kofn_drive_free_bytes",
                               "kofn_drive_batches_total", "kofn_drive_batch_ops_total"};
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    metric_head(out, names[i], i >= 4 ? "counter" : "gauge", "Of a drive of this host");
    for (unsigned d = 0; d < map->drive_count; d++) {
      struct drive_lanes *lanes = cluster_lanes(w->host->cluster, (uint16_t)d);
      if (!lanes) continue;
      struct drive_stats s;
      drive_stats_get(lanes_drive(lanes), &s);
      const uint64_t values[] = {s.rows,       s.undecided, s.heal_entries,
                                 s.free_bytes, s.batches,   s.batch_ops};
      snprintf(labels, sizeof labels, "{drive=\"%s\"}", map->drives[d].name);
      metric_value(out, names[i], labels, values[i]);
    }
  }
}

static void metrics_pools(struct worker *w, struct byte_writer *out) {
  char labels[SETTINGS_NAME_BYTES_MAX + 64];
  metric_head(out, "kofn_pool_drives_in_sight", "gauge",
              "Drives of the pool's worst partition that answer this host");
  for (unsigned i = 0; i < w->objects.map->pool_count; i++) {
    snprintf(labels, sizeof labels, "{pool=\"%s\"}", w->objects.map->pools[i].name);
    metric_value(out, "kofn_pool_drives_in_sight", labels, admin_pool_up(w, i));
  }
  metric_head(out, "kofn_xor_kernel", "gauge", "1 for the XOR kernel in use");
  for (unsigned i = 0; xor_kernel_at(i); i++) {
    snprintf(labels, sizeof labels, "{kernel=\"%s\"}", xor_kernel_at(i));
    metric_value(out, "kofn_xor_kernel", labels, strcmp(xor_kernel_at(i), xor_kernel_name()) == 0);
  }
}

static void metrics_codec(struct byte_writer *out) {
  struct codec_stats s;
  codec_stats(&s);
  metric_head(out, "kofn_codec_encodes_total", "counter", "Stripes encoded, by XOR or in general");
  metric_value(out, "kofn_codec_encodes_total", "{path=\"xor\"}", s.encode_xor);
  metric_value(out, "kofn_codec_encodes_total", "{path=\"general\"}", s.encode_general);
  metric_head(out, "kofn_codec_decodes_total", "counter", "Stripes decoded, by XOR or in general");
  metric_value(out, "kofn_codec_decodes_total", "{path=\"xor\"}", s.decode_xor);
  metric_value(out, "kofn_codec_decodes_total", "{path=\"general\"}", s.decode_general);
  metric_head(out, "kofn_codec_plans_total", "counter",
              "Decode plans found in the cache, or built");
  metric_value(out, "kofn_codec_plans_total", "{cache=\"hit\"}", s.plan_hits);
  metric_value(out, "kofn_codec_plans_total", "{cache=\"miss\"}", s.plan_misses);
}

void admin_metrics(struct worker *w, struct http_request *req) {
  struct byte_writer out = {.max = ADMIN_ANSWER_BYTES_MAX};
  metrics_process(w, &out);
  metrics_drives(w, &out);
  metrics_pools(w, &out);
  metrics_codec(&out);
  http_header_add(req, "Content-Type", "text/plain; version=0.0.4");
  http_respond(req, out.failed ? 503 : 200,
               out.failed ? (struct slice){NULL, 0} : slice_of(out.data, out.len));
  byte_writer_free(&out);
}
