"""Each public class name of Weft exists once, and the glossary names only classes that exist."""

import ast
import re
from collections import Counter
from pathlib import Path

import weft

SOURCE = Path(weft.__file__).parent
GLOSSARY = Path(__file__).parents[2] / "docs" / "glossary.md"


def public_classes() -> Counter[str]:
    """Count the public classes at the top level of each module, by name."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in SOURCE.rglob("*.py")]
    named = [node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    return Counter(name for name in named if not name.startswith("_"))


def test_each_public_class_name_exists_once() -> None:
    assert [name for name, times in public_classes().items() if times > 1] == []


def test_the_glossary_names_classes_that_exist() -> None:
    named = re.findall(r"\| `(\w+)` \|$", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(named) > 20
    assert set(named) <= set(public_classes())
