/* resolver_main_test.c: names that resolve, names that do not, and names that hang. Runs under
 * TSan. */
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config/err.h"
#include "storage/net/resolver.h"
#include "tests/unit/net/tcp_client.h"
#include "tests/unit/net/toy_host.h"

#define TEST(name) printf("%s\n", name), fflush(stdout)
#define STUCK_NAMES 8 /* more than libuv's pool has threads */

/* ---- a name server in this process ---- */

static struct {
  pthread_mutex_t lock;
  pthread_cond_t wake;
  bool released;
  unsigned begun, ended; /* lookups */
  bool late_is_there;
} ns = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static int number(const char *text, struct addrinfo **ret_all) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
  return getaddrinfo(text, NULL, &hints, ret_all);
}

static int ns_lookup(const char *host, const char *service, const struct addrinfo *hints,
                     struct addrinfo **ret_all) {
  pthread_mutex_lock(&ns.lock);
  ns.begun++;
  while (strncmp(host, "stuck", 5) == 0 && !ns.released) pthread_cond_wait(&ns.wake, &ns.lock);
  bool late_is_there = ns.late_is_there;
  int gai = EAI_AGAIN;
  if (strcmp(host, "here") == 0 || (strcmp(host, "late") == 0 && late_is_there))
    gai = number("127.0.0.1", ret_all);
  if (strcmp(host, "two") == 0) {
    gai = number("127.0.0.1", ret_all);
    if (gai == 0) gai = number("::1", &(*ret_all)->ai_next);
  }
  ns.ended++;
  pthread_mutex_unlock(&ns.lock);
  return gai;
}

static unsigned lookups_begun(void) {
  pthread_mutex_lock(&ns.lock);
  unsigned begun = ns.begun;
  pthread_mutex_unlock(&ns.lock);
  return begun;
}

/* Asks to the end of the question. */
static int ask_name(struct resolver_question *q, const char *host, struct sockaddr_storage *address,
                    const char **why) {
  for (uint64_t end = uv_hrtime() + WAIT_NS;;) {
    int err = resolver_ask(q, host, 4711, address, why);
    if (err != -EAGAIN) return err;
    CHECK(q->poll_ms >= RESOLVER_POLL_MS_MIN && q->poll_ms <= RESOLVER_POLL_MS_MAX);
    CHECK(uv_hrtime() < end);
    usleep(1000);
  }
}

/* ---- the tests ---- */

static void test_answers(void) {
  TEST("an address with its port, another one each time, words where there is none");
  struct resolver_question q = {0};
  struct sockaddr_storage a;
  const char *why = NULL;
  for (unsigned i = 0; i < 4; i++) {
    CHECK(ask_name(&q, "two", &a, &why) == 0);
    CHECK(a.ss_family == (i % 2 ? AF_INET6 : AF_INET));
    if (a.ss_family == AF_INET)
      CHECK(((struct sockaddr_in *)&a)->sin_port == htons(4711));
    else
      CHECK(((struct sockaddr_in6 *)&a)->sin6_port == htons(4711));
  }
  CHECK(why == NULL);
  CHECK(ask_name(&q, "nowhere", &a, &why) == ERR_NOT_FOUND);
  CHECK(strcmp(why, gai_strerror(EAI_AGAIN)) == 0);
}

static void test_asks_anew(void) {
  TEST("each question is looked up anew: a name that did not resolve may do so later");
  struct resolver_question q = {0};
  struct sockaddr_storage a;
  const char *why;
  CHECK(ask_name(&q, "late", &a, &why) == ERR_NOT_FOUND);
  pthread_mutex_lock(&ns.lock);
  ns.late_is_there = true;
  pthread_mutex_unlock(&ns.lock);
  CHECK(ask_name(&q, "late", &a, &why) == 0);
}

/* From here on these lookups are under way. */
static void test_stuck(void) {
  TEST("names that hang are looked up once, and hold up no other");
  char name[16];
  struct sockaddr_storage a;
  const char *why;
  struct resolver_question q[STUCK_NAMES] = {0}, again = {0}, here = {0};
  unsigned before = lookups_begun();
  for (unsigned i = 0; i < STUCK_NAMES; i++) {
    snprintf(name, sizeof name, "stuck%u", i);
    CHECK(resolver_ask(&q[i], name, 1, &a, &why) == -EAGAIN);
  }
  for (uint64_t end = uv_hrtime() + WAIT_NS; lookups_begun() < before + STUCK_NAMES;) {
    CHECK(uv_hrtime() < end);
    usleep(1000);
  }
  for (unsigned i = 0; i < 20; i++) {
    CHECK(resolver_ask(&q[0], "stuck0", 1, &a, &why) == -EAGAIN);
    CHECK(resolver_ask(&again, "stuck0", 1, &a, &why) == -EAGAIN);
  }
  CHECK(q[0].poll_ms == RESOLVER_POLL_MS_MAX); /* it looks in less and less often */
  CHECK(ask_name(&here, "here", &a, &why) == 0);
  CHECK(lookups_begun() == before + STUCK_NAMES + 1);
}

static void test_close(void) {
  TEST("a peer whose name hangs is closed at once");
  static struct client c;
  client_open(&c, "stuck0:1", "s3cret");
  run_for(&c, 50);
  CHECK(!peer_host_connected(c.host));
  client_close(&c); /* the lookup goes on: it ends in main */
}

static void test_connects(void) {
  TEST("a peer is reached by its name once that resolves, and says why it was away, once");
  static struct toy_host n;
  static struct client c;
  char address[40];
  pthread_mutex_lock(&ns.lock);
  ns.late_is_there = false;
  pthread_mutex_unlock(&ns.lock);
  bed_log_begin();
  n = (struct toy_host){0};
  toy_host_start(&n, 1, NULL);
  snprintf(address, sizeof address, "late%s", strchr(n.address, ':'));
  unsigned before = lookups_begun();
  client_open(&c, address, "s3cret");
  for (uint64_t end = uv_hrtime() + WAIT_NS; lookups_begun() < before + 3;) {
    CHECK(uv_hrtime() < end && !peer_host_connected(c.host));
    client_turn(&c);
  }
  CHECK(bed_log_count("is away: its name does not resolve: ") == 1);
  pthread_mutex_lock(&ns.lock);
  ns.late_is_there = true;
  pthread_mutex_unlock(&ns.lock);
  run_connected(&c, true);
  client_close(&c);
  toy_host_stop(&n);
  CHECK(bed_log_count(" is away: ") == 1);
  bed_log_end();
}

static void release_all(void) {
  pthread_mutex_lock(&ns.lock);
  ns.released = true;
  pthread_cond_broadcast(&ns.wake);
  pthread_mutex_unlock(&ns.lock);
  struct resolver_question q = {0};
  struct sockaddr_storage a;
  const char *why;
  CHECK(ask_name(&q, "stuck0", &a, &why) == ERR_NOT_FOUND);
}

int main(void) {
  resolver_use(ns_lookup);
  test_answers();
  test_asks_anew();
  test_stuck();
  test_close();
  test_connects();
  release_all();
  printf("all passed\n");
  return 0;
}
