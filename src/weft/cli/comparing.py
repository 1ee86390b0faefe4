"""The command that compares two runs: `weft compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.cli.arguments import AsJson, Given, Where, service_of
from weft.cli.tables import clean, one_line, print_json, print_table
from weft.model.records import as_dict
from weft.model.wording import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.runs.comparing import ComparedOutput, ComparedValue, Comparison


def compare(first: str, second: str, /, *, as_json: AsJson = False, where: Where, context: Given) -> None:
    """Compare two runs: what they were given, how they went, what they made; and say why results differ."""
    found = service_of(context, where).compare(first, second)
    if as_json:
        steps = [{**as_dict(step), "differs": step.differs} for step in found.steps]
        print_json(context.out, "weft.compare/1", comparison={**as_dict(found), "steps": steps})
        return
    out = context.console()
    context.out.write(f"{found.first} and {found.second}: {one_line(found.why, 1000)}\n")
    for title, values in (
        ("RUN", found.facts),
        ("ENVIRONMENT", found.environment),
        ("PARAMETER", found.parameters),
        ("METRIC", found.metrics),
    ):
        if values:
            context.out.write("\n")
            print_table(out, (title, found.first, found.second), [_row(value) for value in values])
    context.out.write("\n")
    rows = [
        (
            one_line(step.name, 60),
            _both(*step.states),
            _both(*map(_time, step.seconds)),
            _outputs(step.outputs, found),
            one_line("; ".join(step.causes), 300),
        )
        for step in found.steps
    ]
    print_table(out, ("STEP", "STATE", "TIME", "OUTPUTS", "CHANGED"), rows)
    for remark in found.remarks:
        context.say(f"note: {clean(remark)}")


def _row(value: ComparedValue) -> tuple[str, str, str]:
    return one_line(value.name, 60), _text(value.first), _text(value.second)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        value = ", ".join(f"{name}={one}" if one else str(name) for name, one in value.items())
    return "-" if value in (None, "", []) else one_line(str(value), 60)


def _both(first: str, second: str) -> str:
    return first if first == second else f"{first or '-'} → {second or '-'}"


def _time(seconds: float | None) -> str:
    return "" if seconds is None else duration(seconds)


def _outputs(outputs: Sequence[ComparedOutput], runs: Comparison) -> str:
    heads = {"other": "other", "first": f"only {runs.first}", "second": f"only {runs.second}"}
    parts = []
    for outcome, head in heads.items():
        names = [one_line(one.name.rpartition(".")[2], 40) for one in outputs if one.outcome == outcome]
        if names:
            parts.append(f"{head}: {', '.join(names[:5])}" + (", ..." if len(names) > 5 else ""))
    return "; ".join(parts) or ("same" if outputs and all(one.outcome == "same" for one in outputs) else "")
