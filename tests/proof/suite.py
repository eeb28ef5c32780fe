"""suite.py: what the suites of `./run proof` share: arguments, a clean end at SIGTERM, the line with the result."""
import argparse
import json
import pathlib
import secrets
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cluster"))

SKIPPED = 77


def say(words):
    print(words, flush=True)


class Ended(Exception):
    """SIGTERM or SIGINT: everything that was put up comes down again."""


def _ended(number, _frame):
    signal.signal(number, signal.SIG_IGN)
    raise Ended(signal.Signals(number).name)


def main(name, doc, run, more=None):
    """`run(arguments, directory)` returns (done, figures) or raises. `more(parser)` adds arguments."""
    parser = argparse.ArgumentParser(prog=f"tests/proof/{name}.py", description=doc.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="the form that CI runs")
    parser.add_argument("--seed", default=secrets.token_hex(4), help="repeats the random choices")
    parser.add_argument("--keep", action="store_true", help="keeps the directory of a run that fails")
    if more:
        more(parser)
    arguments = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _ended)
    say(f"seed {arguments.seed}")
    started = time.monotonic()
    directory = pathlib.Path(tempfile.mkdtemp(prefix=f"kofn-{name}-"))
    try:
        done, figures = run(arguments, directory)
    except Exception:
        print(f"FAILED; seed {arguments.seed}" + (f"; {directory} is kept" if arguments.keep else ""), flush=True)
        if arguments.keep:
            directory = None
        raise
    finally:
        if directory:
            shutil.rmtree(directory, ignore_errors=True)
    print("RESULT " + json.dumps({"suite": name, "done": done, "found": "none", "figures": figures,
                                  "seconds": round(time.monotonic() - started)}), flush=True)
    return 0


def share(part, whole):
    return f"{100 * part / whole:.1f} %" if whole else "-"
