/* settings_schema.h: the schema table, and a file's values before they are typed. Internal to
 * config/ and its tests.
 *
 *   YAML file --settings_yaml--> struct raw --settings_env--> struct raw --settings_fill-->
 * settings
 *
 * Everything that has to know a field's name, type, range or default asks this table: the reader,
 * the environment, the printer, the error texts and the tests. Adding a field is a row. */
#ifndef KOFN_CONFIG_SETTINGS_SCHEMA_H
#define KOFN_CONFIG_SETTINGS_SCHEMA_H

#include "config/settings.h"

#define SCHEMA_SECTION_FIELDS_MAX 24
#define SCHEMA_PATH_BYTES_MAX 160
#define SCHEMA_RANGE_BYTES_MAX 160
#define SCHEMA_VALUE_BYTES_MAX 2048

enum section {
  SECTION_TOP, /* fields of the file itself */
  SECTION_CLUSTER,
  SECTION_HOSTS,
  SECTION_HOST_DRIVES,
  SECTION_POOLS,
  SECTION_POOL_DRIVES,
  SECTION_USERS,
  SECTION_SERVER,
  SECTION_DRIVE,
  SECTION_CODEC,
  SECTION_COUNT
};

struct section_row {
  const char *name;
  bool is_list;
  bool required;         /* a list with no item is refused too */
  unsigned items_max;    /* of a list */
  enum section parent;   /* SECTION_TOP, or the list whose items hold this list */
  const char *shorthand; /* the field that a scalar item of the list stands for, or NULL */
};

enum field_type {
  FIELD_NAME,        /* 1 to max of A-Z a-z 0-9 . _ - */
  FIELD_ACCESS_KEY,  /* min to max printable characters without space : / , = */
  FIELD_SECRET,      /* min to max bytes */
  FIELD_SECRET_FILE, /* an absolute path; its content is the field before it in the table */
  FIELD_PATH,        /* absolute */
  FIELD_DRIVE_REF,   /* "host id/drive name" */
  FIELD_ADDRESS,     /* host:port */
  FIELD_LISTEN,      /* host:port or :port */
  FIELD_BOOL,
  FIELD_UINT,      /* unsigned */
  FIELD_SIZE,      /* uint64_t bytes */
  FIELD_SIZE32,    /* uint32_t bytes, a multiple of 64 */
  FIELD_SIZE_AUTO, /* as FIELD_SIZE, or "auto": UINT64_MAX */
  FIELD_TIME,      /* uint64_t ms */
  FIELD_LEVEL,     /* enum log_level */
  FIELD_TECHNIQUE,
  FIELD_LIST, /* `items` says of what */
};

struct field {
  enum section section;
  const char *name;
  enum field_type type;
  size_t offset; /* in the section's struct (struct settings for those that are no lists) */
  bool required;
  uint64_t min, max;
  const char *def; /* as it would stand in the file; NULL: none, or computed */
  enum section items;
  const char *words;
};

extern const struct section_row schema_sections[SECTION_COUNT];
extern const struct field schema_fields[];
extern const unsigned schema_field_count;

/* The i-th field of a section, NULL at the end. */
const struct field *schema_field_at(enum section section, unsigned i);
/* Its number within the section, or ERR_NOT_FOUND. */
int schema_field_find(enum section section, const char *name, size_t len);
/* "1 to 32", "4KiB to 1MiB, a multiple of 64", "true or false", ... */
void schema_range(const struct field *f, char out[SCHEMA_RANGE_BYTES_MAX]);

/* One value as it was written. text is NULL where it was not given. */
struct raw_value {
  char *text;
  int line;
  char *env; /* the variable that it came from, or NULL */
};

struct raw_item;
struct raw_list {
  struct raw_item *items;
  unsigned count;
  int line; /* 0: not given */
};

struct raw_item {
  int line;
  struct raw_value values[SCHEMA_SECTION_FIELDS_MAX];
  struct raw_list sub; /* a host's drives, a pool's drives */
};

struct raw {
  const char *file;                       /* as the caller named it; NULL: no file */
  struct raw_item singles[SECTION_COUNT]; /* by section, for those that are no lists */
  struct raw_list lists[SECTION_COUNT];
  struct settings_error *error;
};

void raw_free(struct raw *raw);
/* Appends an empty item: NULL without memory. */
struct raw_item *raw_list_add(struct raw_list *list, int line);
/* Copies `text` (NULL: clears). -ENOMEM. */
_must_check_ int raw_set(struct raw_value *v, const char *text, size_t len, int line,
                         const char *env);

/* Where something stands: "pools[0].k", or "hosts[1].drives[0].path". index and sub_index are -1
 * where there is none; field may be NULL. */
struct place {
  enum section section;
  int index, sub_index;
  const char *field;
  int line;
  const char *env;
};

void place_path(const struct place *p, char out[SCHEMA_PATH_BYTES_MAX]);
/* Writes "FILE:LINE: path: words" (or "environment: KOFN_X: words") and returns ERR_CONFIG. */
int schema_refuse(struct raw *raw, const struct place *p, const char *fmt, ...) _printf_(3, 4);
/* Says that there is no memory; returns -ENOMEM. */
int schema_no_memory(struct raw *raw);

/* settings_yaml.c: the text of a file into raw. */
_must_check_ int raw_read_yaml(struct raw *raw, const char *text, size_t len);
/* settings_env.c: KOFN_* of `environment` (as in environ) over raw. */
_must_check_ int raw_read_env(struct raw *raw, char *const *environment);
/* settings_fill.c: raw into typed settings, with every check that needs no other field. */
_must_check_ int raw_fill(struct raw *raw, struct settings *s);
/* settings_check.c: what takes more than one field: duplicates, references, secrets. */
_must_check_ int raw_check(struct raw *raw, struct settings *s);

/* settings_values.c. Whole text or ERR_INVALID. */
_must_check_ int value_parse_uint(const char *text, uint64_t *ret_value);
bool value_is_name(const char *text, size_t len_max);
/* Copies an absolute path without doubled slashes, "." and a slash at its end. ERR_INVALID where it
 * is not absolute, has "..", a control character or is too long. */
_must_check_ int value_clean_path(const char *text, char out[SETTINGS_PATH_BYTES_MAX + 1]);
void value_print_size(uint64_t bytes, char out[32]);
void value_print_time(uint64_t ms, char out[32]);
bool value_is_loopback(const char *host);
/* The content of a secret's file without the newline at its end. -errno, or ERR_TOO_LARGE. The
 * length is returned. */
_must_check_ int value_read_secret(const char *path, uint8_t out[SETTINGS_SECRET_BYTES_MAX + 1]);
/* A whole file of at most `max` bytes, with a NUL after it; the caller frees. -errno,
 * ERR_TOO_LARGE. */
_must_check_ int value_read_file(const char *path, size_t max, char **ret_text, size_t *ret_len);

#endif
