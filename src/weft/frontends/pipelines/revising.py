"""Runs that continue with an edited pipeline or with other parameters."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from weft.frontends.pipelines import layout
from weft.frontends.pipelines.edits import compare, refusal
from weft.frontends.pipelines.kinds import PYTHON
from weft.frontends.pipelines.layout import CODE
from weft.frontends.pipelines.options import Caching, refreshed_vertices
from weft.frontends.pipelines.overrides import outdone, unknown_parameters
from weft.frontends.pipelines.reading import layered, origin_of, profile_of
from weft.model.errors import ConflictError, UsageError
from weft.store.filesystems import file_systems
from weft.store.places import STAGE

if TYPE_CHECKING:
    from weft.frontends.pipelines.compiler import PipelineSource
    from weft.frontends.pipelines.work import PipelineWork
    from weft.graph.spec import RunSpec
    from weft.store.state import RunFolder


class Revision(Struct, frozen=True):
    """The revision of a run: the new run, the old run, and the changed steps (see `edits.Edit`).

    `there` names all nodes of the new run; `about` has the changed fields of the description.
    """

    source: Any
    spec: RunSpec
    before: RunSpec
    why: Callable[[str], str]
    items: Mapping[tuple[str, int], str]
    wider: Mapping[str, str]
    removed: list[str]
    there: frozenset[str]
    about: dict[str, Any]


def revise(
    loaded: PipelineWork,
    folder: RunFolder,
    described: Mapping[str, Any],
    file: str | None,
    overrides: Mapping[str, str],
    note: Callable[[str], None],
) -> Revision:
    """Return the revision of a run with an edited pipeline, or with the same pipeline and other parameters.

    ConflictError: the run cannot continue with it. PipelineError, UsageError: the pipeline or a parameter is invalid.
    """
    own = loaded.origin
    if file is None:
        gone = outdone(own.pipeline(), own.overrides, overrides)
        kept = {name: value for name, value in own.overrides.items() if name not in gone}
        origin = replace(own, overrides={**kept, **overrides})
    else:
        given = own.built_with if PYTHON.search(file) and own.built_with else own.overrides
        profile = None if own.profile is None else profile_of(file, own.profile.name)
        origin = replace(
            origin_of(file, layered(file, given, overrides), None), renamed=own.renamed, main_fs=own.main_fs
        )
        origin = replace(origin, profile=profile)
        origin = _without_removed_parts(origin, overrides, note)
    pipeline = origin.pipeline()
    why = refusal(loaded.pipeline, pipeline)
    if why:
        hint = f"Start a new run: weft run {origin.file}. Steps with a cache are not run again."
        raise ConflictError(f"{folder.run_id} cannot continue with this: {why}", hint=hint)
    bound = file_systems(Path(os.path.abspath(origin.file)).parent, {}, folder.path.parent.parent / STAGE)
    folders = {**{name: str(one.folder) for name, one in bound.items()}, **loaded.file_systems}
    urls = {name: one.url for name, one in bound.items() if one.url and name not in loaded.file_systems}
    new = replace(loaded, pipeline=pipeline, origin=origin, file_systems=folders, urls={**urls, **loaded.urls})
    new = replace(new, containers=None)
    new = layout.in_containers(new, lambda _: None)
    if new.caching.refresh or new.caching.start:
        new = _without_unknown_refreshed(new, folder, note)
    compiled = layout.compile_loaded(new, folder.run_id, layout.place_of(new, folder.path))
    layout.check_run(new, compiled)
    where = layout.place_of_outputs(new)
    if where is not None and layout.place_of_outputs(loaded) is None:
        layout.make_place(new, where, folder.run_id)
    old = layout.compile_loaded(loaded, folder.run_id, layout.place_of(loaded, folder.path))
    about = layout.about_run(new, compiled)
    code = ({} if file is None else described.get(CODE, {}), about[CODE])
    edit = compare((loaded.pipeline, old.nodes), (pipeline, compiled.nodes), compiled.graph, code)
    return Revision(
        new,
        layout.spec_of(new, compiled, folder.path, about),
        layout.spec_of(loaded, old, folder.path, described),
        edit.why,
        edit.items,
        edit.wider,
        edit.removed,
        frozenset(node.name for node in compiled.nodes),
        about,
    )


def _without_unknown_refreshed(new: PipelineWork, folder: RunFolder, note: Callable[[str], None]) -> PipelineWork:
    """Drop those steps of `--refresh` and `--from` that an edited pipeline no longer has."""
    said = new.caching
    plain = replace(new, caching=replace(said, refresh=frozenset(), start=""))
    graph = layout.compile_loaded(plain, folder.run_id, layout.place_of(new, folder.path)).graph

    def known(name: str) -> bool:
        try:
            refreshed_vertices(new.pipeline, graph, Caching(refresh=frozenset({name})))
        except UsageError:
            note(f"the file no longer has step {name}, which was to run again")
            return False
        return True

    start = said.start if said.start and known(said.start) else ""
    return replace(new, caching=replace(said, refresh=frozenset(filter(known, said.refresh)), start=start))


def _without_removed_parts(
    origin: PipelineSource, given: Mapping[str, str], note: Callable[[str], None]
) -> PipelineSource:
    """Drop settings of earlier commands for parts that the file no longer has; `given` is checked later."""
    plain = replace(origin, overrides={}).pipeline()
    gone = [name for name in unknown_parameters(plain, origin.overrides) if name not in given]
    for name in gone:
        note(f"the file no longer has parameter {name}: its value {origin.overrides[name]} is dropped")
    overrides, built_with = (
        {name: value for name, value in values.items() if name not in gone}
        for values in (origin.overrides, origin.built_with)
    )
    return replace(origin, overrides=overrides, built_with=built_with)
