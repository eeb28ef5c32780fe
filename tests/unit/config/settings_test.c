/* settings_test.c: documents, defaults, and the rules that take more than one field. */
#include "config/settings.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "config/err.h"
#include "settings_bed.h"

#define SECRET "0123456789abcdef"

TestSuite(settings, .init = settings_bed_setup, .fini = settings_bed_teardown);

Test(settings, no_yaml_and_no_document) {
  cr_assert_str_eq(refusal(""), "kofn.yaml:1: the file is empty");
  cr_assert_str_eq(refusal("# a comment\n\n"), "kofn.yaml:1: the file is empty");
  cr_assert_str_eq(refusal("- a\n"), "kofn.yaml:1: must be a mapping of sections, not a list");
  cr_assert_str_eq(refusal("word"), "kofn.yaml:1: must be a mapping of sections, not a value");
  cr_assert_not_null(strstr(refusal("hosts: [\nserver: {"), "not YAML: "));
  cr_assert_not_null(strstr(refusal("a: \"\\x00\""), "unknown field"));
  cr_assert_not_null(strstr(refusal("[a]: b"), "must be a word"));
  cr_assert_str_eq(refusal("server: {}\n---\nserver: {}\n"),
                   "kofn.yaml:2: a second YAML document begins here; one is allowed");
  cr_assert_str_eq(refusal("hosts: &h\n  - id: n1\n    drives: *h\n"),
                   "kofn.yaml:2: hosts[0].drives[0].id: unknown field (known: name, path)");
  cr_assert_str_eq(refusal("server: {}\n"), "kofn.yaml:1: hosts: is missing (a list of 1 to 64)");
  cr_assert_str_eq(refusal("server: {}\nhosts: []\n"),
                   "kofn.yaml:2: hosts: is empty (a list of 1 to 64)");
  cr_assert_str_eq(refusal("server: 5\n"), "kofn.yaml:1: server: must be a mapping, not a value");
}

/* libyaml needs minutes for such a file: it is refused before. */
Test(settings, deep_nesting_and_many_anchors_are_refused) {
  static char text[1 << 19];
  memset(text, '[', sizeof text - 1);
  memcpy(text, "a: ", 3);
  cr_assert_str_eq(refusal(text), "kofn.yaml:1: nested deeper than 16 levels");
  size_t n = 0;
  for (unsigned i = 0; n + 32 < sizeof text; i++)
    n += (size_t)snprintf(text + n, sizeof text - n, "%s&a%u x,", i ? "" : "users: [", i);
  cr_assert_str_eq(refusal(text), "kofn.yaml:1: more than 64 anchors");
}

Test(settings, files_that_cannot_be_read) {
  struct settings_error e;
  struct settings *s = NULL;
  cr_assert_eq(settings_load("/nonexistent/kofn.yaml", &s, &e), ERR_CONFIG);
  cr_assert_str_eq(e.text, "/nonexistent/kofn.yaml: No such file or directory");
  cr_assert_eq(settings_load(settings_dir, &s, &e), ERR_CONFIG);
  const char *big = write_file("big", "");
  cr_assert_eq(truncate(big, SETTINGS_FILE_BYTES_MAX + 1), 0);
  cr_assert_eq(settings_load(big, &s, &e), ERR_CONFIG);
  cr_assert_not_null(strstr(e.text, "larger than 1 MiB"));
  cr_assert_null(s);
}

#define HOST1 "  - {id: n1, address: \"n1:9001\", drives: [/data/d1, /data/d2]}\n"
#define HOST2 "  - {id: n2, address: \"n2:9001\", drives: [/data/d1, /data/d2]}\n"
#define HOST3 "  - {id: n3, address: \"n3:9001\", drives: [/data/d1, /data/d2]}\n"
#define HOSTS "hosts:\n" HOST1 HOST2 HOST3
#define POOLS "pools: [{name: default, k: 2, m: 1}]\n"
#define USERS "users: [{access_key: rootkey, secret_key: rootsecret}]\n"
#define CLUSTER "cluster: {name: demo, secret: " SECRET "}\n"
#define SERVER "server: {host: n2}\n"

Test(settings, what_is_not_given_gets_its_default) {
  struct settings *s = accept_settings(CLUSTER HOSTS POOLS USERS SERVER);
  cr_assert_str_eq(s->server.s3_listen, "0.0.0.0:9000");
  cr_assert_str_eq(s->server.admin_listen, "127.0.0.1:9002");
  cr_assert_str_eq(s->server.peer_listen, "0.0.0.0:9001");
  cr_assert_str_eq(s->server.state_dir, "/var/lib/kofn");
  cr_assert_str_eq(s->server.region, "us-east-1");
  cr_assert_eq(s->server.log_level, LOG_INFO);
  cr_assert_eq(s->server.shutdown_grace_ms, 30000u);
  cr_assert_eq(s->server.peer_timeout_ms, 5000u);
  cr_assert_eq(s->server.buffer_wait_ms, 10000u);
  cr_assert_eq(s->server.header_timeout_ms, 30000u);
  cr_assert_eq(s->server.idle_timeout_ms, 60000u);
  cr_assert_eq(s->server.body_timeout_ms, 60000u);
  cr_assert_eq(s->server.connections_max, 4096u);
  cr_assert_eq(s->server.buffer_bytes, UINT64_C(96) << 20);
  cr_assert_eq(s->drive.inline_max_bytes, 16384u);
  cr_assert_eq(s->drive.reserve_bytes, UINT64_MAX);
  cr_assert_eq(s->drive.index_map_bytes, UINT64_C(64) << 30);
  cr_assert_eq(s->drive.trash_delay_ms, 60000u);
  cr_assert_eq(s->drive.reader_threads, 2u);
  cr_assert_not(s->server.anonymous);
  cr_assert_str_eq(s->default_pool, "default");
  cr_assert_str_eq(s->pools[0].technique, "xor");
  cr_assert_eq(s->pools[0].stripe_unit_bytes, 65536u);
  cr_assert_null(s->pools[0].drives);
  cr_assert_str_eq(s->hosts[0].zone, "n1");
  cr_assert_str_eq(s->hosts[0].drives[1].name, "/data/d2");
  cr_assert_str_eq(s->users[0].name, "rootkey");
  cr_assert_eq(s->cluster.secret_len, strlen(SECRET));
  cr_assert_eq(memcmp(s->cluster.secret, SECRET, strlen(SECRET)), 0);
  cr_assert_str_eq(settings_self(s)->id, "n2");
  settings_free(s);
}

Test(settings, what_is_listed_twice_is_refused) {
  cr_assert_str_eq(refusal(CLUSTER "hosts:\n" HOST1 HOST2 HOST1 POOLS USERS SERVER),
                   "kofn.yaml:5: hosts[2].id: \"n1\" is taken by hosts[0] (line 3)");
  cr_assert_str_eq(
      refusal(CLUSTER "hosts:\n" HOST1 "  - {id: n2, address: \"n1:9001\", drives: [/d]}\n" POOLS),
      "kofn.yaml:4: hosts[1].address: \"n1:9001\" is taken by hosts[0] (line 3)");
  cr_assert_str_eq(
      refusal("hosts:\n  - id: n1\n    address: \"n1:9001\"\n    drives:\n      - /d1\n"
              "      - {name: x, path: /d1/}\n" POOLS),
      "kofn.yaml:6: hosts[0].drives[1].path: \"/d1\" is listed twice (first in line 5)");
  cr_assert_str_eq(refusal("hosts:\n  - id: n1\n    address: \"n1:9001\"\n    drives:\n      - "
                           "{name: x, path: /d1}\n"
                           "      - {name: x, path: /d2}\n" POOLS),
                   "kofn.yaml:6: hosts[0].drives[1].name: \"x\" is listed twice (first in line 5)");
  cr_assert_str_eq(
      refusal(CLUSTER HOSTS "pools:\n  - {name: a, k: 1, m: 1}\n  - {name: a, k: 2, m: 1}\n"),
      "kofn.yaml:8: pools[1].name: \"a\" is taken by pools[0] (line 7)");
  cr_assert_str_eq(refusal(CLUSTER HOSTS POOLS
                           "users:\n  - {name: a, access_key: rootkey, secret_key: rootsecret}\n"
                           "  - {name: b, access_key: rootkey, secret_key: rootsecret}\n"),
                   "kofn.yaml:9: users[1].access_key: \"rootkey\" is taken by users[0] (line 8)");
  cr_assert_str_eq(refusal(CLUSTER HOSTS POOLS
                           "users:\n  - {name: a, access_key: rootkey, secret_key: rootsecret}\n"
                           "  - {name: a, access_key: otherkey, secret_key: rootsecret}\n"),
                   "kofn.yaml:9: users[1].name: \"a\" is taken by users[0] (line 8)");
}

/* The name that a user has for want of one becomes the owner of buckets. */
Test(settings, an_access_key_that_is_no_name_needs_one) {
#define KEY64 "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
  cr_assert_str_eq(refusal(CLUSTER HOSTS POOLS "users: [{access_key: " KEY64
                                               ", secret_key: rootsecret}]\n" SERVER),
                   "kofn.yaml:7: users[0].name: is missing, and the access key is no name "
                   "(1 to 63 of A-Z a-z 0-9 . _ -)");
  cr_assert_not_null(strstr(
      refusal(CLUSTER HOSTS POOLS "users: [{access_key: 'a\"c', secret_key: rootsecret}]\n" SERVER),
      "users[0].name: is missing"));
  struct settings *s = accept_settings(CLUSTER HOSTS POOLS "users: [{name: u, access_key: " KEY64
                                                           ", secret_key: rootsecret}]\n" SERVER);
  cr_assert_str_eq(s->users[0].name, "u");
  settings_free(s);
#undef KEY64
}

Test(settings, pools_that_cannot_be) {
#define POOL(text) refusal(CLUSTER HOSTS "pools:\n  - {name: a, " text "}\n" USERS SERVER)
  cr_assert_str_eq(POOL("k: 31, m: 2"),
                   "kofn.yaml:7: pools[0].k: k + m = 33 is out of range (1 to 32)");
  cr_assert_str_eq(POOL("k: 33, m: 2"), "kofn.yaml:7: pools[0].k: 33 is out of range (1 to 32)");
  cr_assert_str_eq(POOL("k: 0, m: 2"), "kofn.yaml:7: pools[0].k: 0 is out of range (1 to 32)");
  cr_assert_str_eq(
      POOL("k: 4, m: 2, technique: xor"),
      "kofn.yaml:7: pools[0].technique: xor makes one parity chunk, and m is 2 (1 to 1)");
  cr_assert_str_eq(
      POOL("k: 4, m: 2, technique: none"),
      "kofn.yaml:7: pools[0].technique: none makes no parity chunk, and m is 2 (0 to 0)");
  cr_assert_str_eq(
      POOL("k: 4, m: 0, technique: cauchy"),
      "kofn.yaml:7: pools[0].technique: m = 0 has no parity chunk, so the technique is none");
  cr_assert_str_eq(
      POOL("k: 4, m: 2, technique: liberation"),
      "kofn.yaml:7: pools[0].technique: \"liberation\" is not a technique (none, reed_sol_van, "
      "cauchy or xor)");
  cr_assert_str_eq(refusal("default_pool: b\n" CLUSTER HOSTS POOLS USERS SERVER),
                   "kofn.yaml:1: default_pool: \"b\" is none of the pools");
  cr_assert_str_eq(
      refusal(CLUSTER HOSTS "pools: [{name: a, k: 1, m: 1}, {name: b, k: 1, m: 1}]\n" USERS SERVER),
      "kofn.yaml:1: default_pool: is missing: there are 2 pools, none named default");
}

Test(settings, authentication_is_asked_for) {
  cr_assert_str_eq(refusal(HOSTS POOLS USERS SERVER),
                   "kofn.yaml:1: cluster.secret: is missing: 3 hosts share one (16 to 256 "
                   "printable characters; or "
                   "secret_file, or KOFN_CLUSTER_SECRET)");
  cr_assert_str_eq(
      refusal("cluster: {secret: short}\n" HOSTS POOLS USERS SERVER),
      "kofn.yaml:1: cluster.secret: the secret's length or characters are not allowed (16 to 256 "
      "printable characters)");
  cr_assert_not_null(
      strstr(refusal(CLUSTER HOSTS POOLS SERVER), "users: is missing: several hosts"));
  settings_free(accept_settings(CLUSTER HOSTS POOLS "server: {host: n1, anonymous: true}\n"));
#define ONE \
  "hosts: [{id: a, address: \"127.0.0.1:9001\", drives: [/d]}]\npools: [{name: x, k: 1, m: 0}]\n"
  const char *got = refusal(ONE "server: {s3_listen: \"0.0.0.0:9000\"}\n");
  cr_assert_not_null(strstr(got, "kofn.yaml:3: server.s3_listen: 0.0.0.0:9000 is reachable"), "%s",
                     got);
  cr_assert_not_null(strstr(refusal(ONE), "is reachable from outside"));
  cr_assert_not_null(strstr(refusal(ONE "server: {s3_listen: \":9000\"}\n"), "is reachable"));
  settings_free(accept_settings(ONE "server: {s3_listen: \"127.0.0.1:9000\"}\n"));
  settings_free(accept_settings(ONE "server: {s3_listen: \"[::1]:9000\"}\n"));
  settings_free(accept_settings(ONE "server: {anonymous: true}\n"));
  settings_free(accept_settings(ONE USERS));
}

Test(settings, this_host_must_be_one_of_the_hosts) {
  cr_assert_str_eq(refusal(CLUSTER HOSTS POOLS USERS "server: {host: n9}\n"),
                   "kofn.yaml:8: server.host: \"n9\" is none of the hosts (n1, n2, n3)");
  cr_assert_not_null(strstr(refusal(CLUSTER HOSTS POOLS USERS),
                            "server.host: is missing (one of n1, n2, n3; or KOFN_SERVER_HOST)"));
  struct settings *s = accept_settings(ONE USERS);
  cr_assert_str_eq(s->server.host, "a");
  cr_assert_str_eq(s->server.peer_listen, "127.0.0.1:9001");
  settings_free(s);
}

Test(settings, secrets_come_from_files) {
  char text[512];
  write_file("secret", "0123456789abcdefXYZ\r\n");
  snprintf(text, sizeof text,
           "cluster: {secret_file: %s/secret}\n" HOSTS POOLS
           "users:\n"
           "  - {access_key: rootkey, secret_key_file: %s/secret}\n" SERVER,
           settings_dir, settings_dir);
  struct settings *s = accept_settings(text);
  cr_assert_eq(s->cluster.secret_len, 19u);
  cr_assert_str_eq(s->users[0].secret_key, "0123456789abcdefXYZ");
  settings_free(s);

  write_file("secret", "short\n");
  const char *got = refusal(text);
  cr_assert_not_null(strstr(got, "16 to 256"), "%s", got);
  cr_assert_null(strstr(got, "short"), "an error shows no secret");
  cr_assert_not_null(strstr(refusal("cluster: {secret_file: /nonexistent/secret}\n" HOSTS POOLS),
                            "kofn.yaml:1: cluster.secret_file: /nonexistent/secret: No such file"));
  cr_assert_not_null(
      strstr(refusal("cluster: {secret_file: secret}\n" HOSTS POOLS), "a path from /"));
  cr_assert_not_null(
      strstr(refusal("cluster: {secret: " SECRET ", secret_file: /s}\n" HOSTS POOLS), "not both"));
}

Test(settings, the_environment_overrides) {
  setenv("KOFN_SERVER_HOST", "n3", 1);
  setenv("KOFN_CLUSTER_SECRET", "fedcba9876543210", 1);
  setenv("KOFN_USERS_0_SECRET_KEY", "environment", 1);
  setenv("KOFN_ROOT_ACCESS_KEY", "rootaccess", 1);
  setenv("KOFN_ROOT_SECRET_KEY", "rootsecret", 1);
  setenv("KOFN_POOLS_0_STRIPE_UNIT", "128KiB", 1);
  setenv("KOFN_DRIVE_RESERVE_BYTES", "0", 1);
  setenv("KOFN_TEST_ANYTHING", "x", 1);
  setenv("KOFN_BIN", "x", 1);
  setenv("KOFN_SERVICE_HOST", "10.0.0.1", 1); /* what Kubernetes sets for a service "kofn" */
  /* The file's secret_file would not open: the environment's secret takes its place. */
  struct settings *s =
      accept_settings("cluster: {secret_file: /nonexistent}\n" HOSTS POOLS USERS SERVER);
  cr_assert_str_eq(s->server.host, "n3");
  cr_assert_eq(memcmp(s->cluster.secret, "fedcba9876543210", 16), 0);
  cr_assert_eq(s->user_count, 2u);
  cr_assert_str_eq(s->users[0].secret_key, "environment");
  cr_assert_str_eq(s->users[1].name, "root");
  cr_assert_str_eq(s->users[1].access_key, "rootaccess");
  cr_assert_eq(s->pools[0].stripe_unit_bytes, 128u << 10);
  cr_assert_eq(s->drive.reserve_bytes, 0u);
  settings_free(s);
}

Test(settings, users_may_come_from_the_environment_alone) {
  setenv("KOFN_USERS_1_ACCESS_KEY", "second", 1);
  setenv("KOFN_USERS_1_SECRET_KEY", "secondsecret", 1);
  setenv("KOFN_USERS_0_ACCESS_KEY", "first", 1);
  setenv("KOFN_USERS_0_SECRET_KEY", "firstsecret", 1);
  struct settings *s = accept_settings(CLUSTER HOSTS POOLS SERVER);
  cr_assert_eq(s->user_count, 2u);
  cr_assert_str_eq(s->users[0].access_key, "first");
  cr_assert_str_eq(s->users[1].secret_key, "secondsecret");
  settings_free(s);
  unsetenv("KOFN_USERS_0_ACCESS_KEY");
  cr_assert_not_null(
      strstr(refusal(CLUSTER HOSTS POOLS SERVER), "users[0].access_key: is missing (3 to 128"));
}

static const char *env_refusal(const char *name, const char *value) {
  setenv(name, value, 1);
  const char *got = refusal(CLUSTER HOSTS POOLS USERS SERVER);
  unsetenv(name);
  return got;
}

Test(settings, a_wrong_environment_is_named) {
  cr_assert_str_eq(env_refusal("KOFN_SERVER_HOTS", "n1"),
                   "environment: KOFN_SERVER_HOTS: there is no such field");
  cr_assert_str_eq(env_refusal("KOFN_SERVER_WORKERS", "999"),
                   "environment: KOFN_SERVER_WORKERS: 999 is out of range (0 to 256)");
  cr_assert_str_eq(env_refusal("KOFN_SERVER_WORKERS", "-5"),
                   "environment: KOFN_SERVER_WORKERS: \"-5\" is not a whole number (0 to 256)");
  cr_assert_str_eq(env_refusal("KOFN_SERVER_HOST", "n9"),
                   "environment: KOFN_SERVER_HOST: \"n9\" is none of the hosts (n1, n2, n3)");
  cr_assert_str_eq(
      env_refusal("KOFN_POOLS_7_K", "4"),
      "environment: KOFN_POOLS_7_K: 7 is out of range (the file has 1, counted from 0)");
  cr_assert_str_eq(
      env_refusal("KOFN_USERS_ACCESS_KEY", "x"),
      "environment: KOFN_USERS_ACCESS_KEY: there is no such field (KOFN_USERS_NUMBER_FIELD)");
  cr_assert_str_eq(env_refusal("KOFN_HOSTS_0_DRIVES", "/d"),
                   "environment: KOFN_HOSTS_0_DRIVES: a list is set in the file only");
  cr_assert_str_eq(env_refusal("KOFN_ROOT_PASSWORD", "x"),
                   "environment: KOFN_ROOT_PASSWORD: there is no such field");
  const char *got = env_refusal("KOFN_CLUSTER_SECRET", "tooshort");
  cr_assert_not_null(strstr(got, "environment: KOFN_CLUSTER_SECRET: "), "%s", got);
  cr_assert_null(strstr(got, "tooshort"));
}

Test(settings, what_is_printed_is_read_back_and_shows_no_secret) {
  char *first = NULL, *second = NULL;
  size_t first_len, second_len;
  struct settings *s =
      accept_settings(CLUSTER HOSTS
                      "pools: [{name: a, k: 1, m: 1, drives: [n1/data/d1, n2/data/d1]}]\n"
                      "users: [{name: u, access_key: rootkey, secret_key: rootsecret}]\n" SERVER);
  FILE *f = open_memstream(&first, &first_len);
  settings_print(s, f);
  fclose(f);
  settings_free(s);
  cr_assert_null(strstr(first, SECRET));
  cr_assert_null(strstr(first, "rootsecret"));
  cr_assert_not_null(strstr(first, "secret: (set)"));
  setenv("KOFN_CLUSTER_SECRET", SECRET, 1);
  setenv("KOFN_USERS_0_SECRET_KEY", "rootsecret", 1);
  s = accept_settings(first);
  f = open_memstream(&second, &second_len);
  settings_print(s, f);
  fclose(f);
  cr_assert_str_eq(first, second);
  settings_free(s);
  free(first);
  free(second);
}

Test(settings, directories_make_a_host) {
  static const unsigned shapes[][2] = {{1, 0}, {1, 1}, {2, 1}, {2, 2},
                                       {3, 2}, {4, 2}, {4, 2}, {4, 2}};
  char names[8][96], *dirs[8];
  for (unsigned i = 0; i < 8; i++) {
    snprintf(names[i], sizeof names[i], "%s/d%u", settings_dir, i);
    dirs[i] = names[i];
  }
  struct settings_error e = {""};
  struct settings *s;
  for (unsigned count = 1; count <= 8; count++) {
    cr_assert_eq(settings_for_dirs(dirs, count, &s, &e), 0, "%s", e.text);
    cr_assert_eq(s->pools[0].k, shapes[count - 1][0]);
    cr_assert_eq(s->pools[0].m, shapes[count - 1][1]);
    cr_assert_eq(s->hosts[0].drive_count, count);
    cr_assert_str_eq(s->hosts[0].id, "local");
    cr_assert_str_eq(s->server.s3_listen, "127.0.0.1:9000");
    cr_assert_str_eq(s->server.peer_listen, "127.0.0.1:9001");
    cr_assert_eq(s->user_count, 0u);
    cr_assert_null(s->file);
    cr_assert_eq(settings_add_user(s, "root", "access", "secretsecret"), 0);
    cr_assert_eq(s->user_count, 1u);
    cr_assert_str_eq(s->users[0].secret_key, "secretsecret");
    settings_free(s);
  }
  char *twice[] = {settings_dir, settings_dir};
  cr_assert_eq(settings_for_dirs(twice, 2, &s, &e), ERR_CONFIG);
  cr_assert_not_null(strstr(e.text, "is listed twice"), "%s", e.text);
  cr_assert_eq(settings_for_dirs(twice, 0, &s, &e), ERR_CONFIG);
  cr_assert_eq(chdir(settings_dir), 0);
  char *relative[] = {(char *)"x"};
  char want[128];
  snprintf(want, sizeof want, "%s/x", settings_dir);
  cr_assert_eq(settings_for_dirs(relative, 1, &s, &e), 0);
  cr_assert_str_eq(s->hosts[0].drives[0].path, want);
  settings_free(s);
}

Test(settings, sizes_times_and_addresses) {
  uint64_t v = 7;
  cr_assert_eq(settings_parse_size("64KiB", &v), 0);
  cr_assert_eq(v, 65536u);
  cr_assert_eq(settings_parse_size("2MB", &v), 0);
  cr_assert_eq(v, 2000000u);
  cr_assert_eq(settings_parse_size("512", &v), 0);
  cr_assert_eq(v, 512u);
  static const char *const sizes[] = {"", "KiB", "-5", "64KiBx", "64 KiB", "1.5GiB", "16777216TiB"};
  for (unsigned i = 0; i < ARRAY_LEN(sizes); i++)
    cr_assert_eq(settings_parse_size(sizes[i], &v), ERR_INVALID);
  cr_assert_eq(v, 512u, "untouched");
  cr_assert_eq(settings_parse_time("7d", &v), 0);
  cr_assert_eq(v, 7u * 86400000u);
  cr_assert_eq(settings_parse_time("500ms", &v), 0);
  cr_assert_eq(v, 500u);
  cr_assert_eq(settings_parse_time("30", &v), ERR_INVALID);
  char host[256];
  uint16_t port = 0;
  cr_assert_eq(settings_parse_address("[::1]:9000", host, &port), 0);
  cr_assert_str_eq(host, "::1");
  cr_assert_eq(port, 9000);
  cr_assert_eq(settings_parse_address(":80", host, &port), 0);
  cr_assert_str_eq(host, "");
  static const char *const addresses[] = {
      "",     "host",   "host:",   "host:x",  "host:65536", "::1:9000",   "[::1]9000",
      "[]:1", "[::1:1", "ho st:1", "host:1 ", "host:-1",    "host:000001"};
  for (unsigned i = 0; i < ARRAY_LEN(addresses); i++) {
    cr_assert_eq(settings_parse_address(addresses[i], host, &port), ERR_INVALID, "%s",
                 addresses[i]);
  }
}
