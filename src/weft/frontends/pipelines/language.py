"""The records of a pipeline file: components, parameters, mounts and options; and conversion of parameter values."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from weft.documents.problems import FileKind, FilePosition
from weft.frontends.pipelines.kinds import STEP_KINDS
from weft.model.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from weft.frontends.pipelines.templates import ParameterValue
    from weft.graph.logical import Retry
    from weft.model.resources import Resources

PIPELINE_FILE = FileKind(
    PipelineError,
    "pipeline",
    "a pipeline needs at least `name` and `entry_points`, a training job `apiVersion` and `kind`",
)
START = FilePosition(1, 1)
PARALLELISM_DEFAULT, PARALLELISM_MAX = 10, 20
NEVER_EXPIRES = -1
ParameterKind: TypeAlias = Literal["string", "int", "float", "path", "list"]
Strategy: TypeAlias = Literal["fail_fast", "continue"]
CACHE_MODES = ("content", "paddleflow")
"""The ways to compare files: by content, or by the time of the last change as in PaddleFlow."""


class SourceText(Struct, frozen=True, gc=False):
    """A text of the file, its position, and the path of its field; an absent one has neither."""

    value: str = ""
    mark: FilePosition = START
    path: str = ""


NO_TEXT = SourceText()


class ParameterDefinition(Struct, frozen=True):
    """A parameter of a step. `kind` is None if the file gives a bare value: any type is legal then."""

    name: str
    value: ParameterValue
    kind: ParameterKind | None = None
    mark: FilePosition = START
    path: str = ""


class LoopArgument(Struct, frozen=True):
    """The items of a loop: a list, or a text that is a JSON list or a single template."""

    value: str | tuple[ParameterValue, ...]
    mark: FilePosition = START
    path: str = ""


class FsScope(Struct, frozen=True):
    """The paths of one file system whose content belongs to a step's cache key; relative to its root.

    `paths_given`: the file names the paths; without them all of the file system counts.
    """

    name: str
    paths: tuple[str, ...] = ("/",)
    mark: FilePosition = START
    paths_given: bool = True


class CacheDefinition(Struct, frozen=True):
    """The cache options of a step. `given` names the fields that the file sets at this level.

    `max_expired_time` is in seconds; -1 means for ever.
    """

    enable: bool = False
    max_expired_time: int = NEVER_EXPIRES
    fs_scope: tuple[FsScope, ...] = ()
    mode: str = CACHE_MODES[0]
    given: frozenset[str] = frozenset()
    mark: FilePosition = START

    def over(self, general: CacheDefinition) -> CacheDefinition:
        """Return these options, completed by those of the whole pipeline: fields override, scopes are appended."""
        if not self.given and not self.fs_scope:
            return general
        return replace(
            self,
            enable=self.enable if "enable" in self.given else general.enable,
            max_expired_time=self.max_expired_time if "max_expired_time" in self.given else general.max_expired_time,
            fs_scope=self.fs_scope + general.fs_scope,
            mode=self.mode if "mode" in self.given else general.mode,
            given=self.given | general.given,
        )


class Mount(Struct, frozen=True):
    """A file system and the part of it that steps see. An empty `sub_path` means all of it."""

    name: str = ""
    mount_path: str = ""
    sub_path: str = ""
    read_only: bool = False
    mark: FilePosition = START


class FailureOptions(Struct, frozen=True):
    """The effect of a failed step on the others: `fail_fast` ends the run, `continue` only cancels its dependents."""

    strategy: Strategy = "fail_fast"
    mark: FilePosition = START


VENV, CONDA, PIXI = "venv", "conda", "pixi"
PACKAGE_KINDS = (VENV, CONDA, PIXI)
"""The kinds of environments of packages."""


class Packages(Struct, frozen=True):
    """The environment of packages of a step: its kind (`venv`, `conda` or `pixi`) and its file as written."""

    kind: str
    file: str
    mark: FilePosition = START
    path: str = ""


class Component(Struct, frozen=True):
    """The common fields of steps, dags and references. Maps keep the order of the file and must not be changed.

    `path` is the path of the field with the component, `mark` the position of its name.
    """

    name: str
    parameters: Mapping[str, ParameterDefinition] = field(default_factory=dict)
    deps: tuple[SourceText, ...] = ()
    inputs: Mapping[str, SourceText] = field(default_factory=dict)
    condition: SourceText = NO_TEXT
    loop: LoopArgument | None = None
    mark: FilePosition = START
    path: str = ""


class Step(Component, frozen=True):
    """One step as written. `kind` and `options` describe a step that is no command.

    `option_texts` are all texts of the options with their positions, `secrets` the names of secrets by variable.
    """

    command: SourceText = NO_TEXT
    docker_env: str = ""
    env: Mapping[str, SourceText] = field(default_factory=dict)
    secrets: Mapping[str, SourceText] = field(default_factory=dict)
    outputs: tuple[SourceText, ...] = ()
    cache: CacheDefinition = CacheDefinition()
    extra_fs: tuple[Mount, ...] = ()
    timeout_s: float | None = None
    retry: Retry | None = None
    resources: Resources | None = None
    packages: Packages | None = None
    stderr: SourceText = NO_TEXT
    kind: SourceText = NO_TEXT
    options: Mapping[str, Any] = field(default_factory=dict)
    option_texts: tuple[SourceText, ...] = ()

    @property
    def is_ray_job(self) -> bool:
        """Whether `env` makes the step a job of Ray."""
        if not self.env:
            return False
        framework = self.env.get("PF_JOB_FRAMEWORK")
        return not self.kind.value and framework is not None and framework.value.strip().lower() == "ray"

    @property
    def shell_text(self) -> SourceText:
        """The text for the shell: the entry point of a job of Ray, otherwise the command."""
        return self.env.get("RAY_JOB_ENTRY_POINT", NO_TEXT) if self.is_ray_job else self.command

    @property
    def output_names(self) -> frozenset[str]:
        """The names of its outputs."""
        return frozenset(text.value for text in self.outputs)


class Dag(Component, frozen=True):
    """Components inside a component; `outputs` maps names to templates of children's outputs."""

    children: Mapping[str, Component] = field(default_factory=dict)
    outputs: Mapping[str, SourceText] = field(default_factory=dict)

    @property
    def output_names(self) -> frozenset[str]:
        """The names of its outputs."""
        return frozenset(self.outputs)


class Reference(Component, frozen=True):
    """A copy of a component with other parameters and inputs; `references.expand` replaces all of them."""

    target: SourceText = NO_TEXT


class UnreadableComponent(Component, frozen=True):
    """A placeholder for an unreadable component, so that references to it are not reported too."""


class Pipeline(Struct, frozen=True, dict=True):
    """A whole file. The result of `parse_pipeline` is checked, the result of `parsing.read` is not."""

    name: str
    entry_points: Mapping[str, Component]
    file: str
    docker_env: str = ""
    parallelism: int = PARALLELISM_DEFAULT
    parallelism_given: bool = False
    disabled: tuple[SourceText, ...] = ()
    failure_options: FailureOptions = FailureOptions()
    cache: CacheDefinition = CacheDefinition()
    main_fs: Mount | None = None
    extra_fs: tuple[Mount, ...] = ()
    components: Mapping[str, Component] = field(default_factory=dict)
    post_process: Mapping[str, Component] = field(default_factory=dict)
    as_paddleflow: frozenset[str] = frozenset()
    kinds: Mapping[str, str] = field(default_factory=lambda: STEP_KINDS)

    @cached_property
    def steps(self) -> dict[str, Step]:
        """All steps under their dotted names, those of `post_process` last."""
        found = walk({**self.entry_points, **self.post_process})
        return {name: component for name, component in found if isinstance(component, Step)}

    @property
    def secret_names(self) -> list[str]:
        """The names of all secrets, each once."""
        return list(dict.fromkeys(text.value for step in self.steps.values() for text in step.secrets.values()))

    @property
    def disabled_names(self) -> frozenset[str]:
        """The dotted names of the disabled components."""
        return frozenset(entry.value for entry in self.disabled)


def walk(components: Mapping[str, Component], prefix: str = "") -> Iterator[tuple[str, Component]]:
    """Yield all components below, each before its children, with their dotted names."""
    stack = [(prefix + name, component) for name, component in components.items()][::-1]
    while stack:
        name, component = stack.pop()
        yield name, component
        if isinstance(component, Dag):
            stack += [(f"{name}.{child}", inner) for child, inner in component.children.items()][::-1]
