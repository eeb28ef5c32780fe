"""races.py: clients that race through conditional PUTs: for one key (`If-None-Match: *`), or to count (`If-Match`)."""
import hashlib
import http.client
import json
import random
import threading
import time

WAIT_S = 120


class Client:
    """One keep-alive connection. A request is sent now, its answer is read later."""

    def __init__(self, cluster, bucket, index):
        self.cluster, self.bucket, self.index = cluster, bucket, index
        self.host = cluster.hosts[index % len(cluster.hosts)]
        self.connection = http.client.HTTPConnection(self.host.address, self.host.s3_port, timeout=WAIT_S)

    def send(self, method, key, body=None, headers=None):
        self.connection.request(method, f"/{self.bucket}/{key}", body, self.cluster.auth() | (headers or {}))

    def answer(self):
        r = self.connection.getresponse()
        return r.status, r.headers, r.read()

    def ask(self, *args):
        self.send(*args)
        return self.answer()

    def close(self):
        self.connection.close()


# ---- If-None-Match: * ----

class Race:
    """All clients PUT a key that does not exist at once, again and again, until each has a 200 or a 412."""

    def __init__(self, cluster, bucket, clients, seed):
        self.clients = [Client(cluster, bucket, i) for i in range(clients)]
        self.order = random.Random(f"{seed}/race")
        self.answers = {200: 0, 409: 0, 412: 0, 503: 0}
        self.without = 0  # keys whose winner was told 503

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for c in self.clients:
            c.close()

    def once(self, key):
        """What is wrong with this key, or None."""
        bodies = {c: f"{key} by {c.index} of {c.host.id}".encode() * (1 + 900 * (c.index % 2)) for c in self.clients}
        racing, winners, unsure = list(self.clients), {}, {}
        end = time.monotonic() + WAIT_S
        while racing:
            self.order.shuffle(racing)
            for c in racing:
                c.send("PUT", key, bodies[c], {"If-None-Match": "*"})
            again, refused = [], []
            for c in racing:
                status, _, text = c.answer()
                assert status in self.answers, f"{key}: {status} {text[:300]}"
                self.answers[status] += 1
                if status == 200:
                    winners[c] = bodies[c]
                elif status == 412:
                    refused.append(c)
                else:
                    again.append(c)
                if status == 503:
                    unsure[c] = bodies[c]
            if refused and (why := self.false_412(key, self.order.choice(refused))):
                return why
            racing = again
            assert time.monotonic() < end, f"{key}: {len(racing)} of {len(self.clients)} have no answer in {WAIT_S} s"
        self.without += not winners
        return self.violation(key, winners, unsure)

    @staticmethod
    def false_412(key, client):
        """Nobody deletes here: where a 412 was right, there is an object from then on."""
        status, _, body = client.ask("GET", key)
        if status not in (200, 503):
            return f"{key}: {client.host.id} said 412, and to a GET {status} {body[:60]!r}"
        return None

    def violation(self, key, winners, unsure):
        """A client that got 503 may have won without knowing, but then nobody else is told 200."""
        if len(winners) > 1:
            return f"{key}: {len(winners)} clients got 200"
        allowed = set(winners.values()) or set(unsure.values())
        for c in self.clients[:3]:
            status, _, body = c.ask("GET", key)
            if status != 200 or body not in allowed:
                return f"{key}: {c.host.id} answers {status} {body[:60]!r}, the 200 was for {sorted(allowed)[:1]!r:.80}"
        return None


def race(cluster, bucket, clients, keys, seed=1, stop_at_first=False, progress=None):
    """(violations, the race): every key of `keys`."""
    wrong = []
    with Race(cluster, bucket, clients, seed) as r:
        for i, key in enumerate(keys):
            why = r.once(key)
            wrong += [why] if why else []
            if wrong and stop_at_first:
                break
            if progress:
                progress(i + 1, r)
    return wrong, r


# ---- If-Match ----

class Counting(threading.Thread):
    """Appends its steps to lists that all share, each step once; what it was told is in `told`. A step has a name of its
    own, so that an unknown outcome is known as soon as the list can be read: it is in it, or its ETag is still the one
    that the step was for (then the same step again is no second one), or it can never be."""

    def __init__(self, cluster, bucket, index, keys, steps, wait_s=WAIT_S):
        super().__init__(daemon=True)
        self.cluster, self.bucket, self.index, self.keys, self.steps, self.wait_s = cluster, bucket, index, keys, steps, wait_s
        self.client = Client(cluster, bucket, index)
        self.told, self.tries, self.unknown, self.error = [], 0, 0, None

    def run(self):
        try:
            choose = random.Random(self.index)
            for step in range(self.steps):
                self.step(choose.choice(self.keys), f"{self.index}/{step}", choose)
        except Exception as e:
            self.error = e
        finally:
            self.client.close()

    def ask(self, *args):
        """Like Client.ask; status 0 where the host died, and the next host is asked then."""
        try:
            return self.client.ask(*args)
        except (OSError, http.client.HTTPException):
            self.client.close()
            self.client = Client(self.cluster, self.bucket, self.client.index + 1)
            return 0, None, b""

    def step(self, key, mine, choose):
        end, unsure = time.monotonic() + self.wait_s, False
        while True:
            assert time.monotonic() < end, f"{mine} on {key}: not in {self.wait_s} s"
            self.tries += 1
            status, headers, body = self.ask("GET", key)
            assert status in (0, 200, 503), f"GET {key}: {status} {body[:200]}"
            if status != 200:
                time.sleep(choose.random() * 0.05)
                continue
            seen = json.loads(body)
            assert headers["ETag"] == f'"{hashlib.md5(body).hexdigest()}"', f"{key}: {headers['ETag']} for {body!r}"
            known = set(seen)
            assert len(known) == len(seen), f"{key} holds a step twice: {body!r:.300}"
            for told_key, token in self.told:
                assert told_key != key or token in known, f"{key} forgot {token}, which was acknowledged"
            if mine in known:
                assert unsure, f"{mine} is in {key} before it was written"
                break
            body = json.dumps(seen + [mine]).encode()
            status, _, text = self.ask("PUT", key, body, {"If-Match": headers["ETag"]})
            assert status in (0, 200, 409, 412, 503), f"PUT {key}: {status} {text[:200]}"
            if status == 200:
                break
            if status in (0, 503):
                unsure = True
                self.unknown += 1
            time.sleep(choose.random() * 0.05)
        self.told.append((key, mine))


def check_counters(cluster, bucket, keys, told):
    """`told`: (key, step) of every step that was made: each is in its list, once, at every host, and nothing else is."""
    for key in keys:
        want = sorted(token for told_key, token in told if told_key == key)
        for host in cluster.hosts:
            a = cluster.get(bucket, key, host=host)
            assert a.status == 200, a
            got = sorted(json.loads(a.body))
            assert got == want, f"{key} at {host.id}: missing {sorted(set(want) - set(got))[:5]}, " \
                                f"not acknowledged {sorted(set(got) - set(want))[:5]}, {len(got)} for {len(want)}"
