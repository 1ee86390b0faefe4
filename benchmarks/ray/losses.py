"""A shuffle at four nodes of a Ray cluster, one of which is killed half way, and the same undisturbed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import weft
from benchmarks.harness import expect, timed
from benchmarks.ray import cluster

if TYPE_CHECKING:
    from collections.abc import Callable

NODES = 4
TASKS = 200
WAITING_S = 0.08
"""Tasks of both stages wait so long and compute little: four nodes are then four on a machine of any size."""


def _pieces(index: int) -> list[Any]:
    time.sleep(WAITING_S)
    return [np.full(1000, float(index))] * TASKS


def _total(pieces: Sequence[Any]) -> float:
    time.sleep(WAITING_S)
    return float(sum(piece[0] for piece in pieces))


def _shuffle(losses: int) -> dict[str, float]:
    machines = cluster.machines(NODES)
    while len(machines.list_all_nodes()) < NODES:
        cluster.add(machines)
    os.environ["RAY_ADDRESS"] = machines.address
    with weft.Session("ray") as session:
        graph = weft.Graph()
        made = graph.add(_total, weft.shuffle(graph.map(_pieces, range(TASKS)), TASKS))

        def kill(run: weft.Run) -> None:
            while sum(row.finished for row in run.view().vertices) < TASKS and not run.done:
                time.sleep(0.01)
            for _ in range(losses):
                machines.remove_node(machines.list_all_nodes()[-1], allow_graceful=False)

        def run() -> list[float]:
            submitted = session.submit(graph)
            killer = threading.Thread(target=kill, args=(submitted,))
            killer.start()
            found = submitted.result()[made]
            killer.join()
            return found

        return timed(run, lambda found: expect(found, [float(sum(range(TASKS)))] * TASKS))


CASES: Mapping[str, Callable[[], dict[str, float]]] = {
    "undisturbed": partial(_shuffle, 0),
    "killed": partial(_shuffle, 1),
}
