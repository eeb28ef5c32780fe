"""A gateway that dies after exactly n drives have accepted: rows C1 to C4 of PROTOCOL.md 8.

Seven hosts with one drive each, so that a key's six drives can all lie on other hosts than its gateway. The gateway runs
with KOFN_TEST_STOP_AFTER_ACCEPTS=n, is killed once n drives hold the row, and nobody ever answers its client. What the
key holds then is decided by counting: s drives in sight with the row, r drives in sight, W.

    s >= W                  chosen: the new value
    s + (N - r) >= W        may be chosen: rolled forward, the new value
    else                    cannot be chosen: the old value, or none

The first to ask is a GET, a HEAD, a list or a conditional PUT, each on keys of its own, with all six drives up, with one
down that has no row, and with one down that has it. Afterwards every other gateway must say the same, with the drive
back and once the undecided rows are gone too. The new value never goes away again. One thing may differ on a slow
machine: a drive that does not answer in time counts as down, and a row that k drives hold can then still be rolled forward
after a GET said old, until it is discarded. Nobody was told of that PUT, so this is right; it is counted.
"""
import hashlib
import os
import pathlib
import random
import shutil
import socket
import sys
import tempfile
import time
import xml.etree.ElementTree as ET

from cluster import Cluster

BUCKET = "crash"
N = 6
WAIT_S = 60
ATTEMPTS = 3
SMALL, LARGE = 700, 200_000  # chunks in the index, chunks in files
FIRST = (("GET", SMALL), ("GET", LARGE), ("HEAD", LARGE), ("LIST", SMALL), ("IF-MATCH", LARGE), ("IF-NONE-MATCH", SMALL))
UP, NO_ROW, ROW = "all six up", "one down without the row", "one down with the row"


def until(what, condition):
    end = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < end, f"not after {WAIT_S} s: {what}"
        time.sleep(0.03)
    return found


def etag(body):
    return f'"{hashlib.md5(body).hexdigest()}"'


class Key:
    """A key with what it held, what the dead gateway wrote, and what a conditional PUT writes now."""

    def __init__(self, name, slots, first, size, numbers):
        self.name, self.slots, self.first = name, slots, first
        self.old = None if first == "IF-NONE-MATCH" else numbers.randbytes(size + 1)
        self.new, self.third = numbers.randbytes(size), numbers.randbytes(size + 2)
        self.holds = self.old
        self.open = False  # the new value may still come to light

    def words(self, body):
        for name in ("old", "new", "third"):
            if getattr(self, name) == body:
                return name if body is not None else "nothing"
        return f"{len(body)} strange bytes"


class Crash:
    def __init__(self, cluster, k, w):
        self.c, self.k, self.w = cluster, k, w
        self.gateway, self.victim = cluster.hosts[6], cluster.hosts[0]
        self.readers = cluster.hosts[1:6]
        self.numbers = random.Random(w)
        self.named = self.surfaced = 0

    # ---- keys that lie where a scenario needs them ----
    def slots(self, name):
        where = self.readers[0].admin_json(f"/admin/v1/where?bucket={BUCKET}&key={name}")
        return where["slots"]

    def key(self, first, size, fits):
        while True:
            self.named += 1
            name = f"k{self.named:05}"
            slots = [s["drive"].split("/")[0] for s in self.slots(name)]
            if self.gateway.id not in slots and fits(slots):
                return Key(name, slots, first, size, self.numbers)

    def rows_of(self, key):
        """Slots whose drive has the dead gateway's row."""
        return [s["slot"] for s in self.slots(key.name) if any(r["size"] == len(key.new) for r in s.get("rows", ()))]

    # ---- the PUT that nobody finishes ----
    def put_unfinished(self, key):
        s = socket.create_connection(("127.0.0.1", self.gateway.s3_port), timeout=WAIT_S)
        head = f"PUT /{BUCKET}/{key.name} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(key.new)}\r\n"
        head += f"Authorization: {self.c.auth()['Authorization']}\r\n\r\n"
        s.sendall(head.encode() + key.new)
        return s

    # ---- what the cluster says ----
    def ask(self, host, method, key, body=None, headers=None):
        """An answer that is not 503 or 409, which say: not now."""
        return until(f"{method} of {key.name} at {host.id}", lambda: self.ask_once(host, method, key, body, headers))

    def ask_once(self, host, method, key, body, headers):
        a = self.c.request(method, f"/{BUCKET}/{key.name}", body, headers, host=host)
        return None if a.status in (503, 409) else a

    def get(self, host, key):
        a = self.ask(host, "GET", key)
        assert a.status in (200, 404), (key.name, a)
        return a.body if a.status == 200 else None

    def head(self, host, key):
        a = self.ask(host, "HEAD", key)
        assert a.status in (200, 404), (key.name, a)
        return None if a.status == 404 else self.known(key, a.headers["ETag"], a.headers["Content-Length"])

    def list(self, host, key):
        def page():
            a = self.c.request("GET", f"/{BUCKET}?list-type=2&prefix={key.name}", host=host)
            return None if a.status == 503 else a
        a = until(f"a list with {key.name} at {host.id}", page)
        assert a.status == 200, a
        found = [{e.tag.rpartition("}")[2]: e.text for e in item} for item in ET.fromstring(a.body)
                 if item.tag.endswith("Contents")]
        assert len(found) <= 1 and all(f["Key"] == key.name for f in found), a
        return self.known(key, found[0]["ETag"], found[0]["Size"]) if found else None

    def known(self, key, tag, size):
        for body in (key.old, key.new, key.third):
            if body is not None and etag(body) == tag and str(len(body)) == size:
                return body
        raise AssertionError(f"{key.name}: ETag {tag}, {size} bytes is nothing that was ever written")

    def put_if(self, host, key):
        """A PUT that wants the old value to stand; what the key holds by its answer."""
        headers = {"If-None-Match": "*"} if key.old is None else {"If-Match": etag(key.old)}
        a = self.ask(host, "PUT", key, key.third, headers)
        if a.status == 200:
            return key.third
        assert a.status == 412, (key.name, a)
        held = self.get(host, key)  # a 503 before it may have been a success: then the third value stands
        assert held != key.old, f"{key.name}: 412 to {headers}, and the old value stands"
        return held

    def first_answer(self, host, key):
        return {"GET": self.get, "HEAD": self.head, "LIST": self.list, "IF-MATCH": self.put_if,
                "IF-NONE-MATCH": self.put_if}[key.first](host, key)

    def agree(self, hosts, key, when):
        for host in hosts:
            for what in (self.get, self.head, self.list):
                held = what(host, key)
                if key.open and key.holds == key.old and held == key.new:
                    key.holds = held
                    self.surfaced += 1
                assert held == key.holds, (f"{key.name} {when}: {what.__name__} at {host.id} says {key.words(held)}, "
                                           f"it was {key.words(key.holds)}")

    # ---- one scenario ----
    def want(self, n, down):
        s, r = n - (down == ROW), N - (down != UP)
        return s >= self.w or s + N - r >= self.w

    def run(self, n, down):
        fits = {UP: lambda slots: True, NO_ROW: lambda slots: self.victim.id in slots,
                ROW: lambda slots: self.victim.id in slots[:n]}[down]
        keys = [self.key(first, size, fits) for first, size in FIRST]
        for key in keys:
            if key.old is not None:
                a = self.c.put(BUCKET, key.name, key.old, host=self.readers[0])
                assert a.status == 200, a
        self.gateway.start({"KOFN_TEST_STOP_AFTER_ACCEPTS": str(n)})
        self.c.wait_ready([self.gateway])
        self.c.wait_sight(self.gateway, self.c.hosts[:6])
        if down == NO_ROW:
            self.victim.kill()
            self.c.wait_sight(self.gateway, [self.victim], up=False)
        clients = [self.put_unfinished(key) for key in keys]
        for key in keys:
            until(f"{n} drives with the row of {key.name}", lambda: len(self.rows_of(key)) >= n)
        self.gateway.kill()
        for key, client in zip(keys, clients):
            rows = self.rows_of(key)
            assert len(rows) == n, f"{key.name}: rows on slots {rows}, not on {n}"
            try:
                answer = client.recv(1000)
            except ConnectionResetError:
                answer = b""
            client.close()
            assert answer == b"", f"{key.name}: the client was told {answer[:60]!r}"
        if down == ROW:
            self.victim.kill()
        surprises = self.first_round(keys, n, down)
        for key in keys:
            self.agree(self.readers, key, f"after n = {n}, {down}")
        if down != UP:
            self.victim.start()
            self.c.wait_ready([self.victim])
            self.c.wait_sight(self.readers[1], self.c.hosts[:6])
            for key in keys:
                self.agree([self.readers[1], self.victim], key, f"with the drive back, n = {n}, {down}")
        return keys, surprises

    def first_round(self, keys, n, down):
        """Each key's first answer. Where a drive is too slow to be counted, rolling forward is right too: the number of
        keys for which that happened."""
        new, surprises = self.want(n, down), 0
        for i, key in enumerate(keys):
            host = self.readers[i % len(self.readers)]
            held = self.first_answer(host, key)
            writes = key.first.startswith("IF-")
            right = key.new if new else key.third if writes else key.old
            if held != right:
                slow = not new and n >= self.k and held == key.new
                assert slow, (f"n = {n}, {down}: {key.first} of {key.name} at {host.id} says {key.words(held)}, "
                              f"not {key.words(right)}\n{self.slots(key.name)}")
                surprises += 1
            key.holds = held
            key.open = n >= self.k and held == key.old
        return surprises

    def scenario(self, n, down):
        kept = []
        for _ in range(ATTEMPTS):
            keys, surprises = self.run(n, down)
            kept += keys
            if not surprises:
                break
            print(f"note: {surprises} keys were rolled forward because a drive was slow; again")
        assert not surprises, f"n = {n}, {down}: rolled forward {ATTEMPTS} times though all drives answered"
        row = "C1" if n < self.k else "C2" if n < self.w else "C3 and C4"
        print(f"{self.c.pool}, {row}: {n} of W = {self.w} accepted, {down}: GET, HEAD, list, If-Match and "
              f"If-None-Match say {'new' if self.want(n, down) else 'old'}, from every gateway")
        return kept


def undecided(cluster):
    count = 0
    for host in cluster.hosts:
        for h in host.admin_json("/admin/v1/status")["hosts"]:
            count += sum(d.get("undecided", 0) for d in h["drives"])
    return count


def one_pool(base, pool, k, w):
    with Cluster(base / pool, hosts=7, pool=pool, binary=os.environ["KOFN_SWITCHES_BIN"]) as c:
        c.start()
        c.make_bucket(BUCKET)
        crash = Crash(c, k, w)
        crash.gateway.kill()
        keys = []
        for n in sorted({1, k, w - 1, w}):
            for down in (UP, NO_ROW, ROW):
                keys += crash.scenario(n, down)
        crash.gateway.start()
        c.wait_ready()
        for host in c.hosts:
            c.wait_sight(host, c.hosts)
        until("no row is undecided any more", lambda: undecided(c) == 0)
        opened = sum(key.open for key in keys)
        for i, key in enumerate(keys):
            crash.agree([c.hosts[i % 7]], key, "once everything is decided")
            key.open = False
        assert crash.surfaced < opened, f"all {opened} rows that could not be chosen came to light later: none goes back"
        for host in crash.readers[:N - w]:  # as many as a reader can do without, and writes are refused
            host.kill()
        for key in keys:
            crash.agree([crash.gateway], key, f"with {N - w} other drives down")
        print(f"{pool}: {len(keys)} keys hold what they held, once decided, and with other drives down "
              f"({crash.surfaced} of {opened} undecided rows were rolled forward in between)")


def main():
    base = pathlib.Path(tempfile.mkdtemp(prefix="kofn-crash."))
    try:
        one_pool(base, "4+2", 4, 5)
        one_pool(base, "2+4", 2, 4)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
