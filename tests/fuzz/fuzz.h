/* fuzz.h: what the fuzz targets share.
 *
 * A target is one file fuzz_<name>.c with LLVMFuzzerTestOneInput. With libFuzzer it is a campaign
 * (fuzz.py); with corpus_main.c it is the unit test that runs its committed corpus. A target must
 * not keep state from one input to the next, and takes every random choice from the input, so that
 * an input that fails once fails always. FUZZ_CHECK is on in every build type. */
#ifndef KOFN_TESTS_FUZZ_FUZZ_H
#define KOFN_TESTS_FUZZ_FUZZ_H

#include <stdio.h>
#include <stdlib.h>

#include "codec/bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

#define FUZZ_CHECK(cond)                                                        \
  do {                                                                          \
    if (!(cond)) {                                                              \
      fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #cond); \
      abort();                                                                  \
    }                                                                           \
  } while (0)

/* Set while an input is timed (corpus_main.c): it is then not cut into pieces, for what the cutting
 * itself costs would be measured with it. */
__attribute__((weak)) bool fuzz_timing;

/* ---- choices ---- */

struct fuzz_rand {
  uint64_t state;
};

/* From the input itself (FNV-1a), so that the same input makes the same choices. */
static inline struct fuzz_rand fuzz_rand_of(struct slice s, uint64_t salt) {
  uint64_t h = 0xcbf29ce484222325u ^ salt;
  for (size_t i = 0; i < s.len; i++) h = (h ^ s.data[i]) * 0x100000001b3u;
  return (struct fuzz_rand){h};
}

static inline uint64_t fuzz_next(struct fuzz_rand *r) {
  uint64_t z = r->state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

static inline size_t fuzz_below(struct fuzz_rand *r, size_t n) {
  return n ? (size_t)(fuzz_next(r) % n) : 0;
}

/* The size of the next piece of `left` bytes: mostly short, now and then long; never 0. */
static inline size_t fuzz_piece(struct fuzz_rand *r, size_t left) {
  static const size_t scale[] = {1, 4, 40, 700, 9000};
  if (fuzz_timing) return left;
  size_t n = 1 + fuzz_below(r, scale[fuzz_below(r, ARRAY_LEN(scale))]);
  return MIN(MAX(n, left / 256), left);
}

/* ---- memory ---- */

/* A copy that ends exactly where a sanitizer looks. The caller frees. */
static inline uint8_t *fuzz_copy(struct slice s) {
  uint8_t *copy = malloc(s.len);
  FUZZ_CHECK(copy || s.len == 0);
  if (s.len) memcpy(copy, s.data, s.len);
  return copy;
}

/* With a NUL behind it. */
static inline char *fuzz_text(struct slice s) {
  char *text = malloc(s.len + 1);
  FUZZ_CHECK(text);
  if (s.len) memcpy(text, s.data, s.len);
  text[s.len] = 0;
  return text;
}

/* ---- an input in parts ---- */

static inline uint8_t fuzz_u8(struct slice *in) {
  if (in->len == 0) return 0;
  uint8_t v = *in->data;
  *in = slice_of(in->data + 1, in->len - 1);
  return v;
}

static inline struct slice fuzz_take(struct slice *in, size_t len) {
  struct slice s = slice_of(in->data, MIN(len, in->len));
  *in = slice_of(in->data + s.len, in->len - s.len);
  return s;
}

/* Up to the next byte `end`, which is dropped; the rest where there is none. */
static inline struct slice fuzz_until(struct slice *in, uint8_t end) {
  const uint8_t *at = in->len ? memchr(in->data, end, in->len) : NULL;
  struct slice s = fuzz_take(in, at ? (size_t)(at - in->data) : in->len);
  if (at) (void)fuzz_u8(in);
  return s;
}

#endif
