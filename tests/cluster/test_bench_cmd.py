"""test_bench_cmd.py: `kofn bench codec` and `kofn bench system` in tiny form: rows, JSON, pages, exit statuses, and that
nothing is left behind, also after SIGINT."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

from cluster import Cluster

KOFN = str(pathlib.Path(os.environ.get("KOFN_BIN", "kofn")).resolve())
HEAD = ["Plugin", "Technique", "Time", "TotalSize", "k", "m", "Iteration", "PacketSize"]
OUTSIDE = ("http:", "https:", "//", "src=", "href=", "url(", "@import", "<script", "<link")
TINY = ["--objects", "4", "--passes", "1", "--size", "100000", "--rounds", "2", "--connections", "2"]


def bench(*args, status=0, tmp=None):
    env = dict(os.environ, **({"TMPDIR": str(tmp)} if tmp else {}))
    r = subprocess.run([KOFN, "bench", *args], capture_output=True, text=True, timeout=300, env=env)
    assert r.returncode == status, f"{args}: {r.returncode}, wanted {status}\n{r.stdout[-2000:]}\n{r.stderr[-3000:]}"
    assert "\r" not in r.stderr and "\033" not in r.stderr, "progress is for terminals alone"
    return r


def rows(text):
    """The rows of one table, by column."""
    lines = [line.split("\t") for line in text.splitlines()]
    return [dict(zip(lines[0], line)) for line in lines[1:]], lines[0]


def page_is_self_contained(path):
    page = path.read_text()
    assert page.startswith("<!DOCTYPE html>") and page.rstrip().endswith("</html>"), page[:100]
    assert not [o for o in OUTSIDE if o in page], [o for o in OUTSIDE if o in page]
    assert "<svg " in page and page.count("<svg ") == page.count("</svg>")
    return page


def check_rows():
    got, head = rows(bench("codec", "-k", "4", "-m", "2", "-s", "4096", "-i", "1000", "-p", "isa,isal-direct").stdout)
    assert head == HEAD, head
    assert [r["Plugin"] for r in got] == ["isa", "isal-direct"], got
    for r in got:
        assert (r["Technique"], r["k"], r["m"], r["Iteration"], r["TotalSize"], r["PacketSize"]) == \
            ("reed_sol_van", "4", "2", "1000", "4000", "128"), r
        assert float(r["Time"]) > 0, r
    got, head = rows(bench("codec", "-w", "decode", "-e", "2", "-E", "exhaustive", "-s", "4096", "-i", "3", "--verify",
                           "-P", "technique=cauchy", "-P", "k=6", "-P", "m=3").stdout)
    assert head == HEAD + ["Erasures"] and got[0]["Erasures"] == "2" and got[0]["k"] == "6", got
    got, _ = rows(bench("codec", "-w", "decode", "--erased", "0", "--erased", "5", "--technique", "reed_sol_van,cauchy").stdout)
    assert [r["Technique"] for r in got] == ["reed_sol_van", "cauchy"] and got[0]["Erasures"] == "2", got
    for technique, k, m in (("xor", 4, 1), ("xor3p", 3, 3)):
        got, _ = rows(bench("codec", "--technique", technique, "-w", "decode", "-t", "2", "--cold", "--verify",
                            "-p", "isa,isal-direct").stdout)
        assert (got[0]["k"], got[0]["m"]) == (str(k), str(m)), got


def check_refusals(directory):
    for args, words in ((["codec", "--plugin", "shec"], "there is no plugin `shec`"),
                        (["codec", "-k", "22", "-m", "4"], "k=21"),
                        (["codec", "-w", "decode", "-e", "3"], "erasures are a number from 1 to 2, not 3"),
                        (["codec", "--size", "1"], "--size"),
                        (["codec", "--against", "x.json"], "--against wants --html"),
                        (["codec", "--html", "x", "--against", str(directory / "none.json")], "none.json"),
                        (["codec", "--technique", "xor", "-k", "4", "-m", "1", "--plugin", "jerasure"], "jerasure"),
                        (["codec", "--technique", "xor3p", "-w", "decode", "--erased", "0,1,3,4"], "erasures are"),
                        (["system", "--pool", "xor:4+2"], "--pool"),
                        (["system", "--url", "http://127.0.0.1:1", "--admin", "127.0.0.1:1"], "--user wants KEY:SECRET"),
                        (["system", "--workload", "list"], "none of put, get, degraded"),
                        (["disk"], "wants `codec` or `system`"), ([], "wants `codec` or `system`")):
        r = subprocess.run([KOFN, "bench", *args], capture_output=True, text=True, timeout=60)
        # A library that is not installed is no misuse: exit status 1, and the package's name.
        missing = "is not installed (Debian package" in r.stderr
        assert r.returncode == (1 if missing else 2), (args, r)
        assert missing or words in r.stderr, (args, r.stderr)
    r = bench("codec", "--json", "/no/such/directory/x", status=1)
    assert "cannot write" in r.stderr, r.stderr


def check_grid(directory):
    out, page = directory / "grid.json", directory / "grid.html"
    bench("codec", "--grid", "--quick", "--seconds", "200", "--size", "4096", "-k", "4", "-m", "2", "--verify",
          "--plugin", "isa,isal-direct", "--json", str(out))
    doc = json.loads(out.read_text())
    assert doc["kofn_bench"] == "codec" and doc["rounds"] >= 5, doc.keys()
    cells = doc["cells"]
    assert {c["workload"] for c in cells} == {"encode", "decode"}, cells
    assert {(c["technique"], c["k"], c["m"]) for c in cells} == {("reed_sol_van", 4, 2), ("cauchy", 4, 2)}
    assert {c["erasures"] for c in cells} == {0, 1, 2} and {c["cache"] for c in cells} == {"warm", "cold"}
    for c in cells:
        assert c["gb_s"]["min"] <= c["gb_s"]["median"] <= c["gb_s"]["max"] and c["gb_s"]["min"] > 0, c
        assert ("isa_over_this" in c) == (c["plugin"] == "isal-direct"), c
    assert [r["bytes"] for r in doc["crc32c"]][0] == 64 and doc["crc32c"][-1]["bytes"] == 4096
    assert {"encode", "passes", "blocks", "codec_encode_crc"} == set(doc["encode_crc"][0]["ns"])
    assert all({"isal", "chosen", "memcpy"} <= set(r["gb_s"]) for r in doc["xor"])
    r = bench("codec", "--grid", "--quick", "--seconds", "200", "--only", "table", "--size", "4096", "-k", "4", "-m", "2",
              "--plugin", "isa,isal-direct", "--html", str(page), "--against", str(out))
    assert "\n" + "\t".join(HEAD) + "\tErasures" in r.stdout, r.stdout
    assert "Encode reed_sol_van, 4 KiB objects, 1 thread, warm" in r.stdout and "CRC32C" not in r.stdout
    text = page_is_self_contained(page)
    assert "(the other run)" in text and "cauchy 4+2 decode, 2 lost" in text
    bench("codec", "--html", str(directory / "x"), "--against", str(directory / "sys.json"), status=2)


def nothing_left(tmp):
    assert not list(tmp.iterdir()), list(tmp.iterdir())
    for entry in pathlib.Path("/proc").iterdir():
        try:
            assert not entry.name.isdigit() or str(tmp).encode() not in (entry / "cmdline").read_bytes(), entry
        except OSError:
            pass


def check_own_cluster(directory, tmp):
    out, page = directory / "sys.json", directory / "sys.html"
    r = bench("system", *TINY, "--pool", "reed_sol_van:2+1,xor:2+1", "--drives", "1", "--kernels", "isal,portable64",
              "--json", str(out), "--html", str(page), tmp=tmp)
    nothing_left(tmp)
    doc = json.loads(out.read_text())
    seen = [(x["workload"], x["kind"], x["name"]) for x in doc["rows"]]
    assert len(seen) == len(set(seen)) == 12, seen
    assert {s[0] for s in seen} == {"put", "get", "degraded"}
    assert {s[2] for s in seen if s[1] == "kernel"} == {"isal", "portable64"}
    assert {s[2] for s in seen if s[1] == "pool"} == {"reed-sol-van-2-1", "xor-2-1"}
    for x in doc["rows"]:
        assert all(x[f]["min"] <= x[f]["median"] <= x[f]["max"] for f in ("real", "user", "system", "mb_s")), x
        assert x["mb_s"]["min"] > 0 and not any(v["different"] for v in x["verdicts"]), x  # two rounds show nothing
    assert "too few rounds to judge" in r.stdout, r.stdout
    assert "too few rounds to judge" in page_is_self_contained(page)
    r = bench("system", *TINY, "--kernels", "sse9", "--hosts", "1", "--drives", "3", tmp=tmp, status=2)
    assert "sse9: this machine has no such XOR kernel" in r.stderr, r.stderr
    r = bench("system", *TINY, "--hosts", "2", "--drives", "1", "--pool", "reed_sol_van:4+2", tmp=tmp, status=1)
    assert "does not serve" in r.stderr, r.stderr
    nothing_left(tmp)


def check_interrupt(tmp):
    """In the middle of the rounds: all hosts end and the directory goes."""
    process = subprocess.Popen([KOFN, "bench", "system", "--rounds", "90", "--objects", "50", "--drives", "1"],
                               env=dict(os.environ, TMPDIR=str(tmp)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while not list(tmp.glob("kofn-bench-*/n1/log")) and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "interrupted" in err, (process.returncode, err)
    nothing_left(tmp)


def check_running_cluster(directory):
    with Cluster(directory / "c", 3, 1, pools=[("default", "2+1", ""), ("plain", "2+1:reed_sol_van", "")]) as cluster:
        cluster.start()
        where = []
        for h in cluster.hosts:
            where += ["--url", h.s3, "--admin", h.admin[7:], "--pid", str(h.pid)]
        user = f"{cluster.access_key}:{cluster.secret_key}"
        before = [h.admin_json("/admin/v1/status")["xor_kernel"] for h in cluster.hosts]
        out = directory / "running.json"
        bench("system", *TINY, *where, "--user", user, "--kernels", "portable64,isal", "--json", str(out))
        doc = json.loads(out.read_text())
        assert {x["workload"] for x in doc["rows"]} == {"put", "get"}, doc["rows"]
        assert {x["name"] for x in doc["rows"]} == {"default", "plain", "portable64", "isal"}, doc["rows"]
        assert all("user" in x for x in doc["rows"])
        assert [h.admin_json("/admin/v1/status")["xor_kernel"] for h in cluster.hosts] == [before[0]] * 3
        a = cluster.request("GET", "/")
        assert a.status == 200 and not re.search(rb"kofn-bench", a.body), a.body
        r = bench("system", *TINY, *where, "--user", "NOBODY:wrong", "--kernels", "none", status=1)
        assert "status 403" in r.stderr, r.stderr
        r = bench("system", *TINY, *where, "--user", user, "--pool", "nope", status=1)
        assert "has none of these pools" in r.stderr, r.stderr
    r = bench("system", *TINY, *where[:4], "--user", user, status=1)
    assert cluster.hosts[0].admin[7:] in r.stderr, r.stderr


def main():
    with tempfile.TemporaryDirectory(prefix="kofn-bench-cmd-") as d:
        directory, tmp = pathlib.Path(d), pathlib.Path(d) / "tmp"
        tmp.mkdir()
        check_rows()
        check_refusals(directory)
        check_own_cluster(directory, tmp)
        check_grid(directory)
        check_interrupt(tmp)
        check_running_cluster(directory)
    print("rows, refusals, grid, pages, a cluster of its own, SIGINT, a running cluster: all well")


if __name__ == "__main__":
    sys.exit(main())
