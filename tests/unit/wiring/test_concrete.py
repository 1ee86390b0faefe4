"""Concrete classes by their names in settings and graphs, and the errors about names that nothing has."""

import ast
import signal
from pathlib import Path
from typing import Any

import pytest

from weft import wiring
from weft.backends.processes import Processes
from weft.backends.simulated_bodies import SimulatedBodies
from weft.backends.threads import Threads
from weft.engine.policy import BLAME, STRAGGLERS
from weft.model.errors import ConflictError, UsageError
from weft.model.resources import Resources
from weft.policies.blame import NodeExclusion
from weft.policies.eviction import furthest
from weft.policies.stragglers import Stragglers
from weft.runtime.session import BackendPlace
from weft.runtime.waiting import recorded_signals
from weft.store.blocks import BlockManager
from weft.wiring.concrete import (
    BACKENDS,
    EVICTION,
    MANAGERS,
    eviction_key,
    make_backend,
    policies_of,
    session_folders,
    source_again,
)


@pytest.fixture
def place(tmp_path):
    store = BlockManager(1 << 20, spill=tmp_path / "spill")
    yield BackendPlace(2, store, tmp_path, tmp_path, 1.5, Resources(cpu=2, memory=100), 77)
    store.close()


@pytest.mark.parametrize(("name", "kind"), [("threads", Threads), ("processes", Processes)])
def test_a_backend_gets_what_its_place_has(place, name, kind):
    executor: Any = make_backend(name, place)
    assert type(executor) is kind
    assert (executor.grace_s, executor.window, executor.store) == (1.5, 77, place.store)
    (node,) = executor.provider.nodes()
    assert (len(node.workers), node.resources) == (2, place.node)
    if isinstance(executor, Processes):
        executor.close()


def test_the_simulator_runs_bodies(place):
    executor: Any = make_backend("simulator", place)
    assert type(executor) is SimulatedBodies
    executor.close()


def test_the_first_signal_ends_the_wait_for_a_cluster(place, monkeypatch):
    def wait_for_cores(_: BackendPlace) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setitem(BACKENDS, "ray", wait_for_cores)
    with recorded_signals(signal.SIGINT), pytest.raises(KeyboardInterrupt):
        make_backend("ray", place)


def test_unknown_backends_are_told_the_known_ones(place):
    with pytest.raises(UsageError, match=r"no backend 'slurm'") as caught:
        make_backend("slurm", place)
    assert all(name in str(caught.value.hint) for name in BACKENDS)


def test_a_broken_backend_is_no_missing_package(place, monkeypatch):
    monkeypatch.setitem(BACKENDS, "own", lambda at: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        make_backend("own", place)


def test_eviction_orders_have_names_or_are_functions():
    assert (eviction_key("furthest"), eviction_key("lru")) == (furthest, None)
    assert eviction_key(len) is len  # type: ignore[arg-type,comparison-overlap]
    for wrong in ("first", 7):
        with pytest.raises(UsageError, match="no eviction policy") as caught:
            eviction_key(wrong)  # type: ignore[arg-type]
        assert all(name in str(caught.value.hint) for name in EVICTION)


def test_only_the_policy_of_stragglers_takes_other_parameters():
    managers = policies_of({"times": 3.0}, True)
    assert managers.keys() == MANAGERS.keys()
    assert {name for name in MANAGERS if managers[name] is not MANAGERS[name]} == {STRAGGLERS}
    made: Any = managers[STRAGGLERS]()
    assert isinstance(made, Stragglers)


@pytest.mark.parametrize("wrong", [{"speed": 3}, {"times": -1}])
def test_wrong_parameters_of_stragglers_are_named(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))) as caught:
        policies_of(wrong, True)
    assert "looks_s" in str(caught.value.hint)


@pytest.mark.parametrize("frontend", ["graph", ""])
def test_runs_of_programs_have_no_file_to_resume_from(tmp_path, frontend):
    with pytest.raises(ConflictError, match="cannot be resumed here"):
        source_again(frontend, tmp_path, "")


def test_folders_of_a_session_are_removed_with_it(tmp_path):
    with session_folders("mine", tmp_path) as first, session_folders("mine", tmp_path) as second:
        made = [Path(path) for path in (first.shm, first.spill, second.shm, second.spill)]
        assert len(set(made)) == 4
        assert all(path.is_dir() for path in made)
    assert not any(path.exists() for path in made)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"no folder can be made in .*file"):
        session_folders("mine", tmp_path / "file")


def test_every_public_name_is_loaded_at_its_first_use():
    tree = ast.parse(Path(wiring.__file__).read_text())
    declared = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    names = declared - {"import_module", "TYPE_CHECKING", "Any"}
    assert all(getattr(wiring, name) is not None for name in names)
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        _ = wiring.other


def test_the_policy_of_exclusion_takes_parameters_or_is_left_out():
    policy = policies_of(None, {"least": 8})[BLAME]()
    assert isinstance(policy, NodeExclusion)
    assert (policy.least, policy.times) == (8, 3.0)
    assert BLAME not in policies_of(None, False)
    assert "shuffle" in policies_of({"times": 3.0}, False)
    assert policies_of(None, True) is MANAGERS


@pytest.mark.parametrize("wrong", [{"least": 0}, {"lest": 3}, {"least": "many"}])
def test_wrong_parameters_of_exclusion_are_refused_with_those_that_there_are(wrong):
    with pytest.raises(UsageError, match=r"exclusion (is|has no parameter) ") as caught:
        policies_of(None, wrong)
    assert "avoid_s" in caught.value.hint
