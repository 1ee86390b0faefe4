"""The nodes that a pipeline is resolved to for one run: steps with all values, and controls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field

from weft.documents.problems import show
from weft.frontends.pipelines.kinds import StepFrame
from weft.frontends.pipelines.states import IS_DISABLED, IS_EMPTY
from weft.model.errors import UsageError
from weft.model.patterns import late_pattern

if TYPE_CHECKING:
    from weft.frontends.pipelines.kinds import StepBody
    from weft.frontends.pipelines.language import CacheDefinition, Packages
    from weft.frontends.pipelines.parts import (
        Filled,
        OutputFolder,
        Places,
    )
    from weft.frontends.pipelines.templates import ParameterValue
    from weft.graph.logical import Retry
    from weft.model.resources import Resources

_USER = late_pattern(r"[\w.@+ -]{0,128}")
_RUN_ID = late_pattern(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


class MountPoint(Struct, frozen=True):
    """A file system as a step sees it: `source` is the folder of this machine, or None.

    `source` lies below the `root` of the file system, at its `sub_path`. The `main` one is where the step works, under
    its own path.
    """

    name: str
    mount_path: str
    source: str | None
    read_only: bool = False
    sub_path: str = ""
    main: bool = False
    root: str | None = None


class ResolvedStep(Struct, frozen=True):
    """One step of one run, ready to start.

    `command` is the text for `sh -c` and may be empty; `portable_command` is the same text with its templates of
    artifacts and of the loop's item, so that it names no folder of this run. `env` is the addition to the worker's own
    environment, `declared_env` the part that the file declares, `secrets` the names of secrets by variable. `inputs`
    and `outputs` map names to absolute paths, of a loop to those of its first item; `docker_env` is the image that the
    file asks for, or empty.

    `id` is the id of its vertex, `deps` are the ids of the vertices that it waits for; `name` is its name for users. A
    step that loops has `items`, or a vertex `lister` whose value they are. `places` are the paths of each input, known
    or not (`inputs` has the known ones, joined by commas), and `condition` is the condition of each item. `body`
    replaces the command of a step of another kind. `packages` is its environment of packages, with an absolute path.
    `apart`: its log tells errors from output.
    """

    name: str
    command: Filled
    env: Mapping[str, Filled]
    deps: tuple[str, ...]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    cwd: str
    cache: CacheDefinition
    timeout_s: float | None
    retry: Retry | None
    resources: Resources | None
    disabled: bool
    docker_env: str
    parameters: Mapping[str, ParameterValue]
    declared_env: Mapping[str, Filled]
    portable_command: str
    id: str
    folder: OutputFolder
    items: tuple[ParameterValue, ...] | None = None
    lister: str = ""
    places: Mapping[str, Places] = field(default_factory=dict)
    condition: Filled = ""
    mounts: tuple[MountPoint, ...] = ()
    body: StepBody | None = None
    secrets: Mapping[str, str] = field(default_factory=dict)
    ray: bool = False
    packages: Packages | None = None
    apart: bool = False

    @property
    def delivered(self) -> dict[str, Places]:
        """The inputs whose paths are values of other vertices."""
        if not self.places:
            return {}
        return {name: places for name, places in self.places.items() if name not in self.inputs}

    @property
    def frame(self) -> StepFrame:
        """What the kind of the step is told of it before a run."""
        return StepFrame(self.cwd, {**self.places, **self.inputs}, self.outputs, self.parameters)

    @property
    def loops(self) -> bool:
        """Whether the step has items, known or not."""
        return self.items is not None or bool(self.lister)

    @property
    def not_run(self) -> str:
        """The reason why the step never runs, "" if it may run."""
        return IS_DISABLED if self.disabled else IS_EMPTY if self.items == () else ""


DECIDE, LIST, REPEAT, JOIN, SKIP = "if", "loop", "repeat", "join", "skip"


class ControlStep(Struct):
    """A vertex that is no step. `id` is its own, `name` the users' name of its component.

    `kind`: DECIDE (decides whether `members` run), LIST (returns the items of a step's loop), REPEAT (makes the
    vertices of a dag for each item), JOIN (waits for others and returns the places of outputs) or SKIP (stands for a
    component that never runs, for the reason `not_run`). `deps` are the vertices that it waits for, `reads` those whose
    values it reads. `params` are as `body` defines them.
    """

    id: str
    name: str
    kind: str
    deps: tuple[str, ...]
    reads: tuple[str, ...] = ()
    params: dict[str, Any] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    not_run: str = ""


Node: TypeAlias = ResolvedStep | ControlStep


class RunIdentity(Struct, frozen=True):
    """The properties of a whole run: `root` is the absolute path of the main file system's folder.

    `file_systems` maps names of other file systems to folders of this machine. `folder` is the absolute path of the
    folder of the pipeline's file.
    """

    run_id: str
    user: str
    root: str
    file_systems: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""

    def check(self) -> None:
        """Raise UsageError for values that cannot be part of paths and commands."""
        if not _RUN_ID.fullmatch(self.run_id) or ".." in self.run_id:
            raise UsageError(f"{show(self.run_id)} cannot be a run id", hint="use letters, digits, _ - and single dots")
        if not _USER.fullmatch(self.user):
            # The name becomes part of commands, which a shell reads.
            hint = "use letters, digits, blanks and . _ @ + -"
            raise UsageError(f"{show(self.user)} cannot be a user name here", hint=hint)
        if not self.root.startswith("/") or ".." in self.root.split("/"):
            raise UsageError(f"the folder of the main file system must be an absolute path, is {show(self.root)}")


class ComponentScope(Struct, frozen=True):
    """One component, one item of a dag, or the pipeline itself: its names, and the values that are known inside.

    `id` and `name` of an item or a pipeline are prefixes of those inside; `dotted` is `name` without the numbers of
    items; `entry` are the vertices that must end before it starts.
    """

    id: str = ""
    name: str = ""
    dotted: str = ""
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict)
    inputs: Mapping[str, Places] = field(default_factory=dict)
    item: ParameterValue = ""
    entry: tuple[str, ...] = ()
