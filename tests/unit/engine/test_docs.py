"""What the page about the engine links to and names is there."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "engine.md"


def test_every_link_leads_somewhere():
    for link in re.findall(r"\]\(([^)#]+)\)", PAGE.read_text(encoding="utf-8")):
        assert (PAGE.parent / link).exists(), link


def test_modules_that_the_page_names_are_those_there_are():
    text = PAGE.read_text(encoding="utf-8")
    engine = PAGE.parents[1] / "src" / "weft" / "engine"
    table = text.split("| module | subject |")[1].split("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", table))
    assert named <= {path.stem for path in engine.glob("*.py")}
