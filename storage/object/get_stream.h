/* get_stream.h: the bytes of one range, from a stripe reader into a sink. Used by object_get.c
 * only.
 *
 *   reader -> window -> write to the sink (credit of one)
 *                 \-> meanwhile the next window is read, where a buffer is free
 *
 * At most two windows are held; a stream that holds one never waits for a buffer. */
#ifndef KOFN_STORAGE_OBJECT_GET_STREAM_H
#define KOFN_STORAGE_OBJECT_GET_STREAM_H

#include "storage/object/body.h"
#include "storage/object/stripe_reader.h"

struct get_stream;
/* err 0: all bytes were written. `bad`: slots whose chunk is missing or rotten. The stream is gone
 * when this returns. */
typedef void (*get_stream_cb)(void *arg, int err, bool sent_any, uint32_t bad);

struct get_stream_args {
  const struct key_place *place;
  const struct row *row;
  uint32_t healthy;
  const struct stripe_reader_inline *inline_chunks;
  uint64_t offset, len; /* 0 < len, within the row's size */
  struct sink *sink;
  get_stream_cb cb;
  void *arg;
};

/* Copies what it needs. cb runs later. -ENOMEM, ERR_INVALID (a row of another profile): nothing was
 * started. */
_must_check_ int get_stream_start(struct objects *o, const struct get_stream_args *args,
                                  struct get_stream **ret_stream);
/* cb runs with ERR_CANCELLED, once a write that goes on has ended. */
void get_stream_cancel(struct get_stream *s);

#endif
