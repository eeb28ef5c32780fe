"""test_proxies.py: nginx and haproxy in front of kofn stay in step with it, each in strict and in lenient settings.

1. Ordinary S3 traffic through each, with a second client on the same upstream connection that must get its own answers.
2. Every case of smuggling_cases.py through each. The proxies refuse whatever they see of /smuggle/victim* and
   /smuggle/marker*: a request for one of them that kofn executes was smuggled past its proxy. After each case a second
   client's GET and PUT must get their own answers, and no answer's id is seen twice.

Skips (77) where the proxies are not there and cannot be installed. It fails when kofn does not skip a body that it has not
read before it takes the next request, or ends a connection behind an early answer without saying so in it.
"""
import contextlib
import hashlib
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from cluster import free_ports
from smuggling_cases import BUCKET, CASES, render
from wire import Closed, Wire, auth_line, expect, head, running

PROXIES = ("nginx", "haproxy")
TIMEOUT_S = 120  # longer than the proxies wait
IDLE_S = 5  # a client's connection that rested longer is not used again: the proxy may just be closing it
QUIET_S = 0.4  # a client whose request is not complete waits that long and leaves
KEPT = "/(victim|marker)"  # what the proxies refuse
IDS = 8
MIB = 1 << 20

NGINX = """daemon off; worker_processes 1; pid {dir}/nginx.pid; error_log {dir}/error.log; {user}
events {{ worker_connections 512; }}
http {{
  access_log off; client_max_body_size 0; keepalive_requests 1000000; large_client_header_buffers 8 64k;
  client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u;
  scgi_temp_path {dir}/s; client_body_buffer_size 64k; proxy_http_version 1.1; proxy_set_header Connection "";
  proxy_set_header Host $http_host; proxy_next_upstream off; proxy_read_timeout 110s;
  upstream strict {{ server 127.0.0.1:{kofn}; keepalive 1; keepalive_requests 1000000; }}
  upstream lenient {{ server 127.0.0.1:{kofn}; keepalive 1; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{strict};
    location ~ ^/{bucket}/(victim|marker) {{ return 403; }}
    location / {{ proxy_pass http://strict; }}
  }}
  server {{
    listen 127.0.0.1:{lenient};
    ignore_invalid_headers off; underscores_in_headers on; merge_slashes off;
    location ~ ^/{bucket}/(victim|marker) {{ return 403; }}
    location / {{ proxy_pass http://lenient; proxy_request_buffering off; proxy_buffering off; }}
  }}
}}
"""

HAPROXY = """global
  maxconn 500
  nbthread 1
  tune.bufsize 65536
  tune.maxrewrite 1024
  tune.http.maxhdr 256
defaults
  mode http
  option http-keep-alive
  timeout connect 60s
  timeout client 110s
  timeout server 110s
  timeout queue 110s
frontend strict
  bind 127.0.0.1:{strict}
  http-request deny deny_status 403 if {{ path_beg /{bucket}/victim /{bucket}/marker }}
  default_backend strict
frontend lenient
  bind 127.0.0.1:{lenient}
  option accept-invalid-http-request
  http-request deny deny_status 403 if {{ path_beg /{bucket}/victim /{bucket}/marker }}
  default_backend lenient
backend strict
  http-reuse safe
  server kofn 127.0.0.1:{kofn} maxconn 1
backend lenient
  http-reuse always
  server kofn 127.0.0.1:{kofn} maxconn 1
"""


def find(name):
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/local/sbin")


def install():
    """The proxies' names that are missing; as root on Debian they are installed first."""
    missing = [p for p in PROXIES if not find(p)]
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}  # the services are not to start
        for args in (["update"], ["-y", "install", "--no-install-recommends", *missing]):
            subprocess.run(["apt-get", "-qq", *args], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, check=False)
    return [p for p in PROXIES if not find(p)]


@contextlib.contextmanager
def proxy(name, directory, kofn_port):
    """Yields {settings' name: port}."""
    d = pathlib.Path(directory) / name
    d.mkdir()
    ports = dict(zip(("strict", "lenient"), free_ports(2)))
    text = {"nginx": NGINX, "haproxy": HAPROXY}[name]
    conf = d / "conf"
    user = "user root;" if os.geteuid() == 0 else ""
    conf.write_text(text.format(dir=d, kofn=kofn_port, bucket=BUCKET, user=user, **ports))
    args = {"nginx": ["-c", conf, "-e", d / "error.log"], "haproxy": ["-db", "-f", conf]}[name]
    with open(d / "output", "wb") as output:
        process = subprocess.Popen([find(name), *args], stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        end = time.monotonic() + TIMEOUT_S
        while True:
            try:
                Wire(ports["lenient"]).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < end, f"{name}: {(d / 'output').read_text()}"
                time.sleep(0.05)
        yield ports
        assert process.poll() is None, f"{name} ended: {(d / 'output').read_text()[-2000:]}"
    except BaseException:
        for log in (d / "output", d / "error.log"):
            print(f"--- {log.name} of {name}\n{log.read_text(errors='replace')[-3000:] if log.exists() else ''}", file=sys.stderr)
        raise
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


class Proxied:
    """One way through a proxy, with the second client (`other`) whose answers must be its own."""

    def __init__(self, cluster, name, port, ids):
        self.cluster, self.name, self.port, self.auth, self.ids = cluster, name, port, auth_line(cluster), ids
        self.turns = random.Random(name)
        self.count = 0
        self.other, self.asked = None, 0

    def client(self):
        return Wire(self.port, timeout=TIMEOUT_S)

    def head(self, method, key, *lines):
        return head(method, f"/{BUCKET}/{key}", self.auth, *lines)

    def note(self, found, what):
        for i in found:
            assert i not in self.ids, f"{what}: answer {i} was given twice"
            self.ids.add(i)

    def in_step(self, what):
        """The second client asks for what nobody else asks for."""
        self.count += 1
        i, body = self.turns.randrange(IDS), f"{self.name} {self.count}".encode()
        try:
            if self.other is None or time.monotonic() - self.asked > IDLE_S:
                self.other = self.client()
            self.other.send(self.head("GET", f"id-{i}"))
            got = self.other.answer()
            self.other.send(self.head("PUT", "own", f"Content-Length: {len(body)}") + body)
            put, self.asked = self.other.answer(), time.monotonic()
        except (Closed, TimeoutError, AssertionError) as e:
            self.other = None
            raise AssertionError(f"{self.name}, behind {what}: the next client: {e!r}") from None
        if got.headers.get("connection") == "close" or put.headers.get("connection") == "close":
            self.other = None
        assert got.status == 200 and got.body == b"id %d" % i, f"{self.name}, behind {what}: {got}, expected id {i}"
        etag = f'"{hashlib.md5(body).hexdigest()}"'
        assert put.status == 200 and put.headers.get("etag") == etag, f"{self.name}, behind {what}: {put} {put.headers}"
        self.note([a.headers["x-amz-request-id"] for a in (got, put)], what)


def metric(cluster, name):
    text = cluster.hosts[0].request_admin("GET", "/metrics")[1].decode()
    return int(re.search(rf"^{name} (\d+)", text, re.M).group(1))


OURS = set()  # ports of our own connections to kofn


def upstream(port):
    """The proxy's connections to kofn, by their ports."""
    found = set()
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, *_ = line.split()
        if state == "01" and int(remote.split(":")[1], 16) == port:
            found.add(int(local.split(":")[1], 16))
    return found - OURS


# ---- ordinary traffic ----

def chunks_of(data, turns):
    out, at = [], 0
    while at < len(data):
        n = turns.choice((1, 15, 4096, 70000, 300000))
        out += [f"{len(data[at:at + n]):x}\r\n".encode(), data[at:at + n], b"\r\n"]
        at += n
    return b"".join(out) + b"0\r\n\r\n"


def exchange(p, what, data, status, method="GET", body=None, later=b"", ends=False):
    """One request of a client of its own, then the second client's. `later` is sent behind a 100, if one comes. `ends`: the
    proxy may end the client's connection behind the answer without saying so, as nginx does with a body half read."""
    with p.client() as w:
        w.send(data)
        a = w.answer(method)
        while a.status == 100:
            w.send(later)
            a = w.answer(method)
        assert a.status == status, f"{p.name}, {what}: {a}, expected {status}"
        assert body is None or a.body == body, f"{p.name}, {what}: {len(a.body)} bytes: {a.body[:60]!r}"
        if a.headers.get("connection") != "close" and not later:
            w.send(p.head("GET", "id-0"))
            try:
                assert expect(w.answer(), 200).body == b"id 0", what
            except (Closed, AssertionError) as e:
                assert ends and isinstance(e, Closed), f"{p.name}, {what}: the next request: {e!r}"
    p.in_step(what)
    return a


def puts_and_gets(p):
    for size in (0, 1, 5000, 300000, 3 * MIB):
        data = p.turns.randbytes(size)
        etag = f'"{hashlib.md5(data).hexdigest()}"'
        for words, extra, sent in ((f"PUT of {size}", f"Content-Length: {size}", data),
                                   (f"PUT in chunks of {size}", "Transfer-Encoding: chunked", chunks_of(data, p.turns))):
            a = exchange(p, words, p.head("PUT", "data", extra) + sent, 200)
            assert a.headers["etag"] == etag, words
            exchange(p, f"GET behind {words}", p.head("GET", "data"), 200, body=data)
            exchange(p, f"{words}, Expect", p.head("PUT", "data", extra, "Expect: 100-continue"), 200, later=sent)
            exchange(p, f"GET behind {words}, Expect", p.head("GET", "data"), 200, body=data)
        a = exchange(p, f"HEAD of {size}", p.head("HEAD", "data"), 200, "HEAD")
        assert a.headers["content-length"] == str(size)
        exchange(p, f"304 of {size}", p.head("GET", "data", f"If-None-Match: {etag}"), 304)
        exchange(p, f"HEAD, 304 of {size}", p.head("HEAD", "data", f"If-None-Match: {etag}"), 304, "HEAD")
        exchange(p, f"412 of {size}", p.head("GET", "data", 'If-Match: "00"'), 412)
        exchange(p, f"416 of {size}", p.head("GET", "data", f"Range: bytes={size + 1}-"), 416)
        if size > 10:
            exchange(p, f"206 of {size}", p.head("GET", "data", "Range: bytes=3-7"), 206, body=data[3:8])
        exchange(p, f"list of {size}", head("GET", f"/{BUCKET}?list-type=2", p.auth), 200)
        exchange(p, f"DELETE of {size}", p.head("DELETE", "data"), 204)
        exchange(p, f"404 of {size}", p.head("GET", "data"), 404)
        exchange(p, f"HEAD, 404 of {size}", p.head("HEAD", "data"), 404, "HEAD")


def early_answers(p):
    """Answers in front of bodies that nobody reads: short ones are skipped, long ones end the connection."""
    for size in (10, 100000, MIB, 4 * MIB):
        data = b"GET / HTTP/1.1\r\n\r\n" * (size // 18 + 1)
        for extra, sent in ((f"Content-Length: {len(data)}", data), ("Transfer-Encoding: chunked", chunks_of(data, p.turns))):
            for what, start, status in (("no credentials", head("PUT", f"/{BUCKET}/x", extra), 403),
                                        ("no bucket", head("PUT", "/no-such-bucket/x", p.auth, extra), 404),
                                        ("a sub-resource", head("PUT", f"/{BUCKET}/x?acl", p.auth, extra), 501),
                                        ("a condition", p.head("PUT", "id-0", "If-None-Match: *", extra), 412),
                                        ("GET", p.head("GET", "id-1", extra), 200)):
                words = f"{what}, {size}, {extra}"
                exchange(p, words, start + sent, status, ends=True)
                exchange(p, words + ", Expect", start.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"), status, later=sent)


def leavers(p):
    """Clients that go away in the middle of a body or of an answer."""
    big = p.turns.randbytes(8 * MIB)
    exchange(p, "a big PUT", p.head("PUT", "big", f"Content-Length: {len(big)}") + big, 200)
    for i in range(6):
        with p.client() as w:
            w.send(p.head("GET", "big"))
            w.take(1 + 100000 * i)
            if i % 2:
                w.reset()
        p.in_step(f"a GET left, {i}")
        with p.client() as w:
            extra = f"Content-Length: {len(big)}" if i < 3 else "Transfer-Encoding: chunked"
            w.send(p.head("PUT", "left", extra) + (b"" if i < 3 else b"7fffff\r\n") + big[:1 + 300000 * i])
            if i % 2:
                w.reset()
        p.in_step(f"a PUT left, {i}")
    exchange(p, "the object of the PUTs left", p.head("GET", "left"), 404)


def crowd(p):
    """Eight clients at once, pipelining: every answer is the asker's."""
    faults = []

    def client(n):
        turns = random.Random(n)
        try:
            with p.client() as w:
                for _ in range(6):
                    asked = [turns.randrange(IDS) for _ in range(4)]
                    w.send(b"".join(p.head("GET", f"id-{i}") for i in asked))
                    for i in asked:
                        assert expect(w.answer(), 200).body == b"id %d" % i
                    body = turns.randbytes(turns.choice((3, 3000, 100000)))
                    w.send(p.head("PUT", f"crowd-{n}", "Transfer-Encoding: chunked") + chunks_of(body, turns) + p.head("GET", f"crowd-{n}"))
                    expect(w.answer(), 200)
                    assert expect(w.answer(), 200).body == body
        except (AssertionError, OSError, Closed) as e:
            faults.append(f"{p.name}, client {n}: {e!r}")

    threads = [threading.Thread(target=client, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults, faults
    p.in_step("a crowd")


# ---- smuggling ----

def say_case(p, case, number):
    """Sends the case as a client of its own would, and reads what comes."""
    data = render(case.text, f"/{BUCKET}/target-{number}", p.auth, f"marker-{number}").encode("latin-1")
    got = b""
    with Wire(p.port, timeout=QUIET_S) as w:
        w.send(data)
        if not case.end:  # the proxy ends the connection behind this, if it is still in step with what was sent
            w.send(head("GET", f"/{BUCKET}/id-0", p.auth, "Connection: close"))
        with contextlib.suppress(Closed, TimeoutError):
            while True:
                got += w.receive()
    p.note(re.findall(rb"(?i)\r\nx-amz-request-id: (\w+)", got), case.name)
    return got


def check_kept(p, direct, what, number):
    direct.send(p.head("GET", "victim"))
    a = direct.answer()
    direct.send(p.head("HEAD", f"marker-{number}"))
    b = direct.answer("HEAD")
    if a.status != 200:
        direct.send(p.head("PUT", "victim", "Content-Length: 6") + b"victim")
        direct.answer()
    assert a.status == 200, f"{p.name}, {what}: a DELETE was smuggled past the proxy"
    assert b.status == 404, f"{p.name}, {what}: a PUT was smuggled past the proxy"


def smuggle(p, faults):
    """Every case, and the second client behind each."""
    cluster, counters = p.cluster, ("kofn_http_requests_total", "kofn_http_bad_requests_total")
    kofn, same = cluster.hosts[0].s3_port, 0
    with Wire(kofn, timeout=TIMEOUT_S) as direct:
        OURS.add(direct.sock.getsockname()[1])
        before, seen = [metric(cluster, c) for c in counters], 0
        for number, case in enumerate(CASES):
            try:
                ports = set() if case.closes else upstream(kofn)
                say_case(p, case, number)
                p.in_step(case.name)
                same += len(ports) > 0 and ports == upstream(kofn)
                check_kept(p, direct, case.name, number)
                seen += 4
            except AssertionError as e:
                faults.append(str(e))
        requests, bad = (metric(cluster, c) - n for c, n in zip(counters, before))
        return requests - seen, bad, same


def main():
    missing = install()
    if missing:
        print(f"SKIPPED: {', '.join(missing)} cannot be found or installed here (apt-get install {' '.join(missing)})")
        return 77
    faults, ids = [], set()
    with running("1 host") as cluster, tempfile.TemporaryDirectory(prefix="kofn-test-") as directory:
        cluster.make_bucket(BUCKET)
        for i in range(IDS):
            expect(cluster.put(BUCKET, f"id-{i}", b"id %d" % i), 200)
        expect(cluster.put(BUCKET, "victim", b"victim"), 200)
        for name in PROXIES:
            with proxy(name, directory, cluster.hosts[0].s3_port) as ports:
                for settings, port in ports.items():
                    p = Proxied(cluster, f"{name} ({settings})", port, ids)
                    for check in (puts_and_gets, early_answers, leavers, crowd):
                        check(p)
                        print(f"ok {p.name}: {check.__name__.replace('_', ' ')}, in step", flush=True)
                    passed, bad, same = smuggle(p, faults)
                    print(f"{p.name}: {len(CASES)} cases; {passed} requests of theirs were taken by kofn and {bad} refused; {same} "
                          "times all stayed on one connection to kofn", flush=True)
                    assert same >= 40, f"{p.name} does not keep its connections: {same}"
        assert not faults, f"{len(faults)} faults:\n" + "\n".join(faults)
    return 0


if __name__ == "__main__":
    sys.exit(main())
