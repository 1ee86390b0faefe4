"""A worker process that can read nothing: others do its work, and what it could not read is left alone."""

import resource
import sys

import pytest

import weft
from weft.graph.builder import Graph, after, gather

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits the open files of a process")
TIMEOUT_S = 180.0
WIDE = 1 << 17
"""Bytes that travel in a file of their own."""


def spoil(number):
    """Have this process open no files any more."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    return number


def write(number):
    return bytes([number]) * WIDE


def read(_, values):
    return sum(value[0] for value in values)


def test_a_process_that_cannot_read_is_avoided_and_its_inputs_are_not_made_again():
    g = Graph("unreadable")
    written = g.map(write, range(8), name="write")
    spoiled = g.map(spoil, [1], after(written), name="spoil")
    numbers = g.map(read, range(200), gather(written), after(spoiled), name="read", timeout_s=TIMEOUT_S)
    total = g.add(sum, gather(numbers), name="total", keep=True)
    with weft.Session("processes", workers=3, backups=False) as session:
        run = session.submit(g)
        assert run.result(TIMEOUT_S).value(total) == 200 * sum(range(8))
        told = "\n".join(run.explain())
    assert "avoided for 60 s: 4 tasks failed there, 0 on another worker" in told
    assert "outputs of" not in told, "what others can read is not made again"
