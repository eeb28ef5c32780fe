/* crc32c_kernel.h: the ways to take a CRC32C. Internal to codec/.
 *
 * A kernel works on the inverted sum, as ISA-L's crc32_iscsi does: the inversion before and after
 * is the caller's. */
#ifndef KOFN_CODEC_CRC32C_KERNEL_H
#define KOFN_CODEC_CRC32C_KERNEL_H

#include "config/base.h"

struct crc32c_kernel {
  const char *name;
  uint32_t (*run)(uint32_t state, const uint8_t *data, size_t len);
  bool (*supported)(void); /* NULL: everywhere */
};

uint32_t crc32c_table(uint32_t state, const uint8_t *data, size_t len);
#if defined(__x86_64__)
bool crc32c_has_sse42(void);
uint32_t crc32c_sse42(uint32_t state, const uint8_t *data, size_t len);
uint32_t crc32c_sse42x3(uint32_t state, const uint8_t *data, size_t len);
#elif defined(__aarch64__)
bool crc32c_has_armv8(void);
uint32_t crc32c_armv8(uint32_t state, const uint8_t *data, size_t len);
#endif

/* What `state` becomes when `len` zero bytes follow; len is one of the interleaved strides. */
#define CRC32C_STRIDE_SHORT 64
#define CRC32C_STRIDE_LONG 512

#endif
