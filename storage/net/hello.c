/* hello.c: the bytes of HELLO, PROOF and BYE, and what a proof is made over. See hello.h. */
#include "storage/net/hello.h"

#include <errno.h>

#include "config/err.h"

#define HELLO_LABEL "kofn hello"
#define HELLO_FLAG_USABLE 1u

void hello_put_drives(struct byte_writer *w, const struct hello *h) {
  put_u16(w, (uint16_t)h->drive_count);
  for (unsigned i = 0; i < h->drive_count; i++) {
    const struct hello_drive *d = &h->drives[i];
    put_u16(w, d->drive);
    put_u8(w, d->usable ? HELLO_FLAG_USABLE : 0);
    put_id(w, &d->drive_id);
    put_u64(w, d->boot_counter);
    put_u64(w, d->boot_nonce);
  }
}

int hello_get_drives(struct byte_reader *r, struct hello *ret_hello) {
  unsigned count = get_u16(r);
  if (count > MAP_DRIVES_MAX) return ERR_PROTOCOL;
  struct hello_drive drives[MAP_DRIVES_MAX];
  for (unsigned i = 0; i < count; i++) {
    struct hello_drive *d = &drives[i];
    d->drive = get_u16(r);
    uint8_t flags = get_u8(r);
    d->usable = flags & HELLO_FLAG_USABLE;
    d->drive_id = get_id(r);
    d->boot_counter = get_u64(r);
    d->boot_nonce = get_u64(r);
    if (d->drive >= MAP_DRIVES_MAX || flags > HELLO_FLAG_USABLE) return ERR_PROTOCOL;
  }
  if (r->failed) return ERR_PROTOCOL;
  if (count) memcpy(ret_hello->drives, drives, count * sizeof drives[0]);
  ret_hello->drive_count = count;
  return 0;
}

void hello_put_pong(struct byte_writer *w, const struct hello *h) {
  hello_put_drives(w, h);
  put_u64(w, h->wall_ms);
}

int hello_get_pong(struct byte_reader *r, struct hello *ret_hello) {
  int err = hello_get_drives(r, ret_hello);
  if (err < 0) return err;
  ret_hello->wall_ms = byte_reader_left(r) >= 8 ? get_u64(r) : 0;
  return 0;
}

void hello_put(struct byte_writer *w, const struct hello *h,
               const uint8_t challenge[HELLO_CHALLENGE_BYTES]) {
  put_u16(w, h->protocol_min);
  put_u16(w, h->protocol_max);
  put_bytes(w, slice_of(challenge, HELLO_CHALLENGE_BYTES));
  put_str16(w, slice_str(h->cluster_name));
  put_str16(w, slice_str(h->host_id));
  put_u8(w, h->boot);
  put_id(w, &h->cluster_id);
  put_u32(w, h->epoch);
  put_bytes(w, slice_of(h->map_digest, SHA256_LEN));
  put_bytes(w, slice_of(h->table_digest, SHA256_LEN));
  put_u64(w, h->wall_ms);
  hello_put_drives(w, h);
  /* With its NUL, so that the receiver can borrow it as a string. */
  const char *canonical = h->canonical ? h->canonical : "";
  put_str32(w, slice_of(canonical, strlen(canonical) + 1));
}

int hello_get_versions(struct slice bytes, uint16_t *ret_min, uint16_t *ret_max) {
  struct byte_reader r = byte_reader_of(bytes);
  uint16_t min = get_u16(&r), max = get_u16(&r);
  if (r.failed || min > max) return ERR_PROTOCOL;
  *ret_min = min;
  *ret_max = max;
  return 0;
}

/* A name that fits, is not empty and holds no NUL. */
static bool get_name(struct byte_reader *r, char out[SETTINGS_NAME_BYTES_MAX + 1]) {
  struct slice name = get_str16(r);
  if (r->failed || name.len == 0 || name.len > SETTINGS_NAME_BYTES_MAX) return false;
  if (memchr(name.data, 0, name.len)) return false;
  memcpy(out, name.data, name.len);
  out[name.len] = 0;
  return true;
}

static void get_fixed(struct byte_reader *r, uint8_t *out, size_t len) {
  struct slice s = get_bytes(r, len);
  if (!r->failed) memcpy(out, s.data, len);
}

int hello_get(struct slice bytes, struct hello *ret_hello,
              uint8_t ret_challenge[HELLO_CHALLENGE_BYTES]) {
  struct byte_reader r = byte_reader_of(bytes);
  uint8_t challenge[HELLO_CHALLENGE_BYTES];
  struct hello h = {0};
  h.protocol_min = get_u16(&r);
  h.protocol_max = get_u16(&r);
  get_fixed(&r, challenge, sizeof challenge);
  if (!get_name(&r, h.cluster_name) || !get_name(&r, h.host_id)) return ERR_PROTOCOL;
  h.boot = get_u8(&r);
  h.cluster_id = get_id(&r);
  h.epoch = get_u32(&r);
  get_fixed(&r, h.map_digest, sizeof h.map_digest);
  get_fixed(&r, h.table_digest, sizeof h.table_digest);
  h.wall_ms = get_u64(&r);
  if (hello_get_drives(&r, &h) < 0) return ERR_PROTOCOL;
  struct slice canonical = get_str32(&r);
  if (r.failed || h.protocol_min > h.protocol_max || h.boot > BOOT_FORMATTED) return ERR_PROTOCOL;
  if (canonical.len == 0 ||
      memchr(canonical.data, 0, canonical.len) != canonical.data + canonical.len - 1)
    return ERR_PROTOCOL;
  h.canonical = (const char *)canonical.data;
  *ret_hello = h;
  memcpy(ret_challenge, challenge, sizeof challenge);
  return 0;
}

int hello_version_agree(uint16_t their_min, uint16_t their_max, uint16_t *ret_version) {
  uint16_t low = MAX(their_min, HELLO_PROTOCOL_MIN), high = MIN(their_max, HELLO_PROTOCOL_MAX);
  if (low > high) return ERR_REFUSED;
  *ret_version = high;
  return 0;
}

int hello_proof(struct slice secret, enum hello_role role, const struct hello_transcript *t,
                uint8_t ret_proof[SHA256_LEN]) {
  struct byte_writer w = {.max = 2 * HELLO_BYTES_MAX + 1024};
  put_bytes(&w, SLICE_LIT(HELLO_LABEL));
  put_u8(&w, (uint8_t)role);
  put_bytes(&w, slice_of(t->connector_challenge, HELLO_CHALLENGE_BYTES));
  put_bytes(&w, slice_of(t->listener_challenge, HELLO_CHALLENGE_BYTES));
  /* With their lengths, so that no byte can move from one hello to the other. */
  put_str32(&w, t->connector_hello);
  put_str32(&w, t->listener_hello);
  int err = w.failed ? -ENOMEM : 0;
  if (err == 0) hmac_sha256(secret, slice_of(w.data, w.len), ret_proof);
  byte_writer_free(&w);
  return err;
}

void hello_put_bye(struct byte_writer *w, int err, const char *words) {
  put_u32(w, (uint32_t)err);
  put_str16(w, slice_of(words, strnlen(words, HELLO_WORDS_BYTES_MAX - 1)));
}

int hello_get_bye(struct slice meta, int *ret_err, char words[HELLO_WORDS_BYTES_MAX]) {
  struct byte_reader r = byte_reader_of(meta);
  int err = (int)get_u32(&r);
  struct slice s = get_str16(&r);
  if (r.failed || byte_reader_left(&r) != 0 || err >= 0 || s.len >= HELLO_WORDS_BYTES_MAX)
    return ERR_PROTOCOL;
  for (size_t i = 0; i < s.len; i++)
    words[i] = (char)(s.data[i] >= 0x20 && s.data[i] < 0x7f ? s.data[i] : '?');
  words[s.len] = 0;
  *ret_err = err;
  return 0;
}
