/* version.h: the order of the writes of a key (PROTOCOL.md 2). */
#ifndef KOFN_STORAGE_OBJECT_VERSION_H
#define KOFN_STORAGE_OBJECT_VERSION_H

#include "config/base.h"

/* hlc = max(local_ms << 16, highest seen + 1); nonce is random per proposal, so no two proposals
 * are equal. */
struct version {
  uint64_t hlc, nonce;
};

#define VERSION_HLC_SHIFT 16
/* A node refuses versions further than this above every clock it knows (PROTOCOL.md 2). */
#define VERSION_FUTURE_MS_MAX 60000

static inline int version_cmp(const struct version *a, const struct version *b) {
  if (a->hlc != b->hlc) return a->hlc < b->hlc ? -1 : 1;
  if (a->nonce != b->nonce) return a->nonce < b->nonce ? -1 : 1;
  return 0;
}
static inline bool version_is_zero(const struct version *v) {
  return v->hlc == 0 && v->nonce == 0;
}
static inline void version_raise(struct version *to, const struct version *by) {
  if (version_cmp(to, by) < 0) *to = *by;
}

#endif
