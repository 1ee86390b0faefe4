"""Parsed modules: the statements that bind each name of the top level, imports, and effects of statements."""

from __future__ import annotations

import ast
from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from weft.frontends.pipelines.code.statements import (
    COMPREHENSIONS,
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
    it; `stars` are modules imported by `*`. `acts` are the effects of its statements, `loads` all imports at any depth.
    """

    path: Path
    module: str
    statements: list[ast.stmt]
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
            uses = self.uses[id(statement)] = UsedNames()
            uses.visit(statement, ())
        return uses


def read_module(path: Path, module: str) -> ModuleSource:
    """Parse a module; unchanged files are parsed once. ProgramError: it cannot be read, or is no Python."""
    try:
        told = path.stat()
        return _parsed(path, module, (told.st_mtime_ns, told.st_ctime_ns, told.st_ino), told.st_size)
    except OSError as error:
        raise ProgramError(f"{path} cannot be read: {error.strerror}") from None


@lru_cache(maxsize=512)
def _parsed(path: Path, module: str, _: tuple[int, int, int], size: int) -> ModuleSource:
    if size > MAX_BYTES:
        raise ProgramError(f"{path} is larger than {MAX_BYTES >> 20} MiB")
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError) as error:
        raise ProgramError(f"{path} is not Python: {error}") from None
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
    loads: list[ImportedName] = []
    todo: deque[ast.AST] = deque([tree])
    while todo:
        node = todo.popleft()
        _drop_what_does_nothing(node)
        todo.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import | ast.ImportFrom):
            loads += loaded_modules(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.append(node)
    source = ModuleSource(path, module, tree.body, loads=loads)
    for statement in tree.body:
        _bind(source, statement, statement)
    for function in functions:  # the options of `@weft.step(...)` are in the key of the step already
        function.decorator_list = [one for one in function.decorator_list if not _is_own(source, one)]
    source.acts += [act for statement in tree.body if (act := effect_of(statement)) is not None]
    return source


def _drop_what_does_nothing(node: ast.AST) -> None:
    """Remove lone constants such as docstrings, and branches for scripts or type checkers only."""
    for name in ("body", "orelse", "finalbody"):
        inner = getattr(node, name, None)
        if not isinstance(inner, list):
            continue
        kept: list[ast.stmt] = []
        for one in inner:
            if isinstance(one, ast.If) and _never_runs_on_import(one.test):
                kept += one.orelse
            elif not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)):
                kept.append(one)
        if kept != inner:
            needed = name == "body" and not isinstance(node, ast.Module)
            setattr(node, name, kept or ([ast.Pass()] if needed else []))


def _never_runs_on_import(test: ast.expr) -> bool:
    match test:
        case ast.Name("TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return True
        case ast.Compare(ast.Name("__name__"), [ast.Eq()], [ast.Constant("__main__")]):
            return True
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
    for name in names:
        bound = source.bindings.setdefault(name, [])
        if statement not in bound:
            bound.append(statement)


def _is_own(source: ModuleSource, decorator: ast.expr) -> bool:
    while isinstance(decorator, ast.Call):
        decorator = decorator.func
    chain = dotted_name(decorator)
    return bool(chain) and any(one.module.partition(".")[0] == OWN_PACKAGE for one in source.imports.get(chain[0], ()))
