"""Vertex managers in real sessions: the same graphs on threads and on processes."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration import own_managers
from weft.engine.policy import REGISTERED, register_manager
from weft.graph.builder import Graph, after, gather, one_to_one, shuffle
from weft.graph.logical import Manager, Range, Source, Trigger
from weft.model.errors import GraphError, TaskError
from weft.wiring import Session

TIMEOUT_S = 180.0


@pytest.fixture(scope="module", params=["threads", "processes"])
def session(request: Any) -> Iterator[Session]:
    with Session(backend=request.param, workers=2) as opened:
        yield opened


def pieces(number: int) -> list[bytes]:
    return [b"x" * (1 + number % 3) for _ in range(50)]


def total(parts: list[bytes]) -> int:
    return sum(map(len, parts))


def two_rows(number: int) -> list[int]:
    return [number] * 2


def first_five(parts: list[list[int]]) -> list[int]:
    return [row for part in parts for row in part][:5]


def say_keys(ctx: Any, inputs: Any) -> None:
    ctx.emit("keys", [1, 5, 7])


def key_of(split: dict[str, int]) -> int:
    return split["key"]


def test_a_small_shuffle_is_read_by_one_task(session: Session) -> None:
    graph = Graph("parallelism")
    maps = graph.map(pieces, range(100))
    reader = graph.add(total, shuffle(maps, 50), n=Range(1, 50), manager="shuffle")
    results = session.run(graph, timeout_s=TIMEOUT_S)
    assert results[reader] == [50 * sum(1 + number % 3 for number in range(100))]


def test_a_larger_one_by_as_many_as_its_bytes_ask_for(session: Session) -> None:
    graph = Graph("parallelism")
    maps = graph.map(pieces, range(100))
    manager = Manager("shuffle", {"target": 30_000})
    reader = graph.add(total, shuffle(maps, 50), n=Range(1, 50), manager=manager)
    results = session.run(graph, timeout_s=TIMEOUT_S)
    assert 1 < len(results[reader]) < 50
    assert sum(results[reader]) == 50 * sum(1 + number % 3 for number in range(100))


def test_a_limit_starts_a_few_of_four_thousand(session: Session) -> None:
    graph = Graph("limit")
    scan = graph.map(two_rows, range(4000), manager=Manager("waves", {"rows": 5}))
    limit = graph.add(first_five, gather(scan, when=Trigger.EVENT, event="enough"))
    run = session.submit(graph)
    assert len(run.result(TIMEOUT_S).value(limit)) == 5
    assert run.view().vertices[0].finished <= 11
    assert run.view().vertices[0].state == "done_early"


def test_a_limit_that_is_not_met_reads_everything(session: Session) -> None:
    graph = Graph("limit")
    scan = graph.map(two_rows, range(40), manager=Manager("waves", {"rows": 1000}))
    limit = graph.add(len, gather(scan, when=Trigger.EVENT, event="enough"))
    assert session.run(graph, timeout_s=TIMEOUT_S).value(limit) == 40


def test_keys_of_the_small_side_prune_the_big_one(session: Session) -> None:
    graph = Graph("pruning")
    small = graph.task(say_keys)
    big = graph.map(
        key_of, [{"key": key} for key in range(1000)], after(small), manager=Manager("pruning", {"key": "key"})
    )
    answer = graph.add(sum, gather(big))
    run = session.submit(graph)
    assert run.result(TIMEOUT_S).value(answer) == 13
    assert run.view().vertices[1].n == 3


def say_own_key(ctx: Any, inputs: Any) -> None:
    ctx.emit("keys", [ctx.index])


def test_keys_of_all_tasks_of_the_small_side_count(session: Session) -> None:
    graph = Graph("pruning")
    small = graph.task(say_own_key, n=40, name="small")
    big = graph.map(abs, list(range(100)), after(small), manager="pruning")
    answer = graph.add(sum, gather(big))
    run = session.submit(graph)
    assert run.result(TIMEOUT_S).value(answer) == sum(range(40))
    assert run.view().vertices[1].n == 40


def test_keys_of_another_kind_fail_the_run(session: Session) -> None:
    graph = Graph("pruning")
    small = graph.task(say_keys, name="small")
    graph.map(
        key_of, [{"key": str(key)} for key in range(10)], after(small), manager=Manager("pruning", {"key": "key"})
    )
    with pytest.raises(TaskError, match="is of numbers, and no split of 'key_of' has such a key: text"):
        session.run(graph, timeout_s=TIMEOUT_S)


def test_items_stay_if_a_reader_needs_each_task(session: Session) -> None:
    graph = Graph("pruning")
    small = graph.task(say_keys, name="small")
    big = graph.map(
        key_of, [{"key": key} for key in range(10)], after(small), manager=Manager("pruning", {"key": "key"})
    )
    answer = graph.add(sum, gather(graph.add(abs, one_to_one(big))))
    run = session.submit(graph)
    assert run.result(TIMEOUT_S).value(answer) == 45
    assert any("one_to_one joins" in line for line in run.story("key_of"))


def some_numbers() -> list[int]:
    return list(range(12))


def test_waves_over_as_many_splits_as_an_expander_says(session: Session) -> None:
    graph = Graph("limit")
    plan = graph.add(some_numbers, name="plan", expands=True)
    scan = graph.add(pieces, after(plan), n=Source("plan"), name="scan", manager=Manager("waves", {"rows": 60}))
    limit = graph.add(len, gather(scan, when=Trigger.EVENT, event="enough"))
    assert session.run(graph, timeout_s=TIMEOUT_S).value(limit) >= 2


def test_an_unknown_manager_is_told_when_the_graph_is_submitted(session: Session) -> None:
    graph = Graph("wrong")
    graph.map(two_rows, range(4), manager="wavs")
    with pytest.raises(GraphError, match="manager 'wavs'"):
        session.submit(graph)


def see(parts: list[int]) -> list[int]:
    return parts


def see_one_by_one(ctx: Any, inputs: Any) -> list[int]:
    return list(inputs["a->b"])


@pytest.mark.parametrize("concurrent", [False, True])
@pytest.mark.parametrize("readers", [1, 3])
@pytest.mark.parametrize("style", ["function", "task"])
def test_early_readers_leave_the_slots_to_their_source(
    session: Session, style: str, readers: int, concurrent: bool
) -> None:
    graph = Graph("early")
    a = graph.map(abs, range(8), name="a")
    made = graph.add if style == "function" else graph.task
    reads = gather(a, fraction=0.5, concurrent=concurrent)
    b = made(see if style == "function" else see_one_by_one, reads, n=readers, name="b")
    assert session.run(graph, timeout_s=TIMEOUT_S)[b] == [list(range(8))] * readers


# ------------------------------------------------------------------------------------------------- managers of users

PROGRAM = """
import sys
import weft
from tests.integration.own_managers import build
with weft.Session(backend=sys.argv[1], workers=2, durable=sys.argv[2]) as session:
    session.run(build(sys.argv[3])[0], progress=False)
"""
RESUME = """
import sys
import weft
with weft.Session(backend=sys.argv[1], workers=2, durable=sys.argv[2]) as session:
    run = session.resume("run-000001")
    print(run.result()["last"], *run.story("first"), sep="\\n")
"""


def test_a_manager_of_a_user_decides(session: Session, tmp_path: Path) -> None:
    graph, last = own_managers.build(str(tmp_path))
    run = session.submit(graph)
    assert run.result(TIMEOUT_S)[last] == list(reversed(range(10)))
    assert re.findall(r"(\d+) tasks may start", "\n".join(run.story("first")))[:4] == ["2", "5", "9", "10"]
    assert any("10 tasks, by tests.one_more" in line for line in run.explain())


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_a_manager_of_a_user_survives_its_process(backend: str, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    (marks / "hold").touch()
    words = [backend, str(tmp_path / "state"), str(marks)]
    root = Path(__file__).parents[2]
    env = os.environ | {"PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    with subprocess.Popen([sys.executable, "-c", PROGRAM, *words], env=env, cwd=tmp_path) as program:
        end = time.monotonic() + TIMEOUT_S
        while len(list(marks.glob("done-*"))) < 4:
            assert program.poll() is None
            assert time.monotonic() < end
            time.sleep(0.005)
        program.kill()
    (marks / "hold").unlink()
    env["PYTHONPATH"] = str(root / "src")  # the run knows where its modules were
    again = subprocess.run(
        [sys.executable, "-c", RESUME, *words], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert again.returncode == 0, again.stderr
    assert again.stdout.startswith(str(list(reversed(range(10)))))
    assert "10 tasks may start" in again.stdout


def test_a_manager_of_a_script_is_kept_by_value(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        Path(own_managers.__file__)
        .read_text(encoding="utf-8")
        .replace('"tests.integration.own_managers:wait_for"', "wait_for")
        .replace("tests.one_more", "script.one_more")
        .replace("tests.reversed", "script.reversed")
        + "\n\nif __name__ == '__main__':\n"
        "    with weft.Session(workers=1, durable='state') as session:\n"
        "        run = session.submit(build('.')[0])\n"
        "        run.wait()\n",
        encoding="utf-8",
    )
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    subprocess.run([sys.executable, str(script)], env=env, cwd=tmp_path, check=True, timeout=TIMEOUT_S)
    again = subprocess.run(
        [sys.executable, "-c", RESUME, "threads", "state"],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert again.stdout.startswith(str(list(reversed(range(10))))), again.stderr


@pytest.mark.parametrize("name", ["job.own", "", "a b", 3, "shuffle"])
def test_names_that_are_not_allowed_or_taken_are_refused(name: Any) -> None:
    with pytest.raises(GraphError, match="shuffle.*weft.policies.shuffle" if name == "shuffle" else "cannot be called"):
        register_manager(name)(own_managers.OneMore)


def test_only_managers_are_registered() -> None:
    wrong: Any = Session
    with pytest.raises(GraphError, match="is no VertexManager"):
        register_manager("tests.session")(wrong)


def test_a_class_that_is_loaded_again_takes_the_place_of_the_former() -> None:
    former = REGISTERED["tests.one_more"]
    importlib.reload(own_managers)
    assert REGISTERED["tests.one_more"] is own_managers.OneMore
    assert REGISTERED["tests.one_more"] is not former


def slow_pieces(ctx, inputs):
    """Return two pieces of three and two; the last hundred tasks take longer than a worker waits with a report."""
    if ctx.index >= 1_000:
        time.sleep(0.03)
    return [[ctx.index] * 3, [1] * 2]


@pytest.mark.parametrize("backups", [False, True])
def test_rows_of_leases_that_report_progress_are_all_counted(backups):
    g = Graph("g")
    made = g.task(slow_pieces, n=1_100, name="made", counted=True)
    g.add(len, shuffle(made, 2), n=Range(1, 2), name="read", manager=Manager("shuffle"))
    with Session("processes", workers=2, backups=backups) as session:
        run = session.submit(g)
        run.result(TIMEOUT_S)
        assert "2,200 rows of 220,000 bytes" in "\n".join(run.explain())
