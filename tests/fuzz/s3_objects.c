/* s3_objects.c: see s3_objects.h. Linked in front of storage/object.
 *
 * Buckets that begin with "no" do not exist, with "bad" are out of reach; keys alike. Everything
 * else exists: an object of 1,000 bytes, and lists that give back what they were asked for. */
#include "tests/fuzz/s3_objects.h"

#include "config/err.h"

#define TASKS_MAX 8
#define READ_BYTES 3000
#define OBJECT_BYTES 1000

struct object_put {
  struct object_put_args args;
  object_put_cb cb;
  void *arg;
  uint8_t *buf;
  size_t buf_len;
  uint64_t got;
  int err;
  bool want_told, reading, over;
};

struct object_get {
  const struct object_get_ops *ops;
  void *arg;
  struct row row;
  uint8_t *row_bytes;
  struct sink *sink;
  uint64_t left;
  int err;
  bool writing, found, sent_any, cancelled, reads;
};

struct object_list {
  struct object_list_args args;
  uint8_t prefix[KEY_BYTES_MAX], from[KEY_BYTES_MAX];
  object_list_cb cb;
  void *arg;
  bool cancelled;
};

struct bucket_task {
  bucket_cb cb;
  bucket_list_cb list_cb;
  void *arg;
  struct bucket_info info;
  int err;
  unsigned limit;
};

static struct {
  struct object_put *put;
  struct object_get *get;
  struct object_list *list;
  struct bucket_task *bucket;
  struct fuzz_rand rand;
  struct byte_writer *log;
} world;

static void note(const char *what, struct slice a, struct slice b, uint64_t n) {
  char number[32];
  put_bytes(world.log, slice_str(what));
  put_u8(world.log, ' ');
  put_bytes(world.log, a);
  put_u8(world.log, ' ');
  put_bytes(world.log, b);
  int len = snprintf(number, sizeof number, " %llu\n", (unsigned long long)n);
  put_bytes(world.log, slice_of(number, (size_t)len));
}

static int fate(struct slice name, int absent) {
  if (slice_starts_with(name, SLICE_LIT("no"))) return absent;
  if (slice_starts_with(name, SLICE_LIT("bad"))) return ERR_UNAVAILABLE;
  return 0;
}

void s3_objects_begin(uint64_t seed, struct byte_writer *log) {
  world.rand = (struct fuzz_rand){seed};
  world.log = log;
}

void s3_objects_end(void) {
  FUZZ_CHECK(!world.put && !world.get && !world.list && !world.bucket);
}

/* ---- buckets ---- */

static struct bucket_task *bucket_start(struct slice name, void *arg) {
  FUZZ_CHECK(!world.bucket);
  struct bucket_task *t = world.bucket = calloc(1, sizeof *t);
  FUZZ_CHECK(t);
  t->arg = arg;
  FUZZ_CHECK(name.len < sizeof t->info.name);
  if (name.len) memcpy(t->info.name, name.data, name.len);
  snprintf(t->info.owner, sizeof t->info.owner, "anna");
  t->info.pool = 1;
  t->info.state = BUCKET_ACTIVE;
  t->info.created_ms = 1764500000000;
  t->err = fate(name, ERR_NO_SUCH_BUCKET);
  return t;
}

void bucket_lookup(struct objects *o, struct slice name, bool for_write, bucket_cb cb, void *arg) {
  note("lookup", name, (struct slice){0}, for_write);
  bucket_start(name, arg)->cb = cb;
}

void bucket_create(struct objects *o, struct slice name, unsigned pool, struct slice owner,
                   bucket_cb cb, void *arg) {
  FUZZ_CHECK(pool > MAP_POOL_SYSTEM && pool < o->map->pool_count);
  note("create", name, owner, pool);
  struct bucket_task *t = bucket_start(name, arg);
  t->cb = cb;
  if (t->err == ERR_NO_SUCH_BUCKET) t->err = ERR_BUCKET_EXISTS;
}

void bucket_delete(struct objects *o, struct slice name, bucket_cb cb, void *arg) {
  note("delete bucket", name, (struct slice){0}, 0);
  bucket_start(name, arg)->cb = cb;
}

void bucket_list(struct objects *o, struct slice from, struct slice prefix, unsigned limit,
                 bucket_list_cb cb, void *arg) {
  FUZZ_CHECK(limit >= 1 && limit <= 1000);
  note("buckets", from, prefix, limit);
  struct bucket_task *t = bucket_start(SLICE_LIT("photos"), arg);
  t->list_cb = cb;
  t->limit = limit;
}

static void bucket_turn(void) {
  struct bucket_task *t = TAKE(world.bucket);
  if (t->list_cb)
    t->list_cb(t->arg, 0, &t->info, 1, t->limit == 1);
  else
    t->cb(t->arg, t->err, t->err == 0 || t->err == ERR_BUCKET_EXISTS ? &t->info : NULL);
  free(t);
}

/* ---- PUT and DELETE ---- */

int object_put_start(struct objects *o, const struct object_put_args *args, object_put_cb cb,
                     void *arg, struct object_put **ret_put) {
  FUZZ_CHECK(!world.put && args->key.len > 0 && args->key.len <= KEY_BYTES_MAX);
  FUZZ_CHECK(!memchr(args->key.data, 0, args->key.len));
  FUZZ_CHECK(args->attr_count <= ATTR_COUNT_MAX);
  struct object_put *p = world.put = calloc(1, sizeof *p);
  FUZZ_CHECK(p);
  p->args = *args;
  p->cb = cb;
  p->arg = arg;
  p->err = fate(args->key, ERR_PRECONDITION);
  note(args->kind == ROW_PUT ? "put" : "delete", slice_str(args->bucket->name), args->key,
       args->body ? args->body->length : 0);
  note("if", args->conditions.if_match, (struct slice){0}, args->conditions.if_none_match_any);
  for (unsigned i = 0; i < args->attr_count; i++)
    note("attr", args->attrs[i].name, args->attrs[i].value, 0);
  *ret_put = p;
  return 0;
}

void object_put_cancel(struct object_put *p) {
  FUZZ_CHECK(p == world.put);
  p->err = ERR_CANCELLED;
  if (p->reading) p->args.body->ops->cancel(p->args.body);
}

static void put_read(void *arg, int err, size_t n) {
  struct object_put *p = arg;
  p->reading = false;
  p->got += n;
  if (err < 0 && p->err == 0) p->err = err;
  p->over = err < 0 || n < p->buf_len;
}

static void put_turn(struct object_put *p) {
  if (p->reading) return;
  if (p->err == 0 && p->args.body && !p->over) {
    if (!p->want_told && p->args.want_body) p->args.want_body(p->arg);
    p->want_told = true;
    free(p->buf);
    p->buf_len = 1 + fuzz_below(&world.rand, READ_BYTES);
    p->buf = malloc(p->buf_len);
    p->reading = true;
    p->args.body->ops->read(p->args.body, p->buf, p->buf_len, put_read, p);
    return;
  }
  world.put = NULL;
  if (p->err == 0) note("body", (struct slice){0}, (struct slice){0}, p->got);
  struct object_put_result r = {.err = p->err, .etag = "0123456789abcdef", .size = p->got};
  p->cb(p->arg, &r);
  free(p->buf);
  free(p);
}

/* ---- GET ---- */

int object_get_start(struct objects *o, const struct bucket_info *bucket, struct slice key,
                     bool want_data, const struct object_get_ops *ops, void *arg,
                     struct object_get **ret_get) {
  static const struct id128 uuid = {{1}};
  struct attr attrs[] = {{SLICE_LIT("content-type"), SLICE_LIT("text/plain")},
                         {SLICE_LIT("x-amz-storage-class"), SLICE_LIT("STANDARD")},
                         {SLICE_LIT("x-amz-meta-key"), key}};
  FUZZ_CHECK(!world.get && key.len > 0 && key.len <= KEY_BYTES_MAX);
  note(want_data ? "get" : "head", slice_str(bucket->name), key, 0);
  struct object_get *g = world.get = calloc(1, sizeof *g);
  FUZZ_CHECK(g);
  g->ops = ops;
  g->arg = arg;
  g->err = fate(key, ERR_NO_SUCH_KEY);
  struct row row = {.ver = {1, 1},
                    .kind = ROW_PUT,
                    .data_id = {{1}},
                    .profile = {TECHNIQUE_NONE, 1, 0, 65536},
                    .size = slice_starts_with(key, SLICE_LIT("empty")) ? 0 : OBJECT_BYTES,
                    .mtime_ms = 784111777000,
                    .etag = SLICE_LIT("0123456789abcdef")};
  if (row.size == 0) row.data_id = (struct id128){{0}};
  size_t len;
  FUZZ_CHECK(row_encode(&row, attrs, ARRAY_LEN(attrs), &uuid, key, &g->row_bytes, &len) == 0);
  FUZZ_CHECK(row_decode(slice_of(g->row_bytes, len), &uuid, key, &g->row) == 0);
  *ret_get = g;
  return 0;
}

static void get_free(struct object_get *g) {
  FUZZ_CHECK(!g->writing && g == world.get);
  world.get = NULL;
  free(g->row_bytes);
  free(g);
}

void object_get_read(struct object_get *g, uint64_t offset, uint64_t len, struct sink *sink) {
  FUZZ_CHECK(len > 0 && offset <= g->row.size && len <= g->row.size - offset);
  note("read", (struct slice){0}, (struct slice){0}, offset << 32 | len);
  g->sink = sink;
  g->left = len;
  g->reads = true;
}

void object_get_close(struct object_get *g) {
  FUZZ_CHECK(g->found && !g->reads);
  get_free(g);
}

void object_get_cancel(struct object_get *g) {
  FUZZ_CHECK(g == world.get);
  g->err = ERR_CANCELLED;
}

static void get_written(void *arg, int err) {
  struct object_get *g = arg;
  g->writing = false;
  if (err < 0 && g->err == 0) g->err = err;
}

static void get_turn(struct object_get *g) {
  static const uint8_t bytes[OBJECT_BYTES] = {'o'};
  if (g->writing) return;
  if (!g->found) {
    g->found = true;
    if (g->err == 0) {
      g->ops->found(g->arg, g, 0, &g->row);
      return;
    }
    const struct object_get_ops *ops = g->ops;
    void *arg = g->arg;
    int err = g->err;
    get_free(g);
    ops->found(arg, NULL, err, NULL);
    return;
  }
  if (!g->reads) return;
  if (g->err == 0 && g->left > 0) {
    struct slice part = slice_of(bytes, 1 + fuzz_below(&world.rand, (size_t)g->left));
    g->left -= part.len;
    g->writing = g->sent_any = true;
    g->sink->ops->write(g->sink, &part, 1, get_written, g);
    return;
  }
  const struct object_get_ops *ops = g->ops;
  void *arg = g->arg;
  int err = g->err;
  bool sent = g->sent_any;
  get_free(g);
  ops->done(arg, err, sent);
}

/* ---- LIST ---- */

int object_list_start(struct objects *o, const struct object_list_args *args, object_list_cb cb,
                      void *arg, struct object_list **ret_list) {
  FUZZ_CHECK(!world.list && args->limit >= 1 && args->limit <= 1000);
  FUZZ_CHECK(args->prefix.len <= KEY_BYTES_MAX && args->delimiter.len <= KEY_BYTES_MAX);
  FUZZ_CHECK(args->from.len <= KEY_BYTES_MAX);
  note("list", args->prefix, args->from, args->limit);
  note("delimiter", args->delimiter, (struct slice){0}, 0);
  struct object_list *l = world.list = calloc(1, sizeof *l);
  FUZZ_CHECK(l);
  l->args = *args;
  l->cb = cb;
  l->arg = arg;
  if (args->prefix.len) memcpy(l->prefix, args->prefix.data, args->prefix.len);
  if (args->from.len) memcpy(l->from, args->from.data, args->from.len);
  l->args.prefix.data = l->prefix;
  l->args.from.data = l->from;
  *ret_list = l;
  return 0;
}

void object_list_cancel(struct object_list *l) {
  FUZZ_CHECK(l == world.list);
  l->cancelled = true;
}

static void list_turn(struct object_list *l) {
  struct object_list_item items[] = {
      {.key = l->args.prefix.len ? l->args.prefix : SLICE_LIT("a/"), .is_prefix = true},
      {.key = l->args.from.len ? l->args.from : SLICE_LIT("k<&>\x01\xff"),
       .size = 5,
       .mtime_ms = 784111777123,
       .etag = SLICE_LIT("abc")}};
  struct object_list_result r = {.err = l->cancelled ? ERR_CANCELLED : 0,
                                 .truncated = l->args.limit <= 2,
                                 .count = MIN(l->args.limit, 2u),
                                 .items = items};
  world.list = NULL;
  l->cb(l->arg, &r);
  free(l);
}

bool s3_objects_turn(void) {
  if (!world.put && !world.get && !world.list && !world.bucket) return false;
  if (fuzz_below(&world.rand, 3) == 0) return true; /* later */
  bool waits = (world.put && world.put->reading) || (world.get && world.get->writing);
  if (world.bucket)
    bucket_turn();
  else if (world.list)
    list_turn(world.list);
  else if (world.put)
    put_turn(world.put);
  else
    get_turn(world.get);
  return !waits;
}
