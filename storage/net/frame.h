/* frame.h: what travels on a connection between two hosts, as bytes. Pure functions on memory.
 *
 *   header (28 bytes) | meta | bulk
 *
 * header: magic u32, type u8, flags u8, zero u16, stream u32, meta length u32, bulk length u32,
 *         CRC32C of meta u32, CRC32C of the 24 bytes before u32; all big-endian.
 * meta:   the encoded request, reply, hello...; at most what the type table allows.
 * bulk:   the units' bytes back to back; their lengths and CRCs stand in meta, and unit_crc() is
 *         the check of the bytes themselves.
 *
 * Every decoder returns ERR_PROTOCOL for bytes that it does not understand, reads nothing beyond
 * them, and leaves its results untouched then. Errors travel as their numbers: a new ERR_* goes to
 * the end of its table. */
#ifndef KOFN_STORAGE_NET_FRAME_H
#define KOFN_STORAGE_NET_FRAME_H

#include "codec/bytes.h"
#include "storage/object/peer.h"

#define FRAME_MAGIC 0x6b666e31u /* "kfn1" */
#define FRAME_HEADER_BYTES 28
#define FRAME_REQUEST_META_BYTES_MAX (32u << 10)
#define FRAME_REPLY_META_BYTES_MAX (PEER_BODY_BYTES_MAX + (1u << 10))
#define FRAME_CONTROL_BYTES_MAX (4u << 20)
#define FRAME_BULK_BYTES_MAX (PEER_UNITS_MAX * PEER_UNIT_BYTES_MAX)
#define FRAME_CURSOR_BYTES_MAX 2048 /* `from`: a key, or an opaque cursor around one */
#define FRAME_TIMEOUT_MS_MAX 600000 /* of one request */
#define FRAME_UNIT_NUMBER_MAX (1ull << 40)

enum frame_type {
  FRAME_HELLO = 1,
  FRAME_PROOF,
  FRAME_BYE, /* a refusal or a farewell, in words; the connection ends */
  FRAME_REQUEST,
  FRAME_REPLY,
  FRAME_CANCEL, /* the sender no longer wants the reply of this stream */
  FRAME_CONTROL,
  FRAME_CONTROL_REPLY,
  FRAME_PING, /* answered by PONG with the drives' present state and the clock (hello_put_pong) */
  FRAME_PONG,
  FRAME_TYPE_END
};

enum frame_phase { FRAME_IN_HANDSHAKE = 1, FRAME_WHEN_OPEN = 2 };
enum frame_sender { FRAME_BY_CONNECTOR = 1, FRAME_BY_LISTENER = 2 };

struct frame_type_info {
  const char *name;
  uint32_t meta_max, bulk_max;
  uint8_t phases;  /* enum frame_phase */
  uint8_t senders; /* enum frame_sender */
};

/* NULL for a type that does not exist. */
const struct frame_type_info *frame_type_info(uint8_t type);

struct frame_header {
  uint8_t type;
  uint32_t stream;
  uint32_t meta_len, bulk_len, meta_crc;
};

/* Checks magic, CRC, type, and both lengths against the type. *ret_why (static words) is set only
 * on failure. */
_must_check_ int frame_header_decode(const uint8_t bytes[FRAME_HEADER_BYTES],
                                     struct frame_header *ret_header, const char **ret_why);
void frame_header_encode(const struct frame_header *h, uint8_t bytes[FRAME_HEADER_BYTES]);

/* A frame in a writer: frame_begin leaves room for the header, the caller appends meta, frame_end
 * fills the header in. Only one frame a writer. */
void frame_begin(struct byte_writer *w, uint8_t type);
/* 0, or ERR_TOO_LARGE (-ENOMEM without memory). */
_must_check_ int frame_end(struct byte_writer *w, uint8_t type, uint32_t stream, uint32_t bulk_len);

void frame_put_request(struct byte_writer *w, uint16_t drive, const struct peer_request *req);
/* Slices borrow from meta; units have lengths and CRCs, and data == NULL. Only the form is checked:
 * frame_request_check looks at the values. */
_must_check_ int frame_get_request(struct slice meta, uint16_t *ret_drive,
                                   struct peer_request *ret_req);
/* What must hold before a request may reach a drive: verb, slot, lengths, profile... 0, or
 * ERR_PROTOCOL with static words. */
_must_check_ int frame_request_check(const struct peer_request *req, const char **ret_why);
/* Bytes of bulk that follow a request with these units (0 for FETCH, whose units are room). */
uint32_t frame_request_bulk(const struct peer_request *req);
const char *frame_verb_name(uint8_t verb);

/* A reply as it stands on the wire. */
struct frame_reply {
  int err;
  uint8_t flags;
  struct version ver;
  unsigned unit_count;
  struct peer_unit units[PEER_UNITS_MAX]; /* data == NULL after decoding */
  struct slice body;                      /* borrowed */
};
void frame_put_reply(struct byte_writer *w, const struct frame_reply *reply);
_must_check_ int frame_get_reply(struct slice meta, struct frame_reply *ret_reply);
/* Sum of the units' lengths; at most FRAME_BULK_BYTES_MAX for checked units. */
uint64_t frame_units_bytes(const struct peer_unit *units, unsigned count);

#endif
