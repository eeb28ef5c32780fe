/* cpu_lanes.c: the CPU threads of the process: one queue, first come first served, for all loops.
 */
#include "storage/net/cpu_lanes.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

struct cpu_lanes {
  pthread_mutex_t lock;
  pthread_cond_t wake;
  struct list queue;
  unsigned idle;
  bool stopping;
  unsigned count;
  pthread_t threads[CPU_LANES_THREADS_MAX];
};

void thread_signals_block(void *ret_old_sigset) {
  sigset_t all;
  sigfillset(&all);
  sigdelset(&all, SIGBUS);
  sigdelset(&all, SIGSEGV);
  sigdelset(&all, SIGFPE);
  sigdelset(&all, SIGILL);
  sigdelset(&all, SIGABRT);
  pthread_sigmask(SIG_BLOCK, &all, ret_old_sigset);
}

void thread_signals_restore(const void *old_sigset) {
  pthread_sigmask(SIG_SETMASK, old_sigset, NULL);
}

static void *lane_main(void *arg) {
  struct cpu_lanes *lanes = arg;
  pthread_mutex_lock(&lanes->lock);
  for (;;) {
    struct list *l = list_pop_front(&lanes->queue);
    if (l) {
      struct env_work *w = container_of(l, struct env_work, link);
      pthread_mutex_unlock(&lanes->lock);
      w->run(w);
      env_uv_work_ran(w);
      pthread_mutex_lock(&lanes->lock);
    } else if (lanes->stopping) {
      break;
    } else {
      lanes->idle++;
      pthread_cond_wait(&lanes->wake, &lanes->lock);
      lanes->idle--;
    }
  }
  pthread_mutex_unlock(&lanes->lock);
  return NULL;
}

int cpu_lanes_start(unsigned threads, struct cpu_lanes **ret_lanes) {
  if (threads == 0) threads = 1;
  if (threads > CPU_LANES_THREADS_MAX) threads = CPU_LANES_THREADS_MAX;
  struct cpu_lanes *lanes = calloc(1, sizeof *lanes);
  if (!lanes) return -ENOMEM;
  pthread_mutex_init(&lanes->lock, NULL);
  pthread_cond_init(&lanes->wake, NULL);
  list_init(&lanes->queue);
  sigset_t old;
  thread_signals_block(&old);
  int err = 0;
  while (lanes->count < threads && err == 0) {
    err = pthread_create(&lanes->threads[lanes->count], NULL, lane_main, lanes);
    if (err != 0) break;
    pthread_setname_np(lanes->threads[lanes->count], "kofn-cpu");
    lanes->count++;
  }
  thread_signals_restore(&old);
  if (err != 0) {
    cpu_lanes_stop(lanes);
    return -err;
  }
  *ret_lanes = lanes;
  return 0;
}

void cpu_lanes_stop(struct cpu_lanes *lanes) {
  if (!lanes) return;
  pthread_mutex_lock(&lanes->lock);
  lanes->stopping = true;
  pthread_cond_broadcast(&lanes->wake);
  pthread_mutex_unlock(&lanes->lock);
  for (unsigned i = 0; i < lanes->count; i++) pthread_join(lanes->threads[i], NULL);
  pthread_cond_destroy(&lanes->wake);
  pthread_mutex_destroy(&lanes->lock);
  free(lanes);
}

void cpu_lanes_submit(struct cpu_lanes *lanes, struct env_work *w) {
  pthread_mutex_lock(&lanes->lock);
  list_push_back(&lanes->queue, &w->link);
  if (lanes->idle > 0) pthread_cond_signal(&lanes->wake);
  pthread_mutex_unlock(&lanes->lock);
}
