"""Paths that a Python program names in its text: literals, and paths that are put together from literals.

Paths in quotes inside of other texts are named too: SQL, JSON, scripts of other interpreters.

The program is parsed, not run. What is not constant ends a path: `f"data/{name}.csv"` names the folder `data`. Folders
are reported only where they are part of a path, an argument of a function that lists folders, or a default. Variables
of the environment have the values of this process.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from weft.model.patterns import late_pattern

_LISTING: Final = frozenset({"glob", "iglob", "iterdir", "listdir", "rglob", "scandir", "walk"})
_JOINING: Final = frozenset({"join", "joinpath"})
_PACKAGED: Final = frozenset({"files", "get_data", "open_binary", "open_text", "read_binary", "read_text"})
"""Functions of `importlib.resources` and `pkgutil` that are given a package, and perhaps the name of a file in it."""
_PATHS: Final = frozenset(
    {"Path", "PurePath", "PosixPath", "abspath", "expanduser", "fspath", "realpath", "resolve", "str"}
)
_WRITERS: Final = frozenset(
    [
        *("dump", "makedirs", "mkdir", "remove", "rmdir", "rmtree", "save", "savefig", "savetxt", "savez", "to_csv"),
        *("to_json", "to_parquet", "to_pickle", "touch", "unlink", "write", "write_bytes", "write_text"),
    ]
)
"""Functions and methods whose paths are written or removed."""
_STARTING: Final = frozenset(
    {"Popen", "call", "check_call", "check_output", "getoutput", "getstatusoutput", "popen", "run", "system"}
)
"""Functions that may start a command line."""
_WRITE_MODES: Final = frozenset("wax")
QUOTING: Final = frozenset({".cjs", ".jl", ".js", ".lua", ".mjs", ".php", ".pl", ".r", ".rb", ".sql", ".tcl", ".ts"})
"""The endings of scripts whose texts in quotes are read, in lower case."""
_QUOTED: Final = late_pattern(r"""(["'`])([^"'`\n]{1,200})\1""")
_PATH: Final = late_pattern(r"[\w@+~./][\w@+~ ./:=-]*")
_PATTERN: Final = late_pattern(r"[*?\[]")
_MOST_CHARACTERS: Final = 200
_GLOB: Final = "*?["


class PathText(NamedTuple):
    """A path in the text of a program. `own`: it is relative to the folder of the program, not to the current one.

    `is_part`: more follows that is not known, so that only an existing folder counts.
    """

    text: str
    own: bool = False
    is_part: bool = False


def paths_named(program: str) -> list[PathText]:
    """Return the paths in a program of Python; none if it cannot be parsed."""
    try:
        tree = ast.parse(program)
    except (SyntaxError, ValueError):
        return []
    return paths_in(tree.body, tree.body)


def quoted_paths(text: str, suffix: str = "") -> list[PathText]:
    """Return the paths in quotes in a text; of a pattern, its folder.

    With the suffix of a script they may also be names of its modules, beside it and without a suffix.
    """
    found: dict[PathText, None] = {}
    for _, quoted in _QUOTED.findall(text):
        first, *rest = _PATTERN.split(quoted, maxsplit=1)
        if not _PATH.fullmatch(first) or ("." not in quoted and "/" not in quoted and not suffix):
            continue
        if rest:
            found[PathText(first.rpartition("/")[0], is_part=True)] = None
            continue
        found[PathText(quoted)] = None
        if suffix:
            found[PathText(quoted, own=True)] = None
            found[PathText(quoted + suffix, own=True)] = None
    return [path for path in found if path.text.strip("./")]


def paths_in(statements: Sequence[ast.stmt], module: Sequence[ast.stmt]) -> list[PathText]:
    """Return the paths in some statements of a module, which has the values of their names."""
    return list(dict.fromkeys(_Paths(module).found(statements)))


class _Paths:
    """The paths in the statements of a module."""

    def __init__(self, module: Sequence[ast.stmt]) -> None:
        self._inside: set[int] = set()
        """The nodes that are part of a path that was found."""
        values: dict[str, list[ast.expr]] = {}
        for node in _walk(module):
            match node:
                case (
                    ast.Assign(targets=[ast.Name(name)], value=value)
                    | ast.AnnAssign(target=ast.Name(name), value=ast.expr() as value)
                ):
                    values.setdefault(name, []).append(value)
        self._names = {name: found[0] for name, found in values.items() if len(found) == 1}

    def found(self, statements: Sequence[ast.stmt]) -> Iterator[PathText]:
        """Yield the paths of statements, whole ones before their parts."""
        for node in _walk(statements):  # from the outside to the inside
            if id(node) in self._inside:
                continue
            if isinstance(node, ast.Call):
                yield from self._call(node)
            elif isinstance(node, ast.BinOp | ast.JoinedStr):
                if (path := self._path(node)) is not None:
                    self._take(node)
                    yield path
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from [PathText(node.value)] if _may_be_path(node.value) else quoted_paths(node.value)

    def _call(self, node: ast.Call) -> Iterator[PathText]:
        name = _called(node.func)
        if name in _WRITERS or (name == "open" and _writes(node)):
            self._take(node.func)
            for written in (*node.args, *(one.value for one in node.keywords)):
                if isinstance(written, ast.JoinedStr) or self._path(written) is not None:
                    self._take(written)
            return
        if name == "open" and node.args and isinstance(given := node.args[0], ast.Constant | ast.Name):
            path = self._path(given)
            if path is not None and path.text.strip("./") and len(path.text) <= _MOST_CHARACTERS:
                self._take(given)
                yield path
                return
        if (path := self._path(node)) is not None and (path.own or path.is_part or "/" in path.text):
            self._take(node)
            if path.is_part or path.text.strip("./"):  # `HERE = Path(__file__).parent` reads nothing yet
                yield path
            return
        if name in _STARTING and node.args:
            yield from self._started(node.args[0])
        if name in _LISTING:
            folder = node.func.value if isinstance(node.func, ast.Attribute) else None
            for listed in (folder, *node.args[:1]):
                if listed is not None and (path := self._path(listed)) is not None:
                    yield path._replace(is_part=True)
        for keyword in node.keywords:
            if keyword.arg == "default" and (path := self._path(keyword.value)) is not None:
                yield path

    def _started(self, node: ast.expr, depth: int = 0) -> Iterator[PathText]:
        """Yield the words of a command line that a call is given, as far as they are constant."""
        match node:
            case ast.Name(name) if name in self._names and depth < 50:
                yield from self._started(self._names[name], depth + 1)
                return
            case (
                ast.Call(func=ast.Attribute(value=ast.Name("shlex"), attr="split"), args=[given, *_])
                | ast.Call(func=ast.Attribute(value=given, attr="split"))
            ) if depth < 50:
                yield from self._started(given, depth + 1)
                return
            case ast.Constant(value=str() as text):
                pieces = [text]
            case ast.JoinedStr(values=values):
                pieces = [str(one.value) if isinstance(one, ast.Constant) else "\0" for one in values]
            case _:
                return
        for word in "".join(pieces).split():
            text = word.strip("'\";&|()")
            if "\0" not in text and _may_be_path(text):
                yield PathText(text)

    def _take(self, node: ast.AST) -> None:
        self._inside.update(id(one) for one in ast.walk(node))

    def _path(self, node: ast.expr, depth: int = 0) -> PathText | None:
        """Return the path that an expression makes, as far as it is constant; None if not even its beginning is."""
        if depth > 50:
            return None
        match node:
            case ast.Constant(value=str() as text):
                return _globbed(text)
            case ast.Name("__file__"):
                return PathText("program", own=True)
            case ast.Name(name) if name in self._names:
                return self._path(self._names[name], depth + 1)
            case ast.Subscript(value=ast.Attribute(attr="environ"), slice=ast.Constant(value=str() as variable)):
                return PathText(os.environ[variable]) if os.environ.get(variable) else None
            case ast.JoinedStr(values=[ast.Constant(value=str() as text), *_]):
                return PathText(text.rpartition("/")[0], is_part=True) if "/" in text else None
            case ast.JoinedStr(values=[ast.FormattedValue(value=value), ast.Constant(value=str() as text), *rest]):
                base = self._path(value, depth + 1)
                if base is None or base.is_part or not text.startswith("/"):
                    return None
                tail = text[1:] if not rest else text[1:].rpartition("/")[0]
                return _below(base, [tail], is_part=bool(rest))
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return self._joined([left, right], depth)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                base = self._path(left, depth + 1)
                if base is None or base.is_part:
                    return base
                rest_ = self._path(right, depth + 1)
                if rest_ is not None and not rest_.own:
                    return PathText(base.text + rest_.text, base.own, rest_.is_part)
                return PathText(base.text.rpartition("/")[0], base.own, is_part=True) if "/" in base.text else None
            case ast.Attribute(value=value, attr="parent"):
                base = self._path(value, depth + 1)
                return base and _parent(base)
            case ast.Call(func=func, args=args):
                name = _called(func)
                inner = func.value if isinstance(func, ast.Attribute) else None
                if name == "getenv" or (name == "get" and isinstance(inner, ast.Attribute) and inner.attr == "environ"):
                    return self._variable(args, depth)
                if name in _JOINING and args:
                    first = [] if inner is None or _is_module(inner) else [inner]
                    return self._joined([*first, *args], depth)
                if name == "dirname" and len(args) == 1:
                    base = self._path(args[0], depth + 1)
                    return base and _parent(base)
                if name in _PACKAGED and len(args) in (1, 2):
                    base = _package(args[0])
                    return self._joined_to(base, args[1:], depth)
                if name == "Path" and len(args) > 1:
                    return self._joined(args, depth)
                if name in _PATHS:
                    given = args[0] if args else inner
                    return None if given is None else self._path(given, depth + 1)
        return None

    def _variable(self, args: list[ast.expr], depth: int) -> PathText | None:
        """Return the value of a variable of this process, which a step inherits, or its default."""
        match args:
            case [ast.Constant(value=str() as name), *rest]:
                if os.environ.get(name):
                    return PathText(os.environ[name])
                return self._path(rest[0], depth + 1) if rest else None
        return None

    def _joined(self, parts: Sequence[ast.expr], depth: int) -> PathText | None:
        return self._joined_to(self._path(parts[0], depth + 1), parts[1:], depth)

    def _joined_to(self, base: PathText | None, parts: Sequence[ast.expr], depth: int) -> PathText | None:
        for part in parts:
            if base is None or base.is_part:
                return base
            more = self._path(part, depth + 1)
            if more is None or more.own:
                return base._replace(is_part=True)
            base = _below(base, [more.text], is_part=more.is_part)
        return base


def _walk(statements: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    return (node for statement in statements for node in ast.walk(statement))


def _below(base: PathText, parts: list[str], *, is_part: bool) -> PathText:
    return PathText("/".join(filter(None, [base.text, *parts])), base.own, is_part)


def _parent(base: PathText) -> PathText:
    """Return the folder of a path; that of the program itself is the empty text."""
    if base.own and not base.text:
        return PathText("..", own=True, is_part=base.is_part)
    above = f"{base.text}/.." if base.text.endswith("..") else base.text.rpartition("/")[0]
    return PathText(above, base.own, base.is_part)


def _globbed(text: str) -> PathText:
    """Return a text as a path, up to the folder in which its pattern begins."""
    at = min((text.index(one) for one in _GLOB if one in text), default=-1)
    return PathText(text) if at < 0 else PathText(text[:at].rpartition("/")[0], is_part=True)


def _may_be_path(text: str) -> bool:
    return ("." in text or "/" in text) and len(text) <= _MOST_CHARACTERS and not set(text) & set("\n{}%*'\"")


def _called(func: ast.expr) -> str:
    return func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""


def _package(node: ast.expr) -> PathText | None:
    """Return the folder of a package that is named by a text, by the module itself, or as that of the program."""
    match node:
        case ast.Name("__package__" | "__name__"):
            return PathText("", own=True)
        case ast.Constant(value=str() as name) | ast.Name(name):
            return PathText(name.replace(".", "/")) if name.replace(".", "").isidentifier() else None
    return None


def _is_module(node: ast.expr) -> bool:
    """Whether the object of a method is a module such as `os.path`."""
    return (isinstance(node, ast.Attribute) and node.attr == "path") or (
        isinstance(node, ast.Name) and node.id in ("path", "osp")
    )


def _writes(node: ast.Call) -> bool:
    """Whether a call of `open` has a mode that writes, and does not read what was there."""
    modes = [node.args[1] if len(node.args) > 1 else None, *[one.value for one in node.keywords if one.arg == "mode"]]
    return any(
        isinstance(one, ast.Constant)
        and isinstance(one.value, str)
        and one.value[:1] in _WRITE_MODES
        and not (one.value[0] == "a" and "+" in one.value)
        for one in modes
        if one is not None
    )
