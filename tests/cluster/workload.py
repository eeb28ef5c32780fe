"""workload.py: clients that write, read, delete, list, swap and hang up at all hosts, remember every answer, and judge it.

    w = Workload(cluster, bucket, seed); w.start(processes, threads); ...faults...; w.stop(); w.judge_all()

Clients are processes (Python would be the bottleneck) that share a few counters with the test; times are the machine's
monotonic clock, so histories of different processes are one history. Every body says in its first line which key and
which write it belongs to, so a reader needs no table to tell the right bytes from wrong ones. A slot is a key that is
busy now; after `ops_per_key` operations it goes on with a new key, so that histories stay short enough to be judged.

    key-*   PUT, GET, DELETE;   any-*   conditional and unconditional writes mixed;   once-*   conditional writes only
"""
import collections
import concurrent.futures
import hashlib
import http.client
import multiprocessing
import os
import pickle
import random
import re
import signal
import socket
import threading
import time

import remains
from linear import Op, TooHard, linearizable

SIZES = (0, 1, 100, 5_000, 40_000, 130_000, 1_500_000, 3_000_000)
ANSWER_S = 45        # no request may hang for longer, whatever happens to the hosts
NO_EFFECT = b"Too few drives are in reach"  # the 503 that says that nothing happened
KINDS = ("key", "any", "once")
MIX = {"put": 30, "get": 35, "delete": 12, "hang_up": 8, "list": 5, "swap": 10}
fork = multiprocessing.get_context("fork")


def body_of(key, value):
    """The bytes of a value ("serial:size"): they can be checked without having been kept."""
    size = int(value.rpartition(":")[2])
    head = f"{key} {value}\n".encode()
    seed = hashlib.sha256(head).digest()
    block = b"".join(hashlib.sha256(seed + bytes([i])).digest() for i in range(32))
    return (head + block * (size // len(block) + 1))[:size]


def value_of(key, body):
    """(the value or None where the body is too short to say, whether these are right bytes)"""
    if len(body) < 100:
        return None, body == f"{key} ".encode()[:len(body)]
    m = re.match(rb"(\S+) (\S+:\d+)\n", body)
    if not m or m.group(1).decode() != key:
        return None, False
    value = m.group(2).decode()
    return value, body == body_of(key, value)


class Shared:
    """What clients, test and nemesis see of each other while they run."""

    def __init__(self, slots, hosts):
        self.ops = fork.Array("i", slots)          # operations begun on each slot
        self.busy = fork.Array("i", hosts)         # requests in flight at each host
        self.disturbed = fork.Array("d", hosts)    # when something was last done to each host
        self.away = fork.Array("i", hosts)         # 1: killed or stopped now; most clients keep off, as behind a balancer
        self.acknowledged = fork.Value("i", 0)     # writes
        self.faults = fork.Value("i", 0)
        self.stop = fork.Event()


class Client(threading.Thread):
    def __init__(self, workload, name):
        super().__init__(daemon=True)
        self.w, self.c, self.shared, self.label = workload, workload.c, workload.shared, name
        self.rng = random.Random(f"{workload.seed}/client {name}")
        self.ops = collections.defaultdict(list)
        self.count = collections.Counter()
        self.faults, self.serial, self.slowest = [], 0, 0.0

    def run(self):
        names, weights = zip(*self.w.mix.items())
        parent = os.getppid()
        while not self.shared.stop.is_set() and os.getppid() == parent:
            slot = self.rng.randrange(self.w.slots)
            with self.shared.ops.get_lock():
                self.shared.ops[slot] += 1
                generation = self.shared.ops[slot] // self.w.ops_per_key
            kind = KINDS[slot % 3]
            key, host = f"{kind}-{slot}/{self.w.name}{generation}", self.any_host()
            act = self.rng.choices(names, weights)[0]
            try:
                getattr(self, act)(key, host)
            except Exception as e:  # a fault of the test itself must not pass for silence
                self.fault(f"client {self.label}: {act} {key}: {e!r}")
                raise

    def any_host(self):
        number = self.rng.randrange(len(self.c.hosts))
        if self.shared.away[number] and self.rng.random() < 0.9:
            number = self.rng.randrange(len(self.c.hosts))
        return number

    def fault(self, words):
        self.faults.append(words)
        with self.shared.faults.get_lock():
            self.shared.faults.value += 1
        print("FAULT:", words, flush=True)

    def note(self, key, op, what):
        if op:
            self.ops[key].append(op)
        self.count[what] += 1

    def new_value(self):
        self.serial += 1
        return f"{self.w.name}{self.label}.{self.serial}:{self.rng.choice(self.w.sizes)}"

    def ask(self, method, key, number, body=None, headers=None):
        """An answer, or None where the connection failed; a hang is a fault."""
        began, host = time.monotonic(), self.c.hosts[number]
        with self.shared.busy.get_lock():
            self.shared.busy[number] += 1
        self.count["requests"] += 1
        try:
            a = self.c.request(method, self.c.path(self.w.bucket, key), body, headers, host=host, timeout=ANSWER_S)
            self.count["answered" if a.status < 500 else "refused"] += 1
            return a
        except TimeoutError:
            if self.shared.disturbed[number] < began:
                self.fault(f"{method} {key} at {host.id}: no answer within {ANSWER_S} s")
        except (OSError, http.client.HTTPException) as e:
            self.count["no connection" if isinstance(e, ConnectionRefusedError) else "cut off"] += 1
            time.sleep(0.02)
        finally:
            with self.shared.busy.get_lock():
                self.shared.busy[number] -= 1
            self.slowest = max(self.slowest, time.monotonic() - began)
        return None

    # ---- what a client does ----
    def write(self, what, key, number, kind, value, body, headers=None, old=None):
        """One write of any kind; `value` as the history wants it."""
        start = time.monotonic()
        a = self.ask("DELETE" if body is None else "PUT", key, number, body, headers)
        end = time.monotonic()
        if a is None:
            self.note(key, Op(start, end, kind, value, False), f"{what} ?")
        elif a.status == (204 if body is None else 200):
            self.note(key, Op(start, end, kind, value), what)
            with self.shared.acknowledged.get_lock():
                self.shared.acknowledged.value += 1
        elif a.status == 412 and kind == "create":
            self.note(key, Op(start, end, "exists", None), f"{what} 412")
        elif a.status == 412 and kind == "swap":
            self.note(key, Op(start, end, "differs", old), f"{what} 412")
        elif a.status == 404 and kind == "swap":
            self.note(key, Op(start, end, "read", None), f"{what} 404")
        elif a.status == 409 and headers:
            self.note(key, None, f"{what} 409")
        elif a.status == 503 and NO_EFFECT in a.body:
            self.note(key, None, f"{what} 503 no effect")
        elif a.status in (500, 503):
            self.note(key, Op(start, end, kind, value, False), f"{what} 503 unknown")
        else:
            self.fault(f"{what} {key} at {self.c.hosts[number].id}: {a}")

    def put(self, key, number):
        value = self.new_value()
        if key.startswith("once") or (key.startswith("any") and self.rng.random() < 0.5):
            self.write("create", key, number, "create", value, body_of(key, value), {"If-None-Match": "*"})
        else:
            self.write("put", key, number, "write", value, body_of(key, value))

    def delete(self, key, number):
        self.write("delete", key, number, "write", None, None)

    def swap(self, key, number):
        if key.startswith("key"):
            return self.put(key, number)
        old, etag = self.get(key, number)
        if not old:
            return self.put(key, number)
        value, again = self.new_value(), self.any_host()
        self.write("swap", key, again, "swap", (old, value), body_of(key, value), {"If-Match": etag}, old)

    def get(self, key, number):
        """(the value or None, its ETag), and an entry in the history."""
        start = time.monotonic()
        a = self.ask("GET", key, number)
        end = time.monotonic()
        if a is None:
            self.note(key, None, "get ?")
        elif a.status == 200:
            value, right = value_of(key, a.body)
            if not right:
                self.fault(f"GET {key} at {self.c.hosts[number].id}: {len(a.body)} wrong bytes: {a.body[:80]!r}")
            self.note(key, Op(start, end, "read" if value else "exists", value), "get" if value else "get small")
            return value, a.headers["ETag"]
        elif a.status == 404:
            self.note(key, Op(start, end, "read", None), "get 404")
        elif a.status == 503:
            self.note(key, None, "get 503")
        else:
            self.fault(f"GET {key} at {self.c.hosts[number].id}: {a}")
        return None, None

    def hang_up(self, key, number):
        """A client that goes away in the middle: of its body, of the answer, or with rubbish."""
        value, rng, host = self.new_value(), self.rng, self.c.hosts[number]
        body = body_of(key, value)
        create = "If-None-Match: *\r\n" if key.startswith("once") else ""
        method = rng.choice(["PUT", "PUT", "GET", "RUBBISH"])
        head = f"{method} {self.c.path(self.w.bucket, key)} HTTP/1.1\r\nHost: x\r\n{create if method == 'PUT' else ''}" \
               f"Authorization: {self.c.auth()['Authorization']}\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n" if method == "PUT" else "\r\n"
        data = head.encode() + (body if method == "PUT" else b"")
        if method == "RUBBISH":
            data = rng.randbytes(rng.randrange(2000))
        cut = rng.randrange(len(data) + 1)
        start = time.monotonic()
        try:
            with socket.create_connection((host.address, host.s3_port), timeout=5) as s:
                s.sendall(data[:cut])
                if rng.random() < 0.5:
                    s.settimeout(0.05)
                    s.recv(rng.choice([1, 3000]))
                if rng.random() < 0.5:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        except OSError:
            pass
        whole = method == "PUT" and cut == len(data)
        self.note(key, Op(start, start, "create" if create else "write", value, False) if whole else None, "hang up")

    def list(self, key, number):
        del key
        host = self.c.hosts[number]
        try:
            a = self.c.request("GET", f"/{self.w.bucket}?list-type=2&max-keys=1000", host=host, timeout=ANSWER_S)
        except (OSError, http.client.HTTPException):
            return
        if a.status not in (200, 503):
            self.fault(f"list at {host.id}: {a}")
        self.note(None, None, f"list {a.status}")


class Workload:
    def __init__(self, cluster, bucket, seed, slots=6, ops_per_key=50, sizes=SIZES, mix=None, name="g"):
        self.c, self.bucket, self.seed, self.slots, self.ops_per_key = cluster, bucket, seed, slots, ops_per_key
        self.sizes, self.mix, self.name = sizes, mix or MIX, name
        self.shared = Shared(slots, len(cluster.hosts))
        self.processes, self.histories, self.count, self.faults = [], collections.defaultdict(list), collections.Counter(), []
        self.slowest, self.hard = 0.0, 0
        self.others = []  # keys that the test itself wrote

    # ---- while it runs ----
    def start(self, processes, threads):
        for i in range(processes):
            p = fork.Process(target=self._serve, args=(i, threads), daemon=True)
            p.start()
            self.processes.append(p)
        return self

    def _serve(self, number, threads):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        clients = [Client(self, f"{number}-{i}") for i in range(threads)]
        for c in clients:
            c.start()
        for c in clients:
            c.join()
        with open(self._told(number), "wb") as f:
            pickle.dump([(dict(c.ops), c.count, c.faults, c.slowest) for c in clients], f)

    def _told(self, number):
        return self.c.dir / f"clients-{self.name}-{number}"

    def disturb(self, host):
        """To be called before and after something is done to a host: its requests may hang then."""
        self.shared.disturbed[host.index] = time.monotonic()

    def away(self, host, yes):
        """A host is killed or stopped now, or is back."""
        self.disturb(host)
        self.shared.away[host.index] = yes

    def busiest(self):
        """The host with the most requests in flight."""
        return self.c.hosts[max(range(len(self.c.hosts)), key=lambda i: self.shared.busy[i])]

    def stop(self):
        self.shared.stop.set()
        for p in self.processes:
            p.join(4 * ANSWER_S)
            if p.is_alive():
                p.kill()
                self.faults.append("a client process does not end")
        for i, _ in enumerate(self.processes):
            told = self._told(i)
            if not told.exists():
                self.faults.append(f"client process {i} ended with {self.processes[i].exitcode} and said nothing")
                continue
            for c in pickle.loads(told.read_bytes()):
                self._take(*c)
            told.unlink()
        self.processes = []

    def _take(self, ops, count, faults, slowest):
        for key, history in ops.items():
            self.histories[key] += history
        self.count.update(count)
        self.faults += faults
        self.slowest = max(self.slowest, slowest)

    def abandon(self):
        """After a failure: no client is left."""
        for p in self.processes:
            p.kill()
            p.join()
        self.processes = []

    # ---- the end ----
    def _read_everywhere(self, key, hosts, tries):
        """Reads one key at each host until it answers; what it saw: {value, "small" or None}."""
        client = Client(self, f"end {key}")
        for host in hosts:
            for _ in range(tries):
                before = len(client.ops[key])
                client.get(key, host.index)
                if len(client.ops[key]) > before or client.faults:
                    break
                time.sleep(0.1)
            else:
                client.fault(f"{key} cannot be read at {host.id} with all hosts up")
        seen = {"small" if op.kind == "exists" else op.value for op in client.ops[key]}
        if len(seen) != 1:
            client.fault(f"{key} is not the same at all hosts: {seen}")
        return client, seen

    def final_reads(self, hosts=None, tries=100):
        """Every key at every host: {key: what it holds}. An unsure write may not be seen at one and be missing at the
        next; the reads go into the histories."""
        hosts, found = hosts or self.c.hosts, {}
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for key, (client, seen) in zip(sorted(self.histories), pool.map(
                    lambda k: self._read_everywhere(k, hosts, tries), sorted(self.histories))):
                self._take(client.ops, collections.Counter(), client.faults, 0)
                found[key] = next(iter(seen), None)
        return found

    def judge(self):
        """Every history must be linearizable. Returns how many could be judged."""
        self.hard = 0
        for key, history in sorted(self.histories.items()):
            try:
                if not linearizable(history):
                    self.faults.append(f"the history of {key} is not linearizable")
                    print(f"FAULT: the history of {key} is not linearizable:")
                    for op in sorted(history, key=lambda o: o.start):
                        print(f"  {op.start:.4f} {op.end:.4f} {op.kind} {op.value} {'' if op.sure else '?'}")
            except TooHard:
                self.hard += 1
        return len(self.histories) - self.hard

    def check_lists(self, present, hosts=None):
        for host in hosts or self.c.hosts:
            listed = set(self.c.list_keys(self.bucket, host=host))
            assert listed == present, f"{host.id} lists only: {listed - present}; reads only: {present - listed}"

    def judge_all(self, say=print, without=()):
        """Everything that must hold once all faults have stopped, in the order in which it can be seen. `without`: hosts
        whose drives are out of service."""
        found = self.final_reads()
        present = {key for key, value in found.items() if value is not None}
        self.check_lists(present)
        say(f"ok: {len(present)} of {len(found)} keys are there, byte for byte, at every host and in every list")
        judged = self.judge()
        assert not self.faults, self.faults[:10]
        assert self.hard <= len(self.histories) // 4, f"{self.hard} histories could not be judged"
        say(f"ok: {judged} histories are linearizable ({self.hard} were too hard to judge)")
        wait_for_rest(self.c, without)
        again = self.final_reads(hosts=[self.c.hosts[-1]])
        flipped = [key for key in found if found[key] != again[key]]
        assert not flipped, f"changed though nobody wrote: {[(k, found[k], again[k]) for k in flipped[:5]]}"
        say("ok: no undecided row and no connection is left, and what was unknown stays as it was seen")
        return found

    def delete_all(self, say=print, without=()):
        """With the last object the last trace must go (but for tombstones). All keys that there ever were are deleted, for
        a host may have missed the delete of one that is gone (healing it is for a later version)."""
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda key: self.c.delete(self.bucket, key), [*self.histories, *self.others]))
        assert all(a.status == 204 for a in answers), [a for a in answers if a.status != 204][:3]
        nothing_left(self.c, without)
        say("ok: with the last object the last chunk has gone from every drive's files and index")


def drives_at_rest(c, without=()):
    """What must be gone once nobody asks for anything: undecided rows and buffers in use."""
    left = []
    for host in (h for h in c.hosts if h not in without):
        text = host.request_admin("GET", "/metrics")[1].decode()
        for name in ("kofn_drive_undecided_rows", "kofn_http_connections_open"):
            for m in re.finditer(rf"^{name}(\S*) (\d+)$", text, re.M):
                if int(m.group(2)):
                    left.append(f"{host.id} {name}{m.group(1)} {m.group(2)}")
    return left


def wait_for_rest(c, without=(), timeout=90):
    end = time.monotonic() + timeout
    while (left := drives_at_rest(c, without)) and time.monotonic() < end:
        time.sleep(0.25)
    assert not left, f"{timeout} s after the last request: {left}"


def held_open(c):
    """Files that hosts have open: a chunk file among them is a stage (or being read), another one is nobody's."""
    found = set()
    for host in c.hosts:
        for fd in os.scandir(f"/proc/{host.pid}/fd") if host.alive() else ():
            try:
                found.add(os.readlink(fd.path))
            except OSError:
                pass
    return found


def words_for(c, drive, files):
    opened = held_open(c)
    return ", ".join(f"{f} ({size} bytes, {'held open' if os.path.join(drive, f) in opened else 'nobody has it open'})"
                     for f, size in list(files.items())[:3])


def nothing_left(c, without=(), timeout=90):
    """Waits until drives whose objects are all deleted hold no chunk, no row to decide and nothing to drop."""
    end, drives = time.monotonic() + timeout, [d for h in c.hosts if h not in without for d in h.drives]
    while True:
        left = []
        for drive, (files, tables) in remains.of_drives(drives).items():
            left += [f"{drive}: {len(files)} chunk files: {words_for(c, drive, files)}"] if files else []
            rows = b"".join(tables["row"].values())
            for t in ("und", "drop", "trash", "blob", "inline"):
                unnamed = [k[:16].hex() for k in tables[t] if t in ("blob", "inline") and k[:16] not in rows]
                left += [f"{drive}: {len(tables[t])} in {t}, {len(unnamed)} that no row names: {unnamed[:3]}"] if tables[t] else []
        if not left:
            return
        assert time.monotonic() < end, f"left {timeout} s after everything was deleted: {left}"
        time.sleep(0.5)
