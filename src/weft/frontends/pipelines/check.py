"""Every rule between the parts of a pipeline: names, dependencies, templates, artifacts, disabled steps.

Each rule is one function; `RULES` lists them in the order a reader would look. A rule only adds to `problems`, so all
mistakes of a file come out together.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.frontends.pipelines import language, yaml
from weft.frontends.pipelines.problems import Problems, choices, join, nearest, show
from weft.frontends.pipelines.templates import PARENT, SYSTEM_VARIABLES, Template, find, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from weft.frontends.pipelines.language import Pipeline, Step, Text
    from weft.frontends.pipelines.problems import Mark


def parse_pipeline(text: str, file: str) -> Pipeline:
    """Read and check the text of a pipeline file (YAML or JSON).

    `file` is the name that messages give. Raise InputLimitError when a limit is passed, and PipelineError that lists
    every mistake with line, column, field and what would be right.
    """
    problems = Problems(file)
    pipeline, unread = language.read(yaml.load(text, file), file, problems)
    check(pipeline, problems, unread)
    return pipeline


def check(pipeline: Pipeline, problems: Problems, unread: frozenset[str] = frozenset()) -> None:
    """Apply every rule; raise PipelineError when `problems` holds any at the end.

    `unread` names entry points that are not in the pipeline because they could not be read: naming them is no mistake.
    """
    scene = _Scene(
        pipeline,
        problems,
        unread,
        deps={name: frozenset(dep.value for dep in step.deps) for name, step in pipeline.steps.items()},
        outputs={name: {text.value: text for text in step.outputs} for name, step in pipeline.steps.items()},
    )
    for rule in RULES:
        rule(scene)
    problems.raise_if_any()


@dataclass(frozen=True, slots=True)
class _Scene:
    """What a rule sees. `deps` and `outputs` are those of each step, made once for look-ups."""

    pipeline: Pipeline
    problems: Problems
    unread: frozenset[str]
    deps: Mapping[str, frozenset[str]]
    outputs: Mapping[str, Mapping[str, Text]]

    def steps(self) -> Iterator[tuple[str, Step]]:
        """Yield every step with the path of its field."""
        for name, step in self.pipeline.steps.items():
            yield join("entry_points", name), step

    def exists(self, name: str) -> bool:
        """Tell whether there is an entry point of that name, read or not."""
        return name in self.pipeline.steps or name in self.unread


# ---------------------------------------------------------------------------------------------- dependencies


def in_order(pipeline: Pipeline) -> tuple[Step, ...]:
    """Return the steps so that each comes after its dependencies, in file order where that leaves a choice.

    Steps on a cycle, and those below one, are left out.
    """
    steps = pipeline.steps
    waits_for = {name: {dep.value for dep in step.deps if dep.value in steps} for name, step in steps.items()}
    dependents: dict[str, list[str]] = {name: [] for name in steps}
    for name, deps in waits_for.items():
        for dep in deps:
            dependents[dep].append(name)
    missing = {name: len(deps) for name, deps in waits_for.items()}
    ready = deque(name for name, count in missing.items() if count == 0)
    ordered = []
    while ready:
        name = ready.popleft()
        ordered.append(steps[name])
        for dependent in dependents[name]:
            missing[dependent] -= 1
            if missing[dependent] == 0:
                ready.append(dependent)
    return tuple(ordered)


def _dependencies_exist(scene: _Scene) -> None:
    for path, step in scene.steps():
        for dep in step.deps:
            if not scene.exists(dep.value):
                near = nearest(dep.value, scene.pipeline.steps)
                hint = f"did you mean {near}?" if near else f"steps here: {choices(scene.pipeline.steps)}"
                scene.problems.add(dep.mark, join(path, "deps"), f"there is no step {show(dep.value)}", hint)


def _no_cycles(scene: _Scene) -> None:
    steps = scene.pipeline.steps
    left = steps.keys() - {step.name for step in in_order(scene.pipeline)}
    # Every step that is left waits for another that is left: follow one such arrow from each until a step repeats.
    seen: set[str] = set()
    for start in (name for name in steps if name in left):
        trail: dict[str, int] = {}
        name = start
        while name not in seen:
            seen.add(name)
            trail[name] = len(trail)
            name = next(dep.value for dep in steps[name].deps if dep.value in left)
        if name in trail:
            cycle = [*list(trail)[trail[name] :], name]
            first = steps[name]
            shown = cycle if len(cycle) <= 12 else [*cycle[:11], "…", name]
            scene.problems.add(
                first.deps[0].mark,
                join(join("entry_points", name), "deps"),
                f"the steps wait for each other: {' → '.join(shown)}",
                "take one of them out of the other's deps",
            )


# ---------------------------------------------------------------------------------------------------- names


def _names_differ_in_more_than_case(scene: _Scene) -> None:
    for path, step in scene.steps():
        seen: dict[str, str] = {}
        named = [
            *((parameter.mark, "parameters", name) for name, parameter in step.parameters.items()),
            *((text.mark, "artifacts.input", name) for name, text in step.inputs.items()),
            *((text.mark, "artifacts.output", text.value) for text in step.outputs),
        ]
        for mark, group, name in named:
            if name.upper() in seen:
                message = f"the name is already taken by {seen[name.upper()]} (upper and lower case count as the same)"
                hint = "parameters, inputs and outputs of a step share one set of names"
                scene.problems.add(mark, join(f"{path}.{group}", name), message, hint)
            else:
                seen[name.upper()] = f"{group}.{name}"


# ------------------------------------------------------------------------------------------------- templates


def _parameters_name_what_exists(scene: _Scene) -> None:
    for path, step in scene.steps():
        for name, parameter in step.parameters.items():
            if not isinstance(parameter.value, str):
                continue
            field = join(join(path, "parameters"), name)
            for template in find(parameter.value):
                note = _Note(scene, parameter.mark, field, template)
                if template.step:
                    _check_sibling(note, step, "parameter", lambda target: scene.pipeline.steps[target].parameters)
                elif template.name not in SYSTEM_VARIABLES:
                    own = template.name in step.parameters
                    note.add(
                        "a parameter cannot be made from another of its own step" if own else "no such system variable",
                        f"system variables: {choices(SYSTEM_VARIABLES)}; a step in deps is named as {{{{step.name}}}}",
                    )


def _inputs_name_outputs(scene: _Scene) -> None:
    for path, step in scene.steps():
        for name, text in step.inputs.items():
            field = join(f"{path}.artifacts.input", name)
            template = whole(text.value)
            if template is None or not template.step:
                message = f"must be exactly one template {{{{step.output}}}}, is {show(text.value)}"
                scene.problems.add(text.mark, field, message, "name an output of a step in deps")
            else:
                note = _Note(scene, text.mark, field, template)
                _check_sibling(note, step, "output", lambda target: scene.outputs[target])


def _env_names_own(scene: _Scene) -> None:
    for path, step in scene.steps():
        for name, text in step.env.items():
            _check_own(scene, text, join(join(path, "env"), name), "env", step.parameters)


def _command_names_own(scene: _Scene) -> None:
    for path, step in scene.steps():
        own = {**step.parameters, **step.inputs, **scene.outputs[step.name]}
        _check_own(scene, step.command, join(path, "command"), "a command", own)


@dataclass(frozen=True, slots=True)
class _Note:
    """A template under examination: adds problems that name it."""

    scene: _Scene
    mark: Mark
    path: str
    template: Template

    def add(self, message: str, hint: str) -> None:
        self.scene.problems.add(self.mark, self.path, f"{show(self.template.text)}: {message}", hint)


def _check_own(scene: _Scene, text: Text, field: str, where: str, own: Mapping[str, object]) -> None:
    for template in find(text.value):
        note = _Note(scene, text.mark, field, template)
        if template.step == PARENT:
            note.add(f"{PARENT} has no meaning in {where}", "only parameters and inputs inside a nested dag may use it")
        elif template.step:
            note.add(
                f"{where} cannot name another step",
                f"take it in as a parameter or an input artifact, then write {{{{{template.name}}}}}",
            )
        elif template.name not in own and template.name not in SYSTEM_VARIABLES:
            near = nearest(template.name, [*SYSTEM_VARIABLES, *own])
            note.add(
                "this step has nothing of that name",
                f"did you mean {near}?" if near else f"known here: {choices([*own, *SYSTEM_VARIABLES])}",
            )


def _check_sibling(note: _Note, step: Step, what: str, names_of: Callable[[str], Mapping[str, object]]) -> None:
    """Check a dotted template: the step is in deps, exists, and has a parameter or output of that name."""
    name = note.template.step
    if name == PARENT:
        note.add(f"{PARENT} needs an enclosing dag, and this step has none", "name a step in deps instead")
    elif name not in note.scene.deps[step.name]:
        if note.scene.exists(name):
            listed = choices([*(dep.value for dep in step.deps), name])
            note.add(f"{show(name)} is not in deps", f"write deps: {listed}")
        else:
            near = nearest(name, note.scene.pipeline.steps)
            note.add(f"there is no step {show(name)}", f"did you mean {near}?" if near else "name a step in deps")
    elif name in note.scene.pipeline.steps:
        known = names_of(name)
        if note.template.name not in known:
            near = nearest(note.template.name, known)
            hint = f"did you mean {near}?" if near else f"it has: {choices(known)}"
            note.add(f"step {show(name)} has no {what} {show(note.template.name)}", hint)


# --------------------------------------------------------------------------------------- disabled steps, storage


def _disabled_steps_are_not_needed(scene: _Scene) -> None:
    steps, disabled = scene.pipeline.steps, scene.pipeline.disabled_names
    seen: set[str] = set()
    for entry in scene.pipeline.disabled:
        if entry.value in seen:
            scene.problems.add(entry.mark, "disabled", f"{show(entry.value)} is listed twice", "list it once")
        elif not scene.exists(entry.value):
            near = nearest(entry.value, steps)
            hint = f"did you mean {near}?" if near else f"steps here: {choices(steps)}"
            scene.problems.add(entry.mark, "disabled", f"there is no step {show(entry.value)}", hint)
        seen.add(entry.value)
    for path, step in scene.steps():
        if step.name in disabled:
            continue
        texts = [
            *((f"artifacts.input.{name}", text.mark, text.value) for name, text in step.inputs.items()),
            *(
                (f"parameters.{name}", p.mark, p.value)
                for name, p in step.parameters.items()
                if isinstance(p.value, str)
            ),
        ]
        for field, mark, value in texts:
            for template in find(value):
                if template.step in disabled:
                    message = f"{show(template.text)}: step {show(template.step)} is disabled"
                    scene.problems.add(
                        mark, f"{path}.{field}", message, f"disable {step.name} too, or drop the template"
                    )


def _scopes_are_mounted(scene: _Scene) -> None:
    main = scene.pipeline.main_fs
    if main is None or not main.name:
        return  # The main file system comes with the request then, and so does its name.
    scopes = [("cache", scene.pipeline.cache), *((f"{path}.cache", step.cache) for path, step in scene.steps())]
    for path, options in scopes:
        for scope in options.fs_scope:
            if scope.name != main.name:
                message = f"no file system {show(scope.name)} is mounted"
                scene.problems.add(scope.mark, f"{path}.fs_scope", message, f"the main file system is {main.name}")


RULES: tuple[Callable[[_Scene], None], ...] = (
    _dependencies_exist,
    _no_cycles,
    _names_differ_in_more_than_case,
    _parameters_name_what_exists,
    _inputs_name_outputs,
    _env_names_own,
    _command_names_own,
    _disabled_steps_are_not_needed,
    _scopes_are_mounted,
)
