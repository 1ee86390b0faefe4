"""Reads a DSL: the components of a job, their inputs and outputs; both versions share the grammar.

Source: the DSL of FATE 1.5 (`doc/dsl_conf_v1_setting_guide`, `dsl_conf_v2_setting_guide`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from weft.documents.problems import FilePosition, Problems, join, show
from weft.frontends.federated.documents import DSL_FILE, SWAPPED, ObjectReader, hint_of, load
from weft.frontends.federated.modules import modules
from weft.frontends.federated.schema import ARGS, PIPELINE, PREDICT, ROOTS, TRAIN, Dsl, FederatedComponent, Output
from weft.model.wording import counted

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_OUTPUTS: Final = ("data", "model", "cache")
_DATA_KEYS: Final = ("data", "train_data", "validate_data", "eval_data", "test_data")
_NUMBERED: Final = re.compile(r"data_?\d+")
_FIELDS: Final = ("module", "input", "output", "need_deploy", "CodePath", "provider")


def read_dsl(text: str, file: str, *, version: int, mode: str = TRAIN) -> Dsl:
    """Return a DSL. In `mode` "predict" its models may come from the pipeline.

    FederatedFileError: a component, an input or a name is wrong, or components form a loop; all mistakes are told.
    """
    problems = Problems(file, DSL_FILE)
    root = ObjectReader(load(text, problems), "", problems, FilePosition(1, 1))
    if "role" in root and "components" not in root:
        root.wrong("role", "this is a conf, and a DSL is expected here", SWAPPED)
        problems.raise_if_any()
    root.only("components", "provider")
    listed = root.inside("components")
    if not listed.entries:
        root.wrong("components", "there are no components", 'Write: "components": {"reader_0": {"module": "Reader"}}')
    notes: list[str] = []
    components = {name: _component(name, listed, problems, notes) for name in listed}
    if version == 1 and mode == TRAIN:
        _check_numbers(components, problems)
    for component in components.values():
        _check_sources(component, components, version, mode, problems)
    if mode == PREDICT:
        _check_prediction(components, problems)
    problems.raise_if_any()
    upstream = {
        name: tuple(dict.fromkeys(one.component for one in component.sources() if one.component not in ROOTS))
        for name, component in components.items()
    }
    order = _order(components, upstream, problems)
    problems.raise_if_any()
    return Dsl(components, order, upstream, notes)


def _component(name: str, listed: ObjectReader, problems: Problems, notes: list[str]) -> FederatedComponent:
    own = listed.inside(name)
    if unknown := [key for key in own if key not in _FIELDS]:
        notes.append(f"{', '.join(unknown)} of component {name} in the DSL has no effect: FATE reads no such field")
    mark = listed.keys[name]
    if not _NAME.fullmatch(name):
        bare = name.strip()
        hint = f"Write it without blanks: {bare}" if _NAME.fullmatch(bare) else "Use letters, digits, _ and -."
        problems.add(mark, "components", f"the name {show(name)} is not legal", hint)
    module = own.text("module")
    if not module:
        own.wrong("module", "the component has no module", 'Write: "module": "HeteroLR"')
    elif module not in modules():
        own.wrong("module", f"there is no module {show(module)}", hint_of(module, sorted(modules())))
    given, made = own.inside("input"), own.inside("output")
    given.only("data", "model", "isometric_model", "cache")
    made.only(*_OUTPUTS)
    data = given.inside("data")
    for key in data:
        if key not in _DATA_KEYS and not _NUMBERED.fullmatch(key):
            data.wrong(key, "unknown data input", hint_of(key, _DATA_KEYS))
    outputs = {key: tuple(text for text, _ in made.texts(key)) for key in _OUTPUTS if key in made}
    if len(outputs.get("model", ())) > 1:
        made.wrong("model", "a component has one model at most")
    deploys = own.value("need_deploy")
    if not isinstance(deploys, bool | None):
        own.wrong("need_deploy", "must be true or false")
        deploys = None
    return FederatedComponent(
        name=name,
        module=module,
        mark=mark,
        data={key: _outputs(data, key) for key in data},
        models=_outputs(given, "model"),
        isometric_models=_outputs(given, "isometric_model"),
        caches=_outputs(given, "cache"),
        outputs=outputs,
        deploys=deploys,
        provider=own.text("provider"),
    )


def _outputs(reader: ObjectReader, key: str) -> tuple[Output, ...]:
    found = []
    for text, mark in reader.texts(key):
        component, dot, name = text.partition(".")
        if not (dot and component and name):
            hint = "Write the component and its output: reader_0.data"
            reader.problems.add(mark, join(reader.path, key), f"{show(text)} names no output", hint)
            continue
        found.append(Output(component, name, mark))
    return tuple(found)


def _check_sources(
    component: FederatedComponent,
    components: Mapping[str, FederatedComponent],
    version: int,
    mode: str,
    problems: Problems,
) -> None:
    kinds = [(one, "data", f"data.{key}") for key, sources in component.data.items() for one in sources]
    kinds += [(one, "model", "model") for one in component.models]
    kinds += [(one, "model", "isometric_model") for one in component.isometric_models]
    kinds += [(one, "cache", "cache") for one in component.caches]
    for source, kind, path in kinds:
        at = f"components.{component.name}.input.{path}"
        if source.component in ROOTS:
            if source.component == PIPELINE and (kind == "data" or mode != PREDICT):
                problems.add(source.mark, at, "pipeline has the models of a training job: only a prediction has one")
            elif source.component == ARGS and (kind != "data" or version != 1):
                hint = "Add a Reader, and name its output: reader_0.data"
                problems.add(source.mark, at, "args has the tables of a conf of version 1", hint)
            continue
        found = components.get(source.component)
        if found is None:
            hint = hint_of(source.component, list(components))
            problems.add(source.mark, at, f"there is no component {show(source.component)}", hint)
        elif source.name not in found.outputs.get(kind, ()):
            made = found.outputs.get(kind, ())
            hint = f"It has: {', '.join(made)}" if made else f'Write in it: "output": {{"{kind}": ["{source.name}"]}}'
            problems.add(source.mark, at, f"{found.name} has no {kind} output {show(source.name)}", hint)
        elif kind == "data" and found.module in modules():
            made = found.outputs[kind]
            most = modules()[found.module].data_outputs
            if made.index(source.name) >= most:
                hint = f"Read {found.name}.{made[0]}" if most == 1 else f"It makes {', '.join(made[:most])}"
                problems.add(source.mark, at, f"{found.module} makes {counted(most, 'data output')}", hint)


def _check_prediction(components: Mapping[str, FederatedComponent], problems: Problems) -> None:
    """Check that nothing is trained: the DSL of a training job would be, without a word."""
    hint = "Leave the DSL out: a deployed version of a model has its own. See: weft party deploy VERSION"
    for component in components.values():
        if "train_data" in component.data:
            message = f"a prediction does not train, and {component.name} would: the DSL is that of a training job"
            problems.add(component.mark, f"components.{component.name}.input.data.train_data", message, hint)
    if components and not any(one.component == PIPELINE for each in components.values() for one in each.models):
        first = next(iter(components.values()))
        message = f"a prediction takes models from {PIPELINE}, and no component does: the DSL is that of a training job"
        problems.add(first.mark, "components", message, hint)


def _check_numbers(components: Mapping[str, FederatedComponent], problems: Problems) -> None:
    """Check the names of version 1: a prefix for each module, and numbers from 0 on without gaps."""
    found: dict[str, dict[int, FederatedComponent]] = {}
    for component in components.values():
        prefix, line, number = component.name.rpartition("_")
        if not (line and prefix and number.isdecimal()):
            hint = f"Write: {component.name}_0"
            problems.add(component.mark, "components", f"{component.name} has no number at its end", hint)
            continue
        found.setdefault(prefix, {})[int(number)] = component
    for prefix, numbered in found.items():
        for at, there in enumerate(sorted(numbered)):
            if at != there:
                hint = f"Numbers go from 0 on without gaps: {prefix}_{at}"
                problems.add(numbered[there].mark, "components", f"there is no {prefix}_{at}", hint)
                break
        first = next(iter(numbered.values()))
        for component in numbered.values():
            if component.module != first.module:
                message = f"{prefix} stands for {first.module} in {first.name} and for {component.module} here"
                problems.add(component.mark, "components", message, "Give each module a prefix of its own.")


def _order(
    components: Mapping[str, FederatedComponent], upstream: Mapping[str, Sequence[str]], problems: Problems
) -> tuple[str, ...]:
    """Return the components in an order of dependency, early ones of the file first; a loop is added as a mistake."""
    left = {name: set(sources) for name, sources in upstream.items()}
    order: list[str] = []
    while left:
        ready = [name for name in components if name in left and not left[name]]
        if not ready:
            loop = _loop(left)
            message = f"components form a loop: {' -> '.join([*loop, loop[0]])}"
            problems.add(components[loop[0]].mark, "components", message, "Take one of these inputs out.")
            return ()
        order += ready
        for name in ready:
            del left[name]
        for sources in left.values():
            sources.difference_update(ready)
    return tuple(order)


def _loop(left: Mapping[str, set[str]]) -> list[str]:
    """Return components of which each has the one before among its sources; all of `left` have a source in `left`."""
    path = [next(iter(left))]
    while True:
        source = min(left[path[-1]])
        if source in path:
            return path[path.index(source) :][::-1]
        path.append(source)
