"""demo.py: the main job, shown: six host processes, a 4+2 pool, curl, and hosts that die.

Everything is checked; the account ends with "demo: all of it held" and exit status 0, or with what failed.
"""
import argparse
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse

from cluster import Cluster

MIB = 1 << 20
BUCKET = "demo"


def say(text=""):
    print(text, flush=True)


def file_sha256(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        while chunk := f.read(4 * MIB):
            h.update(chunk)
    return h.hexdigest()


def make_file(path, size, seed):
    """Pseudo-random bytes, the same at every run: a megabyte from SHA-256 in counter mode, then moved along."""
    block = b"".join(hashlib.sha256(f"{seed}/{i}".encode()).digest() for i in range(MIB // 32))
    with open(path, "wb") as f:
        left, turn = size, 0
        while left > 0:
            cut = turn % len(block)
            part = (block[cut:] + block[:cut])[:left]
            f.write(part)
            left -= len(part)
            turn += 4099


def curl(cluster, *args, out="/dev/null"):
    """Runs curl as a user would; returns (status, headers and messages)."""
    base = ["curl", "-sS", "-u", f"{cluster.access_key}:{cluster.secret_key}", "-o", str(out), "-w", "%{http_code}",
            "-D", str(cluster.dir / "head"), "--path-as-is", "--max-time", "300"]
    r = subprocess.run([*base, *map(str, args)], capture_output=True, text=True)
    status = int(r.stdout or 0)
    head = (cluster.dir / "head").read_text(errors="replace") if (cluster.dir / "head").exists() else ""
    if r.returncode != 0 and status == 0:
        raise SystemExit(f"demo: curl {' '.join(map(str, args))}: {r.stderr.strip()}")
    return status, head


def url(host, key):
    return f"{host.s3}/{BUCKET}/" + urllib.parse.quote(key, safe="/~")


def expect(what, got, want):
    if got != want:
        raise SystemExit(f"demo: {what}: {got}, expected {want}")


def put(cluster, host, key, path):
    started = time.monotonic()
    status, _ = curl(cluster, "-T", path, url(host, key))
    expect(f"PUT {key}", status, 200)
    return time.monotonic() - started


def get_all(cluster, host, objects, out):
    started = time.monotonic()
    for key, digest in objects.items():
        status, _ = curl(cluster, url(host, key), out=out)
        expect(f"GET {key}", status, 200)
        expect(f"SHA-256 of {key}", file_sha256(out), digest)
    say(f"   {len(objects)} objects read through {host.id}, every SHA-256 is right ({time.monotonic() - started:.1f} s)")


def kofn(cluster, *args):
    r = subprocess.run([str(cluster.binary), *args], capture_output=True, text=True)
    if r.returncode != 0:
        raise SystemExit(f"demo: kofn {' '.join(args)}: {r.stderr}")
    return r.stdout


def heal_list(cluster, host):
    """The queue is written with the drives' next transaction, at most 100 ms after the answer."""
    end = time.monotonic() + 10
    while True:
        text = kofn(cluster, "heal", "list", host.admin[7:])
        if not text.startswith("0 ") or time.monotonic() > end:
            return text
        time.sleep(0.05)


def make_whole(cluster, host, files):
    """A PUT does not wait for a drive that is silent for a second (a busy machine): such an object is written again, so
    that what follows may take two hosts away from all of them."""
    for _ in range(10):
        time.sleep(0.3)
        entries = json.loads(kofn(cluster, "heal", "list", "--json", host.admin[7:]))["entries"]
        keys = [e["key"] for e in entries if e["kind"] == "object"]
        if not keys:
            return
        for key in keys:
            say(f"   a drive was slow: {key!r} is written again, to all six")
            put(cluster, host, key, files[key])
    raise SystemExit("demo: this machine is too slow to write an object to six drives within a second each")


def run(cluster, work):
    hosts = cluster.hosts
    say("1. Six hosts, one drive each, pool 4+2: four data chunks, two parity chunks, W = 5")
    cluster.start()
    for host in hosts:
        cluster.wait_sight(host, hosts)
    say(f"   they serve; S3 of the first is {hosts[0].s3}")
    status, _ = curl(cluster, "-X", "PUT", f"{hosts[0].s3}/{BUCKET}")
    expect("PUT bucket", status, 200)

    say("\n2. PUT through different hosts")
    sizes = {"64 MiB.bin": 64 * MIB, "1 GiB.bin": 1024 * MIB, "empty": 0, "one byte": 1,
             "naïve ☃/a  b+c%41 %2F//d//ü?&=#.bin": 100_000}
    files = {"kofn": pathlib.Path(cluster.binary)}
    for i, (key, size) in enumerate(sizes.items()):
        path = work / f"file{i}"
        make_file(path, size, key)
        files[key] = path
    objects = {key: file_sha256(path) for key, path in files.items()}
    for i, (key, path) in enumerate(files.items()):
        seconds = put(cluster, hosts[i % len(hosts)], key, path)
        say(f"   {path.stat().st_size:>11} bytes  {key!r} through {hosts[i % len(hosts)].id} ({seconds:.2f} s)")

    make_whole(cluster, hosts[0], files)

    say("\n3. Where the chunks of the 64 MiB object lie")
    say(kofn(cluster, "where", BUCKET, "64 MiB.bin", hosts[0].admin[7:]).rstrip())

    dead, second = hosts[2], hosts[4]
    say(f"\n4. kill -9 {dead.id}; PUT one object more")
    dead.kill(signal.SIGKILL)
    degraded = work / "degraded"
    make_file(degraded, 5 * MIB, "degraded")
    put(cluster, hosts[0], "written while one host was dead", degraded)
    objects["written while one host was dead"] = file_sha256(degraded)
    say("   200: five of six drives have it on stable storage")
    say("   " + heal_list(cluster, hosts[0]).rstrip().replace("\n", "\n   "))

    say(f"\n5. kill -9 {second.id} too: four of six are left; GET everything")
    second.kill(signal.SIGKILL)
    get_all(cluster, hosts[0], objects, work / "out")
    status, head = curl(cluster, "-T", degraded, url(hosts[0], "refused"))
    expect("PUT with four of six drives", status, 503)
    retry = [line for line in head.splitlines() if line.lower().startswith("retry-after:")]
    expect("Retry-After lines", len(retry), 1)
    say(f"   a PUT now gets {status} with `{retry[0].strip()}`: W = 5 drives are out of reach")

    say(f"\n6. {dead.id} comes back; PUT")
    dead.start()
    cluster.wait_ready([h for h in hosts if h is not second])
    put(cluster, hosts[1], "after one came back", degraded)
    objects["after one came back"] = file_sha256(degraded)
    say(f"   200; now {second.id} comes back too")
    second.start()
    cluster.wait_ready()
    get_all(cluster, dead, objects, work / "out")
    status, _ = curl(cluster, url(hosts[0], "refused"), out=work / "out")
    expect("GET of the refused PUT", status, 404)
    say("   and the PUT that was refused left nothing behind (404)")


def main():
    parser = argparse.ArgumentParser(prog="./run demo")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running and its directory in place")
    parser.add_argument("--dir", help="where to put it (default: a temporary directory)")
    args = parser.parse_args()
    base = pathlib.Path(args.dir or tempfile.mkdtemp(prefix="kofn-demo."))
    base.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(base).free
    if free < 6 << 30:
        raise SystemExit(f"demo: {base} has {free >> 20} MiB free; the demo wants 6144 (use --dir)")
    work = base / "files"
    work.mkdir()
    started = time.monotonic()
    cluster = Cluster(base / "cluster", hosts=6, pool="4+2")
    try:
        run(cluster, work)
        say(f"\ndemo: all of it held ({time.monotonic() - started:.0f} s)")
        if args.keep:
            say(f"the cluster goes on; {cluster.write_json()} says where; end it with: "
                f"kill {' '.join(str(h.pid) for h in cluster.hosts)}")
        return 0
    except BaseException:
        for h in cluster.hosts:
            print(f"--- log of {h.id}\n{h.log_text()[-2000:]}", file=sys.stderr)
        raise
    finally:
        if not args.keep:
            cluster.stop()
            shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.umask(0o077)
    sys.exit(main())
