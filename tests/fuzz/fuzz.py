#!/usr/bin/env python3
"""fuzz.py: campaigns of the fuzz targets (libFuzzer, AddressSanitizer, UndefinedBehaviorSanitizer).

  fuzz.py [--seconds N] [--coverage] [--write] [--grow] [--minimise] [--only A,B] [--seed S] [--build DIR]

Builds with clang into build-fuzz, runs every target for N seconds (60), two at a time, from its committed corpus and what
earlier campaigns found (build-fuzz/found), and fails on any crash, leak, timeout (20 s) or slow input (5 s); the input is
then in build-fuzz/failed.
  --coverage  builds once more with coverage and says which lines of the parsers no input reached
  --grow      times inputs of one shape at 1x, 2x, 4x and 8x the size and fails where time grows faster than size
  --write     writes RESULTS.md (with --coverage and --grow)
  --seconds 0 runs no campaign: with --write the figures are those of the last one in the build directory
  --minimise  renews corpus/ from seeds.py, the committed corpus and what was found: the fewest inputs for all edges
A failure becomes a regression test by its copy as corpus/<target>/r-<words>, which --minimise keeps.
Exit: 0 passed, 77 where clang has no libFuzzer, else failed.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
CORPUS_FILES_MAX = 60
TIMEOUT_SECONDS, SLOW_SECONDS = 20, 5
AIM_PERCENT = 90
# 8x the bytes may cost this many times the time; 8^1.5 = 22.6.
GROWTH_MAX, GROWTH_SECONDS_MIN, GROWTH_SECONDS_MAX = 22.0, 0.02, 30

# target -> longest input, and the parsers that it is for: whole files, or functions of a file that does more.
DRIVE_ID = ["id_print", "id_line", "id_line_hex", "id_line_text", "id_parse"]
STATE = ["json_text", "json_text_get", "json_id", "json_id_get", "put_id_unless_zero", "drive_to_json", "state_to_json",
         "name_get", "drive_from_json", "state_from_json", "state_clear", "state_drive"]
KEYS_PLACE = ["decode_names", "decode_slots", "decode_pools", "placement_decode", "placement_encode", "find_drive"]
TARGETS = {
    "http_head": (40000, {"server/http_msg.c": None, "server/http_token.h": None}),
    "http_chunked": (20000, {"server/http_chunked.c": None}),
    "http_values": (4096, {"server/http_util.c": ["hex_digit", "http_percent_decode", "date_imf", "date_rfc850", "date_asctime", "date_name",
                                                  "date_number", "date_literal", "date_time", "http_date_parse", "http_date_format",
                                                  "days_of", "month_days", "is_leap", "http_header_find", "http_header_count"],
                           "server/s3_cond.c": None, "config/settings_values.c": ["parse_with_units", "settings_parse_size",
                           "settings_parse_time", "settings_parse_address", "value_clean_path", "value_is_name", "is_host_char",
                           "value_print_size", "value_print_time"], "codec/digest.c": ["hex_encode", "hex_value", "hex_decode", "base64_encode",
                                                                   "base64_value", "base64_decode"]}),
    "http_conn": (80000, {"server/http_conn.c": None, "server/http_body.c": None, "server/http_out.c": None}),
    "s3_front": (80000, {"server/s3_route.c": None, "server/s3_auth.c": None, "server/s3_list.c": None, "server/s3_bucket.c": None,
                         "server/s3_object.c": None, "server/s3_get.c": None, "server/s3_xml.c": None}),
    "frame": (40000, {"storage/net/frame.c": None, "storage/net/hello.c": None}),
    "stream": (4096, {"storage/net/stream_rx.c": None, "storage/net/handshake.c": None}),
    "rows": (20000, {"storage/object/row.c": None, "storage/object/peer.c": ["put_version", "get_version", "rows_put_inline",
                     "peer_rows_encode", "rows_get_inline", "rows_get_row", "peer_rows_decode", "peer_list_put_header",
                     "peer_list_patch_header", "peer_list_put_entry", "peer_list_open", "list_get_row", "peer_list_next",
                     "peer_keys_put", "peer_keys_put_end", "peer_keys_next", "peer_keys_cursor"],
                     "storage/object/bucket_row.c": ["parse_state", "parse_decimal", "bucket_row_parse", "bucket_name_fits"],
                     "codec/bytes.c": None}),
    "placement": (512, {"storage/object/placement.c": KEYS_PLACE}),
    "keys": (2048, {"storage/drive/keys.c": None}),
    "drive_files": (20000, {"storage/drive/format.c": DRIVE_ID, "storage/drive/chunk_file.c": None,
                            "storage/drive/store_files.c": ["chunk_name_print", "chunk_name_parse"]}),
    "state_json": (8192, {"storage/net/state_dir.c": STATE}),
    "config": (8192, {"config/settings_yaml.c": None, "config/settings_env.c": None, "config/settings_fill.c": None,
                      "config/settings_check.c": None, "config/settings_schema.c": None, "config/settings_print.c": None,
                      "config/cluster_map.c": None}),
}


def fail(words):
    print("FAILED: " + words)
    sys.exit(1)


def has_libfuzzer():
    if not shutil.which("clang"):
        return False
    with tempfile.TemporaryDirectory(prefix="kofn-fuzz-") as temp:
        path = os.path.join(temp, "a.c")
        with open(path, "w", encoding="utf-8") as f:
            f.write("int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n) { return 0; }\n")
        done = subprocess.run(["clang", "-fsanitize=fuzzer,address,undefined", path, "-o", os.path.join(temp, "a")],
                              capture_output=True, check=False)
        return done.returncode == 0


def build(directory, flags, programs):
    log = os.path.join(directory, "build.log")
    os.makedirs(directory, exist_ok=True)
    launcher = ["-DCMAKE_C_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    with open(log, "w", encoding="utf-8") as f:
        for command in (["cmake", "-S", SOURCE, "-B", directory, "-G", "Ninja", "-DCMAKE_C_COMPILER=clang",
                         "-DCMAKE_BUILD_TYPE=RelWithDebInfo"] + launcher + flags,
                        ["nice", "ninja", "-C", directory, "-j2"] + programs):
            if subprocess.run(command, stdout=f, stderr=subprocess.STDOUT, check=False).returncode:
                with open(log, encoding="utf-8", errors="replace") as text:
                    print("".join(text.readlines()[-30:]))
                fail("the build: " + log)


def corpus_of(target):
    return os.path.join(HERE, "corpus", target)


def files_in(*directories):
    return [os.path.join(d, n) for d in directories if os.path.isdir(d) for n in sorted(os.listdir(d))]


class Campaign:
    def __init__(self, args):
        self.args = args
        self.targets = [t for t in TARGETS if not args.only or t in args.only.split(",")]
        self.build = os.path.abspath(args.build)
        self.found = os.path.join(self.build, "found")
        self.failed = os.path.join(self.build, "failed")
        self.commit = commit()  # of the campaign
        self.seeds = os.path.join(self.build, "seeds")
        self.cov_build = self.build + "-coverage"
        self.results, self.coverage, self.growth, self.faults = {}, {}, [], []
        subprocess.run([sys.executable, os.path.join(HERE, "seeds.py"), self.seeds], check=True)

    def program(self, target):
        return os.path.join(self.build, "tests", "fuzz", "fuzz_" + target)

    def inputs_of(self, target):
        """The committed corpus, and all seeds: of more than CORPUS_FILES_MAX the corpus has only the best."""
        return [d for d in (corpus_of(target), os.path.join(self.seeds, target)) if files_in(d)]

    def run_target(self, target):
        found, prefix = os.path.join(self.found, target), os.path.join(self.failed, target + "-")
        os.makedirs(found, exist_ok=True)
        os.makedirs(self.failed, exist_ok=True)
        before = set(files_in(self.failed))
        command = ["nice", self.program(target), found] + self.inputs_of(target) + ["-max_total_time=%d" % self.args.seconds,
                   "-timeout=%d" % TIMEOUT_SECONDS, "-report_slow_units=%d" % SLOW_SECONDS, "-rss_limit_mb=2048",
                   "-max_len=%d" % TARGETS[target][0], "-artifact_prefix=" + prefix, "-print_final_stats=1",
                   "-seed=%d" % self.args.seed]
        words = os.path.join(HERE, "dict", target + ".dict")
        if os.path.exists(words):
            command.append("-dict=" + words)
        log = os.path.join(self.build, target + ".log")
        environment = dict(os.environ, ASAN_OPTIONS="detect_leaks=1:allocator_may_return_null=1")
        with open(log, "w", encoding="utf-8") as f:
            code = subprocess.run(command, stdout=f, stderr=subprocess.STDOUT, env=environment, check=False).returncode
        with open(log, encoding="utf-8", errors="replace") as f:
            text = f.read()
        stats = dict(re.findall(r"stat::(\w+):\s+(\d+)", text))
        new = sorted(set(files_in(self.failed)) - before)
        result = {"executions": int(stats.get("number_of_executed_units", 0)),
                  "per_second": int(stats.get("average_exec_per_sec", 0)), "slowest": int(stats.get("slowest_unit_time_sec", 0)),
                  "new": int(stats.get("new_units_added", 0)), "corpus": len(files_in(corpus_of(target)))}
        if code or new:
            print("".join(line + "\n" for line in text.split("\n")[-60:] if not line.startswith("#")))
            self.faults.append("%s: exit %d, %s (log %s)" % (target, code, ", ".join(new) or "no input kept", log))
        print("%-12s %10d executions, %6d/s, %d new inputs%s" %
              (target, result["executions"], result["per_second"], result["new"], "  FAILED" if code or new else ""), flush=True)
        self.results[target] = result

    def make(self):
        build(self.build, ["-DKOFN_FUZZ=ON", "-DKOFN_SANITIZE=address"], ["fuzz_" + t for t in self.targets])

    def run(self):
        print("seed %d, %d s each, 2 at a time" % (self.args.seed, self.args.seconds), flush=True)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(self.run_target, self.targets))
        with open(os.path.join(self.build, "results.json"), "w", encoding="utf-8") as f:
            json.dump({"seconds": self.args.seconds, "seed": self.args.seed, "results": self.results, "commit": commit()}, f)

    def recall(self):
        """The figures of the last campaign in this build directory."""
        path = os.path.join(self.build, "results.json")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                last = json.load(f)
            self.args.seconds, self.args.seed, self.results = last["seconds"], last["seed"], last["results"]
            self.commit = last.get("commit", "unknown")

    # ---- coverage ----

    def run_coverage(self):
        build(self.cov_build, ["-DKOFN_FUZZ_COVERAGE=ON"], ["fuzz_corpus_" + t for t in self.targets])
        hits = {}  # file -> line -> count, of all targets together
        for target in self.targets:
            program = os.path.join(self.cov_build, "tests", "fuzz", "fuzz_corpus_" + target)
            raw, data = os.path.join(self.cov_build, target + ".profraw"), os.path.join(self.cov_build, target + ".profdata")
            inputs = self.inputs_of(target) + [d for d in [os.path.join(self.found, target)] if files_in(d)]
            subprocess.run([program] + inputs, env=dict(os.environ, LLVM_PROFILE_FILE=raw), stdout=subprocess.DEVNULL, check=True)
            subprocess.run(["llvm-profdata", "merge", "-sparse", raw, "-o", data], check=True)
            done = subprocess.run(["llvm-cov", "export", "--format=lcov", program, "-instr-profile=" + data], capture_output=True,
                                  text=True, check=True)
            own = {}
            for block in done.stdout.split("end_of_record"):
                name = re.search(r"^SF:(.*)$", block, re.M)
                if not name:
                    continue
                path = os.path.relpath(name.group(1), SOURCE)
                for line, count in re.findall(r"^DA:(\d+),(\d+)", block, re.M):
                    for table in (own, hits):
                        lines = table.setdefault(path, {})
                        lines[int(line)] = lines.get(int(line), 0) + int(count)
            self.coverage[target] = {p: self.measure(own.get(p, {}), p, only) for p, only in TARGETS[target][1].items()}
        self.union = {p: self.measure(hits.get(p, {}), p, only) for t in self.targets for p, only in TARGETS[t][1].items()}
        for target in self.targets:
            parts = self.coverage[target]
            seen, total = sum(c for c, _, _ in parts.values()), sum(n for _, n, _ in parts.values())
            print("%-12s %5.1f %% of %d lines" % (target, 100.0 * seen / max(total, 1), total))
        for path, (seen, total, missing) in sorted(self.union.items()):
            if missing:
                print("  %-32s %5.1f %%, not reached: %s" % (path, 100.0 * seen / max(total, 1), ranges(missing)))

    def measure(self, lines, path, only):
        if only is not None:
            wanted = function_lines(os.path.join(SOURCE, path), only)
            lines = {n: c for n, c in lines.items() if n in wanted}
        missing = sorted(n for n, c in lines.items() if c == 0)
        return len(lines) - len(missing), len(lines), missing

    # ---- growth ----

    def run_growth(self):
        build(self.cov_build, ["-DKOFN_FUZZ_COVERAGE=ON"], ["fuzz_corpus_" + t for t in self.targets])
        with tempfile.TemporaryDirectory(prefix="kofn-fuzz-") as temp:
            subprocess.run([sys.executable, os.path.join(HERE, "seeds.py"), "--grow", temp], check=True)
            for target in self.targets:
                program = os.path.join(self.cov_build, "tests", "fuzz", "fuzz_corpus_" + target)
                for family in sorted(os.listdir(os.path.join(temp, target))) if os.path.isdir(os.path.join(temp, target)) else []:
                    self.time_family(program, target, os.path.join(temp, target, family))

    def time_family(self, program, target, directory):
        times, sizes = [], []
        for name in ("1", "2", "4", "8"):
            path = os.path.join(directory, name)
            done = subprocess.run([program, "--time", path], capture_output=True, text=True, check=False,
                                  env=dict(os.environ, LLVM_PROFILE_FILE="/dev/null"), preexec_fn=limit_cpu)
            if done.returncode == -signal.SIGXCPU:
                self.faults.append("%s: %s at %d bytes takes more than %d s" %
                                   (target, os.path.basename(directory), os.path.getsize(path), GROWTH_SECONDS_MAX))
                return
            if done.returncode:
                self.faults.append("%s: %s fails: %s" % (target, path, done.stderr[-300:]))
                return
            times.append(float(done.stdout))
            sizes.append(os.path.getsize(path))
        ratio = times[3] / max(times[0], 1e-6)
        fast = times[3] < GROWTH_SECONDS_MIN or ratio < GROWTH_MAX
        self.growth.append((target, os.path.basename(directory), sizes[3], times[3], ratio, fast))
        if not fast:
            self.faults.append("%s: %s at %d bytes takes %.3f s, %.0f times as long as an eighth of it" %
                               (target, os.path.basename(directory), sizes[3], times[3], ratio))

    # ---- the committed corpora ----

    def minimise(self):
        with tempfile.TemporaryDirectory(prefix="kofn-fuzz-") as temp:
            for target in self.targets:
                self.minimise_target(target, temp)

    def minimise_target(self, target, temp):
        """libFuzzer's merge says which edges each input reaches; the greedy cover of them is what stays."""
        sources = self.inputs_of(target) + [os.path.join(self.found, target)]
        control, out = os.path.join(temp, target + ".control"), os.path.join(temp, target + ".out")
        os.makedirs(out, exist_ok=True)
        done = subprocess.run([self.program(target), "-set_cover_merge=1", "-use_counters=0", "-max_len=1000000",
                               "-merge_control_file=" + control, out] + [d for d in sources if files_in(d)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True, text=True, errors="replace")
        # Behind the edges stand features of other kinds (depth of the stack), which would keep hundreds of inputs.
        edge_end = 8 * int(re.search(r"\((\d+) inline 8-bit counters", done.stderr).group(1))
        with open(control, encoding="utf-8") as f:
            lines = f.read().split("\n")
        count = int(lines[0])
        paths, edges = lines[2:2 + count], {}
        for line in lines[2 + count:]:
            words = line.split()
            if words and words[0] == "FT":
                edges.setdefault(int(words[1]), set()).update(w for w in words[2:] if int(w) < edge_end)
        keep = [p for p in files_in(corpus_of(target)) if os.path.basename(p).startswith("r-")]
        chosen = greedy({paths[i]: e for i, e in edges.items() if e})[:CORPUS_FILES_MAX - len(keep)]
        chosen = keep + [p for p in chosen if p not in keep]
        contents = {}
        for path in chosen:
            with open(path, "rb") as f:
                data = f.read()
            name = os.path.basename(path)
            contents[name if name[:2] in ("s-", "r-") else hashlib.sha1(data).hexdigest()[:16]] = data
        shutil.rmtree(corpus_of(target), ignore_errors=True)
        os.makedirs(corpus_of(target))
        for name, data in contents.items():
            with open(os.path.join(corpus_of(target), name), "wb") as f:
                f.write(data)
        print("%-12s %d inputs, %d bytes" % (target, len(contents), sum(len(d) for d in contents.values())))


def limit_cpu():
    resource.setrlimit(resource.RLIMIT_CPU, (GROWTH_SECONDS_MAX, GROWTH_SECONDS_MAX + 5))


def commit():
    done = subprocess.run(["git", "-C", SOURCE, "log", "-1", "--format=%h"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def greedy(edges):
    chosen, left = [], set().union(*edges.values())
    while left:
        best = max(edges, key=lambda p: (len(edges[p] & left), -os.path.getsize(p)))
        if not edges[best] & left:
            break
        chosen.append(best)
        left -= edges[best]
    return chosen


def function_lines(path, names):
    """The lines of the named functions, by the repository's formatting: the head in the first column, then `}` alone."""
    with open(path, encoding="utf-8") as f:
        text = f.read().split("\n")
    wanted = set()
    for name in names:
        head = re.compile(r"^[A-Za-z_][\w \*]*\b%s\(" % re.escape(name))
        starts = [i for i, line in enumerate(text) if head.match(line)]
        found = False
        for start in starts:
            end = start
            while end < len(text) and text[end] != "}" and not text[end].endswith(";") or end < len(text) and text[end].startswith("  "):
                end += 1
            if end < len(text) and text[end] == "}":
                wanted.update(range(start + 1, end + 2))
                found = True
        if not found:
            fail("%s has no function %s" % (path, name))
    return wanted


def ranges(lines):
    out = []
    for n in lines:
        if out and n == out[-1][1] + 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return ", ".join("%d" % a if a == b else "%d-%d" % (a, b) for a, b in out)


def write_results(c):
    reasons = {}
    with open(os.path.join(HERE, "UNREACHED.md"), encoding="utf-8") as f:
        for path, words in re.findall(r"^- `([^`]+)`: (.*)$", f.read(), re.M):
            reasons[path] = words
    out = ["# Fuzzing: the last campaign", "",
           "Campaign: `tests/fuzz/fuzz.py --seconds %d`, seed %d, at commit %s; clang, AddressSanitizer and UndefinedBehaviorSanitizer, two" %
           (c.args.seconds, c.args.seed, c.commit),
           "targets at a time on a shared machine. Lines and times: at commit %s, %s. Lines are those of the parsers named in fuzz.py," %
           (commit(), time.strftime("%Y-%m-%d", time.gmtime())),
           "by the committed corpus, all seeds and what campaigns found on this machine.", "", "| target | executions | per second | slowest input | corpus | lines |", "| --- | --- | --- | --- | --- | --- |"]
    for t in c.targets:
        parts = c.coverage.get(t, {}).values()
        seen, total = sum(p[0] for p in parts), sum(p[1] for p in parts)
        r = c.results.get(t, {})
        out.append("| %s | %s | %s | %s | %d | %.1f %% of %d |" %
                   (t, format(r.get("executions", 0), ","), format(r.get("per_second", 0), ","),
                    "< 1 s" if not r.get("slowest") else "%d s" % r["slowest"], r.get("corpus", 0), 100.0 * seen / max(total, 1), total))
    if c.coverage:
        seen, total = sum(u[0] for u in c.union.values()), sum(u[1] for u in c.union.values())
        out += ["", "All parsers: %.1f %% of %d lines." % (100.0 * seen / max(total, 1), total), "",
                "## Lines that no input reached", "", "| file | lines reached | not reached | why |", "| --- | --- | --- | --- |"]
        for path, (seen, total, missing) in sorted(c.union.items()):
            if missing:
                out.append("| %s | %.1f %% of %d | %s | %s |" % (path, 100.0 * seen / max(total, 1), total, ranges(missing), reasons.get(path, "")))
    if c.growth:
        out += ["", "## Time against size", "", "Each shape at 1x and 8x its size, CPU time of one run; below %g s nothing is judged." % GROWTH_SECONDS_MIN,
                "", "| target | shape | bytes at 8x | seconds | times 1x |", "| --- | --- | --- | --- | --- |"]
        for target, family, size, seconds, ratio, _ in c.growth:
            out.append("| %s | %s | %d | %.4f | %.1f |" % (target, family, size, seconds, ratio))
    with open(os.path.join(HERE, "RESULTS.md"), "w", encoding="utf-8") as f:
        f.write("\n".join(out) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--only")
    parser.add_argument("--seed", type=int, default=int(time.time()) & 0x7fffffff)
    parser.add_argument("--build", default=os.path.join(SOURCE, "build-fuzz"))
    for flag in ("--coverage", "--write", "--grow", "--minimise"):
        parser.add_argument(flag, action="store_true")
    args = parser.parse_args()
    begin = time.time()
    if not has_libfuzzer():
        print("SKIPPED: clang with libFuzzer (Debian: clang and libclang-rt-VERSION-dev) is not here: nothing was fuzzed")
        return 77
    c = Campaign(args)
    if args.seconds > 0 or args.minimise:
        c.make()
    if args.seconds > 0:
        c.run()
    if args.minimise:
        c.minimise()
    if args.coverage:
        c.run_coverage()
    if args.grow:
        c.run_growth()
    if args.write:
        if args.seconds == 0:
            c.recall()
        write_results(c)
    for fault in c.faults:
        print("FAILED: " + fault)
    print("RESULT " + json.dumps({
        "suite": "fuzz", "done": "%d targets, %d executions" % (len(c.targets), sum(r["executions"] for r in c.results.values())),
        "found": "none" if not c.faults else "; ".join(c.faults), "seconds": int(time.time() - begin), "figures":
        "%.1f %% of the parsers' lines" % (100.0 * sum(u[0] for u in c.union.values()) / max(1, sum(u[1] for u in c.union.values())))
        if c.coverage else ""}))
    return 1 if c.faults else 0


if __name__ == "__main__":
    sys.exit(main())
