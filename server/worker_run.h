/* worker_run.h: the life of one worker thread: start, drain, end. */
#ifndef KOFN_SERVER_WORKER_RUN_H
#define KOFN_SERVER_WORKER_RUN_H

#include <pthread.h>

#include "server/worker.h"

struct worker_run {
  struct worker *worker;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t cond;
  bool told;   /* `started` is set */
  int started; /* 0 or the error of the start */
  bool stop_sent;
  struct mail stop_mail;
  uint64_t grace_ms;
  /* the loop's own */
  struct env_timer grace, poll;
  unsigned stage;
  unsigned closing; /* handles groups not yet closed */
};

/* Starts the thread, which sets the worker up on a loop of its own. */
_must_check_ int worker_run_start(struct worker_run *run, struct worker *w);
/* Blocks until the set-up is over: 0 or its error (logged). A worker that failed to set up has
 * already ended. */
_must_check_ int worker_run_started(struct worker_run *run);
/* Any thread: drain, at most grace_ms for running requests. Nothing to do for one that failed to
 * start. */
void worker_run_stop(struct worker_run *run, uint64_t grace_ms);
void worker_run_join(struct worker_run *run);

#endif
