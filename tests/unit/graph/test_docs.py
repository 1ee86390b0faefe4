"""The Python on the page about graphs runs, top to bottom, as one program."""

import re
from pathlib import Path

import pytest

from weft.graph.routing import CUSTOM

PAGE = Path(__file__).parents[3] / "docs" / "graph.md"


def snippets() -> list[tuple[int, str]]:
    """Each block of Python (those that need a session are fenced as `python session`) with the line it begins on."""
    text = PAGE.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, match.start()) + 1, match[1])
        for match in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ]


def test_every_snippet_runs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(CUSTOM, "reversed", raising=False)
    found = snippets()
    assert len(found) > 10
    names: dict[str, object] = {"__name__": "graph_page"}
    try:
        for line, code in found:
            exec(compile("\n" * line + code, str(PAGE), "exec"), names)
    finally:
        CUSTOM.pop("reversed", None)


def test_every_link_leads_to_a_heading():
    text = PAGE.read_text(encoding="utf-8")
    headings = {
        re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("#")
    }
    links = re.findall(r"\]\(#([^)]+)\)", text)
    assert links
    assert set(links) <= headings
