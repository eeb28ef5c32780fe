/* bench_codec_plugin.c: kofn's own codec as a plugin, and ISA-L called directly: the yardstick.
 *
 * `isal-direct` does what the best caller of ISA-L would: tables made beforehand, one call for an
 * object, no lock. Under reed_sol_van and cauchy that is ec_encode_data alone (the general path),
 * under xor and xor3p xor_gen. It is loaded at run time as the other libraries are; the codec's
 * folder alone may include its headers. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#include "config/err.h"
#include "server/bench_codec.h"

#define UNIT_ALIGN 64
#define GF_TABLE_BYTES_EACH 32 /* ISA-L, erasure_code.h: of one coefficient */

int bench_library(const char *file, const char *package, void **ret_library,
                  char why[BENCH_WHY_BYTES]) {
  void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(why, BENCH_WHY_BYTES, "%s is not installed (Debian package %s)", file, package);
    return ERR_NOT_FOUND;
  }
  *ret_library = library; /* stays open: some libraries leave threads and tables behind */
  return 0;
}

size_t bench_unit_plain(const struct bench_shape *shape) {
  return (size_t)(DIV_UP(DIV_UP(shape->size, shape->k), UNIT_ALIGN) * UNIT_ALIGN);
}

/* ---- isa: kofn's API ---- */

struct isa {
  struct codec *codec;
  unsigned k, m;
  uint32_t all;
  uint32_t erased[BENCH_PATTERNS_MAX];
};

static int isa_open(const struct bench_shape *shape, void **ret_self, char *why) {
  int technique = technique_find(shape->technique);
  struct profile p = {.k = (uint8_t)shape->k, .m = (uint8_t)shape->m, .unit_bytes = 65536};
  if (technique < 0) {
    snprintf(why, BENCH_WHY_BYTES, "there is no technique `%.40s`", shape->technique);
    return ERR_INVALID;
  }
  p.technique = (uint8_t)technique;
  int err = codec_check(&p, why, BENCH_WHY_BYTES);
  if (err < 0) return err;
  struct isa *self = calloc(1, sizeof *self);
  if (!self) return -ENOMEM;
  err = codec_new(&p, &self->codec);
  if (err < 0) {
    free(self);
    return err;
  }
  self->k = shape->k;
  self->m = shape->m;
  self->all = (uint32_t)((UINT64_C(1) << (shape->k + shape->m)) - 1);
  *ret_self = self;
  return 0;
}

static void isa_close(void *arg) {
  struct isa *self = arg;
  codec_free(self->codec);
  free(self);
}

static int isa_patterns(void *arg, const uint32_t *erased, unsigned count) {
  struct isa *self = arg;
  memcpy(self->erased, erased, count * sizeof *erased);
  return 0;
}

static int isa_encode(void *arg, struct bench_slot *slot) {
  struct isa *self = arg;
  codec_encode(self->codec, (const uint8_t *const *)slot->units, slot->units + self->k, slot->len);
  return 0;
}

static int isa_decode(void *arg, unsigned p, struct bench_slot *slot) {
  struct isa *self = arg;
  uint32_t want = self->erased[p];
  struct codec_plan *plan;
  uint8_t *units[MAP_SLOTS_MAX];
  int err = codec_plan_get(self->codec, self->all & ~want, want, &plan);
  if (err < 0) return err;
  memcpy(units, slot->units, (self->k + self->m) * sizeof *units);
  unsigned out = 0;
  for (uint32_t left = want; left; left &= left - 1) units[__builtin_ctz(left)] = slot->out[out++];
  codec_plan_run(plan, units, slot->len);
  codec_plan_put(self->codec, plan);
  return 0;
}

const struct bench_plugin bench_plugin_isa = {
    "isa", isa_open, isa_close, bench_unit_plain, isa_patterns, isa_encode, isa_decode, NULL};

/* ---- isal-direct ---- */

static struct {
  void *loaded;
  void (*encode_data)(int len, int k, int rows, unsigned char *tables, unsigned char **data,
                      unsigned char **coding);
  void (*init_tables)(int k, int rows, unsigned char *matrix, unsigned char *tables);
  void (*rs_matrix)(unsigned char *matrix, int n, int k);
  void (*cauchy_matrix)(unsigned char *matrix, int n, int k);
  int (*invert)(unsigned char *in, unsigned char *out, const int n);
  unsigned char (*mul)(unsigned char a, unsigned char b);
  int (*xor_gen)(int vects, int len, void **array);
} isal;

/* Of one pattern: what is read, and ISA-L's tables; none where it is one XOR for each output. */
struct direct_plan {
  uint8_t *tables;
  uint8_t sources[MAP_SLOTS_MAX], wanted[MAP_SLOTS_MAX];
  unsigned source_count, wanted_count;
  /* xor, xor3p: the sources of each output */
  uint32_t terms[MAP_SLOTS_MAX];
};

struct direct {
  unsigned k, m;
  bool is_xor;
  uint8_t matrix[MAP_SLOTS_MAX * MAP_SLOTS_MAX]; /* n rows of k */
  struct direct_plan encode;
  struct direct_plan *plans;
  unsigned plan_count;
};

static int isal_load(char *why) {
  if (isal.loaded) return 0;
  void *library;
  int err = bench_library("libisal.so.2", "libisal2", &library, why);
  if (err < 0) return err;
  const struct {
    const char *name;
    void *into;
  } symbols[] = {
      {"ec_encode_data", &isal.encode_data},
      {"ec_init_tables", &isal.init_tables},
      {"gf_gen_rs_matrix", &isal.rs_matrix},
      {"gf_gen_cauchy1_matrix", &isal.cauchy_matrix},
      {"gf_invert_matrix", &isal.invert},
      {"gf_mul", &isal.mul},
      {"xor_gen", &isal.xor_gen},
  };
  for (size_t i = 0; i < ARRAY_LEN(symbols); i++) {
    void *at = dlsym(library, symbols[i].name);
    if (!at) {
      snprintf(why, BENCH_WHY_BYTES, "libisal.so.2 has no %s", symbols[i].name);
      return ERR_NOT_FOUND;
    }
    memcpy(symbols[i].into, &at, sizeof at);
  }
  isal.loaded = library;
  return 0;
}

/* In each group of three, parity i is the XOR of data i and the next (codec/xor3p.h). */
static void direct_xor3p_matrix(struct direct *self) {
  for (unsigned i = 0; i < self->k; i++) self->matrix[i * self->k + i] = 1;
  for (unsigned i = 0; i < self->m; i++)
    for (unsigned j = 0; j < 3; j++)
      self->matrix[(self->k + i) * self->k + i / 3 * 3 + j] = j != (i + 2) % 3;
}

static int direct_plan_tables(const struct direct *self, struct direct_plan *plan,
                              uint8_t *coefficients) {
  plan->tables =
      malloc((size_t)GF_TABLE_BYTES_EACH * plan->source_count * MAX(plan->wanted_count, 1u));
  if (!plan->tables) return -ENOMEM;
  (void)self;
  isal.init_tables((int)plan->source_count, (int)plan->wanted_count, coefficients, plan->tables);
  return 0;
}

static int direct_open(const struct bench_shape *shape, void **ret_self, char *why) {
  int err = isal_load(why);
  if (err < 0) return err;
  struct direct *self = calloc(1, sizeof *self);
  if (!self) return -ENOMEM;
  unsigned k = self->k = shape->k, n = k + shape->m;
  self->m = shape->m;
  self->is_xor = strncmp(shape->technique, "xor", 3) == 0;
  if (strcmp(shape->technique, "cauchy") == 0) {
    isal.cauchy_matrix(self->matrix, (int)n, (int)k);
  } else if (strcmp(shape->technique, "xor3p") == 0) {
    direct_xor3p_matrix(self);
  } else {
    isal.rs_matrix(self->matrix, (int)n, (int)k); /* its first parity is the XOR */
  }
  struct direct_plan *plan = &self->encode;
  for (unsigned i = 0; i < k; i++) plan->sources[plan->source_count++] = (uint8_t)i;
  for (unsigned i = k; i < n; i++) {
    for (unsigned j = 0; j < k; j++)
      plan->terms[plan->wanted_count] |= (uint32_t)(self->matrix[i * k + j] != 0) << j;
    plan->wanted[plan->wanted_count++] = (uint8_t)i;
  }
  if (!self->is_xor) err = direct_plan_tables(self, plan, self->matrix + k * k);
  if (err < 0) {
    free(self);
    return err;
  }
  *ret_self = self;
  return 0;
}

static void direct_plans_free(struct direct *self) {
  for (unsigned i = 0; i < self->plan_count; i++) free(self->plans[i].tables);
  free(self->plans);
  self->plans = NULL;
  self->plan_count = 0;
}

static void direct_close(void *arg) {
  struct direct *self = arg;
  direct_plans_free(self);
  free(self->encode.tables);
  free(self);
}

/* The first k chunks that are there, in order: the inverse of their rows makes the data, and the
 * row of a lost parity times that inverse makes the parity. */
static int direct_plan_general(struct direct *self, uint32_t erased, struct direct_plan *plan) {
  uint8_t rows[MAP_SLOTS_MAX * MAP_SLOTS_MAX], inverse[MAP_SLOTS_MAX * MAP_SLOTS_MAX];
  uint8_t coefficients[MAP_SLOTS_MAX * MAP_SLOTS_MAX];
  unsigned k = self->k, n = k + self->m;
  for (unsigned i = 0; i < n; i++) {
    if (erased >> i & 1) {
      plan->wanted[plan->wanted_count++] = (uint8_t)i;
    } else if (plan->source_count < k) {
      memcpy(rows + plan->source_count * k, self->matrix + i * k, k);
      plan->sources[plan->source_count++] = (uint8_t)i;
    }
  }
  if (plan->source_count < k || isal.invert(rows, inverse, (int)k) != 0) return ERR_UNAVAILABLE;
  for (unsigned w = 0; w < plan->wanted_count; w++) {
    for (unsigned j = 0; j < k; j++) {
      uint8_t sum = 0;
      for (unsigned i = 0; i < k; i++)
        sum ^= isal.mul(self->matrix[plan->wanted[w] * k + i], inverse[i * k + j]);
      coefficients[w * k + j] = sum;
    }
  }
  return direct_plan_tables(self, plan, coefficients);
}

/* Each lost chunk as the XOR of the fewest others that are there: found by trying the sums of all
 * sets of relations (a relation: a parity and what it is made of sum to nothing). */
static int direct_plan_xor(struct direct *self, uint32_t erased, struct direct_plan *plan) {
  for (uint32_t left = erased; left; left &= left - 1) {
    unsigned lost = (unsigned)__builtin_ctz(left);
    uint32_t best = 0;
    for (uint32_t set = 1; set < (UINT32_C(1) << MIN(self->m, 15u)); set++) {
      uint32_t sum = 0;
      for (unsigned i = 0; i < self->m; i++)
        if (set >> i & 1) sum ^= self->encode.terms[i] | UINT32_C(1) << (self->k + i);
      if (!(sum >> lost & 1) || (sum & erased & ~(UINT32_C(1) << lost))) continue;
      sum &= ~(UINT32_C(1) << lost);
      if (!best || __builtin_popcount(sum) < __builtin_popcount(best)) best = sum;
    }
    if (!best) return ERR_UNAVAILABLE;
    plan->terms[plan->wanted_count] = best;
    plan->wanted[plan->wanted_count++] = (uint8_t)lost;
  }
  return 0;
}

static int direct_patterns(void *arg, const uint32_t *erased, unsigned count) {
  struct direct *self = arg;
  direct_plans_free(self);
  self->plans = calloc(count, sizeof *self->plans);
  if (!self->plans) return -ENOMEM;
  self->plan_count = count;
  for (unsigned i = 0; i < count; i++) {
    int err = self->is_xor ? direct_plan_xor(self, erased[i], &self->plans[i])
                           : direct_plan_general(self, erased[i], &self->plans[i]);
    if (err < 0) return err;
  }
  return 0;
}

static int direct_xor(const struct direct_plan *plan, struct bench_slot *slot, uint8_t **out) {
  for (unsigned w = 0; w < plan->wanted_count; w++) {
    void *array[MAP_SLOTS_MAX + 1];
    int count = 0;
    for (uint32_t left = plan->terms[w]; left; left &= left - 1)
      array[count++] = slot->units[__builtin_ctz(left)];
    if (count == 1) {
      memcpy(out[w], array[0], slot->len);
      continue;
    }
    array[count++] = out[w];
    if (isal.xor_gen(count, (int)slot->len, array) != 0) return ERR_INVALID;
  }
  return 0;
}

static int direct_encode(void *arg, struct bench_slot *slot) {
  struct direct *self = arg;
  if (self->is_xor) return direct_xor(&self->encode, slot, slot->units + self->k);
  isal.encode_data((int)slot->len, (int)self->k, (int)self->m, self->encode.tables, slot->units,
                   slot->units + self->k);
  return 0;
}

static int direct_decode(void *arg, unsigned p, struct bench_slot *slot) {
  struct direct *self = arg;
  const struct direct_plan *plan = &self->plans[p];
  if (self->is_xor) return direct_xor(plan, slot, slot->out);
  unsigned char *in[MAP_SLOTS_MAX];
  for (unsigned i = 0; i < plan->source_count; i++) in[i] = slot->units[plan->sources[i]];
  isal.encode_data((int)slot->len, (int)self->k, (int)plan->wanted_count, plan->tables, in,
                   slot->out);
  return 0;
}

const struct bench_plugin bench_plugin_isal_direct = {
    "isal-direct",   direct_open,   direct_close,  bench_unit_plain,
    direct_patterns, direct_encode, direct_decode, NULL};

const struct bench_plugin *const bench_plugins[] = {&bench_plugin_isa, &bench_plugin_isal_direct,
                                                    &bench_plugin_liberasurecode,
                                                    &bench_plugin_jerasure, NULL};

const struct bench_plugin *bench_plugin_find(const char *name) {
  for (unsigned i = 0; bench_plugins[i]; i++)
    if (strcmp(bench_plugins[i]->name, name) == 0) return bench_plugins[i];
  return NULL;
}
