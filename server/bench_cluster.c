/* bench_cluster.c: a cluster of this very program on loopback, for a benchmark, and its end.
 *
 * Everything lies in one directory made with mkdtemp. A host dies with the process that started it
 * (PR_SET_PDEATHSIG), is ended by its pid alone, and has a session of its own, so that Ctrl-C on a
 * terminal reaches the benchmark, which then ends its hosts in order. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "codec/digest.h"
#include "config/err.h"
#include "server/bench_system.h"

#define START_MS_MAX 60000u
#define STOP_MS_MAX 20000u
#define LOOK_MS 50u
#define PORT_FIRST 10240u /* below those that outgoing connections are given */
#define PORT_COUNT 20000u
#define PORT_TRIES 200
#define PORTS_EACH 3
#define LOG_TAIL_BYTES 2000
#define FILES_OPEN_MAX 16
#define CONFIG_BYTES_MAX 65536

extern char **environ;

static int random_port(uint16_t *ret_port) {
  for (int i = 0; i < PORT_TRIES; i++) {
    uint32_t r;
    if (getrandom(&r, sizeof r, 0) != sizeof r) return -errno;
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)(PORT_FIRST + r % PORT_COUNT)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    int bound = bind(fd, (struct sockaddr *)&at, sizeof at);
    close(fd);
    if (bound < 0) continue;
    *ret_port = ntohs(at.sin_port);
    return 0;
  }
  return -EADDRINUSE;
}

/* Different ones, three for each host: S3, peers, admin. */
static int random_ports(uint16_t *ports, unsigned count) {
  for (unsigned i = 0; i < count;) {
    int err = random_port(&ports[i]);
    if (err < 0) return err;
    bool fresh = true;
    for (unsigned j = 0; j < i; j++) fresh = fresh && ports[j] != ports[i];
    i += fresh;
  }
  return 0;
}

static int random_hex(char *out, size_t bytes) {
  uint8_t raw[32];
  if (bytes > sizeof raw || getrandom(raw, bytes, 0) != (ssize_t)bytes) return -EIO;
  hex_encode(raw, bytes, out);
  return 0;
}

static int write_file(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return -errno;
  size_t len = strlen(text);
  int err = write(fd, text, len) == (ssize_t)len ? 0 : -EIO;
  close(fd);
  return err;
}

/* The configuration of host `self`; the same for all but its server section. */
static int write_config(const struct bench_cluster *c, unsigned self, unsigned drives,
                        const struct bench_pool *pools, unsigned pool_count,
                        const uint16_t *ports) {
  char *text = NULL, path[PATH_MAX];
  size_t len = 0;
  FILE *out = open_memstream(&text, &len);
  if (!out) return -ENOMEM;
  fprintf(out, "cluster: {name: bench, secret_file: %s/secret}\nhosts:\n", c->dir);
  for (unsigned h = 0; h < c->hosts; h++) {
    fprintf(out, "  - {id: n%u, address: \"127.0.0.1:%u\", drives: [", h + 1,
            ports[h * PORTS_EACH + 1]);
    for (unsigned d = 0; d < drives; d++)
      fprintf(out, "%s{name: d%u, path: %s/n%u/d%u}", d ? ", " : "", d + 1, c->dir, h + 1, d + 1);
    fputs("]}\n", out);
  }
  fprintf(out, "default_pool: %s\npools:\n", pools[0].name);
  for (unsigned p = 0; p < pool_count; p++)
    fprintf(out, "  - {name: %s, k: %u, m: %u, technique: %s}\n", pools[p].name, pools[p].k,
            pools[p].m, pools[p].technique);
  fprintf(out,
          "users:\n  - {name: bench, access_key: %.*s, secret_key_file: %s/secret_key}\n"
          "server:\n  host: n%u\n  s3_listen: \"127.0.0.1:%u\"\n  peer_listen: \"127.0.0.1:%u\"\n"
          "  admin_listen: \"127.0.0.1:%u\"\n  state_dir: %s/n%u/state\n"
          /* Overwritten objects go soon: the drives of a benchmark share one disk. */
          "drive:\n  reserve_bytes: 64MiB\n  index_map_bytes: 1GiB\n  trash_delay: 1s\n",
          (int)strcspn(c->user, ":"), c->user, c->dir, self + 1, ports[self * PORTS_EACH],
          ports[self * PORTS_EACH + 1], ports[self * PORTS_EACH + 2], c->dir, self + 1);
  int err = fclose(out) == 0 && len < CONFIG_BYTES_MAX ? 0 : -ENOMEM;
  snprintf(path, sizeof path, "%s/n%u/kofn.yaml", c->dir, self + 1);
  if (err == 0) err = write_file(path, text);
  free(text);
  return err;
}

static int make_files(struct bench_cluster *c, unsigned drives, const struct bench_pool *pools,
                      unsigned pool_count, const uint16_t *ports) {
  char path[PATH_MAX], secret[65], key[17];
  int err = random_hex(secret, 32);
  if (err == 0) err = random_hex(key, 8);
  snprintf(path, sizeof path, "%s/secret", c->dir);
  if (err == 0) err = write_file(path, secret);
  if (err == 0) err = random_hex(secret, 20);
  snprintf(path, sizeof path, "%s/secret_key", c->dir);
  if (err == 0) err = write_file(path, secret);
  snprintf(c->user, sizeof c->user, "BENCH%s:%s", key, secret);
  for (unsigned h = 0; h < c->hosts && err == 0; h++) {
    snprintf(path, sizeof path, "%s/n%u", c->dir, h + 1);
    if (mkdir(path, 0700) < 0) err = -errno;
    for (unsigned d = 0; d < drives && err == 0; d++) {
      snprintf(path, sizeof path, "%s/n%u/d%u", c->dir, h + 1, d + 1);
      if (mkdir(path, 0700) < 0) err = -errno;
    }
    if (err == 0) err = write_config(c, h, drives, pools, pool_count, ports);
  }
  return err;
}

/* In the child, before exec: nothing of the parent's but standard input's place. */
static void host_exec(const struct bench_cluster *c, unsigned h, pid_t parent, char **env) {
  char config[PATH_MAX], log[PATH_MAX];
  char kofn[] = "kofn", server[] = "server", option[] = "--config";
  char *argv[] = {kofn, server, option, config, NULL};
  snprintf(config, sizeof config, "%s/n%u/kofn.yaml", c->dir, h + 1);
  snprintf(log, sizeof log, "%s/n%u/log", c->dir, h + 1);
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127); /* it died before the line above */
  int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600), nothing = open("/dev/null", O_RDONLY);
  if (fd < 0 || nothing < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0 || dup2(nothing, 0) < 0)
    _exit(127);
  close(fd);
  close(nothing);
  signal(SIGPIPE, SIG_DFL);
  execve("/proc/self/exe", argv, env);
  _exit(127);
}

/* KOFN_SECTION_FIELD of the caller's environment must not change the hosts' configuration. */
static char **host_environment(void) {
  size_t count = 0, kept = 0;
  while (environ[count]) count++;
  char **env = calloc(count + 1, sizeof *env);
  for (size_t i = 0; env && i < count; i++)
    if (strncmp(environ[i], "KOFN_", 5) != 0) env[kept++] = environ[i];
  return env;
}

static void say_log(const struct bench_cluster *c, unsigned h) {
  char path[PATH_MAX], text[LOG_TAIL_BYTES + 1];
  snprintf(path, sizeof path, "%s/n%u/log", c->dir, h + 1);
  FILE *f = fopen(path, "re");
  if (!f) return;
  if (fseek(f, -LOG_TAIL_BYTES, SEEK_END) < 0) rewind(f);
  size_t n = fread(text, 1, LOG_TAIL_BYTES, f);
  text[n] = 0;
  fclose(f);
  fprintf(stderr, "kofn bench: host n%u ended or does not serve:\n%s", h + 1, text);
}

static bool host_ended(struct bench_cluster *c, unsigned h) {
  if (c->pids[h] == 0) return true;
  if (waitpid(c->pids[h], NULL, WNOHANG) != c->pids[h]) return false;
  c->pids[h] = 0;
  return true;
}

static int wait_ready(struct bench_cluster *c) {
  uint64_t end = bench_now_ns() + START_MS_MAX * UINT64_C(1000000);
  char answer[16];
  for (unsigned h = 0; h < c->hosts;) {
    if (bench_stop) return -EINTR;
    int status = bench_http(&c->admin[h], "GET", "/health/ready?for=write", "", NULL, 0, answer,
                            sizeof answer);
    if (status == 200) {
      h++;
      continue;
    }
    for (unsigned i = 0; i < c->hosts; i++) {
      if (!host_ended(c, i) && bench_now_ns() < end) continue;
      say_log(c, host_ended(c, i) ? i : h);
      return ERR_UNAVAILABLE;
    }
    bench_pause_ms(LOOK_MS);
  }
  return 0;
}

int bench_cluster_start(struct bench_cluster *c, const char *parent, unsigned hosts,
                        unsigned drives, const struct bench_pool *pools, unsigned pool_count) {
  uint16_t ports[BENCH_HOSTS_MAX * PORTS_EACH];
  *c = (struct bench_cluster){.hosts = 0};
  const char *tmp = parent ? parent : getenv("TMPDIR");
  snprintf(c->dir, sizeof c->dir, "%s/kofn-bench-XXXXXX", tmp ? tmp : "/tmp");
  if (!mkdtemp(c->dir)) {
    fprintf(stderr, "kofn bench: no directory can be made at %s: %s\n", c->dir, err_words(-errno));
    c->dir[0] = 0;
    return ERR_INVALID;
  }
  c->hosts = hosts;
  int err = random_ports(ports, hosts * PORTS_EACH);
  if (err == 0) err = make_files(c, drives, pools, pool_count, ports);
  char **env = host_environment();
  pid_t self = getpid();
  for (unsigned h = 0; h < hosts && err == 0 && env; h++) {
    char text[32];
    snprintf(text, sizeof text, "127.0.0.1:%u", ports[h * PORTS_EACH]);
    err = bench_address_parse(text, &c->s3[h]);
    snprintf(text, sizeof text, "127.0.0.1:%u", ports[h * PORTS_EACH + 2]);
    if (err == 0) err = bench_address_parse(text, &c->admin[h]);
    if (err < 0) break;
    pid_t pid = fork();
    if (pid == 0) host_exec(c, h, self, env);
    if (pid < 0) err = -errno;
    c->pids[h] = MAX(pid, 0);
  }
  if (!env) err = -ENOMEM;
  free(env);
  if (err < 0)
    fprintf(stderr, "kofn bench: no cluster can be started: %s\n", err_words(err));
  else
    err = wait_ready(c);
  return err;
}

static void wait_ended(struct bench_cluster *c, unsigned h) {
  for (unsigned ms = 0; ms < STOP_MS_MAX; ms += LOOK_MS) {
    if (host_ended(c, h)) return;
    bench_pause_ms(LOOK_MS);
  }
  kill(c->pids[h], SIGKILL);
  waitpid(c->pids[h], NULL, 0);
  c->pids[h] = 0;
}

void bench_cluster_stop_host(struct bench_cluster *c, unsigned h) {
  if (host_ended(c, h)) return;
  kill(c->pids[h], SIGTERM);
  wait_ended(c, h);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at) {
  if (remove(path) < 0) fprintf(stderr, "kofn bench: %s stays: %s\n", path, err_words(-errno));
  return 0;
}

void bench_cluster_stop(struct bench_cluster *c) {
  for (unsigned h = 0; h < c->hosts; h++)
    if (!host_ended(c, h)) kill(c->pids[h], SIGTERM);
  for (unsigned h = 0; h < c->hosts; h++)
    if (c->pids[h]) wait_ended(c, h);
  if (c->dir[0]) nftw(c->dir, remove_one, FILES_OPEN_MAX, FTW_DEPTH | FTW_PHYS);
  *c = (struct bench_cluster){.hosts = 0};
}

bool bench_process_times(pid_t pid, double *ret_user, double *ret_system) {
  char path[64], text[1024];
  unsigned long long user, system;
  snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
  FILE *f = fopen(path, "re");
  if (!f) return false;
  size_t n = fread(text, 1, sizeof text - 1, f);
  fclose(f);
  text[n] = 0;
  const char *at = strrchr(text, ')'); /* the name before it may hold anything */
  if (!at ||
      sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &system) != 2)
    return false;
  double tick = (double)sysconf(_SC_CLK_TCK);
  *ret_user = (double)user / tick;
  *ret_system = (double)system / tick;
  return true;
}
