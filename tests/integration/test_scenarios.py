"""Every file of examples/scenarios runs as its page says, on threads, on processes and on the simulator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from weft.graph.builder import Graph, gather, shuffle
from weft.policies.bubbles import apply_cut, batch, cost, efficient, gang, greedy
from weft.wiring import Session

FOLDER = Path(__file__).parents[2] / "examples" / "scenarios"
TIMEOUT_S = 180.0

SAYS = {
    "dynamic_parallelism": ["readers: 10000000", "1 to 500 tasks, by shuffle  1 task", "bytes in 500 partitions"],
    "skew": ["1 to 64 tasks, by shuffle  16 tasks", "regrouped for 16 tasks"],
    "pruning": ["matches: 3000", "1,000 tasks, by pruning  3 tasks", "'keys' of customers: 3"],
    "limit": ["limit: [0, 0, 2, 2, 4]", " of 4,000 tasks, ended early", "6 rows of 5 wanted"],
    "conditional_join": [
        "rows: 3200",
        "0 of 1 task, ended early",
        "copied or shuffled      copied",
        "are small: copied",
    ],
    "parameter_server": [
        "order only, concurrent",
        "server.bubble: asks for 3 slots at once",
        "last consumer has ended",
    ],
    "bubble": ["smallest: [0, 2, 4, 6, 8]", "numbers, even", "shuffle of 1, local"],
    "control_vertex": [
        "train: ['1 T4', '1 T4']",
        "steer/dry-run         (added by steer)                      1 task",
        "train            1 to 4 tasks                          2 tasks",
        "gpu 1 of type T4 or cpu 1, gpu 2 of type T4 (seen: a dry run: gpu_memory 6e+09, gpu_busy 0.2)",
        "(seen: 1 earlier runs: gpu_memory 6e+09",
        "evaluate: control vertex steer decides: 1 task (seen: 6 losses, the last 0.167)",
    ],
    "straggler": ["total: 780", ": backup on worker", "s are usual"],
    "kmeans": ["fit/centres: (9, [(12.42, 16.69), (16.66, 23.15)])", "fit/sums-9", "(added by fit)"],
    "patch": ["plan/round-4", "(added by plan)", "plan: patch: 4 vertices, 4 edges added"],
}


def test_every_scenario_is_run_and_explained() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} - {"show"} == set(SAYS)
    page = (FOLDER.parents[1] / "docs" / "dynamic-graphs.md").read_text(encoding="utf-8")
    assert not [name for name in SAYS if f"`{name}.py`" not in page]


@pytest.mark.parametrize("backend", ["threads", "processes", "simulator"])
@pytest.mark.parametrize("name", SAYS)
def test_a_scenario_says_what_was_planned_and_executed(name: str, backend: str) -> None:
    argv = [sys.executable, str(FOLDER / f"{name}.py"), "--backend", backend]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert ": succeeded" in done.stdout
    twice = backend != "simulator"  # bodies take no virtual time: none is late
    for words in SAYS[name] if twice or name != "straggler" else SAYS[name][:1]:
        assert words in done.stdout, done.stdout


def test_a_bubble_streams_where_workers_share_memory() -> None:
    argv = [sys.executable, str(FOLDER / "bubble.py"), "--backend", "threads"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    (edge,) = [line for line in done.stdout.splitlines() if line.startswith("  numbers->even")]
    assert edge.count("concurrent, ephemeral") == 2


def pieces(number: int) -> list[list[int]]:
    return [[number * 10 + part] for part in range(3)]


def merge(parts: list[list[int]]) -> list[int]:
    return sorted(number for part in parts for number in part)


def pair(left: list[int], right: list[int]) -> list[tuple[int, int]]:
    return list(zip(left, right, strict=True))


def diamond() -> Graph:
    graph = Graph("diamond")
    merged = graph.add(merge, shuffle(graph.map(pieces, range(4), name="pieces"), 3), name="merged")
    pairs = graph.add(pair, merged, graph.add(list, merged, name="copied"), name="pairs")
    graph.add(list, gather(pairs), name="answer")
    return graph


@pytest.mark.parametrize("backend", ["threads", "processes", "simulator"])
def test_every_cut_gives_the_same_answer(backend: str) -> None:
    graph = diamond()
    cuts = {batch(graph), gang(graph), greedy(graph, 8), efficient(graph, 100), cost(graph, 16)}
    assert len(cuts) >= 3
    with Session(backend=backend, workers=16) as session:
        wanted = session.run(diamond(), timeout_s=TIMEOUT_S).value("answer")
        for cut in cuts:
            assert session.run(apply_cut(diamond(), cut), timeout_s=TIMEOUT_S).value("answer") == wanted
