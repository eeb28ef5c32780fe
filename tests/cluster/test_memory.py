"""test_memory.py: memory stays where it was put: 64 slow PUTs and 64 slow GETs of 1 GiB each, hundreds of idle
connections, and connections_max.

What counts is RssAnon + RssShmem of each host: memory of its own. Pages of the index that the kernel maps come and go.
"""
import random
import selectors
import signal
import socket
import sys
import time

import remains
from wire import Closed, Wire, auth_line, eventually, expect, head, running

BUCKET = "memory"
MIB, GIB = 1 << 20, 1 << 30
BUFFERS = 96 * MIB
ABOVE = 64 * MIB
STREAMS = 64
RATE = MIB  # bytes a second of each stream
SECONDS = 25
PIECE = random.Random(3).randbytes(MIB // 4)


def ok(text):
    print(f"ok {text}", flush=True)


def own_memory(host):
    total = 0
    with open(f"/proc/{host.pid}/status", encoding="ascii") as f:
        for line in f:
            if line.startswith(("RssAnon:", "RssShmem:")):
                total += int(line.split()[1]) << 10
    return total


def mib(values):
    return ", ".join(f"{v / MIB:.0f}" for v in values)


class Stream:
    """A connection that moves RATE bytes a second, in pieces of a quarter of that."""

    def __init__(self, cluster, host, key, put):
        self.put, self.moved, self.first = put, 0, b""
        self.sock = socket.create_connection(("127.0.0.1", host.s3_port), timeout=60)
        if not put:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        lines = [f"Content-Length: {GIB}"] if put else []
        self.sock.sendall(head("PUT" if put else "GET", f"/{BUCKET}/{key}", auth_line(cluster), *lines))
        self.sock.setblocking(False)

    def turn(self, allowed):
        """Moves what is allowed by now; what it moved."""
        before = self.moved
        while self.moved < allowed:
            want = min(len(PIECE), allowed - self.moved)
            try:
                if self.put:
                    self.moved += self.sock.send(PIECE[:want])
                    continue
                got = self.sock.recv(want)
            except BlockingIOError:
                break
            assert got, "the answer ended early"
            if len(self.first) < 300:
                self.first += got[:300]
                assert self.first.startswith(b"HTTP/1.1 200"[:len(self.first)]), self.first
            self.moved += len(got)
        return self.moved - before


def run_streams(cluster, streams, most):
    """SECONDS of all streams; `most` becomes the largest memory seen, host by host."""
    wake = selectors.DefaultSelector()
    for s in streams:
        if s.put:  # an answer in mid-body would be a refusal
            wake.register(s.sock, selectors.EVENT_READ, s)
    started = last = time.monotonic()
    while (now := time.monotonic()) - started < SECONDS:
        moved = sum(s.turn(int((now - started) * RATE) + 1) for s in streams)
        for key, _ in wake.select(0 if moved else 0.02):
            raise AssertionError(f"an answer to half a PUT: {key.fileobj.recv(500)!r}")
        if now - last > 0.2:
            last = now
            for i, h in enumerate(cluster.hosts):
                assert h.alive(), h.log_text()[-2000:]
                most[i] = max(most[i], own_memory(h))
    wake.close()


def make_source(c):
    """One object of 1 GiB."""
    with Wire(c.hosts[0].s3_port, timeout=300) as w:
        w.send(head("PUT", f"/{BUCKET}/source", auth_line(c), f"Content-Length: {GIB}"))
        for _ in range(GIB // len(PIECE)):
            w.send(PIECE)
        expect(w.answer(), 200)


def slow_streams(c):
    """64 PUTs and 64 GETs at once, over all hosts"""
    before = remains.settled(c)
    idle = [own_memory(h) for h in c.hosts]
    most = list(idle)
    streams = []
    for i in range(STREAMS):
        host = c.hosts[i % len(c.hosts)]
        streams += [Stream(c, host, f"put-{i}", True), Stream(c, host, "source", False)]
    run_streams(c, streams, most)
    got = sorted(s.moved for s in streams if not s.put)
    sent = sorted(s.moved for s in streams if s.put)
    for h in c.hosts:
        metrics = h.request_admin("GET", "/metrics")[1].decode()
        used = int(next(x for x in metrics.splitlines() if x.startswith("kofn_buffer_bytes ")).split()[1])
        assert used <= BUFFERS, f"{h.id}: {used} bytes of stripe buffers, more than {BUFFERS}"
    for s in streams:
        s.sock.close()
    assert min(got) > 0 and min(sent) > 0, (got[:5], sent[:5])
    limit = BUFFERS + ABOVE
    assert max(most) <= limit, f"own memory of the hosts in MiB: {mib(most)}, allowed {limit // MIB}"
    remains.same_again(c, before, "64 PUTs that were broken off", timeout=60)
    ok(f"{STREAMS} PUTs (median {sent[len(sent) // 2] // MIB} MiB) and {STREAMS} GETs (median {got[len(got) // 2] // MIB} MiB) "
       f"in {SECONDS} s: at most {mib(most)} MiB of memory, idle {mib(idle)} MiB, allowed {limit // MIB}; no stage is left")


def given_back(c):
    """Buffers are given back when nobody wants them"""
    last = []

    def small():
        last[:] = [own_memory(h) for h in c.hosts]
        return max(last) <= ABOVE
    eventually("memory is given back", small, 120)
    ok(f"idle again: {mib(last)} MiB")


def idle_connections(c):
    """500 idle connections cost little, and nobody is shut out"""
    host = c.hosts[0]
    before = own_memory(host)
    with_head = head("GET", f"/{BUCKET}/small", auth_line(c))
    wires = []
    for i in range(500):
        w = Wire(host.s3_port)
        if i % 3 == 1:
            w.send(with_head)
            assert expect(w.answer(), 200).body == b"small"
        elif i % 3 == 2:
            w.send(with_head[:40])  # a head that does not go on
        wires.append(w)
    grown = own_memory(host) - before
    assert expect(c.get(BUCKET, "small"), 200).body == b"small"
    assert grown < 16 * MIB, f"500 idle connections take {grown / MIB:.1f} MiB"
    for w in wires[2::3]:
        w.send(with_head[40:])
        assert expect(w.answer(), 200).body == b"small"
    for w in wires:
        w.close()
    ok(f"500 idle connections take {grown / MIB:.1f} MiB")


def too_many_connections(c):
    """Beyond connections_max: 503 SlowDown or a closed connection; below it again: served"""
    host = c.hosts[0]
    host.kill(signal.SIGTERM)
    host.start({"KOFN_SERVER_CONNECTIONS_MAX": "40"})
    c.wait_ready()
    wires, served, refused = [], 0, 0
    for _ in range(300):
        try:
            w = Wire(host.s3_port)
            wires.append(w)
            w.send(head("GET", f"/{BUCKET}/small", auth_line(c)))
            status = w.answer().status
        except (Closed, ConnectionResetError):
            status = 0
        assert status in (0, 200, 503), status
        served += status == 200
        refused += status != 200
    assert 10 <= served <= 40, f"{served} of 300 connections are served, connections_max is 40"
    for w in wires:
        w.close()

    def serves():
        try:
            return c.get(BUCKET, "small").status == 200
        except OSError:
            return False
    eventually("it serves again", serves)
    host.kill(signal.SIGTERM)
    host.start()
    c.wait_ready()
    ok(f"connections_max 40: {served} of 300 connections are served, {refused} are refused")


def main():
    with running("3 hosts", server=f"buffer_bytes: {BUFFERS // MIB}MiB") as c:
        c.make_bucket(BUCKET)
        expect(c.put(BUCKET, "small", b"small"), 200)
        print(f"   memory of fresh hosts: {mib(own_memory(h) for h in c.hosts)} MiB", flush=True)
        idle_connections(c)
        too_many_connections(c)
        make_source(c)
        slow_streams(c)
        given_back(c)
    return 0


if __name__ == "__main__":
    sys.exit(main())
