/* s3_xml.c: see s3_xml.h. */
#include "server/s3_xml.h"

#include <stdio.h>
#include <time.h>

static void xml_raw(struct byte_writer *w, const char *s) {
  put_bytes(w, slice_str(s));
}

void xml_prolog(struct byte_writer *w) {
  xml_raw(w, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
}

void xml_open(struct byte_writer *w, const char *name, const char *ns) {
  xml_raw(w, "<");
  xml_raw(w, name);
  if (ns) {
    xml_raw(w, " xmlns=\"");
    xml_raw(w, ns);
    xml_raw(w, "\"");
  }
  xml_raw(w, ">");
}

void xml_close(struct byte_writer *w, const char *name) {
  xml_raw(w, "</");
  xml_raw(w, name);
  xml_raw(w, ">");
}

unsigned utf8_sequence(struct slice s) {
  if (s.len == 0) return 0;
  uint8_t a = s.data[0];
  if (a < 0x80) return 1;
  unsigned len = a >= 0xf0 ? 4 : a >= 0xe0 ? 3 : 2;
  if (a < 0xc2 || a > 0xf4 || s.len < len) return 0;
  uint8_t b = s.data[1];
  uint8_t low = a == 0xe0 ? 0xa0 : a == 0xf0 ? 0x90 : 0x80;
  uint8_t high = a == 0xed ? 0x9f : a == 0xf4 ? 0x8f : 0xbf;
  if (b < low || b > high) return 0;
  for (unsigned i = 2; i < len; i++)
    if ((s.data[i] & 0xc0) != 0x80) return 0;
  return len;
}

bool utf8_valid(struct slice s) {
  while (s.len > 0) {
    unsigned n = utf8_sequence(s);
    if (n == 0) return false;
    s = slice_of(s.data + n, s.len - n);
  }
  return true;
}

/* XML 1.0, 2.2: tab, newline and return are the only control characters; U+FFFE and U+FFFF are none
 * either. */
static bool xml_char_allowed(const uint8_t *at, unsigned len) {
  if (len == 1) return *at >= 0x20 || *at == '\t' || *at == '\n' || *at == '\r';
  return !(len == 3 && at[0] == 0xef && at[1] == 0xbf && at[2] >= 0xbe);
}

static const char *xml_escape_of(uint8_t c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\r':
      return "&#13;";
    case '\n':
      return "&#10;";
    case '\t':
      return "&#9;";
    default:
      return NULL;
  }
}

static void xml_escaped(struct byte_writer *w, struct slice s) {
  size_t plain = 0; /* bytes at the front that go out as they are */
  while (plain < s.len) {
    const uint8_t *at = s.data + plain;
    unsigned n = utf8_sequence(slice_of(at, s.len - plain));
    bool allowed = n > 0 && xml_char_allowed(at, n);
    const char *instead = !allowed ? "\xef\xbf\xbd" : n == 1 ? xml_escape_of(*at) : NULL;
    if (!instead) {
      plain += n;
      continue;
    }
    put_bytes(w, slice_of(s.data, plain));
    xml_raw(w, instead);
    size_t skip = plain + MAX(n, 1u);
    s = slice_of(s.data + skip, s.len - skip);
    plain = 0;
  }
  put_bytes(w, s);
}

void xml_text(struct byte_writer *w, const char *name, struct slice text) {
  xml_open(w, name, NULL);
  xml_escaped(w, text);
  xml_close(w, name);
}

void xml_text_url(struct byte_writer *w, const char *name, struct slice text) {
  static const char digit[] = "0123456789ABCDEF";
  xml_open(w, name, NULL);
  for (size_t i = 0; i < text.len; i++) {
    uint8_t c = text.data[i];
    bool bare = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                c == '-' || c == '_' || c == '.' || c == '~' || c == '/';
    if (bare) {
      put_u8(w, c);
    } else {
      put_u8(w, '%');
      put_u8(w, (uint8_t)digit[c >> 4]);
      put_u8(w, (uint8_t)digit[c & 15]);
    }
  }
  xml_close(w, name);
}

void xml_u64(struct byte_writer *w, const char *name, uint64_t value) {
  char text[24];
  snprintf(text, sizeof text, "%llu", (unsigned long long)value);
  xml_text(w, name, slice_str(text));
}

void xml_bool(struct byte_writer *w, const char *name, bool value) {
  xml_text(w, name, slice_str(value ? "true" : "false"));
}

void xml_time(struct byte_writer *w, const char *name, uint64_t wall_ms) {
  time_t seconds = (time_t)(wall_ms / 1000);
  struct tm tm;
  char date[32], text[48];
  gmtime_r(&seconds, &tm);
  strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
  snprintf(text, sizeof text, "%s.%03uZ", date, (unsigned)(wall_ms % 1000));
  xml_text(w, name, slice_str(text));
}

void xml_etag(struct byte_writer *w, const char *name, struct slice etag) {
  xml_open(w, name, NULL);
  xml_raw(w, "&quot;");
  xml_escaped(w, etag);
  xml_raw(w, "&quot;");
  xml_close(w, name);
}
