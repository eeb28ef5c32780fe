/* cmd_server.c: `kofn server`: settings -> map -> drives (first start where needed) -> host_run. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codec/codec.h"
#include "codec/digest.h"
#include "config/err.h"
#include "server/cmd.h"
#include "server/worker.h"

#define KEYS_FILE_BYTES_MAX 256
#define ACCESS_KEY_LEN 20
#define SECRET_KEY_LEN 40
#define FILES_WANTED 65536

/* Set by SIGINT and SIGTERM until server_hold_signals. */
static int server_stop;

static void server_on_signal(int signum) {
  __atomic_store_n(&server_stop, 1, __ATOMIC_SEQ_CST);
}

static void server_signals(void) {
  struct sigaction stop = {.sa_handler = server_on_signal};
  sigaction(SIGINT, &stop, NULL);
  sigaction(SIGTERM, &stop, NULL);
  struct sigaction ignore = {.sa_handler = SIG_IGN};
  sigaction(SIGPIPE, &ignore, NULL);
}

/* From here on they wait until host_run fetches them: one that came just after the look at
 * server_stop would set a flag that nobody looks at any more. No other thread takes them. */
static void server_hold_signals(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* Connections and open chunk files want more than the usual 1,024 descriptors. */
static void server_raise_files(void) {
  struct rlimit lim;
  if (getrlimit(RLIMIT_NOFILE, &lim) < 0 || lim.rlim_cur >= FILES_WANTED) return;
  lim.rlim_cur =
      lim.rlim_max == RLIM_INFINITY ? FILES_WANTED : MIN((rlim_t)FILES_WANTED, lim.rlim_max);
  setrlimit(RLIMIT_NOFILE, &lim);
}

/* Without a file, the state stands under the user's own state directory, one for each set of
 * directories. */
static int server_dirs_state(struct settings *s, struct settings_error *err) {
  if (getenv("KOFN_SERVER_STATE_DIR")) return 0;
  uint8_t hash[SHA256_LEN];
  char hex[2 * SHA256_LEN + 1], path[SETTINGS_PATH_BYTES_MAX + 1];
  const struct settings_host *self = settings_self(s);
  struct digest d;
  if (digest_begin(&d, DIGEST_SHA256) < 0) return -ENOMEM;
  for (unsigned i = 0; i < self->drive_count; i++)
    digest_update(&d, self->drives[i].path, strlen(self->drives[i].path) + 1);
  digest_end(&d, hash);
  hex_encode(hash, 8, hex);
  const char *xdg = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
  int len;
  if (geteuid() == 0)
    len = snprintf(path, sizeof path, "/var/lib/kofn/%s", hex);
  else if (xdg && xdg[0] == '/')
    len = snprintf(path, sizeof path, "%s/kofn/%s", xdg, hex);
  else if (home && home[0] == '/')
    len = snprintf(path, sizeof path, "%s/.local/state/kofn/%s", home, hex);
  else {
    snprintf(
        err->text, sizeof err->text,
        "neither KOFN_SERVER_STATE_DIR, XDG_STATE_HOME nor HOME says where the state is to stand");
    return ERR_CONFIG;
  }
  if (len < 0 || (size_t)len >= sizeof path) {
    snprintf(err->text, sizeof err->text, "the state directory's path is longer than %d bytes",
             SETTINGS_PATH_BYTES_MAX);
    return ERR_CONFIG;
  }
  char *copy = strdup(path);
  if (!copy) return -ENOMEM;
  free(s->server.state_dir);
  s->server.state_dir = copy;
  return 0;
}

static int key_random(const char *alphabet, unsigned letters, char *out, size_t len) {
  for (size_t i = 0; i < len; i++) {
    uint8_t byte;
    do {
      if (getrandom(&byte, 1, 0) != 1) return -errno;
    } while (byte >= 256 - 256 % letters); /* no letter is likelier than another */
    out[i] = alphabet[byte % letters];
  }
  out[len] = 0;
  return 0;
}

/* Writes the pair so that it survives a crash right after it was shown. */
static int keys_store(const char *dir, const char *path, const char *access_key,
                      const char *secret_key) {
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return -errno;
  int err = dprintf(fd, "%s %s\n", access_key, secret_key) < 0 || fsync(fd) < 0 ? -errno : 0;
  if (close(fd) < 0 && err == 0) err = -errno;
  int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir_fd >= 0) {
    if (fsync(dir_fd) < 0 && err == 0) err = -errno;
    close(dir_fd);
  }
  if (err < 0) unlink(path);
  return err;
}

/* The key pair of a single host that was given none: made at the first start, printed once, read
 * back later. */
static int server_local_keys(struct settings *s) {
  if (s->user_count > 0 || s->server.anonymous) return 0;
  char path[SETTINGS_PATH_BYTES_MAX + 16], line[KEYS_FILE_BYTES_MAX];
  char access_key[ACCESS_KEY_LEN + 1], secret_key[SECRET_KEY_LEN + 1];
  snprintf(path, sizeof path, "%s/keys", s->server.state_dir);
  FILE *f = fopen(path, "re");
  if (f) {
    bool ok = fgets(line, sizeof line, f) && sscanf(line, "%20s %40s", access_key, secret_key) == 2;
    fclose(f);
    if (!ok) {
      log_error("server", "%s holds no key pair; move it away to have a new one made", path);
      return ERR_CONFIG;
    }
    log_info("server", "access key %s (its secret is in %s)", access_key, path);
    return settings_add_user(s, "root", access_key, secret_key);
  }
  static const char upper[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
  static const char any[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  int err = key_random(upper, sizeof upper - 1, access_key, ACCESS_KEY_LEN);
  if (err == 0) err = key_random(any, sizeof any - 1, secret_key, SECRET_KEY_LEN);
  if (err == 0) err = keys_store(s->server.state_dir, path, access_key, secret_key);
  if (err < 0) {
    log_error("server", "cannot write %s: %s", path, err_words(err));
    return err;
  }
  printf("access key: %s\nsecret key: %s\n(shown this once; kept in %s)\n", access_key, secret_key,
         path);
  fflush(stdout);
  return settings_add_user(s, "root", access_key, secret_key);
}

/* One named error for a taken port, before anything is opened: SO_REUSEPORT would hide it. */
static int server_probe_ports(const struct settings *s, bool peers) {
  const struct {
    const char *name, *address;
  } ports[] = {{"server.s3_listen", s->server.s3_listen},
               {"server.admin_listen", s->server.admin_listen},
               {"server.peer_listen", peers ? s->server.peer_listen : NULL}};
  for (size_t i = 0; i < ARRAY_LEN(ports); i++) {
    if (!ports[i].address) continue;
    int err = listen_probe(ports[i].address);
    if (err == 0) continue;
    if (err == -EADDRINUSE)
      log_error("server", "%s: the port of %s is in use by another process", ports[i].name,
                ports[i].address);
    else
      log_error("server", "%s: cannot listen on %s: %s", ports[i].name, ports[i].address,
                err_words(err));
    return err;
  }
  return 0;
}

static void server_say_layout(const struct cluster_map *map, const struct cluster *cluster) {
  for (unsigned i = 0; i < map->pool_count; i++) {
    if (i == MAP_POOL_SYSTEM) continue;
    char words[512];
    cluster_map_survival(map, i, words, sizeof words);
    log_info("server", "pool %s: %u+%u %s on %u drives: %s", map->pools[i].name,
             map->pools[i].profile.k, map->pools[i].profile.m,
             technique_name(map->pools[i].profile.technique), map->pools[i].drive_count, words);
  }
  if (cluster_drives_share_disk(cluster))
    log_warn("server",
             "drives of this host share a file system: the loss of that disk is the loss of all of "
             "them%s",
             map->host_count == 1 ? "; this host survives no disk loss" : "");
}

static int server_run(struct settings *s, const struct cluster_map *map) {
  struct cluster *cluster = NULL;
  struct cpu_lanes *cpu = NULL;
  struct drive_error why = {""};
  int result = CMD_REFUSED;
  if (server_probe_ports(s, map->host_count > 1) < 0) return CMD_REFUSED;
  if (cluster_open(s, map, &cluster, &why) < 0) {
    log_error("server", "%s", why.text);
    return CMD_REFUSED;
  }
  if (map->host_count == 1 && server_local_keys(s) < 0) goto out;
  if (!cluster_ready(cluster)) {
    int err = cluster_first_start(cluster, &server_stop, &why);
    if (err == ERR_SHUTDOWN) result = CMD_OK;
    if (err < 0) {
      if (err != ERR_SHUTDOWN) log_error("server", "%s", why.text);
      goto out;
    }
  }
  server_say_layout(map, cluster);
  result = CMD_FAILED;
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  unsigned threads = s->server.cpu_threads ? s->server.cpu_threads : (unsigned)MAX(cores, 1);
  if (cpu_lanes_start(threads, &cpu) < 0) goto out;
  server_hold_signals();
  if (__atomic_load_n(&server_stop, __ATOMIC_SEQ_CST) || host_run(s, map, cluster, cpu) == 0)
    result = CMD_OK;
out:
  if (cpu) cpu_lanes_stop(cpu);
  cluster_close(cluster);
  return result;
}

/* The kernel that the file names, or those that are fastest here, on the default pool's own units
 * with every worker at it. */
static void server_xor_kernel(const struct settings *s, const struct cluster_map *map) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  unsigned workers = s->server.workers ? s->server.workers : (unsigned)MAX(cores, 1);
  struct xor_rates rates;
  if (xor_kernel_select(s->codec.xor_kernel) == 0) {
    log_info("server", "xor kernel: %s, as configured", xor_kernel_name());
    return;
  }
  xor_kernel_calibrate(map->pools[map->pool_default].profile.unit_bytes, workers, &rates);
  log_info("server", "xor kernel: %s, and %s beyond %zu KiB (%u measured in %u.%u ms)",
           xor_kernel_name(), xor_kernel_large_name(), xor_large_bytes() >> 10, rates.count,
           rates.took_us / 1000, rates.took_us / 100 % 10);
}

int cmd_server(int argc, char **argv) {
  struct settings *s = NULL;
  struct cluster_map *map = NULL;
  struct settings_error err = {""};
  int result = CMD_REFUSED, ret;
  if (argc < 2) return cmd_misused("server", "wants --config FILE, or directories");
  if (strcmp(argv[1], "--config") == 0) {
    if (argc != 3) return cmd_misused("server", "--config wants one file and nothing else");
    ret = settings_load(argv[2], &s, &err);
  } else {
    for (int i = 1; i < argc; i++)
      if (argv[i][0] == '-') return cmd_misused("server", "there is no option `%s`", argv[i]);
    ret = settings_for_dirs(argv + 1, (unsigned)argc - 1, &s, &err);
    if (ret == 0) ret = server_dirs_state(s, &err);
  }
  if (ret == 0) ret = cluster_map_build(s, &map, &err);
  if (ret == 0) ret = cmd_check_pools(s, &err);
  if (ret < 0) {
    fprintf(stderr, "%s\n", err.text[0] ? err.text : err_words(ret));
    goto out;
  }
  log_setup(s->server.log_level, map->hosts[map->self].id);
  server_signals();
  server_raise_files();
  server_xor_kernel(s, map);
  if (codec_self_test() < 0) {
    log_error("server", "the erasure code fails its self-test on this machine (xor kernel %s)",
              xor_kernel_name());
    result = CMD_FAILED;
    goto out;
  }
  result = server_run(s, map);
out:
  cluster_map_free(map);
  settings_free(s);
  return result;
}
