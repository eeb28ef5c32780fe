/* log.c: formats a line, escapes it, and hands it to the kernel in one write.
 *
 * No lock: a line is built on the stack, and write(2) of one line to a pipe or an append-only file
 * does not mix with another's. */
#include "config/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "config/err.h"

#define LOG_HOST_BYTES_MAX 64

static _Atomic int log_level_min = LOG_INFO;
static char log_host[LOG_HOST_BYTES_MAX];

static const char *const level_names[] = {"debug", "info", "warn", "error"};

void log_setup(enum log_level level, const char *host) {
  snprintf(log_host, sizeof log_host, "%s%s", host ? " " : "", host ? host : "");
  atomic_store(&log_level_min, (int)level);
}

int log_level_parse(const char *name, enum log_level *ret_level) {
  for (unsigned i = 0; i < ARRAY_LEN(level_names); i++) {
    if (strcmp(name, level_names[i]) == 0) {
      *ret_level = (enum log_level)i;
      return 0;
    }
  }
  return ERR_INVALID;
}

/* Copies `text` with everything but printable ASCII as \xNN; stops before `end`. */
static char *log_escape(char *at, const char *end, const char *text) {
  static const char digit[] = "0123456789abcdef";
  for (; *text; text++) {
    unsigned char c = (unsigned char)*text;
    bool plain = c >= 0x20 && c < 0x7f;
    if (end - at < (plain ? 1 : 4)) break;
    if (plain) {
      *at++ = (char)c;
    } else {
      *at++ = '\\';
      *at++ = 'x';
      *at++ = digit[c >> 4];
      *at++ = digit[c & 15];
    }
  }
  return at;
}

static int log_prefix(char *out, size_t cap, enum log_level level) {
  struct timespec now;
  struct tm tm;
  clock_gettime(CLOCK_REALTIME, &now);
  gmtime_r(&now.tv_sec, &tm);
  return snprintf(out, cap, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ %s", tm.tm_year + 1900,
                  tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
                  now.tv_nsec / 1000000, level_names[level]);
}

void log_line(enum log_level level, const char *what, const char *fmt, ...) {
  if ((int)level < atomic_load_explicit(&log_level_min, memory_order_relaxed)) return;
  char message[LOG_LINE_BYTES_MAX];
  va_list args;
  va_start(args, fmt);
  int formatted = vsnprintf(message, sizeof message, fmt, args);
  va_end(args);
  if (formatted < 0) message[0] = 0;

  char line[LOG_LINE_BYTES_MAX];
  const char *end = line + sizeof line - 1; /* room for the newline */
  char *at = line + log_prefix(line, 64, level);
  at = log_escape(at, end, log_host);
  at = log_escape(at, end, " ");
  at = log_escape(at, end, what);
  at = log_escape(at, end, " ");
  at = log_escape(at, end, message);
  *at++ = '\n';
  /* A log that cannot be written has nowhere to say so. */
  ssize_t written = write(STDERR_FILENO, line, (size_t)(at - line));
  (void)written;
}
