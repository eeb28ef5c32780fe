/* digest.c: see digest.h.
 *
 * The algorithms are fetched from OpenSSL once: an implicit fetch (EVP_sha256()) takes locks on
 * every use. A hash that OpenSSL refuses in the middle is a broken library, not something a caller
 * could handle: abort. */
#include "codec/digest.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <stdlib.h>

#include "config/err.h"

static pthread_once_t fetch_once = PTHREAD_ONCE_INIT;
static EVP_MD *fetched[2]; /* by enum digest_kind; kept until the process ends */

static void digest_fetch(void) {
  fetched[DIGEST_MD5] = EVP_MD_fetch(NULL, "MD5", NULL);
  fetched[DIGEST_SHA256] = EVP_MD_fetch(NULL, "SHA256", NULL);
}

static const EVP_MD *digest_md(enum digest_kind kind) {
  pthread_once(&fetch_once, digest_fetch);
  return fetched[kind];
}

int digest_begin(struct digest *d, enum digest_kind kind) {
  const EVP_MD *md = digest_md(kind);
  if (!md) return ERR_INVALID; /* MD5 is away under a FIPS provider */
  EVP_MD_CTX *evp = EVP_MD_CTX_new();
  if (!evp) return -ENOMEM;
  if (EVP_DigestInit_ex2(evp, md, NULL) != 1) {
    EVP_MD_CTX_free(evp);
    return -ENOMEM;
  }
  d->evp = evp;
  return 0;
}

void digest_update(struct digest *d, const void *data, size_t len) {
  if (len > 0 && EVP_DigestUpdate(d->evp, data, len) != 1) abort();
}

void digest_end(struct digest *d, uint8_t *out) {
  if (EVP_DigestFinal_ex(d->evp, out, NULL) != 1) abort();
  digest_abort(d);
}

void digest_abort(struct digest *d) {
  EVP_MD_CTX_free(d->evp);
  d->evp = NULL;
}

void sha256(const void *data, size_t len, uint8_t out[SHA256_LEN]) {
  if (EVP_Digest(len ? data : "", len, out, NULL, digest_md(DIGEST_SHA256), NULL) != 1) abort();
}

void hmac_sha256(struct slice key, struct slice data, uint8_t out[SHA256_LEN]) {
  const void *key_bytes = key.len ? (const void *)key.data : "";
  const uint8_t *bytes = data.len ? data.data : (const uint8_t *)"";
  if (!HMAC(digest_md(DIGEST_SHA256), key_bytes, (int)key.len, bytes, data.len, out, NULL)) abort();
}

bool digest_equal(const void *a, const void *b, size_t len) {
  return CRYPTO_memcmp(a, b, len) == 0;
}

void hex_encode(const void *data, size_t len, char *out) {
  static const char digit[] = "0123456789abcdef";
  const uint8_t *at = data;
  for (size_t i = 0; i < len; i++) {
    *out++ = digit[at[i] >> 4];
    *out++ = digit[at[i] & 15];
  }
  *out = 0;
}

static int hex_value(uint8_t c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

int hex_decode(struct slice text, uint8_t *out, size_t len) {
  if (len > SIZE_MAX / 2 || text.len != 2 * len) return ERR_INVALID;
  for (size_t i = 0; i < text.len; i++) {
    if (hex_value(text.data[i]) < 0) return ERR_INVALID;
  }
  for (size_t i = 0; i < len; i++) {
    out[i] = (uint8_t)(hex_value(text.data[2 * i]) << 4 | hex_value(text.data[2 * i + 1]));
  }
  return 0;
}

void base64_encode(const void *data, size_t len, char *out) {
  static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const uint8_t *at = data;
  for (; len >= 3; len -= 3, at += 3) {
    uint32_t v = (uint32_t)at[0] << 16 | (uint32_t)at[1] << 8 | at[2];
    *out++ = digit[v >> 18];
    *out++ = digit[v >> 12 & 63];
    *out++ = digit[v >> 6 & 63];
    *out++ = digit[v & 63];
  }
  if (len > 0) {
    uint32_t v = (uint32_t)at[0] << 16 | (len == 2 ? (uint32_t)at[1] << 8 : 0);
    *out++ = digit[v >> 18];
    *out++ = digit[v >> 12 & 63];
    *out++ = len == 2 ? digit[v >> 6 & 63] : '=';
    *out++ = '=';
  }
  *out = 0;
}

static int base64_value(uint8_t c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  if (c == '/') return 63;
  return -1;
}

int base64_decode(struct slice text, uint8_t *out, size_t cap) {
  if (text.len % 4 != 0) return ERR_INVALID;
  if (text.len == 0) return 0;
  size_t pad = text.data[text.len - 1] != '=' ? 0 : text.data[text.len - 2] != '=' ? 1 : 2;
  size_t len = text.len / 4 * 3 - pad;
  if (len > cap || len > INT32_MAX) return ERR_INVALID;
  size_t at = 0;
  for (size_t i = 0; i < text.len; i += 4) {
    uint32_t v = 0;
    for (size_t j = i; j < i + 4; j++) {
      int digit = j < text.len - pad ? base64_value(text.data[j]) : 0;
      if (digit < 0) return ERR_INVALID;
      v = v << 6 | (uint32_t)digit;
    }
    size_t part = MIN(len - at, (size_t)3);
    /* Strict: bits that no output byte takes must be zero, so that a text has one encoding. */
    if (part < 3 && (v & ((1u << (8 * (3 - part))) - 1)) != 0) return ERR_INVALID;
    for (size_t j = 0; j < part; j++) out[at++] = (uint8_t)(v >> (16 - 8 * j));
  }
  return (int)len;
}

int chunk_digest_begin(struct chunk_digest *c, const struct id128 *data_id, unsigned chunk_index) {
  struct digest sha;
  int err = digest_begin(&sha, DIGEST_SHA256);
  if (err < 0) return err;
  uint8_t head[16 + 4];
  memcpy(head, data_id->bytes, 16);
  store_be32(head + 16, chunk_index);
  digest_update(&sha, head, sizeof head);
  *c = (struct chunk_digest){sha, 0};
  return 0;
}

void chunk_digest_unit(struct chunk_digest *c, uint32_t crc, uint32_t unit_len) {
  uint8_t be[4];
  store_be32(be, crc);
  digest_update(&c->sha, be, sizeof be);
  c->length += unit_len;
}

void chunk_digest_end(struct chunk_digest *c, struct id128 *ret_digest) {
  uint8_t be[8], whole[SHA256_LEN];
  store_be64(be, c->length);
  digest_update(&c->sha, be, sizeof be);
  digest_end(&c->sha, whole);
  memcpy(ret_digest->bytes, whole, sizeof ret_digest->bytes);
}

void chunk_digest_abort(struct chunk_digest *c) {
  digest_abort(&c->sha);
}
