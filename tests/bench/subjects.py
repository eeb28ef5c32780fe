"""subjects.py: what is measured: nginx, and kofn in its layouts; each a set of processes, urls and a key prefix."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cluster"))
import cluster as clusters  # noqa: E402

BUCKET = "bench"
TICKS = os.sysconf("SC_CLK_TCK")

NGINX_CONF = """
worker_processes {workers};
daemon off;
{user}
pid {dir}/pid;
error_log {dir}/error.log;
events {{ worker_connections 8192; }}
http {{
  access_log off; sendfile on; tcp_nopush on; tcp_nodelay on;
  keepalive_requests 1000000000; client_max_body_size 0;
  client_body_temp_path {dir}/tmp; proxy_temp_path {dir}/tmp-p; fastcgi_temp_path {dir}/tmp-f;
  uwsgi_temp_path {dir}/tmp-u; scgi_temp_path {dir}/tmp-s;
  server {{
    listen 127.0.0.1:{port} reuseport;
    root {dir}/files;
    dav_methods PUT DELETE; create_full_put_path on;
  }}
}}
"""


def cpu_s(pids):
    """CPU seconds that these processes have used, all threads, user and system."""
    ticks = 0
    for pid in pids:
        try:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS


def memory(pid):
    """(RssAnon + RssShmem, VmRSS) in bytes; the index is mapped, so the second is the page cache's too."""
    own = rss = 0
    try:
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in ("RssAnon", "RssShmem"):
                own += int(value.split()[0]) * 1024
            elif name == "VmRSS":
                rss = int(value.split()[0]) * 1024
    except OSError:
        pass
    return own, rss


class MemoryPeak:
    """The largest memory of any one of some processes while the block runs."""

    def __init__(self, pids):
        self.pids, self.own, self.rss = pids, 0, 0
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def look(self):
        for pid in self.pids:
            own, rss = memory(pid)
            self.own, self.rss = max(self.own, own), max(self.rss, rss)

    def watch(self):
        while not self.stop.wait(0.1):
            self.look()

    def __enter__(self):
        self.look()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()
        self.look()


class Nginx:
    name, words, user = "nginx", "nginx: static files, WebDAV PUT; nothing is synced", None

    def __init__(self, directory):
        self.dir = pathlib.Path(directory) / "nginx"
        self.port = clusters.free_ports(1)[0]
        self.process = None

    def start(self):
        (self.dir / "files" / BUCKET).mkdir(parents=True)
        user = "user root;" if os.geteuid() == 0 else ""
        conf = self.dir / "nginx.conf"
        conf.write_text(NGINX_CONF.format(dir=self.dir, port=self.port, workers=os.cpu_count(), user=user))
        binary = shutil.which("nginx") or "/usr/sbin/nginx"
        self.process = subprocess.Popen([binary, "-c", str(conf), "-e", str(self.dir / "error.log")],
                                        stdin=subprocess.DEVNULL, start_new_session=True)
        time.sleep(1)
        if self.process.poll() is not None:
            raise RuntimeError("nginx: " + (self.dir / "error.log").read_text()[-1000:])
        return self

    def pids(self):
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [self.process.pid] + [int(p) for p in children.split()]

    def urls(self):
        return [f"http://127.0.0.1:{self.port}/{BUCKET}/"]

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(20)


class Kofn:
    """A cluster. `gone` drives are taken away by lose(): those of a single host by moving them, else whole hosts."""

    def __init__(self, directory, binary, name, words, hosts, drives, pool):
        self.name, self.words, self.pool = name, words, pool
        # Drives of this machine share one disk: a short trash delay keeps overwritten objects from filling it.
        self.cluster = clusters.Cluster(pathlib.Path(directory) / name, hosts, drives, pool, binary=binary,
                                        settings="trash_delay: 1s")
        self.user = f"{self.cluster.access_key}:{self.cluster.secret_key}"
        self.lost = set()

    def start(self):
        self.cluster.start()
        self.cluster.make_bucket(BUCKET)
        return self

    def alive(self):
        return [h for h in self.cluster.hosts if h.alive() and h.id not in self.lost]

    def pids(self):
        return [h.pid for h in self.cluster.hosts if h.alive()]

    def urls(self):
        return [f"{h.s3}/{BUCKET}/" for h in self.alive()]

    def lose(self, count):
        hosts = self.cluster.hosts
        if len(hosts) == 1:
            host = hosts[0]
            host.kill(signal.SIGTERM)
            for d in host.drives[-count:]:
                d.rename(d.with_name(d.name + ".away"))
            host.start()
            self.cluster.wait_ready([host], what="read")
            return
        for host in hosts[-count:]:
            host.kill(signal.SIGKILL)
        self.cluster.wait_ready(self.alive(), what="read")
        for host in self.alive():
            self.cluster.wait_sight(host, hosts[-count:], up=False)

    def stop(self):
        self.cluster.stop()


LAYOUTS = {
    "one": ("one host, six drives, 4+2", 1, 6, "4+2"),
    "three": ("three hosts, 2+1", 3, 1, "2+1"),
    "six": ("six hosts, 4+2", 6, 1, "4+2"),
}


def kofn(directory, binary, layout, suffix=""):
    words, hosts, drives, pool = LAYOUTS[layout]
    name = layout + (f"-{suffix}" if suffix else "")
    return Kofn(directory, binary, name, words + (f", {suffix}" if suffix else ""), hosts, drives, pool)


def losses(pool):
    """Drives that a pool can lose for reads, and for writes: m, and n - W."""
    k, m, _ = clusters.parse_pool(pool)
    n = k + m
    return m, n - max(k + min(1, m - 1), n // 2 + 1)
