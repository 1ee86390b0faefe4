"""Names that a statement of Python uses, binds and changes: what its syntax tree alone tells."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

DottedName: TypeAlias = "tuple[str, ...]"
"""A name with its attributes, as written: `a.b.c`."""
_SHORT: Final = 60
_SCRIPTS: Final = (".bash", ".jl", ".js", ".pl", ".py", ".r", ".R", ".rb", ".sh", ".sql")
_AT_WILL: Final = frozenset({"globals", "eval", "exec"})
_AT_TOP: Final = frozenset({("vars",), ("locals",)})
_FIXED: Final = frozenset(
    {"Path", "PurePath", "getLogger", "compile", "frozenset", "str", "int", "float", "bool", "bytes", "range", "object"}
    | {"resolve", "absolute", "joinpath", "expanduser", "with_suffix", "with_name", "read_text", "read_bytes", "strip"}
    | {"TypeVar", "NewType", "getenv", "field", "timedelta", "Decimal", "Fraction", "ContextVar", "Lock", "RLock"}
)
"""Names of functions and methods that return immutable values, or values that no result depends on."""
_IMPORT_STATEMENTS: Final = frozenset({"__import__", "builtins.__import__", "importlib.__import__"})
"""The functions behind the statement `import`: they return the first package of a dotted name."""
_IMPORT_CALLS: Final = {
    **dict.fromkeys(_IMPORT_STATEMENTS, ("name", "globals", "locals", "fromlist", "level")),
    "importlib.import_module": ("name", "package"),
    "importlib.util.find_spec": ("name", "package"),
    "pkgutil.resolve_name": ("name",),
    "runpy.run_module": ("mod_name",),
}
"""Functions that import or find a module by its name, with the names of their arguments."""
_SHOWS: Final = frozenset({"print", "debug", "info", "warning", "error", "exception", "critical", "log"})
"""Functions and methods that only show something."""
_SETS: Final = re.compile(
    r"(?:manual_)?seed|(?:un)?set\w*|register\w*|(?:re)?install|(?:en|dis)able\w*|configure|use|init|setup"
)
"""Names of functions that are called for what they change, even where their value is kept."""
_SETTERS: Final = frozenset({"setattr", "delattr"})
_MAKES: Final = frozenset(
    {"dict", "list", "set", "bytearray", "defaultdict", "deque", "namedtuple", "array", "zeros", "empty"}
)
"""Functions that return a new object; a function with a capital letter is taken for a class."""
_OWN_ARGUMENTS: Final = frozenset({"self", "cls"})
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
    decorators included, `bases` the base classes of its classes. `acts` are the names that it calls or stores through
    for an effect. `at_will`: it may change any name of the module.
    """

    statement: ast.stmt
    changes: frozenset[DottedName]
    calls: tuple[ExecutedCall, ...]
    bases: frozenset[DottedName]
    acts: frozenset[DottedName]
    at_will: bool


def effect_of(statement: ast.stmt) -> StatementEffect | None:
    """Return the effects of a statement, None if it only binds names."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return None
    changes: set[DottedName] = set()
    calls: list[ExecutedCall] = []
    bases: set[DottedName] = set()
    acts: set[DottedName] = set()
    at_will = False
    for node in _run_by(statement):
        changes |= _stored_through(node)
        acts |= _acted_on(node)
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
    if not (changes or calls or bases or acts or at_will):
        return None
    return StatementEffect(statement, frozenset(changes), tuple(calls), frozenset(bases), frozenset(acts), at_will)


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
            if dotted_name(node):
                return {dotted_name(node)}
            base: ast.AST = node.value
            while isinstance(base, ast.Subscript) or (isinstance(base, ast.Attribute) and not dotted_name(base)):
                base = base.value
            return {dotted_name(base)} if dotted_name(base) else set()
    return set()


def _acted_on(node: ast.AST) -> frozenset[DottedName]:
    """Return the names that a node calls or stores through for an effect, without those that only show something."""
    match node:
        case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
            return frozenset(_stored_through(node)) or _chains_in(node.value)
        case ast.Expr(value=ast.Call(func=function, args=given)):
            if _last_name(function) in _SHOWS:
                return frozenset()
            if _last_name(function) in _SETTERS and given:
                return _chains_in(given[0])
            return _chains_in(function)
        case ast.Call(func=function) if _SETS.fullmatch(_last_name(function)):
            return _chains_in(function)
    return frozenset()


def _last_name(function: ast.expr) -> str:
    match function:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name
    return ""


def aliased(statement: ast.stmt) -> frozenset[DottedName]:
    """Return the names whose object a statement may bind to another name: none if it binds a new object."""
    match statement:
        case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
            return _aliased(value)
        case ast.For(iter=value) | ast.AsyncFor(iter=value):
            return _chains_in(value)
        case ast.Try() | ast.If() | ast.With():
            inside = [*statement.body, *getattr(statement, "orelse", ()), *getattr(statement, "finalbody", ())]
            inside += [one for handler in getattr(statement, "handlers", ()) for one in handler.body]
            items = [one.context_expr for one in getattr(statement, "items", ())]
            return frozenset().union(*map(aliased, inside), *map(_aliased, items))
    return frozenset()


def _aliased(value: ast.expr) -> frozenset[DottedName]:
    match value:
        case ast.Name() | ast.Attribute():
            return frozenset({dotted_name(value)}) if dotted_name(value) else _chains_in(value)
        case ast.Subscript(value=inner):
            return _aliased(inner)
        case ast.Call(func=function):
            name = _last_name(function)
            return frozenset() if name[:1].isupper() or name in _MAKES else _chains_in(function)
        case ast.IfExp(body=first, orelse=second):
            return _aliased(first) | _aliased(second)
        case ast.BoolOp(values=inner) | ast.Tuple(elts=inner):
            return frozenset().union(*map(_aliased, inner))
    return frozenset()


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


class ImportCalls:
    """Recognises calls that import a module, such as `importlib.import_module("name")`, in one module.

    `imports` are the targets of all names that the module imports, `constants` the texts that it assigns to names, both
    at any depth.
    """

    def __init__(
        self, imports: Mapping[str, Collection[ImportedName]], constants: Mapping[str, Collection[str]]
    ) -> None:
        self._imports = imports
        self._constants = constants

    def modules(self, call: ast.Call) -> list[ImportedName]:
        """Return the modules that a call imports by a constant name; none for any other call."""
        function = self._function(dotted_name(call.func))
        if not function:
            return []
        given = dict(zip(_IMPORT_CALLS[function], call.args, strict=False))
        given |= {one.arg: one.value for one in call.keywords if one.arg}
        names = self._texts(given.get(_IMPORT_CALLS[function][0]))
        if function in _IMPORT_STATEMENTS:
            return [imported for name in names for imported in self._statement(name, given)]
        found = []
        for name in (one.partition(":")[0] for one in names):
            bare = name.lstrip(".")
            level = len(name) - len(bare)
            for package in self._texts(given.get("package")) if level else ():
                above = package.split(".")
                found.append(ImportedName(".".join([*above[: len(above) - level + 1], bare])))
            found.append(ImportedName(bare, level=level))
        return found

    def computed(self, call: ast.Call) -> str | None:
        """Return how the name begins that a call computes to import a module, None for any other call."""
        function = self._function(dotted_name(call.func))
        name = _IMPORT_CALLS[function][0] if function else ""
        given = {one.arg: one.value for one in call.keywords}
        node = call.args[0] if call.args else given.get(name)
        if not function or node is None or self._texts(node):
            return None
        while isinstance(node, ast.BinOp):
            node = node.left
        if isinstance(node, ast.JoinedStr):
            node = node.values[0] if node.values else None
        begin = "".join(self._texts(node)) if isinstance(node, ast.Constant) else ""
        return "" if begin.startswith(".") or "%" in begin or "{" in begin else begin

    def _statement(self, name: str, given: Mapping[str, ast.expr]) -> list[ImportedName]:
        """Return what `__import__` imports: the names of `fromlist`, or a module with its first package."""
        level = next((one.value for one in (given.get("level"),) if isinstance(one, ast.Constant)), 0)
        level = level if isinstance(level, int) else 0
        inside = given.get("fromlist")
        names = inside.elts if isinstance(inside, ast.List | ast.Tuple) else []
        below = [ImportedName(name, text, level) for one in names for text in self._texts(one)]
        return below or [ImportedName(one, level=level) for one in dict.fromkeys((name.partition(".")[0], name))]

    def _function(self, chain: DottedName) -> str:
        """Return the import function that a name of the module leads to, "" for any other name."""
        if not chain:
            return ""
        names = [
            ".".join([one.module, *([one.name] if one.name else []), *chain[1:]])
            for one in self._imports.get(chain[0], ())
        ]
        names.append(".".join(chain))
        return next((name for name in names if name in _IMPORT_CALLS), "")

    def _texts(self, node: ast.expr | None) -> Collection[str]:
        match node:
            case ast.Constant(value=str() as text):
                return (text,)
            case ast.Name(name):
                return self._constants.get(name, ())
        return ()


class UsedNames:
    """The names of a module that a statement uses.

    `names` are names of the module, `imported` are names behind imports inside of functions, `stored` are the names
    among them that the statement changes by its own text. `called` are the names that it calls; `acts` are those that
    it calls or stores through for an effect, and `acts_inside` those behind imports inside of functions.
    `scripts` are paths of scripts among its constants, and those of modules after "-m". `computed` are the beginnings
    of computed names by which it imports modules. `acts_on_given`: it sets attributes of an object that it was given or
    has found. `goes_anywhere`: the statement may reach any loaded module, for example by `__subclasses__`.
    """

    def __init__(self, calls: ImportCalls) -> None:
        self._calls = calls
        self.names: set[DottedName] = set()
        self.imported: set[tuple[ImportedName, DottedName]] = set()
        self.stored: set[DottedName] = set()
        self.called: set[DottedName] = set()
        self.acts: set[DottedName] = set()
        self.acts_inside: set[tuple[ImportedName, DottedName]] = set()
        self.acts_on_given = False
        self.scripts: set[str] = set()
        self.computed: set[str] = set()
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
        match node:
            case ast.Constant(value=str() as text) if text.endswith(_SCRIPTS):
                self.scripts.add(text)
            case ast.List(elts=words) | ast.Tuple(elts=words):
                for option, word in pairwise(words):
                    match option, word:
                        case ast.Constant("-m"), ast.Constant(value=str() as text):
                            stem = text.replace(".", "/")
                            self.scripts |= {f"{stem}.py", f"{stem}/__main__.py"}
        if isinstance(node, ast.Call):
            self.imported |= {(imported, ()) for imported in self._calls.modules(node)}
            if (begin := self._calls.computed(node)) is not None:
                self.computed.add(begin)
            self.called |= _chains_in(node.func)
        self._act(node, scopes)
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

    def _act(self, node: ast.AST, scopes: tuple[FunctionScope, ...]) -> None:
        called = node.value if isinstance(node, ast.Expr) else node
        setter = isinstance(called, ast.Call) and _last_name(called.func) in _SETTERS
        sets = setter or isinstance(node, ast.Attribute)
        for chain in _acted_on(node):
            for scope in reversed(scopes):
                if chain[0] in scope.imports:
                    self.acts_inside.add((scope.imports[chain[0]], chain[1:]))
                    break
                if chain[0] in scope.names:
                    self.acts_on_given = self.acts_on_given or (sets and chain[0] not in _OWN_ARGUMENTS)
                    break
            else:
                self.acts.add(chain)

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
