/* http_util.c: the pure parts of HTTP: status words, percent-decoding, dates, header look-up.
 *
 * Nothing here does I/O or reads a clock. Sources: RFC 9110 (5.6.7 dates, 15 status codes), RFC
 * 3986 (2.1 percent-encoding). */
#include <stdio.h>

#include "config/err.h"
#include "server/http.h"

struct status_words {
  int status;
  const char *words;
};

static const struct status_words status_table[] = {
    {100, "Continue"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {206, "Partial Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {411, "Length Required"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {417, "Expectation Failed"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
    {507, "Insufficient Storage"},
};

const char *http_status_words(int status) {
  for (size_t i = 0; i < ARRAY_LEN(status_table); i++)
    if (status_table[i].status == status) return status_table[i].words;
  return "Unknown";
}

static int hex_digit(uint8_t c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

int http_percent_decode(struct slice in, uint8_t *out, size_t cap) {
  size_t n = 0;
  for (size_t i = 0; i < in.len; i++) {
    uint8_t c = in.data[i];
    if (c == '%') {
      if (in.len - i < 3) return ERR_INVALID;
      int high = hex_digit(in.data[i + 1]), low = hex_digit(in.data[i + 2]);
      if (high < 0 || low < 0) return ERR_INVALID;
      c = (uint8_t)(high << 4 | low);
      i += 2;
    }
    if (n == cap || n == INT32_MAX) return ERR_TOO_LARGE;
    out[n++] = c;
  }
  return (int)n;
}

/* ---- dates ---- */

static const char *const day_names[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
static const char *const day_long_names[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                             "Thursday", "Friday", "Saturday"};
static const char *const month_names[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                          "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

struct date {
  unsigned year, month, day, hour, minute, second; /* month 1..12 */
};

static bool is_leap(unsigned year) {
  return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static unsigned month_days(unsigned year, unsigned month) {
  static const uint8_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  return days[month - 1] + (month == 2 && is_leap(year));
}

/* Days from 0000-03-01 to the date, in the proleptic Gregorian calendar: years begin in March, so
 * that the leap day is a year's last. */
static int64_t days_of(unsigned year, unsigned month, unsigned day) {
  int64_t y = (int64_t)year - (month <= 2);
  int64_t m = month > 2 ? month - 3 : month + 9;
  return y * 365 + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1;
}

#define DAYS_TO_1970 719468

void http_date_format(uint64_t wall_ms, char out[30]) {
  uint64_t seconds = wall_ms / 1000;
  uint64_t days = MIN(seconds / 86400, (uint64_t)2932896); /* 9999-12-31: four digits of year */
  unsigned rest = (unsigned)(seconds % 86400);
  unsigned weekday = (unsigned)((days + 4) % 7);
  int64_t z = (int64_t)days + DAYS_TO_1970;
  int64_t era = z / 146097;
  int64_t doe = z % 146097;
  int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
  int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
  int64_t mp = (5 * doy + 2) / 153;
  unsigned day = (unsigned)(doy - (153 * mp + 2) / 5 + 1);
  unsigned month = (unsigned)(mp < 10 ? mp + 3 : mp - 9);
  unsigned year = (unsigned)(yoe + era * 400 + (month <= 2));
  snprintf(out, 30, "%s, %02u %s %04u %02u:%02u:%02u GMT", day_names[weekday % 7], day % 100,
           month_names[(month - 1) % 12], year % 10000, rest / 3600 % 100, rest / 60 % 60,
           rest % 60);
}

/* A cursor over the text of a date: every step fails for good once one has failed. */
struct date_reader {
  struct slice left;
  bool failed;
};

static void date_literal(struct date_reader *r, const char *text) {
  struct slice s = slice_str(text);
  if (r->failed || !slice_starts_with(r->left, s)) {
    r->failed = true;
    return;
  }
  r->left.data += s.len;
  r->left.len -= s.len;
}

static unsigned date_name(struct date_reader *r, const char *const *names, unsigned count) {
  for (unsigned i = 0; i < count && !r->failed; i++) {
    if (!slice_starts_with(r->left, slice_str(names[i]))) continue;
    date_literal(r, names[i]);
    return i;
  }
  r->failed = true;
  return 0;
}

/* `digits` digits; with pad, the first may be a space (asctime's day). */
static unsigned date_number(struct date_reader *r, unsigned digits, bool pad) {
  unsigned value = 0;
  if (r->failed || r->left.len < digits) r->failed = true;
  for (unsigned i = 0; i < digits && !r->failed; i++) {
    uint8_t c = r->left.data[i];
    if (pad && i == 0 && c == ' ') continue;
    if (c < '0' || c > '9') {
      r->failed = true;
      return 0;
    }
    value = value * 10 + (unsigned)(c - '0');
  }
  if (r->failed) return 0;
  r->left.data += digits;
  r->left.len -= digits;
  return value;
}

static void date_time(struct date_reader *r, struct date *d) {
  d->hour = date_number(r, 2, false);
  date_literal(r, ":");
  d->minute = date_number(r, 2, false);
  date_literal(r, ":");
  d->second = date_number(r, 2, false);
}

static bool date_imf(struct slice text, struct date *d) {
  struct date_reader r = {text, false};
  date_name(&r, day_names, 7);
  date_literal(&r, ", ");
  d->day = date_number(&r, 2, false);
  date_literal(&r, " ");
  d->month = date_name(&r, month_names, 12) + 1;
  date_literal(&r, " ");
  d->year = date_number(&r, 4, false);
  date_literal(&r, " ");
  date_time(&r, d);
  date_literal(&r, " GMT");
  return !r.failed && r.left.len == 0;
}

static bool date_rfc850(struct slice text, struct date *d) {
  struct date_reader r = {text, false};
  date_name(&r, day_long_names, 7);
  date_literal(&r, ", ");
  d->day = date_number(&r, 2, false);
  date_literal(&r, "-");
  d->month = date_name(&r, month_names, 12) + 1;
  date_literal(&r, "-");
  unsigned year = date_number(&r, 2, false);
  d->year = year < 70 ? 2000 + year : 1900 + year;
  date_literal(&r, " ");
  date_time(&r, d);
  date_literal(&r, " GMT");
  return !r.failed && r.left.len == 0;
}

static bool date_asctime(struct slice text, struct date *d) {
  struct date_reader r = {text, false};
  date_name(&r, day_names, 7);
  date_literal(&r, " ");
  d->month = date_name(&r, month_names, 12) + 1;
  date_literal(&r, " ");
  d->day = date_number(&r, 2, true);
  date_literal(&r, " ");
  date_time(&r, d);
  date_literal(&r, " ");
  d->year = date_number(&r, 4, false);
  return !r.failed && r.left.len == 0;
}

int http_date_parse(struct slice text, uint64_t *ret_wall_ms) {
  struct date d;
  if (!date_imf(text, &d) && !date_rfc850(text, &d) && !date_asctime(text, &d)) return ERR_INVALID;
  if (d.day < 1 || d.day > month_days(d.year, d.month)) return ERR_INVALID;
  if (d.hour > 23 || d.minute > 59 || d.second > 60) return ERR_INVALID;
  int64_t days = days_of(d.year, d.month, d.day) - DAYS_TO_1970;
  int64_t seconds = days * 86400 + d.hour * 3600 + d.minute * 60 + MIN(d.second, 59u);
  /* Before 1970 every object is younger: the epoch says the same to every comparison. */
  *ret_wall_ms = seconds < 0 ? 0 : (uint64_t)seconds * 1000;
  return 0;
}

/* ---- headers of a request ---- */

struct slice http_header_find(const struct http_request *req, const char *name) {
  struct slice wanted = slice_str(name);
  for (unsigned i = 0; i < req->header_count; i++)
    if (slice_eq(req->headers[i].name, wanted)) return req->headers[i].value;
  return (struct slice){NULL, 0};
}

unsigned http_header_count(const struct http_request *req, const char *name) {
  struct slice wanted = slice_str(name);
  unsigned n = 0;
  for (unsigned i = 0; i < req->header_count; i++) n += slice_eq(req->headers[i].name, wanted);
  return n;
}
