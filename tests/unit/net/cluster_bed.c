/* cluster_bed.c: see cluster_bed.h. */
#include "tests/unit/net/cluster_bed.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/err.h"
#include "tests/unit/net/net_bed.h"

void cluster_bed_sh(const struct cluster_bed *b, const char *fmt, ...) {
  char command[1024], line[1200];
  va_list args;
  va_start(args, fmt);
  vsnprintf(command, sizeof command, fmt, args);
  va_end(args);
  snprintf(line, sizeof line, "cd %s && { %s; }", b->root, command);
  if (system(line) != 0) bed_fail(__FILE__, __LINE__, line);
}

void cluster_bed_open(struct cluster_bed *b, unsigned hosts, unsigned drives, unsigned k,
                      unsigned m) {
  *b = (struct cluster_bed){.hosts = hosts,
                            .drives = drives,
                            .k = k,
                            .m = m,
                            .name = "demo",
                            .first_host = "n0",
                            .state = "state"};
  snprintf(b->root, sizeof b->root, "/tmp/kofn-cluster-test-XXXXXX");
  CHECK(mkdtemp(b->root));
  for (unsigned i = 0; i < hosts; i++) {
    bed_free_address(b->address[i]);
    for (unsigned j = 0; j < drives; j++) cluster_bed_sh(b, "mkdir -p n%u/d%u", i, j);
  }
  cluster_bed_sh(b, "echo 0123456789abcdef0123456789abcdef > secret");
}

void cluster_bed_close(struct cluster_bed *b) {
  cluster_bed_sh(b, "rm -rf %s", b->root);
}

static void host_name(const struct cluster_bed *b, unsigned host, char out[64]) {
  if (host == 0)
    snprintf(out, 64, "%s", b->first_host);
  else
    snprintf(out, 64, "n%u", host);
}

static void write_yaml(const struct cluster_bed *b, unsigned host, const char *path) {
  FILE *f = fopen(path, "w");
  CHECK(f);
  fprintf(f, "cluster: {name: %s, secret_file: %s/secret, allow_unsafe_layout: true}\nhosts:\n",
          b->name, b->root);
  for (unsigned i = 0; i < b->hosts; i++) {
    char id[64];
    host_name(b, i, id);
    fprintf(f, "  - {id: %s, address: \"%s\", drives: [", id, b->address[i]);
    for (unsigned j = 0; j < b->drives; j++)
      fprintf(f, "%s{name: d%u, path: %s/n%u/d%u}", j ? ", " : "", j, b->root, i, j);
    fprintf(f, "]}\n");
  }
  fprintf(f, "pools:\n  - {name: default, k: %u, m: %u}\n", b->k, b->m);
  fprintf(f,
          "users:\n  - {name: root, access_key: AKIAKOFNTESTKOFN, secret_key: "
          "kofntestkofntestkofntestkofntest}\n");
  char self[64];
  host_name(b, host, self);
  fprintf(f, "server: {host: %s, state_dir: %s/%s-%u, peer_listen: \"%s\"}\n", self, b->root,
          b->state, host, b->address[host]);
  fprintf(f, "drive: {reserve_bytes: 1MiB, index_map_bytes: 64MiB}\n");
  CHECK(fclose(f) == 0);
}

void node_load(const struct cluster_bed *b, unsigned host, struct node *ret_node) {
  char path[128];
  struct settings_error e = {""};
  *ret_node = (struct node){0};
  snprintf(path, sizeof path, "%s/n%u-%d.yaml", b->root, host, (int)getpid());
  write_yaml(b, host, path);
  if (settings_load(path, &ret_node->settings, &e) < 0) bed_fail(__FILE__, __LINE__, e.text);
  if (cluster_map_build(ret_node->settings, &ret_node->map, &e) < 0)
    bed_fail(__FILE__, __LINE__, e.text);
  unlink(path);
}

int node_open(const struct cluster_bed *b, unsigned host, struct node *ret_node,
              struct drive_error *e) {
  node_load(b, host, ret_node);
  int err = cluster_open(ret_node->settings, ret_node->map, &ret_node->cluster, e);
  CHECK((err < 0) == (ret_node->cluster == NULL));
  CHECK((err < 0) == (e->text[0] != 0)); /* a refusal has words */
  return err;
}

int node_start(const struct cluster_bed *b, unsigned host, struct node *ret_node,
               struct drive_error *e) {
  static const int stop = 0;
  int err = node_open(b, host, ret_node, e);
  if (err < 0 || cluster_ready(ret_node->cluster)) return err;
  err = cluster_first_start(ret_node->cluster, &stop, e);
  CHECK((err < 0) == (e->text[0] != 0));
  return err;
}

void node_close(struct node *n) {
  cluster_close(n->cluster);
  cluster_map_free(n->map);
  settings_free(n->settings);
  *n = (struct node){0};
}

void node_state_edit(const struct cluster_bed *b, unsigned host,
                     void (*edit)(struct state *s, const void *arg), const void *arg) {
  char path[128];
  struct state_dir *dir;
  struct drive_error e = {""};
  snprintf(path, sizeof path, "%s/%s-%u", b->root, b->state, host);
  if (state_dir_open(path, &dir, &e) < 0) bed_fail(__FILE__, __LINE__, e.text);
  edit(state_lock(dir), arg);
  state_unlock(dir);
  CHECK(state_save(dir) == 0);
  state_dir_close(dir);
}
