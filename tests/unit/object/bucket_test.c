/* bucket_test.c: buckets made, found, listed and deleted; gateways that race, die half way, and
 * write into a bucket while another deletes it. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "storage/object/bucket_cache.h"
#include "storage/object/bucket_row.h"
#include "tests/unit/object/fake_peer.h"

#define ALL 63u
#define NAMES_MAX 64

static struct fake_bed bed;
static struct fake_cluster *cluster;

/* One call's answer. */
struct answer {
  bool done;
  int err;
  struct bucket_info info;
};

struct listing {
  bool done;
  int err;
  unsigned count;
  bool truncated;
  struct bucket_info buckets[NAMES_MAX];
};

static void open_seed(uint64_t seed) {
  fake_bed_open(&bed, seed);
  cluster = fake_cluster_open(&bed, 6, 1, 4, 2, "reed_sol_van", 4096);
}

static void setup(void) {
  open_seed(11);
}

static void teardown(void) {
  fake_cluster_close(cluster);
  fake_bed_close(&bed);
}

static void answered(void *arg, int err, const struct bucket_info *info) {
  struct answer *a = arg;
  cr_assert(!a->done, "a callback runs once");
  a->done = true;
  a->err = err;
  if (info) a->info = *info;
  if (err == 0 && a->info.pool == 99) cr_assert(info, "success says which bucket");
}

static void put_answered(void *arg, const struct object_put_result *result) {
  struct answer *a = arg;
  a->done = true;
  a->err = result->err;
}

static struct answer wait_for(struct answer *a) {
  cr_assert(!a->done, "never inside the start");
  cr_assert(fake_run_while_not(&bed, &a->done));
  return *a;
}

static struct answer create(struct objects *o, const char *name) {
  struct answer a = {0};
  bucket_create(o, slice_str(name), cluster->pool, SLICE_LIT("root"), answered, &a);
  return wait_for(&a);
}

static struct answer lookup(struct objects *o, const char *name, bool for_write) {
  struct answer a = {0};
  bucket_lookup(o, slice_str(name), for_write, answered, &a);
  return wait_for(&a);
}

static int delete (struct objects *o, const char *name) {
  struct answer a = {0};
  bucket_delete(o, slice_str(name), answered, &a);
  return wait_for(&a).err;
}

static int put_start(struct objects *o, const struct bucket_info *bucket, const char *key,
                     struct answer *a) {
  struct object_put_args args = {.bucket = bucket, .key = slice_str(key), .kind = ROW_PUT};
  struct object_put *put;
  return object_put_start(o, &args, put_answered, a, &put);
}

static int put(struct objects *o, const struct bucket_info *bucket, const char *key) {
  struct answer a = {0};
  cr_assert_eq(put_start(o, bucket, key, &a), 0);
  return wait_for(&a).err;
}

static int remove_key(struct objects *o, const struct bucket_info *bucket, const char *key) {
  struct answer a = {0};
  struct object_put_args args = {.bucket = bucket, .key = slice_str(key), .kind = ROW_TOMB};
  struct object_put *op;
  cr_assert_eq(object_put_start(o, &args, put_answered, &a, &op), 0);
  return wait_for(&a).err;
}

static void all_down(void) {
  for (unsigned i = 0; i < 6; i++) fake_peer_down(&cluster->drives[i]);
}

static void all_up(void) {
  for (unsigned i = 0; i < 6; i++) fake_peer_up(&cluster->drives[i]);
}

/* What the register says, past all caches. */
static struct bucket_row stored(const char *name) {
  struct bucket_row best = {0};
  for (unsigned i = 0; i < 6; i++) {
    struct fake_row *r =
        fake_drive_newest(&cluster->drives[i].drive, &bucket_system_uuid, slice_str(name));
    struct row row;
    if (!r || version_cmp(&r->ver, &best.ver) <= 0) continue;
    cr_assert_eq(row_decode(slice_of(r->bytes, r->len), &bucket_system_uuid, slice_str(name), &row),
                 0);
    struct bucket_row got = {.ver = row.ver};
    if (row.kind == ROW_PUT)
      cr_assert_eq(bucket_row_parse(&cluster->objects, slice_str(name), &row, &got), 0);
    best = got;
  }
  return best;
}

/* ---- create, lookup ---- */

Test(bucket, create_lookup_and_a_second_create, .init = setup, .fini = teardown) {
  struct objects *o = &cluster->objects, *other = fake_cluster_gateway(cluster);
  cr_assert_eq(lookup(o, "photos", false).err, ERR_NO_SUCH_BUCKET);
  struct answer made = create(o, "photos");
  cr_assert_eq(made.err, 0);
  cr_assert_str_eq(made.info.name, "photos");
  cr_assert_str_eq(made.info.owner, "root");
  cr_assert(made.info.pool == cluster->pool && made.info.state == BUCKET_ACTIVE);
  cr_assert(!id128_is_zero(&made.info.uuid) && made.info.created_ms >= FAKE_WALL_START_MS);
  struct answer found = lookup(other, "photos", true);
  cr_assert_eq(found.err, 0);
  cr_assert(id128_eq(&found.info.uuid, &made.info.uuid));
  cr_assert(found.info.created_ms == made.info.created_ms && found.info.pool == made.info.pool);
  struct answer again = create(other, "photos");
  cr_assert_eq(again.err, ERR_BUCKET_EXISTS);
  cr_assert(id128_eq(&again.info.uuid, &made.info.uuid), "it says whose");
}

Test(bucket, names_that_fit_no_bucket_are_answered_later_too, .init = setup, .fini = teardown) {
  char name[80];
  memset(name, 'a', sizeof name);
  name[79] = 0;
  cr_assert_eq(lookup(&cluster->objects, "", false).err, ERR_NO_SUCH_BUCKET);
  cr_assert_eq(lookup(&cluster->objects, name, true).err, ERR_NO_SUCH_BUCKET);
  cr_assert_eq(delete (&cluster->objects, name), ERR_NO_SUCH_BUCKET);
  cr_assert_eq(create(&cluster->objects, name).err, ERR_INVALID);
  cr_assert_eq(fake_calls(cluster, PEER_READ), 0);
}

Test(bucket, a_lookup_is_believed_for_a_second_and_an_absence_never, .init = setup,
     .fini = teardown) {
  struct objects *o = fake_cluster_gateway(cluster);
  cr_assert_eq(lookup(o, "b", false).err, ERR_NO_SUCH_BUCKET);
  cr_assert_eq(create(&cluster->objects, "b").err, 0);
  cr_assert_eq(lookup(o, "b", false).err, 0, "the absence was not kept");
  unsigned reads = fake_calls(cluster, PEER_READ);
  for (unsigned i = 0; i < 20; i++) cr_assert_eq(lookup(o, "b", i % 2).err, 0);
  cr_assert_eq(fake_calls(cluster, PEER_READ), reads, "not asked again");
  fake_run_for(&bed, BUCKET_CACHE_FRESH_MS + 1);
  cr_assert_eq(lookup(o, "b", false).err, 0);
  cr_assert_gt(fake_calls(cluster, PEER_READ), reads);
}

Test(bucket, without_a_quorum_reads_go_on_for_a_minute_and_writes_do_not, .init = setup,
     .fini = teardown) {
  struct objects *o = &cluster->objects;
  cr_assert_eq(create(o, "b").err, 0);
  cr_assert_eq(lookup(o, "b", false).err, 0);
  fake_run(&bed);
  all_down();
  fake_run_for(&bed, 30000);
  cr_assert_eq(lookup(o, "b", true).err, ERR_UNAVAILABLE);
  cr_assert_eq(lookup(o, "b", false).err, 0);
  cr_assert_eq(lookup(o, "never-seen", false).err, ERR_UNAVAILABLE, "not: no such bucket");
  fake_run_for(&bed, 31000);
  cr_assert_eq(lookup(o, "b", false).err, ERR_UNAVAILABLE);
  all_up();
}

Test(bucket, create_without_a_quorum_makes_nothing, .init = setup, .fini = teardown) {
  for (unsigned i = 0; i < 4; i++) fake_peer_down(&cluster->drives[i]);
  cr_assert_eq(create(&cluster->objects, "b").err, ERR_UNAVAILABLE);
  all_up();
  fake_run(&bed);
  cr_assert_eq(lookup(&cluster->objects, "b", true).err, ERR_NO_SUCH_BUCKET);
}

/* All answers to the ACCEPTs are lost, the drives have executed them. */
Test(bucket, a_create_whose_answer_was_lost_is_recognised_as_its_own, .init = setup,
     .fini = teardown) {
  for (unsigned i = 0; i < 6; i++)
    fake_peer_lose_answer(&cluster->drives[i], PEER_ACCEPT, 1, ERR_PEER_DOWN);
  struct answer made = create(&cluster->objects, "b");
  cr_assert_eq(made.err, 0);
  for (unsigned i = 0; i < 6; i++) fake_peer_heal(&cluster->drives[i]);
  struct answer found = lookup(fake_cluster_gateway(cluster), "b", true);
  cr_assert(found.err == 0 && id128_eq(&found.info.uuid, &made.info.uuid));
}

Test(bucket, of_racing_creates_exactly_one_prevails) {
  for (uint64_t seed = 1; seed <= 40; seed++) {
    open_seed(seed);
    for (unsigned i = 0; i < 6; i++) cluster->drives[i].jitter_ms = 9;
    struct answer a[5] = {{0}};
    unsigned won = 0;
    for (unsigned i = 0; i < 5; i++) {
      struct objects *o = i ? fake_cluster_gateway(cluster) : &cluster->objects;
      bucket_create(o, SLICE_LIT("b"), cluster->pool, SLICE_LIT("root"), answered, &a[i]);
    }
    fake_run(&bed);
    struct answer found = lookup(fake_cluster_gateway(cluster), "b", true);
    for (unsigned i = 0; i < 5; i++) {
      cr_assert(a[i].done);
      cr_assert(a[i].err == 0 || a[i].err == ERR_BUCKET_EXISTS || a[i].err == ERR_CONFLICT, "%s",
                err_name(a[i].err));
      if (a[i].err != 0) continue;
      won++;
      cr_assert(found.err == 0 && id128_eq(&found.info.uuid, &a[i].info.uuid));
    }
    cr_assert_leq(won, 1);
    cr_assert(won == 1 || found.err == ERR_NO_SUCH_BUCKET, "seed %u", (unsigned)seed);
    teardown();
  }
}

/* ---- delete ---- */

Test(bucket, a_deleted_bucket_is_gone_and_its_successor_is_another, .init = setup,
     .fini = teardown) {
  struct objects *o = &cluster->objects, *other = fake_cluster_gateway(cluster);
  struct answer first = create(o, "b");
  cr_assert_eq(put(o, &first.info, "k"), 0);
  cr_assert_eq(remove_key(o, &first.info, "k"), 0);
  cr_assert_eq(delete (other, "b"), 0);
  cr_assert_eq(delete (other, "b"), ERR_NO_SUCH_BUCKET);
  cr_assert_eq(lookup(other, "b", true).err, ERR_NO_SUCH_BUCKET);
  struct answer second = create(o, "b");
  cr_assert_eq(second.err, 0);
  cr_assert(!id128_eq(&first.info.uuid, &second.info.uuid));
  cr_assert_eq(put(o, &first.info, "late"), ERR_BUCKET_DELETING, "a stale gateway writes nothing");
  cr_assert_eq(put(o, &second.info, "k"), 0);
}

/* A look-up is believed for a second: when the successor is acknowledged nobody may mean the old
 * one any more, or an object that was acknowledged in it would not be found. */
Test(bucket, nobody_means_the_predecessor_of_an_acknowledged_bucket, .init = setup,
     .fini = teardown) {
  struct objects *o = &cluster->objects, *other = fake_cluster_gateway(cluster);
  struct answer first = create(o, "b");
  cr_assert_eq(delete (o, "b"), 0);
  cr_assert_eq(lookup(other, "b", true).err, ERR_NO_SUCH_BUCKET);
  struct answer again = create(o, "b");
  for (int i = 0; i < 3; i++) {
    cr_assert_eq(lookup(other, "b", true).err, 0, "it is believed from now on");
    cr_assert_eq(delete (o, "b"), 0);
    again = create(o, "b");
    cr_assert_eq(again.err, 0);
    struct answer seen = lookup(other, "b", i % 2);
    cr_assert_eq(seen.err, 0);
    cr_assert(id128_eq(&seen.info.uuid, &again.info.uuid));
    cr_assert_eq(put(other, &seen.info, "k"), 0);
    cr_assert_eq(remove_key(other, &seen.info, "k"), 0);
  }
  cr_assert(!id128_eq(&first.info.uuid, &again.info.uuid));
  uint64_t now = env_now_ms(o->env);
  cr_assert_eq(create(o, "never-before").err, 0);
  cr_assert_lt(env_now_ms(o->env) - now, BUCKET_CACHE_FRESH_MS, "only a successor waits");
}

Test(bucket, a_bucket_with_an_object_is_not_deleted_nor_disturbed, .init = setup,
     .fini = teardown) {
  struct objects *o = &cluster->objects;
  struct answer made = create(o, "b");
  cr_assert_eq(put(o, &made.info, "k"), 0);
  struct version before = stored("b").ver;
  cr_assert_eq(delete (o, "b"), ERR_BUCKET_NOT_EMPTY);
  struct version after = stored("b").ver;
  cr_assert_eq(version_cmp(&before, &after), 0, "not even marked");
  cr_assert_eq(fake_calls(cluster, PEER_BUCKET), 0);
  cr_assert_eq(put(o, &made.info, "k2"), 0);
}

Test(bucket, emptiness_is_not_claimed_without_r_drives_everywhere, .init = setup,
     .fini = teardown) {
  struct objects *o = &cluster->objects;
  cr_assert_eq(create(o, "b").err, 0);
  for (unsigned i = 0; i < 6; i++)
    fake_peer_fail(&cluster->drives[i], PEER_LIST, 0, ERR_DRIVE_FAILED);
  cr_assert_eq(delete (o, "b"), ERR_UNAVAILABLE);
  for (unsigned i = 0; i < 6; i++) fake_peer_heal(&cluster->drives[i]);
  cr_assert_eq(lookup(o, "b", true).err, 0);
  cr_assert_eq(delete (o, "b"), 0);
}

/* R = 2 for 4+2: one drive that refuses new objects stops no quorum of 5. */
Test(bucket, a_push_needs_r_holders_in_every_partition, .init = setup, .fini = teardown) {
  struct objects *o = &cluster->objects;
  struct answer made = create(o, "b");
  for (unsigned i = 0; i < 5; i++)
    fake_peer_fail(&cluster->drives[i], PEER_BUCKET, 0, ERR_DRIVE_FAILED);
  cr_assert_eq(delete (o, "b"), ERR_UNAVAILABLE);
  cr_assert_eq(lookup(o, "b", true).err, 0, "and it is ACTIVE again");
  for (unsigned i = 0; i < 6; i++) fake_peer_heal(&cluster->drives[i]);
  cr_assert_eq(put(o, &made.info, "k"), 0);
  cr_assert_eq(remove_key(o, &made.info, "k"), 0);
  for (unsigned i = 0; i < 4; i++)
    fake_peer_fail(&cluster->drives[i], PEER_BUCKET, 0, ERR_DRIVE_FAILED);
  cr_assert_eq(delete (o, "b"), 0);
  cr_assert_lt(put(o, &made.info, "late"), 0, "four drives accept, two do not: no quorum");
}

static struct bucket_info sneaky_bucket;
static bool sneaked;

/* A PUT whose row one drive took before it heard of DELETING, and is on its way to another that has
 * not heard of it: the list of the deletion must not take the other's word. */
static void half_put(struct fake_cluster *c, struct fake_peer *p, const struct peer_request *req) {
  if (req->verb != PEER_BUCKET || req->bucket_state != BUCKET_DELETING || sneaked) return;
  sneaked = true;
  struct bucket_info own = c->bucket;
  c->bucket = sneaky_bucket;
  fake_object_store(c, SLICE_LIT("half"), (const uint8_t *)"x", 1, 1u, 0);
  c->bucket = own;
}

Test(bucket, what_may_still_be_accepted_elsewhere_keeps_the_bucket) {
  fake_bed_open(&bed, 12);
  cluster = fake_cluster_open(&bed, 2, 1, 1, 1, "reed_sol_van", 4096);
  struct objects *o = &cluster->objects;
  struct answer made = create(o, "b");
  cr_assert_eq(made.err, 0);
  sneaky_bucket = made.info;
  sneaked = false;
  cluster->on_request = half_put;
  struct bucket_info own = cluster->bucket;
  cluster->bucket = made.info; /* where the key's other slot lies */
  fake_peer_fail(fake_slot(cluster, SLICE_LIT("half"), 1), PEER_BUCKET, 1, ERR_TIMEOUT);
  cluster->bucket = own;
  cr_assert_eq(delete (o, "b"), ERR_UNAVAILABLE);
  cr_assert(sneaked);
  fake_run(&bed);
  struct answer found = lookup(o, "b", true);
  cr_assert(found.err == 0 && id128_eq(&found.info.uuid, &made.info.uuid), "it is ACTIVE again");
  cr_assert_eq(delete (o, "b"), 0, "and goes once both refuse");
  fake_cluster_close(cluster);
  fake_bed_close(&bed);
}

/* An object that is written between the first look and the push. */
static void sneak(struct fake_cluster *c, struct fake_peer *p, const struct peer_request *req) {
  if (req->verb != PEER_BUCKET || req->bucket_state != BUCKET_DELETING || sneaked) return;
  sneaked = true;
  struct bucket_info own = c->bucket;
  c->bucket = sneaky_bucket;
  fake_object_store(c, SLICE_LIT("sneaked"), (const uint8_t *)"x", 1, ALL, ALL);
  c->bucket = own;
}

static void expect_all_active(const struct id128 *uuid) {
  for (unsigned i = 0; i < 6; i++) {
    list_foreach(it, &cluster->drives[i].drive.buckets) {
      struct fake_bucket *b = container_of(it, struct fake_bucket, link);
      if (id128_eq(&b->bucket, uuid)) cr_assert_eq(b->state, BUCKET_ACTIVE, "drive %u", i);
    }
  }
}

Test(bucket, an_object_written_before_the_push_brings_the_bucket_back, .init = setup,
     .fini = teardown) {
  struct objects *o = &cluster->objects;
  struct answer made = create(o, "b");
  sneaky_bucket = made.info;
  sneaked = false;
  cluster->on_request = sneak;
  cr_assert_eq(delete (o, "b"), ERR_BUCKET_NOT_EMPTY);
  cr_assert(sneaked);
  struct answer found = lookup(o, "b", true);
  cr_assert(found.err == 0 && id128_eq(&found.info.uuid, &made.info.uuid));
  cr_assert_eq(put(o, &made.info, "k2"), 0, "writable at once");
  fake_run(&bed);
  expect_all_active(&made.info.uuid);
  cr_assert(!stored("b").revived, "and all drives know it");
}

Test(bucket, a_drive_that_missed_the_revival_is_told_when_it_is_back, .init = setup,
     .fini = teardown) {
  struct objects *o = &cluster->objects;
  struct answer made = create(o, "b");
  sneaky_bucket = made.info;
  sneaked = false;
  cluster->on_request = sneak;
  /* executes the first push (DELETING), never hears of the second */
  fake_peer_fail(&cluster->drives[1], PEER_BUCKET, 2, ERR_PEER_DOWN);
  cr_assert_eq(delete (o, "b"), ERR_BUCKET_NOT_EMPTY);
  fake_run(&bed);
  cr_assert(stored("b").revived, "the mark stays while a drive does not know");
  fake_peer_heal(&cluster->drives[1]);
  cr_assert_eq(lookup(o, "b", true).err, 0);
  fake_run(&bed);
  expect_all_active(&made.info.uuid);
  cr_assert(!stored("b").revived);
  for (unsigned i = 2; i < 6; i++) cr_assert_eq(lookup(o, "b", true).err, 0);
}

/* The gateway's world ends when the first drive is told. */
static void die_at_push(struct fake_cluster *c, struct fake_peer *p,
                        const struct peer_request *req) {
  if (req->verb == PEER_BUCKET) all_down();
}

static void leave_deleting(const char *name) {
  cluster->on_request = die_at_push;
  cr_assert_eq(delete (&cluster->objects, name), ERR_UNAVAILABLE);
  cluster->on_request = NULL;
  all_up();
  fake_run(&bed);
  cr_assert_eq(stored(name).info.state, BUCKET_DELETING);
}

Test(bucket, a_later_delete_finishes_what_a_dead_gateway_left, .init = setup, .fini = teardown) {
  struct objects *o = fake_cluster_gateway(cluster);
  cr_assert_eq(create(o, "b").err, 0);
  leave_deleting("b");
  fake_run_for(&bed, 2000);
  cr_assert_eq(lookup(o, "b", false).err, ERR_BUCKET_DELETING);
  cr_assert_eq(delete (o, "b"), 0);
  cr_assert_eq(lookup(o, "b", false).err, ERR_NO_SUCH_BUCKET);
}

Test(bucket, a_create_finishes_the_delete_of_an_empty_predecessor, .init = setup,
     .fini = teardown) {
  struct objects *o = fake_cluster_gateway(cluster);
  struct answer first = create(o, "b");
  leave_deleting("b");
  struct answer second = create(o, "b");
  cr_assert_eq(second.err, 0);
  cr_assert(!id128_eq(&first.info.uuid, &second.info.uuid));
}

Test(bucket, a_create_does_not_swallow_a_predecessor_with_objects, .init = setup,
     .fini = teardown) {
  struct objects *o = fake_cluster_gateway(cluster);
  struct answer first = create(o, "b");
  leave_deleting("b");
  struct bucket_info own = cluster->bucket;
  cluster->bucket = first.info;
  fake_object_store(cluster, SLICE_LIT("kept"), (const uint8_t *)"x", 1, ALL, ALL);
  cluster->bucket = own;
  struct answer second = create(o, "b");
  cr_assert_eq(second.err, ERR_BUCKET_EXISTS);
  cr_assert(id128_eq(&first.info.uuid, &second.info.uuid));
  cr_assert_eq(lookup(o, "b", true).err, 0, "it is ACTIVE again");
  cr_assert_eq(put(o, &first.info, "k2"), 0);
}

/* PROTOCOL.md 12: no object is acknowledged in a bucket that is then gone. */
Test(bucket, a_put_and_a_delete_of_its_bucket_never_both_succeed) {
  unsigned put_won = 0, delete_won = 0;
  for (uint64_t seed = 1; seed <= 150; seed++) {
    open_seed(seed);
    struct objects *deleter = fake_cluster_gateway(cluster);
    struct answer made = create(&cluster->objects, "b"), p = {0}, d = {0};
    for (unsigned i = 0; i < 6; i++) cluster->drives[i].jitter_ms = 12;
    if (seed % 3 == 0) fake_peer_down(&cluster->drives[seed % 6]);
    bucket_delete(deleter, SLICE_LIT("b"), answered, &d);
    fake_run_for(&bed, fake_random_below(&bed, 90));
    cr_assert_eq(put_start(&cluster->objects, &made.info, "k", &p), 0);
    fake_run(&bed);
    cr_assert(p.done && d.done);
    cr_assert(!(p.err == 0 && d.err == 0), "seed %u: a lost object", (unsigned)seed);
    put_won += p.err == 0;
    delete_won += d.err == 0;
    fake_peer_up(&cluster->drives[seed % 6]);
    struct answer found = lookup(fake_cluster_gateway(cluster), "b", true);
    if (p.err == 0) cr_assert_eq(found.err, 0, "seed %u: %s", (unsigned)seed, err_name(found.err));
    teardown();
  }
  cr_assert(put_won > 10 && delete_won > 10, "%u and %u: both must happen", put_won, delete_won);
}

/* Two gateways finish one delete differently, for lists fail now and then: one brings the bucket
 * back and objects come in, the other must not remove it after that. */
Test(bucket, a_bucket_that_one_gateway_brought_back_is_not_removed_by_another) {
  unsigned kept = 0, gone = 0;
  for (uint64_t seed = 1; seed <= 300; seed++) {
    open_seed(seed);
    struct answer made = create(&cluster->objects, "b"), p[6] = {{0}}, d[2] = {{0}};
    for (unsigned i = 0; i < 6; i++) cluster->drives[i].jitter_ms = 12;
    unsigned nth = 1 + (unsigned)fake_random_below(&bed, 5);
    for (unsigned i = 0; i < 5; i++)
      fake_peer_fail(&cluster->drives[i], PEER_LIST, nth, ERR_DRIVE_FAILED);
    for (unsigned i = 0; i < 2; i++) {
      bucket_delete(fake_cluster_gateway(cluster), SLICE_LIT("b"), answered, &d[i]);
      fake_run_for(&bed, fake_random_below(&bed, 60));
    }
    for (unsigned i = 0; i < 6; i++) {
      cr_assert_eq(put_start(&cluster->objects, &made.info, "k", &p[i]), 0);
      fake_run_for(&bed, fake_random_below(&bed, 60));
    }
    fake_run(&bed);
    struct answer found = lookup(fake_cluster_gateway(cluster), "b", true);
    bool written = false, removed = found.err == ERR_NO_SUCH_BUCKET;
    for (unsigned i = 0; i < 6; i++) written = written || p[i].err == 0;
    cr_assert(!(written && removed), "seed %u: a lost object", (unsigned)seed);
    cr_assert(!(written && (d[0].err == 0 || d[1].err == 0)));
    kept += written;
    gone += removed;
    teardown();
  }
  cr_assert(kept > 20 && gone > 20, "%u and %u: both must happen", kept, gone);
}

/* Deletes and creates of one name by many gateways: nobody is left half way, and a bucket that was
 * acknowledged last is there. */
Test(bucket, racing_creates_and_deletes_end_decided) {
  for (uint64_t seed = 1; seed <= 40; seed++) {
    open_seed(seed);
    struct answer a[6] = {{0}};
    cr_assert_eq(create(&cluster->objects, "b").err, 0);
    for (unsigned i = 0; i < 6; i++) cluster->drives[i].jitter_ms = 9;
    for (unsigned i = 0; i < 6; i++) {
      struct objects *o = fake_cluster_gateway(cluster);
      if (i % 2)
        bucket_create(o, SLICE_LIT("b"), cluster->pool, SLICE_LIT("root"), answered, &a[i]);
      else
        bucket_delete(o, SLICE_LIT("b"), answered, &a[i]);
      fake_run_for(&bed, fake_random_below(&bed, 20));
    }
    fake_run(&bed);
    struct answer found = lookup(fake_cluster_gateway(cluster), "b", true);
    cr_assert(found.err == 0 || found.err == ERR_NO_SUCH_BUCKET ||
              found.err == ERR_BUCKET_DELETING);
    for (unsigned i = 0; i < 6; i++) cr_assert(a[i].done);
    if (found.err == 0) {
      struct answer p = {0};
      cr_assert_eq(put_start(&cluster->objects, &found.info, "k", &p), 0);
      cr_assert_eq(wait_for(&p).err, 0, "seed %u: an active bucket can be written", (unsigned)seed);
    }
    teardown();
  }
}

/* ---- list ---- */

static void buckets_came(void *arg, int err, const struct bucket_info *buckets, unsigned count,
                         bool truncated) {
  struct listing *l = arg;
  l->done = true;
  l->err = err;
  l->count = count;
  l->truncated = truncated;
  cr_assert_leq(count, NAMES_MAX);
  for (unsigned i = 0; i < count; i++) l->buckets[i] = buckets[i];
}

static struct listing *list(const char *from, const char *prefix, unsigned limit) {
  static struct listing l;
  memset(&l, 0, sizeof l);
  bucket_list(&cluster->objects, slice_str(from), slice_str(prefix), limit, buckets_came, &l);
  cr_assert(!l.done);
  cr_assert(fake_run_while_not(&bed, &l.done));
  return &l;
}

Test(bucket, list_is_ordered_and_paged_and_leaves_out_what_goes, .init = setup, .fini = teardown) {
  char name[64], from[64] = "";
  cr_assert(list("", "", 10)->count == 0);
  for (unsigned i = 0; i < 30; i++) {
    snprintf(name, sizeof name, "b%02u", (i * 7) % 30);
    cr_assert_eq(create(&cluster->objects, name).err, 0);
  }
  cr_assert_eq(create(&cluster->objects, "other").err, 0);
  for (unsigned i = 3; i < 9; i++) {
    snprintf(name, sizeof name, "b%02u", i);
    cr_assert_eq(delete (&cluster->objects, name), 0);
  }
  leave_deleting("b10");
  unsigned want = 0, pages = 0;
  struct listing *l;
  do {
    l = list(from, "b", 4);
    cr_assert_eq(l->err, 0);
    cr_assert(l->count == 4 || !l->truncated);
    for (unsigned i = 0; i < l->count; i++, want++) {
      if (want == 3) want = 9;
      if (want == 10) want = 11;
      snprintf(name, sizeof name, "b%02u", want);
      cr_assert_str_eq(l->buckets[i].name, name);
      cr_assert_str_eq(l->buckets[i].owner, "root");
      memcpy(from, name, sizeof from);
    }
    pages++;
  } while (l->truncated);
  cr_assert(want == 30 && pages == 6);
  l = list("", "", 64);
  cr_assert(l->count == 24 && strcmp(l->buckets[23].name, "other") == 0);
  all_down();
  cr_assert_eq(list("", "", 64)->err, ERR_UNAVAILABLE);
  all_up();
}

Test(bucket, list_arguments_out_of_range, .init = setup, .fini = teardown) {
  cr_assert_eq(list("", "", 0)->err, ERR_INVALID);
  cr_assert_eq(list("", "", 1001)->err, ERR_INVALID);
}

/* ---- rows and cache ---- */

Test(bucket, a_row_with_a_field_missing_or_senseless_is_corrupt, .init = setup, .fini = teardown) {
  struct attr good[] = {{SLICE_LIT("uuid"), SLICE_LIT("00112233445566778899aabbccddeeff")},
                        {SLICE_LIT("pool"), SLICE_LIT("default")},
                        {SLICE_LIT("state"), SLICE_LIT("active")},
                        {SLICE_LIT("created"), SLICE_LIT("12")}};
  static const char *const bad[] = {"0011", "nopool", "dead", "12x"};
  struct row row = {.ver = {1, 1}, .kind = ROW_PUT, .profile = {.k = 1, .unit_bytes = 64}};
  for (int i = -1; i < 4; i++) {
    struct attr attrs[4];
    memcpy(attrs, good, sizeof good);
    if (i >= 0) attrs[i].value = slice_str(bad[i]);
    for (unsigned leave_out = 0; leave_out < 2; leave_out++) {
      if (leave_out && i >= 0) attrs[i].name = SLICE_LIT("x");
      uint8_t *bytes = NULL;
      size_t len = 0;
      struct row got;
      struct bucket_row bucket;
      cr_assert_eq(row_encode(&row, attrs, 4, &bucket_system_uuid, SLICE_LIT("b"), &bytes, &len),
                   0);
      cr_assert_eq(row_decode(slice_of(bytes, len), &bucket_system_uuid, SLICE_LIT("b"), &got), 0);
      cr_assert_eq(bucket_row_parse(&cluster->objects, SLICE_LIT("b"), &got, &bucket),
                   i < 0 ? 0 : ERR_CORRUPT);
      free(bytes);
    }
  }
}

Test(bucket, the_cache_is_bounded_and_keeps_the_newest) {
  struct bucket_cache *cache = NULL;
  struct bucket_info info = {.created_ms = 1}, got;
  cr_assert_eq(bucket_cache_new(&cache), 0);
  for (unsigned i = 0; i < 5000; i++) {
    snprintf(info.name, sizeof info.name, "n%u", i);
    bucket_cache_store(cache, &info, 100 + i);
    cr_assert(bucket_cache_find(cache, slice_str(info.name), 100 + i, 0, &got));
  }
  unsigned found = 0;
  for (unsigned i = 0; i < 5000; i++) {
    snprintf(info.name, sizeof info.name, "n%u", i);
    found += bucket_cache_find(cache, slice_str(info.name), 6000, 6000, &got);
  }
  cr_assert_leq(found, BUCKET_CACHE_SETS * BUCKET_CACHE_WAYS);
  cr_assert_gt(found, 500);
  snprintf(info.name, sizeof info.name, "n4999");
  info.created_ms = 2;
  bucket_cache_store(cache, &info, 50); /* a slow read that began earlier */
  cr_assert(bucket_cache_find(cache, SLICE_LIT("n4999"), 6000, 6000, &got) && got.created_ms == 1);
  cr_assert(!bucket_cache_find(cache, SLICE_LIT("n4999"), 6000, 900, &got), "too old");
  bucket_cache_drop(cache, SLICE_LIT("n4999"));
  cr_assert(!bucket_cache_find(cache, SLICE_LIT("n4999"), 6000, 6000, &got));
  bucket_cache_free(cache);
}
