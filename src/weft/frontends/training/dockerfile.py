"""The lines of a Dockerfile that say how an image starts and which files it has; nothing is built.

ARG, ENV, WORKDIR, COPY, ADD, SHELL, ENTRYPOINT and CMD of the last stage count. RUN is not carried out: what it
installs must be in the environment of the replicas. Source: the Dockerfile reference of Docker.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import Struct, field

from weft.model.errors import DefinitionError

_SHELL: Final[tuple[str, ...]] = ("/bin/sh", "-c")
_ESCAPE: Final = re.compile(r"#\s*escape\s*=\s*([\\`])\s*", re.IGNORECASE)
_HEREDOC: Final = re.compile(r"<<-?\s*[\"']?([A-Za-z_]\w*)[\"']?")
_VARIABLE: Final = re.compile(r"\$(?:(\w+)|\{(\w+)(?:(:[-+])([^}]*))?\})")
_DOLLAR: Final = "\0"
"""Stands for an escaped dollar sign; no Dockerfile has a NUL."""
_OPTION: Final = re.compile(r"--[a-z][a-z-]*(?:=\S*)?\s+")


class CopiedFiles(Struct, frozen=True):
    """A COPY or ADD: files or folders of the build context, patterns included, and the absolute path in the image.

    A `target` that ends with a slash is a folder: so are that of several sources, and a working folder.
    """

    sources: tuple[str, ...]
    target: str
    line: int


class Dockerfile(Struct, frozen=True, kw_only=True):
    """The last stage of a Dockerfile: how a container starts, its environment, and its copied files.

    `entrypoint` and `cmd` are words; a shell form begins with the shell. `ignored` are (line, text) of files that lie
    elsewhere: other stages, URLs, inline documents. `runs` counts the RUN lines.
    """

    base: str = ""
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"
    copies: tuple[CopiedFiles, ...] = ()
    ignored: tuple[tuple[int, str], ...] = ()
    runs: int = 0


class _Instruction(NamedTuple):
    line: int
    name: str
    text: str


def parse_dockerfile(text: str, file: str, arguments: Mapping[str, str] | None = None) -> Dockerfile:
    """Return the last stage. `arguments` replace the defaults of ARG. DefinitionError names the file and the line."""
    stage = _Stage(file, dict(arguments or {}))
    for instruction in _instructions(text):
        stage.take(instruction)
    if not stage.base:
        raise DefinitionError(f"{file}: there is no FROM line", hint="Begin with FROM and the image that it builds on.")
    return Dockerfile(
        base=stage.base,
        entrypoint=stage.entrypoint,
        cmd=stage.cmd,
        env=stage.env,
        workdir=stage.workdir,
        copies=tuple(stage.copies),
        ignored=tuple(stage.ignored),
        runs=stage.runs,
    )


def _instructions(text: str) -> list[_Instruction]:
    """Join continued lines; leave out comments, blank lines, and inline documents."""
    lines = text.splitlines()
    escape = next((match[1] for line in lines[:2] if (match := _ESCAPE.fullmatch(line.strip()))), "\\")
    found: list[_Instruction] = []
    parts: list[str] = []
    begun, ends = 0, ""
    for number, line in enumerate(lines, 1):
        if ends:
            ends = "" if line.strip() == ends else ends
            continue
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        begun = begun if parts else number
        if bare.endswith(escape):
            parts.append(bare[:-1])
            continue
        name, _, rest = " ".join([*parts, bare]).strip().partition(" ")
        found.append(_Instruction(begun, name.upper(), rest.strip()))
        parts = []
        if name.upper() in ("RUN", "COPY", "ADD") and (inline := _HEREDOC.search(rest)):
            ends = inline[1]
    return found


class _Stage:
    """The stage that is being read; FROM begins a new one."""

    def __init__(self, file: str, given: Mapping[str, str]) -> None:
        self.file, self.given, self.outer = file, given, dict[str, str]()
        self.base = ""
        self._begin()

    def _begin(self) -> None:
        self.entrypoint: tuple[str, ...] = ()
        self.cmd: tuple[str, ...] = ()
        self.shell = _SHELL
        self.env: dict[str, str] = {}
        self.args: dict[str, str] = {}
        self.workdir = "/"
        self.workdirs: set[str] = set()
        self.copies: list[CopiedFiles] = []
        self.ignored: list[tuple[int, str]] = []
        self.runs = 0

    def take(self, one: _Instruction) -> None:
        if one.name == "FROM":
            words = _OPTION.sub("", one.text + " ").split()
            if not words:
                raise self._wrong(one, "FROM names no image")
            self._begin()
            self.base = self._filled(words[0], self.outer)
        elif one.name == "ARG":
            self._arg(one)
        elif one.name == "ENV":
            self.env.update(self._pairs(one))
        elif one.name == "WORKDIR":
            self.workdir = posixpath.normpath(posixpath.join(self.workdir, self._filled(one.text).strip("\"'")))
            self.workdirs.add(self.workdir)
        elif one.name in ("COPY", "ADD"):
            self._copy(one)
        elif one.name == "SHELL":
            self.shell = self._words(one)
        elif one.name == "ENTRYPOINT":
            self.entrypoint, self.cmd = self._words(one), ()
        elif one.name == "CMD":
            self.cmd = self._words(one)
        elif one.name == "RUN":
            self.runs += 1

    def _arg(self, one: _Instruction) -> None:
        for word in self._split(one):
            name, given, default = word.partition("=")
            value = self.given.get(name, self._filled(default) if given else self.outer.get(name))
            if value is not None:
                (self.args if self.base else self.outer)[name] = value

    def _pairs(self, one: _Instruction) -> dict[str, str]:
        name, _, rest = one.text.partition(" ")
        if "=" not in name:
            return {name: self._filled(rest.strip())}
        pairs = [self._filled(word).partition("=") for word in self._split(one)]
        if wrong := next((word for word, given, _ in pairs if not given), ""):
            raise self._wrong(one, f"{wrong!r} is no NAME=value")
        return {name: value for name, _, value in pairs}

    def _copy(self, one: _Instruction) -> None:
        text = one.text + " "
        options = _OPTION.match(text)
        elsewhere = False
        while options:
            elsewhere = elsewhere or options[0].startswith("--from")
            text = text[options.end() :]
            options = _OPTION.match(text)
        words = self._list(text) or self._split(one._replace(text=text))
        *sources, target = [self._filled(word) for word in words] or [""]
        if not sources:
            raise self._wrong(one, f"{one.name} needs files and a place for them")
        if elsewhere or any("://" in word or word.startswith(("git@", "<<")) for word in sources):
            self.ignored.append((one.line, f"{one.name} {one.text}"))
            return
        place = posixpath.normpath(posixpath.join(self.workdir, target))
        folder = len(sources) > 1 or target.endswith(("/", "/.")) or target == "." or place in self.workdirs
        self.copies.append(CopiedFiles(tuple(sources), place.rstrip("/") + "/" if folder else place, one.line))

    def _words(self, one: _Instruction) -> tuple[str, ...]:
        return tuple(self._list(one.text)) or ((*self.shell, one.text) if one.text else ())

    def _list(self, text: str) -> list[str]:
        try:
            found = json.loads(text)
        except ValueError:
            return []
        return found if isinstance(found, list) and all(isinstance(word, str) for word in found) else []

    def _split(self, one: _Instruction) -> list[str]:
        try:
            return shlex.split(one.text.replace("\\$", _DOLLAR))
        except ValueError as error:
            raise self._wrong(one, str(error)) from None

    def _filled(self, text: str, known: Mapping[str, str] | None = None) -> str:
        """Replace `$NAME`, `${NAME}`, `${NAME:-otherwise}` and `${NAME:+instead}`."""
        values = {**self.args, **self.env} if known is None else known

        def value(match: re.Match[str]) -> str:
            found = values.get(match[1] or match[2], "")
            if match[3] == ":-":
                return found or match[4]
            return match[4] if match[3] and found else found

        return _VARIABLE.sub(value, text.replace("\\$", _DOLLAR)).replace(_DOLLAR, "$")

    def _wrong(self, one: _Instruction, why: str) -> DefinitionError:
        return DefinitionError(f"{self.file}:{one.line}: {why}", hint=f"Correct this line: {one.name} {one.text}"[:200])
