"""Hints about the right form of a field, for a value or a name as another language has it."""

from __future__ import annotations

from typing import Final

from weft.documents import yaml
from weft.model.patterns import late_pattern

_STEP: Final = late_pattern(r"(?:entry_points|post_process|components)\.[^.]+")
_STEP_FIELDS: Final = ("command", "deps", "env", "artifacts", "parameters", "cache", "docker_env")
_SHOWN: Final = 60
_OTHER_WORDS: Final = {
    **dict.fromkeys(("steps", "tasks", "jobs", "stages"), "entry_points"),
    **dict.fromkeys(("needs", "depends", "depends_on", "dependencies", "after"), "deps"),
    **dict.fromkeys(("run", "script", "cmd", "args"), "command"),
    **dict.fromkeys(("image", "container"), "docker_env"),
    **dict.fromkeys(("environment", "envs", "variables", "vars"), "env"),
    **dict.fromkeys(("inputs", "input"), "artifacts: {input: ...}"),
    **dict.fromkeys(("outputs", "output"), "artifacts: {output: [...]}"),
    **dict.fromkeys(("params", "with", "arguments"), "parameters"),
    **dict.fromkeys(("when", "if"), "condition"),
    **dict.fromkeys(("foreach", "for_each", "loop", "matrix", "with_items"), "loop_argument"),
    **dict.fromkeys(("timeout", "timeout_s"), "x-weft: {timeout_s: ...}"),
    **dict.fromkeys(("retry", "retries"), "x-weft: {retry: {user: ...}}"),
    **dict.fromkeys(
        ("resources", "cpu", "cpus", "threads", "memory", "gpu", "gpus"), "x-weft: {resources: {cpu: ...}}"
    ),
    **dict.fromkeys(("on_failure", "strategy"), "failure_options: {strategy: ...}"),
    "secrets": "env: {VARIABLE: {secret: NAME}}",
}
"""Words of other systems, with the field that has their meaning."""


def other_word(path: str, key: str, value: yaml.Node) -> str:
    """Return the hint for an unknown key that another system uses, or that is a step; "" for any other."""
    if not path and key in ("initiator", "component_parameters", "role_parameters"):
        return "this looks like the conf of a federated job: weft plan conf.json --dsl dsl.json"
    if key == "module" and path.startswith("components."):
        return "this looks like the DSL of a federated job: weft plan conf.json --dsl dsl.json"
    if not path and key == "apiVersion":
        return "a training job is run from a file whose name ends with .yaml, .yml or .json: weft run job.yaml"
    if not path and isinstance(value, yaml.Mapping) and not value.entries.keys().isdisjoint(_STEP_FIELDS):
        return "if it is a step, indent it below entry_points"
    if key == "disabled" and path:
        return f"write `disabled: {path.rpartition('.')[2]}` at the top of the file"
    field = _OTHER_WORDS.get(key.lower().replace("-", "_"))
    return f"did you mean `{field}`?" if field else ""


def right_form(path: str, node: yaml.Node) -> str:
    """Return the hint for a field with a value of another shape; "" without one."""
    if not path:
        return (
            "a pipeline begins with `name: ...` and has its steps below `entry_points:`; a training job begins with "
            "`apiVersion: ...` and `kind: ...`"
        )
    field = path.rpartition(".")[2]
    if isinstance(node, yaml.Sequence):
        return _instead_of_list(path, field, [item.text for item in node.items if isinstance(item, yaml.Scalar)], node)
    if not isinstance(node, yaml.Scalar):
        return ""
    text = node.text[:_SHOWN]
    if path.endswith("artifacts.output") and text:
        return f"write `output: [{text}]`"
    if field == "cache" and isinstance(node.value, bool):
        return f"write `cache: {{enable: {text}}}`"
    if field == "retry" and isinstance(node.value, int) and not isinstance(node.value, bool):
        return f"write `retry: {{user: {text}}}`"
    if field == "failure_options" and text:
        return f"write `failure_options: {{strategy: {text}}}`"
    if not _STEP.fullmatch(path):
        return ""
    if field in _STEP_FIELDS:
        return f"`{field}` is a field of a step: indent it below the name of one"
    return f"write `{field}: {{command: {text}}}`" if text else "indent its fields, such as `command`, below it"


def _instead_of_list(path: str, field: str, texts: list[str], node: yaml.Sequence) -> str:
    if field in ("deps", "disabled"):
        whole = len(texts) == len(node.items)
        return f"write `{field}: {','.join(texts)[:_SHOWN]}`" if whole else "write names with commas between"
    if field == "command":
        return f"write one text: `command: {' '.join(texts)[:_SHOWN]}`, or several lines below `command: |`"
    if path.endswith("artifacts.input"):
        return "write `input: {name: '{{step.output}}'}`"
    return {
        **dict.fromkeys(("entry_points", "components", "post_process"), "write each step as a key, without the -"),
        "env": "write `env: {NAME: value}`",
        "parameters": "write `parameters: {name: value}`",
    }.get(field, "")
