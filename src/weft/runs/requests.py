"""`RunRequest`: the wishes for a run of a pipeline, which a service turns into a source of the run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from weft.model.errors import UsageError
from weft.store.filesystems import parse_given
from weft.store.labels import RunLabels, parse_tags, valid_note
from weft.store.places import STAGE

if TYPE_CHECKING:
    from weft.admin.settings import Settings
    from weft.runs.sources import PlannableSource
    from weft.runs.workers import Concrete
    from weft.store.state import StateRoot


_OF_KINDS: Final = (
    *("isolation", "outer_network", "compat", "priority", "queue", "requests", "workers", "gpus"),
    *("without_gpus", "tensorboard"),
)
"""The settings that kinds of steps read; those of files and of the environment they find themselves."""


class RunRequest(Struct, frozen=True):
    """The file of a pipeline, and the wishes for its run.

    `parameters` maps `NAME` or `STEP.NAME` to values, `fs` has pairs `NAME=FOLDER` or `NAME=URL`, and `name` replaces
    the name of the pipeline. With `no_cache` the cache is not used; the steps in `refresh`, and `start` with all that
    depends on it, are not looked up; only the step `only` runs, or only the steps that make the `targets`, with all
    that they need. The run has `tags` (`NAME=VALUE` or `NAME`) and a `note`; `profile`
    names its profile.
    """

    file: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    fs: Sequence[str] = ()
    name: str | None = None
    no_cache: bool = False
    refresh: Sequence[str] = ()
    start: str = ""
    only: str = ""
    targets: Sequence[str] = ()
    tags: Sequence[str] = ()
    note: str = ""
    profile: str = ""

    @property
    def labels(self) -> RunLabels:
        """The tags and the note. UsageError: one of them is not valid."""
        return RunLabels(tags=parse_tags(self.tags), note=valid_note(self.note))

    def words(self, folder: Path, flags: Mapping[str, object]) -> list[str]:
        """Return the words that pass these wishes and the settings `flags` to `weft run`.

        Relative paths are those of `folder`. The file and the name are left out.
        """
        pairs = [("-p", f"{name}={value}") for name, value in self.parameters.items()]
        pairs += [("-f", _absolute(pair, folder)) for pair in self.fs]
        pairs += [(f"--{key.replace('_', '-')}", str(value)) for key, value in flags.items() if value is not None]
        words = [word for pair in pairs for word in pair]
        pairs = [("--refresh", step) for step in self.refresh]
        pairs += [("--target", target) for target in self.targets]
        pairs += [*(("--tag", tag) for tag in self.tags), *([("--note", self.note)] if self.note else [])]
        pairs += [(option, step) for option, step in (("--from", self.start), ("--only", self.only)) if step]
        pairs += [("--profile", self.profile)] if self.profile else []
        return [*words, *(["--no-cache"] if self.no_cache else []), *(word for pair in pairs for word in pair)]


def load(request: RunRequest, concrete: Concrete, settings: Settings, state: StateRoot) -> PlannableSource:
    """Return the source of a requested run. UsageError: wishes exclude each other, or a file system is no pair."""
    if settings.origin("storage").of_run and settings.backend != "ray":
        raise UsageError(
            f"--storage is for runs at the machines of a cluster, not for the backend {settings.backend!r}",
            hint="Add: --backend ray",
        )
    if concrete.is_job_file(request.file):
        if settings.origin("storage").of_run:
            message = (
                f"--storage cannot be used here: the replicas of {request.file} need a folder that all machines share"
            )
            raise UsageError(message, hint="Leave it out, and run it from such a folder.")
        options_given = {
            "-p": request.parameters,
            "-f": request.fs,
            "--no-cache": request.no_cache,
            "--refresh": request.refresh,
            "--from": request.start,
            "--only": request.only,
            "--target": request.targets,
            "--profile": request.profile,
        }
        if given := [option for option, value in options_given.items() if value]:
            message = (
                f"{', '.join(given)} cannot be used here: {request.file} has training jobs, not the steps of a pipeline"
            )
            raise UsageError(message, hint="See what it would start: weft plan FILE")
        return concrete.load_jobs(request.file, settings, state, name=request.name)
    options: dict[str, Any] = {}
    if request.no_cache or request.refresh or request.start or request.only or request.targets:
        if request.only and request.targets:
            raise UsageError("--only excludes --target", hint=f"Name it as a target too: --target {request.only}")
        if request.no_cache and (request.refresh or request.start):
            raise UsageError("--no-cache excludes --refresh and --from")
        options["caching"] = concrete.Caching(
            off=request.no_cache,
            refresh=frozenset(request.refresh),
            start=request.start,
            only=request.only,
            targets=tuple(request.targets),
        )
    own = (settings.mounts, settings.docker_env, settings.state_dir, settings.workers, settings.storage)
    flags = {name: getattr(settings, name) for name in _OF_KINDS if settings.origin(name).of_run}
    if own != ("auto", "ignore", None, 0, "") or request.fs or flags or not settings.trace:
        options["around"] = concrete.Surroundings(
            mounts=settings.mounts != "off",
            docker_env=settings.docker_env,
            trace=settings.trace,
            file_systems=parse_given(list(request.fs)),
            stage=state.path / STAGE,
            workers=settings.workers,
            settings=flags,
            storage=settings.storage,
        )
    if request.profile:
        options["profile"] = request.profile
    user = settings.user_name
    return concrete.load_pipeline(request.file, overrides=request.parameters, user=user, name=request.name, **options)


def portable(request: RunRequest) -> RunRequest:
    """Return a request that means the same in every current folder."""
    here = Path.cwd()
    return replace(request, file=os.path.abspath(request.file), fs=[_absolute(pair, here) for pair in request.fs])


def _absolute(pair: str, folder: Path) -> str:
    """Return `NAME=FOLDER` with an absolute folder."""
    name, _, text = pair.partition("=")
    return pair if "://" in text else f"{name.strip()}={folder / text.strip()}"
