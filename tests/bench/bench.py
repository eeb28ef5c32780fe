"""bench.py: kofn beside nginx on the same disk, in one run: `./run bench`.

  start all -> for each cell (method, size, connections): rounds of every subject in turn -> figures
  -> with drives gone -> slow clients, a stopped and a slowed host -> JSON, page, table

Rounds are interleaved, so that what else the machine does meanwhile hits all subjects alike, and ratios are taken
within a round. A step moves at most STEP_BYTES_MAX and takes at most STEP_SECONDS_MAX (answers under way are waited for).
nginx syncs nothing and checks nothing; kofn's writes are durable on W drives before they are answered.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import page
import subjects

HERE = pathlib.Path(__file__).resolve().parent
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
STEP_BYTES_MAX = 8 * GIB
STEP_SECONDS_MAX = 20
SIZES = [4 * KIB, 64 * KIB, MIB, 64 * MIB]
CONNECTIONS = [1, 16, 64]
QUICK = [(4 * KIB, 16), (4 * KIB, 64), (64 * KIB, 16), (MIB, 16), (64 * MIB, 16)]
SLOW_STREAMS = 64
SLOW_RATE = 512 * KIB


def load_keys(size, connections, method):
    """How many keys a cell uses: enough that writers do not meet, few enough that readers find the page cache."""
    want = max(4, min(1024, 256 * MIB // size))
    return max(want, connections) if method == "PUT" else want


class Load:
    """One run of kofn-load."""

    def __init__(self, tool, subject, method, size, connections, seconds, prefix, keys, rate=None, once=False, urls=None):
        self.command = [str(tool), "--method", method, "--size", str(size), "--connections", str(connections),
                        "--seconds", str(seconds), "--keys", str(keys), "--bytes", str(STEP_BYTES_MAX)]
        for url in urls or subject.urls():
            self.command += ["--url", url + prefix]
        if subject.user:
            self.command += ["--user", subject.user]
        if rate:
            self.command += ["--rate", str(rate)]
        if once:
            self.command.append("--once")

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return self

    def result(self):
        out, err = self.process.communicate()
        if not out:
            raise RuntimeError(f"{' '.join(self.command)}: {err.strip()}")
        return json.loads(out)

    def run(self):
        return self.start().result()


class Bench:
    def __init__(self, args, directory):
        self.args, self.dir = args, directory
        self.tool = directory / "kofn-load"
        self.binary = pathlib.Path(args.kofn).resolve()
        self.rounds = args.rounds or (2 if args.quick else 5)
        self.seconds = min(args.seconds or (2 if args.quick else 5), STEP_SECONDS_MAX)
        self.result = {"machine": machine(directory), "begun": datetime.datetime.now().isoformat(timespec="seconds"),
                       "rounds": self.rounds, "step_seconds": self.seconds, "subjects": {}, "cells": [],
                       "idle": {}, "slow_clients": [], "slow_hosts": []}
        self.filled = set()
        self.running = []

    def say(self, text):
        print(text, file=sys.stderr, flush=True)

    def start(self, subject):
        self.running.append(subject)
        subject.start()
        self.result["subjects"][subject.name] = {"words": subject.words, "pool": getattr(subject, "pool", None)}
        return subject

    def stop_all(self):
        for subject in self.running:
            subject.stop()
        self.running = []

    def fill(self, subject, size):
        """The objects that GETs of this size read."""
        if (subject.name, size) in self.filled:
            return
        keys = load_keys(size, 1, "GET")
        got = Load(self.tool, subject, "PUT", size, min(keys, 16), 100, f"get-{size}-", keys, once=True).run()
        if got["requests"] != keys:
            raise RuntimeError(f"{subject.name}: filling with {size} bytes: {got}")
        self.filled.add((subject.name, size))

    def step(self, subject, method, size, connections, **kw):
        keys = load_keys(size, connections, method)
        prefix = f"{method.lower()}-{size}-"
        load = Load(self.tool, subject, method, size, connections, self.seconds, prefix, keys, **kw)
        pids = subject.pids()
        with subjects.MemoryPeak(pids) as peak:
            before = subjects.cpu_s(pids)
            got = load.run()
            got["cpu_s"] = subjects.cpu_s(pids) - before
        got["memory_own"], got["memory_rss"] = peak.own, peak.rss
        return finish(got)

    def cell(self, those, method, size, connections, base, state="healthy"):
        rounds = {s.name: [] for s in those}
        for n in range(self.rounds):
            for s in those if n % 2 == 0 else reversed(those):  # nobody always comes first
                rounds[s.name].append(self.step(s, method, size, connections))
        for s in those:
            cell = summary(rounds[s.name], rounds[base])
            cell.update(method=method, size=size, connections=connections, subject=s.name, base=base, state=state)
            self.result["cells"].append(cell)
            self.say(page.line(cell))
        if method == "PUT":
            for s in those:
                keys = load_keys(size, connections, method)
                Load(self.tool, s, "DELETE", size, 8, 60, f"put-{size}-", keys, once=True).run()

    def cells(self):
        every = QUICK if self.args.quick else [(s, c) for s in SIZES for c in CONNECTIONS]
        return [(s, c) for s, c in every if not self.args.sizes or s in self.args.sizes]

    # ---- the parts ----
    def idle(self, those):
        time.sleep(3)
        for s in those:
            seen = [subjects.memory(p) for p in s.pids()]
            before = subjects.cpu_s(s.pids())
            time.sleep(2)
            self.result["idle"][s.name] = {"memory_own": max(m[0] for m in seen), "memory_rss": max(m[1] for m in seen),
                                           "processes": len(seen), "cpu": (subjects.cpu_s(s.pids()) - before) / 2}
            self.say(f"idle {s.name}: {self.result['idle'][s.name]}")

    def healthy(self, those):
        for size, connections in self.cells():
            for method in ("PUT", "GET"):
                if method == "GET":
                    for s in those:
                        self.fill(s, size)
                self.cell(those, method, size, connections, those[0].name)

    def degraded(self, layouts):
        """GET with m drives gone, PUT with as many gone as writes survive; each beside the same layout, whole."""
        self.seconds = self.result["degraded_step_seconds"] = max(1, self.seconds // 2)  # twice as many cells, only ratios
        for layout in layouts:
            reads, writes = subjects.losses(subjects.LAYOUTS[layout][3])
            whole = self.start(subjects.kofn(self.dir, self.binary, layout, "whole"))
            for lost, methods in ([(reads, ("GET", "PUT"))] if reads == writes else [(reads, ("GET",)), (writes, ("PUT",))]):
                if lost == 0:
                    continue
                short = self.start(subjects.kofn(self.dir, self.binary, layout, f"{lost}-gone"))
                for size, _ in self.cells():
                    for s in (whole, short) if "GET" in methods else ():
                        self.fill(s, size)
                short.lose(lost)
                for size, connections in self.cells():
                    for method in methods:
                        self.cell([whole, short], method, size, connections, whole.name, f"{lost} gone")
                short.stop()
                shutil.rmtree(short.cluster.dir, ignore_errors=True)
            whole.stop()
            shutil.rmtree(whole.cluster.dir, ignore_errors=True)

    def slow_clients(self, subject):
        """64 streams each way, of several sizes at full speed; then with clients that read and send slowly."""
        full, slow = (5, 15) if self.args.quick else (20, 60)
        for size, rate, seconds in ((64 * KIB, None, full), (MIB, None, full), (64 * MIB, None, full),
                                    (64 * MIB, SLOW_RATE, slow)):
            self.fill(subject, size)
            with subjects.MemoryPeak(subject.pids()) as peak:
                both = [Load(self.tool, subject, m, size, SLOW_STREAMS, seconds, f"{p}-{size}-",
                             load_keys(size, SLOW_STREAMS, m), rate=rate, urls=subject.urls()[:1]).start()
                        for m, p in (("GET", "get"), ("PUT", "slow"))]
                got = [b.result() for b in both]
            entry = {"subject": subject.name, "streams_each_way": SLOW_STREAMS, "size": size, "rate": rate,
                     "seconds": seconds, "memory_own": peak.own, "memory_rss": peak.rss,
                     "errors": sum(g["errors"] for g in got), "error": " ".join(g["error"] for g in got if g["error"])}
            self.result["slow_clients"].append(entry)
            self.say(f"streams: {entry}")
        Load(self.tool, subject, "DELETE", 64 * MIB, 8, 60, f"slow-{64 * MIB}-", SLOW_STREAMS, once=True).run()

    def slow_hosts(self, subject):
        """Others' p99 while the last host is stopped, and while it runs a tenth of the time; each round beside a whole one."""
        pid = subject.cluster.hosts[-1].pid
        urls = subject.urls()[:-1]
        for size in (4 * KIB, MIB):
            self.fill(subject, size)
            for method in ("GET", "PUT"):
                rounds = {"whole": [], "stopped": [], "slowed": []}
                for _ in range(self.rounds):
                    rounds["whole"].append(self.step(subject, method, size, 16, urls=urls))
                    with Paused(pid):
                        time.sleep(3)  # it is suspect by now
                        rounds["stopped"].append(self.step(subject, method, size, 16, urls=urls))
                    subject.cluster.wait_ready()
                    with Slowed(pid):
                        rounds["slowed"].append(self.step(subject, method, size, 16, urls=urls))
                    subject.cluster.wait_ready()
                entry = {"subject": subject.name, "method": method, "size": size}
                for name, got in rounds.items():
                    entry[name] = {k: statistics.median(r[k] for r in got) for k in ("p50_ms", "p99_ms", "requests_s")}
                    entry[name]["errors"] = sum(r["errors"] for r in got)
                    entry[name]["error"] = next((r["error"] for r in got if r["error"]), "")
                    entry[name]["p99_ratio"] = spread([r["p99_ms"] / w["p99_ms"] for r, w in zip(got, rounds["whole"])])
                self.result["slow_hosts"].append(entry)
                self.say(f"slow host: {entry}")

    def run(self):
        compile_tool(self.tool)
        layouts = [name for name in subjects.LAYOUTS if not self.args.layouts or name in self.args.layouts]
        those = [self.start(subjects.Nginx(self.dir))]
        those += [self.start(subjects.kofn(self.dir, self.binary, name)) for name in layouts]
        parts = self.args.parts
        if "idle" in parts:
            self.idle(those)
        if "healthy" in parts:
            self.healthy(those)
        for s in those[1:]:
            if "streams" in parts and s.name in ("one", "six"):
                self.slow_clients(s)
            if "slow" in parts and s.name == "six":
                self.slow_hosts(s)
        self.stop_all()
        for s in those:
            shutil.rmtree(self.dir / s.name, ignore_errors=True)
        if "degraded" in parts:
            self.degraded(layouts)
        return self.result


class Paused:
    def __init__(self, pid):
        self.pid = pid

    def __enter__(self):
        os.kill(self.pid, signal.SIGSTOP)

    def __exit__(self, *_):
        os.kill(self.pid, signal.SIGCONT)


class Slowed:
    """A process that runs 10 ms of every 100."""

    def __init__(self, pid):
        self.pid, self.stop = pid, threading.Event()
        self.thread = threading.Thread(target=self.pulse, daemon=True)

    def pulse(self):
        while not self.stop.is_set():
            os.kill(self.pid, signal.SIGSTOP)
            self.stop.wait(0.09)
            os.kill(self.pid, signal.SIGCONT)
            time.sleep(0.01)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()
        os.kill(self.pid, signal.SIGCONT)


def finish(got):
    seconds = max(got["seconds"], 1e-6)
    got["requests_s"] = got["requests"] / seconds
    got["bytes_s"] = got["bytes"] / seconds
    got["cpu_s_per_gb"] = got["cpu_s"] / (got["bytes"] / 1e9) if got["bytes"] else None
    got["cpu_us_per_request"] = got["cpu_s"] * 1e6 / got["requests"] if got["requests"] else None
    return got


FIGURES = ("requests_s", "bytes_s", "p50_ms", "p99_ms", "cpu_s_per_gb", "cpu_us_per_request")


def spread(values):
    values = [v for v in values if v is not None]
    if not values:
        return None
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def summary(rounds, base_rounds):
    """Median, least and most of each figure; the ratio to the base, round by round."""
    cell = {name: spread([r[name] for r in rounds]) for name in FIGURES}
    cell["ratio"] = spread([r["requests_s"] / b["requests_s"] for r, b in zip(rounds, base_rounds) if b["requests_s"]])
    cell["memory_own"] = max(r["memory_own"] for r in rounds)
    cell["memory_rss"] = max(r["memory_rss"] for r in rounds)
    cell["errors"] = sum(r["errors"] for r in rounds)
    cell["error"] = next((r["error"] for r in rounds if r["error"]), "")
    cell["requests"] = sum(r["requests"] for r in rounds)
    return cell


def machine(directory):
    """In general terms."""
    cpu = next((line.partition(":")[2].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
               platform.machine())
    memory = next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemTotal"))
    kind = subprocess.run(["df", "--output=fstype", str(directory)], capture_output=True, text=True).stdout.split()[-1]
    debian = pathlib.Path("/etc/debian_version")
    return {"cores": os.cpu_count(), "cpu": cpu, "memory_gib": round(memory / MIB, 1), "kernel": platform.release(),
            "file_system": kind, "debian": debian.read_text().strip() if debian.exists() else platform.platform()}


def compile_tool(path):
    subprocess.run(["cc", "-O2", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-pthread", "-o", str(path),
                    str(HERE / "kofn-load.c")], check=True)


def main():
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two rounds of few cells")
    parser.add_argument("--rounds", type=int, help="5 unless given, with --quick 2")
    parser.add_argument("--seconds", type=int, help=f"of a step, at most {STEP_SECONDS_MAX}; 5 unless given, with --quick 2; half of it with drives gone")
    parser.add_argument("--sizes", type=int, nargs="*", help="only these sizes, in bytes")
    parser.add_argument("--layouts", nargs="*", choices=list(subjects.LAYOUTS), help="only these layouts")
    parser.add_argument("--parts", nargs="*", default=["idle", "healthy", "degraded", "streams", "slow"],
                        choices=["idle", "healthy", "degraded", "streams", "slow"])
    parser.add_argument("--dir", help="where the drives and nginx's files lie; a new directory below it is used")
    parser.add_argument("--kofn", default=os.environ.get("KOFN_BIN", "build/kofn"))
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--html", metavar="FILE")
    parser.add_argument("--markdown", metavar="FILE")
    args = parser.parse_args()
    directory = pathlib.Path(tempfile.mkdtemp(prefix="kofn-bench-", dir=args.dir))
    bench = Bench(args, directory)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        result = bench.run()
    finally:
        bench.stop_all()
        shutil.rmtree(directory, ignore_errors=True)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(result, indent=1) + "\n")
    if args.html:
        pathlib.Path(args.html).write_text(page.html(result))
    text = page.markdown(result)
    if args.markdown:
        pathlib.Path(args.markdown).write_text(text)
    print(text)
    failed = [c for c in result["cells"] if c["errors"]]
    for c in failed:
        print(f"errors: {page.line(c)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
