/* wall_clock.c: see wall_clock.h. */
#include "storage/net/wall_clock.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define WALL_MS_MAX ((uint64_t)1 << 48) /* a version's stamp has no more bits for it */

static pthread_mutex_t wall_lock = PTHREAD_MUTEX_INITIALIZER;
static struct wall_clock_peers wall_peers; /* under wall_lock */
/* Read without the lock. A reader may see one old and one new bound: both are clocks that peers
 * have shown. */
static int64_t wall_low = INT64_MIN, wall_high = INT64_MAX;

static uint64_t clock_ms(clockid_t id) {
  struct timespec ts;
  clock_gettime(id, &ts);
  return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

uint64_t wall_clock_own_ms(void) {
  uint64_t ms = clock_ms(CLOCK_REALTIME);
#ifdef KOFN_TEST_SWITCHES
  const char *offset = getenv("KOFN_TEST_CLOCK_OFFSET_MS");
  if (offset) ms += (uint64_t)strtoll(offset, NULL, 10);
#endif
  return ms;
}

void wall_clock_bounds(const struct wall_clock_peers *peers, int64_t *ret_low, int64_t *ret_high) {
  int64_t sorted[WALL_CLOCK_PEERS_MAX];
  unsigned count = 0;
  for (unsigned i = 0; i < WALL_CLOCK_PEERS_MAX; i++) {
    if (!peers->heard[i]) continue;
    unsigned at = count++;
    for (; at > 0 && sorted[at - 1] > peers->off_ms[i]; at--) sorted[at] = sorted[at - 1];
    sorted[at] = peers->off_ms[i];
  }
  /* With ours there are count + 1, of which number count / 2 from below is the median: ours, or
   * the neighbour on the side where ours is not. */
  unsigned middle = count / 2;
  *ret_low = middle > 0 ? sorted[middle - 1] : INT64_MIN;
  *ret_high = middle < count ? sorted[middle] : INT64_MAX;
}

int64_t wall_clock_corrected(int64_t own, int64_t low, int64_t high) {
  int64_t median = own < low ? low : own > high ? high : own;
  return llabs(own - median) > WALL_CLOCK_TRUST_MS ? median : own;
}

uint64_t wall_clock_ms(void) {
  int64_t steady = (int64_t)clock_ms(CLOCK_MONOTONIC);
  int64_t own = (int64_t)wall_clock_own_ms() - steady;
  int64_t low = __atomic_load_n(&wall_low, __ATOMIC_RELAXED);
  int64_t high = __atomic_load_n(&wall_high, __ATOMIC_RELAXED);
  return (uint64_t)(wall_clock_corrected(own, low, high) + steady);
}

void wall_clock_heard(unsigned peer, uint64_t wall_ms) {
  assert(peer < WALL_CLOCK_PEERS_MAX);
  if (wall_ms == 0 || wall_ms >= WALL_MS_MAX) return;
  int64_t low, high, steady = (int64_t)clock_ms(CLOCK_MONOTONIC);
  pthread_mutex_lock(&wall_lock);
  wall_peers.heard[peer] = true;
  wall_peers.off_ms[peer] = (int64_t)wall_ms - steady;
  wall_clock_bounds(&wall_peers, &low, &high);
  __atomic_store_n(&wall_low, low, __ATOMIC_RELAXED);
  __atomic_store_n(&wall_high, high, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&wall_lock);
}
