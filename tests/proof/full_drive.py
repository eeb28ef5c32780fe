"""full_drive.py: drives that are full, again and again (PROTOCOL.md 7, ENOSPC).

One host of six drives (4+2), each an ext4 of its own in a loop file, with a ballast file. A cycle: clients put until they
get 507 InsufficientStorage; while it is full GET, HEAD, LIST, DELETE and a restart work and a PUT gets 507 again; then
space returns, and with it PUT, without a restart. The cycles take turns in how a drive becomes full and well again:

  delete    filled by objects, emptied by DELETE
  ballast   filled by objects, space returns by removing the ballast file
  foreign   something else writes the file system full, to the last block and behind the reserve, while clients put
  one       only one drive is full to the last block: the five others serve every PUT

Then the same with the index's map (drive.index_map_bytes 16MiB) and objects that stand in it: `index`.

Violations: an acknowledged object of any cycle that is lost or wrong; a refusal of another class; anything but PUT that
does not work; PUT that does not come back; a drive that goes out of service; at the end a chunk file without record, a
record without file, or a chunk of no living object.

Without root or loop devices only the index's part runs. It can fail: with `drive_below_reserve` returning false for
good, `--only ballast` ends with refusals of another class, and drives out of service.
"""
import argparse
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
from io_fault import wait_for  # noqa: E402
from object_load import BUCKET, FULL, Objects, Violation, together  # noqa: E402

SKIP = 77
MIB = 1 << 20
DISK_MIB, BALLAST_MIB, RESERVE_MIB = 96, 40, 8
DRIVES, CLIENTS = 6, 3
SIZES = [4_000, 60_000, 300_000, 1_500_000, 4_000_000]
INDEX_SIZES = [3_000, 20_000, 60_000]
TRASH_MS = 100
RETURNS_S = 30  # the longest time until PUT works again
UNKNOWN, UNKNOWN_IN = b"may or may not have taken effect", 4
KINDS = ("delete", "ballast", "foreign", "one")
SETTINGS = f"trash_delay: {TRASH_MS}ms\nreserve_bytes: {RESERVE_MIB}MiB\nindex_map_bytes: %dMiB"


def say(*words):
    print(*words, flush=True)


class Disks:
    """A loop-mounted ext4 for each drive."""

    def __init__(self, directory, drives):
        self.directory, self.drives, self.mounted = directory, drives, []

    def __enter__(self):
        for i, drive in enumerate(self.drives):
            image = self.directory / f"disk{i}"
            with open(image, "wb") as f:
                f.truncate(DISK_MIB * MIB)
            subprocess.run(["mkfs.ext4", "-q", "-m0", "-J", "size=4", str(image)], check=True)
            subprocess.run(["mount", "-o", "loop", str(image), str(drive)], check=True)
            self.mounted.append(drive)
        return self

    def __exit__(self, *_):
        for drive in self.mounted:
            if subprocess.run(["umount", str(drive)], stderr=subprocess.DEVNULL).returncode != 0:
                subprocess.run(["umount", "-l", str(drive)])

    @staticmethod
    def possible():
        if os.geteuid() != 0 or not shutil.which("mkfs.ext4"):
            return False
        return subprocess.run(["losetup", "-f"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def ballast(drive, mib):
    """Real blocks; True where all of them fitted."""
    path = drive / "ballast"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(fd, 0, mib * MIB)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def write_full(drive):
    """Not a block is left."""
    fd = os.open(drive / "foreign", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for size in (MIB, 4096):
            try:
                while True:
                    os.write(fd, bytes(size))
            except OSError:
                pass
        os.fsync(fd)
    finally:
        os.close(fd)


class Full:
    def __init__(self, c, rng, sizes):
        self.c, self.rng, self.host, self.sizes = c, rng, c.hosts[0], sizes
        self.objects = Objects(c)
        self.unknown = 0
        self.cycles, self.refused, self.slowest, self.kept, self.restarts = {}, 0, 0.0, 0, 0

    def start(self):
        self.c.start()
        self.c.make_bucket(BUCKET)

    # ---- what must always hold ----
    def check_drives(self, where):
        for d in self.c.hosts[0].admin_json("/admin/v1/status")["hosts"][0]["drives"]:
            if not d["up"] or d["trouble"]:
                raise Violation(f"{where}: {d['name']} is out of service: {d}\n{self.host.log_text()[-2000:]}")

    def put(self, key, size, where):
        """200 or 507; whether it was stored for sure. Where some drives took the row, the others then had no room, and
        the row might be chosen, the answer is the honest 503 (PROTOCOL.md 6): counted, and at most one
        beside UNKNOWN_IN clear ones."""
        a = self.objects.put(key, size, self.host, name=f"{key} {size} {self.rng.random()}")
        if a is not None and a.status == 503 and UNKNOWN in a.body:
            self.unknown += 1
            if self.unknown > 2 + self.refused // UNKNOWN_IN:
                raise Violation(f"{where}: {self.unknown} answers of unknown outcome beside {self.refused} clear refusals")
            return False
        if a is None or a.status not in (200, FULL) or (a.status == FULL and a.code() != "InsufficientStorage"):
            raise Violation(f"{where}: PUT {key} of {size} bytes: {a}\n{self.host.log_text()[-2000:]}")
        self.refused += a.status == FULL
        return a.status == 200

    def keep(self, where):
        """An object that lives through all cycles to come."""
        size = self.rng.choice(self.sizes[:3])  # a hundred of them must leave room to fill
        wait_for(lambda: self.put(f"keep/{self.kept}", size, where), f"{where}: a PUT to drives with space", RETURNS_S)
        self.kept += 1

    def fill(self, where):
        """Several clients put, until each has been refused at every size in a row."""
        def client(number, rng):
            i, row = 0, 0
            while row < len(self.sizes):
                size = self.sizes[-1 - row] if row else rng.choice(self.sizes)
                row = 0 if self.put(f"fill/{number}/{i}", size, where) else row + 1
                i += 1
                if i > 100_000:
                    raise Violation(f"{where}: nothing becomes full")
        together([lambda n=n, r=random.Random(self.rng.random()): client(n, r) for n in range(CLIENTS)])

    def filled(self):
        return [k for k in self.objects.present() if k.startswith("fill/")]

    def works_while_full(self, where, restart):
        if restart:
            status = self.host.kill(self.rng.choice([9, 15]))
            assert status in (0, -9), f"{where}: exit status {status}\n{self.host.log_text()[-2000:]}"
            self.host.start()
            self.c.wait_ready()
            self.restarts += 1
        self.check_drives(where)
        keys = self.filled() + [f"keep/{i}" for i in range(self.kept)]
        sample = self.rng.sample(keys, min(len(keys), 20))
        self.objects.check(self.c.hosts, sample)
        for key in sample[:5]:
            a = self.c.head(BUCKET, key)
            if a.status != 200:
                raise Violation(f"{where}: HEAD {key}: {a}")

    def delete(self, keys, where):
        for key in keys:
            a = self.objects.delete(key, self.host)
            if a is None or a.status != 204:
                raise Violation(f"{where}: DELETE {key}: {a}\n{self.host.log_text()[-2000:]}")

    def returns(self, where):
        """PUT works again, of every size, without a restart. (The drives' figures are a second old, and what was deleted
        goes a moment later: near the reserve one PUT may be refused behind another that was not.)"""
        began = time.monotonic()
        for size in self.sizes:
            wait_for(lambda s=size: self.put("again", s, where), f"{where}: a PUT of {size} bytes after space returned",
                     RETURNS_S)
        self.slowest = max(self.slowest, time.monotonic() - began)
        self.check_drives(where)

    # ---- cycles ----
    def cycle(self, kind, number):
        where = f"cycle {number} ({kind})"
        restart = number % 3 == 0
        getattr(self, f"cycle_{kind}")(where, restart)
        self.delete(self.filled(), where)
        self.returns(where)
        self.keep(where)
        self.cycles[kind] = self.cycles.get(kind, 0) + 1

    def cycle_delete(self, where, restart):
        self.fill(where)
        self.works_while_full(where, restart)
        if self.put("fill/late", self.sizes[-1], where):
            say(f"{where}: a last one fitted")
        self.delete(self.filled(), where)
        self.returns(where)

    cycle_index = cycle_delete

    def cycle_ballast(self, where, restart):
        self.fill(where)
        self.works_while_full(where, restart)
        for d in self.host.drives:
            os.unlink(d / "ballast")
        self.returns(where)
        self.objects.check(self.c.hosts, self.filled())
        self.delete(self.filled(), where)
        self.returns(where)
        for d in self.host.drives:
            assert ballast(d, BALLAST_MIB), where

    def cycle_foreign(self, where, restart):
        together([lambda: self.fill(where)] + [lambda d=d: write_full(d) for d in self.host.drives])
        self.works_while_full(where, restart)
        if self.put("fill/late", 4_000, where):
            raise Violation(f"{where}: a PUT without a free block")
        self.delete(self.filled(), where)
        self.works_while_full(where, False)
        for d in self.host.drives:
            os.unlink(d / "foreign")
        self.returns(where)

    def cycle_one(self, where, restart):
        drive = self.rng.choice(self.host.drives)
        wait_for(lambda: not any(d["full"] for d in self.host.admin_json("/admin/v1/status")["hosts"][0]["drives"]),
                 f"{where}: no drive is full (the figures are a second old)", RETURNS_S)

        def puts():
            for i in range(8):
                if not self.put(f"fill/one/{i}", self.sizes[i % len(self.sizes)], where):
                    raise Violation(f"{where}: five drives have space, and a PUT is refused")
        together([puts, lambda: write_full(drive)])
        puts()
        self.works_while_full(where, restart)
        self.delete(self.filled()[:4], where)
        os.unlink(drive / "foreign")

    # ---- the end ----
    def end(self):
        where = "at the end"
        self.objects.check(self.c.hosts)
        self.delete([k for k in self.objects.present() if not k.startswith("keep/")], where)
        self.objects.check(self.c.hosts)
        living = [k for k in self.objects.present() if self.objects.bytes[next(iter(self.objects.may[k]))] > 0]
        seen = remains.settled(self.c, without=("heal",))
        everywhere = set()
        for drive, (files, tables) in seen.items():
            named = {f"{k[:16].hex()}.{k[16]}.{v[:8].hex()}" for k, v in tables["blob"].items()}
            there = {f.rsplit("/", 1)[1] for f in files}
            if named != there:
                raise Violation(f"{drive}: records without a file {sorted(named - there)[:5]}, files without a record "
                                f"{sorted(there - named)[:5]}")
            everywhere |= {k[:16] for t in ("blob", "inline") for k in tables[t]}
        if len(everywhere) != len(living):
            raise Violation(f"chunks of {len(everywhere)} objects, where {len(living)} live")
        return len(living)


def run_disks(directory, rng, kinds, cycles):
    c = Cluster(directory / "c", hosts=1, drives_per_host=DRIVES, pool="4+2", settings=SETTINGS % 64)
    with Disks(directory, c.hosts[0].drives), c:
        full = Full(c, rng, SIZES)
        full.start()
        for d in c.hosts[0].drives:
            assert ballast(d, BALLAST_MIB)
        for number in range(cycles):
            began = time.monotonic()
            full.cycle(kinds[number % len(kinds)], number)
            if number % 10 == 0 or cycles < 10:
                say(f"ok: cycle {number} ({kinds[number % len(kinds)]}, {time.monotonic() - began:.1f} s)")
        say(f"ok: {full.end()} objects live at the end, and nothing else")
        assert c.stop() == [0]
        return full


def run_index(directory, rng, cycles):
    c = Cluster(directory / "i", hosts=1, drives_per_host=DRIVES, pool="4+2", settings=SETTINGS % 16)
    with c:
        full = Full(c, rng, INDEX_SIZES)
        full.start()
        for number in range(cycles):
            began = time.monotonic()
            full.cycle("index", number)
            if number % 10 == 0 or cycles < 10:
                say(f"ok: cycle {number} (index, {time.monotonic() - began:.1f} s)")
        say(f"ok: {full.end()} objects live at the end, and nothing else")
        assert c.stop() == [0]
        return full


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", default="", help=f"one of {', '.join(KINDS)}, index")
    parser.add_argument("--cycles", type=int)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the disks are taken down
    started, rng = time.monotonic(), random.Random(arguments.seed)
    say(f"seed {arguments.seed}")
    directory = pathlib.Path(tempfile.mkdtemp(prefix="kofn-full-"))
    cycles = arguments.cycles or (4 if arguments.short else 100)
    done, parts = [], []
    try:
        if arguments.only != "index" and Disks.possible():
            kinds = (arguments.only,) if arguments.only else KINDS
            parts.append(run_disks(directory, rng, kinds, cycles))
        elif arguments.only != "index":
            done.append("no loop devices: the index only")
        if arguments.only in ("", "index"):
            parts.append(run_index(directory, rng, max(1, cycles // 4)))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if not parts:
        print("no loop devices here")
        return SKIP
    done += [f"{kind} {n}" for p in parts for kind, n in p.cycles.items()]
    print("RESULT " + json.dumps({
        "suite": "full_drive", "done": f"{sum(sum(p.cycles.values()) for p in parts)} cycles: {', '.join(done)}; "
                                       f"{sum(p.restarts for p in parts)} restarts while full",
        "found": "none", "seconds": round(time.monotonic() - started),
        "figures": f"{sum(p.objects.acked for p in parts)} writes acknowledged, {sum(p.refused for p in parts)} PUTs with "
                   f"507, {sum(p.unknown for p in parts)} with 503 (outcome unknown), PUT of every size back within {max(p.slowest for p in parts):.1f} s"}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
