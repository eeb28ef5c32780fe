"""SIGTERM at any moment of a start ends the host: it is never lost.

A host on formatted drives is told to stop after 0, 1, 2... ms. It ends by itself each time: with exit status 0, or by the
signal where it came before the program could take it. A start that goes on afterwards, serving, was asked in vain.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from cluster import free_ports, STOP_TIMEOUT_S

DRIVES = 3
ROUNDS = 120


def start(work, ports):
    env = {k: v for k, v in os.environ.items() if not k.startswith("KOFN_")}
    env |= {"KOFN_SERVER_STATE_DIR": str(work / "state"), "KOFN_SERVER_ANONYMOUS": "true",
            "KOFN_SERVER_S3_LISTEN": f"127.0.0.1:{ports[0]}", "KOFN_SERVER_ADMIN_LISTEN": f"127.0.0.1:{ports[1]}",
            "KOFN_DRIVE_RESERVE_BYTES": "64MiB", "KOFN_DRIVE_INDEX_MAP_BYTES": "64MiB"}
    args = [os.environ["KOFN_BIN"], "server", *(str(work / f"d{i}") for i in range(DRIVES))]
    with open(work / "log", "wb") as log:
        return subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)


def stop(process, work, when):
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise AssertionError(f"SIGTERM {when} is lost:\n{(work / 'log').read_text()}") from None


def main():
    work = pathlib.Path(tempfile.mkdtemp(prefix="kofn-stop."))
    try:
        for i in range(DRIVES):
            (work / f"d{i}").mkdir()
        ports, statuses = free_ports(2), {}
        process, end = start(work, ports), time.monotonic() + STOP_TIMEOUT_S
        while "serving S3" not in (work / "log").read_text() and time.monotonic() < end:
            time.sleep(0.001)
        took = time.monotonic() - (end - STOP_TIMEOUT_S)
        assert stop(process, work, "as soon as it serves") == 0, (work / "log").read_text()
        for i in range(ROUNDS):
            process = start(work, ports)
            delay = took * 1.5 * i / ROUNDS
            time.sleep(delay)
            status = stop(process, work, f"{delay * 1000:.1f} ms after the start")
            assert status in (0, -signal.SIGTERM), f"{delay:.4f} s: {status}\n{(work / 'log').read_text()}"
            statuses[status] = statuses.get(status, 0) + 1
        assert statuses.get(0, 0) > ROUNDS // 10, f"the program hardly ever took the signal: {statuses}"
        print(f"{ROUNDS} starts were told to stop within {took * 1500:.0f} ms: {statuses.get(0, 0)} ended with status 0, "
              f"{statuses.get(-signal.SIGTERM, 0)} by the signal")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
