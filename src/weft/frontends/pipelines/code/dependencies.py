"""The code that a Python function depends on: leaves for the cache key of a step.

Only source is read and nothing is imported, so that a pipeline whose steps all come from the cache loads no libraries.
The walk starts at the definition of the function and resolves each name as Python would. Local functions, classes
(whole, with their bases) and constants count by their syntax trees, through any import. Statements at the top of a
module count where they change such a name: directly, by functions that they call, by decorators, or by hooks of base
classes. Comments, blank lines, docstrings and layout do not count. Installed packages count by name and version, local
extension modules by their bytes, the standard library by the version of Python. Weft itself does not count. A statement
at the top of any loaded module whose effect goes beyond names of these modules, such as `random.seed(1)`, counts for
every function: nothing tells who depends on it.

A script that a constant names (`"tool.py"`, `["-m", "tool"]`) counts by its bytes, with the modules that it imports.
A module that is imported by a call, such as `importlib.import_module("name")`, counts whole if its name is a constant.
So does each loaded module, except the function's own, that one by a computed name may be. Other dynamic dependencies
are not seen: names made at run time, `eval`, attributes that other code sets, and files or environment variables that
the function reads. The trace of the step tells the files among them (`weft.store.opened`).
"""

from __future__ import annotations

import ast
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from weft.frontends.pipelines.code.modules import (
    ALL_NAMES,
    BINARY_SUFFIXES,
    STANDARD_LIBRARY,
    ModuleIndex,
    ModuleName,
    NameTarget,
)
from weft.frontends.pipelines.code.path_texts import PathText, paths_in
from weft.frontends.pipelines.code.sources import OWN_PACKAGE, ModuleSource, parse_module, read_module
from weft.frontends.pipelines.code.statements import DEFINITIONS, DottedName, ImportedName
from weft.model.errors import ProgramError

_MOST_KNOWN: Final = 8
_LOCK: Final = threading.Lock()
_known: dict[tuple[Path, ...], ModuleIndex] = {}
"""Indexes of the latest calls, the newest last: many steps of a pipeline use the same modules."""


def leaves(folder: str, function: str) -> dict[str, str]:
    """Return the leaves of `module:name`, found from `folder` or installed: texts and digests by name.

    ProgramError: there is no such function, or a module that it uses cannot be read.
    """
    with _LOCK:
        modules = _modules_in(Path(folder))
        found = modules.leaves.get(function)
        if found is None:
            found = modules.leaves[function] = _leaves(modules, function)
        return dict(found)


def paths_read(folder: str, function: str) -> list[tuple[PathText, str]]:
    """Return the paths that the code of `leaves` names, except scripts that count, each with the folder of its module.

    ProgramError: see `leaves`.
    """
    leaves(folder, function)
    with _LOCK:
        return list(_modules_in(Path(folder)).paths.get(function, ()))


def loaded_files(folders: Sequence[str], script: str | None, text: str, module: str) -> list[str]:
    """Return the files of the local modules, found from `folders` in turn, that a Python script or a text loads.

    `module` is the name of the script as a module. ProgramError: it cannot be read, or is no Python.
    """
    with _LOCK:
        if script is None:
            source = parse_module(text, Path(folders[0]), module, main=True)
        else:
            source = read_module(Path(script), module, main=True)
        loaded = _modules_in(*map(Path, folders)).loaded_by(source)
        return [str(path) for path, one in loaded.items() if one is not source]


def _modules_in(*folders: Path) -> ModuleIndex:
    """Return the index of the modules in folders, a new one if their files have changed."""
    modules = _known.pop(folders, None)
    if modules is None or not modules.is_as_it_was():
        modules = ModuleIndex(*folders)
    while len(_known) >= _MOST_KNOWN:
        del _known[next(iter(_known))]
    _known[folders] = modules
    return modules


def _leaves(modules: ModuleIndex, function: str) -> dict[str, str]:
    module, _, path = function.partition(":")
    found = modules.find(module)
    own = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    if found and isinstance(found, str):
        return {**own, f"package {module.partition('.')[0]}": found}
    if not isinstance(found, Path):
        message = f"there is no module {module} in {modules.folder}"
        raise ProgramError(message, hint="Name a function as module:function, and the folder of the module as path.")
    source = modules.read(found, module)
    name = path.split(".")[0]
    if name not in source.bindings:
        raise ProgramError(f"{found} has no {name!r} at its top level", hint="Define the function of a step there.")
    walk = DependencyWalk(modules)
    walk.begin(source, name)
    modules.paths[function] = walk.paths()
    return {**own, **dict(sorted(walk.leaves.items()))}


class DependencyWalk:
    """A walk from one function over all names that it depends on; `leaves` are the findings so far."""

    def __init__(self, modules: ModuleIndex) -> None:
        self.modules = modules
        self.leaves: dict[str, str] = {}
        self._seen: set[ModuleName] = set()
        self._followed: set[tuple[Path, str, DottedName]] = set()
        self._todo: list[NameTarget] = []
        self._loaded: dict[Path, ModuleSource] = {}
        self._first: ModuleSource | None = None
        self._changes: dict[ModuleName, list[tuple[ModuleSource, ast.stmt]]] = {}
        self._used: dict[Path, tuple[ModuleSource, list[ast.stmt]]] = {}

    def begin(self, source: ModuleSource, name: str) -> None:
        """Walk from a name of a module, with the changes made by all modules that this one loads."""
        self._first = source
        self._loaded, self._changes, outside = self.modules.changes_by(source)
        self.use(source, name, ())
        acts: dict[str, list[ast.stmt]] = {}
        for other, statement in outside:
            acts.setdefault(other.module, []).append(statement)
            self._all_of(other, statement)
        for module, statements in acts.items():
            self.leaves[f"import {module}"] = self.modules.text_of(statements)
        self.run()

    def paths(self) -> list[tuple[PathText, str]]:
        """Return the paths that the visited statements name, except scripts, each with the folder of its module."""
        return [
            (path, str(file.parent))
            for file, (source, statements) in self._used.items()
            for path in paths_in(statements, source.statements)
            if not any(path.text in source.uses_of(one).scripts for one in statements)
        ]

    def use(self, source: ModuleSource, name: str, rest: DottedName) -> None:
        """Queue a name of the top level of a module with its attributes `rest`; each is visited once."""
        if (source.path, name, rest) not in self._followed:
            self._followed.add((source.path, name, rest))
            self._todo.append((source, name, rest))

    def run(self) -> None:
        """Visit all queued names. No recursion: a chain of names may be thousands long."""
        while self._todo:
            source, name, rest = self._todo.pop()
            if name:
                self._take(source, name, rest)
            else:
                self._take_whole(source)

    def _take(self, source: ModuleSource, name: str, rest: DottedName) -> None:
        for imported in source.imports.get(name, ()):
            self._import(source, imported, rest)
        if (source.path, name) in self._seen:
            return
        self._seen.add((source.path, name))
        bound = source.bindings.get(name, ())
        statements = [one for one in bound if not isinstance(one, ast.Import | ast.ImportFrom)]
        for statement in statements:
            self._all_of(source, statement)
        for other, statement in (
            *self._changes.get((source.path, name), ()),
            *self._changes.get((source.path, ALL_NAMES), ()),
        ):
            if statement in bound:
                continue
            if isinstance(statement, DEFINITIONS):  # it has its own leaf; here only the order matters
                self.use(other, statement.name, ())
                statements.append(ast.Expr(ast.Constant(f"{other.module}.{statement.name}")))
            else:
                self._all_of(other, statement)
                statements.append(statement)
        # An import under the original name is covered by the leaf of its definition.
        found = [one for one in self.modules.imported(source, name) if one.rpartition(".")[2] != name]
        if statements:
            statements += [ast.Expr(ast.Constant(f"import {one}")) for one in found]
            self.leaves[f"code {source.module}.{name}"] = self.modules.text_of(statements)
        elif found:
            self.leaves[f"code {source.module}.{name}"] = "import " + " or ".join(found)

    def _all_of(self, source: ModuleSource, statement: ast.stmt) -> None:
        uses = source.uses_of(statement)
        self._used.setdefault(source.path, (source, []))[1].append(statement)
        for chain in sorted(uses.names):
            self._name(source, chain)
        for imported, rest in sorted(uses.imported):
            self._import(source, imported, rest)
        for script in sorted(uses.scripts):
            self._script(source, script)
        if uses.names_at_will(source.bindings):
            self._whole(source)
        for other in self._loaded.values():
            is_own = other is source or other is self._first
            if uses.goes_anywhere or (not is_own and other.module.startswith(tuple(uses.computed))):
                self._whole(other)

    def _script(self, source: ModuleSource, name: str) -> None:
        """Record a script of the project that a constant names, with the local modules that it imports."""
        for folder in dict.fromkeys((self.modules.folder, source.path.parent)):
            path = Path(os.path.normpath(folder / name))
            if not path.is_relative_to(self.modules.folder) or not path.is_file():
                continue
            files = [path]
            if path.suffix == ".py":
                with suppress(ProgramError):  # it will fail, or nobody runs it
                    files = list(self.modules.loaded_by(read_module(path, "__main__", main=True)))
            for file in files:
                shown = os.path.relpath(file, self.modules.folder)
                if f"script {shown}" not in self.leaves:
                    self.leaves[f"script {shown}"] = self.modules.binary(file)

    def _name(self, source: ModuleSource, chain: DottedName) -> None:
        if chain[0] in source.bindings or (source.path, ALL_NAMES) in self._changes:
            self.use(source, chain[0], chain[1:])
            return
        if not source.stars or (source.path, ALL_NAMES, chain) in self._followed:  # star imports may form a cycle
            return
        self._followed.add((source.path, ALL_NAMES, chain))
        for star in source.stars:
            module = self.modules.absolute(source, star)
            found = self.modules.find(module)
            if not isinstance(found, Path) or found.suffix != ".py" or self.modules.has(module, chain[0]):
                self._follow(module, chain)
                if isinstance(found, Path) and found.suffix == ".py":
                    exported = self.modules.read(found, module)
                    if "__all__" in exported.bindings:  # it decides which of the star imports gives the name
                        self.use(exported, "__all__", ())

    def _import(self, source: ModuleSource, imported: ImportedName, rest: DottedName) -> None:
        self._follow(*self.modules.target(source, imported, rest))

    def _follow(self, module: str, rest: DottedName) -> None:
        """Queue the name `rest` of a module, or record the package that the module belongs to."""
        top = module.partition(".")[0]
        if top in ("", OWN_PACKAGE):
            return
        found = self.modules.find(module)
        if found == STANDARD_LIBRARY:
            return
        if found is None:
            self.leaves[f"package {top}"] = "not installed"
        elif isinstance(found, str):
            self.leaves[f"package {top}"] = found
        elif found.is_dir():  # a namespace package
            if rest:
                self._follow(f"{module}.{rest[0]}", rest[1:])
        elif found.suffix in BINARY_SUFFIXES:
            self.leaves[f"code {module}"] = self.modules.binary(found)
        else:
            self._inside(self.modules.read(found, module), rest)

    def _inside(self, source: ModuleSource, rest: DottedName) -> None:
        if rest and rest[0] in source.bindings:
            self.use(source, rest[0], rest[1:])
            return
        if rest and isinstance(self.modules.find(f"{source.module}.{rest[0]}"), Path):
            self._follow(f"{source.module}.{rest[0]}", rest[1:])
            return
        if rest and any(self.modules.has(self.modules.absolute(source, star), rest[0]) for star in source.stars):
            self._name(source, rest)
            return
        self._whole(source)  # the module is used as a value, or the name was not found

    def _whole(self, source: ModuleSource) -> None:
        """Queue the whole module with its imports."""
        self.use(source, "", ())

    def _take_whole(self, source: ModuleSource) -> None:
        others = [
            one
            for (path, _), all_of_it in self._changes.items()
            if path == source.path
            for one in all_of_it
            if one[0] is not source
        ]
        self.leaves[f"code {source.module}"] = self.modules.text_of([*source.statements, *(one for _, one in others)])
        for other, statement in (*((source, one) for one in source.statements), *others):
            self._all_of(other, statement)
        for name, imports in source.imports.items():
            if name in source.bindings:
                for imported in imports:
                    self._import(source, imported, ())
        for star in source.stars:
            self._follow(self.modules.absolute(source, star), ())
