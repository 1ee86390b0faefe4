"""Names that a statement of Python uses, binds and changes: what its syntax tree alone tells."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

DottedName: TypeAlias = "tuple[str, ...]"
"""A name with its attributes, as written: `a.b.c`."""
_SHORT: Final = 60
_AT_WILL: Final = frozenset({"globals", "eval", "exec"})
_AT_TOP: Final = frozenset({("vars",), ("locals",)})
_FIXED: Final = frozenset(
    {"Path", "PurePath", "getLogger", "compile", "frozenset", "str", "int", "float", "bool", "bytes", "range", "object"}
    | {"resolve", "absolute", "joinpath", "expanduser", "with_suffix", "with_name", "read_text", "read_bytes", "strip"}
    | {"TypeVar", "NewType", "getenv", "field", "timedelta", "Decimal", "Fraction", "ContextVar", "Lock", "RLock"}
)
"""Names of functions and methods that return immutable values, or values that no result depends on."""
COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class ImportedName(NamedTuple):
    """The target of an import: a module, or `name` in it; `level` counts the dots of a relative import."""

    module: str
    name: str = ""
    level: int = 0


class ExecutedCall(NamedTuple):
    """A call that a statement makes: the names of the function, and the names among its arguments."""

    of: frozenset[DottedName]
    handed: frozenset[DottedName]


class StatementEffect(NamedTuple):
    """The effects of a statement at import time, beside the names that it binds.

    `changes` are names that the statement may change by its own text: `x.y = 1`, `f(x)`. `calls` are its calls,
    decorators included, `bases` the base classes of its classes. `at_will`: it may change any name of the module.
    """

    statement: ast.stmt
    changes: frozenset[DottedName]
    calls: tuple[ExecutedCall, ...]
    bases: frozenset[DottedName]
    at_will: bool


def effect_of(statement: ast.stmt) -> StatementEffect | None:
    """Return the effects of a statement, None if it only binds names."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return None
    changes: set[DottedName] = set()
    calls: list[ExecutedCall] = []
    bases: set[DottedName] = set()
    at_will = False
    for node in _run_by(statement):
        changes |= _stored_through(node)
        match node:
            case ast.Expr(value=ast.Call() as call):
                changes |= _chains_in(call)
            case ast.Call():
                of = _chains_in(node.func)
                calls.append(ExecutedCall(of, frozenset().union(*map(_chains_in, [*node.args, *node.keywords]))))
                at_will = at_will or any(_accesses_all_names(chain, top=not node.args) for chain in of)
            case ast.Attribute(value=ast.Name("sys"), attr="modules"):
                at_will = True
        if isinstance(node, DEFINITIONS):
            calls += [ExecutedCall(_chains_in(one), frozenset()) for one in node.decorator_list]
        if isinstance(node, ast.ClassDef):
            bases |= frozenset().union(*map(_chains_in, node.bases))
            calls += [ExecutedCall(_chains_in(one.value), frozenset()) for one in node.keywords]
    if not (changes or calls or bases or at_will):
        return None
    return StatementEffect(statement, frozenset(changes), tuple(calls), frozenset(bases), at_will)


def _run_by(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run with a statement: all but the bodies of functions."""
    yield node
    inside: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, FUNCTIONS):
        inside = [*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)]
        inside += [] if isinstance(node, ast.Lambda) else node.decorator_list
    for one in inside:
        yield from _run_by(one)


def _stored_through(node: ast.AST) -> set[DottedName]:
    """Return the names that `x.y = 1`, `x[y] = 1` and `del x[y]` change."""
    match node:
        case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
            base: ast.AST = node.value
            while isinstance(base, ast.Subscript) or (isinstance(base, ast.Attribute) and not dotted_name(base)):
                base = base.value
            return {dotted_name(base)} if dotted_name(base) else set()
    return set()


def _chains_in(node: ast.AST) -> frozenset[DottedName]:
    chain = dotted_name(node)
    if chain:
        return frozenset({chain})
    return frozenset().union(*map(_chains_in, ast.iter_child_nodes(node)))


def _accesses_all_names(chain: DottedName, *, top: bool = False) -> bool:
    """Whether a name gives access to all names of a module; `top`: outside of functions, called without arguments."""
    return (chain[0] in _AT_WILL and len(chain) == 1) or chain[:2] == ("sys", "modules") or (top and chain in _AT_TOP)


def may_change(statement: ast.stmt, rest: DottedName) -> bool:
    """Whether code that uses the name bound by `statement`, with the attributes `rest`, may change its value."""
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
    """Whether the value of an expression is immutable, as far as the expression tells."""
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


def constant_text(statement: ast.stmt) -> str | None:
    """Return the text of an assigned constant; None for a long one, or another kind of statement."""
    match statement:
        case (
            ast.Assign(targets=[ast.Name()], value=value) | ast.AnnAssign(target=ast.Name(), value=ast.expr() as value)
        ):
            text = ast.unparse(value)
            return text if len(text) <= _SHORT else None
    return None


def syntax_digest(statement: ast.stmt) -> bytes:
    """Return the digest of a syntax tree, independent of its position in the file."""
    return hashlib.sha256(ast.dump(statement).encode("utf-8", "surrogatepass")).digest()


class FunctionScope(NamedTuple):
    """The names that a function binds, and the imports among them."""

    names: frozenset[str]
    imports: dict[str, ImportedName]


class UsedNames:
    """The names of a module that a statement uses.

    `names` are names of the module, `imported` are names behind imports inside of functions, `stored` are the names
    among them that the statement changes by its own text. `goes_anywhere`: the statement may reach any loaded module,
    for example by `__subclasses__`.
    """

    def __init__(self) -> None:
        self.names: set[DottedName] = set()
        self.imported: set[tuple[ImportedName, DottedName]] = set()
        self.stored: set[DottedName] = set()
        self.goes_anywhere = False

    def names_at_will(self, bound: Container[str]) -> bool:
        """Whether the statement may use any name of its module; `bound` are the names of the module's top level."""
        return any(_accesses_all_names(chain) and (len(chain) > 1 or chain[0] not in bound) for chain in self.names)

    def visit(self, node: ast.AST, scopes: tuple[FunctionScope, ...]) -> None:
        """Collect the names below a node; `scopes` are the enclosing functions, the innermost last."""
        if isinstance(node, ast.Attribute) and (
            node.attr == "__subclasses__" or dotted_name(node)[:2] == ("sys", "modules")
        ):
            self.goes_anywhere = True
        for chain in _stored_through(node):
            if not any(chain[0] in scope.names or chain[0] in scope.imports for scope in scopes):
                self.stored.add(chain)
        chain = dotted_name(node)
        if chain:
            self._note(chain, scopes)
            return
        if isinstance(node, ast.Global):
            self.names |= {(name,) for name in node.names}
            self.stored |= {(name,) for name in node.names}
        inside = scopes
        if isinstance(node, FUNCTIONS):
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
        if isinstance(node, COMPREHENSIONS):
            targets = [one for part in node.generators for one in ast.walk(part.target) if isinstance(one, ast.Name)]
            inside = (*scopes, FunctionScope(frozenset(one.id for one in targets), {}))
            self.visit(node.generators[0].iter, scopes)
        for child in ast.iter_child_nodes(node):
            self.visit(child, inside)

    def _note(self, chain: DottedName, scopes: tuple[FunctionScope, ...]) -> None:
        for scope in reversed(scopes):
            if chain[0] in scope.imports:
                self.imported.add((scope.imports[chain[0]], chain[1:]))
                return
            if chain[0] in scope.names:
                return
        self.names.add(chain)


def _scope_of(body: Sequence[ast.AST], arguments: frozenset[str]) -> FunctionScope:
    """Return the names that a function binds: arguments, assignments, definitions and imports, without global names."""
    names, outer = set(arguments), set()
    imports: dict[str, ImportedName] = {}
    todo = list(body)
    while todo:
        node = todo.pop()
        match node:
            case ast.Global() | ast.Nonlocal():
                outer |= set(node.names)
            case ast.Import() | ast.ImportFrom():
                imports |= dict(imported_names(node))
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Name(ctx=ast.Store() | ast.Del()):
                names.add(node.id)
            case ast.ExceptHandler(name=str() as name) | ast.MatchAs(name=str() as name):
                names.add(name)
            case ast.MatchStar(name=str() as name) | ast.MatchMapping(rest=str() as name):
                names.add(name)
        if not isinstance(node, (*FUNCTIONS, *COMPREHENSIONS, ast.ClassDef)):
            todo += ast.iter_child_nodes(node)
    return FunctionScope(frozenset(names - outer), {name: one for name, one in imports.items() if name not in outer})


def imported_names(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, ImportedName]]:
    """Yield each name that an import binds, with its target."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            yield alias.asname or alias.name, ImportedName(node.module or "", alias.name, node.level)
        elif alias.asname:
            yield alias.asname, ImportedName(alias.name)
        else:
            yield alias.name.partition(".")[0], ImportedName(alias.name.partition(".")[0])


def loaded_modules(node: ast.Import | ast.ImportFrom) -> Iterator[ImportedName]:
    """Yield the modules that an import loads."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            yield ImportedName(node.module or "", alias.name, node.level)
        else:
            yield ImportedName(alias.name)


def dotted_name(node: ast.AST) -> DottedName:
    """Return a name with its attributes; empty for any other node."""
    found: list[str] = []
    while isinstance(node, ast.Attribute):
        found.append(node.attr)
        node = node.value
    return (node.id, *reversed(found)) if isinstance(node, ast.Name) else ()
