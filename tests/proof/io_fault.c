/* io_fault.c: a library for LD_PRELOAD that makes the disk below one directory fail, call by call.
 *
 *   IO_FAULT_CONTROL=FILE LD_PRELOAD=libkofn_io_fault.so kofn server ...
 *
 * FILE is a `struct io_fault` (tests/proof/io_fault.py writes and reads it), mapped shared: the
 * test changes it while the process runs, and reads in it what was seen and done. While `armed`,
 * the calls of the chosen classes below `path` are counted, and those from number `first` on fail,
 * `times` of them: with `error`, or half done where `error` is 0 (writes and reads only; a call of
 * one byte is whole). A call that fails is not carried out.
 *
 * In front of what kofn, LMDB and libuv call by name in libc; the fortified names too. What goes
 * around libc's symbols is not seen: libuv's own syscall() (statx, and io_uring where it is used:
 * kofn leaves no disk work to libuv), and libc's calls inside itself (stdio, readdir). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#undef _FORTIFY_SOURCE
#undef _FILE_OFFSET_BITS

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum io_class { IO_WRITE, IO_SYNC, IO_READ, IO_OPEN, IO_ALLOCATE, IO_RENAME, IO_UNLINK, IO_MKDIR };
#define IO_CLASSES 8
#define IO_FAULT_MAGIC 0x31746c7561666f69ull /* "iofault1" */
#define IO_IOV_MAX 1024

struct io_fault {
  uint64_t magic;
  _Atomic uint64_t armed;
  uint64_t classes; /* bits, 1 << enum io_class */
  uint64_t first;   /* 1: the first matching call since `matched` was 0 */
  uint64_t times;
  uint64_t error;                    /* errno; 0: half done */
  _Atomic uint64_t matched;          /* calls of the chosen classes while armed */
  _Atomic uint64_t done;             /* of them, failed */
  _Atomic uint64_t done_ns;          /* CLOCK_MONOTONIC of the first that failed */
  _Atomic uint64_t loaded;           /* processes that have mapped this */
  _Atomic uint64_t seen[IO_CLASSES]; /* all calls below path, armed or not */
  char path[512];
  char last[512]; /* the first call that failed, and on what */
};
_Static_assert(sizeof(struct io_fault) == 8 * 18 + 1024, "io_fault.py knows this layout");

static struct io_fault *control;

#define REAL(name) ((__typeof__(&name))real_of(#name))

static void *real_of(const char *name) {
  void *found = dlsym(RTLD_NEXT, name);
  if (found) return found;
  errno = ENOSYS;
  abort();
}

__attribute__((constructor)) static void io_fault_load(void) {
  const char *file = getenv("IO_FAULT_CONTROL");
  if (!file) return;
  int fd = REAL(open)(file, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void *map = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (map == MAP_FAILED) return;
  struct io_fault *c = map;
  if (c->magic != IO_FAULT_MAGIC) return;
  atomic_fetch_add(&c->loaded, 1);
  control = c;
}

/* ---- what is below the directory ---- */

static bool path_below(const char *path) {
  size_t len = strlen(control->path);
  return len > 0 && strncmp(path, control->path, len) == 0 && (path[len] == '/' || path[len] == 0);
}

static bool fd_path(int fd, char out[PATH_MAX]) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, out, PATH_MAX - 1);
  if (n < 0) return false;
  out[n] = 0;
  return true;
}

static bool at_path(int dir_fd, const char *name, char out[PATH_MAX]) {
  char dir[PATH_MAX];
  if (name[0] == '/') {
    snprintf(out, PATH_MAX, "%s", name);
    return true;
  }
  if (dir_fd == AT_FDCWD ? !getcwd(dir, sizeof dir) : !fd_path(dir_fd, dir)) return false;
  int n = snprintf(out, PATH_MAX, "%s/%s", dir, name);
  return n > 0 && n < PATH_MAX;
}

/* The file that is mapped at an address. */
static bool map_path(const void *address, char out[PATH_MAX]) {
  FILE *maps = fopen("/proc/self/maps", "re");
  char line[PATH_MAX + 128];
  bool found = false;
  while (maps && !found && fgets(line, sizeof line, maps)) {
    uintptr_t from, to;
    const char *slash = strchr(line, '/');
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &from, &to) != 2 || !slash) continue;
    if ((uintptr_t)address < from || (uintptr_t)address >= to) continue;
    snprintf(out, PATH_MAX, "%.*s", (int)strcspn(slash, "\n"), slash);
    found = true;
  }
  if (maps) (void)fclose(maps);
  return found;
}

/* ---- the decision ---- */

enum verdict { CARRY_OUT, FAIL, HALVE };

static enum verdict decide(enum io_class class, const char *call, const char *path) {
  if (!path_below(path)) return CARRY_OUT;
  atomic_fetch_add(&control->seen[class], 1);
  if (!atomic_load(&control->armed) || !(control->classes & 1u << class)) return CARRY_OUT;
  uint64_t number = atomic_fetch_add(&control->matched, 1) + 1;
  if (number < control->first || number - control->first >= control->times) return CARRY_OUT;
  bool halve = control->error == 0;
  if (halve && class != IO_WRITE && class != IO_READ) return CARRY_OUT;
  if (atomic_fetch_add(&control->done, 1) == 0) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(control->last, sizeof control->last, "%s %s", call, path);
    atomic_store(&control->done_ns, (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
  }
  if (halve) return HALVE;
  errno = (int)control->error;
  return FAIL;
}

static enum verdict decide_fd(enum io_class class, const char *call, int fd) {
  char path[PATH_MAX];
  int saved = errno;
  if (!control || !fd_path(fd, path)) {
    errno = saved;
    return CARRY_OUT;
  }
  enum verdict v = decide(class, call, path);
  if (v != FAIL) errno = saved;
  return v;
}

static enum verdict decide_at(enum io_class class, const char *call, int dir_fd, const char *name) {
  char path[PATH_MAX];
  int saved = errno;
  if (!control || !name || !at_path(dir_fd, name, path)) {
    errno = saved;
    return CARRY_OUT;
  }
  enum verdict v = decide(class, call, path);
  if (v != FAIL) errno = saved;
  return v;
}

static size_t half(size_t len) {
  return len > 1 ? len / 2 : len;
}

/* The first half of a vector; the number of its entries. */
static int halve_iov(const struct iovec *iov, int count, struct iovec out[IO_IOV_MAX]) {
  size_t total = 0;
  int n = 0;
  for (int i = 0; i < count; i++) total += iov[i].iov_len;
  for (size_t left = half(total); n < count && n < IO_IOV_MAX && left > 0; n++) {
    out[n] = iov[n];
    if (out[n].iov_len > left) out[n].iov_len = left;
    left -= out[n].iov_len;
  }
  return n;
}

/* ---- the calls ---- */

#define PLAIN(class, type, name, params, args, fd, len) \
  type name params {                                    \
    enum verdict v = decide_fd(class, #name, fd);       \
    if (v == FAIL) return -1;                           \
    if (v == HALVE) len = half(len);                    \
    return REAL(name) args;                             \
  }

#define VECTOR(class, type, name, params, args)   \
  type name params {                              \
    struct iovec some[IO_IOV_MAX];                \
    enum verdict v = decide_fd(class, #name, fd); \
    if (v == FAIL) return -1;                     \
    if (v == HALVE) {                             \
      count = halve_iov(iov, count, some);        \
      iov = some;                                 \
    }                                             \
    return REAL(name) args;                       \
  }

#define ON_FD(class, name, params, args, fd)            \
  int name params {                                     \
    if (decide_fd(class, #name, fd) == FAIL) return -1; \
    return REAL(name) args;                             \
  }

#define ON_NAME(class, name, params, args, dir_fd, path)          \
  int name params {                                               \
    if (decide_at(class, #name, dir_fd, path) == FAIL) return -1; \
    return REAL(name) args;                                       \
  }

PLAIN(IO_WRITE, ssize_t, write, (int fd, const void *buf, size_t len), (fd, buf, len), fd, len)
PLAIN(IO_WRITE, ssize_t, pwrite, (int fd, const void *buf, size_t len, off_t at),
      (fd, buf, len, at), fd, len)
PLAIN(IO_WRITE, ssize_t, pwrite64, (int fd, const void *buf, size_t len, off64_t at),
      (fd, buf, len, at), fd, len)
VECTOR(IO_WRITE, ssize_t, writev, (int fd, const struct iovec *iov, int count), (fd, iov, count))
VECTOR(IO_WRITE, ssize_t, pwritev, (int fd, const struct iovec *iov, int count, off_t at),
       (fd, iov, count, at))
VECTOR(IO_WRITE, ssize_t, pwritev64, (int fd, const struct iovec *iov, int count, off64_t at),
       (fd, iov, count, at))
VECTOR(IO_WRITE, ssize_t, pwritev2,
       (int fd, const struct iovec *iov, int count, off_t at, int flags),
       (fd, iov, count, at, flags))
VECTOR(IO_WRITE, ssize_t, pwritev64v2,
       (int fd, const struct iovec *iov, int count, off64_t at, int flags),
       (fd, iov, count, at, flags))

PLAIN(IO_READ, ssize_t, read, (int fd, void *buf, size_t len), (fd, buf, len), fd, len)
PLAIN(IO_READ, ssize_t, pread, (int fd, void *buf, size_t len, off_t at), (fd, buf, len, at), fd,
      len)
PLAIN(IO_READ, ssize_t, pread64, (int fd, void *buf, size_t len, off64_t at), (fd, buf, len, at),
      fd, len)
VECTOR(IO_READ, ssize_t, readv, (int fd, const struct iovec *iov, int count), (fd, iov, count))
VECTOR(IO_READ, ssize_t, preadv, (int fd, const struct iovec *iov, int count, off_t at),
       (fd, iov, count, at))
VECTOR(IO_READ, ssize_t, preadv64, (int fd, const struct iovec *iov, int count, off64_t at),
       (fd, iov, count, at))
VECTOR(IO_READ, ssize_t, preadv2, (int fd, const struct iovec *iov, int count, off_t at, int flags),
       (fd, iov, count, at, flags))
VECTOR(IO_READ, ssize_t, preadv64v2,
       (int fd, const struct iovec *iov, int count, off64_t at, int flags),
       (fd, iov, count, at, flags))

ssize_t __read_chk(int fd, void *buf, size_t len, size_t size);
ssize_t __pread_chk(int fd, void *buf, size_t len, off_t at, size_t size);
ssize_t __pread64_chk(int fd, void *buf, size_t len, off64_t at, size_t size);
PLAIN(IO_READ, ssize_t, __read_chk, (int fd, void *buf, size_t len, size_t size),
      (fd, buf, len, size), fd, len)
PLAIN(IO_READ, ssize_t, __pread_chk, (int fd, void *buf, size_t len, off_t at, size_t size),
      (fd, buf, len, at, size), fd, len)
PLAIN(IO_READ, ssize_t, __pread64_chk, (int fd, void *buf, size_t len, off64_t at, size_t size),
      (fd, buf, len, at, size), fd, len)

ON_FD(IO_SYNC, fsync, (int fd), (fd), fd)
ON_FD(IO_SYNC, fdatasync, (int fd), (fd), fd)
ON_FD(IO_SYNC, syncfs, (int fd), (fd), fd)
ON_FD(IO_SYNC, sync_file_range, (int fd, off64_t at, off64_t len, unsigned flags),
      (fd, at, len, flags), fd)

int msync(void *address, size_t len, int flags) {
  char path[PATH_MAX];
  if (control && map_path(address, path) && decide(IO_SYNC, "msync", path) == FAIL) return -1;
  return REAL(msync)(address, len, flags);
}

ON_FD(IO_ALLOCATE, fallocate, (int fd, int mode, off_t at, off_t len), (fd, mode, at, len), fd)
ON_FD(IO_ALLOCATE, fallocate64, (int fd, int mode, off64_t at, off64_t len), (fd, mode, at, len),
      fd)
ON_FD(IO_ALLOCATE, ftruncate, (int fd, off_t len), (fd, len), fd)
ON_FD(IO_ALLOCATE, ftruncate64, (int fd, off64_t len), (fd, len), fd)

/* These return the error. */
int posix_fallocate(int fd, off_t at, off_t len) {
  if (decide_fd(IO_ALLOCATE, "posix_fallocate", fd) == FAIL) return errno;
  return REAL(posix_fallocate)(fd, at, len);
}
int posix_fallocate64(int fd, off64_t at, off64_t len) {
  if (decide_fd(IO_ALLOCATE, "posix_fallocate64", fd) == FAIL) return errno;
  return REAL(posix_fallocate64)(fd, at, len);
}

/* ---- names ---- */

/* What makes a file is told from what opens one. */
#define OPEN_NAME(name, flags) ((flags)&O_CREAT ? name " (create)" : name)

#define TAKE_MODE(flags, mode)             \
  mode_t mode = 0;                         \
  if ((flags) & (O_CREAT | __O_TMPFILE)) { \
    va_list args;                          \
    va_start(args, flags);                 \
    mode = va_arg(args, mode_t);           \
    va_end(args);                          \
  }

int open(const char *path, int flags, ...) {
  TAKE_MODE(flags, mode)
  if (decide_at(IO_OPEN, OPEN_NAME("open", flags), AT_FDCWD, path) == FAIL) return -1;
  return REAL(open)(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
  TAKE_MODE(flags, mode)
  if (decide_at(IO_OPEN, OPEN_NAME("open64", flags), AT_FDCWD, path) == FAIL) return -1;
  return REAL(open64)(path, flags, mode);
}
int openat(int dir_fd, const char *path, int flags, ...) {
  TAKE_MODE(flags, mode)
  if (decide_at(IO_OPEN, OPEN_NAME("openat", flags), dir_fd, path) == FAIL) return -1;
  return REAL(openat)(dir_fd, path, flags, mode);
}
int openat64(int dir_fd, const char *path, int flags, ...) {
  TAKE_MODE(flags, mode)
  if (decide_at(IO_OPEN, OPEN_NAME("openat64", flags), dir_fd, path) == FAIL) return -1;
  return REAL(openat64)(dir_fd, path, flags, mode);
}

int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dir_fd, const char *path, int flags);
int __openat64_2(int dir_fd, const char *path, int flags);
ON_NAME(IO_OPEN, __open_2, (const char *path, int flags), (path, flags), AT_FDCWD, path)
ON_NAME(IO_OPEN, __open64_2, (const char *path, int flags), (path, flags), AT_FDCWD, path)
ON_NAME(IO_OPEN, __openat_2, (int dir_fd, const char *path, int flags), (dir_fd, path, flags),
        dir_fd, path)
ON_NAME(IO_OPEN, __openat64_2, (int dir_fd, const char *path, int flags), (dir_fd, path, flags),
        dir_fd, path)
ON_NAME(IO_OPEN, creat, (const char *path, mode_t mode), (path, mode), AT_FDCWD, path)
ON_NAME(IO_OPEN, creat64, (const char *path, mode_t mode), (path, mode), AT_FDCWD, path)

ON_NAME(IO_RENAME, rename, (const char *from, const char *to), (from, to), AT_FDCWD, to)
ON_NAME(IO_RENAME, renameat, (int from_fd, const char *from, int to_fd, const char *to),
        (from_fd, from, to_fd, to), to_fd, to)
ON_NAME(IO_RENAME, renameat2,
        (int from_fd, const char *from, int to_fd, const char *to, unsigned flags),
        (from_fd, from, to_fd, to, flags), to_fd, to)
ON_NAME(IO_UNLINK, unlink, (const char *path), (path), AT_FDCWD, path)
ON_NAME(IO_UNLINK, unlinkat, (int dir_fd, const char *path, int flags), (dir_fd, path, flags),
        dir_fd, path)
ON_NAME(IO_MKDIR, mkdir, (const char *path, mode_t mode), (path, mode), AT_FDCWD, path)
ON_NAME(IO_MKDIR, mkdirat, (int dir_fd, const char *path, mode_t mode), (dir_fd, path, mode),
        dir_fd, path)
