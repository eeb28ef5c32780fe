/* cluster_main_test.c: the first start of three hosts, each a process, with kills in the middle.
 *
 * A child starts its host; once its drives are open it serves hellos until all others are connected
 * and formatted, writes ready-<host> (the cluster id) and goes on until SIGTERM. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "config/err.h"
#include "storage/net/peer_local.h"
#include "tests/unit/net/cluster_bed.h"
#include "tests/unit/net/net_bed.h"

#define HOSTS 3
#define DRIVES 2
#define WAIT_MS_MAX 60000

static int child_stop;

static void on_term(int signal) {
  __atomic_store_n(&child_stop, 1, __ATOMIC_SEQ_CST);
}

/* ---- a child ---- */

struct service {
  const struct cluster_bed *bed;
  unsigned host;
  struct node node;
  uv_loop_t loop;
  struct env_uv *env;
  struct peer *local[MAP_DRIVES_MAX];
  struct peer_host *peers[HOSTS];
  struct chunk_server *server;
  uv_timer_t tick;
  bool ready, closing;
  unsigned open;
};

static void part_closed(void *arg) {
  struct service *s = arg;
  if (--s->open > 0) return;
  for (unsigned i = 0; i < MAP_DRIVES_MAX; i++) peer_local_free(s->local[i]);
  env_uv_close(s->env);
}

static void timer_closed(uv_handle_t *handle) {
  part_closed(handle->data);
}

static void service_tick(uv_timer_t *timer) {
  struct service *s = timer->data;
  if (__atomic_load_n(&child_stop, __ATOMIC_SEQ_CST)) {
    uv_close((uv_handle_t *)&s->tick, timer_closed);
    for (unsigned i = 0; i < HOSTS; i++)
      if (s->peers[i]) peer_host_close(s->peers[i], part_closed, s);
    chunk_server_stop(s->server, part_closed, s);
    return;
  }
  if (s->ready) return;
  for (unsigned i = 0; i < HOSTS; i++) {
    if (!s->peers[i]) continue;
    if (!peer_host_connected(s->peers[i])) return;
    if (peer_host_hello(s->peers[i])->boot != BOOT_FORMATTED) return;
    for (unsigned d = 0; d < DRIVES; d++)
      if (!peer_host_drive(s->peers[i], (uint16_t)(i * DRIVES + d))->up) return;
  }
  s->ready = true;
  char hex[ID128_HEX_LEN + 1];
  id128_hex(cluster_id(s->node.cluster), hex);
  cluster_bed_sh(s->bed, "echo %s > ready.new-%u && mv ready.new-%u ready-%u", hex, s->host,
                 s->host, s->host);
}

static void serve(struct service *s) {
  struct hello_policy *policy = cluster_policy(s->node.cluster);
  CHECK(uv_loop_init(&s->loop) == 0);
  CHECK(env_uv_open(&s->loop, NULL, 1 << 20, &s->env) == 0);
  for (uint16_t d = 0; d < DRIVES; d++) {
    uint16_t drive = (uint16_t)(s->host * DRIVES + d);
    CHECK(peer_local_new(s->env, drive, cluster_lanes(s->node.cluster, drive), &s->local[drive]) ==
          0);
  }
  CHECK(chunk_server_start(s->env, s->node.map, s->local, policy, s->bed->address[s->host],
                           &s->server) == 0);
  s->open = 2;
  for (unsigned i = 0; i < HOSTS; i++) {
    if (i == s->host) continue;
    CHECK(peer_host_new(s->env, s->node.map, i, policy, &s->peers[i]) == 0);
    s->open++;
  }
  uv_timer_init(&s->loop, &s->tick);
  s->tick.data = s;
  uv_timer_start(&s->tick, service_tick, 10, 10);
  uv_run(&s->loop, UV_RUN_DEFAULT);
  CHECK(uv_loop_close(&s->loop) == 0);
}

static int child_run(const struct cluster_bed *b, unsigned host) {
  static struct service s;
  struct drive_error e = {""};
  s.bed = b;
  s.host = host;
  int err = node_open(b, host, &s.node, &e);
  if (err == 0 && !cluster_ready(s.node.cluster))
    err = cluster_first_start(s.node.cluster, &child_stop, &e);
  if (err < 0) {
    char path[128];
    snprintf(path, sizeof path, "%s/refused-%u", b->root, host);
    FILE *f = fopen(path, "w");
    CHECK(f && fprintf(f, "%s\n", e.text) > 0 && fclose(f) == 0);
  } else {
    serve(&s);
  }
  node_close(&s.node);
  return err == ERR_SHUTDOWN ? 0 : err < 0 ? 2 : 0;
}

/* ---- the parent ---- */

static pid_t children[HOSTS];

static void start(const struct cluster_bed *b, unsigned host) {
  CHECK(children[host] == 0);
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    struct sigaction sa = {.sa_handler = on_term};
    sigaction(SIGTERM, &sa, NULL);
    signal(SIGPIPE, SIG_IGN); /* as the server does */
    exit(child_run(b, host));
  }
  children[host] = pid;
}

static void kill_hard(unsigned host) {
  int status;
  CHECK(kill(children[host], SIGKILL) == 0);
  CHECK(waitpid(children[host], &status, 0) == children[host]);
  children[host] = 0;
}

static void stop_all(void) {
  for (unsigned i = 0; i < HOSTS; i++) {
    int status;
    if (children[i] == 0) continue;
    CHECK(kill(children[i], SIGTERM) == 0);
    CHECK(waitpid(children[i], &status, 0) == children[i]);
    children[i] = 0;
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}

static bool file_has(const struct cluster_bed *b, const char *name, unsigned host, char out[2048]) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s-%u", b->root, name, host);
  FILE *f = fopen(path, "r");
  if (!f) return false;
  bool got = fgets(out, 2048, f) != NULL;
  fclose(f);
  return got;
}

static void nobody_gave_up(void) {
  for (unsigned i = 0; i < HOSTS; i++) {
    int status = 0;
    if (children[i] == 0 || waitpid(children[i], &status, WNOHANG) == 0) continue;
    fprintf(stderr, "host %u ended: exit %d, signal %d\n", i,
            WIFEXITED(status) ? WEXITSTATUS(status) : 0,
            WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    bed_fail(__FILE__, __LINE__, "a host gave up");
  }
}

/* All hosts serve, with one and the same cluster id, which is written to hex. */
static void wait_all_ready(const struct cluster_bed *b, char hex[2048]) {
  char line[2048];
  for (unsigned i = 0; i < HOSTS; i++) {
    for (unsigned ms = 0; !file_has(b, "ready", i, i == 0 ? hex : line); ms += 10) {
      CHECK(ms < WAIT_MS_MAX);
      nobody_gave_up();
      usleep(10000);
    }
    if (i > 0) CHECK(strcmp(line, hex) == 0);
  }
}

static void forget_ready(const struct cluster_bed *b) {
  cluster_bed_sh(b, "rm -f ready-* refused-*");
}

/* The host gives up by itself; its sentence has `text`. */
static void wait_refused(const struct cluster_bed *b, unsigned host, const char *text) {
  int status;
  char line[2048];
  for (unsigned ms = 0; waitpid(children[host], &status, WNOHANG) == 0; ms += 10) {
    CHECK(ms < WAIT_MS_MAX);
    usleep(10000);
  }
  children[host] = 0;
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 2);
  CHECK(file_has(b, "refused", host, line));
  if (!strstr(line, text)) bed_fail(__FILE__, __LINE__, line);
}

static void test_first_start_and_again(struct cluster_bed *b) {
  char id[2048], again[2048];
  for (unsigned i = 0; i < HOSTS; i++) start(b, i);
  wait_all_ready(b, id);
  stop_all();
  forget_ready(b);
  for (unsigned i = HOSTS; i-- > 0;) start(b, i);
  wait_all_ready(b, again);
  CHECK(strcmp(id, again) == 0);
  stop_all();
  forget_ready(b);
  printf("ok three hosts form one cluster, and find it again\n");
}

/* An empty host among initialised ones: it gives up with the sentence; the others go on. */
static void test_empty_host_is_refused(struct cluster_bed *b) {
  char id[2048];
  cluster_bed_sh(b, "cp -a n2 kept && cp -a state-2 kept-state && rm -rf n2/*/* state-2");
  for (unsigned i = 0; i < HOSTS; i++) start(b, i);
  wait_refused(b, 2, INITIALISED_WORDS);
  CHECK(children[0] && waitpid(children[0], &(int){0}, WNOHANG) == 0);
  cluster_bed_sh(b, "test ! -e n2/d0/drive.id");
  cluster_bed_sh(b, "rm -rf n2 state-2 && mv kept n2 && mv kept-state state-2");
  start(b, 2);
  wait_all_ready(b, id);
  stop_all();
  forget_ready(b);
  /* The coordinator itself: it may not make a second cluster. */
  cluster_bed_sh(b, "cp -a n0 kept && cp -a state-0 kept-state && rm -rf n0/*/* state-0");
  for (unsigned i = 0; i < HOSTS; i++) start(b, i);
  wait_refused(b, 0, INITIALISED_WORDS);
  stop_all();
  cluster_bed_sh(b, "test ! -e n0/d0/drive.id");
  cluster_bed_sh(b, "rm -rf n0 state-0 && mv kept n0 && mv kept-state state-0");
  forget_ready(b);
  printf("ok an empty host is refused by those that were initialised\n");
}

static void edit_init(struct state *s, const void *arg) {
  s->init_id = s->cluster_id;
  s->cluster_id = (struct id128){{0}};
  while (s->drive_count > 0) free(s->drives[--s->drive_count].name);
}
static void edit_initialising(struct state *s, const void *arg) {
  s->initialising = true;
  while (s->drive_count > 0) free(s->drives[--s->drive_count].name);
}

/* The coordinator stopped after one of two hosts was formatted: n1 is, n2 has not heard of it. */
static void test_resume(struct cluster_bed *b) {
  char id[2048], again[2048];
  for (unsigned i = 0; i < HOSTS; i++) start(b, i);
  wait_all_ready(b, id);
  stop_all();
  forget_ready(b);
  cluster_bed_sh(b, "rm -rf n0/*/* n2/*/* state-2");
  node_state_edit(b, 0, edit_init, NULL);
  node_state_edit(b, 1, edit_initialising, NULL);
  for (unsigned i = 0; i < HOSTS; i++) start(b, i);
  wait_all_ready(b, again);
  CHECK(strcmp(id, again) == 0);
  stop_all();
  forget_ready(b);
  printf("ok an interrupted first start goes on with its id\n");
}

/* A coordinator that has lost its record may not begin again while another host is formatted. */
static void test_lost_record(struct cluster_bed *b) {
  cluster_bed_sh(b, "rm -rf n0/*/* state-0");
  node_state_edit(b, 1, edit_initialising, NULL);
  start(b, 0);
  start(b, 1);
  wait_refused(b, 0, "does not remember");
  stop_all();
  cluster_bed_sh(b, "test ! -e n0/d0/drive.id");
  printf("ok a coordinator without its record does not begin again\n");
}

/* SIGKILL to one host after another at random moments of the first start. */
static void test_kills(void) {
  enum { ROUNDS = 6, KILLS = 4 };
  srand(11);
  for (unsigned round = 0; round < ROUNDS; round++) {
    struct cluster_bed b;
    char id[2048];
    cluster_bed_open(&b, HOSTS, DRIVES, 4, 2);
    for (unsigned i = 0; i < HOSTS; i++) start(&b, i);
    for (unsigned k = 0; k < KILLS; k++) {
      usleep((useconds_t)(rand() % 150) * 1000);
      unsigned victim = (unsigned)rand() % HOSTS;
      kill_hard(victim);
      start(&b, victim);
    }
    wait_all_ready(&b, id);
    /* ready-<host> may be from before a kill: all must be there at the end, too. */
    stop_all();
    forget_ready(&b);
    for (unsigned i = 0; i < HOSTS; i++) start(&b, i);
    wait_all_ready(&b, id);
    stop_all();
    cluster_bed_close(&b);
  }
  printf("ok %d first starts with %d kills each ended in one cluster\n", ROUNDS, KILLS);
}

/* Nobody else comes: it waits, and ends when told. */
static void test_stop_while_waiting(void) {
  struct cluster_bed b;
  cluster_bed_open(&b, HOSTS, DRIVES, 4, 2);
  start(&b, 1);
  usleep(300000);
  stop_all();
  cluster_bed_sh(&b, "test ! -e n1/d0/drive.id && test ! -e state-1/state.json");
  cluster_bed_close(&b);
  printf("ok a host that waits for the others can be stopped\n");
}

int main(void) {
  struct cluster_bed b;
  setvbuf(stdout, NULL, _IONBF, 0);
  cluster_bed_open(&b, HOSTS, DRIVES, 4, 2);
  test_first_start_and_again(&b);
  test_empty_host_is_refused(&b);
  test_resume(&b);
  test_lost_record(&b);
  cluster_bed_close(&b);
  test_stop_while_waiting();
  test_kills();
  return 0;
}
