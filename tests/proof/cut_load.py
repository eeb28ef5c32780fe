"""cut_load.py: clients that put, overwrite, delete and put on condition, and that know what they were told.

A key of a client's own is written by that client only, one request after another. What it may hold is `sure`, the last
outcome that was acknowledged or seen, or one of `maybe`: requests since then of which nobody knows what became of
them, in their order. A read decides: the newer value stays, the older ones never come back. An old value may still give
way to a newer `maybe` as long as a row of the key is undecided (PROTOCOL.md 8, C2), never afterwards.

Keys named `once` are created by all clients at a time with If-None-Match: *: at most one of them may be told 200.
"""
import hashlib
import http.client
import random
import re
import threading
import time
import urllib.parse

SIZES = (0, 24, 700, 5_000, 60_000, 66_000, 200_000, 600_000, 1_500_000, 3_500_000)  # in the index, files, many windows
WEIGHTS = (2, 3, 12, 12, 8, 12, 12, 6, 2, 1)
ONCE_SIZES = (24, 700, 70_000)
LARGE = 4_700_000  # more than 1 MiB on a drive: kofn starts the write-back before the sync
LARGE_KEYS = 2     # of each client
ANSWER_S = 30
RETRY_S = 40
CLIENTS, CHECKERS = 6, 4
KEYS_PER_CLIENT = 14
NO_EFFECT = b"Too few drives are in reach"  # the 503 that says that nothing happened


class Value:
    """What a PUT writes: made again from its seed when it is needed."""

    def __init__(self, seed, size):
        self.seed, self.size = seed, size
        body = self.body()
        self.sha, self.etag = hashlib.sha256(body).digest(), f'"{hashlib.md5(body).hexdigest()}"'

    def body(self):
        return random.Random(self.seed).randbytes(self.size)

    def __repr__(self):
        return f"<{self.seed}, {self.size} bytes>"


class Key:
    def __init__(self, bucket, name):
        self.bucket, self.name = bucket, name
        self.sure, self.maybe = None, []
        self.acked = False  # `sure` is what its own PUT was acknowledged for
        self.written = 0

    def __repr__(self):
        return f"{self.bucket}/{self.name} (sure {self.sure}, maybe {self.maybe})"

    def set(self, value, acked):
        self.sure, self.maybe, self.acked = value, [], acked and value is not None

    def saw(self, sha, decided):
        """A read saw this (None: nothing). False: it may not."""
        for i in reversed(range(len(self.maybe))):
            if sha == (self.maybe[i].sha if self.maybe[i] else None):
                self.sure, self.maybe, self.acked = self.maybe[i], self.maybe[i + 1:], False
                if decided:
                    self.maybe = []
                return True
        if sha != (self.sure.sha if self.sure else None):
            return False
        if decided:
            self.maybe = []
        return True


class Once:
    """A name that all clients want to create."""

    def __init__(self, bucket, name):
        self.key, self.lock = Key(bucket, name), threading.Lock()
        self.winners, self.unknown, self.refused = [], [], 0


class Load:
    def __init__(self, cluster, seed, buckets):
        self.c, self.seed, self.buckets = cluster, seed, buckets
        self.own = [[Key(b, f"c{i}/k{j:02}") for b in buckets for j in range(KEYS_PER_CLIENT)] for i in range(CLIENTS)]
        self.keys = [k for own in self.own for k in own]
        self.faults, self.touched, self.counts = [], set(), {}
        self.lock, self.serial, self.local = threading.Lock(), 0, threading.local()
        self.stop, self.threads, self.onces, self.round = threading.Event(), [], [], 0
        self.large = False

    # ---- requests ----
    def fault(self, words):
        with self.lock:
            self.faults.append(f"round {self.round}: {words}")

    def count(self, what, n=1):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + n

    def ask(self, method, bucket, name, host, body=None, headers=None, query="", timeout=ANSWER_S):
        """(status, headers, body), or None where it is not known whether the host had the request. One connection per
        thread, host and round."""
        held = getattr(self.local, "held", None)
        if held is None or self.local.round != self.round:
            for c in (held or {}).values():
                c.close()
            held = self.local.held = {}
            self.local.round = self.round
        c = held.get(host.id)
        if c is None:
            c = held[host.id] = http.client.HTTPConnection("127.0.0.1", host.s3_port, timeout=timeout)
        try:
            c.request(method, self.c.path(bucket, name) + query, body, {**self.c.auth(), **(headers or {})})
            r = c.getresponse()
            return r.status, r.headers, r.read()
        except ConnectionRefusedError:  # nobody was there to be asked
            time.sleep(0.02)
            return 503, {}, NO_EFFECT
        except (OSError, http.client.HTTPException):
            c.close()
            held.pop(host.id, None)
            return None

    def new_value(self, rng, sizes=SIZES, weights=WEIGHTS):
        with self.lock:
            self.serial += 1
            seed = f"{self.seed}/{self.serial}"
        return Value(seed, rng.choices(sizes, weights)[0])

    @staticmethod
    def had_effect(answer):
        """True, False, or None: nobody knows."""
        if answer is None:
            return None
        status, _, body = answer
        if status in (200, 204):
            return True
        if status == 503 and NO_EFFECT in body:
            return False
        return None if status in (500, 503) else False

    # ---- what clients do with keys of their own ----
    def put(self, rng, key, host, large=False):
        value = self.new_value(rng, *(((LARGE,), (1,)) if large else ()))
        headers, want = {}, None
        known = not key.maybe
        if known and rng.random() < 0.35:  # on condition: true or false, as we know what the key holds
            if key.sure is None:
                headers, want = rng.choice([({"If-None-Match": "*"}, (200,)), ({"If-Match": '"0123"'}, (404, 412))])
            else:
                same = ({"If-Match": key.sure.etag}, (200,))
                headers, want = rng.choice([same, same, ({"If-Match": '"0123"'}, (412,)),
                                            ({"If-None-Match": "*"}, (412,))])
        a = self.ask("PUT", key.bucket, key.name, host, value.body(), headers)
        effect = self.had_effect(a)
        key.written += 1
        if effect:
            key.set(value, True)
        elif effect is None:
            key.maybe.append(value)
        if a and want and a[0] not in want + (409, 500, 503):
            self.fault(f"PUT {key} at {host.id} with {headers}: {a[0]} {a[2][:200]!r}")
        if a and not want and a[0] not in (200, 500, 503):
            self.fault(f"PUT {key} at {host.id}: {a[0]} {a[2][:200]!r}")
        self.count("PUT acknowledged" if effect else "PUT unknown" if effect is None else "PUT refused")

    def delete(self, key, host):
        a = self.ask("DELETE", key.bucket, key.name, host)
        effect = self.had_effect(a)
        key.written += 1
        if effect:
            key.set(None, True)
        elif effect is None:
            key.maybe.append(None)
        if a and a[0] not in (204, 500, 503):
            self.fault(f"DELETE {key} at {host.id}: {a[0]} {a[2][:200]!r}")
        self.count("DELETE acknowledged" if effect else "DELETE unknown" if effect is None else "DELETE refused")

    def race(self, rng, once, host):
        value = self.new_value(rng, ONCE_SIZES, (1, 2, 1))
        a = self.ask("PUT", once.key.bucket, once.key.name, host, value.body(), {"If-None-Match": "*"})
        effect = self.had_effect(a)
        with once.lock:
            if effect:
                once.winners.append(value)
            elif effect is None:
                once.unknown.append(value)
            elif a[0] == 412:
                once.refused += 1
            elif a[0] not in (409, 503):
                self.fault(f"PUT {once.key} at {host.id}: {a[0]} {a[2][:200]!r}")
        self.count("race")

    def client(self, number):
        rng = random.Random(f"{self.seed}/{self.round}/{number}")
        onces = list(self.onces)
        while not self.stop.is_set():
            host, draw = rng.choice(self.c.hosts), rng.random()
            large = self.large and rng.random() < 0.5
            key = self.own[number][rng.randrange(LARGE_KEYS)] if large else rng.choice(self.own[number])
            if onces and draw < 0.3:
                self.race(rng, onces.pop(), host)
                continue
            with self.lock:
                self.touched.add(key)
            if draw < 0.75 or key.sure is None or large:
                self.put(rng, key, host, large)
            elif draw < 0.9:
                self.delete(key, host)
            else:
                self.read(key, host, must=False)

    def begin(self, number, large=False):
        self.round, self.large = number, large
        self.touched.clear()
        self.stop.clear()
        self.onces = [Once(b, f"once/{number:04}") for b in self.buckets]
        self.threads = [threading.Thread(target=self.client, args=(i,), daemon=True) for i in range(CLIENTS)]
        for t in self.threads:
            t.start()

    def end(self):
        """No client asks any more, and every answer that comes has come."""
        self.stop.set()
        for t in self.threads:
            t.join(2 * ANSWER_S)
            if t.is_alive():
                self.fault("a client hangs")
        self.threads = []
        for once in self.onces:
            if len(once.winners) > 1:
                self.fault(f"{once.key}: {len(once.winners)} clients were told that they created it")
            if once.refused and not once.winners and not once.unknown:
                self.fault(f"{once.key}: {once.refused} clients were told that it exists, and nobody created it")
            if once.winners:
                once.key.set(once.winners[0], True)
            else:
                once.key.maybe = list(once.unknown)
            self.keys.append(once.key)
            self.touched.add(once.key)
        self.onces = []

    # ---- checks ----
    def read(self, key, host, must=True, decided=False):
        """GETs a key and compares. `must`: it has to be answered in the end."""
        end = time.monotonic() + RETRY_S
        while True:
            a = self.ask("GET", key.bucket, key.name, host)
            if a and a[0] in (200, 404):
                break
            if not must:
                return
            if time.monotonic() > end:
                self.fault(f"GET {key} at {host.id}: no answer in {RETRY_S} s: {a and a[:3]}")
                return
            time.sleep(0.05)
        before = repr(key)
        sha = hashlib.sha256(a[2]).digest() if a[0] == 200 else None
        if not key.saw(sha, decided):
            held = "nothing" if sha is None else f"{len(a[2])} other bytes, which start with {a[2][:24].hex()}"
            self.fault(f"GET {before} at {host.id}: {held}")
        self.count("read back")

    def read_all(self, keys, gateways, decided=(), must=True):
        """`decided`: the keys of which no row is undecided; True: all of them."""
        todo, lock = list(keys), threading.Lock()

        def work(number):
            while True:
                with lock:
                    if not todo or self.faults:
                        return
                    key = todo.pop()
                gateway = gateways[(number + len(todo)) % len(gateways)]
                self.read(key, gateway, must, decided is True or key in decided)

        threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(CHECKERS)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    def check_list(self, bucket, host):
        """The list names exactly what is there; `maybe` keys may be in it or not."""
        found, token, end = set(), None, time.monotonic() + RETRY_S
        while True:
            query = "?list-type=2&encoding-type=url" + (f"&continuation-token={token}" if token else "")
            a = self.ask("GET", bucket, "", host, query=query)
            if not a or a[0] != 200:
                if time.monotonic() > end:
                    self.fault(f"list {bucket} at {host.id}: no answer in {RETRY_S} s: {a}")
                    return
                time.sleep(0.05)
                continue
            text = a[2].decode()
            found |= {urllib.parse.unquote(k) for k in re.findall(r"<Key>(.*?)</Key>", text)}
            m = re.search(r"<NextContinuationToken>(.*?)<", text)
            if not m:
                break
            token = m.group(1)
        for key in self.keys:
            if key.bucket != bucket:
                continue
            may = {key.sure is not None} | {v is not None for v in key.maybe}
            if (key.name in found) not in may:
                self.fault(f"list of {bucket} at {host.id} {'has' if key.name in found else 'lacks'} {key}")
            found.discard(key.name)
        if found:
            self.fault(f"list of {bucket} at {host.id} has keys that nobody made: {sorted(found)[:5]}")
        self.count("list")

    @staticmethod
    def slots(key, host):
        query = urllib.parse.urlencode({"bucket": key.bucket, "key": key.name})
        return host.admin_json(f"/admin/v1/where?{query}")["slots"]

    def is_decided(self, key, host):
        """All its drives answer, and none has a row above the newest one that is known to be chosen."""
        slots = self.slots(key, host)
        rows = [r for s in slots for r in s.get("rows", ())]
        newest = max((r["version"] for r in rows if r["chosen"]), default="")
        return all("rows" in s for s in slots) and all(r["version"] <= newest for r in rows)

    def check_rows(self, key, host, quorum):
        """What was acknowledged stands on at least W drives, row and chunk."""
        slots = self.slots(key, host)
        having = {}
        for s in slots:
            for data_id in {r["data_id"] for r in s.get("rows", ()) if r["kind"] == "object" and
                            r["size"] == key.sure.size and r["chunk"] != "missing"}:
                having[data_id] = having.get(data_id, 0) + 1
        if max(having.values(), default=0) < quorum:
            self.fault(f"{key}: acknowledged, but on {max(having.values(), default=0)} of {quorum} drives: {slots}")
        self.count("quorum checked")
