/* coder.h: one linear map of units onto units, ready to run. Internal to codec/.
 *
 * Encoding and decoding are the same thing with other coefficients: `rows` outputs, each a sum of
 * `k` inputs. Where all coefficients are 0 or 1 it runs as XOR. */
#ifndef KOFN_CODEC_CODER_H
#define KOFN_CODEC_CODER_H

#include "codec/matrix.h"

struct coder {
  unsigned k, rows;
  bool is_xor;
  uint32_t inputs[MAP_SLOTS_MAX]; /* is_xor: which of the k each row sums */
  uint8_t *tables;                /* ISA-L's, GF_TABLE_BYTES * k * rows; NULL where is_xor */
};

/* `coefficients` (k * rows) are copied. -ENOMEM. The caller owns: coder_close. */
_must_check_ int coder_open(struct coder *c, const uint8_t *coefficients, unsigned k,
                            unsigned rows);
void coder_close(struct coder *c);
/* `in` has k units, `out` has rows; all of `len` bytes, none overlapping. */
void coder_run(const struct coder *c, const uint8_t *const *in, uint8_t *const *out, size_t len);

#endif
