"""Functions and arguments in a text for a shell, so that words which they put together are known."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from weft.frontends.pipelines.shell_text import TOKEN, commands
from weft.model.patterns import late_pattern

_ARGUMENT: Final = late_pattern(
    r"""(?<!\\)\$(?:([1-9])|\{([1-9])(?::?-([^{}]*))?\})|(?<!\\)("?)\$(?:[@*]|\{[@*]\})\4"""
)
"""An argument by its number, with its default, or all of them."""
EXPANDABLE: Final = late_pattern(r"(?:[\w ./:=,+@%*?-]|\{\{PF_LOOP_ARGUMENT\}\})*")
"""Values of variables and arguments that a shell takes as they are, apart from blanks and patterns."""
_SET: Final = late_pattern(
    r"(?:^|(?<=[\s;&|(){}]))set[ \t]+(?:[-+]o[ \t]+\w+[ \t]+|[-+]\w+[ \t]+)*"
    r"(?:--(?P<words>(?:[ \t][^\n;&|<>()]*)?)|(?<![-+]o )(?=[^-+\s;&|]))"
)
"""A command that sets the arguments; `words` are known to be arguments only behind `--`."""
_SHIFT: Final = late_pattern(r"\bshift\b")
_FOR_ALL: Final = late_pattern(r"\b(for\s+[A-Za-z_]\w*)\s*(?=;|\n|\bdo\b)")
"""A loop over all arguments that does not name them."""

Argument = str | None
"""An argument of a script or a function; None if it is known only when the command runs."""


def without_functions(text: str) -> tuple[str, list[tuple[str, str]]]:
    """Return a text without the definitions of its functions, and the name and the body of each of them."""
    found: list[tuple[str, str]] = []
    kept: list[str] = []
    names: list[tuple[str, int]] = []  # the last words of the command, with their places
    ends: list[str] = []
    at = begin = 0
    is_call = False  # `()` stands behind the last word
    while match := TOKEN.match(text, at):
        at = match.end()
        word = match["word"]
        signs = re.sub(r"\s", "", match["operator"] or "")
        opens = word if word == "{" else signs[-1:] if is_call and signs == "(" else ""
        if opens and names and (is_call or names[0][0] == "function"):
            at, body = _body(text, at, opens)
            found.append((names[-1][0], body))
            kept += [text[begin : names[0][1]], ":"]
            begin, names, is_call = at, [], False
        elif match["here"]:
            ends.append(match["end"])
        elif word is not None:
            names = (
                [*names, (word, match.start())][-2:]
                if names[:1] and names[0][0] == "function"
                else [(word, match.start())]
            )
            is_call = False
        elif match["operator"] and signs == "()" and names:
            is_call = True
        elif match["operator"] and not (is_call and not signs):
            names, is_call = [], False
        at = _behind_texts(text, match.group(), at, ends)
    return "".join([*kept, text[begin:]]), found


def _body(text: str, at: int, opens: str) -> tuple[int, str]:
    """Return where a body ends that begins at a place behind its bracket, and the body."""
    begin, depth = at, 1
    ends: list[str] = []
    while depth and (match := TOKEN.match(text, at)):
        at = match.end()
        if match["here"]:
            ends.append(match["end"])
        if opens == "{" and match["word"] in ("{", "}"):
            depth += 1 if match["word"] == "{" else -1
        elif opens == "(" and match["operator"]:
            for number, sign in enumerate(match["operator"]):
                depth += {"(": 1, ")": -1}.get(sign, 0)
                if not depth:
                    at = match.start() + number + 1
                    break
        at = _behind_texts(text, match.group(), at, ends)
    body = text[begin : at if depth else at - 1]
    return at, body if opens == "{" else f"({body})"


def _behind_texts(text: str, token: str, at: int, ends: list[str]) -> int:
    """Return the place behind the texts in the command itself that follow a line with their `ends`."""
    while ends and "\n" in token:
        found = re.compile(rf"^\t*{re.escape(ends.pop(0))}$", re.MULTILINE).search(text, at)
        at = len(text) if found is None else found.end()
    return at


def with_arguments(text: str, arguments: Sequence[Argument]) -> str:
    """Return a text with the arguments of its script or function, or with those that it sets itself, where known.

    A text that drops arguments stays, and so does what stands behind arguments that take the place of others.
    """
    if _SHIFT.search(text):
        return text
    sets = list(_SET.finditer(text))
    if not sets:
        return _filled(text, arguments)
    head, tail = text[: sets[0].end()], text[sets[0].end() :]
    if arguments or len(sets) > 1 or sets[0]["words"] is None:
        return _filled(head, arguments) + tail
    words = next(commands(sets[0]["words"])).words
    return head + _filled(tail, [word.text for word in words])


def _filled(text: str, arguments: Sequence[Argument]) -> str:
    if not arguments:
        return text
    known = [one if one is not None and EXPANDABLE.fullmatch(one) else None for one in arguments]

    def value(found: re.Match[str]) -> str:
        number = found[1] or found[2]
        if number is None:
            words = [f'"{one}"' if one and " " in one else one for one in known]
            return found[0] if None in words else " ".join(filter(None, words))
        if int(number) > len(known):
            return found[0] if found[3] is None else found[3]
        return found[0] if (one := known[int(number) - 1]) is None else one

    return _ARGUMENT.sub(value, _FOR_ALL.sub(r'\1 in "$@"', text))
