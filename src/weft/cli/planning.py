"""The commands that read a pipeline without running it: `weft graph` and `weft plan`."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from weft.cli.arguments import AsJson, Given, ParamFile, PipelineOptions, StateDir, WorkerOptions, folder_of
from weft.cli.context import CommandContext
from weft.cli.failures import error_document, report
from weft.cli.tables import clean, one_line, print_json, print_table
from weft.model.errors import UsageError
from weft.model.records import as_dict

if TYPE_CHECKING:
    from weft.runs.service import RunService
    from weft.runs.sources import PlannableSource
    from weft.store.touching import TouchedStep


def graph(
    file: Path,
    /,
    *,
    parameters: list[str] | None = None,
    param_file: ParamFile = None,
    fs: list[str] | None = None,
    profile: str = "",
    dot: bool = False,
    as_json: AsJson = False,
    context: Given,
) -> None:
    """Draw the graph of a pipeline without running it."""
    from weft.graph.draw import to_dot, to_plain, to_text

    if dot and as_json:
        raise UsageError("--dot and --json exclude each other")
    base = folder_of(context, file)
    wishes = PipelineOptions(parameters=parameters, param_file=param_file, fs=fs, profile=profile)
    settings = wishes.settings(context, file, {})
    loaded = context.service(settings, settings.state_root(base)).load(wishes.request(context, file, None))
    warn(context, loaded.warnings)
    if as_json:
        print_json(context.out, "weft.graph/1", graph=to_plain(loaded.graph))
        return
    drawn = to_dot(loaded.graph) if dot else to_text(loaded.graph, columns=context.page().width)
    context.out.write(clean(drawn).rstrip("\n") + "\n")


def plan(
    file: Path,
    /,
    *,
    wishes: PipelineOptions,
    workers: WorkerOptions,
    dsl: Path | None = None,
    name: str | None = None,
    as_json: AsJson = False,
    state_dir: StateDir = None,
    context: Given,
) -> int:
    """Print what a run would do: steps with reasons, replicas of training jobs, or parts of federated jobs."""
    with _without_collections():
        return _plan(file, wishes, workers, dsl, name, as_json=as_json, state_dir=state_dir, context=context)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Collect no cycles: a plan is a tree that lives until the end of the command, and many collections search it."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def _plan(
    file: Path,
    wishes: PipelineOptions,
    workers: WorkerOptions,
    dsl: Path | None,
    name: str | None,
    *,
    as_json: bool,
    state_dir: Path | None,
    context: CommandContext,
) -> int:
    if dsl is not None:
        from weft.cli.party_plans import print_federated_plan

        if name is not None or wishes != PipelineOptions() or workers != WorkerOptions():
            raise UsageError("--dsl is for federated jobs, which take no options of pipelines and training jobs")
        found = context.wiring().plan_federated(str(context.cwd / file), str(context.cwd / dsl))
        return print_federated_plan(context, found, as_json=as_json)
    base = folder_of(context, file)
    settings = wishes.settings(context, file, {**workers.flags, **wishes.flags, "state_dir": state_dir})
    service = context.service(settings, settings.state_root(base))
    loaded = service.load(wishes.request(context, file, name))
    warn(context, loaded.warnings)
    return print_plan(context, service, loaded, as_json=as_json)


def warn(context: CommandContext, warnings: Sequence[str]) -> None:
    """Print warnings before a run."""
    for warning in warnings:
        context.say(f"warning: {clean(warning)}")


def print_plan(context: CommandContext, service: RunService, loaded: PlannableSource, *, as_json: bool) -> int:
    """Print for each step whether it will run, and why, or the plans of training jobs; return the exit code."""
    jobs = service.plan_jobs(loaded)
    if jobs:
        from weft.cli.job_plans import print_job_plans

        if not as_json:
            warn(context, [warning for plan in jobs for warning in plan.warnings])
        return print_job_plans(context, jobs, loaded.warnings, as_json=as_json)
    foreseen = service.plan(loaded, note=lambda told: context.say(f"note: {clean(told)}"))
    misfit = service.misfit(loaded)
    here = loaded.warnings_here()
    if as_json:
        steps = [as_dict(one) for one in foreseen]
        refusal = None if misfit is None else error_document(misfit)
        print_json(context.out, "weft.plan/1", steps=steps, warnings=[*loaded.warnings, *here], refusal=refusal)
        return 0 if misfit is None else misfit.exit_code
    warn(context, here)
    heads: tuple[str, ...] = ("STEP", "WILL", "WHY")
    rows: list[tuple[str, ...]] = [
        (one_line(one.step, 60), _WILL[one.outcome], one_line(one.reason, 300)) for one in foreseen
    ]
    if any(one.how for one in foreseen):
        heads = (*heads, "HOW")
        rows = [(*row, one_line(one.how, 200)) for row, one in zip(rows, foreseen, strict=True)]
    print_table(context.console(), heads, rows)
    return 0 if misfit is None else report(misfit, context, as_json=False)


def print_touched(context: CommandContext, steps: Sequence[TouchedStep], *, as_json: bool) -> int:
    """Print what became of each step whose outputs were taken as its results; return the exit code."""
    if as_json:
        print_json(context.out, "weft.touch/1", steps=[as_dict(one) for one in steps])
    else:
        words = {"recorded": "recorded", "known": "known already", "left": "left out"}
        rows = [(one_line(one.step, 60), words[one.outcome], one_line(one.reason, 300)) for one in steps]
        print_table(context.console(), ("STEP", "RESULT", "WHY"), rows)
    return 0


_WILL = {"hit": "be reused", "run": "run", "depends": "depend", "skipped": "be skipped"}
