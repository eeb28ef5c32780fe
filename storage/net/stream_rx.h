/* stream_rx.h: between stream.c and stream_rx.c. */
#ifndef KOFN_STORAGE_NET_STREAM_RX_H
#define KOFN_STORAGE_NET_STREAM_RX_H

#include "storage/net/stream.h"

_must_check_ int stream_rx_start(struct stream *s);
/* From now on whatever arrives is dropped; the other's EOF closes. */
void stream_rx_drain(struct stream *s);

/* The stream found its end. On one that has ended already it only closes. */
void stream_fail(struct stream *s, enum stream_end end, int err, const char *why);
/* The same with a BYE; s->why holds the words. */
void stream_refuse(struct stream *s, enum stream_end end, int err);

#endif
