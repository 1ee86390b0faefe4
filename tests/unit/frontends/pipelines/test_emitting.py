"""A tree that is written as YAML reads back as the same tree, here and with other readers."""

import math
from typing import Any

import yaml as pyyaml
from hypothesis import given
from hypothesis import strategies as st

from weft.documents import yaml
from weft.documents.emitting import to_yaml
from weft.documents.problems import FilePosition, Problems
from weft.frontends.pipelines.language import PIPELINE_FILE

MARK = FilePosition(1, 1)


def node(value: Any) -> yaml.Node:
    if isinstance(value, dict):
        return yaml.Mapping({key: node(inner) for key, inner in value.items()}, dict.fromkeys(value, MARK), MARK)
    if isinstance(value, list):
        return yaml.Sequence(tuple(map(node, value)), MARK)
    return yaml.Scalar(value, str(value), MARK)


def plain(tree: yaml.Node) -> Any:
    if isinstance(tree, yaml.Mapping):
        return {key: plain(inner) for key, inner in tree.entries.items()}
    return [plain(one) for one in tree.items] if isinstance(tree, yaml.Sequence) else tree.value


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40).filter(
    lambda text: (
        not any(0x202A <= ord(c) <= 0x202E or 0x2066 <= ord(c) <= 0x2069 or c in "\u061c\u200e\u200f" for c in text)
    )
)
lines = st.lists(st.sampled_from(["", "echo hi", "  x: y", "# no", "- a", "\t", 'a "b"', "é"]), max_size=5).map(
    "\n".join
)
words = st.sampled_from(
    ["yes", "No", "null", "1e3", "017", "0o17", "1_000", "12:30", "=", "<<", "{{a.b}}", "- ", "a: b", ".5"]
)
scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
) | (texts | lines | words)
keys = st.text("abcXYZ_-019", min_size=1, max_size=8) | words
trees = st.dictionaries(
    keys,
    st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=12,
    ),
    min_size=1,
    max_size=4,
)


@given(trees)
def test_a_tree_reads_back_as_it_was(value):
    text = to_yaml(node(value))
    assert plain(yaml.load(text, Problems("f", PIPELINE_FILE))) == value, text


@given(st.dictionaries(st.text("abcdef", min_size=1), texts | lines | words | st.floats(-1e300, 1e300), min_size=1))
def test_other_readers_find_the_same(value):
    read = pyyaml.safe_load(to_yaml(node(value)))
    assert read.keys() == {pyyaml.safe_load(key) if key in ("n", "y") else key for key in value}
    for key, one in value.items():
        assert read[key] == one or (isinstance(one, float) and math.isclose(read[key], one)), key


def test_it_is_fit_to_read():
    value = {"name": "p", "command": "cd x\nls -l\n", "parallelism": 3, "deps": "a,b", "list": ["a b", "{{x}}", 1.5]}
    assert to_yaml(node(value)) == (
        'name: p\ncommand: |\n  cd x\n  ls -l\nparallelism: 3\ndeps: "a,b"\nlist: [a b, "{{x}}", 1.5]\n'
    )
