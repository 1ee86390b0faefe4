"""The expression language of conditions: the vectors of the original library, and what it must never do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.frontends.pipelines import conditions
from weft.frontends.pipelines.conditions import ConditionError, holds, without_braces

TRUE = [
    "10 == 10.0",
    "good == good",
    "abc < abd",
    "'9' > '10'",
    "'a-b' == 'a-b'",
    "foo in (foo, bar)",
    "'foo' =~ '^f'",
    "1 > 0 || foo",
    "!(1 > 2)",
    "0x10 == 16",
    "'2022-01-01' > '2021-01-01'",
    "[my var] == 'my var'",
    "null == null",
    "ok\n == ok",
    "5\n > 3",
    # Binding, and what is taken from the left.
    "1 + 2 * 3 == 7",
    "(1 + 2) * 3 == 9",
    "10 - 3 - 2 == 5",
    "2 ** 3 ** 2 == 64",
    "7 % 4 == 3",
    "6 & 3 == 2 || true",
    "(6 & 3) == 2",
    "1 << 4 == 16",
    "-3 < -2",
    "1 < 2 == true",
    "1 > 2 ? false : true",
    "'x' + 1 == 'x1'",
    "'n' + 1000000 == 'n1e+06'",
    "foo !~ '^b'",
    "'foo bar' =~ 'o b'",
    "2 in (1, 2, 3)",
    "'it\\'s' == \"it\\'s\"",
    "\"it's\" == 'it\\'s'",
    """'{"rows": 2}' =~ 'rows": 2'""",
    "1e3 == 1000",
    "9.5e-05 < 0.05 && 1E+16 > 1e15",
    "a\\-b == 'a-b'",
    "false && foo || true",
    "'2022-01-01 10:00' == '2022-01-01T10:00:00Z'",
    "1 / 0 > 10",
]
FALSE = [
    "'10' == 10",
    "good == bad",
    "0.1 + 0.2 == 0.3",
    "nil == 1",
    "true && !true",
    "foo in (bar, baz)",
    "1 == true",
    "1 >= 2",
]
FAILING = [
    "a-b == a-b",
    "/path/a == /path/a",
    "3 > abc",
    "a.b == 1",
    "some.txt == x",
    "run-000001 == x",
    "1e == 1",
    "1e5x == 1",
    "foo bar == 1",
    "1 = 1",
    "1 > 0 and 2 > 1",
    "",
    " ",
    " == 3",
    "3 >",
    "True",
    "1",
    "'text'",
    "(1 > 0",
    "1 > 0)",
    "()",
    "'open == 1",
    "[open == 1",
    "1.2.3 == 1",
    "1 >-1",
    "1 && true",
    "!3",
    "!!true",
    "-'a' == 1",
    "2 in 2",
    "foo =~ 3",
    "foo =~ '('",
    "foo =~ '(a+)+$'",
    "foo =~ '(a|b)*'",
    "foo =~ '.*.*.*.*'",
    r"foo =~ '(a)\\1'",
    "foo =~ '(?=a)'",
    "true ? 1",
    "false ? true",
    "(1, 2)",
    "1 << -1 > 0",
    "'x' in ('x')",
    "f(1)",
    "_x == 1",
]


def test_a_list_of_one_is_none():
    with pytest.raises(
        ConditionError, match=r"a list of two or more, such as \(a, b\); with the text `x` compare by =="
    ):
        holds("'x' in ('x')")


@pytest.mark.parametrize("text", ["1/0 > 2", "-1/0 < 2", "1/0 == 1/0", "0/0 != 0/0", "!(0/0 > 1)", "!(1 % 0 == 0)"])
def test_division_by_zero_is_that_of_floating_point(text):
    assert holds(text) is True


@pytest.mark.parametrize("text", TRUE)
def test_true(text):
    assert holds(text) is True


@pytest.mark.parametrize("text", FALSE)
def test_false(text):
    assert holds(text) is False


@pytest.mark.parametrize("text", FAILING)
def test_what_has_no_truth_value_says_why(text):
    with pytest.raises(ConditionError) as caught:
        holds(text)
    assert str(caught.value)


def test_templates_are_looked_at_as_their_names():
    assert without_braces("{{ n }} > 3 && {{a.b}} == {{n}}") == "n > 3 && b == n"


@pytest.mark.parametrize(
    "text",
    ["(" * 5000 + "1" + ")" * 5000, "!(" * 51 + "true" + ")" * 51, "-" * 9000 + "1", "1 " * 20_000, "x" * 200_000],
)
def test_limits(text):
    with pytest.raises(ConditionError):
        holds(text)


def test_brackets_inside_each_other():
    depth = conditions.MAX_NESTING
    assert holds("(" * depth + "true || 1 + 2 * 3 ** 4 == 5" + ")" * depth)
    assert holds("(0 < 1 + 1 * " + "(2 - 1 * " * (depth - 1) + "1" + ")" * depth)


def test_long_chains_need_no_deep_stack():
    assert holds(" && ".join(["true"] * 4_000))
    assert holds(" + ".join(["1"] * 4_000) + " == 4000")


SIGNS = (*conditions._BINDING, "(", ")", "!", "~", "\\", "\n", ".", "_", "\x00")
WORDS = ("1", "2.5", "0x1f", ".5", "foo", "'a b'", '"q"', "[v v]", "true", "false", "'2020-01-01'", "'^a+b'", "{{n}}")
PIECES = st.sampled_from((*SIGNS, *WORDS, "é"))


@given(st.one_of(st.lists(PIECES, max_size=12).map(" ".join), st.lists(PIECES, max_size=8).map("".join), st.text()))
def test_it_is_true_or_false_or_one_clean_error(text):
    said = ""
    try:
        assert holds(text) in (True, False)
    except ConditionError as error:
        said = str(error)
    assert "\n" not in said
    assert "\x00" not in said


@given(
    st.recursive(st.sampled_from(["1", "2", "7", "0"]), lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner))
)
def test_sums_are_those_of_python(tree):
    def written(node: object) -> str:
        return f"({written(node[0])} {node[1]} {written(node[2])})" if isinstance(node, tuple) else str(node)

    text = written(tree)
    if len(conditions.tokens(text)) < 200:
        assert holds(f"{text} == {text}")
        assert holds(f"{text} >= 0") is (eval(text) >= 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 == 1", ""),
        ("10 ==  9", "its condition is false: `10 == 9`"),
        ("10 == '10'", "its condition is false: `10 == '10'`: a number never equals a text"),
        (
            "true && !('x' != 'y') || (a == 1)",
            "its condition is false: `true && !('x' != 'y') || (a == 1)`: a number never equals a text",
        ),
        (
            "True == true",
            "its condition is false: `True == true`: a text never equals true or false, and True is a text: write true",
        ),
        ("1 == true", "its condition is false: `1 == true`: a number never equals true or false"),
    ],
)
def test_a_false_condition_tells_of_kinds_that_are_never_equal(text, said):
    assert conditions.why_false(text) == said


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("2024-05-02 >= '2024-02-01'", "2024-05-02"),
        ("'2024-05-02' >= 2024-2-1", "2024-2-1"),
        ("(1 > 0) && 2024-05-02 > 3", "2024-05-02"),
        ("'2024-05-02' >= '2024-02-01'", ""),
        ("2024 - 5 - 2 > n", ""),
        ("2024-13-02 > 3", ""),
        ("'unfinished", ""),
    ],
)
def test_a_date_without_quotes_is_told(text, date):
    assert conditions.calculated_date(text).partition(" ")[0] == date
