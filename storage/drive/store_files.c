/* store_files.c: chunk files on a POSIX file system.
 *
 *   data/<xx>/<data_id>.<index>.<generation>
 *
 * 32 directories, made and synced by the format, kept open. A file is created under its final name
 * with O_EXCL and never renamed. */
#include "storage/drive/store_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "codec/digest.h"
#include "config/err.h"
#include "config/settings.h"

#define CHUNK_NAME_BYTES_MAX 64

struct posix_file {
  struct store_file file;
  int fd;
};

static int fd_of(struct store_file *f) {
  return container_of(f, struct posix_file, file)->fd;
}

static struct store_files *files_of(struct store *s) {
  return container_of(s, struct store_files, store);
}

static void chunk_name_print(const struct chunk_name *name, char out[CHUNK_NAME_BYTES_MAX]) {
  char hex[ID128_HEX_LEN + 1];
  id128_hex(&name->data_id, hex);
  snprintf(out, CHUNK_NAME_BYTES_MAX, "%s.%u.%016" PRIx64, hex, name->index, name->gen);
}

static bool chunk_name_parse(const char *text, struct chunk_name *ret_name) {
  struct chunk_name name;
  unsigned index;
  int end = 0;
  if (strlen(text) < ID128_HEX_LEN) return false;
  if (hex_decode(slice_of(text, ID128_HEX_LEN), name.data_id.bytes, 16) < 0) return false;
  if (sscanf(text + ID128_HEX_LEN, ".%3u.%16" SCNx64 "%n", &index, &name.gen, &end) != 2)
    return false;
  if (index > UINT8_MAX) return false;
  name.index = (uint8_t)index;
  char back[CHUNK_NAME_BYTES_MAX]; /* there is one spelling only */
  chunk_name_print(&name, back);
  if (strcmp(back, text) != 0) return false;
  *ret_name = name;
  return true;
}

static void dir_name(unsigned dir, char out[8]) {
  snprintf(out, 8, "%02x", dir & 0xff);
}

int store_files_make_dirs(const char *path) {
  char data[SETTINGS_PATH_BYTES_MAX + 16];
  snprintf(data, sizeof data, "%s/data", path);
  if (mkdir(data, 0750) != 0 && errno != EEXIST) return -errno;
  int fd = open(data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return -errno;
  int err = 0;
  for (unsigned i = 0; i < STORE_CHUNK_DIRS && err == 0; i++) {
    char name[8];
    dir_name(i, name);
    if (mkdirat(fd, name, 0750) != 0 && errno != EEXIST) err = -errno;
  }
  if (err == 0 && fsync(fd) != 0) err = -errno;
  close(fd);
  return err;
}

int store_files_open(struct store_files *f, const char *path) {
  char data[SETTINGS_PATH_BYTES_MAX + 16];
  f->data_fd = -1;
  for (unsigned i = 0; i < STORE_CHUNK_DIRS; i++) f->dir_fds[i] = -1;
  snprintf(data, sizeof data, "%s/data", path);
  f->data_fd = open(data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (f->data_fd < 0) return -errno;
  for (unsigned i = 0; i < STORE_CHUNK_DIRS; i++) {
    char name[8];
    dir_name(i, name);
    f->dir_fds[i] = openat(f->data_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->dir_fds[i] >= 0) continue;
    int err = -errno;
    store_files_close(f);
    return err;
  }
  pthread_mutex_init(&f->space_mutex, NULL);
  return 0;
}

void store_files_close(struct store_files *f) {
  for (unsigned i = 0; i < STORE_CHUNK_DIRS; i++)
    if (f->dir_fds[i] >= 0) close(f->dir_fds[i]);
  if (f->data_fd >= 0) close(f->data_fd);
  f->data_fd = -1;
}

static int posix_file_new(struct store *s, int fd, struct store_file **ret_file) {
  struct posix_file *p = malloc(sizeof *p);
  if (!p) {
    close(fd);
    return -ENOMEM;
  }
  p->file.store = s;
  p->fd = fd;
  *ret_file = &p->file;
  return 0;
}

int store_files_create(struct store *s, const struct chunk_name *name,
                       struct store_file **ret_file) {
  char text[CHUNK_NAME_BYTES_MAX];
  chunk_name_print(name, text);
  int fd = openat(files_of(s)->dir_fds[chunk_name_dir(name)], text,
                  O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640);
  if (fd < 0) return -errno;
  return posix_file_new(s, fd, ret_file);
}

int store_files_open_file(struct store *s, const struct chunk_name *name,
                          struct store_file **ret_file, uint64_t *ret_size) {
  char text[CHUNK_NAME_BYTES_MAX];
  struct stat st;
  chunk_name_print(name, text);
  int fd =
      openat(files_of(s)->dir_fds[chunk_name_dir(name)], text, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -errno;
  if (fstat(fd, &st) != 0) {
    int err = -errno;
    close(fd);
    return err;
  }
  int err = posix_file_new(s, fd, ret_file);
  if (err == 0) *ret_size = (uint64_t)st.st_size;
  return err;
}

/* Takes `done` bytes off the front of the vector; the number of entries that are used up. */
static unsigned iov_skip(struct iovec *iov, unsigned count, size_t done) {
  unsigned i = 0;
  while (i < count && done >= iov[i].iov_len) done -= iov[i++].iov_len;
  if (i < count) {
    iov[i].iov_base = (uint8_t *)iov[i].iov_base + done;
    iov[i].iov_len -= done;
  }
  return i;
}

int store_files_write(struct store_file *f, struct iovec *iov, unsigned count, uint64_t offset) {
  struct store_files *files = files_of(f->store);
  for (unsigned skip = iov_skip(iov, count, 0); iov += skip, count -= skip, count > 0;) {
    ssize_t n = pwritev(fd_of(f), iov, (int)count, (off_t)offset);
    if (n < 0 && errno == EINTR) {
      skip = 0;
      continue;
    }
    if (n < 0) return errno == ENOSPC || errno == EDQUOT ? ERR_NO_SPACE : -errno;
    offset += (uint64_t)n;
    atomic_fetch_add_explicit(&files->written_since, (uint64_t)n, memory_order_relaxed);
    skip = iov_skip(iov, count, (size_t)n);
  }
  return 0;
}

int store_files_read(struct store_file *f, struct iovec *iov, unsigned count, uint64_t offset) {
  for (unsigned skip = iov_skip(iov, count, 0); iov += skip, count -= skip, count > 0;) {
    ssize_t n = preadv(fd_of(f), iov, (int)count, (off_t)offset);
    if (n < 0 && errno == EINTR) {
      skip = 0;
      continue;
    }
    if (n < 0) return -errno;
    if (n == 0) return ERR_CORRUPT;
    offset += (uint64_t)n;
    skip = iov_skip(iov, count, (size_t)n);
  }
  return 0;
}

void store_files_flush(struct store_file *f, uint64_t offset, uint64_t len) {
  /* Only starts the write-back; its errors come out of fdatasync. */
  (void)sync_file_range(fd_of(f), (off_t)offset, (off_t)len, SYNC_FILE_RANGE_WRITE);
}

int store_files_sync(struct store_file *f) {
  if (fdatasync(fd_of(f)) == 0) return 0;
  return errno == ENOSPC || errno == EDQUOT ? ERR_NO_SPACE : -errno;
}

void store_files_close_file(struct store_file *f) {
  struct posix_file *p = container_of(f, struct posix_file, file);
  close(p->fd);
  free(p);
}

int store_files_unlink(struct store *s, const struct chunk_name *name) {
  char text[CHUNK_NAME_BYTES_MAX];
  chunk_name_print(name, text);
  if (unlinkat(files_of(s)->dir_fds[chunk_name_dir(name)], text, 0) == 0) return 0;
  return -errno;
}

int store_files_dir_sync(struct store *s, unsigned dir) {
  return fsync(files_of(s)->dir_fds[dir]) == 0 ? 0 : -errno;
}

int store_files_list(struct store *s, void (*each)(void *arg, const struct chunk_name *name),
                     void *arg) {
  for (unsigned i = 0; i < STORE_CHUNK_DIRS; i++) {
    char sub[8];
    dir_name(i, sub);
    int fd = openat(files_of(s)->data_fd, sub, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return -errno;
    DIR *dir = fdopendir(fd);
    if (!dir) {
      close(fd);
      return -ENOMEM;
    }
    struct chunk_name name;
    struct dirent *entry;
    for (errno = 0; (entry = readdir(dir)); errno = 0)
      if (chunk_name_parse(entry->d_name, &name) && chunk_name_dir(&name) == i) each(arg, &name);
    int err = -errno;
    closedir(dir);
    if (err < 0) return err;
  }
  return 0;
}

static uint64_t monotonic_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int store_files_space(struct store_files *f, struct store_space *space) {
  int fresh = 0;
  uint64_t now = monotonic_ms();
  pthread_mutex_lock(&f->space_mutex);
  if (f->space_at_ms == 0 || now - f->space_at_ms >= STORE_SPACE_AGE_MS) {
    struct statvfs fs;
    if (fstatvfs(f->data_fd, &fs) != 0) {
      int err = -errno;
      pthread_mutex_unlock(&f->space_mutex);
      return err;
    }
    f->space.free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    f->space.total_bytes = (uint64_t)fs.f_blocks * fs.f_frsize;
    f->space_at_ms = now;
    atomic_store_explicit(&f->written_since, 0, memory_order_relaxed);
    fresh = 1;
  }
  uint64_t written = atomic_load_explicit(&f->written_since, memory_order_relaxed);
  space->free_bytes = f->space.free_bytes - MIN(written, f->space.free_bytes);
  space->total_bytes = f->space.total_bytes;
  pthread_mutex_unlock(&f->space_mutex);
  return fresh;
}

uint64_t store_files_random(struct store *s) {
  uint64_t v = 0;
  while (v == 0)
    if (getrandom(&v, sizeof v, 0) != (ssize_t)sizeof v) v = 0;
  return v;
}
