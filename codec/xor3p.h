/* xor3p.h: three XOR parities over three data chunks, in independent groups. Internal to codec/.
 *
 * Group j of k/3 has the data chunks 3j..3j+2 and the parity chunks k+3j..k+3j+2, named here D0 D1
 * D2 P0 P1 P2 with P0 = D0^D1, P1 = D1^D2, P2 = D0^D2. Over GF(2) these six are all the non-zero
 * sums of three bits but D0^D1^D2. Three of them do not determine the data exactly where one is the
 * sum of the other two: {D0 D1 P0} {D1 D2 P1} {D0 D2 P2} {P0 P1 P2}. So
 *
 *   any two losses are survived;
 *   of the 20 ways to lose three chunks of one group 16 are, the other 4 leave one of those lines;
 *   three losses that do not all fall on one group are always survived;
 *   four losses of one group never are.
 *
 * Hence d = n - 2: of any n - 2 chunks no group misses more than two. One lost chunk costs two
 * reads, where an MDS code with as many chunks costs k. */
#ifndef KOFN_CODEC_XOR3P_H
#define KOFN_CODEC_XOR3P_H

#include "config/cluster_map.h"

#define XOR3P_GROUP 3
#define XOR3P_K_MAX 15

/* The parity rows (m * k coefficients). */
void xor3p_fill(unsigned k, uint8_t *rows);

bool xor3p_gives(unsigned k, uint32_t have, uint32_t want);

/* codec_minimum_with_cost, where not all that is wanted is at hand. cost NULL: all alike. */
_must_check_ int xor3p_minimum(unsigned k, uint32_t have, uint32_t want, const uint32_t *cost,
                               uint32_t *ret_sources);

/* For each chunk in `want` (ascending), which of the chunks in `sources` (ascending) are its sum: 0
 * or 1 each. `sources` gives `want`. */
void xor3p_rebuild(unsigned k, uint32_t sources, uint32_t want, uint8_t out[]);

#endif
