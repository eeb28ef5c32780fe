/* sigbus.h: a read error under a memory map ends one operation, not the process.
 *
 * The kernel reports it as SIGBUS on the thread that touched the page. One process-wide handler
 * jumps back to the guard of that thread, but only when the address lies in a registered map; every
 * other SIGBUS goes where it went before. What the interrupted function held (memory, transactions)
 * stays behind: the caller takes the drive out of service and never uses its index again. */
#ifndef KOFN_STORAGE_DRIVE_SIGBUS_H
#define KOFN_STORAGE_DRIVE_SIGBUS_H

#include "config/base.h"

#define SIGBUS_MAPS_MAX 512

/* A slot number, or ERR_TOO_LARGE. The first call installs the handler. */
_must_check_ int sigbus_map_add(const void *base, size_t len);
void sigbus_map_remove(int slot);
/* Runs fn(arg): 0, or -EIO when a registered map faulted inside. Guards do not nest: an inner call
 * is part of the outer guard. */
int sigbus_guarded(void (*fn)(void *arg), void *arg);

#endif
