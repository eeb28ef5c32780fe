/* state_dir.c: see state_dir.h. */
#include "storage/net/state_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "config/err.h"
#include "config/log.h"
#include "storage/net/cpu_lanes.h"

#define STATE_FORMAT 1
#define STATE_FILE "state.json"
#define STATE_FILE_ASIDE "state.json.new"
#define STATE_LOCK "lock"
/* Names need not be UTF-8, JSON strings do. */
#define HEX_PREFIX "hex:"

struct state_dir {
  char path[SETTINGS_PATH_BYTES_MAX + 1];
  int dir_fd, lock_fd;
  pthread_mutex_t lock;       /* guards all below */
  pthread_mutex_t write_lock; /* one writer; taken before `lock` */
  pthread_cond_t wake;
  struct state state;
  bool dirty, stop, thread_runs;
  pthread_t thread;
};

/* ---- words ---- */

int error_words(struct drive_error *e, int err, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  vsnprintf(e->text, sizeof e->text, fmt, args);
  va_end(args);
  return err;
}

static int fail(struct drive_error *e, int err, const struct state_dir *dir, const char *what) {
  if (err == -EACCES || err == -EPERM)
    return error_words(e, err,
                       "state directory %s: %s: permission denied for uid %u; run: chown %u %s",
                       dir->path, what, (unsigned)geteuid(), (unsigned)geteuid(), dir->path);
  return error_words(e, err, "state directory %s: %s: %s", dir->path, what, err_words(err));
}

static int damaged(struct drive_error *e, const struct state_dir *dir, const char *what) {
  return error_words(
      e, ERR_CONFIG,
      "%s/" STATE_FILE
      " is damaged (%s). It is replaced whole at every write, so something "
      "else changed it: restore it. Only if that is impossible, move it away: this host then "
      "forgets which drives are out of service and which boot counters it has seen",
      dir->path, what);
}

/* ---- JSON ---- */

static json_t *json_text(const char *text) {
  json_t *j = strncmp(text, HEX_PREFIX, sizeof HEX_PREFIX - 1) == 0 ? NULL : json_string(text);
  if (j) return j;
  size_t len = strlen(text);
  char *hex = malloc(sizeof HEX_PREFIX + 2 * len);
  if (!hex) return NULL;
  memcpy(hex, HEX_PREFIX, sizeof HEX_PREFIX);
  hex_encode(text, len, hex + sizeof HEX_PREFIX - 1);
  j = json_string(hex);
  free(hex);
  return j;
}

/* malloc'ed, or NULL where `j` is no text. */
static char *json_text_get(const json_t *j) {
  const char *s = json_string_value(j);
  if (!s || strlen(s) != json_string_length(j)) return NULL;
  if (strncmp(s, HEX_PREFIX, sizeof HEX_PREFIX - 1) != 0) return strdup(s);
  struct slice hex = slice_str(s + sizeof HEX_PREFIX - 1);
  char *text = calloc(1, hex.len / 2 + 1);
  if (text && hex_decode(hex, (uint8_t *)text, hex.len / 2) < 0) free(TAKE(text));
  return text;
}

static json_t *json_id(const struct id128 *id) {
  char hex[ID128_HEX_LEN + 1];
  id128_hex(id, hex);
  return json_string(hex);
}

/* An absent one is zero. */
static bool json_id_get(const json_t *j, struct id128 *ret_id) {
  if (!j) return true;
  const char *s = json_string_value(j);
  return s && strlen(s) == ID128_HEX_LEN &&
         hex_decode(slice_str(s), ret_id->bytes, sizeof ret_id->bytes) == 0;
}

static void put_id_unless_zero(json_t *root, const char *name, const struct id128 *id) {
  if (!id128_is_zero(id)) json_object_set_new(root, name, json_id(id));
}

static json_t *drive_to_json(const struct state_drive *d) {
  json_t *j = json_object();
  json_object_set_new(j, "name", json_text(d->name));
  put_id_unless_zero(j, "id", &d->id);
  json_object_set_new(j, "boot_counter", json_integer((json_int_t)d->boot_counter));
  if (d->boot_nonce) json_object_set_new(j, "boot_nonce", json_integer((json_int_t)d->boot_nonce));
  if (d->failed[0]) json_object_set_new(j, "failed", json_text(d->failed));
  return j;
}

/* malloc'ed text; NULL without memory. */
static char *state_to_json(const struct state *s) {
  json_t *root = json_object(), *drives = json_array();
  json_object_set_new(root, "format", json_integer(STATE_FORMAT));
  json_object_set_new(root, "cluster_name", json_text(s->cluster_name));
  json_object_set_new(root, "host_id", json_text(s->host_id));
  put_id_unless_zero(root, "cluster_id", &s->cluster_id);
  put_id_unless_zero(root, "init_id", &s->init_id);
  json_object_set_new(root, "initialising", json_boolean(s->initialising));
  if (s->canonical) {
    uint8_t digest[SHA256_LEN];
    char hex[2 * SHA256_LEN + 1];
    sha256(s->canonical, strlen(s->canonical), digest);
    hex_encode(digest, sizeof digest, hex);
    json_object_set_new(root, "canonical", json_text(s->canonical));
    json_object_set_new(root, "map_digest", json_string(hex));
  }
  for (unsigned i = 0; i < s->drive_count; i++)
    json_array_append_new(drives, drive_to_json(&s->drives[i]));
  unsigned written = (unsigned)json_array_size(drives);
  json_object_set_new(root, "drives", drives);
  char *text = written == s->drive_count ? json_dumps(root, JSON_INDENT(2)) : NULL;
  json_decref(root);
  return text;
}

static bool name_get(const json_t *j, char out[SETTINGS_NAME_BYTES_MAX + 1]) {
  char *text = json_text_get(j);
  bool ok = text && strlen(text) <= SETTINGS_NAME_BYTES_MAX;
  if (ok) memcpy(out, text, strlen(text) + 1);
  free(text);
  return ok;
}

static bool drive_from_json(const json_t *j, struct state *s) {
  char *name = json_text_get(json_object_get(j, "name"));
  const json_t *boot = json_object_get(j, "boot_counter"), *failed = json_object_get(j, "failed");
  bool fresh = name && !state_drive(s, name, false);
  struct state_drive *d = fresh ? state_drive(s, name, true) : NULL;
  free(name);
  if (!d || !json_is_integer(boot) || json_integer_value(boot) < 0) return false;
  d->boot_counter = (uint64_t)json_integer_value(boot);
  const json_t *nonce = json_object_get(j, "boot_nonce");
  if (nonce && (!json_is_integer(nonce) || json_integer_value(nonce) < 0)) return false;
  d->boot_nonce = nonce ? (uint64_t)json_integer_value(nonce) : 0;
  if (failed) {
    char *text = json_text_get(failed);
    if (!text || !text[0]) {
      free(text);
      return false;
    }
    snprintf(d->failed, sizeof d->failed, "%s", text);
    free(text);
  }
  return json_id_get(json_object_get(j, "id"), &d->id);
}

/* What is wrong with it, or NULL. */
static const char *state_from_json(const json_t *root, struct state *s) {
  if (json_integer_value(json_object_get(root, "format")) != STATE_FORMAT)
    return "its format is not 1";
  if (!name_get(json_object_get(root, "cluster_name"), s->cluster_name)) return "cluster_name";
  if (!name_get(json_object_get(root, "host_id"), s->host_id)) return "host_id";
  if (!json_id_get(json_object_get(root, "cluster_id"), &s->cluster_id)) return "cluster_id";
  if (!json_id_get(json_object_get(root, "init_id"), &s->init_id)) return "init_id";
  const json_t *initialising = json_object_get(root, "initialising");
  if (!json_is_boolean(initialising)) return "initialising";
  s->initialising = json_is_true(initialising);
  const json_t *canonical = json_object_get(root, "canonical");
  if (canonical && !(s->canonical = json_text_get(canonical))) return "canonical";
  if (!s->canonical && !(id128_is_zero(&s->cluster_id) && id128_is_zero(&s->init_id)))
    return "canonical is missing";
  const json_t *drives = json_object_get(root, "drives"), *drive;
  if (!json_is_array(drives)) return "drives";
  size_t i;
  json_array_foreach(drives, i, drive) {
    if (!drive_from_json(drive, s)) return "an entry of drives";
  }
  return NULL;
}

/* ---- the state ---- */

static void state_clear(struct state *s) {
  for (unsigned i = 0; i < s->drive_count; i++) free(s->drives[i].name);
  free(s->canonical);
  *s = (struct state){0};
}

struct state_drive *state_drive(struct state *s, const char *name, bool add) {
  for (unsigned i = 0; i < s->drive_count; i++)
    if (strcmp(s->drives[i].name, name) == 0) return &s->drives[i];
  if (!add || s->drive_count == MAP_DRIVES_MAX) return NULL;
  char *copy = strdup(name);
  if (!copy) return NULL;
  struct state_drive *d = &s->drives[s->drive_count++];
  *d = (struct state_drive){.name = copy};
  return d;
}

int state_set_canonical(struct state *s, const char *canonical) {
  char *copy = strdup(canonical);
  if (!copy) return -ENOMEM;
  free(s->canonical);
  s->canonical = copy;
  return 0;
}

struct state *state_lock(struct state_dir *dir) {
  pthread_mutex_lock(&dir->lock);
  return &dir->state;
}

void state_unlock(struct state_dir *dir) {
  pthread_mutex_unlock(&dir->lock);
}

void state_touch(struct state_dir *dir) {
  dir->dirty = true;
  pthread_cond_signal(&dir->wake);
}

/* ---- the file ---- */

static int write_all(int fd, const char *text, size_t len) {
  while (len > 0) {
    ssize_t n = write(fd, text, len);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -errno;
    text += n;
    len -= (size_t)n;
  }
  return 0;
}

static int state_write(struct state_dir *dir, const char *text) {
  int fd = openat(dir->dir_fd, STATE_FILE_ASIDE, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return -errno;
  int err = write_all(fd, text, strlen(text));
  if (err == 0 && fsync(fd) < 0) err = -errno;
  if (close(fd) < 0 && err == 0) err = -errno;
  if (err < 0) return err;
  if (renameat(dir->dir_fd, STATE_FILE_ASIDE, dir->dir_fd, STATE_FILE) < 0) return -errno;
  return fsync(dir->dir_fd) < 0 ? -errno : 0;
}

int state_save(struct state_dir *dir) {
  pthread_mutex_lock(&dir->write_lock);
  pthread_mutex_lock(&dir->lock);
  char *text = state_to_json(&dir->state);
  dir->dirty = false;
  pthread_mutex_unlock(&dir->lock);
  int err = text ? state_write(dir, text) : -ENOMEM;
  free(text);
  pthread_mutex_unlock(&dir->write_lock);
  if (err < 0) log_error("state", "cannot write %s/" STATE_FILE ": %s", dir->path, err_words(err));
  return err;
}

/* Lets a burst of changes become one write. */
static void writer_wait(struct state_dir *dir) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += STATE_WRITE_DELAY_MS / 1000;
  while (!dir->stop && pthread_cond_timedwait(&dir->wake, &dir->lock, &until) == 0) {
  }
}

static void *writer_main(void *arg) {
  struct state_dir *dir = arg;
  pthread_mutex_lock(&dir->lock);
  while (!dir->stop) {
    if (!dir->dirty) {
      pthread_cond_wait(&dir->wake, &dir->lock);
      continue;
    }
    writer_wait(dir);
    if (dir->stop || !dir->dirty) continue;
    pthread_mutex_unlock(&dir->lock);
    int err = state_save(dir); /* has logged; the next change tries again */
    (void)err;
    pthread_mutex_lock(&dir->lock);
  }
  pthread_mutex_unlock(&dir->lock);
  return NULL;
}

/* ---- opening ---- */

/* The directory and those above it, as mkdir -p does. */
static int make_dirs(const char *path) {
  char part[SETTINGS_PATH_BYTES_MAX + 1];
  size_t len = strlen(path);
  for (size_t i = 1; i <= len; i++) {
    if (i < len && path[i] != '/') continue;
    memcpy(part, path, i);
    part[i] = 0;
    if (mkdir(part, 0700) < 0 && errno != EEXIST) return -errno;
  }
  return 0;
}

static int lock_dir(struct state_dir *dir, struct drive_error *e) {
  dir->lock_fd = openat(dir->dir_fd, STATE_LOCK, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (dir->lock_fd < 0) return fail(e, -errno, dir, "cannot open its lock file");
  char pid[32] = "";
  if (flock(dir->lock_fd, LOCK_EX | LOCK_NB) < 0) {
    if (errno != EWOULDBLOCK) return fail(e, -errno, dir, "cannot lock it");
    ssize_t n = pread(dir->lock_fd, pid, sizeof pid - 1, 0);
    pid[n > 0 ? n : 0] = 0;
    pid[strspn(pid, "0123456789")] = 0;
    return error_words(e, ERR_BUSY, "another kofn uses state directory %s, pid %s", dir->path,
                       pid[0] ? pid : "unknown");
  }
  int len = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
  if (ftruncate(dir->lock_fd, 0) < 0 || pwrite(dir->lock_fd, pid, (size_t)len, 0) != len)
    return fail(e, errno ? -errno : -EIO, dir, "cannot write its lock file");
  return 0;
}

static int read_state(struct state_dir *dir, struct drive_error *e) {
  int fd = openat(dir->dir_fd, STATE_FILE, O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) return 0;
  if (fd < 0) return fail(e, -errno, dir, "cannot open " STATE_FILE);
  struct stat st;
  char *text = NULL;
  ssize_t len = -1;
  if (fstat(fd, &st) == 0 && st.st_size <= (off_t)STATE_FILE_BYTES_MAX) {
    text = malloc((size_t)st.st_size + 1);
    if (text) len = read(fd, text, (size_t)st.st_size + 1);
  }
  int err = len < 0 ? fail(e, errno ? -errno : -EIO, dir, "cannot read " STATE_FILE) : 0;
  close(fd);
  if (err == 0) {
    json_error_t json_err;
    json_t *root = json_loadb(text, (size_t)len, JSON_REJECT_DUPLICATES, &json_err);
    const char *wrong = root ? state_from_json(root, &dir->state) : json_err.text;
    if (wrong) err = damaged(e, dir, wrong);
    json_decref(root);
  }
  free(text);
  return err;
}

static int open_dir(struct state_dir *dir, struct drive_error *e) {
  int err = make_dirs(dir->path);
  if (err < 0) return fail(e, err, dir, "cannot make it");
  dir->dir_fd = open(dir->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir->dir_fd < 0) return fail(e, -errno, dir, "cannot open it");
  if (faccessat(dir->dir_fd, ".", W_OK | X_OK, AT_EACCESS) < 0)
    return fail(e, -errno, dir, "cannot write to it");
  err = lock_dir(dir, e);
  if (err == 0) err = read_state(dir, e);
  if (err < 0) return err;
  sigset_t old;
  thread_signals_block(&old);
  int failed = pthread_create(&dir->thread, NULL, writer_main, dir);
  thread_signals_restore(&old);
  if (failed) return fail(e, -failed, dir, "cannot start a thread");
  pthread_setname_np(dir->thread, "kofn-state");
  dir->thread_runs = true;
  return 0;
}

int state_dir_open(const char *path, struct state_dir **ret_dir, struct drive_error *ret_error) {
  struct state_dir *dir = calloc(1, sizeof *dir);
  if (!dir || strlen(path) > SETTINGS_PATH_BYTES_MAX) {
    int err = dir ? -ENAMETOOLONG : -ENOMEM;
    error_words(ret_error, err, "state directory: %s", err_words(err));
    free(dir);
    return err;
  }
  memcpy(dir->path, path, strlen(path) + 1);
  dir->dir_fd = dir->lock_fd = -1;
  pthread_mutex_init(&dir->lock, NULL);
  pthread_mutex_init(&dir->write_lock, NULL);
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&dir->wake, &attr);
  pthread_condattr_destroy(&attr);
  int err = open_dir(dir, ret_error);
  if (err < 0) {
    state_dir_close(dir);
    return err;
  }
  *ret_dir = dir;
  return 0;
}

void state_dir_close(struct state_dir *dir) {
  if (!dir) return;
  if (dir->thread_runs) {
    pthread_mutex_lock(&dir->lock);
    dir->stop = true;
    pthread_cond_signal(&dir->wake);
    pthread_mutex_unlock(&dir->lock);
    pthread_join(dir->thread, NULL);
    if (dir->dirty) {
      int err = state_save(dir); /* has logged */
      (void)err;
    }
  }
  state_clear(&dir->state);
  pthread_cond_destroy(&dir->wake);
  pthread_mutex_destroy(&dir->lock);
  pthread_mutex_destroy(&dir->write_lock);
  if (dir->lock_fd >= 0) close(dir->lock_fd); /* unlocks */
  if (dir->dir_fd >= 0) close(dir->dir_fd);
  free(dir);
}
