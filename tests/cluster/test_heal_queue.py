"""What a degraded write leaves to be healed: exactly those keys and slots, durably, until the key is whole again.

Seven hosts, pool 4+2, so that a dead host has no slot of some keys. `kofn heal list --json` is compared with what the
writes must have left: the slot of each dead host's drive in each key written meanwhile, and nothing else.
"""
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from cluster import Cluster

BUCKET = "heal"
WAIT_S = 60
SIZES = [0, 1, 300, 70_000, 300_000]


class Queue:
    """The queue as it should be: key -> slots; and the cluster's, from any host."""

    def __init__(self, cluster):
        self.c, self.want = cluster, {}
        self.numbers = random.Random(11)

    def slot_of(self, key, host, gateway):
        where = gateway.admin_json(f"/admin/v1/where?bucket={BUCKET}&key={key}")
        return [s["slot"] for s in where["slots"] if s["drive"].split("/")[0] == host.id]

    def put(self, gateway, key, dead=None, headers=None):
        """PUTs, and notes what that leaves to be healed."""
        body = self.numbers.randbytes(self.numbers.choice(SIZES))
        a = self.c.put(BUCKET, key, body, host=gateway, headers=headers)
        assert a.status == 200, (key, a)
        self.note(gateway, key, dead)

    def delete(self, gateway, key, dead=None):
        a = self.c.delete(BUCKET, key, host=gateway)
        assert a.status == 204, (key, a)
        self.note(gateway, key, dead)

    def note(self, gateway, key, dead):
        slots = self.slot_of(key, dead, gateway) if dead else []
        self.want.pop(key, None)
        if slots:
            self.want[key] = slots

    def listed(self, host):
        """(entries as {key: [slot]}, whole answer); a key that is there twice has the slots of both, and `twice`."""
        r = subprocess.run([os.environ["KOFN_BIN"], "heal", "list", "--json", host.admin[7:]], capture_output=True, text=True)
        assert r.returncode == 0, (r.stdout, r.stderr)
        doc = json.loads(r.stdout)
        found = {}
        for e in doc["entries"]:
            assert e["bucket"] == BUCKET and e["kind"] == "object", e
            assert bytes.fromhex(e["key_hex"]).decode() == e["key"], e
            slots = sorted(s["slot"] for s in e["slots"])
            found[e["key"]] = ["twice", *found[e["key"]], *slots] if e["key"] in found else slots
        assert not doc["truncated"], doc
        return found, doc

    def settle(self, hosts, when, silent=()):
        """Every host lists exactly what is wanted. The flags and the queue ride the next transaction: a moment is given,
        and afterwards it must stay so."""
        end = time.monotonic() + WAIT_S
        for host in hosts:
            while (found := self.listed(host))[0] != self.want:
                assert time.monotonic() < end, f"{when}, at {host.id}: {self.difference(found[0])}"
                time.sleep(0.1)
            assert sorted(found[1]["drives_not_heard"]) == sorted(f"{h.id}/d1" for h in silent), found[1]
        print(f"{when}: {len(self.want)} keys to be healed, the same at {len(hosts)} hosts")

    def difference(self, found):
        wrong = {k: (found.get(k), self.want.get(k)) for k in found.keys() | self.want.keys() if found.get(k) != self.want.get(k)}
        return f"listed and wanted slots differ: {dict(sorted(wrong.items())[:10])} ({len(wrong)} keys)"


def with_dead(cluster, host, act):
    host.kill()
    gateway = next(h for h in cluster.hosts if h is not host)
    for h in cluster.hosts:
        if h is not host:
            cluster.wait_sight(h, [host], up=False)
    act(gateway)


def back(cluster, hosts):
    for h in hosts:
        h.start()
    cluster.wait_ready(hosts)
    for h in cluster.hosts:
        if h.alive():
            cluster.wait_sight(h, [x for x in cluster.hosts if x.alive()])


def restart_all(cluster, but=()):
    """Half of the hosts are told to stop, half are killed; all start again, except some."""
    hosts = [h for h in cluster.hosts if h not in but]
    for i, h in enumerate(hosts):
        h.kill(signal.SIGKILL if i % 2 else signal.SIGTERM)
    back(cluster, hosts)


def run(c):
    q = Queue(c)
    alive = lambda dead: [h for h in c.hosts if h is not dead]
    first, second = c.hosts[0], c.hosts[1]
    healthy = [f"healthy{i:02}" for i in range(15)]
    for key in healthy:
        q.put(c.hosts[2], key)
    q.settle(c.hosts, "healthy PUTs")

    degraded = [f"one/{i:02}" for i in range(30)]

    def write(gateway):
        for i, key in enumerate(degraded):
            q.put(gateway if i % 2 else c.hosts[4], key, first, {"If-None-Match": "*"} if i % 5 == 0 else None)
    with_dead(c, first, write)
    assert 0 < len(q.want) < len(degraded), "the dead host has a slot of some keys and not of all"
    q.settle(alive(first), "30 PUTs with a host dead", silent=[first])
    restart_all(c, but=[first])
    q.settle(alive(first), "all others restarted", silent=[first])
    back(c, [first])
    q.settle(c.hosts, "the dead host is back")
    restart_all(c)
    q.settle(c.hosts, "all restarted")
    for key in healthy + [f"more{i:02}" for i in range(15)]:
        q.put(c.hosts[3], key)
    q.settle(c.hosts, "30 healthy PUTs more")

    def write_again(gateway):
        for key in degraded[:10]:
            q.put(gateway, key, second)
        for i in range(10):
            q.put(gateway, f"two/{i:02}", second)
        for key in healthy[:5] + degraded[10:15]:
            q.delete(gateway, key, second)
    with_dead(c, second, write_again)
    q.settle(alive(second), "another host dead: 20 PUTs, 10 of them over degraded keys, and 10 DELETEs", silent=[second])
    back(c, [second])
    q.settle(c.hosts, "that host is back")
    for key in degraded[5:25] + [f"two/{i:02}" for i in range(5)]:
        q.put(c.hosts[5], key)
    q.settle(c.hosts, "25 keys written again by all drives")
    restart_all(c)
    q.settle(c.hosts, "all restarted")
    for key in list(q.want):
        q.put(c.hosts[6], key)
    q.settle(c.hosts, "all keys written again")


def main():
    base = pathlib.Path(tempfile.mkdtemp(prefix="kofn-heal."))
    try:
        with Cluster(base, hosts=7, pool="4+2") as c:
            c.start()
            for h in c.hosts:
                c.wait_sight(h, c.hosts)
            c.make_bucket(BUCKET)
            run(c)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
