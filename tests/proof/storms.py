"""storms.py: many clients at once for one key, through all gateways of six 4+2 hosts.

One object: 64 clients PUT each of 1,000 new keys with `If-None-Match: *` at the same moment, and try again after 409 and
503. A violation would be: two clients with 200, a client with 200 whose bytes are not what every gateway then returns, a
412 for a key that then has no object, no winner at all.

Counting: 32 clients make 200 steps each on one key, by GET and PUT with `If-Match`, while hosts are killed (`kill -9`) and
start again. A violation would be: a step that was acknowledged and is not in the final value, one that is in it twice, or
one that nobody made. Steps have names, so that an answer that never came is resolved exactly (races.py).

That it can fail: with `--break-promises` (the test build skips the promise round) the first storm finds several winners;
with `--break-counting` clients write without their If-Match, and acknowledged steps are lost.
"""
import os
import random
import signal
import sys
import time

import suite
from suite import say

import races
from cluster import Cluster

BUCKET = "storms"
RACERS, KEYS, KEYS_SHORT = 64, 1000, 60
COUNTERS, STEPS, STEPS_SHORT = 32, 200, 8
STEP_S = 300  # one client may have to wait for all others
SAY_EVERY_S = 20


class Heedless(races.Client):
    """A client that forgets its conditions."""

    def send(self, method, key, body=None, headers=None):
        super().send(method, key, body, None)


def one_object(c, keys, seed):
    said = [time.monotonic()]

    def progress(done, race):
        if time.monotonic() > said[0] + SAY_EVERY_S:
            said[0] = time.monotonic()
            say(f"{done} of {keys} keys, answers {race.answers}")

    wrong, race = races.race(c, BUCKET, RACERS, [f"key{i:04}" for i in range(keys)], seed, progress=progress)
    assert not wrong, f"{len(wrong)} of {keys} keys: {wrong[:5]}"
    assert race.answers[200] + race.without == keys, f"{race.answers}, {race.without} keys without a 200"
    assert race.answers[412] >= keys * (RACERS - 1) * 9 // 10, f"that was no race: {race.answers}"
    say(f"ok: {keys} keys have one winner each; answers {race.answers}, {race.without} winners were told 503")
    return race


def kill_one(c, rng):
    host = rng.choice(c.hosts)
    host.kill(signal.SIGKILL)
    time.sleep(rng.choice([0, 0.2, 0.8]))
    host.start()
    time.sleep(rng.uniform(0.3, 1.5))
    assert host.alive(), f"{host.id} ended by itself with {host.process.returncode}:\n{host.log_text()[-3000:]}"


def counting(c, steps, seed):
    """(tries, unknown outcomes, kills)"""
    rng, kills = random.Random(f"{seed}/counting"), 0
    a = c.put(BUCKET, "counter", b"[]")
    assert a.status == 200, a
    clients = [races.Counting(c, BUCKET, i, ["counter"], steps, STEP_S) for i in range(COUNTERS)]
    for t in clients:
        t.start()
    said = time.monotonic()
    while any(t.is_alive() for t in clients):
        kill_one(c, rng)
        kills += 1
        errors = [t.error for t in clients if t.error]
        if errors:
            raise errors[0]
        if time.monotonic() > said + SAY_EVERY_S:
            said = time.monotonic()
            say(f"{sum(len(t.told) for t in clients)} of {COUNTERS * steps} steps, {kills} kills")
    c.wait_ready()
    errors = [t.error for t in clients if t.error]
    if errors:
        raise errors[0]
    told = [step for t in clients for step in t.told]
    assert len(told) == COUNTERS * steps, len(told)
    races.check_counters(c, BUCKET, ["counter"], told)
    assert kills > 2, f"{kills} kills prove nothing"
    tries, unknown = sum(t.tries for t in clients), sum(t.unknown for t in clients)
    say(f"ok: {len(told)} steps under {kills} kills, {tries} tries, {unknown} unknown outcomes: each step is there once")
    return tries, unknown, kills


def run(arguments, directory):
    binary = os.environ.get("KOFN_BIN")
    if arguments.break_promises:
        os.environ["KOFN_TEST_SKIP_PROMISE"] = "1"
        binary = os.environ["KOFN_SWITCHES_BIN"]
    keys, steps = (KEYS_SHORT, STEPS_SHORT) if arguments.short else (KEYS, STEPS)
    with Cluster(directory, hosts=6, pool="4+2", binary=binary, server="peer_timeout: 5s\nworkers: 2") as c:
        c.start()
        c.make_bucket(BUCKET)
        began = time.monotonic()
        race = one_object(c, keys, arguments.seed)
        raced, began = time.monotonic() - began, time.monotonic()
        if arguments.break_counting:
            races.Client = Heedless
        tries, unknown, kills = counting(c, steps, arguments.seed)
        counted = time.monotonic() - began
    answers = ", ".join(f"{n:,} x {status}" for status, n in race.answers.items() if n)
    return (f"{RACERS} racers for each of {keys:,} keys with If-None-Match over six gateways; {COUNTERS} clients x {steps} steps "
            f"on one key with If-Match under {kills} x `kill -9`",
            f"race: {answers}, {race.without} winners told 503, {raced:.0f} s; final value exactly {COUNTERS * steps:,}, "
            f"{tries:,} tries, {unknown} unknown outcomes, {counted:.0f} s")


def more(parser):
    parser.add_argument("--break-promises", action="store_true", help="must fail: KOFN_TEST_SKIP_PROMISE")
    parser.add_argument("--break-counting", action="store_true", help="must fail: no If-Match")


if __name__ == "__main__":
    sys.exit(suite.main("storms", __doc__, run, more))
