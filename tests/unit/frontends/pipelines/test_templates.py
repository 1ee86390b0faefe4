"""Finding and filling templates, and how values are written."""

import pytest

from weft.frontends.pipelines.templates import Template, as_text, env_number, fill, find, whole


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{{a}}", [("", "a")]),
        ("{{ a }} {{\tb\n}}", [("", "a"), ("", "b")]),
        ("{{step-1.out_2}}", [("step-1", "out_2")]),
        ("{{ .x }}", [("", "x")]),
        ("x{{a}}y{{a}}", [("", "a"), ("", "a")]),
        ("{{{a}}}", [("", "a")]),
    ],
)
def test_find(text, found):
    assert [(template.step, template.name) for template in find(text)] == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{{}}",
        "{a}",
        "{{a.b.c}}",
        "{{a-b}}",
        "{{a. b}}",
        "{{ a b }}",
        "{{a|upper}}",
        "{{é}}",
        "{{a",
        "{{a.}}",
        "{{1+1}}",
    ],
)
def test_other_text_in_braces_is_left_alone(text):
    assert not list(find(text))
    assert fill(text, lambda _: "filled") == text


def test_whole_is_the_whole():
    assert whole("{{a.b}}") == Template("a", "b", "{{a.b}}")
    assert whole("{{a.b}} ") is None
    assert whole("{{a}}{{b}}") is None
    assert whole("{{a}}\n") is None


def test_filled_text_is_not_searched_again():
    assert fill("{{a}}{{b}}", lambda t: {"a": "{{b}}", "b": "{{a}}"}[t.name]) == "{{b}}{{a}}"
    assert fill("{{a}}", lambda _: r"\1\g<0>") == r"\1\g<0>"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x", "x"),
        (5, "5"),
        (5.0, "5"),
        (0.1, "0.1"),
        (1e6, "1000000"),
        (1e-05, "0.00001"),
        (1e22, "1" + "0" * 22),
        (-0.0, "0"),
        (1.50, "1.5"),
        (100.0, "100"),
        ((1, "a", (2.5,)), '[1, "a", [2.5]]'),
        (("é",), '["é"]'),
    ],
)
def test_as_text(value, text):
    assert as_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(3, "3"), (3.0, "3"), (0.1, "0.1"), (0.123456789, "0.12345679"), (1e-9, "0"), (-1e-9, "0"), (1e6, "1000000")],
)
def test_env_number_has_at_most_8_decimals(value, text):
    assert env_number(value) == text
