"""The tables on the page about vertex managers have every name."""

import re
from inspect import signature
from pathlib import Path

import pytest

from weft.engine import decisions
from weft.engine.policy import InputView, Moment, View
from weft.wiring import MANAGERS

PAGE = Path(__file__).parents[3] / "docs" / "managers.md"
TEXT = PAGE.read_text(encoding="utf-8")


def own() -> list[str]:
    return [name for name, factory in MANAGERS.items() if factory.__module__.startswith("weft.") and "." not in name]


@pytest.mark.parametrize("name", own())
def test_every_parameter_of_a_manager_stands_in_its_table(name):
    section = TEXT.partition(f"### `{name}`:")[2].partition("\n#")[0]
    rows = [row.split("|") for row in section.splitlines() if row.startswith("| `")]
    told = {name: row[3].strip() for row in rows for name in re.findall(r"`(\w+)`", row[1])}
    takes = signature(MANAGERS[name]).parameters
    assert list(told) == list(takes)
    for parameter in takes.values():
        default = told[parameter.name]
        assert (default == "required") == (parameter.default is parameter.empty)
        if parameter.name not in ("lo", "hi") and default != "required":
            assert default.strip("`").strip('"') == str(parameter.default)


def test_every_moment_decision_and_figure_stands_on_the_page():
    assert all(f"| `{moment.name}` |" in TEXT for moment in Moment)
    for name in [*View.__struct_fields__, *InputView.__struct_fields__]:
        assert f"`{name}`" in TEXT, name
    inside = {"ApplyPatch", "BackUp", "WeighTasks", "Avoid", "Readmit", "Remake", "AskController"}
    kinds = {
        name
        for name, kind in vars(decisions).items()
        if isinstance(kind, type) and kind.__module__ == decisions.__name__
    }
    assert {name for name in kinds - inside if f"`{name}" not in TEXT} == set()


def test_every_link_leads_somewhere():
    for link in re.findall(r"\]\(([^)#]+)", TEXT):
        assert (PAGE.parent / link).exists(), link
