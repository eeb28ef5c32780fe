/* crc32c.h: CRC32C (Castagnoli, RFC 3720 B.4) and the seeded CRC of a unit.
 *
 * Several implementations with one result; crc32c() takes the fastest for the length, by break-even
 * points that were measured (crc32c.c has the table). */
#ifndef KOFN_CODEC_CRC32C_H
#define KOFN_CODEC_CRC32C_H

#include "config/base.h"

/* The standard CRC32C: crc32c(0, "123456789", 9) == 0xe3069283. Chain by passing the last value. */
uint32_t crc32c(uint32_t crc, const void *data, size_t len);

/* CRC of one unit, seeded with where it belongs (blob id, chunk index, unit number), so that a
 * stale or misplaced block fails too. `len` may be 0. */
uint32_t unit_crc(const struct id128 *data_id, unsigned chunk_index, uint64_t unit_number,
                  const void *data, size_t len);
/* What unit_crc starts from: crc32c(unit_crc_seed(...), data, len) is the unit's CRC. */
uint32_t unit_crc_seed(const struct id128 *data_id, unsigned chunk_index, uint64_t unit_number);

/* The i-th implementation that this CPU can run: "isal", "sse42" (the crc32 instruction, one
 * chain), "sse42x3" (three interleaved chains), "armv8", "table". NULL at the end. */
const char *crc32c_at(unsigned i);
uint32_t crc32c_run_at(unsigned i, uint32_t crc, const void *data, size_t len);
/* The name of the one that crc32c() takes for this length. */
const char *crc32c_name(size_t len);

#endif
