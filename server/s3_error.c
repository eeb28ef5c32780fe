/* s3_error.c: the table of S3 errors. */
#include "server/s3_error.h"

#include "config/err.h"
#include "server/s3_xml.h"

static const struct {
  const char *code;
  int status;
  const char *message;
} errors[S3E_COUNT] = {
    [S3E_ACCESS_DENIED] = {"AccessDenied", 403, "Access denied."},
    [S3E_AUTH_UNSUPPORTED] =
        {"InvalidRequest", 400,
         "This authorization mechanism is not supported here; use HTTP Basic with the access "
         "key and its secret."},
    [S3E_BAD_DIGEST] = {"BadDigest", 400,
                        "The Content-MD5 does not match the body that was received."},
    [S3E_BUCKET_EXISTS] = {"BucketAlreadyExists", 409,
                           "The bucket name is taken by another owner."},
    [S3E_BUCKET_NOT_EMPTY] = {"BucketNotEmpty", 409,
                              "The bucket holds objects; only an empty one can be deleted."},
    [S3E_CONFLICT] = {"ConditionalRequestConflict", 409,
                      "Another conditional write of this key was going on; try again."},
    [S3E_ENTITY_TOO_LARGE] = {"EntityTooLarge", 400,
                              "The object is larger than one PUT may bring (5 GiB)."},
    [S3E_INCOMPLETE_BODY] = {"IncompleteBody", 400,
                             "The body ended before the length that was announced."},
    [S3E_INSUFFICIENT_STORAGE] = {"InsufficientStorage", 507,
                                  "Too many drives are full to store this object."},
    [S3E_INTERNAL] = {"InternalError", 500, "An internal error; try again."},
    [S3E_INVALID_ACCESS_KEY] = {"InvalidAccessKeyId", 403, "The access key is not known here."},
    [S3E_INVALID_ARGUMENT] = {"InvalidArgument", 400,
                              "A parameter has a value that is not allowed."},
    [S3E_INVALID_BUCKET_NAME] =
        {"InvalidBucketName", 400,
         "A bucket name has 3 to 63 lower-case letters, digits, dots and hyphens, begins and "
         "ends with a letter or digit, and is no IP address."},
    [S3E_INVALID_DIGEST] = {"InvalidDigest", 400, "Content-MD5 is not the base64 of 16 bytes."},
    [S3E_INVALID_LOCATION] =
        {"InvalidLocationConstraint", 400,
         "The location is neither this region, us-east-1, nor the name of a pool."},
    [S3E_INVALID_RANGE] = {"InvalidRange", 416, "The range lies outside the object."},
    [S3E_INVALID_REQUEST] = {"InvalidRequest", 400, "The request is malformed."},
    [S3E_INVALID_STORAGE_CLASS] = {"InvalidStorageClass", 400,
                                   "This storage class means nothing here."},
    [S3E_INVALID_URI] = {"InvalidURI", 400, "The request target cannot be parsed."},
    [S3E_KEY_TOO_LONG] = {"KeyTooLongError", 400, "A key has at most 1024 bytes."},
    [S3E_MALFORMED_XML] = {"MalformedXML", 400,
                           "The XML is not well-formed or not what this request takes."},
    [S3E_METADATA_TOO_LARGE] = {"MetadataTooLarge", 400,
                                "The stored headers are larger than the limit."},
    [S3E_METHOD_NOT_ALLOWED] = {"MethodNotAllowed", 405,
                                "The method is not allowed on this resource."},
    [S3E_MISSING_LENGTH] = {"MissingContentLength", 411, "Content-Length is missing."},
    [S3E_NO_SUCH_BUCKET] = {"NoSuchBucket", 404, "The bucket does not exist."},
    [S3E_NO_SUCH_KEY] = {"NoSuchKey", 404, "The key does not exist."},
    [S3E_NOT_IMPLEMENTED] = {"NotImplemented", 501,
                             "This sub-resource or header is not offered by this server."},
    [S3E_OPERATION_ABORTED] = {"OperationAborted", 409,
                               "Another operation on this bucket is going on; try again."},
    [S3E_PRECONDITION] = {"PreconditionFailed", 412, "A condition of the request is false."},
    [S3E_REQUEST_TIMEOUT] = {"RequestTimeout", 400,
                             "No byte of the body came within the time allowed."},
    [S3E_SLOW_DOWN] = {"SlowDown", 503,
                       "Too many requests are being served; try again more slowly."},
    [S3E_UNAVAILABLE] = {"ServiceUnavailable", 503,
                         "Too few drives are in reach to answer; try again."},
    [S3E_UNKNOWN_OUTCOME] =
        {"ServiceUnavailable", 503,
         "Too few drives acknowledged the write: it may or may not have taken effect; try again."},
};

int s3_error_status(enum s3_error e) {
  return errors[e].status;
}
const char *s3_error_code(enum s3_error e) {
  return errors[e].code;
}
const char *s3_error_message(enum s3_error e) {
  return errors[e].message;
}

enum s3_error s3_error_of(int err, bool for_bucket) {
  switch (err) {
    case ERR_NO_SUCH_KEY:
      return S3E_NO_SUCH_KEY;
    case ERR_NO_SUCH_BUCKET:
      return S3E_NO_SUCH_BUCKET;
    case ERR_PRECONDITION:
      return S3E_PRECONDITION;
    case ERR_CONFLICT:
      return for_bucket ? S3E_OPERATION_ABORTED : S3E_CONFLICT;
    case ERR_BUCKET_DELETING:
      return S3E_OPERATION_ABORTED;
    case ERR_BUCKET_NOT_EMPTY:
      return S3E_BUCKET_NOT_EMPTY;
    case ERR_BUCKET_EXISTS:
      return S3E_BUCKET_EXISTS;
    case ERR_UNKNOWN_OUTCOME:
      return S3E_UNKNOWN_OUTCOME;
    case ERR_SLOW_DOWN:
      return S3E_SLOW_DOWN;
    case ERR_NO_SPACE:
      return S3E_INSUFFICIENT_STORAGE;
    case ERR_BAD_DIGEST:
      return S3E_BAD_DIGEST;
    case ERR_BODY_SHORT:
      return S3E_INCOMPLETE_BODY;
    case ERR_BODY_INVALID:
      return S3E_INVALID_REQUEST;
    case ERR_BODY_LONG:
      return S3E_ENTITY_TOO_LARGE;
    case ERR_TOO_LARGE:
      return S3E_METADATA_TOO_LARGE;
    case ERR_TIMEOUT:
      return S3E_REQUEST_TIMEOUT;
    case ERR_UNAVAILABLE:
    case ERR_SHUTDOWN:
    case ERR_PEER_DOWN:
      return S3E_UNAVAILABLE;
    default:
      return S3E_INTERNAL;
  }
}

void s3_error_body(struct byte_writer *w, const char *code, const char *message,
                   struct slice resource, const char *request_id) {
  xml_prolog(w);
  xml_open(w, "Error", NULL);
  xml_text(w, "Code", slice_str(code));
  xml_text(w, "Message", slice_str(message));
  xml_text(w, "Resource", resource);
  xml_text(w, "RequestId", slice_str(request_id));
  xml_text(w, "HostId", slice_str(request_id));
  xml_close(w, "Error");
}
