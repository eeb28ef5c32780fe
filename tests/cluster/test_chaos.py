"""test_chaos.py: clients on all hosts write, read, delete, list and hang up while hosts are killed, stopped and restarted.

Every answer goes into its key's history (workload.py); in the end each history must be linearizable, all that was
acknowledged must read back byte for byte at every host, the list must say the same, and nothing may be left behind: no
undecided rows, no open stages, no buffers, no chunk. KOFN_CHAOS_SEED repeats a run's choices (not its timing),
KOFN_CHAOS_SECONDS makes it longer. The same clients on six hosts: tests/proof.
"""
import http.client
import os
import random
import secrets
import shutil
import signal
import sys
import tempfile
import threading
import time

from cluster import Cluster
from workload import ANSWER_S, Workload

SECONDS = float(os.environ.get("KOFN_CHAOS_SECONDS", "30"))
PROCESSES, THREADS = 2, 3
BUCKET = "chaos"

# libuv closes descriptors by raw system calls, which TSan does not see: the next owner of a number looks like a race.
TSAN_SUPPRESSIONS = "race:store_files_*\nrace:chunk_file_*\nrace:state_write\nrace:write_all\n"


def watch(c, stop):
    """The admin pages are asked all the time: they look at every worker while it works."""
    while not stop.wait(0.2):
        for host in c.hosts:
            for path in ("/metrics", "/admin/v1/status", "/admin/v1/heal"):
                try:
                    host.request_admin("GET", path, timeout=ANSWER_S)
                except (OSError, http.client.HTTPException):
                    break


def disturb(w, rng, host):
    draw = rng.random()
    w.disturb(host)
    if draw < 0.45:
        host.kill(signal.SIGKILL)
        time.sleep(rng.uniform(0, 1.5))
        host.start()
    elif draw < 0.85:
        host.kill(signal.SIGSTOP)
        time.sleep(rng.choice([0.1, 0.5, 1.5, 3]))
        host.kill(signal.SIGCONT)
    else:
        status = host.kill(signal.SIGTERM)
        assert status == 0, f"{host.id} ended with {status} after SIGTERM"
        host.start()
    w.disturb(host)
    assert host.alive(), f"{host.id} has ended with {host.process.returncode}"


def run(c, w, seed):
    """Returns how often hosts were disturbed."""
    rng, count, stop = random.Random(f"{seed}/chaos"), 0, threading.Event()
    w.start(PROCESSES, THREADS)
    watcher = threading.Thread(target=watch, args=(c, stop))
    watcher.start()
    try:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            time.sleep(rng.uniform(0.2, 1.5))
            # Mostly one host at a time (2+1 goes on), sometimes two (it must refuse, and lose nothing).
            for host in rng.sample(c.hosts, 2 if rng.random() < 0.15 else 1):
                disturb(w, rng, host)
                count += 1
        w.stop()
    finally:
        w.abandon()
        stop.set()
        watcher.join()
    c.wait_ready()
    return count


def main():
    seed = os.environ.get("KOFN_CHAOS_SEED") or secrets.token_hex(4)
    print(f"KOFN_CHAOS_SEED={seed}", flush=True)
    directory = tempfile.mkdtemp(prefix="kofn-chaos-")
    with open(os.path.join(directory, "tsan"), "w") as f:
        f.write(TSAN_SUPPRESSIONS)
    os.environ.setdefault("TSAN_OPTIONS", f"suppressions={directory}/tsan")
    try:
        with Cluster(directory, hosts=3, drives_per_host=1, pool="2+1", settings="trash_delay: 1s",
                     server="peer_timeout: 5s\nworkers: 2\nshutdown_grace: 10s") as c:
            c.start()
            c.make_bucket(BUCKET)
            w = Workload(c, BUCKET, seed)
            disturbed = run(c, w, seed)
            print("requests:", ", ".join(f"{k} {v}" for k, v in sorted(w.count.items())))
            print(f"{disturbed} times something was done to a host")
            assert w.count["put"] > 20 and w.count["get"] > 20, "too little went on to prove anything"
            w.judge_all()
            w.delete_all()
            for host in c.hosts:
                for word in ("AddressSanitizer", "ThreadSanitizer", "runtime error", "Assertion"):
                    assert word not in host.log_text(), f"{host.id}'s log:\n{host.log_text()[-6000:]}"
            statuses = c.stop()
            assert statuses == [0, 0, 0], f"exit statuses after SIGTERM: {statuses}"
            print("ok: all hosts ended with 0")
    finally:
        if not os.environ.get("KOFN_CHAOS_KEEP"):
            shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
