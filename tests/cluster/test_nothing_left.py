"""test_nothing_left.py: a request that is refused or breaks leaves no row and no chunk file on any drive.

What lies on the drives is read from the files themselves (remains.py), before and after.
"""
import base64
import hashlib
import random
import shutil
import socket
import sys
import tempfile
import threading
import urllib.parse

import remains
from cluster import Cluster
from wire import Closed, Wire, auth_line, eventually, expect, head, running

BUCKET = "left"
KIB, MIB = 1 << 10, 1 << 20
SMALL, BIG = 10 * KIB, 5 * MIB  # in the index; in chunk files of several stripes
SMALL_BODY, BIG_BODY = random.Random(1).randbytes(SMALL), random.Random(2).randbytes(BIG)
OTHER_ETAG = '"' + hashlib.md5(b"other").hexdigest() + '"'
OTHER_MD5 = base64.b64encode(hashlib.md5(b"other").digest()).decode()


def ok(text):
    print(f"ok {text}", flush=True)


def fill(c):
    """What stands there before: an old version of every key that the broken requests name."""
    c.make_bucket(BUCKET)
    for key, body in (("small", SMALL_BODY), ("big", BIG_BODY), ("empty", b"")):
        c.put_whole(BUCKET, key, body)  # on every drive: one of them is to die


def still_there(c):
    for key, body in (("small", SMALL_BODY), ("big", BIG_BODY), ("empty", b"")):
        assert expect(c.get(BUCKET, key), 200).body == body, key


def refusals():
    """(method, target, header lines, body, status) of requests that must not be carried out."""
    out = []
    for body in (SMALL_BODY, BIG_BODY):
        for key in ("small", "big", "new"):
            target = f"/{BUCKET}/{key}"
            out += [("PUT", target, [f"Content-MD5: {OTHER_MD5}"], body, 400),
                    ("PUT", target, ["Content-MD5: x"], body, 400),
                    ("PUT", target, [f"If-Match: {OTHER_ETAG}"], body, 404 if key == "new" else 412),
                    ("PUT", target, ["x-amz-copy-source: /a/b"], body, 501),
                    ("PUT", target, ["x-amz-storage-class: NONE"], body, 400),
                    ("PUT", target, ["x-amz-meta-a: " + "v" * 3000], body, 400),
                    ("PUT", f"{target}?tagging", [], body, 501), ("POST", f"{target}?uploads", [], b"", 501),
                    ("POST", target, [], body, 405), ("PUT", target, None, body, 403), ("DELETE", target, None, b"", 403)]
            if key != "new":
                out += [("PUT", target, ["If-None-Match: *"], body, 412),
                        ("DELETE", target, [f"If-Match: {OTHER_ETAG}"], b"", 412)]
        out += [("PUT", f"/{BUCKET}/" + "k" * 1025, [], body, 400), ("PUT", f"/{BUCKET}/a%00", [], body, 400),
                ("PUT", f"/{BUCKET}/%ff", [], body, 400), ("PUT", f"/{BUCKET}/%zz", [], body, 400),
                ("PUT", f"/{BUCKET}/\xe9", [], body, 400), ("PUT", "/no-such-bucket/key", [], body, 404),
                ("PUT", "/BAD/key", [], body, 400)]
    out += [("PUT", "/AB", [], b"", 400), ("PUT", "/new-bucket", ["x-kofn-pool: none"], b"", 400),
            ("PUT", "/new-bucket", None, b"", 403), ("PUT", "/new-bucket", [], b"<broken", 400), ("PUT", "/new-bucket?acl", [], b"", 501),
            ("DELETE", "/no-such-bucket", [], b"", 404), ("DELETE", f"/{BUCKET}", None, b"", 403),
            ("GET", f"/{BUCKET}/none", [], b"", 404), ("HEAD", f"/{BUCKET}/none", [], b"", 404),
            ("GET", f"/{BUCKET}/big", ["Range: bytes=99999999-"], b"", 416),
            ("POST", f"/{BUCKET}?delete", [], b"<Delete/>", 501)]
    return out


def refused_requests(c):
    """Every refused request, one by one"""
    before = remains.settled(c)
    count = 0
    for i, (method, target, lines, body, status) in enumerate(refusals()):
        with Wire(c.hosts[i % len(c.hosts)].s3_port) as w:
            auth = [] if lines is None else [auth_line(c)]
            w.send(head(method, target, *auth, *(lines or []), f"Content-Length: {len(body)}") + body)
            a = w.answer(method)
            assert a.status == status, f"{method} {target[:60]} {lines}: {a}, expected {status}"
        # A condition is decided by a promise, which the drives keep: the one thing that may be new.
        without = remains.FORGETFUL if lines and lines[0].startswith("If-") else ()
        remains.same_again(c, before, f"{method} {target[:60]} {lines}", without=without)
        if without:
            before = remains.of_cluster(c)
        count += 1
    assert remains.difference(before, remains.settled(c)) == ""
    still_there(c)
    ok(f"{count} refused requests changed no row and left no file")


def body_parts(body, framing):
    if framing == "length":
        return [f"Content-Length: {len(body)}"], body
    pieces = [body[i:i + 100000] for i in range(0, len(body), 100000)]
    data = b"".join(f"{len(p):x}\r\n".encode() + p + b"\r\n" for p in pieces) + b"0\r\n\r\n"
    return ["Transfer-Encoding: chunked"], data


def clients_that_go(c):
    """The client goes away before its body is whole: by FIN, by reset, at several points, small and large"""
    before, count = remains.settled(c), 0
    for body, key in ((SMALL_BODY, "small"), (BIG_BODY, "big"), (SMALL_BODY, "gone/small"), (BIG_BODY, "gone/big")):
        for framing in ("length", "chunked"):
            lines, data = body_parts(body, framing)
            for cut in (0, 1, len(data) // 2, 3 * len(data) // 4, len(data) - 1):
                for way in ("close", "half close", "reset"):
                    w = Wire(c.hosts[count % len(c.hosts)].s3_port)
                    more = ["If-None-Match: *"] if key.startswith("gone") and count % 5 == 0 else []
                    w.send(head("PUT", c.path(BUCKET, key), auth_line(c), *lines, *more) + data[:cut])
                    if way == "half close":
                        w.sock.shutdown(socket.SHUT_WR)
                        try:
                            expect(w.answer(), 400)
                        except Closed:
                            pass
                    w.reset() if way == "reset" else w.close()
                    count += 1
    # 100-continue was asked for, the head ends, and nobody is there any more.
    for key in ("small", "big"):
        with Wire(c.hosts[0].s3_port) as w:
            w.send(head("PUT", f"/{BUCKET}/{key}", auth_line(c), f"Content-Length: {BIG}", "Expect: 100-continue"))
            expect(w.answer(), 100)
        count += 1
    remains.same_again(c, before, "a client that went away")
    assert remains.difference(before, remains.settled(c)) == ""
    still_there(c)
    ok(f"{count} clients went away before their bodies were whole, and left nothing")


def broken_framing(c):
    """Chunked bodies that break after megabytes, and after a few bytes"""
    before = remains.settled(c)
    for size in (100, SMALL, 3 * MIB):
        for bad in (b"zz\r\n", b"\r\n", b"5\r\nhelloX", b"0\r\nno trailer\r\n\r\n"):
            with Wire(c.hosts[0].s3_port) as w:
                w.send(head("PUT", f"/{BUCKET}/big", auth_line(c), "Transfer-Encoding: chunked"))
                w.send(f"{size:x}\r\n".encode() + BIG_BODY[:size] + b"\r\n" + bad)
                expect(w.answer(), 400)
    remains.same_again(c, before, "a body with broken framing")
    still_there(c)
    ok("bodies with broken framing left nothing")


def slow_put(c, host, key, started, results, lines=()):
    """A PUT that waits in the middle of its body until it is told to go on."""
    with Wire(c.hosts[host].s3_port, timeout=120) as w:
        w.send(head("PUT", f"/{BUCKET}/{key}", auth_line(c), f"Content-Length: {BIG}", *lines) + BIG_BODY[:BIG // 2])
        started.wait(120)
        w.send(BIG_BODY[BIG // 2:])
        try:
            results.append(w.answer().status)
        except Closed:
            results.append(0)


def races(c):
    """The losers of a race for one key leave nothing: only the winner's chunks and rows are new"""
    before = remains.settled(c)
    for turn in range(3):
        go, results = threading.Event(), []
        condition = ["If-None-Match: *"]
        threads = [threading.Thread(target=slow_put, args=(c, i % len(c.hosts), f"race-{turn}", go, results, condition))
                   for i in range(4)]
        for t in threads:
            t.start()
        go.set()
        for t in threads:
            t.join()
        assert results.count(200) == 1 and set(results) <= {200, 409, 412, 503}, results
    after, blobs = remains.settled(c), set()
    for drive, (files, tables) in after.items():
        # A drive that promised itself to a later racer may have refused a winner: then it has fewer.
        ids = {f.rsplit("/", 1)[-1].split(".")[0] for f in files if f not in before[drive][0]}
        named = {key[:16].hex() for key in tables["blob"]}
        assert ids <= named, f"{drive}: chunk files that no record names: {ids - named}"
        assert len(tables["row"]) - len(before[drive][1]["row"]) <= 6, "more than a row and its flag for each race"
        blobs |= ids
    assert len(blobs) == 3, f"3 races left chunks of {len(blobs)} bodies: {blobs}"
    ok("losers of a race left nothing")


def drives_lost_in_the_middle(c):
    """W drives are lost while the body comes: 503, and after the hosts are back nothing of it is there"""
    before = remains.settled(c)
    go, results = threading.Event(), []
    threads = [threading.Thread(target=slow_put, args=(c, 0, key, go, results)) for key in ("big", "lost")]
    for t in threads:
        t.start()
    # Both have staged something on every drive before the hosts die.
    eventually("stages", lambda: all(len(remains.chunk_files(h.drives[0])) >= len(before[str(h.drives[0])][0]) + 2
                                     for h in c.hosts))
    for h in c.hosts[1:]:
        h.kill()
    c.wait_sight(c.hosts[0], c.hosts[1:], up=False)
    go.set()
    for t in threads:
        t.join()
    assert set(results) <= {503, 0}, results
    too_few(c, before)
    for h in c.hosts[1:]:
        h.start()
    c.wait_ready()
    for h in c.hosts:
        c.wait_sight(h, c.hosts)
    remains.same_again(c, before, "a PUT that lost its drives", timeout=60)
    still_there(c)
    ok("a PUT that lost W drives in its body left nothing, also on the drives that died")


def too_few(c, before):
    """With fewer than W drives: 503 with Retry-After, nothing changed on the drive that is left"""
    first = c.hosts[0].drives
    for key, body in (("small", SMALL_BODY), ("big", BIG_BODY), ("fresh", BIG_BODY)):
        for lines in ({}, {"If-None-Match": "*"}):
            expect(c.put(BUCKET, key, body, headers=lines), 503)
        expect(c.delete(BUCKET, key), 503)
        a = c.get(BUCKET, key)
        expect(a, 503)  # also for what never was: nobody can know
        assert int(a.headers["Retry-After"]) >= 1
    expect(c.request("PUT", "/too-few"), 503)
    expect(c.request("DELETE", f"/{BUCKET}"), 503)
    expect(c.request("GET", f"/{BUCKET}?list-type=2"), 503)
    old = {str(d): before[str(d)] for d in first}
    eventually("nothing new on the last drive", lambda: remains.difference(old, remains.of_drives(first)) == "", 30)
    ok("fewer than W drives: 503 with Retry-After and nothing changed")


def one_down(c):
    """With one host down the old versions are read and refused requests still leave nothing"""
    c.hosts[2].kill()
    c.wait_sight(c.hosts[0], [c.hosts[2]], up=False)
    drives = [d for h in c.hosts[:2] for d in h.drives]
    before = remains.of_drives(drives)
    still_there(c)
    expect(c.put(BUCKET, "big", BIG_BODY, headers={"Content-MD5": OTHER_MD5}), 400, "BadDigest")
    expect(c.put(BUCKET, "small", SMALL_BODY, headers={"If-Match": OTHER_ETAG}), 412)
    eventually("as before", lambda: not remains.difference(before, remains.of_drives(drives, remains.FORGETFUL)), 30)
    c.hosts[2].start()
    c.wait_ready()
    ok("one host down: old versions are read, refused requests leave nothing")


def full_drives():
    """Drives below their reserve: 507, nothing left; DELETE goes on"""
    directory = tempfile.mkdtemp(prefix="kofn-test-")
    try:
        with Cluster(directory, hosts=3, pool="2+1") as c:
            c.start()
            fill(c)
            before = remains.settled(c)
            for h in c.hosts:
                h.kill(15)
            for h in c.hosts:
                h.start({"KOFN_DRIVE_RESERVE_BYTES": "100TiB"})
            c.wait_ready()
            for key, body in (("small", SMALL_BODY), ("big", BIG_BODY), ("new", BIG_BODY)):
                expect(c.put(BUCKET, key, body), 507, "InsufficientStorage")
            remains.same_again(c, before, "a PUT to full drives")
            still_there(c)
            expect(c.delete(BUCKET, "small"), 204)
            expect(c.get(BUCKET, "small"), 404, "NoSuchKey")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    ok("full drives: 507 and nothing left, reads and DELETE go on")


def main():
    with running("3 hosts", settings="trash_delay: 100ms") as c:
        fill(c)
        for check in (refused_requests, clients_that_go, broken_framing, races, one_down, drives_lost_in_the_middle):
            check(c)
        names = urllib.parse.unquote(c.request("GET", "/").body.decode())
        assert names.count("<Name>") == 1, names
    full_drives()
    return 0


if __name__ == "__main__":
    sys.exit(main())
