/* fake_uv.h: stand-ins for the few functions of libuv that connections use, in one thread, with no
 * socket and no clock, so that the real code above them is fed by a fuzzer.
 *
 * They are linked in front of libuv. Reading goes through the real allocation and read callbacks in
 * pieces of the caller's choice; writes are taken whole, in part, or later, by a seed. Also a
 * struct env for what stands on one. */
#ifndef KOFN_TESTS_FUZZ_FAKE_UV_H
#define KOFN_TESTS_FUZZ_FAKE_UV_H

#include <uv.h>

#include "storage/object/env.h"
#include "tests/fuzz/fuzz.h"

#define FAKE_WALL_MS UINT64_C(1764500000000)

/* Forgets everything; fails where a handle of the last run was not closed. `loop` is only a name.
 */
void fake_uv_begin(uint64_t seed);
/* Everything must be closed. */
void fake_uv_end(void);
uv_loop_t *fake_uv_loop(void);
struct env *fake_uv_env(void);

/* Offers bytes to a handle that reads: how many were taken; 0 where it does not read now. */
size_t fake_uv_feed(uv_stream_t *stream, struct slice bytes);
/* End of file (UV_EOF) or an error; false where it does not read now. */
bool fake_uv_feed_end(uv_stream_t *stream, int err);
bool fake_uv_is_closed(const void *handle); /* closed, or never there */
bool fake_uv_reads(const void *handle);
/* One turn of the loop: timers that are due, prepare and idle callbacks, finished writes, closes.
 * True where something ran. */
bool fake_uv_turn(void);
void fake_uv_advance(uint64_t ms);
/* All bytes that were written to the handle. */
struct slice fake_uv_sent(const uv_stream_t *stream);
/* The callback that uv_listen got. */
void fake_uv_connect(uv_stream_t *listener);

#endif
