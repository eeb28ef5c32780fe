"""test_config_errors.py: the program and wrong configurations: one line with file, line, field and allowed range, exit 2.

The cases are made from the schema table's own source and from what `kofn config print` writes: every field stands on a
line of its own there, so that a test knows the line of whatever it broke.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from cluster import free_ports

BIN = os.environ.get("KOFN_BIN", "kofn")
SOURCE = pathlib.Path(os.environ.get("KOFN_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
UNITS = {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40, "SECOND": 1000, "HOUR": 3600_000, "DAY": 86400_000}
SECRETS = {"cluster": "a-secret-of-this-test", "users": "another-secret"}


def ok(text):
    print(f"ok {text}", flush=True)


def clean_env(extra=None):
    return {**{k: v for k, v in os.environ.items() if not k.startswith("KOFN_")}, **(extra or {})}


def kofn(*args, env=None):
    return subprocess.run([BIN, *map(str, args)], capture_output=True, text=True, timeout=60, env=clean_env(env))


def schema():
    """{(section, field): (type, required, min, max)} as the C table has it."""
    text = (SOURCE / "config" / "settings_schema.c").read_text()
    numbers = dict(re.findall(r"#define (\w+) (\d+)\n", text))
    for header in ("settings.h", "cluster_map.h"):
        numbers |= dict(re.findall(r"#define (\w+) \(?(\d+)\)?", (SOURCE / "config" / header).read_text()))
    for alias, name in re.findall(r"#define (\w+_MAX_) (\w+)\n", text):
        numbers[alias] = numbers[name]

    def value(words):
        return eval(words, {"__builtins__": {}}, {**UNITS, **{k: int(v) for k, v in numbers.items()}})

    out = {}
    table = text[text.index("schema_fields[] = {"):text.index("schema_field_count")]
    row = r'\{SECTION_(\w+),\s*"(\w+)",\s*FIELD_(\w+),\s*(?:IN_\w+\([\w.]+\)|0),\s*(true|false),\s*([\w *-]+),\s*([\w *-]+),'
    for section, name, kind, required, low, high in re.findall(row, table):
        out[section, name] = (kind, required == "true", value(low), value(high))
    assert len(out) == table.count("{SECTION_") > 45, (len(out), table.count("{SECTION_"))
    return out


def size_words(n):
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n and n % factor == 0:
            return f"{n // factor}{unit}"
    return str(n)


def time_words(ms):
    for unit, factor in (("d", 86400_000), ("h", 3600_000), ("m", 60_000), ("s", 1000)):
        if ms and ms % factor == 0:
            return f"{ms // factor}{unit}"
    return f"{ms}ms"


def wrong_values(kind, low, high):
    """[(value, words of the allowed range)] that a field of this type must refuse."""
    plain = ["[]", "[1]", "{}", "{a: b}"]
    if kind == "UINT":
        words = f"{low} to {high}"
        bad = plain + ["x", '""', "-5", "1.5", "0x10", "1e3", "99999999999999999999", str(high + 1), "64KiB", "5 5", "+5"]
        return [(v, words) for v in bad + ([str(low - 1)] if low else [])]
    if kind.startswith("SIZE"):
        words = f"{size_words(low)} to {size_words(high)}"
        bad = plain + ["64KiBx", "-5", '""', "x", "KiB", "1.5MiB", "64 KiB", "64kib", "99999999999999999999", "1EiB",
                       str(high + 1), f"{size_words(high)}B" if high >= 1024 else "x", "30s"]
        if kind == "SIZE32":
            bad += ["65537", "65600x"]
        return [(v, words) for v in bad + ([str(low - 1)] if low else [])]
    if kind == "TIME":
        words = f"{time_words(low)} to {time_words(high)}"
        bad = plain + ["30", "30sx", "-5s", '""', "s", "1.5s", "30 s", "30S", "99999999999999999999s", f"{high + 1}ms", "64KiB"]
        return [(v, words) for v in bad + ([f"{low - 1}ms"] if low else [])]
    if kind == "BOOL":
        return [(v, "true or false") for v in plain + ["yes", "1", '""', "True", "on", "truex"]]
    if kind == "LEVEL":
        return [(v, "debug, info, warn or error") for v in plain + ["loud", '""', "INFO", "1"]]
    if kind == "TECHNIQUE":
        return [(v, "none, reed_sol_van, cauchy or xor") for v in plain + ["raid6", '""', "XOR"]]
    if kind == "NAME":
        return [(v, f"{low} to {high} of A-Z a-z 0-9") for v in plain + ['""', '"a b"', '"a/b"', '"-a"', "x" * (high + 1)]]
    if kind == "PATH":
        return [(v, "a path from /") for v in plain + ['""', "relative/path", "/a/../b", "/" + "x" * high, '"/a\\nb"']]
    if kind in ("ADDRESS", "LISTEN"):
        bad = plain + ['""', "host", '"host:"', "host:x", "host:65536", "host:99999999999", '"[::1"', '"a b:1"', "1:2:3"]
        return [(v, f"the port {low} to {high}") for v in bad + ["host:0"]]
    if kind == "SECRET":
        return [(v, f"{low} to {high} printable") for v in plain + ['""', "x" * (low - 1), "x" * (high + 1), '"a\\tbcdefghijklmnopq"']]
    if kind == "ACCESS_KEY":
        return [(v, f"{low} to {high} printable") for v in plain + ['""', "x" * (low - 1), "x" * (high + 1), '"a bc"', '"a:bc"']]
    if kind == "LIST":
        return [(v, f"of {low} to") for v in ("x", "{a: b}", "[]")]
    raise AssertionError(f"no wrong values for {kind}")


class Config:
    """A file and what is known of it."""

    def __init__(self, directory):
        self.dir = pathlib.Path(directory)
        self.path = self.dir / "kofn.yaml"

    def write(self, text):
        self.path.write_text(text if text.endswith("\n") or not text else text + "\n")
        return self

    def refused(self, line, *words, command=("config", "check"), env=None):
        """Exit status 2 and one line: FILE:LINE: words."""
        r = kofn(*command, self.path, env=env)
        case = self.path.read_text()[-300:]
        assert r.returncode == 2, f"exit status {r.returncode}, expected {words}\n{r.stdout}{r.stderr}\n{case}"
        assert r.stdout == "" and r.stderr.count("\n") == 1, f"not one line: {r.stdout}{r.stderr}"
        begin = f"{self.path}:{line}: " if line else ""
        assert r.stderr.startswith(begin) and all(w in r.stderr for w in words), f"{r.stderr}expected {begin} {words}"
        assert not any(s in r.stderr for s in SECRETS.values()), f"a secret in {r.stderr}"
        return r.stderr

    def accepted(self, env=None):
        r = kofn("config", "check", self.path, env=env)
        assert r.returncode == 0, r.stderr + self.path.read_text()
        return r.stdout


def base(cfg):
    """A configuration of three hosts, as `config print` writes it, with its secrets filled in."""
    text = f"""cluster: {{name: test, secret: {SECRETS["cluster"]}}}
hosts:
"""
    for i in (1, 2, 3):
        text += f"  - {{id: n{i}, address: \"127.0.0.1:900{i}\", drives: [{{name: d1, path: /data/n{i}/d1}}, " \
                f"{{name: d2, path: /data/n{i}/d2}}]}}\n"
    text += f"""pools:
  - {{name: default, k: 2, m: 1}}
users:
  - {{name: root, access_key: the-access-key, secret_key: {SECRETS["users"]}}}
server: {{host: n1, s3_listen: "127.0.0.1:9000"}}
"""
    cfg.write(text).accepted()
    return printed(cfg)


def printed(cfg, env=None):
    r = kofn("config", "print", cfg.path, env=env)
    assert r.returncode == 0, r.stderr
    assert not any(s in r.stdout for s in SECRETS.values()), "a secret was printed"
    text = r.stdout
    for name, field in (("cluster", "secret"), ("users", "secret_key")):
        text = re.sub(rf"^(\s*){field}: \(set\)$", rf"\g<1>{field}: {SECRETS[name]}", text, flags=re.M)
    return text


def fields_of(text):
    """[(line number, SECTION, field, path)] of the printed configuration; of lists only the first item."""
    section, item, out = "TOP", "", []
    for number, line in enumerate(text.splitlines(), 1):
        if m := re.fullmatch(r"(\w+):", line):
            section, item = m.group(1).upper(), None
        elif m := re.fullmatch(r"(\w+): .*", line):
            out.append((number, "TOP", m.group(1), m.group(1)))
        elif m := re.fullmatch(r"  (- |  )(\w+):(?: .*)?", line):
            if m.group(1) == "- ":
                item = 0 if item is None else item + 1
            path = f"{section.lower()}[{item}].{m.group(2)}"
            if item == 0:
                out.append((number, section, m.group(2), path))
        elif m := re.fullmatch(r"  (\w+): .*", line):
            out.append((number, section, m.group(1), f"{section.lower()}.{m.group(1)}"))
    return out


def set_field(text, number, value):
    lines = text.splitlines()
    lines[number - 1] = re.sub(r"(\w+):.*$", rf"\g<1>: {value}".replace("\\", "\\\\").replace("\\\\g<1>", "\\g<1>"),
                               lines[number - 1])
    if lines[number - 1].strip().startswith("drives:"):  # its items go with it
        while re.match(r"      - ", lines[number]):
            del lines[number]
    return "\n".join(lines)


def every_field(cfg, text, table):
    """Each field: mistyped, below, above, out of its alphabet; each required one missing."""
    seen, count, known = set(), 0, fields_of(text)
    for number, section, field, path in known:
        kind, required, low, high = table[section, field]
        seen.add((section, field))
        for value, words in wrong_values(kind, low, high):
            cfg.write(set_field(text, number, value)).refused(number, f"{path}: ", words)
            count += 1
        if required:
            lines = set_field(text, number, "x").splitlines()
            first = "- " in lines[number - 1][:6]
            lines[number - 1] = re.sub(r"\w+: x$", "", lines[number - 1]).rstrip()
            if first:  # the item begins with its next field
                lines[number - 1] += " " + lines.pop(number).strip()
            elif not lines[number - 1]:
                del lines[number - 1]
            item = next(n for n, s, _, p in known if s == section)
            cfg.write("\n".join(lines)).refused(item, f"{path}: is missing")
            count += 1
    # What `print` does not write: files of secrets, names and paths of drives, lists of drives.
    line = next(i for i, x in enumerate(text.splitlines(), 1) if 'name: "d1"' in x)
    for good, field in (('"d1"', "name"), ('"/data/n1/d1"', "path")):
        kind, _, low, high = table["HOST_DRIVES", field]
        for value, words in wrong_values(kind, low, high):
            cfg.write(text.replace(good, value, 1)).refused(line, f"hosts[0].drives[0].{field}: ", words)
            count += 1
        seen.add(("HOST_DRIVES", field))
    missing = text.replace(', path: "/data/n1/d1"', "", 1)
    cfg.write(missing).refused(line, "hosts[0].drives[0].path: is missing")
    for section, field, before in (("CLUSTER", "secret_file", "secret"), ("USERS", "secret_key_file", "secret_key")):
        at = next(n for n, s, f, _ in known if (s, f) == (section, before))
        for value in ("[]", "relative", "/no/such/file", "/", '""'):
            broken = text.splitlines()
            broken[at - 1] = broken[at - 1].replace(f"{before}: {SECRETS[section.lower()]}", f"{field}: {value}")
            cfg.write("\n".join(broken)).refused(at, field)
            count += 1
        seen.add((section, field))
    pool = next(n for n, s, f, _ in known if s == "POOLS")
    at = next(n for n, s, f, _ in known if (s, f) == ("POOLS", "write_quorum")) + 1
    for value, line, words in (("x", at, "list"), ("[]", at, "list"), ("[d1]", at, "host id/drive name"),
                               ("[n9/d1]", pool, "n9/d1 is no drive"), ("[n1/d1, n1/d1, n2/d1]", pool, "n1/d1")):
        broken = text.splitlines()
        broken.insert(at - 1, f"    drives: {value}")
        cfg.write("\n".join(broken)).refused(line, "pools[", "drives", words)
        count += 1
    seen |= {("POOLS", "drives"), ("POOL_DRIVES", "drive")}
    assert set(table) <= seen, f"not tried: {set(table) - seen}"
    ok(f"{count} wrong values over all {len(seen)} fields: file, line, field and range")


def shapes(cfg, text):
    """Files that are no configuration; unknown and duplicate fields and sections."""
    text = text.rstrip("\n")
    end = len(text.splitlines())
    for content, line, *words in [
        ("", 1, "empty"), ("\n\n# nothing\n", 1, "empty"), (text + "\n---\n" + text, end + 1, "second YAML document"),
        ("just words", 1), ("[1, 2]", 1), ("a: [", None, "not YAML"), ("a: b: c", 1, "not YAML"), ("\ta: b", 1, "not YAML"),
        (text + "\nextra: 1", end + 1, "extra", "unknown field"), (text + "\n  bogus: 1", end + 1, "codec.bogus", "unknown field"),
        (text + "\nserver: {}", end + 1, "server"), (text + "\n  xor_kernel: isal", end + 1, "codec.xor_kernel"),
        (text.replace("    k: 2", "    kk: 2"), None, "pools[0].kk"), (text.replace("    k: 2", "    k: 2\n    k: 2"), None, "pools[0].k"),
        (text.replace("server:\n", "server: &a\n").replace("drive:\n", "drive: *a\n", 1), None),
        (text.replace("hosts:", "hosts: {}\nhostz:"), None), (text.replace("pools:", "poolz:"), None, "pool"),
        ("x" * 2_000_000, None), ("a: " + "[" * 10000, None), (text.replace("test", "te\x00st"), None),
    ]:
        cfg.write(content).refused(line, *words)
    for bad in (b"cluster: {name: \xff\xfe}\n", b"\x00" * 100):
        cfg.path.write_bytes(bad)
        cfg.refused_bytes = kofn("config", "check", cfg.path)
        assert cfg.refused_bytes.returncode == 2 and cfg.refused_bytes.stderr.count("\n") == 1, cfg.refused_bytes
    cfg.path.unlink()
    for path, words in ((cfg.path, "No such file"), (cfg.dir, "directory")):
        for command in (("config", "check"), ("config", "print"), ("server", "--config")):
            r = kofn(*command, path)
            assert r.returncode == 2 and words in r.stderr and str(path) in r.stderr, r
    ok("files that are no configuration, unknown and duplicate fields: exit status 2, file and line")


def meanings(cfg, text):
    """What each value by itself would allow and the whole does not."""
    def line_of(words, nth=1):
        found = [i for i, x in enumerate(text.splitlines(), 1) if words in x]
        return found[nth - 1]

    def pool(profile):
        return text.replace("    k: 2\n    m: 1\n    technique: \"xor\"", profile)

    first, technique = line_of('name: "default"'), line_of("technique:")
    for content, line, *words in [
        (text.replace('id: "n2"', 'id: "n1"'), line_of('id: "n2"'), "hosts[1].id", "n1", "hosts[0]"),
        (text.replace("127.0.0.1:9002\"\n    zone", "127.0.0.1:9001\"\n    zone"), line_of("127.0.0.1:9002", 1), "hosts[1].address"),
        (text.replace("/data/n1/d2", "/data/n1/d1"), line_of("/data/n1/d2"), "hosts[0].drives[1]", "listed twice"),
        (text.replace("/data/n1/d2", "/data//n1/./d1/"), line_of("/data/n1/d2"), "hosts[0].drives[1]", "listed twice"),
        (text.replace('"d2", path: "/data/n1', '"d1", path: "/data/n1'), line_of("/data/n1/d2"), "hosts[0].drives[1].name"),
        (pool("    k: 6\n    m: 3"), first, "pools", "9", "6"),  # fewer drives than k+m
        (pool("    k: 30\n    m: 3"), None, "33", "1 to 32"),
        (pool("    k: 2\n    m: 2\n    technique: xor"), technique, "xor", "m is 2"),
        (pool("    k: 2\n    m: 0\n    technique: cauchy"), technique, "m = 0"),
        (pool("    k: 2\n    m: 1\n    technique: none"), technique, "none"),
        (pool("    k: 4\n    m: 1"), first, "one host would hold 2 of the 5 chunks, more than m = 1", "allow_unsafe_layout"),
        (pool("    k: 2\n    m: 2").replace("write_quorum: 0", "write_quorum: 1"), None, "write_quorum", "3 to 4"),
        (pool("    k: 2\n    m: 2").replace("write_quorum: 0", "write_quorum: 5"), None, "write_quorum", "3 to 4"),
        (text.replace('xor_kernel: "auto"', "xor_kernel: avx9"), line_of("xor_kernel"), "codec.xor_kernel", "avx9", "auto, isal, portable64"),
        (text.replace("default_pool: \"default\"", "default_pool: none"), line_of("default_pool"), "none of the pools"),
        (text.replace("    host: \"n1\"", "").replace('  host: "n1"', '  host: "n7"'), line_of('  host: "n1"'), "n7", "n1, n2, n3"),
        (text.replace('  host: "n1"\n', ""), None, "server.host", "is missing", "KOFN_SERVER_HOST"),
        (re.sub(r"  secret: .*\n", "", text), None, "cluster.secret", "is missing", "KOFN_CLUSTER_SECRET"),
        (re.sub(r"users:\n(  .*\n)+", "users: []\n", text), None, "users", "KOFN_ROOT_ACCESS_KEY"),
    ]:
        assert content != text, words
        cfg.write(content).refused(line, *words)
    huge = text.replace("hosts:\n", "hosts:\n" + "".join(
        f'  - {{id: x{i}, address: "10.0.0.1:{i + 1}", drives: [/x{i}/{{}}]}}\n'.replace("{}", "d") for i in range(64)))
    cfg.write(huge).refused(None, "hosts", "64")
    # Techniques within their proven limits: on one host with enough drives.
    many = "hosts:\n  - {id: n1, address: \"127.0.0.1:9001\", drives: [" + ", ".join(f"/d{i}" for i in range(32)) + "]}\n" \
        "server: {s3_listen: \"127.0.0.1:9000\"}\npools:\n  - {name: default, k: %d, m: %d, technique: %s}"
    for k, m, technique in ((22, 4, "reed_sol_van"), (27, 5, "reed_sol_van"), (2, 5, "reed_sol_van"), (4, 4, "xor3p"), (6, 3, "xor3p"), (3, 2, "xor3p")):
        cfg.write(many % (k, m, technique)).refused(5, "pools[0].technique", technique)
    for k, m, technique in ((21, 4, "reed_sol_van"), (29, 3, "reed_sol_van"), (27, 5, "cauchy"), (22, 4, "cauchy"), (31, 1, "xor"), (3, 3, "xor3p"), (15, 15, "xor3p")):
        assert technique in cfg.write(many % (k, m, technique)).accepted()
    # The same line, whichever command reads the file.
    cfg.write(text.replace("64KiB", "64KiBx"))
    lines = {cfg.refused(line_of("stripe_unit"), "64KiBx", "4KiB to 1MiB", command=c)
             for c in (("config", "check"), ("config", "print"), ("server", "--config"))}
    assert len(lines) == 1, lines
    ok("duplicates, too few drives, techniques, layouts, references: refused by name")


def round_trip(cfg, text):
    """What `config print` writes is taken, and printed again the same; also where every field has another value."""
    cfg.write(text).accepted()
    assert printed(cfg) == text
    other = text
    for old, new in [("technique: \"xor\"", "technique: \"cauchy\""), ("stripe_unit: 64KiB", "stripe_unit: 128KiB"),
                     ("log_level: info", "log_level: debug"), ("workers: 0", "workers: 3"), ("anonymous: false", "anonymous: true"),
                     ("buffer_bytes: 96MiB", "buffer_bytes: 100000000"), ("shutdown_grace: 30s", "shutdown_grace: 1500ms"),
                     ("reserve_bytes: auto", "reserve_bytes: 5000000001"), ("trash_delay: 1m", "trash_delay: 0s"),
                     ("name: \"root\"", "name: \"other\""), ("write_quorum: 0", "write_quorum: 3"), ("/data/n1/d1", "/a \\\"b\\\\c"),
                     ("allow_plain_basic: false", "allow_plain_basic: true"), ("region: \"us-east-1\"", "region: \"eu\"")]:
        assert old in other, old
        other = other.replace(old, new)
    cfg.write(other).accepted()
    again = printed(cfg)
    assert again.replace("trash_delay: 0ms", "trash_delay: 0s") == other, again
    ok("`config print` is taken back and printed the same")


def environment(cfg, text):
    """KOFN_SECTION_FIELD overrides the file; what names no field, or holds no value of it, is refused."""
    cfg.write(text)
    shown = printed(cfg, {"KOFN_SERVER_S3_LISTEN": "127.0.0.1:1234", "KOFN_DRIVE_TRASH_DELAY": "5s", "KOFN_SERVER_HOST": "n2",
                          "KOFN_POOLS_0_STRIPE_UNIT": "128KiB", "KOFN_USERS_0_NAME": "somebody", "KOFN_DEFAULT_POOL": "default",
                          "KOFN_HOSTS_1_ADDRESS": "elsewhere:9", "KOFN_SERVICE_HOST": "left alone", "KOFN_TEST_X": "1"})
    for words in ('s3_listen: "127.0.0.1:1234"', "trash_delay: 5s", '  host: "n2"', "stripe_unit: 128KiB", 'name: "somebody"',
                  'address: "elsewhere:9"'):
        assert words in shown, f"{words} not in\n{shown}"
    cfg.write(re.sub(r"  secret: .*\n", "", re.sub(r"users:\n(  .*\n)+", "users: []\n", text)))
    cfg.accepted({"KOFN_CLUSTER_SECRET": "0123456789abcdef", "KOFN_ROOT_ACCESS_KEY": "root-key", "KOFN_ROOT_SECRET_KEY": "12345678"})
    secret = cfg.dir / "secret"
    secret.write_text("0123456789abcdef\n")
    cfg.accepted({"KOFN_CLUSTER_SECRET_FILE": str(secret), "KOFN_SERVER_ANONYMOUS": "true"})
    cfg.write(text)
    for name, value, *words in [("KOFN_SERVER_S3LISTEN", "127.0.0.1:1", "no such field"), ("KOFN_DRIVE_", "x", "no such field"),
                                ("KOFN_SERVER_WORKERS", "many", "0 to 256"), ("KOFN_SERVER_WORKERS", "257", "0 to 256"),
                                ("KOFN_SERVER_WORKERS", "", "0 to 256"), ("KOFN_DRIVE_TRASH_DELAY", "5", "0ms to 30d"),
                                ("KOFN_POOLS_K", "2", "no such field"), ("KOFN_POOLS_7_K", "2", "out of range"),
                                ("KOFN_HOSTS_0_DRIVES", "/x", "in the file only"), ("KOFN_SERVER_HOST", "n9", "none of the hosts")]:
        r = kofn("config", "check", cfg.path, env={name: value})
        assert r.returncode == 2 and r.stderr.count("\n") == 1, (name, r)
        assert name in r.stderr and all(w in r.stderr for w in words), f"{name}={value}: {r.stderr}, expected {words}"
    ok("environment overrides, and refusals that name the variable")


def command_line(cfg, text):
    """Misuse: exit status 2 and where help is; help of every command: exit status 0."""
    cfg.write(text)
    for args in ([], ["frobnicate"], ["server"], ["server", "--config"], ["server", "--config", cfg.path, "more"], ["server", "--conf", "x"],
                 ["config"], ["config", "check"], ["config", "frob", cfg.path], ["config", "check", cfg.path, "more"], ["help", "frob"],
                 ["where"], ["where", "b"], ["heal"], ["heal", "frob"], ["status", "--frob"], ["status", "a", "b"]):
        r = kofn(*args)
        assert r.returncode == 2, f"{args}: {r}"
        assert "kofn" in (r.stderr or r.stdout), f"{args}: {r}"
        if args:
            assert r.stdout == "" and r.stderr, f"{args}: {r}"
    listed = kofn("help")
    assert listed.returncode == 0 and listed.stderr == ""
    commands = re.findall(r"^  (\w+) {2,}\S", listed.stdout, re.M)
    assert {"server", "config", "status", "heal", "where", "version", "help"} <= set(commands), commands
    for command in commands:
        outputs = {kofn("help", command).stdout, kofn(command, "--help").stdout, kofn(command, "-h").stdout}
        assert len(outputs) == 1 and f"usage: kofn {command}" in outputs.pop(), command
        assert kofn("help", command).returncode == 0
    for args in (["--help"], ["-h"], ["version"], ["--version"]):
        assert kofn(*args).returncode == 0, args
    assert re.fullmatch(r"kofn \d+\.\d+\S*\n", kofn("version").stdout), kofn("version").stdout
    d = cfg.dir / "d"
    d.mkdir()
    ports = free_ports(2)
    for args in (["server", d, d], ["server", d, f"{d}/."], ["server", cfg.dir / "missing"]):
        r = kofn(*args, env={"KOFN_SERVER_STATE_DIR": str(cfg.dir / "state"), "KOFN_SERVER_S3_LISTEN": f"127.0.0.1:{ports[0]}",
                             "KOFN_SERVER_ADMIN_LISTEN": f"127.0.0.1:{ports[1]}"})
        assert r.returncode == 2 and str(args[1]) in r.stderr, f"{args}: {r}"
    assert not list(d.iterdir())
    r = kofn("status", "127.0.0.1:1")
    assert r.returncode == 1 and "127.0.0.1:1" in r.stderr, r
    ok(f"misuse: exit status 2; help of {len(commands)} commands")


def main():
    directory = tempfile.mkdtemp(prefix="kofn-test-")
    try:
        cfg = Config(directory)
        text = base(cfg)
        every_field(cfg, text, schema())
        for check in (shapes, meanings, round_trip, environment, command_line):
            check(cfg, text)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
