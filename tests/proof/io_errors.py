"""io_errors.py: I/O errors by call index, on one drive of a cluster under load (PROTOCOL.md 7).

libkofn_io_fault.so (io_fault.c) makes the i-th call of a class below n1/d1 fail: for each class and kind of error the
index i is walked from 1 until a run in which the fault is not reached. Five walks:

  load    three clients put, overwrite, read, delete and list at three hosts of two drives (4+2), then housekeeping
  start   the host's start: probe, open, sweep, the commit that counts the boot
  stop    SIGTERM to exit
  format  the first start of a cluster
  map     the index loses its end under its map: reads of it are SIGBUS

Violations: an acknowledged object that does not read back right at every host, then and after a restart of n1; a drive
that goes on after an error of a sync or of a write to its index, is out of service later than a second after it, says
nothing in status, /metrics, log or state.json, or is trusted again after a restart; a fault that takes other drives or
the process with it; a refused PUT or an unreadable object while five of six drives are well; a drive that goes for an
error that it should bear (a short write, a full disk, a bad sector); a chunk file without a record, or a record
without its file, on a drive that stayed.

It can fail: with `store_files_sync` returning 0 whatever fdatasync says, `--only load.sync.EIO` ends with "goes on
after fdatasync"; with one pwritev in place of the loop in `store_files_write`, `--only load.write-data.half` ends with
an unreadable object.
"""
import argparse
import errno
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cluster"))
sys.path.insert(0, str(HERE))

import remains  # noqa: E402
from cluster import Cluster  # noqa: E402
from io_fault import HALF, IoFault, error_name, preload_path, wait_for  # noqa: E402
from object_load import Objects, Violation, together  # noqa: E402

SKIP = 77
LEAVES_WITHIN_S = 1.0
MARK_WITHIN_S = 10.0  # the state directory is on a disk that other tests use
TRASH_MS = 100
DRIVE, SISTER = "n1/d1", "n1/d2"
BASE = {"base/0": 0, "base/small": 100, "base/inline": 40_000, "base/file": 300_000, "base/large": 5_000_000}
SETTINGS = f"trash_delay: {TRASH_MS}ms"
STEP = 3
RESTART_EVERY = 6  # rounds that a drive bore, before its host is restarted and its files are compared with its records

# walk -> (class and, if not all of the drive, the subdirectory; errors)
WALKS = {
    "load": [(("write", "data"), (errno.EIO, errno.ENOSPC, HALF)),
             (("write", "index"), (errno.EIO, errno.ENOSPC, errno.EROFS, HALF)), (("sync",), (errno.EIO, errno.ENOSPC)),
             (("read",), (errno.EIO, HALF)), (("open",), (errno.EIO, errno.ENOSPC, errno.EMFILE)),
             (("allocate",), (errno.EIO, errno.ENOSPC)), (("unlink",), (errno.EIO, errno.EROFS))],
    "start": [(("write",), (errno.EIO, errno.ENOSPC, HALF)), (("sync",), (errno.EIO,)), (("read",), (errno.EIO, HALF)),
              (("open",), (errno.EIO,)), (("allocate",), (errno.ENOSPC,)), (("unlink",), (errno.EIO,))],
    "stop": [(("write",), (errno.EIO, errno.ENOSPC, HALF)), (("sync",), (errno.EIO,)), (("unlink",), (errno.EIO,))],
    "format": [(("write",), (errno.EIO, errno.ENOSPC, HALF)), (("sync",), (errno.EIO,)), (("read",), (errno.EIO,)),
               (("open",), (errno.EIO, errno.ENOSPC)), (("allocate",), (errno.ENOSPC,)), (("mkdir",), (errno.ENOSPC,)),
               (("rename",), (errno.EIO,)), (("unlink",), (errno.EIO,))],
    "map": [(("map",), (0, 8192, 65536))],
}


def say(*words):
    print(*words, flush=True)


def expected(call, path, error):
    """What must become of the drive: "goes", "stays", or "either"."""
    chunk = path.startswith("data/") and path.count("/") == 2
    full = error in (errno.ENOSPC, errno.EDQUOT)
    if path in ("lock", "index/lock.mdb") or call.startswith(("sync_file_range", "fallocate", "ftruncate")):
        return "stays"
    if "write" in call:
        return "stays" if chunk and (full or error == HALF) else "goes"
    if "sync" in call:
        return "stays" if chunk and full else "goes"
    if "read" in call:
        return "stays"
    if "(create)" in call:
        return "stays" if full or error in (errno.EMFILE, errno.ENFILE) else "goes"
    if "open" in call:
        return "stays"
    return "either"  # unlink: of a stage it is a hint, of trash the disk's word


def label(walk, names, error):
    return f"{walk}.{'-'.join(names)}.{error if walk == 'map' else error_name(error)}"


def drive_at(host, name):
    status = host.admin_json("/admin/v1/status")
    return next(d for h in status["hosts"] for d in h["drives"] if d["name"] == name)


def mark_of(host):
    """The FAILED mark of the drive in the host's state.json."""
    state = json.loads((host.dir / "state" / "state.json").read_text())
    return next((d.get("failed", "") for d in state["drives"] if d["name"] == DRIVE), "")


def metric_up(host, name):
    text = host.request_admin("GET", "/metrics")[1].decode()
    return next(line.split()[-1] for line in text.splitlines() if line.startswith(f'kofn_drive_up{{drive="{name}"}}'))


class Suite:
    def __init__(self, directory, rng, binary=None):
        self.dir, self.rng = directory, rng
        self.c = Cluster(directory / "c", hosts=3, drives_per_host=2, pool="4+2", settings=SETTINGS)
        self.n1 = self.c.hosts[0]
        self.drive = self.n1.drives[0]
        self.fault = IoFault(directory / "control", self.drive)
        self.template, self.base = directory / "template", None
        self.objects, self.round, self.borne, self.log_from = None, 0, 0, 0
        self.runs, self.reached, self.gone, self.slowest, self.checked, self.acked = {}, 0, 0, 0.0, 0, 0
        self.calls = 0

    # ---- the cluster, as it was ----
    def make_template(self):
        self.c.start()
        self.c.make_bucket("proof")
        self.objects = Objects(self.c)
        for key, size in BASE.items():
            a = self.objects.put(key, size, self.n1)
            assert a.status == 200, a
        remains.settled(self.c)
        self.c.stop()
        shutil.copytree(self.c.dir, self.template)
        self.base = dict(self.objects.may)

    def fresh(self):
        self.c.stop()
        self.fault.disarm()
        for h in self.c.hosts:
            shutil.rmtree(h.dir)
            subprocess.run(["cp", "-a", str(self.template / h.id), str(h.dir)], check=True)
        for h in self.c.hosts:
            h.start(self.fault.env if h is self.n1 else None)
        self.c.wait_ready()
        self.wait_all_up()
        self.acked += self.objects.acked
        self.objects = Objects(self.c)
        self.objects.may = dict(self.base)
        self.borne = 0

    def wait_all_up(self):
        for h in self.c.hosts:
            wait_for(lambda h=h: all(d["up"] for x in h.admin_json("/admin/v1/status")["hosts"] for d in x["drives"]),
                     f"{h.id} sees all drives up")

    def wait_sister(self):
        """n1 is back: everybody sees its other drive."""
        for h in self.c.hosts:
            wait_for(lambda h=h: drive_at(h, SISTER)["up"], f"{h.id} sees {SISTER} up")

    def usable(self):
        return self.n1.alive() and drive_at(self.n1, DRIVE)["up"]

    def restart(self, sig, env=True):
        status = self.n1.kill(sig)
        assert status == (0 if sig == 15 else -9), f"n1 ended with {status}:\n{self.n1.log_text()[-3000:]}"
        self.log_from = len(self.n1.log_text())
        self.n1.start(self.fault.env if env else None)
        self.c.wait_ready([self.n1])
        self.wait_sister()

    # ---- load ----
    def client(self, number):
        o, host = self.objects, self.c.hosts[number]
        k = f"r{self.round}/c{number}"
        for key in ("base/file", "base/large"):
            o.get(key, host)
        o.put(f"{k}/small", 100, host)
        o.put(f"{k}/inline", 40_000, host, headers={"If-None-Match": "*"})
        o.put(f"{k}/file", 300_000, host)
        o.put(f"{k}/file", 260_000, host)
        o.get(f"{k}/file", host)
        o.delete(f"{k}/inline", host)
        o.put(f"{k}/large", 1_500_000, host)
        o.get(f"{k}/large", host)

    def load(self):
        self.round += 1
        together([lambda n=n: self.client(n) for n in range(3)])
        time.sleep(2.5 * TRASH_MS / 1000)  # flags, drops, the trash

    def watch(self, stop):
        """When the host says that the drive is out of service, and when the mark stands in its state."""
        def over():
            if not stop:
                return False
            must = self.fault.done and expected(*self.fault.last(), self.fault.get("error")) == "goes"
            return not must or time.monotonic() > self.fault.when() + 3 * LEAVES_WITHIN_S
        while not over():
            said = self.n1.alive() and drive_at(self.n1, DRIVE)
            if said and said["trouble"] and not said["up"]:
                self.said_at = time.monotonic()
                return
            time.sleep(0.01)

    def check_gone(self, where):
        """The drive has gone in time, says so, and nothing else went."""
        at, said = self.fault.when(), drive_at(self.n1, DRIVE)
        if not said["trouble"]:
            raise Violation(f"{where}: the drive goes on after {' '.join(self.fault.last())}")
        took = self.said_at - at if self.said_at else None
        if took is None or took > LEAVES_WITHIN_S:
            raise Violation(f"{where}: out of service {took} s after the error, not within {LEAVES_WITHIN_S}")
        self.slowest = max(self.slowest, took)
        if metric_up(self.n1, DRIVE) != "0" or said["up"]:
            raise Violation(f"{where}: /metrics or status call it up: {said}")
        if "out of service" not in self.n1.log_text()[self.log_from:]:
            raise Violation(f"{where}: the log has no line on it")
        wait_for(lambda: mark_of(self.n1), f"{where}: state.json has no FAILED mark", MARK_WITHIN_S)
        for h in self.c.hosts[1:]:
            wait_for(lambda h=h: not drive_at(h, DRIVE)["up"], f"{where}: {h.id} calls it up")
        self.check_others(where)

    def check_others(self, where):
        for h in self.c.hosts:
            for name in (SISTER, "n2/d1", "n3/d2"):
                if not h.alive() or not drive_at(h, name)["up"]:
                    raise Violation(f"{where}: at {h.id} {name} has gone too:\n{h.log_text()[-2000:]}")

    def check_never_trusted(self, where):
        self.fault.disarm()  # the disk is well again: nobody knows what it has lost
        self.restart(self.rng.choice([9, 15]))
        said, log = drive_at(self.n1, DRIVE), self.n1.log_text()[self.log_from:]
        if said["up"] or "out of service" not in said["trouble"]:
            raise Violation(f"{where}: a restart brings the drive back: {said}")
        if not any(f"starting without {DRIVE}" in x and "out of service" in x for x in log.splitlines()):
            raise Violation(f"{where}: the log does not say why it is left out:\n{log[-2000:]}")
        for h in self.c.hosts[1:]:
            if drive_at(h, DRIVE)["up"]:
                raise Violation(f"{where}: {h.id} believes it after the restart")

    def check_stayed(self, where):
        self.fault.disarm()
        said = drive_at(self.n1, DRIVE)
        if not said["up"] or said["trouble"]:
            raise Violation(f"{where}: the drive went for {' '.join(self.fault.last())}: {said}")
        self.borne += 1
        if self.borne % RESTART_EVERY == 0:
            self.check_files(where)

    def check_files(self, where):
        """On drives that stayed: each record has its file, each file its record, also after a restart."""
        self.restart(self.rng.choice([9, 15]))
        self.wait_all_up()
        seen = remains.settled(self.c)
        for drive, (files, tables) in seen.items():
            named = {f"{k[:16].hex()}.{k[16]}.{v[:8].hex()}": int.from_bytes(v[8:16], "big")
                     for k, v in tables["blob"].items()}
            there = {f.rsplit("/", 1)[1]: size for f, size in files.items()}
            if set(named) != set(there):
                raise Violation(f"{where}: {drive}: records without a file {sorted(set(named) - set(there))[:5]}, "
                                f"files without a record {sorted(set(there) - set(named))[:5]}")
            short = [n for n, size in named.items() if there[n] <= size]
            if short:
                raise Violation(f"{where}: {drive}: files shorter than their chunks: {short[:5]}")

    def check_objects(self, where):
        """Of objects of former rounds, which nobody touches any more, every fourth: all of them, in the end."""
        now, old = f"r{self.round}/", self.borne % RESTART_EVERY
        keys = [k for i, k in enumerate(self.objects.may)
                if k.startswith((now, "base/")) or i % 4 == self.round % 4 or old == RESTART_EVERY - 1]
        try:
            self.objects.check(self.c.hosts, keys)
            self.checked += len(keys)
        except Violation as e:
            raise Violation(f"{where}: {e}") from e

    def check_needed(self, where):
        """Four drives are left: each chunk on n1/d1 is needed, none can be passed over."""
        n2 = self.c.hosts[1]
        n2.kill(9)
        keys = [k for k in self.objects.may if k.startswith((f"r{self.round}/", "base/"))]
        try:
            self.objects.check([self.n1], keys, listed=False)
        except Violation as e:
            raise Violation(f"{where}, its chunks needed: {e}") from e
        n2.start()
        self.c.wait_ready()
        self.wait_all_up()

    def check_refusals(self, where):
        """One drive of six is away at most: nobody may be refused."""
        bad = {k: n for k, n in self.objects.count.items() if k.split()[1][:3] not in ("200", "204")}
        if bad:
            raise Violation(f"{where}: with five drives well: {bad}")

    # ---- walks: each returns whether the fault was reached ----
    def run_load(self, names, error, index):
        if not self.usable():
            self.fresh()
        self.objects.count = {}
        self.said_at, stop = None, []
        self.log_from = len(self.n1.log_text())
        self.fault.arm(names[:1], index, error, within="".join(names[1:]))
        where = f"{label('load', names, error)} call {index}"

        def clients():
            try:
                self.load()
            finally:
                time.sleep(0.05)
                stop.append(1)
        together([clients, lambda: self.watch(stop)])
        self.check_refusals(where)
        if not self.fault.done:
            self.fault.disarm()
            self.check_objects(where)
            return False
        self.judge(where, error)
        self.check_objects(where)
        call, path = self.fault.last()
        if error == HALF and "write" in call and path.startswith("data/"):
            self.check_needed(where)
        return True

    def judge(self, where, error):
        call, path = self.fault.last()
        where = f"{where} ({call} {path})"
        want = expected(call, path, error)
        trouble = drive_at(self.n1, DRIVE)["trouble"]
        if want == "goes" or (want == "either" and trouble):
            self.check_gone(where)
            self.check_objects(where)
            self.check_never_trusted(where)
            for h in self.c.hosts:  # five drives are enough
                a = self.objects.put(f"r{self.round}/after-{h.id}", 300_000, h)
                if not a or a.status != 200:
                    raise Violation(f"{where}: a PUT with five drives at {h.id}: {a}")
            self.gone += 1
        else:
            self.check_stayed(where)

    def run_start(self, names, error, index):
        where = f"{label('start', names, error)} call {index}"
        if self.round == 0 or not self.usable():
            self.fresh()
            self.round += 1
        self.n1.kill(self.rng.choice([9, 15]))
        self.log_from = len(self.n1.log_text())
        self.fault.arm(names[:1], index, error, within="".join(names[1:]))
        self.n1.start(self.fault.env)
        wait_for(lambda: not self.n1.alive() or self.n1.ready(), f"{where}: n1 neither serves nor ends")
        if self.n1.alive():
            self.wait_sister()
        return self.judge_start(where, error)

    def judge_start(self, where, error):
        reached, (call, path) = self.fault.done > 0, self.fault.last()
        self.fault.disarm()
        where = f"{where} ({call} {path})"
        if not self.n1.alive():
            raise Violation(f"{where}: the host does not start without the drive:\n"
                            f"{self.n1.log_text()[self.log_from:][-2000:]}")
        said = drive_at(self.n1, DRIVE)
        if not said["up"] and not said["trouble"]:
            raise Violation(f"{where}: it starts without the drive and says nothing: {said}")
        if not reached and said["trouble"]:
            raise Violation(f"{where}: no fault, and the drive is out: {said}")
        self.check_others(where)
        self.check_objects(where)
        index_write = "write" in call and path == "index/data.mdb"
        a_sync = "sync" in call and not call.startswith("sync_file_range")
        if reached and (index_write or a_sync):
            if not mark_of(self.n1):
                raise Violation(f"{where}: state.json has no FAILED mark; status says {said}")
            self.check_never_trusted(where)
            self.gone += 1
        elif said["trouble"]:
            self.restart(15)
            self.wait_all_up()
            self.check_objects(where)
        return reached

    def run_stop(self, names, error, index):
        where = f"{label('stop', names, error)} call {index}"
        if self.round == 0 or not self.usable():
            self.fresh()
        self.round += 1
        a = self.objects.put(f"r{self.round}/stop", 300_000, self.n1)
        assert a and a.status == 200, a
        self.log_from = len(self.n1.log_text())
        self.fault.arm(names[:1], index, error, within="".join(names[1:]))
        status = self.n1.kill(15)
        if status != 0:
            raise Violation(f"{where}: exit status {status}:\n{self.n1.log_text()[self.log_from:][-2000:]}")
        self.n1.start(self.fault.env)
        self.c.wait_ready([self.n1])
        self.wait_sister()
        return self.judge_start(where, error)

    def run_format(self, names, error, index):
        """A one-host cluster of its own, from nothing."""
        where = f"{label('format', names, error)} call {index}"
        directory = self.dir / "format"
        c = Cluster(directory, hosts=1, drives_per_host=3, pool="2+1", settings=SETTINGS)
        host, fault = c.hosts[0], IoFault(self.dir / "control-format", c.hosts[0].drives[0])
        fault.arm(names, index, error)
        try:
            host.start(fault.env)
            wait_for(lambda: not host.alive() or host.ready("read"), f"{where}: neither serves nor ends")
            reached, last, log = fault.done > 0, " ".join(fault.last()), host.log_text()
            if not host.alive() and (not reached or str(host.drives[0]) not in log):
                raise Violation(f"{where} ({last}): ended with {host.process.returncode} and no word of the drive:\n{log}")
            fault.disarm()
            host.kill(15)
            host.start()
            wait_for(lambda: not host.alive() or host.ready("read"), f"{where} ({last}): neither serves nor ends")
            if not host.alive():
                raise Violation(f"{where} ({last}): no second attempt is possible:\n{host.log_text()[-2000:]}")
            self.format_serves(c, where, last)
        finally:
            c.stop()
            shutil.rmtree(directory)
        return reached

    def format_serves(self, c, where, last):
        trouble = drive_at(c.hosts[0], DRIVE)["trouble"]
        if trouble:  # out of service for good, in an empty cluster: said, and bearable
            self.gone += 1
            return
        c.wait_ready()
        c.make_bucket("proof")
        o = Objects(c)
        for key, size in BASE.items():
            a = o.put(key, size, c.hosts[0])
            if not a or a.status != 200:
                raise Violation(f"{where} ({last}): {a}")
        self.checked += o.check(c.hosts)

    def run_map(self, _, size, index):
        """Not an error by index: the index's file ends at `size`, everything behind is SIGBUS. Under load, then while
        the host is down."""
        if index > 2:
            return False
        where = f"map cut at {size}"
        self.fresh()
        self.log_from = len(self.n1.log_text())
        if index == 2:
            return self.start_without_index(where, size)
        self.said_at, stop = None, []

        def clients():
            try:
                self.load()
            finally:
                time.sleep(0.05)
                stop.append(1)
        os.truncate(self.drive / "index" / "data.mdb", size)
        self.fault.put("done_ns", time.monotonic_ns())
        together([clients, lambda: self.watch(stop)])
        self.check_refusals(where)
        self.check_gone(where)
        self.check_objects(where)
        self.check_never_trusted(where)
        self.check_objects(where)
        self.gone += 1
        return True

    def start_without_index(self, where, size):
        self.n1.kill(15)
        os.truncate(self.drive / "index" / "data.mdb", size)
        self.n1.start(self.fault.env)
        wait_for(lambda: not self.n1.alive() or self.n1.ready(), f"{where}: n1 neither serves nor ends")
        log = self.n1.log_text()[self.log_from:]
        if not self.n1.alive() or f"starting without {DRIVE}" not in log:
            raise Violation(f"{where}, then a start: it ends, or does not say why it goes on without the drive:\n{log}")
        self.wait_sister()
        self.check_others(where)
        self.check_objects(where)
        return True

    # ---- the walk ----
    def one(self, walk, names, error, index):
        reached = getattr(self, f"run_{walk}")(names, error, index)
        key = f"{walk}.{'-'.join(names)}"
        self.runs[key] = self.runs.get(key, 0) + 1
        self.reached += reached
        return reached

    def walk(self, walk, names, error):
        """From 1 until the fault is not reached twice in a row: load is not the same twice. Each call fails with EIO;
        of the other errors, where the calls are many, one in STEP each."""
        others = [e for e in next(r[1] for r in WALKS[walk] if r[0] == names) if e != errno.EIO]
        many = (walk, names) in (("load", ("write", "index")), ("load", ("open",)), ("format", ("open",)))
        step = STEP if many and error in others else 1
        index, missed = 1 + (others.index(error) if step > 1 else 0), 0
        while missed < (2 if walk == "load" else 1) and (not self.calls or index <= self.calls):
            missed = 0 if self.one(walk, names, error, index) else missed + 1
            index += step
        return index - step * (1 + missed), step


def plan(only):
    """[(walk, names, error)]"""
    out = [(w, names, e) for w, rows in WALKS.items() for names, errors in rows for e in errors]
    if only:
        out = [(w, n, e) for w, n, e in out if label(w, n, e).startswith(only)]
    return out


def run_whole(suite, only):
    for walk, names, error in plan(only):
        started = time.monotonic()
        calls, step = suite.walk(walk, names, error)
        say(f"ok: {label(walk, names, error)}: calls to {calls}, step {step} "
            f"({time.monotonic() - started:.0f} s)")


def run_short(suite, only, seconds):
    """Each class of each walk once, at an index that is drawn, as far as there is time."""
    steps, end = plan(only), time.monotonic() + seconds
    suite.rng.shuffle(steps)
    steps.sort(key=lambda s: (list(WALKS).index(s[0]), s[2] != errno.EIO and s[1] == ("sync",)))
    first_of = {}  # another error of the same class with another seed
    for step in steps:
        first_of.setdefault((step[0], step[1]), step)
    for walk, names, error in first_of.values():
        index = suite.rng.choice([1, 2, 3, 5, 8]) if walk != "map" else 1
        while not suite.one(walk, names, error, index) and index > 1:
            index //= 2
        say(f"ok: {label(walk, names, error)} call {index}")
        if time.monotonic() > end:
            say("the time of the short form is over")
            break


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--calls", type=int, default=0, help="no walk goes further than this")
    parser.add_argument("--only", default="", help="WALK[.CLASS[.ERROR]]")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if not preload_path():
        print("libkofn_io_fault.so is not built (KOFN_TOOLS_DIR)")
        return SKIP
    started = time.monotonic()
    directory = pathlib.Path(tempfile.mkdtemp(prefix="kofn-io-errors-"))
    say(f"seed {arguments.seed}")
    suite = Suite(directory, random.Random(arguments.seed))
    try:
        with suite.c:
            suite.make_template()
            if arguments.short:
                run_short(suite, arguments.only, 45)
            else:
                suite.calls = arguments.calls
                run_whole(suite, arguments.only)
            if suite.n1.alive() and not arguments.only:
                assert suite.fault.loaded > 0, "the library was never in front"
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    done = ", ".join(f"{k} {n}" for k, n in suite.runs.items())
    print("RESULT " + json.dumps({
        "suite": "io_errors", "done": f"{sum(suite.runs.values())} runs, {suite.reached} with a failed call: {done}",
        "found": "none", "seconds": round(time.monotonic() - started),
        "figures": f"{suite.gone} times the drive went, at most {suite.slowest:.2f} s after the error; "
                   f"{suite.checked} objects read back at every host"}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
