"""The ports of front ends: the source of a new run, and of a resumed one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from contextlib import AbstractContextManager, ExitStack
    from pathlib import Path

    from weft.engine.policy import ManagerFactory
    from weft.graph.job_plan import JobPlan
    from weft.graph.logical import LogicalGraph
    from weft.graph.spec import RunSpec, StepInputs
    from weft.runs.reading import RunRecord
    from weft.store.filesystems import Copy
    from weft.store.planning import PlannedTask
    from weft.store.results import ResultCache
    from weft.store.state import RunFolder

Note = Callable[[str], None]


class RunSource(Protocol):
    """The work of a front end before it has a run id."""

    @property
    def base(self) -> Path:
        """The folder from which the state folder is looked up."""
        ...

    def at(self, *, many_machines: bool) -> Self:
        """Return the source for workers at one machine, or at many. UsageError: it cannot run there."""
        ...

    def prepare(self, note: Callable[[str], None]) -> Self:
        """Return the source with the environment of its steps. Errors: a part of the environment is missing."""
        ...

    def copies(self, undo: ExitStack, note: Callable[[str], None], *, fetch: bool = True) -> list[Copy]:
        """Hold the copies of remote file systems until `undo` releases them."""
        ...

    def claim(self, run_id: str, folder: Path, copies: Sequence[Copy]) -> RunSpec | None:
        """Return the run with that id and folder, and a folder for its outputs; None: the id is used elsewhere."""
        ...


class PlannableSource(RunSource, Protocol):
    """The work of a front end whose use of the cache can be foreseen."""

    @property
    def graph(self) -> LogicalGraph:
        """The graph of a run that no one begins."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The parameters of a run as its description has them, with `{{PF_RUN_ID}}` for its id."""
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings for the user, before a run."""
        ...

    def check_begin(self, runs: Path) -> None:
        """Check what a run needs at its begin; `runs` is the folder of the runs. Nothing is made.

        UsageError: a secret or the folder of a file system is missing.
        """
        ...

    def planned(self, runs: Path, run: str = "") -> Sequence[PlannedTask]:
        """Return the tasks of a run in an order of dependency; `runs` is the folder of the runs. Nothing is made.

        Their paths are those of the run `run`, by default of one that no one begins.

        DefinitionError: the mounts of a step are impossible.
        """
        ...

    def jobs_planned(self) -> Sequence[JobPlan]:
        """Return what a run of training jobs would start; () for other work."""
        ...

    def warnings_here(self) -> Sequence[str]:
        """Return warnings about the files of steps, and about steps that can never run on this machine; () for training
        jobs, whose plans tell it.

        Errors are those of the kinds of steps.
        """
        ...


class Revised(Protocol):
    """A run with an edited pipeline in place of its original one."""

    @property
    def source(self) -> ResumableSource:
        """The edited source."""
        ...

    @property
    def spec(self) -> RunSpec:
        """The run."""
        ...

    @property
    def before(self) -> RunSpec:
        """The run before the edit."""
        ...

    @property
    def why(self) -> Callable[[str], str]:
        """The function that returns the reason why a step runs again; "" if it does not."""
        ...

    @property
    def items(self) -> Mapping[tuple[str, int], str]:
        """The same for items of loops."""
        ...

    @property
    def wider(self) -> Mapping[str, str]:
        """The same for loops of another length."""
        ...

    @property
    def removed(self) -> Sequence[str]:
        """The steps that are no longer there."""
        ...

    @property
    def there(self) -> Collection[str]:
        """The names of all existing steps."""
        ...

    @property
    def about(self) -> Mapping[str, Any]:
        """The fields of the description that change."""
        ...


class ResumableSource(RunSource, Protocol):
    """The work of a front end whose runs go on from files."""

    def compiled(self, folder: Path) -> LogicalGraph:
        """Return the graph of the run in a folder, as it was submitted."""
        ...

    def given(self, folder: Path) -> Mapping[str, StepInputs]:
        """Return what each step of the run in a folder was given, as far as its file says it."""
        ...

    def is_edited(self, described: Mapping[str, Any]) -> bool:
        """Return whether the file of a run, whose description is given, has other work now; False: it is not known."""
        ...

    def resume(self, folder: RunFolder, described: Mapping[str, Any], done: frozenset[str]) -> RunSpec:
        """Return the run of a folder again; `done` names the finished steps and items."""
        ...

    def revise(
        self,
        folder: RunFolder,
        described: Mapping[str, Any],
        file: str | None,
        overrides: Mapping[str, str],
        note: Note,
    ) -> Revised:
        """Return the run with another file or other parameters. ConflictError: it cannot continue with them."""
        ...


class SourceHost(Protocol):
    """The holder of the managers, and the reader of old runs."""

    @property
    def managers(self) -> Mapping[str, ManagerFactory]:
        """The vertex managers and job policies, by name."""
        ...

    def source_again(self, frontend: str, folder: Path, file: str) -> ResumableSource:
        """Return the source of a run, read from its folder. ConflictError: no front end can read it."""
        ...

    def ask_owner(self, folder: Path, message: Mapping[str, Any]) -> Any:
        """Return the answer of the owner of a run, here or at a cluster. ConflictError: nobody answers."""
        ...


class RunReader(SourceHost, Protocol):
    """A reader of runs, and of the cache."""

    def show(self, run: str) -> RunRecord:
        """Return the present state of a run."""
        ...

    def show_inner(self, run: RunRecord, step: str, *, alone: bool = False) -> list[RunRecord]:
        """Return the runs that a step of a run has begun itself."""
        ...

    def results(self, note: Callable[[str], None] | None = None) -> AbstractContextManager[ResultCache]:
        """Open the cache."""
        ...
