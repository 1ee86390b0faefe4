"""The store and the workers of a service, made from its settings and from concrete classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from weft.model.errors import UsageError
from weft.runtime.clock import ResumedClock
from weft.runtime.session import BackendPlace, EngineSession
from weft.store.blocks import BlockManager
from weft.store.folders import SPILL_NAME, is_url
from weft.store.tiers import spill_tier

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import ExitStack
    from pathlib import Path

    from weft.admin.settings import Settings
    from weft.engine.policy import ManagerFactory
    from weft.engine.ports import Executor
    from weft.runs.sources import PlannableSource, ResumableSource
    from weft.store.api import EvictionKey
    from weft.store.folders import RunFolders
    from weft.store.state import StateRoot

STEP_GRACE_S: Final = 30.0
"""The seconds until a step that was asked to stop is abandoned: those of its guardian, and time to see the end."""


class Concrete(Protocol):
    """The concrete classes of a service; `weft.wiring` has them."""

    @property
    def MANAGERS(self) -> Mapping[str, ManagerFactory]:  # noqa: N802
        """The vertex managers and job policies, by name."""
        ...

    @property
    def BACKENDS(self) -> Mapping[str, Any]:  # noqa: N802
        """The backends, by name."""
        ...

    @property
    def Session(self) -> Callable[..., Any]:  # noqa: N802
        """The class of sessions of Python programs."""
        ...

    @property
    def Caching(self) -> Callable[..., Any]:  # noqa: N802
        """The class of the wishes about the cache."""
        ...

    @property
    def Surroundings(self) -> Callable[..., Any]:  # noqa: N802
        """The class of the surroundings of steps."""
        ...

    @property
    def load_pipeline(self) -> Callable[..., PlannableSource]:
        """The reader of pipelines."""
        ...

    def is_job_file(self, path: str) -> bool:
        """Return whether a file or folder has training jobs."""
        ...

    def load_jobs(self, path: str, settings: Settings, state: StateRoot, *, name: str | None) -> PlannableSource:
        """Return the source of the training jobs of a file or folder."""
        ...

    def make_backend(self, name: str, place: BackendPlace) -> Executor:
        """Return a backend by its name."""
        ...

    def order_driver(self, folder: Path, message: Mapping[str, Any]) -> Any:
        """Send an order to the owner of a run that a cluster drives."""
        ...

    def driver_lives(self, folder: Path) -> bool:
        """Return whether the cluster of a run has its driver."""
        ...

    def eviction_key(self, choice: str | EvictionKey) -> EvictionKey | None:
        """Return the key of an eviction order."""
        ...

    def session_folders(self, name: str, spill: Path | str | None) -> RunFolders:
        """Make folders that are removed at the end."""
        ...

    def source_again(self, frontend: str, folder: Path, file: str) -> ResumableSource:
        """Return the source of a run, read from its folder."""
        ...


def make_workers(concrete: Concrete, settings: Settings, state: StateRoot, undo: ExitStack) -> EngineSession:
    """Return a store and workers for many runs; `undo` closes them. Values spill to one folder of the state folder."""
    base = settings.spill
    if base is None or is_url(base):
        base = state.path / SPILL_NAME
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
    folders = undo.enter_context(concrete.session_folders("runs", base))
    key = concrete.eviction_key(settings.eviction)
    spill = spill_tier(settings.spill, folders)
    store = BlockManager(settings.memory or None, shm=folders.shm, spill=spill, overflow=folders.spill, eviction=key)
    undo.callback(store.close)
    workers = settings.worker_count
    node = settings.node(store.memory.budget)
    window = settings.stream_window or None
    given = settings.workers > 0
    cluster = settings.cluster_options() if settings.backend == "ray" else None
    for name in ("cluster", "env", "working_dir") if cluster is None else ():
        if settings.origin(name).kind == "flag":
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag} is for the backend ray, not {settings.backend}", hint="Add: --backend ray")
    here = (workers, store, folders.shm, folders.spill, STEP_GRACE_S, node, window)
    place = BackendPlace(*here, given=given, cluster=cluster, memory=settings.memory)
    executor = concrete.make_backend(settings.backend, place)
    session = EngineSession(executor, store, ResumedClock(), concrete.MANAGERS)
    undo.callback(session.close)
    return session
