"""test_ready.py: `kofn ready` says in words and in its exit status what a host can serve, for health checks."""
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from cluster import Cluster


def ready(cluster, *args):
    r = subprocess.run([str(cluster.binary), "ready", *args], capture_output=True, text=True, timeout=60)
    return r.returncode, r.stdout.strip(), r.stderr.strip()


def becomes(cluster, host, what, code):
    """Connections that end are seen in a moment, not at once."""
    end = time.monotonic() + 30
    while True:
        last = ready(cluster, what, host.admin[7:])
        if last[0] == code:
            return last[1]
        assert time.monotonic() < end, f"ready {what} {host.id}: {last}, expected exit status {code}"
        time.sleep(0.1)


def check(cluster):
    n1, n2, n3 = cluster.hosts
    for what in ("read", "write"):
        assert becomes(cluster, n1, what, 0) == "ready"
    print("2+1, all there: ready for both")
    n3.kill(signal.SIGKILL)
    for what in ("read", "write"):
        assert becomes(cluster, n1, what, 0) == "ready"
    print("one of three gone: ready for both, as W = k = 2")
    n2.kill(signal.SIGKILL)
    for what in ("read", "write"):
        words = becomes(cluster, n1, what, 1)
        assert "pool" in words and "are needed" in words, words
    print(f"two of three gone: exit status 1, {words!r}")
    code, out, err = ready(cluster, "read", n2.admin[7:])
    assert (code, out) == (1, "") and "cannot reach the admin port" in err, (code, out, err)
    print(f"a dead host: exit status 1, {err!r}")
    for args in ((), ("everything",), ("read", "a:1", "b:2")):
        code, out, err = ready(cluster, *args)
        assert code == 2 and "kofn ready:" in err, (args, code, out, err)
    print("misuse: exit status 2")


def main():
    work = pathlib.Path(tempfile.mkdtemp(prefix="kofn-ready."))
    cluster = Cluster(work / "cluster", hosts=3, pool="2+1")
    try:
        cluster.start()
        check(cluster)
    except BaseException:
        for h in cluster.hosts:
            print(f"--- log of {h.id}\n{h.log_text()[-2000:]}", file=sys.stderr)
        raise
    finally:
        cluster.stop()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
