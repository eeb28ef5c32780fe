"""remains.py: what lies on a cluster's drives: chunk files, and every row of the index, read from the file itself.

The reader of LMDB's format knows only what is needed: it walks the trees from the newer of the two meta pages, and starts
again when the writer moved on meanwhile. So a test sees what is durable, not what the program says about it.
Source: LMDB 0.9's mdb.c (MDB_meta, MDB_page, MDB_node), 64 bit, little-endian.
"""
import os
import struct
import time

MAGIC = 0xBEEFC0DE
PAGE_HEADER = 16
LEAF, BRANCH = 0x02, 0x01
BIG_DATA, SUB_DATA = 0x01, 0x02
NO_PAGE = (1 << 64) - 1
# Tables that a request must not change unless it is carried out. Not among them: `sys` (boot counter, highest version
# seen), `ctx` (names of buckets and of long keys, which are never given back).
TABLES = ("row", "und", "prom", "part", "bkt", "blob", "inline", "heal", "drop", "trash")
FORGETFUL = ("prom",)


class Moved(Exception):
    """The writer committed while we read."""


class Index:
    def __init__(self, path):
        self.fd = os.open(path, os.O_RDONLY)
        self.page_size = 4096
        metas = [self.meta(n) for n in (0, 1)]
        self.txn, self.main, self.page_size = max(metas)
        self.path = path

    def close(self):
        os.close(self.fd)

    def page(self, number, count=1):
        data = os.pread(self.fd, self.page_size * count, number * self.page_size)
        if len(data) != self.page_size * count:
            raise Moved(f"page {number} is beyond the end")
        return data

    def meta(self, number):
        page = self.page(number)
        magic, version, _, _ = struct.unpack_from("<IIQQ", page, PAGE_HEADER)
        assert (magic, version) == (MAGIC, 1), f"no LMDB index: {magic:x} {version}"
        page_size, = struct.unpack_from("<I", page, PAGE_HEADER + 24)
        root, = struct.unpack_from("<Q", page, PAGE_HEADER + 24 + 48 + 40)
        txn, = struct.unpack_from("<Q", page, PAGE_HEADER + 24 + 96 + 8)
        return txn, root, page_size

    def walk(self, root):
        """Every (key, value, flags) below a page."""
        if root == NO_PAGE:
            return
        page = self.page(root)
        number, _, flags, lower, _ = struct.unpack_from("<QHHHH", page)
        if number != root or not flags & (LEAF | BRANCH) or lower > self.page_size:
            raise Moved(f"page {root} is another now")
        for i in range((lower - PAGE_HEADER) // 2):
            at, = struct.unpack_from("<H", page, PAGE_HEADER + 2 * i)
            low, high, node_flags, key_size = struct.unpack_from("<HHHH", page, at)
            if flags & BRANCH:
                yield from self.walk(low | high << 16 | node_flags << 32)
                continue
            size, key = low | high << 16, page[at + 8:at + 8 + key_size]
            value = page[at + 8 + key_size:at + 8 + key_size + size]
            if node_flags & BIG_DATA:
                first, = struct.unpack("<Q", page[at + 8 + key_size:at + 16 + key_size])
                pages = -(-(size + PAGE_HEADER) // self.page_size)
                value = self.page(first, pages)[PAGE_HEADER:PAGE_HEADER + size]
            yield key, value, node_flags

    def tables(self):
        out = {}
        for name, value, flags in self.walk(self.main):
            if flags & SUB_DATA:
                out[name.decode()] = {k: v for k, v, _ in self.walk(struct.unpack_from("<Q", value, 40)[0])}
        if max(self.meta(0), self.meta(1))[0] != self.txn:
            raise Moved("a commit came")
        return out


def index_of(drive, tries=200):
    """{table: {key: value}} of a drive's index, as its last commit left it."""
    for _ in range(tries):
        index = Index(drive / "index" / "data.mdb")
        try:
            return index.tables()
        except Moved:
            time.sleep(0.02)
        finally:
            index.close()
    raise AssertionError(f"{drive}: the index never stood still")


def chunk_files(drive):
    out = {}
    for entry in (drive / "data").rglob("*"):
        if entry.is_file():
            try:
                out[str(entry.relative_to(drive))] = entry.stat().st_size
            except FileNotFoundError:
                pass
    return out


def of_drives(drives, without=()):
    """{drive: (chunk files, {table: rows})}."""
    out = {}
    for d in drives:
        tables = index_of(d)
        missing = set(TABLES) - set(tables)
        assert not missing, f"{d}: the index has no table {missing}"
        out[str(d)] = (chunk_files(d), {t: tables[t] for t in TABLES if t not in without})
    return out


def of_cluster(cluster, without=()):
    return of_drives([d for h in cluster.hosts for d in h.drives], without)


def rows(seen):
    """How many rows of objects and buckets a snapshot holds, over all drives."""
    return sum(len(tables["row"]) for _, tables in seen.values())


def difference(before, after):
    """Words for what differs; "" for nothing."""
    words = []
    for drive, (files, tables) in after.items():
        old_files, old_tables = before[drive]
        words += [f"{drive}: new {f} ({size} bytes)" for f, size in files.items() if f not in old_files]
        words += [f"{drive}: {f} is gone" for f in old_files if f not in files]
        words += [f"{drive}: {f} grew" for f in files if f in old_files and files[f] != old_files[f]]
        for table, entries in tables.items():
            for key in entries.keys() | old_tables[table].keys():
                if entries.get(key) != old_tables[table].get(key):
                    what = "new" if key not in old_tables[table] else "gone" if key not in entries else "changed"
                    words.append(f"{drive}: {what} in {table}: {key[:60]!r}")
    return "\n".join(words[:20])


def settled(cluster, timeout=150, without=()):
    """The state once it stands still: no row undecided, nothing waiting to be dropped or in the trash, no change for a
    second. (The trash empties after drive.trash_delay, a minute by default: what put_whole wrote twice is there so long.)"""
    end = time.monotonic() + timeout
    last, since = of_cluster(cluster, without), time.monotonic()
    while True:
        time.sleep(0.1)
        seen = of_cluster(cluster, without)
        open_ends = [f"{d}: {len(tables[t])} in {t}" for d, (_, tables) in seen.items()
                     for t in ("und", "drop", "trash") if tables[t]]
        if seen == last and not open_ends and time.monotonic() - since > 1:
            return seen
        assert time.monotonic() < end, f"never still: {open_ends} {difference(last, seen)}"
        if seen != last or open_ends:
            last, since = seen, time.monotonic()


def same_again(cluster, before, what, timeout=30, without=()):
    """Waits for the state to be `before` again (a broken request's stages are dropped a moment later)."""
    end = time.monotonic() + timeout
    while words := difference(before, of_cluster(cluster, without)):
        assert time.monotonic() < end, f"{what} left something behind:\n{words}"
        time.sleep(0.05)
