"""Whatever the text, reading it ends with a pipeline or a WeftError, soon, and inside the limits."""

import json
import random
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.documents import yaml
from weft.documents.problems import Problems
from weft.frontends.pipelines.check import parse_pipeline
from weft.frontends.pipelines.language import PIPELINE_FILE
from weft.frontends.pipelines.resolve import resolve
from weft.model.errors import InputLimitError, PipelineError, WeftError

pytestmark = pytest.mark.slow

FIXTURES = Path(__file__).parents[1] / "fixtures" / "pipelines"
CORPUS = [path.read_text() for path in sorted(FIXTURES.rglob("*.yaml"))]
WORDS = re.compile(r"[\w.-]+")
TOKENS = [
    *"{}[]:,&*?|>-!%@`#'\"\n\t ~",
    "{{", "}}", "{{a.b}}", "<<", "<<: *a", "&a ", "*a", "- ", ": ", "---\n", "...\n", "!!str ", "? ", "|\n",
    "\u202e", "\0", "\ud800", "\ufeff", "\u0085", "\u2028", "é", "😀",
    "null",
    "true", "1e999", "0x" + "f" * 40, "017", "PF_PARENT.", "deps: a", "name: ", "entry_points: ", "parameters: ",
    "artifacts: ", "cache: ", "command: ", "x-weft: ", "type: list", "default: ",
]  # fmt: skip


def attempt(text: str) -> str:
    """Parse and, where that succeeds, resolve; return the kind of end. Only a WeftError may come out."""
    try:
        pipeline = parse_pipeline(text, "f.yaml")
        resolve(pipeline, run_id="run-000001", user="ada", root="/data")
    except WeftError as error:
        if not 0 < len(str(error)) < 200_000:
            return "absurd message"
        return "field" if getattr(error, "path", "") else "yaml"
    return "resolved"


def measure(node: yaml.Node, depth: int = 1) -> tuple[int, int, int]:
    """Nodes, depth and longest text of a tree, aliases expanded."""
    if isinstance(node, yaml.Scalar):
        return 1, depth, len(node.text.encode())
    children = node.items if isinstance(node, yaml.Sequence) else node.entries.values()
    parts = [measure(child, depth + 1) for child in children]
    return 1 + sum(p[0] for p in parts), max([depth, *(p[1] for p in parts)]), max([0, *(p[2] for p in parts)])


def broken(text: str, rng: random.Random) -> str:
    """Cut a piece out and put another in, anywhere: most results are no YAML."""
    at: int = rng.randint(0, len(text))
    length: int = rng.choice([0, 0, 1, 3, 20])
    piece: str = rng.choice([rng.choice(TOKENS), text[at : at + 40], rng.choice(CORPUS)[:60]])
    times: int = rng.choice([1, 1, 1, 3])
    return text[:at] + piece * times + text[at + length :]


def reworded(text: str, rng: random.Random) -> str:
    """Put one word of the corpus in the place of another: most results are YAML."""
    old: str = rng.choice(WORDS.findall(text) or [" "])
    new: str = rng.choice(WORDS.findall(rng.choice(CORPUS)) or ["x"])
    return text.replace(old, new, rng.choice([1, -1]))


def test_mutated_pipelines(seed):
    rng = random.Random(seed)
    ends: Counter[str] = Counter()
    for _ in range(3000):
        text = rng.choice(CORPUS)
        for _ in range(rng.choice([1, 2, 5])):
            text = rng.choice([broken, reworded, reworded, reworded])(text, rng)
        ends[attempt(text)] += 1
    # Mutants that all die at the first character would test nothing.
    assert ends.keys() == {"resolved", "field", "yaml"}
    assert min(ends.values()) > 30


@given(st.text(max_size=300))
def test_random_text(text):
    assert attempt(text) in {"resolved", "field", "yaml"}


@given(st.lists(st.sampled_from(TOKENS), max_size=60))
def test_random_tokens(tokens):
    text = "".join(tokens)
    assert attempt(text) in {"resolved", "field", "yaml"}
    try:
        tree = yaml.load(text, Problems("f", PIPELINE_FILE))
    except WeftError:
        return
    nodes, depth, longest = measure(tree)
    assert nodes <= yaml.MAX_NODES
    assert depth <= yaml.MAX_DEPTH
    assert longest <= yaml.MAX_SCALAR_BYTES


def plain(node: yaml.Node) -> object:
    """The tree as Python values."""
    if isinstance(node, yaml.Mapping):
        return {key: plain(child) for key, child in node.entries.items()}
    return [plain(item) for item in node.items] if isinstance(node, yaml.Sequence) else node.value


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc<é{", max_size=4), inner, max_size=4),
    max_leaves=20,
)


@given(TREES)
def test_json_reads_back(value):
    assert plain(yaml.load(json.dumps(value), Problems("f", PIPELINE_FILE))) == value


# ------------------------------------------------------------------------------------------------- each limit


def laughs(levels: int, width: int) -> str:
    """Maps of aliases to maps of aliases: width ** levels leaves in a few lines."""
    lines = ["l0: &l0 [" + ", ".join(["ha"] * width) + "]"]
    lines += [f"l{n}: &l{n} [" + ", ".join([f"*l{n - 1}"] * width) + "]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (laughs(9, 9), "aliases are expanded"),
        (laughs(40, 2), "aliases are expanded"),
        ("a: &a [1]\nb: [" + "*a, " * 101 + "]", "more than 100 aliases"),
        ("[" * 51 + "]" * 51, "nested more than 50 deep"),
        ("[" * 500_000, "nested more than 50 deep"),
        ("{a: " * 200_000, "nested more than 50 deep"),
        ("- " * 300_000, "nested more than 50 deep"),
        ("? " * 300_000, "."),
        ("\n".join(f"{'  ' * n}k:" for n in range(60)), "nested more than 50 deep"),
        ("a: &a " + "[" * 30 + "]" * 30 + "\nb: " + "[" * 25 + "*a" + "]" * 25, "nested more than 50 deep"),
        ("[" + "1," * 100_001 + "]", "more than 100000 values"),
        ("\n".join(f"k{n}: 1" for n in range(50_001)), "more than 100000 values"),
        ("x: '" + "a" * (64 * 1024 + 1) + "'", "more than 64 KiB"),
        ("x: '" + "é" * (32 * 1024 + 1) + "'", "more than 64 KiB"),
        ("x" * (64 * 1024 + 1) + ": y", "more than 64 KiB"),
        ("#" * (1024 * 1024 + 1), "larger than 1024 KiB"),
        ("#" + "é" * (512 * 1024), "larger than 1024 KiB"),
        ("x: " + "9" * 20, "64 bits"),
        ("x: " + "9" * 60_000, "64 bits"),
    ],
    ids=lambda value: value[:12].replace("\n", " "),
)
def test_over_a_limit(text, message):
    with pytest.raises((InputLimitError, PipelineError), match=message) as caught:
        yaml.load(text, Problems("f.yaml", PIPELINE_FILE))
    assert str(caught.value).startswith("f.yaml:")
    assert message == "." or isinstance(caught.value, InputLimitError)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 49 + "1" + "]" * 49,
        "[" + "1," * 99_999 + "]",
        "x: '" + "a" * (64 * 1024) + "'",
        "x: 1\n" + "#" * (1024 * 1024 - 5),
        "a: &a [1]\nb: [" + "*a, " * 100 + "]",
    ],
    ids=["depth", "nodes", "scalar", "bytes", "aliases"],
)
def test_just_inside_a_limit(text):
    measure(yaml.load(text, Problems("f.yaml", PIPELINE_FILE)))


def wide_inputs() -> str:
    """Many steps, and one step that takes an input from each: every look-up must be by key."""
    names = [f"s{n}" for n in range(6000)]
    steps = "".join(f"  {name}: {{artifacts: {{output: [o]}}}}\n" for name in names)
    inputs = ", ".join(f'i{n}: "{{{{s{n}.o}}}}"' for n in range(6000))
    return f"name: p\nentry_points:\n{steps}  t: {{deps: '{','.join(names)}', artifacts: {{input: {{{inputs}}}}}}}\n"


def wide_outputs() -> str:
    outputs = ", ".join(f"o{n}" for n in range(20_000))
    inputs = ", ".join(f'i{n}: "{{{{a.o{n}}}}}"' for n in range(20_000))
    return (
        f"name: p\nentry_points:\n  a: {{artifacts: {{output: [{outputs}]}}}}\n"
        f"  b: {{deps: a, artifacts: {{input: {{{inputs}}}}}}}\n"
    )


@pytest.mark.parametrize("text", [wide_inputs(), wide_outputs()], ids=["steps", "outputs"])
def test_large_files_inside_the_limits_take_no_quadratic_time(text):
    # Quadratic look-ups would need 10^8 steps here and run into the time limit of the test session.
    pipeline = parse_pipeline(text, "f.yaml")
    assert resolve(pipeline, run_id="r", user="ada", root="/data")


def test_many_unknown_names_are_cut_short():
    steps = "".join(f"  s{n}: {{deps: 'x{n}', command: '{{{{y{n}}}}}'}}\n" for n in range(10_000))
    with pytest.raises(PipelineError, match="reading stopped there"):
        parse_pipeline(f"name: p\nentry_points:\n{steps}", "f.yaml")
