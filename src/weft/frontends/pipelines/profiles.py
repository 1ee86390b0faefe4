"""Defaults of all steps of a file (`x-weft.defaults`), and named profiles of a run (`x-weft.profiles`).

Both act on the tree of a file before it is read, so that every rule of a step holds for them too. The order for one
word of a step, the strongest first: the profile's `steps`, the step, the profile's `defaults`, the file's `defaults`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct, field

from weft.documents import yaml
from weft.documents.problems import FilePosition, Problems, choices, join, show
from weft.frontends.pipelines.distributed import MODE, TYPE
from weft.frontends.pipelines.extras import check_defaults
from weft.frontends.pipelines.language import PIPELINE_FILE, START
from weft.frontends.pipelines.maps import FileMap, is_empty, is_null
from weft.frontends.pipelines.trees import node_of
from weft.model.errors import UsageError
from weft.model.records import flattened
from weft.model.suggestions import did_you_mean, nearest
from weft.store.filesystems import project_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

FILE_EXTRAS: Final = ("as_paddleflow", "defaults", "profiles")
"""The keys of `x-weft` at the top of a file."""
DEFAULTS: Final = ("timeout_s", "retry", "resources", "environment", "stderr", "env")
"""The keys that a file or a profile gives for all steps."""
PROFILE: Final = ("parameters", "settings", "cache", "defaults", "steps")
"""The keys of a profile."""
CACHE: Final = ("enable", "max_expired_time", "fs_scope", "mode")
"""The keys of `cache`."""
_PARTS: Final = ("entry_points", "components", "post_process")
_FIELD_BY_FIELD: Final = frozenset({"retry", "resources", "env"})
_EXTRA: Final = "x-weft"
_NOT_FOR: Final[dict[str, frozenset[str]]] = {
    "training": frozenset({"resources", "environment", "stderr"}),
    "sql": frozenset({"environment", "stderr"}),
}
"""The defaults of all steps that steps of a kind do not take: replicas have resources of their own."""


Outdone: TypeAlias = "Callable[[Iterable[str], Iterable[str]], set[str]]"
"""Returns the keys `step.parameter` of the first that a bare name of the second sets too."""


class Profile(Struct, frozen=True):
    """The profile of a run: `values` has those of `weft.toml` and of the file as one map."""

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters, by `parameter` or `step.parameter`."""
        return dict(flattened(self.values.get("parameters") or {}))

    @property
    def settings(self) -> dict[str, Any]:
        """The settings."""
        return dict(self.values.get("settings") or {})


# ------------------------------------------------------------------------------------------------------- one by name


def profile_in(text: str, file: str, name: str, outdone: Outdone) -> Profile:
    """Return a profile of the text of a file, with the values of `weft.toml` below its own.

    UsageError: neither has it, or that of `weft.toml` is none. Errors of the text are those of `yaml.load`.
    """
    tree = yaml.load(text, Problems(file, PIPELINE_FILE))
    own = _entry(_entry(tree, _EXTRA), "profiles")
    return profile_of_values(_plain(own) if isinstance(own, yaml.Mapping) else {}, file, name, outdone)


def profile_of_values(
    own: Mapping[str, Any], file: str, name: str, outdone: Outdone = lambda below, _: set(below)
) -> Profile:
    """Return a profile of a file with these profiles; otherwise as `profile_in`."""
    table, source = project_table(Path(file).absolute().parent, "profiles")
    for one, values in table.items():
        problems = Problems(str(source), PIPELINE_FILE)
        _check_profile(FileMap(node_of(values, START), join("profiles", one), problems, PROFILE))
        problems.raise_if_any()
    known = dict.fromkeys((*own, *table))
    if name not in known:
        hint = f"There are: {choices(known)}" if known else "Write one under x-weft: {profiles: ...}, or in weft.toml"
        raise UsageError(f"{file} has no profile {name[:60]!r}", hint=did_you_mean(name, known, hint))
    found = _over(node_of(own.get(name), START), node_of(table.get(name), START), deep=3)
    profile = Profile(name, {} if found is None or is_null(found) else _plain(found))
    below, above = (Profile(name, one.get(name) or {}).parameters for one in (table, own))
    gone = {key for key in below if "." in key and key not in above and key.rpartition(".")[2] in above}
    if gone and (gone := outdone(gone, above)):
        left = {key: one for key, one in profile.parameters.items() if key not in gone}
        return Profile(name, {**profile.values, "parameters": left})
    return profile


def _plain(node: yaml.Node) -> Any:
    if isinstance(node, yaml.Mapping):
        return {key: _plain(one) for key, one in node.entries.items()}
    return [_plain(one) for one in node.items] if isinstance(node, yaml.Sequence) else node.value


# ------------------------------------------------------------------------------------------------------------ checks


def _check_profile(values: FileMap) -> None:
    values.map("parameters", None)
    settings = values.map("settings", None)
    if "state_dir" in settings.nodes:
        settings.wrong("state_dir", "cannot stand in a profile", "other commands would look for the run elsewhere")
    for name, node in settings.nodes.items():
        if not isinstance(node, yaml.Scalar) or node.value is None:
            settings.wrong(name, f"must be one value, is {yaml.describe(node)}")
    values.map("cache", CACHE)
    check_defaults(values.map("defaults", DEFAULTS))
    steps = values.map("steps", None)
    for name in steps.nodes:
        check_defaults(steps.map(name, DEFAULTS))


def _check_steps(tree: yaml.Node, profiles: FileMap) -> None:
    """Add a problem for each step that a profile names and the file does not have."""
    known: list[str] = []
    for name in profiles.nodes:
        steps = profiles.map(name, PROFILE).map("steps", None)
        if steps.nodes and not known:
            known = [one for part in _PARTS for one in _step_names(_entry(tree, part))]
        for step in steps.nodes:
            if step not in known:
                near = nearest(step, known)
                hint = f"did you mean {near}?" if near else f"there are: {choices(known)}"
                steps.problems.add(steps.keys[step], join(steps.path, step), f"there is no step {show(step)}", hint)


def _step_names(node: yaml.Node | None, prefix: str = "") -> Iterator[str]:
    for name, one in node.entries.items() if isinstance(node, yaml.Mapping) else ():
        inner = _entry(one, "entry_points")
        if inner is not None:
            yield from _step_names(inner, f"{prefix}{name}.")
        elif isinstance(one, yaml.Mapping) and is_empty(one.entries.get("reference", _NOTHING)):
            yield f"{prefix}{name}"


# ---------------------------------------------------------------------------------------------------------- the tree


def with_defaults(tree: yaml.Node, problems: Problems, profile: Profile | None = None) -> yaml.Node:
    """Return the tree of a file with its defaults of all steps, and those of the profile, at each step.

    Mistakes in both are added to `problems`; they have no effect then.
    """
    extra = _entry(tree, _EXTRA)
    given, profiles = _entry(extra, "defaults"), _entry(extra, "profiles")
    if not isinstance(tree, yaml.Mapping) or (given is None and profiles is None and profile is None):
        return tree
    before = len(problems.found)
    if given is not None:
        check_defaults(FileMap(given, join(_EXTRA, "defaults"), problems, DEFAULTS))
    if profiles is not None:
        found = FileMap(profiles, join(_EXTRA, "profiles"), problems)
        found.nodes = {name: node for name, node in found.nodes.items() if not is_null(node)}  # no word is legal
        for name in found.nodes:
            if not name.strip():
                problems.add(found.keys[name], found.path, "a profile needs a name", "weft run --profile gives it")
            _check_profile(found.map(name, PROFILE))
        _check_steps(tree, found)
    if len(problems.found) > before:
        return tree
    values = {} if profile is None else profile.values
    defaults = _over(node_of(values.get("defaults"), START), given)
    steps = {name: node_of(one, START) for name, one in (values.get("steps") or {}).items()}
    entries = dict(tree.entries)
    for part in _PARTS:
        if part in entries and (defaults is not None or steps):
            entries[part] = _family(entries[part], defaults, steps)
    cache = _over(node_of(values.get("cache"), START), entries.get("cache"), deep=1)
    if cache is not None:
        entries["cache"] = cache
    return yaml.Mapping(entries, {"cache": START, **tree.keys}, tree.mark)


def _family(node: yaml.Node, defaults: yaml.Node | None, steps: Mapping[str, yaml.Node], prefix: str = "") -> yaml.Node:
    if not isinstance(node, yaml.Mapping):
        return node
    entries = {name: _component(one, defaults, steps, f"{prefix}{name}") for name, one in node.entries.items()}
    return yaml.Mapping(entries, node.keys, node.mark)


def _component(node: yaml.Node, defaults: yaml.Node | None, steps: Mapping[str, yaml.Node], dotted: str) -> yaml.Node:
    if not isinstance(node, yaml.Mapping) or not is_empty(node.entries.get("reference", _NOTHING)):
        return node
    inner = node.entries.get("entry_points", _NOTHING)
    if not is_null(inner):
        below = _family(inner, defaults, steps, f"{dotted}.")
        return yaml.Mapping({**node.entries, "entry_points": below}, node.keys, node.mark)
    extra = node.entries.get(_EXTRA, _NOTHING)
    if not is_null(extra) and not isinstance(extra, yaml.Mapping):
        return node
    kind = _entry(extra, "kind")
    left_out = _NOT_FOR.get(kind.text, frozenset()) if isinstance(kind, yaml.Scalar) else frozenset()
    if any(_entry(node.entries.get("env"), name) is not None for name in (MODE, TYPE)):
        left_out = _NOT_FOR["training"]  # a distributed step of PaddleFlow is a training job
    if not is_empty(node.entries.get("docker_env", _NOTHING)):
        left_out |= {"environment"}  # an image of its own has its packages
    above = steps.get(dotted)
    own = _over(_without(above, frozenset({"env"})), _over(extra, _without(defaults, left_out | {"env"})))
    env = _over(_entry(above, "env"), _over(node.entries.get("env"), _entry(defaults, "env"), deep=1), deep=1)
    changed = {key: one for key, one in ((_EXTRA, own), ("env", env)) if one is not None}
    keys = {**dict.fromkeys(changed, node.mark), **node.keys}
    return yaml.Mapping({**node.entries, **changed}, keys, node.mark)


_NOTHING: Final = yaml.Scalar(None, "", FilePosition(1, 1))


def _entry(node: yaml.Node | None, key: str) -> yaml.Node | None:
    found = node.entries.get(key) if isinstance(node, yaml.Mapping) else None
    return None if found is None or is_null(found) else found


def _without(node: yaml.Node | None, names: frozenset[str]) -> yaml.Node | None:
    if not isinstance(node, yaml.Mapping):
        return node
    return yaml.Mapping({key: one for key, one in node.entries.items() if key not in names}, node.keys, node.mark)


def _over(high: yaml.Node | None, low: yaml.Node | None, *, deep: int = 2) -> yaml.Node | None:
    """Return a value over another. Of two maps each key counts by itself, in maps inside for `deep` - 1 more levels.

    On the second level only those maps merge whose fields are independent.
    """
    if high is None or is_null(high):
        return low
    if (
        low is None
        or is_null(low)
        or not deep
        or not (isinstance(high, yaml.Mapping) and isinstance(low, yaml.Mapping))
    ):
        return high
    entries = dict(low.entries)
    for key, node in high.entries.items():
        merges = deep != 2 or key in _FIELD_BY_FIELD
        found = _over(node, entries.get(key), deep=deep - 1 if merges else 0)
        if found is not None:
            entries[key] = found
    return yaml.Mapping(entries, {**low.keys, **high.keys}, high.mark)
