/* bench_codec_foreign.c: liberasurecode and libjerasure as plugins, loaded at run time from their
 * Debian packages and never linked.
 *
 * liberasurecode is measured as its users call it: it allocates the fragments, writes headers and
 * frees them again. A lost data chunk is liberasurecode_decode, a lost parity chunk
 * liberasurecode_reconstruct_fragment. jerasure works on our buffers: reed_sol_van by
 * jerasure_matrix_encode (w = 8, as in Ceph), cauchy as Ceph's cauchy_good by schedules of packets.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "config/err.h"
#include "server/bench_codec.h"

struct symbol {
  const char *name;
  void *into;
};

static int symbols_load(void *library, const char *file, const struct symbol *symbols, size_t count,
                        char *why) {
  for (size_t i = 0; i < count; i++) {
    void *at = dlsym(library, symbols[i].name);
    if (!at) {
      snprintf(why, BENCH_WHY_BYTES, "%s has no %s", file, symbols[i].name);
      return ERR_NOT_FOUND;
    }
    memcpy(symbols[i].into, &at, sizeof at);
  }
  return 0;
}

/* ---- liberasurecode (erasurecode.h of 1.6) ---- */

enum { LIBEC_ISA_L_RS_VAND = 4, LIBEC_ISA_L_RS_CAUCHY = 7, LIBEC_CHECKSUM_NONE = 1 };

struct libec_args {
  int k, m, w, hd;
  uint64_t reserved[4];
  void *reserved2;
  int checksum;
};

static struct {
  void *loaded;
  int (*create)(int backend, struct libec_args *args);
  int (*destroy)(int desc);
  int (*encode)(int desc, const char *data, uint64_t size, char ***ret_data, char ***ret_parity,
                uint64_t *ret_len);
  int (*encode_cleanup)(int desc, char **data, char **parity);
  int (*decode)(int desc, char **fragments, int count, uint64_t len, int check, char **ret_data,
                uint64_t *ret_size);
  int (*decode_cleanup)(int desc, char *data);
  int (*reconstruct)(int desc, char **fragments, int count, uint64_t len, int index, char *out);
} libec;

/* Encoded objects to decode from; small, or "cold" would take minutes to make. */
#define LIBEC_RING_BYTES_MAX ((uint64_t)64 << 20)
#define LIBEC_RING_MAX 256

struct libec_object {
  char **data, **parity;
};

struct libec_self {
  int desc;
  unsigned k, m;
  uint64_t size, fragment_len;
  uint32_t erased[BENCH_PATTERNS_MAX];
  struct libec_object ring[LIBEC_RING_MAX];
  unsigned ring_count, ring_wanted;
  pthread_mutex_t lock;
};

static int libec_load(char *why) {
  static const char file[] = "liberasurecode.so.1";
  const struct symbol symbols[] = {
      {"liberasurecode_instance_create", &libec.create},
      {"liberasurecode_instance_destroy", &libec.destroy},
      {"liberasurecode_encode", &libec.encode},
      {"liberasurecode_encode_cleanup", &libec.encode_cleanup},
      {"liberasurecode_decode", &libec.decode},
      {"liberasurecode_decode_cleanup", &libec.decode_cleanup},
      {"liberasurecode_reconstruct_fragment", &libec.reconstruct},
  };
  void *library;
  if (libec.loaded) return 0;
  int err = bench_library(file, "liberasurecode1", &library, why);
  if (err == 0) err = symbols_load(library, file, symbols, ARRAY_LEN(symbols), why);
  if (err == 0) libec.loaded = library;
  return err;
}

static int libec_open(const struct bench_shape *shape, void **ret_self, char *why) {
  bool cauchy = strcmp(shape->technique, "cauchy") == 0;
  int err = libec_load(why);
  if (err < 0) return err;
  if (!cauchy && strcmp(shape->technique, "reed_sol_van") != 0) {
    snprintf(why, BENCH_WHY_BYTES, "liberasurecode has no %.40s", shape->technique);
    return ERR_INVALID;
  }
  struct libec_args args = {.k = (int)shape->k,
                            .m = (int)shape->m,
                            .w = 8,
                            .hd = (int)shape->m,
                            .checksum = LIBEC_CHECKSUM_NONE};
  struct libec_self *self = calloc(1, sizeof *self);
  if (!self) return -ENOMEM;
  self->desc = libec.create(cauchy ? LIBEC_ISA_L_RS_CAUCHY : LIBEC_ISA_L_RS_VAND, &args);
  if (self->desc <= 0) {
    snprintf(why, BENCH_WHY_BYTES, "liberasurecode refuses %s of %u+%u (error %d)",
             cauchy ? "isa_l_rs_cauchy" : "isa_l_rs_vand", shape->k, shape->m, -self->desc);
    free(self);
    return ERR_INVALID;
  }
  pthread_mutex_init(&self->lock, NULL);
  self->k = shape->k;
  self->m = shape->m;
  self->size = shape->size;
  self->ring_wanted = (unsigned)MIN(MAX(LIBEC_RING_BYTES_MAX / shape->size, 1), LIBEC_RING_MAX);
  *ret_self = self;
  return 0;
}

static void libec_close(void *arg) {
  struct libec_self *self = arg;
  for (unsigned i = 0; i < self->ring_count; i++)
    libec.encode_cleanup(self->desc, self->ring[i].data, self->ring[i].parity);
  libec.destroy(self->desc);
  pthread_mutex_destroy(&self->lock);
  free(self);
}

static int libec_patterns(void *arg, const uint32_t *erased, unsigned count) {
  struct libec_self *self = arg;
  memcpy(self->erased, erased, count * sizeof *erased);
  return 0;
}

static int libec_encode(void *arg, struct bench_slot *slot) {
  struct libec_self *self = arg;
  char **data, **parity;
  uint64_t len;
  if (libec.encode(self->desc, (char *)slot->units[0], slot->size, &data, &parity, &len) != 0)
    return ERR_INVALID;
  libec.encode_cleanup(self->desc, data, parity);
  return 0;
}

/* The objects are encoded when a slot is first asked for; samples before the first count none. */
static int libec_object_of(struct libec_self *self, struct bench_slot *slot,
                           struct libec_object **ret_object) {
  unsigned at = slot->index % self->ring_wanted;
  struct libec_object *object = &self->ring[at];
  if (__atomic_load_n(&self->ring_count, __ATOMIC_ACQUIRE) <= at) {
    int err = 0;
    pthread_mutex_lock(&self->lock);
    while (self->ring_count <= at && err == 0) {
      struct libec_object *next = &self->ring[self->ring_count];
      err = libec.encode(self->desc, (char *)slot->units[0], slot->size, &next->data, &next->parity,
                         &self->fragment_len);
      if (err == 0) __atomic_store_n(&self->ring_count, self->ring_count + 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&self->lock);
    if (err != 0) return ERR_INVALID;
  }
  *ret_object = object;
  return 0;
}

/* `check`: the slot whose object it is, or NULL. */
static int libec_rebuild(struct libec_self *self, unsigned p, struct bench_slot *slot, bool check) {
  struct libec_object *object;
  char *fragments[MAP_SLOTS_MAX], *data = NULL;
  int count = 0, err = libec_object_of(self, slot, &object);
  if (err < 0) return err;
  uint32_t erased = self->erased[p], data_mask = (uint32_t)((UINT64_C(1) << self->k) - 1);
  for (unsigned i = 0; i < self->k + self->m; i++)
    if (!(erased >> i & 1))
      fragments[count++] = i < self->k ? object->data[i] : object->parity[i - self->k];
  if (erased & data_mask) {
    uint64_t size;
    if (libec.decode(self->desc, fragments, count, self->fragment_len, 0, &data, &size) != 0)
      return ERR_INVALID;
    if (check && (size != slot->size || memcmp(data, slot->units[0], size) != 0)) err = ERR_CORRUPT;
    libec.decode_cleanup(self->desc, data);
  }
  for (uint32_t left = erased & ~data_mask; left && err == 0; left &= left - 1) {
    int index = __builtin_ctz(left);
    char *out = malloc(self->fragment_len);
    if (!out) return -ENOMEM;
    if (libec.reconstruct(self->desc, fragments, count, self->fragment_len, index, out) != 0)
      err = ERR_INVALID;
    else if (check && memcmp(out, object->parity[index - (int)self->k], self->fragment_len) != 0)
      err = ERR_CORRUPT;
    free(out);
  }
  return err;
}

static int libec_decode(void *arg, unsigned p, struct bench_slot *slot) {
  return libec_rebuild(arg, p, slot, false);
}

static int libec_verify(void *arg, unsigned p, struct bench_slot *slot) {
  return libec_rebuild(arg, p, slot, true);
}

const struct bench_plugin bench_plugin_liberasurecode = {
    "liberasurecode", libec_open,   libec_close,  bench_unit_plain,
    libec_patterns,   libec_encode, libec_decode, libec_verify};

/* ---- jerasure 2 (jerasure.h, reed_sol.h, cauchy.h) ---- */

#define JERASURE_W 8

static struct {
  void *loaded;
  int *(*vandermonde)(int k, int m, int w);
  int *(*cauchy_good)(int k, int m, int w);
  int *(*to_bitmatrix)(int k, int m, int w, int *matrix);
  int **(*smart_schedule)(int k, int m, int w, int *bitmatrix);
  void (*free_schedule)(int **schedule);
  void (*matrix_encode)(int k, int m, int w, int *matrix, char **data, char **coding, int size);
  int (*matrix_decode)(int k, int m, int w, int *matrix, int row_k_ones, int *erasures, char **data,
                       char **coding, int size);
  void (*schedule_encode)(int k, int m, int w, int **schedule, char **data, char **coding, int size,
                          int packet);
  int (*schedule_decode)(int k, int m, int w, int *bitmatrix, int *erasures, char **data,
                         char **coding, int size, int packet, int smart);
} jerasure;

struct jerasure_self {
  int k, m, packet;
  bool cauchy;
  int *matrix, *bitmatrix, **schedule;
  uint32_t erased[BENCH_PATTERNS_MAX];
};

static int jerasure_load(char *why) {
  static const char file[] = "libJerasure.so.2";
  const struct symbol symbols[] = {
      {"reed_sol_vandermonde_coding_matrix", &jerasure.vandermonde},
      {"cauchy_good_general_coding_matrix", &jerasure.cauchy_good},
      {"jerasure_matrix_to_bitmatrix", &jerasure.to_bitmatrix},
      {"jerasure_smart_bitmatrix_to_schedule", &jerasure.smart_schedule},
      {"jerasure_free_schedule", &jerasure.free_schedule},
      {"jerasure_matrix_encode", &jerasure.matrix_encode},
      {"jerasure_matrix_decode", &jerasure.matrix_decode},
      {"jerasure_schedule_encode", &jerasure.schedule_encode},
      {"jerasure_schedule_decode_lazy", &jerasure.schedule_decode},
  };
  void *library;
  if (jerasure.loaded) return 0;
  int err = bench_library(file, "libjerasure2", &library, why);
  if (err == 0) err = symbols_load(library, file, symbols, ARRAY_LEN(symbols), why);
  if (err == 0) jerasure.loaded = library;
  return err;
}

static void jerasure_close(void *arg) {
  struct jerasure_self *self = arg;
  if (self->schedule) jerasure.free_schedule(self->schedule);
  free(self->bitmatrix);
  free(self->matrix);
  free(self);
}

/* A multiple of a machine word, which schedules want. */
static int jerasure_packet(const struct bench_shape *shape) {
  return (int)MAX(bench_packet_size(shape) / 16 * 16, 16);
}

static size_t jerasure_unit(const struct bench_shape *shape) {
  size_t plain = bench_unit_plain(shape);
  if (strcmp(shape->technique, "cauchy") != 0) return plain;
  size_t step = (size_t)JERASURE_W * (size_t)jerasure_packet(shape);
  return DIV_UP(plain, step) * step;
}

static int jerasure_open(const struct bench_shape *shape, void **ret_self, char *why) {
  bool cauchy = strcmp(shape->technique, "cauchy") == 0;
  int err = jerasure_load(why);
  if (err < 0) return err;
  if (!cauchy && strcmp(shape->technique, "reed_sol_van") != 0) {
    snprintf(why, BENCH_WHY_BYTES, "jerasure has no %.40s", shape->technique);
    return ERR_INVALID;
  }
  struct jerasure_self *self = calloc(1, sizeof *self);
  if (!self) return -ENOMEM;
  int k = self->k = (int)shape->k, m = self->m = (int)shape->m;
  self->cauchy = cauchy;
  self->packet = jerasure_packet(shape);
  self->matrix = (cauchy ? jerasure.cauchy_good : jerasure.vandermonde)(k, m, JERASURE_W);
  if (self->matrix && cauchy) {
    self->bitmatrix = jerasure.to_bitmatrix(k, m, JERASURE_W, self->matrix);
    if (self->bitmatrix)
      self->schedule = jerasure.smart_schedule(k, m, JERASURE_W, self->bitmatrix);
  }
  if (!self->matrix || (cauchy && !self->schedule)) {
    snprintf(why, BENCH_WHY_BYTES, "jerasure makes no matrix for %d+%d", k, m);
    jerasure_close(self);
    return ERR_INVALID;
  }
  *ret_self = self;
  return 0;
}

static int jerasure_patterns(void *arg, const uint32_t *erased, unsigned count) {
  struct jerasure_self *self = arg;
  memcpy(self->erased, erased, count * sizeof *erased);
  return 0;
}

static int jerasure_encode(void *arg, struct bench_slot *slot) {
  struct jerasure_self *self = arg;
  char **data = (char **)slot->units;
  if (self->cauchy)
    jerasure.schedule_encode(self->k, self->m, JERASURE_W, self->schedule, data, data + self->k,
                             (int)slot->len, self->packet);
  else
    jerasure.matrix_encode(self->k, self->m, JERASURE_W, self->matrix, data, data + self->k,
                           (int)slot->len);
  return 0;
}

static int jerasure_decode(void *arg, unsigned p, struct bench_slot *slot) {
  struct jerasure_self *self = arg;
  char *units[MAP_SLOTS_MAX];
  int erasures[MAP_SLOTS_MAX + 1], count = 0;
  memcpy(units, slot->units, (size_t)(self->k + self->m) * sizeof *units);
  for (uint32_t left = self->erased[p]; left; left &= left - 1) {
    int index = __builtin_ctz(left);
    units[index] = (char *)slot->out[count];
    erasures[count++] = index;
  }
  erasures[count] = -1;
  int ret = self->cauchy
                ? jerasure.schedule_decode(self->k, self->m, JERASURE_W, self->bitmatrix, erasures,
                                           units, units + self->k, (int)slot->len, self->packet, 1)
                : jerasure.matrix_decode(self->k, self->m, JERASURE_W, self->matrix, 1, erasures,
                                         units, units + self->k, (int)slot->len);
  return ret == 0 ? 0 : ERR_INVALID;
}

const struct bench_plugin bench_plugin_jerasure = {
    "jerasure",        jerasure_open,   jerasure_close,  jerasure_unit,
    jerasure_patterns, jerasure_encode, jerasure_decode, NULL};
