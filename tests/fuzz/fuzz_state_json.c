/* fuzz_state_json.c: state.json of a host's state directory, as somebody may have edited it.
 *
 * state_dir.c is compiled in, for what parses is private there; no file is touched. What is taken
 * lies within its limits and, written and read again, says the same. */
#include "storage/net/state_dir.c"
#include "tests/fuzz/fuzz.h"

static bool parse(struct slice text, struct state *ret_state) {
  json_error_t error;
  json_t *root = json_loadb((const char *)text.data, text.len, JSON_REJECT_DUPLICATES, &error);
  const char *wrong = root ? state_from_json(root, ret_state) : error.text;
  FUZZ_CHECK(!wrong || wrong[0]);
  json_decref(root);
  return !wrong;
}

static void check_state(const struct state *s) {
  FUZZ_CHECK(s->drive_count <= MAP_DRIVES_MAX);
  FUZZ_CHECK(memchr(s->cluster_name, 0, sizeof s->cluster_name));
  FUZZ_CHECK(memchr(s->host_id, 0, sizeof s->host_id));
  for (unsigned i = 0; i < s->drive_count; i++) {
    const struct state_drive *d = &s->drives[i];
    FUZZ_CHECK(memchr(d->failed, 0, sizeof d->failed) && d->boot_counter <= INT64_MAX);
    for (unsigned k = 0; k < i; k++) FUZZ_CHECK(strcmp(d->name, s->drives[k].name) != 0);
  }
}

static void check_same(const struct state *a, const struct state *b) {
  FUZZ_CHECK(id128_eq(&a->cluster_id, &b->cluster_id) && id128_eq(&a->init_id, &b->init_id));
  FUZZ_CHECK(a->initialising == b->initialising && a->drive_count == b->drive_count);
  FUZZ_CHECK(strcmp(a->cluster_name, b->cluster_name) == 0 && strcmp(a->host_id, b->host_id) == 0);
  FUZZ_CHECK(!a->canonical == !b->canonical);
  if (a->canonical) FUZZ_CHECK(strcmp(a->canonical, b->canonical) == 0);
  for (unsigned i = 0; i < a->drive_count; i++) {
    const struct state_drive *x = &a->drives[i], *y = &b->drives[i];
    FUZZ_CHECK(strcmp(x->name, y->name) == 0 && strcmp(x->failed, y->failed) == 0);
    FUZZ_CHECK(id128_eq(&x->id, &y->id) && x->boot_counter == y->boot_counter);
    FUZZ_CHECK(x->boot_nonce == y->boot_nonce);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  uint8_t *text = fuzz_copy(slice_of(data, len));
  struct state *s = calloc(1, sizeof *s), *again = calloc(1, sizeof *again);
  FUZZ_CHECK(s && again);
  if (parse(slice_of(text, len), s)) {
    check_state(s);
    char *json = state_to_json(s);
    FUZZ_CHECK(json);
    FUZZ_CHECK(parse(slice_str(json), again));
    check_same(s, again);
    free(json);
  }
  state_clear(s);
  state_clear(again);
  free(s);
  free(again);
  free(text);
  return 0;
}
