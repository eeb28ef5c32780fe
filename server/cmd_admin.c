/* cmd_admin.c: `kofn status`, `kofn ready`, `kofn heal list`, `kofn where`: ask a host's admin port
 * and say the answer in words. */
#include <errno.h>
#include <jansson.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "config/err.h"
#include "server/cmd.h"

#define ADMIN_DEFAULT "127.0.0.1:9002"
#define ADMIN_REPLY_BYTES_MAX (64u << 20)
#define ADMIN_TIMEOUT_S 30
#define ADMIN_PATH_BYTES_MAX 8192

/* An address that cannot be one is the command line's fault, not the network's. */
static bool admin_address_ok(const char *command, const char *address) {
  char host[256];
  uint16_t port;
  if (settings_parse_address(address, host, &port) == 0 && port != 0) return true;
  cmd_misused(command, "`%s` is not an admin address such as " ADMIN_DEFAULT, address);
  return false;
}

static int admin_connect(const char *address) {
  char host[256], service[8];
  uint16_t port;
  if (settings_parse_address(address, host, &port) < 0) return ERR_INVALID;
  snprintf(service, sizeof service, "%u", port);
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
  if (getaddrinfo(host[0] ? host : "127.0.0.1", service, &hints, &list) != 0) return -EHOSTUNREACH;
  int fd = -1, err = -EHOSTUNREACH;
  for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
    fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    if (fd < 0) continue;
    struct timeval limit = {.tv_sec = ADMIN_TIMEOUT_S};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (connect(fd, a->ai_addr, a->ai_addrlen) == 0) break;
    err = -errno;
    close(fd);
    fd = -1;
  }
  freeaddrinfo(list);
  return fd < 0 ? err : fd;
}

/* Reads to the end of the connection into a malloc'ed, NUL-terminated buffer. */
static int admin_read_all(int fd, char **ret_text) {
  size_t len = 0, cap = 65536;
  char *text = malloc(cap);
  while (text) {
    ssize_t n = read(fd, text + len, cap - len - 1);
    if (n == 0) break;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 || (len += (size_t)n) > ADMIN_REPLY_BYTES_MAX) {
      int err = n < 0 ? -errno : ERR_TOO_LARGE;
      free(text);
      return err;
    }
    if (len + 1 < cap) continue;
    char *more = realloc(text, cap *= 2);
    if (!more) free(text);
    text = more;
  }
  if (!text) return -ENOMEM;
  text[len] = 0;
  *ret_text = text;
  return 0;
}

/* GET `path`: the status, and the whole answer, which is the caller's, with where its body begins.
 * Prints what went wrong. */
static int admin_ask(const char *address, const char *path, char **ret_text, char **ret_body) {
  char head[ADMIN_PATH_BYTES_MAX + 256];
  int fd = admin_connect(address);
  if (fd < 0) {
    fprintf(stderr, "kofn: cannot reach the admin port at %s: %s\n", address, err_words(fd));
    return fd;
  }
  int len = snprintf(head, sizeof head, "GET %s HTTP/1.0\r\nHost: kofn\r\n\r\n", path);
  char *text = NULL;
  int err = write(fd, head, (size_t)len) == len ? admin_read_all(fd, &text) : -EPIPE;
  close(fd);
  if (err < 0) {
    fprintf(stderr, "kofn: no answer from %s: %s\n", address, err_words(err));
    return err;
  }
  int status = 0;
  char *body = strstr(text, "\r\n\r\n");
  if (sscanf(text, "HTTP/1.%*d %d", &status) != 1 || !body) {
    fprintf(stderr, "kofn: %s does not answer as an admin port does\n", address);
    free(text);
    return ERR_INVALID;
  }
  *ret_text = text;
  *ret_body = body + 4;
  return status;
}

/* GET `path`; the JSON document is the caller's. Prints what went wrong. */
static json_t *admin_get(const char *address, const char *path) {
  char *text, *body;
  int status = admin_ask(address, path, &text, &body);
  if (status < 0) return NULL;
  json_t *doc = json_loads(body, 0, NULL);
  if (!doc || status != 200) {
    const char *words = json_string_value(json_object_get(doc, "error"));
    fprintf(stderr, "kofn: %s answers %d: %s\n", address, status, words ? words : "not understood");
    json_decref(doc);
    doc = NULL;
  }
  free(text);
  return doc;
}

static void print_json(json_t *doc) {
  json_dumpf(doc, stdout, JSON_INDENT(2) | JSON_SORT_KEYS);
  putchar('\n');
}

static const char *text_of(const json_t *o, const char *name) {
  const char *s = json_string_value(json_object_get(o, name));
  return s ? s : "";
}

static long long number_of(const json_t *o, const char *name) {
  return (long long)json_integer_value(json_object_get(o, name));
}

static void status_pool(const json_t *p) {
  long long reads = number_of(p, "more_losses_reads"), writes = number_of(p, "more_losses_writes");
  printf("pool %-12s %lld+%lld %s: ", text_of(p, "name"), number_of(p, "k"), number_of(p, "m"),
         text_of(p, "technique"));
  if (reads < 0)
    printf("cannot read everything now (%lld drives too few), ", -reads);
  else
    printf("reads survive %lld more drives, ", reads);
  if (writes < 0)
    printf("cannot write everywhere now (%lld drives too few)\n", -writes);
  else
    printf("writes survive %lld more\n", writes);
  printf("                  the whole layout: %s\n", text_of(p, "whole_layout"));
}

static void status_print(const json_t *doc) {
  size_t i, j;
  json_t *host, *drive, *pool;
  printf("cluster %s, asked of host %s (kofn %s, epoch %lld)\n", text_of(doc, "cluster"),
         text_of(doc, "host"), text_of(doc, "version"), number_of(doc, "epoch"));
  json_array_foreach(json_object_get(doc, "hosts"), i, host) {
    bool connected = json_is_true(json_object_get(host, "connected"));
    printf("host %-12s %s%s%s\n", text_of(host, "id"), connected ? "in sight" : "NOT in sight",
           text_of(host, "trouble")[0] ? ": " : "", text_of(host, "trouble"));
    json_array_foreach(json_object_get(host, "drives"), j, drive) {
      bool up = json_is_true(json_object_get(drive, "up"));
      printf("  drive %-30s %s%s%s", text_of(drive, "name"), up ? "up" : "DOWN",
             text_of(drive, "trouble")[0] ? ": " : "", text_of(drive, "trouble"));
      if (json_object_get(drive, "rows"))
        printf(", %lld rows, %lld to be healed, %lld undecided", number_of(drive, "rows"),
               number_of(drive, "heal_entries"), number_of(drive, "undecided"));
      putchar('\n');
    }
  }
  if (json_is_true(json_object_get(doc, "drives_share_disk")))
    printf(
        "drives of this host share a file system: the loss of that disk is the loss of all of "
        "them%s\n",
        json_array_size(json_object_get(doc, "hosts")) == 1 ? "; this host survives no disk loss"
                                                            : "");
  json_array_foreach(json_object_get(doc, "pools"), i, pool) status_pool(pool);
}

/* Takes --json out of argv; the rest is counted. */
static bool take_json(int *argc, char **argv) {
  bool found = false;
  int kept = 0;
  for (int i = 0; i < *argc; i++) {
    if (strcmp(argv[i], "--json") == 0)
      found = true;
    else
      argv[kept++] = argv[i];
  }
  *argc = kept;
  return found;
}

int cmd_status(int argc, char **argv) {
  bool json = take_json(&argc, argv);
  if (argc > 2 || (argc == 2 && argv[1][0] == '-'))
    return cmd_misused("status", "wants one admin address at most");
  const char *address = argc == 2 ? argv[1] : ADMIN_DEFAULT;
  if (!admin_address_ok("status", address)) return CMD_REFUSED;
  json_t *doc = admin_get(address, "/admin/v1/status");
  if (!doc) return CMD_FAILED;
  if (json)
    print_json(doc);
  else
    status_print(doc);
  json_decref(doc);
  return CMD_OK;
}

int cmd_ready(int argc, char **argv) {
  char path[64], *text, *body;
  if (argc < 2 || argc > 3 || (strcmp(argv[1], "read") != 0 && strcmp(argv[1], "write") != 0))
    return cmd_misused("ready", "wants read or write, and one admin address at most");
  snprintf(path, sizeof path, "/health/ready?for=%s", argv[1]);
  const char *address = argc == 3 ? argv[2] : ADMIN_DEFAULT;
  if (!admin_address_ok("ready", address)) return CMD_REFUSED;
  int status = admin_ask(address, path, &text, &body);
  if (status < 0) return CMD_FAILED;
  json_t *doc = json_loads(body, 0, NULL);
  printf("%s\n", text_of(doc, status == 200 ? "status" : "error"));
  json_decref(doc);
  free(text);
  return status == 200 ? CMD_OK : CMD_FAILED;
}

static void heal_print(const json_t *doc) {
  size_t i, j;
  json_t *entry, *slot, *drive;
  const json_t *entries = json_object_get(doc, "entries");
  json_array_foreach(entries, i, entry) {
    printf("%s/%s", text_of(entry, "bucket"), text_of(entry, "key"));
    json_array_foreach(json_object_get(entry, "slots"), j, slot) printf(
        "%s slot %lld on %s", j ? "," : ":", number_of(slot, "slot"), text_of(slot, "drive"));
    printf("  (%s, partition %lld of pool %s)\n", text_of(entry, "kind"),
           number_of(entry, "partition"), text_of(entry, "pool"));
  }
  printf("%zu to be healed%s\n", json_array_size(entries),
         json_is_true(json_object_get(doc, "truncated")) ? " (the list is cut)" : "");
  json_array_foreach(json_object_get(doc, "drives_not_heard"), i, drive)
      printf("not heard: %s\n", json_string_value(drive));
}

int cmd_heal(int argc, char **argv) {
  bool json = take_json(&argc, argv);
  if (argc < 2 || argc > 3 || strcmp(argv[1], "list") != 0)
    return cmd_misused("heal", "wants `list`");
  const char *address = argc == 3 ? argv[2] : ADMIN_DEFAULT;
  if (!admin_address_ok("heal", address)) return CMD_REFUSED;
  json_t *doc = admin_get(address, "/admin/v1/heal");
  if (!doc) return CMD_FAILED;
  if (json)
    print_json(doc);
  else
    heal_print(doc);
  json_decref(doc);
  return CMD_OK;
}

static bool path_append(char *path, size_t cap, const char *text) {
  static const char digit[] = "0123456789ABCDEF";
  size_t at = strlen(path);
  for (const uint8_t *c = (const uint8_t *)text; *c; c++) {
    if (at + 4 > cap) return false;
    path[at++] = '%';
    path[at++] = digit[*c >> 4];
    path[at++] = digit[*c & 15];
  }
  path[at] = 0;
  return true;
}

static void where_print(const json_t *doc) {
  size_t i, j;
  json_t *slot, *row;
  printf("pool %s, partition %lld\n", text_of(doc, "pool"), number_of(doc, "partition"));
  json_array_foreach(json_object_get(doc, "slots"), i, slot) {
    const json_t *rows = json_object_get(slot, "rows");
    printf("  slot %lld on %-24s", number_of(slot, "slot"), text_of(slot, "drive"));
    if (text_of(slot, "error")[0])
      printf(" %s", text_of(slot, "error"));
    else if (json_array_size(rows) == 0)
      printf(" no row");
    json_array_foreach(rows, j, row)
        printf("%s %s %s of %lld bytes%s, chunk %s (%lld bytes)", j ? ";" : "",
               text_of(row, "version"), text_of(row, "kind"), number_of(row, "size"),
               json_is_true(json_object_get(row, "chosen")) ? "" : ", not yet chosen",
               text_of(row, "chunk"), number_of(row, "chunk_bytes"));
    putchar('\n');
  }
}

int cmd_where(int argc, char **argv) {
  bool json = take_json(&argc, argv);
  char path[ADMIN_PATH_BYTES_MAX] = "/admin/v1/where?bucket=";
  if (argc < 3 || argc > 4) return cmd_misused("where", "wants a bucket and a key");
  bool fits = path_append(path, sizeof path - 8, argv[1]);
  if (fits) memcpy(path + strlen(path), "&key=", sizeof "&key=");
  if (!fits || !path_append(path, sizeof path, argv[2]))
    return cmd_misused("where", "the key is too long");
  const char *address = argc == 4 ? argv[3] : ADMIN_DEFAULT;
  if (!admin_address_ok("where", address)) return CMD_REFUSED;
  json_t *doc = admin_get(address, path);
  if (!doc) return CMD_FAILED;
  if (json)
    print_json(doc);
  else
    where_print(doc);
  json_decref(doc);
  return CMD_OK;
}
