"""Fingerprints: equal for the same work in every process, other for other work."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import weft
from weft.graph.builder import Graph, gather
from weft.graph.fingerprint import fingerprint
from weft.graph.logical import Manager, Range
from weft.model.resources import Resources

SOURCE = Path(weft.__file__).parents[1]
ROOT = Path(__file__).parents[3]


def read(item):
    return item


def build(n=4, step=1, **fields):
    graph = Graph("daily")
    maps = graph.map(read, range(n), name="maps", params={"step": step, "of": {"a": [1, 2]}})
    graph.add(lambda parts: parts, gather(maps), name="all", **fields)
    return graph


def test_width_items_and_resources_do_not_count():
    assert fingerprint(build()) == fingerprint(build(n=9, resources=Resources(gpu=1)))


@pytest.mark.parametrize("other", [{"step": 2}, {"manager": Manager("shuffle")}])
def test_parameters_and_managers_count(other):
    assert fingerprint(build()) != fingerprint(build(**other))


def test_shape_and_program_count():
    graph = build()
    graph.add(read, name="more", n=Range(1, 2))
    assert fingerprint(graph) != fingerprint(build())
    one, two = Graph("g"), Graph("g")
    one.task(read, name="a")
    two.task(build, name="a")
    assert fingerprint(one) != fingerprint(two)


def test_the_order_of_building_does_not_count():
    one, two = Graph("g"), Graph("g")
    for name in "ab":
        one.task(read, name=name)
    for name in "ba":
        two.task(read, name=name)
    assert fingerprint(one) == fingerprint(two)


def test_what_is_called_counts_by_name_wherever_it_lies():
    one, two = Graph("g"), Graph("g")
    one.task(partial(read, 1), name="a")
    two.task(read, name="a")
    assert fingerprint(one) == fingerprint(two)


def test_another_process_gives_the_same():
    code = "from tests.unit.graph.test_fingerprint import build, fingerprint; print(fingerprint(build()))"
    env = {"PYTHONPATH": f"{SOURCE}:{ROOT}", "PYTHONHASHSEED": "7"}
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True, timeout=180)
    assert done.stdout.strip() == fingerprint(build())
