"""power_cuts.py: the power of one, two or all six drives goes, at every step of a write, on ext4 and on XFS.

Six hosts with one drive each, three on ext4 and three on XFS, each in a loop file; pools 4+2 and 6+0 (every drive must
have a write, so nothing covers up for a drive that forgot one). Clients (cut_load.py) put, overwrite, delete and put on
condition; then a cut: the file system is shut down without a flush of its log (EXT4_IOC_SHUTDOWN, XFS_IOC_GOINGDOWN:
what was not synced is lost), the host is killed with it, the file system is mounted again, the host starts again.

    at a call    the host's n-th call of one class (create, chunk write, write-back, chunk sync, directory sync, index
                 write, index sync, meta page, unlink, the reply behind a commit), before or after it: libkofn_cut_at.so
    at random    some time under load, killed first and cut then or the other way round
    in a start   any call of a start, which opens, recovers and sweeps
    in a format  any call of a first start on an empty file system

After each cut, on the drive itself before its host starts: the index can be read (remains.py), and every chunk that it
names is there in its full length. Then: the drive is taken back without a word of trouble; what was acknowledged reads
back (SHA-256) through the hosts that were cut and through others, and stands on W drives; a request of which nobody
knows what became of it has happened as a whole or not at all, and stays so; lists agree; nothing deleted comes back.

Host and file system end together. A host that sees its file system shut down sees failed syncs and would mark the drive
FAILED, which is right for a disk and wrong for a power cut. So the library lets no thread go on once it cuts; and where
the file system is cut first and the host killed a moment later, the state directory lies on it, where the mark cannot
be written, as on a machine with one disk. Hosts of which the state directory lies elsewhere and survives (two of the
six) are killed first. Bytes that nobody synced (a canary) are written before each cut: were most of them still there,
it would be no cut.

Not covered: what a disk's own volatile cache loses between flushes (a write that reached the loop file stays).

--break CLASS lets kofn skip this step (fdatasync of chunks, of the index, or the sync of meta pages: the library
reports success instead), and the suite must fail; the whole form proves that at its end. (A kofn that never syncs a
directory is not caught: on ext4 and XFS the fdatasync of a new file brings its name along.)
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "cluster")]

import remains  # noqa: E402
from cluster import Cluster  # noqa: E402
from cut_disk import CLASSES, CutAt, Disk, Impossible, private_mounts, probe  # noqa: E402
from cut_load import Load  # noqa: E402

SKIPPED = 77
LIBRARY = "libkofn_cut_at.so"
POOLS = {"cuts42": ("default", "4+2", 5), "cuts60": ("plain", "6+0", 6)}
KINDS = ("ext4", "xfs")
HOSTS = 6
STATE_ELSEWHERE = (2, 3)  # one on ext4, one on XFS
SETTINGS = "trash_delay: 300ms"
BREAKS = {"chunk sync": 60, "index sync": 60, "meta page": 30}  # cuts within which it must show
LOAD_CLASSES = ("create", "chunk write", "write-back", "chunk sync", "directory sync", "index write", "index sync",
                "meta page", "unlink", "reply")
FIRES_S = 2.5  # a call that has not come by then: cut anyway
START_CALLS = 24
OLD_KEYS = 15
ROWS_CHECKED = 8
FULL_CHECK_EVERY = 25
EXIT_S = 20


def say(words):
    print(words, flush=True)


class Broken(Exception):
    pass


class Cut:
    """What one round does."""

    def __init__(self, how, kind=None, scope=1, before=True, countdown=1, through=False):
        self.how, self.kind, self.scope, self.before = how, kind, scope, before
        self.countdown, self.through = countdown, through

    def __repr__(self):
        where = {1: "one drive", 2: "two drives", 6: "all six drives"}[self.scope]
        when = f"at random, {'killed' if self.before else 'cut'} first"
        if self.how == "start":
            when = "in a start"
        elif self.how in CLASSES:
            when = f"{'before' if self.before else 'after'} the {self.countdown}. {self.how}"
        return f"{where}, {self.kind}, {when}{', load goes on' if self.through else ''}"


def plan(rng, short, kinds):
    cuts, scopes = [], (1, 2, 6)
    if short:
        for i, name in enumerate(LOAD_CLASSES):
            for before in (False, True):
                cuts.append(Cut(name, kinds[(i + before) % len(kinds)], scopes[(i + 2 * before) % 3], before))
    else:
        cuts += [Cut(name, kind, scope, before) for name in LOAD_CLASSES for kind in kinds for scope in scopes
                 for before in (False, True) for _ in range(8 // len(kinds))]
    for i in range(13 if short else 96):
        cuts.append(Cut("random", kinds[i % len(kinds)], scopes[i % 3], i // 2 % 2 == 0))
    for i in range(7 if short else 72):
        cuts.append(Cut("start", kinds[i % len(kinds)], scopes[i % 3]))
    for cut in cuts:
        cut.countdown = rng.choice([1, 1, 2, 3, 5, 8, 13, 21])
        cut.through = cut.how != "start" and rng.random() < 0.25
    rng.shuffle(cuts)
    return cuts


class PowerCuts:
    def __init__(self, base, seed, library, images, kinds, broken=None):
        self.rng, self.seed = random.Random(seed), seed
        self.disks, self.cuts_of = {}, {}
        pools = [(name, pool, "") for name, pool, _ in POOLS.values()]
        self.c = Cluster(base, hosts=HOSTS, pools=pools, settings=SETTINGS)
        self.lost = self.canaries = self.cuts = self.drives_cut = 0
        self.at, self.fell_back, self.complaints = {}, 0, 0
        try:
            for i, host in enumerate(self.c.hosts):
                self.prepare(host, kinds[i % len(kinds)], library, images, broken)
            for host in self.c.hosts:
                configure(self.c, host, host.index in STATE_ELSEWHERE)
        except BaseException:
            self.close()
            raise
        self.load = Load(self.c, seed, list(POOLS))

    def prepare(self, host, kind, library, images, broken):
        disk = self.disks[host.id] = Disk(kind, host.dir / "fs", images)
        host.drives = [disk.path / "d1"]
        host.drives[0].mkdir()
        self.cuts_of[host.id] = CutAt(host.dir / "cut_at", disk.path, library)
        if broken:
            self.cuts_of[host.id].skip([broken])

    def start_host(self, host):
        host.start(self.cuts_of[host.id].env())

    def start(self):
        for host in self.c.hosts:
            self.start_host(host)
        self.c.wait_ready()
        for bucket, (pool, _, _) in POOLS.items():
            self.c.make_bucket(bucket, headers={"x-kofn-pool": pool})

    def close(self):
        self.c.stop(signal.SIGKILL)
        for disk in self.disks.values():
            disk.close()

    def faults(self):
        if self.load.faults:
            raise Broken("\n".join(self.load.faults[:10]))

    # ---- the cut ----
    def victims(self, cut):
        """The host at whose call it happens, first."""
        first = self.rng.choice([h for h in self.c.hosts if self.disks[h.id].kind == cut.kind])
        rest = [h for h in self.c.hosts if h is not first]
        return [first] + self.rng.sample(rest, cut.scope - 1)

    def cut_now(self, hosts, kill_first):
        first = [h for h in hosts if kill_first or h.index in STATE_ELSEWHERE]
        for h in first:
            os.kill(h.pid, signal.SIGKILL)
        for h in hosts:
            self.disks[h.id].cut()
        for h in hosts:
            if h not in first:
                os.kill(h.pid, signal.SIGKILL)

    def wait_exit(self, hosts):
        for h in hosts:
            status = h.process.wait(EXIT_S)
            if status != -signal.SIGKILL:
                raise Broken(f"{h.id} ended by itself with {status}")
            if not self.disks[h.id].is_cut():
                raise Broken(f"the file system of {h.id} is not shut down")

    def cut_at_call(self, cut, hosts):
        """Until the host has come to the call; where it does not, the cut comes anyway."""
        control = self.cuts_of[hosts[0].id]
        control.arm([cut.how], cut.before, cut.countdown, [self.disks[h.id].path for h in hosts],
                    [h.pid for h in hosts[1:]])
        end = time.monotonic() + FIRES_S
        while hosts[0].alive() and time.monotonic() < end:
            time.sleep(0.002)
        if hosts[0].alive():
            control.disarm()
            if not control.fired():
                self.fell_back += 1
                self.cut_now(hosts, True)
                return
        if control.fired() != cut.how:
            raise Broken(f"{hosts[0].id} ended before the cut with {hosts[0].process.returncode}")
        self.at[cut.how] = self.at.get(cut.how, 0) + 1

    def cut_under_load(self, cut, hosts, number):
        self.load.begin(number, cut.how == "write-back")
        time.sleep(self.rng.uniform(0.1, 0.5))
        for h in hosts:
            self.disks[h.id].canary_write(number)
        if cut.how == "random":
            time.sleep(self.rng.uniform(0, 0.3))
            self.cut_now(hosts, cut.before)
            self.at["random"] = self.at.get("random", 0) + 1
        else:
            self.cut_at_call(cut, hosts)
        self.wait_exit(hosts)
        if not cut.through:
            self.load.end()

    def cut_in_start(self, cut, hosts, number):
        """A clean or sudden end, then a start that is cut at its n-th call. Each drive at one of its own."""
        self.load.begin(number)
        time.sleep(self.rng.uniform(0.1, 0.3))
        for h in hosts:
            h.kill(signal.SIGKILL if self.rng.random() < 0.7 else signal.SIGTERM)
        self.load.end()
        for h in hosts:
            self.disks[h.id].canary_write(number)
            self.cuts_of[h.id].arm(CLASSES, self.rng.random() < 0.5, self.rng.randint(1, START_CALLS),
                                   [self.disks[h.id].path])
            self.start_host(h)
        end = time.monotonic() + FIRES_S
        while any(h.alive() for h in hosts) and time.monotonic() < end:
            time.sleep(0.002)
        late = [h for h in hosts if h.alive()]
        for h in late:
            self.cuts_of[h.id].disarm()
        self.cut_now([h for h in late if h.alive()], True)
        self.wait_exit(hosts)
        self.at["start"] = self.at.get("start", 0) + 1

    # ---- behind it ----
    def mount(self, hosts):
        for h in hosts:
            disk = self.disks[h.id]
            disk.unmount()
            disk.mount()
            self.canaries += 1
            self.lost += disk.canary_lost()
            check_drive(h.drives[0])

    def recover(self, cut, hosts):
        if len(hosts) <= 2 and not cut.through and self.rng.random() < 0.3:  # two drives away: 4+2 reads on
            others = [h for h in self.c.hosts if h not in hosts]
            for key in self.rng.sample(self.load.keys, 4):
                if key.bucket == "cuts42":
                    self.load.read(key, self.rng.choice(others), must=False)
        self.mount(hosts)
        for h in hosts:
            self.start_host(h)
        self.c.wait_ready(hosts)
        if cut.through:
            self.load.end()
        self.c.wait_ready()
        for h in self.c.hosts:
            for own in h.admin_json("/admin/v1/status")["hosts"]:
                for d in own["drives"] if own["id"] == h.id else ():
                    if not d["up"] or d.get("trouble"):
                        raise Broken(f"{h.id} does not take its drive back: {d}")

    def undecided(self):
        return sum(d.get("undecided", 0) for h in self.c.hosts for own in h.admin_json("/admin/v1/status")["hosts"]
                   if own["id"] == h.id for d in own["drives"])

    def check(self, hosts, everything):
        keys, old = set(self.load.touched), self.load.keys
        if not everything:  # keys of clients, which are overwritten, and those that were made once
            own = [k for k in old if not k.name.startswith("once")]
            old = self.rng.sample(own, OLD_KEYS) + self.rng.sample(old, OLD_KEYS)
        keys |= set(old)
        open_ends = [k for k in keys if k.maybe]
        others = [h for h in self.c.hosts if h not in hosts]
        gateways = [hosts[0], self.rng.choice(others or hosts), self.rng.choice(hosts)]
        self.load.read_all(sorted(keys, key=lambda k: (k.bucket, k.name)), gateways)
        decided = {k for k in open_ends if self.load.is_decided(k, gateways[1])}
        self.load.read_all(open_ends, others or hosts, decided)  # what they turned out to be, they stay
        self.load.count("unknown, and decided", len(decided))
        self.load.count("unknown, and left for later", len(open_ends) - len(decided))
        self.faults()
        acked = [k for k in self.load.touched if k.acked and not k.maybe]
        for key in self.rng.sample(sorted(acked, key=lambda k: k.name), min(ROWS_CHECKED, len(acked))):
            self.load.check_rows(key, gateways[1], POOLS[key.bucket][2])
        for bucket in POOLS:
            self.load.check_list(bucket, self.rng.choice(gateways))
        self.faults()

    def round(self, cut, number, everything=False):
        hosts = self.victims(cut)
        try:
            (self.cut_in_start if cut.how == "start" else self.cut_under_load)(cut, hosts, number)
            self.cuts += 1
            self.drives_cut += len(hosts)
            self.recover(cut, hosts)
            self.check(hosts, everything)
        except (Broken, AssertionError, OSError, ValueError) as e:
            self.load.stop.set()
            raise Broken(f"cut {number} ({cut}; {' '.join(h.id for h in hosts)}): {e}") from e

    def check_parity(self, pairs):
        """With two drives away 4+2 is read from the other four: every chunk has its turn. What an earlier cut kept from
        one drive may be out of reach then, and is never wrong."""
        keys = [k for k in self.load.keys if k.bucket == "cuts42"]
        for i in range(0, 2 * pairs, 2):
            away = self.c.hosts[i:i + 2]
            for h in away:
                h.kill()
            self.load.read_all(keys, [h for h in self.c.hosts if h not in away], True, must=False)
            for h in away:
                self.start_host(h)
            self.c.wait_ready()
        self.faults()

    def finish(self, pairs):
        """Everything there is, through every host; then the file systems' own checkers."""
        end = time.monotonic() + 60
        while self.undecided() and time.monotonic() < end:
            time.sleep(0.1)
        if self.undecided():
            raise Broken("rows stay undecided")
        for host in self.c.hosts:
            self.load.read_all(self.load.keys, [host], True)
            for bucket in POOLS:
                self.load.check_list(bucket, host)
        self.faults()
        self.check_parity(pairs)
        statuses = self.c.stop()
        if any(statuses):
            raise Broken(f"hosts end with {statuses}")
        for h in self.c.hosts:
            self.disks[h.id].unmount()
            if words := self.disks[h.id].check():  # the file system's own matter: kofn has its data
                self.complaints += 1
                say(f"NOTE: the checker of {h.id}'s file system complains: {words}")
        if self.lost * 2 < self.canaries:
            raise Broken(f"only {self.lost} of {self.canaries} cuts lost what nobody had synced: no power cuts")

    def words(self):
        n = self.load.counts
        return f"{n.get('PUT acknowledged', 0)} PUTs acknowledged, {n.get('PUT unknown', 0)} unknown " \
               f"({n.get('unknown, and decided', 0)} decided at once), {n.get('read back', 0)} reads"

    def logs(self):
        for h in self.c.hosts:
            say(f"--- log of {h.id}\n{h.log_text()[-3000:]}")


def configure(cluster, host, state_elsewhere=False):
    """The state directory lies on the file system that is cut, unless it is to survive."""
    cluster.write_config(host)
    text = host.config.read_text()
    if not state_elsewhere:
        text = text.replace(f"state_dir: {host.dir}/state", f"state_dir: {host.dir}/fs/state")
    for name, value in (("reserve_bytes", "8MiB"), ("index_map_bytes", "64MiB")):
        text = "".join(f"  {name}: {value}\n" if line.startswith(f"  {name}:") else line + "\n"
                       for line in text.splitlines())
    text = text.replace("cluster: {", "cluster: {allow_unsafe_layout: true, ")
    host.config.write_text(text)


def check_drive(drive):
    """What the index names is there, in full length."""
    if not (drive / "drive.id").exists():
        return
    tables = remains.index_of(drive)
    for key, value in tables["blob"].items():
        if len(value) != 16:
            continue  # a chunk that is known to be missing
        data_id, index = key[:16], key[16]
        generation, length = int.from_bytes(value[:8], "big"), int.from_bytes(value[8:], "big")
        name = f"data/{data_id[0] % 32:02x}/{data_id.hex()}.{index}.{generation:016x}"
        size = (drive / name).stat().st_size if (drive / name).exists() else -1
        if size < length:
            raise Broken(f"{drive}: {name} has {size} of {length} bytes, and a row names it")


def format_cuts(base, library, images, kinds, calls):
    """A first start on an empty file system, cut before its n-th call for each of `calls` (None: until there are no
    more). The next start makes a drive of what is left, and what it is given then survives a cut."""
    done = 0
    for kind in kinds:
        for n in calls or range(1, 1000):
            cluster = Cluster(base / f"{kind}-{n}", hosts=1, pool="1+0")
            host, disk = cluster.hosts[0], None
            try:
                disk = Disk(kind, host.dir / "fs", images)
                host.drives = [disk.path / "d1"]
                host.drives[0].mkdir()
                os.sync()
                configure(cluster, host)
                control = CutAt(host.dir / "cut_at", disk.path, library)
                control.arm(CLASSES, True, n, [disk.path])
                host.start(control.env())
                end = time.monotonic() + EXIT_S
                while host.alive() and not host.ready() and time.monotonic() < end:
                    time.sleep(0.003)
                over = host.alive()
                if not over and control.fired() is None:
                    raise Broken(f"{kind}, call {n} of a first start: ended by itself:\n{host.log_text()[-2000:]}")
                for again in range(2):
                    host.kill()
                    if again or over:
                        disk.cut()
                    disk.unmount()
                    disk.mount()
                    check_drive(host.drives[0])
                    host.start()
                    cluster.wait_ready()
                    if again == 0:
                        cluster.make_bucket("first")
                        assert cluster.put("first", "key", b"x" * 70_000).status == 200
                    assert cluster.get("first", "key").body == b"x" * 70_000, "what was acknowledged is gone"
                done += 1
            except (AssertionError, OSError) as e:
                raise Broken(f"{kind}, before call {n} of a first start: {e}\n{host.log_text()[-2000:]}") from e
            finally:
                cluster.stop(signal.SIGKILL)
                if disk:
                    disk.close()
                shutil.rmtree(base / f"{kind}-{n}", ignore_errors=True)
            if over:
                break
    return done


def run_broken(base, seed, library, images, kinds, broken):
    """Cuts until a kofn that skips this step is caught; how many it took, or None."""
    suite = PowerCuts(base, seed, library, images, kinds, broken)
    try:
        suite.start()
        rng = random.Random(f"{seed}/{broken}")
        for number in range(1, BREAKS[broken] + 1):
            cut = Cut("random", rng.choice(kinds), rng.choice([1, 2, 6]), rng.random() < 0.5)
            try:
                suite.round(cut, number)
            except Broken as e:
                say(f"kofn without \"{broken}\" is caught at cut {number}: {str(e)[:300]}")
                return number
        return None
    finally:
        suite.close()


def image_directory(base):
    """Memory where there is enough of it: a sync there costs nothing, and a cut loses as much."""
    shm = pathlib.Path("/dev/shm")
    try:
        st = os.statvfs(shm)
        if st.f_bavail * st.f_frsize > 4 << 30:
            return shm
    except OSError:
        pass
    return base


def kinds_possible(base, images):
    """The file systems that this machine can cut, and words for those that it cannot."""
    possible, why = [], []
    for kind in KINDS:
        try:
            probe(kind, base / "probe" / kind, images)
            possible.append(kind)
        except Impossible as e:
            why.append(f"{kind}: {e}")
            say(f"WITHOUT {kind}: {e}")
    if not possible:
        raise Impossible("; ".join(why))
    return possible, "".join(f" (not {w.split(':')[0]}: impossible on this machine)" for w in why)


def run(args, base, library):
    started = time.monotonic()
    images = image_directory(base)
    kinds, without = kinds_possible(base, images)
    if args.broken:
        caught = run_broken(base / "broken", args.seed, library, images, kinds, args.broken)
        say(f"caught at cut {caught}" if caught else "NOT caught")
        return 1 if caught else 0
    formats = format_cuts(base / "format", library, images, kinds, (3, 14) if args.short else None)
    say(f"ok: {formats} first starts cut, {' and '.join(kinds)}: the next start makes a drive of what is left")
    suite = PowerCuts(base / "main", args.seed, library, images, kinds)
    try:
        suite.start()
        cuts = plan(random.Random(args.seed), args.short, kinds)[:args.cuts]
        for number, cut in enumerate(cuts, 1):
            suite.round(cut, number, not args.short and number % FULL_CHECK_EVERY == 0)
            if number % (10 if args.short else 25) == 0:
                say(f"{number} cuts of {len(cuts)}, {time.monotonic() - started:.0f} s: {suite.words()}")
        suite.finish(1 if args.short else HOSTS // 2)
    except Broken as e:
        say(f"FAILED, seed {args.seed}: {e}")
        suite.logs()
        return 1
    finally:
        suite.close()
    caught = {}
    for i, broken in enumerate(() if args.short else BREAKS):
        caught[broken] = run_broken(base / f"broken{i}", args.seed, library, images, kinds, broken)
        if not caught[broken]:
            say(f"FAILED, seed {args.seed}: kofn without \"{broken}\" survives {BREAKS[broken]} cuts")
            return 1
    say(f"calls at which a cut came: {suite.at}; {suite.fell_back} did not come in time")
    n, six = suite.load.counts, sum(c.scope == 6 for c in cuts)
    print("RESULT " + json.dumps({
        "suite": "power_cuts",
        "done": f"{suite.cuts} cuts under load ({suite.drives_cut} drives; all six at once {six} times) and {formats} "
                f"in a first start, on {' and '.join(kinds)}{without}",
        "found": "none", "seconds": round(time.monotonic() - started),
        "figures": f"{n.get('PUT acknowledged', 0)} PUTs and {n.get('DELETE acknowledged', 0)} DELETEs acknowledged, "
                   f"{n.get('PUT unknown', 0) + n.get('DELETE unknown', 0)} unknown, {n.get('read back', 0)} reads, "
                   f"{suite.lost} of {suite.canaries} unsynced canaries lost, fsck complains about "
                   f"{suite.complaints} of {HOSTS} file systems" +
                   "".join(f"; without {b} caught at cut {c}" for b, c in caught.items())}))
    return 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--seed", default=str(random.randrange(1 << 32)))
    parser.add_argument("--cuts", type=int, help="no more than these of the plan")
    parser.add_argument("--break", dest="broken", choices=sorted(BREAKS))
    args = parser.parse_args()
    tools = pathlib.Path(os.environ.get("KOFN_TOOLS_DIR") or pathlib.Path(os.environ.get("KOFN_BIN", "kofn")).parent)
    library = (tools / LIBRARY).resolve()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    say(f"seed {args.seed}")
    base = pathlib.Path(tempfile.mkdtemp(prefix="kofn-cuts."))
    try:
        if not library.exists():
            raise Impossible(f"{library} is not there")
        private_mounts()
        return run(args, base, library)
    except Impossible as e:
        say(f"SKIPPED: {e}")
        return SKIPPED
    except Broken as e:
        say(f"FAILED, seed {args.seed}: {e}")
        return 1
    finally:
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
