"""test_start_refusals.py: what a host refuses to start on: by name, with exit status 2, and with nothing changed.

A mistake that were half accepted would cost data: a drive that comes back empty, or from another host, cluster or time,
would vote as if it had never acknowledged anything.
"""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

import remains
from cluster import Cluster, free_ports, tree
from wire import eventually, expect, running

KEYS = [("small", b"s" * 1000), ("big", b"b" * 3_000_000)]


def ok(text):
    print(f"ok {text}", flush=True)


def fill(c):
    c.make_bucket("bucket")
    for key, body in KEYS:
        expect(c.put("bucket", key, body), 200)


def reads(c, hosts=None):
    for host in hosts or c.hosts:
        for key, body in KEYS:
            assert expect(c.get("bucket", key, host=host), 200).body == body, key


def disk(c):
    """All that lies below the cluster's directory but logs, configurations and the locks' own pids."""
    files = {f: size for f, size in tree(c.dir).items()
             if not re.search(r"(^|/)(log|kofn\.yaml|lock|lock\.mdb|state\.json)$", f)}
    states = {str(p): p.read_bytes() for p in c.dir.rglob("state.json")}
    rows = {str(d): remains.index_of(d) for h in c.hosts for d in h.drives if (d / "index/data.mdb").exists()}
    return files, states, rows


def run_command(command, env=None):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **(env or {})})


def refused(c, what, words, host=None, env=None, command=None, state_may_change=False):
    """Starts a host, which must end with status 2 and one line that has all the words; nothing may have changed."""
    before = disk(c)
    host = host or c.hosts[0]
    r = run_command(command or host.command, env)
    said = r.stdout + r.stderr
    assert r.returncode == 2, f"{what}: exit status {r.returncode}: {said[-2000:]}"
    lines = [line for line in said.splitlines() if all(w in line for w in words)]
    assert lines, f"{what}: no line has {words}:\n{said[-2000:]}"
    after = disk(c)
    for part, (old, new) in enumerate(zip(before, after)):
        if part == 1 and state_may_change:
            continue
        names = sorted(k for k in old.keys() | new.keys() if old.get(k) != new.get(k))
        assert not names, f"{what}: changed {names[:5]}"
    ok(f"{what}: {lines[0].strip()[:240]}")


def edit(host, *changes):
    text = host.config.read_text()
    for old, new in changes:
        assert old in text, f"{old} not in {text}"
        text = text.replace(old, new)
    host.config.write_text(text)


def test_running_twice(c):
    """Hosts and ports that are in use."""
    a, b = c.hosts[0], c.hosts[1]
    refused(c, "the same host twice", ["server.s3_listen", f":{a.s3_port}", "in use"])
    other = free_ports(3)
    fresh = {"KOFN_SERVER_S3_LISTEN": f"127.0.0.1:{other[0]}", "KOFN_SERVER_ADMIN_LISTEN": f"127.0.0.1:{other[1]}",
             "KOFN_SERVER_PEER_LISTEN": f"127.0.0.1:{other[2]}"}
    refused(c, "the same host twice, on other ports", ["uses state directory", f"pid {a.pid}"], env=fresh)
    state = c.dir / "elsewhere"
    refused(c, "two hosts on the same drive", [str(a.drives[0]), "in use by another process", f"pid {a.pid}"],
            env={**fresh, "KOFN_SERVER_STATE_DIR": str(state)})
    shutil.rmtree(state)
    # Another host's configuration with ports of a running one: the port is named, before a drive is looked at.
    b.kill(signal.SIGTERM)
    for field, port in (("s3_listen", a.s3_port), ("admin_listen", a.admin_port), ("peer_listen", a.peer_port)):
        refused(c, f"the port of server.{field} taken by another host", [f"server.{field}", f"127.0.0.1:{port}", "in use"],
                host=b, env={f"KOFN_SERVER_{field.upper()}": f"127.0.0.1:{port}"})
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        refused(c, "a port that a stranger shares with SO_REUSEPORT", ["server.s3_listen", f":{port}", "in use"], host=b,
                env={"KOFN_SERVER_S3_LISTEN": f"127.0.0.1:{port}"})
    b.start()
    c.wait_ready()
    reads(c)


def test_wrong_directories(c):
    """Directories that are not the drive they should be. All hosts are stopped."""
    a, b = c.hosts[0], c.hosts[1]
    da, db, aside = a.drives[0], b.drives[0], c.dir / "aside"
    for h in c.hosts:
        h.kill(signal.SIGTERM)
    os.rename(da, aside)
    os.rename(db, da)
    os.rename(aside, db)
    refused(c, "drive directories swapped between hosts", [str(da), "n2"])
    refused(c, "drive directories swapped between hosts, the other", [str(db), "n1"], host=b)
    os.rename(da, aside)
    os.rename(db, da)
    os.rename(aside, db)
    d2 = a.drives[1]
    os.rename(da, aside)
    os.rename(d2, da)
    os.rename(aside, d2)
    refused(c, "drive directories swapped within a host", [str(da), "d2", "swapped"])
    os.rename(da, aside)
    os.rename(d2, da)
    os.rename(aside, d2)

    os.rename(da, aside)
    da.mkdir()
    refused(c, "an empty directory in place of a formatted drive", [str(da), "is empty", "mounted", "drive replace"])
    state = a.dir / "state"
    os.rename(state, c.dir / "state-aside")
    refused(c, "the same, and the state directory is lost as well", [str(da), "is empty"])
    shutil.rmtree(state)
    os.rename(c.dir / "state-aside", state)
    (da / "holiday.jpg").write_bytes(b"x")
    refused(c, "a directory with somebody's files", [str(da), "not empty", "no drive of kofn"])
    shutil.rmtree(da)
    da.write_text("a file")
    refused_or_without(c, a, da, "not a directory")
    da.unlink()
    refused_or_without(c, a, da, "no such directory")
    os.rename(aside, da)

    identity = (da / "drive.id").read_bytes()
    (da / "drive.id").write_bytes(identity.replace(b"host n1", b"host n2"))
    refused_or_without(c, a, da, "checksum")
    (da / "drive.id").unlink()
    refused(c, "a drive without its drive.id", [str(da), "no drive of kofn"])
    (da / "drive.id").write_bytes(identity)

    (da / "drive.id").write_bytes((d2 / "drive.id").read_bytes())
    refused(c, "another drive's drive.id", [str(da), "d2"])
    (da / "drive.id").write_bytes(identity)


def refused_or_without(c, host, drive, words):
    """One of a host's two drives is missing: the host starts without it, and says so loudly, in the log and in status."""
    mark = len(host.log_text())
    host.start()
    eventually(f"{host.id} serves", lambda: "serving S3" in host.log_text()[mark:] or not host.alive())
    said = host.log_text()[mark:]
    assert host.alive(), said[-2000:]
    loud = [line for line in said.splitlines() if "starting without" in line and str(drive) in line and words in line]
    assert loud and " error " in loud[0].lower().replace("[", " ").replace("]", " "), said[-2000:]
    drives = next(h for h in host.admin_json("/admin/v1/status")["hosts"] if h["id"] == host.id)["drives"]
    entry = next(d for d in drives if d["path"] == str(drive))
    assert not entry["up"] and words in entry["trouble"], entry
    assert all(d["up"] for d in drives if d is not entry), drives
    assert host.kill(signal.SIGTERM) == 0
    ok(f"one of several drives is missing, the host starts without it: {loud[0].strip()[:200]}")


def test_other_membership(c):
    """A configuration that names another membership than the one stored; a changed address is none."""
    a = c.hosts[0]
    text = a.config.read_text()
    third = next(line for line in text.splitlines() if "id: n3" in line)
    fourth = third.replace("n3", "n4").replace(f":{c.hosts[2].peer_port}", f":{free_ports(1)[0]}")
    drive2 = f"{{name: d2, path: {a.drives[1]}}}"
    for what, changes, words in [
        ("a host more", [(third, third + "\n" + fourth)], ["n4"]),
        ("a host fewer", [(third + "\n", ""), ("name: test,", "name: test, allow_unsafe_layout: true,")], ["n3"]),
        ("a drive more", [(drive2, drive2 + f", {{name: d3, path: {a.dir}/d3}}")], ["n1/d3"]),
        ("a drive fewer", [(", " + drive2, "")], ["n1/d2"]),
        ("a drive with another name", [("{name: d2, path: " + str(a.drives[1]), "{name: dx, path: " + str(a.drives[1]))],
         ["n1/dx"]),
        ("a pool more", [("pools:\n", "pools:\n  - {name: second, k: 1, m: 1}\n")], ["second"]),
        ("a pool of another profile", [("k: 2, m: 1", "k: 2, m: 1, stripe_unit: 128KiB")], ["default"]),
        ("another zone", [("id: n2, ", "id: n2, zone: far, ")], ["far"]),
    ]:
        edit(a, *changes)
        refused(c, f"{what} than the stored membership", ["membership", "stored", *words])
        os.rename(a.dir / "state", c.dir / "state-aside")  # the drives remember it as well
        lost = words if "name" in what else ["membership", "stored", *words]
        refused(c, f"{what}, with the state directory lost", [str(a.dir), *lost])
        shutil.rmtree(a.dir / "state")
        os.rename(c.dir / "state-aside", a.dir / "state")
        a.config.write_text(text)
    edit(a, ("name: test,", "name: other,"))
    refused(c, "another cluster's name", ["other", "test"])
    a.config.write_text(text)
    edit(a, ("host: n1", "host: n2"))
    refused(c, "the state directory of another host", ["belongs to host n1", "n2"])
    a.config.write_text(text)
    # Addresses are no part of it.
    moved = free_ports(1)[0]
    for h in c.hosts:
        edit(h, (f":{a.peer_port}\"", f":{moved}\""))
    a.peer_port = moved
    c.start()
    for h in c.hosts:
        c.wait_sight(h, c.hosts)
    reads(c)
    ok("a changed address alone is taken")


def test_other_cluster(c):
    """A drive that was formatted for another cluster, of another name and of the same name."""
    a = c.hosts[0]
    for h in c.hosts:
        h.kill(signal.SIGTERM)
    for name in ("strange", "test"):
        with tempfile.TemporaryDirectory(prefix="kofn-test-") as directory:
            with Cluster(directory, hosts=1, drives_per_host=2, pool="1+1") as other:
                h = other.hosts[0]
                edit(h, ("name: test,", f"name: {name},"))
                other.start()
                assert h.kill(signal.SIGTERM) == 0
                os.rename(a.drives[0], c.dir / "aside")
                shutil.copytree(h.drives[0], a.drives[0])
                refused(c, f"a drive of another cluster named {name}", [str(a.drives[0]), "another cluster"])
                shutil.rmtree(a.drives[0])
                os.rename(c.dir / "aside", a.drives[0])


def test_snapshots(c):
    """A drive put back to an earlier state, whole or only its index: it forgot what it acknowledged."""
    a, drive = c.hosts[0], c.hosts[0].drives[0]
    old, now, state = c.dir / "old", c.dir / "now", c.dir / "state-aside"
    shutil.copytree(drive, old)
    for turn in range(2):
        c.start()
        for i in range(12):  # each lies on one of the host's two drives
            expect(c.put("bucket", f"later-{turn}-{i}", b"x" * 300_000), 200)
        for h in c.hosts:
            h.kill(signal.SIGTERM)
    shutil.copytree(a.dir / "state", state)
    shutil.copytree(drive, now)
    assert len(remains.chunk_files(now)) > len(remains.chunk_files(old)), "nothing that a sweep could take away"
    for what in ("whole", "index"):
        if what == "whole":
            shutil.rmtree(drive)
            shutil.copytree(old, drive)
        else:  # newer chunk files stand beside the older index: they must not be swept
            shutil.copyfile(old / "index/data.mdb", drive / "index/data.mdb")
        refused(c, f"a restored snapshot ({what})", [str(drive), "restored snapshot", "drive replace"], state_may_change=True)
        # From here on the host knows: it starts without that drive.
        refused_or_without(c, a, drive, "restored snapshot")
        if what == "index":
            assert remains.chunk_files(drive) == remains.chunk_files(now), "chunk files went away with the older index"
        shutil.rmtree(drive)
        shutil.copytree(now, drive)
        shutil.rmtree(a.dir / "state")
        shutil.copytree(state, a.dir / "state")
    other_index = a.drives[1] / "index/data.mdb"
    shutil.copyfile(other_index, drive / "index/data.mdb")
    refused_or_without(c, a, drive, "different drives")
    assert remains.chunk_files(drive) == remains.chunk_files(now), "chunk files were swept for another drive's index"
    shutil.copyfile(now / "index/data.mdb", drive / "index/data.mdb")
    # The host was started since: only its own state counts.
    shutil.rmtree(a.dir / "state")
    shutil.copytree(state, a.dir / "state")


def test_no_drive(c):
    """A host none of whose drives can be used does not start, and says why."""
    a = c.hosts[0]
    for d in a.drives:
        os.rename(d, f"{d}-aside")
    refused(c, "all drives of a host missing", [str(a.dir), "no such directory"])
    for d in a.drives:
        os.rename(f"{d}-aside", d)


def test_permissions(directory):
    """A directory that this user may not write: the uid and the chown that helps."""
    d, state = pathlib.Path(directory) / "drive", pathlib.Path(directory) / "state"
    d.mkdir()
    state.mkdir()
    os.chmod(directory, 0o755)
    ports = free_ports(2)
    env = {"KOFN_SERVER_STATE_DIR": str(state), "KOFN_SERVER_S3_LISTEN": f"127.0.0.1:{ports[0]}", "HOME": directory,
           "KOFN_SERVER_ADMIN_LISTEN": f"127.0.0.1:{ports[1]}"}
    copy = pathlib.Path(directory) / "kofn"  # the build directory may be closed to others
    shutil.copy(os.environ["KOFN_BIN"], copy)
    command = [str(copy), "server", str(d)]
    uid = os.getuid()
    if uid == 0:
        uid = 65534
        command = ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", *command]
        if not shutil.which("setpriv"):
            print("SKIPPED: no setpriv to become another user", flush=True)
            return
        os.chown(state, uid, uid)
    else:
        os.chmod(d, 0o555)
    for mode, what in ((0o755, "a drive directory that belongs to somebody else"), (0o700, "one that is closed to us")):
        if os.getuid() == 0:
            os.chmod(d, mode)
        before = tree(directory)
        r = run_command(command, env)
        assert r.returncode == 2, (r.returncode, r.stderr)
        line = next(x for x in r.stderr.splitlines() if str(d) in x)
        assert f"uid {uid}" in line and "chown" in line and f"{uid}:" in line, line
        assert {k: v for k, v in tree(directory).items() if "/lock" not in k} == \
            {k: v for k, v in before.items() if "/lock" not in k}
        ok(f"{what}: {line.strip()[:240]}")
    os.chmod(d, 0o755)


def test_first_start(directory):
    """A first start with one host's directory not empty: nobody formats anything."""
    with Cluster(directory, hosts=3, pool="2+1") as c:
        (c.hosts[1].drives[0] / "file").write_text("precious")
        before = disk(c)[0]
        c.hosts[0].start()
        c.hosts[2].start()
        r = run_command(c.hosts[1].command)
        assert r.returncode == 2 and "no drive of kofn" in r.stdout + r.stderr, r
        eventually("the others wait", lambda: "waiting for n2" in c.hosts[0].log_text())
        assert c.hosts[0].alive() and c.hosts[2].alive()
        c.hosts[0].kill(signal.SIGTERM)
        c.hosts[2].kill(signal.SIGTERM)
        files = {f: s for f, s in disk(c)[0].items() if "/state/" not in f}
        assert files == before, f"formatted without all: {set(files) - set(before)}"
    ok("a first start with a foreign directory: refused by its host, and no other host formats")


def main():
    with running("3 hosts", drives_per_host=2) as c:
        fill(c)
        remains.settled(c)
        for test in (test_running_twice, test_wrong_directories, test_other_membership, test_other_cluster, test_snapshots,
                     test_no_drive):
            test(c)
        c.start().wait_ready()
        reads(c)
        ok("after all that the cluster serves what it held")
    for test in (test_permissions, test_first_start):
        with tempfile.TemporaryDirectory(prefix="kofn-test-") as directory:
            test(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
