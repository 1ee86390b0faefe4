"""The choices there are: what graphs, pipelines and settings may name, and how each is made."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from weft.engine.policy import BLAME, STRAGGLERS
from weft.frontends.pipelines.kinds import STEP_KINDS as STEP_KINDS
from weft.graph.projection import GRAPHS
from weft.model.errors import GraphError, MissingExtraError, UsageError
from weft.policies.blame import NodeExclusion
from weft.policies.choices import BroadcastChoice
from weft.policies.eviction import furthest, largest
from weft.policies.pruning import PartitionPruning
from weft.policies.shuffle import ShuffleManager
from weft.policies.stragglers import Stragglers
from weft.policies.waves import WaveManager
from weft.store.folders import RunFolders, is_url, shm_root, sweep, sweep_runs, user_root

if TYPE_CHECKING:
    from weft.engine.policy import ManagerFactory
    from weft.engine.ports import Executor
    from weft.graph.projection import Projection
    from weft.runtime.session import BackendPlace
    from weft.store.api import EvictionKey


MANAGERS: Final[dict[str, ManagerFactory]] = {
    "shuffle": ShuffleManager,
    "waves": WaveManager,
    "pruning": PartitionPruning,
    "conditional": BroadcastChoice,
    STRAGGLERS: Stragglers,
    BLAME: NodeExclusion,
}
"""The vertex managers that a graph may name, and the policies of whole jobs."""
FRONTENDS: Final[Mapping[str, str]] = {"pipelines": "weft.frontends.pipelines.states:PROJECTION"}
"""The front ends that have words of their own for what users see: from where their projections are imported."""
EVICTION: Final[Mapping[str, EvictionKey | None]] = {"furthest": furthest, "largest": largest, "lru": None}
"""What a session may be told to spill first; None is the order that the store keeps by itself."""


def straggler_managers(parameters: Mapping[str, Any]) -> dict[str, ManagerFactory]:
    """Return the managers with other parameters of the straggler policy; UsageError if it does not take them."""
    factory = partial(Stragglers, **parameters)
    try:
        factory()
    except (TypeError, GraphError) as error:
        from inspect import signature  # which takes long to load

        raise UsageError(
            f"backups is {dict(parameters)!r}, which the policy of stragglers does not take: {error}",
            hint=f"It takes {signature(Stragglers)} and looks_s, the shortest and longest seconds between two looks.",
        ) from error
    return MANAGERS | {STRAGGLERS: factory}


def looks_of(looks_s: object) -> tuple[float, float]:
    """Check the shortest and longest seconds between two looks at what runs."""
    if isinstance(looks_s, (list, tuple)) and len(looks_s) == 2:
        shortest, longest = looks_s
        if isinstance(shortest, (int, float)) and isinstance(longest, (int, float)) and 0 < shortest <= longest:
            return float(shortest), float(longest)
    raise UsageError(f"looks_s of backups is {looks_s!r}; it must be two numbers of seconds, 0 < shortest <= longest")


def projection_of(frontend: str) -> Projection:
    """Return the words for runs whose graphs a front end has made."""
    module, _, name = FRONTENDS.get(frontend, "").partition(":")
    if not module:
        return GRAPHS
    found: Projection = getattr(import_module(module), name)
    return found


def session_folders(name: str, spill: Path | str | None) -> RunFolders:
    """Make the folders of something that leaves nothing behind, and sweep what killed ones left.

    They lie in the folder `spill`; where that is a URL or None, in the folder for temporary files.
    """
    base = Path(tempfile.gettempdir() if spill is None or is_url(spill) else spill)
    try:
        root = user_root(base)
    except OSError as error:
        raise UsageError(f"no folder can be made in {base}: {error.strerror}", hint="Name one that exists.") from None
    shared = shm_root()
    sweep(shared)
    sweep_runs(root, lambda _: False, _sweep_objects)
    return RunFolders(f"{name}-{os.getpid()}-{os.urandom(4).hex()}", shared, root)


def _sweep_objects(folder: Path) -> bool:
    from weft.store.objects import sweep as sweep_objects  # few sessions need it

    return sweep_objects(folder)


def _threads(at: BackendPlace) -> Executor:
    from weft.backends.threads import Threads

    return Threads(at.workers, at.store, resources=at.node, grace_s=at.grace_s, window=at.window)


def _processes(at: BackendPlace) -> Executor:
    from weft.backends.processes import Processes

    return Processes(
        at.workers, at.store, at.shm, spill=at.spill, resources=at.node, grace_s=at.grace_s, window=at.window
    )


def _simulator(at: BackendPlace) -> Executor:
    from weft.backends.simulated_bodies import SimulatedBodies

    return SimulatedBodies(at.workers, at.store, driven=True, capacity=at.node)


BACKENDS: Final = {"threads": _threads, "processes": _processes, "simulator": _simulator}
"""What settings and `Session` may name; each is loaded when it is first asked for."""


def make_backend(name: str, place: BackendPlace) -> Executor:
    """Return a backend by its name. UsageError: there is none. MissingExtraError: it needs what is not installed."""
    if name not in BACKENDS:
        raise UsageError(f"there is no backend {name!r}", hint=f"There are: {', '.join(BACKENDS)}")
    try:
        return BACKENDS[name](place)
    except ModuleNotFoundError as error:
        message = f"the {name} backend needs {error.name}, which is not installed"
        raise MissingExtraError(message, hint=f"Install it: pip install 'weft[{name}]'") from None


def make_ready(backend: str) -> None:
    """Begin to start what a run of commands will need, so that it is there once all else is loaded."""
    if backend == "threads":
        from weft.operators.guardians import open_guardian_pool

        open_guardian_pool()


def eviction_key(asked: str | EvictionKey) -> EvictionKey | None:
    """Return what says which value is spilled first, None for the order of the store. UsageError: there is no such."""
    if callable(asked):
        return asked
    if not isinstance(asked, str) or asked not in EVICTION:
        raise UsageError(f"there is no eviction policy {asked!r}", hint=f"There are: {', '.join(EVICTION)}")
    return EVICTION[asked]
