"""Resolves a checked pipeline for one run: steps with all values, and the controls that decide during the run.

`check.py` has settled which names a template of each field may use; this module fills in the values. Dags are
dissolved: their steps stand side by side, each with the vertices that it waits for. Loops over known lists are resolved
here; a loop over the content of an artifact is a control, and `resolve_items` resolves its dag when the content is
known. Nothing touches the disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from weft.documents.problems import show
from weft.frontends.pipelines import parts, paths
from weft.frontends.pipelines.check import in_order
from weft.frontends.pipelines.distributed import TRAINING, job_of, options_of
from weft.frontends.pipelines.extras import APART
from weft.frontends.pipelines.kinds import StepBody, decoded, encoded
from weft.frontends.pipelines.language import Component, Dag, Mount, Packages, Step
from weft.frontends.pipelines.parameters import convert, list_from_text
from weft.frontends.pipelines.parts import (
    CONTENT,
    INPUT,
    ITEM,
    OUTPUT,
    SECRET,
    Filled,
    OutputFolder,
    OutputPaths,
    Placeholder,
    Places,
    filled,
    places_to_json,
    plain,
    sources,
    static,
)
from weft.frontends.pipelines.resolved import (
    DECIDE,
    JOIN,
    LIST,
    REPEAT,
    SKIP,
    ComponentScope,
    ControlStep,
    MountPoint,
    Node,
    ResolvedStep,
    RunIdentity,
)
from weft.frontends.pipelines.states import IS_DISABLED, IS_EMPTY
from weft.frontends.pipelines.templates import (
    LOOP_ARGUMENT,
    PARENT,
    RUN_ID,
    STEP_NAME,
    USER_NAME,
    Template,
    as_text,
    fill,
    find,
    go_text,
    whole,
)
from weft.model.errors import DefinitionError, InputLimitError, PipelineError

if TYPE_CHECKING:
    from weft.frontends.pipelines.language import ParameterDefinition, Pipeline
    from weft.frontends.pipelines.templates import ParameterValue

MAX_RESOLVED_CHARACTERS = 16 * 1024 * 1024
"""The most characters of all texts of a run after filling: a few templates can ask for gigabytes."""
MAX_NODES = 100_000
"""The most steps and controls of a run, or of one dag that a loop repeats."""
MAX_WAITED = 8
"""Up to this number of vertices are waited for directly, more through one that joins them."""
_LONGEST_ID = 150


def resolve_nodes(pipeline: Pipeline, run: RunIdentity, part: str = paths.ENTRY_POINTS) -> list[Node]:
    """Return steps and controls of one part of a run in topological order.

    UsageError: a bad argument. PipelineError: the value of a template does not fit its parameter's type or is no list
    to loop over. InputLimitError: templates fill in more than 16 Mi characters, or loops make more than 100,000 steps.
    """
    run.check()
    members = pipeline.entry_points if part == paths.ENTRY_POINTS else pipeline.post_process
    made = _Resolver(pipeline, run, part)
    made.family(members, ComponentScope())
    return made.nodes


def resolve_items(
    pipeline: Pipeline, run: RunIdentity, dag: Dag, scope: ComponentScope, items: Sequence[ParameterValue]
) -> tuple[list[Node], tuple[str, ...], dict[str, Places]]:
    """Return the nodes of a dag for all its items, the vertices that end last, and the places of its outputs.

    `scope` encloses the items: its `id` is the dag's, and it has the dag's own parameters and inputs.
    """
    made = _Resolver(pipeline, run, paths.ENTRY_POINTS)
    ends, outputs = made.repeated(dag, scope, tuple(items))
    return made.nodes, ends, outputs


def resolve(pipeline: Pipeline, *, run_id: str, user: str, root: str) -> tuple[ResolvedStep, ...]:
    """Return the steps of one run in topological order, as `resolve_nodes` does; disabled steps are marked.

    `pipeline` comes from `parse_pipeline`.
    """
    return tuple(n for n in resolve_nodes(pipeline, RunIdentity(run_id, user, root)) if isinstance(n, ResolvedStep))


class _Resolver:
    """The nodes made so far."""

    def __init__(self, pipeline: Pipeline, run: RunIdentity, part: str) -> None:
        self.pipeline, self.run, self.part = pipeline, run, part
        self.nodes: list[Node] = []
        self.base = str(PurePosixPath(run.root, pipeline.main_fs.sub_path if pipeline.main_fs else ""))
        self._disabled = pipeline.disabled_names
        self._orders: dict[int, tuple[Component, ...]] = {}
        self._characters = 0

    # ---------------------------------------------------------------------------------------------- families

    def family(
        self, members: Mapping[str, Component], scope: ComponentScope
    ) -> tuple[tuple[str, ...], dict[str, dict[str, Places]]]:
        """Add sibling components; return the vertices that end last, and the outputs of each component."""
        order = self._orders.get(id(members))
        if order is None:
            order = self._orders[id(members)] = in_order(members)
        ends: dict[str, tuple[str, ...]] = {}
        parameters: dict[str, Mapping[str, ParameterValue]] = {}
        outputs: dict[str, dict[str, Places]] = {}
        last = dict.fromkeys(members)
        for component in order:
            deps = dict.fromkeys([dep.value for dep in component.deps]) if component.deps else {}
            after = tuple(dict.fromkeys([id for dep in deps for id in ends[dep]])) if deps else scope.entry
            for dep in deps:
                last.pop(dep, None)
            name = component.name
            parameters[name] = self._parameters(component, scope, parameters) if component.parameters else {}
            inputs = (
                {key: self._input(text.value, scope, outputs) for key, text in component.inputs.items()}
                if component.inputs
                else {}
            )
            vertex = _id(scope.id, name)
            own = ComponentScope(vertex, scope.name + name, scope.dotted + name, parameters[name], inputs, entry=after)
            if isinstance(component, Dag):
                made = self._dag(component, own)
            elif isinstance(component, Step):
                made = self._step(component, own)
            else:
                raise AssertionError("references were followed before")
            ends[name], outputs[name] = made
            if len(self.nodes) > MAX_NODES:
                raise InputLimitError(
                    f"{self.pipeline.file}: the loops make more than {MAX_NODES} steps",
                    hint="loop in a step, which costs less than a dag for each item, or go over larger pieces",
                )
        return tuple(dict.fromkeys(id for name in last for id in ends[name])), outputs

    def _joined(self, ids: tuple[str, ...], id: str, name: str) -> tuple[str, ...]:
        """Return the vertices to wait for: `ids`, or, if they are many, one that joins them."""
        if len(ids) <= MAX_WAITED:
            return ids
        self.nodes.append(ControlStep(id, name, JOIN, ids))
        return (id,)

    # ------------------------------------------------------------------------------------------------- steps

    def _step(self, step: Step, own: ComponentScope) -> tuple[tuple[str, ...], dict[str, Places]]:
        id, name, after = own.id, own.name, own.entry
        folder = OutputFolder(self.base, self.run.run_id, self.pipeline.name, name, self.part)
        disabled = own.dotted in self._disabled
        items, listed = (None, "") if disabled else self._items(step, own.parameters)
        deps, lister = after, ""
        condition: Filled = ""
        if listed:
            lister = f"{id}/loop"
            params = {"input": listed, "as_paddleflow": sorted(self.pipeline.as_paddleflow)}
            self._control(lister, name, LIST, after, params, {listed: own.inputs[listed]})
            deps = (*after, lister)
        loops = items is not None or bool(lister)
        asked = step.condition.value if not disabled and items != () else ""
        if asked.strip():
            asks = self._condition(step, asked, own.parameters, own.inputs, LOOP_ARGUMENT if loops else "")
            if loops and any(template.name == LOOP_ARGUMENT for template in find(asked)):
                condition = asks
            else:
                decider = f"{id}/if"
                self._decider(decider, name, after, asks, own.inputs, (id,))
                deps = (*deps, decider)
        made = self._resolved(step, own, folder, deps, items=items, lister=lister, condition=condition)
        self.nodes.append(made)
        ends = (*after, id) if made.not_run else (id,)
        if not step.outputs:
            return ends, {}
        if lister:
            return ends, {text.value: (OutputPaths(lister, text.value, folder),) for text in step.outputs}
        seqs = range(1 if items is None else len(items))
        return ends, {text.value: tuple(folder.path(text.value, seq) for seq in seqs) for text in step.outputs}

    def _resolved(
        self,
        step: Step,
        scope: ComponentScope,
        folder: OutputFolder,
        deps: tuple[str, ...],
        *,
        items: tuple[ParameterValue, ...] | None,
        lister: str,
        condition: Filled,
    ) -> ResolvedStep:
        parameters, inputs, loops = scope.parameters, scope.inputs, items is not None or bool(lister)
        known, outputs, artifacts, left = _artifacts(step, inputs, folder, loops=loops)
        text = paths.shell_body(step.shell_text.value)
        command: Filled = text
        portable: Filled = text
        declared: dict[str, Filled] = {}
        body: StepBody | None = None
        if step.env or step.kind.value or "{{" in text:
            own: dict[str, ParameterValue | Placeholder] = {**parameters, **self._system(step.name)}
            if loops:
                own[LOOP_ARGUMENT] = Placeholder(ITEM)
            declared = {key: self._fill(text.value, own) for key, text in step.env.items()}
            values = {**artifacts, **own}
            left |= {**own, LOOP_ARGUMENT: f"{{{{{LOOP_ARGUMENT}}}}}" if loops else ""}
            portable, command = self._fill(text, left), self._fill(text, values)
            body = self._body(step, declared, values, left)
        secrets = {key: text.value for key, text in step.secrets.items()} if step.secrets else {}
        given = declared | {key: (Placeholder(SECRET, name),) for key, name in secrets.items()} if secrets else declared
        env = paths.environment(
            given,
            run_id=self.run.run_id,
            step=step.name,
            user=self.run.user,
            inputs={key: _text_of(artifacts[key]) for key in inputs} if inputs else {},
            outputs={key: _text_of(artifacts[key]) for key in outputs} if outputs else {},
            cwd=self.base,
            loop_argument=(Placeholder(ITEM),) if loops else "",
        )
        return ResolvedStep(
            name=scope.name,
            command=command,
            env=env,
            deps=deps,
            inputs=known,
            outputs=outputs,
            cwd=self.base,
            cache=step.cache.over(self.pipeline.cache) if self.part == paths.ENTRY_POINTS else step.cache,
            timeout_s=step.timeout_s,
            retry=step.retry,
            resources=step.resources,
            disabled=scope.dotted in self._disabled,
            docker_env="" if step.packages is not None else step.docker_env or self.pipeline.docker_env,
            packages=self._packages(step),
            apart=step.stderr.value == APART,
            parameters=parameters,
            declared_env=declared,
            secrets=secrets,
            ray=step.is_ray_job,
            portable_command=portable if isinstance(portable, str) else "",
            id=scope.id,
            folder=folder,
            places=inputs,
            mounts=self._mounts(step),
            body=body,
            items=items,
            lister=lister,
            condition=condition,
        )

    def _packages(self, step: Step) -> Packages | None:
        """Return the environment of a step; its file is found from the folder of the pipeline's file."""
        found = step.packages
        return None if found is None else replace(found, file=os.path.join(self.run.folder, found.file))

    def _body(
        self,
        step: Step,
        declared: Mapping[str, Filled],
        values: Mapping[str, ParameterValue | Placeholder],
        portable: Mapping[str, ParameterValue | Placeholder],
    ) -> StepBody | None:
        kind, options = self._kind(step, declared)
        if not kind:
            return None

        def filled_by(values: Mapping[str, ParameterValue | Placeholder]) -> Callable[[str], Any]:
            def value_of(text: str) -> Any:
                alone = whole(text)
                value = values.get(alone.name) if alone is not None and not alone.step else None
                if value is None or isinstance(value, str | Placeholder):
                    return self._fill(text, values)
                self._text(value)  # counts the characters
                return plain(value)

            return value_of

        left = encoded(options, filled_by(portable))
        return StepBody(
            kind,
            self.pipeline.kinds[kind],
            encoded(options, filled_by(values)),
            decoded(left, str, None),
        )

    def _kind(self, step: Step, declared: Mapping[str, Filled]) -> tuple[str, Mapping[str, Any]]:
        """Return the kind of a step with its options, also of a distributed step of PaddleFlow; "" for a command."""
        job = job_of(step)
        if job is None:
            return step.kind.value, step.options
        try:
            return TRAINING, options_of(step, job, step.docker_env or self.pipeline.docker_env, declared.get)
        except ValueError as error:
            raise DefinitionError(f"step {step.name}: {error}", hint="Give its parameter another value.") from None

    def _mounts(self, step: Step) -> tuple[MountPoint, ...]:
        main = self.pipeline.main_fs
        found = []
        if main is not None:
            found.append(replace(self._mount(main, self.run.root), main=True))
        for mount in (*step.extra_fs, *self.pipeline.extra_fs):
            same = main is not None and mount.name == main.name
            found.append(self._mount(mount, self.run.root if same else self.run.file_systems.get(mount.name)))
        return tuple(found)

    def _mount(self, mount: Mount, root: str | None) -> MountPoint:
        where = mount.mount_path or paths.mount_path(self.run.user, mount.name)
        source = None if root is None else str(PurePosixPath(root, mount.sub_path))
        return MountPoint(
            mount.name, where, source, mount.read_only, mount.sub_path, root=None if root is None else str(root)
        )

    # -------------------------------------------------------------------------------------------------- dags

    def _dag(self, dag: Dag, own: ComponentScope) -> tuple[tuple[str, ...], dict[str, Places]]:
        id, name, after = own.id, own.name, own.entry
        disabled = own.dotted in self._disabled
        items, listed = (None, "") if disabled else self._items(dag, own.parameters)
        if disabled or items == ():
            self.nodes.append(ControlStep(id, name, SKIP, after, not_run=IS_DISABLED if disabled else IS_EMPTY))
            return (*after, id), dict.fromkeys(dag.outputs, ())
        entry = self._joined(after, f"{id}/begin", name)
        asked = dag.condition.value
        decider = f"{id}/if" if asked.strip() and not _asks_items(dag) else ""
        start = len(self.nodes)
        if decider:
            self._decider(
                decider, name, entry, self._condition(dag, asked, own.parameters, own.inputs, ""), own.inputs, ()
            )
            entry = (decider,)
        inner = replace(own, entry=entry)
        if listed:
            params = {
                "input": listed,
                "dag": own.dotted,
                "name": name,
                "parameters": {key: plain(value) for key, value in own.parameters.items()},
            }
            self._control(id, name, REPEAT, entry, params, own.inputs)
            places_id = f"{id}/outputs"
            outputs: dict[str, Places] = {key: (OutputPaths(places_id, key),) for key in dag.outputs}
            # A vertex of the dag's own patch returns the places of its outputs, and the patch has the edge from there.
            end = {"outputs": {key: places_to_json(places) for key, places in outputs.items()}}
            self.nodes.append(ControlStep(f"{id}/end", name, JOIN, (id,), (), end))
            ends: tuple[str, ...] = (f"{id}/end",)
            outputs = {key: (OutputPaths(f"{id}/end", key),) for key in dag.outputs}
        else:
            ends, outputs = self.repeated(dag, inner, items)
            ends = self._joined(ends, f"{id}/end", name)
        if decider:
            self._decides(start)
        return ends, outputs

    def _decides(self, start: int) -> None:
        """Make the decider that is node `start` decide over all nodes that were added after it."""
        decider = self.nodes[start]
        if not isinstance(decider, ControlStep):
            raise AssertionError("the decider was added first")
        decider.members = tuple(node.id for node in self.nodes[start + 1 :])

    def repeated(
        self, dag: Dag, scope: ComponentScope, items: tuple[ParameterValue, ...] | None
    ) -> tuple[tuple[str, ...], dict[str, Places]]:
        """Add a dag once for each item, or once without items (None); `scope` has the id and name of the dag itself."""
        ends: dict[str, None] = {}
        outputs: dict[str, list[Any]] = {key: [] for key in dag.outputs}
        entry = scope.entry
        if items is not None and len(entry) > 1 and len(items) * len(entry) > MAX_WAITED**2:
            self.nodes.append(ControlStep(f"{scope.id}/begin", scope.name, JOIN, entry))
            entry = (f"{scope.id}/begin",)
        for seq, item in enumerate(("",) if items is None else items):
            id = scope.id if items is None else f"{scope.id}/{seq}"
            name = f"{scope.name}-{seq}" if seq else scope.name
            inside = replace(scope, id=f"{id}.", name=f"{name}.", dotted=f"{scope.dotted}.", item=item, entry=entry)
            start = len(self.nodes)
            if items is not None and _asks_items(dag):
                asks = self._condition(dag, dag.condition.value, scope.parameters, scope.inputs, as_text(item))
                self._decider(f"{id}/if", name, entry, asks, scope.inputs, ())
                inside = replace(inside, entry=(f"{id}/if",))
            last, places = self.family(dag.children, inside)
            if inside.entry is not entry:
                self._decides(start)
            ends.update(dict.fromkeys(last))
            for key, text in dag.outputs.items():
                template = whole(text.value)
                if template is None:
                    raise AssertionError("the check lets no output through that is not one template")
                outputs[key] += places[template.step][template.name]
        return tuple(ends), {key: tuple(found) for key, found in outputs.items()}

    # ---------------------------------------------------------------------------------------------- controls

    def _control(
        self,
        id: str,
        name: str,
        kind: str,
        deps: tuple[str, ...],
        params: dict[str, Any],
        inputs: Mapping[str, Places],
    ) -> ControlStep:
        """Add a control that reads the places of these artifacts."""
        params["inputs"] = {key: places_to_json(places) for key, places in inputs.items()}
        reads = dict.fromkeys(source for places in inputs.values() for source in sources(places))
        made = ControlStep(id, name, kind, deps, tuple(reads), params)
        self.nodes.append(made)
        return made

    def _decider(
        self,
        id: str,
        name: str,
        deps: tuple[str, ...],
        asks: Filled,
        inputs: Mapping[str, Places],
        members: tuple[str, ...],
    ) -> None:
        named = {piece.name for piece in asks if isinstance(piece, Placeholder)} if not isinstance(asks, str) else set()
        read = {key: places for key, places in inputs.items() if key in named}
        made = self._control(id, name, DECIDE, deps, {"condition": parts.text_to_json(asks)}, read)
        made.members = members

    def _condition(
        self,
        component: Component,
        text: str,
        parameters: Mapping[str, ParameterValue],
        inputs: Mapping[str, Places],
        item: str,
    ) -> Filled:
        """Return a filled condition; `item` is the text of the loop's item, or LOOP_ARGUMENT for a placeholder."""
        values: dict[str, ParameterValue | Placeholder] = {key: Placeholder(CONTENT, key) for key in inputs}
        values |= {**parameters, **self._system(component.name)}
        values[LOOP_ARGUMENT] = Placeholder(ITEM) if item == LOOP_ARGUMENT else item
        return self._fill(text, values)

    def _items(
        self, component: Component, parameters: Mapping[str, ParameterValue]
    ) -> tuple[tuple[ParameterValue, ...] | None, str]:
        """Return the items of a loop, or the input artifact that holds them; (None, "") without a loop."""
        loop = component.loop
        if loop is None:
            return None, ""
        if not isinstance(loop.value, str):
            return self._listed(component, loop.value), ""
        template = whole(loop.value)
        if template is None:
            raise AssertionError("a loop is a list or one template")
        if template.name not in parameters:
            return None, template.name
        value = parameters[template.name]
        found = list_from_text(value) if isinstance(value, str) else value
        if not isinstance(found, tuple):
            shown = show(as_text(value)) if value != "" else "an empty text"
            raise PipelineError(
                f"{show(loop.value)} is not a list in this run, but {shown}",
                file=self.pipeline.file,
                line=loop.mark.line,
                column=loop.mark.column,
                path=loop.path,
                hint="loop over a list, or over text that is JSON for one; over an empty list, [], the step is skipped",
            )
        return self._listed(component, found), ""

    def _listed(self, component: Component, items: tuple[ParameterValue, ...]) -> tuple[ParameterValue, ...]:
        loop = component.loop
        if not items and loop is not None and "empty_loop" in self.pipeline.as_paddleflow:
            raise PipelineError(
                "the loop has no items",
                file=self.pipeline.file,
                line=loop.mark.line,
                column=loop.mark.column,
                path=loop.path,
                hint="without `empty_loop` in x-weft.as_paddleflow it would be skipped",
            )
        return as_items(items, self.pipeline.as_paddleflow)

    # ------------------------------------------------------------------------------------------------ values

    def _system(self, step: str) -> dict[str, ParameterValue]:
        return {RUN_ID: self.run.run_id, STEP_NAME: step, USER_NAME: self.run.user, LOOP_ARGUMENT: ""}

    def _parameters(
        self, component: Component, scope: ComponentScope, siblings: Mapping[str, Mapping[str, ParameterValue]]
    ) -> dict[str, ParameterValue]:
        own = component.name
        if "step_name" in self.pipeline.as_paddleflow:
            own = scope.dotted.rstrip(".").rpartition(".")[2]
        system = self._system(own) | {LOOP_ARGUMENT: scope.item}

        def value_of(template: Template) -> ParameterValue:
            if template.step == PARENT:
                return scope.item if template.name == LOOP_ARGUMENT else scope.parameters[template.name]
            return siblings[template.step][template.name] if template.step else system[template.name]

        return {name: self._parameter(parameter, value_of) for name, parameter in component.parameters.items()}

    def _parameter(
        self, parameter: ParameterDefinition, value_of: Callable[[Template], ParameterValue]
    ) -> ParameterValue:
        value = parameter.value
        if not isinstance(value, str):
            return value
        alone = whole(value)
        # A template that is the whole value keeps the type of its value; otherwise the result is text.
        resolved = value_of(alone) if alone else fill(value, lambda template: self._text(value_of(template)))
        if parameter.kind is None:
            return resolved
        try:
            return convert(parameter.kind, resolved)
        except ValueError as error:
            raise PipelineError(
                f"{error} (type {parameter.kind}), but {show(value)} is {show(str(resolved))} in this run",
                file=parameter.mark.file or self.pipeline.file,
                line=parameter.mark.line,
                column=parameter.mark.column,
                path=parameter.path,
            ) from None

    def _fill(self, text: str, values: Mapping[str, ParameterValue | Placeholder]) -> Filled:
        if "{{" not in text:
            return text

        def value_of(template: Template) -> str | Placeholder:
            if template.step:
                return template.text
            value = values[template.name]
            return value if isinstance(value, Placeholder) else self._text(value)

        return filled(text, value_of)

    def _text(self, value: ParameterValue) -> str:
        # Counted before it is filled in, so that the sum is never in memory.
        text = as_text(value)
        self._characters += len(text)
        if self._characters > MAX_RESOLVED_CHARACTERS:
            raise InputLimitError(
                f"{self.pipeline.file}: the templates fill in more than {MAX_RESOLVED_CHARACTERS} characters",
                hint="pass large data as artifacts",
            )
        return text

    def _input(self, text: str, scope: ComponentScope, outputs: Mapping[str, Mapping[str, Places]]) -> Places:
        template = whole(text)
        if template is None:
            raise AssertionError("the check lets no input through that is not one template")
        return scope.inputs[template.name] if template.step == PARENT else outputs[template.step][template.name]


def _artifacts(
    step: Step, inputs: Mapping[str, Places], folder: OutputFolder, *, loops: bool
) -> tuple[dict[str, str], dict[str, str], dict[str, str | Placeholder], dict[str, ParameterValue | Placeholder]]:
    """Return the known paths of inputs, the paths of outputs, and by name the values and templates of all artifacts."""
    if not inputs and not step.outputs:
        return {}, {}, {}, {}
    known = {key: path for key, places in inputs.items() if (path := static(places)) is not None}
    outputs = {text.value: folder.path(text.value) for text in step.outputs}
    values: dict[str, str | Placeholder] = {key: Placeholder(OUTPUT, key) if loops else outputs[key] for key in outputs}
    values |= known
    values |= {key: Placeholder(INPUT, key) for key in inputs if key not in known}
    return known, outputs, values, {key: f"{{{{{key}}}}}" for key in (*inputs, *outputs)}


def _text_of(value: str | Placeholder) -> Filled:
    return (value,) if isinstance(value, Placeholder) else value


def as_items(items: Sequence[ParameterValue], as_paddleflow: Collection[str]) -> tuple[ParameterValue, ...]:
    """Return the items of a loop; numbers in PaddleFlow's form if `as_paddleflow` asks for it."""
    if "numbers" not in as_paddleflow:
        return tuple(items)
    return tuple(go_text(item) if isinstance(item, int | float) else item for item in items)


def _asks_items(component: Component) -> bool:
    """Whether the condition of a component may differ between the items of its loop."""
    return component.loop is not None and any(t.name == LOOP_ARGUMENT for t in find(component.condition.value))


def _id(prefix: str, name: str) -> str:
    """Return the id of a vertex; a long path of dags is replaced by its digest."""
    id = prefix + name
    if len(id) <= _LONGEST_ID:
        return id
    stem, slash, tail = id.rpartition("/")
    digest = paths.digest_of(tail)[:16]
    return f"{stem}{slash}{digest}.{name}" if len(tail) > len(digest) + len(name) + 1 else id
