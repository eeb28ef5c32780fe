/* handshake.c: see handshake.h. */
#include "storage/net/handshake.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/err.h"

int handshake_open(struct handshake *hs, struct hello_policy *policy, const struct cluster_map *map,
                   enum hello_role role, int expect_host,
                   const uint8_t challenge[HELLO_CHALLENGE_BYTES]) {
  struct hello *hello = calloc(1, sizeof *hello);
  if (!hello) return -ENOMEM;
  *hs = (struct handshake){.policy = policy,
                           .map = map,
                           .role = role,
                           .expect_host = expect_host,
                           .host = -1,
                           .ours = {.max = HELLO_BYTES_MAX}};
  memcpy(hs->our_challenge, challenge, sizeof hs->our_challenge);
  policy->fill(policy, hello);
  hello->protocol_min = HELLO_PROTOCOL_MIN;
  hello->protocol_max = HELLO_PROTOCOL_MAX;
  hello_put(&hs->ours, hello, challenge);
  free(hello);
  if (!hs->ours.failed) return 0;
  handshake_close(hs);
  return ERR_TOO_LARGE;
}

void handshake_close(struct handshake *hs) {
  byte_writer_free(&hs->ours);
  free(TAKE(hs->theirs));
  free(TAKE(hs->remote));
}

static int refuse(struct handshake *hs, int err, const char *why) {
  snprintf(hs->why, sizeof hs->why, "%s", why);
  return err;
}

int handshake_hello(struct handshake *hs, struct slice bytes) {
  uint16_t min, max;
  if (hs->step != HANDSHAKE_WAITS_HELLO) return refuse(hs, ERR_PROTOCOL, "a second HELLO");
  if (hello_get_versions(bytes, &min, &max) < 0)
    return refuse(hs, ERR_PROTOCOL, "a malformed HELLO");
  if (hello_version_agree(min, max, &hs->version) < 0) {
    snprintf(hs->why, sizeof hs->why,
             "protocol versions differ: they speak %u to %u, we speak %u to %u", min, max,
             (unsigned)HELLO_PROTOCOL_MIN, (unsigned)HELLO_PROTOCOL_MAX);
    return ERR_REFUSED;
  }
  hs->theirs = malloc(bytes.len);
  hs->remote = calloc(1, sizeof *hs->remote);
  if (!hs->theirs || !hs->remote) return refuse(hs, -ENOMEM, "no memory");
  memcpy(hs->theirs, bytes.data, bytes.len);
  hs->theirs_len = bytes.len;
  if (hello_get(slice_of(hs->theirs, hs->theirs_len), hs->remote, hs->their_challenge) < 0)
    return refuse(hs, ERR_PROTOCOL, "a malformed HELLO");
  /* Our own challenge come back: a mirror, or ourselves without a secret worth the name. */
  if (digest_equal(hs->our_challenge, hs->their_challenge, HELLO_CHALLENGE_BYTES))
    return refuse(hs, ERR_REFUSED, "they send back our own challenge");
  hs->step = HANDSHAKE_WAITS_PROOF;
  return 0;
}

static int proof_of(const struct handshake *hs, enum hello_role role,
                    uint8_t ret_proof[SHA256_LEN]) {
  bool connector = hs->role == HELLO_CONNECTOR;
  struct slice ours = slice_of(hs->ours.data, hs->ours.len);
  struct slice theirs = slice_of(hs->theirs, hs->theirs_len);
  struct hello_transcript t = {
      .connector_challenge = connector ? hs->our_challenge : hs->their_challenge,
      .listener_challenge = connector ? hs->their_challenge : hs->our_challenge,
      .connector_hello = connector ? ours : theirs,
      .listener_hello = connector ? theirs : ours,
  };
  return hello_proof(hs->policy->secret, role, &t, ret_proof);
}

int handshake_prove(const struct handshake *hs, uint8_t ret_proof[SHA256_LEN]) {
  assert(hs->step != HANDSHAKE_WAITS_HELLO);
  return proof_of(hs, hs->role, ret_proof);
}

/* Their hello is genuine: is it whom we want? */
static int handshake_identity(struct handshake *hs) {
  int host = cluster_map_find_host(hs->map, hs->remote->host_id);
  if (host >= 0 && (unsigned)host == hs->map->self) {
    snprintf(hs->why, sizeof hs->why, "both say that they are host %s", hs->remote->host_id);
    return ERR_REFUSED;
  }
  if (hs->expect_host >= 0 && host != hs->expect_host) {
    snprintf(hs->why, sizeof hs->why, "at the address of host %s answers host %s",
             hs->map->hosts[hs->expect_host].id, hs->remote->host_id);
    return ERR_REFUSED;
  }
  if (host < 0) host = -1;
  int err = hs->policy->check(hs->policy, host, hs->remote, hs->why, sizeof hs->why);
  if (err == 0 && host < 0) {
    snprintf(hs->why, sizeof hs->why, "the cluster has no host %s", hs->remote->host_id);
    err = ERR_REFUSED;
  }
  if (err < 0) {
    if (!hs->why[0]) return refuse(hs, err, err_words(err));
    return err;
  }
  hs->host = host;
  return 0;
}

int handshake_proof(struct handshake *hs, struct slice bytes) {
  if (hs->step != HANDSHAKE_WAITS_PROOF) return refuse(hs, ERR_PROTOCOL, "an early PROOF");
  if (bytes.len != SHA256_LEN) return refuse(hs, ERR_PROTOCOL, "a malformed PROOF");
  if (hs->policy->secret.len == 0) return refuse(hs, ERR_REFUSED, "no cluster secret is set");
  uint8_t proof[SHA256_LEN];
  enum hello_role role = hs->role == HELLO_CONNECTOR ? HELLO_LISTENER : HELLO_CONNECTOR;
  int err = proof_of(hs, role, proof);
  if (err < 0) return refuse(hs, err, "no memory");
  if (!digest_equal(proof, bytes.data, SHA256_LEN))
    return refuse(hs, ERR_REFUSED, "cluster secret differs");
  err = handshake_identity(hs);
  if (err < 0) return err;
  hs->step = HANDSHAKE_DONE;
  return 0;
}
