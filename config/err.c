/* err.c: the table of err.h as names and words. */
#include "config/err.h"

#include <errno.h>
#include <string.h>

/* libuv's own numbers, which are no errno: end of stream and the resolver's range (uv/errno.h).
 * This layer does not include libuv, and the numbers are part of its ABI. */
#define UV_EOF_NUMBER (-4095)
#define UV_EAI_LOWEST (-3014)
#define UV_EAI_HIGHEST (-3000)

struct err_row {
  const char *name, *words;
};

static const struct err_row rows[] = {
#define ERR_ROW_(name, words) {#name, words},
    ERR_TABLE(ERR_ROW_)
#undef ERR_ROW_
};

_Static_assert((int)ERR_END_ < ERR_BASE, "kofn's errors stay below every errno");
_Static_assert(ARRAY_LEN(rows) == ERR_END_ - ERR_FIRST_ - 1, "one row for each error");

bool err_known(int err) {
  return err > ERR_FIRST_ && err < ERR_END_;
}

const char *err_name(int err) {
  if (err >= 0) return "OK";
  if (err_known(err)) return rows[err - ERR_FIRST_ - 1].name;
  if (err == UV_EOF_NUMBER) return "EOF";
  if (err >= UV_EAI_LOWEST && err <= UV_EAI_HIGHEST) return "EAI";
  const char *name = err > ERR_BASE ? strerrorname_np(-err) : NULL;
  return name ? name : "ERR_UNKNOWN";
}

const char *err_words(int err) {
  if (err >= 0) return "success";
  if (err_known(err)) return rows[err - ERR_FIRST_ - 1].words;
  if (err == UV_EOF_NUMBER) return "the other side closed the connection";
  if (err >= UV_EAI_LOWEST && err <= UV_EAI_HIGHEST) return "the host name does not resolve";
  const char *words = err > ERR_BASE ? strerrordesc_np(-err) : NULL;
  return words ? words : "an error that is not in the table";
}
