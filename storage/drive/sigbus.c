/* sigbus.c: see sigbus.h. */
#include "storage/drive/sigbus.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>

#include "config/err.h"

/* base 0: free. len is written before base is published. */
static struct sigbus_map {
  _Atomic uintptr_t base;
  _Atomic size_t len;
} maps[SIGBUS_MAPS_MAX];

static pthread_once_t handler_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t maps_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction handler_before;
static int handler_err;
static _Thread_local sigjmp_buf *guard_here;

static bool sigbus_in_map(uintptr_t at) {
  for (unsigned i = 0; i < SIGBUS_MAPS_MAX; i++) {
    uintptr_t base = atomic_load(&maps[i].base);
    if (base != 0 && at >= base && at - base < atomic_load(&maps[i].len)) return true;
  }
  return false;
}

static void sigbus_handle(int sig, siginfo_t *info, void *context) {
  if (guard_here && info->si_code > 0 && sigbus_in_map((uintptr_t)info->si_addr))
    siglongjmp(*guard_here, 1);
  if (handler_before.sa_flags & SA_SIGINFO) {
    handler_before.sa_sigaction(sig, info, context);
  } else if (handler_before.sa_handler != SIG_DFL && handler_before.sa_handler != SIG_IGN) {
    handler_before.sa_handler(sig);
  } else {
    signal(sig, SIG_DFL); /* the instruction runs again and ends the process, with a core */
    if (info->si_code <= 0) raise(sig);
  }
}

static void sigbus_install(void) {
  struct sigaction act = {.sa_sigaction = sigbus_handle};
  /* SA_NODEFER: the jump leaves the handler without restoring the mask. */
  act.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigemptyset(&act.sa_mask);
  if (sigaction(SIGBUS, &act, &handler_before) != 0) handler_err = -errno;
}

int sigbus_map_add(const void *base, size_t len) {
  pthread_once(&handler_once, sigbus_install);
  if (handler_err < 0) return handler_err;
  int slot = ERR_TOO_LARGE;
  pthread_mutex_lock(&maps_mutex);
  for (int i = 0; i < SIGBUS_MAPS_MAX; i++) {
    if (atomic_load(&maps[i].base) != 0) continue;
    atomic_store(&maps[i].len, len);
    atomic_store(&maps[i].base, (uintptr_t)base);
    slot = i;
    break;
  }
  pthread_mutex_unlock(&maps_mutex);
  return slot;
}

void sigbus_map_remove(int slot) {
  if (slot >= 0) atomic_store(&maps[slot].base, 0);
}

int sigbus_guarded(void (*fn)(void *arg), void *arg) {
  if (guard_here) {
    fn(arg);
    return 0;
  }
  sigjmp_buf guard;
  if (sigsetjmp(guard, 0) != 0) {
    guard_here = NULL;
    return -EIO;
  }
  guard_here = &guard;
  fn(arg);
  guard_here = NULL;
  return 0;
}
