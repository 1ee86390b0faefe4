"""Builds the tree of a pipeline file from the calls of steps inside a pipeline function.

Each call adds a component to the enclosing pipeline or dag. The argument decides the field: a plain value is a
parameter, an artifact of another step is an input and a dependency, `each` is a loop. Values from outside of a dag
become parameters or inputs of that dag. The tree has the positions of the Python file, so that the reader and the
checks of files report errors there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct, field, to_builtins

from weft.documents.emitting import to_yaml
from weft.documents.problems import choices, show
from weft.frontends.pipelines.check import checked
from weft.frontends.pipelines.declaring import (
    CURRENT,
    REFERENCE,
    TAKEN_IN,
    Artifact,
    DeferredValue,
    LoopItems,
    Parameter,
    PipelineBuilder,
    SourceLine,
    StepFunction,
    here,
)
from weft.frontends.pipelines.distributed import TRAINING
from weft.frontends.pipelines.extras import RESOURCES
from weft.frontends.pipelines.kinds import STEP_KINDS
from weft.frontends.pipelines.locating import located
from weft.frontends.pipelines.parameters import check_value, convert, number_from_text
from weft.frontends.pipelines.templates import LOOP_ARGUMENT, PARENT, find, whole
from weft.frontends.pipelines.trees import MapBuilder, shown
from weft.model.errors import DefinitionError, UsageError
from weft.model.patterns import late_pattern
from weft.model.resources import Resources
from weft.model.suggestions import nearest
from weft.model.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.documents import yaml
    from weft.frontends.pipelines.language import ParameterKind

MAX_LEVELS: Final = 50
"""The largest nesting of pipelines."""
_REFERENCE: Final = late_pattern(r"\{\{" + REFERENCE + r"(\d+)\.\w+\}\}")
_PLAIN: Final = late_pattern(r"[A-Za-z][A-Za-z0-9-]*")
_NAME_LENGTH: Final = 30
_TEMPLATE: Final = "{{%s}}"


class BuiltPipeline(Struct, frozen=True):
    """A pipeline built by a function. `file` is the file of the function; `tree` makes the tree of the pipeline file.

    A file names the modules of functions relative to its own folder, so the tree depends on the folder.
    """

    name: str
    file: str
    tree: Callable[[str], yaml.Node]

    def text(self, folder: str | None = None) -> str:
        """Return the pipeline as the text of a file in `folder`, by default the folder of the function."""
        return to_yaml(self.tree(folder or folder_of(self.file)))


def folder_of(file: str) -> str:
    """Return the folder of a Python file, or the current folder in an interactive session."""
    return os.path.dirname(os.path.abspath(file)) if os.path.exists(file) else os.getcwd()


def build(
    blueprint: PipelineBuilder,
    args: Sequence[Any] = (),
    named: Mapping[str, Any] | None = None,
    kinds: Mapping[str, str] = STEP_KINDS,
) -> BuiltPipeline:
    """Call a pipeline function and check the pipeline that it builds.

    DefinitionError: a call cannot be part of a pipeline. PipelineError: lists every mistake of the pipeline.
    """
    family = ComponentBuilder(blueprint)
    bound = _bound(blueprint, args, named or {}, here())
    for name, value in bound.items():
        if isinstance(value, DeferredValue | LoopItems):
            raise DefinitionError(f"{here()}: {name} belongs to no pipeline that is being built")
    with _building(family):
        blueprint.function(**bound)
    file = blueprint.where.file
    built = BuiltPipeline(family.own_name, file, family.document)
    checked(built.tree(folder_of(file)), file, kinds)
    return built


def build_with(
    blueprint: PipelineBuilder, given: Mapping[str, object], kinds: Mapping[str, str] = STEP_KINDS
) -> tuple[BuiltPipeline, dict[str, object]]:
    """Build a pipeline with parameters from a command line; return also the parameters of its steps.

    UsageError: a text does not fit, or an argument of the function is missing.
    """
    signature = blueprint.signature
    own = {name: value for name, value in given.items() if name in signature.order}
    named = {name: _from_outside(name, value, blueprint) for name, value in own.items()}
    missing = [name for name in signature.order if name not in named and name not in signature.defaults]
    if missing:
        hint = " ".join(f"-p {name}=..." for name in missing)
        raise UsageError(
            f"pipeline {blueprint.function.__name__} needs {', '.join(missing)}", hint=f"Give them: {hint}"
        )
    return build(blueprint, (), named, kinds), {name: value for name, value in given.items() if name not in own}


def _from_outside(name: str, value: object, blueprint: PipelineBuilder) -> Any:
    if not isinstance(value, str):
        return value
    kind, default = blueprint.signature.parameters.get(name, ""), blueprint.signature.defaults.get(name)
    if kind == "bool" or (not kind and isinstance(default, bool)):
        if (truth := _TRUTH.get(value.lower())) is None:
            raise UsageError(f"parameter {name}: must be true or false, is {value[:100]!r}")
        return truth
    if not kind:
        if isinstance(default, str):
            return value
        return _plain(convert("list", value)) if isinstance(default, list | tuple) else number_from_text(value)
    try:
        found = convert(cast("ParameterKind", kind), value)
    except ValueError as error:
        raise UsageError(f"parameter {name}: {error}, is {value[:100]!r}") from None
    return Path(value) if kind == "path" else _plain(found)


_TRUTH: Final = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "no", "off"), False),
}


def _plain(value: Any) -> Any:
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


@contextmanager
def _building(family: ComponentBuilder) -> Iterator[None]:
    token = CURRENT.set(family)
    try:
        yield
    finally:
        CURRENT.reset(token)


class _Component(Struct, eq=False):
    """A step or dag under construction; texts are as in the file."""

    name: str
    where: SourceLine
    declared: StepFunction | PipelineBuilder
    deps: dict[str, None] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    parameters: dict[str, tuple[Any, str]] = field(default_factory=dict)
    env: dict[str, Any] = field(default_factory=dict)
    condition: str = ""
    loop: Any = None
    item: str = ""
    command: str = ""
    inner: ComponentBuilder | None = None

    def free(self, later: DeferredValue) -> str:
        """Return an unused name for a value taken from outside."""
        taken = {name.upper() for name in (*self.inputs, *self.outputs, *self.parameters)}
        stem = "item" if later.name == LOOP_ARGUMENT else later.name.rstrip("_")
        number = 2
        name = f"{stem[:44]}{TAKEN_IN}"
        while name.upper() in taken:
            name, number = f"{stem[:44]}{number}{TAKEN_IN}", number + 1
        return name


class StepHandle:
    """The handle of a step, or of a pipeline inside another: outputs and parameters are attributes and items."""

    def __init__(self, family: ComponentBuilder, component: _Component) -> None:
        self._family, self._component = family, component

    def __repr__(self) -> str:
        return f"<step {self._component.name}>"

    def __format__(self, how: str) -> str:
        known = choices([f"{self._component.name}.{one}" for one in self._component.outputs])
        raise DefinitionError(f"{here()}: {self!r} cannot stand in a text", hint=f"Name an output: {known}")

    def __getitem__(self, name: str) -> Any:
        component = self._component
        if name in component.outputs:
            return Artifact(self._family, component.name, name)
        if name in component.parameters:
            return Parameter(self._family, component.name, name)
        known = [*component.outputs, *component.parameters]
        near = nearest(name, known)
        hint = f"Did you mean {near}?" if near else f"It has: {choices(known)}"
        raise DefinitionError(f"{here()}: {component.name} has no output or parameter {name!r}", hint=hint)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def after(self, *others: StepHandle) -> StepHandle:
        """Make the component wait for others without reading from them; return it."""
        for other in others:
            if not isinstance(other, StepHandle) or other._family is not self._family:
                raise DefinitionError(f"{here()}: {other!r} is no step beside {self._component.name}")
            self._component.deps[other._component.name] = None
        return self

    def at_end(self) -> StepHandle:
        """Make the component run after all others, whatever their outcome; return it."""
        family, name = self._family, self._component.name
        if family.parent is not None:
            raise DefinitionError(f"{here()}: {name} cannot run at the end: it lies inside {family.own_name}")
        if name in family.members:
            family.last[name] = family.members.pop(name)
        return self


class ComponentBuilder:
    """The components of a pipeline, or of one inside another (component `component` of `parent`)."""

    def __init__(
        self, blueprint: PipelineBuilder, parent: ComponentBuilder | None = None, component: _Component | None = None
    ) -> None:
        self.blueprint, self.parent, self.component = blueprint, parent, component
        self.members: dict[str, _Component] = {}
        self.last: dict[str, _Component] = {}
        self.level: int = 1 if parent is None else parent.level + 1
        self.known: list[DeferredValue] = [] if parent is None else parent.known
        self._taken: dict[tuple[int, str, str], DeferredValue] = {}
        self._used: set[str] = set()

    @property
    def own_name(self) -> str:
        """The name of the pipeline."""
        chosen = self.blueprint.chosen.get("name")
        return self.blueprint.function.__name__ if chosen is None else str(chosen.value)

    def note(self, later: DeferredValue) -> int:
        """Register a deferred value and return its number."""
        self.known.append(later)
        return len(self.known) - 1

    def call(self, what: StepFunction | PipelineBuilder, args: Sequence[Any], named: Mapping[str, Any]) -> StepHandle:
        """Add a component and return its handle. DefinitionError: the arguments do not fit."""
        component = _Component(self._name(what), here(), what)
        bound = _bound(what, args, named, component.where)
        if isinstance(what, StepFunction):
            self._step(component, what, bound)
        else:
            self._dag(component, what, bound)
        self.members[component.name] = component
        return StepHandle(self, component)

    def _name(self, what: StepFunction | PipelineBuilder) -> str:
        chosen = what.chosen.get("name")
        if chosen is not None:
            name = str(chosen.value) if isinstance(what, StepFunction) else str(chosen.value).replace("_", "-")
            if name in self._used:
                raise DefinitionError(f"{here()}: there is a step {name} already", hint="Give it another name.")
        else:
            plain = what.function.__name__.replace("_", "-").strip("-")
            if not _PLAIN.fullmatch(plain):
                message = f"{what.where}: the name of the function {what.function.__name__} cannot name a step"
                hint = "A step's name has letters a to z, digits and -, beginning with a letter: give it one, name=..."
                raise DefinitionError(message, hint=hint)
            name = _free(re.sub("-+", "-", plain)[:_NAME_LENGTH], self._used)
        self._used.add(name)
        return name

    # -------------------------------------------------------------------------------------------------- arguments

    def _step(self, component: _Component, step: StepFunction, bound: Mapping[str, Any]) -> None:
        signature = step.signature
        component.outputs = dict.fromkeys(signature.outputs, "")
        for name, value in bound.items():
            if name in signature.inputs:
                self._input(component, name, value)
            else:
                self._parameter(component, name, value, signature.parameters.get(name, ""), signature.defaults)
        for name, value in (_option(step, "env") or {}).items():
            text = isinstance(value, str | DeferredValue)
            component.env[name] = self._own(component, str(value), "an environment variable") if text else value
        component.condition = self._own(component, str(_option(step, "when") or ""), "a condition")
        if step.shell:
            component.command = self._own(component, _command_of(component, step), "a command")

    def _input(self, component: _Component, name: str, value: Any) -> None:
        if not isinstance(value, Artifact):
            hint = "Give it one output of another step, such as first.out; that of a loop is all that its items make."
            if isinstance(value, StepHandle):
                known = [f"{value._component.name}.{one}" for one in value._component.outputs]
                hint = f"Name the output: {choices(known)}"
            raise DefinitionError(f"{component.where}: input {name} of {component.name} is {value!r}", hint=hint)
        step = component.declared
        one_path = isinstance(step, StepFunction) and not step.shell and not step.signature.inputs[name]
        if one_path and (looping := value.scope.looping(value.owner, value.name)):
            message = f"{component.where}: input {name} of {component.name} is all that the items of {looping} make"
            hint = f"Annotate {name} as list[weft.Input] in the function of the step, however many items there are."
            raise DefinitionError(message, hint=hint)
        component.inputs[name] = self._template(component, value)

    def looping(self, owner: str, name: str) -> str:
        """Return the component whose items make an artifact of this family, which is that of all of them; "" if one
        execution makes it.
        """
        if owner == PARENT:
            assert self.parent is not None
            assert self.component is not None
            family, text = self.parent, self.component.inputs[name]
        else:
            component = self.members[owner] if owner in self.members else self.last[owner]
            if component.loop is not None:
                return component.name
            if component.inner is None:
                return ""
            family, text = component.inner, component.outputs[name]
        reference = whole(text)
        return "" if reference is None else family.looping(reference.step, reference.name)

    def _parameter(self, component: _Component, name: str, value: Any, kind: str, defaults: Mapping[str, Any]) -> None:
        where = f"{component.where}: parameter {name} of {component.name}"
        if isinstance(value, LoopItems):
            self._loop(component, name, value)
            return
        if isinstance(value, Artifact | StepHandle):
            hint = "Annotate it as weft.Input in the function of the step."
            raise DefinitionError(f"{where} is {value!r}, which is not known as a value", hint=hint)
        if isinstance(value, Parameter):
            component.parameters[name] = self._template(component, value), kind
            return
        if value is None and name in defaults and defaults[name] is None:
            return  # the user's own keyword
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        elif isinstance(value, str):
            self._no_template(where, value)
            value = _REFERENCE.sub(lambda match: self._template(component, self.known[int(match[1])]), value)
        try:
            component.parameters[name] = check_value(value), kind
        except ValueError as error:
            raise DefinitionError(f"{where} {error}, is {shown(value)}") from None

    def _no_template(self, where: str, value: str) -> None:
        """Raise DefinitionError for a text that looks like a template and refers to nothing."""
        for one in find(value):
            known = one.step == PARENT or one.step in self.members or one.step.startswith(REFERENCE)
            if not (known if one.step else one.name.startswith("PF_")):  # the reader knows the valid ones
                message = f"{where} has {show(one.text)} in it, which is read as a template"
                hint = "No file can hold it as it is: have the step put it together, as '{' + '{x}}', or read a file."
                raise DefinitionError(message, hint=hint)

    def _loop(self, component: _Component, name: str, each: LoopItems) -> None:
        if component.loop is not None:
            message = f"{component.where}: {component.name} goes over {component.item} and over {name}"
            raise DefinitionError(message, hint="Go over one list of lists, or put a pipeline around it.")
        component.item = name
        if isinstance(each.items, DeferredValue):
            component.loop = self._own(component, str(each.items), "a loop")
            return
        try:
            component.loop = [
                check_value(os.fspath(one) if isinstance(one, os.PathLike) else one) for one in each.items
            ]
        except ValueError as error:
            raise DefinitionError(f"{component.where}: an item of {name} {error}") from None

    def _dag(self, component: _Component, blueprint: PipelineBuilder, bound: Mapping[str, Any]) -> None:
        if self.level >= MAX_LEVELS:
            raise DefinitionError(f"{component.where}: more than {MAX_LEVELS} pipelines lie inside each other")
        inner = component.inner = ComponentBuilder(blueprint, self, component)
        given = {name: self._handed_in(component, inner, name, value) for name, value in bound.items()}
        component.condition = self._own(component, str(_option(blueprint, "when") or ""), "a condition")
        with _building(inner):
            made = blueprint.function(**given)
        if made is None:
            made = {}
        elif isinstance(made, DeferredValue):
            made = {made.name: made}
        elif isinstance(made, tuple | list):
            made = {one.name if isinstance(one, DeferredValue) else str(at): one for at, one in enumerate(made)}
        if not isinstance(made, Mapping):
            made = {"what it returns": made}
        for name, artifact in made.items():
            if not isinstance(artifact, Artifact) or artifact.scope is not inner or artifact.owner == PARENT:
                message = f"{blueprint.where}: {blueprint.function.__name__} returns {artifact!r} as {name}"
                raise DefinitionError(
                    message, hint="Return outputs of steps inside it: one, several, or a dict of them."
                )
            component.outputs[name] = _TEMPLATE % f"{artifact.owner}.{artifact.name}"

    def _handed_in(self, component: _Component, inner: ComponentBuilder, name: str, value: Any) -> Any:
        """Return the argument for the function of a dag: deferred values become parameters of the dag."""
        if isinstance(value, LoopItems):
            self._loop(component, name, value)
            return Parameter(inner, PARENT, LOOP_ARGUMENT)
        if isinstance(value, Artifact):
            component.inputs[name] = self._template(component, value)
            return Artifact(inner, PARENT, name)
        if isinstance(value, Parameter):
            component.parameters[name] = self._template(component, value), ""
            return Parameter(inner, PARENT, name)
        return value

    # --------------------------------------------------------------------------------------------------- references

    def _template(self, component: _Component, later: DeferredValue) -> str:
        """Return the template that names a value in this family, and add the dependency."""
        found = self._reached(later)
        if found.owner != PARENT:
            component.deps[found.owner] = None
        return _TEMPLATE % f"{found.owner}.{found.name}"

    def _reached(self, later: DeferredValue) -> DeferredValue:
        """Return the value in this family: the value itself, or the input of the dag that carries it."""
        if later.scope is self:
            return later
        if self.parent is None or self.component is None:
            message = f"{here()}: {later!r} was made inside another pipeline"
            raise DefinitionError(message, hint="Have that pipeline return it, and take it from its handle.")
        key = (id(later.scope), later.owner, later.name)
        taken = self._taken.get(key)
        if taken is None:
            template = self.parent._template(self.component, later)
            name = self.component.free(later)
            if isinstance(later, Artifact):
                self.component.inputs[name] = template
                taken = Artifact(self, PARENT, name)
            else:
                self.component.parameters[name] = template, ""
                taken = Parameter(self, PARENT, name)
            self._taken[key] = taken
        return taken

    def _own(self, component: _Component, text: str, what: str) -> str:
        """Return a text whose templates name only values of the component; missing values are added to it."""

        def own(match: re.Match[str]) -> str:
            later = self.known[int(match[1])]
            template = self._template(component, later)
            if isinstance(later, Artifact):
                if what == "an environment variable":
                    message = f"{component.where}: {what} of {component.name} cannot hold {later!r}"
                    raise DefinitionError(message, hint="Take it in as an input; its path is in the environment.")
                known = {value: name for name, value in component.inputs.items()}
            else:
                known = {value: name for name, (value, _) in component.parameters.items() if isinstance(value, str)}
            name = known.get(template) or component.free(later)
            if template not in known and isinstance(later, Artifact):
                component.inputs[name] = template
            elif template not in known:
                component.parameters[name] = template, ""
            return _TEMPLATE % name

        return _REFERENCE.sub(own, text)

    # --------------------------------------------------------------------------------------------------------- trees

    def document(self, folder: str) -> yaml.Node:
        """Return the tree of a file in this folder, for the family of a whole pipeline."""
        where = self.blueprint.where
        chosen = self.blueprint.chosen
        tree = MapBuilder(where)
        tree.put("name", self.own_name, chosen.get("name"))
        for key in ("parallelism", "docker_env"):
            tree.put(key, _option(self.blueprint, key), chosen.get(key))
        strategy = _option(self.blueprint, "on_failure")
        if strategy is not None:
            tree.put("failure_options", {"strategy": strategy}, chosen["on_failure"])
        tree.put("cache", _cache(_option(self.blueprint, "cache")), chosen.get("cache"))
        disabled = _option(self.blueprint, "disabled")
        tree.put("disabled", disabled if disabled is None or isinstance(disabled, str) else ",".join(disabled))
        mounts = {key: value for key in ("main_fs", "extra_fs") if (value := _option(self.blueprint, key)) is not None}
        tree.put("fs_options", mounts or None)
        extra = MapBuilder(where)
        extra.put("as_paddleflow", _option(self.blueprint, "as_paddleflow"), chosen.get("as_paddleflow"))
        extra.put("defaults", _defaults(_option(self.blueprint, "defaults")), chosen.get("defaults"))
        extra.put("profiles", _profiles(_option(self.blueprint, "profiles")), chosen.get("profiles"))
        if extra.entries:
            tree.node("x-weft", extra.done())
        tree.node("entry_points", self._tree(self.members, folder, where))
        if self.last:
            tree.node("post_process", self._tree(self.last, folder, where))
        return tree.done()

    def _tree(self, members: Mapping[str, _Component], folder: str, where: SourceLine) -> yaml.Node:
        tree = MapBuilder(where)
        for name, component in members.items():
            tree.node(name, self._component_tree(component, folder), component.where)
        return tree.done()

    def _component_tree(self, component: _Component, folder: str) -> yaml.Node:
        tree = MapBuilder(component.where)
        declared, chosen = component.declared, component.declared.chosen
        training = _option(declared, "training")
        if isinstance(declared, StepFunction) and training is None:
            tree.put("command", component.command or None)
        tree.put("deps", ",".join(component.deps) or None)
        tree.put("condition", component.condition or None, chosen.get("when"))
        tree.put("loop_argument", component.loop)
        tree.put(
            "parameters", {name: _typed(value, kind) for name, (value, kind) in component.parameters.items()} or None
        )
        tree.put("env", component.env or None, chosen.get("env"))
        artifacts: dict[str, Any] = {"input": component.inputs} if component.inputs else {}
        if component.outputs:
            artifacts["output"] = component.outputs if component.inner is not None else list(component.outputs)
        tree.put("artifacts", artifacts or None)
        if component.inner is not None:
            tree.node("entry_points", component.inner._tree(component.inner.members, folder, component.where))
            return tree.done()
        tree.put("docker_env", _option(declared, "docker_env"), chosen.get("docker_env"))
        tree.put("cache", _cache(_option(declared, "cache")), chosen.get("cache"))
        tree.put("extra_fs", _option(declared, "extra_fs"), chosen.get("extra_fs"))
        extra = MapBuilder(component.where)
        for key in ("timeout_s", "retry", "environment", "stderr"):
            extra.put(key, _option(declared, key), chosen.get(key))
        extra.put("resources", _resources(_option(declared, "resources")), chosen.get("resources"))
        if isinstance(declared, StepFunction) and (training is not None or not declared.shell):
            own = {} if declared.shell else self._function(component, declared, folder)
            if declared.shell and component.command.strip():
                own["command"] = component.command
            extra.put("kind", "python" if training is None else TRAINING)
            extra.put("with", own if training is None else {**training, **own}, chosen.get("training"))
        if extra.entries:
            tree.node("x-weft", extra.done())
        return tree.done()

    def _function(self, component: _Component, step: StepFunction, folder: str) -> dict[str, Any]:
        family: ComponentBuilder | None = self
        near = []
        while family is not None:
            near.append(family.blueprint.function.__module__)
            family = family.parent
        root, target = located(step, near)
        path = os.path.relpath(root, folder)
        found = {"function": target} if path == "." else {"function": target, "path": Path(path).as_posix()}
        return {**found, "item": component.item} if component.item else found


def profiles_of(blueprint: PipelineBuilder) -> dict[str, Any]:
    """Return the profiles of a pipeline function as plain values."""
    found = to_builtins(_profiles(_option(blueprint, "profiles")))
    return found if isinstance(found, dict) else {}


def _bound(
    what: StepFunction | PipelineBuilder, args: Sequence[Any], named: Mapping[str, Any], where: SourceLine
) -> dict[str, Any]:
    """Return the arguments of a call by name, with defaults and without outputs. DefinitionError: they do not fit."""
    signature, called = what.signature, f"{where}: {what.function.__name__}()"
    if len(args) > len(signature.order):
        hint = (
            f"It takes: {choices(signature.order)}"
            if not signature.outputs
            else "Outputs are not given: they are made."
        )
        raise DefinitionError(f"{called} takes {counted(len(signature.order), 'argument')}, not {len(args)}", hint=hint)
    bound = dict(zip(signature.order, args, strict=False))
    for name, value in named.items():
        if name in signature.outputs:
            raise DefinitionError(f"{called}: {name} is an output", hint="Leave it out: its place is made for it.")
        if name not in signature.order:
            near = nearest(name, signature.order)
            hint = f"Did you mean {near}?" if near else f"It takes: {choices(signature.order)}"
            raise DefinitionError(f"{called} has no argument {name!r}", hint=hint)
        if name in bound:
            raise DefinitionError(f"{called} is given {name} twice")
        bound[name] = value
    missing = [name for name in signature.order if name not in bound and name not in signature.defaults]
    if missing:
        raise DefinitionError(f"{called} lacks {', '.join(missing)}")
    defaults = {name: value for name, value in signature.defaults.items() if name not in bound}
    if isinstance(what, StepFunction):
        defaults = {name: value for name, value in defaults.items() if name not in signature.inputs}
    given = {**bound, **defaults}
    return {name: given[name] for name in signature.order if name in given}


def _command_of(component: _Component, step: StepFunction) -> str:
    """Return the text of a command: the result of its function for the names of its arguments."""
    names = {name: _TEMPLATE % name for name in (*component.inputs, *component.outputs, *component.parameters)}
    if component.item:
        names[component.item] = _TEMPLATE % LOOP_ARGUMENT
    known = (*step.signature.order, *step.signature.outputs)
    try:
        text = step.function(**{name: value for name, value in names.items() if name in known})
    except Exception as error:
        message = f"{step.where}: {step.function.__name__} failed where its arguments are templates: {error}"
        raise DefinitionError(message, hint="Only put them into the text; what is to be computed, hand in.") from error
    if not isinstance(text, str):
        message = f"{step.where}: {step.function.__name__} returns {type(text).__name__}, not the text of a command"
        raise DefinitionError(message, hint="Return a text for sh, or decorate it with weft.step.")
    return text


def _free(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted[: _NAME_LENGTH - len(str(number))]}{number}", number + 1
    return name


def _option(declared: StepFunction | PipelineBuilder, name: str) -> Any:
    chosen = declared.chosen.get(name)
    return None if chosen is None else chosen.value


def _cache(value: Any) -> Any:
    return {"enable": value} if isinstance(value, bool) else value


def _defaults(value: Any) -> Any:
    """Return the words for all steps with their records as maps."""
    if not isinstance(value, Mapping):
        return value
    return {name: _resources(one) if name == "resources" else one for name, one in value.items()}


def _profiles(value: Any) -> Any:
    """Return profiles with the records in their words as maps."""
    if not isinstance(value, Mapping):
        return value

    def plain(words: Any) -> Any:
        if not isinstance(words, Mapping):
            return words
        steps = words.get("steps")
        found = dict(words)
        if "defaults" in words:
            found["defaults"] = _defaults(words["defaults"])
        if isinstance(steps, Mapping):
            found["steps"] = {name: _defaults(one) for name, one in steps.items()}
        return found

    return {name: plain(words) for name, words in value.items()}


def _resources(value: Any) -> Any:
    if not isinstance(value, Resources):
        return value
    found = {key: getattr(value, key) for key in RESOURCES} | {"custom": dict(value.custom)}
    return {key: each for key, each in found.items() if key != "custom" or each}


def _typed(value: Any, kind: str) -> Any:
    return {"type": kind, "default": value} if kind and value != "" else value
