/* resolver.h: names into addresses, without holding up a loop, its end, or other names.
 *
 * getaddrinfo cannot be cancelled and takes up to 20 s where no name server answers. On libuv's
 * pool of four threads a few dead names would keep every live one waiting, and a loop could not
 * close before. So a name has a thread of its own while it is looked up, shared by all loops of the
 * process, and those who wait look in from time to time: nothing is owed to them, and they may go.
 *
 * Nothing is cached: a question is answered by a lookup that was under way when it was first asked,
 * or began then. */
#ifndef KOFN_STORAGE_NET_RESOLVER_H
#define KOFN_STORAGE_NET_RESOLVER_H

#include <netdb.h>
#include <sys/socket.h>

#include "config/base.h"

#define RESOLVER_ADDRESSES_MAX 16 /* of one name; more are not looked at */
#define RESOLVER_POLL_MS_MIN 2
#define RESOLVER_POLL_MS_MAX 250

/* The caller's, zeroed before the first question. */
struct resolver_question {
  uint64_t lookup;  /* which lookup answers it; 0: not asked yet */
  uint32_t poll_ms; /* when to ask again after -EAGAIN */
  uint32_t answers; /* so far: a name with several addresses gives another one each time */
};

/* 0 with an address of `host`, with this port, which ends the question; -EAGAIN: ask again after
 * q->poll_ms; another error, with words: it has no address, which ends the question too.
 * Any thread. */
_must_check_ int resolver_ask(struct resolver_question *q, const char *host, uint16_t port,
                              struct sockaddr_storage *ret_address, const char **ret_why);

/* Tests put their own in place of getaddrinfo, before any question; its result is freed with
 * freeaddrinfo. */
typedef int resolver_lookup_fn(const char *host, const char *service, const struct addrinfo *hints,
                               struct addrinfo **ret_all);
void resolver_use(resolver_lookup_fn *lookup);

#endif
