"""linear.py: is the history of one key linearizable? (Wing and Gong's search, with Lowe's memory of dead ends)

A key is a register that holds a value or nothing (None). An operation is (start, end, kind, value, sure):

    write    sets `value` (None: a delete)
    create   sets `value` where the register holds nothing
    swap     sets `value[1]` where the register holds `value[0]`
    read     saw `value`
    exists   saw that there is something (a refused create)
    differs  saw that there is something, and not `value` (a refused swap)

Not `sure`: nobody knows whether it took effect; it may do so at any time after its start, or never.
"""
from typing import NamedTuple

FOREVER = float("inf")
STATES_MAX = 400_000
UNSEEN = "(a value that nobody saw)"
LOOKS = ("read", "exists", "differs")


class Op(NamedTuple):
    start: float
    end: float
    kind: str
    value: object
    sure: bool = True


class TooHard(Exception):
    """The search was given up: neither good nor bad."""


def _step(op, state):
    """(the operation is possible in this state, the state behind it)"""
    if op.kind == "write":
        return True, op.value
    if op.kind == "create":
        return state is None, op.value
    if op.kind == "swap":
        return state == op.value[0] and state is not None, op.value[1]
    if op.kind == "read":
        return state == op.value, state
    if op.kind == "differs":
        return state is not None and state != op.value, state
    assert op.kind == "exists", op
    return state is not None, state


def relevant(ops):
    """The same history with one name for all values that nobody saw, and without the unsure writes of such values where
    nothing else could have noticed them."""
    seen = {op.value for op in ops if op.kind in ("read", "differs")} | {op.value[0] for op in ops if op.kind == "swap"}
    noticed = any(op.kind in ("exists", "create", "differs") for op in ops)
    out = []
    for op in ops:
        after = op.value[1] if op.kind == "swap" else op.value
        if op.kind in ("write", "create", "swap") and after not in seen and (after is not None or not noticed):
            if not op.sure and not noticed:
                continue
            if after is not None:
                op = op._replace(value=(op.value[0], UNSEEN) if op.kind == "swap" else UNSEEN)
        out.append(op)
    return out


def _covered(dead, state, unsure):
    """Whether a state like this one with fewer unsure operations spent was tried before; notes it otherwise."""
    known = dead.setdefault(state, [])
    if any(spent & unsure == spent for spent in known):
        return True
    known[:] = [spent for spent in known if spent & unsure != unsure]
    known.append(unsure)
    return False


def _next(ops, done, value):
    """The operations that may come next, each with the value behind it. An operation may come next if it began before
    every other that is still to come ended. One that only looks, and likes what it sees, may as well come now."""
    limit, open_ops = FOREVER, []
    for i, op in enumerate(ops):
        if op.start > limit:
            break
        if not done >> i & 1:
            limit = min(limit, op.end)
            open_ops.append((i, op))
    found, tried = [], set()
    for i, op in open_ops:
        if op.start > limit:
            break
        if not op.sure:  # what does the same and has begun is the same
            if (op.kind, op.value) in tried or (op.kind == "write" and op.value == value):
                continue
            tried.add((op.kind, op.value))
        possible, after = _step(op, value)
        if possible and op.kind in LOOKS:
            return [(i, after)]
        if possible:
            found.append((i, after))
    return found


def linearizable(history, initial=None):
    """True or False; TooHard. Values of writes are unique (but for None)."""
    ops = sorted((op if op.sure else op._replace(end=FOREVER) for op in relevant(history)), key=lambda op: op.start)
    sure = sum(1 << i for i, op in enumerate(ops) if op.sure)
    dead, count = {}, 0
    stack = [(0, initial)]  # done operations as a bit set, the register
    while stack:
        done, value = stack.pop()
        if done & sure == sure:
            return True
        if _covered(dead, (done & sure, value), done & ~sure):
            continue
        count += 1
        if count > STATES_MAX:
            raise TooHard(f"{len(ops)} operations")
        stack += [(done | 1 << i, after) for i, after in _next(ops, done, value)]
    return False


def _self_test():
    w = lambda s, e, v, sure=True: Op(s, e, "write", v, sure)  # noqa: E731
    r = lambda s, e, v: Op(s, e, "read", v)  # noqa: E731
    s = lambda s, e, old, new, sure=True: Op(s, e, "swap", (old, new), sure)  # noqa: E731
    d = lambda s, e, v: Op(s, e, "differs", v)  # noqa: E731
    good = [
        [w(0, 1, "a"), r(2, 3, "a")],
        [w(0, 5, "a"), r(1, 2, None), r(3, 4, "a")],
        [w(0, 1, "a", False), r(2, 3, None), r(4, 5, "a")],
        [w(0, 1, "a", False), r(2, 3, None), r(4, 5, None)],
        [w(0, 1, "a"), w(2, 3, None, False), r(4, 5, "a"), r(6, 7, None)],
        [Op(0, 5, "create", "a"), Op(1, 4, "exists", None), r(6, 7, "a")],
        [w(0, 9, "a"), w(0, 9, "b"), r(1, 2, "b"), r(3, 4, "a")],
        [w(0, 1, "a"), s(2, 9, "a", "b"), r(3, 4, "a"), r(5, 6, "b"), d(7, 8, "a")],
        [w(0, 1, "a"), s(2, 3, "a", "b", False), r(4, 5, "a"), r(6, 7, "b"), w(8, 9, None), r(10, 11, None)],
        [w(0, 1, "a"), w(2, 3, "b", False), w(2, 3, "c", False), d(4, 5, "a"), r(6, 7, "c")],
        [Op(0, 1, "create", "a", False), Op(2, 3, "exists", None), w(4, 5, None), Op(6, 7, "create", "b")],
    ]
    bad = [
        [w(0, 1, "a"), r(2, 3, None)],
        [w(0, 1, "a"), w(2, 3, "b"), r(4, 5, "a")],
        [w(0, 5, "a"), r(1, 2, "a"), r(3, 4, None)],
        [w(0, 1, "a", False), r(2, 3, "a"), r(4, 5, None)],
        [Op(0, 1, "create", "a"), Op(2, 3, "create", "b")],
        [Op(0, 1, "exists", None), Op(2, 3, "create", "b")],
        [w(0, 1, "a", False), w(2, 3, "b"), r(4, 5, "a"), r(6, 7, "b")],
        [w(0, 1, "a"), s(2, 3, "a", "b"), s(4, 5, "a", "c")],
        [w(0, 1, "a"), s(2, 3, "a", "b"), r(4, 5, "a")],
        [w(0, 1, "a"), s(2, 3, "a", "b", False), s(4, 5, "a", "c"), r(6, 7, "b")],
        [w(0, 1, "a"), d(2, 3, "a")],
        [w(0, 1, None), d(2, 3, "a")],
        [w(0, 1, "a", False), w(2, 3, None), Op(4, 5, "exists", None), r(6, 7, None), Op(8, 9, "exists", None)],
    ]
    for ops in good:
        assert linearizable(ops), ops
    for ops in bad:
        assert not linearizable(ops), ops


_self_test()
