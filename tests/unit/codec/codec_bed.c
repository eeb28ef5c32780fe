/* codec_bed.c: see codec_bed.h. */
#include "tests/unit/codec/codec_bed.h"

#include <stdlib.h>

#define UNIT_ALLOWED 64

void bed_fill(uint8_t *out, size_t len, uint32_t seed) {
  for (size_t i = 0; i < len; i++) {
    seed = seed * 1664525u + 1013904223u;
    out[i] = (uint8_t)(seed >> 24);
  }
}

bool bed_stripe_open(struct bed_stripe *s, unsigned technique, unsigned k, unsigned m, size_t len) {
  struct profile p = {(uint8_t)technique, (uint8_t)k, (uint8_t)m, UNIT_ALLOWED};
  size_t step = len + 3;
  *s = (struct bed_stripe){.k = k, .m = m, .n = k + m, .len = len};
  s->all = (uint32_t)((UINT64_C(1) << s->n) - 1);
  if (codec_new(&p, &s->codec) < 0) return false;
  s->memory = malloc(2 * s->n * step + 64);
  if (!s->memory) {
    codec_free(s->codec);
    return false;
  }
  for (unsigned i = 0; i < s->n; i++) {
    s->units[i] = s->memory + 1 + i * step;
    s->original[i] = s->memory + 1 + (s->n + i) * step;
    bed_fill(s->units[i], len, k * 31 + m * 7 + i);
  }
  codec_encode(s->codec, (const uint8_t *const *)s->units, s->units + k, len);
  for (unsigned i = 0; i < s->n; i++) memcpy(s->original[i], s->units[i], len);
  return true;
}

void bed_stripe_close(struct bed_stripe *s) {
  codec_free(s->codec);
  free(s->memory);
}

int bed_stripe_rebuild(struct bed_stripe *s, uint32_t have, uint32_t want) {
  struct codec_plan *plan;
  int err = codec_plan_get(s->codec, have, want, &plan);
  if (err < 0) return err;
  uint32_t lost = s->all & ~codec_plan_sources(plan);
  for (unsigned i = 0; i < s->n; i++) {
    if (lost >> i & 1) memset(s->units[i], 0xee, s->len);
  }
  codec_plan_run(plan, s->units, s->len);
  if (codec_plan_sources(plan) & ~have) err = 1;
  codec_plan_put(s->codec, plan);
  for (unsigned i = 0; i < s->n; i++) {
    bool restored = !(lost >> i & 1) || want >> i & 1;
    if (restored && memcmp(s->units[i], s->original[i], s->len) != 0) err = 1;
    for (size_t b = 0; !restored && b < s->len; b++) {
      if (s->units[i][b] != 0xee) err = 1;
    }
    memcpy(s->units[i], s->original[i], s->len);
  }
  return err;
}
