"""The expression language of `condition`: from text to tokens, from tokens to a tree, from a tree to a truth value.

It is the language of Knetic/govaluate as used by PaddleFlow: values replace templates first, and a bare word is a
string. Binding, loosest first: `,` then `? : ??`, `||`, `&&`, comparisons (with `in`, `=~`, `!~`), `& | ^`, `<< >>`, `+
-`, `* / %`, `**`, and the prefixes `- ! ~`; operators of one level associate to the left. The language has no calls.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, TypeAlias

from msgspec import Struct

from weft.documents.problems import show
from weft.frontends.pipelines.templates import find, go_text
from weft.model.patterns import late_pattern

MAX_CHARACTERS: Final = 128 * 1024
MAX_TOKENS: Final = 10_000
MAX_NESTING: Final = 50
MAX_PATTERN: Final = 256
MAX_SUBJECT: Final = 1024
HINT: Final = "write a comparison such as {{n}} > 3; put text that has other signs than letters and digits into quotes"

Value: TypeAlias = "float | bool | str | tuple[Value, ...] | None"


class ConditionError(ValueError):
    """The condition cannot be parsed or has no truth value; the message gives the reason."""


def without_braces(text: str) -> str:
    """Return a condition with template names in place of templates, for checks before values exist."""
    for template in find(text):
        text = text.replace(template.text, template.name, 1)
    return text


def holds(text: str) -> bool:
    """Whether a condition is true. ConditionError: it cannot be parsed or is no truth value."""
    value = _value(parse(text))
    if not isinstance(value, bool):
        raise ConditionError(f"its value is {_shown(value)}, neither true nor false")
    return value


def why_false(text: str) -> str:
    """Return that a condition is false, "" if it is true. Errors are those of `holds`."""
    if holds(text):
        return ""
    mixed = _compared_kinds(parse(text))
    return "its condition is false: " + show(" ".join(text.split())) + (f": {mixed}" if mixed else "")


def calculated_date(text: str) -> str:
    """Return what is wrong with a date without quotes in a condition, which is a calculation; "" if there is none."""
    try:
        found = tokens(text)
    except ConditionError:
        return ""
    for at in range(len(found) - 4):
        year, minus, month, again, day = [token.text for token in found[at : at + 5]]
        written = f"{year}-{month}-{day}"
        if minus == again == "-" and _DATE.fullmatch(written) and written in text:
            number = int(year) - int(month) - int(day)
            return f"{written} without quotes is a calculation with the result {number}: write '{written}', in quotes"
    return ""


# ---------------------------------------------------------------------------------------------------------- tokens


class Token(Struct, frozen=True):
    """A token of a condition: `kind` is value, sign, open or close; `value` is the value of a value token."""

    kind: str
    text: str
    value: Value = None


_SIGNS: Final = frozenset(
    [
        "+",
        "-",
        "*",
        "/",
        "%",
        "**",
        "&",
        "|",
        "^",
        "<<",
        ">>",
        "&&",
        "||",
        "!",
        "~",
        ",",
        "?",
        ":",
        "??",
        "==",
        "!=",
        ">",
        ">=",
        "<",
        "<=",
        "=~",
        "!~",
    ]
)
_NUMBER: Final = late_pattern(r"[0-9.]+(?:[eE][+-]?[0-9]+)?")
_HEX: Final = late_pattern(r"0x([0-9a-fA-F]+)")
_TIME: Final = late_pattern(
    r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d)(?::(\d\d))?(?::(\d\d)(?:\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?)?", re.ASCII
)
_DATE: Final = late_pattern(r"[12]\d{3}-(?:0?[1-9]|1[0-2])-(?:0?[1-9]|[12]\d|3[01])", re.ASCII)
_QUOTES: Final = "'\""


def tokens(text: str) -> list[Token]:
    """Divide a condition into tokens."""
    if len(text) > MAX_CHARACTERS:
        raise ConditionError(f"it is longer than {MAX_CHARACTERS} characters")
    found: list[Token] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char.isspace():
            at += 1
            continue
        if len(found) >= MAX_TOKENS:
            raise ConditionError(f"it has more than {MAX_TOKENS} parts")
        if match := _HEX.match(text, at):
            found.append(Token("value", match[0], float(int(match[1], 16)) if len(match[1]) <= 16 else _no(match[0])))
            at = match.end()
        elif match := _NUMBER.match(text, at):
            found.append(Token("value", match[0], _number(match[0])))
            at = match.end()
        elif char == "[":
            end = text.find("]", at)
            if end < 0:
                raise ConditionError("a [ has no ]")
            found.append(Token("value", text[at : end + 1], text[at + 1 : end]))
            at = end + 1
        elif char.isalpha():
            word, at = _read(text, at, _in_word)
            found.append(_word(word))
        elif char in _QUOTES:
            string, at = _read(text, at + 1, char.__ne__, blanks=True)
            if at >= len(text):
                raise ConditionError("a quoted text has no end")
            at += 1
            found.append(Token("value", string, _time_or_text(string)))
        elif char in "()":
            found.append(Token("open" if char == "(" else "close", char))
            at += 1
        elif char == ",":
            found.append(Token("sign", char))
            at += 1
        else:
            sign, at = _read(text, at, lambda c: not (c.isalnum() or c in "()[]" or c in _QUOTES))
            if sign not in _SIGNS:
                raise ConditionError(f"{show(sign)} is not an operator")
            found.append(Token("sign", sign))
    return found


def _in_word(char: str) -> bool:
    return char.isalpha() or char.isdecimal() or char in "_."


def _read(text: str, at: int, belongs: Callable[[str], bool], *, blanks: bool = False) -> tuple[str, int]:
    """Read a run of matching characters; a backslash escapes the next one. Return the text and its end."""
    found = []
    while at < len(text):
        char = text[at]
        if char == "\\" and at + 1 < len(text):
            found.append(text[at + 1])
            at += 2
            continue
        if (char.isspace() and not blanks) or not belongs(char):
            break
        found.append(char)
        at += 1
    return "".join(found), at


def _word(word: str) -> Token:
    if word in ("true", "false"):
        return Token("value", word, word == "true")
    if word in ("in", "IN"):
        return Token("sign", "in")
    if "." in word:
        raise ConditionError(f"{show(word)} has a dot; put text with dots into quotes")
    return Token("value", word, word)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return _no(text)


def _no(text: str) -> float:
    raise ConditionError(f"{show(text)} is not a number")


def _time_or_text(text: str) -> Value:
    """Return a quoted date as seconds since 1970 (UTC without a zone), any other text unchanged."""
    match = _TIME.fullmatch(text)
    if match is None:
        return text
    day, hour, minute, second, zone = match.groups()
    try:
        moment = datetime.fromisoformat(
            f"{day}T{hour or '00'}:{minute or '00'}:{second or '00'}{(zone or '').replace('Z', '+00:00')}"
        )
        return float((moment if zone else moment.replace(tzinfo=UTC)).timestamp() // 1)
    except (ValueError, OverflowError):
        return text


# ------------------------------------------------------------------------------------------------------------ tree


class Chain(Struct, frozen=True):
    """Operands and operators of one level, associated to the left."""

    first: Node
    rest: tuple[tuple[str, Node], ...]


class Prefix(Struct, frozen=True):
    """A prefix operator with its operand."""

    sign: str
    operand: Node


Node: TypeAlias = "Token | Chain | Prefix"

_LEVELS: Final = (",", "? : ??", "||", "&&", "== != > >= < <= =~ !~ in", "& | ^", "<< >>", "+ -", "* / %", "**")
_BINDING: Final = {sign: level for level, signs in enumerate(_LEVELS) for sign in signs.split()}
_PREFIXES: Final = frozenset("-!~")


def parse(text: str) -> Node:
    """Return the tree of a condition. ConditionError: the condition is malformed."""
    parser = _Parser(tokens(text))
    tree = parser.level(0, 0)
    if parser.next is not None:
        raise ConditionError(f"{show(parser.next.text)} is not expected after {show(parser.before)}")
    return tree


class _Parser:
    def __init__(self, found: list[Token]) -> None:
        self._tokens = found
        self._at = 0

    @property
    def next(self) -> Token | None:
        """The current token; None at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    @property
    def before(self) -> str:
        """The text of the previous token."""
        return self._tokens[self._at - 1].text if self._at else ""

    def level(self, loosest: int, depth: int) -> Node:
        """Parse operands and operators that bind at least as tightly as `loosest`."""
        left = self._operand(depth)
        while (level := self._joins()) >= loosest:
            rest = []
            while self._joins() == level:
                sign = self._tokens[self._at].text
                self._at += 1
                rest.append((sign, self.level(level + 1, depth)))
            left = Chain(left, tuple(rest))
        return left

    def _joins(self) -> int:
        """Return the binding strength of the current token; -1 if it is not an operator."""
        token = self.next
        return _BINDING.get(token.text, -1) if token is not None and token.kind == "sign" else -1

    def _operand(self, depth: int) -> Node:
        token = self.next
        if token is None:
            raise ConditionError(f"something is missing after {show(self.before)}" if self._tokens else "it is empty")
        self._at += 1
        if token.kind == "value":
            return token
        if token.kind == "sign" and token.text in _PREFIXES:
            after = self.next
            if after is None or after.kind == "sign":
                raise ConditionError(f"something is missing after {show(token.text)}")
            return Prefix(token.text, self._operand(depth))
        if token.kind == "open":
            if depth >= MAX_NESTING:
                raise ConditionError(f"brackets are nested more than {MAX_NESTING} levels deep")
            inside = self.level(0, depth + 1)
            close = self.next
            if close is None or close.kind != "close":
                raise ConditionError("a ( has no )")
            self._at += 1
            return inside
        raise ConditionError(f"{show(token.text)} is not expected here")


# ----------------------------------------------------------------------------------------------------------- value


def _value(node: Node) -> Value:
    if isinstance(node, Token):
        return node.value
    if isinstance(node, Prefix):
        return _prefixed(node.sign, _value(node.operand))
    left = _value(node.first)
    joined: list[Value] | None = None
    for sign, operand in node.rest:
        if sign == ",":
            if joined is None:
                joined = list(left) if isinstance(left, tuple) else [left]
            joined.append(_value(operand))
            continue
        if _decided(sign, left):
            left = None if sign == "?" else left
            continue
        left = _OPERATORS[sign](sign, left, _value(operand))
    return left if joined is None else tuple(joined)


def _decided(sign: str, left: Value) -> bool:
    """Whether the left side alone decides, so that the right side is not evaluated."""
    if sign in ("&&", "||", "?"):
        truth = _truth(sign, left)
        return truth if sign == "||" else not truth
    return sign in (":", "??") and left is not None


def _prefixed(sign: str, value: Value) -> Value:
    if sign == "!":
        return not _truth(sign, value)
    return -_float(sign, value) if sign == "-" else float(~_integer(sign, value))


def _truth(sign: str, value: Value) -> bool:
    if isinstance(value, bool):
        return value
    raise ConditionError(f"{sign} takes true or false, not {_shown(value)}")


def _float(sign: str, value: Value) -> float:
    if isinstance(value, float):
        return value
    raise ConditionError(f"{sign} takes numbers, not {_shown(value)}")


def _integer(sign: str, value: Value) -> int:
    number = _float(sign, value)
    return int(max(min(number, 2.0**63 - 1024), -(2.0**63))) if math.isfinite(number) else 0


def _logical(sign: str, left: Value, right: Value) -> Value:
    return _truth(sign, right)


def _either(sign: str, left: Value, right: Value) -> Value:
    return right


def _equal(sign: str, left: Value, right: Value) -> Value:
    return (type(left) is type(right) and left == right) == (sign == "==")


def _compared_kinds(node: Node) -> str:
    """Return why values on the sides of a `==` in a condition are never equal, "" if they may be."""
    if isinstance(node, Token):
        return ""
    if isinstance(node, Prefix):
        return _compared_kinds(node.operand)
    parts = [node.first, *(operand for _, operand in node.rest)]
    for before, (sign, after) in zip(parts, node.rest, strict=False):
        pair = [part.value for part in (before, after) if isinstance(part, Token)]
        kinds = frozenset(type(value) for value in pair)
        if sign == "==" and kinds in _NEVER_EQUAL:
            texts = [value for value in pair if isinstance(value, str) and value.lower() in ("true", "false")]
            return _NEVER_EQUAL[kinds] + "".join(f", and {text} is a text: write {text.lower()}" for text in texts)
    return next(filter(None, map(_compared_kinds, parts)), "")


_NEVER_EQUAL: Final[Mapping[frozenset[type], str]] = {
    frozenset((float, str)): "a number never equals a text",
    frozenset((bool, str)): "a text never equals true or false",
    frozenset((bool, float)): "a number never equals true or false",
}


def _ordered(sign: str, left: Value, right: Value) -> Value:
    if isinstance(left, str) and isinstance(right, str):
        order = (left > right) - (left < right)
    elif isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return False
        order = (left > right) - (left < right)
    else:
        raise ConditionError(f"{sign} compares two numbers or two texts, not {_shown(left)} and {_shown(right)}")
    return {">": order > 0, ">=": order >= 0, "<": order < 0, "<=": order <= 0}[sign]


def _inside(sign: str, left: Value, right: Value) -> Value:
    if not isinstance(right, tuple):
        raise ConditionError(f"in takes a list of two or more, such as (a, b); with {_shown(right)} compare by ==")
    return any(type(left) is type(item) and left == item for item in right)


def _matches(sign: str, left: Value, right: Value) -> Value:
    if not isinstance(left, str) or not isinstance(right, str):
        raise ConditionError(f"{sign} takes two texts, not {_shown(left)} and {_shown(right)}")
    if len(left) > MAX_SUBJECT:
        raise ConditionError(f"{sign} takes a text of at most {MAX_SUBJECT} characters")
    _check_pattern(right)
    try:
        found = re.search(right, left) is not None
    except (re.error, OverflowError, RecursionError) as error:
        raise ConditionError(f"{show(right)} is not a pattern: {error}") from None
    return found == (sign == "=~")


_REPEATS: Final = late_pattern(r"[*+]|\{\d*,?\d*\}")


def _check_pattern(pattern: str) -> None:
    """Refuse patterns with exponential matching time: nested or branching repeats, and more than three repeats."""
    if len(pattern) > MAX_PATTERN:
        raise ConditionError(f"a pattern has at most {MAX_PATTERN} characters")
    varied, repeats, at = [False], 0, 0
    inner = False
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            if pattern[at + 1 : at + 2].isdigit():
                raise ConditionError("a pattern cannot refer back")
            at, inner = at + 2, False
        elif char == "[":
            end = re.compile(r"\^?\]?(?:\\.|[^\]\\])*\]").match(pattern, at + 1)
            at, inner = (end.end() if end else len(pattern)), False
        elif char == "(":
            if pattern.startswith("(?", at) and not re.compile(r"\(\?(:|P<\w+>|[ims]+\))").match(pattern, at):
                raise ConditionError("a pattern cannot look around")
            varied.append(False)
            at, inner = at + 1, False
        elif char == ")":
            inner = varied.pop() if len(varied) > 1 else False
            varied[-1] = varied[-1] or inner
            at += 1
        elif char == "|":
            varied[-1] = True
            at, inner = at + 1, False
        elif match := _REPEATS.match(pattern, at):
            repeats += 1
            if inner or repeats > 3:
                raise ConditionError(f"the pattern {show(pattern)} repeats too much")
            varied[-1] = True
            at, inner = match.end(), False
        else:
            varied[-1] = varied[-1] or char == "?"
            at, inner = at + 1, False


def _sum(sign: str, left: Value, right: Value) -> Value:
    if isinstance(left, str) or isinstance(right, str):
        joined = _written(left) + _written(right)
        if len(joined) > MAX_CHARACTERS:
            raise ConditionError("its texts become too long")
        return joined
    return _float(sign, left) + _float(sign, right)


def _arithmetic(sign: str, left: Value, right: Value) -> Value:
    a, b = _float(sign, left), _float(sign, right)
    try:
        if sign == "-":
            return a - b
        if sign == "*":
            return a * b
        if sign == "%":
            return math.fmod(a, b)
        if sign == "/":
            return a / b
        power = a**b
        return power if isinstance(power, float) else math.nan
    except ZeroDivisionError:
        return math.copysign(math.inf, a) if a else math.nan
    except OverflowError:
        return math.inf
    except ValueError:
        return math.nan


def _bits(sign: str, left: Value, right: Value) -> Value:
    a, b = _integer(sign, left), _integer(sign, right)
    if sign in ("<<", ">>"):
        if b < 0:
            raise ConditionError(f"{sign} cannot shift by less than 0")
        shifted = a >> min(b, 64) if sign == ">>" else (a << min(b, 64)) & (2**64 - 1)
        return float(shifted if sign == ">>" or shifted < 2**63 else shifted - 2**64)
    return float(a & b if sign == "&" else a | b if sign == "|" else a ^ b)


_OPERATORS: Final[Mapping[str, Callable[[str, Value, Value], Value]]] = {
    **dict.fromkeys(("&&", "||"), _logical),
    **dict.fromkeys(("?", ":", "??"), _either),
    **dict.fromkeys(("==", "!="), _equal),
    **dict.fromkeys((">", ">=", "<", "<="), _ordered),
    **dict.fromkeys(("=~", "!~"), _matches),
    **dict.fromkeys(("-", "*", "/", "%", "**"), _arithmetic),
    **dict.fromkeys(("&", "|", "^", "<<", ">>"), _bits),
    "in": _inside,
    "+": _sum,
}


def _written(value: Value) -> str:
    """Return the text of a value for concatenation: numbers in the format `%v` of Go."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return go_text(value)
    if isinstance(value, tuple):
        return f"[{' '.join(map(_written, value))}]"
    return "<nil>" if value is None else value


def _shown(value: Value) -> str:
    if isinstance(value, str):
        return f"the text {show(value)}"
    kind = "nothing" if value is None else "a list" if isinstance(value, tuple) else ""
    return kind or f"{'the number ' if not isinstance(value, bool) else ''}{_written(value)}"
