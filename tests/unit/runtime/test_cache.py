"""The cache as the loop asks it, over a shell that only collects what is posted."""

import queue
import threading
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from weft.engine.commands import Probe
from weft.engine.events import Done, Failed, Hit, Miss, Waiting
from weft.engine.machines.task import TaskState
from weft.engine.ports import ManualClock
from weft.model.errors import ForbiddenError
from weft.model.failures import Failure
from weft.runtime.cache import DECISIONS, LEASE_S, StepCache, read_decisions
from weft.store.entries import CacheIndex, Claim
from weft.store.results import Recipe, ResultCache

DEADLINE_S = 180.0


class Shell:
    """Collects events; `next` waits for one."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.jobs: dict[str, Any] = {}
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def post_later(self, job: str, *events: Any) -> None:
        for event in events:
            self._events.put(event)

    def drain(self) -> None:
        pass

    def next(self) -> Any:
        return self._events.get(timeout=DEADLINE_S)

    def empty(self) -> bool:
        return self._events.empty()


class World:
    """Owners of one state folder, each with its own locks as if it were a process of its own."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self.folder = folder
        self.now = 1000.0
        self.results = ResultCache(CacheIndex(url or folder / "cache.db"), lambda: self.now)
        self.opened: list[StepCache] = []

    def recipe(self, run: str, step: str, said: Mapping[str, str]) -> Recipe:
        return Recipe(
            pipeline="p",
            step=step,
            run=run,
            store=str(self.folder / ".cas"),
            root=str(self.folder),
            static=said,
        )

    def cache(self, run: str, **more: Any) -> StepCache:
        (self.folder / run).mkdir(exist_ok=True)
        cache = StepCache(
            self.results,
            self.folder / "keys",
            run,
            self.folder / run / DECISIONS,
            lambda params, index, item, lookup: replace(self.recipe(run, params["step"], params["said"]), task=index),
            **more,
        )
        self.opened.append(cache)
        return cache

    def close(self) -> None:
        for cache in self.opened:
            cache.close()
        self.results.index.close()


def job(**steps: str) -> Any:
    """A job with steps; what each is made of is its value."""
    by_id = {
        step: SimpleNamespace(
            vertex=SimpleNamespace(
                program=SimpleNamespace(params={"step": step, "said": {"command": said}}, items=None)
            ),
            state=bytearray([int(TaskState.PROBING)]),
        )
        for step, said in steps.items()
    }
    return SimpleNamespace(id="job", inspector=SimpleNamespace(row=by_id.__getitem__))


def ask(cache: StepCache, shell: Shell, of: Any, step: str) -> None:
    cache.probe(cast("Any", shell), of, Probe(step, 0, "key"))


def end(cache: StepCache, of: Any, step: str, state: TaskState) -> None:
    of.inspector.row(step).state[0] = int(state)
    event = Done(0.0, 1, 1) if state is TaskState.FINISHED else Failed(0.0, 1, 0, step, 0, Failure.USER, "no")
    cache.watch(of, [event], [])


@pytest.fixture(params=["sqlite", "postgresql"])
def world(request, tmp_path):
    world = World(tmp_path, request.getfixturevalue("postgresql_url") if request.param == "postgresql" else "")
    yield world
    world.close()


def test_a_miss_a_result_a_hit(world):
    shell, cache, one = Shell(), world.cache("run-1"), job(a="x")
    ask(cache, shell, one, "a")
    assert isinstance(shell.next(), Miss)
    assert world.results.keep(world.recipe("run-1", "a", {"command": "x"}), 0.0) == ""
    end(cache, one, "a", TaskState.FINISHED)
    again = world.cache("run-2")
    ask(again, shell, job(b="x"), "b")
    assert isinstance(shell.next(), Hit)
    world.close()
    assert [said["outcome"] for said in read_decisions(world.folder / "run-2")] == ["hit"]


def test_one_that_waits_takes_over_from_one_that_fails(world):
    shell, owner, waiter, one = Shell(), world.cache("run-1"), world.cache("run-2"), job(a="x")
    ask(owner, shell, one, "a")
    assert isinstance(shell.next(), Miss)
    ask(waiter, shell, job(a="x"), "a")
    waiting = shell.next()
    assert isinstance(waiting, Waiting)
    assert waiting.owner == "run-1/a"
    end(owner, one, "a", TaskState.READY)  # it is tried again: the key is still its own
    assert shell.empty()
    end(owner, one, "a", TaskState.FATAL)
    assert isinstance(shell.next(), Miss)
    assert world.results.index.claim_of("run-2", "a", 0) is not None


def test_closing_ends_claims_and_the_wait_of_others(world):
    shell, owner, waiter = Shell(), world.cache("run-1"), world.cache("run-2")
    ask(owner, shell, job(a="x"), "a")
    assert isinstance(shell.next(), Miss)
    ask(waiter, shell, job(a="x"), "a")
    assert isinstance(shell.next(), Waiting)
    owner.close()
    assert isinstance(shell.next(), Miss)


def test_closing_one_that_waits_waits_for_nobody(world):
    shell, owner, waiter = Shell(), world.cache("run-1"), world.cache("run-2")
    ask(owner, shell, job(a="x"), "a")
    assert isinstance(shell.next(), Miss)
    ask(waiter, shell, job(a="x"), "a")
    assert isinstance(shell.next(), Waiting)
    waiter.close()
    assert world.results.index.claim_of("run-1", "a", 0) is not None


def test_equal_tasks_of_one_run_wait_for_one_another(world):
    shell, cache, one = Shell(), world.cache("run-1"), job(a="x", b="x")
    ask(cache, shell, one, "a")
    assert isinstance(shell.next(), Miss)
    ask(cache, shell, one, "b")
    assert isinstance(shell.next(), Waiting)
    world.results.keep(world.recipe("run-1", "a", {"command": "x"}), 0.0)
    end(cache, one, "a", TaskState.FINISHED)
    assert isinstance(shell.next(), Hit)


@pytest.mark.parametrize("world", ["sqlite"], indirect=True)  # whose locks reach this machine only
@pytest.mark.parametrize("passed_s", [LEASE_S + 1, -86_400.0], ids=["over", "clock set back"])
def test_a_lease_of_another_host_counts_until_it_is_over(world, passed_s):
    key = world.results.key(world.recipe("run-9", "a", {"command": "x"}))
    there = Claim(
        key=key.key,
        epoch=0,
        run="run-9",
        step="a",
        task=0,
        host="elsewhere",
        pid=1,
        since=world.now,
        lease_until=world.now + LEASE_S,
        leaves=key.leaves,
    )
    world.results.index.claim(there)
    shell, cache = Shell(), world.cache("run-1")
    ask(cache, shell, job(a="x"), "a")
    waiting = shell.next()
    assert isinstance(waiting, Waiting)
    assert waiting.owner == "run-9/a"
    world.now += passed_s
    assert isinstance(shell.next(), Miss)
    assert world.results.keep(world.recipe("run-9", "a", {"command": "x"}), 0.0) == "", "it has no claim any more"
    assert world.results.index.count() == (0, 0)


def test_one_that_goes_on_gives_up_what_it_held_and_does_not_wait_for_itself(world):
    shell, owner, one = Shell(), world.cache("run-1"), job(a="x", b="x")
    ask(owner, shell, one, "a")
    assert isinstance(shell.next(), Miss)
    owner._locks.close()  # as if it had been killed
    again = world.cache("run-1")
    again.go_on()
    assert world.results.keep(world.recipe("run-1", "a", {"command": "x"}), 0.0) == "", "it has no claim any more"
    assert world.results.index.count() == (0, 0)
    ask(again, shell, one, "a")
    assert isinstance(shell.next(), Miss)
    ask(again, shell, one, "b")
    assert isinstance(shell.next(), Waiting)
    assert world.results.keep(world.recipe("run-1", "a", {"command": "x"}), 0.0) == ""
    end(again, one, "a", TaskState.FINISHED)
    assert isinstance(shell.next(), Hit)
    world.opened.remove(owner)


def test_one_that_goes_on_leaves_alone_what_another_has_taken_over(world):
    shell, owner, one = Shell(), world.cache("run-1"), job(a="x")
    ask(owner, shell, one, "a")
    assert isinstance(shell.next(), Miss)
    owner._locks.close()  # as if it had been killed
    other, again = world.cache("run-2"), world.cache("run-1")
    ask(other, shell, one, "a")
    assert isinstance(shell.next(), Miss)
    again.go_on()
    ask(again, shell, job(a="x"), "a")
    assert isinstance(waiting := shell.next(), Waiting)
    assert waiting.owner == "run-2/a"
    assert world.results.keep(world.recipe("run-2", "a", {"command": "x"}), 0.0) == ""
    end(other, one, "a", TaskState.FINISHED)
    assert isinstance(shell.next(), Hit)
    world.opened.remove(owner)


@pytest.mark.parametrize(
    "error", [ForbiddenError("it cannot be read"), OSError(37, "No locks available"), KeyError("x")]
)
def test_whatever_goes_wrong_is_a_miss(world, monkeypatch, error):
    def refuse(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(world.results, "key", refuse)
    shell, cache = Shell(), world.cache("run-1")
    ask(cache, shell, job(a="x"), "a")
    answer = shell.next()
    assert isinstance(answer, Miss)
    assert str(error.args[-1]) in answer.reason


def test_more_waits_than_threads_all_end(world, monkeypatch):
    monkeypatch.setattr("weft.runtime.cache._WAITERS", 2)
    shell, owner, waiter = Shell(), world.cache("run-1"), world.cache("run-2")
    steps = {f"s{n}": str(n) for n in range(8)}
    mine, theirs = job(**steps), job(**steps)
    for step in steps:
        ask(owner, shell, mine, step)
        assert isinstance(shell.next(), Miss)
    for step in steps:
        ask(waiter, shell, theirs, step)
        assert isinstance(shell.next(), Waiting)
    before = threading.active_count()
    for step in reversed(steps):
        end(owner, mine, step, TaskState.CANCELLED)
    assert {shell.next().vertex for _ in steps} == set(steps)
    assert threading.active_count() <= before
