"""cluster.py: a kofn cluster of real processes on loopback, for tests, for the demo and for `./run cluster`.

Ports are free ones; processes are ended by pid; everything lies under one directory. As a program it keeps a cluster in
the foreground until SIGINT or SIGTERM.
"""
import argparse
import base64
import hashlib
import http.client
import json
import os
import pathlib
import re
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.parse

SANITIZER_WORDS = ("ERROR: AddressSanitizer", "ERROR: LeakSanitizer", "runtime error:", "WARNING: ThreadSanitizer", "Assertion `")
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 40


PORTS = range(10240, 32000)  # below the range that outgoing connections take their ports from
_given = {}  # port -> what keeps it ours


def _claim(port):
    """Keeps other tests from a port while the host that has it is down: a name that lives as long as this process."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0kofn-test-port-{port}")
        return claim
    except OSError:
        claim.close()
        return None


def free_ports(count):
    """Ports that nobody listens on, and that no client of ours can be given while a host is down."""
    found = []
    while len(found) < count:
        port = secrets.choice(PORTS)
        claim = None if port in _given else _claim(port)
        if not claim:
            continue
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                claim.close()
                continue
        _given[port] = claim
        found.append(port)
    return found


def parse_pool(text):
    m = re.fullmatch(r"(\d+)\+(\d+)(?::(\w+))?", text)
    if not m:
        raise ValueError(f"pool `{text}` is not K+M or K+M:technique")
    return int(m.group(1)), int(m.group(2)), m.group(3)


class Host:
    def __init__(self, cluster, index):
        self.cluster, self.index = cluster, index
        self.id = f"n{index + 1}"
        self.address = cluster.addresses[index] if cluster.addresses else "127.0.0.1"
        self.prefix = cluster.prefixes[index] if cluster.prefixes else []
        self.dir = cluster.dir / self.id
        self.s3_port, self.peer_port, self.admin_port = free_ports(3)
        self.drives = [self.dir / f"d{i + 1}" for i in range(cluster.drives_per_host)]
        self.config = self.dir / "kofn.yaml"
        self.log = self.dir / "log"
        self.process = None

    @property
    def s3(self):
        return f"http://{self.address}:{self.s3_port}"

    @property
    def admin(self):
        return f"http://{self.address}:{self.admin_port}"

    @property
    def command(self):
        return [str(self.cluster.binary), "server", "--config", str(self.config)]

    @property
    def pid(self):
        return self.process.pid if self.process else None

    def start(self, extra_env=None):
        env = {k: v for k, v in os.environ.items() if not k.startswith("KOFN_") or k.startswith("KOFN_TEST_")}
        env.setdefault("TSAN_OPTIONS", f"suppressions={pathlib.Path(__file__).with_name('tsan.supp')}")
        env.update(extra_env or {})
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([*self.prefix, *self.command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env=env, start_new_session=True)
        return self

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def kill(self, sig=signal.SIGKILL):
        """Sends a signal; after one that ends the process, waits for it and returns its exit status."""
        if not self.alive():
            return self.process.returncode if self.process else None
        self.process.send_signal(sig)
        if sig in (signal.SIGSTOP, signal.SIGCONT):
            return None
        return self.process.wait(STOP_TIMEOUT_S)

    def request_admin(self, method, path, body=None, timeout=30):
        c = http.client.HTTPConnection(self.address, self.admin_port, timeout=timeout)
        try:
            c.request(method, path, body)
            r = c.getresponse()
            return r.status, r.read()
        finally:
            c.close()

    def admin_json(self, path):
        status, body = self.request_admin("GET", path)
        if status != 200:
            raise AssertionError(f"{self.id} {path}: {status} {body[:300]!r}")
        return json.loads(body)

    def ready(self, what="write"):
        try:
            return self.request_admin("GET", f"/health/ready?for={what}", timeout=5)[0] == 200
        except OSError:
            return False

    def log_text(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def code(self):
        m = re.search(rb"<Code>(\w+)</Code>", self.body)
        return m.group(1).decode() if m else None

    def __repr__(self):
        return f"<{self.status} {self.code() or ''} {self.body[:200]!r}>"


class Cluster:
    def __init__(self, directory, hosts=3, drives_per_host=1, pool="2+1", binary=None, settings="", pools=None,
                 server="", zones=None, addresses=None, prefixes=None):
        """`addresses` and `prefixes`, one per host: where it listens, and the command that runs it (it must exec, so that
        the process stays our child): hosts in network namespaces of their own."""
        self.dir = pathlib.Path(directory).resolve()
        self.drives_per_host = drives_per_host
        self.pool = pool
        self.binary = pathlib.Path(binary or os.environ.get("KOFN_BIN", "kofn")).resolve()
        self.access_key = "KOFN" + secrets.token_hex(8).upper()
        self.secret_key = secrets.token_hex(20)
        self.settings, self.server, self.zones = settings, server, zones
        self.addresses, self.prefixes = addresses, prefixes
        self.pools = pools or [("default", pool, "")]
        self.dir.mkdir(parents=True, exist_ok=True)
        (self.dir / "secret").write_text(secrets.token_hex(32))
        (self.dir / "secret_key").write_text(self.secret_key)
        for name in ("secret", "secret_key"):
            os.chmod(self.dir / name, 0o600)
        self.hosts = [Host(self, i) for i in range(hosts)]
        for h in self.hosts:
            for d in h.drives:
                d.mkdir(parents=True, exist_ok=True)
            self.write_config(h)

    def write_config(self, host):
        lines = [f"cluster: {{name: test, secret_file: {self.dir}/secret}}", "hosts:"]
        for i, h in enumerate(self.hosts):
            drives = ", ".join(f"{{name: {d.name}, path: {d}}}" for d in h.drives)
            zone = f", zone: {self.zones[i]}" if self.zones else ""
            lines.append(f'  - {{id: {h.id}, address: "{h.address}:{h.peer_port}"{zone}, drives: [{drives}]}}')
        lines.append("pools:")
        for name, pool, extra in self.pools:
            k, m, technique = parse_pool(pool)
            t = f", technique: {technique}" if technique else ""
            lines.append(f"  - {{name: {name}, k: {k}, m: {m}{t}{extra}}}")
        lines.append("users:")
        lines.append(f"  - {{name: root, access_key: {self.access_key}, secret_key_file: {self.dir}/secret_key}}")
        lines.append("server:")
        for field, value in [("host", host.id), ("s3_listen", f'"{host.address}:{host.s3_port}"'),
                             ("admin_listen", f'"{host.address}:{host.admin_port}"'),
                             ("peer_listen", f'"{host.address}:{host.peer_port}"'), ("state_dir", host.dir / "state")]:
            lines.append(f"  {field}: {value}")
        lines += [f"  {line}" for line in self.server.splitlines() if line.strip()]
        lines.append("drive:")
        lines += [f"  {field}: {value}" for field, value in (("reserve_bytes", "64MiB"), ("index_map_bytes", "1GiB"))
                  if f"{field}:" not in self.settings]
        lines += [f"  {line}" for line in self.settings.splitlines() if line.strip()]
        host.config.write_text("\n".join(lines) + "\n")

    # ---- life ----
    def start(self, wait="write"):
        for h in self.hosts:
            h.start()
        if wait:
            self.wait_ready(what=wait)
        return self

    def wait_ready(self, hosts=None, what="write", timeout=START_TIMEOUT_S):
        end = time.monotonic() + timeout
        waiting = list(hosts or self.hosts)
        while waiting:
            for h in waiting:
                if not h.alive():
                    raise AssertionError(f"{h.id} ended with {h.process.returncode}:\n{h.log_text()[-3000:]}")
            waiting = [h for h in waiting if not h.ready(what)]
            if waiting and time.monotonic() > end:
                logs = "\n".join(f"--- {h.id}\n{h.log_text()[-2000:]}" for h in waiting)
                raise AssertionError(f"not ready for {what} after {timeout} s:\n{logs}")
            if waiting:
                time.sleep(0.05)

    def wait_sight(self, host, others, up=True, timeout=START_TIMEOUT_S):
        """Until `host` sees the drives of `others` up (or down)."""
        ids = {h.id for h in others}
        end = time.monotonic() + timeout
        while True:
            seen = {x["id"]: all(d["up"] for d in x["drives"]) for x in host.admin_json("/admin/v1/status")["hosts"]}
            if all(seen[i] == up for i in ids):
                return
            if time.monotonic() > end:
                raise AssertionError(f"{host.id} does not see {ids} {'up' if up else 'down'}: {seen}")
            time.sleep(0.05)

    def stop(self, sig=signal.SIGTERM):
        """Ends all hosts, also those that somebody started again by hand. Returns exit statuses."""
        for h in self.hosts:
            if h.alive():
                h.process.send_signal(signal.SIGCONT)
                h.process.send_signal(sig)
        statuses = []
        for h in self.hosts:
            if not h.process:
                continue
            try:
                statuses.append(h.process.wait(STOP_TIMEOUT_S))
            except subprocess.TimeoutExpired:
                h.process.kill()
                statuses.append(h.process.wait())
        for pid in self.strangers():
            os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + STOP_TIMEOUT_S
        while self.strangers() and time.monotonic() < end:
            time.sleep(0.05)
        for pid in self.strangers():
            os.kill(pid, signal.SIGKILL)
        return statuses

    def strangers(self):
        """Pids of hosts of this directory that are not our children."""
        ours = {h.pid for h in self.hosts if h.alive()}
        configs = {str(h.config) for h in self.hosts}
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) in ours:
                continue
            try:
                args = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if state != "Z" and "server" in args and configs & set(args):
                found.append(int(entry.name))
        return found

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None:
            self.say_state()
        self.stop()
        if kind is not None:
            for h in self.hosts:
                print(f"--- log of {h.id}\n{h.log_text()[-4000:]}", file=sys.stderr)
            return
        for h in self.hosts:  # a host that was to be killed anyway must not have ended by itself before
            said = [line for line in h.log_text().splitlines() if any(w in line for w in SANITIZER_WORDS)]
            assert not said, f"{h.id} says: {said[:3]}\n{h.log_text()[-4000:]}"

    def say_state(self):
        """What each host says of itself, for somebody who reads why a test failed."""
        for h in self.hosts:
            for path in ("/admin/v1/status", "/metrics"):
                try:
                    status, body = h.request_admin("GET", path, timeout=5)
                    print(f"--- {h.id} {path}: {status}\n{body.decode(errors='replace')[-6000:]}", file=sys.stderr)
                except OSError as e:
                    print(f"--- {h.id} {path}: {e}", file=sys.stderr)

    # ---- a small S3 client ----
    def auth(self):
        pair = base64.b64encode(f"{self.access_key}:{self.secret_key}".encode()).decode()
        return {"Authorization": "Basic " + pair}

    def request(self, method, path, body=None, headers=None, host=None, timeout=60, auth=True):
        """`path` is sent as it is (percent-encoded by the caller)."""
        h = self.hosts[0] if host is None else host if isinstance(host, Host) else self.hosts[host]
        all_headers = dict(self.auth() if auth else {})
        all_headers.update(headers or {})
        c = http.client.HTTPConnection(h.address, h.s3_port, timeout=timeout)
        try:
            c.request(method, path, body, all_headers)
            r = c.getresponse()
            return Answer(r.status, r.headers, r.read())
        finally:
            c.close()

    @staticmethod
    def path(bucket, key):
        return f"/{bucket}/" + urllib.parse.quote(key, safe="/~")

    def put(self, bucket, key, body, **kw):
        return self.request("PUT", self.path(bucket, key), body, **kw)

    def get(self, bucket, key, **kw):
        return self.request("GET", self.path(bucket, key), **kw)

    def head(self, bucket, key, **kw):
        return self.request("HEAD", self.path(bucket, key), **kw)

    def delete(self, bucket, key, **kw):
        return self.request("DELETE", self.path(bucket, key), **kw)

    def put_whole(self, bucket, key, body, **kw):
        """PUTs until all drives of the key have it, and returns its slots: a PUT that has its quorum does not wait for a
        drive that is slower than a second, and a test that counts on every chunk would fail on a slow machine."""
        query = urllib.parse.urlencode({"bucket": bucket, "key": key})
        end = time.monotonic() + START_TIMEOUT_S
        while True:
            a = self.put(bucket, key, body, **kw)
            assert a.status in (200, 503), a
            for _ in range(30):
                slots = self.hosts[0].admin_json(f"/admin/v1/where?{query}")["slots"]
                rows = [s["rows"][0] for s in slots if s.get("rows")]
                if len(rows) == len(slots) and len({r["version"] for r in rows}) == 1 and \
                        all(r["chosen"] and r["chunk"] != "missing" for r in rows):
                    return slots
                time.sleep(0.1)
            assert time.monotonic() < end, f"no PUT of {key} reaches all its drives: {slots}"

    def make_bucket(self, bucket, **kw):
        a = self.request("PUT", f"/{bucket}", **kw)
        assert a.status == 200, a
        return a

    def list_keys(self, bucket, query="", host=None):
        """All keys, page by page."""
        keys, token = [], None
        while True:
            q = "list-type=2&encoding-type=url" + (f"&{query}" if query else "")
            q += f"&continuation-token={token}" if token else ""
            a = self.request("GET", f"/{bucket}?{q}", host=host)
            assert a.status == 200, a
            keys += [urllib.parse.unquote(k) for k in re.findall(r"<Key>(.*?)</Key>", a.body.decode())]
            m = re.search(r"<NextContinuationToken>(.*?)<", a.body.decode())
            if not m:
                return keys
            token = m.group(1)

    def describe(self):
        return {
            "hosts": [{"id": h.id, "pid": h.pid, "s3": h.s3, "admin": h.admin, "drives": [str(d) for d in h.drives],
                       "config": str(h.config), "log": str(h.log), "command": shlex.join(h.command)}
                      for h in self.hosts],
            "access_key": self.access_key, "secret_key": self.secret_key, "pool": self.pool}

    def write_json(self):
        path = self.dir / "cluster.json"
        tmp = path.with_suffix(".tmp")
        tmp.touch(mode=0o600)
        tmp.write_text(json.dumps(self.describe(), indent=2) + "\n")
        tmp.rename(path)
        return path


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def tree(directory):
    """Every file below a directory with its size: what a refused request must not change."""
    out = {}
    for root, _, files in os.walk(directory):
        for f in files:
            p = os.path.join(root, f)
            try:
                out[os.path.relpath(p, directory)] = os.stat(p).st_size
            except FileNotFoundError:
                pass
    return out


def main():
    parser = argparse.ArgumentParser(prog="./run cluster", description="Keeps a cluster in the foreground.")
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--drives-per-host", type=int, default=1)
    parser.add_argument("--pool", default="2+1", help="K+M or K+M:technique")
    parser.add_argument("--dir", required=True, help="everything lies here; DIR/cluster.json is written once it serves")
    args = parser.parse_args()
    try:
        parse_pool(args.pool)
    except ValueError as e:
        parser.error(str(e))
    if args.hosts < 1 or args.drives_per_host < 1:
        parser.error("--hosts and --drives-per-host are 1 or more")
    directory = pathlib.Path(args.dir)
    if directory.exists() and any(directory.iterdir()):
        parser.error(f"{directory} is not empty")
    stopping = []
    for sig in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sig, lambda *_: stopping.append(1))
    cluster = Cluster(directory, args.hosts, args.drives_per_host, args.pool)
    check = subprocess.run([str(cluster.binary), "config", "check", str(cluster.hosts[0].config)], text=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if check.returncode != 0:
        print(check.stderr.strip(), file=sys.stderr)
        return 2
    cluster.start(wait=None)
    try:
        end = time.monotonic() + START_TIMEOUT_S
        while not stopping and not all(h.ready() for h in cluster.hosts):
            dead = [h for h in cluster.hosts if not h.alive()]
            if dead or time.monotonic() > end:
                for h in dead or cluster.hosts:
                    print(f"--- {h.id}\n{h.log_text()[-2000:]}", file=sys.stderr)
                return 1
            time.sleep(0.05)
        if not stopping:
            path = cluster.write_json()
            first = cluster.hosts[0]
            print(f"{args.hosts} hosts serve; {path} says where. Try:\n"
                  f"  curl -u {cluster.access_key}:{cluster.secret_key} -X PUT {first.s3}/bucket\n"
                  f"  curl -u {cluster.access_key}:{cluster.secret_key} -T FILE {first.s3}/bucket/key\n"
                  f"  {cluster.binary} status {first.admin[7:]}\n"
                  "Ctrl-C ends it.", flush=True)
        while not stopping:
            time.sleep(0.2)
            for h in cluster.hosts:
                h.alive()  # reaps what was killed
    finally:
        cluster.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
