/* put_code.c: a window of the body into units; see put.h.
 *
 * One piece of CPU work per window, and one at a time, so that the running MD5 and the running
 * chunk digests see the windows in order. Inside, stripe after stripe: each is hashed, encoded and
 * summed while it is in the cache. */
#include "codec/crc32c.h"
#include "config/err.h"
#include "storage/object/put.h"

int put_code_begin(struct object_put *put) {
  put->hashing = put->kind == ROW_PUT && (!put->has_etag || put->has_md5_wanted);
  if (put->hashing) {
    int err = digest_begin(&put->md5, DIGEST_MD5);
    if (err < 0) return err;
  }
  if (put->length == 0) return 0;
  for (unsigned i = 0; i < put->place.n; i++) {
    int err = chunk_digest_begin(&put->chunk_digests[i], &put->data_id, i);
    if (err < 0) return err;
  }
  return 0;
}

/* Where the units of a stripe stand. `coded` is what the coder works on, `r` the stripe's bytes. */
struct put_stripe {
  uint8_t *data[MAP_SLOTS_MAX];
  uint8_t *parity[MAP_SLOTS_MAX];
  uint32_t coded;
  size_t r;
};

static struct put_stripe put_stripe_of(const struct object_put *put, const struct put_window *w,
                                       unsigned at) {
  const struct profile *p = &put->profile;
  size_t full = (size_t)stripe_data_bytes(p);
  struct put_stripe s = {.coded = p->unit_bytes};
  s.r = MIN(full, w->len - at * full);
  if (s.r < full) s.coded = stripe_tail_unit_len(p, s.r);
  uint8_t *base = w->buf.data + at * full;
  for (unsigned i = 0; i < p->k; i++) s.data[i] = base + (size_t)i * s.coded;
  uint8_t *parity = w->buf.data + (size_t)put->stripes * p->k * put->stride;
  for (unsigned j = 0; j < p->m; j++) s.parity[j] = parity + ((size_t)at * p->m + j) * put->stride;
  return s;
}

static void put_code_stripe(struct object_put *put, struct put_window *w, unsigned at) {
  const struct profile *p = &put->profile;
  struct put_stripe s = put_stripe_of(put, w, at);
  uint64_t stripe = w->stripe_first + at;
  uint32_t len[MAP_SLOTS_MAX], crcs[MAP_SLOTS_MAX];
  if (put->hashing) digest_update(&put->md5, s.data[0], s.r);
  memset(s.data[0] + s.r, 0, (size_t)p->k * s.coded - s.r);
  for (unsigned i = 0; i < put->place.n; i++) {
    size_t start = (size_t)i * s.coded;
    len[i] = i >= p->k ? s.coded : s.r > start ? (uint32_t)MIN(s.r - start, s.coded) : 0;
    crcs[i] = unit_crc_seed(&put->data_id, i, stripe);
  }
  codec_encode_crc(put->codec, (const uint8_t *const *)s.data, s.parity, s.coded, len, crcs);
  for (unsigned i = 0; i < put->place.n; i++) {
    uint8_t *data = i < p->k ? s.data[i] : s.parity[i - p->k];
    w->units[i][at] = (struct peer_unit){.data = data, .len = len[i], .crc = crcs[i]};
    chunk_digest_unit(&put->chunk_digests[i], crcs[i], len[i]);
  }
}

static void put_code_run(struct env_work *work) {
  struct object_put *put = container_of(work, struct object_put, work);
  struct put_window *w = put_window_of(put, put->code_seq - 1);
  for (unsigned at = 0; at < w->stripe_count; at++) put_code_stripe(put, w, at);
}

static void put_code_done(struct env_work *work) {
  struct object_put *put = container_of(work, struct object_put, work);
  put_window_of(put, put->code_seq - 1)->state = WINDOW_CODED;
  put->working = false;
  put_unref_advance(put);
}

void put_code_start(struct object_put *put, struct put_window *w) {
  w->state = WINDOW_CODING;
  put->working = true;
  put->work = (struct env_work){.run = put_code_run, .done = put_code_done, .cost_bytes = w->len};
  put_ref(put);
  env_work(put->env, &put->work);
}

int put_code_end(struct object_put *put) {
  uint8_t md5[MD5_LEN];
  if (put->hashing) {
    digest_end(&put->md5, md5);
    put->hashing = false;
    if (put->has_md5_wanted && !digest_equal(md5, put->md5_wanted, MD5_LEN)) return ERR_BAD_DIGEST;
    if (!put->has_etag) hex_encode(md5, sizeof md5, put->etag);
  }
  if (put->size == 0) { /* no blob, no chunks */
    put->data_id = (struct id128){{0}};
    put->is_inline = true;
    return 0;
  }
  for (unsigned i = 0; i < put->place.n; i++)
    chunk_digest_end(&put->chunk_digests[i], &put->digests[i]);
  put->digested = true;
  return 0;
}

void put_code_abort(struct object_put *put) {
  digest_abort(&put->md5);
  for (unsigned i = 0; i < put->place.n; i++) chunk_digest_abort(&put->chunk_digests[i]);
}
