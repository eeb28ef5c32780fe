/* fake_drive_pages.h: the replies of a fake drive that have a body. Used by fake_drive.c only. */
#ifndef KOFN_TESTS_OBJECT_FAKE_DRIVE_PAGES_H
#define KOFN_TESTS_OBJECT_FAKE_DRIVE_PAGES_H

#include "tests/unit/object/fake_drive.h"

/* The whole chunk of a blob on this drive, or NULL. */
struct fake_blob *fake_drive_chunk(struct fake_drive *d, const struct id128 *data_id);

void fake_drive_read_page(struct fake_drive *d, const struct peer_request *req,
                          struct peer_reply *reply);
void fake_drive_list_page(struct fake_drive *d, const struct peer_request *req,
                          struct peer_reply *reply);
void fake_drive_heal_page(struct fake_drive *d, const struct peer_request *req,
                          struct peer_reply *reply);
void fake_drive_undecided_page(struct fake_drive *d, const struct peer_request *req,
                               struct peer_reply *reply);

#endif
