/* settings.h: what one host was told: the YAML file, overridden by KOFN_SECTION_FIELD in the
 * environment.
 *
 * One schema table (settings.c) names every field once: section, type, limits, default, words. The
 * parser, `kofn config print`, the error texts and the tests are generated from that table. Values
 * are parsed whole or refused: "64KiBx", "-5", "" and duplicate or unknown fields are errors with
 * file, line, field and range. Source: libyaml's document API (yaml_parser_load),
 * whose nodes keep their lines. */
#ifndef KOFN_CONFIG_SETTINGS_H
#define KOFN_CONFIG_SETTINGS_H

#include "config/base.h"
#include "config/log.h"

#define SETTINGS_HOSTS_MAX 64
#define SETTINGS_DRIVES_MAX 256 /* of all hosts together */
#define SETTINGS_POOLS_MAX 15   /* the system pool is the 16th */
#define SETTINGS_USERS_MAX 64
#define SETTINGS_NAME_BYTES_MAX 63
#define SETTINGS_PATH_BYTES_MAX 1023
#define SETTINGS_FILE_BYTES_MAX (1u << 20)
#define SETTINGS_SECRET_BYTES_MAX 256

struct settings_drive {
  char *name; /* unique within the host; the path unless given */
  char *path;
};

struct settings_host {
  char *id;
  char *address; /* host:port that peers connect to */
  char *zone;    /* the id unless given */
  struct settings_drive *drives;
  unsigned drive_count;
  int line;
};

struct settings_pool {
  char *name;
  char *technique; /* "reed_sol_van", "cauchy", "xor", "xor3p", "none" (m = 0) */
  unsigned k, m;
  uint32_t stripe_unit_bytes; /* 4 KiB .. 1 MiB, a multiple of 64 */
  unsigned write_quorum;      /* 0: PROTOCOL.md 1 */
  char **drives;              /* "host/drive name"; NULL: all drives of the map */
  unsigned drive_count;
  int line;
};

struct settings_user {
  char *name;
  char *access_key;
  char *secret_key;
};

struct settings {
  char *file; /* NULL: no file (kofn server DIR...) */
  struct {
    char *name;
    uint8_t secret[SETTINGS_SECRET_BYTES_MAX];
    size_t secret_len;
    bool allow_unsafe_layout;
  } cluster;
  struct settings_host *hosts;
  unsigned host_count;
  struct settings_pool *pools;
  unsigned pool_count;
  char *default_pool;
  struct settings_user *users;
  unsigned user_count;
  struct {
    char *host; /* which of `hosts` this process is */
    char *s3_listen, *admin_listen, *peer_listen;
    char *state_dir;
    char *region;
    enum log_level log_level;
    unsigned workers;      /* event loops; 0: cores */
    unsigned cpu_threads;  /* 0: cores */
    uint64_t buffer_bytes; /* stripe buffers of all workers together */
    uint64_t shutdown_grace_ms;
    uint64_t peer_timeout_ms;
    uint64_t buffer_wait_ms;
    uint64_t header_timeout_ms, idle_timeout_ms, body_timeout_ms;
    unsigned connections_max; /* per host */
    bool anonymous;           /* no authentication at all */
    bool allow_plain_basic;   /* HTTP Basic from beyond loopback without TLS */
  } server;
  struct {
    uint64_t inline_max_bytes; /* largest chunk that stands in the index */
    uint64_t reserve_bytes;    /* UINT64_MAX: max(1 %, 1 GiB) */
    uint64_t index_map_bytes;  /* LMDB map size */
    uint64_t trash_delay_ms;
    unsigned reader_threads; /* per drive */
  } drive;
  struct {
    char *xor_kernel;    /* "auto", or a name that only codec/ knows whether this CPU has */
    int xor_kernel_line; /* where it was given; 0: in the environment, or not at all */
  } codec;
};

struct settings_error {
  char text[1024]; /* "kofn.yaml:12: pools[0].k: 40 is out of range (1 to 32)" */
};

/* Reads and checks `path`. On error (ERR_CONFIG) ret_error holds the line to print, and nothing is
 * left behind. On success *ret_settings is the caller's: settings_free. Environment overrides are
 * applied; secrets are read from their files. */
_must_check_ int settings_load(const char *path, struct settings **ret_settings,
                               struct settings_error *ret_error);

/* The settings of `kofn server DIR...`: one host "local", one pool by the number of directories (1:
 * k=1 m=0, 2: 1+1, 3: 2+1, 4: 2+2, 5: 3+2, 6 and more: 4+2), listening on loopback. No users: the
 * caller adds the generated pair with settings_add_user. Paths are made absolute; duplicates are
 * ERR_CONFIG. */
_must_check_ int settings_for_dirs(char *const *dirs, unsigned dir_count,
                                   struct settings **ret_settings,
                                   struct settings_error *ret_error);

/* Copies its arguments. */
_must_check_ int settings_add_user(struct settings *s, const char *name, const char *access_key,
                                   const char *secret_key);

/* Prints the whole configuration as YAML with defaults filled in; secrets are shown as "(set)". */
void settings_print(const struct settings *s, void *stdio_file);

/* NULL is allowed. Secrets are wiped. */
void settings_free(struct settings *s);

const struct settings_host *settings_self(const struct settings *s);

/* Parses "64KiB", "1GiB", "512", "2MB" (decimal units too): whole text or ERR_INVALID. */
_must_check_ int settings_parse_size(const char *text, uint64_t *ret_bytes);
/* Parses "30s", "500ms", "2m", "1h", "7d"; a bare number is refused. */
_must_check_ int settings_parse_time(const char *text, uint64_t *ret_ms);
/* Parses "host:port", "[::1]:port", ":port" (all addresses). host gets at most 255 bytes. */
_must_check_ int settings_parse_address(const char *text, char host[256], uint16_t *ret_port);

#endif
