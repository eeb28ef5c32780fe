/* crc32c.c: see crc32c.h. ISA-L chooses the implementation for this CPU. */
#include "codec/crc32c.h"

#include <isa-l/crc.h>

/* ISA-L takes an int. */
#define CRC_CALL_BYTES_MAX ((size_t)1 << 30)

uint32_t crc32c(uint32_t crc, const void *data, size_t len) {
  /* ISA-L's crc32_iscsi leaves the inversion before and after to its caller. */
  uint32_t state = ~crc;
  const uint8_t *at = data;
  while (len > 0) {
    size_t part = MIN(len, CRC_CALL_BYTES_MAX);
    state = crc32_iscsi((unsigned char *)at, (int)part, state);
    at += part;
    len -= part;
  }
  return ~state;
}

uint32_t unit_crc(const struct id128 *data_id, unsigned chunk_index, uint64_t unit_number,
                  const void *data, size_t len) {
  uint8_t seed[16 + 4 + 8];
  memcpy(seed, data_id->bytes, 16);
  store_be32(seed + 16, chunk_index);
  store_be64(seed + 20, unit_number);
  return crc32c(crc32c(0, seed, sizeof seed), data, len);
}
