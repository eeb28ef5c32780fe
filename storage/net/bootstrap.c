/* bootstrap.c: the first start of several hosts (ARCHITECTURE.md), on a loop of its own.
 *
 *   all hosts connected and empty -> coordinator records the new cluster id durably
 *   -> INIT to each -> a host records it, formats its drives, answers -> the coordinator formats
 *   its own, last
 *
 * So a formatted coordinator means that all are formatted, and every step can be repeated: a host
 * that is already formatted with the recorded id counts as done. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "config/err.h"
#include "config/log.h"
#include "storage/net/chunk_server.h"
#include "storage/net/cluster_impl.h"
#include "storage/net/env_uv.h"
#include "storage/net/peer_tcp.h"

#define BOOT_TICK_MS 100
#define BOOT_SAY_FIRST_MS 2000
#define BOOT_SAY_MS 15000
#define BOOT_INIT_TIMEOUT_MS 60000 /* a host syncs a few hundred directories per drive */
#define BOOT_INIT_RETRY_MS 3000
#define BOOT_LINGER_TICKS 3 /* our answer to INIT goes out before the connections close */
#define BOOT_BUFFER_BYTES (1u << 20)
#define BOOT_WORDS_BYTES_MAX 1024

struct boot_host {
  struct boot *boot;
  struct peer_host *peer; /* NULL: this host, or closed */
  unsigned host;
  bool asked; /* INIT is under way */
  bool done;  /* it is formatted with our id */
  uint64_t ask_again_ms;
};

struct boot {
  struct cluster *c;
  const int *stop;
  struct drive_error *e;
  uv_loop_t loop;
  struct env_uv *env;
  struct chunk_server *server;
  struct peer *no_peers[MAP_DRIVES_MAX];
  struct boot_host hosts[MAP_HOSTS_MAX];
  uv_timer_t tick;
  unsigned open; /* peers, server and timer that have not closed */
  bool finished;
  int result;
  unsigned linger;
  uint64_t say_ms;
};

static bool is_coordinator(const struct boot *b) {
  return b->c->map->self == COORDINATOR_HOST;
}

static const char *host_id(const struct boot *b, unsigned host) {
  return b->c->map->hosts[host].id;
}

static void boot_ids(struct boot *b, struct id128 *ret_cluster, struct id128 *ret_init) {
  struct state *s = state_lock(b->c->dir);
  *ret_cluster = s->cluster_id;
  *ret_init = s->init_id;
  state_unlock(b->c->dir);
}

/* ---- the end ---- */

static void boot_part_closed(void *arg) {
  struct boot *b = arg;
  if (--b->open == 0) env_uv_close(b->env);
}

static void boot_timer_closed(uv_handle_t *handle) {
  boot_part_closed(handle->data);
}

static void boot_finish(struct boot *b, int result) {
  if (b->finished) return;
  b->finished = true;
  b->result = result;
  for (unsigned i = 0; i < b->c->map->host_count; i++)
    if (b->hosts[i].peer) peer_host_close(TAKE(b->hosts[i].peer), boot_part_closed, b);
  if (b->server) chunk_server_stop(b->server, boot_part_closed, b);
  uv_close((uv_handle_t *)&b->tick, boot_timer_closed);
}

/* ---- looking at the others ---- */

/* A host that was initialised before refuses us, or carries another id: this host's drives are
 * those of a lost member, or the coordinator's memory is lost. */
static bool boot_refused(struct boot *b, const struct id128 *init_id) {
  for (unsigned i = 0; i < b->c->map->host_count; i++) {
    struct boot_host *h = &b->hosts[i];
    if (!h->peer) continue;
    const char *trouble = peer_host_trouble(h->peer);
    if (strstr(trouble, INITIALISED_WORDS)) {
      boot_finish(b, error_words(b->e, ERR_CONFIG, "%s", trouble));
      return true;
    }
    const struct hello *hello = peer_host_hello(h->peer);
    if (!is_coordinator(b) || !peer_host_connected(h->peer) || hello->boot != BOOT_FORMATTED)
      continue;
    if (id128_eq(&hello->cluster_id, init_id)) {
      h->done = true;
      continue;
    }
    char hex[ID128_HEX_LEN + 1];
    id128_hex(&hello->cluster_id, hex);
    boot_finish(
        b, error_words(b->e, ERR_CONFIG,
                       "the drives of this host (%s) are empty, but host %s " INITIALISED_WORDS
                       " with cluster id %s, which this host does not remember: are its "
                       "disks and state directory mounted? If they are lost, replace each "
                       "drive: kofn drive replace %s (from a later version on)",
                       host_id(b, b->c->map->self), host_id(b, i), hex, own_name(&b->c->own[0])));
    return true;
  }
  return false;
}

/* Says once a while whom we wait for. */
static void boot_say(struct boot *b) {
  uint64_t now = uv_now(&b->loop);
  if (now < b->say_ms) return;
  b->say_ms = now + BOOT_SAY_MS;
  char words[BOOT_WORDS_BYTES_MAX];
  size_t len = 0;
  words[0] = 0;
  for (unsigned i = 0; i < b->c->map->host_count && len < sizeof words; i++) {
    struct boot_host *h = &b->hosts[i];
    if (!h->peer || h->done || peer_host_connected(h->peer)) continue;
    int n = snprintf(words + len, sizeof words - len, "%s%s (%s)", len ? ", " : "", host_id(b, i),
                     peer_host_trouble(h->peer));
    if (n > 0) len += (size_t)n;
  }
  if (len > 0) {
    log_info("cluster", "first start: waiting for %s", words);
  } else if (!is_coordinator(b)) {
    log_info("cluster", "first start: waiting for host %s, which initialises the cluster",
             host_id(b, COORDINATOR_HOST));
  }
}

/* ---- the coordinator ---- */

static void init_answered(void *arg, int err, struct slice reply) {
  struct boot_host *h = arg;
  struct boot *b = h->boot;
  h->asked = false;
  if (b->finished) return;
  h->ask_again_ms = uv_now(&b->loop) + BOOT_INIT_RETRY_MS;
  if (err < 0) {
    log_warn("cluster", "first start: host %s did not answer: %s", host_id(b, h->host),
             err_words(err));
    return;
  }
  struct byte_reader r = byte_reader_of(reply);
  bool accepted = get_u8(&r) == 1;
  struct slice words = accepted ? (struct slice){0} : get_str16(&r);
  if (accepted && !r.failed) {
    h->done = true; /* the next tick goes on */
    return;
  }
  char text[BOOT_WORDS_BYTES_MAX];
  snprintf(text, sizeof text, "%.*s", (int)MIN(words.len, sizeof text - 1),
           words.data ? (const char *)words.data : "");
  if (strstr(text, INITIALISED_WORDS)) {
    boot_finish(b, error_words(b->e, ERR_CONFIG, "host %s refuses to be initialised: %s",
                               host_id(b, h->host), text));
    return;
  }
  log_warn("cluster", "first start: host %s cannot be initialised yet: %s", host_id(b, h->host),
           text);
}

static void init_send(struct boot_host *h, const struct id128 *id) {
  struct boot *b = h->boot;
  struct byte_writer w = {.max = 256};
  put_u8(&w, CONTROL_INIT);
  put_id(&w, id);
  put_bytes(&w, slice_of(b->c->map_digest, SHA256_LEN));
  if (!w.failed) {
    h->asked = true;
    peer_host_control(h->peer, slice_of(w.data, w.len), BOOT_INIT_TIMEOUT_MS, init_answered, h);
  }
  byte_writer_free(&w);
}

/* All others are connected and empty: the one moment in which a cluster may be made. */
static bool all_are_empty(const struct boot *b) {
  for (unsigned i = 0; i < b->c->map->host_count; i++) {
    const struct boot_host *h = &b->hosts[i];
    if (!h->peer) continue;
    if (!peer_host_connected(h->peer) || peer_host_hello(h->peer)->boot != BOOT_EMPTY) return false;
  }
  return true;
}

static void coordinate(struct boot *b, struct id128 id) {
  uint64_t now = uv_now(&b->loop);
  if (id128_is_zero(&id)) {
    if (!all_are_empty(b)) return;
    if (getrandom(id.bytes, sizeof id.bytes, 0) != (ssize_t)sizeof id.bytes) return;
    int err = cluster_record_init(b->c, &id, b->e);
    if (err < 0) {
      boot_finish(b, err);
      return;
    }
  }
  bool all_done = true;
  for (unsigned i = 0; i < b->c->map->host_count; i++) {
    struct boot_host *h = &b->hosts[i];
    if (!h->peer || h->done) continue;
    all_done = false;
    if (!h->asked && now >= h->ask_again_ms && peer_host_connected(h->peer)) init_send(h, &id);
  }
  if (all_done) boot_finish(b, cluster_format_own(b->c, b->e));
}

/* ---- the loop ---- */

static void boot_advance(struct boot *b) {
  struct id128 cluster, init;
  if (b->finished) return;
  if (__atomic_load_n(b->stop, __ATOMIC_SEQ_CST)) {
    boot_finish(b, error_words(b->e, ERR_SHUTDOWN, "stopped before the first start was complete"));
    return;
  }
  boot_ids(b, &cluster, &init);
  if (!id128_is_zero(&cluster)) { /* INIT came */
    if (++b->linger >= BOOT_LINGER_TICKS) boot_finish(b, 0);
    return;
  }
  if (boot_refused(b, &init)) return;
  if (is_coordinator(b)) coordinate(b, init);
  if (!b->finished) boot_say(b);
}

static void boot_tick(uv_timer_t *timer) {
  boot_advance(timer->data);
}

static int boot_start(struct boot *b) {
  const struct cluster_map *map = b->c->map;
  const char *listen = b->c->settings->server.peer_listen;
  int err = chunk_server_start(b->env, map, b->no_peers, &b->c->policy, listen, &b->server);
  if (err < 0)
    return error_words(
        b->e, err, "server.peer_listen: cannot listen on %s: %s", listen,
        err == -EADDRINUSE ? "the port is in use by another process" : err_words(err));
  b->open++;
  for (unsigned i = 0; i < map->host_count; i++) {
    struct boot_host *h = &b->hosts[i];
    h->boot = b;
    h->host = i;
    if (i == map->self) continue;
    err = peer_host_new(b->env, map, i, &b->c->policy, &h->peer);
    if (err < 0)
      return error_words(b->e, err, "cannot connect to host %s: %s", host_id(b, i), err_words(err));
    b->open++;
  }
  return 0;
}

static int boot_run(struct boot *b) {
  int err = uv_loop_init(&b->loop);
  if (err < 0) return error_words(b->e, err, "no event loop: %s", err_words(err));
  err = env_uv_open(&b->loop, NULL, BOOT_BUFFER_BYTES, &b->env);
  if (err < 0) {
    uv_loop_close(&b->loop);
    return error_words(b->e, err, "no event loop: %s", err_words(err));
  }
  uv_timer_init(&b->loop, &b->tick);
  b->tick.data = b;
  b->open = 1;
  b->say_ms = uv_now(&b->loop) + BOOT_SAY_FIRST_MS;
  uv_timer_start(&b->tick, boot_tick, BOOT_TICK_MS, BOOT_TICK_MS);
  err = boot_start(b);
  if (err < 0) boot_finish(b, err);
  uv_run(&b->loop, UV_RUN_DEFAULT);
  uv_loop_close(&b->loop);
  return b->result;
}

int bootstrap_run(struct cluster *c, const int *stop, struct drive_error *e) {
  bool any_formatted = false;
  struct state *s = state_lock(c->dir);
  bool begun = !id128_is_zero(&s->init_id);
  state_unlock(c->dir);
  for (unsigned i = 0; i < c->own_count; i++)
    if (c->own[i].state == DRIVE_FORMATTED) any_formatted = true;
  /* INIT had come; or, on the coordinator, every other host had answered. */
  if (begun && (any_formatted || c->map->self != COORDINATOR_HOST)) return cluster_format_own(c, e);
  struct boot *b = calloc(1, sizeof *b);
  if (!b) return error_words(e, -ENOMEM, "out of memory");
  b->c = c;
  b->stop = stop;
  b->e = e;
  log_info("cluster", "first start of cluster %s: the drives of this host are empty", c->map->name);
  int result = boot_run(b);
  free(b);
  return result;
}
