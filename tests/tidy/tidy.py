#!/usr/bin/env python3
"""tidy.py: what the style asks for and a compiler does not check.

  tidy.py SOURCE_DIR     checks the rules on a file of each violation first, then on SOURCE_DIR
  tidy.py --self-test    the first half only
"""
import os
import re
import sys
import tempfile

LINE_COLUMNS_MAX = 100
FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 90
FOLDERS = ("config", "codec", "storage", "server", "tests", "docker", ".ci")
TEXTS = (".c", ".h", ".py", ".sh", ".cmake", ".txt", ".md", ".yml", ".yaml")

BANNED = re.compile(
    r"\b(sprintf|vsprintf|strcpy|strcat|strncat|strncpy|strtok|strtok_r|atoi|atol|atoll|atof|gets|alloca)\s*\(")
TYPEDEF = re.compile(r"^\s*typedef\s+(struct|union|enum)\b")
# Put together, so that this file may be checked too.
WORDS = re.compile("|".join(["TO" + "DO", "FIX" + "ME", r"\bXX" + r"X\b", "not " + "implemented", "/wor" + "k/"]))
GUARD = re.compile(r"^#ifndef (KOFN_[A-Z0-9_]+_H)\n#define \1\n", re.M)
# With the repository's clang-format a function begins in the first column with its type, and its
# closing brace stands there alone.
FUNCTION = re.compile(r"^[A-Za-z_][^;={}#]*\([^;{}]*\)[^;={}]*\{\n(.*?)^\}", re.M | re.S)
FUNCTION_HEAD = re.compile(r"([A-Za-z_]\w*)\s*\(")


def code_only(text):
    """The text with comments and literals blanked, lines kept."""
    pattern = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S)


def check_c(path, text, faults):
    code = code_only(text)
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > LINE_COLUMNS_MAX:
            faults.append("%s:%d: %d columns, more than %d" % (path, number, len(line), LINE_COLUMNS_MAX))
    for number, line in enumerate(code.split("\n"), 1):
        found = BANNED.search(line)
        if found:
            faults.append("%s:%d: %s is banned" % (path, number, found.group(1)))
        if TYPEDEF.match(line):
            faults.append("%s:%d: a typedef of a struct, union or enum" % (path, number))
    for found in FUNCTION.finditer(code):
        lines = found.group(1).count("\n") + 2
        if lines > FUNCTION_LINES_MAX:
            head = FUNCTION_HEAD.search(found.group())
            faults.append("%s:%d: %s has %d lines, more than %d" %
                          (path, code[:found.start()].count("\n") + 1, head.group(1), lines, FUNCTION_LINES_MAX))
    if not text.startswith("/* "):
        faults.append("%s:1: does not begin with a comment that says what it is for" % path)
    if path.endswith(".h") and not GUARD.search(text):
        faults.append("%s:1: has no include guard KOFN_..._H" % path)


def check_file(path, data, faults):
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        faults.append("%s:1: is not UTF-8" % path)
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.endswith("\r"):
            faults.append("%s:%d: ends in a carriage return" % (path, number))
        elif line != line.rstrip():
            faults.append("%s:%d: ends in white space" % (path, number))
        if "\t" in line:
            faults.append("%s:%d: has a tab" % (path, number))
        if WORDS.search(line):
            faults.append("%s:%d: says %s" % (path, number, WORDS.search(line).group()))
    if text and (not text.endswith("\n") or text.endswith("\n\n")):
        faults.append("%s:1: does not end in one newline" % path)
    if not path.startswith("tests/golden/") and text.count("\n") > FILE_LINES_MAX:
        faults.append("%s:1: %d lines, more than %d" % (path, text.count("\n"), FILE_LINES_MAX))
    if path.endswith((".c", ".h")):
        check_c(path, text, faults)


def check(root):
    """The faults of a tree, as lines; and how many files were read."""
    faults, count = [], 0
    paths = [name for name in os.listdir(root) if os.path.isfile(os.path.join(root, name))]
    for top in FOLDERS:
        for folder, folders, names in os.walk(os.path.join(root, top)):
            folders[:] = [f for f in folders if f != "__pycache__"]
            paths += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    for path in sorted(paths):
        name = os.path.basename(path)
        if not name.endswith(TEXTS) and name != "run":
            continue
        with open(os.path.join(root, path), "rb") as f:
            check_file(path, f.read(), faults)
        count += 1
    return faults, count


def self_test():
    """Each violation alone, in a tree that is clean without it, must be found."""
    function = "int f(int a,\n      int b) {\n%s}\n"
    head = "/* a.c: x. */\n"
    guard = "/* a.h: x. */\n#ifndef KOFN_A_H\n#define KOFN_A_H\n#endif\n"
    clean = {
        "codec/a.h": guard,
        "codec/a.c": head + function % ("  g();\n" * (FUNCTION_LINES_MAX - 2)) + function % "  g();\n" +
        '/* sprintf(x) in words */ const char *s = "strcpy(a)";\nint my_atoi(int);\n' +
        "static const int table[] = {\n" + "    1,\n" * (FUNCTION_LINES_MAX + 5) + "};\n",
        "tests/b.py": '"""b"""\n' + "#" * 120 + "\n", "run": "#!/bin/sh\n",
    }
    violations = [
        ("codec/b.c", head + "int %s;\n" % ("a" * LINE_COLUMNS_MAX), "columns"),
        ("codec/b.c", head + "x = sprintf(a);\n", "sprintf is banned"),
        ("codec/b.c", head + "x = strcpy (a);\n", "strcpy is banned"),
        ("codec/b.c", head + "x = alloca(a);\n", "alloca is banned"),
        ("codec/b.c", head + "x = atoi(a) + 1;\n", "atoi is banned"),
        ("codec/b.c", head + "typedef struct a a_t;\n", "typedef"),
        ("codec/b.c", head + function % ("  g();\n" * (FUNCTION_LINES_MAX - 1)), "f has"),
        ("codec/b.c", head + "int a;\n" * FILE_LINES_MAX, "lines, more than"),
        ("codec/b.c", "int a;\n", "does not begin with a comment"),
        ("codec/b.h", "/* b.h: x. */\nint a;\n", "no include guard"),
        ("codec/b.h", guard.replace("#define KOFN_A_H", "#define KOFN_B_H"), "no include guard"),
        ("codec/b.c", head + "\tint a;\n", "has a tab"),
        ("codec/b.c", head + "int a; \n", "white space"),
        ("codec/b.c", head + "int a;\r\n", "carriage return"),
        ("codec/b.c", head + "int a;", "one newline"),
        ("codec/b.c", head + "int a;\n\n", "one newline"),
        ("codec/b.c", head + "/* TO" + "DO: later */\n", "says"),
        ("tests/b.sh", "cd /wor" + "k/main\n", "says"),
        ("run", "#!/bin/sh \n", "white space"),
    ]
    for path, text, want in [(None, "", None)] + violations:
        with tempfile.TemporaryDirectory(prefix="kofn-tidy-") as root:
            tree = dict(clean)
            if path:
                tree[path] = text
            for name, content in tree.items():
                full = os.path.join(root, name)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "w", encoding="utf-8", newline="") as f:
                    f.write(content)
            faults, _ = check(root)
            good = not faults if want is None else len(faults) == 1 and want in faults[0]
            if not good:
                sys.exit("self-test: %s with %r: wanted %r, got %r" % (path, text[-60:], want, faults))
    print("self-test: %d violations found, the clean tree passes" % len(violations))


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: tidy.py SOURCE_DIR | --self-test")
    self_test()
    if sys.argv[1] == "--self-test":
        return
    faults, count = check(sys.argv[1])
    if count == 0:
        sys.exit("no file under %s" % sys.argv[1])
    for fault in faults:
        print(fault)
    print("%d files, %d faults" % (count, len(faults)))
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
