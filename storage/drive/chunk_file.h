/* chunk_file.h: the format of a chunk file. It explains itself: with no index and no cluster, its
 * bytes say which blob and chunk it is, and whether each unit is whole (ARCHITECTURE.md).
 *
 *   header, 4096 bytes  magic, version, data_id, index, profile, CRC
 *   units               unit u at 4096 + u * unit_bytes; only the last may be shorter
 *   trailer             lengths, CRC32C of every unit, bucket, key, digest; CRC and its length last
 *
 * Integers are big-endian. A file without a trailer was never sealed. */
#ifndef KOFN_STORAGE_DRIVE_CHUNK_FILE_H
#define KOFN_STORAGE_DRIVE_CHUNK_FILE_H

#include "codec/bytes.h"
#include "config/cluster_map.h"
#include "storage/drive/store.h"
#include "storage/object/row.h"

#define CHUNK_HEADER_BYTES 4096
#define CHUNK_FORMAT 1
/* The smallest stripe unit that settings allow bounds the number of units, and so the trailer. */
#define CHUNK_UNIT_BYTES_MIN 4096
#define CHUNK_UNITS_MAX (OBJECT_BYTES_MAX / CHUNK_UNIT_BYTES_MIN)
#define CHUNK_TRAILER_BYTES_MAX (CHUNK_UNITS_MAX * 4 + 4096)

/* Everything about a chunk but its bytes. */
struct chunk_info {
  struct id128 data_id;
  uint8_t index;
  struct profile profile;
  uint64_t unit_count;
  uint64_t len;   /* of all units together */
  uint32_t *crcs; /* unit_count of them; owned by whoever holds the struct */
  struct id128 digest;
};

static inline uint64_t chunk_unit_offset(uint64_t unit, uint32_t unit_bytes) {
  return CHUNK_HEADER_BYTES + unit * unit_bytes;
}
/* Length of unit u; all but the last are whole. */
uint32_t chunk_unit_len(const struct chunk_info *info, uint64_t unit);

void chunk_header_encode(const struct chunk_info *info, uint8_t out[CHUNK_HEADER_BYTES]);
/* Fills data_id, index and profile. ERR_CORRUPT. */
_must_check_ int chunk_header_decode(const uint8_t in[CHUNK_HEADER_BYTES],
                                     struct chunk_info *ret_info);

/* Appends the trailer to a writer. */
void chunk_trailer_put(struct byte_writer *w, const struct chunk_info *info,
                       const struct id128 *bucket, struct slice key);

/* Opens a sealed file and reads its trailer, which must be that of `name`. *ret_info's crcs are
 * malloc'ed. ERR_CORRUPT: no or a broken trailer. The header is not looked at: it repeats. */
_must_check_ int chunk_file_open(struct store *s, const struct chunk_name *name,
                                 struct store_file **ret_file, struct chunk_info *ret_info);

#endif
