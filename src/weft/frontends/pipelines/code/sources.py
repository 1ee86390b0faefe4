"""Parsed modules: the statements that bind each name of the top level, imports, and effects of statements."""

from __future__ import annotations

import ast
from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from weft.frontends.pipelines.code.statements import (
    COMPREHENSIONS,
    ImportCalls,
    ImportedName,
    StatementEffect,
    UsedNames,
    dotted_name,
    effect_of,
    imported_names,
    loaded_modules,
)
from weft.model.errors import ProgramError

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES: Final = 8 << 20
"""Larger modules are refused: nobody has written them."""
OWN_PACKAGE: Final = "weft"


class ModuleSource(Struct):
    """A parsed module.

    `bindings` maps each name of the top level to the statements that bind it, `imports` to the targets imported under
    it; `stars` are modules imported by `*`. `acts` are the effects of its statements, `loads` all imports at any depth,
    those by `calls` included.
    """

    path: Path
    module: str
    statements: list[ast.stmt]
    calls: ImportCalls
    bindings: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: dict[str, list[ImportedName]] = field(default_factory=dict)
    stars: list[ImportedName] = field(default_factory=list)
    acts: list[StatementEffect] = field(default_factory=list)
    loads: list[ImportedName] = field(default_factory=list)
    uses: dict[int, UsedNames] = field(default_factory=dict)

    @property
    def package(self) -> str:
        """The package that relative imports start from."""
        return self.module if self.path.stem == "__init__" else self.module.rpartition(".")[0]

    def uses_of(self, statement: ast.stmt) -> UsedNames:
        """Return the names that a statement uses, at any depth."""
        uses = self.uses.get(id(statement))
        if uses is None:
            uses = self.uses[id(statement)] = UsedNames(self.calls)
            uses.visit(statement, ())
        return uses


def read_module(path: Path, module: str, *, main: bool = False) -> ModuleSource:
    """Parse a module; unchanged files are parsed once. ProgramError: it cannot be read, or is no Python.

    `main`: it runs as a script, so that what it does only then counts too.
    """
    try:
        told = path.stat()
        return _parsed(path, module, (told.st_mtime_ns, told.st_ctime_ns, told.st_ino), told.st_size, main)
    except OSError as error:
        raise ProgramError(f"{path} cannot be read: {error.strerror}") from None


@lru_cache(maxsize=512)
def _parsed(path: Path, module: str, _: tuple[int, int, int], size: int, main: bool) -> ModuleSource:
    if size > MAX_BYTES:
        raise ProgramError(f"{path} is larger than {MAX_BYTES >> 20} MiB")
    return parse_module(path.read_bytes(), path, module, main=main)


def parse_module(text: str | bytes, path: Path, module: str, *, main: bool) -> ModuleSource:
    """As `read_module`, from the text of the module."""
    try:
        tree = ast.parse(text, str(path))
    except (SyntaxError, ValueError) as error:
        raise ProgramError(f"{path} is not Python: {error}") from None
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
    imports: list[ast.Import | ast.ImportFrom] = []
    constants: dict[str, set[str]] = {}
    called: list[ast.Call] = []
    has_globals = False
    todo: deque[ast.AST] = deque([tree])
    while todo:
        node = todo.popleft()
        _drop_what_does_nothing(node, main=main)
        todo.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(node)
        elif isinstance(node, ast.Call):
            called.append(node)
        elif isinstance(node, ast.Global):
            has_globals = True
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.append(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            match node:
                case (
                    ast.Assign(targets=[ast.Name(name)], value=ast.Constant(value=str() as text))
                    | ast.AnnAssign(target=ast.Name(name), value=ast.Constant(value=str() as text))
                ):
                    constants.setdefault(name, set()).add(text)
    targets: dict[str, set[ImportedName]] = {}
    for one in imports:
        for name, imported in imported_names(one):
            targets.setdefault(name, set()).add(imported)
    calls = ImportCalls(targets, constants)
    loads = [imported for one in imports for imported in loaded_modules(one)]
    loads += [imported for call in called for imported in calls.modules(call)]
    source = ModuleSource(path, module, tree.body, calls, loads=loads)
    for statement in tree.body:
        _bind(source, statement, statement)
        for node in ast.walk(statement) if has_globals else ():
            if isinstance(node, ast.Global):
                _bind_names(source, node.names, statement)
    for function in functions:  # the options of `@weft.step(...)` are in the key of the step already
        function.decorator_list = [one for one in function.decorator_list if not _is_own(source, one)]
    source.acts += [act for statement in tree.body if (act := effect_of(statement)) is not None]
    return source


def _drop_what_does_nothing(node: ast.AST, *, main: bool) -> None:
    """Remove lone constants such as docstrings, and branches for type checkers or, unless `main`, scripts only."""
    for name in ("body", "orelse", "finalbody"):
        inner = getattr(node, name, None)
        if not isinstance(inner, list):
            continue
        kept: list[ast.stmt] = []
        for one in inner:
            if isinstance(one, ast.If) and _never_runs(one.test, main=main):
                kept += one.orelse
            elif not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)):
                kept.append(one)
        if kept != inner:
            needed = name == "body" and not isinstance(node, ast.Module)
            setattr(node, name, kept or ([ast.Pass()] if needed else []))


def _never_runs(test: ast.expr, *, main: bool) -> bool:
    match test:
        case ast.Name("TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return True
        case ast.Compare(ast.Name("__name__"), [ast.Eq()], [ast.Constant("__main__")]):
            return not main
    return False


def _bind(source: ModuleSource, node: ast.AST, statement: ast.stmt) -> None:
    """Record the names that a top-level statement binds, in all branches, but not inside functions and classes."""
    names: list[str] = []
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            names.append(node.name)
        case ast.Import() | ast.ImportFrom():
            for name, imported in imported_names(node):
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
            if not isinstance(node, (ast.Lambda, *COMPREHENSIONS)):
                for child in ast.iter_child_nodes(node):
                    _bind(source, child, statement)
    _bind_names(source, names, statement)


def _bind_names(source: ModuleSource, names: list[str], statement: ast.stmt) -> None:
    for name in names:
        bound = source.bindings.setdefault(name, [])
        if statement not in bound:
            bound.append(statement)


def _is_own(source: ModuleSource, decorator: ast.expr) -> bool:
    while isinstance(decorator, ast.Call):
        decorator = decorator.func
    chain = dotted_name(decorator)
    return bool(chain) and any(one.module.partition(".")[0] == OWN_PACKAGE for one in source.imports.get(chain[0], ()))
