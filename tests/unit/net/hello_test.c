/* hello_test.c: HELLO's bytes, the proofs, and the handshake between two ends in memory. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "config/err.h"
#include "tests/unit/net/net_bed.h"

static struct hello sample(void) {
  struct hello h = {.protocol_min = 1,
                    .protocol_max = 3,
                    .cluster_name = "demo",
                    .host_id = "n2",
                    .boot = BOOT_FORMATTED,
                    .cluster_id = {{9, 8, 7}},
                    .epoch = 5,
                    .map_digest = {1, 2},
                    .table_digest = {3, 4},
                    .wall_ms = 123456789,
                    .drive_count = 2,
                    .canonical = "cluster demo\nhost n2\n"};
  h.drives[0] = (struct hello_drive){3, true, {{1}}, 10};
  h.drives[1] = (struct hello_drive){4, false, {{2}}, 11};
  return h;
}

Test(hello, goes_there_and_back_and_refuses_every_cut) {
  struct hello h = sample(), *back = calloc(1, sizeof *back);
  uint8_t challenge[HELLO_CHALLENGE_BYTES] = {42}, got[HELLO_CHALLENGE_BYTES] = {1};
  struct byte_writer w = {.max = HELLO_BYTES_MAX};
  hello_put(&w, &h, challenge);
  cr_assert(!w.failed);
  for (size_t len = 0; len < w.len; len++) {
    uint8_t *cut = malloc(len ? len : 1);
    memcpy(cut, w.data, len);
    cr_assert_eq(hello_get(slice_of(cut, len), back, got), ERR_PROTOCOL, "at %zu", len);
    free(cut);
  }
  cr_assert(back->epoch == 0 && got[0] == 1, "results were touched");
  put_u8(&w, 99); /* a newer version's field */
  cr_assert_eq(hello_get(slice_of(w.data, w.len), back, got), 0);
  cr_assert(back->protocol_min == 1 && back->protocol_max == 3 && back->boot == BOOT_FORMATTED);
  cr_assert_str_eq(back->cluster_name, "demo");
  cr_assert_str_eq(back->host_id, "n2");
  cr_assert(id128_eq(&back->cluster_id, &h.cluster_id));
  cr_assert(back->epoch == 5 && back->wall_ms == 123456789 && back->drive_count == 2);
  cr_assert_eq(memcmp(back->map_digest, h.map_digest, SHA256_LEN), 0);
  cr_assert_eq(memcmp(back->table_digest, h.table_digest, SHA256_LEN), 0);
  cr_assert(back->drives[0].drive == 3 && back->drives[0].usable && !back->drives[1].usable);
  cr_assert(back->drives[1].boot_counter == 11 && back->drives[1].drive_id.bytes[0] == 2);
  cr_assert_str_eq(back->canonical, h.canonical);
  cr_assert_eq(memcmp(got, challenge, sizeof got), 0);
  byte_writer_free(&w);
  free(back);
}

Test(hello, flipped_bytes_never_read_beyond_the_end) {
  struct hello h = sample(), *back = calloc(1, sizeof *back);
  uint8_t challenge[HELLO_CHALLENGE_BYTES] = {42};
  struct byte_writer w = {.max = HELLO_BYTES_MAX};
  hello_put(&w, &h, challenge);
  uint8_t *bytes = malloc(w.len);
  memcpy(bytes, w.data, w.len);
  for (size_t i = 0; i < w.len; i++) {
    for (unsigned v = 0; v < 256; v += 3) {
      bytes[i] = (uint8_t)v;
      if (hello_get(slice_of(bytes, w.len), back, challenge) == 0) {
        cr_assert_leq(back->drive_count, MAP_DRIVES_MAX);
        cr_assert_lt(strlen(back->canonical), w.len);
        cr_assert_leq(strlen(back->host_id), SETTINGS_NAME_BYTES_MAX);
      }
    }
    bytes[i] = w.data[i];
  }
  free(bytes);
  free(back);
  byte_writer_free(&w);
}

Test(hello, proofs_depend_on_role_secret_challenges_and_hellos) {
  uint8_t a[HELLO_CHALLENGE_BYTES] = {1}, b[HELLO_CHALLENGE_BYTES] = {2};
  struct hello_transcript t = {a, b, SLICE_LIT("hello one"), SLICE_LIT("hello two")};
  uint8_t proof[SHA256_LEN], other[SHA256_LEN];
  struct slice secret = SLICE_LIT("secret");
  cr_assert_eq(hello_proof(secret, HELLO_CONNECTOR, &t, proof), 0);
  cr_assert_eq(hello_proof(secret, HELLO_CONNECTOR, &t, other), 0);
  cr_assert(digest_equal(proof, other, SHA256_LEN));
#define DIFFERS(sec, role, transcript)                             \
  do {                                                             \
    cr_assert_eq(hello_proof(sec, role, &(transcript), other), 0); \
    cr_assert(!digest_equal(proof, other, SHA256_LEN));            \
  } while (0)
  DIFFERS(secret, HELLO_LISTENER, t);
  DIFFERS(SLICE_LIT("secreT"), HELLO_CONNECTOR, t);
  struct hello_transcript swapped = {b, a, t.connector_hello, t.listener_hello};
  DIFFERS(secret, HELLO_CONNECTOR, swapped);
  struct hello_transcript moved = {a, b, SLICE_LIT("hello oneh"), SLICE_LIT("ello two")};
  DIFFERS(secret, HELLO_CONNECTOR, moved);
  struct hello_transcript changed = {a, b, SLICE_LIT("hello one"), SLICE_LIT("hello twO")};
  DIFFERS(secret, HELLO_CONNECTOR, changed);
#undef DIFFERS
}

Test(hello, versions) {
  uint16_t v = 0;
  cr_assert(hello_version_agree(1, 1, &v) == 0 && v == 1);
  cr_assert(hello_version_agree(1, 9, &v) == 0 && v == HELLO_PROTOCOL_MAX);
  cr_assert_eq(hello_version_agree(2, 9, &v), ERR_REFUSED);
  cr_assert_eq(hello_version_agree(0, 0, &v), ERR_REFUSED);
  cr_assert_eq(hello_get_versions(SLICE_LIT("\0\2\0\1"), &v, &v), ERR_PROTOCOL);
  cr_assert_eq(hello_get_versions(SLICE_LIT("\0\1\0"), &v, &v), ERR_PROTOCOL);
}

Test(hello, bye_carries_words_and_no_control_characters) {
  struct byte_writer w = {.max = 4096};
  char words[HELLO_WORDS_BYTES_MAX] = "untouched";
  int err = 0;
  hello_put_bye(&w, ERR_REFUSED, "secret\n differs\x1b[0m");
  cr_assert_eq(hello_get_bye(slice_of(w.data, w.len - 1), &err, words), ERR_PROTOCOL);
  cr_assert(err == 0 && strcmp(words, "untouched") == 0);
  cr_assert_eq(hello_get_bye(slice_of(w.data, w.len), &err, words), 0);
  cr_assert_eq(err, ERR_REFUSED);
  cr_assert_str_eq(words, "secret? differs?[0m");
  byte_writer_free(&w);
}

/* ---- the handshake, both ends in memory ---- */

struct ends {
  struct cluster_map map1, map2;
  struct bed_policy p1, p2;
  struct handshake c, l; /* n1 connects to n2 */
};

static void ends_open(struct ends *e, const char *secret1, const char *secret2) {
  bed_map(&e->map1, 0, NULL, NULL);
  bed_map(&e->map2, 1, NULL, NULL);
  bed_policy_open(&e->p1, &e->map1, secret1);
  bed_policy_open(&e->p2, &e->map2, secret2);
}

static struct slice ours(const struct handshake *hs) {
  return slice_of(hs->ours.data, hs->ours.len);
}

/* The result of the listener's, then of the connector's check; `why` of who refused. */
static int shake(struct ends *e, char why[HELLO_WORDS_BYTES_MAX], bool *ret_listener_refused) {
  uint8_t c1[HELLO_CHALLENGE_BYTES] = {1}, c2[HELLO_CHALLENGE_BYTES] = {2}, proof[SHA256_LEN];
  cr_assert_eq(handshake_open(&e->c, &e->p1.policy, &e->map1, HELLO_CONNECTOR, 1, c1), 0);
  cr_assert_eq(handshake_open(&e->l, &e->p2.policy, &e->map2, HELLO_LISTENER, -1, c2), 0);
  cr_assert_eq(handshake_hello(&e->l, ours(&e->c)), 0);
  cr_assert_eq(handshake_hello(&e->c, ours(&e->l)), 0);
  cr_assert_eq(handshake_prove(&e->c, proof), 0);
  *ret_listener_refused = true;
  int err = handshake_proof(&e->l, slice_of(proof, sizeof proof));
  memcpy(why, e->l.why, HELLO_WORDS_BYTES_MAX);
  if (err < 0) return err;
  *ret_listener_refused = false;
  cr_assert_eq(handshake_prove(&e->l, proof), 0);
  err = handshake_proof(&e->c, slice_of(proof, sizeof proof));
  memcpy(why, e->c.why, HELLO_WORDS_BYTES_MAX);
  return err;
}

static void ends_close(struct ends *e) {
  handshake_close(&e->c);
  handshake_close(&e->l);
}

Test(handshake, two_hosts_of_one_cluster_agree) {
  struct ends *e = calloc(1, sizeof *e);
  char why[HELLO_WORDS_BYTES_MAX];
  bool by_listener;
  ends_open(e, "s3cret", "s3cret");
  cr_assert_eq(shake(e, why, &by_listener), 0);
  cr_assert(e->c.host == 1 && e->l.host == 0 && e->c.version == 1);
  cr_assert_str_eq(e->l.remote->host_id, "n1");
  cr_assert(e->c.step == HANDSHAKE_DONE && e->l.step == HANDSHAKE_DONE);
  ends_close(e);
  free(e);
}

static void assert_refused(struct ends *e, bool by_listener, const char *words) {
  char why[HELLO_WORDS_BYTES_MAX];
  bool listener;
  cr_assert_eq(shake(e, why, &listener), ERR_REFUSED);
  cr_assert_eq(listener, by_listener);
  cr_assert(strstr(why, words), "\"%s\" lacks \"%s\"", why, words);
  cr_assert_eq(e->l.host, by_listener ? -1 : 0);
  cr_assert_eq(e->c.host, -1, "somebody was believed");
  ends_close(e);
  free(e);
}

Test(handshake, another_secret_is_refused_before_anything_is_proved_to_it) {
  struct ends *e = calloc(1, sizeof *e);
  ends_open(e, "s3cret", "other");
  assert_refused(e, true, "cluster secret differs");
}

Test(handshake, without_a_secret_nobody_gets_in) {
  struct ends *e = calloc(1, sizeof *e);
  ends_open(e, "", "");
  assert_refused(e, true, "no cluster secret is set");
}

Test(handshake, another_membership_is_refused_in_words) {
  struct ends *e = calloc(1, sizeof *e);
  ends_open(e, "s", "s");
  e->p1.canonical = "three hosts";
  assert_refused(e, true, "membership differs: they have \"three hosts\"");
}

Test(handshake, an_unknown_host_is_refused) {
  struct ends *e = calloc(1, sizeof *e);
  ends_open(e, "s", "s");
  e->p1.host_id = "n9";
  assert_refused(e, true, "no host n9 is known here");
}

Test(handshake, a_host_with_our_own_name_is_refused) {
  struct ends *e = calloc(1, sizeof *e);
  ends_open(e, "s", "s");
  e->p1.host_id = "n2";
  assert_refused(e, true, "both say that they are host n2");
}

Test(handshake, the_connector_refuses_another_host_at_the_address) {
  struct ends *e = calloc(1, sizeof *e);
  ends_open(e, "s", "s");
  e->p2.host_id = "n7";
  assert_refused(e, false, "at the address of host n2 answers host n7");
}

Test(handshake, a_mirror_is_refused) {
  struct ends *e = calloc(1, sizeof *e);
  uint8_t c[HELLO_CHALLENGE_BYTES] = {1};
  ends_open(e, "s", "s");
  cr_assert_eq(handshake_open(&e->c, &e->p1.policy, &e->map1, HELLO_CONNECTOR, 1, c), 0);
  cr_assert_eq(handshake_hello(&e->c, ours(&e->c)), ERR_REFUSED);
  ends_close(e);
  free(e);
}

Test(handshake, versions_that_do_not_meet_are_refused_before_the_rest_is_read) {
  struct ends *e = calloc(1, sizeof *e);
  uint8_t c[HELLO_CHALLENGE_BYTES] = {1};
  ends_open(e, "s", "s");
  cr_assert_eq(handshake_open(&e->l, &e->p2.policy, &e->map2, HELLO_LISTENER, -1, c), 0);
  cr_assert_eq(handshake_hello(&e->l, SLICE_LIT("\0\x02\0\x05 whatever comes in version 2")),
               ERR_REFUSED);
  cr_assert_str_eq(e->l.why, "protocol versions differ: they speak 2 to 5, we speak 1 to 1");
  ends_close(e);
  free(e);
}

Test(handshake, steps_out_of_order_are_refused) {
  struct ends *e = calloc(1, sizeof *e);
  uint8_t c1[HELLO_CHALLENGE_BYTES] = {1}, c2[HELLO_CHALLENGE_BYTES] = {2};
  uint8_t proof[SHA256_LEN] = {0};
  ends_open(e, "s", "s");
  cr_assert_eq(handshake_open(&e->c, &e->p1.policy, &e->map1, HELLO_CONNECTOR, 1, c1), 0);
  cr_assert_eq(handshake_open(&e->l, &e->p2.policy, &e->map2, HELLO_LISTENER, -1, c2), 0);
  cr_assert_eq(handshake_proof(&e->l, slice_of(proof, sizeof proof)), ERR_PROTOCOL);
  cr_assert_eq(handshake_hello(&e->l, ours(&e->c)), 0);
  cr_assert_eq(handshake_hello(&e->l, ours(&e->c)), ERR_PROTOCOL);
  cr_assert_eq(handshake_proof(&e->l, slice_of(proof, 31)), ERR_PROTOCOL);
  cr_assert_eq(handshake_proof(&e->l, slice_of(proof, 32)), ERR_REFUSED);
  ends_close(e);
  free(e);
}
