"""Which components of a job run, when, and how long: fields of `job_parameters`, Weft's own unless said otherwise.

- `run_only` names the components that run, `run_to` the last one (with all before it).
- `trigger_rules` has the rule of a component by its name; without one it runs when all before it have succeeded.
- `inheritance_info`, of FATE 1.7 and later, names an earlier job and the components whose outputs are taken from it.
- `run_after` names jobs that must succeed first.
- `single_step` holds each component until somebody lets it begin.
- `component_limits` has by component what FATE has for the whole job: `auto_retries`, `auto_retry_delay`, `timeout`.
- `priority` counts where the queue of a party goes by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.frontends.federated.compiler import TRIGGER_RULES
from weft.frontends.federated.schema import ComponentLimits
from weft.model.errors import UsageError
from weft.model.suggestions import did_you_mean

if TYPE_CHECKING:
    from weft.frontends.federated.schema import FederatedJob

RUN_ONLY, RUN_TO, RULES, INHERITS = "run_only", "run_to", "trigger_rules", "inheritance_info"
AFTER, SINGLE_STEP, LIMITS, PRIORITY = "run_after", "single_step", "component_limits", "priority"
_RETRIES, _DELAY, _TIMEOUT = "auto_retries", "auto_retry_delay", "timeout"


class Inheritance(NamedTuple):
    """An earlier job, and the components that are taken from it."""

    job: str
    components: tuple[str, ...] = ()


def inheritance(job: FederatedJob) -> Inheritance:
    """Return what a job takes from an earlier one; without components if nothing.

    UsageError: no job is named, or a component does not exist.
    """
    given = job.conf.parameters.get(INHERITS) or {}
    listed = given.get("component_list") or ()
    if not listed:
        return Inheritance("")
    if not isinstance(listed, list) or not isinstance(given.get("job_id"), str):
        raise UsageError(f"{INHERITS} needs job_id, a text, and component_list, a list")
    return Inheritance(given["job_id"], tuple(_known(job, name, INHERITS) for name in listed))


def selected_components(job: FederatedJob) -> set[str]:
    """Return the components that run. UsageError: one of those named does not exist, or both fields are set."""
    return _selected(job) - set(inheritance(job).components)


def check_sources(job: FederatedJob) -> None:
    """Require that the sources of all components that run are there. UsageError: one does not run, nor is taken."""
    selected, taken = selected_components(job), set(inheritance(job).components)
    for name in job.dsl.order:
        missing = [one for one in job.dsl.upstream[name] if one not in selected | taken] if name in selected else []
        if missing:
            raise UsageError(
                f"{RUN_ONLY} names {name}, and not {', '.join(missing)}, whose output it needs",
                hint=f"Name {'it' if len(missing) == 1 else 'them'} too, use {RUN_TO}, or take what an earlier job has "
                f"made with {INHERITS}.",
            )


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
    rules: dict[str, str] = {}
    for name, rule in given.items():
        if rule not in TRIGGER_RULES:
            raise UsageError(f"{RULES}.{name} is {rule!r}", hint=f"Use one of {', '.join(TRIGGER_RULES)}.")
        rules[_known(job, str(name), RULES)] = str(rule)
    return rules


def component_limits(job: FederatedJob) -> dict[str, ComponentLimits]:
    """Return the limits of all components: their own, or else those of the job.

    UsageError: a component does not exist.
    """
    given = job.conf.parameters.get(LIMITS) or {}
    for name in given:
        _known(job, name, LIMITS)
    whole = {field: whole_number(job.conf.parameters.get(field)) for field in (_RETRIES, _DELAY)} | {_TIMEOUT: 0}

    def limits(own: Mapping[str, int | None]) -> ComponentLimits:
        found = whole | {field: value for field, value in own.items() if value is not None}
        return ComponentLimits(found[_RETRIES], float(found[_DELAY]), float(found[_TIMEOUT]))

    return {name: limits(given.get(name) or {}) for name in job.dsl.order}


def jobs_before(job: FederatedJob) -> list[str]:
    """Return the ids of the jobs that must succeed first."""
    given = job.conf.parameters.get(AFTER) or []
    return list(dict.fromkeys([given] if isinstance(given, str) else given))


def first_steps(job: FederatedJob) -> int | None:
    """Return how many components begin by themselves: one in single step, else all."""
    return 1 if job.conf.parameters.get(SINGLE_STEP) else None


def job_priority(job: FederatedJob) -> int:
    """Return the place of a job in queues by priority, higher ones first."""
    return int(job.conf.parameters.get(PRIORITY) or 0)


def whole_number(value: Any) -> int:
    """Return a whole number of a file; 0 for anything else."""
    try:
        return max(0, int(value))
    except (TypeError, ValueError, OverflowError):
        return 0


def _known(job: FederatedJob, name: Any, field: str) -> str:
    if name not in job.dsl.components:
        hint = did_you_mean(name, job.dsl.components) or f"There are {', '.join(job.dsl.order)}."
        raise UsageError(f"{field} names {name!r}, and the job has no such component", hint=hint)
    return str(name)
