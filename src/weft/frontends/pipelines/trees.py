"""Nodes of a pipeline file made from values of Python, with the positions of the Python file."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, time
from enum import Enum
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from weft.documents import yaml
from weft.documents.problems import FilePosition
from weft.model.errors import DefinitionError
from weft.model.records import as_dict

if TYPE_CHECKING:
    from weft.frontends.pipelines.declaring import (
        OptionValue,
        SourceLine,
    )


def shown(value: object) -> str:
    """Return at most 100 characters of a value as Python writes it."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."


class MapBuilder:
    """A map of the file under construction; nodes without a position get the position of the map."""

    def __init__(self, where: SourceLine) -> None:
        self.where = where
        self.entries: dict[str, yaml.Node] = {}
        self.marks: dict[str, FilePosition] = {}

    def put(self, key: str, value: Any, said: OptionValue | None = None) -> None:
        """Add a value unless it is missing."""
        if value is not None:
            where = self.where if said is None else said.where
            self.node(key, node_of(value, _mark(where)), where)

    def node(self, key: str, node: yaml.Node, where: SourceLine | None = None) -> None:
        """Add a node."""
        self.entries[key] = node
        self.marks[key] = _mark(where or self.where)

    def done(self) -> yaml.Node:
        """Return the map as a node."""
        return yaml.Mapping(self.entries, self.marks, _mark(self.where))


def _mark(where: SourceLine) -> FilePosition:
    return FilePosition(where.line, 1, where.file)


def node_of(value: Any, mark: FilePosition) -> yaml.Node:
    """Return plain values as a node, dates and times as text; others become text too, which the reader refuses."""
    if isinstance(value, Enum):
        value = value.value
    elif isinstance(value, date | time):
        value = value.isoformat()
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        from dataclasses import asdict

        value = asdict(value)
    elif isinstance(value, Struct):
        value = as_dict(value)
    if isinstance(value, Mapping):
        entries = {str(key): node_of(inner, mark) for key, inner in value.items()}
        return yaml.Mapping(entries, dict.fromkeys(entries, mark), mark)
    if isinstance(value, list | tuple):
        return yaml.Sequence(tuple(node_of(inner, mark) for inner in value), mark)
    if isinstance(value, str):
        try:
            yaml.check_text(value)
        except (OverflowError, ValueError) as error:
            message = f"{mark.file}:{mark.line}: {shown(value)} cannot stand in a pipeline: {error}"
            raise DefinitionError(message) from None
    if value is None or isinstance(value, bool | int | float | str):
        return yaml.Scalar(value, str(value), mark)
    return yaml.Scalar(repr(value), repr(value), mark)
