/* cluster_policy.c: what this host says in a hello, and whom it believes (PROTOCOL.md 10, N11).
 *
 * Called from every loop: all under the state's lock, no I/O but in the first start. */
#include <stdarg.h>
#include <stdio.h>

#include "config/err.h"
#include "config/log.h"
#include "storage/net/cluster_impl.h"
#include "storage/net/wall_clock.h"

#define DIFFERENCE_BYTES_MAX 320

static struct cluster *cluster_of(struct hello_policy *p) {
  return container_of(p, struct cluster, policy);
}

static void policy_fill(struct hello_policy *p, struct hello *out) {
  struct cluster *c = cluster_of(p);
  *out = (struct hello){
      .protocol_min = HELLO_PROTOCOL_MIN,
      .protocol_max = HELLO_PROTOCOL_MAX,
      .wall_ms = wall_clock_own_ms(),
      .drive_count = c->own_count,
      .canonical = c->canonical,
  };
  snprintf(out->cluster_name, sizeof out->cluster_name, "%s", c->map->name);
  snprintf(out->host_id, sizeof out->host_id, "%s", c->map->hosts[c->map->self].id);
  memcpy(out->map_digest, c->map_digest, SHA256_LEN);
  state_lock(c->dir);
  out->boot = (uint8_t)c->boot;
  if (c->boot == BOOT_FORMATTED) {
    out->cluster_id = c->id;
    out->epoch = c->epoch;
    memcpy(out->table_digest, c->table_digest, SHA256_LEN);
  }
  for (unsigned i = 0; i < c->own_count; i++) {
    struct own_drive *o = &c->own[i];
    out->drives[i].drive = o->drive;
    if (!o->lanes) continue;
    out->drives[i].usable = !drive_failed(lanes_drive(o->lanes));
    out->drives[i].drive_id = o->identity.drive_id;
    out->drives[i].boot_counter = o->identity.boot_counter;
    out->drives[i].boot_nonce = o->identity.boot_nonce;
  }
  state_unlock(c->dir);
}

/* ---- check ---- */

struct refusal {
  char *why;
  size_t cap;
};

static int refuse(struct refusal r, const char *fmt, ...) _printf_(2, 3);
static int refuse(struct refusal r, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  vsnprintf(r.why, r.cap, fmt, args);
  va_end(args);
  return ERR_REFUSED;
}

/* Which membership do they mean? Needs no lock. */
static int check_membership(struct cluster *c, const struct hello *remote, struct refusal r) {
  if (strcmp(remote->cluster_name, c->map->name) != 0)
    return refuse(r, "cluster name differs: host %s has %s, host %s has %s", remote->host_id,
                  remote->cluster_name, c->map->hosts[c->map->self].id, c->map->name);
  if (memcmp(remote->map_digest, c->map_digest, SHA256_LEN) == 0) return 0;
  char words[DIFFERENCE_BYTES_MAX], theirs[SETTINGS_NAME_BYTES_MAX + 8];
  snprintf(theirs, sizeof theirs, "%s has", remote->host_id);
  canonical_difference(remote->canonical ? remote->canonical : "", c->canonical, theirs, 1, words,
                       sizeof words);
  return refuse(r, "membership differs: %s (we are %s)", words, c->map->hosts[c->map->self].id);
}

/* An id or counter that goes back is a drive that has forgotten what it acknowledged. */
static int check_drive(struct cluster *c, struct state *s, int host, const struct hello_drive *d,
                       struct refusal r) {
  const struct map_host *mh = &c->map->hosts[host];
  if (d->drive < mh->drive_first || d->drive >= mh->drive_first + mh->drive_count)
    return refuse(r, "host %s offers drive number %u, which is not its own", mh->id, d->drive);
  if (!d->usable || id128_is_zero(&d->drive_id)) return 0;
  const char *name = c->map->drives[d->drive].name;
  const struct state_drive *known = state_drive(s, name, false);
  if (!known || id128_is_zero(&known->id)) return 0;
  if (!id128_eq(&known->id, &d->drive_id)) {
    char theirs[ID128_HEX_LEN + 1], ours[ID128_HEX_LEN + 1];
    id128_hex(&d->drive_id, theirs);
    id128_hex(&known->id, ours);
    return refuse(r, "drive %s comes with id %s, we remember %s: another drive in its place", name,
                  theirs, ours);
  }
  if (d->boot_counter < known->boot_counter)
    return refuse(r,
                  "drive %s came back with boot counter %llu, we remember %llu: a restored "
                  "snapshot",
                  name, (unsigned long long)d->boot_counter,
                  (unsigned long long)known->boot_counter);
  if (d->boot_counter == known->boot_counter && known->boot_nonce &&
      d->boot_nonce != known->boot_nonce)
    return refuse(r,
                  "drive %s comes with boot %llu for the second time: a restored snapshot counts "
                  "the boots again that were lost with it",
                  name, (unsigned long long)d->boot_counter);
  return 0;
}

/* Nothing is remembered unless all of the hello is accepted. */
static void remember_hello(struct cluster *c, struct state *s, const struct hello *remote) {
  for (unsigned i = 0; i < remote->drive_count; i++) {
    const struct hello_drive *d = &remote->drives[i];
    if (!d->usable || id128_is_zero(&d->drive_id)) continue;
    struct state_drive *known = state_drive(s, c->map->drives[d->drive].name, true);
    if (!known) continue;
    if (id128_eq(&known->id, &d->drive_id) && known->boot_counter == d->boot_counter &&
        known->boot_nonce == d->boot_nonce)
      continue;
    known->id = d->drive_id;
    known->boot_counter = d->boot_counter;
    known->boot_nonce = d->boot_nonce;
    state_touch(c->dir);
  }
}

/* Both are formatted. */
static int check_formatted(struct cluster *c, struct state *s, int host, const struct hello *remote,
                           struct refusal r) {
  char theirs[ID128_HEX_LEN + 1], ours[ID128_HEX_LEN + 1];
  if (!id128_eq(&remote->cluster_id, &c->id)) {
    id128_hex(&remote->cluster_id, theirs);
    id128_hex(&c->id, ours);
    return refuse(r, "cluster id differs: host %s has %s, host %s has %s", remote->host_id, theirs,
                  c->map->hosts[c->map->self].id, ours);
  }
  if (remote->epoch != c->epoch)
    return refuse(r, "epoch of the slot table differs: host %s has %u, host %s has %u",
                  remote->host_id, remote->epoch, c->map->hosts[c->map->self].id, c->epoch);
  if (memcmp(remote->table_digest, c->table_digest, SHA256_LEN) != 0)
    return refuse(r, "slot table differs between host %s and host %s at epoch %u", remote->host_id,
                  c->map->hosts[c->map->self].id, c->epoch);
  for (unsigned i = 0; i < remote->drive_count; i++) {
    int err = check_drive(c, s, host, &remote->drives[i], r);
    if (err < 0) return err;
  }
  remember_hello(c, s, remote);
  if (host == COORDINATOR_HOST && s->initialising) {
    s->initialising = false; /* it formats last: no host is empty any more */
    state_touch(c->dir);
  }
  return 0;
}

/* We have met this host with drives in it. */
static bool met_with_drives(const struct cluster *c, struct state *s, int host) {
  const struct map_host *mh = &c->map->hosts[host];
  for (unsigned d = mh->drive_first; d < mh->drive_first + mh->drive_count; d++) {
    const struct state_drive *known = state_drive(s, c->map->drives[d].name, false);
    if (known && !id128_is_zero(&known->id)) return true;
  }
  return false;
}

static int check_locked(struct cluster *c, struct state *s, int host, const struct hello *remote,
                        struct refusal r) {
  /* An empty host may talk to anybody of its membership: it has no drive to offer yet. */
  if (c->boot == BOOT_EMPTY) return 0;
  if (remote->boot == BOOT_FORMATTED) return check_formatted(c, s, host, remote, r);
  /* At a first start a host may be formatted and not serve yet; it says so when it does. */
  if (s->initialising || !met_with_drives(c, s, host)) return 0;
  char id[ID128_HEX_LEN + 1];
  id128_hex(&c->id, id);
  return refuse(r,
                "the drives of host %s are empty, but cluster %s (id %s) " INITIALISED_WORDS
                ": are its disks mounted? If they are lost, replace each: kofn drive replace %s "
                "(from a later version on)",
                remote->host_id, c->map->name, id,
                c->map->hosts[host].drive_count > 0
                    ? c->map->drives[c->map->hosts[host].drive_first].name
                    : remote->host_id);
}

static int policy_check(struct hello_policy *p, int host, const struct hello *remote, char *why,
                        size_t why_cap) {
  struct cluster *c = cluster_of(p);
  struct refusal r = {why, why_cap};
  int err = check_membership(c, remote, r); /* first: it says why a host is unknown */
  if (err < 0) return err;
  if (host < 0 || (unsigned)host >= c->map->host_count)
    return refuse(r, "the cluster has no host %s", remote->host_id);
  struct state *s = state_lock(c->dir);
  err = check_locked(c, s, host, remote, r);
  state_unlock(c->dir);
  if (err == 0) wall_clock_heard((unsigned)host, remote->wall_ms);
  return err;
}

/* ---- control ---- */

static int control_refuse(struct byte_writer *reply, const char *words) {
  log_warn("cluster", "refused to initialise: %s", words);
  put_u8(reply, 0);
  put_str16(reply, slice_str(words));
  return 0;
}

static int control_accept(struct byte_writer *reply) {
  put_u8(reply, 1);
  return 0;
}

/* Formats this host's drives: only ever on the loop of the first start, which has nothing else to
 * do. */
static int control_init(struct cluster *c, const struct id128 *id, struct byte_writer *reply) {
  struct drive_error e = {""};
  struct state *s = state_lock(c->dir);
  struct id128 carried = s->cluster_id, begun = s->init_id;
  state_unlock(c->dir);
  if (id128_eq(&carried, id)) return control_accept(reply); /* its answer was lost */
  if (!id128_is_zero(&carried) || (!id128_is_zero(&begun) && !id128_eq(&begun, id))) {
    char hex[ID128_HEX_LEN + 1];
    id128_hex(id128_is_zero(&carried) ? &begun : &carried, hex);
    error_words(&e, 0, "host %s " INITIALISED_WORDS " for cluster id %s",
                c->map->hosts[c->map->self].id, hex);
    return control_refuse(reply, e.text);
  }
  int err = 0;
  if (id128_is_zero(&begun)) err = cluster_record_init(c, id, &e);
  if (err == 0) err = cluster_format_own(c, &e);
  return err < 0 ? control_refuse(reply, e.text) : control_accept(reply);
}

static int policy_control(struct hello_policy *p, int host, struct slice request,
                          struct byte_writer *reply) {
  struct cluster *c = cluster_of(p);
  struct byte_reader r = byte_reader_of(request);
  uint8_t op = get_u8(&r);
  struct id128 id = get_id(&r);
  struct slice digest = get_bytes(&r, SHA256_LEN);
  if (r.failed || byte_reader_left(&r) > 0 || op != CONTROL_INIT || id128_is_zero(&id))
    return ERR_PROTOCOL;
  if (host != COORDINATOR_HOST || c->map->self == COORDINATOR_HOST)
    return control_refuse(reply, "only the first host of the map coordinates a first start");
  if (memcmp(digest.data, c->map_digest, SHA256_LEN) != 0)
    return control_refuse(reply, "membership differs");
  return control_init(c, &id, reply);
}

void cluster_policy_init(struct cluster *c) {
  c->policy = (struct hello_policy){
      .fill = policy_fill,
      .check = policy_check,
      .control = policy_control,
      .secret = slice_of(c->settings->cluster.secret, c->settings->cluster.secret_len),
  };
}
