/* crc32c_kernel.c: see crc32c_kernel.h.
 *
 * table    eight tables of 256 words ("slicing by 8", Kounavis and Berry 2005), made at first use
 * sse42    the crc32 instruction: 8 bytes in 3 cycles, each waiting for the one before
 * sse42x3  three of them side by side over neighbouring strides. A sum over [a b c] is made of the
 *          sums of a, b and c by shifting the first two over what follows; the shift is linear in
 *          the sum's bits, so four tables of 256 words do it (Adler, crc32c.c, 2013)
 * armv8    the crc32c instruction of arm64, which is an option of ARMv8.0 */
#include "codec/crc32c_kernel.h"

#include <pthread.h>

#define POLYNOMIAL 0x82f63b78u /* reflected */
#define SLICES 8

static uint32_t slices[SLICES][256];
static pthread_once_t slices_once = PTHREAD_ONCE_INIT;

static void slices_make(void) {
  for (unsigned i = 0; i < 256; i++) {
    uint32_t sum = i;
    for (unsigned bit = 0; bit < 8; bit++) sum = sum & 1 ? sum >> 1 ^ POLYNOMIAL : sum >> 1;
    slices[0][i] = sum;
  }
  for (unsigned s = 1; s < SLICES; s++) {
    for (unsigned i = 0; i < 256; i++)
      slices[s][i] = slices[s - 1][i] >> 8 ^ slices[0][slices[s - 1][i] & 0xff];
  }
}

uint32_t crc32c_table(uint32_t state, const uint8_t *data, size_t len) {
  pthread_once(&slices_once, slices_make);
  for (; len >= SLICES; data += SLICES, len -= SLICES) {
    uint32_t sum = 0;
    for (unsigned i = 0; i < SLICES; i++) {
      uint8_t byte = i < 4 ? data[i] ^ (uint8_t)(state >> 8 * i) : data[i];
      sum ^= slices[SLICES - 1 - i][byte];
    }
    state = sum;
  }
  for (; len > 0; data++, len--) state = state >> 8 ^ slices[0][(state ^ *data) & 0xff];
  return state;
}

#if defined(__x86_64__)

#include <nmmintrin.h>

#define TARGET_SSE42 __attribute__((target("sse4.2")))

bool crc32c_has_sse42(void) {
  return __builtin_cpu_supports("sse4.2");
}

TARGET_SSE42 uint32_t crc32c_sse42(uint32_t state, const uint8_t *data, size_t len) {
  uint64_t sum = state, word;
  for (; len >= sizeof word; data += sizeof word, len -= sizeof word) {
    memcpy(&word, data, sizeof word);
    sum = _mm_crc32_u64(sum, word);
  }
  state = (uint32_t)sum;
  if (len & 4) {
    uint32_t half;
    memcpy(&half, data, sizeof half);
    state = _mm_crc32_u32(state, half);
    data += sizeof half;
  }
  for (len &= 3; len > 0; data++, len--) state = _mm_crc32_u8(state, *data);
  return state;
}

/* shift[b][v]: what byte b of a sum, of value v, becomes when a stride of zero bytes follows. */
struct stride_shift {
  uint32_t shift[4][256];
};
static struct stride_shift shift_short, shift_long;
static pthread_once_t shifts_once = PTHREAD_ONCE_INIT;

static void shift_make(struct stride_shift *s, size_t stride) {
  static const uint8_t zeros[CRC32C_STRIDE_LONG];
  for (unsigned b = 0; b < 4; b++) {
    for (unsigned v = 0; v < 256; v++) s->shift[b][v] = crc32c_sse42(v << 8 * b, zeros, stride);
  }
}

static void shifts_make(void) {
  shift_make(&shift_short, CRC32C_STRIDE_SHORT);
  shift_make(&shift_long, CRC32C_STRIDE_LONG);
}

static uint32_t shift_over(const struct stride_shift *s, uint32_t sum) {
  return s->shift[0][sum & 0xff] ^ s->shift[1][sum >> 8 & 0xff] ^ s->shift[2][sum >> 16 & 0xff] ^
         s->shift[3][sum >> 24];
}

/* As many triples of strides as there are. */
TARGET_SSE42 static inline __attribute__((always_inline)) uint32_t triples(
    uint32_t state, const uint8_t **data, size_t *len, const size_t stride,
    const struct stride_shift *s) {
  while (*len >= 3 * stride) {
    const uint8_t *at = *data;
    uint64_t a = state, b = 0, c = 0, word[3];
    for (size_t i = 0; i < stride; i += sizeof *word) {
      memcpy(&word[0], at + i, sizeof *word);
      memcpy(&word[1], at + stride + i, sizeof *word);
      memcpy(&word[2], at + 2 * stride + i, sizeof *word);
      a = _mm_crc32_u64(a, word[0]);
      b = _mm_crc32_u64(b, word[1]);
      c = _mm_crc32_u64(c, word[2]);
    }
    state = shift_over(s, shift_over(s, (uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)c;
    *data += 3 * stride;
    *len -= 3 * stride;
  }
  return state;
}

TARGET_SSE42 uint32_t crc32c_sse42x3(uint32_t state, const uint8_t *data, size_t len) {
  if (len >= 3 * CRC32C_STRIDE_SHORT) {
    pthread_once(&shifts_once, shifts_make);
    state = triples(state, &data, &len, CRC32C_STRIDE_LONG, &shift_long);
    state = triples(state, &data, &len, CRC32C_STRIDE_SHORT, &shift_short);
  }
  return crc32c_sse42(state, data, len);
}

#elif defined(__aarch64__)

#include <sys/auxv.h>

#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif

bool crc32c_has_armv8(void) {
  return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}

/* In assembler, so that the file builds for a CPU without the option. */
static inline uint32_t armv8_word(uint32_t state, uint64_t word) {
  __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(state) : "r"(word));
  return state;
}
static inline uint32_t armv8_byte(uint32_t state, uint8_t byte) {
  __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(state) : "r"(byte));
  return state;
}

uint32_t crc32c_armv8(uint32_t state, const uint8_t *data, size_t len) {
  uint64_t word;
  for (; len >= sizeof word; data += sizeof word, len -= sizeof word) {
    memcpy(&word, data, sizeof word);
    state = armv8_word(state, word);
  }
  for (; len > 0; data++, len--) state = armv8_byte(state, *data);
  return state;
}

#endif
