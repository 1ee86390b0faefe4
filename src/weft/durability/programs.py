"""The graph of a Python program on disk: its pickle, and its way back into another process."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from weft.durability import pickles
from weft.graph.logical import LogicalGraph
from weft.model.errors import ConflictError, NotFoundError, ProgramError, UsageError, WeftError
from weft.store import codec, disk
from weft.store.state import GRAPH_DIGEST, os_error, read_description, read_trusted

PROGRAM: Final = "graph.pickle"
_ANOTHER: Final = "It cannot go on: start a new run."


def pickle_graph(graph: LogicalGraph) -> bytes:
    """Return a graph as bytes. ProgramError: a part of it cannot be pickled. UsageError: an item refuses it."""
    try:
        return pickles.to_pickle(graph)
    except ProgramError as error:
        for vertex in graph.vertices.values():
            try:
                pickles.to_pickle(vertex)
            except ProgramError as inner:
                cause = inner.__cause__ or inner
                if isinstance(cause, UsageError):  # of a value that says why, and what to do
                    raise cause from error
                raise ProgramError(
                    f"vertex {vertex.id!r} cannot be pickled for a resume: {type(cause).__name__}: {cause}",
                    hint="Its function with its closure, its params and items must be picklable; "
                    "or open the session without durable.",
                ) from error
        raise


def write_file(path: Path, data: bytes) -> None:
    """Write a new file, closed to others, complete or not at all. ForbiddenError, DiskFullError: not possible."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
        draft.replace(path)
        disk.sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        raise os_error(f"{path} cannot be written", error) from None


def load_graph(folder: Path) -> tuple[LogicalGraph, str]:
    """Return the graph of a run and its digest; the import paths of its program are added to this process.

    NotFoundError: it is missing. ForbiddenError: another user could have written it. ProgramError: a function of it
    cannot be imported here. ConflictError: it is no graph.
    """
    try:
        data = read_trusted(folder, PROGRAM)
    except NotFoundError as error:
        raise NotFoundError(f"the graph of {folder.name} is missing: {error.message}", hint=_ANOTHER) from None
    try:
        description = read_description(folder)
    except FileNotFoundError:
        description = {}
    digest, paths = sha256(data).hexdigest(), description.get("paths", [])
    if description.get(GRAPH_DIGEST, digest) != digest:
        raise ConflictError(f"{folder / PROGRAM} is damaged: its digest differs from the recorded one", hint=_ANOTHER)
    sys.path += [path for path in paths if isinstance(path, str) and path not in sys.path and Path(path).is_dir()]
    try:
        graph = codec.from_pickle(data)
    except WeftError as error:
        why = error.message.removeprefix("a value cannot be read back: ")
        raise ProgramError(
            f"the functions of {folder.name} cannot be loaded: {why}", hint=_way_out(error.__cause__)
        ) from None
    if not isinstance(graph, LogicalGraph):
        raise ConflictError(f"{folder / PROGRAM} has no graph", hint=_ANOTHER)
    return graph, digest


def _way_out(cause: BaseException | None) -> str:
    """Return the hint for functions that could not be loaded."""
    if isinstance(cause, ImportError):
        return "Modules that it imports must be where they were when it began, or on PYTHONPATH."
    if isinstance(cause, AttributeError):
        return "Functions and classes must have the names that they had when it began: name it so again."
    if isinstance(cause, SyntaxError):
        return f"Mend {cause.filename or 'the module'}, and resume again: modules are imported as they are now."
    if cause is None:
        return _ANOTHER
    place = next((frame for frame in reversed(traceback.extract_tb(cause.__traceback__)) if _of_user(frame)), None)
    where = f"{place.filename}, line {place.lineno}, raised it when it was imported. " if place is not None else ""
    return f"{where}Mend that, and resume again: modules are imported as they are now."


def _of_user(frame: traceback.FrameSummary) -> bool:
    return not frame.filename.startswith("<") and Path(__file__).parents[1] not in Path(frame.filename).parents
