/* fake_env.h: a virtual event loop under the object layer: clock, timers, randomness, CPU work and
 * stripe buffers, all deterministic.
 *
 * Time moves only when the loop is idle, straight to the next event. Nothing here opens a socket, a
 * file or a thread. The bed checks its callers: FAKE_CHECK ends the process with a line that says
 * what was broken, in release builds too. fake_bed_close checks that nothing was left behind. */
#ifndef KOFN_TESTS_OBJECT_FAKE_ENV_H
#define KOFN_TESTS_OBJECT_FAKE_ENV_H

#include "storage/object/env.h"

#define FAKE_EVENTS_MAX 20000000u /* a run that takes more never ends */
#define FAKE_WALL_START_MS 1700000000000ull
#define FAKE_BUFFER_BYTES (64u << 20)

_Noreturn void fake_fail(const char *file, int line, const char *what);
#define FAKE_CHECK(cond) ((cond) ? (void)0 : fake_fail(__FILE__, __LINE__, #cond))

/* Something that happens at a time; embedded by whoever waits for it. */
struct fake_event {
  void (*fire)(struct fake_event *e);
  uint64_t due_ms, order;
  struct list link;
  bool armed;
};

struct fake_bed {
  struct env env; /* give &bed->env to the code under test */
  uint64_t now_ms;
  int64_t wall_skew_ms;
  uint64_t random_state;
  uint64_t event_order;
  struct list events; /* by due_ms, then by order */
  struct list timers; /* struct env_timer, same order */
  struct list works;  /* struct env_work that wait to run */
  struct list works_done;
  struct fake_event work_event;
  uint64_t work_delay_ms; /* how long a work takes; 0 */
  size_t buffer_limit, buffer_used, buffer_peak;
  unsigned buffer_count, buffer_count_peak;
  unsigned buffers_given; /* ever */
  struct list waiters, waiters_cancelled;
  struct fake_event buffer_event;
  unsigned timers_armed, works_running;
  unsigned works_ever;
  bool inside; /* a callback of the loop is running */
};

/* `seed` decides all randomness. */
void fake_bed_open(struct fake_bed *bed, uint64_t seed);
/* Checks that no event, timer, work, wait or buffer is left. */
void fake_bed_close(struct fake_bed *bed);

/* The next event; false where there is none. */
bool fake_step(struct fake_bed *bed);
/* Until idle. */
void fake_run(struct fake_bed *bed);
/* Everything due up to now + ms, then the clock stands there. */
void fake_run_for(struct fake_bed *bed, uint64_t ms);
/* Everything due up to the time `ms`, then the clock stands there. */
void fake_run_until(struct fake_bed *bed, uint64_t ms);
/* Until *flag is true or the loop is idle; returns *flag. */
bool fake_run_while_not(struct fake_bed *bed, const bool *flag);

void fake_event_start(struct fake_bed *bed, struct fake_event *e, uint64_t delay_ms,
                      void (*fire)(struct fake_event *e));
void fake_event_stop(struct fake_event *e);
uint64_t fake_random(struct fake_bed *bed);
/* 0 <= result < bound. */
uint64_t fake_random_below(struct fake_bed *bed, uint64_t bound);

#endif
