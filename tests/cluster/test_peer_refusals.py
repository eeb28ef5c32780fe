"""test_peer_refusals.py: hosts that are not of this cluster, or not any more: refused, with a line in the log of both ends
that says how they differ; garbage on the peer port ends its own connection and nothing else."""
import os
import random
import shutil
import signal
import socket
import struct
import sys

import remains
from wire import eventually, expect, running

BODY = b"b" * 3_000_000
HELLO, PROOF, BYE, REQUEST, PING = 1, 2, 3, 4, 9
MAGIC = 0x6B666E31


def ok(text):
    print(f"ok {text}", flush=True)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def frame(kind, meta=b"", stream=0, bulk_len=0, magic=MAGIC, meta_len=None):
    """storage/net/frame.h"""
    front = struct.pack(">IBBHIIII", magic, kind, 0, 0, stream, len(meta) if meta_len is None else meta_len, bulk_len,
                        crc32c(meta))
    return front + struct.pack(">I", crc32c(front)) + meta


def read_frame(sock, data=b""):
    while len(data) < 28:
        got = sock.recv(65536)
        assert got, f"closed behind {data!r}"
        data += got
    kind, meta_len, bulk_len = data[4], *struct.unpack(">II", data[12:20])
    while len(data) < 28 + meta_len + bulk_len:
        got = sock.recv(65536)
        assert got, f"closed within a frame of type {kind}"
        data += got
    return kind, data[28:28 + meta_len], data[28 + meta_len + bulk_len:]


def bye_words(meta):
    size, = struct.unpack(">H", meta[4:6])
    return meta[6:6 + size].decode()


class Marks:
    """What the hosts have logged since."""

    def __init__(self, hosts):
        self.at = {h: len(h.log_text()) for h in hosts}

    def lines(self, host):
        return host.log_text()[self.at[host]:].splitlines()

    def wait(self, host, *words):
        def found():
            return next((line for line in self.lines(host) if all(w in line for w in words)), None)
        try:
            return eventually(f"a line of {host.id} with {words}", found, 60)
        except AssertionError as e:
            raise AssertionError(f"{e}\n" + "\n".join(self.lines(host)[-20:])) from None


def works_without(c, n3):
    """The other two go on, and their status names the trouble with n3."""
    expect(c.put("bucket", "key", BODY), 200)
    assert expect(c.get("bucket", "key", host=1), 200).body == BODY
    seen = next(h for h in c.hosts[0].admin_json("/admin/v1/status")["hosts"] if h["id"] == n3.id)
    assert not seen["connected"] and not any(d["up"] for d in seen["drives"]), seen
    return seen["trouble"]


def both_say(c, marks, n3, words, what):
    for other in c.hosts[:2]:
        here = marks.wait(other, "n3", "refused", *words)
        there = marks.wait(n3, other.id, "refused", *words)
    trouble = eventually(f"trouble with {words}", lambda: (lambda t: t if all(w in t for w in words) else None)(
        works_without(c, n3)))
    ok(f"{what}: {here[25:180]} | {there[25:180]} | status: {trouble[:120]}")


def whole_again(c, n3):
    if n3.alive():
        n3.kill(signal.SIGTERM)
    n3.start()
    c.wait_ready()
    for h in c.hosts:
        c.wait_sight(h, c.hosts)
    assert expect(c.get("bucket", "key", host=2), 200).body == BODY


def other_secret(c, n3):
    """n3 comes with another cluster secret."""
    marks = Marks(c.hosts)
    n3.start({"KOFN_CLUSTER_SECRET": "not the secret of this cluster"})
    both_say(c, marks, n3, ["cluster secret differs"], "another secret")
    for h in c.hosts:
        assert "not the secret" not in h.log_text() and (c.dir / "secret").read_text() not in h.log_text()
    whole_again(c, n3)


def aside(c, n3, name):
    os.rename(n3.dir / "d1", n3.dir / f"{name}-d1")
    os.rename(n3.dir / "state", n3.dir / f"{name}-state")


def back(c, n3, name):
    for part in ("d1", "state"):
        shutil.rmtree(n3.dir / part, ignore_errors=True)
        os.rename(n3.dir / f"{name}-{part}", n3.dir / part)


def other_name_and_membership(c, n3):
    """n3 has empty drives, and a configuration of another cluster or of another membership."""
    text = n3.config.read_text()
    for old, new, words, what in [
            ("name: test,", "name: other,", ["cluster name differs", "other", "test"], "another name"),
            ("id: n2, ", "id: n2, zone: far, ", ["membership differs", "zone far", "zone n2"], "another membership")]:
        aside(c, n3, "own")
        n3.drives[0].mkdir()
        n3.config.write_text(text.replace(old, new))
        marks = Marks(c.hosts)
        n3.start()
        both_say(c, marks, n3, words, what)
        assert n3.kill(signal.SIGTERM) == 0
        assert not list(n3.drives[0].iterdir()), "a directory was formatted for nobody"
        back(c, n3, "own")
        n3.config.write_text(text)
        whole_again(c, n3)
        n3.kill(signal.SIGTERM)


def lost_disks(c, n3):
    """n3 comes with empty drives and no memory: it is not taken for a new one, and ends by itself."""
    aside(c, n3, "own")
    n3.drives[0].mkdir()
    marks = Marks(c.hosts)
    n3.start()
    assert n3.process.wait(60) == 2
    marks.wait(n3, "the drives of host n3 are empty", "mounted", "drive replace")
    marks.wait(c.hosts[0], "n3", "the drives of host n3 are empty")
    works_without(c, n3)
    assert not list(n3.drives[0].iterdir()), "an empty drive was formatted in a cluster that has data"
    back(c, n3, "own")
    ok("empty drives in a running cluster: the host is refused and ends with status 2")


def other_id(c, n3):
    """n3's drives were formatted for another cluster of the same name and membership."""
    for h in c.hosts:
        h.kill(signal.SIGTERM)
        aside(c, h, "first")
        h.drives[0].mkdir()
    c.start()
    assert c.stop() == [0, 0, 0]
    for h in c.hosts[:2]:
        back(c, h, "first")
    marks = Marks(c.hosts)
    for h in c.hosts:
        h.start()
    c.wait_ready(c.hosts[:2])
    both_say(c, marks, n3, ["cluster id differs"], "another cluster id")
    n3.kill(signal.SIGTERM)
    back(c, n3, "first")
    whole_again(c, n3)
    n3.kill(signal.SIGTERM)


def snapshot(c, n3):
    """All of n3, with its state directory, is put back to an earlier day: only its peers can know."""
    for part in ("d1", "state"):
        shutil.copytree(n3.dir / part, n3.dir / f"old-{part}")
    for _ in range(2):
        whole_again(c, n3)
        expect(c.put("bucket", "later", BODY), 200)
        n3.kill(signal.SIGTERM)
    aside(c, n3, "now")
    for part in ("d1", "state"):
        os.rename(n3.dir / f"old-{part}", n3.dir / part)
    marks = Marks(c.hosts)
    n3.start()
    both_say(c, marks, n3, ["restored snapshot", "boot counter"], "a snapshot of a whole host")
    expect(c.get("bucket", "later", host=2), 503)  # it must not answer from what it remembers
    n3.kill(signal.SIGTERM)
    back(c, n3, "now")
    whole_again(c, n3)


def wrong_address(c, n3):
    """n1's configuration has the addresses of n2 and n3 exchanged."""
    n1, n2 = c.hosts[0], c.hosts[1]
    text = n1.config.read_text()
    a, b = f":{n2.peer_port}\"", f":{n3.peer_port}\""
    n1.config.write_text(text.replace(a, "@").replace(b, a).replace("@", b))
    n1.kill(signal.SIGTERM)
    marks = Marks(c.hosts)
    n1.start()
    line = marks.wait(n1, "at the address of host n2 answers host n3")
    marks.wait(n3, "n1", "at the address of host n2 answers host n3")
    n1.kill(signal.SIGTERM)
    n1.config.write_text(text)
    whole_again(c, n1)
    ok(f"another host at an address: {line[25:160]}")


def other_protocol(c, n3):
    """A host of another protocol version, as connector and as listener."""
    n1 = c.hosts[0]
    words = "protocol versions differ: they speak 7 to 9, we speak 1 to 1"
    hello = struct.pack(">HH", 7, 9) + b"whatever a later version says"
    marks = Marks(c.hosts)
    with socket.create_connection(("127.0.0.1", n1.peer_port), timeout=60) as s:
        s.sendall(frame(HELLO, hello))
        data, kind = b"", 0
        while kind != BYE:  # its own HELLO may come first
            kind, meta, data = read_frame(s, data)
            assert kind in (HELLO, BYE), kind
        assert words in bye_words(meta), meta
        while s.recv(65536):
            pass
    marks.wait(n1, "refused", words)
    n3.kill(signal.SIGTERM)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", n3.peer_port))
        listener.listen(16)
        listener.settimeout(60)
        s, _ = listener.accept()
        with s:
            s.settimeout(60)
            s.sendall(frame(HELLO, hello))
            data, kind = b"", 0
            while kind != BYE:
                kind, meta, data = read_frame(s, data)
            assert words in bye_words(meta), meta
        line = eventually("a refusal by n1 or n2", lambda: next(
            (x for h in c.hosts[:2] for x in marks.lines(h) if "refused host n3" in x and words in x), None))
    ok(f"another protocol version, both ways: {line[25:180]}")
    whole_again(c, n3)


def garbage(c, n3):
    """Bytes that are no frames, frames that are wrong, handshakes that go wrong, silence."""
    turns, n1 = random.Random(9), c.hosts[0]
    before, marks = remains.settled(c), Marks(c.hosts)
    real = socket.create_connection(("127.0.0.1", n1.peer_port), timeout=60)
    with real:
        real.sendall(frame(HELLO, struct.pack(">HH", 1, 1) + bytes(300)))  # a HELLO of the right version, else nonsense
        while real.recv(65536):
            pass
    bad_crc = bytearray(frame(HELLO, b"x" * 100))
    bad_crc[27] ^= 1
    bad_meta = bytearray(frame(HELLO, struct.pack(">HH", 1, 1) + b"x" * 100))
    bad_meta[-1] ^= 1
    cases = [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
             bytes(1000), b"\xff" * 100000, bytes(bad_crc), bytes(bad_meta), frame(HELLO, b"x", magic=0x12345678), frame(99, b"x"),
             frame(0), frame(HELLO, b""), frame(HELLO, b"\0"), frame(HELLO, struct.pack(">HH", 2, 1) + b"x"),
             frame(HELLO, b"", meta_len=0xFFFFFFFF), frame(HELLO, b"", bulk_len=1000), frame(PROOF, bytes(32)),
             frame(REQUEST, bytes(200), stream=1), frame(PING), frame(BYE, b"\0"),
             frame(BYE, struct.pack(">iH", -1, 3) + b"bye")]
    cases += [turns.randbytes(turns.choice((1, 27, 28, 29, 500, 70000))) for _ in range(60)]
    silent = []
    for i, data in enumerate(cases):
        s = socket.create_connection(("127.0.0.1", n1.peer_port), timeout=60)
        try:
            s.sendall(data)
        except OSError:
            pass
        if len(data) < 28:
            silent.append(s)  # a frame that does not go on: the handshake's deadline ends it
            continue
        try:
            while s.recv(65536):
                pass
        except ConnectionResetError:
            pass
        s.close()
        if i % 10 == 0:
            expect(c.put("bucket", f"between-{i}", b"x"), 200)
            expect(c.delete("bucket", f"between-{i}"), 204)
    for _ in range(100):
        silent.append(socket.create_connection(("127.0.0.1", n1.peer_port), timeout=60))
    assert expect(c.get("bucket", "key"), 200).body == BODY
    for s in silent:
        try:
            while s.recv(65536):
                pass
        except ConnectionResetError:
            pass
        except TimeoutError:
            raise AssertionError("a silent stranger keeps its connection for more than a minute") from None
        s.close()
    for h in c.hosts:
        assert not [x for x in marks.lines(h) if "is away" in x], "a peer's connection fell with the garbage's"
        assert all(x["connected"] for x in h.admin_json("/admin/v1/status")["hosts"])
        assert len(marks.lines(h)) < len(cases) + 20, f"{h.id} logs {len(marks.lines(h))} lines"
    for h in c.hosts:
        c.wait_sight(h, c.hosts)
    after = remains.settled(c)
    for _, tables in after.values():  # the delete markers of what was put meanwhile
        tables["row"] = {k: v for k, v in tables["row"].items() if b"between-" not in k}
    assert remains.difference(before, after) == ""
    ok(f"{len(cases)} kinds of garbage and {len(silent)} silent strangers on the peer port: only their connections ended")


def main():
    with running("3 hosts", settings="trash_delay: 100ms") as c:
        n3 = c.hosts[2]
        c.make_bucket("bucket")
        expect(c.put("bucket", "key", BODY), 200)
        for h in c.hosts:
            c.wait_sight(h, c.hosts)
        garbage(c, n3)
        other_protocol(c, n3)
        wrong_address(c, n3)
        n3.kill(signal.SIGTERM)
        other_secret(c, n3)
        for check in (other_name_and_membership, lost_disks, snapshot, other_id):
            if n3.alive():
                n3.kill(signal.SIGTERM)
            check(c, n3)
    return 0


if __name__ == "__main__":
    sys.exit(main())
