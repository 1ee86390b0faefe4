"""From a checked pipeline to the steps of one run: parameters, then environment, then command.

What a template of each field may name was settled by `check.py`; here each gets its value. Nothing touches the disk.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from weft.frontends.pipelines import paths
from weft.frontends.pipelines.check import check, in_order
from weft.frontends.pipelines.language import check_value, convert, number_from_text
from weft.frontends.pipelines.problems import Problems, choices, join, nearest, show
from weft.frontends.pipelines.templates import (
    LOOP_ARGUMENT,
    RUN_ID,
    STEP_NAME,
    USER_NAME,
    Template,
    as_text,
    fill,
    find,
    whole,
)
from weft.model.errors import InputLimitError, PipelineError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.frontends.pipelines.language import CacheOptions, Parameter, Pipeline, RetryOptions, Step
    from weft.frontends.pipelines.templates import ParameterValue

MAX_RESOLVED_CHARACTERS = 16 * 1024 * 1024
"""All texts of a run together, once templates are filled: a few templates can ask for gigabytes."""

_USER = re.compile(r"[\w.@+ -]{0,128}")
_RUN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True, slots=True)
class ResolvedStep:
    """One step of one run, ready to be started.

    `command` is the text for `sh -c` and may be empty; `portable_command` is the same with the templates of artifacts
    left in place, so that it names no folder of this run. `env` is all that is added to the worker's own environment,
    `declared_env` the part that the file declares. `inputs` and `outputs` map names to absolute paths; `docker_env` is
    the image that the file asks for, or empty.
    """

    name: str
    command: str
    env: Mapping[str, str]
    deps: tuple[str, ...]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    cwd: str
    cache: CacheOptions
    timeout_s: float | None
    retry: RetryOptions | None
    disabled: bool
    docker_env: str
    parameters: Mapping[str, ParameterValue]
    declared_env: Mapping[str, str]
    portable_command: str


def resolve(
    pipeline: Pipeline,
    *,
    run_id: str,
    user: str,
    root: str,
    overrides: Mapping[str, object] | None = None,
) -> tuple[ResolvedStep, ...]:
    """Return the steps of one run in topological order.

    `pipeline` comes from `parse_pipeline`; `root` is the absolute path of the main file system's folder on this
    machine; `overrides` are as in `apply_overrides`. Disabled steps are returned too, marked as such. Raise UsageError
    for a bad argument, PipelineError for a template whose value does not fit its parameter's type, InputLimitError
    when templates fill in more than 16 Mi characters.
    """
    if not _RUN_ID.fullmatch(run_id) or ".." in run_id:
        raise UsageError(f"{show(run_id)} cannot be a run id", hint="use letters, digits, _ - and single dots")
    if not _USER.fullmatch(user):
        # The name is put into commands, where a shell reads it.
        raise UsageError(f"{show(user)} cannot be a user name here", hint="use letters, digits, blanks and . _ @ + -")
    if not root.startswith("/") or ".." in root.split("/"):
        raise UsageError(f"the folder of the main file system must be an absolute path, is {show(root)}")
    if overrides:
        pipeline = apply_overrides(pipeline, overrides)
    sub_path = pipeline.main_fs.sub_path if pipeline.main_fs else ""
    run = _Run(pipeline, run_id, user, str(PurePosixPath(root, sub_path)))
    for step in in_order(pipeline):
        run.add(step)
    return tuple(run.steps.values())


class _Run:
    """The steps resolved so far; a step reads parameters and outputs of those before it."""

    def __init__(self, pipeline: Pipeline, run_id: str, user: str, base: str) -> None:
        self.pipeline, self.run_id, self.user, self.base = pipeline, run_id, user, base
        self.steps: dict[str, ResolvedStep] = {}
        self._disabled = pipeline.disabled_names
        self._characters = 0

    def add(self, step: Step) -> None:
        """Resolve one step whose dependencies are all resolved."""
        system: dict[str, ParameterValue] = {
            RUN_ID: self.run_id,
            STEP_NAME: step.name,
            USER_NAME: self.user,
            LOOP_ARGUMENT: "",
        }
        parameters = {name: self._parameter(step, parameter, system) for name, parameter in step.parameters.items()}
        own = {**parameters, **system}
        declared = {name: self._fill(text.value, own) for name, text in step.env.items()}
        inputs = {name: self._input(text.value) for name, text in step.inputs.items()}
        outputs = {text.value: self._output(step.name, text.value) for text in step.outputs}
        artifacts = [*inputs, *outputs]
        command = paths.shell_body(step.command.value)
        self.steps[step.name] = ResolvedStep(
            name=step.name,
            command=self._fill(command, {**outputs, **inputs, **own}),
            env=paths.environment(
                declared,
                run_id=self.run_id,
                step=step.name,
                user=self.user,
                inputs=inputs,
                outputs=outputs,
                cwd=self.base,
            ),
            deps=tuple(dict.fromkeys(dep.value for dep in step.deps)),
            inputs=inputs,
            outputs=outputs,
            cwd=self.base,
            cache=step.cache.over(self.pipeline.cache),
            timeout_s=step.timeout_s,
            retry=step.retry,
            disabled=step.name in self._disabled,
            docker_env=step.docker_env or self.pipeline.docker_env,
            parameters=parameters,
            declared_env=declared,
            portable_command=self._fill(command, {**{name: f"{{{{{name}}}}}" for name in artifacts}, **own}),
        )

    def _parameter(self, step: Step, parameter: Parameter, system: Mapping[str, ParameterValue]) -> ParameterValue:
        value = parameter.value
        if not isinstance(value, str):
            return value

        def value_of(template: Template) -> ParameterValue:
            return self.steps[template.step].parameters[template.name] if template.step else system[template.name]

        alone = whole(value)
        # A template that is all of the value keeps the type of what it names; otherwise the result is text.
        resolved = value_of(alone) if alone else fill(value, lambda template: self._text(value_of(template)))
        if parameter.kind is None:
            return resolved
        try:
            return convert(parameter.kind, resolved)
        except ValueError as error:
            raise PipelineError(
                f"{error} (type {parameter.kind}), but {show(value)} is {show(str(resolved))} in this run",
                file=self.pipeline.file,
                line=parameter.mark.line,
                column=parameter.mark.column,
                path=f"{join('entry_points', step.name)}.parameters.{parameter.name}",
            ) from None

    def _fill(self, text: str, values: Mapping[str, ParameterValue]) -> str:
        return fill(text, lambda template: self._text(values[template.name]))

    def _text(self, value: ParameterValue) -> str:
        # Counted before it is put in: the sum must never exist.
        text = as_text(value)
        self._characters += len(text)
        if self._characters > MAX_RESOLVED_CHARACTERS:
            raise InputLimitError(
                f"{self.pipeline.file}: the templates fill in more than {MAX_RESOLVED_CHARACTERS} characters",
                hint="pass large data as artifacts",
            )
        return text

    def _input(self, text: str) -> str:
        template = whole(text)
        if template is None:
            raise AssertionError("the check lets no input through that is not one template")
        return self.steps[template.step].outputs[template.name]

    def _output(self, step: str, artifact: str) -> str:
        return paths.artifact_path(self.base, self.run_id, self.pipeline.name, step, artifact)


# ------------------------------------------------------------------------------------------------- overrides


def apply_overrides(pipeline: Pipeline, overrides: Mapping[str, object]) -> Pipeline:
    """Return the pipeline with other parameter values.

    A key is `parameter` (every step that has it) or `step.parameter` (wins over the former); a value is text as from a
    command line, converted to the parameter's type, or a value of that type. A parameter without a declared type takes
    any value: text becomes a number where the file has a number, and a list (written as JSON) where it has a list.
    Raise UsageError for an unknown key or a value that does not fit, PipelineError for a template in a value that
    names nothing.
    """
    changed = {name: dict(step.parameters) for name, step in pipeline.steps.items()}
    for key, given in sorted(overrides.items(), key=lambda item: "." in item[0]):
        step_name, _, name = key.rpartition(".")
        targets = [step_name] if step_name else [step for step, known in changed.items() if name in known]
        if not all(name in changed.get(target, ()) for target in targets) or not targets:
            raise _unknown(key, pipeline)
        for target in targets:
            changed[target][name] = _overridden(key, changed[target][name], given)
    steps = {name: replace(step, parameters=changed[name]) for name, step in pipeline.steps.items()}
    pipeline = replace(pipeline, steps=steps)
    check(pipeline, Problems(pipeline.file))
    return pipeline


def _overridden(key: str, parameter: Parameter, given: object) -> Parameter:
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
    return replace(parameter, value=value)


def _unknown(key: str, pipeline: Pipeline) -> UsageError:
    known = [f"{step.name}.{name}" for step in pipeline.steps.values() for name in step.parameters]
    near = nearest(key, known) or nearest(key, [name.partition(".")[2] for name in known])
    hint = f"did you mean {near}?" if near else f"parameters: {choices(known)}"
    return UsageError(f"the pipeline has no parameter {show(key)}", hint=hint)
