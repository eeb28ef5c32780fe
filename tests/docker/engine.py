"""engine.py: a Docker engine for the tests: the one that runs, or one of their own; and a base image where none can be pulled.

An engine that was started here has its own directory, socket and nothing else: no iptables rules, no docker0, no
forwarding. Containers reach each other over the bridge of their network, the host reaches them by published ports.
"""
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import time

BASE_IMAGE = "debian:trixie-slim"
BASE_CACHE = pathlib.Path("/var/tmp/kofn-docker-base")
MIRROR = "http://deb.debian.org/debian"
PULL_TIMEOUT_S = 120
ENGINE_START_TIMEOUT_S = 60
ENGINE_TRACES = ("/run/docker", "/run/containerd")  # folders that dockerd makes wherever it is told to work
PROJECTS = ("kofn", "kofn-six")  # what the README calls its clusters


class Skip(Exception):
    """Nothing is wrong with kofn: this machine cannot run the test, and this is why."""


def say(text):
    print(text, flush=True)


def run(*args, timeout=600, check=True, **kw):
    r = subprocess.run([str(a) for a in args], capture_output=True, text=True, timeout=timeout, **kw)
    if check and r.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, args))}: exit status {r.returncode}\n{r.stdout[-2000:]}{r.stderr[-4000:]}")
    return r


def docker(*args, **kw):
    return run("docker", *args, **kw).stdout.strip()


def engine_answers():
    try:
        return run("docker", "info", check=False, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def install(*packages):
    """Debian's packages, where apt and root are at hand; says what it could not do."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Skip(f"{', '.join(packages)} would have to be installed, which needs root and apt-get")
    say(f"installing: {' '.join(packages)}")
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    apt = ["apt-get", "-qq", "-y", "-o", "Acquire::Retries=3"]
    run(*apt, "update", env=env, check=False)
    r = run(*apt, "install", "--no-install-recommends", *packages, env=env, check=False)
    if r.returncode != 0:
        raise Skip(f"apt-get cannot install {' '.join(packages)}: {r.stderr.strip()[-500:]}")


def need_clients(shims):
    """docker and docker-compose in PATH; Compose v2 alone gets the older one's name, which the README uses."""
    if not shutil.which("docker"):
        install("docker.io")
        if not shutil.which("docker"):
            install("docker-cli")  # Debian 13 has it apart
    if not shutil.which("docker-compose") and run("docker", "compose", "version", check=False).returncode != 0:
        install("docker-compose")
    if not shutil.which("docker-compose"):
        shim = shims / "docker-compose"
        shim.write_text('#!/bin/sh\nexec docker compose "$@"\n')
        shim.chmod(0o755)


class Engine:
    """with Engine() as e: an engine answers. e.own tells whether it is ours; ours is gone afterwards."""

    def __init__(self):
        self.own = False
        self.process = None
        self.dir = None
        self.traces = [t for t in ENGINE_TRACES if not os.path.exists(t)]

    def __enter__(self):
        if engine_answers():
            say(f"engine: the one that runs, {docker('version', '-f', '{{.Server.Version}}')}")
            self.refuse_namesakes()
            return self
        if os.geteuid() != 0:
            raise Skip("no Docker engine answers, and only root can start one")
        if not shutil.which("dockerd"):
            install("docker.io", "iptables")
        self.own = True
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="kofn-docker-", dir="/var/tmp"))
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    @staticmethod
    def refuse_namesakes():
        """The README's own cluster may run on this engine: its volumes are nothing to play with."""
        for project in PROJECTS:
            label = f"label=com.docker.compose.project={project}"
            if docker("ps", "-aq", "--filter", label) or docker("volume", "ls", "-q", "--filter", label):
                raise Skip(f"this engine has a cluster of the project {project}, which the test would remove")

    def log_tail(self):
        return (self.dir / "log").read_text(errors="replace")[-2000:]

    def start(self):
        socket = f"unix://{self.dir}/docker.sock"
        args = ["nice", "dockerd", "--data-root", self.dir / "data", "--exec-root", self.dir / "exec", "--pidfile",
                self.dir / "pid", "--host", socket, "--bridge", "none", "--iptables=false", "--ip6tables=false",
                "--ip-forward=false", "--ip-masq=false"]
        with open(self.dir / "log", "wb") as log:
            self.process = subprocess.Popen([str(a) for a in args], stdout=log, stderr=log, start_new_session=True)
        os.environ["DOCKER_HOST"] = socket
        end = time.monotonic() + ENGINE_START_TIMEOUT_S
        while not engine_answers():
            if self.process.poll() is not None or time.monotonic() > end:
                raise Skip(f"dockerd does not start here:\n{self.log_tail()}")
            time.sleep(0.5)
        say(f"engine: started here, {docker('version', '-f', '{{.Server.Version}} on {{.Server.KernelVersion}}')}")

    def __exit__(self, kind, value, trace):
        if not self.own:
            return
        if self.process and self.process.poll() is None:
            if engine_answers():
                for kinds, remove in ((("ps", "-aq"), ("rm", "-f", "-v")), (("network", "ls", "-q", "--filter",
                                      "type=custom"), ("network", "rm"))):
                    left = docker(*kinds, check=False).split()
                    if left:
                        docker(*remove, *left, check=False)
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for line in reversed(pathlib.Path("/proc/mounts").read_text().splitlines()):
            mount = line.split()[1]
            if mount.startswith(f"{self.dir}/"):
                run("umount", "-l", mount, check=False)
        for path in (self.dir, *self.traces):
            shutil.rmtree(path, ignore_errors=True)
        os.environ.pop("DOCKER_HOST", None)
        if self.dir.exists():
            say(f"engine: {self.dir} could not be removed")
        else:
            say("engine: stopped and removed")


def make_base(archive):
    """What the official image is made of: debootstrap's smallest system without caches, pages and locales."""
    if os.geteuid() != 0:
        raise Skip(f"{BASE_IMAGE} cannot be pulled, and only root can make it with debootstrap")
    if not shutil.which("debootstrap"):
        install("debootstrap")
    archive.parent.mkdir(parents=True, exist_ok=True)
    root = pathlib.Path(tempfile.mkdtemp(prefix="root-", dir=archive.parent))
    try:
        say(f"{BASE_IMAGE} cannot be pulled: making it with debootstrap")
        r = run("nice", "debootstrap", "--variant=minbase", "trixie", root, MIRROR, check=False, timeout=1200)
        if r.returncode != 0:
            raise Skip(f"{BASE_IMAGE} can neither be pulled nor be made: {r.stdout.strip()[-800:]}")
        for folder in ("var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/doc", "usr/share/man",
                       "usr/share/info", "usr/share/locale"):
            for path in (root / folder).glob("*"):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        part = archive.with_suffix(f".{os.getpid()}")
        run("tar", "-C", root, "--numeric-owner", "-cf", part, ".")
        part.rename(archive)
    finally:
        run("rm", "-rf", "--one-file-system", root, check=False)


def need_base():
    """True where the base image was made here rather than found or pulled."""
    if run("docker", "image", "inspect", BASE_IMAGE, check=False).returncode == 0:
        say(f"{BASE_IMAGE} is there")
        return False
    try:
        if run("docker", "pull", "-q", BASE_IMAGE, check=False, timeout=PULL_TIMEOUT_S).returncode == 0:
            say(f"{BASE_IMAGE} was pulled")
            return False
    except subprocess.TimeoutExpired:
        pass
    archive = BASE_CACHE / f"trixie-{platform.machine()}.tar"
    if not archive.exists():
        make_base(archive)
    docker("import", archive, BASE_IMAGE)
    say(f"{BASE_IMAGE} was imported from {archive}")
    return True


if __name__ == "__main__":
    sys.exit("engine.py is used by test_docker.py")
