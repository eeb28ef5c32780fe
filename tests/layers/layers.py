#!/usr/bin/env python3
"""layers.py: no include points up, and each layer reaches only for what it may.

  server -> storage (net -> drive -> object) -> codec -> config

  layers.py SOURCE_DIR     checks the rules on a tree of violations first, then on SOURCE_DIR
  layers.py --self-test    the first half only
"""
import os
import re
import subprocess
import sys
import tempfile

# Lowest first. A file may include headers of its own layer and of those below it.
LAYERS = ["config", "codec", "storage/object", "storage/drive", "storage/net", "storage/repair", "server"]

TOP_FOLDERS = {"config", "codec", "storage", "server", "tests", "docker", ".ci", ".git"}
TOP_FILES = {
    "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", "CMakeLists.txt",
    "run", ".clang-format", ".clang-tidy", ".gitignore", ".dockerignore", ".editorconfig", ".gitattributes",
}
# What .gitignore leaves out, for a tree that is no git checkout.
TOP_IGNORED = re.compile(r"^(build.*|\.cache|__pycache__)$")

# Which layers may include a library's headers.
LIBRARIES = {
    r"uv(\.h$|/)": {"storage/net", "server"},
    r"lmdb\.h$": {"storage/drive"},
    r"yaml\.h$": {"config"},
    r"isa-l(\.h$|/)": {"codec"},
    r"llhttp\.h$": {"server"},
    r"expat\.h$": {"server"},
    r"jansson\.h$": {"storage/net", "storage/repair", "server"},
    r"openssl/": {"codec", "storage/net", "server"},
}
# The object layer is driven by struct env and struct peer alone, so that it can be simulated; the
# codec works on memory alone.
IMPURE = re.compile(
    r"^(uv|lmdb|fcntl|unistd|time|netdb|pthread|threads|signal|poll|dirent)\.h$"
    r"|^sys/(socket|time|stat|uio|epoll|eventfd|mman|file|random|un|select|ioctl)\.h$|^(netinet|arpa|net|uv)/")
IMPURE_CALLS = re.compile(
    r"\b(clock_gettime|gettimeofday|time|clock|rand|rand_r|random|drand48|getrandom|getentropy|arc4random"
    r"|open|openat|socket|pthread_create|usleep|nanosleep|sleep)\s*\(")
PURE_LAYERS = {"codec": re.compile(IMPURE.pattern.replace("|pthread", "")), "storage/object": IMPURE}
# A rate cannot be measured without a clock; the tests of a layer's calls are for storage/object.
PURE_EXCEPTIONS = {"codec/xor_calibrate.c"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
INTERNAL = re.compile(r"Internal to ([a-z/]+[a-z])/")


def layer_of(path):
    return max((l for l in LAYERS if path.startswith(l + "/")), key=len, default=None)


def code_only(text):
    """The text with comments and literals blanked, lines kept."""
    pattern = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S)


def sources(root):
    for top in ("config", "codec", "storage", "server"):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if name.endswith((".c", ".h")):
                    yield os.path.relpath(os.path.join(folder, name), root)


def top_entries(root):
    if os.path.exists(os.path.join(root, ".git")):
        done = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout:
            return sorted({line.split("/")[0] for line in done.stdout.splitlines()})
    return sorted(name for name in os.listdir(root) if not TOP_IGNORED.match(name))


def check_include(root, path, number, quote, name, faults):
    layer = layer_of(path)
    rank = LAYERS.index(layer)
    where = "%s:%d: " % (path, number)
    if quote == '"':
        if not os.path.exists(os.path.join(root, name)):
            faults.append(where + 'includes "%s", which is no path from the root' % name)
            return
        target = layer_of(name)
        if target is None:
            faults.append(where + 'includes "%s", which is in no layer' % name)
        elif LAYERS.index(target) > rank:
            faults.append(where + '%s includes "%s" of %s: that points up' % (layer, name, target))
        else:
            with open(os.path.join(root, name), encoding="utf-8") as f:
                internal = INTERNAL.search(f.read(4000))
            if internal and not path.startswith(internal.group(1) + "/"):
                faults.append(where + 'includes "%s", which is internal to %s/' % (name, internal.group(1)))
        return
    for pattern, allowed in LIBRARIES.items():
        if re.match(pattern, name) and layer not in allowed:
            faults.append(where + "%s includes <%s>: only %s may" % (layer, name, ", ".join(sorted(allowed))))
    if layer in PURE_LAYERS and path not in PURE_EXCEPTIONS and PURE_LAYERS[layer].match(name):
        faults.append(where + "%s includes <%s>: it is pure of sockets, files, clocks and threads" % (layer, name))


def check(root):
    """The faults of a tree, as lines; and how many files were read."""
    faults, count = [], 0
    for entry in top_entries(root):
        folder = os.path.isdir(os.path.join(root, entry))
        if entry not in (TOP_FOLDERS if folder else TOP_FILES):
            faults.append("%s: is none of the top-level entries that layers.py knows" % entry)
    for path in sources(root):
        count += 1
        if layer_of(path) is None:
            faults.append("%s: is in no layer" % path)
            continue
        with open(os.path.join(root, path), encoding="utf-8") as f:
            text = f.read()
        for number, line in enumerate(text.split("\n"), 1):
            found = INCLUDE.match(line)
            if found:
                check_include(root, path, number, found.group(1), found.group(2), faults)
        if layer_of(path) == "storage/object":
            for number, line in enumerate(code_only(text).split("\n"), 1):
                found = IMPURE_CALLS.search(line)
                # A member or a longer name of that spelling is not the call.
                if found and not re.search(r"[.>]\s*$", line[:found.start()]):
                    faults.append("%s:%d: storage/object calls %s: only struct env and struct peer" %
                                  (path, number, found.group(1)))
    return faults, count


def self_test():
    """Each violation alone, in a tree that is clean without it, must be found."""
    clean = {
        "config/base.h": "/* base.h */\n", "config/secret.h": "/* secret.h: Internal to config/. */\n",
        "config/settings.c": '#include "config/secret.h"\n#include <yaml.h>\n#include <unistd.h>\n',
        "codec/codec.h": '#include "config/base.h"\n', "codec/xor_calibrate.c": "#include <time.h>\n",
        "storage/object/peer.h": '#include "codec/codec.h"\n/* time() and "rand()" in words are fine */\n',
        "storage/object/get.c": '#include "storage/object/peer.h"\nint x = env->time(env) + hedge_time(1);\n',
        "storage/drive/drive.c": '#include "storage/object/peer.h"\n#include <lmdb.h>\n',
        "storage/net/peer.h": '#include "storage/object/peer.h"\n#include <uv.h>\n',
        "server/main.c": '#include "storage/net/peer.h"\n#include <llhttp.h>\n', "CMakeLists.txt": "", "run": "",
        "tests/x.c": "",
    }
    violations = [
        ("config/a.c", '#include "codec/codec.h"\n', "points up"),
        ("codec/a.c", '#include "storage/object/peer.h"\n', "points up"),
        ("storage/object/a.c", '#include "storage/net/peer.h"\n', "points up"),
        ("storage/drive/a.c", '#include "storage/net/peer.h"\n', "points up"),
        ("storage/net/a.c", '  #  include "server/main.c"\n', "points up"),
        ("codec/a.c", '#include "config/secret.h"\n', "internal to config/"),
        ("codec/a.c", '#include "codec.h"\n', "no path from the root"),
        ("codec/a.c", '#include "tests/x.c"\n', "in no layer"),
        ("storage/object/a.c", "#include <uv.h>\n", "only server, storage/net may"),
        ("storage/object/a.c", "#include <time.h>\n", "is pure of"),
        ("storage/object/a.c", "#include <sys/socket.h>\n", "is pure of"),
        ("storage/object/a.c", "#include <fcntl.h>\n", "is pure of"),
        ("storage/object/a.c", "int a = rand();\n", "calls rand"),
        ("storage/object/a.c", "clock_gettime(0, &t);\n", "calls clock_gettime"),
        ("codec/a.c", "#include <unistd.h>\n", "is pure of"),
        ("codec/a.c", "#include <time.h>\n", "is pure of"),
        ("server/a.c", "#include <lmdb.h>\n", "only storage/drive may"),
        ("storage/net/a.c", "#include <yaml.h>\n", "only config may"),
        ("storage/a.c", "", "is in no layer"),
        ("utils/a.c", "", "none of the top-level entries"),
        ("notes.txt", "", "none of the top-level entries"),
    ]
    for path, text, want in [(None, "", None)] + violations:
        with tempfile.TemporaryDirectory(prefix="kofn-layers-") as root:
            tree = dict(clean)
            if path:
                tree[path] = text
            for name, content in tree.items():
                full = os.path.join(root, name)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "w", encoding="utf-8") as f:
                    f.write(content)
            faults, _ = check(root)
            good = not faults if want is None else len(faults) >= 1 and all(
                path.split("/")[0] in fault for fault in faults) and any(want in fault for fault in faults)
            if not good:
                sys.exit("self-test: %s with %r: wanted %r, got %r" % (path, text, want, faults))
    print("self-test: %d violations found, the clean tree passes" % len(violations))


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: layers.py SOURCE_DIR | --self-test")
    self_test()
    if sys.argv[1] == "--self-test":
        return
    faults, count = check(sys.argv[1])
    if count == 0:
        sys.exit("no source file under %s" % sys.argv[1])
    for fault in faults:
        print(fault)
    print("%d files, %d faults" % (count, len(faults)))
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
