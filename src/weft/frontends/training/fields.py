"""The fields of one map of a job file, read by name and type; all mistakes are collected with their places.

A field that Kubernetes does not know is a mistake (kubectl refuses it too); one that it knows, but that has no effect
on one machine, is recorded under its path. A null stands for a missing field, as in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from weft.documents import yaml
from weft.documents.problems import choices, join, show
from weft.frontends.training.quantities import quantity, quantity_hint
from weft.model.suggestions import did_you_mean, nearest

if TYPE_CHECKING:
    from weft.documents.problems import FilePosition, Problems
    from weft.frontends.training.shapes import Shape

INT32: Final = 2**31 - 1
INT64: Final = 2**63 - 1
PORT_MAX: Final = 65535
GPU_HINT: Final = "write nvidia.com/gpu, or the name with the domain of another vendor"
"""The hint about a resource that is called gpu."""
MOST_REPLICAS: Final = 10_000
"""The most replicas of one type; each has records and a name of its own, which take time and memory."""
_SHOWN: Final = 40
_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")


class ReadingContext(Struct, frozen=True):
    """What the reading of one document collects: mistakes, and paths of fields that have no effect here."""

    problems: Problems
    ignored: list[str] = field(default_factory=list)


class Fields:
    """The fields of one map. A field of a wrong type is a mistake and reads as missing."""

    def __init__(self, node: yaml.Node, path: str, shape: Shape, context: ReadingContext) -> None:
        self.path = path
        self.mark = node.mark
        self.context = context
        self._shape = shape
        self._keys: dict[str, FilePosition] = {}
        self._nodes: dict[str, yaml.Node] = {}
        if isinstance(node, yaml.Mapping):
            self._keys = dict(node.keys)
            self._nodes = {key: value for key, value in node.entries.items() if not is_null(value)}
            self._check_keys(node)
        elif not is_null(node):
            self.wrong(node.mark, path, f"must be a map, is {yaml.describe(node)}")

    def __contains__(self, key: str) -> bool:
        return key in self._nodes

    def _check_keys(self, node: yaml.Mapping) -> None:
        for key, value in node.entries.items():
            if key in self._shape.understood:
                continue
            path = join(self.path, key)
            if key not in self._shape.unsupported:
                known = sorted(self._shape.understood | set(self._shape.unsupported))
                near = nearest(key, known)
                hint = f"Did you mean {near}?" if near else f"{self._shape.name} has: {choices(known, 30)}"
                hint = self._shape.elsewhere.get(key, hint)
                self.wrong(node.keys[key], path, "unknown field", hint)
            elif not _changes_nothing(value, self._shape.unsupported[key]):
                self.context.ignored.append(path)

    def wrong(self, mark: FilePosition, path: str, message: str, hint: str = "") -> None:
        """Record a mistake."""
        self.context.problems.add(mark, path, message, hint)

    def wrong_at(self, key: str, message: str, hint: str = "") -> None:
        """Record a mistake at a field."""
        self.wrong(self.place(key), join(self.path, key), message, hint)

    def place(self, key: str) -> FilePosition:
        """Return the position of the value of a field, or of the map if it has no such field."""
        return self._nodes[key].mark if key in self._nodes else self._keys.get(key, self.mark)

    def node(self, key: str) -> yaml.Node | None:
        """Return the value of a field as it stands in the file, None if it is missing."""
        if key not in self._shape.understood:
            raise AssertionError(f"{self._shape.name} has no field {key}")
        return self._nodes.get(key)

    def text(self, key: str, default: str = "", *, required: bool = False, among: Sequence[str] = ()) -> str:
        """Return a text; `among` are the legal ones."""
        node = self.node(key)
        if node is None:
            if required:
                self.wrong_at(key, "Required value")
            return default
        value = self._text(node, join(self.path, key))
        if value is None:
            return default
        if required and not value:
            self.wrong_at(key, "Required value")
        if among and value not in among:
            near = nearest(value, among)
            listed = choices(f'"{one}"' for one in among)
            hint = f"Did you mean {near}?" if near else ""
            self.wrong_at(key, f'Unsupported value: "{show(value)[1:-1]}": supported values: {listed}', hint)
            return default
        return value

    def _text(self, node: yaml.Node, path: str) -> str | None:
        if isinstance(node, yaml.Scalar) and isinstance(node.value, str):
            return node.value
        hint = f'put it in quotes: "{node.text}"' if isinstance(node, yaml.Scalar) and len(node.text) < _SHOWN else ""
        self.wrong(node.mark, path, f"must be text, is {yaml.describe(node)}", hint)
        return None

    def number(
        self, key: str, minimum: int | None = None, maximum: int = INT32, *, required: bool = False
    ) -> int | None:
        """Return a whole number, None if it is missing."""
        node = self.node(key)
        if node is None:
            if required:
                self.wrong_at(key, "Required value")
            return None
        value = node.value if isinstance(node, yaml.Scalar) else None
        if isinstance(value, bool) or not isinstance(value, int):
            quoted = isinstance(value, str) and value.isdecimal()
            hint = "leave out the quotes" if quoted else ""
            self.wrong_at(key, f"must be a whole number, is {yaml.describe(node)}", hint)
            return None
        if minimum is not None and value < minimum:
            self.wrong_at(key, f"Invalid value: {value}: must be greater than or equal to {minimum}")
            return None
        if not -INT32 - 1 <= value <= maximum and maximum != INT64:
            self.wrong_at(key, f"Invalid value: {value}: must be at most {maximum}")
            return None
        return value

    def truth(self, key: str, *, default: bool = False) -> bool:
        """Return a truth value."""
        node = self.node(key)
        if node is None:
            return default
        if isinstance(node, yaml.Scalar) and isinstance(node.value, bool):
            return node.value
        self.wrong_at(key, f"must be true or false, is {yaml.describe(node)}")
        return default

    def quantity(self, key: str) -> float | None:
        """Return a quantity as a number, None if it is missing."""
        node = self.node(key)
        return None if node is None else self._quantity(node, join(self.path, key))

    def _quantity(self, node: yaml.Node, path: str) -> float | None:
        if not isinstance(node, yaml.Scalar) or isinstance(node.value, bool):
            self.wrong(node.mark, path, f"must be a quantity, is {yaml.describe(node)}")
            return None
        try:
            value = quantity(node.text)
        except ValueError:
            message = f"must be a quantity, is {show(node.text)}"
            self.wrong(node.mark, path, message, quantity_hint(node.text))
            return None
        if value < 0:
            self.wrong(node.mark, path, f"Invalid value: {node.text}: must be greater than or equal to 0")
            return None
        return value

    def quantities(self, key: str) -> dict[str, float]:
        """Return a map of quantities."""
        found = ((name, self._quantity(node, path)) for name, node, path in self._entries(key))
        return {name: value for name, value in found if value is not None}

    def resources(self, key: str) -> dict[str, float]:
        """Return a map of quantities of the resources of a container: those of Kubernetes, others with a domain."""
        found = self.quantities(key)
        for name in found:
            if "/" not in name and name not in _RESOURCES and not name.startswith("hugepages-"):
                message = f"Invalid value: {show(name)}: must be a standard resource for containers"
                self.wrong(self.place(key), join(join(self.path, key), name), message, _resource_hint(name))
        return found

    def texts(self, key: str) -> dict[str, str]:
        """Return a map of texts."""
        found = ((name, self._text(node, path)) for name, node, path in self._entries(key))
        return {name: value for name, value in found if value is not None}

    def words(self, key: str) -> tuple[str, ...]:
        """Return a list of texts."""
        found = (self._text(node, path) for node, path in self._items(key))
        return tuple(word for word in found if word is not None)

    def port(self, key: str, *, required: bool = False) -> int | str:
        """Return a port by its number or its name, 0 if it is missing."""
        node = self.node(key)
        if node is None and not required:
            return 0
        if isinstance(node, yaml.Scalar) and isinstance(node.value, str):
            return node.value
        return self.number(key, 1, PORT_MAX, required=required) or 0

    def one(self, key: str, shape: Shape) -> Fields | None:
        """Return the fields of a map below this one, None if it is missing."""
        node = self.node(key)
        return None if node is None else Fields(node, join(self.path, key), shape, self.context)

    def many(self, key: str, shape: Shape) -> list[Fields]:
        """Return the fields of each map of a list."""
        return [Fields(node, path, shape, self.context) for node, path in self._items(key)]

    def named(self, key: str, shape: Shape) -> dict[str, Fields]:
        """Return the fields of each map of a map whose keys are free; a path shows such a key in brackets."""
        path = join(self.path, key)
        return {
            name: Fields(node, keyed(path, name), shape, self.context)
            for name, node, _ in self._entries(key, nulls=True)
        }

    def _entries(self, key: str, *, nulls: bool = False) -> Iterator[tuple[str, yaml.Node, str]]:
        node = self.node(key)
        if node is None:
            return
        if not isinstance(node, yaml.Mapping):
            self.wrong_at(key, f"must be a map, is {yaml.describe(node)}")
            return
        for name, value in node.entries.items():
            if nulls or not is_null(value):
                yield name, value, join(join(self.path, key), name)

    def _items(self, key: str) -> Iterator[tuple[yaml.Node, str]]:
        node = self.node(key)
        if node is None:
            return
        if not isinstance(node, yaml.Sequence):
            self.wrong_at(key, f"must be a list, is {yaml.describe(node)}", _list_hint(node))
            return
        for index, item in enumerate(node.items):
            yield item, f"{join(self.path, key)}[{index}]"


def is_null(node: yaml.Node) -> bool:
    """Return whether a value is null, which stands for a missing field."""
    return isinstance(node, yaml.Scalar) and node.value is None


def keyed(path: str, key: str) -> str:
    """Return the path of an entry of a map with free keys, in the form of Kubernetes: `spec.tfReplicaSpecs[PS]`."""
    part = join("", key)
    return f"{path}[{part}]"


def _changes_nothing(node: yaml.Node, default: str) -> bool:
    """Return whether a field that has no effect here is empty or has the `default` of Kubernetes anyway."""
    if isinstance(node, yaml.Mapping):
        return not node.entries
    if isinstance(node, yaml.Sequence):
        return not node.items
    return node.text == default or node.value is None


def _list_hint(node: yaml.Node) -> str:
    """Return how a value is written as a list: a command as its words, and the maps of `env`, `containers` and such."""
    if isinstance(node, yaml.Mapping):
        return 'each entry begins with a dash: "- name: ..."'
    import json
    import shlex

    if not isinstance(node, yaml.Scalar) or not isinstance(node.value, str) or len(node.value) > _SHOWN:
        return ""
    try:
        return f"write {json.dumps(shlex.split(node.value), ensure_ascii=False)}"
    except ValueError:  # a quote is not closed
        return ""


def _resource_hint(name: str) -> str:
    if name in ("gpu", "gpus"):
        return GPU_HINT
    return did_you_mean(name, _RESOURCES, f"write one of {', '.join(_RESOURCES)}, or a name with a domain")
