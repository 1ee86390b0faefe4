"""Ports of front ends: the source of a new run, and of one that goes on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

    from weft.graph.spec import RunSpec
    from weft.store.filesystems import Copy
    from weft.store.state import RunFolder

Note = Callable[[str], None]


class RunSource(Protocol):
    """The work of a front end before it has a run id."""

    @property
    def base(self) -> Path:
        """The folder from which the state folder is looked for."""
        ...

    def prepare(self, note: Callable[[str], None]) -> Self:
        """Return it with what its steps need around them; errors where that is not there."""
        ...

    def copies(self, undo: ExitStack, note: Callable[[str], None], *, fetch: bool = True) -> list[Copy]:
        """Hold the copies of file systems that lie elsewhere until `undo` lets go of them."""
        ...

    def claim(self, run_id: str, folder: Path, copies: Sequence[Copy]) -> RunSpec | None:
        """Return the run of that id in that folder, with a place for its outputs; None: the id is taken elsewhere."""
        ...


class Revised(Protocol):
    """A run with an edited pipeline in the place of the one that it began with."""

    @property
    def source(self) -> ResumableSource:
        """The edited work."""
        ...

    @property
    def spec(self) -> RunSpec:
        """The run."""
        ...

    @property
    def before(self) -> RunSpec:
        """The run as it was."""
        ...

    @property
    def why(self) -> Callable[[str], str]:
        """The function that says why a step runs again; "" if it does not."""
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
        """The names of all that is there."""
        ...

    @property
    def about(self) -> Mapping[str, Any]:
        """The fields of the description that change."""
        ...


class ResumableSource(RunSource, Protocol):
    """The work of a front end whose runs go on from files."""

    def resume(self, folder: RunFolder, described: Mapping[str, Any], done: frozenset[str]) -> RunSpec:
        """Return the run of a folder again; `done` names the steps and items that have finished."""
        ...

    def revise(
        self,
        folder: RunFolder,
        described: Mapping[str, Any],
        file: str | None,
        overrides: Mapping[str, str],
        note: Note,
    ) -> Revised:
        """Return the run with another file or other parameters. ConflictError: it cannot go on with that."""
        ...
