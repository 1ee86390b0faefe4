"""Modules found from a folder: their files, the definitions behind their names, and the changes made by loading."""

from __future__ import annotations

import ast
import builtins
import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from weft.frontends.pipelines.code.sources import OWN_PACKAGE, ModuleSource, read_module
from weft.frontends.pipelines.code.statements import (
    DEFINITIONS,
    DottedName,
    ImportedName,
    StatementEffect,
    UsedNames,
    aliased,
    constant_text,
    dotted_name,
    may_change,
    syntax_digest,
)
from weft.model.errors import ProgramError
from weft.store.digests import DIGEST

if TYPE_CHECKING:
    from weft.frontends.pipelines.code.path_texts import PathText

_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
STANDARD_LIBRARY: Final = ""
"""The place of modules of the standard library."""
BINARY_SUFFIXES: Final = (".so", ".pyd", ".dylib")
FOLDER: Final = "folder"
FILE: Final = "file"
ALL_NAMES: Final = "*"
"""All names of a module."""
ModuleName: TypeAlias = "tuple[Path, str]"
"""A name of the top level of a module, with the path of that module."""
NameTarget: TypeAlias = "tuple[ModuleSource, str, DottedName]"
"""A name of the top level of a module, and attributes of it."""
_HOOK: Final = "__init_subclass__"


class ModuleChanges(NamedTuple):
    """Changes that statements of modules make at import: by changed name, and the modules `sources` by path.

    `outside` are the statements that change more than named objects of these modules, such as the state of a library.
    """

    sources: dict[Path, ModuleSource]
    by_name: dict[ModuleName, list[tuple[ModuleSource, ast.stmt]]]
    outside: list[tuple[ModuleSource, ast.stmt]]


class ModuleIndex:
    """The modules found from a folder, as their files are at one moment, with everything derived from them.

    `others` are searched after the folder, as those of PYTHONPATH.
    """

    def __init__(self, folder: Path, *others: Path) -> None:
        self.folder = folder
        self._others = others
        self._places: dict[str, Path | str | None] = {}
        self._sources: dict[str, ModuleSource] = {}
        self._changes: dict[Path, ModuleChanges] = {}
        self._meanings: dict[tuple[Path, DottedName], list[NameTarget]] = {}
        self._digests: dict[ast.stmt, bytes] = {}
        self._listed: dict[Path, dict[str, str]] = {}
        self._binaries: dict[Path, list[str]] = {}
        self._digests_of_binaries: dict[Path, str] = {}
        self._is_whole = True
        self.leaves: dict[str, dict[str, str]] = {}
        self.paths: dict[str, list[tuple[PathText, str]]] = {}

    def is_as_it_was(self) -> bool:
        """Whether all files and folders that were read are unchanged and were readable."""
        binaries = dict(self._digests_of_binaries)
        try:
            read = self._is_whole and all(self.binary(path) == digest for path, digest in binaries.items())
            read = read and all(read_module(one.path, one.module) is one for one in self._sources.values())
        except ProgramError:
            return False
        missing = [name for name, place in self._places.items() if place is None and "." not in name]
        return (
            read
            and all(folder_entries(folder) == inside for folder, inside in self._listed.items())
            and not any(self._find(name) for name in missing)
        )

    def changes_by(self, source: ModuleSource) -> ModuleChanges:
        """Return the changes that a module and all local modules loaded by it make at import."""
        known = self._changes.get(source.path)
        if known is None:
            known = self._changes[source.path] = ModuleChanges(self.loaded_by(source), {}, [])
            reached: dict[tuple[Path, frozenset[DottedName]], set[ModuleName]] = {}
            for one in known.sources.values():
                for act in one.acts:
                    if self._goes_outside(one, act.acts):
                        known.outside.append((one, act.statement))
                    for named in sorted(self._changed_by(one, act, reached)):
                        known.by_name.setdefault(named, []).append((one, act.statement))
        return known

    def loaded_by(self, source: ModuleSource) -> dict[Path, ModuleSource]:
        """Return a module and all local modules that it loads, directly and through others, by path."""
        sources: dict[Path, ModuleSource] = {}
        todo = [source]
        while todo:
            one = todo.pop()
            if one.path in sources:
                continue
            sources[one.path] = one
            for imported in reversed(one.loads):
                names = self.absolute(one, imported).split(".")
                names += [imported.name] if imported.name else []
                if imported.name == ALL_NAMES:
                    todo += self._exported(self.absolute(one, imported))
                if self._is_local(names[0]):
                    found = [self._source(".".join(names[: end + 1])) for end in reversed(range(len(names)))]
                    todo += [other for other in found if other is not None]
        return sources

    def _exported(self, module: str) -> list[ModuleSource]:
        """Return the modules below a package that `import *` loads, because `__all__` names them."""
        source = self._source(module) if self._is_local(module.partition(".")[0]) else None
        if source is None:
            return []
        named = {
            one.value
            for statement in source.bindings.get("__all__", ())
            for one in ast.walk(statement)
            if isinstance(one, ast.Constant) and isinstance(one.value, str)
        }
        below = [self._source(f"{module}.{name}") for name in sorted(named) if name.isidentifier()]
        return [one for one in below if one is not None]

    def binary(self, path: Path) -> str:
        """Return the digest of an extension module. ProgramError: it cannot be read."""
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ProgramError(f"{path} cannot be read: {error.strerror}") from None
        digest = self._digests_of_binaries[path] = DIGEST + hashlib.sha256(data).hexdigest()
        return digest

    def text_of(self, statements: Sequence[ast.stmt]) -> str:
        """Return the text of a constant, and the digest of any other statements."""
        if len(statements) == 1 and (text := constant_text(statements[0])) is not None:
            return text
        found = hashlib.sha256()
        for statement in statements:
            digest = self._digests.get(statement)
            if digest is None:
                digest = self._digests[statement] = syntax_digest(statement)
            found.update(digest)
        return DIGEST + found.hexdigest()

    def absolute(self, source: ModuleSource, imported: ImportedName) -> str:
        """Return the absolute name of an imported module."""
        if not imported.level:
            return imported.module
        package = source.package.split(".") if source.package else []
        above = package[: len(package) - imported.level + 1]
        return ".".join([*above, *([imported.module] if imported.module else [])])

    def target(self, source: ModuleSource, imported: ImportedName, rest: DottedName) -> tuple[str, DottedName]:
        """Return the imported module, and the name and attributes used of it."""
        module = self.absolute(source, imported)
        if imported.name and module == source.module:  # `from . import name` in a package itself: the module below
            return f"{module}.{imported.name}", rest
        return module, (imported.name, *rest) if imported.name else rest

    def has(self, module: str, name: str, seen: frozenset[str] = frozenset()) -> bool:
        """Whether a local module may have a name: by a binding, a submodule or a star import."""
        found = self.find(module)
        if not isinstance(found, Path) or module in seen:
            return False
        if found.suffix != ".py":
            return True
        source = self.read(found, module)
        if name in source.bindings or isinstance(self.find(f"{module}.{name}"), Path):
            return True
        return any(self.has(self.absolute(source, star), name, seen | {module}) for star in source.stars)

    def imported(self, source: ModuleSource, name: str) -> list[str]:
        """Return the definitions that an imported name leads to, or the import as written where none is found."""
        found = []
        for imported in source.imports.get(name, ()):
            meant = [f"{other.module}.{at}" for other, at, _ in self._behind(source, imported, (), frozenset())]
            module, rest = self.target(source, imported, ())
            found += meant or [".".join((module, *rest))]
        return list(dict.fromkeys(found))

    def _changed_by(
        self,
        source: ModuleSource,
        act: StatementEffect,
        reached: dict[tuple[Path, frozenset[DottedName]], set[ModuleName]],
    ) -> set[ModuleName]:
        found: set[ModuleName] = {(source.path, ALL_NAMES)} if act.at_will else set()
        run: set[DottedName] = {base for base in act.bases if self._has_hooks(source, base)}
        for chain in act.changes:
            found.add((source.path, chain[0]))
            found |= {(other.path, name) for other, name, _ in self._meant(source, chain)}
        for call in act.calls:
            run |= call.of
            ours = not call.of or any(True for chain in call.of for _ in self._meant(source, chain))
            run |= call.handed if ours else {one for one in call.handed if self._is_defined(source, one)}
        key = (source.path, frozenset(run))
        if key not in reached:  # many functions have the same decorators
            reached[key] = self._reached(source, run)
        return found | reached[key]

    def _goes_outside(self, source: ModuleSource, acts: frozenset[DottedName]) -> bool:
        """Whether calls of functions and changes of objects have effects beyond the named objects of local modules."""
        if any(self._is_outside(source, chain, frozenset()) for chain in acts):
            return True
        todo = [target for chain in acts for target in self._meant(source, chain)]
        seen: set[ModuleName] = set()
        while todo:
            other, name, _ = todo.pop()
            if (other.path, name) in seen:
                continue
            seen.add((other.path, name))
            for statement in other.bindings[name]:
                if not isinstance(statement, (*DEFINITIONS, ast.Assign, ast.AnnAssign)):
                    continue
                uses = other.uses_of(statement)
                if isinstance(statement, DEFINITIONS) and self._acts_outside(other, uses):
                    return True
                todo += [target for chain in uses.called for target in self._meant(other, chain)]
                for imported, after in uses.acts_inside:
                    todo += self._behind(other, imported, after, frozenset())
        return False

    def _acts_outside(self, source: ModuleSource, uses: UsedNames) -> bool:
        return (
            uses.acts_on_given
            or any(self._is_outside(source, chain, frozenset()) for chain in uses.acts)
            or any(
                imported.module.partition(".")[0] != OWN_PACKAGE
                and not any(True for _ in self._behind(source, imported, after, frozenset()))
                for imported, after in uses.acts_inside
            )
        )

    def _is_outside(self, source: ModuleSource, chain: DottedName, seen: frozenset[ModuleName]) -> bool:
        """Whether a name may lead to an object that no local module has made: a module, or an object of a library."""
        if (source.path, chain[0]) in seen:
            return False
        meant = self._meant(source, chain)
        if not meant:
            behind = source.imports.get(chain[0], ()) if chain[0] in source.bindings else source.stars
            foreign = [one for one in behind if one.module.partition(".")[0] != OWN_PACKAGE]
            return bool(foreign) and (chain[0] in source.bindings or not hasattr(builtins, chain[0]))
        return any(
            self._is_outside(other, alias, seen | {(source.path, chain[0]), (other.path, name)})
            for other, name, _ in meant
            for statement in other.bindings[name]
            for alias in aliased(statement)
        ) or any(chain[0] in other.imports for other, name, _ in meant if other is source and name == chain[0])

    def _reached(self, source: ModuleSource, run: set[DottedName]) -> set[ModuleName]:
        """Return the names that the code behind `run` may change."""
        found: set[ModuleName] = set()
        todo = [target for chain in run for target in self._meant(source, chain)]
        seen: set[tuple[Path, str, DottedName]] = set()
        gone_into: set[ModuleName] = set()
        while todo:
            other, name, rest = todo.pop()
            if (other.path, name, rest) in seen:
                continue
            seen.add((other.path, name, rest))
            bound = [one for one in other.bindings[name] if not isinstance(one, ast.Import | ast.ImportFrom)]
            if (other.path, name) not in found and any(may_change(one, rest) for one in bound):
                found.add((other.path, name))
            if (other.path, name) in gone_into:
                continue
            gone_into.add((other.path, name))
            for statement in bound:
                uses = other.uses_of(statement)
                todo += [target for chain in uses.names for target in self._meant(other, chain)]
                for imported, after in uses.imported:
                    todo += self._behind(other, imported, after, frozenset())
                for chain in uses.stored:
                    found |= {(where.path, stored) for where, stored, _ in self._meant(other, chain)}
                if uses.names_at_will(other.bindings):
                    found.add((other.path, ALL_NAMES))
        return found

    def _has_hooks(self, source: ModuleSource, base: DottedName) -> bool:
        """Whether a class runs code when a subclass of it is made."""
        todo, seen = list(self._meant(source, base)), set()
        while todo:
            other, name, _ = todo.pop()
            for one in other.bindings[name]:
                if not isinstance(one, ast.ClassDef) or id(one) in seen:
                    continue
                seen.add(id(one))
                if one.keywords or any(isinstance(n, ast.FunctionDef) and n.name == _HOOK for n in one.body):
                    return True
                todo += [target for above in one.bases for target in self._meant(other, dotted_name(above))]
        return False

    def _is_defined(self, source: ModuleSource, chain: DottedName) -> bool:
        return any(
            isinstance(one, DEFINITIONS)
            for other, name, _ in self._meant(source, chain)
            for one in other.bindings[name]
        )

    def _meant(self, source: ModuleSource, chain: DottedName) -> list[NameTarget]:
        """Return the definitions in local modules that a name leads to, through all imports."""
        key = (source.path, chain)
        found = self._meanings.get(key)
        if found is None:
            found = self._meanings[key] = list(self._means(source, chain, frozenset()))
        return found

    def _means(self, source: ModuleSource, chain: DottedName, seen: frozenset[ModuleName]) -> Iterator[NameTarget]:
        if not chain or (source.path, chain[0]) in seen:
            return
        seen |= {(source.path, chain[0])}
        if chain[0] not in source.bindings:
            for star in source.stars:
                yield from self._behind(source, star._replace(name=""), chain, seen)
            return
        imports = source.imports.get(chain[0], ())
        for imported in imports:
            yield from self._behind(source, imported, chain[1:], seen)
        if any(not isinstance(one, ast.Import | ast.ImportFrom) for one in source.bindings[chain[0]]):
            yield source, chain[0], chain[1:]

    def _behind(
        self, source: ModuleSource, imported: ImportedName, rest: DottedName, seen: frozenset[ModuleName]
    ) -> Iterator[NameTarget]:
        module, rest = self.target(source, imported, rest)
        while rest and self._is_local(module.partition(".")[0]):
            inside = self._source(module)
            if inside is not None and (rest[0] in inside.bindings or self._source(f"{module}.{rest[0]}") is None):
                yield from self._means(inside, rest, seen)
                return
            module, rest = f"{module}.{rest[0]}", rest[1:]

    def _source(self, module: str) -> ModuleSource | None:
        """Return a local module, None if it is missing or cannot be read."""
        known = self._sources.get(module)
        if known is not None:
            return known
        found = self.find(module)
        if not isinstance(found, Path) or found.suffix in BINARY_SUFFIXES or not found.is_file():
            return None
        try:
            return self.read(found, module)
        except ProgramError:
            self._is_whole = False
            return None

    def read(self, path: Path, module: str) -> ModuleSource:
        """Return a parsed module: the same object for the whole walk."""
        source = self._sources.get(module)
        if source is None:
            source = self._sources[module] = read_module(path, module)
        return source

    def _is_local(self, top: str) -> bool:
        """Whether a module is neither of the standard library, nor installed, nor Weft; versions are not looked up."""
        if top in ("", OWN_PACKAGE):
            return False
        if top in self._places:
            return isinstance(self._places[top], Path)
        if self._top_module(top) is not None:
            return True
        return top not in sys.stdlib_module_names and locate_installed(top)[1] is None

    def find(self, module: str) -> Path | str | None:
        """Return the path of a local module, "name version" of an installed package, STANDARD_LIBRARY, or None."""
        if module not in self._places:
            self._places[module] = self._find(module)
        return self._places[module]

    def _find(self, module: str) -> Path | str | None:
        top, _, below = module.partition(".")
        local = self._top_module(top)
        base: Path | str | None = local
        if local is None or local.is_dir():  # any other module of that name precedes a namespace package
            base = STANDARD_LIBRARY if top in sys.stdlib_module_names else installed_module(top) or local
        if base is None or isinstance(base, str):
            return base
        for name in below.split(".") if below else ():
            inside = base.parent if base.stem == "__init__" else base
            found = self._module_in(inside, name)
            if found is None:
                return None
            base = found
        return base

    def _top_module(self, name: str) -> Path | None:
        """Return the path of a module in the first folder that has it; a namespace package comes last."""
        found = [path for folder in (self.folder, *self._others) if (path := self._module_in(folder, name)) is not None]
        return next((path for path in found if not path.is_dir()), found[0] if found else None)

    def _module_in(self, folder: Path, name: str) -> Path | None:
        """Return the path of a module in a folder: a package, a file, an extension, or a namespace package."""
        inside = self._entries(folder)
        if inside.get(name) == FOLDER and self._entries(folder / name).get("__init__.py") == FILE:
            return folder / name / "__init__.py"
        for suffix in (*EXTENSION_SUFFIXES, ".py"):  # in the order in which Python looks
            if inside.get(f"{name}{suffix}") == FILE:
                return folder / f"{name}{suffix}"
        binary = next((one for one in self._binaries.get(folder, ()) if one.startswith(f"{name}.")), None)
        return folder / binary if binary else folder / name if inside.get(name) == FOLDER else None

    def _entries(self, folder: Path) -> dict[str, str]:
        """Return the entries of a folder with their kind, links followed; empty for a missing folder."""
        found = self._listed.get(folder)
        if found is None:
            found = self._listed[folder] = folder_entries(folder)
            self._binaries[folder] = sorted(
                name for name, what in found.items() if what == FILE and name.endswith(BINARY_SUFFIXES)
            )
        return found


def folder_entries(folder: Path) -> dict[str, str]:
    """Return the entries of a folder by name, each FOLDER, FILE or empty for other kinds."""
    found = {}
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):  # a link that leads to itself, say: no import finds it
                found[entry.name] = FOLDER if entry.is_dir() else FILE if entry.is_file() else ""
    return found


def installed_module(top: str) -> Path | str | None:
    """Return the path of a module of this interpreter, or "name version" of an installed package."""
    path, installed = locate_installed(top)
    return path if installed is None else _version(installed, top)


def locate_installed(top: str) -> tuple[Path | None, Path | None]:
    """Return the path of a module of this interpreter, and the folder of installed packages around it."""
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None, None
    places = [*(spec.submodule_search_locations or ())] if spec is not None else []
    origin = None if spec is None else spec.origin if spec.has_location else next(iter(places), None)
    if not origin:
        return None, None
    path = Path(origin)
    return path, next((above for above in path.parents if above.name in _INSTALLED), None)


@lru_cache(maxsize=1024)
def _version(folder: Path, top: str) -> str:
    """Return name and version of the installed package that contains a module."""
    known: list[tuple[str, str, Path]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            name, dash, version = entry.name.removesuffix(".dist-info").partition("-")
            if dash and entry.name.endswith(".dist-info"):
                known.append((name, version, Path(entry.path)))
    for name, version, _ in known:
        if name.lower() == top.lower():
            return f"{name} {version}"
    for name, version, info in sorted(known):
        if top in _modules_of_package(info):
            return f"{name} {version}"
    return f"{top} of unknown version"


@lru_cache(maxsize=1024)
def _modules_of_package(info: Path) -> frozenset[str]:
    for name in ("top_level.txt", "RECORD"):
        try:
            lines = (info / name).read_text(errors="replace").splitlines()
        except OSError:
            continue
        return frozenset(line.partition(",")[0].partition("/")[0].removesuffix(".py") for line in lines)
    return frozenset()
