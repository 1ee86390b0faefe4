"""The tree, its positions, and what plain scalars mean. Limits and rejections: fixtures and tests/properties."""

import pytest

from weft.frontends.pipelines import yaml
from weft.model.errors import PipelineError


def plain(node: yaml.Node) -> object:
    """The tree as Python values."""
    if isinstance(node, yaml.Mapping):
        return {key: plain(value) for key, value in node.entries.items()}
    if isinstance(node, yaml.Sequence):
        return [plain(item) for item in node.items]
    return node.value


def places(node: yaml.Node, path: str = "") -> dict[str, tuple[int, int]]:
    """Line and column of every node by its path; those of a key by the path with a colon."""
    found = {path: (node.mark.line, node.mark.column)}
    if isinstance(node, yaml.Mapping):
        for key, child in node.entries.items():
            found[f"{path}/{key}:"] = (node.keys[key].line, node.keys[key].column)
            found |= places(child, f"{path}/{key}")
    elif isinstance(node, yaml.Sequence):
        for index, child in enumerate(node.items):
            found |= places(child, f"{path}/{index}")
    return found


def test_every_node_knows_its_place():
    assert places(yaml.load("a:\n  - x\n  - {b: 1}\n", "f")) == {
        "": (1, 1),
        "/a:": (1, 1),
        "/a": (2, 3),
        "/a/0": (2, 5),
        "/a/1": (3, 5),
        "/a/1/b:": (3, 6),
        "/a/1/b": (3, 9),
    }


def test_columns_count_characters():
    assert places(yaml.load('{"é😀": x}', "f"))["/é😀"] == (1, 8)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("yes", "yes"),
        ("on", "on"),
        ("12:30:45", "12:30:45"),
        ("2024-01-01", "2024-01-01"),
        ("0", 0),
        ("-0", 0),
        ("+7", 7),
        ("0x1F", 31),
        ("0o17", 15),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("1.", 1.0),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("007.5", 7.5),
        ("1e-400", 0.0),
        ("-", "-"),
        ("1.2.3", "1.2.3"),
        ("_1", "_1"),
        ("a_1", "a_1"),
        ("0x", "0x"),
    ],
)
def test_plain_value(text, value):
    found = yaml.plain_value(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", ["017", "-01", "1_000", "1_0.5", "0b1", ".inf", "-.INF", ".nan", "1e999"])
def test_doubtful_numbers_are_refused(text):
    with pytest.raises(ValueError, match="number"):
        yaml.plain_value(text)
    assert plain(yaml.load(f"'{text}'", "f")) == text


@pytest.mark.parametrize("text", ["9223372036854775808", "-9223372036854775809", "0x" + "f" * 17, "1" * 5000])
def test_integers_have_64_bits(text):
    with pytest.raises(OverflowError):
        yaml.plain_value(text)


def test_json_is_yaml():
    text = '{\n\t"a": [1, 2.5, true, null, "x\\u00e9\\n\\/"],\n\t"b": {"c": -1e-3}}'
    assert plain(yaml.load(text, "f")) == {"a": [1, 2.5, True, None, "xé\n/"], "b": {"c": -0.001}}


def test_keys_are_text():
    assert plain(yaml.load("1: a\nnull: b\ntrue: c\n", "f")) == {"1": "a", "null": "b", "true": "c"}


def test_aliases_and_merges():
    text = """
base: &base {a: 1, b: 2}
more: &more {b: 3, c: 4}
one: {<<: *base, b: 5}
two: {<<: [*base, *more]}
same: *base
"<<": {x: 1}
key: &key word
*key : value
"""
    assert plain(yaml.load(text, "f")) == {
        "base": {"a": 1, "b": 2},
        "more": {"b": 3, "c": 4},
        "one": {"a": 1, "b": 5},
        "two": {"a": 1, "b": 2, "c": 4},
        "same": {"a": 1, "b": 2},
        "<<": {"x": 1},
        "key": "word",
        "word": "value",
    }


def test_position_of_a_bad_character_counts_lines_and_columns():
    with pytest.raises(PipelineError) as caught:
        yaml.load("a: b\nc: d\u2066\n", "f.yaml")
    assert (caught.value.line, caught.value.column) == (2, 5)


def test_a_tab_as_indentation_is_named():
    with pytest.raises(PipelineError) as caught:
        yaml.load("name: p\nentry_points:\n\ta: {}\n", "f.yaml")
    assert caught.value.message == "f.yaml:3:1: not valid YAML: found character that cannot start any token"
    assert caught.value.hint == "YAML is indented with blanks, not with tabs"
