/* bucket_delete.h: the delete of a bucket that is DELETING already. */
#ifndef KOFN_STORAGE_OBJECT_BUCKET_DELETE_H
#define KOFN_STORAGE_OBJECT_BUCKET_DELETE_H

#include "storage/object/object.h"

/* As bucket_delete, but never touches a bucket that is ACTIVE: ERR_CONFLICT. */
void bucket_delete_resume(struct objects *o, struct slice name, bucket_cb cb, void *arg);

#endif
