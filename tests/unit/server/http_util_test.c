/* http_util_test.c: dates in their three forms, percent-decoding, status words. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <time.h>

#include "config/err.h"
#include "server/http.h"

static const char *const same_instant[] = {
    "Sun, 06 Nov 1994 08:49:37 GMT",  /* IMF-fixdate */
    "Sunday, 06-Nov-94 08:49:37 GMT", /* RFC 850 */
    "Sun Nov  6 08:49:37 1994",       /* asctime */
};

Test(http_util, the_three_forms_of_a_date_are_one_instant) {
  for (size_t i = 0; i < ARRAY_LEN(same_instant); i++) {
    uint64_t ms = 0;
    cr_assert_eq(http_date_parse(slice_str(same_instant[i]), &ms), 0, "%s", same_instant[i]);
    cr_assert_eq(ms, 784111777000u, "%s", same_instant[i]);
  }
}

static const char *const bad_dates[] = {
    "",
    "Sun, 06 Nov 1994 08:49:37",
    "Sun, 06 Nov 1994 08:49:37 GMT ",
    "Sun, 06 Nov 1994 08:49:37 UTC",
    "Sun, 6 Nov 1994 08:49:37 GMT",
    "Sun, 31 Nov 1994 08:49:37 GMT",
    "Sun, 00 Nov 1994 08:49:37 GMT",
    "Sun, 29 Feb 2023 00:00:00 GMT",
    "Sun, 29 Feb 1900 00:00:00 GMT",
    "Sun, 06 Nov 1994 24:00:00 GMT",
    "Sun, 06 Nov 1994 08:60:00 GMT",
    "Sun, 06 Nov 1994 08:49:61 GMT",
    "Sun, 06 nov 1994 08:49:37 GMT",
    "Som, 06 Nov 1994 08:49:37 GMT",
    "Sunday, 06-Nov-1994 08:49:37 GMT",
    "Sun Nov 6 08:49:37 1994",
    "1994-11-06T08:49:37Z",
    "784111777",
};

Test(http_util, what_is_no_date_is_refused_and_the_result_untouched) {
  for (size_t i = 0; i < ARRAY_LEN(bad_dates); i++) {
    uint64_t ms = 42;
    cr_assert_eq(http_date_parse(slice_str(bad_dates[i]), &ms), ERR_INVALID, "%s", bad_dates[i]);
    cr_assert_eq(ms, 42);
  }
}

Test(http_util, every_day_agrees_with_gmtime_and_comes_back) {
  for (uint64_t day = 0; day < 100000; day++) { /* 1970 to 2243: leap and century years */
    time_t seconds = (time_t)(day * 86400 + day % 86400);
    struct tm tm;
    char want[64], got[30];
    gmtime_r(&seconds, &tm);
    strftime(want, sizeof want, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    http_date_format((uint64_t)seconds * 1000 + 999, got);
    cr_assert_str_eq(got, want);
    uint64_t back = 0;
    cr_assert_eq(http_date_parse(slice_str(got), &back), 0);
    cr_assert_eq(back, (uint64_t)seconds * 1000);
  }
}

Test(http_util, the_edges_of_dates) {
  uint64_t ms = 1;
  cr_assert_eq(http_date_parse(SLICE_LIT("Mon, 01 Jan 1601 00:00:00 GMT"), &ms), 0);
  cr_assert_eq(ms, 0); /* before the epoch: older than everything here */
  cr_assert_eq(http_date_parse(SLICE_LIT("Fri, 31 Dec 9999 23:59:60 GMT"), &ms), 0);
  cr_assert_eq(ms, 253402300799000u);
  cr_assert_eq(http_date_parse(SLICE_LIT("Thursday, 01-Jan-70 00:00:00 GMT"), &ms), 0);
  cr_assert_eq(ms, 0);
  cr_assert_eq(http_date_parse(SLICE_LIT("Friday, 01-Jan-69 00:00:00 GMT"), &ms), 0);
  cr_assert_eq(ms, 3124224000000u);
  char text[30];
  http_date_format(UINT64_MAX, text); /* no overflow, and still 29 characters */
  cr_assert_eq(strlen(text), 29);
}

Test(http_util, percent_decoding) {
  uint8_t out[16];
  cr_assert_eq(http_percent_decode(SLICE_LIT("a%2Fb%2fc+d"), out, sizeof out), 7);
  cr_assert_arr_eq(out, "a/b/c+d", 7);
  cr_assert_eq(http_percent_decode(SLICE_LIT("%00%ff"), out, sizeof out), 2);
  cr_assert_arr_eq(out, "\0\xff", 2);
  cr_assert_eq(http_percent_decode(SLICE_LIT(""), out, sizeof out), 0);
  cr_assert_eq(http_percent_decode(SLICE_LIT("%"), out, sizeof out), ERR_INVALID);
  cr_assert_eq(http_percent_decode(SLICE_LIT("%4"), out, sizeof out), ERR_INVALID);
  cr_assert_eq(http_percent_decode(SLICE_LIT("%4g"), out, sizeof out), ERR_INVALID);
  cr_assert_eq(http_percent_decode(SLICE_LIT("%g4"), out, sizeof out), ERR_INVALID);
  cr_assert_eq(http_percent_decode(SLICE_LIT("%%41"), out, sizeof out), ERR_INVALID);
  cr_assert_eq(http_percent_decode(SLICE_LIT("0123456789abcdef"), out, 16), 16);
  cr_assert_eq(http_percent_decode(SLICE_LIT("0123456789abcdefg"), out, 16), ERR_TOO_LARGE);
  cr_assert_eq(http_percent_decode(SLICE_LIT("0123456789abcde%66"), out, 16), 16);
}

Test(http_util, status_words) {
  cr_assert_str_eq(http_status_words(200), "OK");
  cr_assert_str_eq(http_status_words(507), "Insufficient Storage");
  cr_assert_str_eq(http_status_words(599), "Unknown");
}
