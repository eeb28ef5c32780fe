/* xor_kernel.h: the XOR loops to choose from. Internal to codec/; see codec.h for what callers use.
 *
 * A kernel makes dst the XOR of n >= 2 sources of any length and alignment. */
#ifndef KOFN_CODEC_XOR_KERNEL_H
#define KOFN_CODEC_XOR_KERNEL_H

#include "config/base.h"

struct xor_kernel {
  const char *name;
  void (*run)(uint8_t *dst, const uint8_t *const *src, unsigned n, size_t len);
  bool (*supported)(void); /* NULL: everywhere */
};

/* The i-th kernel that this CPU can run, NULL at the end. */
const struct xor_kernel *xor_kernel_get(unsigned i);

#endif
