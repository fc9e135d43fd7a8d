"""Processes that use one cache at once, of which one is killed.

    python -m tests.cache.crowd FOLDER FIRST_ROUND ROUNDS SEED

Each process asks for the same plans in an order of its own; a plan that is not there is "made"
from its number, which takes a while.  Between them it keeps large entries that nobody else asks
for, and so nobody mends.  It ends with status 0 if every plan was right and no entry was found
altered, which a part of one would be.
"""

import dataclasses
import functools
import logging
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import dnnc
from dnnc import target
from dnnc.cache import place, plans
from dnnc.options import Options
from tests.plan.plans import WHOLE

PROCESSES = 16
PLANS = 24
# Seconds in which the killed one may be anywhere in its work.
SPAN = 0.25
# Entries of one process alone, large enough to be killed while they are written.
OWN = bytes(1_500_000)


def graph(number):
    g = dnnc.pygraph(f"plan{number}", io_data_type="FLOAT", intermediate_data_type="FLOAT")
    g.exp(g.tensor([3, 1 + number])).set_output()
    return g.graph.finalize()


@functools.cache
def plan(number):
    """A plan as a compilation would give it: a number always gives one plan, small or large."""
    blobs = tuple(random.Random(4 * number + i).randbytes(40_000 * (number % 4)) for i in range(4))
    return dataclasses.replace(WHOLE, name=f"plan{number}", blobs=blobs)


@functools.cache
def file(number):
    return plan(number).serialize()


def use_all(settings, graphs, seed):
    """Status 0 if every plan that the cache gives is right, and no entry is altered."""
    draw = random.Random(seed)
    warnings = []
    logging.getLogger("dnnc.cache.disk").addFilter(lambda record: warnings.append(record) or False)
    store = settings.disk()

    def make(number):
        time.sleep(draw.uniform(0, 0.002))
        return file(number), plan(number)

    for number in draw.sample(list(graphs), len(graphs)):
        row = target.rows_of("sm_80")
        found = plans.kept_or_made(graphs[number], row, Options(), store, lambda n=number: make(n))
        if found != plan(number):
            return 1
        if number % 4 == 0:
            store.put(f"cubin-{draw.random()}", OWN)
    return 2 if warnings else 0


def run(settings, graphs, draw):
    """(statuses of the children, the one that was killed)."""
    children = []
    for _ in range(PROCESSES):
        seed = draw.random()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = use_all(settings, graphs, seed)
            finally:
                os._exit(status)
        children.append(child)
    victim = draw.choice(children)
    time.sleep(draw.uniform(0, SPAN))
    os.kill(victim, signal.SIGKILL)  # one that ended already is not yet waited for
    statuses = {child: os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children}
    return statuses, victim


def strange_files(settings):
    """Files of the folder that are no whole entry."""
    store = settings.disk()
    altered = {entry.path for entry in store.verify()}
    whole = {entry.path for entry in store.entries()} - altered
    return [path for path in Path(settings.directory).rglob("*") if path.is_file()
            and path not in whole] + sorted(altered)  # fmt: skip


def main(folder, first, rounds, seed):
    draw = random.Random(seed)
    was_killed = 0
    graphs = {number: graph(number) for number in range(PLANS)}
    for number in graphs:
        file(number)  # once, and not in every child
    for turn in range(first, first + rounds):
        # By turns all is kept, or entries are dropped while others use them.
        settings = place.Settings(f"{folder}/{turn}", (1 << 30, 1 << 24)[turn % 2])
        statuses, victim = run(settings, graphs, draw)
        was_killed += statuses.pop(victim) == -signal.SIGKILL
        assert set(statuses.values()) == {0}, f"round {turn}: {statuses}"
        strange = strange_files(settings)
        assert strange == [], f"round {turn}: {strange}"
        # What the killed one left undone is done by the next.
        assert use_all(settings, graphs, draw.random()) == 0
        shutil.rmtree(settings.directory)
    print(was_killed)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
