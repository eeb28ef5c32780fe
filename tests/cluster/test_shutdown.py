"""test_shutdown.py: SIGTERM lets running requests finish, within server.shutdown_grace, and exits 0; SIGKILL of all hosts
at once, ten times under load, loses nothing that was acknowledged."""
import random
import signal
import socket
import sys
import tempfile
import threading
import time

import remains
from cluster import Cluster
from wire import Closed, Wire, auth_line, eventually, expect, head, running

BUCKET = "down"
MIB = 1 << 20
BIG = random.Random(5).randbytes(64 * MIB)


def ok(text):
    print(f"ok {text}", flush=True)


def accepts(host):
    try:
        socket.create_connection(("127.0.0.1", host.s3_port), timeout=10).close()
        return True
    except OSError:
        return False


def idle(c):
    """SIGTERM and SIGINT of idle hosts, with idle connections open"""
    for sig in (signal.SIGTERM, signal.SIGINT):
        with Wire(c.hosts[0].s3_port) as silent, Wire(c.hosts[0].s3_port) as used:
            used.send(head("GET", f"/{BUCKET}/big", auth_line(c), "Range: bytes=0-9"))
            expect(used.answer(), 206)
            started = time.monotonic()
            statuses = c.stop(sig)
            took = time.monotonic() - started
            assert statuses == [0] * len(c.hosts), statuses
            assert took < 25, f"{took:.1f} s: it waited for the grace of 30 s"
            assert used.is_closed() and silent.is_closed()
        assert all("stopping" in h.log_text() and "stopped" in h.log_text() for h in c.hosts)
        c.start()
        assert expect(c.get(BUCKET, "big"), 200).body == BIG
    ok("idle hosts stop at once on SIGTERM and SIGINT, exit status 0; a restart reads everything")


def slow_pair(c, host, key):
    """A PUT of which half was sent, and a GET of which nothing was read yet."""
    put, get = Wire(host.s3_port, timeout=120), Wire(host.s3_port, timeout=120)
    put.send(head("PUT", f"/{BUCKET}/{key}", auth_line(c), f"Content-Length: {len(BIG)}") + BIG[:len(BIG) // 2])
    get.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    get.send(head("GET", f"/{BUCKET}/big", auth_line(c)))
    while b"\r\n\r\n" not in get.data:
        get.more()
    return put, get


def finishes(c):
    """A slow PUT and a slow GET are finished after SIGTERM; nobody else is let in"""
    host = c.hosts[0]
    put, get = slow_pair(c, host, "finished")
    waiting = Wire(host.s3_port)
    waiting.send(b"GET / HT")  # a head that has begun counts as a request
    time.sleep(0.2)
    host.process.send_signal(signal.SIGTERM)
    eventually("it stops accepting", lambda: not accepts(host))
    assert host.alive(), "it did not wait for what runs"
    put.send(BIG[len(BIG) // 2:])
    a = expect(put.answer(), 200)
    assert a.headers["connection"] == "close" and put.is_closed(), a.headers
    waiting.send(b"TP/1.1\r\nHost: x\r\n" + auth_line(c).encode() + b"\r\n\r\n")
    assert expect(waiting.answer(), 200).headers["connection"] == "close"
    assert host.alive()
    got = expect(get.answer(), 200)
    assert got.body == BIG, f"{len(got.body)} bytes of {len(BIG)}"
    assert get.is_closed()
    assert host.process.wait(60) == 0
    for w in (put, get, waiting):
        w.close()
    assert expect(c.get(BUCKET, "finished", host=1), 200).body == BIG
    host.start()
    c.wait_ready()
    assert expect(c.get(BUCKET, "finished"), 200).body == BIG
    ok("a slow PUT and a slow GET were finished after SIGTERM, new connections were refused, exit status 0")


def grace_over(c):
    """What has not ended when the grace is over is closed; still exit status 0 and nothing half done"""
    before = remains.settled(c)
    host = c.hosts[0]
    assert c.stop() == [0] * len(c.hosts)
    for h in c.hosts:
        h.start({"KOFN_SERVER_SHUTDOWN_GRACE": "1s"})
    c.wait_ready()
    put, get = slow_pair(c, host, "never")
    time.sleep(0.2)
    host.process.send_signal(signal.SIGTERM)
    assert host.process.wait(60) == 0
    assert "shutdown_grace is over" in host.log_text()
    try:
        put.send(b"x")
        a = put.answer()
        raise AssertionError(f"an answer to half a PUT: {a}")
    except Closed:
        pass
    try:
        a = get.answer()
        raise AssertionError(f"a whole GET: {len(a.body)} bytes")
    except Closed:
        pass
    put.close()
    get.close()
    host.start()
    c.wait_ready()
    for h in c.hosts:
        expect(c.get(BUCKET, "never", host=h), 404, "NoSuchKey")
    remains.same_again(c, before, "a PUT that the grace ended")
    ok("when the grace is over connections are closed; exit status 0, the half PUT left nothing")


def in_first_start():
    """SIGTERM while a host waits for the others of its first start"""
    with tempfile.TemporaryDirectory(prefix="kofn-test-") as directory:
        with Cluster(directory, hosts=3, pool="2+1") as c:
            for sig in (signal.SIGTERM, signal.SIGINT):
                marks = [len(h.log_text()) for h in c.hosts[:2]]
                for h in c.hosts[:2]:
                    h.start()
                for h, mark in zip(c.hosts, marks):
                    eventually("it waits", lambda h=h, m=mark: "waiting for n3" in h.log_text()[m:])
                statuses = [h.kill(sig) for h in c.hosts[:2]]
                assert statuses == [0, 0], statuses
                assert not any((h.drives[0] / "drive.id").exists() for h in c.hosts)
            c.start()
            c.make_bucket(BUCKET)
    ok("SIGTERM and SIGINT while a first start waits: exit status 0, and the next start goes on")


class Writers:
    """Threads that write small and large objects through all hosts, and note what was acknowledged."""

    def __init__(self, c, count=4):
        self.c, self.acked, self.maybe, self.lock, self.stop = c, {}, {}, threading.Lock(), False
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(count)]
        for t in self.threads:
            t.start()

    def run(self, number):
        turns, i = random.Random(number), 0
        while not self.stop:
            key = f"w{number}/{i % 40}"  # keys come again: the last acknowledged version counts
            body = turns.randbytes(turns.choice((10, 5000, 40000, 300000)))
            i += 1
            with self.lock:
                self.maybe.setdefault(key, []).append(body)
            try:
                status = self.c.put(BUCKET, key, body, host=turns.randrange(len(self.c.hosts)), timeout=30).status
            except OSError:
                status = 0
            if status == 200:
                with self.lock:  # only this thread writes the key: what came before is over, or is lost in doubt
                    self.acked[key], self.maybe[key] = body, []
            elif status == 0:
                time.sleep(0.02)

    def end(self):
        self.stop = True
        for t in self.threads:
            t.join()

    def check(self):
        """Every key has its last acknowledged version, or one that was sent after it and never answered for certain.
        All hosts must be in sight: a write that missed a drive needs every other one until it is healed."""
        for h in self.c.hosts:
            self.c.wait_sight(h, self.c.hosts)
        for n, (key, body) in enumerate(sorted(self.acked.items())):
            got = expect(self.c.get(BUCKET, key, host=n % len(self.c.hosts)), 200).body
            assert got == body or got in self.maybe[key], f"{key}: neither the acknowledged bytes nor later ones"
        return len(self.acked)


def terminated_under_load(c):
    """SIGTERM of all hosts under load: exit status 0, and what was acknowledged is there"""
    writers = Writers(c)
    eventually("load", lambda: len(writers.acked) > 50)
    statuses = c.stop()
    writers.end()
    assert statuses == [0] * len(c.hosts), statuses
    c.start()
    ok(f"all hosts were stopped under load, exit status 0; {writers.check()} keys are there")


def killed_under_load(c):
    """SIGKILL of all hosts at once, ten times"""
    writers = Writers(c)
    for turn in range(10):
        count = len(writers.acked)
        eventually(f"load, turn {turn}", lambda n=count: len(writers.acked) > min(n + 8, 150))
        time.sleep(random.Random(turn).random() / 2)
        for h in c.hosts:
            h.process.send_signal(signal.SIGKILL)
        for h in c.hosts:
            h.process.wait(60)
        c.start()
    writers.end()
    count = writers.check()
    assert count > 50, count
    for drive, (files, tables) in remains.settled(c).items():
        ids = {f.rsplit("/", 1)[-1].split(".")[0] for f in files}
        named = {key[:16].hex() for key in tables["blob"]}
        assert ids <= named, f"{drive}: chunk files that no record names: {len(ids - named)}"
    ok(f"all hosts were killed ten times under load; {count} keys are there, and no chunk file without a record")


def main():
    in_first_start()
    with running("3 hosts", settings="trash_delay: 100ms") as c:
        c.make_bucket(BUCKET)
        expect(c.put(BUCKET, "big", BIG), 200)
        for check in (idle, finishes, grace_over, terminated_under_load, killed_under_load):
            check(c)
    return 0


if __name__ == "__main__":
    sys.exit(main())
