"""The table of commands: the module of a command is loaded when the command runs, so that help stays quick."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.cli.parsing import CommandGroup
from weft.runs.verbs import VERBS

if TYPE_CHECKING:
    from weft.cli.context import CommandContext

app = CommandGroup("weft", help="One engine for graphs of data and machine-learning work.")
config_app = CommandGroup("config", help="Show settings and their origins.")
app.command(config_app)
for _module, _verbs in {
    "running": ("run", "resume"),
    "sweeping": ("sweep",),
    "listing": ("ls", "show"),
    "watching": ("watch",),
    "counters": ("metrics",),
    "history": ("logs", "story", "explain", "why"),
    "reports": ("report",),
    "exporting": ("export",),
    "comparing": ("compare",),
    "lifecycle": ("cancel", "suspend", "scale", "fetch", "tag", "note", "delete", "prune"),
    "planning": ("graph", "plan"),
}.items():
    for _verb in _verbs:
        app.command(f"weft.cli.{_module}:{_verb}", verb=VERBS[_verb])
for _target, _help in {
    "diagnosis:doctor": "Check the files of Weft on disk, and print the next step for each problem.",
    "diagnosis:errors": "Explain an error code.",
    "boards:tensorboard": "Serve the event files of a run of training jobs with TensorBoard, until Ctrl-C.",
    "queries:sql": "Run an SQL query over Parquet, CSV and JSON files, and print its rows.",
    "schedules:schedule_app": "Run pipelines at regular times.",
    "up:up": "Fire the schedules of a project and start the runs of `weft run -d`, until Ctrl-C.",
    "party:party_app": "Run federated jobs with other parties: keys, servers, jobs, models.",
    "clusters:cluster_app": "Run a Ray cluster on this machine, to try with.",
    "results:cache_app": "List, show and remove results of the cache.",
}.items():
    app.command(f"weft.cli.{_target}", name=_target.partition(":")[2].removesuffix("_app"), help=_help)
config_app.command("weft.cli.diagnosis:config_show", name="show", help="Show the settings in force.")


def _version() -> str:
    from weft._version import __version__

    return f"weft {__version__}"


def dispatch(words: Sequence[str], context: CommandContext) -> int:
    """Parse the words of a command line, run the command and return its exit code. UsageError: no valid command."""
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
