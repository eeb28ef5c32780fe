/* http_msg.c: the head of a request.
 *
 *   http_head_find   line by line as bytes arrive: is it whole, is it still HTTP, is it too long
 *   http_head_parse  our own strict look at every line, then llhttp, then what the headers mean
 *
 * llhttp splits the head; the checks in front of it are ours because its versions 8 and 9 differ in
 * what they let pass (bytes >= 0x80 in a target, a bare LF, folded lines), and a request that two
 * parsers read differently is a way to smuggle another one. A head in which llhttp sees another
 * number of headers than we do is refused. Source: RFC 9112, 2 to 6. */
#include <llhttp.h>
#include <stdlib.h>

#include "server/http_conn.h"
#include "server/http_token.h"

#define BODY_BYTES_MAX ((uint64_t)INT64_MAX)

static int refuse(struct http_refusal *ret_why, int status, const char *code, const char *message) {
  *ret_why = (struct http_refusal){status, code, message};
  return -1;
}

static int refuse_bad(struct http_refusal *ret_why, const char *message) {
  return refuse(ret_why, 400, "InvalidRequest", message);
}

/* ---- the end of the head ---- */

/* "METHOD SP target SP HTTP/d.d", without its CRLF. */
static int check_request_line(struct slice line, struct http_refusal *ret_why) {
  size_t i = 0;
  while (i < line.len && http_is_token(line.data[i])) i++;
  if (i == 0 || i == line.len || line.data[i] != ' ')
    return refuse_bad(ret_why, "The request line is malformed.");
  if (i > HTTP_METHOD_BYTES_MAX)
    return refuse(ret_why, 501, "NotImplemented", "The method is not known.");
  size_t target = ++i;
  while (i < line.len && line.data[i] != ' ') i++;
  if (i - target > HTTP_TARGET_BYTES_MAX)
    return refuse(ret_why, 414, "InvalidURI", "The request target is too long.");
  for (size_t k = target; k < i; k++)
    if (line.data[k] < 0x21 || line.data[k] > 0x7e || line.data[k] == '#')
      return refuse(ret_why, 400, "InvalidURI",
                    "The request target holds a byte that must be percent-encoded.");
  struct slice version = {line.data + MIN(i + 1, line.len), line.len - MIN(i + 1, line.len)};
  if (i == target || version.len != 8 || memcmp(version.data, "HTTP/", 5) != 0 ||
      !http_is_digit(version.data[5]) || version.data[6] != '.' || !http_is_digit(version.data[7]))
    return refuse_bad(ret_why, "The request line is malformed.");
  if (version.data[5] != '1' || version.data[7] > '1')
    return refuse(ret_why, 505, "HttpVersionNotSupported", "Use HTTP/1.1 or HTTP/1.0.");
  return 0;
}

int http_head_find(struct http_scan *scan, struct slice in, struct http_refusal *ret_why) {
  /* A client that speaks TLS or another protocol hears so at its first byte. */
  if (in.len > 0 && !http_is_token(in.data[0]))
    return refuse_bad(ret_why, "The request line is malformed.");
  while (scan->at < in.len) {
    const uint8_t *lf = memchr(in.data + scan->at, '\n', in.len - scan->at);
    if (!lf) {
      scan->at = in.len;
      break;
    }
    size_t at = (size_t)(lf - in.data);
    if (at == 0 || in.data[at - 1] != '\r') return refuse_bad(ret_why, "A line ends without CR.");
    struct slice line = {in.data + scan->line, at - 1 - scan->line};
    if (scan->line == 0 && check_request_line(line, ret_why) < 0) return -1;
    scan->at = at + 1;
    scan->line = at + 1;
    if (at + 1 > HTTP_HEAD_BYTES_MAX) break;
    if (line.len == 0) return (int)(at + 1);
    if (scan->lines++ > HTTP_HEADERS_MAX)
      return refuse(ret_why, 431, "RequestHeaderSectionTooLarge", "There are too many headers.");
  }
  if (scan->line == 0 && in.len > HTTP_METHOD_BYTES_MAX + HTTP_TARGET_BYTES_MAX + 16)
    return refuse(ret_why, 414, "InvalidURI", "The request target is too long.");
  if (in.len > HTTP_HEAD_BYTES_MAX)
    return refuse(ret_why, 431, "RequestHeaderSectionTooLarge", "The headers are too long.");
  return 0;
}

/* ---- our look at the header lines ---- */

/* One header line without its CRLF. */
static int check_header_line(struct slice line, struct http_refusal *ret_why) {
  size_t i = 0;
  while (i < line.len && http_is_token(line.data[i])) i++;
  if (i == 0 || i == line.len || line.data[i] != ':')
    return refuse_bad(ret_why, "A header's name is malformed.");
  for (i++; i < line.len; i++)
    if (!http_is_value(line.data[i]))
      return refuse_bad(ret_why, "A header's value holds a control character.");
  return 0;
}

/* Every line behind the request line. The number of headers, or -1. */
static int check_header_lines(struct slice head, struct http_refusal *ret_why) {
  int count = 0;
  const uint8_t *at = head.data, *end = head.data + head.len - 2; /* the last CRLF is the head's */
  bool first = true;
  while (at < end) {
    const uint8_t *lf = memchr(at, '\n', (size_t)(end - at));
    if (!lf) return refuse_bad(ret_why, "A line ends without CR.");
    struct slice line = {at, (size_t)(lf - at) - 1};
    at = lf + 1;
    if (!first && check_header_line(line, ret_why) < 0) return -1;
    if (!first && ++count > HTTP_HEADERS_MAX)
      return refuse(ret_why, 431, "RequestHeaderSectionTooLarge", "There are too many headers.");
    first = false;
  }
  return count;
}

/* ---- llhttp ---- */

enum split_last { SPLIT_NAME, SPLIT_VALUE };

struct split {
  struct http_request *req;
  enum split_last last;
  bool over; /* more headers than we have room for, or a value without a name */
};

static int on_url(llhttp_t *p, const char *at, size_t len) {
  struct split *split = p->data;
  struct slice *target = &split->req->target;
  if (target->len == 0) target->data = (const uint8_t *)at;
  target->len += len;
  return 0;
}

static int on_header_field(llhttp_t *p, const char *at, size_t len) {
  struct split *split = p->data;
  struct http_request *req = split->req;
  if (split->last == SPLIT_VALUE) {
    if (req->header_count == HTTP_HEADERS_MAX) {
      split->over = true;
      return -1;
    }
    req->headers[req->header_count++] =
        (struct http_header){.name = slice_of(at, 0), .value = {(const uint8_t *)at + len, 0}};
  }
  split->last = SPLIT_NAME;
  req->headers[req->header_count - 1].name.len += len;
  return 0;
}

static int on_header_value(llhttp_t *p, const char *at, size_t len) {
  struct split *split = p->data;
  struct http_request *req = split->req;
  if (req->header_count == 0) {
    split->over = true;
    return -1;
  }
  struct slice *value = &req->headers[req->header_count - 1].value;
  if (split->last == SPLIT_NAME) *value = slice_of(at, 0);
  split->last = SPLIT_VALUE;
  value->len += len;
  return 0;
}

/* An empty value makes no on_header_value in some versions: the next name must not be appended. */
static int on_header_value_complete(llhttp_t *p) {
  struct split *split = p->data;
  split->last = SPLIT_VALUE;
  return 0;
}

static int on_headers_complete(llhttp_t *p) {
  return HPE_PAUSED; /* the body is http_body.c's */
}

static const llhttp_settings_t split_settings = {
    .on_url = on_url,
    .on_header_field = on_header_field,
    .on_header_value = on_header_value,
    .on_header_value_complete = on_header_value_complete,
    .on_headers_complete = on_headers_complete,
};

static int split_head(struct http_exchange *ex, size_t len, int count,
                      struct http_refusal *ret_why) {
  struct split split = {.req = &ex->req, .last = SPLIT_VALUE};
  llhttp_t parser;
  llhttp_init(&parser, HTTP_REQUEST, &split_settings);
  parser.data = &split;
  llhttp_errno_t err = llhttp_execute(&parser, (const char *)ex->head, len);
  if (err == HPE_INVALID_METHOD)
    return refuse(ret_why, 501, "NotImplemented", "The method is not known.");
  if (err != HPE_PAUSED || split.over || ex->req.header_count != (unsigned)count)
    return refuse_bad(ret_why, "The request's head is malformed.");
  ex->http_1_0 = llhttp_get_http_minor(&parser) == 0;
  return 0;
}

/* ---- what the head means ---- */

static const struct {
  const char *name;
  enum http_method method;
} method_table[] = {
    {"GET", HTTP_M_GET},   {"HEAD", HTTP_M_HEAD},     {"PUT", HTTP_M_PUT},
    {"POST", HTTP_M_POST}, {"DELETE", HTTP_M_DELETE}, {"OPTIONS", HTTP_M_OPTIONS},
};

static int read_method(struct http_exchange *ex, struct http_refusal *ret_why) {
  struct http_request *req = &ex->req;
  size_t n = 0;
  while (ex->head[n] != ' ') n++; /* check_request_line saw one */
  req->method_name = slice_of(ex->head, n);
  req->method = HTTP_M_OTHER;
  for (size_t i = 0; i < ARRAY_LEN(method_table); i++)
    if (slice_eq(req->method_name, slice_str(method_table[i].name)))
      req->method = method_table[i].method;
  if (slice_eq(req->method_name, SLICE_LIT("CONNECT")))
    return refuse(ret_why, 405, "MethodNotAllowed", "This is no proxy.");
  return 0;
}

static bool is_hex(uint8_t c) {
  return http_is_digit(c) || (http_lower(c) >= 'a' && http_lower(c) <= 'f');
}

/* A byte of a host's name that stands for itself: RFC 3986, 2.3 and 2.2, sub-delims. */
static bool is_host_byte(uint8_t c) {
  if (c >= 0x7f || c <= 0x20) return false;
  return http_is_digit(c) || (http_lower(c) >= 'a' && http_lower(c) <= 'z') ||
         strchr("-._~!$&'()*+,;=", c) != NULL;
}

/* Where the host at the start of `text` ends; text.len + 1 when it is malformed. */
static size_t host_end(struct slice text) {
  size_t i = 0;
  if (text.len > 0 && text.data[0] == '[') { /* an address of IPv6, or of a later version */
    for (i = 1; i < text.len && (is_host_byte(text.data[i]) || text.data[i] == ':');) i++;
    return i > 1 && i < text.len && text.data[i] == ']' ? i + 1 : text.len + 1;
  }
  while (i < text.len && text.data[i] != ':') {
    bool escape = text.data[i] == '%' && text.len - i >= 3 && is_hex(text.data[i + 1]) &&
                  is_hex(text.data[i + 2]);
    if (!escape && !is_host_byte(text.data[i])) return text.len + 1;
    i += escape ? 3 : 1;
  }
  return i;
}

/* "host" or "host:port", without user information. Parsers that disagree about a malformed one
 * send the request to different places: RFC 9112, 3.2. */
static bool is_authority(struct slice text) {
  size_t i = host_end(text);
  if (i > text.len || (i < text.len && text.data[i++] != ':')) return false;
  while (i < text.len && http_is_digit(text.data[i])) i++;
  return i == text.len;
}

/* "http://authority" in front of a path is dropped: RFC 9112, 3.2.2. */
static struct slice strip_authority(struct slice target) {
  for (size_t scheme = 4; scheme <= 5; scheme++) {
    struct slice head = {target.data, scheme};
    if (target.len < scheme + 3 || !http_slice_is(head, scheme == 4 ? "http" : "https") ||
        memcmp(target.data + scheme, "://", 3) != 0)
      continue;
    size_t i = scheme + 3;
    while (i < target.len && target.data[i] != '/' && target.data[i] != '?') i++;
    struct slice authority = {target.data + scheme + 3, i - scheme - 3};
    if (host_end(authority) == 0 || !is_authority(authority)) return target; /* is no path */
    return slice_of(target.data + i, target.len - i);
  }
  return target;
}

static int read_target(struct http_request *req, struct http_refusal *ret_why) {
  struct slice rest = strip_authority(req->target);
  const uint8_t *mark = rest.len ? memchr(rest.data, '?', rest.len) : NULL;
  req->path = rest;
  req->query = (struct slice){NULL, 0};
  if (mark) {
    req->path.len = (size_t)(mark - rest.data);
    req->query = slice_of(mark + 1, rest.len - req->path.len - 1);
  }
  /* "http://host" and "http://host?q" mean the path "/". */
  if (req->path.len == 0 && rest.data != req->target.data) req->path = SLICE_LIT("/");
  if (req->path.len == 0 || req->path.data[0] != '/')
    return refuse(ret_why, 400, "InvalidURI", "The request target is not a path.");
  return 0;
}

static int read_host(const struct http_exchange *ex, struct http_refusal *ret_why) {
  unsigned count = http_header_count(&ex->req, "host");
  if (count > 1 || (count == 0 && !ex->http_1_0))
    return refuse_bad(ret_why, "There must be exactly one Host header.");
  struct slice host = http_header_find(&ex->req, "host");
  if (!is_authority(host)) return refuse_bad(ret_why, "The Host header is malformed.");
  return 0;
}

static int read_length(struct slice text, uint64_t *ret_length) {
  uint64_t n = 0;
  if (text.len == 0) return ERR_INVALID;
  for (size_t i = 0; i < text.len; i++) {
    if (!http_is_digit(text.data[i])) return ERR_INVALID;
    if (__builtin_mul_overflow(n, (uint64_t)10, &n) ||
        __builtin_add_overflow(n, (uint64_t)(text.data[i] - '0'), &n) || n > BODY_BYTES_MAX)
      return ERR_INVALID;
  }
  *ret_length = n;
  return 0;
}

/* Of what is trimmed behind the value, a tab makes later versions of llhttp refuse the coding. */
static bool ends_with_tab(const struct http_request *req, const char *name) {
  struct slice value = http_header_find(req, name);
  const uint8_t *at = value.data + value.len;
  while (*at == ' ') at++; /* the line's CR ends it */
  return *at == '\t';
}

static int read_framing(struct http_exchange *ex, struct http_refusal *ret_why) {
  struct http_request *req = &ex->req;
  unsigned lengths = http_header_count(req, "content-length");
  unsigned encodings = http_header_count(req, "transfer-encoding");
  if (lengths && encodings)
    return refuse_bad(ret_why, "Content-Length and Transfer-Encoding exclude each other.");
  if (lengths > 1 || encodings > 1)
    return refuse_bad(ret_why, "The length of the body is given more than once.");
  req->body = (struct body){.ops = &http_body_ops, .length = 0};
  if (encodings) {
    if (ex->http_1_0) return refuse_bad(ret_why, "HTTP/1.0 has no Transfer-Encoding.");
    if (!http_slice_is(http_header_find(req, "transfer-encoding"), "chunked"))
      return refuse(ret_why, 501, "NotImplemented", "The only transfer coding here is chunked.");
    if (ends_with_tab(req, "transfer-encoding"))
      return refuse_bad(ret_why, "The Transfer-Encoding header is malformed.");
    ex->framing = HTTP_FRAMING_CHUNKED;
    req->chunked = req->has_body = true;
    req->body.length = BODY_LENGTH_UNKNOWN;
  } else if (lengths) {
    if (read_length(http_header_find(req, "content-length"), &ex->left) < 0)
      return refuse_bad(ret_why, "The Content-Length header is malformed.");
    req->has_length = true;
    req->has_body = ex->left > 0;
    req->body.length = ex->left;
    if (ex->left) ex->framing = HTTP_FRAMING_LENGTH;
  }
  return 0;
}

static int read_expect(struct http_exchange *ex, struct http_refusal *ret_why) {
  struct http_request *req = &ex->req;
  if (ex->http_1_0) return 0; /* to be ignored: RFC 9110, 10.1.1 */
  for (unsigned i = 0; i < req->header_count; i++) {
    if (!slice_eq(req->headers[i].name, SLICE_LIT("expect"))) continue;
    if (!http_slice_is(req->headers[i].value, "100-continue"))
      return refuse(ret_why, 417, "ExpectationFailed", "The only expectation is 100-continue.");
    req->expect_continue = req->has_body;
  }
  return 0;
}

static void read_connection(struct http_exchange *ex) {
  bool close = false, keep = false;
  for (unsigned i = 0; i < ex->req.header_count; i++) {
    if (!slice_eq(ex->req.headers[i].name, SLICE_LIT("connection"))) continue;
    struct slice left = ex->req.headers[i].value;
    while (left.len) {
      const uint8_t *comma = memchr(left.data, ',', left.len);
      size_t n = comma ? (size_t)(comma - left.data) : left.len;
      struct slice token = http_trim(slice_of(left.data, n));
      if (http_slice_is(token, "close")) close = true;
      if (http_slice_is(token, "keep-alive")) keep = true;
      left = slice_of(left.data + MIN(n + 1, left.len), left.len - MIN(n + 1, left.len));
    }
  }
  ex->keep_alive = !close && (keep || !ex->http_1_0);
}

static int copy_head(struct http_exchange *ex, struct slice head, struct http_refusal *ret_why) {
  if (head.len > ex->head_cap) {
    uint8_t *bigger = realloc(ex->head, MAX(head.len, (size_t)1024));
    if (!bigger) return refuse(ret_why, 503, "SlowDown", "Out of memory.");
    ex->head = bigger;
    ex->head_cap = MAX(head.len, (size_t)1024);
  }
  memcpy(ex->head, head.data, head.len);
  return 0;
}

int http_head_parse(struct http_exchange *ex, struct slice head, struct http_refusal *ret_why) {
  struct http_request *req = &ex->req;
  if (copy_head(ex, head, ret_why) < 0) return -1;
  int count = check_header_lines(slice_of(ex->head, head.len), ret_why);
  if (count < 0 || split_head(ex, head.len, count, ret_why) < 0) return -1;
  for (unsigned i = 0; i < req->header_count; i++) {
    struct http_header *h = &req->headers[i];
    uint8_t *name = ex->head + (h->name.data - ex->head);
    for (size_t k = 0; k < h->name.len; k++) name[k] = http_lower(name[k]);
    h->value = http_trim(h->value);
  }
  if (read_method(ex, ret_why) < 0 || read_target(req, ret_why) < 0) return -1;
  if (read_host(ex, ret_why) < 0 || read_framing(ex, ret_why) < 0) return -1;
  if (read_expect(ex, ret_why) < 0) return -1;
  read_connection(ex);
  return 0;
}
