"""The command that runs a pipeline for each point of a grid of parameters: `weft sweep`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs

from weft.cli.arguments import (
    AsJson,
    Detach,
    Given,
    LabelOptions,
    PipelineOptions,
    Quiet,
    StateDir,
    WorkerOptions,
    not_from_stdin,
    settings_of,
)
from weft.cli.planning import warn
from weft.cli.tables import clean, one_line, print_json, print_table, state_text
from weft.model.errors import UsageError
from weft.model.wording import duration, number_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from weft.cli.context import CommandContext
    from weft.cli.tables import PlainPage
    from weft.runs.requests import RunRequest
    from weft.runs.service import RunService
    from weft.runs.sweeps import Sweep, SweepPoint


_OF_THE_BEGIN: Final = {
    "parameters": "-p",
    "fs": "-f",
    "name": "--name",
    "no_cache": "--no-cache",
    "refresh": "--refresh",
    "start": "--from",
    "only": "--only",
    "targets": "--target",
    "tags": "--tag",
    "note": "--note",
}
"""The wishes for runs that a sweep keeps from its begin, with their options."""
_POINTS: Final = ("sample", "seed", "maximize", "stop_when", "halve")
"""The options of sweeps that it keeps."""


class SweepOptions(Struct, frozen=True):
    """The options about the points of a sweep and their order."""

    sample: int | None = None
    seed: int | None = None
    metric: str = ""
    maximize: bool = False
    at_a_time: int = 0
    stop_when: str = ""
    halve: str = ""
    resume: str = ""


def sweep(
    file: Path | None = None,
    /,
    *,
    wishes: PipelineOptions,
    name: str | None = None,
    workers: WorkerOptions,
    labels: LabelOptions,
    how: SweepOptions,
    quiet: Quiet = False,
    detach: Detach = False,
    as_json: AsJson = False,
    state_dir: StateDir = None,
    context: Given,
) -> int:
    """Run a pipeline for each point of a grid of parameters: -p lr=0.1,0.01 -p depth=1..5."""
    if (file is None) == (not how.resume):
        raise UsageError("give a pipeline, or the sweep to go on with", hint="For example: weft sweep --resume @last")
    if file is not None:
        not_from_stdin(file, "a sweep")
    if detach and context.begun is None:
        from weft.cli.running import in_background

        return in_background(context, None)
    base = context.cwd if file is None else context.cwd / file.parent
    own = {key: value for key, value in {**workers.flags, **wishes.flags}.items() if value is not None}
    flags = {**own, "state_dir": state_dir, "quiet": quiet or None}
    settings = settings_of(context, base, flags) if file is None else wishes.settings(context, file, flags)
    service = context.service(settings, settings.state_root(base))
    request = None
    if file is None:
        _refuse_unused(wishes.request(context, Path("-"), name, labels), how)
        settings = settings_of(context, base, {**service.sweep_flags(how.resume), **flags})
        service = context.service(settings, service.state)
    else:
        request = wishes.request(context, Path(os.path.abspath(context.cwd / file)), name, labels)
    context.wiring().make_ready(settings.backend)
    silent = as_json or settings.quiet
    found = service.sweep(
        request,
        **structs.asdict(how),
        flags={key: str(value) for key, value in own.items()},
        say=(lambda _: None) if silent else (lambda line: context.say(clean(line))),
    )
    context.hint = f"To go on with the points that are left: weft sweep --resume {found.plan.id}"
    warn(context, found.warnings)
    if not silent:
        sampled = f", chosen with seed {found.plan.seed}" if how.sample is not None else ""
        context.say(f"{found.plan.id}: {len(found.points)} points, {found.at_a_time} at a time{sampled}")
    if context.begun is not None:
        _begun(context, service, found.plan.id, as_json=as_json, quiet=settings.quiet)
    code: int = context.wiring().run_sweep(service, found)
    if silent:
        warn(context, found.remarks)
    if as_json:
        from weft.runs.sweeps import sweep_document

        print_json(context.out, "weft.sweep/1", **sweep_document(found))
    else:
        _print(context, found, quiet=settings.quiet)
    return code


def _begun(context: CommandContext, service: RunService, sweep: str, *, as_json: bool, quiet: bool) -> None:
    """Print, in the background, the id of the sweep that has begun; later output goes to a file of its own."""
    assert context.begun is not None
    if as_json:
        print_json(context.out, "weft.started/1", sweep=sweep)
    else:
        context.out.write(f"{sweep}\n")
        if not quiet:
            context.say(f"runs in the background; see its runs: weft ls --tag sweep={sweep}")
            context.say(f"end it: kill {os.getpid()}; then go on with it: weft sweep --resume {sweep}")
    folder = service.state.path / "sweeps" / sweep
    folder.mkdir(mode=0o700, exist_ok=True)
    context.begun(context, folder)


def _refuse_unused(request: RunRequest, how: SweepOptions) -> None:
    """Refuse options that an earlier sweep has of its own. UsageError: there are some."""
    given = [option for name, option in _OF_THE_BEGIN.items() if getattr(request, name)]
    given += [f"--{name.replace('_', '-')}" for name in _POINTS if getattr(how, name) not in (None, "", False)]
    if given:
        raise UsageError(
            f"{', '.join(given)} cannot be used with --resume: a sweep goes on as it began",
            hint="Leave out what is not --at-a-time, --metric or a setting, or begin a new sweep.",
        )


def _print(context: CommandContext, sweep: Sweep, *, quiet: bool) -> None:
    """Print the points, the best first."""
    points, plan = sweep.ranking(), sweep.plan
    if quiet:
        context.out.write("".join(f"{point.run}\n" for point in points if point.run))
        return
    out = context.console()
    rows: list[tuple[str | Text, ...]] = [
        (
            point.run or "-",
            _state(point, out),
            *(one_line(str(point.parameters[name]), 40) for name in plan.varied),
            *([("" if point.metric is None else number_text(point.metric))] if plan.metric else []),
            "" if point.seconds is None else duration(point.seconds),
            one_line(point.message, 200),
        )
        for point in points
    ]
    heads = ("RUN", "STATE", *plan.varied, *([plan.metric] if plan.metric else []), "TIME", "MESSAGE")
    print_table(out, [clean(head) for head in heads], rows)
    ended = [point for point in points if point.state == "succeeded"]  # others may have ended before they told it
    if plan.metric and ended and all(point.metric is None for point in ended):
        context.say(f"no run has the metric {clean(plan.metric)}: see the metrics of one with weft report RUN")
    left = sum(point.state != "succeeded" and point.dropped is None for point in points)
    if left and not sweep.satisfied:
        context.say(f"{left} of {len(points)} points have not succeeded; to go on: weft sweep --resume {plan.id}")


def _state(point: SweepPoint, out: Console | PlainPage) -> str | Text:
    """Return the state of the run of a point, or what became of a point that has none."""
    if point.dropped is not None:
        return "dropped"
    return state_text(point.state, out) if point.run else point.state
