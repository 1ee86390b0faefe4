"""What a Python function is made of, as far as its result can depend on it: leaves for the key of a step.

Only source is read, and nothing is imported: a pipeline whose steps all come from the cache loads none of their
libraries. From the function's definition on, each name that it uses is looked up where Python would: local functions,
classes (whole, with their bases) and constants count by their syntax tree, wherever they are imported from, and so do
statements at the top of a module that change what such a name stands for, also through the functions that they call,
the decorators of what they define, and the hooks of its bases. Comments, blank lines, docstrings and how a
text is laid out are not in the tree. Installed packages count by name and version, local extension modules by their
bytes, the standard library by the version of Python, and Weft itself does not count.

What no name leads to is not seen: `importlib.import_module(name)`, `eval`, attributes that are set from elsewhere, and
what code reads while it runs, such as a file or a variable of the environment.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct, field

from weft.model.errors import ProgramError
from weft.store.results import DIGEST

MAX_BYTES: Final = 8 << 20
"""A module of more bytes than this is no source that somebody wrote."""
_MOST_KNOWN: Final = 8
_OWN: Final = "weft"
_SHORT: Final = 60
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_STANDARD: Final = ""
"""Stands for modules of the standard library."""
_SUFFIXES: Final = (".so", ".pyd", ".dylib")
_FOLDER: Final = "folder"
_FILE: Final = "file"

ANY: Final = "*"
"""Stands for all names of a module."""

Chain: TypeAlias = "tuple[str, ...]"
"""A name and the attributes taken of it, as written: `a.b.c`."""
_Named: TypeAlias = "tuple[Path, str]"
"""A name of the top level of a module."""
_Target: TypeAlias = "tuple[_Source, str, Chain]"
"""A name of the top level of a module, and the attributes taken of it."""

_HOOK: Final = "__init_subclass__"
_AT_WILL: Final = frozenset({"globals", "eval", "exec"})
_AT_TOP: Final = frozenset({("vars",), ("locals",)})
_FIXED: Final = frozenset(
    {"Path", "PurePath", "getLogger", "compile", "frozenset", "str", "int", "float", "bool", "bytes", "range", "object"}
    | {"resolve", "absolute", "joinpath", "expanduser", "with_suffix", "with_name", "read_text", "read_bytes", "strip"}
    | {"TypeVar", "NewType", "getenv", "field", "timedelta", "Decimal", "Fraction", "ContextVar", "Lock", "RLock"}
)
"""Functions and methods by their names that make what nobody changes, or what no result depends on."""


_LOCK: Final = threading.Lock()
_known: dict[Path, _Modules] = {}
"""What the last calls have found out, the latest last: many steps of a pipeline are of the same modules."""


def leaves(folder: str, function: str) -> dict[str, str]:
    """Return what `module:name`, found from `folder` or installed, is made of: names and texts.

    ProgramError: there is no such function, or a module that it uses cannot be read.
    """
    with _LOCK:
        modules = _modules_in(Path(folder))
        found = modules.leaves.get(function)
        if found is None:
            found = modules.leaves[function] = _leaves(modules, function)
        return dict(found)


def _modules_in(folder: Path) -> _Modules:
    """Return what is known of the modules of a folder, if its files are what they were."""
    modules = _known.pop(folder, None)
    if modules is None or not modules.is_as_it_was():
        modules = _Modules(folder)
    while len(_known) >= _MOST_KNOWN:
        del _known[next(iter(_known))]
    _known[folder] = modules
    return modules


def _leaves(modules: _Modules, function: str) -> dict[str, str]:
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
    walk = _Walk(modules)
    walk.begin(source, name)
    return {**own, **dict(sorted(walk.leaves.items()))}


# -------------------------------------------------------------------------------------------------------------- modules


class _Import(NamedTuple):
    """What an import binds a name to: a module, or `name` of it; `level` counts the dots of a relative one."""

    module: str
    name: str = ""
    level: int = 0


class _Source(Struct):
    """A module as its source tells it.

    `bindings` maps each name of its top level to the statements that bind it, `imports` to what is imported under it;
    `stars` are modules of which all names are imported. `acts` tell what its statements do as they run, beside binding
    names; `loads` are all modules that anything in it imports.
    """

    path: Path
    module: str
    statements: list[ast.stmt]
    bindings: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: dict[str, list[_Import]] = field(default_factory=dict)
    stars: list[_Import] = field(default_factory=list)
    acts: list[_Act] = field(default_factory=list)
    loads: list[_Import] = field(default_factory=list)
    uses: dict[int, _Uses] = field(default_factory=dict)

    @property
    def package(self) -> str:
        """The package that relative imports count from."""
        return self.module if self.path.stem == "__init__" else self.module.rpartition(".")[0]

    def uses_of(self, statement: ast.stmt) -> _Uses:
        """Return the names that a statement uses, however deep inside."""
        uses = self.uses.get(id(statement))
        if uses is None:
            uses = self.uses[id(statement)] = _Uses()
            uses.visit(statement, ())
        return uses


def _read(path: Path, module: str) -> _Source:
    try:
        told = path.stat()
        return _parsed(path, module, (told.st_mtime_ns, told.st_ctime_ns, told.st_ino), told.st_size)
    except OSError as error:
        raise ProgramError(f"{path} cannot be read: {error.strerror}") from None


@lru_cache(maxsize=512)
def _parsed(path: Path, module: str, _: tuple[int, int, int], size: int) -> _Source:
    if size > MAX_BYTES:
        raise ProgramError(f"{path} is larger than {MAX_BYTES >> 20} MiB")
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError) as error:
        raise ProgramError(f"{path} is not Python: {error}") from None
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
    loads: list[_Import] = []
    todo: deque[ast.AST] = deque([tree])
    while todo:
        node = todo.popleft()
        _drop_what_does_nothing(node)
        todo.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import | ast.ImportFrom):
            loads += _loads(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.append(node)
    source = _Source(path, module, tree.body, loads=loads)
    for statement in tree.body:
        _bind(source, statement, statement)
    for function in functions:  # what `@weft.step(...)` says counts already where it counts
        function.decorator_list = [one for one in function.decorator_list if not _is_own(source, one)]
    source.acts += [act for statement in tree.body if (act := _act_of(statement)) is not None]
    return source


def _drop_what_does_nothing(node: ast.AST) -> None:
    """Take out docstrings and other constants that stand alone, and what runs only as a script or for type checkers."""
    for name in ("body", "orelse", "finalbody"):
        inner = getattr(node, name, None)
        if not isinstance(inner, list):
            continue
        kept: list[ast.stmt] = []
        for one in inner:
            if isinstance(one, ast.If) and _is_aside(one.test):
                kept += one.orelse
            elif not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)):
                kept.append(one)
        if kept != inner:
            needed = name == "body" and not isinstance(node, ast.Module)
            setattr(node, name, kept or ([ast.Pass()] if needed else []))


def _is_aside(test: ast.expr) -> bool:
    match test:
        case ast.Name("TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return True
        case ast.Compare(ast.Name("__name__"), [ast.Eq()], [ast.Constant("__main__")]):
            return True
    return False


def _bind(source: _Source, node: ast.AST, statement: ast.stmt) -> None:
    """Note what a statement of the top level binds, down to the last branch but not into functions and classes."""
    names: list[str] = []
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            names.append(node.name)
        case ast.Import() | ast.ImportFrom():
            for name, imported in _imports(node):
                if name == "*":
                    source.stars.append(imported)
                else:
                    source.imports.setdefault(name, []).append(imported)
                    names.append(name)
        case _:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.append(node.id)
            elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
                names.append(node.name)
            if not isinstance(node, (ast.Lambda, *_COMPREHENSIONS)):
                for child in ast.iter_child_nodes(node):
                    _bind(source, child, statement)
    for name in names:
        bound = source.bindings.setdefault(name, [])
        if statement not in bound:
            bound.append(statement)


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, _Import]]:
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            yield alias.asname or alias.name, _Import(node.module or "", alias.name, node.level)
        elif alias.asname:
            yield alias.asname, _Import(alias.name)
        else:
            yield alias.name.partition(".")[0], _Import(alias.name.partition(".")[0])


def _loads(node: ast.Import | ast.ImportFrom) -> Iterator[_Import]:
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            yield _Import(node.module or "", alias.name, node.level)
        else:
            yield _Import(alias.name)


def _is_own(source: _Source, decorator: ast.expr) -> bool:
    while isinstance(decorator, ast.Call):
        decorator = decorator.func
    chain = _chain(decorator)
    return bool(chain) and any(one.module.partition(".")[0] == _OWN for one in source.imports.get(chain[0], ()))


# ------------------------------------------------------------------------------------------------------------ the walk


class _Changes(NamedTuple):
    """What the statements of modules change as they run: `by_name`, of `sources` by their paths."""

    sources: dict[Path, _Source]
    by_name: dict[_Named, list[tuple[_Source, ast.stmt]]]


class _Modules:
    """The modules that are found from a folder, as their files are at one moment, and what is known of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._places: dict[str, Path | str | None] = {}
        self._sources: dict[str, _Source] = {}
        self._changes: dict[Path, _Changes] = {}
        self._meanings: dict[tuple[Path, Chain], list[_Target]] = {}
        self._digests: dict[ast.stmt, bytes] = {}
        self._listed: dict[Path, dict[str, str]] = {}
        self._binaries: dict[Path, list[str]] = {}
        self._digests_of_binaries: dict[Path, str] = {}
        self._is_whole = True
        self.leaves: dict[str, dict[str, str]] = {}

    def is_as_it_was(self) -> bool:
        """Whether all files and folders that were looked at are what they were then, and could be read."""
        binaries = dict(self._digests_of_binaries)
        try:
            read = self._is_whole and all(self.binary(path) == digest for path, digest in binaries.items())
            read = read and all(_read(one.path, one.module) is one for one in self._sources.values())
        except ProgramError:
            return False
        missing = [name for name, place in self._places.items() if place is None and "." not in name]
        return (
            read
            and all(_list(folder) == inside for folder, inside in self._listed.items())
            and not any(self._find(name) for name in missing)
        )

    def changes_by(self, source: _Source) -> _Changes:
        """Return what the statements of a module, and of all local ones that it loads, change as they run."""
        known = self._changes.get(source.path)
        if known is None:
            known = self._changes[source.path] = _Changes({}, {})
            self._load_all(source, known.sources)
            reached: dict[tuple[Path, frozenset[Chain]], set[_Named]] = {}
            for one in known.sources.values():
                for act in one.acts:
                    for named in sorted(self._changed_by(one, act, reached)):
                        known.by_name.setdefault(named, []).append((one, act.statement))
        return known

    def _load_all(self, source: _Source, sources: dict[Path, _Source]) -> None:
        todo = [source]
        while todo:
            one = todo.pop()
            if one.path in sources:
                continue
            sources[one.path] = one
            for imported in reversed(one.loads):
                names = self.absolute(one, imported).split(".")
                names += [imported.name] if imported.name else []
                if self._is_local(names[0]):
                    found = [self._source(".".join(names[: end + 1])) for end in reversed(range(len(names)))]
                    todo += [other for other in found if other is not None]

    def binary(self, path: Path) -> str:
        """Return a digest of an extension module."""
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ProgramError(f"{path} cannot be read: {error.strerror}") from None
        digest = self._digests_of_binaries[path] = DIGEST + hashlib.sha256(data).hexdigest()
        return digest

    def text_of(self, statements: Sequence[ast.stmt]) -> str:
        """Return a constant as it is written, anything else as a digest of its syntax tree."""
        if len(statements) == 1 and (text := _constant(statements[0])) is not None:
            return text
        found = hashlib.sha256()
        for statement in statements:
            digest = self._digests.get(statement)
            if digest is None:
                digest = self._digests[statement] = _digest_of(statement)
            found.update(digest)
        return DIGEST + found.hexdigest()

    def absolute(self, source: _Source, imported: _Import) -> str:
        if not imported.level:
            return imported.module
        package = source.package.split(".") if source.package else []
        above = package[: len(package) - imported.level + 1]
        return ".".join([*above, *([imported.module] if imported.module else [])])

    def target(self, source: _Source, imported: _Import, rest: Chain) -> tuple[str, Chain]:
        """Return the module that an import leads to, and what is taken of it."""
        module = self.absolute(source, imported)
        if imported.name and module == source.module:  # `from . import name` in a package itself: the module below
            return f"{module}.{imported.name}", rest
        return module, (imported.name, *rest) if imported.name else rest

    def has(self, module: str, name: str, seen: frozenset[str] = frozenset()) -> bool:
        """Whether a local module may have a name: it binds it, has a module of it below, or gets it by a star."""
        found = self.find(module)
        if not isinstance(found, Path) or module in seen:
            return False
        if found.suffix != ".py":
            return True
        source = self.read(found, module)
        if name in source.bindings or isinstance(self.find(f"{module}.{name}"), Path):
            return True
        return any(self.has(self.absolute(source, star), name, seen | {module}) for star in source.stars)

    def imported(self, source: _Source, name: str) -> list[str]:
        """Return what a name of a module stands for by its imports: where that is defined, or as it is written."""
        found = []
        for imported in source.imports.get(name, ()):
            meant = [f"{other.module}.{at}" for other, at, _ in self._behind(source, imported, (), frozenset())]
            module, rest = self.target(source, imported, ())
            found += meant or [".".join((module, *rest))]
        return list(dict.fromkeys(found))

    def _changed_by(
        self, source: _Source, act: _Act, reached: dict[tuple[Path, frozenset[Chain]], set[_Named]]
    ) -> set[_Named]:
        found: set[_Named] = {(source.path, ANY)} if act.at_will else set()
        run: set[Chain] = {base for base in act.bases if self._has_hooks(source, base)}
        for chain in act.changes:
            found.add((source.path, chain[0]))
            found |= {(other.path, name) for other, name, _ in self._meant(source, chain)}
        for call in act.calls:
            run |= call.of
            ours = not call.of or any(True for chain in call.of for _ in self._meant(source, chain))
            run |= call.handed if ours else {one for one in call.handed if self._is_defined(source, one)}
        key = (source.path, frozenset(run))
        if key not in reached:  # many a function has the same decorators
            reached[key] = self._reached(source, run)
        return found | reached[key]

    def _reached(self, source: _Source, run: set[Chain]) -> set[_Named]:
        """Return the names that code may change which these names lead to."""
        found: set[_Named] = set()
        todo = [target for chain in run for target in self._meant(source, chain)]
        seen: set[tuple[Path, str, Chain]] = set()
        gone_into: set[_Named] = set()
        while todo:
            other, name, rest = todo.pop()
            if (other.path, name, rest) in seen:
                continue
            seen.add((other.path, name, rest))
            bound = [one for one in other.bindings[name] if not isinstance(one, ast.Import | ast.ImportFrom)]
            if (other.path, name) not in found and any(_may_change(one, rest) for one in bound):
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
                if uses.names_at_will(other):
                    found.add((other.path, ANY))
        return found

    def _has_hooks(self, source: _Source, base: Chain) -> bool:
        """Whether a class runs code of its own when others are derived from it."""
        todo, seen = list(self._meant(source, base)), set()
        while todo:
            other, name, _ = todo.pop()
            for one in other.bindings[name]:
                if not isinstance(one, ast.ClassDef) or id(one) in seen:
                    continue
                seen.add(id(one))
                if one.keywords or any(isinstance(n, ast.FunctionDef) and n.name == _HOOK for n in one.body):
                    return True
                todo += [target for above in one.bases for target in self._meant(other, _chain(above))]
        return False

    def _is_defined(self, source: _Source, chain: Chain) -> bool:
        return any(
            isinstance(one, _DEFINITIONS)
            for other, name, _ in self._meant(source, chain)
            for one in other.bindings[name]
        )

    def _meant(self, source: _Source, chain: Chain) -> list[_Target]:
        """Return the local modules and the names in them that a name stands for, wherever it was imported from."""
        key = (source.path, chain)
        found = self._meanings.get(key)
        if found is None:
            found = self._meanings[key] = list(self._means(source, chain, frozenset()))
        return found

    def _means(self, source: _Source, chain: Chain, seen: frozenset[_Named]) -> Iterator[_Target]:
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

    def _behind(self, source: _Source, imported: _Import, rest: Chain, seen: frozenset[_Named]) -> Iterator[_Target]:
        module, rest = self.target(source, imported, rest)
        while rest and self._is_local(module.partition(".")[0]):
            inside = self._source(module)
            if inside is not None and (rest[0] in inside.bindings or self._source(f"{module}.{rest[0]}") is None):
                yield from self._means(inside, rest, seen)
                return
            module, rest = f"{module}.{rest[0]}", rest[1:]

    def _source(self, module: str) -> _Source | None:
        """Return a local module if it is there and can be read; what cannot changes nothing."""
        known = self._sources.get(module)
        if known is not None:
            return known
        found = self.find(module)
        if not isinstance(found, Path) or found.suffix in _SUFFIXES or not found.is_file():
            return None
        try:
            return self.read(found, module)
        except ProgramError:
            self._is_whole = False
            return None

    def read(self, path: Path, module: str) -> _Source:
        """Return what a file holds: one and the same for the whole walk."""
        source = self._sources.get(module)
        if source is None:
            source = self._sources[module] = _read(path, module)
        return source

    def _is_local(self, top: str) -> bool:
        """Whether a module is not of the standard library, installed, or Weft itself; without asking for versions."""
        if top in ("", _OWN):
            return False
        if top in self._places:
            return isinstance(self._places[top], Path)
        if self._module_in(self.folder, top) is not None:
            return True
        return top not in sys.stdlib_module_names and _place_elsewhere(top)[1] is None

    def find(self, module: str) -> Path | str | None:
        """Return where a local module lies, "name version" of an installed package, _STANDARD, or None."""
        if module not in self._places:
            self._places[module] = self._find(module)
        return self._places[module]

    def _find(self, module: str) -> Path | str | None:
        top, _, below = module.partition(".")
        local = self._module_in(self.folder, top)
        base: Path | str | None = local
        if local is None or local.is_dir():  # a folder without a module gives way to any module of that name
            base = _STANDARD if top in sys.stdlib_module_names else _elsewhere(top) or local
        if base is None or isinstance(base, str):
            return base
        for name in below.split(".") if below else ():
            inside = base.parent if base.stem == "__init__" else base
            found = self._module_in(inside, name)
            if found is None:
                return None
            base = found
        return base

    def _module_in(self, folder: Path, name: str) -> Path | None:
        """Return where a module of a folder lies: a package, a file, an extension, or a folder without a module."""
        inside = self._entries(folder)
        if inside.get(name) == _FOLDER and self._entries(folder / name).get("__init__.py") == _FILE:
            return folder / name / "__init__.py"
        for suffix in (*EXTENSION_SUFFIXES, ".py"):  # in the order in which Python looks
            if inside.get(f"{name}{suffix}") == _FILE:
                return folder / f"{name}{suffix}"
        binary = next((one for one in self._binaries.get(folder, ()) if one.startswith(f"{name}.")), None)
        return folder / binary if binary else folder / name if inside.get(name) == _FOLDER else None

    def _entries(self, folder: Path) -> dict[str, str]:
        """Return what is in a folder, and of each what it is, behind links; empty where there is no folder."""
        found = self._listed.get(folder)
        if found is None:
            found = self._listed[folder] = _list(folder)
            self._binaries[folder] = sorted(
                name for name, what in found.items() if what == _FILE and name.endswith(_SUFFIXES)
            )
        return found


class _Walk:
    """The leaves found so far, and the statements that are in them."""

    def __init__(self, modules: _Modules) -> None:
        self.modules = modules
        self.leaves: dict[str, str] = {}
        self._seen: set[_Named] = set()
        self._followed: set[tuple[Path, str, Chain]] = set()
        self._todo: list[_Target] = []
        self._loaded: dict[Path, _Source] = {}
        self._changes: dict[_Named, list[tuple[_Source, ast.stmt]]] = {}

    def begin(self, source: _Source, name: str) -> None:
        """Take in a name of a module, and what the statements of all that this loads change."""
        self._loaded, self._changes = self.modules.changes_by(source)
        self.use(source, name, ())
        self.run()

    def use(self, source: _Source, name: str, rest: Chain) -> None:
        """Have what a name of a module's top level stands for taken in, `rest` being the attributes taken of it."""
        if (source.path, name, rest) not in self._followed:
            self._followed.add((source.path, name, rest))
            self._todo.append((source, name, rest))

    def run(self) -> None:
        """Take in what is to be. Without recursion: one name may lead to the next a thousand times."""
        while self._todo:
            source, name, rest = self._todo.pop()
            if name:
                self._take(source, name, rest)
            else:
                self._take_whole(source)

    def _take(self, source: _Source, name: str, rest: Chain) -> None:
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
            *self._changes.get((source.path, ANY), ()),
        ):
            if statement in bound:
                continue
            if isinstance(statement, _DEFINITIONS):  # it has a leaf of its own; here only the order counts
                self.use(other, statement.name, ())
                statements.append(ast.Expr(ast.Constant(f"{other.module}.{statement.name}")))
            else:
                self._all_of(other, statement)
                statements.append(statement)
        # What has the same name where it comes from is told by the leaf that it has there.
        found = [one for one in self.modules.imported(source, name) if one.rpartition(".")[2] != name]
        if statements:
            statements += [ast.Expr(ast.Constant(f"import {one}")) for one in found]
            self.leaves[f"code {source.module}.{name}"] = self.modules.text_of(statements)
        elif found:
            self.leaves[f"code {source.module}.{name}"] = "import " + " or ".join(found)

    def _all_of(self, source: _Source, statement: ast.stmt) -> None:
        uses = source.uses_of(statement)
        for chain in sorted(uses.names):
            self._name(source, chain)
        for imported, rest in sorted(uses.imported):
            self._import(source, imported, rest)
        if uses.names_at_will(source):
            self._whole(source)
        if uses.goes_anywhere:
            for other in self._loaded.values():
                self._whole(other)

    def _name(self, source: _Source, chain: Chain) -> None:
        if chain[0] in source.bindings or (source.path, ANY) in self._changes:
            self.use(source, chain[0], chain[1:])
            return
        if not source.stars or (source.path, ANY, chain) in self._followed:  # stars may lead in a circle
            return
        self._followed.add((source.path, ANY, chain))
        for star in source.stars:
            module = self.modules.absolute(source, star)
            found = self.modules.find(module)
            if not isinstance(found, Path) or found.suffix != ".py" or self.modules.has(module, chain[0]):
                self._follow(module, chain)

    def _import(self, source: _Source, imported: _Import, rest: Chain) -> None:
        self._follow(*self.modules.target(source, imported, rest))

    def _follow(self, module: str, rest: Chain) -> None:
        """Take in what `rest` is, counted from a module."""
        top = module.partition(".")[0]
        if top in ("", _OWN):
            return
        found = self.modules.find(module)
        if found == _STANDARD:
            return
        if found is None:
            self.leaves[f"package {top}"] = "not installed"
        elif isinstance(found, str):
            self.leaves[f"package {top}"] = found
        elif found.is_dir():  # a package without a module of its own
            if rest:
                self._follow(f"{module}.{rest[0]}", rest[1:])
        elif found.suffix in _SUFFIXES:
            self.leaves[f"code {module}"] = self.modules.binary(found)
        else:
            self._inside(self.modules.read(found, module), rest)

    def _inside(self, source: _Source, rest: Chain) -> None:
        if rest and rest[0] in source.bindings:
            self.use(source, rest[0], rest[1:])
            return
        if rest and isinstance(self.modules.find(f"{source.module}.{rest[0]}"), Path):
            self._follow(f"{source.module}.{rest[0]}", rest[1:])
            return
        if rest and any(self.modules.has(self.modules.absolute(source, star), rest[0]) for star in source.stars):
            self._name(source, rest)
            return
        self._whole(source)  # the module itself is handed on, or a name that nobody finds

    def _whole(self, source: _Source) -> None:
        """Have all of a module taken in, with what it imports."""
        self.use(source, "", ())

    def _take_whole(self, source: _Source) -> None:
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


def _list(folder: Path) -> dict[str, str]:
    found = {}
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):  # a link that leads to itself, say: no import finds it
                found[entry.name] = _FOLDER if entry.is_dir() else _FILE if entry.is_file() else ""
    return found


def _elsewhere(top: str) -> Path | str | None:
    """Return where a module of this interpreter lies, or "name version" of an installed package."""
    path, installed = _place_elsewhere(top)
    return path if installed is None else _version(installed, top)


def _place_elsewhere(top: str) -> tuple[Path | None, Path | None]:
    """Return where a module of this interpreter lies, and the folder of installed packages that this is in."""
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
    """Return name and version of the installed package that brings a module."""
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
        if top in _modules_of(info):
            return f"{name} {version}"
    return f"{top} of unknown version"


@lru_cache(maxsize=1024)
def _modules_of(info: Path) -> frozenset[str]:
    for name in ("top_level.txt", "RECORD"):
        try:
            lines = (info / name).read_text(errors="replace").splitlines()
        except OSError:
            continue
        return frozenset(line.partition(",")[0].partition("/")[0].removesuffix(".py") for line in lines)
    return frozenset()


# ------------------------------------------------------------------------------------------- what a statement does


class _Call(NamedTuple):
    """Code that a statement runs: the names that lead to it, and those that it is handed."""

    of: frozenset[Chain]
    handed: frozenset[Chain]


class _Act(NamedTuple):
    """What a statement does as it runs, beside binding names.

    `changes` is what it may change as it is written: `x.y = 1`, `f(x)`. `calls` is the code that it runs, decorators
    among it, `bases` what its classes derive from. `at_will` says that it may change names that it does not write.
    """

    statement: ast.stmt
    changes: frozenset[Chain]
    calls: tuple[_Call, ...]
    bases: frozenset[Chain]
    at_will: bool


def _act_of(statement: ast.stmt) -> _Act | None:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return None
    changes: set[Chain] = set()
    calls: list[_Call] = []
    bases: set[Chain] = set()
    at_will = False
    for node in _run_by(statement):
        changes |= _stored_through(node)
        match node:
            case ast.Expr(value=ast.Call() as call):
                changes |= _chains_in(call)
            case ast.Call():
                of = _chains_in(node.func)
                calls.append(_Call(of, frozenset().union(*map(_chains_in, [*node.args, *node.keywords]))))
                at_will = at_will or any(_is_at_will(chain, top=not node.args) for chain in of)
            case ast.Attribute(value=ast.Name("sys"), attr="modules"):
                at_will = True
        if isinstance(node, _DEFINITIONS):
            calls += [_Call(_chains_in(one), frozenset()) for one in node.decorator_list]
        if isinstance(node, ast.ClassDef):
            bases |= frozenset().union(*map(_chains_in, node.bases))
            calls += [_Call(_chains_in(one.value), frozenset()) for one in node.keywords]
    if not (changes or calls or bases or at_will):
        return None
    return _Act(statement, frozenset(changes), tuple(calls), frozenset(bases), at_will)


def _run_by(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what of a statement is run with it: all but the bodies of functions."""
    yield node
    inside: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, _FUNCTIONS):
        inside = [*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)]
        inside += [] if isinstance(node, ast.Lambda) else node.decorator_list
    for one in inside:
        yield from _run_by(one)


def _stored_through(node: ast.AST) -> set[Chain]:
    """Return what `x.y = 1`, `x[y] = 1` and `del x[y]` change."""
    match node:
        case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
            base: ast.AST = node.value
            while isinstance(base, ast.Subscript) or (isinstance(base, ast.Attribute) and not _chain(base)):
                base = base.value
            return {_chain(base)} if _chain(base) else set()
    return set()


def _chains_in(node: ast.AST) -> frozenset[Chain]:
    chain = _chain(node)
    if chain:
        return frozenset({chain})
    return frozenset().union(*map(_chains_in, ast.iter_child_nodes(node)))


def _is_at_will(chain: Chain, *, top: bool = False) -> bool:
    """Whether a name gives access to all names of a module; `top`: where there are no local ones, without arguments."""
    return (chain[0] in _AT_WILL and len(chain) == 1) or chain[:2] == ("sys", "modules") or (top and chain in _AT_TOP)


def _may_change(statement: ast.stmt, rest: Chain) -> bool:
    """Whether code that uses what a statement binds, with attributes of it or without, may change it."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return bool(rest)
        case ast.ClassDef():
            return _keeps_something(statement)
        case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
            return not _is_fixed(value)
    return True


@lru_cache(maxsize=4096)
def _keeps_something(statement: ast.ClassDef) -> bool:
    for one in statement.body:
        match one:
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                if not _is_fixed(value):
                    return True
    own = {"cls", "__class__", "type", statement.name}
    return any(
        own & {name for chain in _chains_in(node) for name in chain}
        for node in ast.walk(statement)
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del)
    )


def _is_fixed(value: ast.expr) -> bool:
    """Whether nothing can be changed in what an expression makes, as far as it tells."""
    match value:
        case ast.Constant() | ast.JoinedStr() | ast.Compare() | ast.Lambda():
            return True
        case ast.Name(name):
            return name.startswith("__")
        case ast.UnaryOp(operand=inner) | ast.Attribute(value=inner):
            return _is_fixed(inner)
        case ast.BinOp(left=left, right=right):
            return _is_fixed(left) and _is_fixed(right)
        case ast.Tuple(elts=inner) | ast.BoolOp(values=inner):
            return all(_is_fixed(one) for one in inner)
        case ast.Call(func=ast.Name(name) | ast.Attribute(attr=name)):
            return name in _FIXED
    return False


def _constant(statement: ast.stmt) -> str | None:
    """Return what a name is set to, as it is written; None if that is long, or no such statement."""
    match statement:
        case (
            ast.Assign(targets=[ast.Name()], value=value) | ast.AnnAssign(target=ast.Name(), value=ast.expr() as value)
        ):
            text = ast.unparse(value)
            return text if len(text) <= _SHORT else None
    return None


def _digest_of(statement: ast.stmt) -> bytes:
    """Return a digest of a syntax tree, without where it stands in the file."""
    return hashlib.sha256(ast.dump(statement).encode("utf-8", "surrogatepass")).digest()


# ------------------------------------------------------------------------------------------------- names and scopes

_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class _Scope(NamedTuple):
    names: frozenset[str]
    imports: dict[str, _Import]


class _Uses:
    """The names of a module that a statement uses: `names`, and through imports inside of functions `imported`.

    Of these it changes `stored` as it is written. It `goes_anywhere` if it may come by anything in any module, such as
    all classes that derive from one.
    """

    def __init__(self) -> None:
        self.names: set[Chain] = set()
        self.imported: set[tuple[_Import, Chain]] = set()
        self.stored: set[Chain] = set()
        self.goes_anywhere = False

    def names_at_will(self, source: _Source) -> bool:
        """Whether it may use names of its module that it does not write."""
        return any(_is_at_will(chain) and (len(chain) > 1 or chain[0] not in source.bindings) for chain in self.names)

    def visit(self, node: ast.AST, scopes: tuple[_Scope, ...]) -> None:
        """Go through a node inside these scopes of functions, the innermost last."""
        if isinstance(node, ast.Attribute) and (
            node.attr == "__subclasses__" or _chain(node)[:2] == ("sys", "modules")
        ):
            self.goes_anywhere = True
        for chain in _stored_through(node):
            if not any(chain[0] in scope.names or chain[0] in scope.imports for scope in scopes):
                self.stored.add(chain)
        chain = _chain(node)
        if chain:
            self._note(chain, scopes)
            return
        if isinstance(node, ast.Global):
            self.names |= {(name,) for name in node.names}
            self.stored |= {(name,) for name in node.names}
        inside = scopes
        if isinstance(node, _FUNCTIONS):
            outside: list[ast.AST] = [*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)]
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            arguments += [one for one in (node.args.vararg, node.args.kwarg) if one is not None]
            outside += [one.annotation for one in arguments if one.annotation is not None]
            if not isinstance(node, ast.Lambda):
                outside += [*node.decorator_list, *([node.returns] if node.returns is not None else [])]
            for one in outside:
                self.visit(one, scopes)
            body = [node.body] if isinstance(node, ast.Lambda) else node.body
            inside = (*scopes, _scope_of(body, frozenset(one.arg for one in arguments)))
            for one in body:
                self.visit(one, inside)
            return
        if isinstance(node, _COMPREHENSIONS):
            targets = [one for part in node.generators for one in ast.walk(part.target) if isinstance(one, ast.Name)]
            inside = (*scopes, _Scope(frozenset(one.id for one in targets), {}))
            self.visit(node.generators[0].iter, scopes)
        for child in ast.iter_child_nodes(node):
            self.visit(child, inside)

    def _note(self, chain: Chain, scopes: tuple[_Scope, ...]) -> None:
        for scope in reversed(scopes):
            if chain[0] in scope.imports:
                self.imported.add((scope.imports[chain[0]], chain[1:]))
                return
            if chain[0] in scope.names:
                return
        self.names.add(chain)


def _scope_of(body: Sequence[ast.AST], arguments: frozenset[str]) -> _Scope:
    """Return what a function binds: its arguments, what it assigns, defines and imports, but not what is global."""
    names, outer = set(arguments), set()
    imports: dict[str, _Import] = {}
    todo = list(body)
    while todo:
        node = todo.pop()
        match node:
            case ast.Global() | ast.Nonlocal():
                outer |= set(node.names)
            case ast.Import() | ast.ImportFrom():
                imports |= dict(_imports(node))
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Name(ctx=ast.Store() | ast.Del()):
                names.add(node.id)
            case ast.ExceptHandler(name=str() as name) | ast.MatchAs(name=str() as name):
                names.add(name)
            case ast.MatchStar(name=str() as name) | ast.MatchMapping(rest=str() as name):
                names.add(name)
        if not isinstance(node, (*_FUNCTIONS, *_COMPREHENSIONS, ast.ClassDef)):
            todo += ast.iter_child_nodes(node)
    return _Scope(frozenset(names - outer), {name: one for name, one in imports.items() if name not in outer})


def _chain(node: ast.AST) -> Chain:
    """Return a name with the attributes taken of it; empty for anything else."""
    found: list[str] = []
    while isinstance(node, ast.Attribute):
        found.append(node.attr)
        node = node.value
    return (node.id, *reversed(found)) if isinstance(node, ast.Name) else ()
