"""The links on the page about graphs."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "graph.md"


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
