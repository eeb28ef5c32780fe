/* listen.c: listening sockets. SO_REUSEPORT lets every loop have one of its own, and hides that
 * another process has the port: listen_probe binds without it first. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "config/err.h"
#include "config/settings.h"
#include "storage/net/chunk_server.h"
#include "storage/net/stream.h"

#define LISTEN_HOST_BYTES 256

/* getaddrinfo's own errors, as ours. */
static int resolve_error(int gai) {
  if (gai == EAI_SYSTEM) return -errno;
  return gai == EAI_MEMORY ? -ENOMEM : -EADDRNOTAVAIL;
}

static int set_option(int fd, int level, int option, int value) {
  return setsockopt(fd, level, option, &value, sizeof value) < 0 ? -errno : 0;
}

/* A bound socket for one address, or -errno. */
static int bind_one(const struct addrinfo *ai, bool reuse_port) {
  int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  /* SO_REUSEADDR: a restart must not wait for the last connections' TIME_WAIT. It does not let two
   * listeners share a port. */
  int err = set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (err == 0 && reuse_port) err = set_option(fd, SOL_SOCKET, SO_REUSEPORT, 1);
  if (err == 0 && ai->ai_family == AF_INET6) err = set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (err == 0 && bind(fd, ai->ai_addr, ai->ai_addrlen) < 0) err = -errno;
  /* Two sockets may be bound to one port with SO_REUSEADDR as long as none listens. */
  if (err == 0 && listen(fd, STREAM_LISTEN_BACKLOG) < 0) err = -errno;
  if (err == 0) return fd;
  close(fd);
  return err;
}

static int bind_address(const char *address, bool reuse_port) {
  char host[LISTEN_HOST_BYTES], service[8];
  uint16_t port;
  int err = settings_parse_address(address, host, &port);
  if (err < 0) return err;
  snprintf(service, sizeof service, "%u", port);
  struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  struct addrinfo *all = NULL;
  int gai = getaddrinfo(host[0] ? host : NULL, service, &hints, &all);
  if (gai != 0) return resolve_error(gai);
  int fd = -EADDRNOTAVAIL;
  /* ":port" means all addresses: IPv6's any takes IPv4 too. */
  for (int pass = 0; pass < 2 && fd < 0; pass++) {
    for (struct addrinfo *ai = all; ai && fd < 0; ai = ai->ai_next) {
      bool first = host[0] || ai->ai_family == AF_INET6;
      if (first != (pass == 0)) continue;
      int got = bind_one(ai, reuse_port);
      if (got == -EADDRINUSE) {
        freeaddrinfo(all);
        return got;
      }
      if (got >= 0 || fd == -EADDRNOTAVAIL) fd = got;
    }
  }
  freeaddrinfo(all);
  return fd;
}

int listen_probe(const char *address) {
  int fd = bind_address(address, false);
  if (fd < 0) return fd;
  close(fd);
  return 0;
}

int listen_open(const char *address) {
  return bind_address(address, true);
}
