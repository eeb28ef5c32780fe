/* s3_auth.c: the one authenticator, before routing.
 *
 * Today: HTTP Basic (RFC 7617) with the access key and its secret, as `curl -u` sends it; and
 * nobody at all where the configuration says `anonymous: true`. A signature scheme has its seat in
 * the table. */
#include "server/s3_op.h"

#define BASIC_BYTES_MAX 512

struct s3_scheme {
  const char *prefix;
  int (*check)(struct s3_op *op, struct slice credentials);
};

/* Compares every user with the same work, so that time tells nothing about which keys exist. */
static int auth_user(struct s3_op *op, struct slice access_key, struct slice secret_key) {
  const struct settings *s = op->s3->settings;
  uint8_t got[SHA256_LEN], want[SHA256_LEN];
  const struct settings_user *found = NULL;
  bool known = false;
  sha256(secret_key.data, secret_key.len, got);
  for (unsigned i = 0; i < s->user_count; i++) {
    const struct settings_user *u = &s->users[i];
    sha256(u->secret_key, strlen(u->secret_key), want);
    bool same_key = slice_eq(access_key, slice_str(u->access_key));
    bool same_secret = digest_equal(got, want, SHA256_LEN);
    known |= same_key;
    if (same_key && same_secret) found = u;
  }
  if (!known) return S3E_INVALID_ACCESS_KEY + 1;
  if (!found) return S3E_ACCESS_DENIED + 1;
  op->user = found->name;
  return 0;
}

static int auth_basic(struct s3_op *op, struct slice credentials) {
  const struct settings *s = op->s3->settings;
  if (!op->req->peer_is_loopback && !s->server.allow_plain_basic) {
    op->refusal =
        "HTTP Basic is taken only over TLS or from loopback, unless server.allow_plain_basic is "
        "set.";
    return S3E_ACCESS_DENIED + 1;
  }
  uint8_t plain[BASIC_BYTES_MAX];
  int len = base64_decode(credentials, plain, sizeof plain);
  if (len < 0) return S3E_ACCESS_DENIED + 1;
  const uint8_t *colon = memchr(plain, ':', (size_t)len);
  if (!colon) return S3E_ACCESS_DENIED + 1;
  size_t key_len = (size_t)(colon - plain);
  return auth_user(op, slice_of(plain, key_len), slice_of(colon + 1, (size_t)len - key_len - 1));
}

static const struct s3_scheme schemes[] = {
    {"basic ", auth_basic},
};

static bool prefix_is(struct slice value, const char *prefix) {
  size_t n = strlen(prefix);
  if (value.len < n) return false;
  for (size_t i = 0; i < n; i++) {
    uint8_t c = value.data[i];
    if (c >= 'A' && c <= 'Z') c = (uint8_t)(c + 32);
    if (c != (uint8_t)prefix[i]) return false;
  }
  return true;
}

int s3_authenticate(struct s3_op *op) {
  if (op->s3->settings->server.anonymous) {
    op->user = "anonymous";
    return 0;
  }
  if (http_header_count(op->req, "authorization") > 1) return S3E_INVALID_REQUEST + 1;
  struct slice value = http_header_find(op->req, "authorization");
  if (!value.data) return S3E_ACCESS_DENIED + 1;
  for (size_t i = 0; i < ARRAY_LEN(schemes); i++) {
    if (!prefix_is(value, schemes[i].prefix)) continue;
    size_t skip = strlen(schemes[i].prefix);
    while (skip < value.len && value.data[skip] == ' ') skip++;
    return schemes[i].check(op, slice_of(value.data + skip, value.len - skip));
  }
  return S3E_AUTH_UNSUPPORTED + 1;
}
