"""Nodes killed at random moments: every kind of program gives the results that it gives without, and leaves nothing.

A test has one seed, from which all its kills follow; `make soak` has many more kills. The protocol between sessions and
nodes is tried more widely, and more cheaply, by `tests.simulation.clusters`.
"""

import os
import random
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import psutil
import pytest
from msgspec.structs import replace

import weft
import weft.tensor as wt
from tests.forked_nodes import ForkedNodes
from tests.integration.node_tasks import (
    asks,
    double,
    doubled,
    serves_squares,
    slow_row,
    slow_sum,
    streamed,
    summed,
    totals,
)
from tests.integration.places import DEADLINE_S, Project, until
from tests.started import have_ended
from weft import Graph, Storage, gather, one_to_one, shuffle, wiring
from weft.backends.cluster import Cluster
from weft.runs.service import RunService
from weft.store.folders import shm_root, user_root
from weft.wiring import concrete, load_pipeline

SOAK = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
KILLS = 250 if SOAK else 4
"""The kills of each program."""


class KilledNodes(ForkedNodes):
    """Three nodes, of the sessions "cluster". Behind the block nothing is left of those that were killed."""

    def __init__(self, monkeypatch, workers):
        super().__init__(3, workers)
        monkeypatch.setitem(concrete.BACKENDS, "cluster", self._backend)
        self._below = []
        self._killed = []

    def _backend(self, place):
        return Cluster(self.nodes, self.secret, place.store, grace_s=place.grace_s)

    def __enter__(self):
        return self

    def kill_one(self, rng):
        """Kill a node, if it has not ended already."""
        victim = rng.choice(self.processes)
        with suppress(psutil.NoSuchProcess):
            self._below += psutil.Process(victim.pid).children(recursive=True)
        self._killed.append(victim)
        victim.kill()

    def __exit__(self, *_):
        super().__exit__()
        until(lambda: have_ended(*self._below), "the end of the processes of a killed node")
        for victim in self._killed:
            until(partial(_is_removed, victim.pid), "the end of the shared memory of a killed node")


def _has_finished(run, tasks):
    return run.done or sum(row.finished for row in run.view().vertices) >= tasks


def _is_removed(pid):
    return not list(user_root(shm_root()).glob(f"node-{pid}-*"))


def graph_of_doubles():
    graph = Graph("after")
    graph.map(double, range(100))
    return graph


def sums_of_a_shuffle(session):
    graph = Graph("shuffle")
    sums = graph.add(summed, shuffle(graph.map(slow_row, range(40))), n=8)
    total = graph.add(sum, gather(sums)).keep()
    return graph, lambda results: results.value(total)


def totals_of_streams(session):
    """A gang of two writers and their readers. One writer is done long before its reader."""
    graph = Graph("gang")
    source = graph.task(streamed, n=2, name="source", params={"n": 12})
    edge = one_to_one(source, name="blocks", concurrent=True, storage=Storage.EPHEMERAL)
    sink = graph.task(totals, edge, n=2, name="sink").keep()
    graph.bubble(source, sink)
    return graph, lambda results: results[sink]


def wanted_of_streams():
    return [sum(range(12)), 12_000 + sum(range(12))]


def answers_of_a_service(session):
    """A gang around a service: one asks it, one adds up what that streams, one waits for the sum."""
    graph = Graph("service")
    service = graph.service(serves_squares, n=1, name="squares")
    source = graph.task(asks, service, name="asks")
    blocks = one_to_one(source, name="blocks", concurrent=True, storage=Storage.EPHEMERAL)
    total = graph.task(totals, blocks, name="total")
    last = graph.task(doubled, gather(total, name="totals", concurrent=True), name="last").keep()
    graph.bubble(service, source, total, last)
    return graph, lambda results: results.value(last)


@pytest.mark.parametrize(
    ("build", "wanted", "steps"),
    [
        (sums_of_a_shuffle, lambda: sum(20_000.0 * (100 * x + p) for x in range(40) for p in range(8)), 48),
        (totals_of_streams, wanted_of_streams, 4),
        (answers_of_a_service, lambda: [2.0 * sum(x * x for x in range(30))], 3),
    ],
)
def test_graphs(monkeypatch, seed, build, wanted, steps):
    """What is gone with a node is made again at the others: rows of a shuffle, blocks of streams, a service."""
    rng = random.Random(seed)
    for kill in range(KILLS):
        with KilledNodes(monkeypatch, 2) as nodes, weft.Session("cluster") as session:
            graph, read = build(session)
            run = session.submit(graph)
            after, pause = rng.randrange(steps), rng.random() * 0.1
            until(partial(_has_finished, run, after))
            time.sleep(pause)
            nodes.kill_one(rng)
            assert read(run.result(DEADLINE_S)) == wanted(), f"seed {seed}: kill {kill}"
            session.run(graph_of_doubles())


def test_a_tensor_program(monkeypatch, seed):
    rng = random.Random(seed)
    for kill in range(KILLS // 2):
        with KilledNodes(monkeypatch, 1) as nodes, wt.Session(backend="cluster") as session:
            x = wt.ones((2000, 500), chunk_size=(100, 500)).rechunk((2000, 50))
            y = wt.map_chunk(x + x.sum(axis=0), slow_sum, dtype=np.float64)
            killer = threading.Timer(rng.random() * 0.6, nodes.kill_one, [rng])
            killer.start()
            assert float(y.sum().execute(session)) == 2001.0 * 2000 * 500, f"seed {seed}: kill {kill}"
            killer.join()


def test_a_join(monkeypatch, seed, tmp_path):
    rng = random.Random(seed)
    for name, rows in (("facts", 200_000), ("keys", 20_000)):
        text = f"SELECT i % 20000 AS k, i AS v FROM range({rows}) t(i)"
        duckdb.execute(f"COPY ({text}) TO '{tmp_path}/{name}.parquet' (FORMAT parquet, ROW_GROUP_SIZE 5000)")
    text = "SELECT k % 10 AS g, count(*), sum(facts.v + keys.v) FROM facts JOIN keys USING (k) GROUP BY g ORDER BY g"
    wanted = [(g, 20_000, sum(v + v % 20_000 for v in range(200_000) if v % 10 == g)) for g in range(10)]
    for kill in range(KILLS // 2):
        with KilledNodes(monkeypatch, 1) as nodes, weft.SqlContext(backend="cluster", mode="stages") as context:
            for name in ("facts", "keys"):
                context.register(name, f"{tmp_path}/{name}.parquet")
            assert context.sql("SELECT count(*) FROM keys").rows() == [(20_000,)]  # the session is open
            killer = threading.Timer(rng.random() * 0.6, nodes.kill_one, [rng])
            killer.start()
            assert context.sql(text).rows() == wanted, f"seed {seed}: kill {kill}"
            killer.join()


STEPS = 4
PIPELINE = {
    **{
        f"s{n}": {
            "command": f"echo {n} >> ran; sleep 0.0{n}; echo {n} > {{{{out}}}}; sleep 0.0{n}; echo end >> {{{{out}}}}",
            "artifacts": {"output": ["out"]},
        }
        for n in range(STEPS)
    },
    "all": {
        "command": "echo all >> ran; cat " + " ".join(f"{{{{i{n}}}}}" for n in range(STEPS)) + " > {{out}}",
        "deps": ",".join(f"s{n}" for n in range(STEPS)),
        "artifacts": {"input": {f"i{n}": f"{{{{s{n}.out}}}}" for n in range(STEPS)}, "output": ["out"]},
    },
}


def run_pipeline(project, backend, meanwhile):
    settings = replace(project.settings, backend=backend)
    with RunService(wiring, settings, project.root) as service:
        run = service.submit(load_pipeline(str(project.file)))
        meanwhile()
        return run.result()


def test_a_pipeline(monkeypatch, seed, tmp_path):
    """Its steps end at other nodes; what the cache has afterwards is whole."""
    rng = random.Random(seed)

    def kill_after(nodes, pause):
        time.sleep(pause)
        nodes.kill_one(rng)

    for kill in range(KILLS):
        project = Project(tmp_path / f"p{kill}")
        project.write(PIPELINE, cache={"enable": True})
        about = f"seed {seed}: kill {kill}"
        with KilledNodes(monkeypatch, 1) as nodes:
            pause = rng.random() * 0.4
            result = run_pipeline(project, "cluster", partial(kill_after, nodes, pause))
            assert result.error is None, about
            assert result.state == "succeeded", about
        wanted = "".join(f"{n}\nend\n" for n in range(STEPS))
        assert Path(result.outputs["all.out"]).read_text() == wanted, about
        ran = (project.folder / "ran").read_text()
        assert {*ran.split()} == {"all", *map(str, range(STEPS))}, about
        again = run_pipeline(project, "threads", lambda: None)
        assert Path(again.outputs["all.out"]).read_text() == wanted, about
        assert (project.folder / "ran").read_text() == ran, about
