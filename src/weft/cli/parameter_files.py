"""Parameters of a run from a JSON or TOML file: `--param-file`."""

from __future__ import annotations

import json
import math
import tomllib
from datetime import date, time
from pathlib import Path
from typing import Any, Final

from weft.model.errors import UsageError
from weft.model.records import flattened

_MAX_BYTES: Final = 1 << 20


def read_parameters(file: Path) -> dict[str, str]:
    """Read the parameters of a JSON file (suffix .json) or a TOML file as texts; tables become `step.name`.

    Dates and times are in the form of ISO 8601. UsageError: the file cannot be read, or holds what no parameter can be.
    """
    kind = "JSON" if file.suffix.lower() == ".json" else "TOML"
    try:
        with file.open("rb") as source:
            data = source.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise UsageError(f"{file} is larger than 1 MiB")
        text = data.decode()
        found = json.loads(text, object_pairs_hook=_unique) if kind == "JSON" else tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 text (byte {error.start})", hint="Save it as UTF-8.") from None
    except (ValueError, RecursionError) as error:  # not JSON, not TOML
        raise UsageError(f"{file} is not {kind}: {error}", hint="Write names and values in it.") from None
    if not isinstance(found, dict):
        raise UsageError(f"{file} does not hold names and values", hint='Write for example {"epochs": 20}')
    flat: dict[str, str] = {}
    for name, value in flattened(found):
        if name in flat:
            raise UsageError(f"{file} has parameter {name!r} twice", hint="Leave out one of them.")
        try:
            flat[name] = _as_text(value)
        except ValueError as error:
            raise UsageError(f"{file}: parameter {name!r} {error}") from None
    return flat


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the name {next(key for key in keys if keys.count(key) > 1)[:100]!r} occurs twice")
    return made


def _as_text(value: object) -> str:
    """Return a value as the text that `-p` takes. ValueError: no parameter can have it."""
    if isinstance(value, str):
        return value
    plain = _checked(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _checked(value: object) -> object:
    match value:
        case float() if not math.isfinite(value):
            raise ValueError(f"is {value}; a number must be finite, and text stands in quotes")
        case None:
            raise ValueError("is null; leave it out, or write a value")
        case dict():
            raise ValueError("has a table inside a list; write text, numbers and lists")
        case date() | time():
            return value.isoformat()
        case list():
            return [_checked(one) for one in value]
    return value
