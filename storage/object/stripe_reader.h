/* stripe_reader.h: reads stripes of one blob from any k of its chunks: fetch, verify, decode.
 *
 * Used by GET (wants the data chunks) and by rebuild (wants lost chunks). A chunk that is missing,
 * slow, or fails a CRC is replaced by another in mid-stream. One window (up to PEER_UNITS_MAX
 * consecutive stripes) is in a buffer at a time; the caller may hold one window while the next is
 * being read (two buffers, never more). */
#ifndef KOFN_STORAGE_OBJECT_STRIPE_READER_H
#define KOFN_STORAGE_OBJECT_STRIPE_READER_H

#include "storage/object/objects.h"

/* Bytes of data that a window aims at; fewer where buffers are short. */
#define STRIPE_WINDOW_DATA_BYTES (1u << 20)

/* Unit i of stripe s of the window stands at buf.data + ((s - first) * n + i) * coded_stride.
 * Wanted units are filled and zero-padded to the coded length. */
struct stripe_window {
  struct env_buf buf; /* the receiver's: env_buf_put when done */
  uint64_t first;
  unsigned count;
  unsigned n;
  uint32_t stride; /* bytes from one unit to the next */
};

struct stripe_reader;
/* err 0: *window is the receiver's. ERR_UNAVAILABLE: fewer than k chunks are left; ERR_SLOW_DOWN;
 * ERR_CANCELLED. */
typedef void (*stripe_reader_cb)(void *arg, int err, struct stripe_window *window);

/* Copies what it needs from `row`. `healthy`: slots believed to hold a whole chunk; `want`: chunks
 * to produce. `inline_chunks[i]` (or NULL): slots whose whole chunk and CRCs are at hand already
 * (from a READ): what they point to stays the caller's, and there until the close. */
struct stripe_reader_inline {
  struct slice bytes[MAP_SLOTS_MAX];
  const uint32_t *crcs[MAP_SLOTS_MAX]; /* one per stripe */
};
_must_check_ int stripe_reader_open(struct objects *o, const struct key_place *place,
                                    const struct row *row, uint32_t healthy, uint32_t want,
                                    const struct stripe_reader_inline *inline_chunks,
                                    stripe_reader_cb cb, void *arg,
                                    struct stripe_reader **ret_reader);
/* Reads up to `count` stripes from `first` on; the window may hold fewer, at least one. One read at
 * a time. */
void stripe_reader_read(struct stripe_reader *r, uint64_t first, uint64_t count);
/* The same, but only where a buffer is free at once: false and nothing started otherwise. A reader
 * that holds a window must not wait for another: it would keep from others what they wait for. */
_must_check_ bool stripe_reader_read_ahead(struct stripe_reader *r, uint64_t first, uint64_t count);
/* A pending read's cb runs with ERR_CANCELLED. */
void stripe_reader_cancel(struct stripe_reader *r);
/* Slots found bad (CRC failure or no chunk) so far: for the heal queue. */
uint32_t stripe_reader_bad(const struct stripe_reader *r);
/* Frees when nothing is pending any more. No callback after this. Other reads' late peer replies
 * are absorbed inside. */
void stripe_reader_close(struct stripe_reader *r);

#endif
