"""test_failed_drive.py: a disk whose syncs begin to fail takes its drive out of service, for good, and nothing else.

The failing disk is a library in front of libc's fdatasync and fsync: EIO below one directory while a file exists. What
was acknowledged before, during and after reads back; the host serves its other drive; and the failure is remembered in
the state directory: a restart does not bring the drive back, with whatever the disk says by then (PROTOCOL.md 7).
"""
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

from cluster import Cluster

BUCKET = "failing"
SKIP = 77
PRELOAD = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int refused(int fd) {
  const char *below = getenv("FAILING_DIRECTORY"), *trigger = getenv("FAILING_TRIGGER");
  char link[64], path[4096];
  if (!below || !trigger || access(trigger, F_OK) != 0) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  if (n < 0) return 0;
  path[n] = 0;
  return strncmp(path, below, strlen(below)) == 0;
}
#define IN_FRONT_OF(name)                                        \
  int name(int fd) {                                             \
    static int (*real)(int);                                     \
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, #name);     \
    if (!refused(fd)) return real(fd);                           \
    errno = EIO;                                                 \
    return -1;                                                   \
  }
IN_FRONT_OF(fdatasync)
IN_FRONT_OF(fsync)
"""


def build_preload(directory):
    source, library = directory / "failing.c", directory / "failing.so"
    source.write_text(PRELOAD)
    try:
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    except (OSError, subprocess.CalledProcessError) as e:
        print(f"SKIPPED: no C compiler for the failing disk: {e}")
        sys.exit(SKIP)
    return library


def drive_of(host, name):
    status = host.admin_json("/admin/v1/status")
    return next(d for h in status["hosts"] for d in h["drives"] if d["name"] == name)


def wait_for(what, words, timeout=60):
    end = time.monotonic() + timeout
    while not what():
        assert time.monotonic() < end, f"{timeout} s, and still not: {words}"
        time.sleep(0.05)


class Objects:
    """What was acknowledged; a refused PUT leaves either version possible."""

    def __init__(self, c, rng):
        self.c, self.rng, self.known, self.serial = c, rng, {}, 0

    def put(self, host):
        self.serial += 1
        key = f"k{self.serial}"
        body = self.rng.randbytes(self.rng.choice([0, 10, 5_000, 70_000, 300_000, 1_200_000]))
        a = self.c.put(BUCKET, key, body, host=host)
        assert a.status in (200, 503), a
        if a.status == 200:
            self.known[key] = body
        return a.status

    def check(self):
        for key, body in self.known.items():
            for host in self.c.hosts:
                a = self.c.get(BUCKET, key, host=host)
                assert a.status == 200 and a.body == body, f"{key} at {host.id}: {a}"
        return len(self.known)


def fail_by(c, objects, trigger, host):
    """The disk begins to fail under a stream of PUTs; the drive goes. How many PUTs were refused meanwhile."""
    refused = 0
    for _ in range(10):
        assert objects.put(c.hosts[0]) == 200
    trigger.touch()
    end = time.monotonic() + 60
    while drive_of(host, f"{host.id}/d1")["up"]:
        assert time.monotonic() < end, "no failed sync takes the drive out of service"
        refused += objects.put(objects.rng.choice(c.hosts)) != 200
    for other in c.hosts[1:]:
        wait_for(lambda o=other: not drive_of(o, f"{host.id}/d1")["up"], f"{other.id} sees that the drive has gone")
    return refused


def run(directory):
    library = build_preload(directory)
    seed = os.environ.get("KOFN_TEST_SEED", "11")
    with Cluster(directory / "c", hosts=3, drives_per_host=2, pool="4+2") as c:
        host, drive, trigger = c.hosts[0], c.hosts[0].drives[0], directory / "trigger"
        env = {"LD_PRELOAD": str(library), "FAILING_DIRECTORY": str(drive), "FAILING_TRIGGER": str(trigger),
               "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
        for h in c.hosts:
            h.start(env if h is host else None)
        c.wait_ready()
        c.make_bucket(BUCKET)
        objects = Objects(c, random.Random(seed))
        refused = fail_by(c, objects, trigger, host)
        trouble = drive_of(host, "n1/d1")["trouble"]
        assert "EIO" in trouble or "Input/output" in trouble or "I/O" in trouble, trouble
        assert host.alive() and drive_of(host, "n1/d2")["up"], host.log_text()[-3000:]
        print(f"ok: n1/d1 is out of service ({trouble}), its host and n1/d2 serve; {refused} PUTs were refused meanwhile")
        for i in range(6):
            assert objects.put(c.hosts[i % 3]) == 200, "4+2 has five drives left, and needs five"
        print(f"ok: {objects.check()} acknowledged objects read back at every host with the drive away")

        before = drive_of(host, "n1/d1")["rows"]
        trigger.unlink()  # the disk is well again: nobody knows what it has lost
        for _ in range(3):
            assert objects.put(c.hosts[1]) == 200
        assert not drive_of(host, "n1/d1")["up"] and drive_of(host, "n1/d1")["rows"] == before
        for sig in (15, 9):
            host.kill(sig)
            host.start()
            c.wait_ready()
            found = drive_of(host, "n1/d1")
            assert not found["up"] and "out of service" in found["trouble"], found
            assert not drive_of(c.hosts[1], "n1/d1")["up"], "a peer believes a drive that is out of service"
        print("ok: a restart, clean or not, does not bring it back; the status says why")
        print(f"ok: {objects.check()} acknowledged objects read back after it")
        statuses = c.stop()
        assert statuses == [0, 0, 0], statuses


def main():
    directory = pathlib.Path(tempfile.mkdtemp(prefix="kofn-failing-"))
    try:
        run(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
