/* err.h: every error of kofn in one table.
 *
 * A function that can fail returns int: 0 or more is success, negative is an error. System errors
 * are -errno (libuv's are the same numbers on Linux); kofn's own begin below ERR_BASE, so one int
 * holds both. */
#ifndef KOFN_CONFIG_ERR_H
#define KOFN_CONFIG_ERR_H

#include "config/base.h"

#define ERR_BASE (-10000)

/* name, words for a log line */
#define ERR_TABLE(X)                                                                          \
  X(ERR_CORRUPT, "stored bytes fail their checksum")                                          \
  X(ERR_NOT_FOUND, "no such entry")                                                           \
  X(ERR_TIMEOUT, "no answer within the deadline")                                             \
  X(ERR_CANCELLED, "cancelled by the caller")                                                 \
  X(ERR_PEER_DOWN, "the drive's host cannot be reached")                                      \
  X(ERR_PROTOCOL, "bytes that the chunk protocol does not allow")                             \
  X(ERR_PROMISED, "refused: a higher version was promised or stored")                         \
  X(ERR_FLOOR, "refused: at or below the partition's floor")                                  \
  X(ERR_STALE_EPOCH, "refused: an older epoch of the slot table")                             \
  X(ERR_CLOCK, "refused: the version is too far in the future")                               \
  X(ERR_VER_REUSED, "refused: the version is stored with another operation")                  \
  X(ERR_BUCKET_DELETING, "refused: the bucket is being deleted")                              \
  X(ERR_NO_SPACE, "the drive is below its reserve")                                           \
  X(ERR_NO_CHUNK, "the drive has no whole chunk of this blob")                                \
  X(ERR_DRIVE_FAILED, "the drive is out of service after an I/O error")                       \
  X(ERR_TOO_LARGE, "beyond a named limit")                                                    \
  X(ERR_INVALID, "an argument that is not allowed")                                           \
  X(ERR_UNAVAILABLE, "too few drives answer")                                                 \
  X(ERR_UNKNOWN_OUTCOME, "too few drives acknowledged; the write may or may not take effect") \
  X(ERR_PRECONDITION, "the condition of the request is false")                                \
  X(ERR_CONFLICT, "another conditional write of this key is going on")                        \
  X(ERR_BAD_DIGEST, "the body does not match the digest that was sent")                       \
  X(ERR_BODY_SHORT, "the body ended before its length")                                       \
  X(ERR_BODY_LONG, "the body is longer than the largest object")                              \
  X(ERR_BODY_INVALID, "the body's framing is malformed")                                      \
  X(ERR_CLIENT_GONE, "the client closed the connection")                                      \
  X(ERR_SLOW_DOWN, "no buffer became free in time")                                           \
  X(ERR_NO_SUCH_KEY, "no such object")                                                        \
  X(ERR_NO_SUCH_BUCKET, "no such bucket")                                                     \
  X(ERR_BUCKET_EXISTS, "the bucket exists")                                                   \
  X(ERR_BUCKET_NOT_EMPTY, "the bucket holds objects")                                         \
  X(ERR_CONFIG, "the configuration is refused")                                               \
  X(ERR_REFUSED, "refused: membership, identity or version differs")                          \
  X(ERR_BUSY, "in use by another process")                                                    \
  X(ERR_SHUTDOWN, "the host is stopping")

enum err {
  ERR_FIRST_ = ERR_BASE - 1000,
#define ERR_ENUM_(name, words) name,
  ERR_TABLE(ERR_ENUM_)
#undef ERR_ENUM_
      ERR_END_
};

/* The constant's name ("ERR_TIMEOUT", "EIO"); never NULL. Static storage. */
const char *err_name(int err);
/* A few words for a person; never NULL. Static storage. */
const char *err_words(int err);
/* The error with this value exists in the table: true for what a peer may send us. */
bool err_known(int err);

#endif
