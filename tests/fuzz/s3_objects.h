/* s3_objects.h: the object layer as the S3 front sees it, without drives: what a request asked for
 * decides what it gets. Answers come later, from s3_objects_turn. */
#ifndef KOFN_TESTS_FUZZ_S3_OBJECTS_H
#define KOFN_TESTS_FUZZ_S3_OBJECTS_H

#include "server/s3.h"
#include "tests/fuzz/fuzz.h"

/* `log` gets a line for every operation, as the object layer was asked. */
void s3_objects_begin(uint64_t seed, struct byte_writer *log);
/* True where something was under way. */
bool s3_objects_turn(void);
/* Nothing may be under way. */
void s3_objects_end(void);

#endif
