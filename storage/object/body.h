/* body.h: the bytes of a request, pulled; and the bytes of an answer, pushed with a credit of one.
 *
 * Defined here, implemented by the HTTP side and by tests. Callbacks run later, never inside the
 * call. */
#ifndef KOFN_STORAGE_OBJECT_BODY_H
#define KOFN_STORAGE_OBJECT_BODY_H

#include "config/base.h"

#define BODY_LENGTH_UNKNOWN UINT64_MAX

struct body;
/* err 0: n bytes are in dst; n < len only at the end of the body. Else ERR_BODY_SHORT,
 * ERR_BODY_INVALID, ERR_CLIENT_GONE, ERR_TIMEOUT, ERR_BAD_DIGEST, ERR_CANCELLED. */
typedef void (*body_cb)(void *arg, int err, size_t n);

struct body_ops {
  /* Reads until `dst` is full or the body ends. One read at a time. Before the first read nothing
   * is asked of the client (no 100-continue). */
  void (*read)(struct body *b, uint8_t *dst, size_t len, body_cb cb, void *arg);
  /* Ends a pending read: its callback still runs, with ERR_CANCELLED, after which dst is not
   * touched. Safe when idle. */
  void (*cancel)(struct body *b);
};
struct body {
  const struct body_ops *ops;
  uint64_t length; /* BODY_LENGTH_UNKNOWN for chunked */
};

struct sink;
typedef void (*sink_cb)(void *arg, int err);
#define SINK_SLICES_MAX 256

struct sink_ops {
  /* Sends the slices, which stay alive until cb. One write at a time. err: ERR_CLIENT_GONE,
   * ERR_TIMEOUT. */
  void (*write)(struct sink *s, const struct slice *slices, unsigned count, sink_cb cb, void *arg);
};
struct sink {
  const struct sink_ops *ops;
};

#endif
