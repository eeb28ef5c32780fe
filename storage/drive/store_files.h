/* store_files.h: the files half of the real store; store_lmdb.c embeds it. Internal. */
#ifndef KOFN_STORAGE_DRIVE_STORE_FILES_H
#define KOFN_STORAGE_DRIVE_STORE_FILES_H

#include <pthread.h>

#include "storage/drive/store.h"

#define STORE_SPACE_AGE_MS 1000 /* how old the figures of the file system may be */

struct store_files {
  struct store store; /* first: the vtable's argument */
  int data_fd;        /* `path`/data */
  int dir_fds[STORE_CHUNK_DIRS];
  pthread_mutex_t space_mutex;
  struct store_space space;
  uint64_t space_at_ms; /* 0: never asked */
  /* Written since the figures are from: they may be a second old, the disk fills faster. */
  _Atomic uint64_t written_since;
};

_must_check_ int store_files_open(struct store_files *f, const char *path);
void store_files_close(struct store_files *f);
/* Makes and syncs `path`/data and its directories (drive_format). */
_must_check_ int store_files_make_dirs(const char *path);

int store_files_create(struct store *s, const struct chunk_name *name,
                       struct store_file **ret_file);
int store_files_open_file(struct store *s, const struct chunk_name *name,
                          struct store_file **ret_file, uint64_t *ret_size);
int store_files_write(struct store_file *f, struct iovec *iov, unsigned count, uint64_t offset);
int store_files_read(struct store_file *f, struct iovec *iov, unsigned count, uint64_t offset);
void store_files_flush(struct store_file *f, uint64_t offset, uint64_t len);
int store_files_sync(struct store_file *f);
void store_files_close_file(struct store_file *f);
int store_files_unlink(struct store *s, const struct chunk_name *name);
int store_files_dir_sync(struct store *s, unsigned dir);
int store_files_list(struct store *s, void (*each)(void *arg, const struct chunk_name *name),
                     void *arg);
/* Fills free_bytes and total_bytes; 1 when they were asked anew, 0 when they are still fresh. */
int store_files_space(struct store_files *f, struct store_space *space);
uint64_t store_files_random(struct store *s);

#endif
