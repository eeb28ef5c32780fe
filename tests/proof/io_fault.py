"""io_fault.py: the test's side of libkofn_io_fault.so (io_fault.c): what is to fail below a directory, and what did."""
import errno
import mmap
import os
import pathlib
import struct
import time

MAGIC = 0x31746C7561666F69
CLASSES = ("write", "sync", "read", "open", "allocate", "rename", "unlink", "mkdir")
FOREVER = (1 << 64) - 1
HALF = 0  # in place of an errno: the call is done by half
WORDS = ("magic", "armed", "classes", "first", "times", "error", "matched", "done", "done_ns", "loaded")
SEEN_AT = 8 * len(WORDS)
PATH_AT = SEEN_AT + 8 * len(CLASSES)
LAST_AT = PATH_AT + 512
SIZE = LAST_AT + 512


def preload_path():
    """The path of the library, or None where it was not built."""
    directory = os.environ.get("KOFN_TOOLS_DIR") or os.path.dirname(os.environ.get("KOFN_BIN", ""))
    path = pathlib.Path(directory) / "libkofn_io_fault.so"
    return path if path.exists() else None


class IoFault:
    """One control file: for the processes that were started with `env`."""

    def __init__(self, file, below):
        self.file, self.below = pathlib.Path(file), pathlib.Path(below)
        with open(file, "w+b") as f:
            f.truncate(SIZE)
            self.map = mmap.mmap(f.fileno(), SIZE)
        self.put("magic", MAGIC)
        self.watch(self.below)

    @property
    def env(self):
        return {"LD_PRELOAD": str(preload_path()), "IO_FAULT_CONTROL": str(self.file),
                "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}

    def put(self, word, value):
        struct.pack_into("=Q", self.map, 8 * WORDS.index(word), value)

    def get(self, word):
        return struct.unpack_from("=Q", self.map, 8 * WORDS.index(word))[0]

    def watch(self, path):
        name = os.fsencode(path)
        assert len(name) < 512, name
        self.map[PATH_AT:PATH_AT + 512] = name.ljust(512, b"\0")

    def seen(self, name):
        return struct.unpack_from("=Q", self.map, SEEN_AT + 8 * CLASSES.index(name))[0]

    def arm(self, names, first, error, times=1, within=""):
        """From now on the `first`-th call of these classes fails, and `times` - 1 after it; `within` a subdirectory."""
        self.disarm()
        self.watch(self.below / within)
        self.map[LAST_AT:LAST_AT + 512] = bytes(512)
        for word, value in (("classes", sum(1 << CLASSES.index(n) for n in names)), ("first", first), ("times", times),
                            ("error", error), ("matched", 0), ("done", 0), ("done_ns", 0)):
            self.put(word, value)
        self.put("armed", 1)

    def disarm(self):
        self.put("armed", 0)

    @property
    def done(self):
        return self.get("done")

    @property
    def loaded(self):
        return self.get("loaded")

    def when(self):
        """The first failure, on the clock of time.monotonic(); None: there was none."""
        at = self.get("done_ns")
        return at / 1e9 if at else None

    def last(self):
        """(the call, the path below the directory) of the first failure."""
        text = self.map[LAST_AT:LAST_AT + 512].split(b"\0")[0].decode(errors="replace")
        call, _, path = text.partition(" /")
        return call, os.path.relpath("/" + path, self.below) if path else ""


def error_name(error):
    return errno.errorcode.get(error, "half") if error else "half"


def wait_for(what, words, timeout=60):
    """Until what() is true; its value."""
    end = time.monotonic() + timeout
    while not (value := what()):
        assert time.monotonic() < end, f"{timeout} s, and still not: {words}"
        time.sleep(0.02)
    return value
