"""cut_disk.py: file systems in loop files whose power can be cut, and the library that cuts it at an exact call.

Nothing can stay behind: the image has no name any more once its loop device has it, the loop device goes with its last
user (LO_FLAGS_AUTOCLEAR), and the mounts lie in a mount namespace of this process and of its children.
"""
import ctypes
import errno
import fcntl
import mmap
import os
import shutil
import struct
import subprocess
import time

LOOP_CTL_GET_FREE, LOOP_CONFIGURE, LO_FLAGS_AUTOCLEAR = 0x4C82, 0x4C0A, 4
LOOP_CONFIG = struct.Struct("<II QQQQQIIII64s64s32sQQ 8Q")
LOOPS_TRIED = 20
BLKFLSBUF = 0x1261
IOC_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN, XFS_IOC_GOINGDOWN
NO_LOG_FLUSH = struct.pack("<I", 2)
SIZES = {"ext4": 192 << 20, "xfs": 320 << 20}
# Blocks as real disks have them: mkfs.ext4 would take 1 KiB for so small a file system.
MAKE = {"ext4": ["mkfs.ext4", "-q", "-F", "-m", "0", "-b", "4096"], "xfs": ["mkfs.xfs", "-q", "-f"]}
CHECK = {"ext4": ["e2fsck", "-f", "-n"], "xfs": ["xfs_repair", "-n"]}
CLONE_NEWNS, MS_REC, MS_PRIVATE, MS_NOATIME = 0x00020000, 0x4000, 1 << 18, 1024
UNMOUNT_S = 20

libc = ctypes.CDLL(None, use_errno=True)


class Impossible(Exception):
    """This machine cannot do it: the suite is skipped."""


def call(name, *args):
    if getattr(libc, name)(*args) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def private_mounts():
    if os.geteuid() != 0:
        raise Impossible("mounting loop files needs root")
    try:
        call("unshare", CLONE_NEWNS)
        call("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    except OSError as e:
        raise Impossible(f"no mount namespace of our own: {e}") from e


def loop_device(image_fd):
    """(path, descriptor): a free loop device that goes when the descriptor and the mount are closed."""
    for _ in range(LOOPS_TRIED):
        with open("/dev/loop-control", "rb") as control:
            number = fcntl.ioctl(control, LOOP_CTL_GET_FREE)
        path = f"/dev/loop{number}"
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        config = LOOP_CONFIG.pack(image_fd, 0, 0, 0, 0, 0, 0, 0, 0, 0, LO_FLAGS_AUTOCLEAR, b"kofn-cut", b"", b"", 0, 0,
                                  *[0] * 8)
        try:
            fcntl.ioctl(fd, LOOP_CONFIGURE, config)
            return path, fd
        except OSError as e:
            os.close(fd)
            if e.errno != errno.EBUSY:  # EBUSY: somebody was faster
                raise
    raise OSError(errno.EBUSY, "no free loop device")


class Disk:
    """One file system in a loop file, mounted at `path`."""

    def __init__(self, kind, path, images):
        self.kind, self.path, self.mounted, self.canary = kind, path, False, None
        path.mkdir(parents=True, exist_ok=True)
        tool = shutil.which(MAKE[kind][0])
        if not tool:
            raise Impossible(f"{MAKE[kind][0]} is not there ({'xfsprogs' if kind == 'xfs' else 'e2fsprogs'})")
        image = images / f"image.{os.getpid()}.{id(self):x}"
        try:
            fd = os.open(image, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.ftruncate(fd, SIZES[kind])
                made = subprocess.run(MAKE[kind] + [image], capture_output=True, text=True)
                if made.returncode != 0:
                    raise Impossible(f"{MAKE[kind][0]}: {made.stderr.strip()[:300]}")
                try:
                    self.device, self.loop_fd = loop_device(fd)
                except OSError as e:
                    raise Impossible(f"no loop device: {e}") from e
            finally:
                os.close(fd)
        finally:
            if image.exists():
                image.unlink()
        try:
            self.mount()
        except OSError as e:
            os.close(self.loop_fd)
            raise Impossible(f"mounting {kind}: {e}") from e

    def mount(self):
        call("mount", self.device.encode(), str(self.path).encode(), self.kind.encode(), MS_NOATIME, None)
        self.mounted = True

    def unmount(self):
        """What used it must be dead."""
        end = time.monotonic() + UNMOUNT_S
        while self.mounted:
            try:
                call("umount2", str(self.path).encode(), 0)
                self.mounted = False
                fcntl.ioctl(self.loop_fd, BLKFLSBUF, 0)  # we hold the device: what it cached goes all the same
            except OSError as e:
                if e.errno != errno.EBUSY or time.monotonic() > end:
                    raise
                time.sleep(0.005)

    def cut(self):
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, IOC_SHUTDOWN, NO_LOG_FLUSH)
        finally:
            os.close(fd)

    def is_cut(self):
        try:
            (self.path / "cut?").write_bytes(b"")
            return False
        except OSError:
            return True

    def canary_write(self, number):
        """Bytes that nobody syncs: a cut must lose them, or it is none."""
        self.canary = self.path / f"canary.{number}"
        self.canary.write_bytes(b"k" * 4096)

    def canary_lost(self):
        try:
            kept = self.canary.read_bytes() == b"k" * 4096
            self.canary.unlink()
            return not kept
        except FileNotFoundError:
            return True

    def check(self):
        """The file system's own checker, on an unmounted and clean one. Its complaints, or ""."""
        r = subprocess.run(CHECK[self.kind] + [self.device], capture_output=True, text=True)
        return "" if r.returncode == 0 else f"{self.kind}: {r.stdout[-1500:]}{r.stderr[-1500:]}"

    def close(self):
        if self.mounted:
            try:
                self.unmount()
            except OSError:
                call("umount2", str(self.path).encode(), 2)  # MNT_DETACH: it goes with its last user
        if self.loop_fd is not None:
            os.close(self.loop_fd)
            self.loop_fd = None


def probe(kind, path, images):
    """Raises Impossible where a file system of this kind cannot be made, mounted and cut here."""
    disk = Disk(kind, path, images)
    try:
        disk.canary_write(0)
        disk.cut()
        if not disk.is_cut():
            raise Impossible(f"{kind} takes the shutdown and goes on")
        disk.unmount()
        disk.mount()
    except OSError as e:
        raise Impossible(f"{kind} cannot be shut down here: {e}") from e
    finally:
        disk.close()


CLASSES = ("create", "chunk write", "write-back", "chunk sync", "directory sync", "index write", "index sync",
           "meta page", "allocate", "unlink", "reply", "other")
MAGIC = 0x3130746174756321
FILE_SYSTEMS_MAX, PATH_BYTES = 8, 256
SEEN_AT = 8 * (8 + FILE_SYSTEMS_MAX)
ROOTS_AT = SEEN_AT + 8 * len(CLASSES)


class CutAt:
    """The control file of one host's libkofn_cut_at.so."""

    def __init__(self, path, root, library):
        self.path, self.library = path, library
        size = ROOTS_AT + FILE_SYSTEMS_MAX * PATH_BYTES
        path.write_bytes(bytes(size))
        with open(path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), size)
        self.roots([root])
        self.put(0, MAGIC)

    def put(self, word, value):
        struct.pack_into("<q", self.map, 8 * word, value)

    def get(self, word):
        return struct.unpack_from("<q", self.map, 8 * word)[0]

    def roots(self, roots):
        for i, root in enumerate(roots):
            struct.pack_into(f"{PATH_BYTES}s", self.map, ROOTS_AT + i * PATH_BYTES, str(root).encode())
        self.put(7, len(roots))

    def env(self):
        return {"LD_PRELOAD": str(self.library), "CUT_AT_CONTROL": str(self.path)}

    def skip(self, classes):
        self.put(5, sum(1 << CLASSES.index(c) for c in classes))

    def arm(self, classes, before, countdown, roots, pids=()):
        """At the countdown-th call of these classes: cut. roots[0] is the host's own."""
        self.put(1, 0)
        self.put(2, sum(1 << CLASSES.index(c) for c in classes))
        self.put(3, int(before))
        self.put(4, countdown)
        self.put(6, 0)
        self.roots(roots)
        for i in range(FILE_SYSTEMS_MAX):
            self.put(8 + i, pids[i] if i < len(pids) else 0)
        self.put(1, 1)

    def disarm(self):
        self.put(1, 0)

    def fired(self):
        """The class of the call at which the cut came, or None."""
        at = self.get(6)
        return CLASSES[at - 1] if at else None

    def seen(self):
        return {c: struct.unpack_from("<q", self.map, SEEN_AT + 8 * i)[0] for i, c in enumerate(CLASSES)}
