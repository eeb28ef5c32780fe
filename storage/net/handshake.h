/* handshake.h: what both ends do before any other frame, as a state machine without I/O.
 *
 *   connector                         listener
 *   HELLO  ------------------------->
 *          <------------------------- HELLO
 *   PROOF  ------------------------->   verifies, checks who it is
 *          <------------------------- PROOF (or BYE)
 *   verifies, checks (or BYE)
 *
 * The listener proves itself only to somebody who has proved to know the secret, so a stranger gets
 * nothing to guess the secret from. Until handshake_proof has returned 0 nothing of the other's
 * hello may be acted upon. */
#ifndef KOFN_STORAGE_NET_HANDSHAKE_H
#define KOFN_STORAGE_NET_HANDSHAKE_H

#include "storage/net/hello.h"

enum handshake_step { HANDSHAKE_WAITS_HELLO, HANDSHAKE_WAITS_PROOF, HANDSHAKE_DONE };

struct handshake {
  struct hello_policy *policy;
  const struct cluster_map *map;
  enum hello_role role;
  int expect_host; /* whom the connector meant to reach; -1 for a listener */
  enum handshake_step step;
  struct byte_writer ours; /* the bytes of our HELLO */
  uint8_t our_challenge[HELLO_CHALLENGE_BYTES], their_challenge[HELLO_CHALLENGE_BYTES];
  uint8_t *theirs; /* a copy of the bytes of their HELLO; remote borrows from it */
  size_t theirs_len;
  struct hello *remote;
  int host; /* the remote host in the map once done; -1 */
  uint16_t version;
  char why[HELLO_WORDS_BYTES_MAX]; /* the words of a refusal, for BYE and the log */
};

/* Fills `ours`. policy and map are borrowed. On failure nothing is left behind. */
_must_check_ int handshake_open(struct handshake *hs, struct hello_policy *policy,
                                const struct cluster_map *map, enum hello_role role,
                                int expect_host, const uint8_t challenge[HELLO_CHALLENGE_BYTES]);
/* Safe on a zeroed one. */
void handshake_close(struct handshake *hs);
/* Their HELLO. 0; ERR_REFUSED or ERR_PROTOCOL with `why`; -ENOMEM. */
_must_check_ int handshake_hello(struct handshake *hs, struct slice bytes);
/* Our PROOF, after their HELLO. */
_must_check_ int handshake_prove(const struct handshake *hs, uint8_t ret_proof[SHA256_LEN]);
/* Their PROOF: verifies it, then asks who they are and whether the policy takes them. Results as
 * handshake_hello. */
_must_check_ int handshake_proof(struct handshake *hs, struct slice bytes);

#endif
