/* admin.c: routes of the admin port, health, and the kernel switch. */
#include "server/admin.h"

#include <stdio.h>
#include <stdlib.h>

#include "server/admin_op.h"

void admin_answer_json(struct http_request *req, int status, json_t *doc) {
  char *text = doc ? json_dumps(doc, JSON_INDENT(1) | JSON_SORT_KEYS) : NULL;
  json_decref(doc);
  if (!text) {
    http_respond(req, 503, (struct slice){NULL, 0});
    return;
  }
  http_header_add(req, "Content-Type", "application/json");
  http_respond(req, status, slice_str(text));
  free(text);
}

void admin_answer_words(struct http_request *req, int status, const char *words) {
  admin_answer_json(req, status, json_pack("{s:s}", status < 400 ? "status" : "error", words));
}

int admin_param(const struct http_request *req, const char *name, uint8_t *out, size_t cap,
                size_t *ret_len) {
  struct slice left = req->query;
  size_t name_len = strlen(name);
  while (left.data && left.len > 0) {
    const uint8_t *amp = memchr(left.data, '&', left.len);
    struct slice one = slice_of(left.data, amp ? (size_t)(amp - left.data) : left.len);
    left = amp ? slice_of(amp + 1, left.len - one.len - 1) : (struct slice){NULL, 0};
    if (one.len <= name_len || memcmp(one.data, name, name_len) != 0 || one.data[name_len] != '=')
      continue;
    int len = http_percent_decode(slice_of(one.data + name_len + 1, one.len - name_len - 1), out,
                                  cap - 1);
    if (len < 0) return len;
    out[len] = 0;
    *ret_len = (size_t)len;
    return 0;
  }
  return ERR_NOT_FOUND;
}

/* Every loop has connections of its own: a request may come to any of them, so the worst counts. A
 * loop notices with its next call that a drive of this host is out of service; that may be long. */
bool admin_drive_up(const struct worker *w, unsigned drive) {
  struct drive_lanes *lanes = cluster_lanes(w->host->cluster, (uint16_t)drive);
  bool up = !lanes || !drive_failed(lanes_drive(lanes));
  if (!host_look_begin(w->host)) return false;
  for (unsigned i = 0; i < w->host->worker_count && up; i++)
    up = __atomic_load_n(&w->host->workers[i].objects.peers[drive]->up, __ATOMIC_RELAXED);
  host_look_end(w->host);
  return up;
}

unsigned admin_pool_up(const struct worker *w, unsigned pool) {
  const struct placement *p = w->objects.placement;
  bool up[MAP_DRIVES_MAX];
  for (unsigned d = 0; d < w->objects.map->drive_count; d++) up[d] = admin_drive_up(w, d);
  unsigned worst = p->n[pool];
  for (unsigned partition = 0; partition < PARTITION_COUNT; partition++) {
    const uint16_t *slots = placement_slots(p, pool, partition);
    unsigned count = 0;
    for (unsigned i = 0; i < p->n[pool]; i++) count += up[slots[i]];
    worst = MIN(worst, count);
  }
  return worst;
}

static void admin_live(struct worker *w, struct http_request *req) {
  admin_answer_words(req, 200, "live");
}

static void admin_ready(struct worker *w, struct http_request *req) {
  uint8_t what[16] = "read";
  size_t len = 4;
  int err = admin_param(req, "for", what, sizeof what, &len);
  bool for_write = strcmp((char *)what, "write") == 0;
  if ((err < 0 && err != ERR_NOT_FOUND) || (!for_write && strcmp((char *)what, "read") != 0)) {
    admin_answer_words(req, 400, "`for` is read or write");
    return;
  }
  const struct cluster_map *map = w->objects.map;
  for (unsigned i = 0; i < map->pool_count; i++) {
    const struct map_pool *pool = &map->pools[i];
    unsigned needed = for_write ? pool->w : MAX(pool->d, pool->r), up = admin_pool_up(w, i);
    if (up >= needed) continue;
    char words[256];
    snprintf(words, sizeof words,
             "pool %s: %u drives of its worst partition are in sight, %u are needed", pool->name,
             up, needed);
    http_header_add(req, "Retry-After", "1");
    admin_answer_words(req, 503, words);
    return;
  }
  admin_answer_words(req, 200, "ready");
}

/* The kernel's name comes in the body. */
struct kernel_op {
  struct http_request *req;
  uint8_t name[64];
};

static void kernel_read(void *arg, int err, size_t n) {
  struct kernel_op *op = arg;
  struct http_request *req = op->req;
  op->name[MIN(n, sizeof op->name - 1)] = 0;
  if (err < 0 || n >= sizeof op->name - 1 || xor_kernel_select((char *)op->name) < 0) {
    json_t *known = json_array();
    for (unsigned i = 0; xor_kernel_at(i); i++)
      json_array_append_new(known, json_string(xor_kernel_at(i)));
    admin_answer_json(
        req, 400,
        json_pack("{s:s, s:o}", "error", "no such kernel on this machine", "kernels", known));
  } else {
    log_info("admin", "xor kernel is now %s", xor_kernel_name());
    admin_answer_words(req, 200, xor_kernel_name());
  }
  free(op);
}

static void admin_kernel(struct worker *w, struct http_request *req) {
  struct kernel_op *op = req->has_body ? calloc(1, sizeof *op) : NULL;
  if (!op) {
    admin_answer_words(req, 400, "the body is the kernel's name");
    return;
  }
  op->req = req;
  req->body.ops->read(&req->body, op->name, sizeof op->name - 1, kernel_read, op);
}

static const struct {
  enum http_method method;
  const char *path;
  void (*run)(struct worker *w, struct http_request *req);
} admin_routes[] = {
    {HTTP_M_GET, "/health/live", admin_live},
    {HTTP_M_GET, "/health/ready", admin_ready},
    {HTTP_M_GET, "/metrics", admin_metrics},
    {HTTP_M_GET, "/admin/v1/status", admin_status},
    {HTTP_M_GET, "/admin/v1/heal", admin_heal},
    {HTTP_M_GET, "/admin/v1/where", admin_where},
    {HTTP_M_PUT, "/admin/v1/xor-kernel", admin_kernel},
};

static void admin_handle(void *arg, struct http_request *req) {
  struct worker *w = arg;
  bool path_known = false;
  for (size_t i = 0; i < ARRAY_LEN(admin_routes); i++) {
    if (!slice_eq(req->path, slice_str(admin_routes[i].path))) continue;
    path_known = true;
    bool head = req->method == HTTP_M_HEAD && admin_routes[i].method == HTTP_M_GET;
    if (req->method != admin_routes[i].method && !head) continue;
    admin_routes[i].run(w, req);
    return;
  }
  admin_answer_words(req, path_known ? 405 : 404,
                     path_known ? "the method is not allowed here" : "no such page");
}

static void admin_describe(void *arg, int status, const char *code, const char *message,
                           const char *request_id, struct byte_writer *body) {
  put_bytes(body, slice_str(message));
  put_bytes(body, SLICE_LIT("\n"));
}

struct http_handler admin_handler(struct worker *worker) {
  return (struct http_handler){admin_handle, admin_describe, worker};
}
