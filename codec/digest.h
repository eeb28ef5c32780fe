/* digest.h: MD5, SHA-256, HMAC-SHA256 (OpenSSL 3 EVP), hex and base64, and the digest of a chunk.
 */
#ifndef KOFN_CODEC_DIGEST_H
#define KOFN_CODEC_DIGEST_H

#include "config/base.h"

#define MD5_LEN 16
#define SHA256_LEN 32

enum digest_kind { DIGEST_MD5, DIGEST_SHA256 };

/* A running hash. Owned by the caller: digest_begin / digest_end pair, or digest_abort. */
struct digest {
  void *evp;
};

_must_check_ int digest_begin(struct digest *d, enum digest_kind kind);
void digest_update(struct digest *d, const void *data, size_t len);
/* Writes MD5_LEN or SHA256_LEN bytes and releases the hash. */
void digest_end(struct digest *d, uint8_t *out);
/* Releases without a result; safe on a zeroed or ended digest. */
void digest_abort(struct digest *d);

void sha256(const void *data, size_t len, uint8_t out[SHA256_LEN]);
void hmac_sha256(struct slice key, struct slice data, uint8_t out[SHA256_LEN]);
/* Constant time. */
bool digest_equal(const void *a, const void *b, size_t len);

void hex_encode(const void *data, size_t len, char *out); /* 2*len + NUL */
_must_check_ int hex_decode(struct slice text, uint8_t *out,
                            size_t len);                     /* ERR_INVALID unless 2*len digits */
void base64_encode(const void *data, size_t len, char *out); /* 4*ceil(len/3) + NUL */
/* Strict RFC 4648 with padding. Writes at most cap bytes; returns the length or ERR_INVALID. */
_must_check_ int base64_decode(struct slice text, uint8_t *out, size_t cap);

/* The 128-bit digest of a chunk: SHA-256 of (blob id, chunk index, [CRC32C of each unit as
 * u32be]..., chunk length), cut to 16 bytes. Running, so that it needs no table: begin, one call
 * per unit in order, end. */
struct chunk_digest {
  struct digest sha;
  uint64_t length;
};
_must_check_ int chunk_digest_begin(struct chunk_digest *c, const struct id128 *data_id,
                                    unsigned chunk_index);
void chunk_digest_unit(struct chunk_digest *c, uint32_t crc, uint32_t unit_len);
void chunk_digest_end(struct chunk_digest *c, struct id128 *ret_digest);
void chunk_digest_abort(struct chunk_digest *c);

#endif
