"""Words for all steps of a file (`x-weft.defaults`), and named profiles of a run (`x-weft.profiles`).

Both act on the tree of a file before it is read, so that every rule of a step holds for them too. The order for one
word of a step, the strongest first: the profile's `steps`, the step, the profile's `defaults`, the file's `defaults`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from weft.documents import yaml
from weft.documents.problems import FilePosition, Problems, join
from weft.frontends.pipelines.extras import check_defaults
from weft.frontends.pipelines.maps import FileMap, is_empty, is_null

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE_EXTRAS: Final = ("as_paddleflow", "defaults")
"""The keys of `x-weft` at the top of a file."""
DEFAULTS: Final = ("timeout_s", "retry", "resources", "env")
"""The words that a file or a profile gives for all steps."""
_FIELD_BY_FIELD: Final = frozenset({"retry", "resources", "env"})
_EXTRA: Final = "x-weft"
_NOT_FOR: Final[dict[str, frozenset[str]]] = {"training": frozenset({"resources"})}
"""The words for all steps that steps of a kind do not take: replicas have resources of their own."""


class Profile(Struct, frozen=True):
    """The profile of a run, with the words of `weft.toml` and of the file in one map of plain values."""

    name: str
    words: Mapping[str, Any] = field(default_factory=dict)


def with_defaults(tree: yaml.Node, problems: Problems, profile: Profile | None = None) -> yaml.Node:
    """Return the tree of a file with its words for all steps at each step; their mistakes are added to `problems`."""
    extra = _entry(tree, _EXTRA)
    given = _entry(extra, "defaults")
    if given is None or not isinstance(tree, yaml.Mapping):
        return tree
    before = len(problems.found)
    check_defaults(FileMap(given, join(_EXTRA, "defaults"), problems, DEFAULTS))
    if len(problems.found) > before:
        return tree
    entries = dict(tree.entries)
    for part in ("entry_points", "components", "post_process"):
        if part in entries:
            entries[part] = _family(entries[part], given)
    return yaml.Mapping(entries, tree.keys, tree.mark)


def _family(node: yaml.Node, defaults: yaml.Node) -> yaml.Node:
    if not isinstance(node, yaml.Mapping):
        return node
    return yaml.Mapping({name: _component(one, defaults) for name, one in node.entries.items()}, node.keys, node.mark)


def _component(node: yaml.Node, defaults: yaml.Node) -> yaml.Node:
    if not isinstance(node, yaml.Mapping) or not is_empty(node.entries.get("reference", _NOTHING)):
        return node
    inner = node.entries.get("entry_points", _NOTHING)
    if not is_null(inner):
        return yaml.Mapping({**node.entries, "entry_points": _family(inner, defaults)}, node.keys, node.mark)
    extra = node.entries.get(_EXTRA, _NOTHING)
    if not is_null(extra) and not isinstance(extra, yaml.Mapping):
        return node
    kind = _entry(extra, "kind")
    left_out = _NOT_FOR.get(kind.text, frozenset()) if isinstance(kind, yaml.Scalar) else frozenset()
    own = _over(extra, _without(defaults, left_out | {"env"}))
    env = _over(node.entries.get("env"), _entry(defaults, "env"), "env")
    changed = {key: one for key, one in ((_EXTRA, own), ("env", env)) if one is not None}
    keys = {**dict.fromkeys(changed, node.mark), **node.keys}
    return yaml.Mapping({**node.entries, **changed}, keys, node.mark)


_NOTHING: Final = yaml.Scalar(None, "", FilePosition(1, 1))


def _entry(node: yaml.Node | None, key: str) -> yaml.Node | None:
    found = node.entries.get(key) if isinstance(node, yaml.Mapping) else None
    return None if found is None or is_null(found) else found


def _without(node: yaml.Node, names: frozenset[str]) -> yaml.Node:
    if not isinstance(node, yaml.Mapping):
        return node
    return yaml.Mapping({key: one for key, one in node.entries.items() if key not in names}, node.keys, node.mark)


def _over(high: yaml.Node | None, low: yaml.Node | None, name: str = "") -> yaml.Node | None:
    """Return a value over another: the first wins, of maps for each key, and in the maps that merge by field."""
    if high is None or is_null(high):
        return low
    if low is None or is_null(low) or not (isinstance(high, yaml.Mapping) and isinstance(low, yaml.Mapping)):
        return high
    entries = dict(low.entries)
    for key, node in high.entries.items():
        below = entries.get(key)
        merges = not name and key in _FIELD_BY_FIELD
        found = _over(node, below, key) if merges else node if below is None or not is_null(node) else below
        if found is not None:
            entries[key] = found
    return yaml.Mapping(entries, {**low.keys, **high.keys}, high.mark)
