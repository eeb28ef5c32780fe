/* peer_tcp_impl.h: between peer_tcp.c (calls), peer_tcp_rx.c (answers) and peer_tcp_link.c (the
 * connection). */
#ifndef KOFN_STORAGE_NET_PEER_TCP_IMPL_H
#define KOFN_STORAGE_NET_PEER_TCP_IMPL_H

#include "storage/net/peer_tcp.h"
#include "storage/net/resolver.h"
#include "storage/net/stream.h"

#define PEER_TICK_BUSY_MS 25
#define PEER_TICK_IDLE_MS 1000
#define PEER_SUSPECT_MS 1000
#define PEER_STUCK_MS 750 /* no byte came: a write given up takes the connection along */
#define PEER_SILENCE_MS_MIN                                                                   \
  1000                        /* no connection is reset for less, however short the deadlines \
                               */
#define PEER_PING_MS 2000     /* an idle connection is asked so often whether it lives */
#define PEER_PING_BUSY_MS 250 /* ... one with calls, after so much silence */
#define PEER_PING_SILENCE_MS 10000
#define PEER_BACKOFF_MS_MIN 50
#define PEER_BACKOFF_MS_MAX 1000      /* a host that is back is used within about a second */
#define PEER_TIMEOUT_MS_DEFAULT 10000 /* of a call that names none */
#define PEER_SLOTS_FIRST 64
#define PEER_SLOTS_MAX 65536 /* calls in flight on one connection */
#define PEER_TROUBLE_BYTES 1280

enum call_state { CALL_IDLE, CALL_FLYING, CALL_FINISHED };

struct drive_peer {
  struct peer peer;
  struct peer_host *host;
  bool usable;          /* as the remote host told last */
  uint64_t answered_ms; /* the last sign of life of this drive */
  bool suspect_by_ping; /* suspect with nothing asked of it: its host is silent */
};

/* A call or a control between its send and its end. It ends when the result is known *and* libuv
 * has let go of the buffers that it writes from. */
struct flight {
  struct stream_tx tx;
  struct peer_host *host;
  struct stream *on;
  struct list link;       /* host->flights; a control that is over: host->controls_over */
  struct peer_call *call; /* NULL: a control */
  peer_control_cb control_cb;
  void *control_arg;
  uint8_t *control_reply;
  size_t control_reply_len;
  uint32_t stream;
  uint32_t timeout_ms;
  uint64_t started_ms, started_ns;
  int err;
  bool writing, ended;
  uint8_t *bytes; /* header and meta, while writing */
};

struct flight_slot {
  struct flight *flight;
  uint16_t generation; /* upper half of the stream id: a late answer finds nobody */
  uint32_t free_next;
};

struct peer_host {
  struct env_uv *env;
  uv_loop_t *loop;
  const struct cluster_map *map;
  unsigned host;
  struct hello_policy *policy;
  struct drive_peer *drives;
  unsigned drive_first, drive_count;

  struct stream *stream; /* the present connection, or NULL */
  unsigned streams_open; /* not yet closed by the loop */
  struct hello *hello;   /* the last one */
  uint8_t *hello_bytes;
  char trouble[PEER_TROUBLE_BYTES];
  bool away_logged;
  uint32_t backoff_ms;
  uv_timer_t retry; /* the next attempt, or the next look at what the resolver has */
  struct resolver_question name;

  struct list flights;
  struct flight_slot *slots;
  uint32_t slot_count, slot_free; /* UINT32_MAX: none free */
  struct flight *rx;              /* whose bulk is being read */
  struct peer_unit rx_units[PEER_UNITS_MAX];
  unsigned rx_unit_count;

  struct list finished;      /* peer_call.link: `done` is due */
  struct list controls_over; /* flight.link */
  uv_check_t check;          /* after the poll: serves finished */
  uv_idle_t idle;            /* keeps the poll from blocking while there are some */
  uv_timer_t tick;
  bool tick_busy;
  uint64_t tick_ms;                  /* when it fired last */
  uint64_t active_ms;                /* last byte in, or backlog that went out */
  uint64_t tick_handed, tick_unsent; /* bytes that the kernel took, bytes that wait */
  uint64_t ping_ms;
  bool ping_out;

  unsigned handles;
  bool closing, handles_closing;
  void (*closed)(void *arg);
  void *closed_arg;
};

/* peer_tcp.c */
struct drive_peer *drive_peer_of(struct peer *peer);
/* The result of a flight is known. */
void flight_end(struct flight *f, int err);
void flight_timeout(struct flight *f);
struct flight *flight_find(struct peer_host *h, uint32_t stream);
/* Every flight that has no result gets this one. */
void flights_end_all(struct peer_host *h, int err);
void host_update_up(struct peer_host *h);
/* While closing: goes on where the last thing that was waited for is over. */
void host_close_advance(struct peer_host *h);

/* peer_tcp_rx.c */
int peer_rx_frame(struct stream *s, const struct frame_header *head, struct slice meta);
int peer_rx_bulk_done(struct stream *s);

/* peer_tcp_link.c */
void link_connect(struct peer_host *h);
/* Gives the present connection up with a reset, in these words, and connects again. */
void link_drop(struct peer_host *h, const char *why);
void link_take_drives(struct peer_host *h, const struct hello *from);
void tick_fired(uv_timer_t *timer);
/* A call has started: deadlines are looked at more often. */
void tick_hurry(struct peer_host *h);

#endif
