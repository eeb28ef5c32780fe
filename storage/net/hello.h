/* hello.h: what two hosts prove and tell each other before any other frame (ARCHITECTURE.md).
 *
 * Both ends send HELLO (protocol versions, cluster name, cluster id, host id, boot state, map
 * digest and canonical text, table digest, epoch, drives with ids and boot counters, a 32-byte
 * random challenge), then PROOF: HMAC-SHA256(cluster secret, "kofn hello" | role | both challenges
 * | both HELLO bytes), compared in constant time. Only then is the other's hello believed and
 * checked by the policy. A refusal is sent as BYE with words, and logged at both ends. */
#ifndef KOFN_STORAGE_NET_HELLO_H
#define KOFN_STORAGE_NET_HELLO_H

#include "codec/bytes.h"
#include "codec/digest.h"
#include "config/cluster_map.h"

#define HELLO_BYTES_MAX (256u << 10)
#define HELLO_PROTOCOL_MIN 1
#define HELLO_PROTOCOL_MAX 1

enum boot_state {
  BOOT_EMPTY,     /* no drive is formatted, and the state directory remembers nothing */
  BOOT_FORMATTED, /* drives carry cluster_id */
};

struct hello_drive {
  uint16_t drive; /* index in the map */
  bool usable;
  struct id128 drive_id;
  uint64_t boot_counter, boot_nonce;
};

struct hello {
  uint16_t protocol_min, protocol_max;
  char cluster_name[SETTINGS_NAME_BYTES_MAX + 1];
  char host_id[SETTINGS_NAME_BYTES_MAX + 1];
  uint8_t boot; /* enum boot_state */
  struct id128 cluster_id;
  uint32_t epoch;
  uint8_t map_digest[SHA256_LEN], table_digest[SHA256_LEN];
  uint64_t wall_ms;
  unsigned drive_count;
  struct hello_drive drives[MAP_DRIVES_MAX];
  const char *canonical; /* membership text; borrowed */
};

/* What the connection code asks of the process. Thread-safe: called from every loop. */
struct hello_policy {
  /* Fills everything; `canonical` stays the policy's. */
  void (*fill)(struct hello_policy *p, struct hello *out);
  /* 0, or ERR_REFUSED with words that say how they differ ("membership differs: they have \"...\",
   * we have ..."). `host` is the index of the remote host in our map, or -1 when unknown (then
   * refused). */
  int (*check)(struct hello_policy *p, int host, const struct hello *remote, char *why,
               size_t why_cap);
  /* A CONTROL frame (bootstrap). Appends the answer. 0 or an error to send back. */
  int (*control)(struct hello_policy *p, int host, struct slice request, struct byte_writer *reply);
  struct slice secret; /* cluster secret */
};

#define HELLO_CHALLENGE_BYTES 32
#define HELLO_WORDS_BYTES_MAX 1024 /* of a BYE, with its NUL */

/* Who opened the connection is part of the proof, so that a proof cannot be sent back to its maker.
 */
enum hello_role { HELLO_CONNECTOR = 'c', HELLO_LISTENER = 'l' };

/* Appends a HELLO's bytes. */
void hello_put(struct byte_writer *w, const struct hello *h,
               const uint8_t challenge[HELLO_CHALLENGE_BYTES]);
/* The versions stand first in every HELLO of every version: 0, or ERR_PROTOCOL. */
_must_check_ int hello_get_versions(struct slice bytes, uint16_t *ret_min, uint16_t *ret_max);
/* Checks form and limits; ERR_PROTOCOL. `canonical` borrows from bytes. Bytes behind the last known
 * field are allowed (a newer host's), and are proved like the rest. */
_must_check_ int hello_get(struct slice bytes, struct hello *ret_hello,
                           uint8_t ret_challenge[HELLO_CHALLENGE_BYTES]);
/* The drives alone. hello_get_drives fills drives and drive_count. */
void hello_put_drives(struct byte_writer *w, const struct hello *h);
_must_check_ int hello_get_drives(struct byte_reader *r, struct hello *ret_hello);
/* What a PONG brings: drives, and wall_ms (0 from a host that does not tell it). */
void hello_put_pong(struct byte_writer *w, const struct hello *h);
_must_check_ int hello_get_pong(struct byte_reader *r, struct hello *ret_hello);
/* The highest version that both speak, or ERR_REFUSED. */
_must_check_ int hello_version_agree(uint16_t their_min, uint16_t their_max, uint16_t *ret_version);

/* What the proofs are made over. */
struct hello_transcript {
  const uint8_t *connector_challenge, *listener_challenge;
  struct slice connector_hello, listener_hello;
};
/* The proof of `role`; -ENOMEM. */
_must_check_ int hello_proof(struct slice secret, enum hello_role role,
                             const struct hello_transcript *t, uint8_t ret_proof[SHA256_LEN]);

/* BYE: an error and words for a log line. Decoding replaces unprintable bytes. */
void hello_put_bye(struct byte_writer *w, int err, const char *words);
_must_check_ int hello_get_bye(struct slice meta, int *ret_err, char words[HELLO_WORDS_BYTES_MAX]);

#endif
