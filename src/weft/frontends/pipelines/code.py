"""What a Python function is made of, as far as its result can depend on it: leaves for the key of a step.

Only source is read, and nothing is imported: a pipeline whose steps all come from the cache loads none of their
libraries. From the function's definition on, each name that it uses is looked up where Python would: local functions,
classes (whole, with their bases) and constants count by their syntax tree, wherever they are imported from, and so do
statements at the top of a module that change what such a name stands for. Comments, blank lines, docstrings and how a
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
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct, field

from weft.model.errors import ProgramError
from weft.store.results import DIGEST

MAX_BYTES: Final = 8 << 20
"""A module of more bytes than this is no source that somebody wrote."""
_OWN: Final = "weft"
_SHORT: Final = 60
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_STANDARD: Final = ""
"""Stands for modules of the standard library."""
_SUFFIXES: Final = (".so", ".pyd", ".dylib")

Chain: TypeAlias = "tuple[str, ...]"
"""A name and the attributes taken of it, as written: `a.b.c`."""


def leaves(folder: str, function: str) -> dict[str, str]:
    """Return what `module:name`, found from `folder` or installed, is made of: names and texts.

    ProgramError: there is no such function, or a module that it uses cannot be read.
    """
    module, _, path = function.partition(":")
    walk = _Walk(Path(folder))
    found = walk.find(module)
    own = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    if found and isinstance(found, str):
        return {**own, f"package {module.partition('.')[0]}": found}
    if not isinstance(found, Path):
        message = f"there is no module {module} in {folder}"
        raise ProgramError(message, hint="Name a function as module:function, and the folder of the module as path.")
    source = _read(found, module)
    name = path.split(".")[0]
    if name not in source.bindings:
        raise ProgramError(f"{found} has no {name!r} at its top level", hint="Define the function of a step there.")
    walk.use(source, name, ())
    return {**own, **dict(sorted(walk.leaves.items()))}


# -------------------------------------------------------------------------------------------------------------- modules


class _Import(NamedTuple):
    """What an import binds a name to: a module, or `name` of it; `level` counts the dots of a relative one."""

    module: str
    name: str = ""
    level: int = 0


class _Source(Struct):
    """A module as its source tells it.

    `bindings` maps each name of its top level to the statements that bind it, `imports` to what is imported under it,
    `touched` to other statements that may change it; `stars` are modules of which all names are imported.
    """

    path: Path
    module: str
    statements: list[ast.stmt]
    bindings: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: dict[str, list[_Import]] = field(default_factory=dict)
    touched: dict[str, list[ast.stmt]] = field(default_factory=dict)
    stars: list[_Import] = field(default_factory=list)
    uses: dict[int, _Uses] = field(default_factory=dict)

    @property
    def package(self) -> str:
        """The package that relative imports count from."""
        return self.module if self.path.stem == "__init__" else self.module.rpartition(".")[0]


def _read(path: Path, module: str) -> _Source:
    try:
        told = path.stat()
        return _parsed(path, module, told.st_mtime_ns, told.st_size, told.st_ino)
    except OSError as error:
        raise ProgramError(f"{path} cannot be read: {error.strerror}") from None


@lru_cache(maxsize=512)
def _parsed(path: Path, module: str, modified_ns: int, size: int, inode: int) -> _Source:
    if size > MAX_BYTES:
        raise ProgramError(f"{path} is larger than {MAX_BYTES >> 20} MiB")
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError) as error:
        raise ProgramError(f"{path} is not Python: {error}") from None
    for node in ast.walk(tree):
        _drop_what_does_nothing(node)
    source = _Source(path, module, tree.body)
    for statement in tree.body:
        _bind(source, statement, statement)
    for statement in tree.body:
        _drop_own_decorators(source, statement)
        for name in _touches(statement):
            if statement not in source.bindings.get(name, ()):
                source.touched.setdefault(name, []).append(statement)
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


def _touches(statement: ast.stmt) -> set[str]:
    """Return the names that a statement may change what they stand for without binding them: `x.y = 1`, `f(x)`."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
        return set()
    found: set[str] = set()
    for node in ast.walk(statement):
        match node:
            case ast.Expr(value=ast.Call() as call):
                found |= {one.id for one in ast.walk(call) if isinstance(one, ast.Name)}
            case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
                base: ast.AST = node
                while isinstance(base, ast.Attribute | ast.Subscript):
                    base = base.value
                found |= {base.id} if isinstance(base, ast.Name) else set()
    return found


def _drop_own_decorators(source: _Source, statement: ast.stmt) -> None:
    """Leave out `@weft.step(...)`: what it says counts already where it counts."""
    for node in ast.walk(statement):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.decorator_list = [one for one in node.decorator_list if not _is_own(source, one)]


def _is_own(source: _Source, decorator: ast.expr) -> bool:
    while isinstance(decorator, ast.Call):
        decorator = decorator.func
    chain = _chain(decorator)
    return bool(chain) and any(one.module.partition(".")[0] == _OWN for one in source.imports.get(chain[0], ()))


# ------------------------------------------------------------------------------------------------------------ the walk


class _Walk:
    """The leaves found so far, and the statements that are in them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.leaves: dict[str, str] = {}
        self._seen: set[tuple[Path, str]] = set()
        self._places: dict[str, Path | str | None] = {}

    def use(self, source: _Source, name: str, rest: Chain) -> None:
        """Take in what a name of a module's top level stands for, `rest` being the attributes taken of it."""
        for imported in source.imports.get(name, ()):
            self._import(source, imported, rest)
        if (source.path, name) in self._seen:
            return
        self._seen.add((source.path, name))
        statements = [one for one in source.bindings[name] if not isinstance(one, ast.Import | ast.ImportFrom)]
        statements += source.touched.get(name, ())
        if statements:
            self.leaves[f"code {source.module}.{name}"] = _text_of(statements)
        for statement in statements:
            self._all_of(source, statement)

    def _all_of(self, source: _Source, statement: ast.stmt) -> None:
        uses = source.uses.get(id(statement))
        if uses is None:
            uses = source.uses[id(statement)] = _Uses()
            uses.visit(statement, ())
        for chain in sorted(uses.names):
            self._name(source, chain)
        for imported, rest in sorted(uses.imported):
            self._import(source, imported, rest)

    def _name(self, source: _Source, chain: Chain) -> None:
        if chain[0] in source.bindings:
            self.use(source, chain[0], chain[1:])
            return
        for star in source.stars:
            module = self._absolute(source, star)
            found = self.find(module)
            if not isinstance(found, Path) or chain[0] in _read(found, module).bindings:
                self._follow(module, chain)

    def _absolute(self, source: _Source, imported: _Import) -> str:
        if not imported.level:
            return imported.module
        package = source.package.split(".") if source.package else []
        above = package[: len(package) - imported.level + 1]
        return ".".join([*above, *([imported.module] if imported.module else [])])

    def _import(self, source: _Source, imported: _Import, rest: Chain) -> None:
        module = self._absolute(source, imported)
        self._follow(module, (imported.name, *rest) if imported.name else rest)

    def _follow(self, module: str, rest: Chain) -> None:
        """Take in what `rest` is, counted from a module."""
        top = module.partition(".")[0]
        if top in ("", _OWN):
            return
        found = self.find(module)
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
            self.leaves[f"code {module}"] = DIGEST + hashlib.sha256(found.read_bytes()).hexdigest()
        else:
            self._inside(_read(found, module), rest)

    def _inside(self, source: _Source, rest: Chain) -> None:
        if rest and rest[0] in source.bindings:
            self.use(source, rest[0], rest[1:])
            return
        if rest and isinstance(self.find(f"{source.module}.{rest[0]}"), Path):
            self._follow(f"{source.module}.{rest[0]}", rest[1:])
            return
        if rest and any(self._has(self._absolute(source, star), rest[0]) for star in source.stars):
            self._name(source, rest)
            return
        key = (source.path, "")
        if key not in self._seen:  # the module itself is handed on, or a name that nobody finds: all of it counts
            self._seen.add(key)
            self.leaves[f"code {source.module}"] = _text_of(source.statements)
            for statement in source.statements:
                self._all_of(source, statement)
            for name, imports in source.imports.items():
                if name in source.bindings:
                    for imported in imports:
                        self._import(source, imported, ())

    def _has(self, module: str, name: str) -> bool:
        found = self.find(module)
        return isinstance(found, Path) and found.suffix == ".py" and name in _read(found, module).bindings

    def find(self, module: str) -> Path | str | None:
        """Return where a local module lies, "name version" of an installed package, _STANDARD, or None."""
        if module not in self._places:
            self._places[module] = self._find(module)
        return self._places[module]

    def _find(self, module: str) -> Path | str | None:
        top, _, below = module.partition(".")
        local = _module_in(self.folder, top)
        base: Path | str | None = local
        if local is None or local.is_dir():  # a folder without a module gives way to any module of that name
            base = _STANDARD if top in sys.stdlib_module_names else _elsewhere(top) or local
        if base is None or isinstance(base, str):
            return base
        for name in below.split(".") if below else ():
            inside = base.parent if base.stem == "__init__" else base
            found = _module_in(inside, name) if inside.is_dir() else None
            if found is None:
                return None
            base = found
        return base


def _module_in(folder: Path, name: str) -> Path | None:
    package, plain = folder / name / "__init__.py", folder / f"{name}.py"
    if package.is_file():
        return package
    if plain.is_file():
        return plain
    try:
        binary = next((one for one in sorted(folder.glob(f"{name}.*")) if one.suffix in _SUFFIXES), None)
    except OSError:
        binary = None
    return binary or (folder / name if (folder / name).is_dir() else None)


def _elsewhere(top: str) -> Path | str | None:
    """Return where a module of this interpreter lies, or "name version" of an installed package."""
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    places = [*(spec.submodule_search_locations or ())] if spec is not None else []
    origin = None if spec is None else spec.origin if spec.has_location else next(iter(places), None)
    if not origin:
        return None
    path = Path(origin)
    for above in path.parents:
        if above.name in _INSTALLED:
            return _version(above, top)
    return path


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


def _text_of(statements: Sequence[ast.stmt]) -> str:
    """Return a constant as it is written, anything else as a digest of its syntax tree."""
    if len(statements) == 1:
        match statements[0]:
            case (
                ast.Assign(targets=[ast.Name()], value=value)
                | ast.AnnAssign(target=ast.Name(), value=ast.expr() as value)
            ):
                text = ast.unparse(value)
                if len(text) <= _SHORT:
                    return text
    digest = hashlib.sha256()
    for statement in statements:
        digest.update(ast.dump(statement).encode("utf-8", "surrogatepass"))
    return DIGEST + digest.hexdigest()


# ------------------------------------------------------------------------------------------------- names and scopes

_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class _Scope(NamedTuple):
    names: frozenset[str]
    imports: dict[str, _Import]


class _Uses:
    """The names of a module that a statement uses: `names`, and through imports inside of functions `imported`."""

    def __init__(self) -> None:
        self.names: set[Chain] = set()
        self.imported: set[tuple[_Import, Chain]] = set()

    def visit(self, node: ast.AST, scopes: tuple[_Scope, ...]) -> None:
        """Go through a node inside these scopes of functions, the innermost last."""
        chain = _chain(node)
        if chain:
            self._note(chain, scopes)
            return
        if isinstance(node, ast.Global):
            self.names |= {(name,) for name in node.names}
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
