"""What a session needs of a run that is kept on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence

    from weft.engine.policy import ManagerFactory
    from weft.runtime.job import JobRun


class Durable(Protocol):
    """A run that is kept on disk; implemented by `weft.runs.active`.

    `name` is the id of the run, `settled` is set once its end is on disk, `gone` are finished tasks, by vertex, whose
    values are lost.
    """

    name: str
    settled: threading.Event
    gone: Mapping[str, Sequence[int]]

    @property
    def again(self) -> str:
        """The command that resumes the run; "" if there is none."""
        ...

    @property
    def notes(self) -> list[str]:
        """Remarks on the run, for people."""
        ...

    def managers(self, factories: Mapping[str, ManagerFactory]) -> Mapping[str, ManagerFactory]:
        """Return the factories of managers whose decisions are recorded."""
        ...

    def join(self, job: JobRun) -> None:
        """Attach to the job, which is about to begin."""
        ...

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the end is on disk and no thread of the run is left; False after `timeout_s` seconds."""
        ...

    def when_settled(self, action: Callable[[], None]) -> None:
        """Call an action when the end is on disk; it must return at once."""
        ...

    def close(self) -> None:
        """Release the run; its records stay."""
        ...
