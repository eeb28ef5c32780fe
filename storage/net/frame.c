/* frame.c: see frame.h. One table of types, one of verbs; the encoding of a request is flat: every
 * field of struct peer_request stands in every request, whatever the verb, so that a field which a
 * verb begins to use needs no new layout (a hundred bytes beside a unit of 64 KiB). */
#include "storage/net/frame.h"

#include <errno.h>

#include "codec/crc32c.h"
#include "config/err.h"
#include "storage/net/hello.h"
#include "storage/object/placement.h"

#define FRAME_BYE_META_BYTES_MAX 2048
#define FRAME_ERRNO_MAX 4095 /* the kernel's own bound of -errno */
#define BOTH_SENDERS (FRAME_BY_CONNECTOR | FRAME_BY_LISTENER)
#define ALL_PHASES (FRAME_IN_HANDSHAKE | FRAME_WHEN_OPEN)

static const struct frame_type_info types[FRAME_TYPE_END] = {
    [FRAME_HELLO] = {"HELLO", HELLO_BYTES_MAX, 0, FRAME_IN_HANDSHAKE, BOTH_SENDERS},
    [FRAME_PROOF] = {"PROOF", SHA256_LEN, 0, FRAME_IN_HANDSHAKE, BOTH_SENDERS},
    [FRAME_BYE] = {"BYE", FRAME_BYE_META_BYTES_MAX, 0, ALL_PHASES, BOTH_SENDERS},
    [FRAME_REQUEST] = {"REQUEST", FRAME_REQUEST_META_BYTES_MAX, FRAME_BULK_BYTES_MAX,
                       FRAME_WHEN_OPEN, FRAME_BY_CONNECTOR},
    [FRAME_REPLY] = {"REPLY", FRAME_REPLY_META_BYTES_MAX, FRAME_BULK_BYTES_MAX, FRAME_WHEN_OPEN,
                     FRAME_BY_LISTENER},
    [FRAME_CANCEL] = {"CANCEL", 0, 0, FRAME_WHEN_OPEN, FRAME_BY_CONNECTOR},
    [FRAME_CONTROL] = {"CONTROL", FRAME_CONTROL_BYTES_MAX, 0, FRAME_WHEN_OPEN, FRAME_BY_CONNECTOR},
    [FRAME_CONTROL_REPLY] = {"CONTROL_REPLY", FRAME_CONTROL_BYTES_MAX, 0, FRAME_WHEN_OPEN,
                             FRAME_BY_LISTENER},
    [FRAME_PING] = {"PING", 0, 0, FRAME_WHEN_OPEN, FRAME_BY_CONNECTOR},
    [FRAME_PONG] = {"PONG", HELLO_BYTES_MAX, 0, FRAME_WHEN_OPEN, FRAME_BY_LISTENER},
};

/* What a verb's request must and may carry. */
#define NEEDS_KEY 1u
#define NEEDS_CHUNK 2u /* data_id, profile, slot of that profile */
#define NEEDS_UNITS 4u
#define MAY_UNITS 8u
#define NEEDS_ROW 16u
#define NEEDS_STATE 32u

#define REQUEST_FLAGS (PEER_WANT_INLINE | PEER_FROM_AFTER | PEER_HEADS_ONLY)
#define REPLY_HEAD_BYTES 256

static const struct verb_info {
  const char *name;
  uint8_t rules;
} verbs[PEER_VERB_END] = {
    [PEER_READ] = {"READ", NEEDS_KEY},
    [PEER_STAGE] = {"STAGE", NEEDS_CHUNK | NEEDS_UNITS | MAY_UNITS},
    [PEER_DROP] = {"DROP", 0},
    [PEER_ACCEPT] = {"ACCEPT", NEEDS_KEY | NEEDS_ROW | MAY_UNITS},
    [PEER_PROMISE] = {"PROMISE", NEEDS_KEY},
    [PEER_COMMIT] = {"COMMIT", NEEDS_KEY},
    [PEER_DISCARD] = {"DISCARD", NEEDS_KEY},
    [PEER_FETCH] = {"FETCH", NEEDS_CHUNK | NEEDS_UNITS | MAY_UNITS},
    [PEER_LIST] = {"LIST", 0},
    [PEER_BUCKET] = {"BUCKET", NEEDS_STATE},
    [PEER_HEAL_LIST] = {"HEAL_LIST", 0},
    [PEER_UNDECIDED] = {"UNDECIDED", 0},
};

const struct frame_type_info *frame_type_info(uint8_t type) {
  return type < FRAME_TYPE_END && types[type].name ? &types[type] : NULL;
}

void frame_header_encode(const struct frame_header *h, uint8_t bytes[FRAME_HEADER_BYTES]) {
  store_be32(bytes, FRAME_MAGIC);
  bytes[4] = h->type;
  bytes[5] = 0;
  store_be16(bytes + 6, 0);
  store_be32(bytes + 8, h->stream);
  store_be32(bytes + 12, h->meta_len);
  store_be32(bytes + 16, h->bulk_len);
  store_be32(bytes + 20, h->meta_crc);
  store_be32(bytes + 24, crc32c(0, bytes, 24));
}

int frame_header_decode(const uint8_t bytes[FRAME_HEADER_BYTES], struct frame_header *ret_header,
                        const char **ret_why) {
  const char *why = NULL;
  struct frame_header h = {
      .type = bytes[4],
      .stream = load_be32(bytes + 8),
      .meta_len = load_be32(bytes + 12),
      .bulk_len = load_be32(bytes + 16),
      .meta_crc = load_be32(bytes + 20),
  };
  const struct frame_type_info *info = frame_type_info(h.type);
  if (load_be32(bytes) != FRAME_MAGIC)
    why = "bytes that are no frame";
  else if (load_be32(bytes + 24) != crc32c(0, bytes, 24))
    why = "a frame header whose CRC fails";
  else if (bytes[5] != 0 || load_be16(bytes + 6) != 0)
    why = "unknown frame flags";
  else if (!info)
    why = "an unknown frame type";
  else if (h.meta_len > info->meta_max || h.bulk_len > info->bulk_max)
    why = "an oversized frame";
  if (why) {
    *ret_why = why;
    return ERR_PROTOCOL;
  }
  *ret_header = h;
  return 0;
}

void frame_begin(struct byte_writer *w, uint8_t type) {
  w->max = FRAME_HEADER_BYTES + (size_t)types[type].meta_max;
  uint8_t *room = put_space(w, FRAME_HEADER_BYTES);
  if (room) memset(room, 0, FRAME_HEADER_BYTES);
}

int frame_end(struct byte_writer *w, uint8_t type, uint32_t stream, uint32_t bulk_len) {
  if (w->failed) return w->len + 1 >= w->max ? ERR_TOO_LARGE : -ENOMEM;
  if (bulk_len > types[type].bulk_max) return ERR_TOO_LARGE;
  uint32_t meta_len = (uint32_t)(w->len - FRAME_HEADER_BYTES);
  struct frame_header h = {type, stream, meta_len, bulk_len,
                           crc32c(0, w->data + FRAME_HEADER_BYTES, meta_len)};
  frame_header_encode(&h, w->data);
  return 0;
}

static void put_version(struct byte_writer *w, const struct version *v) {
  put_u64(w, v->hlc);
  put_u64(w, v->nonce);
}

static struct version get_version(struct byte_reader *r) {
  struct version v;
  v.hlc = get_u64(r);
  v.nonce = get_u64(r);
  return v;
}

static void put_units(struct byte_writer *w, const struct peer_unit *units, unsigned count) {
  put_u8(w, (uint8_t)count);
  for (unsigned i = 0; i < count; i++) {
    put_u32(w, units[i].len);
    put_u32(w, units[i].crc);
  }
}

/* The number of units; the reader fails where it is beyond the limit or a unit is too long. */
static unsigned get_units(struct byte_reader *r, struct peer_unit units[PEER_UNITS_MAX]) {
  unsigned count = get_u8(r);
  if (count > PEER_UNITS_MAX) {
    r->failed = true;
    return 0;
  }
  for (unsigned i = 0; i < count; i++) {
    units[i].data = NULL;
    units[i].len = get_u32(r);
    units[i].crc = get_u32(r);
    if (units[i].len > PEER_UNIT_BYTES_MAX) r->failed = true;
  }
  return count;
}

uint64_t frame_units_bytes(const struct peer_unit *units, unsigned count) {
  uint64_t sum = 0;
  for (unsigned i = 0; i < count; i++) sum += units[i].len;
  return sum;
}

void frame_put_request(struct byte_writer *w, uint16_t drive, const struct peer_request *req) {
  put_u8(w, req->verb);
  put_u8(w, req->flags);
  put_u8(w, req->pool);
  put_u8(w, req->slot);
  put_u8(w, req->bucket_state);
  put_u16(w, drive);
  put_u16(w, req->partition);
  put_u32(w, req->epoch);
  put_u32(w, req->timeout_ms);
  put_id(w, &req->bucket);
  put_version(w, &req->ver);
  put_id(w, &req->data_id);
  put_u8(w, req->profile.technique);
  put_u8(w, req->profile.k);
  put_u8(w, req->profile.m);
  put_u32(w, req->profile.unit_bytes);
  put_u64(w, req->unit_first);
  put_u32(w, req->missing);
  put_u32(w, req->limit);
  put_u64(w, req->age_ms);
  put_str16(w, req->key);
  put_str16(w, req->row);
  put_str16(w, req->from);
  put_str16(w, req->prefix);
  put_str16(w, req->delimiter);
  put_units(w, req->units, req->unit_count);
}

int frame_get_request(struct slice meta, uint16_t *ret_drive, struct peer_request *ret_req) {
  struct byte_reader r = byte_reader_of(meta);
  struct peer_request req = {0};
  req.verb = get_u8(&r);
  req.flags = get_u8(&r);
  req.pool = get_u8(&r);
  req.slot = get_u8(&r);
  req.bucket_state = get_u8(&r);
  uint16_t drive = get_u16(&r);
  req.partition = get_u16(&r);
  req.epoch = get_u32(&r);
  req.timeout_ms = get_u32(&r);
  req.bucket = get_id(&r);
  req.ver = get_version(&r);
  req.data_id = get_id(&r);
  req.profile.technique = get_u8(&r);
  req.profile.k = get_u8(&r);
  req.profile.m = get_u8(&r);
  req.profile.unit_bytes = get_u32(&r);
  req.unit_first = get_u64(&r);
  req.missing = get_u32(&r);
  req.limit = get_u32(&r);
  req.age_ms = get_u64(&r);
  req.key = get_str16(&r);
  req.row = get_str16(&r);
  req.from = get_str16(&r);
  req.prefix = get_str16(&r);
  req.delimiter = get_str16(&r);
  req.unit_count = get_units(&r, req.units);
  if (r.failed || byte_reader_left(&r) != 0) return ERR_PROTOCOL;
  *ret_drive = drive;
  *ret_req = req;
  return 0;
}

/* Lengths and ranges that hold for every verb. NULL, or what is wrong. */
static const char *check_ranges(const struct peer_request *req) {
  if (req->pool >= MAP_POOLS_MAX) return "a pool that cannot exist";
  if (req->slot >= MAP_SLOTS_MAX) return "a slot that cannot exist";
  if (req->partition >= PARTITION_COUNT) return "a partition that cannot exist";
  if (req->timeout_ms == 0 || req->timeout_ms > FRAME_TIMEOUT_MS_MAX) return "a wrong deadline";
  if (req->key.len > KEY_BYTES_MAX) return "a key that is too long";
  if (req->row.len > ROW_BYTES_MAX) return "a row that is too long";
  if (req->from.len > FRAME_CURSOR_BYTES_MAX) return "a cursor that is too long";
  if (req->prefix.len > KEY_BYTES_MAX) return "a prefix that is too long";
  if (req->delimiter.len > KEY_BYTES_MAX) return "a delimiter that is too long";
  if (req->limit > PEER_LIST_ENTRIES_MAX) return "a limit that is too high";
  if (req->unit_first > FRAME_UNIT_NUMBER_MAX) return "a unit number that is too high";
  if (req->unit_count > PEER_UNITS_MAX) return "too many units";
  for (unsigned i = 0; i < req->unit_count; i++)
    if (req->units[i].len > PEER_UNIT_BYTES_MAX) return "a unit that is too long";
  return NULL;
}

static const char *check_chunk(const struct peer_request *req) {
  const struct profile *p = &req->profile;
  if (p->technique >= TECHNIQUE_COUNT) return "an unknown technique";
  if (p->k == 0 || profile_n(p) > MAP_SLOTS_MAX) return "a profile that cannot exist";
  if (p->unit_bytes == 0 || p->unit_bytes > PEER_UNIT_BYTES_MAX) return "a wrong stripe unit";
  if (req->slot >= profile_n(p)) return "a slot beyond its profile";
  for (unsigned i = 0; req->verb == PEER_STAGE && i < req->unit_count; i++)
    if (req->units[i].len > p->unit_bytes) return "a unit longer than its profile's";
  return NULL;
}

int frame_request_check(const struct peer_request *req, const char **ret_why) {
  const struct verb_info *info =
      req->verb < PEER_VERB_END && verbs[req->verb].name ? &verbs[req->verb] : NULL;
  const char *why = NULL;
  if (!info)
    why = "an unknown verb";
  else if (req->flags & ~REQUEST_FLAGS)
    why = "unknown request flags";
  else
    why = check_ranges(req);
  if (!why && (info->rules & NEEDS_KEY) && req->key.len == 0) why = "no key";
  if (!why && (info->rules & NEEDS_ROW) && req->row.len == 0) why = "no row";
  if (!why && (info->rules & NEEDS_UNITS) && req->unit_count == 0) why = "no units";
  if (!why && !(info->rules & MAY_UNITS) && req->unit_count != 0) why = "units without use";
  if (!why && (info->rules & NEEDS_CHUNK)) why = check_chunk(req);
  if (!why && (info->rules & NEEDS_STATE) &&
      (req->bucket_state < BUCKET_ACTIVE || req->bucket_state > BUCKET_DELETED))
    why = "an unknown bucket state";
  if (!why && req->verb == PEER_ACCEPT &&
      frame_units_bytes(req->units, req->unit_count) > PEER_INLINE_BYTES_MAX)
    why = "an inline chunk that is too long";
  if (!why) return 0;
  *ret_why = why;
  return ERR_PROTOCOL;
}

uint32_t frame_request_bulk(const struct peer_request *req) {
  if (req->verb == PEER_FETCH) return 0;
  return (uint32_t)frame_units_bytes(req->units, req->unit_count);
}

const char *frame_verb_name(uint8_t verb) {
  return verb < PEER_VERB_END && verbs[verb].name ? verbs[verb].name : "unknown verb";
}

void frame_put_reply(struct byte_writer *w, const struct frame_reply *reply) {
  byte_writer_reserve(w, reply->body.len + REPLY_HEAD_BYTES); /* it is not copied as it grows */
  put_u32(w, (uint32_t)reply->err);
  put_u8(w, reply->flags);
  put_version(w, &reply->ver);
  put_units(w, reply->units, reply->unit_count);
  put_str32(w, reply->body);
}

int frame_get_reply(struct slice meta, struct frame_reply *ret_reply) {
  struct byte_reader r = byte_reader_of(meta);
  struct frame_reply reply = {0};
  reply.err = (int)get_u32(&r);
  reply.flags = get_u8(&r);
  reply.ver = get_version(&r);
  reply.unit_count = get_units(&r, reply.units);
  reply.body = get_str32(&r);
  if (r.failed || byte_reader_left(&r) != 0) return ERR_PROTOCOL;
  if (reply.err > 0 || reply.body.len > PEER_BODY_BYTES_MAX) return ERR_PROTOCOL;
  /* A newer host may know errors that this one does not: the call fails, the connection lives. */
  if (reply.err < -FRAME_ERRNO_MAX && !err_known(reply.err)) reply.err = ERR_PROTOCOL;
  *ret_reply = reply;
  return 0;
}
