"""Functions that tests of runs map over items, and runs of them."""

import time

import weft

DEADLINE_S = 180.0


def double(value):
    return 2 * value


def three_fails(value):
    if value == 3:
        raise ValueError("three")
    return value


def waits_for(path):
    limit = time.monotonic() + DEADLINE_S
    while not path.exists():
        assert time.monotonic() < limit
        time.sleep(0.002)
    return path.name


def begin(session, fn, items, **options):
    """Submit a graph with a task `tasks` for each item."""
    graph = weft.Graph(options.pop("graph", "job"), **options)
    graph.map(fn, items, name="tasks")
    return session.submit(graph)
