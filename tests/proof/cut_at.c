/* cut_at.c: a library for LD_PRELOAD that cuts the power of a file system at one exact call.
 *
 *   CUT_AT_CONTROL=FILE LD_PRELOAD=libkofn_cut_at.so kofn server ...
 *
 * FILE is a `struct cut_at` (tests/proof/power_cuts.py writes and reads it), mapped shared. The
 * calls on the file system `roots[0]` that matter to what is durable there are sorted into classes
 * and counted. While `armed`, the `countdown`-th call of the chosen classes is the moment of the
 * cut: before it is made, or when it has returned, the threads of this process stand still, the
 * other hosts of the cut are killed, the file systems of all of them are shut down without a flush
 * of their logs, and this process kills itself. Classes in `skip` report success and do nothing: a
 * kofn that forgets this step, to show that the suite notices.
 *
 * CUT_REPLY is the first bytes that leave through a socket after a transaction was committed: what
 * tells somebody that an ACCEPT, a PROMISE or a whole request is durable. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#undef _FORTIFY_SOURCE
#undef _FILE_OFFSET_BITS

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum cut_class {
  CUT_CREATE,      /* a chunk file gets its name */
  CUT_CHUNK_WRITE, /* its bytes are written */
  CUT_FLUSH,       /* its write-back is started */
  CUT_CHUNK_SYNC,  /* it is synced */
  CUT_DIR_SYNC,    /* a directory is synced */
  CUT_INDEX_WRITE, /* LMDB writes pages */
  CUT_INDEX_SYNC,  /* LMDB syncs them */
  CUT_META,        /* LMDB writes a meta page, through a descriptor that syncs by itself */
  CUT_ALLOCATE,    /* blocks are allocated ahead */
  CUT_UNLINK,      /* a file goes */
  CUT_REPLY,       /* see above */
  CUT_OTHER,       /* drive.id, the lock files, the state directory: create, write, sync, rename */
  CUT_CLASSES,
};
#define CUT_FILE_SYSTEMS_MAX 8
#define CUT_PATH_BYTES 256
#define CUT_AT_MAGIC 0x3130746174756321ull
/* EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN are one number; 2 is "do not flush the log" for both. */
#define CUT_IOC_SHUTDOWN _IOR('X', 125, uint32_t)
#define CUT_NO_LOG_FLUSH 2u

struct cut_at {
  uint64_t magic;
  _Atomic uint64_t armed;
  uint64_t classes; /* bits, 1 << enum cut_class */
  uint64_t before;
  _Atomic int64_t countdown;
  uint64_t skip;
  _Atomic uint64_t fired; /* 1 + the class */
  uint64_t root_count;
  uint64_t pids[CUT_FILE_SYSTEMS_MAX]; /* of the other hosts; 0: none */
  _Atomic uint64_t seen[CUT_CLASSES];
  char roots[CUT_FILE_SYSTEMS_MAX][CUT_PATH_BYTES];
};
_Static_assert(sizeof(struct cut_at) == 8 * (8 + 8 + CUT_CLASSES) + 8 * 256, "power_cuts.py knows");

static struct cut_at *control;
static dev_t cut_device;
static size_t root_len;
static atomic_bool committed; /* a meta page was written, nothing was sent since */
static atomic_bool dead;      /* the cut has come: no thread gets any further */

#define FDS_MAX 4096
enum { FD_UNKNOWN, FD_CHUNK, FD_INDEX, FD_META, FD_OTHER };
static _Atomic uint8_t fd_kinds[FDS_MAX];

static void __attribute__((constructor)) cut_at_start(void) {
  const char *path = getenv("CUT_AT_CONTROL");
  struct stat st;
  if (!path) return;
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) abort();
  struct cut_at *c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (c == MAP_FAILED || c->magic != CUT_AT_MAGIC || stat(c->roots[0], &st) != 0) abort();
  cut_device = st.st_dev;
  root_len = strlen(c->roots[0]);
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that is killed leaves no host behind */
  control = c;
}

/* ---- the cut ---- */

static void shut_down(const char *root) {
  uint32_t flags = CUT_NO_LOG_FLUSH;
  int fd = (int)syscall(SYS_openat, AT_FDCWD, root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 || ioctl(fd, CUT_IOC_SHUTDOWN, &flags) != 0) abort();
}

/* Another thread may be told of a failed sync, and nobody must ever hear of it. */
static void stand_still(void) {
  while (atomic_load_explicit(&dead, memory_order_relaxed)) pause();
}

static void cut(enum cut_class what) {
  atomic_store(&dead, true);
  atomic_store(&control->fired, 1u + (uint64_t)what);
  for (unsigned i = 0; i < CUT_FILE_SYSTEMS_MAX; i++)
    if (control->pids[i]) kill((pid_t)control->pids[i], SIGKILL);
  for (unsigned i = 0; i < control->root_count && i < CUT_FILE_SYSTEMS_MAX; i++)
    shut_down(control->roots[i]);
  kill(getpid(), SIGKILL);
  stand_still();
}

/* Counts a call; cuts before it; returns whether to cut after it. */
static bool cut_comes(enum cut_class what) {
  if (!control) return false;
  atomic_fetch_add_explicit(&control->seen[what], 1, memory_order_relaxed);
  if (!atomic_load(&control->armed) || !(control->classes >> what & 1)) return false;
  if (atomic_fetch_sub(&control->countdown, 1) != 1) return false;
  if (control->before) cut(what);
  return true;
}

static bool skipped(enum cut_class what) {
  return control && (control->skip >> what & 1);
}

/* ---- what a call is about ---- */

static bool path_is_ours(int dir_fd, const char *path) {
  struct stat st;
  stand_still();
  if (!control) return false;
  if (path[0] == '/') return strncmp(path, control->roots[0], root_len) == 0;
  return dir_fd != AT_FDCWD && fstat(dir_fd, &st) == 0 && st.st_dev == cut_device;
}

static uint8_t kind_of_path(const char *path, int flags) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  if (strcmp(name, "data.mdb") == 0) return flags & O_DSYNC ? FD_META : FD_INDEX;
  return strlen(name) > 32 && name[32] == '.' ? FD_CHUNK : FD_OTHER;
}

static uint8_t fd_kind(int fd) {
  return control && fd >= 0 && fd < FDS_MAX ? atomic_load(&fd_kinds[fd]) : FD_UNKNOWN;
}

static void fd_kind_set(int fd, uint8_t kind) {
  if (control && fd >= 0 && fd < FDS_MAX) atomic_store(&fd_kinds[fd], kind);
}

static bool write_class(int fd, enum cut_class *ret_class) {
  struct stat st;
  stand_still();
  switch (fd_kind(fd)) {
    case FD_CHUNK:
      *ret_class = CUT_CHUNK_WRITE;
      return true;
    case FD_INDEX:
      *ret_class = CUT_INDEX_WRITE;
      return true;
    case FD_META:
      *ret_class = CUT_META;
      return true;
    case FD_OTHER:
      *ret_class = CUT_OTHER;
      return true;
    default:
      if (!control || !atomic_load_explicit(&committed, memory_order_relaxed)) return false;
      if (fstat(fd, &st) != 0 || !S_ISSOCK(st.st_mode)) return false;
      *ret_class = CUT_REPLY;
      return atomic_exchange(&committed, false);
  }
}

static bool sync_class(int fd, enum cut_class *ret_class) {
  struct stat st;
  stand_still();
  switch (fd_kind(fd)) {
    case FD_CHUNK:
      *ret_class = CUT_CHUNK_SYNC;
      return true;
    case FD_INDEX:
    case FD_META:
      *ret_class = CUT_INDEX_SYNC;
      return true;
    default:
      if (!control || fstat(fd, &st) != 0 || st.st_dev != cut_device) return false;
      *ret_class = S_ISDIR(st.st_mode) ? CUT_DIR_SYNC : CUT_OTHER;
      return true;
  }
}

/* ---- in front of libc ---- */

#define REAL(name)                         \
  static __typeof__(&name) real;           \
  if (!real) {                             \
    void *found = dlsym(RTLD_NEXT, #name); \
    if (!found) abort();                   \
    memcpy(&real, &found, sizeof real);    \
  }

#define AFTER(cuts, what) \
  do {                    \
    int saved = errno;    \
    if (cuts) cut(what);  \
    errno = saved;        \
  } while (0)

static mode_t mode_of(int flags, va_list args) {
  return flags & (O_CREAT | __O_TMPFILE) ? (mode_t)va_arg(args, unsigned) : 0;
}

/* The kind of what will be opened; FD_UNKNOWN for what is not on the file system. */
static uint8_t open_kind(int dir_fd, const char *path, int *flags) {
  if (!path_is_ours(dir_fd, path)) return FD_UNKNOWN;
  uint8_t kind = kind_of_path(path, *flags);
  if (kind == FD_META && skipped(CUT_META)) *flags &= ~O_DSYNC;
  return *flags & O_DIRECTORY ? FD_UNKNOWN : kind;
}

#define OPEN(call)                                                             \
  uint8_t kind = open_kind(dir_fd, path, &flags);                              \
  enum cut_class what = kind == FD_CHUNK ? CUT_CREATE : CUT_OTHER;             \
  bool cuts = kind != FD_UNKNOWN && flags & O_CREAT ? cut_comes(what) : false; \
  int fd = call;                                                               \
  if (fd >= 0) fd_kind_set(fd, kind);                                          \
  AFTER(cuts, what);                                                           \
  return fd

int open(const char *path, int flags, ...) {
  REAL(open)
  const int dir_fd = AT_FDCWD;
  va_list args;
  va_start(args, flags);
  mode_t mode = mode_of(flags, args);
  va_end(args);
  OPEN(real(path, flags, mode));
}

int openat(int dir_fd, const char *path, int flags, ...) {
  REAL(openat)
  va_list args;
  va_start(args, flags);
  mode_t mode = mode_of(flags, args);
  va_end(args);
  OPEN(real(dir_fd, path, flags, mode));
}

int close(int fd) {
  REAL(close)
  fd_kind_set(fd, FD_UNKNOWN);
  return real(fd);
}

#define WRITE(call)                                                \
  enum cut_class what = CUT_OTHER;                                 \
  bool counted = write_class(fd, &what);                           \
  bool cuts = counted ? cut_comes(what) : false;                   \
  ssize_t n = call;                                                \
  if (counted && what == CUT_META) atomic_store(&committed, true); \
  AFTER(cuts, what);                                               \
  return n

ssize_t write(int fd, const void *data, size_t len) {
  REAL(write)
  WRITE(real(fd, data, len));
}

ssize_t writev(int fd, const struct iovec *iov, int count) {
  REAL(writev)
  WRITE(real(fd, iov, count));
}

ssize_t pwrite(int fd, const void *data, size_t len, off_t offset) {
  REAL(pwrite)
  WRITE(real(fd, data, len, offset));
}

ssize_t pwritev(int fd, const struct iovec *iov, int count, off_t offset) {
  REAL(pwritev)
  WRITE(real(fd, iov, count, offset));
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
  REAL(sendmsg)
  WRITE(real(fd, message, flags));
}

#define SYNC(call)                                             \
  enum cut_class what = CUT_OTHER;                             \
  bool cuts = sync_class(fd, &what) ? cut_comes(what) : false; \
  int rc = skipped(what) ? 0 : call;                           \
  AFTER(cuts, what);                                           \
  return rc

int fsync(int fd) {
  REAL(fsync)
  SYNC(real(fd));
}

int fdatasync(int fd) {
  REAL(fdatasync)
  SYNC(real(fd));
}

int syncfs(int fd) {
  REAL(syncfs)
  SYNC(real(fd));
}

#define CALL(is_ours, of_class, call)                \
  bool cuts = is_ours ? cut_comes(of_class) : false; \
  int rc = call;                                     \
  AFTER(cuts, of_class);                             \
  return rc

int sync_file_range(int fd, off_t offset, off_t len, unsigned flags) {
  REAL(sync_file_range)
  CALL(fd_kind(fd) != FD_UNKNOWN, CUT_FLUSH, real(fd, offset, len, flags));
}

int fallocate(int fd, int mode, off_t offset, off_t len) {
  REAL(fallocate)
  CALL(fd_kind(fd) != FD_UNKNOWN, CUT_ALLOCATE, real(fd, mode, offset, len));
}

int ftruncate(int fd, off_t len) {
  REAL(ftruncate)
  CALL(fd_kind(fd) != FD_UNKNOWN, CUT_OTHER, real(fd, len));
}

int unlinkat(int dir_fd, const char *path, int flags) {
  REAL(unlinkat)
  CALL(path_is_ours(dir_fd, path), CUT_UNLINK, real(dir_fd, path, flags));
}

int renameat(int from_fd, const char *from, int to_fd, const char *to) {
  REAL(renameat)
  CALL(path_is_ours(to_fd, to), CUT_OTHER, real(from_fd, from, to_fd, to));
}

int mkdirat(int dir_fd, const char *path, mode_t mode) {
  REAL(mkdirat)
  CALL(path_is_ours(dir_fd, path), CUT_OTHER, real(dir_fd, path, mode));
}

int mkdir(const char *path, mode_t mode) {
  REAL(mkdir)
  CALL(path_is_ours(AT_FDCWD, path), CUT_OTHER, real(path, mode));
}
