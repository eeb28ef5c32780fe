/* subsets_test.c: every set of k chunks out of at most 16, under every technique; every loss of an
 * object at the sizes where stripes begin and end; rotten units. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "codec/crc32c.h"
#include "codec/stripe.h"
#include "config/err.h"
#include "tests/unit/codec/codec_bed.h"

#define N_MAX 16
#define UNIT 128u

/* All k-subsets of one shape: everything else is rebuilt from exactly those. */
static unsigned every_subset(unsigned technique, unsigned k, unsigned m) {
  struct bed_stripe s;
  unsigned tried = 0;
  cr_assert(bed_stripe_open(&s, technique, k, m, 24));
  for (uint64_t have = (UINT64_C(1) << k) - 1; have <= s.all; have = bed_next_subset(have)) {
    uint32_t want = s.all & ~(uint32_t)have;
    bool decodable = codec_decodable(s.codec, (uint32_t)have);
    cr_assert(decodable || technique == TECHNIQUE_XOR3P);
    tried++;
    if (want == 0) continue;
    cr_assert_eq(bed_stripe_rebuild(&s, (uint32_t)have, want), decodable ? 0 : ERR_UNAVAILABLE,
                 "%s %u+%u have %x", technique_name(technique), k, m, (unsigned)have);
  }
  bed_stripe_close(&s);
  return tried;
}

static void every_shape(unsigned technique, unsigned shapes_min) {
  unsigned shapes = 0, tried = 0;
  for (unsigned k = 1; k <= N_MAX; k++) {
    for (unsigned m = 0; k + m <= N_MAX; m++) {
      struct profile p = {(uint8_t)technique, (uint8_t)k, (uint8_t)m, 64};
      char why[128];
      if (codec_check(&p, why, sizeof why) < 0) continue;
      tried += every_subset(technique, k, m);
      shapes++;
    }
  }
  cr_assert_geq(shapes, shapes_min);
  cr_assert_geq(tried, shapes);
}

Test(subsets, none) {
  every_shape(TECHNIQUE_NONE, 16);
}
Test(subsets, reed_sol_van) {
  every_shape(TECHNIQUE_REED_SOL_VAN, 50);
}
Test(subsets, cauchy) {
  every_shape(TECHNIQUE_CAUCHY, 100);
}
Test(subsets, xor) {
  every_shape(TECHNIQUE_XOR, 15);
}
Test(subsets, xor3p) {
  every_shape(TECHNIQUE_XOR3P, 2);
}

Test(subsets, what_the_configuration_says_of_d_is_what_the_codes_do) {
  for (unsigned t = 0; t < TECHNIQUE_COUNT; t++) {
    for (unsigned k = 1; k <= MAP_SLOTS_MAX; k++) {
      for (unsigned m = 0; k + m <= MAP_SLOTS_MAX; m++) {
        struct profile p = {(uint8_t)t, (uint8_t)k, (uint8_t)m, 64};
        struct codec *c;
        if (codec_new(&p, &c) < 0) continue;
        unsigned n = k + m, d = codec_d(c), w, r, quorum_d;
        cr_assert_eq(profile_d(&p), d);
        cr_assert_eq(quorum_of(&p, 0, &quorum_d, &w, &r), 0);
        cr_assert(quorum_d == d && w >= d && w <= n && 2 * w > n && r == n - w + 1);
        if (n <= 12) { /* any d decode, and of d - 1 not all sets do */
          bool all = true;
          for (uint64_t have = (1u << d) - 1; have < 1u << n; have = bed_next_subset(have))
            cr_assert(codec_decodable(c, (uint32_t)have));
          for (uint64_t have = (1u << (d - 1)) - 1; have && have < 1u << n;
               have = bed_next_subset(have))
            all &= codec_decodable(c, (uint32_t)have);
          cr_assert(d == 1 || !all);
        }
        codec_free(c);
      }
    }
  }
}

/* An object in its stored form: chunk i is its units one after the other. */
struct object {
  struct stripe_geometry g;
  struct codec *codec;
  unsigned n;
  uint8_t *body, *units; /* units: [stripe][chunk][UNIT] padded */
  uint32_t *crcs;        /* [stripe][chunk] */
};

static uint8_t *object_unit(const struct object *o, uint64_t s, unsigned i) {
  return o->units + (s * o->n + i) * UNIT;
}

static const struct id128 blob = {{9, 8, 7}};

static void object_open(struct object *o, unsigned technique, unsigned k, unsigned m, size_t size) {
  struct profile p = {(uint8_t)technique, (uint8_t)k, (uint8_t)m, UNIT};
  *o = (struct object){.g = stripe_geometry_of(&p, size), .n = k + m};
  cr_assert_eq(codec_new(&p, &o->codec), 0);
  o->body = malloc(size + 1);
  o->units = calloc(o->g.stripe_count * o->n + 1, UNIT);
  o->crcs = calloc(o->g.stripe_count * o->n + 1, sizeof *o->crcs);
  cr_assert(o->body && o->units && o->crcs);
  bed_fill(o->body, size, (uint32_t)size);
  size_t at = 0;
  for (uint64_t s = 0; s < o->g.stripe_count; s++) {
    const uint8_t *data[MAP_SLOTS_MAX];
    uint8_t *parity[MAP_SLOTS_MAX];
    uint32_t len[MAP_SLOTS_MAX], other[MAP_SLOTS_MAX], *crcs = o->crcs + s * o->n;
    for (unsigned i = 0; i < o->n; i++) {
      len[i] = stripe_unit_len(&o->g, s, i);
      other[i] = crcs[i] = unit_crc_seed(&blob, i, s);
      if (i >= k) {
        parity[i - k] = object_unit(o, s, i);
        continue;
      }
      data[i] = object_unit(o, s, i);
      memcpy(object_unit(o, s, i), o->body + at, len[i]);
      at += len[i];
    }
    uint32_t coded = stripe_unit_coded_len(&o->g, s);
    codec_encode_crc_passes(o->codec, data, parity, coded, len, other);
    codec_encode_crc_blocks(o->codec, data, parity, coded, len, crcs);
    for (unsigned i = 0; i < o->n; i++) {
      cr_assert_eq(crcs[i], other[i]);
      cr_assert_eq(crcs[i], unit_crc(&blob, i, s, object_unit(o, s, i), len[i]));
    }
  }
  cr_assert_eq(at, size);
}

static void object_close(struct object *o) {
  codec_free(o->codec);
  free(o->body);
  free(o->units);
  free(o->crcs);
}

/* Reads the object with the `lost` chunks gone, on a copy: 0, or ERR_UNAVAILABLE. */
static int object_read(const struct object *o, uint32_t lost) {
  uint32_t all = (uint32_t)((UINT64_C(1) << o->n) - 1), data = (1u << o->g.profile.k) - 1;
  size_t at = 0;
  for (uint64_t s = 0; s < o->g.stripe_count; s++) {
    uint8_t copy[MAP_SLOTS_MAX][UNIT], *units[MAP_SLOTS_MAX];
    uint32_t have = all & ~lost, coded = stripe_unit_coded_len(&o->g, s);
    for (unsigned i = 0; i < o->n; i++) {
      units[i] = copy[i];
      memcpy(copy[i], object_unit(o, s, i), UNIT);
      if (!(have >> i & 1)) memset(copy[i], 0xdd, UNIT);
      if (unit_crc(&blob, i, s, copy[i], stripe_unit_len(&o->g, s, i)) != o->crcs[s * o->n + i])
        have &= ~(1u << i); /* gone, or rotten */
    }
    struct codec_plan *plan;
    if (data & ~have) {
      int err = codec_plan_get(o->codec, have, data & ~have, &plan);
      if (err < 0) return err;
      codec_plan_run(plan, units, coded);
      codec_plan_put(o->codec, plan);
    }
    for (unsigned i = 0; i < o->g.profile.k; i++) {
      uint32_t len = stripe_unit_len(&o->g, s, i);
      if (len > 0) cr_assert_eq(memcmp(copy[i], o->body + at, len), 0, "stripe %u", (unsigned)s);
      at += len;
    }
  }
  return 0;
}

static const struct {
  unsigned technique, k, m;
} shapes[] = {
    {TECHNIQUE_REED_SOL_VAN, 4, 2}, {TECHNIQUE_REED_SOL_VAN, 2, 1}, {TECHNIQUE_REED_SOL_VAN, 6, 4},
    {TECHNIQUE_REED_SOL_VAN, 1, 2}, {TECHNIQUE_CAUCHY, 4, 2},       {TECHNIQUE_CAUCHY, 3, 5},
    {TECHNIQUE_XOR, 5, 1},          {TECHNIQUE_XOR3P, 3, 3},        {TECHNIQUE_XOR3P, 6, 6},
    {TECHNIQUE_NONE, 3, 0},
};

Test(objects, every_loss_at_every_edge) {
  for (unsigned i = 0; i < ARRAY_LEN(shapes); i++) {
    size_t stripe = (size_t)shapes[i].k * UNIT;
    const size_t sizes[] = {
        0,        1,          63,     64,         65,         UNIT - 1,      UNIT,
        UNIT + 1, stripe - 1, stripe, stripe + 1, 3 * stripe, 3 * stripe + 1};
    for (unsigned z = 0; z < ARRAY_LEN(sizes); z++) {
      struct object o;
      object_open(&o, shapes[i].technique, shapes[i].k, shapes[i].m, sizes[z]);
      uint32_t all = (uint32_t)((UINT64_C(1) << o.n) - 1);
      for (uint32_t lost = 0; lost <= all; lost++) {
        int err = object_read(&o, lost);
        if (codec_decodable(o.codec, all & ~lost))
          cr_assert_eq(err, 0, "%s %u+%u size %zu lost %x", technique_name(shapes[i].technique),
                       shapes[i].k, shapes[i].m, sizes[z], lost);
        else
          cr_assert(err == 0 || err == ERR_UNAVAILABLE);
        if (sizes[z] >= stripe && !codec_decodable(o.codec, all & ~lost))
          cr_assert_eq(err, ERR_UNAVAILABLE);
      }
      object_close(&o);
    }
  }
}

/* Each stored bit of each chunk in turn: found by its CRC, decoded around. */
Test(objects, every_flipped_bit_is_found_and_decoded_around) {
  for (unsigned i = 0; i < ARRAY_LEN(shapes); i++) {
    struct object o;
    if (shapes[i].m == 0) continue;
    object_open(&o, shapes[i].technique, shapes[i].k, shapes[i].m, shapes[i].k * UNIT + 77);
    for (uint64_t s = 0; s < o.g.stripe_count; s++) {
      for (unsigned c = 0; c < o.n; c++) {
        uint32_t len = stripe_unit_len(&o.g, s, c);
        for (size_t bit = 0; bit < 8 * (size_t)len; bit += 1 + bit % 5) {
          uint8_t *byte = object_unit(&o, s, c) + bit / 8;
          *byte ^= (uint8_t)(1 << bit % 8);
          cr_assert_neq(unit_crc(&blob, c, s, object_unit(&o, s, c), len), o.crcs[s * o.n + c]);
          cr_assert_eq(object_read(&o, 0), 0);
          *byte ^= (uint8_t)(1 << bit % 8);
        }
      }
    }
    object_close(&o);
  }
}

/* Longer than a block of the coder, of the sums, and of a chunk of a small first-level cache. */
Test(objects, both_orders_of_encode_and_sum_agree_on_long_units) {
  static const size_t lengths[] = {4096, 40960, 43691, 65536, 300000};
  for (unsigned i = 0; i < ARRAY_LEN(shapes); i++) {
    for (unsigned l = 0; l < ARRAY_LEN(lengths); l++) {
      struct bed_stripe s;
      cr_assert(bed_stripe_open(&s, shapes[i].technique, shapes[i].k, shapes[i].m, lengths[l]));
      uint32_t a[MAP_SLOTS_MAX], b[MAP_SLOTS_MAX], c[MAP_SLOTS_MAX], len[MAP_SLOTS_MAX];
      for (unsigned u = 0; u < s.n; u++) {
        a[u] = b[u] = c[u] = u * 77;
        len[u] = (uint32_t)(u >= s.k ? s.len : s.len - s.len / (u + 2));
      }
      const uint8_t *const *data = (const uint8_t *const *)s.units;
      codec_encode_crc_passes(s.codec, data, s.units + s.k, s.len, len, a);
      for (unsigned u = s.k; u < s.n; u++) memset(s.units[u], 0, s.len);
      codec_encode_crc_blocks(s.codec, data, s.units + s.k, s.len, len, b);
      codec_encode_crc(s.codec, data, s.units + s.k, s.len, len, c);
      for (unsigned u = 0; u < s.n; u++) {
        cr_assert(a[u] == b[u] && b[u] == c[u]);
        cr_assert_eq(a[u], crc32c(u * 77, s.original[u], len[u]));
        cr_assert_eq(memcmp(s.units[u], s.original[u], s.len), 0);
      }
      bed_stripe_close(&s);
    }
  }
}
