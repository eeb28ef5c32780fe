/* wall_clock.h: the wall clock that env and drives share, which the peers' clocks keep in bounds.
 *
 * Every host tells its clock in HELLO and in each PONG. What this host shows is its own clock,
 * unless that is more than WALL_CLOCK_TRUST_MS away from the median of all clocks it knows of, its
 * own among them: then it shows the median (PROTOCOL.md 2). A peer's clock runs on from the last
 * word of it by the monotonic clock, so a jump of ours is noticed at once. Of an even number the
 * lower median counts: of two clocks nobody can tell which is right, and a stamp that is too low
 * costs nothing, while one that is too high is refused by the other drives and keeps its key from
 * being written until their clocks have come there.
 *
 * One for the process; callable from any thread. */
#ifndef KOFN_STORAGE_NET_WALL_CLOCK_H
#define KOFN_STORAGE_NET_WALL_CLOCK_H

#include "config/base.h"

/* Half of what drives allow a stamp to be ahead (VERSION_FUTURE_MS_MAX): two hosts that are off by
 * this in both directions still take each other's. Far above the age of a PONG. */
#define WALL_CLOCK_TRUST_MS 30000
#define WALL_CLOCK_PEERS_MAX 64

/* What this host tells others: CLOCK_REALTIME as it is; in builds with test switches moved by
 * KOFN_TEST_CLOCK_OFFSET_MS. */
uint64_t wall_clock_own_ms(void);
/* What it stamps with. */
uint64_t wall_clock_ms(void);
/* `peer` (a number of our own choice below WALL_CLOCK_PEERS_MAX) has just said that it is wall_ms.
 * Nonsense is ignored. */
void wall_clock_heard(unsigned peer, uint64_t wall_ms);

/* The arithmetic: clocks as their distance from the monotonic clock. */
struct wall_clock_peers {
  bool heard[WALL_CLOCK_PEERS_MAX];
  int64_t off_ms[WALL_CLOCK_PEERS_MAX];
};
/* Where the lower median of these and one more clock can lie; INT64_MIN and INT64_MAX: no bound. */
void wall_clock_bounds(const struct wall_clock_peers *peers, int64_t *ret_low, int64_t *ret_high);
int64_t wall_clock_corrected(int64_t own, int64_t low, int64_t high);

#endif
