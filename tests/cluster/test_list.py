"""Lists over drives that missed writes.

Six hosts, pool 4+2. One host was dead while half of the keys were written and some were written again, another while
keys were deleted; nothing has told them since. Whatever hosts are down then, as long as the read quorum is there, every
list is what a model says: whole ones and pages, prefixes, delimiters, start-after, tokens, both versions, and with the
size and ETag of the newest version. Below the quorum a list is refused with 503; it is never short.
"""
import hashlib
import itertools
import pathlib
import random
import shutil
import sys
import tempfile
import time
import urllib.parse
import xml.etree.ElementTree as ET

from cluster import Cluster

BUCKET = "list"
WAIT_S = 60
QUERIES_EACH = 5
ODD = ["a", "a/", "a//b", "a/b", "a/b/c", "a/b/d", "a b", "a+b", "a%41", "b&<>\"'", "gr\u00fcn/\u4e2d\u6587/\U0001f600", "gr\u00fcn/x",
       "z" * 1024, "y" * 600 + "/1", "y" * 600 + "/2", "~"]
PREFIXES = ["", "a", "a/", "a/b", "dir/", "dir/1", "gr\u00fcn/", "y" * 600, "nothing/", "even"]
DELIMITERS = ["", "/", "b", "//"]


def all_keys():
    keys = ODD + [f"dir/{i % 7}/{i:03}" for i in range(60)] + [f"even{i:03}" for i in range(40)]
    assert len(set(keys)) == len(keys)
    return keys


# ---- the model: key -> body ----

def entries_after(model, prefix, delimiter, after):
    """(is a prefix, name) in byte order, behind `after`."""
    out = []
    for key in sorted(model, key=str.encode):
        if not key.startswith(prefix) or key.encode() <= after.encode():
            continue
        at = key.find(delimiter, len(prefix)) if delimiter else -1
        entry = (True, key[:at + len(delimiter)]) if at >= 0 else (False, key)
        if entry == (True, after) or (out and out[-1] == entry):
            continue
        out.append(entry)
    return out


class Page:
    def __init__(self, text, url_encoded):
        root = ET.fromstring(text)
        for e in root.iter():
            e.tag = e.tag.rpartition("}")[2]
        def word(e):
            return urllib.parse.unquote(e or "") if url_encoded else (e or "")
        self.keys = {word(c.findtext("Key")): (c.findtext("ETag"), c.findtext("Size")) for c in root.findall("Contents")}
        names = [(False, k) for k in self.keys] + [(True, word(p.findtext("Prefix"))) for p in root.findall("CommonPrefixes")]
        self.entries = sorted(names, key=lambda e: e[1].encode())
        self.truncated = root.findtext("IsTruncated") == "true"
        self.token, self.next_marker = root.findtext("NextContinuationToken"), word(root.findtext("NextMarker"))
        self.count, self.echo = root.findtext("KeyCount"), word(root.findtext("Prefix"))


class Lists:
    def __init__(self, cluster, model):
        self.c, self.model, self.refusals, self.asked = cluster, model, 0, 0

    def page(self, host, query):
        """One page; 503 is asked again, since a host that has just died may still be believed in."""
        end = time.monotonic() + WAIT_S
        while True:
            a = self.c.request("GET", f"/{BUCKET}?" + urllib.parse.urlencode(query), host=host)
            if a.status == 200:
                self.asked += 1
                return Page(a.body, query.get("encoding-type") == "url")
            assert a.status == 503 and time.monotonic() < end, f"{query} at {host.id}: {a}"
            self.refusals += 1
            time.sleep(0.05)

    def check(self, hosts, prefix="", delimiter="", after="", max_keys=1000, v2=True, url=True):
        """All pages of one list, each from the next of the hosts, against the model."""
        base = {"prefix": prefix, "delimiter": delimiter, "max-keys": max_keys}
        base |= {"list-type": 2} if v2 else {}
        base |= {"encoding-type": "url"} if url else {}
        query = dict(base, **({"start-after" if v2 else "marker": after} if after else {}))
        for hop in itertools.count():
            host = hosts[hop % len(hosts)]
            page = self.page(host, query)
            want = entries_after(self.model, prefix, delimiter, after)
            words = f"{query} at {host.id}"
            assert page.entries == want[:max_keys], self.difference(page.entries, want[:max_keys], words)
            assert page.truncated == (len(want) > max_keys), f"{words}: IsTruncated is {page.truncated}"
            assert page.echo == prefix and (not v2 or int(page.count) == len(page.entries)), words
            for key, (etag, size) in page.keys.items():
                body = self.model[key]
                assert (etag, size) == (f'"{hashlib.md5(body).hexdigest()}"', str(len(body))), f"{words}: an old {key:.50}"
            if not page.truncated:
                return
            after = page.entries[-1][1]
            if v2:
                query = dict(base, **{"continuation-token": page.token})
            else:
                assert not delimiter or page.next_marker == after, f"{words}: NextMarker {page.next_marker}"
                query = dict(base, marker=after)

    @staticmethod
    def difference(got, want, words):
        return (f"{words}: missing {[e[1][:50] for e in want if e not in got]}, "
                f"too much {[e[1][:50] for e in got if e not in want]} of {len(want)}")

    def check_some(self, hosts, numbers):
        self.check(hosts)
        self.check(hosts, max_keys=17, url=False, v2=False)
        keys = sorted(self.model)
        for _ in range(QUERIES_EACH):
            after = numbers.choice(["", "", numbers.choice(keys), "a/", "dir/3/", "even020x"])
            self.check(hosts, numbers.choice(PREFIXES), numbers.choice(DELIMITERS), after, numbers.choice([1000, 5, 2, 1]),
                       numbers.random() < 0.6, numbers.random() < 0.5)


# ---- how the drives came to differ ----

def write(cluster, model, host, keys, numbers):
    for key in keys:
        body = numbers.randbytes(numbers.choice([0, 3, 300, 100_000]))
        a = cluster.put(BUCKET, key, body, host=host)
        assert a.status == 200, (key, a)
        model[key] = body


def remove(cluster, model, host, keys):
    for key in keys:
        a = cluster.delete(BUCKET, key, host=host)
        assert a.status == 204, (key, a)
        del model[key]


def while_dead(cluster, host, act):
    """Acts while a host is dead; nobody waits for it meanwhile."""
    host.kill()
    gateway = next(h for h in cluster.hosts if h is not host)
    cluster.wait_sight(gateway, [host], up=False)
    act(gateway)
    host.start()
    cluster.wait_ready()
    for h in cluster.hosts:
        cluster.wait_sight(h, cluster.hosts)


def diverge(cluster, model, numbers):
    """n1 misses half of the PUTs, n2 the DELETEs and some PUTs in between."""
    keys = all_keys()
    numbers.shuffle(keys)
    half, missed = keys[:len(keys) // 2], keys[len(keys) // 2:]
    write(cluster, model, cluster.hosts[3], half, numbers)
    while_dead(cluster, cluster.hosts[0], lambda g: write(cluster, model, g, missed + half[:15], numbers))
    gone = half[::3] + missed[::3]

    def deletes(gateway):
        remove(cluster, model, gateway, gone)
        write(cluster, model, gateway, gone[::4], numbers)
    while_dead(cluster, cluster.hosts[1], deletes)
    print(f"n1 missed {len(missed) + 15} PUTs, n2 missed {len(gone)} DELETEs and {len(gone[::4])} PUTs; {len(model)} keys are left")


def set_down(cluster, down):
    """Exactly `down` are dead, and everybody alive knows."""
    alive = [h for h in cluster.hosts if h not in down]
    started = [h for h in alive if not h.alive()]
    for h in down:
        h.kill()
    for h in started:
        h.start()
    cluster.wait_ready(alive, what="read")
    for h in alive:
        cluster.wait_sight(h, alive)
        if down:
            cluster.wait_sight(h, down, up=False)
    return alive


def walk_pairs(hosts):
    """All pairs, so that each differs from the one before in one host."""
    for i in range(len(hosts)):
        others = range(i + 1, len(hosts))
        for j in others if i % 2 == 0 else reversed(others):
            yield [hosts[i], hosts[j]]


def few_left(cluster, lists):
    """Two drives are the read quorum: with n1 and n2 alone, the one knows the deletes and the other the writes."""
    a, b = cluster.hosts[:2]
    for h in (a, b):
        lists.check([h])  # they know the bucket now, whose register is out of reach soon
    for h in cluster.hosts[2:]:
        h.kill()
    for h in (a, b):
        cluster.wait_sight(h, cluster.hosts[2:], up=False)
    lists.check([a, b])
    lists.check([a, b], delimiter="/", max_keys=3)
    print("n1 and n2 alone (R = 2): lists are right")
    b.kill()
    cluster.wait_sight(a, [b], up=False)
    for query in ("list-type=2", "", "list-type=2&prefix=nothing/", "list-type=2&delimiter=/&max-keys=1"):
        r = cluster.request("GET", f"/{BUCKET}?{query}", host=a)
        assert r.status == 503 and r.headers["Retry-After"], f"a list with one drive of six: {r}"
        assert b"<Contents>" not in r.body, r
    print("one drive alone: 503, also where nothing would be listed")


def main():
    base = pathlib.Path(tempfile.mkdtemp(prefix="kofn-list."))
    numbers, model = random.Random(7), {}
    try:
        with Cluster(base, hosts=6, pool="4+2") as c:
            c.start()
            c.make_bucket(BUCKET)
            diverge(c, model, numbers)
            lists = Lists(c, model)
            for prefix, delimiter in itertools.product(PREFIXES, DELIMITERS):
                lists.check(c.hosts, prefix, delimiter)
                lists.check(c.hosts, prefix, delimiter, max_keys=2, v2=numbers.random() < 0.5)
            print(f"all hosts up: {len(PREFIXES) * len(DELIMITERS)} prefixes and delimiters, whole and page by page")
            for host in c.hosts:
                lists.check_some(set_down(c, [host]), numbers)
            print("each host down in turn: lists are right")
            for pair in walk_pairs(c.hosts):
                lists.check_some(set_down(c, pair), numbers)
            print("each pair of hosts down in turn: lists are right")
            set_down(c, [])
            few_left(c, lists)
            set_down(c, [])
            lists.check(c.hosts, max_keys=9)
            print(f"all back: right ({lists.asked} pages in all; 503 came {lists.refusals} times for want of a quorum in sight)")
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
