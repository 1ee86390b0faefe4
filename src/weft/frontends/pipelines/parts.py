"""Texts and paths with parts that become known only during the run.

A part that is known when the graph is made is a plain string. Other parts are a `Placeholder` (the item of a loop, a
path of an artifact) or `OutputPaths` (paths that are the value of another vertex). Both have a form in JSON, since they
travel in the parameters of programs; a task fills them in with `joined` and `delivered_paths`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct

from weft.frontends.pipelines.paths import artifact_path
from weft.frontends.pipelines.templates import Template, pieces
from weft.model.records import as_dict

if TYPE_CHECKING:
    from weft.frontends.pipelines.templates import ParameterValue

ITEM: Final = "item"
"""A placeholder for the item of the step's own loop."""
INPUT: Final = "input"
"""A placeholder for the paths of an input artifact, joined by commas."""
OUTPUT: Final = "output"
"""A placeholder for the path of an output artifact of this item."""
CONTENT: Final = "content"
"""A placeholder for the content of an input artifact."""

SECRET: Final = "secret"
"""A placeholder for the value of a secret."""


class Placeholder(Struct, frozen=True):
    """A part of a text that is filled in later: its kind, and the name of the artifact or secret, if any."""

    kind: str
    name: str = ""


Filled: TypeAlias = "str | tuple[str | Placeholder, ...]"
"""A text, with placeholders if it has any."""


class OutputFolder(Struct, frozen=True):
    """The folder of a step's outputs, for every item of its loop."""

    base: str
    run_id: str
    pipeline: str
    step: str
    part: str

    def path(self, artifact: str, seq: int = 0) -> str:
        """Return the path of an output of one item."""
        return artifact_path(self.base, self.run_id, self.pipeline, self.step, artifact, seq, self.part)


class OutputPaths(Struct, frozen=True):
    """Paths of output `name` that are the value of vertex `source`: a list, or, with `folder`, a loop's items."""

    source: str
    name: str
    folder: OutputFolder | None = None


Place: TypeAlias = "str | OutputPaths"
Places: TypeAlias = tuple[Place, ...]
"""The paths of an artifact: one path, or one for each item of the loops around it."""


def filled(text: str, value_of: Callable[[Template], str | Placeholder]) -> Filled:
    """Return a text with values in place of its templates; a text without placeholders is a plain string."""
    if "{{" not in text:
        return text
    found: list[str | Placeholder] = []
    for piece in pieces(text):
        value = value_of(piece) if isinstance(piece, Template) else piece
        if found and isinstance(value, str) and isinstance(found[-1], str):
            found[-1] += value
        elif value != "":
            found.append(value)
    if not found:
        return ""
    return found[0] if len(found) == 1 and isinstance(found[0], str) else tuple(found)


def static(places: Places) -> str | None:
    """Return all paths, joined by commas; None if some are not known yet."""
    known = [place for place in places if isinstance(place, str)]
    return ",".join(known) if len(known) == len(places) else None


def sources(places: Iterable[Place]) -> list[str]:
    """Return the vertices whose values are some of these paths, each once."""
    return list(dict.fromkeys(place.source for place in places if isinstance(place, OutputPaths)))


# --------------------------------------------------------------------------------------------------------- as JSON


def text_to_json(text: Filled) -> Any:
    """Return a text as JSON: a string, or a list of strings and of placeholders as `[kind, name]`."""
    return text if isinstance(text, str) else [[p.kind, p.name] if isinstance(p, Placeholder) else p for p in text]


def places_to_json(found: Places) -> list[Any]:
    """Return paths as JSON: strings, and maps for paths that are known later."""
    return [place if isinstance(place, str) else as_dict(place) for place in found]


def plain(value: ParameterValue) -> Any:
    """Return a parameter's value as JSON: tuples become lists."""
    return [plain(item) for item in value] if isinstance(value, tuple) else value


def tuple_of(value: Any) -> ParameterValue:
    """Return a JSON value with lists as tuples."""
    return tuple(tuple_of(item) for item in value) if isinstance(value, list | tuple) else value


def joined(text: Any, value_of: Callable[[str, str], str]) -> str:
    """Return the text of a form made by `text_to_json`; `value_of` gets kind and name of each placeholder."""
    if isinstance(text, str):
        return text
    return "".join(part if isinstance(part, str) else value_of(*part) for part in text)


def delivered_paths(places: Sequence[Any], value_of: Callable[[str], Any]) -> list[str]:
    """Return the paths of a form made by `places_to_json`; `value_of` returns the value of a vertex."""
    found: list[str] = []
    for place in places:
        if isinstance(place, str):
            found.append(place)
            continue
        value = value_of(place["source"])
        if place["folder"] is not None:
            folder = OutputFolder(**place["folder"])
            found += [folder.path(place["name"], seq) for seq in range(len(value))]
        elif isinstance(value, Mapping):
            found += value[place["name"]]
    return found
