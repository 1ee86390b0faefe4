"""Typed access to the maps of a pipeline file: each value of a wrong type or unknown key becomes a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.documents import yaml
from weft.documents.problems import FilePosition, Problems, choices, join, show
from weft.frontends.pipelines.forms import other_word, right_form
from weft.frontends.pipelines.language import NO_TEXT, START, SourceText
from weft.model.patterns import late_pattern
from weft.model.suggestions import nearest

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator, Mapping

PIPELINE_NAME = late_pattern(r"[A-Za-z_][A-Za-z0-9_-]{0,127}")
STEP_NAME = late_pattern(r"[A-Za-z][A-Za-z0-9-]{0,29}")
VARIABLE_NAME = late_pattern(r"[A-Za-z_][A-Za-z0-9_]{0,49}")
SECRET_NAME = late_pattern(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_NAME_RULES = {
    SECRET_NAME: "1 to 128 letters, digits and _, beginning with a letter or _",
    PIPELINE_NAME: "1 to 128 letters, digits, _ and -, beginning with a letter or _",
    STEP_NAME: "1 to 30 letters, digits and -, beginning with a letter",
    VARIABLE_NAME: "1 to 50 letters, digits and _, beginning with a letter or _",
}


class FileMap:
    """A map of the file: returns typed values and adds a problem for each value of a wrong type.

    Without `known` every key is legal (names chosen by the user); a key of the language with value null counts as
    absent.
    """

    def __init__(
        self,
        node: yaml.Node | None,
        path: str,
        problems: Problems,
        known: tuple[str, ...] | None = None,
        mark: FilePosition = START,
    ) -> None:
        self.path, self.problems = path, problems
        self.nodes: dict[str, yaml.Node] = {}
        self.keys: Mapping[str, FilePosition] = {}
        self.broken = False
        self.mark = mark if node is None else node.mark
        if node is None:
            return
        if not isinstance(node, yaml.Mapping):
            self.broken = True
            message = f"must be a map of names to values, is {yaml.describe(node)}"
            problems.add(node.mark, path, message, right_form(path, node))
            return
        self.keys = node.keys
        for key, value in node.entries.items():
            if known is not None and key not in known:
                near = nearest(key, known)
                hint = (
                    f"did you mean `{near}`?"
                    if near
                    else other_word(path, key, value) or f"known here: {choices(known)}"
                )
                problems.add(node.keys[key], join(path, key), "unknown key", hint)
            elif known is None or not is_null(value):
                self.nodes[key] = value

    def text(self, key: str) -> SourceText:
        """Return a text; `NO_TEXT` if absent."""
        node = self.nodes.get(key)
        return NO_TEXT if node is None else read_text(node, join(self.path, key), self.problems)

    def is_text(self, key: str) -> bool:
        """Return whether the value of `key` is a text."""
        node = self.nodes.get(key)
        return isinstance(node, yaml.Scalar) and isinstance(node.value, str)

    def integer(self, key: str, default: int) -> int:
        """Return an integer."""
        node = self.nodes.get(key)
        if node is None:
            return default
        if isinstance(node, yaml.Scalar) and isinstance(node.value, int) and not isinstance(node.value, bool):
            return node.value
        self._wrong(key, node, "an integer")
        return default

    def number(self, key: str, default: float) -> float:
        """Return a number; integers become floats."""
        node = self.nodes.get(key)
        if node is None:
            return default
        if isinstance(node, yaml.Scalar) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
            return float(node.value)
        self._wrong(key, node, "a number")
        return default

    def flag(self, key: str, default: bool) -> bool:
        """Return a boolean."""
        node = self.nodes.get(key)
        if node is None:
            return default
        if isinstance(node, yaml.Scalar) and isinstance(node.value, bool):
            return node.value
        self._wrong(key, node, "true or false")
        return default

    def map(self, key: str, known: tuple[str, ...] | None) -> FileMap:
        """Return the map under `key`; empty if absent."""
        return FileMap(self.nodes.get(key), join(self.path, key), self.problems, known, self.mark)

    def items(self, key: str) -> Iterator[tuple[str, yaml.Node]]:
        """Yield path and node of every item of a list; nothing if absent."""
        node = self.nodes.get(key)
        if isinstance(node, yaml.Sequence):
            for index, item in enumerate(node.items):
                yield f"{join(self.path, key)}[{index}]", item
        elif node is not None:
            self._wrong(key, node, "a list")

    def at(self, key: str) -> FilePosition:
        """Return the position of the value of `key`; the position of the map if absent."""
        return self.nodes[key].mark if key in self.nodes else self.mark

    def wrong(self, key: str, message: str, hint: str = "") -> None:
        """Add a problem about the value of `key`."""
        self.problems.add(self.at(key), join(self.path, key), message, hint)

    def _wrong(self, key: str, node: yaml.Node, expected: str) -> None:
        hint = right_form(join(self.path, key), node)
        self.wrong(key, f"must be {expected}, is {yaml.describe(node)}", hint)


def read_text(node: yaml.Node, path: str, problems: Problems, wanted: str = "text") -> SourceText:
    """Return the text of a node; for any other node add a problem that names the `wanted` form, and return ""."""
    if isinstance(node, yaml.Scalar) and isinstance(node.value, str):
        return SourceText(node.value, node.mark, path)
    quoted = isinstance(node, yaml.Scalar) and node.value is not None
    hint = "put it in quotes" if quoted else right_form(path, node)
    problems.add(node.mark, path, f"must be {wanted}, is {yaml.describe(node)}", hint)
    return SourceText("", node.mark, path)


def is_null(node: yaml.Node) -> bool:
    """Return whether a value is null, so that its key counts as absent."""
    return isinstance(node, yaml.Scalar) and node.value is None


def is_empty(node: yaml.Node) -> bool:
    """Return whether a value is empty: generated files write absent keys as empty values."""
    if isinstance(node, yaml.Scalar):
        return node.value is None or node.value == ""
    return all(is_empty(child) for child in (node.items if isinstance(node, yaml.Sequence) else node.entries.values()))


def check_name(
    pattern: re.Pattern[str], name: str, mark: FilePosition, path: str, what: str, problems: Problems
) -> None:
    """Add a problem for a name that its rule does not allow; `what` is what it names."""
    if pattern.fullmatch(name):
        return
    problems.add(mark, path, f"{show(name)} cannot name {what}", f"use {_NAME_RULES[pattern]}")


def named(entries: FileMap, what: str) -> Iterator[tuple[str, str, yaml.Node]]:
    """Yield name, path and node of the entries with legal names; add problems for the others."""
    for name, node in entries.nodes.items():
        path = join(entries.path, name)
        check_name(VARIABLE_NAME, name, entries.keys[name], path, what, entries.problems)
        yield name, path, node
