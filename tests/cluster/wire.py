"""wire.py: HTTP by hand, for tests that must decide about every byte; and what those tests share.

Wire is one connection: it sends what it is given and reads answers strictly, so that a wrong length, a missing header or
a byte too many is noticed by the test and not healed by a client library.
"""
import contextlib
import re
import shutil
import socket
import tempfile
import time
import xml.etree.ElementTree

from cluster import Answer, Cluster

NAMESPACE = "{http://s3.amazonaws.com/doc/2006-03-01/}"
TIMEOUT_S = 60


class Headers(dict):
    """Of an answer: names in lower case; a name that comes twice is an error of the answer."""

    def get(self, name, default=None):
        return super().get(name.lower(), default)

    def __getitem__(self, name):
        return super().__getitem__(name.lower())

    def __contains__(self, name):
        return super().__contains__(name.lower())


class Closed(Exception):
    """The other end closed or reset the connection before an answer was whole."""


class Wire:
    def __init__(self, port, timeout=TIMEOUT_S):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.data = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def reset(self):
        """Closes so that the other end gets a reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.sock.close()

    def send(self, data):
        """Sends all, or as much as the other end takes before it closes."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.sock.sendall(data)

    def receive(self, read_so_far=b""):
        try:
            got = self.sock.recv(1 << 18)
        except ConnectionResetError:
            raise Closed(f"reset, behind {len(read_so_far)} bytes that begin {bytes(read_so_far[:200])!r}") from None
        if not got:
            raise Closed(f"closed, behind {len(read_so_far)} bytes that begin {bytes(read_so_far[:200])!r}")
        return got

    def more(self):
        self.data += self.receive(self.data)

    def take(self, size):
        out = bytearray(self.data)
        while len(out) < size:
            out += self.receive(out)
        self.data = bytes(out[size:])
        return bytes(out[:size])

    def line(self):
        while b"\r\n" not in self.data:
            self.more()
        out, _, self.data = self.data.partition(b"\r\n")
        return out

    def answer(self, method="GET"):
        """The next answer; 100 Continue counts as one."""
        first = self.line().decode()
        m = re.fullmatch(r"HTTP/1\.1 (\d{3}) (.+)", first)
        assert m, f"status line {first!r}"
        status, headers = int(m.group(1)), Headers()
        while line := self.line().decode():
            name, _, value = line.partition(": ")
            assert name.lower() not in headers, f"{name} comes twice"
            headers[name.lower()] = value
        if status == 100:
            return Answer(status, headers, b"")
        if method == "HEAD" or status in (204, 304):
            body = b""
        elif headers.get("transfer-encoding") == "chunked":
            assert "content-length" not in headers, headers
            body = b""
            while size := int(self.line(), 16):
                body += self.take(size)
                assert self.take(2) == b"\r\n"
            assert self.line() == b"", "trailers"
        else:
            body = self.take(int(headers["content-length"]))
        check_answer(status, headers, body)
        return Answer(status, headers, body)

    def is_closed(self):
        """Waits for the other end to close; True. Data that comes instead is an error."""
        try:
            self.more()
        except Closed:
            return True
        raise AssertionError(f"an open connection brings {self.data[:300]!r}")


def check_answer(status, headers, body):
    """What every answer owes."""
    assert re.fullmatch(r"[0-9A-F]{16}", headers.get("x-amz-request-id", "")), headers
    assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", headers.get("date", "")), headers
    if status >= 400 and body:
        assert headers["content-type"] == "application/xml", headers
        root = xml.etree.ElementTree.fromstring(body)
        assert root.tag == "Error", body
        for name in ("Code", "Message", "Resource", "RequestId"):
            assert root.find(name) is not None, f"no <{name}> in {body!r}"
        assert root.find("RequestId").text == headers["x-amz-request-id"], body
    if status == 503:
        assert int(headers["retry-after"]) >= 1, headers


def head(method, target, *lines, host="kofn.test"):
    """A request's head; `lines` are header lines. Text is sent as latin-1, so that any byte can be asked for."""
    text = "\r\n".join([f"{method} {target} HTTP/1.1", f"Host: {host}", *lines]) + "\r\n\r\n"
    return text.encode("latin-1")


def auth_line(cluster):
    return "Authorization: " + cluster.auth()["Authorization"]


def ask(cluster, method, target, *lines, body=b"", host=0):
    """One request on a connection of its own."""
    with Wire(cluster.hosts[host].s3_port) as w:
        length = [f"Content-Length: {len(body)}"] if body or method in ("PUT", "POST") else []
        w.send(head(method, target, auth_line(cluster), "Connection: close", *length, *lines) + body)
        answer = w.answer(method)
        assert w.data == b"", f"bytes behind the answer: {w.data[:100]!r}"
        assert answer.headers.get("connection") == "close", answer.headers
        assert w.is_closed()
        return answer


def expect(answer, status, code=None):
    assert answer.status == status, f"{answer}, expected {status} {code or ''}"
    if code:
        assert answer.code() == code, f"{answer}, expected {code}"
    return answer


def xml_of(answer):
    """The document without the namespace in its names."""
    root = xml.etree.ElementTree.fromstring(answer.body)
    assert root.tag.startswith(NAMESPACE), answer.body[:300]
    for element in root.iter():
        element.tag = element.tag.removeprefix(NAMESPACE)
    return root


def eventually(what, check, timeout=60):
    """Waits until check() is true; fails with its last value otherwise."""
    end = time.monotonic() + timeout
    while not (seen := check()):
        assert time.monotonic() < end, f"{what}: still {seen!r} after {timeout} s"
        time.sleep(0.05)
    return seen


CLUSTERS = {"1 host": {"hosts": 1, "drives_per_host": 3, "pool": "2+1"}, "3 hosts": {"hosts": 3, "pool": "2+1"}}


@contextlib.contextmanager
def running(shape="3 hosts", **extra):
    directory = tempfile.mkdtemp(prefix="kofn-test-")
    try:
        with Cluster(directory, **{**CLUSTERS[shape], **extra}) as cluster:
            yield cluster.start()
            alive = [h for h in cluster.hosts if h.alive()]
            cluster.stop()
            ends = {h.id: h.process.returncode for h in alive}
            assert not any(ends.values()), f"exit statuses {ends}"
            for h in cluster.hosts:
                found = re.search(r"(Sanitizer|runtime error:|Assertion ).*", h.log_text())
                assert not found, f"{h.id}: {found.group()}"
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def run_on_both(checks):
    """Each check on one host with three drives, and on three hosts."""
    for shape in CLUSTERS:
        with running(shape) as cluster:
            for check in checks:
                check(cluster)
                print(f"ok {shape}: {check.__doc__.strip().splitlines()[0]}", flush=True)
