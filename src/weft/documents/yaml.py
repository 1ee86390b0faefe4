"""Reads YAML (and so JSON) into a tree whose nodes have line and column, inside strict limits.

Honest files never meet the limits, attacks always do; an alias counts as its expansion, so a "billion laughs" is
refused after a few events. Tags and duplicate keys are refused. Plain scalars follow the YAML 1.2 core schema: `yes`,
`on` and `12:30` are text, and numbers that YAML 1.1 and 1.2 read differently (`017`, `1_000`, `0b1`) are refused, not
guessed. Kinds of files that other programs read by YAML 1.1 follow that (`FileKind.yaml_1_1`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

import yaml
from msgspec import Struct, field

from weft.documents.problems import FilePosition, show
from weft.model.errors import InputLimitError
from weft.model.patterns import late_pattern

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Mapping as ReadOnly

    from weft.documents.problems import Problems

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 50
MAX_NODES = 100_000
MAX_ALIASES = 100
MAX_SCALAR_BYTES = 64 * 1024
INT_MIN, INT_MAX = -(2**63), 2**63 - 1

Value: TypeAlias = str | int | float | bool | None


class Scalar(Struct, frozen=True, gc=False):
    """A leaf: its value, its text as written (without quotes) and its position."""

    value: Value
    text: str
    mark: FilePosition


class Sequence(Struct, frozen=True):
    """A list of nodes."""

    items: tuple[Node, ...]
    mark: FilePosition


class Mapping(Struct, frozen=True):
    """A map from key text to node, in file order; `keys` has the position of each key."""

    entries: ReadOnly[str, Node]
    keys: ReadOnly[str, FilePosition]
    mark: FilePosition


Node: TypeAlias = Scalar | Sequence | Mapping

# Characters that no text file may have, and marks that make text look different from what it is.
_FORBIDDEN = late_pattern(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
_FORBIDDEN_ESCAPED = late_pattern(r"[\x00\ud800-\udfff\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

_INT = late_pattern(r"[-+]?(0|[1-9][0-9]*)")
_INT_OTHER_BASE = late_pattern(r"0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = late_pattern(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_LEADING_ZERO = late_pattern(r"[-+]?0[0-9]+")
_BINARY = late_pattern(r"[-+]?0b[01]+")
_NOT_FINITE = late_pattern(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}

_STARTS = frozenset("+-.0123456789~nNtTfF")
"""The first characters of texts that may be no text."""
_CONSTANTS_1_1: dict[str, bool | None] = {
    **dict.fromkeys(("yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("no", "No", "NO", "off", "Off", "OFF"), False),
}
_UNREAD: Final = 1
"""The value of a number that is refused."""
_OCTAL = late_pattern(r"[-+]?0[0-7]+")
_UNDERSCORED = late_pattern(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?|[-+]?0b[01_]+")

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load(text: str, problems: Problems) -> Node:
    """Read one document. Of a key given twice the first value counts; each further one is added to `problems`, and so
    is each number that is refused.

    InputLimitError: a limit is passed. DocumentError: the text is not plain YAML, is empty, or has several documents.
    Both name file, line and column.
    """
    builder = _Builder(problems.file, problems)
    _feed(text, builder)
    if not builder.roots:
        builder.refuse(FilePosition(1, 1), "the file is empty", problems.kind.least)
    if len(builder.roots) > 1:
        hint = f"keep one {problems.kind.name} in one file"
        builder.refuse(builder.starts[1], "a second document starts here", hint)
    return builder.roots[0]


def load_all(text: str, problems: Problems, file: str = "") -> tuple[Node, ...]:
    """Read all documents; the limits hold for all together, and empty documents are left out.

    Positions name `file` if it is given: one of several files that share `problems`. Errors as of `load`.
    """
    builder = _Builder(file or problems.file, problems, file)
    _feed(text, builder)
    return tuple(root for root in builder.roots if not (isinstance(root, Scalar) and root.text == ""))


def _feed(text: str, builder: _Builder) -> None:
    _check_text(text, builder)
    try:
        builder.take(_LOADER(text).get_event)
    except yaml.MarkedYAMLError as error:
        from weft.documents.yaml_hints import yaml_hint  # most files are YAML

        where = _position(error.problem_mark or error.context_mark)
        context = None if error.context_mark is None else _position(error.context_mark)
        problem = error.problem or error.context or ""
        builder.refuse(where, f"not valid YAML: {problem}", yaml_hint(text, problem, where, context))
    except yaml.YAMLError as error:
        builder.refuse(FilePosition(1, 1), f"not valid YAML: {str(error).splitlines()[0]}")


def _position(mark: Any) -> FilePosition:
    return FilePosition(1, 1) if mark is None else FilePosition(mark.line + 1, mark.column + 1)


def plain_value(text: str) -> Value:
    """Return the value of unquoted `text` in the YAML 1.2 core schema.

    ValueError: a number is not finite, or YAML versions read it differently. OverflowError: an integer is beyond 64
    bits.
    """
    if text and text[0] not in _STARTS:
        return text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _is_decimal(text) or _INT.fullmatch(text):
        return _bounded(int(text)) if len(text) <= 20 else _too_long()
    if _INT_OTHER_BASE.fullmatch(text):
        return _bounded(int(text, 0))
    if _LEADING_ZERO.fullmatch(text) or _BINARY.fullmatch(text):
        raise ValueError("YAML versions read this number differently; write it in decimal, or in quotes if it is text")
    if _FLOAT.fullmatch(text):
        number = float(text)
        if math.isfinite(number):
            return number
    elif "_" in text and not text.startswith("_") and _FLOAT.fullmatch(text.replace("_", "")):
        raise ValueError("YAML versions read this number differently; leave out the _, or use quotes if it is text")
    elif not _NOT_FINITE.fullmatch(text):
        return text
    raise ValueError("a number must be finite; use quotes if it is text")


def _is_decimal(text: str) -> bool:
    """Whether a text is a number of digits alone, as most numbers are; an expression would have to be compiled."""
    return text.isascii() and text.isdigit() and (text[0] != "0" or text == "0")


def plain_value_1_1(text: str) -> Value:
    """Return the value of unquoted `text` in YAML 1.1 without times, as Kubernetes reads it; errors: see above."""
    if text in _CONSTANTS_1_1:
        return _CONSTANTS_1_1[text]
    if _is_decimal(text):
        return plain_value(text)
    digits = text.replace("_", "") if _UNDERSCORED.fullmatch(text) else text
    if _BINARY.fullmatch(digits):
        return _bounded(int(digits, 2))
    if _OCTAL.fullmatch(digits):
        return _bounded(int(digits, 8))
    return plain_value(digits)


def check_text(text: str) -> None:
    """Check a text. OverflowError: it is longer than 64 KiB. ValueError: it has forbidden characters."""
    if len(text) <= MAX_SCALAR_BYTES and text.isascii() and text.isprintable():
        return
    if len(text) > MAX_SCALAR_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_SCALAR_BYTES:
        raise OverflowError(f"a text of more than {MAX_SCALAR_BYTES // 1024} KiB")
    if found := _FORBIDDEN_ESCAPED.search(text):
        raise ValueError(f"the character U+{ord(found.group()):04X} is not allowed")


def _bounded(number: int) -> int:
    return number if INT_MIN <= number <= INT_MAX else _too_long()


def _too_long() -> NoReturn:
    raise OverflowError("an integer has at most 64 bits; use quotes if it is text")


def _check_text(text: str, builder: _Builder) -> None:
    # The length in characters bounds the cost of encoding; the documented limit is in bytes.
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        builder.over(FilePosition(1, 1), f"the file is larger than {MAX_BYTES // 1024} KiB")
    if all(map(str.isprintable, text.split("\n"))):  # as most files; the expression takes a while to compile
        return
    found = _FORBIDDEN.search(text)
    if found:
        start = text.rfind("\n", 0, found.start()) + 1
        where = FilePosition(text.count("\n", 0, found.start()) + 1, found.start() - start + 1)
        hint = "remove it" if _FORBIDDEN_ESCAPED.match(found.group()) else "remove it or use an escape"
        builder.refuse(where, f"the character U+{ord(found.group()):04X} is not allowed", hint)


class _Open(Struct):
    """A list or map whose end has not been read yet. `height` and `size` are those of the expanded tree below it.

    `items` are the nodes of a list, of a map those under `<<`.
    """

    is_map: bool
    mark: FilePosition
    anchor: str | None
    items: list[Node] = field(default_factory=list)
    entries: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, FilePosition] = field(default_factory=dict)
    key: Scalar | None = None
    size: int = 1
    height: int = 1


class _Anchored(Struct, frozen=True):
    node: Node
    size: int
    height: int


class _Builder:
    """Builds the tree from parser events; refuses at the first event that passes a limit."""

    def __init__(self, file: str, problems: Problems, marked: str = "") -> None:
        self.roots: list[Node] = []
        self.starts: list[FilePosition] = []
        self._file = file
        self._marked = marked
        self._problems = problems
        self._open: list[_Open] = []
        self._top: _Open | None = None
        self._anchors: dict[str, _Anchored] = {}
        self._aliases = 0
        self._nodes = 0
        self._takers: ReadOnly[type, Callable[[Any, FilePosition], None]] = {
            yaml.ScalarEvent: self._leaf,
            yaml.SequenceStartEvent: self._start,
            yaml.MappingStartEvent: self._start,
            yaml.SequenceEndEvent: self._end,
            yaml.MappingEndEvent: self._end,
            yaml.AliasEvent: self._alias,
            yaml.DocumentStartEvent: self._document,
        }

    def refuse(self, mark: FilePosition, message: str, hint: str = "") -> NoReturn:
        """Raise the error of this kind of file."""
        raise self._problems.kind.error(message, file=self._file, line=mark.line, column=mark.column, hint=hint)

    def over(self, mark: FilePosition, message: str, hint: str | None = None) -> NoReturn:
        """Raise the error for a passed limit."""
        usual = f"split the {self._problems.kind.name}, or move data out of it"
        where = f"{self._file}:{mark.line}:{mark.column}: " if self._file else ""
        raise InputLimitError(f"{where}{message}", hint=usual if hint is None else hint)

    def take(self, next_event: Callable[[], yaml.Event | None]) -> None:
        """Add the events of a parser to the tree."""
        takers, marked = self._takers, self._marked
        while (event := next_event()) is not None:
            if (take := takers.get(type(event))) is not None:
                mark: Any = event.start_mark
                take(event, FilePosition(mark.line + 1, mark.column + 1, marked))

    def _document(self, _: yaml.Event, mark: FilePosition) -> None:
        self.starts.append(mark)
        self._anchors.clear()

    def _leaf(self, event: yaml.ScalarEvent, mark: FilePosition) -> None:
        if event.tag is not None:
            self._no_tag(event.tag, mark)
        text = event.value
        try:
            check_text(text)
        except OverflowError as error:
            self.over(mark, str(error))
        except ValueError as error:
            self.refuse(mark, str(error), "remove it")
        self._nodes += 1
        if self._nodes > MAX_NODES or len(self._open) >= MAX_DEPTH:
            self._count(0, 1, mark)
        plain = event.implicit[0]
        parent = self._top
        if parent is not None and parent.is_map and parent.key is None:
            node = Scalar(text, text, mark)
            self._key(parent, node, is_merge=plain and text == "<<")
        else:
            node = Scalar(self._value(text, mark) if plain else text, text, mark)
            self._put(node, 1, 1)
        if event.anchor is not None:
            # An anchored key may be used as a value later, with the meaning of a value.
            kept = Scalar(self._value(text, mark) if plain else text, text, mark)
            self._anchors[event.anchor] = _Anchored(kept, 1, 1)

    def _value(self, text: str, mark: FilePosition) -> Value:
        try:
            return plain_value_1_1(text) if self._problems.kind.yaml_1_1 else plain_value(text)
        except OverflowError as error:
            self.over(mark, f"{show(text)}: {error}", "")
        except ValueError as error:
            self._problems.add(mark, "", f"{show(text)}: {error}")
            return _UNREAD

    def _start(self, event: yaml.CollectionStartEvent, mark: FilePosition) -> None:
        self._no_tag(event.tag, mark)
        parent = self._top
        if parent is not None and parent.is_map and parent.key is None:
            template = parent.mark == FilePosition(mark.line, mark.column - 1, mark.file)
            hint = 'a template needs quotes: "{{...}}"' if template else "put a key in quotes if it starts with [ or {"
            self.refuse(mark, "a key must be text", hint)
        self._count(1, 1, mark)
        if event.anchor is not None:
            self._anchors.pop(event.anchor, None)
        self._top = _Open(isinstance(event, yaml.MappingStartEvent), mark, event.anchor)
        self._open.append(self._top)

    def _end(self, _: yaml.Event, mark: FilePosition) -> None:
        done = self._open.pop()
        self._top = self._open[-1] if self._open else None
        node = self._merged(done) if done.is_map else Sequence(tuple(done.items), done.mark)
        if done.anchor is not None:
            self._anchors[done.anchor] = _Anchored(node, done.size, done.height)
        self._put(node, done.size, done.height)

    def _alias(self, event: yaml.AliasEvent, mark: FilePosition) -> None:
        anchor = event.anchor or ""
        self._aliases += 1
        if self._aliases > MAX_ALIASES:
            self.over(mark, f"more than {MAX_ALIASES} aliases")
        known = self._anchors.get(anchor)
        if known is None:
            self.refuse(mark, f"the alias {show('*' + anchor)} has no anchor before it that is complete")
        self._count(known.size, known.height, mark)
        parent = self._top
        if parent is not None and parent.is_map and parent.key is None:
            if not isinstance(known.node, Scalar):
                self.refuse(mark, "a key must be text")
            self._key(parent, Scalar(known.node.text, known.node.text, mark))
        else:
            self._put(known.node, known.size, known.height)

    def _no_tag(self, tag: str | None, mark: FilePosition) -> None:
        if tag is not None:
            self.refuse(mark, f"the tag {show(tag)} is not allowed", "leave the tag out; quotes make text")

    def _count(self, size: int, height: int, mark: FilePosition) -> None:
        self._nodes += size
        if self._nodes > MAX_NODES:
            self.over(mark, f"more than {MAX_NODES} values once aliases are expanded")
        if len(self._open) + height > MAX_DEPTH:
            self.over(mark, f"nested more than {MAX_DEPTH} deep")

    def _key(self, parent: _Open, node: Scalar, *, is_merge: bool = False) -> None:
        """Begin an entry of a map."""
        parent.size += 1
        if parent.height == 1:
            parent.height = 2
        if is_merge:
            node = Scalar(None, "<<", node.mark)
        elif node.text in parent.keys:
            first = parent.keys[node.text]
            message = f"the key {show(node.text)} is already given on line {first.line}"
            self._problems.add(node.mark, "", message, "Remove one of the two, or give it another name.")
        parent.key = node

    def _put(self, node: Node, size: int, height: int) -> None:
        """Add an item of a list, the value of a key, or a whole document."""
        parent = self._top
        if parent is None:
            self.roots.append(node)
            return
        parent.size += size
        if parent.height <= height:
            parent.height = height + 1
        if not parent.is_map:
            parent.items.append(node)
            return
        key, parent.key = parent.key, None
        if key is None:
            raise AssertionError("what stands for a key was taken as one")
        if key.value is None:
            parent.items.append(node)
        elif key.text not in parent.entries:
            parent.entries[key.text] = node
            parent.keys[key.text] = key.mark

    def _merged(self, done: _Open) -> Mapping:
        """Fill in the entries of `<<`: keys of the map itself win, then earlier merges."""
        sources = [n for merge in done.items for n in (merge.items if isinstance(merge, Sequence) else (merge,))]
        for source in sources:
            if not isinstance(source, Mapping):
                self.refuse(source.mark, "`<<` takes a map or a list of maps")
            for key, node in source.entries.items():
                if key not in done.entries:
                    done.entries[key] = node
                    done.keys[key] = source.keys[key]
        return Mapping(done.entries, done.keys, done.mark)


def describe(node: Node) -> str:
    """Return a description of a node for messages."""
    if isinstance(node, Mapping):
        return "a map"
    if isinstance(node, Sequence):
        return "a list"
    if node.value is None:
        return "empty"
    if isinstance(node.value, bool):
        return f"the truth value {node.text}"
    return f"the text {show(node.text)}" if isinstance(node.value, str) else f"the number {node.text[:40]}"
