"""object_load.py: clients whose objects are known: what each key may hold after every answer, and the check that it does.

A refused or broken write leaves either content possible, until the first read settles it: from then on every host must
say the same. Keys belong to one client at a time, so that the model needs no order between clients.
"""
import hashlib
import http.client
import random
import re
import threading
import urllib.parse

BUCKET = "proof"
NO_EFFECT = b"Too few drives are in reach"  # the 503 that says that nothing happened
FULL = 507


class Violation(AssertionError):
    """kofn broke a promise."""


def body_of(name, size):
    """The bytes of an object, to be had again from its name."""
    return random.Random(name).randbytes(size)


def digest(body):
    return hashlib.sha256(body).digest()


class Objects:
    def __init__(self, cluster, bucket=BUCKET):
        self.c, self.bucket = cluster, bucket
        self.lock = threading.Lock()
        self.may = {}  # key -> digests that it may hold; None: nothing
        self.count = {}
        self.acked = 0
        self.bytes = {}  # digest -> length, for messages

    def note(self, what):
        with self.lock:
            self.count[what] = self.count.get(what, 0) + 1

    def writes(self, key, value, answer):
        """What an answer to a write of `value` leaves possible; True where it took effect for sure."""
        with self.lock:
            before = self.may.get(key, {None})
            if answer is not None and answer.status in (200, 204):
                self.may[key] = {value}
                self.acked += 1
                return True
            no_effect = answer is not None and (answer.status in (409, 412, FULL) or NO_EFFECT in answer.body)
            self.may[key] = before if no_effect else before | {value}
            return False

    def ask(self, method, key, host, body=None, headers=None, timeout=60):
        """None: the connection broke."""
        try:
            return self.c.request(method, self.c.path(self.bucket, key), body, headers, host=host, timeout=timeout)
        except TimeoutError as e:
            raise Violation(f"{method} {key} at {host.id}: no answer within {timeout} s") from e
        except (OSError, http.client.HTTPException):
            self.note(f"{method} broken off")
            return None

    def put(self, key, size, host, name=None, headers=None):
        body = body_of(name or f"{key} {size}", size)
        self.bytes[digest(body)] = size
        a = self.ask("PUT", key, host, body, headers)
        self.note(f"PUT {a.status}" if a else "PUT ?")
        self.writes(key, digest(body), a)
        return a

    def delete(self, key, host):
        a = self.ask("DELETE", key, host)
        self.note(f"DELETE {a.status}" if a else "DELETE ?")
        self.writes(key, None, a)
        return a

    def saw(self, key, host, answer):
        """Checks an answer to a GET; it settles what was open."""
        if answer is None or answer.status in (500, 503):
            return False
        if answer.status not in (200, 404):
            raise Violation(f"GET {key} at {host.id}: {answer}")
        found = digest(answer.body) if answer.status == 200 else None
        with self.lock:
            may = self.may.get(key, {None})
            if found not in may:
                lengths = sorted(-1 if d is None else self.bytes.get(d, -2) for d in may)
                raise Violation(f"GET {key} at {host.id}: {answer.status} with {len(answer.body)} bytes, where one of "
                                f"{lengths} (bytes; -1: absent) was to be found; hosts' answers: {self.count}")
            self.may[key] = {found}
        return True

    def get(self, key, host):
        a = self.ask("GET", key, host)
        self.note(f"GET {a.status}" if a else "GET ?")
        return self.saw(key, host, a)

    def present(self):
        return sorted(k for k, may in self.may.items() if may != {None})

    def check(self, hosts, keys=None, listed=True):
        """Every key at every host, and the list: nothing may be refused. The number of objects that are there."""
        for key in keys if keys is not None else list(self.may):
            for host in hosts:
                a = self.ask("GET", key, host)
                if not self.saw(key, host, a):
                    raise Violation(f"{key} cannot be read at {host.id}: {a}")
        for host in hosts if listed else ():
            self.check_list(host)
        return len(self.present())

    def check_list(self, host):
        found, token = [], ""
        while True:
            query = f"/{self.bucket}?list-type=2" + (f"&continuation-token={urllib.parse.quote(token)}" if token else "")
            a = self.c.request("GET", query, host=host)
            if a.status != 200:
                raise Violation(f"the list at {host.id}: {a}")
            found += [urllib.parse.unquote(k) for k in re.findall(r"<Key>([^<]*)</Key>", a.body.decode())]
            more = re.search(r"<NextContinuationToken>([^<]*)</NextContinuationToken>", a.body.decode())
            if not more:
                break
            token = more.group(1)
        if found != sorted(set(found)):
            raise Violation(f"the list at {host.id} is not in order: {found[:20]}")
        with self.lock:
            wrong = [k for k in set(found) ^ {k for k, may in self.may.items() if may != {None}}
                     if None not in (may := self.may.get(k, {None})) or may == {None}]
        if wrong:  # what is open may be there or not
            raise Violation(f"the list at {host.id} differs: {sorted(wrong)[:10]}")


def together(tasks):
    """Runs them in threads; the first one's exception is raised here."""
    faults = []

    def run(task):
        try:
            task()
        except BaseException as e:  # noqa: B902: it is raised below
            faults.append(e)

    threads = [threading.Thread(target=run, args=(t,)) for t in tasks]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if faults:
        raise faults[0]
