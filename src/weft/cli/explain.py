"""The texts of `weft errors`: sections of `docs/errors.md`, or the docstring of an error without a section."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weft.model import errors
from weft.model.errors import NotFoundError, WeftError
from weft.model.suggestions import did_you_mean


def kinds() -> Iterator[type[WeftError]]:
    """Yield all error classes, by code."""
    found = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, WeftError)]
    return iter(sorted(found, key=lambda kind: kind.code))


def list_codes() -> str:
    """Return one line for each code."""
    return "".join(f"{kind.code}  {kind.__name__:20} exit {kind.exit_code:3}  {_first(kind)}\n" for kind in kinds())


def explain(code: str) -> str:
    """Return the explanation of a code. NotFoundError: the code does not exist."""
    return _section(kind_of(code))


def document(kind: type[WeftError]) -> dict[str, Any]:
    """Return the JSON document of an error class."""
    return {"code": kind.code, "name": kind.__name__, "exit_code": kind.exit_code, "about": _first(kind)}


def kind_of(code: str) -> type[WeftError]:
    """Return the error class of a code or a name. NotFoundError: it does not exist."""
    wanted = code.strip().upper()
    wanted = f"WEFT{wanted}" if wanted.isdigit() else wanted
    for kind in kinds():
        if wanted in (kind.code, kind.__name__.upper()):
            return kind
    hint = did_you_mean(wanted, [kind.code for kind in kinds()], "List them: weft errors")
    raise NotFoundError(f"there is no error {code!r}", hint=hint)


def _section(kind: type[WeftError]) -> str:
    here = Path(__file__)
    for page in (here.with_name("errors.md"), here.parents[3] / "docs" / "errors.md"):
        if page.is_file():
            text = page.read_text(encoding="utf-8")
            if match := re.search(rf"^## {kind.code} .*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL):
                return match[0].removeprefix("## ").strip() + "\n"
    return f"{kind.code} {kind.__name__}\n\nExit code {kind.exit_code}.\n\n{kind.__doc__}\n"


def _first(kind: type[WeftError]) -> str:
    return (kind.__doc__ or "").split("\n", 1)[0]
