"""Settings with their sources: flag > environment > profile of the run > `weft.toml` > the user's file > default."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from weft.model.clusters import ClusterOptions
from weft.model.errors import UsageError
from weft.model.resources import Resources
from weft.model.sizes import parse_size, unit_missing
from weft.model.suggestions import did_you_mean, nearest
from weft.runtime.arguments import wrong
from weft.store.places import PROJECT_FILE
from weft.store.state import StateRoot, current_user, find_project

BACKENDS: Final = ("threads", "processes", "ray")
NOT_SETTINGS: Final = frozenset(
    {"WEFT_CACHE_INDEX", "WEFT_PORTS", "WEFT_RECORD", "WEFT_SEED", "WEFT_SPU", "WEFT_TORCH"}
    | {"WEFT_RUN_STATE", "WEFT_RUN_ERROR", "WEFT_FAILED_STEPS"}
)
"""Variables with this prefix that are no settings: tests, benchmarks and the step of `post_process` read them."""
TABLES: Final = ("fs", "images", "profiles", "queues")
"""Tables of `weft.toml` for other readers."""
IMAGES: Final = ("ignore", "docker", "podman", "require")
MOUNTS: Final = ("auto", "off")
ISOLATIONS: Final = ("auto", "namespace", "ports", "container")
RULES: Final = ("fixed", "strict")
BOARDS: Final = ("off", "auto")
REQUESTS: Final = ("count", "ignore")
DURABILITY: Final = ("process", "power")
EVICTIONS: Final = ("furthest", "largest", "lru")
COLORS: Final = ("auto", "always", "never")
MOST_PRIORITY: Final = 1_000_000_000
_MAX_FILE: Final = 1 << 20


class SettingSource(Struct, frozen=True):
    """The source of a value: `kind` is flag, environment, profile, project, user or default; `place` names it."""

    kind: str
    place: str = ""

    @property
    def of_run(self) -> bool:
        """Whether the value was given for this run alone."""
        return self.kind in ("flag", "profile")

    def __str__(self) -> str:
        return f"{self.kind} ({self.place})" if self.place else self.kind


_DEFAULT: Final = SettingSource("default")


class Settings(Struct, frozen=True, kw_only=True):
    """The settings of a user. `origins` has the source of each value."""

    backend: str = "threads"
    """The backend: `threads`, `processes` or `ray`."""
    workers: int = 0
    """The number of tasks that run at a time; 0: the number of cores."""
    memory: int = 0
    """The bytes of chunks in memory before they spill to disk; 0: half of the machine's memory."""
    eviction: str = "furthest"
    """The eviction order: `furthest` (last to be read first), `largest`, or `lru` (least recently used first)."""
    stream_window: int = 0
    """The bytes that an edge between streaming tasks may hold; 0: 64 MiB, or a sixteenth of the memory if less."""
    gpus: int = 0
    """The number of GPUs for tasks that request them; 0: for training jobs those that are found, else none."""
    gpu_type: str = ""
    """The type of these GPUs."""
    cluster: str = ""
    """The Ray cluster of the backend `ray`: `host:port` or `auto`; empty: that of RAY_ADDRESS, else on this machine."""
    env: Path | None = None
    """The requirements file of pip whose packages the machines of a Ray cluster install for a session."""
    working_dir: Path | None = None
    """The folder that is copied to the machines of a Ray cluster: tasks begin there."""
    storage: str = ""
    """The URL by which machines of a Ray cluster without a shared folder get the files of pipelines; empty: none."""
    spill: Path | str | None = None
    """The folder for chunks on disk, or a URL; None: `spill` in the state folder."""
    state_dir: Path | None = None
    """The state folder; None: `.weft` beside the project, else in the user's state folder."""
    color: str = "auto"
    """Colours: `auto` (on a terminal that has them), `always` or `never`."""
    quiet: bool = False
    """Whether commands print no progress, and only the id of a run."""
    user: str = ""
    """The user name of runs; empty: the logged-in user."""
    docker_env: str = "ignore"
    """Images of pipelines: `ignore`; `docker` or `podman` if installed; `require`."""
    mounts: str = "auto"
    """Mounts: `auto` mounts folders at the mount paths of pipelines, visible only to the step; `off` does not."""
    trace: bool = True
    """Whether the files that a cached step opens while it runs are inputs of its result too (Linux)."""
    durability: str = "process"
    """The failure that a reported end of a step survives: the death of the `process`, or the loss of `power` too."""
    isolation: str = "auto"
    """The network of training jobs: `namespace`, `ports`, `container`, or `auto`, the first that works here."""
    outer_network: bool = False
    """Whether replicas in namespaces reach other networks than that of their job."""
    without_gpus: bool = False
    """Whether training jobs run without the GPUs that they request."""
    compat: str = "fixed"
    """The rules of training jobs: `fixed`, as documented, or `strict`, with the faults of the training operator."""
    tensorboard: str = "off"
    """TensorBoard beside training jobs: `off`, `auto` (at a free port) or a port."""
    priority: int | None = None
    """The priority of training runs; None: that of their files."""
    queue: str = ""
    """The queue of training runs; empty: that of their files, else `default`."""
    requests: str = "count"
    """What training jobs request: `count` it, or `ignore` it and start all replicas at once."""
    keep_last: int = 0
    """How many of the newest ended runs of a pipeline stay after each run of it; 0: all."""
    notify: str = ""
    """Where notices about the ends of runs go: a URL, `secret:NAME` with one, or a command; empty: nowhere."""
    origins: Mapping[str, SettingSource] = field(default_factory=dict)

    @property
    def worker_count(self) -> int:
        """The number of workers, at least 1."""
        if self.workers:
            return self.workers
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    def node(self, budget: int) -> Resources:
        """Return what the workers of this machine have together; `budget` is their memory in bytes."""
        return Resources(self.worker_count, budget, self.gpus, self.gpu_type)

    @property
    def user_name(self) -> str:
        """The user name of runs."""
        return self.user or current_user()

    def cluster_options(self, kept: ClusterOptions | None = None) -> ClusterOptions:
        """Return what a session on Ray wants: with `kept`, the options of a run, which only flags override."""

        names = {"address": "cluster", "requirements": "env", "working_dir": "working_dir"}
        found = {
            field: (getattr(self, name) or None)
            for field, name in names.items()
            if kept is None or self.origin(name).kind == "flag"
        }
        return replace(kept or ClusterOptions(), **found)

    def origin(self, name: str) -> SettingSource:
        """Return the source of the value of a setting."""
        return self.origins.get(name, _DEFAULT)

    def state_root(self, start: Path) -> StateRoot:
        """Return the state folder for work that begins in folder `start`."""
        return StateRoot.find(start, override=self.state_dir)


NAMES: Final = tuple(name for name in Settings.__struct_fields__ if name != "origins")


def load_settings(
    flags: Mapping[str, object] | None = None,
    *,
    start: Path | None = None,
    environ: Mapping[str, str] | None = None,
    user_file: Path | None = None,
    profile: tuple[str, Mapping[str, object]] | None = None,
) -> Settings:
    """Return the settings for work that begins in folder `start` (default: the current one).

    `flags` maps names to values, None if absent; `profile` is the name of the run's profile with its settings;
    `user_file` is for tests. Paths in a file are relative to its folder, those of a profile to `start`. UsageError
    names the file, the profile or the variable: an unknown name, or a value of the wrong type.
    """
    environ = os.environ if environ is None else environ
    start = Path.cwd() if start is None else start
    values: dict[str, Any] = {}
    origins: dict[str, SettingSource] = {}

    def take(name: str, value: object, origin: SettingSource, base: Path, shown: str) -> None:
        values[name] = _PARSERS[name](value, shown, base)
        origins[name] = origin

    project = find_project(start.absolute())
    files = {"user": user_config_file(environ) if user_file is None else user_file}
    if project is not None:
        files["project"] = project / PROJECT_FILE
    for kind, file in files.items():
        for name, value in _read(file).items():
            if name in TABLES and isinstance(value, dict):
                continue
            if name not in NAMES:
                raise UsageError(f"{file}: there is no setting {name!r}", hint=_nearest(name))
            shown = f"{file}: {name}"
            take(name, _typed(name, value, shown), SettingSource(kind, str(file)), file.parent, shown)
    for name, value in ({} if profile is None else profile[1]).items():
        shown = f"profile {profile[0] if profile else ''}: {name}"
        if name not in NAMES:
            raise UsageError(f"{shown}: there is no setting {name!r}", hint=_nearest(name))
        take(name, _typed(name, value, shown), SettingSource("profile", profile[0] if profile else ""), start, shown)
    for variable, value in (("FORCE_COLOR", "always"), ("NO_COLOR", "never")):  # known to many programs
        if environ.get(variable):
            take("color", value, SettingSource("environment", variable), start, variable)
    for variable, text in environ.items():
        name = variable.removeprefix("WEFT_").lower()
        if not variable.startswith("WEFT_"):
            continue
        if name in NAMES:
            take(name, text, SettingSource("environment", variable), Path.cwd(), variable)
        elif variable not in NOT_SETTINGS:
            known = [f"WEFT_{one.upper()}" for one in NAMES]
            near = nearest(name, NAMES)
            hint = f"Did you mean WEFT_{near.upper()}?" if near else f"Unset it. There are: {', '.join(known)}"
            raise UsageError(f"there is no setting {variable[:80]}", hint=hint)
    for name, given in (flags or {}).items():
        if given is not None:
            flag = "--" + name.replace("_", "-")
            if name not in NAMES:
                raise UsageError(f"there is no setting {name!r}", hint=_nearest(name))
            take(name, given, SettingSource("flag", flag), Path.cwd(), flag)
    return Settings(**values, origins=origins)


def check_setting(name: str, value: object, shown: str) -> None:
    """Check a value for a setting. UsageError: it is none, with `shown` as the name of what gives it."""
    _PARSERS[name](value, shown, Path.cwd())


def user_config_file(environ: Mapping[str, str] | None = None) -> Path:
    """Return the user's file: `weft/config.toml` in XDG_CONFIG_HOME (default: `~/.config`)."""
    given = (os.environ if environ is None else environ).get("XDG_CONFIG_HOME", "")
    return (Path(given) if Path(given).is_absolute() else Path.home() / ".config") / "weft" / "config.toml"


# -------------------------------------------------------------------------------------------------------------- values


_COUNT: Final = "a whole number from 0 to 999999"
_RANK: Final = f"a whole number from -{MOST_PRIORITY} to {MOST_PRIORITY}"
_TRUTH: Final = "true or false"


def _count(value: object, shown: str, _: Path) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**6:
        raise wrong(shown, value, _COUNT)
    return value


def _rank(value: object, shown: str, _: Path) -> int:
    if isinstance(value, str) and value.removeprefix("-").isascii() and value.removeprefix("-").isdigit():
        value = int(value[:12])
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MOST_PRIORITY:
        raise wrong(shown, value, _RANK)
    return value


def _bytes(value: object, shown: str, _: Path) -> int:
    try:
        size = parse_size(value) if isinstance(value, str) else value
    except (ValueError, OverflowError):
        size = -1
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 2**63:
        raise wrong(shown, value, "a number of bytes, such as 512MiB or 4GiB")
    if hint := unit_missing(value):
        raise wrong(shown, value, "a number of bytes with a unit", hint)
    return size


def _path(value: object, shown: str, base: Path) -> Path:
    if isinstance(value, Path):
        value = str(value)
    if not isinstance(value, str) or not value or "\0" in value:
        raise wrong(shown, value, "the path of a folder")
    return base.absolute() / Path(value).expanduser()


def _file(value: object, shown: str, base: Path) -> Path:
    if not isinstance(value, (str, Path)) or not str(value) or "\0" in str(value):
        raise wrong(shown, value, "the path of a file")
    return base.absolute() / Path(value).expanduser()


def _path_or_url(value: object, shown: str, base: Path) -> Path | str:
    return value if isinstance(value, str) and "://" in value else _path(value, shown, base)


def _storage(value: object, shown: str, _: Path) -> str:
    from weft.store.remote import shared_url  # few users have any

    if not isinstance(value, str):
        raise wrong(shown, value, "a URL, such as s3://bucket/prefix")
    return shared_url(value, shown) if value else ""


def _truth(value: object, shown: str, _: Path) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if isinstance(value, str):
        value = words.get(value.lower(), value)
    if not isinstance(value, bool):
        raise wrong(shown, value, _TRUTH)
    return value


def _text(value: object, shown: str, _: Path) -> str:
    if not isinstance(value, str) or not value.isprintable() or len(value) > 128:
        raise wrong(shown, value, "one line of text, at most 128 characters")
    return value


def _notify(value: object, shown: str, base: Path) -> str:
    from weft.admin.notices import valid_notify  # few settings have it

    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        value = shlex.join(value)
    if not isinstance(value, str):
        raise wrong(shown, value, "a URL, a command, or the list of its words")
    try:
        return valid_notify(value, base)
    except UsageError as error:
        raise UsageError(f"{shown}: {error.message}", hint=error.hint) from None


def _one_of(allowed: tuple[str, ...]) -> Callable[[object, str, Path], str]:
    def parse(value: object, shown: str, _: Path) -> str:
        if not isinstance(value, str) or value not in allowed:
            hint = did_you_mean(value, allowed) if isinstance(value, str) else ""
            raise wrong(shown, value, f"one of {', '.join(allowed)}", hint)
        return value

    return parse


def _board(value: object, shown: str, _: Path) -> str:
    text = str(value)
    port = text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) < 1 << 16
    if not (text in BOARDS or port):
        raise wrong(shown, value, "off, auto, or a port from 1 to 65535")
    return text


_PARSERS: Final[dict[str, Callable[[object, str, Path], Any]]] = {
    "backend": _one_of(BACKENDS),
    "workers": _count,
    "memory": _bytes,
    "eviction": _one_of(EVICTIONS),
    "stream_window": _bytes,
    "gpus": _count,
    "gpu_type": _text,
    "cluster": _text,
    "env": _file,
    "working_dir": _path,
    "storage": _storage,
    "spill": _path_or_url,
    "state_dir": _path,
    "color": _one_of(COLORS),
    "quiet": _truth,
    "user": _text,
    "docker_env": _one_of(IMAGES),
    "mounts": _one_of(MOUNTS),
    "trace": _truth,
    "durability": _one_of(DURABILITY),
    "isolation": _one_of(ISOLATIONS),
    "outer_network": _truth,
    "without_gpus": _truth,
    "compat": _one_of(RULES),
    "tensorboard": _board,
    "priority": _rank,
    "queue": _text,
    "requests": _one_of(REQUESTS),
    "keep_last": _count,
    "notify": _notify,
}


_NO_TEXT: Final[Mapping[Callable[[object, str, Path], Any], str]] = {_count: _COUNT, _rank: _RANK, _truth: _TRUTH}
"""What a file has in place of the text that a flag or a variable has."""


def _typed(name: str, value: object, shown: str) -> object:
    """Return the value of a setting in a file. UsageError: it is text, and the setting is not."""
    wanted = _NO_TEXT.get(_PARSERS[name])
    if wanted is not None and isinstance(value, str):
        raise wrong(shown, value, wanted, "Leave out the quotes.")
    return value


def _nearest(name: str) -> str:
    return did_you_mean(name.replace("-", "_"), NAMES, f"There are: {', '.join(NAMES)}")


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as source:
            data = source.read(_MAX_FILE + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    import tomllib

    if len(data) > _MAX_FILE:
        raise UsageError(f"{file} is larger than {_MAX_FILE >> 20} MiB", hint="Keep only settings in it.")
    try:
        return tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 text (byte {error.start})", hint="Save it as UTF-8.") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{file} is not TOML: {error}", hint='Write lines such as: backend = "processes"') from None
