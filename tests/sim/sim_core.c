/* sim_core.c: the event queue, random numbers, the trace. See sim.h. */
#include "codec/crc32c.h"
#include "tests/sim/sim.h"

struct sim *sim_current;

_Noreturn void sim_broken(const char *file, int line, const char *what) {
  fprintf(stderr, "%s:%d: seed %llu: the simulator's contract is broken: %s\n", file, line,
          sim_current ? (unsigned long long)sim_current->seed : 0ull, what);
  abort();
}

uint64_t sim_random(struct sim *s) {
  uint64_t z = (s->random_state += 0x9e3779b97f4a7c15ull); /* splitmix64 */
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

uint64_t sim_below(struct sim *s, uint64_t bound) {
  SIM_CHECK(bound > 0);
  return sim_random(s) % bound;
}

uint64_t sim_between(struct sim *s, uint64_t from, uint64_t to) {
  return from + sim_below(s, to - from + 1);
}

bool sim_chance(struct sim *s, double p) {
  return (double)(sim_random(s) >> 11) * 0x1.0p-53 < p;
}

void sim_note(struct sim *s, uint64_t what) {
  s->hash = (s->hash ^ what) * 0x100000001b3ull;
  s->hash ^= s->hash >> 29;
}

/* ---- the queue: a heap by time, then by order of arming ---- */

static bool before(const struct sim_event *a, const struct sim_event *b) {
  return a->due_us != b->due_us ? a->due_us < b->due_us : a->seq < b->seq;
}

static void heap_set(struct sim *s, size_t i, struct sim_event *e) {
  s->heap[i] = e;
  e->heap_at = i + 1;
}

static void heap_up(struct sim *s, size_t i, struct sim_event *e) {
  for (; i > 0 && before(e, s->heap[(i - 1) / 2]); i = (i - 1) / 2)
    heap_set(s, i, s->heap[(i - 1) / 2]);
  heap_set(s, i, e);
}

static void heap_down(struct sim *s, size_t i, struct sim_event *e) {
  for (;;) {
    size_t child = 2 * i + 1;
    if (child >= s->heap_count) break;
    if (child + 1 < s->heap_count && before(s->heap[child + 1], s->heap[child])) child++;
    if (!before(s->heap[child], e)) break;
    heap_set(s, i, s->heap[child]);
    i = child;
  }
  heap_set(s, i, e);
}

void sim_after(struct sim *s, struct sim_event *e, struct sim_host *host, uint64_t delay_us,
               void (*fire)(struct sim_event *e)) {
  SIM_CHECK(e->heap_at == 0);
  e->fire = fire;
  e->host = host;
  e->due_us = s->now_us + delay_us;
  e->seq = s->seq++;
  if (s->heap_count == s->heap_cap) {
    s->heap_cap = MAX(256, s->heap_cap * 2);
    s->heap = realloc(s->heap, s->heap_cap * sizeof *s->heap);
    SIM_CHECK(s->heap);
  }
  heap_up(s, s->heap_count++, e);
}

void sim_stop(struct sim *s, struct sim_event *e) {
  if (e->heap_at == 0) return;
  size_t i = e->heap_at - 1;
  struct sim_event *last = s->heap[--s->heap_count];
  e->heap_at = 0;
  if (last == e) return;
  if (i > 0 && before(last, s->heap[(i - 1) / 2]))
    heap_up(s, i, last);
  else
    heap_down(s, i, last);
}

bool sim_next(struct sim *s) {
  while (s->heap_count > 0 && !s->failed) {
    struct sim_event *e = s->heap[0];
    sim_stop(s, e);
    s->now_us = MAX(s->now_us, e->due_us);
    if (e->host && e->host->paused_us > s->now_us) { /* in its order, once the host goes on */
      sim_after(s, e, e->host, e->host->paused_us - s->now_us, e->fire);
      continue;
    }
    if (++s->events > SIM_EVENTS_MAX) {
      sim_fail(s, "more than %u events: something goes round for ever", SIM_EVENTS_MAX);
      return false;
    }
    sim_note(s, s->now_us);
    e->fire(e);
    return !s->failed;
  }
  return false;
}

void sim_run_until(struct sim *s, uint64_t us) {
  while (s->heap_count > 0 && s->heap[0]->due_us <= us && sim_next(s)) continue;
  s->now_us = MAX(s->now_us, us);
}

void sim_trace(struct sim *s, const char *fmt, ...) {
  va_list args;
  fprintf(s->out, "%10.3f  ", (double)s->now_us / 1000);
  va_start(args, fmt);
  vfprintf(s->out, fmt, args);
  va_end(args);
  fputc('\n', s->out);
}

void sim_fail(struct sim *s, const char *fmt, ...) {
  va_list args;
  if (s->failed) return;
  s->failed = true;
  va_start(args, fmt);
  vsnprintf(s->why, sizeof s->why, fmt, args);
  va_end(args);
  SIM_TRACE(s, "FAILED: %s", s->why);
}
