/* crc32c.c: see crc32c.h. The implementations, and which one is taken for which length. */
#include "codec/crc32c.h"

#include <isa-l/crc.h>

#include "codec/crc32c_kernel.h"

/* ISA-L takes an int. */
#define CRC_CALL_BYTES_MAX ((size_t)1 << 30)

static uint32_t state_isal(uint32_t state, const uint8_t *at, size_t len) {
  while (len > 0) {
    size_t part = MIN(len, CRC_CALL_BYTES_MAX);
    state = crc32_iscsi((unsigned char *)at, (int)part, state);
    at += part;
    len -= part;
  }
  return state;
}

static const struct crc32c_kernel kernels[] = {
    {"isal", state_isal, NULL},
#if defined(__x86_64__)
    {"sse42", crc32c_sse42, crc32c_has_sse42},
    {"sse42x3", crc32c_sse42x3, crc32c_has_sse42},
#elif defined(__aarch64__)
    {"armv8", crc32c_armv8, crc32c_has_armv8},
#endif
    {"table", crc32c_table, NULL},
};

static const struct crc32c_kernel *kernel_get(unsigned i) {
  for (unsigned at = 0; at < ARRAY_LEN(kernels); at++) {
    if (kernels[at].supported && !kernels[at].supported()) continue;
    if (i-- == 0) return &kernels[at];
  }
  return NULL;
}

const char *crc32c_at(unsigned i) {
  const struct crc32c_kernel *kernel = kernel_get(i);
  return kernel ? kernel->name : NULL;
}

uint32_t crc32c_run_at(unsigned i, uint32_t crc, const void *data, size_t len) {
  return ~kernel_get(i)->run(~crc, data, len);
}

/* Below this the library's own set-up costs more than the instruction loop. Nanoseconds, best of 15
 * runs on an EPYC of 2022 (ISA-L 2.30, which folds 256 bytes at a time there):
 *
 *   bytes     32    64    96   128   192   256   320   512   640  1024  2048   4096
 *   isal    11.1  14.5  18.5  22.3  29.1  17.5  25.1  20.0  35.5  28.8  46.5   81.7
 *   sse42    7.3   8.1  10.7  13.5  20.0  26.5  33.0  52.5  65.5   105   208    416
 *   sse42x3  7.6   8.7  10.3  13.5  13.5  20.3  26.8  39.4  45.8  71.2  98.4    189
 *   table   31.5  55.1  80.0  99.5   209   205   250   403   509   772  2271   3248
 *
 * `kofn bench codec` prints this table for the machine it runs on. */
#define CRC_ISAL_BYTES_MIN 256

static const struct crc32c_kernel *kernel_for(size_t len) {
#if defined(__x86_64__)
  static const struct crc32c_kernel *const small = &kernels[2]; /* sse42x3 */
#else
  static const struct crc32c_kernel *const small = &kernels[1]; /* armv8, or the table */
#endif
  if (len >= CRC_ISAL_BYTES_MIN || !small->supported || !small->supported()) return &kernels[0];
  return small;
}

uint32_t crc32c(uint32_t crc, const void *data, size_t len) {
  return ~kernel_for(len)->run(~crc, data, len);
}

const char *crc32c_name(size_t len) {
  return kernel_for(len)->name;
}

uint32_t unit_crc_seed(const struct id128 *data_id, unsigned chunk_index, uint64_t unit_number) {
  uint8_t seed[16 + 4 + 8];
  memcpy(seed, data_id->bytes, 16);
  store_be32(seed + 16, chunk_index);
  store_be64(seed + 20, unit_number);
  return crc32c(0, seed, sizeof seed);
}

uint32_t unit_crc(const struct id128 *data_id, unsigned chunk_index, uint64_t unit_number,
                  const void *data, size_t len) {
  return crc32c(unit_crc_seed(data_id, chunk_index, unit_number), data, len);
}
