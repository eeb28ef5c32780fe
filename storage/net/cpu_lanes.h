/* cpu_lanes.h: what env_uv and the CPU threads say to each other; not for others. */
#ifndef KOFN_STORAGE_NET_CPU_LANES_H
#define KOFN_STORAGE_NET_CPU_LANES_H

#include "storage/net/env_uv.h"

#define CPU_LANES_THREADS_MAX 256

/* Any thread. Runs w->run on a lane, then env_uv_work_ran on the same lane. */
void cpu_lanes_submit(struct cpu_lanes *lanes, struct env_work *w);
/* env_uv.c: brings a work that has run back to its loop. Any thread. */
void env_uv_work_ran(struct env_work *w);

/* Blocks every signal in the threads that the caller starts next, so that SIGTERM and friends reach
 * the main thread; errors of the program itself (SIGSEGV, SIGBUS, ...) stay deliverable. */
void thread_signals_block(void *ret_old_sigset);
void thread_signals_restore(const void *old_sigset);

#endif
