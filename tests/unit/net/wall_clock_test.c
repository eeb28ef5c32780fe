/* wall_clock_test.c: which clock counts where clocks disagree, and what travels in a PONG. */
#include "storage/net/wall_clock.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "storage/net/hello.h"
#include "storage/object/version.h"

#define HOUR_MS ((int64_t)3600000)

static int64_t shown(int64_t own, const int64_t *peers, unsigned count) {
  struct wall_clock_peers p = {0};
  int64_t low, high;
  for (unsigned i = 0; i < count; i++) {
    p.heard[7 * i % WALL_CLOCK_PEERS_MAX] = true;
    p.off_ms[7 * i % WALL_CLOCK_PEERS_MAX] = peers[i];
  }
  wall_clock_bounds(&p, &low, &high);
  return wall_clock_corrected(own, low, high);
}

Test(wall_clock, alone_shows_its_own) {
  cr_assert_eq(shown(5, NULL, 0), 5);
  cr_assert_eq(shown(-HOUR_MS, NULL, 0), -HOUR_MS);
}

Test(wall_clock, small_differences_are_nobodys_business) {
  int64_t peers[] = {0, 10, -10, 20, -20};
  cr_assert_eq(shown(WALL_CLOCK_TRUST_MS - 100, peers, 5), WALL_CLOCK_TRUST_MS - 100);
  cr_assert_eq(shown(100 - WALL_CLOCK_TRUST_MS, peers, 5), 100 - WALL_CLOCK_TRUST_MS);
}

Test(wall_clock, a_clock_that_is_off_gives_way_to_the_median) {
  int64_t peers[] = {3, -20, 10, 20, -10};
  cr_assert_eq(shown(HOUR_MS, peers, 5), 3); /* the lower median of six */
  cr_assert_eq(shown(-HOUR_MS, peers, 5), -10);
  cr_assert_eq(shown(HOUR_MS, peers, 2), 3);
  cr_assert_eq(shown(-HOUR_MS, peers, 2), -20);
}

Test(wall_clock, peers_that_are_off_do_not_move_a_good_clock) {
  int64_t ahead[] = {HOUR_MS, 1, 2, HOUR_MS, 3}, behind[] = {-HOUR_MS, 1, 2, -HOUR_MS, 3};
  cr_assert_eq(shown(0, ahead, 5), 0);
  cr_assert_eq(shown(5, behind, 5), 5);
}

/* Of two nobody knows which is right: the one that cannot poison a key. */
Test(wall_clock, of_two_clocks_the_lower_counts) {
  int64_t peer = 0;
  cr_assert_eq(shown(HOUR_MS, &peer, 1), 0);
  cr_assert_eq(shown(-HOUR_MS, &peer, 1), -HOUR_MS);
}

/* Every set of up to 7 clocks against sorting them. */
Test(wall_clock, is_the_lower_median) {
  srand(3);
  for (unsigned round = 0; round < 20000; round++) {
    int64_t peers[6], all[7];
    unsigned count = (unsigned)rand() % 7;
    for (unsigned i = 0; i <= count; i++) all[i] = (rand() % 9 - 4) * HOUR_MS;
    for (unsigned i = 0; i < count; i++) peers[i] = all[i];
    int64_t own = all[count], median = 0;
    for (unsigned i = 0; i <= count; i++) {
      unsigned below = 0, equal = 0;
      for (unsigned j = 0; j <= count; j++) {
        below += all[j] < all[i];
        equal += all[j] == all[i];
      }
      if (below <= count / 2 && count / 2 < below + equal) median = all[i];
    }
    cr_assert_eq(shown(own, peers, count), median, "round %u", round);
  }
}

Test(wall_clock, two_hosts_within_trust_take_each_others_stamps) {
  cr_assert(2 * WALL_CLOCK_TRUST_MS <= VERSION_FUTURE_MS_MAX);
}

/* Our clock is right and everybody else's an hour ahead: the process follows them, at once. */
Test(wall_clock, what_is_heard_counts) {
  uint64_t own = wall_clock_own_ms();
  cr_assert_lt(wall_clock_ms() - own, 1000);
  wall_clock_heard(1, 0); /* nonsense */
  wall_clock_heard(2, UINT64_MAX);
  cr_assert_lt(wall_clock_ms() - own, 1000);
  for (unsigned i = 0; i < 3; i++) wall_clock_heard(i, own + (uint64_t)HOUR_MS);
  cr_assert_geq(wall_clock_ms(), own + (uint64_t)HOUR_MS - 1000);
  cr_assert_lt(wall_clock_own_ms(), own + 60000, "what we tell others stays ours");
  for (unsigned i = 0; i < 3; i++) wall_clock_heard(i, own);
  cr_assert_lt(wall_clock_ms(), own + 60000);
}

Test(wall_clock, a_pong_brings_drives_and_clock) {
  struct hello *out = calloc(1, sizeof *out), *in = calloc(1, sizeof *in);
  struct byte_writer w = {.max = 4096};
  out->wall_ms = 1234567890123;
  out->drive_count = 2;
  out->drives[1] = (struct hello_drive){.drive = 5, .usable = true, .boot_counter = 9};
  hello_put_pong(&w, out);
  struct byte_reader r = byte_reader_of(slice_of(w.data, w.len));
  cr_assert_eq(hello_get_pong(&r, in), 0);
  cr_assert_eq(in->wall_ms, 1234567890123);
  cr_assert_eq(in->drive_count, 2);
  cr_assert_eq(in->drives[1].boot_counter, 9);
  /* A host that does not tell its clock yet. */
  r = byte_reader_of(slice_of(w.data, w.len - 8));
  cr_assert_eq(hello_get_pong(&r, in), 0);
  cr_assert_eq(in->wall_ms, 0);
  r = byte_reader_of(slice_of(w.data, w.len - 9));
  cr_assert_lt(hello_get_pong(&r, in), 0);
  byte_writer_free(&w);
  free(out);
  free(in);
}
