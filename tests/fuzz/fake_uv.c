/* fake_uv.c: see fake_uv.h. */
#include "tests/fuzz/fake_uv.h"

#include <arpa/inet.h>

#define HANDLES_MAX 16
#define TIMERS_MAX 16
#define WRITES_MAX 256
#define BUFS_MAX 64
#define SENT_BYTES_MAX (64u << 20)

enum kind { KIND_TCP, KIND_TIMER, KIND_PREPARE, KIND_IDLE };

struct handle {
  void *at; /* NULL: free */
  enum kind kind;
  bool reading, closing, active, shut;
  uv_alloc_cb alloc;
  uv_read_cb read;
  uv_close_cb close;
  uv_timer_cb timer;
  uv_prepare_cb prepare;
  uv_idle_cb idle;
  uv_connection_cb connection;
  uv_shutdown_cb shutdown;
  uv_shutdown_t *shutdown_req;
  uint64_t due;
};

struct pending {
  uv_write_t *req;
  void *stream;
  uv_write_cb cb;
  uv_buf_t bufs[BUFS_MAX];
  unsigned count;
};

static struct {
  struct handle handles[HANDLES_MAX];
  struct pending writes[WRITES_MAX];
  unsigned write_count;
  struct env_timer *timers[TIMERS_MAX];
  struct byte_writer sent; /* of the one connection that is looked at */
  const void *sent_by;
  struct fuzz_rand rand;
  uint64_t now;
  uv_loop_t loop;
} uv;

static struct handle *find(const void *at) {
  for (unsigned i = 0; i < HANDLES_MAX; i++)
    if (uv.handles[i].at == at && at) return &uv.handles[i];
  return NULL;
}

static struct handle *add(void *at, enum kind kind) {
  FUZZ_CHECK(!find(at));
  for (unsigned i = 0; i < HANDLES_MAX; i++) {
    if (uv.handles[i].at) continue;
    uv.handles[i] = (struct handle){.at = at, .kind = kind};
    return &uv.handles[i];
  }
  FUZZ_CHECK(!"room for a handle");
  return NULL;
}

static struct handle *get(const void *at) {
  struct handle *h = find(at);
  FUZZ_CHECK(h);
  return h;
}

/* ---- for the target ---- */

void fake_uv_begin(uint64_t seed) {
  fake_uv_end();
  memset(uv.handles, 0, sizeof uv.handles);
  memset(uv.timers, 0, sizeof uv.timers);
  uv.sent = (struct byte_writer){0};
  uv.sent_by = NULL;
  uv.rand = (struct fuzz_rand){seed};
  uv.now = 1000;
  uv.sent.max = SENT_BYTES_MAX;
}

void fake_uv_end(void) {
  for (unsigned i = 0; i < HANDLES_MAX; i++) FUZZ_CHECK(!uv.handles[i].at);
  FUZZ_CHECK(uv.write_count == 0);
  byte_writer_free(&uv.sent);
}

uv_loop_t *fake_uv_loop(void) {
  return &uv.loop;
}

size_t fake_uv_feed(uv_stream_t *stream, struct slice bytes) {
  struct handle *h = find(stream);
  uv_buf_t buf = {0};
  if (!h || !h->reading || h->closing || bytes.len == 0) return 0;
  h->alloc((uv_handle_t *)stream, 65536, &buf);
  if (buf.base == NULL || buf.len == 0) {
    h->read(stream, UV_ENOBUFS, &buf);
    return 0;
  }
  size_t n = MIN(bytes.len, (size_t)buf.len);
  memcpy(buf.base, bytes.data, n);
  h->read(stream, (ssize_t)n, &buf);
  return n;
}

bool fake_uv_feed_end(uv_stream_t *stream, int err) {
  struct handle *h = find(stream);
  uv_buf_t buf = {0};
  if (!h || !h->reading || h->closing) return false;
  h->alloc((uv_handle_t *)stream, 65536, &buf); /* libuv does not know yet, either */
  if (buf.base == NULL || buf.len == 0) {
    h->read(stream, UV_ENOBUFS, &buf);
    return false;
  }
  h->read(stream, err, &buf);
  return true;
}

bool fake_uv_is_closed(const void *handle) {
  return !find(handle);
}

bool fake_uv_reads(const void *handle) {
  struct handle *h = find(handle);
  return h && h->reading && !h->closing;
}

struct slice fake_uv_sent(const uv_stream_t *stream) {
  FUZZ_CHECK(!uv.sent.failed);
  return stream == uv.sent_by ? slice_of(uv.sent.data, uv.sent.len) : (struct slice){NULL, 0};
}

void fake_uv_connect(uv_stream_t *listener) {
  struct handle *h = get(listener);
  FUZZ_CHECK(h->connection);
  h->connection(listener, 0);
}

void fake_uv_advance(uint64_t ms) {
  uv.now += ms;
}

static void take_write(const struct pending *w) {
  uv.sent_by = w->stream;
  for (unsigned i = 0; i < w->count; i++)
    put_bytes(&uv.sent, slice_of(w->bufs[i].base, w->bufs[i].len));
}

/* The first pending write of `stream` (NULL: of any) ends. */
static bool end_write(const void *stream, int status) {
  for (unsigned i = 0; i < uv.write_count; i++) {
    struct pending w = uv.writes[i];
    if (stream && w.stream != stream) continue;
    if (!stream && get(w.stream)->closing) continue;
    uv.write_count--;
    memmove(&uv.writes[i], &uv.writes[i + 1], (uv.write_count - i) * sizeof w);
    if (status == 0) take_write(&w);
    w.cb(w.req, status);
    return true;
  }
  return false;
}

static bool end_close(struct handle *h) {
  while (h->kind == KIND_TCP && end_write(h->at, UV_ECANCELED)) {
  }
  uv_shutdown_t *shutdown = h->shutdown_req;
  uv_shutdown_cb shutdown_cb = h->shutdown;
  if (shutdown && !h->shut) {
    h->shut = true;
    shutdown_cb(shutdown, UV_ECANCELED);
  }
  void *at = h->at;
  uv_close_cb cb = h->close;
  h->at = NULL;
  if (cb) cb(at);
  return true;
}

static bool turn_handle(struct handle *h) {
  if (h->closing) return end_close(h);
  if (h->kind == KIND_TIMER && h->active && h->due <= uv.now) {
    h->active = false;
    h->timer(h->at);
    return true;
  }
  if (h->kind == KIND_PREPARE && h->active) {
    h->prepare(h->at);
    return true;
  }
  if (h->kind == KIND_IDLE && h->active) {
    h->idle(h->at);
    return true;
  }
  if (h->kind == KIND_TCP && h->shutdown_req && !h->shut) {
    h->shut = true;
    h->shutdown(h->shutdown_req, 0);
    return true;
  }
  return false;
}

bool fake_uv_turn(void) {
  bool any = false;
  for (unsigned i = 0; i < TIMERS_MAX; i++) {
    struct env_timer *t = uv.timers[i];
    if (!t || t->due_ms > uv.now) continue;
    uv.timers[i] = NULL;
    t->armed = false;
    t->fire(t);
    any = true;
  }
  for (unsigned i = 0; i < HANDLES_MAX; i++)
    if (uv.handles[i].at && turn_handle(&uv.handles[i])) any = true;
  if (fuzz_below(&uv.rand, 2) && end_write(NULL, 0)) any = true;
  return any || uv.write_count > 0;
}

/* ---- struct env ---- */

static uint64_t fake_now_ms(struct env *env) {
  return uv.now;
}

static uint64_t fake_wall_ms(struct env *env) {
  return FAKE_WALL_MS;
}

static void fake_random(struct env *env, void *dst, size_t len) {
  memset(dst, 7, len);
}

static void fake_timer_stop(struct env *env, struct env_timer *t) {
  for (unsigned i = 0; i < TIMERS_MAX; i++)
    if (uv.timers[i] == t) uv.timers[i] = NULL;
  t->armed = false;
}

static void fake_timer_start(struct env *env, struct env_timer *t, uint64_t delay_ms) {
  fake_timer_stop(env, t);
  t->due_ms = uv.now + delay_ms;
  t->armed = true;
  for (unsigned i = 0; i < TIMERS_MAX; i++) {
    if (uv.timers[i]) continue;
    uv.timers[i] = t;
    return;
  }
  FUZZ_CHECK(!"room for a timer");
}

struct env *fake_uv_env(void) {
  static const struct env_ops ops = {.now_ms = fake_now_ms,
                                     .wall_ms = fake_wall_ms,
                                     .random = fake_random,
                                     .timer_start = fake_timer_start,
                                     .timer_stop = fake_timer_stop};
  static struct env env = {&ops};
  return &env;
}

/* ---- libuv's names ---- */

uint64_t uv_now(const uv_loop_t *loop) {
  return uv.now;
}

int uv_random(uv_loop_t *loop, uv_random_t *req, void *buf, size_t len, unsigned flags,
              uv_random_cb cb) {
  memset(buf, 9, len);
  return 0;
}

int uv_tcp_init(uv_loop_t *loop, uv_tcp_t *tcp) {
  add(tcp, KIND_TCP);
  tcp->loop = loop;
  return 0;
}

int uv_tcp_open(uv_tcp_t *tcp, uv_os_sock_t sock) {
  return 0;
}

int uv_tcp_nodelay(uv_tcp_t *tcp, int enable) {
  return 0;
}

int uv_listen(uv_stream_t *stream, int backlog, uv_connection_cb cb) {
  get(stream)->connection = cb;
  return 0;
}

int uv_accept(uv_stream_t *server, uv_stream_t *client) {
  (void)get(client);
  return 0;
}

int uv_tcp_connect(uv_connect_t *req, uv_tcp_t *tcp, const struct sockaddr *addr,
                   uv_connect_cb cb) {
  return UV_ECONNREFUSED;
}

int uv_tcp_getpeername(const uv_tcp_t *tcp, struct sockaddr *name, int *len) {
  struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  memcpy(name, &in, sizeof in);
  *len = (int)sizeof in;
  return 0;
}

int uv_read_start(uv_stream_t *stream, uv_alloc_cb alloc, uv_read_cb read) {
  struct handle *h = get(stream);
  if (h->closing) return UV_EINVAL;
  h->alloc = alloc;
  h->read = read;
  h->reading = true;
  return 0;
}

int uv_read_stop(uv_stream_t *stream) {
  struct handle *h = find(stream);
  if (h) h->reading = false;
  return 0;
}

int uv_try_write(uv_stream_t *stream, const uv_buf_t bufs[], unsigned count) {
  size_t total = 0, n;
  FUZZ_CHECK(count <= BUFS_MAX);
  if (get(stream)->closing) return UV_EBADF;
  for (unsigned i = 0; i < uv.write_count; i++)
    if (uv.writes[i].stream == stream) return UV_EAGAIN;
  for (unsigned i = 0; i < count; i++) total += bufs[i].len;
  switch (fuzz_below(&uv.rand, 4)) {
    case 0:
      return UV_EAGAIN;
    case 1:
      n = 1 + fuzz_below(&uv.rand, total);
      break;
    default:
      n = total;
  }
  size_t left = n;
  uv.sent_by = stream;
  for (unsigned i = 0; i < count; i++) {
    size_t part = MIN(left, (size_t)bufs[i].len);
    put_bytes(&uv.sent, slice_of(bufs[i].base, part));
    left -= part;
  }
  return (int)n;
}

int uv_write(uv_write_t *req, uv_stream_t *stream, const uv_buf_t bufs[], unsigned count,
             uv_write_cb cb) {
  FUZZ_CHECK(count <= BUFS_MAX && uv.write_count < WRITES_MAX);
  if (get(stream)->closing) return UV_EBADF;
  struct pending *w = &uv.writes[uv.write_count++];
  w->req = req;
  w->stream = stream;
  w->cb = cb;
  w->count = count;
  memcpy(w->bufs, bufs, count * sizeof bufs[0]);
  return 0;
}

size_t uv_stream_get_write_queue_size(const uv_stream_t *stream) {
  size_t n = 0;
  for (unsigned i = 0; i < uv.write_count; i++)
    for (unsigned k = 0; uv.writes[i].stream == stream && k < uv.writes[i].count; k++)
      n += uv.writes[i].bufs[k].len;
  return n;
}

int uv_fileno(const uv_handle_t *handle, uv_os_fd_t *fd) {
  return UV_EBADF;
}

int uv_shutdown(uv_shutdown_t *req, uv_stream_t *stream, uv_shutdown_cb cb) {
  struct handle *h = get(stream);
  if (h->closing || h->shutdown_req) return UV_ENOTCONN;
  h->shutdown = cb;
  h->shutdown_req = req;
  return 0;
}

void uv_close(uv_handle_t *handle, uv_close_cb cb) {
  struct handle *h = get(handle);
  FUZZ_CHECK(!h->closing);
  h->closing = true;
  h->reading = false;
  h->close = cb;
}

int uv_tcp_close_reset(uv_tcp_t *tcp, uv_close_cb cb) {
  if (get(tcp)->shutdown_req) return UV_EINVAL;
  uv_close((uv_handle_t *)tcp, cb);
  return 0;
}

int uv_is_closing(const uv_handle_t *handle) {
  struct handle *h = find(handle);
  return !h || h->closing;
}

int uv_timer_init(uv_loop_t *loop, uv_timer_t *timer) {
  add(timer, KIND_TIMER);
  return 0;
}

int uv_timer_start(uv_timer_t *timer, uv_timer_cb cb, uint64_t timeout, uint64_t repeat) {
  struct handle *h = get(timer);
  if (h->closing) return UV_EINVAL;
  h->timer = cb;
  h->due = uv.now + timeout;
  h->active = true;
  return 0;
}

int uv_timer_stop(uv_timer_t *timer) {
  get(timer)->active = false;
  return 0;
}

int uv_prepare_init(uv_loop_t *loop, uv_prepare_t *prepare) {
  add(prepare, KIND_PREPARE);
  return 0;
}

int uv_prepare_start(uv_prepare_t *prepare, uv_prepare_cb cb) {
  struct handle *h = get(prepare);
  if (h->closing) return UV_EINVAL;
  h->prepare = cb;
  h->active = true;
  return 0;
}

int uv_prepare_stop(uv_prepare_t *prepare) {
  get(prepare)->active = false;
  return 0;
}

int uv_idle_init(uv_loop_t *loop, uv_idle_t *idle) {
  add(idle, KIND_IDLE);
  return 0;
}

int uv_idle_start(uv_idle_t *idle, uv_idle_cb cb) {
  struct handle *h = get(idle);
  if (h->closing) return UV_EINVAL;
  h->idle = cb;
  h->active = true;
  return 0;
}

int uv_idle_stop(uv_idle_t *idle) {
  get(idle)->active = false;
  return 0;
}
