/* codec.c: the registry of techniques, and encoding.
 *
 * A technique is a row of the table: the shapes for which it is proven that any k chunks decode, or
 * what xor3p promises instead. tests/unit/codec/codec_test.c inverts every pattern (or a large
 * sample) within these limits. */
#include "codec/codec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "codec/plan.h"
#include "codec/stats.h"
#include "codec/stripe.h"
#include "codec/xor3p.h"
#include "config/err.h"

#define LIMITS_MAX 2

/* Up to m_max parity chunks are proven for up to k_max data chunks. */
struct technique_limit {
  unsigned m_max, k_max;
};

struct technique_row {
  unsigned m_min;
  bool replicates; /* with k = 1 any m is allowed */
  struct technique_limit limits[LIMITS_MAX];
};

static const struct technique_row techniques[TECHNIQUE_COUNT] = {
    [TECHNIQUE_NONE] = {0, false, {{0, MAP_SLOTS_MAX}}},
    [TECHNIQUE_REED_SOL_VAN] = {1, true, {{3, MAP_SLOTS_MAX}, {4, 21}}},
    [TECHNIQUE_CAUCHY] = {1, true, {{MAP_SLOTS_MAX, MAP_SLOTS_MAX}}},
    [TECHNIQUE_XOR] = {1, false, {{1, MAP_SLOTS_MAX - 1}}},
    [TECHNIQUE_XOR3P] = {1, false, {{XOR3P_K_MAX, XOR3P_K_MAX}}},
};

static int check_limits(const struct profile *p, char *why, size_t why_cap) {
  const struct technique_row *t = &techniques[p->technique];
  const char *name = technique_name(p->technique);
  unsigned m_most = 0;
  for (unsigned i = 0; i < LIMITS_MAX; i++) {
    m_most = MAX(m_most, t->limits[i].m_max);
    if (p->m > t->limits[i].m_max) continue;
    if (p->k <= t->limits[i].k_max) return 0;
    snprintf(why, why_cap, "%s with m=%u is proven only up to k=%u", name, p->m,
             t->limits[i].k_max);
    return ERR_INVALID;
  }
  if (t->m_min == m_most) {
    snprintf(why, why_cap, "%s needs m=%u, not %u", name, m_most, p->m);
  } else {
    snprintf(why, why_cap, "%s is proven only up to m=%u, not for m=%u", name, m_most, p->m);
  }
  return ERR_INVALID;
}

static int check_xor3p(const struct profile *p, char *why, size_t why_cap) {
  if (p->k % XOR3P_GROUP != 0) {
    snprintf(why, why_cap, "xor3p needs k to be a multiple of %d, not %u", XOR3P_GROUP, p->k);
    return ERR_INVALID;
  }
  if (p->m != p->k) {
    snprintf(why, why_cap, "xor3p needs m=%u for k=%u (three parity chunks for three data), not %u",
             p->k, p->k, p->m);
    return ERR_INVALID;
  }
  return 0;
}

int codec_check(const struct profile *p, char *why, size_t why_cap) {
  if (p->technique >= TECHNIQUE_COUNT) {
    snprintf(why, why_cap, "technique number %u is unknown", p->technique);
    return ERR_INVALID;
  }
  if (p->k < 1 || profile_n(p) > MAP_SLOTS_MAX) {
    snprintf(why, why_cap, "k=%u with m=%u is out of range (k at least 1, k+m at most %d)", p->k,
             p->m, MAP_SLOTS_MAX);
    return ERR_INVALID;
  }
  if (p->unit_bytes == 0 || p->unit_bytes % STRIPE_ALIGN != 0) {
    snprintf(why, why_cap, "a stripe unit of %u bytes is not a multiple of %d", p->unit_bytes,
             STRIPE_ALIGN);
    return ERR_INVALID;
  }
  const struct technique_row *t = &techniques[p->technique];
  if (p->m < t->m_min) {
    snprintf(why, why_cap, "%s needs m of at least %u", technique_name(p->technique), t->m_min);
    return ERR_INVALID;
  }
  if (p->technique == TECHNIQUE_XOR3P) return check_xor3p(p, why, why_cap);
  if (p->k == 1 && t->replicates) return 0;
  return check_limits(p, why, why_cap);
}

int codec_new(const struct profile *p, struct codec **ret_codec) {
  char why[128];
  int err = codec_check(p, why, sizeof why);
  if (err < 0) return err;
  struct codec *c = calloc(1, sizeof *c);
  if (!c) return -ENOMEM;
  c->profile = *p;
  matrix_fill(p, c->rows);
  err = coder_open(&c->encoder, c->rows + (size_t)p->k * p->k, p->k, p->m);
  if (err < 0) {
    free(c);
    return err;
  }
  plan_cache_open(&c->plans);
  *ret_codec = c;
  return 0;
}

void codec_free(struct codec *c) {
  if (!c) return;
  plan_cache_close(&c->plans);
  coder_close(&c->encoder);
  free(c);
}

const struct profile *codec_profile(const struct codec *c) {
  return &c->profile;
}

unsigned codec_d(const struct codec *c) {
  /* xor3p: two losses always leave enough, three of one group may not (xor3p.h). */
  return c->profile.technique == TECHNIQUE_XOR3P ? profile_n(&c->profile) - 2 : c->profile.k;
}

void codec_encode(const struct codec *c, const uint8_t *const *data, uint8_t *const *parity,
                  size_t len) {
  codec_count(c->encoder.is_xor ? STAT_ENCODE_XOR : STAT_ENCODE_GENERAL);
  coder_run(&c->encoder, data, parity, len);
}
