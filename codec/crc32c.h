/* crc32c.h: CRC32C (Castagnoli, RFC 3720 B.4) over ISA-L's crc32_iscsi, and the seeded CRC of a
 * unit. */
#ifndef KOFN_CODEC_CRC32C_H
#define KOFN_CODEC_CRC32C_H

#include "config/base.h"

/* The standard CRC32C: crc32c(0, "123456789", 9) == 0xe3069283. Chain by passing the last value. */
uint32_t crc32c(uint32_t crc, const void *data, size_t len);

/* CRC of one unit, seeded with where it belongs (blob id, chunk index, unit number), so that a
 * stale or misplaced block fails too. `len` may be 0. */
uint32_t unit_crc(const struct id128 *data_id, unsigned chunk_index, uint64_t unit_number,
                  const void *data, size_t len);

#endif
