"""Queries that run nothing: the plan of a pipeline, the explanation of a run, and the history in its journal."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from weft.frontends.pipelines.caching import recipe_of
from weft.frontends.pipelines.compiler import outputs_of
from weft.frontends.pipelines.layout import check_run, compile_loaded, hold_copies, in_containers, place_of
from weft.frontends.pipelines.loading import loaded_again
from weft.frontends.pipelines.options import refreshed_vertices
from weft.frontends.pipelines.resolve import ResolvedStep
from weft.frontends.pipelines.source import FIRST_RUN, Loaded
from weft.model.errors import ConflictError, DefinitionError, NotFoundError, ProgramError
from weft.runtime.clock import RealClock
from weft.store.entries import cache_place
from weft.store.results import open_cache
from weft.wiring.concrete import MANAGERS

if TYPE_CHECKING:
    from pathlib import Path

    from weft.admin.settings import Settings
    from weft.engine.explain import Explained
    from weft.runs.planning import Foreseen


def plan_pipeline(loaded: Loaded, settings: Settings) -> list[Foreseen]:
    """Return the plan of each step: a hit, a run, or dependent on an earlier step. No run is made.

    Copies of remote file systems are updated, because steps would read them. DefinitionError: the mounts of a step are
    impossible.
    """
    from weft.runs.planning import PlannedTask, foresee
    from weft.runs.reading import item_name

    state = settings.state_root(loaded.file.absolute().parent)
    loaded = in_containers(loaded, lambda _: None, pull=False)
    compiled = compile_loaded(loaded, FIRST_RUN, place_of(loaded, state.runs / FIRST_RUN))
    check_run(loaded, compiled, mounted=False)
    refreshed = refreshed_vertices(compiled.graph, loaded.caching)
    planned = []
    for node in compiled.nodes:
        if not isinstance(node, ResolvedStep) or node.id not in compiled.graph.vertices:
            continue
        vertex = compiled.graph.vertices[node.id]
        if vertex.final:  # the step runs in any case
            continue
        depends = "on the list that it loops over" if node.lister else "on a loop above" if node.delivered else ""
        items = vertex.program.items or (None,)
        off = {"uncached": "no result is used or kept (--no-cache)"} if loaded.caching.off and node.cache.enable else {}
        for number in range(len(items)):
            one = PlannedTask(
                step=item_name(node.name, number),
                recipe=None if depends else recipe_of(vertex.program.params, number, items[number]),
                makes=() if node.lister else tuple(outputs_of(vertex, number).values()),
                skipped="it is disabled" if node.disabled else "it loops over nothing" if node.skipped else "",
                refresh=node.id in refreshed,
                depends=depends,
                **off,
            )
            planned.append(one)
    results = open_cache(cache_place(state.path), RealClock().wall)
    with ExitStack() as undo:
        undo.callback(results.index.database.close)
        hold_copies(loaded, undo, lambda _: None)
        return foresee(results, planned)


def explain_run(folder: Path) -> Explained:
    """Return the explanation of the run in a folder whose owner is gone.

    NotFoundError: there is no run. ConflictError: its description is damaged, or of a newer version.
    """
    from weft.durability.programs import load_graph
    from weft.runs.explaining import explain_run as explain
    from weft.runs.reading import read_run

    run = read_run(folder)
    if run.of_session:
        try:
            graph, digest = load_graph(folder)
        except (ConflictError, NotFoundError, ProgramError) as error:
            return explain(run, None, MANAGERS, why=f"its records alone tell this: {error.message}")
        return explain(run, graph, MANAGERS, digest)
    try:
        loaded = loaded_again(folder, run.file)
        made = compile_loaded(loaded, folder.name, place_of(loaded, folder)).graph
    except (ConflictError, NotFoundError, DefinitionError):
        made = None
    return explain(run, made, MANAGERS)


def story_run(folder: Path, subject: str = "") -> tuple[str, ...]:
    """Return the history of a vertex, a task or (with "") the run, from the journal of a session; [] if it has none.

    The owner of the run must be gone. ForbiddenError: other users could have written the files that would be loaded.
    """
    from weft.durability.programs import load_graph
    from weft.runs.explaining import replayed
    from weft.runs.reading import read_run

    if not read_run(folder).of_session:
        return ()
    try:
        graph, digest = load_graph(folder)
        return replayed(folder, graph, MANAGERS, digest).story(subject)
    except (ConflictError, NotFoundError, ProgramError):
        return ()
