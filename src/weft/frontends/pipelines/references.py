"""References: each becomes a copy of a component, with its own name, dependencies, inputs and parameters.

Copies share everything below them: no part of a pipeline ever changes in place, so a component that is used a thousand
times is in memory once. The size of the pipeline with all references is counted before any walk over it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from weft.documents.problems import choices, join, show
from weft.frontends.pipelines.language import Dag, Reference, UnreadableComponent, walk
from weft.frontends.pipelines.parameters import convert, mismatch
from weft.frontends.pipelines.templates import find
from weft.model.errors import InputLimitError
from weft.model.suggestions import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from weft.documents.problems import Problems
    from weft.frontends.pipelines.language import Component, ParameterDefinition, Pipeline

MAX_COMPONENTS = 100_000
"""The most steps and dags of one pipeline with all references followed."""
MAX_LEVELS = 50
"""The deepest nesting of dags with all references followed."""


def expand(pipeline: Pipeline, problems: Problems) -> Pipeline:
    """Return the pipeline without references; `components` are expanded too.

    An invalid reference adds a problem and becomes `UnreadableComponent`. InputLimitError: too many components, or too
    deep nesting.
    """
    for name, component in pipeline.components.items():
        if component.deps:
            first = component.deps[0]
            where = join(join("components", name), "deps")
            problems.add(first.mark, where, "an outermost component has none", "write deps where it is referred to")
    run = _Expansion(pipeline.components, problems, pipeline.file)
    for name in run.in_order():
        run.done[name] = run.resolved(pipeline.components[name])
    return replace(
        pipeline,
        entry_points=run.all_of(pipeline.entry_points),
        components={name: run.done[name] for name in pipeline.components},
        post_process=run.all_of(pipeline.post_process),
    )


class _Expansion:
    """The components resolved so far, with the size and depth of each."""

    def __init__(self, components: Mapping[str, Component], problems: Problems, file: str) -> None:
        self.components, self.problems, self.file = components, problems, file
        self.done: dict[str, Component] = {}
        self._sizes: dict[int, tuple[int, int]] = {}

    def in_order(self) -> list[str]:
        """Return the components so that each comes after those it refers to; add a problem once for each cycle."""
        order: list[str] = []
        state: dict[str, int] = {}
        for start in self.components:
            trail: list[tuple[str, Iterator[Reference]]] = []
            if start not in state:
                state[start] = 1
                trail.append((start, self._references(start)))
            while trail:
                name, references = trail[-1]
                reference = next(references, None)
                if reference is None:
                    state[name] = 2
                    order.append(name)
                    trail.pop()
                    continue
                target = reference.target.value
                if state.get(target) == 1:
                    names = [entry for entry, _ in trail]
                    shown = [*names[names.index(target) :], target]
                    self.problems.add(
                        reference.target.mark,
                        reference.target.path,
                        f"the components refer to each other: {' → '.join(shown[:12])}",
                        "take one of them out of the circle",
                    )
                elif target in self.components and target not in state:
                    state[target] = 1
                    trail.append((target, self._references(target)))
        return order

    def _references(self, name: str) -> Iterator[Reference]:
        for _, component in walk({name: self.components[name]}):
            if isinstance(component, Reference):
                yield component

    def all_of(self, components: Mapping[str, Component]) -> dict[str, Component]:
        """Return these components without references."""
        found = {name: self.resolved(component) for name, component in components.items()}
        self._measure(found)
        return found

    def resolved(self, component: Component) -> Component:
        """Return a component without references; the components that it refers to are already resolved."""
        if isinstance(component, Reference):
            return self._copy(component)
        if isinstance(component, Dag):
            return replace(component, children=self.all_of(component.children))
        return component

    def _measure(self, components: Mapping[str, Component]) -> tuple[int, int]:
        count, levels = len(components), 1
        for component in components.values():
            if isinstance(component, Dag):
                below = self._sizes.get(id(component.children)) or self._measure(component.children)
                count, levels = count + below[0], max(levels, below[1] + 1)
        self._sizes[id(components)] = count, levels
        if count > MAX_COMPONENTS:
            raise InputLimitError(
                f"{self.file}: the pipeline has more than {MAX_COMPONENTS} steps with all references followed",
                hint="use a loop for what is repeated",
            )
        if levels > MAX_LEVELS:
            raise InputLimitError(f"{self.file}: dags are nested more than {MAX_LEVELS} levels deep")
        return count, levels

    def _copy(self, node: Reference) -> Component:
        unread = UnreadableComponent(node.name, deps=node.deps, mark=node.mark, path=node.path)
        name = node.target.value
        if not name:
            return unread
        if name not in self.components:
            near = nearest(name, self.components)
            hint = f"did you mean {near}?" if near else f"components: {choices(self.components)}"
            self.problems.add(node.target.mark, node.target.path, f"there is no component {show(name)}", hint)
            return unread
        target = self.done.get(name)
        if target is None or isinstance(target, UnreadableComponent):
            return unread
        if node.inputs.keys() != target.inputs.keys():
            wanted = choices(target.inputs)
            self.problems.add(
                next(iter(node.inputs.values())).mark if node.inputs else node.mark,
                f"{node.path}.artifacts.input",
                f"the inputs must be those of component {show(name)}: {wanted}",
                f"here stand: {choices(node.inputs)}",
            )
        parameters = dict(target.parameters)
        for key, parameter in node.parameters.items():
            known = parameters.get(key)
            if known is None:
                near = nearest(key, parameters)
                hint = f"did you mean {near}?" if near else f"it has: {choices(parameters)}"
                message = f"component {show(name)} has no parameter {show(key)}"
                self.problems.add(parameter.mark, parameter.path, message, hint)
            else:
                parameters[key] = self._given(known, parameter)
        return replace(
            target,
            name=node.name,
            deps=node.deps,
            parameters=parameters,
            inputs=node.inputs,
            mark=node.mark,
            path=node.path,
        )

    def _given(self, known: ParameterDefinition, given: ParameterDefinition) -> ParameterDefinition:
        """Return the value of a reference as a parameter of the component's type."""
        value, kind = given.value, known.kind
        if kind is None:
            return given
        if not (isinstance(value, str) and any(find(value))):
            if problem := mismatch(kind, value):
                self.problems.add(
                    given.mark, given.path, f"{problem} (type {kind} of the component), is {_text(value)}"
                )
                return replace(known, path=given.path)
            value = convert(kind, value)
        return replace(given, kind=kind, value=value)


def _text(value: object) -> str:
    return show(str(value))
