"""test_clock.py: a host whose wall clock is an hour off serves like any other, and leaves no key behind that is stuck.

Three hosts, 2+1; one of them (then another) is an hour ahead, or behind, from its start on. Everything goes through that
host too. It was broken once: its PUTs carried stamps that the other drives refuse (PROTOCOL.md 2), the row that its own
drive had taken could not be decided, and lists answered 503 until the clocks had come there, an hour later.
"""
import os
import pathlib
import shutil
import sys
import tempfile

from cluster import Cluster
from workload import nothing_left, wait_for_rest

BUCKET = "clock"
HOUR_MS = 3_600_000


def through_all(c, who):
    keys = []
    for host in c.hosts:
        for body in (b"", b"x" * 1000, b"y" * 300_000):
            key = f"{host.id}-{len(body)}"
            assert (a := c.put(BUCKET, key, b"old" + body, host=host)).status == 200, f"{who}: PUT at {host.id}: {a}"
            other = c.hosts[(host.index + 1) % len(c.hosts)]
            a = c.put(BUCKET, key, body, host=other, headers={"If-Match": a.headers["ETag"]})
            assert a.status == 200, f"{who}: If-Match at {other.id} after a PUT at {host.id}: {a}"
            a = c.put(BUCKET, key, body, host=host, headers={"If-None-Match": "*"})
            assert a.status == 412, f"{who}: If-None-Match at {host.id}: {a}"
            keys.append(key)
    for host in c.hosts:
        assert sorted(c.list_keys(BUCKET, host=host)) == sorted(keys), f"{who}: list at {host.id}"
        for key in keys:
            a = c.get(BUCKET, key, host=host)
            assert a.status == 200 and len(a.body) == int(key.partition("-")[2]), f"{who}: GET {key} at {host.id}: {a}"
    for i, key in enumerate(keys):
        host = c.hosts[(i + 1) % len(c.hosts)]
        assert (a := c.delete(BUCKET, key, host=host)).status == 204, f"{who}: DELETE {key} at {host.id}: {a}"
    for host in c.hosts:
        assert c.list_keys(BUCKET, host=host) == [], f"{who}: list at {host.id}"
    wait_for_rest(c)
    nothing_left(c)


def main():
    base = pathlib.Path(tempfile.mkdtemp(prefix="kofn-clock."))
    try:
        for offset, words in ((HOUR_MS, "an hour ahead"), (-HOUR_MS, "an hour behind")):
            with Cluster(base / words.replace(" ", "-"), hosts=3, pool="2+1", binary=os.environ["KOFN_SWITCHES_BIN"],
                         settings="trash_delay: 0ms") as c:
                for host in c.hosts:
                    host.start({"KOFN_TEST_CLOCK_OFFSET_MS": str(offset)} if host.index == 1 else None)
                c.wait_ready()
                c.make_bucket(BUCKET)
                through_all(c, f"n2 {words}")
                for host in c.hosts[1:]:  # the clock of n2 is set right, that of n3 goes wrong: while drives hold stamps of both
                    host.kill()
                c.hosts[1].start()
                c.hosts[2].start({"KOFN_TEST_CLOCK_OFFSET_MS": str(-offset)})
                c.wait_ready()
                through_all(c, f"n2 right again, n3 {'behind' if offset > 0 else 'ahead'}")
            print(f"ok: {words}: writes, conditions, lists, reads and deletes through every host; nothing is left behind")
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
