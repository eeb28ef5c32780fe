"""Hosts that hang: stopped, not dead, so that their connections stand and nothing answers.

A dead host refuses at once; one that hangs must be found out. With N - W of them everything works; with one more, reads
still do, and a PUT gets 503 and never a 200, because W drives have not acknowledged it. What such a PUT leaves is one
outcome, the same from every gateway, once they go on.
"""
import hashlib
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time

from cluster import Cluster

BUCKET = "hung"
WAIT_S = 60
SIZES = [0, 100, 200_000, 3_000_000]


def until(what, ask, wanted):
    end = time.monotonic() + WAIT_S
    while (a := ask()).status != wanted:
        assert a.status == 503 and time.monotonic() < end, f"{what}: {a}"
        time.sleep(0.05)
    return a


class Hung:
    def __init__(self, cluster):
        self.c, self.numbers, self.objects = cluster, random.Random(3), {}

    def put(self, key, size, host):
        body = self.numbers.randbytes(size)
        until(f"PUT {key}", lambda: self.c.put(BUCKET, key, body, host=host), 200)
        self.objects[key] = body

    def check(self, hosts, when):
        for i, (key, body) in enumerate(self.objects.items()):
            host = hosts[i % len(hosts)]
            a = until(f"{when}: GET {key} at {host.id}", lambda: self.c.get(BUCKET, key, host=host), 200)
            assert a.body == body, f"{when}: {key} at {host.id} is wrong, {len(a.body)} bytes of {len(body)}"
            a = until(f"{when}: HEAD {key}", lambda: self.c.head(BUCKET, key, host=host), 200)
            assert a.headers["ETag"] == f'"{hashlib.md5(body).hexdigest()}"', f"{when}: HEAD of {key}: {a.headers}"
        for host in hosts:
            a = until(f"{when}: list at {host.id}", lambda: self.c.request("GET", f"/{BUCKET}?list-type=2", host=host), 200)
            assert a.body.count(b"<Key>") == len(self.objects), f"{when}: {a}"

    def stop(self, hosts):
        for h in hosts:
            h.kill(signal.SIGSTOP)

    def go_on(self, hosts):
        for h in hosts:
            h.kill(signal.SIGCONT)
        for h in self.c.hosts:
            self.c.wait_sight(h, self.c.hosts)

    def one(self):
        """N - W hang: reads and writes go on."""
        for hung in (self.c.hosts[0], self.c.hosts[5]):
            self.stop([hung])
            others = [h for h in self.c.hosts if h is not hung]
            for i, size in enumerate(SIZES):
                self.put(f"size{size}", size, others[i])
                self.put(f"{hung.id}/size{size}", size, others[-1 - i])
            self.check(others, f"{hung.id} hangs")
            self.go_on([hung])
            self.check(self.c.hosts, f"{hung.id} goes on")
            print(f"{hung.id} hangs: {2 * len(SIZES)} PUTs get 200, everything is read; and when it goes on")

    def two(self):
        """One more hangs than a write survives."""
        hung, others = self.c.hosts[1:3], [h for h in self.c.hosts if h not in self.c.hosts[1:3]]
        for key, body in self.objects.items():
            self.c.put_whole(BUCKET, key, body)  # what was written while one hung has no chunk to spare for two
        self.stop(hung)
        self.check(others, "two hang")
        new = {}
        for i, key in enumerate(list(self.objects)[:6]):
            new[key] = self.numbers.randbytes(SIZES[i % len(SIZES)] + 1)
            a = self.c.put(BUCKET, key, new[key], host=others[i % len(others)], timeout=WAIT_S)
            assert a.status == 503 and a.headers["Retry-After"], f"PUT of {key} with two of six hanging: {a}"
        print(f"two of six hang: everything is read, {len(new)} PUTs get 503 with Retry-After")
        self.go_on(hung)
        for key, body in new.items():
            a = until(f"GET {key}", lambda: self.c.get(BUCKET, key), 200)
            assert a.body in (self.objects[key], body), f"{key}: {len(a.body)} bytes that nobody wrote"
        self.settle(new)
        self.check(self.c.hosts, "all go on")
        print("they go on: each such key has one of its two values, the same from every host")

    def settle(self, new):
        """A row that some drives accepted is decided within seconds; until then the old value may still give way once."""
        end = time.monotonic() + WAIT_S
        while sum(d.get("undecided", 0) for h in self.c.hosts
                  for x in h.admin_json("/admin/v1/status")["hosts"] for d in x["drives"]):
            assert time.monotonic() < end, "rows stay undecided"
            time.sleep(0.1)
        for key, body in new.items():
            a = until(f"GET {key}", lambda: self.c.get(BUCKET, key), 200)
            assert a.body in (self.objects[key], body), f"{key}: {len(a.body)} bytes that nobody wrote"
            self.objects[key] = a.body


def main():
    base = pathlib.Path(tempfile.mkdtemp(prefix="kofn-hung."))
    try:
        with Cluster(base, hosts=6, pool="4+2", server="peer_timeout: 3s") as c:
            c.start()
            c.make_bucket(BUCKET)
            hung = Hung(c)
            hung.one()
            hung.two()
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
