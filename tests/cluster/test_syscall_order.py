"""The system calls of one PUT, recorded with strace, against PROTOCOL.md 7.

On every drive: the chunk file is written and synced, then its directory is synced, then the transaction that holds the
row is committed (pages written, index synced, meta page written through the descriptor that syncs by itself). Only when
that is done on W drives does the 200 leave for the client. The checker is then shown that it would notice: the recording
with any one of these calls taken out, failed or moved to where it would be too late is refused.
"""
import copy
import hashlib
import http.client
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

import strace
from cluster import free_ports, START_TIMEOUT_S, STOP_TIMEOUT_S

SKIPPED = 77
PAGE_HEADER_BYTES = 16
PAGE_LEAF = 0x02
LAYOUTS = {3: ("2+1", 2), 6: ("4+2", 5)}  # directories -> what `kofn server DIR...` makes of them, W
CHUNK_NAME = re.compile(r"/data/([0-9a-f]{2})/[0-9a-f]{32}\.\d+\.[0-9a-f]{16}$")
WRITES = {"write", "writev", "pwrite64", "pwritev", "pwritev2"}
SYNCS = {"fsync", "fdatasync"}
COMMIT_STEPS = ("row page", "index sync", "meta page")


# ---- what a page of an LMDB index holds ----

def leaf_nodes(page):
    """The values of a leaf page's nodes. What lies between the nodes is old bytes that mean nothing."""
    if len(page) < PAGE_HEADER_BYTES:
        return
    _, _, flags, lower, _ = struct.unpack_from("<QHHHH", page)
    if not flags & PAGE_LEAF or lower > len(page):
        return
    for at in range(PAGE_HEADER_BYTES, lower, 2):
        (node,) = struct.unpack_from("<H", page, at)
        if node + 8 > len(page):
            continue
        low, high, _, key_len = struct.unpack_from("<HHHH", page, node)
        start = node + 8 + key_len
        yield page[start:start + (low | high << 16)]


def holds(event, needle, page_bytes):
    data = event.data()
    pages = (data[i:i + page_bytes] for i in range(0, len(data), page_bytes))
    return any(needle in value for page in pages for value in leaf_nodes(page))


# ---- the checker ----

class Broken(Exception):
    pass


def want(condition, words):
    if not condition:
        raise Broken(words)


def before(a, b):
    return a.end < b.begin


class Put:
    """The calls of one PUT in a recording, by drive."""

    def __init__(self, events, drives, etag, peer, page_bytes):
        self.events, self.drives, self.etag, self.peer = events, drives, etag.encode(), peer
        self.page_bytes = page_bytes
        syncing = {}  # descriptor -> whether it was opened with O_DSYNC
        for e in events:
            if e.call == "openat" and e.ok():
                syncing[e.opened()[0]] = "O_DSYNC" in e.text
            e.is_meta = e.call in WRITES and syncing.get(e.fd()[0], False)

    def reply(self):
        sent = [e for e in self.events if e.call in WRITES | {"sendto", "sendmsg"} and
                f"->{self.peer}]" in e.path() and e.data().startswith(b"HTTP/1.1 200")]
        want(len(sent) == 1, f"{len(sent)} answers with 200 to the client")
        return sent[0]

    def chunk(self, drive):
        """The calls on the drive's chunk file: (created, writes, directory name)."""
        made = [e for e in self.events if e.call == "openat" and "O_CREAT" in e.text and e.ok() and
                e.opened()[1].startswith(f"{drive}/data/")]
        want(len(made) == 1, f"{drive}: {len(made)} chunk files made")
        path = made[0].opened()[1]
        name = CHUNK_NAME.search(path)
        want(name and "O_EXCL" in made[0].text, f"{drive}: {path} is not a chunk file made with O_EXCL")
        writes = [e for e in self.events if e.call in WRITES and e.path() == path]
        want(writes and all(e.ok() for e in writes), f"{drive}: no bytes written to {path}")
        return made[0], writes, path, f"{drive}/data/{name.group(1)}"

    def chunk_durable(self, drive):
        """The directory sync behind which the chunk is on stable storage under its name."""
        made, writes, path, directory = self.chunk(drive)
        syncs = [e for e in self.events if e.call in SYNCS and e.path() == path and e.ok() and
                 all(before(w, e) for w in writes)]
        want(syncs, f"{drive}: the chunk file is not synced after its last byte was written")
        dirs = [e for e in self.events if e.call in SYNCS and e.path() == directory and e.ok() and before(made, e)]
        want(dirs, f"{drive}: the directory is not synced after the file was made in it")
        dirs = [e for e in dirs if before(syncs[0], e)]
        want(dirs, f"{drive}: the directory is synced before the chunk file")
        return syncs[0], dirs[0]

    def transactions(self, drive):
        """The index's transactions: [(pages, sync, meta page)]. Every one is made durable in this order."""
        done, pages, sync = [], [], None
        for e in sorted(self.events, key=lambda e: e.begin):
            if e.path() != f"{drive}/index/data.mdb" or not e.ok() or e.call not in WRITES | SYNCS:
                continue
            if e.is_meta:
                want(sync and before(sync, e), f"{drive}: a meta page is written before the index is synced: {e}")
                done.append((pages, sync, e))
                pages, sync = [], None
            elif e.call in SYNCS:
                want(pages and all(before(p, e) for p in pages), f"{drive}: the index is synced before its pages: {e}")
                sync = e
            else:
                want(not sync, f"{drive}: a page is written between the index's sync and the meta page: {e}")
                pages.append(e)
        want(not pages, f"{drive}: pages are written to the index and no meta page behind them")
        return done

    def row_commit(self, drive, after=None):
        """(the page with the row, the sync of the index, the meta page) of the transaction that brought the row: the
        first one after `after`, or the first one that has it."""
        for pages, sync, meta in self.transactions(drive):
            row = next((p for p in pages if holds(p, self.etag, self.page_bytes)), None)
            early = after and not before(after, pages[0])
            want(not row or not early, f"{drive}: the row is written before the directory is synced")
            if row:
                return row, sync, meta
            want(not after or early, f"{drive}: the first transaction after the directory's sync brings no row")
        raise Broken(f"{drive}: no transaction brings the row")

    def calls(self, drive, with_chunk=True):
        """The calls that make one drive's ack true, in order; raises Broken where the order is not kept."""
        if not with_chunk:
            return dict(zip(COMMIT_STEPS, self.row_commit(drive)))
        chunk, directory = self.chunk_durable(drive)
        commit = zip(COMMIT_STEPS, self.row_commit(drive, directory))
        return {"chunk sync": chunk, "directory sync": directory, **dict(commit)}

    def check(self, w, with_chunk=True):
        reply = self.reply()
        done = [self.calls(drive, with_chunk)["meta page"] for drive in self.drives]
        in_time = sum(before(meta, reply) for meta in done)
        want(in_time >= w, f"the 200 left when {in_time} of {len(done)} drives had committed; W is {w}")
        return in_time


# ---- recordings with one thing wrong ----

def refused(put, w, words, with_chunk=True):
    try:
        put.check(w, with_chunk)
    except Broken as broken:
        return str(broken)
    raise AssertionError(f"the checker accepts the recording with {words}")


def altered(put, event, change):
    """The same recording where `change` was made to one event; None takes it out."""
    other = copy.copy(put)
    other.events = [e for e in put.events if e is not event]
    if change:
        e = copy.copy(event)
        change(e)
        other.events.append(e)
    return other


def move_to(begin, end):
    def change(e):
        e.begin, e.end = begin, end
    return change


def fail(e):
    e.result = "-1 EIO"


def show_that_it_notices(put, w, with_chunk=True):
    """Takes out, fails and moves every call that matters; how many wrong recordings were refused."""
    reply, count = put.reply(), 0
    refused(altered(put, reply, None), w, "the answer taken out", with_chunk)
    drives = {d: put.calls(d, with_chunk) for d in put.drives}
    for drive, calls in drives.items():
        steps = list(calls.items())
        for i, (name, event) in enumerate(steps):
            if name == "row page" and not with_chunk:
                continue  # the transaction that sets the C flag writes that page again: nothing tells them apart
            for words, change in (("taken out", None), ("failed", fail)):
                refused(altered(put, event, change), w, f"{name} of {drive} {words}", with_chunk)
                count += 1
            for next_name, relies in steps[i + 1:]:
                late = relies.end + 0.5
                words = f"{name} of {drive} after its {next_name}"
                refused(altered(put, event, move_to(late, late)), w, words, with_chunk)
                count += 1
    metas = sorted((calls["meta page"] for calls in drives.values()), key=lambda e: e.end)
    early = metas[w - 1].end - 0.5
    words = refused(altered(put, reply, move_to(early, early)), w, "the answer before W drives", with_chunk)
    assert f"{w - 1} of {len(metas)} drives" in words, words
    return count + 2


# ---- one host on directories ----

def wait_serving(port, process, log):
    end = time.monotonic() + START_TIMEOUT_S
    while True:
        assert process.poll() is None, log.read_text(errors="replace")
        try:
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            c.request("GET", "/health/ready?for=write")
            if c.getresponse().status == 200:
                return
        except OSError:
            pass
        finally:
            c.close()
        assert time.monotonic() < end, f"not serving:\n{log.read_text(errors='replace')}"
        time.sleep(0.1)


def put_once(port, path, body):
    """PUTs over a connection of its own: (status, our end of the connection as strace prints it)."""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        c.connect()
        ours = "%s:%d" % c.sock.getsockname()
        c.request("PUT", path, body)
        r = c.getresponse()
        return r.status, ours, r.read()
    finally:
        c.close()


def stop(process, log):
    """Ends the host; strace follows it to its end."""
    hosts = [int(p) for p in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    for pid in hosts:
        os.kill(pid, signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        for pid in hosts:
            os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()
        raise AssertionError(f"host {hosts} did not stop:\n{log.read_text(errors='replace')}") from None


def record(work, drives, key, data):
    """Runs a host on `drives` under strace, PUTs, ends it: the events, and our end of the PUT's connection."""
    s3, admin = free_ports(2)
    trace, log = work / "trace", work / "log"
    env = {k: v for k, v in os.environ.items() if not k.startswith("KOFN_")}
    env |= {"KOFN_SERVER_STATE_DIR": str(work / "state"), "KOFN_SERVER_ANONYMOUS": "true",
            "KOFN_SERVER_S3_LISTEN": f"127.0.0.1:{s3}", "KOFN_SERVER_ADMIN_LISTEN": f"127.0.0.1:{admin}",
            "KOFN_DRIVE_RESERVE_BYTES": "64MiB", "KOFN_DRIVE_INDEX_MAP_BYTES": "256MiB"}
    args = strace.command(trace, [os.environ["KOFN_BIN"], "server", *map(str, drives)])
    with open(log, "wb") as out:
        process = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env)
    try:
        wait_serving(admin, process, log)
        status, _, body = put_once(s3, "/bucket", b"")
        assert status == 200, (status, body)
        status, ours, body = put_once(s3, f"/bucket/{key}", data)
        assert status == 200, (key, status, body)
    finally:
        stop(process, log)
    return strace.parse(trace.read_text(encoding="latin-1")), ours


def one_put(base, count, size, large):
    pool, w = LAYOUTS[count]
    work = base / f"{count}-{size}"
    drives = [work / f"d{i + 1}" for i in range(count)]
    for d in drives:
        d.mkdir(parents=True)
    data = random.Random(size).randbytes(size)
    events, ours = record(work, drives, f"{size}-bytes", data)
    put = Put(events, drives, hashlib.md5(data).hexdigest(), ours, os.sysconf("SC_PAGESIZE"))
    in_time = put.check(w, large)
    what = "chunk sync, directory sync, row" if large else "row with its chunk"
    print(f"{pool}, {size} bytes: {what} and index sync on {in_time} of {count} drives, then the 200")
    wrong = show_that_it_notices(put, w, large)
    print(f"{pool}, {size} bytes: {wrong} recordings with one call taken out, failed or moved are refused")
    if not large:
        made = [e for e in events if e.call == "openat" and "O_CREAT" in e.text and CHUNK_NAME.search(e.opened()[1])]
        assert not made, f"an object whose chunks stand in the index made files: {made}"
        print(f"{pool}, {size} bytes: no file is made")


def main():
    why = strace.why_not()
    if why:
        print(f"SKIPPED: {why}; the order of a PUT's system calls was NOT checked")
        return SKIPPED
    base = pathlib.Path(tempfile.mkdtemp(prefix="kofn-syscalls."))
    try:
        for count in LAYOUTS:
            one_put(base.resolve(), count, 1_000_001, large=True)
            one_put(base.resolve(), count, 999, large=False)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
