/* peer_tcp_link.c: the connection to a remote host: resolving, connecting, backing off; deadlines,
 * silence and PING.
 *
 *   link_connect -> resolve -> stream_connect -> ready ............ ended
 *        ^                                                            |
 *        +------------- retry timer (50 ms .. 3 s, jitter) -----------+ */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/err.h"
#include "storage/net/log_limit.h"
#include "storage/net/peer_tcp_impl.h"

#define ADDRESS_HOST_BYTES 256
#define RESOLVE_WORDS_BYTES 160
/* Beyond this between two ticks it was we who stood still, not the others. */
#define TICK_LATE_MS 1000

static const char *host_id(const struct peer_host *h) {
  return h->map->hosts[h->host].id;
}

static const char *host_address(const struct peer_host *h) {
  return h->map->hosts[h->host].address;
}

static void retry_fired(uv_timer_t *timer) {
  link_connect(timer->data);
}

static void retry_later(struct peer_host *h) {
  if (h->closing) return;
  uint32_t random;
  env_random(env_uv_env(h->env), &random, sizeof random);
  /* Half fixed, half random: hosts that lost one peer together do not come back together. */
  uint32_t delay = h->backoff_ms / 2 + random % (h->backoff_ms / 2 + 1);
  h->backoff_ms = MIN(h->backoff_ms * 2, (uint32_t)PEER_BACKOFF_MS_MAX);
  uv_timer_start(&h->retry, retry_fired, delay, 0);
}

/* There is no connection, and this is why. One line when it begins; a refusal once a minute. */
static void link_away(struct peer_host *h, enum stream_end end, int err, const char *why) {
  char key[SETTINGS_NAME_BYTES_MAX + 16];
  snprintf(key, sizeof key, "away %s", host_id(h));
  if (end == STREAM_REFUSED_US && err != ERR_SHUTDOWN) {
    snprintf(h->trouble, sizeof h->trouble, "host %s refused us: %s", host_id(h), why);
    log_limited(LOG_WARN, LOG_LIMIT_REFUSAL_MS, NULL, "peer", "host %s (%s) refused us: %s",
                host_id(h), host_address(h), why);
  } else if (end == STREAM_WE_REFUSED) {
    snprintf(h->trouble, sizeof h->trouble, "we refused host %s: %s", host_id(h), why);
    log_limited(LOG_WARN, LOG_LIMIT_REFUSAL_MS, NULL, "peer", "refused host %s (%s): %s",
                host_id(h), host_address(h), why);
  } else if (end == STREAM_NONSENSE) {
    snprintf(h->trouble, sizeof h->trouble, "host %s sent %s", host_id(h), why);
    log_limited(LOG_WARN, LOG_LIMIT_REFUSAL_MS, NULL, "peer",
                "host %s (%s) sent %s; the connection is closed", host_id(h), host_address(h), why);
  } else {
    snprintf(h->trouble, sizeof h->trouble, "%s", why);
    /* One that says goodbye is not lost; it is looked for all the same. */
    if (!h->away_logged)
      log_limited(err == ERR_SHUTDOWN ? LOG_INFO : LOG_WARN, LOG_LIMIT_EVENT_MS, key, "peer",
                  "host %s (%s) is away: %s", host_id(h), host_address(h), why);
  }
  h->away_logged = true;
  retry_later(h);
}

static void link_lost(struct peer_host *h, enum stream_end end, int err, const char *why) {
  h->stream = NULL;
  h->ping_out = false;
  flights_end_all(h, ERR_PEER_DOWN);
  host_update_up(h);
  if (!h->closing) link_away(h, end, err, why);
}

void link_drop(struct peer_host *h, const char *why) {
  struct stream *s = TAKE(h->stream);
  stream_reset(s);
  link_lost(h, STREAM_GONE, ERR_PEER_DOWN, why);
}

/* ---- drives ---- */

static struct hello_drive *hello_drive_find(struct hello *h, unsigned drive) {
  for (unsigned i = 0; i < h->drive_count; i++)
    if (h->drives[i].drive == drive) return &h->drives[i];
  return NULL;
}

/* Another id or boot counter than the policy has looked at. */
static bool drives_differ(struct hello *checked, struct hello *now) {
  for (unsigned i = 0; i < now->drive_count; i++) {
    const struct hello_drive *n = &now->drives[i];
    const struct hello_drive *c = hello_drive_find(checked, n->drive);
    if (!n->usable) continue;
    if (!c || !id128_eq(&c->drive_id, &n->drive_id) || c->boot_counter != n->boot_counter)
      return true;
  }
  return false;
}

static void note_usable(struct peer_host *h, struct hello *from) {
  for (unsigned i = 0; i < h->drive_count; i++) {
    const struct hello_drive *d = hello_drive_find(from, h->drive_first + i);
    h->drives[i].usable = d && d->usable;
  }
  host_update_up(h);
}

void link_take_drives(struct peer_host *h, const struct hello *from) {
  struct hello *now = (struct hello *)from;
  if (!drives_differ(h->hello, now)) {
    note_usable(h, now);
    return;
  }
  /* A drive that was not in the hello is believed after a new one only; what is under way is not
   * cut off for that: the next PONG asks again. */
  if (list_empty(&h->flights)) link_drop(h, "its drives have changed");
}

/* ---- the stream ---- */

static void link_ready(struct stream *s) {
  struct peer_host *h = s->owner;
  free(h->hello);
  free(h->hello_bytes);
  h->hello = TAKE(s->hs.remote);
  h->hello_bytes = TAKE(s->hs.theirs);
  h->backoff_ms = PEER_BACKOFF_MS_MIN;
  h->active_ms = h->ping_ms = uv_now(h->loop);
  h->tick_handed = h->tick_unsent = 0;
  h->ping_out = false;
  note_usable(h, h->hello);
  for (unsigned i = 0; i < h->drive_count; i++) {
    h->drives[i].peer.suspect = false;
    h->drives[i].answered_ms = h->active_ms;
  }
  char key[SETTINGS_NAME_BYTES_MAX + 16];
  snprintf(key, sizeof key, "here %s", host_id(h));
  log_limited(LOG_INFO, LOG_LIMIT_EVENT_MS, key, "peer", "host %s (%s) is connected", host_id(h),
              host_address(h));
  h->away_logged = false;
}

static void link_ended(struct stream *s) {
  struct peer_host *h = s->owner;
  if (h->stream != s) return;
  link_lost(h, s->end, s->err, s->why);
}

static void link_closed(struct stream *s) {
  struct peer_host *h = s->owner;
  h->streams_open--;
  host_close_advance(h);
}

static const struct stream_ops link_ops = {
    .ready = link_ready,
    .frame = peer_rx_frame,
    .bulk_done = peer_rx_bulk_done,
    .ended = link_ended,
    .closed = link_closed,
};

static void link_open(struct peer_host *h, const struct sockaddr *address) {
  struct stream *s;
  int err = stream_new(h->loop, &link_ops, h, h->policy, h->map, HELLO_CONNECTOR, (int)h->host, &s);
  if (err < 0) {
    link_away(h, STREAM_GONE, err, err_words(err));
    return;
  }
  h->stream = s;
  h->streams_open++;
  stream_connect(s, address);
}

static void link_resolve(struct peer_host *h, const char *host, uint16_t port) {
  struct sockaddr_storage address;
  const char *why = NULL;
  char words[RESOLVE_WORDS_BYTES];
  int err = resolver_ask(&h->name, host, port, &address, &why);
  if (err == 0) {
    link_open(h, (struct sockaddr *)&address);
  } else if (err == -EAGAIN) {
    uv_timer_start(&h->retry, retry_fired, h->name.poll_ms, 0);
  } else {
    snprintf(words, sizeof words, "its name does not resolve: %s", why);
    link_away(h, STREAM_GONE, ERR_PEER_DOWN, words);
  }
}

void link_connect(struct peer_host *h) {
  char host[ADDRESS_HOST_BYTES];
  uint16_t port;
  struct sockaddr_storage address;
  int err = settings_parse_address(host_address(h), host, &port);
  if (err < 0) {
    link_away(h, STREAM_GONE, err, "its address is not host:port");
    return;
  }
  /* Numbers need no resolver. */
  if (uv_ip4_addr(host, port, (struct sockaddr_in *)&address) == 0 ||
      uv_ip6_addr(host, port, (struct sockaddr_in6 *)&address) == 0)
    link_open(h, (struct sockaddr *)&address);
  else
    link_resolve(h, host, port);
}

/* ---- deadlines, silence, PING ---- */

/* Notes when bytes last moved: in, or out of a backlog. (Bytes that went straight into the kernel
 * prove nothing: it takes a few for a host that is dead.) */
static void tick_activity(struct peer_host *h, uint64_t now) {
  const struct stream *s = h->stream;
  uint64_t unsent = stream_unsent_bytes(s);
  uint64_t handed = s->tx_bytes - MIN(unsent, s->tx_bytes);
  if (h->tick_unsent > 0 && handed > h->tick_handed) h->active_ms = now;
  h->tick_handed = handed;
  h->tick_unsent = unsent;
  h->active_ms = MAX(h->active_ms, s->last_rx_ms);
  if (h->rx) drive_peer_of(h->rx->call->peer)->answered_ms = s->last_rx_ms;
}

/* A read that is late tells of its drive before it is answered. */
static void tick_latency(const struct flight *f, uint64_t now) {
  uint8_t verb = f->call->req.verb;
  if (f->ended || (verb != PEER_READ && verb != PEER_FETCH)) return;
  if (now - f->started_ms < PEER_TICK_BUSY_MS) return;
  peer_latency_waits(f->call->peer, (now - f->started_ms) * 1000, now);
}

/* A host that does not answer a PING is silent for all its drives: nobody need find that out with a
 * call of his own. */
static void tick_silence(struct peer_host *h, uint64_t now) {
  if (!h->ping_out || now - MAX(h->active_ms, h->ping_ms) < PEER_SUSPECT_MS) return;
  for (unsigned i = 0; i < h->drive_count; i++) {
    struct drive_peer *d = &h->drives[i];
    if (d->peer.suspect) continue;
    d->peer.suspect = d->suspect_by_ping = true;
  }
}

/* Ends calls that are late, marks drives that are silent. True where the whole host has been silent
 * for the time that a call may take. */
static bool tick_flights(struct peer_host *h, uint64_t now) {
  bool silent = false;
  list_foreach_safe(l, &h->flights) {
    struct flight *f = container_of(l, struct flight, link);
    uint64_t since = MAX(f->started_ms, h->active_ms);
    if (f->on == h->stream && now - since >= MAX(f->timeout_ms, (uint32_t)PEER_SILENCE_MS_MIN))
      silent = true;
    if (f->call) {
      struct drive_peer *d = drive_peer_of(f->call->peer);
      if (now - MAX(f->started_ms, d->answered_ms) >= PEER_SUSPECT_MS) {
        d->peer.suspect = true;
        d->suspect_by_ping = false;
      }
      tick_latency(f, now);
    }
    if (!f->ended && now - f->started_ms >= f->timeout_ms) flight_timeout(f);
  }
  return silent;
}

static void tick_ping(struct peer_host *h, uint64_t now) {
  if (h->ping_out) return;
  bool busy = !list_empty(&h->flights);
  bool due = now - h->ping_ms >= PEER_PING_MS;
  if (busy && now - MAX(h->active_ms, h->ping_ms) >= PEER_PING_BUSY_MS) due = true;
  if (!due) return;
  h->ping_out = true;
  h->ping_ms = now;
  stream_post_empty(h->stream, FRAME_PING, 0);
}

void tick_fired(uv_timer_t *timer) {
  struct peer_host *h = timer->data;
  uint64_t now = uv_now(h->loop);
  uint64_t period = h->tick_busy ? PEER_TICK_BUSY_MS : PEER_TICK_IDLE_MS;
  if (h->closing) return;
  if (now - h->tick_ms > period + TICK_LATE_MS) h->active_ms = now;
  h->tick_ms = now;
  if (peer_host_connected(h)) {
    tick_activity(h, now);
    bool silent = tick_flights(h, now);
    tick_silence(h, now);
    if (h->ping_out && now - MAX(h->active_ms, h->ping_ms) >= PEER_PING_SILENCE_MS) silent = true;
    if (silent)
      link_drop(h, "it has been silent for too long");
    else
      tick_ping(h, now);
  }
  h->tick_busy = !list_empty(&h->flights);
  uv_timer_start(&h->tick, tick_fired, h->tick_busy ? PEER_TICK_BUSY_MS : PEER_TICK_IDLE_MS, 0);
}

void tick_hurry(struct peer_host *h) {
  if (h->tick_busy) return;
  h->tick_busy = true;
  uv_timer_start(&h->tick, tick_fired, PEER_TICK_BUSY_MS, 0);
}
