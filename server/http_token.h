/* http_token.h: the character classes of HTTP's grammar (RFC 9110, 5.6.2 and 5.5). */
#ifndef KOFN_SERVER_HTTP_TOKEN_H
#define KOFN_SERVER_HTTP_TOKEN_H

#include "config/base.h"

static inline bool http_is_digit(uint8_t c) {
  return c >= '0' && c <= '9';
}

static inline bool http_is_token(uint8_t c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || http_is_digit(c)) return true;
  return c && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

/* A byte of a field value: visible, blank, tab, or obs-text (UTF-8 in user metadata). */
static inline bool http_is_value(uint8_t c) {
  return c == '\t' || (c >= 0x20 && c != 0x7f);
}

static inline uint8_t http_lower(uint8_t c) {
  return c >= 'A' && c <= 'Z' ? (uint8_t)(c + 32) : c;
}

/* `text` is lower case. */
static inline bool http_slice_is(struct slice s, const char *text) {
  if (s.len != strlen(text)) return false;
  for (size_t i = 0; i < s.len; i++)
    if (http_lower(s.data[i]) != (uint8_t)text[i]) return false;
  return true;
}

/* Without the blanks and tabs around it. */
static inline struct slice http_trim(struct slice s) {
  while (s.len && (s.data[0] == ' ' || s.data[0] == '\t')) s.data++, s.len--;
  while (s.len && (s.data[s.len - 1] == ' ' || s.data[s.len - 1] == '\t')) s.len--;
  return s;
}

#endif
