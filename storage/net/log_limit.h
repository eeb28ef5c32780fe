/* log_limit.h: says the same thing only once in a while, whichever loop finds it out.
 *
 * Every loop of a process has connections of its own to each host, so one event is met several
 * times, and a refusal is met again at every attempt. */
#ifndef KOFN_STORAGE_NET_LOG_LIMIT_H
#define KOFN_STORAGE_NET_LOG_LIMIT_H

#include "config/log.h"

#define LOG_LIMIT_REFUSAL_MS 60000 /* a refusal that repeats */
#define LOG_LIMIT_EVENT_MS 1000    /* one event, met by several loops */

/* Logs the line unless one with the same key was logged less than window_ms ago. key NULL: the text
 * itself. Any thread. */
void log_limited(enum log_level level, uint64_t window_ms, const char *key, const char *what,
                 const char *fmt, ...) _printf_(5, 6);

#endif
