"""test_smuggling.py: no request is executed that another parser may not have seen: every case of smuggling_cases.py straight
at a host, whole, in pieces, and with the smuggled requests behind the answer.

What is refused ends the connection and changes nothing; what is taken is one request with its exact meaning, and the next
request on the connection gets its own answer. It fails, for example, when kofn lets a second
Transfer-Encoding pass, takes LF for the end of a chunk's size, skips no body that it has not read, does not hear
"Connection: close", or goes on behind a refusal.
"""
import random
import sys
import time

from smuggling_cases import BUCKET, CASES, render
from wire import Closed, Wire, auth_line, expect, head, running

PIECES_BYTES_MAX = 3000  # longer cases are about a limit, and are sent whole
TIMEOUT_S = 30
FAULTS_S = 120  # the list of faults ends then


class Seen:
    """What the smuggled requests would change."""

    def __init__(self, cluster):
        self.cluster, self.wire, self.auth = cluster, Wire(cluster.hosts[0].s3_port), auth_line(cluster)

    def ask(self, method, key, *lines, body=b""):
        length = [f"Content-Length: {len(body)}"] if method == "PUT" else []
        self.wire.send(head(method, f"/{BUCKET}/{key}", self.auth, *length, *lines) + body)
        return self.wire.answer(method)

    def restore(self):
        expect(self.ask("PUT", "victim", body=b"victim"), 200)

    def check(self, what, marker):
        a = self.ask("GET", "victim")
        assert a.status == 200 and a.body == b"victim", f"{what}: the smuggled DELETE was executed: {a}"
        assert self.ask("HEAD", marker).status == 404, f"{what}: the smuggled PUT was executed"


def read_refusal(case, w, what):
    try:
        a = w.answer(case.method)
    except Closed:
        assert None in case.statuses, f"{what}: closed without an answer"
        return
    allowed = case.statuses + ((400,) if case.either else ())
    assert a.status in allowed, f"{what}: {a}, expected {allowed}"
    if case.code not in (None, "-") and not case.either:
        assert a.code() == case.code, f"{what}: {a}, expected {case.code}"
    if case.told:
        assert a.headers.get("connection") == "close", f"{what}: {a.headers}"
    assert w.is_closed() and w.data == b"", what


def read_taken(case, w, what, auth):
    """The answer, and that of a request behind it. False: refused, where that is allowed."""
    a = w.answer(case.method)
    while a.status == 100:
        a = w.answer(case.method)
    if case.either and a.status == 400:
        assert a.headers.get("connection") == "close" and w.is_closed(), what
        return False
    assert case.statuses[0] in (None, a.status), f"{what}: {a}, expected {case.statuses[0]}"
    assert not case.absent or case.absent not in a.headers, f"{what}: {a.headers}"
    if a.headers.get("connection") == "close":
        assert case.lags and "whole" not in what, f"{what}: the connection ends: {a}"
        assert w.is_closed() and w.data == b"", what
        return True
    w.send(head("GET", f"/{BUCKET}/next", auth))
    assert expect(w.answer(), 200).body == b"the next", what
    assert w.data == b"", f"{what}: bytes behind the last answer: {w.data[:200]!r}"
    return True


def send(w, data, pieces, turns):
    if not pieces:
        return w.send(data)
    at = 0
    while at < len(data):
        n = turns.choice((1, 1, 2, 3, 7, 40))
        w.send(data[at:at + n])
        at += n


def run_case(seen, case, mode, number, turns):
    what = f"{case.name} ({mode})"
    key, marker = f"target-{mode}-{number}", f"marker-{mode}-{number}"
    behind = mode == "behind"
    text = case.text.removesuffix("@S") if behind else case.text
    data = render(text, f"/{BUCKET}/{key}", seen.auth, marker).encode("latin-1")
    smuggled = render("@S", "", seen.auth, marker).encode("latin-1")
    stored = case.stored is not None
    with Wire(seen.cluster.hosts[0].s3_port, timeout=TIMEOUT_S) as w:
        try:
            send(w, data, mode == "pieces", turns)
            if case.end:
                w.sock.shutdown(1)
            if case.closes:
                if behind:
                    w.more()
                    w.send(smuggled)
                read_refusal(case, w, what)
            else:
                stored = read_taken(case, w, what, seen.auth) and stored
        except (TimeoutError, Closed) as e:
            raise AssertionError(f"{what}: {e!r}, behind {w.data[:200]!r}") from None
    seen.check(what, marker)
    a = seen.ask("GET", key)
    if stored:
        wanted = render(case.stored, "", seen.auth, marker).encode("latin-1")
        assert a.status == 200 and a.body == wanted, f"{what}: stored {a}, expected {wanted[:200]!r}"
    else:
        assert a.status == 404, f"{what}: something was stored: {a}"


def modes(case):
    """`behind`: the smuggled requests follow when the answer is there, as from a proxy that reuses its connection."""
    yield "whole"
    if len(case.text) <= PIECES_BYTES_MAX:
        yield "pieces"
    if case.closes and not case.end and case.stored is None and case.text.count("@S") == 1 and case.text.endswith("\r\n\r\n@S"):
        yield "behind"


def main():
    turns, runs = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 9112), 0
    names = [c.name for c in CASES]
    assert len(set(names)) == len(names), f"names twice: {sorted(n for n in names if names.count(n) > 1)}"
    with running("1 host") as cluster:
        cluster.make_bucket(BUCKET)
        seen = Seen(cluster)
        seen.restore()
        for key, body in (("one", b"one"), ("next", b"the next")):
            expect(seen.ask("PUT", key, body=body), 200)
        # The smuggled requests do what they say: else their absence would prove nothing.
        with Wire(cluster.hosts[0].s3_port) as w:
            w.send(render("@S", "", seen.auth, "marker").encode())
            expect(w.answer(), 204)
            expect(w.answer(), 200)
        assert seen.ask("HEAD", "marker").status == 200 and seen.ask("HEAD", "victim").status == 404
        seen.restore()
        faults, begun = [], time.monotonic()
        for number, case in enumerate(CASES):
            for mode in modes(case):
                if faults and time.monotonic() > begun + FAULTS_S:
                    break
                runs += 1
                try:
                    run_case(seen, case, mode, number, turns)
                except AssertionError as e:
                    faults.append(str(e))
                    seen.restore()
        assert not faults, f"{len(faults)} of {runs}:\n" + "\n".join(faults)
    refused = sum(c.closes for c in CASES)
    print(f"ok {len(CASES)} cases, sent in {runs} ways: {refused} end the connection, {len(CASES) - refused} are one request each")
    return 0


if __name__ == "__main__":
    sys.exit(main())
