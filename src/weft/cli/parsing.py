"""The parser of command lines, and the help texts.

A command is a function. Its positional parameters are arguments, its keyword-only parameters options. Types are `str`,
`int`, `bool` and `Path` (each also with `| None`) or `list[str]`; a `CommandParameter` in `Annotated` has the help. The
other parameters are arguments of the verb of the command, whose table has their help. A keyword of a `Struct` type
stands for several options, the fields of the struct:

    app = CommandGroup("weft", help="...")

    @app.command
    def run(file: Annotated[Path, CommandParameter(help="The pipeline.")], /, *, quiet: Quiet = False) -> int: ...

A parser library takes longer to load than a run of a hundred cached steps takes.
"""

from __future__ import annotations

import os
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from msgspec import NODEFAULT, Struct, structs

from weft.model.errors import UsageError
from weft.model.suggestions import nearest

if TYPE_CHECKING:
    from weft.runs.verbs import Verb

HELP: Final = ("--help", "-h")
F = TypeVar("F", bound=Callable[..., Any])
_ARGS: Final = 0x04
_KEYWORDS: Final = 0x08
"""Flags of code objects: the function takes `*args`, `**keywords`."""
_PROJECT: Final = ("-C", "--project")
_OF_RUN: Final = "RUN/STEP"
"""What the help of an argument says that is a run or a step of it, in one word."""
_FILES: Final = (".yaml", ".yml", ".json", ".py")
_OTHER_WORDS: Final = {
    **dict.fromkeys(("status", "ps", "runs"), "ls"),
    **dict.fromkeys(("start", "exec", "submit"), "run"),
    **dict.fromkeys(("stop", "kill", "abort"), "cancel"),
    **dict.fromkeys(("rm", "remove"), "delete"),
    **dict.fromkeys(("retry", "rerun", "restart"), "resume"),
    **dict.fromkeys(("validate", "check", "lint"), "plan"),
    **dict.fromkeys(("history", "events"), "story"),
    "info": "show",
    "describe": "show",
    "daemon": "up",
}
"""Commands of other programs, with the command that does the same here."""
_LONGEST_PATH: Final = 4000
_LONGEST_NAME: Final = 255
"""Of a file or a folder, in bytes."""
_WIDTH: Final = 100
_COLUMN: Final = 26
_METAVARS: Final = {str: "STR", int: "INT", Path: "PATH"}


class CommandParameter:
    """The names and the help of a parameter of a command.

    `names` are by default the name of the parameter, with hyphens. A parameter without `parse` is passed by the caller
    of the command; one without `show` is absent from the help. An option with `bare` may stand without a value, and
    has this one then; its value follows only after `=`. With `filled`, and of the type `Path`, a value is not empty.
    """

    __slots__ = ("bare", "filled", "help", "names", "parse", "show")

    def __init__(
        self,
        name: str | Sequence[str] = (),
        *,
        help: str = "",
        parse: bool = True,
        show: bool = True,
        bare: str = "",
        filled: bool = False,
    ) -> None:
        self.names = (name,) if isinstance(name, str) else tuple(name)
        self.help, self.parse, self.show, self.bare, self.filled = help, parse, show, bare, filled


class Invocation(Struct, frozen=True):
    """A command with its arguments. `wants` names the parameters that are not on the command line."""

    function: Callable[..., Any]
    args: list[Any]
    kwargs: dict[str, Any]
    wants: frozenset[str]


class _Given(Struct, frozen=True):
    """An argument or an option of a command; `group` is the keyword that takes it as a field."""

    key: str
    names: tuple[str, ...]
    kind: type
    many: bool
    by_place: bool
    required: bool
    help: str
    show: bool
    group: str = ""
    bare: str = ""
    filled: bool = False


class CommandEntry(Struct, frozen=True):
    """A command or a group, or the text `module:attribute` of one that is not loaded yet.

    `about` is its help, by default that of its docstring; `verb` has the help of its parameters.
    """

    target: CommandGroup | Callable[..., Any] | str
    about: str = ""
    verb: Verb | None = None

    def loaded(self) -> CommandEntry:
        """Return the command with its target."""
        if not isinstance(self.target, str):
            return self
        module, _, attribute = self.target.partition(":")
        return structs.replace(self, target=getattr(__import__(module, fromlist=[attribute]), attribute))

    @property
    def summary(self) -> str:
        """The help in one line."""
        return self.about or (self.target.help if isinstance(self.target, CommandGroup) else _summary(self.target))


class FoundCommand(Struct, frozen=True):
    """The target of words: a command, the remaining words, and its path."""

    command: CommandEntry
    words: Sequence[str]
    path: str


class CommandGroup:
    """Commands by name, which may be groups themselves."""

    def __init__(self, name: str, *, help: str = "") -> None:
        self.name, self.help = name, help
        self._commands: dict[str, CommandEntry] = {}
        self._aliases: dict[str, str] = {}

    @overload
    def command(self, target: F, *, verb: Verb | None = None) -> F: ...

    @overload
    def command(
        self, target: CommandGroup | str, *, name: str = "", help: str = "", verb: Verb | None = None
    ) -> CommandGroup | str: ...

    @overload
    def command(self, *, name: str = "", verb: Verb | None = None) -> Callable[[F], F]: ...

    def command(self, target: Any = None, *, name: str = "", help: str = "", verb: Verb | None = None) -> Any:
        """Add a function, a group, or the text `module:attribute` of one that is loaded at its first use.

        Without a target, return a decorator. The help of a function is that of its verb, or the first paragraph of its
        docstring. The name is by default the last word of the verb, or the name of the target.
        """
        if target is None:
            return lambda function: self.command(function, name=name, verb=verb)
        if not name:
            name = target.name if isinstance(target, CommandGroup) else target.__name__ if callable(target) else ""
        if verb is not None:
            name, help = verb.name.rpartition(" ")[2], verb.help
            self._aliases |= dict.fromkeys(verb.aliases, name)
        self._commands[name] = CommandEntry(target, help, verb)
        return target

    def __iter__(self) -> Iterator[str]:
        return iter(self._commands)

    def find(self, words: Sequence[str], path: str = "", about: str = "") -> FoundCommand:
        """Return the command that words begin with; `about` is the help of this group in its parent."""
        path = path or self.name
        if not words or words[0].startswith("-"):
            return FoundCommand(CommandEntry(self, self.help or about), words, path)
        name = self._aliases.get(words[0], words[0])
        if name not in self._commands:
            raise _wrong(path, f'unknown command "{name[:100]}"', self._meant(name, path), self._commands)
        found = self._commands[name].loaded()
        path = f"{path} {name}"
        if isinstance(found.target, CommandGroup):
            return found.target.find(words[1:], path, found.about)
        return FoundCommand(found, words[1:], path)

    def _meant(self, word: str, path: str) -> str:
        """Return the command for a word that is none: a word of other programs, a file, or a slip."""
        if word in ("help", "version"):
            return f"{path} --{word}"
        if "run" in self._commands and word.endswith(_FILES):
            return f"{path} run {word[:100]}"
        other = _OTHER_WORDS.get(word, "")
        return other if other in self._commands else nearest(word, self._commands)

    def parse(self, words: Sequence[str]) -> Invocation | str:
        """Return the command to call, or the requested help. UsageError: no valid command line."""
        found = self.find(words)
        command, rest, path = found.command, found.words, found.path
        own = rest[: rest.index("--")] if "--" in rest else rest
        wanted = any(word in HELP for word in own)
        if isinstance(command.target, CommandGroup):
            if wanted or not rest:
                return _help_of_group(command.target, path, command.about)
            behind = next((word for word in rest if word in command.target), "")
            place = f" before the command; it belongs behind: {path} {behind} {rest[0][:100]}" if behind else ""
            raise _wrong(path, f"unknown option {rest[0][:100]}{place}", "", ())
        return _help_of_command(command, path) if wanted else _Reader(command, path).read(rest)


class _Reader:
    """The parser of the words of one command."""

    def __init__(self, command: CommandEntry, path: str) -> None:
        assert callable(command.target)
        self.function, self.path = command.target, path
        self.given, self.wants, self.groups = _given(command.target, command.verb)
        self.options = {name: one for one in self.given for name in one.names if not one.by_place}
        self.values: dict[str, Any] = {}
        self.args: list[Any] = []

    def read(self, words: Sequence[str]) -> Invocation:
        positional = [one for one in self.given if one.by_place]
        args = self.args
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
        self._check_missing([one for one in positional[len(args) :] if one.required])
        named = {one.key: self.values[one.key] for one in self.given if not one.group and one.key in self.values}
        for group, kind in self.groups.items():
            own = [one.key for one in self.given if one.group == group and one.key in self.values]
            named[group] = kind(**{key: self.values[key] for key in own})
        return Invocation(self.function, args, named, self.wants)

    def _check_missing(self, places: Sequence[_Given]) -> None:
        """Require all words and options that a command needs, of which `places` are not there. All are named."""
        options = [one for one in self.given if one.required and not one.by_place and one.key not in self.values]
        missing = [*(one.names[0] for one in places), *(one.names[-1] for one in options)]
        if len(missing) == 1:
            about = f" ({places[0].help.rstrip('.')})" if places and places[0].help else ""
            if places and places[0].kind is Path and (taken := self._taken_file()):
                about = f": {taken}"
            raise self._wrong(f"{missing[0]} is missing{about}")
        if missing:
            raise self._wrong(f"{', '.join(missing[:-1])} and {missing[-1]} are missing")

    def _taken_file(self) -> str:
        """Return which option has taken the name of a file for its value, in words; "" if none has."""
        for one in self.given:
            values = self.values.get(one.key, ()) if one.many and not one.by_place else ()
            if file := next((value for value in values if value.endswith(_FILES) and "=" not in value), ""):
                return f"{one.names[0]} took {file[:100]} as its value; leave out {one.names[0]}"
        return ""

    def _positional(self, positional: list[_Given], args: list[Any], word: str) -> None:
        place = next((one for at, one in enumerate(positional) if one.many or at == len(args)), None)
        if place is None:
            of_run = bool(args) and _OF_RUN in positional[-1].help and "/" not in str(args[-1])
            meant = f"{args[-1]}/{word[:100]}" if of_run else self._as_pair(word)
            meant = f". Did you mean {meant}?" if meant else ""
            raise self._wrong(f"{word[:100]!r} is one word too many{meant}")
        args.append(self._value(place, place.names[0], word))

    def _as_pair(self, word: str) -> str:
        """Return a word `NAME=VALUE` with the first option that takes such pairs, "" without one."""
        pairs = [one for one in self.given if one.many and not one.by_place and "NAME=VALUE" in one.help]
        return f"{pairs[0].names[0]} {word[:100]}" if pairs and "=" in word[1:] else ""

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
            known = [names[-1] for each in self.given if not each.by_place and each.show and (names := each.names)]
            own = self._project_of_file(name, value if equals else next(iter(rest), ""))
            near = _nearest_option(name, self.options)
            raise _wrong(self.path, f"unknown option {name[:100]}{own}", near, () if own else known)
        if one.kind is bool:
            if equals:
                raise self._wrong(f"{name} takes no value")
            self.values[one.key] = True
            return rest
        if not equals and one.bare:
            value = one.bare
        elif not equals:
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

    def _project_of_file(self, name: str, folder: str) -> str:
        """Return what a command that is given a file does without the option for a project; "" for other options."""
        place = next((one.names[0] for one in self.given if one.by_place and one.kind is Path), "")
        if name not in _PROJECT or not place:
            return ""
        file = next(iter(self.args), place)
        return f": the project is that of {place}, so write {self.path} {folder[:100] or 'FOLDER'}/{file}"

    def _value(self, one: _Given, name: str, word: str) -> Any:
        if not word and (one.filled or one.kind is Path):
            raise self._wrong(f"{name} is empty")
        if one.kind is Path and (
            len(word) > _LONGEST_PATH or any(len(os.fsencode(at)) > _LONGEST_NAME for at in word.split("/"))
        ):
            raise self._wrong(f"{name} is longer than a path can be: {word[:100]}...")
        if one.kind is not int:
            return one.kind(word)
        try:
            return int(word)
        except ValueError:
            raise self._wrong(f"{name} is {word[:100]!r}; it must be a whole number") from None

    def _wrong(self, what: str, near: str = "") -> UsageError:
        return _wrong(self.path, what, near, ())


def _given(
    function: Callable[..., Any], verb: Verb | None = None
) -> tuple[list[_Given], frozenset[str], dict[str, type[Struct]]]:
    """Return the parameters of a command, those that are not on the command line, and the groups of options.

    TypeError: an unsupported type, or no help.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    found: list[_Given] = []
    wants, groups = set(), {}
    for key, by_place, several, required in _signature(function):
        hint = hints[key]
        if isinstance(hint, type) and issubclass(hint, Struct):
            groups[key] = hint
            types = typing.get_type_hints(hint, include_extras=True)
            for name, needed in _fields_of(hint):
                one = _one(name, types[name], verb, function)
                found.append(structs.replace(one, group=key, required=needed))
            continue
        one = _one(key, hint, verb, function)
        if not one.names:
            wants.add(key)
            continue
        one = structs.replace(one, many=one.many or several, required=required)
        if by_place:
            one = structs.replace(one, by_place=True, names=(key.upper(),))
        found.append(one)
    return found, frozenset(wants), groups


def _fields_of(group: type[Struct]) -> Iterator[tuple[str, bool]]:
    """Yield for each field its name, and whether it is required: `structs.fields` would read all types once more."""
    names, defaults = group.__struct_fields__, group.__struct_defaults__
    yield from ((name, True) for name in names[: len(names) - len(defaults)])
    behind = zip(names[len(names) - len(defaults) :], defaults, strict=True)
    yield from ((name, default is NODEFAULT) for name, default in behind)


def _signature(function: Any) -> Iterator[tuple[str, bool, bool, bool]]:
    """Yield for each parameter its name, and whether it goes by place, is one of several values, and is required.

    The module `inspect` would take longer to load than this parser.
    """
    code, names = function.__code__, function.__code__.co_varnames
    places, end = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    optional = places - len(function.__defaults__ or ())
    several = [bool(code.co_flags & flag) for flag in (_ARGS, _KEYWORDS)]
    yield from ((name, True, False, at < optional) for at, name in enumerate(names[:places]))
    if several[0]:
        yield names[end], True, True, False
    yield from ((name, False, False, name not in (function.__kwdefaults__ or {})) for name in names[places:end])
    if several[1]:
        yield names[end + several[0]], False, True, False


def _one(key: str, hint: Any, verb: Verb | None, function: Callable[..., Any]) -> _Given:
    """Return an option by its type; one without names is not on the command line."""
    about = next((one for one in getattr(hint, "__metadata__", ()) if isinstance(one, CommandParameter)), None)
    if about is None:
        argument = next((one for one in (() if verb is None else verb.arguments) if one.name == key), None)
        if argument is None:
            raise TypeError(f"{function.__name__}: {key} has no CommandParameter")
        about = CommandParameter(argument.options, help=argument.help, bare=argument.bare, filled=argument.filled)
    else:
        hint = hint.__origin__
    if not about.parse:
        return _Given(key, (), str, False, False, False, "", False)
    if isinstance(hint, UnionType) or typing.get_origin(hint) is typing.Union:
        (hint,) = (one for one in typing.get_args(hint) if one is not type(None))
    many = typing.get_origin(hint) is list
    kind = str if many else hint
    if kind not in (*_METAVARS, bool):
        raise TypeError(f"{function.__name__}: {key} is of a type that cannot be read: {kind}")
    names = about.names or (f"--{key.replace('_', '-')}",)
    return _Given(key, names, kind, many, False, False, about.help, about.show, bare=about.bare, filled=about.filled)


def _nearest_option(name: str, options: Iterable[str]) -> str:
    """Return the option that was probably meant, "" without one. Its first letter is rarely mistaken."""
    bare = {option.lstrip("-"): option for option in options}
    word = name.lstrip("-")
    return bare.get(nearest(word, [one for one in bare if one[:1] == word[:1].lower()]), "")


def _wrong(path: str, what: str, near: str, known: Iterable[str]) -> UsageError:
    message = f"{what[0].upper()}{what[1:]}"
    if near:
        message += f". Did you mean {near}?"
    elif names := ", ".join(sorted(known)):
        message += f". There are: {names}"
    return UsageError(message, hint=f"See: {path} --help")


# --------------------------------------------------------------------------------------------------------------- help


def _summary(target: Any) -> str:
    return " ".join((target.__doc__ or "").split("\n\n")[0].split())


def _help_of_group(group: CommandGroup, path: str, about: str) -> str:
    rows = [(name, command.summary) for name, command in sorted(group._commands.items())]
    options = [(", ".join(HELP), "Print this help, or the help of a command.")]
    if " " not in path:
        options.append(("--version, -V", "Print the version."))
    return _page(f"Usage: {path} COMMAND", about, {"Commands": rows, "Options": options})


def options_of(command: CommandEntry) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the arguments and the options of a command that help shows, as pairs of names and help."""
    assert callable(command.target)
    given, _, _ = _given(command.target, command.verb)
    arguments = [(_placed(one), one.help) for one in given if one.by_place]
    options = [(", ".join(one.names) + _takes(one), one.help) for one in given if not one.by_place and one.show]
    return arguments, options


def _placed(one: _Given) -> str:
    """Return an argument as the usage shows it."""
    shown = one.names[0] + ("..." if one.many else "")
    return shown if one.required else f"[{shown}]"


def _help_of_command(command: CommandEntry, path: str) -> str:
    arguments, options = options_of(command)
    usage = [f"Usage: {path}", *(["[OPTIONS]"] if options else []), *(name for name, _ in arguments)]
    named = [(name.strip("[]."), text) for name, text in arguments]
    return _page(" ".join(usage), command.summary, {"Arguments": named, "Options": options})


def _takes(one: _Given) -> str:
    if one.bare:
        return f"[={_METAVARS[one.kind]}]"
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
