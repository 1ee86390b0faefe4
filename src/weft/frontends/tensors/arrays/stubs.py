"""Stub files: the rows of the registry, for editors, type checkers and look-ups of names at run time.

So a module is loaded when a name of it is first used, and importing `weft.tensor` costs next to nothing. Line after
line a stub imports names, some under others: `from module import attribute as name`, or `name = _attribute`.
`python -m weft.tensor.stubs` writes the files; a test holds them equal to the registry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from weft.frontends.tensors.arrays.registry import PublicName

_IMPORT = re.compile(r"^from (\S+) import (.*)$", re.MULTILINE)
_ASSIGNED = re.compile(r"^(?:    )?(\w+) = ([\w.]+)$", re.MULTILINE)
_LISTED = re.compile(r'"(\w+)"')
_WIDTH = 120


class Definition(NamedTuple):
    """Where something is defined: an attribute, or an attribute of one, of a module."""

    module: str
    path: str


def load(place: Definition) -> Any:
    """Return the object at a place."""
    return reduce(getattr, place.path.split("."), import_module(place.module))


def stub_of(module: str) -> Path:
    """Return the stub file of a module."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).with_suffix(".pyi")


def entries(module: str) -> tuple[Mapping[str, Definition], list[str]]:
    """Return the places of definition of a module's names, and its `__all__`, from its stub."""
    text, _, listed = stub_of(module).read_text().partition("__all__ = ")
    found: dict[str, Definition] = {}
    for source, names in _IMPORT.findall(text):
        for one in names.split(", "):
            path, _, name = one.partition(" as ")
            found[name or path] = Definition(source, path)
    for name, path in _ASSIGNED.findall(text):
        first, _, rest = path.partition(".")
        source, attribute = found[first]
        found[name] = Definition(source, f"{attribute}.{rest}" if rest else attribute)
    public = {name: one for name, one in found.items() if not name.startswith("_") or name.startswith("__")}
    return public, _LISTED.findall(listed)


def namespace(module: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a module that has the names of its stub."""
    names, listed = entries(module)

    def find(name: str) -> Any:
        if name not in names:
            from weft.frontends.tensors.arrays.absent import dask_function, reason_for

            why = f": NumPy's is left out ({found})" if (found := reason_for(name)) else dask_function(name)
            raise AttributeError(f"module {module!r} has no attribute {name!r}{why}")
        place = names[name]
        made = import_module(f"{module}.{name}") if place.module == module else load(place)
        setattr(import_module(module), name, made)
        return made

    return find, lambda: sorted({*listed, *vars(import_module(module))}), listed


def render(rows: Iterable[PublicName], modules: Mapping[str, str], methods: bool = False) -> str:
    """Return the text of a stub with these rows; `modules` are submodules that it has, by name."""
    sources: dict[str, list[str]] = {}
    assigned: list[str] = []
    listed = list(modules)
    for name, package in sorted(modules.items()):
        sources.setdefault(package, []).append(name)
    for row in sorted(rows, key=lambda row: (row.module, row.name)):
        first, _, rest = row.path.partition(".")
        imported = sources.setdefault(row.module, [])
        if methods or rest or not row.listed:
            imported.append(f"{first} as _{first.strip('_')}")
            assigned.append(f"{row.name} = _{first.strip('_')}" + (f".{rest}" if rest else ""))
        else:
            imported.append(first if first == row.name else f"{first} as {row.name}")
        if row.listed:
            listed.append(row.name)
    lines = ["# Written by `python -m weft.tensor.stubs` from the registry.", "# fmt: off"]
    for module, names in sorted(sources.items()):
        lines += _wrapped(f"from {module} import ", list(dict.fromkeys(names)))
    if methods:
        lines += ["", "class Methods:", *[f"    {one}" for one in sorted(assigned)]]
    else:
        lines += [
            *sorted(assigned),
            "__all__ = [",
            *_wrapped("    ", [f'"{name}"' for name in sorted(listed)], ","),
            "]",
        ]
    return "\n".join(lines) + "\n"


def _wrapped(start: str, names: list[str], end: str = "") -> list[str]:
    """Return lines of names, each with the same start and end, none of which is too long."""
    lines = [start + names[0]]
    for name in names[1:]:
        if len(lines[-1]) + len(name) + len(end) + 2 > _WIDTH:
            lines.append(start + name)
        else:
            lines[-1] += f", {name}"
    return [line + end for line in lines]
