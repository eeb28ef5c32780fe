/* golden_test.c: the chunks of known bytes are, for ever, those in tests/golden/chunks.txt, which
 * golden.py wrote without any code of ours. A difference means that stored objects would no longer
 * decode: change the code, never the file. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "codec/codec.h"
#include "codec/crc32c.h"
#include "codec/digest.h"
#include "codec/stripe.h"

#define BODY_MAX 2048
#define LINE_MAX_ 8192

struct blob {
  struct profile profile;
  struct stripe_geometry geometry;
  uint8_t chunks[MAP_SLOTS_MAX][BODY_MAX];
  size_t len[MAP_SLOTS_MAX];
};

static const struct id128 blob_id = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};

/* The stored form of golden.py's body: stripe by stripe, padded for the coder, stored unpadded. */
static void blob_encode(struct blob *b, uint64_t size) {
  uint8_t body[BODY_MAX], padded[MAP_SLOTS_MAX][BODY_MAX];
  uint8_t *units[MAP_SLOTS_MAX];
  uint32_t state = 1;
  for (uint64_t i = 0; i < size; i++) {
    state = state * 1664525u + 1013904223u;
    body[i] = (uint8_t)(state >> 24);
  }
  struct codec *c;
  cr_assert_eq(codec_new(&b->profile, &c), 0);
  b->geometry = stripe_geometry_of(&b->profile, size);
  memset(b->len, 0, sizeof b->len);
  for (unsigned i = 0; i < MAP_SLOTS_MAX; i++) units[i] = padded[i];
  uint64_t at = 0;
  for (uint64_t s = 0; s < b->geometry.stripe_count; s++) {
    uint32_t coded = stripe_unit_coded_len(&b->geometry, s);
    for (unsigned i = 0; i < b->profile.k; i++) {
      uint32_t len = stripe_unit_len(&b->geometry, s, i);
      memset(padded[i], 0, coded);
      memcpy(padded[i], body + at, len);
      at += len;
    }
    codec_encode(c, (const uint8_t *const *)units, units + b->profile.k, coded);
    for (unsigned i = 0; i < profile_n(&b->profile); i++) {
      uint32_t len = stripe_unit_len(&b->geometry, s, i);
      memcpy(b->chunks[i] + b->len[i], padded[i], len);
      b->len[i] += len;
    }
  }
  cr_assert_eq(at, size);
  codec_free(c);
}

static void check_chunk(const struct blob *b, unsigned index, const char *sha, const char *digest,
                        const char *crcs, const char *hex) {
  uint8_t hash[SHA256_LEN];
  char text[2 * BODY_MAX + 1], digest_text[ID128_HEX_LEN + 1];
  hex_encode(b->chunks[index], b->len[index], text);
  cr_assert_str_eq(b->len[index] ? text : "-", hex, "chunk %u of %s %u+%u", index,
                   technique_name(b->profile.technique), b->profile.k, b->profile.m);
  sha256(b->chunks[index], b->len[index], hash);
  hex_encode(hash, sizeof hash, text);
  cr_assert_str_eq(text, sha);

  struct chunk_digest d;
  struct id128 id;
  size_t at = 0;
  cr_assert_eq(chunk_digest_begin(&d, &blob_id, index), 0);
  for (uint64_t s = 0; s < b->geometry.stripe_count; s++) {
    uint32_t len = stripe_unit_len(&b->geometry, s, index);
    uint32_t crc = unit_crc(&blob_id, index, s, b->chunks[index] + at, len);
    char crc_text[9];
    snprintf(crc_text, sizeof crc_text, "%08x", crc);
    cr_assert_eq(strncmp(crcs + 9 * s, crc_text, 8), 0);
    chunk_digest_unit(&d, crc, len);
    at += len;
  }
  chunk_digest_end(&d, &id);
  id128_hex(&id, digest_text);
  cr_assert_str_eq(digest_text, digest);
}

Test(golden, encodings_never_change) {
  const char *source = getenv("KOFN_SOURCE_DIR");
  char path[1024], *line = malloc(LINE_MAX_);
  struct blob *b = calloc(1, sizeof *b);
  snprintf(path, sizeof path, "%s/tests/golden/chunks.txt", source ? source : ".");
  FILE *f = fopen(path, "r");
  cr_assert(f && line && b, "%s (KOFN_SOURCE_DIR names the source)", path);
  unsigned blobs = 0, chunks = 0, technique_seen = 0;
  while (fgets(line, LINE_MAX_, f)) {
    char technique[32], sha[65], digest[33], *crcs = NULL, *hex = NULL;
    unsigned k, m, unit, index, len;
    unsigned long size;
    if (sscanf(line, "blob %31s %u %u %u %lu", technique, &k, &m, &unit, &size) == 5) {
      int found = technique_find(technique);
      cr_assert_geq(found, 0);
      cr_assert_leq(size, BODY_MAX);
      b->profile = (struct profile){(uint8_t)found, (uint8_t)k, (uint8_t)m, unit};
      blob_encode(b, size);
      technique_seen |= 1u << found;
      blobs++;
    } else if (sscanf(line, "chunk %u %u %64s %32s %ms %ms", &index, &len, sha, digest, &crcs,
                      &hex) == 6) {
      cr_assert_eq(b->len[index], len);
      check_chunk(b, index, sha, digest, crcs, hex);
      chunks++;
    } else {
      cr_assert_eq(line[0], '#', "%s", line);
    }
    free(crcs);
    free(hex);
  }
  fclose(f);
  free(b);
  free(line);
  cr_assert_geq(blobs, 23u);
  cr_assert_geq(chunks, 180u);
  cr_assert_eq(technique_seen, (1u << TECHNIQUE_COUNT) - 1, "every technique has a golden file");
}
