/* settings_values.c: texts into numbers, addresses and paths: the whole text or nothing. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/err.h"
#include "config/settings_schema.h"

/* Room for "18446744073709551615" and a unit: longer texts are no numbers. */
#define NUMBER_BYTES_MAX 32
#define PORT_DIGITS_MAX 5
#define SECRET_FILE_BYTES_MAX 4096

struct unit {
  const char *name;
  uint64_t factor;
};

static const struct unit size_units[] = {
    {"", 1},
    {"B", 1},
    {"KiB", UINT64_C(1) << 10},
    {"MiB", UINT64_C(1) << 20},
    {"GiB", UINT64_C(1) << 30},
    {"TiB", UINT64_C(1) << 40},
    {"kB", 1000},
    {"KB", 1000},
    {"MB", 1000000},
    {"GB", 1000000000},
    {"TB", UINT64_C(1000000000000)},
};

static const struct unit time_units[] = {
    {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000},
};

/* Digits, then one of the units. */
static int parse_with_units(const char *text, const struct unit *units, unsigned count,
                            uint64_t *ret_value) {
  uint64_t value = 0;
  const char *at = text;
  for (; *at >= '0' && *at <= '9'; at++) {
    if (__builtin_mul_overflow(value, 10, &value) ||
        __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value)) {
      return ERR_INVALID;
    }
  }
  if (at == text || at - text > NUMBER_BYTES_MAX) return ERR_INVALID;
  for (unsigned i = 0; i < count; i++) {
    if (strcmp(at, units[i].name) != 0) continue;
    if (__builtin_mul_overflow(value, units[i].factor, &value)) return ERR_INVALID;
    *ret_value = value;
    return 0;
  }
  return ERR_INVALID;
}

int value_parse_uint(const char *text, uint64_t *ret_value) {
  return parse_with_units(text, size_units, 1, ret_value); /* the first unit is none */
}

int settings_parse_size(const char *text, uint64_t *ret_bytes) {
  return parse_with_units(text, size_units, ARRAY_LEN(size_units), ret_bytes);
}

int settings_parse_time(const char *text, uint64_t *ret_ms) {
  return parse_with_units(text, time_units, ARRAY_LEN(time_units), ret_ms);
}

void value_print_size(uint64_t bytes, char out[32]) {
  static const char *const names[] = {"", "KiB", "MiB", "GiB", "TiB"};
  unsigned unit = 0;
  while (bytes > 0 && bytes % 1024 == 0 && unit + 1 < ARRAY_LEN(names)) {
    bytes /= 1024;
    unit++;
  }
  snprintf(out, 32, "%" PRIu64 "%s", bytes, names[unit]);
}

void value_print_time(uint64_t ms, char out[32]) {
  unsigned unit = ARRAY_LEN(time_units) - 1;
  while (unit > 0 && (ms < time_units[unit].factor || ms % time_units[unit].factor != 0)) unit--;
  snprintf(out, 32, "%" PRIu64 "%s", ms / time_units[unit].factor, time_units[unit].name);
}

static bool is_host_char(char c, bool bracketed) {
  if (isascii((unsigned char)c) && isalnum((unsigned char)c)) return true;
  if (c == '.' || c == '-' || c == '_') return true;
  return bracketed && (c == ':' || c == '%');
}

int settings_parse_address(const char *text, char host[256], uint16_t *ret_port) {
  const char *name = text, *end, *colon;
  bool bracketed = text[0] == '[';
  if (bracketed) {
    name = text + 1;
    end = strchr(text, ']');
    if (!end || end == name || end[1] != ':') return ERR_INVALID;
    colon = end + 1;
  } else {
    end = colon = strchr(text, ':');
    if (!colon) return ERR_INVALID;
  }
  size_t len = (size_t)(end - name);
  if (len > 255) return ERR_INVALID;
  for (size_t i = 0; i < len; i++) {
    if (!is_host_char(name[i], bracketed)) return ERR_INVALID;
  }
  uint64_t port;
  if (strlen(colon + 1) > PORT_DIGITS_MAX || value_parse_uint(colon + 1, &port) < 0 ||
      port > UINT16_MAX) {
    return ERR_INVALID;
  }
  memcpy(host, name, len);
  host[len] = 0;
  *ret_port = (uint16_t)port;
  return 0;
}

bool value_is_loopback(const char *host) {
  return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
         strcmp(host, "localhost") == 0;
}

bool value_is_name(const char *text, size_t len_max) {
  size_t len = strlen(text);
  /* A letter or digit first: no name looks like an option, a hidden file or a path. */
  if (len < 1 || len > len_max || !is_host_char(text[0], false) || strchr("._-", text[0])) {
    return false;
  }
  for (size_t i = 0; i < len; i++) {
    if (!is_host_char(text[i], false)) return false;
  }
  return true;
}

int value_clean_path(const char *text, char out[SETTINGS_PATH_BYTES_MAX + 1]) {
  size_t len = strlen(text), at = 0;
  if (text[0] != '/' || len > SETTINGS_PATH_BYTES_MAX) return ERR_INVALID;
  for (size_t i = 0; i < len; i++) {
    if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) return ERR_INVALID;
  }
  for (size_t i = 0; i < len;) {
    while (text[i] == '/') i++;
    size_t part = strcspn(text + i, "/");
    if (part == 2 && text[i] == '.' && text[i + 1] == '.') return ERR_INVALID;
    if (part > 0 && !(part == 1 && text[i] == '.')) {
      out[at++] = '/';
      memcpy(out + at, text + i, part);
      at += part;
    }
    i += part;
  }
  if (at == 0) out[at++] = '/';
  out[at] = 0;
  return 0;
}

int value_read_file(const char *path, size_t max, char **ret_text, size_t *ret_len) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) return -errno;
  char *text = malloc(max + 2);
  int err = text ? 0 : -ENOMEM;
  size_t len = 0;
  while (err == 0 && len <= max) { /* one byte more than allowed tells that it is too long */
    ssize_t got = read(fd, text + len, max + 1 - len);
    if (got < 0 && errno != EINTR) err = -errno;
    if (got == 0) break;
    if (got > 0) len += (size_t)got;
  }
  close(fd);
  if (err == 0 && len > max) err = ERR_TOO_LARGE;
  if (err < 0) {
    if (text) explicit_bzero(text, len);
    free(text);
    return err;
  }
  text[len] = 0;
  *ret_text = text;
  *ret_len = len;
  return 0;
}

int value_read_secret(const char *path, uint8_t out[SETTINGS_SECRET_BYTES_MAX + 1]) {
  char *text;
  size_t len;
  int err = value_read_file(path, SECRET_FILE_BYTES_MAX, &text, &len);
  if (err < 0) return err;
  size_t whole = len;
  while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r')) len--;
  err = len > SETTINGS_SECRET_BYTES_MAX ? ERR_TOO_LARGE : (int)len;
  if (err >= 0) {
    memcpy(out, text, len);
    out[len] = 0;
  }
  explicit_bzero(text, whole);
  free(text);
  return err;
}
