"""Conditional PUTs race through different gateways.

64 clients on six hosts PUT the same 200 keys with `If-None-Match: *`, all 64 at once: one gets 200, the others 412 (or
409 or 503 first, and try again). The same race with the promise round switched off in a test build must break this, or
the race would prove nothing. Then 16 clients count through If-Match: every value that was acknowledged is in the final
one, once. (races.py; the same for 1,000 keys, and counted under kills: tests/proof/storms.py.)
"""
import os
import pathlib
import shutil
import sys
import tempfile
import time

from cluster import Cluster
from races import WAIT_S, Counting, check_counters, race

BUCKET = "race"
CLIENTS, KEYS = 64, [f"key{i:03}" for i in range(200)]
COUNTERS, COUNTING_CLIENTS, STEPS = 4, 16, 12


def one_winner(base):
    with Cluster(base / "race", hosts=6, pool="4+2") as c:
        c.start()
        c.make_bucket(BUCKET)
        started = time.monotonic()
        wrong, r = race(c, BUCKET, CLIENTS, KEYS)
        assert not wrong, f"{len(wrong)} of {len(KEYS)} keys: {wrong[:5]}"
        print(f"{CLIENTS} clients on 6 hosts, {len(KEYS)} keys: one 200 each ({time.monotonic() - started:.0f} s; of "
              f"{r.without} keys the winner had got 503)")
        assert r.without <= len(KEYS) // 10, f"{r.without} of {len(KEYS)} keys without a 200"
        counters(c)


def the_race_can_fail(base):
    os.environ["KOFN_TEST_SKIP_PROMISE"] = "1"
    try:
        with Cluster(base / "broken", hosts=6, pool="4+2", binary=os.environ["KOFN_SWITCHES_BIN"]) as c:
            c.start()
            c.make_bucket(BUCKET)
            wrong, _ = race(c, BUCKET, CLIENTS, KEYS, stop_at_first=True)
    finally:
        del os.environ["KOFN_TEST_SKIP_PROMISE"]
    assert wrong, f"without the promise round, {len(KEYS)} keys and still nothing wrong: this race proves nothing"
    print(f"without the promise round the same race finds: {wrong[0]}")


def counters(cluster):
    keys = [f"counter{i}" for i in range(COUNTERS)]
    for key in keys:
        a = cluster.put(BUCKET, key, b"[]")
        assert a.status == 200, a
    threads = [Counting(cluster, BUCKET, i, keys, STEPS) for i in range(COUNTING_CLIENTS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(STEPS * WAIT_S)
    errors = [t.error for t in threads if t.error]
    assert not errors, errors[0]
    told = [step for t in threads for step in t.told]
    check_counters(cluster, BUCKET, keys, told)
    assert len(told) == COUNTING_CLIENTS * STEPS, len(told)
    print(f"{COUNTING_CLIENTS} clients count to {len(told)} on {COUNTERS} keys through If-Match, "
          f"{sum(t.tries for t in threads)} tries: every step is there once")


def main():
    base = pathlib.Path(tempfile.mkdtemp(prefix="kofn-race."))
    try:
        one_winner(base)
        the_race_can_fail(base)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
