/* s3_xml.h: a small escaping XML writer for answers; expat reads requests (s3_bucket.c). */
#ifndef KOFN_SERVER_S3_XML_H
#define KOFN_SERVER_S3_XML_H

#include "codec/bytes.h"

#define XML_S3_NAMESPACE "http://s3.amazonaws.com/doc/2006-03-01/"

void xml_prolog(struct byte_writer *w);
/* `ns` NULL: none. */
void xml_open(struct byte_writer *w, const char *name, const char *ns);
void xml_close(struct byte_writer *w, const char *name);
/* <name>escaped</name>. What XML 1.0 cannot hold (control characters, broken UTF-8) becomes U+FFFD,
 * so that the document is well-formed whatever the key: clients that need the exact bytes ask for
 * encoding-type=url. */
void xml_text(struct byte_writer *w, const char *name, struct slice text);
/* The same with S3's encoding-type=url: percent-encoded, '/' left bare, space as %20. */
void xml_text_url(struct byte_writer *w, const char *name, struct slice text);
void xml_u64(struct byte_writer *w, const char *name, uint64_t value);
void xml_bool(struct byte_writer *w, const char *name, bool value);
/* 2026-11-30T17:53:49.572Z */
void xml_time(struct byte_writer *w, const char *name, uint64_t wall_ms);
/* "etag" in quotes. */
void xml_etag(struct byte_writer *w, const char *name, struct slice etag);

/* Length of the valid UTF-8 sequence at `s` (1..4), or 0. Source: RFC 3629, 4. */
unsigned utf8_sequence(struct slice s);
bool utf8_valid(struct slice s);

#endif
