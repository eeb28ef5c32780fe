/* http_chunked.c: see http_chunked.h. One state per place between two bytes, so that a body may
 * arrive in any cuts. */
#include "server/http_chunked.h"

#include "config/err.h"
#include "server/http_token.h"

static int chunk_size_byte(struct http_chunked *c, uint8_t b) {
  unsigned digit;
  if (http_is_digit(b)) {
    digit = (unsigned)(b - '0');
  } else if (http_lower(b) >= 'a' && http_lower(b) <= 'f') {
    digit = (unsigned)(http_lower(b) - 'a') + 10;
  } else if (c->state == HTTP_CHUNK_SIZE && (b == ';' || b == '\r')) {
    c->state = b == ';' ? HTTP_CHUNK_NAME_FIRST : HTTP_CHUNK_SIZE_LF;
    return 0;
  } else {
    return ERR_BODY_INVALID;
  }
  /* Sixteen digits hold every size that is allowed; zeros in front of it are bounded as well. */
  if (++c->digits > 16) return ERR_BODY_INVALID;
  c->left = c->left << 4 | digit;
  if (c->left > HTTP_CHUNK_BYTES_MAX) return ERR_BODY_INVALID;
  c->state = HTTP_CHUNK_SIZE;
  return 0;
}

/* Behind a name or a value: the next extension, or the end of the line. */
static int chunk_extension_end(struct http_chunked *c, uint8_t b) {
  if (b != ';' && b != '\r') return ERR_BODY_INVALID;
  c->state = b == ';' ? HTTP_CHUNK_NAME_FIRST : HTTP_CHUNK_SIZE_LF;
  return 0;
}

static int chunk_extension_byte(struct http_chunked *c, uint8_t b) {
  if (b != '\r' && ++c->extension_bytes > HTTP_CHUNK_EXTENSION_BYTES_MAX) return ERR_BODY_INVALID;
  switch (c->state) {
    case HTTP_CHUNK_NAME_FIRST:
      c->state = HTTP_CHUNK_NAME;
      return http_is_token(b) ? 0 : ERR_BODY_INVALID;
    case HTTP_CHUNK_NAME:
      if (http_is_token(b)) return 0;
      if (b != '=') return chunk_extension_end(c, b);
      c->state = HTTP_CHUNK_VALUE_FIRST;
      return 0;
    case HTTP_CHUNK_VALUE_FIRST:
      c->state = b == '"' ? HTTP_CHUNK_QUOTED : HTTP_CHUNK_VALUE;
      return b == '"' || http_is_token(b) ? 0 : ERR_BODY_INVALID;
    case HTTP_CHUNK_VALUE:
      return http_is_token(b) ? 0 : chunk_extension_end(c, b);
    case HTTP_CHUNK_QUOTED:
      if (b == '"') c->state = HTTP_CHUNK_QUOTED_END;
      if (b == '\\') c->state = HTTP_CHUNK_QUOTED_PAIR;
      return http_is_value(b) ? 0 : ERR_BODY_INVALID;
    case HTTP_CHUNK_QUOTED_PAIR:
      c->state = HTTP_CHUNK_QUOTED;
      return http_is_value(b) ? 0 : ERR_BODY_INVALID;
    default:
      return chunk_extension_end(c, b);
  }
}

/* A trailer's name is whole: some parsers merge trailers into the head. */
static int chunk_trailer_named(struct http_chunked *c) {
  static const char *const refused[] = {"content-length", "transfer-encoding", "host"};
  for (size_t i = 0; i < ARRAY_LEN(refused); i++)
    if (http_slice_is(slice_of(c->name, c->name_len), refused[i])) return ERR_BODY_INVALID;
  c->state = HTTP_CHUNK_TRAILER_VALUE;
  return 0;
}

static int chunk_trailer_name_byte(struct http_chunked *c, uint8_t b) {
  if (!http_is_token(b)) return ERR_BODY_INVALID;
  if (c->name_len < sizeof c->name) c->name[c->name_len++] = b;
  return 0;
}

static int chunk_trailer_byte(struct http_chunked *c, uint8_t b) {
  if (++c->trailer_bytes > HTTP_TRAILER_BYTES_MAX) return ERR_BODY_INVALID;
  switch (c->state) {
    case HTTP_CHUNK_TRAILER_START:
      if (b == '\r') {
        c->state = HTTP_CHUNK_END_LF;
        return 0;
      }
      c->state = HTTP_CHUNK_TRAILER_NAME;
      c->name_len = 0;
      return chunk_trailer_name_byte(c, b);
    case HTTP_CHUNK_TRAILER_NAME:
      return b == ':' ? chunk_trailer_named(c) : chunk_trailer_name_byte(c, b);
    default:
      if (b == '\r') c->state = HTTP_CHUNK_TRAILER_LF;
      return b == '\r' || http_is_value(b) ? 0 : ERR_BODY_INVALID;
  }
}

/* The one byte that may stand here, and the state behind it. */
static int chunk_expect(struct http_chunked *c, uint8_t b, uint8_t wanted,
                        enum http_chunk_state next) {
  if (b != wanted) return ERR_BODY_INVALID;
  c->state = next;
  return 0;
}

static int chunk_framing_byte(struct http_chunked *c, uint8_t b) {
  switch (c->state) {
    case HTTP_CHUNK_SIZE_FIRST:
    case HTTP_CHUNK_SIZE:
      return chunk_size_byte(c, b);
    case HTTP_CHUNK_NAME_FIRST:
    case HTTP_CHUNK_NAME:
    case HTTP_CHUNK_VALUE_FIRST:
    case HTTP_CHUNK_VALUE:
    case HTTP_CHUNK_QUOTED:
    case HTTP_CHUNK_QUOTED_PAIR:
    case HTTP_CHUNK_QUOTED_END:
      return chunk_extension_byte(c, b);
    case HTTP_CHUNK_SIZE_LF:
      c->digits = 0;
      return chunk_expect(c, b, '\n', c->left ? HTTP_CHUNK_DATA : HTTP_CHUNK_TRAILER_START);
    case HTTP_CHUNK_DATA_CR:
      return chunk_expect(c, b, '\r', HTTP_CHUNK_DATA_LF);
    case HTTP_CHUNK_DATA_LF:
      return chunk_expect(c, b, '\n', HTTP_CHUNK_SIZE_FIRST);
    case HTTP_CHUNK_TRAILER_LF:
      return chunk_expect(c, b, '\n', HTTP_CHUNK_TRAILER_START);
    case HTTP_CHUNK_END_LF:
      return chunk_expect(c, b, '\n', HTTP_CHUNK_DONE);
    default:
      return chunk_trailer_byte(c, b);
  }
}

int http_chunked_decode(struct http_chunked *c, struct slice *in, uint8_t *dst, size_t cap,
                        size_t *ret_len) {
  size_t len = 0;
  int err = 0;
  while (err == 0 && in->len > 0 && c->state != HTTP_CHUNK_DONE) {
    size_t take = 1;
    if (c->state == HTTP_CHUNK_DATA) {
      take = (size_t)MIN((uint64_t)MIN(in->len, cap - len), c->left);
      if (take == 0) break;
      if (dst) memcpy(dst + len, in->data, take);
      len += take;
      c->left -= take;
      if (c->left == 0) c->state = HTTP_CHUNK_DATA_CR;
    } else {
      err = chunk_framing_byte(c, in->data[0]);
    }
    in->data += take;
    in->len -= take;
  }
  *ret_len = len;
  return err;
}
