/* log_test.c: a line is one line whatever is in it; names and words of errors. */
#include "config/log.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "config/err.h"
#include "config/list.h"

static int saved = -1, reader = -1;

static void capture(void) {
  int ends[2];
  cr_assert_eq(pipe(ends), 0);
  saved = dup(STDERR_FILENO);
  cr_assert_geq(dup2(ends[1], STDERR_FILENO), 0);
  close(ends[1]);
  reader = ends[0];
}

static const char *captured(void) {
  static char text[8192];
  dup2(saved, STDERR_FILENO);
  close(saved);
  ssize_t len = read(reader, text, sizeof text - 1);
  close(reader);
  text[len > 0 ? len : 0] = 0;
  return text;
}

static bool matches(const char *text, const char *pattern) {
  regex_t re;
  cr_assert_eq(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB), 0);
  bool yes = regexec(&re, text, 0, NULL, 0) == 0;
  regfree(&re);
  return yes;
}

#define STAMP "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[.][0-9]{3}Z "

Test(log, a_line_says_when_how_who_and_what) {
  log_setup(LOG_INFO, "n1");
  capture();
  log_warn("peer", "host %s refused us: %d", "n3", 7);
  const char *got = captured();
  cr_assert(matches(got, STAMP "warn n1 peer host n3 refused us: 7\n$"), "%s", got);
  log_setup(LOG_INFO, NULL);
  capture();
  log_error("drive", "gone");
  got = captured();
  cr_assert(matches(got, STAMP "error drive gone\n$"), "%s", got);
}

Test(log, a_name_from_outside_forges_no_line) {
  capture();
  log_info("http", "key %s", "a\n2026-01-01T00:00:00.000Z error \x1b[31m\x7f\xc3\xa4");
  const char *got = captured();
  cr_assert(matches(got, STAMP "info http key a\\\\x0a2026-01-01T00:00:00.000Z error "
                               "\\\\x1b\\[31m\\\\x7f\\\\xc3\\\\xa4\n$"),
            "%s", got);
}

Test(log, lines_below_the_level_are_dropped_and_long_ones_are_cut) {
  log_setup(LOG_WARN, NULL);
  capture();
  log_info("x", "not me");
  log_debug("x", "nor me");
  char big[3 * LOG_LINE_BYTES_MAX];
  memset(big, '\n', sizeof big);
  big[sizeof big - 1] = 0;
  log_warn("x", "%s", big);
  const char *got = captured();
  cr_assert_null(strstr(got, "me"));
  cr_assert_leq(strlen(got), (size_t)LOG_LINE_BYTES_MAX);
  cr_assert_eq(strchr(got, '\n'), got + strlen(got) - 1, "one newline, at the end");
  enum log_level level = LOG_ERROR;
  cr_assert_eq(log_level_parse("debug", &level), 0);
  cr_assert_eq(level, LOG_DEBUG);
  cr_assert_eq(log_level_parse("verbose", &level), ERR_INVALID);
  cr_assert_eq(level, LOG_DEBUG);
}

Test(err, every_error_has_a_name_and_words) {
#define CHECK(name, words)                  \
  cr_assert_str_eq(err_name(name), #name);  \
  cr_assert_str_eq(err_words(name), words); \
  cr_assert(err_known(name));               \
  cr_assert_lt(name, ERR_BASE);
  ERR_TABLE(CHECK)
#undef CHECK
  cr_assert_str_eq(err_name(-EIO), "EIO");
  cr_assert_str_eq(err_words(-ENOSPC), "No space left on device");
  cr_assert_str_eq(err_name(0), "OK");
  cr_assert_str_eq(err_name(-4095), "EOF");
  static const int strange[] = {ERR_END_, ERR_FIRST_, ERR_FIRST_ - 1, ERR_BASE, -9999, INT32_MIN};
  for (unsigned i = 0; i < ARRAY_LEN(strange); i++) {
    cr_assert_not(err_known(strange[i]));
    cr_assert_str_eq(err_name(strange[i]), "ERR_UNKNOWN");
    cr_assert_not_null(err_words(strange[i]));
  }
  cr_assert_not(err_known(-EIO));
  cr_assert_not(err_known(0));
}

struct item {
  int number;
  struct list link;
};

Test(list, items_come_out_as_they_went_in) {
  struct list a, b;
  struct item items[4] = {{1}, {2}, {3}, {4}};
  list_init(&a);
  list_init(&b);
  list_remove(&items[0].link); /* in no list */
  list_push_back(&a, &items[1].link);
  list_push_front(&a, &items[0].link);
  list_push_back(&b, &items[2].link);
  list_push_back(&b, &items[3].link);
  list_splice_back(&a, &b);
  cr_assert(list_empty(&b));
  list_splice_back(&a, &b);
  int expected = 1;
  list_foreach_safe(it, &a) {
    cr_assert_eq(container_of(it, struct item, link)->number, expected++);
    if (expected == 3) list_remove(it);
  }
  cr_assert_eq(expected, 5);
  cr_assert_not(list_linked(&items[1].link));
  cr_assert_eq(list_pop_front(&a), &items[0].link);
  cr_assert_eq(list_pop_front(&a), &items[2].link);
  cr_assert_eq(list_pop_front(&a), &items[3].link);
  cr_assert_null(list_pop_front(&a));
}
