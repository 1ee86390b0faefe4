"""The output of plans of training jobs: what a run would start, and whether it fits this machine."""

from __future__ import annotations

import shlex
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, Final

from weft.cli.tables import amounts_text, clean, one_line, print_json, print_table
from weft.model.errors import CapacityError, NotFoundError
from weft.model.records import as_dict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weft.cli.context import CommandContext
    from weft.graph.job_plan import GangPlan, JobPlan, ReplicaPlan, VariablePlan

_MOST_ROWS: Final = 8
_WIDTH: Final = 120
"""The most replicas whose value of a variable is shown, and the most letters of a value."""


def print_job_plans(
    context: CommandContext, plans: Sequence[JobPlan], warnings: Sequence[str], *, as_json: bool
) -> int:
    """Print what each job would start; return the exit code with which a run would be refused, else 0."""
    if as_json:
        own = [*warnings, *(warning for plan in plans for warning in plan.warnings)]
        print_json(context.out, "weft.plan/1", steps=[], jobs=[as_dict(plan) for plan in plans], warnings=own)
        return _refused(plans)
    for at, plan in enumerate(plans):
        context.out.write("\n" if at else "")
        _print(context, plan)
    return _refused(plans)


def _refused(plans: Iterable[JobPlan]) -> int:
    if any(one.problem for plan in plans for one in plan.replicas):
        return NotFoundError.exit_code
    if any(plan.gang is not None and plan.gang.refusal for plan in plans):
        return CapacityError.exit_code
    return 0


def _print(context: CommandContext, plan: JobPlan) -> None:
    out, console = context.out, context.console()
    count = sum(one.replicas for one in plan.replicas)
    head = f"{plan.kind} {plan.name} in namespace {plan.namespace}: {count} {'replica' if count == 1 else 'replicas'}"
    out.write(f"{clean(head)}\n\n")
    print_table(
        console,
        ("REPLICA", "COUNT", "RESTARTS", "EACH REQUESTS", "PORTS", "COMMAND"),
        [
            (
                one_line(one.step, 60),
                str(one.replicas),
                one.restart_policy + (", no limit" if one.unlimited else ""),
                amounts_text(one.requests),
                ", ".join(map(str, one.ports)),
                _command(one),
            )
            for one in plan.replicas
        ],
    )
    images = {one.image: one.stands_for for one in plan.replicas if one.image}
    images |= {one.image: f"✘ {one.problem}" for one in plan.replicas if one.problem}
    out.write("\n" if images else "")
    print_table(
        console, ("IMAGE", "MESSAGE"), [(one_line(image), one_line(text, 400)) for image, text in images.items()]
    )
    rows = list(_variables(plan.environment))
    out.write("\n" if rows else "")
    print_table(console, ("VARIABLE", "REPLICA", "VALUE"), rows)
    out.write("\n")
    for name, text in _facts(plan):
        out.write(f"{name:9} {clean(text)}\n")


def _variables(environment: Sequence[VariablePlan]) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of variables: of those that differ between replicas the part that differs, and some of many."""
    for name, group in groupby(environment, key=lambda one: one.name):
        own = list(group)
        same = _common([one.value for one in own]) if len(own) > 1 else 0
        for one in own[:_MOST_ROWS]:
            value = one.value
            if len(value) > _WIDTH and same > _WIDTH // 2:
                value = f"{value[: _WIDTH // 3]}…{value[same - 20 :]}"
            yield name, one.replica or "all", one_line(value, _WIDTH)
        if len(own) > _MOST_ROWS:
            yield name, f"{len(own) - _MOST_ROWS} more", "(all with --json)"


def _common(texts: Sequence[str]) -> int:
    """Return the number of letters with which all texts begin."""
    first, last = min(texts), max(texts)
    return next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))


def _command(one: ReplicaPlan) -> str:
    words = one_line(shlex.join(one.command), 80) if one.command else "?" if one.problem else "(started by others)"
    return words + (f" (with {', '.join(one.beside)})" if one.beside else "")


def _facts(plan: JobPlan) -> list[tuple[str, str]]:
    ports = "; free ports are chosen at the start" if plan.isolation == "ports" else ""
    found = [("isolation", f"{plan.isolation}: {plan.isolation_why}{ports}")]
    names = [" to ".join(one.names) for one in plan.replicas if one.names]
    found.append(("names", ", ".join(names)))
    if plan.policy:
        found.append(("policy", ", ".join(f"{name} {value}" for name, value in plan.policy.items())))
    asks = any(one.requests for one in plan.replicas)
    ignored = "what replicas request is ignored: all start at once"
    if plan.gang is not None or not plan.held:
        found.append(("places", ignored if asks and plan.gang is None else _places(plan.gang)))
    if plan.held:
        found.append(("held", plan.held))
    hints = dict.fromkeys(hint.strip() for one in plan.replicas for hint in one.problem.splitlines()[1:])
    found += [("next", hint) for hint in hints]
    return found


def _places(gang: GangPlan | None) -> str:
    if gang is None:
        return "no replica requests cores, memory or GPUs: all start at once"
    if gang.refusal:
        return f"✘ {gang.refusal}"
    names = ("cpu", "memory", "gpu")
    has = [min(one, limit) for one, limit in zip(gang.has, gang.limit or (inf,) * len(names), strict=True)]
    needs = {name: amount for name, amount in zip(names, gang.needs, strict=True) if amount}
    most = {name: amount for name, amount in zip(names, has, strict=True) if name in needs}
    who = f"the queue {gang.queue} has" if gang.limit is not None else "this machine has"
    return f"{gang.replicas} start together and need {amounts_text(needs)}; {who} {amounts_text(most)}"
