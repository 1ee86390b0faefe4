"""`RunSpec`: one compiled run with its graph, its texts for users and the places of its files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

if TYPE_CHECKING:
    from pathlib import Path

    from weft.graph.logical import LogicalGraph, Vertex
    from weft.graph.projection import Projection
    from weft.model.resources import Placement, Resources


class CacheSpec(Struct, frozen=True):
    """The use of the cache by one run: `recipe_of` returns the inputs that the result of a task depends on.

    Tasks of the vertices `refresh` are not looked up. `placed` is called with the paths of outputs that came from the
    cache.
    """

    recipe_of: Callable[..., Any]
    refresh: frozenset[str] = frozenset()
    placed: Callable[[Iterable[str]], None] = lambda paths: None


class StepInputs(Struct, frozen=True):
    """What a step of a run was given: leaves as of the cache, and the paths of its input files by name.

    `later` are the outputs of loops of a width that only the run knows: names of steps without numbers of items, and of
    their outputs.
    """

    leaves: Mapping[str, str]
    files: Mapping[str, Sequence[str]]
    later: Sequence[tuple[str, str]] = ()


class CommandFiles(Struct, frozen=True):
    """The files that the commands of a step name, as absolute paths, and those that they write; they run in `root`."""

    root: str
    paths: Sequence[str]
    written: Collection[str] = ()


class MachineAddress(Struct, frozen=True):
    """The machine of a task: its name, and the address by which other machines reach it."""

    name: str
    host: str


HERE = MachineAddress("local", "127.0.0.1")
"""The machine of a session without a cluster."""
Wants = tuple[tuple[str, int, tuple["Resources", ...], "Placement | None"], ...]
"""Slots requested together: vertex, number of tasks, resources of one task in order of preference, placement."""


class RunFacts(Protocol):
    """A run that goes on, as its front end sees it while it answers a question."""

    def starts(self, vertex: str) -> Mapping[int, tuple[int, str]]:
        """Return the tasks of a vertex that run or may start: by index the number of the present or next start, and the
        kind of the last failure of a controlled one ("" for none).
        """
        ...

    def refusal(self, wants: Wants) -> str:
        """Return why tasks can never run together where the run gets its slots, as a clause; "" if they can."""
        ...


class RunHost(Protocol):
    """What a run needs of its front end while it runs, in the process that owns it."""

    def open(self) -> None:
        """Make what the tasks of the run need, before the first one starts. Errors end the run."""
        ...

    def assign(self, worker: int, devices: Sequence[str]) -> None:
        """Take the devices of the slot `worker`, before a task runs there; called from any thread."""
        ...

    def answer(self, question: Sequence[Any], machine: MachineAddress, run: RunFacts) -> Any:
        """Answer a question of a task that runs at a machine; called from any thread. See `TaskContext.ask_run`."""
        ...

    def follow_controller(self, memo: Callable[[], Any]) -> None:
        """Take the function that returns the present memo of the controller, before the run begins; any thread may call
        it.
        """
        ...

    def watch(self, memo: Any) -> Sequence[str]:
        """Take the new memo of the controller of the job, on a thread that may write; return the news for the user."""
        ...

    def rests(self, memo: Any) -> bool:
        """Whether nothing of the run goes on, as its file says, until someone resumes the run."""
        ...

    def failures(self) -> str:
        """Return which parts of the run have failed while others rest; "" if none has."""
        ...

    def limits(self, step: str) -> tuple[int, int, str]:
        """Return the least and the most tasks of a step that users may ask for, and the reason of these limits."""
        ...

    def wanted(self, step: str) -> int | None:
        """Return the number of tasks of a step that users have asked for last; None if it is not known."""
        ...

    def together(self, counts: Mapping[str, int]) -> Sequence[Mapping[str, int]]:
        """Return the numbers of tasks that need their slots together, by step, if steps have so many tasks."""
        ...

    def end(self, state: str, reason: str, at: float) -> None:
        """Take the end of the run: its state and reason, and the time; called on the thread of `watch`, after it."""
        ...

    def close(self) -> None:
        """Remove what `open` has made, when nothing of the run is left; a second call does nothing."""
        ...


class SharingSpec(Struct, frozen=True, kw_only=True):
    """How a run shares its machine with the runs of other processes.

    `room` and `limit` are cores, bytes of memory and GPUs: of the machine, and of the queue (None: no limit). A queue
    gets its part of the machine by `weight`. A `preemptible` run has a controller that stops and continues on request.
    Others see the run by `name`, its id without one.
    `devices` are the GPUs by their names, if each task is to have its own.
    """

    room: tuple[float, float, float]
    user: str = ""
    queue: str = "default"
    limit: tuple[float, float, float] | None = None
    weight: float = 1.0
    priority: int = 0
    preemptible: bool = False
    name: str = ""
    devices: tuple[str, ...] = ()


class RunSpec(Struct, frozen=True):
    """One run, compiled for its id and its folder.

    `user` is the user's name. `weft ls` shows `parameters`; `about` is added to the description of the run; `steps` are
    in order; `warnings` and `notes` are lines for users. `paths` returns the paths of the outputs of a task by name;
    without it the store keeps the values of tasks. `program` is the pickled graph and `digest` identifies it. `roots`
    are the folders that contain the outputs. `host` is open while the run is active. The controller of the job gets
    `requests` at its start, by name and payload. With `sharing` its slots come from the machine, not from those of the
    session. With `history`, the fingerprint of its work, what its vertices used is kept for later runs of the same.
    `named_files` returns, for a run that goes on, the files that the commands of each step name.
    """

    graph: LogicalGraph
    projection: Projection
    user: str
    file: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    steps: Sequence[str] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    notes: Sequence[str] = ()
    paths: Callable[[Vertex, int], dict[str, str]] | None = None
    program: bytes = b""
    digest: str = ""
    roots: tuple[Path, ...] = ()
    cache: CacheSpec | None = None
    host: RunHost | None = None
    requests: Sequence[tuple[str, Any]] = ()
    sharing: SharingSpec | None = None
    history: str = ""
    named_files: Callable[[], Mapping[str, CommandFiles]] = dict
