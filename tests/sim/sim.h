/* sim.h: a whole cluster in one thread: the real object layer and the real node rules over a
 * simulated network, disk and clock, all decided by one 64-bit seed.
 *
 *   sim_core.c    the event queue, random numbers, the trace
 *   sim_env.c     struct env of a gateway        sim_disk.c, sim_store.c  struct store of a drive
 *   sim_net.c     struct peer, connections       sim_node.c               a host: lanes, crashes
 *   sim_client.c  operations and their bodies    sim_history.c            is it linearizable?
 *   sim_plan.c    what happens in a seed         sim_run.c                the run and the end
 *
 * Nothing here may depend on an address, on real time, or on whether a trace is written: a seed
 * replays identically. */
#ifndef KOFN_TESTS_SIM_SIM_H
#define KOFN_TESTS_SIM_SIM_H

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/err.h"
#include "config/list.h"
#include "config/sim_mutant.h"
#include "storage/drive/drive_internal.h"
#include "storage/object/object.h"

#define SIM_HOSTS_MAX 6
#define SIM_DRIVES_MAX 6
#define SIM_KEYS_MAX 3
#define SIM_OPS_MAX 256
#define SIM_HISTORY_MAX 64 /* operations of one key: bits of a mask */
#define SIM_MS 1000ull     /* in microseconds, which simulated time counts */
#define SIM_WALL_START_MS 1700000000000ull
#define SIM_EVENTS_MAX 4000000u /* a run that takes more never ends */

struct sim;
struct sim_host;
struct sim_gateway;

/* Something that happens at a time; embedded by whoever waits for it. */
struct sim_event {
  void (*fire)(struct sim_event *e);
  uint64_t due_us, seq;
  size_t heap_at;        /* 1 + index; 0: not armed */
  struct sim_host *host; /* does not run while that host is paused; NULL: never held up */
};

/* ---- disk ---- */

struct disk_entry {
  uint8_t *key, *value;
  uint32_t value_len;
  uint16_t key_len;
};
struct disk_table {
  struct disk_entry *entries;
  size_t count, cap;
  uint64_t changes;
};
struct disk_undo {
  enum store_table table;
  struct disk_entry entry; /* value NULL: there was none */
};
struct disk_file {
  struct list link;
  struct chunk_name name;
  uint8_t *data;
  size_t len, cap, synced;
  unsigned handles;
  bool name_durable, unlinked;
};
enum disk_fault { DISK_WRITE, DISK_SYNC, DISK_READ, DISK_FAULTS };

/* What a drive holds, across restarts. */
struct disk {
  struct sim *sim;
  struct disk_table tables[STORE_TABLE_COUNT];
  struct disk_undo *undo;
  size_t undo_count, undo_cap;
  bool writing;
  struct list files;
  bool full;
  bool erred;                   /* some call has failed */
  bool dead;                    /* the machine has stopped in the middle of a call */
  unsigned crash_in;            /* store calls until then; 0: not */
  unsigned eio_in[DISK_FAULTS]; /* calls of that kind until one fails; 0: never */
};

struct disk *disk_new(struct sim *sim);
void disk_free(struct disk *d);
struct disk *disk_copy(const struct disk *d);
/* What a crash leaves. power: also what was never synced is gone, or torn. */
void disk_crash(struct disk *d, bool power);
/* Changes a bit in a stored chunk or row; false where there is none. */
bool disk_flip(struct disk *d);
/* Forgets the newest rows that a commit had made durable. */
void disk_lose_rows(struct disk *d);
unsigned disk_file_count(const struct disk *d);
struct store *disk_open(struct disk *d);
int disk_step(struct disk *d, enum disk_fault kind);
int table_find(const struct disk_table *t, struct slice key, size_t *ret_at);

/* ---- hosts ---- */

struct sim_drive {
  struct sim *sim;
  struct sim_host *host;
  unsigned index;
  struct disk *disk;
  struct disk *snapshot;
  uint64_t snapshot_boot, boot;
  struct drive *drive; /* NULL: does not serve */
  bool out;            /* lost, failed or refused: not to come back in this run */
  bool rotten;         /* a bit has flipped: rows that cannot be read stay as they are */
  bool may_break;      /* chunks on it may be lost: the redundancy allows for it */
  struct list stages, writes, lazy; /* sim_flight */
  uint64_t lazy_due_us;
  uint64_t stall_us; /* its lanes do nothing until then */
  struct sim_event stage_event, write_event, housekeep_event;
};

struct sim_host {
  struct sim *sim;
  unsigned index;
  bool up;
  uint64_t incarnation;
  uint64_t paused_us; /* until then */
  int64_t skew_ms;
  uint64_t nonce_seen[SIM_DRIVES_MAX];
  uint64_t boot_seen[SIM_DRIVES_MAX]; /* of the drives of its peers, and its own */
  struct sim_gateway *gateway;        /* NULL while down */
  struct sim_event restart;
  bool restart_loses_power;
};

/* ---- gateways ---- */

struct sim_env {
  struct env env;
  struct sim_gateway *gw;
  size_t buffer_used, buffer_limit;
  struct list waiters, cancelled;
  struct sim_event buffer_event;
  unsigned timers, works;
};

struct sim_peer {
  struct peer peer;
  struct sim_gateway *gw;
  struct sim_drive *drive;
  bool usable;
  uint64_t answered_us;
  unsigned outstanding;
  struct sim_event suspect_event;
};

/* The server's half of a connection: what it has staged for it. */
struct sim_session {
  struct list link; /* sim->sessions */
  struct sim *sim;
  struct list stages;
  struct sim_host *host;
  uint64_t incarnation;
  struct sim_event sweep;
};

struct sim_conn {
  struct sim_gateway *gw;
  struct sim_host *host;
  bool up;
  uint64_t silent_us; /* cut since then; 0: not */
  uint64_t ordered_us;
  uint64_t incarnation;
  struct sim_session *session;
  struct sim_event tick, doom;
};

struct sim_gateway {
  struct list link; /* sim->gateways */
  struct sim *sim;
  struct sim_host *host;
  unsigned id;
  bool dead; /* its process is gone; what is left runs into a dead network */
  struct objects o;
  struct sim_env env;
  struct sim_peer peers[SIM_DRIVES_MAX];
  struct sim_conn conns[SIM_HOSTS_MAX];
  struct list flights;
  struct object_sweep *sweep;
  bool sweep_stopped;
};

/* One request on its way, with bytes of its own. */
struct sim_flight {
  struct list link; /* gw->flights, while call */
  struct list lane; /* a queue of the drive */
  struct sim_gateway *gw;
  struct sim_peer *peer;
  struct sim_drive *drive;
  struct sim_session *session;
  struct peer_call *call; /* NULL: over for the caller */
  bool local, served;     /* served: over for the drive */
  bool told;              /* the answer is on its way */
  uint64_t incarnation;
  struct peer_request req;
  struct peer_reply reply;
  uint8_t *bytes;
  int end_err;
  uint64_t started_us;
  struct sim_event arrive, answer, end;
};

/* ---- operations ---- */

enum op_kind { OP_PUT, OP_DELETE, OP_GET, OP_HEAD, OP_LIST, OP_RMBUCKET, OP_KINDS };
enum op_cond { COND_NONE, COND_ABSENT, COND_MATCH, COND_ANY };
enum op_outcome { OUT_NOTHING, OUT_MAYBE, OUT_OK, OUT_FALSE, OUT_MISSING };

struct hist_op {
  uint64_t inv, ret; /* ret 0: never */
  enum op_kind kind; /* PUT, DELETE or GET */
  enum op_cond cond;
  unsigned cond_value, value; /* GET: what was read; 0: nothing */
  enum op_outcome out;
  unsigned op; /* for the report */
};
struct history {
  unsigned count;
  struct hist_op ops[SIM_HISTORY_MAX];
};
/* BAD: no order of the operations explains what was seen. TOO_LONG: too many to try them all. */
enum verdict_of_history { HISTORY_GOOD, HISTORY_BAD, HISTORY_TOO_LONG };
enum verdict_of_history history_linearizable(const struct history *h);
void history_print(const struct sim *sim, unsigned key, FILE *out);

struct sim_op {
  struct sim *sim;
  unsigned id, key;
  enum op_kind kind;
  struct sim_gateway *gw;
  bool running, dead, ended, final, must_succeed;
  int err;
  struct hist_op *hist; /* writes; reads enter when they end */
  uint64_t inv;
  unsigned value;
  struct sim_event start, cancel;
  char cond_etag[16], etag[16];
  struct object_put *put;
  struct object_get *get;
  struct object_list *list;
  /* body */
  struct body body;
  uint64_t body_at;
  uint64_t body_fail_at;
  int body_err;
  uint8_t *read_dst;
  size_t read_len, read_got;
  body_cb read_cb;
  void *read_arg;
  bool reading, read_cancelled;
  uint64_t body_delay_us;
  struct sim_event body_event;
  /* sink */
  struct sink sink;
  struct sim_event sink_event;
  const struct slice *slices;
  unsigned slice_count;
  sink_cb written_cb;
  void *written_arg;
  bool range, data_bad, whole;
  uint64_t get_at, get_end, get_size;
  unsigned get_value, list_limit;
};

struct sim_value {
  uint64_t size;
  unsigned key;
};

struct sim_layout {
  const char *name;
  unsigned hosts, drives_per_host, k, m;
  const char *technique;
  struct settings *settings;
  struct cluster_map *map;
  struct placement *placement;
  struct codec *codecs[MAP_POOLS_MAX];
};

enum nemesis_kind {
  NEMESIS_KILL,
  NEMESIS_POWER,
  NEMESIS_MID_CALL, /* the host stops inside the n-th call of a drive's store */
  NEMESIS_GATEWAY,  /* the coordinator alone is gone */
  NEMESIS_PAUSE,
  NEMESIS_CUT,
  NEMESIS_HEAL,
  NEMESIS_BREAK,
  NEMESIS_CLOCK,
  NEMESIS_FULL,
  NEMESIS_ROOM,
  NEMESIS_STALL,
  NEMESIS_EIO,
  NEMESIS_FLIP,
  NEMESIS_LOSE,
  NEMESIS_SNAPSHOT,
  NEMESIS_KINDS
};
struct sim_nemesis {
  struct sim_event event;
  struct sim *sim;
  enum nemesis_kind kind;
  unsigned at, other; /* a host, or a drive */
  uint64_t length_us;
};
#define SIM_NEMESES_MAX 64

struct sim {
  uint64_t seed, random_state;
  bool trace;
  FILE *out;
  uint64_t now_us, seq, stamp;
  uint64_t wall_offset_ms;
  uint64_t hash; /* over everything that happened: two runs of a seed agree */
  struct sim_event **heap;
  size_t heap_count, heap_cap;
  unsigned events;
  bool failed;
  char why[512];

  struct sim_layout *layout;
  uint64_t end_us; /* of the faults */
  struct sim_nemesis nemeses[SIM_NEMESES_MAX];
  unsigned nemesis_count;
  struct sim_event gateway_start[SIM_HOSTS_MAX];
  struct sim_host hosts[SIM_HOSTS_MAX];
  struct sim_drive drives[SIM_DRIVES_MAX];
  unsigned host_count, drive_count;
  struct list gateways, sessions;
  unsigned gateway_count;
  struct bucket_info bucket;
  /* In some seeds the bucket is a real one, and is deleted while others write into it. */
  bool bucket_real, bucket_touched;
  uint64_t bucket_gone; /* the stamp of the first delete that was acknowledged */
  struct sim_event bucket_event;
  uint64_t inline_max, trash_delay_ms;

  double loss, dup, slow;
  uint64_t delay_us;
  bool cut[SIM_HOSTS_MAX][SIM_HOSTS_MAX]; /* [from][to] */
  bool calm;                              /* no more faults */

  unsigned key_count;
  char keys[SIM_KEYS_MAX][40];
  struct history hist[SIM_KEYS_MAX];
  struct sim_op *ops[SIM_OPS_MAX];
  unsigned op_count, value_count;
  struct sim_value values[SIM_OPS_MAX];
  unsigned acked, read_ok, unavailable;
  unsigned crashes, cuts, broken, unjudged;
};

/* sim_core.c */
uint64_t sim_random(struct sim *s);
uint64_t sim_below(struct sim *s, uint64_t bound); /* 0 <= result < bound */
bool sim_chance(struct sim *s, double p);
uint64_t sim_between(struct sim *s, uint64_t from, uint64_t to); /* both included */
void sim_after(struct sim *s, struct sim_event *e, struct sim_host *host, uint64_t delay_us,
               void (*fire)(struct sim_event *e));
void sim_stop(struct sim *s, struct sim_event *e);
bool sim_next(struct sim *s); /* false: nothing is left, or the run has failed */
void sim_run_until(struct sim *s, uint64_t us);
void sim_trace(struct sim *s, const char *fmt, ...) _printf_(2, 3);
void sim_fail(struct sim *s, const char *fmt, ...) _printf_(2, 3);
void sim_note(struct sim *s, uint64_t what);
#define SIM_TRACE(s, ...)                      \
  do {                                         \
    if ((s)->trace) sim_trace(s, __VA_ARGS__); \
  } while (0)
/* The simulator's own contract: broken in a way no seed may bring. */
_Noreturn void sim_broken(const char *file, int line, const char *what);
#define SIM_CHECK(cond) ((cond) ? (void)0 : sim_broken(__FILE__, __LINE__, #cond))
extern struct sim *sim_current; /* for what has no argument */

/* sim_env.c */
void sim_env_open(struct sim_env *e, struct sim_gateway *gw);
void sim_env_close(struct sim_env *e);
uint64_t sim_wall_ms(const struct sim *s, const struct sim_host *h);

/* sim_net.c */
void net_gateway_open(struct sim_gateway *gw);
void net_gateway_dies(struct sim_gateway *gw);
void net_gateway_close(struct sim_gateway *gw);
void net_host_gone(struct sim_host *h);
void net_break(struct sim_conn *c);
void net_answer(struct sim_flight *f);
void net_drop(struct sim_flight *f); /* the drive will not answer */
void net_session_free(struct sim_session *s);

/* sim_node.c */
extern struct sim_host *sim_at; /* whose clock a drive reads now */
void node_serve(struct sim_flight *f);
void node_drop_stage(struct sim_drive *d, const struct id128 *data_id, unsigned slot);
void host_start(struct sim_host *h);
void host_crash(struct sim_host *h, bool power, uint64_t down_us);
void drive_shut(struct sim_drive *d);
void drive_format_in(struct sim_drive *d);
void gateway_die(struct sim_gateway *gw);
struct sim_gateway *gateway_new(struct sim_host *h);
void gateway_free(struct sim_gateway *gw);
void drive_note_failed(struct sim_drive *d);

/* sim_client.c */
struct sim_op *client_op(struct sim *s, enum op_kind kind, unsigned key);
void client_start(struct sim_op *op, struct sim_host *at);
void client_gateway_died(struct sim_gateway *gw);
void client_free(struct sim_op *op);
const char *op_name(enum op_kind kind);

/* sim_plan.c, sim_run.c */
void plan_seed(struct sim *s);
struct sim_result {
  bool failed;
  char why[512];
  uint64_t hash;
  unsigned ops, acked, reads, unavailable, events, crashes, cuts, broken, unjudged;
};
struct sim_options {
  bool trace;
  FILE *out;
  bool print_history;
};
void sim_seed(uint64_t seed, const struct sim_options *opt, struct sim_result *ret);
struct sim_layout *sim_layout_at(unsigned i); /* NULL: no such */
/* What seeds are to be full of, for a mutant that is too rare in all of them; "": nothing special.
 */
extern const char *sim_bias;

#endif
