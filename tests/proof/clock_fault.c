/* clock_fault.c: a library for LD_PRELOAD that puts a process's wall clock wrong, while it runs.
 *
 *   CLOCK_FAULT_CONTROL=FILE LD_PRELOAD=libkofn_clock_fault.so kofn server ...
 *
 * FILE holds one int64_t in the machine's order: the milliseconds by which the wall clock is off.
 * It is mapped shared, so that the test makes the clock jump by writing there. The monotonic clocks
 * are right, as they are on a real machine whose wall clock is set. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static _Atomic int64_t *offset_ms;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void clock_fault_open(void) {
  real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  const char *file = getenv("CLOCK_FAULT_CONTROL");
  int fd = file ? open(file, O_RDWR | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void *map = mmap(NULL, sizeof *offset_ms, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (map != MAP_FAILED) offset_ms = map;
  close(fd);
}

int clock_gettime(clockid_t id, struct timespec *ts) {
  /* Other constructors may ask for the time before ours has run. */
  int err = real_clock_gettime ? real_clock_gettime(id, ts)
                               : (int)syscall(SYS_clock_gettime, (long)id, ts);
  if (err != 0 || !offset_ms || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) return err;
  int64_t off = atomic_load(offset_ms);
  int64_t ns = ts->tv_nsec + off % 1000 * 1000000;
  ts->tv_sec += off / 1000 + (ns >= 1000000000) - (ns < 0);
  ts->tv_nsec = ns >= 1000000000 ? ns - 1000000000 : ns < 0 ? ns + 1000000000 : ns;
  return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
  struct timespec ts;
  (void)tz;
  if (clock_gettime(CLOCK_REALTIME, &ts) != 0) return -1;
  *tv = (struct timeval){.tv_sec = ts.tv_sec, .tv_usec = ts.tv_nsec / 1000};
  return 0;
}

time_t time(time_t *ret) {
  struct timespec ts;
  if (clock_gettime(CLOCK_REALTIME, &ts) != 0) return (time_t)-1;
  if (ret) *ret = ts.tv_sec;
  return ts.tv_sec;
}
