"""Parameters that several commands share, and the service of their options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from weft.cli.context import CommandContext
from weft.cli.parsing import CommandParameter
from weft.model.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from weft.admin.settings import Settings
    from weft.runs.service import RunService

Given = Annotated[CommandContext, CommandParameter(parse=False)]
AsJson = Annotated[bool, CommandParameter(name="--json", help="Print one JSON document.")]
RunName = Annotated[str, CommandParameter(help="An id, a unique prefix of one, a number, @last or @failed.")]
Target = Annotated[str, CommandParameter(help="RUN, RUN/STEP or RUN/STEP@ATTEMPT.")]
File = Annotated[
    Path, CommandParameter(help="The pipeline: a YAML or Python file (file.py:name), or - for standard input.")
]
Project = Annotated[
    Path | None, CommandParameter(name=["-C", "--project"], help="Use the runs of the project in this folder.")
]
StateDir = Annotated[Path | None, CommandParameter(name="--state-dir", help="Use this state folder.")]
Params = Annotated[
    list[str] | None, CommandParameter(name=["-p", "--param"], help="Set a parameter: NAME=VALUE or STEP.NAME=VALUE.")
]
Workers = Annotated[str | None, CommandParameter(help="The number of tasks that run at a time.")]
Backend = Annotated[str | None, CommandParameter(help="The backend: threads or processes.")]
Memory = Annotated[str | None, CommandParameter(help="The memory for data before it spills to disk, such as 4GiB.")]
User = Annotated[str | None, CommandParameter(help="The user name of the run.")]
Eviction = Annotated[str | None, CommandParameter(help="The eviction order: furthest, largest or lru.")]
StreamWindow = Annotated[
    str | None,
    CommandParameter(name="--stream-window", help="The bytes that an edge between streaming tasks may hold."),
]
Durability = Annotated[
    str | None,
    CommandParameter(help="The failure that a reported end of a step survives: process or power."),
]
DockerEnv = Annotated[
    str | None,
    CommandParameter(name="--docker-env", help="Images of steps: ignore, docker, podman or require."),
]
FileSystems = Annotated[
    list[str] | None,
    CommandParameter(name=["-f", "--fs"], help="Define a file system: NAME=FOLDER, or NAME=URL of fsspec."),
]
NoCache = Annotated[bool, CommandParameter(name="--no-cache", help="Neither read nor write the cache.")]
Refresh = Annotated[
    list[str] | None,
    CommandParameter(name="--refresh", help="Run this step even if the cache has its result, and keep the new result."),
]
Start = Annotated[str, CommandParameter(name="--from", help="Run this step and all steps that depend on it.")]
Only = Annotated[str, CommandParameter(name="--only", help="Run only this step and the steps that it needs.")]
EntryKey = Annotated[str, CommandParameter(help="The key of a result, or a unique prefix of one.")]
Detach = Annotated[
    bool, CommandParameter(name=["-d", "--detach"], help="Run in the background, and print the id of the run.")
]
ParamFile = Annotated[Path | None, CommandParameter(name="--param-file", help="Parameters in a JSON or TOML file.")]


def not_from_stdin(file: Path, what: str) -> None:
    """Require that a pipeline is a file. UsageError: it is `-`, and `what` has no standard input to read."""
    if str(file) == "-":
        raise UsageError(
            f"{what} cannot read a pipeline from standard input", hint="Write it to a file, and name that."
        )


def settings_of(context: CommandContext, base: Path, flags: Mapping[str, object]) -> Settings:
    """Return the settings for work that begins in folder `base`; `flags` are the options of the command line."""
    from weft.admin.settings import load_settings

    settings = load_settings(flags, start=base, environ=context.environ)
    context.color = settings.color
    return settings


def caching_of(context: CommandContext, off: bool, refresh: list[str] | None, start: str, only: str) -> dict[str, Any]:
    """Return the `caching` argument for the cache options, or nothing if none is given."""
    if not (off or refresh or start or only):
        return {}
    if off and (refresh or start):
        raise UsageError("--no-cache excludes --refresh and --from")
    caching = context.wiring().Caching(off=off, refresh=frozenset(refresh or ()), start=start, only=only)
    return {"caching": caching}


def around_of(context: CommandContext, settings: Settings, base: Path, fs: list[str] | None) -> dict[str, Any]:
    """Return the `around` argument for mounts, images and file systems, or nothing if all have their defaults."""
    from weft.store.filesystems import STAGE, parse_given

    if (settings.mounts, settings.docker_env, settings.state_dir) == ("auto", "ignore", None) and not fs:
        return {}
    stage = settings.state_root(base).path / STAGE
    given = parse_given(fs or [])
    features = {"mounts": settings.mounts != "off", "docker_env": settings.docker_env}
    return {"around": context.wiring().Surroundings(**features, file_systems=given, stage=stage)}


def service_of(context: CommandContext, project: Path | None, state_dir: Path | None) -> RunService:
    """Return the service of the state folder of the options. NotFoundError: the project does not exist."""
    base = context.cwd / (project or "")
    if not base.is_dir():
        raise NotFoundError(f"there is no folder {base}", hint="Give -C the folder of a project.")
    settings = settings_of(context, base, {"state_dir": state_dir})
    return context.service(settings, settings.state_root(base))


def seconds_of(text: str, option: str) -> float:
    """Return the seconds of a duration such as 30d, 12h or 90m. UsageError names the option: no duration."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
    number, unit = text[:-1], units.get(text[-1:])
    if unit is None or not number.isascii() or not number.isdigit() or len(number) > 9:
        what = "0 or more" if text.startswith("-") else "a time"
        raise UsageError(f"{option} is {text[:40]!r}; it must be {what}", hint="For example: 30d, 12h, 90m")
    return float(number) * unit


def read_overrides(pairs: Sequence[str], file: Path | None) -> dict[str, str]:
    """Return the parameters of the command line: those of the file, overridden by pairs `NAME=VALUE`."""
    found = {} if file is None else _read_parameters(file)
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"-p {pair!r} is not of the form NAME=VALUE", hint="For example: -p epochs=20")
        found[name.strip()] = value
    return found


def _read_parameters(file: Path) -> dict[str, str]:
    """Read parameters from a JSON file (suffix .json) or a TOML file; tables become `step.name`."""
    import json
    import tomllib

    limit = 1 << 20
    try:
        with file.open("rb") as source:
            data = source.read(limit + 1)
        if len(data) > limit:
            raise UsageError(f"{file} is larger than 1 MiB")
        text = data.decode()
        found = json.loads(text) if file.suffix.lower() == ".json" else tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # not JSON, not TOML, not UTF-8
        kind = "JSON" if file.suffix.lower() == ".json" else "TOML"
        raise UsageError(f"{file} is not {kind}: {error}", hint="Write names and values in it.") from None
    if not isinstance(found, dict):
        raise UsageError(f"{file} does not hold names and values", hint='Write for example {"epochs": 20}')
    flat: dict[str, str] = {}
    for name, value in found.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}": _as_text(inner_value) for inner, inner_value in value.items()}
        else:
            flat[name] = _as_text(value)
    return flat


def _as_text(value: object) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
