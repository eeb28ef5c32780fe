"""test_chaos.py: clients on all hosts write, read, delete, list and hang up while hosts are killed, stopped and restarted.

Every answer goes into its key's history; in the end each history must be linearizable, all that was acknowledged must
read back byte for byte at every host, the list must say the same, and nothing may be left behind: no undecided rows, no
open stages, no buffers. KOFN_CHAOS_SEED repeats a run's choices (not its timing), KOFN_CHAOS_SECONDS makes it longer.
"""
import hashlib
import http.client
import os
import random
import re
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time

from cluster import Cluster
from linear import Op, TooHard, linearizable

SECONDS = float(os.environ.get("KOFN_CHAOS_SECONDS", "30"))
CLIENTS = 6
SLOTS = 6            # keys that are busy at the same time
OPS_PER_KEY = 50     # then the slot goes on with a new key: histories stay short enough to be judged
SIZES = [0, 1, 100, 5_000, 40_000, 130_000, 1_500_000, 3_000_000]
ANSWER_S = 45        # no request may hang for longer, whatever happens to the hosts
BUCKET = "chaos"
NO_EFFECT = b"Too few drives are in reach"  # the 503 that says that nothing happened


# libuv closes descriptors by raw system calls, which TSan does not see: the next owner of a number looks like a race.
TSAN_SUPPRESSIONS = "race:store_files_*\nrace:chunk_file_*\nrace:state_write\nrace:write_all\n"


def body_of(value):
    """The bytes that a value stands for: they can be checked without having been kept."""
    name, size = value
    seed = hashlib.sha256(name.encode()).digest()
    block = b"".join(hashlib.sha256(seed + bytes([i])).digest() for i in range(32))
    return (name.encode() + b"\n" + block * (size // len(block) + 1))[:size] if size else b""


class Chaos:
    def __init__(self, cluster, seed):
        self.c, self.seed = cluster, seed
        self.lock = threading.Lock()
        self.histories = {}
        self.key_of = [self.key_name(i, 0) for i in range(SLOTS)]
        self.values = {}
        self.count = {}
        self.faults = []
        self.stop = threading.Event()
        self.serial = 0

    @staticmethod
    def key_name(slot, generation):
        return f"{'once' if slot % 3 == 2 else 'key'}-{slot}/g{generation}"

    def pick_key(self, rng):
        slot = rng.randrange(SLOTS)
        with self.lock:
            key = self.key_of[slot]
            history = self.histories.setdefault(key, [])
            if len(history) >= OPS_PER_KEY:
                self.key_of[slot] = key = self.key_name(slot, int(key.rpartition("g")[2]) + 1)
                self.histories[key] = []
        return key

    def new_value(self, rng):
        with self.lock:
            self.serial += 1
            value = (f"v{self.serial}", rng.choice(SIZES))
            self.values[hashlib.sha256(body_of(value)).digest()] = value if value[1] > 8 else None
        return value

    def note(self, key, op, what):
        with self.lock:
            if op:
                self.histories[key].append(op)
            self.count[what] = self.count.get(what, 0) + 1

    def fault(self, words):
        with self.lock:
            self.faults.append(words)
        print("FAULT:", words, flush=True)

    # ---- clients ----
    def client(self, number):
        rng = random.Random(f"{self.seed}/client {number}")
        while not self.stop.is_set():
            key, host = self.pick_key(rng), rng.choice(self.c.hosts)
            once = key.startswith("once")
            draw = rng.random()
            try:
                if draw < 0.35:
                    self.put(rng, key, host, create=once)
                elif draw < 0.70:
                    self.get(key, host)
                elif draw < 0.82:
                    self.delete(key, host)
                elif draw < 0.90:
                    self.hang_up(rng, key, host)
                else:
                    self.list(host)
            except Exception as e:  # a fault of the test itself must not pass for silence
                self.fault(f"client {number}: {e!r}")
                raise

    def ask(self, method, key, host, body=None, headers=None):
        """An answer, or None where the connection failed; a hang is a fault."""
        began = time.monotonic()
        try:
            return self.c.request(method, self.c.path(BUCKET, key), body, headers, host=host, timeout=ANSWER_S)
        except TimeoutError:
            if not self.disturbed_since(host, began):
                self.fault(f"{method} {key} at {host.id}: no answer within {ANSWER_S} s")
        except (OSError, http.client.HTTPException):
            time.sleep(0.02)
        return None

    def disturbed_since(self, host, began):
        return getattr(host, "disturbed", 0) >= began

    def put(self, rng, key, host, create):
        value = self.new_value(rng)
        kind = "create" if create else "write"
        start = time.monotonic()
        a = self.ask("PUT", key, host, body_of(value), {"If-None-Match": "*"} if create else None)
        end = time.monotonic()
        if a is None:
            self.note(key, Op(start, end, kind, value, False), "put ?")
        elif a.status == 200:
            self.note(key, Op(start, end, kind, value), "put")
        elif a.status == 412 and create:
            self.note(key, Op(start, end, "exists", None), "put 412")
        elif a.status == 409 and create:
            self.note(key, None, "put 409")
        elif a.status == 503 and NO_EFFECT in a.body:
            self.note(key, None, "put 503 no effect")
        elif a.status in (500, 503):
            self.note(key, Op(start, end, kind, value, False), "put 503 unknown")
        else:
            self.fault(f"PUT {key} at {host.id}: {a}")

    def get(self, key, host):
        start = time.monotonic()
        a = self.ask("GET", key, host)
        end = time.monotonic()
        if a is None:
            self.note(key, None, "get ?")
        elif a.status == 200:
            value, ok = self.value_of(key, a.body)
            if not ok:
                self.fault(f"GET {key} at {host.id}: {len(a.body)} bytes that nobody wrote: {a.body[:40]!r}")
            elif value:
                self.note(key, Op(start, end, "read", value), "get")
            else:
                self.note(key, Op(start, end, "exists", None), "get small")
        elif a.status == 404:
            self.note(key, Op(start, end, "read", None), "get 404")
        elif a.status == 503:
            self.note(key, None, "get 503")
        else:
            self.fault(f"GET {key} at {host.id}: {a}")

    def value_of(self, key, body):
        with self.lock:
            digest = hashlib.sha256(body).digest()
            return self.values.get(digest), digest in self.values

    def delete(self, key, host):
        start = time.monotonic()
        a = self.ask("DELETE", key, host)
        end = time.monotonic()
        if a is None or a.status in (500, 503):
            sure_nothing = a is not None and NO_EFFECT in a.body
            self.note(key, None if sure_nothing else Op(start, end, "write", None, False), "delete ?")
        elif a.status == 204:
            self.note(key, Op(start, end, "write", None), "delete")
        else:
            self.fault(f"DELETE {key} at {host.id}: {a}")

    def hang_up(self, rng, key, host):
        """A client that goes away in the middle: of its body, of the answer, or with rubbish."""
        value = self.new_value(rng)
        body = body_of(value)
        create = "If-None-Match: *\r\n" if key.startswith("once") else ""
        method = rng.choice(["PUT", "PUT", "GET", "RUBBISH"])
        head = f"{method} {self.c.path(BUCKET, key)} HTTP/1.1\r\nHost: x\r\n{create if method == 'PUT' else ''}" \
               f"Authorization: {self.c.auth()['Authorization']}\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n" if method == "PUT" else "\r\n"
        data = head.encode() + (body if method == "PUT" else b"")
        if method == "RUBBISH":
            data = rng.randbytes(rng.randrange(2000))
        cut = rng.randrange(len(data) + 1)
        start = time.monotonic()
        try:
            with socket.create_connection(("127.0.0.1", host.s3_port), timeout=5) as s:
                s.sendall(data[:cut])
                if rng.random() < 0.5:
                    s.settimeout(0.05)
                    s.recv(rng.choice([1, 3000]))
                if rng.random() < 0.5:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        except OSError:
            pass
        whole = method == "PUT" and cut == len(data)
        kind = "create" if create else "write"
        self.note(key, Op(start, start, kind, value, False) if whole else None, "hang up")

    def list(self, host):
        try:
            a = self.c.request("GET", f"/{BUCKET}?list-type=2&max-keys=1000", host=host, timeout=ANSWER_S)
        except (OSError, http.client.HTTPException):
            return
        if a.status not in (200, 503):
            self.fault(f"list at {host.id}: {a}")
        self.note(None, None, f"list {a.status}")

    def watch(self):
        """The admin pages are asked all the time: they look at every worker while it works."""
        while not self.stop.wait(0.2):
            for host in self.c.hosts:
                for path in ("/metrics", "/admin/v1/status", "/admin/v1/heal"):
                    try:
                        host.request_admin("GET", path, timeout=ANSWER_S)
                    except (OSError, http.client.HTTPException):
                        break

    # ---- what is done to the hosts ----
    def disturb(self):
        rng = random.Random(f"{self.seed}/chaos")
        while not self.stop.wait(rng.uniform(0.2, 1.5)):
            # Mostly one host at a time (2+1 goes on), sometimes two (it must refuse, and lose nothing).
            for host in rng.sample(self.c.hosts, 2 if rng.random() < 0.15 else 1):
                self.one_disturbance(rng, host)

    def one_disturbance(self, rng, host):
        draw = rng.random()
        if draw < 0.45:
            host.kill(signal.SIGKILL)
            time.sleep(rng.uniform(0, 1.5))
            host.start()
        elif draw < 0.85:
            host.kill(signal.SIGSTOP)
            time.sleep(rng.choice([0.1, 0.5, 1.5, 3]))
            host.kill(signal.SIGCONT)
        else:
            status = host.kill(signal.SIGTERM)
            if status != 0:
                self.fault(f"{host.id} ended with {status} after SIGTERM")
            host.start()
        host.disturbed = time.monotonic()
        self.note(None, None, "disturbance")
        if not host.alive():
            self.fault(f"{host.id} has ended with {host.process.returncode}")

    # ---- the end ----
    def run(self):
        threads = [threading.Thread(target=self.client, args=(i,)) for i in range(CLIENTS)]
        threads += [threading.Thread(target=self.disturb), threading.Thread(target=self.watch)]
        for t in threads:
            t.start()
        time.sleep(SECONDS)
        self.stop.set()
        for t in threads:
            t.join()
        self.c.wait_ready()

    def final_reads(self):
        """Every key at every host; an unsure write may not be seen at one and be missing at the next."""
        present = set()
        for key in sorted(self.histories):
            for host in self.c.hosts:
                before = len(self.histories[key])
                for _ in range(100):
                    self.get(key, host)
                    if len(self.histories[key]) > before or self.faults:
                        break
                    time.sleep(0.1)
                else:
                    raise AssertionError(f"{key} cannot be read at {host.id} with all hosts up")
                last = self.histories[key][-1]
                if last.kind == "exists" or last.value:
                    present.add(key)
        return present

    def judge(self):
        hard = 0
        for key, history in sorted(self.histories.items()):
            try:
                if not linearizable(history):
                    self.fault(f"the history of {key} is not linearizable:")
                    for op in sorted(history):
                        print(f"  {op.start:.4f} {op.end:.4f} {op.kind} {op.value} {'' if op.sure else '?'}")
            except TooHard:
                hard += 1
        return hard


def drives_at_rest(c):
    """What must be gone once nobody asks for anything: undecided rows and buffers in use."""
    left = []
    for host in c.hosts:
        text = host.request_admin("GET", "/metrics")[1].decode()
        for name in ("kofn_drive_undecided_rows", "kofn_http_connections_open"):
            for m in re.finditer(rf"^{name}(\S*) (\d+)$", text, re.M):
                if int(m.group(2)):
                    left.append(f"{host.id} {name}{m.group(1)} {m.group(2)}")
    return left


def wait_for_rest(c, timeout=60):
    end = time.monotonic() + timeout
    while (left := drives_at_rest(c)) and time.monotonic() < end:
        time.sleep(0.25)
    assert not left, f"{timeout} s after the last request: {left}"


def chunk_files(c):
    return sum(len(files) for h in c.hosts for d in h.drives for _, _, files in os.walk(d / "data"))


def main():
    seed = os.environ.get("KOFN_CHAOS_SEED") or secrets.token_hex(4)
    print(f"KOFN_CHAOS_SEED={seed}", flush=True)
    directory = tempfile.mkdtemp(prefix="kofn-chaos-")
    with open(os.path.join(directory, "tsan"), "w") as f:
        f.write(TSAN_SUPPRESSIONS)
    os.environ.setdefault("TSAN_OPTIONS", f"suppressions={directory}/tsan")
    try:
        with Cluster(directory, hosts=3, drives_per_host=1, pool="2+1", settings="trash_delay: 1s",
                     server="peer_timeout: 5s\nworkers: 2\nshutdown_grace: 10s") as c:
            c.start()
            c.make_bucket(BUCKET)
            chaos = Chaos(c, seed)
            chaos.run()
            print("requests:", ", ".join(f"{k} {v}" for k, v in sorted(chaos.count.items())))
            acknowledged = chaos.count.get("put", 0)
            assert acknowledged > 20 and chaos.count.get("get", 0) > 20, "too little went on to prove anything"
            present = chaos.final_reads()
            listed = set(c.list_keys(BUCKET))
            assert listed == present, f"listed only: {listed - present}; read only: {present - listed}"
            print(f"ok: {len(present)} of {len(chaos.histories)} keys are there, byte for byte, at every host and listed")
            hard = chaos.judge()
            assert not chaos.faults, chaos.faults
            assert hard <= len(chaos.histories) // 4, f"{hard} histories could not be judged"
            print(f"ok: {len(chaos.histories) - hard} histories are linearizable ({hard} were too hard to judge)")
            wait_for_rest(c)
            print("ok: no undecided row and no connection is left")
            for key in chaos.histories:  # also those that are gone: a host may have missed their delete
                a = c.delete(BUCKET, key)
                assert a.status == 204, a
            end = time.monotonic() + 60
            while chunk_files(c) and time.monotonic() < end:
                time.sleep(0.25)
            left = chunk_files(c)
            assert left == 0, f"{left} chunk files are left 60 s after everything was deleted"
            print("ok: with the last object the last chunk file has gone")
            for host in c.hosts:
                for word in ("AddressSanitizer", "ThreadSanitizer", "runtime error", "Assertion"):
                    assert word not in host.log_text(), f"{host.id}'s log:\n{host.log_text()[-6000:]}"
            statuses = c.stop()
            assert statuses == [0, 0, 0], f"exit statuses after SIGTERM: {statuses}"
            print("ok: all hosts ended with 0")
    finally:
        if not os.environ.get("KOFN_CHAOS_KEEP"):
            shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
