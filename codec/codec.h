/* codec.h: erasure-code techniques behind one table, and decode plans.
 *
 * A codec is immutable after codec_new and may be used by any number of threads at once. Nothing
 * here does I/O or knows libuv; only the calibration of the XOR kernels reads a clock.
 *
 * Techniques and their proven limits (codec_check): reed_sol_van: ISA-L gf_gen_rs_matrix, MDS only
 * for m <= 3 up to k = 32, m = 4 up to k = 21 (others refused by name); cauchy:
 * gf_gen_cauchy1_matrix, k+m <= 32; xor: m = 1; xor3p: m = k, a multiple of 3 up to 15; none: m =
 * 0. k = 1 is replication under reed_sol_van and cauchy. Source: ISA-L erasure_code.h, raid.h;
 * Plank & Xu 2006 for Cauchy; Plank & Ding 2003 (correction) for why plain extended Vandermonde is
 * not MDS everywhere.
 *
 * All techniques but xor3p are MDS: any k chunks decode. xor3p (codec/xor3p.h) survives any two
 * losses and many of three: whether a set decodes is asked with codec_decodable, never counted. */
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
/* The smallest count such that any so many chunks decode: k where the technique is MDS. */
unsigned codec_d(const struct codec *c);

/* Parity of one stripe: k data units of `len` bytes each -> m parity units. No alignment is
 * required, units do not overlap. len may be any number including 0. With m = 1 and under xor3p
 * this is XOR alone. */
void codec_encode(const struct codec *c, const uint8_t *const *data, uint8_t *const *parity,
                  size_t len);

/* The same, and the CRC32C of all k+m units. crcs[i] is chained: what it holds is where the sum
 * begins (unit_crc_seed, or 0). data_len says how many bytes of each data unit are summed (NULL:
 * all `len`): the padding of a last stripe is encoded but not stored. Two orders with the same
 * result: `passes` encodes the stripe, then sums unit after unit; `blocks` does both for one cache
 * block after the other. codec_encode_crc is the one that measured faster (encode_crc.c). */
void codec_encode_crc(const struct codec *c, const uint8_t *const *data, uint8_t *const *parity,
                      size_t len, const uint32_t *data_len, uint32_t *crcs);
void codec_encode_crc_passes(const struct codec *c, const uint8_t *const *data,
                             uint8_t *const *parity, size_t len, const uint32_t *data_len,
                             uint32_t *crcs);
void codec_encode_crc_blocks(const struct codec *c, const uint8_t *const *data,
                             uint8_t *const *parity, size_t len, const uint32_t *data_len,
                             uint32_t *crcs);

/* True where the chunks in `have` (bit i = chunk i) decode the data. */
bool codec_decodable(const struct codec *c, uint32_t have);

/* True where the chunks in `have` give those in `want` (which may be among them). Under xor3p they
 * may although other data are lost; codec_decodable asks for everything. */
bool codec_gives(const struct codec *c, uint32_t have, uint32_t want);

/* Which of the chunks in `have` to read for those in `want` (any chunks; they may be in `have`).
 * All wanted are there: just those. Else the fewest; of those the ones whose decoding is XOR, and
 * the lowest. Nothing wanted: nothing to read. ERR_UNAVAILABLE where not codec_gives. Ceph's
 * minimum_to_decode. */
_must_check_ int codec_minimum(const struct codec *c, uint32_t have, uint32_t want,
                               uint32_t *ret_sources);
/* The same with a price for each chunk. Price 0: it is at hand and does not count. Of the sets with
 * the fewest others the cheapest is chosen, and the XOR-friendly one where prices are equal. */
_must_check_ int codec_minimum_with_cost(const struct codec *c, uint32_t have, uint32_t want,
                                         const uint32_t cost[MAP_SLOTS_MAX], uint32_t *ret_sources);

/* A plan rebuilds the chunks in `want` out of codec_minimum of those in `have` (want and have are
 * disjoint). plan_sources says which are read: k of them where the technique is MDS, maybe fewer
 * under xor3p. ERR_UNAVAILABLE where `have` does not give them. Plans come from a small LRU inside
 * the codec (thread-safe) and are reference counted: codec_plan_put when done. */
_must_check_ int codec_plan_get(struct codec *c, uint32_t have, uint32_t want,
                                struct codec_plan **ret_plan);
void codec_plan_put(struct codec *c, struct codec_plan *plan);
uint32_t codec_plan_sources(const struct codec_plan *plan); /* bit mask */
/* units[i] for every i in sources is input, for every i in want is output; other entries are not
 * touched. All of `len` bytes (the caller zero-pads short units). */
void codec_plan_run(const struct codec_plan *plan, uint8_t *const *units, size_t len);
/* True where the plan is XOR alone. */
bool codec_plan_is_xor(const struct codec_plan *plan);

/* What this process did so far, all codecs together. Reading takes no
 * lock; each thread counts for itself. */
struct codec_stats {
  uint64_t encode_xor, encode_general; /* stripes: the XOR fast path, and Galois field tables */
  uint64_t decode_xor, decode_general; /* plan runs */
  uint64_t plan_hits, plan_misses;     /* codec_plan_get: found in the LRU, or built */
};
void codec_stats(struct codec_stats *ret_stats);

/* Encodes and decodes a known stripe under every technique and the chosen XOR kernel: 0 or
 * ERR_CORRUPT. Run at start. */
_must_check_ int codec_self_test(void);

/* XOR kernels (xor_kernel.c): "isal", "portable64", "sse2", "avx2", "avx512", "neon" where the CPU
 * has them, and "-nt" twins whose stores pass the caches by. Two are in use: one for calls whose
 * blocks fit the caches and one for larger calls; by name both are set at once. A change holds for
 * every operation that begins after it, under plans that exist too. */
#define XOR_KERNELS_MAX 12
const char *xor_kernel_name(void);
const char *xor_kernel_large_name(void); /* for calls of more than xor_large_bytes */
size_t xor_large_bytes(void);
_must_check_ int xor_kernel_select(
    const char *name); /* ERR_NOT_FOUND for what this CPU or build lacks */
/* The i-th kernel this CPU can run, NULL at the end. */
const char *xor_kernel_at(unsigned i);
/* dst = XOR of n sources (n >= 1), len bytes each, by the i-th kernel. */
void xor_kernel_run_at(unsigned i, uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len);

/* GB/s of source bytes, all threads together, as calibration saw them. */
struct xor_rates {
  const char *name[XOR_KERNELS_MAX];
  double warm[XOR_KERNELS_MAX], cold[XOR_KERNELS_MAX];
  unsigned count;
  unsigned took_us;
};
/* Times every kernel on buffers of `unit_bytes` with `threads` threads at once, a few milliseconds
 * in all, and selects the fastest: for calls that fit the caches on warm buffers, for larger ones
 * on cold ones. ret_rates may be NULL. */
void xor_kernel_calibrate(size_t unit_bytes, unsigned threads, struct xor_rates *ret_rates);

/* dst = XOR of n sources (n >= 1), len bytes each, by the selected kernel. */
void xor_blocks(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len);

#endif
