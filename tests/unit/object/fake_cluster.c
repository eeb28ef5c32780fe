/* fake_cluster.c: settings, map, placement and gateways around fake drives; see fake_peer.h. */
#include <stdio.h>
#include <stdlib.h>

#include "codec/crc32c.h"
#include "codec/digest.h"
#include "tests/unit/object/fake_peer.h"

extern const struct peer_ops fake_peer_ops;

static char *text(const char *format, unsigned a) {
  char *s = NULL;
  FAKE_CHECK(asprintf(&s, format, a) > 0);
  return s;
}

static void settings_make(struct settings *s, unsigned hosts, unsigned drives_per_host, unsigned k,
                          unsigned m, const char *technique, uint32_t unit) {
  s->cluster.name = strdup("bed");
  s->cluster.allow_unsafe_layout = true; /* a test may put everything on one host */
  s->hosts = calloc(hosts, sizeof *s->hosts);
  FAKE_CHECK(s->hosts && s->cluster.name);
  s->host_count = hosts;
  for (unsigned h = 0; h < hosts; h++) {
    struct settings_host *host = &s->hosts[h];
    host->id = text("n%02u", h);
    host->address = text("n%02u:9001", h);
    host->zone = text("n%02u", h);
    host->drives = calloc(drives_per_host, sizeof *host->drives);
    FAKE_CHECK(host->drives);
    host->drive_count = drives_per_host;
    for (unsigned d = 0; d < drives_per_host; d++) {
      host->drives[d].name = text("d%02u", d);
      host->drives[d].path = text("/data/d%02u", d);
    }
  }
  s->pools = calloc(1, sizeof *s->pools);
  FAKE_CHECK(s->pools);
  s->pool_count = 1;
  s->pools[0] = (struct settings_pool){.name = strdup("default"),
                                       .technique = strdup(technique),
                                       .k = k,
                                       .m = m,
                                       .stripe_unit_bytes = unit};
  s->default_pool = strdup("default");
  s->server.host = strdup("n00");
}

static void settings_unmake(struct settings *s) {
  for (unsigned h = 0; h < s->host_count; h++) {
    for (unsigned d = 0; d < s->hosts[h].drive_count; d++) {
      free(s->hosts[h].drives[d].name);
      free(s->hosts[h].drives[d].path);
    }
    free(s->hosts[h].drives);
    free(s->hosts[h].id);
    free(s->hosts[h].address);
    free(s->hosts[h].zone);
  }
  free(s->hosts);
  free(s->pools[0].name);
  free(s->pools[0].technique);
  free(s->pools);
  free(s->cluster.name);
  free(s->default_pool);
  free(s->server.host);
}

static void gateway_open(struct fake_cluster *c, struct objects *o) {
  memset(o, 0, sizeof *o);
  o->env = &c->bed->env;
  o->map = c->map;
  o->placement = c->placement;
  for (unsigned i = 0; i < c->drive_count; i++) o->peers[i] = &c->drives[i].peer;
  o->inline_max_bytes = 16384;
  o->peer_timeout_ms = 5000;
  o->buffer_wait_ms = 2000;
  FAKE_CHECK(objects_open(o) == 0);
}

struct fake_cluster *fake_cluster_open(struct fake_bed *bed, unsigned hosts,
                                       unsigned drives_per_host, unsigned k, unsigned m,
                                       const char *technique, uint32_t unit) {
  struct fake_cluster *c = calloc(1, sizeof *c);
  struct settings_error error = {{0}};
  FAKE_CHECK(c);
  c->bed = bed;
  c->host_count = hosts;
  c->trace = calloc(FAKE_TRACE_MAX, sizeof *c->trace);
  FAKE_CHECK(c->trace);
  settings_make(&c->settings, hosts, drives_per_host, k, m, technique, unit);
  if (cluster_map_build(&c->settings, &c->map, &error) < 0) {
    fprintf(stderr, "%s\n", error.text);
    FAKE_CHECK(!"the layout is allowed");
  }
  FAKE_CHECK(placement_build(c->map, &c->placement) == 0);
  c->drive_count = c->map->drive_count;
  c->pool = c->map->pool_default;
  for (unsigned i = 0; i < c->drive_count; i++) {
    struct fake_peer *p = &c->drives[i];
    fake_drive_open(&p->drive, bed, i);
    p->bed = bed;
    p->cluster = c;
    p->peer.ops = &fake_peer_ops;
    p->peer.drive = (uint16_t)i;
    p->peer.up = true;
    p->delay_ms = 1;
    list_init(&p->calls);
  }
  gateway_open(c, &c->objects);
  snprintf(c->bucket.name, sizeof c->bucket.name, "bucket");
  memset(c->bucket.uuid.bytes, 0xb0, sizeof c->bucket.uuid.bytes);
  c->bucket.pool = c->pool;
  c->bucket.state = BUCKET_ACTIVE;
  return c;
}

struct objects *fake_cluster_gateway(struct fake_cluster *c) {
  FAKE_CHECK(c->more_count < FAKE_GATEWAYS_MAX);
  struct objects *o = &c->more[c->more_count++];
  gateway_open(c, o);
  return o;
}

void fake_cluster_close(struct fake_cluster *c) {
  fake_run(c->bed);
  FAKE_CHECK(fake_calls_in_flight(c) == 0);
  FAKE_CHECK(c->objects.running == 0);
  objects_close(&c->objects);
  for (unsigned i = 0; i < c->more_count; i++) {
    FAKE_CHECK(c->more[i].running == 0);
    objects_close(&c->more[i]);
  }
  for (unsigned i = 0; i < c->drive_count; i++) fake_drive_close(&c->drives[i].drive);
  placement_free(c->placement);
  cluster_map_free(c->map);
  settings_unmake(&c->settings);
  free(c->trace);
  free(c);
}

struct key_place fake_place(struct fake_cluster *c, struct slice key) {
  return objects_place(&c->objects, c->pool, &c->bucket.uuid, key);
}

struct fake_peer *fake_slot(struct fake_cluster *c, struct slice key, unsigned slot) {
  struct key_place place = fake_place(c, key);
  FAKE_CHECK(slot < place.n);
  return container_of(place.peers[slot], struct fake_peer, peer);
}

uint32_t fake_slots_with_row(struct fake_cluster *c, struct slice key, const struct version *ver) {
  uint32_t slots = 0;
  for (unsigned i = 0; i < fake_place(c, key).n; i++)
    if (fake_drive_row(&fake_slot(c, key, i)->drive, &c->bucket.uuid, key, ver)) slots |= 1u << i;
  return slots;
}

uint32_t fake_slots_chosen(struct fake_cluster *c, struct slice key, const struct version *ver) {
  uint32_t slots = 0;
  for (unsigned i = 0; i < fake_place(c, key).n; i++) {
    struct fake_row *row = fake_drive_row(&fake_slot(c, key, i)->drive, &c->bucket.uuid, key, ver);
    if (row && row->chosen) slots |= 1u << i;
  }
  return slots;
}

uint32_t fake_slots_with_chunk(struct fake_cluster *c, struct slice key,
                               const struct id128 *data_id) {
  uint32_t slots = 0;
  for (unsigned i = 0; i < fake_place(c, key).n; i++)
    if (fake_drive_has_chunk(&fake_slot(c, key, i)->drive, data_id)) slots |= 1u << i;
  return slots;
}

unsigned fake_calls_in_flight(const struct fake_cluster *c) {
  unsigned count = 0;
  for (unsigned i = 0; i < c->drive_count; i++) count += c->drives[i].in_flight;
  return count;
}

unsigned fake_stages_open(struct fake_cluster *c) {
  unsigned count = 0;
  for (unsigned i = 0; i < c->drive_count; i++)
    count += fake_drive_stage_count(&c->drives[i].drive);
  return count;
}

unsigned fake_calls(const struct fake_cluster *c, enum peer_verb verb) {
  unsigned count = 0;
  for (unsigned i = 0; i < c->drive_count; i++) count += c->drives[i].calls_of[verb];
  return count;
}

/* All chunks of an object, in memory, encoded by the codec. */
struct encoded {
  struct stripe_geometry g;
  uint8_t *units; /* [(stripe * n + index) * unit_bytes] */
  uint32_t *crcs; /* [stripe * n + index] */
  unsigned n;
};

static uint8_t *encoded_unit(const struct encoded *e, uint64_t stripe, unsigned index) {
  return e->units + (stripe * e->n + index) * e->g.profile.unit_bytes;
}

static void encode(struct fake_cluster *c, struct encoded *e, const struct id128 *data_id,
                   const uint8_t *data, size_t len) {
  const struct profile *p = &c->map->pools[c->pool].profile;
  e->g = stripe_geometry_of(p, len);
  e->n = profile_n(p);
  e->units = calloc(e->g.stripe_count * e->n + 1, p->unit_bytes);
  e->crcs = calloc(e->g.stripe_count * e->n + 1, sizeof *e->crcs);
  FAKE_CHECK(e->units && e->crcs);
  size_t at = 0;
  for (uint64_t s = 0; s < e->g.stripe_count; s++) {
    const uint8_t *in[MAP_SLOTS_MAX] = {0};
    uint8_t *out[MAP_SLOTS_MAX] = {0};
    for (unsigned i = 0; i < e->n; i++) {
      if (i < p->k) {
        size_t unit_len = stripe_unit_len(&e->g, s, i);
        memcpy(encoded_unit(e, s, i), data + at, unit_len);
        at += unit_len;
        in[i] = encoded_unit(e, s, i);
      } else {
        out[i - p->k] = encoded_unit(e, s, i);
      }
    }
    codec_encode(c->objects.codecs[c->pool], in, out, stripe_unit_coded_len(&e->g, s));
    for (unsigned i = 0; i < e->n; i++)
      e->crcs[s * e->n + i] =
          unit_crc(data_id, i, s, encoded_unit(e, s, i), stripe_unit_len(&e->g, s, i));
  }
  FAKE_CHECK(at == len);
}

static void encoded_digests(const struct encoded *e, struct row *row) {
  for (unsigned i = 0; i < e->n; i++) {
    struct chunk_digest digest;
    FAKE_CHECK(chunk_digest_begin(&digest, &row->data_id, i) == 0);
    for (uint64_t s = 0; s < e->g.stripe_count; s++)
      chunk_digest_unit(&digest, e->crcs[s * e->n + i], stripe_unit_len(&e->g, s, i));
    chunk_digest_end(&digest, &row->digests[i]);
  }
}

/* STAGE (or an inline ACCEPT), ACCEPT and COMMIT, executed on the spot. */
static void slot_store(struct fake_cluster *c, struct slice key, unsigned slot,
                       const struct encoded *e, const struct row *row, struct slice bytes,
                       bool chosen) {
  struct key_place place = fake_place(c, key);
  struct fake_drive *d = &fake_slot(c, key, slot)->drive;
  struct peer_call *call = calloc(1, sizeof *call);
  FAKE_CHECK(call);
  objects_request(&c->objects, &place, slot, key, PEER_STAGE, call);
  call->req.data_id = row->data_id;
  call->req.profile = row->profile;
  bool is_inline = e && stripe_chunk_len_max(&e->g) <= c->objects.inline_max_bytes &&
                   e->g.stripe_count <= PEER_UNITS_MAX;
  for (uint64_t s = 0; e && s < e->g.stripe_count; s += PEER_UNITS_MAX) {
    call->req.unit_first = s;
    call->req.unit_count = (unsigned)MIN(e->g.stripe_count - s, PEER_UNITS_MAX);
    for (unsigned i = 0; i < call->req.unit_count; i++)
      call->req.units[i] =
          (struct peer_unit){encoded_unit(e, s + i, slot), stripe_unit_len(&e->g, s + i, slot),
                             e->crcs[(s + i) * e->n + slot]};
    if (!is_inline) fake_drive_serve(d, &call->req, &call->reply);
    FAKE_CHECK(call->reply.err == 0);
  }
  call->req.verb = PEER_ACCEPT;
  if (!is_inline) call->req.unit_count = 0;
  call->req.unit_first = 0;
  call->req.row = bytes;
  fake_drive_serve(d, &call->req, &call->reply);
  FAKE_CHECK(call->reply.err == 0);
  call->req.verb = PEER_COMMIT;
  call->req.ver = row->ver;
  if (chosen) fake_drive_serve(d, &call->req, &call->reply);
  free(call);
}

static struct fake_object store(struct fake_cluster *c, struct slice key, struct row *row,
                                const struct encoded *e, uint32_t rows, uint32_t chosen) {
  uint8_t *bytes = NULL;
  size_t bytes_len = 0;
  row->ver = objects_mint(&c->objects, &row->ver);
  row->mtime_ms = env_wall_ms(&c->bed->env);
  env_random(&c->bed->env, row->op_id.bytes, sizeof row->op_id.bytes);
  FAKE_CHECK(row_encode(row, NULL, 0, &c->bucket.uuid, key, &bytes, &bytes_len) == 0);
  for (unsigned i = 0; i < fake_place(c, key).n; i++)
    if (rows >> i & 1) slot_store(c, key, i, e, row, slice_of(bytes, bytes_len), chosen >> i & 1);
  free(bytes);
  return (struct fake_object){row->ver, row->op_id, row->data_id};
}

struct fake_object fake_object_store(struct fake_cluster *c, struct slice key, const uint8_t *data,
                                     size_t len, uint32_t rows, uint32_t chosen) {
  struct row row = {.kind = ROW_PUT,
                    .profile = c->map->pools[c->pool].profile,
                    .size = len,
                    .etag = SLICE_LIT("0123456789abcdef0123456789abcdef")};
  struct encoded e = {0};
  if (len == 0) return store(c, key, &row, NULL, rows, chosen);
  env_random(&c->bed->env, row.data_id.bytes, sizeof row.data_id.bytes);
  encode(c, &e, &row.data_id, data, len);
  encoded_digests(&e, &row);
  struct fake_object object = store(c, key, &row, &e, rows, chosen);
  free(e.units);
  free(e.crcs);
  return object;
}

struct fake_object fake_tomb_store(struct fake_cluster *c, struct slice key, uint32_t rows,
                                   uint32_t chosen) {
  struct row row = {.kind = ROW_TOMB, .profile = c->map->pools[c->pool].profile};
  return store(c, key, &row, NULL, rows, chosen);
}
