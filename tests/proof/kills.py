"""kills.py: hosts of a six-host 4+2 cluster are killed by `kill -9` under load, hundreds of times, and start again.

Mostly one host at a time, sometimes two, the one with the most requests in flight, or all six at the same moment; some
stay away while the next one dies. Clients PUT, GET, DELETE, list, hang up and write under conditions meanwhile, from 0
bytes to several windows. A violation would be: an acknowledged object that is lost or not what was written, a deleted one
that is back, an outcome that is neither old nor new as a whole or changes after it was seen, a key whose history is not
linearizable, lists that disagree, hosts that do not come back, a request that hangs, or anything left on a drive when
all objects are deleted.

That it can fail: with `--break-promises` (the test build skips the promise round, and racing conditional writes both
win) it reports histories that are not linearizable. `--break-drives` empties the index of a killed host's drive before it
starts, which kofn must refuse: the host does not come back, and the suite says so.
"""
import os
import random
import shutil
import signal
import sys
import time

import suite
from suite import say

from cluster import Cluster
from workload import Workload

BUCKET = "kills"
KILLS, KILLS_SHORT = 300, 30
SLOTS, PROCESSES, THREADS = 12, 3, 3
SIZES = (0, 1, 100, 5_000, 40_000, 130_000, 1_000_000, 1_500_000, 3_000_000, 9_000_000)
SIZE_WEIGHTS = (2, 2, 6, 6, 6, 6, 3, 2, 1, 1)
WRITES_BETWEEN, WAIT_S = 15, 3  # from one kill to the next: so many acknowledged writes, or so long
KINDS = {"one": 60, "busiest": 20, "two": 12, "all six": 5, "one stays away": 8}


class Kills:
    def __init__(self, c, w, seed, until, break_drives=False):
        self.c, self.w, self.until, self.break_drives = c, w, until, break_drives
        self.rng = random.Random(f"{seed}/kills")
        self.count = dict.fromkeys(KINDS, 0)
        self.processes, self.away = 0, None
        self.slowest_start = 0.0

    def kill(self, hosts):
        for h in hosts:
            self.w.disturb(h)
        for h in hosts:  # all signals first: "at the same moment" as near as it goes
            h.process.send_signal(signal.SIGKILL)
        for h in hosts:
            h.process.wait()
        self.processes += len(hosts)

    def start(self, hosts):
        for h in hosts:
            if self.break_drives:
                shutil.rmtree(h.drives[0] / "index")
            h.start()
            self.w.disturb(h)

    def choose(self):
        kind = self.rng.choices(list(KINDS), KINDS.values())[0]
        up = [h for h in self.c.hosts if h is not self.away]
        if kind == "one":
            return kind, [self.rng.choice(up)]
        if kind == "busiest":
            busiest = self.w.busiest()
            return kind, [busiest if busiest is not self.away else self.rng.choice(up)]
        if kind == "two":
            return kind, self.rng.sample(up, 2)
        if kind == "all six":
            return kind, up
        return kind, [self.rng.choice(up)]

    def once(self):
        kind, hosts = self.choose()
        self.kill(hosts)
        self.count[kind] += 1
        if kind == "one stays away" and not self.away:
            self.away = hosts[0]
            return
        time.sleep(self.rng.choice([0, 0, 0.05, 0.3, 1.2]))  # sometimes before the others have noticed
        self.start(hosts)
        if self.away and self.rng.random() < 0.7:
            self.start([self.away])
            self.away = None

    def wait_for_writes(self):
        """Work goes on between kills, and hosts do come back."""
        seen, end = self.w.shared.acknowledged.value, time.monotonic() + WAIT_S
        while self.w.shared.acknowledged.value < seen + WRITES_BETWEEN and time.monotonic() < end:
            time.sleep(0.02)
        for h in self.c.hosts:
            if h is not self.away and not h.alive():
                raise AssertionError(f"{h.id} ended by itself with {h.process.returncode}:\n{h.log_text()[-3000:]}")
        assert not self.w.shared.faults.value, "a client saw a violation: it says so above"

    def run(self):
        total = 0
        while total < self.until:
            self.wait_for_writes()
            self.once()
            total = sum(self.count.values())
            if total % 25 == 0:
                say(f"{total} kills, {self.w.shared.acknowledged.value} writes acknowledged")
        if self.away:
            self.start([self.away])


def run(arguments, directory):
    binary = os.environ.get("KOFN_BIN")
    if arguments.break_promises:
        os.environ["KOFN_TEST_SKIP_PROMISE"] = "1"
        binary = os.environ["KOFN_SWITCHES_BIN"]
    until = arguments.kills or (KILLS_SHORT if arguments.short else KILLS)
    sizes = [s for s, n in zip(SIZES, SIZE_WEIGHTS) for _ in range(n)]
    with Cluster(directory, hosts=6, pool="4+2", binary=binary, settings="trash_delay: 1s",
                 server="peer_timeout: 5s\nworkers: 2\nshutdown_grace: 10s") as c:
        c.start()
        c.make_bucket(BUCKET)
        w = Workload(c, BUCKET, arguments.seed, slots=SLOTS, sizes=sizes)
        kills = Kills(c, w, arguments.seed, until, arguments.break_drives)
        try:
            w.start(PROCESSES, THREADS)
            kills.run()
            w.stop()
        finally:
            w.abandon()
        kills.kill(c.hosts)  # once more, so that the end is read from what is durable
        kills.start(c.hosts)
        began = time.monotonic()
        c.wait_ready()
        back = time.monotonic() - began
        say("requests: " + ", ".join(f"{k} {v}" for k, v in sorted(w.count.items())))
        found = w.judge_all(say)
        present = sum(v is not None for v in found.values())
        w.delete_all(say)
        statuses = c.stop()
        assert statuses == [0] * 6, f"exit statuses after SIGTERM: {statuses}"
    acknowledged = w.shared.acknowledged.value
    assert acknowledged > until * 3, f"{acknowledged} acknowledged writes prove nothing"
    kinds = ", ".join(f"{n} {kind}" for kind, n in kills.count.items() if n)
    unknown = sum(len([op for op in history if not op.sure]) for history in w.histories.values())
    return (f"{until} times `kill -9` under load ({kinds}: {kills.processes} processes), then all six",
            f"{w.count['requests']:,} requests, {acknowledged:,} writes acknowledged, {unknown:,} outcomes unknown; "
            f"{len(found):,} keys judged ({w.hard} too hard), {present:,} read back at all six hosts; slowest request "
            f"{w.slowest:.1f} s, ready {back:.1f} s after the last kill")


def more(parser):
    parser.add_argument("--kills", type=int, help="that many instead")
    parser.add_argument("--break-promises", action="store_true", help="must fail: KOFN_TEST_SKIP_PROMISE")
    parser.add_argument("--break-drives", action="store_true", help="must fail: indexes are removed")


if __name__ == "__main__":
    sys.exit(suite.main("kills", __doc__, run, more))
