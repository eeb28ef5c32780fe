/* lanes.h: the threads of one drive: a writer (group commit), and readers (READ, FETCH, LIST,
 * STAGE, seal). A thread's wake-up costs several times what a READ does whose pages are in memory:
 * those can be had without a lane.
 *
 * A job goes to the right lane by its verb: reads and stages to the readers; ACCEPT is sealed on a
 * reader, then committed by the writer; PROMISE, DISCARD, BUCKET to the writer; COMMIT to the
 * writer lazily (with the next batch, at most 100 ms later). Stages of one chunk keep their order.
 * `done` runs on a lane thread, exactly once per job, and must be quick. */
#ifndef KOFN_STORAGE_DRIVE_LANES_H
#define KOFN_STORAGE_DRIVE_LANES_H

#include "config/list.h"
#include "storage/drive/drive.h"

#define LANES_COMMIT_DELAY_MS 100

struct drive_job {
  struct peer_request *req; /* the submitter's, alive until done */
  struct peer_reply *reply;
  void (*done)(struct drive_job *job);
  struct list link;
  uint8_t lane; /* lanes.c's */
};

struct drive_lanes;

/* `failed` runs once, on a lane thread, when the drive leaves service. Takes the drive: lanes_stop
 * closes it. */
_must_check_ int lanes_start(struct drive *d, unsigned readers,
                             void (*failed)(void *arg, struct drive *d), void *arg,
                             struct drive_lanes **ret_lanes);
/* Any thread. A failed drive answers ERR_DRIVE_FAILED. */
void lanes_submit(struct drive_lanes *lanes, struct drive_job *job);
/* All jobs of a list (by `link`), which is empty afterwards: each thread is woken once at most. */
void lanes_submit_all(struct drive_lanes *lanes, struct list *jobs);
/* Any thread: a READ at once, on the caller's own, in place of a job: the reply as `done` would
 * find it. False, and nothing done, while the index is cold: a READ that had to wait for the disk
 * sends those of the next LANES_COLD_MS to the readers. A drive that hangs may hold the caller at
 * most once: it asks here only while the lanes answer. */
#define LANES_COLD_MS 1000
_must_check_ bool lanes_read_here(struct drive_lanes *lanes, struct peer_request *req,
                                  struct peer_reply *reply);
/* Finishes what was submitted (lazy commits too), joins the threads, closes the drive. */
void lanes_stop(struct drive_lanes *lanes);
struct drive *lanes_drive(struct drive_lanes *lanes);

#endif
