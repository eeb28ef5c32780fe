/* admin_op.h: what the admin_*.c files share. */
#ifndef KOFN_SERVER_ADMIN_OP_H
#define KOFN_SERVER_ADMIN_OP_H

#include <jansson.h>

#include "config/err.h"
#include "server/admin.h"

#define ADMIN_BODY_BYTES_MAX 4096
#define ADMIN_ANSWER_BYTES_MAX (32u << 20)
#define ADMIN_HEAL_ENTRIES_MAX 10000

/* Answers with `doc` (taken), or 503 where memory is short. */
void admin_answer_json(struct http_request *req, int status, json_t *doc);
void admin_answer_words(struct http_request *req, int status, const char *words);
/* Decoded value of a query parameter into `out` (NUL-terminated beside its length); ERR_NOT_FOUND,
 * ERR_INVALID. */
_must_check_ int admin_param(const struct http_request *req, const char *name, uint8_t *out,
                             size_t cap, size_t *ret_len);

/* The drive answers every loop of this host. */
bool admin_drive_up(const struct worker *w, unsigned drive);
/* How many drives of the worst partition of a pool are in sight. */
unsigned admin_pool_up(const struct worker *w, unsigned pool);

void admin_status(struct worker *w, struct http_request *req);
void admin_metrics(struct worker *w, struct http_request *req);
void admin_heal(struct worker *w, struct http_request *req);
void admin_where(struct worker *w, struct http_request *req);

#endif
