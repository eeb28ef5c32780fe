"""black_box.py: six real hosts, each in a network namespace of its own, under every nemesis alone and all of them mixed.

24 clients over 64 keys PUT, GET, DELETE, list, hang up, create (`If-None-Match: *`) and swap (`If-Match`) at all hosts,
while for a minute each: hosts are killed; stopped (also for longer than every timeout); cut off from each other, both ways
and one way; lose a part of their packets; have wall clocks that are off and jump, up to an hour either way; have a disk
that answers EIO; and all of these at once. Then the faults stop. A violation would be: a history of a key, with its
unknown outcomes, that is not linearizable; wrong bytes; a request that hangs; after the faults, hosts that do not serve
within a minute, an acknowledged object that does not read back at every host, lists that disagree, an outcome that
changes after it was seen, rows that stay undecided, anything left on a drive once all is deleted.

Each host has an address of its own; clients stand on the bridge (netns.py). Where namespaces cannot be made the hosts
share loopback, and what needs a network is left out, and named. Delay by `tc netem` is not used (few kernels of virtual
machines have it); stopped hosts and lost packets delay enough.

That it can fail: `--break-promises` runs the test build without the promise round and reports histories that are not
linearizable.
"""
import os
import random
import signal
import sys
import time

import clock_fault
import io_fault
import netns
import suite
from suite import say, share

from cluster import Cluster
from workload import Workload

HOSTS, SLOTS, PROCESSES, THREADS = 6, 64, 3, 8
SIZES = (0, 1, 100, 100, 5_000, 5_000, 40_000, 130_000, 1_500_000)
SECONDS, SECONDS_SHORT = 60, 10
STOPS = (0.2, 1, 3, 8, 20)  # the last is beyond peer_timeout, every hedge and every wait for a stripe buffer
CLOCKS_MS = tuple(sign * s * 1000 for s in (1, 30, 59, 61, 300, 3600) for sign in (-1, 1))
SERVE_AGAIN_S = 60
ALONE = ("kill", "stop", "partition", "one way", "loss", "clock", "disk")


class Bed:
    """Six hosts with everything that can be done to them."""

    def __init__(self, directory, net, seed, binary):
        self.net, self.rng = net, random.Random(f"{seed}/black box")
        self.c = Cluster(directory, hosts=HOSTS, pool="4+2", binary=binary, settings="trash_delay: 1s",
                         server="peer_timeout: 5s\nworkers: 2\nshutdown_grace: 10s\nallow_plain_basic: true",
                         addresses=net.addresses if net else None, prefixes=net.prefixes if net else None)
        self.clocks = [clock_fault.ClockFault(directory / f"clock{i}") for i in range(HOSTS)] if clock_fault.preload_path() else []
        self.sick = self.rng.choice(self.c.hosts)  # the one whose disk fails
        self.disk = io_fault.IoFault(directory / "disk", self.sick.drives[0]) if io_fault.preload_path() else None
        self.count, self.w, self.armed = {}, None, False
        self.break_after = 0  # with a drive out for good, every other fault stops the writes: that comes late

    def start_host(self, host):
        env = {"LD_PRELOAD": ""}
        faults = [self.clocks[host.index]] if self.clocks else []
        if self.disk and host is self.sick:
            faults.append(self.disk)
        for f in faults:
            env |= f.env | {"LD_PRELOAD": f"{env['LD_PRELOAD']} {f.env['LD_PRELOAD']}".strip()}
        host.start(env)

    def note(self, what):
        self.count[what] = self.count.get(what, 0) + 1

    def well(self):
        """Hosts that nothing keeps from serving: not killed, not stopped."""
        return [h for h in self.c.hosts if not self.w.shared.away[h.index]]

    # ---- nemeses: each does something now and returns (for how long, what ends it), or None ----
    def kill(self):
        # A host whose only drive fails while it starts, or has failed, refuses to start: io_errors.py looks at that.
        able = [h for h in self.well() if h is not self.sick or not (self.armed or self.broken())]
        hosts = self.rng.sample(able, min(len(able), self.rng.choice([1, 1, 1, 1, 2])))
        for h in hosts:
            self.w.away(h, True)
            h.kill(signal.SIGKILL)

        def end():
            for h in hosts:
                self.start_host(h)
                self.w.away(h, False)
        return self.rng.choice([0, 0.3, 2, 4]), end

    def stop(self):
        hosts = self.rng.sample(self.well(), min(len(self.well()), self.rng.choice([1, 1, 1, 2])))
        for h in hosts:
            self.w.away(h, True)
            h.kill(signal.SIGSTOP)

        def end():
            for h in hosts:
                h.kill(signal.SIGCONT)
                self.w.away(h, False)
        return self.rng.choice(STOPS), end

    def cut(self, pairs):
        rules = self.net.cut(pairs)
        return self.rng.choice([1, 3, 6, 12]), lambda: self.net.undo(rules)

    def partition(self):
        hosts = self.rng.sample(range(HOSTS), HOSTS)
        size = self.rng.choice([1, 1, 2, 3])
        one, other = hosts[:size], hosts[size:]
        return self.cut([(a, b) for a in one for b in other] + [(b, a) for a in one for b in other])

    def one_way(self):
        hosts = self.rng.sample(range(HOSTS), HOSTS)
        kind = self.rng.choice(["deaf", "mute", "pairs", "ring"])
        pairs = {"deaf": [(a, hosts[0]) for a in hosts[1:]], "mute": [(hosts[0], a) for a in hosts[1:]],
                 "pairs": [(a, b) for a in hosts for b in hosts if a != b and self.rng.random() < 0.2],
                 "ring": [(hosts[i], hosts[(i + 1) % HOSTS]) for i in range(HOSTS)]}[kind]
        return self.cut(pairs)

    def loss(self):
        rules = []
        for b in self.rng.sample(range(HOSTS), self.rng.choice([1, 2, 6])):
            rules += self.net.lose(b, self.rng.choice([0.01, 0.05, 0.2]))
        return self.rng.choice([2, 5]), lambda: self.net.undo(rules)

    def clock(self):
        clocks = self.rng.sample(self.clocks, self.rng.choice([1, 1, 2]))
        for clock in clocks:
            clock.set(self.rng.choice(CLOCKS_MS))

        def end():
            for clock in clocks:
                clock.set(0)
        return self.rng.choice([0.5, 2, 5, 10]), end

    def broken(self):
        """Whether the sick disk has failed a write or a sync: its drive is out for good."""
        return self.count.get("disk: a write or sync failed", 0) > 0

    def bad_disk(self):
        """First reads fail now and then; later a write or a sync, and then the drive is out."""
        reads = self.count.get("disk: reads failed", 0)
        if self.broken() or self.armed or self.sick not in self.well():
            return None

        def end():
            self.disk.disarm()
            self.armed = False
        self.armed = True
        if reads < 3 or time.monotonic() < self.break_after:
            self.disk.arm(["read"], self.rng.randrange(1, 20), 5, times=self.rng.choice([1, 5]))
            self.note("disk: reads failed")
            return self.rng.choice([1, 3]), end
        self.disk.arm(["write", "sync"], self.rng.randrange(1, 50), 5, times=self.rng.choice([1, 1000]))
        self.note("disk: a write or sync failed")
        return 5, end

    def nemeses(self):
        all_of_them = {"kill": self.kill, "stop": self.stop, "partition": self.partition, "one way": self.one_way,
                       "loss": self.loss, "clock": self.clock, "disk": self.bad_disk}
        cannot = dict.fromkeys(("partition", "one way", "loss"), "no network namespaces") if not self.net else {}
        if self.net and not self.net.loss:
            cannot["loss"] = "no iptables with its `statistic` match"
        if not self.clocks:
            cannot["clock"] = "libkofn_clock_fault.so was not built"
        if not self.disk:
            cannot["disk"] = "libkofn_io_fault.so was not built"
        return {name: act for name, act in all_of_them.items() if name not in cannot}, cannot

    def torment(self, nemeses, seconds, at_once):
        """Does things to hosts for so long, up to `at_once` of them at the same time; undoes all of it."""
        end, running = time.monotonic() + seconds, []
        self.break_after = end - 0.4 * seconds
        try:
            while time.monotonic() < end:
                for entry in [e for e in running if e[0] < time.monotonic()]:
                    running.remove(entry)
                    entry[1]()
                if len(running) < at_once:
                    name = self.rng.choice(list(nemeses))
                    done = nemeses[name]()
                    if done:
                        self.note(name)
                        running.append((time.monotonic() + done[0], done[1]))
                assert not self.w.shared.faults.value, "a client saw a violation: it says so above"
                time.sleep(self.rng.uniform(0.05, 0.5))
        finally:
            for _, undo in running:
                undo()


def settle(bed, w):
    """Bounded time: every request ends, every host serves reads and writes again."""
    began = time.monotonic()
    w.stop()
    assert not w.faults, w.faults[:10]
    bed.c.wait_ready(timeout=SERVE_AGAIN_S)
    for h in bed.c.hosts:
        w.others.append(f"after/{h.id}")
        while (a := bed.c.put(w.bucket, f"after/{h.id}", b"served", host=h)).status != 200:
            assert time.monotonic() < began + SERVE_AGAIN_S, f"{h.id} does not write {SERVE_AGAIN_S} s after the faults: {a}"
            time.sleep(0.1)
        assert bed.c.delete(w.bucket, f"after/{h.id}", host=h).status == 204
    return time.monotonic() - began


def phase(name, chosen, directory, net, arguments, binary, seconds):
    """One cluster, one kind of fault (or all): (requests, answered, words for the table)."""
    directory.mkdir()
    bed = Bed(directory, net, f"{arguments.seed}/{name}", binary)
    nemeses, _ = bed.nemeses()
    with bed.c as c:
        for h in c.hosts:
            bed.start_host(h)
        c.wait_ready()
        c.make_bucket("box")
        w = bed.w = Workload(c, "box", f"{arguments.seed}/{name}", slots=SLOTS, ops_per_key=40, sizes=SIZES)
        try:
            w.start(PROCESSES, THREADS)
            bed.torment({n: nemeses[n] for n in chosen}, seconds, 1 if len(chosen) == 1 else 3)
            again = settle(bed, w)
        finally:
            w.abandon()
        say(f"{name}: {bed.count}; " + ", ".join(f"{k} {v}" for k, v in sorted(w.count.items())))
        without = [bed.sick] if bed.broken() else []
        found = w.judge_all(say, without)
        w.delete_all(say, without)
        statuses = c.stop()
        assert statuses == [0] * HOSTS, f"exit statuses after SIGTERM: {statuses}"
    n, ok, writes = w.count["requests"], w.count["answered"], w.shared.acknowledged.value
    assert writes > 3 * seconds, f"{writes} acknowledged writes prove nothing"
    say(f"ok: {name}: {sum(v for k, v in bed.count.items())} faults, {n} requests, {share(ok, n)} answered, {writes} writes "
        f"acknowledged, {len(found)} keys, serving again after {again:.1f} s, slowest request {w.slowest:.1f} s")
    return {"name": name, "requests": n, "answered": ok, "faults": sum(bed.count.values()), "keys": len(found),
            "hard": w.hard, "again": again, "slowest": w.slowest, "writes": writes}


def run(arguments, directory):
    why = "asked for" if arguments.loopback else netns.enter()
    net = None if why else netns.Net(HOSTS)
    say(f"hosts share loopback: {why}" if why else f"{HOSTS} network namespaces on a bridge")
    binary = os.environ.get("KOFN_BIN")
    if arguments.break_promises:
        os.environ["KOFN_TEST_SKIP_PROMISE"] = "1"
        binary = os.environ["KOFN_SWITCHES_BIN"]
    seconds = arguments.seconds or (SECONDS_SHORT if arguments.short else SECONDS)
    (directory / "look").mkdir()
    able, cannot = Bed(directory / "look", net, "look", binary).nemeses()
    for name, reason in cannot.items():
        say(f"left out: {name}: {reason}")
    phases = [(n, [n]) for n in ALONE if n in able] if not arguments.short else []
    phases.append(("all mixed", list(able)))
    if arguments.only:
        phases = [(n, [n] if n in able else list(able)) for n in arguments.only.split(",")]
    try:
        results = [phase(name, chosen, directory / name.replace(" ", "_"), net, arguments, binary, seconds)
                   for name, chosen in phases]
    finally:
        if net:
            net.close()
    where = "network namespaces" if net else f"loopback ({why})"
    answered = ", ".join(f"{r['name']} {share(r['answered'], r['requests'])}" for r in results)
    out = f"; left out: {', '.join(cannot)}" if cannot else ""
    total = {k: sum(r[k] for r in results) for k in ("requests", "writes", "keys", "hard", "faults")}
    return (f"six hosts in {where}, {PROCESSES * THREADS} clients over {SLOTS} keys at a time, {len(results)} x {seconds} s: "
            f"{', '.join(r['name'] for r in results)}{out}; {total['faults']} faults",
            f"{total['requests']:,} requests, {total['writes']:,} writes acknowledged, {total['keys']:,} keys judged "
            f"({total['hard']} too hard); answered: {answered}; all serve again at most "
            f"{max(r['again'] for r in results):.1f} s after the faults; slowest request "
            f"{max(r['slowest'] for r in results):.1f} s")


def more(parser):
    parser.add_argument("--loopback", action="store_true", help="no namespaces")
    parser.add_argument("--only", metavar="NEMESIS,...", help=f"of {', '.join(ALONE)}, mixed")
    parser.add_argument("--seconds", type=int, help="for each instead")
    parser.add_argument("--break-promises", action="store_true", help="must fail: KOFN_TEST_SKIP_PROMISE")


if __name__ == "__main__":
    sys.exit(suite.main("black_box", __doc__, run, more))
