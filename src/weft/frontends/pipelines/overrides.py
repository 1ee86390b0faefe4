"""Values given to a run beside its file: parameters, another name, and the main file system."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from weft.documents.problems import FilePosition, Problems, choices, show
from weft.frontends.pipelines.check import check, parse_pipeline
from weft.frontends.pipelines.kinds import STEP_KINDS
from weft.frontends.pipelines.language import PIPELINE_FILE, Component, Dag, Mount, walk
from weft.frontends.pipelines.parameters import check_value, convert, number_from_text
from weft.frontends.pipelines.templates import (
    find,
)
from weft.model.errors import UsageError
from weft.model.suggestions import nearest

if TYPE_CHECKING:
    from weft.frontends.pipelines.language import ParameterDefinition, Pipeline
    from weft.frontends.pipelines.profiles import Profile


def make_pipeline(
    text: str,
    file: str,
    overrides: Mapping[str, object],
    renamed: str | None,
    kinds: Mapping[str, str] = STEP_KINDS,
    main_fs: str = "",
    profile: Profile | None = None,
) -> Pipeline:
    """Return the pipeline of a file with parameters, another name, and kinds of steps given to the run.

    `main_fs` is the name of the main file system of a file that names none, `profile` that of the run.
    """
    pipeline = parse_pipeline(text, file, kinds, profile)
    if renamed is not None:
        pipeline = replace(pipeline, name=renamed)
    if main_fs:
        pipeline = replace(pipeline, main_fs=replace(pipeline.main_fs or Mount(name=""), name=main_fs))
        check(pipeline, Problems(pipeline.file, PIPELINE_FILE))
    return apply_overrides(pipeline, overrides) if overrides else pipeline


def apply_overrides(pipeline: Pipeline, overrides: Mapping[str, object]) -> Pipeline:
    """Return the pipeline with other parameter values.

    A key is `parameter` (every component that has it, copies of a component too) or the dotted name of a component and
    one of its parameters (`dag.step.parameter`; wins over the former). A value is text as from a command line,
    converted to the parameter's type, or a value of that type. A parameter without a declared type takes any value:
    text becomes a number if the file has a number, and a list (written as JSON) if it has a list.

    UsageError: an unknown key or a value that does not fit. PipelineError: a template in a value names nothing.
    """
    everywhere = {key: value for key, value in overrides.items() if "." not in key}
    at: dict[str, dict[str, object]] = {}
    for key, value in overrides.items():
        owner, dot, name = key.rpartition(".")
        if dot:
            at.setdefault(owner, {})[name] = value
    for key in unknown_parameters(pipeline, overrides):
        raise _unknown(key, pipeline)
    work = _Overriding(everywhere, at)
    entry_points = work.all_of(pipeline.entry_points, "")
    post_process = work.all_of(pipeline.post_process, "")
    pipeline = replace(pipeline, entry_points=entry_points, post_process=post_process)
    check(pipeline, Problems(pipeline.file, PIPELINE_FILE))
    return pipeline


def unknown_parameters(pipeline: Pipeline, keys: Iterable[str]) -> list[str]:
    """Return the keys that `apply_overrides` would refuse because they name no parameter."""
    known: set[str] = set()
    for dotted, component in walk({**pipeline.entry_points, **pipeline.post_process}):
        for name in component.parameters:
            known.update((name, f"{dotted}.{name}"))
    return [key for key in keys if key not in known]


def outdone(pipeline: Pipeline, below: Iterable[str], above: Iterable[str]) -> set[str]:
    """Return the keys `step.parameter` of `below` that a name of `above` sets too, without naming the step."""
    lower, upper = set(below), set(above)
    return {
        key
        for dotted, component in walk({**pipeline.entry_points, **pipeline.post_process})
        for name in component.parameters
        if (key := f"{dotted}.{name}") in lower and key not in upper and name in upper
    }


class _Overriding(Struct, frozen=True):
    everywhere: Mapping[str, object]
    at: Mapping[str, Mapping[str, object]]

    def all_of(self, components: Mapping[str, Component], prefix: str) -> Mapping[str, Component]:
        """Return sibling components with other values; the same map if no value changes."""
        changed = {name: self._one(component, prefix + name) for name, component in components.items()}
        return components if all(changed[name] is one for name, one in components.items()) else changed

    def _one(self, component: Component, dotted: str) -> Component:
        parameters = dict(component.parameters)
        for name, parameter in component.parameters.items():
            if name in self.everywhere:
                parameters[name] = _overridden(name, parameter, self.everywhere[name])
            if name in self.at.get(dotted, ()):
                parameters[name] = _overridden(f"{dotted}.{name}", parameter, self.at[dotted][name])
        if parameters != component.parameters:
            component = replace(component, parameters=parameters)
        if isinstance(component, Dag):
            children = self.all_of(component.children, f"{dotted}.")
            if children is not component.children:
                component = replace(component, children=children)
        return component


def _overridden(key: str, parameter: ParameterDefinition, given: object) -> ParameterDefinition:
    try:
        value = check_value(given)
        if parameter.kind is not None:
            # A template is converted when its value is known.
            if not (isinstance(value, str) and any(find(value))):
                value = convert(parameter.kind, value)
        elif isinstance(value, str) and isinstance(parameter.value, tuple):
            value = convert("list", value)
        elif isinstance(value, str) and not isinstance(parameter.value, str):
            value = number_from_text(value)
    except ValueError as error:
        raise UsageError(f"parameter {show(key)}: {error}, is {show(str(given))}") from None
    return replace(parameter, value=value, mark=FilePosition(0, 0, f"parameter {key} of the run"))


def _unknown(key: str, pipeline: Pipeline) -> UsageError:
    known = []
    for dotted, component in walk({**pipeline.entry_points, **pipeline.post_process}):
        known += [f"{dotted}.{name}" for name in component.parameters]
        if len(known) > 200:
            break
    near = nearest(key, known) or nearest(key, [name.rpartition(".")[2] for name in known])
    hint = f"did you mean {near}?" if near else f"parameters: {choices(known)}"
    return UsageError(f"the pipeline has no parameter {show(key)}", hint=hint)
