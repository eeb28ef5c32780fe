/* codec.h: erasure-code techniques behind one table, and decode plans.
 *
 * A codec is immutable after codec_new and may be used by any number of threads at once. Nothing
 * here does I/O, reads a clock, or knows libuv.
 *
 * Techniques and their proven limits (codec_check): reed_sol_van: ISA-L gf_gen_rs_matrix, MDS only
 * for m <= 3 up to k = 32, m = 4 up to k = 21 (others refused by name); cauchy:
 * gf_gen_cauchy1_matrix, k+m <= 32; xor: m = 1; none: m = 0. k = 1 is replication under any
 * technique. Source: ISA-L erasure_code.h, raid.h; Plank & Xu 2006 for Cauchy; Plank & Ding 2003
 * (correction) for why plain extended Vandermonde is not MDS everywhere. */
#ifndef KOFN_CODEC_CODEC_H
#define KOFN_CODEC_CODEC_H

#include "config/cluster_map.h"

struct codec;
struct codec_plan;

/* 0, or ERR_INVALID with words in `why` (for config errors): "reed_sol_van with m=4 is proven only
 * up to k=21". */
_must_check_ int codec_check(const struct profile *p, char *why, size_t why_cap);

/* The caller owns the codec: codec_free. Only profiles that pass codec_check. */
_must_check_ int codec_new(const struct profile *p, struct codec **ret_codec);
void codec_free(struct codec *c);
const struct profile *codec_profile(const struct codec *c);

/* Parity of one stripe: k data units of `len` bytes each -> m parity units. No alignment is
 * required, units do not overlap. len may be any number including 0. With m = 1 this is XOR alone.
 */
void codec_encode(const struct codec *c, const uint8_t *const *data, uint8_t *const *parity,
                  size_t len);

/* True where the chunks in `have` (bit i = chunk i) decode the data. */
bool codec_decodable(const struct codec *c, uint32_t have);

/* A plan rebuilds the chunks in `want` out of exactly k of those in `have` (want and have are
 * disjoint). plan_sources says which k are read, in order. ERR_UNAVAILABLE where `have` does not
 * decode. Plans come from a small LRU inside the codec (thread-safe) and are reference counted:
 * codec_plan_put when done. */
_must_check_ int codec_plan_get(struct codec *c, uint32_t have, uint32_t want,
                                struct codec_plan **ret_plan);
void codec_plan_put(struct codec *c, struct codec_plan *plan);
uint32_t codec_plan_sources(const struct codec_plan *plan); /* bit mask of k chunks */
/* units[i] for every i in sources is input, for every i in want is output; other entries are not
 * touched. All of `len` bytes (the caller zero-pads short units). */
void codec_plan_run(const struct codec_plan *plan, uint8_t *const *units, size_t len);
/* True where the plan is XOR alone. */
bool codec_plan_is_xor(const struct codec_plan *plan);

/* Encodes and decodes a known stripe under every technique and the chosen XOR kernel: 0 or
 * ERR_CORRUPT. Run at start. */
_must_check_ int codec_self_test(void);

/* XOR kernels (xor_kernel.c): "isal", "portable64", "avx2", "avx512" and non-temporal twins where
 * the CPU has them. Calibrated once at start; may be changed at run time by name. */
void xor_kernel_calibrate(void);
const char *xor_kernel_name(void);
_must_check_ int xor_kernel_select(
    const char *name); /* ERR_NOT_FOUND for what this CPU or build lacks */
/* The i-th kernel this CPU can run, NULL at the end. */
const char *xor_kernel_at(unsigned i);
/* dst = XOR of n sources (n >= 1), len bytes each, by the selected kernel. */
void xor_blocks(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len);

#endif
