/* matrix.h: the coefficients of each technique over GF(2^8), polynomial 0x11d, and their inverses.
 *
 * Internal to codec/. Arithmetic is ISA-L's (erasure_code.h). A row has k coefficients; chunk i of
 * a blob is row i times the k data units, so rows 0..k-1 are the identity. */
#ifndef KOFN_CODEC_MATRIX_H
#define KOFN_CODEC_MATRIX_H

#include "config/cluster_map.h"

#define MATRIX_BYTES_MAX (MAP_SLOTS_MAX * MAP_SLOTS_MAX)
#define GF_TABLE_BYTES 32 /* per coefficient: ISA-L's ec_init_tables */

/* All (k+m) x k coefficients of a profile that codec_check allows. */
void matrix_fill(const struct profile *p, uint8_t rows[MATRIX_BYTES_MAX]);

/* For each chunk in `want` (ascending), the k coefficients that make it out of the k chunks in
 * `sources` (ascending). ERR_UNAVAILABLE where those do not determine the data. */
_must_check_ int matrix_rebuild(const uint8_t *rows, unsigned k, uint32_t sources, uint32_t want,
                                uint8_t out[MATRIX_BYTES_MAX]);

/* True where every one of `count` coefficients is 0 or 1: the rows are plain XORs. */
bool matrix_all_bits(const uint8_t *coefficients, size_t count);

#endif
