"""Hosts die while a GET streams.

The client reads slowly, with a small receive buffer, so that the gateway is never far ahead. The hosts of data chunks are
killed, or stopped, between 5 and 50 per cent received: with m of them gone every byte still comes, and is right. With m + 1
gone the connection is reset: what came before is right, and the answer never ends as if it were whole.
KOFN_TEST_MID_GET_MIB sets the size of the object.
"""
import os
import pathlib
import random
import shutil
import signal
import socket
import sys
import tempfile
import time

from cluster import Cluster

BUCKET, KEY = "stream", "large"
MIB = 1 << 20
SIZE = int(os.environ.get("KOFN_TEST_MID_GET_MIB", "256")) * MIB
RATE = 64 * MIB  # bytes a second that the client takes
RECEIVE_BUFFER = 256 * 1024
TIMEOUT_S = 120


class Reset(Exception):
    """The connection was reset after so many right bytes."""


class CleanEnd(Exception):
    """The connection ended as if the answer were whole, and it was not."""


def get_slowly(cluster, host, body, events):
    """GETs through `host`, compares as it comes; events: [(share received, action)]. Returns the bytes received."""
    s = socket.socket()
    s.settimeout(TIMEOUT_S)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    s.connect(("127.0.0.1", host.s3_port))
    try:
        s.sendall(f"GET /{BUCKET}/{KEY} HTTP/1.1\r\nHost: x\r\nAuthorization: {cluster.auth()['Authorization']}\r\n\r\n"
                  .encode())
        head = b""
        while b"\r\n\r\n" not in head:
            got = s.recv(4096)
            assert got, f"no answer: {head!r}"
            head += got
        head, _, first = head.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        assert f"content-length: {len(body)}".encode() in head.lower(), head
        return receive(s, body, first, list(events))
    finally:
        s.close()


def receive(s, body, got, events):
    at, started, view = 0, time.monotonic(), memoryview(body)
    while True:
        assert got == view[at:at + len(got)], f"wrong bytes between {at} and {at + len(got)} of {len(body)}"
        at += len(got)
        if at == len(body):
            assert not events, f"all bytes came before {events}"
            return at
        while events and at >= events[0][0] * len(body):
            share, act = events.pop(0)
            assert at <= 0.5 * len(body), f"{at} bytes came before the event at {share}"
            act()
            started += max(0, time.monotonic() - started - at / RATE)  # what acting took is not owed
        ahead = at / RATE - (time.monotonic() - started)
        if ahead > 0:
            time.sleep(ahead)
        try:
            got = s.recv(64 * 1024)
        except ConnectionResetError:
            raise Reset(at) from None
        if not got:
            raise CleanEnd(at)


class Stage:
    """A cluster with one large object, a gateway that stays, and who holds which slot."""

    def __init__(self, cluster, k, m, body):
        self.c, self.k, self.m, self.body = cluster, k, m, body
        cluster.start()
        cluster.make_bucket(BUCKET)
        by_id = {h.id: h for h in cluster.hosts}
        self.slots = [by_id[s["drive"].split("/")[0]] for s in cluster.put_whole(BUCKET, KEY, body, timeout=TIMEOUT_S)]
        self.gateway = self.slots[k]  # it holds the first parity chunk, so every data chunk may go
        self.others = [h for h in self.slots[:k]] + [h for h in self.slots[k + 1:]]

    def gone(self, what, hosts, shares, sig):
        """One GET during which `hosts` get `sig`, each at its share of the bytes."""
        events = [(share, lambda h=h: h.kill(sig)) for h, share in zip(hosts, shares)]
        try:
            count = get_slowly(self.c, self.gateway, self.body, events)
        except (Reset, CleanEnd) as e:
            raise AssertionError(f"{self.c.pool}, {what}: {type(e).__name__} after {e} of {len(self.body)} bytes") from e
        words = ", ".join(f"{h.id} at {share:.0%}" for h, share in zip(hosts, shares)) or "nobody away"
        print(f"{self.c.pool}, {what} ({words}): all {count} bytes are right")

    def back(self, hosts):
        for h in hosts:
            if h.alive():
                h.kill(signal.SIGCONT)
            else:
                h.start()
        self.c.wait_ready(hosts)
        self.c.wait_sight(self.gateway, hosts)

    def too_many(self):
        hosts = self.others[:self.m + 1]
        shares = [0.1 + 0.1 * i for i in range(len(hosts))]
        events = [(share, h.kill) for h, share in zip(hosts, shares)]
        try:
            count = get_slowly(self.c, self.gateway, self.body, events)
        except Reset as e:
            least = int(shares[-1] * len(self.body))
            assert int(str(e)) >= least, f"reset at {e}, before the last host was killed at {least}"
            print(f"{self.c.pool}, {len(hosts)} hosts killed: reset after {e} right bytes of {len(self.body)}")
        except CleanEnd as e:
            raise AssertionError(f"a clean end after {e} of {len(self.body)} bytes") from e
        else:
            raise AssertionError(f"{count} bytes came with {len(hosts)} of {self.k + self.m} hosts dead")
        a = self.c.get(BUCKET, KEY, host=self.gateway)
        assert a.status == 503, f"GET with {len(hosts)} hosts dead: {a}"
        print(f"{self.c.pool}, {len(hosts)} hosts dead: the next GET gets 503")
        self.back(hosts)


def run(base, pool, k, m, size):
    numbers = random.Random(size)
    body = b"".join(numbers.randbytes(MIB) for _ in range(size // MIB))
    with Cluster(base / pool.replace(":", "-"), hosts=k + m, pool=pool) as c:
        stage = Stage(c, k, m, body)
        data = stage.slots[:k]
        apart = [0.06 + 0.4 * i / m for i in range(m)]
        stage.gone("data hosts killed", data[:m], apart, signal.SIGKILL)
        stage.back(data[:m])
        stage.gone("data hosts killed at once", data[-m:], [0.2] * m, signal.SIGKILL)
        stage.back(data[-m:])
        stage.gone("data hosts stopped", data[:m], apart, signal.SIGSTOP)
        stage.back(data[:m])
        stage.too_many()
        stage.gone("all hosts back", [], [], None)


def main():
    base = pathlib.Path(tempfile.mkdtemp(prefix="kofn-midget."))
    try:
        run(base, "4+2", 4, 2, SIZE)
        run(base, "2+1:xor", 2, 1, SIZE // 4)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
