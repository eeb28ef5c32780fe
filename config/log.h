/* log.h: one line on standard error per event.
 *
 *   2026-11-30T17:53:49.572Z warn peer host n3 refused us: cluster secret differs
 *
 * Library code returns errors; the edge (server, lanes, membership) logs them, once. Thread-safe: a
 * line is one write(2). Control characters and bytes >= 0x7f in arguments are escaped, so that a
 * name from outside can forge no line. */
#ifndef KOFN_CONFIG_LOG_H
#define KOFN_CONFIG_LOG_H

#include "config/base.h"

#define LOG_LINE_BYTES_MAX 2048

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* Lines below `level` are dropped. Default LOG_INFO. `host` (may be NULL; copied) stands in every
 * line. */
void log_setup(enum log_level level, const char *host);
/* 0, or ERR_INVALID where `name` is not debug, info, warn or error. */
_must_check_ int log_level_parse(const char *name, enum log_level *ret_level);

/* `what` is the component: "http", "peer", "drive", ... */
void log_line(enum log_level level, const char *what, const char *fmt, ...) _printf_(3, 4);

#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_warn(...) log_line(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)

#endif
