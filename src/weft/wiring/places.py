"""What a run has before it begins: an id, a place for outputs, copies of what lies elsewhere, its description."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from weft.frontends.pipelines.caching import code_of
from weft.frontends.pipelines.compiler import mounted_parts, planned_outputs, scoped_parts
from weft.frontends.pipelines.resolve import ResolvedStep
from weft.model.errors import ConflictError
from weft.model.records import as_dict
from weft.runtime.clock import RealClock
from weft.store.folders import make_folders
from weft.store.state import PLACE, RunFolder, os_error

if TYPE_CHECKING:
    from weft.admin.filesystems import Copy
    from weft.frontends.pipelines.resolve import Node
    from weft.store.catalog import Catalog
    from weft.wiring.loading import Loaded


_OUTPUTS: Final = ".pipeline"
DURABILITY: Final = "durability"
"""What `run.json` calls what a told end of a step survives: the setting that the run was begun with."""
CODE: Final = "code"
"""What `run.json` calls what the code of each step was made of when it was to run; see `code_of`."""


def hold_copies(loaded: Loaded, undo: ExitStack, note: Callable[[str], None], *, fetch: bool = True) -> list[Copy]:
    """Hold the copies of file systems that lie elsewhere, brought up to date, until `undo` lets go of them.

    MissingExtraError: fsspec is not installed. NotFoundError, ForbiddenError, DiskFullError: something cannot be
    fetched. ConflictError: something has changed that another run works with.
    """
    if not loaded.urls:
        return []
    from weft.admin.filesystems import Copy

    copies = []
    for name, url in loaded.urls.items():
        parts = mounted_parts(loaded.pipeline, name)
        if parts:
            parts = {**dict.fromkeys(scoped_parts(loaded.pipeline, name), False), **parts}
            copy = Copy(name, url, Path(loaded.file_systems[name]), parts)
            copies.append(copy)
            undo.callback(copy.hold(note, fetch=fetch))
    return copies


def take_id(catalog: Catalog, loaded: Loaded, copies: Sequence[Copy]) -> tuple[int, str]:
    """Take the next run id whose place for outputs is free: the main file system may know runs of another index."""
    sub_path = loaded.pipeline.main_fs.sub_path if loaded.pipeline.main_fs else ""
    place = place_of_outputs(loaded)
    taken: set[str] = set()
    if place is not None:
        taken = {run for copy in copies if copy.folder == loaded.root for run in copy.remote.names("/".join(place))}
    while True:
        run_id, number = catalog.next_run_id()
        if run_id in taken:
            continue
        if place is None:
            if sub_path:
                os.close(make_folders(loaded.root, Path(sub_path).parts))
            return number, run_id
        with suppress(ConflictError):
            make_place(loaded, place, run_id)
            return number, run_id


def make_place(loaded: Loaded, place: list[str], run_id: str) -> None:
    """Make the folder for the outputs of a run. ConflictError: another run has one of that name."""
    where = loaded.root.joinpath(*place)
    try:
        parent = make_folders(loaded.root, place)
        try:
            with suppress(FileExistsError):
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                with os.fdopen(os.open(".gitignore", flags, 0o644, dir_fd=parent), "w") as file:
                    file.write("*\n")
            os.mkdir(run_id, dir_fd=parent)
        finally:
            os.close(parent)
    except FileExistsError:
        raise ConflictError(f"{where / run_id} is there already", hint="Start a new run.") from None
    except OSError as error:
        raise os_error(f"the folder for outputs, {where}, cannot be made", error) from None


def place_of_outputs(loaded: Loaded) -> list[str] | None:
    """Return the names of the folders below the root in which a run makes one for its outputs; None: it makes none."""
    if not any(step.outputs for step in loaded.pipeline.steps.values()):
        return None
    sub_path = loaded.pipeline.main_fs.sub_path if loaded.pipeline.main_fs else ""
    return [*Path(sub_path).parts, _OUTPUTS]


def index_run(
    catalog: Catalog, loaded: Loaded, folder: RunFolder, number: int, nodes: list[Node], durability: str
) -> None:
    """Write what the run is into its folder and into the index."""
    from weft.store.catalog import RunRow

    told: dict[str, Any] = {
        "number": number,
        "name": loaded.pipeline_name,
        "frontend": loaded.graph.frontend,
        "user": loaded.user,
        "host": os.uname().nodename,
        "pid": os.getpid(),
        "created_at": RealClock().wall(),
    }
    about = about_run(loaded, nodes)
    own = {  # what a resume needs besides
        "renamed": loaded.origin.renamed,
        "root": str(loaded.root),
        "cache_off": loaded.caching.off,
        "only": loaded.caching.only,
        "mounts": loaded.around.mounts,
        "docker_env": loaded.around.docker_env,
        "main_fs": loaded.origin.main_fs,
        DURABILITY: durability,
    }
    folder.describe(**told, **about, **own)
    indexed = {"file": about["file"], "parameters": about["parameters"]}
    catalog.add_run(RunRow(id=folder.run_id, folder=str(folder.path), **told, **indexed))


def about_run(loaded: Loaded, nodes: list[Node]) -> dict[str, Any]:
    """Return what the description of a run tells of its pipeline: what an edit changes."""
    steps = [node for node in nodes if isinstance(node, ResolvedStep)]
    return {
        "file": str(loaded.file.absolute()),
        "parameters": {f"{step.name}.{name}": value for step in steps for name, value in step.parameters.items()},
        "steps": loaded.steps,
        "outputs": planned_outputs(nodes),
        "text": loaded.origin.text,
        "overrides": dict(loaded.origin.overrides),
        "built_with": dict(loaded.origin.built_with),
        "file_systems": dict(loaded.file_systems),
        "urls": dict(loaded.urls),
        "containers": None if loaded.containers is None else as_dict(loaded.containers),
        CODE: code_of(loaded.pipeline, nodes, str(loaded.file.absolute().parent)),
        PLACE: place_of_outputs(loaded),
    }
