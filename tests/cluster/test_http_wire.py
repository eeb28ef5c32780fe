"""test_http_wire.py: HTTP/1.1 itself: limits, 100-continue, chunks, keep-alive, pipelining, credentials; with raw sockets
and with curl, on one host and on three. What is malformed stands in smuggling_cases.py."""
import base64
import hashlib
import pathlib
import random
import socket
import subprocess
import sys
import tempfile

from wire import Closed, Wire, ask, auth_line, expect, head, run_on_both

BUCKET = "wire"
MIB = 1 << 20


def setup(c):
    """a bucket and an object"""
    c.make_bucket(BUCKET)
    expect(c.put(BUCKET, "object", b"the object"), 200)


def lone(c, data, method="GET", end=False):
    """The answer to these bytes on a connection of their own, which must be closed behind it."""
    with Wire(c.hosts[0].s3_port) as w:
        w.send(data)
        if end:
            w.sock.shutdown(socket.SHUT_WR)
        answer = w.answer(method)
        assert answer.headers.get("connection") == "close" and w.data == b"", (answer.headers, w.data)
        assert w.is_closed()
        return answer


def limits(c):
    """Headers too many or too long, a target too long; and the largest that are allowed"""
    def many(count):  # Host, Authorization and Connection are three of them
        return [f"x-{i}: v" for i in range(count - 3)]

    get = f"/{BUCKET}/object"
    expect(ask(c, "GET", get, *many(100)), 200)
    expect(lone(c, head("GET", get, auth_line(c), "Connection: close", *many(101))), 431)
    expect(lone(c, head("GET", get, auth_line(c), *many(5000))), 431)
    expect(ask(c, "GET", get, "x-long: " + "v" * 32000), 200)
    expect(lone(c, head("GET", get, "x-long: " + "v" * 33000)), 431, "RequestHeaderSectionTooLarge")
    with Wire(c.hosts[0].s3_port) as w:  # a head without an end is not waited for
        w.send(b"GET / HTTP/1.1\r\nx: " + b"v" * 40000)
        expect(w.answer(), 431)
    padding = "x=" + "y" * (8192 - len(get) - 3)
    expect(ask(c, "GET", f"{get}?{padding[:4000]}"), 200)
    expect(lone(c, head("GET", f"{get}?{padding}y", auth_line(c))), 414, "InvalidURI")
    expect(lone(c, b"GET /" + b"y" * 20000), 414, "InvalidURI")


def credentials(c):
    """HTTP Basic only: missing or wrong ones get 403, another scheme a clear 400, before anything else is looked at"""
    def basic(text):
        return "Authorization: Basic " + base64.b64encode(text.encode("latin-1")).decode()

    key, secret = c.access_key, c.secret_key
    v4 = "Authorization: AWS4-HMAC-SHA256 Credential=" + key + "/20250101/us-east-1/s3/aws4_request, " \
         "SignedHeaders=host;x-amz-date, Signature=" + "0" * 64
    table = [([], 403, "AccessDenied"), ([basic(f"{key}:wrong")], 403, "AccessDenied"),
             ([basic(f"{key}:{secret}x")], 403, "AccessDenied"), ([basic(f"{key}:{secret[:-1]}")], 403, "AccessDenied"),
             ([basic(f"{key}:")], 403, "AccessDenied"), ([basic(f"NOBODY:{secret}")], 403, "InvalidAccessKeyId"),
             ([basic(f"{key.lower()}:{secret}")], 403, "InvalidAccessKeyId"), ([basic(":")], 403, "InvalidAccessKeyId"),
             ([basic("no colon")], 403, "AccessDenied"), (["Authorization: Basic"], 400, "InvalidRequest"),
             (["Authorization: Basic !!!"], 403, "AccessDenied"), (["Authorization: "], 400, "InvalidRequest"),
             (["Authorization: Basic " + "A" * 4000], 403, "AccessDenied"),
             ([v4], 400, "InvalidRequest"), (["Authorization: Bearer abc"], 400, "InvalidRequest"),
             ([auth_line(c), auth_line(c)], 400, "InvalidRequest")]
    for lines, status, code in table:
        for method, target in (("GET", f"/{BUCKET}/object"), ("PUT", f"/{BUCKET}/intruder"), ("DELETE", f"/{BUCKET}/object"),
                               ("GET", "/"), ("GET", f"/{BUCKET}"), ("PUT", "/intruders"), ("GET", "/no-such-bucket/x")):
            with Wire(c.hosts[0].s3_port) as w:
                w.send(head(method, target, *lines, "Content-Length: 3") + b"abc")
                a = w.answer()
                assert (a.status, a.code()) == (status, code), f"{method} {target} {lines}: {a}, expected {status} {code}"
                if lines == [v4]:
                    assert b"not supported" in a.body and b"HTTP Basic" in a.body, a.body
                w.send(head("GET", f"/{BUCKET}/object", auth_line(c).replace("Basic", "bASIC")))
                assert expect(w.answer(), 200).body == b"the object"  # the connection goes on
    expect(c.get(BUCKET, "object", auth=False, headers={"x-amz-date": "20250101T000000Z"}), 403, "AccessDenied")
    expect(c.request("GET", f"/{BUCKET}/object?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=00", auth=False), 403)
    expect(c.get(BUCKET, "intruder"), 404, "NoSuchKey")


SUB_RESOURCES = ["acl", "policy", "cors", "lifecycle", "versioning", "versions", "tagging", "uploads", "uploadId=x",
                 "website", "logging", "notification", "encryption", "replication", "object-lock", "retention", "legal-hold", "torrent",
                 "versionId=abc", "partNumber=1&uploadId=x", "publicAccessBlock", "accelerate", "requestPayment", "restore",
                 "select&select-type=2", "attributes", "inventory", "metrics", "analytics", "ownershipControls", "delete"]


def unsupported(c):
    """Sub-resources, methods and headers that are not offered: 501 or 405, never taken for the plain object or bucket"""
    for sub in SUB_RESOURCES:
        for target in (f"/{BUCKET}", f"/{BUCKET}/object"):
            for method in ("GET", "PUT", "DELETE", "POST"):
                body = b"<x/>" if method in ("PUT", "POST") else b""
                expect(ask(c, method, f"{target}?{sub}", body=body), 501, "NotImplemented")
            assert ask(c, "HEAD", f"{target}?{sub}").status == 501
    for name in ("x-amz-copy-source: /wire/object", "x-amz-server-side-encryption: AES256", "x-amz-tagging: a=b",
                 "x-amz-object-lock-mode: GOVERNANCE", "x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
                 "x-amz-server-side-encryption-customer-algorithm: AES256", "x-amz-website-redirect-location: /x"):
        expect(ask(c, "PUT", f"/{BUCKET}/object", name, body=b"x"), 501, "NotImplemented")
    expect(ask(c, "GET", f"/{BUCKET}/object?versionId=null"), 200)
    for method in ("POST", "OPTIONS"):
        expect(ask(c, method, f"/{BUCKET}/object"), 405, "MethodNotAllowed")
        expect(ask(c, method, f"/{BUCKET}"), 405, "MethodNotAllowed")
    expect(ask(c, "DELETE", "/"), 405, "MethodNotAllowed")
    assert expect(c.get(BUCKET, "object"), 200).body == b"the object"


def lengths(c):
    """A PUT without a length: 411; one too large: EntityTooLarge, before its body"""
    with Wire(c.hosts[0].s3_port) as w:
        w.send(head("PUT", f"/{BUCKET}/length", auth_line(c)))
        expect(w.answer(), 411, "MissingContentLength")
    for size in (5 * 1024 * MIB + 1, 1 << 62):
        with Wire(c.hosts[0].s3_port) as w:
            w.send(head("PUT", f"/{BUCKET}/length", auth_line(c), f"Content-Length: {size}"))
            a = expect(w.answer(), 400, "EntityTooLarge")
            assert a.headers["connection"] == "close" and w.is_closed()
    expect(c.get(BUCKET, "length"), 404, "NoSuchKey")
    expect(ask(c, "PUT", f"/{BUCKET}/length"), 200)  # Content-Length: 0
    assert expect(c.get(BUCKET, "length"), 200).body == b""


def expect_continue(c):
    """Expect: 100-continue: asked for a body that is wanted; what is refused is refused without it"""
    for size in (10, 3 * MIB):
        data = random.Random(size).randbytes(size)
        with Wire(c.hosts[0].s3_port) as w:
            for key in ("expect-1", "expect-2"):
                w.send(head("PUT", f"/{BUCKET}/{key}", auth_line(c), f"Content-Length: {size}", "Expect: 100-Continue"))
                expect(w.answer(), 100)
                w.send(data)
                expect(w.answer(), 200)
                assert expect(c.get(BUCKET, key), 200).body == data
            w.send(head("PUT", f"/{BUCKET}/expect-1", auth_line(c), "Transfer-Encoding: chunked", "Expect: 100-continue"))
            expect(w.answer(), 100)
            w.send(b"2\r\nhi\r\n0\r\n\r\n")
            expect(w.answer(), 200)
            w.send(head("PUT", f"/{BUCKET}/expect-1", auth_line(c), "Content-Length: 0", "Expect: 100-continue"))
            expect(w.answer(), 200)  # nothing to continue with
            w.send(head("GET", f"/{BUCKET}/object", auth_line(c), "Expect: 100-continue"))
            expect(w.answer(), 200)
            # A client that does not wait gets its answer as well, behind a 100.
            w.send(head("PUT", f"/{BUCKET}/expect-1", auth_line(c), "Content-Length: 5", "Expect: 100-continue") + b"hello")
            a = w.answer()
            expect(w.answer() if a.status == 100 else a, 200)
    etag = '"' + hashlib.md5(b"other").hexdigest() + '"'
    for target, lines, status, code in [
        (f"/{BUCKET}/refused", None, 403, "AccessDenied"), ("/no-such-bucket/refused", [], 404, "NoSuchBucket"),
        (f"/{BUCKET}/refused", ["Content-MD5: x"], 400, "InvalidDigest"), (f"/{BUCKET}/%zz", [], 400, "InvalidURI"),
        (f"/{BUCKET}/object", ["If-None-Match: *"], 412, "PreconditionFailed"),
        (f"/{BUCKET}/object", [f"If-Match: {etag}"], 412, "PreconditionFailed"),
        (f"/{BUCKET}/refused", [f"If-Match: {etag}"], 404, "NoSuchKey"),
        (f"/{BUCKET}/refused?uploads", [], 501, "NotImplemented"), (f"/{BUCKET}/" + "k" * 1025, [], 400, "KeyTooLongError"),
        (f"/{BUCKET}/refused", ["x-amz-meta-a: " + "v" * 3000], 400, "MetadataTooLarge"),
        (f"/{BUCKET}/refused", ["x-amz-storage-class: NONE"], 400, "InvalidStorageClass"),
    ]:
        auth = [] if lines is None else [auth_line(c)]
        for size in (10, MIB):
            with Wire(c.hosts[0].s3_port) as w:
                w.send(head("PUT", target, *auth, *(lines or []), f"Content-Length: {size}", "Expect: 100-continue"))
                a = w.answer()
                assert (a.status, a.code()) == (status, code), f"{target} {lines}: {a}, expected {status} {code}"
                # Nobody can tell whether the body follows: the connection must not be used again.
                assert a.headers.get("connection") == "close" and w.data == b"" and w.is_closed(), a.headers
    expect(c.get(BUCKET, "refused"), 404, "NoSuchKey")
    with Wire(c.hosts[0].s3_port) as w:
        w.send(head("PUT", f"/{BUCKET}/refused", auth_line(c), f"Content-Length: {5 << 40}", "Expect: 100-continue"))
        expect(w.answer(), 400, "EntityTooLarge")


def chunked(data, cuts, extension="", trailers=()):
    out, at = [], 0
    for cut in cuts:
        part = data[at:at + cut]
        at += cut
        if part:
            out += [f"{len(part):x}{extension}\r\n".encode(), part, b"\r\n"]
    if data[at:]:
        out += [f"{len(data) - at:X}\r\n".encode(), data[at:], b"\r\n"]
    return b"".join(out) + b"0\r\n" + b"".join(f"{t}\r\n".encode() for t in trailers) + b"\r\n"


def chunks(c):
    """Chunked bodies in any cuts, with extensions and trailers; one that ends too soon is not stored"""
    turns = random.Random(7)
    with Wire(c.hosts[0].s3_port) as w:
        for i, size in enumerate((0, 1, 1000, 70000, 3 * MIB)):
            data = turns.randbytes(size)
            cuts = [turns.choice((1, 15, 16, 4096, 65536, 300000)) for _ in range(60)]
            body = chunked(data, cuts, extension=';a="b"' if i % 2 else "", trailers=["x-a: b"] if i % 2 else [])
            w.send(head("PUT", f"/{BUCKET}/chunks-{size}", auth_line(c), "Transfer-Encoding: Chunked"))
            at = 0
            while at < len(body):
                cut = turns.choice((1, 2, 3, 1000, 200000)) if at < 2000 else 500000
                w.send(body[at:at + cut])
                at += cut
            a = expect(w.answer(), 200)
            assert a.headers["etag"] == f'"{hashlib.md5(data).hexdigest()}"'
            assert expect(c.get(BUCKET, f"chunks-{size}"), 200).body == data
    for cut in (b"5\r\nhel", b"5\r\nhello\r\n", b"5\r\nhello\r\n0\r\n", b"400000\r\n" + b"x" * 2000000):
        with Wire(c.hosts[0].s3_port) as w:
            w.send(head("PUT", f"/{BUCKET}/broken", auth_line(c), "Transfer-Encoding: chunked") + cut)
            w.sock.shutdown(socket.SHUT_WR)
            try:
                a = w.answer()
                assert a.status == 400, f"a body that ends within its framing: {a}"
            except Closed:
                pass
    expect(c.get(BUCKET, "broken"), 404, "NoSuchKey")


def keep_alive(c):
    """Many requests on one connection, in pieces and all at once; Connection: close; HTTP/1.0; half-closed clients"""
    turns, bodies = random.Random(3), {}
    with Wire(c.hosts[0].s3_port) as w:
        for i in range(40):
            bodies[i] = turns.randbytes(turns.choice((0, 10, 5000, 200000)))
            w.send(head("PUT", f"/{BUCKET}/ka-{i}", auth_line(c), f"Content-Length: {len(bodies[i])}") + bodies[i])
            expect(w.answer(), 200)
            w.send(b"\r\n" if i % 2 else b"")  # an empty line in front of a request is skipped
            w.send(head("GET", f"/{BUCKET}/ka-{i}", auth_line(c)))
            assert expect(w.answer(), 200).body == bodies[i]
            w.send(head("PUT", f"/{BUCKET}/refused?acl", auth_line(c), "Content-Length: 6") + b"unread")
            expect(w.answer(), 501)  # an unread body is skipped
    with Wire(c.hosts[0].s3_port) as w:  # pipelined: one send, answers in order
        batch = b""
        for i in range(40):
            batch += head("GET", f"/{BUCKET}/ka-{i}", auth_line(c))
            batch += head("PUT", f"/{BUCKET}/pl-{i}", auth_line(c), f"Content-Length: {i}") + b"p" * i
            batch += head("HEAD", f"/{BUCKET}/pl-{i}", auth_line(c))
        w.send(batch)
        for i in range(40):
            assert expect(w.answer(), 200).body == bodies[i], i
            expect(w.answer("PUT"), 200)
            assert expect(w.answer("HEAD"), 200).headers["content-length"] == str(i)
        assert w.data == b""
    with Wire(c.hosts[0].s3_port) as w:
        for byte in head("GET", f"/{BUCKET}/object", auth_line(c)):
            w.send(bytes([byte]))
        assert expect(w.answer(), 200).body == b"the object"
        w.send(head("GET", f"http://any.host/{BUCKET}/object", auth_line(c), "Connection: Close"))
        assert expect(w.answer(), 200).headers["connection"] == "close" and w.is_closed()
    with Wire(c.hosts[0].s3_port) as w:
        w.send(head("GET", f"/{BUCKET}/object", auth_line(c), "Connection: keep-alive").replace(b"1.1", b"1.0"))
        assert expect(w.answer(), 200).headers["connection"] == "keep-alive"
        w.send(head("GET", f"/{BUCKET}/object", auth_line(c)).replace(b"1.1", b"1.0"))
        assert expect(w.answer(), 200).headers["connection"] == "close" and w.is_closed()
    with Wire(c.hosts[0].s3_port) as w:
        w.send(head("GET", f"/{BUCKET}/object", auth_line(c)))
        w.sock.shutdown(socket.SHUT_WR)
        assert expect(w.answer(), 200).body == b"the object" and w.is_closed()


def curl(c):
    """curl as people use it: -T file, -T - (chunked), --data-binary, ranges, resumed downloads"""
    with tempfile.TemporaryDirectory(prefix="kofn-test-") as directory:
        d = pathlib.Path(directory)
        data = random.Random(1).randbytes(5 * MIB + 17)
        (d / "in").write_bytes(data)

        def run(*args, stdin=None):
            r = subprocess.run(["curl", "-sS", "-u", f"{c.access_key}:{c.secret_key}", "-o", d / "out", "-w", "%{http_code}",
                                "--path-as-is", "--max-time", "60", *args], input=stdin, capture_output=True, check=False)
            assert r.returncode == 0, (args, r.stderr)
            return int(r.stdout), (d / "out").read_bytes() if (d / "out").exists() else b""

        url = f"{c.hosts[0].s3}/{BUCKET}"
        assert run("-T", d / "in", f"{url}/curl/") == (200, b"")  # curl appends the file's name
        assert run(f"{url}/curl/in") == (200, data)
        assert run("-T", "-", f"{url}/curl/stdin", stdin=data)[0] == 200
        assert run(f"{url}/curl/stdin") == (200, data)
        assert run("-X", "PUT", "--data-binary", f"@{d}/in", f"{url}/curl/data")[0] == 200
        assert c.head(BUCKET, "curl/data").headers["Content-Length"] == str(len(data))
        assert run("-r", "100-199", f"{url}/curl/in") == (206, data[100:200])
        assert run("-r", "-7", f"{url}/curl/in") == (206, data[-7:])
        (d / "out").write_bytes(data[:1000])
        assert run("-C", "-", f"{url}/curl/in") == (206, data)
        assert run("-I", f"{url}/curl/in")[0] == 200
        assert run("-X", "DELETE", f"{url}/curl/in")[0] == 204
        status, body = run(f"{url}/curl/in")
        assert status == 404 and b"<Code>NoSuchKey</Code>" in body


def main():
    run_on_both([setup, limits, credentials, unsupported, lengths, expect_continue, chunks, keep_alive, curl])
    return 0


if __name__ == "__main__":
    sys.exit(main())
