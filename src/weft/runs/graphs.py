"""Durable runs of graphs built by programs."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from msgspec import Struct

from weft.durability.programs import load_graph, pickle_graph
from weft.graph.spec import RunSpec
from weft.graph.validate import mark_results, validate
from weft.model.errors import ConflictError
from weft.runs.active import RunEvents
from weft.runs.listing import open_catalog
from weft.runs.opening import open_run
from weft.runs.reading import read_run, record_interruption
from weft.runs.reopening import continue_clock, own_again, refuse_resume, reopen_run, shown_path
from weft.store.state import GRAPH_DIGEST, read_description

if TYPE_CHECKING:
    from weft.graph.logical import LogicalGraph
    from weft.graph.projection import Projection
    from weft.runs.active import ActiveRun
    from weft.runtime.run import Listener
    from weft.runtime.session import EngineSession
    from weft.store.filesystems import Copy
    from weft.store.state import StateRoot


_CODE: Final = "code"
"""The key of `run.json` with the digests of the files whose functions are in the graph by value."""


class GraphSource(Struct):
    """A graph of a Python program; `about` goes into the description of its run."""

    graph: LogicalGraph
    projection: Projection
    user: str
    about: Mapping[str, Any]
    base: Path = Path()
    data: bytes = b""

    def at(self, *, many_machines: bool) -> Self:
        """Return the source itself."""
        return self

    def prepare(self, note: Callable[[str], None]) -> Self:
        """Return the source with the pickle of its graph. ProgramError: a function or an item cannot be pickled."""
        mark_results(self.graph)
        self.graph = self.graph.copy()  # without its builder, which has more fields
        self.data = pickle_graph(self.graph)
        return self

    def copies(self, undo: ExitStack, note: Callable[[str], None], *, fetch: bool = True) -> list[Copy]:
        """Do nothing: its tasks use no file system of Weft."""
        return []

    def claim(self, run_id: str, folder: Path, copies: Sequence[Copy]) -> RunSpec:
        """Return the run."""
        script = Path(sys.argv[0]) if sys.argv and sys.argv[0] else Path()
        file = str(script.absolute()) if script.is_file() else ""
        paths = [str(Path(path).absolute()) for path in sys.path]
        digest = sha256(self.data).hexdigest()
        code = _code_inside(self.data, file) if file else {}
        about = {"paths": paths, GRAPH_DIGEST: digest, _CODE: code, **self.about}
        steps = list(self.graph.vertices)
        return RunSpec(
            self.graph,
            self.projection,
            self.user,
            file=file,
            steps=steps,
            about=about,
            program=self.data,
            digest=digest,
        )


def begin_graph(
    state: StateRoot, source: GraphSource, session: EngineSession, listeners: Sequence[Listener]
) -> ActiveRun:
    """Begin a durable run of a graph on the workers of a session, and return it.

    GraphError, CapacityError: the graph cannot run there. ProgramError: a part of it cannot be pickled.
    """
    mark_results(source.graph)
    validate(source.graph, session.loop.pool.capacity())
    run = open_run(state, source, session.executor.tuning, session.managers, RunEvents(records=False))
    try:
        run.start(session, listeners)
    except BaseException:
        run.discard()
        raise
    return run


def resume_graph(
    state: StateRoot,
    run_id: str,
    words: Callable[[str], Projection],
    session: EngineSession,
    events: RunEvents,
    *,
    unfinished: bool = False,
) -> ActiveRun:
    """Take over a run of a Python program that any process began, on the workers of a session.

    `words` returns the projection of a front end. A run that has succeeded is not started: its results can be read,
    unless the caller wants an `unfinished` one.

    ConflictError: the run is active elsewhere, or is no durable run of a graph. NotFoundError: no such run, or its
    owner died before it was described.
    ForbiddenError: other users may write the files that would be unpickled. ProgramError: its functions cannot be
    loaded.
    """
    path = state.folder(run_id)
    before = read_run(path)
    if before.frontend and not before.of_session:
        raise ConflictError(
            f"{run_id} is a run of front end {before.frontend}, which no session can resume",
            hint=f"Resume it from the command line: weft resume {run_id}",
        )
    with ExitStack() as undo:
        folder = undo.enter_context(own_again(state, run_id))
        read_description(path)  # its owner may have died before it wrote one
        catalog = open_catalog(state)
        undo.callback(catalog.close)
        record_interruption(folder)
        before = read_run(path)
        if unfinished:
            refuse_resume(before, alive=False)
        graph, digest = load_graph(path)
        spec = RunSpec(graph, words(graph.frontend), "", steps=[step.name for step in before.steps], digest=digest)
        tuning, managers = session.executor.tuning, session.managers
        run = reopen_run(folder, catalog, undo.pop_all(), spec, before, tuning, managers, events)
    continue_clock(session, run.plan)
    plan = run.plan
    if plan is not None and plan.ended and plan.recovered is not None:
        run.show(session)
    else:
        _tell_of_edited_code(path, before.file, events.note)
        run.start(session)
    return run


def _code_inside(data: bytes, script: str) -> dict[str, str]:
    """Return the digests of the script and the modules beside it whose code is in a pickle, which names their files."""
    folder, installed = f"{os.path.dirname(script)}{os.sep}", f"{os.sep}site-packages{os.sep}"
    named = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
    files = {script, *(file for file in named if file.startswith(folder) and installed not in file)}
    found = {file: _digest_of(file) for file in sorted(files) if os.fsencode(file) in data}
    return {file: digest for file, digest in found.items() if digest}


def _digest_of(file: str) -> str:
    """Return the digest of a file, "" if it cannot be read."""
    try:
        return sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return ""


def _tell_of_edited_code(folder: Path, script: str, note: Callable[[str], None]) -> None:
    """Note the files that have changed since a run took functions from them, which run as they were."""
    for file, digest in read_description(folder).get(_CODE, {}).items():
        if _digest_of(file) not in ("", digest):
            note(
                f"{shown_path(file)} has changed since {folder.name} began, and the run goes on with its functions as "
                f"they were; for a new run: python {shlex.quote(shown_path(script))}"
            )
