"""The table of commands: the module of a command is loaded when the command runs, so that help stays quick."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.cli.parsing import CommandGroup
from weft.runs.verbs import VERBS

if TYPE_CHECKING:
    from weft.cli.context import CommandContext

app = CommandGroup("weft", help="One engine for the graphs that data and machine-learning teams run.")
config_app = CommandGroup("config", help="Show settings and where each comes from.")
app.command(config_app)
for _target, _help in {
    "running:run": "Run a pipeline and wait for its end.",
    "running:resume": "Continue a failed, cancelled, suspended or killed run; finished steps do not run again.",
    "listing:ls": "List the runs, newest first.",
    "listing:show": "Show one run, or one step of it: times, parameters, outputs and where its logs lie.",
    "history:logs": "Print the logs of a run, or of one step; of each task its latest attempt, unless one is named.",
    "history:why": "Say why a step ran, or where its result was taken from.",
    "planning:graph": "Draw the graph of a pipeline without running it.",
    "planning:plan": "Say for each step of a pipeline whether it will run, and why; nothing is started.",
    "diagnosis:doctor": "See whether what Weft keeps on disk is whole, and say what to do where it is not.",
    "diagnosis:errors": "Explain an error code.",
    "schedules:schedule_app": "Have pipelines run again and again.",
    "up:up": "Fire the schedules of a project, and run what `weft run -d` asks for, until Ctrl-C.",
    "results:cache_app": "Look at the results that are kept, and remove some.",
    **{f"lifecycle:{name}": VERBS[name].help for name in ("cancel", "suspend", "delete", "prune")},
    **{f"history:{name}": VERBS[name].help for name in ("story", "explain")},
}.items():
    app.command(f"weft.cli.{_target}", name=_target.partition(":")[2].removesuffix("_app"), help=_help)
config_app.command("weft.cli.diagnosis:config_show", name="show", help="Show the settings in force.")


def _version() -> str:
    from weft._version import __version__

    return f"weft {__version__}"


def dispatch(words: Sequence[str], context: CommandContext) -> int:
    """Parse the words of a command line, run the command, and return its exit code. UsageError: they make no sense."""
    context.words = words
    if words[:1] in (["--version"], ["-V"]):
        context.out.write(f"{_version()}\n")
        return 0
    found = app.parse(words)
    if isinstance(found, str):
        context.out.write(found)
        return 0
    extra = {"context": context} if "context" in found.wants else {}
    code = found.function(*found.args, **found.kwargs, **extra)
    return code if isinstance(code, int) else 0
