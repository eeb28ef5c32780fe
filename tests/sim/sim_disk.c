/* sim_disk.c: what a drive holds: tables whose commits are durable, files whose bytes and names are
 * durable only once they were synced; and what a crash or decay makes of them. See sim.h. */
#include "tests/sim/sim.h"

struct disk *disk_new(struct sim *sim) {
  struct disk *d = calloc(1, sizeof *d);
  SIM_CHECK(d);
  d->sim = sim;
  list_init(&d->files);
  return d;
}

static void entry_free(struct disk_entry *e) {
  free(e->key);
  free(e->value);
}

static void file_free(struct disk_file *f) {
  list_remove(&f->link);
  free(f->data);
  free(f);
}

void disk_free(struct disk *d) {
  if (!d) return;
  for (unsigned t = 0; t < STORE_TABLE_COUNT; t++) {
    for (size_t i = 0; i < d->tables[t].count; i++) entry_free(&d->tables[t].entries[i]);
    free(d->tables[t].entries);
  }
  for (size_t i = 0; i < d->undo_count; i++) entry_free(&d->undo[i].entry);
  free(d->undo);
  list_foreach_safe(it, &d->files) file_free(container_of(it, struct disk_file, link));
  free(d);
}

static void *copy_of(const void *data, size_t len) {
  uint8_t *copy = malloc(len + 1);
  SIM_CHECK(copy);
  if (len) memcpy(copy, data, len);
  return copy;
}

struct disk *disk_copy(const struct disk *from) {
  struct disk *d = disk_new(from->sim);
  for (unsigned t = 0; t < STORE_TABLE_COUNT; t++) {
    const struct disk_table *a = &from->tables[t];
    struct disk_table *b = &d->tables[t];
    b->count = b->cap = a->count;
    b->entries = calloc(a->count + 1, sizeof *b->entries);
    SIM_CHECK(b->entries);
    for (size_t i = 0; i < a->count; i++) {
      b->entries[i] = a->entries[i];
      b->entries[i].key = copy_of(a->entries[i].key, a->entries[i].key_len);
      b->entries[i].value = copy_of(a->entries[i].value, a->entries[i].value_len);
    }
  }
  list_foreach(it, &from->files) {
    const struct disk_file *a = container_of(it, struct disk_file, link);
    if (a->unlinked) continue;
    struct disk_file *b = calloc(1, sizeof *b);
    SIM_CHECK(b);
    *b = *a;
    b->handles = 0;
    b->data = copy_of(a->data, a->len);
    b->cap = a->len + 1;
    list_push_back(&d->files, &b->link);
  }
  return d;
}

unsigned disk_file_count(const struct disk *d) {
  unsigned count = 0;
  list_foreach(it, &d->files) count += !container_of(it, struct disk_file, link)->unlinked;
  return count;
}

int disk_step(struct disk *d, enum disk_fault kind) {
  if (d->dead) return -EIO;
  if (d->crash_in > 0 && --d->crash_in == 0) {
    d->dead = true;
    return -EIO;
  }
  if (d->eio_in[kind] > 0 && --d->eio_in[kind] == 0) {
    d->erred = true;
    SIM_TRACE(d->sim, "disk: EIO (%s)",
              kind == DISK_WRITE  ? "write"
              : kind == DISK_SYNC ? "sync"
                                  : "read");
    return -EIO;
  }
  return 0;
}

int table_find(const struct disk_table *t, struct slice key, size_t *ret_at) {
  size_t from = 0, to = t->count;
  int found = 0;
  while (from < to) {
    size_t at = (from + to) / 2;
    int c = slice_cmp(slice_of(t->entries[at].key, t->entries[at].key_len), key);
    if (c == 0) found = 1;
    if (c < 0)
      from = at + 1;
    else
      to = at;
  }
  *ret_at = from;
  return found;
}

/* ---- crashes ---- */

/* A name that was not synced may be gone, one that was unlinked may be back. */
static void file_crash(struct disk *d, struct disk_file *f) {
  struct sim *s = d->sim;
  if (f->unlinked) {
    if (!f->name_durable || sim_chance(s, 0.5)) {
      file_free(f);
      return;
    }
    f->unlinked = false;
  } else if (!f->name_durable && sim_chance(s, 0.6)) {
    file_free(f);
    return;
  }
  f->name_durable = true;
  if (f->synced < f->len) {
    size_t keep = f->synced + (size_t)sim_below(s, f->len - f->synced + 1);
    if (sim_chance(s, 0.3)) keep = f->synced;
    /* The length may be there while the bytes are not. */
    if (sim_chance(s, 0.5)) {
      for (size_t i = keep; i < f->len; i++) f->data[i] = 0;
      if (keep > f->synced) f->data[keep - 1] ^= 0x55;
    } else {
      f->len = keep;
    }
  }
  f->synced = f->len;
}

void disk_crash(struct disk *d, bool power) {
  SIM_CHECK(!d->writing);
  d->dead = false;
  d->crash_in = 0;
  memset(d->eio_in, 0, sizeof d->eio_in);
  list_foreach_safe(it, &d->files) {
    struct disk_file *f = container_of(it, struct disk_file, link);
    SIM_CHECK(f->handles == 0);
    if (power)
      file_crash(d, f);
    else if (f->unlinked && !f->name_durable)
      file_free(f);
  }
}

/* ---- decay ---- */

static bool flip_in(struct disk *d, uint8_t *data, size_t len) {
  if (len == 0) return false;
  data[sim_below(d->sim, len)] ^= (uint8_t)(1u << sim_below(d->sim, 8));
  return true;
}

static bool flip_value(struct disk *d, enum store_table table) {
  struct disk_table *t = &d->tables[table];
  if (t->count == 0) return false;
  struct disk_entry *e = &t->entries[sim_below(d->sim, t->count)];
  /* The head of an inline chunk says how long its units are: it is checked, not summed. */
  return flip_in(d, e->value, e->value_len);
}

bool disk_flip(struct disk *d) {
  unsigned what = (unsigned)sim_below(d->sim, 4);
  if (what == 0) return flip_value(d, STORE_ROWS);
  if (what == 1) return flip_value(d, STORE_INLINE);
  unsigned count = disk_file_count(d);
  if (count == 0) return false;
  unsigned at = (unsigned)sim_below(d->sim, count);
  list_foreach(it, &d->files) {
    struct disk_file *f = container_of(it, struct disk_file, link);
    if (f->unlinked || at-- > 0) continue;
    return flip_in(d, f->data, f->len);
  }
  return false;
}

static void table_remove(struct disk_table *t, size_t at) {
  entry_free(&t->entries[at]);
  t->count--;
  t->changes++;
  memmove(t->entries + at, t->entries + at + 1, (t->count - at) * sizeof *t->entries);
}

void disk_lose_rows(struct disk *d) {
  struct disk_table *t = &d->tables[STORE_ROWS];
  for (size_t i = t->count; i-- > 0;)
    if (sim_chance(d->sim, 0.5)) {
      struct slice key = slice_of(t->entries[i].key, t->entries[i].key_len);
      bool is_flag = key.data[key.len - 1] == KEYS_CHOSEN && i > 0 &&
                     t->entries[i - 1].key_len + 1u == key.len &&
                     memcmp(t->entries[i - 1].key, key.data, key.len - 1) == 0;
      if (is_flag) table_remove(t, i--);
      table_remove(t, i);
      if (i == 0) break;
    }
}
