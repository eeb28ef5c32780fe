"""linear.py: is the history of one key linearizable? (Wing and Gong's search, with Lowe's memory of dead ends)

A key is a register that holds a value or nothing (None). An operation is (start, end, kind, value, sure):

    write   sets `value` (None: a delete)
    create  sets `value` where the register holds nothing
    read    saw `value`
    exists  saw that there is something (a refused create)

Not `sure`: nobody knows whether it took effect; it may do so at any time after its start, or never.
"""
from typing import NamedTuple

FOREVER = float("inf")
STATES_MAX = 400_000


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
    if op.kind == "read":
        return state == op.value, state
    assert op.kind == "exists", op
    return state is not None, state


def relevant(ops):
    """Without the unsure writes of values that nobody saw, where nothing else could have noticed them."""
    if any(op.kind in ("exists", "create") for op in ops):
        return ops
    seen = {op.value for op in ops if op.kind == "read"}
    return [op for op in ops if op.sure or (op.value is not None and op.value in seen) or
            (op.value is None and None in seen)]


def linearizable(history, initial=None):
    """True or False; TooHard. Values of writes are unique (but for None)."""
    ops = sorted((op if op.sure else op._replace(end=FOREVER) for op in relevant(history)), key=lambda op: op.start)
    count = len(ops)
    sure = sum(1 << i for i, op in enumerate(ops) if op.sure)
    dead = set()
    stack = [(0, initial)]  # done operations as a bit set, the register
    while stack:
        state = stack.pop()
        if state in dead:
            continue
        dead.add(state)
        if len(dead) > STATES_MAX:
            raise TooHard(f"{count} operations")
        done, value = state
        if done & sure == sure:
            return True
        # An operation may come next if it began before every other that is still to come ended.
        limit, tried_delete = FOREVER, False
        for i, op in enumerate(ops):
            if op.start > limit:
                break
            if not done >> i & 1:
                limit = min(limit, op.end)
        for i, op in enumerate(ops):
            if op.start > limit:
                break
            if done >> i & 1:
                continue
            if not op.sure and op.value is None:  # unsure deletes that have begun are all the same
                if tried_delete or value is None:
                    continue
                tried_delete = True
            possible, after = _step(op, value)
            if possible:
                stack.append((done | 1 << i, after))
    return False


def _self_test():
    w = lambda s, e, v, sure=True: Op(s, e, "write", v, sure)  # noqa: E731
    r = lambda s, e, v: Op(s, e, "read", v)  # noqa: E731
    good = [
        [w(0, 1, "a"), r(2, 3, "a")],
        [w(0, 5, "a"), r(1, 2, None), r(3, 4, "a")],
        [w(0, 1, "a", False), r(2, 3, None), r(4, 5, "a")],
        [w(0, 1, "a", False), r(2, 3, None), r(4, 5, None)],
        [w(0, 1, "a"), w(2, 3, None, False), r(4, 5, "a"), r(6, 7, None)],
        [Op(0, 5, "create", "a"), Op(1, 4, "exists", None), r(6, 7, "a")],
        [w(0, 9, "a"), w(0, 9, "b"), r(1, 2, "b"), r(3, 4, "a")],
    ]
    bad = [
        [w(0, 1, "a"), r(2, 3, None)],
        [w(0, 1, "a"), w(2, 3, "b"), r(4, 5, "a")],
        [w(0, 5, "a"), r(1, 2, "a"), r(3, 4, None)],
        [w(0, 1, "a", False), r(2, 3, "a"), r(4, 5, None)],
        [Op(0, 1, "create", "a"), Op(2, 3, "create", "b")],
        [Op(0, 1, "exists", None), Op(2, 3, "create", "b")],
        [w(0, 1, "a", False), w(2, 3, "b"), r(4, 5, "a"), r(6, 7, "b")],
    ]
    for ops in good:
        assert linearizable(ops), ops
    for ops in bad:
        assert not linearizable(ops), ops


_self_test()
