"""strace.py: runs a program under strace and reads what it wrote, as events in the order in which they happened.

An event has a place where the call was entered and one where it had returned. A happened before B for sure when A had
returned before B was entered: strace stops a thread at both ends of every call, so what one thread does because of
another's finished call is entered later in the recording too.
"""
import codecs
import re
import shutil
import subprocess

CALLS = ("openat,fsync,fdatasync,syncfs,sync_file_range,write,writev,pwrite64,pwritev,pwritev2,sendto,sendmsg,"
         "sendmmsg,unlinkat,renameat,renameat2")
STRING_BYTES_MAX = 70000  # a stripe unit, or a page of an index on any machine, is recorded whole


def why_not():
    """Why strace cannot be used here, or None."""
    if not shutil.which("strace"):
        return "there is no strace"
    r = subprocess.run(["strace", "-f", "-yy", "-o", "/dev/null", "true"], capture_output=True, text=True)
    return None if r.returncode == 0 else f"strace does not work here: {r.stderr.strip()[:300]}"


def command(trace, args):
    return ["strace", "-f", "-yy", "-s", str(STRING_BYTES_MAX), "-o", str(trace), "-e", f"trace={CALLS}", *args]


class Event:
    """One system call: `begin` and `end` are line numbers of the recording."""

    def __init__(self, begin, thread, call, text):
        self.begin, self.end, self.thread, self.call, self.text = begin, begin, thread, call, text
        self.result = None

    def fd(self):
        """(number, what it stands for) of the first argument."""
        m = re.match(r"(\d+)<(.*?)>[,)]", self.text) or re.match(r"(\d+)<(.*?)>$", self.text)
        return (int(m.group(1)), m.group(2)) if m else (None, "")

    def path(self):
        return self.fd()[1]

    def opened(self):
        """(number, path) that an openat returned."""
        m = re.match(r"(\d+)<(.*)>$", self.result or "")
        return (int(m.group(1)), m.group(2)) if m else (None, "")

    def ok(self):
        return bool(self.result) and not self.result.startswith("-")

    def data(self):
        """The bytes that were written, as far as they were recorded."""
        strings = re.findall(r'"((?:[^"\\]|\\.)*)"', self.text)
        return b"".join(codecs.escape_decode(s.encode("latin-1"))[0] for s in strings)

    def __repr__(self):
        return f"{self.begin}-{self.end} [{self.thread}] {self.call}({self.text[:120]}) = {self.result}"


def parse(text):
    """Events by the place where they were entered. Signals and exits are left out."""
    events, open_calls = [], {}
    for number, line in enumerate(text.splitlines()):
        m = re.match(r"(\d+)\s+(.*)", line)
        if not m:
            continue
        thread, rest = m.group(1), m.group(2)
        resumed = re.match(r"<\.\.\. (\w+) resumed>(.*)", rest)
        if resumed:
            event = open_calls.pop(thread, None)
            if event is None:
                continue
            rest = event.text + resumed.group(2)
        else:
            called = re.match(r"(\w+)\((.*)", rest)
            if not called:
                continue
            event = Event(number, thread, called.group(1), "")
            events.append(event)
            rest = called.group(2)
        event.end = number
        if rest.endswith("<unfinished ...>"):
            event.text = rest[:-len("<unfinished ...>")].rstrip()
            open_calls[thread] = event
            continue
        body, _, result = rest.rpartition(" = ")
        event.text = body.rstrip().removesuffix(")")
        event.result = re.sub(r" \(.*\)$", "", result.strip())
    for event in open_calls.values():
        event.end = float("inf")  # it never returned
    return events
