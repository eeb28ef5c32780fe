/* stage.h: chunk files that are being written: not durable, named by no row.
 *
 *   STAGE... -> open -> drive_seal: trailer, fdatasync -> sealed -> taken by an ACCEPT's batch
 *
 * A table of the drive, keyed by (data_id, index); thread-safe. Whoever works on a stage holds it
 * (`busy`); a DROP that comes meanwhile is carried out when it is let go. */
#ifndef KOFN_STORAGE_DRIVE_STAGE_H
#define KOFN_STORAGE_DRIVE_STAGE_H

#include <pthread.h>

#include "config/list.h"
#include "storage/drive/chunk_file.h"

#define STAGES_MAX 1024 /* open at once, a drive: each holds a file descriptor */
#define STAGE_BUCKETS 1024
/* Write-back starts after this much, so that the sync at the end finds little left to do. */
#define STAGE_FLUSH_BYTES (1u << 20)

enum stage_state { STAGE_OPEN, STAGE_SEALED };

struct stage {
  struct list link;       /* in its bucket */
  struct list batch_link; /* in the writer's batch */
  struct chunk_name name;
  struct chunk_info info; /* crcs has room for crc_cap */
  uint64_t crc_cap;
  uint64_t flushed;
  struct store_file *file;
  enum stage_state state;
  bool busy, dropped;
};

struct stage_table {
  pthread_mutex_t mutex;
  struct list buckets[STAGE_BUCKETS];
  unsigned count;
};

void stage_table_init(struct stage_table *t);
/* Closes and unlinks what is left. Nothing is busy. */
void stage_table_close(struct stage_table *t, struct store *s);

/* NULL: no such stage, or somebody holds it. */
struct stage *stage_hold(struct stage_table *t, const struct id128 *data_id, unsigned index);
/* Lets go; carries out a DROP that came meanwhile. */
void stage_release(struct stage_table *t, struct store *s, struct stage *stage);
/* Forgets a held stage; its file is unlinked unless a row names it now. */
void stage_end(struct stage_table *t, struct store *s, struct stage *stage, bool unlink);
unsigned stage_count(struct stage_table *t);

#endif
