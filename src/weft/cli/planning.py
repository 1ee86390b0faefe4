"""The commands that read a pipeline without running it: `weft graph` and `weft plan`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from weft.cli.arguments import AsJson, Given, ParamFile, PipelineOptions, StateDir, settings_of
from weft.cli.context import CommandContext
from weft.cli.tables import clean, one_line, print_json, print_table
from weft.model.errors import UsageError
from weft.model.records import as_dict

if TYPE_CHECKING:
    from weft.store.planning import Foreseen


def graph(
    file: Path,
    /,
    *,
    parameters: list[str] | None = None,
    param_file: ParamFile = None,
    fs: list[str] | None = None,
    dot: bool = False,
    as_json: AsJson = False,
    context: Given,
) -> None:
    """Draw the graph of a pipeline without running it."""
    from weft.graph.draw import to_dot, to_plain, to_text

    if dot and as_json:
        raise UsageError("--dot and --json exclude each other")
    base = context.cwd / file.parent
    settings = settings_of(context, base, {})
    wishes = PipelineOptions(parameters=parameters, param_file=param_file, fs=fs)
    loaded = context.service(settings, settings.state_root(base)).load(wishes.request(file, None))
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
    name: str | None = None,
    as_json: AsJson = False,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Print for each step of a pipeline whether it will run, and why. Nothing is started."""
    base = context.cwd / file.parent
    settings = settings_of(context, base, {**wishes.flags, "state_dir": state_dir})
    service = context.service(settings, settings.state_root(base))
    loaded = service.load(wishes.request(file, name))
    warn(context, loaded.warnings)
    print_plan(context, service.plan(loaded), as_json=as_json)


def warn(context: CommandContext, warnings: Sequence[str]) -> None:
    """Print warnings before a run."""
    for warning in warnings:
        context.say(f"warning: {clean(warning)}")


def print_plan(context: CommandContext, foreseen: Sequence[Foreseen], *, as_json: bool) -> None:
    """Print for each step whether it will run, and why."""
    if as_json:
        print_json(context.out, "weft.plan/1", steps=[as_dict(one) for one in foreseen])
        return
    print_table(
        context.console(),
        ("STEP", "WILL", "WHY"),
        [(one_line(one.step, 60), _WILL[one.outcome], one_line(one.reason, 300)) for one in foreseen],
    )


_WILL = {"hit": "be reused", "run": "run", "depends": "depend", "skipped": "be skipped"}
