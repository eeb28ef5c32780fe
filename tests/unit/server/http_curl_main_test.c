/* http_curl_main_test.c: curl against the toy server: uploads in both framings with and without
 * 100-continue, downloads, HEAD, HTTP/1.0, h2c upgrade offers, many requests on one connection.
 * Skipped, loudly, where curl is missing. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "http_bed.h"

static struct bed bed;
static char dir[] = "/tmp/kofn-http-curl-XXXXXX";

/* Runs `curl ... args` in the test's directory with $U as the server's URL; the exit status. */
static int sh(const char *command) {
  char text[1024];
  int n =
      snprintf(text, sizeof text, "cd %s && U=http://127.0.0.1:%d && %s", dir, bed.port, command);
  CHECK(n > 0 && (size_t)n < sizeof text);
  int status = system(text);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static const struct {
  const char *name, *command;
} tests[] = {
    {"get", "test \"$(curl -sS --max-time 30 $U/hello)\" = hello"},
    {"PUT with length and 100-continue",
     "curl -sS --max-time 60 -T data -o out $U/echo -w '%{http_code}' | grep -qx 200 && cmp data "
     "out"},
    {"PUT chunked from a pipe",
     "cat data | curl -sS --max-time 60 -T - -o out $U/echo && cmp data out"},
    {"PUT without Expect",
     "curl -sS --max-time 60 -H Expect: -T data -o out $U/echo && cmp data out"},
    {"PUT of an empty file", "curl -sS --max-time 30 -T empty $U/echo -o out && cmp empty out"},
    {"100-continue is answered at once, not after curl's patience",
     "curl -sS -v --max-time 30 --expect100-timeout 25 -H 'Expect: 100-continue' -T data -o out "
     "$U/echo 2>log && cmp data out && grep -q 'HTTP/1.1 100 Continue' log"},
    {"PUT that is refused keeps its answer",
     "curl -sS --max-time 60 -T data $U/refuse -o out -w '%{http_code}' | grep -qx 403 && "
     "test \"$(cat out)\" = no"},
    {"chunked PUT that is refused keeps its answer",
     "cat data | curl -sS --max-time 60 -H Expect: -T - $U/refuse -o out -w '%{http_code}' | "
     "grep -qx 403"},
    {"HEAD", "curl -sS --max-time 30 -I \"$U/big?n=12345\" | grep -qi 'content-length: 12345'"},
    {"large GET", "curl -sS --max-time 60 \"$U/big?n=50000000\" | wc -c | grep -qx 50000000"},
    {"large chunked GET",
     "curl -sS --max-time 60 \"$U/stream?n=50000000\" | wc -c | grep -qx 50000000"},
    {"HTTP/1.0", "test \"$(curl -sS --max-time 30 -0 $U/hello)\" = hello"},
    {"an offer of h2c is passed over",
     "test \"$(curl -sS --max-time 30 --http2 $U/hello)\" = hello"},
    {"prior-knowledge HTTP/2 is refused",
     "! curl -sS --max-time 30 --http2-prior-knowledge $U/hello"
     " 2>/dev/null"},
    {"one connection for many requests",
     "curl -sS --max-time 60 \"$U/hello?x=[1-100]\" -w '%{num_connects}\\n' -o out | "
     "awk '{n += $1} END {exit n != 1}'"},
    {"a cut answer is an error", "! curl -sS --max-time 30 $U/short -o out 2>/dev/null"},
    {"a reset answer is an error", "! curl -sS --max-time 30 $U/reset -o out 2>/dev/null"},
};

int main(void) {
  if (system("curl --version >/dev/null 2>&1") != 0) {
    printf("http curl: SKIPPED: curl is not installed, nothing was checked\n");
    return 0;
  }
  CHECK(mkdtemp(dir));
  bed_start(&bed, bed_limits());
  CHECK(sh("head -c 5000003 /dev/urandom >data && : >empty") == 0);
  for (size_t i = 0; i < ARRAY_LEN(tests); i++) {
    printf("http curl: %s\n", tests[i].name);
    fflush(stdout);
    bed_check(sh(tests[i].command) == 0, tests[i].command, (int)i, tests[i].name);
  }
  CHECK(sh("rm -f data empty out log") == 0 && rmdir(dir) == 0);
  bed_stop(&bed);
  printf("http curl: %zu checks passed\n", ARRAY_LEN(tests));
  return 0;
}
