/* cluster_test.c: what a host refuses to start on, what it starts without, and whom it believes. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "config/err.h"
#include "tests/unit/net/cluster_bed.h"
#include "tests/unit/net/net_bed.h"

/* Starts and stops once: formatted. Returns the cluster's id. */
static struct id128 form(const struct cluster_bed *b) {
  struct node n;
  struct drive_error e = {""};
  cr_assert_eq(node_start(b, 0, &n, &e), 0, "%s", e.text);
  struct id128 id = *cluster_id(n.cluster);
  node_close(&n);
  return id;
}

/* The start is refused with `err`, and the sentence holds both texts. */
static void refused(const struct cluster_bed *b, int err, const char *text, const char *text2) {
  struct node n;
  struct drive_error e = {""};
  int got = node_start(b, 0, &n, &e);
  cr_assert_eq(got, err, "%s instead of %s: %s", err_name(got), err_name(err), e.text);
  cr_assert(strstr(e.text, text), "no \"%s\" in: %s", text, e.text);
  cr_assert(strstr(e.text, text2), "no \"%s\" in: %s", text2, e.text);
  node_close(&n);
}

/* The names and digests of all files of the drives and of the state but the lock's pid. */
static void tree(const struct cluster_bed *b, const char *out) {
  cluster_bed_sh(
      b,
      "find n0 state-0 -type f ! -name lock ! -name lock.mdb | sort | xargs -r sha256sum "
      "> %s; find n0 state-0 | sort >> %s",
      out, out);
}

static void refused_untouched(const struct cluster_bed *b, int err, const char *text,
                              const char *text2) {
  tree(b, "before");
  refused(b, err, text, text2);
  tree(b, "after");
  cluster_bed_sh(b, "cmp before after");
}

static uint64_t boot_counter_of(const struct node *n, uint16_t drive) {
  return drive_identity_of(lanes_drive(cluster_lanes(n->cluster, drive)))->boot_counter;
}

Test(cluster, first_start_formats_and_a_second_start_finds_the_same) {
  struct cluster_bed b;
  struct node n;
  struct drive_error e = {""};
  cluster_bed_open(&b, 1, 3, 2, 1);
  cr_assert_eq(node_open(&b, 0, &n, &e), 0, "%s", e.text);
  cr_assert(!cluster_ready(n.cluster));
  static const int stop = 0;
  cr_assert_eq(cluster_first_start(n.cluster, &stop, &e), 0, "%s", e.text);
  cr_assert(cluster_ready(n.cluster));
  struct id128 id = *cluster_id(n.cluster);
  cr_assert(!id128_is_zero(&id));
  cr_assert_eq(cluster_placement(n.cluster)->epoch, 1);
  cr_assert(cluster_drives_share_disk(n.cluster));
  uint64_t boot = boot_counter_of(&n, 0);
  for (uint16_t i = 0; i < 3; i++) {
    cr_assert_not_null(cluster_lanes(n.cluster, i));
    cr_assert_str_empty(cluster_drive_trouble(n.cluster, i));
  }
  node_close(&n);
  cr_assert_eq(node_open(&b, 0, &n, &e), 0, "%s", e.text);
  cr_assert(cluster_ready(n.cluster));
  cr_assert(id128_eq(&id, cluster_id(n.cluster)));
  cr_assert_eq(boot_counter_of(&n, 0), boot + 1);
  node_close(&n);
  cluster_bed_close(&b);
}

Test(cluster, drives_of_one_host_agree_on_the_table_that_was_built) {
  struct cluster_bed b;
  struct node n;
  struct drive_error e = {""};
  struct placement *built;
  cluster_bed_open(&b, 1, 3, 2, 1);
  form(&b);
  cr_assert_eq(node_open(&b, 0, &n, &e), 0, "%s", e.text);
  cr_assert_eq(placement_build(n.map, &built), 0);
  const struct placement *stored = cluster_placement(n.cluster);
  for (unsigned p = 0; p < n.map->pool_count; p++) {
    cr_assert_eq(stored->n[p], built->n[p]);
    cr_assert_arr_eq(stored->slots[p], built->slots[p],
                     sizeof(uint16_t) * PARTITION_COUNT * built->n[p]);
  }
  placement_free(built);
  node_close(&n);
  cluster_bed_close(&b);
}

Test(cluster, swapped_directories_are_refused) {
  struct cluster_bed b;
  cluster_bed_open(&b, 1, 3, 2, 1);
  form(&b);
  cluster_bed_sh(&b, "mv n0/d0 x && mv n0/d1 n0/d0 && mv x n0/d1");
  refused_untouched(&b, ERR_CONFIG, "is drive n0/d1", "swapped");
  cluster_bed_close(&b);
}

Test(cluster, an_empty_directory_in_place_of_a_drive_is_refused) {
  struct cluster_bed b;
  cluster_bed_open(&b, 1, 3, 2, 1);
  form(&b);
  cluster_bed_sh(&b, "mv n0/d1 kept && mkdir n0/d1");
  refused_untouched(&b, ERR_CONFIG, "n0/d1", "kofn drive replace n0/d1");
  cluster_bed_sh(&b, "rm -rf state-0"); /* the other drives tell it too */
  refused(&b, ERR_CONFIG, "is formatted", "kofn drive replace n0/d1");
  cluster_bed_sh(&b, "rmdir n0/d1 && mv kept n0/d1");
  form(&b);
  cluster_bed_close(&b);
}

Test(cluster, all_directories_empty_but_the_state_remembers) {
  struct cluster_bed b;
  cluster_bed_open(&b, 1, 3, 2, 1);
  form(&b);
  cluster_bed_sh(&b, "rm -rf n0/*/*");
  refused_untouched(&b, ERR_CONFIG, "remembers", "kofn drive replace n0/d0");
  cluster_bed_close(&b);
}

Test(cluster, a_directory_with_strangers_files_is_refused) {
  struct cluster_bed b;
  cluster_bed_open(&b, 1, 3, 2, 1);
  cluster_bed_sh(&b, "echo x > n0/d2/letter.txt");
  refused(&b, ERR_CONFIG, "n0/d2", "not empty");
  cluster_bed_sh(&b, "test ! -e n0/d0/drive.id && test ! -e n0/d1/drive.id");
  cluster_bed_close(&b);
}

Test(cluster, a_drive_of_another_cluster_is_refused) {
  struct cluster_bed b;
  cluster_bed_open(&b, 1, 3, 2, 1);
  form(&b);
  cluster_bed_sh(&b, "cp -a n0 first");
  /* Another cluster of the same names. */
  cluster_bed_sh(&b, "rm -rf n0/*/* state-0");
  form(&b);
  cluster_bed_sh(&b, "rm -rf n0/d1 && cp -a first/d1 n0/d1");
  refused_untouched(&b, ERR_CONFIG, "n0/d1", "another cluster");
  b.name = "prod";
  refused(&b, ERR_CONFIG, "state directory", "demo");
  cluster_bed_sh(&b, "rm -rf state-0");
  refused(&b, ERR_CONFIG, "belongs to another cluster", "prod");
  cluster_bed_close(&b);
}

Test(cluster, a_drive_of_another_host_is_refused) {
  struct cluster_bed b;
  cluster_bed_open(&b, 1, 3, 2, 1);
  form(&b);
  b.first_host = "m7";
  refused(&b, ERR_CONFIG, "belongs to host n0", "m7");
  cluster_bed_sh(&b, "rm -rf state-0");
  refused(&b, ERR_CONFIG, "is drive n0/d0 of host n0", "m7");
  cluster_bed_close(&b);
}

Test(cluster, a_changed_membership_is_refused_by_its_lines) {
  struct cluster_bed b;
  cluster_bed_open(&b, 1, 3, 2, 1);
  form(&b);
  cluster_bed_sh(&b, "mkdir n0/d3");
  b.drives = 4;
  refused_untouched(&b, ERR_CONFIG, "membership", "\"drive n0/d3\"");
  cluster_bed_sh(&b, "rmdir n0/d3 && rm -rf state-0");
  b.drives = 3;
  b.k = 1; /* stored on the drives too */
  refused(&b, ERR_CONFIG, "membership", "k 1 m 1");
  b.k = 2;
  form(&b);
  cluster_bed_close(&b);
}

Test(cluster, a_changed_address_is_no_change_of_membership) {
  struct cluster_bed b;
  cluster_bed_open(&b, 1, 3, 2, 1);
  form(&b);
  bed_free_address(b.address[0]);
  form(&b);
  cluster_bed_close(&b);
}

Test(cluster, a_restored_snapshot_never_serves_again) {
  struct cluster_bed b;
  struct node n;
  struct drive_error e = {""};
  cluster_bed_open(&b, 1, 3, 2, 1);
  form(&b);
  cluster_bed_sh(&b, "cp -a n0/d1 snapshot");
  for (int i = 0; i < 3; i++) form(&b);
  cluster_bed_sh(&b, "rm -rf n0/d1 && mv snapshot n0/d1");
  refused(&b, ERR_CONFIG, "restored snapshot", "n0/d1");
  /* Each start counts the drive up: it must not become believable by that. */
  for (int i = 0; i < 5; i++) {
    cr_assert_eq(node_open(&b, 0, &n, &e), 0, "%s", e.text);
    cr_assert_null(cluster_lanes(n.cluster, 1));
    cr_assert(strstr(cluster_drive_trouble(n.cluster, 1), "restored snapshot"));
    cr_assert_not_null(cluster_lanes(n.cluster, 0));
    node_close(&n);
  }
  cluster_bed_close(&b);
}

Test(cluster, a_second_opener_is_refused_by_pid) {
  struct cluster_bed b;
  struct node n;
  struct drive_error e = {""};
  char pid[32];
  cluster_bed_open(&b, 1, 3, 2, 1);
  form(&b);
  cr_assert_eq(node_open(&b, 0, &n, &e), 0, "%s", e.text);
  snprintf(pid, sizeof pid, "pid %ld", (long)getpid());
  refused(&b, ERR_BUSY, "another kofn uses state directory", pid);
  b.state = "elsewhere"; /* the drives are locked too */
  refused(&b, ERR_BUSY, "n0/d0", "");
  node_close(&n);
  cluster_bed_close(&b);
}

Test(cluster, a_missing_drive_among_several_is_left_out) {
  struct cluster_bed b;
  struct node n;
  struct drive_error e = {""};
  cluster_bed_open(&b, 1, 3, 2, 1);
  form(&b);
  cluster_bed_sh(&b, "mv n0/d2 away");
  cr_assert_eq(node_open(&b, 0, &n, &e), 0, "%s", e.text);
  cr_assert(cluster_ready(n.cluster));
  cr_assert_null(cluster_lanes(n.cluster, 2));
  cr_assert(strstr(cluster_drive_trouble(n.cluster, 2), "n0/d2"));
  cr_assert_not_null(cluster_lanes(n.cluster, 0));
  struct hello *h = calloc(1, sizeof *h);
  cluster_policy(n.cluster)->fill(cluster_policy(n.cluster), h);
  cr_assert(h->drives[0].usable);
  cr_assert(!h->drives[2].usable);
  free(h);
  node_close(&n);
  cluster_bed_sh(&b, "mv away n0/d2");
  cr_assert_eq(node_open(&b, 0, &n, &e), 0, "%s", e.text);
  cr_assert_not_null(cluster_lanes(n.cluster, 2));
  node_close(&n);
  cluster_bed_close(&b);
}

Test(cluster, no_usable_drive_at_all_is_refused) {
  struct cluster_bed b;
  cluster_bed_open(&b, 1, 1, 1, 0);
  form(&b);
  cluster_bed_sh(&b, "mv n0/d0 away");
  refused(&b, ERR_CONFIG, "n0/d0", "no such directory");
  cluster_bed_close(&b);
}

Test(cluster, a_missing_drive_at_the_first_start_is_refused_and_nothing_formatted) {
  struct cluster_bed b;
  cluster_bed_open(&b, 1, 3, 2, 1);
  cluster_bed_sh(&b, "rmdir n0/d1");
  refused(&b, ERR_CONFIG, "n0/d1", "no such directory");
  cluster_bed_sh(&b, "test -z \"$(ls n0/d0 n0/d2 | grep drive.id)\"");
  cluster_bed_sh(&b, "mkdir n0/d1");
  form(&b);
  cluster_bed_close(&b);
}

static void edit_interrupt(struct state *s, const void *arg) {
  s->init_id = s->cluster_id;
  s->cluster_id = (struct id128){{0}};
  while (s->drive_count > 0) free(s->drives[--s->drive_count].name);
}

Test(cluster, an_interrupted_first_start_is_resumed_with_its_id) {
  struct cluster_bed b;
  cluster_bed_open(&b, 1, 3, 2, 1);
  struct id128 id = form(&b), again;
  /* As if it had stopped with two drives not yet formatted; then with all, but not recorded. */
  cluster_bed_sh(&b, "rm -rf n0/d1/* n0/d2/*");
  node_state_edit(&b, 0, edit_interrupt, NULL);
  again = form(&b);
  cr_assert(id128_eq(&id, &again));
  node_state_edit(&b, 0, edit_interrupt, NULL);
  again = form(&b);
  cr_assert(id128_eq(&id, &again));
  cluster_bed_sh(&b, "rm -rf n0/d1/*"); /* recorded now: no longer an interrupted start */
  refused(&b, ERR_CONFIG, "n0/d1", "kofn drive replace");
  cluster_bed_close(&b);
}

Test(cluster, a_damaged_state_is_refused) {
  struct cluster_bed b;
  cluster_bed_open(&b, 1, 3, 2, 1);
  form(&b);
  cluster_bed_sh(&b, "cp state-0/state.json kept");
  static const char *const damages[] = {
      ": > state-0/state.json",
      "head -c 100 kept > state-0/state.json",
      "sed 's/\"format\": 1/\"format\": 2/' kept > state-0/state.json",
      "sed 's/\"boot_counter\": 1/\"boot_counter\": \"1\"/' kept > state-0/state.json",
      "sed 's/\"boot_counter\": 1/\"boot_counter\": -1/' kept > state-0/state.json",
      "sed 's/\"cluster_id\": \"../\"cluster_id\": \"/' kept > state-0/state.json",
      "sed 's/n0.d1/n0\\/d0/' kept > state-0/state.json",
      "grep -v canonical kept > state-0/state.json",
  };
  for (unsigned i = 0; i < ARRAY_LEN(damages); i++) {
    cluster_bed_sh(&b, "%s; ! cmp -s kept state-0/state.json", damages[i]);
    refused(&b, ERR_CONFIG, "state.json", "damaged");
  }
  cluster_bed_sh(&b, "cp kept state-0/state.json");
  form(&b);
  cluster_bed_close(&b);
}

static void edit_id(struct state *s, const void *arg) {
  state_drive(s, arg, false)->id.bytes[7] ^= 1;
}

Test(cluster, an_id_that_differs_from_the_remembered_one_is_refused) {
  struct cluster_bed b;
  cluster_bed_open(&b, 1, 3, 2, 1);
  form(&b);
  node_state_edit(&b, 0, edit_id, "n0/d1");
  refused_untouched(&b, ERR_CONFIG, "n0/d1", "another drive stands in its place");
  cluster_bed_close(&b);
}

/* A transaction that a SIGBUS has interrupted cannot be ended: it goes with the process. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
  return "leak:mdb_txn_begin\nleak:lmdb_begin\n";
}

/* The index's file is cut off under an open drive: reading it is a SIGBUS. */
struct read_job {
  struct drive_job job;
  struct peer_request req;
  struct peer_reply reply;
  int done;
};
static void read_done(struct drive_job *job) {
  __atomic_store_n(&container_of(job, struct read_job, job)->done, 1, __ATOMIC_RELEASE);
}

Test(cluster, a_drive_that_fails_is_remembered) {
  struct cluster_bed b;
  struct node n;
  struct drive_error e = {""};
  cluster_bed_open(&b, 1, 3, 2, 1);
  form(&b);
  cr_assert_eq(node_open(&b, 0, &n, &e), 0, "%s", e.text);
  cluster_bed_sh(&b, "truncate -s 0 $(find n0/d1 -name data.mdb)");
  struct read_job r = {.req = {.verb = PEER_READ, .epoch = 1, .key = SLICE_LIT("k")}};
  r.job = (struct drive_job){.req = &r.req, .reply = &r.reply, .done = read_done};
  lanes_submit(cluster_lanes(n.cluster, 1), &r.job);
  while (!__atomic_load_n(&r.done, __ATOMIC_ACQUIRE)) usleep(1000);
  cr_assert_eq(r.reply.err, ERR_DRIVE_FAILED);
  cr_assert_str_not_empty(cluster_drive_trouble(n.cluster, 1));
  struct hello *h = calloc(1, sizeof *h);
  cluster_policy(n.cluster)->fill(cluster_policy(n.cluster), h);
  cr_assert(!h->drives[1].usable);
  free(h);
  node_close(&n);
  cr_assert_eq(node_open(&b, 0, &n, &e), 0, "%s", e.text);
  cr_assert_null(cluster_lanes(n.cluster, 1), "a failed drive serves again after a restart");
  cr_assert(strstr(cluster_drive_trouble(n.cluster, 1), "out of service"));
  node_close(&n);
  cluster_bed_close(&b);
}

/* ---- whom it believes ---- */

struct policy_bed {
  struct cluster_bed bed;
  struct node n; /* host n1 of n0, n1, n2: formatted */
  struct hello_policy *policy;
  struct hello *hello; /* a genuine one of n2, to be changed */
};

static int init_by(struct hello_policy *p, const struct cluster_map *map, int host,
                   const struct id128 *id, struct byte_writer *reply) {
  uint8_t digest[SHA256_LEN];
  char *canonical = cluster_map_canonical(map);
  struct byte_writer w = {.max = 256};
  map_digest(canonical, digest);
  put_u8(&w, CONTROL_INIT);
  put_id(&w, id);
  put_bytes(&w, slice_of(digest, sizeof digest));
  *reply = (struct byte_writer){.max = 4096};
  int err = p->control(p, host, slice_of(w.data, w.len), reply);
  byte_writer_free(&w);
  free(canonical);
  return err;
}

static void policy_bed_open(struct policy_bed *p) {
  struct drive_error e = {""};
  struct byte_writer reply;
  struct id128 id = {{7}}, other = {{8}};
  cluster_bed_open(&p->bed, 3, 2, 4, 2);
  cr_assert_eq(node_open(&p->bed, 1, &p->n, &e), 0, "%s", e.text);
  cr_assert(!cluster_ready(p->n.cluster));
  p->policy = cluster_policy(p->n.cluster);
  /* Only the coordinator may, and only once. */
  cr_assert_eq(init_by(p->policy, p->n.map, 2, &id, &reply), 0);
  cr_assert_eq(reply.data[0], 0);
  byte_writer_free(&reply);
  for (int i = 0; i < 2; i++) {
    cr_assert_eq(init_by(p->policy, p->n.map, 0, &id, &reply), 0);
    cr_assert_eq(reply.data[0], 1);
    byte_writer_free(&reply);
  }
  cr_assert_eq(init_by(p->policy, p->n.map, 0, &other, &reply), 0);
  cr_assert_eq(reply.data[0], 0);
  byte_writer_free(&reply);
  cr_assert_eq(p->policy->control(p->policy, 0, SLICE_LIT("\1xyz"), &reply), ERR_PROTOCOL);
  node_close(&p->n);
  cr_assert_eq(node_open(&p->bed, 1, &p->n, &e), 0, "%s", e.text);
  cr_assert(cluster_ready(p->n.cluster));
  cr_assert(id128_eq(&id, cluster_id(p->n.cluster)));
  p->policy = cluster_policy(p->n.cluster);
  p->hello = calloc(1, sizeof *p->hello);
  p->policy->fill(p->policy, p->hello);
  snprintf(p->hello->host_id, sizeof p->hello->host_id, "n2");
  for (unsigned i = 0; i < p->hello->drive_count; i++) {
    p->hello->drives[i].drive = (uint16_t)(4 + i);
    p->hello->drives[i].drive_id.bytes[0] ^= 0x55;
    p->hello->drives[i].boot_counter = 7;
  }
}

static void policy_bed_close(struct policy_bed *p) {
  free(p->hello);
  node_close(&p->n);
  cluster_bed_close(&p->bed);
}

static void believes(struct policy_bed *p, int host, const struct hello *h) {
  char why[512] = "";
  int err = p->policy->check(p->policy, host, h, why, sizeof why);
  cr_assert_eq(err, 0, "refused: %s", why);
}

static void disbelieves(struct policy_bed *p, int host, const struct hello *h, const char *text) {
  char why[512] = "";
  int err = p->policy->check(p->policy, host, h, why, sizeof why);
  cr_assert_eq(err, ERR_REFUSED, "not refused: %s", text);
  cr_assert(strstr(why, text), "no \"%s\" in: %s", text, why);
}

Test(policy, each_difference_is_named) {
  struct policy_bed p;
  policy_bed_open(&p);
  believes(&p, 2, p.hello);
  struct hello *h = malloc(sizeof *h);

  *h = *p.hello;
  snprintf(h->cluster_name, sizeof h->cluster_name, "prod");
  disbelieves(&p, 2, h, "cluster name differs");
  *h = *p.hello;
  disbelieves(&p, -1, h, "no host n2");
  h->map_digest[0] ^= 1;
  h->canonical = "cluster demo\nhost n9 zone n9\n";
  disbelieves(&p, 2, h, "host n9 zone n9");
  *h = *p.hello;
  h->cluster_id.bytes[3] ^= 1;
  disbelieves(&p, 2, h, "cluster id differs");
  *h = *p.hello;
  h->epoch = 2;
  disbelieves(&p, 2, h, "epoch");
  *h = *p.hello;
  h->table_digest[9] ^= 1;
  disbelieves(&p, 2, h, "slot table differs");
  *h = *p.hello;
  h->drives[0].drive = 0; /* a drive of n0 */
  disbelieves(&p, 2, h, "not its own");
  *h = *p.hello;
  h->drives[1].drive_id.bytes[5] ^= 1;
  disbelieves(&p, 2, h, "another drive in its place");
  *h = *p.hello;
  h->drives[1].usable = false; /* says nothing about the drive */
  h->drives[1].drive_id = (struct id128){{0}};
  h->drives[1].boot_counter = 0;
  believes(&p, 2, h);
  believes(&p, 2, p.hello);
  free(h);
  policy_bed_close(&p);
}

Test(policy, a_boot_counter_that_goes_back_is_refused_also_after_a_restart) {
  struct policy_bed p;
  struct drive_error e = {""};
  policy_bed_open(&p);
  believes(&p, 2, p.hello);
  p.hello->drives[0].boot_counter = 5;
  disbelieves(&p, 2, p.hello, "n2/d0 came back with boot counter 5, we remember 7");
  p.hello->drives[0].boot_counter = 9;
  believes(&p, 2, p.hello);
  node_close(&p.n);
  cr_assert_eq(node_open(&p.bed, 1, &p.n, &e), 0, "%s", e.text);
  p.policy = cluster_policy(p.n.cluster);
  p.hello->drives[0].boot_counter = 8;
  disbelieves(&p, 2, p.hello, "restored snapshot");
  /* A refused hello teaches nothing: drive 1's higher counter was not taken. */
  p.hello->drives[1].boot_counter = 100;
  disbelieves(&p, 2, p.hello, "restored snapshot");
  p.hello->drives[0].boot_counter = 9;
  p.hello->drives[1].boot_counter = 7;
  believes(&p, 2, p.hello);
  policy_bed_close(&p);
}

/* A snapshot of the boot before, restored with the host's own memory of it, counts the lost boot
 * once more: only the nonce tells them apart. Found by the simulator. */
Test(policy, the_same_boot_twice_is_refused_also_after_a_restart) {
  struct policy_bed p;
  struct drive_error e = {""};
  policy_bed_open(&p);
  p.hello->drives[0].boot_nonce = 1234;
  believes(&p, 2, p.hello);
  believes(&p, 2, p.hello);
  for (unsigned restarted = 0; restarted <= 1; restarted++) {
    p.hello->drives[0].boot_nonce = 4321;
    disbelieves(&p, 2, p.hello, "n2/d0 comes with boot 7 for the second time");
    p.hello->drives[0].boot_nonce = 1234;
    believes(&p, 2, p.hello);
    node_close(&p.n);
    cr_assert_eq(node_open(&p.bed, 1, &p.n, &e), 0, "%s", e.text);
    p.policy = cluster_policy(p.n.cluster);
  }
  policy_bed_close(&p);
}

Test(policy, an_empty_host_is_welcome_until_all_are_formatted_and_it_was_met_with_drives) {
  struct policy_bed p;
  policy_bed_open(&p);
  struct hello *empty = malloc(sizeof *empty), *coordinator = malloc(sizeof *coordinator);
  *empty = *p.hello;
  empty->boot = BOOT_EMPTY;
  empty->cluster_id = (struct id128){{0}};
  for (unsigned i = 0; i < empty->drive_count; i++) empty->drives[i].usable = false;
  *coordinator = *p.hello;
  snprintf(coordinator->host_id, sizeof coordinator->host_id, "n0");
  coordinator->drives[0].drive = 0;
  coordinator->drives[1].drive = 1;
  believes(&p, 2, empty);
  believes(&p, 0, coordinator);
  believes(&p, 2, empty); /* formatted, but not serving yet: it was never met with drives */
  believes(&p, 2, p.hello);
  disbelieves(&p, 2, empty, INITIALISED_WORDS);
  free(empty);
  free(coordinator);
  policy_bed_close(&p);
}

Test(policy, a_reply_to_init_of_an_older_cluster_is_a_refusal) {
  struct policy_bed p;
  struct byte_writer reply;
  struct id128 other = {{8}};
  policy_bed_open(&p);
  cr_assert_eq(init_by(p.policy, p.n.map, 0, &other, &reply), 0);
  cr_assert_eq(reply.data[0], 0);
  cr_assert(memmem(reply.data, reply.len, INITIALISED_WORDS, strlen(INITIALISED_WORDS)));
  byte_writer_free(&reply);
  policy_bed_close(&p);
}
