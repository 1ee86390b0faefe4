"""The commands that read a pipeline without running it: `weft graph` and `weft plan`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from weft.cli.arguments import (
    AsJson,
    DockerEnv,
    File,
    FileSystems,
    Given,
    NoCache,
    Only,
    ParamFile,
    Params,
    Refresh,
    Start,
    StateDir,
    User,
    around_of,
    caching_of,
    read_overrides,
    settings_of,
)
from weft.cli.context import CommandContext
from weft.cli.parsing import CommandParameter
from weft.cli.tables import clean, one_line, print_json, print_table
from weft.model.errors import UsageError
from weft.model.records import as_dict

if TYPE_CHECKING:
    from weft.store.planning import Foreseen


def graph(
    file: File,
    /,
    *,
    params: Params = None,
    param_file: ParamFile = None,
    fs: FileSystems = None,
    dot: Annotated[bool, CommandParameter(name="--dot", help="Print the graph in the language of Graphviz.")] = False,
    as_json: AsJson = False,
    context: Given,
) -> None:
    """Draw the graph of a pipeline without running it."""
    from weft.graph.draw import to_dot, to_plain, to_text

    if dot and as_json:
        raise UsageError("--dot and --json exclude each other")
    settings = settings_of(context, context.cwd / file.parent, {})
    around = around_of(context, settings, context.cwd / file.parent, fs)
    loaded = context.wiring().load_pipeline(
        str(file), overrides=read_overrides(params or [], param_file), user=settings.user_name, name=None, **around
    )
    warn(context, loaded.warnings)
    if as_json:
        print_json(context.out, "weft.graph/1", graph=to_plain(loaded.graph))
        return
    drawn = to_dot(loaded.graph) if dot else to_text(loaded.graph, columns=context.page().width)
    context.out.write(clean(drawn).rstrip("\n") + "\n")


def plan(
    file: File,
    /,
    *,
    params: Params = None,
    param_file: ParamFile = None,
    fs: FileSystems = None,
    name: Annotated[str | None, CommandParameter(name=["-n", "--name"], help="The name of the run.")] = None,
    user: User = None,
    no_cache: NoCache = False,
    refresh: Refresh = None,
    start: Start = "",
    only: Only = "",
    as_json: AsJson = False,
    docker_env: DockerEnv = None,
    state_dir: StateDir = None,
    context: Given,
) -> None:
    """Print for each step of a pipeline whether it will run, and why. Nothing is started."""
    flags = {"state_dir": state_dir, "user": user, "docker_env": docker_env}
    settings = settings_of(context, context.cwd / file.parent, flags)
    loaded = context.wiring().load_pipeline(
        str(file),
        overrides=read_overrides(params or [], param_file),
        user=settings.user_name,
        name=name,
        **caching_of(context, no_cache, refresh, start, only),
        **around_of(context, settings, context.cwd / file.parent, fs),
    )
    warn(context, loaded.warnings)
    service = context.service(settings, settings.state_root(loaded.base))
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
