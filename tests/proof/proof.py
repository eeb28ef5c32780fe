"""proof.py: `./run proof`: the suites that try to make kofn lose data on a real machine, one after another.

A suite is tests/proof/<name>.py. It is told what to test through the environment (KOFN_BIN, KOFN_SWITCHES_BIN,
KOFN_SOURCE_DIR, KOFN_TOOLS_DIR), takes `--short` (the form that CI runs) and `--seed`, and ends with

    exit 0, the last line on stdout being `RESULT {"suite", "done", "found", "seconds", "figures"}`: passed
    exit 77, the last line on stdout being the reason:                                               skipped
    anything else:                                                                                   failed

`--write` puts the results into tests/proof/RESULTS.md; suites that did not run now keep their row there.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RESULTS = HERE / "RESULTS.md"
SUITES = ("kills", "power_cuts", "io_errors", "full_drive", "black_box", "storms")
SKIPPED = 77
LIMIT_S = {True: 300, False: 7200}  # short, whole: a suite that takes longer hangs
CLEANUP_S = 60
FIELDS = ("done", "found", "seconds", "figures")


class Outcome:
    def __init__(self, suite, state, seconds, words="", result=None):
        self.suite, self.state, self.seconds, self.words, self.result = suite, state, seconds, words, result or {}


class Runner:
    def __init__(self, arguments):
        self.arguments, self.child, self.stopped = arguments, None, False

    def stop(self, *_):
        """SIGINT or SIGTERM: the suite that runs takes down what it put up, then we end."""
        self.stopped = True
        if self.child and self.child.poll() is None:
            self.child.terminate()

    def run(self, suite):
        program = HERE / f"{suite}.py"
        if not program.exists():
            return Outcome(suite, "skipped", 0, f"{program.relative_to(ROOT)} does not exist")
        command = [sys.executable, "-B", str(program)] + (["--short"] if self.arguments.short else [])
        if self.arguments.seed:
            command += ["--seed", self.arguments.seed]
        started = time.monotonic()
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace")
        limit = threading.Timer(LIMIT_S[self.arguments.short], self.out_of_time, (suite, self.child))
        limit.daemon = True
        limit.start()
        last = ""
        for line in self.child.stdout:
            print(f"[{suite}] {line}", end="", flush=True)
            last = line.strip() or last
        status = self.child.wait()
        limit.cancel()
        return self.judge(suite, status, last, time.monotonic() - started)

    @staticmethod
    def out_of_time(suite, child):
        print(f"[{suite}] takes too long: it is ended", flush=True)
        child.terminate()
        try:
            child.wait(CLEANUP_S)
        except subprocess.TimeoutExpired:
            child.kill()

    @staticmethod
    def judge(suite, status, last, seconds):
        if status == SKIPPED:
            return Outcome(suite, "skipped", seconds, last)
        if status != 0:
            return Outcome(suite, "FAILED", seconds, f"exit status {status}; {last[:300]}")
        word, _, text = last.partition(" ")
        try:
            result = json.loads(text) if word == "RESULT" else None
        except ValueError:
            result = None
        if not isinstance(result, dict) or result.get("suite") != suite or set(FIELDS) - set(result):
            return Outcome(suite, "FAILED", seconds, f"exit status 0 without a result: {last[:300]}")
        return Outcome(suite, "passed", seconds, result=result)


def text_of(command, otherwise="unknown"):
    try:
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        return otherwise
    return done.stdout.strip() if done.returncode == 0 and done.stdout.strip() else otherwise


def file_system(path):
    return text_of(["df", "--output=fstype", str(path)]).split()[-1]


def machine():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        memory = pathlib.Path("/proc/meminfo").read_text().split()[1]
    except OSError:
        lines, memory = [], "0"
    names = [x.partition(":")[2].strip() for x in lines if x.startswith("model name")]
    system = "unknown"
    for line in pathlib.Path("/etc/os-release").read_text().splitlines():
        if line.startswith("PRETTY_NAME="):
            system = line.partition("=")[2].strip('"')
    return f"{os.cpu_count()} x {names[0] if names else platform.machine()}, {int(memory) / 1048576:.0f} GiB, {system}, " \
           f"Linux {platform.release()}"


def commit():
    name = text_of(["git", "rev-parse", "--short", "HEAD"])
    dirty = text_of(["git", "status", "--porcelain", "--untracked-files=no"], "")
    return name + ("+changes" if dirty else "")


def version():
    words = text_of([os.environ.get("KOFN_BIN", "kofn"), "version"]).split()
    return words[-1] if words else "unknown"


def cell(value):
    return str(value).replace("|", "\\|").replace("\n", " ")


def old_rows():
    """{suite: its row} of the results that are there."""
    rows = {}
    if RESULTS.exists():
        for line in RESULTS.read_text().splitlines():
            name = line.strip("| ").split(" ", 1)[0].strip("`")
            if line.startswith("| `") and name in SUITES:
                rows[name] = line
    return rows


def write_results(outcomes, short):
    rows, now, at = old_rows(), datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M"), commit()
    form = "short" if short else "whole"
    for o in outcomes:
        if o.state == "passed":
            r = o.result
            cells = [f"`{o.suite}`", form, r["done"], r["found"], f"{float(r['seconds']):.0f}", r["figures"], now, at]
        elif o.state == "skipped" and o.suite in rows:
            continue
        else:
            cells = [f"`{o.suite}`", form, f"{o.state}: {o.words}", "-", f"{o.seconds:.0f}", "-", now, at]
        rows[o.suite] = "| " + " | ".join(cell(c) for c in cells) + " |"
    lines = ["# The last results of `./run proof`", "",
             "Written by `./run proof --write`. Each suite's header comment (tests/proof/*.py) says what it does, what "
             "it would call a violation, and how it was shown that it can fail.", "",
             f"Machine: {machine()}. Temporary files on {file_system(os.environ.get('TMPDIR', '/tmp'))}. "
             f"kofn {version()}.", "",
             "| suite | form | what was done | violations | seconds | figures | UTC | commit |",
             "|---|---|---|---|---|---|---|---|"]
    lines += [rows[s] for s in SUITES if s in rows]
    RESULTS.write_text("\n".join(lines) + "\n")
    print(f"{RESULTS.relative_to(ROOT)} is written")


def print_table(outcomes):
    print("\n%-11s %-8s %8s  %s" % ("suite", "", "seconds", "what was done; violations; figures"))
    for o in outcomes:
        words = o.words or "; ".join(str(o.result[f]) for f in ("done", "found", "figures"))
        print("%-11s %-8s %8.0f  %s" % (o.suite, o.state, o.seconds, words))


def main():
    parser = argparse.ArgumentParser(prog="./run proof", description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="the form that CI runs")
    parser.add_argument("--only", metavar="NAME,...", help=f"of {', '.join(SUITES)}")
    parser.add_argument("--seed", help="repeats a run's random choices")
    parser.add_argument("--write", action="store_true", help="writes tests/proof/RESULTS.md")
    arguments = parser.parse_args()
    names = arguments.only.split(",") if arguments.only else list(SUITES)
    for name in names:
        if name not in SUITES:
            parser.error(f"there is no suite `{name}`: {', '.join(SUITES)}")
    os.environ.setdefault("KOFN_SOURCE_DIR", str(ROOT))
    runner, outcomes = Runner(arguments), []
    for sig in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sig, runner.stop)
    for name in names:
        if not runner.stopped:
            outcomes.append(runner.run(name))
    print_table(outcomes)
    for o in outcomes:
        if o.state == "skipped":
            print(f"skipped: {o.suite}: {o.words}")
    if runner.stopped:
        print("stopped before the end")
        return 1
    if arguments.write:
        write_results(outcomes, arguments.short)
    failed = [o.suite for o in outcomes if o.state == "FAILED"]
    if failed:
        print(f"failed: {', '.join(failed)}")
    elif not any(o.state == "passed" for o in outcomes):
        print("nothing ran, so nothing is shown")
        return SKIPPED
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
