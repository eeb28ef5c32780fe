/* state_dir.h: what a host remembers apart from its drives: state.json in server.state_dir.
 *
 * Which cluster its drives belong to, an interrupted first start, which drives are out of service,
 * and the ids and boot counters of all drives as last seen (PROTOCOL.md 10, N11). One process at a
 * time (flock). The file is replaced whole: written aside, synced, renamed, directory synced. */
#ifndef KOFN_STORAGE_NET_STATE_DIR_H
#define KOFN_STORAGE_NET_STATE_DIR_H

#include "storage/drive/drive.h"

#define STATE_WORDS_BYTES_MAX 256
#define STATE_FILE_BYTES_MAX (4u << 20)
/* A touched state is written this much later, so that a burst of hellos is one write. */
#define STATE_WRITE_DELAY_MS 1000

struct state_drive {
  char *name;                         /* stable name "host/drive" */
  struct id128 id;                    /* zero: not known yet */
  uint64_t boot_counter;              /* highest seen */
  uint64_t boot_nonce;                /* of that boot; 0: not known */
  char failed[STATE_WORDS_BYTES_MAX]; /* own drives: why it is out of service; "" otherwise */
};

struct state {
  /* The cluster that this host's drives belong to; zero: nothing is remembered. */
  struct id128 cluster_id;
  /* A first start that has begun and is not finished; zero: none. */
  struct id128 init_id;
  /* This host's drives are formatted, but other hosts' may still be empty. */
  bool initialising;
  char cluster_name[SETTINGS_NAME_BYTES_MAX + 1], host_id[SETTINGS_NAME_BYTES_MAX + 1];
  char *canonical; /* membership text; NULL: none */
  unsigned drive_count;
  struct state_drive drives[MAP_DRIVES_MAX];
};

/* Sets the sentence; what does not fit is cut. Returns `err`. */
int error_words(struct drive_error *e, int err, const char *fmt, ...) _printf_(3, 4);

struct state_dir;

/* Makes the directory where it is absent (0700), locks it, reads it. ERR_BUSY or ERR_CONFIG with a
 * sentence, -errno with one too. Starts the thread that writes. */
_must_check_ int state_dir_open(const char *path, struct state_dir **ret_dir,
                                struct drive_error *ret_error);
/* Writes what was touched, stops the thread, unlocks. NULL is allowed. */
void state_dir_close(struct state_dir *dir);

/* The state is read and changed between these two only. */
struct state *state_lock(struct state_dir *dir);
void state_unlock(struct state_dir *dir);
/* Within the lock: to be written soon. */
void state_touch(struct state_dir *dir);
/* Outside of the lock: durable when it returns 0. */
_must_check_ int state_save(struct state_dir *dir);
/* Finds or (with `add`) adds; NULL: absent, or no room. */
struct state_drive *state_drive(struct state *s, const char *name, bool add);
_must_check_ int state_set_canonical(struct state *s, const char *canonical);

#endif
