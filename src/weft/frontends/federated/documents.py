"""What all readers of federated files share: their kind, and typed access to nodes with their places."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from weft.documents import yaml
from weft.documents.problems import FileKind, FilePosition, Problems, join
from weft.frontends.federated.schema import Value
from weft.model.errors import FederatedFileError
from weft.model.suggestions import nearest

DSL_FILE: Final = FileKind(FederatedFileError, "DSL", "a DSL needs components")
CONF_FILE: Final = FileKind(FederatedFileError, "conf", "a conf needs initiator and role")
CHANGES_FILE: Final = FileKind(FederatedFileError, "file of changes", "write job_parameters or component_parameters")
_NEAR: Final = "Look at this place and at the one before it: for a comma, a quote or a bracket."
_NO_COMMENTS: Final = "Remove the comment: JSON has none. A line that begins with # is left out."
SWAPPED: Final = "Swap the two files: CONF --dsl DSL"


class ObjectReader:
    """The members of an object. Each wrong type is added to `problems` and reads as missing."""

    def __init__(self, node: yaml.Node | None, path: str, problems: Problems, mark: FilePosition) -> None:
        self.path, self.problems, self.mark = path, problems, mark if node is None else node.mark
        self.entries: dict[str, yaml.Node] = {}
        self.keys: dict[str, FilePosition] = {}
        if isinstance(node, yaml.Mapping):
            self.entries = {key: one for key, one in node.entries.items() if not is_null(one)}
            self.keys = dict(node.keys)
        elif node is not None and not is_null(node):
            problems.add(node.mark, path, f"must be an object, is {yaml.describe(node)}", "Write it in braces: { ... }")

    def __contains__(self, key: str) -> bool:
        return key in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def only(self, *known: str) -> None:
        """Add each other member as a mistake."""
        for key in self.entries.keys() - set(known):
            self.wrong(key, "unknown field", hint_of(key, known))

    def wrong(self, key: str, message: str, hint: str = "") -> None:
        """Add a mistake in a member, or in the object if it has none of this name."""
        where = self.keys.get(key, self.mark)
        self.problems.add(where, join(self.path, key), message, hint)

    def inside(self, key: str) -> ObjectReader:
        """Return the members of an object; none if it is missing."""
        return ObjectReader(self.entries.get(key), join(self.path, key), self.problems, self.keys.get(key, self.mark))

    def text(self, key: str, default: str = "") -> str:
        """Return a text."""
        node = self.entries.get(key)
        if node is None:
            return default
        if isinstance(node, yaml.Scalar) and isinstance(node.value, str):
            return node.value
        self.wrong(key, f"must be text, is {yaml.describe(node)}")
        return default

    def items(self, key: str) -> list[yaml.Node]:
        """Return the items of a list; none if it is missing."""
        node = self.entries.get(key)
        if node is None:
            return []
        if isinstance(node, yaml.Sequence):
            return list(node.items)
        self.wrong(key, f"must be a list, is {yaml.describe(node)}", "Put it in brackets: [ ... ]")
        return []

    def texts(self, key: str) -> list[tuple[str, FilePosition]]:
        """Return a list of texts with their places."""
        found = []
        for node in self.items(key):
            if isinstance(node, yaml.Scalar) and isinstance(node.value, str):
                found.append((node.value, node.mark))
            else:
                self.problems.add(node.mark, join(self.path, key), f"must be text, is {yaml.describe(node)}")
        return found

    def value(self, key: str) -> Any:
        """Return a member as plain JSON; None if it is missing."""
        return plain(self.entries[key]) if key in self.entries else None


def load(text: str, problems: Problems) -> yaml.Node:
    """Return the root of a text. FederatedFileError: it is no JSON; see `yaml.load` for the limits."""
    try:
        return yaml.load(text, problems)
    except FederatedFileError:
        try:
            json.loads(text)
        except json.JSONDecodeError as error:
            raise FederatedFileError(
                f"not valid JSON: {error.msg}",
                file=problems.file,
                line=error.lineno,
                column=error.colno,
                hint=_NO_COMMENTS if text.startswith(("//", "/*"), error.pos) else _NEAR,
            ) from None
        except RecursionError:
            pass
        raise


def is_null(node: yaml.Node) -> bool:
    """Whether a node is null."""
    return isinstance(node, yaml.Scalar) and node.value is None


def plain(node: yaml.Node) -> Any:
    """Return a node as plain JSON."""
    if isinstance(node, yaml.Mapping):
        return {key: plain(one) for key, one in node.entries.items()}
    if isinstance(node, yaml.Sequence):
        return [plain(one) for one in node.items]
    return node.value


def value_of(node: yaml.Node) -> Value:
    """Return a node as a parameter with its place."""
    fields = None
    if isinstance(node, yaml.Mapping):
        fields = {key: value_of(one) for key, one in node.entries.items()}
    return Value(node.mark, plain(node), fields)


def hint_of(word: str, known: tuple[str, ...] | list[str]) -> str:
    """Return what was probably meant, or all that is known."""
    near = nearest(word, known)
    return f"Did you mean {near}?" if near else f"There are: {', '.join(known)}"
