/* http_chunked.h: decodes a chunked body (RFC 9112, 7.1), strictly and in bounded memory.
 *
 * llhttp splits heads only; the body has its own decoder because versions 8 and 9 of llhttp differ
 * in what they let pass here (bare LF, blanks behind a size, endless extensions), and two parsers
 * that disagree about where a request ends are how requests are smuggled. Extensions are dropped,
 * but must follow the grammar to the letter, without the blanks that it tolerates: what one parser
 * takes for the middle of a quoted value, another takes for the end of the line. Trailers are
 * dropped as well, but none may speak of framing or of the host (RFC 9110, 6.5.1). Pure: no I/O, no
 * allocation. */
#ifndef KOFN_SERVER_HTTP_CHUNKED_H
#define KOFN_SERVER_HTTP_CHUNKED_H

#include "config/base.h"

#define HTTP_CHUNK_EXTENSION_BYTES_MAX 16384u /* of all chunks of a body together */
#define HTTP_TRAILER_BYTES_MAX 8192u
#define HTTP_TRAILER_NAME_BYTES 18u /* one more than the longest that is refused */
#define HTTP_CHUNK_BYTES_MAX ((uint64_t)1 << 62)

enum http_chunk_state {
  HTTP_CHUNK_SIZE_FIRST, /* at least one digit */
  HTTP_CHUNK_SIZE,
  HTTP_CHUNK_NAME_FIRST, /* of an extension: at least one byte */
  HTTP_CHUNK_NAME,
  HTTP_CHUNK_VALUE_FIRST,
  HTTP_CHUNK_VALUE,
  HTTP_CHUNK_QUOTED,
  HTTP_CHUNK_QUOTED_PAIR,
  HTTP_CHUNK_QUOTED_END,
  HTTP_CHUNK_SIZE_LF,
  HTTP_CHUNK_DATA,
  HTTP_CHUNK_DATA_CR,
  HTTP_CHUNK_DATA_LF,
  HTTP_CHUNK_TRAILER_START,
  HTTP_CHUNK_TRAILER_NAME,
  HTTP_CHUNK_TRAILER_VALUE,
  HTTP_CHUNK_TRAILER_LF,
  HTTP_CHUNK_END_LF,
  HTTP_CHUNK_DONE
};

/* Zero-initialise. */
struct http_chunked {
  enum http_chunk_state state;
  uint64_t left; /* of the chunk whose data is being read */
  uint32_t extension_bytes, trailer_bytes;
  uint8_t digits, name_len;
  uint8_t name[HTTP_TRAILER_NAME_BYTES]; /* of a trailer, cut */
};

/* Takes bytes from the front of *in (which is advanced) and puts body bytes into dst, at most cap;
 * with dst == NULL they are dropped. Stops where `in` is empty, where body bytes are next but dst
 * is full, or at the end of the body (state HTTP_CHUNK_DONE). ERR_BODY_INVALID for bytes that are
 * not allowed; *ret_len is set in either case. */
_must_check_ int http_chunked_decode(struct http_chunked *c, struct slice *in, uint8_t *dst,
                                     size_t cap, size_t *ret_len);

#endif
