/* stripe_test.c: every object byte stands in exactly one unit, at every size. */
#include "codec/stripe.h"

#include <criterion/criterion.h>

static void check_size(const struct profile *p, uint64_t size) {
  struct stripe_geometry g = stripe_geometry_of(p, size);
  uint64_t bytes = 0, chunk[MAP_SLOTS_MAX] = {0}, longest = 0;
  for (uint64_t s = 0; s < g.stripe_count; s++) {
    uint64_t len = stripe_len(&g, s), data = 0;
    uint32_t coded = stripe_unit_coded_len(&g, s);
    cr_assert_gt(len, 0u);
    cr_assert_eq(len == stripe_data_bytes(p) || s == g.stripe_count - 1, true);
    cr_assert_leq(coded, p->unit_bytes);
    cr_assert_eq(coded % STRIPE_ALIGN, 0u);
    cr_assert_geq((uint64_t)coded * p->k, len);
    for (unsigned i = 0; i < profile_n(p); i++) {
      uint32_t unit = stripe_unit_len(&g, s, i);
      cr_assert_leq(unit, coded);
      if (i < p->k) {
        data += unit;
        cr_assert(unit == 0 || (uint64_t)i * coded + unit <= len);
      } else {
        cr_assert_eq(unit, coded);
      }
      chunk[i] += unit;
    }
    cr_assert_eq(data, len, "k=%u unit=%u size=%lu stripe %lu", p->k, p->unit_bytes,
                 (unsigned long)size, (unsigned long)s);
    bytes += len;
  }
  cr_assert_eq(bytes, size);
  for (unsigned i = 0; i < profile_n(p); i++) {
    cr_assert_eq(stripe_chunk_len(&g, i), chunk[i]);
    longest = MAX(longest, chunk[i]);
  }
  cr_assert_eq(stripe_chunk_len_max(&g), longest);
  cr_assert_eq(stripe_len(&g, g.stripe_count), 0u);
  cr_assert_eq(stripe_unit_len(&g, g.stripe_count, 0), 0u);
}

Test(stripe, every_size_adds_up) {
  static const struct profile profiles[] = {{0, 1, 0, 64},  {3, 1, 1, 128}, {1, 2, 1, 64},
                                            {1, 3, 2, 192}, {1, 4, 2, 64},  {2, 7, 3, 128},
                                            {1, 21, 4, 64}, {0, 5, 0, 64}};
  for (unsigned i = 0; i < ARRAY_LEN(profiles); i++) {
    for (uint64_t size = 0; size < 3 * stripe_data_bytes(&profiles[i]) + 70; size++) {
      check_size(&profiles[i], size);
    }
  }
}

Test(stripe, known_shapes) {
  struct profile p = {TECHNIQUE_REED_SOL_VAN, 4, 2, 65536};
  struct stripe_geometry g = stripe_geometry_of(&p, 0);
  cr_assert_eq(g.stripe_count, 0u);
  cr_assert_eq(stripe_chunk_len_max(&g), 0u);
  g = stripe_geometry_of(&p, 1);
  cr_assert_eq(stripe_unit_len(&g, 0, 0), 1u);
  cr_assert_eq(stripe_unit_len(&g, 0, 1), 0u);
  cr_assert_eq(stripe_unit_len(&g, 0, 4), 64u);
  cr_assert_eq(stripe_chunk_len_max(&g), 64u);
  g = stripe_geometry_of(&p, UINT64_C(1) << 30);
  cr_assert_eq(g.stripe_count, 4096u);
  cr_assert_eq(stripe_chunk_len(&g, 5), UINT64_C(1) << 28);
  cr_assert_eq(stripe_tail_unit_len(&p, 4 * 65536), 65536u);
  cr_assert_eq(stripe_tail_unit_len(&p, 257), 128u);
}

Test(stripe, sizes_beyond_any_disk_do_not_wrap) {
  struct profile p = {TECHNIQUE_NONE, 1, 0, 64};
  struct stripe_geometry g = stripe_geometry_of(&p, UINT64_MAX);
  cr_assert_eq(g.stripe_count, (UINT64_MAX >> 6) + 1);
  cr_assert_eq(stripe_len(&g, g.stripe_count - 1), 63u);
  cr_assert_eq(stripe_chunk_len(&g, 0), UINT64_MAX);
}
