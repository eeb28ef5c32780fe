/* cluster_check.c: may these directories be the drives of this host? (PROTOCOL.md 10)
 *
 * Two kinds of findings. Trouble: a drive is missing or cannot be used; the host starts without it.
 * Conflict: a directory is not the drive that it should be; somebody made a mistake that must not
 * be half accepted, so the whole start is refused, naming what differs and what to do. */
#include <stdio.h>
#include <sys/stat.h>

#include "config/err.h"
#include "storage/net/cluster_impl.h"

#define DIFFERENCE_BYTES_MAX 640
#define DIFFERENCE_LINES_MAX 6

/* ---- membership texts ---- */

static struct slice next_line(const char **at) {
  const char *end = strchrnul(*at, '\n');
  struct slice line = slice_of(*at, (size_t)(end - *at));
  *at = *end ? end + 1 : end;
  return line;
}

static bool has_line(const char *text, struct slice line) {
  while (*text)
    if (slice_eq(next_line(&text), line)) return true;
  return false;
}

/* Appends the lines of `text` that `other` lacks. */
static unsigned put_lines(FILE *f, const char *text, const char *other, const char *whose,
                          unsigned count, unsigned lines_max) {
  while (*text) {
    struct slice line = next_line(&text);
    if (has_line(other, line)) continue;
    if (count < lines_max)
      fprintf(f, "%s%s \"%.*s\"", count ? ", " : "", whose, (int)line.len, (const char *)line.data);
    count++;
  }
  return count;
}

void canonical_difference(const char *theirs, const char *ours, const char *their_words,
                          unsigned lines_max, char *out, size_t cap) {
  out[0] = 0;
  FILE *f = fmemopen(out, cap, "w");
  if (!f) return;
  unsigned count = put_lines(f, theirs, ours, their_words, 0, lines_max);
  count = put_lines(f, ours, theirs, "we have", count, 2 * lines_max);
  if (count > 2 * lines_max) fprintf(f, " and more");
  if (count == 0) fprintf(f, "the same lines in another order");
  fclose(f);
  out[cap - 1] = 0;
}

static int membership_differs(struct cluster *c, const char *stored, const char *where,
                              struct drive_error *e) {
  char words[DIFFERENCE_BYTES_MAX];
  canonical_difference(stored, c->canonical, "stored is", DIFFERENCE_LINES_MAX, words,
                       sizeof words);
  return error_words(e, ERR_CONFIG,
                     "the membership of cluster %s differs from the one stored in %s: %s. It "
                     "changes only by replacing drives; addresses may change freely",
                     c->map->name, where, words);
}

/* ---- the state ---- */

static int check_state(struct cluster *c, struct drive_error *e) {
  struct state *s = state_lock(c->dir);
  const char *host = c->map->hosts[c->map->self].id, *path = c->settings->server.state_dir;
  int err = 0;
  if (id128_is_zero(&s->cluster_id) && id128_is_zero(&s->init_id)) {
    /* remembers nothing */
  } else if (strcmp(s->cluster_name, c->map->name) != 0) {
    err = error_words(e, ERR_CONFIG, "state directory %s belongs to cluster %s, this is cluster %s",
                      path, s->cluster_name, c->map->name);
  } else if (strcmp(s->host_id, host) != 0) {
    err = error_words(e, ERR_CONFIG, "state directory %s belongs to host %s, this is host %s", path,
                      s->host_id, host);
  } else if (strcmp(s->canonical, c->canonical) != 0) {
    err = membership_differs(c, s->canonical, path, e);
  }
  state_unlock(c->dir);
  return err;
}

/* ---- drives ---- */

/* A directory that was formatted, for whom? */
static int check_formatted(struct own_drive *o, struct drive_error *e) {
  const struct drive_identity *id = &o->identity;
  const struct cluster_map *map = o->cluster->map;
  const char *host = map->hosts[map->self].id;
  if (strcmp(id->cluster_name, map->name) != 0)
    return error_words(e, ERR_CONFIG,
                       "drive directory %s belongs to another cluster: %s; this is cluster %s",
                       own_path(o), id->cluster_name, map->name);
  if (strcmp(id->host_id, host) != 0)
    return error_words(e, ERR_CONFIG,
                       "drive directory %s is drive %s of host %s, not a drive of this host (%s)",
                       own_path(o), id->drive_name, id->host_id, host);
  if (strcmp(id->drive_name, own_name(o)) != 0)
    return error_words(e, ERR_CONFIG,
                       "drive directory %s is drive %s, but the configuration says that it is %s: "
                       "directories are swapped",
                       own_path(o), id->drive_name, own_name(o));
  return 0;
}

/* `id` is the cluster's, `s` the locked state. */
static int check_id(struct own_drive *o, const struct state *s, const struct id128 *id,
                    struct drive_error *e) {
  char theirs[ID128_HEX_LEN + 1], ours[ID128_HEX_LEN + 1];
  if (!id128_eq(&o->identity.cluster_id, id)) {
    id128_hex(&o->identity.cluster_id, theirs);
    id128_hex(id, ours);
    return error_words(e, ERR_CONFIG,
                       "drive directory %s belongs to another cluster of the name %s: its id is "
                       "%s, this cluster's is %s",
                       own_path(o), o->cluster->map->name, theirs, ours);
  }
  const struct state_drive *known = state_drive((struct state *)s, own_name(o), false);
  if (known && !id128_is_zero(&known->id) && !id128_eq(&known->id, &o->identity.drive_id)) {
    id128_hex(&o->identity.drive_id, theirs);
    id128_hex(&known->id, ours);
    return error_words(e, ERR_CONFIG,
                       "drive directory %s holds drive id %s, but this host remembers %s for %s: "
                       "another drive stands in its place; if that is meant, run: kofn drive "
                       "replace %s",
                       own_path(o), theirs, ours, own_name(o), own_name(o));
  }
  return 0;
}

static int check_empty(struct own_drive *o, const char *why, struct drive_error *e) {
  return error_words(e, ERR_CONFIG,
                     "drive directory %s (%s) is empty, but %s: is its disk mounted? If the drive "
                     "is lost, replace it: kofn drive replace %s (from a later version on)",
                     own_path(o), own_name(o), why, own_name(o));
}

/* Fills state, identity and trouble. */
static int probe_drive(struct own_drive *o, struct drive_error *e) {
  struct drive_error why = {""};
  int err = drive_probe(own_path(o), &o->state, &o->identity, &why);
  if (err < 0) {
    if (!why.text[0]) error_words(&why, err, "drive directory %s: %s", own_path(o), err_words(err));
    o->trouble = why;
    return 0;
  }
  if (o->state == DRIVE_FOREIGN)
    return error_words(e, ERR_CONFIG,
                       "drive directory %s is not empty and is no drive of kofn (it has no "
                       "drive.id): give %s a directory of its own",
                       own_path(o), own_name(o));
  return o->state == DRIVE_FORMATTED ? check_formatted(o, e) : 0;
}

struct tally {
  unsigned formatted, empty, troubled;
  const struct own_drive *first_formatted, *first_empty, *first_troubled;
};

static int probe_drives(struct cluster *c, struct tally *t, struct drive_error *e) {
  for (unsigned i = 0; i < c->own_count; i++) {
    struct own_drive *o = &c->own[i];
    int err = probe_drive(o, e);
    if (err < 0) return err;
    unsigned *count = &t->empty;
    const struct own_drive **first = &t->first_empty;
    if (o->trouble.text[0]) {
      count = &t->troubled;
      first = &t->first_troubled;
    } else if (o->state == DRIVE_FORMATTED) {
      count = &t->formatted;
      first = &t->first_formatted;
    }
    if ((*count)++ == 0) *first = o;
  }
  return 0;
}

/* Drives of this host on one file system. */
static bool drives_share_disk(const struct cluster *c) {
  struct stat a, b;
  for (unsigned i = 0; i < c->own_count; i++) {
    if (stat(own_path(&c->own[i]), &a) < 0) continue;
    for (unsigned j = 0; j < i; j++)
      if (stat(own_path(&c->own[j]), &b) == 0 && a.st_dev == b.st_dev) return true;
  }
  return false;
}

static int check_drives(struct cluster *c, const struct tally *t, const struct state *s,
                        bool *ret_first_start, struct drive_error *e) {
  bool remembers = !id128_is_zero(&s->cluster_id), begun = !id128_is_zero(&s->init_id);
  struct id128 id = s->cluster_id;
  if (!remembers && begun) id = s->init_id;
  if (!remembers && !begun && t->formatted > 0) id = t->first_formatted->identity.cluster_id;
  for (unsigned i = 0; i < c->own_count; i++) {
    struct own_drive *o = &c->own[i];
    if (o->trouble.text[0] || o->state != DRIVE_FORMATTED) continue;
    int err = check_id(o, s, &id, e);
    if (err < 0) return err;
  }
  if (t->empty > 0 && remembers)
    return check_empty((struct own_drive *)t->first_empty,
                       "this host remembers that its drives are formatted", e);
  if (t->empty > 0 && t->formatted > 0 && !begun) {
    char why[SETTINGS_PATH_BYTES_MAX + 64];
    snprintf(why, sizeof why, "drive directory %s is formatted", own_path(t->first_formatted));
    return check_empty((struct own_drive *)t->first_empty, why, e);
  }
  bool first_start = !remembers && (t->empty > 0 || t->formatted == 0);
  if (t->troubled > 0 && (first_start || t->formatted == 0)) {
    *e = t->first_troubled->trouble; /* nothing to serve, or nothing may be formatted yet */
    return ERR_CONFIG;
  }
  *ret_first_start = first_start;
  return 0;
}

int cluster_check(struct cluster *c, bool *ret_first_start, struct drive_error *e) {
  struct tally t = {0};
  int err = check_state(c, e);
  if (err == 0) err = probe_drives(c, &t, e);
  if (err < 0) return err;
  c->share_disk = drives_share_disk(c);
  struct state *s = state_lock(c->dir);
  err = check_drives(c, &t, s, ret_first_start, e);
  state_unlock(c->dir);
  return err;
}

/* ---- open drives ---- */

/* The first drive's table is the cluster's; the others must have the same. */
static int check_table(struct own_drive *o, const struct drive *d, struct drive_error *e) {
  struct cluster *c = o->cluster;
  const struct drive_identity *id = drive_identity_of(d);
  struct slice table = drive_table(d);
  uint8_t digest[SHA256_LEN];
  placement_digest(table, digest);
  if (memcmp(digest, id->table_digest, SHA256_LEN) != 0)
    return error_words(e, ERR_CONFIG,
                       "drive directory %s: its slot table does not match its own digest",
                       own_path(o));
  if (!c->placement) {
    int err = placement_decode(table, c->map, &c->placement);
    if (err < 0)
      return error_words(e, err, "drive directory %s: its slot table cannot be used: %s",
                         own_path(o), err_words(err));
    memcpy(c->table_digest, digest, SHA256_LEN);
    c->epoch = id->epoch;
  }
  if (id->epoch != c->epoch || id->epoch != c->placement->epoch)
    return error_words(e, ERR_CONFIG,
                       "drive directory %s is at epoch %u of the slot table, another drive of this "
                       "host at %u: it missed a change",
                       own_path(o), id->epoch, c->epoch);
  if (memcmp(digest, c->table_digest, SHA256_LEN) != 0)
    return error_words(e, ERR_CONFIG,
                       "drive directory %s holds another slot table than the other drives of this "
                       "host, for the same epoch %u",
                       own_path(o), c->epoch);
  return 0;
}

/* A counter that went back: the drive's past has been put back in place of its present. The finding
 * is kept, so that the host can start without it. */
static int check_boot_counter(struct own_drive *o, const struct drive *d, struct drive_error *e) {
  struct cluster *c = o->cluster;
  const struct drive_identity *id = drive_identity_of(d);
  uint64_t remembered = 0;
  struct state *s = state_lock(c->dir);
  struct state_drive *known = state_drive(s, own_name(o), false);
  if (known) remembered = known->boot_counter;
  bool back = id->boot_counter <= remembered;
  if (back)
    snprintf(known->failed, sizeof known->failed,
             "a restored snapshot: boot counter %llu where %llu was remembered",
             (unsigned long long)id->boot_counter - 1, (unsigned long long)remembered);
  state_unlock(c->dir);
  if (!back) return 0;
  int err = state_save(c->dir); /* has logged; the refusal stands either way */
  (void)err;
  return error_words(
      e, ERR_CONFIG,
      "drive directory %s (%s) comes with boot counter %llu, this host remembers "
      "%llu: a restored snapshot, which has forgotten what it acknowledged. It is "
      "kept out of service; replace it: kofn drive replace %s (from a later version on)",
      own_path(o), own_name(o), (unsigned long long)id->boot_counter - 1,
      (unsigned long long)remembered, own_name(o));
}

int cluster_check_open(struct own_drive *o, const struct drive *d, struct drive_error *e) {
  if (strcmp(drive_canonical(d), o->cluster->canonical) != 0)
    return membership_differs(o->cluster, drive_canonical(d), own_path(o), e);
  int err = check_table(o, d, e);
  return err < 0 ? err : check_boot_counter(o, d, e);
}
