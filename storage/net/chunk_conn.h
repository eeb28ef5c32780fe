/* chunk_conn.h: one connection of a chunk server: between chunk_server.c (accepting, memory, ticks,
 * the end) and chunk_conn.c (frames, calls, stages). */
#ifndef KOFN_STORAGE_NET_CHUNK_CONN_H
#define KOFN_STORAGE_NET_CHUNK_CONN_H

#include "storage/net/block_pool.h"
#include "storage/net/chunk_server.h"
#include "storage/net/stream.h"

#define CHUNK_CONN_CALLS_MAX 256   /* in flight; beyond it the connection is not read */
#define CHUNK_CONN_STAGES_MAX 4096 /* chunks staged and not yet accepted */
#define CHUNK_CONN_STAGE_HASH 64
#define CHUNK_CONN_SILENCE_MS 30000    /* a living peer sends PING every two seconds */
#define CHUNK_CONN_BULK_MS 5000        /* silence in the middle of a bulk, which holds memory */
#define CHUNK_CONN_WRITE_MS 10000      /* a peer that reads nothing for so long is given up */
#define CHUNK_SERVER_HANDSHAKES_MAX 64 /* strangers at a time: each may cost a HELLO of memory */
#define CHUNK_SERVER_TICK_MS 500
#define CHUNK_SERVER_TRIM_TICKS 20 /* ticks without use before memory is given back: 10 s */
/* A drive that no longer answers may hold so much of the server's memory, not more. */
#define CHUNK_SERVER_STUCK_BYTES (CHUNK_SERVER_BUFFER_BYTES / 4)
#define CHUNK_SERVER_DROP_MS 10000

struct chunk_server {
  struct env_uv *env;
  uv_loop_t *loop;
  const struct cluster_map *map;
  struct peer *const *local;
  struct hello_policy *policy;
  uv_tcp_t listener;
  uv_timer_t tick;
  uv_idle_t wake; /* serves `waiting` and `resumable` outside of everybody's callbacks */
  unsigned handles;
  struct list conns;
  unsigned conn_count, handshakes;
  struct block_pool pool;
  uint64_t drive_bytes[MAP_DRIVES_MAX]; /* of the pool, by drive */
  unsigned unused_ticks;
  struct list waiting;   /* chunk_conn.wait: for memory, in order */
  struct list resumable; /* chunk_conn.wait: may read again */
  bool stopping, handles_closing;
  void (*stopped)(void *arg);
  void *stopped_arg;
};

/* A chunk that this connection has staged and no ACCEPT has taken. */
struct chunk_stage {
  struct list link;
  struct id128 data_id;
  uint16_t drive;
  uint8_t slot;
  bool
      refused; /* an ACCEPT on stream refused_on did not take it; the sender may still have it so */
  uint32_t refused_on;
};

struct chunk_conn;

/* A request between its header and the end of its reply's write. */
struct chunk_call {
  struct peer_call call;
  struct chunk_conn *conn;
  struct list link; /* conn->calls */
  struct stream_tx tx;
  uint32_t stream;
  uint16_t drive;
  bool running;  /* with the drive */
  bool given_up; /* CANCEL came */
  int refused;   /* the answer, without asking the drive */
  size_t block_bytes;
  struct block *block;
  uint8_t *reply_bytes;
  uint8_t meta[]; /* key, row... live here */
};

enum chunk_wait { CHUNK_READS, CHUNK_WAITS_MEMORY, CHUNK_WAITS_CALLS, CHUNK_RESUMABLE };

struct chunk_conn {
  struct chunk_server *server;
  struct stream *stream; /* NULL once closed */
  struct list link;
  struct list wait;
  enum chunk_wait waits;
  bool open;     /* the handshake is done */
  bool gone;     /* nothing more comes or goes */
  bool draining; /* the server stops: calls end, then the connection */
  bool swept;    /* its stages are dropped */
  struct list calls;
  unsigned call_count;
  struct chunk_call *receiving; /* its bulk is awaited */
  struct list stages[CHUNK_CONN_STAGE_HASH];
  unsigned stage_count;
  unsigned drops;    /* DROPs on their way to drives */
  uint64_t write_ms; /* when bytes last left */
  uint64_t handed;   /* bytes that the kernel took */
};

/* chunk_conn.c */
/* Takes the connection that waits at the listener. */
void chunk_conn_accept(struct chunk_server *s);
/* Silence, stalled writes, memory that a stuck drive holds. */
void chunk_conn_tick(struct chunk_conn *c, uint64_t now);
/* Stops reading; says goodbye once its calls are over. */
void chunk_conn_stop(struct chunk_conn *c);
/* Takes memory for the request that waits (or refuses it) and lets the connection go on. False: it
 * has to wait still. */
bool chunk_conn_take_memory(struct chunk_conn *c);

/* chunk_server.c */
void chunk_server_wake(struct chunk_server *s);
void chunk_server_block_put(struct chunk_server *s, struct chunk_call *call);
void chunk_server_stop_advance(struct chunk_server *s);

#endif
