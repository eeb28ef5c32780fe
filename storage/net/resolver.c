/* resolver.c: see resolver.h. One entry for each name that was ever asked for (the cluster's hosts:
 * few), never freed, as a thread may come back to it at any time. */
#include "storage/net/resolver.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "config/err.h"

struct entry {
  struct entry *next;
  char *host;
  uint64_t begun, finished; /* lookups, counted from 1; one is under way where they differ */
  int gai;                  /* of the one that finished last; 0: there are addresses */
  unsigned count;
  struct sockaddr_storage addresses[RESOLVER_ADDRESSES_MAX];
};

static pthread_mutex_t entries_lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *entries;
static resolver_lookup_fn *lookup_fn = getaddrinfo;

void resolver_use(resolver_lookup_fn *lookup) {
  lookup_fn = lookup;
}

/* With the lock held. */
static struct entry *entry_of(const char *host) {
  for (struct entry *e = entries; e; e = e->next)
    if (strcmp(e->host, host) == 0) return e;
  struct entry *e = calloc(1, sizeof *e);
  if (!e || !(e->host = strdup(host))) {
    free(e);
    return NULL;
  }
  e->next = entries;
  entries = e;
  return e;
}

static void take_addresses(struct entry *e, const struct addrinfo *all) {
  e->count = 0;
  for (const struct addrinfo *ai = all; ai && e->count < RESOLVER_ADDRESSES_MAX; ai = ai->ai_next) {
    if (ai->ai_family != AF_INET && ai->ai_family != AF_INET6) continue;
    if (ai->ai_addrlen > sizeof e->addresses[0]) continue;
    memcpy(&e->addresses[e->count++], ai->ai_addr, ai->ai_addrlen);
  }
}

static void *lookup_run(void *arg) {
  struct entry *e = arg;
  struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *all = NULL;
  int gai = lookup_fn(e->host, NULL, &hints, &all); /* the name is never changed */
  pthread_mutex_lock(&entries_lock);
  e->gai = gai;
  take_addresses(e, gai == 0 ? all : NULL);
  if (gai == 0 && e->count == 0) e->gai = EAI_NONAME;
  e->finished = e->begun;
  pthread_mutex_unlock(&entries_lock);
  if (gai == 0) freeaddrinfo(all);
  return NULL;
}

/* Detached: nobody waits for it, not even the end of the process. It takes no signals, which are
 * the main thread's. */
static int lookup_start(struct entry *e) {
  pthread_attr_t attr;
  pthread_t thread;
  sigset_t all, old;
  int err = pthread_attr_init(&attr);
  if (err != 0) return -err;
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &old);
  err = pthread_create(&thread, &attr, lookup_run, e);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_attr_destroy(&attr);
  if (err == 0) e->begun++;
  return err == EAGAIN ? -ENOMEM : -err; /* -EAGAIN would mean that it goes on */
}

static int question_begin(struct resolver_question *q, struct entry *e, const char **ret_why) {
  int err = e->begun == e->finished ? lookup_start(e) : 0;
  if (err < 0) {
    *ret_why = err_words(err);
    return err;
  }
  q->lookup = e->begun;
  q->poll_ms = RESOLVER_POLL_MS_MIN;
  return -EAGAIN;
}

static int question_end(struct resolver_question *q, const struct entry *e, uint16_t port,
                        struct sockaddr_storage *ret_address, const char **ret_why) {
  q->lookup = 0;
  if (e->gai != 0) {
    *ret_why = gai_strerror(e->gai);
    return ERR_NOT_FOUND;
  }
  *ret_address = e->addresses[q->answers++ % e->count];
  if (ret_address->ss_family == AF_INET)
    ((struct sockaddr_in *)ret_address)->sin_port = htons(port);
  else
    ((struct sockaddr_in6 *)ret_address)->sin6_port = htons(port);
  return 0;
}

int resolver_ask(struct resolver_question *q, const char *host, uint16_t port,
                 struct sockaddr_storage *ret_address, const char **ret_why) {
  int err;
  pthread_mutex_lock(&entries_lock);
  struct entry *e = entry_of(host);
  if (!e) {
    *ret_why = err_words(-ENOMEM);
    err = -ENOMEM;
  } else if (q->lookup == 0) {
    err = question_begin(q, e, ret_why);
  } else if (e->finished < q->lookup) {
    q->poll_ms = MIN(q->poll_ms * 2, (uint32_t)RESOLVER_POLL_MS_MAX);
    err = -EAGAIN;
  } else {
    err = question_end(q, e, port, ret_address, ret_why);
  }
  pthread_mutex_unlock(&entries_lock);
  return err;
}
