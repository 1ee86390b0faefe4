"""The Python on the page about the engine runs, top to bottom, as one program; what the page links to is there."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "engine.md"


def test_every_snippet_runs():
    text = PAGE.read_text(encoding="utf-8")
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert len(blocks) >= 3
    names: dict[str, object] = {"__name__": "engine_page"}
    for block in blocks:
        line = text.count("\n", 0, block.start()) + 1
        exec(compile("\n" * line + block[1], str(PAGE), "exec"), names)


def test_every_link_leads_somewhere():
    for link in re.findall(r"\]\(([^)#]+)\)", PAGE.read_text(encoding="utf-8")):
        assert (PAGE.parent / link).exists(), link


def test_modules_that_the_page_names_are_those_there_are():
    text = PAGE.read_text(encoding="utf-8")
    engine = PAGE.parents[1] / "src" / "weft" / "engine"
    table = text.split("| module | subject |")[1].split("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", table))
    assert named <= {path.stem for path in engine.glob("*.py")}
