/* format.c: a directory becomes a drive, is recognised as one, and is locked and opened.
 *
 *   drive.id       who it is: lines of text with a CRC; written last, by rename
 *   drive.id.new   a format that has not ended
 *   lock           flock'ed by the process that has it open; holds its pid
 *   index/         LMDB
 *   data/00..1f/   chunk files
 *
 * drive.id.new is made first, so an interrupted format is told from a drive that lost its drive.id:
 * only the former may be formatted over. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codec/crc32c.h"
#include "config/err.h"
#include "storage/drive/drive_internal.h"
#include "storage/drive/store_files.h"

#define ID_FILE "drive.id"
#define ID_FILE_NEW "drive.id.new"
#define LOCK_FILE "lock"
#define ID_FILE_BYTES_MAX 4096
#define ID_CRC_LINE_BYTES 13 /* "crc " 8 digits LF */
#define ID_FORMAT "kofn-drive 1"

static int say(struct drive_error *e, int err, const char *fmt, ...) _printf_(3, 4);
static int say(struct drive_error *e, int err, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  vsnprintf(e->text, sizeof e->text, fmt, args);
  va_end(args);
  return err;
}

/* ---- drive.id ---- */

static int id_print(const struct drive_identity *id, char out[ID_FILE_BYTES_MAX], size_t *ret_len) {
  char drive[ID128_HEX_LEN + 1], cluster[ID128_HEX_LEN + 1];
  char map[2 * SHA256_LEN + 1], table[2 * SHA256_LEN + 1];
  id128_hex(&id->drive_id, drive);
  id128_hex(&id->cluster_id, cluster);
  hex_encode(id->map_digest, SHA256_LEN, map);
  hex_encode(id->table_digest, SHA256_LEN, table);
  for (const char *c = id->drive_name; *c; c++)
    if (*c == '\n') return ERR_INVALID;
  int n = snprintf(
      out, ID_FILE_BYTES_MAX,
      ID_FORMAT "\ndrive %s\ncluster %s\ncluster-name %s\nhost %s\nname %s\nepoch %" PRIu32
                "\nmap %s\ntable %s\n",
      drive, cluster, id->cluster_name, id->host_id, id->drive_name, id->epoch, map, table);
  if (n < 0 || n >= ID_FILE_BYTES_MAX - ID_CRC_LINE_BYTES) return ERR_INVALID;
  n += snprintf(out + n, ID_FILE_BYTES_MAX - (size_t)n, "crc %08" PRIx32 "\n",
                crc32c(0, out, (size_t)n));
  *ret_len = (size_t)n;
  return 0;
}

/* The rest of the next line, which must start with `name` and a space. */
static bool id_line(struct slice *at, const char *name, struct slice *ret_value) {
  const uint8_t *end = at->len ? memchr(at->data, '\n', at->len) : NULL;
  size_t name_len = strlen(name);
  if (!end) return false;
  struct slice line = slice_of(at->data, (size_t)(end - at->data));
  if (!slice_starts_with(line, slice_str(name)) || line.len <= name_len ||
      line.data[name_len] != ' ')
    return false;
  *ret_value = slice_of(line.data + name_len + 1, line.len - name_len - 1);
  *at = slice_of(end + 1, at->len - line.len - 1);
  return true;
}

static bool id_line_hex(struct slice *at, const char *name, uint8_t *out, size_t len) {
  struct slice v;
  return id_line(at, name, &v) && hex_decode(v, out, len) == 0;
}

static bool id_line_text(struct slice *at, const char *name, char *out, size_t cap) {
  struct slice v;
  if (!id_line(at, name, &v) || v.len >= cap) return false;
  if (v.len) memcpy(out, v.data, v.len);
  out[v.len] = 0;
  return true;
}

static int id_parse(struct slice text, struct drive_identity *ret_id) {
  struct drive_identity id = {0};
  if (text.len < ID_CRC_LINE_BYTES) return ERR_CORRUPT;
  char crc[ID_CRC_LINE_BYTES + 1];
  struct slice at = slice_of(text.data, text.len - ID_CRC_LINE_BYTES), v;
  snprintf(crc, sizeof crc, "crc %08" PRIx32 "\n", crc32c(0, at.data, at.len));
  if (memcmp(crc, text.data + at.len, ID_CRC_LINE_BYTES) != 0) return ERR_CORRUPT;
  bool ok = id_line(&at, "kofn-drive", &v) && slice_eq(v, SLICE_LIT("1")) &&
            id_line_hex(&at, "drive", id.drive_id.bytes, 16) &&
            id_line_hex(&at, "cluster", id.cluster_id.bytes, 16) &&
            id_line_text(&at, "cluster-name", id.cluster_name, sizeof id.cluster_name) &&
            id_line_text(&at, "host", id.host_id, sizeof id.host_id) &&
            id_line_text(&at, "name", id.drive_name, sizeof id.drive_name) &&
            id_line(&at, "epoch", &v);
  if (!ok || v.len == 0 || v.len > 9) return ERR_CORRUPT;
  for (size_t i = 0; i < v.len; i++) {
    if (v.data[i] < '0' || v.data[i] > '9') return ERR_CORRUPT;
    id.epoch = id.epoch * 10 + (v.data[i] - '0');
  }
  if (!id_line_hex(&at, "map", id.map_digest, SHA256_LEN) ||
      !id_line_hex(&at, "table", id.table_digest, SHA256_LEN) || at.len != 0)
    return ERR_CORRUPT;
  *ret_id = id;
  return 0;
}

static int id_read(int dir_fd, struct drive_identity *ret_id) {
  char text[ID_FILE_BYTES_MAX];
  int fd = openat(dir_fd, ID_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -errno;
  ssize_t n = read(fd, text, sizeof text);
  int err = n < 0 ? -errno : 0;
  close(fd);
  return err < 0 ? err : id_parse(slice_of(text, (size_t)n), ret_id);
}

/* ---- directories ---- */

static int dir_explain(const char *path, int err, struct drive_error *e) {
  if (err == -EACCES || err == -EPERM)
    return say(e, ERR_CONFIG, "%s: permission denied for uid %u: run `chown -R %u:%u %s` as root",
               path, (unsigned)geteuid(), (unsigned)geteuid(), (unsigned)getegid(), path);
  if (err == -ENOENT)
    return say(e, ERR_CONFIG, "%s: no such directory: create it, or mount its file system", path);
  if (err == -ENOTDIR) return say(e, ERR_CONFIG, "%s: not a directory", path);
  if (err == -EROFS) return say(e, ERR_CONFIG, "%s: the file system is read-only", path);
  return say(e, err, "%s: %s", path, err_words(err));
}

/* A descriptor of a directory that may be read and written. */
static int dir_open(const char *path, struct drive_error *e) {
  if (strlen(path) > SETTINGS_PATH_BYTES_MAX)
    return say(e, ERR_CONFIG, "%.64s...: longer than %d bytes", path, SETTINGS_PATH_BYTES_MAX);
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return dir_explain(path, -errno, e);
  if (faccessat(AT_FDCWD, path, R_OK | W_OK | X_OK, AT_EACCESS) != 0) {
    int err = -errno;
    close(fd);
    return dir_explain(path, err, e);
  }
  return fd;
}

static bool exists_at(int dir_fd, const char *name) {
  struct stat st;
  return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Nothing stands in it but what a file system's root brings. */
static int dir_is_empty(int dir_fd, bool *ret_empty) {
  int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return -errno;
  DIR *dir = fdopendir(fd);
  if (!dir) {
    close(fd);
    return -ENOMEM;
  }
  bool empty = true;
  struct dirent *entry;
  for (errno = 0; (entry = readdir(dir)); errno = 0)
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
        strcmp(entry->d_name, "lost+found") != 0)
      empty = false;
  int err = -errno;
  closedir(dir);
  *ret_empty = empty;
  return err;
}

static int probe_at(int fd, const char *path, enum drive_state *ret_state,
                    struct drive_identity *ret_identity, struct drive_error *e) {
  struct drive_identity id;
  int err = id_read(fd, &id);
  if (err == 0) {
    *ret_identity = id;
    *ret_state = DRIVE_FORMATTED;
    return 0;
  }
  if (err == ERR_CORRUPT)
    return say(e, ERR_CONFIG,
               "%s/" ID_FILE ": fails its checksum: restore the file, or replace the drive", path);
  if (err != -ENOENT) return dir_explain(path, err, e);
  bool empty = false;
  if (!exists_at(fd, ID_FILE_NEW)) {
    err = dir_is_empty(fd, &empty);
    if (err < 0) return dir_explain(path, err, e);
  } else {
    empty = true; /* a format that did not end */
  }
  *ret_state = empty ? DRIVE_EMPTY : DRIVE_FOREIGN;
  return 0;
}

int drive_probe(const char *path, enum drive_state *ret_state, struct drive_identity *ret_identity,
                struct drive_error *ret_error) {
  int fd = dir_open(path, ret_error);
  if (fd < 0) return fd;
  int err = probe_at(fd, path, ret_state, ret_identity, ret_error);
  close(fd);
  return err;
}

/* ---- the lock ---- */

/* The descriptor that holds it. */
static int lock_take(int dir_fd, const char *path, struct drive_error *e) {
  int fd = openat(dir_fd, LOCK_FILE, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0640);
  if (fd < 0) return dir_explain(path, -errno, e);
  char pid[24] = {0};
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    int err = -errno;
    if (err != -EWOULDBLOCK) {
      close(fd);
      return dir_explain(path, err, e);
    }
    ssize_t n = pread(fd, pid, sizeof pid - 1, 0);
    close(fd);
    int digits = 0;
    while (digits < n && pid[digits] >= '0' && pid[digits] <= '9') digits++;
    pid[digits] = 0;
    return say(e, ERR_BUSY, "%s: in use by another process%s%s: a drive belongs to one host", path,
               digits ? ", pid " : "", pid);
  }
  int n = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
  /* The pid is for the error message of whoever comes second; the lock holds without it. */
  if (ftruncate(fd, 0) != 0 || pwrite(fd, pid, (size_t)n, 0) != n) return fd;
  return fd;
}

/* ---- formatting ---- */

static int write_whole(int fd, const char *text, size_t len) {
  ssize_t n = pwrite(fd, text, len, 0);
  if (n < 0) return -errno;
  return (size_t)n == len ? 0 : -EIO;
}

/* An index of an interrupted format is begun anew. */
static int format_index(const char *path, int fd, uint64_t map_bytes, struct store **ret_store) {
  int err = store_files_make_dirs(path);
  if (err < 0) return err;
  if (unlinkat(fd, "index/data.mdb", 0) != 0 && errno != ENOENT && errno != ENOTDIR) return -errno;
  if (unlinkat(fd, "index/lock.mdb", 0) != 0 && errno != ENOENT && errno != ENOTDIR) return -errno;
  err = store_lmdb_open(path, map_bytes, true, ret_store);
  if (err < 0) return err;
  int index_fd = openat(fd, "index", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (index_fd < 0) err = -errno;
  if (err == 0 && fsync(index_fd) != 0) err = -errno;
  if (index_fd >= 0) close(index_fd);
  if (err == 0 && fsync(fd) != 0) err = -errno;
  if (err < 0) {
    struct store *store = TAKE(*ret_store);
    store->ops->close(store);
  }
  return err;
}

static int format_run(const char *path, int fd, const struct drive_identity *identity,
                      const char *canonical, struct slice table, uint64_t map_bytes) {
  char text[ID_FILE_BYTES_MAX];
  size_t len;
  int err = id_print(identity, text, &len);
  if (err < 0) return err;
  int id_fd = openat(fd, ID_FILE_NEW, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0640);
  if (id_fd < 0) return -errno;
  struct store *store = NULL;
  if (ftruncate(id_fd, 0) != 0 || fsync(id_fd) != 0 || fsync(fd) != 0) err = -errno;
  if (err == 0) err = format_index(path, fd, map_bytes, &store);
  if (err == 0) err = drive_format_sys(store, identity, canonical, table);
  if (store) store->ops->close(store);
  if (err == 0) err = write_whole(id_fd, text, len);
  if (err == 0 && fsync(id_fd) != 0) err = -errno;
  if (err == 0 && renameat(fd, ID_FILE_NEW, fd, ID_FILE) != 0) err = -errno;
  if (err == 0 && fsync(fd) != 0) {
    err = -errno;
    /* Nobody knows which of the names a power cut would leave: as long as nothing is stored here,
     * the drive is to be formatted anew. */
    (void)renameat(fd, ID_FILE, fd, ID_FILE_NEW);
  }
  close(id_fd);
  return err;
}

int drive_format(const char *path, const struct drive_identity *identity, const char *canonical,
                 struct slice table, uint64_t index_map_bytes, struct drive_error *ret_error) {
  enum drive_state state;
  struct drive_identity found;
  int fd = dir_open(path, ret_error);
  if (fd < 0) return fd;
  int err = probe_at(fd, path, &state, &found, ret_error);
  if (err == 0 && state == DRIVE_FORMATTED)
    err = say(ret_error, ERR_REFUSED, "%s: is a drive already (%s)", path, found.drive_name);
  else if (err == 0 && state == DRIVE_FOREIGN)
    err = say(ret_error, ERR_REFUSED, "%s: is not empty, and no kofn drive: empty it first", path);
  if (err < 0) {
    close(fd);
    return err;
  }
  /* First of all, so that the lock file in it makes nobody call the directory foreign. */
  int mark = openat(fd, ID_FILE_NEW, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0640);
  if (mark >= 0) close(mark);
  int lock_fd = mark < 0 ? dir_explain(path, -errno, ret_error) : lock_take(fd, path, ret_error);
  if (lock_fd < 0) {
    close(fd);
    return lock_fd;
  }
  if (exists_at(fd, ID_FILE)) /* somebody was faster */
    err = say(ret_error, ERR_REFUSED, "%s: is a drive already", path);
  if (err == 0) {
    err = format_run(path, fd, identity, canonical, table, index_map_bytes);
    if (err < 0) (void)say(ret_error, err, "%s: formatting: %s", path, err_words(err));
  }
  close(lock_fd);
  close(fd);
  return err;
}

/* ---- opening ---- */

struct open_check {
  const struct drive_options *opt;
  const struct drive_identity *id; /* what drive.id says */
  struct drive_error *e;
};

/* Before anything is swept: to another drive's index all our chunks are garbage. */
static int open_check(void *arg, const struct drive *d) {
  const struct open_check *c = arg;
  if (!id128_eq(&d->identity.drive_id, &c->id->drive_id))
    return say(c->e, ERR_REFUSED, "%s: " ID_FILE " and index are of different drives",
               c->opt->path);
  return c->opt->check ? c->opt->check(c->opt->check_arg, d) : 0;
}

static int open_locked(const struct drive_options *opt, const struct drive_identity *id,
                       struct drive **ret_drive, struct drive_error *e) {
  struct store *store;
  int err = store_lmdb_open(opt->path, opt->index_map_bytes, false, &store);
  if (err < 0) return say(e, err, "%s: opening the index: %s", opt->path, err_words(err));
  struct open_check check = {opt, id, e};
  struct drive_options checked = *opt;
  checked.check = open_check;
  checked.check_arg = &check;
  return drive_attach(&checked, store, ret_drive, e);
}

int drive_open(const struct drive_options *opt, struct drive **ret_drive,
               struct drive_error *ret_error) {
  enum drive_state state;
  struct drive_identity id;
  int fd = dir_open(opt->path, ret_error);
  if (fd < 0) return fd;
  int lock_fd = -1;
  int err = probe_at(fd, opt->path, &state, &id, ret_error);
  if (err == 0 && state != DRIVE_FORMATTED)
    err = say(ret_error, ERR_REFUSED, "%s: no formatted drive", opt->path);
  if (err == 0) {
    lock_fd = lock_take(fd, opt->path, ret_error);
    err = MIN(lock_fd, 0);
  }
  /* Left by two formats at once: a drive that has it and loses its drive.id would look empty. */
  if (err == 0 && unlinkat(fd, ID_FILE_NEW, 0) == 0 && fsync(fd) != 0)
    err = say(ret_error, ERR_DRIVE_FAILED, "%s: syncing the directory: %s", opt->path,
              err_words(-errno));
  close(fd);
  if (err == 0) err = open_locked(opt, &id, ret_drive, ret_error);
  if (err < 0 && lock_fd >= 0) close(lock_fd);
  if (err == 0) (*ret_drive)->lock_fd = lock_fd;
  return err;
}

void drive_close(struct drive *d) {
  if (!d) return;
  int lock_fd = d->lock_fd;
  drive_detach(d);
  if (lock_fd >= 0) close(lock_fd); /* last: until here nobody else may look */
}
