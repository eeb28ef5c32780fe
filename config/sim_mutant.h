/* sim_mutant.h: rules broken on purpose, to see that the simulator notices (tests/sim/MUTANTS.md).
 *
 * Only the simulator's own build defines KOFN_SIM_MUTANTS. Everywhere else MUTANT() is the constant
 * false, so that no line of a mutant is in any other binary. */
#ifndef KOFN_CONFIG_SIM_MUTANT_H
#define KOFN_CONFIG_SIM_MUTANT_H

enum sim_mutant {
  MUTANT_NONE,
  MUTANT_NAIVE_READ,             /* the newest version with k visible chunks wins */
  MUTANT_WALL_CLOCK,             /* versions from the local clock alone */
  MUTANT_CHECK_THEN_PUT,         /* conditional writes without a promise */
  MUTANT_UNSETTLED_412,          /* "condition false" on a base that is not yet chosen */
  MUTANT_W_IS_K,                 /* W = k, not a majority */
  MUTANT_RETRY_AFTER_NACK,       /* a PUT that was partly accepted goes again at a new version */
  MUTANT_ROLL_FORWARD_BLIND,     /* roll-forward ignores promises */
  MUTANT_CHUNKS_VOTE,            /* healthy chunks counted as votes */
  MUTANT_SAME_VERSION,           /* no nonce, and an equal version is accepted */
  MUTANT_EARLY_COMMIT,           /* COMMIT goes out before W drives acknowledged */
  MUTANT_FLAG_WITHOUT_COUNT,     /* a row is flagged as chosen when it is accepted */
  MUTANT_STALE_ROUND,            /* grants of an earlier promise round are counted */
  MUTANT_ROLL_BACK,              /* what might be chosen is passed over */
  MUTANT_ABSENT_BELOW_R,         /* "no such key" from fewer than R drives */
  MUTANT_ACCEPT_BELOW_PROMISE,   /* a drive accepts below its promise */
  MUTANT_PROMISE_BELOW_PROMISE,  /* a drive promises below its promise */
  MUTANT_UNKNOWN_IS_NOTHING,     /* "nothing happened" after some drive accepted */
  MUTANT_NO_FILE_SYNC,           /* the chunk file is not synced before its row */
  MUTANT_NO_DIR_SYNC,            /* nor its name */
  MUTANT_DROP_ACCEPTED,          /* an accepted row, not chosen, drops the older ones */
  MUTANT_SUPERSEDED_BY_ACCEPTED, /* "superseded" by a row that is only accepted */
  MUTANT_CORRUPT_IS_ABSENT,      /* a row that cannot be read is no row */
  MUTANT_UNIT_UNCHECKED,         /* GET believes the units it fetched */
  MUTANT_TRASH_NAMED,            /* a chunk goes with the first of the rows that name it */
  MUTANT_LIST_FLAGS_ONLY,        /* LIST shows what is flagged, whatever may be chosen above it */
  MUTANT_PROMISE_FORGOTTEN,      /* the promise is not stored */
  MUTANT_BUCKET_UNCHECKED,       /* a drive accepts rows of a bucket that is being deleted */
  /* of the simulated machines, not of the code */
  MUTANT_AMNESIA,      /* a drive that lost everything votes again at once */
  MUTANT_DISK_LIES,    /* a crash takes acknowledged rows away */
  MUTANT_OLD_SNAPSHOT, /* a restored snapshot votes */
  MUTANT_COUNT
};

/* In a request's flags. */
#define MUTANT_FLAG_BLIND 0x80

#ifdef KOFN_SIM_MUTANTS
extern enum sim_mutant sim_mutant;
#define MUTANT(name) (sim_mutant == MUTANT_##name)
#else
#define MUTANT(name) 0
#endif

#endif
