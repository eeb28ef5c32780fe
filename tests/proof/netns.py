"""netns.py: one network namespace per host, joined by a bridge, and rules that cut them off from each other.

    why = enter()          # first of all, before any thread: this process gets a network of its own
    net = Net(6)           # net.addresses, net.prefixes: for Cluster(addresses=, prefixes=)
    rules = net.cut([(a, b)]) + net.lose(b, 0.2)  # nothing of host a reaches host b; a fifth of all to b is lost
    net.undo(rules)
    net.close()

The process that calls enter() leaves the machine's network for an empty one, where the bridge, the wires and the hosts'
namespaces are then made: the machine's own network is never touched, nothing can leave the machine, and with the last
process all of it is gone, also after `kill -9`. It needs root, or a kernel that lets everybody make user namespaces.
"""
import ctypes
import os
import pathlib
import shutil
import subprocess

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
PREFIX = "10.247.93"
BRIDGE = "kofn-bridge"
TOOLS = ("ip", "nsenter", "unshare")


def _run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stdout.strip()}")
    return done.stdout


def enter():
    """None, or why there is no network of our own: the caller goes on with loopback."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = [t for t in TOOLS if not shutil.which(t)]
    if missing:
        return f"no {', '.join(missing)}"
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.geteuid(), os.getegid()
    if libc.unshare(CLONE_NEWNET | (CLONE_NEWUSER if uid else 0)) != 0:
        return f"unshare: {os.strerror(ctypes.get_errno())}"
    try:
        if uid:
            pathlib.Path("/proc/self/setgroups").write_text("deny")
            pathlib.Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
            pathlib.Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", BRIDGE, "type", "bridge")
        _run("ip", "link", "add", "kofn-try", "type", "veth", "peer", "name", "kofn-try2")
        _run("ip", "link", "del", "kofn-try")
    except OSError as e:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=False)  # an empty network has its loopback at least
        return str(e)
    return None


class Net:
    def __init__(self, count):
        self.holders, self.loss, self.iptables = [], False, False
        self.addresses = [f"{PREFIX}.{10 + i}" for i in range(count)]
        try:
            _run("ip", "addr", "add", f"{PREFIX}.1/24", "dev", BRIDGE)
            _run("ip", "link", "set", BRIDGE, "up")
            for i in range(count):
                self._host(i)
            self._probe()
        except BaseException:
            self.close()
            raise
        self.prefixes = [self._in(i) for i in range(count)]

    def _in(self, i):
        return ["nsenter", f"--net=/proc/{self.holders[i].pid}/ns/net", "--"]

    def _host(self, i):
        # The namespace lives as long as this `cat`, which lives as long as we hold the other end of its input.
        holder = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self.holders.append(holder)
        ours = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{holder.pid}/ns/net") == ours or \
                pathlib.Path(f"/proc/{holder.pid}/comm").read_text() != "cat\n":
            if holder.poll() is not None:
                raise OSError("unshare --net ended")
        _run("ip", "link", "add", f"kofn-host{i}", "type", "veth", "peer", "name", "kofn0", "netns", str(holder.pid))
        _run("ip", "link", "set", f"kofn-host{i}", "master", BRIDGE, "up")
        for words in (("link", "set", "lo", "up"), ("addr", "add", f"{self.addresses[i]}/24", "dev", "kofn0"),
                      ("link", "set", "kofn0", "up")):
            _run(*self._in(i), "ip", *words)

    def _probe(self):
        """What this kernel can do: drop by rules, and drop some of them."""
        if not shutil.which("iptables"):
            return
        nobody = ("-s", f"{PREFIX}.250")
        for name, words in (("iptables", ()), ("loss", ("-m", "statistic", "--mode", "random", "--probability", "0.5"))):
            try:
                self.undo([self._drop(0, *nobody, *words)])
                setattr(self, name, True)
            except OSError:
                return

    def _drop(self, i, *words):
        _run(*self._in(i), "iptables", "-w", "-A", "INPUT", *words, "-j", "DROP")
        return [*self._in(i), "iptables", "-w", "-D", "INPUT", *words, "-j", "DROP"]

    def cut(self, pairs):
        """Of each pair (a, b), host b hears nothing of host a any more. Clients reach both."""
        rules = []
        for a, b in pairs:
            if self.iptables:
                rules.append(self._drop(b, "-s", self.addresses[a]))
                continue
            route = ("blackhole", f"{self.addresses[b]}/32")
            _run(*self._in(a), "ip", "route", "replace", *route)
            rules.append([*self._in(a), "ip", "route", "del", *route])
        return rules

    def lose(self, b, part):
        """Of what the other hosts send to host b, this part is lost."""
        return [self._drop(b, "-s", address, "-m", "statistic", "--mode", "random", "--probability", str(part))
                for a, address in enumerate(self.addresses) if a != b]

    def undo(self, rules):
        """A route that two cuts share is gone with the first."""
        for rule in rules:
            if self.iptables or "iptables" in rule:
                _run(*rule)
            else:
                subprocess.run(rule, check=False, stderr=subprocess.DEVNULL)

    def close(self):
        for h in self.holders:
            h.stdin.close()
            h.wait()
        self.holders = []
