"""The tree, its positions, and what plain scalars mean. Limits and rejections: fixtures and tests/properties."""

import pytest

from weft.documents import yaml
from weft.documents.problems import FileKind, Problems
from weft.model.errors import InputLimitError, JobFileError, PipelineError

FLOW = FileKind(PipelineError, "flow", "a flow needs a name")
MANIFEST = FileKind(JobFileError, "job file", "a job file needs a job", yaml_1_1=True)


def load(text: str, kind: FileKind = FLOW) -> yaml.Node:
    """The tree of one document without mistakes."""
    problems = Problems("f.yaml", kind)
    tree = yaml.load(text, problems)
    problems.raise_if_any()
    return tree


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
    assert places(load("a:\n  - x\n  - {b: 1}\n")) == {
        "": (1, 1),
        "/a:": (1, 1),
        "/a": (2, 3),
        "/a/0": (2, 5),
        "/a/1": (3, 5),
        "/a/1/b:": (3, 6),
        "/a/1/b": (3, 9),
    }


def test_columns_count_characters():
    assert places(load('{"é😀": x}'))["/é😀"] == (1, 8)


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
    assert plain(load(f"'{text}'")) == text


@pytest.mark.parametrize("text", ["9223372036854775808", "-9223372036854775809", "0x" + "f" * 17, "1" * 5000])
def test_integers_have_64_bits(text):
    with pytest.raises(OverflowError):
        yaml.plain_value(text)


def test_json_is_yaml():
    text = '{\n\t"a": [1, 2.5, true, null, "x\\u00e9\\n\\/"],\n\t"b": {"c": -1e-3}}'
    assert plain(load(text)) == {"a": [1, 2.5, True, None, "xé\n/"], "b": {"c": -0.001}}


def test_keys_are_text():
    assert plain(load("1: a\nnull: b\ntrue: c\n")) == {"1": "a", "null": "b", "true": "c"}


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
    assert plain(load(text)) == {
        "base": {"a": 1, "b": 2},
        "more": {"b": 3, "c": 4},
        "one": {"a": 1, "b": 5},
        "two": {"a": 1, "b": 2, "c": 4},
        "same": {"a": 1, "b": 2},
        "<<": {"x": 1},
        "key": "word",
        "word": "value",
    }


def test_no_text_that_can_be_printed_is_refused():
    assert not [
        letter for letter in map(chr, range(0x110000)) if letter.isprintable() and yaml._FORBIDDEN.match(letter)
    ]


def test_position_of_a_bad_character_counts_lines_and_columns():
    with pytest.raises(PipelineError) as caught:
        load("a: b\nc: d\u2066\n")
    assert (caught.value.line, caught.value.column) == (2, 5)


def test_a_tab_as_indentation_is_named():
    with pytest.raises(PipelineError) as caught:
        load("name: p\nentry_points:\n\ta: {}\n")
    assert caught.value.message == "f.yaml:3:1: not valid YAML: found character that cannot start any token"
    assert caught.value.hint == "YAML is indented with blanks, not with tabs"


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        ("a:\n  b:\n    c: 1\n   d: 2\n", (4, 4), "line 4 is indented by 3 blanks, the lines above it by 0 or 2 or 4"),
        ("a:\n    c: 1\n      d: 2\n", (3, 8), "line 3 is indented by 6 blanks, the lines above it by 0 or 4"),
        ("a:\n  b: 1\n # x\n c: 1\n", (4, 2), "line 4 is indented by 1 blank, the lines above it by 0 or 2"),
        ("a: echo b: c\n", (1, 10), "a text with a colon and a blank needs quotes"),
        ("a\nb: c\n", (2, 2), "line 1 has no colon"),
        ("a:\n  b\n  c: 1\n", (3, 4), "line 2 has no colon"),
        ("a:\n\tb: 1\n", (2, 1), "YAML is indented with blanks, not with tabs"),
        ("a: 'b\n", (2, 1), "the quote at line 1, column 4 is not closed"),
        ("a: [1\nb: 2\n", (2, 2), "the [ at line 1, column 4 is not closed"),
        ("[", (2, 1), "the [ at line 1, column 1 is not closed"),
        ("a: |\n  it's [\nb: {", (4, 1), "the { at line 3, column 4 is not closed"),
        ("a: '{' # {\nb: [1, {c: d},\n\n", (4, 1), "the [ at line 2, column 4 is not closed"),
        ("a: [1, , 2]\n", (1, 8), "a value is missing before this ,"),
        ("a: *\n", (1, 5), "a text that begins with `*` needs quotes"),
        ("a: [&", (1, 6), "a text that begins with `&` needs quotes"),
        ("a: @b\n", (1, 4), "a text that begins with `@` needs quotes"),
        ("a: {{b}}\n", (1, 5), 'a template needs quotes: "{{...}}"'),
        (
            "a: 'b' c\n",
            (1, 8),
            "a text that begins with a quote ends with it: put all of it in quotes of the other kind",
        ),
        ("a: - b\n", (1, 4), "a list begins on the line below its key"),
        ('a: "\\$b"\n', (1, 5), "write a backslash in double quotes twice, or put the text in single quotes"),
    ],
)
def test_what_is_no_yaml_gets_a_hint_with_its_place(text, place, hint):
    with pytest.raises(PipelineError) as caught:
        load(text)
    assert ((caught.value.line, caught.value.column), caught.value.hint) == (place, hint)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("# nothing\n", "f.yaml:1:1: the file is empty", "a flow needs a name"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2:1: a second document starts here", "keep one flow in one file"),
    ],
)
def test_what_is_not_one_document_is_named_in_words_of_its_kind(text, message, hint):
    with pytest.raises(PipelineError) as caught:
        load(text)
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_several_documents_keep_their_places_and_empty_ones_are_left_out():
    text = "---\na: 1\n---\n# nothing\n---\n- b\n...\n---\n'': x\n"
    trees = yaml.load_all(text, Problems("folder", MANIFEST), "folder/f.yaml")
    assert [plain(tree) for tree in trees] == [{"a": 1}, ["b"], {"": "x"}]
    assert [tree.mark.line for tree in trees] == [2, 6, 9]
    assert {tree.mark.file for tree in trees} == {"folder/f.yaml"}
    assert yaml.load_all("", Problems("f", MANIFEST)) == ()


def test_an_anchor_ends_with_its_document():
    with pytest.raises(JobFileError, match=r"2:9: the alias `\*a` has no anchor"):
        yaml.load_all("a: &a 1\n--- {b: *a}\n", Problems("f", MANIFEST))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--- [" + "1," * 60_000 + "]\n", "values once aliases"),
        ("--- \na: &a 1\nb: [" + "*a," * 60 + "]\n", "more than 100 aliases"),
        ("--- " + "#" * 600_000 + "\n", "larger than 1024 KiB"),
    ],
    ids=["nodes", "aliases", "bytes"],
)
def test_the_limits_hold_for_all_documents_together(text, message):
    yaml.load_all(text, Problems("f", MANIFEST))
    with pytest.raises(InputLimitError, match=message) as caught:
        yaml.load_all(text * 2, Problems("f", MANIFEST))
    assert "#" in text or "job file" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", True),
        ("Off", False),
        ("0400", 256),
        ("0o400", 256),
        ("1_000", 1000),
        ("0b101", 5),
        ("1_0.5", 10.5),
        ("12:30", "12:30"),
        ("y", "y"),
        ("a_b", "a_b"),
        ("_1", "_1"),
        ("2024-01-01", "2024-01-01"),
    ],
)
def test_kinds_of_yaml_1_1_read_its_numbers_and_truth_values(text, value):
    found = plain(load(text, MANIFEST))
    assert found == value
    assert type(found) is type(value)
    assert plain(load(f"'{text}'", MANIFEST)) == text


def test_the_mistakes_of_several_files_are_reported_together_in_order_of_the_files():
    problems = Problems("folder", MANIFEST)
    for name, text in (("b.yaml", "x: 1\nx: 2\n"), ("a.yaml", "\n\ny: 1\ny: 2\n")):
        yaml.load_all(text, problems, name)
    with pytest.raises(JobFileError) as caught:
        problems.raise_if_any()
    assert caught.value.message.splitlines() == [
        "a.yaml:4:1: the key `y` is already given on line 3",
        "    Remove one of the two, or give it another name.",
        "b.yaml:2:1: the key `x` is already given on line 1",
        "    Remove one of the two, or give it another name.",
    ]
    assert (caught.value.file, caught.value.hint) == ("a.yaml", "2 mistakes in folder")


def test_numbers_that_are_refused_are_reported_together_with_other_mistakes():
    problems = Problems("job.yaml", MANIFEST)
    yaml.load("a: .inf\nb: [1e400, 3]\nb: 4\nc: &x -.inf\nd: *x\n", problems)
    with pytest.raises(JobFileError) as caught:
        problems.raise_if_any()
    assert caught.value.message.splitlines() == [
        "job.yaml:1:4: `.inf`: a number must be finite; use quotes if it is text",
        "job.yaml:2:5: `1e400`: a number must be finite; use quotes if it is text",
        "job.yaml:3:1: the key `b` is already given on line 2",
        "    Remove one of the two, or give it another name.",
        "job.yaml:4:4: `-.inf`: a number must be finite; use quotes if it is text",
    ]
