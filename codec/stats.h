/* stats.h: counting without contention. Internal to codec/; codec_stats of codec.h reads. */
#ifndef KOFN_CODEC_STATS_H
#define KOFN_CODEC_STATS_H

enum codec_stat {
  STAT_ENCODE_XOR,
  STAT_ENCODE_GENERAL,
  STAT_DECODE_XOR,
  STAT_DECODE_GENERAL,
  STAT_PLAN_HIT,
  STAT_PLAN_MISS,
  STAT_COUNT
};

void codec_count(enum codec_stat stat);

#endif
