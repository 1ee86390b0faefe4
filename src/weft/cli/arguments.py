"""Parameters that several commands share, and the service of their options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct, structs

from weft.cli.context import CommandContext
from weft.cli.parsing import CommandParameter
from weft.model.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from weft.admin.settings import Settings
    from weft.runs.requests import RunRequest
    from weft.runs.service import RunService
    from weft.store.state import StateRoot

Given = Annotated[CommandContext, CommandParameter(parse=False)]
AsJson = Annotated[bool, CommandParameter(name="--json", help="Print one JSON document.")]
Project = Annotated[
    Path | None, CommandParameter(name=["-C", "--project"], help="Use the runs of the project in this folder.")
]
StateDir = Annotated[Path | None, CommandParameter(name="--state-dir", help="Use this state folder.")]
EntryKey = Annotated[str, CommandParameter(help="The key of a result, or a unique prefix of one.")]
Quiet = Annotated[bool, CommandParameter(name=["-q", "--quiet"], help="Print only the id of the run.")]
Detach = Annotated[
    bool, CommandParameter(name=["-d", "--detach"], help="Run in the background, and print the id of the run.")
]
ParamFile = Annotated[Path | None, CommandParameter(name="--param-file", help="Parameters in a JSON or TOML file.")]


class Where(Struct, frozen=True):
    """The options that name a state folder."""

    project: Project = None
    state_dir: StateDir = None


class PipelineOptions(Struct, frozen=True):
    """The options that say which run a pipeline becomes."""

    parameters: list[str] | None = None
    param_file: ParamFile = None
    fs: list[str] | None = None
    user: str | None = None
    docker_env: str | None = None
    no_cache: bool = False
    refresh: list[str] | None = None
    start: str = ""
    only: str = ""
    targets: list[str] | None = None
    isolation: str | None = None
    outer_network: bool = False
    without_gpus: bool = False
    compat: str | None = None
    tensorboard: str | None = None
    priority: str | None = None
    queue: str | None = None
    requests: str | None = None
    gpus: str | None = None
    gpu_type: str | None = None
    profile: str = ""
    storage: str | None = None

    @property
    def flags(self) -> dict[str, object]:
        """The settings among them."""
        return {
            "docker_env": self.docker_env,
            "user": self.user,
            "isolation": self.isolation,
            "outer_network": self.outer_network or None,
            "without_gpus": self.without_gpus or None,
            "compat": self.compat,
            "tensorboard": self.tensorboard,
            "priority": self.priority,
            "queue": self.queue,
            "requests": self.requests,
            "gpus": self.gpus,
            "gpu_type": self.gpu_type,
            "storage": self.storage,
        }

    def request(
        self, context: CommandContext, file: Path, name: str | None, labels: LabelOptions | None = None
    ) -> RunRequest:
        """Return the request for a run of a pipeline file. UsageError: a tag or the note is not valid."""
        from weft.runs.requests import RunRequest

        parameters = read_overrides(context, str(file), self.parameters or [], self.param_file)
        fs, refresh = self.fs or (), self.refresh or ()
        labels = labels or LabelOptions()
        found = RunRequest(
            str(file),
            parameters,
            fs,
            name,
            self.no_cache,
            refresh,
            self.start,
            self.only,
            profile=self.profile,
            targets=self.targets or (),
            tags=labels.tags or (),
            note=labels.note,
        )
        _ = found.labels  # a wrong one starts nothing
        return found

    def settings(self, context: CommandContext, file: Path, flags: Mapping[str, object]) -> Settings:
        """Return the settings for a run of a file, with those of its profile below the `flags`."""
        profile = context.wiring().profile_of(str(file), self.profile) if self.profile else None
        return settings_of(
            context,
            folder_of(context, file),
            flags,
            profile=None if profile is None else (profile.name, profile.settings),
        )


class LabelOptions(Struct, frozen=True):
    """The tags and the note of a run."""

    tags: list[str] | None = None
    note: str = ""


class WorkerOptions(Struct, frozen=True):
    """The options about the workers of a run: settings, by their names."""

    workers: str | None = None
    backend: str | None = None
    cluster: str | None = None
    env: str | None = None
    working_dir: str | None = None
    memory: str | None = None
    eviction: str | None = None
    stream_window: str | None = None
    durability: str | None = None

    @property
    def flags(self) -> dict[str, object]:
        """All of them."""
        return structs.asdict(self)

    @property
    def words(self) -> list[str]:
        """The words of a command line with those that are given."""
        given = [(name, value) for name, value in self.flags.items() if value is not None]
        return [word for name, value in given for word in (f"--{name.replace('_', '-')}", str(value))]


def not_from_stdin(file: Path, what: str) -> None:
    """Require that a pipeline is a file. UsageError: it is `-`, and `what` has no standard input to read."""
    if str(file) == "-":
        raise UsageError(
            f"{what} cannot read a pipeline from standard input", hint="Write it to a file, and name that."
        )


def settings_of(
    context: CommandContext,
    base: Path,
    flags: Mapping[str, object],
    *,
    profile: tuple[str, Mapping[str, object]] | None = None,
) -> Settings:
    """Return the settings for work that begins in folder `base`.

    `flags` are the options of the command line; `profile` is the name of the run's profile with its settings.
    """
    from weft.admin.settings import load_settings

    settings = load_settings(flags, start=base, environ=context.environ, profile=profile)
    context.color = settings.color
    return settings


def folder_of(context: CommandContext, file: Path) -> Path:
    """Return the folder of a file whose project has its runs; a folder of job files is that itself."""
    path = context.cwd / file
    return path if path.is_dir() else path.parent


def service_of(context: CommandContext, where: Where, *, storage: str | None = None) -> RunService:
    """Return the service of the state folder of the options. NotFoundError: the project does not exist."""
    base = context.cwd / (where.project or "")
    if not base.is_dir():
        raise NotFoundError(f"there is no folder {base}", hint="Give -C the folder of a project.")
    settings = settings_of(context, base, {"state_dir": where.state_dir, "storage": storage})
    state = settings.state_root(base)
    say_diverted(context, state)
    return context.service(settings, state)


def party_folder(context: CommandContext, where: Where) -> Path | None:
    """Return the folder of the options if it is that of a party: its runs are federated jobs. None: it is not."""
    base = context.cwd / (where.project or "")
    return base if where.state_dir is None and (base / "party.json").is_file() else None


def say_diverted(context: CommandContext, state: StateRoot) -> None:
    """Say that the state lies outside of the project, if it does."""
    from weft.cli.tables import clean

    if state.diversion:
        context.say(f"note: {clean(state.diversion)}")


def where_options(context: CommandContext, where: Where) -> str:
    """Return the options that a command typed here needs to find the same state folder."""
    from weft.cli.tables import short_path

    if where.state_dir is not None:
        return f" --state-dir {short_path(where.state_dir, context.cwd)}"
    return "" if where.project is None else f" -C {short_path(where.project, context.cwd)}"


def seconds_of(text: str, option: str) -> float:
    """Return the seconds of a duration such as 30d, 12h or 90m. UsageError names the option: no duration."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
    number, unit = text[:-1], units.get(text[-1:])
    if unit is None or not number.isascii() or not number.isdigit() or len(number) > 9:
        what = "0 or more" if text.startswith("-") else "a time"
        raise UsageError(f"{option} is {text[:40]!r}; it must be {what}", hint="For example: 30d, 12h, 90m")
    return float(number) * unit


def given_once(found: dict[str, str], option: str, name: str, value: str) -> None:
    """Add what an option gives to a name. UsageError: another value is there."""
    if found.setdefault(name, value) != value:
        raise UsageError(f"{option} gives {name} twice: {found[name]} and {value}", hint="Leave out one of them.")


def read_overrides(context: CommandContext, pipeline: str, pairs: Sequence[str], file: Path | None) -> dict[str, str]:
    """Return the parameters of the command line for a pipeline: those of the file, overridden by pairs `NAME=VALUE`.

    UsageError: other syntax, or two values for one name.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"-p {pair!r} is not of the form NAME=VALUE", hint="For example: -p epochs=20")
        given_once(found, "-p", name.strip(), value)
    if file is None:
        return found
    from weft.cli.parameter_files import read_parameters

    below = read_parameters(file)
    merged: dict[str, str] = context.wiring().layered(pipeline, below, found)
    return merged
