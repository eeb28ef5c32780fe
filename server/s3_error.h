/* s3_error.h: every S3 error that kofn answers, in one table: code, status, message.
 * Source: Amazon S3 API reference, "List of error codes". */
#ifndef KOFN_SERVER_S3_ERROR_H
#define KOFN_SERVER_S3_ERROR_H

#include "codec/bytes.h"

enum s3_error {
  S3E_ACCESS_DENIED,
  S3E_AUTH_UNSUPPORTED,
  S3E_BAD_DIGEST,
  S3E_BUCKET_EXISTS,
  S3E_BUCKET_NOT_EMPTY,
  S3E_CONFLICT,
  S3E_ENTITY_TOO_LARGE,
  S3E_INCOMPLETE_BODY,
  S3E_INSUFFICIENT_STORAGE,
  S3E_INTERNAL,
  S3E_INVALID_ACCESS_KEY,
  S3E_INVALID_ARGUMENT,
  S3E_INVALID_BUCKET_NAME,
  S3E_INVALID_DIGEST,
  S3E_INVALID_LOCATION,
  S3E_INVALID_RANGE,
  S3E_INVALID_REQUEST,
  S3E_INVALID_STORAGE_CLASS,
  S3E_INVALID_URI,
  S3E_KEY_TOO_LONG,
  S3E_MALFORMED_XML,
  S3E_METADATA_TOO_LARGE,
  S3E_METHOD_NOT_ALLOWED,
  S3E_MISSING_LENGTH,
  S3E_NO_SUCH_BUCKET,
  S3E_NO_SUCH_KEY,
  S3E_NOT_IMPLEMENTED,
  S3E_OPERATION_ABORTED,
  S3E_PRECONDITION,
  S3E_REQUEST_TIMEOUT,
  S3E_SLOW_DOWN,
  S3E_UNAVAILABLE,
  S3E_UNKNOWN_OUTCOME,
  S3E_COUNT
};

int s3_error_status(enum s3_error e);
const char *s3_error_code(enum s3_error e);
const char *s3_error_message(enum s3_error e);

/* What an error of the object layer becomes. `for_bucket`: a race is OperationAborted rather than
 * ConditionalRequestConflict. */
enum s3_error s3_error_of(int err, bool for_bucket);

/* Appends the <Error> document. `message` NULL: the table's. `resource` may be empty. */
void s3_error_body(struct byte_writer *w, const char *code, const char *message,
                   struct slice resource, const char *request_id);

#endif
