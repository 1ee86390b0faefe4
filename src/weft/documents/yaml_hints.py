"""Hints for a text that is no YAML: the place and the kind of its fault, in words of its author."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from weft.documents.problems import show

if TYPE_CHECKING:
    from weft.documents.problems import FilePosition

_BREAK: Final = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_FLOW: Final = re.compile(r"""(?:^|(?<=\s))\#.*|"(?:\\.|[^"\\])*"|'[^']*'|[\[\]{}]""")
"""What counts for brackets: comments and texts in quotes, in which none do, and the brackets."""


def yaml_hint(text: str, problem: str, mark: FilePosition, context: FilePosition | None) -> str:
    """Return the hint for a text that is no YAML: the `problem` of its parser at `mark`, in a value after `context`."""
    lines = [*_BREAK.split(text), ""]  # an unclosed value ends on the line after the last
    line = lines[mark.line - 1]
    before, here = line[: mark.column - 1], line[mark.column - 1 :]
    if "\t" in re.match(r"\s*", line).group():  # type: ignore[union-attr]
        return "YAML is indented with blanks, not with tabs"
    if "cannot start any token" in problem:
        return f"a text that begins with {show(here[:1])} needs quotes"
    if "unexpected end of stream" in problem and context is not None:
        return f"the quote at line {context.line}, column {context.column} is not closed"
    if "did not find expected ',' or" in problem and context is not None:
        opened = lines[context.line - 1][context.column - 1 :][:1]
        return f"the {opened} at line {context.line}, column {context.column} is not closed"
    if "expected node content" in problem and (missing := _missing_value(lines, mark)):
        return missing
    if before and ("alphabetic or numeric character" in problem or "expected tag URI" in problem):
        return f"a text that begins with {show(before.rstrip()[-1:])} needs quotes"
    if "unknown escape character" in problem:
        return "write a backslash in double quotes twice, or put the text in single quotes"
    if "block sequence entries" in problem:
        return "a list begins on the line below its key"
    if "could not find expected ':'" in problem and context is not None:
        return f"line {context.line} has no colon"
    if "mapping values are not allowed" in problem:
        if ":" in before:
            return "a text with a colon and a blank needs quotes"
        return _about_indent(lines, mark.line)
    if "{{" in before and before.rstrip().endswith("}}"):
        return 'a text that begins with a template needs quotes: "{{...}} ..."'
    if before.strip():
        return "a text that begins with a quote ends with it: put all of it in quotes of the other kind"
    return _about_indent(lines, mark.line)


def _missing_value(lines: list[str], mark: FilePosition) -> str:
    """Return the hint for a place in brackets where a value is expected; "" for other places."""
    here = lines[mark.line - 1][mark.column - 1 :][:1]
    if here and here in ",]}":
        return f"a value is missing before this {here}"
    opened: list[tuple[str, int, int]] = []
    for number, line in enumerate(lines[: mark.line], 1):
        for found in _FLOW.finditer(line):
            sign = found.group()
            if sign in ("[", "{"):
                opened.append((sign, number, found.start() + 1))
            elif sign in ("]", "}") and opened:
                opened.pop()
    if here or not opened:
        return ""
    sign, at, column = opened[-1]
    return f"the {sign} at line {at}, column {column} is not closed"


def _about_indent(lines: list[str], number: int) -> str:
    """Return the hint for a line whose indentation does not fit those above it."""
    own = _indent(lines[number - 1])
    above = [
        (at, one) for at, one in enumerate(lines[: number - 1], 1) if one.strip() and not one.lstrip().startswith("#")
    ]
    if not above:
        return ""
    at, last = above[-1]
    if not re.search(r":(?:\s|$)", last) and own <= _indent(last):
        return f"line {at} has no colon"
    known = list(dict.fromkeys(_indent(one) for _, one in reversed(above)))
    shown = " or ".join(str(one) for one in sorted(known))
    return f"line {number} is indented by {own} blank{'s' * (own != 1)}, the lines above it by {shown}"


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
