"""The options of a session of a Python program: checked, kept for a resume, and made into a store and settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from weft.admin import opened
from weft.admin.settings import Settings
from weft.model.clusters import ClusterOptions
from weft.model.errors import UsageError
from weft.model.ids import is_name
from weft.model.resources import Resources
from weft.model.sizes import parse_size, unit_missing
from weft.runtime import arguments
from weft.runtime.clock import RealClock, ResumedClock
from weft.runtime.session import BackendPlace
from weft.store.accounting import resident_bytes
from weft.store.blocks import BlockManager
from weft.store.folders import is_url
from weft.store.state import StateRoot
from weft.store.tiers import spill_tier

if TYPE_CHECKING:
    import os

    from weft.engine.ports import Clock, Executor
    from weft.engine.tuning import Tuning
    from weft.runtime.history import Historian
    from weft.store.api import EvictionKey
    from weft.store.folders import RunFolders

_OWN: Final = 32 << 20
"""The bytes that a session adds to its process besides values: threads, modules, work areas of tasks."""


class SessionOptions(Struct, frozen=True, kw_only=True):
    """The checked options of a session; see `weft.Session`.

    `workers` and `memory` (bytes) are None if not given, `slots` is the number of workers in any case. `stragglers` has
    the parameters of the straggler policy, `looks_s` the seconds between its checks, `exclusion` the parameters of the
    node exclusion policy or whether there is one. `state` is the state folder of a
    durable session, `history` that of kept durations. The paths of `cluster` are absolute.
    """

    name: str
    workers: int | None
    slots: int
    memory: int | None
    window: int | None
    spill: Path | str | None
    grace_s: float
    frozen_s: float
    gpus: int
    gpu_type: str
    eviction: str | EvictionKey
    backups: bool | None
    stragglers: Mapping[str, Any] | None
    exclusion: bool | Mapping[str, Any]
    looks_s: tuple[float, float] | None
    state: StateRoot | None
    history: StateRoot | None
    whole_process: bool
    cluster: ClusterOptions | None
    worker_memory: int | None
    task_logs: bool

    def store(self, folders: RunFolders, key: EvictionKey | None, *, threads: bool) -> BlockManager:
        """Return the store, which spills to `folders` in the order of `key`.

        With `threads` the whole process can be bounded: other workers have processes of their own.
        """
        budget = self.memory
        whole = self.whole_process and threads and budget is not None
        room = max(budget - resident_bytes() - _OWN, budget // 2) if whole and budget else budget
        return BlockManager(
            room,
            shm=folders.shm,
            spill=spill_tier(self.spill, folders),
            overflow=folders.spill,
            eviction=key,
            ceiling=budget if whole else None,
        )

    def place(self, store: BlockManager, folders: RunFolders, preload: tuple[str, ...] = ()) -> BackendPlace:
        """Return the makings of a backend whose workers share the modules `preload`."""
        node = Resources(cpu=self.slots, memory=store.memory.budget, gpu=self.gpus, gpu_type=self.gpu_type)
        place = (self.slots, store, folders.shm, folders.spill, self.grace_s, node, self.window)
        objects = f"{str(self.spill).rstrip('/')}/{folders.run_id}" if is_url(self.spill) else ""
        return BackendPlace(
            *place,
            frozen_s=self.frozen_s,
            given=self.workers is not None,
            objects=objects,
            cluster=self.cluster,
            memory=self.memory or 0,
            worker_memory=self.worker_memory or 0,
            preload=preload,
        )

    def clock(self, backend: Executor) -> Clock | None:
        """Return the clock of the session: that of a simulation, or one that a resume can set. None: the usual one."""
        if backend.clock is not None and self.state is not None:
            raise UsageError("a simulated session cannot be durable: its time is not that of any clock")
        return backend.clock or (ResumedClock() if self.state is not None else None)

    def tuning(self, of: Tuning, *, processes: bool) -> Tuning:
        """Return the tuning of a backend with the wishes for speculative attempts, by default with processes only."""
        if processes if self.backups is None else self.backups:
            of = replace(of, backups=True)
        if self.task_logs:
            of = replace(of, cones=False)  # so that the task of each line is known
        return of if self.looks_s is None else replace(of, looks_s=self.looks_s)

    def about(self, backend: Executor, *, given: bool) -> dict[str, Any]:
        """Return the fields of the description of durable runs; `given`: the program has made the backend itself."""
        workers = sum(len(node.workers) for node in backend.provider.nodes()) if given else self.workers
        options = {
            "workers": workers,
            "memory": self.memory,
            "gpus": self.gpus,
            "gpu_type": self.gpu_type,
            "grace_s": self.grace_s,
            "frozen_s": self.frozen_s,
            "backups": self.backups,
            "eviction": self.eviction,
            "stream_window": self.window,
            "whole_process": self.whole_process,
            "history": self.history is not None and str(self.history.path),
            "worker_memory": self.worker_memory,
            "cluster": None if self.cluster is None else to_builtins(self.cluster),
        }
        return {"backend": backend.name, opened.KEY: opened.kept(options)}


def check_options(
    *,
    name: str | None,
    workers: int | None,
    memory: int | str | None,
    spill: str | os.PathLike[str] | None,
    grace_s: float,
    frozen_s: float,
    backups: bool | Mapping[str, Any] | None,
    eviction: str | EvictionKey,
    stream_window: int | str | None,
    durable: bool | str | os.PathLike[str],
    gpus: int,
    gpu_type: str,
    history: bool | str | os.PathLike[str],
    whole_process: bool,
    cluster: ClusterOptions | None,
    worker_memory: int | str | None,
    exclusion: bool | Mapping[str, Any] = True,
    task_logs: bool = False,
) -> SessionOptions:
    """Check the arguments of a session. UsageError: an invalid one."""
    stragglers = dict(backups) if isinstance(backups, Mapping) else None
    looks_s = None if stragglers is None else stragglers.pop("looks_s", None)
    state = _state("durable", durable)
    return SessionOptions(
        name=_session_name(name),
        workers=workers,
        slots=Settings().worker_count if workers is None else arguments.whole("workers", workers, lo=1),
        memory=size_of("memory", memory),
        window=size_of("stream_window", stream_window),
        spill=spill if spill is None or is_url(spill) else arguments.folder("spill", spill),
        grace_s=arguments.seconds("grace_s", grace_s),
        frozen_s=arguments.seconds("frozen_s", frozen_s),
        gpus=arguments.whole("gpus", gpus, lo=0),
        gpu_type=arguments.text("gpu_type", gpu_type),
        eviction=eviction,
        backups=True if stragglers is not None else _switch("backups", backups, unset=True),
        stragglers=stragglers,
        looks_s=None if looks_s is None else _looks(looks_s),
        state=state,
        history=state if history is True and state is not None else _state("history", history),
        whole_process=bool(arguments.truth("whole_process", whole_process)),
        cluster=None if cluster is None else checked_cluster(cluster),
        worker_memory=size_of("worker_memory", worker_memory),
        task_logs=bool(arguments.truth("task_logs", task_logs)),
        exclusion=dict(exclusion) if isinstance(exclusion, Mapping) else bool(_switch("exclusion", exclusion)),
    )


def open_history(state: StateRoot) -> Historian:
    """Return the keeper of the durations of vertices in a state folder, which is made if it is missing."""
    from weft.runtime.history import Historian  # few sessions keep them

    state.prepare()
    return Historian(state.catalog(), RealClock())


def checked_cluster(given: ClusterOptions) -> ClusterOptions:
    """Check the options of a cluster, whose paths become absolute. UsageError: an invalid one."""
    if not isinstance(given, ClusterOptions):
        raise arguments.wrong("cluster", given, "weft.ClusterOptions(address=..., requirements=..., working_dir=...)")
    file, copied = given.requirements, given.working_dir
    return ClusterOptions(
        address=None if given.address is None else arguments.text("address", given.address),
        requirements=None if file is None else str(arguments.folder("requirements", file, "the path of a file")),
        working_dir=None if copied is None else str(arguments.folder("working_dir", copied)),
    )


def _looks(looks_s: object) -> tuple[float, float]:
    """Check the shortest and the longest seconds between two checks of running tasks."""
    if isinstance(looks_s, (list, tuple)) and len(looks_s) == 2:
        shortest, longest = looks_s
        if isinstance(shortest, (int, float)) and isinstance(longest, (int, float)) and 0 < shortest <= longest:
            return float(shortest), float(longest)
    raise UsageError(f"looks_s of backups is {looks_s!r}; it must be two numbers of seconds, 0 < shortest <= longest")


def _state(name: str, value: bool | str | os.PathLike[str]) -> StateRoot | None:
    """Return the state folder of an argument, or None."""
    if value is False:
        return None
    if value is True:
        state = Settings().state_root(Path.cwd())
        state.warn_diverted()
        return state
    return StateRoot(state_folder(name, value))


def state_folder(name: str, value: str | os.PathLike[str]) -> Path:
    """Check the path of a state folder, where True and False would be allowed too. UsageError: it is none."""
    return arguments.folder(name, value, "True, False or the path of a state folder")


def _session_name(name: str | None) -> str:
    if name is None:
        return "session"
    if not is_name(name) or "/" in name or len(name) > 80:
        raise UsageError(f"{name!r} cannot name a session", hint="Use 1 to 80 letters, digits and _ - .")
    return name


def size_of(name: str, value: int | str | None) -> int | None:
    """Return an argument as a number of bytes. UsageError: it is none."""
    if value is None:
        return None
    try:
        size = parse_size(value) if isinstance(value, str) else value
    except (ValueError, OverflowError):
        size = 0
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise arguments.wrong(name, value, "a number of bytes, such as 512MiB or 4GiB")
    if hint := unit_missing(value):
        raise arguments.wrong(name, value, "a number of bytes with a unit", hint)
    if size >= 1 << 63:
        raise arguments.wrong(name, value, "less than 8 EiB, which is more than any machine has")
    return size


def _switch(name: str, value: object, *, unset: bool = False) -> bool | None:
    """Check whether there is a policy, where a mapping of its parameters would be allowed too."""
    if isinstance(value, bool) or (value is None and unset):
        return value
    raise arguments.wrong(name, value, "True, False or a mapping of parameters, such as {'share': 0.2}")
