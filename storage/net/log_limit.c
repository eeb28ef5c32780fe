/* log_limit.c: the last lines and when they were said. A small table: a new line takes the place of
 * the oldest, so a line may be repeated too early, never lost. */
#include "storage/net/log_limit.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <uv.h>

#define LOG_LIMIT_LINES 64
#define LOG_LIMIT_TEXT_BYTES 1536

static struct said { uint64_t hash, at_ms; } lines[LOG_LIMIT_LINES];
static pthread_mutex_t lines_lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t text_hash(const char *text) {
  uint64_t h = 0xcbf29ce484222325ull; /* FNV-1a */
  for (; *text; text++) h = (h ^ (uint8_t)*text) * 0x100000001b3ull;
  return h ? h : 1;
}

/* True where the line of this key may be said now; notes that it is. */
static bool may_say(const char *key, uint64_t window_ms) {
  uint64_t hash = text_hash(key), now = uv_hrtime() / 1000000;
  bool say = true;
  pthread_mutex_lock(&lines_lock);
  struct said *place = &lines[0];
  for (unsigned i = 0; i < LOG_LIMIT_LINES; i++) {
    struct said *l = &lines[i];
    if (l->hash == hash) {
      place = l;
      say = now - l->at_ms >= window_ms;
      break;
    }
    if (l->at_ms < place->at_ms) place = l;
  }
  if (say) *place = (struct said){hash, now};
  pthread_mutex_unlock(&lines_lock);
  return say;
}

void log_limited(enum log_level level, uint64_t window_ms, const char *key, const char *what,
                 const char *fmt, ...) {
  char text[LOG_LIMIT_TEXT_BYTES];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  if (may_say(key ? key : text, window_ms)) log_line(level, what, "%s", text);
}
