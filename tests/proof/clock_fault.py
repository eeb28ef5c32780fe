"""clock_fault.py: the test's side of libkofn_clock_fault.so (clock_fault.c): by how much a process's wall clock is off."""
import mmap
import os
import pathlib
import struct


def preload_path():
    """The path of the library, or None where it was not built."""
    directory = os.environ.get("KOFN_TOOLS_DIR") or os.path.dirname(os.environ.get("KOFN_BIN", ""))
    path = pathlib.Path(directory) / "libkofn_clock_fault.so"
    return path if path.exists() else None


class ClockFault:
    """One control file: for the processes that were started with `env`."""

    def __init__(self, file):
        self.file = pathlib.Path(file)
        with open(file, "w+b") as f:
            f.truncate(8)
            self.map = mmap.mmap(f.fileno(), 8)

    @property
    def env(self):
        return {"LD_PRELOAD": str(preload_path()), "CLOCK_FAULT_CONTROL": str(self.file)}

    def set(self, milliseconds):
        struct.pack_into("=q", self.map, 0, milliseconds)
