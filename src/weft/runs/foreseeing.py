"""What a run would do, before it is started: whether its steps and jobs fit, and results taken from an earlier run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from weft.model.errors import CapacityError, ConflictError, NotFoundError, UsageError
from weft.runs.listing import by_end, is_part, list_runs
from weft.store.state import owned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.admin.settings import Settings
    from weft.graph.job_plan import JobPlan
    from weft.model.resources import Resources
    from weft.runs.sources import PlannableSource, RunReader
    from weft.store.catalog import RunRow
    from weft.store.state import StateRoot
    from weft.store.touching import TouchedStep

_SHOWN: Final = 3


def misfit(source: PlannableSource, settings: Settings) -> CapacityError | None:
    """Return the error with which a run would be refused; see `RunService.misfit`."""
    from weft.graph.rules.vertices import check_fits
    from weft.model.resources import ONE_SLOT_ONLY
    from weft.store.accounting import default_budget
    from weft.store.folders import shm_root

    if settings.backend == "ray":
        return None
    node = settings.node(settings.memory or default_budget(shm_root()))
    fits: tuple[Resources, ...] = ONE_SLOT_ONLY
    try:
        for vertex in source.graph.vertices.values():
            if vertex.resources is not ONE_SLOT_ONLY and vertex.resources is not fits:
                check_fits(vertex, [node])
                fits = vertex.resources  # most steps share one tuple
    except CapacityError as error:
        return error
    return None


def touch_run(state: StateRoot, reader: RunReader, source: PlannableSource, run: str) -> list[TouchedStep]:
    """Record the outputs of an earlier run as the results of steps as they are now; see `RunService.touch`."""
    from weft.store.touching import touch

    if source.jobs_planned():
        raise UsageError("--touch is for pipelines: training jobs have no results in the cache")
    frontend = source.graph.frontend
    if not run:
        run = _run_to_touch(state, source)
    before = reader.show(run)
    if before.frontend != frontend:
        raise UsageError(f"{before.id} is no run of a pipeline: its outputs are not those of steps")
    if owned(before.folder):
        hint = f"Wait for its end: weft watch {before.id}"
        raise ConflictError(f"{before.id} is still running, and its outputs may change", hint=hint)
    times = {step.name: step.started for step in before.steps if step.started is not None}
    graph = reader.source_again(before.frontend, before.folder, before.file).compiled(before.folder)
    items = {vertex.step or id: vertex.program.items or () for id, vertex in graph.vertices.items()}
    with reader.results() as cache:
        return touch(cache, state.path, source.planned(state.runs, before.id), before.id, times, items)


def _run_to_touch(state: StateRoot, source: PlannableSource) -> str:
    """Return the last run of the whole pipeline that has succeeded with the present parameters, or one of a part of it.

    NotFoundError: none has succeeded. ConflictError: all had other parameters. A parameter that only the run or only
    the pipeline has is an edit, like one of a command.
    """
    name = source.graph.name
    found, _ = list_runs(state, limit=None, state="succeeded", name=name)
    rows = by_end(row for row in found if row.frontend == source.graph.frontend)
    if not rows:
        hint = "Name a run: --touch=RUN"
        raise NotFoundError(f"no run of {name} has succeeded: there are no outputs to take", hint=hint)
    candidates = [row for row in rows if not is_part(state.folder(row.id))] or rows[:1]
    now = source.parameters
    for row in candidates:
        if not _unlike(row, now):
            return row.id
    last = candidates[0]
    unlike = _unlike(last, now)
    more = f" (and {len(unlike) - _SHOWN} more)" if len(unlike) > _SHOWN else ""
    raise ConflictError(
        f"no run of {name} has succeeded with these parameters; in {last.id}, the last one, "
        f"{', '.join(unlike[:_SHOWN])}{more}; nothing is recorded",
        hint=f"Give the parameters of a run with -p, or take its outputs for these all the same: --touch={last.id}",
    )


def _unlike(row: RunRow, now: Mapping[str, Any]) -> list[str]:
    """Return in words the parameters of which a run had other values than `now`."""
    return [
        f"{name} was {json.dumps(was, ensure_ascii=False)} and is {json.dumps(now[name], ensure_ascii=False)}"
        for name, was in row.parameters.items()
        if name in now and json.dumps(was).replace(row.id, "{{PF_RUN_ID}}") != json.dumps(now[name])
    ]


def plan_jobs(source: PlannableSource) -> list[JobPlan]:
    """Return what a run of training jobs would start, and whether its gangs fit; see `RunService.plan_jobs`."""
    from weft.runtime.claims import MachineShare, SlotClaim, refusal

    found = []
    for plan in source.jobs_planned():
        gang = plan.gang
        if gang is not None:
            limit = None if gang.limit is None else MachineShare(*gang.limit)
            amount, room = MachineShare(*gang.needs), MachineShare(*gang.has)
            claim = SlotClaim(
                id="", run="", session="", amount=amount, room=room, parts=gang.parts, queue=gang.queue, limit=limit
            )
            plan = replace(plan, gang=replace(gang, refusal=refusal(claim)))
        found.append(plan)
    return found
