"""The rules between the parts of a pipeline: names, dependencies, templates, artifacts, disabled components.

Each rule is one function; `RULES` lists them in reading order. A rule only adds to `problems`, so that one check
reports all mistakes of a file. Rules run over *families*: components written side by side, with the dag around them. A
family that several references share is checked once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, field

from weft.documents import yaml
from weft.documents.problems import Problems, choices, join, show
from weft.frontends.pipelines import conditions, parsing
from weft.frontends.pipelines.distributed import job_of, mistakes
from weft.frontends.pipelines.extras import APART
from weft.frontends.pipelines.kinds import FUNCTION, STEP_KINDS, load_kind
from weft.frontends.pipelines.language import (
    PIPELINE_FILE,
    VENV,
    Component,
    Dag,
    Mount,
    Step,
    UnreadableComponent,
    walk,
)
from weft.frontends.pipelines.references import expand
from weft.frontends.pipelines.templates import LOOP_ARGUMENT, PARENT, SYSTEM_VARIABLES, Template, find, whole
from weft.model.suggestions import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from weft.documents.problems import FilePosition
    from weft.frontends.pipelines.language import Pipeline, SourceText
    from weft.frontends.pipelines.profiles import Profile


def parse_pipeline(
    text: str, file: str, kinds: Mapping[str, str] = STEP_KINDS, profile: Profile | None = None
) -> Pipeline:
    """Read and check the text of a pipeline file (YAML or JSON); the returned pipeline has no references left.

    `file` is the name for messages; `kinds` maps kinds of steps to import paths; `profile` is that of the run.
    InputLimitError: a limit is passed. PipelineError: lists every mistake with line, column, field and the right form.
    """
    problems = Problems(file, PIPELINE_FILE)
    return _checked(yaml.load(text, problems), problems, kinds, profile)


def checked(tree: yaml.Node, file: str, kinds: Mapping[str, str] = STEP_KINDS) -> Pipeline:
    """Check a tree as `parse_pipeline` checks a text."""
    return _checked(tree, Problems(file, PIPELINE_FILE), kinds)


def _checked(tree: yaml.Node, problems: Problems, kinds: Mapping[str, str], profile: Profile | None = None) -> Pipeline:
    pipeline = expand(parsing.read(tree, problems.file, problems, kinds, profile), problems)
    check(pipeline, problems)
    return pipeline


def check(pipeline: Pipeline, problems: Problems) -> None:
    """Apply all rules; PipelineError if `problems` holds any at the end."""
    families = _families(pipeline)
    found = ((family, one) for family in families for one in family.members.values())
    members = [(family, one) for family, one in found if not isinstance(one, UnreadableComponent)]
    scene = _Scene(pipeline, problems, families, members)
    for rule in RULES:
        rule(scene)
    problems.raise_if_any()


class _Family(Struct, frozen=True):
    """Components side by side. `parent` is the dag around them; `template`: they run only through references.

    `deps` are the dependencies of each component.
    """

    members: Mapping[str, Component]
    parent: Dag | None = None
    template: bool = False
    deps: Mapping[str, frozenset[str]] = field(default_factory=dict)


class _Scene(Struct, frozen=True):
    """The input of a rule. `members` are all readable components, each with its family.

    `outputs` caches outputs by component `id`: thousands may name the same component.
    """

    pipeline: Pipeline
    problems: Problems
    families: list[_Family]
    members: list[tuple[_Family, Component]]
    outputs: dict[int, Mapping[str, SourceText]] = field(default_factory=dict)

    def outputs_of(self, component: Component) -> Mapping[str, SourceText]:
        found = self.outputs.get(id(component))
        if found is None:
            found = self.outputs[id(component)] = _outputs_of(component)
        return found


def _families(pipeline: Pipeline) -> list[_Family]:
    found: list[_Family] = []
    seen: set[int] = set()
    todo = deque(
        [
            _Family(pipeline.entry_points),
            _Family(pipeline.post_process),
            _Family(pipeline.components, template=True),
        ]
    )
    while todo:
        family = todo.popleft()
        if id(family.members) in seen:
            continue
        seen.add(id(family.members))
        deps = {
            name: frozenset([dep.value for dep in one.deps]) if one.deps else frozenset()
            for name, one in family.members.items()
        }
        found.append(_Family(family.members, family.parent, family.template, deps))
        todo.extend(_Family(one.children, one) for one in family.members.values() if isinstance(one, Dag))
    return found


# ---------------------------------------------------------------------------------------------- dependencies

_Some = TypeVar("_Some", bound=Component)


def in_order(components: Mapping[str, _Some]) -> tuple[_Some, ...]:
    """Return components so that each follows its dependencies, otherwise in file order.

    Components on a cycle or below one are left out.
    """
    dependents: dict[str, list[_Some]] = {}
    missing: dict[str, int] = {}
    ordered: list[_Some] = []
    for name, one in components.items():
        deps = {dep.value for dep in one.deps if dep.value in components} if one.deps else ()
        if not deps:
            ordered.append(one)
            continue
        missing[name] = len(deps)
        for dep in deps:
            dependents.setdefault(dep, []).append(one)
    for one in ordered:  # grows meanwhile
        for dependent in dependents.get(one.name, ()):
            missing[dependent.name] -= 1
            if missing[dependent.name] == 0:
                ordered.append(dependent)
    return tuple(ordered)


def _dependencies_exist(scene: _Scene) -> None:
    for family, component in scene.members:
        if family.template:
            continue  # the unexpected dependencies themselves are the mistake
        for dep in component.deps:
            if dep.value not in family.members:
                near = nearest(dep.value, family.members)
                hint = f"did you mean {near}?" if near else f"steps here: {choices(family.members)}"
                scene.problems.add(dep.mark, dep.path, f"there is no step {show(dep.value)}", hint)


def _no_cycles(scene: _Scene) -> None:
    for family in scene.families:
        if family.template:
            continue
        members = family.members
        ordered = in_order(members)
        if len(ordered) == len(members):
            continue
        left = members.keys() - {one.name for one in ordered}
        # Each remaining component waits for another remaining one: follow one edge from each until a component repeats.
        seen: set[str] = set()
        for start in (name for name in members if name in left):
            trail: dict[str, int] = {}
            name = start
            while name not in seen:
                seen.add(name)
                trail[name] = len(trail)
                name = next(dep.value for dep in members[name].deps if dep.value in left)
            if name in trail:
                cycle = [*list(trail)[trail[name] :], name]
                first = members[name].deps[0]
                shown = cycle if len(cycle) <= 12 else [*cycle[:11], "…", name]
                scene.problems.add(
                    first.mark,
                    first.path,
                    f"the steps wait for each other: {' → '.join(shown)}",
                    "take one of them out of the other's deps",
                )


# ---------------------------------------------------------------------------------------------------- names


def _outputs_of(component: Component) -> Mapping[str, SourceText]:
    if isinstance(component, Step):
        return {text.value: text for text in component.outputs}
    return component.outputs if isinstance(component, Dag) else {}


def _names_differ_in_more_than_case(scene: _Scene) -> None:
    for _, component in scene.members:
        seen: dict[str, str] = {}
        outputs = component.outputs if isinstance(component, Step) else tuple(_outputs_of(component).values())
        if len(component.parameters) + len(component.inputs) + len(outputs) < 2:
            continue
        named = [
            *((parameter.mark, parameter.path, "parameters", name) for name, parameter in component.parameters.items()),
            *((text.mark, text.path, "artifacts.input", name) for name, text in component.inputs.items()),
            *(
                (text.mark, text.path, "artifacts.output", name)
                for text, name in zip(outputs, _output_names(component), strict=True)
            ),
        ]
        for mark, path, group, name in named:
            if name.upper() in seen:
                message = f"the name is already taken by {seen[name.upper()]} (upper and lower case count as the same)"
                hint = "parameters, inputs and outputs of a step share one set of names"
                where = path if group != "artifacts.output" else f"{component.path}.artifacts.output.{name}"
                scene.problems.add(mark, where, message, hint)
            else:
                seen[name.upper()] = f"{group}.{name}"


def _output_names(component: Component) -> list[str]:
    if isinstance(component, Step):
        return [text.value for text in component.outputs]
    return list(_outputs_of(component))


def _items_of_loops_have_their_own_names(scene: _Scene) -> None:
    for family, component in scene.members:
        stem, dash, digits = component.name.rpartition("-")
        other = family.members.get(stem) if dash and digits.isdigit() else None
        if isinstance(other, Dag) and other.loop is not None:
            message = f"that is what a later item of the loop {show(stem)} is called"
            scene.problems.add(component.mark, component.path, message, "give it another name")


# ------------------------------------------------------------------------------------------------- templates


def _parameters_name_what_exists(scene: _Scene) -> None:
    for family, component in scene.members:
        for name, parameter in component.parameters.items():
            if not isinstance(parameter.value, str):
                continue
            for template in find(parameter.value):
                note = _Note(scene, parameter.mark, parameter.path, template)
                if template.step == PARENT:
                    _check_parent(note, family, "parameter")
                elif template.step:
                    _check_sibling(note, family, component, "parameter")
                elif template.name not in SYSTEM_VARIABLES:
                    own = template.name in component.parameters and name
                    note.add(
                        "a parameter cannot be made from another of its own step" if own else "no such system variable",
                        f"system variables: {choices(SYSTEM_VARIABLES)}; a step in deps is named as {{{{step.name}}}}",
                    )
                elif template.name == LOOP_ARGUMENT and component.loop is not None and not _is_looped(family):
                    note.add(
                        "the items of a loop share its parameters, so none can hold the item",
                        "name it in the command, env or condition; inside a dag that loops in its place: "
                        f"{{{{{PARENT}.{LOOP_ARGUMENT}}}}}",
                    )


def _is_looped(family: _Family) -> bool:
    """Whether an enclosing dag may loop, so that a parameter can hold its item."""
    return family.template or (family.parent is not None and family.parent.loop is not None)


def _inputs_name_outputs(scene: _Scene) -> None:
    for family, component in scene.members:
        for text in component.inputs.values():
            template = whole(text.value)
            if family.template and (not text.value or template is not None):
                continue  # the reference supplies it
            if template is None or not template.step:
                message = f"must be exactly one template {{{{step.output}}}}, is {show(text.value)}"
                scene.problems.add(text.mark, text.path, message, "name an output of a step in deps")
                continue
            note = _Note(scene, text.mark, text.path, template)
            if template.step == PARENT:
                _check_parent(note, family, "input")
            else:
                _check_sibling(note, family, component, "output")


def _outputs_of_dags_name_outputs_inside(scene: _Scene) -> None:
    for _, component in scene.members:
        if not isinstance(component, Dag):
            continue
        for text in component.outputs.values():
            template = whole(text.value)
            if template is None or not template.step or template.step == PARENT:
                message = f"must be exactly one template {{{{child.output}}}}, is {show(text.value)}"
                scene.problems.add(text.mark, text.path, message, "name an output of a step inside this dag")
            elif template.step not in component.children:
                near = nearest(template.step, component.children)
                hint = f"did you mean {near}?" if near else f"steps inside: {choices(component.children)}"
                _Note(scene, text.mark, text.path, template).add(f"no step {show(template.step)} is inside", hint)
            else:
                _check_target(_Note(scene, text.mark, text.path, template), component.children[template.step], "output")


def _env_names_own(scene: _Scene) -> None:
    for _, component in scene.members:
        if isinstance(component, Step):
            for text in component.env.values():
                _check_own(scene, text, "env", component.parameters)


def _command_names_own(scene: _Scene) -> None:
    for _, component in scene.members:
        if isinstance(component, Step) and "{{" in component.command.value:
            own = {**component.parameters, **component.inputs, **_outputs_of(component)}
            _check_own(scene, component.command, "a command", own)


def _jobs_have_a_backend(scene: _Scene) -> None:
    """Refuse distributed jobs whose variables are wrong. Disabled steps are left out."""
    enabled = _enabled_steps(scene.pipeline) if scene.pipeline.disabled else None
    for family, step in scene.members:
        if not isinstance(step, Step) or step.kind.value or not step.env:
            continue
        if enabled is not None and not family.template and id(step) not in enabled:
            continue
        if step.is_ray_job:
            if not step.shell_text.value.strip():
                text = step.env["PF_JOB_FRAMEWORK"]
                hint = "give RAY_JOB_ENTRY_POINT the command of the job"
                scene.problems.add(text.mark, text.path, "a job of Ray needs an entry point", hint)
            continue
        for text, message, hint in mistakes(step):
            scene.problems.add(text.mark, text.path, message, hint)


def _enabled_steps(pipeline: Pipeline) -> set[int]:
    """Return the `id` of each component that is neither disabled nor inside a disabled dag."""
    disabled = {entry.value for entry in pipeline.disabled}
    found = {id(step) for step in pipeline.post_process.values()}
    for name, component in walk(pipeline.entry_points):
        parts = name.split(".")
        if not any(".".join(parts[:end]) in disabled for end in range(1, len(parts) + 1)):
            found.add(id(component))
    return found


def _kinds_take_their_options(scene: _Scene) -> None:
    for _, step in scene.members:
        if not isinstance(step, Step):
            continue
        kind = step.kind.value
        if not kind and not step.options:
            continue
        where = f"{step.path}.x-weft.with"
        if not kind:
            scene.problems.add(step.mark, where, "belongs to no kind of step", "say which: kind")
            continue
        if kind not in scene.pipeline.kinds:
            near = nearest(kind, scene.pipeline.kinds)
            hint = f"did you mean {near}?" if near else f"there are: {choices(scene.pipeline.kinds)}"
            scene.problems.add(step.kind.mark, step.kind.path, f"there is no kind of step {show(kind)}", hint)
            continue
        if step.command.value.strip():
            message = f"a step of kind {kind} has no command"
            scene.problems.add(step.command.mark, step.command.path, message, "leave one of the two out")
        own = {**step.parameters, **step.inputs, **_outputs_of(step)}
        for text in step.option_texts:
            _check_own(scene, text, "an option", own)
        found = load_kind(scene.pipeline.kinds[kind])
        marks = {text.path: text.mark for text in step.option_texts}
        for name in step.options:
            if name not in found.options:
                near = nearest(name, found.options)
                hint = f"did you mean {near}?" if near else f"it takes: {choices(found.options)}"
                at = join(where, name)
                scene.problems.add(marks.get(at, step.kind.mark), at, f"unknown option of kind {kind}", hint)
        missing = [name for name, needed in found.options.items() if needed and name not in step.options]
        complaints = [(name, "is missing") for name in missing] or found.check(step.options)
        for name, message in complaints:
            at = join(where, name) if name else where
            scene.problems.add(marks.get(at, step.kind.mark), at, message)


def _environments_fit(scene: _Scene) -> None:
    for _, step in scene.members:
        if not isinstance(step, Step) or step.packages is None:
            continue
        packages, kind = step.packages, step.kind.value
        if step.docker_env:
            scene.problems.add(
                packages.mark, packages.path, "cannot stand beside `docker_env`", "leave out one of them"
            )
        elif kind == FUNCTION and packages.kind != VENV:
            hint = "write environment: {venv: requirements.txt}"
            scene.problems.add(packages.mark, packages.path, "cannot run a function of Python", hint)
        elif kind not in ("", FUNCTION) or job_of(step) is not None:
            what = f"a step of kind {kind}" if kind else "a distributed step"
            scene.problems.add(packages.mark, packages.path, f"{what} has no environment", "leave it out")


def _errors_fit(scene: _Scene) -> None:
    for _, step in scene.members:
        if isinstance(step, Step) and step.stderr.value == APART:
            kind = step.kind.value
            if kind not in ("", FUNCTION) or job_of(step) is not None:
                what = f"a step of kind {kind}" if kind else "a distributed step"
                scene.problems.add(step.stderr.mark, step.stderr.path, f"{what} cannot have it", "leave it out")


def _conditions_make_sense(scene: _Scene) -> None:
    for _, component in scene.members:
        text = component.condition
        if not text.value.strip():
            continue
        _check_own(scene, text, "a condition", {**component.parameters, **component.inputs})
        try:
            if any(find(text.value)):
                conditions.parse(conditions.without_braces(text.value))
            else:
                conditions.holds(text.value)
        except conditions.ConditionError as error:
            scene.problems.add(text.mark, text.path, f"{show(text.value)}: {error}", conditions.HINT)


def _loops_name_own(scene: _Scene) -> None:
    for _, component in scene.members:
        loop = component.loop
        if loop is None or not isinstance(loop.value, str):
            continue
        own = {**component.parameters, **component.inputs}
        for template in find(loop.value):
            note = _Note(scene, loop.mark, loop.path, template)
            if template.step:
                note.add(
                    "a loop goes over what its own component has",
                    f"take it in as a parameter or an input artifact, then write {{{{{template.name}}}}}",
                )
            elif template.name not in own:
                near = nearest(template.name, own)
                note.add(
                    "this component has nothing of that name to loop over",
                    f"did you mean {near}?" if near else f"parameters and inputs here: {choices(own)}",
                )


class _Note(Struct, frozen=True):
    """A template under examination: adds problems that name it."""

    scene: _Scene
    mark: FilePosition
    path: str
    template: Template

    def add(self, message: str, hint: str) -> None:
        self.scene.problems.add(self.mark, self.path, f"{show(self.template.text)}: {message}", hint)


def _check_own(scene: _Scene, text: SourceText, where: str, own: Mapping[str, object]) -> None:
    for template in find(text.value):
        note = _Note(scene, text.mark, text.path, template)
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


def _check_parent(note: _Note, family: _Family, what: str) -> None:
    """Check a template of `PF_PARENT`: an enclosing dag exists and has a parameter or input of that name."""
    if family.template:
        return  # known only at the reference
    parent, name = family.parent, note.template.name
    if parent is None:
        note.add(f"{PARENT} needs an enclosing dag, and this step has none", "name a step in deps instead")
        return
    if what == "parameter" and name == LOOP_ARGUMENT:
        if parent.loop is None:
            note.add(f"dag {show(parent.name)} has no loop", "give it a loop_argument")
        return
    known: Mapping[str, object] = parent.parameters if what == "parameter" else parent.inputs
    if name not in known:
        near = nearest(name, known)
        hint = f"did you mean {near}?" if near else f"it has: {choices(known)}"
        note.add(f"dag {show(parent.name)} has no {what} {show(name)}", hint)


def _check_sibling(note: _Note, family: _Family, component: Component, what: str) -> None:
    """Check a dotted template: the step is in deps, exists, and has a parameter or output of that name."""
    name = note.template.step
    if family.template:
        return  # the siblings are known only at the reference
    if name not in family.deps[component.name]:
        if name in family.members:
            listed = choices([*(dep.value for dep in component.deps), name])
            note.add(f"{show(name)} is not in deps", f"write deps: {listed}")
        else:
            near = nearest(name, family.members)
            note.add(f"there is no step {show(name)}", f"did you mean {near}?" if near else "name a step in deps")
    elif name in family.members:
        _check_target(note, family.members[name], what)


def _check_target(note: _Note, target: Component, what: str) -> None:
    if isinstance(target, UnreadableComponent):
        return
    known = target.parameters if what == "parameter" else note.scene.outputs_of(target)
    if note.template.name not in known:
        near = nearest(note.template.name, known)
        hint = f"did you mean {near}?" if near else f"it has: {choices(known)}"
        note.add(f"step {show(target.name)} has no {what} {show(note.template.name)}", hint)
    elif what == "output" and target.condition.value.strip():
        message = f"step {show(target.name)} has a condition, so there may be no such file"
        note.add(message, "move the condition to what reads it, or take it away")


# ------------------------------------------------------------------------------------------- post_process, disabled


def _post_process_is_a_plain_step(scene: _Scene) -> None:
    pipeline = scene.pipeline
    for name, step in pipeline.post_process.items():
        if name in pipeline.entry_points:
            message = f"{show(name)} is already the name of an entry point"
            scene.problems.add(step.mark, step.path, message, "give it another name")
        if isinstance(step, Dag):
            scene.problems.add(step.mark, step.path, "post_process takes a step, not a dag", "write one step")
        elif isinstance(step, Step):
            inputs = next(iter(step.inputs.values()), None)
            wrong = [inputs, step.condition if step.condition.value else None, step.loop]
            for found in wrong:
                if found is not None:
                    scene.problems.add(found.mark, found.path, "a step of post_process has none", "remove it")


def _disabled_steps_are_not_needed(scene: _Scene) -> None:
    if not scene.pipeline.disabled:
        return
    known = dict(walk(scene.pipeline.entry_points))
    disabled: dict[str, set[str]] = {}
    seen: set[str] = set()
    for entry in scene.pipeline.disabled:
        name = entry.value
        if name in seen:
            scene.problems.add(entry.mark, "disabled", f"{show(name)} is listed twice", "list it once")
        elif name not in known:
            parts = name.split(".")
            above = (".".join(parts[:end]) for end in range(1, len(parts)))
            if not any(isinstance(known.get(one), UnreadableComponent) for one in above):
                near = nearest(name, known)
                hint = f"did you mean {near}?" if near else f"steps here: {choices(known)}"
                scene.problems.add(entry.mark, "disabled", f"there is no step {show(name)}", hint)
        else:
            parent, _, own = name.rpartition(".")
            disabled.setdefault(parent, set()).add(own)
        seen.add(name)
    for parent, names in disabled.items():
        if any(".".join(parent.split(".")[:end]) in seen for end in range(1, parent.count(".") + 2)):
            continue  # the components around it do not run either
        dag = known.get(parent)
        members = dag.children if isinstance(dag, Dag) else scene.pipeline.entry_points
        for component in members.values():
            if component.name not in names:
                _needs_none_of(scene, names, component)
        if isinstance(dag, Dag):
            for text in dag.outputs.values():
                _is_not_disabled(scene, names, text.mark, text.path, text.value, dag.name)


def _needs_none_of(scene: _Scene, names: set[str], component: Component) -> None:
    for text in component.inputs.values():
        _is_not_disabled(scene, names, text.mark, text.path, text.value, component.name)
    for parameter in component.parameters.values():
        if isinstance(parameter.value, str):
            _is_not_disabled(scene, names, parameter.mark, parameter.path, parameter.value, component.name)


def _is_not_disabled(scene: _Scene, names: set[str], mark: FilePosition, path: str, value: str, reader: str) -> None:
    for template in find(value):
        if template.step in names:
            message = f"{show(template.text)}: step {show(template.step)} is disabled"
            scene.problems.add(mark, path, message, f"disable {reader} too, or drop the template")


# ------------------------------------------------------------------------------------------------------ storage


def _scopes_are_mounted(scene: _Scene) -> None:
    pipeline = scene.pipeline
    main = pipeline.main_fs
    if main is None or not main.name:
        return  # The request then names the main file system.
    everywhere = {main.name, *(mount.name for mount in pipeline.extra_fs)}
    for path, mark, name in (("cache", scope.mark, scope.name) for scope in pipeline.cache.fs_scope):
        _is_mounted(scene, path, mark, name, everywhere)
    for _, component in scene.members:
        if isinstance(component, Step) and component.cache.fs_scope:
            mounted = everywhere | {mount.name for mount in component.extra_fs}
            for scope in component.cache.fs_scope:
                _is_mounted(scene, f"{component.path}.cache", scope.mark, scope.name, mounted)


def _is_mounted(scene: _Scene, path: str, mark: FilePosition, name: str, mounted: set[str]) -> None:
    if name not in mounted:
        message = f"no file system {show(name)} is mounted"
        hint = f"the main file system is {scene.pipeline.main_fs.name if scene.pipeline.main_fs else ''}"
        extra = sorted(mounted - {scene.pipeline.main_fs.name if scene.pipeline.main_fs else ""})
        if extra:
            hint += f"; others: {choices(extra)}"
        scene.problems.add(mark, join(path, "fs_scope"), message, hint)


def _mount_paths_differ(scene: _Scene) -> None:
    pipeline = scene.pipeline
    taken: dict[tuple[str, ...], Mount] = {}
    if pipeline.main_fs is not None:
        _lie_apart(scene, taken, "fs_options.main_fs", (pipeline.main_fs,))
    _lie_apart(scene, taken, "fs_options.extra_fs", pipeline.extra_fs)
    for _, component in scene.members:
        if isinstance(component, Step) and component.extra_fs:
            _lie_apart(scene, dict(taken), f"{component.path}.extra_fs", component.extra_fs)


def _lie_apart(scene: _Scene, taken: dict[tuple[str, ...], Mount], path: str, mounts: Iterable[Mount]) -> None:
    """Check that no two mounts share a path; an identical mount may repeat."""
    for number, mount in enumerate(mounts):
        where = tuple(part for part in mount.mount_path.split("/") if part not in ("", "."))
        other = taken.setdefault(where or ("", mount.name), mount)
        if _folder_of(other) != _folder_of(mount):
            message = f"{show(other.name)} is at {show(mount.mount_path) if where else 'the same mount path'} already"
            hint = f"only one can be there: give {mount.name} a mount_path of its own"
            scene.problems.add(mount.mark, f"{path}[{number}].mount_path", message, hint)


def _folder_of(mount: Mount) -> tuple[str, list[str], bool]:
    return mount.name, [part for part in mount.sub_path.split("/") if part not in ("", ".")], mount.read_only


RULES: tuple[Callable[[_Scene], None], ...] = (
    _dependencies_exist,
    _no_cycles,
    _names_differ_in_more_than_case,
    _items_of_loops_have_their_own_names,
    _parameters_name_what_exists,
    _inputs_name_outputs,
    _outputs_of_dags_name_outputs_inside,
    _env_names_own,
    _command_names_own,
    _jobs_have_a_backend,
    _kinds_take_their_options,
    _environments_fit,
    _errors_fit,
    _conditions_make_sense,
    _loops_name_own,
    _post_process_is_a_plain_step,
    _disabled_steps_are_not_needed,
    _scopes_are_mounted,
    _mount_paths_differ,
)
