"""The parser of command lines, and the help texts.

A command is a function. Its positional parameters are arguments, its keyword-only parameters options. Types are `str`,
`int`, `bool` and `Path` (each also with `| None`) or `list[str]`; a `CommandParameter` in `Annotated` has the help:

    app = CommandGroup("weft", help="...")

    @app.command
    def run(file: Annotated[Path, CommandParameter(help="The pipeline.")], /, *, quiet: Quiet = False) -> int: ...

A parser library takes longer to load than a run of a hundred cached steps takes.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, Final, NamedTuple, TypeVar, overload

from weft.model.errors import UsageError

HELP: Final = ("--help", "-h")
F = TypeVar("F", bound=Callable[..., Any])
_WIDTH: Final = 100
_COLUMN: Final = 26
_METAVARS: Final = {str: "STR", int: "INT", Path: "PATH"}


class CommandParameter:
    """The names and the help of a parameter of a command.

    `names` are by default the name of the parameter, with hyphens. A parameter without `parse` is passed by the caller
    of the command; one without `show` is absent from the help.
    """

    __slots__ = ("help", "names", "parse", "show")

    def __init__(
        self, name: str | Sequence[str] = (), *, help: str = "", parse: bool = True, show: bool = True
    ) -> None:
        self.names = (name,) if isinstance(name, str) else tuple(name)
        self.help, self.parse, self.show = help, parse, show


class Invocation(NamedTuple):
    """A command with its arguments. `wants` names the parameters that are not on the command line."""

    function: Callable[..., Any]
    args: list[Any]
    kwargs: dict[str, Any]
    wants: frozenset[str]


class _Given(NamedTuple):
    """An argument or an option of a command."""

    key: str
    names: tuple[str, ...]
    kind: type
    many: bool
    by_place: bool
    required: bool
    help: str
    show: bool


class _Found(NamedTuple):
    """The target of words: a command or a group, the remaining words, its path and its help."""

    target: CommandGroup | Callable[..., Any]
    words: Sequence[str]
    path: str
    about: str


class CommandGroup:
    """Commands by name, which may be groups themselves."""

    def __init__(self, name: str, *, help: str = "") -> None:
        self.name, self.help = name, help
        self._commands: dict[str, tuple[Any, str]] = {}

    @overload
    def command(self, target: F) -> F: ...

    @overload
    def command(self, target: CommandGroup | str, *, name: str = "", help: str = "") -> CommandGroup | str: ...

    @overload
    def command(self, *, name: str) -> Callable[[F], F]: ...

    def command(self, target: Any = None, *, name: str = "", help: str = "") -> Any:
        """Add a function, a group, or the text `module:attribute` of one that is loaded at its first use.

        Without a target, return a decorator. The help of a function is the first paragraph of its docstring.
        """
        if target is None:
            return lambda function: self.command(function, name=name)
        self._commands[name or (target.name if isinstance(target, CommandGroup) else target.__name__)] = (target, help)
        return target

    def __iter__(self) -> Iterator[str]:
        return iter(self._commands)

    def _find(self, words: Sequence[str], path: str, about: str = "") -> _Found:
        """Return the command that words begin with; `about` is the help of this group in its parent."""
        if not words or words[0].startswith("-"):
            return _Found(self, words, path, self.help or about)
        name = words[0]
        if name not in self._commands:
            raise _wrong(path, f'unknown command "{name[:100]}"', _near(name, self._commands), self._commands)
        found, help = self._commands[name]
        if isinstance(found, str):
            module, _, attribute = found.partition(":")
            found = getattr(__import__(module, fromlist=[attribute]), attribute)
        path = f"{path} {name}"
        return (
            found._find(words[1:], path, help)
            if isinstance(found, CommandGroup)
            else _Found(found, words[1:], path, help)
        )

    def parse(self, words: Sequence[str]) -> Invocation | str:
        """Return the command to call, or the requested help. UsageError: no valid command line."""
        found, rest, path, about = self._find(words, self.name)
        own = rest[: rest.index("--")] if "--" in rest else rest
        if any(word in HELP for word in own) or (isinstance(found, CommandGroup) and not rest):
            return (
                _help_of_app(found, path, about) if isinstance(found, CommandGroup) else _help_of_command(found, path)
            )
        if isinstance(found, CommandGroup):
            raise _wrong(path, f"unknown option {rest[0][:100]}", "", ())
        return _Reader(found, path).read(rest)


class _Reader:
    """The parser of the words of one command."""

    def __init__(self, function: Callable[..., Any], path: str) -> None:
        self.function, self.path = function, path
        self.given, self.wants = _given(function)
        self.options = {name: one for one in self.given for name in one.names if not one.by_place}
        self.values: dict[str, Any] = {}

    def read(self, words: Sequence[str]) -> Invocation:
        positional = [one for one in self.given if one.by_place]
        args: list[Any] = []
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if word == "--":
                rest, more = [], rest
                for each in more:
                    self._positional(positional, args, each)
            elif word.startswith("-") and word != "-":
                rest = self._option(word, rest)
            else:
                self._positional(positional, args, word)
        for at, place in enumerate(positional):
            if place.required and at >= len(args):
                about = f" ({place.help.rstrip('.')})" if place.help else ""
                raise self._wrong(f"{place.names[0]} is missing{about}")
        for one in self.given:
            if one.required and not one.by_place and one.key not in self.values:
                raise self._wrong(f"{one.names[-1]} is missing")
        return Invocation(self.function, args, self.values, self.wants)

    def _positional(self, positional: list[_Given], args: list[Any], word: str) -> None:
        place = next((one for at, one in enumerate(positional) if one.many or at == len(args)), None)
        if place is None:
            raise self._wrong(f"{word[:100]!r} is one word too many")
        args.append(self._value(place, place.names[0], word))

    def _option(self, word: str, rest: list[str]) -> list[str]:
        """Parse an option; return the remaining words."""
        name, equals, value = word.partition("=")
        one = self.options.get(name)
        if one is None and not word.startswith("--") and word[:2] in self.options:  # -n5, -qd
            name = word[:2]
            one, value = self.options[name], word[2:].removeprefix("=")
            if one.kind is bool:
                rest, value, equals = [f"-{value}", *rest], "", ""
            else:
                equals = "="
        if one is None:
            raise self._wrong(f"unknown option {name[:100]}", _near(name, self.options))
        if one.kind is bool:
            if equals:
                raise self._wrong(f"{name} takes no value")
            self.values[one.key] = True
            return rest
        if not equals:
            if not rest or rest[0] in self.options:
                raise self._wrong(f"{name} needs a value")
            value, rest = rest[0], rest[1:]
        found = self._value(one, name, value)
        if one.many:
            self.values.setdefault(one.key, []).append(found)
        elif one.key in self.values:
            raise self._wrong(f"{name} is given twice")
        else:
            self.values[one.key] = found
        return rest

    def _value(self, one: _Given, name: str, word: str) -> Any:
        if one.kind is not int:
            return one.kind(word)
        try:
            return int(word)
        except ValueError:
            raise self._wrong(f"{name} is {word[:100]!r}; it must be a whole number") from None

    def _wrong(self, what: str, near: str = "") -> UsageError:
        return _wrong(self.path, what, near, ())


def _given(function: Callable[..., Any]) -> tuple[list[_Given], frozenset[str]]:
    """Return the parameters of a command, and those that are not on the command line. TypeError: an unsupported
    type.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    found, wants = [], set()
    for key, parameter in inspect.signature(function).parameters.items():
        about = next(
            (one for one in getattr(hints[key], "__metadata__", ()) if isinstance(one, CommandParameter)), None
        )
        if about is None:
            raise TypeError(f"{function.__name__}: {key} has no Parameter")
        if not about.parse:
            wants.add(key)
            continue
        kind = hints[key].__origin__
        if isinstance(kind, UnionType) or typing.get_origin(kind) is typing.Union:
            (kind,) = (one for one in typing.get_args(kind) if one is not type(None))
        many = typing.get_origin(kind) is list or parameter.kind is parameter.VAR_POSITIONAL
        kind = str if typing.get_origin(kind) is list else kind
        if kind not in (*_METAVARS, bool):
            raise TypeError(f"{function.__name__}: {key} is of a type that cannot be read: {kind}")
        by_place = parameter.kind is not parameter.KEYWORD_ONLY
        usual = key.upper() if by_place else f"--{key.replace('_', '-')}"
        required = parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL
        found.append(_Given(key, about.names or (usual,), kind, many, by_place, required, about.help, about.show))
    return found, frozenset(wants)


def _near(word: str, known: Iterable[str]) -> str:
    return next(iter(get_close_matches(word, known, n=1)), "")


def _wrong(path: str, what: str, near: str, known: Iterable[str]) -> UsageError:
    message = f"{what[0].upper()}{what[1:]}"
    if near:
        message += f". Did you mean {near}?"
    elif names := ", ".join(sorted(known)):
        message += f". There are: {names}"
    return UsageError(message, hint=f"See: {path} --help")


# --------------------------------------------------------------------------------------------------------------- help


def _summary(target: Any) -> str:
    return (inspect.getdoc(target) or "").split("\n\n")[0].replace("\n", " ")


def _help_of_app(app: CommandGroup, path: str, about: str) -> str:
    rows = [
        (name, help or (target.help if isinstance(target, CommandGroup) else _summary(target)))
        for name, (target, help) in sorted(app._commands.items())
    ]
    options = [(", ".join(HELP), "Print this help, or the help of a command.")]
    if " " not in path:
        options.append(("--version, -V", "Print the version."))
    return _page(f"Usage: {path} COMMAND", about, {"Commands": rows, "Options": options})


def _help_of_command(function: Callable[..., Any], path: str) -> str:
    given, _ = _given(function)
    positional = [one for one in given if one.by_place]
    options = [one for one in given if not one.by_place and one.show]
    usage = [f"Usage: {path}", *(["[OPTIONS]"] if options else [])]
    for one in positional:
        shown = one.names[0] + ("..." if one.many else "")
        usage.append(shown if one.required else f"[{shown}]")
    rows = [(", ".join(one.names) + _takes(one), one.help) for one in options]
    return _page(
        " ".join(usage),
        _summary(function),
        {"Arguments": [(one.names[0], one.help) for one in positional], "Options": rows},
    )


def _takes(one: _Given) -> str:
    return "" if one.kind is bool else f" {_METAVARS[one.kind]}{'...' if one.many else ''}"


def _page(usage: str, about: str, tables: dict[str, list[tuple[str, str]]]) -> str:
    import shutil
    import textwrap

    width = max(min(shutil.get_terminal_size().columns, _WIDTH), 2 * _COLUMN)
    parts = [usage, *(["", textwrap.fill(about, width)] if about else [])]
    for title, rows in tables.items():
        if rows:
            parts += ["", f"{title}:"]
        for name, text in rows:
            first = f"  {name:{_COLUMN - 4}}  "
            lead = first if len(first) <= _COLUMN else " " * _COLUMN
            if lead is not first or not text:
                parts.append(first.rstrip())
            if text:
                parts.append(textwrap.fill(text, width, initial_indent=lead, subsequent_indent=" " * _COLUMN).rstrip())
    return "\n".join(parts) + "\n"
