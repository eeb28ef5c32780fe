/* net_bed.h: what the network's tests share: a cluster of two hosts in one process, and a peer made
 * of plain blocking sockets that can misbehave at will. */
#ifndef KOFN_TESTS_NET_BED_H
#define KOFN_TESTS_NET_BED_H

#include "storage/net/chunk_server.h"
#include "storage/net/frame.h"
#include "storage/net/handshake.h"
#include "storage/net/peer_tcp.h"

#define CHECK(cond) ((cond) ? (void)0 : bed_fail(__FILE__, __LINE__, #cond))
_Noreturn void bed_fail(const char *file, int line, const char *what);

/* Hosts n1 (drives 0, 1) and n2 (drives 2, 3); `self` is which of them this map is for. Addresses
 * are on loopback; address[i] may be NULL. */
void bed_map(struct cluster_map *map, unsigned self, const char *address_n1,
             const char *address_n2);
/* A loopback address with a port that was free a moment ago. */
void bed_free_address(char out[32]);

/* A policy with plain rules: same cluster name, same canonical text, known host. */
struct bed_policy {
  struct hello_policy policy;
  const struct cluster_map *map;
  const char *cluster_name, *canonical, *host_id;
  bool unusable[4];  /* drives told as out of service; read by several threads: set before */
  unsigned controls; /* atomic */
};
void bed_policy_open(struct bed_policy *p, const struct cluster_map *map, const char *secret);

/* ---- a raw peer: blocking, with a receive timeout of some seconds ---- */
struct raw {
  int fd;
  struct handshake hs;
};
int raw_listen(char address[32]); /* a listening descriptor */
struct raw raw_accept(int listen_fd);
struct raw raw_connect(const char *address);
void raw_close(struct raw *r);
void raw_send(struct raw *r, const void *data, size_t len);
/* False at EOF or reset. */
bool raw_recv(struct raw *r, void *data, size_t len);
/* A frame with this meta and bulk. */
void raw_frame(struct raw *r, uint8_t type, uint32_t stream, struct slice meta, struct slice bulk);
/* Reads a frame; meta is malloc'ed; bulk is read and dropped. False at the end. */
bool raw_next(struct raw *r, struct frame_header *head, uint8_t **meta);
/* The whole handshake; 0, or the error (a BYE's words go to why). */
int raw_shake(struct raw *r, struct hello_policy *policy, const struct cluster_map *map,
              enum hello_role role, char why[HELLO_WORDS_BYTES_MAX]);
/* Reads until a BYE or the end: true with the words of the BYE. */
bool raw_bye(struct raw *r, char why[HELLO_WORDS_BYTES_MAX]);

/* ---- what was logged: standard error goes to a file while captured ---- */
void bed_log_begin(void);
/* Restores standard error; true where `text` stood in what was captured. */
bool bed_log_has(const char *text);
unsigned bed_log_count(const char *text);
void bed_log_end(void);

#endif
