"""The output of plans of federated jobs: what runs at which party."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.cli.tables import clean, one_line, print_json, print_table
from weft.model.records import as_dict

if TYPE_CHECKING:
    from weft.cli.context import CommandContext
    from weft.graph.party_plan import FederatedPlan, PartyPlan, PlannedComponent


def print_federated_plan(context: CommandContext, plan: FederatedPlan, *, as_json: bool) -> int:
    """Print each component with its part at each party; return the exit code."""
    if as_json:
        print_json(context.out, "weft.plan/1", steps=[], federated=as_dict(plan), warnings=list(plan.notes))
        return 0
    for note in plan.notes:
        context.say(f"note: {clean(note)}")
    context.out.write(f"{plan.job_type} job of {clean(plan.initiator)}\n\n")
    print_table(
        context.console(),
        ("COMPONENT", "MODULE", "AFTER", *(one_line(party.name.upper(), 30) for party in plan.parties)),
        [
            (
                one_line(one.name, 40),
                one_line(one.module, 40),
                one_line(", ".join(one.after), 60),
                *(_part(party, one) for party in plan.parties),
            )
            for one in plan.components
        ],
    )
    return 0


def _part(party: PartyPlan, component: PlannedComponent) -> str:
    part = party.components[component.name]
    if part.runs:
        return "runs" if component.exists else "cannot run"
    return "-" if "has no part for" in part.why_not else one_line(part.why_not, 60)
