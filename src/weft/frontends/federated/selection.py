"""Which components of a job run, and after which ends of those before them: fields of `job_parameters` of Weft's own.

`run_only` names the components that run, `run_to` the last one (with all before it). `trigger_rules` has the rule of a
component by its name; without one it runs when all components before it have succeeded. `inheritance_info`, of FATE
1.7 and later, names an earlier job and the components whose outputs are taken from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.frontends.federated.compiler import TRIGGER_RULES
from weft.model.errors import UsageError
from weft.model.suggestions import did_you_mean

if TYPE_CHECKING:
    from weft.frontends.federated.schema import FederatedJob

RUN_ONLY, RUN_TO, RULES, INHERITS = "run_only", "run_to", "trigger_rules", "inheritance_info"


class Inheritance(NamedTuple):
    """An earlier job, and the components that are taken from it."""

    job: str
    components: tuple[str, ...] = ()


def inheritance(job: FederatedJob) -> Inheritance:
    """Return what a job takes from an earlier one; without components if nothing.

    UsageError: no job is named, or a component does not exist.
    """
    given = job.conf.parameters.get(INHERITS) or {}
    if not isinstance(given, Mapping):
        raise UsageError(f"{INHERITS} must be an object", hint='Write: {"job_id": "JOB", "component_list": ["NAME"]}')
    listed = given.get("component_list") or ()
    if not listed:
        return Inheritance("")
    if not isinstance(listed, list) or not isinstance(given.get("job_id"), str):
        raise UsageError(f"{INHERITS} needs job_id, a text, and component_list, a list")
    return Inheritance(given["job_id"], tuple(_known(job, name, INHERITS) for name in listed))


def selected_components(job: FederatedJob) -> set[str]:
    """Return the components that run. UsageError: one of those named does not exist, or both fields are set."""
    return _selected(job) - set(inheritance(job).components)


def _selected(job: FederatedJob) -> set[str]:
    only, to = job.conf.parameters.get(RUN_ONLY), job.conf.parameters.get(RUN_TO)
    if only and to:
        raise UsageError(f"{RUN_ONLY} and {RUN_TO} exclude each other", hint="Leave one of them out.")
    if only:
        names = [only] if isinstance(only, str) else list(only)
        return {_known(job, str(name), RUN_ONLY) for name in names}
    if to:
        found, waiting = set(), [_known(job, str(to), RUN_TO)]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += job.dsl.upstream[name]
        return found
    return set(job.dsl.order)


def trigger_rules(job: FederatedJob) -> dict[str, str]:
    """Return the rules of components by name. UsageError: there is no such component, or no such rule."""
    given = job.conf.parameters.get(RULES) or {}
    if not isinstance(given, Mapping):
        raise UsageError(f"{RULES} must be an object", hint=f'Write: "{RULES}": {{"COMPONENT": "all_done"}}')
    rules: dict[str, str] = {}
    for name, rule in given.items():
        if rule not in TRIGGER_RULES:
            raise UsageError(f"{RULES}.{name} is {rule!r}", hint=f"Use one of {', '.join(TRIGGER_RULES)}.")
        rules[_known(job, str(name), RULES)] = str(rule)
    return rules


def _known(job: FederatedJob, name: Any, field: str) -> str:
    if name not in job.dsl.components:
        hint = did_you_mean(name, job.dsl.components) or f"There are {', '.join(job.dsl.order)}."
        raise UsageError(f"{field} names {name!r}, and the job has no such component", hint=hint)
    return str(name)
