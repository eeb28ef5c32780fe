/* list_stream.h: the keys of one drive in byte order, page by page.
 *
 * At any time the current entry is the first key of the drive at or behind the merge's position;
 * object_list.c keeps that true where a drive skipped the rest of a common prefix. */
#ifndef KOFN_STORAGE_OBJECT_LIST_STREAM_H
#define KOFN_STORAGE_OBJECT_LIST_STREAM_H

#include "storage/object/objects.h"

#define LIST_REWIND_ENTRIES 64 /* a page that is read again without skipping */

enum list_stream_state {
  LIST_STREAM_EMPTY, /* no current entry: the next page must be asked */
  LIST_STREAM_ASKING,
  LIST_STREAM_ENTRY, /* `entry` is current */
  LIST_STREAM_END,
  LIST_STREAM_FAILED, /* no replier any more; `err` */
};

/* What all streams of one list ask for. */
struct list_query {
  unsigned pool;
  struct id128 bucket;
  struct slice prefix, delimiter;
  uint32_t page_entries;
};

struct list_stream {
  struct objects *o;
  void *owner; /* the caller's */
  struct peer *peer;
  const struct list_query *query;
  void (*changed)(struct list_stream *s); /* a page has come, or the stream has failed */
  enum list_stream_state state;
  int err;
  bool pending; /* the call has not reported; also after list_stream_fail */
  struct peer_list_entry entry;
  /* list_stream.c's own */
  struct peer_call call;
  struct peer_list page;
  uint8_t from[KEY_BYTES_MAX];
  size_t from_len;
  bool from_after, rewinding, page_is_rewound;
};

/* The first page will start at `from`, or strictly after it. Nothing is sent yet. */
void list_stream_init(struct list_stream *s, struct objects *o, struct peer *peer,
                      const struct list_query *query, struct slice from, bool after,
                      void (*changed)(struct list_stream *s));
/* Of an EMPTY stream: asks for the next page; `changed` runs later. */
void list_stream_ask(struct list_stream *s);
/* Goes behind the current entry: ENTRY, EMPTY, END or FAILED afterwards. */
void list_stream_next(struct list_stream *s);
/* Goes behind all keys with this prefix. */
void list_stream_skip(struct list_stream *s, struct slice prefix);
/* Behind the current entry, which the drive took for proof of its common prefix: the keys that it
 * skipped are read. EMPTY afterwards. */
void list_stream_rewind(struct list_stream *s);
/* Given up: FAILED; a running call is cancelled and still reports to `changed`. */
void list_stream_fail(struct list_stream *s, int err);
/* After the last report. */
void list_stream_release(struct list_stream *s);

/* The smallest string above all that start with `prefix`; false where there is none. out has room
 * for prefix.len bytes. */
bool key_after_prefix(struct slice prefix, uint8_t *out, size_t *ret_len);
/* Up to and with the first delimiter behind `prefix`; empty where there is none. */
struct slice key_common_prefix(struct slice key, struct slice prefix, struct slice delimiter);

#endif
