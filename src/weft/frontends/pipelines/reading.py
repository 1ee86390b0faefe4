"""The text of a pipeline, from a file or from a program that builds it."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Final

from weft.frontends.pipelines.check import parse_pipeline
from weft.frontends.pipelines.compiler import PipelineSource
from weft.frontends.pipelines.kinds import PYTHON, STEP_KINDS
from weft.frontends.pipelines.overrides import outdone
from weft.frontends.pipelines.profiles import Profile, profile_in, profile_of_values
from weft.model.errors import DefinitionError, ForbiddenError, InputLimitError, NotFoundError, UsageError
from weft.model.patterns import late_pattern
from weft.model.suggestions import nearest

_MAX_FILE: Final = 1 << 20
_MOST_ENTRIES: Final = 1000
_MOST_SHOWN: Final = 5
_STDIN: Final = "-"
_STREAM: Final = late_pattern(r"/dev/[^/]+$|/dev/fd/|/proc/")


def origin_of(path: str, given: Mapping[str, object], name: str | None) -> PipelineSource:
    """Return the source of a pipeline: a file, or the text that a Python file builds."""
    renamed = None if name is None else pipeline_name(name)
    if not PYTHON.search(path):
        return PipelineSource(_read_text(Path(path)), path, dict(given), renamed, STEP_KINDS)
    from weft.frontends.pipelines.files import build_file

    built, file, rest = build_file(path, given, STEP_KINDS)
    return PipelineSource(built.text(), file, rest, renamed, STEP_KINDS, dict(given))


def profile_of(path: str, name: str) -> Profile:
    """Return a profile of a pipeline file, with the values of `weft.toml` below its own.

    UsageError: neither has it, or the pipeline comes from standard input. Otherwise errors are those of `origin_of`.
    """
    if path == _STDIN:
        hint = "Write the pipeline to a file, and name that."
        raise UsageError("a profile cannot be looked up in standard input, which is read once", hint=hint)
    if not PYTHON.search(path):
        return profile_of_text(_read_text(Path(path)), path, name)
    from weft.frontends.pipelines.files import declared_profiles

    return profile_of_values(*declared_profiles(path), name)


def profile_of_text(text: str, file: str, name: str) -> Profile:
    """Return a profile of the text of a file; otherwise as `profile_of`."""
    return profile_in(text, file, name, lambda below, above: outdone(parse_pipeline(text, file), below, above))


def layered(path: str, below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    """Return the parameters of two places for the pipeline of a file: those of `above` win.

    A bare name in `above` wins over `step.name` in `below` too, for each step whose parameter a bare name sets. Errors
    are those of `origin_of`.
    """
    gone = {key for key in below if "." in key and key not in above and key.rpartition(".")[2] in above}
    if gone and PYTHON.search(path):
        from weft.frontends.pipelines.files import declared_arguments

        own = declared_arguments(path)
        gone = {key for key in gone if key.rpartition(".")[2] not in own}
    elif gone and path != _STDIN:  # which is read once: there every step counts
        gone = outdone(origin_of(path, {}, None).pipeline(), gone, above)
    return {key: value for key, value in {**below, **above}.items() if key not in gone}


def pipeline_name(name: str) -> str:
    """Check a name from outside the file, by the rules of the file."""
    try:
        return parse_pipeline(json.dumps({"name": name, "entry_points": {"step": {}}}), "name").name
    except DefinitionError as error:
        raise UsageError(f"{name[:60]!r} cannot name a pipeline", hint=error.hint) from None


def _read_text(file: Path) -> str:
    if _STREAM.match(str(file.absolute())):
        hint = f"Write {_STDIN} in its place: that reads standard input, and the pipeline works in the current folder."
        raise UsageError(f"{file} is in no folder, and a pipeline needs a folder to work in", hint=hint)
    try:
        if str(file) != _STDIN and stat.S_IFMT(file.stat().st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
            hint = f"Save the pipeline to a file, or pass it by standard input: weft run {_STDIN} < {file}"
            raise UsageError(f"{file} is no regular file", hint=hint)  # a read of a pipe waits, whatever the signal
        with nullcontext(sys.stdin.buffer) if str(file) == _STDIN else file.open("rb") as source:
            data = source.read(_MAX_FILE + 1)
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {file}", hint=_hint(file.parent, file.name)) from None
    except IsADirectoryError:
        raise ForbiddenError(f"{file} is a folder without files of training jobs", hint=_hint(file, "")) from None
    except OSError as error:
        message = f"{file} cannot be read: {error.strerror}"
        raise ForbiddenError(message, hint=_hint(file, "")) from None
    if len(data) > _MAX_FILE:
        raise InputLimitError(f"{file} is larger than {_MAX_FILE >> 20} MiB", hint="Pass large data as files.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DefinitionError(f"{file} is not UTF-8 text (byte {error.start})", hint="Save it as UTF-8.") from None


def _hint(folder: Path, name: str) -> str:
    """Return the hint for a file that is missing in a folder, or for the folder in place of a file."""
    try:
        with os.scandir(folder) as entries:
            found = sorted(one.name for one in islice(entries, _MOST_ENTRIES) if one.name.endswith((".yaml", ".yml")))
    except OSError:
        found = []
    near = nearest(name, found)
    if near:
        return f"Did you mean {folder / near}?"
    hint = "Name the YAML file of a pipeline."
    return f"{hint} In that folder: {', '.join(found[:_MOST_SHOWN])}" if found else hint
