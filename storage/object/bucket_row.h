/* bucket_row.h: a bucket as a row of the system pool, and the conditional writes of it.
 *
 * Every state of a bucket has an ETag of its own, so that If-Match is a compare-and-swap. The row's
 * attributes: uuid, pool, state, created, owner, and `revived` on an ACTIVE row that follows a
 * DELETING one until all drives have been told (bucket_push.h). */
#ifndef KOFN_STORAGE_OBJECT_BUCKET_ROW_H
#define KOFN_STORAGE_OBJECT_BUCKET_ROW_H

#include "storage/object/object.h"

#define BUCKET_ATTRS 6
#define BUCKET_NAME_BYTES_MAX (sizeof((struct bucket_info *)0)->name - 1)

struct bucket_row {
  struct bucket_info info;
  bool revived;
  char etag[ETAG_BYTES_MAX + 1];
  struct version ver;
};

/* ERR_CORRUPT where a field is missing or means nothing here (a pool that is not in the map). */
_must_check_ int bucket_row_parse(const struct objects *o, struct slice name, const struct row *row,
                                  struct bucket_row *ret_bucket);

/* One write. Lives until its callback, for object_put borrows the strings. */
struct bucket_write {
  struct bucket_row row; /* what is being written; ver is filled by the caller from the result */
  char uuid[ID128_HEX_LEN + 1], created[24], if_match[ETAG_BYTES_MAX + 1];
  struct attr attrs[BUCKET_ATTRS];
};

/* Writes w->row.info and w->row.revived under a new ETag (w->row.etag), or with ROW_TOMB removes
 * the bucket. if_match: the ETag of the row to replace; NULL: there must be none. */
_must_check_ int bucket_write_start(struct objects *o, struct bucket_write *w, uint8_t kind,
                                    const char *if_match, object_put_cb cb, void *arg);

/* The system pool as a bucket. */
struct bucket_info bucket_system(void);
/* False for what can be no bucket's name here. */
bool bucket_name_fits(struct slice name);
void bucket_name_copy(char to[BUCKET_NAME_BYTES_MAX + 1], struct slice name);

#endif
