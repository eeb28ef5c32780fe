/* net_bed.c: see net_bed.h. */
#include "tests/unit/net/net_bed.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "codec/crc32c.h"
#include "config/err.h"

#define RAW_TIMEOUT_S 10

void bed_fail(const char *file, int line, const char *what) {
  printf("%s:%d: failed: %s\n", file, line, what);
  fflush(stdout);
  bed_log_end();
  exit(1);
}

void bed_map(struct cluster_map *map, unsigned self, const char *address_n1,
             const char *address_n2) {
  *map = (struct cluster_map){.name = "bed", .host_count = 2, .drive_count = 4, .self = self};
  map->hosts[0] = (struct map_host){"n1", address_n1 ? address_n1 : "127.0.0.1:1", "a", 0, 0, 2};
  map->hosts[1] = (struct map_host){"n2", address_n2 ? address_n2 : "127.0.0.1:1", "b", 1, 2, 2};
  static const char *const names[] = {"n1/d1", "n1/d2", "n2/d1", "n2/d2"};
  for (unsigned i = 0; i < 4; i++)
    map->drives[i] = (struct map_drive){names[i], names[i], (uint16_t)(i / 2)};
}

static int bound_socket(char address[32]) {
  struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t len = sizeof sin;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(fd >= 0);
  CHECK(bind(fd, (struct sockaddr *)&sin, sizeof sin) == 0);
  CHECK(getsockname(fd, (struct sockaddr *)&sin, &len) == 0);
  snprintf(address, 32, "127.0.0.1:%u", ntohs(sin.sin_port));
  return fd;
}

void bed_free_address(char out[32]) {
  close(bound_socket(out));
}

/* ---- policy ---- */

static void policy_fill(struct hello_policy *p, struct hello *out) {
  struct bed_policy *b = container_of(p, struct bed_policy, policy);
  *out = (struct hello){.boot = BOOT_FORMATTED, .epoch = 1, .canonical = b->canonical};
  snprintf(out->cluster_name, sizeof out->cluster_name, "%s", b->cluster_name);
  snprintf(out->host_id, sizeof out->host_id, "%s", b->host_id);
  const struct map_host *h = &b->map->hosts[b->map->self];
  out->drive_count = h->drive_count;
  for (unsigned i = 0; i < h->drive_count; i++) {
    unsigned drive = h->drive_first + i;
    out->drives[i] = (struct hello_drive){.drive = (uint16_t)drive,
                                          .usable = !b->unusable[drive],
                                          .drive_id = {{(uint8_t)(drive + 1)}},
                                          .boot_counter = 7};
  }
}

static int policy_check(struct hello_policy *p, int host, const struct hello *remote, char *why,
                        size_t why_cap) {
  struct bed_policy *b = container_of(p, struct bed_policy, policy);
  if (strcmp(remote->cluster_name, b->cluster_name) != 0) {
    snprintf(why, why_cap, "cluster name differs: they are in %s, we in %s", remote->cluster_name,
             b->cluster_name);
    return ERR_REFUSED;
  }
  if (strcmp(remote->canonical, b->canonical) != 0) {
    snprintf(why, why_cap, "membership differs: they have \"%s\", we have \"%s\"",
             remote->canonical, b->canonical);
    return ERR_REFUSED;
  }
  if (host < 0) {
    snprintf(why, why_cap, "no host %s is known here", remote->host_id);
    return ERR_REFUSED;
  }
  return 0;
}

static int policy_control(struct hello_policy *p, int host, struct slice request,
                          struct byte_writer *reply) {
  struct bed_policy *b = container_of(p, struct bed_policy, policy);
  __atomic_add_fetch(&b->controls, 1, __ATOMIC_RELAXED);
  if (slice_eq(request, SLICE_LIT("fail"))) {
    put_bytes(reply, SLICE_LIT("because"));
    return ERR_CONFIG;
  }
  put_u8(reply, (uint8_t)host);
  put_bytes(reply, request);
  return 0;
}

void bed_policy_open(struct bed_policy *p, const struct cluster_map *map, const char *secret) {
  *p = (struct bed_policy){.policy = {policy_fill, policy_check, policy_control, slice_str(secret)},
                           .map = map,
                           .cluster_name = "bed",
                           .canonical = "two hosts",
                           .host_id = map->hosts[map->self].id};
}

/* ---- raw ---- */

static void raw_options(int fd) {
  struct timeval tv = {.tv_sec = RAW_TIMEOUT_S};
  CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv) == 0);
  CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv) == 0);
  int on = 1;
  CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
}

int raw_listen(char address[32]) {
  int fd = bound_socket(address);
  raw_options(fd);
  CHECK(listen(fd, 16) == 0);
  return fd;
}

struct raw raw_accept(int listen_fd) {
  struct raw r = {.fd = accept(listen_fd, NULL, NULL)};
  CHECK(r.fd >= 0);
  raw_options(r.fd);
  return r;
}

struct raw raw_connect(const char *address) {
  char host[64];
  snprintf(host, sizeof host, "%s", address);
  char *colon = strrchr(host, ':');
  *colon = 0;
  struct sockaddr_in sin = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10))};
  CHECK(inet_pton(AF_INET, host, &sin.sin_addr) == 1);
  struct raw r = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  CHECK(r.fd >= 0);
  raw_options(r.fd);
  CHECK(connect(r.fd, (struct sockaddr *)&sin, sizeof sin) == 0);
  return r;
}

void raw_close(struct raw *r) {
  handshake_close(&r->hs);
  if (r->fd >= 0) close(r->fd);
  r->fd = -1;
}

void raw_send(struct raw *r, const void *data, size_t len) {
  const uint8_t *at = data;
  while (len > 0) {
    ssize_t n = send(r->fd, at, len, MSG_NOSIGNAL);
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) return; /* the reading side will tell */
    CHECK(n > 0);
    at += n;
    len -= (size_t)n;
  }
}

bool raw_recv(struct raw *r, void *data, size_t len) {
  uint8_t *at = data;
  while (len > 0) {
    ssize_t n = recv(r->fd, at, len, 0);
    if (n == 0 || (n < 0 && errno == ECONNRESET)) return false;
    CHECK(n > 0); /* a timeout fails the test */
    at += n;
    len -= (size_t)n;
  }
  return true;
}

void raw_frame(struct raw *r, uint8_t type, uint32_t stream, struct slice meta, struct slice bulk) {
  struct frame_header h = {type, stream, (uint32_t)meta.len, (uint32_t)bulk.len,
                           crc32c(0, meta.data, meta.len)};
  uint8_t bytes[FRAME_HEADER_BYTES];
  frame_header_encode(&h, bytes);
  raw_send(r, bytes, sizeof bytes);
  raw_send(r, meta.data, meta.len);
  raw_send(r, bulk.data, bulk.len);
}

bool raw_next(struct raw *r, struct frame_header *head, uint8_t **meta) {
  uint8_t bytes[FRAME_HEADER_BYTES];
  const char *why;
  if (!raw_recv(r, bytes, sizeof bytes)) return false;
  CHECK(frame_header_decode(bytes, head, &why) == 0);
  *meta = malloc(head->meta_len + 1);
  if (!raw_recv(r, *meta, head->meta_len)) {
    free(*meta);
    return false;
  }
  CHECK(crc32c(0, *meta, head->meta_len) == head->meta_crc);
  static _Thread_local uint8_t sink[1 << 16];
  for (uint32_t left = head->bulk_len; left > 0;) {
    uint32_t n = MIN(left, (uint32_t)sizeof sink);
    if (!raw_recv(r, sink, n)) {
      free(*meta);
      return false;
    }
    left -= n;
  }
  return true;
}

/* One frame of the handshake: 0, a BYE's error, or ERR_PEER_DOWN. */
static int raw_step(struct raw *r, uint8_t type, char why[HELLO_WORDS_BYTES_MAX]) {
  struct frame_header head;
  uint8_t *meta;
  if (!raw_next(r, &head, &meta)) return ERR_PEER_DOWN;
  struct slice s = slice_of(meta, head.meta_len);
  int err = 0;
  if (head.type == FRAME_BYE)
    CHECK(hello_get_bye(s, &err, why) == 0);
  else if (head.type != type)
    err = ERR_PROTOCOL;
  else
    err = type == FRAME_HELLO ? handshake_hello(&r->hs, s) : handshake_proof(&r->hs, s);
  free(meta);
  if (err == ERR_REFUSED && !why[0]) snprintf(why, HELLO_WORDS_BYTES_MAX, "%s", r->hs.why);
  return err;
}

static void raw_prove(struct raw *r) {
  uint8_t proof[SHA256_LEN];
  CHECK(handshake_prove(&r->hs, proof) == 0);
  raw_frame(r, FRAME_PROOF, 0, slice_of(proof, sizeof proof), (struct slice){0});
}

int raw_shake(struct raw *r, struct hello_policy *policy, const struct cluster_map *map,
              enum hello_role role, char why[HELLO_WORDS_BYTES_MAX]) {
  uint8_t challenge[HELLO_CHALLENGE_BYTES];
  CHECK(getrandom(challenge, sizeof challenge, 0) == sizeof challenge);
  why[0] = 0;
  CHECK(handshake_open(&r->hs, policy, map, role, -1, challenge) == 0);
  raw_frame(r, FRAME_HELLO, 0, slice_of(r->hs.ours.data, r->hs.ours.len), (struct slice){0});
  int err = raw_step(r, FRAME_HELLO, why);
  if (err < 0) return err;
  if (role == HELLO_CONNECTOR) raw_prove(r);
  err = raw_step(r, FRAME_PROOF, why);
  if (err < 0) return err;
  if (role == HELLO_LISTENER) raw_prove(r);
  return 0;
}

bool raw_bye(struct raw *r, char why[HELLO_WORDS_BYTES_MAX]) {
  struct frame_header head;
  uint8_t *meta;
  why[0] = 0;
  while (raw_next(r, &head, &meta)) {
    int err;
    bool bye = head.type == FRAME_BYE;
    if (bye) CHECK(hello_get_bye(slice_of(meta, head.meta_len), &err, why) == 0);
    free(meta);
    if (bye) return true;
  }
  return false;
}

/* ---- captured log ---- */

static int log_saved = -1, log_file = -1;

void bed_log_begin(void) {
  char path[] = "/tmp/kofn-net-test-XXXXXX";
  fflush(stderr);
  log_file = mkstemp(path);
  CHECK(log_file >= 0 && unlink(path) == 0);
  log_saved = dup(2);
  CHECK(log_saved >= 0 && fcntl(log_file, F_SETFL, O_APPEND) == 0);
  CHECK(dup2(log_file, 2) == 2);
}

unsigned bed_log_count(const char *text) {
  struct stat st;
  CHECK(log_file >= 0 && fstat(log_file, &st) == 0);
  char *all = calloc(1, (size_t)st.st_size + 1);
  CHECK(all && pread(log_file, all, (size_t)st.st_size, 0) == st.st_size);
  unsigned count = 0;
  for (char *at = all; (at = strstr(at, text)); at++) count++;
  free(all);
  return count;
}

bool bed_log_has(const char *text) {
  return bed_log_count(text) > 0;
}

void bed_log_end(void) {
  if (log_saved < 0) return;
  dup2(log_saved, 2);
  /* What was captured is shown after all: a sanitizer's words may stand in it. */
  char buf[4096];
  ssize_t n;
  for (off_t at = 0; (n = pread(log_file, buf, sizeof buf, at)) > 0; at += n)
    if (write(2, buf, (size_t)n) != n) break;
  close(log_saved);
  close(log_file);
  log_saved = log_file = -1;
}
