"""test_docker.py: the image and both compose files, on a real engine, by the commands of the README.

Everything between the backticks of "A cluster in five minutes" is run as it stands there, in a copy of the tree, with
checks in between. Exit status 0 passed, 77 skipped (with the reason), anything else failed.
"""
import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from engine import BASE_IMAGE, PROJECTS, Engine, Skip, docker, need_base, need_clients, run, say

SOURCE = pathlib.Path(__file__).resolve().parents[2]
COPIED = (".dockerignore", "CMakeLists.txt", "README.md", "LICENSE", "config", "codec", "storage", "server", "docker")
SECTION = "## A cluster in five minutes"
SECRETS = ("KOFN_CLUSTER_SECRET", "KOFN_ROOT_ACCESS_KEY", "KOFN_ROOT_SECRET_KEY")
IMAGE_ADDS_BYTES_MAX = 60_000_000
WAIT_S = 120
PORTS = (9000, 9010, 9020, 9030, 9040, 9050)
SIZES = {"empty": 0, "one": 1, "inline": 9_000, "files": 5_000_017}  # in the index, and as chunk files


def readme_blocks():
    """The section's code blocks by their first line."""
    text = (SOURCE / "README.md").read_text()
    assert SECTION in text, f"the README has no section {SECTION!r}"
    section = text[text.index(SECTION) + len(SECTION):].split("\n## ")[0]
    return re.findall(r"^```\n(.*?)^```$", section, re.M | re.S)


def wait(what, check, seconds=WAIT_S):
    end = time.monotonic() + seconds
    while True:
        last = check()
        if last is True:
            return
        assert time.monotonic() < end, f"{what}: not within {seconds} s, last seen: {last}"
        time.sleep(0.5)


class Tree:
    """A copy of the tree, where the README's commands run."""

    def __init__(self, work):
        self.dir = work / "kofn"
        self.dir.mkdir()
        self.blocks = readme_blocks()
        for name in COPIED:
            source = SOURCE / name
            copy = shutil.copytree if source.is_dir() else shutil.copy2
            copy(source, self.dir / name)
        # Whoever checked out with another umask has such files.
        for path in (self.dir / "docker").iterdir():
            path.chmod(0o600)

    def shell(self, commands, check=True, env=None):
        prelude = "set -eo pipefail; if [ -e kofn.env ]; then set -a; . ./kofn.env; set +a; fi\n"
        r = subprocess.run(["timeout", "900", "bash", "-c", prelude + commands], cwd=self.dir, capture_output=True, text=True,
                           env=env)
        if check and r.returncode != 0:
            raise AssertionError(f"{commands}\nexit status {r.returncode}\n{r.stdout[-3000:]}{r.stderr[-3000:]}")
        return r

    def readme(self, *beginnings):
        """Runs the next blocks; each must begin as the test expects."""
        out = []
        for beginning in beginnings:
            block = self.blocks.pop(0)
            assert block.startswith(beginning), f"the README goes on with {block!r}, the test expects {beginning!r}"
            out.append(self.shell(block).stdout)
            say(f"README: {' | '.join(block.strip().splitlines())[:150]}")
        return "\n".join(out)

    def compose(self, *args, check=True):
        return self.shell("docker-compose " + " ".join(args), check=check)

    def env(self):
        return dict(line.split("=", 1) for line in (self.dir / "kofn.env").read_text().splitlines())


class Hosts:
    """The containers of the cluster that kofn.env names, with curl."""

    def __init__(self, tree, count):
        self.tree, self.names = tree, [f"n{i + 1}" for i in range(count)]
        env = tree.env()
        self.user = f"{env['KOFN_ROOT_ACCESS_KEY']}:{env['KOFN_ROOT_SECRET_KEY']}"
        self.project = env["COMPOSE_PROJECT_NAME"]
        self.objects = {}

    def id(self, name):
        """Stopped ones too, which Compose v2's `ps -q` leaves out."""
        ids = docker("ps", "-aq", "--filter", f"label=com.docker.compose.project={self.project}", "--filter",
                     f"label=com.docker.compose.service={name}").split()
        assert len(ids) == 1, f"containers of {name}: {ids}"
        return ids[0]

    def inspect(self, name):
        return json.loads(docker("inspect", self.id(name)))[0]

    def log(self, name):
        r = run("docker", "logs", self.id(name))
        return r.stdout + r.stderr

    def ready(self, name, what):
        r = run("docker", "exec", self.id(name), "kofn", "ready", what, check=False)
        return r.returncode == 0 or (r.stdout + r.stderr).strip() or r.returncode

    def wait_ready(self, names=None, what="write"):
        for name in names or self.names:
            wait(f"{name} ready for {what}", lambda name=name: self.ready(name, what))

    def curl(self, name, key, *args):
        url = f"http://127.0.0.1:{PORTS[self.names.index(name)]}/{key}"
        r = run("curl", "-sS", "-u", self.user, "-w", "%{http_code}", "--max-time", "120", *args, url, check=False)
        return r.stdout[-3:] if r.returncode == 0 else f"curl: {r.stderr.strip()}"

    def put(self, name, label):
        for kind, size in SIZES.items():
            key, path = f"photos/{label}/{kind}", self.tree.dir / "object"
            block = hashlib.sha256(key.encode()).digest()
            path.write_bytes((block * (size // len(block) + 1))[:size])
            status = self.curl(name, key, "-T", path, "-o", "/dev/null")
            assert status == "200", f"PUT {key} through {name}: {status}"
            self.objects[key] = hashlib.sha256(path.read_bytes()).hexdigest()

    def get_all(self, names, but=None):
        """Every object (but those of one label) through every one of these hosts."""
        path = self.tree.dir / "object"
        objects = {k: v for k, v in self.objects.items() if f"/{but}/" not in k}
        for name in names:
            for key, digest in objects.items():
                status = self.curl(name, key, "-o", path)
                assert status == "200", f"GET {key} through {name}: {status}"
                assert hashlib.sha256(path.read_bytes()).hexdigest() == digest, f"{key} through {name} differs"
        say(f"{len(objects)} objects through each of {', '.join(names)}: every byte is right")

    def kill(self, *names):
        for name in names:
            docker("kill", self.id(name))
        say(f"docker kill {' '.join(names)}")


def check_image(made_base):
    image = json.loads(docker("image", "inspect", "kofn"))[0]
    base = json.loads(docker("image", "inspect", BASE_IMAGE))[0]
    added = image["Size"] - base["Size"]
    assert added <= IMAGE_ADDS_BYTES_MAX, f"the image adds {added} bytes to its base"
    config = image["Config"]
    assert config["User"] not in ("", "0", "root"), config["User"]
    assert not [e for e in config["Env"] if e.startswith("KOFN_")], config["Env"]
    say(f"image: {image['Size'] / 1e6:.1f} MB, {added / 1e6:.1f} MB on top of {BASE_IMAGE}"
        f"{' (made here)' if made_base else ''}, user {config['User']}, no secrets")


def check_refusals(tree):
    """Without any one of the secrets: compose names it and starts nothing; nor does kofn by itself."""
    for file in ("docker/compose.yml", "docker/compose.six.yml"):
        for missing in SECRETS:
            env = {k: v for k, v in os.environ.items() if not k.startswith(("KOFN_", "COMPOSE_"))}
            env |= {"COMPOSE_FILE": file, "COMPOSE_PROJECT_NAME": PROJECTS[0]}
            env |= {name: "0123456789abcdef" for name in SECRETS if name != missing}
            r = tree.shell("docker-compose up -d", check=False, env=env)
            assert r.returncode != 0 and f"set {missing} to" in r.stderr, f"{file} without {missing}: {r}"
        assert not docker("ps", "-aq", "--filter", f"label=com.docker.compose.project={PROJECTS[0]}")
    say("without any one of the secrets compose refuses, and says which")
    r = run("docker", "run", "--rm", "--network", "none", "-e", "KOFN_SERVER_HOST=n1", "kofn", "server", "--config",
            "/etc/kofn/three.yml", check=False)
    assert r.returncode == 2 and "KOFN_CLUSTER_SECRET" in r.stderr, r
    say(f"so does kofn: {r.stderr.strip()[:150]}")


def check_one_is_patient(hosts, name):
    """A host that is started alone waits for all others, with one line about each, however often it tries."""
    hosts.tree.compose("up", "-d", name)
    others = [n for n in hosts.names if n != name]

    def lines(other):
        return [x for x in hosts.log(name).splitlines() if f"host {other} (" in x and "is away" in x]

    for other in others:
        wait(f"{name} says that {other} is away", lambda other=other: bool(lines(other)))
    time.sleep(5)  # several attempts
    for other in others:
        assert len(lines(other)) == 1 and "does not resolve" in lines(other)[0], lines(other)
    assert "first start: waiting for" in hosts.log(name), hosts.log(name)
    assert hosts.inspect(name)["State"]["Running"]
    say(f"{name} alone waits: {lines(others[0])[0]}")


def check_containers(hosts):
    for name in hosts.names:
        state = hosts.inspect(name)
        ports = state["NetworkSettings"]["Ports"]
        published = [b["HostIp"] for bindings in ports.values() for b in bindings or ()]
        assert published == ["127.0.0.1"], ports
        r = run("docker", "exec", hosts.id(name), "sh", "-c", "id -u; stat -c %U /data/d1 /var/lib/kofn; touch /x", check=False)
        assert r.stdout.split() == ["10001", "kofn", "kofn"] and r.returncode != 0, r
        mounts = sorted((m["Type"], m["Name"].split("_")[-1]) for m in state["Mounts"])
        assert mounts == [("volume", f"{name}-d1"), ("volume", f"{name}-state")], state["Mounts"]

    def healthy():
        health = [hosts.inspect(n)["State"]["Health"]["Status"] for n in hosts.names]
        return set(health) == {"healthy"} or health

    wait("all are healthy", healthy)
    say(f"{len(hosts.names)} containers: S3 published on loopback only, not root, root file system read-only, volumes "
        "their own, healthy")


def check_too_few(hosts, alive):
    """With too few for reads: unhealthy, 503, and a stop that is clean all the same."""
    wait(f"{alive} is unhealthy", lambda: hosts.inspect(alive)["State"]["Health"]["Status"] == "unhealthy")
    status = hosts.curl(alive, next(iter(hosts.objects)), "-o", "/dev/null")
    assert status == "503", f"GET with too few hosts: {status}"
    docker("stop", "-t", "60", hosts.id(alive))
    state = hosts.inspect(alive)["State"]
    assert state["ExitCode"] == 0, state
    say(f"with too few hosts {alive} is unhealthy and answers 503; it stops with exit status 0 all the same")


def check_nothing_left(project):
    label = f"label=com.docker.compose.project={project}"
    for what in (("ps", "-aq"), ("network", "ls", "-q"), ("volume", "ls", "-q")):
        assert not docker(*what, "--filter", label), f"{project} left something: docker {' '.join(what)}"
    say(f"{project}: no container, network or volume is left")


def three(tree):
    tree.readme("cat >kofn.env")
    assert (tree.dir / "kofn.env").stat().st_mode & 0o77 == 0
    hosts = Hosts(tree, 3)
    check_one_is_patient(hosts, "n3")
    tree.readme("docker-compose up -d\n")
    hosts.wait_ready()
    check_containers(hosts)
    tree.readme("curl ")
    hosts.put("n1", "whole")
    tree.readme("docker kill ")
    hosts.get_all(["n1", "n3"])
    hosts.put("n3", "one-dead")  # W = 2
    tree.readme("docker-compose start ")
    hosts.wait_ready()
    hosts.put("n2", "back")
    hosts.get_all(hosts.names)
    hosts.kill("n1", "n2")
    check_too_few(hosts, "n3")
    tree.compose("start", *hosts.names)
    hosts.wait_ready()
    tree.readme("docker-compose restart\n")
    hosts.wait_ready()
    hosts.get_all(hosts.names)
    tree.readme("docker-compose down --volumes\n")
    check_nothing_left(hosts.project)


def six(tree):
    tree.readme("sed -i ")
    hosts = Hosts(tree, 6)
    assert hosts.project == PROJECTS[1], hosts.project
    hosts.wait_ready()
    check_containers(hosts)
    assert hosts.curl("n1", "photos", "-X", "PUT", "-o", "/dev/null") == "200"
    hosts.put("n2", "whole")
    hosts.kill("n3")
    hosts.put("n4", "one-dead")
    hosts.kill("n5")
    hosts.get_all(["n1", "n2", "n4", "n6"])
    assert hosts.curl("n1", "photos/refused", "-T", tree.dir / "LICENSE", "-o", "/dev/null") == "503"
    say("a PUT with two of six dead: 503, W is 5")
    tree.compose("start", "n3", "n5")
    hosts.wait_ready()
    hosts.put("n3", "back")
    hosts.kill("n1", "n2")  # others than before; what was written while n3 was away has three chunks left now
    hosts.get_all(["n3", "n4", "n5", "n6"], but="one-dead")
    tree.compose("start", "n1", "n2")
    tree.compose("restart")
    hosts.wait_ready()
    hosts.get_all(hosts.names)
    tree.compose("down", "--volumes")
    check_nothing_left(hosts.project)


def check_ports():
    for port in PORTS:
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
            except OSError as e:
                raise Skip(f"port {port}, which the compose files publish, is taken: {e}") from None


@contextlib.contextmanager
def cleaned_up(tree, engine):
    """Both clusters are taken down, and the engine has the images it had."""
    before = docker("image", "ls", "-q", "--no-trunc", "kofn")
    made = [False]
    try:
        yield made
    finally:
        failed = sys.exc_info()[0] not in (None, Skip)
        for project, file in zip(PROJECTS, ("docker/compose.yml", "docker/compose.six.yml")):
            env = dict(os.environ, COMPOSE_PROJECT_NAME=project, COMPOSE_FILE=file)
            env |= {name: "0123456789abcdef" for name in SECRETS}
            with contextlib.suppress(OSError):
                (tree.dir / "kofn.env").unlink()
            if failed:
                print(tree.shell("docker-compose logs --no-color --tail 60", check=False, env=env).stdout, file=sys.stderr)
            tree.shell("docker-compose kill; docker-compose down --volumes --remove-orphans", check=False, env=env)
        if not engine.own:
            docker("rmi", "kofn", *([BASE_IMAGE] if made[0] else []), check=False)
            if before:
                docker("tag", before, "kofn")


def main():
    started = time.monotonic()
    work = pathlib.Path(tempfile.mkdtemp(prefix="kofn-docker-test."))
    (work / "bin").mkdir()
    os.environ["PATH"] += f"{os.pathsep}{work / 'bin'}"
    for name in [n for n in os.environ if n.startswith(("KOFN_", "COMPOSE_"))]:
        del os.environ[name]
    try:
        tree = Tree(work)
        need_clients(work / "bin")
        with Engine() as engine, cleaned_up(tree, engine) as made_base:
            check_ports()
            made_base[0] = need_base()
            tree.readme("docker build ")
            check_image(made_base[0])
            check_refusals(tree)
            three(tree)
            six(tree)
            assert not tree.blocks, f"the README has more blocks than the test runs: {tree.blocks}"
        say(f"docker: all of it held ({time.monotonic() - started:.0f} s)")
        return 0
    except Skip as why:
        print(f"SKIPPED: {why}", flush=True)
        return 77
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
